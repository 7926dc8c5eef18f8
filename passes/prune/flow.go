package prune

import (
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
	cands map[*ir.Value]*candidate
	of    map[*ir.Value]*track
	tied  []int32  // a union-find forest over labels
	stays []string // by root, why the channel stays; empty where it may go
	cuts  []cut
	fixes []func() error // run after the cuts
	gone  []bool         // by root
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

// follow follows the channels of the products of g and its subgraphs.
func follow(g *ir.Graph, cands []*candidate) *flow {
	f := &flow{cands: map[*ir.Value]*candidate{}, of: map[*ir.Value]*track{}}
	for _, c := range cands {
		f.cands[c.Value] = c
	}
	f.graph(g, "they are an output of the model")
	f.gone = make([]bool, len(f.tied))
	return f
}

// graph follows channels through g, whose outputs keep theirs for the reason given.
func (f *flow) graph(g *ir.Graph, why string) {
	for _, n := range g.Nodes {
		if r := ruleOf[n.Op.Kind()]; r == nil || !r(f, n) {
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
	if !v.Type.Ranked || axis >= len(v.Type.Dims) || v.Type.Dims[axis] != ir.Size(len(labels)) {
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

// A rule says how operators treat channels. It is false where it does not apply to a
// node: then the channels of the inputs stay.
type rule func(f *flow, n *ir.Node) bool

// rules lists what the flow knows of operators.
var rules = []struct {
	apply rule
	kinds []string
}{
	{(*flow).conv, []string{"Conv"}},
	{func(f *flow, n *ir.Node) bool { return f.product(n, 1, 0, 1, 1) }, []string{"ConvTranspose"}},
	{(*flow).matmul, []string{"MatMul"}},
	{(*flow).gemm, []string{"Gemm"}},
	{func(f *flow, n *ir.Node) bool { return f.affine(n, 4) }, []string{"BatchNormalization"}},
	{func(f *flow, n *ir.Node) bool { return f.affine(n, 2) }, []string{"InstanceNormalization"}},
	{(*flow).elementwise, []string{
		"Abs", "Cast", "Ceil", "Celu", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
		"Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Softplus",
		"Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
	}},
	{(*flow).broadcast, []string{"Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum", "Where"}},
	{(*flow).pool, []string{"AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool"}},
	{(*flow).reduce, []string{
		"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
		"ReduceSum", "ReduceSumSquare",
	}},
	{(*flow).reshape, []string{"Flatten", "Reshape", "Squeeze", "Unsqueeze"}},
	{(*flow).concat, []string{"Concat"}},
	{(*flow).split, []string{"Split"}},
	{(*flow).transpose, []string{"Transpose"}},
	{(*flow).pad, []string{"Pad"}},
	{(*flow).slice, []string{"Slice"}},
	{(*flow).resize, []string{"Resize"}},
	{(*flow).softmax, []string{"Softmax", "LogSoftmax"}},
}

var ruleOf = func() map[string]rule {
	m := map[string]rule{}
	for _, r := range rules {
		for _, k := range r.kinds {
			m[k] = r.apply
		}
	}
	return m
}()

// onlyFirst reports whether nobody reads the outputs of n but the first.
func onlyFirst(n *ir.Node) bool {
	return !slices.ContainsFunc(n.Outputs[1:], func(v *ir.Value) bool { return v != nil && (len(v.Uses()) > 0 || v.IsOutput()) })
}

// pass hands the labels of input 0 on along another axis.
func (f *flow) pass(n *ir.Node, axis int) bool {
	t := f.input(n, 0)
	if t == nil || !onlyFirst(n) {
		return false
	}
	f.set(n, 0, axis, t.labels)
	return true
}

// elementwise operators read inputs after the first as scalars.
func (f *flow) elementwise(n *ir.Node) bool {
	t := f.input(n, 0)
	return t != nil && f.pass(n, t.axis)
}

func (f *flow) pool(n *ir.Node) bool {
	t := f.input(n, 0)
	return t != nil && t.axis == 1 && f.pass(n, 1)
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

// affine operators scale and shift axis 1 by the first of the inputs after 0.
func (f *flow) affine(n *ir.Node, vectors int) bool {
	t := f.input(n, 0)
	if t == nil || t.axis != 1 || ir.AttrOf(n.Op, "training_mode") == 1 {
		return false
	}
	for i := 1; i <= vectors; i++ {
		if v := n.Input(i); v == nil || v.Const == nil || v.Const.Rank() != 1 || v.Const.Dim(0) != len(t.labels) {
			return false
		}
	}
	for i := 1; i <= vectors; i++ {
		f.cuts = append(f.cuts, cut{n, i, 0, t.labels, false})
	}
	return f.pass(n, 1)
}

// broadcast ties the channels of tensors that are combined element by element.
func (f *flow) broadcast(n *ir.Node) bool {
	if ir.AttrOf(n.Op, "axis") != nil || !n.Outputs[0].Type.Ranked {
		return false
	}
	var first *track
	back := 0 // the axis of the channels, counted from the last
	for i, v := range n.Inputs {
		if t := f.input(n, i); t != nil {
			first, back = t, v.Type.Rank()-t.axis
			break
		}
	}
	if first == nil {
		return false
	}
	var cuts []cut
	for i, v := range n.Inputs {
		if v == nil || !v.Type.Ranked {
			return false
		}
		at := v.Type.Rank() - back
		t := f.of[v]
		switch {
		case t != nil && (t.axis != at || len(t.labels) != len(first.labels)):
			return false
		case t != nil || at < 0 || v.Type.Dims[at] == ir.Size(1):
		case v.Const != nil && v.Const.Dim(at) == len(first.labels):
			cuts = append(cuts, cut{n, i, at, first.labels, false})
		default:
			return false
		}
	}
	for _, v := range n.Inputs {
		if t := f.of[v]; t != nil {
			f.tie(first.labels, t.labels)
		}
	}
	f.cuts = append(f.cuts, cuts...)
	f.set(n, 0, n.Outputs[0].Type.Rank()-back, first.labels)
	return true
}

// axesOf returns the elements of a constant list of axes, none negative.
func axesOf(v *ir.Value, rank int) ([]int, bool) {
	if v == nil || v.Const == nil {
		return nil, false
	}
	axes := v.Const.Ints()
	for i, a := range axes {
		if a < 0 {
			axes[i] += rank
		}
	}
	return axes, true
}

func (f *flow) reduce(n *ir.Node) bool {
	t := f.input(n, 0)
	if t == nil {
		return false
	}
	axes, ok := axesOf(n.Input(1), n.Inputs[0].Type.Rank())
	if !ok || len(axes) == 0 || slices.Contains(axes, t.axis) {
		return false
	}
	axis := t.axis
	if ir.AttrOf(n.Op, "keepdims") == 0 {
		for _, a := range axes {
			if a < t.axis {
				axis--
			}
		}
	}
	return f.pass(n, axis)
}

// reshape follows channels through a reshape that leaves their axis alone or joins
// it with others.
func (f *flow) reshape(n *ir.Node) bool {
	t := f.input(n, 0)
	if t == nil || !n.Inputs[0].Type.Ranked || !n.Outputs[0].Type.Ranked {
		return false
	}
	in, out := n.Inputs[0].Type.Dims, n.Outputs[0].Type.Dims
	i0, i1, j0, j1, ok := aligned(in, out, t.axis)
	if !ok {
		return false
	}
	// Of the output's axes, one may be wider than 1.
	axis := -1
	for j := j0; j < j1; j++ {
		if out[j] == ir.Size(1) {
			continue
		}
		if axis >= 0 {
			return false
		}
		axis = j
	}
	if axis < 0 {
		return false
	}
	labels := t.labels
	if i1-i0 > 1 {
		outer, inner := 1, 1
		for i := i0; i < i1; i++ {
			if i < t.axis {
				outer *= in[i].Size()
			} else if i > t.axis {
				inner *= in[i].Size()
			}
		}
		labels = nil
		for range outer {
			for _, l := range t.labels {
				labels = append(labels, slices.Repeat([]int32{l}, inner)...)
			}
		}
	}
	switch s := n.Input(1); n.Op.Kind() {
	case "Squeeze":
		if s == nil { // a single channel must not be squeezed
			return false
		}
	case "Reshape":
		if s.Const == nil {
			return false
		}
		switch shape := s.Const.Ints(); {
		case shape[axis] == 0 && axis != t.axis: // copied from another axis
			return false
		case shape[axis] > 0:
			f.fixes = append(f.fixes, func() error {
				if shape[axis] = f.left(labels); shape[axis] < len(labels) {
					n.SetInput(1, n.Graph().NewConst(s.Name, tensor.Ints(shape...)))
				}
				return nil
			})
		}
	}
	f.set(n, 0, axis, labels)
	return true
}

// aligned finds the smallest ranges of axes around axis i of in, i0 to i1 of in and
// j0 to j1 of out, that hold the same elements; ok is false where dimensions that are
// not known stand in the way.
func aligned(in, out []ir.Dim, axis int) (i0, i1, j0, j1 int, ok bool) {
	for i1 <= axis {
		i0, j0 = i1, j1
		if i0 == len(in) || j0 == len(out) {
			return 0, 0, 0, 0, false
		}
		a, b := in[i0], out[j0]
		i1, j1 = i0+1, j0+1
		for a != b {
			if !a.Known() || !b.Known() || a.Size() == 0 || b.Size() == 0 {
				return 0, 0, 0, 0, false
			}
			if a.Size() < b.Size() {
				if i1 == len(in) {
					return 0, 0, 0, 0, false
				}
				a = ir.Mul(a, in[i1])
				i1++
			} else {
				if j1 == len(out) {
					return 0, 0, 0, 0, false
				}
				b = ir.Mul(b, out[j1])
				j1++
			}
		}
		if a.Fresh() {
			return 0, 0, 0, 0, false
		}
	}
	return i0, i1, j0, j1, true
}

// concat lines channels up, or ties them where it works along another axis.
func (f *flow) concat(n *ir.Node) bool {
	if !slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return f.of[v] != nil }) {
		return false
	}
	axis := ir.AttrOf(n.Op, "axis").(int)
	if axis < 0 {
		axis += n.Outputs[0].Type.Rank()
	}
	var labels []int32
	var same *track // of inputs that are joined along another axis
	for i, v := range n.Inputs {
		t := f.input(n, i)
		switch {
		case t != nil && t.axis == axis:
			labels = append(labels, t.labels...)
		case t != nil && same == nil && i == 0:
			same = t
		case t != nil && same != nil && t.axis == same.axis && len(t.labels) == len(same.labels):
		case t == nil && same == nil && v.Type.Ranked && axis >= 0 && axis < len(v.Type.Dims) && v.Type.Dims[axis].Known() && v.Type.Dims[axis].Size() <= maxBeside:
			stay := f.fresh(v.Type.Dims[axis].Size())
			f.keepFor(stay, fmt.Sprintf("%v joins them with %s", n, v.Name))
			labels = append(labels, stay...)
		default:
			return false
		}
	}
	if same == nil {
		f.set(n, 0, axis, labels)
		return true
	}
	if labels != nil {
		return false
	}
	for i := range n.Inputs {
		f.tie(same.labels, f.input(n, i).labels)
	}
	f.set(n, 0, same.axis, same.labels)
	return true
}

func (f *flow) split(n *ir.Node) bool {
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
		n.Op = o
		n.SetInput(1, n.Graph().NewConst(n.Name+".sizes", tensor.Ints(sizes...)))
		return ir.SetAttr(o, "axis", axis)
	})
	return true
}

func (f *flow) transpose(n *ir.Node) bool {
	t := f.input(n, 0)
	if t == nil {
		return false
	}
	perm := n.Op.(*op.Transpose).Order(n.Inputs[0].Type.Rank())
	return f.pass(n, slices.Index(perm, t.axis))
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
	if before == 0 && after == 0 {
		return f.pass(n, t.axis)
	}
	if min(before, after) < 0 || max(before, after) > maxBeside || ir.AttrOf(n.Op, "mode") != "constant" {
		return false
	}
	around := f.fresh(before + after)
	f.keepFor(around, fmt.Sprintf("%v puts them beside others", n))
	f.set(n, 0, t.axis, slices.Concat(around[:before], t.labels, around[before:]))
	return true
}

// slice takes channels whole.
func (f *flow) slice(n *ir.Node) bool {
	t := f.input(n, 0)
	if t == nil || n.Input(3) == nil {
		return false
	}
	axes, ok := axesOf(n.Inputs[3], n.Inputs[0].Type.Rank())
	return ok && !slices.Contains(axes, t.axis) && f.pass(n, t.axis)
}

func (f *flow) resize(n *ir.Node) bool {
	t, s := f.input(n, 0), n.Input(2)
	if t == nil || s == nil || s.Const == nil || n.Input(3) != nil || ir.AttrOf(n.Op, "axes") != nil {
		return false
	}
	if roi := n.Input(1); roi != nil && (roi.Const == nil || roi.Const.Len() > 0) {
		return false
	}
	scales := s.Const.Float64s()
	return len(scales) == n.Inputs[0].Type.Rank() && scales[t.axis] == 1 && f.pass(n, t.axis)
}

func (f *flow) softmax(n *ir.Node) bool {
	t := f.input(n, 0)
	if t == nil || ir.AttrOf(n.Op, "coerce_2d") == 1 {
		return false
	}
	axis := ir.AttrOf(n.Op, "axis").(int)
	if axis < 0 {
		axis += n.Inputs[0].Type.Rank()
	}
	return axis != t.axis && f.pass(n, t.axis)
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
	for _, c := range f.cuts {
		var keep []int
		for i, l := range c.labels {
			if !f.gone[f.root(l)] {
				keep = append(keep, i)
			}
		}
		v := c.node.Input(c.input)
		if len(keep) == len(c.labels) || v == nil {
			continue
		}
		axis := c.axis
		if axis < 0 {
			axis += v.Const.Rank()
		}
		t := take(v.Const, axis, keep)
		if len(v.Uses()) == 1 && !v.IsOutput() {
			v.SetConst(t)
		} else {
			c.node.SetInput(c.input, c.node.Graph().NewConst(v.Name, t))
		}
	}
	for _, fix := range f.fixes {
		if err := fix(); err != nil {
			return err
		}
	}
	return g.Infer()
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
