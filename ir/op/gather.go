package op

import (
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// OutOfRange is what errors say of an index beyond the n elements of an axis.
func OutOfRange(i, axis, n int) string {
	return fmt.Sprintf("index %d is out of range for axis %d of %d elements", i, axis, n)
}

// position brings an index of an axis of n elements, which may be negative, into 0..n-1.
func position(i, axis, n int) (int, error) {
	if i < -n || i >= n {
		return 0, evalErrorf("%s", OutOfRange(i, axis, n))
	}
	return norm(i, n), nil
}

// checkIndices refuses known indices that are out of range for an axis of x.
func checkIndices(c *ir.Infer, i int, x ir.Type, axis int) error {
	ints, ok := intsOf(c, i)
	d := x.Dims[axis]
	if !ok || !d.Known() {
		return nil
	}
	for _, v := range ints {
		if _, err := position(v, axis, d.Size()); err != nil {
			return refuse(c, err)
		}
	}
	return nil
}

// Gather replaces an axis of its first input, [a, n, b], by the shape of its
// second, whose elements are indices along that axis.
type Gather struct {
	picking
	Axis int `attr:"axis,0"`
}

// Kind is Gather.
func (*Gather) Kind() string { return "Gather" }

// Along follows the axes of the data but the one that is indexed, and those of the indices.
func (o *Gather) Along(n *ir.Node, _, axis int) []int {
	x, at := n.Inputs[0].Type, n.Inputs[1].Type
	if !x.Ranked || !at.Ranked {
		return nil
	}
	switch a := norm(o.Axis, x.Rank()); {
	case axis < a:
		return []int{axis}
	case axis < a+at.Rank():
		return []int{Whole, axis - a}
	default:
		return []int{axis - at.Rank() + 1}
	}
}

// Infer puts the indices' dimensions in the place of the axis.
func (o *Gather) Infer(c *ir.Infer) error {
	if err := needInts(c, 1, -1); err != nil {
		return err
	}
	x, at := c.In(0), c.In(1)
	if !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	a, err := axis(c, o.Axis, x.Rank())
	if err != nil {
		return err
	}
	if err := checkIndices(c, 1, x, a); err != nil {
		return err
	}
	if !at.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	c.Set(0, ir.Of(x.DType, slices.Concat(x.Dims[:a], at.Dims, x.Dims[a+1:])...))
	moveElems(c, o, 0)
	return nil
}

// Eval copies a row of b elements for each index.
func (o *Gather) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, at := in[0], in[1]
	a := norm(o.Axis, x.Rank())
	s := x.Shape()
	out, err := newOutput(x.DType(), slices.Concat(s[:a], at.Shape(), s[a+1:])...)
	if err != nil {
		return nil, err
	}
	n, b := s[a], product(s[a+1:])
	rows := at.Ints()
	for i, r := range rows {
		if rows[i], err = position(r, a, n); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return one(out)
	}
	copySlices(out, x, product(s[:a]), n, b, rows)
	return one(out)
}

// Grad adds the gradient of each row to that of the row it was copied from.
func (o *Gather) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if !c.wants(0) || dout[0] == nil {
		return din, nil
	}
	s := in[0].Shape()
	a := norm(o.Axis, len(s))
	outer, n, inner := product(s[:a]), s[a], product(s[a+1:])
	din[0] = c.Zeros(s...)
	rows := in[1].Ints()
	for i, r := range rows {
		p, err := position(r, a, n)
		if err != nil {
			return nil, err
		}
		rows[i] = p
	}
	dx, g := din[0].F32s(), dout[0].F32s()
	for i := range outer {
		for _, r := range rows {
			addRun(dx[(i*n+r)*inner:], g[:inner], 1)
			g = g[inner:]
		}
	}
	return din, nil
}

// GatherElements takes, for each element of its second input, the element of the
// first at the same place but for one axis, along which that element is the index.
type GatherElements struct {
	picking
	Axis int `attr:"axis,0"`
}

// Kind is GatherElements.
func (*GatherElements) Kind() string { return "GatherElements" }

// Along follows every axis but the one that is indexed.
func (o *GatherElements) Along(n *ir.Node, _, axis int) []int {
	if norm(o.Axis, n.Outputs[0].Type.Rank()) == axis {
		return nil
	}
	return []int{axis, axis}
}

// Infer takes the shape of the indices.
func (o *GatherElements) Infer(c *ir.Infer) error {
	if err := checkElements(c, o.Axis); err != nil {
		return err
	}
	t := c.In(1)
	t.DType = c.In(0).DType
	c.Set(0, t)
	moveElems(c, o, 0)
	return nil
}

// checkElements checks the indices, input 1, of GatherElements and ScatterElements:
// of the same rank as the data, and but for the axis no larger.
func checkElements(c *ir.Infer, ax int) error {
	if err := needInts(c, 1, -1); err != nil {
		return err
	}
	x, at := c.In(0), c.In(1)
	if !x.Ranked || !at.Ranked {
		return nil
	}
	a, err := axis(c, ax, x.Rank())
	if err != nil {
		return err
	}
	if err := wantRank(c, 1, x.Rank()); err != nil {
		return err
	}
	for i, d := range at.Dims {
		if e := x.Dims[i]; i != a && d.Known() && e.Known() && d.Size() > e.Size() {
			return c.Errorf("indices are %v, want none beyond %v but along axis %d", at, x, a)
		}
	}
	return checkIndices(c, 1, x, a)
}

// Eval follows the indices.
func (o *GatherElements) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, at := in[0], in[1]
	from, err := elementOffsets(x.Shape(), at, o.Axis)
	if err != nil {
		return nil, err
	}
	out := tensor.New(x.DType(), at.Shape()...)
	for i, j := range from {
		copyRun(out, i, x, j, 1)
	}
	return one(out)
}

// elementOffsets returns, for each element of at in row-major order, the offset of
// the element of a tensor of the given shape at the same place but for the axis,
// along which at holds the index.
func elementOffsets(shape []int, at *tensor.Tensor, ax int) ([]int, error) {
	a := norm(ax, len(shape))
	strides := tensor.Strides(shape)
	offs := at.Ints()
	pos := make([]int, len(shape))
	base := 0 // offset of pos with 0 along the axis
	for i, v := range offs {
		v, err := position(v, a, shape[a])
		if err != nil {
			return nil, err
		}
		offs[i] = base + v*strides[a]
		for k := len(pos) - 1; k >= 0; k-- {
			if k != a {
				base += strides[k]
			}
			if pos[k]++; pos[k] < at.Dim(k) {
				break
			}
			if k != a {
				base -= pos[k] * strides[k]
			}
			pos[k] = 0
		}
	}
	return offs, nil
}

// GatherND reads index vectors from the last axis of its second input, and gives
// for each the slice of the first that it points at. Both inputs share BatchDims
// leading dimensions, which the vectors do not index.
type GatherND struct {
	picking
	BatchDims int `attr:"batch_dims,0"`
}

// Kind is GatherND.
func (*GatherND) Kind() string { return "GatherND" }

// Along follows the dimensions that both inputs share, and those of the index vectors.
func (o *GatherND) Along(n *ir.Node, _, axis int) []int {
	switch at := n.Inputs[1].Type; {
	case !at.Ranked || axis >= at.Rank()-1:
		return nil
	case axis >= o.BatchDims:
		return []int{Whole, axis}
	}
	return []int{axis, axis}
}

// Infer joins the indices' outer dimensions and those of a slice.
func (o *GatherND) Infer(c *ir.Infer) error {
	if err := needInts(c, 1, -1); err != nil {
		return err
	}
	x, at := c.In(0), c.In(1)
	if !x.Ranked || !at.Ranked || at.Rank() > 0 && !at.Dims[at.Rank()-1].Known() {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	dims, err := o.dims(x.Dims, at.Dims)
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	moveElems(c, o, 0)
	return nil
}

func (o *GatherND) dims(x, at []ir.Dim) ([]ir.Dim, error) {
	b := o.BatchDims
	if len(at) == 0 {
		return nil, evalErrorf("indices are a scalar, want vectors along their last axis")
	}
	if most := min(len(x), len(at)-1); b < 0 || b > most {
		return nil, evalErrorf("batch_dims is %d, want one from 0 to %d for data %v and indices %v", b, most, x, at)
	}
	for i := range b {
		if _, ok := sameDim(x[i], at[i]); !ok {
			return nil, evalErrorf("indices are %v, want the first %d dimensions of data %v", at, b, x)
		}
	}
	last := len(at) - 1
	k := at[last].Size()
	if k > len(x)-b {
		return nil, evalErrorf("indices %v are vectors of %d elements, want at most %d for data %v", at, k, len(x)-b, x)
	}
	return slices.Concat(at[:last], x[b+k:]), nil
}

// Eval copies a slice for each index vector.
func (o *GatherND) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, at := in[0], in[1]
	shape, err := shapeOf(o.dims(ir.Sizes(x.Shape()...), ir.Sizes(at.Shape()...)))
	if err != nil {
		return nil, err
	}
	out, err := newOutput(x.DType(), shape...)
	if err != nil {
		return nil, err
	}
	offs, run, err := vectorOffsets(x.Shape(), at, o.BatchDims) // which are to be in range where nothing lies there, too
	if err != nil || out.Len() == 0 {
		return []*tensor.Tensor{out}, err
	}
	for i, j := range offs {
		copyRun(out, i*run, x, j, run)
	}
	return one(out)
}

// vectorOffsets returns the offset, in a tensor of the given shape, of the slice
// that each index vector of at points at, and the slices' number of elements.
func vectorOffsets(shape []int, at *tensor.Tensor, batch int) (offs []int, run int, err error) {
	k := at.Dim(-1)
	run = product(shape[batch+k:])
	strides := tensor.Strides(shape)
	v := at.Ints()
	offs = make([]int, product(at.Shape()[:at.Rank()-1]))
	perBatch := product(at.Shape()[batch : at.Rank()-1])
	block := product(shape[batch:])
	for i := range offs {
		offs[i] = i / perBatch * block
		for j, p := range v[i*k : (i+1)*k] {
			if p, err = position(p, batch+j, shape[batch+j]); err != nil {
				return nil, 0, err
			}
			offs[i] += p * strides[batch+j]
		}
	}
	return offs, run, nil
}
