package spc_test

import (
	"bytes"
	"context"
	"encoding/json"
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
	"spc/passes/prune"
	"spc/tests/archs"
)

// perceptron is a model of some products, of which all may be pruned but the last.
func perceptron(t *testing.T) []byte {
	t.Helper()
	return perceptronOf(t, archs.He(48), "batch")
}

// perceptronOf is the perceptron with such weights, whose batch has such a size.
func perceptronOf(t *testing.T, weights archs.Fill, batch any) []byte {
	t.Helper()
	b := archs.New("perceptron", 17)
	x := b.Input("x", archs.Float32, batch, 48)
	for _, name := range []string{"first", "second", "third"} {
		x = b.Node("Relu", nil, b.Node("MatMul", nil, x, b.Weight(name, weights, 48, 48)))
	}
	b.Output("y", b.Node("MatMul", nil, x, b.Weight("last", weights, 48, 5)), archs.Float32, batch, 5)
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

// noise yields inputs of the perceptron.
func noise(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	return func(yield func(map[string]*tensor.Tensor, error) bool) {
		for seed := range uint64(8) {
			x, err := data.Random{Seed: seed}.Tensor("x", tensor.F32, []int{8, 48}, 0)
			if !yield(map[string]*tensor.Tensor{"x": x}, err) {
				return
			}
		}
	}
}

func forBudget(t *testing.T) (spc.CompileOptions, spc.BudgetOptions) {
	t.Helper()
	o := spc.CompileOptions{Bytes: perceptron(t), Calibration: spc.Calibration{Inputs: noise, Count: 64}, Run: spc.RunOptions{Threads: 1}}
	b := spc.BudgetOptions{Search: 8, Inputs: func([]spc.Port) (map[string]*tensor.Tensor, error) {
		x, err := data.Random{Seed: 1}.Tensor("x", tensor.F32, []int{1, 48}, 0)
		return map[string]*tensor.Tensor{"x": x}, err
	}}
	return o, b
}

// What a budget asks for holds of the file that is written.
func TestBudgetsHoldOfTheModel(t *testing.T) {
	for name, budget := range map[string]spc.Budget{
		"flops": {FLOPs: 0.5}, "size": {Size: 20000}, "both": {FLOPs: 0.6, Size: 24000},
	} {
		if testing.Short() && name == "both" { // which takes the longest, and runs at once what the others do
			continue
		}
		o, b := forBudget(t)
		b.Budget = budget
		told := 0
		b.Tell = func(front []spc.BudgetPoint, seconds float64) {
			told += len(front)
			for i, p := range front {
				if first := &front[0]; p.Size <= 0 || i > 0 && !(p.FLOPs < first.FLOPs) || math.Abs(first.FLOPs-1) > 1e-9 {
					t.Errorf("%s: %d bytes and %v of the multiply-adds are foretold, at first %v", name, p.Size, p.FLOPs, first.FLOPs)
				}
			}
		}
		m, err := spc.CompileWithin(t.Context(), o, b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var file bytes.Buffer
		if err := m.Write(&file); err != nil {
			t.Fatal(err)
		}
		left, all := 0.0, 0.0 // multiply-adds are as many as weights here
		for _, l := range m.Explain().Layers {
			left, all = left+float64(l.Nonzeros), all+float64(l.Rows*l.Cols)
		}
		r := m.Explain().Budget
		if r == nil || len(r.Tried) == 0 {
			t.Fatalf("%s: no report", name)
		}
		last := r.Tried[len(r.Tried)-1]
		if budget.FLOPs > 0 && (left/all > budget.FLOPs || math.Abs(last.FLOPs-left/all) > 1e-9 || left/all < 0.8*budget.FLOPs && budget.Size == 0) {
			t.Errorf("%s: %.3f of the multiply-adds are left, %.3f by the report", name, left/all, last.FLOPs)
		}
		// The report, which says how the size was found, came after it.
		if size := int64(file.Len()); budget.Size > 0 && (size > budget.Size || last.Size > budget.Size) {
			t.Errorf("%s: %d bytes, %d by the report, want %d", name, size, last.Size, budget.Size)
		}
		if last.Unit != "nats" { // which the warning of a ruined model goes by
			t.Errorf("%s: a divergence in %q", name, last.Unit)
		}
		if len(last.Unmet) > 0 || told < 3 || last.Speedup <= 0 || r.Amdahl < 1 {
			t.Errorf("%s: %+v, and %d points foretold", name, last, told)
		}
		x, err := data.Random{Seed: 99}.Tensor("x", tensor.F32, []int{3, 48}, 0)
		if err != nil {
			t.Fatal(err)
		}
		in := map[string]*tensor.Tensor{"x": x}
		have, err := m.Run(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.Interpret(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range want["y"].F32s() {
			if math.Abs(float64(v-have["y"].F32s()[i])) > 1e-4 {
				t.Errorf("%s: y is %v, want %v", name, have["y"].F32s(), want["y"].F32s())
				break
			}
		}
		m.Close()
	}
}

// A model whose weights are all zero has nothing to remove, and is within what it is within as it is.
func TestBudgetsOfNothingButZeros(t *testing.T) {
	thorough(t)
	drop := 5.0
	for _, budget := range []spc.Budget{{FLOPs: 0.5}, {MaxDrop: &drop, Speedup: 1e5}} {
		o, b := forBudget(t)
		o.Bytes, b.Budget = perceptronOf(t, archs.Fill{}, "batch"), budget
		m, err := spc.CompileWithin(t.Context(), o, b)
		if budget.FLOPs > 0 {
			if err != nil {
				t.Errorf("%+v: %v", budget, err)
				continue
			}
			tried := m.Explain().Budget.Tried
			if last := tried[len(tried)-1]; last.FLOPs != 0 || last.Sparsity != 1 {
				t.Errorf("%+v", last)
			}
			m.Close()
			continue
		}
		var cannot *spc.BudgetError
		if !errors.As(err, &cannot) || len(cannot.Nearest) == 0 {
			t.Errorf("%+v: %v, want that it cannot be met", budget, err)
			continue
		}
		if _, err := json.Marshal(cannot); err != nil {
			t.Error(err)
		}
	}
}

// With N:M in blocks shares begin at its own.
func TestBudgetsOfPatternsInBlocks(t *testing.T) {
	thorough(t)
	for _, text := range []string{"uniform-block:4x4+2:4", "block:12x12+1:3", "unstructured"} {
		o, b := forBudget(t)
		p, err := spc.ParsePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		b.Patterns, b.FLOPs = []spc.Pattern{p}, 0.6
		m, err := spc.CompileWithin(t.Context(), o, b)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		tried := m.Explain().Budget.Tried
		if last := tried[len(tried)-1]; last.FLOPs > 0.6 || !strings.HasSuffix(last.Layers[0], ","+text) && !strings.HasSuffix(last.Layers[0], "=0") {
			t.Errorf("%s: %+v", text, last)
		}
		m.Close()
	}
}

// A batch that has no name is one sample, as one that has.
func TestBudgetsOfBatchesWithoutAName(t *testing.T) {
	o, b := forBudget(t)
	o.Bytes, b.FLOPs = perceptronOf(t, archs.He(48), ""), 0.5
	m, err := spc.CompileWithin(t.Context(), o, b)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if d := m.Inputs()[0].Dims[0]; !d.Fresh() {
		t.Errorf("the batch is %v, want one without a name", d)
	}
}

// Formats are chosen for the sizes that are measured.
func TestBudgetsChooseFormatsForWhatIsMeasured(t *testing.T) {
	o, b := forBudget(t)
	b.FLOPs = 0.5
	b.Inputs = func([]spc.Port) (map[string]*tensor.Tensor, error) {
		x, err := data.Random{Seed: 1}.Tensor("x", tensor.F32, []int{3, 48}, 0)
		return map[string]*tensor.Tensor{"x": x}, err
	}
	m, err := spc.CompileWithin(t.Context(), o, b)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if open := m.Explain().Open; len(open) != 1 || !slices.Equal(open[0].Sizes.Only, []int{3}) {
		t.Errorf("formats are for %+v, want a batch of 3", open)
	}
}

// narrowPerceptron is the perceptron with weights of 8-bit integers behind DequantizeLinear nodes, and activations likewise.
func narrowPerceptron(t *testing.T) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	b := archs.New("narrow", 17)
	zero := b.Constant(&onnxpb.TensorProto{DataType: int32(onnxpb.TensorProto_INT8), RawData: []byte{0}})
	x := b.Input("x", archs.Float32, "batch", 48)
	for _, name := range []string{"first", "second", "third", "last"} {
		codes := make([]byte, 48*48)
		for i := range codes {
			codes[i] = byte(int8(rng.IntN(255) - 127))
		}
		w := b.Initializer(name, &onnxpb.TensorProto{DataType: int32(onnxpb.TensorProto_INT8), Dims: []int64{48, 48}, RawData: codes})
		x = b.Node("DequantizeLinear", nil, b.Node("QuantizeLinear", nil, x, b.Scalar(0.03), zero), b.Scalar(0.03), zero)
		x = b.Node("Relu", nil, b.Node("MatMul", nil, x, b.Node("DequantizeLinear", nil, w, b.Scalar(0.002), zero)))
	}
	b.Output("y", x, archs.Float32, "batch", 48)
	m, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	return m.Bytes()
}

// Weights that a model stores as integers are pruned for a budget as they are without one, and are no choice of types.
func TestBudgetsOfModelsOfIntegers(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		o, b := forBudget(t)
		o.Bytes, b.FLOPs = narrowPerceptron(t), 0.6
		if b.Mixed = mixed; mixed {
			o.Quantize.Type = tensor.I8
		}
		m, err := spc.CompileWithin(t.Context(), o, b)
		if err != nil {
			t.Fatal(err)
		}
		left, all := 0, 0
		for _, l := range m.Explain().Layers {
			if left, all = left+l.Nonzeros, all+l.Rows*l.Cols; l.DType != "i8" {
				t.Errorf("%s is %s, want integers", l.Name, l.DType)
			}
		}
		tried := m.Explain().Budget.Tried
		if last := tried[len(tried)-1]; float64(left) > 0.6*float64(all) || left == 0 || last.Integers > 0 {
			t.Errorf("mixed %v: %d of %d weights are left, %+v", mixed, left, all, last)
		}
		m.Close()
	}
}

// The layers that a report names make the same model again.
func TestBudgetsCanBeCompiledAgainByTheirLayers(t *testing.T) {
	o, b := forBudget(t)
	b.FLOPs = 0.4
	b.Evaluate = func(context.Context, *spc.Model) ([]float64, error) { return make([]float64, 4), nil } // so that all samples calibrate
	m, err := spc.CompileWithin(t.Context(), o, b)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tried := m.Explain().Budget.Tried
	for _, text := range tried[len(tried)-1].Layers {
		l, err := spc.ParseLayerSparsity(text)
		if err != nil {
			t.Fatal(err)
		}
		o.Prune.Layers = append(o.Prune.Layers, l)
	}
	again, err := spc.Compile(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	x, err := data.Random{Seed: 5}.Tensor("x", tensor.F32, []int{4, 48}, 0)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]*tensor.Tensor{"x": x}
	want, err := m.Interpret(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	have, err := again.Interpret(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range want["y"].F32s() {
		if v != have["y"].F32s()[i] {
			t.Fatalf("y is %v, want %v", have["y"].F32s(), want["y"].F32s())
		}
	}
}

// thorough skips a test that runs nothing at once which others do not run: -short is for the race detector, under which it would take minutes.
func thorough(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("what it runs at once is what other tests do")
	}
}

func TestBudgetsThatCannotBeMetSayWhatIsNearest(t *testing.T) {
	thorough(t)
	drop := 0.5
	for name, budget := range map[string]spc.Budget{
		"speedup": {Speedup: 1e5}, "flops": {FLOPs: 0.001}, "size": {Size: 100}, "drop and speedup": {Speedup: 1e5, MaxDrop: &drop},
	} {
		o, b := forBudget(t)
		b.Budget = budget
		b.Evaluate = func(_ context.Context, m *spc.Model) ([]float64, error) {
			scores := make([]float64, 400)
			for i := range scores {
				scores[i] = float64(100 * (i % 2))
			}
			return scores, nil
		}
		m, err := spc.CompileWithin(t.Context(), o, b)
		var cannot *spc.BudgetError
		if !errors.As(err, &cannot) || !errors.Is(err, spc.ErrUnmet) || m != nil {
			t.Fatalf("%s: %v, want that it cannot be met", name, err)
		}
		if len(cannot.Nearest) == 0 || len(cannot.Nearest[0].Unmet) == 0 || len(cannot.Tried) == 0 {
			t.Errorf("%s: %+v", name, cannot)
		}
		// Zeros are not all that there is to try.
		if q := cannot.Quantised; q == nil || q.Sparsity != 0 || q.Speedup <= 0 || q.Drop == nil || len(q.Unmet) == 0 {
			t.Errorf("%s: in 8-bit integers %+v", name, q)
		}
		if name == "drop and speedup" && (len(cannot.Nearest) != 2 || cannot.Nearest[0].Drop == nil) {
			t.Errorf("%s: nearest are %+v", name, cannot.Nearest)
		}
	}
}

func TestABudgetOfIntegersTriesNoOthers(t *testing.T) {
	o, b := forBudget(t)
	b.Size, o.Quantize.Type = 100, tensor.I8
	_, err := spc.CompileWithin(t.Context(), o, b)
	var cannot *spc.BudgetError
	if !errors.As(err, &cannot) || cannot.Quantised != nil {
		t.Errorf("%v, want that it cannot be met", err)
	}
}

// Weights of 8-bit integers have the pattern that has kernels for them.
func TestBudgetsOfIntegersHaveBlocksAlongRows(t *testing.T) {
	o, b := forBudget(t)
	b.FLOPs, o.Quantize.Type = 0.5, tensor.I8
	m, err := spc.CompileWithin(t.Context(), o, b)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tried := m.Explain().Budget.Tried
	for _, l := range tried[len(tried)-1].Layers {
		if !strings.HasSuffix(l, ",uniform-block:1x4") {
			t.Errorf("%s, want blocks of 1x4", l)
		}
	}
}

// What is lost decides: a model is taken while the samples tell that it loses little enough, and they are enough to tell.
func TestDropsAreBounded(t *testing.T) {
	thorough(t)
	for _, c := range []struct {
		samples int
		wrong   float64 // of the samples for each percent of zeros
		drop    float64
		met     bool
	}{{1000, 0, 1, true}, {40, 0, 1, false}, {1000, 0.001, 3, true}, {1000, 0.1, 3, false}} {
		o, b := forBudget(t)
		b.MaxDrop = &c.drop
		o.Quantize.Type = tensor.I8 // so that not even the first program is the dense one
		b.Evaluate = func(_ context.Context, m *spc.Model) ([]float64, error) {
			zeros := 0.0
			if m.Explain().Quant != nil {
				zeros = 1 + float64(m.Explain().Totals.Weights-m.Explain().Totals.Nonzeros)/float64(m.Explain().Totals.Weights)
			}
			scores := make([]float64, c.samples)
			for i := range scores {
				if float64(i) >= c.wrong*zeros*float64(c.samples) {
					scores[i] = 100
				}
			}
			return scores, nil
		}
		m, err := spc.CompileWithin(t.Context(), o, b)
		if c.met != (err == nil) || err != nil && !errors.Is(err, spc.ErrUnmet) {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil {
			continue
		}
		tried := m.Explain().Budget.Tried
		if d := tried[len(tried)-1].Drop; d == nil || d.Bound > c.drop || d.N != c.samples {
			t.Errorf("%+v: %+v", c, d)
		}
		m.Close()
	}
}

// Where nothing but the dense program loses little enough, that is what is kept, however few the samples are.
func TestTheDenseProgramLosesNothing(t *testing.T) {
	o, b := forBudget(t)
	drop := 0.0
	b.MaxDrop = &drop
	b.Evaluate = func(_ context.Context, m *spc.Model) ([]float64, error) {
		scores := make([]float64, 3)
		for i := range scores {
			scores[i] = float64(m.Explain().Totals.Nonzeros)
		}
		return scores, nil
	}
	m, err := spc.CompileWithin(t.Context(), o, b)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if tried := m.Explain().Budget.Tried; m.Explain().Totals.Nonzeros < m.Explain().Totals.Weights-10 || tried[len(tried)-1].Drop.Bound != 0 {
		t.Errorf("%+v, %+v", m.Explain().Totals, tried)
	}
}

// Without labels what is bounded is the divergence on samples that nothing else saw.
func TestDivergenceIsMeasuredOnSamplesOfItsOwn(t *testing.T) {
	o, b := forBudget(t)
	drop := 1e5
	b.MaxDrop = &drop
	m, err := spc.CompileWithin(t.Context(), o, b)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tried := m.Explain().Budget.Tried
	if d := tried[len(tried)-1].Drop; d == nil || d.N != 2 || d.Bound > drop {
		t.Errorf("%+v, want that of 2 of 8 inputs", d)
	}
	if p := m.Explain().Prune; p != nil && p.Asks && p.Runs != 6 {
		t.Errorf("pruned on %d runs, want the other 6", p.Runs)
	}
}

func TestFrontsAreBuilt(t *testing.T) {
	o, b := forBudget(t)
	b.Front = 3
	var r *spc.BudgetReport
	for range 4 { // by what is measured under load there may be nothing between the ends
		var err error
		if r, err = spc.Front(t.Context(), o, b); err != nil {
			t.Fatal(err)
		}
		if len(r.Front) == 3 {
			break
		}
	}
	if len(r.Front) != 3 {
		t.Fatalf("%d programs", len(r.Front))
	}
	for i, p := range r.Front {
		if p.Ms <= 0 || p.Size == 0 || p.Drop == nil || i > 0 && p.Sparsity == 0 {
			t.Errorf("%d: %+v", i, p)
		}
		if i > 0 && p.Predicted > 1.01*r.Front[i-1].Predicted {
			t.Errorf("%v ms is predicted after %v", p.Predicted, r.Front[i-1].Predicted)
		}
	}
}

func TestBudgetsThatMakeNoSense(t *testing.T) {
	minus := -1.0
	for want, change := range map[string]func(o *spc.CompileOptions, b *spc.BudgetOptions){
		"the budget is empty":  func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Budget = spc.Budget{} },
		"Speedup -2":           func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Speedup = -2 },
		"Speedup NaN":          func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Speedup = math.NaN() },
		"Latency -1ns":         func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Latency = -1 },
		"Size -1":              func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Size = -1 },
		"FLOPs 2":              func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.FLOPs = 2 },
		"MaxDrop -1":           func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.MaxDrop = &minus },
		"Front 1":              func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Front = 1 },
		"budgets are measured": func(o *spc.CompileOptions, _ *spc.BudgetOptions) { o.Target = spc.CUDA },
		"needs Calibration":    func(o *spc.CompileOptions, _ *spc.BudgetOptions) { o.Calibration.Inputs = nil },
		"Sparsity 0.5 beside":  func(o *spc.CompileOptions, _ *spc.BudgetOptions) { o.Prune.Sparsity = 0.5 },
		"Prune.Pattern block:4x1": func(o *spc.CompileOptions, _ *spc.BudgetOptions) {
			o.Prune.Pattern = spc.Pattern{Kind: spc.Block, R: 4, C: 1}
		},
		"Allocate layer beside":    func(o *spc.CompileOptions, _ *spc.BudgetOptions) { o.Prune.Allocate = spc.PerLayer },
		"StopAfter or":             func(o *spc.CompileOptions, _ *spc.BudgetOptions) { o.Debug.StopAfter = "fold" },
		"Inputs is missing":        func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Inputs = nil },
		"dense keeps every weight": func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Patterns = []spc.Pattern{{Kind: prune.Dense}} },
		"4:4 keeps every weight": func(_ *spc.CompileOptions, b *spc.BudgetOptions) {
			b.Patterns = []spc.Pattern{{Kind: spc.NM, N: 4, M: 4}}
		},
		"channels depend":        func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Patterns = []spc.Pattern{{Kind: spc.Channel}} },
		"2 scores of samples":    func(_ *spc.CompileOptions, b *spc.BudgetOptions) { b.Evaluate = uneven() },
		"no weight of the model": func(o *spc.CompileOptions, _ *spc.BudgetOptions) { o.Prune.Keep = []string{"*"} },
	} {
		o, b := forBudget(t)
		b.FLOPs = 0.5
		change(&o, &b)
		if m, err := spc.CompileWithin(t.Context(), o, b); err == nil || !strings.Contains(err.Error(), want) || m != nil || !errors.Is(err, spc.ErrInvalid) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// uneven scores a different number of samples each time.
func uneven() func(context.Context, *spc.Model) ([]float64, error) {
	n := 0
	return func(context.Context, *spc.Model) ([]float64, error) {
		n++
		return make([]float64, n), nil
	}
}

// What is known of the layers is kept for other budgets, and changes nothing.
func TestBudgetsKeepTheirDatabase(t *testing.T) {
	thorough(t)
	path := filepath.Join(t.TempDir(), "layers")
	compile := func(cache string, budget spc.Budget) (last spc.BudgetPoint, seen []string) {
		t.Helper()
		o, b := forBudget(t)
		b.Budget, o.Calibration.Cache, o.Calibration.Identity = budget, cache, "noise"
		o.Progress = func(stage string, done, total int) {
			if done > 0 && !slices.Contains(seen, stage) {
				seen = append(seen, stage)
			}
		}
		m, err := spc.CompileWithin(t.Context(), o, b)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		tried := m.Explain().Budget.Tried
		return tried[len(tried)-1], seen
	}
	half := spc.Budget{FLOPs: 0.5}
	without, _ := compile("", half)
	made, seen := compile(path, half)
	if !slices.Contains(seen, "times") || !slices.Contains(seen, "database") || !slices.Contains(seen, "effects") {
		t.Errorf("a database was made in %q", seen)
	}
	read, seen := compile(path, half)
	if slices.Contains(seen, "times") || slices.Contains(seen, "database") || slices.Contains(seen, "effects") {
		t.Errorf("a database was read in %q", seen)
	}
	for what, p := range map[string]spc.BudgetPoint{"made": made, "read": read} {
		if !slices.Equal(p.Layers, without.Layers) || p.Divergence != without.Divergence || p.FLOPs != without.FLOPs || p.Drop.Points != without.Drop.Points {
			t.Errorf("%s: %v, %v of the multiply-adds; %v, %v without a file", what, p.Layers, p.FLOPs, without.Layers, without.FLOPs)
		}
	}
	if p, seen := compile(path, spc.Budget{FLOPs: 0.7}); p.FLOPs <= made.FLOPs || slices.Contains(seen, "times") {
		t.Errorf("%v of the multiply-adds for 0.7, in %q", p.FLOPs, seen)
	}
	o, b := forBudget(t)
	b.Budget, b.Patterns, o.Calibration.Cache, o.Calibration.Identity = half, []spc.Pattern{{Kind: spc.Uniform}}, path, "noise"
	if _, err := spc.CompileWithin(t.Context(), o, b); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), path+": the database belongs to other patterns or types; remove") {
		t.Errorf("other patterns: %v", err)
	}
}
