package cpu

import (
	"spc/ir"
	"spc/ir/tensor"
)

// bindCast makes floats of integers and bools, as masks are.
func bindCast(_ *program, n *ir.Node) (*bound, error) {
	if n.Outputs[0].Type.DType != tensor.F32 {
		return nil, nil
	}
	switch n.Inputs[0].Type.DType {
	case tensor.Bool:
		return castBound[bool](func(y []float32, x []bool) {
			for i, v := range x {
				if y[i] = 0; v {
					y[i] = 1
				}
			}
		}), nil
	case tensor.U8:
		return castBound(toFloats[uint8]), nil
	case tensor.I8:
		return castBound(toFloats[int8]), nil
	case tensor.I32:
		return castBound(toFloats[int32]), nil
	case tensor.I64:
		return castBound(toFloats[int64]), nil
	}
	return nil, nil
}

func toFloats[T int8 | uint8 | int32 | int64](y []float32, x []T) {
	for i, v := range x {
		y[i] = float32(float64(v)) // as Cast does
	}
}

func castBound[T tensor.Elem](cast func(y []float32, x []T)) *bound {
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src []T
		var dst []float32
		some := func(lo, hi int) { cast(dst[lo:hi], src[lo:hi]) }
		return func() error {
			src, dst = tensor.Data[T](in[0]), out[0].F32s()
			x.pool.Range(len(dst), some)
			return nil
		}
	}}
}
