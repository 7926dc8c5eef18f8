package spc

import (
	"fmt"

	"spc/passes/calib"
	"spc/passes/prune"
	"spc/passes/quant"
)

// quantInt8 is the value of CompileOptions.Quantize for products of 8-bit integers.
const quantInt8 = "int8"

// quantOptions says how to quantise what seen sees, nil where o asks for no quantisation.
func quantOptions(o *CompileOptions, seen *calib.Observer) (*quant.Options, error) {
	o.Quantize = orDefault(o.Quantize, "none")
	switch {
	case o.Quantize == "none":
		return nil, nil
	case o.Quantize != quantInt8:
		return nil, fmt.Errorf("quantize %q: want none or int8: %w", o.Quantize, ErrInvalid)
	case o.Calibrate == nil:
		return nil, fmt.Errorf("quantize int8 needs calibration data to see the ranges of activations: %w", ErrInvalid)
	}
	ranges, err := quant.ParseRanges(o.Ranges)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	q := &quant.Options{Observer: seen, Ranges: ranges}
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
