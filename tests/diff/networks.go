package diff

import (
	"slices"

	"spc/ir/tensor"
)

// imageShape draws a shape [batch, channels, sizes ...].
func (g *Gen) imageShape(spatial int) []int {
	s := []int{choose(g, 1, 1, 2, 3), choose(g, 1, 2, 3, 4, 4, 6, 8, 9, 16)}
	for range spatial {
		s = append(s, choose(g, 3, 4, 5, 6, 7, 8, 8, 9, 12))
	}
	if spatial == 1 && g.one(4) {
		s[2] = choose(g, 17, 33, 40)
	}
	return s
}

// image is a value of images, mostly one that is there.
func (g *Gen) image(spatial int) *val {
	if v := g.pick(func(v *val) bool {
		return v.dt() == tensor.F32 && v.rank() == spatial+2 && v.len() > 0 && !v.constant
	}); v != nil && !g.one(4) {
		return v
	}
	return g.shaped(tensor.F32, g.imageShape(spatial)...)
}

// dense draws a weight: mostly a constant.
func (g *Gen) dense(shape ...int) *val {
	t := g.floats(tensor.F32, shape...)
	if g.one(12) {
		return g.newInput(t, g.drawer(tensor.F32))
	}
	if g.one(4) {
		g.thin(t)
	}
	return g.weight(t)
}

// thin gives a weight zeros of its own: anywhere, or in as many places of each row but one, which its first axis or its last one
// counts.
func (g *Gen) thin(t *tensor.Tensor) {
	x := t.F32s()
	if len(x) == 0 || t.Rank() < 2 || g.one(2) {
		for i := range x {
			if g.one(2) {
				x[i] = 0
			}
		}
		return
	}
	g.long = true
	row, axis := len(x)/t.Dim(0), choose(g, 0, -1)
	long := g.r.IntN(t.Dim(axis))
	for i := range x {
		at := i / row
		if axis < 0 {
			at = i % t.Dim(axis)
		}
		if at != long && (i/row+i%row)%8 != 0 {
			x[i] = 0
		}
	}
}

// windowed draws strides, pads and dilations of kernels.
func (g *Gen) windowed(kernel []int, dilate bool) Attrs {
	n := len(kernel)
	a := Attrs{}
	fill := func(n int, of ...int) []int {
		s := make([]int, n)
		for i := range s {
			s[i] = choose(g, of...)
		}
		return s
	}
	if g.one(3) {
		a["strides"] = fill(n, 1, 2, 2, 3)
	}
	switch g.r.IntN(6) {
	case 0, 1:
		a["pads"] = fill(2*n, 0, 1, 1)
	case 2:
		p := fill(n, 0, 1)
		a["pads"] = append(p, p...)
	case 3:
		if len(a) == 0 {
			a["auto_pad"] = choose(g, "SAME_UPPER", "SAME_LOWER", "VALID")
		}
	}
	if _, auto := a["auto_pad"]; dilate && !auto && g.one(4) {
		a["dilations"] = fill(n, 1, 2)
	}
	return a
}

// conv adds a convolution: grouped, depthwise, dilated, strided, of one or more axes.
func conv(g *Gen, kind string) { g.conv() }

func (g *Gen) conv() *val {
	spatial := choose(g, 1, 2, 2, 2, 2, 3)
	x := g.image(spatial)
	c := x.dim(1)
	group, m := 1, choose(g, 1, 2, 3, 4, 5, 8, 9, 16, 17)
	switch g.r.IntN(5) {
	case 0:
		group = c
		m = c * choose(g, 1, 1, 1, 2)
	case 1:
		if c%2 == 0 {
			group, m = 2, 2*(1+g.r.IntN(4))
		}
	}
	k := make([]int, spatial)
	one := choose(g, 1, 2, 3, 3, 3, 5)
	for i := range k {
		if k[i] = one; g.one(4) {
			k[i] = choose(g, 1, 2, 3)
		}
	}
	a := g.windowed(k, true)
	if group > 1 {
		a["group"] = group
	}
	w := g.dense(append([]int{m, c / group}, k...)...)
	if g.one(8) { // computed by the run
		w = g.node("Mul", nil, w, g.fresh(tensor.F32))
	}
	in := []*val{x, w}
	if g.one(2) {
		in = append(in, g.dense(m))
	}
	return g.node("Conv", a, in...)
}

func convTranspose(g *Gen, kind string) {
	spatial := choose(g, 1, 2, 2, 2)
	x := g.image(spatial)
	c, group := x.dim(1), 1
	if c%2 == 0 && g.one(3) {
		group = choose(g, 2, c)
	}
	m := 1 + g.r.IntN(4)
	k := make([]int, spatial)
	for i := range k {
		k[i] = choose(g, 1, 2, 3, 4)
	}
	a := g.windowed(k, true)
	if group > 1 {
		a["group"] = group
	}
	if s, ok := a["strides"].([]int); ok && g.one(3) {
		p := make([]int, len(s))
		for i := range p {
			p[i] = g.r.IntN(s[i])
		}
		a["output_padding"] = p
	}
	in := []*val{x, g.dense(append([]int{c, m}, k...)...)}
	if g.one(2) {
		in = append(in, g.dense(m*group))
	}
	g.node(kind, a, in...)
}

func deformConv(g *Gen, kind string) {
	x := g.image(2)
	h, w := x.dim(2)-1, x.dim(3)-1
	if h < 1 || w < 1 {
		reject("small")
	}
	in := []*val{x, g.dense(2, x.dim(1), 2, 2), g.source(g.between(-1, 1), x.dim(0), 8, h, w)}
	if g.one(2) {
		in = append(in, g.dense(2))
	}
	g.node(kind, nil, in...)
}

func causalConv(g *Gen, kind string) {
	x := g.image(1)
	k := 2 + g.r.IntN(3)
	in := []*val{x, g.dense(x.dim(1), 1, k)}
	if g.one(2) {
		in = append(in, g.dense(x.dim(1)), g.shaped(tensor.F32, x.dim(0), x.dim(1), k-1))
	}
	g.nodes(kind, Attrs{"activation": choose(g, "none", "silu")}, 1+g.r.IntN(2), in...)
}

// columns draws the number of columns of a weight.
func (g *Gen) columns() int {
	return choose(g, 1, 1, 2, 3, 4, 5, 7, 8, 8, 9, 15, 16, 16, 17, 24, 31, 33, 48, 65)
}

func gemm(g *Gen, kind string) { g.gemm() }

func (g *Gen) gemm() *val {
	x := g.some(tensor.F32, 2, 2)
	a := Attrs{}
	k, m := x.dim(1), x.dim(0)
	if g.one(4) {
		if g.one(2) { // few columns, which some formats multiply one by one
			x = g.shaped(tensor.F32, choose(g, 3, 5, 8, 9, 17), 2+g.r.IntN(3))
			k, m = x.dim(1), x.dim(0)
		}
		a["transA"], k, m = 1, m, k
	}
	n := g.columns()
	w := []int{k, n}
	if g.one(2) {
		a["transB"], w = 1, []int{n, k}
	}
	if g.one(4) {
		a["alpha"] = choose(g, 0.5, 2)
	}
	if g.one(4) {
		a["beta"] = choose(g, 0.5, 2)
	}
	in := []*val{x, choose(g, g.dense(w...), g.dense(w...), g.shaped(tensor.F32, w...))}
	if !g.one(3) {
		c := choose(g, []int{n}, []int{n}, []int{1}, []int{}, []int{m, n}, []int{m, 1}, []int{1, n})
		in = append(in, choose(g, g.dense(c...), g.shaped(tensor.F32, c...)))
	}
	return g.node("Gemm", a, in...)
}

func matMul(g *Gen, kind string) { g.matMul() }

func (g *Gen) matMul() *val {
	x := g.some(choose(g, floats...), 1, 4)
	if g.one(3) { // two values
		s := slices.Clone(x.shape())
		if len(s) > 1 {
			s[len(s)-2], s[len(s)-1] = s[len(s)-1], choose(g, s[len(s)-2], g.size())
		}
		if len(s) > 2 && g.one(2) {
			s = s[1:]
		}
		return g.node("MatMul", nil, x, g.shaped(x.dt(), s...))
	}
	if x.dt() != tensor.F32 {
		return g.node("MatMul", nil, x, g.fresh(x.dt(), x.dim(-1), g.columns()))
	}
	w := []int{x.dim(-1), g.columns()}
	if g.one(10) {
		w = w[:1]
	}
	return g.node("MatMul", nil, x, g.dense(w...))
}

func einsum(g *Gen, kind string) {
	x := g.some(tensor.F32, 2, 3)
	weight := func(shape ...int) *val { // constant or not
		if g.one(2) {
			return g.dense(shape...)
		}
		return g.fresh(tensor.F32, shape...)
	}
	if x.rank() == 2 {
		switch g.r.IntN(4) {
		case 0:
			g.node(kind, Attrs{"equation": choose(g, "ij->ji", "ij->", "ij->j")}, x)
		case 1:
			g.node(kind, Attrs{"equation": choose(g, "ij,j->ij", "i...,j->j", "ij,k->kij")}, x, weight(x.dim(1)))
		default:
			g.node(kind, Attrs{"equation": choose(g, "ij,jk->ik", "ij,jk->ki", "ij,jk->i", "ij,jk->ijk")}, x, weight(x.dim(1), g.size()))
		}
		return
	}
	switch g.r.IntN(3) {
	case 0:
		g.node(kind, Attrs{"equation": choose(g, "bsd,dhk->bshk", "bsd,dhk->bhsk", "bsd,dhk->hs")}, x, weight(x.dim(2), g.size(), g.size()))
	case 1:
		g.node(kind, Attrs{"equation": choose(g, "bij,bjk,kl->bil", "bij,bjk,kl->lib")}, x, g.fresh(tensor.F32, x.dim(0), x.dim(2), 3), weight(3, g.size()))
	default:
		g.node(kind, Attrs{"equation": choose(g, "bij,bjk->bik", "bij,bjk->ik", "bij,bjk->bki", "...ij,...jk->...ki")}, x, weight(x.dim(0), x.dim(2), g.size()))
	}
}

// recurrent adds a network of gates.
func recurrent(gates int) func(*Gen, string) {
	return func(g *Gen, kind string) {
		x := g.pick(func(v *val) bool { return v.dt() == tensor.F32 && v.rank() == 3 && v.len() > 0 && !v.constant })
		if x == nil || g.one(3) {
			x = g.shaped(tensor.F32, 1+g.r.IntN(4), 1+g.r.IntN(3), choose(g, 1, 2, 3, 4, 8, 9))
		}
		direction := choose(g, "forward", "forward", "reverse", "bidirectional")
		dirs := 1
		if direction == "bidirectional" {
			dirs = 2
		}
		h := choose(g, 1, 2, 3, 4, 5, 8, 9, 16)
		a := Attrs{"hidden_size": h, "direction": direction}
		seq, batch := x.dim(0), x.dim(1)
		if g.one(6) {
			a["layout"], seq, batch = 1, batch, seq
		}
		small := func(shape ...int) *val {
			t := g.floats(tensor.F32, shape...)
			for i := range t.F32s() {
				t.F32s()[i] /= 4
			}
			return g.weight(t)
		}
		in := []*val{x, small(dirs, gates*h, x.dim(2)), small(dirs, gates*h, h), nil, nil, nil}
		if g.one(2) {
			in[3] = small(dirs, 2*gates*h)
		}
		if g.one(4) {
			n := make([]int, batch)
			for i := range n {
				n[i] = 1 + g.r.IntN(seq)
			}
			in[4] = g.structural(tensor.Ints(n...).To(tensor.I32))
		}
		state := []int{dirs, batch, h}
		if a["layout"] != nil {
			state = []int{batch, dirs, h}
		}
		if g.one(2) {
			in[5] = g.shaped(tensor.F32, state...)
		}
		if kind == "LSTM" {
			if g.one(2) {
				in = append(in, g.shaped(tensor.F32, state...))
			}
			if g.one(6) && len(in) == 7 {
				in = append(in, small(dirs, 3*h))
			}
		}
		if kind == "GRU" && g.one(2) {
			a["linear_before_reset"] = 1
		}
		if kind == "RNN" && g.one(3) {
			act := choose(g, "Relu", "Sigmoid", "Tanh")
			a["activations"] = []string{act, act}[:dirs]
		}
		outputs := 1 + g.r.IntN(2)
		if kind == "LSTM" {
			outputs = 1 + g.r.IntN(3)
		}
		g.nodes(kind, a, outputs, in...)
	}
}

func attention(g *Gen, kind string) {
	b, h, s, d := 1+g.r.IntN(2), 1+g.r.IntN(4), 1+g.r.IntN(6), choose(g, 2, 4, 8)
	t := s
	if g.one(3) {
		t = 1 + g.r.IntN(6)
	}
	kv := h
	if h%2 == 0 && g.one(3) {
		kv = h / 2
	}
	a := Attrs{}
	if g.one(2) {
		a["is_causal"] = 1
	}
	if g.one(4) {
		a["softcap"] = 2.0
	}
	in := []*val{g.shaped(tensor.F32, b, h, s, d), g.shaped(tensor.F32, b, kv, t, d), g.shaped(tensor.F32, b, kv, t, d)}
	if g.one(2) {
		a["q_num_heads"], a["kv_num_heads"] = h, kv
		in = []*val{g.shaped(tensor.F32, b, s, h*d), g.shaped(tensor.F32, b, t, kv*d), g.shaped(tensor.F32, b, t, kv*d)}
	}
	if g.one(3) {
		in = append(in, g.shaped(tensor.F32, choose(g, []int{s, t}, []int{1, 1, s, t}, []int{b, 1, s, t}, []int{b, h, s, t})...))
	}
	g.nodes(kind, a, 1, in...)
}

func flexAttention(g *Gen, kind string) {
	b, h, s, d := 1, 1+g.r.IntN(2), 1+g.r.IntN(4), choose(g, 2, 4)
	q, k, v := g.shaped(tensor.F32, b, h, s, d), g.shaped(tensor.F32, b, h, s, d), g.shaped(tensor.F32, b, h, s, d)
	a := Attrs{}
	if g.one(2) {
		a["score_mod"] = g.subgraph([]*value{plain(g.floats(tensor.F32, b, h, s, s))}, func(in []*val) []*val {
			return []*val{g.node(choose(g, "Relu", "Neg", "Tanh", "Abs"), nil, in[0])}
		})
	}
	g.node(kind, a, q, k, v)
}

func linearAttention(g *Gen, kind string) {
	b, t, h, d := 1+g.r.IntN(2), 1+g.r.IntN(4), 1+g.r.IntN(2), choose(g, 2, 4)
	g.nodes(kind, Attrs{"update_rule": "linear", "q_num_heads": h, "kv_num_heads": h}, 2, g.shaped(tensor.F32, b, t, h*d), g.shaped(tensor.F32, b, t, h*d), g.shaped(tensor.F32, b, t, h*d), g.shaped(tensor.F32, b, h, d, d))
}

func rotary(g *Gen, kind string) {
	b, h, s, d := 1+g.r.IntN(2), 1+g.r.IntN(3), 1+g.r.IntN(4), choose(g, 2, 4, 8)
	a := Attrs{"interleaved": g.r.IntN(2)}
	x := []int{b, h, s, d}
	if g.one(2) {
		a["num_heads"], x = h, []int{b, s, h * d}
	}
	cache := func(shape ...int) *val { return g.source(g.between(-1, 1), shape...) }
	if g.one(2) {
		g.node(kind, a, g.shaped(tensor.F32, x...), cache(b, s, d/2), cache(b, s, d/2))
		return
	}
	g.node(kind, a, g.shaped(tensor.F32, x...), cache(6, d/2), cache(6, d/2), g.structural(g.places(6, b, s)))
}

func swiGLU(g *Gen, kind string) {
	x := g.some(choose(g, floats...), 1, 4)
	g.node(kind, nil, x, g.shaped(x.dt(), x.shape()...))
}

func pool(g *Gen, kind string) {
	spatial := choose(g, 1, 2, 2, 2, 3)
	x := g.image(spatial)
	k := make([]int, spatial)
	one := choose(g, 2, 2, 3)
	for i := range k {
		if k[i] = one; g.one(4) {
			k[i] = 1 + g.r.IntN(3)
		}
	}
	a := g.windowed(k, kind == "MaxPool")
	a["kernel_shape"] = k
	if g.one(4) {
		a["ceil_mode"] = 1
	}
	if kind == "AveragePool" && g.one(2) {
		a["count_include_pad"] = 1
	}
	outputs := 1
	if kind == "MaxPool" && g.one(4) && x.v.exact {
		outputs = 2
	}
	g.nodes(kind, a, outputs, x)
}

func maxUnpool(g *Gen, kind string) {
	x := g.exact(tensor.F32, 4, 4)
	p := g.nodes("MaxPool", Attrs{"kernel_shape": []int{2, 2}, "strides": []int{2, 2}}, 2, x)
	g.node(kind, Attrs{"kernel_shape": []int{2, 2}, "strides": []int{2, 2}}, p...)
}

func globalPool(g *Gen, kind string) { g.node(kind, nil, g.image(choose(g, 1, 2, 2, 3))) }

func (g *Gen) vector(n int) *val { return g.weight(g.floats(tensor.F32, n)) }

func (g *Gen) positive(n int) *val { return g.weight(g.between(0.25, 3)([]int{n})) }

func batchNorm(g *Gen, kind string) {
	x := g.some(tensor.F32, 2, 4)
	g.batchNorm(x)
}

func (g *Gen) batchNorm(x *val) *val {
	c := x.dim(1)
	return g.node("BatchNormalization", nil, x, g.vector(c), g.vector(c), g.vector(c), g.positive(c))
}

func groupNorm(g *Gen, kind string) {
	x := g.image(choose(g, 1, 2))
	c := x.dim(1)
	n := 1
	if c%2 == 0 {
		n = 2
	}
	g.node(kind, Attrs{"num_groups": n}, x, g.vector(c), g.vector(c))
}

func instanceNorm(g *Gen, kind string) {
	x := g.image(choose(g, 1, 2))
	g.node(kind, nil, x, g.vector(x.dim(1)), g.vector(x.dim(1)))
}

func lrn(g *Gen, kind string) {
	g.node(kind, Attrs{"size": choose(g, 1, 3, 5), "alpha": 0.5}, g.image(choose(g, 1, 2)))
}

// scaling is a weight with an element for each of a slice of x, or that broadcasts to x.
func (g *Gen) scaling(x *val, slice []int) *val {
	if g.one(4) {
		slice = slices.Clone(x.shape()[g.r.IntN(x.rank()+1):])
		for i := range slice {
			if g.one(4) {
				slice[i] = 1
			}
		}
	}
	return g.weight(g.floats(tensor.F32, slice...))
}

func layerNorm(g *Gen, kind string) {
	x := g.some(tensor.F32, 1, 4)
	a := g.axis(x.rank())
	if g.one(2) {
		a = -1
	}
	s := x.shape()[(a+x.rank())%x.rank():]
	in := []*val{x, g.scaling(x, s)}
	if g.one(2) {
		in = append(in, g.scaling(x, s))
	}
	g.nodes(kind, Attrs{"axis": a}, choose(g, 1, 1, 1, 3), in...)
}

func rmsNorm(g *Gen, kind string) {
	x := g.some(tensor.F32, 1, 4)
	g.node(kind, nil, x, g.scaling(x, x.shape()[x.rank()-1:]))
}

func lpNorm(g *Gen, kind string) {
	x := g.ranged(0.25, 8, 1, 4)
	g.node(kind, Attrs{"axis": g.axis(x.rank()), "p": 1 + g.r.IntN(2)}, x)
}

func mvn(g *Gen, kind string) { g.node(kind, nil, g.image(2)) }

func softmax(g *Gen, kind string) {
	x := g.some(choose(g, floats...), 1, 4)
	if kind == "Hardmax" {
		x = g.exact(tensor.F32, 1, 4)
	}
	a := g.axis(x.rank())
	if g.one(2) {
		a = -1
	}
	g.node(kind, Attrs{"axis": a}, x)
}

func loss(g *Gen, kind string) {
	n, c := 1+g.r.IntN(4), 1+g.r.IntN(4)
	x := []int{n, c}
	y := []int{n}
	if g.one(2) {
		x, y = append(x, 3), append(y, 3)
	}
	in := []*val{g.shaped(tensor.F32, x...), g.structural(g.places(c, y...))}
	if g.one(3) {
		in = append(in, g.positive(c))
	}
	g.node(kind, Attrs{"reduction": choose(g, "none", "sum", "mean")}, in...)
}
