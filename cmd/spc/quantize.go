package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
)

// quantTypes lists the values of --quantize.
var quantTypes = []string{"none", "int8", "fp16", "bf16"}

// quantFlags are the flags that quantise a model.
type quantFlags struct {
	quantize, ranges string
	keep             []string
}

func (f *quantFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.quantize, "quantize", "none", "none; int8: products of 8-bit integers, with ranges seen by --calib; fp16 or\nbf16: weights of 16 bits, products in f32")
	fs.StringVar(&f.ranges, "ranges", "mse", "what the steps of an activation span of its range on the samples: mse what\nmakes the squared error least; percentile[:P] the middle P percent, by default\n99.99; minmax all of it")
	fs.StringArrayVar(&f.keep, "keep-float", nil, "`GLOB` of layers that --quantize leaves in floating point; none quantises\nthe sensitive ones, too, which otherwise stay")
	complete(c, "keep-float", cobra.NoFileCompletions)
	complete(c, "ranges", values("minmax", "percentile", "mse"))
	complete(c, "quantize", values(quantTypes...))
}

// apply sets the options that the flags stand for.
func (f *quantFlags) apply(fs *pflag.FlagSet, o *spc.CompileOptions, calibrated bool) error {
	o.Quantize, o.Ranges, o.KeepFloat = f.quantize, f.ranges, f.keep
	switch {
	case !slices.Contains(quantTypes, f.quantize):
		return fmt.Errorf("--quantize %q, want one of %s", f.quantize, strings.Join(quantTypes, ", "))
	case f.quantize != "int8" && fs.Changed("ranges"):
		return fmt.Errorf("--ranges %s has no use without --quantize int8", f.ranges)
	case f.quantize == "none" && len(f.keep) > 0:
		return fmt.Errorf("--keep-float %s has no use without --quantize", f.keep[0])
	case f.quantize == "int8" && !calibrated:
		return fmt.Errorf("--quantize int8 needs --calib DATA, or --calib random:SEED")
	}
	return nil
}
