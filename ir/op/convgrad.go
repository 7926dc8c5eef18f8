package op

import "spc/ir/tensor"

// slider computes a convolution and its gradients on f32 tensors, image by image.
type slider struct {
	c       *GradContext
	groups  int
	m, k, n int // of a group's product: output channels, channels times taps, output pixels
	taps    int
	plane   int // elements of an image in a group's input channels
	size    int // of an image in one channel

	sheet  *sheet    // nil where the pixels themselves are the patches
	pixels []float32 // the channels of a group, laid out
	spread []float32 // a channel of outputs with gaps, for a depthwise product
	zero   []float32
	picked []float32 // of a row of the weight, the taps of a phase
}

// maxPatches is about the most elements of patches that are made at a time: they stay in
// the level 2 cache.
const maxPatches = 1 << 16

func newSlider(c *GradContext, spans []Span, x, w, y []int, groups int) *slider {
	s := &slider{c: c, groups: groups, taps: product(w[2:]), size: product(x[2:])}
	s.m, s.k, s.n = y[1]/groups, product(w[1:]), product(y[2:])
	s.plane = w[1] * s.size
	for _, p := range spans {
		if p.Kernel != 1 || p.Stride != 1 || p.Begin != 0 || p.End != 0 {
			s.sheet = newSheet(spans, x[2:], y[2:])
		}
	}
	return s
}

// depthwise reports whether each channel of the input is a group of its own, over which
// a window slides.
func (s *slider) depthwise() bool { return s.k == s.taps && s.sheet != nil }

// channels is the number of channels of a group's input.
func (s *slider) channels() int { return s.k / s.taps }

// laid returns memory for the channels of a group, zero where no pixel comes to lie.
func (s *slider) laid() []float32 {
	if s.pixels == nil {
		s.pixels = s.c.Floats(s.channels() * s.sheet.len())
		clear(s.pixels)
	}
	return s.pixels
}

// lay lays out the channels of x.
func (s *slider) lay(x []float32) []float32 {
	to := s.laid()
	for i := range s.channels() {
		s.sheet.lay(to[i*s.sheet.len():], x[i*s.size:][:s.size])
	}
	return to
}

// gaps returns memory for a channel of outputs with gaps, which are zero, and where
// the first output lies in it.
func (s *slider) gaps() (all []float32, first int) {
	if s.spread == nil {
		s.spread = s.c.Floats(s.sheet.lead + s.sheet.size)
		clear(s.spread)
	}
	return s.spread, s.sheet.lead
}

// blocks calls f for blocks of rows of outputs, with memory for their patches [k,n],
// where n is the distance from their first output to the last and one more. What f takes
// of the context's memory is taken back.
func (s *slider) blocks(f func(buf []float32, r0, r1, from, n int)) {
	defer s.c.scratch()()
	h := s.sheet
	step := max(1, max(64, maxPatches/s.k)/h.pitch)
	var buf []float32
	for r0 := 0; r0 < len(h.outs); r0 += step {
		r1 := min(len(h.outs), r0+step)
		from, n := h.outs[r0], h.outs[r1-1]-h.outs[r0]+h.outW
		if buf == nil || s.k*n > len(buf) {
			buf = s.c.Floats(s.k * n)
		}
		release := s.c.scratch()
		f(buf[:s.k*n], r0, r1, from, n)
		release()
	}
}

// panels calls f for blocks of rows of outputs with their patches of x [k,n].
func (s *slider) panels(x []float32, f func(patches []float32, r0, r1, n int)) {
	pixels := s.lay(x)
	s.blocks(func(buf []float32, r0, r1, from, n int) {
		s.patches(buf, pixels, from, n)
		f(buf, r0, r1, n)
	})
}

// patches copies columns from..from+n of the patches of what is laid out.
func (s *slider) patches(buf, pixels []float32, from, n int) {
	h := s.sheet
	for r := range s.k {
		copy(buf[r*n:][:n], pixels[r/s.taps*h.len()+h.off[r%s.taps]+from:])
	}
}

// forward sets y to the convolution of x of one image and one group.
func (s *slider) forward(y, x, w, bias []float32) {
	if bias == nil {
		bias = s.zeros()
	}
	h := s.sheet
	switch {
	case h == nil:
		for i := range s.m {
			setAll(y[i*s.n:][:s.n], bias[i])
		}
		s.c.Gemm(false, false, s.m, s.n, s.k, 1, w, s.k, x, s.n, 1, y, s.n)
	case s.depthwise():
		pixels := s.lay(x)
		defer s.c.scratch()()
		sums := s.c.Floats(h.run)
		for i := range s.m {
			s.c.taps(sums, pixels[:h.len()], h.off, w[i*s.k:][:s.k], bias[i])
			h.close(y[i*s.n:][:s.n], sums, 0, len(h.outs))
		}
	default:
		s.panels(x, func(patches []float32, r0, r1, n int) {
			sums := s.c.Floats(s.m * n)
			for i := range s.m {
				setAll(sums[i*n:][:n], bias[i])
			}
			s.c.Gemm(false, false, s.m, n, s.k, 1, w, s.k, patches, n, 1, sums, n)
			for i := range s.m {
				h.close(y[i*s.n:][:s.n], sums[i*n:][:n], r0, r1)
			}
		})
	}
}

// zeros are biases.
func (s *slider) zeros() []float32 {
	if s.zero == nil {
		s.zero = make([]float32, s.m)
	}
	return s.zero
}

func setAll(row []float32, v float32) {
	for i := range row[:min(len(row), 16)] {
		row[i] = v
	}
	for n := 16; n < len(row); n *= 2 { // copying is faster than assigning one by one
		copy(row[n:], row[:n])
	}
}

// backWeight adds the gradient by w to dw, given that by y, g.
func (s *slider) backWeight(dw, g, x []float32) {
	h := s.sheet
	switch {
	case h == nil:
		s.c.Gemm(false, true, s.m, s.k, s.n, 1, g, s.n, x, s.n, 1, dw, s.k)
	case s.depthwise():
		pixels := s.lay(x)
		all, first := s.gaps()
		row := all[first:][:h.run]
		for i := range s.m {
			h.open(row, g[i*s.n:][:s.n], 0, len(h.outs))
			d := dw[i*s.k:][:s.k]
			for t := range d {
				d[t] += s.c.dot(row, pixels[h.off[t]:][:h.run])
			}
		}
	default:
		s.panels(x, func(patches []float32, r0, r1, n int) {
			s.c.Gemm(false, true, s.m, s.k, n, 1, s.opened(g, r0, r1, n), n, patches, n, 1, dw, s.k)
		})
	}
}

// opened returns rows r0 to r1 of the outputs g of all channels, with gaps.
func (s *slider) opened(g []float32, r0, r1, n int) []float32 {
	open := s.c.Floats(s.m * n)
	clear(open)
	for i := range s.m {
		s.sheet.open(open[i*n:][:n], g[i*s.n:][:s.n], r0, r1)
	}
	return open
}

// backInput sets dx to the gradient by x, given that by y, g.
func (s *slider) backInput(dx, g, w []float32) {
	h := s.sheet
	switch {
	case h == nil:
		s.c.Gemm(true, false, s.k, s.n, s.m, 1, w, s.k, g, s.n, 0, dx, s.n)
	case s.depthwise():
		// What lies in a phase met those of the outputs that the taps of the phase
		// are away from it.
		all, first := s.gaps()
		defer s.c.scratch()()
		laid, sums := s.c.Floats(h.len()), s.c.Floats(h.size)
		for i := range s.m {
			h.open(all[first:], g[i*s.n:][:s.n], 0, len(h.outs))
			for f, b := range h.back {
				s.picked = s.picked[:0]
				for _, t := range b.taps {
					s.picked = append(s.picked, w[i*s.k+t])
				}
				to := laid[f*h.size:][:h.size]
				if i == 0 {
					s.c.taps(to, all, b.off, s.picked, 0)
					continue
				}
				s.c.taps(sums, all, b.off, s.picked, 0)
				s.c.add(to, to, sums)
			}
		}
		h.take(dx, laid)
	default:
		laid := s.laid()
		clear(laid)
		s.blocks(func(buf []float32, r0, r1, from, n int) {
			s.c.Gemm(true, false, s.k, n, s.m, 1, w, s.k, s.opened(g, r0, r1, n), n, 0, buf, n)
			for r := range s.k {
				to := laid[r/s.taps*h.len()+h.off[r%s.taps]+from:][:n]
				s.c.add(to, to, buf[r*n:][:n])
			}
		})
		for i := range s.channels() {
			h.take(dx[i*s.size:][:s.size], laid[i*h.len():])
		}
		clear(laid)
	}
}

// sheet says how a channel of an input is laid out for a window to slide over it. Its
// positions, padded, are cut into phases: those whose coordinates leave the same rests
// when divided by the strides. A phase holds the quotients, so that of any tap the
// inputs of neighbouring outputs are neighbours, at the same distance for all taps; it
// reaches as far as taps do. Rows of outputs lie in it with gaps between them.
type sheet struct {
	phases int
	size   int   // elements of a phase
	pitch  int   // of one of its rows
	off    []int // by tap, what the first output reads
	lead   int   // the most by which a tap's input lies behind the output in its phase

	ins  []int // by row of inputs, the place of the first coordinate 0 of the last axis; -1 where no tap reads it
	cols []columns
	inW  int
	outs []int // by row of outputs, its place
	outW int
	run  int // from the first output to the last, and one more

	back []backTaps // by phase
}

// columns are those of a row of inputs that lie in the same phase: each step-th from the
// first on.
type columns struct{ first, step, at, n int }

func newSheet(spans []Span, in, out []int) *sheet {
	last := len(spans) - 1
	h := &sheet{phases: 1, size: 1, inW: in[last], outW: out[last]}
	sizes, pitches, phasePitch := make([]int, len(spans)), make([]int, len(spans)), make([]int, len(spans))
	for i := last; i >= 0; i-- {
		p := spans[i]
		reach := (p.Extent() - 1) / p.Stride
		sizes[i], pitches[i], phasePitch[i] = out[i]+reach, h.size, h.phases
		h.lead += reach * h.size
		h.size *= sizes[i]
		h.phases *= p.Stride
	}
	h.pitch = sizes[last]
	// place is where a padded coordinate lies on an axis; ok is false where no tap
	// reads it.
	place := func(axis, q int) (at int, ok bool) {
		s := spans[axis].Stride
		if q < 0 || q/s >= sizes[axis] {
			return 0, false
		}
		return q%s*phasePitch[axis]*h.size + q/s*pitches[axis], true
	}
	// rows lists the sums of the places at the indices of all axes but the last.
	rows := func(dims []int, coordinate func(axis, i int) int) []int {
		list := []int{0}
		for axis := range last {
			var next []int
			for _, base := range list {
				for i := range dims[axis] {
					at, ok := place(axis, coordinate(axis, i))
					if base < 0 || !ok {
						next = append(next, -1)
						continue
					}
					next = append(next, base+at)
				}
			}
			list = next
		}
		return list
	}
	h.ins = rows(in, func(axis, i int) int { return i + spans[axis].Begin })
	h.outs = rows(out, func(axis, i int) int { return i * spans[axis].Stride })
	if n := len(h.outs); n > 0 {
		h.run = h.outs[n-1] + h.outW
	}
	kernel := make([]int, len(spans))
	for i, p := range spans {
		kernel[i] = p.Kernel
	}
	for _, row := range rows(kernel, func(axis, i int) int { return i * spans[axis].Dilation }) {
		for k := range kernel[last] {
			at, _ := place(last, k*spans[last].Dilation)
			h.off = append(h.off, row+at)
		}
	}
	h.back = make([]backTaps, h.phases)
	for t, off := range h.off {
		b := &h.back[off/h.size]
		b.taps, b.off = append(b.taps, t), append(b.off, h.lead-off%h.size)
	}
	p := spans[last]
	for phase := range p.Stride {
		c := columns{first: max(0, -p.Begin), step: p.Stride}
		c.first += ((phase-c.first-p.Begin)%p.Stride + p.Stride) % p.Stride
		u := (c.first + p.Begin) / p.Stride
		c.at = phase*h.size + u
		c.n = min((h.inW-c.first+p.Stride-1)/p.Stride, h.pitch-u)
		if c.n > 0 {
			h.cols = append(h.cols, c)
		}
	}
	return h
}

// len is the number of elements of a channel that is laid out.
func (h *sheet) len() int { return h.phases * h.size }

// lay puts a channel into its places.
func (h *sheet) lay(to, x []float32) {
	for r, base := range h.ins {
		if base < 0 {
			continue
		}
		row := x[r*h.inW:][:h.inW]
		for _, c := range h.cols {
			d, s := to[base+c.at:][:c.n], row[c.first:]
			if c.step == 1 {
				copy(d, s)
				continue
			}
			j := 0
			for i := range d {
				d[i] = s[j]
				j += c.step
			}
		}
	}
}

// take sets a channel to what lies in its places, and to zero where no tap reads.
func (h *sheet) take(x, from []float32) {
	for r, base := range h.ins {
		row := x[r*h.inW:][:h.inW]
		if base < 0 {
			clear(row)
			continue
		}
		for _, c := range h.cols {
			s := from[base+c.at:][:c.n]
			if c.step == 1 && c.n == len(row) {
				copy(row, s)
				continue
			}
			d := row[c.first:]
			j := 0
			for _, v := range s {
				d[j] = v
				j += c.step
			}
			for ; j < len(d); j += c.step {
				d[j] = 0
			}
		}
	}
}

// open copies rows r0 to r1 of a channel of outputs into their places, from that of the
// first of these rows on.
func (h *sheet) open(to, y []float32, r0, r1 int) {
	for r := r0; r < r1; r++ {
		copy(to[h.outs[r]-h.outs[r0]:][:h.outW], y[r*h.outW:])
	}
}

// close takes them back.
func (h *sheet) close(y, from []float32, r0, r1 int) {
	for r := r0; r < r1; r++ {
		copy(y[r*h.outW:][:h.outW], from[h.outs[r]-h.outs[r0]:])
	}
}

// backTaps are the taps that read a phase, and where each finds the output that reads
// its first element, given lead elements before the first output.
type backTaps struct{ taps, off []int }

// Forward multiplies the weight matrix of each group by the patches of each image.
func (o *Conv) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	if err := plainProduct(&o.Epilogue, o.Quantised(), in); err != nil {
		return nil, err
	}
	spans, _, err := o.Geometry(in[0].Shape(), in[1].Shape())
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	out := c.New(shapes[0]...)
	defer c.scratch()()
	s := newSlider(c, spans, in[0].Shape(), in[1].Shape(), shapes[0], o.Group)
	y, x, w := out.F32s(), in[0].F32s(), in[1].F32s()
	var bias []float32
	if b := optional(in, 2); b != nil {
		bias = b.F32s()
	}
	for i := range shapes[0][0] * o.Group {
		g := i % o.Group
		var b []float32
		if bias != nil {
			b = bias[g*s.m:]
		}
		s.forward(y[i*s.m*s.n:][:s.m*s.n], x[i*s.plane:][:s.plane], w[g*s.m*s.k:][:s.m*s.k], b)
	}
	return one(out)
}

// Grad multiplies the gradient of each image by its patches and by the weight.
func (o *Conv) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if err := plainProduct(&o.Epilogue, o.Quantised(), in); err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil {
		return din, nil
	}
	spans, _, err := o.Geometry(in[0].Shape(), in[1].Shape())
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	s := newSlider(c, spans, in[0].Shape(), in[1].Shape(), out[0].Shape(), o.Group)
	for i, t := range in {
		if c.wants(i) {
			din[i] = c.New(t.Shape()...)
			if i > 0 {
				clear(din[i].F32s())
			}
		}
	}
	defer c.scratch()()
	x, w, g := in[0].F32s(), in[1].F32s(), dout[0].F32s()
	for i := range out[0].Dim(0) * o.Group {
		at := i % o.Group
		gi, wi := g[i*s.m*s.n:][:s.m*s.n], w[at*s.m*s.k:][:s.m*s.k]
		if c.wants(0) {
			s.backInput(din[0].F32s()[i*s.plane:][:s.plane], gi, wi)
		}
		if c.wants(1) {
			s.backWeight(din[1].F32s()[at*s.m*s.k:][:s.m*s.k], gi, x[i*s.plane:][:s.plane])
		}
		if c.wants(2) {
			db := din[2].F32s()[at*s.m:]
			for r := range s.m {
				db[r] += sum32(gi[r*s.n:][:s.n])
			}
		}
	}
	return din, nil
}

// sum32 adds elements in four running sums.
func sum32(x []float32) float32 {
	var a, b, c, d float32
	for len(x) >= 4 {
		a, b, c, d = a+x[0], b+x[1], c+x[2], d+x[3]
		x = x[4:]
	}
	for _, v := range x {
		a += v
	}
	return a + b + (c + d)
}
