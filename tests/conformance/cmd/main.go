// Command cmd runs the official ONNX backend tests, and those that onnx-go
// registers through the adapter to it, and prints, for each pipeline
// and group, how many passed, failed and were excluded, and why tests failed.
//
//	go run ./tests/conformance/cmd -run 'conv|pool' -v
//	go run ./tests/conformance/cmd -op Resize
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/owulveryck/onnx-go/backend/testbackend"

	"spc/tests/conformance"
	"spc/tests/conformance/onnxgo"
)

// adapter names the tests that onnx-go registers, and the pipeline that they take.
const adapter = "onnx-go"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var (
		archive  = flag.String("suite", filepath.Join(conformance.Shared(), conformance.Archive), "the suite's archive")
		pattern  = flag.String("run", "", "run the tests whose GROUP/NAME matches this regular expression")
		operator = flag.String("op", "", "run the tests whose graph has this operator")
		pipe     = flag.String("pipeline", "", "run only the pipeline of this name")
		all      = flag.Bool("all", false, "run excluded tests too")
		verbose  = flag.Bool("v", false, "print every test, with its time")
		budget   = flag.Duration("budget", time.Minute, "time for a test")
		workers  = flag.Int("workers", runtime.GOMAXPROCS(0), "tests at a time")
	)
	flag.Parse()
	match, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	tests, err := conformance.Load(*archive)
	if err != nil {
		return err
	}
	tests = conformance.Select(tests, func(t *conformance.Test) bool {
		return match.MatchString(t.Group+"/"+t.Name) && (*operator == "" || slices.Contains(t.Ops(), *operator))
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed, ran := 0, 0
	done := func(name string) func(conformance.Result) {
		return func(r conformance.Result) {
			if *verbose || r.Status == conformance.Failed {
				print(name, r, *verbose)
			}
		}
	}
	count := func(name string, results []conformance.Result) {
		failed += conformance.Count(results).Total.Failed
		ran += len(results)
		if len(results) > 0 {
			summary(name, results)
		}
	}
	for _, p := range conformance.Pipelines {
		if *pipe != "" && p.Name != *pipe {
			continue
		}
		o := conformance.Options{Workers: *workers, Budget: *budget, All: *all}
		count(p.Name, conformance.RunAll(ctx, p, tests, o, done(p.Name)))
	}
	if *pipe == "" || *pipe == adapter {
		count(adapter, onnxgo.RunAll(func(tc *testbackend.TestCase) bool {
			return match.MatchString(adapter+"/"+tc.Title) && (*operator == "" || tc.OpType == *operator)
		}, *all, done(adapter)))
	}
	if ran == 0 {
		return fmt.Errorf("no test matches")
	}
	if failed > 0 {
		return fmt.Errorf("%d tests failed", failed)
	}
	return nil
}

func print(pipeline string, r conformance.Result, verbose bool) {
	line := fmt.Sprintf("%-8s %s %s/%s", r.Status, pipeline, r.Group, r.Name)
	if verbose {
		line += fmt.Sprintf(" (%.3fs)", r.Time.Seconds())
	}
	if r.Reason != "" {
		reason := r.Reason
		if !verbose {
			reason, _, _ = strings.Cut(reason, "\n")
		}
		line += ": " + strings.ReplaceAll(reason, "\n", "\n    ")
	}
	fmt.Println(line)
}

func summary(pipeline string, results []conformance.Result) {
	c := conformance.Count(results)
	w := table.NewWriter()
	w.SetOutputMirror(os.Stdout)
	w.AppendHeader(table.Row{pipeline, "passed", "failed", "excluded", "total"})
	for _, g := range conformance.Groups {
		if n := c.Groups[g]; n.Sum() > 0 {
			w.AppendRow(table.Row{g, n.Passed, n.Failed, n.Excluded, n.Sum()})
		}
	}
	w.AppendFooter(table.Row{"total", c.Total.Passed, c.Total.Failed, c.Total.Excluded, c.Total.Sum()})
	w.Render()
}
