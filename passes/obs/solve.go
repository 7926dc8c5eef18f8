package obs

import (
	"context"
	"slices"

	"spc/internal/parallel"
	"spc/passes/prune"
)

// Solve returns the weights on a mask [M,K] that minimise tr((W-V) H' (W-V)^T), H'
// being the damped Gram matrix: the least squares fit to the layer's outputs, which
// the damping term holds to W. Weights of W that are zero are taken off the mask.
//
// With W = Aim(DX) the fit is to the outputs of the dense model.
func (s *Solver) Solve(ctx context.Context, mask *prune.Mask) (*Result, error) {
	if mask.Rows != s.Rows || mask.Cols != s.Cols {
		return nil, s.errorf("mask %dx%d for a %dx%d matrix", mask.Rows, mask.Cols, s.Rows, s.Cols)
	}
	r := s.result()
	r.Mask = s.nonzerosOf(mask)
	rows := make([]int, s.Rows)
	for i := range rows {
		rows[i] = i
	}
	if err := s.solveRows(ctx, r.Mask, rows, r.W); err != nil {
		return nil, err
	}
	var err error
	r.Loss, err = s.Loss(ctx, r.W)
	return r, err
}

// solveRows solves for some rows of a mask, ascending, and writes them to out[M,K].
// Neighbours with the same mask share a factor.
func (s *Solver) solveRows(ctx context.Context, mask *prune.Mask, rows []int, out []float32) error {
	spans := sameMasks(mask, rows)
	work := make([]fit, parallel.Workers(s.workers))
	return parallel.Each(ctx, s.workers, len(spans), func(w, i int) {
		work[w].rows(s, mask, spans[i], out)
	})
}

// sameMasks divides rows where neighbours have different masks, and into at most so many that workers share them.
func sameMasks(mask *prune.Mask, rows []int) (spans [][]int) {
	const most = 64
	for len(rows) > 0 {
		n := 1
		for n < min(len(rows), most) && slices.Equal(mask.Row(rows[n]), mask.Row(rows[0])) {
			n++
		}
		spans = append(spans, rows[:n])
		rows = rows[n:]
	}
	return spans
}

// fit is the memory of one worker of solveRows.
type fit struct {
	stay, gone []int
	a, b, x    []float64
	coef       []float64
	at         []int
}

// rows solves for rows with the same mask. Of the two forms of the solution,
//
//	v_S = w_S + (H_SS)^-1 H_SG w_G
//	v_S = w_S - (H^-1)_SG ((H^-1)_GG)^-1 w_G
//
// for survivors S and the others G, it takes that with the smaller matrix.
func (f *fit) rows(s *Solver, mask *prune.Mask, rows []int, out []float32) {
	k := s.Cols
	f.stay, f.gone = f.stay[:0], f.gone[:0]
	for c := range k {
		if mask.Keeps(rows[0], c) {
			f.stay = append(f.stay, c)
		} else {
			f.gone = append(f.gone, c)
		}
	}
	for _, r := range rows {
		for _, c := range f.stay {
			out[r*k+c] = s.W[r*k+c]
		}
	}
	n := min(len(f.stay), len(f.gone))
	if n == 0 {
		return
	}
	f.a, f.b, f.x = grow(f.a[:0], n*n), grow(f.b[:0], n), grow(f.x[:0], k)
	if len(f.stay) <= len(f.gone) {
		for i, p := range f.stay {
			for j := i; j < n; j++ {
				f.a[i*n+j] = s.at(p, f.stay[j])
			}
		}
		if !cholesky(f.a, n, n, 0) {
			return
		}
		for _, r := range rows {
			// x = H w_G, of which the part of S is wanted.
			f.combine(f.gone, s.W[r*k:(r+1)*k], s.h, k)
			for i, p := range f.stay {
				f.b[i] = f.x[p]
			}
			solveUpper(f.a, n, n, f.b)
			for i, p := range f.stay {
				out[r*k+p] = float32(float64(s.W[r*k+p]) + f.b[i])
			}
		}
		return
	}
	inv := s.invert()
	for i, p := range f.gone {
		for j := i; j < n; j++ {
			f.a[i*n+j] = inv[p*k+f.gone[j]]
		}
	}
	if !cholesky(f.a, n, n, 0) {
		return
	}
	for _, r := range rows {
		for i, p := range f.gone {
			f.b[i] = float64(s.W[r*k+p])
		}
		solveUpper(f.a, n, n, f.b)
		f.coef, f.at = f.coef[:0], f.at[:0]
		for i, p := range f.gone {
			f.coef, f.at = append(f.coef, f.b[i]), append(f.at, p*k)
		}
		clear(f.x)
		subRows(f.x, f.coef, inv, f.at)
		for _, p := range f.stay {
			out[r*k+p] = float32(float64(s.W[r*k+p]) + f.x[p])
		}
	}
}

// combine sets x to the sum of w[c] times row c of h[k,k] over the columns c.
func (f *fit) combine(columns []int, w []float32, h []float64, k int) {
	f.coef, f.at = f.coef[:0], f.at[:0]
	for _, c := range columns {
		if w[c] != 0 {
			f.coef, f.at = append(f.coef, -float64(w[c])), append(f.at, c*k)
		}
	}
	clear(f.x)
	subRows(f.x, f.coef, h, f.at)
}

// Aim returns W + W (DX - H)(H + damping)^-1 for DX[K,K] = sum xd xp^T, xd being the
// dense model's inputs and xp those behind H: the weights whose outputs on xp are
// closest to those of W on xd. A solver for them (With) then prunes towards the dense
// model's outputs. Where W is zero the result is zero and the others make up for it.
func (s *Solver) Aim(ctx context.Context, dx []float64) ([]float32, error) {
	if err := s.checkSquare("cross moments", dx); err != nil {
		return nil, err
	}
	diff := make([]float64, len(dx))
	for i := range diff {
		diff[i] = dx[i] - s.h[i]
	}
	return s.stepped(ctx, diff, nil)
}

// Toward returns W + (TX - W H)(H + damping)^-1 for TX[M,K] = sum t x^T: the weights whose outputs on the inputs x behind H
// are closest to t. Where W is zero the result is zero and the others make up for it.
func (s *Solver) Toward(ctx context.Context, tx []float64) ([]float32, error) {
	if len(tx) != len(s.W) {
		return nil, s.errorf("%d cross moments of outputs, want %dx%d", len(tx), s.Rows, s.Cols)
	}
	diff := make([]float64, len(s.h))
	for i, x := range s.h {
		diff[i] = -x
	}
	return s.stepped(ctx, diff, tx)
}

// stepped returns W + (W diff + plus)(H + damping)^-1, plus[M,K] being zero where it is nil, with zeros where W has
// them, which the others make up for.
func (s *Solver) stepped(ctx context.Context, diff, plus []float64) ([]float32, error) {
	k := s.Cols
	inv := s.invert()
	aimed := make([]float32, len(s.W))
	work := make([]struct{ diff, step mulScratch }, parallel.Workers(s.workers))
	masked := make([]bool, s.Rows)
	err := parallel.Each(ctx, s.workers, s.Rows, func(w, r int) {
		row := s.W[r*k : (r+1)*k]
		m := &work[w]
		m.diff.load(k, func(j int) float64 { return float64(row[j]) })
		g := m.diff.times(diff, k)
		m.step.load(k, func(j int) float64 {
			if plus != nil {
				return g[j] - plus[r*k+j] // both are negative
			}
			return g[j]
		})
		for j, x := range m.step.times(inv, k) {
			aimed[r*k+j] = float32(float64(row[j]) + x)
			masked[r] = masked[r] || row[j] == 0
		}
	})
	if err != nil {
		return nil, err
	}
	var rows []int
	for r, ok := range masked {
		if ok {
			rows = append(rows, r)
		}
	}
	if rows == nil {
		return aimed, nil
	}
	t, err := s.With(aimed)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(aimed)
	for _, r := range rows {
		clear(out[r*k : (r+1)*k])
	}
	return out, t.solveRows(ctx, s.nonzeros(), rows, out)
}
