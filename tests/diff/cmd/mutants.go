package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"

	"spc/tests/diff"
)

// mutantResult is a row of the report.
type mutantResult struct {
	Mutant string `json:"mutant"`
	File   string `json:"file"`
	Graphs int    `json:"graphs"` // until it was found; 0 where it was not
	Class  string `json:"class,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// mutants plants the faults of diff.Mutants one at a time and has graphs find them. It runs
// in the folder of the module.
func mutants() error {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	var (
		match  = flags.String("run", "", "plant the faults whose name matches this regular expression")
		seed   = flags.Uint64("seed", 1, "the seed of the graphs")
		count  = flags.Int("count", 5000, "the number of graphs, as CI has it")
		asJSON = flags.Bool("json", false, "print JSON")
	)
	flags.Parse(os.Args[2:])
	chosen, err := regexp.Compile(*match)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "spc-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var results []mutantResult
	survived := 0
	for _, m := range diff.Mutants {
		if !chosen.MatchString(m.Name) {
			continue
		}
		r, err := plant(ctx, dir, m, *seed, *count)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if results = append(results, r); r.Graphs == 0 {
			survived++
		}
		fmt.Fprintf(os.Stderr, "%s: %d graphs\n", r.Mutant, r.Graphs)
	}
	if *asJSON {
		b, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		fmt.Println(string(b))
	} else {
		t := table.NewWriter()
		t.SetOutputMirror(os.Stdout)
		t.AppendHeader(table.Row{"mutant", "file", "graphs until found", "as"})
		for _, r := range results {
			n := strconv.Itoa(r.Graphs)
			if r.Graphs == 0 {
				n = "not found"
			}
			t.AppendRow(table.Row{r.Mutant, r.File, n, r.Class})
		}
		t.Render()
	}
	if survived > 0 {
		return fmt.Errorf("%d of %d mutants were not found in %d graphs", survived, len(results), *count)
	}
	return nil
}

// plant builds this program with a fault and runs it until the first finding.
func plant(ctx context.Context, dir string, m diff.Mutant, seed uint64, count int) (r mutantResult, err error) {
	r.Mutant, r.File = m.Name, m.File
	text, err := os.ReadFile(m.File)
	if err != nil {
		return r, err
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		return r, fmt.Errorf("%s has the text to change %d times, want once", m.File, n)
	}
	original, err := filepath.Abs(m.File)
	if err != nil {
		return r, err
	}
	changed, overlay, program := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "diff")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return r, err
	}
	err = errors.Join(os.WriteFile(changed, []byte(strings.Replace(string(text), m.Old, m.New, 1)), 0o666), os.WriteFile(overlay, replace, 0o666))
	if err != nil {
		return r, err
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./tests/diff/cmd").CombinedOutput(); err != nil {
		return r, fmt.Errorf("%w: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, program, "-seed", fmt.Sprint(seed), "-count", fmt.Sprint(count), "-first", "-quiet", "-json", "-out", "")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return r, err
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var s summary
	if err := json.Unmarshal(lines[len(lines)-1], &s); err != nil {
		return r, fmt.Errorf("its output: %w", err)
	}
	if s.Findings > 0 {
		var f finding
		if err := json.Unmarshal(lines[0], &f); err != nil {
			return r, err
		}
		r.Graphs, r.Class, r.Detail = s.First, f.Class, f.Detail
	}
	return r, nil
}
