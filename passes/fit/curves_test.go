package fit

import (
	"context"
	"math"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/prune"
)

// opened is a fitter that has seen the layers' curves.
func opened(t *testing.T, g *ir.Graph, o Options) *fitter {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	plan, err := prune.NewPlan(g, o.GraphOptions)
	if err != nil {
		t.Fatal(err)
	}
	f := &fitter{ctx: context.Background(), Options: o, graph: g, plan: plan, exact: exactWork}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	if err := f.survey("survey", true); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestJointEffectsAreThoseOfTheModelWithOneLayerDense compares the allocation with one from
// models in which all layers but one are pruned, each made and run by itself.
func TestJointEffectsAreThoseOfTheModelWithOneLayerDense(t *testing.T) {
	g := model(t)
	f := opened(t, g, options(t, "uniform", 0.6))
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
	effects, err := f.effectsTogether()
	if err != nil {
		t.Fatal(err)
	}
	for k, l := range f.layers {
		lost := l.lost(0.6)
		if want := (l.effect + math.Max(0, all-without(k))/lost) / 2; !(lost > 0) || math.Abs(effects[k]-want) > 1e-9*want {
			t.Errorf("%s: effect %v, want %v", l.Node.Name, effects[k], want)
		}
	}
	want := f.along(effects)
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

func TestLayersThatAreSparseAlreadyShowTheirEffect(t *testing.T) {
	g := model(t)
	o := options(t, "unstructured", 0)
	glob, err := prune.ParseGlob("wide")
	if err != nil {
		t.Fatal(err)
	}
	o.Targets = []prune.LayerTarget{{Glob: glob, Sparsity: 0.6}}
	if _, err := Run(context.Background(), g, o); err != nil {
		t.Fatal(err)
	}
	for _, l := range opened(t, g, options(t, "unstructured", 0.5)).layers {
		if l.lost(0.5) > 0 == (l.Node.Name == "wide") || !(l.effect > 0) {
			t.Errorf("%s: %v lost at 50%%, effect %v", l.Node.Name, l.lost(0.5), l.effect)
		}
	}
}

func TestHighSparsitiesAreReachedByCurves(t *testing.T) {
	for _, a := range []prune.Allocation{Curves, Joint} {
		o := options(t, "unstructured", 0.975)
		o.Allocate = a
		if _, r := fitted(t, o); math.Abs(r.Prunable.Sparsity()-0.975) > 0.01 {
			t.Errorf("%s: %.3f zeros, want 0.975", a, r.Prunable.Sparsity())
		}
	}
}

// Layers that are pruned have at least the zeros that N:M leaves within blocks, whatever spreads them, and others none: curves
// have no points between.
func TestLayersHaveNoFewerZerosThanBlocksHaveWithin(t *testing.T) {
	long(t)
	for _, pattern := range []string{"block:2x4+2:4", "uniform-block:2x4+2:4"} {
		for _, a := range []prune.Allocation{prune.PerLayer, prune.Global, Normalised, Curves, Joint} {
			o := options(t, pattern, 0.7)
			o.Allocate = a
			g := model(t)
			f := opened(t, g, o)
			for _, l := range f.layers {
				if len(l.sweep) < 2 || l.sweep[0] != (point{}) || l.sweep[1].sparsity != 0.5 {
					t.Errorf("%s: the curve of %s begins with %v", pattern, l.Node.Name, l.sweep[:min(2, len(l.sweep))])
				}
			}
			s, err := find(a).allocate(f)
			if err != nil {
				t.Fatal(err)
			}
			for k, l := range f.layers {
				if tail := 1.0 / float64(l.cols); s[k] != 0 && s[k] < 0.5-tail {
					t.Errorf("%s by %s: %s is to have %.3f zeros", pattern, a, l.Node.Name, s[k])
				}
			}
			if _, r := fitted(t, o); math.Abs(r.Prunable.Sparsity()-0.7) > 0.03 {
				t.Errorf("%s by %s: %.3f zeros, want 0.7", pattern, a, r.Prunable.Sparsity())
			}
		}
	}
}

func TestAllocationsThatFallShortAreTheLastChoice(t *testing.T) {
	o := options(t, "unstructured", 0.997) // beyond the grid
	o.Allocate = Auto
	_, r := fitted(t, o)
	for i, trial := range r.Trials {
		switch by := trial.Allocate; {
		case by == "layer" && trial.Short, (by == "curves" || by == "joint") && !trial.Short, i > 0 && r.Trials[i-1].Short && !trial.Short:
			t.Errorf("trials %+v", r.Trials)
		}
	}
}

func TestEffectsAreSeenOnFewRunsWhereLayersAreLarge(t *testing.T) {
	f := opened(t, model(t), options(t, "uniform", 0.5)) // 12 runs
	for _, c := range []struct {
		positions float64
		want      int
	}{{1, 12}, {1e15, leastRuns}} {
		for _, l := range f.layers {
			l.positions = c.positions
		}
		n := 0
		for _, err := range f.few().Inputs(f.ctx, f.graph) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		if n != c.want {
			t.Errorf("%d runs, want %d", n, c.want)
		}
	}
}

func TestOutputsMayBeInfinite(t *testing.T) {
	// A mask on the scores, as exporters of language models write.
	g := drawn(t, strings.Replace(network, `  return %y
`, `  %mask: f32[5] = const {0, -Inf, 0, 0, 0}
  %z: f32[n,5] = Add "masked" (%y, %mask)
  return %z
`, 1), shapes)
	o := options(t, "uniform", 0.5)
	o.Allocate = Auto
	r, err := Run(context.Background(), g, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range r.Trials {
		if !(trial.Divergence > 0) || math.IsInf(trial.Divergence, 0) {
			t.Errorf("trials %+v", r.Trials)
		}
	}
}
