package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"spc"
	"spc/ir/option"
	"spc/ir/tensor"
)

// quantFlags are the flags that quantise a model.
type quantFlags struct {
	as    numberType
	keep  []string
	mixed bool // a budget chooses which layers are in integers
}

// numberType holds the Type and the Block of spc.QuantizeOptions.
type numberType struct {
	dt    tensor.DType
	block int
}

// mixedTypes is what leaves the types of layers to a budget.
const mixedTypes = "auto"

func (f *quantFlags) add(c *cobra.Command, o *spc.QuantizeOptions) {
	fs := c.Flags()
	choiceVar(fs, &f.as, "quantize", "none", f.parse, "none; int8: products of 8-bit integers, with ranges seen by --calib; fp16 or\nbf16: weights of 16 bits, products in f32; int8w or int4: weights of 8 or 4 bits\nwith a scale for each 32, or :BLOCK, rounded by least squares or, with --calib, by OBS;\nauto, with a budget: int8 or none for each layer")
	choiceVar(fs, &o.Ranges, "ranges", "mse", spc.ParseRanges, "what the steps of an activation span of its range on the samples: mse what\nmakes the squared error least; percentile[:P] the middle P percent, by default\n99.99; minmax all of it")
	fs.StringArrayVar(&f.keep, "keep-float", nil, "`GLOB` of layers that --quantize leaves in floating point; none quantises\nthe sensitive ones, too, which otherwise stay")
	complete(c, "keep-float", cobra.NoFileCompletions)
	complete(c, "ranges", values("minmax", "percentile", "mse"))
	complete(c, "quantize", values(quantizeWords()...))
}

// quantizeWords lists what --quantize takes.
func quantizeWords() []string { return append(spc.Quantized(), mixedTypes) }

// parse reads --quantize.
func (f *quantFlags) parse(s string) (n numberType, err error) {
	name, _, _ := strings.Cut(s, ":")
	if _, err := option.OneOf(option.Quantize, name, quantizeWords()); err != nil {
		return n, err
	}
	if f.mixed = s == mixedTypes; f.mixed {
		return numberType{dt: tensor.I8}, nil
	}
	n.dt, n.block, err = spc.ParseQuantized(s)
	return n, err
}

// codes reports whether weights alone become codes.
func (f *quantFlags) codes() bool { return f.as.dt == tensor.I4 || f.as.block != 0 }

// needless returns an error where types are left to a budget and none is searched for.
func (f *quantFlags) needless(searches bool) error {
	if f.mixed && !searches {
		return errors.New("--quantize auto leaves types to a budget of spc compile, want --quantize int8 or none without")
	}
	return nil
}

// apply sets the options that the flags stand for.
func (f *quantFlags) apply(o *spc.QuantizeOptions) {
	o.Type, o.Block = f.as.dt, f.as.block
	o.KeepFloat, o.KeepNone = part(f.keep, none)
}
