// Package tune predicts the time of kernels. Its analytic model knows a peak and
// a bandwidth; formats say which share of the peak their kernels reach.
package tune

import (
	"math"

	"spc/passes/choose"
)

// Analytic is the resource model time = max(W / (P*E), bytes / bandwidth).
type Analytic struct {
	Peak      float64 // floating-point operations a second of one core
	Bandwidth float64 // bytes a second from the cache that weights stream from
}

// Default is a core with two 256-bit multiply-add units at 3 GHz: choices depend
// on ratios of predicted times only, so they are the same on every machine.
var Default = Analytic{Peak: 96e9, Bandwidth: 20e9}

// Predict returns the time that a product takes.
func (a Analytic) Predict(c choose.Cost, m, k, n int) (seconds, peak float64) {
	return math.Max(c.Work/(a.Peak*c.Efficiency), float64(c.Bytes)/a.Bandwidth), a.Peak
}

// Measured is zero: the model measures nothing.
func (Analytic) Measured(choose.Cost, int, int, int) float64 { return 0 }
