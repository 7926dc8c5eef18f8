package obs

import (
	"context"

	"spc/internal/parallel"
	"spc/passes/prune"
)

// Swap exchanges units that a mask [M,K] keeps for others of the same group of rows, and
// under N:M of the same M, as long as the loss of the best weights falls, and solves for
// the survivors. The loss is that of Solve, with the damping term, and each exchange is the
// one that lowers it the most. A group of rows makes at most so many exchanges for each of
// the units that it keeps. Units at the edge, which are smaller, stay as they are, and
// weights of W that are zero stay zero.
//
// It returns how many exchanges were made. They take K^3/4 multiplications and less for each
// group of rows, and K^2 for each exchange.
func (s *Solver) Swap(ctx context.Context, p prune.Pattern, mask *prune.Mask, sweeps int) (r *Result, swaps int, err error) {
	if err := s.checkPattern(p, 1); err != nil {
		return nil, 0, err
	}
	if _, ok := p.Within(); ok {
		return nil, 0, s.errorf("pattern %s, want one without N:M within blocks to swap", p)
	}
	before, err := s.Solve(ctx, mask)
	if err != nil {
		return nil, 0, err
	}
	u := newUnits(s.Rows, s.Cols, p)
	inv := s.invert()
	counts := make([]int, u.groups)
	other := s.nonzeros()
	work := make([]*swapper, parallel.Workers(s.workers))
	err = parallel.Each(ctx, s.workers, u.groups, func(w, g int) {
		if work[w] == nil {
			work[w] = &swapper{s: s, u: &u, pattern: p, inv: inv}
		}
		x := work[w]
		if !x.begin(g, before.Mask) {
			return
		}
		for range sweeps * x.survivors {
			if ctx.Err() != nil || !x.improve() {
				break
			}
			counts[g]++
		}
		x.store(g, other)
	})
	if err != nil {
		return nil, 0, err
	}
	after, err := s.Solve(ctx, other)
	if err != nil {
		return nil, 0, err
	}
	return s.better(ctx, &u, before, after, counts)
}

// better takes the groups of rows that exchanges changed from after, unless what their
// weights lose is not less than before: the rows of a group may have zeros of their own, of
// which exchanges do not know.
func (s *Solver) better(ctx context.Context, u *units, before, after *Result, counts []int) (*Result, int, error) {
	old, err := s.damped(ctx, before.W)
	if err != nil {
		return nil, 0, err
	}
	now, err := s.damped(ctx, after.W)
	if err != nil {
		return nil, 0, err
	}
	swaps := 0
	for g, n := range counts {
		r0, r1 := u.span(g)
		gain := 0.0
		for r := r0; r < r1; r++ {
			gain += old[r] - now[r]
		}
		if n == 0 || !(gain > 0) {
			continue
		}
		swaps += n
		for r := r0; r < r1; r++ {
			copy(before.W[r*s.Cols:(r+1)*s.Cols], after.W[r*s.Cols:(r+1)*s.Cols])
			copy(before.Mask.Row(r), after.Mask.Row(r))
		}
	}
	before.Loss, err = s.Loss(ctx, before.W)
	return before, swaps, err
}

// damped returns (w-v) H (w-v)^T with the damping term for each row w of the weights and v
// of others.
func (s *Solver) damped(ctx context.Context, v []float32) ([]float64, error) {
	d := func(i int) float64 { return float64(s.W[i]) - float64(v[i]) }
	out, err := forms(ctx, s.workers, s.Rows, s.Cols, d, s.h)
	for r := range out {
		for c := range s.Cols {
			x := d(r*s.Cols + c)
			out[r] += float64(s.extra[c] * x * x)
		}
	}
	return out, err
}

// swapper is the memory of one worker of Swap.
type swapper struct {
	tableau
	s       *Solver
	u       *units
	pattern prune.Pattern
	inv     []float64 // [K,K]

	first, survivors int     // units that survive and may go, and all that survive
	peers            [][]int // positions of others by group of M, for N:M

	left, cross []float64 // of the others: the squares of their gradients, and products with weights

	// For units that are c columns wide: factors [c,c], z and rest [height,c], line [c].
	own, mixed, sum []float64
	z, rest, line   []float64
}

// begin takes a group of rows. It reports false where there is nothing to exchange.
func (x *swapper) begin(group int, mask *prune.Mask) bool {
	r0, r1 := x.u.span(group)
	x.col = x.col[:0]
	x.first, x.survivors = 0, 0
	var edge, others []int
	for unit := range x.u.each {
		lo, hi := x.u.columns(unit)
		came, kept := false, false
		for r := r0; r < r1; r++ {
			for c := lo; c < hi; c++ {
				came = came || x.s.W[r*x.s.Cols+c] != 0
				kept = kept || mask.Keeps(r, c)
			}
		}
		switch whole := hi-lo == x.u.c; {
		case kept && whole:
			x.first++
			x.survivors++
			for c := lo; c < hi; c++ {
				x.col = append(x.col, c)
			}
		case kept:
			x.survivors++
			for c := lo; c < hi; c++ {
				edge = append(edge, c)
			}
		case came && whole:
			for c := lo; c < hi; c++ {
				others = append(others, c)
			}
		}
	}
	if x.first == 0 || len(others) == 0 {
		return false
	}
	x.col = append(x.col, edge...)
	n := len(x.col)
	x.col = append(x.col, others...)
	if x.pattern.Kind == prune.NM {
		x.peers = make([][]int, (x.s.Cols-1)/x.pattern.M+1)
		for i, c := range others {
			x.peers[c/x.pattern.M] = append(x.peers[c/x.pattern.M], n+i)
		}
	}
	return x.set(x.s, n, r0, r1)
}

// store writes the survivors to a mask that has all weights that are not zero.
func (x *swapper) store(group int, mask *prune.Mask) {
	r0, r1 := x.u.span(group)
	for r := r0; r < r1; r++ {
		words := mask.Row(r)
		stays := make([]uint64, len(words))
		for _, c := range x.col[:x.n] {
			stays[c>>6] |= 1 << (c & 63)
		}
		for i := range words {
			words[i] &= stays[i]
		}
	}
}

// enough is the share of the loss that an exchange has to gain.
const enough = 1e-7

// improve makes the exchange that lowers the loss the most. It reports false where none does.
func (x *swapper) improve() bool {
	best, p, q := -enough*x.loss, -1, -1
	if x.u.c > 1 {
		for i := range x.first {
			at := i * x.u.c
			if d, j := x.bestBlock(at, best); j >= 0 {
				best, p, q = d, at, j
			}
		}
	} else {
		x.gradients()
		for i := range x.first {
			if d, j := x.bestColumn(i, best); j >= 0 {
				best, p, q = d, i, j
			}
		}
	}
	if p < 0 {
		return false
	}
	x.exchange(p, q, x.u.c)
	return true
}

// gradients sums up the squares of what is left of the gradients at the others.
func (x *swapper) gradients() {
	g := x.k - x.n
	x.left, x.cross = grow(x.left[:0], g), grow(x.cross[:0], g)
	clear(x.left)
	for i := range x.height {
		for j, r := range x.y[i*x.k+x.n : (i+1)*x.k] {
			x.left[j] += float64(r * r)
		}
	}
}

// bestColumn finds what to put in the place of the survivor at p: the position of the other
// with which the loss changes by less than best, and by how much it changes, or -1. With
// a = 1 / A_pp, the loss rises by a v_p^2 without p, and then falls with q by
//
//	(r_q + a C_qp v_p)^2 / (S_qq + a C_qp^2)
//
// where C = H_GS A and S = H_GG - H_GS A H_SG.
func (x *swapper) bestColumn(p int, best float64) (change float64, at int) {
	k, n := x.k, x.n
	a := -1 / x.p[p*k+p]
	square := 0.0
	clear(x.cross)
	for i := range x.height {
		v := x.y[i*k+p]
		square += float64(v * v)
		x.coef[i], x.at[i] = -v, i*k+n
	}
	rise := square * a
	at = -1
	try := func(j int) {
		q := n + j
		f := x.p[p*k+q] * a
		fall := x.left[j] + float64(f*(2*x.cross[j]+float64(f*square)))
		d := x.p[q*k+q] + float64(f*x.p[p*k+q])
		if fall <= (rise-best)*d {
			return
		}
		// No Schur complement of H is less than that of all other columns.
		c := x.col[q]
		d = max(d, 1/x.inv[c*x.s.Cols+c])
		if change := rise - fall/d; change < best {
			best, at = change, q
		}
	}
	if x.pattern.Kind == prune.NM {
		for _, q := range x.peers[x.col[p]/x.pattern.M] {
			x.cross[q-n] = x.y[p] * x.y[q]
			try(q - n)
		}
		return best, at
	}
	subRows(x.cross, x.coef[:x.height], x.y, x.at)
	for j := range x.cross {
		try(j)
	}
	return best, at
}

// bestBlock is bestColumn for units P that are several columns wide, with A_PP = U^T U: the
// loss rises by the squares of z = U^-T v_P, and then falls with Q by x^T D^-1 x, where
// x = r_Q + Y^T z, D = S_QQ + Y^T Y and Y = U^-T C_QP^T.
func (x *swapper) bestBlock(p int, best float64) (change float64, at int) {
	k, n, c := x.k, x.n, x.u.c
	x.own, x.mixed, x.sum = grow(x.own[:0], c*c), grow(x.mixed[:0], c*c), grow(x.sum[:0], c*c)
	x.z, x.rest, x.line = grow(x.z[:0], x.height*c), grow(x.rest[:0], x.height*c), grow(x.line[:0], c)
	for i := range c {
		for j := i; j < c; j++ {
			x.own[i*c+j] = -x.p[(p+i)*k+p+j]
		}
	}
	if !factorBlock(x.own, c) {
		return best, -1
	}
	rise := 0.0
	for i := range x.height {
		z := x.z[i*c : (i+1)*c]
		copy(z, x.y[i*k+p:])
		solveLower(x.own, z, c, 1)
		for _, v := range z {
			rise += float64(v * v)
		}
	}
	at = -1
	for q := n; q < k; q += c {
		for i := range c {
			copy(x.mixed[i*c:(i+1)*c], x.p[(p+i)*k+q:])
			copy(x.sum[i*c+i:(i+1)*c], x.p[(q+i)*k+q+i:(q+i)*k+q+c])
		}
		solveLower(x.own, x.mixed, c, c)
		for l := range c {
			y := x.mixed[l*c : (l+1)*c]
			for i, a := range y {
				for j := i; j < c; j++ {
					x.sum[i*c+j] += float64(a * y[j])
				}
			}
		}
		for i := range x.height {
			rest := x.rest[i*c : (i+1)*c]
			copy(rest, x.y[i*k+q:])
			for l, z := range x.z[i*c : (i+1)*c] {
				for j, y := range x.mixed[l*c : (l+1)*c] {
					rest[j] += float64(z * y)
				}
			}
		}
		if !factorBlock(x.sum, c) {
			continue
		}
		fall := blockNorm(x.sum, c, x.height, x.line, func(i, j int) float64 { return x.rest[i*c+j] })
		if change := rise - fall; change < best {
			best, at = change, q
		}
	}
	return best, at
}

// solveLower solves U^T X = B in place for the upper triangle u[c,c] and b[c,n].
func solveLower(u, b []float64, c, n int) {
	for i := range c {
		row := b[i*n : (i+1)*n]
		for l := range i {
			f := u[l*c+i]
			for j, y := range b[l*n : (l+1)*n] {
				row[j] -= float64(f * y)
			}
		}
		for j := range row {
			row[j] /= u[i*c+i]
		}
	}
}
