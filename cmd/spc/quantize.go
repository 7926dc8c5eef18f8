package main

import (
	"github.com/spf13/cobra"

	"spc"
)

// quantFlags are the flags that quantise a model.
type quantFlags struct {
	keep []string
}

func (f *quantFlags) add(c *cobra.Command, o *spc.QuantizeOptions) {
	fs := c.Flags()
	choiceVar(fs, &o.Type, "quantize", "none", spc.ParseQuantized, "none; int8: products of 8-bit integers, with ranges seen by --calib; fp16 or\nbf16: weights of 16 bits, products in f32")
	choiceVar(fs, &o.Ranges, "ranges", "mse", spc.ParseRanges, "what the steps of an activation span of its range on the samples: mse what\nmakes the squared error least; percentile[:P] the middle P percent, by default\n99.99; minmax all of it")
	fs.StringArrayVar(&f.keep, "keep-float", nil, "`GLOB` of layers that --quantize leaves in floating point; none quantises\nthe sensitive ones, too, which otherwise stay")
	complete(c, "keep-float", cobra.NoFileCompletions)
	complete(c, "ranges", values("minmax", "percentile", "mse"))
	complete(c, "quantize", values(spc.Quantized()...))
}

// apply sets the options that the flags stand for.
func (f *quantFlags) apply(o *spc.QuantizeOptions) { o.KeepFloat, o.KeepNone = part(f.keep, none) }
