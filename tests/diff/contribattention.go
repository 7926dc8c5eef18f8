package diff

import (
	"spc/ir/tensor"
)

// lengths draws how many tokens each of b samples has.
func (g *Gen) lengths(b, most int) []int32 {
	n := make([]int32, b)
	for i := range n {
		n[i] = int32(1 + g.r.IntN(most))
	}
	return n
}

// seen draws a mask of zeros and ones, in which each query sees the first key.
func (g *Gen) seen(shape ...int) *tensor.Tensor {
	t := tensor.New(tensor.I32, shape...)
	for i := range tensor.Data[int32](t) {
		if i%t.Dim(-1) == 0 || g.one(2) {
			tensor.Data[int32](t)[i] = 1
		}
	}
	return t
}

// masked draws a mask of one of the forms that attention takes, or none: lengths, where pairs are with where samples begin, too, or
// what is seen.
func (g *Gen) masked(b, queries, keys int, pairs bool) *val {
	switch g.r.IntN(6) {
	case 0:
		return g.structural(tensor.From(g.lengths(b, keys), b))
	case 1:
		if pairs {
			return g.structural(tensor.From(append(g.lengths(b, keys), make([]int32, b)...), 2*b))
		}
		return g.structural(g.seen(b, keys))
	case 2:
		return g.structural(g.seen(b, keys))
	case 3:
		return g.structural(g.seen(b, queries, keys))
	}
	return nil
}

// offset draws what is added to scores, or nothing.
func (g *Gen) offset(b, h, queries, keys int) *val {
	if g.one(2) {
		return nil
	}
	return g.shaped(tensor.F32, choose(g, 1, b), choose(g, 1, h), queries, keys)
}

// attending draws the attributes that Attention and its like share.
func (g *Gen) attending(heads int) Attrs {
	a := Attrs{"num_heads": heads}
	if g.one(2) {
		a["unidirectional"] = 1
	}
	if g.one(4) {
		a["scale"] = choose(g, 0.25, 1.0)
	}
	if g.one(4) {
		a["mask_filter_value"] = -100.0
	}
	return a
}

func ownAttention(g *Gen, kind string) {
	b, s, n, h, d := 1+g.r.IntN(2), 1+g.r.IntN(5), choose(g, 3, 4, 8), 1+g.r.IntN(3), choose(g, 2, 4)
	a, past, width := g.attending(h), 0, d
	in := []*val{g.shaped(tensor.F32, b, s, n), nil, nil, nil, nil, nil}
	outputs := choose(g, 1, 1, 2)
	switch {
	case g.one(3):
		past = 1 + g.r.IntN(3)
		in[4] = g.shaped(tensor.F32, 2, b, h, past, d)
	case outputs == 1 && g.one(3):
		width = 2 * d
		a["qkv_hidden_sizes"] = []int{h * d, h * d, h * width}
	}
	in[1] = g.dense(n, h*(2*d+width))
	in[2] = g.optional(h * (2*d + width))
	in[3] = g.masked(b, s, past+s, true)
	if in[4] == nil {
		in[5] = g.offset(b, h, s, s)
	}
	g.nodes(kind, a, outputs, in...)
}

func qAttention(g *Gen, kind string) {
	b, s, n, h, d := 1+g.r.IntN(2), 1+g.r.IntN(4), choose(g, 3, 4, 8), 1+g.r.IntN(2), choose(g, 2, 4)
	x, w := g.source(g.coded(choose(g, tensor.U8, tensor.I8)), b, s, n), g.codes8(n, 3*h*d)
	scale, zero := g.scales(w.dt(), 3*h*d)
	q := g.quantisation(x.dt())
	in := []*val{x, w, g.vector(3 * h * d), q[0], scale, nil, q[1], zero, nil}
	past := 0
	if g.one(3) {
		past = 1 + g.r.IntN(3)
		in[8] = g.shaped(tensor.F32, 2, b, h, past, d)
	}
	in[5] = g.masked(b, s, past+s, true)
	g.nodes(kind, g.attending(h), choose(g, 1, 1, 2), in...)
}

func multiHead(g *Gen, kind string) {
	b, s, h, d := 1+g.r.IntN(2), 1+g.r.IntN(5), 1+g.r.IntN(3), choose(g, 2, 4, 8)
	a, t, width := g.attending(h), s, d
	if g.one(3) {
		t, width = 1+g.r.IntN(6), choose(g, d, 2*d)
	}
	f32 := func(shape ...int) *val { return g.shaped(tensor.F32, shape...) }
	in := make([]*val, 8)
	in[0] = f32(b, s, h*d)
	form := g.r.IntN(5)
	switch form {
	case 0:
		in[0], t, width = f32(b, s, h, 3, d), s, d
	case 1:
		in[1], width = f32(b, t, h, 2, d), d
	case 2:
		in[1], in[2] = f32(b, h, t, d), f32(b, h, t, width)
	default:
		in[1], in[2] = f32(b, t, h*d), f32(b, t, h*width)
	}
	if form != 1 {
		in[3] = g.optional(h * (2*d + width))
	}
	past := 0
	if form > 1 && g.one(2) {
		past = 1 + g.r.IntN(3)
		in[6], in[7] = f32(b, h, past, d), f32(b, h, past, width)
	}
	in[4], in[5] = g.masked(b, s, past+t, false), g.offset(b, h, s, past+t)
	g.nodes(kind, a, choose(g, 1, 1, 3), in...)
}

// cosines draws a table of cosines, or of sines.
func (g *Gen) cosines(positions, half int) *val { return g.source(g.between(-1, 1), positions, half) }

func ownRotary(g *Gen, kind string) {
	b, h, s, d := 1+g.r.IntN(2), 1+g.r.IntN(3), 1+g.r.IntN(4), choose(g, 2, 4, 8)
	a, x, half := Attrs{"interleaved": g.r.IntN(2)}, []int{b, h, s, d}, d/2
	if g.one(2) {
		x = []int{b, s, h * d}
		if d > 2 && g.one(3) {
			a["num_heads"], a["rotary_embedding_dim"], half = h, d/2, d/4
		}
	}
	ids := choose(g, tensor.Scalar(int64(g.r.IntN(3))), tensor.Ints(g.r.IntN(3)), g.places(7, b, s))
	g.node(kind, a, g.shaped(tensor.F32, x...), g.structural(ids), g.cosines(7, half), g.cosines(7, half))
}

func groupQuery(g *Gen, kind string) {
	b, s, shared, d := 1+g.r.IntN(2), 1+g.r.IntN(4), 1+g.r.IntN(2), choose(g, 4, 8)
	h := shared * choose(g, 1, 2, 3)
	a, in := Attrs{"num_heads": h, "kv_num_heads": shared}, make([]*val, 12)
	if g.one(2) {
		in[0] = g.shaped(tensor.F32, b, s, (h+2*shared)*d)
	} else {
		in[0], in[1], in[2] = g.shaped(tensor.F32, b, s, h*d), g.shaped(tensor.F32, b, s, shared*d), g.shaped(tensor.F32, b, s, shared*d)
	}
	last, total := make([]int32, b), s
	for i := range last { // a prompt that is as long as all tokens, or shorter
		last[i] = int32(g.r.IntN(s))
	}
	last[0] = int32(s - 1)
	if g.one(2) {
		rows := g.r.IntN(6)
		if rows > 0 && g.one(2) { // tokens behind others
			for i := range last {
				last[i] = int32(s - 1 + g.r.IntN(rows+1))
				total = max(total, int(last[i])+1)
			}
		}
		in[3], in[4] = g.shaped(tensor.F32, b, shared, rows, d), g.shaped(tensor.F32, b, shared, rows, d)
	}
	in[5], in[6] = g.structural(tensor.From(last, b)), g.structural(tensor.Scalar(int32(total)))
	if g.one(2) {
		a["do_rotary"], a["rotary_interleaved"] = 1, g.r.IntN(2)
		in[7], in[8] = g.cosines(12, d/2), g.cosines(12, d/2)
		if g.one(4) {
			in[9] = g.structural(g.places(12, b, s))
		}
	}
	switch g.r.IntN(8) {
	case 0:
		a["local_window_size"] = 1 + g.r.IntN(3)
	case 1:
		a["softcap"] = 2.0
	case 2:
		a["smooth_softmax"] = 1
	case 3:
		in[11] = g.vector(h)
	case 4:
		in[10] = g.shaped(tensor.F32, 1, choose(g, 1, h), s, total)
	}
	g.nodes(kind, a, choose(g, 1, 3), in...)
}
