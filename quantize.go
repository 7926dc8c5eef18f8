package spc

import (
	"fmt"

	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/prune"
	"spc/passes/quant"
)

// quantTypes are the types that the values of CompileOptions.Quantize stand for.
var quantTypes = map[string]tensor.DType{"int8": tensor.I8, "fp16": tensor.F16, "bf16": tensor.BF16}

// quantOptions says how to quantise what seen sees, nil where o asks for no quantisation.
func quantOptions(o *CompileOptions, seen *calib.Observer) (*quant.Options, error) {
	o.Quantize = orDefault(o.Quantize, "none")
	dt, ok := quantTypes[o.Quantize]
	switch {
	case o.Quantize == "none":
		return nil, nil
	case !ok:
		return nil, fmt.Errorf("quantize %q: want none, int8, fp16 or bf16: %w", o.Quantize, ErrInvalid)
	case dt == tensor.I8 && o.Calibrate == nil:
		return nil, fmt.Errorf("quantize int8 needs calibration data to see the ranges of activations: %w", ErrInvalid)
	}
	ranges, err := quant.ParseRanges(o.Ranges)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	q := &quant.Options{Type: dt, Observer: seen, Ranges: ranges}
	for _, k := range o.KeepFloat {
		if k == "none" {
			q.All = true
			continue
		}
		g, err := prune.ParseGlob(k)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, ErrInvalid)
		}
		q.KeepFloat = append(q.KeepFloat, g)
	}
	return q, nil
}
