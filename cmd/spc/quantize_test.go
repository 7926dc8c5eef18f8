package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/tests/archs"
)

func TestQuantizeAndPrune(t *testing.T) {
	workspace(t)
	quantise := []string{"--quantize", "int8", "--calib", "photos", "--preprocess", "imagenet"}
	ok(t, append([]string{"compile", "model.onnx", "-o", "int8.spx"}, quantise...)...)
	ok(t, append([]string{"prune", "model.onnx", "-o", "int8.onnx"}, quantise...)...)
	ok(t, "compile", "int8.onnx", "-o", "back.spx")
	for _, f := range []string{"int8.spx", "back.spx"} {
		m, err := spc.Open(f, spc.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range m.Explain().Layers {
			if l.DType != "i8" {
				t.Errorf("%s: layer %s has %s weights, want i8", f, l.Name, l.DType)
			}
		}
		m.Close()
		ok(t, "verify", f, "model.onnx", "--tolerance", "0.05")
	}
	ok(t, "verify", "int8.onnx", "int8.spx", "--tolerance", "0.03")
	for _, r := range []string{"percentile:99.9", "mse"} {
		ok(t, append([]string{"compile", "model.onnx", "-o", "ranges.spx", "--ranges", r}, quantise...)...)
		ok(t, "verify", "ranges.spx", "model.onnx", "--tolerance", "0.1")
	}

	out := ok(t, append([]string{"compile", "model.onnx", "-o", "kept.spx", "--keep-float", "*head*"}, quantise...)...)
	if !strings.Contains(out, "; not /head/Gemm") {
		t.Errorf("%s, want the layer that is kept", out)
	}
	note := "the rows count zeros that rounding to 8 bits made"
	if out := ok(t, "inspect", "model.onnx"); strings.Contains(out, note) {
		t.Errorf("%s, want nothing about rounding", out)
	}
	if out := ok(t, "inspect", "int8.spx"); !strings.Contains(out, note) {
		t.Errorf("%s, want why the zeros differ", out)
	}
	ok(t, append([]string{"prune", "model.onnx", "-o", "sparse.onnx", "--sparsity", "0.6", "--prune", "magnitude"}, quantise...)...)
	if out := ok(t, "compile", "sparse.onnx", "-o", "sparse.spx"); !regexp.MustCompile(`zeros +[3-6][0-9]\.`).MatchString(out) {
		t.Errorf("%s, want the zeros of the pruned integers", out)
	}
	if out := ok(t, "inspect", "sparse.spx"); strings.Contains(out, note) || strings.Contains(out, "not zero (0.0% zeros)") {
		t.Errorf("%s, want the totals of the rows", out)
	}
	if out := ok(t, "inspect", "kept.spx"); !strings.Contains(out, "not quantised, kept by *head*; ") {
		t.Errorf("%s, want why head is not quantised", out)
	}

	for q, dt := range map[string]string{"fp16": "f16", "bf16": "bf16"} {
		out := ok(t, "compile", "model.onnx", "-o", "half.spx", "--quantize", q, "--keep-float", "*head*")
		if want := fmt.Sprintf("\n%-9s 4 weights", "as "+dt); !strings.Contains(out, want) {
			t.Errorf("%s, want %q, in the column of the other rows", out, want)
		}
		ok(t, "verify", "half.spx", "model.onnx", "--tolerance", "0.02")
		if out := ok(t, "inspect", "half.spx"); strings.Count(out, " "+dt+" ") != 4 || !strings.Contains(out, "not quantised, kept by *head*; ") {
			t.Errorf("%s, want four weights of %s, and why the fifth is not", out, dt)
		}
		ok(t, "prune", "model.onnx", "-o", "half.onnx", "--quantize", q, "--keep-float", "*head*")
		ok(t, "verify", "half.onnx", "half.spx", "--tolerance", "1e-5")
		if a, b := fileBytes(t, "half.onnx"), fileBytes(t, "model.onnx"); a > b*6/10 {
			t.Errorf("half.onnx takes %d bytes, model.onnx %d", a, b)
		}
	}

	out = ok(t, "prune", "model.onnx", "-o", "pruned.onnx", "--sparsity", "0.5")
	if !strings.Contains(out, "50.0% of the") {
		t.Errorf("%s, want half of the prunable weights gone", out)
	}
	ok(t, "compile", "model.onnx", "-o", "pruned.spx", "--sparsity", "0.5")
	ok(t, "verify", "pruned.onnx", "pruned.spx", "--tolerance", "1e-4")

	for want, args := range map[string][]string{
		"--quantize int8 needs --calib, samples that show": {"compile", "model.onnx", "--quantize", "int8"},
		`--ranges "max": want minmax, percentile`:          append([]string{"compile", "model.onnx", "--ranges", "max"}, quantise...),
		"--ranges mse has no use":                          {"compile", "model.onnx", "--ranges", "mse"},
		"--keep-float x has no use":                        {"compile", "model.onnx", "--keep-float", "x"},
		`--keep-float "heart*": no layer or weight`:        append([]string{"compile", "model.onnx", "--keep-float", "heart*"}, quantise...),
		`--quantize "int9": want one of none`:              {"compile", "model.onnx", "--quantize", "int9"},
		"--calib has no use without":                       {"compile", "model.onnx", "--calib", "photos", "--preprocess", "unit"},
		"images need --preprocess":                         {"compile", "model.onnx", "--quantize", "int8", "--calib", "photos"},
		`-o pruned.spx, want an .onnx file`:                {"prune", "model.onnx", "-o", "pruned.spx"},
		"-o model.onnx is a file that this command reads":  {"prune", "model.onnx", "-o", "model.onnx"},
		`"random:x", want random:SEED`:                     {"prune", "model.onnx", "-o", "x.onnx", "--quantize", "int8", "--calib", "random:x"},
		"tokens want integers":                             {"prune", "model.onnx", "-o", "x.onnx", "--quantize", "int8", "--calib", "tokens.npy"},
		"--samples 9:: chooses none of the 5 of pho":       {"compile", "model.onnx", "--quantize", "int8", "--calib", "photos", "--samples", "9::"},
	} {
		fails(t, args, want)
	}
}

// TestQuantizeWeights rounds weights alone to codes, in both kinds of files, which agree, and says what there is no such thing for.
func TestQuantizeWeights(t *testing.T) {
	workspace(t)
	calib := []string{"--calib", "photos", "--preprocess", "imagenet"}
	for i, flags := range [][]string{{"int4"}, {"int8w"}, {"int4:64", "--sparsity", "0.5"}, append([]string{"int4"}, calib...), append([]string{"int4", "--sparsity", "0.5", "--allocate", "layer"}, calib...)} {
		bits, block := "i4", ":32 "
		if flags[0] == "int8w" {
			bits = "i8"
		} else if flags[0] == "int4:64" {
			block = ":64 "
		}
		args := append([]string{"model.onnx", "--keep-float", "*head*", "--quantize"}, flags...)
		out := ok(t, append([]string{"compile", "-o", "codes.spx"}, args...)...)
		if want := "\nas " + bits + block; !strings.Contains(out, want) || !strings.Contains(out, "4 weights, changed by ") || !strings.Contains(out, "; not /head/Gemm") {
			t.Errorf("%d: %s, want %q, by how much 4 weights change and which does not", i, out, want)
		}
		if out := ok(t, "inspect", "codes.spx"); !strings.Contains(out, "not quantised, kept by *head*; ") {
			t.Errorf("%d: %s, want why head is not quantised", i, out)
		}
		ok(t, append([]string{"prune", "-o", "codes.onnx"}, args...)...)
		ok(t, "verify", "codes.onnx", "codes.spx", "--tolerance", "1e-4")
		ok(t, "compile", "codes.onnx", "-o", "back.spx")
		ok(t, "verify", "codes.onnx", "back.spx", "--tolerance", "1e-4")
		if a, b := fileBytes(t, "codes.onnx"), fileBytes(t, "model.onnx"); a > b*6/10 {
			t.Errorf("%d: codes.onnx takes %d bytes, model.onnx %d", i, a, b)
		}
	}
	for want, args := range map[string][]string{
		`--quantize "int4:24": want int4:BLOCK, a power of two from 16`:                 {"--quantize", "int4:24"},
		`--quantize "int4:8": want int4:BLOCK`:                                          {"--quantize", "int4:8"},
		`--quantize "int4:2097152": want int4:BLOCK, a power of two from 16 to 1048576`: {"--quantize", "int4:2097152"},
		`--quantize "int8w:x": want int8w:BLOCK`:                                        {"--quantize", "int8w:x"},
		`--quantize "fp16:32": want no number behind fp16`:                              {"--quantize", "fp16:32"},
		`--quantize "int4:99999999999999999999": want`:                                  {"--quantize", "int4:99999999999999999999"},
		"--ranges mse has no use without --quantize int8":                               {"--quantize", "int8w", "--ranges", "mse"},
		"--keep-float none has no use with --quantize int4":                             {"--quantize", "int4", "--keep-float", "none"},
		"--target cuda: weights of int4 are for the CPU":                                {"--quantize", "int4", "--target", "cuda"},
		"--quantize int4: a budget does not round weights alone to codes":               append([]string{"--quantize", "int4", "--size", "10KB", "--max-drop", "1"}, calib...),
		"--stop-after prune: quantisation is asked for":                                 {"--quantize", "int4", "--stop-after", "prune"},
	} {
		fails(t, append([]string{"compile", "model.onnx", "-o", "x.spx"}, args...), want)
	}
	fails(t, []string{"prune", "model.onnx", "-o", "x.onnx", "--quantize", "int4", "--opset", "20"}, "--opset 20: the model's nodes are written in the form of opset 21")
}

// A size alone is met by formats, without samples.
func TestSizesThatFormatsMeet(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "any.spx", "--quantize", "int4")
	size := fileBytes(t, "any.spx") * 3 / 2
	ok(t, "compile", "model.onnx", "-o", "sized.spx", "--quantize", "int4", "--size", fmt.Sprint(size))
	if n := fileBytes(t, "sized.spx"); n > size {
		t.Errorf("%d bytes, want %d", n, size)
	}
	ok(t, "verify", "any.spx", "sized.spx", "--tolerance", "1e-4")
	samples := []string{"compile", "model.onnx", "--quantize", "int4", "--calib", "photos", "--preprocess", "imagenet", "--size", fmt.Sprint(size)}
	ok(t, append(samples, "-o", "rounded.spx", "--sparsity", "0.5")...)
	if n := fileBytes(t, "rounded.spx"); n > size {
		t.Errorf("%d bytes with samples, want %d", n, size)
	}
	fails(t, append(samples, "-o", "x.spx", "--search", "4"), "--search has no use without a budget")
	fails(t, []string{"compile", "model.onnx", "-o", "x.spx", "--quantize", "auto", "--size", "2MB"}, "--quantize auto leaves types to a budget")
	if r := spcRun("compile", "model.onnx", "-o", "x.spx", "--size", "2KB"); r.status != 2 || !strings.Contains(r.errors, "want at most 2000") {
		t.Errorf("2 KB: %+v", r)
	}
	for want, args := range map[string][]string{
		"--tune and --size exclude each other":                   {"--size", "2MB", "--tune"},
		"--search has no use without a budget":                   {"--size", "2MB", "--search", "4"},
		"--refine has no use without --sparsity":                 {"--size", "2MB", "--refine", "swaps"},
		"--format csr leaves --size no choice, want auto":        {"--size", "2MB", "--format", "csr"},
		"--target cuda: --size chooses among formats of the CPU": {"--size", "2MB", "--target", "cuda"},
	} {
		fails(t, append([]string{"compile", "model.onnx", "-o", "x.spx"}, args...), want)
	}
}

// Weights of integers count as prunable whether or not zeros are asked for.
func TestQuantisedModelsHavePrunableWeights(t *testing.T) {
	workspace(t)
	ok(t, "prune", "model.onnx", "-o", "int8.onnx", "--quantize", "int8", "--calib", "photos", "--preprocess", "imagenet")
	want := decoded[spc.Report](t, "inspect", "model.onnx").Totals.Prunable
	for _, args := range [][]string{{"inspect", "int8.onnx"}, {"compile", "int8.onnx"}, {"compile", "int8.onnx", "--sparsity", "0.5"}} {
		n := decoded[spc.Report](t, args...).Totals
		if n.Prunable != want || want == 0 || n.PrunableZeros > n.Weights-n.Nonzeros || len(args) == 2 && n.PrunableZeros > n.Prunable/4 {
			t.Errorf("spc %v: %+v, want %d prunable weights", args, n, want)
		}
	}
}

// What prune prints as JSON has no fields of formats, which it does not choose.
func TestPruneTellsNothingOfFormats(t *testing.T) {
	workspace(t)
	type report struct {
		Layers any
		Totals map[string]int
		Prune  struct{ Layers []any }
	}
	for _, args := range [][]string{{"prune", "model.onnx", "-o", "pruned.onnx", "--sparsity", "0.5"}, {"compile", "model.onnx", "-o", "pruned.spx", "--sparsity", "0.5", "--stop-after", "prune"}} {
		r := decoded[report](t, args...)
		want := map[string]int{"weights": 12056, "nonzeros": 6296, "prunable": 11520, "prunable_zeros": 5760}
		if r.Layers != nil || len(r.Prune.Layers) != 5 || !maps.Equal(r.Totals, want) {
			t.Errorf("spc %v: layers %v, %d pruned, totals %v, want none, 5, %v", args, r.Layers, len(r.Prune.Layers), r.Totals, want)
		}
	}
	writeModel(t, "relu.onnx", func() (*archs.Model, error) {
		b := archs.New("relu", 17)
		b.Output("y", b.Node("Relu", nil, b.Input("x", archs.Float32, 2)), archs.Float32, 2)
		return b.Model(1)
	})
	if r := decoded[report](t, "compile", "relu.onnx"); r.Layers == nil || len(r.Totals) != 6 {
		t.Errorf("without weights: layers %v, totals %v", r.Layers, r.Totals)
	}
}

func fileBytes(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Outputs of a model that rounds to integers do not show NaN among its inputs: a line does.
func TestNaNForIntegersIsAWarning(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "int8.spx", "--quantize", "int8", "--calib", "photos", "--preprocess", "imagenet")
	x := tensor.New(tensor.F32, 1, 3, 16, 16)
	writeNPY(t, "x.npy", x)
	ok(t, "run", "int8.spx", "-i", "input=x.npy")
	x.F32s()[5] = float32(math.NaN())
	writeNPY(t, "x.npy", x)
	warned(t, "input input holds 1 NaN; the model rounds to integers", "run", "int8.spx", "-i", "input=x.npy")
	ok(t, "run", "model.onnx", "-i", "input=x.npy") // which shows them
}
