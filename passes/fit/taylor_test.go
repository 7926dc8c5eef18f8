package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/prune"
	"spc/passes/recon"
	"spc/tests/graphtest"
)

// One threshold over the importance w^2 sum (dL/dw)^2 of all layers' weights parts those
// that stay from those that go.
func TestTaylorKeepsTheMostImportantWeightsOfAllLayers(t *testing.T) {
	o := options(t, "unstructured", 0.6)
	o.Method, o.Allocate, o.Uncorrected = Taylor, prune.Global, true
	g, r := fitted(t, o)
	dense := model(t)
	least, most, zeros := math.Inf(1), 0.0, map[string]bool{}
	for i, u := range dense.WeightUses() {
		if !r.Layers[i].Prunable {
			continue
		}
		squares, err := recon.Squares(context.Background(), o.Observer, dense, []*ir.Value{u.Value}, recon.SquareOptions{Seed: slopesSeed})
		if err != nil {
			t.Fatal(err)
		}
		w, now := u.Value.Const.F32s(), g.WeightUses()[i].Value.Const.F32s()
		for k, s := range squares[0] {
			importance := float64(w[k]) * float64(w[k]) * s
			switch now[k] {
			case 0:
				most = max(most, importance)
				zeros[u.Value.Name] = true
			case w[k]:
				if importance > 0 { // else a row kept it since it must keep something
					least = min(least, importance)
				}
			default:
				t.Fatalf("element %d of %s was %v and is %v", k, u.Value.Name, w[k], now[k])
			}
		}
	}
	if most > least*(1+1e-5) || len(zeros) < 2 {
		t.Errorf("a weight of importance %v went and one of %v stayed; zeros are in %v", most, least, zeros)
	}
	if got := r.Prunable.Sparsity(); math.Abs(got-0.6) > 0.01 {
		t.Errorf("%.3f zeros, want 0.6", got)
	}
}

func TestTaylorIsNearerTheDenseModelThanChanceAndItsInverse(t *testing.T) {
	t.Logf("seed %d", seed)
	for _, pattern := range []string{"uniform", "unstructured", "block:2x2"} {
		o := options(t, pattern, 0.5)
		o.Method, o.Uncorrected = Taylor, true
		of := func(change func(l *layer)) float64 {
			g := model(t)
			p, err := prune.NewPlan(g, o.GraphOptions)
			if err != nil {
				t.Fatal(err)
			}
			f := &fitter{ctx: context.Background(), Options: o, graph: g, plan: p}
			if err := errors.Join(f.open(), f.slopes()); err != nil {
				t.Fatal(err)
			}
			for _, l := range f.layers {
				change(l)
			}
			sparsities, err := f.perLayer()
			if err != nil {
				t.Fatal(err)
			}
			b, front, err := f.build("", sparsities, o.Observer)
			if err != nil {
				t.Fatal(err)
			}
			d, err := f.divergence(front, b.twins)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		taylor := of(func(*layer) {})
		chance := of(func(l *layer) {
			for i, w := range l.weights {
				l.slope[i] = rng.Float64() / math.Abs(float64(w))
			}
		})
		inverse := of(func(l *layer) {
			for i, w := range l.weights {
				l.slope[i] = 1 / (l.slope[i] * float64(w) * float64(w))
			}
		})
		t.Logf("%s: taylor %.4g, chance %.4g, inverse %.4g", pattern, taylor, chance, inverse)
		if !(taylor < chance && chance < inverse) {
			t.Errorf("%s: taylor %.4g, chance %.4g, inverse %.4g, want them to rise", pattern, taylor, chance, inverse)
		}
	}
}

func TestTaylorWorksWithEveryAllocation(t *testing.T) {
	long(t)
	for _, pattern := range []string{"uniform", "channel"} {
		for _, a := range Allocations() {
			if pattern == "channel" && a != Auto && find(a).curves {
				continue
			}
			var first string
			for _, workers := range []int{1, 3} {
				o := options(t, pattern, 0.5)
				o.Method, o.Allocate, o.Workers = Taylor, a, workers
				if pattern == "uniform" {
					o.Aim = Outputs
				}
				g, r := fitted(t, o)
				if r.Method != "taylor" || r.Samples != 12 || math.Abs(r.Prunable.Sparsity()-0.5) > 0.2 {
					t.Errorf("%s, %s: method %s, %d samples, %v", pattern, a, r.Method, r.Samples, r.Prunable)
				}
				if text := ir.Print(g); first == "" {
					first = text
				} else if text != first {
					t.Errorf("%s, %s: three workers give other weights than one", pattern, a)
				}
			}
		}
	}
}

// deadEnd has a second convolution that the outputs do not depend on.
func deadEnd(t *testing.T) *ir.Graph {
	return graphtest.Parse(t, `graph "g"(%x: f32[2,3,6,6]) {
  %w1: f32[3,4,2,2] = const {`+numbers(48)+`}
  %w3: f32[4,4,1,1] = const {`+numbers(16)+`}
  %low: f32[4] = const {-1000.0, -1000.0, -1000.0, -1000.0}
  %a: f32[2,4,7,7] = ConvTranspose "a" (%x, %w1)
  %c: f32[2,4,7,7] = Conv "dead" (%a, %w3, %low)
  %d: f32[2,4,7,7] = Relu "d" (%c)
  return %a, %d
}
`)
}

// Weights that the outputs do not depend on are pruned by magnitude, which is said.
func TestTaylorSaysWhatLayersItCannotJudge(t *testing.T) {
	t.Logf("seed %d", seed)
	o := options(t, "uniform", 0.5)
	o.Method, o.KeepNone = Taylor, true
	r, err := Run(context.Background(), deadEnd(t), o)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"taylor; ", "magnitude, as the outputs do not depend on it; "} {
		if l := r.Layers[i]; !strings.HasPrefix(l.How, want) || l.Sparsity != 0.5 {
			t.Errorf("%s has %.2f zeros, %q, want %q", l.Node, l.Sparsity, l.How, want)
		}
	}
}

// One threshold drops first what is nothing already.
func TestOneThresholdMayLeaveALayerAlmostEmpty(t *testing.T) {
	t.Logf("seed %d", seed)
	for _, m := range methods {
		o := options(t, "unstructured", 0.5)
		o.Method, o.KeepNone, o.Allocate = m.Method, true, prune.Global
		g := deadEnd(t)
		clear(g.WeightUses()[1].Value.Const.F32s())
		r, err := Run(context.Background(), g, o)
		if err != nil {
			t.Fatalf("%s: %v", m.Method, err)
		}
		if math.Abs(r.Prunable.Sparsity()-0.5) > 0.05 {
			t.Errorf("%s: %v", m.Method, r.Prunable)
		}
		if l := r.Layers[1]; l.Sparsity < 0.9 {
			t.Errorf("%s: %s has %.2f zeros", m.Method, l.Node, l.Sparsity)
		}
	}
}

// numbers is a list of random numbers.
func numbers(n int) string {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	var out []string
	for range n {
		out = append(out, fmt.Sprintf("%.6f", rng.NormFloat64()))
	}
	return strings.Join(out, ", ")
}

func TestTaylorNamesAnOperatorWithoutGradient(t *testing.T) {
	g := model(t)
	i := slices.IndexFunc(g.Nodes, func(n *ir.Node) bool { return n.Name == "gr" })
	round := graphtest.Parse(t, "graph \"r\"(%x: f32[2]) {\n  %y: f32[2] = Round \"y\" (%x)\n  return %y\n}\n")
	g.Nodes[i].Op = round.Nodes[0].Op
	o := options(t, "uniform", 0.5)
	o.Method = Taylor
	_, err := Run(context.Background(), g, o)
	const want = "method taylor: gr (Round): "
	if !errors.Is(err, ir.ErrUnsupported) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want %q", err, want)
	}
}
