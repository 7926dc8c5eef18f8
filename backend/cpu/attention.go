package cpu

import (
	"math"

	"spc/backend/cpu/tile"
	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// attention computes softmax(scale Q K' + mask) V block by block, so that no more
// of the scores exists than keyBlock rows by the columns of a tile (Dao et al.,
// FlashAttention, 2022; the sums are those of Milakov and Gimelshein, Online
// normalizer calculation for softmax, 2018). Queries are columns: scores are K Q',
// the softmax goes down the columns, results are V' P. K and V are read where they
// are; Q is transposed when it is loaded, the result when it is stored.
type attention struct {
	batch, heads  int
	queries, keys int
	depth, width  int // of the heads of Q and K, and of V
	group         int // query heads that share a key head
	scale         float32
	causal        bool
	q, k, v, y    heads
	mask          *attentionMask
}

// heads says where the heads of a tensor are: element d of a token t of a head h of
// a sample b is at from + b*batch + h*head + t*token + d.
type heads struct{ from, batch, head, token int }

func (h heads) at(b, head, token int) int { return h.from + b*h.batch + head*h.head + token*h.token }

// attentionMask is a mask [B,H,S,T'] with strides of 0 along the axes that it is
// repeated along; keys from T' on are hidden.
type attentionMask struct {
	bool               bool
	batch, head, query int
	keys               int
}

// keyBlock is the number of keys whose scores exist at a time.
const keyBlock = 128

// bindAttention takes f32 attention without a past, a window, a soft cap or further
// outputs.
func bindAttention(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Attention)
	for i, v := range n.Inputs {
		if v != nil && (i < 3 && v.Type.DType != tensor.F32 || i > 3) {
			return nil, nil
		}
	}
	for _, v := range n.Outputs[1:] {
		if v != nil {
			return nil, nil
		}
	}
	if o.LeftWindow >= 0 || o.RightWindow >= 0 || o.Softcap > 0 || o.Precision != tensor.Undefined && o.Precision != tensor.F32 {
		return nil, nil
	}
	a, ok := newAttention(o, n)
	if !ok {
		return nil, nil
	}
	return &bound{prepare: a.prepare, inplace: -1, scratch: a.scratch()}, nil
}

func newAttention(o *op.Attention, n *ir.Node) (*attention, bool) {
	q, k, v, y := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1]), shapeOf(n.Inputs[2]), shapeOf(n.Outputs[0])
	if prod(y) == 0 || prod(q) == 0 || prod(k) == 0 {
		return nil, false
	}
	a := &attention{batch: q[0], causal: o.Causal}
	var kvHeads int
	if len(q) == 4 {
		a.heads, kvHeads = q[1], k[1]
		a.queries, a.keys, a.depth, a.width = q[2], k[2], q[3], v[3]
		packed := func(s []int) heads {
			return heads{batch: s[1] * s[2] * s[3], head: s[2] * s[3], token: s[3]}
		}
		a.q, a.k, a.v, a.y = packed(q), packed(k), packed(v), packed(y)
	} else {
		a.heads, kvHeads = *o.QHeads, *o.KVHeads
		a.queries, a.keys, a.depth, a.width = q[1], k[1], q[2]/a.heads, v[2]/kvHeads
		tokens := func(s []int, width int) heads { return heads{batch: s[1] * s[2], head: width, token: s[2]} }
		if o.Packed {
			a.depth = q[2] / (a.heads + 2*kvHeads)
			a.width = a.depth
		}
		a.q, a.k, a.v, a.y = tokens(q, a.depth), tokens(k, a.depth), tokens(v, a.width), tokens(y, a.width)
		if o.Packed {
			a.k.from = a.heads * a.depth
			a.v.from = (a.heads + kvHeads) * a.depth
		}
	}
	a.group = a.heads / kvHeads
	a.scale = float32(1 / math.Sqrt(float64(a.depth)))
	if o.Scale != nil {
		a.scale = *o.Scale
	}
	if !(a.scale > 0) { // a hidden key would get a score that is no number
		return nil, false
	}
	if m := n.Input(3); m != nil {
		if m.Type.DType != tensor.F32 && m.Type.DType != tensor.Bool {
			return nil, false
		}
		s := append([]int{1, 1, 1, 1}[m.Type.Rank():], shapeOf(m)...)
		a.mask = &attentionMask{bool: m.Type.DType == tensor.Bool, keys: s[3]}
		for i, at := range []*int{&a.mask.batch, &a.mask.head, &a.mask.query} {
			if s[i] != 1 {
				*at = prod(s[i+1:])
			}
		}
	}
	return a, true
}

// maskRows is the number of rows of the tile that holds what is added to each score,
// 0 where one is added for each key, or none.
func (a *attention) maskRows() int {
	if a.mask == nil || a.mask.query == 0 && !a.causal {
		return 0
	}
	return keyBlock
}

// scratch is the number of floats that a worker needs.
func (a *attention) scratch() int {
	return (a.depth+keyBlock+a.width+a.maskRows()+4)*tile.Columns() + keyBlock
}

// attentionTiles is what a worker computes in. Tiles are as wide as its block of
// queries.
type attentionTiles struct {
	q, scores, out, mask  []float32 // [depth], [keyBlock], [width] and [keyBlock] rows
	top, was, sum, unused []float32 // of each query
	bias                  []float32 // of each key
}

func (a *attention) tiles(s []float32) (t attentionTiles) {
	c := tile.Columns()
	for _, part := range []struct {
		to *[]float32
		n  int
	}{
		{&t.q, a.depth * c}, {&t.scores, keyBlock * c}, {&t.out, a.width * c}, {&t.mask, a.maskRows() * c},
		{&t.top, c}, {&t.was, c}, {&t.sum, c}, {&t.unused, c}, {&t.bias, keyBlock},
	} {
		*part.to, s = s[:part.n:part.n], s[part.n:]
	}
	return t
}

func (a *attention) prepare(x *exec, in, out []*tensor.Tensor) func() error {
	c := tile.Columns()
	blocks := (a.queries + c - 1) / c
	work := make([]attentionTiles, x.pool.Threads())
	for w := range work {
		work[w] = a.tiles(x.scratch[w])
	}
	body := func(worker, i int) {
		from := i % blocks * c
		i /= blocks
		a.block(&work[worker], in, out[0].F32s(), i/a.heads, i%a.heads, from, min(c, a.queries-from))
	}
	return func() error {
		x.pool.For(a.batch*a.heads*blocks, body)
		return nil
	}
}

// block computes n queries of a head from the given one on.
func (a *attention) block(s *attentionTiles, in []*tensor.Tensor, y []float32, b, h, from, n int) {
	k, v := in[1].F32s()[a.k.at(b, h/a.group, 0):], in[2].F32s()[a.v.at(b, h/a.group, 0):]
	w := tile.Width(n)
	if n < w {
		clear(s.q[:a.depth*w])
	}
	vec.Transpose(s.q, w, in[0].F32s()[a.q.at(b, h, from):], a.q.token, n, a.depth)
	for c := range w {
		s.top[c], s.sum[c] = tile.Lowest, 0
	}
	clear(s.bias)
	keys := a.keys
	if a.causal {
		keys = min(keys, from+n)
	}
	for t := 0; t < keys; t += keyBlock {
		rows := min(keyBlock, keys-t)
		tile.Product(rows, a.depth, k[t*a.k.token:], a.k.token, 1, s.q, w, w, s.scores, w, false)
		masked := a.maskRows() > 0
		if masked {
			a.mask.load(s.mask, w, rows, n, in[3], b, h, from, t)
		} else if a.mask != nil {
			a.mask.load(s.bias, 1, rows, 1, in[3], b, h, 0, t)
			for r, x := range s.bias[:rows] {
				if x == -inf { // whatever the scores are
					fill(s.scores[r*w:(r+1)*w], -inf)
				}
			}
		}
		if a.causal && masked {
			hideLater(s.mask, w, rows, from-t)
		} else if a.causal {
			hideLater(s.scores, w, rows, from-t)
		}
		if t > 0 {
			copy(s.was[:w], s.top)
		}
		if masked {
			tile.MaskMax(rows, w, s.scores, s.mask, s.top, a.scale)
		} else {
			tile.Max(rows, w, s.scores, s.bias, s.top, a.scale)
		}
		if t > 0 { // what was summed so far is relative to another maximum
			tile.Exp(1, w, s.was, s.top, s.unused)
			tile.Scale(1, w, s.sum, s.was)
			tile.Scale(a.width, w, s.out, s.was)
		}
		tile.Exp(rows, w, s.scores, s.top, s.sum)
		tile.Product(a.width, rows, v[t*a.v.token:], 1, a.v.token, s.scores, w, w, s.out, w, t > 0)
	}
	for c, total := range s.sum[:w] {
		s.sum[c] = 0 // a query that sees no key
		if total != 0 {
			s.sum[c] = 1 / total
		}
	}
	tile.Scale(a.width, w, s.out, s.sum)
	vec.Transpose(y[a.y.at(b, h, from):], a.y.token, s.out, w, a.width, n)
}

// hideLater hides from query c, at first+c after the key of the first row, what
// comes after it.
func hideLater(scores []float32, w, rows, first int) {
	for r := max(0, first+1); r < rows; r++ {
		fill(scores[r*w:][:min(w, r-first)], -inf)
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// load writes the mask of n queries and some keys, from the given ones on, to a tile
// whose rows, ld elements apart, are keys.
func (m *attentionMask) load(dst []float32, ld, rows, n int, t *tensor.Tensor, b, h, query, key int) {
	known := min(rows, max(0, m.keys-key))
	at := b*m.batch + h*m.head + query*m.query + key
	switch {
	case known == 0:
	case !m.bool && n == 1:
		for r, v := range t.F32s()[at:][:known] {
			dst[r*ld] = v
		}
	case !m.bool && m.query == 0:
		for r, v := range t.F32s()[at:][:known] {
			fill(dst[r*ld:][:n], v)
		}
	case !m.bool:
		vec.Transpose(dst, ld, t.F32s()[at:], m.query, n, known)
	default:
		for c := range n {
			for r, v := range t.Bytes()[at+c*m.query:][:known] {
				dst[r*ld+c] = 0
				if v == 0 {
					dst[r*ld+c] = -inf
				}
			}
		}
	}
	for r := known; r < rows; r++ {
		fill(dst[r*ld:][:n], -inf)
	}
}
