package cpu

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// axisPiece is a piece of a convolution along one axis: a plain convolution of the input with some taps, whose count results are
// pixels first, first+step and so on of the output.
type axisPiece struct {
	taps               []int
	first, step, count int
	window             op.Span
}

// phases lists the pieces along an axis of a transposed convolution that has a tap for each of its strides at least: the
// pixels with one position modulo the stride, and the taps that reach them, the last first (Shi et al., 2016, "Is the
// deconvolution layer the same as a convolutional layer?").
func phases(s op.Span, in, out int) []axisPiece {
	var list []axisPiece
	for r := range min(s.Stride, out) {
		p := axisPiece{first: r, step: s.Stride, count: (out - r + s.Stride - 1) / s.Stride}
		lowest := (r + s.Begin) % s.Stride
		for t := lowest; t < s.Kernel; t += s.Stride {
			p.taps = append(p.taps, t)
		}
		slices.Reverse(p.taps)
		n := len(p.taps)
		begin := n - 1 - (r+s.Begin-lowest)/s.Stride
		p.window = op.Span{Kernel: n, Stride: 1, Dilation: 1, Begin: begin, End: p.count + n - 1 - in - begin}
		list = append(list, p)
	}
	return list
}

// reaches lists the pieces along an axis of a convolution that are one tap each, for the pixels where that reads the image and
// not the zeros around it.
func reaches(s op.Span, in, out int) []axisPiece {
	var list []axisPiece
	for t := range s.Kernel {
		from := t*s.Dilation - s.Begin // the input pixel of output pixel 0
		first := max(0, (s.Stride-1-from)/s.Stride)
		count := min(out, (in-from+s.Stride-1)/s.Stride) - first
		if count <= 0 {
			continue
		}
		begin := -from - first*s.Stride
		window := op.Span{Kernel: 1, Stride: s.Stride, Dilation: 1, Begin: begin, End: (count-1)*s.Stride + 1 - in - begin}
		list = append(list, axisPiece{taps: []int{t}, first: first, step: 1, count: count, window: window})
	}
	return list
}

// piece is one of several plain convolutions that a convolution is computed by.
type piece struct {
	taps        []int // of the weight, in the order in which they are computed
	first, step []int // of its pixels in the output, by axis
	geo         convGeometry
}

// pieces combines the pieces along each axis of g.
func (g *convGeometry) pieces(along func(s op.Span, in, out int) []axisPiece) []piece {
	list := []piece{{taps: []int{0}}}
	for d, s := range g.spans {
		var next []piece
		for _, p := range list {
			for _, a := range along(s, g.in[d], g.out[d]) {
				q := piece{first: append(p.first[:d:d], a.first), step: append(p.step[:d:d], a.step)}
				for _, t := range p.taps {
					for _, u := range a.taps {
						q.taps = append(q.taps, t*s.Kernel+u)
					}
				}
				q.geo.spans, q.geo.out = append(p.geo.spans[:d:d], a.window), append(p.geo.out[:d:d], a.count)
				next = append(next, q)
			}
		}
		list = next
	}
	for i := range list {
		r := &list[i].geo
		r.in, r.inPlane, r.channels, r.images, r.rows, r.groups = g.in, g.inPlane, g.channels, g.images, g.rows, 1
		r.taps, r.outPlane = len(list[i].taps), prod(r.out)
	}
	return list
}

// put stores a plane of results where they belong in one of the output, or adds them to what is there.
func (p *piece) put(y, x []float32, out []int, add bool) {
	last := len(out) - 1
	width, step, rows := p.geo.out[last], p.step[last], 1
	if last == 1 {
		rows = p.geo.out[0]
	}
	for i := range rows {
		at, src := p.first[last], x[i*width:][:width]
		if last == 1 {
			at += (p.first[0] + i*p.step[0]) * out[1]
		}
		switch dst := y[at:]; {
		case add && step == 1:
			vec.Axpy(dst[:width], 1, src)
		case add:
			for j, v := range src {
				dst[j*step] += v
			}
		default:
			for j, v := range src {
				dst[j*step] = v
			}
		}
	}
}

// bindTaps computes a dilated convolution tap by tap, where taps reach so few pixels that most products would be of zeros. It is
// nil for others, and for groups. Weights that are not dense are unpacked, which pays where five sixths of the products go.
func bindTaps(p *program, n *ir.Node, g *convGeometry, ep epilogue) (*bound, error) {
	if g.groups > 1 || len(g.spans) > 2 || !slices.ContainsFunc(g.spans, func(s op.Span) bool { return s.Dilation > 1 }) {
		return nil, nil
	}
	list, work := g.pieces(reaches), 0
	for _, r := range list {
		work += r.geo.outPlane
	}
	if all := g.taps * g.outPlane; 2*work > all || denseValues(n.Inputs[1]) == nil && 6*work > all {
		return nil, nil
	}
	inf := float32(math.Inf(1))
	whole, parts, err := bindPieces(p, n, g, list, epilogue{residual: -1, lo: -inf, hi: inf})
	if err != nil {
		return nil, err
	}
	whole.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		var y, res []float32
		run := parts(x, in, true)
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
			if err := run(y); err != nil {
				return err
			}
			x.pool.For(g.images*g.rows, finish)
			return nil
		}
	}
	return whole, nil
}

// bindPhases computes a transposed convolution with strides, whose weight is dense, phase by phase. It is nil for others.
func bindPhases(p *program, n *ir.Node, g *convGeometry, ep epilogue) (*bound, error) {
	v := n.Inputs[1]
	if n.Input(op.Residual) != nil || !n.Op.(*op.ConvTranspose).Phases(shapeOf(v)[2:]) || denseValues(v) == nil {
		return nil, nil
	}
	whole, parts, err := bindPieces(p, n, g, g.pieces(phases), ep)
	if err != nil {
		return nil, err
	}
	whole.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		run := parts(x, in, false)
		return func() error { return run(out[0].F32s()) }
	}
	return whole, nil
}

// bindPieces makes the kernels of pieces of g, each with the epilogue, and a function that prepares running them: one
// after the other, their results, which lie in a buffer meanwhile, are put into the output or added to it.
func bindPieces(p *program, n *ir.Node, g *convGeometry, list []piece, ep epilogue) (*bound, func(x *exec, in []*tensor.Tensor, add bool) func(y []float32) error, error) {
	v := n.Inputs[1]
	elements := sync.OnceValues(func() (*tensor.Tensor, error) {
		if v.Const != nil {
			return v.Const.To(tensor.F32), nil
		}
		w, err := format.Unpack(v.Store, v.Type)
		if err != nil {
			return nil, n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
		}
		return w.To(tensor.F32), nil
	})
	parts, largest, whole := make([]*bound, len(list)), 0, &bound{inplace: -1}
	for i := range list {
		r := &list[i]
		k, err := prepared(p, keyOfWeight(v, fmt.Sprint("taps ", r.taps, g.transposed)), func() (backend.FloatKernel, error) {
			w, err := elements()
			if err != nil {
				return nil, err
			}
			return ofTaps(w, r.taps, g.transposed), nil
		})
		if err != nil {
			return nil, nil, err
		}
		parts[i] = r.geo.plain(sized([]backend.FloatKernel{k}, g.images*r.geo.outPlane), ep, p.pool.Threads())
		largest = max(largest, g.images*g.rows*r.geo.outPlane)
		whole.scratch, whole.shared = max(whole.scratch, parts[i].scratch), max(whole.shared, parts[i].shared)
	}
	return whole, func(x *exec, in []*tensor.Tensor, add bool) func(y []float32) error {
		buffer := tensor.New(tensor.F32, largest)
		runs := make([]func() error, len(parts))
		for i, b := range parts {
			runs[i] = b.prepare(x, in, []*tensor.Tensor{buffer})
		}
		var r *piece
		var y []float32
		put := func(_, plane int) {
			r.put(y[plane*g.outPlane:][:g.outPlane], buffer.F32s()[plane*r.geo.outPlane:], g.out, add)
		}
		return func(to []float32) error {
			y = to
			for i, run := range runs {
				if err := run(); err != nil {
					return err
				}
				r = &list[i]
				x.pool.For(g.images*g.rows, put)
			}
			return nil
		}
	}, nil
}

// ofTaps prepares the matrix [M,C*taps] of some taps of W[M,C,k1..kn], of W[C,M,k1..kn] if that is transposed.
func ofTaps(w *tensor.Tensor, taps []int, transposed bool) backend.FloatKernel {
	d0, d1, all := w.Dim(0), w.Dim(1), prod(w.Shape()[2:])
	src, dst := w.F32s(), make([]float32, d0*d1*len(taps))
	for i := range d0 {
		for j := range d1 {
			for u, t := range taps {
				at := (i*d1+j)*len(taps) + u
				if transposed {
					at = (i*len(taps)+u)*d1 + j
				}
				dst[at] = src[(i*d1+j)*all+t]
			}
		}
	}
	if transposed {
		return dense.NewTransposed(tensor.From(dst, d0*len(taps), d1))
	}
	return dense.Kernel(tensor.From(dst, d0, d1*len(taps)))
}
