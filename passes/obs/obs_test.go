package obs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/prune"
)

var bg = context.Background()

func newRand(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// inputs returns n correlated columns of k elements, with a mean.
func inputs(rng *rand.Rand, k, n int) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		x := make([]float64, k)
		common := rng.NormFloat64()
		for j := range x {
			x[j] = 0.3 + common*math.Sin(float64(j)) + (0.2+float64(j%5)/3)*rng.NormFloat64()
			if j > 0 {
				x[j] += 0.5 * x[j-1]
			}
		}
		out[i] = x
	}
	return out
}

// gram returns sum x y^T.
func gram(x, y [][]float64) []float64 {
	k := len(x[0])
	h := make([]float64, k*k)
	for n := range x {
		for i, a := range x[n] {
			for j, b := range y[n] {
				h[i*k+j] += a * b
			}
		}
	}
	return h
}

func weights(rng *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	return w
}

func randomLayer(rng *rand.Rand, rows, cols int) Layer {
	return Layer{Name: "test (MatMul)", Rows: rows, Cols: cols, W: weights(rng, rows*cols),
		H: gramOf(inputs(rng, cols, min(2*cols+3, 700))), Damp: 0.001}
}

func gramOf(x [][]float64) []float64 { return gram(x, x) }

func solver(t testing.TB, l Layer) *Solver {
	t.Helper()
	s, err := New(bg, l, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t testing.TB, p string) prune.Pattern {
	t.Helper()
	out, err := prune.ParsePattern(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func mustPrune(t testing.TB, s *Solver, o Options) *Result {
	t.Helper()
	r, err := s.Prune(bg, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// solveDense solves a x = b by elimination with pivoting; a[n,n] and b are spent.
func solveDense(a []float64, b []float64) []float64 {
	n := len(b)
	for i := range n {
		p := i
		for r := i + 1; r < n; r++ {
			if math.Abs(a[r*n+i]) > math.Abs(a[p*n+i]) {
				p = r
			}
		}
		for c := range n {
			a[i*n+c], a[p*n+c] = a[p*n+c], a[i*n+c]
		}
		b[i], b[p] = b[p], b[i]
		for r := i + 1; r < n; r++ {
			f := a[r*n+i] / a[i*n+i]
			for c := i; c < n; c++ {
				a[r*n+c] -= f * a[i*n+c]
			}
			b[r] -= f * b[i]
		}
	}
	for i := n - 1; i >= 0; i-- {
		for c := i + 1; c < n; c++ {
			b[i] -= a[i*n+c] * b[c]
		}
		b[i] /= a[i*n+i]
	}
	return b
}

// leastSquares returns the weights of a row on the columns that stay, and the damped
// loss, by the normal equations.
func leastSquares(s *Solver, w []float64, stays func(c int) bool) ([]float64, float64) {
	var stay []int
	for c := range w {
		if stays(c) {
			stay = append(stay, c)
		}
	}
	n := len(stay)
	a, b := make([]float64, n*n), make([]float64, n)
	for i, p := range stay {
		for j, q := range stay {
			a[i*n+j] = s.at(p, q)
		}
		for q := range w {
			b[i] += s.at(p, q) * w[q]
		}
	}
	out := make([]float64, len(w))
	for i, x := range solveDense(a, b) {
		out[stay[i]] = x
	}
	loss := 0.0
	for i := range w {
		for j := range w {
			loss += (w[i] - out[i]) * s.at(i, j) * (w[j] - out[j])
		}
	}
	return out, loss
}

func rowOf(s *Solver, r int) []float64 {
	out := make([]float64, s.Cols)
	for j := range out {
		out[j] = float64(s.W[r*s.Cols+j])
	}
	return out
}

// near compares relative to the scale of the numbers.
func near(a, b, scale float64) bool { return math.Abs(a-b) <= 2e-6*(1+scale) }

// checkLeastSquares requires weights to be the best on their mask.
func checkLeastSquares(t *testing.T, s *Solver, r *Result) {
	t.Helper()
	for i := range s.Rows {
		want, _ := leastSquares(s, rowOf(s, i), func(c int) bool { return r.Mask.Keeps(i, c) })
		for c, x := range want {
			if got := float64(r.W[i*s.Cols+c]); !near(got, x, math.Abs(x)) {
				t.Fatalf("weight [%d,%d] is %v, least squares %v", i, c, got, x)
			}
		}
	}
}

var allPatterns = []string{"uniform", "unstructured", "2:4", "1:4", "4:8", "3:5",
	"block:2x2", "block:4x1", "block:1x4", "block:3x5", "uniform-block:2x2", "uniform-block:4x1", "uniform-block:1x4"}

var allMethods = []Method{Exact, SparseGPT, ALPS}

// withinPatterns are blocks with N:M in them.
var withinPatterns = []string{"block:2x4+2:4", "block:1x8+1:4", "block:4x2+1:2", "block:3x6+2:3", "uniform-block:2x4+2:4", "uniform-block:1x8+3:8"}

var shapes = [][2]int{{1, 1}, {1, 17}, {9, 1}, {5, 8}, {7, 18}, {6, 24}}

// eachCase runs a test for every pattern, shape and two sparsities.
func eachCase(t *testing.T, patterns []string, do func(t *testing.T, rng *rand.Rand, p prune.Pattern, rows, cols, keep int)) {
	for _, text := range patterns {
		t.Run(text, func(t *testing.T) {
			rng := newRand(t, 1)
			p := parse(t, text)
			for _, shape := range shapes {
				for _, sparsity := range []float64{0.3, 0.7} {
					do(t, rng, p, shape[0], shape[1], Keep(p, shape[0], shape[1], sparsity))
				}
			}
		})
	}
}

// dropZeros makes some weights zero.
func dropZeros(rng *rand.Rand, w []float32) {
	for i := range w {
		if rng.IntN(6) == 0 {
			w[i] = 0
		}
	}
}

// TestExactIsGreedy removes by the definition, from scratch at every step: the unit
// without which the least squares loss of its rows is the smallest for its size, under
// N:M the one of its group, which is that with the most at stake.
func TestExactIsGreedy(t *testing.T) {
	eachCase(t, allPatterns, func(t *testing.T, rng *rand.Rand, p prune.Pattern, rows, cols, keep int) {
		l := randomLayer(rng, rows, cols)
		if p.Kind != prune.Block && p.Kind != prune.UniformBlock {
			dropZeros(rng, l.W)
		}
		s := solver(t, l)
		got := mustPrune(t, s, Options{Pattern: p, Keep: keep})
		u := newUnits(rows, cols, p)
		cut := make([][]bool, u.groups)
		total := make([]float64, u.groups)
		loss := func(g, unit int) float64 {
			lo, hi := u.span(g)
			sum := 0.0
			for r := lo; r < hi; r++ {
				_, x := leastSquares(s, rowOf(s, r), func(c int) bool {
					return !cut[g][c/u.c] && c/u.c != unit && s.W[r*cols+c] != 0
				})
				sum += x
			}
			return sum
		}
		left := make([]int, u.groups)
		drop := rows*cols - keep
		next := make([]int, u.groups)
		cost := make([]float64, u.groups)
		// find looks for the unit of a group that goes next, -1 for none.
		find := func(g int) {
			next[g], cost[g] = -1, math.Inf(1)
			if p.Kind == prune.NM {
				stake := -1.0
				for lo := 0; lo < cols; lo += p.M {
					cheapest, losses := -1, []float64{}
					for c := lo; c < min(lo+p.M, cols); c++ {
						if cut[g][c] {
							continue
						}
						losses = append(losses, loss(g, c)-total[g])
						if cheapest < 0 || losses[len(losses)-1] < slices.Min(losses[:len(losses)-1]) {
							cheapest = c
						}
					}
					over := len(losses) - groupLimit(p, lo, cols)
					if slices.Sort(losses); over > 0 && losses[over]-losses[0] > stake {
						next[g], stake = cheapest, losses[over]-losses[0]
					}
				}
				return
			}
			for unit := range u.each {
				if left[g] == 1 || cut[g][unit] {
					continue
				}
				if x := (loss(g, unit) - total[g]) * u.scale(g, unit); x < cost[g] {
					next[g], cost[g] = unit, x
				}
			}
		}
		remove := func(g, unit int) {
			total[g] = loss(g, unit)
			cut[g][unit] = true
			left[g]--
			drop -= u.size(g, unit)
		}
		for g := range u.groups {
			cut[g] = make([]bool, u.each)
			left[g] = u.each
			for unit := range u.each {
				if e := (&eliminator{s: s, u: &u, start: rowBlock(s, &u, g), pos: identity(cols)}); e.zeroIn(g, unit) {
					remove(g, unit)
				}
			}
			if p.Kind == prune.Unstructured || p.Kind == prune.Block {
				find(g)
				continue
			}
			for find(g); next[g] >= 0 && (p.Kind == prune.NM || left[g] > keep); find(g) {
				remove(g, next[g])
			}
		}
		if p.Kind == prune.Unstructured || p.Kind == prune.Block {
			for {
				best := -1
				for g := range u.groups {
					if next[g] >= 0 && (best < 0 || cost[g] < cost[best]) {
						best = g
					}
				}
				if best < 0 || 2*drop <= u.size(best, next[best]) {
					break
				}
				remove(best, next[best])
				find(best)
			}
		}
		for r := range rows {
			for c := range cols {
				want := !cut[r/u.r][c/u.c] && l.W[r*cols+c] != 0
				if got.Mask.Keeps(r, c) != want {
					t.Fatalf("%dx%d keep %d: mask [%d,%d] is %v, want %v", rows, cols, keep, r, c, !want, want)
				}
			}
		}
		checkLeastSquares(t, s, got)
	})
}

func identity(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func rowBlock(s *Solver, u *units, g int) []float64 {
	var out []float64
	lo, hi := u.span(g)
	for r := lo; r < hi; r++ {
		out = append(out, rowOf(s, r)...)
	}
	return out
}

func (e *eliminator) zeroIn(g, unit int) bool {
	lo, hi := e.u.span(g)
	e.height = hi - lo
	return e.zero(unit)
}

// TestMasks checks, for both methods and weights of which some came as zero, that
// masks are legal and meet the target, and that weights are zero outside of them.
func TestMasks(t *testing.T) {
	for _, method := range allMethods {
		t.Run(method.String(), func(t *testing.T) {
			eachCase(t, allPatterns, func(t *testing.T, rng *rand.Rand, p prune.Pattern, rows, cols, keep int) {
				l := randomLayer(rng, rows, cols)
				if rng.IntN(2) == 0 {
					dropZeros(rng, l.W)
				}
				s := solver(t, l)
				r := mustPrune(t, s, Options{Pattern: p, Method: method, Keep: keep})
				for i, w := range r.W {
					keeps := r.Mask.Keeps(i/cols, i%cols)
					if w != 0 && !keeps || keeps && (l.W[i] == 0 || w == 0) {
						t.Fatalf("weight %d is %v, was %v, mask %v", i, w, l.W[i], keeps)
					}
				}
				checkMask(t, s, p, keep, r.Mask)
				if loss, err := s.Loss(bg, r.W); err != nil || loss != r.Loss {
					t.Fatalf("loss %v (%v), result says %v", loss, err, r.Loss)
				}
			})
		})
	}
}

// checkMask requires what a pattern promises.
func checkMask(t *testing.T, s *Solver, p prune.Pattern, keep int, m *prune.Mask) {
	t.Helper()
	u := newUnits(s.Rows, s.Cols, p)
	came := s.nonzeros()
	dropped, largest, bounded := 0, 0, false
	for g := range u.groups {
		r0, r1 := u.span(g)
		kept, had := 0, 0
		for unit := range u.each {
			lo, hi := u.columns(unit)
			n, before, full := 0, 0, true
			for r := r0; r < r1; r++ {
				for c := lo; c < hi; c++ {
					if m.Keeps(r, c) {
						n++
					} else if came.Keeps(r, c) {
						full = false
					}
					if came.Keeps(r, c) {
						before++
					}
				}
			}
			if n > 0 && !full {
				t.Fatalf("block %d of block row %d is kept in part", unit, g)
			}
			if before > 0 {
				had++
			}
			if n > 0 {
				kept++
			} else {
				dropped += u.size(g, unit)
			}
			largest = max(largest, u.size(g, unit))
		}
		if had > 0 && kept == 0 {
			t.Fatalf("block row %d is empty", g)
		}
		bounded = bounded || kept == 1
		switch p.Kind {
		case prune.Uniform, prune.UniformBlock:
			if kept != min(keep, had) {
				t.Fatalf("block row %d keeps %d of %d, want %d", g, kept, had, keep)
			}
		case prune.NM:
			for lo := 0; lo < s.Cols; lo += p.M {
				n, had := 0, 0
				for c := lo; c < min(lo+p.M, s.Cols); c++ {
					if m.Keeps(g, c) {
						n++
					}
					if came.Keeps(g, c) {
						had++
					}
				}
				if want := min(had, groupLimit(p, lo, s.Cols)); n != want {
					t.Fatalf("row %d keeps %d from column %d on, want %d", g, n, lo, want)
				}
			}
		}
	}
	if p.Kind == prune.Unstructured || p.Kind == prune.Block {
		zeros := 0
		for i := range s.W {
			if !came.Keeps(i/s.Cols, i%s.Cols) {
				zeros++
			}
		}
		if off := s.Rows*s.Cols - keep - dropped; 2*off > largest && !bounded || -2*off >= largest && zeros == 0 {
			t.Fatalf("%d weights dropped, want %d", dropped, s.Rows*s.Cols-keep)
		}
	}
}

// TestWithinBlocks requires of N:M within blocks, for both methods, the blocks that are chosen without it, N of each M there, and of
// exact OBS the best weights on that mask.
func TestWithinBlocks(t *testing.T) {
	for _, method := range []Method{Exact, SparseGPT} {
		eachCase(t, withinPatterns, func(t *testing.T, rng *rand.Rand, p prune.Pattern, rows, cols, _ int) {
			l := randomLayer(rng, rows, cols)
			if rng.IntN(2) == 0 {
				dropZeros(rng, l.W)
			}
			s := solver(t, l)
			keep := Keep(p, rows, cols, 0.8)
			blocks := mustPrune(t, s, Options{Pattern: p.Blocks(), Method: method, Keep: keep})
			got := mustPrune(t, s, Options{Pattern: p, Method: method, Keep: keep})
			inner, _ := p.Within()
			for r := range rows {
				for lo := 0; lo < cols; lo += p.M {
					had, n := 0, 0
					for c := lo; c < min(lo+p.M, cols); c++ {
						if blocks.Mask.Keeps(r, c) {
							had++
						}
						if got.Mask.Keeps(r, c) {
							n++
							if !blocks.Mask.Keeps(r, c) {
								t.Fatalf("%s %dx%d: [%d,%d] stays outside of the blocks", method, rows, cols, r, c)
							}
						}
					}
					if want := min(had, groupLimit(inner, lo, cols)); n != want {
						t.Fatalf("%s %dx%d: row %d keeps %d from column %d on, want %d", method, rows, cols, r, n, lo, want)
					}
				}
			}
			for i, w := range got.W {
				if keeps := got.Mask.Keeps(i/cols, i%cols); (w != 0) != keeps {
					t.Fatalf("%s: weight %d is %v, mask %v", method, i, w, keeps)
				}
			}
			if method == Exact {
				checkLeastSquares(t, s, got)
			}
			if loss, err := s.Loss(bg, got.W); err != nil || loss != got.Loss {
				t.Fatalf("loss %v (%v), result says %v", loss, err, got.Loss)
			}
		})
	}
}

// TestWithinIsNearTheBest compares with every choice of N of each M in the blocks that stay.
func TestWithinIsNearTheBest(t *testing.T) {
	rng := newRand(t, 11)
	sum, least := 0.0, 0.0
	for range 20 {
		l := randomLayer(rng, 1, 16)
		l.Damp = 1e-6
		s := solver(t, l)
		p := parse(t, "block:1x8+2:4")
		got := mustPrune(t, s, Options{Pattern: p, Keep: 8})
		stays := mustPrune(t, s, Options{Pattern: p.Blocks(), Keep: 8}).Mask.Row(0)[0]
		best := math.Inf(1)
		for choice := range uint64(1 << 16) {
			legal := choice&^stays == 0
			for lo := 0; lo < 16; lo += 4 {
				legal = legal && bits.OnesCount64(choice>>lo&15) == min(2, bits.OnesCount64(stays>>lo&15))
			}
			if legal {
				_, loss := leastSquares(s, rowOf(s, 0), func(c int) bool { return choice>>c&1 != 0 })
				best = min(best, loss)
			}
		}
		_, loss := leastSquares(s, rowOf(s, 0), func(c int) bool { return got.Mask.Keeps(0, c) })
		if loss < best*(1-1e-9) {
			t.Fatalf("loss %v is less than the best, %v", loss, best)
		}
		sum, least = sum+loss, least+best
	}
	if t.Logf("%.3f times the loss of the best choices", sum/least); sum > 1.2*least {
		t.Errorf("%v times the loss of the best choices", sum/least)
	}
}

// TestKeepIsSelects compares the target that Keep returns with what prune.Select
// keeps.
func TestKeepIsSelects(t *testing.T) {
	rng := newRand(t, 2)
	for _, text := range []string{"uniform", "unstructured", "uniform-block:2x2", "block:2x2", "uniform-block:2x2+1:2", "block:2x2+1:2", "block:1x2+2:2"} {
		p := parse(t, text)
		for range 20 {
			rows, cols := 2*(1+rng.IntN(8)), 2*(1+rng.IntN(12))
			sparsity := p.LeastSparsity() + (1-p.LeastSparsity())*rng.Float64()
			res, err := prune.Select([]prune.Layer{{Name: "l", Rows: rows, Cols: cols, Weights: weights(rng, rows*cols)}},
				prune.Options{Pattern: p, Sparsity: sparsity})
			if err != nil {
				t.Fatal(err)
			}
			l := res.Layers[0]
			keep := Keep(p, rows, cols, sparsity)
			switch p.Kind {
			case prune.Uniform, prune.UniformBlock:
				if keep != l.Kept {
					t.Fatalf("%s %dx%d at %v: keep %d, Select keeps %d", p, rows, cols, sparsity, keep, l.Kept)
				}
			default:
				s := solver(t, randomLayer(rng, rows, cols))
				got := mustPrune(t, s, Options{Pattern: p, Keep: keep}).Mask.Count()
				if want := l.Mask.Count(); got != want && l.Bounded == 0 {
					t.Fatalf("%s %dx%d at %v: %d weights stay, Select keeps %d", p, rows, cols, sparsity, got, want)
				}
			}
		}
	}
}

// TestOrderOfLosses compares the methods on layers with correlated inputs.
func TestOrderOfLosses(t *testing.T) {
	for _, text := range []string{"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:1x4"} {
		t.Run(text, func(t *testing.T) {
			rng := newRand(t, 3)
			p := parse(t, text)
			l := randomLayer(rng, 16, 120)
			l.Damp = 1e-9
			s := solver(t, l)
			keep := Keep(p, l.Rows, l.Cols, 0.5)
			exact := mustPrune(t, s, Options{Pattern: p, Keep: keep})
			gpt := mustPrune(t, s, Options{Pattern: p, Keep: keep, Method: SparseGPT})
			best, err := s.Solve(bg, gpt.Mask)
			if err != nil {
				t.Fatal(err)
			}
			sel, err := prune.Select([]prune.Layer{{Name: "l", Rows: l.Rows, Cols: l.Cols, Weights: l.W}},
				prune.Options{Pattern: p, Sparsity: 0.5})
			if err != nil {
				t.Fatal(err)
			}
			w := slices.Clone(l.W)
			sel.Layers[0].Mask.Apply(w, false)
			magnitude, err := s.Loss(bg, w)
			if err != nil {
				t.Fatal(err)
			}
			energy, err := s.Energy(bg)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("of the energy: exact %.4f, SparseGPT's mask solved %.4f, SparseGPT %.4f, magnitude %.4f",
				exact.Loss/energy, best.Loss/energy, gpt.Loss/energy, magnitude/energy)
			if !(exact.Loss < best.Loss && best.Loss < gpt.Loss && gpt.Loss < magnitude && magnitude < energy) {
				t.Errorf("want exact %v < solved %v < SparseGPT %v < magnitude %v < energy %v",
					exact.Loss, best.Loss, gpt.Loss, magnitude, energy)
			}
		})
	}
}

// TestSolve solves for masks of all kinds, shared by rows and not.
func TestSolve(t *testing.T) {
	rng := newRand(t, 4)
	for _, shape := range shapes {
		for _, density := range []float64{0, 0.2, 0.7, 1} {
			l := randomLayer(rng, shape[0], shape[1])
			dropZeros(rng, l.W)
			s := solver(t, l)
			m := prune.NewMask(l.Rows, l.Cols)
			for r := range l.Rows {
				for c := range l.Cols {
					if r%2 == 1 && m.Keeps(r-1, c) || r%2 == 0 && rng.Float64() < density {
						m.Set(r, c)
					}
				}
			}
			got, err := s.Solve(bg, m)
			if err != nil {
				t.Fatal(err)
			}
			for i, w := range l.W {
				if want := w != 0 && m.Keeps(i/l.Cols, i%l.Cols); got.Mask.Keeps(i/l.Cols, i%l.Cols) != want {
					t.Fatalf("mask of weight %d is %v, want %v", i, !want, want)
				}
			}
			checkLeastSquares(t, s, got)
		}
	}
}

// TestAim compares with the least squares fit of the dense outputs on the samples
// themselves, damped towards the weights by samples of their own.
func TestAim(t *testing.T) {
	rng := newRand(t, 5)
	for _, zeros := range []bool{false, true} {
		const rows, k = 5, 9
		xd := inputs(rng, k, 40)
		xp := make([][]float64, len(xd))
		for i, x := range xd {
			xp[i] = slices.Clone(x)
			for j := range x {
				xp[i][j] += 0.3*rng.NormFloat64() - 0.1*x[(j+1)%k]
			}
		}
		l := Layer{Name: "l", Rows: rows, Cols: k, W: weights(rng, rows*k), H: gramOf(xp), Damp: 0.01}
		if zeros {
			dropZeros(rng, l.W)
		}
		s := solver(t, l)
		got, err := s.Aim(bg, gram(xd, xp))
		if err != nil {
			t.Fatal(err)
		}
		for r := range rows {
			w := rowOf(s, r)
			var stay []int
			for c := range k {
				if w[c] != 0 {
					stay = append(stay, c)
				}
			}
			// Rows of the regression: samples, then one for each damped weight.
			n := len(stay)
			a, b := make([]float64, n*n), make([]float64, n)
			add := func(x []float64, y float64) {
				for i, p := range stay {
					b[i] += x[p] * y
					for j, q := range stay {
						a[i*n+j] += x[p] * x[q]
					}
				}
			}
			for i, x := range xp {
				y := 0.0
				for c := range k {
					y += w[c] * xd[i][c]
				}
				add(x, y)
			}
			for c := range k {
				x := make([]float64, k)
				x[c] = math.Sqrt(s.extra[c])
				add(x, x[c]*w[c])
			}
			want := make([]float64, k)
			for i, x := range solveDense(a, b) {
				want[stay[i]] = x
			}
			for c, x := range want {
				if y := float64(got[r*k+c]); !near(y, x, math.Abs(x)) {
					t.Fatalf("zeros %v: weight [%d,%d] is %v, want %v", zeros, r, c, y, x)
				}
			}
		}
	}
}

// meanAndVariance of each output over explicit columns.
func meanAndVariance(w []float32, k int, x [][]float64) (mean, variance []float64) {
	for r := range len(w) / k {
		sum, square := 0.0, 0.0
		for _, col := range x {
			y := 0.0
			for c, v := range col {
				y += float64(w[r*k+c]) * v
			}
			sum += y
			square += y * y
		}
		m := sum / float64(len(x))
		mean = append(mean, m)
		variance = append(variance, square/float64(len(x))-m*m)
	}
	return mean, variance
}

func moments(x [][]float64) Moments {
	m := Moments{N: len(x), X: make([]float64, len(x[0])), XX: gramOf(x)}
	for _, col := range x {
		for j, v := range col {
			m.X[j] += v
		}
	}
	return m
}

// Weights that are solved for solve the normal equations, of the columns that are not zero.
func TestToward(t *testing.T) {
	rng := newRand(t, 6)
	for _, zeros := range []bool{false, true} {
		const rows, k = 5, 9
		x, y := inputs(rng, k, 40), inputs(rng, rows, 40)
		l := Layer{Name: "l", Rows: rows, Cols: k, W: weights(rng, rows*k), H: gramOf(x), Damp: 0.01}
		if zeros {
			dropZeros(rng, l.W)
		}
		s := solver(t, l)
		tx := make([]float64, rows*k)
		for i := range x {
			for r := range rows {
				for c := range k {
					tx[r*k+c] += y[i][r] * x[i][c]
				}
			}
		}
		got, err := s.Toward(bg, tx)
		if err != nil {
			t.Fatal(err)
		}
		for r := range rows {
			for c := range k {
				if l.W[r*k+c] == 0 {
					if got[r*k+c] != 0 {
						t.Errorf("weight [%d,%d] is %v, want the zero that it was", r, c, got[r*k+c])
					}
					continue
				}
				rest := tx[r*k+c] - s.extra[c]*(float64(got[r*k+c])-float64(l.W[r*k+c]))
				for j := range k {
					rest -= float64(got[r*k+j]) * l.H[j*k+c]
				}
				if math.Abs(rest) > 1e-4*l.H[c*k+c] {
					t.Errorf("the gradient of weight [%d,%d] is %g", r, c, rest)
				}
			}
		}
		if _, err := s.Toward(bg, tx[1:]); err == nil {
			t.Error("moments of another shape are no error")
		}
	}
}

func TestCorrect(t *testing.T) {
	rng := newRand(t, 6)
	const rows, k = 6, 12
	dense, pruned := inputs(rng, k, 50), inputs(rng, k, 50)
	l := Layer{Name: "l", Rows: rows, Cols: k, W: weights(rng, rows*k), H: gramOf(pruned)}
	bias := weights(rng, rows)
	s := solver(t, l)
	w := mustPrune(t, s, Options{Pattern: parse(t, "2:4")}).W
	clear(w[:k])                // an output that is constant
	for i := range w[k : 2*k] { // one that lost nearly all of its variance
		w[k+i] *= 0.01
	}
	for _, scale := range []bool{true, false} {
		c, err := s.Correct(bg, w, bias, moments(pruned), moments(dense), scale)
		if err != nil {
			t.Fatal(err)
		}
		v := slices.Clone(w)
		c.Apply(v)
		meanD, varD := meanAndVariance(l.W, k, dense)
		meanP, varP := meanAndVariance(v, k, pruned)
		for r := range rows {
			if got, want := meanP[r]+float64(c.Bias[r]), meanD[r]+float64(bias[r]); !near(got, want, math.Abs(want)) {
				t.Errorf("scale %v: mean of output %d is %v, want %v", scale, r, got, want)
			}
			switch {
			case !scale || r == 0:
				if c.Scale[r] != 1 {
					t.Errorf("scale %v: output %d is scaled by %v, want 1", scale, r, c.Scale[r])
				}
			case r == 1:
				if c.Scale[r] != MaxScale {
					t.Errorf("output %d is scaled by %v, want %v", r, c.Scale[r], MaxScale)
				}
			case !near(varP[r], varD[r], varD[r]):
				t.Errorf("variance of output %d is %v, want %v", r, varP[r], varD[r])
			}
		}
		if scale && (!strings.Contains(c.Note, "1 of 6 outputs are constant") || !strings.Contains(c.Note, "scales of 1 of 6")) {
			t.Errorf("note %q", c.Note)
		}
	}
}

// TestWorkers requires the same bytes from any number of workers.
func TestWorkers(t *testing.T) {
	rng := newRand(t, 7)
	l := randomLayer(rng, 11, 100)
	dx := gramOf(inputs(rng, 100, 110))
	var want []byte
	for _, workers := range []int{1, 2, 5} {
		var out bytes.Buffer
		put := func(v any) {
			if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
		s, err := New(bg, l, workers)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range slices.Concat(allPatterns, withinPatterns) {
			p := parse(t, text)
			for _, method := range allMethods {
				r := mustPrune(t, s, Options{Pattern: p, Method: method, Keep: Keep(p, l.Rows, l.Cols, 0.5)})
				put(r.W)
				put(r.Loss)
			}
			if _, within := p.Within(); within { // of which nothing is swapped
				continue
			}
			r, _, err := s.Swap(bg, p, randomMask(t, rand.New(rand.NewPCG(7, 1)), p, l.Rows, l.Cols, ownSparsity(p, 0.5)), 2)
			if err != nil {
				t.Fatal(err)
			}
			put(r.W)
		}
		aimed, err := s.Aim(bg, dx)
		if err != nil {
			t.Fatal(err)
		}
		put(aimed)
		put(s.Saliency())
		if want == nil {
			want = out.Bytes()
		} else if !bytes.Equal(want, out.Bytes()) {
			t.Errorf("%d workers give other bytes than 1", workers)
		}
	}
}

// TestFallbacks prunes with Gram matrices that say too little.
func TestFallbacks(t *testing.T) {
	rng := newRand(t, 8)
	const rows, k = 4, 12
	zero := make([]float64, k*k)
	dead := gramOf(inputs(rng, k, 40))
	for _, c := range []int{3, 7} {
		for j := range k {
			dead[c*k+j], dead[j*k+c] = 0, 0
		}
	}
	one := inputs(rng, k, 1)
	for _, test := range []struct {
		name, note string
		h          []float64
		damp       float64
	}{
		{"all dead", "all inputs were zero", zero, 0},
		{"two dead", "2 of 12 inputs were always zero", dead, 0},
		{"rank one", "", gramOf(one), 0},
		{"rank one hardly damped", "is singular: damped by", gramOf(one), 1e-14},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := Layer{Name: "l", Rows: rows, Cols: k, W: weights(rng, rows*k), H: test.h, Damp: test.damp}
			s := solver(t, l)
			if !strings.Contains(s.Note, test.note) || test.note == "" && s.Note != "" {
				t.Errorf("note %q, want %q", s.Note, test.note)
			}
			for _, method := range allMethods {
				for _, text := range allPatterns {
					p := parse(t, text)
					keep := Keep(p, rows, k, 0.5)
					r := mustPrune(t, s, Options{Pattern: p, Method: method, Keep: keep})
					checkMask(t, s, p, keep, r.Mask)
					for i, w := range r.W {
						if !finite(float64(w)) {
							t.Fatalf("%s %s: weight %d is %v", method, p, i, w)
						}
					}
					swapped, _, err := s.Swap(bg, p, r.Mask, 3)
					if err != nil {
						t.Fatal(err)
					}
					checkMask(t, s, p, keep, swapped.Mask)
					if was, now := damps(t, s, r.W), damps(t, s, swapped.W); now > was*(1+1e-6) {
						t.Fatalf("%s %s: loss %v, after exchanges %v", method, p, was, now)
					}
					checkLeastSquares(t, s, swapped)
					if method == Exact {
						checkLeastSquares(t, s, r)
					}
				}
			}
			if test.name == "two dead" {
				r := mustPrune(t, s, Options{Pattern: parse(t, "uniform"), Keep: k - 2})
				for i := range rows {
					if r.Mask.Keeps(i, 3) || r.Mask.Keeps(i, 7) {
						t.Errorf("row %d keeps weights of dead inputs", i)
					}
				}
				r = mustPrune(t, s, Options{Pattern: parse(t, "uniform"), Keep: k - 1})
				for i := range rows {
					for _, c := range []int{3, 7} {
						if w := r.W[i*k+c]; w != 0 && w != l.W[i*k+c] {
							t.Errorf("weight [%d,%d] of a dead input is %v, was %v", i, c, w, l.W[i*k+c])
						}
					}
				}
			}
			if test.name == "all dead" {
				r := mustPrune(t, s, Options{Pattern: parse(t, "uniform"), Keep: 5})
				for i := range l.W {
					row := i / k
					larger := 0
					for c := range k {
						if math.Abs(float64(l.W[row*k+c])) > math.Abs(float64(l.W[i])) {
							larger++
						}
					}
					if r.Mask.Keeps(row, i%k) != (larger < 5) {
						t.Errorf("weight %d does not rank by magnitude", i)
					}
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	rng := newRand(t, 9)
	ok := randomLayer(rng, 3, 4)
	with := func(change func(l *Layer)) Layer {
		l := ok
		l.W, l.H = slices.Clone(ok.W), slices.Clone(ok.H)
		change(&l)
		return l
	}
	for _, test := range []struct {
		name, want string
		l          Layer
	}{
		{"shape", "12 weights for a 3x5 matrix", with(func(l *Layer) { l.Cols = 5 })},
		{"no rows", "for a 0x4 matrix", with(func(l *Layer) { l.Rows = 0; l.W = nil })},
		{"weight", "weights [1,2] is NaN", with(func(l *Layer) { l.W[6] = float32(math.NaN()) })},
		{"gram length", "Gram matrix has 15 elements, want 4x4", with(func(l *Layer) { l.H = l.H[:15] })},
		{"gram NaN", "Gram matrix [0,3] is NaN", with(func(l *Layer) { l.H[3] = math.NaN() })},
		{"gram infinite", "Gram matrix [2,1] is +Inf", with(func(l *Layer) { l.H[9] = math.Inf(1) })},
		{"negative diagonal", "want a sum of squares", with(func(l *Layer) { l.H[5] = -1 })},
		{"diagonal too large", "want a sum of squares", with(func(l *Layer) { l.H[5] = 1e200 })},
		{"indefinite", "not positive semidefinite", with(func(l *Layer) {
			l.H[1] = 100 * (l.H[0] + l.H[5] + l.H[10] + l.H[15])
			l.H[4] = l.H[1]
		})},
		{"damping", "damping -1", with(func(l *Layer) { l.Damp = -1 })},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(bg, test.l, 1)
			if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), ok.Name) {
				t.Errorf("error %v, want one with %q that names %s", err, test.want, ok.Name)
			}
		})
	}
	s := solver(t, ok)
	for _, o := range []Options{
		{Pattern: parse(t, "uniform")},
		{Pattern: parse(t, "uniform-block:2x2")},
		{Pattern: parse(t, "unstructured"), Keep: -1},
		{Pattern: parse(t, "channel"), Keep: 1},
		{Pattern: prune.Pattern{Kind: prune.Dense}, Keep: 1},
		{Pattern: prune.Pattern{Kind: prune.NM, N: 2, M: 1}},
		{Pattern: parse(t, "2:4"), Method: 9},
	} {
		if _, err := s.Prune(bg, o); !errors.Is(err, ir.ErrInvalid) {
			t.Errorf("%+v: error %v, want one that wraps ErrInvalid", o, err)
		}
	}
	done, cancel := context.WithCancel(bg)
	cancel()
	for _, text := range []string{"uniform", "unstructured", "2:4", "block:2x2"} {
		for _, method := range allMethods {
			if _, err := s.Prune(done, Options{Pattern: parse(t, text), Method: method, Keep: 1}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s %s: error %v after the end of the context", method, text, err)
			}
		}
	}
}

// TestFactor compares the factor and the inverse with elimination.
func TestFactor(t *testing.T) {
	rng := newRand(t, 10)
	for _, k := range []int{1, 2, 15, 16, 17, 63, 64, 65, 130} {
		s := solver(t, randomLayer(rng, 1, k))
		inv := s.invert()
		for _, j := range []int{0, k / 2, k - 1} {
			a, b := make([]float64, k*k), make([]float64, k)
			for p := range k {
				for q := range k {
					a[p*k+q] = s.at(p, q)
				}
			}
			b[j] = 1
			for i, want := range solveDense(a, b) {
				if got := inv[i*k+j]; math.Abs(got-want) > 1e-9*inv[j*k+j] {
					t.Fatalf("K=%d: inverse [%d,%d] is %v, want %v", k, i, j, got, want)
				}
			}
		}
	}
}

// TestSaliency checks that both saliencies are losses of removing a single weight.
func TestSaliency(t *testing.T) {
	rng := newRand(t, 11)
	l := randomLayer(rng, 2, 9)
	s := solver(t, l)
	obs, wanda := s.Saliency(), s.Wanda()
	for i, w := range l.W {
		r, c := i/l.Cols, i%l.Cols
		_, loss := leastSquares(s, rowOf(s, r), func(j int) bool { return j != c })
		if got := float64(obs[i]); !near(got*got, loss, loss) {
			t.Errorf("saliency %d squared is %v, want %v", i, got*got, loss)
		}
		v := slices.Clone(l.W)
		v[i] = 0
		plain, err := s.Loss(bg, v)
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(wanda[i]); !near(got*got, plain, plain) {
			t.Errorf("Wanda's saliency of weight %v squared is %v, want %v", w, got*got, plain)
		}
	}
}

// TestSweep compares losses and weights along a sweep with single runs.
func TestSweep(t *testing.T) {
	eachCase(t, []string{"uniform", "unstructured", "block:2x2", "uniform-block:1x4"}, func(t *testing.T, rng *rand.Rand, p prune.Pattern, rows, cols, keep int) {
		s := solver(t, randomLayer(rng, rows, cols))
		sweep, err := s.Sweep(bg, p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := sweep.Prune(bg, keep)
		if err != nil {
			t.Fatal(err)
		}
		want := mustPrune(t, s, Options{Pattern: p, Keep: keep})
		energy, err := s.Energy(bg)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want.W {
			if !near(float64(got.W[i]), float64(w), math.Abs(float64(w))) {
				t.Fatalf("weight %d is %v, want %v", i, got.W[i], w)
			}
		}
		if !near(got.Loss, want.Loss, energy) {
			t.Fatalf("loss %v, want %v of %v", got.Loss, want.Loss, energy)
		}
	})
	if _, err := solver(t, randomLayer(newRand(t, 12), 2, 4)).Sweep(bg, parse(t, "2:4")); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("error %v, want one that wraps ErrInvalid", err)
	}
}

func BenchmarkExact(b *testing.B) {
	for _, k := range []int{64, 576, 960} {
		for _, sparsity := range []float64{0.5, 0.8} {
			b.Run(fmt.Sprintf("K=%d/%.0f%%", k, 100*sparsity), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 0))
				s := solver(b, randomLayer(rng, 2, k))
				s.invert()
				o := Options{Pattern: parse(b, "uniform"), Keep: Keep(parse(b, "uniform"), 2, k, sparsity)}
				for b.Loop() {
					mustPrune(b, s, o)
				}
				b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N)/2, "ms/row")
			})
		}
	}
}

// Where finite weights grow beyond float32 while they make up for others, that is what the
// error says, and not that the model's weights are infinite.
func TestWeightsThatGrowBeyondFloatsAreNamed(t *testing.T) {
	l := randomLayer(newRand(t, 31), 3, 8)
	for i := range l.W {
		l.W[i] = 3e38
	}
	_, err := solver(t, l).Prune(bg, Options{Pattern: parse(t, "uniform"), Keep: 4})
	const want = "what calibration makes of its weights overflows float32 at ["
	if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), l.Name) {
		t.Errorf("error %v, want one with %q that names %s", err, want, l.Name)
	}
}
