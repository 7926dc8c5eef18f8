package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Reshape gives the elements of its first input, in row-major order, the shape
// that its second lists: 0 copies a dimension and one -1 is what remains.
type Reshape struct {
	keeping
	AllowZero bool `attr:"allowzero,0"` // 0 is a dimension of size zero
}

// Kind is Reshape.
func (*Reshape) Kind() string { return "Reshape" }

func (*Reshape) sizesInput(*ir.Node) (int, bool) { return 1, true }

// Infer divides the elements among the dimensions, symbols included.
func (o *Reshape) Infer(c *ir.Infer) error {
	if err := needInts(c, 1, 1); err != nil {
		return err
	}
	x := c.In(0)
	target, ok := dimsOf(c, 1)
	if !ok {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	var dims []ir.Dim
	var err error
	if x.Ranked {
		dims, err = o.dims(x.Dims, target, c.Fresh)
	} else {
		dims = o.unranked(target, c.Fresh)
	}
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	if elems, ok := c.Elems(0); ok {
		c.SetElems(0, elems)
	}
	return nil
}

// dims returns the output's dimensions. Dimensions copied by 0 take no part in
// the quotient for -1, so that it is defined even where they are zero. An
// unknown element may turn out to be -1 or 0 and says nothing, unless it is
// itself a dimension of the input.
func (o *Reshape) dims(x, target []ir.Dim, fresh func() ir.Dim) ([]ir.Dim, error) {
	out := slices.Clone(target)
	rest := slices.Clone(x) // dimensions to divide, ones where copied
	var taken []ir.Dim
	quotient, open := -1, false
	for i, d := range target {
		switch {
		case d == ir.Size(0) && !o.AllowZero:
			if i >= len(x) {
				return nil, evalErrorf("shape %v copies dimension %d of %v", target, i, x)
			}
			out[i], rest[i] = x[i], ir.Size(1)
		case d == ir.Size(-1):
			if quotient >= 0 {
				return nil, evalErrorf("shape %v has more than one -1", target)
			}
			quotient = i
		case d.Known() && d.Size() < 0:
			return nil, evalErrorf("shape %v has a negative dimension", target)
		case d.Fresh() && !slices.Contains(x, d):
			out[i] = fresh()
			open = true
		default:
			taken = append(taken, d)
		}
	}
	have, want := ir.Mul(rest...), ir.Mul(taken...)
	switch {
	case quotient >= 0 && open:
		out[quotient] = fresh()
	case quotient >= 0:
		q, ok := ir.Div(have, want)
		if !ok {
			if have.Known() && want.Known() {
				return nil, evalErrorf("the elements of %v do not divide into shape %v", x, target)
			}
			q = fresh()
		}
		out[quotient] = q
	case !open && have.Known() && want.Known() && have != want:
		return nil, evalErrorf("%v has %v elements, shape %v has %v", x, ir.Mul(x...), target, ir.Mul(out...))
	}
	return out, nil
}

// unranked is dims for an input of which nothing is known.
func (o *Reshape) unranked(target []ir.Dim, fresh func() ir.Dim) []ir.Dim {
	out := slices.Clone(target)
	for i, d := range target {
		if d.Fresh() || d.Known() && (d.Size() < 0 || d.Size() == 0 && !o.AllowZero) {
			out[i] = fresh()
		}
	}
	return out
}

// Eval changes the shape.
func (o *Reshape) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shape, err := shapeOf(o.dims(ir.Sizes(in[0].Shape()...), ir.Sizes(in[1].Ints()...), unknown))
	if err != nil {
		return nil, err
	}
	return one(in[0].Reshape(shape...))
}

// Grad changes the shape back.
func (o *Reshape) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return reshaped(c, in, dout)
}

// upgradeReshape makes the shape an input, as opsets from 5 have it.
func upgradeReshape(l *Legacy) error {
	if l.Opset >= 5 {
		return nil
	}
	l.Take("consumed_inputs")
	return l.IntsToInput("shape", 1)
}

// Flatten joins the dimensions before an axis into one, and those from it on
// into another.
type Flatten struct {
	keeping
	Axis int `attr:"axis,1"`
}

// Kind is Flatten.
func (*Flatten) Kind() string { return "Flatten" }

// Infer multiplies the dimensions.
func (o *Flatten) Infer(c *ir.Infer) error {
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, ir.Of(x.DType, c.FreshDims(2)...))
		return nil
	}
	a, err := o.axis(x.Rank())
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, ir.Mul(x.Dims[:a]...), ir.Mul(x.Dims[a:]...)))
	if elems, ok := c.Elems(0); ok {
		c.SetElems(0, elems)
	}
	return nil
}

func (o *Flatten) axis(rank int) (int, error) {
	if o.Axis < -rank || o.Axis > rank {
		return 0, evalErrorf("axis %d is out of range for rank %d", o.Axis, rank)
	}
	return norm(o.Axis, rank), nil
}

// Eval changes the shape.
func (o *Flatten) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shape := in[0].Shape()
	a, err := o.axis(len(shape))
	if err != nil {
		return nil, err
	}
	return one(in[0].Reshape(product(shape[:a]), product(shape[a:])))
}

// Grad changes the shape back.
func (o *Flatten) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return reshaped(c, in, dout)
}

// Squeeze removes dimensions of one: those that its second input lists, or all.
type Squeeze struct{ keeping }

// Kind is Squeeze.
func (*Squeeze) Kind() string { return "Squeeze" }

// Along is nil without axes: dimensions that are one by chance would go.
func (o *Squeeze) Along(n *ir.Node, out, axis int) []int {
	if n.Input(1) == nil {
		return nil
	}
	return o.keeping.Along(n, out, axis)
}

// Infer removes the dimensions.
func (o *Squeeze) Infer(c *ir.Infer) error {
	if err := wantInts(c, 1, 1); err != nil {
		return err
	}
	x := c.In(0)
	axes, known := intsOf(c, 1)
	if !x.Ranked || c.Has(1) && !known || !c.Has(1) && !x.Static() {
		c.Set(0, ir.Unranked(x.DType))
		if t := c.In(1); x.Ranked && c.Has(1) && t.Static() {
			if n := x.Rank() - t.Dims[0].Size(); n >= 0 {
				c.Set(0, ir.Of(x.DType, c.FreshDims(n)...))
			}
		}
	} else {
		dims, err := o.dims(x.Dims, axes, !c.Has(1))
		if err != nil {
			return refuse(c, err)
		}
		c.Set(0, ir.Of(x.DType, dims...))
	}
	if elems, ok := c.Elems(0); ok {
		c.SetElems(0, elems)
	}
	return nil
}

func (o *Squeeze) dims(x []ir.Dim, axes []int, all bool) ([]ir.Dim, error) {
	axes, err := axesOf(axes, len(x))
	if err != nil {
		return nil, err
	}
	out := []ir.Dim{}
	for i, d := range x {
		switch named := slices.Contains(axes, i); {
		case named && d.Known() && d.Size() != 1:
			return nil, evalErrorf("dimension %d of %v is squeezed, want size 1", i, x)
		case !named && !(all && d == ir.Size(1)):
			out = append(out, d)
		}
	}
	return out, nil
}

// Eval changes the shape.
func (o *Squeeze) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	var axes []int
	all := len(in) < 2 || in[1] == nil
	if !all {
		axes = in[1].Ints()
	}
	shape, err := shapeOf(o.dims(ir.Sizes(in[0].Shape()...), axes, all))
	if err != nil {
		return nil, err
	}
	return one(in[0].Reshape(shape...))
}

// Grad changes the shape back.
func (o *Squeeze) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return reshaped(c, in, dout)
}

// Unsqueeze inserts dimensions of one at the axes of the output that its second
// input lists.
type Unsqueeze struct{ keeping }

// Kind is Unsqueeze.
func (*Unsqueeze) Kind() string { return "Unsqueeze" }

// Infer inserts the dimensions.
func (o *Unsqueeze) Infer(c *ir.Infer) error {
	if err := needInts(c, 1, -1); err != nil {
		return err
	}
	x := c.In(0)
	axes, known := intsOf(c, 1)
	switch t := c.In(1); {
	case x.Ranked && known:
		dims, err := o.dims(x.Dims, axes)
		if err != nil {
			return refuse(c, err)
		}
		c.Set(0, ir.Of(x.DType, dims...))
	case x.Ranked && small(t):
		shape, _ := t.Shape()
		c.Set(0, ir.Of(x.DType, c.FreshDims(x.Rank()+product(shape))...))
	default:
		c.Set(0, ir.Unranked(x.DType))
	}
	if elems, ok := c.Elems(0); ok {
		c.SetElems(0, elems)
	}
	return nil
}

func (o *Unsqueeze) dims(x []ir.Dim, axes []int) ([]ir.Dim, error) {
	out := make([]ir.Dim, len(x)+len(axes))
	axes, err := axesOf(axes, len(out))
	if err != nil {
		return nil, err
	}
	for i := range out {
		if slices.Contains(axes, i) {
			out[i] = ir.Size(1)
			continue
		}
		out[i], x = x[0], x[1:]
	}
	return out, nil
}

// Eval changes the shape.
func (o *Unsqueeze) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shape, err := shapeOf(o.dims(ir.Sizes(in[0].Shape()...), in[1].Ints()))
	if err != nil {
		return nil, err
	}
	return one(in[0].Reshape(shape...))
}

// Grad changes the shape back.
func (o *Unsqueeze) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return reshaped(c, in, dout)
}

// upgradeAxes makes the axes an input, as opsets from 13 have it.
func upgradeAxes(l *Legacy) error {
	if l.Opset >= 13 {
		return nil
	}
	return l.IntsToInput("axes", 1)
}
