package cpu

import (
	"fmt"
	"slices"
	"sync"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/backend/machine"
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

// phases lists the pieces along an axis of a transposed convolution: the pixels with one position modulo the stride, and
// the taps that reach them, the last first (Shi et al., 2016, "Is the deconvolution layer the same as a convolutional
// layer?"). Pixels that no tap reaches are in none.
func phases(s op.Span, in, out int) []axisPiece {
	var list []axisPiece
	for r := range min(s.Stride, out) {
		p := axisPiece{first: r, step: s.Stride, count: (out - r + s.Stride - 1) / s.Stride}
		from := 0 // the pixel that the last tap reads for the first output pixel, and how far taps are apart there
		dilation := 1
		for t := range s.Kernel {
			if at := r + s.Begin - t*s.Dilation; at%s.Stride == 0 {
				if len(p.taps) > 0 {
					dilation = from - at/s.Stride
				}
				p.taps, from = append(p.taps, t), at/s.Stride
			}
		}
		if len(p.taps) == 0 {
			continue
		}
		slices.Reverse(p.taps)
		reach := (len(p.taps) - 1) * dilation
		p.window = op.Span{Kernel: len(p.taps), Stride: 1, Dilation: dilation, Begin: -from, End: p.count + reach + from - in}
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
		r.in, r.inPlane, r.channels, r.images, r.rows, r.groups = g.in, g.inPlane, g.channels, g.images, g.rows, g.groups
		r.taps, r.outPlane = len(list[i].taps), prod(r.out)
	}
	return list
}

// put stores a plane of results where they belong in one of the output, or adds them to what is there.
func (p *piece) put(y, x []float32, out []int, add bool) {
	last := len(out) - 1
	width, step := p.geo.out[last], p.step[last]
	for i := range prod(p.geo.out[:last]) {
		at, rest, size := p.first[last], i, out[last]
		for d := last - 1; d >= 0; d-- {
			at += (p.first[d] + rest%p.geo.out[d]*p.step[d]) * size
			rest /= p.geo.out[d]
			size *= out[d]
		}
		src := x[i*width:][:width]
		switch dst := y[at:]; {
		case add && step == 1:
			vec.Axpy(dst[:width], 1, src)
		case add:
			for j, v := range src {
				dst[j*step] += v
			}
		case step == 1:
			copy(dst, src)
		default:
			for j, v := range src {
				dst[j*step] = v
			}
		}
	}
}

// pieceProducts is machine.PieceProducts. Tests change it.
var pieceProducts = machine.PieceProducts

// bindTaps computes a dilated convolution tap by tap, where machine.ByTaps says so. It is nil for others.
func bindTaps(p *program, n *ir.Node, g *convGeometry, ep epilogue) (*bound, error) {
	if !slices.ContainsFunc(g.spans, func(s op.Span) bool { return s.Dilation > 1 }) {
		return nil, nil
	}
	list, work := g.pieces(reaches), 0
	for _, r := range list {
		work += r.geo.outPlane
	}
	products := g.images * g.groups * g.rows * g.channels
	if !machine.ByTaps(work, g.taps*g.outPlane, len(list), products, pieceProducts, denseValues(n.Inputs[1]) != nil) {
		return nil, nil
	}
	return bindPieces(p, n, g, list, ep, true)
}

// bindPieces makes the kernel of pieces of g, computed one after the other: their results, which lie in a buffer
// meanwhile, are put into the output, of which each pixel is in one piece at most, or with add set added to it.
func bindPieces(p *program, n *ir.Node, g *convGeometry, list []piece, ep epilogue, add bool) (*bound, error) {
	elements := sync.OnceValues(func() (*tensor.Tensor, error) { return elementsOf(n) })
	if len(list) == 1 && list[0].geo.outPlane == g.outPlane {
		return p.bindPiece(n, g, &list[0], ep, elements)
	}
	each, later := ep, add || ep.residual >= 0
	if later {
		each = epilogue{residual: -1, lo: -inf, hi: inf}
	}
	parts, largest, rest, whole := make([]*bound, len(list)), 0, g.outPlane, &bound{inplace: -1}
	for i := range list {
		r := &list[i]
		largest, rest = max(largest, g.images*g.groups*g.rows*r.geo.outPlane), rest-r.geo.outPlane
		b, err := p.bindPiece(n, g, r, each, elements)
		if err != nil {
			return nil, err
		}
		parts[i], whole.scratch, whole.shared = b, max(whole.scratch, b.scratch), max(whole.shared, b.shared)
	}
	whole.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		buffer := tensor.New(tensor.F32, largest)
		results := buffer.F32s()
		runs := make([]func() error, len(parts))
		for i, b := range parts {
			runs[i] = b.prepare(x, in, []*tensor.Tensor{buffer})
		}
		var r *piece
		var y, res []float32
		put := func(_, plane int) {
			r.put(y[plane*g.outPlane:][:g.outPlane], results[plane*r.geo.outPlane:], g.out, add)
		}
		fill := func(_, plane int) { // pixels that no tap reaches
			row := y[plane*g.outPlane:][:g.outPlane]
			clear(row)
			each.apply(row, row, plane%(g.groups*g.rows), nil)
		}
		finish := func(_, plane int) {
			row, other := y[plane*g.outPlane:][:g.outPlane], []float32(nil)
			if res != nil {
				other = res[plane*g.outPlane:][:g.outPlane]
			}
			ep.apply(row, row, plane%(g.groups*g.rows), other)
		}
		return func() error {
			if y, res = out[0].F32s(), nil; ep.residual >= 0 {
				res = in[ep.residual].F32s()
			}
			if add || rest > 0 {
				x.pool.For(g.images*g.groups*g.rows, fill)
			}
			for i, run := range runs {
				if err := run(); err != nil {
					return err
				}
				r = &list[i]
				x.pool.For(g.images*g.groups*g.rows, put)
			}
			if later {
				x.pool.For(g.images*g.groups*g.rows, finish)
			}
			return nil
		}
	}
	return whole, nil
}

// bindPiece makes the kernel of a piece of g, whose weight has the elements or is computed by a run.
func (p *program) bindPiece(n *ir.Node, g *convGeometry, r *piece, ep epilogue, elements func() (*tensor.Tensor, error)) (*bound, error) {
	v, threads := n.Inputs[1], p.pool.Threads()
	if !v.IsConst() {
		return r.bindComputed(g, ep, threads), nil
	}
	kernels, err := prepared(p, keyOfWeight(v, fmt.Sprint("taps ", r.taps, g.transposed)), func() ([]backend.FloatKernel, error) {
		w, err := elements()
		if err != nil {
			return nil, err
		}
		return kernelsOfTaps(v, g.ofTaps(w, r.taps), g.groups)
	})
	if err != nil {
		return nil, err
	}
	return r.geo.sliced().plain(sized(kernels, g.images*r.geo.outPlane), ep, threads), nil
}

// bindComputed makes the kernel of a piece of g by a weight that a run computes, of which it picks the taps.
func (r *piece) bindComputed(g *convGeometry, ep epilogue, threads int) *bound {
	b := r.geo.bindComputed(ep, threads)
	prepare := b.prepare
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		weight, ins := tensor.New(tensor.F32, g.groups*g.rows, g.channels*len(r.taps)), slices.Clone(in)
		run := prepare(x, ins, out)
		var w []float32
		pick := func(_, i int) {
			g.pick(weight.F32s(), w, r.taps, i*pickRows, min((i+1)*pickRows, g.groups*g.rows))
		}
		return func() error {
			copy(ins, in)
			w, ins[1] = in[1].F32s(), weight
			x.pool.For((g.groups*g.rows+pickRows-1)/pickRows, pick)
			return run()
		}
	}
	return b
}

// elementsOf returns the elements of the weight of n as f32.
func elementsOf(n *ir.Node) (*tensor.Tensor, error) {
	v := n.Inputs[1]
	if v.Const != nil {
		return v.Const.To(tensor.F32), nil
	}
	w, err := format.Unpack(v.Store, v.Type)
	if err != nil {
		return nil, n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
	}
	return w.To(tensor.F32), nil
}

// ofTaps returns the matrix [groups*M,C*taps] of some taps of W[groups*M,C,k1..kn], of W[groups*C,M,k1..kn] if g is
// transposed.
func (g *convGeometry) ofTaps(w *tensor.Tensor, taps []int) *tensor.Tensor {
	t := tensor.New(tensor.F32, g.groups*g.rows, g.channels*len(taps))
	g.pick(t.F32s(), w.F32s(), taps, 0, g.groups*g.rows)
	return t
}

// pickRows is how many rows are picked together: what a transposed weight has of them for a channel lies together.
const pickRows = 16

// pick writes rows from..to of that matrix.
func (g *convGeometry) pick(dst, w []float32, taps []int, from, to int) {
	n := len(taps)
	for c := range g.channels {
		for m := from; m < to; m++ {
			at := m*g.channels + c
			if g.transposed {
				at = (m/g.rows*g.channels+c)*g.rows + m%g.rows
			}
			for u, t := range taps {
				dst[(m*g.channels+c)*n+u] = w[at*g.taps+t]
			}
		}
	}
}

// kernelsOfTaps prepares a matrix of some taps of a weight in its format, one for each group.
func kernelsOfTaps(v *ir.Value, w *tensor.Tensor, groups int) ([]backend.FloatKernel, error) {
	if groups > 1 {
		return inBlocks(w, groups)
	}
	if denseValues(v) == nil {
		f := format.Lookup(v.Store.Format)
		if parts, err := f.Pack(w, v.Store.Config); err == nil { // which some taps alone may not fit
			k, err := f.Kernel(&ir.Store{Format: v.Store.Format, Config: v.Store.Config, Rows: w.Dim(0), Cols: w.Dim(1), Parts: parts})
			if k, ok := k.(backend.FloatKernel); ok && err == nil {
				return []backend.FloatKernel{k}, nil
			}
		}
	}
	return []backend.FloatKernel{dense.Kernel(w)}, nil
}
