package obs

import (
	"math"
	"math/rand/v2"
	"testing"

	"spc/passes/prune"
)

// TestTableauIsWhatItSays compares a tableau with inverses by elimination, as it begins and
// after exchanges.
func TestTableauIsWhatItSays(t *testing.T) {
	rng := newRand(t, 21)
	for _, size := range [][3]int{{2, 1, 1}, {9, 4, 1}, {40, 17, 2}, {50, 33, 3}, {70, 35, 1}, {36, 12, 4}} {
		k, n, height := size[0], size[1], 2
		s := solver(t, randomLayer(rng, height, k+3))
		x := tableau{col: rng.Perm(k + 3)[:k]}
		if !x.set(s, n, 0, height) {
			t.Fatal("the matrix is singular")
		}
		checkTableau(t, s, &x)
		for range 5 {
			c := size[2]
			x.exchange(rng.IntN(n/c)*c, n+rng.IntN((k-n)/c)*c, c)
			checkTableau(t, s, &x)
		}
	}
}

func checkTableau(t *testing.T, s *Solver, x *tableau) {
	t.Helper()
	k, n := x.k, x.n
	want := make([]float64, k*k)
	for j := range k {
		// The columns of A, and of A H_SG.
		a, b := make([]float64, n*n), make([]float64, n)
		for p := range n {
			for q := range n {
				a[p*n+q] = s.at(x.col[p], x.col[q])
			}
			if j >= n {
				b[p] = s.at(x.col[p], x.col[j])
			}
		}
		if j < n {
			b[j] = -1
		}
		solution := solveDense(a, b)
		for p := range n {
			want[p*k+j] = solution[p]
		}
		for i := n; i < k && j >= n; i++ {
			want[i*k+j] = s.at(x.col[i], x.col[j])
			for p := range n {
				want[i*k+j] -= s.at(x.col[i], x.col[p]) * solution[p]
			}
		}
	}
	for i := range k {
		for j := i; j < k; j++ {
			if scale := math.Sqrt(math.Abs(want[i*k+i] * want[j*k+j])); math.Abs(x.p[i*k+j]-want[i*k+j]) > 1e-7*scale+1e-12 {
				t.Fatalf("%d of %d columns survive: [%d,%d] is %v, want %v", n, k, i, j, x.p[i*k+j], want[i*k+j])
			}
		}
	}
	loss := 0.0
	for r := range x.height {
		stays := map[int]bool{}
		for _, c := range x.col[:n] {
			stays[c] = true
		}
		w := rowOf(s, r)
		v, l := leastSquares(s, w, func(c int) bool { return stays[c] })
		loss += l
		for i, c := range x.col {
			want := v[c]
			if i >= n {
				for j := range w {
					want += s.at(c, j) * (w[j] - v[j])
				}
				want -= v[c]
			}
			if got := x.y[r*k+i]; math.Abs(got-want) > 1e-7*(1+math.Abs(want)) {
				t.Fatalf("%d of %d columns survive: row %d has %v at %d, want %v", n, k, r, got, i, want)
			}
		}
	}
	if math.Abs(x.loss-loss) > 1e-7*(1+loss) {
		t.Fatalf("loss %v, want %v", x.loss, loss)
	}
}

// randomMask is a legal mask of a pattern.
func randomMask(t testing.TB, rng *rand.Rand, p prune.Pattern, rows, cols int, sparsity float64) *prune.Mask {
	t.Helper()
	l := prune.Layer{Name: "l", Rows: rows, Cols: cols, Weights: weights(rng, rows*cols)}
	r, err := prune.Select([]prune.Layer{l}, prune.Options{Pattern: p, Sparsity: sparsity})
	if err != nil {
		t.Fatal(err)
	}
	return r.Layers[0].Mask
}

// ownSparsity is what prune.Select takes for a pattern, s unless that sets its own.
func ownSparsity(p prune.Pattern, s float64) float64 {
	if own, ok := p.OwnSparsity(); ok {
		return own
	}
	return s
}

// groupLoss is the least loss of a group of rows on a mask, with the damping term.
func groupLoss(s *Solver, u *units, g int, keeps func(r, c int) bool) float64 {
	lo, hi := u.span(g)
	sum := 0.0
	for r := lo; r < hi; r++ {
		_, loss := leastSquares(s, rowOf(s, r), func(c int) bool { return keeps(r, c) && s.W[r*s.Cols+c] != 0 })
		sum += loss
	}
	return sum
}

// TestNoExchangeIsLeft tries all pairs after Swap, from scratch.
func TestNoExchangeIsLeft(t *testing.T) {
	made := 0
	for _, text := range allPatterns {
		t.Run(text, func(t *testing.T) {
			rng := newRand(t, 22)
			p := parse(t, text)
			for _, shape := range shapes {
				for _, sparsity := range []float64{0.3, 0.7} {
					rows, cols := shape[0], shape[1]
					s := solver(t, randomLayer(rng, rows, cols))
					if p.Kind == prune.NM {
						sparsity = 0
					}
					mask := randomMask(t, rng, p, rows, cols, sparsity)
					before, err := s.Solve(bg, mask)
					if err != nil {
						t.Fatal(err)
					}
					got, n, err := s.Swap(bg, p, mask, 100)
					if err != nil {
						t.Fatal(err)
					}
					made += n
					checkLeastSquares(t, s, got)
					u := newUnits(rows, cols, p)
					for g := range u.groups {
						r0, r1 := u.span(g)
						for r := r0; r < r1; r++ {
							if got.Mask.RowCount(r) != before.Mask.RowCount(r) {
								t.Fatalf("row %d keeps %d, had %d", r, got.Mask.RowCount(r), before.Mask.RowCount(r))
							}
						}
						was, now := groupLoss(s, &u, g, before.Mask.Keeps), groupLoss(s, &u, g, got.Mask.Keeps)
						if now > was*(1+1e-9) {
							t.Fatalf("the loss of rows %d to %d rose from %v to %v", r0, r1, was, now)
						}
						checkNoPair(t, s, &u, p, g, got.Mask, now)
					}
				}
			}
		})
	}
	if made < 100 {
		t.Errorf("%d exchanges were made, want some hundreds", made)
	}
}

// checkNoPair requires that no exchange of whole units lowers the loss of a group.
func checkNoPair(t *testing.T, s *Solver, u *units, p prune.Pattern, g int, m *prune.Mask, loss float64) {
	t.Helper()
	r0, _ := u.span(g)
	whole := func(unit int) bool { lo, hi := u.columns(unit); return hi-lo == u.c }
	keeps := func(unit int) bool { return m.Keeps(r0, unit*u.c) }
	for out := range u.each {
		for in := range u.each {
			if !whole(out) || !whole(in) || !keeps(out) || keeps(in) || p.Kind == prune.NM && out/p.M != in/p.M {
				continue
			}
			other := groupLoss(s, u, g, func(r, c int) bool { return c/u.c == in || c/u.c != out && m.Keeps(r, c) })
			if other < loss*(1-1e-6)-1e-12 {
				t.Fatalf("the exchange of unit %d for %d lowers the loss of group %d from %v to %v", out, in, g, loss, other)
			}
		}
	}
}

// Weights that came as zero stay zero, also in blocks of which others stay, and cost no loss.
func TestExchangesKeepZeros(t *testing.T) {
	eachCase(t, allPatterns, func(t *testing.T, rng *rand.Rand, p prune.Pattern, rows, cols, keep int) {
		l := randomLayer(rng, rows, cols)
		dropZeros(rng, l.W)
		s := solver(t, l)
		before := mustPrune(t, s, Options{Pattern: p, Keep: keep, Method: SparseGPT})
		got, _, err := s.Swap(bg, p, before.Mask, 3)
		if err != nil {
			t.Fatal(err)
		}
		checkMask(t, s, p, keep, got.Mask)
		checkLeastSquares(t, s, got)
		all := func(m *prune.Mask) (sum float64) {
			u := newUnits(rows, cols, prune.Pattern{Kind: prune.Uniform})
			for r := range rows {
				sum += groupLoss(s, &u, r, m.Keeps)
			}
			return sum
		}
		if was, now := all(before.Mask), all(got.Mask); now > was*(1+1e-6) {
			t.Fatalf("the loss rose from %v to %v", was, now)
		}
	})
}
