package spc_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spc"
	"spc/data"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/tests/graphtest"
)

// random makes inputs for tuning m.
func random(m *spc.Model) func(shapes map[string][]int) (map[string]*tensor.Tensor, error) {
	return func(shapes map[string][]int) (map[string]*tensor.Tensor, error) {
		in := map[string]*tensor.Tensor{}
		for _, p := range m.Inputs() {
			t, err := data.Random{Seed: 3}.Tensor(p.Name, p.DType, shapes[p.Name], p.Bound)
			if err != nil {
				return nil, err
			}
			in[p.Name] = t
		}
		return in, nil
	}
}

// A tuned model computes what it did before, says what was measured and which program was kept, and so does the file that it is saved in;
// it can be tuned again.
func TestTune(t *testing.T) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{
		Bytes: openModel(t), Prune: spc.PruneOptions{Sparsity: 0.8, KeepNone: true}, Run: spc.RunOptions{Threads: 1},
		Open: map[string]spc.Sizes{"T": {From: 1, To: 64, Only: []int{1, 64}}, "batch": {From: 1, To: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := random(m)(map[string][]int{"x": {2, 9, 40}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.Interpret(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(m.Explain().Layers)
	model := m
	for again := range 2 {
		tuned, err := model.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Budget: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer tuned.Close()
		got, err := tuned.Run(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		for name := range want {
			if d := graphtest.Difference(want[name], got[name]); !(d <= 1e-5) {
				t.Errorf("output %s differs by %v", name, d)
			}
		}
		checkTuned(t, m, tuned)
		if told := tuned.Explain().Tuned; (told.Known == 3) != (again == 1) {
			t.Errorf("%d of the products were known from before: %+v", told.Known, told)
		}
		file := filepath.Join(t.TempDir(), "tuned.spx")
		if err := tuned.Save(file); err != nil {
			t.Fatal(err)
		}
		if model, err = spc.Open(file, spc.RunOptions{Threads: 1}); err != nil {
			t.Fatal(again, err)
		}
		defer model.Close()
		checkTuned(t, m, model)
	}
	if after := fmt.Sprint(m.Explain().Layers); after != before {
		t.Error("the model that was tuned is another one afterwards")
	}
}

// checkTuned checks what the report of a tuned model says.
func checkTuned(t *testing.T, m, tuned *spc.Model) {
	t.Helper()
	r := tuned.Explain()
	told := r.Tuned
	if told == nil || told.Threads != 1 || told.Measured+told.Known != 3 || told.Measured > 0 && !(told.Seconds > 0) || len(told.Places) != 2 {
		t.Fatalf("%+v", told)
	}
	if n := told.Places[1].Shapes["x"]; !slices.Equal(n, []int{1, 64, 40}) || !slices.Contains([]string{"dense", "measured", "predicted"}, told.Kept) {
		t.Errorf("kept %s, places %+v", told.Kept, told.Places)
	}
	for i, l := range r.Layers {
		chosen := 0
		for _, c := range l.Candidates {
			if c.Chosen {
				chosen++
				if c.Format != l.Format || c.Config != l.Config {
					t.Errorf("%s is %s %s, of the candidates %s %s is chosen", l.Name, l.Format, l.Config, c.Format, c.Config)
				}
			}
			if c.Format == choose.Dense && !(c.MeasuredUs > 0) {
				t.Errorf("%s: dense was not measured", l.Name)
			}
			if c.Why == "" {
				t.Errorf("%s: nothing is said of %s", l.Name, c.Format)
			}
		}
		if chosen != 1 || l.Nonzeros != m.Explain().Layers[i].Nonzeros || l.Prunable != m.Explain().Layers[i].Prunable {
			t.Errorf("%s: %d candidates are chosen; %+v", l.Name, chosen, l)
		}
	}
	got, was := r.Totals, m.Explain().Totals
	if got.StoredBytes == 0 {
		t.Errorf("%+v", got)
	}
	if got.StoredBytes, was.StoredBytes = 0, 0; got != was {
		t.Errorf("totals %+v, were %+v", got, was)
	}
}

// Weights of 16 bits and of integers are measured as they are stored.
func TestTuneOtherTypes(t *testing.T) {
	for name, dt := range map[string]tensor.DType{"bf16": tensor.BF16, "int8": tensor.I8} {
		o := spc.CompileOptions{
			Bytes: openModel(t), Prune: spc.PruneOptions{Sparsity: 0.8, KeepNone: true}, Run: spc.RunOptions{Threads: 1},
			Dims: map[string]int{"T": 16, "batch": 2}, Quantize: spc.QuantizeOptions{Type: dt, KeepNone: true},
		}
		if dt == tensor.I8 {
			o.Calibration = spc.Calibration{Inputs: samples(3, nil)}
		}
		m, err := spc.Compile(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		tuned, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Budget: 30 * time.Second})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		x, err := random(m)(map[string][]int{"x": {2, 16, 40}})
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.Run(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tuned.Run(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		for out := range want {
			if d := graphtest.Difference(want[out], got[out]); !(d <= 1e-5) {
				t.Errorf("%s: output %s differs by %v", name, out, d)
			}
		}
		for i, l := range tuned.Explain().Layers {
			if l.DType != m.Explain().Layers[i].DType {
				t.Errorf("%s: %s is %s, was %s", name, l.Name, l.DType, m.Explain().Layers[i].DType)
			}
		}
		tuned.Close()
		m.Close()
	}
}

// Where there is nothing to choose nothing is measured.
func TestTuneDense(t *testing.T) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: openModel(t), Dims: map[string]int{"T": 8, "batch": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tuned, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Budget: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer tuned.Close()
	if told := tuned.Explain().Tuned; told.Measured != 0 || told.Known != 0 || told.Kept != "dense" || told.Places != nil {
		t.Errorf("%+v", told)
	}
	for i, l := range tuned.Explain().Layers {
		if was := m.Explain().Layers[i]; l.Format != was.Format || l.Reason != was.Reason {
			t.Errorf("%s: %s, was %s", l.Name, l.Reason, was.Reason)
		}
	}
}

// Where the time does not suffice formats stay as they are predicted, and the report warns.
func TestTooLittleTimeToTune(t *testing.T) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{
		Bytes: openModel(t), Prune: spc.PruneOptions{Sparsity: 0.8, KeepNone: true}, Dims: map[string]int{"T": 8, "batch": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tuned, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Budget: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer tuned.Close()
	r := tuned.Explain()
	if w := r.Warnings(); len(w) != 1 || !strings.Contains(w[0], "nothing was measured, formats are as predicted: too little time") || r.Tuned.Kept != "predicted" {
		t.Errorf("%q, %+v", w, r.Tuned)
	}
	for i, l := range r.Layers {
		if was := m.Explain().Layers[i]; l.Format != was.Format || l.Reason != was.Reason || l.Candidates[0].MeasuredUs != 0 {
			t.Errorf("%s: %s, was %s", l.Name, l.Reason, was.Reason)
		}
	}
}

// A model that was tuned stays as it is where there is too little time to do so again.
func TestTooLittleTimeToTuneAgain(t *testing.T) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{
		Bytes: openModel(t), Prune: spc.PruneOptions{Sparsity: 0.8, KeepNone: true}, Dims: map[string]int{"T": 8, "batch": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	first, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Budget: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	again, err := first.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Budget: time.Nanosecond, Anew: true})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if w := again.Explain().Warnings(); len(w) != 1 || !strings.Contains(w[0], "nothing was measured, formats are as they were tuned before: ") {
		t.Errorf("%q", w)
	}
	if a, b := fmt.Sprint(first.Explain().Layers), fmt.Sprint(again.Explain().Layers); a != b {
		t.Errorf("layers were %s, and are %s", a, b)
	}
}

// Inputs that no machine should be given are not made.
func TestTooLargeToTune(t *testing.T) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{
		Bytes: openModel(t), Prune: spc.PruneOptions{Sparsity: 0.8, KeepNone: true}, Dims: map[string]int{"T": 1 << 20, "batch": 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tuned, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m)})
	if err != nil {
		t.Fatal(err)
	}
	defer tuned.Close()
	if w := tuned.Explain().Warnings(); len(w) != 1 || !strings.Contains(w[0], "inputs of 83886080 elements are too many to measure") {
		t.Errorf("%q", w)
	}
}

func TestWhatCannotBeTuned(t *testing.T) {
	prune := spc.PruneOptions{Sparsity: 0.8, KeepNone: true}
	dims := map[string]int{"T": 8, "batch": 1}
	broken := errors.New("no inputs")
	for name, c := range map[string]struct {
		o    spc.CompileOptions
		t    spc.TuneOptions
		want string
	}{
		"another target":   {spc.CompileOptions{Target: spc.CUDA, Dims: dims}, spc.TuneOptions{}, "Target cuda: what is measured is the CPU, want a model for cpu"},
		"one format":       {spc.CompileOptions{Format: "ell", Dims: dims}, spc.TuneOptions{}, "Format ell: want auto"},
		"a number below 0": {spc.CompileOptions{Dims: dims}, spc.TuneOptions{Forms: -1}, "-1 forms in 0s, want none below 0"},
		"no inputs": {spc.CompileOptions{Dims: dims}, spc.TuneOptions{Inputs: func(map[string][]int) (map[string]*tensor.Tensor, error) { return nil, broken }},
			"no inputs"},
	} {
		c.o.Bytes, c.o.Prune = openModel(t), prune
		m, err := spc.Compile(t.Context(), c.o)
		if err != nil {
			t.Fatal(err)
		}
		if c.t.Inputs == nil {
			c.t.Inputs = random(m)
		}
		tuned, err := m.Tune(t.Context(), c.t)
		if err == nil || tuned != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if _, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m)}); err == nil {
			t.Errorf("%s: a closed model is tuned", name)
		}
	}
}

// A file of timings keeps models from being measured again, whatever their names; one that is damaged, or of another machine,
// is refused or replaced.
func TestTimings(t *testing.T) {
	o := spc.CompileOptions{
		Bytes: openModel(t), Prune: spc.PruneOptions{Sparsity: 0.8, KeepNone: true}, Dims: map[string]int{"T": 8, "batch": 1}, Run: spc.RunOptions{Threads: 1},
	}
	file := filepath.Join(t.TempDir(), "timings.json")
	var first []spc.Layer
	for i, want := range []int{3, 0} {
		m, err := spc.Compile(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		tuned, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Budget: 30 * time.Second, Timings: file})
		if err != nil {
			t.Fatal(err)
		}
		told := tuned.Explain().Tuned
		if told.Measured != want || told.Measured+told.Known != 3 {
			t.Errorf("compile %d: %d measured, %d known", i, told.Measured, told.Known)
		}
		if first == nil {
			first = tuned.Explain().Layers
		} else if a, b := fmt.Sprint(first), fmt.Sprint(tuned.Explain().Layers); a != b {
			t.Errorf("the second compile chose\n%s\nthe first\n%s", b, a)
		}
		tuned.Close()
		m.Close()
	}
	if err := spc.CheckTimings(file, false); err != nil {
		t.Error(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Wherever a file is cut off, it is corrupt.
	for n := range len(bytes.TrimSpace(good)) {
		if err := os.WriteFile(file, good[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		if err := spc.CheckTimings(file, false); !errors.Is(err, spc.ErrCorrupt) {
			t.Errorf("cut off after %d of %d bytes: %v", n, len(good), err)
		}
	}
	m, err := spc.Compile(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Tune(t.Context(), spc.TuneOptions{}); err == nil || !strings.Contains(err.Error(), "TuneOptions.Inputs is missing") {
		t.Errorf("without inputs: %v", err)
	}
	// A file that cannot be written is a warning.
	unkept, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Timings: filepath.Join(t.TempDir(), "no", "such.json")})
	if err != nil {
		t.Fatal(err)
	}
	defer unkept.Close()
	if w := unkept.Explain().Warnings(); len(w) != 1 || !strings.Contains(w[0], "what was measured is not kept for other models: ") {
		t.Errorf("%q", w)
	}
	for name, c := range map[string]struct{ content, want string }{
		"damaged":         {string(good[:len(good)/2]), "corrupt file"},
		"another version": {strings.Replace(string(good), `"version": 1`, `"version": 9`, 1), "timings of version 9, want 1"},
		"another machine": {strings.Replace(string(good), `"machine": "`, `"machine": "not `, 1), "another machine or build"},
	} {
		if err := os.WriteFile(file, []byte(c.content), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Timings: file})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
		if err := spc.CheckTimings(file, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: checked as %v", name, err)
		}
		tuned, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Timings: file, Anew: true, Budget: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		tuned.Close()
		if err := spc.CheckTimings(file, false); err != nil {
			t.Errorf("%s, made anew: %v", name, err)
		}
	}
	// No other file takes its place.
	if err := os.WriteFile(file, o.Bytes, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Timings: file, Anew: true})
	if b, _ := os.ReadFile(file); err == nil || !strings.Contains(err.Error(), "want a file of timings to make anew") || !bytes.Equal(b, o.Bytes) {
		t.Errorf("a model in the place of timings: %v", err)
	}
}
