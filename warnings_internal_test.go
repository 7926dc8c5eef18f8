package spc

import (
	"strings"
	"testing"

	"spc/passes/calib"
	"spc/passes/fit"
	"spc/passes/prune"
)

func TestRuinousLossesAreWarnings(t *testing.T) {
	for _, c := range []struct {
		d    calib.Distance
		want string // empty for none
	}{
		{calib.Distance{Output: "y", Classes: true, Divergence: ruinousNats, Others: 0.2}, ""},
		{calib.Distance{Output: "y", Classes: true, Divergence: 1.234, Others: 0.456}, "pruning ruins output y: its classes diverge by 1.2 nats from the dense model's on 34 runs of samples, of which more than 0.25 is much, and 46% of the first are others"},
		{calib.Distance{Output: "z", Divergence: ruinousShare}, ""},
		{calib.Distance{Output: "z", Divergence: 0.75}, "pruning ruins output z: its squared error is 0.75 of its variance on 34 runs of samples, of which more than 0.5 is much"},
		{calib.Distance{Output: "z", Broken: true}, "pruning ruins output z: it is not finite on 34 runs of samples"},
	} {
		r := &Report{Prune: &fit.Result{GraphResult: &prune.GraphResult{}, Distances: []calib.Distance{c.d}, Judged: 34}}
		r.Options.Format = "auto"
		if have := strings.Join(r.Warnings(), "\n"); have != c.want {
			t.Errorf("%+v: warnings %q, want %q", c.d, have, c.want)
		}
	}
}

// Samples that pruning did not see judge it where there are any, as allocations that were compared and reconstruction hold some out.
func TestRuinousLossesOnSamplesHeldOutAreWarnings(t *testing.T) {
	classes, values := calib.Distance{Output: "y", Classes: true, Divergence: 0.19}, calib.Distance{Output: "z", Divergence: 0.1}
	trials := []fit.Trial{{Allocate: "curves", Divergence: 0.712}, {Allocate: "layer", Divergence: 0.8}}
	for _, c := range []struct {
		distances []calib.Distance
		trials    []fit.Trial
		rebuilt   [2]float64
		want      string // empty for none
	}{
		{[]calib.Distance{classes}, trials, [2]float64{}, "pruning ruins the model: its classes diverge by 0.71 nats from the dense model's on samples held out, of which more than 0.25 is much"},
		{[]calib.Distance{classes}, trials[:1], [2]float64{}, ""},
		{[]calib.Distance{classes}, trials, [2]float64{0.7, 0.2}, ""},
		{[]calib.Distance{classes}, nil, [2]float64{0.7, 0.3}, "pruning ruins the model: its classes diverge by 0.3 nats from the dense model's on samples held out, of which more than 0.25 is much"},
		{[]calib.Distance{values}, trials, [2]float64{}, "pruning ruins the model: its squared error is 0.71 of its variance on samples held out, of which more than 0.5 is much"},
		{[]calib.Distance{values}, nil, [2]float64{0.7, 0.3}, ""},
		{[]calib.Distance{classes, values}, trials, [2]float64{}, "pruning ruins the model: an output diverges by 0.71 nats or variances on samples held out, of which more than 0.5 is much"},
	} {
		r := &Report{Prune: &fit.Result{GraphResult: &prune.GraphResult{}, Distances: c.distances, Judged: 34, Trials: c.trials, Rebuilt: c.rebuilt}}
		r.Options.Format = "auto"
		if have := strings.Join(r.Warnings(), "\n"); have != c.want {
			t.Errorf("%+v: warnings %q, want %q", c, have, c.want)
		}
	}
}

func TestRuinousBudgetsAreWarnings(t *testing.T) {
	most := 20.0
	for _, c := range []struct {
		judge, unit string
		points      float64
		most        *float64
		want        string // empty for none
	}{
		{"divergence", calib.Nats, 25, nil, ""},
		{"divergence", calib.Nats, 32.46, nil, "the budget ruins the model: its classes diverge by 0.32 nats from the dense model's on 16 runs of samples held out, of which more than 0.25 is much"},
		{"divergence", calib.Variances, 32.46, nil, ""},
		{"divergence", calib.Variances, 60, &most, "the budget ruins the model: its squared error is 0.6 of its variance on 16 runs of samples held out, of which more than 0.5 is much"},
		{"samples", calib.Nats, 10, nil, ""},
		{"samples", calib.Nats, 12.34, nil, "the budget ruins the model: it loses 12.3 points on 16 samples, of which more than 10 is much"},
		{"samples", calib.Nats, 12.34, &most, ""},
	} {
		p := BudgetPoint{Unit: c.unit, Drop: &Drop{Points: c.points, N: 16}}
		r := &Report{Budget: &BudgetReport{Budget: Budget{MaxDrop: c.most}, Judge: c.judge, Tried: []BudgetPoint{{}, p}}, Prune: &fit.Result{GraphResult: &prune.GraphResult{}, Rebuilt: [2]float64{1, 1}}}
		r.Options.Format = "auto"
		if have := strings.Join(r.Warnings(), "\n"); have != c.want {
			t.Errorf("%+v: warnings %q, want %q", c, have, c.want)
		}
	}
}

func TestDroppedMasksAreAWarning(t *testing.T) {
	r := &Report{Prune: &fit.Result{GraphResult: &prune.GraphResult{}, Method: "gates", Dropped: "the outputs' divergence of 0.44 would be 0.58"}}
	r.Options.Format = "auto"
	if have, want := strings.Join(r.Warnings(), "\n"), "pruned by obs, as gates brought the outputs no nearer on samples held out: the outputs' divergence of 0.44 would be 0.58"; have != want {
		t.Errorf("warnings %q, want %q", have, want)
	}
}
