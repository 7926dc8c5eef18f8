package cuda

import (
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// types numbers the types of residuals and results as spc/product8.cuh does.
var types = map[tensor.DType]int{tensor.U8: typeU8, tensor.F32: typeF32, tensor.F16: typeF16, tensor.BF16: typeBF16}

// typeOf is the number of the type that a value has on the device.
func (b *binder) typeOf(v *ir.Value) int { return types[b.prog.typeOf(v)] }

// integerProduct launches a kernel of a quantised product on its operands, of which X is u8; false where no
// grid is large enough, and for scales and zero points that kernels do not take. depth is the number of rows of X.
func (b *binder) integerProduct(n *ir.Node, w *weight, q *op.Quant, ep *op.Epilogue, depth int, o operands) (bool, error) {
	if n.Input(op.DynamicScale) != nil || len(q.WZero) > 0 {
		return false, nil
	}
	rows := len(w.sums)
	bias, ok := biasOf(n, 2, rows)
	if !ok {
		return false, nil
	}
	act, a1, a2, err := backend.GPUActivation(ep)
	if err != nil {
		return false, err
	}
	k := b.prog.rates.Pick(w.kernels, o.n, o.batch, 1)
	g := k.Launch(o.n, o.batch)
	if g.Grid[1] > maxGrid || g.Grid[2] > maxGrid {
		return false, nil
	}
	shift, scale := make([]int32, rows), make([]float32, rows)
	for m := range rows {
		shift[m] = -int32(q.XZero) * w.sums[m]
		scale[m] = q.XScale * q.WScale[m%len(q.WScale)]
	}
	var patches []int32
	if o.patches != nil {
		patches, o.xs[2] = o.patches, o.image
	}
	kind := 0
	if o.residual != nil {
		kind = b.typeOf(o.residual)
	}
	return true, b.launch(k.Name, g, tensors(k.Parts...), params{o.x, o.y}, ints(rows, depth, o.n), ints(o.xs[:]...), ints(o.ys[:]...), data(patches),
		ints(q.XZero), ints(k.Extra...), data(shift), data(scale, bias), values(o.residual), ints(kind), floats(q.RScale), ints(q.RZero, b.typeOf(n.Outputs[0])),
		floats(q.YScale), ints(q.YZero, act), floats(a1, a2))
}

// bindIntegerTokens binds a quantised MatMul or Gemm, whose left side is tokens.
func bindIntegerTokens(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(op.Quantisable)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	w, err := b.weightOf(n, 1)
	if err != nil || w == nil || w.sums == nil || !o.Integers().Quantised() || n.Inputs[0].IsConst() || prod(xs) == 0 || prod(ys) == 0 {
		return false, err
	}
	k, m := xs[len(xs)-1], len(w.sums)
	tokens := prod(xs) / k
	return b.integerProduct(n, w, o.Integers(), o.Fused(), k, operands{
		x: value(n.Inputs[0]), y: value(n.Outputs[0]), residual: n.Input(op.Residual), n: tokens, batch: 1, xs: [3]int{1, k, 0}, ys: [3]int{1, m, 0},
	})
}

// bindIntegerConv binds a quantised convolution of one group: the weight times the patches of each image, which
// kernels read from the image. Padding stands for 0, as the zero point does.
func bindIntegerConv(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.Conv)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	w, err := b.weightOf(n, 1)
	if err != nil || w == nil || w.sums == nil || !o.Quantised() || o.Group != 1 || n.Inputs[0].IsConst() || len(xs) > 2+op.MaxQuantAxes || prod(xs) == 0 || prod(ys) == 0 {
		return false, err
	}
	ws := shapeOf(n.Inputs[1])
	spans, out, err := o.Geometry(xs, ws)
	if err != nil {
		return false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	rows, cols, pixels := len(w.sums), prod(ws[1:]), prod(out)
	p := operands{
		x: value(n.Inputs[0]), y: value(n.Outputs[0]), residual: n.Input(op.Residual), n: pixels, batch: xs[0],
		xs: [3]int{pixels, 1, cols * pixels}, ys: [3]int{pixels, 1, rows * pixels},
	}
	if plane := prod(xs[2:]); cols != xs[1] || pixels != plane || slices.ContainsFunc(spans, func(s op.Span) bool { return s.Begin != 0 || s.Stride != 1 }) {
		if p.patches, p.image = Patches(xs[1], xs[2:], out, spans, false), xs[1]*plane; p.patches == nil {
			return false, nil
		}
	} else if pixels == 1 { // images are columns
		p.n, p.batch, p.xs, p.ys = xs[0], 1, [3]int{1, cols, 0}, [3]int{1, rows, 0}
	}
	return b.integerProduct(n, w, &o.Quant, &o.Epilogue, cols, p)
}

// bindQuantize quantises to u8, with a scale and a zero point for all elements or for those of an
// index along an axis.
func bindQuantize(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.QuantizeLinear)
	if o.Precision != tensor.Undefined && o.Precision != tensor.F32 {
		return false, nil
	}
	return b.quantised(n, n.Inputs[0], n.Outputs[0], "quantize", o.Axis, o.BlockSize)
}

// bindDequantize is the inverse of bindQuantize.
func bindDequantize(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.DequantizeLinear)
	return b.quantised(n, n.Outputs[0], n.Inputs[0], "dequantize", o.Axis, o.BlockSize)
}

func (b *binder) quantised(n *ir.Node, float, bytes *ir.Value, kernel string, axis, block int) (bool, error) {
	shape := shapeOf(float)
	count := prod(shape)
	if float.Type.DType != tensor.F32 || bytes.Type.DType != tensor.U8 || n.Inputs[0].IsConst() || block != 0 || count == 0 {
		return false, nil
	}
	size, step := 1, 1 // scales, and neighbours that have the same
	args := make(params, 2)
	for i, want := range []tensor.DType{tensor.F32, tensor.U8} {
		v := n.Input(1 + i)
		switch {
		case v == nil:
			continue
		case v.Type.DType != want || v.Const == nil && (v.IsConst() || b.prog.typeOf(v) != want):
			return false, nil
		case v.Const != nil:
			args[i].tensor = v.Const
		default:
			args[i] = value(v)
		}
		size = prod(shapeOf(v))
	}
	if size > 1 {
		if axis < 0 {
			axis += len(shape)
		}
		step = prod(shape[axis+1:])
	}
	return true, b.launch(b.name(kernel), flat((count+3)/4), values(n.Inputs[0], n.Outputs[0]), ints(count), args, ints(size, step))
}
