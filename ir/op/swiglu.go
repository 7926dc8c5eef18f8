package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// SwiGLU is A * sigmoid(alpha A) * B of two tensors of one shape (Shazeer, GLU
// Variants Improve Transformer, 2020).
type SwiGLU struct {
	combining
	Alpha float32 `attr:"alpha,1"`
}

// Kind is SwiGLU.
func (*SwiGLU) Kind() string { return "SwiGLU" }

// Infer wants two inputs of one type and shape.
func (o *SwiGLU) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, reals); err != nil {
		return err
	}
	if err := wantSame(c, 1); err != nil {
		return err
	}
	a, b := c.In(0), c.In(1)
	if !a.Ranked {
		a = b
	} else if err := wantDims(c, 1, "B", a.Dims...); err != nil {
		return err
	}
	c.Set(0, a)
	return nil
}

// Eval computes in float64.
func (o *SwiGLU) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, 1, in); err != nil {
		return nil, err
	}
	a, b := in[0].Float64s(), in[1].Float64s()
	for i, v := range a {
		a[i] = v * sigmoid(float64(o.Alpha)*v) * b[i]
	}
	return one(tensor.FromFloat64s(in[0].DType(), a, in[0].Shape()...))
}

// Work counts an exponential, a quotient and three products for each element.
func (o *SwiGLU) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 6) }
