package spc_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
)

// The choices that errors name are fields.
func TestChoicesAreFields(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "ir/option/option.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Name" {
			return true
		}
		path, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		of := reflect.TypeFor[spc.CompileOptions]()
		for _, other := range []reflect.Type{reflect.TypeFor[spc.RunOptions](), reflect.TypeFor[spc.DeviceOptions](), reflect.TypeFor[spc.TuneOptions](), reflect.TypeFor[spc.BudgetOptions]()} {
			if field, is := strings.CutPrefix(path, other.Name()+"."); is {
				of, path = other, field
			}
		}
		if !isField(of, path) {
			t.Errorf("%s, which option.%s names, is no field", path, v.Names[0].Name)
		}
		return true
	})
	if found < 20 {
		t.Errorf("%d choices found", found)
	}
}

func isField(t reflect.Type, path string) bool {
	head, rest, deeper := strings.Cut(path, ".")
	f, ok := t.FieldByName(head)
	return ok && (!deeper || isField(f.Type, rest))
}

func TestOptionsThatContradictAreErrors(t *testing.T) {
	seen := spc.Calibration{Inputs: samples(2, nil)}
	for want, o := range map[string]spc.CompileOptions{
		`Target "moon": want one of cpu, cuda`:                                     {Target: "moon"},
		`Format "moon": want one of auto, dense`:                                   {Format: "moon"},
		"Prune.Sparsity 1: want a fraction":                                        {Prune: spc.PruneOptions{Sparsity: 1}},
		"Prune.Sparsity 0.7: Prune.Pattern 2:4 sets its own, 0.5":                  {Prune: spc.PruneOptions{Sparsity: 0.7, Pattern: spc.Pattern{Kind: spc.NM, N: 2, M: 4}}},
		`Prune.Pattern "block:0x0": want block:RxC`:                                {Prune: spc.PruneOptions{Pattern: spc.Pattern{Kind: spc.Block}}},
		"Calibration.Threads -1: want from 0 to 4096":                              {Calibration: spc.Calibration{Inputs: samples(2, nil), Threads: -1}},
		"Calibration.Threads 4097: want from 0 to 4096":                            {Calibration: spc.Calibration{Threads: 4097}},
		"Calibration.Cache c needs Calibration.Identity":                           {Prune: spc.PruneOptions{Sparsity: 0.5}, Calibration: spc.Calibration{Inputs: samples(2, nil), Cache: "c"}},
		"Calibration.Inputs: no sequence of samples":                               {Prune: spc.PruneOptions{Sparsity: 0.5}, Calibration: spc.Calibration{Inputs: func(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] { return nil }}},
		"Prune.Layers *=0.3: Prune.Pattern block:4x4+2:4 has 0.5 zeros":            {Prune: spc.PruneOptions{Pattern: spc.Pattern{Kind: spc.Block, R: 4, C: 4, N: 2, M: 4}, Sparsity: 0.8, Layers: []spc.LayerSparsity{{Glob: "*", Sparsity: 0.3}}}},
		"Prune.Sparsity 0.3: Prune.Pattern block:4x4+2:4 has 0.5 zeros":            {Prune: spc.PruneOptions{Pattern: spc.Pattern{Kind: spc.Block, R: 4, C: 4, N: 2, M: 4}, Sparsity: 0.3}},
		"Prune.Layers *=0.9: Prune.Pattern 2:4 sets its own, 0.5":                  {Prune: spc.PruneOptions{Pattern: spc.Pattern{Kind: spc.NM, N: 2, M: 4}, Layers: []spc.LayerSparsity{{Glob: "*", Sparsity: 0.9}}}},
		`Prune.Keep "a\nb": no layer or weight has a name like this`:               {Prune: spc.PruneOptions{Sparsity: 0.5, Keep: []string{"a\nb"}}},
		`Prune.Keep: glob "[": `:                                                   {Prune: spc.PruneOptions{Keep: []string{"["}}},
		"Prune.Layers: sparsity 2 of *":                                            {Prune: spc.PruneOptions{Layers: []spc.LayerSparsity{{Glob: "*", Sparsity: 2}}}},
		`Prune.Method "taste": want one of magnitude`:                              {Prune: spc.PruneOptions{Sparsity: 0.5, Method: "taste"}},
		"Prune.Method obs needs calibration samples, which Calibration.Inputs":     {Prune: spc.PruneOptions{Sparsity: 0.5, Method: spc.OBS}},
		`Prune.Allocate "fair": want one of layer`:                                 {Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: "fair"}},
		`Prune.Refine "taste": want one of none`:                                   {Prune: spc.PruneOptions{Sparsity: 0.5, Refine: "taste"}},
		"Prune.Refine swaps needs calibration samples":                             {Prune: spc.PruneOptions{Sparsity: 0.5, Refine: spc.Swaps}},
		"Prune.Refine has no use without":                                          {Prune: spc.PruneOptions{Refine: spc.Swaps}, Calibration: seen},
		"Prune.Refine swaps: Prune.Pattern channel has no masks":                   {Prune: spc.PruneOptions{Sparsity: 0.5, Pattern: spc.Pattern{Kind: spc.Channel}, Refine: spc.Swaps}, Calibration: seen},
		"Prune.Aim dense needs calibration samples":                                {Prune: spc.PruneOptions{Sparsity: 0.5, Aim: spc.AimOutputs}},
		"Prune.Uncorrected needs calibration samples":                              {Prune: spc.PruneOptions{Sparsity: 0.5, Uncorrected: true}},
		"Prune.Uncorrected has no use without Prune.Sparsity":                      {Prune: spc.PruneOptions{Uncorrected: true}},
		"Prune.Reconstruct has no use without":                                     {Prune: spc.PruneOptions{Reconstruct: spc.Recipe{}}, Calibration: seen},
		"Prune.Reconstruct: recipe: -1 is no value of blocks":                      {Prune: spc.PruneOptions{Sparsity: 0.5, Reconstruct: spc.Recipe{"blocks": -1}}, Calibration: seen},
		"Quantize.Type i16: want one of none, int8, int8w, int4, fp16, bf16":       {Quantize: spc.QuantizeOptions{Type: tensor.I16}},
		"Quantize.Type int4:24: blocks of 24 weights, want a power of two from 16": {Quantize: spc.QuantizeOptions{Type: tensor.I4, Block: 24}},
		"Quantize.Type int8w:-1: blocks of -1 weights":                             {Quantize: spc.QuantizeOptions{Type: tensor.I8, Block: -1}},
		"Quantize.Type f16 has no blocks":                                          {Quantize: spc.QuantizeOptions{Type: tensor.F16, Block: 32}},
		"Quantize.Type int8 needs Calibration.Inputs":                              {Quantize: spc.QuantizeOptions{Type: tensor.I8}},
		"Quantize.Ranges minmax has no use without Quantize.Type int8":             {Quantize: spc.QuantizeOptions{Type: tensor.F16, Ranges: spc.Ranges{Method: spc.MinMax}}},
		"Quantize.Ranges percentile:3: want a percentile":                          {Quantize: spc.QuantizeOptions{Type: tensor.I8, Ranges: spc.Ranges{Method: spc.Percentile, Percentile: 3}}, Calibration: seen},
		"Quantize.KeepFloat x has no use without Quantize.Type":                    {Quantize: spc.QuantizeOptions{KeepFloat: []string{"x"}}},
		"Target cuda: weights of bf16 are for the CPU":                             {Target: spc.CUDA, Quantize: spc.QuantizeOptions{Type: tensor.BF16}},
		"Calibration.Inputs has no use without Prune.Sparsity, a Prune.Pattern th": {Calibration: seen},
		"Calibration.Cache c needs calibration samples":                            {Calibration: spc.Calibration{Cache: "c"}},
		`Debug.StopAfter: no pass is named "moon"`:                                 {Debug: spc.DebugOptions{StopAfter: "moon"}},
		"Debug.Disable prune: a sparsity is asked for, which needs the pass prune": {Prune: spc.PruneOptions{Sparsity: 0.5}, Debug: spc.DebugOptions{Disable: []string{"prune"}}},
		"want either the path or the bytes of a model":                             {Model: "model.onnx"},
	} {
		o.Bytes = tinyBytes(t, "resnet")
		_, err := spc.Compile(t.Context(), o)
		if !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
