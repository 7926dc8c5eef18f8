package spc

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"spc/backend/ref"
	"spc/internal/spool"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// block has what the passes fuse: a residual, a LayerNorm, a GELU, and an activation
// behind a product.
const block = `graph "g"(%x: f32[n,4,6]) {
  %w1: f32[6,6] = const {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.8, -0.9, 1.0, 0.1, 0.2, 0.3, -0.4, 0.5, 0.6, 0.7, -0.8, 0.9, 1.0, -0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, -0.8, 0.9, 1.0, 0.1, 0.2, -0.3, 0.4, 0.5, 0.6}
  %w2: f32[6,3] = const {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.8, -0.9, 1.0, 0.1, 0.2, 0.3, -0.4, 0.5, 0.6, 0.7, -0.8}
  %two: f32[] = const {2.0}
  %axes: i64[1] = const {-1}
  %eps: f32[] = const {1e-05}
  %half: f32[] = const {0.5}
  %one: f32[] = const {1.0}
  %root: f32[] = const {1.4142135}
  %h: f32[n,4,6] = MatMul "fc_1" (%x, %w1)
  %s: f32[n,4,6] = Add "add" (%h, %x)
  %m: f32[n,4,1] = ReduceMean "mean" (%s, %axes)
  %c: f32[n,4,6] = Sub "sub" (%s, %m)
  %p: f32[n,4,6] = Pow "pow" (%c, %two)
  %v: f32[n,4,1] = ReduceMean "variance" (%p, %axes)
  %e: f32[n,4,1] = Add "eps" (%v, %eps)
  %q: f32[n,4,1] = Sqrt "sqrt" (%e)
  %l: f32[n,4,6] = Div "norm" (%c, %q)
  %d: f32[n,4,6] = Div "div" (%l, %root)
  %erf: f32[n,4,6] = Erf "erf" (%d)
  %a: f32[n,4,6] = Add "plus" (%erf, %one)
  %b: f32[n,4,6] = Mul "times" (%l, %a)
  %gelu: f32[n,4,6] = Mul "gelu" (%b, %half)
  %f: f32[n,4,3] = MatMul "fc_2" (%gelu, %w2)
  %y: f32[n,4,3] = Relu "relu" (%f)
  return %y
}`

// samplesOf yields an input for each of the numbers of images.
func samplesOf(input string, images ...int) func(context.Context, []Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	return func(context.Context, []Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			for i, n := range images {
				x := tensor.New(tensor.F32, n, 4, 6)
				for k := range x.F32s() {
					x.F32s()[k] = float32((7*k+i)%11) / 5
				}
				if !yield(map[string]*tensor.Tensor{input: x}, nil) {
					return
				}
			}
		}
	}
}

func TestObserverSeesWhatTheInterpreterComputes(t *testing.T) {
	g := graphtest.Parse(t, block)
	o := &CompileOptions{Calibration: Calibration{Threads: 2, Inputs: samplesOf("x", 1, 3, 3, 2)}}
	var samples []*tensor.Tensor
	for s := range o.Calibration.Inputs(t.Context(), nil) {
		samples = append(samples, s["x"])
	}
	seen, done := observer(o, nil)
	defer done()
	tw := calib.NewTwins(g)
	w := g.WeightUses()[0].Value
	changed := w.Const.Clone()
	changed.F32s()[3] = 0
	tw.SetConst(w, changed)
	want := make([][]*tensor.Tensor, len(samples))
	var values []*ir.Value
	for _, n := range tw.Graph.Nodes {
		values = append(values, n.Outputs...)
	}
	all := tw.Graph.Clone()
	all.Outputs = nil
	for _, n := range all.Nodes {
		all.Outputs = append(all.Outputs, n.Outputs...)
	}
	for i, s := range samples {
		var err error
		if want[i], err = ref.Run(t.Context(), all, []*tensor.Tensor{s}); err != nil {
			t.Fatal(err)
		}
	}
	f := seen.Frontier(tw.Graph, 0)
	f.Keep(values...)
	// Few values at a time leave the rest to be fused; the last position evaluates nothing.
	for _, at := range []int{0, 10, 25, len(tw.Graph.Nodes)} {
		if err := f.Advance(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		for k, v := range values {
			if k < at && at < len(tw.Graph.Nodes) || k%7 != 0 && at < len(tw.Graph.Nodes) {
				continue
			}
			err := f.See(t.Context(), []*ir.Value{v}, func(sample int, have []*tensor.Tensor) error {
				if d := graphtest.Difference(want[sample][k], have[0]); !(d < 1e-4) {
					t.Errorf("position %d: sample %d: %s is off by %g", at, sample, v.Name, d)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMomentsAreTheSameForAnyNumberOfThreads(t *testing.T) {
	g := graphtest.Parse(t, block)
	var first *calib.Gram
	for _, threads := range []int{1, 2, 3} {
		o := &CompileOptions{Calibration: Calibration{Threads: threads, Inputs: samplesOf("x", 50, 7, 1, 30, 12)}}
		seen, done := observer(o, nil)
		gram, err := calib.GramOf(t.Context(), seen.Frontier(g, 0), g.WeightUses()[1], calib.GramOptions{})
		done()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = gram
		}
		if gram.N != 400 || !slices.Equal(gram.XX, first.XX) || !slices.Equal(gram.X, first.X) {
			t.Errorf("%d threads: the moments of %d columns differ from those on one thread", threads, gram.N)
		}
	}
}

func TestCalibratorKeepsTheOrder(t *testing.T) {
	broken := errors.New("broken")
	for _, threads := range []int{1, 2, 5} {
		sizes := []int{9, 1, 4, 1, 2, 7}
		in := func(n int, end error) iter.Seq2[[]*tensor.Tensor, error] {
			return func(yield func([]*tensor.Tensor, error) bool) {
				for _, size := range sizes[:n] {
					if !yield([]*tensor.Tensor{tensor.New(tensor.F32, size, 4, 6)}, nil) {
						return
					}
				}
				if end != nil {
					yield(nil, end)
				}
			}
		}
		var seen []int
		var taken []*tensor.Tensor
		see := func(out []*tensor.Tensor) error {
			seen, taken = append(seen, out[0].Dim(0)), append(taken, out[0])
			out[0] = nil
			return nil
		}
		run := func(n int, end error, see func([]*tensor.Tensor) error) error {
			seen, taken = nil, nil
			return calibrator(threads, nil)(t.Context(), graphtest.Parse(t, block), in(n, end), see)
		}
		if err := run(6, nil, see); err != nil || !slices.Equal(seen, sizes) {
			t.Errorf("%d threads: saw %v (%v), want %v", threads, seen, err, sizes)
		}
		for i, x := range taken {
			for _, y := range taken[:i] {
				if x.Overlaps(y) {
					t.Errorf("%d threads: outputs that were taken are used again", threads)
				}
			}
		}
		if err := run(3, broken, see); !errors.Is(err, broken) || !slices.Equal(seen, sizes[:3]) {
			t.Errorf("%d threads: saw %v before %v, want %v", threads, seen, err, sizes[:3])
		}
		err := run(6, nil, func(out []*tensor.Tensor) error {
			if see(out); len(seen) == 2 {
				return broken
			}
			return nil
		})
		if !errors.Is(err, broken) || len(seen) != 2 {
			t.Errorf("%d threads: saw %v before %v", threads, seen, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := calibrator(threads, nil)(ctx, graphtest.Parse(t, block), in(6, nil), see); !errors.Is(err, context.Canceled) {
			t.Errorf("%d threads: %v, want that of the context", threads, err)
		}
	}
}

// Samples may be made in one tensor after the other, as iterators of Go do.
func TestSamplesMayShareATensor(t *testing.T) {
	g := graphtest.Parse(t, block)
	own := samplesOf("x", 2, 2, 2, 2, 2, 2)
	shared := func(ctx context.Context, ports []Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			x := tensor.New(tensor.F32, 2, 4, 6)
			for s := range own(ctx, ports) {
				x.CopyFrom(s["x"])
				if !yield(map[string]*tensor.Tensor{"x": x}, nil) {
					return
				}
			}
		}
	}
	var grams []*calib.Gram
	for _, inputs := range []func(context.Context, []Port) iter.Seq2[map[string]*tensor.Tensor, error]{own, shared} {
		seen, done := observer(&CompileOptions{Calibration: Calibration{Threads: 3, Inputs: inputs}}, nil)
		gram, err := calib.GramOf(t.Context(), seen.Frontier(g, 0), g.WeightUses()[1], calib.GramOptions{})
		done()
		if err != nil {
			t.Fatal(err)
		}
		grams = append(grams, gram)
	}
	if !slices.Equal(grams[0].XX, grams[1].XX) {
		t.Error("samples that share a tensor are seen as others")
	}
}

// Files that are lent stay open for those that read them, though the owner has closed them.
func TestWeightsAreLent(t *testing.T) {
	w := &weights{info: &onnx.Info{}, spool: spool.New(t.TempDir())}
	x := tensor.New(tensor.F32, spooled/4)
	w.settle(x)
	if !w.spool.Has(x.Bytes()) {
		t.Skip("files are not mapped here")
	}
	first, second := w.lend(), w.lend()
	for i, close := range []func() error{w.close, first, first, second} {
		if err := close(); err != nil {
			t.Error(err)
		}
		if have := w.spool.Has(x.Bytes()); have != (i < 3) {
			t.Fatalf("after close %d: open is %t", i, have)
		}
	}
	if err := (*weights)(nil).lend()(); err != nil {
		t.Error(err)
	}
}

// Programs on samples give back what was lent to them, when they are done and when they are cancelled.
func TestProgramsOnSamplesGiveWeightsBack(t *testing.T) {
	w := &weights{}
	run := calibrator(2, w)
	in := func(yield func([]*tensor.Tensor, error) bool) {
		for range 4 {
			if !yield([]*tensor.Tensor{tensor.New(tensor.F32, 2, 4, 6)}, nil) {
				return
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, stop := range []int{9, 2} {
		seen := 0
		err := run(ctx, graphtest.Parse(t, block), in, func([]*tensor.Tensor) error {
			if w.lent.Load() != 1 {
				t.Errorf("lent to %d programs, want 1", w.lent.Load())
			}
			if seen++; seen == stop {
				cancel()
			}
			return nil
		})
		if (err != nil) != (stop == 2) {
			t.Error(err)
		}
	}
	for until := time.Now().Add(time.Minute); w.lent.Load() > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if n := w.lent.Load(); n != 0 {
		t.Errorf("still lent to %d", n)
	}
}
