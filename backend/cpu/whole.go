package cpu

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindIntegerPair binds a node that combines two operands of 64-bit integers, such as indices to which offsets are added.
func bindIntegerPair(n *ir.Node) *bound {
	if !static(n) || op.Integers(n) == nil {
		return nil
	}
	return &bound{inplace: -1, prepare: func(_ *exec, in, out []*tensor.Tensor) func() error {
		combine := op.Integers(n)
		return func() error {
			combine(out[0], in[0], in[1])
			return nil
		}
	}}
}

// casts are those to integers, of integers to bools, and from and to f64.
var casts = map[[2]tensor.DType]func(y, x *tensor.Tensor){
	{tensor.Bool, tensor.I32}: eachOf(func(v bool) int32 { return int32(oneOf(v)) }),
	{tensor.Bool, tensor.I64}: eachOf(oneOf),
	{tensor.F32, tensor.F64}:  eachOf(func(v float32) float64 { return float64(v) }),
	{tensor.F32, tensor.I32}:  eachOf(func(v float32) int32 { return int32(tensor.Truncate(float64(v))) }),
	{tensor.F32, tensor.I64}:  eachOf(func(v float32) int64 { return tensor.Truncate(float64(v)) }),
	{tensor.F64, tensor.F32}:  eachOf(func(v float64) float32 { return float32(v) }),
	{tensor.F64, tensor.I64}:  eachOf(tensor.Truncate),
	{tensor.I32, tensor.Bool}: eachOf(func(v int32) bool { return v != 0 }),
	{tensor.I32, tensor.I64}:  eachOf(func(v int32) int64 { return int64(v) }),
	{tensor.I64, tensor.F64}:  eachOf(func(v int64) float64 { return float64(v) }),
	{tensor.I64, tensor.Bool}: eachOf(func(v int64) bool { return v != 0 }),
	{tensor.I64, tensor.I32}:  eachOf(func(v int64) int32 { return int32(v) }),
}

func oneOf(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

func eachOf[X, Y tensor.Elem](f func(X) Y) func(y, x *tensor.Tensor) {
	return func(y, x *tensor.Tensor) {
		d := tensor.Data[Y](y)
		for i, v := range tensor.Data[X](x) {
			d[i] = f(v)
		}
	}
}

// bindOneHot fills with the value of what is off, and sets what indices name.
func bindOneHot(_ *program, n *ir.Node) (*bound, error) {
	y := n.Outputs[0]
	index := n.Inputs[0].Type.DType
	if !moved(y.Type.DType) || index != tensor.I64 && index != tensor.I32 || prod(shapeOf(y)) == 0 {
		return nil, nil
	}
	shape, axis, size := shapeOf(y), n.Op.(*op.OneHot).Axis, y.Type.DType.Size()
	if axis < 0 {
		axis += len(shape)
	}
	depth, inner := shape[axis], prod(shape[axis+1:])
	return &bound{inplace: -1, run: func(_ *exec, in, out []*tensor.Tensor) error {
		d, values := out[0].Bytes(), in[2].Bytes()
		repeatElement(d, values[:size])
		set := func(i, k int) {
			if k < 0 {
				k += depth
			}
			if k >= 0 && k < depth {
				copy(d[((i/inner*depth+k)*inner+i%inner)*size:], values[size:])
			}
		}
		if index == tensor.I32 {
			for i, k := range tensor.Data[int32](in[0]) {
				set(i, int(k))
			}
			return nil
		}
		for i, k := range tensor.Data[int64](in[0]) {
			set(i, int(k))
		}
		return nil
	}}, nil
}
