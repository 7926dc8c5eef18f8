// Command accuracy measures the trained models on the shared data with spc eval and
// compares them with their baselines.
//
//	go run ./tests/e2e/accuracy -spc bin/spc -run mnist
package main

import (
	"context"
	"flag"
	"fmt"
	"regexp"

	"spc/tests/e2e"
)

func main() {
	spc := flag.String("spc", "bin/spc", "the `program` that is measured")
	e2e.Main("accuracy", func(ctx context.Context, match *regexp.Regexp) error { return run(ctx, match, *spc) })
}

func run(ctx context.Context, match *regexp.Regexp, spc string) error {
	var list []e2e.Baseline
	var measured []e2e.Evaluation
	var errs []error
	failed := 0
	for _, b := range e2e.Baselines {
		if !match.MatchString(b.Model) {
			continue
		}
		e, err := b.Measure(ctx, spc)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed++
		}
		list, measured, errs = append(list, b), append(measured, e), append(errs, err)
	}
	if len(list) == 0 {
		return fmt.Errorf("no model matches %q", match)
	}
	fmt.Println(e2e.AccuracyTable(list, measured, errs))
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(list))
	}
	return nil
}
