package cpu

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/dense"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// outPhase is the pixels of the output of a transposed convolution with one position modulo the strides: a plain convolution of
// the input with the taps that reach them, reversed (Shi et al., 2016, "Is the deconvolution layer the same as a convolutional
// layer?").
type outPhase struct {
	first []int // pixel, by axis
	tap   []int // the first that reaches it
	geo   convGeometry
}

// outPhases lists the phases. Kernels have strides' sizes at least and no dilation, so that taps reach every phase.
func outPhases(spans []op.Span, in, out []int) []outPhase {
	phases := []outPhase{{}}
	for d, s := range spans {
		var next []outPhase
		for _, p := range phases {
			for r := range min(s.Stride, out[d]) {
				tap := (r + s.Begin) % s.Stride
				taps := (s.Kernel - tap + s.Stride - 1) / s.Stride
				count := (out[d] - r + s.Stride - 1) / s.Stride
				begin := taps - 1 - (r+s.Begin-tap)/s.Stride
				q := outPhase{first: append(p.first[:d:d], r), tap: append(p.tap[:d:d], tap)}
				q.geo.spans = append(p.geo.spans[:d:d], op.Span{Kernel: taps, Stride: 1, Dilation: 1, Begin: begin, End: count + taps - 1 - in[d] - begin})
				q.geo.out = append(p.geo.out[:d:d], count)
				next = append(next, q)
			}
		}
		phases = next
	}
	return phases
}

// weight returns the rows [C*taps,M] of the phase of W[C,M,k1..kn], the last tap first.
func (p *outPhase) weight(w *tensor.Tensor, spans []op.Span) *tensor.Tensor {
	c, m, taps := w.Dim(0), w.Dim(1), prod(w.Shape()[2:])
	own := p.geo.taps
	t := tensor.New(tensor.F32, c*own, m)
	src, dst := w.F32s(), t.F32s()
	for u := range own {
		at, scale, rest := 0, 1, u
		for d := len(spans) - 1; d >= 0; d-- {
			n := p.geo.spans[d].Kernel
			at += (p.tap[d] + (n-1-rest%n)*spans[d].Stride) * scale
			scale *= spans[d].Kernel
			rest /= n
		}
		for ch := range c {
			for r := range m {
				dst[(ch*own+u)*m+r] = src[(ch*m+r)*taps+at]
			}
		}
	}
	return t
}

// bindSubpixels computes a transposed convolution with strides, whose weight is dense, phase by phase. It is nil for others.
func bindSubpixels(p *program, n *ir.Node, spans []op.Span, out []int) (*bound, error) {
	o, v := n.Op.(*op.ConvTranspose), n.Inputs[1]
	bias, ok := constantF32(n, 2)
	xs, ws := shapeOf(n.Inputs[0]), shapeOf(v)
	if !ok || n.Input(op.Residual) != nil || !o.Subpixels(ws[2:]) || v.Store != nil && v.Store.Format != dense.Name {
		return nil, nil
	}
	w := v.Const
	if w == nil {
		var err error
		if w, err = p.unpack(v); err != nil {
			return nil, err
		}
	}
	ep := newEpilogue(n, &o.Epilogue, bias)
	phases := outPhases(spans, xs[2:], out)
	parts, largest, whole := make([]*bound, len(phases)), 0, &bound{inplace: -1}
	for i := range phases {
		f := &phases[i]
		g := &f.geo
		g.in, g.channels, g.images, g.rows, g.groups, g.taps = xs[2:], xs[1], xs[0], ws[1], 1, 1
		for _, s := range g.spans {
			g.taps *= s.Kernel
		}
		g.inPlane, g.outPlane = prod(xs[2:]), prod(g.out)
		kernel, err := prepared(p, keyOfWeight(v, fmt.Sprint("phase ", f.tap, " of ", spans)), func() (backend.FloatKernel, error) {
			return dense.NewTransposed(f.weight(w.To(tensor.F32), spans)), nil
		})
		if err != nil {
			return nil, err
		}
		parts[i] = g.plain(sized([]backend.FloatKernel{kernel}, g.images*g.outPlane), ep)
		largest = max(largest, g.images*g.rows*g.outPlane)
		whole.scratch, whole.shared = max(whole.scratch, parts[i].scratch), max(whole.shared, parts[i].shared)
	}
	whole.prepare = func(x *exec, in, outs []*tensor.Tensor) func() error {
		buffer := tensor.New(tensor.F32, largest)
		runs := make([]func() error, len(parts))
		for i, b := range parts {
			runs[i] = b.prepare(x, in, []*tensor.Tensor{buffer})
		}
		var f *outPhase
		var y []float32
		spread := func(_, plane int) {
			f.spread(y[plane*prod(out):], buffer.F32s()[plane*f.geo.outPlane:], spans, out)
		}
		return func() error {
			y = outs[0].F32s()
			for i, run := range runs {
				if err := run(); err != nil {
					return err
				}
				f = &phases[i]
				x.pool.For(xs[0]*ws[1], spread)
			}
			return nil
		}
	}
	return whole, nil
}

// spread copies the pixels of the phase in one plane to where they belong.
func (p *outPhase) spread(y, x []float32, spans []op.Span, out []int) {
	last := len(out) - 1
	width, step, rows := p.geo.out[last], spans[last].Stride, 1
	if last == 1 {
		rows = p.geo.out[0]
	}
	for i := range rows {
		at := p.first[last]
		if last == 1 {
			at += (p.first[0] + i*spans[0].Stride) * out[1]
		}
		row := y[at:]
		for j, v := range x[i*width:][:width] {
			row[j*step] = v
		}
	}
}
