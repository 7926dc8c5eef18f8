package cpu

import (
	"slices"

	"spc/backend"
	"spc/backend/format/dense"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindDisjoint computes a transposed convolution whose windows do not overlap as
// the product of W[M*taps, C] with the input's pixels: row m*taps+t of the result
// is what tap t makes of them in channel m. It is nil for others.
func bindDisjoint(p *program, n *ir.Node, spans []op.Span, in, out []int) *bound {
	o, v := n.Op.(*op.ConvTranspose), n.Inputs[1]
	bias, ok := constantF32(n, 2)
	xs, ws := shapeOf(n.Inputs[0]), shapeOf(v)
	if !ok || denseValues(v) == nil || n.Input(op.Residual) != nil || o.Group > 1 || !o.Disjoint(ws[2:]) {
		return nil
	}
	c, m, taps := ws[0], ws[1], prod(ws[2:])
	kernel, err := prepared(p, keyOfWeight(v, "taps"), func() (backend.FloatKernel, error) {
		w, err := p.elements(v)
		if err != nil {
			return nil, err
		}
		return dense.NewTransposed(w.Reshape(c, m*taps)), nil
	})
	if err != nil {
		return nil
	}
	ep := newEpilogue(n, &o.Epilogue, eachTap(bias, taps))
	last := len(in) - 1
	width, kw := in[last], spans[last].Kernel
	plane := prod(in)
	return &bound{inplace: -1, scratch: productScratch(kernel, m*taps), prepare: func(x *exec, ins, outs []*tensor.Tensor) func() error {
		var xs0, ys []float32
		var image int
		pr := product{kernel: kernel, m: m * taps, k: c, n: plane}
		pr.load = func(_ int, panel []float32, k0, k1, col, n int) []float32 {
			return loadRows(panel, xs0[(image*c+k0)*plane:], k1-k0, plane, col, n)
		}
		pr.store = func(_ int, y []float32, r0, rows, col, n int) {
			for r := range rows {
				row := y[r*backend.Panel:][:n]
				ep.apply(row, row, r0+r, nil)
			}
			for r := 0; r < rows; {
				m0, t := (r0+r)/taps, (r0+r)%taps
				to := ys[(image*m+m0)*plane*taps:][:plane*taps]
				beside := min(kw-t%kw, rows-r) // taps that make pixels side by side
				for at := 0; at < n; {
					i, j := (col+at)/width, (col+at)%width
					run := min(n-at, width-j)
					first, size := j*kw+t%kw, width*kw
					for d, i, t := last-1, i, t/kw; d >= 0; d-- {
						k := spans[d].Kernel
						first += (i%in[d]*k + t%k) * size
						size *= out[d]
						i, t = i/in[d], t/k
					}
					interleave(to[first:], kw, y[r*backend.Panel+at:], backend.Panel, beside, run)
					at += run
				}
				r += beside
			}
		}
		run := pr.prepare(x)
		return func() error {
			xs0, ys = ins[0].F32s(), outs[0].F32s()
			for image = range xs[0] {
				run()
			}
			return nil
		}
	}}
}

// spread reports whether the image of a transposed convolution is one pixel, of which each tap makes one of the output.
func (g *convGeometry) spread() bool {
	for i, s := range g.spans {
		if g.in[i] != 1 || s.Begin != 0 || g.out[i] != s.Kernel || s.Kernel > 1 && s.Dilation != 1 {
			return false
		}
	}
	return g.groups == 1
}

// bindSpread makes the kernel of such a convolution, which is a linear layer of M*taps features.
func bindSpread(p *program, n *ir.Node, g *convGeometry, ep epilogue) (*bound, error) {
	v := n.Inputs[1]
	kernels, err := prepared(p, keyOfWeight(v, "spread"), func() ([]backend.FloatKernel, error) {
		w, err := elementsOf(n)
		if err != nil {
			return nil, err
		}
		rows := ir.View{RowAxes: w.Rank() - 1} // W^T[M*taps,C] of W[C,M,k1..kn]
		for axis := range w.Rank() {
			rows.Perm = append(rows.Perm, (axis+1)%w.Rank())
		}
		return kernelsOfTaps(v, rows.Matrix(w), 1)
	})
	if err != nil {
		return nil, err
	}
	ep.bias = eachTap(ep.bias, g.taps)
	l := &linear{kernel: sized(kernels, g.images)[0], tokens: g.images, m: g.rows * g.taps, k: g.channels, scale: 1, ep: ep, add: -1}
	return l.bound(), nil
}

// eachTap repeats the bias of a channel for each of its taps.
func eachTap(bias []float32, taps int) []float32 {
	var all []float32
	for _, b := range bias {
		all = append(all, slices.Repeat([]float32{b}, taps)...)
	}
	return all
}
