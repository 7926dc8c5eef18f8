package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spc"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// hints says what would make a model faster or lose less that was not asked for, a line each; what was asked for and not done are warnings.
var hints = []func(r *spc.Report) string{withoutSamples, integersInstead, hardlyFaster, writtenAnew}

// writtenAnew says why the nodes of a pruned model are not as its file has them.
func writtenAnew(r *spc.Report) string {
	if r.Written == nil || r.Written.Anew == "" {
		return ""
	}
	return "the model's file is not kept, its nodes are written anew, in the form that they have today: " + printable(r.Written.Anew)
}

// hintOf prints hints on standard error.
func hintOf(c *cobra.Command, r *spc.Report) {
	if quiet, err := c.Flags().GetBool("quiet"); err == nil && quiet {
		return
	}
	for _, hint := range hints {
		if text := hint(r); text != "" {
			tell(c, "hint", text)
		}
	}
}

// withoutSamples names --calib where the sizes of weights alone decided.
func withoutSamples(r *spc.Report) string {
	p := r.Prune
	given := slices.ContainsFunc(r.Options.Command, func(s string) bool { return strings.HasPrefix(s, "--calib") })
	if p == nil || !p.Asks || p.Runs > 0 || p.Samples > 0 || given || r.Totals.PrunableZeros == 0 {
		return ""
	}
	return "pruned without samples, by the size of the weights alone, which ruins most models that were not trained for it; --calib gives samples"
}

// integersInstead names 8-bit integers where a budget of floats had zeros cost something.
func integersInstead(r *spc.Report) string {
	b := r.Budget
	if b == nil || len(b.Tried) == 0 || b.Types != "f32" {
		return ""
	}
	p := &b.Tried[len(b.Tried)-1]
	loses := p.Drop == nil || p.Drop.Points > 0
	for _, l := range r.Layers {
		if l.DType == tensor.I8.String() || l.DType == tensor.U8.String() { // which the model came with
			return ""
		}
	}
	if p.Sparsity == 0 || !loses {
		return ""
	}
	return "8-bit integers were not tried, which often give more for less than zeros do: --quantize auto lets a budget have both, --quantize int8 makes a model of no more zeros"
}

// hardly is how many times as fast as dense a model is at least that zeros are of use for.
const hardly = 1.05

// hardlyFaster says of zeros that hardly save any time what would.
func hardlyFaster(r *spc.Report) string {
	p := r.Predicted
	if p == nil || r.Budget != nil || r.Options.Format != choose.Auto || !sparsified(r) || p.DenseMs >= hardly*p.Ms {
		return ""
	}
	others := "more zeros, another --pattern, or --speedup, which looks for the layers where they pay"
	if r.Options.Quantize != tensor.I8.String() {
		others += ", or --quantize int8"
	}
	return fmt.Sprintf("predicted to be hardly faster than dense, %.2fx; try %s", p.DenseMs/p.Ms, others)
}
