package cpu

import (
	"fmt"
	"math"
	"slices"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// reach is the rectangle of output pixels for which a tap reads pixels and not the zeros around the image.
type reach struct {
	tap, first []int // by axis
	geo        convGeometry
}

// reaches lists the taps that read pixels.
func (g *convGeometry) reaches() []reach {
	list := []reach{{}}
	for d, s := range g.spans {
		var next []reach
		for _, r := range list {
			for t := range s.Kernel {
				from := t*s.Dilation - s.Begin // the input pixel of output pixel 0
				first := max(0, (-from+s.Stride-1)/s.Stride)
				if from >= 0 {
					first = 0
				}
				end := min(g.out[d], (g.in[d]-from+s.Stride-1)/s.Stride)
				if end <= first {
					continue
				}
				n, begin := end-first, -from-first*s.Stride
				q := reach{tap: append(r.tap[:d:d], t), first: append(r.first[:d:d], first)}
				q.geo.out = append(r.geo.out[:d:d], n)
				q.geo.spans = append(r.geo.spans[:d:d], op.Span{Kernel: 1, Stride: s.Stride, Dilation: 1, Begin: begin, End: (n-1)*s.Stride + 1 - g.in[d] - begin})
				next = append(next, q)
			}
		}
		list = next
	}
	return list
}

// bindTaps computes a convolution tap by tap, each for the pixels where it reads the image, and adds them up: with large dilations
// that is a small part of all. It is nil where it is not, and for groups. Weights that are not dense are unpacked, which pays
// where five sixths of the work go.
func bindTaps(p *program, v *ir.Value, g *convGeometry, ep epilogue) (*bound, error) {
	if g.groups > 1 || len(g.spans) > 2 || !slices.ContainsFunc(g.spans, func(s op.Span) bool { return s.Dilation > 1 }) {
		return nil, nil
	}
	list, work, inf := g.reaches(), 0, float32(math.Inf(1))
	nothing := epilogue{residual: -1, lo: -inf, hi: inf}
	for i := range list {
		r := &list[i].geo
		r.in, r.channels, r.images, r.rows, r.groups, r.taps = g.in, g.channels, g.images, g.rows, 1, 1
		r.inPlane, r.outPlane = g.inPlane, prod(r.out)
		work += r.outPlane
	}
	all := g.taps * g.outPlane
	if 2*work > all || denseValues(v) == nil && 6*work > all {
		return nil, nil
	}
	whole, parts, largest := &bound{inplace: -1}, make([]*bound, len(list)), 0
	for i := range list {
		r := &list[i]
		k, err := prepared(p, keyOfWeight(v, fmt.Sprint("tap ", r.tap)), func() (backend.FloatKernel, error) { return tapKernel(v, r.tap) })
		if err != nil {
			return nil, err
		}
		parts[i] = r.geo.plain(sized([]backend.FloatKernel{k}, r.geo.images*r.geo.outPlane), nothing)
		largest = max(largest, r.geo.images*r.geo.rows*r.geo.outPlane)
		whole.scratch, whole.shared = max(whole.scratch, parts[i].scratch), max(whole.shared, parts[i].shared)
	}
	whole.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		buffer := tensor.New(tensor.F32, largest)
		runs := make([]func() error, len(parts))
		for i, b := range parts {
			runs[i] = b.prepare(x, in, []*tensor.Tensor{buffer})
		}
		var r *reach
		var y, res []float32
		add := func(_, plane int) {
			r.add(y[plane*g.outPlane:][:g.outPlane], buffer.F32s()[plane*r.geo.outPlane:], g.out)
		}
		finish := func(_, plane int) {
			row, other := y[plane*g.outPlane:][:g.outPlane], []float32(nil)
			if res != nil {
				other = res[plane*g.outPlane:][:g.outPlane]
			}
			ep.apply(row, row, plane%g.rows, other)
		}
		return func() error {
			y, res = out[0].F32s(), nil
			if ep.residual >= 0 {
				res = in[ep.residual].F32s()
			}
			clear(y)
			for i, run := range runs {
				if err := run(); err != nil {
					return err
				}
				r = &list[i]
				x.pool.For(g.images*g.rows, add)
			}
			x.pool.For(g.images*g.rows, finish)
			return nil
		}
	}
	return whole, nil
}

// tapKernel prepares the matrix [M,C] of one tap of W[M,C,k1..kn].
func tapKernel(v *ir.Value, tap []int) (backend.FloatKernel, error) {
	w := v.Const
	if w == nil {
		var err error
		if w, err = format.Unpack(v.Store, v.Type); err != nil {
			return nil, err
		}
	}
	m, c := w.Dim(0), w.Dim(1)
	sizes := []int{m, c}
	for range tap {
		sizes = append(sizes, 1)
	}
	return dense.Kernel(window(w.To(tensor.F32), append([]int{0, 0}, tap...), sizes).Reshape(m, c)), nil
}

// add adds the tap's products x to a plane y of the output.
func (r *reach) add(y, x []float32, out []int) {
	last := len(out) - 1
	width, rows := r.geo.out[last], 1
	if last == 1 {
		rows = r.geo.out[0]
	}
	for i := range rows {
		at := r.first[last]
		if last == 1 {
			at += (r.first[0] + i) * out[1]
		}
		vec.Axpy(y[at:][:width], 1, x[i*width:])
	}
}
