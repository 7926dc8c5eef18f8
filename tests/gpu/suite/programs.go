package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spc"
	"spc/backend"
	"spc/backend/cuda"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower"
	"spc/tests/conformance"
	"spc/tests/e2e"
	"spc/tests/graphtest"
)

// Counted is a driver that counts.
type Counted struct {
	cuda.Driver
	held, launches, replays atomic.Int64
}

// Alloc counts the allocations that were not freed.
func (c *Counted) Alloc(bytes int) (cuda.Pointer, error) {
	p, err := c.Driver.Alloc(bytes)
	if err == nil {
		c.held.Add(1)
	}
	return p, err
}

// Free frees memory.
func (c *Counted) Free(p cuda.Pointer) error {
	c.held.Add(-1)
	return c.Driver.Free(p)
}

// Stream returns a stream whose launches count.
func (c *Counted) Stream() (cuda.Stream, error) {
	s, err := c.Driver.Stream()
	return &countedStream{s, c}, err
}

type countedStream struct {
	cuda.Stream
	of *Counted
}

func (s *countedStream) Launch(k cuda.Kernel, g backend.Geometry, cells []uint64) error {
	s.of.launches.Add(1)
	return s.Stream.Launch(k, g, cells)
}

func (s *countedStream) Capture(f func() error) (cuda.Graph, error) {
	g, err := s.Stream.Capture(f)
	return &countedGraph{g, s.of}, err
}

type countedGraph struct {
	cuda.Graph
	of *Counted
}

func (g *countedGraph) Launch() error {
	g.of.replays.Add(1)
	return g.Graph.Launch()
}

// pipeline compiles models and runs them on a GPU.
func pipeline(d cuda.Driver, precision tensor.DType) conformance.Pipeline {
	return conformance.Pipeline{Name: "cuda", Prepare: func(ctx context.Context, model []byte) (conformance.Run, error) {
		m, err := spc.Compile(ctx, spc.CompileOptions{Bytes: model})
		if err != nil {
			return nil, err
		}
		m.SetThreads(1)
		m.SetDevice(cuda.Device{Driver: d, Precision: precision})
		return func(ctx context.Context, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			defer m.Close()
			return conformance.InOrder(m)(ctx, in)
		}, nil
	}}
}

// Tolerances are what the relative l2 error of programs may be, by the precision of floats.
var tolerances = map[tensor.DType]float64{tensor.F32: 1e-5, tensor.F16: 1e-2, tensor.BF16: 8e-2}

// Programs tests that small programs give what the interpreter gives, and free their memory.
func Programs(t *testing.T, driver cuda.Driver, precision tensor.DType) {
	for name, text := range map[string]string{
		"integers": integers(),
		"chain": `graph "g"(%x: f32[n,4]) {
  %w: f32[4,3] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0, -2.0, 1.0, 0.75, 0.5}
  %half: f32[] = const {0.5}
  %axis: i64[] = const {0}
  %h: f32[n,3] = MatMul "fc" (%x, %w)
  %r: f32[n,3] = Relu "relu" (%h)
  %c: f32[n,3] = CumSum "sum" (%r, %axis)
  %m: f32[n,3] = Mul "mul" (%c, %h)
  %y: f32[n,3] = Add "add" (%m, %half)
  return %y, %h, %x
}`,
		"views": `graph "g"(%x: f32[n,2,6]) {
  %s: i64[3] = const {0, 3, 4}
  %one: i64[1] = const {1}
  %last: i64[1] = const {-1}
  %big: i64[1] = const {100}
  %v: f32[n,3,4] = Reshape "view" (%x, %s)
  %t: f32[4,3,n] = Transpose "t" (%v)
  %b: f32[n,4,3] = Transpose "b" (%t) {perm = [2, 0, 1]}
  %l: f32[n,3,3] = Slice "l" (%b, %one, %big, %one)
  %c: f32[n,7,3] = Concat "c" (%l, %b) {axis = 1}
  %e: f32[n,7,3] = Exp "e" (%c)
  %m: f32[n,3] = ReduceMean "m" (%e, %one) {keepdims = 0}
  return %c, %m, %v
}`,
		"edges": `graph "g"(%x: f32[n,3]) {
  %w: f32[3,2] = const {1.0, -1.0, 0.5, 2.0, 0.25, 4.0}
  %c: f32[2,1] = const {10.0, 20.0}
  %bad: f32[2] = const {inf, nan}
  %lo: f32[] = const {3.0}
  %hi: f32[] = const {1.0}
  %two: i64[] = const {2}
  %sel: f32[2,3] = const {1.0, 0.0, 0.0, 0.0, 1.0, 0.0}
  %zero: i64[1] = const {0}
  %first: f32[1,3] = ReduceMean "first" (%x, %zero) {keepdims = 1}
  %both: f32[2,3] = Mul "both" (%first, %sel)
  %g1: f32[2,2] = Gemm "columns" (%both, %w, %c)
  %g0: f32[n,2] = Gemm "without" (%x, %w, %bad) {beta = 0.0}
  %cl: f32[n,2] = Clip "clip" (%g0, %lo, %hi)
  %p: f32[n,2] = Pow "pow" (%g0, %two)
  return %g1, %g0, %cl, %p
}`,
		"taken": `graph "g"(%x: f32[n,5,6]) {
  %at: i64[2,2] = const {4, 0, -1, 2}
  %last: i64[] = const {-1}
  %pads: i64[6] = const {0, 2, -1, 1, 1, 3}
  %round: i64[4] = const {3, 2, 1, 4}
  %axes: i64[2] = const {1, 2}
  %v: f32[] = const {7.0}
  %slope: f32[5,1] = const {0.5, 0.25, -1.0, 2.0, 0.0}
  %g: f32[n,2,2,6] = Gather "rows" (%x, %at) {axis = 1}
  %l: f32[n,5] = Gather "last" (%x, %last) {axis = -1}
  %p: f32[m,8,8] = Pad "pad" (%x, %pads, %v)
  %r: f32[n,9,12] = Pad "reflect" (%x, %round, %v, %axes) {mode = "reflect"}
  %e: f32[n,5,6] = PRelu "prelu" (%x, %slope)
  return %g, %l, %p, %r, %e
}`,
		"convolutions": `graph "g"(%x: f32[n,6,9,11]) {
  %w3: f32[6,1,3,3] = const {` + weights(54) + `}
  %w5: f32[6,1,5,5] = const {` + weights(150) + `}
  %w2: f32[4,3,2,3] = const {` + weights(72) + `}
  %b: f32[6] = const {0.5, -0.25, 0.0, 1.0, 2.0, -1.0}
  %wf: f32[5,6,3,3] = const {` + weights(270) + `}
  %wp: f32[3,5,1,1] = const {` + weights(15) + `}
  %d1: f32[n,6,9,11] = Conv "d3" (%x, %w3, %b) {group = 6, pads = [1, 1, 1, 1]}
  %r1: f32[n,6,9,11] = Relu "r" (%d1)
  %d2: f32[n,6,4,6] = Conv "d3s2" (%r1, %w3) {group = 6, pads = [0, 1, 0, 2], strides = [2, 2]}
  %e1: f32[n,6,8,11] = Conv "d5" (%d1, %w5) {group = 6, pads = [2, 2, 1, 2]}
  %e2: f32[n,6,3,4] = Conv "d5s2" (%e1, %w5, %b) {group = 6, pads = [1, 0, 1, 1], strides = [2, 2]}
  %g: f32[n,4,9,11] = Conv "grouped" (%x, %w2) {group = 2, pads = [1, 1, 0, 1]}
  %f: f32[n,5,5,6] = Conv "full" (%x, %wf) {pads = [1, 1, 1, 1], strides = [2, 2]}
  %i: f32[n,5,9,9] = Conv "dilated" (%x, %wf) {dilations = [2, 2], pads = [2, 1, 2, 1]}
  %p: f32[n,3,9,9] = Conv "point" (%i, %wp)
  return %d2, %e2, %g, %f, %p
}`,
		"attention": `graph "g"(%q: f32[n,70,24], %k: f32[n,90,12], %p: f32[n,66,160], %m: f32[n,1,70,88], %d: f32[2,3,n,130], %u: f32[n,2,70,8], %w: f32[n,2,90,8], %one: f32[n,2,90,1]) {
  %see: bool[1,1,1,90] = const {1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  %a: f32[n,70,24] = Attention "mask" (%q, %k, %k, %m) {kv_num_heads = 2, q_num_heads = 4}
  %b: f32[n,70,24] = Attention "keys" (%q, %k, %k, %see) {kv_num_heads = 2, q_num_heads = 4}
  %c: f32[n,66,80] = Attention "packed" (%p, %p, %p) {is_causal = 1, kv_num_heads = 1, q_num_heads = 2, spc_packed = 1}
  %e: f32[2,3,n,130] = Attention "deep" (%d, %d, %d) {is_causal = 1, scale = 0.05}
  %f: f32[n,2,70,1] = Attention "narrow" (%u, %w, %one)
  return %a, %b, %c, %e, %f
}`,
		"folded": `graph "g"(%x: f32[n,3]) {
  %s: i64[2] = Shape "shape" (%x)
  %k: f32[n,3] = ConstantOfShape "ones" (%s)
  %e: f32[n,3] = Exp "e" (%k)
  %y: f32[n,3] = Add "add" (%x, %e)
  return %y
}`,
		"loop": `graph "g"(%x: f32[n,4], %k: i64[]) {
  %yes: bool[] = const {1}
  %r: f32[n,4] = Relu "relu" (%x)
  %z: f32[n,4] = Loop "loop" (%k, %yes, %r) {body = graph "body"(%i: i64[], %go: bool[], %v: f32[n,4]) {
    %next: f32[n,4] = Sub "sub" (%v, %r)
    return %go, %next
  }}
  %y: f32[n,4] = Sigmoid "out" (%z)
  return %y
}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := graphtest.Parse(t, text)
			d := &Counted{Driver: driver}
			p, err := cuda.Device{Driver: d, Precision: precision}.Load(lower.Lower(g), backend.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			most := int64(0)
			seeds := uint64(40) // of which some have the same shapes
			if precision != tensor.F32 {
				seeds = 24
			}
			for seed := range seeds {
				in := graphtest.Inputs(g, seed)
				var want []*tensor.Tensor
				if err := graphtest.Run(t.Context(), g, one(in), func(out []*tensor.Tensor) error {
					want = slices.Clone(out)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					have := make([]*tensor.Tensor, len(g.Outputs))
					if err := p.Run(t.Context(), in, have); err != nil {
						t.Fatal(err)
					}
					for i := range want {
						d := graphtest.Difference(want[i], have[i])
						if exact := name == "integers" && precision == tensor.F32; exact && d != 0 || !(d < tolerances[precision]) {
							t.Errorf("seed %d: output %s is off by %v: %v, want %v", seed, g.OutputName(i), d, have[i], want[i])
						}
					}
				}
				if seed == 20 {
					most = d.held.Load()
				}
				seen := 0
				if err := p.Trace(t.Context(), in, make([]*tensor.Tensor, len(g.Outputs)), func(*ir.Node, time.Duration) { seen++ }); err != nil || seen == 0 {
					t.Errorf("%d steps traced: %v", seen, err)
				}
			}
			if d.held.Load() > most {
				t.Errorf("allocations grew from %d to %d", most, d.held.Load())
			}
			if d.replays.Load() == 0 {
				t.Error("no graph of launches ran")
			}
			if err := p.Close(); err != nil || d.held.Load() != 0 {
				t.Errorf("%d allocations are left after Close: %v", d.held.Load(), err)
			}
		})
	}
}

// weights writes so many small numbers.
func weights(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", %v", float64(i*7%13-6)/16)
	}
	return b.String()[2:]
}

// one yields a single sample.
func one(in []*tensor.Tensor) func(yield func([]*tensor.Tensor, error) bool) {
	return func(yield func([]*tensor.Tensor, error) bool) { yield(in, nil) }
}

// Overlap tests that runs may overlap.
func Overlap(t *testing.T, driver cuda.Driver) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[n,4]) {
  %w: f32[4,3] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0, -2.0, 1.0, 0.75, 0.5}
  %h: f32[n,3] = MatMul "fc" (%x, %w)
  %y: f32[n,3] = Sigmoid "s" (%h)
  return %y
}`)
	d := &Counted{Driver: driver}
	p, err := cuda.Device{Driver: d}.Load(lower.Lower(g), backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := range 12 { // more shapes than are remembered
				x := tensor.New(tensor.F32, i+1, 4)
				for j := range x.F32s() {
					x.F32s()[j] = float32(k*i - j)
				}
				want, have := []*tensor.Tensor(nil), make([]*tensor.Tensor, 1)
				if err := graphtest.Run(context.Background(), g, one([]*tensor.Tensor{x}), func(out []*tensor.Tensor) error {
					want = slices.Clone(out)
					return nil
				}); err != nil {
					t.Error(err)
					return
				}
				if err := p.Run(context.Background(), []*tensor.Tensor{x}, have); err != nil {
					t.Error(err)
					return
				}
				if d := graphtest.Difference(want[0], have[0]); !(d < 1e-5) {
					t.Errorf("run %d of %d rows is off by %v", k, i+1, d)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Close(); err != nil || d.held.Load() != 0 {
		t.Errorf("%d allocations are left: %v", d.held.Load(), err)
	}
}

// Models tests the trained models of e2e. Errors of f16 and bf16 may be as much larger than that
// of f32 as a rounding is, and four times more.
func Models(t *testing.T, driver cuda.Driver) {
	if _, err := os.Stat(e2e.Root()); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	without := []string{"silero-vad", "silero-vad-ifless"} // all of them in branches, or of shapes that depend on data
	// Adds 1e-10 before a logarithm, which is 0 in f16.
	const underflows = "basic-pitch"
	for _, name := range e2e.Models {
		t.Run(name, func(t *testing.T) {
			tolerance := e2e.Tolerance
			for _, c := range []struct {
				precision tensor.DType
				rounding  float64 // over that of f32
			}{{tensor.F32, 1}, {tensor.F16, 0x1p13}, {tensor.BF16, 0x1p16}} {
				d := &Counted{Driver: driver}
				if c.precision == tensor.F16 && name == underflows {
					continue
				}
				r := e2e.Evaluate(t.Context(), pipeline(d, c.precision), name, tolerance*c.rounding)
				if r.Err != nil {
					t.Errorf("%v: %v", c.precision, r.Err)
				}
				t.Logf("%v: relative l2 error %.1e, %d launches, %v", c.precision, r.RelL2, d.launches.Load(), r.Run.Round(time.Millisecond))
				if d.held.Load() != 0 || d.launches.Load() == 0 && !slices.Contains(without, name) {
					t.Errorf("%d launches, %d allocations are left", d.launches.Load(), d.held.Load())
				}
				if c.precision == tensor.F32 {
					tolerance = 4 * r.RelL2
				}
			}
		})
	}
}

// Official tests that the official suite gives on the GPU what it gives on the CPU.
func Official(t *testing.T, driver cuda.Driver) {
	archive := filepath.Join(conformance.Shared(), conformance.Archive)
	if _, err := os.Stat(archive); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	tests, err := conformance.Load(archive)
	if err != nil {
		t.Fatal(err)
	}
	tests = conformance.Select(tests, func(t *conformance.Test) bool { return t.Group != "light" })
	d := &Counted{Driver: driver}
	launched, last := 0, int64(0)
	passed := 0
	conformance.RunAll(t.Context(), pipeline(d, tensor.F32), tests, conformance.Options{Workers: 1, Budget: time.Minute}, func(r conformance.Result) {
		switch r.Status {
		case conformance.Failed:
			t.Logf("%s/%s: %s", r.Group, r.Name, r.Reason)
		case conformance.Passed:
			passed++
		}
		if d.launches.Load() > last {
			launched++
		}
		last = d.launches.Load()
	})
	t.Logf("%d of %d tests passed, %d with kernels of the GPU; %d allocations are left", passed, len(tests), launched, d.held.Load())
	if passed < 1877 || launched < 100 || d.held.Load() != 0 {
		t.Errorf("%d tests passed, want 1877; %d launched kernels; %d allocations are left", passed, launched, d.held.Load())
	}
}
