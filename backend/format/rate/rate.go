// Package rate says which share of a core's multiply-add peak the kernels of
// package ukernel reach, and what convolutions cost beside. It imports choose.
package rate

// Rate is the measured speed of a kernel as shares of the peak.
//
// Panels are multiplied in blocks of columns of W that stay in the level 1 cache.
// In each of them a row of W (a block row of a sparse one) takes as many steps as
// it has columns that are not zero there, and costs as much as Start steps
// besides.
type Rate struct {
	Panel    float64    // many steps, panels of full width
	Start    float64    // steps
	BlockK   int        // columns of W in a block
	Narrow   [4]float64 // the share of Panel that panels of 16, 32, 48 and 64 columns reach
	Vec      float64    // a single column, weights in the level 2 cache
	VecStart float64
	VecIdle  float64 // steps for each column of W besides, where rows wait for each other

	VecColumns int // up to so many columns are multiplied one by one
}

// Dense is the rate of the dense kernels. See Blocks for how it was measured.
var Dense = Rate{Panel: 0.98, Start: 2, BlockK: 256, Narrow: [4]float64{0.78, 0.96, 1, 1}, Vec: 0.45, VecStart: 4, VecColumns: 1}

// Blocks holds the rates of the kernels for vertical blocks by their rows.
//
// Fitted to shapes of ResNet50 and BERT at 80 and 90% zeros, hot weights, single
// columns to 50 to 95%: 2026-11-21, one core of a Xeon with AVX-512 (family 6
// model 207), peak 174 GFLOP/s. BenchmarkProduct of package format prints what
// the kernels reach and what this predicts. Single columns are to each other as there, those
// with single rows, the panels of these, and all single columns to panels as on one core of an EPYC (family 25 model 17),
// 2026-11-26.
var Blocks = map[int]Rate{
	1:  {Panel: 0.77, Start: 6, BlockK: 160, Narrow: [4]float64{0.66, 0.85, 0.93, 1}, Vec: 0.33, VecStart: 3, VecIdle: 0.075, VecColumns: 6},
	2:  {Panel: 0.95, Start: 4.4, BlockK: 192, Narrow: [4]float64{0.62, 0.88, 0.97, 1}, Vec: 0.11, VecStart: 9.5, VecColumns: 3},
	4:  {Panel: 1, Start: 3, BlockK: 256, Narrow: [4]float64{0.64, 0.90, 0.97, 1}, Vec: 0.17, VecStart: 7, VecColumns: 5},
	8:  {Panel: 1, Start: 2.4, BlockK: 256, Narrow: [4]float64{0.76, 0.98, 0.98, 1}, Vec: 0.24, VecStart: 5, VecColumns: 6},
	16: {Panel: 1, Start: 2.4, BlockK: 256, Narrow: [4]float64{0.76, 0.98, 0.98, 1}, Vec: 0.31, VecStart: 0.5, VecColumns: 7},
}

// GatheredColumns is the VecColumns of single rows with kernels that gather the elements of a vector: those of machines
// without AVX2.
const GatheredColumns = 2

// WidenedColumns is the number of columns of a product from which on weights of 16 bits are widened once, when the model is
// loaded, and not each time that a panel of columns meets them. BenchmarkWidened of package format has both.
const WidenedColumns = 16

// Products8 holds the rates of products of 8-bit integers, with dense weights and with
// 1x4 groups. A step is a group of four columns of W.
type Products8 struct{ Dense, Groups Rate }

// Integers holds, by the instruction sets of package ikernel, the rates as shares of
// the peak of f32 on vectors of the same width, of which VNNI has four times as much
// and AMX 32 times. Pure Go has those of VNNI: what counts there is the ratio of the
// two. See Blocks for the machine; fitted to the layers of ResNet50 without zeros and
// with 80%, those of AVX2 to 256 rows of 64 to 512 columns. BenchmarkGemm and
// BenchmarkSpmm of package ikernel print what the kernels reach.
var Integers = map[string]Products8{
	"amx":  {tiles8, groups8},
	"vnni": {dense8, groups8},
	"go":   {dense8, groups8},
	"avxvnni": {
		Rate{Panel: 3.7, Start: 2.5, BlockK: 1 << 16, Narrow: [4]float64{0.96, 0.98, 1, 1}, Vec: 0.8, VecStart: 4},
		Rate{Panel: 3.3, Start: 0.7, BlockK: 512, Narrow: [4]float64{0.62, 0.85, 0.95, 1}},
	},
	"avx2": {
		Rate{Panel: 1.7, Start: 0.8, BlockK: 1 << 16, Narrow: [4]float64{0.95, 0.98, 1, 1}, Vec: 0.8, VecStart: 4},
		Rate{Panel: 1.7, Start: 0.2, BlockK: 512, Narrow: [4]float64{0.94, 0.97, 1, 1}},
	},
}

var (
	dense8  = Rate{Panel: 3.6, Start: 2, BlockK: 1 << 16, Narrow: [4]float64{0.55, 0.9, 1, 1}, Vec: 0.8, VecStart: 4}
	tiles8  = Rate{Panel: 16, Start: 30, BlockK: 1 << 16, Narrow: [4]float64{0.6, 1, 0.95, 1}, Vec: 0.8, VecStart: 4}
	groups8 = Rate{Panel: 2.8, Start: 0.8, BlockK: 512, Narrow: [4]float64{0.5, 0.75, 0.9, 1}}
)

// Runs holds, by their columns, what single columns reach with horizontal blocks,
// whose panels are multiplied as those of single rows.
var Runs = map[int]Rate{
	4:  Blocks[1].single(0.13, 9.5, 5),
	8:  Blocks[1].single(0.23, 24, 6),
	16: Blocks[1].single(0.33, 34, 8),
}

// Generated is the rate of the code that is generated for single rows and many
// columns, on the machine of Blocks; BenchmarkGenerated of package format prints
// what it reaches.
var Generated = func() Rate {
	r := Blocks[1]
	r.Panel, r.Start, r.BlockK = 1, 10, 128
	return r
}()

// single is r with other rates of single columns.
func (r Rate) single(vec, start float64, columns int) Rate {
	r.Vec, r.VecStart, r.VecIdle, r.VecColumns = vec, start, 0, columns
	return r
}

// granule and panel are the columns by which panels narrow, and of a whole one.
const granule, panel = 16, 64

// Columns is the number of columns that a product of n of them computes.
func (r Rate) Columns(n int) int {
	if n <= r.VecColumns {
		return n
	}
	return (n + granule - 1) / granule * granule
}

// Narrow reports whether a dense product of m rows and n columns takes the rows as lanes, as columns would leave more idle or
// make narrower panels.
func Narrow(m, n int) bool {
	return 10*float64(n)*Dense.lanes(m) < 9*float64(m)*Dense.lanes(n)
}

// NarrowWindow is Narrow for what a window of several pixels sees, which is loaded into one panel.
func NarrowWindow(m, n int) bool { return n <= panel && Narrow(m, n) }

// NarrowWork is the work of a product that is narrow, of so many operations, at the peak.
func NarrowWork(m int, work float64) float64 {
	return work * Dense.lanes(m) / float64(m) / Dense.Panel
}

// tokenStart is what a tile of tokens costs besides, in columns of W.
const tokenStart = 8

// TokensWork is the work at the peak of a dense product of a weight [m,k] with tokens, of so many operations: it takes the rows as
// lanes, as one that is narrow does, and tokens are not filled up.
func TokensWork(m, k int, work float64) float64 {
	steps := float64(k) / float64(max(1, (k+Dense.BlockK-1)/Dense.BlockK))
	return NarrowWork(m, work) * (steps + tokenStart) / steps
}

// width is what panels of n columns reach of Panel.
func (r Rate) width(n int) float64 {
	granules := (n + granule - 1) / granule
	strips := (granules*granule + panel - 1) / panel
	return r.Narrow[(granules+strips/2)/strips-1]
}

// lanes is the number of columns of whole panels that take as long as n columns.
func (r Rate) lanes(n int) float64 {
	return float64((n+granule-1)/granule*granule) / r.width(n)
}

// Efficiency is the share of the peak in a product of k rows and n columns of
// X with rows of W that take so many steps on average.
func (r Rate) Efficiency(steps float64, k, n int) float64 {
	steps = max(steps, 1)
	if n <= r.VecColumns {
		return r.Vec * steps / (steps + r.VecStart + r.VecIdle*float64(k))
	}
	steps /= float64(max(1, (k+r.BlockK-1)/r.BlockK))
	return r.Panel * r.width(n) * steps / (steps + r.Start)
}
