package cpu

import (
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
	*op.AttentionPlan
	node *ir.Node
}

// keyBlock is the number of keys whose scores exist at a time.
const keyBlock = 128

// bindAttention takes f32 attention without a past, a window, a soft cap or further
// outputs. Of keys that are a buffer it reads as many as count.
func bindAttention(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Attention)
	for i, v := range n.Inputs {
		if v != nil && i < 3 && v.Type.DType != tensor.F32 {
			return nil, nil
		}
	}
	plan, ok := o.Plan(n)
	if !ok {
		return nil, nil
	}
	a := &attention{plan, n}
	return &bound{prepare: a.prepare, inplace: -1, scratch: a.scratch()}, nil
}

// maskRows is the number of rows of the tile that holds what is added to each score,
// 0 where one is added for each key, or none.
func (a *attention) maskRows() int {
	if a.Mask == nil || a.Mask.Query == 0 && !a.Causal {
		return 0
	}
	return keyBlock
}

// scratch is the number of floats that a worker needs.
func (a *attention) scratch() int {
	return (a.Depth+keyBlock+a.Width+a.maskRows()+4)*tile.Columns() + keyBlock
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
		{&t.q, a.Depth * c}, {&t.scores, keyBlock * c}, {&t.out, a.Width * c}, {&t.mask, a.maskRows() * c},
		{&t.top, c}, {&t.was, c}, {&t.sum, c}, {&t.unused, c}, {&t.bias, keyBlock},
	} {
		*part.to, s = s[:part.n:part.n], s[part.n:]
	}
	return t
}

func (a *attention) prepare(x *exec, in, out []*tensor.Tensor) func() error {
	c := tile.Columns()
	blocks := (a.Queries + c - 1) / c
	work := make([]attentionTiles, x.pool.Threads())
	for w := range work {
		work[w] = a.tiles(x.scratch[w])
	}
	body := func(worker, i int) {
		from := i % blocks * c
		i /= blocks
		a.block(&work[worker], in, out[0].F32s(), i/a.Heads, i%a.Heads, from, min(c, a.Queries-from))
	}
	return func() error {
		if err := a.check(in); err != nil {
			return err
		}
		x.pool.For(a.Batch*a.Heads*blocks, body)
		return nil
	}
}

// check refuses lengths that are not those of keys.
func (a *attention) check(in []*tensor.Tensor) error {
	if a.Lengths == 0 {
		return nil
	}
	for _, n := range tensor.Data[int64](in[a.Lengths]) {
		if n < 0 || n > int64(a.Keys) {
			return a.node.Errorf(ir.ErrInvalid, "nonpad_kv_seqlen has %d, want 0 to %d", n, a.Keys)
		}
	}
	return nil
}

// seen returns how many keys of a sample the queries up to the given one see, but for a mask, and how many keys the first query
// has before it in the causal order.
func (a *attention) seen(in []*tensor.Tensor, b, queries int) (keys, before int) {
	if keys = a.Keys; a.Lengths > 0 {
		keys = int(tensor.Data[int64](in[a.Lengths])[b])
		before = keys - a.Queries
	}
	if a.Causal {
		keys = min(keys, max(0, before+queries))
	}
	return keys, before
}

// block computes n queries of a head from the given one on.
func (a *attention) block(s *attentionTiles, in []*tensor.Tensor, y []float32, b, h, from, n int) {
	k, v := in[1].F32s()[a.K.At(b, h/a.Group, 0):], in[2].F32s()[a.V.At(b, h/a.Group, 0):]
	w := tile.Width(n)
	if n < w {
		clear(s.q[:a.Depth*w])
	}
	vec.Transpose(s.q, w, in[0].F32s()[a.Q.At(b, h, from):], a.Q.Token, n, a.Depth)
	for c := range w {
		s.top[c], s.sum[c] = tile.Lowest, 0
	}
	clear(s.bias)
	keys, before := a.seen(in, b, from+n)
	if keys == 0 {
		clear(s.out[:a.Width*w])
	}
	for t := 0; t < keys; t += keyBlock {
		rows := min(keyBlock, keys-t)
		tile.Product(rows, a.Depth, k[t*a.K.Token:], a.K.Token, 1, s.q, w, w, s.scores, w, false)
		masked := a.maskRows() > 0
		if masked {
			loadMask(a.Mask, in[3], maskPart{b, h, from, t, n, rows}, s.mask, w)
		} else if a.Mask != nil {
			loadMask(a.Mask, in[3], maskPart{b, h, 0, t, 1, rows}, s.bias, 1)
			for r, x := range s.bias[:rows] {
				if x == -inf { // whatever the scores are
					fill(s.scores[r*w:(r+1)*w], -inf)
				}
			}
		}
		if a.Causal && masked {
			hideLater(s.mask, w, rows, before+from-t)
		} else if a.Causal {
			hideLater(s.scores, w, rows, before+from-t)
		}
		if t > 0 {
			copy(s.was[:w], s.top)
		}
		if masked {
			tile.MaskMax(rows, w, s.scores, s.mask, s.top, a.Scale)
		} else {
			tile.Max(rows, w, s.scores, s.bias, s.top, a.Scale)
		}
		if t > 0 { // what was summed so far is relative to another maximum
			tile.Exp(1, w, s.was, s.top, s.unused)
			tile.Scale(1, w, s.sum, s.was)
			tile.Scale(a.Width, w, s.out, s.was)
		}
		tile.Exp(rows, w, s.scores, s.top, s.sum)
		tile.Product(a.Width, rows, v[t*a.V.Token:], 1, a.V.Token, s.scores, w, w, s.out, w, t > 0)
	}
	for c, total := range s.sum[:w] {
		s.sum[c] = 0 // a query that sees no key
		if total != 0 {
			s.sum[c] = 1 / total
		}
	}
	tile.Scale(a.Width, w, s.out, s.sum)
	vec.Transpose(y[a.Y.At(b, h, from):], a.Y.Token, s.out, w, a.Width, n)
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

// maskPart is the part of a mask for some queries of a head and some keys.
type maskPart struct {
	sample, head, query, key int // the first ones
	queries, keys            int // how many
}

// loadMask writes a part of a mask to a tile whose rows, ld elements apart, are keys.
func loadMask(m *op.AttentionMask, t *tensor.Tensor, p maskPart, dst []float32, ld int) {
	n, known := p.queries, min(p.keys, max(0, m.Keys-p.key))
	at := p.sample*m.Batch + p.head*m.Head + p.query*m.Query + p.key
	switch {
	case known == 0:
	case !m.Bool && n == 1:
		for r, v := range t.F32s()[at:][:known] {
			dst[r*ld] = v
		}
	case !m.Bool && m.Query == 0:
		for r, v := range t.F32s()[at:][:known] {
			fill(dst[r*ld:][:n], v)
		}
	case !m.Bool:
		vec.Transpose(dst, ld, t.F32s()[at:], m.Query, n, known)
	default:
		for c := range n {
			for r, v := range t.Bytes()[at+c*m.Query:][:known] {
				dst[r*ld+c] = 0
				if v == 0 {
					dst[r*ld+c] = -inf
				}
			}
		}
	}
	for r := known; r < p.keys; r++ {
		fill(dst[r*ld:][:n], -inf)
	}
}
