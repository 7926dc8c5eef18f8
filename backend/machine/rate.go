// Package machine says how fast kernels are on a machine: which share of a core's multiply-add peak they reach, and what
// convolutions cost beside, as its profile has it. It imports choose.
package machine

import (
	"maps"
	"slices"
)

// Rate is the measured speed of a family of kernels, as shares of the peak and steps.
//
// Panels are multiplied in blocks of columns of W that stay in the level 1 cache.
// In each of them a row of W (a block row of a sparse one) takes as many steps as
// it has columns that are not zero there, and costs as much as Start steps
// besides.
type Rate struct {
	Panel    float64    `json:"panel"`         // many steps, panels of full width
	Start    float64    `json:"start"`         // steps
	Narrow   [4]float64 `json:"narrow"`        // the share of Panel that panels of 16, 32, 48 and 64 columns reach
	Vec      float64    `json:"vec,omitempty"` // a single column, weights in the level 2 cache
	VecStart float64    `json:"vec_start,omitempty"`
	VecIdle  float64    `json:"vec_idle,omitempty"` // steps for each column of W besides, where rows wait for each other
}

// Family is kernels that have a rate.
type Family string

// The families: dense weights, single rows with generated code, vertical blocks by their rows, horizontal ones by their columns,
// whose panels are multiplied as those of single rows, the bits of bitmaps, codes of 8 and 4 bits that stand for floats, dense and of
// bitmaps, and 8-bit integers, dense and in groups of four.
const (
	Dense     Family = "dense"
	Generated Family = "generated"
	Rows1     Family = "rows1"
	Rows2     Family = "rows2"
	Rows4     Family = "rows4"
	Rows8     Family = "rows8"
	Rows16    Family = "rows16"
	Columns4  Family = "columns4"
	Columns8  Family = "columns8"
	Columns16 Family = "columns16"
	Bitmap    Family = "bitmap"
	Codes8    Family = "codes8"
	Codes4    Family = "codes4"
	Bitmap8   Family = "bitmap8"
	Bitmap4   Family = "bitmap4"
	Dense8    Family = "dense8"
	Groups8   Family = "groups8"
)

// kind is what holds of a family on every machine.
type kind struct {
	blockK     int // columns of W in a block
	vecColumns int // up to so many columns are multiplied one by one
}

var kinds = map[Family]kind{
	Dense:     {256, 1},
	Generated: {128, 6},
	Rows1:     {160, 6},
	Rows2:     {192, 3},
	Rows4:     {256, 5},
	Rows8:     {256, 6},
	Rows16:    {256, 7},
	Columns4:  {160, 5},
	Columns8:  {160, 6},
	Columns16: {160, 8},
	Bitmap:    {160, 8},
	Codes8:    {256, 16},
	Codes4:    {256, 16},
	Bitmap8:   {256, 16},
	Bitmap4:   {256, 16},
	Dense8:    {1 << 16, 0},
	Groups8:   {512, 0},
}

// readOnce are the families of weights that products of few columns read once, whatever they have: those that need not be in a profile.
var readOnce = []Family{Bitmap, Codes8, Codes4, Bitmap8, Bitmap4}

// optional reports whether the rate of a family may be that of another, or the default profile's.
func (f Family) optional() bool { return f == Generated || slices.Contains(readOnce, f) }

// Codes is the family of codes of so many bits, all of a weight or those of a bitmap.
func Codes(bits int, bitmap bool) Family {
	switch {
	case bitmap && bits == 4:
		return Bitmap4
	case bitmap:
		return Bitmap8
	case bits == 4:
		return Codes4
	}
	return Codes8
}

// Families lists them.
func Families() []Family { return slices.Sorted(maps.Keys(kinds)) }

// rows and runs are the families of blocks by their rows and by their columns.
var (
	rows = map[int]Family{1: Rows1, 2: Rows2, 4: Rows4, 8: Rows8, 16: Rows16}
	runs = map[int]Family{4: Columns4, 8: Columns8, 16: Columns16}
)

// OfRows is the family of vertical blocks of so many rows, of which there are kernels.
func OfRows(n int) Family { return rows[n] }

// OfColumns is the family of horizontal blocks of so many columns; ok is false where there are no such kernels.
func OfColumns(n int) (f Family, ok bool) {
	f, ok = runs[n]
	return f, ok
}

// VecColumns is the number of columns up to which kernels of the family multiply them one by one.
func (f Family) VecColumns() int { return kinds[f].vecColumns }

// GatheredColumns is the VecColumns of single rows with kernels that gather the elements of a vector: those of machines
// without AVX2.
const GatheredColumns = 2

// WidenedColumns is the number of columns of a product from which on weights of 16 bits are widened once, when the model is
// loaded, and not each time that a panel of columns meets them. BenchmarkWidened of package format has both.
const WidenedColumns = 16

// Kernel is the rate of a family with what holds of it everywhere.
type Kernel struct {
	Rate
	kind
}

// Panels is k where even single columns fill panels, as pixels do.
func (k Kernel) Panels() Kernel {
	k.vecColumns = 1
	return k
}

// VecColumns is that of the family.
func (k Kernel) VecColumns() int { return k.vecColumns }

// granule and panel are the columns by which panels narrow, and of a whole one.
const granule, panel = 16, 64

// Columns is the number of columns that a product of n of them computes.
func (k Kernel) Columns(n int) int {
	if n <= k.vecColumns {
		return n
	}
	return (n + granule - 1) / granule * granule
}

// Narrow reports whether a dense product of m rows and n columns takes the rows as lanes, as columns would leave more idle or
// make narrower panels.
func Narrow(m, n int) bool {
	d := Default.Of(Dense)
	return 10*float64(n)*d.lanes(m) < 9*float64(m)*d.lanes(n)
}

// NarrowWindow is Narrow for what a window of several pixels sees, which is loaded into one panel.
func NarrowWindow(m, n int) bool { return n <= panel && Narrow(m, n) }

// NarrowWork is the work of a product that is narrow, of so many operations, at the peak.
func (p *Profile) NarrowWork(m int, work float64) float64 {
	d := p.Of(Dense)
	return work * d.lanes(m) / float64(m) / d.Panel
}

// TokensWork is the work at the peak of a dense product of a weight [m,k] with tokens, of so many operations: it takes the rows as
// lanes, as one that is narrow does, and tokens are not filled up.
func (p *Profile) TokensWork(m, k int, work float64) float64 {
	block := kinds[Dense].blockK
	steps := float64(k) / float64(max(1, (k+block-1)/block))
	return p.NarrowWork(m, work) * (steps + p.Tokens) / steps
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

// Read is the share of the peak, all elements counted, in a product of few columns whose kernel reads a bit or a code of each element of
// W, [M,k], once: Vec is what a single column reaches, and Panel what further ones do.
func (r Kernel) Read(k, n int) float64 {
	steps := float64(max(k, 1))
	return float64(n) / (1/r.Vec + float64(n-1)/r.Panel) * steps / (steps + r.VecStart)
}

// Widening is by how much a dense product of n columns takes longer where floats are made of codes for each panel, which takes as long
// as Start columns.
func (r Kernel) Widening(n int) float64 {
	return 1 + r.Start*float64((n+panel-1)/panel)/float64((n+granule-1)/granule*granule)
}

// Efficiency is the share of the peak in a product of k rows and n columns of
// X with rows of W that take so many steps on average.
func (r Kernel) Efficiency(steps float64, k, n int) float64 {
	steps = max(steps, 1)
	if n <= r.vecColumns {
		return r.Vec * steps / (steps + r.VecStart + r.VecIdle*float64(k))
	}
	steps /= float64(max(1, (k+r.blockK-1)/r.blockK))
	return r.Panel * r.width(n) * steps / (steps + r.Start)
}
