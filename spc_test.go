package spc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"spc"
	"spc/internal/debug"
	_ "spc/internal/debug/all"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/spx"
	"spc/tests/archs"
	"spc/tests/conformance"
	"spc/tests/graphtest"
)

// parse makes a model of a graph as text.
func parse(t *testing.T, text string) *spc.Model {
	t.Helper()
	g, err := ir.Parse(text, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := spx.Write(&file, &spx.File{Graph: g}); err != nil {
		t.Fatal(err)
	}
	m, err := spc.Read(file.Bytes(), two)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// two has two threads run a model.
var two = spc.RunOptions{Threads: 2}

// tiny compiles one of the small architectures.
func tiny(t *testing.T, name string, o spc.CompileOptions) *spc.Model {
	t.Helper()
	for _, a := range archs.Tiny {
		if a.Name != name {
			continue
		}
		m, err := a.Build(1)
		if err != nil {
			t.Fatal(err)
		}
		o.Bytes, o.Debug.Verify = m.Bytes(), true
		c, err := spc.Compile(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Fatalf("no architecture %s", name)
	return nil
}

// randomInputs makes inputs in which every symbol has the given size.
func randomInputs(m *spc.Model, seed uint64, symbol int) map[string]*tensor.Tensor {
	return randomOf(m.Inputs(), seed, symbol)
}

// randomOf is randomInputs for inputs of any model.
func randomOf(ports []spc.Port, seed uint64, symbol int) map[string]*tensor.Tensor {
	rng := rand.New(rand.NewPCG(seed, 1))
	in := map[string]*tensor.Tensor{}
	for _, p := range ports {
		shape := make([]int, len(p.Dims))
		for i, d := range p.Dims {
			if shape[i] = symbol; d.Known() {
				shape[i] = d.Size()
			}
		}
		x := tensor.New(p.DType, shape...)
		switch p.DType {
		case tensor.F32:
			for i := range x.F32s() {
				x.F32s()[i] = float32(rng.NormFloat64())
			}
		case tensor.I64:
			for i := range tensor.Data[int64](x) {
				tensor.Data[int64](x)[i] = rng.Int64N(2)
			}
		}
		in[p.Name] = x
	}
	return in
}

// relL2 is the largest relative l2 error of got over all outputs.
func relL2(t *testing.T, got, want map[string]*tensor.Tensor) float64 {
	t.Helper()
	worst := 0.0
	for name, w := range want {
		g := got[name]
		if g == nil || g.String() != w.String() {
			t.Fatalf("output %s is %v, want %v", name, g, w)
		}
		diff, norm := 0.0, 0.0
		a, b := g.Float64s(), w.Float64s()
		for i := range a {
			diff += (a[i] - b[i]) * (a[i] - b[i])
			norm += b[i] * b[i]
		}
		worst = max(worst, math.Sqrt(diff)/max(math.Sqrt(norm), 1e-12))
	}
	return worst
}

// Every pattern and every format computes, on the CPU, from an .spx file, what
// the interpreter computes from the pruned weights.
func TestCompiledAgreesWithInterpreter(t *testing.T) {
	patterns := []string{"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:4x1", "block:2x2", "block:2x2+1:2", "channel"}
	formats := append([]spc.Format{""}, spc.Formats()...)
	for i, a := range archs.Tiny {
		for j, pattern := range patterns {
			if testing.Short() && j != i%len(patterns) { // what runs at once is the same in all
				continue
			}
			// Formats take turns, so that each meets each architecture.
			for _, format := range []spc.Format{"", formats[(i+j)%len(formats)]} {
				if a.Name == "lstm" && pattern == "channel" {
					continue // recurrent weights make no channels
				}
				t.Run(fmt.Sprintf("%s/%s/%s", a.Name, pattern, format), func(t *testing.T) {
					o := spc.CompileOptions{Format: format, Prune: spc.PruneOptions{Pattern: graphtest.Pattern(pattern), Sparsity: 0.5}}
					m := tiny(t, a.Name, o)
					var file bytes.Buffer
					if err := m.Write(&file); err != nil {
						t.Fatal(err)
					}
					r, err := spc.Read(file.Bytes(), spc.RunOptions{})
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					for symbol := 1; symbol <= 9; symbol += 8 {
						in := randomInputs(r, 7, symbol)
						want, err := m.Interpret(context.Background(), in)
						if err != nil {
							t.Fatal(err)
						}
						got, err := r.Run(context.Background(), in)
						if err != nil {
							t.Fatal(err)
						}
						if e := relL2(t, got, want); !(e < 1e-5) {
							t.Errorf("symbols %d: relative l2 error %g", symbol, e)
						}
					}
				})
			}
		}
	}
}

// Without pruning, the passes change nothing that an output shows.
func TestPassesKeepTheFunction(t *testing.T) {
	for _, a := range archs.Tiny {
		plain := tiny(t, a.Name, spc.CompileOptions{Debug: spc.DebugOptions{StopAfter: "infer"}})
		full := tiny(t, a.Name, spc.CompileOptions{})
		in := randomInputs(plain, 3, 5)
		want, err := plain.Interpret(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := full.Run(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		if e := relL2(t, got, want); !(e < 1e-5) {
			t.Errorf("%s: relative l2 error %g", a.Name, e)
		}
	}
}

func TestSameOptionsGiveSameBytes(t *testing.T) {
	o := spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.7}}
	var a, b bytes.Buffer
	if err := tiny(t, "resnet", o).Write(&a); err != nil {
		t.Fatal(err)
	}
	if err := tiny(t, "resnet", o).Write(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two compilations differ")
	}
}

func TestConcurrentRuns(t *testing.T) {
	m := tiny(t, "bert", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5}, Run: two})
	defer m.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		in := randomInputs(m, uint64(i), 1+i%4)
		want, err := m.Interpret(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range 5 {
				got, err := m.Run(context.Background(), in)
				if err != nil {
					t.Error(err)
					return
				}
				if e := relL2(t, got, want); !(e < 1e-5) {
					t.Errorf("run %d: relative l2 error %g", i, e)
				}
			}
		})
	}
	wg.Wait()
}

// Close waits for the runs in progress, and runs that come later are refused.
func TestCloseDuringRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.spx")
	if err := tiny(t, "mobilenet", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.8}}).Save(path); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		m, err := spc.Open(path, two)
		if err != nil {
			t.Fatal(err)
		}
		in := randomInputs(m, 1, 1)
		var wg sync.WaitGroup
		var some sync.WaitGroup
		some.Add(1)
		begun := sync.OnceFunc(some.Done)
		for range 4 {
			wg.Go(func() {
				defer begun()
				for {
					_, err := m.Run(context.Background(), in)
					if errors.Is(err, spc.ErrInvalid) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					begun()
				}
			})
		}
		some.Wait()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if err := m.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
	}
}

// RunInto writes into tensors that fit and replaces the others.
func TestRunIntoKeepsTensors(t *testing.T) {
	m := tiny(t, "bert", spc.CompileOptions{})
	defer m.Close()
	outputs := map[string]*tensor.Tensor{}
	for _, symbol := range []int{3, 3, 5, 3} {
		in := randomInputs(m, uint64(symbol), symbol)
		want, err := m.Run(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		had := maps.Clone(outputs)
		if err := m.RunInto(context.Background(), in, outputs); err != nil {
			t.Fatal(err)
		}
		if e := relL2(t, outputs, want); e != 0 {
			t.Errorf("relative l2 error %g", e)
		}
		for name, o := range outputs {
			if had[name].Fits(o) != (had[name] == o) {
				t.Errorf("symbols %d: output %s %v became %v", symbol, name, had[name], o)
			}
		}
	}
	if err := m.RunInto(context.Background(), randomInputs(m, 1, 1), nil); !errors.Is(err, spc.ErrInvalid) {
		t.Errorf("error %v without a map, want one that wraps ErrInvalid", err)
	}
}

// States may be inputs and outputs of a call, also those that are passed through.
func TestOutputsMayBeInputs(t *testing.T) {
	m := parse(t, `graph "g"(%x: f32[2], %y: f32[2]) {
  %z: f32[2] = Add "add" (%x, %y)
  return %z as "z", %x as "a", %y as "b"
}`)
	defer m.Close()
	x, y := tensor.From([]float32{1, 2}, 2), tensor.From([]float32{10, 20}, 2)
	in := map[string]*tensor.Tensor{"x": x, "y": y}
	out := map[string]*tensor.Tensor{"z": x, "a": y, "b": tensor.New(tensor.F32, 2)}
	if err := m.RunInto(context.Background(), in, out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]float32{"z": {11, 22}, "a": {1, 2}, "b": {10, 20}} {
		if got := out[name].F32s(); !slices.Equal(got, want) {
			t.Errorf("output %s is %v, want %v", name, got, want)
		}
	}
	if out["z"] != x {
		t.Error("the state was not written in place")
	}
}

// Tensors without the elements of their shapes, as tensor.Header makes them, are refused, and no
// output is touched then.
func TestTensorsWithoutStorageAreRefused(t *testing.T) {
	m := parse(t, `graph "g"(%x: f32[n,2], %s: sequence<f32[2]>[?1]) {
  %y: f32[n,2] = Exp "y" (%x)
  %z: i64[] = SequenceLength "z" (%s)
  return %y, %z
}`)
	defer m.Close()
	x, l := tensor.From([]float32{0, 0}, 1, 2), tensor.NewSequence(tensor.F32, tensor.New(tensor.F32, 2))
	header := tensor.Header(tensor.F32, 1, 2)
	for _, c := range []struct {
		in, out map[string]*tensor.Tensor
		want    string
	}{
		{map[string]*tensor.Tensor{"x": header, "s": l}, nil, "input x is f32[1,2] without storage"},
		{map[string]*tensor.Tensor{"x": x, "s": tensor.NewSequence(tensor.F32, tensor.Header(tensor.F32, 2))}, nil, "input s is sequence<f32>[1] without storage"},
		{map[string]*tensor.Tensor{"x": x, "s": l}, map[string]*tensor.Tensor{"y": header}, "output y is f32[1,2] without storage"},
		{map[string]*tensor.Tensor{"x": x, "s": l}, map[string]*tensor.Tensor{"y": tensor.Header(tensor.F32, 3, 2)}, "output y is f32[3,2] without storage"},
	} {
		out := c.out
		if out == nil {
			out = map[string]*tensor.Tensor{}
		}
		before := maps.Clone(out)
		runs := map[string]error{"RunInto": m.RunInto(context.Background(), c.in, out)}
		if c.out == nil {
			_, runs["Run"] = m.Run(context.Background(), c.in)
			_, runs["Interpret"] = m.Interpret(context.Background(), c.in)
			_, _, runs["Profile"] = m.Profile(context.Background(), c.in)
		}
		for name, err := range runs {
			if !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: error %v, want %q", name, err, c.want)
			}
		}
		if !maps.Equal(out, before) {
			t.Errorf("the outputs are %v after an error, want %v", out, before)
		}
	}
	if err := m.RunInto(context.Background(), map[string]*tensor.Tensor{"x": tensor.Header(tensor.F32, 0, 2), "s": l}, map[string]*tensor.Tensor{}); err != nil {
		t.Errorf("a tensor of no elements: %v", err)
	}
}

// From the second on, a run allocates nothing, whatever context it has.
func TestSteadyRunsDoNotAllocate(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks allocate
	for what, m := range map[string]*spc.Model{
		"bert": tiny(t, "bert", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5}, Run: two}),
		"lstm": tiny(t, "lstm", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5}, Run: two}),
		"elementwise": parse(t, `graph "g"(%x: f32[batch,24]) {
  %s: i64[2] = const {-1, 8}
  %r: f32[3*batch,8] = Reshape "reshape" (%x, %s)
  %b: f32[8] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}
  %a: f32[3*batch,8] = Add "add" (%r, %b)
  %n: f32[3*batch,8] = LayerNormalization "norm" (%a, %b)
  %t: f32[3*batch,8] = Tanh "tanh" (%n)
  %y: f32[3*batch,8] = Softmax "softmax" (%t) {axis = -1}
  return %y, %a, %r
}`),
	} {
		t.Run(what, func(t *testing.T) { steady(t, m) })
	}
}

// steady counts the allocations of runs after the first.
func steady(t *testing.T, m *spc.Model) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer m.Close()
	in, out := randomInputs(m, 1, 3), map[string]*tensor.Tensor{}
	if err := m.RunInto(ctx, in, out); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(5, func() {
		if err := m.RunInto(ctx, in, out); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSteadyRunsOfRealModelsDoNotAllocate(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks allocate
	for _, name := range []string{
		"mnist-8", "mobilenetv2-imagenet", "ppocrv3-det", "resnet56-cifar10", "shufflenetv2-imagenet",
		"squeezenet1.1-imagenet", "stories260k", "super-resolution", "ultraface-rfb-320", "yolox-nano",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(conformance.Shared(), "models", name, "model.onnx")
			if _, err := os.Stat(path); err != nil {
				t.Skipf("no shared model %s", name)
			}
			m, err := spc.Compile(context.Background(), spc.CompileOptions{Model: path, Run: two})
			if err != nil {
				t.Fatal(err)
			}
			steady(t, m)
		})
	}
}

func TestSaveAndOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.spx")
	m := tiny(t, "mobilenet", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.8}})
	if err := m.Save(path); err != nil {
		t.Fatal(err)
	}
	r, err := spc.Open(path, spc.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := randomInputs(m, 1, 1)
	want, err := m.Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if e := relL2(t, got, want); e != 0 {
		t.Errorf("relative l2 error %g after opening", e)
	}
	if _, err := r.Run(context.Background(), in); !errors.Is(err, spc.ErrInvalid) {
		t.Errorf("error %v after Close, want one that wraps ErrInvalid", err)
	}
	if len(r.Explain().Layers) == 0 || r.Explain().Totals != m.Explain().Totals {
		t.Error("the explanation is lost in the file")
	}
}

func TestWrongInputs(t *testing.T) {
	m := tiny(t, "mobilenet", spc.CompileOptions{})
	good := randomInputs(m, 1, 1)
	name := m.Inputs()[0].Name
	for what, in := range map[string]map[string]*tensor.Tensor{
		"name":    {"nobody": good[name]},
		"missing": {},
		"dtype":   {name: tensor.New(tensor.F64, good[name].Shape()...)},
		"rank":    {name: tensor.New(tensor.F32, 3)},
		"size":    {name: tensor.New(tensor.F32, 1, 3, 31, 32)},
	} {
		if _, err := m.Run(context.Background(), in); !errors.Is(err, spc.ErrInvalid) {
			t.Errorf("%s: error %v, want one that wraps ErrInvalid", what, err)
		}
	}
}

// Files of version 1, whose formats of 8-bit weights had names and layouts of their own, give what
// the program gave that wrote them, but for the last bits, which its kernels rounded together.
func TestFilesOfVersion1Run(t *testing.T) {
	read := func(name string) *tensor.Tensor {
		x, err := tensor.ReadNPY(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := read("version1-x.npy")
	for old, format := range map[string]string{"block8": "block", "nm8": "nm"} {
		m, err := spc.Open("testdata/version1-"+old+".spx", spc.RunOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		out, err := m.Run(t.Context(), map[string]*tensor.Tensor{"x": x})
		if want := read("version1-" + old + ".npy"); err != nil || relL2(t, out, map[string]*tensor.Tensor{"h3": want}) > 1e-6 {
			t.Errorf("%s: %v, %v", old, out, err)
		}
		if l := m.Explain().Layers[2]; l.Format != format {
			t.Errorf("%s: layer %s is in format %s", old, l.Name, l.Format)
		}
		var again bytes.Buffer
		if err := m.Write(&again); err != nil {
			t.Error(err)
		}
		if _, err := spc.Read(again.Bytes(), spc.RunOptions{}); err != nil {
			t.Errorf("%s: written again: %v", old, err)
		}
		m.Close()
	}
}

// Reports of files whose numbers do not go together are refused, with the layer.
func TestReportsThatWereTamperedWith(t *testing.T) {
	m := tiny(t, "resnet", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.8}})
	defer m.Close()
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		tamper func(l *spc.Layer)
		want   string
	}{
		"none":              {func(*spc.Layer) {}, ""},
		"no times":          {func(l *spc.Layer) { l.Candidates[1].PointsUs = []float64{} }, "times for"},
		"too few":           {func(l *spc.Layer) { l.Candidates[1].PointsUs = l.Candidates[1].PointsUs[:2] }, "has 2 times for"},
		"too many":          {func(l *spc.Layer) { l.Points = l.Points[:3] }, "times for 3 numbers of columns"},
		"times of no point": {func(l *spc.Layer) { l.Points = nil }, "times for 0 numbers of columns"},
		"no columns":        {func(l *spc.Layer) { l.Points[1].N = 0 }, "times for 0 columns"},
		"a negative size":   {func(l *spc.Layer) { l.Cols = -5 }, "want none below 0"},
		"no such point":     {func(l *spc.Layer) { l.Candidates[0].ScaledPoints = []int{len(l.Points)} }, "is scaled at"},
		"a negative time":   {func(l *spc.Layer) { l.Candidates[0].PointsUs[0] = -1 }, "below 0"},
	} {
		f, err := spx.Read(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var r spc.Report
		if err := json.Unmarshal(f.Explain, &r); err != nil {
			t.Fatal(err)
		}
		l := &r.Layers[len(r.Layers)-2]
		test.tamper(l)
		if f.Explain, err = json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := spx.Write(&out, f); err != nil {
			t.Fatal(err)
		}
		opened, err := spc.Read(out.Bytes(), two)
		if test.want == "" && err == nil {
			opened.Close()
			continue
		}
		if !errors.Is(err, spc.ErrCorrupt) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "layer "+l.Name) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
