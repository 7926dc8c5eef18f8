package cpu

import (
	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/ikernel"
	"spc/ir/op"
	"spc/ir/tensor"
)

// integerPatches is a convolution of integers whose windows share no pixel, as in patches of an image: a product with what windows see, one
// token each.
type integerPatches struct {
	kernel backend.TokenKernel
	ep     *integerEpilogue
	images int

	tokens, m, k, ldx       int
	channels, plane         int   // of an image, and the elements of a channel
	firsts                  []int // of the windows in a plane
	lines, width, between   int   // of a window: runs of elements, and from one to the next
	laid, sums, turned, tmp int   // floats
}

// patches returns the convolution in this form, nil where it has none or another is as fast.
func (g *convGeometry) patches(kernel backend.IntegerKernel, ep *integerEpilogue) *integerPatches {
	direct, ok := kernel.(backend.TokenKernel)
	if !ok || ep.ones != nil || !g.disjoint() || g.taps <= 4 || !direct.Direct(g.outPlane) {
		return nil
	}
	last := g.spans[len(g.spans)-1]
	if last.Dilation != 1 {
		return nil
	}
	taps, firsts := g.windows()
	c := &integerPatches{
		kernel: direct, ep: ep, images: g.images, tokens: g.outPlane, m: g.rows, k: g.channels * g.taps,
		channels: g.channels, plane: g.inPlane, firsts: firsts, lines: g.taps / last.Kernel, width: last.Kernel,
	}
	if c.lines > 1 {
		c.between = taps[last.Kernel]
	}
	c.ldx = ikernel.Group * ikernel.Groups(c.k)
	c.laid, c.sums, c.turned, c.tmp = floats(c.tokens*c.ldx), tokenRows*tokenRows, tokenRows*tokenRows, ep.scratch()
	return c
}

func (c *integerPatches) bound() *bound {
	const block = tokenRows
	tokens, rows := (c.tokens+block-1)/block, (c.m+block-1)/block
	return &bound{inplace: -1, shared: c.laid, scratch: c.sums + c.turned + c.tmp, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		x.warm(c.kernel, true)
		ep := c.ep.own()
		laid := asBytes(x.shared[:c.laid])
		var src []uint8
		var y, res ikernel.Elems
		lay := func(_, t int) {
			row := laid[t*c.ldx:][:c.ldx]
			clear(row[c.k:])
			for ch := range c.channels {
				ep.kern.Frame(row[ch*c.lines*c.width:], c.width, src[ch*c.plane+c.firsts[t]:], c.between, 1, c.lines, c.width, 0, 0, 0)
			}
		}
		multiply := func(worker, i int) {
			s := x.scratch[worker]
			sums, turned, tmp := asInts(s[:c.sums]), s[c.sums:][:c.turned], s[c.sums+c.turned:]
			t, r := i/rows*block, i%rows*block
			n, count := min(block, c.tokens-t), min(block, c.m-r)
			c.kernel.Tokens(sums, laid[t*c.ldx:], c.ldx, n, r, r+count)
			vec.Transpose(turned, block, asFloats(sums), block, n, count)
			to := r*c.tokens + t
			ep.finish(r, count, n, intRows{asInts(turned), block}, y.From(to), res.From(to), c.tokens, tmp)
		}
		return func() error {
			ep.begin(in, 0)
			for img := range c.images {
				src = in[0].Bytes()[img*c.channels*c.plane:][:c.channels*c.plane]
				y = elemsOf(out[0]).From(img * c.m * c.tokens)
				if ep.residual >= 0 {
					res = elemsOf(in[op.Residual]).From(img * c.m * c.tokens)
				}
				x.pool.For(c.tokens, lay)
				x.pool.For(tokens*rows, multiply)
			}
			return nil
		}
	}}
}
