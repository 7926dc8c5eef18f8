package cpu

import (
	"spc/backend"
	"spc/backend/format/ukernel"
	"spc/ir/tensor"
)

// bandFloats bounds the planes of a band, which stay in the level 2 cache beside a weight.
const bandFloats = 96 << 10

// inBands returns l for the bands of images that threads compute by themselves, nil where they do better together: a band
// has rows of its neighbours laid out again.
func (l *planes) inBands(threads int) *planes {
	if l.strip == nil || l.strip.inPlace || l.outH == 1 {
		return nil
	}
	row := l.g.channels * len(l.phases) * l.cols
	rows := bandFloats/row - l.reach()
	if rows < max(1, 2*l.reach()) || l.image() < 2*bandFloats {
		return nil
	}
	bands := (l.outH + rows - 1) / rows
	for bands%threads != 0 {
		bands++
	}
	return l.banded((l.outH + bands - 1) / bands)
}

// bindBands makes the kernel of a convolution whose groups, or bands of whose images, are divided between the threads. A
// thread lays out the planes of a group's band and multiplies them before those of the next.
func (g *convGeometry) bindBands(kernels []backend.FloatKernel, ep epilogue, l *planes) *bound {
	laid := 0
	if !l.direct {
		laid = g.channels*l.channel + 2*backend.Panel // behind the last plane strips read what no pixel depends on
	}
	room := l.panel(kernels[0])
	b := &bound{inplace: ep.residual, alone: true, scratch: laid + room + productScratch(kernels[0], g.rows)}
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		var xs, ys, res []float32
		// What each thread computes: an image, its first pixel, and its planes.
		img, pixel, src := make([]int, x.pool.Threads()), make([]int, x.pool.Threads()), make([][]float32, x.pool.Threads())
		finishes := make([]ukernel.Finish, x.pool.Threads())
		begin, load := l.loads(x.pool.Threads())
		products := make([]product, g.groups)
		for group := range products {
			x.warm(kernels[group], false)
			products[group] = product{kernel: kernels[group], m: g.rows, k: g.channels * g.taps, begin: begin,
				load: func(worker int, panel []float32, k0, k1, col, _ int) []float32 {
					return load(worker, panel, src[worker], k0, k1, col)
				},
				finish: func(worker, r0, rows, col, n int) *ukernel.Finish {
					s, m := l.pixels(col, n), group*g.rows+r0
					if s.count < n {
						return nil
					}
					to, ld := g.result(img[worker], m)
					return ep.direct(&finishes[worker], ys, res, to+pixel[worker]+s.pixel, ld, m, rows)
				},
				store: func(worker int, y []float32, r0, rows, col, n int) {
					to, ld := g.result(img[worker], group*g.rows+r0)
					for at := 0; at < n; {
						s := l.pixels(col+at, n-at)
						ep.tile(ys, res, to+pixel[worker]+s.pixel, ld, y[at:], group*g.rows+r0, rows, s.count)
						at += s.width
					}
				},
			}
		}
		columns := make([]int, l.bands)
		divisions := make([]division, l.bands)
		for band := range divisions {
			columns[band] = l.bandColumns(band)
			p := products[0]
			p.n = columns[band]
			divisions[band] = p.divide(1)
		}
		body := func(worker, i int) {
			band, group, s := i%l.bands, i/l.bands%g.groups, x.scratch[worker]
			img[worker], src[worker], pixel[worker] = i/l.bands/g.groups, s[:laid], band*l.outH*l.outW
			if l.direct {
				src[worker] = xs[g.plane(img[worker], group*g.channels):]
			} else {
				for c := range g.channels {
					l.layOut(s[c*l.channel:][:l.channel], xs, img[worker], group*g.channels+c, band)
				}
			}
			p, d := &products[group], &divisions[band]
			for strip := range d.strips() {
				granules, col, n := d.columns(strip, columns[band])
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
			x.pool.For(g.images*g.groups*l.bands, body)
			return nil
		}
	}
	return b
}
