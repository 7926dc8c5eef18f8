package cpu

import (
	"math"

	"spc/backend/cpu/vec"
	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindQuantize quantises f32 to u8, or to i8, which is 128 less, with one scale and zero point.
func bindQuantize(_ *program, n *ir.Node) (*bound, error) {
	scale, zero, ok := scaleAndZero(n)
	dt := n.Outputs[0].Type.DType
	if !ok || n.Inputs[0].Type.DType != tensor.F32 || dt != tensor.U8 && dt != tensor.I8 {
		return nil, nil
	}
	signed := dt == tensor.I8
	if signed {
		zero += 128
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
		body := func(lo, hi int) {
			kern.Quantize(&l, dst[lo:hi], src[lo:hi])
			if signed {
				for i := range dst[lo:hi] {
					dst[lo+i] ^= 0x80
				}
			}
		}
		return func() error {
			src, dst = in[0].F32s(), out[0].Bytes()
			x.pool.Range(len(dst), body)
			return nil
		}
	}}, nil
}

// rangeChunk is the number of elements whose range is found at a time, in the first-level cache.
const rangeChunk = 1 << 12

// bindDynamicQuantize finds the range of f32, and quantises them to u8.
func bindDynamicQuantize(_ *program, n *ir.Node) (*bound, error) {
	size := prod(shapeOf(n.Inputs[0]))
	if size == 0 {
		return nil, nil
	}
	kern := ikernel.Best()
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		type extent struct {
			lo, hi float32
			ok     bool
		}
		var l ikernel.Limits
		var src []float32
		var dst []uint8
		parts := make([]extent, (size+rangeChunk-1)/rangeChunk)
		measure := func(_, i int) {
			p := &parts[i]
			p.lo, p.hi, p.ok = vec.Range(src[i*rangeChunk : min(size, (i+1)*rangeChunk)])
		}
		quantise := func(lo, hi int) { kern.Quantize(&l, dst[lo:hi], src[lo:hi]) }
		return func() error {
			src = in[0].F32s()
			x.pool.For(len(parts), measure)
			all := extent{ok: true}
			for _, p := range parts {
				all = extent{min(all.lo, p.lo), max(all.hi, p.hi), all.ok && p.ok}
			}
			scale, zero := op.DynamicRange(all.lo, all.hi)
			if !all.ok || !(scale >= 0x1p-100 && scale <= 0x1p100) { // a quotient may not be a number, or the kernel lose bits of one
				return evaluateInto(n, in, out)
			}
			if out[1] != nil {
				out[1].F32s()[0] = scale
			}
			if out[2] != nil {
				out[2].Bytes()[0] = zero
			}
			if out[0] != nil {
				l = ikernel.NoLimits()
				l.ToU8(scale, int(zero))
				dst = out[0].Bytes()
				x.pool.Range(len(dst), quantise)
			}
			return nil
		}
	}}, nil
}

// evaluateInto has the operator of n compute its outputs.
func evaluateInto(n *ir.Node, in, out []*tensor.Tensor) error {
	results, err := n.Op.Eval(&ir.Eval{Outputs: len(out)}, in)
	if err != nil {
		return err
	}
	for i, t := range out {
		if t != nil {
			t.CopyFrom(results[i])
		}
	}
	return nil
}

// bindDequantize is the inverse of bindQuantize, with a scale and a zero point that may be computed as
// the model runs; or one of bindDequantizeParts.
func bindDequantize(_ *program, n *ir.Node) (*bound, error) {
	ints := n.Inputs[0].Type.DType
	if ints != tensor.U8 && ints != tensor.I8 {
		return bindDequantizeParts(n)
	}
	for i, dt := range []tensor.DType{ints, tensor.F32, ints} {
		if v := n.Input(i); v != nil && (v.Type.DType != dt || i > 0 && prod(shapeOf(v)) != 1) {
			return bindDequantizeParts(n)
		}
	}
	if n.Outputs[0].Type.DType != tensor.F32 {
		return nil, nil
	}
	kern := ikernel.Best()
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src []uint8
		var dst []float32
		var scale float32
		var zero int
		body := func(lo, hi int) { kern.Dequantize(dst[lo:hi], src[lo:hi], scale, zero) }
		if ints == tensor.I8 {
			body = func(lo, hi int) {
				for i, v := range src[lo:hi] {
					dst[lo+i] = float32(int(int8(v))-zero) * scale
				}
			}
		}
		return func() error {
			src, dst, scale = in[0].Bytes(), out[0].F32s(), in[1].F32s()[0]
			if len(in) > 2 && in[2] != nil {
				if zero = int(in[2].Bytes()[0]); ints == tensor.I8 {
					zero = int(int8(in[2].Bytes()[0]))
				}
			}
			x.pool.Range(len(dst), body)
			return nil
		}
	}}, nil
}

// scaleAndZero returns the constants of a QuantizeLinear of whole tensors.
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
