package fit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/fuse"
	"spc/passes/recon"
	"spc/tests/graphtest"
)

// residual has four branches of as many weights, the last of them without an activation behind the sum before, a
// projection, and a branch of other weights.
const residual = `graph "g"(%x: f32[n,3,6,6]) {
  WEIGHTS
  %a: f32[n,8,6,6] = Conv "first" (%x, %w0, %b0) {pads = [1, 1, 1, 1]}
  %c1: f32[n,8,6,6] = Conv "one" (%a, %w1, %b1) {pads = [1, 1, 1, 1]}
  %d1: f32[n,8,6,6] = LeakyRelu "r1" (%c1) {alpha = 0.1}
  %e1: f32[n,8,6,6] = Conv "uno" (%d1, %v1, %b1) {pads = [1, 1, 1, 1]}
  %s1: f32[n,8,6,6] = Add "sum1" (%e1, %a)
  %t1: f32[n,8,6,6] = LeakyRelu "l1" (%s1) {alpha = 0.1}
  %c2: f32[n,8,6,6] = Conv "two" (%t1, %w2, %b2) {pads = [1, 1, 1, 1]}
  %d2: f32[n,8,6,6] = Relu "r2" (%c2)
  %e2: f32[n,8,6,6] = Conv "due" (%d2, %v2, %b2) {pads = [1, 1, 1, 1]}
  %s2: f32[n,8,6,6] = Add "sum2" (%t1, %e2)
  %c3: f32[n,8,6,6] = Conv "three" (%s2, %w3, %b3) {pads = [1, 1, 1, 1]}
  %d3: f32[n,8,6,6] = Relu "r3" (%c3)
  %e3: f32[n,8,6,6] = Conv "tre" (%d3, %v3, %b3) {pads = [1, 1, 1, 1]}
  %s3: f32[n,8,6,6] = Add "sum3" (%s2, %e3)
  %c4: f32[n,8,6,6] = Conv "four" (%s3, %w4, %b4) {pads = [1, 1, 1, 1]}
  %d4: f32[n,8,6,6] = Relu "r4" (%c4)
  %e4: f32[n,8,6,6] = Conv "quattro" (%d4, %v4, %b4) {pads = [1, 1, 1, 1]}
  %s4: f32[n,8,6,6] = Add "sum4" (%s3, %e4)
  %p: f32[n,8,3,3] = Conv "project" (%s4, %w5) {strides = [2, 2]}
  %q: f32[n,8,3,3] = Conv "beside" (%s4, %w6) {strides = [2, 2]}
  %s5: f32[n,8,3,3] = Add "joint" (%p, %q)
  %m: f32[n,8,1,1] = GlobalAveragePool "m" (%s5)
  %f: f32[n,8] = Flatten "f" (%m)
  %y: f32[n,5] = Gemm "last" (%f, %w7, %b7)
  return %y
}
`

var residualShapes = map[string][]int{
	"w0": {8, 3, 3, 3}, "b0": {8}, "w1": {8, 8, 3, 3}, "v1": {8, 8, 3, 3}, "b1": {8}, "w2": {8, 8, 3, 3}, "v2": {8, 8, 3, 3}, "b2": {8},
	"w3": {8, 8, 3, 3}, "v3": {8, 8, 3, 3}, "b3": {8}, "w4": {8, 8, 3, 3}, "v4": {8, 8, 3, 3}, "b4": {8}, "w5": {8, 8, 1, 1}, "w6": {8, 8, 1, 1}, "w7": {8, 5}, "b7": {5},
}

var residualSums = []string{"sum1", "sum2", "sum3", "sum4"}

func depthOptions(t *testing.T, sparsity float64) Options {
	o := options(t, "depth", sparsity)
	o.Allocate, o.Observer = Auto, observer(6)
	return o
}

// shortened removes branches of residual, and returns which are gone.
func shortened(t *testing.T, o Options) (dense, g *ir.Graph, gone []string, r *Result) {
	t.Helper()
	t.Logf("seed %d", seed)
	dense = drawn(t, residual, residualShapes)
	g = dense.Clone()
	r, err := Run(context.Background(), g, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	for _, s := range residualSums {
		for _, l := range r.Layers {
			if l.Removed > 0 && strings.HasSuffix(l.Note, " "+s+" added") && !slices.Contains(gone, s) {
				gone = append(gone, s)
			}
		}
	}
	return dense, g, gone, r
}

// replaced is a graph in which the sums add the means over the samples of what they add in the dense one.
func replaced(t *testing.T, dense *ir.Graph, sums ...string) *ir.Graph {
	t.Helper()
	seen, g := dense.Clone(), dense.Clone()
	branch := map[string]int{"sum1": 0, "sum2": 1, "sum3": 1, "sum4": 1}
	for _, s := range sums {
		add := nodeOf(t, g, s)
		seen.Outputs = []*ir.Value{nodeOf(t, seen, s).Inputs[branch[s]]}
		mean, n := make([]float64, 8), 0.0
		for in := range observer(6).Inputs(context.Background(), seen) {
			out, err := ref.Run(context.Background(), seen, in)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				for p := range 36 {
					for c := range mean {
						mean[c] += float64(out[0].F32s()[(i*8+c)*36+p])
					}
				}
			}
			n += 72
		}
		c := tensor.New(tensor.F32, 1, 8, 1, 1)
		for i, m := range mean {
			c.F32s()[i] = float32(m / n)
		}
		add.SetInput(branch[s], g.NewConst("mean", c))
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	return g
}

func nodeOf(t *testing.T, g *ir.Graph, name string) *ir.Node {
	t.Helper()
	i := slices.IndexFunc(g.Nodes, func(n *ir.Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("no node %s", name)
	}
	return g.Nodes[i]
}

// Without branches the model gives what it does where the means of what they gave stand in their places, before and
// after these are biases.
func TestBranchesAreReplacedByTheirMeans(t *testing.T) {
	for _, sparsity := range []float64{0.25, 0.5, 0.75, 0.99} {
		o := depthOptions(t, sparsity)
		o.Method, o.Uncorrected = Wanda, true
		dense, g, gone, r := shortened(t, o)
		if want := int(math.Round(4 * sparsity)); len(gone) != want || r.Prunable.Sparsity() != float64(want)/4 {
			t.Fatalf("%.2f: %v are gone, %v", sparsity, gone, r.Prunable)
		}
		want := replaced(t, dense, gone...)
		graphtest.Same(t, want, g, 1e-5)
		if _, err := fuse.Biases(g); err != nil {
			t.Fatal(err)
		}
		graphtest.Same(t, want, g, 1e-5)
		for _, n := range g.Nodes {
			if c := n.Input(1); n.Op.Kind() == "Add" && c != nil && c.Const != nil && n.Inputs[0].Def.Op.Kind() != "LeakyRelu" {
				t.Errorf("%v adds a constant to what %v gives", n, n.Inputs[0].Def)
			}
		}
	}
}

// One branch of equal ones that goes is the one without which the outputs are nearest, and the next is so given the first.
func TestBranchesGoByWhatTheOutputsLose(t *testing.T) {
	o := depthOptions(t, 0.25)
	o.Method, o.Uncorrected = Wanda, true
	var gone []string
	for range 2 {
		best, least := "", math.Inf(1)
		for _, s := range residualSums {
			if slices.Contains(gone, s) {
				continue
			}
			dense := drawn(t, residual, residualShapes)
			if d := betweenOn(t, o.Observer, dense, replaced(t, dense, append(slices.Clone(gone), s)...)); d < least {
				best, least = s, d
			}
		}
		gone = append(gone, best)
		o.Sparsity = 0.25 * float64(len(gone))
		if _, _, have, _ := shortened(t, o); !slices.Equal(have, slices.Sorted(slices.Values(gone))) {
			t.Fatalf("%v are gone, want %v", have, gone)
		}
	}
}

// Every method removes branches, and those that solve for weights bring the outputs nearer.
func TestMethodsMakeUpForBranches(t *testing.T) {
	apart := map[Method]float64{}
	for _, m := range methods {
		if m.Method == Gates {
			continue
		}
		o := depthOptions(t, 0.5)
		o.Method = m.Method
		dense, g, gone, _ := shortened(t, o)
		if len(gone) != 2 {
			t.Errorf("%s: %v are gone", m.Method, gone)
		}
		apart[m.Method] = betweenOn(t, o.Observer, dense, g)
	}
	if apart[OBS] >= 0.8*apart[Wanda] || apart[ALPS] != apart[OBS] {
		t.Errorf("divergences %v", apart)
	}
}

func TestShortenedModelsAreReconstructed(t *testing.T) {
	o := depthOptions(t, 0.5)
	dense, g, gone, r := shortened(t, o)
	o.Reconstruct = recon.Recipe{"blocks": 2}
	_, better, again, _ := shortened(t, o)
	if !slices.Equal(gone, again) {
		t.Errorf("%v and %v are gone", gone, again)
	}
	if a, b := betweenOn(t, o.Observer, dense, g), betweenOn(t, o.Observer, dense, better); b >= a {
		t.Errorf("divergence %v, reconstructed %v", a, b)
	}
	if len(r.Distances) != 1 {
		t.Errorf("distances %+v", r.Distances)
	}
}

func TestDepthRefuses(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		"depth needs calibration samples":            func(o *Options) { o.Observer, o.Allocate = nil, "" },
		"has no masks of weights":                    func(o *Options) { o.Refine = Swaps },
		"gates: Prune.Pattern depth has no":          func(o *Options) { o.Method = Gates },
		"no layer has a share of its own; want auto": func(o *Options) { o.Allocate = Normalised },
		"keeps nothing in it":                        func(o *Options) { o.Cache = "some.file" },
		"the least of the branches has 25.0%":        func(o *Options) { o.Sparsity = 0.1 },
	} {
		o := depthOptions(t, 0.5)
		change(&o)
		if _, err := Run(context.Background(), drawn(t, residual, residualShapes), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := Run(context.Background(), model(t), depthOptions(t, 0.5)); err == nil || !strings.Contains(err.Error(), "no residual branch of the model can be removed") {
		t.Errorf("error %v", fmt.Sprint(err))
	}
}
