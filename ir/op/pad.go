package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Pad adds elements before and after the axes of its fourth input (all where it
// is absent): its second lists the numbers before each, then those after each; a
// negative one removes elements. Mode constant fills in the third input, by
// default zero; reflect, edge and wrap continue the data.
type Pad struct {
	streaming
	Mode string `attr:"mode,constant"`
}

// Kind is Pad.
func (*Pad) Kind() string { return "Pad" }

var padModes = []string{"constant", "reflect", "edge", "wrap"}

// Along follows axes to which nothing is added.
func (*Pad) Along(n *ir.Node, _, axis int) []int {
	rank := n.Outputs[0].Type.Rank()
	p := n.Inputs[1].Const
	if p == nil || n.Input(3) != nil || p.Len() != 2*rank {
		return nil
	}
	if pads := p.Ints(); pads[axis] != 0 || pads[rank+axis] != 0 {
		return nil
	}
	return []int{axis}
}

// Same pads by nothing.
func (*Pad) Same(n *ir.Node) int { return sameIf(constantly(n.Inputs[1], 0)) }

// Infer adds the pads to the dimensions.
func (o *Pad) Infer(c *ir.Infer) error {
	if !slices.Contains(padModes, o.Mode) {
		return c.Errorf("mode %q, want one of %q", o.Mode, padModes)
	}
	if err := needInts(c, 1, 1); err != nil {
		return err
	}
	if err := wantInts(c, 3, 1); err != nil {
		return err
	}
	x, v := c.In(0), c.In(2)
	if c.Has(2) {
		if v.DType != x.DType && !(v.DType.IsFloat() && x.DType.IsFloat()) {
			return c.Errorf("the value is %v, want %v", v, x.DType)
		}
		if shape, ok := v.Shape(); ok && product(shape) != 1 {
			return c.Errorf("the value is %v, want a scalar", v)
		}
	}
	if !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	pads, ok := dimsOf(c, 1)
	axes, known := intsOf(c, 3)
	if !ok || c.Has(3) && !known {
		c.Set(0, ir.Of(x.DType, c.FreshDims(x.Rank())...))
		return nil
	}
	_, dims, err := o.dims(x.Dims, pads, axes, c.Has(3))
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	return nil
}

// dims returns the pads before and after each axis, [2][rank], and the output's
// dimensions.
func (o *Pad) dims(x, pads []ir.Dim, axes []int, given bool) (full [2][]ir.Dim, dims []ir.Dim, err error) {
	if !given {
		axes = make([]int, len(x))
		for i := range axes {
			axes[i] = i
		}
	}
	if axes, err = axesOf(axes, len(x)); err != nil {
		return full, nil, err
	}
	if len(pads) != 2*len(axes) {
		return full, nil, evalErrorf("%d pads for %d axes, want two for each", len(pads), len(axes))
	}
	dims = slices.Clone(x)
	for i := range full {
		full[i] = make([]ir.Dim, len(x))
	}
	for i, a := range axes {
		before, after := pads[i], pads[len(axes)+i]
		full[0][a], full[1][a] = before, after
		d := ir.Sum(x[a], before, after)
		left := ir.Sum(x[a], ir.Size(cut(before)), ir.Size(cut(after)))
		if d.Known() && d.Size() < 0 || left.Known() && left.Size() < 0 {
			return full, nil, evalErrorf("pads %v of axis %d remove more than its %v elements", []ir.Dim{before, after}, a, x[a])
		}
		if o.Mode != "constant" && left == ir.Size(0) && d != ir.Size(0) {
			return full, nil, evalErrorf("axis %d has no elements to %s", a, o.Mode)
		}
		dims[a] = d
	}
	return full, dims, nil
}

// cut is the number of elements, negative, that a pad removes.
func cut(pad ir.Dim) int {
	if pad.Known() {
		return min(pad.Size(), 0)
	}
	return 0
}

// Eval crops, then fills in or continues the data one axis after the other.
func (o *Pad) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	var axes []int
	given := len(in) > 3 && in[3] != nil
	if given {
		axes = in[3].Ints()
	}
	full, dims, err := o.dims(ir.Sizes(x.Shape()...), ir.Sizes(in[1].Ints()...), axes, given)
	if err != nil {
		return nil, err
	}
	shape, err := shapeOf(dims, nil)
	if err != nil {
		return nil, err
	}
	if o.Mode != "constant" {
		for a := range shape {
			if x, err = o.extend(x, a, full[0][a].Size(), full[1][a].Size()); err != nil {
				return nil, err
			}
		}
		return one(x)
	}
	out, err := newOutput(x.DType(), shape...)
	if err != nil {
		return nil, err
	}
	if len(in) > 2 && in[2] != nil {
		v := in[2]
		if v.Len() != 1 {
			return nil, evalErrorf("the value is %v, want a scalar", v)
		}
		if v.DType() != x.DType() {
			v = tensor.FromFloat64s(x.DType(), v.Float64s())
		}
		fill(out, v)
	}
	box, from, to, at := o.inside(full, x, out)
	tensor.Copy(out, x, box, at[1], to, at[0], from)
	return one(out)
}

// Grad crops the gradient where a constant was filled in; the other modes have none.
func (o *Pad) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if o.Mode != "constant" {
		return nil, errNoGrad("of mode %s", o.Mode)
	}
	var axes []int
	given := len(in) > 3 && in[3] != nil
	if given {
		axes = in[3].Ints()
	}
	full, _, err := o.dims(ir.Sizes(in[0].Shape()...), ir.Sizes(in[1].Ints()...), axes, given)
	if err != nil {
		return nil, err
	}
	return moved(c, in, dout, func(dx, g *tensor.Tensor) {
		box, from, to, at := o.inside(full, dx, g)
		tensor.Copy(dx, g, box, at[0], from, at[1], to)
	})
}

// inside is the box of elements that x and the padded y share, their strides, and where
// it begins in each.
func (o *Pad) inside(full [2][]ir.Dim, x, y *tensor.Tensor) (box, from, to []int, at [2]int) {
	box, from, to = slices.Clone(x.Shape()), tensor.Strides(x.Shape()), tensor.Strides(y.Shape())
	for a := range box {
		before, after := full[0][a].Size(), full[1][a].Size()
		box[a] += min(before, 0) + min(after, 0)
		at[0] -= min(before, 0) * from[a]
		at[1] += max(before, 0) * to[a]
	}
	return box, from, to, at
}

// extend pads one axis by elements of the axis itself.
func (o *Pad) extend(x *tensor.Tensor, a, before, after int) (*tensor.Tensor, error) {
	if before == 0 && after == 0 {
		return x, nil
	}
	shape := slices.Clone(x.Shape())
	d := shape[a]
	first := -min(before, 0)
	n := d - first + min(after, 0) // elements that stay, from first on
	shape[a] = d + before + after
	out, err := newOutput(x.DType(), shape...)
	if err != nil || out.Len() == 0 {
		return out, err
	}
	from := make([]int, shape[a])
	for i := range from {
		from[i] = first + o.source(i-max(before, 0), n)
	}
	copySlices(out, x, product(shape[:a]), d, product(shape[a+1:]), from)
	return out, nil
}

// source returns which of n elements stands at position p, which may be outside.
func (o *Pad) source(p, n int) int {
	mod := func(m int) int { return (p%m + m) % m }
	switch {
	case o.Mode == "edge" || n == 1:
		return min(max(p, 0), n-1)
	case o.Mode == "wrap":
		return mod(n)
	}
	if p = mod(2 * (n - 1)); p >= n {
		p = 2*(n-1) - p
	}
	return p
}

// Positions lists, for each axis of a shape, which element of the input stands at
// each position of the output, -1 for the fill, and nil where the axis stays as it
// is. The arguments are the elements of inputs 1 and 3, and whether that is present.
func (o *Pad) Positions(shape, pads, axes []int, given bool) ([][]int, error) {
	full, dims, err := o.dims(ir.Sizes(shape...), ir.Sizes(pads...), axes, given)
	if err != nil {
		return nil, err
	}
	out := make([][]int, len(shape))
	for a, d := range shape {
		before, after := full[0][a], full[1][a]
		if !before.Known() || before.Size() == 0 && after.Size() == 0 {
			continue
		}
		first := -min(before.Size(), 0)
		n := d - first + min(after.Size(), 0)
		out[a] = make([]int, dims[a].Size())
		for i := range out[a] {
			p := i - max(before.Size(), 0)
			switch {
			case o.Mode != "constant":
				out[a][i] = first + o.source(p, n)
			case p < 0 || p >= n:
				out[a][i] = -1
			default:
				out[a][i] = first + p
			}
		}
	}
	return out, nil
}

// fill sets every element of t to that of v.
func fill(t, v *tensor.Tensor) {
	n := t.Len()
	if n == 0 {
		return
	}
	copyRun(t, 0, v, 0, 1)
	for done := 1; done < n; done *= 2 {
		copyRun(t, done, t, 0, min(done, n-done))
	}
}

// upgradePad makes the pads and the value inputs, as opsets from 11 have it.
func upgradePad(l *Legacy) error {
	if l.Opset >= 11 {
		return nil
	}
	if err := l.IntsToInput("paddings", 1); err != nil {
		return err
	}
	if err := l.IntsToInput("pads", 1); err != nil {
		return err
	}
	return l.FloatToInput("value", 2)
}
