package prune

import (
	"cmp"
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// A flow follows output channels of products through a graph. Every output channel
// of a product gets a label; operators that treat channels one by one hand labels
// on, those that combine tensors tie them, and the slices of a tensor or a constant
// under one label live or go together. What an operator outside the rules reads
// stays, and the flow remembers why.
type flow struct {
	kind  Kind // Channel or Head
	cands map[*ir.Value]*candidate
	of    map[*ir.Value]*track
	tied  []int32  // a union-find forest over labels
	stays []string // by root, why the channel stays; empty where it may go
	cuts  []cut
	fixes []func() error // run after the cuts
	gone  []bool         // by root
	taken []Cut          // what was cut off

	// Under Head:
	multiplied map[*ir.Value]axes
	heads      []int32 // labels of slices that a reshape made of channels
}

// track says that the slices of a value along an axis carry these labels.
type track struct {
	axis   int
	labels []int32
}

// cut is a constant input of a node that shrinks along an axis with its labels; one
// that is absent when channels go does not.
type cut struct {
	node        *ir.Node
	input, axis int // an axis below 0 counts from the last
	labels      []int32
	reads       bool // the columns of a weight, where channels end
}

// Cut says which slices along an axis of a constant stay where channels go: the constant has others there, or none.
type Cut struct {
	Name string // of the constant
	Axis int
	Keep []int // ascending
}

// follow follows the channels of the products of g and its subgraphs, those of k, Channel or Head.
func follow(g *ir.Graph, cands []*candidate, k Kind) *flow {
	f := &flow{kind: k, cands: map[*ir.Value]*candidate{}, of: map[*ir.Value]*track{}}
	for _, c := range cands {
		f.cands[c.Value] = c
	}
	if k == Head {
		f.multiplied = multiplied(g)
	}
	f.graph(g, "they are an output of the model")
	if k == Head {
		f.byHeads()
	}
	f.gone = make([]bool, len(f.tied))
	return f
}

// graph follows channels through g, whose outputs keep theirs for the reason given.
func (f *flow) graph(g *ir.Graph, why string) {
	for _, n := range g.Nodes {
		if !f.node(n) {
			f.keepInputs(n, fmt.Sprintf("%v reads them", n))
		}
		for _, sub := range ir.Subgraphs(n.Op) {
			if sub.Refused == nil {
				f.graph(sub, fmt.Sprintf("they are an output of %v", n))
				continue
			}
			f.keepAll(sub, fmt.Sprintf("%v reads them", n)) // types in it mean nothing
		}
	}
	for _, v := range g.Outputs {
		f.keep(f.of[v], why)
	}
}

func (f *flow) root(l int32) int32 {
	for f.tied[l] != l {
		f.tied[l] = f.tied[f.tied[l]]
		l = f.tied[l]
	}
	return l
}

func (f *flow) tie(a, b []int32) {
	for i := range a {
		ra, rb := f.root(a[i]), f.root(b[i])
		if ra == rb {
			continue
		}
		f.tied[rb] = ra
		if f.stays[ra] == "" {
			f.stays[ra] = f.stays[rb]
		}
	}
}

// fresh returns n new labels.
func (f *flow) fresh(n int) []int32 {
	labels := make([]int32, n)
	for i := range labels {
		labels[i] = int32(len(f.tied))
		f.tied = append(f.tied, labels[i])
		f.stays = append(f.stays, "")
	}
	return labels
}

// keep makes channels stay; t may be nil.
func (f *flow) keep(t *track, why string) {
	if t == nil {
		return
	}
	for _, l := range t.labels {
		if r := f.root(l); f.stays[r] == "" {
			f.stays[r] = why
		}
	}
}

// keepInputs makes the channels of what n reads stay.
func (f *flow) keepInputs(n *ir.Node, why string) {
	for _, v := range n.Inputs {
		f.keep(f.of[v], why)
	}
}

// keepAll makes the channels of all that g and its subgraphs read stay.
func (f *flow) keepAll(g *ir.Graph, why string) {
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			f.keepInputs(n, why)
		}
		for _, v := range sub.Outputs {
			f.keep(f.of[v], why)
		}
	}
}

// set says that output i of n carries labels along an axis. Where its type does not
// bear that out, the channels stay.
func (f *flow) set(n *ir.Node, i, axis int, labels []int32) {
	v := n.Outputs[i]
	if v == nil {
		return
	}
	t := &track{axis, labels}
	if !v.Type.Ranked || axis >= len(v.Type.Dims) || v.Type.Dims[axis] != ir.Size(len(labels)) && !(f.kind == Head && repeats(v.Type.Dims[axis], len(labels))) {
		f.keep(t, fmt.Sprintf("the output of %v is %v", n, v.Type))
		return
	}
	f.of[v] = t
}

// input returns the track of input i, nil where it has none.
func (f *flow) input(n *ir.Node, i int) *track {
	if v := n.Input(i); v != nil {
		return f.of[v]
	}
	return nil
}

// node follows channels through n. It is false where they do not go through: then those of
// the inputs stay.
func (f *flow) node(n *ir.Node) bool {
	if len(n.Outputs) == 0 || n.Outputs[0] == nil {
		return false
	}
	switch n.Op.(type) {
	case *op.Conv:
		return f.conv(n)
	case *op.ConvTranspose:
		return f.product(n, 1, 0, 1, 1)
	case *op.MatMul:
		return f.matmul(n)
	case *op.Gemm:
		return f.gemm(n)
	case *op.Split:
		return f.parts(n)
	case *op.Slice:
		return f.along(n) || f.slice(n)
	case *op.Concat:
		return f.along(n) || f.concat(n)
	case *op.Pad:
		return f.along(n) || f.pad(n)
	}
	if m, _ := op.Moves(n); m == op.Keeps && op.Operands(n) == 0 {
		return f.reshape(n)
	}
	return f.along(n)
}

// along follows channels through an operator that computes each from the same channel of its
// inputs: channels of tensors that it combines are tied, and constants get as many.
func (f *flow) along(n *ir.Node) bool {
	first := slices.IndexFunc(n.Inputs, func(v *ir.Value) bool { return v != nil && f.of[v] != nil })
	if first < 0 || !onlyFirst(n) {
		return false
	}
	if i, _ := op.SizesInput(n); i >= 0 && n.Input(i) != nil && f.kind == Channel { // it lists how many channels there are
		return false
	}
	t := f.of[n.Inputs[first]]
	axis, in := 0, []int(nil)
	for ; axis < n.Outputs[0].Type.Rank(); axis++ {
		if in = op.Along(n, 0, axis); in != nil && in[first] == t.axis {
			break
		}
		in = nil
	}
	if in == nil {
		return false
	}
	var cuts []cut
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		switch other := f.of[v]; {
		case other != nil && (other.axis != in[i] || len(other.labels) != len(t.labels)):
			return false
		case other != nil || in[i] == op.Whole || v.Type.Dims[in[i]] == ir.Size(1):
		case v.Const != nil && f.cands[v] == nil:
			cuts = append(cuts, cut{n, i, in[i], t.labels, false})
		default:
			return false
		}
	}
	if !f.resize(n, axis, t.labels) {
		return false
	}
	for _, v := range n.Inputs {
		if v != nil && f.of[v] != nil {
			f.tie(t.labels, f.of[v].labels)
		}
	}
	f.cuts = append(f.cuts, cuts...)
	f.set(n, 0, axis, t.labels)
	return true
}

// onlyFirst reports whether nobody reads the outputs of n but the first.
func onlyFirst(n *ir.Node) bool {
	return !slices.ContainsFunc(n.Outputs[1:], func(v *ir.Value) bool { return v != nil && (len(v.Uses()) > 0 || v.IsOutput()) })
}

func (f *flow) conv(n *ir.Node) bool {
	group := ir.AttrOf(n.Op, "group").(int)
	if group == 1 {
		return f.product(n, 0, 1, 1, 1)
	}
	w, t := n.Inputs[1], f.input(n, 0)
	c := f.cands[w]
	if c == nil || t == nil || t.axis != 1 || len(t.labels) != group || w.Const == nil || w.Const.Dim(1) != 1 || w.Const.Dim(0)%group != 0 || c.shared() {
		return false
	}
	m := w.Const.Dim(0)
	labels := make([]int32, m)
	for i := range labels {
		labels[i] = t.labels[i/(m/group)]
	}
	f.keepFor(labels, c.rowsStay)
	f.cuts = append(f.cuts, cut{n, 1, 0, labels, false})
	f.fixes = append(f.fixes, func() error {
		left := f.left(t.labels)
		if left == group {
			return nil
		}
		n.Op = ir.CloneOp(n.Op)
		return ir.SetAttr(n.Op, "group", left)
	})
	return f.finish(n, 1, labels)
}

func (f *flow) matmul(n *ir.Node) bool {
	w := n.Inputs[1]
	if f.kind == Head && (w.Const == nil || w.Const.Rank() > 2) {
		return f.along(n)
	}
	if w.Const == nil || w.Const.Rank() != 2 || !n.Inputs[0].Type.Ranked {
		return false
	}
	return f.product(n, 1, 0, n.Inputs[0].Type.Rank()-1, n.Outputs[0].Type.Rank()-1)
}

func (f *flow) gemm(n *ir.Node) bool {
	a, b := ir.AttrOf(n.Op, "transA").(int), ir.AttrOf(n.Op, "transB").(int)
	return f.product(n, 1-b, b, 1-a, 1)
}

// product follows channels through a weight, input 1 of n, whose axes rows and cols
// are M and K; the input and the output carry channels along axes in and out.
func (f *flow) product(n *ir.Node, rows, cols, in, out int) bool {
	c := f.cands[n.Inputs[1]]
	if c == nil || c.Value.Const == nil || c.Value.Const.Rank() <= max(rows, cols) {
		return false
	}
	w := c.Value.Const
	labels := f.fresh(w.Dim(rows))
	f.keepFor(labels, c.rowsStay)
	if c.shared() {
		f.keepFor(labels, "several operators read the weight")
	}
	c.rows = labels
	if t := f.input(n, 0); t != nil {
		switch {
		case t.axis != in || len(t.labels) != w.Dim(cols):
			f.keep(t, fmt.Sprintf("%v reads them along another axis", n))
		case c.shared():
			f.keep(t, fmt.Sprintf("several operators read the weight of %v", n))
		case c.kept != "":
			f.keep(t, fmt.Sprintf("%v is %s", n, c.kept))
		default:
			c.cols = t.labels
			f.cuts = append(f.cuts, cut{n, 1, cols, t.labels, true})
		}
	}
	f.cuts = append(f.cuts, cut{n, 1, rows, labels, false})
	return f.finish(n, out, labels)
}

// finish follows the channels of the product n, whose output carries labels along an
// axis, through its bias and its epilogue.
func (f *flow) finish(n *ir.Node, axis int, labels []int32) bool {
	switch b := n.Input(2); {
	case b == nil: // it may get one before the channels go
		f.cuts = append(f.cuts, cut{n, 2, -1, labels, false})
	case b.Const == nil:
		f.keepFor(labels, fmt.Sprintf("the bias of %v is computed", n))
		f.keep(f.of[b], fmt.Sprintf("%v adds them as a bias", n))
	case b.Const.Rank() > 0 && b.Const.Dim(b.Const.Rank()-1) == len(labels):
		f.cuts = append(f.cuts, cut{n, 2, -1, labels, false})
	case b.Const.Len() != 1 && b.Const.Dim(b.Const.Rank()-1) != 1:
		f.keepFor(labels, fmt.Sprintf("the bias of %v is %v", n, b.Type))
	}
	if r := n.Input(op.Residual); r != nil {
		if t := f.of[r]; t != nil && t.axis == axis && len(t.labels) == len(labels) {
			f.tie(labels, t.labels)
		} else {
			f.keep(t, fmt.Sprintf("%v adds them", n))
			f.keepFor(labels, fmt.Sprintf("%v adds %s, whose channels stay", n, r.Name))
		}
	}
	f.set(n, 0, axis, labels)
	return true
}

// keepFor is keep for labels; an empty reason keeps nothing.
func (f *flow) keepFor(labels []int32, why string) {
	if why != "" {
		f.keep(&track{labels: labels}, why)
	}
}

// reshape follows channels through a reshape that leaves their axis alone or joins
// it with others, and those of heads through one that splits it.
func (f *flow) reshape(n *ir.Node) bool {
	t := f.input(n, 0)
	if t == nil || !n.Inputs[0].Type.Ranked || !n.Outputs[0].Type.Ranked {
		return false
	}
	in, out := n.Inputs[0].Type.Dims, n.Outputs[0].Type.Dims
	i0, i1, j0, j1, ok := op.Aligned(in, out, t.axis)
	if !ok {
		return f.kind == Head && f.openReshape(n, t)
	}
	axis := 0
	var labels []int32
	switch wide := wideAxes(out, j0, j1); {
	case len(wide) == 1:
		if axis, labels = wide[0], t.labels; i1-i0 > 1 {
			labels, _ = f.regroup(t, in[i0:i1], t.axis-i0, out[j0:j1], axis-j0)
		}
	case len(wide) > 1 && f.kind == Head:
		marked := f.multiplied[n.Outputs[0]]
		axis, labels = f.split(t, [2][]ir.Dim{in[i0:i1], out[j0:j1]}, t.axis-i0, func(j int) bool { return marked.has(j0 + j) })
		axis += j0
	}
	if labels == nil {
		return false
	}
	return f.reshaped(n, t, axis, labels)
}

// reshaped says that what a reshape gives carries labels along an axis, where its list of sizes bears that out.
func (f *flow) reshaped(n *ir.Node, t *track, axis int, labels []int32) bool {
	switch s := n.Input(1); n.Op.(type) {
	case *op.Squeeze:
		if s == nil { // a single channel must not be squeezed
			return false
		}
	case *op.Reshape:
		if s.Const != nil && s.Const.Ints()[axis] == 0 && axis != t.axis { // copied from another axis
			return false
		}
		if !f.resize(n, axis, labels) {
			return false
		}
	}
	f.set(n, 0, axis, labels)
	return true
}

// wideAxes lists those of the axes j0 to j1 that are wider than 1.
func wideAxes(dims []ir.Dim, j0, j1 int) (wide []int) {
	for j := j0; j < j1; j++ {
		if dims[j] != ir.Size(1) {
			wide = append(wide, j)
		}
	}
	return wide
}

// regroup returns the labels of the slices of a tensor along axis j, whose shape is out where it was in, with the labels of t
// along axis i: for each slice one, and what must be tied to it.
func (f *flow) regroup(t *track, in []ir.Dim, i int, out []ir.Dim, j int) (labels []int32, tied [][2]int32) {
	span := func(dims []ir.Dim) (n int) {
		n = 1
		for _, d := range dims {
			n *= d.Size()
		}
		return n
	}
	inner, each := span(in[i+1:]), span(out[j+1:])
	labels = make([]int32, out[j].Size())
	set := make([]bool, len(labels))
	for e := range span(in) {
		l, s := t.labels[e/inner%len(t.labels)], e/each%len(labels)
		if !set[s] {
			labels[s], set[s] = l, true
		} else if f.root(labels[s]) != f.root(l) {
			tied = append(tied, [2]int32{labels[s], l})
		}
	}
	return labels, tied
}

// concat lines channels up that are joined with others.
func (f *flow) concat(n *ir.Node) bool {
	axis := n.Op.(*op.Concat).Axis
	if axis < 0 {
		axis += n.Outputs[0].Type.Rank()
	}
	if !slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return f.of[v] != nil }) {
		return false
	}
	var labels []int32
	followed := false
	for i, v := range n.Inputs {
		switch t := f.input(n, i); {
		case t != nil && t.axis == axis && v.Type.Dims[axis].Known():
			labels = append(labels, t.labels...)
			followed = true
		case t == nil && v.Type.Ranked && axis >= 0 && axis < len(v.Type.Dims) && v.Type.Dims[axis].Known() && v.Type.Dims[axis].Size() <= maxBeside:
			stay := f.fresh(v.Type.Dims[axis].Size())
			f.keepFor(stay, fmt.Sprintf("%v joins them with %s", n, v.Name))
			labels = append(labels, stay...)
		default:
			return false
		}
	}
	if followed {
		f.set(n, 0, axis, labels)
	}
	return followed
}

func (f *flow) parts(n *ir.Node) bool {
	t := f.input(n, 0)
	if t == nil {
		return false
	}
	axis := ir.AttrOf(n.Op, "axis").(int)
	if axis < 0 {
		axis += n.Inputs[0].Type.Rank()
	}
	if axis != t.axis {
		for i := range n.Outputs {
			f.set(n, i, t.axis, t.labels)
		}
		return true
	}
	var parts [][]int32
	rest := t.labels
	for _, v := range n.Outputs {
		if v == nil || !v.Type.Ranked || !v.Type.Dims[axis].Known() || v.Type.Dims[axis].Size() > len(rest) {
			return false
		}
		parts = append(parts, rest[:v.Type.Dims[axis].Size()])
		rest = rest[len(parts[len(parts)-1]):]
	}
	if len(rest) > 0 {
		return false
	}
	for i, labels := range parts {
		f.set(n, i, axis, labels)
	}
	f.fixes = append(f.fixes, func() error {
		if f.left(t.labels) == len(t.labels) {
			return nil
		}
		var sizes []int
		for _, labels := range parts {
			sizes = append(sizes, f.left(labels))
		}
		o, err := op.New("Split")
		if err != nil {
			return err
		}
		was := ir.AttrOf(n.Op, "axis") // which may count from the last
		n.Op = o
		n.SetInput(1, n.Graph().NewConst(n.Name+".sizes", tensor.Ints(sizes...)))
		return ir.SetAttr(o, "axis", was)
	})
	return true
}

// maxBeside bounds the channels that stay beside those that are followed.
const maxBeside = 1 << 20

// pad puts channels that stay around those of the input.
func (f *flow) pad(n *ir.Node) bool {
	t, p := f.input(n, 0), n.Input(1)
	if t == nil || p == nil || p.Const == nil || n.Input(3) != nil {
		return false
	}
	pads, rank := p.Const.Ints(), n.Inputs[0].Type.Rank()
	if len(pads) != 2*rank {
		return false
	}
	before, after := pads[t.axis], pads[rank+t.axis]
	if min(before, after) < 0 || max(before, after) > maxBeside || ir.AttrOf(n.Op, "mode") != "constant" {
		return false
	}
	around := f.fresh(before + after)
	f.keepFor(around, fmt.Sprintf("%v puts them beside others", n))
	f.set(n, 0, t.axis, slices.Concat(around[:before], t.labels, around[before:]))
	return true
}

// lost tells which of the labels belong to channels that are gone, nil where none does.
func (f *flow) lost(labels []int32) []bool {
	if f.left(labels) == len(labels) {
		return nil
	}
	out := make([]bool, len(labels))
	for i, l := range labels {
		out[i] = f.gone[f.root(l)]
	}
	return out
}

// left counts the labels whose channels are not gone.
func (f *flow) left(labels []int32) (n int) {
	for _, l := range labels {
		if !f.gone[f.root(l)] {
			n++
		}
	}
	return n
}

// apply cuts off the channels that are gone.
func (f *flow) apply(g *ir.Graph) error {
	f.gather(func(labels []int32) []int {
		var keep []int
		for i, l := range labels {
			if !f.gone[f.root(l)] {
				keep = append(keep, i)
			}
		}
		if len(keep) == len(labels) {
			return nil
		}
		return keep
	})
	for _, fix := range f.fixes {
		if err := fix(); err != nil {
			return err
		}
	}
	return g.Infer()
}

// gather makes of every constant that has channels its slices at those places that at gives
// for their labels; nil leaves it alone.
func (f *flow) gather(at func(labels []int32) []int) {
	names := map[*ir.Value]string{} // that constants had
	for _, c := range f.cuts {
		v := c.node.Input(c.input)
		if v == nil {
			continue
		}
		places := at(c.labels)
		if places == nil {
			continue
		}
		axis := c.axis
		if axis < 0 {
			axis += v.Const.Rank()
		}
		t, name := take(v.Const, axis, places), cmp.Or(names[v], v.Name)
		f.taken = append(f.taken, Cut{name, axis, places})
		if len(v.Uses()) == 1 && !v.IsOutput() {
			v.SetConst(t)
		} else {
			other := c.node.Graph().NewConst(v.Name, t)
			names[other] = name
			c.node.SetInput(c.input, other)
		}
	}
}

// take returns the slices of t at some positions of an axis.
func take(t *tensor.Tensor, axis int, at []int) *tensor.Tensor {
	shape := slices.Clone(t.Shape())
	outer, inner := 1, t.DType().Size()
	for i, d := range shape {
		if i < axis {
			outer *= d
		} else if i > axis {
			inner *= d
		}
	}
	wide := shape[axis] * inner
	shape[axis] = len(at)
	out := tensor.New(t.DType(), shape...)
	src, dst := t.Bytes(), out.Bytes()
	for o := range outer {
		for _, k := range at {
			copy(dst[:inner], src[o*wide+k*inner:])
			dst = dst[inner:]
		}
	}
	return out
}
