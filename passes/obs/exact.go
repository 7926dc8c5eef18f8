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
	c             []float64 // [K] by position: a column of the current inverse
	v             []float64 // rows of the factor, packed
	at            []int     // where the rows of v are
	coef          []float64
	byCol         []float64 // [K], for blocks
	chol, z       []float64

	gone   []bool // [units], removed
	frozen []bool // [units], must stay
	left   int    // units that are not removed

	loss  float64 // with the damping term
	moved float64 // the damping term of columns removed
}

func newEliminator(s *Solver, u *units, inv []float64) *eliminator {
	k := s.Cols
	e := &eliminator{
		s: s, u: u, inv: inv,
		col: make([]int, k), pos: make([]int, k),
		w: make([]float64, u.r*k), start: make([]float64, u.r*k),
		c: make([]float64, k), coef: make([]float64, k),
		gone: make([]bool, u.each), frozen: make([]bool, u.each),
	}
	if u.c == 1 {
		e.diag = make([]float64, k)
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
	clear(e.frozen)
	for j := range k {
		e.col[j], e.pos[j] = j, j
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
	for unit := range e.u.each {
		if e.zero(unit) {
			e.remove(unit)
		}
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

// remove makes a unit zero.
func (e *eliminator) remove(unit int) {
	lo, hi := e.u.columns(unit)
	for c := lo; c < hi; c++ {
		e.removeColumn(c)
	}
	e.gone[unit] = true
	e.left--
}

func (e *eliminator) removeColumn(column int) {
	k, n, p := e.s.Cols, e.n, e.pos[column]
	c := e.c[:n]
	row := e.inv[column*k : (column+1)*k]
	for j, col := range e.col[:n] {
		c[j] = row[col]
	}
	coef := e.coef[:len(e.at)]
	for q, at := range e.at {
		coef[q] = e.v[at+p]
	}
	subRows(c, coef, e.v, e.at)
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
func grow(s []float64, n int) []float64 {
	if n > cap(s) {
		s = append(make([]float64, 0, max(n, 2*cap(s))), s...)
	}
	return s[:n]
}

// cheapest returns the unit whose removal adds the least loss for its size, the
// last among equals, or -1 where none may go.
func (e *eliminator) cheapest() int {
	best, least := -1, math.Inf(1)
	k := e.s.Cols
	if e.diag != nil {
		for j, column := range e.col[:e.n] {
			w := e.w[j]
			sum := float64(w * w)
			for i := 1; i < e.height; i++ {
				w := e.w[i*k+j]
				sum += float64(w * w)
			}
			loss := sum / e.diag[j]
			if loss < least || loss == least && column > best {
				if !e.frozen[column] {
					best, least = column, loss
				}
			}
		}
		return best
	}
	for unit := range e.u.each {
		if e.gone[unit] || e.frozen[unit] {
			continue
		}
		if loss := e.unitLoss(unit) * e.u.scale(e.group, unit); loss <= least {
			best, least = unit, loss
		}
	}
	return best
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
