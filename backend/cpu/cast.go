package cpu

import (
	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/ir"
	"spc/ir/tensor"
)

// bindCast converts between f32 and other floats, and to integers; other casts are chains.
func bindCast(p *program, n *ir.Node) (*bound, error) {
	kern := ukernel.Best()
	from, to := n.Inputs[0].Type.DType, n.Outputs[0].Type.DType
	switch {
	case half(from) && to == tensor.F32:
		return bindWiden(kern), nil
	case from == tensor.F32 && to == tensor.F16:
		return bindNarrow(func(dst []tensor.Half, src []float32) { ukernel.NarrowF16(kern, dst, src, tensor.ToHalf) }), nil
	case from == tensor.F32 && to == tensor.BF16:
		return bindNarrow(func(dst []tensor.Brain, src []float32) {
			for i, v := range src {
				dst[i] = tensor.ToBrain(v)
			}
		}), nil
	}
	if convert := casts[[2]tensor.DType{from, to}]; convert != nil {
		return &bound{inplace: -1, run: func(_ *exec, in, out []*tensor.Tensor) error {
			convert(out[0], in[0])
			return nil
		}}, nil
	}
	return bindChain(p, n)
}

// half reports whether floats of a type take 16 bits.
func half(dt tensor.DType) bool { return dt == tensor.F16 || dt == tensor.BF16 }

func bindWiden(kern *ukernel.Kernels) *bound {
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src ukernel.Values
		var dst []float32
		body := func(lo, hi int) { kern.WidenTo(dst[lo:hi], src.Slice(lo, hi)) }
		return func() error {
			src, dst = sparse.Values(in[0]), out[0].F32s()
			x.pool.Range(len(dst), body)
			return nil
		}
	}}
}

func bindNarrow[T tensor.Half | tensor.Brain](round func(dst []T, src []float32)) *bound {
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src []float32
		var dst []T
		body := func(lo, hi int) { round(dst[lo:hi], src[lo:hi]) }
		return func() error {
			src, dst = in[0].F32s(), tensor.Data[T](out[0])
			x.pool.Range(len(dst), body)
			return nil
		}
	}}
}
