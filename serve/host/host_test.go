package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spc"
	"spc/data"
	"spc/ir/tensor"
	"spc/serve/host"
	"spc/serve/queue"
	"spc/tests/archs"
)

// build compiles what a function makes.
func build(t *testing.T, f func(b *archs.Builder)) *spc.Model {
	t.Helper()
	b := archs.New("model", 17)
	f(b)
	a, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := a.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: file.Bytes(), Run: spc.RunOptions{Threads: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hosted(t *testing.T, c host.Config, f func(b *archs.Builder)) *host.Model {
	t.Helper()
	h, err := host.New(t.Context(), build(t, f), c, queue.New(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func random(t *testing.T, seed int, dt tensor.DType, bound int, shape ...int) *tensor.Tensor {
	t.Helper()
	x, err := data.Random{Seed: uint64(seed)}.Tensor("x", dt, shape, bound)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// images is a small network whose rows do not depend on each other.
func images(b *archs.Builder) {
	x := b.Input("x", archs.Float32, "n", 3, 8, 8)
	x = b.Node("Relu", nil, b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}}, x, b.Weight("c", archs.He(27), 8, 3, 3, 3)))
	x = b.Node("Flatten", nil, b.Node("GlobalAveragePool", nil, x))
	b.Output("y", b.Node("Gemm", nil, x, b.Weight("w", archs.He(8), 8, 5)), archs.Float32, "n", 5)
}

// far is how far two tensors are from each other, by the largest difference over the largest element.
func far(a, b *tensor.Tensor) float64 {
	if !slices.Equal(a.Shape(), b.Shape()) {
		return math.Inf(1)
	}
	d, m := 0.0, 1e-30
	for i, v := range a.F32s() {
		d, m = max(d, math.Abs(float64(v-b.F32s()[i]))), max(m, math.Abs(float64(v)))
	}
	return d / m
}

func TestRequestsRunTogether(t *testing.T) {
	h := hosted(t, host.Config{MaxQueueDelayMicroseconds: 2000}, images) // so that they meet on one processor, too
	if n, why := h.Batch(); n != host.DefaultBatch || why != "" {
		t.Fatalf("batches of %d, %s", n, why)
	}
	const clients, each = 24, 20
	var wg sync.WaitGroup
	for c := range clients {
		rows := 1 + c%3
		in := map[string]*tensor.Tensor{"x": random(t, c, tensor.F32, 0, rows, 3, 8, 8)}
		want, err := h.Spc().Run(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range each {
				out, err := h.Infer(t.Context(), &host.Request{Inputs: in})
				if err != nil {
					t.Error(err)
					return
				}
				if d := far(out["y"], want["y"]); d > 1e-5 {
					t.Errorf("%d rows are %v beside others, %v alone: %g apart", rows, out["y"], want["y"], d)
				}
			}
		})
	}
	wg.Wait()
	s := h.Statistics()
	if s.Requests != clients*each || s.Rows != 2*s.Requests || s.Runs >= s.Requests || s.Success.Count != s.Requests || s.Fail.Count != 0 {
		t.Errorf("%+v: want %d requests in fewer runs, of two rows in the mean", s, clients*each)
	}
	runs, rows := int64(0), int64(0)
	for n, b := range s.Batches {
		if n > host.DefaultBatch {
			t.Errorf("a run of %d rows", n)
		}
		runs, rows = runs+b.Infer.Count, rows+int64(n)*b.Infer.Count
	}
	if runs != s.Runs || rows != s.Rows {
		t.Errorf("batches of %d rows in %d runs, want %d in %d", rows, runs, s.Rows, s.Runs)
	}
}

func TestARequestAloneIsARun(t *testing.T) {
	h := hosted(t, host.Config{}, images)
	in := map[string]*tensor.Tensor{"x": random(t, 1, tensor.F32, 0, 1, 3, 8, 8)}
	want, err := h.Spc().Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if out, err := h.Infer(t.Context(), &host.Request{Inputs: in}); err != nil || !out["y"].Equal(want["y"]) {
			t.Fatalf("%v, %v, want %v", out["y"], err, want["y"])
		}
	}
}

func TestWhatDoesNotRunTogether(t *testing.T) {
	eight := 8
	for name, c := range map[string]struct {
		model func(b *archs.Builder)
		why   string
	}{
		"a size that is set": {func(b *archs.Builder) {
			b.Output("y", b.Node("Relu", nil, b.Input("x", archs.Float32, 1, 3)), archs.Float32, 1, 3)
		}, "the first axis of x has the size 1"},
		"rows that are added up": {func(b *archs.Builder) {
			x := b.Input("x", archs.Float32, "n", 3)
			b.Output("y", b.Node("Sub", nil, x, b.Node("ReduceMean", archs.Attrs{"axes": []int{0}}, x)), archs.Float32, "n", 3)
		}, "a row of y is another one beside other rows"},
		"steps of time": {func(b *archs.Builder) {
			b.Output("y", b.Node("CumSum", nil, b.Input("x", archs.Float32, "steps", 3), b.Index(0)), archs.Float32, "steps", 3)
		}, "a row of y is another one beside other rows"},
		"another axis of the output": {func(b *archs.Builder) {
			b.Output("y", b.Node("Transpose", nil, b.Input("x", archs.Float32, "n", 3)), archs.Float32, 3, "n")
		}, "the first axis of y has the size 3"},
		"two symbols": {func(b *archs.Builder) {
			b.Output("y", b.Node("MatMul", nil, b.Input("a", archs.Float32, "m", 3), b.Node("Transpose", nil, b.Input("b", archs.Float32, "n", 3))), archs.Float32, "m", "n")
		}, "the first axis of b is n, of others m"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hosted(t, host.Config{}, c.model)
			if n, why := h.Batch(); n != 1 || !strings.Contains(why, c.why) {
				t.Errorf("batches of %d rows, %q, want %q", n, why, c.why)
			}
			m := build(t, c.model)
			defer m.Close()
			if _, err := host.New(t.Context(), m, host.Config{MaxBatchSize: &eight}, queue.New(1), nil); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("batches of 8 that were asked for: %v, want %q", err, c.why)
			}
		})
	}
}

// What is wrong with one request is no error of those that run with it.
func TestErrorsAreOfTheirRequests(t *testing.T) {
	h := hosted(t, host.Config{MaxQueueDelayMicroseconds: 20000}, func(b *archs.Builder) {
		b.Output("y", b.Node("Gather", nil, b.Weight("table", archs.He(1), 10, 4), b.Input("x", archs.Int64, "n", 2)), archs.Float32, "n", 2, 4)
	})
	if n, why := h.Batch(); n < 2 {
		t.Fatal(why)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			at := int64(i % 10)
			if i == 7 {
				at = 10
			}
			out, err := h.Infer(t.Context(), &host.Request{Inputs: map[string]*tensor.Tensor{"x": tensor.From([]int64{at, 0}, 1, 2)}})
			if (err != nil) != (i == 7) || err == nil && !slices.Equal(out["y"].Shape(), []int{1, 2, 4}) {
				t.Errorf("request %d of index %d: %v, %v", i, at, out["y"], err)
			}
		})
	}
	wg.Wait()
}

func TestInputsAreChecked(t *testing.T) {
	h := hosted(t, host.Config{}, func(b *archs.Builder) {
		b.Output("y", b.Node("Add", nil, b.Input("a", archs.Float32, "n", 3), b.Input("b", archs.Float32, "n", 3)), archs.Float32, "n", 3)
	})
	of := func(n int) *tensor.Tensor { return tensor.New(tensor.F32, n, 3) }
	for want, in := range map[string]map[string]*tensor.Tensor{
		"input b: missing, want f32[n,3]":  {"a": of(1)},
		"input b: f32[1,4], want f32[n,3]": {"a": of(1), "b": tensor.New(tensor.F32, 1, 4)},
		"input a: i64[1,3], want f32[n,3]": {"a": tensor.New(tensor.I64, 1, 3), "b": of(1)},
		"input a: f32[3], want f32[n,3]":   {"a": tensor.New(tensor.F32, 3), "b": of(1)},
		"input b has 2 rows, input a 1":    {"a": of(1), "b": of(2)},
		"the model has no input c":         {"a": of(1), "b": of(1), "c": of(1)},
	} {
		if _, err := h.Infer(t.Context(), &host.Request{Inputs: in}); !errors.Is(err, spc.ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, n := range []int{0, 1, 5, 40} {
		if out, err := h.Infer(t.Context(), &host.Request{Inputs: map[string]*tensor.Tensor{"a": of(n), "b": of(n)}}); err != nil || out["y"].Dim(0) != n {
			t.Errorf("%d rows: %v, %v", n, out["y"], err)
		}
	}
	if s := h.Statistics(); s.Fail.Count != 6 || s.Success.Count != 4 {
		t.Errorf("%+v", s)
	}
}

// running sums what it is given to what it has.
func running(b *archs.Builder) {
	sum := b.Node("Add", nil, b.Input("x", archs.Float32, "n", 2), b.Input("before", archs.Float32, "n", 2))
	b.Output("after", b.Node("Identity", nil, sum), archs.Float32, "n", 2)
	b.Output("twice", b.Node("Mul", nil, sum, b.Scalar(2)), archs.Float32, "n", 2)
}

func TestSequences(t *testing.T) {
	h := hosted(t, host.Config{States: map[string]string{"after": "before"}, MaxSequences: 2, MaxSequenceIdleMicroseconds: 200000}, running)
	ask := func(id string, start, end bool, x float32) (float32, error) {
		r := &host.Request{Inputs: map[string]*tensor.Tensor{"x": tensor.From([]float32{x, 0}, 1, 2)}, Sequence: &host.Sequence{ID: id, Start: start, End: end}}
		out, err := h.Infer(t.Context(), r)
		if err != nil {
			return 0, err
		}
		return out["twice"].F32s()[0] / 2, nil
	}
	for i, c := range []struct {
		id         string
		start, end bool
		x, want    float32
		err        error
	}{
		{"a", false, false, 1, 0, host.ErrSequence},
		{"a", true, false, 1, 1, nil},
		{"b", true, false, 10, 10, nil},
		{"a", false, false, 2, 3, nil},
		{"b", false, false, 20, 30, nil},
		{"c", true, false, 1, 0, host.ErrSequences},
		{"a", false, true, 4, 7, nil},
		{"a", false, false, 1, 0, host.ErrSequence},
		{"c", true, false, 5, 5, nil},
		{"b", true, false, 1, 1, nil}, // from the start again
		{"", true, false, 1, 0, spc.ErrInvalid},
	} {
		if got, err := ask(c.id, c.start, c.end, c.x); !errors.Is(err, c.err) || got != c.want {
			t.Errorf("request %d, of %s: %v, %v, want %v, %v", i, c.id, got, err, c.want, c.err)
		}
	}
	time.Sleep(250 * time.Millisecond)
	if _, err := ask("b", false, false, 1); !errors.Is(err, host.ErrSequence) {
		t.Errorf("a sequence that was idle: %v", err)
	}
	for _, id := range []string{"d", "e"} { // in the place of those that were
		if _, err := ask(id, true, false, 1); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	for range 50 { // one after the other
		wg.Go(func() {
			if _, err := ask("d", false, false, 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := ask("d", false, false, 0); err != nil || got != 51 {
		t.Errorf("51 ones are %v, %v", got, err)
	}
	if n, why := h.Batch(); n != 1 || why != "it has states" {
		t.Errorf("batches of %d, %s", n, why)
	}
}

func TestStatesAreChecked(t *testing.T) {
	for want, states := range map[string]map[string]string{
		"states: the model has no output x":                     {"x": "before"},
		"states: the model has no input other":                  {"after": "other"},
		"states: output flags is i64[n], input before f32[n,2]": {"flags": "before"},
	} {
		m := build(t, func(b *archs.Builder) {
			running(b)
			b.Output("flags", b.Node("Identity", nil, b.Input("f", archs.Int64, "n")), archs.Int64, "n")
		})
		defer m.Close()
		if _, err := host.New(t.Context(), m, host.Config{States: states}, queue.New(1), nil); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestConfigs(t *testing.T) {
	c, err := host.ParseConfig([]byte("max_batch_size: 4\nthreads: 2\nstates: {after: before}\ncompile: {sparsity: 0.5, keep: [a, b]}\n"), host.Config{Threads: 1})
	if err != nil || *c.MaxBatchSize != 4 || c.Threads != 2 || c.States["after"] != "before" || fmt.Sprint(c.Compile) != "map[keep:[a b] sparsity:0.5]" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := host.ParseConfig(nil, host.Config{Threads: 7}); err != nil || c.MaxBatchSize != nil || c.Threads != 7 {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"max_batch: 4":                     "field max_batch not found",
		"threads: -1":                      "threads is -1, want from 0 to 4096",
		"max_batch_size: 100000":           "max_batch_size is 100000, want from 0 to 65536",
		"states: {a: x, b: x}":             "both a and b become x",
		"threads: many":                    "cannot",
		"threads: 1\n---\nthreads: 2":      "more than one document",
		"timeout_microseconds: 9999999999": "timeout_microseconds is 9999999999",
	} {
		if _, err := host.ParseConfig([]byte(text), host.Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Who no longer waits for a run gets nothing of it, and does not touch what it goes on to write.
func TestRequestsThatAreGivenUp(t *testing.T) {
	h := hosted(t, host.Config{}, images)
	x := random(t, 1, tensor.F32, 0, 4000, 3, 8, 8)
	late := 0
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*500*time.Microsecond)
		out, err := h.Infer(ctx, &host.Request{Inputs: map[string]*tensor.Tensor{"x": x}})
		cancel()
		if (err == nil) != (out != nil) {
			t.Errorf("after %d us: %d outputs, %v", 500*(1+i), len(out), err)
		}
		if err != nil {
			late++
		}
	}
	if late == 0 {
		t.Error("all runs ended in time")
	}
}
