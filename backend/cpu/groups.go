package cpu

import (
	"spc/backend"
	"spc/backend/format/dense"
	"spc/backend/format/sparse"
	"spc/backend/machine"
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
		columns, _ := l.columns(1)
		products := make([]product, g.groups)
		for group := range products {
			x.warm(kernels[group], false)
			products[group] = product{kernel: kernels[group], m: g.rows, k: g.channels * g.taps, n: columns, begin: begin,
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

// grouped returns the kernels of the groups of a dense weight.
func (p *program) grouped(n *ir.Node, g *convGeometry) ([]backend.FloatKernel, error) {
	v := n.Inputs[1]
	return prepared(p, keyOfWeight(v, "groups"), func() ([]backend.FloatKernel, error) {
		w := denseValues(v)
		kernels, err := inBlocks(w.Reshape(g.groups*g.rows, g.channels*g.taps), g.groups)
		if err != nil {
			return nil, n.Errorf(ir.ErrInvalid, "weight %s: %v", v.Name, err)
		}
		p.source(kernels[0], w.Bytes())
		p.copied(kernels[0])
		return kernels, nil
	})
}

// inBlocks returns kernels of groups of the rows of a matrix f32, in blocks of so many rows as the groups' few fill: those
// read what taps see where it lies.
func inBlocks(w *tensor.Tensor, groups int) ([]backend.FloatKernel, error) {
	height, best, m := 0, 0.0, w.Dim(0)/groups
	for _, h := range []int{4, 8, 16} {
		if e := float64(m) / float64(sparse.Ceil(m, h)*h) * machine.Default.Of(machine.OfRows(h)).Panel; e >= best {
			height, best = h, e
		}
	}
	kernels := make([]backend.FloatKernel, groups)
	for i := range kernels {
		b, err := sparse.Find(rowsOf(w, i*m, m), height, 1, w.Dim(1)) // zeros, too
		if err == nil {
			kernels[i], err = b.Kernel(dense.Name)
		}
		if err != nil {
			return nil, err
		}
	}
	return kernels, nil
}
