// Command budgets asks spc for budgets of trained models, and measures whether what it promises holds: 32 budgets, of which each
// is a line of the table when it is done.
//
//	go run ./tests/e2e/budgets -spc bin/spc -run squeezenet -budgets 'speedup 1.1'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"spc/tests/bench"
	"spc/tests/e2e"
)

var (
	program = flag.String("spc", "bin/spc", "the `program` that is asked")
	which   = flag.String("budgets", "", "take only budgets that match this regular `expression`")
	table   = flag.String("table", "", "write all of that file into the table of this document, a `FILE`, even where nothing is measured")
	save    = flag.String("save", "", "put the results into this JSON `FILE`, too, in the place of what it has of the same budgets")
)

func main() { e2e.Main("budgets", run) }

func run(ctx context.Context, match *regexp.Regexp) error {
	some, err := regexp.Compile(*which)
	if err != nil {
		return err
	}
	here := bench.Here()
	all, err := e2e.ReadPromises(*save)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "spc-budgets-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	broken, asked := 0, 0
	fmt.Printf("%-22s  %-30s  %8s  %9s  %6s  %6s  %6s  %7s  %s\n", "model", "budget", "speed-up", "bytes", "flops", "lost", "most", "seconds", "")
	for _, model := range e2e.Budgeted {
		for _, budget := range e2e.Budgets {
			if !match.MatchString(model) || !some.MatchString(budget) {
				continue
			}
			asked++
			cache := filepath.Join(dir, model)
			if _, types, ok := strings.Cut(budget, "--quantize "); ok { // whose patterns are others
				cache += "-" + types
			}
			p, err := e2e.Ask(ctx, *program, model, budget, cache)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				p.Verdict = err.Error()
			}
			if p.Verdict != e2e.Kept && p.Verdict != e2e.Cannot {
				broken++
			}
			fmt.Printf("%-22s  %-30s  %8.2f  %9d  %6.2f  %6.2f  %6.2f  %7.0f  %s\n", p.Model, p.Budget, p.Speedup, p.Bytes, p.FLOPs, p.Drop, p.Bound, p.Seconds, verdict(&p))
			all.Put(e2e.PromiseResult{Promise: p, Date: time.Now().UTC().Format(time.DateOnly), Commit: here.Commit, CPU: here.Machine.CPU})
			if *save != "" {
				if err := all.Write(*save); err != nil {
					return err
				}
			}
		}
	}
	if *table != "" {
		if err := bench.UpdateFile(*table, e2e.PromiseMark, all.Markdown()); err != nil {
			return err
		}
	}
	switch {
	case asked == 0 && *table == "":
		return errors.New("no budget matches")
	case broken > 0:
		return fmt.Errorf("%d of %d budgets are neither kept nor said to be impossible", broken, asked)
	}
	return nil
}

func verdict(p *e2e.Promise) string {
	if p.Why != "" {
		return p.Verdict + ": " + p.Why
	}
	return p.Verdict
}
