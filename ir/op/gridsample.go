package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// GridSample reads an image [n, c, d1..dr] at the positions that a grid
// [n, o1..or, r] lists, innermost axis first and from -1 to 1 (Jaderberg et al.,
// "Spatial Transformer Networks", 2015). The output is [n, c, o1..or].
type GridSample struct {
	AlignCorners bool   `attr:"align_corners,0"` // -1 and 1 are the outer elements' centres, not their edges
	Mode         string `attr:"mode,linear"`
	Padding      string `attr:"padding_mode,zeros"`
}

// Kind is GridSample.
func (*GridSample) Kind() string { return "GridSample" }

// Work counts a multiply-add for each element that an output element is made of.
func (o *GridSample) Work(in, out []ir.Type) ir.Work {
	each := map[string]float64{"nearest": 1, "linear": 2, "cubic": 4}[o.Mode]
	return streamWork(in, out, 2*math.Pow(each, float64(in[0].Rank()-2)))
}

// Along keeps images apart, and their channels.
func (*GridSample) Along(_ *ir.Node, _, axis int) []int {
	switch axis {
	case 0:
		return []int{0, 0}
	case 1:
		return []int{1}
	}
	return nil
}

// Infer joins the image's batch and channels with the grid's positions.
func (o *GridSample) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if !slices.Contains([]string{"nearest", "linear", "cubic"}, o.Mode) {
		return c.Errorf("mode %q, want nearest, linear or cubic", o.Mode)
	}
	if !slices.Contains([]string{"zeros", "border", "reflection"}, o.Padding) {
		return c.Errorf("padding_mode %q, want zeros, border or reflection", o.Padding)
	}
	x, g := c.In(0), c.In(1)
	if !x.DType.IsFloat() {
		return c.Unsupportedf("input 0 is %v, want a floating-point tensor", x)
	}
	if err := wantFloat(c, 1); err != nil {
		return err
	}
	if !x.Ranked || !g.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	r := x.Rank() - 2
	if r < 1 || g.Rank() != x.Rank() || differ(g.Dims[r+1], ir.Size(r)) || differ(g.Dims[0], x.Dims[0]) {
		return c.Errorf("the grid is %v, want [n, ..., r] for an image [n, c, ...] of r axes, which is %v", g, x)
	}
	c.Set(0, ir.Of(x.DType, slices.Concat([]ir.Dim{known(x.Dims[0], g.Dims[0]), x.Dims[1]}, g.Dims[1:r+1])...))
	return nil
}

// Eval finds the elements and weights of each position, for all channels at once.
func (o *GridSample) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, g := in[0].Float64s(), in[1].Float64s()
	xs, gs := in[0].Shape(), in[1].Shape()
	r := len(xs) - 2
	sizes := xs[2:]
	shape := slices.Concat(xs[:2], gs[1:r+1])
	if err := checkOutput(shape); err != nil {
		return nil, err
	}
	n, channels, image, points := xs[0], xs[1], product(sizes), product(gs[1:r+1])
	y := make([]float64, n*channels*points)
	if image == 0 && len(y) > 0 {
		return nil, evalErrorf("the image %v has no elements", in[0])
	}
	strides := tensor.Strides(sizes)
	taps := make([]GridTap, r)
	var from []int
	var weight []float64
	for b := range n {
		for p := range points {
			at := g[(b*points+p)*r:][:r]
			for a := range taps {
				taps[a] = o.Taps(at[r-1-a], sizes[a])
			}
			from, weight = from[:0], weight[:0]
			joinTaps(taps, strides, 0, 1, &from, &weight)
			for ch := range channels {
				img := x[(b*channels+ch)*image:][:image]
				sum := 0.0
				for i, f := range from {
					sum += weight[i] * img[f]
				}
				y[(b*channels+ch)*points+p] = sum
			}
		}
	}
	return one(tensor.FromFloat64s(in[0].DType(), y, shape...))
}

// GridTap holds the N elements of one axis, and their weights, that a position is
// made of.
type GridTap struct {
	N      int
	At     [4]int
	Weight [4]float64
}

// joinTaps appends the offsets and weights of every combination of the axes' taps.
func joinTaps(taps []GridTap, strides []int, off int, w float64, from *[]int, weight *[]float64) {
	if len(taps) == 0 {
		*from, *weight = append(*from, off), append(*weight, w)
		return
	}
	for i := range taps[0].N {
		joinTaps(taps[1:], strides[1:], off+taps[0].At[i]*strides[0], w*taps[0].Weight[i], from, weight)
	}
}

// Taps returns what the position v, from -1 to 1, of an axis of d elements is made
// of. Positions that are no numbers are outside.
func (o *GridSample) Taps(v float64, d int) GridTap {
	lo, hi := -0.5, float64(d)-0.5
	x := ((v+1)*float64(d) - 1) / 2
	if o.AlignCorners {
		lo, hi = 0, float64(d-1)
		x = (v + 1) / 2 * float64(d-1)
	}
	if o.Mode == "nearest" {
		x = math.RoundToEven(x)
	}
	if !(x >= lo && x <= hi) {
		switch o.Padding {
		case "border":
			x = min(max(x, 0), float64(d-1))
		case "reflection":
			x = mirror(x, lo, hi)
		}
	}
	var t GridTap
	add := func(p, w float64) {
		if w == 0 {
			return
		}
		if !(p >= 0 && p <= float64(d-1)) {
			switch o.Padding {
			case "zeros":
				return
			case "border":
				p = min(max(p, 0), float64(d-1))
			case "reflection":
				p = min(max(math.Trunc(mirror(p, lo, hi)), 0), float64(d-1))
			}
		}
		if math.IsNaN(p) {
			return
		}
		t.At[t.N], t.Weight[t.N] = int(p), w
		t.N++
	}
	left := math.Floor(x)
	frac := x - left
	switch o.Mode {
	case "nearest":
		add(x, 1)
	case "linear":
		add(left, 1-frac)
		add(left+1, frac)
	case "cubic":
		for k := -1.0; k <= 2; k++ {
			add(left+k, cubic(math.Abs(k-frac), -0.75))
		}
	}
	return t
}

// mirror reflects x at lo and hi until it lies between them.
func mirror(x, lo, hi float64) float64 {
	if hi <= lo {
		return lo
	}
	x = math.Mod(math.Abs(x-lo), 2*(hi-lo))
	if x > hi-lo {
		x = 2*(hi-lo) - x
	}
	return lo + x
}

// upgradeGridSample renames the modes, as opsets from 20 have them.
func upgradeGridSample(l *Legacy) error {
	switch l.Attrs["mode"] {
	case "bilinear":
		l.Attrs["mode"] = "linear"
	case "bicubic":
		l.Attrs["mode"] = "cubic"
	}
	return nil
}

// AffineGrid makes the grid for GridSample of images whose shape [n, c, d1..dr] its
// second input lists: every position, transformed by the matrix [r, r+1] of its
// image. The output is [n, d1..dr, r].
type AffineGrid struct {
	streaming
	AlignCorners bool `attr:"align_corners,0"`
}

// Kind is AffineGrid.
func (*AffineGrid) Kind() string { return "AffineGrid" }

// Infer reads the shape.
func (o *AffineGrid) Infer(c *ir.Infer) error {
	if err := wantFloat(c, 0); err != nil {
		return err
	}
	if err := needInts(c, 1, 1); err != nil {
		return err
	}
	theta := c.In(0)
	size, ok := dimsOf(c, 1)
	if !ok {
		c.Set(0, ir.Unranked(theta.DType))
		return nil
	}
	r := len(size) - 2
	if r != 2 && r != 3 {
		return c.Errorf("size lists %d dimensions, want 4 or 5", len(size))
	}
	if err := wantDims(c, 0, "the transformation", size[0], ir.Size(r), ir.Size(r+1)); err != nil {
		return err
	}
	for _, d := range size {
		if d.Known() && d.Size() < 0 {
			return c.Errorf("size %v, want none negative", size)
		}
	}
	c.Set(0, ir.Of(theta.DType, slices.Concat(size[:1], size[2:], []ir.Dim{ir.Size(r)})...))
	return nil
}

// Eval multiplies each position by its image's matrix.
func (o *AffineGrid) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	size := in[1].Ints()
	r := len(size) - 2
	if (r != 2 && r != 3) || !slices.Equal(in[0].Shape(), []int{size[0], r, r + 1}) {
		return nil, evalErrorf("a transformation %v for size %v, want [n, r, r+1] for [n, c, ...] of two or three axes", in[0], size)
	}
	shape := slices.Concat(size[:1], size[2:], []int{r})
	if err := checkOutput(shape); err != nil {
		return nil, err
	}
	spatial := size[2:]
	axes := make([][]float64, r) // the positions along each axis
	for a, d := range spatial {
		axes[a] = make([]float64, d)
		for i := range d {
			switch {
			case !o.AlignCorners:
				axes[a][i] = (2*float64(i)+1)/float64(d) - 1
			case d > 1:
				axes[a][i] = 2*float64(i)/float64(d-1) - 1
			}
		}
	}
	theta, points := in[0].Float64s(), product(spatial)
	y := make([]float64, 0, product(shape))
	at := make([]float64, r)
	for b := range size[0] {
		m := theta[b*r*(r+1):][:r*(r+1)]
		for p := range points {
			for a, q := r-1, p; a >= 0; a-- {
				at[r-1-a] = axes[a][q%spatial[a]]
				q /= spatial[a]
			}
			for i := range r {
				row := m[i*(r+1):][:r+1]
				sum := row[r]
				for k, v := range at {
					sum += row[k] * v
				}
				y = append(y, sum)
			}
		}
	}
	return one(tensor.FromFloat64s(in[0].DType(), y, shape...))
}
