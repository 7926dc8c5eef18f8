package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/data"
)

// bound is what the numbers of a flag may be.
type bound struct {
	least, most float64
	want        string // where the numbers do not tell
}

// bounds lists every flag of numbers, by its name, which means the same in all commands.
var bounds = map[string]bound{
	"batch":          {1, 1 << 20, ""},
	"calib-samples":  {1, 1 << 30, ""},
	"clients":        {1, 1 << 12, ""},
	"flops":          {0, 1, "a share above 0 and at most 1"},
	"max-batch-size": {0, 1 << 16, ""},
	"max-runs":       {0, 1 << 12, ""},
	"max-drop":       {0, 1e6, ""},
	"max-queue-size": {0, 1 << 20, ""},
	"max-tensors":    {1, 1 << 20, ""},
	"max-requests":   {1, 1 << 24, ""},
	"mean":           {-data.MaxNorm, data.MaxNorm, ""},
	"opset":          {spc.MinOpset, spc.MaxOpset, ""},
	"points":         {2, 100, ""},
	"runs":           {1, 1 << 30, ""},
	"search":         {0, 1 << 20, ""},
	"seeds":          {1, 1 << 20, ""},
	"skip-class":     {0, 1 << 30, ""},
	"sparsity":       {0, math.Nextafter(1, 0), "a fraction of at least 0 and below 1"},
	"speedup":        {0, 1e6, "a number above 0 and at most 1e6"},
	"steps":          {0, 1 << 20, ""},
	"std":            {data.MinStd, data.MaxNorm, ""},
	"threads":        {0, spc.MaxThreads, ""},
	"tolerance":      {0, 1e6, ""},
	"warmup":         {0, 1 << 30, ""},
}

// exclusive lists, by a flag, those that have no sense beside it, in all commands.
var exclusive = map[string][]string{
	"html":       {"layer", "json", "diff", "plot"},
	"serve":      {"layer", "json", "diff", "plot"},
	"format":     {"one-format"},
	"tune":       {"stop-after", "format"},
	"decode":     {"runs", "warmup", "clients", "duration"},
	"diff":       {"layer", "plot"},
	"interpret":  {"device", "precision", "libraries", "threads", "disable", "dump-passes"},
	"preprocess": {"mean", "std", "bgr"},
}

// together lists flags that come with each other, in all commands.
var together = [][2]string{{"mean", "std"}, {"std", "mean"}, {"points", "pareto"}, {"tune-budget", "tune"}, {"timings", "tune"}, {"anew", "tune"}, {"tls-cert", "tls-key"}, {"tls-key", "tls-cert"}, {"steps", "tie"}, {"tie", "steps"}, {"tie", "decode"}}

// markExclusive has shells not complete a flag beside one that excludes it.
func markExclusive(c *cobra.Command) {
	for name, others := range exclusive {
		for _, other := range others {
			if c.Flags().Lookup(name) != nil && c.Flags().Lookup(other) != nil {
				c.MarkFlagsMutuallyExclusive(name, other)
			}
		}
	}
}

// checkTogether refuses, before a command runs, flags that exclude each other, and that one is
// missing without which another has no sense, or the command does not run.
func checkTogether(c *cobra.Command) error {
	fs := c.Flags()
	for _, name := range slices.Sorted(maps.Keys(exclusive)) {
		for _, other := range exclusive[name] {
			if fs.Changed(name) && fs.Changed(other) {
				return fmt.Errorf("--%s and --%s exclude each other, want one of them", name, other)
			}
		}
	}
	for _, pair := range together {
		if fs.Changed(pair[0]) && fs.Lookup(pair[1]) != nil && !fs.Changed(pair[1]) {
			return fmt.Errorf("--%s needs --%s, too", pair[0], pair[1])
		}
	}
	var err error
	fs.VisitAll(func(f *pflag.Flag) {
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; required && !f.Changed && err == nil {
			err = fmt.Errorf("--%s is missing; use: %s", f.Name, c.UseLine())
		}
	})
	return err
}

// instead says what to give in place of x.
func (b bound) instead(x float64) string {
	switch {
	case b.want != "":
		return b.want
	case x < b.least:
		return fmt.Sprintf("%.10g or more", b.least)
	case x > b.most:
		return fmt.Sprintf("%.10g at most", b.most)
	}
	return "a number"
}

// checkFlags refuses, before a command runs, values and arguments that are empty, which
// variables of a shell are that were not set, and numbers out of bounds.
func checkFlags(c *cobra.Command, args []string) error {
	if slices.Contains(args, "") {
		return fmt.Errorf("an argument is empty, want a path; use: %s", c.UseLine())
	}
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		if err == nil {
			err = checkFlag(c.Flags(), f)
		}
	})
	return err
}

func checkFlag(fs *pflag.FlagSet, f *pflag.Flag) error {
	var numbers []float64
	switch f.Value.Type() {
	case "string":
		if f.Value.String() == "" {
			return emptyFlag(f)
		}
	case "stringArray":
		// GetStringArray takes one empty element for none.
		if all, ok := f.Value.(pflag.SliceValue); ok && slices.Contains(all.GetSlice(), "") {
			return emptyFlag(f)
		}
	case "int":
		n, err := fs.GetInt(f.Name)
		if err != nil {
			return err
		}
		numbers = []float64{float64(n)}
	case "intSlice":
		all, err := fs.GetIntSlice(f.Name)
		if err != nil {
			return err
		}
		for _, n := range all {
			numbers = append(numbers, float64(n))
		}
	case "float64":
		x, err := fs.GetFloat64(f.Name)
		if err != nil {
			return err
		}
		numbers = []float64{x}
	case "float64Slice":
		var err error
		if numbers, err = fs.GetFloat64Slice(f.Name); err != nil {
			return err
		}
	}
	for _, x := range numbers {
		if b := bounds[f.Name]; !(x >= b.least && x <= b.most) {
			text := fmt.Sprintf("%.10g", x)
			if strings.HasPrefix(f.Value.Type(), "int") {
				text = fmt.Sprintf("%.0f", x)
			}
			return fmt.Errorf("--%s %s, want %s", f.Name, text, b.instead(x))
		}
	}
	return nil
}

func emptyFlag(f *pflag.Flag) error {
	if isPath(f) {
		return fmt.Errorf("--%s: want a path", f.Name)
	}
	return fmt.Errorf("--%s is empty, want a value", f.Name)
}

// isPath reports whether a flag takes a path, as its help says.
func isPath(f *pflag.Flag) bool {
	name, _ := pflag.UnquoteUsage(f)
	return slices.Contains([]string{"FILE", "DIR", "PATH"}, name[strings.LastIndexByte(name, '=')+1:])
}

// numbersVar adds a flag of numbers with commas between them, which is printed with all their digits.
func numbersVar(fs *pflag.FlagSet, p *[]float64, name, usage string) {
	fs.Float64SliceVar(p, name, nil, usage)
	f := fs.Lookup(name)
	f.Value, f.DefValue = numbers{f.Value, p}, ""
}

// numbers is a pflag.Value of type float64Slice, whose own texts have six decimals.
type numbers struct {
	pflag.Value
	list *[]float64
}

func (n numbers) String() string { return "[" + strings.Join(n.GetSlice(), ",") + "]" }

// GetSlice, Append and Replace make it a pflag.SliceValue.
func (n numbers) GetSlice() []string {
	out := make([]string, len(*n.list))
	for i, x := range *n.list {
		out[i] = strconv.FormatFloat(x, 'g', -1, 64)
	}
	return out
}

func (n numbers) Append(text string) error { return n.Value.(pflag.SliceValue).Append(text) }

func (n numbers) Replace(texts []string) error { return n.Value.(pflag.SliceValue).Replace(texts) }
