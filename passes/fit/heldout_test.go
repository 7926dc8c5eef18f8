package fit

import (
	"context"
	"math"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/recon"
)

// What judges training has no part in what is solved for before it: where that hardly moves weights, they are those of the other samples alone.
func TestWhatJudgesTrainingIsNotLearntFrom(t *testing.T) {
	const runs = 17
	weights := func(change func(o *Options)) *ir.Graph {
		t.Helper()
		o := options(t, "uniform", 0.5)
		o.Observer = observer(runs)
		change(&o)
		g := model(t)
		if _, err := Run(context.Background(), g, o); err != nil {
			t.Fatal(err)
		}
		return g
	}
	same := func(a, b *ir.Graph) bool {
		equal := true
		for i, n := range a.Nodes {
			for k, v := range n.Inputs {
				if v.Const == nil || v.Type.DType != tensor.F32 {
					continue
				}
				for j, x := range v.Const.F32s() {
					if y := b.Nodes[i].Inputs[k].Const.F32s()[j]; math.Abs(float64(x-y)) > 1e-6*max(1, math.Abs(float64(y))) {
						equal = false
					}
				}
			}
		}
		return equal
	}
	whole, learnt := weights(func(*Options) {}), weights(func(o *Options) { o.Observer = unjudged(o.Observer) })
	if same(whole, learnt) {
		t.Fatal("two samples more change nothing, so that this shows nothing")
	}
	hardly := func(o *Options) { o.Reconstruct = recon.Recipe{"blocks": 1, "rate": 1e-9, "gains": 0, "model": 0} }
	if !same(weights(hardly), learnt) {
		t.Error("weights are not those of the samples that training learns from")
	}
	if f := (&fitter{Options: Options{Refine: Snows}}); !f.trains() {
		t.Error("snows train nothing")
	}
}
