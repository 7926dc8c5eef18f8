package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// ReverseSequence reverses the first elements along the time axis, as many as its
// second input lists for each of the batch, and keeps the others.
type ReverseSequence struct {
	permuting
	Batch int `attr:"batch_axis,1"`
	Time  int `attr:"time_axis,0"`
}

// Kind is ReverseSequence.
func (*ReverseSequence) Kind() string { return "ReverseSequence" }

// Along follows every axis but time.
func (o *ReverseSequence) Along(_ *ir.Node, _, axis int) []int {
	switch axis {
	case o.Time:
		return nil
	case o.Batch:
		return []int{axis, 0}
	}
	return []int{axis}
}

// Infer keeps the type.
func (o *ReverseSequence) Infer(c *ir.Infer) error {
	if err := needInts(c, 1, 1); err != nil {
		return err
	}
	x := c.In(0)
	if x.Ranked && (x.Rank() < 2 || o.Batch+o.Time != 1 || o.Batch*o.Time != 0) {
		return c.Errorf("batch axis %d and time axis %d of %v, want 0 and 1", o.Batch, o.Time, x)
	}
	if x.Ranked {
		if err := wantDims(c, 1, "lengths", x.Dims[o.Batch]); err != nil {
			return err
		}
	}
	c.Set(0, x)
	return nil
}

// Eval copies the slices of each of the batch.
func (o *ReverseSequence) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, lengths := in[0], in[1].Ints()
	y := x.Clone()
	steps, run := x.Dim(o.Time), product(x.Shape()[2:])
	strides := tensor.Strides(x.Shape())
	for b, n := range lengths {
		if n < 0 || n > steps {
			return nil, evalErrorf("length %d of %d steps", n, steps)
		}
		for t := range n {
			copyRun(y, b*strides[o.Batch]+t*strides[o.Time], x, b*strides[o.Batch]+(n-1-t)*strides[o.Time], run)
		}
	}
	return one(y)
}

// Compress keeps the slices along an axis, or the elements where none is given, for
// which its second input is true.
type Compress struct {
	picking
	Axis *int `attr:"axis"`
}

// Kind is Compress.
func (*Compress) Kind() string { return "Compress" }

// Along follows every axis but the one that is compressed.
func (o *Compress) Along(n *ir.Node, _, axis int) []int {
	if o.Axis == nil {
		return nil
	}
	return others(n, axis, *o.Axis)
}

// Infer counts what is kept where the condition is known.
func (o *Compress) Infer(c *ir.Infer) error {
	if t := c.In(1); t.DType != tensor.Bool || t.Ranked && t.Rank() != 1 {
		return c.Errorf("condition is %v, want a bool vector", t)
	}
	x := c.In(0)
	n := c.Fresh()
	if cond, ok := c.Ints(1); ok {
		kept := 0
		for _, v := range cond {
			kept += v
		}
		n = ir.Size(kept)
	}
	if o.Axis == nil {
		c.Set(0, ir.Of(x.DType, n))
		moveElems(c, o, 0)
		return nil
	}
	if !x.Ranked {
		c.Set(0, x)
		return nil
	}
	a, err := axis(c, *o.Axis, x.Rank())
	if err != nil {
		return err
	}
	dims := slices.Clone(x.Dims)
	dims[a] = n
	c.Set(0, ir.Of(x.DType, dims...))
	moveElems(c, o, 0)
	return nil
}

// Eval copies the slices that are kept.
func (o *Compress) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, cond := in[0], tensor.Data[bool](in[1])
	a := 0
	if o.Axis == nil {
		x = x.Reshape(x.Len())
	} else {
		a = norm(*o.Axis, x.Rank())
	}
	var kept []int
	for i, c := range cond {
		if c && i >= x.Dim(a) {
			return nil, evalErrorf("condition %d is true for %d elements", i, x.Dim(a))
		}
		if c {
			kept = append(kept, i)
		}
	}
	outer, d, inner, shape := axisParts(x.Shape(), a, len(kept))
	y := tensor.New(x.DType(), shape...)
	copySlices(y, x, outer, d, inner, kept)
	return one(y)
}

// CenterCropPad crops or pads axes around their centres to the sizes that its
// second input lists.
type CenterCropPad struct {
	streaming
	Axes []int `attr:"axes"` // all where absent
}

// Kind is CenterCropPad.
func (*CenterCropPad) Kind() string { return "CenterCropPad" }

// Infer reads the sizes.
func (o *CenterCropPad) Infer(c *ir.Infer) error {
	if err := needList(c, 1); err != nil {
		return err
	}
	x := c.In(0)
	sizes, ok := dimsOf(c, 1)
	if !x.Ranked || !ok {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	dims, err := o.dims(x.Dims, sizes)
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	return nil
}

func (o *CenterCropPad) dims(x, sizes []ir.Dim) ([]ir.Dim, error) {
	axes := make([]int, len(x))
	for i := range axes {
		axes[i] = i
	}
	if o.Axes != nil {
		var err error
		if axes, err = axesOf(o.Axes, len(x)); err != nil {
			return nil, err
		}
	}
	if len(sizes) != len(axes) {
		return nil, evalErrorf("%d sizes for %d axes", len(sizes), len(axes))
	}
	out := slices.Clone(x)
	for i, a := range axes {
		if sizes[i].Known() && sizes[i].Size() < 0 {
			return nil, evalErrorf("sizes %v, want none negative", sizes)
		}
		out[a] = sizes[i]
	}
	return out, nil
}

// Eval copies what is common to both.
func (o *CenterCropPad) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	shape, err := shapeOf(o.dims(ir.Sizes(x.Shape()...), ir.Sizes(in[1].Ints()...)))
	if err != nil {
		return nil, err
	}
	y, err := newOutput(x.DType(), shape...)
	if err != nil {
		return nil, err
	}
	box, from, to := slices.Clone(shape), tensor.Strides(x.Shape()), tensor.Strides(shape)
	src, dst := 0, 0
	for a, d := range x.Shape() {
		box[a] = min(d, shape[a])
		src += (d - box[a]) / 2 * from[a]
		dst += (shape[a] - box[a]) / 2 * to[a]
	}
	tensor.Copy(y, x, box, dst, to, src, from)
	return one(y)
}
