// Command spc compiles ONNX models into sparse programs, runs them, and shows
// why each weight is stored as it is. It imports package spc and the packages
// below it; every command has a file of its own.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/internal/claims"
	"spc/internal/memory"
	"spc/internal/short"
	"spc/ir"
	"spc/ir/option"
)

// commands lists the commands in the order of their use.
var commands = []func() *cobra.Command{
	compileCommand,
	tuneCommand,
	pruneCommand,
	runCommand,
	inspectCommand,
	verifyCommand,
	benchCommand,
	profileCommand,
	evalCommand,
	serveCommand,
	inferCommand,
	devicesCommand,
	versionCommand,
}

func main() {
	memory.CollectEarly()
	os.Exit(spcMain(os.Args[1:], os.Stdout, os.Stderr))
}

// spcMain runs one command and returns the exit status: 0, 1 after an error, 2 where a budget cannot be met,
// 130 after an interrupt, 143 after SIGTERM.
func spcMain(args []string, stdout, stderr io.Writer) int {
	ignoreFileSizeSignal()
	defer claims.Begin()()
	ctx, signals := catchSignals(stderr)
	defer signals.release()

	root := rootCommand()
	root.SetArgs(args)
	out := &output{w: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	err := ir.Guard(func() error {
		err := root.ExecuteContext(ctx)
		if _, _, none := root.Find(args); err != nil && none != nil {
			return unknownCommand(root, args)
		}
		return err
	})
	if errors.Is(err, errPrinted) {
		err = nil
	}
	if err == nil {
		err = out.err
	}
	if status := signals.end(); status != 0 {
		return status
	}
	if err == nil {
		return 0
	}
	if msg := message(err); msg != "" {
		fmt.Fprintln(stderr, "spc: "+msg)
	}
	if errors.Is(err, spc.ErrUnmet) {
		return 2
	}
	return 1
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "spc",
		Short: "Compile ONNX models into sparse programs and run them",
		Long: `spc prunes the weights of an ONNX model, chooses a storage format for each, and
writes a program that runs on this machine. Wherever a model is asked for, a
compiled .spx or an .onnx file will do; the latter is compiled in memory, its
weights untouched.`,
		Example: `  spc compile model.onnx -o model.spx --sparsity 0.8
  spc inspect model.spx
  spc run model.spx -i input=cat.npy -o out/
  spc verify model.onnx model.spx`,
		Version:                    thisVersion().String(),
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		SilenceErrors:              true,
		DisableAutoGenTag:          true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w%s (see %s --help)", flagError(c.Flags(), err), elsewhere(c, err), c.CommandPath())
	})
	for _, make := range commands {
		c := make()
		c.PreRunE = func(c *cobra.Command, args []string) error {
			if err := configure(c); err != nil {
				return err
			}
			if err := checkFlags(c, args); err != nil {
				return err
			}
			return checkTogether(c)
		}
		markExclusive(c)
		root.AddCommand(c)
	}
	return root
}

// unknownCommand says which commands are named like the first argument, which is none.
func unknownCommand(root *cobra.Command, args []string) error {
	name := args[max(slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }), 0)]
	near := ""
	if all := root.SuggestionsFor(name); len(all) > 0 {
		near = "; did you mean " + strings.Join(all, ", ") + "?"
	}
	return fmt.Errorf("unknown command: %s%s (see %s --help)", name, near, root.CommandPath())
}

// flagError says what a flag that could not be parsed should have been.
func flagError(fs *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var wrong *option.Error
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			name = short // of -sparsity
		}
		if near := similar(fs, name); len(name) > 1 && len(near) > 0 {
			return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(near, ", --"))
		}
	case errors.As(err, &wrong) && errors.As(err, &invalid):
		flag := "--" + invalid.GetFlag().Name
		if strings.HasPrefix(option.Called(wrong, called), flag) {
			return wrong
		}
		return fmt.Errorf("%s: %w", flag, wrong)
	case errors.As(err, &invalid):
		if want := wanted[invalid.GetFlag().Value.Type()]; want != "" {
			return fmt.Errorf("--%s %q, want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
		}
	}
	return err
}

// elsewhere says which other commands have a flag that one lacks, which has none that is like it.
func elsewhere(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" || len(similar(c.Flags(), unknown.GetSpecifiedName())) > 0 {
		return ""
	}
	var have []string
	for _, other := range c.Root().Commands() {
		if other.Flags().Lookup(unknown.GetSpecifiedName()) != nil {
			have = append(have, other.CommandPath())
		}
	}
	if len(have) == 0 {
		return ""
	}
	return "; it belongs to " + strings.Join(have, ", ")
}

// wanted describes the values of flags by their type.
var wanted = map[string]string{
	"bool":         "true or false",
	"float64":      "a number",
	"float64Slice": "numbers with commas between them",
	"int":          "a whole number",
	"intSlice":     "whole numbers with commas between them",
}

// similar returns the flags whose names are like the given one, as commands are found
// that are like a mistyped one.
func similar(fs *pflag.FlagSet, name string) []string {
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	fs.VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return names.SuggestionsFor(name)
}

// errFailed ends a command with status 1 whose output has said why already.
var errFailed = errors.New("")

// output is standard output; it keeps the first error of a write.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// The bounds of a message: names in models, and what else a user's files hold, may be
// megabytes long.
const (
	maxLine  = 1000 // bytes, a little more where some are left out
	maxLines = 100
)

// message returns the text of an error: one line, except for the operators that
// a model needs and spc lacks, which get a line each. That an input is invalid
// needs no saying after what was expected.
func message(err error) string {
	msg := strings.TrimSuffix(option.Called(err, called), ": "+spc.ErrInvalid.Error())
	if !errors.Is(err, spc.ErrUnsupported) {
		return line(msg)
	}
	lines := strings.Split(msg, "\n")
	if n := len(lines) - maxLines; n > 1 {
		lines = append(lines[:maxLines:maxLines], fmt.Sprintf("and %d more", n))
	}
	for i, l := range lines {
		lines[i] = short.Text(printable(short.Text(l, maxLine)), maxLine)
	}
	return strings.Join(lines, "\n")
}

// line returns a text as one line that a terminal may show.
func line(s string) string {
	s = short.Text(s, 4*maxLine)             // before work on all of it
	s = strings.ReplaceAll(s, "\u00a0", " ") // which errors of protocol buffers hold
	var one []string
	for l := range strings.SplitSeq(s, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			one = append(one, printable(l))
		}
	}
	return short.Text(strings.Join(one, " "), maxLine)
}

// usage checks that there are as many arguments as a command takes, and says how it is used
// where there are not.
func usage(least, most int) cobra.PositionalArgs {
	want := fmt.Sprint(least)
	if most > least {
		want += fmt.Sprintf(" or %d", most)
	}
	return func(c *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			return fmt.Errorf("%s given, want %s; use: %s", plural(n, "argument"), want, c.UseLine())
		}
		return nil
	}
}

// files completes arguments with files of the given extensions, the first n
// arguments, or all where n is 0.
func files(n int, extensions ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}

// complete sets how the value of a flag is completed.
func complete(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag does not exist
	}
}

// values completes with some words.
func values(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

func folders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}
