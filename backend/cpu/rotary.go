package cpu

import (
	"spc/backend/cpu/tile"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindRotary turns neighbours by constant angles, which are written out for all
// elements of a sample [S,H*D], or of a head [S,D] where heads come first.
func bindRotary(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.RotaryEmbedding)
	cos, ok1 := constantF32(n, 1)
	sin, ok2 := constantF32(n, 2)
	if !f32(n) || !ok1 || !ok2 || n.Input(3) != nil || !o.Interleaved {
		return nil, nil
	}
	shape, cache := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1])
	if prod(shape) == 0 || cache[0] != 1 {
		return nil, nil
	}
	tokens, heads, depth, pairs := cache[1], 1, shape[len(shape)-1], cache[2]
	if len(shape) == 3 {
		heads = *o.Heads
		depth /= heads
	}
	if 2*pairs != depth { // the rest of a head would be multiplied by zero
		return nil, nil
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
