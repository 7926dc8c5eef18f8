package main

import (
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/passes/fit"
	"spc/passes/prune"
)

// Budgets of floats whose programs lose something name integers.
func TestBudgetsHintAtIntegers(t *testing.T) {
	for want, change := range map[string]func(b *spc.BudgetReport, p *spc.BudgetPoint, l *spc.Layer){
		"--quantize auto": func(*spc.BudgetReport, *spc.BudgetPoint, *spc.Layer) {},
		"--quantize int8": func(_ *spc.BudgetReport, p *spc.BudgetPoint, _ *spc.Layer) { p.Drop = nil },
		"types":           func(b *spc.BudgetReport, _ *spc.BudgetPoint, _ *spc.Layer) { b.Types = "mixed" },
		"dense":           func(_ *spc.BudgetReport, p *spc.BudgetPoint, _ *spc.Layer) { p.Sparsity = 0 },
		"loses nothing":   func(_ *spc.BudgetReport, p *spc.BudgetPoint, _ *spc.Layer) { p.Drop.Points = 0 },
		"is of integers":  func(_ *spc.BudgetReport, _ *spc.BudgetPoint, l *spc.Layer) { l.DType = tensor.I8.String() },
	} {
		p, l := spc.BudgetPoint{Sparsity: 0.5, Drop: &spc.Drop{Points: 2}}, spc.Layer{DType: tensor.F32.String()}
		b := &spc.BudgetReport{Types: "f32"}
		change(b, &p, &l)
		b.Tried = []spc.BudgetPoint{p}
		text := integersInstead(&spc.Report{Budget: b, Layers: []spc.Layer{l}})
		if hints := strings.HasPrefix(want, "--"); hints && !strings.Contains(text, want) || !hints && text != "" {
			t.Errorf("%s: %q", want, text)
		}
	}
	if text := integersInstead(&spc.Report{}); text != "" {
		t.Errorf("%q without a budget", text)
	}
}

// Zeros that save hardly any time are called out, with the ratio.
func TestZerosThatSaveNoTimeAreToldOf(t *testing.T) {
	for _, c := range []struct {
		dense, ms float64
		change    func(r *spc.Report)
		said      string // of the summary
		hint      string // empty for none
	}{
		{1, 1, func(*spc.Report) {}, "dense 1 ms, 1.0x", "hardly faster than dense, 1.00x; try more zeros"},
		{1.04, 1, func(*spc.Report) {}, "dense 1.04 ms, 1.0x", "1.04x; try more zeros, another --pattern, or --speedup, which looks for the layers where they pay, or --quantize int8"},
		{1.06, 1, func(*spc.Report) {}, "dense 1.06 ms, 1.1x", ""},
		{1, 1, func(r *spc.Report) { r.Prune.Asks = false }, "", ""},
		{1, 1, func(r *spc.Report) { r.Totals.Nonzeros = 100 }, "", ""},
		{1, 1, func(r *spc.Report) { r.Prune.Layers = []prune.GraphLayer{{Removed: 50}} }, "", ""},
		{1, 1, func(r *spc.Report) { r.Options.Format = "csr" }, "dense 1 ms, 1.0x", ""},
		{1, 1, func(r *spc.Report) { r.Budget = &spc.BudgetReport{} }, "dense 1 ms, 1.0x", ""},
	} {
		r := &spc.Report{Prune: &fit.Result{GraphResult: &prune.GraphResult{Asks: true}}, Predicted: &spc.PredictedRun{Threads: 1, Ms: c.ms, DenseMs: c.dense}}
		r.Options.Format, r.Totals.Weights, r.Totals.Nonzeros = "auto", 100, 50
		c.change(r)
		if have := predictedText(r.Predicted, r); !strings.Contains(have, c.said) || c.said == "" && strings.Contains(have, "dense") {
			t.Errorf("%+v: %q", c, have)
		}
		if have := hardlyFaster(r); !strings.Contains(have, c.hint) || c.hint == "" && have != "" {
			t.Errorf("%+v: hint %q", c, have)
		}
	}
}

// Models that were pruned by the size of their weights alone are told how they would be pruned better.
func TestPruningWithoutSamplesIsToldOf(t *testing.T) {
	workspace(t)
	const hint = "spc: hint: pruned without samples, by the size of the weights alone, which ruins most models that were not trained for it; --calib gives samples\n"
	for _, c := range []struct {
		args []string
		said bool
	}{
		{[]string{"compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.5"}, true},
		{[]string{"compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.5", "--json"}, true},
		{[]string{"compile", "model.onnx", "-o", "a.spx", "--pattern", "channel", "--sparsity", "0.5"}, true},
		{[]string{"prune", "model.onnx", "-o", "a.onnx", "--pattern", "2:4"}, true},
		{[]string{"compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.5", "--quiet"}, false},
		{[]string{"compile", "model.onnx", "-o", "a.spx"}, false},
		{[]string{"compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.5", "--calib", "photos", "--preprocess", "imagenet", "--prune", "magnitude", "--allocate", "layer"}, false},
		{[]string{"compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.5", "--calib", "photos", "--preprocess", "imagenet", "--allocate", "layer"}, false},
	} {
		if r := spcRun(c.args...); r.status != 0 || strings.Contains(r.errors, hint) != c.said || strings.Contains(r.errors, "pruned without samples") != c.said {
			t.Errorf("%v: %+v, want a hint: %v", c.args, r, c.said)
		}
	}
}

// A model whose file cannot be kept is told why.
func TestAFileThatIsNotKeptIsToldOf(t *testing.T) {
	workspace(t)
	const hint = "spc: hint: the model's file is not kept, its nodes are written anew, in the form that they have today: "
	for _, c := range []struct {
		args []string
		why  string
	}{
		{[]string{"prune", "model.onnx", "-o", "a.onnx", "--sparsity", "0.5"}, ""},
		{[]string{"prune", "model.onnx", "-o", "a.onnx", "--sparsity", "0.5", "--opset", "21"}, ""},
		{[]string{"prune", "model.onnx", "-o", "a.onnx", "--quantize", "fp16"}, "it is quantised"},
		{[]string{"prune", "model.onnx", "-o", "a.onnx", "--sparsity", "0.4", "--pattern", "channel"}, ""},
	} {
		r := spcRun(c.args...)
		if r.status != 0 || strings.Contains(r.errors, hint) != (c.why != "") || !strings.Contains(r.errors, c.why) {
			t.Errorf("%v: %+v, want a hint with %q", c.args, r, c.why)
		}
	}
	fails(t, []string{"prune", "model.onnx", "-o", "a.onnx", "--opset", "12"}, "--opset 12", "13")
	fails(t, []string{"prune", "model.onnx", "-o", "a.onnx", "--opset", "13"}, "--opset 13: the model's nodes are written in the form of opset ")
}

// Hints are on standard error, and --quiet hides them.
func TestHintsAreOnStandardError(t *testing.T) {
	workspace(t)
	loud := budgeted("-o", "half.spx", "--flops", "0.3", "--pattern", "uniform", "--search", "0")
	for i, a := range loud {
		if a == "--quiet" {
			loud = append(loud[:i:i], loud[i+1:]...)
			break
		}
	}
	if r := spcRun(loud...); r.status != 0 || strings.Count(r.errors, "spc: hint: 8-bit integers were not tried") != 1 || strings.Contains(r.out, "hint") {
		t.Errorf("%+v, want a hint", r)
	}
	if r := spcRun(append(loud, "--quiet")...); r.status != 0 || strings.Contains(r.errors, "hint") {
		t.Errorf("%+v, want no hint", r)
	}
}
