package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// What --print-config prints is read back as the same, and flags of the command line win.
func TestConfig(t *testing.T) {
	workspace(t)
	write(t, "spc.yaml", `# what we ship
sparsity: 0.8
pattern: 4:8
keep: ["*head*", "null"]
layer: {"conv*": 0.5, fc: 0.25}
preprocess: unit
reconstruct: false
mean: [0.485, 1.5e-9]
dim:
  - batch=4
`)
	want := `dim:
  - batch=4
keep:
  - '*head*'
  - "null"
layer:
  - conv*=0.5
  - fc=0.25
mean:
  - 0.485
  - 1.5e-09
pattern: 4:8
preprocess: unit
reconstruct: false
sparsity: 0.8
`
	if got := ok(t, "compile", "model.onnx", "--config", "spc.yaml", "--print-config"); got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
	write(t, "again.yaml", want)
	if got := ok(t, "compile", "model.onnx", "--config", "again.yaml", "--print-config"); got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
	got := ok(t, "prune", "model.onnx", "--config", "spc.yaml", "--print-config", "--sparsity", "0.5", "--keep", "mine", "-o", "p.onnx")
	for _, line := range []string{"sparsity: 0.5\n", "mean:\n  - 0.485\n", "keep:\n  - mine\nlayer", "output: p.onnx\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("printed %s, want %q in it", got, line)
		}
	}
	if _, err := os.Stat("p.onnx"); err == nil {
		t.Error("--print-config does something")
	}
	// It compiles as the flags do.
	write(t, "run.yaml", "sparsity: 0.5\npattern: uniform\noutput: a.spx\n")
	ok(t, "compile", "model.onnx", "--config", "run.yaml")
	ok(t, "compile", "model.onnx", "-o", "b.spx", "--sparsity", "0.5")
	a, errA := os.ReadFile("a.spx")
	b, errB := os.ReadFile("b.spx")
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("files of %d and %d bytes differ (%v, %v)", len(a), len(b), errA, errB)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "{}\n"} {
		write(t, "empty.yaml", text)
		if got := ok(t, "compile", "model.onnx", "--config", "empty.yaml", "--print-config"); got != "" {
			t.Errorf("%q: printed %q", text, got)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	workspace(t)
	for text, want := range map[string]string{
		"\nsparcity: 0.8":              `c.yaml:2: no flag is named "sparcity"; did you mean sparsity?`,
		"config: other.yaml":           "c.yaml:1: config is for the command line alone",
		"? [a]\n: b":                   "c.yaml:1: no flag is named",
		"sparsity: 80":                 "c.yaml:1: --sparsity 80, want a fraction",
		"sparsity: much":               `c.yaml:1: --sparsity "much", want a number`,
		"sparsity:":                    "c.yaml:1: sparsity: want one value",
		"sparsity: [0.1]":              "c.yaml:1: sparsity: want one value",
		"keep: {a: b}":                 "c.yaml:1: keep: want a value or a list of values",
		"keep: [[a]]":                  "c.yaml:1: keep: want a list of values",
		"layer: {a: {b: c}}":           "c.yaml:1: layer: want lines of the form KEY: VALUE",
		"layer: []":                    "c.yaml:1: layer: want KEY: VALUE pairs",
		"reconstruct: yes":             `c.yaml:1: --reconstruct "yes", want true or false`,
		"calib: ''":                    "c.yaml:1: --calib: want a path",
		"sparsity: 0.1\nsparsity: 0.2": "c.yaml:2: sparsity stands in line 1, too",
		"- sparsity":                   "c.yaml:1: want lines of the form NAME: VALUE",
		"a: b: c":                      "c.yaml: mapping values are not allowed",
		"sparsity: 0.1\n---\nkeep: a":  "c.yaml: more than one document",
		"keep: &a b\nlayer: *a":        "c.yaml:2: layer: want",
		"keep: \"\x01\"":               "c.yaml: ",
	} {
		write(t, "c.yaml", text)
		fails(t, []string{"compile", "model.onnx", "--config", "c.yaml"}, want)
	}
	write(t, "large.yaml", strings.Repeat("#", maxConfig+1))
	fails(t, []string{"compile", "model.onnx", "--config", "large.yaml"}, "large.yaml: 1048577 bytes, want at most 1048576")
	fails(t, []string{"compile", "model.onnx", "--config", "nosuch.yaml"}, "open nosuch.yaml: no such file")
	fails(t, []string{"compile", "model.onnx", "--config", "."}, "not a regular file")
	write(t, "self.yaml", "output: self.yaml\n")
	fails(t, []string{"prune", "model.onnx", "--sparsity", "0.5", "--config", "self.yaml"}, "self.yaml")
}

// Every flag of the commands whose help has groups stands in one of them.
func TestFlagsHaveGroups(t *testing.T) {
	var listed []string
	for _, g := range flagGroups {
		listed = append(listed, g.common...)
		listed = append(listed, g.more...)
	}
	for i, name := range listed {
		if slices.Contains(listed[:i], name) {
			t.Errorf("--%s is listed twice", name)
		}
	}
	has := map[string]bool{}
	for _, c := range rootCommand().Commands() {
		if c.Flags().Lookup("help-all") == nil {
			continue
		}
		c.InitDefaultHelpFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if has[f.Name] = true; !slices.Contains(listed, f.Name) {
				t.Errorf("--%s of %s is in no group", f.Name, c.Name())
			}
		})
		short, long := ok(t, c.Name(), "--help"), ok(t, c.Name(), "--help-all")
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(long, "--"+f.Name+" ") {
				t.Errorf("--help-all of %s lacks --%s", c.Name(), f.Name)
			}
		})
		if len(short) > len(long)*2/3 || !strings.Contains(short, "--sparsity ") || strings.Contains(short, "--recipe ") {
			t.Errorf("--help of %s:\n%s", c.Name(), short)
		}
	}
	for _, name := range listed {
		if !has[name] {
			t.Errorf("no command has --%s", name)
		}
	}
}

// FuzzConfig reads files of any bytes: they set flags, or are errors of one file.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{"sparsity: 0.8\n", "keep: [a, b]\nlayer: {x: 0.5}\n", "mean:\n  - 1\n", "a: &a [*a]\n", "{", "--- \n...\n", "? x\n"} {
		f.Add([]byte(s))
	}
	flags := func() *pflag.FlagSet {
		fs := pflag.NewFlagSet("fuzz", pflag.ContinueOnError)
		fs.String("pattern", "", "")
		fs.Float64("sparsity", 0, "")
		numbersVar(fs, new([]float64), "mean", "`NUMBERS`")
		fs.StringArray("keep", nil, "`GLOB`")
		fs.StringArray("layer", nil, "`GLOB=S`")
		fs.Bool("json", false, "")
		return fs
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fs, again := flags(), flags()
		if err := setConfig(fs, "fuzz.yaml", b); err != nil {
			if !strings.Contains(err.Error(), "fuzz.yaml") {
				t.Errorf("error %q does not name the file", err)
			}
			return
		}
		text, err := configOf(fs)
		if err != nil {
			t.Fatal(err)
		}
		if err := setConfig(again, "fuzz.yaml", text); err != nil {
			t.Fatalf("%q is printed as %q: %v", b, text, err)
		}
		if other, err := configOf(again); err != nil || string(other) != string(text) {
			t.Errorf("%q is printed as %q, and that as %q", b, text, other)
		}
	})
}
