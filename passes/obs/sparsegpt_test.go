package obs

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/passes/prune"
)

func TestSomeRowsArePrunedAsAmongAll(t *testing.T) {
	const seed, rows, cols = 4, 9, 12
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l := Layer{Name: "l", Rows: rows, Cols: cols, W: make([]float32, rows*cols), H: make([]float64, cols*cols)}
	for i := range l.W {
		l.W[i] = float32(rng.NormFloat64())
	}
	for range 3 * cols {
		x := make([]float64, cols)
		for i := range x {
			x[i] = rng.NormFloat64()
			for j := range i + 1 {
				l.H[i*cols+j] += x[i] * x[j]
			}
		}
	}
	for i := range cols {
		for j := range i {
			l.H[j*cols+i] = l.H[i*cols+j]
		}
	}
	s, err := New(t.Context(), l, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Method{Exact, SparseGPT} {
		o := Options{Pattern: prune.Pattern{Kind: prune.Uniform}, Keep: 5, Method: m}
		all, err := s.Prune(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		picked := []int{1, 4, 8}
		some, err := s.Some(picked).Prune(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range picked {
			if !slices.Equal(some.W[i*cols:(i+1)*cols], all.W[r*cols:(r+1)*cols]) {
				t.Errorf("%v: row %d is %v alone, %v among all", m, r, some.W[i*cols:(i+1)*cols], all.W[r*cols:(r+1)*cols])
			}
		}
	}
}

// The units that go are those that come first when all are sorted by their scores, the
// later before the earlier among equals.
func TestUnitsThatGoHaveTheSmallestScores(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var w ranker
	for range 3000 {
		n := 1 + rng.IntN(60)
		g := &picker{units: units{r: 1, c: 1, groups: 1, each: n}, edges: []float64{rng.Float64() * float64(rng.IntN(9))}}
		values := 1 + rng.IntN(2*n) // few: many are equal
		for range n {
			s := float64(rng.IntN(values)) / 2
			if rng.IntN(8) == 0 {
				s = -1
			}
			g.scores = append(g.scores, s)
		}
		g.cut = make([]bool, n)
		u0 := rng.IntN(n)
		u1 := u0 + 1 + rng.IntN(n-u0)
		drop := rng.IntN(n+4) - 2
		order := make([]int, 0, n)
		for i := u0; i < n; i++ {
			order = append(order, i)
		}
		slices.SortFunc(order, func(a, b int) int {
			if g.scores[a] != g.scores[b] {
				if g.scores[a] < g.scores[b] {
					return -1
				}
				return 1
			}
			return b - a
		})
		want := make([]bool, n)
		for i, u := range order {
			if u < u1 {
				want[u] = i < drop || g.scores[u] < 0
			}
		}
		w.cutFirst(g, 0, u0, u1, drop)
		if !slices.Equal(g.cut, want) {
			t.Fatalf("scores %v from %d, %d to go: %v go up to %d, want %v", g.scores, u0, drop, g.cut, u1, want)
		}
	}
}
