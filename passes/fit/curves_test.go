package fit

import (
	"context"
	"math"
	"testing"

	"spc/ir/tensor"
	"spc/passes/prune"
)

// TestJointEffectsAreThoseOfTheModelWithOneLayerDense compares the allocation with one from
// models in which all layers but one are pruned, each made and run by itself.
func TestJointEffectsAreThoseOfTheModelWithOneLayerDense(t *testing.T) {
	g := model(t)
	o := options(t, "uniform", 0.6)
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	plan, err := prune.NewPlan(g, o.GraphOptions)
	if err != nil {
		t.Fatal(err)
	}
	f := &fitter{Context: context.Background(), Options: o, graph: g, plan: plan, exact: exactWork}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	if err := f.survey(true); err != nil {
		t.Fatal(err)
	}
	s, err := f.perLayer()
	if err != nil {
		t.Fatal(err)
	}
	if f.best, _, err = f.build("prune", s, f.Observer); err != nil {
		t.Fatal(err)
	}
	// without is the divergence with all layers pruned but one.
	without := func(dense int) float64 {
		c := g.Clone()
		for k, e := range f.best.edits {
			if k == dense {
				continue
			}
			for i, n := range g.Nodes {
				if l := f.layers[k]; n == l.Node {
					shape := l.Value.Const.Shape()
					c.Nodes[i].Inputs[l.Input].SetConst(l.View.Tensor(tensor.From(e.w, l.rows, l.cols), shape))
					if e.bias != nil {
						setBias(c.Nodes[i], e.bias)
					}
				}
			}
		}
		if err := c.Infer(); err != nil {
			t.Fatal(err)
		}
		return betweenOn(t, f.few(), g, c)
	}
	all := without(-1)
	want := f.along(func(k int) float64 {
		last := 0.0
		if lost := f.layers[k].lost(0.6); lost > 0 {
			last = math.Max(0, all-without(k)) / lost
		}
		return (f.layers[k].effect + last) / 2
	})
	got, err := f.joint()
	if err != nil {
		t.Fatal(err)
	}
	differs := false
	for k, l := range f.layers {
		if got[k] != want[k] {
			t.Errorf("%s: sparsity %v, want %v", l.Node.Name, got[k], want[k])
		}
		differs = differs || got[k] != s[k]
	}
	if !differs {
		t.Errorf("%v is what was there before", got)
	}
}
