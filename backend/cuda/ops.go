package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindFunc makes the launches of a node; it reports false, and leaves no launch behind, where it has no kernel
// for it.
type bindFunc = func(b *binder, n *ir.Node) (bool, error)

// mixed binds nodes of known shapes whose tensors may be of any type. What is in no table may be in a chain.
var mixed = map[string]bindFunc{
	"Reshape": bindView, "Flatten": bindView, "Squeeze": bindView, "Unsqueeze": bindView, "Identity": bindView,

	"Transpose": bindTranspose, "Slice": bindSlice, "Split": bindSplit, "Concat": bindConcat, "Expand": bindExpand, "Gather": bindGather, "Pad": bindPad,
	"ScatterND": bindScatter, "Tile": bindTile, "DepthToSpace": bindDepthToSpace, "SpaceToDepth": bindSpaceToDepth,

	"ArgMax": bindArg, "ArgMin": bindArg, "Attention": bindAttention, "RotaryEmbedding": bindRotary,
}

// binders8 binds those that take or give u8.
var binders8 = map[string]bindFunc{
	"Conv": bindIntegerConv, "Gemm": bindIntegerTokens, "MatMul": bindIntegerTokens,

	"QuantizeLinear": bindQuantize, "DequantizeLinear": bindDequantize, "MaxPool": bindMaxPool,
}

// binders binds those whose tensors are f32.
var binders = map[string]bindFunc{
	"Conv": bindConv, "ConvTranspose": bindConvTranspose, "Gemm": bindGemm, "MatMul": bindMatMul,

	"MaxPool": bindMaxPool, "AveragePool": bindAveragePool, "GlobalAveragePool": bindGlobal("ReduceMean"), "GlobalMaxPool": bindGlobal("ReduceMax"), "Resize": bindResize,

	"GRU": bindGRU, "LSTM": bindLSTM, "RNN": bindRNN,

	"Softmax": bindSoftmax, "LogSoftmax": bindSoftmax, "InstanceNormalization": bindInstanceNorm, "GroupNormalization": bindGroupNorm,
	"LayerNormalization": bindLayerNorm, "RMSNormalization": bindRMSNorm,

	"ReduceSum": bindReduce, "ReduceMean": bindReduce, "ReduceMax": bindReduce, "ReduceMin": bindReduce, "ReduceProd": bindReduce,
	"ReduceL1": bindReduce, "ReduceL2": bindReduce, "ReduceSumSquare": bindReduce, "ReduceLogSum": bindReduce, "ReduceLogSumExp": bindReduce,
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
	const threads = flatThreads
	return backend.Geometry{Grid: [3]int{(n + threads - 1) / threads, 1, 1}, Block: [3]int{threads, 1, 1}}
}

// byRow is that of a block for each of n rows.
func byRow(n int) backend.Geometry {
	return backend.Geometry{Grid: [3]int{n, 1, 1}, Block: [3]int{rowThreads, 1, 1}}
}

// maxGrid is the most blocks along the second and the third axis of a grid (CUDA C++
// Programming Guide, table of technical specifications).
const maxGrid = 65535

// launch adds a launch of a kernel to those of the node.
func (b *binder) launch(name string, g backend.Geometry, all ...params) error {
	k, err := b.prog.kernel(name)
	if err != nil {
		if errors.Is(err, ir.ErrDevice) {
			return err
		}
		return b.node.Errorf(ir.ErrUnsupported, "%v", err)
	}
	l := launch{node: b.node, name: name, kernel: k, geometry: g, params: slices.Concat(all...)}
	if err = b.resolve(l.params); err == nil {
		b.made = append(b.made, l)
	}
	return err
}

// name is that of a kernel for floats of the device.
func (b *binder) name(kernel string) string { return b.prog.float.String() + "_" + kernel }

// nameFor is that of a kernel for the type that a value has on the device.
func (b *binder) nameFor(v *ir.Value, kernel string) string {
	return b.prog.typeOf(v).String() + "_" + kernel
}

// size is the number of bytes that an element of a value has on the device.
func (p *program) size(v *ir.Value) int { return p.typeOf(v).Size() }

// moving is the name of a kernel that moves elements of a value.
func (b *binder) moving(v *ir.Value, kernel string) string {
	return fmt.Sprintf("b%d_%s", 8*b.prog.size(v), kernel)
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

// constant uploads a tensor: once, if it is the program's, else for this set of input shapes alone.
func (b *binder) constant(t *tensor.Tensor) (Pointer, error) {
	if b.prog.lasting[t] {
		return b.prog.constant(b.stream, t)
	}
	at, err := b.prog.upload(b.stream, t)
	if err == nil {
		b.constants = append(b.constants, at)
	}
	return at, err
}

// broadcast returns the strides by which a tensor of shape s and of such strides is read along the axes of y.
func broadcast(s, own, y []int) []int64 {
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

// move copies elements of x between places that are sums of strides along axes, to the value or the temporary buffer y.
func (b *binder) move(x *ir.Value, y param, size, xs, ys []int, from, to int) error {
	if prod(size) == 0 {
		return nil
	}
	together := b.together(x, size, xs, ys, from, to)
	if last := len(size) - 1; together > 1 {
		parts := func(v []int) []int {
			v = slices.Clone(v)
			for i := range v[:last] {
				v[i] /= together
			}
			return v
		}
		xs, ys, from, to = parts(xs), parts(ys), from/together, to/together
		size = slices.Clone(size)
		size[last] /= together
	}
	axes := []int64{int64(len(size))}
	for _, v := range slices.Concat(size, xs, ys) {
		axes = append(axes, int64(v))
	}
	kernel := fmt.Sprintf("b%d_move", 8*b.prog.size(x)*together)
	return b.launch(kernel, flat(prod(size)), params{value(x), y}, ints(prod(size)), data(axes), ints(from, to))
}

// together is how many neighbours a move can copy as one, of up to 8 bytes: those that are neighbours on both sides, and begin at
// multiples of as many everywhere.
func (b *binder) together(x *ir.Value, size, xs, ys []int, from, to int) int {
	const most = 8 // bytes
	last := len(size) - 1
	if last < 0 || xs[last] != 1 || ys[last] != 1 {
		return 1
	}
	n := most / b.prog.size(x)
	for n > 1 {
		odd := size[last]%n != 0 || from%n != 0 || to%n != 0
		for i := range last {
			odd = odd || size[i] > 1 && (xs[i]%n != 0 || ys[i]%n != 0)
		}
		if !odd {
			break
		}
		n /= 2
	}
	return n
}

func bindTranspose(b *binder, n *ir.Node) (bool, error) {
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	from := b.strides(n.Inputs[0])
	var strides []int
	for _, axis := range n.Op.(*op.Transpose).Order(len(xs)) {
		strides = append(strides, from[axis])
	}
	return true, b.move(n.Inputs[0], value(n.Outputs[0]), ys, strides, tensor.Strides(ys), 0, 0)
}

func bindExpand(b *binder, n *ir.Node) (bool, error) {
	ys := shapeOf(n.Outputs[0])
	var strides []int
	for _, s := range broadcast(shapeOf(n.Inputs[0]), tensor.Strides(shapeOf(n.Inputs[0])), ys) {
		strides = append(strides, int(s))
	}
	return true, b.move(n.Inputs[0], value(n.Outputs[0]), ys, strides, tensor.Strides(ys), 0, 0)
}

func bindSlice(b *binder, n *ir.Node) (bool, error) {
	at, strides, ok, err := n.Op.(*op.Slice).Strided(n)
	if !ok {
		return false, err
	}
	ys := shapeOf(n.Outputs[0])
	return true, b.move(n.Inputs[0], value(n.Outputs[0]), ys, strides, tensor.Strides(ys), at, 0)
}

func bindConcat(b *binder, n *ir.Node) (bool, error) {
	ys := shapeOf(n.Outputs[0])
	axis := n.Op.(*op.Concat).Axis
	if axis < 0 {
		axis += len(ys)
	}
	strides, at := b.strides(n.Outputs[0]), 0
	order := b.order(n.Outputs[0]) // neighbours in memory are neighbouring threads'
	for _, v := range n.Inputs {
		xs := shapeOf(v)
		if err := b.move(v, value(n.Outputs[0]), along(order, xs), along(order, b.strides(v)), along(order, strides), 0, at); err != nil {
			return false, err
		}
		at += xs[axis] * strides[axis]
	}
	return true, nil
}

// take copies the elements of x that tables name along the axes of y, which has x's axes; see
// elementwise.cu.
func (b *binder) take(x, y *ir.Value, xs, ys []int, tables [][]int, outside Cell) error {
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
	return b.launch(b.moving(x, "take"), flat(prod(ys)), values(x, y), ints(prod(ys)), data(axes, all), params{{cell: outside}})
}

// bindSplit cuts along an axis.
func bindSplit(b *binder, n *ir.Node) (bool, error) {
	xs := shapeOf(n.Inputs[0])
	axis := n.Op.(*op.Split).Axis
	if axis < 0 {
		axis += len(xs)
	}
	strides, at := tensor.Strides(xs), 0
	for _, y := range n.Outputs {
		if y == nil { // of unknown size
			return false, nil
		}
		ys := shapeOf(y)
		if err := b.move(n.Inputs[0], value(y), ys, strides, tensor.Strides(ys), at, 0); err != nil {
			return false, err
		}
		at += ys[axis] * strides[axis]
	}
	return true, nil
}

// index lets a node read an input of the graph as indices of an axis from one number to below another.
func (b *binder) index(n *ir.Node, v *ir.Value, axis, from, to int) bool {
	in := slices.Index(b.graph.Inputs, b.root(v))
	if in >= 0 {
		b.indices = append(b.indices, indices{n, in, axis, from, to})
	}
	return in >= 0
}

// bindGather takes slices whose indices are constant or an input of the graph, which is checked
// before a run.
func bindGather(b *binder, n *ir.Node) (bool, error) {
	at := n.Inputs[1].Const
	xs := shapeOf(n.Inputs[0])
	if prod(shapeOf(n.Outputs[0])) == 0 {
		return false, nil
	}
	a := n.Op.(*op.Gather).Axis
	if a < 0 {
		a += len(xs)
	}
	outer, inner := prod(xs[:a]), prod(xs[a+1:])
	if at == nil {
		if !b.index(n, n.Inputs[1], a, -xs[a], xs[a]) {
			return false, nil
		}
		kernel := b.moving(n.Inputs[0], fmt.Sprintf("gather_%v", n.Inputs[1].Type.DType))
		count := prod(shapeOf(n.Outputs[0]))
		return true, b.launch(kernel, flat(count), values(n.Inputs[0], n.Inputs[1], n.Outputs[0]), ints(count, prod(shapeOf(n.Inputs[1])), inner, xs[a]))
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
	outside := Cell(0)
	if v := n.Input(2); v != nil {
		if v.Const == nil || v.Const.DType() != n.Inputs[0].Type.DType || v.Const.Len() != 1 {
			return false, nil
		}
		for i, bits := range b.round(v.Const).Bytes() {
			outside |= Cell(bits) << (8 * i)
		}
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
	b.follow(n.Outputs[0], n.Inputs[0])
	kernel, count, channels := "pool", prod(ys), 1
	if b.last[n.Outputs[0]] {
		kernel, count, channels = "pool_last", count/ChannelUnit, ys[1]
	}
	return true, b.launch(b.nameFor(n.Outputs[0], kernel), flat(count), values(n.Inputs[0], n.Outputs[0]), ints(count, channels, kind, ends[0], ends[1]), window(xs[2:], out, spans))
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

// bindGlobal reduces each image of a channel.
func bindGlobal(kind string) func(b *binder, n *ir.Node) (bool, error) {
	return func(b *binder, n *ir.Node) (bool, error) {
		xs := shapeOf(n.Inputs[0])
		plane := prod(xs[2:])
		if prod(xs) == 0 {
			return false, nil
		}
		step := 1
		if b.last[n.Inputs[0]] {
			step = xs[1]
		}
		return true, b.reduce(n, xs[0]*xs[1]/step, plane, step, kind, 1/float32(plane))
	}
}

// reductions are the numbers by which kernels know them.
var reductions = map[string]int{
	"ReduceSum": reduceSum, "ReduceMean": reduceSum, "ReduceMax": reduceGreatest, "ReduceMin": reduceLeast, "ReduceProd": reduceProduct, "ReduceL1": reduceAbsSum,
	"ReduceSumSquare": reduceSquareSum, "ReduceL2": reduceNorm, "ReduceLogSum": reduceLogSum, "ReduceLogSumExp": reduceLogSumExp,
}

// bindReduce joins what lies along axes that are neighbours.
func bindReduce(b *binder, n *ir.Node) (bool, error) {
	xs := shapeOf(n.Inputs[0])
	lo, hi, ok := n.Op.(*op.Reduce).Neighbours(n)
	if !ok || prod(xs) == 0 {
		return false, nil
	}
	outer, size, step := prod(xs[:lo]), prod(xs[lo:hi]), prod(xs[hi:])
	if b.last[n.Inputs[0]] { // rows and columns of images
		outer, step = xs[0], xs[1]
	}
	factor := float32(1)
	if n.Op.Kind() == "ReduceMean" {
		factor /= float32(size)
	}
	return true, b.reduce(n, outer, size, step, n.Op.Kind(), factor)
}

// reduce joins rows [outer][size][step] along the second axis: neighbouring ones by a block, if that makes blocks enough.
func (b *binder) reduce(n *ir.Node, outer, size, step int, kind string, factor float32) error {
	const together, enough, threads = 32, 32, columnThreads
	name, g := "reduce", byRow(outer*step)
	if blocks := outer * ((step + together - 1) / together); step > 1 && blocks >= enough {
		name, g = "reduce_columns", backend.Geometry{Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}}
	}
	return b.launch(b.name(name), g, values(n.Inputs[0], n.Outputs[0]), ints(size, step, reductions[kind]), floats(factor))
}

func bindSoftmax(b *binder, n *ir.Node) (bool, error) {
	o, xs := n.Op.(*op.Softmax), shapeOf(n.Inputs[0])
	axis := o.Axis
	if axis < 0 {
		axis += len(xs)
	}
	if o.Flatten && axis != len(xs)-1 || o.Kind() == "Hardmax" || len(xs) == 0 || prod(xs) == 0 {
		return false, nil
	}
	step := prod(xs[axis+1:])
	return true, b.launch(b.name("softmax"), byRow(prod(xs[:axis])*step), values(n.Inputs[0], n.Outputs[0]), ints(xs[axis], step, flag(o.Kind() == "LogSoftmax")))
}

func bindLayerNorm(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.LayerNormalization)
	return b.normalise(n, o.Axis, o.Epsilon, 1)
}

func bindRMSNorm(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.RMSNormalization)
	return b.normalise(n, o.Axis, o.Epsilon, 0)
}

// normalise binds a normalisation over the axes from one on.
func (b *binder) normalise(n *ir.Node, axis int, epsilon float32, centred int) (bool, error) {
	xs := shapeOf(n.Inputs[0])
	if axis < 0 {
		axis += len(xs)
	}
	if len(n.Outputs) > 1 || prod(xs) == 0 || math.IsNaN(float64(epsilon)) {
		return false, nil
	}
	slice := xs[axis:]
	width := prod(slice)
	var by [2][]float32 // scale and shift
	for i := range by {
		v := n.Input(1 + i)
		if v == nil {
			continue
		}
		if v.Const == nil || v.Const.DType() != tensor.F32 {
			return false, nil
		}
		own := v.Const.Shape()
		before := max(0, len(own)-len(slice))
		if prod(own[:before]) != 1 { // slices differ in it
			return false, nil
		}
		by[i] = v.Const.Reshape(own[before:]...).Expand(slice...).F32s()
	}
	return true, b.launch(b.name("normalise"), byRow(prod(xs)/width), values(n.Inputs[0], n.Outputs[0]), ints(width, 1), data(by[:]...), ints(1, 1), floats(epsilon), ints(centred))
}

// bindResize picks elements, or weighs those along up to two axes.
func bindResize(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.Resize)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	var scales []float32
	var sizes []int
	for i, v := range []*ir.Value{n.Input(2), n.Input(3)} {
		switch {
		case v == nil:
		case v.Const == nil:
			return false, nil
		case i == 0:
			scales = v.Const.F32s()
		case len(scales) == 0:
			sizes = v.Const.Ints()
		}
	}
	if prod(ys) == 0 {
		return false, nil
	}
	samplings, ok, err := o.Samplings(xs, scales, sizes)
	if err != nil {
		return false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	if !ok {
		return false, nil
	}
	b.follow(n.Outputs[0], n.Inputs[0])
	order := b.order(n.Outputs[0])
	xs, ys, samplings = along(order, xs), along(order, ys), along(order, samplings)
	tables, changed := make([][]int, len(xs)), []int{}
	picks := true
	for a, s := range samplings {
		if s == nil {
			continue
		}
		changed = append(changed, a)
		tables[a] = s.From
		picks = picks && s.Taps == 1
		for _, w := range s.Weight {
			picks = picks && (s.Taps > 1 || w == 1)
		}
	}
	if picks {
		return true, b.take(n.Inputs[0], n.Outputs[0], xs, ys, tables, 0)
	}
	if len(changed) > 2 {
		return false, nil
	}
	one := &op.Sampling{Taps: 1, From: []int{0}, Weight: []float64{1}}
	down, across := one, samplings[changed[len(changed)-1]]
	right := changed[len(changed)-1]
	left := right // where the first axis and the middle are none
	height, heights, middle := 1, 1, 1
	if len(changed) == 2 {
		left = changed[0]
		down, height, heights, middle = samplings[left], xs[left], ys[left], prod(xs[left+1:right])
	}
	var weights params
	for _, s := range []*op.Sampling{down, across} {
		from, weight := make([]int32, len(s.From)), make([]float32, len(s.From))
		for i := range from {
			from[i], weight[i] = int32(s.From[i]), float32(s.Weight[i])
		}
		weights = slices.Concat(weights, data(from), data(weight), ints(s.Taps))
	}
	return true, b.launch(b.name("resample"), flat(prod(ys)), values(n.Inputs[0], n.Outputs[0]),
		ints(prod(ys), height, heights, middle, xs[right], ys[right], prod(xs[right+1:])), weights)
}

// bindRotary turns the elements of heads.
func bindRotary(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.RotaryEmbedding)
	xs, cache, ids := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1]), n.Input(3)
	if n.Inputs[0].Type.DType != tensor.F32 || prod(xs) == 0 {
		return false, nil
	}
	heads, tokens, depth, packed := 0, 0, 0, 0
	if len(xs) == 3 {
		heads, tokens, packed = *o.Heads, xs[1], 1
		depth = xs[2] / heads
	} else {
		heads, tokens, depth = xs[1], xs[2], xs[3]
	}
	each, interleaved := 0, 0
	switch {
	case ids == nil:
		if cache[0] > 1 {
			each = 1
		}
	case ids.Const != nil:
		for _, at := range ids.Const.Ints() {
			if at < 0 || at >= cache[0] { // Eval says which
				return false, nil
			}
		}
	case !b.index(n, ids, 0, 0, cache[0]):
		return false, nil
	}
	if o.Interleaved {
		interleaved = 1
	}
	return true, b.launch(b.name("rotate"), flat(prod(xs)), values(n.Inputs[0], n.Inputs[1], n.Inputs[2], ids, n.Outputs[0]),
		ints(prod(xs), heads, tokens, depth, cache[len(cache)-1], packed, interleaved, each))
}

// bindScatter copies slices to constant places, no two to the same.
func bindScatter(b *binder, n *ir.Node) (bool, error) {
	o, at := n.Op.(*op.ScatterND), n.Inputs[1].Const
	x, u, y := n.Inputs[0], n.Inputs[2], n.Outputs[0]
	xs := shapeOf(x)
	if o.Reduction != "none" || at == nil || prod(xs) == 0 || prod(shapeOf(u)) == 0 {
		return false, nil
	}
	offsets, run, err := o.Offsets(xs, at)
	if err != nil {
		return false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	seen, to := map[int]bool{}, make([]int64, len(offsets))
	for i, v := range offsets {
		if seen[v] {
			return false, nil
		}
		seen[v], to[i] = true, int64(v)
	}
	if err := b.move(x, value(y), xs, tensor.Strides(xs), tensor.Strides(xs), 0, 0); err != nil {
		return false, err
	}
	count := prod(shapeOf(u))
	return true, b.launch(b.moving(y, "scatter"), flat(count), values(u), data(to), values(y), ints(count, run))
}

// bindConvTranspose computes each output from the inputs that cover it.
func bindConvTranspose(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.ConvTranspose)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if len(xs) < 3 || len(xs) > 4 || prod(ys) == 0 || !n.Inputs[1].IsConst() {
		return false, nil
	}
	ws := shapeOf(n.Inputs[1])
	spans, out, err := o.Geometry(xs[2:], ws[2:])
	if err != nil {
		return false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	bias, ok := biasOf(n, 2, ys[1])
	if !ok || !slices.Equal(out, ys[2:]) {
		return false, nil
	}
	epilogue, err := epilogueOf(&o.Epilogue, nil, bias, n.Input(op.Residual))
	if err != nil {
		return false, err
	}
	t, err := b.prog.elements(n.Inputs[1])
	if err != nil {
		return false, err
	}
	return true, b.launch(b.name("conv_transpose"), flat(prod(ys)), tensors(b.round(t)), values(n.Inputs[0], n.Outputs[0]),
		ints(prod(ys), ys[1], xs[1]/o.Group, ws[1], o.Group), window(xs[2:], out, spans), epilogue)
}

func bindInstanceNorm(b *binder, n *ir.Node) (bool, error) {
	xs := shapeOf(n.Inputs[0])
	return b.normalisePlanes(n, xs[1], prod(xs[2:]), n.Op.(*op.InstanceNormalization).Epsilon)
}

func bindGroupNorm(b *binder, n *ir.Node) (bool, error) {
	o, xs := n.Op.(*op.GroupNormalization), shapeOf(n.Inputs[0])
	per := prod(xs[2:])
	if o.PerGroup {
		per *= xs[1] / o.Groups
	}
	return b.normalisePlanes(n, o.Groups, per, o.Epsilon)
}

// normalisePlanes normalises groups of channels of images; scale and shift have an element for each
// per elements.
func (b *binder) normalisePlanes(n *ir.Node, groups, per int, epsilon float32) (bool, error) {
	xs := shapeOf(n.Inputs[0])
	if prod(xs) == 0 || math.IsNaN(float64(epsilon)) {
		return false, nil
	}
	count := prod(xs[1:]) / per
	scale, ok1 := biasOf(n, 1, count)
	shift, ok2 := biasOf(n, 2, count)
	if !ok1 || !ok2 {
		return false, nil
	}
	return true, b.launch(b.name("normalise"), byRow(xs[0]*groups), values(n.Inputs[0], n.Outputs[0]), ints(prod(xs[1:])/groups, 1), data(scale, shift), ints(groups, per), floats(epsilon), ints(1))
}

// bindArg finds where the greatest or the least elements along an axis are.
func bindArg(b *binder, n *ir.Node) (bool, error) {
	o, xs := n.Op.(*op.Arg), shapeOf(n.Inputs[0])
	if n.Inputs[0].Type.DType != tensor.F32 || prod(xs) == 0 || len(xs) == 0 {
		return false, nil
	}
	axis := o.Axis
	if axis < 0 {
		axis += len(xs)
	}
	step := prod(xs[axis+1:])
	return true, b.launch(b.name("locate"), byRow(prod(xs[:axis])*step), values(n.Inputs[0], n.Outputs[0]), ints(xs[axis], step, flag(o.Kind() == "ArgMin"), flag(o.SelectLast)))
}

// flag is a parameter that is set or not.
func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}

// bindTile repeats along the axes.
func bindTile(b *binder, n *ir.Node) (bool, error) {
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if prod(ys) == 0 {
		return false, nil
	}
	tables := make([][]int, len(xs))
	for a := range xs {
		if xs[a] == ys[a] {
			continue
		}
		tables[a] = make([]int, ys[a])
		for i := range tables[a] {
			tables[a][i] = i % xs[a]
		}
	}
	return true, b.take(n.Inputs[0], n.Outputs[0], xs, ys, tables, 0)
}

// permuted copies x, seen as a tensor of some shape, with its axes in another order.
func (b *binder) permuted(n *ir.Node, shape []int, order ...int) (bool, error) {
	from := tensor.Strides(shape)
	var size, strides []int
	for _, a := range order {
		size, strides = append(size, shape[a]), append(strides, from[a])
	}
	return true, b.move(n.Inputs[0], value(n.Outputs[0]), size, strides, tensor.Strides(size), 0, 0)
}

func bindDepthToSpace(b *binder, n *ir.Node) (bool, error) {
	o, s := n.Op.(*op.DepthToSpace), shapeOf(n.Inputs[0])
	k := o.Block
	if o.Mode == "DCR" {
		return b.permuted(n, []int{s[0], k, k, s[1] / (k * k), s[2], s[3]}, 0, 3, 4, 1, 5, 2)
	}
	return b.permuted(n, []int{s[0], s[1] / (k * k), k, k, s[2], s[3]}, 0, 1, 4, 2, 5, 3)
}

func bindSpaceToDepth(b *binder, n *ir.Node) (bool, error) {
	k, s := n.Op.(*op.SpaceToDepth).Block, shapeOf(n.Inputs[0])
	return b.permuted(n, []int{s[0], s[1], s[2] / k, k, s[3] / k, k}, 0, 3, 5, 1, 2, 4)
}
