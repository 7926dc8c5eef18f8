package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Slice takes, along each axis of its fourth input (all in order where it is
// absent), the elements from its second input up to but without its third, in
// steps of its fifth. Negative positions count from the end, and those out of
// range are clamped.
type Slice struct{ picking }

// Kind is Slice.
func (*Slice) Kind() string { return "Slice" }

// Along follows the axes that are taken whole.
func (o *Slice) Along(n *ir.Node, _, axis int) []int {
	axes, ok := constAxes(n.Input(3), n.Outputs[0].Type.Rank())
	if !ok || slices.Contains(axes, axis) {
		return nil
	}
	return []int{axis}
}

// Same takes all, in order.
func (*Slice) Same(n *ir.Node) int {
	return sameIf(alike(n, 0) && (n.Input(4) == nil || constantly(n.Inputs[4], 1)))
}

// Infer computes the number of steps.
func (o *Slice) Infer(c *ir.Infer) error {
	for i := 1; i <= 4; i++ {
		if err := wantInts(c, i, 1); err != nil {
			return err
		}
	}
	if !c.Has(1) || !c.Has(2) {
		return c.Errorf("starts or ends are absent")
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	starts, okStarts := dimsOf(c, 1)
	ends, okEnds := dimsOf(c, 2)
	axes, okAxes := intsOf(c, 3)
	steps, okSteps := intsOf(c, 4)
	if !okStarts || !okEnds || c.Has(3) && !okAxes {
		c.Set(0, ir.Of(x.DType, c.FreshDims(x.Rank())...))
		return nil
	}
	if len(starts) != len(ends) || c.Has(3) && len(axes) != len(starts) || okSteps && len(steps) != len(starts) {
		return c.Errorf("%d starts, %d ends, %d axes and %d steps, want as many of each", len(starts), len(ends), len(axes), len(steps))
	}
	axes, err := sliceAxes(axes, c.Has(3), len(starts), x.Rank())
	if err != nil {
		return refuse(c, err)
	}
	dims := slices.Clone(x.Dims)
	for i, a := range axes {
		if c.Has(4) && !okSteps {
			dims[a] = c.Fresh()
			continue
		}
		step := 1
		if okSteps {
			step = steps[i]
		}
		if step == 0 {
			return c.Errorf("step 0 along axis %d, want another", a)
		}
		dims[a] = sliceDim(dims[a], starts[i], ends[i], step, c.Fresh)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	moveElems(c, o, 0)
	return nil
}

func sliceAxes(axes []int, given bool, n, rank int) ([]int, error) {
	if given {
		return axesOf(axes, rank)
	}
	if n > rank {
		return nil, evalErrorf("%d starts for rank %d", n, rank)
	}
	axes = make([]int, n)
	for i := range axes {
		axes[i] = i
	}
	return axes, nil
}

// beyond stands for a bound behind every position.
const beyond = 1<<31 - 1

// sliceDim is the number of elements of a slice of d. Bounds that are symbols are taken to lie in range.
func sliceDim(d, start, end ir.Dim, step int, fresh func() ir.Dim) ir.Dim {
	if start.Known() && end.Known() {
		return sliceBetween(d, start.Size(), end.Size(), step, fresh)
	}
	if step != 1 {
		return fresh()
	}
	if start.Known() && end == d {
		return sliceBetween(d, start.Size(), beyond, 1, fresh)
	}
	from, to := start, end
	if start.Known() && start.Size() < 0 {
		if from = ir.Size(0); start.Size() > -beyond {
			from = ir.Add(d, start.Size())
		}
	}
	switch {
	case end.Known() && end.Size() >= beyond || end == d:
		to = d
	case end.Known() && end.Size() <= -beyond:
		to = ir.Size(0)
	case end.Known() && end.Size() < 0:
		to = ir.Add(d, end.Size())
	case end.Known() || end.Fresh() || start.Fresh() && start != d:
		// The end may be clamped, or may be negative.
		return fresh()
	}
	n := ir.Sum(to, ir.Mul(ir.Size(-1), from))
	if n.Known() && n.Size() < 0 {
		return ir.Size(0)
	}
	return n
}

// sliceBetween is sliceDim for bounds that are known.
func sliceBetween(d ir.Dim, start, end, step int, fresh func() ir.Dim) ir.Dim {
	if d.Known() {
		_, n := sliceRange(d.Size(), start, end, step)
		return ir.Size(n)
	}
	if step == -1 && start == -1 && end <= -beyond {
		return d
	}
	if step != 1 {
		return fresh()
	}
	less := func(d, e ir.Dim) ir.Dim { return ir.Sum(d, ir.Mul(ir.Size(-1), e)) }
	// within is where bound p is, at most d.
	within := func(p int) ir.Dim {
		switch {
		case p >= beyond:
			return d
		case p <= -beyond:
			return ir.Size(0)
		case p < 0:
			return less(d, ir.Min(d, ir.Size(-p)))
		}
		return ir.Min(d, ir.Size(p))
	}
	from, to := within(start), within(end)
	switch {
	case from == ir.Size(0) || to == d:
		return less(to, from)
	case start >= 0 == (end >= 0):
		if start >= end {
			return ir.Size(0)
		}
		return less(to, from)
	}
	return less(to, ir.Min(to, from))
}

// sliceRange returns the first position and the number of positions of a slice of
// d elements.
func sliceRange(d, start, end, step int) (first, n int) {
	lo, hi := 0, d
	if step < 0 {
		lo, hi = -1, d-1
	}
	clamp := func(p int) int {
		if p < 0 {
			p = max(p, -d-1) + d
		}
		return min(max(p, lo), hi)
	}
	start, end = clamp(start), clamp(end)
	// The distance is below 2d and the step may be as large as an int holds.
	switch {
	case step > 0 && end > start:
		n = (end-start-1)/step + 1
	case step < 0 && end < start:
		n = (end-start+1)/step + 1
	}
	return start, n
}

// sliced is where the elements of a slice lie in what they are taken from.
type sliced struct {
	shape, strides []int
	off            int
}

// cut tells which elements of a tensor of the given shape the inputs from the second
// on take.
func (o *Slice) cut(x []int, in []*tensor.Tensor) (s sliced, err error) {
	ints := func(i int) []int {
		if t := optional(in, i); t != nil {
			return t.Ints()
		}
		return nil
	}
	starts, ends, axes, steps := ints(1), ints(2), ints(3), ints(4)
	if len(ends) != len(starts) || axes != nil && len(axes) != len(starts) || steps != nil && len(steps) != len(starts) {
		return s, evalErrorf("%d starts, %d ends, %d axes and %d steps, want as many of each", len(starts), len(ends), len(axes), len(steps))
	}
	axes, err = sliceAxes(axes, axes != nil, len(starts), len(x))
	if err != nil {
		return s, err
	}
	s = sliced{slices.Clone(x), tensor.Strides(x), 0}
	for i, a := range axes {
		step := 1
		if steps != nil {
			step = steps[i]
		}
		if step == 0 {
			return s, evalErrorf("step 0 along axis %d, want another", a)
		}
		first, n := sliceRange(x[a], starts[i], ends[i], step)
		s.shape[a] = n
		if n > 0 {
			s.off += first * s.strides[a]
		}
		if n > 1 {
			s.strides[a] *= step
		}
	}
	return s, nil
}

// Eval copies the elements.
func (o *Slice) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	s, err := o.cut(in[0].Shape(), in)
	if err != nil {
		return nil, err
	}
	out := tensor.New(in[0].DType(), s.shape...)
	tensor.Copy(out, in[0], s.shape, 0, tensor.Strides(s.shape), s.off, s.strides)
	return one(out)
}

// Grad puts the gradients to where the elements came from.
func (o *Slice) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	s, err := o.cut(in[0].Shape(), in)
	if err != nil {
		return nil, err
	}
	return moved(c, in, dout, func(dx, g *tensor.Tensor) {
		tensor.Copy(dx, g, s.shape, s.off, s.strides, 0, tensor.Strides(s.shape))
	})
}

// Positions lists, for each axis of a shape, the positions that are taken, nil
// where that is the whole axis in order. The arguments are the elements of inputs 1
// to 4, nil where they are absent.
func (o *Slice) Positions(shape, starts, ends, axes, steps []int) ([][]int, error) {
	axes, err := sliceAxes(axes, axes != nil, len(starts), len(shape))
	if err != nil {
		return nil, err
	}
	out := make([][]int, len(shape))
	for i, a := range axes {
		step := 1
		if steps != nil {
			step = steps[i]
		}
		first, n := sliceRange(shape[a], starts[i], ends[i], step)
		if n == shape[a] && step == 1 {
			continue
		}
		out[a] = make([]int, n)
		for k := range out[a] {
			out[a][k] = first + k*step
		}
	}
	return out, nil
}

// Strided returns where in the first input of n, a slice of it, the output begins, and the
// stride of each of its axes there, in elements; ok is false where its arguments are no
// constants.
func (o *Slice) Strided(n *ir.Node) (at int, strides []int, ok bool, err error) {
	var args [5][]int
	for i := 1; i < 5; i++ {
		if v := n.Input(i); v != nil {
			if v.Const == nil {
				return 0, nil, false, nil
			}
			args[i] = v.Const.Ints()
		}
	}
	shape, _ := n.Inputs[0].Type.Shape()
	tables, err := o.Positions(shape, args[1], args[2], args[3], args[4])
	if err != nil {
		return 0, nil, false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	strides = tensor.Strides(shape)
	for a, t := range tables {
		if len(t) > 0 {
			at += t[0] * strides[a]
		}
		if len(t) > 1 {
			strides[a] *= t[1] - t[0]
		}
	}
	return at, strides, true, nil
}

// upgradeSlice makes starts, ends and axes inputs, as opsets from 10 have it.
func upgradeSlice(l *Legacy) error {
	if l.Opset >= 10 {
		return nil
	}
	for i, name := range []string{"starts", "ends", "axes"} {
		if err := l.IntsToInput(name, i+1); err != nil {
			return err
		}
	}
	return nil
}
