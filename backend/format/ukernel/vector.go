package ukernel

import (
	"fmt"
	"math"
	"slices"

	"spc/internal/lent"
)

// spmv multiplies consecutive groups of rows by a vector. ptr has a length of
// groups+1, groups being at least 1; index and value start at the first group's.
type spmv[I Index] func(groups int, ptr []uint32, index []I, value, x, y []float32)

// vecKernel selects the kernel for a type of indices.
func vecKernel[I Index](u16 spmv[uint16], u32 spmv[uint32]) (f spmv[I]) {
	switch p := any(&f).(type) {
	case *spmv[uint16]:
		*p = u16
	case *spmv[uint32]:
		*p = u32
	}
	return f
}

// MulVec multiplies m dense rows of k elements, ldw apart, by a vector:
// y[r] = sum over i of w[r*ldw+i] * x[i].
func (kern *Kernels) MulVec(m, k int, w []float32, ldw int, x, y []float32) {
	kern.mulVec(m, k, w, ldw, x, y, 0)
}

func (kern *Kernels) mulVec(m, k int, w []float32, ldw int, x, y []float32, far int) {
	if m < 0 || k < 0 || ldw < k {
		panic("ukernel: no matrix of such a size")
	}
	if m == 0 {
		return
	}
	need("weight", len(w), (m-1)*ldw+k)
	need("vector", len(x), k)
	need("output", len(y), m)
	kern.gemv(m, k, w, ldw, x, y, far)
}

// MulVecOf is MulVec for w of any type, m rows without gaps.
func (kern *Kernels) MulVecOf(m, k int, w Values, x, y []float32) { kern.mulVecOf(m, k, w, x, y, 0) }

// Weights of more bytes than hold in a level 2 cache come from farther away, from where they have to be fetched
// long before they are needed, by so many bytes.
const (
	level2 = 1 << 20
	ahead  = 1 << 15
)

// ahead is by how many bytes values that are read once are to be fetched ahead, 0 where there are few.
func (v Values) ahead() int {
	if 4*len(v.f32)+2*len(v.half) <= level2 {
		return 0
	}
	return ahead
}

// MulVecOnce is MulVecOf for the rows from to to-1 of a weight that is in no cache where it is large.
func (kern *Kernels) MulVecOnce(from, to, k int, w Values, x, y []float32) {
	kern.mulVecOf(to-from, k, w.Slice(from*k, to*k), x, y, w.ahead())
}

func (kern *Kernels) mulVecOf(m, k int, w Values, x, y []float32, far int) {
	if !w.Half() {
		kern.mulVec(m, k, w.f32, k, x, y, far)
		return
	}
	if gemv := kern.halves[w.kind]; gemv != nil && m > 0 {
		need("weight", len(w.half), m*k)
		need("vector", len(x), k)
		need("output", len(y), m)
		gemv(m, k, w.half, k, x, y, far)
		return
	}
	const least = 4 // rows, which kernels compute at a time
	lent := w.lend()
	defer lent.giveBack()
	rows := max(stripLen/max(k, 1)/least*least, least)
	for r := 0; r < m; {
		n := min(rows, m-r)
		if m-r-n < least { // fewer would take as long as these
			n = m - r
		}
		kern.MulVec(n, k, kern.widened(lent, w, r*k, (r+n)*k), k, x, y[r:])
		r += n
	}
}

// MulVec computes the rows of groups from to to-1 of y = W x for a vector x of
// k elements; y begins with the first of these rows. Rows that pad the last group
// are not written.
func (a *Sparse[I]) MulVec(from, to int, x, y []float32) { a.mulVec(from, to, x, y, false) }

// MulVecOnce is MulVec for a weight that is in no cache where it is large.
func (a *Sparse[I]) MulVecOnce(from, to int, x, y []float32) { a.mulVec(from, to, x, y, true) }

func (a *Sparse[I]) mulVec(from, to int, x, y []float32, once bool) {
	if from < 0 || from > to || to > a.Groups() {
		panic("ukernel: groups outside the weight")
	}
	rows, whole := min(to*a.rows, a.m)-from*a.rows, to
	if from == to {
		return
	}
	need("vector", len(x), a.k)
	need("output", len(y), rows)
	if a.lanes != nil && from%a.kern.laneRows == 0 {
		if l := a.lanes(); l != nil {
			l.mul(a.kern, from, to, x, y, once)
			return
		}
	}
	if rows%a.rows != 0 {
		whole--
	}
	steps := steps[I]{a.kern, a.rows, a.ptr, a.index, a.value, a.spmv}
	steps.mul(from, whole, a.rows, x, y)
	if whole == to {
		return
	}
	last := tails.Get()
	defer tails.Put(last)
	steps.mul(whole, to, a.rows, x, last[:])
	copy(y[(whole-from)*a.rows:rows], last[:])
}

// steps are the steps of groups, size values each, and the kernel that multiplies them
// by a vector.
type steps[I Index] struct {
	kern  *Kernels
	size  int
	ptr   []uint32
	index []I
	value Values
	spmv  spmv[I]
}

// mul computes the products of groups from to to-1, of so many rows each. Values are
// widened as many groups at a time as fit into a strip.
func (s *steps[I]) mul(from, to, rows int, x, y []float32) {
	lent := s.value.lend()
	defer lent.giveBack()
	for from < to {
		end := to
		if s.value.Half() {
			end = from + 1
			for end < to && int(s.ptr[end+1]-s.ptr[from])*s.size <= stripLen {
				end++
			}
		}
		first, last := int(s.ptr[from]), int(s.ptr[end])
		value := s.kern.widened(lent, s.value, first*s.size, last*s.size)
		s.spmv(end-from, s.ptr[from:end+1], s.index[first:last], value, x, y)
		y = y[(end-from)*rows:]
		from = end
	}
}

// tails lends the output of a padded group.
var tails = lent.NewPool(func() *[16]float32 { return new([16]float32) })

// Rows is a sparse weight bound to the kernels that multiply vectors with rows of
// blocks of 1 x C elements, C being one of Runs.
type Rows[I Index] struct {
	columns, k int
	ptr        []uint32
	index      []I
	value      Values
	kern       *Kernels
	spmv       spmv[I]
}

// NewRows binds a weight of m rows and k columns, a multiple of columns, stored in
// blocks of 1 x columns elements, to the kernels of kern. Row r owns the blocks
// ptr[r] to ptr[r+1]-1; block j begins with the column index[j]*columns, ascending
// within a row, and has the values value[j*columns:][:columns]. The slices are kept
// and must not change. The error says which of these properties is violated.
func NewRows[I Index](kern *Kernels, columns, m, k int, ptr []uint32, index []I, value Values) (*Rows[I], error) {
	if !slices.Contains(Runs, columns) {
		return nil, fmt.Errorf("sparse weight: no kernel for 1x%d blocks", columns)
	}
	if m < 0 || k < 0 || k > math.MaxInt32 || k%columns != 0 {
		return nil, fmt.Errorf("sparse weight: no kernel for %d x %d in blocks of %d columns", m, k, columns)
	}
	if err := checkSteps(m, k/columns, columns, ptr, index, value); err != nil {
		return nil, err
	}
	return &Rows[I]{columns, k, ptr, index, value, kern, vecKernel[I](kern.run16[columns], kern.run32[columns])}, nil
}

// MulVec computes the rows from to to-1 of y = W x for a vector x of k elements; y
// begins with the first of these rows.
func (a *Rows[I]) MulVec(from, to int, x, y []float32) {
	if from < 0 || from > to || to > len(a.ptr)-1 {
		panic("ukernel: rows outside the weight")
	}
	if from == to {
		return
	}
	need("vector", len(x), a.k)
	need("output", len(y), to-from)
	steps := steps[I]{a.kern, a.columns, a.ptr, a.index, a.value, a.spmv}
	steps.mul(from, to, 1, x, y)
}
