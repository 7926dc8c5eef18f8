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

// bindAttention takes f32 attention without a past, a soft cap or further outputs.
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
	if a.Mask == nil || a.Mask.Query == 0 {
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
	var seen []int64 // the keys that each sample has, where these are given
	body := func(worker, i int) {
		from := i % blocks * c
		i /= blocks
		b, keys, offset := i/a.Heads, a.Keys, a.Band.Offset
		if seen != nil {
			keys, offset = int(seen[b]), int(seen[b])-a.Queries
		}
		a.block(&work[worker], in, out[0].F32s(), attentionBlock{b, i % a.Heads, from, min(c, a.Queries-from), keys, offset + from})
	}
	return func() error {
		if a.Band.Lengths {
			seen = tensor.Data[int64](in[6])
			for _, n := range seen {
				if n < 0 || n > int64(a.Keys) {
					return a.node.Errorf(ir.ErrInvalid, "nonpad_kv_seqlen has %d, want 0 to %d", n, a.Keys)
				}
			}
		}
		x.pool.For(a.Batch*a.Heads*blocks, body)
		return nil
	}
}

// attentionBlock is n queries of a head of a sample, from the given one on.
type attentionBlock struct {
	sample, head, from, n int
	keys                  int // of the sample
	at                    int // the key that the first query stands at
}

// block computes some queries.
func (a *attention) block(s *attentionTiles, in []*tensor.Tensor, y []float32, q attentionBlock) {
	b, h, from, n := q.sample, q.head, q.from, q.n
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
	first, keys := max(0, q.at+a.Band.From), min(q.keys, q.at+n+a.Band.To)
	if first >= keys {
		clear(s.out)
	}
	for t := first; t < keys; t += keyBlock {
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
		hidden := s.scores
		if masked {
			hidden = s.mask
		}
		hideLater(hidden, w, rows, q.at+a.Band.To-t)
		hideEarlier(hidden, w, rows, q.at+a.Band.From-t)
		if t > first {
			copy(s.was[:w], s.top)
		}
		if masked {
			tile.MaskMax(rows, w, s.scores, s.mask, s.top, a.Scale)
		} else {
			tile.Max(rows, w, s.scores, s.bias, s.top, a.Scale)
		}
		if t > first { // what was summed so far is relative to another maximum
			tile.Exp(1, w, s.was, s.top, s.unused)
			tile.Scale(1, w, s.sum, s.was)
			tile.Scale(a.Width, w, s.out, s.was)
		}
		tile.Exp(rows, w, s.scores, s.top, s.sum)
		tile.Product(a.Width, rows, v[t*a.V.Token:], 1, a.V.Token, s.scores, w, w, s.out, w, t > first)
	}
	if a.Alike && q.keys > 0 {
		a.mean(s, v, w, q)
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

// mean gives queries that see no key the mean of all values.
func (a *attention) mean(s *attentionTiles, v []float32, w int, q attentionBlock) {
	for c, total := range s.sum[:q.n] {
		if total != 0 {
			continue
		}
		s.sum[c] = 1
		for d := range a.Width {
			sum := 0.0
			for t := range q.keys {
				sum += float64(v[t*a.V.Token+d])
			}
			s.out[d*w+c] = float32(sum / float64(q.keys))
		}
	}
}

// hideLater hides from query c what comes after row last+c, the last one that it sees.
func hideLater(scores []float32, w, rows, last int) {
	for r := max(0, last+1); r < rows; r++ {
		fill(scores[r*w:][:min(w, r-last)], -inf)
	}
}

// hideEarlier hides from query c what comes before row first+c, the first one that it sees.
func hideEarlier(scores []float32, w, rows, first int) {
	for r := range min(rows, first+w-1) {
		fill(scores[r*w:][max(0, r-first+1):w], -inf)
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
