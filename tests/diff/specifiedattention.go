package diff

import (
	"math"
	"slices"
)

// attending is attention of queries [batch, heads, tokens, depth] over keys and values likewise, of which groups of heads share one.
type attending struct {
	scale, softcap float64                                 // 0 for 1/sqrt(depth), and for none
	score          func(b, h, i, j int, x float64) float64 // what becomes of a score; nil for nothing
	sink           []float64                               // a further score of each head, of no value; nil for none
}

// of returns [batch, tokens, heads*depth].
func (o attending) of(q, k, v *array) *array {
	batch, heads, queries, depth := q.shape[0], q.shape[1], q.shape[2], q.shape[3]
	shared, keys, width := k.shape[1], k.shape[2], v.shape[3]
	scale := o.scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(depth))
	}
	y := newArray(batch, queries, heads*width)
	p := make([]float64, keys)
	for at := range batch * heads * queries {
		i, h, b := at%queries, at/queries%heads, at/(queries*heads)
		group := b*shared + h/(heads/shared)
		most, sum := math.Inf(-1), 0.0
		if o.sink != nil {
			most = o.sink[h]
		}
		for j := range keys {
			x := 0.0
			for e := range depth {
				x += q.x[at*depth+e] * k.x[(group*keys+j)*depth+e]
			}
			if x *= scale; o.softcap != 0 {
				x = o.softcap * math.Tanh(x/o.softcap)
			}
			if o.score != nil {
				x = o.score(b, h, i, j, x)
			}
			p[j], most = x, max(most, x)
		}
		if o.sink != nil {
			sum = math.Exp(o.sink[h] - most)
		}
		for j, x := range p {
			p[j] = math.Exp(x - most)
			sum += p[j]
		}
		for j, x := range p {
			for e := range width {
				y.x[((b*queries+i)*heads+h)*width+e] += x / sum * v.x[(group*keys+j)*width+e]
			}
		}
	}
	return y
}

// heads makes [batch, heads, tokens, depth] of [batch, tokens, heads*depth], and leaves what is that already.
func (a *array) heads(n int) *array {
	if a.rank() == 4 {
		return a
	}
	return a.reshaped(a.shape[0], a.shape[1], n, a.shape[2]/n).permuted(0, 2, 1, 3)
}

// scores is what Attention and MultiHeadAttention make of scores: a bias is added, keys that are padding get the filter, and
// of those that come later than the query nothing is left.
func (s *specified) scores(mask, bias *array, past, batch, queries int, pairs bool) func(b, h, i, j int, x float64) float64 {
	filter := s.float("mask_filter_value", -10000)
	return func(b, h, i, j int, x float64) float64 {
		if s.is("unidirectional") && j > past+i && i < queries-1 {
			return -math.MaxFloat32
		}
		if bias != nil {
			row := ((b%bias.shape[0])*bias.shape[1]+h%bias.shape[1])*queries + i
			x += bias.x[row*bias.shape[3]+j]
		}
		if mask != nil && !visible(mask, b, i, j, batch, queries, pairs) {
			x += filter
		}
		return x
	}
}

// visible reports whether a mask says that a query sees a key: by the lengths of samples, behind which may come where they begin, or
// an element for each key, or query and key.
func visible(mask *array, b, i, j, batch, queries int, pairs bool) bool {
	switch mask.rank() {
	case 1:
		if pairs && len(mask.x) == 2*batch && j < int(mask.x[batch+b]) {
			return false
		}
		return j < int(mask.x[b])
	case 2:
		return mask.x[b*mask.shape[1]+j] > 0
	}
	return mask.x[(b*queries+i)*mask.shape[2]+j] > 0
}

func attentionSpec(s *specified) []*array {
	return s.selfAttention(s.in(0).times(s.in(1)).plus(s.in(2)), s.in(3), s.in(4), s.in(5))
}

// qAttentionSpec has the inputs x, weight, bias, the scales of the first two, mask, their zero points, and past.
func qAttentionSpec(s *specified) []*array {
	x := s.in(0).with(s.in(6), minus64).scaled(s.number(3, 1))
	w := s.in(1).with(s.in(7), minus64).with(s.in(4), times)
	return s.selfAttention(x.times(w).plus(s.in(2)), s.in(5), s.in(8), nil)
}

func minus64(x, y float64) float64 { return x - y }

// selfAttention attends with what a product made of queries, keys and values.
func (s *specified) selfAttention(y, mask, past, bias *array) []*array {
	n, third := s.int("num_heads", 0), y.dim(-1)/3
	parts := y.parts(s.ints("qkv_hidden_sizes", third, third, third)...)
	q, k, v := parts[0].heads(n), parts[1].heads(n), parts[2].heads(n)
	before := 0
	if past != nil {
		before = past.shape[3]
		k = past.part(0, 0, 1).reshaped(past.shape[1:]...).followed(2, k)
		v = past.part(0, 1, 2).reshaped(past.shape[1:]...).followed(2, v)
	}
	o := attending{scale: s.float("scale", 0), score: s.scores(mask, bias, before, q.shape[0], q.shape[2], true)}
	out := []*array{o.of(q, k, v)}
	if slices.Equal(k.shape, v.shape) {
		one := append([]int{1}, k.shape...)
		out = append(out, k.reshaped(one...).followed(0, v.reshaped(one...)))
	}
	return out
}

func multiHeadSpec(s *specified) []*array {
	n := s.int("num_heads", 0)
	q, k, v := s.in(0), s.in(1), s.in(2)
	packed := func(x *array, i int) *array { // [batch, tokens, heads, parts, depth]
		x = x.part(3, i, i+1)
		return x.reshaped(x.shape[0], x.shape[1], x.shape[2]*x.shape[4])
	}
	switch {
	case k == nil:
		q, k, v = packed(q, 0), packed(q, 1), packed(q, 2)
	case v == nil:
		k, v = packed(k, 0), packed(k, 1)
	}
	if b := s.in(3); b != nil {
		d := q.dim(-1)
		q = q.plus(b.part(0, 0, d))
		if k.rank() == 3 { // else they are those of another node
			k, v = k.plus(b.part(0, d, 2*d)), v.plus(b.part(0, 2*d, b.shape[0]))
		}
	}
	q, k, v = q.heads(n), k.heads(n), v.heads(n)
	before := 0
	if past := s.in(6); past != nil {
		before = past.shape[2]
		k, v = past.followed(2, k), s.in(7).followed(2, v)
	}
	o := attending{scale: s.float("scale", 0), score: s.scores(s.in(4), s.in(5), before, q.shape[0], q.shape[2], false)}
	return []*array{o.of(q, k, v), k, v}
}

// turned turns the heads of x [batch, heads, tokens, depth] by the rows of tables that position names: pairs of elements, which are
// next to each other where interleaved, else half of what is turned apart.
func (a *array) turned(cos, sin *array, interleaved bool, position func(b, i int) int) *array {
	y, half := newArray(a.shape...), cos.shape[1]
	copy(y.x, a.x)
	heads, tokens, depth := a.shape[1], a.shape[2], a.shape[3]
	for row := range len(a.x) / depth {
		at := position(row/(heads*tokens), row%tokens) * half
		x, to := a.x[row*depth:][:depth], y.x[row*depth:][:depth]
		for e := range half {
			p, q := e, e+half
			if interleaved {
				p, q = 2*e, 2*e+1
			}
			c, s := cos.x[at+e], sin.x[at+e]
			to[p], to[q] = x[p]*c-x[q]*s, x[q]*c+x[p]*s
		}
	}
	return y
}

func rotarySpec(s *specified) []*array {
	x, ids, cos, sin := s.in(0), s.in(1), s.in(2), s.in(3)
	position := func(b, i int) int {
		if len(ids.x) == 1 && ids.rank() < 2 {
			return int(ids.x[0]) + i
		}
		return int(ids.x[b*ids.shape[1]+i])
	}
	if x.rank() == 4 {
		return []*array{x.turned(cos, sin, s.is("interleaved"), position)}
	}
	heads := s.int("num_heads", 0)
	if heads == 0 {
		heads = x.shape[2] / (2 * cos.shape[1])
	}
	y := x.heads(heads).turned(cos, sin, s.is("interleaved"), position)
	return []*array{y.permuted(0, 2, 1, 3).reshaped(x.shape...)}
}

// groupQuerySpec has the inputs query, key, value, the past of the last two, the position of each sample's last token, the tokens of the
// longest, tables of cosines and sines, positions, a bias and a sink.
func groupQuerySpec(s *specified) []*array {
	heads, shared := s.int("num_heads", 0), s.int("kv_num_heads", 0)
	q, k, v := s.in(0), s.in(1), s.in(2)
	if k == nil {
		depth := q.shape[2] / (heads + 2*shared)
		parts := q.parts(heads*depth, shared*depth, shared*depth)
		q, k, v = parts[0], parts[1], parts[2]
	}
	q, k, v = q.heads(heads), k.heads(shared), v.heads(shared)
	last, total, tokens := s.in(5), int(s.number(6, 0)), q.shape[2]
	first := func(b int) int { // where a sample's tokens begin
		if s.in(3) == nil || total == tokens {
			return 0
		}
		return int(last.x[b]) + 1 - tokens
	}
	if s.is("do_rotary") {
		position := func(b, i int) int { return first(b) + i }
		if ids := s.in(9); ids != nil {
			position = func(b, i int) int { return int(ids.x[b*tokens+i]) }
		}
		turn := func(x *array) *array { return x.turned(s.in(7), s.in(8), s.is("rotary_interleaved"), position) }
		q, k = turn(q), turn(k)
	}
	k, v = appended(s.in(3), k, total, first), appended(s.in(4), v, total, first)
	window, bias := s.int("local_window_size", -1), s.in(10)
	o := attending{scale: s.float("scale", 0), softcap: s.float("softcap", 0)}
	o.score = func(b, h, i, j int, x float64) float64 {
		if at := first(b) + i; j > at || window > 0 && j <= at-window {
			return math.Inf(-1)
		}
		if bias != nil {
			x += bias.x[((b%bias.shape[0]*bias.shape[1]+h%bias.shape[1])*tokens+i)*bias.shape[3]+j]
		}
		return x
	}
	if sink := s.in(11); sink != nil {
		o.sink = sink.x
	} else if s.is("smooth_softmax") {
		o.sink = make([]float64, heads)
	}
	return []*array{o.of(q, k, v), k, v}
}

// appended is a cache with new rows from where they begin on, as long as it was or, where that is more, as all tokens.
func appended(past, rows *array, total int, first func(b int) int) *array {
	if past == nil {
		return rows
	}
	heads, tokens, depth := rows.shape[1], rows.shape[2], rows.shape[3]
	length := max(past.shape[2], total)
	y := newArray(rows.shape[0], heads, length, depth)
	for b := range rows.shape[0] {
		for h := b * heads; h < (b+1)*heads; h++ {
			copy(y.x[h*length*depth:], past.x[h*past.shape[2]*depth:][:past.shape[2]*depth])
			copy(y.x[(h*length+first(b))*depth:], rows.x[h*tokens*depth:][:tokens*depth])
		}
	}
	return y
}
