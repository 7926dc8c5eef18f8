package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// besides are the flags of compile that do not change the program that is made.
var besides = append([]string{"output", "masks", "calib-cache", "memory", "timings", "anew", "dump-passes", "pareto", "json", "quiet", "verbose"}, notInConfig...)

// commandOf returns the arguments of a compile that makes the same program: the flags with other
// values than by default, those of --config among them, in the order of their names. Files are
// named as they are in their folders, so that a program does not tell where it was made.
func commandOf(c *cobra.Command, model string) []string {
	args := []string{"spc", c.Name(), filepath.Base(model)}
	c.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(besides, f.Name) || f.Value.String() == f.DefValue {
			return
		}
		list := []string{f.Value.String()}
		if s, ok := f.Value.(pflag.SliceValue); ok {
			list = s.GetSlice()
		}
		for _, v := range list {
			name, _ := pflag.UnquoteUsage(f)
			switch {
			case f.Value.Type() == "bool" && v == "true":
				args = append(args, "--"+f.Name)
			case f.Value.Type() == "bool":
				args = append(args, "--"+f.Name+"="+v)
			case name == "FILE" && !strings.HasPrefix(v, "random:"):
				args = append(args, "--"+f.Name, filepath.Base(v))
			default:
				args = append(args, "--"+f.Name, v)
			}
		}
	})
	return args
}

// shell joins arguments as a shell takes them.
func shell(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsFunc(a, func(r rune) bool {
			return !strings.ContainsRune("+-_./:,=%@", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		quoted[i] = a
	}
	return strings.Join(quoted, " ")
}
