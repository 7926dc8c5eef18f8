package machine

import (
	"slices"

	"spc/passes/choose"
)

// What products cost besides their multiply-adds, in floating-point operations at the peak: a sum, to which each term is a function here.

// Fetched is the cost of reading a sparse weight of so many bytes, or code of so many, for each panel of n columns.
func (p *Profile) Fetched(bytes, n int, code bool) float64 {
	if bytes <= p.Near {
		return 0
	}
	each := p.Fetch
	if code {
		each = p.Code
	}
	return each * float64(bytes) * float64((n+panel-1)/panel)
}

// Turned is the cost of panels that are loaded from n tokens of k features, and of results that become n tokens of m.
func (p *Profile) Turned(m, k, n int) float64 {
	cost := p.Images.Patch * float64(k*n)
	if 8*k*n > p.Images.Near {
		cost *= p.Images.Farther
	}
	return cost + p.Images.Turn*float64(m*n)
}

// Spilled is the cost of images or n tokens, and results, that find no place in near caches.
func (p *Profile) Spilled(w *choose.Matrix, n int) float64 {
	floats := float64(n) * float64(w.Dim(0)+w.Dim(1))
	if w.Slide != nil {
		images, out := w.Slide.Pixels()
		inputs, taps := images, 1
		for i, size := range out {
			inputs, taps = inputs*size*w.Slide.Stride[i], taps*w.Slide.Kernel[i]
		}
		floats = float64(inputs)*float64(w.Dim(1)/taps) + float64(n)*float64(w.Dim(0))
	}
	return p.Images.Spill * max(0, floats-p.Images.Held/4)
}

// Patches is the part of Direct that loading patches takes.
func (p *Profile) Patches(c Conv) float64 {
	cost := p.Images.Patch * 9 * float64(c.C) * float64(c.Images*c.OH*c.OW)
	if p.far(c) {
		cost *= p.Images.Farther
	}
	return cost + p.Images.Plane*float64(c.C*c.Images)
}

// far reports whether an image does not fit the level 2 cache.
func (p *Profile) far(c Conv) bool { return 4*c.C*c.OH*c.OW > p.Images.Near }

// Loaded is the cost of patches for a product with w, if that is the weight of a Conv, for kernels that load them into panels.
func (p *Profile) Loaded(w *choose.Matrix) float64 {
	if c, ok := Of(w); ok {
		return p.Patches(c) + p.Images.Pad
	}
	return 0
}

// Placed is Loaded for kernels that read patches where they lie in a strip of a padded image.
func (p *Profile) Placed(w *choose.Matrix) float64 {
	if c, ok := Of(w); ok {
		return p.strips(c)
	}
	return 0
}

// strips is the cost of the strips, which hold the rows of the image that a panel of
// pixels lies in, and one more above, below and on both sides.
func (p *Profile) strips(c Conv) float64 {
	width := min(c.OW, panel)
	rows := float64(panel) / float64(width)
	if panel%width != 0 {
		rows++ // a panel begins within a row
	}
	cost := p.Images.Strip
	if p.far(c) {
		cost += p.Images.Far
	}
	copied := min((rows+2)*float64(width+2)/panel*float64(c.OH*c.OW), float64((c.OH+2)*(c.OW+2)*((c.OH*c.OW+panel-1)/panel)))
	return (cost*copied+p.Images.Plane)*float64(c.C*c.Images) + p.Images.Pad
}

// Seen is the cost of panels that are loaded from images for n pixels, for a product with w that is the weight of no Conv.
func (p *Profile) Seen(w *choose.Matrix, n int) float64 {
	s := w.Slide
	if _, ok := Of(w); ok || s == nil {
		return 0
	}
	images, out := s.Pixels()
	// By channel: the taps, the planes that they read, of one for each position modulo the strides, and how far in one a panel reaches.
	taps, phases, reach, plane := 1, 1, panel, 1
	row := 1
	for i := len(out) - 1; i >= 0; i-- {
		behind := (s.Kernel[i] - 1) * s.Dilation[i]
		taps *= s.Kernel[i]
		phases *= min(s.Stride[i], s.Kernel[i])
		reach += behind / s.Stride[i] * row
		row = out[i] + behind/s.Stride[i]
		plane *= row
	}
	channels := float64(w.Dim(1)) / float64(taps)
	cost, planes := p.Images.Row*float64(w.Dim(1))*float64(n), 0.0
	if taps > 1 {
		cost = p.Images.Tap * channels * float64(n) * min(float64(taps), float64(phases*reach)/panel)
	}
	if taps > 1 || slices.ContainsFunc(s.Stride, func(n int) bool { return n > 1 }) {
		cost += p.Images.Lay * channels * float64(images*phases*plane)
		planes = p.Images.Plane * channels * float64(images*phases)
	}
	if 4*channels*float64(images*phases*plane) > float64(p.Images.Near) {
		cost *= p.Images.Farther
	}
	return cost + planes
}
