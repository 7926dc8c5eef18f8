package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Transpose permutes axes: axis i of the output is axis Perm[i] of the input.
// Without Perm their order is reversed.
type Transpose struct {
	permuting
	Perm []int `attr:"perm"`
}

// Kind is Transpose.
func (*Transpose) Kind() string { return "Transpose" }

// Order returns the permutation for an input of the given rank.
func (o *Transpose) Order(rank int) []int {
	if o.Perm != nil {
		return o.Perm
	}
	p := make([]int, rank)
	for i := range p {
		p[i] = rank - 1 - i
	}
	return p
}

// Along follows the permutation.
func (o *Transpose) Along(n *ir.Node, _, axis int) []int {
	return []int{o.Order(n.Outputs[0].Type.Rank())[axis]}
}

// Same leaves all axes where they are.
func (o *Transpose) Same(n *ir.Node) int {
	t := n.Inputs[0].Type
	return sameIf((o.Perm != nil || t.Ranked) && slices.IsSorted(o.Order(t.Rank())))
}

// Infer permutes the dimensions.
func (o *Transpose) Infer(c *ir.Infer) error {
	x := c.In(0)
	if !x.Ranked {
		if o.Perm == nil {
			c.Set(0, ir.Unranked(x.DType))
			return nil
		}
		x.Dims = c.FreshDims(len(o.Perm))
	}
	perm := o.Order(len(x.Dims))
	if err := (ir.View{Perm: perm}).Check(len(x.Dims)); err != nil {
		return refuse(c, err)
	}
	dims := make([]ir.Dim, len(perm))
	for i, p := range perm {
		dims[i] = x.Dims[p]
	}
	c.Set(0, ir.Of(x.DType, dims...))
	moveElems(c, o, 0)
	return nil
}

// Eval moves the elements.
func (o *Transpose) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(in[0].Permute(o.Order(in[0].Rank())...))
}

// Grad moves the elements back.
func (o *Transpose) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return moved(c, in, dout, func(dx, g *tensor.Tensor) { o.move(g, dx, true) })
}

// Forward moves the elements.
func (o *Transpose) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	shape := make([]int, x.Rank())
	for i, p := range o.Order(x.Rank()) {
		shape[i] = x.Dim(p)
	}
	y := c.New(shape...)
	o.move(y, x, false)
	return one(y)
}

// move copies the elements of x to y, of which the axes are permuted, or back.
func (o *Transpose) move(y, x *tensor.Tensor, back bool) {
	st := tensor.Strides(x.Shape())
	from := make([]int, len(st))
	for i, p := range o.Order(len(st)) {
		from[i] = st[p]
	}
	if back {
		tensor.Copy(x, y, y.Shape(), 0, from, 0, tensor.Strides(y.Shape()))
	} else {
		tensor.Copy(y, x, y.Shape(), 0, tensor.Strides(y.Shape()), 0, from)
	}
}
