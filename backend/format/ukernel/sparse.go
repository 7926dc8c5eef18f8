package ukernel

import (
	"fmt"
	"sync"
)

// Layout says how the nonzeros of a sparse weight are stored for a kernel.
// Rows consecutive rows form a group, and a group is a sequence of steps. A
// step holds a value for each row of the group and either one column that they
// share (a vertical block, Rows x 1) or a column for each of them (rows
// interleaved, which suits rows with equally many nonzeros).
type Layout struct {
	Rows   int
	Shared bool
}

// Layouts lists the layouts that every kernel set has kernels for.
var Layouts = []Layout{
	{1, false}, {2, false}, {4, false},
	{2, true}, {4, true}, {8, true}, {16, true},
}

// String returns the layout's part of a kernel name, such as row1 or block4.
func (l Layout) String() string {
	if l.Shared {
		return fmt.Sprintf("block%d", l.Rows)
	}
	return fmt.Sprintf("row%d", l.Rows)
}

// indices returns the number of columns that a step holds.
func (l Layout) indices() int {
	if l.Shared {
		return 1
	}
	return l.Rows
}

// Index is the type of column indices: uint16 where K allows it.
type Index interface{ uint16 | uint32 }

// Sparse is a sparse weight bound to its kernel. Its slices were checked and
// must not change.
type Sparse[I Index] struct {
	layout Layout
	m, k   int
	ptr    []uint32
	index  []I
	value  []float32
	name   string
	mul    spmm[I]
}

// spmm multiplies consecutive groups by a panel. ptr has a length of groups+1,
// index and value start at the first group's.
type spmm[I Index] func(groups int, ptr []uint32, index []I, value, x, y []float32, ldy int, acc bool)

// NewSparse binds a weight of m rows and k columns to a kernel of kern. Group g
// owns the steps ptr[g] to ptr[g+1]; step j holds value[j*Rows:][:Rows] and
// index[j*n:][:n], n being 1 for a shared column, else Rows. Steps that pad a
// group have the value 0 and any column below k; the last group of a weight
// whose rows do not fill it is padded likewise. The slices are kept, not
// copied. The error says which of these properties is violated.
func NewSparse[I Index](kern *Kernels, layout Layout, m, k int, ptr []uint32, index []I, value []float32) (*Sparse[I], error) {
	a := &Sparse[I]{layout: layout, m: m, k: k, ptr: ptr, index: index, value: value}
	switch table := any(&a.mul).(type) {
	case *spmm[uint16]:
		*table, a.name = kern.spmm16[layout], "spmm_f32_u16_"
	case *spmm[uint32]:
		*table, a.name = kern.spmm32[layout], "spmm_f32_u32_"
	}
	if a.mul == nil {
		return nil, fmt.Errorf("sparse weight: no kernel for layout %v", layout)
	}
	a.name += layout.String() + "_" + kern.ISA
	if m < 0 || k < 0 {
		return nil, fmt.Errorf("sparse weight: %d x %d is no shape", m, k)
	}
	groups := a.Groups()
	if len(ptr) != groups+1 {
		return nil, fmt.Errorf("sparse weight: %d group bounds, want %d", len(ptr), groups+1)
	}
	for g := range groups {
		if ptr[g] > ptr[g+1] {
			return nil, fmt.Errorf("sparse weight: group %d ends before it begins", g)
		}
	}
	steps := uint64(ptr[groups])
	if have := uint64(len(index)); have < steps*uint64(layout.indices()) {
		return nil, fmt.Errorf("sparse weight: %d indices, want %d", have, steps*uint64(layout.indices()))
	}
	if have := uint64(len(value)); have < steps*uint64(layout.Rows) {
		return nil, fmt.Errorf("sparse weight: %d values, want %d", have, steps*uint64(layout.Rows))
	}
	for i, c := range index {
		if uint64(c) >= uint64(k) {
			return nil, fmt.Errorf("sparse weight: index %d is column %d of %d", i, c, k)
		}
	}
	return a, nil
}

// Kernel returns the name of the kernel: dtype, index type, layout and
// instruction set.
func (a *Sparse[I]) Kernel() string { return a.name }

// Groups returns the number of groups, the last of which may be partial.
func (a *Sparse[I]) Groups() int { return (a.m + a.layout.Rows - 1) / a.layout.Rows }

// tile is the output of one group of any layout.
type tile = [16 * Columns]float32

// tiles lends the output of a padded group.
var tiles = sync.Pool{New: func() any { return new(tile) }}

// Mul computes the rows of groups from to to-1: Y = W X, or Y += W X with acc
// set. x is a panel [k][Columns]; y begins with the first of these rows and has
// the row stride ldy. Rows that pad the last group are not written.
func (a *Sparse[I]) Mul(from, to int, x, y []float32, ldy int, acc bool) {
	if from < 0 || from > to || to > a.Groups() {
		panic("ukernel: groups outside the weight")
	}
	r := a.layout.Rows
	checkPanel(max(min(to*r, a.m)-from*r, 0), a.k, x, y, ldy)
	if from == to {
		return
	}
	whole := to
	if to*r > a.m {
		whole--
	}
	a.run(from, whole, x, y, ldy, acc)
	if whole == to {
		return
	}
	last := tiles.Get().(*tile)
	defer tiles.Put(last)
	a.run(whole, to, x, last[:], Columns, false)
	for i := whole * r; i < a.m; i++ {
		store(y[(i-from*r)*ldy:], (*row)(last[(i-whole*r)*Columns:]), acc)
	}
}

// run calls the kernel on groups from to to-1.
func (a *Sparse[I]) run(from, to int, x, y []float32, ldy int, acc bool) {
	if from == to {
		return
	}
	start := int(a.ptr[from])
	a.mul(to-from, a.ptr[from:to+1], a.index[start*a.layout.indices():], a.value[start*a.layout.Rows:], x, y, ldy, acc)
}
