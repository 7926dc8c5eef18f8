package conformance

import (
	"context"

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
