// Package rate says which share of a core's multiply-add peak the kernels of
// package ukernel reach. It imports nothing of spc.
package rate

// Rate is the measured speed of a kernel as shares of the peak.
//
// A row of W (a block row of a sparse one) takes as many steps as it has
// columns that are not zero, and costs as much as Start steps besides. Where the
// panel does not fit into the level 1 cache the speed of sparse kernels depends
// on the density, since the fewer rows of the panel are skipped, the better the
// hardware fetches them ahead.
type Rate struct {
	Near     float64    // the panel fits into the level 1 cache
	Far      [2]float64 // it does not: at 5% and at 50% of density
	Start    float64
	Vec      float64 // a single column, weights in the level 2 cache
	VecStart float64
}

// nearColumns is the largest K of which a panel fits into a level 1 cache of
// 48 KiB.
const nearColumns = 384

// Dense is the rate of the dense kernels. See Blocks for how it was measured.
var Dense = Rate{Near: 0.98, Far: [2]float64{0.95, 0.95}, Start: 2, Vec: 0.40, VecStart: 20}

// Blocks holds the rates of the kernels for vertical blocks by their rows.
//
// Fitted to BenchmarkProduct of package format, 14 shapes of ResNet50 and BERT
// at 50, 80, 90 and 95% zeros, hot weights: 2026-11-21, one core of a Xeon with
// AVX-512 (Emerald Rapids, 2.3 GHz, family 6 model 207), peak 185 GFLOP/s. The
// fit is within 7% of the geometric mean, 20% for single columns of one row.
var Blocks = map[int]Rate{
	1:  {Near: 0.56, Far: [2]float64{0.37, 0.49}, Start: 2.5, Vec: 0.045, VecStart: 9},
	2:  {Near: 0.80, Far: [2]float64{0.58, 0.57}, Start: 1.6, Vec: 0.055, VecStart: 3},
	4:  {Near: 0.97, Far: [2]float64{0.84, 0.82}, Start: 2.0, Vec: 0.080, VecStart: 1},
	8:  {Near: 0.97, Far: [2]float64{0.92, 0.92}, Start: 1.6, Vec: 0.14, VecStart: 1},
	16: {Near: 0.97, Far: [2]float64{0.90, 0.85}, Start: 1.5, Vec: 0.26, VecStart: 2},
}

// Efficiency is the share of the peak in a product of k rows and n columns of
// X with rows of W that take so many steps on average.
func (r Rate) Efficiency(steps float64, k, n int) float64 {
	steps = max(steps, 1)
	if n <= 1 {
		return r.Vec * steps / (steps + r.VecStart)
	}
	e := r.Near
	if k > nearColumns {
		density := min(max(steps/float64(k), 0.05), 0.5)
		e = r.Far[0] + (r.Far[1]-r.Far[0])*(density-0.05)/0.45
	}
	return e * steps / (steps + r.Start)
}
