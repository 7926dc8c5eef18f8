package cpu

import (
	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/rate"
	"spc/ir/tensor"
)

// narrow reports whether a pointwise convolution of one image leaves more lanes idle as columns of panels than its rows would.
func (g *convGeometry) narrow(threads int) bool {
	n, m := g.outPlane, g.rows
	strips, panels := narrowStrips(n), (m+backend.Panel-1)/backend.Panel
	balanced := strips*panels%threads == 0 || strips*panels >= 4*threads
	return balanced && g.images == 1 && g.groups == 1 && g.taps == 1 && g.depth == nil && newPlanes(g, true).direct && rate.Narrow(m, n)
}

// narrowStrips is the number of strips of so many columns.
func narrowStrips(n int) int { return (n + backend.Panel - 1) / backend.Panel }

// bindNarrow makes the kernel of a convolution that is narrow: rows of W are the lanes, and results are transposed
// on their way.
func (g *convGeometry) bindNarrow(k backend.Narrow, ep epilogue) *bound {
	const tile = backend.Panel * backend.Panel
	n, strips := g.outPlane, narrowStrips(g.outPlane)
	return &bound{inplace: ep.residual, alone: true, scratch: 2 * tile, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		x.warm(k, true)
		var xs, ys, res []float32
		body := func(worker, i int) {
			col, end := i%strips*n/strips, (i%strips+1)*n/strips
			m0 := i / strips * backend.Panel
			m1 := min(g.rows, m0+backend.Panel)
			t, y := x.scratch[worker][:tile], x.scratch[worker][tile:]
			k.Narrow(t, xs[col:], n, end-col, m0)
			vec.Transpose(y, backend.Panel, t, backend.Panel, end-col, m1-m0)
			ep.tile(ys, res, m0*n+col, n, y, m0, m1-m0, end-col)
		}
		return func() error {
			xs, ys, res = in[0].F32s(), out[0].F32s(), nil
			if ep.residual >= 0 {
				res = in[ep.residual].F32s()
			}
			x.pool.For(strips*((g.rows+backend.Panel-1)/backend.Panel), body)
			return nil
		}
	}}
}
