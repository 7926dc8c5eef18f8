package cuda

import (
	"math"
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// binders make launches of nodes whose tensors are floats and of known shapes, binders8 those of
// nodes that take or give u8; they report false for those that they have no kernel for.
var binders, binders8 map[string]func(b *binder, n *ir.Node) (bool, error)

func init() {
	binders = map[string]func(b *binder, n *ir.Node) (bool, error){
		"Conv": bindConv, "Gemm": bindGemm, "MatMul": bindMatMul,

		"Add": zip(0), "Sub": zip(1), "Mul": zip(2), "Div": zip(3), "Pow": zip(4), "Max": zip(5), "Min": zip(6), "PRelu": zip(7),

		"Abs": mapBy(32), "Ceil": mapBy(33), "Cos": mapBy(34), "Erf": mapBy(35), "Exp": mapBy(36), "Floor": mapBy(37), "Log": mapBy(38),
		"Neg": mapBy(39), "Reciprocal": mapBy(40), "Sin": mapBy(41), "Softplus": mapBy(42), "Sqrt": mapBy(43),

		"Reshape": bindView, "Flatten": bindView, "Squeeze": bindView, "Unsqueeze": bindView, "Identity": bindView,

		"Transpose": bindTranspose, "Slice": bindSlice, "Concat": bindConcat, "Expand": bindExpand, "Gather": bindGather, "Pad": bindPad,

		"MaxPool": bindMaxPool, "AveragePool": bindAveragePool, "GlobalAveragePool": bindGlobalAverage, "ReduceMean": bindReduce(true), "ReduceSum": bindReduce(false),

		"Attention": bindAttention,

		"Softmax": bindSoftmax, "LayerNormalization": bindLayerNorm, "RMSNormalization": bindRMSNorm,
	}
	binders8 = map[string]func(b *binder, n *ir.Node) (bool, error){
		"Conv": bindConv8, "Gemm": bindTokens8, "MatMul": bindTokens8,

		"QuantizeLinear": bindQuantize, "DequantizeLinear": bindDequantize,

		"Reshape": bindView, "Flatten": bindView, "Squeeze": bindView, "Unsqueeze": bindView, "Identity": bindView,

		"Transpose": bindTranspose, "Slice": bindSlice, "Concat": bindConcat, "Expand": bindExpand, "Gather": bindGather, "MaxPool": bindMaxPool,
	}
	for kind := range op.Activations {
		binders[kind] = bindActivation
	}
}

func shapeOf(v *ir.Value) []int {
	s, _ := v.Type.Shape()
	return s
}

func prod(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// flat is the shape of a launch of a thread for each of n elements.
func flat(n int) backend.Geometry {
	const threads = 256
	return backend.Geometry{Grid: [3]int{(n + threads - 1) / threads, 1, 1}, Block: [3]int{threads, 1, 1}}
}

// byRow is that of a block for each of n rows.
func byRow(n int) backend.Geometry {
	return backend.Geometry{Grid: [3]int{n, 1, 1}, Block: [3]int{128, 1, 1}}
}

// maxGrid is the most blocks along the second and the third axis of a grid (CUDA C++
// Programming Guide, table of technical specifications).
const maxGrid = 65535

// element is a parameter that is the address of an element of a value.
type element struct {
	of *ir.Value
	at int
}

// tempParam is a parameter that is the address of a temporary buffer.
type tempParam int

// temp asks for a buffer while the node runs.
func (b *binder) temp(bytes int) int {
	b.temps = append(b.temps, temp{bytes: bytes})
	return len(b.temps) - 1
}

// launch adds a launch of a kernel to those of the node. Parameters are those of
// backend.Cell; values of the graph, elements of them and temporary buffers, which stand for their addresses;
// tensors as they are, of which those of the program are uploaded once; slices of float32, int32 and
// int64, which are this set of input shapes' own; and nil.
func (b *binder) launch(name string, g backend.Geometry, params ...any) error {
	k, err := b.prog.kernel(name)
	if err != nil {
		return b.node.Errorf(ir.ErrUnsupported, "%v", err)
	}
	l := launch{node: b.node, name: name, kernel: k, geometry: g}
	for _, p := range params {
		q := param{}
		if e, ok := p.(element); ok {
			p, q.offset = e.of, uint64(e.at*b.prog.typeOf(e.of).Size())
		}
		switch p := p.(type) {
		case nil:
		case *ir.Value:
			if !p.IsConst() {
				q.place, q.value = true, p
				break
			}
			t, err := b.prog.elements(p)
			if err == nil {
				q.cell, err = b.constant(b.round(t))
				q.cell += q.offset
			}
			if err != nil {
				return err
			}
		case tempParam:
			q = param{place: true, temp: int(p)}
		case *tensor.Tensor:
			if q.cell, err = b.constant(p); err != nil {
				return err
			}
		case []float32:
			if q.cell, err = b.own(tensor.From(p, len(p))); err != nil {
				return err
			}
		case []int32:
			if q.cell, err = b.own(tensor.From(p, len(p))); err != nil {
				return err
			}
		case []int64:
			if q.cell, err = b.own(tensor.From(p, len(p))); err != nil {
				return err
			}
		default:
			if q.cell, err = backend.Cell(p); err != nil {
				return err
			}
		}
		l.params = append(l.params, q)
	}
	b.made = append(b.made, l)
	return nil
}

// name is that of a kernel for floats of the device.
func (b *binder) name(kernel string) string { return b.prog.float.String() + "_" + kernel }

// nameFor is that of a kernel for the type that a value has on the device.
func (b *binder) nameFor(v *ir.Value, kernel string) string {
	return b.prog.typeOf(v).String() + "_" + kernel
}

// round returns a tensor with the type that its elements have on the device.
func (b *binder) round(t *tensor.Tensor) *tensor.Tensor {
	if t.DType() != tensor.F32 || b.prog.float == tensor.F32 {
		return t
	}
	if !b.prog.lasting[t] {
		return t.To(b.prog.float)
	}
	r := b.prog.rounded[t]
	if r == nil {
		r = t.To(b.prog.float)
		b.prog.rounded[t], b.prog.lasting[r] = r, true
	}
	return r
}

// constant uploads a tensor: once, if it is the program's.
func (b *binder) constant(t *tensor.Tensor) (uint64, error) {
	if !b.prog.lasting[t] {
		return b.own(t)
	}
	return b.prog.constant(b.stream, t)
}

// own uploads a tensor for this set of input shapes alone.
func (b *binder) own(t *tensor.Tensor) (uint64, error) {
	at, err := b.prog.upload(b.stream, t)
	if err == nil {
		b.constants = append(b.constants, at)
	}
	return uint64(at), err
}

func bindActivation(b *binder, n *ir.Node) (bool, error) {
	args, ok := op.ActivationArgs(n)
	if !ok {
		return false, nil
	}
	f, a1, a2, err := backend.GPUActivation(&op.Epilogue{Act: n.Op.Kind(), ActArgs: args})
	if err != nil {
		return false, nil
	}
	return b.mapped(n, f, a1, a2)
}

func mapBy(f int) func(b *binder, n *ir.Node) (bool, error) {
	return func(b *binder, n *ir.Node) (bool, error) { return b.mapped(n, f, 0, 0) }
}

func (b *binder) mapped(n *ir.Node, f int, a1, a2 float32) (bool, error) {
	count := prod(shapeOf(n.Outputs[0]))
	if count == 0 {
		return false, nil
	}
	return true, b.launch(b.name("map"), flat(count), n.Inputs[0], n.Outputs[0], count, f, a1, a2)
}

// zip binds a function of two operands that are broadcast.
func zip(f int) func(b *binder, n *ir.Node) (bool, error) {
	return func(b *binder, n *ir.Node) (bool, error) {
		ys := shapeOf(n.Outputs[0])
		if len(n.Inputs) != 2 || prod(ys) == 0 || ir.AttrOf(n.Op, "axis") != nil || n.Inputs[0].Type.DType != tensor.F32 || n.Inputs[1].Type.DType != tensor.F32 {
			return false, nil
		}
		axes := []int64{int64(len(ys))}
		for _, d := range ys {
			axes = append(axes, int64(d))
		}
		for _, v := range n.Inputs {
			axes = append(axes, broadcast(shapeOf(v), ys)...)
		}
		return true, b.launch(b.name("zip"), flat(prod(ys)), n.Inputs[0], n.Inputs[1], n.Outputs[0], prod(ys), axes, f)
	}
}

// broadcast returns the strides by which a tensor of shape s is read along the axes of y.
func broadcast(s, y []int) []int64 {
	own := tensor.Strides(s)
	out := make([]int64, len(y))
	for i := range s {
		if s[i] > 1 {
			out[len(y)-len(s)+i] = int64(own[i])
		}
	}
	return out
}

// bindView shares the storage of the input.
func bindView(b *binder, n *ir.Node) (bool, error) {
	if n.Inputs[0].IsConst() || prod(shapeOf(n.Inputs[0])) != prod(shapeOf(n.Outputs[0])) {
		return false, nil
	}
	b.alias[n.Outputs[0]] = n.Inputs[0]
	return true, nil
}

// move copies elements between places that are sums of strides along axes.
func (b *binder) move(x, y *ir.Value, size, xs, ys []int, from, to int) error {
	if prod(size) == 0 {
		return nil
	}
	axes := []int64{int64(len(size))}
	for _, v := range slices.Concat(size, xs, ys) {
		axes = append(axes, int64(v))
	}
	return b.launch(b.nameFor(y, "move"), flat(prod(size)), x, y, prod(size), axes, from, to)
}

func bindTranspose(b *binder, n *ir.Node) (bool, error) {
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	from := tensor.Strides(xs)
	var strides []int
	for _, axis := range n.Op.(*op.Transpose).Order(len(xs)) {
		strides = append(strides, from[axis])
	}
	return true, b.move(n.Inputs[0], n.Outputs[0], ys, strides, tensor.Strides(ys), 0, 0)
}

func bindExpand(b *binder, n *ir.Node) (bool, error) {
	ys := shapeOf(n.Outputs[0])
	var strides []int
	for _, s := range broadcast(shapeOf(n.Inputs[0]), ys) {
		strides = append(strides, int(s))
	}
	return true, b.move(n.Inputs[0], n.Outputs[0], ys, strides, tensor.Strides(ys), 0, 0)
}

func bindSlice(b *binder, n *ir.Node) (bool, error) {
	at, strides, ok, err := n.Op.(*op.Slice).Strided(n)
	if !ok {
		return false, err
	}
	ys := shapeOf(n.Outputs[0])
	return true, b.move(n.Inputs[0], n.Outputs[0], ys, strides, tensor.Strides(ys), at, 0)
}

func bindConcat(b *binder, n *ir.Node) (bool, error) {
	ys := shapeOf(n.Outputs[0])
	axis := n.Op.(*op.Concat).Axis
	if axis < 0 {
		axis += len(ys)
	}
	strides, at := tensor.Strides(ys), 0
	for _, v := range n.Inputs {
		xs := shapeOf(v)
		if err := b.move(v, n.Outputs[0], xs, tensor.Strides(xs), strides, 0, at); err != nil {
			return false, err
		}
		at += xs[axis] * strides[axis]
	}
	return true, nil
}

// take copies the elements of x that tables name along the axes of y, which has x's axes; see
// elementwise.cu.
func (b *binder) take(x, y *ir.Value, xs, ys []int, tables [][]int, outside float32) error {
	axes := []int64{int64(len(ys))}
	for _, v := range slices.Concat(ys, tensor.Strides(xs)) {
		axes = append(axes, int64(v))
	}
	all := []int64{}
	for _, t := range tables {
		if t == nil {
			axes = append(axes, -1)
			continue
		}
		axes = append(axes, int64(len(all)))
		for _, v := range t {
			all = append(all, int64(v))
		}
	}
	return b.launch(b.nameFor(y, "take"), flat(prod(ys)), x, y, prod(ys), axes, all, outside)
}

// bindGather takes slices whose indices are constant.
func bindGather(b *binder, n *ir.Node) (bool, error) {
	at := n.Inputs[1].Const
	xs := shapeOf(n.Inputs[0])
	if at == nil || prod(shapeOf(n.Outputs[0])) == 0 {
		return false, nil
	}
	a := n.Op.(*op.Gather).Axis
	if a < 0 {
		a += len(xs)
	}
	rows := at.Ints()
	for i := range rows {
		if rows[i] < 0 {
			rows[i] += xs[a]
		}
		if rows[i] < 0 || rows[i] >= xs[a] { // Eval says which
			return false, nil
		}
	}
	outer, inner := prod(xs[:a]), prod(xs[a+1:])
	return true, b.take(n.Inputs[0], n.Outputs[0], []int{outer, xs[a], inner}, []int{outer, len(rows), inner}, [][]int{nil, rows, nil}, 0)
}

func bindPad(b *binder, n *ir.Node) (bool, error) {
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	var args [2][]int
	for i, v := range []*ir.Value{n.Input(1), n.Input(3)} {
		if v == nil {
			continue
		}
		if v.Const == nil {
			return false, nil
		}
		args[i] = v.Const.Ints()
	}
	outside := float32(0)
	if v := n.Input(2); v != nil {
		if v.Const == nil || v.Const.DType() != tensor.F32 || v.Const.Len() != 1 {
			return false, nil
		}
		outside = v.Const.F32s()[0]
	}
	if prod(xs) == 0 || prod(ys) == 0 {
		return false, nil
	}
	tables, err := n.Op.(*op.Pad).Positions(xs, args[0], args[1], n.Input(3) != nil)
	if err != nil {
		return false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	return true, b.take(n.Inputs[0], n.Outputs[0], xs, ys, tables, outside)
}

// Pools, as window.cu numbers them.
const (
	maxPool = iota
	averagePool
	averagePadded
)

func (b *binder) pool(n *ir.Node, kind int, w *op.Window, ceil bool) (bool, error) {
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if len(n.Outputs) > 1 && n.Outputs[1] != nil || len(xs) < 3 || len(xs) > 4 || prod(ys) == 0 {
		return false, nil
	}
	spans, out, err := w.Resolve(xs[2:], w.KernelShape, ceil)
	if err != nil {
		return false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	ends := []int{0, 0}
	for i, s := range spans {
		ends[2-len(spans)+i] = s.End
	}
	params := []any{n.Inputs[0], n.Outputs[0], prod(ys), kind, ends[0], ends[1]}
	return true, b.launch(b.nameFor(n.Outputs[0], "pool"), flat(prod(ys)), append(params, window(xs[2:], out, spans)...)...)
}

func bindMaxPool(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.MaxPool)
	return b.pool(n, maxPool, &o.Window, o.CeilMode)
}

func bindAveragePool(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.AveragePool)
	if o.CountPad {
		return b.pool(n, averagePadded, &o.Window, o.CeilMode)
	}
	return b.pool(n, averagePool, &o.Window, o.CeilMode)
}

func bindGlobalAverage(b *binder, n *ir.Node) (bool, error) {
	xs := shapeOf(n.Inputs[0])
	plane := prod(xs[2:])
	if prod(xs) == 0 {
		return false, nil
	}
	return true, b.launch(b.name("reduce"), byRow(xs[0]*xs[1]), n.Inputs[0], n.Outputs[0], plane, 1, 1/float32(plane))
}

// bindReduce sums over axes that are neighbours, or takes their mean.
func bindReduce(mean bool) func(b *binder, n *ir.Node) (bool, error) {
	return func(b *binder, n *ir.Node) (bool, error) {
		xs := shapeOf(n.Inputs[0])
		lo, hi, ok := n.Op.(*op.Reduce).Neighbours(n)
		if !ok || prod(xs) == 0 {
			return false, nil
		}
		outer, size, step := prod(xs[:lo]), prod(xs[lo:hi]), prod(xs[hi:])
		factor := float32(1)
		if mean {
			factor /= float32(size)
		}
		return true, b.launch(b.name("reduce"), byRow(outer*step), n.Inputs[0], n.Outputs[0], size, step, factor)
	}
}

func bindSoftmax(b *binder, n *ir.Node) (bool, error) {
	o, xs := n.Op.(*op.Softmax), shapeOf(n.Inputs[0])
	axis := o.Axis
	if axis < 0 {
		axis += len(xs)
	}
	if o.Flatten && axis != len(xs)-1 || o.Kind() != "Softmax" || len(xs) == 0 || prod(xs) == 0 {
		return false, nil
	}
	step := prod(xs[axis+1:])
	return true, b.launch(b.name("softmax"), byRow(prod(xs[:axis])*step), n.Inputs[0], n.Outputs[0], xs[axis], step)
}

func bindLayerNorm(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.LayerNormalization)
	return b.normalise(n, o.Axis, o.Epsilon, 1)
}

func bindRMSNorm(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.RMSNormalization)
	return b.normalise(n, o.Axis, o.Epsilon, 0)
}

// normalise binds a normalisation over the last axis.
func (b *binder) normalise(n *ir.Node, axis int, epsilon float32, centred int) (bool, error) {
	xs := shapeOf(n.Inputs[0])
	if len(xs) == 0 || axis != -1 && axis != len(xs)-1 || len(n.Outputs) > 1 || prod(xs) == 0 || math.IsNaN(float64(epsilon)) {
		return false, nil
	}
	width := xs[len(xs)-1]
	scale, ok1 := biasOf(n, 1, width)
	shift, ok2 := biasOf(n, 2, width)
	if !ok1 || !ok2 {
		return false, nil
	}
	return true, b.launch(b.name("normalise"), byRow(prod(xs)/width), n.Inputs[0], n.Outputs[0], width, 1, floats(scale), floats(shift), epsilon, centred)
}
