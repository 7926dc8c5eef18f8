package e2e

import (
	"bytes"
	"context"
	"path/filepath"
	"time"

	"spc"
	"spc/ir/tensor"
)

// Sparse lists the trained models that are pruned in every way, small ones with
// convolutions, matrix products, recurrent layers and attention among them.
var Sparse = []string{"resnet20-cifar10", "squeezenet1.1-imagenet", "stories260k", "silero-vad", "silero-vad-ifless", "gtcrn"}

// Prunings lists the ways in which they are pruned.
var Prunings = []spc.PruneOptions{
	{Sparsity: 0.7},
	{Sparsity: 0.7, Allocate: spc.Global},
	{Pattern: spc.Pattern{Kind: spc.Unstructured}, Sparsity: 0.8},
	{Pattern: spc.Pattern{Kind: spc.NM, N: 2, M: 4}},
	{Pattern: spc.Pattern{Kind: spc.NM, N: 1, M: 4}},
	{Pattern: spc.Pattern{Kind: spc.Block, R: 4, C: 1}, Sparsity: 0.7},
	{Pattern: spc.Pattern{Kind: spc.Block, R: 4, C: 4}, Sparsity: 0.7},
	{Pattern: spc.Pattern{Kind: spc.UniformBlock, R: 4, C: 1}, Sparsity: 0.7},
	{Pattern: spc.Pattern{Kind: spc.UniformBlock, R: 8, C: 1}, Sparsity: 0.7},
	{Pattern: spc.Pattern{Kind: spc.Channel}, Sparsity: 0.5},
}

// Suits reports whether a model can be pruned with o: gtcrn shuffles or splits
// every channel that its prunable weights make.
func Suits(model string, o spc.PruneOptions) bool {
	return model != "gtcrn" || o.Pattern.Kind != spc.Channel
}

// EvaluateSparse compiles a model with o into the bytes of an .spx, runs these on
// the CPU on the stored inputs, and compares with what the interpreter makes of
// the same pruned weights.
func EvaluateSparse(ctx context.Context, model string, o spc.PruneOptions) Result {
	r := Result{Model: model, Pipeline: o.Pattern.String()}
	if o.Allocate != "" {
		r.Pipeline += " " + string(o.Allocate)
	}
	r.Err = r.evaluateSparse(ctx, filepath.Join(Root(), model), o)
	return r
}

func (r *Result) evaluateSparse(ctx context.Context, dir string, o spc.PruneOptions) error {
	in, err := Stored(dir, "input")
	if err != nil {
		return err
	}
	start := time.Now()
	m, err := spc.Compile(ctx, spc.CompileOptions{Model: filepath.Join(dir, "model.onnx"), Prune: o})
	if err != nil {
		return err
	}
	defer m.Close()
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		return err
	}
	loaded, err := spc.Read(file.Bytes(), spc.RunOptions{})
	if err != nil {
		return err
	}
	defer loaded.Close()
	r.Bytes, r.Prepare = file.Len(), time.Since(start)
	inputs := map[string]*tensor.Tensor{}
	for i, p := range m.Inputs() {
		inputs[p.Name] = in[i]
	}
	want, err := m.Interpret(ctx, inputs)
	if err != nil {
		return err
	}
	start = time.Now()
	got, err := loaded.Run(ctx, inputs)
	if err != nil {
		return err
	}
	r.Run = time.Since(start)
	list := func(of map[string]*tensor.Tensor) (out []*tensor.Tensor) {
		for _, p := range m.Outputs() {
			out = append(out, of[p.Name])
		}
		return out
	}
	r.RelL2, err = Compare(list(got), list(want), Tolerance)
	return err
}
