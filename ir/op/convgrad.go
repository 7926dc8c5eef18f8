package op

import "spc/ir/tensor"

// slider computes a convolution and its gradients on f32 tensors, image by image.
type slider struct {
	c       *GradContext
	spans   []Span
	in, out []int // spatial sizes
	groups  int
	m, k, n int // of a group's product: output channels, channels times taps, output pixels
	taps    int
	plane   int // elements of an image in a group's input channels
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

// depthwise reports whether each channel of the input is a group.
func (s *slider) depthwise() bool { return s.k == s.taps && s.taps > 1 }

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
		for i := range s.m {
			s.eachRow(func(out, in, tap int) {
				correlate(y[i*s.n+out:][:s.width()], x[in:][:s.inWidth()], w[i*s.k+tap:][:s.last().Kernel], s.last())
			})
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
		for i := range s.m {
			s.eachRow(func(out, in, tap int) {
				correlateWeight(dw[i*s.k+tap:][:s.last().Kernel], g[i*s.n+out:][:s.width()], x[in:][:s.inWidth()], s.last())
			})
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
		flipped := make([]float32, s.last().Kernel)
		for i := range s.m {
			s.eachRow(func(out, in, tap int) {
				correlateInput(dx[in:][:s.inWidth()], g[i*s.n+out:][:s.width()], w[i*s.k+tap:][:len(flipped)], flipped, s.last())
			})
		}
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

func (s *slider) last() Span   { return s.spans[len(s.spans)-1] }
func (s *slider) width() int   { return s.out[len(s.out)-1] }
func (s *slider) inWidth() int { return s.in[len(s.in)-1] }

// eachRow calls f for each row of output pixels and each row of taps that is not in
// the padding there: the offsets of the row in a plane of the output and in one of
// the input, and of the taps in the kernel.
func (s *slider) eachRow(f func(out, in, tap int)) {
	axes := len(s.spans) - 1
	w, wi, kw := s.width(), s.inWidth(), s.last().Kernel
	for t := range s.taps / kw {
		for r := range s.n / max(1, w) {
			if p, ok := rowOffset(s.spans[:axes], s.out, s.in, t, r); ok {
				f(r*w, p*wi, t*kw)
			}
		}
	}
}

// interior is the range of columns of which no tap is in the padding.
func (s Span) interior(cols, size int) (lo, hi int) {
	lo, hi = s.inside(-s.Begin, cols, size)
	l, h := s.inside(s.Extent()-1-s.Begin, cols, size)
	lo, hi = max(lo, l), min(hi, h)
	return lo, max(lo, hi)
}

// correlate adds to y the products of a row of taps w with what it reads of x.
func correlate(y, x, w []float32, s Span) {
	lo, hi := s.interior(len(y), len(x))
	edge := func(from, to int) {
		for o := from; o < to; o++ {
			for k, v := range w {
				if p := o*s.Stride + k*s.Dilation - s.Begin; p >= 0 && p < len(x) {
					y[o] += v * x[p]
				}
			}
		}
	}
	edge(0, lo)
	edge(hi, len(y))
	if lo == hi {
		return
	}
	y = y[lo:hi]
	x = x[lo*s.Stride-s.Begin:]
	switch {
	case len(w) == 3 && s.Dilation == 1 && s.Stride == 1:
		w0, w1, w2 := w[0], w[1], w[2]
		x0, x1, x2 := x[:len(y)], x[1:][:len(y)], x[2:][:len(y)]
		for i := range y {
			y[i] += w0*x0[i] + w1*x1[i] + w2*x2[i]
		}
	case len(w) == 3 && s.Dilation == 1:
		w0, w1, w2, p := w[0], w[1], w[2], 0
		for i := range y {
			t := x[p:][:3]
			y[i] += w0*t[0] + w1*t[1] + w2*t[2]
			p += s.Stride
		}
	default:
		for k, v := range w {
			p := k * s.Dilation
			for i := range y {
				y[i] += v * x[p]
				p += s.Stride
			}
		}
	}
}

// correlateInput adds to dx the gradient by x of correlate, given that by y, g. It
// needs memory for the flipped taps.
func correlateInput(dx, g, w, flipped []float32, s Span) {
	if s.Stride == 1 {
		for k, v := range w {
			flipped[len(w)-1-k] = v
		}
		correlate(dx, g, flipped, Span{Kernel: s.Kernel, Stride: 1, Dilation: s.Dilation, Begin: s.Extent() - 1 - s.Begin})
		return
	}
	for k, v := range w {
		off := k*s.Dilation - s.Begin
		lo, hi := s.inside(off, len(g), len(dx))
		p := lo*s.Stride + off
		for _, e := range g[lo:max(lo, hi)] {
			dx[p] += v * e
			p += s.Stride
		}
	}
}

// correlateWeight adds to dw the gradient by w of correlate, given that by y, g.
func correlateWeight(dw, g, x []float32, s Span) {
	if lo, hi := s.interior(len(g), len(x)); len(dw) == 3 && s.Dilation == 1 && s.Stride == 1 && lo < hi {
		for k := range dw {
			for _, o := range [][2]int{{0, lo}, {hi, len(g)}} {
				for i := o[0]; i < o[1]; i++ {
					if p := i + k - s.Begin; p >= 0 && p < len(x) {
						dw[k] += g[i] * x[p]
					}
				}
			}
		}
		g, x = g[lo:hi], x[lo-s.Begin:]
		x0, x1, x2 := x[:len(g)], x[1:][:len(g)], x[2:][:len(g)]
		var s0, s1, s2, t0, t1, t2 float32
		for len(g) >= 2 {
			a, b := g[0], g[1]
			s0, t0 = s0+a*x0[0], t0+b*x0[1]
			s1, t1 = s1+a*x1[0], t1+b*x1[1]
			s2, t2 = s2+a*x2[0], t2+b*x2[1]
			g, x0, x1, x2 = g[2:], x0[2:], x1[2:], x2[2:]
		}
		if len(g) > 0 {
			s0, s1, s2 = s0+g[0]*x0[0], s1+g[0]*x1[0], s2+g[0]*x2[0]
		}
		dw[0], dw[1], dw[2] = dw[0]+s0+t0, dw[1]+s1+t1, dw[2]+s2+t2
		return
	}
	for k := range dw {
		off := k*s.Dilation - s.Begin
		lo, hi := s.inside(off, len(g), len(x))
		p := lo*s.Stride + off
		var sum float32
		for _, e := range g[lo:max(lo, hi)] {
			sum += e * x[p]
			p += s.Stride
		}
		dw[k] += sum
	}
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
