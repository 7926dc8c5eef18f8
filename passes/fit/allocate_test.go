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

func TestCurvesSampleWholeGroups(t *testing.T) {
	for _, c := range []struct{ rows, cols, group, want int }{
		{512, 4608, 1, 64}, {512, 4608, 6, 66}, {1024, 1024, 8, 288}, {64, 4608, 1, 0}, {65, 4608, 4, 0}, {256, 64, 1, 0},
	} {
		rows := curveSample(c.rows, c.cols, c.group)
		if len(rows) != c.want {
			t.Errorf("%+v: %d rows", c, len(rows))
		}
		for i, r := range rows {
			if r >= c.rows || r%c.group != i%c.group || i > 0 && r <= rows[i-1] {
				t.Errorf("%+v: %v", c, rows)
				break
			}
		}
		if n := len(rows); n > 0 && rows[n-1] < c.rows*3/4 {
			t.Errorf("%+v: the last row is %d", c, rows[n-1])
		}
	}
}

func TestTrialsLeaveModelsThatCostMuchToSparseGPT(t *testing.T) {
	f := &fitter{Options: Options{Method: OBS}}
	for _, cols := range []int{100, 1000, 600} { // 512 rows: 8.5e7, 8.5e10, too much, and 1.8e10
		f.layers = append(f.layers, &layer{rows: 512, cols: cols})
	}
	for _, c := range []struct {
		trials int
		want   float64
	}{{1, exactWork}, {30, exactWork}, {40, 0}} {
		if got := f.trialBound(c.trials); got != c.want {
			t.Errorf("%d trials: %g, want %g", c.trials, got, c.want)
		}
	}
}

func TestTrialsOfLargeModelsSeeFewerRuns(t *testing.T) {
	f := &fitter{samples: 40, layers: []*layer{{rows: 1000, cols: 1000, positions: 40 * 1000}}} // 1e9 a run
	if w := f.runWork(); w != 1e9 {
		t.Errorf("%g multiplications a run, want 1e9", w)
	}
	for _, runs := range []int{40, 16, 7} {
		seen, held := 0, 0
		for i := range f.samples {
			at, ok := f.spread(i, runs)
			if !ok {
				continue
			}
			if at != seen {
				t.Errorf("%d runs: run %d is number %d, want %d", runs, i, at, seen)
			}
			if seen++; heldOut(at) {
				held++
			}
		}
		if seen != runs || held != runs/4 {
			t.Errorf("%d of %d runs are seen, %d held out", seen, runs, held)
		}
	}
}
