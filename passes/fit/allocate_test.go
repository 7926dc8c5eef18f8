package fit

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSpreadIsTheBestOfAllCombinations(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		layers := 1 + rng.IntN(4)
		sizes := make([]int, layers)
		curves := make([][]point, layers)
		total := 0
		for l := range curves {
			sizes[l] = 10 * (1 + rng.IntN(20))
			total += sizes[l]
			cost := 0.0
			for j := range 6 {
				curves[l] = append(curves[l], point{float64(j) / 6, cost})
				cost += rng.Float64()
			}
		}
		want := 0.8 * rng.Float64()
		least := math.Inf(1)
		var visit func(l int, zeros, cost float64)
		visit = func(l int, zeros, cost float64) {
			if l == layers {
				if zeros >= want*float64(total) {
					least = min(least, cost)
				}
				return
			}
			for _, p := range curves[l] {
				visit(l+1, zeros+p.sparsity*float64(sizes[l]), cost+p.cost)
			}
		}
		visit(0, 0, 0)
		zeros, cost := 0.0, 0.0
		for l, s := range spread(sizes, curves, want) {
			zeros += s * float64(sizes[l])
			for _, p := range curves[l] {
				if p.sparsity == s {
					cost += p.cost
				}
			}
		}
		// Zeros are counted in whole buckets, here of one weight.
		if slack := float64(layers); zeros < want*float64(total)-slack || cost > least+1e-12 {
			t.Errorf("%v of %v: %v zeros at %v, want %v at %v", sizes, curves, zeros, cost, want*float64(total), least)
		}
	}
}

func TestSpreadTakesWhatItCanGet(t *testing.T) {
	got := spread([]int{100, 100}, [][]point{{{0, 0}, {0.5, 1}}, {{0, 0}}}, 0.9)
	if got[0] != 0.5 || got[1] != 0 {
		t.Errorf("%v, want all that the curves offer", got)
	}
}
