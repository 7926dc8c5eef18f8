package cpu

import (
	"math"

	"spc/backend/cpu/vec"
	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/ir"
	"spc/ir/tensor"
)

// bindCast converts between numbers of at least 8 bits and bools; others are chains.
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
		return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
			body := func(lo, hi int) { convert(out[0], in[0], lo, hi) }
			return func() error {
				x.pool.Range(out[0].Len(), body)
				return nil
			}
		}}, nil
	}
	return bindChain(p, n)
}

// casts are those between integers, bools, f32 and f64, of the elements from one on to another.
var casts = func() map[[2]tensor.DType]cast {
	all := map[[2]tensor.DType]cast{}
	castsOfIntegers[int8](all)
	castsOfIntegers[int16](all)
	castsOfIntegers[int32](all)
	castsOfIntegers[int64](all)
	castsOfIntegers[uint8](all)
	castsOfIntegers[uint16](all)
	castsOfIntegers[uint32](all)
	castsOfIntegers[uint64](all)
	castsOfFloats[float32](all)
	castsOfFloats[float64](all)
	return all
}()

type cast func(y, x *tensor.Tensor, lo, hi int)

// castsOfIntegers adds casts from a type of integers, and from bools to that.
func castsOfIntegers[T vec.Integer](all map[[2]tensor.DType]cast) {
	converts[int8, T](all)
	converts[int16, T](all)
	converts[int32, T](all)
	converts[int64, T](all)
	converts[uint8, T](all)
	converts[uint16, T](all)
	converts[uint32, T](all)
	converts[uint64, T](all)
	converts[float32, T](all)
	converts[float64, T](all)
	tests[T](all)
	truncates[T, float32](all)
	truncates[T, float64](all)
	ofBools[T](all)
}

// castsOfFloats adds casts between a type of floats, the other and bools.
func castsOfFloats[T float32 | float64](all map[[2]tensor.DType]cast) {
	converts[float32, T](all)
	converts[float64, T](all)
	tests[T](all)
	ofBools[T](all)
}

// converts adds a cast that is Go's conversion.
func converts[Y, X vec.Number](all map[[2]tensor.DType]cast) {
	all[[2]tensor.DType{tensor.DTypeOf[X](), tensor.DTypeOf[Y]()}] = func(y, x *tensor.Tensor, lo, hi int) {
		vec.Convert(tensor.Data[Y](y)[lo:hi], tensor.Data[X](x)[lo:hi])
	}
}

// ofBools adds a cast from bools.
func ofBools[Y vec.Number](all map[[2]tensor.DType]cast) {
	all[[2]tensor.DType{tensor.Bool, tensor.DTypeOf[Y]()}] = func(y, x *tensor.Tensor, lo, hi int) {
		vec.Convert(tensor.Data[Y](y)[lo:hi], x.Bytes()[lo:hi])
	}
}

// tests adds a cast to bools.
func tests[X vec.Number](all map[[2]tensor.DType]cast) {
	all[[2]tensor.DType{tensor.DTypeOf[X](), tensor.Bool}] = func(y, x *tensor.Tensor, lo, hi int) {
		vec.Bools(tensor.Data[bool](y)[lo:hi], tensor.Data[X](x)[lo:hi])
	}
}

// truncates adds a cast that cuts fractions off. What 32 bits hold gets there in vectors.
func truncates[Y vec.Integer, X float32 | float64](all map[[2]tensor.DType]cast) {
	all[[2]tensor.DType{tensor.DTypeOf[X](), tensor.DTypeOf[Y]()}] = func(y, x *tensor.Tensor, lo, hi int) {
		rows := vec.Borrow()
		defer rows.GiveBack()
		ints, rounded := rows.Ints(0), rows[1][:]
		for ; lo < hi; lo += chainBlock {
			n := min(hi-lo, chainBlock)
			d, from := tensor.Data[Y](y)[lo:][:n], tensor.Data[X](x)[lo:][:n]
			floats, is := any(from).([]float32)
			if !is {
				floats = rounded[:n]
				vec.Convert(floats, from)
			}
			if vec.Largest(floats) < 1<<31 {
				to, is := any(d).([]int32)
				if !is {
					to = ints[:n]
				}
				vec.Convert(to, from)
				if !is {
					vec.Convert(d, to)
				}
				continue
			}
			for i, v := range from {
				d[i] = truncated[Y](float64(v))
			}
		}
	}
}

// truncated is v without its fraction.
func truncated[Y vec.Integer](v float64) Y {
	if v > math.MinInt64 && v < math.MaxInt64 {
		return Y(int64(v))
	}
	if tensor.DTypeOf[Y]() == tensor.U64 {
		return Y(tensor.TruncateUnsigned(v))
	}
	return Y(tensor.Truncate(v))
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
