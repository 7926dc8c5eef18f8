package diff

import (
	"slices"

	"spc/ir/tensor"
)

// axes draws distinct axes of a rank, in order, some of them negative.
func (g *Gen) axes(rank int, least int) []int {
	var out []int
	for i := range rank {
		if g.one(2) {
			out = append(out, i)
		}
	}
	for len(out) < least && rank > 0 {
		out = []int{g.r.IntN(rank)}
	}
	for i := range out {
		if g.one(4) {
			out[i] -= rank
		}
	}
	return out
}

// axis draws an axis, which may be negative.
func (g *Gen) axis(rank int) int { return g.r.IntN(2*rank) - rank }

func affineGrid(g *Gen, kind string) {
	n, h, w := 1+g.r.IntN(2), 1+g.r.IntN(4), 1+g.r.IntN(4)
	g.node(kind, Attrs{"align_corners": g.r.IntN(2)}, g.shaped(tensor.F32, n, 2, 3), g.ints(n, 1+g.r.IntN(3), h, w))
}

func centerCropPad(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 1, 4)
	axes := make([]int, 1+g.r.IntN(x.rank()))
	s := make([]int, len(axes))
	for i := range s {
		axes[i], s[i] = i, g.r.IntN(8)
	}
	g.node(kind, Attrs{"axes": axes}, x, g.ints(s...))
}

func col2im(g *Gen, kind string) {
	h, w := 2+g.r.IntN(4), 2+g.r.IntN(4)
	g.node(kind, nil, g.shaped(tensor.F32, 1+g.r.IntN(2), 4*(1+g.r.IntN(2)), (h-1)*(w-1)), g.ints(h, w), g.ints(2, 2))
}

func compress(g *Gen, kind string) {
	x := g.some(choose(g, all...), 1, 4)
	if g.one(3) {
		g.node(kind, nil, x, g.structural(g.data(tensor.Bool, g.r.IntN(x.len()+1))))
		return
	}
	a := g.axis(x.rank())
	g.node(kind, Attrs{"axis": a}, x, g.structural(g.data(tensor.Bool, g.r.IntN(x.dim(a)+1))))
}

func concat(g *Gen, kind string) {
	x := g.some(choose(g, all...), 1, 4)
	a := g.r.IntN(x.rank())
	in := []*val{x}
	for range g.r.IntN(4) {
		if y := g.pick(func(v *val) bool {
			if v.dt() != x.dt() || v.rank() != x.rank() {
				return false
			}
			s := slices.Clone(v.shape())
			s[a] = x.dim(a)
			return x.is(s)
		}); y != nil && !g.one(4) {
			in = append(in, y)
			continue
		}
		s := slices.Clone(x.shape())
		s[a] = g.size()
		in = append(in, g.fresh(x.dt(), s...))
	}
	g.r.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	if g.one(4) {
		a -= x.rank()
	}
	g.node(kind, Attrs{"axis": a}, in...)
}

func depthToSpace(g *Gen, kind string) {
	b := 2
	g.node(kind, Attrs{"blocksize": b, "mode": choose(g, "DCR", "CRD")}, g.shaped(choose(g, floats...), 1+g.r.IntN(2), b*b*(1+g.r.IntN(3)), 1+g.r.IntN(4), 1+g.r.IntN(4)))
}

func spaceToDepth(g *Gen, kind string) {
	g.node(kind, Attrs{"blocksize": 2}, g.shaped(choose(g, floats...), 1+g.r.IntN(2), 1+g.r.IntN(4), 2*(1+g.r.IntN(3)), 2*(1+g.r.IntN(3))))
}

// dropout keeps everything: what training drops is not specified.
func dropout(g *Gen, kind string) {
	x := g.some(choose(g, floats...), 0, 4)
	in := []*val{x}
	if g.one(2) {
		in = append(in, g.structural(tensor.Scalar[float32](0)), g.structural(tensor.Scalar(g.one(2))))
	}
	g.nodes(kind, nil, 1+g.r.IntN(2), in...)
}

func expand(g *Gen, kind string) {
	x := g.some(choose(g, all...), 0, 4)
	s := slices.Clone(x.shape())
	for i := range s {
		if s[i] == 1 {
			s[i] = g.size()
		} else if g.one(4) {
			s[i] = 1
		}
	}
	for len(s) < 4 && g.one(3) {
		s = append([]int{g.size()}, s...)
	}
	count(s)
	if g.old {
		g.node(kind, nil, x, g.weight(tensor.Ints(s...)))
		return
	}
	g.node(kind, nil, x, g.ints(s...))
}

func flatten(g *Gen, kind string) {
	x := g.some(choose(g, all...), 0, 4)
	g.node(kind, Attrs{"axis": g.r.IntN(x.rank() + 1)}, x)
}

// positions draws indices of an axis.
func (g *Gen) positions(n int, shape []int) *tensor.Tensor {
	x := make([]int64, count(shape))
	if n == 0 && len(x) > 0 {
		reject("an empty axis")
	}
	for i := range x {
		if x[i] = int64(g.r.IntN(n)); g.one(4) && !g.old {
			x[i] -= int64(n)
		}
	}
	return tensor.From(x, shape...)
}

// places draws indices that count from the beginning.
func (g *Gen) places(n int, shape ...int) *tensor.Tensor {
	t := g.positions(n, shape)
	for i, x := range tensor.Data[int64](t) {
		if x < 0 {
			tensor.Data[int64](t)[i] = x + int64(n)
		}
	}
	return t
}

// indices makes an operand of indices: a constant, or an input that keeps its elements.
func (g *Gen) indices(n int, shape ...int) *val {
	t := g.positions(n, shape)
	if g.one(4) {
		t = t.To(tensor.I32)
	}
	return g.structural(t)
}

func gather(g *Gen, kind string) {
	x := g.some(choose(g, all...), 1, 4)
	a := g.axis(x.rank())
	g.node(kind, Attrs{"axis": a}, x, g.indices(x.dim(a), g.shape(g.r.IntN(3))...))
}

func gatherElements(g *Gen, kind string) {
	x := g.some(choose(g, all...), 1, 4)
	a := g.r.IntN(x.rank())
	s := slices.Clone(x.shape())
	for i := range s {
		if s[i] = g.r.IntN(s[i] + 1); i == a {
			s[i] = 1 + g.r.IntN(4)
		}
	}
	g.node(kind, Attrs{"axis": a}, x, g.indices(x.dim(a), s...))
}

func gatherND(g *Gen, kind string) {
	x := g.some(choose(g, all...), 1, 4)
	k := 1 + g.r.IntN(x.rank())
	n := slices.Min(x.shape()[:k])
	g.node(kind, nil, x, g.structural(g.positions(n, append(g.shape(g.r.IntN(2)), k))))
}

func gridSample(g *Gen, kind string) {
	x := g.shaped(tensor.F32, 1, 1+g.r.IntN(3), 2+g.r.IntN(4), 2+g.r.IntN(4))
	grid := g.source(g.between(-1.2, 1.2), 1, 1+g.r.IntN(4), 1+g.r.IntN(4), 2)
	g.node(kind, Attrs{"align_corners": g.r.IntN(2), "mode": choose(g, "linear", "nearest", "cubic"), "padding_mode": choose(g, "zeros", "border", "reflection")}, x, grid)
}

func nonMaxSuppression(g *Gen, kind string) {
	n := 1 + g.r.IntN(5)
	boxes := g.source(g.between(0, 8), 1, n, 4)
	scores := g.source(g.between(0, 1), 1, 1+g.r.IntN(2), n)
	g.node(kind, nil, boxes, scores, g.structural(tensor.Ints(1+g.r.IntN(3))), g.structural(tensor.From([]float32{0.4}, 1)), g.structural(tensor.From([]float32{0.1}, 1)))
}

func pad(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 1, 4)
	mode := choose(g, "constant", "constant", "reflect", "edge", "wrap")
	p := make([]int, 2*x.rank())
	for i := range p {
		if p[i] = g.r.IntN(3); g.one(8) {
			p[i] = -1
		}
	}
	in := []*val{x, g.ints(p...)}
	if mode == "constant" && g.one(2) {
		in = append(in, g.weight(tensor.Scalar[float32](1.5).To(x.dt())))
	}
	g.node(kind, Attrs{"mode": mode}, in...)
}

// factors draws a shape of n elements.
func (g *Gen) factors(n int) []int {
	if n == 0 {
		return []int{0, 1 + g.r.IntN(3)}[:1+g.r.IntN(2)]
	}
	var s []int
	for k := 0; k < 4 && n > 1 && !g.one(4); k++ {
		d := 1 + g.r.IntN(n)
		for n%d != 0 {
			d--
		}
		s = append(s, d)
		n /= d
	}
	if n > 1 || len(s) == 0 && g.one(2) {
		s = append(s, n)
	}
	if len(s) < 4 && g.one(3) {
		s = slices.Insert(s, g.r.IntN(len(s)+1), 1)
	}
	return s
}

func reshape(g *Gen, kind string) {
	x := g.some(choose(g, all...), 0, 4)
	s := g.factors(x.len())
	if len(s) > 0 && g.one(3) && x.len() > 0 {
		s[g.r.IntN(len(s))] = -1
	}
	for i := range s {
		if g.one(5) && i < x.rank() && s[i] == x.dim(i) && s[i] > 0 {
			s[i] = 0
		}
	}
	a := Attrs{}
	if slices.Contains(s, 0) && x.len() == 0 {
		a["allowzero"] = 1
	}
	g.node(kind, a, x, g.ints(s...))
}

func resize(g *Gen, kind string) {
	x := g.some(tensor.F32, 2, 4)
	a := Attrs{"mode": choose(g, "nearest", "nearest", "linear", "linear", "cubic")}
	a["coordinate_transformation_mode"] = choose(g, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
	if a["mode"] == "nearest" {
		a["nearest_mode"] = choose(g, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
	}
	if a["mode"] == "cubic" && g.one(2) {
		a["exclude_outside"] = 1
	}
	if g.one(2) {
		s := slices.Clone(x.shape())
		for i := max(0, len(s)-2); i < len(s); i++ {
			s[i] = choose(g, s[i], 2*s[i], 1+g.r.IntN(8))
		}
		g.node(kind, a, x, nil, nil, g.ints(s...))
		return
	}
	f := make([]float32, x.rank())
	for i := range f {
		if f[i] = 1; i >= len(f)-2 {
			f[i] = choose[float32](g, 1, 2, 2, 3, 0.5)
		}
	}
	g.node(kind, a, x, nil, g.structural(tensor.From(f, len(f))))
}

func upsample(g *Gen, kind string) {
	x := g.some(tensor.F32, 4, 4)
	g.node(kind, Attrs{"mode": choose(g, "nearest", "linear")}, x, g.weight(tensor.From([]float32{1, 1, 2, choose[float32](g, 1, 2, 3)}, 4)))
}

func reverseSequence(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 2, 4)
	b := g.r.IntN(2)
	n := make([]int, x.dim(b))
	for i := range n {
		n[i] = g.r.IntN(x.dim(1-b) + 1)
	}
	g.node(kind, Attrs{"batch_axis": b, "time_axis": 1 - b}, x, g.ints(n...))
}

func roiAlign(g *Gen, kind string) {
	x := g.shaped(tensor.F32, 1+g.r.IntN(2), 1+g.r.IntN(3), 2+g.r.IntN(5), 2+g.r.IntN(5))
	n := 1 + g.r.IntN(3)
	g.node(kind, Attrs{"output_height": 1 + g.r.IntN(3), "output_width": 1 + g.r.IntN(3), "sampling_ratio": g.r.IntN(3), "mode": choose(g, "avg", "max"), "coordinate_transformation_mode": choose(g, "half_pixel", "output_half_pixel")},
		x, g.source(g.between(0, 5), n, 4), g.structural(g.places(x.dim(0), n)))
}

// distinct draws a permutation's first n elements.
func (g *Gen) distinct(n, of int) []int { return g.r.Perm(of)[:n] }

func scatterElements(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 1, 4)
	a := g.r.IntN(x.rank())
	s := slices.Clone(x.shape())
	for i := range s {
		if i != a {
			s[i] = g.r.IntN(s[i] + 1)
		}
	}
	s[a] = g.r.IntN(s[a] + 1)
	// Every line along the axis writes to the same places, each once.
	at := g.distinct(s[a], x.dim(a))
	t := tensor.New(tensor.I64, s...)
	inner := product(s[a+1:])
	for i := range t.Len() {
		tensor.Data[int64](t)[i] = int64(at[i/inner%s[a]])
	}
	attrs := Attrs{"axis": a}
	if kind == "ScatterElements" && g.one(3) {
		attrs["reduction"] = choose(g, "add", "mul", "max", "min")
	}
	g.node(kind, attrs, x, g.structural(t), g.shaped(x.dt(), s...))
}

func scatterND(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 1, 4)
	k := 1 + g.r.IntN(min(2, x.rank()))
	cells := product(x.shape()[:k])
	n := g.r.IntN(min(cells, 6) + 1)
	at := g.distinct(n, cells)
	t := tensor.New(tensor.I64, n, k)
	for i, c := range at {
		for j := k - 1; j >= 0; j-- {
			tensor.Data[int64](t)[i*k+j] = int64(c % x.dim(j))
			c /= x.dim(j)
		}
	}
	attrs := Attrs{}
	if g.one(3) {
		attrs["reduction"] = choose(g, "add", "mul", "max", "min")
	}
	g.node(kind, attrs, x, g.structural(t), g.shaped(x.dt(), append([]int{n}, x.shape()[k:]...)...))
}

func shapeOf(g *Gen, kind string) {
	x := g.some(choose(g, all...), 0, 4)
	a := Attrs{}
	if g.one(3) {
		a["start"], a["end"] = g.r.IntN(5)-2, g.r.IntN(5)-1
	}
	g.node(kind, a, x)
}

func sizeOf(g *Gen, kind string) { g.node(kind, nil, g.some(choose(g, all...), 0, 4)) }

func slice(g *Gen, kind string) {
	x := g.some(choose(g, all...), 1, 4)
	axes := g.axes(x.rank(), 1)
	var starts, ends, steps []int
	for _, a := range axes {
		n := x.dim(a)
		s, e, by := g.r.IntN(n+1), n, 1
		switch g.r.IntN(6) {
		case 0:
			e = s + g.r.IntN(n-s+1)
		case 1:
			e = 1 << 40
		case 2:
			s, e = s-n, n
		case 3:
			by = 2
		case 4:
			s, e, by = n-1, -n-1, -1
		}
		starts, ends, steps = append(starts, s), append(ends, e), append(steps, by)
	}
	in := []*val{x, g.ints(starts...), g.ints(ends...), g.ints(axes...), g.ints(steps...)}
	if !slices.ContainsFunc(steps, func(s int) bool { return s != 1 }) && g.one(2) {
		in = in[:4]
	}
	g.node(kind, nil, in...)
}

func split(g *Gen, kind string) {
	x := g.some(choose(g, all...), 1, 4)
	a := g.axis(x.rank())
	n := x.dim(a)
	parts := 1 + g.r.IntN(4)
	if g.one(2) && n >= parts {
		g.nodes(kind, Attrs{"axis": a, "num_outputs": parts}, parts, x)
		return
	}
	s := make([]int, parts)
	for i := range s {
		if s[i] = g.r.IntN(n + 1); i == parts-1 || g.one(2) && i > 0 {
			s[i] = n / (parts - i)
		}
		if i == parts-1 {
			s[i] = n
		}
		n -= s[i]
	}
	g.nodes(kind, Attrs{"axis": a}, parts, x, g.ints(s...))
}

func squeeze(g *Gen, kind string) {
	x := g.pick(func(v *val) bool { return v.rank() > 0 && slices.Contains(v.shape(), 1) })
	if x == nil || g.one(4) {
		s := slices.Insert(g.shape(1+g.r.IntN(3)), 0, 1)
		x = g.shaped(choose(g, all...), s...)
	}
	var axes []int
	for i, d := range x.shape() {
		if d == 1 && !g.one(3) {
			axes = append(axes, choose(g, i, i-x.rank()))
		}
	}
	if len(axes) == 0 || g.one(4) {
		g.node(kind, nil, x)
		return
	}
	g.node(kind, nil, x, g.ints(axes...))
}

func unsqueeze(g *Gen, kind string) {
	x := g.some(choose(g, all...), 0, 3)
	n := 1 + g.r.IntN(2)
	axes := g.r.Perm(x.rank() + n)[:n]
	for i := range axes {
		if g.one(4) {
			axes[i] -= x.rank() + n
		}
	}
	g.node(kind, nil, x, g.ints(axes...))
}

func tensorScatter(g *Gen, kind string) {
	b, n, d := 1+g.r.IntN(3), 2+g.r.IntN(5), 1+g.r.IntN(4)
	k := 1 + g.r.IntN(n)
	at := make([]int, b)
	for i := range at {
		at[i] = g.r.IntN(n - k + 1)
	}
	g.node(kind, Attrs{"mode": choose(g, "linear", "circular")}, g.shaped(tensor.F32, b, n, d), g.shaped(tensor.F32, b, k, d), g.ints(at...))
}

func tile(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 1, 4)
	r := make([]int, x.rank())
	for i := range r {
		r[i] = choose(g, 0, 1, 1, 1, 1, 2, 2, 3)
	}
	if g.old {
		g.node(kind, nil, x, g.weight(tensor.Ints(r...)))
		return
	}
	g.node(kind, nil, x, g.ints(r...))
}

func transpose(g *Gen, kind string) {
	x := g.some(choose(g, all...), 0, 5)
	if g.one(5) {
		g.node(kind, nil, x)
		return
	}
	g.node(kind, Attrs{"perm": g.r.Perm(x.rank())}, x)
}
