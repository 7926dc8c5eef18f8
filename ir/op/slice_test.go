package op

import (
	"math"
	"testing"

	"spc/ir"
)

// What is inferred for an axis of unknown size is right for every size, also where bounds are clamped.
func TestSlicesOfOpenAxes(t *testing.T) {
	seq := ir.Sym("seq")
	bounds := []int{math.MinInt64, -1 << 31, -5, -3, -2, -1, 0, 1, 2, 3, 5, 1<<31 - 1, math.MaxInt64}
	for _, open := range []ir.Dim{seq, ir.Add(seq, 2), ir.Mul(ir.Size(2), seq)} {
		unknown := 0
		for _, start := range bounds {
			for _, end := range bounds {
				got := sliceDim(open, ir.Size(start), ir.Size(end), 1, func() ir.Dim {
					unknown++
					return ir.Sym("?1")
				})
				for n := range 8 {
					sizes := map[string]int{"seq": n}
					d, _ := open.At(sizes)
					want := 0
					for i := range d { // element i is among those between the bounds, which count from the end below 0
						if (i >= start && start >= 0 || start < 0 && i-d >= start) && (i < end && end >= 0 || end < 0 && i-d < end) {
							want++
						}
					}
					if have, ok := got.At(sizes); ok && have != want {
						t.Errorf("[%d:%d] of %v is %v, which is %d where seq is %d, want %d", start, end, open, got, have, n, want)
					}
				}
			}
		}
		if unknown > 0 {
			t.Errorf("%d slices of %v are unknown", unknown, open)
		}
	}
}
