package cpu

import (
	"spc/backend/cpu/tile"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindRotary turns pairs. Neighbours in whole heads are turned by constant angles, which are the same for all samples,
// that are written out for all elements of a sample [S,H*D], or of a head [S,D] where heads come first.
func bindRotary(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.RotaryEmbedding)
	for _, v := range n.Inputs[:3] {
		if v.Type.DType != tensor.F32 {
			return nil, nil
		}
	}
	shape, cache := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1])
	if prod(shape) == 0 || prod(cache) == 0 {
		return nil, nil
	}
	cos, ok1 := constantF32(n, 1)
	sin, ok2 := constantF32(n, 2)
	tokens, heads, depth, pairs := cache[len(cache)-2], 1, shape[len(shape)-1], cache[len(cache)-1]
	if len(shape) == 3 {
		heads = *o.Heads
		depth /= heads
	}
	if !ok1 || !ok2 || n.Input(3) != nil || !o.Interleaved || cache[0] != 1 || 2*pairs != depth {
		return bindTurns(n, o, depth, pairs), nil
	}
	size := tokens * heads * depth
	c, s := make([]float32, size), make([]float32, size)
	for i := range size {
		at := i/(heads*depth)*pairs + i%depth/2
		if c[i], s[i] = cos[at], sin[at]; i%2 == 0 {
			s[i] = -s[i]
		}
	}
	per := (size + chunk - 1) / chunk // pieces of a sample
	each := (size/per + 1) / 2 * 2
	per = (size + each - 1) / each
	return &bound{inplace: 0, alone: true, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, dst []float32
		body := func(_, i int) {
			from, to := i%per*each, min(size, (i%per+1)*each)
			at := i / per * size
			tile.Rotate(dst[at+from:at+to], src[at+from:], c[from:], s[from:])
		}
		return func() error {
			src, dst = in[0].F32s(), out[0].F32s()
			x.pool.For(prod(shape)/size*per, body)
			return nil
		}
	}}, nil
}

// turns is a RotaryEmbedding of heads of so many elements, by any angles.
type turns struct {
	node          *ir.Node
	heads, tokens int // of a sample
	depth, pairs  int
	packed        bool  // a token has all its heads together
	positions     int   // rows of the angles
	samples       bool  // each has angles of its own
	interleaved   bool  // pairs are neighbours
	at            []int // rows of the angles, by token, where the run names them
}

// bindTurns turns pairs of rows by angles that a run gives.
func bindTurns(n *ir.Node, o *op.RotaryEmbedding, depth, pairs int) *bound {
	shape, cache := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1])
	t := &turns{node: n, heads: shape[1], tokens: shape[len(shape)-2], depth: depth, pairs: pairs, interleaved: o.Interleaved}
	if len(shape) == 3 {
		t.heads, t.packed = *o.Heads, true
	}
	t.positions, t.samples = cache[0], cache[0] > 1
	rows := shape[0] * t.tokens
	if n.Input(3) != nil {
		t.at = make([]int, rows)
	}
	each := max(1, chunk/(t.heads*depth)) // tokens
	return &bound{inplace: 0, alone: true, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		body := func(_, i int) {
			t.turn(in, out[0].F32s(), i*each, min(rows, (i+1)*each))
		}
		return func() error {
			if t.at != nil {
				if err := t.lookUp(tensor.Data[int64](in[3])); err != nil {
					return err
				}
			}
			x.pool.For((rows+each-1)/each, body)
			return nil
		}
	}}
}

// lookUp notes the rows of the angles.
func (t *turns) lookUp(ids []int64) error {
	for i, at := range ids {
		if at < 0 || at >= int64(t.positions) {
			return t.node.Errorf(ir.ErrInvalid, "position %d is not within 0 and %d", at, t.positions-1)
		}
		t.at[i] = int(at)
	}
	return nil
}

// turn turns the tokens of all samples from one to another.
func (t *turns) turn(in []*tensor.Tensor, dst []float32, from, to int) {
	src, cos, sin := in[0].F32s(), in[1].F32s(), in[2].F32s()
	for row := from; row < to; row++ {
		at := row
		if t.at != nil {
			at = t.at[row]
		} else if !t.samples {
			at = row % t.tokens
		}
		c, s := cos[at*t.pairs:][:t.pairs], sin[at*t.pairs:][:t.pairs]
		for h := range t.heads {
			i := row*t.heads + h
			if !t.packed {
				i = (row/t.tokens*t.heads+h)*t.tokens + row%t.tokens
			}
			t.head(dst[i*t.depth:][:t.depth], src[i*t.depth:][:t.depth], c, s)
		}
	}
}

// head turns the pairs of a head, and copies what is behind them.
func (t *turns) head(y, x, cos, sin []float32) {
	if !t.interleaved {
		n := len(cos)
		a, b, ya, yb, sin := x[:n], x[n:2*n], y[:n], y[n:2*n], sin[:n]
		for i, c := range cos {
			p, q, s := a[i], b[i], sin[i]
			ya[i], yb[i] = c*p-s*q, s*p+c*q
		}
	} else {
		for i, c := range cos {
			p, q, s := x[2*i], x[2*i+1], sin[i]
			y[2*i], y[2*i+1] = c*p-s*q, s*p+c*q
		}
	}
	copy(y[2*len(cos):], x[2*len(cos):])
}
