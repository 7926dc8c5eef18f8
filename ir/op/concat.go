package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Concat joins its inputs along an axis.
type Concat struct {
	permuting
	Axis int `attr:"axis"`
}

// Kind is Concat.
func (*Concat) Kind() string { return "Concat" }

// Along follows every axis but that along which tensors are joined.
func (o *Concat) Along(n *ir.Node, _, axis int) []int {
	if norm(o.Axis, n.Outputs[0].Type.Rank()) == axis {
		return nil
	}
	return slices.Repeat([]int{axis}, len(n.Inputs))
}

func (*Concat) joins() {}

// Same joins one tensor with nothing.
func (*Concat) Same(n *ir.Node) int { return sameIf(len(n.Inputs) == 1 && alike(n, 0)) }

// Infer adds the sizes along the axis; all others must agree.
func (o *Concat) Infer(c *ir.Infer) error {
	var dims []ir.Dim
	var along []ir.Dim
	known := true
	for i := range c.Len() {
		t := c.In(i)
		if !c.Has(i) {
			return c.Errorf("input %d is absent", i)
		}
		if err := wantSame(c, i); err != nil {
			return err
		}
		if !t.Ranked {
			known = false
			continue
		}
		a, err := axis(c, o.Axis, t.Rank())
		if err != nil {
			return err
		}
		along = append(along, t.Dims[a])
		if dims == nil {
			dims = slices.Clone(t.Dims)
			continue
		}
		if len(dims) != t.Rank() {
			return c.Errorf("input %d has rank %d, want %d", i, t.Rank(), len(dims))
		}
		for j, d := range t.Dims {
			e, ok := sameDim(dims[j], d)
			if !ok && j != a {
				return c.Errorf("input %d is %v, want %v along every axis but %d", i, t, dims, a)
			}
			dims[j] = e
		}
	}
	if dims == nil {
		c.Set(0, ir.Unranked(c.In(0).DType))
		return nil
	}
	a := norm(o.Axis, len(dims))
	if dims[a] = ir.Sum(along...); !known {
		dims[a] = c.Fresh()
	}
	c.Set(0, ir.Of(c.In(0).DType, dims...))
	all := make([]int, c.Len())
	for i := range all {
		all[i] = i
	}
	moveElems(c, o, all...)
	return nil
}

// Eval copies each input to its place.
func (o *Concat) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shape := slices.Clone(in[0].Shape())
	a := norm(o.Axis, len(shape))
	shape[a] = 0
	for _, t := range in {
		shape[a] += t.Dim(a)
	}
	out, err := newOutput(in[0].DType(), shape...)
	if err != nil {
		return nil, err
	}
	st, at := tensor.Strides(shape), 0
	for _, t := range in {
		tensor.Copy(out, t, t.Shape(), at, st, 0, tensor.Strides(t.Shape()))
		at += t.Dim(a) * st[a]
	}
	return one(out)
}

// Grad cuts the gradient as the inputs were joined.
func (o *Concat) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil {
		return din, nil
	}
	a := norm(o.Axis, dout[0].Rank())
	st, at := tensor.Strides(dout[0].Shape()), 0
	for i, t := range in {
		if c.wants(i) {
			din[i] = c.New(t.Shape()...)
			tensor.Copy(din[i], dout[0], t.Shape(), 0, tensor.Strides(t.Shape()), at, st)
		}
		at += t.Dim(a) * st[a]
	}
	return din, nil
}

// upgradeConcat gives the axis the default that it had in opsets below 4.
func upgradeConcat(l *Legacy) error {
	if l.Opset < 4 {
		l.Default("axis", 1)
	}
	return nil
}

// Split cuts its first input along an axis into pieces of the sizes that its
// second lists, or into Outputs pieces of one size, the last of which may be
// smaller.
type Split struct {
	picking
	Axis    int `attr:"axis,0"`
	Outputs int `attr:"num_outputs,0" since:"18"`
}

// Kind is Split.
func (*Split) Kind() string { return "Split" }

// Along follows every axis but the one that is split.
func (o *Split) Along(n *ir.Node, _, axis int) []int { return others(n, axis, o.Axis) }

// Same splits nothing off.
func (*Split) Same(n *ir.Node) int { return sameIf(len(n.Outputs) == 1 && alike(n, 0)) }

// Infer divides the size along the axis.
func (o *Split) Infer(c *ir.Infer) error {
	if err := wantInts(c, 1, 1); err != nil {
		return err
	}
	n, x := c.Outputs(), c.In(0)
	if c.Has(1) && o.Outputs != 0 {
		return c.Errorf("sizes and num_outputs are given, want one of them")
	}
	if o.Outputs != 0 && o.Outputs != n {
		return c.Errorf("%d outputs, want num_outputs = %d", n, o.Outputs)
	}
	if !x.Ranked {
		for i := range n {
			c.Set(i, ir.Unranked(x.DType))
		}
		return nil
	}
	a, err := axis(c, o.Axis, x.Rank())
	if err != nil {
		return err
	}
	sizes := c.FreshDims(n)
	if c.Has(1) {
		if given, ok := dimsOf(c, 1); ok {
			sizes = given
		}
	} else if d := x.Dims[a]; d.Known() {
		pieces, err := o.pieces(d.Size(), n)
		if err != nil {
			return refuse(c, err)
		}
		sizes = ir.Sizes(pieces...)
	} else if q, ok := ir.Div(d, ir.Size(n)); ok {
		for i := range sizes {
			sizes[i] = q
		}
	}
	if len(sizes) != n {
		return c.Errorf("%d sizes for %d outputs", len(sizes), n)
	}
	if x.Dims[a].Known() {
		if pieces, err := shapeOf(sizes, nil); err == nil {
			if err := o.check(x.Dims[a].Size(), pieces); err != nil {
				return refuse(c, err)
			}
		}
	}
	for i, d := range sizes {
		dims := slices.Clone(x.Dims)
		dims[a] = d
		c.Set(i, ir.Of(x.DType, dims...))
	}
	moveElems(c, o, 0)
	return nil
}

// pieces cuts d into n pieces.
func (o *Split) pieces(d, n int) ([]int, error) {
	each := (d + n - 1) / n
	out := make([]int, n)
	for i := range out {
		out[i] = each
	}
	if out[n-1] -= each*n - d; out[n-1] < 0 {
		return nil, evalErrorf("%d elements do not split into %d pieces of %d", d, n, each)
	}
	return out, nil
}

func (o *Split) check(d int, pieces []int) error {
	left := d
	for _, p := range pieces {
		if p < 0 || p > left {
			return evalErrorf("sizes %v, want them to add to %d", pieces, d)
		}
		left -= p
	}
	if left != 0 {
		return evalErrorf("sizes %v, want them to add to %d", pieces, d)
	}
	return nil
}

// Eval copies the pieces.
func (o *Split) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	a := norm(o.Axis, x.Rank())
	var pieces []int
	var err error
	if len(in) > 1 && in[1] != nil {
		pieces = in[1].Ints()
		if err = o.check(x.Dim(a), pieces); err == nil && len(pieces) != c.Outputs {
			err = evalErrorf("%d sizes for %d outputs", len(pieces), c.Outputs)
		}
	} else {
		pieces, err = o.pieces(x.Dim(a), c.Outputs)
	}
	if err != nil {
		return nil, err
	}
	outs := make([]*tensor.Tensor, len(pieces))
	st, at := tensor.Strides(x.Shape()), 0
	for i, p := range pieces {
		shape := slices.Clone(x.Shape())
		shape[a] = p
		outs[i] = tensor.New(x.DType(), shape...)
		tensor.Copy(outs[i], x, shape, 0, tensor.Strides(shape), at, st)
		at += p * st[a]
	}
	return outs, nil
}

// Grad joins the gradients of the pieces.
func (o *Split) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if !c.wants(0) {
		return din, nil
	}
	x := in[0]
	din[0] = c.Zeros(x.Shape()...)
	a := norm(o.Axis, x.Rank())
	st, at := tensor.Strides(x.Shape()), 0
	for i, g := range dout {
		if g != nil {
			tensor.Copy(din[0], g, g.Shape(), at, st, 0, tensor.Strides(g.Shape()))
		}
		at += out[i].Dim(a) * st[a]
	}
	return din, nil
}

// upgradeSplit makes the sizes an input, as opsets from 13 have it, and says into how many equal parts to split where
// there are none, as opsets from 18 want it.
func upgradeSplit(l *Legacy) error {
	if l.Opset < 13 {
		if err := l.IntsToInput("split", 1); err != nil {
			return err
		}
	}
	if l.Opset < 18 && (len(l.Inputs) < 2 || l.Inputs[1] == nil) {
		l.Default("num_outputs", l.Outs)
	}
	return nil
}
