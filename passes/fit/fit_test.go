package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/prune"
	"spc/passes/recon"
	"spc/tests/graphtest"
)

// network has two convolutions, a depthwise one, and a classifier between the first and
// the last layer, which are not pruned.
const network = `graph "g"(%x: f32[n,3,6,6]) {
  WEIGHTS
  %a: f32[n,8,6,6] = Conv "first" (%x, %w1, %b1) {pads = [1, 1, 1, 1]}
  %ar: f32[n,8,6,6] = Relu "ar" (%a)
  %d: f32[n,8,6,6] = Conv "depth" (%ar, %w2) {pads = [1, 1, 1, 1], group = 8}
  %b: f32[n,16,6,6] = Conv "point" (%d, %w3, %b3)
  %br: f32[n,16,6,6] = Relu "br" (%b)
  %c: f32[n,8,3,3] = Conv "stride" (%br, %w4) {pads = [1, 1, 1, 1], strides = [2, 2]}
  %cr: f32[n,8,3,3] = Relu "cr" (%c)
  %f: f32[n,72] = Flatten "f" (%cr)
  %g: f32[n,16] = Gemm "wide" (%f, %w5, %b5)
  %gr: f32[n,16] = Relu "gr" (%g)
  %y: f32[n,5] = MatMul "last" (%gr, %w6)
  return %y
}
`

var shapes = map[string][]int{
	"w1": {8, 3, 3, 3}, "b1": {8}, "w2": {8, 1, 3, 3}, "w3": {16, 8, 1, 1}, "b3": {16}, "w4": {8, 16, 3, 3}, "w5": {72, 16}, "b5": {16}, "w6": {16, 5},
}

const seed = 11

func model(t testing.TB) *ir.Graph {
	t.Helper()
	return drawn(t, network, shapes)
}

// drawn reads a network with random weights.
func drawn(t testing.TB, network string, shapes map[string][]int) *ir.Graph {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		shape := shapes[name]
		n, fan := 1, 1
		for i, d := range shape {
			if n *= d; i > 0 {
				fan *= d
			}
		}
		fmt.Fprintf(&text, "  %%%s: f32%s = const {", name, strings.ReplaceAll(fmt.Sprint(shape), " ", ","))
		for i := range n {
			if i > 0 {
				text.WriteString(", ")
			}
			fmt.Fprintf(&text, "%.6f", rng.NormFloat64()/math.Sqrt(float64(fan)))
		}
		text.WriteString("}\n")
	}
	return graphtest.Parse(t, strings.Replace(network, "  WEIGHTS\n", text.String(), 1))
}

// observer sees so many runs of two samples on the interpreter, in which channels of the
// input are correlated.
func observer(runs int) *calib.Observer {
	return &calib.Observer{
		Inputs: func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
			return func(yield func([]*tensor.Tensor, error) bool) {
				for i := range runs {
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					x := tensor.New(tensor.F32, 2, 3, 6, 6)
					for j := range x.F32s() {
						x.F32s()[j] = float32(rng.NormFloat64())
						if j >= 36 {
							x.F32s()[j] += 0.8 * x.F32s()[j-36]
						}
					}
					if !yield([]*tensor.Tensor{x}, nil) {
						return
					}
				}
			}
		},
		Run: graphtest.Run,
	}
}

// unjudged is an observer without the runs by which training is judged.
func unjudged(o *calib.Observer) *calib.Observer {
	out := *o
	out.Inputs = o.Inputs.Some(func(i int) bool { return i%8 != 7 })
	return &out
}

func options(t *testing.T, pattern string, sparsity float64) Options {
	t.Helper()
	p, err := prune.ParsePattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if own, ok := p.OwnSparsity(); ok {
		sparsity = own
	}
	return Options{
		GraphOptions: prune.GraphOptions{Options: prune.Options{Pattern: p, Sparsity: sparsity}},
		Allocate:     prune.PerLayer, Observer: observer(12),
	}
}

// apart is the divergence of g from the dense model.
func apart(t *testing.T, g *ir.Graph) float64 {
	t.Helper()
	return between(t, model(t), g)
}

// between is the divergence of g from another model.
func between(t *testing.T, dense, g *ir.Graph) float64 {
	t.Helper()
	return betweenOn(t, observer(16), dense, g)
}

// betweenOn is that on what an observer sees.
func betweenOn(t *testing.T, o *calib.Observer, dense, g *ir.Graph) float64 {
	t.Helper()
	d := calib.NewDivergence(g)
	for in := range o.Inputs(context.Background(), g) {
		want, err := ref.Run(context.Background(), dense, in)
		if err != nil {
			t.Fatal(err)
		}
		have, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Add(want, have); err != nil {
			t.Fatal(err)
		}
	}
	return d.Value()
}

func fitted(t *testing.T, o Options) (*ir.Graph, *Result) {
	t.Helper()
	g := model(t)
	r, err := Run(context.Background(), g, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	return g, r
}

func TestEveryMethodPrunesToEveryPattern(t *testing.T) {
	t.Logf("seed %d", seed)
	for _, pattern := range []string{"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:4x1", "block:2x2", "block:2x2+1:2", "uniform-block:4x2+1:2", "channel"} {
		for i, m := range methods {
			if testing.Short() && i > 0 || pattern == "channel" && m.Method == Gates {
				continue // which have no masks
			}
			o := options(t, pattern, 0.5)
			o.Method = m.Method
			g, r := fitted(t, o)
			if d := apart(t, g); !(d > 0) || math.IsInf(d, 0) {
				t.Errorf("%s %s: divergence %v", pattern, m.Method, d)
			}
			if pattern == "channel" {
				if r.Prunable.Sparsity() < 0.3 {
					t.Errorf("%s %s: %v", pattern, m.Method, r.Prunable)
				}
				continue
			}
			for _, l := range r.Layers {
				if !l.Prunable {
					continue
				}
				if math.Abs(l.Sparsity-0.5) > 0.07 || l.How == "" {
					t.Errorf("%s %s: %s has %.2f zeros, %q", pattern, m.Method, l.Node, l.Sparsity, l.How)
				}
				if pattern == "uniform" && l.RowMin != l.RowMax {
					t.Errorf("%s: rows of %s have %d to %d", m.Method, l.Node, l.RowMin, l.RowMax)
				}
			}
		}
	}
}

func TestLayersHaveThePatternsThatAreTheirOwn(t *testing.T) {
	long(t)
	for _, m := range Methods() {
		o := options(t, "uniform", 0.5)
		o.Method, o.Allocate = m, Auto
		for _, s := range []string{"point=2:4", "wide=0.75,uniform-block:4x1"} {
			target, err := prune.ParseLayerTarget(s)
			if err != nil {
				t.Fatal(err)
			}
			o.Targets = append(o.Targets, target)
		}
		g, _ := fitted(t, o)
		for _, u := range g.WeightUses() {
			rows, cols := u.View.Dims(u.Value.Const.Shape())
			w := u.View.Matrix(u.Value.Const).F32s()
			switch u.Node.Name {
			case "point":
				for i := 0; i < len(w); i += 4 {
					if n := len(slices.DeleteFunc(slices.Clone(w[i:i+4]), func(v float32) bool { return v == 0 })); n > 2 {
						t.Errorf("%s: %d of 4 weights from %d on, want 2", m, n, i)
					}
				}
			case "wide":
				for r := 0; r < rows; r += 4 {
					columns := 0
					for c := range cols {
						if w[r*cols+c] != 0 || w[(r+1)*cols+c] != 0 || w[(r+2)*cols+c] != 0 || w[(r+3)*cols+c] != 0 {
							columns++
						}
					}
					if columns != cols/4 {
						t.Errorf("%s: %d columns of rows from %d on, want %d", m, columns, r, cols/4)
					}
				}
			}
		}
	}
}

func TestWhatSeesMoreIsNearerTheDenseModel(t *testing.T) {
	of := func(change func(o *Options)) float64 {
		o := options(t, "uniform", 0.5)
		change(&o)
		g, _ := fitted(t, o)
		return apart(t, g)
	}
	blind := of(func(o *Options) { o.Observer = nil })
	corrected := of(func(o *Options) { o.Method = Magnitude })
	obs := of(func(o *Options) { o.Aim = Weights })
	aimed := of(func(o *Options) {})
	t.Logf("magnitude %.4g, corrected %.4g, obs %.4g, aimed at outputs %.4g", blind, corrected, obs, aimed)
	if !(aimed < obs && obs < corrected && corrected < blind) {
		t.Errorf("magnitude %.4g, corrected %.4g, obs %.4g, aimed at outputs %.4g, want them to fall", blind, corrected, obs, aimed)
	}
	rebuilt := of(func(o *Options) { o.Aim, o.Reconstruct = Weights, recon.Recipe{} })
	if !(rebuilt < obs) {
		t.Errorf("%.4g after reconstruction, %.4g before", rebuilt, obs)
	}
}

func TestEveryRefinementKeepsThePatternAndLowersWhatLayersLose(t *testing.T) {
	t.Logf("seed %d", seed)
	patterns := []string{"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:4x1", "block:2x2"}
	if testing.Short() { // what runs at once is the same in all
		patterns = patterns[:1]
	}
	for _, pattern := range patterns {
		for _, m := range methods {
			o := options(t, pattern, 0.5)
			o.Method = m.Method
			plain, was := fitted(t, o)
			for _, refine := range Refinements() {
				if refine == Snows {
					continue // see TestSnowsComesNearerOnTheSameMask
				}
				o.Refine = refine
				g, r := fitted(t, o)
				if refine == Unrefined {
					if ir.Print(g) != ir.Print(plain) {
						t.Errorf("%s %s: unrefined is not what it is by default", pattern, m.Method)
					}
					continue
				}
				if before, after := apart(t, plain), apart(t, g); m.Method == Magnitude && !(after < before) {
					t.Errorf("%s %s %s: divergence %.4g, %.4g without", pattern, m.Method, refine, after, before)
				}
				for i, l := range r.Layers {
					old := was.Layers[i]
					if l.Zeros != old.Zeros || strings.HasPrefix(pattern, "uniform") && (l.RowMin != old.RowMin || l.RowMax != old.RowMax) {
						t.Errorf("%s %s %s: %s has %d zeros, %d before", pattern, m.Method, refine, l.Node, l.Zeros, old.Zeros)
					}
					if l.Prunable && !strings.Contains(l.How, "swapped") {
						t.Errorf("%s %s %s: %s %q", pattern, m.Method, refine, l.Node, l.How)
					}
				}
			}
		}
	}
}

func TestSnowsComesNearerOnTheSameMask(t *testing.T) {
	long(t)
	t.Logf("seed %d", seed)
	for _, c := range []struct {
		pattern string
		method  Method
		before  Refinement
		refine  Refinement
	}{
		{"uniform", OBS, Unrefined, Snows},
		{"unstructured", Magnitude, Unrefined, Snows},
		{"2:4", OBS, Swaps, "snows,swaps"},
		{"uniform-block:4x1", ALPS, Unrefined, Snows},
	} {
		t.Run(c.pattern+" "+string(c.method)+" "+string(c.refine), func(t *testing.T) {
			o := options(t, c.pattern, 0.5)
			o.Observer = observer(32)
			o.Method, o.Refine, o.Aim = c.method, c.before, Weights
			learnt := o
			learnt.Observer = unjudged(o.Observer)
			plain, _ := fitted(t, learnt)
			o.Refine = c.refine
			g, r := fitted(t, o)
			if again, _ := fitted(t, o); ir.Print(again) != ir.Print(g) {
				t.Error("another model the second time")
			}
			if was, is := apart(t, plain), apart(t, g); !(is < was) {
				t.Errorf("divergence %.4g, %.4g without", is, was)
			} else {
				t.Logf("divergence %.4g, %.4g without", is, was)
			}
			uses := plain.WeightUses()
			for i, u := range g.WeightUses() {
				old := uses[i].Value.Const.F32s()
				for k, v := range u.Value.Const.F32s() {
					if (v == 0) != (old[k] == 0) {
						t.Fatalf("element %d of %s was %v and is %v", k, u.Value.Name, old[k], v)
					}
				}
			}
			for _, b := range r.Blocks {
				if b.Of != recon.OfSnows || b.Note != "" || b.After > b.Before {
					t.Errorf("%+v", b)
				}
			}
			if len(r.Blocks) == 0 || !(r.Rebuilt[1] < r.Rebuilt[0]) {
				t.Errorf("%d blocks, divergence held out %v", len(r.Blocks), r.Rebuilt)
			}
		})
	}
}

func TestLargeLayersAreNotRefined(t *testing.T) {
	o := options(t, "uniform", 0.5)
	o.Refine = Swaps
	f := &fitter{ctx: context.Background(), Options: o}
	how, err := f.refine(&layer{rows: 4096, cols: 4096, weights: make([]float32, 1)}, nil, &edit{LayerResult: prune.LayerResult{Mask: prune.NewMask(1, 1)}})
	if err != nil || how != "too large for swaps" {
		t.Errorf("%q, %v", how, err)
	}
}

func TestAutoKeepsTheNearestAllocation(t *testing.T) {
	o := options(t, "uniform", 0.6)
	o.Allocate = Auto
	_, r := fitted(t, o)
	if len(r.Trials) != 4 || r.Runs != 12 {
		t.Fatalf("%d runs, trials %+v", r.Runs, r.Trials)
	}
	if !slices.IsSortedFunc(r.Trials, func(a, b Trial) int { return cmp.Compare(a.Divergence, b.Divergence) }) {
		t.Errorf("trials %+v are not sorted", r.Trials)
	}
	if got := r.Prunable.Sparsity(); math.Abs(got-0.6) > 0.02 {
		t.Errorf("%.3f zeros, want 0.6", got)
	}
	o.Allocate = prune.Allocation(r.Trials[0].Allocate)
	_, s := fitted(t, o)
	for i := range r.Layers {
		if r.Layers[i].Zeros != s.Layers[i].Zeros {
			t.Errorf("%s: %d zeros, want %d as with %s", r.Layers[i].Node, r.Layers[i].Zeros, s.Layers[i].Zeros, o.Allocate)
		}
	}
}

func TestWorkersChangeNothing(t *testing.T) {
	var first string
	for _, workers := range []int{1, 3} {
		o := options(t, "uniform", 0.5)
		o.Allocate, o.Workers, o.Aim, o.Reconstruct, o.Refine = Auto, workers, Outputs, recon.Recipe{}, "swaps,snows"
		g, _ := fitted(t, o)
		if text := ir.Print(g); first == "" {
			first = text
		} else if text != first {
			t.Error("three workers give other weights than one")
		}
	}
}

func TestKeptLayersStayAsTheyAre(t *testing.T) {
	o := options(t, "uniform", 0.5)
	glob, err := prune.ParseGlob("stride")
	if err != nil {
		t.Fatal(err)
	}
	o.Keep, o.Reconstruct = []prune.Glob{glob}, recon.Recipe{}
	g, _ := fitted(t, o)
	dense := model(t)
	for i, n := range g.Nodes {
		if n.Name == "stride" && !slices.Equal(n.Inputs[1].Const.F32s(), dense.Nodes[i].Inputs[1].Const.F32s()) {
			t.Error("the weight that the user keeps changed")
		}
	}
}

func TestSparseWeightsKeepTheirZeros(t *testing.T) {
	g := model(t)
	o := options(t, "uniform", 0.5)
	if _, err := Run(context.Background(), g, o); err != nil {
		t.Fatal(err)
	}
	zero := map[string][]bool{}
	for _, v := range g.Constants() {
		for _, w := range v.Const.F32s() {
			zero[v.Name] = append(zero[v.Name], w == 0)
		}
	}
	if _, err := Run(context.Background(), g, o); err != nil {
		t.Fatal(err)
	}
	for _, v := range g.Constants() {
		for i, w := range v.Const.F32s() {
			if zero[v.Name] != nil && zero[v.Name][i] != (w == 0) {
				t.Fatalf("%s [%d] is %v, and was zero: %v", v.Name, i, w, zero[v.Name][i])
			}
		}
	}
}

func TestWeightsOfBranchesArePrunedUnseen(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[2,4], %k: bool[]) {
  %w1: f32[4,4] = const {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
  %w3: f32[4,4] = const {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
  %a: f32[2,4] = MatMul "before" (%x, %w1)
  %r: f32[2,4] = If "if" (%k) {then_branch = graph "t"() {
    %w2: f32[4,4] = const {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
    %n: f32[2,4] = MatMul "branch" (%a, %w2)
    return %n
  }, else_branch = graph "e"() {
    return %a
  }}
  %y: f32[2,4] = MatMul "last" (%r, %w3)
  return %y
}`)
	o := options(t, "uniform", 0.5)
	o.KeepEnds = true
	o.Observer = &calib.Observer{Run: graphtest.Run, Inputs: func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
		x := tensor.From([]float32{1, 2, 3, 5, 8, 13, 21, 34}, 2, 4)
		return func(yield func([]*tensor.Tensor, error) bool) {
			yield([]*tensor.Tensor{x, tensor.New(tensor.Bool)}, nil)
		}
	}}
	r, err := Run(context.Background(), g, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Layers {
		if want := map[string]float64{"before": 0.5, "branch": 0.5}[l.Node]; l.Sparsity != want {
			t.Errorf("%s: %.2f zeros, want %.2f", l.Node, l.Sparsity, want)
		}
		if unseen := strings.Contains(l.How, "cannot be seen"); unseen != (l.Node == "branch") || unseen != (l.Unseen != "") {
			t.Errorf("%s: %q", l.Node, l.How)
		}
	}
}

// Magnitudes need no samples, but reconstruction does.
func TestReconstructionAfterMagnitude(t *testing.T) {
	o := options(t, "uniform", 0.5)
	o.Method, o.Uncorrected, o.Reconstruct = Magnitude, true, recon.Recipe{"blocks": 2, "model": 0}
	if _, r := fitted(t, o); len(r.Blocks) == 0 {
		t.Error("nothing was reconstructed")
	}
}

func TestBadInputIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"no samples":          {func(o *Options) { o.Observer = observer(0) }, "no calibration samples"},
		"obs without samples": {func(o *Options) { o.Observer, o.Method = nil, OBS }, "needs calibration"},
		"auto without":        {func(o *Options) { o.Observer, o.Allocate = nil, Auto }, "needs calibration"},
		"reconstruct without": {func(o *Options) { o.Observer, o.Reconstruct = nil, recon.Recipe{} }, "needs calibration"},
		"a method":            {func(o *Options) { o.Method = "taste" }, "want one of magnitude"},
		"an allocation":       {func(o *Options) { o.Allocate = "fair" }, "want one of"},
		"curves of channels": {func(o *Options) {
			o.Allocate, o.Method, o.Pattern = "curves", Wanda, prune.Pattern{Kind: prune.Channel}
		}, "no error curves"},
		"joint of channels":   {func(o *Options) { o.Allocate, o.Pattern = "joint", prune.Pattern{Kind: prune.Channel} }, "Prune.Allocate joint: channels of layers are not seen together"},
		"unread statistics":   {func(o *Options) { o.Cache = "cache" }, "Calibration.Cache cache: nothing is pruned by what the dense model shows, want Prune.Allocate global, normalised, curves, joint, auto"},
		"those of magnitudes": {func(o *Options) { o.Cache, o.Allocate, o.Method = "cache", "global", Magnitude }, "want Prune.Allocate normalised, curves, joint, auto"},
		"those of channels": {func(o *Options) {
			o.Cache, o.Pattern, o.Method = "cache", prune.Pattern{Kind: prune.Channel}, Magnitude
		}, "want Prune.Allocate normalised, auto"},
		"those of gradients of channels": {func(o *Options) {
			o.Cache, o.Pattern, o.Method = "cache", prune.Pattern{Kind: prune.Channel}, Taylor
		}, "want Prune.Method wanda or obs"},
		"those of 2:4": {func(o *Options) {
			o.Cache, o.Allocate, o.Pattern = "cache", Auto, prune.Pattern{Kind: prune.NM, N: 2, M: 4}
		}, "want Prune.Sparsity, and a Prune.Pattern that does not set its own"},
		"those of nothing": {func(o *Options) { o.Cache, o.Allocate, o.Sparsity = "cache", Auto, 0 }, "want Prune.Sparsity"},
		"a sample that is not finite": {func(o *Options) {
			see := o.Observer.Inputs
			o.Observer.Inputs = func(ctx context.Context, g *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
				return func(yield func([]*tensor.Tensor, error) bool) {
					for in := range see(ctx, g) {
						in[0].F32s()[7] = float32(math.NaN())
						if !yield(in, nil) {
							return
						}
					}
				}
			}
		}, "want finite"},
	} {
		o := options(t, "uniform", 0.5)
		c.change(&o)
		_, err := Run(context.Background(), model(t), o)
		if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// An output that no later node reads counts like the others, for every allocation and
// however few runs there are.
func TestOutputsBeforeTheLastLayer(t *testing.T) {
	long(t)
	for _, runs := range []int{2, 12} {
		for _, allocate := range []prune.Allocation{Auto, "layer", "curves", "joint", "normalised"} {
			text := strings.Replace(network, "  %br:", "  %e: f32[n,16,6,6] = Neg \"early\" (%b)\n  %br:", 1)
			g := drawn(t, strings.Replace(text, "return ", "return %e, ", 1), shapes)
			o := options(t, "uniform", 0.5)
			o.Method, o.Allocate, o.Observer, o.Reconstruct = OBS, allocate, observer(runs), recon.Recipe{"blocks": 1, "gains": 1, "model": 1}
			if _, err := Run(t.Context(), g, o); err != nil {
				t.Errorf("%s, %d runs: %v", allocate, runs, err)
			}
		}
	}
}

// long ends a test that is to be short: what runs at once in it does so in others.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs what others run at once, for long")
	}
}
