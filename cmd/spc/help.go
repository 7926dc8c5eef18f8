package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is flags that belong together: those that most people need, and more.
type flagGroup struct {
	title        string
	common, more []string
}

// flagGroups is how the help of compile and prune lists flags.
var flagGroups = []flagGroup{
	{"Pruning", []string{"sparsity", "pattern", "keep", "layer"}, []string{"prune", "refine", "allocate", "permute", "aim", "reconstruct", "recipe", "uncorrected", "masks"}},
	{"Budgets", []string{"speedup", "max-drop", "latency", "size", "eval-data", "labels"}, []string{"flops", "pareto", "points", "eval-samples", "metric", "skip-class", "search", "threads"}},
	{"Samples", []string{"calib", "calib-samples", "preprocess"}, []string{"samples", "mean", "std", "bgr", "calib-cache", "memory"}},
	{"Quantising", []string{"quantize"}, []string{"keep-float", "ranges"}},
	{"Sizes", []string{"dim", "shape"}, nil},
	{"Output", []string{"output", "format", "target", "config", "json", "help", "tune"}, []string{"tune-budget", "timings", "anew", "one-format", "profile", "verbose", "quiet", "print-config", "help-all", "opset"}},
	{"Passes", nil, []string{"stop-after", "disable", "dump-passes"}},
}

// groupFlags has the help of a command list its flags by flagGroups, all of them where --help-all is
// given. The command has its Args.
func groupFlags(c *cobra.Command) {
	var all bool
	c.Flags().BoolVar(&all, "help-all", false, "help with all flags")
	c.InitDefaultHelpFlag()
	c.SetUsageFunc(func(c *cobra.Command) error { return printUsage(c.OutOrStderr(), c, all) })
	want := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if !all {
			return want(c, args)
		}
		if err := c.Help(); err != nil {
			return err
		}
		return errPrinted
	}
}

// printUsage prints how a command is used, with its flags in groups.
func printUsage(w io.Writer, c *cobra.Command, all bool) error {
	text := fmt.Sprintf("Usage:\n  %s\n\nExamples:\n%s\n", c.UseLine(), c.Example)
	left := 0
	for _, g := range flagGroups {
		fs := pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		fs.SortFlags = false
		for i, name := range slices.Concat(g.common, g.more) {
			switch f := c.Flags().Lookup(name); {
			case f == nil:
			case all || i < len(g.common):
				fs.AddFlag(f)
			default:
				left++
			}
		}
		if fs.HasFlags() {
			text += fmt.Sprintf("\n%s:\n%s", g.title, fs.FlagUsages())
		}
	}
	if left > 0 {
		text += fmt.Sprintf("\n%s --help-all lists %d more.\n", c.CommandPath(), left)
	}
	_, err := io.WriteString(w, text)
	return err
}

// helpColumns is how wide lines of flags' help are.
const helpColumns = 85

// wrapped breaks a flag's help into lines.
func wrapped(text string) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case n+1+len(word) > helpColumns:
			b.WriteByte('\n')
			n = 0
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += len(word)
	}
	return b.String()
}
