package cpu

import (
	"math"

	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindQuantize quantises f32 to u8 with one scale and zero point.
func bindQuantize(_ *program, n *ir.Node) (*bound, error) {
	scale, zero, ok := scaleAndZero(n)
	if !ok || n.Inputs[0].Type.DType != tensor.F32 || n.Outputs[0].Type.DType != tensor.U8 {
		return nil, nil
	}
	if o := n.Op.(*op.QuantizeLinear); o.Precision != tensor.Undefined && o.Precision != tensor.F32 {
		return nil, nil
	}
	l := ikernel.NoLimits()
	l.ToU8(scale, zero)
	for _, v := range []float32{l.Inv, l.Lo, l.Hi} {
		if math.IsInf(float64(v), 0) {
			return nil, nil
		}
	}
	kern := ikernel.Best()
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src []float32
		var dst []uint8
		body := func(lo, hi int) { kern.Quantize(&l, dst[lo:hi], src[lo:hi]) }
		return func() error {
			src, dst = in[0].F32s(), out[0].Bytes()
			x.pool.Range(len(dst), body)
			return nil
		}
	}}, nil
}

// bindDequantize is the inverse of bindQuantize.
func bindDequantize(_ *program, n *ir.Node) (*bound, error) {
	scale, zero, ok := scaleAndZero(n)
	if !ok || n.Inputs[0].Type.DType != tensor.U8 || n.Outputs[0].Type.DType != tensor.F32 {
		return nil, nil
	}
	kern := ikernel.Best()
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src []uint8
		var dst []float32
		body := func(lo, hi int) { kern.Dequantize(dst[lo:hi], src[lo:hi], scale, zero) }
		return func() error {
			src, dst = in[0].Bytes(), out[0].F32s()
			x.pool.Range(len(dst), body)
			return nil
		}
	}}, nil
}

// scaleAndZero returns the constants of a QuantizeLinear or DequantizeLinear of whole
// tensors.
func scaleAndZero(n *ir.Node) (scale float32, zero int, ok bool) {
	s, z := n.Inputs[1].Const, n.Input(2)
	if s == nil || s.DType() != tensor.F32 || s.Len() != 1 || !(s.F32s()[0] > 0) || prod(shapeOf(n.Outputs[0])) == 0 {
		return 0, 0, false
	}
	if z != nil {
		if z.Const == nil || z.Const.Len() != 1 || !z.Const.DType().IsInt() {
			return 0, 0, false
		}
		zero = int(z.Const.Int64s()[0])
	}
	return s.F32s()[0], zero, true
}
