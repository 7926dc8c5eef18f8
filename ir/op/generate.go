package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// ConstantOfShape fills the shape that its input gives with one value, by default
// the f32 zero.
type ConstantOfShape struct {
	streaming
	Value *tensor.Tensor `attr:"value"`
}

// Kind is ConstantOfShape.
func (*ConstantOfShape) Kind() string { return "ConstantOfShape" }

func (o *ConstantOfShape) value() *tensor.Tensor {
	if o.Value == nil {
		return tensor.Scalar(float32(0))
	}
	return o.Value
}

func (*ConstantOfShape) sizesInput(*ir.Node) (int, bool) { return 0, true }

// Along says that all elements are alike.
func (*ConstantOfShape) Along(*ir.Node, int, int) []int { return []int{Whole} }

// Infer takes the shape from the input's elements.
func (o *ConstantOfShape) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	if err := wantInts(c, 0, 1); err != nil {
		return err
	}
	v := o.value()
	if v.Len() != 1 {
		return c.Errorf("value is %v, want one element", v)
	}
	dims, ok := dimsOf(c, 0)
	if !ok {
		c.Set(0, ir.Unranked(v.DType()))
		return nil
	}
	for _, d := range dims {
		if d.Known() && d.Size() < 0 {
			return c.Errorf("shape %v has a negative dimension", dims)
		}
	}
	t := ir.Of(v.DType(), dims...)
	c.Set(0, t)
	if (v.DType().IsInt() || v.DType() == tensor.Bool) && small(t) {
		shape, _ := t.Shape()
		c.SetElems(0, slices.Repeat(ir.Sizes(int(v.Int64s()[0])), product(shape)))
	}
	return nil
}

// Eval repeats the value.
func (o *ConstantOfShape) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return filled(o.value(), in[0].Ints()...)
}

// filled returns a tensor of the shape, all of whose elements are the one of v.
func filled(v *tensor.Tensor, shape ...int) ([]*tensor.Tensor, error) {
	out, err := newOutput(v.DType(), shape...)
	if err != nil {
		return nil, err
	}
	tensor.Copy(out, v, shape, 0, tensor.Strides(shape), 0, make([]int, len(shape)))
	return one(out)
}

// Range counts from the first input up to, without, the second in steps of the
// third; all three are scalars.
type Range struct {
	streaming
	// Stash is the type in which f16 and bf16 are computed: always f32 here.
	Stash int `attr:"stash_type,1"`
}

// Kind is Range.
func (*Range) Kind() string { return "Range" }

// Infer gives a vector, of known length as far as the bounds are known.
func (o *Range) Infer(c *ir.Infer) error {
	if err := wantTaken(c, 3, rankable); err != nil {
		return err
	}
	for i := range 3 {
		if n, ok := c.In(i).Elems(); ok && n.Known() && n != ir.Size(1) {
			return c.Errorf("input %d is %v, want a scalar", i, c.In(i))
		}
	}
	dt := c.In(0).DType
	if start, limit, delta := c.Const(0), c.Const(1), c.Const(2); start != nil && limit != nil && delta != nil {
		n, err := steps(start, limit, delta)
		if err != nil {
			return refuse(c, err)
		}
		c.Set(0, ir.Shaped(dt, n))
		if dt.IsInt() && n <= 64 {
			s, d := start.Ints()[0], delta.Ints()[0]
			elems := make([]ir.Dim, n)
			for i := range elems {
				elems[i] = ir.Size(s + i*d)
			}
			c.SetElems(0, elems)
		}
		return nil
	}
	var e [3]ir.Dim
	for i := range e {
		v, ok := c.Elems(i)
		if !ok || len(v) != 1 || dt != tensor.I64 && dt != tensor.I32 {
			c.Set(0, ir.Of(dt, c.Fresh()))
			return nil
		}
		e[i] = v[0]
	}
	n, ok := stepDim(e[0], e[1], e[2])
	if !ok {
		n = c.Fresh()
	}
	c.Set(0, ir.Of(dt, n))
	if n.Known() && n.Size() <= 64 {
		elems := make([]ir.Dim, n.Size())
		for i := range elems {
			elems[i] = ir.Sum(e[0], ir.Mul(ir.Size(i), e[2]))
		}
		c.SetElems(0, elems)
	}
	return nil
}

// stepDim returns the number of steps from start to limit as a dimension, where
// the distance is known or surely a multiple of delta and not negative.
func stepDim(start, limit, delta ir.Dim) (ir.Dim, bool) {
	if !delta.Known() || delta.Size() == 0 {
		return ir.Dim{}, false
	}
	way := ir.Sum(limit, ir.Mul(ir.Size(-1), start))
	if way.Known() {
		return ir.Size(max(0, ceilDiv(way.Size(), delta.Size()))), true
	}
	n, ok := ir.Div(way, delta)
	return n, ok && lessThan(ir.Size(-1), n)
}

// ceilDiv is a/b rounded up.
func ceilDiv(a, b int) int {
	q := a / b
	if r := a % b; r != 0 && (r < 0) == (b < 0) {
		q++
	}
	return q
}

// steps counts the elements of a range.
func steps(start, limit, delta *tensor.Tensor) (int, error) {
	if start.DType().IsInt() {
		s, l, d := start.Ints()[0], limit.Ints()[0], delta.Ints()[0]
		if d == 0 || l >= 0 && s < l-math.MaxInt || l < 0 && s > l+math.MaxInt {
			return 0, evalErrorf("a range from %d to %d in steps of %d has no length", s, l, d)
		}
		return max(0, ceilDiv(l-s, d)), nil
	}
	s, l, d := start.Float64s()[0], limit.Float64s()[0], delta.Float64s()[0]
	n := max(0, math.Ceil((l-s)/d))
	if !(n <= maxOutput) {
		return 0, evalErrorf("a range from %v to %v in steps of %v has no length, or more than %d elements", s, l, d, maxOutput)
	}
	return int(n), nil
}

// Eval counts.
func (o *Range) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	n, err := steps(in[0], in[1], in[2])
	if err != nil {
		return nil, err
	}
	dt := in[0].DType()
	if _, err := newOutput(dt, n); err != nil {
		return nil, err
	}
	if dt.IsInt() {
		s, d := in[0].Int64s()[0], in[2].Int64s()[0]
		v := make([]int64, n)
		for i := range v {
			v[i] = s + int64(i)*d
		}
		return one(tensor.FromInt64s(dt, v, n))
	}
	s, d := in[0].Float64s()[0], in[2].Float64s()[0]
	v := make([]float64, n)
	for i := range v {
		v[i] = s + float64(i)*d
	}
	return one(tensor.FromFloat64s(dt, v, n))
}

// EyeLike gives a matrix of its input's shape with ones on a diagonal.
type EyeLike struct {
	streaming
	DType tensor.DType `attr:"dtype"`
	// K is the diagonal: 0 the main one, above it counted up.
	K int `attr:"k,0"`
}

// Kind is EyeLike.
func (*EyeLike) Kind() string { return "EyeLike" }

// Infer keeps the shape.
func (o *EyeLike) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	if err := wantRank(c, 0, 2); err != nil {
		return err
	}
	t := c.In(0)
	if o.DType != tensor.Undefined {
		t.DType = o.DType
	}
	if carrier(t.DType) == tensor.Undefined {
		return c.Errorf("the output would be %v, want numbers", t.DType)
	}
	c.Set(0, t)
	return nil
}

// Eval sets the diagonal.
func (o *EyeLike) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	dt := o.DType
	if dt == tensor.Undefined {
		dt = in[0].DType()
	}
	m, n := in[0].Dim(0), in[0].Dim(1)
	out := tensor.New(dt, m, n)
	unit := tensor.Scalar(int64(1)).To(dt)
	for i := range m {
		if j := i + o.K; j >= 0 && j < n {
			copyRun(out, i*n+j, unit, 0, 1)
		}
	}
	return one(out)
}

// OneHot spreads each index of the first input along a new axis, as long as the
// second input says: values[1] at the index, values[0], of the third input,
// everywhere else.
type OneHot struct {
	streaming
	Axis int `attr:"axis,-1"`
}

// Kind is OneHot.
func (*OneHot) Kind() string { return "OneHot" }

// Infer inserts the axis.
func (o *OneHot) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 3); err != nil {
		return err
	}
	for i := range 2 {
		if dt := c.In(i).DType; !rankable(dt) {
			return c.Errorf("input %d is %v, want numbers", i, dt)
		}
	}
	if n, ok := c.In(1).Elems(); ok && n.Known() && n != ir.Size(1) {
		return c.Errorf("depth (input 1) is %v, want one number", c.In(1))
	}
	if n, ok := c.In(2).Elems(); ok && n.Known() && n != ir.Size(2) {
		return c.Errorf("values (input 2) is %v, want two elements", c.In(2))
	}
	x, dt := c.In(0), c.In(2).DType
	if !x.Ranked {
		c.Set(0, ir.Unranked(dt))
		return nil
	}
	a, err := axis(c, o.Axis, len(x.Dims)+1)
	if err != nil {
		return err
	}
	depth := c.Fresh()
	if t := c.Const(1); t != nil {
		depth = ir.Size(t.To(tensor.I64).Ints()[0])
	} else if e, ok := c.Elems(1); ok {
		depth = e[0]
	}
	if depth.Known() && depth.Size() < 0 {
		return c.Errorf("depth is %v, want no negative number", depth)
	}
	c.Set(0, ir.Of(dt, slices.Insert(slices.Clone(x.Dims), a, depth)...))
	return nil
}

// Eval sets the elements. Indices from -depth to -1 count from the end; others
// out of range set nothing.
func (o *OneHot) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, values := in[0], in[2]
	depth := in[1].To(tensor.I64).Ints()[0]
	a := norm(o.Axis, x.Rank()+1)
	shape := slices.Insert(slices.Clone(x.Shape()), a, depth)
	off := tensor.New(values.DType())
	copyRun(off, 0, values, 0, 1)
	out, err := filled(off, shape...)
	if err != nil {
		return nil, err
	}
	inner := tensor.Strides(shape)[a]
	for i, k := range x.To(tensor.I64).Ints() {
		if k < 0 {
			k += depth
		}
		if k >= 0 && k < depth {
			copyRun(out[0], (i/inner*depth+k)*inner+i%inner, values, 1, 1)
		}
	}
	return out, nil
}

// Trilu keeps the upper or the lower triangle of each matrix X[..., N, M], from
// the diagonal that the second input gives; the rest becomes zero.
type Trilu struct {
	streaming
	Upper bool `attr:"upper,1"`
}

// Kind is Trilu.
func (*Trilu) Kind() string { return "Trilu" }

// Along keeps matrices apart.
func (*Trilu) Along(n *ir.Node, _, axis int) []int {
	if axis >= n.Outputs[0].Type.Rank()-2 {
		return nil
	}
	return []int{axis}
}

// Infer keeps the type.
func (o *Trilu) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	if t := c.In(0); t.Ranked && len(t.Dims) < 2 {
		return c.Errorf("input is %v, want rank 2 or more", t)
	}
	if c.Has(1) {
		if err := wantScalar(c, 1, "k"); err != nil {
			return err
		}
	}
	c.Set(0, c.In(0))
	return nil
}

// Eval copies the triangle of each row.
func (o *Trilu) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, k := in[0], 0
	if t := optional(in, 1); t != nil {
		k = t.Ints()[0]
	}
	n, m := x.Dim(-2), x.Dim(-1)
	// Beyond the corners every diagonal is the same.
	k = max(-n, min(m, k))
	out := tensor.New(x.DType(), x.Shape()...)
	for r := range x.Len() / max(m, 1) {
		from, to := max(0, min(m, r%n+k)), m
		if !o.Upper {
			from, to = 0, max(0, min(m, r%n+k+1))
		}
		copyRun(out, r*m+from, x, r*m+from, to-from)
	}
	return one(out)
}
