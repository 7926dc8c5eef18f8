package conformance

import (
	"bytes"
	"context"

	"spc"
	"spc/backend/ref"
	"spc/ir/onnx"
	"spc/ir/tensor"
)

// Run evaluates a prepared model.
type Run func(ctx context.Context, inputs []*tensor.Tensor) ([]*tensor.Tensor, error)

// Pipeline is a way of evaluating a model.
type Pipeline struct {
	Name string
	// Prepare makes the model of a file's bytes ready to run. Models of the
	// suite have no external data.
	Prepare func(ctx context.Context, model []byte) (Run, error)
}

// Pipelines lists the ways of evaluating a model.
var Pipelines = []Pipeline{
	{"interpreter", interpreter},
	{"compiled", compiled},
}

func interpreter(_ context.Context, model []byte) (Run, error) {
	g, _, err := onnx.ImportBytes(model, "", onnx.Options{})
	if err != nil {
		return nil, err
	}
	if err := g.Verify(); err != nil {
		return nil, err
	}
	it := &ref.Interpreter{Check: true}
	return func(ctx context.Context, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		return it.Run(ctx, g, in)
	}, nil
}

// compiled takes the model through everything that a user's takes: the passes,
// an .spx file, lowering and the CPU back end.
func compiled(ctx context.Context, model []byte) (Run, error) {
	m, err := spc.Compile(ctx, spc.CompileOptions{Bytes: model, Debug: spc.DebugOptions{Verify: true}})
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		return nil, err
	}
	if m, err = spc.Read(file.Bytes(), spc.RunOptions{Threads: 1}); err != nil {
		return nil, err
	}
	return InOrder(m), nil
}

// InOrder runs a model on inputs in its order, and returns its outputs in theirs.
func InOrder(m *spc.Model) Run {
	return func(ctx context.Context, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		args := map[string]*tensor.Tensor{}
		for i, p := range m.Inputs() {
			if i < len(in) {
				args[p.Name] = in[i]
			}
		}
		outs, err := m.Run(ctx, args)
		if err != nil {
			return nil, err
		}
		var out []*tensor.Tensor
		for _, p := range m.Outputs() {
			out = append(out, outs[p.Name])
		}
		return out, nil
	}
}
