package prune_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/tests/graphtest"
)

func glob(t *testing.T, s string) prune.Glob {
	t.Helper()
	g, err := prune.ParseGlob(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// options are those of the command line, with the exceptions of --keep ends: the last layer of a small graph is no small
// part of it.
func options(t *testing.T, pattern string, sparsity float64, layers ...string) prune.GraphOptions {
	t.Helper()
	p, err := prune.ParsePattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	o := prune.GraphOptions{Options: prune.Options{Pattern: p, Sparsity: sparsity, Allocate: prune.PerLayer}, KeepEnds: true}
	for _, l := range layers {
		target, err := prune.ParseLayerTarget(l)
		if err != nil {
			t.Fatal(err)
		}
		o.Targets = append(o.Targets, target)
	}
	return o
}

// verdicts lists node, weight and why it is not prunable, in the order of the report, without the figures of ends.
func verdicts(r *prune.GraphResult) (out []string) {
	for _, l := range r.Layers {
		if l.Prunable != (l.Why == "") {
			out = append(out, "contradiction")
		}
		why, _, _ := strings.Cut(l.Why, " (")
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", l.Node, l.Weight, why), ": "))
	}
	return out
}

func TestPrunableWeights(t *testing.T) {
	const image = "%x: f32[1,4,3,3]"
	for name, c := range map[string]struct {
		inputs, weights, body string
		keep                  string
		want                  []string
	}{
		"all but the first Conv and the last product": {image, "w1[4,4,1,1] w2[4,4,3,3] w3[36,5] w4[5,5]", `
  %a: f32[*] = Conv "c1" (%x, %w1)
  %b: f32[*] = ConvTranspose "c2" (%a, %w2) {pads = [1, 1, 1, 1]}
  %f: f32[*] = Flatten "f" (%b)
  %g: f32[*] = Gemm "g" (%f, %w3)
  %y: f32[*] = MatMul "m" (%g, %w4)
  return %y`, "", []string{"c1 w1: the first convolution", "c2 w2", "g w3", "m w4: the last weight-bearing operator"}},
		"a Conv behind a transposed one is not the first": {image, "w1[4,4,1,1] w2[4,4,1,1] w3[4,4,1,1]", `
  %a: f32[*] = ConvTranspose "c1" (%x, %w1)
  %b: f32[*] = Conv "c2" (%a, %w2)
  %y: f32[*] = Conv "c3" (%b, %w3)
  return %y`, "", []string{"c1 w1", "c2 w2", "c3 w3: the last weight-bearing operator"}},
		"without Conv, only the last stays": {"%x: f32[2,4]", "w1[4,4] w2[4,4] w3[4,4]", `
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %b: f32[*] = MatMul "m2" (%a, %w2)
  %y: f32[*] = MatMul "m3" (%b, %w3)
  return %y`, "", []string{"m1 w1", "m2 w2", "m3 w3: the last weight-bearing operator"}},
		"a single layer": {"%x: f32[2,4]", "w1[4,4]", `
  %y: f32[*] = MatMul "m1" (%x, %w1)
  return %y`, "", []string{"m1 w1: the last weight-bearing operator"}},
		"depthwise and grouped convolutions": {image, "w1[4,4,1,1] w2[4,1,1,1] w3[4,2,1,1] w4[4,4,1,1] w5[4,4,1,1]", `
  %a: f32[*] = Conv "c1" (%x, %w1)
  %b: f32[*] = Conv "c2" (%a, %w2) {group = 4}
  %c: f32[*] = Conv "c3" (%b, %w3) {group = 2}
  %d: f32[*] = Conv "c4" (%c, %w4)
  %y: f32[*] = Conv "c5" (%d, %w5)
  return %y`, "", []string{"c1 w1: the first convolution", "c2 w2: 4 groups", "c3 w3: 2 groups", "c4 w4", "c5 w5: the last weight-bearing operator"}},
		"embeddings, also where a product is tied to them": {"%i: i64[3]", "e[5,4] w1[4,4] w2[4,4]", `
  %x: f32[*] = Gather "embed" (%e, %i)
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %l: f32[*] = Gemm "tied" (%a, %e) {transB = 1}
  %z: f32[*] = Transpose "t" (%l)
  %y: f32[*] = Gemm "m2" (%a, %w2)
  return %z, %y`, "", []string{"m1 w1", "tied e: read by other operators too", "m2 w2: one of the last 2 weight-bearing operators"}},
		"weights read twice count once": {"%x: f32[2,4]", "w1[4,4] w2[4,4]", `
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %b: f32[*] = MatMul "m2" (%a, %w1)
  %y: f32[*] = MatMul "m3" (%b, %w2)
  return %y`, "", []string{"m1 w1", "m3 w2: the last weight-bearing operator"}},
		"weights read as two matrices": {"%x: f32[2,4]", "w1[4,4] w2[4,4]", `
  %a: f32[*] = Gemm "m1" (%x, %w1)
  %b: f32[*] = Gemm "m2" (%a, %w1) {transB = 1}
  %y: f32[*] = MatMul "m3" (%b, %w2)
  return %y`, "", []string{"m1 w1: read as two different matrices", "m3 w2: the last weight-bearing operator"}},
		"a weight of the last node that an earlier one reads": {"%x: f32[2,4]", "w1[4,4] w2[4,4]", `
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %b: f32[*] = MatMul "m2" (%a, %w2)
  %y: f32[*] = MatMul "m3" (%b, %w1)
  return %y`, "", []string{"m1 w1: the last weight-bearing operator", "m2 w2"}},
		"a weight that is an output": {"%x: f32[2,4]", "w1[4,4] w2[4,4]", `
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %y: f32[*] = MatMul "m2" (%a, %w2)
  return %y, %w1`, "", []string{"m1 w1: read by other operators too", "m2 w2: the last weight-bearing operator"}},
		"the weights of LSTM and GRU, in both directions": {"%x: f32[2,1,3]", "w1[2,8,3] r1[2,8,2] w2[1,6,4] r2[1,6,2] w3[2,4]", `
  %s: i64[3] = const {0, 0, -1}
  %a: f32[*], %ah: f32[*], %ac: f32[*] = LSTM "lstm" (%x, %w1, %r1) {hidden_size = 2, direction = "bidirectional"}
  %t: f32[*] = Transpose "t" (%a) {perm = [0, 2, 1, 3]}
  %u: f32[*] = Reshape "u" (%t, %s)
  %b: f32[*] = GRU "gru" (%u, %w2, %r2) {hidden_size = 2}
  %y: f32[*] = MatMul "m" (%b, %w3)
  return %y`, "", []string{"lstm w1", "lstm r1", "gru w2", "gru r2", "m w3: the last weight-bearing operator"}},
		"both weights of a last LSTM stay, and RNN is not pruned": {"%x: f32[2,1,3]", "w0[1,2,3] r0[1,2,2] w1[1,8,2] r1[1,8,2]", `
  %axis: i64[1] = const {1}
  %p: f32[*] = RNN "rnn" (%x, %w0, %r0) {hidden_size = 2}
  %q: f32[*] = Squeeze "q" (%p, %axis)
  %y: f32[*] = LSTM "lstm" (%q, %w1, %r1) {hidden_size = 2}
  return %y`, "", []string{"rnn w0: weights of RNN are not pruned", "rnn r0: weights of RNN are not pruned",
			"lstm w1: the last weight-bearing operator", "lstm r1: the last weight-bearing operator"}},
		"products in branches, in their place": {"%x: f32[2,4], %k: bool[]", "w1[4,4] w2[4,4] w3[4,4]", `
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %b: f32[*] = If "if" (%k) {then_branch = graph "t"() {
    %c: f32[*] = MatMul "m2" (%a, %w2)
    return %c
  }, else_branch = graph "e"() {
    return %a
  }}
  %y: f32[*] = MatMul "m3" (%b, %w3)
  return %y`, "", []string{"m1 w1", "m2 w2", "m3 w3: the last weight-bearing operator"}},
		"a constant on the left": {"%x: f32[4,2]", "w1[4,4] w2[4,4]", `
  %a: f32[*] = MatMul "m1" (%w1, %x)
  %y: f32[*] = MatMul "m2" (%w2, %a)
  return %y`, "", []string{"m1 w1", "m2 w2: the last weight-bearing operator"}},
		"keep by node and by weight": {"%x: f32[2,4]", "w1[4,4] w2[4,4] w3[4,4] w4[4,4]", `
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %b: f32[*] = MatMul "m2" (%a, %w2)
  %c: f32[*] = MatMul "m3" (%b, %w3)
  %y: f32[*] = MatMul "m4" (%c, %w4)
  return %y`, "m1 *3", []string{"m1 w1: kept by m1", "m2 w2", "m3 w3: kept by *3", "m4 w4: the last weight-bearing operator"}},
		"keep none, but for what is named": {image, "w1[4,4,1,1] w2[4,4,1,1] w3[4,4,1,1]", `
  %a: f32[*] = Conv "c1" (%x, %w1)
  %b: f32[*] = Conv "c2" (%a, %w2)
  %y: f32[*] = Conv "c3" (%b, %w3)
  return %y`, "none c2", []string{"c1 w1", "c2 w2: kept by c2", "c3 w3"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := network(t, 1, c.inputs, c.weights, c.body)
			o := options(t, "uniform", 0.5)
			for _, k := range strings.Fields(c.keep) {
				if k == "none" {
					o.KeepNone, o.KeepEnds = true, false
				} else {
					o.Keep = append(o.Keep, glob(t, k))
				}
			}
			prunable := func(verdict string) bool { return !strings.Contains(verdict, ":") }
			r, err := prune.Graph(g, o)
			if !slices.ContainsFunc(c.want, prunable) { // which is an error
				p, perr := prune.NewPlan(g, o)
				if err == nil || perr != nil {
					t.Fatalf("errors %v, %v", err, perr)
				}
				r, err = p.Result(), nil
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Verify(); err != nil {
				t.Error(err)
			}
			if have := verdicts(r); !slices.Equal(have, c.want) {
				t.Errorf("have %q\nwant %q", have, c.want)
			}
			var all, may prune.Tally
			for _, l := range r.Layers {
				w := value(g, l.Weight).Const
				zeros := 0
				for _, e := range w.F32s() {
					if e == 0 {
						zeros++
					}
				}
				if l.Weights != w.Len() || l.Zeros != zeros {
					t.Errorf("%s: %d zeros of %d, want %d of %d", l.Weight, l.Zeros, l.Weights, zeros, w.Len())
				}
				if want := map[bool]float64{true: 0.5}[l.Prunable]; math.Abs(l.Sparsity-want) > 0.2 {
					t.Errorf("%s: sparsity %v, want about %v", l.Weight, l.Sparsity, want)
				}
				all.Weights, all.Zeros = all.Weights+w.Len(), all.Zeros+zeros
				if l.Prunable {
					may.Weights, may.Zeros = may.Weights+w.Len(), may.Zeros+zeros
				}
			}
			if r.Weights != all || r.Prunable != may {
				t.Errorf("totals %v and %v, want %v and %v", r.Weights, r.Prunable, all, may)
			}
		})
	}
}

func value(g *ir.Graph, name string) *ir.Value {
	for _, v := range g.Constants() {
		if v.Name == name {
			return v
		}
	}
	return nil
}

const threeProducts = `
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %b: f32[*] = MatMul "m2" (%a, %w2)
  %y: f32[*] = MatMul "last" (%b, %w3)
  return %y`

func threeLayers(t *testing.T) *ir.Graph {
	return network(t, 3, "%x: f32[2,8]", "w1[8,8] w2[8,8] w3[8,8]", threeProducts)
}

func TestOtherFloatsArePrunedAndKeepTheirType(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F64} {
		g := threeLayers(t)
		g.Inputs[0].Type.DType = dt
		wide := map[string]*tensor.Tensor{}
		for _, n := range []string{"w1", "w2", "w3"} {
			v := value(g, n)
			v.SetConst(v.Const.To(dt))
			if dt == tensor.F64 { // digits that f32 does not have
				for i := range v.Const.Len() {
					tensor.Data[float64](v.Const)[i] *= 1 + 1e-12
				}
			}
			wide[n] = v.Const.Clone()
		}
		if err := g.Infer(); err != nil {
			t.Fatal(err)
		}
		r, err := prune.Graph(g, options(t, "uniform", 0.5))
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"m1 w1", "m2 w2", "last w3: the last weight-bearing operator"}; !slices.Equal(verdicts(r), want) {
			t.Errorf("%v: have %q, want %q", dt, verdicts(r), want)
		}
		for n, old := range wide {
			now := value(g, n).Const
			zeros := 0
			for i, v := range now.Float64s() {
				if v == 0 {
					zeros++
				} else if v != old.Float64s()[i] {
					t.Fatalf("%v: element %d of %s became %g, was %g", dt, i, n, v, old.Float64s()[i])
				}
			}
			if want := map[bool]int{true: 32, false: 0}[n != "w3"]; now.DType() != dt || zeros != want {
				t.Errorf("%s is %v with %d zeros, want %v with %d", n, now, zeros, dt, want)
			}
		}
		if p := r.Prunable; p.Weights != 128 || p.Zeros != 64 {
			t.Errorf("%v: %d zeros of %d prunable weights reported, want 64 of 128", dt, p.Zeros, p.Weights)
		}
	}
}

// That nothing can be pruned where zeros are asked for is an error that says why.
func TestNothingToPruneIsAnError(t *testing.T) {
	g := network(t, 3, "%x: f32[2,8]", "w1[8,8]", `
  %y: f32[*] = MatMul "only" (%x, %w1)
  return %y`)
	_, err := prune.Graph(g, options(t, "uniform", 0.5))
	if want := "zeros are asked for, and no weight of the model is prunable (only: the last weight-bearing operator (100.0% of the multiply-adds))"; !errors.Is(err, ir.ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if _, err := prune.Graph(g, options(t, "uniform", 0)); err != nil {
		t.Error(err)
	}
	g = graphtest.Parse(t, `graph "g"(%x: f32[2]) { %y: f32[2] = Relu "r" (%x) return %y }`)
	if _, err := prune.Graph(g, options(t, "2:4", 0.5)); err == nil || !strings.Contains(err.Error(), "it has no constant weights") {
		t.Errorf("error %v, want one that says that there are no weights", err)
	}
}

func TestNothingAskedForNothingTouched(t *testing.T) {
	for _, pattern := range []string{"uniform", "unstructured", "channel", "block:4x1", "dense"} {
		g := threeLayers(t)
		w := value(g, "w1")
		w.Const.F32s()[5], w.Const.F32s()[6] = 0, float32(math.NaN())
		before := w.Const
		r, err := prune.Graph(g, options(t, pattern, 0))
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		if w.Const != before {
			t.Errorf("%s: the weight was copied", pattern)
		}
		if want := (prune.Tally{Weights: 128, Zeros: 1}); r.Prunable != want {
			t.Errorf("%s: prunable %v, want %v", pattern, r.Prunable, want)
		}
		if want := (prune.Tally{Weights: 192, Zeros: 1}); r.Weights != want || r.Pattern != pattern {
			t.Errorf("%s: weights %v, want %v", pattern, r.Weights, want)
		}
	}
}

func TestWeightsThatAreNotFiniteAreRefusedWhereTheyArePruned(t *testing.T) {
	for _, pattern := range []string{"uniform", "channel"} {
		g := threeLayers(t)
		value(g, "w2").Const.F32s()[9] = float32(math.Inf(1))
		_, err := prune.Graph(g, options(t, pattern, 0.5))
		if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "m2 (MatMul): weight [1,1] is +Inf") {
			t.Errorf("%s: error %v, want one that names layer and weight", pattern, err)
		}
	}
}

func TestLayersOfTheirOwn(t *testing.T) {
	r, err := prune.Graph(threeLayers(t), options(t, "unstructured", 0.5, "m*=0.25", "w2=0.75"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{16, 48, 0} {
		if r.Layers[i].Zeros != want {
			t.Errorf("%s: %d zeros, want %d", r.Layers[i].Node, r.Layers[i].Zeros, want)
		}
	}
	r, err = prune.Graph(threeLayers(t), options(t, "uniform", 0, "m1=0.5"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Layers[0].Zeros != 32 || r.Layers[1].Zeros != 0 {
		t.Errorf("%d and %d zeros, want 32 and 0", r.Layers[0].Zeros, r.Layers[1].Zeros)
	}
}

func TestPatternsOfTheirOwn(t *testing.T) {
	g := threeLayers(t)
	before := map[string][]float32{}
	for _, u := range g.WeightUses() {
		before[u.Value.Name] = slices.Clone(u.View.Matrix(u.Value.Const).F32s())
	}
	r, err := prune.Graph(g, options(t, "unstructured", 0.5, "m1=2:4", "w2=0.75,uniform-block:4x1"))
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range g.WeightUses()[:2] {
		own, _ := prune.ParsePattern([]string{"2:4", "uniform-block:4x1"}[i])
		sparsity := []float64{0.5, 0.75}[i]
		w := before[u.Value.Name]
		rows, cols := u.View.Dims(u.Value.Const.Shape())
		alone, err := prune.Select([]prune.Layer{{Name: "alone", Rows: rows, Cols: cols, Weights: w, Sparsity: &sparsity}}, prune.Options{Pattern: own})
		if err != nil {
			t.Fatal(err)
		}
		alone.Layers[0].Mask.Apply(w, false)
		if !slices.Equal(w, u.View.Matrix(u.Value.Const).F32s()) {
			t.Errorf("%s is not what %v makes of it", r.Layers[i].Node, own)
		}
	}
	for all, target := range map[string]string{"channel": "m1=0.5,uniform", "uniform": "m1=0.5,channel"} {
		o := options(t, all, 0)
		own, err := prune.ParseLayerTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		o.Targets = append(o.Targets, own)
		if _, err := prune.Graph(threeLayers(t), o); !errors.Is(err, ir.ErrInvalid) {
			t.Errorf("%s beside %s: %v", target, all, err)
		}
	}
}

func TestGlobsThatMatchNothingAreErrors(t *testing.T) {
	o := options(t, "uniform", 0.5)
	o.Keep = []prune.Glob{glob(t, "m9")}
	for want, o := range map[string]prune.GraphOptions{
		`Prune.Layers "m7": `:                     options(t, "uniform", 0.5, "m*=0.5", "m7=0.5"),
		`Prune.Layers "last": w3 is not pruned: `: options(t, "channel", 0.5, "last=0.5"), // it is not prunable
		`Prune.Keep "m9": `:                       o,
	} {
		if _, err := prune.Graph(threeLayers(t), o); !errors.Is(err, ir.ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s...", err, want)
		}
	}
}

func TestZerosThatArriveStay(t *testing.T) {
	for _, pattern := range []string{"uniform", "unstructured", "2:4", "block:2x2", "uniform-block:4x1"} {
		g := threeLayers(t)
		w := value(g, "w1").Const.F32s()
		var zero []int
		for i := range w {
			if i%3 == 0 {
				w[i] = 0
				zero = append(zero, i)
			}
		}
		o := options(t, pattern, 0.5)
		if _, err := prune.Graph(g, o); err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for _, i := range zero {
			if value(g, "w1").Const.F32s()[i] != 0 {
				t.Errorf("%s: weight %d came to life", pattern, i)
			}
		}
	}
}

func TestOneNonzeroARowAndWhereThatBoundActed(t *testing.T) {
	for pattern, bounded := range map[string]int{"uniform": 8, "unstructured": 0} {
		g := threeLayers(t)
		r, err := prune.Graph(g, options(t, pattern, 0.95))
		if err != nil {
			t.Fatal(err)
		}
		w := value(g, "w1").Const // [K,M]
		for m := range 8 {
			n := 0
			for k := range 8 {
				if w.F32s()[k*8+m] != 0 {
					n++
				}
			}
			if n < 1 {
				t.Errorf("%s: row %d is empty", pattern, m)
			}
		}
		if l := r.Layers[0]; l.Bounded == 0 || bounded > 0 && l.Bounded != bounded {
			t.Errorf("%s: the bound acted on %d rows, want %d", pattern, l.Bounded, bounded)
		}
		if l := r.Layers[2]; l.Bounded != 0 {
			t.Errorf("%s: the bound acted on %s, which is not pruned", pattern, l.Node)
		}
	}
}

func TestNMSetsItsOwnSparsity(t *testing.T) {
	for _, s := range []float64{0, 0.5} {
		r, err := prune.Graph(threeLayers(t), options(t, "2:4", s))
		if err != nil {
			t.Fatal(err)
		}
		if r.Prunable.Sparsity() != 0.5 {
			t.Errorf("sparsity %v: %v of the weights are zero, want half", s, r.Prunable.Sparsity())
		}
	}
	_, err := prune.Graph(threeLayers(t), options(t, "2:4", 0.7))
	if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "Prune.Sparsity 0.7: Prune.Pattern 2:4 sets its own, 0.5") {
		t.Errorf("error %v, want one that tells the contradiction", err)
	}
}

func TestPermutedWeightsArePrunedAlongTheirRows(t *testing.T) {
	g := network(t, 5, "%x: f32[1,4,3,3]", "w1[4,6,2,2] w2[5,6,1,1]", `
  %a: f32[*] = ConvTranspose "c1" (%x, %w1)
  %y: f32[*] = Conv "c2" (%a, %w2)
  return %y`)
	r, err := prune.Graph(g, options(t, "uniform", 0.5))
	if err != nil {
		t.Fatal(err)
	}
	if r.Layers[0].RowMin != 8 || r.Layers[0].RowMax != 8 {
		t.Errorf("rows keep %d to %d, want 8", r.Layers[0].RowMin, r.Layers[0].RowMax)
	}
	w := value(g, "w1").Const // [C,M,kh,kw]
	for m := range 6 {
		n := 0
		for c := range 4 {
			for k := range 4 {
				if w.F32s()[(c*6+m)*4+k] != 0 {
					n++
				}
			}
		}
		if n != 8 {
			t.Errorf("output channel %d keeps %d weights, want 8", m, n)
		}
	}
}
