package machine

import "spc/passes/choose"

// PieceProducts is the number of multiply-adds in the time that one tap of a convolution that is computed tap by tap takes besides its
// own: its loops begin and end, and its results are put in their places.
const PieceProducts = 1 << 18

// ByTaps reports whether a dilated convolution is computed tap by tap, as taps reach so few pixels that most products would be with
// zeros around images. Of all pairs of a tap and a pixel, of so many multiply-adds each, some are within images, of so many taps, each of
// which costs piece multiply-adds besides. With weights that are not dense it pays where five sixths of the products go.
func ByTaps(some, all, taps, products, piece int, dense bool) bool {
	if 2*some > all || !dense && 6*some > all {
		return false
	}
	return products*(all-some) >= piece*taps
}

// Taps are the taps of a weight that are computed one by one.
type Taps struct {
	weight *choose.Matrix
	count  int // of those that reach an image
	kernel int // of all
	cols   int // pixels that one reaches on average
}

// TapsOf returns the taps of w where a convolution with it, stored dense or not, is computed by them.
func TapsOf(w *choose.Matrix, dense bool) (t Taps, ok bool) {
	s := w.Slide
	if s == nil || w.Len() == 0 {
		return t, false
	}
	pairs, taps, ok := s.Reach()
	if !ok || taps == 0 {
		return t, false
	}
	images, out := s.Pixels()
	kernel, all := 1, 1
	for i, k := range s.Kernel {
		kernel, all = kernel*k, all*k*out[i]
	}
	if !ByTaps(pairs, all, taps, images*w.Len()/kernel, PieceProducts, dense) {
		return t, false
	}
	return Taps{weight: w, count: taps, kernel: kernel, cols: max(1, images*pairs/taps)}, true
}

// ByTap returns the operations of products of kernels of k with so many values of the whole weight in rows rows, and the cost of these, of
// loading pixels and of putting results in their places, in floating-point operations at the peak.
func (p *Profile) ByTap(t Taps, k Kernel, values, rows int) (work, cost float64) {
	width := t.weight.Dim(1) / t.kernel // columns of W that a tap has
	steps := float64(values) / float64(rows*t.kernel)
	work = 2 * float64(values) * float64(t.count*k.Columns(t.cols)) / float64(t.kernel)
	load := p.Images.Row * float64(width) * float64(t.cols)
	if 4*width*t.cols > p.Images.Near {
		load *= p.Images.Farther
	}
	return work, work/k.Efficiency(steps, width, t.cols) + float64(t.count)*(load+2*PieceProducts)
}
