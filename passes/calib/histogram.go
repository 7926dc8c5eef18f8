package calib

import (
	"context"

	"spc/ir"
)

// Bins is the number of bins of a histogram.
const Bins = 2048

// Histogram counts the elements that a value had over all samples, in bins of equal
// width between the least and the greatest of them.
type Histogram struct {
	Range
	Count [Bins]int64
	Zeros int64 // elements that are exactly 0, which no bin counts
}

// Histograms counts the elements of the values, f32 tensors of the root graph g, of
// which ranges are those that Ranges gave. It evaluates the graph on all samples; its
// result does not depend on the order in which elements are counted.
func (o *Observer) Histograms(ctx context.Context, g *ir.Graph, values []*ir.Value, ranges []Range) ([]*Histogram, error) {
	hists := make([]*Histogram, len(values))
	for i, r := range ranges {
		hists[i] = &Histogram{Range: r}
	}
	return hists, o.watch(ctx, g, values, func(i int, x []float32) error {
		hists[i].add(x)
		return nil
	})
}

// Width is the width of a bin, 0 where all elements are the same.
func (h *Histogram) Width() float64 { return (float64(h.Hi) - float64(h.Lo)) / Bins }

// Len is the number of elements, zeros included.
func (h *Histogram) Len() int64 {
	n := h.Zeros
	for _, c := range h.Count {
		n += c
	}
	return n
}

// add counts elements, which lie in the range.
func (h *Histogram) add(x []float32) {
	lo, scale := float64(h.Lo), 0.0
	if w := h.Width(); w > 0 {
		scale = 1 / w
	}
	for _, v := range x {
		if v == 0 {
			h.Zeros++
			continue
		}
		h.Count[min(max(int((float64(v)-lo)*scale), 0), Bins-1)]++
	}
}
