package spc_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/data"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// lopsided is the perceptron with a channel before its second product that is a thousand times as large as others, and hardly weighs there: in steps
// of 8 bits for all channels little is left of the others.
func lopsided(t *testing.T) []byte {
	t.Helper()
	const width, loud = 48, 3
	rng := rand.New(rand.NewPCG(5, 0))
	b := archs.New("lopsided", 17)
	x := b.Input("x", archs.Float32, "batch", width)
	for i, name := range []string{"first", "second", "third"} {
		w := &onnxpb.TensorProto{DataType: int32(archs.Float32), Dims: []int64{width, width}}
		for at := range width * width {
			v := float32(rng.NormFloat64() * math.Sqrt(2./width))
			if i == 0 && at%width == loud {
				v *= 1000
			}
			if i == 1 && at/width == loud {
				v /= 1000
			}
			w.FloatData = append(w.FloatData, v)
		}
		x = b.Node("Relu", nil, b.Node("MatMul", nil, x, b.Initializer(name, w)))
	}
	b.Output("y", b.Node("MatMul", nil, x, b.Weight("last", archs.He(width), width, 5)), archs.Float32, "batch", 5)
	m, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := m.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// shown is the size of the file of a model, and its outputs for an input that nothing else sees.
func shown(t *testing.T, m *spc.Model) (size int, y []float32) {
	t.Helper()
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		t.Fatal(err)
	}
	x, err := data.Random{Seed: 99}.Tensor("x", tensor.F32, []int{16, 48}, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Run(t.Context(), map[string]*tensor.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	return file.Len(), out["y"].F32s()
}

// apart is the share of the energy of want by which have differs.
func apart(want, have []float32) float64 {
	sum, all := 0.0, 0.0
	for i, v := range want {
		d := float64(v) - float64(have[i])
		sum, all = sum+d*d, all+float64(v)*float64(v)
	}
	return sum / all
}

func compiled(t *testing.T, o spc.CompileOptions) *spc.Model {
	t.Helper()
	m, err := spc.Compile(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// A layer that integers ruin stays in floats, though others that could be smaller in zeros are in integers; whether the database is kept changes nothing;
// and what the report names makes the same model again.
func TestMixedBudgetsKeepWhatIntegersRuin(t *testing.T) {
	thorough(t)
	o, b := forBudget(t)
	o.Bytes = lopsided(t)
	dense := o
	dense.Calibration = spc.Calibration{}
	size, want := shown(t, compiled(t, dense))
	o.Quantize.Type = tensor.I8
	all := o
	all.Quantize.KeepNone = true
	if _, y := shown(t, compiled(t, all)); apart(want, y) < 0.1 {
		t.Fatalf("in integers the outputs are off by %v, want a model that they ruin", apart(want, y))
	}
	b.Mixed, b.Size = true, int64(size-12000)
	b.Evaluate = func(_ context.Context, _ *spc.Model) ([]float64, error) { return make([]float64, 4), nil } // so that all samples calibrate
	o.Calibration.Identity = "noise"
	var found []spc.BudgetPoint
	for _, cache := range []string{"", filepath.Join(t.TempDir(), "layers"), "again"} {
		if cache == "again" {
			cache = o.Calibration.Cache
		}
		var stages []string
		o.Calibration.Cache = cache
		o.Progress = func(stage string, _, _ int) { stages = append(stages, stage) }
		m, err := spc.CompileWithin(t.Context(), o, b)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		tried := m.Explain().Budget.Tried
		p := tried[len(tried)-1]
		if found = append(found, p); len(found) == 3 {
			for _, stage := range []string{"times", "database", "effects", "rounding"} {
				if slices.Contains(stages, stage) {
					t.Errorf("with a file there is a stage %s", stage)
				}
			}
		}
		if p.Integers < 2 || !slices.Equal(p.KeepFloat, []string{"second"}) || m.Explain().Budget.Types != "mixed" {
			t.Errorf("%d layers in integers, but not %q", p.Integers, p.KeepFloat)
		}
		got, y := shown(t, m)
		if d := apart(want, y); got > size-12000 || d > 0.01 {
			t.Errorf("%d bytes, want %d; the outputs are off by %v", got, size-12000, d)
		}
		for _, l := range m.Explain().Layers {
			if ints := l.DType == "i8"; ints == slices.Contains(p.KeepFloat, l.Weight) {
				t.Errorf("%s is of %s, but %q are not in integers", l.Weight, l.DType, p.KeepFloat)
			}
		}
		again := o
		again.Calibration.Cache, again.Quantize.KeepFloat, again.Quantize.KeepNone, again.Progress = "", p.KeepFloat, true, nil
		for _, text := range p.Layers {
			l, err := spc.ParseLayerSparsity(text)
			if err != nil {
				t.Fatal(err)
			}
			again.Prune.Layers = append(again.Prune.Layers, l)
		}
		if _, same := shown(t, compiled(t, again)); !slices.Equal(same, y) {
			t.Errorf("by what the report names the outputs differ")
		}
	}
	for _, p := range found[1:] {
		if !slices.Equal(p.Layers, found[0].Layers) || p.Divergence != found[0].Divergence {
			t.Errorf("with a file %+v, without %+v", p, found[0])
		}
	}
}

// What layers cost one by one says less than they cost where all compute in integers: that program is built, whatever the sums say.
func TestMixedBudgetsTryIntegersEverywhere(t *testing.T) {
	thorough(t)
	o, b := forBudget(t)
	o.Bytes = lopsided(t)
	o.Quantize.Type = tensor.I8
	all := o
	all.Quantize.KeepNone = true
	count := 0
	for _, l := range compiled(t, all).Explain().Layers {
		if l.DType == "i8" {
			count++
		}
	}
	most := 100.0
	b.Mixed, b.MaxDrop = true, &most
	m, err := spc.CompileWithin(t.Context(), o, b)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if tried := m.Explain().Budget.Tried; count == 0 || !slices.ContainsFunc(tried, func(p spc.BudgetPoint) bool { return p.Integers == count }) {
		t.Errorf("%+v, want one with %d layers in integers", tried, count)
	}
}

func TestMixedBudgetsAreOfIntegers(t *testing.T) {
	o, b := forBudget(t)
	b.Mixed, b.FLOPs = true, 0.5
	if _, err := spc.CompileWithin(t.Context(), o, b); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), "BudgetOptions.Mixed needs Quantize.Type int8") {
		t.Error(err)
	}
}

// Where a size is limited a weight may be stored in the fewest bytes though that is slower: a convolution of 3x3 is the fastest dense with half its zeros.
func TestSizesCountTheFewestBytes(t *testing.T) {
	thorough(t)
	b := archs.New("images", 17)
	x := b.Input("x", archs.Float32, "batch", 4, 16, 16)
	in := 4
	for _, name := range []string{"first", "second", "third"} {
		x = b.Node("Relu", nil, b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}}, x, b.Weight(name, archs.He(in*9), 32, in, 3, 3)))
		in = 32
	}
	b.Output("y", x, archs.Float32, "batch", 32, 16, 16)
	m, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	var model bytes.Buffer
	if _, err := m.WriteTo(&model); err != nil {
		t.Fatal(err)
	}
	inputs := func(seed uint64) *tensor.Tensor {
		x, err := data.Random{Seed: seed}.Tensor("x", tensor.F32, []int{2, 4, 16, 16}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	o, w := forBudget(t)
	o.Bytes = model.Bytes()
	o.Calibration.Inputs = func(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			for seed := range uint64(4) {
				if !yield(map[string]*tensor.Tensor{"x": inputs(seed)}, nil) {
					return
				}
			}
		}
	}
	w.Inputs = func([]spc.Port) (map[string]*tensor.Tensor, error) {
		return map[string]*tensor.Tensor{"x": inputs(1)}, nil
	}
	w.Patterns, w.Size = []spc.Pattern{{Kind: spc.Uniform}}, 60000
	small, err := spc.CompileWithin(t.Context(), o, w)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	var file bytes.Buffer
	if err := small.Write(&file); err != nil || file.Len() > 60000 {
		t.Errorf("%d bytes, %v", file.Len(), err)
	}
	tried := small.Explain().Budget.Tried
	stored := 0
	for _, l := range small.Explain().Layers {
		if strings.HasPrefix(l.Reason, "as few bytes as may be") {
			stored++
			for _, c := range l.Candidates {
				if c.StoredBytes < l.StoredBytes {
					t.Errorf("%s has %d bytes, %s would have %d", l.Weight, l.StoredBytes, c.Format, c.StoredBytes)
				}
			}
		}
	}
	if p := tried[len(tried)-1]; len(p.Small) == 0 || len(p.Small) != stored || p.Sparsity > 0.8 {
		t.Errorf("%d weights in the fewest bytes, and %d by the report of %+v", stored, len(p.Small), p)
	}
	if _, err := small.Tune(t.Context(), spc.TuneOptions{}); err == nil || !strings.Contains(err.Error(), "fewest bytes") {
		t.Errorf("tuning gives %v, want an error that says what it would undo", err)
	}
	in2 := map[string]*tensor.Tensor{"x": inputs(9)}
	have, err := small.Run(t.Context(), in2)
	if err != nil {
		t.Fatal(err)
	}
	want, err := small.Interpret(t.Context(), in2)
	if err != nil {
		t.Fatal(err)
	}
	if d := apart(want["y"].F32s(), have["y"].F32s()); !(d < 1e-9) {
		t.Errorf("the outputs are off by %v", d)
	}
}
