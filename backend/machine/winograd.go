package machine

import (
	"slices"

	"spc/passes/choose"
)

// Conv is a dense convolution of images with kernels of 3x3, stride 1, C channels
// to M. An output slice of a volume is an image, whose channels are the input slices that it is made of.
type Conv struct {
	M, C, Images, OH, OW int
}

// Of returns the convolution that w is the weight of; ok is false for weights of
// other products.
func Of(w *choose.Matrix) (c Conv, ok bool) {
	s := w.Slide
	if s == nil || len(s.Kernel) < 2 || len(s.Kernel) > 3 {
		return c, false
	}
	first := len(s.Kernel) - 2
	if !slices.Equal(s.Kernel[first:], []int{3, 3}) || !slices.Equal(s.Stride[first:], []int{1, 1}) || !slices.Equal(s.Dilation[first:], []int{1, 1}) {
		return c, false
	}
	images, out := s.Pixels()
	for _, n := range out[:first] {
		images *= n
	}
	return Conv{M: w.Dim(0), C: w.Dim(1) / 9, Images: images, OH: out[first], OW: out[first+1]}, true
}

// Direct is the cost of a product with patches of the images, in floating-point
// operations at the peak.
func (p *Profile) Direct(c Conv) float64 {
	k, n := 9*c.C, c.Images*c.OH*c.OW
	cols := (n + granule - 1) / granule * granule
	return 2*float64(c.M)*float64(k)*float64(cols)/p.Of(Dense).Efficiency(float64(k), k, n) + p.Patches(c)
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

// Loaded is the share of the peak that is left of efficiency e in a sparse product of
// so much work where patches of images must be loaded.
func (p *Profile) Loaded(w *choose.Matrix, work, e float64) float64 {
	if c, ok := Of(w); ok && work > 0 {
		return work / (work/e + p.Patches(c) + p.Images.Pad)
	}
	return e
}

// Turned is the share of the peak that is left of efficiency e in a product of so much work whose panels are loaded from n
// tokens of k features, and whose results become n tokens of m.
func (p *Profile) Turned(m, k, n int, work, e float64) float64 {
	if work == 0 { // no nonzeros
		return e
	}
	cost := p.Images.Patch * float64(k*n)
	if 8*k*n > p.Images.Near {
		cost *= p.Images.Farther
	}
	cost += p.Images.Turn * float64(m*n)
	return work / (work/e + cost)
}

// Fetched is the share of the peak that is left of efficiency e in a product of so much work with n columns whose panels each read a
// sparse weight of so many bytes, or code of so many.
func (p *Profile) Fetched(bytes, n int, code bool, work, e float64) float64 {
	if bytes <= p.Near || work == 0 {
		return e
	}
	each := p.Fetch
	if code {
		each = p.Code
	}
	return work / (work/e + each*float64(bytes)*float64((n+panel-1)/panel))
}

// Seen is the share of the peak that is left of efficiency e in a product of so much work with n pixels whose panels are loaded from
// images in other ways than those of Of are, and for all images and tokens where they and the results do not fit near caches.
func (p *Profile) Seen(w *choose.Matrix, n int, work, e float64) float64 {
	if work == 0 {
		return e
	}
	e = work / (work/e + p.spilled(w, n))
	s := w.Slide
	if _, ok := Of(w); ok || s == nil {
		return e
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
	if cost += planes; cost == 0 {
		return e
	}
	return work / (work/e + cost)
}

// spilled is the cost of what images or n tokens, and results, take from caches that are not near.
func (p *Profile) spilled(w *choose.Matrix, n int) float64 {
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

// Placed is Loaded for kernels that read patches where they lie in a strip of a
// padded image.
func (p *Profile) Placed(w *choose.Matrix, work, e float64) float64 {
	if c, ok := Of(w); ok && work > 0 {
		return work / (work/e + p.strips(c))
	}
	return e
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

// Tile is the size of the tiles, 2 or 4, by which programs compute a convolution with Winograd's algorithm, 0 where they multiply
// patches of the images. It is what is faster by the default profile, so that results do not depend on another.
func Tile(c Conv) int {
	best, least := 0, Default.Direct(c)
	for _, t := range []int{2, 4} {
		if _, cost := Default.Tiled(c, t); cost < least {
			best, least = t, cost
		}
	}
	return best
}

// Tiled returns, for tiles of 2x2 or 4x4 outputs, the operations of the products and the cost of it all in floating-point operations
// at the peak.
func (p *Profile) Tiled(c Conv, tile int) (work, cost float64) {
	points := float64((tile + 2) * (tile + 2))
	tiles := float64(c.Images * ((c.OH + tile - 1) / tile) * ((c.OW + tile - 1) / tile))
	groups := float64((c.C+granule-1)/granule + (c.M+granule-1)/granule)
	rows := float64((c.M + granule - 1) / granule * granule)
	panels := float64((c.M + panel - 1) / panel)
	work = 2 * points * float64(c.C) * rows * tiles
	cost = work * (float64(c.C) + p.Winograd.Start) / float64(c.C) / p.Of(Dense).Panel
	cost = max(cost, p.Winograd.Word*points*float64(c.C)*rows)
	return work, cost + p.Winograd.Grid[tile]*tiles*groups + p.Winograd.Point*points*panels
}
