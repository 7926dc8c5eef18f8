package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"spc"
	"spc/passes/choose"
)

func TestFormatsForOpenSizes(t *testing.T) {
	workspace(t)
	for _, c := range []struct {
		args []string
		want string // empty where nothing is open
	}{
		{nil, "chosen    for batch 1 to 16, t 1 to 1024 (--dim narrows that)\n"},
		{[]string{"--dim", "t=1..12", "--dim", "batch=1"}, "chosen    for t 1 to 12 (--dim narrows that)\n"},
		{[]string{"--dim", "t=1,12", "--dim", "batch=2..2"}, "chosen    for batch 2, t 1 and 12 (--dim narrows that)\n"},
		{[]string{"--shape", "ids=?x?"}, "chosen    for batch 1 to 16, t 1 to 1024 (--dim narrows that)\n"},
		{[]string{"--dim", "t=12", "--dim", "batch=1"}, ""},
	} {
		out := ok(t, append([]string{"compile", "lm.onnx", "-o", "lm.spx", "--sparsity", "0.5"}, c.args...)...)
		if c.want == "" && strings.Contains(out, "chosen") || !strings.Contains(out, c.want) {
			t.Errorf("%v: %q, want %q", c.args, out, c.want)
		}
	}
	ok(t, "compile", "lm.onnx", "-o", "lm.spx", "--sparsity", "0.5", "--dim", "t=1,12", "--dim", "batch=1")
	var r spc.Report
	if err := json.Unmarshal([]byte(ok(t, "inspect", "lm.spx", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Open) != 1 || r.Open[0].Name != "t" || r.Open[0].String() != "1,12" {
		t.Errorf("chosen for %v", r.Open)
	}
	for _, l := range r.Layers {
		if len(l.Points) != 2 || l.Points[1].N != 12 || l.Points[1].Sizes["t"] != 12 || len(l.Candidates) > 0 && len(l.Candidates[0].PointsUs) != 2 {
			t.Errorf("%s: points %v, %+v", l.Name, l.Points, l.Candidates)
		}
		out := ok(t, "inspect", "lm.spx", "--layer", l.Name)
		if !strings.Contains(out, ", 1 to 12 columns\n") || len(l.Candidates) > 0 && !(strings.Contains(out, "  N=1  ") && strings.Contains(out, "  N=12  why\n")) {
			t.Errorf("%s is shown as %s", l.Name, out)
		}
	}
	ok(t, "bench", "lm.spx", "--dim", "t=20", "--runs", "1", "--warmup", "0") // which nothing bounds

	for _, bad := range []struct{ dim, want string }{
		{"t=0..5", "--dim t=0..5, want sizes from 1 to 1048576"},
		{"t=5..1", "--dim t=5..1, want the smaller size first"},
		{"t=1..", `--dim t="1..", want a size, a range such as 1..512, or sizes such as 1,128`},
		{"t=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "--dim t=17 sizes, want at most 16, or a range such as 1..17"},
		{"q=1..5", `--dim: no dimension is called "q", want one of: batch, t`},
	} {
		fails(t, []string{"compile", "lm.onnx", "--dim", bad.dim}, bad.want)
	}
	fails(t, []string{"compile", "lm.onnx", "--dim", "t=1..5", "--dim", "t=5"}, "--dim t=1..5, but --dim t=5")
	fails(t, []string{"compile", "lm.onnx", "--dim", "t=1..5", "--dim", "t=1..6"}, "--dim t is given as 1..5 and 1..6")
	fails(t, []string{"compile", "lm.onnx", "--dim", "t=1..5", "--shape", "ids=1x5"}, "--dim t=1..5: the dimension has a size, want an open one")
	fails(t, []string{"compile", "model.onnx", "--dim", "t=1..5"}, `--dim: no dimension is called "t"`)
	for _, args := range [][]string{{"run", "lm.onnx", "-i", "random:1"}, {"bench", "lm.onnx"}, {"verify", "lm.onnx"}, {"prune", "lm.onnx", "-o", "p.onnx", "--sparsity", "0.5"}} {
		fails(t, append(args, "--dim", "t=1..5"), "--dim t=1..5, want one size; spc compile takes several, to choose formats for")
	}
}

func TestWeightsInTwoForms(t *testing.T) {
	workspace(t)
	made := []string{"compile", "lm.onnx", "-o", "lm.spx", "--sparsity", "0.5", "--dim", "batch=1", "--dim", "t=1,12"}
	out := ok(t, made...)
	for _, want := range []string{"formats   dense 1, pair 1\n", "pairs     1 weight in two forms, 960 B more than in one (--one-format forbids that)\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s, want %s", out, want)
		}
	}
	if out := ok(t, "inspect", "lm.spx"); !strings.Contains(out, "pair nm:16:32<7,dense") || !strings.Contains(out, "1.11x than dense alone") {
		t.Errorf("no forms in %s", out)
	}
	for _, n := range []string{"t=1", "t=6", "t=7", "t=12"} {
		ok(t, "verify", "lm.onnx", "lm.spx", "--dim", n)
	}
	if out := ok(t, append(made, "--one-format")...); strings.Contains(out, "pair") {
		t.Errorf("--one-format prints %s", out)
	}
	if out := ok(t, "inspect", "lm.spx"); !strings.Contains(out, "--one-format") {
		t.Errorf("the command is not kept: %s", out)
	}
	fails(t, append(made, "--one-format", "--format", "ell"), "--format and --one-format exclude each other")
	fails(t, append(made, "--format", "pair", "--target", "cuda"), `--format "pair": want auto or dense, ell, nm, block, csr, hyb, bitmap`)
}

// Times that were not measured, but scaled, are marked.
func TestScaledPointsAreMarked(t *testing.T) {
	l := &spc.Layer{N: 64, Points: []choose.Point{{N: 1}, {N: 64}}, Candidates: []spc.Candidate{
		{Format: "ell", MeasuredUs: 3, PointsUs: []float64{1.5, 6}, ScaledPoints: []int{1}}, {Format: "dense", MeasuredUs: 4, PointsUs: []float64{2, 8}},
	}}
	var out bytes.Buffer
	printPoints(&out, l)
	for want, times := range map[string]int{"~6": 1, "~": 2, "~ predicted, scaled as the nearest measured number of columns": 1} {
		if got := strings.Count(out.String(), want); got != times {
			t.Errorf("%q stands there %d times, want %d, in\n%s", want, got, times, &out)
		}
	}
	l.Candidates[0].ScaledPoints = nil
	out.Reset()
	printPoints(&out, l)
	if strings.Contains(out.String(), "~") {
		t.Errorf("%s", &out)
	}
}
