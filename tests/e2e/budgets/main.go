// Command budgets asks spc for budgets of trained models, and measures whether what it promises holds: 32 budgets, of which each
// is a line of the table when it is done.
//
//	go run ./tests/e2e/budgets -spc bin/spc -run squeezenet -budgets 'speedup 1.1'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"

	"spc/internal/atomicfile"
	"spc/tests/bench"
	"spc/tests/e2e"
)

var (
	program = flag.String("spc", "bin/spc", "the `program` that is asked")
	which   = flag.String("budgets", "", "take only budgets that match this regular `expression`")
	save    = flag.String("save", "", "put the results into this JSON `FILE`, too, in the place of what it has of the same budgets")
)

func main() { e2e.Main("budgets", run) }

// results are what a file has.
type results struct {
	Promises []result `json:"promises"`
}

// result is a promise, and where it was measured.
type result struct {
	e2e.Promise
	Date   string `json:"date"`
	Commit string `json:"commit"`
	CPU    string `json:"cpu"`
}

func run(ctx context.Context, match *regexp.Regexp) error {
	some, err := regexp.Compile(*which)
	if err != nil {
		return err
	}
	here := bench.Here()
	all, err := read(*save)
	if err != nil {
		return err
	}
	broken, asked := 0, 0
	fmt.Printf("%-22s  %-30s  %8s  %9s  %6s  %6s  %6s  %7s  %s\n", "model", "budget", "speed-up", "bytes", "flops", "lost", "most", "seconds", "")
	for _, model := range e2e.Budgeted {
		for _, budget := range e2e.Budgets {
			if !match.MatchString(model) || !some.MatchString(budget) {
				continue
			}
			asked++
			p, err := e2e.Ask(ctx, *program, model, budget)
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
			all.put(result{p, here.Date, here.Commit, here.Machine.CPU})
			if *save != "" {
				if err := all.write(*save); err != nil {
					return err
				}
			}
		}
	}
	switch {
	case asked == 0:
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

func read(path string) (*results, error) {
	r := &results{}
	if path == "" {
		return r, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// put replaces what was there of a budget.
func (r *results) put(x result) {
	i := slices.IndexFunc(r.Promises, func(o result) bool { return o.Model == x.Model && o.Budget == x.Budget })
	if i >= 0 {
		r.Promises[i] = x
		return
	}
	r.Promises = append(r.Promises, x)
}

func (r *results) write(path string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
}
