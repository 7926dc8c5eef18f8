package unfold

import (
	"reflect"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// wide returns what became of a constant in the shape that it had, with what it had where channels went, and which elements went; nil where
// none did.
func (f *finder) wide(was *ir.Value, now *tensor.Tensor) (wide *tensor.Tensor, gone []bool, ok bool) {
	if was.Const.DType() != now.DType() {
		return nil, nil, false
	}
	if slices.Equal(was.Const.Shape(), now.Shape()) {
		return now, nil, true
	}
	at, shape := kept(was.Const.Shape(), f.cuts[was.Name])
	if !slices.Equal(shape, now.Shape()) {
		return nil, nil, false
	}
	wide, gone = was.Const.Clone(), slices.Repeat([]bool{true}, was.Const.Len())
	size := now.DType().Size()
	for i, k := range at {
		copy(wide.Bytes()[k*size:][:size], now.Bytes()[i*size:])
		gone[k] = false
	}
	return wide, gone, true
}

// kept returns which elements of a shape are in the slices that stay along some axes, in their order, and the shape that these have.
func kept(shape []int, keep map[int][]int) (at, now []int) {
	at = []int{0}
	for axis, d := range shape {
		stay, cut := keep[axis]
		if !cut {
			stay = make([]int, d)
			for i := range stay {
				stay[i] = i
			}
		}
		next := make([]int, 0, len(at)*len(stay))
		for _, first := range at {
			for _, i := range stay {
				next = append(next, first*d+i)
			}
		}
		at, now = next, append(now, len(stay))
	}
	return at, now
}

// drop notes that elements of what a constant was made from go.
func (f *finder) drop(s *source, gone []bool) {
	if !slices.Contains(gone, true) {
		return
	}
	first := 0
	for _, t := range s.tensors {
		for i, g := range gone {
			k := i
			if s.at != nil {
				k = int(s.at[i]) - 1
			}
			if k -= first; g && k >= 0 && k < t.Len() {
				if f.gone[t] == nil {
					f.gone[t] = make([]bool, t.Len())
				}
				f.gone[t][k] = true
			}
		}
		first += t.Len()
	}
}

// shrink cuts what goes with channels off the tensors of the file: slices of them, whole.
func (f *finder) shrink() error {
	for t, gone := range f.gone {
		if f.packing(t) != nil || !f.Holds(t) {
			return unsupported("the file does not hold weights whose channels go as a tensor")
		}
		now := f.out.Tensors[t]
		if now == nil {
			now = t
		}
		at, shape := kept(t.Shape(), left(t.Shape(), gone))
		if slices.ContainsFunc(at, func(k int) bool { return gone[k] }) {
			return unsupported("what goes with channels is no slice of a tensor of the file")
		}
		out, size := tensor.New(t.DType(), shape...), t.DType().Size()
		for i, k := range at {
			copy(out.Bytes()[i*size:][:size], now.Bytes()[k*size:])
		}
		f.out.Tensors[t], f.out.consts[t] = out, out
	}
	return nil
}

// left lists the slices of a shape along each axis of which an element stays.
func left(shape []int, gone []bool) map[int][]int {
	keep := map[int][]int{}
	inner := len(gone)
	for axis, d := range shape {
		inner /= d
		stays := make([]bool, d)
		for i, g := range gone {
			stays[i/inner%d] = stays[i/inner%d] || !g
		}
		keep[axis] = []int{}
		for i, s := range stays {
			if s {
				keep[axis] = append(keep[axis], i)
			}
		}
	}
	return keep
}

// resize has a node of the file that gives a constant another shape list the sizes that are left of what it gives, of which elements go.
func (f *finder) resize(v *ir.Value, gone []bool) {
	shape, ok := v.Type.Shape()
	if !ok || v.Def == nil || v.Def.Graph() != f.File || !slices.Contains(gone, true) {
		return
	}
	i, _ := op.SizesInput(v.Def)
	if n, err := tensor.Elems(shape); i < 0 || err != nil || n != len(gone) || v.Def.Input(i) == nil || v.Def.Input(i).Const == nil {
		return
	}
	sizes, keep := v.Def.Input(i).Const.Ints(), left(shape, gone)
	if len(sizes) != len(shape) || slices.ContainsFunc(f.out.Constants, func(c Constant) bool { return c.Output == v.Name && c.Index == i }) {
		return
	}
	changed := false
	for axis, size := range sizes {
		if size == shape[axis] && len(keep[axis]) != size {
			sizes[axis], changed = len(keep[axis]), true
		}
	}
	kind := v.Def.Op.Kind()
	listed := func(a Attr) bool { return a.Output == v.Name && a.Name == lists[kind].names[i] }
	switch {
	case !changed || slices.ContainsFunc(f.out.Attrs, listed):
	case f.Opset < lists[kind].since:
		f.out.Attrs = append(f.out.Attrs, Attr{kind, v.Name, lists[kind].names[i], sizes})
	default:
		f.out.Constants = append(f.out.Constants, Constant{f.fresh(v.Def.Name+".sizes", v), kind, v.Name, i, tensor.Ints(sizes...)})
	}
}

// rows tells which output channels of a product before pruning go, nil where none does.
func (f *finder) rows(n *ir.Node) []bool {
	w := n.Input(1)
	if w == nil {
		return nil
	}
	use, ok := f.weights[w]
	if w.Const == nil && w.Def != nil && len(w.Def.Inputs) > 0 { // codes
		w = w.Def.Inputs[0]
	}
	if !ok || w.Const == nil || f.cuts[w.Name] == nil {
		return nil
	}
	at, _ := kept(w.Const.Shape(), f.cuts[w.Name])
	stays := tensor.New(tensor.I64, w.Const.Shape()...)
	for _, k := range at {
		tensor.Data[int64](stays)[k] = 1
	}
	matrix := use.View.Matrix(stays)
	rows, cols := matrix.Dim(0), matrix.Dim(1)
	gone := make([]bool, rows)
	for r := range gone {
		gone[r] = !slices.Contains(tensor.Data[int64](matrix)[r*cols:][:cols], 1)
	}
	if !slices.Contains(gone, true) {
		return nil
	}
	return gone
}

// behind has what was folded into a product, and is no node before pruning, lose the channels that the product loses.
func (f *finder) behind(n *ir.Node) error {
	if !isProduct(n.Op) {
		return nil
	}
	gone := f.rows(n)
	if gone == nil {
		return nil
	}
	v := f.values[nameOf(n)]
	if v == nil || v.Def == nil || v.Def.Op.Kind() != n.Op.Kind() {
		return unsupported("the file has no %v", n)
	}
	links, ok := f.links(v.Def, len(gone))
	if !ok {
		return unsupported("%v has another bias in the file", n)
	}
	for _, l := range links {
		for _, c := range l.consts {
			t := f.constOf(c)
			if t != nil && (t.Len() != len(gone) || len(gone) == 1) {
				continue // of all channels alike
			}
			s, err := f.source(c, 1)
			if err != nil {
				return err
			}
			if t != nil {
				f.drop(s, gone)
				f.resize(c, gone)
			}
		}
	}
	return nil
}

// widen fills in a bias by its channels: what it is now where they stay, and what it was where they go. It is false where it has not as many
// elements as stay.
func widen(bias, before, now []float64, gone []bool) bool {
	next := 0
	for i, g := range gone {
		bias[i] = before[i]
		if !g && next < len(now) {
			bias[i] = now[next]
		}
		if !g {
			next++
		}
	}
	return next == len(now)
}

// without returns a vector without what goes.
func without(t *tensor.Tensor, gone []bool) *tensor.Tensor {
	var list []float64
	for i, v := range t.Float64s() {
		if !gone[i] {
			list = append(list, v)
		}
	}
	return tensor.FromFloat64s(t.DType(), list, len(list))
}

// attributes reports whether a node has the attributes that it had, or others that count channels, which it notes of nodes that the
// file has in its main graph. Lists of parts are inputs.
func (f *finder) attributes(was, now *ir.Node) bool {
	if len(ir.Subgraphs(now.Op)) > 0 || reflect.DeepEqual(ir.Attrs(was.Op), ir.Attrs(now.Op)) {
		return true
	}
	count := map[string]string{"Conv": "group", "Split": "num_outputs"}[now.Op.Kind()]
	next := ir.AttrOf(now.Op, count)
	if count == "" || next == nil {
		return false
	}
	same := ir.CloneOp(was.Op)
	if ir.SetAttr(same, count, next) != nil || !reflect.DeepEqual(ir.Attrs(same), ir.Attrs(now.Op)) {
		return false
	}
	if now.Op.Kind() == "Split" {
		return true
	}
	if _, err := f.node(now); err != nil {
		return false
	}
	f.out.Attrs = append(f.out.Attrs, Attr{now.Op.Kind(), nameOf(now), count, next})
	return true
}

// lists names inputs that list sizes or places of channels, and since which operator set they are no attributes, of these names.
var lists = map[string]struct {
	since int
	names map[int]string
}{
	"Split":   {13, map[int]string{1: "split"}},
	"Slice":   {10, map[int]string{1: "starts", 2: "ends"}},
	"Reshape": {5, map[int]string{1: "shape"}},
}

// counts reports whether input i of a node is such a list, or one of sizes.
func counts(n *ir.Node, i int) bool {
	_, ok := lists[n.Op.Kind()].names[i]
	sizes, _ := op.SizesInput(n)
	return ok || sizes == i
}

// list finds what becomes of a list in the file: another constant, another attribute, or, where others read it, too, a constant of its own.
// One that the file computes is computed.
func (f *finder) list(n *ir.Node, i int, now *ir.Value) error {
	file, err := f.node(n)
	if err != nil {
		return err
	}
	was, here := n.Input(i), file.Input(i)
	if was != nil && len(was.Uses()) == 1 && f.constant(was, now) == nil {
		return nil
	}
	if here != nil && here.Const == nil {
		if was != nil && was.Const != nil {
			f.part(n, here, was.Const.Ints(), now.Const.Ints())
		}
		return nil
	}
	if kind := n.Op.Kind(); f.Opset < lists[kind].since {
		f.out.Attrs = append(f.out.Attrs, Attr{kind, nameOf(n), lists[kind].names[i], now.Const.Ints()})
		return nil
	}
	return f.constantFor(n, i, now)
}

// sizing returns the nodes of a graph that compute nothing but lists of all sizes of what others give, whose types say the same.
func sizing(g *ir.Graph) map[*ir.Node]bool {
	out := map[*ir.Node]bool{}
	for sub := range g.All() {
		for _, n := range slices.Backward(sub.Nodes) {
			read := false
			out[n] = len(ir.Subgraphs(n.Op)) == 0 && !slices.ContainsFunc(n.Outputs, func(v *ir.Value) bool {
				if v == nil {
					return false
				}
				read = read || len(v.Uses()) > 0
				return v.IsOutput() || slices.ContainsFunc(v.Uses(), func(u ir.Use) bool {
					i, all := op.SizesInput(u.Node)
					return !(all && i == u.Index) && !out[u.Node]
				})
			}) && read
		}
	}
	return out
}

// scaled reports whether a list is computed of one before pruning, times a share of the channels.
func (f *finder) scaled(v *ir.Value) bool {
	return v.Def != nil && v.Def.Op.Kind() == "Div" && f.left[v.Name] == nil
}

// listOf finds what becomes of a list that the file joins of sizes, one of which is another.
func (f *finder) listOf(n *ir.Node, i int, now *ir.Value) error {
	file, err := f.node(n)
	if err != nil {
		return err
	}
	div := now.Def
	mul := div.Inputs[0].Def
	if mul == nil || mul.Op.Kind() != "Mul" || mul.Inputs[1].Const == nil || div.Inputs[1].Const == nil {
		return unsupported("pruning gives %v another input", n)
	}
	if !f.part(n, file.Input(i), div.Inputs[1].Const.Ints(), mul.Inputs[1].Const.Ints()) {
		return unsupported("the file computes the sizes of %v in another way", n)
	}
	return nil
}

// part has the one of the sizes that the file joins in a list for a node be another that differs in two lists, by the share that it is of in these. It is
// false where that is no constant in the file.
func (f *finder) part(n *ir.Node, here *ir.Value, of, by []int) bool {
	axis, differing := -1, 0
	for i := range min(len(of), len(by)) {
		if of[i] != by[i] {
			axis = i
			differing++
		}
	}
	list := here.Def
	if differing != 1 || len(of) != len(by) || of[axis] == 0 || list == nil || list.Op.Kind() != "Concat" || list.Graph() != f.File || len(list.Inputs) != len(by) || len(here.Uses()) != 1 {
		return false
	}
	size := f.numbers(list.Inputs[axis])
	if len(size) != 1 || size[0] < 1 || size[0]*by[axis]%of[axis] != 0 {
		return false
	}
	name := f.fresh(n.Name+".sizes", here)
	f.out.Constants = append(f.out.Constants, Constant{name, "Concat", nameOf(list), axis, tensor.Ints(size[0] * by[axis] / of[axis])})
	return true
}

// numbers are those of a constant of integers, also where the file gives it another shape; nil where it is none.
func (f *finder) numbers(v *ir.Value) []int {
	for v.Const == nil {
		if v.Def == nil {
			return nil
		}
		how, data := op.Moves(v.Def)
		if how != op.Keeps || len(data) != 1 {
			return nil
		}
		v = data[0]
	}
	if !v.Const.DType().IsInt() {
		return nil
	}
	return v.Const.Ints()
}

// node returns the node of the file's main graph that a node before pruning is.
func (f *finder) node(n *ir.Node) (*ir.Node, error) {
	v := f.values[nameOf(n)]
	if v == nil || v.Def == nil || v.Def.Op.Kind() != n.Op.Kind() || v.Def.Graph() != f.File {
		return nil, unsupported("the file has no %v", n)
	}
	return v.Def, nil
}

// constantFor has a node of the file read a constant of its own.
func (f *finder) constantFor(n *ir.Node, i int, now *ir.Value) error {
	file, err := f.node(n)
	if err != nil {
		return err
	}
	name := f.fresh(now.Name, f.values[nameOf(n)])
	f.out.Constants = append(f.out.Constants, Constant{name, file.Op.Kind(), nameOf(n), i, now.Const})
	return nil
}

// fresh returns a name that no value of the file has, and takes it for one that v goes with.
func (f *finder) fresh(name string, v *ir.Value) string {
	for f.values[name] != nil {
		name += "_"
	}
	f.values[name] = v
	return name
}

// alias has what reads a value whose node is gone read another.
func (f *finder) alias(n *ir.Node, was, now *ir.Value) error {
	v, w := f.values[was.Name], f.values[now.Name]
	for _, in := range f.File.Inputs {
		if in.Name == now.Name {
			w = in
		}
	}
	if v == nil || w == nil || v.Def == nil || v.Def.Graph() != f.File || v.IsOutput() || w.Graph() != f.File {
		return unsupported("pruning gives %v another input, %s", n, now.Name)
	}
	if other := f.out.Aliases[was.Name]; other != "" && other != now.Name {
		return unsupported("pruning reads %s and %s in the place of %s", other, now.Name, was.Name)
	}
	f.out.Aliases[was.Name] = now.Name
	return nil
}

// Changes reports whether more than elements changes: shapes, numbers that count channels, or which nodes there are.
func (r *Result) Changes() bool {
	if len(r.Constants)+len(r.Attrs)+len(r.Aliases) > 0 {
		return true
	}
	for was, now := range r.consts {
		if !slices.Equal(was.Shape(), now.Shape()) {
			return true
		}
	}
	return false
}

// Apply makes of a clone of Graphs.File what becomes of it, and returns the shapes of its values that are others then.
func (r *Result) Apply(g *ir.Graph) (map[string][]ir.Dim, error) {
	if err := g.Infer(); err != nil {
		return nil, err
	}
	was := map[string]ir.Type{}
	byName := map[string]*ir.Value{}
	for _, v := range g.Inputs {
		byName[v.Name] = v
	}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			for _, v := range n.Outputs {
				if v != nil {
					was[v.Name], byName[v.Name] = v.Type, v
				}
			}
		}
	}
	for _, v := range g.Constants() {
		was[v.Name] = v.Type
		if now := r.consts[v.Const]; now != nil {
			v.SetConst(now)
		}
	}
	for _, c := range slices.Concat(r.Biases, r.Constants) {
		n := byName[c.Output].Def
		n.SetInput(c.Index, g.NewConst(c.Name, c.Tensor))
		uncount(n)
	}
	for _, a := range r.Attrs {
		if err := a.apply(g, byName[a.Output].Def); err != nil {
			return nil, err
		}
	}
	for from, to := range r.Aliases {
		g.ReplaceUses(byName[from], byName[to])
	}
	if err := g.Infer(); err != nil {
		return nil, err
	}
	shapes := map[string][]ir.Dim{}
	note := func(v *ir.Value) {
		if t, ok := was[v.Name]; ok && t.Ranked && v.Type.Ranked && differ(t.Dims, v.Type.Dims) {
			dims := slices.Clone(v.Type.Dims)
			for i, d := range t.Dims {
				if len(dims) == len(t.Dims) && d == dims[i] {
					dims[i] = ir.Any // the file says it as it was, whatever size an input was given
				}
			}
			shapes[v.Name] = dims
		}
	}
	for _, v := range byName {
		note(v)
	}
	for _, v := range g.Constants() {
		note(v)
	}
	return shapes, nil
}

// differ reports whether two shapes are known not to be the same.
func differ(a, b []ir.Dim) bool {
	if len(a) != len(b) {
		return true
	}
	for i, d := range a {
		if d.Known() && b[i].Known() && d != b[i] {
			return true
		}
	}
	return false
}

// uncount leaves out how many parts a Split has, which a list of them says.
func uncount(n *ir.Node) {
	if o, ok := n.Op.(*op.Split); ok {
		o := *o
		o.Outputs = 0
		n.Op = &o
	}
}

// apply gives a node the attribute, which may be an input of the graph's form of it.
func (a *Attr) apply(g *ir.Graph, n *ir.Node) error {
	for i, name := range lists[a.Kind].names {
		if list, ok := a.Value.([]int); ok && name == a.Name {
			n.SetInput(i, g.NewConst(a.Output+"."+a.Name, tensor.Ints(list...)))
			uncount(n)
			return nil
		}
	}
	n.Op = ir.CloneOp(n.Op)
	return ir.SetAttr(n.Op, a.Name, a.Value)
}

// Same reports whether a graph computes what another does: it has its nodes, which read the same, and constants that are equal but for
// rounding. What lists sizes is not compared, but the types that follow from it. What it finds first that is not so wraps ir.ErrUnsupported.
func Same(got, want *ir.Graph) error {
	nodes := map[string]*ir.Node{}
	count, sizes := 0, sizing(got)
	for sub := range got.All() {
		for _, n := range sub.Nodes {
			nodes[nameOf(n)] = n
			if !sizes[n] {
				count++
			}
		}
	}
	sizes = sizing(want)
	for sub := range want.All() {
		for _, n := range sub.Nodes {
			if sizes[n] {
				continue
			}
			count--
			m := nodes[nameOf(n)]
			if m == nil || m.Op.Kind() != n.Op.Kind() || len(ir.Subgraphs(n.Op)) == 0 && !sameAttributes(m, n) {
				return unsupported("the file has no form of %v", n)
			}
			for i := range max(len(m.Inputs), len(n.Inputs)) {
				if !sameInput(m, n, i) {
					return unsupported("input %d of %v is another in the file", i, n)
				}
			}
			for i, v := range n.Outputs {
				if v != nil && !sameType(m.Outputs[i].Type, v.Type) {
					return unsupported("%v gives %v in the file, want %v", n, m.Outputs[i].Type, v.Type)
				}
			}
		}
	}
	if count != 0 {
		return unsupported("the file has %d nodes more", count)
	}
	for i := range want.Outputs {
		if got.Outputs[i].Name != want.Outputs[i].Name && !(got.Outputs[i].IsConst() && want.Outputs[i].IsConst()) {
			return unsupported("output %s is another in the file", want.OutputName(i))
		}
	}
	return nil
}

// sameType reports whether a type says what another does of sizes.
func sameType(got, want ir.Type) bool {
	if got.DType != want.DType || got.Ranked != want.Ranked || len(got.Dims) != len(want.Dims) {
		return false
	}
	for i, d := range want.Dims {
		if d.Known() && got.Dims[i] != d {
			return false
		}
	}
	return true
}

// sameAttributes is equality but for what says of parts what their list says, too.
func sameAttributes(m, n *ir.Node) bool {
	return reflect.DeepEqual(ir.Attrs(m.Op), ir.Attrs(n.Op)) || n.Op.Kind() == "Split" && ir.AttrOf(m.Op, "axis") == ir.AttrOf(n.Op, "axis")
}

// sameInput reports whether two nodes read the same as input i. What lists all sizes of an output says nothing that its type does not.
func sameInput(m, n *ir.Node, i int) bool {
	if k, all := op.SizesInput(n); k == i && all {
		return true
	}
	a, b := m.Input(i), n.Input(i)
	switch {
	case a == nil || b == nil:
		return a == b || n.Op.Kind() == "Split"
	case a.Const == nil || b.Const == nil:
		return a.Const == b.Const && a.Name == b.Name
	case equal(a.Const, b.Const):
		return true
	case a.Const.DType() != b.Const.DType() || !slices.Equal(a.Const.Shape(), b.Const.Shape()) || !a.Const.DType().IsFloat():
		return false
	}
	x, y := a.Const.Float64s(), b.Const.Float64s()
	most := 0.0
	for _, v := range y {
		most = max(most, v, -v)
	}
	for j := range x {
		if d := x[j] - y[j]; !(max(d, -d) <= 10*closeTo*most) {
			return false
		}
	}
	return true
}
