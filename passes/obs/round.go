package obs

import (
	"context"

	"spc/internal/parallel"
	"spc/passes/prune"
	"spc/passes/steps"
)

// roundChunk is how many columns Round settles before it moves those after them.
const roundChunk = 32

// Rounded is a layer whose weights are whole numbers of steps.
type Rounded struct {
	W      []float32 // [M,K]
	Scales []float32 // [M, blocks]
	Loss   float64   // as that of Result
}

// roundWork bounds the multiplications for factors of rows with zeros, beyond which all rows share one: about a minute of one core.
const roundWork = 60e9

// Round goes through the columns once, as GPTQ does (Frantar et al., arXiv 2210.17323, algorithm 1), and rounds each to whole numbers
// of steps, while the columns after it make up for what that changes: row i of the upper factor U of the inverse is how the error of
// column i is spread over them, and e^2/U_ii^2 what an error of e costs then. By these costs the scale of a block is chosen, when its first
// column is reached. Weights that came as zero stay zero, and the others make up without them: with the factor of the inverse for the columns
// that a row has, or, where that takes too long, as in SparseGPT, of which this then is the sweep with the zeros given.
// What results is polished, see polisher.
func (s *Solver) Round(ctx context.Context, st steps.Steps) (*Rounded, error) {
	return s.round(ctx, st, rounding{factors: roundWork, polishes: polishWorks(s.Rows, s.Cols) <= polishWork})
}

// rounding says how much Round does.
type rounding struct {
	factors  float64 // multiplications for factors of rows, at most
	polishes bool
}

func (s *Solver) round(ctx context.Context, st steps.Steps, o rounding) (*Rounded, error) {
	if err := st.Check(); err != nil {
		return nil, s.errorf("%v", err)
	}
	k, blocks := s.Cols, st.Blocks(s.Cols)
	r := &Rounded{W: make([]float32, len(s.W)), Scales: make([]float32, s.Rows*blocks)}
	mask := s.nonzeros()
	work, rows := 0.0, make([]int, s.Rows)
	for row := range rows {
		rows[row] = row
		if n := float64(mask.RowCount(row)); n < float64(k) {
			work += 2 * n * n * n / 3
		}
	}
	spans, own := sameMasks(mask, rows), work <= o.factors
	all := &columnsOf{u: s.u, n: k}
	for c := range k {
		all.columns = append(all.columns, c)
	}
	workers := make([]*rounder, parallel.Workers(s.workers))
	err := parallel.Each(ctx, s.workers, len(spans), func(worker, i int) {
		t := workers[worker]
		if t == nil {
			t = &rounder{s: s, Finder: steps.Finder{Steps: st}, w: make([]float64, k)}
			workers[worker] = t
		}
		at := all
		if row := spans[i][0]; own && mask.RowCount(row) < k {
			if some, ok := s.some(mask, row); ok {
				at = some
			}
		}
		for _, row := range spans[i] {
			q, scales := r.W[row*k:(row+1)*k], r.Scales[row*blocks:(row+1)*blocks]
			if t.row(at, row, q, scales); o.polishes {
				t.polish(s.W[row*k:(row+1)*k], q, scales)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	r.Loss, err = s.Loss(ctx, r.W)
	return r, err
}

// columnsOf are n of the columns, ascending, and the upper factor U[n,n] of the inverse of the damped Gram matrix of them.
type columnsOf struct {
	columns []int
	n       int
	u       []float64
}

// some returns the columns of a row of a mask; ok is false where their part of the Gram matrix is singular for the digits that it has.
func (s *Solver) some(mask *prune.Mask, row int) (a *columnsOf, ok bool) {
	a = &columnsOf{}
	for c := range s.Cols {
		if mask.Keeps(row, c) {
			a.columns = append(a.columns, c)
		}
	}
	a.n = len(a.columns)
	a.u, ok = inverseFactor(a.n, 1, 0, func(i, j int) float64 { return s.at(a.columns[i], a.columns[j]) })
	return a, ok
}

// rounder is the memory of one worker of Round.
type rounder struct {
	s *Solver
	steps.Finder
	w, block, cost []float64
	coef           []float64
	at             []int
}

// row rounds a row, of which only the given columns may be nonzero.
func (t *rounder) row(a *columnsOf, row int, out, scales []float32) {
	n, came := a.n, t.s.W[row*t.s.Cols:(row+1)*t.s.Cols]
	w := t.w[:n]
	for i, c := range a.columns {
		w[i] = float64(came[c])
	}
	for b := range scales {
		scales[b] = 1
	}
	scale, block := 0.0, -1
	for lo, hi := 0, 0; lo < n; lo = hi {
		b := a.columns[lo] / t.Block
		for hi = lo + 1; hi < min(lo+roundChunk, n) && a.columns[hi]/t.Block == b; {
			hi++
		}
		if b != block {
			scale, block = t.scale(a, came, lo), b
			scales[b] = float32(scale)
		}
		t.coef, t.at = t.coef[:0], t.at[:0]
		for i := lo; i < hi; i++ {
			c, q := a.columns[i], 0.0
			if came[c] != 0 {
				q = t.Steps.Round(w[i], scale)
			}
			out[c] = float32(q)
			step := (w[i] - q) / a.u[i*n+i]
			rest := w[i+1 : hi]
			for j, x := range a.u[i*n+i+1 : i*n+hi] {
				rest[j] -= float64(step * x)
			}
			t.coef, t.at = append(t.coef, step), append(t.at, i*n+hi)
		}
		subRows(w[hi:], t.coef, a.u, t.at)
	}
}

// scale chooses that of the block that begins with place lo of the columns.
func (t *rounder) scale(a *columnsOf, came []float32, lo int) float64 {
	b, w, cost := a.columns[lo]/t.Block, t.block[:0], t.cost[:0]
	for i := lo; i < a.n && a.columns[i]/t.Block == b; i++ {
		if came[a.columns[i]] != 0 {
			d := a.u[i*a.n+i]
			w, cost = append(w, t.w[i]), append(cost, 1/(d*d))
		}
	}
	t.block, t.cost = w, cost
	return t.Scale(w, cost)
}
