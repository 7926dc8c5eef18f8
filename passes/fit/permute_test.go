package fit

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/permute"
	"spc/passes/prune"
	"spc/tests/graphtest"
)

// permuted prunes the model with its channels in an order that suits the pattern.
func permuted(t *testing.T, pattern string, change func(o *Options)) (*ir.Graph, *Result) {
	t.Helper()
	g, o := model(t), options(t, pattern, 0.5)
	o.Permute = permute.Auto
	if change != nil {
		change(&o)
	}
	r, err := Run(context.Background(), g, o)
	if err != nil {
		t.Fatal(err)
	}
	return g, r
}

// An order keeps more of what weights are ranked by, the report and the notes of layers say so, and the
// outputs are about as near the dense model's as without it, or nearer.
func TestPermutedLayersKeepMoreSaliency(t *testing.T) {
	long(t)
	for _, pattern := range []string{"2:4", "uniform-block:4x1", "block:2x1", "uniform-block:1x4"} {
		for _, m := range Methods() {
			g, r := permuted(t, pattern, func(o *Options) { o.Method, o.Aim = m, Weights })
			if r.Permuted == nil || len(r.Permuted.Groups) == 0 {
				t.Errorf("%s by %s: permuted %+v", pattern, m, r.Permuted)
				continue
			}
			before, after := 0.0, 0.0
			for _, l := range r.Permuted.Layers {
				before, after = before+l.Before, after+l.After
				note := r.Layers[l.At].Note
				if l.Why == "" && !strings.Contains(note, "channels permuted: keeps ") || !strings.Contains(note, l.Why) {
					t.Errorf("%s by %s: note %q of %+v", pattern, m, note, l)
				}
			}
			if after <= before {
				t.Errorf("%s by %s: %+v, want more than before", pattern, m, r.Permuted.Layers)
			}
			if r.Prunable.Sparsity() < 0.4 {
				t.Errorf("%s by %s: sparsity %v", pattern, m, r.Prunable.Sparsity())
			}
			plain, o := model(t), options(t, pattern, 0.5)
			o.Method, o.Aim = m, Weights
			if _, err := Run(context.Background(), plain, o); err != nil {
				t.Fatal(err)
			}
			if a, b := apart(t, g), apart(t, plain); a > 1.5*b {
				t.Errorf("%s by %s: divergence %g, %g without an order", pattern, m, a, b)
			}
		}
	}
}

// Allocations by curves see the permuted model, from a file as from samples, and with any number of workers.
func TestPermutedModelsAreTheSameFromAFile(t *testing.T) {
	for _, a := range []string{"normalised", "curves"} {
		var texts []string
		file := filepath.Join(t.TempDir(), "cache")
		for _, workers := range []int{1, 3} {
			for _, cache := range []string{"", file} {
				g, r := permuted(t, "uniform-block:4x1", func(o *Options) {
					o.Allocate, _ = ParseAllocation(a)
					o.Cache, o.Samples, o.Workers = cache, "random", workers
				})
				if len(r.Permuted.Groups) == 0 {
					t.Fatal("nothing was permuted")
				}
				texts = append(texts, ir.Print(g))
			}
		}
		for _, text := range texts[1:] {
			if text != texts[0] {
				t.Errorf("%s: the model depends on the file or on the workers", a)
			}
		}
	}
}

// What needs no samples to choose weights has orders, and allocations that see the model.
func TestMagnitudesArePermutedBeforeWhatSeesMore(t *testing.T) {
	for _, a := range []string{"normalised", "curves", "auto"} {
		_, r := permuted(t, "uniform-block:4x1", func(o *Options) {
			o.Method = Magnitude
			o.Allocate, _ = ParseAllocation(a)
		})
		if r.Permuted == nil || len(r.Permuted.Groups) == 0 || r.Prunable.Sparsity() < 0.45 {
			t.Errorf("%s: %+v, permuted %+v", a, r.Prunable, r.Permuted)
		}
	}
}

// Layers are put in order by patterns of their own; where the weights on both sides of some channels would gain, the larger ones decide.
func TestPatternsOfSingleLayersArePermuted(t *testing.T) {
	kept := func(targets ...string) map[string]float64 {
		t.Helper()
		_, r := permuted(t, "uniform", func(o *Options) {
			o.Sparsity, o.KeepNone = 0, true
			for _, text := range targets {
				target, err := prune.ParseLayerTarget(text)
				if err != nil {
					t.Fatal(err)
				}
				o.Targets = append(o.Targets, target)
			}
		})
		out := map[string]float64{}
		for _, l := range r.Permuted.Layers {
			out[l.Node] = l.After
			if l.After <= l.Before || l.Why != "" {
				t.Errorf("%q: %+v, want a gain", targets, l)
			}
		}
		return out
	}
	const wide, point, last = "wide=0.5,uniform-block:4x1", "point=0.25,uniform-block:2x1", "last=2:4"
	alone, other, small := kept(wide), kept(point), kept("wide=0.5", last)
	all := kept(wide, last, point)
	if len(alone) != 1 || len(other) != 1 || len(small) != 1 || len(all) != 3 {
		t.Errorf("%v, %v, %v and %v, want one each and three", alone, other, small, all)
	}
	if all["wide"] != alone["wide"] || all["point"] != other["point"] || all["last"] >= small["last"] {
		t.Errorf("%v, want what each keeps alone, %v and %v, but for last, %v", all, alone, other, small)
	}
	if none := kept("wide=0,uniform-block:4x1"); len(none) > 0 {
		t.Errorf("%v without zeros", none)
	}
}

// Other patterns and models that are not pruned stay as they are.
func TestOnlyPatternsThatGainArePermuted(t *testing.T) {
	for _, pattern := range []string{"uniform", "unstructured", "block:1x4+2:4", "channel"} {
		g, r := permuted(t, pattern, nil)
		plain := model(t)
		if _, err := Run(context.Background(), plain, options(t, pattern, 0.5)); err != nil {
			t.Fatal(err)
		}
		if r.Permuted != nil || ir.Print(g) != ir.Print(plain) {
			t.Errorf("%s: permuted %+v", pattern, r.Permuted)
		}
	}
	g, r := permuted(t, "uniform-block:4x1", func(o *Options) { o.Sparsity = 0 })
	graphtest.Same(t, model(t), g, 0)
	if r.Permuted != nil {
		t.Errorf("permuted %+v, want nothing without zeros", r.Permuted)
	}
}
