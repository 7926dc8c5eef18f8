package main

import (
	"slices"

	"github.com/spf13/pflag"

	"spc"
	"spc/ir/option"
)

// flagOf names the flags of choices, by which errors call them.
var flagOf = map[option.Name]string{
	option.Shapes:            "shape",
	option.Dims:              "dim",
	option.Open:              "dim",
	option.Target:            "target",
	option.Format:            "format",
	option.OneFormat:         "one-format",
	option.Profile:           "profile",
	option.Timings:           "timings",
	option.Speedup:           "speedup",
	option.Latency:           "latency",
	option.FileSize:          "size",
	option.Size:              "size",
	option.FLOPs:             "flops",
	option.MaxDrop:           "max-drop",
	option.Front:             "points",
	option.Mixed:             "quantize",
	option.Evaluate:          "eval-data",
	option.Opset:             "opset",
	option.Sparsity:          "sparsity",
	option.Pattern:           "pattern",
	option.Layers:            "layer",
	option.Keep:              "keep",
	option.Allocate:          "allocate",
	option.Method:            "prune",
	option.Refine:            "refine",
	option.Aim:               "aim",
	option.Uncorrected:       "uncorrected",
	option.Permute:           "permute",
	option.Reconstruct:       "reconstruct",
	option.Quantize:          "quantize",
	option.Ranges:            "ranges",
	option.KeepFloat:         "keep-float",
	option.Calibration:       "calib",
	option.CalibrationCache:  "calib-cache",
	option.CalibrationMemory: "memory",
	option.StopAfter:         "stop-after",
	option.Passes:            "disable",
	option.Steps:             "disable",
	option.Threads:           "threads",
	option.Precision:         "precision",
	option.Libraries:         "libraries",
}

// called is what a user of the command calls a choice.
func called(n option.Name) string {
	if flag, ok := flagOf[n]; ok {
		return "--" + flag
	}
	return string(n)
}

// choice is a flag with a value of a type of its own.
type choice[T any] struct {
	to    *T
	text  string
	parse func(string) (T, error)
}

// choiceVar adds a flag that sets what to points to. def is the text of its zero value.
func choiceVar[T any](fs *pflag.FlagSet, to *T, name, def string, parse func(string) (T, error), usage string) {
	fs.Var(&choice[T]{to, def, parse}, name, usage)
}

// Set sets the flag. What is empty is left to checkFlags, which refuses it.
func (c *choice[T]) Set(s string) error {
	if s != "" {
		v, err := c.parse(s)
		if err != nil {
			return err
		}
		*c.to = v
	}
	c.text = s
	return nil
}

func (c *choice[T]) String() string { return c.text }

// Type is what flags of words have.
func (c *choice[T]) Type() string { return "string" }

// What lifts the exceptions of --keep and --keep-float, and what widens those of --keep.
const (
	none = "none"
	ends = "ends"
)

// part takes a word out of the globs of a flag, and reports whether it is there.
func part(globs []string, word string) (list []string, found bool) {
	list = slices.DeleteFunc(slices.Clone(globs), func(g string) bool { return g == word })
	return list, len(list) < len(globs)
}

// names are the texts of some values.
func names[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// formats lists the values of --format.
func formats() []string { return append([]string{"auto"}, names(spc.Formats())...) }
