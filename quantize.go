package spc

import (
	"context"
	"fmt"
	"iter"

	"spc/backend"
	"spc/backend/cpu"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower"
	"spc/passes/calib"
	"spc/passes/prune"
	"spc/passes/quant"
)

// quantInt8 is the value of CompileOptions.Quantize for products of 8-bit integers.
const quantInt8 = "int8"

// quantOptions says how to quantise, nil where o asks for no quantisation.
func quantOptions(o *CompileOptions) (*quant.Options, error) {
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
	q := &quant.Options{Observer: observer(o), Ranges: ranges}
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

// observer sees the calibration samples, nil where there are none.
func observer(o *CompileOptions) *calib.Observer {
	if o.Calibrate == nil {
		return nil
	}
	inputs := func(ctx context.Context, g *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
		return func(yield func([]*tensor.Tensor, error) bool) {
			for sample, err := range o.Calibrate(ctx, inputs(g)) {
				in := make([]*tensor.Tensor, len(g.Inputs))
				if err == nil {
					err = arrange(g, in, sample)
				}
				if !yield(in, err) || err != nil {
					return
				}
			}
		}
	}
	return &calib.Observer{Inputs: inputs, Run: calibrator(o)}
}

// calibShares is the number of threads that calibration's work is divided for, so that
// what it sees does not depend on how many there are. No more than these take part.
const calibShares = 8

// calibrator evaluates graphs on the CPU.
func calibrator(o *CompileOptions) calib.Runner {
	return func(ctx context.Context, g *ir.Graph, in iter.Seq2[[]*tensor.Tensor, error], see func([]*tensor.Tensor) error) error {
		p, err := cpu.Device{}.Load(lower.Lower(g), backend.Options{Threads: o.Threads, Shares: calibShares})
		if err != nil {
			return err
		}
		defer p.Close()
		done, out := 0, make([]*tensor.Tensor, len(g.Outputs))
		for sample, err := range in {
			if err != nil {
				return err
			}
			if err := p.Run(ctx, sample, out); err != nil {
				return err
			}
			if err := see(out); err != nil {
				return err
			}
			if done++; o.Progress != nil {
				o.Progress("calibrate", done, done+1)
			}
		}
		return nil
	}
}
