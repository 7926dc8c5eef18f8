package calib_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// lab evaluates graphs by the interpreter and notes which nodes it was given.
type lab struct {
	samples [][]*tensor.Tensor
	nodes   []string // of the last graph
	reads   int      // of the samples
}

func (l *lab) observer() *calib.Observer {
	return &calib.Observer{
		Inputs: func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
			return func(yield func([]*tensor.Tensor, error) bool) {
				l.reads++
				for _, s := range l.samples {
					if !yield(s, nil) {
						return
					}
				}
			}
		},
		Run: func(ctx context.Context, g *ir.Graph, in iter.Seq2[[]*tensor.Tensor, error], see func([]*tensor.Tensor) error) error {
			l.nodes = nil
			for _, n := range g.Nodes {
				l.nodes = append(l.nodes, n.Name)
			}
			if err := g.Verify(); err != nil {
				return err
			}
			out := make([]*tensor.Tensor, len(g.Outputs))
			for sample, err := range in {
				if err != nil {
					return err
				}
				made, err := (&ref.Interpreter{Check: true}).Run(ctx, g, sample)
				if err != nil {
					return err
				}
				for i, t := range made { // into the same tensors as before where they fit
					if out[i].Fits(t) {
						out[i].CopyFrom(t)
					} else {
						out[i] = t.Clone()
					}
				}
				if err := see(out); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// mixed has sizes that differ from sample to sample, shapes, conditions, and
// subgraphs that read values of the graph around them.
const mixed = `graph "g"(%x: f32[n,4], %k: i64[]) {
  %w: f32[4,3] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0, -2.0, 1.0, 0.75, 0.5}
  %zero: i64[1] = const {0}
  %minus: i64[1] = const {-1}
  %half: f32[] = const {0.5}
  %yes: bool[] = const {1}
  %h: f32[n,3] = MatMul "fc" (%x, %w)
  %shape: i64[2] = Shape "shape" (%h)
  %rows: i64[1] = Gather "rows" (%shape, %zero)
  %flat: i64[2] = Concat "flat" (%rows, %minus) {axis = 0}
  %c: bool[n,3] = Greater "greater" (%h, %half)
  %r: f32[n,3] = Relu "relu" (%h)
  %some: f32[n,3] = Where "where" (%c, %h, %r)
  %total: f32[] = ReduceSum "sum" (%some) {keepdims = 0}
  %large: bool[] = Greater "large" (%total, %half)
  %y: f32[n,3] = If "if" (%large) {then_branch = graph "then"() {
    %a: f32[n,3] = Mul "mul" (%h, %some)
    return %a
  }, else_branch = graph "else"() {
    return %r
  }}
  %z: f32[n,3] = Loop "loop" (%k, %yes, %y) {body = graph "body"(%i: i64[], %go: bool[], %v: f32[n,3]) {
    %next: f32[n,3] = Sub "sub" (%v, %r)
    return %go, %next
  }}
  %out: f32[n,?1] = Reshape "reshape" (%z, %flat)
  %o: f32[n,?1] = Neg "neg" (%out)
  return %o
}`

func mixedSamples() [][]*tensor.Tensor {
	var samples [][]*tensor.Tensor
	for i, n := range []int{2, 5, 1, 5} {
		x := make([]float32, 4*n)
		for k := range x {
			x[k] = float32(math.Sin(float64(17*i + 3*k)))
		}
		samples = append(samples, []*tensor.Tensor{tensor.From(x, n, 4), tensor.Scalar(int64(i))})
	}
	return samples
}

// valuesOf lists the inputs of a graph and what its nodes define.
func valuesOf(g *ir.Graph) []*ir.Value {
	values := slices.Clone(g.Inputs)
	for _, n := range g.Nodes {
		values = append(values, n.Outputs...)
	}
	return values
}

// evaluate returns what values of g are for the samples.
func evaluate(t *testing.T, g *ir.Graph, values []*ir.Value, samples [][]*tensor.Tensor) (all [][]*tensor.Tensor) {
	t.Helper()
	outputs := g.Outputs
	g.Outputs = values
	defer func() { g.Outputs = outputs }()
	for _, s := range samples {
		out, err := ref.Run(t.Context(), g, s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, out)
	}
	return all
}

// wantSeen checks that the frontier shows the values as they are in want, by sample.
func wantSeen(t *testing.T, f *calib.Frontier, values []*ir.Value, want [][]*tensor.Tensor) {
	t.Helper()
	seen := 0
	err := f.See(t.Context(), values, func(sample int, have []*tensor.Tensor) error {
		if seen != sample {
			t.Errorf("sample %d after %d", sample, seen-1)
		}
		seen++
		for i, v := range values {
			if !have[i].Equal(want[sample][i]) {
				t.Errorf("position %d: sample %d: %s is %v, want %v", f.At(), sample, v.Name, have[i], want[sample][i])
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("position %d: %v", f.At(), err)
	}
	if seen != len(want) {
		t.Errorf("position %d: %d samples seen, want %d", f.At(), seen, len(want))
	}
}

// wantPicked checks that a frontier of four samples shows the second and the last one alone.
func wantPicked(t *testing.T, f *calib.Frontier, values []*ir.Value, want [][]*tensor.Tensor) {
	t.Helper()
	var seen []int
	err := f.SeeSome(t.Context(), values, func(sample int) bool { return sample%2 == 1 }, func(sample int, have []*tensor.Tensor) error {
		seen = append(seen, sample)
		for i, v := range values {
			if !have[i].Equal(want[sample][i]) {
				t.Errorf("position %d: sample %d: %s is %v, want %v", f.At(), sample, v.Name, have[i], want[sample][i])
			}
		}
		return nil
	})
	if err != nil || !slices.Equal(seen, []int{1, 3}) {
		t.Errorf("position %d: samples %v were seen (%v), want 1 and 3", f.At(), seen, err)
	}
}

// ahead lists the values that nodes from a position on define.
func ahead(g *ir.Graph, at int) []*ir.Value {
	var values []*ir.Value
	for _, n := range g.Nodes[at:] {
		values = append(values, n.Outputs...)
	}
	return values
}

func TestFrontierShowsWhatTheGraphComputes(t *testing.T) {
	g := graphtest.Parse(t, mixed)
	l := &lab{samples: mixedSamples()}
	for _, budget := range []int{0, 500, 1} {
		t.Run(fmt.Sprint("budget ", budget), func(t *testing.T) {
			f := l.observer().Frontier(g, budget)
			if n, err := f.Samples(t.Context()); n != 4 || err != nil {
				t.Fatalf("%d samples (%v), want 4", n, err)
			}
			for to := range len(g.Nodes) + 1 {
				before := f.At()
				if err := f.Advance(t.Context(), to); err != nil {
					t.Fatal(err)
				}
				if f.At() < before || f.At() > to || budget == 0 && f.At() != to || budget == 1 && f.At() != 0 && to < len(g.Nodes) {
					t.Errorf("position %d, asked for %d", f.At(), to)
				}
				values := ahead(g, f.At())
				want := evaluate(t, g, values, l.samples)
				wantSeen(t, f, values, want)
				wantPicked(t, f, values, want)
			}
			if budget == 500 && (f.At() == 0 || f.At() < len(g.Nodes)) {
				t.Errorf("at %d of %d nodes: no value of the last one crosses", f.At(), len(g.Nodes))
			}
		})
	}
}

func TestFrontierJumpsAndKeeps(t *testing.T) {
	g := graphtest.Parse(t, mixed)
	l := &lab{samples: mixedSamples()}
	for to := range len(g.Nodes) + 1 {
		f := l.observer().Frontier(g, 0)
		f.Keep(valuesOf(g)...)
		if err := f.Advance(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		wantSeen(t, f, valuesOf(g), evaluate(t, g, valuesOf(g), l.samples))
		if len(l.nodes) != len(g.Nodes)-to && to < len(g.Nodes) {
			t.Errorf("nodes %v were evaluated again behind position %d", l.nodes, to)
		}
		if l.reads != to+1 {
			t.Errorf("the samples were read %d times, want once", l.reads-to)
		}
	}
}

func TestFrontierEvaluatesWhatLiesBetween(t *testing.T) {
	g := graphtest.Parse(t, mixed)
	l := &lab{samples: mixedSamples()}
	f := l.observer().Frontier(g, 0)
	see := func(want string, names ...string) {
		t.Helper()
		var values []*ir.Value
		for _, v := range valuesOf(g) {
			if slices.Contains(names, v.Name) {
				values = append(values, v)
			}
		}
		l.nodes = nil
		wantSeen(t, f, values, evaluate(t, g, values, l.samples))
		if have := strings.Join(l.nodes, " "); have != want {
			t.Errorf("%v took nodes %q, want %q", names, have, want)
		}
	}
	see("fc relu", "r")
	see("fc greater relu where", "some", "r")
	if err := f.Advance(t.Context(), f.Index(g.Nodes[6])); err != nil { // to where
		t.Fatal(err)
	}
	see("", "r")
	see("where sum large", "large")
	see("where sum large if", "y", "some")
}

func TestFrontierRefuses(t *testing.T) {
	g := graphtest.Parse(t, mixed)
	samples := mixedSamples()
	nothing := func(int, []*tensor.Tensor) error { return nil }
	l := &lab{samples: samples}
	f := l.observer().Frontier(g, 0)
	if err := f.Advance(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	shape := g.Nodes[1].Outputs[0]
	if err := f.See(t.Context(), []*ir.Value{shape}, nothing); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "shape lies behind") {
		t.Errorf("a value behind the position: %v", err)
	}
	inner := g.Nodes[10].Op.(interface{ Subgraphs() []*ir.Graph }).Subgraphs()[0].Inputs[2]
	if err := f.See(t.Context(), []*ir.Value{inner}, nothing); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), inner.Name) {
		t.Errorf("a value of a subgraph: %v", err)
	}
	if err := f.Advance(t.Context(), len(g.Nodes)+1); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("a position behind the end: %v", err)
	}

	none := (&lab{}).observer().Frontier(g, 0)
	for name, err := range map[string]error{"Advance": none.Advance(t.Context(), 3), "See": none.See(t.Context(), g.Outputs, nothing)} {
		if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "no calibration samples") {
			t.Errorf("%s without samples: %v", name, err)
		}
	}

	x := samples[1][0].F32s()
	for i, v := range x { // in any place, of which some are looked at together
		for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			x[i] = float32(odd)
			bad := (&lab{samples: samples}).observer().Frontier(g, 0)
			want := fmt.Sprintf("sample 2: value x: element %v", odd)
			if err := bad.See(t.Context(), g.Inputs, nothing); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v at %d: %v", odd, i, err)
			}
		}
		x[i] = v
	}
	x[0] = math.MaxFloat32
	large := (&lab{samples: samples}).observer().Frontier(g, 0)
	if err := large.See(t.Context(), g.Inputs, nothing); err != nil {
		t.Errorf("the largest float: %v", err)
	}
	samples[1][0] = tensor.New(tensor.F32, 3, 5)
	bad := (&lab{samples: samples}).observer().Frontier(g, 0)
	if err := bad.Advance(t.Context(), 1); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "input x is") {
		t.Errorf("a sample of the wrong shape: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f = (&lab{samples: mixedSamples()}).observer().Frontier(g, 0)
	err := f.See(ctx, g.Outputs, func(sample int, _ []*tensor.Tensor) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestFrontierGoesOnAfterAnError(t *testing.T) {
	g := graphtest.Parse(t, mixed)
	l := &lab{samples: mixedSamples()}
	for stop := range len(l.samples) {
		o := l.observer()
		run, broken := o.Run, errors.New("broken")
		f := o.Frontier(g, 0)
		if err := f.Advance(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		o.Run = func(ctx context.Context, g *ir.Graph, in iter.Seq2[[]*tensor.Tensor, error], see func([]*tensor.Tensor) error) error {
			seen := 0
			return run(ctx, g, in, func(out []*tensor.Tensor) error {
				if seen++; seen > stop {
					return broken
				}
				return see(out)
			})
		}
		if err := f.Advance(t.Context(), 8); !errors.Is(err, broken) {
			t.Fatalf("error %v, want %v", err, broken)
		}
		o.Run = run
		values := ahead(g, f.At())
		wantSeen(t, f, values, evaluate(t, g, values, l.samples))
		if err := f.Advance(t.Context(), 8); err != nil || f.At() != 8 {
			t.Errorf("at %d (%v), want 8", f.At(), err)
		}
		wantSeen(t, f, ahead(g, 8), evaluate(t, g, ahead(g, 8), l.samples))
	}
}

const pair = `graph "g"(%x: f32[1,2,4,4]) {
  %w1: f32[2,2,1,1] = const {1.0, -1.0, 0.5, 2.0}
  %w2: f32[3,2,1,1] = const {1.0, 2.0, -3.0, 0.25, 0.5, 1.0}
  %b2: f32[3] = const {0.5, 0.25, -0.5}
  %w3: f32[2,3,1,1] = const {1.0, 2.0, -3.0, 0.25, 0.5, 1.0}
  %a: f32[1,2,4,4] = Conv "conv_1" (%x, %w1)
  %r: f32[1,2,4,4] = Relu "relu" (%a)
  %c: f32[1,3,4,4] = Conv "conv_2" (%r, %w2, %b2)
  %y: f32[1,2,4,4] = Conv "conv_3" (%c, %w3)
  return %y
}`

// imageSamples are n samples of an input.
func imageSamples(n int, shape ...int) [][]*tensor.Tensor {
	var samples [][]*tensor.Tensor
	for i := range n {
		x := tensor.New(tensor.F32, shape...)
		for k := range x.F32s() {
			x.F32s()[k] = float32(math.Cos(float64(31*i+7*k) / 5))
		}
		samples = append(samples, []*tensor.Tensor{x})
	}
	return samples
}

func TestTwinsShowTheDenseAndThePrunedModel(t *testing.T) {
	for name, text := range map[string]string{"images": pair, "mixed": mixed} {
		t.Run(name, func(t *testing.T) {
			g := graphtest.Parse(t, text)
			samples := mixedSamples()
			if name == "images" {
				samples = imageSamples(3, 1, 2, 4, 4)
			}
			dense := evaluate(t, g, valuesOf(g), samples)

			tw := calib.NewTwins(g)
			if err := tw.Graph.Verify(); err != nil {
				t.Fatal(err)
			}
			if len(tw.Graph.Nodes) != 2*len(g.Nodes) || len(tw.Graph.Outputs) != 2*len(g.Outputs) {
				t.Fatalf("%d nodes and %d outputs, want twice those of the graph", len(tw.Graph.Nodes), len(tw.Graph.Outputs))
			}
			for i, n := range g.Nodes {
				if tw.Graph.Nodes[2*i] != tw.DenseNode(n) || tw.Graph.Nodes[2*i+1] != tw.PrunedNode(n) || tw.PrunedNode(n).Name != n.Name {
					t.Errorf("copies of %v are %v and %v", n, tw.Graph.Nodes[2*i], tw.Graph.Nodes[2*i+1])
				}
			}
			use := g.WeightUses()[0]
			pruned := use.Value.Const.Clone()
			pruned.F32s()[1], pruned.F32s()[2] = 0, 7
			rows, _ := use.View.Dims(pruned.Shape())
			bias := tensor.From([]float32{1, -1, 0.5}[:rows], rows)
			tw.SetConst(use.Value, pruned)
			tw.SetInput(use.Node, 2, bias)
			if err := tw.Graph.Verify(); err != nil {
				t.Fatal(err)
			}
			if tw.Use(use).Value.Const != pruned || tw.Dense(use.Value).Const != use.Value.Const {
				t.Error("the weight of the wrong copy changed")
			}

			l := &lab{samples: samples}
			var denseCopies, prunedCopies []*ir.Value
			for _, v := range valuesOf(g) {
				denseCopies, prunedCopies = append(denseCopies, tw.Dense(v)), append(prunedCopies, tw.Pruned(v))
			}
			use.Value.SetConst(pruned)
			use.Node.SetInput(2, g.NewConst("bias", bias))
			after := evaluate(t, g, valuesOf(g), samples)
			f := l.observer().Frontier(tw.Graph, 0)
			f.Keep(slices.Concat(denseCopies, prunedCopies)...)
			for to := range len(tw.Graph.Nodes) + 1 {
				if err := f.Advance(t.Context(), to); err != nil {
					t.Fatal(err)
				}
				wantSeen(t, f, denseCopies, dense)
				wantSeen(t, f, prunedCopies, after)
			}
		})
	}
}

func TestGoalIsTheDivergenceOfThePickedSamples(t *testing.T) {
	g := graphtest.Parse(t, mixed)
	samples := mixedSamples()
	use := g.WeightUses()[0]
	pruned := use.Value.Const.Clone()
	pruned.F32s()[0] = 0
	dense := evaluate(t, g, g.Outputs, samples)
	tw := calib.NewTwins(g)
	other := g.Clone()
	other.WeightUses()[0].Value.SetConst(pruned)
	after := evaluate(t, other, other.Outputs, samples)
	for _, budget := range []int{0, 1} { // outputs kept, and evaluated again
		for _, odd := range []bool{false, true} {
			var pick func(int) bool
			want := calib.NewDivergence(g)
			for i := range samples {
				if !odd || i%2 == 1 {
					if err := want.Add(dense[i], after[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if odd {
				pick = func(i int) bool { return i%2 == 1 }
			}
			tw.SetConst(use.Value, use.Value.Const)
			f := (&lab{samples: samples}).observer().Frontier(tw.Graph, 0)
			goal, err := tw.Goal(t.Context(), f, g, pick, budget)
			if err != nil {
				t.Fatal(err)
			}
			if d, err := goal.Divergence(t.Context(), f); d != 0 || err != nil {
				t.Errorf("the dense model diverges from itself by %v (%v)", d, err)
			}
			tw.SetConst(use.Value, pruned)
			if d, err := goal.Divergence(t.Context(), f); d != want.Value() || d == 0 || err != nil {
				t.Errorf("budget %d, odd %v: divergence %v (%v), want %v", budget, odd, d, err, want.Value())
			}
		}
	}
}

func TestTwinsAreEvaluatedOnceUntilTheyDiffer(t *testing.T) {
	g := graphtest.Parse(t, pair)
	tw := calib.NewTwins(g)
	l := &lab{samples: imageSamples(2, 1, 2, 4, 4)}
	f := l.observer().Frontier(tw.Graph, 0)
	last := g.Nodes[3]
	both := []*ir.Value{tw.Dense(last.Outputs[0]), tw.Pruned(last.Outputs[0])}
	nodes := func(want string) {
		t.Helper()
		if err := f.See(t.Context(), both, func(int, []*tensor.Tensor) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if have := strings.Join(l.nodes, " "); have != want {
			t.Errorf("nodes %q were evaluated, want %q", have, want)
		}
	}
	nodes("conv_1.dense relu.dense conv_2.dense conv_3.dense")
	if err := f.Advance(t.Context(), f.Index(tw.PrunedNode(g.Nodes[2]))); err != nil {
		t.Fatal(err)
	}
	nodes("conv_2 conv_3.dense conv_3")
	c := g.WeightUses()[1].Value
	w := c.Const.Clone()
	w.F32s()[0] = 0
	tw.SetConst(c, w)
	nodes("conv_2 conv_3.dense conv_3")
}
