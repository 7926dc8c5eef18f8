package spc

import (
	"math"
	"math/rand/v2"
	"testing"

	"spc/passes/budget"
	"spc/passes/fit"
)

// Of layers that may be in floats or in integers, with zeros or without, the programme finds what trying all of them does.
func TestMixedFormsAgainstAllCombinations(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := &sizing{b: BudgetOptions{Mixed: true, Budget: Budget{Speedup: 1.2 + rng.Float64()}}, base: &fit.Base{}, allInts: 3}
		s.costs = costs{dense: 1, restTime: 0.1 * rng.Float64(), byWeight: map[string][]taken{}}
		const layers = 5
		for range layers {
			l := fit.BaseLayer{Effect: rng.ExpFloat64(), Entries: []fit.Entry{{}, {Error: rng.Float64() / 2}, {Error: rng.Float64()}}}
			s.base.Layers = append(s.base.Layers, l)
		}
		for k := range layers {
			t := slot{layer: &s.base.Layers[k], ints: true, rounding: rng.ExpFloat64() / 4, forms: []form{{}, {entry: 1, shown: 1}, {entry: 2, shown: 2}, {ints: true, shown: 3}, {entry: 2, ints: true, shown: 4}}}
			if k == 0 {
				t.layer, t.forms = nil, []form{{}, {ints: true, shown: 3}}
			}
			s.slots = append(s.slots, t)
			times := []float64{0.2}
			for range len(t.forms) - 1 {
				times = append(times, 0.2*rng.Float64())
			}
			s.costs.time = append(s.costs.time, times)
		}
		items := s.price()
		pick, ok := budget.Solve(items, s.limit)
		least, combinations := math.Inf(1), 0
		var walk func(k int, loss, seconds float64)
		walk = func(k int, loss, seconds float64) {
			if k == layers {
				if combinations++; seconds <= 1/s.b.Speedup-layers*1e-4 { // in what the programme counts
					least = min(least, loss)
				}
				return
			}
			for i, f := range s.slots[k].forms {
				more := 0.0
				if k > 0 {
					more = s.base.Layers[k].Effect * s.base.Layers[k].Entries[f.entry].Error
				}
				if f.ints {
					more += s.slots[k].rounding
				}
				walk(k+1, loss+more, seconds+s.costs.time[k][i])
			}
		}
		walk(0, 0, s.costs.restTime)
		if combinations != 2*5*5*5*5 {
			t.Fatalf("%d combinations", combinations)
		}
		if math.IsInf(least, 1) {
			continue
		}
		if !ok {
			t.Errorf("seed %d: nothing is found, want a loss of %v", seed, least)
			continue
		}
		loss, seconds := 0.0, s.costs.restTime
		for k, i := range pick {
			loss, seconds = loss+items[k][i].Loss, seconds+s.costs.time[k][i]
		}
		if loss > least+1e-9 || seconds > 1/s.b.Speedup {
			t.Errorf("seed %d: a loss of %v in %v s, want %v in %v", seed, loss, seconds, least, 1/s.b.Speedup)
		}
	}
}

// What integers take beside layers is that among integers and among floats, in the mean, by what layers give.
func TestRimsOfIntegers(t *testing.T) {
	s := &sizing{b: BudgetOptions{Mixed: true}, allInts: 1, variants: []variant{{}, {ints: true}, {ints: true, part: 1}, {ints: true, part: 2}}}
	s.slots = []slot{{weight: "a", ints: true}, {weight: "b"}, {weight: "c", ints: true}}
	list := func(gives float64, seconds ...float64) (out []taken) {
		for _, x := range seconds {
			out = append(out, taken{Seconds: x, Gives: gives})
		}
		return out
	}
	lists := [][]taken{list(30, 4, 1, 1.5, 4), list(5, 2, 2, 2, 2), list(10, 3, 1, 3, 1)}
	s.costs.wholes = []float64{10, 5.4, 8.5, 8.5} // of which 1, 1.4, 2 and 1.5 are beside the layers
	for k, want := range []float64{(0.4*30/40 + 0.5 + 1) / 2, 0, (0.4*10/40 + 0.5) / 2} {
		if got := s.rims(lists)[k]; math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", s.slots[k].weight, got, want)
		}
	}
}
