package obs

import "math"

// eliminator removes columns from one group of rows, which share a mask. Its memory
// is used again for every group.
//
// The inverse of the survivors' Gram matrix is the Schur complement of the removed
// columns in the whole inverse, so removing columns in any order is a pivoted
// Cholesky factorisation of it. The columns of the factor are kept, in the rows of
// v, and a column of the current inverse is made from them when it is needed: that
// reads less than updating the inverse would, writes next to nothing, and leaves the
// whole inverse to be shared by all groups.
//
// Survivors are kept together: a column that goes changes places with the last.
//
// Columns of the inverse are made several at a time, so that the factor is read less:
// with that which goes next, those that will probably follow it, which are then brought
// up to date when it is their turn. What they become does not depend on when.
type eliminator struct {
	s   *Solver
	u   *units
	inv []float64 // [K,K]

	group, height int
	n             int       // survivors
	col           []int     // [K], position to column
	pos           []int     // [K], column to position
	w             []float64 // [height,K] by position
	start         []float64 // [height,K] by position: the weights as they came
	diag          []float64 // [K] by position: the diagonal of the current inverse, for units one column wide
	blocks        []float64 // [K,c] by column: that of wider units, a row for each column
	v             []float64 // rows of the factor, packed
	at            []int     // where the rows of v are
	coef          []float64

	ahead          []float64 // [slots,stride] by position: columns of the inverse
	stride         int
	slots          []slot
	slotOf         []int     // [K], column to slot, -1 for none
	made           []float64 // [batch,stride], those that are being made
	factor         []float64 // [K,batch]
	scores         []float64 // [K] by position: losses of units one column wide
	next, likelies []int
	byCol          []float64 // [K], for blocks
	chol, z        []float64

	gone []bool // [units], removed
	left int    // units that are not removed

	loss  float64 // with the damping term
	moved float64 // the damping term of columns removed
}

// slot holds a column of the inverse from which so many rows of v are taken out.
type slot struct{ column, rows int }

func newEliminator(s *Solver, u *units, inv []float64) *eliminator {
	k := s.Cols
	e := &eliminator{
		s: s, u: u, inv: inv,
		col: make([]int, k), pos: make([]int, k),
		w: make([]float64, u.r*k), start: make([]float64, u.r*k),
		coef: make([]float64, k), factor: make([]float64, k*batch()),
		gone:   make([]bool, u.each),
		stride: (k + 7) &^ 7, slotOf: make([]int, k),
	}
	e.slots = make([]slot, max(u.c, 4*batch()))
	e.ahead = make([]float64, len(e.slots)*e.stride)
	e.made = make([]float64, batch()*e.stride)
	if u.c == 1 {
		e.diag, e.scores = make([]float64, k), make([]float64, k)
	} else {
		e.blocks, e.byCol = make([]float64, k*u.c), make([]float64, k)
		e.chol, e.z = make([]float64, u.c*u.c), make([]float64, u.c)
	}
	return e
}

// begin takes the rows of a group and removes the units that are zero already.
func (e *eliminator) begin(group int) {
	k := e.s.Cols
	r0, r1 := e.u.span(group)
	e.group, e.height, e.n, e.left = group, r1-r0, k, e.u.each
	e.loss, e.moved = 0, 0
	e.v, e.at = e.v[:0], e.at[:0]
	clear(e.gone)
	for j := range k {
		e.col[j], e.pos[j], e.slotOf[j] = j, j, -1
	}
	for i := range e.slots {
		e.slots[i].column = -1
	}
	for i := range e.height {
		for j, w := range e.s.W[(r0+i)*k : (r0+i+1)*k] {
			e.w[i*k+j] = float64(w)
		}
	}
	copy(e.start, e.w)
	if e.diag != nil {
		for j := range e.diag {
			e.diag[j] = e.inv[j*k+j]
		}
	} else {
		for unit := range e.u.each {
			lo, hi := e.u.columns(unit)
			for i := lo; i < hi; i++ {
				copy(e.blocks[i*e.u.c:], e.inv[i*k+lo:i*k+hi])
			}
		}
	}
	var zeros []int
	for unit := range e.u.each {
		if e.zero(unit) {
			zeros = append(zeros, unit)
		}
	}
	for i, unit := range zeros {
		e.remove(unit, zeros[i+1:])
	}
}

// zero reports whether all weights of a unit came as zero.
func (e *eliminator) zero(unit int) bool {
	lo, hi := e.u.columns(unit)
	for i := range e.height {
		for c := lo; c < hi; c++ {
			if e.start[i*e.s.Cols+e.pos[c]] != 0 {
				return false
			}
		}
	}
	return true
}

// remove makes a unit zero. Others that may be next, the first the most likely, are
// prepared for as far as that saves time.
func (e *eliminator) remove(unit int, others []int) {
	lo, hi := e.u.columns(unit)
	e.next = e.next[:0]
	for c := lo; c < hi; c++ {
		if e.slotOf[c] < 0 {
			e.next = append(e.next, c)
		}
	}
	if e.u.c == 1 && len(e.next) > 0 {
		for _, c := range others {
			if len(e.next) == batch() {
				break
			}
			if e.slotOf[c] < 0 {
				e.next = append(e.next, c)
			}
		}
	}
	e.prepare(e.next)
	for c := lo; c < hi; c++ {
		e.removeColumn(c)
	}
	e.gone[unit] = true
	e.left--
}

// prepare fills slots with columns of the current inverse. Where there are not enough,
// those that are held, which were not removed soon, are given up.
func (e *eliminator) prepare(columns []int) {
	free := 0
	for _, s := range e.slots {
		if s.column < 0 {
			free++
		}
	}
	if free < len(columns) {
		for i := range e.slots {
			if c := e.slots[i].column; c >= 0 {
				e.slotOf[c], e.slots[i].column = -1, -1
			}
		}
	}
	n, at := e.n, 0
	for len(columns) > 0 {
		some := columns[:min(batch(), len(columns))]
		columns = columns[len(some):]
		for b, column := range some {
			made := e.made[b*e.stride : b*e.stride+n]
			row := e.inv[column*e.s.Cols : (column+1)*e.s.Cols]
			for j, c := range e.col[:n] {
				made[j] = row[c]
			}
		}
		if len(some) == batch() {
			for b, column := range some {
				p := e.pos[column]
				for q, at := range e.at {
					e.factor[q*batch()+b] = e.v[at+p]
				}
			}
			subColumns(e.made, e.stride, n, e.factor, e.v, e.at, e.coef)
		}
		for b, column := range some {
			for e.slots[at].column >= 0 {
				at++
			}
			e.slots[at], e.slotOf[column] = slot{column, len(e.at)}, at
			copy(e.ahead[at*e.stride:], e.made[b*e.stride:b*e.stride+n])
			if len(some) < batch() {
				e.slots[at].rows = 0
			}
		}
	}
}

// removeColumn takes a column that has a slot out of the rows and the inverse.
func (e *eliminator) removeColumn(column int) {
	k, n, p := e.s.Cols, e.n, e.pos[column]
	own := e.slotOf[column]
	c := e.ahead[own*e.stride : own*e.stride+n]
	later := e.at[e.slots[own].rows:]
	coef := e.coef[:len(later)]
	for q, at := range later {
		coef[q] = e.v[at+p]
	}
	subRows(c, coef, e.v, later)
	e.slots[own].column, e.slotOf[column] = -1, -1
	pivot := max(c[p], e.s.floor)

	last := n - 1
	for i := range e.height {
		w := e.w[i*k : i*k+n]
		step := w[p] / pivot
		e.loss += float64(step * w[p])
		for j, x := range c {
			w[j] -= float64(step * x)
		}
		start := e.start[i*k : i*k+n]
		e.moved += float64(e.s.extra[column] * start[p] * start[p])
		w[p], start[p] = w[last], start[last]
	}
	moved := e.col[last]
	e.col[p], e.pos[moved] = moved, p
	c[p] = c[last]
	for _, at := range e.at {
		e.v[at+p] = e.v[at+last]
	}
	for i, s := range e.slots {
		if s.column >= 0 {
			e.ahead[i*e.stride+p] = e.ahead[i*e.stride+last]
		}
	}
	e.n = last
	if last == 0 {
		return
	}

	at := len(e.v)
	e.at = append(e.at, at)
	e.v = grow(e.v, at+(last+7)&^7)
	v := e.v[at : at+last]
	scale := 1 / math.Sqrt(pivot)
	for j, x := range c[:last] {
		v[j] = x * scale
	}
	if e.diag != nil {
		e.diag[p] = e.diag[last]
		for j, x := range v {
			e.diag[j] -= float64(x * x)
		}
		return
	}
	for j, x := range v {
		e.byCol[e.col[j]] = x
	}
	for unit := range e.u.each {
		if e.gone[unit] {
			continue
		}
		lo, hi := e.u.columns(unit)
		for i := lo; i < hi; i++ {
			b := e.blocks[i*e.u.c : (i+1)*e.u.c]
			x := e.byCol[i]
			for j, y := range e.byCol[lo:hi] {
				b[j] -= float64(x * y)
			}
		}
	}
}

// grow returns s with length n, its contents kept.
func grow[T any](s []T, n int) []T {
	if n > cap(s) {
		s = append(make([]T, 0, max(n, 2*cap(s))), s...)
	}
	return s[:n]
}

// score computes the losses of removing each of the survivors, for units one column
// wide.
func (e *eliminator) score() {
	k := e.s.Cols
	for j, d := range e.diag[:e.n] {
		w := e.w[j]
		sum := float64(w * w)
		for i := 1; i < e.height; i++ {
			w := e.w[i*k+j]
			sum += float64(w * w)
		}
		if d < e.s.floor {
			d = e.s.floor
		}
		e.scores[j] = sum / d
	}
}

// removeCheapest removes the unit that adds the least loss for its size, the last
// among equals, and returns it.
func (e *eliminator) removeCheapest() int {
	best, least := -1, math.Inf(1)
	if e.diag == nil {
		for unit := range e.u.each {
			if e.gone[unit] {
				continue
			}
			if loss := e.unitLoss(unit) * e.u.scale(e.group, unit); loss <= least {
				best, least = unit, loss
			}
		}
		e.remove(best, nil)
		return best
	}
	e.score()
	for j, loss := range e.scores[:e.n] {
		if loss < least || loss == least && e.col[j] > best {
			best, least = e.col[j], loss
		}
	}
	e.remove(best, e.likely(best, e.n, func(j int) (int, float64) { return e.col[j], e.scores[j] }))
	return best
}

// likely returns columns that may go soon after the given one: those of the n
// candidates, -1 for none, with the smallest losses, ascending.
func (e *eliminator) likely(best, n int, candidate func(i int) (column int, loss float64)) []int {
	out := e.likelies[:0]
	if batch() == 1 || e.slotOf[best] >= 0 {
		return out
	}
	var losses [maxBatch]float64
	for i := range n {
		column, loss := candidate(i)
		if column < 0 || column == best || e.slotOf[column] >= 0 {
			continue
		}
		at := len(out)
		for at > 0 && loss < losses[at-1] {
			at--
		}
		if at == batch()-1 {
			continue
		}
		if len(out) < batch()-1 {
			out = append(out, 0)
		}
		copy(out[at+1:], out[at:])
		copy(losses[at+1:], losses[at:])
		out[at], losses[at] = column, loss
	}
	e.likelies = out
	return out
}

// unitLoss returns sum over rows of w_S^T B^-1 w_S for a unit S and its block B of
// the current inverse.
func (e *eliminator) unitLoss(unit int) float64 {
	lo, hi := e.u.columns(unit)
	c := hi - lo
	u := e.chol[:c*c]
	for i := range c {
		copy(u[i*c:(i+1)*c], e.blocks[(lo+i)*e.u.c:])
	}
	if !factorBlock(u, c) {
		return math.MaxFloat64
	}
	return blockNorm(u, c, e.height, e.z, func(i, j int) float64 {
		return e.w[i*e.s.Cols+e.pos[lo+j]]
	})
}

// factorBlock overwrites the upper triangle of the small b[c,c] with U, b = U^T U.
func factorBlock(b []float64, c int) bool {
	for i := range c {
		row := b[i*c : (i+1)*c]
		for q := range i {
			a := b[q*c+i]
			for j := i; j < c; j++ {
				row[j] -= float64(a * b[q*c+j])
			}
		}
		if !(row[i] > 0) {
			return false
		}
		s := math.Sqrt(row[i])
		for j := i; j < c; j++ {
			row[j] /= s
		}
	}
	return true
}

// blockNorm returns the sum over rows i of x_i^T (U^T U)^-1 x_i; z[c] is scratch.
func blockNorm(u []float64, c, rows int, z []float64, x func(i, j int) float64) float64 {
	sum := 0.0
	for i := range rows {
		for j := range c {
			y := x(i, j)
			for q, zq := range z[:j] {
				y -= float64(u[q*c+j] * zq)
			}
			y /= u[j*c+j]
			z[j] = y
			sum += float64(y * y)
		}
	}
	return sum
}

// undamped returns the loss so far without the damping term.
func (e *eliminator) undamped() float64 {
	held := e.moved
	for i := range e.height {
		w, start := e.w[i*e.s.Cols:], e.start[i*e.s.Cols:]
		for j, column := range e.col[:e.n] {
			d := w[j] - start[j]
			held += float64(e.s.extra[column] * d * d)
		}
	}
	return max(0, e.loss-held)
}

// store writes the rows' weights and the mask bits of what stays to a result.
func (e *eliminator) store(r *Result) {
	k := e.s.Cols
	r0, _ := e.u.span(e.group)
	for i := range e.height {
		for j, column := range e.col[:e.n] {
			if e.start[i*k+j] != 0 {
				r.Mask.Set(r0+i, column)
				r.W[(r0+i)*k+column] = float32(e.w[i*k+j])
			}
		}
	}
}
