// Package unfold says what the constants of a model's file must be, so that the passes before pruning make of them
// what pruning has made: it undoes the folding of batch normalisation, of factors and of summands into weights and biases, and
// the transposes of constants. Nothing is taken from those passes but what they made: each constant is found by its name, and what it was
// computed from is compared with what it was before pruning, so that a constant that was computed in another way is refused, not guessed.
// It imports ir, ir/op, ir/tensor, and, for how constants are packed and what of them went with channels, ir/onnx/contrib and passes/prune.
package unfold

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/onnx/contrib"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/prune"
)

// Graphs are a model as it was imported, and as it was right before and right after its weights were changed.
type Graphs struct {
	File, Before, After *ir.Graph
	// Holds reports whether the file has a tensor as it is.
	Holds func(t *tensor.Tensor) bool
	// Packing says how a constant that the file does not hold lies in a tensor that it holds; nil where it does not. It may be nil itself.
	Packing func(t *tensor.Tensor) *contrib.Packing
	// Cuts are what of constants stays where channels went, by their names before.
	Cuts []prune.Cut
	// Opset is the version of the file's default operator set.
	Opset int
}

// Result is what becomes of the file.
type Result struct {
	Tensors   map[*tensor.Tensor]*tensor.Tensor // by those that the file holds; where channels go they have other shapes
	Biases    []Constant                        // those that products have not in the file
	Constants []Constant                        // that nodes read in the place of what they read
	Attrs     []Attr
	Aliases   map[string]string // values that are read no more, and which are read in their places
	Notes     []string          // for users, a line each

	consts map[*tensor.Tensor]*tensor.Tensor // Tensors, by constants of Graphs.File
}

// Constant is one that a node of the main graph has not in the file.
type Constant struct {
	Name   string // no value of the file has it
	Kind   string // of the node
	Output string // what the node computes
	Index  int    // of the input
	Tensor *tensor.Tensor
}

// Attr is an attribute of a node of the main graph that has other numbers.
type Attr struct {
	Kind, Output string // of the node, as those of Constant
	Name         string
	Value        any // int or []int
}

// Find finds what becomes of the file. What it has no constant for wraps ir.ErrUnsupported.
func Find(g Graphs) (*Result, error) {
	f := &finder{
		Graphs:  g,
		values:  map[string]*ir.Value{},
		shared:  map[*tensor.Tensor]int{},
		packed:  map[*tensor.Tensor]int{},
		left:    map[string]*ir.Node{},
		weights: map[*ir.Value]ir.WeightUse{},
		pairs:   map[*ir.Value]*ir.Value{},
		gone:    map[*tensor.Tensor][]bool{},
		cuts:    map[string]map[int][]int{},
		now:     map[string]bool{},
		out:     &Result{Tensors: map[*tensor.Tensor]*tensor.Tensor{}, Aliases: map[string]string{}, consts: map[*tensor.Tensor]*tensor.Tensor{}},
	}
	for sub := range g.File.All() {
		for _, n := range sub.Nodes {
			for _, v := range n.Outputs {
				if v != nil {
					f.values[v.Name] = v
				}
			}
		}
	}
	for _, v := range g.File.Constants() {
		f.values[v.Name] = v
		f.shared[v.Const]++
		if p := f.packing(v.Const); p != nil {
			f.packed[p.Input]++
		}
	}
	for sub := range g.Before.All() {
		for _, n := range sub.Nodes {
			f.left[nameOf(n)] = n
		}
	}
	for _, u := range g.Before.WeightUses() {
		f.weights[u.Value] = u
	}
	for sub := range g.After.All() {
		for _, n := range sub.Nodes {
			f.now[nameOf(n)] = true
		}
	}
	for _, c := range g.Cuts {
		if f.cuts[c.Name] == nil {
			f.cuts[c.Name] = map[int][]int{}
		}
		f.cuts[c.Name][c.Axis] = c.Keep
	}
	if err := f.compare(); err != nil {
		return nil, err
	}
	if err := f.shrink(); err != nil {
		return nil, err
	}
	return f.out, nil
}

// finder is the state of Find.
type finder struct {
	Graphs
	values  map[string]*ir.Value       // of the file
	shared  map[*tensor.Tensor]int     // how many constants of the file a tensor is
	packed  map[*tensor.Tensor]int     // how many constants of the file were unpacked from a tensor
	left    map[string]*ir.Node        // nodes before pruning, by what they compute
	weights map[*ir.Value]ir.WeightUse // before pruning
	pairs   map[*ir.Value]*ir.Value    // constants after pruning, by those before
	now     map[string]bool            // nodes after pruning, by what they compute
	cuts    map[string]map[int][]int   // which slices of constants before pruning stay, by axis
	gone    map[*tensor.Tensor][]bool  // elements of tensors of the file that go with channels
	out     *Result
}

// refusal is an error that wraps ir.ErrUnsupported.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return ir.ErrUnsupported }

func unsupported(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// nameOf is the name of the first value that n computes.
func nameOf(n *ir.Node) string {
	for _, v := range n.Outputs {
		if v != nil {
			return v.Name
		}
	}
	return ""
}

// compare goes through the nodes after pruning, and finds what became of their constants, of numbers that channels are counted by, and of
// what nodes read that are gone. All else is as it was.
func (f *finder) compare() error {
	sizing := sizing(f.After)
	for sub := range f.After.All() {
		for _, n := range sub.Nodes {
			b := f.left[nameOf(n)]
			if b == nil && sizing[n] {
				continue
			}
			if b == nil || b.Op.Kind() != n.Op.Kind() || !f.attributes(b, n) {
				return unsupported("pruning makes %v another node", n)
			}
			for i := range max(len(b.Inputs), len(n.Inputs)) {
				if err := f.input(b, i, n); err != nil {
					return err
				}
			}
			if err := f.behind(b); err != nil {
				return err
			}
		}
	}
	for i, v := range f.After.Outputs {
		if b := f.Before.Outputs[i]; b.IsConst() != v.IsConst() || b.Name != v.Name {
			return unsupported("pruning makes output %s another value", f.After.OutputName(i))
		}
	}
	return nil
}

// input finds what became of input i of a node before pruning, which is the node after now.
func (f *finder) input(n *ir.Node, i int, after *ir.Node) error {
	was, now := n.Input(i), after.Input(i)
	bias := i == 2 && isProduct(n.Op)
	switch {
	case now == nil && was == nil:
		return nil
	case now != nil && now.Const != nil && counts(n, i) && (was == nil || was.Const != nil && !equal(was.Const, now.Const)):
		return f.list(n, i, now)
	case was != nil && now != nil && counts(n, i) && f.scaled(now):
		return f.listOf(n, i, now)
	case now != nil && now.Const != nil && (was == nil && bias || was != nil && was.Const != nil):
	case now == nil || was == nil || was.IsConst() || was.Name != now.Name && f.now[was.Name]:
		return unsupported("pruning gives %v another input", n)
	case now.IsConst():
		return f.constantFor(n, i, now)
	case was.Name != now.Name:
		return f.alias(n, was, now)
	default:
		return nil
	}
	if was != nil {
		if done := f.pairs[was]; done != nil && equal(done.Const, now.Const) {
			return nil
		} else if done != nil {
			return unsupported("pruning makes two constants of %s", was.Name)
		}
		f.pairs[was] = now
		if equal(was.Const, now.Const) {
			return nil
		}
		err := f.constant(was, now)
		if err == nil || !bias {
			return err
		}
	}
	return f.bias(n, was, now.Const)
}

// isProduct reports whether an operator may add its input 2 to each of its channels.
func isProduct(o ir.Op) bool {
	_, ok := o.(op.Fusable)
	return ok
}

// equal reports whether two constants are the same, to the bit.
func equal(a, b *tensor.Tensor) bool {
	return a == b || a.DType() == b.DType() && slices.Equal(a.Shape(), b.Shape()) && slices.Equal(a.Bytes(), b.Bytes()) && a.DType() != tensor.String
}

// find returns the value of the file that a constant before pruning was.
func (f *finder) find(name string) *ir.Value {
	for {
		if v := f.values[name]; v != nil {
			return v
		}
		short, folded := strings.CutSuffix(name, ".const")
		if !folded {
			return nil
		}
		name = short
	}
}

// source is what of the file a value was made from: tensors, one behind the other, and for each of its elements the number from 1 of
// that which it is in these, 0 where it is none of them. At is nil where the elements are those of the only tensor, in its order.
type source struct {
	tensors []*tensor.Tensor
	at      []int64
	count   int // elements of the tensors
	first   map[*tensor.Tensor]int
	reads   map[ir.Use]bool // of what the value was made from
	met     []*ir.Value
}

// source finds what a value of the file was made from by moving elements. So many reads of the value are known, and there must be no
// others, nor of what it is made from.
func (f *finder) source(v *ir.Value, reads int) (*source, error) {
	s := &source{first: map[*tensor.Tensor]int{}, reads: map[ir.Use]bool{}}
	if len(v.Uses()) != reads || v.IsOutput() {
		return nil, unsupported("%s is read elsewhere, too", v.Name)
	}
	t, err := f.follow(s, v)
	if err != nil {
		return nil, err
	}
	for _, w := range s.met {
		if w != v && (w.IsOutput() || slices.ContainsFunc(w.Uses(), func(u ir.Use) bool { return !s.reads[u] })) {
			return nil, unsupported("%s is read elsewhere, too", w.Name)
		}
	}
	if t != nil {
		s.at = tensor.Data[int64](t)
	}
	return s, nil
}

// follow adds to s what a value was made from, and returns where its elements are, as source.at.
func (f *finder) follow(s *source, v *ir.Value) (*tensor.Tensor, error) {
	s.met = append(s.met, v)
	if v.Const != nil {
		return f.leaf(s, v)
	}
	n := v.Def
	if n == nil {
		return nil, unsupported("%s is an input", v.Name)
	}
	motion, data := op.Moves(n)
	if _, cast := n.Op.(*op.Cast); cast {
		motion, data = op.Keeps, n.Inputs[:1]
	}
	if motion == op.Computes {
		return nil, unsupported("%v computes %s", n, v.Name)
	}
	for i := range n.Inputs {
		s.reads[ir.Use{Node: n, Index: i}] = true
	}
	if motion == op.Keeps && len(data) == 1 {
		return f.follow(s, data[0])
	}
	in := make([]*tensor.Tensor, len(n.Inputs))
	for i, w := range n.Inputs {
		switch {
		case w == nil:
		case i < len(data):
			first := s.count
			at, err := f.follow(s, w)
			if err != nil {
				return nil, err
			}
			if in[i], err = places(at, w, first); err != nil {
				return nil, err
			}
		case w.Const == nil || !w.Const.DType().IsInt():
			return nil, unsupported("%v computes %s", n, v.Name)
		default:
			in[i] = w.Const
		}
	}
	out, err := n.Op.Eval(&ir.Eval{Outputs: len(n.Outputs)}, in)
	if err != nil {
		return nil, n.Errorf(ir.ErrUnsupported, "%v", err)
	}
	return out[slices.Index(n.Outputs, v)], nil
}

// leaf adds a constant of the file to s.
func (f *finder) leaf(s *source, v *ir.Value) (*tensor.Tensor, error) {
	if f.shared[v.Const] != 1 {
		return nil, unsupported("%s is read elsewhere, too", v.Name)
	}
	switch p := f.packing(v.Const); {
	case p != nil && f.packed[p.Input]+f.shared[p.Input] != 1:
		return nil, unsupported("%s is unpacked from what is read elsewhere, too", v.Name)
	case p != nil && f.Holds(p.Input) || p == nil && f.Holds(v.Const):
	default:
		return nil, unsupported("the file does not hold %s as a tensor", v.Name)
	}
	if first, twice := s.first[v.Const]; twice {
		return places(nil, v, first)
	}
	s.first[v.Const] = s.count
	s.tensors = append(s.tensors, v.Const)
	s.count += v.Const.Len()
	return nil, nil
}

// packing is that of a constant of the file, nil where it has none.
func (f *finder) packing(t *tensor.Tensor) *contrib.Packing {
	if f.Packing == nil {
		return nil
	}
	return f.Packing(t)
}

// places returns where the elements of a value are, in its shape: those of a tensor from first on where at is nil.
func places(at *tensor.Tensor, v *ir.Value, first int) (*tensor.Tensor, error) {
	shape, ok := v.Type.Shape()
	n, err := tensor.Elems(shape)
	if !ok || err != nil || at != nil && at.Len() != n {
		return nil, unsupported("%s has no static shape", v.Name)
	}
	if at != nil {
		return at.Reshape(shape...), nil
	}
	at = tensor.New(tensor.I64, shape...)
	for i := range tensor.Data[int64](at) {
		tensor.Data[int64](at)[i] = int64(first + i + 1)
	}
	return at, nil
}

// whole returns the tensors one behind the other, which have one type.
func (s *source) whole() (*tensor.Tensor, error) {
	if len(s.tensors) == 1 {
		return s.tensors[0], nil
	}
	out := tensor.New(s.tensors[0].DType(), s.count)
	at := 0
	for _, t := range s.tensors {
		if t.DType() != out.DType() {
			return nil, unsupported("a constant is made of %v and %v", out.DType(), t.DType())
		}
		at += copy(out.Bytes()[at:], t.Bytes())
	}
	return out, nil
}

// repeats reports whether an element of the tensors has two places, or one of the value none.
func (s *source) repeats() bool {
	if s.at == nil {
		return false
	}
	seen := make([]bool, s.count+1)
	seen[0] = true
	for _, k := range s.at {
		if seen[k] {
			return true
		}
		seen[k] = true
	}
	return false
}

// put notes what becomes of the tensors that a constant was made from, which are whole then.
func (m *mapping) put(s *source, whole *tensor.Tensor) error {
	at := 0
	for _, t := range s.tensors {
		now := whole
		if len(s.tensors) > 1 {
			now = tensor.New(t.DType(), t.Shape()...)
			at += copy(now.Bytes(), whole.Bytes()[at:])
		}
		if equal(t, now) {
			continue
		}
		m.f.out.consts[t] = now
		p := m.f.packing(t)
		if p == nil {
			m.f.out.Tensors[t] = now
			continue
		}
		reader := m.was.Uses()[0].Node
		packed, err := p.Pack(now)
		if err != nil {
			return unsupported("%v: %v", reader, err)
		}
		m.f.out.Tensors[p.Input] = packed
		if p.Rounds && updates(t, now) {
			m.f.out.Notes = append(m.f.out.Notes, fmt.Sprintf("%v: what is updated of %s is rounded to the codes that its file has", reader, m.was.Name))
		}
	}
	return nil
}

// updates reports whether an element of a constant is another now, and not zero.
func updates(was, now *tensor.Tensor) bool {
	a, b := was.Float64s(), now.Float64s()
	for i, v := range b {
		if v != a[i] && v != 0 {
			return true
		}
	}
	return false
}

// constant finds what becomes of the tensor that a constant before pruning was made from.
func (f *finder) constant(was, now *ir.Value) error {
	v := f.find(was.Name)
	if v == nil {
		return unsupported("the file has no %s", was.Name)
	}
	from, err := f.source(v, len(was.Uses()))
	if err != nil {
		return err
	}
	if err := f.turn(from, v, was); err != nil {
		return err
	}
	t, err := from.whole()
	if err != nil {
		return err
	}
	wide, gone, ok := f.wide(was, now.Const)
	if from.at == nil && t.Len() != was.Const.Len() || from.at != nil && len(from.at) != was.Const.Len() || !ok {
		return unsupported("%s has another shape in the file", was.Name)
	}
	if from.repeats() {
		return unsupported("%s has an element of the file twice, or one that the file has not", was.Name)
	}
	m := &mapping{f: f, was: was, now: wide, tensor: t, at: from.at}
	next := t
	if m.exact() {
		next = m.copies()
	} else if next, err = m.scaled(); err != nil {
		return err
	}
	if err := m.put(from, next); err != nil {
		return err
	}
	f.drop(from, gone)
	f.resize(v, gone)
	return nil
}

// turn has what is known of a constant of codes, v in the file, which nodes widen and then transpose, say where its elements are before
// pruning, when it is transposed and then widened.
func (f *finder) turn(s *source, v, was *ir.Value) error {
	if s.at != nil || v.Const == nil || len(was.Uses()) != 1 {
		return nil
	}
	n := was.Uses()[0].Node
	out := f.values[nameOf(n)]
	var turns []*ir.Node // the last one first
	for out != nil && out.Def != nil && out.Def.Op.Kind() == "Transpose" {
		turns = append(turns, out.Def)
		out = out.Def.Inputs[0]
	}
	if len(turns) == 0 || out.Def == nil || out.Def.Op.Kind() != n.Op.Kind() || out.Def.Inputs[0] != v {
		return nil
	}
	for _, between := range append(turns[1:], out.Def) {
		if v := between.Outputs[0]; v.IsOutput() || len(v.Uses()) != 1 {
			return unsupported("%s is read elsewhere, too", v.Name)
		}
	}
	at, err := places(nil, v, 0)
	if err != nil {
		return err
	}
	for _, t := range slices.Backward(turns) {
		moved, err := t.Op.Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{at})
		if err != nil {
			return t.Errorf(ir.ErrUnsupported, "%v", err)
		}
		at = moved[0]
	}
	s.at = tensor.Data[int64](at)
	return nil
}

// mapping is a constant and the tensor of the file that it was made from.
type mapping struct {
	f      *finder
	was    *ir.Value
	now    *tensor.Tensor // of the shape before
	tensor *tensor.Tensor
	at     []int64 // see source
}

// place is where in the tensor element i of the constant is.
func (m *mapping) place(i int) int {
	if m.at == nil {
		return i
	}
	return int(m.at[i]) - 1
}

// exact reports whether the constant had the elements of the tensor.
func (m *mapping) exact() bool {
	if m.was.Const.DType() != m.tensor.DType() {
		return false
	}
	a, b, size := m.was.Const.Bytes(), m.tensor.Bytes(), m.tensor.DType().Size()
	if m.at == nil {
		return slices.Equal(a, b)
	}
	for i := range m.at {
		if k := m.place(i); !slices.Equal(a[i*size:][:size], b[k*size:][:size]) {
			return false
		}
	}
	return true
}

// copies returns the tensor with the elements that changed.
func (m *mapping) copies() *tensor.Tensor {
	if m.at == nil { // what did not change is the same
		out := tensor.Header(m.tensor.DType(), m.tensor.Shape()...)
		out.Share(m.now)
		return out
	}
	out := m.tensor.Clone()
	was, now, size := m.was.Const.Bytes(), m.now.Bytes(), m.tensor.DType().Size()
	for i := range m.was.Const.Len() {
		if a, b := was[i*size:][:size], now[i*size:][:size]; !slices.Equal(a, b) {
			copy(out.Bytes()[m.place(i)*size:], b)
		}
	}
	return out
}

// closeTo is how far, in relation to its size, a number may be from one that was rounded a few times.
const closeTo = 1e-6

// scaled returns the tensor with what folding makes the constant of, where that multiplies rows by factors of their own. What did not change
// stays, and what is zero is zero.
func (m *mapping) scaled() (*tensor.Tensor, error) {
	if !m.tensor.DType().IsFloat() || !m.was.Const.DType().IsFloat() {
		return nil, unsupported("%s has another type in the file", m.was.Name)
	}
	file, was, now := m.tensor.To(tensor.F32).F32s(), m.was.Const.To(tensor.F32).F32s(), m.now.To(tensor.F32).F32s()
	u, ok := m.f.weights[m.was]
	index := tensor.New(tensor.I64, m.was.Const.Shape()...)
	for i := range tensor.Data[int64](index) {
		tensor.Data[int64](index)[i] = int64(i)
	}
	if !ok { // one factor for all
		u.View.RowAxes = 0
	}
	matrix := u.View.Matrix(index)
	rows, cols := matrix.Dim(0), matrix.Dim(1)
	next := slices.Clone(file)
	var none []int // rows that are multiplied by zero
	for r := range rows {
		row := tensor.Data[int64](matrix)[r*cols:][:cols]
		scale, err := m.scale(row, file, was)
		if err != nil {
			return nil, err
		}
		if scale == 0 {
			none = append(none, r)
		}
		for _, i := range row {
			k := m.place(int(i))
			switch {
			case now[i] == 0 && file[k] != 0:
				next[k] = 0
			case math.Float32bits(now[i]) == math.Float32bits(was[i]):
			case scale == 0:
				return nil, unsupported("what follows multiplies channel %d of %s by zero", r, m.was.Name)
			default:
				next[k] = float32(float64(now[i]) / scale)
			}
		}
	}
	if len(none) > 0 {
		m.f.out.Notes = append(m.f.out.Notes, fmt.Sprintf("%v: what follows multiplies %s of %s by zero: weights of it are zero now, and none are updated", u.Node, channels(none), m.was.Name))
	}
	return m.merge(file, next)
}

// merge returns the tensor with the elements of next that are not those of file.
func (m *mapping) merge(file, next []float32) (*tensor.Tensor, error) {
	other := tensor.From(next, m.tensor.Shape()...).To(m.tensor.DType())
	out, size := m.tensor.Clone(), m.tensor.DType().Size()
	for k := range next {
		if math.Float32bits(file[k]) == math.Float32bits(next[k]) {
			continue
		}
		copy(out.Bytes()[k*size:][:size], other.Bytes()[k*size:])
	}
	for k, v := range out.To(tensor.F32).F32s() {
		if v-v != 0 && file[k]-file[k] == 0 {
			return nil, unsupported("%v does not hold what %s is divided by its scale", m.tensor.DType(), m.was.Name)
		}
	}
	return out, nil
}

// scale returns what a row of the constant is the product of with the file's, 1 where all of it is zero.
func (m *mapping) scale(row []int64, file, was []float32) (float64, error) {
	most := row[:0]
	for _, i := range row {
		if len(most) == 0 || abs(file[m.place(int(i))]) > abs(file[m.place(int(most[0]))]) {
			most = []int64{i}
		}
	}
	if len(most) == 0 {
		return 1, nil
	}
	scale := 1.0
	if largest := file[m.place(int(most[0]))]; largest != 0 {
		scale = float64(was[most[0]]) / float64(largest)
	}
	for _, i := range row {
		want := float64(file[m.place(int(i))]) * scale
		if d := math.Abs(float64(was[i]) - want); !(d <= closeTo*math.Abs(want)+math.SmallestNonzeroFloat32) {
			return 0, unsupported("the file does not hold %s as it is multiplied", m.was.Name)
		}
	}
	return scale, nil
}

func abs(x float32) float32 { return max(x, -x) }

// channels names channels, of which messages list a few.
func channels(list []int) string {
	const few = 8
	var out []string
	for _, c := range list[:min(len(list), few)] {
		out = append(out, fmt.Sprint(c))
	}
	text := strings.Join(out, ", ")
	if len(list) > few {
		text += fmt.Sprintf(" and %d more", len(list)-few)
	}
	if len(list) == 1 {
		return "channel " + text
	}
	return "channels " + text
}
