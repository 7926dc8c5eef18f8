package diff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
)

// maxElems bounds a tensor of a graph: many graphs find more than large ones.
const maxElems = 1 << 14

// opset is what graphs declare unless their operators need a newer one, or are so old
// that it no longer has them.
const opset = 21

// Gen builds a graph at random. Each node is evaluated when it is added, so that rules
// may try what they like: what inference or evaluation refuses, or what noise makes jump,
// is not added.
type Gen struct {
	r        *rand.Rand
	old      bool // an operator set that has the operators that were removed since
	symbolic bool
	sizes    []int // that dimensions like to have
	inputs   []*input
	weights  []*val
	frame    *frame
	next     int
	kinds    map[string]int // nodes by operator
	symbols  map[string]int
	long     bool // a weight may have a few long rows
	seed     uint64
	why      error // the last rejection
}

// frame is a graph or a subgraph that is being built.
type frame struct {
	outer  *frame
	nodes  []*onnxpb.NodeProto
	values []*val
	inputs []*val
}

// val is a value of a graph and what it is in the first run.
type val struct {
	name     string
	v        *value
	constant bool
	input    bool
}

func (v *val) dt() tensor.DType    { return v.v.base.DType() }
func (v *val) shape() []int        { return v.v.base.Shape() }
func (v *val) rank() int           { return v.v.base.Rank() }
func (v *val) dim(i int) int       { return v.v.base.Dim(i) }
func (v *val) len() int            { return v.v.base.Len() }
func (v *val) t() *tensor.Tensor   { return v.v.base }
func (v *val) is(shape []int) bool { return slices.Equal(v.shape(), shape) }

// input is an input of the graph.
type input struct {
	*val
	dims []string                 // its symbols; empty for a size
	elem *onnxpb.TensorShapeProto // of a list, the shape that its elements are declared to have
	free bool                     // its elements may be others in another run
	draw func(shape []int) *tensor.Tensor
}

// rejected is the panic of a rule whose node is not taken.
type rejected struct{ err error }

func reject(format string, args ...any) {
	panic(rejected{fmt.Errorf(format, args...)})
}

// Attrs are attributes by name: an int, float64, string, []int, []float64, []string, a
// tensor, a DType, a type or a subgraph.
type Attrs map[string]any

// sub is a subgraph that was built, and what it captures.
type sub struct {
	graph    *onnxpb.GraphProto
	captures []*val
}

type saved struct {
	frame *frame
	was   frame
}

// try calls f and reports whether nothing in it was rejected; else what it added is gone.
func (g *Gen) try(f func()) (ok bool) {
	frame := g.frame
	var at []*saved
	for f := frame; f != nil; f = f.outer {
		at = append(at, &saved{f, *f})
	}
	inputs, weights, next := g.inputs, g.weights, g.next
	kinds, symbols := maps.Clone(g.kinds), maps.Clone(g.symbols)
	defer func() {
		if p := recover(); p != nil {
			why, is := p.(rejected)
			if !is {
				panic(p)
			}
			g.why = why.err
			g.frame = frame
			for _, s := range at {
				*s.frame = s.was
			}
			g.inputs, g.weights, g.next, g.kinds, g.symbols = inputs, weights, next, kinds, symbols
		}
	}()
	f()
	return true
}

func (g *Gen) one(n int) bool { return g.r.IntN(n) == 0 }

func choose[T any](g *Gen, of ...T) T { return of[g.r.IntN(len(of))] }

// size draws a dimension.
func (g *Gen) size() int {
	switch {
	case g.one(60):
		return 0
	case g.one(10):
		return 1
	case g.one(8):
		return choose(g, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33, 40, 65)
	}
	return choose(g, g.sizes...)
}

// shape draws a shape of a rank.
func (g *Gen) shape(rank int) []int {
	s := make([]int, rank)
	n := 1
	for i := range s {
		if s[i] = g.size(); n*s[i] > 2048 {
			s[i] = 1 + g.r.IntN(3)
		}
		n *= max(s[i], 1)
	}
	return s
}

// floats draws elements of a floating-point type: mostly halves, whose sums and products
// are exact, so that results are the same in whatever order they are computed.
func (g *Gen) floats(dt tensor.DType, shape ...int) *tensor.Tensor {
	n := count(shape)
	x := make([]float64, n)
	wide := g.one(4)
	for i := range x {
		if wide {
			x[i] = g.r.NormFloat64()
		} else {
			x[i] = float64(g.r.IntN(13)-6) / 2
		}
	}
	return tensor.FromFloat64s(dt, x, shape...)
}

func count(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	if n > maxElems {
		reject("%v is large", shape)
	}
	return n
}

// data draws a tensor of any type.
func (g *Gen) data(dt tensor.DType, shape ...int) *tensor.Tensor {
	n := count(shape)
	switch {
	case dt.IsFloat():
		return g.floats(dt, shape...)
	case dt == tensor.String:
		s := make([]string, n)
		for i := range s {
			s[i] = choose(g, "a", "b", "ab", "a b", "", "Ä", "c,d", "12")
		}
		return tensor.FromStrings(s, shape...)
	}
	x := make([]int64, n)
	for i := range x {
		if x[i] = int64(g.r.IntN(9)); dt.IsSigned() {
			x[i] -= 4
		}
		if dt == tensor.Bool {
			x[i] &= 1
		}
	}
	return tensor.FromInt64s(dt, x, shape...)
}

// between draws floats from a range, mostly dyadic fractions.
func (g *Gen) between(lo, hi float64) func(shape []int) *tensor.Tensor {
	return func(shape []int) *tensor.Tensor {
		x := make([]float64, count(shape))
		for i := range x {
			x[i] = lo + (hi-lo)*float64(1+g.r.IntN(30))/32
		}
		return tensor.FromFloat64s(tensor.F32, x, shape...)
	}
}

func (g *Gen) name(prefix string) string {
	g.next++
	return fmt.Sprint(prefix, g.next)
}

func (g *Gen) add(v *val) *val {
	g.frame.values = append(g.frame.values, v)
	return v
}

// root is the frame of the whole graph.
func (g *Gen) root() *frame {
	f := g.frame
	for f.outer != nil {
		f = f.outer
	}
	return f
}

// weight makes a constant.
func (g *Gen) weight(t *tensor.Tensor) *val {
	if t.DType() != tensor.String && g.one(6) { // as a node
		v := &val{name: g.name("c"), v: plain(t), constant: true}
		n := &onnxpb.NodeProto{OpType: "Constant", Name: v.name, Output: []string{v.name}, Attribute: []*onnxpb.AttributeProto{{Name: "value", Type: onnxpb.AttributeProto_TENSOR, T: t.ToProto("")}}}
		g.frame.nodes = append(g.frame.nodes, n)
		return g.add(v)
	}
	v := &val{name: g.name("w"), v: plain(t), constant: true}
	g.weights = append(g.weights, v)
	r := g.root()
	r.values = append(r.values, v)
	return v
}

// newInput makes an input of the whole graph; draw makes its elements in other runs, nil
// where they stay as they are.
func (g *Gen) newInput(t *tensor.Tensor, draw func(shape []int) *tensor.Tensor) *val {
	v := &input{val: &val{name: g.name("x"), v: plain(t), input: true}, dims: make([]string, t.Rank()), free: draw != nil, draw: draw}
	for i, n := range t.Shape() {
		if draw == nil || !g.symbolic || n == 0 || t.DType().IsList() || g.one(3) {
			continue
		}
		for _, s := range slices.Sorted(maps.Keys(g.symbols)) {
			if g.symbols[s] == n && !g.one(4) {
				v.dims[i] = s
			}
		}
		if v.dims[i] == "" {
			v.dims[i] = g.name("n")
			g.symbols[v.dims[i]] = n
		}
	}
	g.inputs = append(g.inputs, v)
	r := g.root()
	r.values = append(r.values, v.val)
	return v.val
}

// source makes an input or a constant.
func (g *Gen) source(draw func(shape []int) *tensor.Tensor, shape ...int) *val {
	t := draw(shape)
	if g.one(3) {
		return g.weight(t)
	}
	return g.newInput(t, draw)
}

func (g *Gen) drawer(dt tensor.DType) func(shape []int) *tensor.Tensor {
	return func(shape []int) *tensor.Tensor { return g.data(dt, shape...) }
}

// fresh makes a value of a type and a shape.
func (g *Gen) fresh(dt tensor.DType, shape ...int) *val { return g.source(g.drawer(dt), shape...) }

// visible lists the values that the frame sees.
func (g *Gen) visible() []*val {
	var out []*val
	for f := g.frame; f != nil; f = f.outer {
		out = append(out, f.values...)
	}
	return out
}

// pick draws one of the tensors for which ok is true, the newest first; nil if there is none.
func (g *Gen) pick(ok func(*val) bool) *val {
	return g.among(func(v *val) bool { return !v.dt().IsList() && ok(v) })
}

// among is pick for tensors and lists.
func (g *Gen) among(ok func(*val) bool) *val {
	var fit []*val
	for _, v := range g.visible() {
		if ok(v) {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	if g.one(2) {
		fit = fit[max(0, len(fit)-3):]
	}
	return choose(g, fit...)
}

// some is a value of a type and of a rank within bounds, mostly one that is there.
func (g *Gen) some(dt tensor.DType, least, most int) *val {
	if !g.one(6) {
		if v := g.pick(func(v *val) bool {
			return v.dt() == dt && v.rank() >= least && v.rank() <= most && (!v.constant || g.one(4))
		}); v != nil {
			return v
		}
	}
	return g.fresh(dt, g.shape(least+g.r.IntN(most-least+1))...)
}

// shaped is a value of a type and a shape: one that is there, another reshaped, or new.
func (g *Gen) shaped(dt tensor.DType, shape ...int) *val {
	if !g.one(5) {
		if v := g.pick(func(v *val) bool { return v.dt() == dt && v.is(shape) }); v != nil {
			return v
		}
		if v := g.pick(func(v *val) bool { return v.dt() == dt && v.len() == count(shape) && v.len() > 1 }); v != nil && !g.old {
			return g.node("Reshape", nil, v, g.ints(shape...))
		}
	}
	return g.fresh(dt, shape...)
}

// exact is some, but of values whose bits are the same however they are computed.
func (g *Gen) exact(dt tensor.DType, least, most int) *val {
	if v := g.pick(func(v *val) bool {
		return v.dt() == dt && v.rank() >= least && v.rank() <= most && v.v.exact && !v.constant
	}); v != nil && !g.one(4) {
		return v
	}
	return g.fresh(dt, g.shape(least+g.r.IntN(most-least+1))...)
}

// ranged is a value of f32 whose elements are within a range.
func (g *Gen) ranged(lo, hi float64, least, most int) *val {
	if v := g.pick(func(v *val) bool {
		if v.dt() != tensor.F32 || v.rank() < least || v.rank() > most {
			return false
		}
		return !slices.ContainsFunc(v.t().F32s(), func(x float32) bool { return float64(x) < lo || float64(x) > hi })
	}); v != nil && !g.one(3) {
		return v
	}
	return g.source(g.between(lo, hi), g.shape(least+g.r.IntN(most-least+1))...)
}

// beside is an operand that broadcasts with v.
func (g *Gen) beside(v *val, dt tensor.DType) *val {
	if !g.one(4) {
		if w := g.pick(func(w *val) bool { return w.dt() == dt && broadcasts(v.shape(), w.shape()) }); w != nil {
			return w
		}
	}
	s := slices.Clone(v.shape()[g.r.IntN(v.rank()+1):])
	for i := range s {
		if g.one(4) {
			s[i] = 1
		} else if s[i] == 1 && g.one(2) {
			s[i] = g.size()
		}
	}
	if g.one(6) {
		s = slices.Clone(v.shape())
	}
	return g.fresh(dt, s...)
}

func broadcasts(a, b []int) bool {
	n := 1
	for i := 1; i <= max(len(a), len(b)); i++ {
		x, y := 1, 1
		if i <= len(a) {
			x = a[len(a)-i]
		}
		if i <= len(b) {
			y = b[len(b)-i]
		}
		if x != y && x != 1 && y != 1 {
			return false
		}
		if x == 1 {
			x = y
		}
		n *= x
	}
	return n <= maxElems
}

// ints is an operand that the graph's structure depends on, such as a shape or axes: a
// constant, an input, or computed from one, or from data.
func (g *Gen) ints(x ...int) *val { return g.structural(tensor.Ints(x...)) }

// index is ints of rank 0.
func (g *Gen) index(x int) *val { return g.structural(tensor.Scalar(int64(x))) }

func (g *Gen) structural(t *tensor.Tensor) *val {
	switch k := g.r.IntN(20); {
	case k < 4:
		return g.newInput(t, nil)
	case k < 6:
		return g.node("Identity", nil, g.newInput(t, nil))
	case k < 8 && t.DType() == tensor.I64: // from the shape of a value
		if v := g.pick(func(v *val) bool { return t.Rank() == 1 && v.rank() == t.Len() && v.rank() > 0 && !v.constant }); v != nil {
			s := g.node("Shape", nil, v)
			if slices.Equal(v.shape(), t.Ints()) {
				return s
			}
			return g.node("Add", nil, s, g.weight(minus(t, s.t())))
		}
	case k < 10 && t.DType() == tensor.I64: // from elements
		if v := g.pick(func(v *val) bool {
			return v.dt() == tensor.F32 && v.v.exact && v.rank() > 0 && v.len() > 0 && !v.constant
		}); v != nil {
			m := g.node("ArgMax", Attrs{"keepdims": 0}, v)
			for m.rank() > 0 {
				m = g.node("Gather", Attrs{"axis": 0}, m, g.weight(tensor.Scalar(int64(0))))
			}
			return g.node("Add", nil, m, g.weight(minus(t, m.t().Expand(t.Shape()...))))
		}
	}
	return g.weight(t)
}

func minus(a, b *tensor.Tensor) *tensor.Tensor {
	x, y := a.Int64s(), b.Int64s()
	d := make([]int64, len(x))
	for i := range d {
		d[i] = x[i] - y[i]
	}
	return tensor.FromInt64s(a.DType(), d, a.Shape()...)
}

// node adds a node of one output.
func (g *Gen) node(kind string, a Attrs, in ...*val) *val { return g.nodes(kind, a, 1, in...)[0] }

// nodes adds a node and returns its outputs. An input is nil where it is absent.
func (g *Gen) nodes(kind string, a Attrs, outputs int, in ...*val) []*val {
	return g.wanted(kind, a, slices.Repeat([]bool{true}, outputs), in...)
}

// wanted is nodes with outputs that may be absent, and are nil then.
func (g *Gen) wanted(kind string, a Attrs, outputs []bool, in ...*val) []*val {
	domain, name := "", kind
	if at := strings.IndexByte(kind, ':'); at >= 0 {
		domain, name = kind[:at], kind[at+1:]
	}
	n := &onnxpb.NodeProto{OpType: name, Domain: domain, Name: g.name("n")}
	captured := map[string]*val{}
	for _, v := range in {
		if v == nil {
			n.Input = append(n.Input, "")
			continue
		}
		n.Input = append(n.Input, v.name)
		captured[v.name] = v
	}
	for len(n.Input) > 0 && n.Input[len(n.Input)-1] == "" {
		n.Input = n.Input[:len(n.Input)-1]
	}
	for _, key := range slices.Sorted(maps.Keys(a)) {
		n.Attribute = append(n.Attribute, attribute(key, a[key]))
		if s, ok := a[key].(*sub); ok {
			for _, v := range s.captures {
				captured[v.name] = v
			}
		}
	}
	for _, is := range outputs {
		name := ""
		if is {
			name = g.name("v")
		}
		n.Output = append(n.Output, name)
	}
	values, err := g.evaluate(n, captured)
	if err != nil {
		reject("%s: %w", kind, err)
	}
	outs := make([]*val, len(outputs))
	var made []*val
	for i, name := range n.Output {
		if name == "" {
			continue
		}
		v := values[len(made)]
		if !v.stable() {
			reject("%s: output %d is not stable", kind, i)
		}
		if elements(v.base) > maxElems {
			reject("%s: output %d is large", kind, i)
		}
		outs[i] = &val{name: name, v: v}
		made = append(made, outs[i])
	}
	g.frame.nodes = append(g.frame.nodes, n)
	g.frame.values = append(g.frame.values, made...)
	g.kinds[kind]++
	return outs
}

// evaluate evaluates a node, whose values are then known: those of its outputs that are there.
func (g *Gen) evaluate(n *onnxpb.NodeProto, captured map[string]*val) ([]*value, error) {
	p := &onnxpb.GraphProto{Name: "node", Node: []*onnxpb.NodeProto{n}}
	var in []*value
	for _, name := range slices.Sorted(maps.Keys(captured)) {
		v := captured[name]
		if v.constant {
			p.Initializer = append(p.Initializer, v.t().ToProto(name))
			continue
		}
		p.Input = append(p.Input, infoOf(name, v.t()))
		in = append(in, v.v)
	}
	for _, o := range n.Output {
		if o != "" {
			p.Output = append(p.Output, &onnxpb.ValueInfoProto{Name: o})
		}
	}
	b, err := g.model(p)
	if err != nil {
		return nil, err
	}
	ig, _, err := onnx.ImportBytes(b, "", onnx.Options{})
	if err != nil {
		return nil, err
	}
	return evaluate(context.Background(), ig, in, g.seed, passes)
}

// model is the file of a graph.
func (g *Gen) model(p *onnxpb.GraphProto) ([]byte, error) {
	m := &onnxpb.ModelProto{IrVersion: 10, ProducerName: "spc/tests/diff", Graph: p}
	versions := map[string]int64{"": opset}
	if g.old {
		versions[""] = oldOpset
	}
	for kind := range nodeKinds(p) {
		domain, _, ok := strings.Cut(kind, ":")
		if !ok {
			domain = ""
		}
		versions[domain] = max(versions[domain], int64(Rules[kind].Since), 1)
	}
	for _, d := range slices.Sorted(maps.Keys(versions)) {
		m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: d, Version: versions[d]})
	}
	if versions[""] > 21 {
		m.IrVersion = 13
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// nodeKinds yields the operators of a graph and its subgraphs.
func nodeKinds(p *onnxpb.GraphProto) map[string]bool {
	out := map[string]bool{}
	var visit func(p *onnxpb.GraphProto)
	visit = func(p *onnxpb.GraphProto) {
		for _, n := range p.Node {
			out[op.KindOf(n.Domain, n.OpType)] = true
			for _, a := range n.Attribute {
				if a.G != nil {
					visit(a.G)
				}
			}
		}
	}
	visit(p)
	return out
}

func info(name string, dt tensor.DType, shape []int, symbols []string) *onnxpb.ValueInfoProto {
	s := new(onnxpb.TensorShapeProto)
	for i, n := range shape {
		d := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(n)}}
		if symbols != nil && symbols[i] != "" {
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: symbols[i]}
		}
		s.Dim = append(s.Dim, d)
	}
	return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: int32(dt), Shape: s}}}}
}

// infoOf declares a value by its tensor, or of a list only the type.
func infoOf(name string, t *tensor.Tensor) *onnxpb.ValueInfoProto {
	if t.DType().IsList() {
		return &onnxpb.ValueInfoProto{Name: name, Type: typeOf(t.DType(), nil)}
	}
	return info(name, t.DType(), t.Shape(), nil)
}

// typeOf is the type of tensors, or of lists of such, whose shape is not known where it is nil.
func typeOf(dt tensor.DType, shape *onnxpb.TensorShapeProto) *onnxpb.TypeProto {
	switch {
	case dt.IsOptional():
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_OptionalType{OptionalType: &onnxpb.TypeProto_Optional{ElemType: typeOf(dt.Elem(), shape)}}}
	case dt.IsSequence():
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SequenceType{SequenceType: &onnxpb.TypeProto_Sequence{ElemType: typeOf(dt.Elem(), shape)}}}
	}
	return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: int32(dt), Shape: shape}}}
}

func attribute(name string, value any) *onnxpb.AttributeProto {
	a := &onnxpb.AttributeProto{Name: name}
	switch v := value.(type) {
	case int:
		a.Type, a.I = onnxpb.AttributeProto_INT, int64(v)
	case tensor.DType:
		a.Type, a.I = onnxpb.AttributeProto_INT, int64(v)
	case float64:
		a.Type, a.F = onnxpb.AttributeProto_FLOAT, float32(v)
	case string:
		a.Type, a.S = onnxpb.AttributeProto_STRING, []byte(v)
	case []int:
		a.Type = onnxpb.AttributeProto_INTS
		for _, x := range v {
			a.Ints = append(a.Ints, int64(x))
		}
	case []float64:
		a.Type = onnxpb.AttributeProto_FLOATS
		for _, x := range v {
			a.Floats = append(a.Floats, float32(x))
		}
	case []string:
		a.Type = onnxpb.AttributeProto_STRINGS
		for _, x := range v {
			a.Strings = append(a.Strings, []byte(x))
		}
	case *tensor.Tensor:
		a.Type, a.T = onnxpb.AttributeProto_TENSOR, v.ToProto("")
	case *onnxpb.TypeProto:
		a.Type, a.Tp = onnxpb.AttributeProto_TYPE_PROTO, v
	case *sub:
		a.Type, a.G = onnxpb.AttributeProto_GRAPH, v.graph
	default:
		panic(fmt.Sprintf("attribute %s of type %T", name, value))
	}
	return a
}

// subgraph builds a subgraph: build gets its inputs, which are in the first round what in
// holds, and returns its outputs.
func (g *Gen) subgraph(in []*value, build func(in []*val) []*val) *sub {
	f := &frame{outer: g.frame}
	g.frame = f
	for _, v := range in {
		f.inputs = append(f.inputs, &val{name: g.name("b"), v: v})
	}
	f.values = append(f.values, f.inputs...)
	outs := build(f.inputs)
	p := &onnxpb.GraphProto{Name: g.name("g")}
	for _, v := range f.inputs {
		if !v.dt().IsList() && v.rank() == 0 { // runtimes want to know that of a Loop's first inputs
			p.Input = append(p.Input, info(v.name, v.dt(), nil, nil))
			continue
		}
		p.Input = append(p.Input, &onnxpb.ValueInfoProto{Name: v.name, Type: typeOf(v.dt(), nil)})
	}
	seen := map[string]bool{}
	for i, v := range outs { // an output is a value of the subgraph's own, and each another
		if !slices.Contains(f.values, v) || slices.Contains(f.inputs, v) && g.one(2) || seen[v.name] {
			outs[i] = g.node("Identity", nil, v)
		}
		seen[outs[i].name] = true
		p.Output = append(p.Output, &onnxpb.ValueInfoProto{Name: outs[i].name, Type: typeOf(outs[i].dt(), nil)})
	}
	p.Node = f.nodes
	g.frame = f.outer
	s := &sub{graph: p}
	needed := needs(p)
	for _, v := range g.visible() {
		if needed[v.name] {
			s.captures = append(s.captures, v)
		}
	}
	return s
}

// needs returns the names that a graph reads and does not define.
func needs(p *onnxpb.GraphProto) map[string]bool {
	out, own := map[string]bool{}, map[string]bool{}
	for _, v := range p.Input {
		own[v.Name] = true
	}
	for _, t := range p.Initializer {
		own[t.Name] = true
	}
	for _, n := range p.Node {
		for _, name := range n.Input {
			if name != "" && !own[name] {
				out[name] = true
			}
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				for name := range needs(a.G) {
					if !own[name] {
						out[name] = true
					}
				}
			}
		}
		for _, name := range n.Output {
			own[name] = true
		}
	}
	for _, v := range p.Output {
		if !own[v.Name] {
			out[v.Name] = true
		}
	}
	return out
}

// Generate builds graph number index of a seed.
func Generate(seed, index uint64) (*Case, error) {
	for attempt := uint64(0); attempt < 20; attempt++ {
		c, err := generate(seed, index, attempt)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errAgain) {
			return nil, fmt.Errorf("seed %d, graph %d: %w", seed, index, err)
		}
	}
	return nil, fmt.Errorf("seed %d, graph %d: no graph in 20 attempts", seed, index)
}

var errAgain = errors.New("draw again")

func newGen(seed, index, attempt uint64) *Gen {
	g := &Gen{r: rand.New(rand.NewPCG(seed, index*32+attempt)), frame: &frame{}, kinds: map[string]int{}, symbols: map[string]int{}, seed: seed ^ index}
	g.old = g.one(40)
	g.symbolic = !g.one(3)
	for range 4 {
		g.sizes = append(g.sizes, choose(g, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9))
	}
	return g
}

// grow adds a few nodes: an operator of the table, or a pattern of several.
func (g *Gen) grow() {
	for range 8 {
		if g.try(func() {
			if g.one(3) && !g.old {
				p := patterns[g.r.IntN(len(patterns))]
				p.make(g)
				return
			}
			kind := kinds[g.r.IntN(len(kinds))]
			if g.one(3) {
				kind = common[g.r.IntN(len(common))]
			}
			if g.old && !Rules[kind].Old || !g.old && Rules[kind].Until != 0 {
				reject("not in this operator set")
			}
			Rules[kind].Make(g, kind)
		}) {
			return
		}
	}
}

func generate(seed, index, attempt uint64) (*Case, error) {
	g := newGen(seed, index, attempt)
	if !g.try(func() {
		for range 1 + g.r.IntN(2) {
			g.newInput(g.floats(tensor.F32, g.shape(1+g.r.IntN(4))...), g.drawer(tensor.F32))
		}
	}) {
		return nil, errAgain // of too many elements
	}
	for want := 2 + g.r.IntN(12); len(g.frame.nodes) < want; {
		n := len(g.frame.nodes)
		if g.grow(); len(g.frame.nodes) == n && g.one(4) {
			break
		}
	}
	return g.finish(seed, index)
}

// finish chooses the outputs and makes the case.
func (g *Gen) finish(seed, index uint64) (*Case, error) {
	f := g.frame
	p := &onnxpb.GraphProto{Name: "graph", Node: f.nodes}
	read := map[string]bool{}
	for _, n := range f.nodes {
		for _, name := range n.Input {
			read[name] = true
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				for name := range needs(a.G) {
					read[name] = true
				}
			}
		}
	}
	for _, v := range f.values {
		if v.input && !g.one(12) || v.constant && !g.one(20) || !v.input && !v.constant && read[v.name] && !g.one(4) {
			continue
		}
		p.Output = append(p.Output, &onnxpb.ValueInfoProto{Name: v.name, Type: typeOf(v.dt(), nil)})
	}
	if len(p.Output) == 0 {
		return nil, errAgain
	}
	g.r.Shuffle(len(p.Output), func(i, j int) { p.Output[i], p.Output[j] = p.Output[j], p.Output[i] })
	for _, w := range g.weights {
		p.Initializer = append(p.Initializer, w.t().ToProto(w.name))
	}
	declare := func(symbolic bool) ([]byte, error) {
		p.Input = nil
		for _, v := range g.inputs {
			if v.dt().IsList() {
				p.Input = append(p.Input, &onnxpb.ValueInfoProto{Name: v.name, Type: typeOf(v.dt(), v.elem)})
				continue
			}
			s := v.dims
			if !symbolic {
				s = nil
			}
			p.Input = append(p.Input, info(v.name, v.dt(), v.shape(), s))
		}
		return g.model(p)
	}
	c := &Case{Seed: seed, Index: index, Kinds: g.kinds}
	first := map[string]*tensor.Tensor{}
	for _, v := range g.inputs {
		first[v.name] = v.t()
	}
	symbolic := g.symbolic
	for {
		var err error
		if c.Model, err = declare(symbolic); err != nil {
			return nil, err
		}
		_, _, err = onnx.ImportBytes(c.Model, "", onnx.Options{})
		if err == nil {
			break
		}
		if !symbolic {
			return nil, fmt.Errorf("%w: %w", err, errAgain)
		}
		symbolic = false // inference may need to know a size
	}
	c.Runs = []Run{{Inputs: first}}
	c.Runs = append(c.Runs, Run{Inputs: g.others(symbolic, c)})
	c.draw(g)
	return c, nil
}

// others draws inputs for a second run, of other sizes where the graph takes them.
func (g *Gen) others(symbolic bool, c *Case) map[string]*tensor.Tensor {
	for attempt := range 4 {
		sizes := maps.Clone(g.symbols)
		if symbolic && attempt < 3 {
			for _, s := range slices.Sorted(maps.Keys(sizes)) {
				if g.one(1 + attempt) {
					sizes[s] = choose(g, 1, 2, 3, 4, 5, 6, 7, 9, 11)
				}
			}
		}
		in := map[string]*tensor.Tensor{}
		ok := g.try(func() {
			for _, v := range g.inputs {
				if in[v.name] = v.t(); !v.free {
					continue
				}
				shape := slices.Clone(v.shape())
				for i, s := range v.dims {
					if s != "" {
						shape[i] = sizes[s]
					}
				}
				in[v.name] = v.draw(shape)
			}
		})
		if !ok {
			continue
		}
		if _, err := c.oracle(c.Model, in, passes); err == nil || attempt == 3 {
			return in
		}
	}
	return nil
}

// product is the number of elements of a shape.
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
