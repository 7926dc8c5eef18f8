package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachFlag calls f with each flag of each command, and arguments that the command takes.
func eachFlag(f func(c *cobra.Command, args []string, flag *pflag.Flag)) {
	for _, c := range rootCommand().Commands() {
		args := []string{c.Name()}
		for _, word := range strings.Fields(c.Use)[1:] {
			if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "[") {
				break
			}
			args = append(args, "model.onnx")
		}
		c.Flags().VisitAll(func(flag *pflag.Flag) { f(c, args, flag) })
	}
}

func isNumber(f *pflag.Flag) bool {
	return slices.Contains([]string{"int", "intSlice", "float64", "float64Slice"}, f.Value.Type())
}

// No flag takes a number that makes no sense of it, whatever the command, and the message
// names the flag.
func TestNumbersOutOfBoundsAreRefused(t *testing.T) {
	workspace(t)
	before := listing(t, ".")
	rows := map[string]bool{}
	eachFlag(func(c *cobra.Command, args []string, f *pflag.Flag) {
		if f.Value.Type() == "count" || strings.Contains(f.Value.Type(), "uint") || strings.Contains(f.Value.Type(), "duration") {
			t.Errorf("--%s is a %s, which has no bounds", f.Name, f.Value.Type())
		}
		if !isNumber(f) {
			return
		}
		if _, ok := bounds[f.Name]; !ok {
			t.Errorf("--%s of %s is a number without bounds", f.Name, c.Name())
		}
		rows[f.Name] = true
		for _, value := range []string{"nan", "NaN", "inf", "-inf", "1e300", "-1e300", "1e999", "-1", "1e7", "99999999999999999999", "9223372036854775807", "0x", "", " "} {
			if value == "-1" && f.Name == "mean" {
				continue
			}
			fails(t, append(slices.Clone(args), fmt.Sprintf("--%s=%s", f.Name, value)), "--"+f.Name)
		}
		if strings.HasSuffix(f.Value.Type(), "Slice") {
			fails(t, append(slices.Clone(args), fmt.Sprintf("--%s=1,1e300", f.Name)), "--"+f.Name)
		}
	})
	for name := range bounds {
		if !rows[name] {
			t.Errorf("no command has --%s", name)
		}
	}
	for name, bad := range map[string]string{"std": "0", "batch": "0", "runs": "0", "seeds": "0", "calib-samples": "0", "sparsity": "1", "threads": "5000"} {
		eachFlag(func(c *cobra.Command, args []string, f *pflag.Flag) {
			if f.Name == name {
				fails(t, append(slices.Clone(args), "--"+name+"="+bad), "--"+name+" "+bad)
			}
		})
	}
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
}

// An empty value is an error of its flag, not a default, nor is an empty argument.
func TestEmptyValuesAreRefused(t *testing.T) {
	workspace(t)
	before := listing(t, ".")
	paths := 0
	eachFlag(func(c *cobra.Command, args []string, f *pflag.Flag) {
		if f.Value.Type() != "string" && f.Value.Type() != "stringArray" {
			return
		}
		want := "--" + f.Name + " is empty, want a value"
		if isPath(f) {
			want = "--" + f.Name + ": want a path"
			paths++
		} else if slices.Contains([]string{"output", "masks", "calib", "calib-cache", "data", "labels", "dump-passes", "input"}, f.Name) {
			t.Errorf("--%s of %s takes a path, and its help does not say so", f.Name, c.Name())
		}
		fails(t, append(slices.Clone(args), "--"+f.Name+"="), want)
		if f.Shorthand != "" {
			fails(t, append(slices.Clone(args), "-"+f.Shorthand, ""), want)
		}
	})
	if paths < 10 {
		t.Errorf("only %d flags take paths", paths)
	}
	for _, c := range rootCommand().Commands() {
		if n := strings.Count(c.Use, "onnx"); n > 0 && c.Name() != "verify" {
			fails(t, []string{c.Name(), ""}, "an argument is empty, want a path; use: spc "+c.Name())
		}
	}
	fails(t, []string{"verify", "model.onnx", ""}, "an argument is empty, want a path")
	fails(t, []string{"run", "model.onnx", "-i", "input="}, "-i input=: want a path")
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
}

// Numbers inside of values are as bounded as those that are values.
func TestNumbersInsideValuesAreBounded(t *testing.T) {
	workspace(t)
	before := listing(t, ".")
	compile := []string{"compile", "model.onnx", "--sparsity", "0.5", "--calib", "photos", "--preprocess", "unit", "--reconstruct"}
	for _, c := range []struct {
		args   []string
		flag   string
		format string
		want   string
	}{
		{compile, "recipe", "rate=%s", "recipe"},
		{compile, "recipe", "blocks=%s", "recipe"},
		{compile, "recipe", "batch=%s", "recipe"},
		{compile, "recipe", "seed=%s", "recipe"},
		{compile, "layer", "conv=%s", "--layer \"conv="},
		{compile, "pattern", "%s:4", "pattern"},
		{compile, "pattern", "2:%s", "pattern"},
		{compile, "pattern", "block:%sx1", "pattern"},
		{compile, "samples", "0:9:%s", "samples"},
		{compile, "samples", "%s:9", "samples"},
		{append(slices.Clone(compile), "--quantize", "int8"), "ranges", "percentile:%s", "ranges"},
		{compile, "shape", "input=%sx3x16x16", "--shape"},
		{compile, "dim", "batch=%s", "--dim"},
		{[]string{"run", "model.onnx"}, "input", "random:%s", "random:"},
		{[]string{"run", "model.onnx"}, "input", "random:1:%s:5", "random:"},
		{[]string{"run", "model.onnx"}, "input", "random:1:0:%s", "random:"},
		{[]string{"prune", "model.onnx", "-o", "x.onnx", "--sparsity", "0.5"}, "calib", "random:1:0:%s", "random:"},
		{[]string{"run", "model.onnx", "-i", "random:1"}, "device", "cuda:%s", "device"},
	} {
		for _, value := range []string{"nan", "inf", "-1e300", "1e300", "", "99999999999999999999999"} {
			if c.flag == "samples" && value == "" || c.format == "random:1:0:%s" && strings.HasPrefix(value, "999") {
				continue // a part that is left out, and a number that is large
			}
			fails(t, append(slices.Clone(c.args), "--"+c.flag, fmt.Sprintf(c.format, value)), c.want)
		}
	}
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
}
