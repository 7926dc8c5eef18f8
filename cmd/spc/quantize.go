package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
)

// quantFlags are the flags that quantise a model.
type quantFlags struct {
	quantize, ranges string
	keep             []string
}

func (f *quantFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.quantize, "quantize", "none", "none, or int8: products of 8-bit integers, with ranges seen by --calib")
	fs.StringVar(&f.ranges, "ranges", "minmax", "what the steps of an activation span of its range on the samples: minmax all\nof it; percentile[:P] the middle P percent, by default 99.99; mse what makes\nthe squared error least, for weights, too")
	fs.StringArrayVar(&f.keep, "keep-float", nil, "`GLOB` of layers that --quantize leaves in floating point; none quantises\nthe sensitive ones, too, which otherwise stay")
	complete(c, "keep-float", cobra.NoFileCompletions)
	complete(c, "ranges", values("minmax", "percentile", "mse"))
	complete(c, "quantize", values("none", "int8"))
}

// apply sets the options that the flags stand for.
func (f *quantFlags) apply(fs *pflag.FlagSet, o *spc.CompileOptions, calibrated bool) error {
	o.Quantize, o.Ranges, o.KeepFloat = f.quantize, f.ranges, f.keep
	switch {
	case f.quantize != "none" && f.quantize != "int8":
		return fmt.Errorf("--quantize %q, want none or int8", f.quantize)
	case f.quantize == "none" && fs.Changed("ranges"):
		return fmt.Errorf("--ranges %s has no use without --quantize int8", f.ranges)
	case f.quantize == "none" && len(f.keep) > 0:
		return fmt.Errorf("--keep-float %s has no use without --quantize int8", f.keep[0])
	case f.quantize != "none" && !calibrated:
		return fmt.Errorf("--quantize int8 needs --calib DATA, or --calib random:SEED")
	}
	return nil
}
