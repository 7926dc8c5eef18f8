package ukernel

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// Blocks lists the heights of the vertical blocks that kernels exist for. Rows
// without blocks (csr, ell, nm) are blocks of one row.
var Blocks = []int{1, 2, 4, 8, 16}

// Index is the type of column indices: uint16 where K allows it.
type Index interface{ uint16 | uint32 }

// Sparse is a sparse weight bound to its kernels. It is made of vertical blocks:
// R consecutive rows, R being one of Blocks, form a group, and a group is a
// sequence of steps, a step being a column and its values in the R rows.
type Sparse[I Index] struct {
	rows, m, k int
	ptr        []uint32
	index      []I
	value      []float32
	isa        string
	blockKernels[I]
}

// blockKernels multiply consecutive groups. ptr has a length of groups+1, groups
// being at least 1; index and value start at the first group's.
type blockKernels[I Index] struct {
	spmm spmm[I]
	spmv spmv[I]
}

type (
	spmm[I Index] func(groups int, ptr []uint32, index []I, value, x, y []float32, ldy int, acc bool)
	spmv[I Index] func(groups int, ptr []uint32, index []I, value, x, y []float32)
)

// NewSparse binds a weight of m rows and k columns, stored in blocks of the
// given number of rows, to the kernels of kern. Group g owns the steps ptr[g]
// to ptr[g+1]-1; step j is the column index[j] with value[j*rows:][:rows]. The
// last group is padded with zeros if m does not fill it. The slices are kept
// and must not change. The error says which of these properties is violated.
func NewSparse[I Index](kern *Kernels, rows, m, k int, ptr []uint32, index []I, value []float32) (*Sparse[I], error) {
	if !slices.Contains(Blocks, rows) {
		return nil, fmt.Errorf("sparse weight: no kernel for %dx1 blocks", rows)
	}
	if m < 0 || k < 0 || k > math.MaxInt32 {
		return nil, fmt.Errorf("sparse weight: no kernel for %d x %d", m, k)
	}
	groups := (m + rows - 1) / rows
	if len(ptr) != groups+1 {
		return nil, fmt.Errorf("sparse weight: %d group bounds, want %d", len(ptr), groups+1)
	}
	for g := range groups {
		if ptr[g] > ptr[g+1] {
			return nil, fmt.Errorf("sparse weight: group %d ends before it begins", g)
		}
	}
	steps := uint64(ptr[groups])
	if have := uint64(len(index)); have < steps {
		return nil, fmt.Errorf("sparse weight: %d indices, want %d", have, steps)
	}
	if have := uint64(len(value)); have < steps*uint64(rows) {
		return nil, fmt.Errorf("sparse weight: %d values, want %d", have, steps*uint64(rows))
	}
	for i, c := range index[:steps] {
		if uint64(c) >= uint64(k) {
			return nil, fmt.Errorf("sparse weight: index %d is column %d of %d", i, c, k)
		}
	}
	a := &Sparse[I]{rows: rows, m: m, k: k, ptr: ptr, index: index, value: value, isa: kern.ISA}
	switch kernels := any(&a.blockKernels).(type) {
	case *blockKernels[uint16]:
		*kernels = kern.block16[rows]
	case *blockKernels[uint32]:
		*kernels = kern.block32[rows]
	}
	return a, nil
}

// Kernel returns the name of the kernel that multiplies panels: dtype, index
// type, block and instruction set.
func (a *Sparse[I]) Kernel() string {
	index := "u16"
	if _, wide := any(a.index).([]uint32); wide {
		index = "u32"
	}
	return fmt.Sprintf("spmm_f32_%s_%dx1_%s", index, a.rows, a.isa)
}

// Groups returns the number of groups, the last of which may be partial.
func (a *Sparse[I]) Groups() int { return (a.m + a.rows - 1) / a.rows }

// tile is the output of one group of any height.
type tile = [16 * Columns]float32

// tiles lends the output of a padded group.
var tiles = sync.Pool{New: func() any { return new(tile) }}

// span checks a range of groups and returns the number of its rows and the end
// of its whole groups, to or to-1.
func (a *Sparse[I]) span(from, to int) (rows, whole int) {
	if from < 0 || from > to || to > a.Groups() {
		panic("ukernel: groups outside the weight")
	}
	if from == to {
		return 0, to
	}
	if to*a.rows > a.m {
		return a.m - from*a.rows, to - 1
	}
	return (to - from) * a.rows, to
}

// steps returns what the kernels read of groups from to to-1.
func (a *Sparse[I]) steps(from, to int) (ptr []uint32, index []I, value []float32) {
	start := int(a.ptr[from])
	return a.ptr[from : to+1], a.index[start:], a.value[start*a.rows:]
}

// Mul computes the rows of groups from to to-1: Y = W X, or Y += W X with acc
// set. x is a panel [k][Columns]; y begins with the first of these rows and has
// the row stride ldy. Rows that pad the last group are not written.
func (a *Sparse[I]) Mul(from, to int, x, y []float32, ldy int, acc bool) {
	rows, whole := a.span(from, to)
	checkPanel(rows, a.k, x, y, ldy)
	if from < whole {
		ptr, index, value := a.steps(from, whole)
		a.spmm(whole-from, ptr, index, value, x, y, ldy, acc)
	}
	if whole == to {
		return
	}
	last := tiles.Get().(*tile)
	defer tiles.Put(last)
	ptr, index, value := a.steps(whole, to)
	a.spmm(1, ptr, index, value, x, last[:], Columns, false)
	for i := (whole - from) * a.rows; i < rows; i++ {
		store(y[i*ldy:], (*row)(last[i%a.rows*Columns:]), acc)
	}
}

// MulVec computes the rows of groups from to to-1 of y = W x for a vector x of
// k elements; y begins with the first of these rows.
func (a *Sparse[I]) MulVec(from, to int, x, y []float32) {
	rows, whole := a.span(from, to)
	need("vector", len(x), a.k)
	need("output", len(y), rows)
	if from < whole {
		ptr, index, value := a.steps(from, whole)
		a.spmv(whole-from, ptr, index, value, x, y)
	}
	if whole == to {
		return
	}
	last := tiles.Get().(*tile)
	defer tiles.Put(last)
	ptr, index, value := a.steps(whole, to)
	a.spmv(1, ptr, index, value, x, last[:])
	copy(y[(whole-from)*a.rows:rows], last[:])
}
