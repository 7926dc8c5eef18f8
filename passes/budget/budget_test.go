package budget

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// drawn returns layers of random choices, which take and lose what they like.
func drawn(rng *rand.Rand, things int) [][]Choice {
	layers := make([][]Choice, 1+rng.IntN(5))
	for k := range layers {
		for range 1 + rng.IntN(5) {
			c := Choice{Loss: rng.ExpFloat64(), Uses: make([]float64, things)}
			for r := range c.Uses {
				c.Uses[r] = rng.Float64()
			}
			layers[k] = append(layers[k], c)
		}
	}
	return layers
}

// all calls see with every combination.
func all(layers [][]Choice, see func(pick []int)) {
	pick := make([]int, len(layers))
	var rec func(k int)
	rec = func(k int) {
		if k == len(layers) {
			see(pick)
			return
		}
		for i := range layers[k] {
			pick[k] = i
			rec(k + 1)
		}
	}
	rec(0)
}

// least is the least loss within limits, by trying all.
func least(layers [][]Choice, limits []float64) float64 {
	best := math.Inf(1)
	all(layers, func(pick []int) {
		if Fits(layers, pick, limits) {
			best = min(best, Loss(layers, pick))
		}
	})
	return best
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestSolveIsTheBestOfAllCombinations(t *testing.T) {
	rng := seeded(t)
	for range 500 {
		layers := drawn(rng, 1)
		limit := []float64{rng.Float64() * float64(len(layers))}
		pick, ok := Solve(layers, limit)
		// Rounding up takes up to a unit from each layer.
		tight := least(layers, []float64{limit[0] * (1 - float64(len(layers))/units)})
		switch {
		case !ok && !math.IsInf(tight, 1):
			t.Fatalf("%v within %v: nothing found, and %v is there", layers, limit, tight)
		case ok && !Fits(layers, pick, limit):
			t.Fatalf("%v within %v: %v takes %v", layers, limit, pick, Uses(layers, pick))
		case ok && Loss(layers, pick) > tight+1e-12:
			t.Fatalf("%v within %v: %v loses %v, and %v is there", layers, limit, pick, Loss(layers, pick), tight)
		}
	}
}

func TestSeveralLimitsHoldAndAreUsedWell(t *testing.T) {
	rng := seeded(t)
	worse, cases, missed := 0.0, 0, 0
	for range 500 {
		layers := drawn(rng, 2)
		limits := []float64{(0.2 + 0.6*rng.Float64()) * float64(len(layers)), (0.2 + 0.6*rng.Float64()) * float64(len(layers))}
		pick, ok := Solve(layers, limits)
		want := least(layers, limits)
		if ok && !Fits(layers, pick, limits) {
			t.Fatalf("%v within %v: %v takes %v", layers, limits, pick, Uses(layers, pick))
		}
		if !ok {
			if !math.IsInf(want, 1) {
				missed++
			}
			continue
		}
		worse, cases = worse+Loss(layers, pick)-want, cases+1
	}
	if cases < 200 || worse/float64(cases) > 0.05 || missed > cases/20 {
		t.Errorf("%d of %d are not found, the others lose %.3f more in the mean, want few and 0.05 of about 1 a layer", missed, missed+cases, worse/float64(cases))
	}
}

func TestFrontsAscend(t *testing.T) {
	rng := seeded(t)
	for range 200 {
		layers := drawn(rng, 1)
		front := Front(layers, 12)
		for j := 1; j < len(front); j++ {
			a, b := front[j-1], front[j]
			if Uses(layers, b)[0] >= Uses(layers, a)[0] || Loss(layers, b) < Loss(layers, a)-1e-12 {
				t.Fatalf("%v: %v after %v", layers, b, a)
			}
		}
		lossless, frugal := math.Inf(1), math.Inf(1)
		all(layers, func(pick []int) {
			lossless, frugal = min(lossless, Loss(layers, pick)), min(frugal, Uses(layers, pick)[0])
		})
		if first, last := front[0], front[len(front)-1]; Loss(layers, first) != lossless || Uses(layers, last)[0] != frugal {
			t.Fatalf("%v: %v and %v at the ends, want a loss of %v and a use of %v", layers, first, last, lossless, frugal)
		}
	}
}

// Points are as many as asked for, in order and with both ends, and steps between them are about equal.
func TestPointsAreSpread(t *testing.T) {
	rng := seeded(t)
	for range 200 {
		n, m := 2+rng.IntN(12), 2+rng.IntN(60)
		uses, losses := make([]float64, m), make([]float64, m)
		uses[0] = 10
		for i := 1; i < m; i++ {
			uses[i], losses[i] = uses[i-1]*(0.9+0.09*rng.Float64()), losses[i-1]+math.Exp(4*rng.NormFloat64()-6)
		}
		got := Spread(uses, losses, n)
		if len(got) != min(n, m) || got[0] != 0 || got[len(got)-1] != m-1 {
			t.Fatalf("%d of %d points: %v", n, m, got)
		}
		for i := 1; i < len(got); i++ {
			if got[i] <= got[i-1] {
				t.Fatalf("%d of %d points: %v", n, m, got)
			}
		}
	}
	// Of losses that grow with the square of a step, as many are taken below a quarter of the most as there are steps below its root.
	uses, losses := make([]float64, 101), make([]float64, 101)
	for i := range uses {
		uses[i], losses[i] = 1, float64(i*i)/1e4
	}
	if got := Spread(uses, losses, 11); !slices.Equal(got, []int{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}) {
		t.Errorf("%v", got)
	}
	// What is ruined is not spread out.
	uses, losses = []float64{4, 4, 4, 4, 4, 4}, []float64{0, 1, 4, 1e3, 1e6, math.MaxFloat32}
	if got := Spread(uses, losses, 3); got[1] != 1 {
		t.Errorf("%v, want the second point", got)
	}
}

// A loss that pairs of layers have together is not a sum over them.
func TestEvolutionFindsWhatSumsDoNotTell(t *testing.T) {
	rng := seeded(t)
	better, best := 0, 0
	for range 50 {
		layers := make([][]Choice, 6)
		for k := range layers {
			for i := range 4 {
				layers[k] = append(layers[k], Choice{Loss: float64(i*i) * (0.5 + rng.Float64()), Uses: []float64{float64(4 - i)}})
			}
		}
		pair := map[[4]int]float64{}
		whole := func(pick []int) float64 {
			sum := Loss(layers, pick)
			for k := range pick[1:] {
				at := [4]int{k, pick[k], k + 1, pick[k+1]}
				if _, ok := pair[at]; !ok {
					pair[at] = 4 * rng.Float64()
				}
				sum += pair[at]
			}
			return sum
		}
		limits := []float64{15}
		start, ok := Solve(layers, limits)
		if !ok {
			t.Fatal("no start")
		}
		measured := map[string]bool{}
		pick, loss, err := Evolve(context.Background(), layers, limits, start, Search{Generations: 60, Offspring: 8, Seed: rng.Uint64(),
			Measure: func(_ context.Context, pick []int) (float64, error) {
				if !Fits(layers, pick, limits) {
					t.Fatalf("%v does not fit", pick)
				}
				if measured[key(pick)] {
					t.Fatalf("%v is measured again", pick)
				}
				measured[key(pick)] = true
				return whole(pick), nil
			}})
		if err != nil || loss != whole(pick) || loss > whole(start) {
			t.Fatalf("%v loses %v, %v; %v at the start", pick, whole(pick), err, whole(start))
		}
		if loss < whole(start) {
			better++
		}
		want := math.Inf(1)
		all(layers, func(pick []int) {
			if Fits(layers, pick, limits) {
				want = min(want, whole(slices.Clone(pick)))
			}
		})
		if loss < want+0.3 {
			best++
		}
	}
	if better < 40 || best < 25 {
		t.Errorf("better than the start in %d of 50, near the best of all in %d", better, best)
	}
}

func TestEvolutionIsTheSameForASeed(t *testing.T) {
	layers := drawn(rand.New(rand.NewPCG(3, 0)), 1)
	for len(layers) < 4 {
		layers = append(layers, layers...)
	}
	limits := []float64{0.5 * float64(len(layers))}
	start, ok := Solve(layers, limits)
	if !ok {
		t.Fatal("no start")
	}
	run := func() []int {
		pick, _, err := Evolve(context.Background(), layers, limits, start, Search{Generations: 5, Offspring: 4, Seed: 1,
			Measure: func(_ context.Context, pick []int) (float64, error) { return -float64(pick[0]), nil }})
		if err != nil {
			t.Fatal(err)
		}
		return pick
	}
	if a, b := run(), run(); !slices.Equal(a, b) {
		t.Errorf("%v and %v", a, b)
	}
}
