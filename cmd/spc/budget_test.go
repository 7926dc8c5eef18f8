package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"spc"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/archs"
)

// budgeted are arguments of a compile of the tests' model for a budget, on samples that are there.
func budgeted(more ...string) []string {
	return append([]string{"compile", "model.onnx", "--calib", "photos", "--preprocess", "imagenet", "--keep", "none", "--threads", "1", "--quiet"}, more...)
}

func TestCompileForABudget(t *testing.T) {
	workspace(t)
	out := ok(t, budgeted("-o", "half.spx", "--flops", "0.5", "--pattern", "uniform", "--search", "4")...)
	if !strings.Contains(out, "measured  ") || !strings.Contains(out, "x (at most ") || strings.Contains(out, "predicted ") {
		t.Errorf("%s, want what was measured", out)
	}
	var r spc.Report
	if err := json.Unmarshal([]byte(ok(t, "inspect", "half.spx", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	last := r.Budget.Tried[len(r.Budget.Tried)-1]
	if last.FLOPs > 0.5 || r.Budget.FLOPs != 0.5 || len(last.Layers) == 0 {
		t.Errorf("%+v", last)
	}
	ok(t, "bench", "half.spx", "--runs", "2")

	// A budget may choose types, too: so small a file has integers.
	out = ok(t, budgeted("-o", "mixed.spx", "--size", "24KB", "--search", "4", "--quantize", "auto", "--pattern", "uniform-block:1x4")...)
	if !strings.Contains(out, " in 8-bit integers; ") {
		t.Errorf("%s, want how many weights are in integers", out)
	}

	// The file is as small as was asked for.
	ok(t, budgeted("-o", "small.spx", "--size", "40KB", "--search", "4")...)
	if info, err := os.Stat("small.spx"); err != nil || info.Size() > 40e3 {
		t.Errorf("%v, %v", info.Size(), err)
	}
}

func TestFrontsAreWritten(t *testing.T) {
	workspace(t)
	writeNPY(t, "some.npy", tensor.New(tensor.U8, 6, 3, 16, 16))
	writeNPY(t, "classes.npy", tensor.FromInt64s(tensor.I64, []int64{0, 1, 2, 0, 1, 2}, 6))
	for _, file := range []string{"front.csv", "front.png", "front.svg", "front.html"} {
		out := ok(t, budgeted("--pareto", file, "--points", "3", "--eval-data", "some.npy", "--labels", "classes.npy", "--metric", "top5")...)
		if !strings.Contains(out, "points lost") {
			t.Errorf("%s, want a table", out)
		}
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	f, err := os.Open("front.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 3 || len(rows[0]) != len(frontColumns) {
		t.Errorf("%v, %v", rows, err)
	}
	page, err := os.ReadFile("front.html")
	if err != nil || !strings.Contains(string(page), "<svg") || strings.Count(string(page), "<tr>") < 3 {
		t.Errorf("%s, %v", page, err)
	}
}

// A budget that cannot be met has a status of its own, says what is nearest, and leaves no file.
func TestBudgetsThatCannotBeMet(t *testing.T) {
	workspace(t)
	r := spcRun(budgeted("-o", "never.spx", "--speedup", "1000")...)
	if r.status != 2 || !strings.Contains(r.errors, "the budget cannot be met") || !strings.Contains(r.out, "--speedup 1000") || strings.Count(r.errors, "the budget cannot be met") != 1 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(r.out, "without zeros in 8-bit integers, by --quantize int8:") {
		t.Errorf("%s, want what integers give", r.out)
	}
	if _, err := os.Stat("never.spx"); err == nil {
		t.Error("a file was written")
	}
	r = spcRun(budgeted("-o", "never.spx", "--speedup", "1000", "--json")...)
	var e spc.BudgetError
	if err := json.Unmarshal([]byte(r.out), &e); err != nil || r.status != 2 || len(e.Nearest) == 0 {
		t.Errorf("%+v: %v", r, err)
	}
}

// letters is a model with an input of strings.
func letters() (*archs.Model, error) {
	b := archs.New("text", 17)
	s := b.Input("s", onnxpb.TensorProto_STRING, "batch", "letters")
	x := b.Input("x", archs.Float32, "batch", 8)
	b.Output("z", b.Node("Identity", nil, s), onnxpb.TensorProto_STRING, "batch", "letters")
	b.Output("y", b.Node("MatMul", nil, x, b.Weight("w", archs.He(8), 8, 8)), archs.Float32, "batch", 8)
	return b.Model(1)
}

// Random inputs need no preprocessing, the images that judge the model do.
func TestBudgetsOfRandomInputsAreJudgedOnImages(t *testing.T) {
	workspace(t)
	writeNPY(t, "some.npy", tensor.New(tensor.U8, 40, 3, 16, 16))
	writeNPY(t, "classes.npy", tensor.FromInt64s(tensor.I64, make([]int64, 40), 40))
	args := []string{"compile", "model.onnx", "-o", "a.spx", "--calib", "random:1", "--max-drop", "100", "--eval-data", "some.npy", "--labels", "classes.npy", "--threads", "1", "--quiet"}
	if out := ok(t, append(args, "--preprocess", "imagenet")...); !strings.Contains(out, "points lost on 40 samples") {
		t.Errorf("%s, want what is lost", out)
	}
	fails(t, args, "images need --preprocess")
}

func TestBudgetFlags(t *testing.T) {
	workspace(t)
	writeNPY(t, "few.npy", tensor.New(tensor.U8, 3, 3, 16, 16))
	writeNPY(t, "classes.npy", tensor.FromInt64s(tensor.I64, []int64{0, 1, 2}, 3))
	writeNPY(t, "others.npy", tensor.FromInt64s(tensor.I64, []int64{0, 1, 20}, 3))
	writeModel(t, "text.onnx", letters)
	writeFile(t, "layers", []byte("a database"))
	for want, args := range map[string][]string{
		"--eval-data has no use without a budget":                                   {"compile", "model.onnx", "--eval-data", "photos"},
		"--sparsity and a budget exclude each other":                                budgeted("--speedup", "2", "--sparsity", "0.5"),
		"--tune and a budget exclude each other":                                    budgeted("--speedup", "2", "--tune"),
		"--labels needs --eval-data, too":                                           budgeted("--max-drop", "1", "--labels", "labels.csv"),
		"--speedup 0, want a number above 0":                                        budgeted("--speedup", "0"),
		"--flops 2":                                                                 budgeted("--flops", "2"),
		"want a .csv, .png, .svg or .html file":                                     budgeted("--pareto", "front.txt"),
		"-o a.spx has no use with --pareto alone":                                   budgeted("--pareto", "front.csv", "-o", "a.spx"),
		"a budget needs --calib":                                                    {"compile", "model.onnx", "--speedup", "2"},
		"--target cuda: budgets are measured on the CPU":                            budgeted("--speedup", "2", "--target", "cuda"),
		"--pattern channel: a budget chooses for each layer":                        budgeted("--speedup", "2", "--pattern", "channel"),
		"few.npy has no labels":                                                     budgeted("--max-drop", "1", "--eval-data", "few.npy"),
		"which cannot judge what was made by it":                                    budgeted("--max-drop", "1", "--eval-data", "photos", "--labels", "labels.csv", "--eval-samples", "1:3"),
		"--eval-samples 9:10 chooses none":                                          budgeted("--max-drop", "1", "--eval-data", "few.npy", "--labels", "classes.npy", "--eval-samples", "9:10"),
		"--quantize auto leaves types to a budget":                                  {"compile", "model.onnx", "--quantize", "auto"},
		"leaves types to a budget of spc compile":                                   {"prune", "model.onnx", "-o", "p.onnx", "--quantize", "auto"},
		"--quantize \"few\": want one of none, int8, int8w, int4, fp16, bf16, auto": budgeted("--max-drop", "1", "--quantize", "few"),
		"--points needs --pareto, too":                                              budgeted("--speedup", "2", "--points", "3"),
		"--speedup -1, want a number above 0":                                       budgeted("--speedup", "-1"),
		"--flops 0, want a share above 0 and at most 1":                             budgeted("--flops", "0"),
		"spc: --latency \"5\": want a time such as 5ms or 800us, up to 1h":          budgeted("--latency", "5"),
		"spc: --size \"many\": want a size such as 10MB":                            budgeted("--size", "many"),
		"spc: model.onnx: sample 2 of few.npy: label 20, want":                      budgeted("--max-drop", "1", "--eval-data", "few.npy", "--labels", "others.npy"),
		"dimension t of input ids i64[batch,t] is open, give --dim t=N":             {"compile", "lm.onnx", "--calib", "random:1", "--speedup", "2"},
		"random input s: no random elements of type string":                         {"compile", "text.onnx", "--calib", "random:1", "--speedup", "2"},
		"open layers: -o layers would replace it":                                   budgeted("--speedup", "2", "-o", "layers", "--calib-cache", "layers"),
		"--calib-cache model.onnx: no database of layers":                           budgeted("--speedup", "2", "--calib-cache", "model.onnx"),
		"--calib-cache: open photos: not a regular file":                            budgeted("--speedup", "2", "--calib-cache", "photos"),
		"--samples has no use with --calib random":                                  {"compile", "model.onnx", "--calib", "random:1", "--max-drop", "1", "--eval-data", "few.npy", "--labels", "classes.npy", "--preprocess", "none", "--samples", "even"},
		"--preprocess has no use with --calib random":                               {"compile", "model.onnx", "--calib", "random:1", "--max-drop", "1", "--preprocess", "none"},
		"--points 1":    budgeted("--pareto", "front.csv", "--points", "1"),
		"--max-drop -1": budgeted("--max-drop", "-1"),
		"--metric \"nearly\", want top1, top5 or perplexity":             budgeted("--max-drop", "1", "--eval-data", "few.npy", "--labels", "classes.npy", "--metric", "nearly"),
		"--search has no use without a budget: --speedup, --max-drop, -": {"compile", "model.onnx", "--search", "4"},
		"--search has no use without --speedup, --latency":               budgeted("--max-drop", "1", "--search", "4"),
	} {
		fails(t, args, want)
	}
}

// What is lost without labels has one name and one unit wherever it is printed.
func TestDivergenceHasOneUnit(t *testing.T) {
	for unit, want := range map[string]string{"": "hundredths of a nat", calib.Nats: "hundredths of a nat", calib.Variances: "hundredths of the variance", calib.Either: "hundredths of a nat or the variance"} {
		list := []spc.BudgetPoint{{Unit: unit, Divergence: 0.253, Predicted: 1, Drop: &spc.Drop{Points: 32.461, Bound: 47.04, N: 16}}, {Unit: unit, Divergence: 1.06e-261, Predicted: 1, Drop: &spc.Drop{Points: -1e-9, Bound: 1e40, N: 16}}}
		var foretold, measured, labelled, answer strings.Builder
		printForetold(&foretold, &spc.Budget{}, list, 0)
		if err := errors.Join(printMeasured(&measured, "divergence", list), printMeasured(&labelled, "samples", list)); err != nil {
			t.Fatal(err)
		}
		printBudget(&answer, &spc.Report{Budget: &spc.BudgetReport{Judge: "divergence", Tried: list[:1]}})
		for text, wants := range map[string][]string{
			foretold.String(): {"  divergence, " + want, "  25.30\n", "  0.00\n"},
			measured.String(): {"  divergence, " + want + "  at most", "  32.46    47.04\n", "  0.00    1e+40\n"},
			labelled.String(): {"  points lost  at most"},
			answer.String():   {"; divergence 32.46 " + want + " on 16 inputs, at most 47.04 with a confidence of 90%"},
		} {
			for _, w := range wants {
				if !strings.Contains(text, w) {
					t.Errorf("%q, want %q", text, w)
				}
			}
		}
	}
}

// What a budget limits stands in the table of what is predicted, and in the answer.
func TestWhatIsLimitedIsPrinted(t *testing.T) {
	list := []spc.BudgetPoint{{Predicted: 1, Size: 480e3, FLOPs: 0.4567}}
	for want, b := range map[string]spc.Budget{"": {Speedup: 2}, "480 KB": {Size: 500e3}, "45.7%": {FLOPs: 0.5}, "480 KB  45.7%": {Size: 500e3, FLOPs: 0.5}} {
		var foretold, answer strings.Builder
		printForetold(&foretold, &b, list, 0)
		printBudget(&answer, &spc.Report{Budget: &spc.BudgetReport{Budget: b, Tried: list}})
		said := strings.ReplaceAll(want, "  ", "; ")
		if strings.Contains(want, "%") {
			said += " of the multiply-adds"
		}
		if !strings.Contains(foretold.String(), "  1.00x  "+want) || want != "" && !strings.Contains(answer.String(), "in the median; "+said+";") {
			t.Errorf("%+v: %q, %q, want %q", b, foretold.String(), answer.String(), want)
		}
		if strings.Contains(foretold.String(), "size") != (b.Size > 0) || strings.Contains(foretold.String(), "flops") != (b.FLOPs > 0) {
			t.Errorf("%+v: %q", b, foretold.String())
		}
	}
}
