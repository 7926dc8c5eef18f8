package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// Unary applies a function of one variable to each element.
type Unary struct {
	family
	streaming
}

// unaryFuncs holds the function of each operator, on float64: exact enough for
// every element type, rounded once at the end.
var unaryFuncs = map[string]func(float64) float64{
	"Relu": func(x float64) float64 { return max(x, 0) },
}

// Infer keeps the type.
func (o *Unary) Infer(c *ir.Infer) error {
	c.Set(0, c.In(0))
	return nil
}

// Eval applies the function.
func (o *Unary) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, f := in[0], unaryFuncs[o.kind]
	if x.DType() == tensor.F32 {
		y := tensor.New(tensor.F32, x.Shape()...)
		d := y.F32s()
		for i, v := range x.F32s() {
			d[i] = float32(f(float64(v)))
		}
		return one(y)
	}
	v := x.Float64s()
	for i := range v {
		v[i] = f(v[i])
	}
	if x.DType().IsFloat() {
		return one(tensor.FromFloat64s(x.DType(), v, x.Shape()...))
	}
	ints := make([]int64, len(v))
	for i := range v {
		ints[i] = int64(v[i])
	}
	return one(tensor.FromInt64s(x.DType(), ints, x.Shape()...))
}

// dropConsumedInputs removes an attribute that opsets below 6 had for a memory
// optimisation and that never meant anything else.
func dropConsumedInputs(l *Legacy) error {
	l.Take("consumed_inputs")
	return nil
}
