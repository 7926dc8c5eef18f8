package rate

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

// Costs in floating-point operations that the peak allows in their time, measured
// as Blocks was.
const (
	// patch is the cost of an element of a panel that is loaded from an image or from tokens, and
	// farther times that where these do not fit the level 2 cache.
	patch   = 20
	farther = 2.5
	// strip is the cost of an element that is copied into a strip of a padded image, in
	// which kernels read patches where they lie; far what it costs in addition where
	// the images do not fit the level 2 cache; pad that of making the strips at all.
	strip = 36
	far   = 28
	pad   = 450e3
	// level2 is the floats that the level 2 cache holds.
	level2 = 2 << 20 / 4
	// word is the cost of a float of a transformed weight, which products are
	// computed behind: in a model, where other weights have come between, it comes
	// from beyond the level 2 cache.
	word = 45
	// start is the number of columns of W that a tile of rows of a product costs
	// besides, point the cost of a product of tiles with a panel.
	start = 5
	point = 10e3
)

// grid is the cost of transforming a tile of 16 channels of the input or of the
// output, by its size.
var grid = map[int]float64{2: 5e3, 4: 20e3}

// Direct is the cost of a product with patches of the images, in floating-point
// operations at the peak.
func (c Conv) Direct() float64 {
	k, n := 9*c.C, c.Images*c.OH*c.OW
	cols := (n + granule - 1) / granule * granule
	return 2*float64(c.M)*float64(k)*float64(cols)/Dense.Efficiency(float64(k), k, n) + c.Patches()
}

// Patches is the part of Direct that loading patches takes.
func (c Conv) Patches() float64 {
	cost := patch * 9 * float64(c.C) * float64(c.Images*c.OH*c.OW)
	if c.far() {
		cost *= farther
	}
	return cost
}

// far reports whether an image does not fit the level 2 cache.
func (c Conv) far() bool { return c.C*c.OH*c.OW > level2 }

// Loaded is the share of the peak that is left of efficiency e in a sparse product of
// so much work where patches of images must be loaded.
func Loaded(w *choose.Matrix, work, e float64) float64 {
	if c, ok := Of(w); ok && work > 0 {
		return work / (work/e + c.Patches() + pad)
	}
	return e
}

// Turned is the share of the peak that is left of efficiency e in a product of so much work whose panels are loaded from n
// tokens of k features.
func Turned(k, n int, work, e float64) float64 {
	cost := float64(patch * k * n)
	if k*n > level2/2 {
		cost *= farther
	}
	return work / (work/e + cost)
}

// Placed is Loaded for kernels that read patches where they lie in a strip of a
// padded image.
func Placed(w *choose.Matrix, work, e float64) float64 {
	if c, ok := Of(w); ok && work > 0 {
		return work / (work/e + c.strips())
	}
	return e
}

// strips is the cost of the strips, which hold the rows of the image that a panel of
// pixels lies in, and one more above, below and on both sides.
func (c Conv) strips() float64 {
	width := min(c.OW, panel)
	rows := float64(panel) / float64(width)
	if panel%width != 0 {
		rows++ // a panel begins within a row
	}
	cost := float64(strip)
	if c.far() {
		cost += far
	}
	copied := min((rows+2)*float64(width+2)/panel*float64(c.OH*c.OW), float64((c.OH+2)*(c.OW+2)*((c.OH*c.OW+panel-1)/panel)))
	return cost*copied*float64(c.C*c.Images) + pad
}

// Tiles returns the size of the tiles, 2 or 4, by which Winograd's algorithm is
// fastest, the operations of its products, and its cost in floating-point
// operations at the peak.
func (c Conv) Tiles() (tile int, work, cost float64) {
	for _, t := range []int{2, 4} {
		points := float64((t + 2) * (t + 2))
		tiles := float64(c.Images * ((c.OH + t - 1) / t) * ((c.OW + t - 1) / t))
		groups := float64((c.C+granule-1)/granule + (c.M+granule-1)/granule)
		rows := float64((c.M + granule - 1) / granule * granule)
		panels := float64((c.M + panel - 1) / panel)
		products := 2 * points * float64(c.C) * rows * tiles
		total := products * float64(c.C+start) / float64(c.C) / Dense.Panel
		total = max(total, word*points*float64(c.C)*rows)
		total += grid[t]*tiles*groups + point*points*panels
		if tile == 0 || total < cost {
			tile, work, cost = t, products, total
		}
	}
	return tile, work, cost
}
