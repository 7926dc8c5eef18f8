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
