package obs

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"spc/passes/prune"
)

// damps is the loss with the damping term.
func damps(t testing.TB, s *Solver, v []float32) float64 {
	t.Helper()
	rows, err := s.damped(bg, v)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, x := range rows {
		sum += x
	}
	return sum
}

// byMagnitude is what prune.Select keeps, and the weights that are left.
func byMagnitude(t testing.TB, s *Solver, p prune.Pattern, sparsity float64) *Result {
	t.Helper()
	r, err := prune.Select([]prune.Layer{{Name: "l", Rows: s.Rows, Cols: s.Cols, Weights: s.W}}, prune.Options{Pattern: p, Sparsity: sparsity})
	if err != nil {
		t.Fatal(err)
	}
	w := slices.Clone(s.W)
	r.Layers[0].Mask.Apply(w, false)
	return &Result{W: w, Mask: r.Layers[0].Mask}
}

// TestSolversLowerTheLoss compares the damped losses of all solvers on layers with correlated
// inputs, before and after exchanges. In each layer the best weights on a mask are not worse
// than others on it, ALPS and exact OBS have them, and exchanges raise nothing. Over the layers
// of a pattern SparseGPT loses less than magnitude, ALPS and exact OBS less than SparseGPT and
// magnitude with the best weights on their masks. Between these two, and between the two
// with the best weights, the order depends on the layer. Exchanges bring all near each other.
func TestSolversLowerTheLoss(t *testing.T) {
	for _, text := range allPatterns {
		t.Run(text, func(t *testing.T) {
			rng := newRand(t, 23)
			p := parse(t, text)
			var sums []float64
			var names []string
			for range 3 {
				for _, sparsity := range []float64{0.5, 0.7} {
					s := solver(t, randomLayer(rng, 12, 60))
					keep := Keep(p, s.Rows, s.Cols, sparsity)
					if p.Kind == prune.NM {
						sparsity = 0
					}
					runs := []*Result{byMagnitude(t, s, p, sparsity)}
					names = []string{"magnitude"}
					for _, m := range []Method{SparseGPT, ALPS, Exact} {
						runs, names = append(runs, mustPrune(t, s, Options{Pattern: p, Keep: keep, Method: m})), append(names, m.String())
					}
					if sums == nil {
						sums = make([]float64, 3*len(runs))
					}
					energy := damps(t, s, make([]float32, len(s.W)))
					for i, r := range runs {
						solved, err := s.Solve(bg, r.Mask)
						if err != nil {
							t.Fatal(err)
						}
						swapped, _, err := s.Swap(bg, p, r.Mask, 3)
						if err != nil {
							t.Fatal(err)
						}
						a, b, c := damps(t, s, r.W), damps(t, s, solved.W), damps(t, s, swapped.W)
						if b > a*(1+1e-6) || c > b {
							t.Errorf("%s: loss %v, solved %v, after exchanges %v, want none to rise", names[i], a, b, c)
						}
						if m := names[i]; (m == "exact" || m == "alps") && !near(a, b, b) {
							t.Errorf("%s: loss %v, of the best weights on its mask %v", m, a, b)
						}
						for j, x := range []float64{a, b, c} {
							sums[3*i+j] += x / energy / 6
						}
					}
				}
			}
			var line strings.Builder
			for i, name := range names {
				fmt.Fprintf(&line, " %s %.4f, solved %.4f, swapped %.4f;", name, sums[3*i], sums[3*i+1], sums[3*i+2])
			}
			magnitude, gpt, alps, exact := sums[0:3], sums[3:6], sums[6:9], sums[9:12]
			simple := min(magnitude[1], gpt[1])
			if !(gpt[0] < magnitude[0] && alps[0] < simple && exact[0] < simple) {
				t.Errorf("losses:%s want SparseGPT below magnitude, and ALPS and exact OBS below both with the best weights", line.String())
			}
			after := []float64{magnitude[2], gpt[2], alps[2], exact[2]}
			if slices.Max(after) > 1.15*slices.Min(after) {
				t.Errorf("losses after exchanges %v, want them near each other", after)
			}
			t.Logf("of the energy:%s", line.String())
		})
	}
}

// TestConjugateGradientsFindTheBestWeights compares with elimination.
func TestConjugateGradientsFindTheBestWeights(t *testing.T) {
	rng := newRand(t, 24)
	for _, shape := range shapes {
		for _, density := range []float64{0, 0.3, 1} {
			l := randomLayer(rng, shape[0], shape[1])
			dropZeros(rng, l.W)
			s := solver(t, l)
			m := prune.NewMask(l.Rows, l.Cols)
			start := make([]float64, len(l.W))
			for r := range l.Rows {
				for c := range l.Cols {
					start[r*l.Cols+c] = rng.NormFloat64()
					if rng.Float64() < density {
						m.Set(r, c)
					}
				}
			}
			got, err := s.Descend(bg, m, start, 1e-10, 10*l.Cols+10)
			if err != nil {
				t.Fatal(err)
			}
			checkLeastSquares(t, s, got)
			for i, w := range l.W {
				if want := w != 0 && m.Keeps(i/l.Cols, i%l.Cols); got.Mask.Keeps(i/l.Cols, i%l.Cols) != want || !want && got.W[i] != 0 {
					t.Fatalf("weight %d is %v, on the mask %v", i, got.W[i], want)
				}
			}
			none, err := s.Descend(bg, m, start, 1e-10, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range start {
				if got.Mask.Keeps(i/l.Cols, i%l.Cols) && !near(float64(none.W[i]), x, math.Abs(x)) {
					t.Fatalf("without a step weight %d is %v, want %v", i, none.W[i], x)
				}
			}
		}
	}
}

// TestNoMaskIsBetterThanTheBest tries all masks of a row, or a row of blocks, and bounds all
// solvers and exchanges from below; a mask that exchanges leave alone is close to the best.
func TestNoMaskIsBetterThanTheBest(t *testing.T) {
	rng := newRand(t, 25)
	for _, text := range []string{"uniform", "unstructured", "2:4", "1:4", "uniform-block:2x2", "block:2x1", "uniform-block:4x1"} {
		p := parse(t, text)
		worst, best := 0.0, 0
		const tries = 12
		for range tries {
			u := newUnits(1, 8, p)
			rows, cols := u.r, 8
			s := solver(t, randomLayer(rng, rows, cols))
			u = newUnits(rows, cols, p)
			keep := Keep(p, rows, cols, 0.5)
			stay := u.each / 2
			if p.Kind == prune.NM {
				stay = 2 * p.N
			}
			least := math.Inf(1)
			for set := range 1 << u.each {
				if bits.OnesCount(uint(set)) != stay || p.Kind == prune.NM && bits.OnesCount(uint(set&15)) != p.N {
					continue
				}
				least = min(least, groupLoss(s, &u, 0, func(_, c int) bool { return set>>(c/u.c)&1 != 0 }))
			}
			for _, m := range allMethods {
				r := mustPrune(t, s, Options{Pattern: p, Keep: keep, Method: m})
				swapped, _, err := s.Swap(bg, p, r.Mask, 10)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range [][]float32{r.W, swapped.W} {
					if got := damps(t, s, v); got < least*(1-1e-5) {
						t.Fatalf("%s %s: loss %v, the least of all masks is %v", text, m, got, least)
					}
				}
				if m == Exact {
					after := damps(t, s, swapped.W) / least
					worst = max(worst, after)
					if after < 1+1e-5 {
						best++
					}
				}
			}
		}
		t.Logf("%s: after exchanges %d of %d masks of exact OBS are the best, and the worst loses %.3f times as much", text, best, tries, worst)
		if best < tries/2 {
			t.Errorf("%s: %d of %d masks are the best after exchanges, want half", text, best, tries)
		}
	}
}
