package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// OptionalHasElement tells whether its input is there at all: a tensor always is.
type OptionalHasElement struct{ free }

// Kind is OptionalHasElement.
func (*OptionalHasElement) Kind() string { return "OptionalHasElement" }

// Infer knows the answer.
func (o *OptionalHasElement) Infer(c *ir.Infer) error {
	c.Set(0, ir.Of(tensor.Bool))
	has := 0
	if c.Has(0) {
		has = 1
	}
	c.SetElems(0, ir.Sizes(has))
	return nil
}

// Eval gives the answer.
func (o *OptionalHasElement) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(tensor.Scalar(len(in) > 0 && in[0] != nil))
}

// upgradeOptionalGetElement makes the element of a tensor the tensor itself.
func upgradeOptionalGetElement(l *Legacy) error {
	l.Kind = "Identity"
	return nil
}
