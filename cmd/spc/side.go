package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spc"
	"spc/internal/verify"
	"spc/ir/tensor"
)

// side is a model that is run, here or by a server, or interpreted.
type side struct {
	path      string
	model     *spc.Model    // nil where an .onnx is interpreted as it was imported
	original  *spc.Original // of an .onnx
	interpret bool          // also where it is compiled
	remote    *remote       // nil but where a server has it
}

// openSide opens a model to be run on a device, or to be interpreted.
func openSide(c *cobra.Command, path string, s sizes, interpret bool, device *deviceFlags) (*side, error) {
	compiled, err := isSPX(path)
	if err != nil {
		return nil, err
	}
	m := &side{path: path, interpret: interpret}
	if compiled || !interpret {
		if !interpret {
			if err := device.open(c); err != nil {
				return nil, err
			}
		}
		m.model, err = loadModel(c, path, s, device.run)
	} else {
		m.original, err = spc.Import(c.Context(), spc.ImportOptions{Model: path, Shapes: s.shapes, Dims: s.dims})
	}
	return m, err
}

func (s *side) inputs() []spc.Port {
	if s.remote != nil {
		return s.remote.inputs
	}
	if s.model != nil {
		return s.model.Inputs()
	}
	return s.original.Inputs()
}

func (s *side) outputs() []spc.Port {
	if s.remote != nil {
		return s.remote.outputs
	}
	if s.model != nil {
		return s.model.Outputs()
	}
	return s.original.Outputs()
}

func (s *side) run(ctx context.Context, in map[string]*tensor.Tensor) (out map[string]*tensor.Tensor, err error) {
	switch {
	case s.remote != nil:
		return s.remote.run(ctx, in)
	case s.model == nil:
		out, err = s.original.Interpret(ctx, in)
	case s.interpret:
		out, err = s.model.Interpret(ctx, in)
	default:
		out, err = s.model.Run(ctx, in)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return out, nil
}

func (s *side) close() {
	if s.model != nil {
		s.model.Close()
	}
	if s.remote != nil {
		s.remote.c.Close()
	}
}

// about says what computes its outputs.
func (s *side) about() string {
	switch {
	case s.remote != nil:
		return s.path + ", as served"
	case s.model != nil:
		return s.path + ", compiled"
	}
	return s.path + " as imported"
}

// tolerance is that of the types that are known to be in use.
func (s *side) tolerance() verify.Tolerance {
	switch {
	case s.remote != nil:
		return verify.ToleranceOf("")
	case s.model != nil:
		return s.model.Tolerance()
	}
	return s.original.Tolerance()
}

func (s *side) interpretable() spc.Interpretable {
	if s.model != nil {
		return s.model
	}
	return s.original
}
