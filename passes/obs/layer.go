package obs

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"

	"spc/internal/parallel"
	"spc/ir"
	"spc/passes/prune"
)

// DefaultDamp is the damping that Layer.Damp leaves open, as a fraction of the mean
// of H's diagonal.
const DefaultDamp = 0.01

// Layer is a weight and what it multiplies. The slices are read only.
type Layer struct {
	Name       string    // names the layer in errors: its node, as in "conv_3 (Conv)"
	Rows, Cols int       // M and K
	W          []float32 // [M,K], row-major, finite
	H          []float64 // [K,K] = sum x x^T, symmetric

	// Damp times the mean of H's diagonal, over the inputs that are not dead, is
	// added to the diagonal; 0 stands for DefaultDamp. All solvers minimise the
	// error with this term, which holds weights that H says little about to where
	// they were.
	Damp float64
}

func (l *Layer) errorf(format string, args ...any) error {
	return &ir.NodeError{Node: l.Name, Kind: ir.ErrInvalid, Msg: fmt.Sprintf(format, args...)}
}

func finite(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }

// checkWeights validates the [M,K] matrix of the layer's own weights.
func (l *Layer) checkWeights() error {
	return l.checkMatrix(l.W, func(row, col int, x float32) error {
		return l.errorf("weights [%d,%d] is %v, want finite numbers", row, col, x)
	})
}

// checkMade validates an [M,K] matrix of weights that were computed from the layer's.
func (l *Layer) checkMade(w []float32) error {
	return l.checkMatrix(w, func(row, col int, _ float32) error {
		return l.errorf("what calibration makes of its weights overflows float32 at [%d,%d], want smaller weights", row, col)
	})
}

// checkMatrix validates an [M,K] matrix of float32; wild makes the error for an element that
// is not finite.
func (l *Layer) checkMatrix(w []float32, wild func(row, col int, x float32) error) error {
	if l.Rows < 1 || l.Cols < 1 || len(w)/l.Cols != l.Rows || len(w)%l.Cols != 0 {
		return l.errorf("%d weights for a %dx%d matrix", len(w), l.Rows, l.Cols)
	}
	for i, x := range w {
		if !finite(float64(x)) {
			return wild(i/l.Cols, i%l.Cols, x)
		}
	}
	return nil
}

// checkSquare validates a [K,K] matrix.
func (l *Layer) checkSquare(what string, h []float64) error {
	k := l.Cols
	if len(h)/k != k || len(h)%k != 0 {
		return l.errorf("%s has %d elements, want %dx%d", what, len(h), k, k)
	}
	for i, x := range h {
		if !finite(x) {
			return l.errorf("%s [%d,%d] is %v, want finite numbers", what, i/k, i%k, x)
		}
	}
	return nil
}

// Solver prunes one layer. Its methods may be called at the same time.
//
// Fallbacks, which Note names:
//   - An input that was always zero (H_jj = 0) says nothing about its weights. Its
//     diagonal element becomes a millionth of the damping term, so that they are the
//     first to go, the smallest first, and those that stay keep their value.
//   - Where all inputs were always zero, H is taken to be the identity.
//   - Where H is singular in spite of the damping, it is damped ten times as much,
//     up to the mean of the diagonal itself, beyond which H is an error.
type Solver struct {
	Layer
	Note string

	workers int
	*factor
}

// factor is what depends on H alone.
type factor struct {
	k     int
	h     []float64 // [K,K] as given
	extra []float64 // [K], added to the diagonal
	u     []float64 // [K,K] upper factor of the inverse: (H + extra)^-1 = U^T U
	floor float64   // no diagonal element of the inverse for any survivors is below it

	invert func() []float64 // the whole inverse, computed once
}

// New checks the layer and factors its Gram matrix. Results do not depend on the
// number of workers, 0 for GOMAXPROCS.
func New(ctx context.Context, l Layer, workers int) (*Solver, error) {
	if err := l.checkWeights(); err != nil {
		return nil, err
	}
	if err := l.checkSquare("Gram matrix", l.H); err != nil {
		return nil, err
	}
	if !(l.Damp >= 0 && finite(l.Damp)) {
		return nil, l.errorf("damping %v, want a fraction of at least 0", l.Damp)
	}
	f, note, err := l.factor(ctx, workers)
	if err != nil {
		return nil, err
	}
	return &Solver{Layer: l, Note: note, workers: workers, factor: f}, nil
}

// With returns a solver for other weights [M,K] on the same inputs.
func (s *Solver) With(w []float32) (*Solver, error) {
	if err := s.checkMade(w); err != nil {
		return nil, err
	}
	t := *s
	t.W = w
	return &t, nil
}

// Some returns a solver for some rows of the weights.
func (s *Solver) Some(rows []int) *Solver {
	t := *s
	t.Rows, t.W = len(rows), make([]float32, 0, len(rows)*s.Cols)
	for _, r := range rows {
		t.W = append(t.W, s.W[r*s.Cols:(r+1)*s.Cols]...)
	}
	return &t
}

// diagonal returns what is to be added to H's diagonal at a damping.
func (l *Layer) diagonal(damp float64) (extra []float64, dead int, err error) {
	const least = 1e-100 // no square of a float32 is less, nor a sum of them more than its inverse
	k := l.Cols
	sum := 0.0
	for j := range k {
		d := l.H[j*k+j]
		if d != 0 && !(d > least && d < 1/least) {
			return nil, 0, l.errorf("Gram matrix [%d,%d] is %v, want a sum of squares of float32 numbers", j, j, d)
		}
		if d == 0 {
			dead++
		}
		sum += d
	}
	extra = make([]float64, k)
	if dead == k {
		for j := range extra {
			extra[j] = 1
		}
		return extra, dead, nil
	}
	lambda := damp * (sum / float64(k-dead))
	for j := range extra {
		if extra[j] = lambda; l.H[j*k+j] == 0 {
			extra[j] = 1e-6 * lambda
		}
	}
	return extra, dead, nil
}

func (l *Layer) factor(ctx context.Context, workers int) (*factor, string, error) {
	const tiny = 1e-11
	damp := l.Damp
	if damp == 0 {
		damp = DefaultDamp
	}
	k := l.Cols
	var notes []string
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		extra, dead, err := l.diagonal(damp)
		if err != nil {
			return nil, "", err
		}
		if u, ok := inverseFactor(k, workers, tiny, func(i, j int) float64 {
			h := l.H[i*k+j]
			if i == j {
				h += extra[i]
			}
			return h
		}); ok {
			if dead == k {
				notes = append(notes, "all inputs were zero: weights rank by magnitude")
			} else if dead > 0 {
				notes = append(notes, fmt.Sprintf("%d of %d inputs were always zero", dead, k))
			}
			if !first {
				notes = append(notes, fmt.Sprintf("the Gram matrix is singular: damped by %.2g of its diagonal", damp))
			}
			f := &factor{k: k, h: l.H, extra: extra, u: u}
			trace := 0.0
			for j := range k {
				trace += f.at(j, j)
			}
			f.floor = 1 / trace
			f.invert = sync.OnceValue(func() []float64 { return f.inverse(workers) })
			return f, strings.Join(notes, "; "), nil
		}
		if damp >= 1 {
			return nil, "", l.errorf("the Gram matrix is not positive semidefinite")
		}
		damp = min(1, max(10*damp, 1e-8))
	}
}

// inverseFactor returns the upper U with the inverse U^T U of a matrix [k,k] of which at
// gives the elements on and above the diagonal. It reports false where a pivot is not above
// tiny of its diagonal element.
func inverseFactor(k, workers int, tiny float64, at func(i, j int) float64) (u []float64, ok bool) {
	// U is the inverse of the upper R with H = R R^T, and R read backwards is the
	// transposed factor of H read backwards.
	a := make([]float64, k*k)
	for i := range k {
		row := a[i*k : (i+1)*k]
		for j := i; j < k; j++ {
			row[j] = at(k-1-j, k-1-i)
		}
	}
	if !cholesky(a, k, k, tiny) {
		return nil, false
	}
	flip(a, k)
	return invertUpper(a, k, workers), true
}

// flip mirrors the upper triangle of a[k,k] at the other diagonal, in place.
func flip(a []float64, k int) {
	for i := range k {
		for j := i; j < k-1-i; j++ {
			p, q := i*k+j, (k-1-j)*k+k-1-i
			a[p], a[q] = a[q], a[p]
		}
	}
}

// invertUpper returns the inverse of the upper triangle r[k,k].
func invertUpper(r []float64, k, workers int) []float64 {
	u := make([]float64, k*k)
	count, width := slabs(k)
	// Slabs of columns are independent of each other.
	parallel.Each(context.Background(), workers, count, func(_, t int) {
		lo, hi := t*width, min((t+1)*width, k)
		at, coef := make([]int, panel), make([]float64, panel)
		for i1 := hi; i1 > 0; i1 -= panel {
			i0 := max(0, i1-panel)
			for i := i0; i < i1; i++ {
				if i >= lo {
					u[i*k+i] = 1
				}
			}
			for q0 := i1; q0 < hi; q0 += panel {
				n := min(panel, hi-q0)
				for i := i0; i < i1; i++ {
					start := max(lo, q0)
					for q := range n {
						at[q] = (q0+q)*k + start
						coef[q] = r[i*k+q0+q]
					}
					subRows(u[i*k+start:i*k+hi], coef[:n], u, at)
				}
			}
			for i := i1 - 1; i >= i0; i-- {
				start := max(lo, i)
				for q := i + 1; q < i1; q++ {
					at[q-i-1] = q*k + start
					coef[q-i-1] = r[i*k+q]
				}
				row := u[i*k+start : i*k+hi]
				subRows(row, coef[:i1-i-1], u, at)
				d := r[i*k+i]
				for j := range row {
					row[j] /= d
				}
			}
		}
	})
	return u
}

// inverse returns U^T U, [K,K].
func (f *factor) inverse(workers int) []float64 {
	k := f.k
	inv := make([]float64, k*k)
	tasks := (k + panel - 1) / panel
	parallel.Each(context.Background(), workers, tasks, func(_, t int) {
		lo, hi := t*panel, min((t+1)*panel, k)
		at, coef := make([]int, panel), make([]float64, panel)
		for q0 := 0; q0 < hi; q0 += panel {
			for i := lo; i < hi; i++ {
				n := min(panel, i+1-q0)
				if n <= 0 {
					continue
				}
				for q := range n {
					at[q] = (q0+q)*k + i
					coef[q] = -f.u[at[q]]
				}
				subRows(inv[i*k+i:(i+1)*k], coef[:n], f.u, at)
			}
		}
	})
	for i := range k {
		for j := i + 1; j < k; j++ {
			inv[j*k+i] = inv[i*k+j]
		}
	}
	return inv
}

// at returns the damped H[i,j].
func (f *factor) at(i, j int) float64 {
	if i > j {
		i, j = j, i
	}
	h := f.h[i*f.k+j]
	if i == j {
		h += f.extra[i]
	}
	return h
}

// Loss returns tr((W-V) H (W-V)^T) for weights V[M,K] in place of W, without the
// damping term.
func (s *Solver) Loss(ctx context.Context, v []float32) (float64, error) {
	if err := s.checkMade(v); err != nil {
		return 0, err
	}
	return s.form(ctx, func(i int) float64 { return float64(s.W[i]) - float64(v[i]) })
}

// Energy returns tr(W H W^T), the loss of having no weights at all.
func (s *Solver) Energy(ctx context.Context) (float64, error) {
	return s.form(ctx, func(i int) float64 { return float64(s.W[i]) })
}

// form returns tr(D H D^T) for the matrix D[M,K] that d gives element by element.
func (s *Solver) form(ctx context.Context, d func(i int) float64) (float64, error) {
	sums, err := forms(ctx, s.workers, s.Rows, s.Cols, d, s.h)
	total := 0.0
	for _, x := range sums {
		total += x
	}
	return max(0, total), err
}

// forms returns d H d^T for each row d of D[rows,k]; h is [k,k] and whole.
func forms(ctx context.Context, workers, rows, k int, d func(i int) float64, h []float64) ([]float64, error) {
	out := make([]float64, rows)
	work := make([]mulScratch, parallel.Workers(workers))
	err := parallel.Each(ctx, workers, rows, func(w, r int) {
		m := &work[w]
		m.load(k, func(j int) float64 { return d(r*k + j) })
		y := m.times(h, k)
		sum := 0.0
		for q, a := range m.coef {
			sum -= float64(a * y[m.at[q]/k])
		}
		out[r] = sum
	})
	return out, err
}

// mulScratch multiplies a row by a matrix, skipping the row's zeros.
type mulScratch struct {
	coef, y []float64
	at      []int
}

// load takes the nonzeros of a row of k elements.
func (m *mulScratch) load(k int, x func(j int) float64) {
	m.coef, m.at = m.coef[:0], m.at[:0]
	for j := range k {
		if v := x(j); v != 0 {
			m.coef, m.at = append(m.coef, v), append(m.at, j*k)
		}
	}
}

// times returns minus the loaded row times h[k,k].
func (m *mulScratch) times(h []float64, k int) []float64 {
	if m.y == nil {
		m.y = make([]float64, k)
	}
	clear(m.y)
	subRows(m.y, m.coef, h, m.at)
	return m.y
}

// nonzerosOf returns what a mask keeps of the weights that are not zero.
func (s *Solver) nonzerosOf(mask *prune.Mask) *prune.Mask {
	m := s.nonzeros()
	for i := range s.Rows {
		words, other := m.Row(i), mask.Row(i)
		for j := range words {
			words[j] &= other[j]
		}
	}
	return m
}

// nonzeros returns the mask of the weights that are not zero.
func (s *Solver) nonzeros() *prune.Mask {
	m := prune.NewMask(s.Rows, s.Cols)
	for r := range s.Rows {
		for c, w := range s.W[r*s.Cols : (r+1)*s.Cols] {
			if w != 0 {
				m.Set(r, c)
			}
		}
	}
	return m
}
