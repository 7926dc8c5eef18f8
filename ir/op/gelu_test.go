package op

import (
	"math"
	"testing"
)

// Far below zero both forms keep their bits, and elsewhere they are what the paper has.
func TestGeluFarBelowZero(t *testing.T) {
	for _, c := range []struct {
		x, erf, tanh float64
	}{
		{-9, -9 * 1.1285884059538e-19, -9 * math.Exp(-2*math.Sqrt(2/math.Pi)*(9+0.044715*729))},
		{-1, -0.15865525393145707, -0.5 * (1 - math.Tanh(math.Sqrt(2/math.Pi)*1.044715))},
		{2, 1.9544997361036416, 1 + math.Tanh(math.Sqrt(2/math.Pi)*(2+0.044715*8))},
	} {
		for tanh, want := range map[bool]float64{false: c.erf, true: c.tanh} {
			if got := gelu(c.x, tanh); !(math.Abs(got-want) <= 1e-12*math.Abs(want)) {
				t.Errorf("gelu(%v, %v) = %v, want %v", c.x, tanh, got, want)
			}
		}
	}
}
