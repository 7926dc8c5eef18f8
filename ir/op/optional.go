package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Optional makes an optional of its input, or an absent one of a type.
type Optional struct {
	lists
	// Type is the type of the element of an absent optional, as text; what the
	// input's type says where there is one.
	Type string `attr:"type,"`
}

// Kind is Optional.
func (*Optional) Kind() string { return "Optional" }

// Infer knows whether there is an element.
func (o *Optional) Infer(c *ir.Infer) error {
	if c.Has(0) {
		t := c.In(0)
		if t.DType.IsOptional() {
			return c.Errorf("input 0 is %v, want a tensor or a sequence", t)
		}
		c.Set(0, ir.List(tensor.OptionalOf(t.DType), ir.Size(1), t))
		return nil
	}
	t, err := o.elem()
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.List(tensor.OptionalOf(t.DType), ir.Size(0), t))
	return nil
}

// elem returns the type that the attribute tells.
func (o *Optional) elem() (ir.Type, error) {
	if o.Type == "" {
		return ir.Type{}, evalErrorf("neither an input nor a type")
	}
	t, err := ir.ParseType(o.Type)
	if err != nil || t.DType.IsOptional() {
		return ir.Type{}, evalErrorf("type %q, want that of a tensor or a sequence", o.Type)
	}
	return t.Map(func(d ir.Dim) ir.Dim {
		if d.Known() {
			return d
		}
		return ir.Any
	}), nil
}

// Eval makes the optional.
func (o *Optional) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if x := optional(in, 0); x != nil {
		return one(tensor.NewOptional(x.DType(), x))
	}
	t, err := o.elem()
	if err != nil {
		return nil, err
	}
	return one(tensor.NewOptional(t.DType, nil))
}

// OptionalGetElement is the element of an optional, and of anything else that itself.
type OptionalGetElement struct{ lists }

// Kind is OptionalGetElement.
func (*OptionalGetElement) Kind() string { return "OptionalGetElement" }

// Infer takes the type of the element.
func (o *OptionalGetElement) Infer(c *ir.Infer) error {
	t := c.In(0)
	switch {
	case !t.DType.IsOptional():
		c.Set(0, t)
	case t.Dims[0] == ir.Size(0):
		return c.Errorf("%s", absent)
	default:
		c.Set(0, elemOf(c, t))
	}
	return nil
}

const absent = "the optional is absent, want an element"

// Eval takes the element.
func (o *OptionalGetElement) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	switch {
	case !x.DType().IsOptional():
		return one(x)
	case x.Len() == 0:
		return nil, evalErrorf(absent)
	}
	return one(x.Items()[0])
}

// OptionalHasElement tells whether its input is there and, an optional, not absent.
type OptionalHasElement struct{ lists }

// Kind is OptionalHasElement.
func (*OptionalHasElement) Kind() string { return "OptionalHasElement" }

// Infer knows the answer for all but optionals, and for those whose type tells it.
func (o *OptionalHasElement) Infer(c *ir.Infer) error {
	c.Set(0, ir.Of(tensor.Bool))
	t := c.In(0)
	switch {
	case !c.Has(0):
		c.SetElems(0, ir.Sizes(0))
	case !t.DType.IsOptional():
		c.SetElems(0, ir.Sizes(1))
	case t.Dims[0].Known():
		c.SetElems(0, slices.Clone(t.Dims))
	}
	return nil
}

// Eval gives the answer.
func (o *OptionalHasElement) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := optional(in, 0)
	return one(tensor.Scalar(x != nil && !(x.DType().IsOptional() && x.Len() == 0)))
}
