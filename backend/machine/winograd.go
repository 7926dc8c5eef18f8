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
