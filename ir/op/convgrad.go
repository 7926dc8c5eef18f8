package op

import (
	"slices"

	"spc/ir/tensor"
)

// slider computes a convolution and its gradients on f32 tensors, image by image.
type slider struct {
	c       *GradContext
	spans   []Span
	in, out []int // spatial sizes
	groups  int
	m, k, n int // of a group's product: output channels, channels times taps, output pixels
	taps    int
	plane   int // elements of an image in a group's input channels

	sheet *sheet // of a depthwise product
	back  *flipped
}

// maxPatches is the most elements of patches that are made at a time.
const maxPatches = 1 << 20

func newSlider(c *GradContext, spans []Span, x, w, y []int, groups int) *slider {
	s := &slider{c: c, spans: spans, in: x[2:], out: y[2:], groups: groups, taps: product(w[2:])}
	s.m, s.k, s.n = y[1]/groups, product(w[1:]), product(y[2:])
	s.plane = w[1] * product(s.in)
	return s
}

// pointwise reports whether the pixels themselves are the patches.
func (s *slider) pointwise() bool {
	for _, p := range s.spans {
		if p.Kernel != 1 || p.Stride != 1 || p.Begin != 0 || p.End != 0 {
			return false
		}
	}
	return true
}

// depthwise reports whether each channel of the input is a group of its own, over which
// a window slides in two dimensions.
func (s *slider) depthwise() bool { return s.k == s.taps && s.taps > 1 && len(s.spans) == 2 }

// panels calls f for blocks of columns from..from+n of the patches [k,n] of x, with
// the elements of a row ld apart.
func (s *slider) panels(x []float32, f func(patches []float32, ld, from, n int)) {
	s.blocks(func(buf []float32, from, n int) {
		if buf == nil {
			f(x, s.n, from, n)
			return
		}
		clear(buf)
		stride := s.last().Stride
		s.runs(from, n, func(at, n, p int) {
			if stride == 1 {
				copy(buf[at:][:n], x[p:])
				return
			}
			for i := range buf[at:][:n] {
				buf[at+i] = x[p]
				p += stride
			}
		})
		f(buf, n, from, n)
	})
}

// blocks calls f for blocks of columns, with memory for their patches, nil where the
// pixels are the patches.
func (s *slider) blocks(f func(buf []float32, from, n int)) {
	if s.pointwise() {
		f(nil, 0, s.n)
		return
	}
	defer s.c.scratch()()
	step := min(s.n, max(64, maxPatches/max(1, s.k)))
	buf := s.c.Floats(s.k * step)
	for from := 0; from < s.n; from += step {
		n := min(step, s.n-from)
		f(buf[:s.k*n], from, n)
	}
}

// runs calls f for each run of neighbours among columns from..from+n of the patches
// that are not in the padding: where it begins in their matrix [k,n], its length, and
// where its first pixel lies in the input of the group.
func (s *slider) runs(from, n int, f func(at, n, p int)) {
	size := product(s.in)
	for r := range s.k {
		TapRuns(s.spans, s.out, s.in, r%s.taps, from, n, func(j, count, p int) {
			f(r*n+j-from, count, r/s.taps*size+p)
		})
	}
}

// forward sets y to the convolution of x of one image and one group.
func (s *slider) forward(y, x, w, bias []float32) {
	for i := range s.m {
		row := y[i*s.n:][:s.n]
		var b float32
		if bias != nil {
			b = bias[i]
		}
		for j := range row {
			row[j] = b
		}
	}
	if s.depthwise() {
		p := s.plain()
		p.pad(x)
		for i := range s.m {
			p.correlate(y[i*s.n:][:s.n], w[i*s.k:][:s.k])
		}
		return
	}
	s.panels(x, func(p []float32, ld, from, n int) {
		s.c.Gemm(false, false, s.m, n, s.k, 1, w, s.k, p, ld, 1, y[from:], s.n)
	})
}

// backWeight adds the gradient by w to dw, given that by y, g.
func (s *slider) backWeight(dw, g, x []float32) {
	if s.depthwise() {
		p := s.plain()
		p.pad(x)
		for i := range s.m {
			p.weight(dw[i*s.k:][:s.k], g[i*s.n:][:s.n])
		}
		return
	}
	s.panels(x, func(p []float32, ld, from, n int) {
		s.c.Gemm(false, true, s.m, s.k, n, 1, g[from:], s.n, p, ld, 1, dw, s.k)
	})
}

// backInput sets dx to the gradient by x, given that by y, g.
func (s *slider) backInput(dx, g, w []float32) {
	if !s.pointwise() {
		clear(dx)
	}
	if s.depthwise() {
		s.slideBack(dx, g, w)
		return
	}
	stride := s.last().Stride
	s.blocks(func(buf []float32, from, n int) {
		if buf == nil {
			s.c.Gemm(true, false, s.k, n, s.m, 1, w, s.k, g, s.n, 0, dx, s.n)
			return
		}
		s.c.Gemm(true, false, s.k, n, s.m, 1, w, s.k, g[from:], s.n, 0, buf, n)
		s.runs(from, n, func(at, n, p int) {
			src := buf[at:][:n]
			if stride == 1 {
				addRun(dx[p:], src, 1)
				return
			}
			for _, v := range src {
				dx[p] += v
				p += stride
			}
		})
	})
}

func (s *slider) last() Span { return s.spans[len(s.spans)-1] }

// plain is the memory for a padded plane of a depthwise convolution.
func (s *slider) plain() *sheet {
	if s.sheet == nil {
		s.sheet = newSheet(s.spans, s.in, s.out)
	}
	return s.sheet
}

// slideBack sets dx, a plane, to the gradient by x of a depthwise convolution. With
// strides of one it is a convolution of the padded gradient with the taps in reverse.
func (s *slider) slideBack(dx, g, w []float32) {
	if s.back == nil {
		s.back = &flipped{taps: make([]float32, s.taps), fits: true}
		spans := slices.Clone(s.spans)
		for i, p := range s.spans {
			spans[i].Begin, spans[i].End = p.Extent()-1-p.Begin, p.Extent()-1-p.End
			s.back.fits = s.back.fits && p.Stride == 1 && spans[i].Begin >= 0
		}
		if s.back.fits {
			s.back.sheet = newSheet(spans, s.out, s.in)
		}
	}
	for i := range s.m {
		g, w := g[i*s.n:][:s.n], w[i*s.k:][:s.k]
		if !s.back.fits {
			s.plain().input(dx, g, w)
			continue
		}
		for k, v := range w {
			s.back.taps[len(w)-1-k] = v
		}
		s.back.sheet.pad(g)
		s.back.sheet.correlate(dx, s.back.taps)
	}
}

// flipped is what takes gradients of a depthwise convolution back.
type flipped struct {
	sheet *sheet
	taps  []float32
	fits  bool
}

// sheet is a plane with its padding, over which the window of a depthwise convolution
// slides.
type sheet struct {
	rows, cols    Span
	h, w          int // of the plane
	outH, outW    int
	width, height int
	pixels        []float32 // [height][width], zero in the padding
}

func newSheet(spans []Span, in, out []int) *sheet {
	s := &sheet{rows: spans[0], cols: spans[1], h: in[0], w: in[1], outH: out[0], outW: out[1]}
	s.height = max(s.rows.Begin+s.h, (s.outH-1)*s.rows.Stride+s.rows.Extent())
	s.width = max(s.cols.Begin+s.w, (s.outW-1)*s.cols.Stride+s.cols.Extent())
	s.pixels = make([]float32, s.height*s.width)
	return s
}

// pad copies a plane.
func (s *sheet) pad(x []float32) {
	to := s.pixels[s.rows.Begin*s.width+s.cols.Begin:]
	for i := range s.h {
		copy(to[i*s.width:][:s.w], x[i*s.w:])
	}
}

// each calls f for each row of outputs and of taps with the pixels from the first that
// they read.
func (s *sheet) each(f func(row, tap int, x []float32)) {
	for r := range s.outH {
		for k := range s.rows.Kernel {
			f(r*s.outW, k*s.cols.Kernel, s.pixels[(r*s.rows.Stride+k*s.rows.Dilation)*s.width:])
		}
	}
}

// correlate adds to y, a plane of outputs, the products of the taps with what they read.
func (s *sheet) correlate(y, w []float32) {
	if s.rows.Kernel == 3 && s.cols.Kernel == 3 && s.cols.Dilation == 1 {
		for r := range s.outH {
			x, d := s.pixels[r*s.rows.Stride*s.width:], s.rows.Dilation*s.width
			correlate3(y[r*s.outW:][:s.outW], x, x[d:], x[2*d:], (*[9]float32)(w), s.cols.Stride)
		}
		return
	}
	s.each(func(row, tap int, x []float32) {
		y := y[row:][:s.outW]
		for k, v := range w[tap:][:s.cols.Kernel] {
			p := k * s.cols.Dilation
			for i := range y {
				y[i] += v * x[p]
				p += s.cols.Stride
			}
		}
	})
}

// correlate3 adds to a row y the products of 3x3 taps with three rows.
func correlate3(y, a, b, c []float32, w *[9]float32, stride int) {
	w0, w1, w2, w3, w4, w5, w6, w7, w8 := w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]
	if stride != 1 {
		p := 0
		for i := range y {
			a, b, c := a[p:][:3], b[p:][:3], c[p:][:3]
			y[i] += (w0*a[0] + w1*a[1] + w2*a[2]) + (w3*b[0] + w4*b[1] + w5*b[2]) + (w6*c[0] + w7*c[1] + w8*c[2])
			p += stride
		}
		return
	}
	// Neighbours share six of nine pixels.
	a0, a1, b0, b1, c0, c1 := a[0], a[1], b[0], b[1], c[0], c[1]
	a, b, c = a[2:][:len(y)], b[2:][:len(y)], c[2:][:len(y)]
	for i := range y {
		a2, b2, c2 := a[i], b[i], c[i]
		y[i] += (w0*a0 + w1*a1 + w2*a2) + (w3*b0 + w4*b1 + w5*b2) + (w6*c0 + w7*c1 + w8*c2)
		a0, a1, b0, b1, c0, c1 = a1, a2, b1, b2, c1, c2
	}
}

// weight adds to dw the gradient by the taps, given that by the outputs, g.
func (s *sheet) weight(dw, g []float32) {
	s.each(func(row, tap int, x []float32) {
		g, d := g[row:][:s.outW], dw[tap:][:s.cols.Kernel]
		if len(d) == 3 && s.cols.Dilation == 1 && s.cols.Stride == 1 {
			dot3((*[3]float32)(d), g, x)
			return
		}
		for k := range d {
			p, sum := k*s.cols.Dilation, float32(0)
			for _, e := range g {
				sum += e * x[p]
				p += s.cols.Stride
			}
			d[k] += sum
		}
	})
}

// input adds to dx, a plane, the gradient by it, given that by the outputs, g.
func (s *sheet) input(dx, g, w []float32) {
	clear(s.pixels)
	s.each(func(row, tap int, x []float32) {
		g := g[row:][:s.outW]
		for k, v := range w[tap:][:s.cols.Kernel] {
			p := k * s.cols.Dilation
			for _, e := range g {
				x[p] += v * e
				p += s.cols.Stride
			}
		}
	})
	from := s.pixels[s.rows.Begin*s.width+s.cols.Begin:]
	for i := range s.h {
		addRun(dx[i*s.w:], from[i*s.width:][:s.w], 1)
	}
	clear(s.pixels)
}

// dot3 adds to d the products of g with x from its first, second and third element on.
func dot3(d *[3]float32, g, x []float32) {
	x0, x1, x2 := x[:len(g)], x[1:][:len(g)], x[2:][:len(g)]
	var s0, s1, s2, t0, t1, t2 float32
	for len(g) >= 2 && len(x0) >= 2 && len(x1) >= 2 && len(x2) >= 2 {
		a, b := g[0], g[1]
		s0, t0 = s0+a*x0[0], t0+b*x0[1]
		s1, t1 = s1+a*x1[0], t1+b*x1[1]
		s2, t2 = s2+a*x2[0], t2+b*x2[1]
		g, x0, x1, x2 = g[2:], x0[2:], x1[2:], x2[2:]
	}
	if len(g) > 0 {
		s0, s1, s2 = s0+g[0]*x0[0], s1+g[0]*x1[0], s2+g[0]*x2[0]
	}
	d[0], d[1], d[2] = d[0]+s0+t0, d[1]+s1+t1, d[2]+s2+t2
}

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
