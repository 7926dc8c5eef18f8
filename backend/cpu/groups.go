package cpu

import (
	"spc/backend"
	"spc/backend/format/dense"
	"spc/backend/format/rate"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
)

// bindGroups makes the kernel of a convolution whose groups are divided between the threads. A thread lays out the planes
// of a group and multiplies them before those of the next.
func (g *convGeometry) bindGroups(kernels []backend.FloatKernel, ep epilogue, l *planes) *bound {
	laid := 0
	if !l.direct {
		laid = g.channels*l.channel + 2*backend.Panel // behind the last plane strips read what no pixel depends on
	}
	room := l.panel(kernels[0])
	b := &bound{inplace: ep.residual, alone: true, scratch: laid + room + productScratch(kernels[0], g.rows)}
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		var xs, ys, res []float32
		img, src := make([]int, x.pool.Threads()), make([][]float32, x.pool.Threads())
		begin, load := l.loads(x.pool.Threads())
		products := make([]product, g.groups)
		for group := range products {
			x.warm(kernels[group], false)
			products[group] = product{kernel: kernels[group], m: g.rows, k: g.channels * g.taps, n: l.columns(1), begin: begin,
				load: func(worker int, panel []float32, k0, k1, col, _ int) []float32 {
					return load(worker, panel, src[worker], k0, k1, col)
				},
				store: func(worker int, y []float32, r0, rows, col, n int) {
					to, ld := g.result(img[worker], group*g.rows+r0)
					for at := 0; at < n; {
						s := l.pixels(col+at, n-at)
						ep.tile(ys, res, to+s.pixel, ld, y[at:], group*g.rows+r0, rows, s.count)
						at += s.width
					}
				},
			}
		}
		d := products[0].divide(1)
		body := func(worker, i int) {
			group, s := i%g.groups, x.scratch[worker]
			img[worker], src[worker] = i/g.groups, s[:laid]
			if l.direct {
				src[worker] = xs[g.plane(img[worker], group*g.channels):]
			} else {
				for c := range g.channels {
					l.layOut(s[c*l.channel:][:l.channel], xs, img[worker], group*g.channels+c)
				}
			}
			p := &products[group]
			for strip := range d.strips() {
				granules, col, n := d.columns(strip, p.n)
				if begin != nil {
					begin(worker, col, n)
				}
				p.strip(worker, granules, col, n, 0, g.rows, s[laid:][:room], s[laid+room:])
			}
		}
		return func() error {
			xs, ys, res = in[0].F32s(), out[0].F32s(), nil
			if ep.residual >= 0 {
				res = in[ep.residual].F32s()
			}
			x.pool.For(g.images*g.groups, body)
			return nil
		}
	}
	return b
}

// inBlocks returns the kernels of the groups of a dense weight as blocks of so many rows as the groups' few fill: those
// read what taps see where it lies.
func (p *program) inBlocks(n *ir.Node, g *convGeometry) ([]backend.FloatKernel, error) {
	v := n.Inputs[1]
	return prepared(p, keyOfWeight(v, "groups"), func() ([]backend.FloatKernel, error) {
		height, best := 0, 0.0
		for _, h := range []int{4, 8, 16} {
			if e := float64(g.rows) / float64((g.rows+h-1)/h*h) * rate.Blocks[h].Panel; e >= best {
				height, best = h, e
			}
		}
		t := denseValues(v)
		size := t.Len() / g.groups
		kernels := make([]backend.FloatKernel, g.groups)
		for i := range kernels {
			w := tensor.From(t.F32s()[i*size:][:size], g.rows, size/g.rows)
			b, err := sparse.Find(w, height, 1, w.Dim(1)) // zeros, too
			if err == nil {
				kernels[i], err = b.Kernel(dense.Name)
			}
			if err != nil {
				return nil, n.Errorf(ir.ErrInvalid, "weight %s: %v", v.Name, err)
			}
			p.source(kernels[i], t.Bytes()[4*i*size:][:4*size])
			p.copied(kernels[i])
		}
		return kernels, nil
	})
}
