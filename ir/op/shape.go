package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// Shape gives the dimensions of its input from Start to End, clamped to its
// rank, as an i64 vector.
type Shape struct {
	free
	Start int  `attr:"start,0"`
	End   *int `attr:"end"`
}

// Kind is Shape.
func (*Shape) Kind() string { return "Shape" }

// bounds returns the slice of the dimensions that is wanted.
func (o *Shape) bounds(rank int) (from, to int) {
	clamp := func(i int) int { return min(max(norm(i, rank), 0), rank) }
	from, to = clamp(o.Start), rank
	if o.End != nil {
		to = clamp(*o.End)
	}
	return from, max(from, to)
}

// Infer hands the dimensions on as elements.
func (o *Shape) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, ir.Of(tensor.I64, c.Fresh()))
		return nil
	}
	from, to := o.bounds(x.Rank())
	c.Set(0, ir.Shaped(tensor.I64, to-from))
	c.SetElems(0, x.Dims[from:to:to])
	return nil
}

// Eval reads the shape.
func (o *Shape) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	from, to := o.bounds(in[0].Rank())
	return one(tensor.Ints(in[0].Shape()[from:to]...))
}

// Size gives the number of elements of its input as an i64 scalar.
type Size struct{ free }

// Kind is Size.
func (*Size) Kind() string { return "Size" }

// Infer multiplies the dimensions.
func (o *Size) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	c.Set(0, ir.Of(tensor.I64))
	if n, ok := c.In(0).Elems(); ok {
		c.SetElems(0, []ir.Dim{n})
	}
	return nil
}

// Eval counts the elements.
func (o *Size) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(tensor.Scalar(int64(in[0].Len())))
}

// Expand broadcasts its first input against the shape that its second lists.
type Expand struct{ picking }

// Kind is Expand.
func (*Expand) Kind() string { return "Expand" }

// Along is that of broadcasting.
func (*Expand) Along(n *ir.Node, _, axis int) []int { return broadcastAlong(n, 1, axis) }

// sizesInput is the shape. Where it is shorter than the output's it may be refused for other sizes,
// whatever the output's type says.
func (*Expand) sizesInput(n *ir.Node) (int, bool) {
	t := n.Inputs[1].Type
	return 1, t.Rank() == 1 && t.Dims[0] == ir.Size(n.Outputs[0].Type.Rank())
}

// Same repeats nothing of the shape that it gives.
func (*Expand) Same(n *ir.Node) int { return sameIf(alike(n, 0)) }

// Infer broadcasts.
func (o *Expand) Infer(c *ir.Infer) error {
	if err := needList(c, 1); err != nil {
		return err
	}
	x := c.In(0)
	target, ok := dimsOf(c, 1)
	if !ok || !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	dims, err := o.dims(x.Dims, target, c.Fresh)
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	moveElems(c, o, 0)
	return nil
}

// dims broadcasts a symbol beside a size above one to that size; an unknown
// element beside a symbol may be one or the symbol.
func (o *Expand) dims(x, target []ir.Dim, fresh func() ir.Dim) ([]ir.Dim, error) {
	out := make([]ir.Dim, max(len(x), len(target)))
	at := func(s []ir.Dim, i int) ir.Dim {
		if i += len(s) - len(out); i >= 0 {
			return s[i]
		}
		return ir.Size(1)
	}
	for i := range out {
		a, b := at(x, i), at(target, i)
		switch {
		case b.Known() && b.Size() < 0:
			return nil, evalErrorf("shape %v has a negative dimension", target)
		case a == b || b == ir.Size(1):
			out[i] = a
		case a == ir.Size(1):
			out[i] = b
		case a.Known() && b.Known():
			return nil, evalErrorf("%v does not broadcast to shape %v", x, target)
		case a.Known():
			out[i] = a
		case b.Known():
			out[i] = b
		default:
			out[i] = fresh()
		}
	}
	return out, nil
}

// Eval repeats elements.
func (o *Expand) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shape, err := shapeOf(o.dims(ir.Sizes(in[0].Shape()...), ir.Sizes(in[1].Ints()...), unknown))
	if err != nil {
		return nil, err
	}
	out, err := newOutput(in[0].DType(), shape...)
	if err != nil {
		return nil, err
	}
	tensor.Copy(out, in[0], shape, 0, tensor.Strides(shape), 0, broadcastStrides(in[0].Shape(), shape))
	return one(out)
}

// Grad sums what became of each element.
func (o *Expand) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if c.wants(0) && dout[0] != nil {
		din[0] = c.sumTo(dout[0], in[0].Shape())
	}
	return din, nil
}

// Tile repeats its first input along each axis as often as its second says.
type Tile struct{ picking }

// Kind is Tile.
func (*Tile) Kind() string { return "Tile" }

// Along follows axes that are as long as before, which are repeated once.
func (*Tile) Along(_ *ir.Node, _, axis int) []int { return []int{axis} }

// Same repeats nothing of the shape that it gives.
func (*Tile) Same(n *ir.Node) int { return sameIf(alike(n, 0)) }

// Infer multiplies each dimension by its repeats.
func (o *Tile) Infer(c *ir.Infer) error {
	if err := needInts(c, 1, 1); err != nil {
		return err
	}
	x := c.In(0)
	repeats, ok := dimsOf(c, 1)
	if !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	if !ok {
		c.Set(0, ir.Of(x.DType, c.FreshDims(x.Rank())...))
		return nil
	}
	dims, err := o.dims(x.Dims, repeats)
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	moveElems(c, o, 0)
	return nil
}

func (o *Tile) dims(x, repeats []ir.Dim) ([]ir.Dim, error) {
	if len(repeats) != len(x) {
		return nil, evalErrorf("%d repeats for rank %d", len(repeats), len(x))
	}
	out := make([]ir.Dim, len(x))
	for i, r := range repeats {
		if r.Known() && r.Size() < 0 {
			return nil, evalErrorf("repeats %v, want none negative", repeats)
		}
		out[i] = ir.Mul(x[i], r)
	}
	return out, nil
}

// Eval copies the input to each place, one axis after the other.
func (o *Tile) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	shape, err := shapeOf(o.dims(ir.Sizes(x.Shape()...), ir.Sizes(in[1].Ints()...)))
	if err != nil {
		return nil, err
	}
	out, err := newOutput(x.DType(), shape...)
	if err != nil {
		return nil, err
	}
	// Each axis is two: the repeats, along which the input does not move, and
	// the input's own.
	var box, dst, src []int
	from, to := tensor.Strides(x.Shape()), tensor.Strides(shape)
	for i, d := range x.Shape() {
		if d == 0 {
			return one(out)
		}
		box = append(box, shape[i]/d, d)
		dst = append(dst, to[i]*d, to[i])
		src = append(src, 0, from[i])
	}
	tensor.Copy(out, x, box, 0, dst, 0, src)
	return one(out)
}
