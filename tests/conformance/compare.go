package conformance

import (
	"fmt"
	"math"
	"slices"

	"spc/ir/tensor"
)

// The tolerances of the official suite: |a-b| <= atol + rtol |b|.
const (
	rtol = 1e-3
	atol = 1e-7
)

// Compare returns how a result differs from what is wanted, beyond the suite's
// tolerances for floating-point elements and at all for others; nil where it
// does not. NaN equals NaN.
func Compare(got, want *tensor.Tensor) error {
	if got == nil {
		return fmt.Errorf("no result, want %v", want)
	}
	if got.DType() != want.DType() || !slices.Equal(got.Shape(), want.Shape()) {
		return fmt.Errorf("%v, want %v", got, want)
	}
	if want.DType().IsList() {
		for i, w := range want.Items() {
			if err := Compare(got.Items()[i], w); err != nil {
				return fmt.Errorf("%v: element %d: %w", got, i, err)
			}
		}
		return nil
	}
	bad, first := 0, -1
	worst := 0.0
	note := func(i int, diff float64) {
		if bad == 0 {
			first = i
		}
		bad++
		worst = max(worst, diff)
	}
	describe := func(i int) (a, b any) { return nil, nil }
	switch dt := want.DType(); {
	case dt == tensor.String:
		a, b := got.Strings(), want.Strings()
		describe = func(i int) (any, any) { return a[i], b[i] }
		for i := range b {
			if a[i] != b[i] {
				note(i, 0)
			}
		}
	case dt.IsFloat():
		a, b := got.Float64s(), want.Float64s()
		describe = func(i int) (any, any) { return a[i], b[i] }
		for i := range b {
			if !close(a[i], b[i]) {
				note(i, math.Abs(a[i]-b[i]))
			}
		}
	case dt == tensor.C64 || dt == tensor.C128:
		a, b := got.Bytes(), want.Bytes()
		if string(a) != string(b) {
			return fmt.Errorf("%v: the complex elements differ", got)
		}
	default:
		a, b := got.Int64s(), want.Int64s()
		describe = func(i int) (any, any) { return a[i], b[i] }
		for i := range b {
			if a[i] != b[i] {
				note(i, math.Abs(float64(a[i])-float64(b[i])))
			}
		}
	}
	if bad == 0 {
		return nil
	}
	a, b := describe(first)
	return fmt.Errorf("%v: %d of %d elements differ, by at most %.3g; element %d is %v, want %v", got, bad, want.Len(), worst, first, a, b)
}

func close(a, b float64) bool {
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return math.IsNaN(a) && math.IsNaN(b)
	case math.IsInf(a, 0) || math.IsInf(b, 0):
		return a == b
	}
	return math.Abs(a-b) <= atol+rtol*math.Abs(b)
}
