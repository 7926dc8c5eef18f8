package calib

// Bins is the number of bins of a histogram.
const Bins = 2048

// Histogram counts the elements that a value had over all samples, in bins of equal
// width between the least and the greatest of them.
type Histogram struct {
	Range
	Count [Bins]int64
	Zeros int64 // elements that are exactly 0, which no bin counts
}

// NewHistogram returns the histogram of a value of whose elements Observer.Ranges gave
// the range.
func NewHistogram(r Range) *Histogram { return &Histogram{Range: r} }

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

// Add counts elements, which lie in the range. What it counts does not depend on their
// order.
func (h *Histogram) Add(x []float32) {
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
