package spc_test

import (
	"errors"
	"testing"
	"time"

	"spc"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// product is a model of one square weight, with an open number of rows.
func product(t *testing.T, rows string, n int) []byte {
	t.Helper()
	b := archs.New("product", 3)
	y := b.Node("MatMul", nil, b.Input("x", archs.Float32, rows, n), b.Weight("w", archs.LeCun(n), n, n))
	b.Output("y", y, archs.Float32, rows, n)
	model, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	return model.Bytes()
}

// A forecast is of the inputs that are given, on so many threads, and says what dense weights would take.
func TestForecast(t *testing.T) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: product(t, "batch", 256), Prune: spc.PruneOptions{Sparsity: 0.9, KeepNone: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	at := func(threads, batch int) *spc.PredictedRun {
		t.Helper()
		in := map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, batch, 256)}
		f, err := m.Forecast(threads, in)
		if err != nil || f.Predicted == nil {
			t.Fatalf("%+v, %v", f, err)
		}
		return f.Predicted
	}
	one, told := at(1, 1), m.Explain().Predicted
	if told == nil || *told != *one || one.Threads != 1 || !(one.Ms > 0) || !(one.DenseMs > one.Ms) || one.Unsized != 0 {
		t.Errorf("%+v, %+v", told, one)
	}
	many := at(1, 512)
	if !(many.Ms > 20*one.Ms) {
		t.Errorf("512 samples take %v ms, and one %v", many.Ms, one.Ms)
	}
	if two := at(2, 512); two.Threads != 2 || !(two.Ms < 0.8*many.Ms) || !(two.Ms > 0.4*many.Ms) {
		t.Errorf("two threads take %+v, one %+v", two, many)
	}
	if all := at(0, 1); all.Threads < 1 {
		t.Errorf("%+v", all)
	}
	if _, err := m.Forecast(1, map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, 1, 7)}); !errors.Is(err, spc.ErrInvalid) {
		t.Errorf("inputs that do not fit: %v", err)
	}
	for _, threads := range []int{-1, spc.MaxThreads + 1} {
		if _, err := m.Forecast(threads, nil); !errors.Is(err, spc.ErrInvalid) {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}

// What a weight was measured to take is the time of its node, whose steps do not repeat it.
func TestForecastOfWhatWasMeasured(t *testing.T) {
	const steps = 40
	b := archs.New("recurrent", 3)
	y := b.Nodes("LSTM", 1, archs.Attrs{"hidden_size": 32}, b.Input("x", archs.Float32, steps, 1, 32), b.Weight("w", archs.LeCun(32), 1, 128, 32), b.Weight("r", archs.LeCun(32), 1, 128, 32))
	b.Output("y", y[0], archs.Float32, steps, 1, 1, 32)
	model, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: model.Bytes(), Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}, Run: spc.RunOptions{Threads: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tuned, err := m.Tune(t.Context(), spc.TuneOptions{Inputs: random(m), Budget: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer tuned.Close()
	us := 0.0
	for _, l := range tuned.Explain().Layers {
		for _, c := range l.Candidates {
			if c.Chosen {
				us = max(us, c.MeasuredUs)
			}
		}
	}
	p := tuned.Explain().Predicted
	// Each weight was measured while the other was dense: with both the node is faster.
	if us == 0 || p == nil || p.Ms < 0.2e-3*us || p.Ms > 1.5e-3*us+0.02 {
		t.Errorf("a run is predicted to take %+v, and its node was measured to take %v us", p, us)
	}
	x, err := random(m)(map[string][]int{"x": {steps, 1, 32}})
	if err != nil {
		t.Fatal(err)
	}
	_, nodes, err := tuned.Profile(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Op == "LSTM" && n.Predicted.Seconds()*1e6 > 1.01*us {
			t.Errorf("the node is predicted to take %v, and was measured to take %v us", n.Predicted, us)
		}
	}
}

// A weight of two forms is predicted by the one that runs, and as dense by what it would take dense.
func TestForecastOfPairs(t *testing.T) {
	model := product(t, "T", 512)
	runs := map[string]map[int]*spc.PredictedRun{}
	for _, form := range []string{"pair", "dense"} {
		o := spc.CompileOptions{Bytes: model, Prune: spc.PruneOptions{Sparsity: 0.6, KeepNone: true}, OneFormat: form == "dense"}
		m, err := spc.Compile(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if got := m.Explain().Layers[0].Format; got != form {
			t.Fatalf("the weight is stored as %s, want %s", got, form)
		}
		runs[form] = map[int]*spc.PredictedRun{}
		for _, n := range []int{1, 4, 1024} {
			in := map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, n, 512)}
			f, err := m.Forecast(1, in)
			if err != nil {
				t.Fatal(err)
			}
			runs[form][n] = f.Predicted
			_, nodes, err := m.Profile(t.Context(), in)
			if err != nil || len(nodes) != 1 || nodes[0].Predicted == 0 {
				t.Errorf("%s, %d columns: %+v, %v", form, n, nodes, err)
			}
		}
	}
	for n, p := range runs["pair"] {
		d := runs["dense"][n]
		if p.DenseMs != d.Ms || p.Ms > d.Ms || n == 1024 && p.Ms == d.Ms {
			t.Errorf("%d columns: %+v, all dense %+v", n, p, d)
		}
	}
}
