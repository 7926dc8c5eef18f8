// Command cmd evaluates the trained models on their stored inputs in every
// pipeline and prints sizes, times, and how far the outputs are from those of
// ONNX Runtime; then, for every pattern of zeros, how far an .spx on the CPU is
// from the interpreter on the same pruned weights.
//
//	go run ./tests/e2e/cmd -run silero
package main

import (
	"context"
	"flag"
	"fmt"
	"regexp"

	"spc/tests/conformance"
	"spc/tests/e2e"
)

func main() {
	pipe := flag.String("pipeline", "", "evaluate only in the pipeline of this name")
	e2e.Main("e2e", func(ctx context.Context, match *regexp.Regexp) error { return run(ctx, match, *pipe) })
}

func run(ctx context.Context, match *regexp.Regexp, pipe string) error {
	var results []e2e.Result
	failed := 0
	for _, m := range e2e.Models {
		for _, p := range conformance.Pipelines {
			if !match.MatchString(m) || pipe != "" && p.Name != pipe {
				continue
			}
			r := e2e.Evaluate(ctx, p, m, e2e.Tolerance)
			results = append(results, r)
			if r.Err != nil {
				failed++
			}
		}
	}
	var sparse []e2e.Result
	for _, m := range e2e.Sparse {
		for _, o := range e2e.Prunings {
			if !match.MatchString(m) || pipe != "" || !e2e.Suits(m, o) {
				continue
			}
			r := e2e.EvaluateSparse(ctx, m, o)
			sparse = append(sparse, r)
			if r.Err != nil {
				failed++
			}
		}
	}
	n := len(results) + len(sparse)
	if n == 0 {
		return fmt.Errorf("no model matches %q", match)
	}
	if len(results) > 0 {
		fmt.Println(e2e.Table(results))
	}
	if len(sparse) > 0 {
		fmt.Printf("\nPruned, against the interpreter:\n%s\n", e2e.Table(sparse))
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, n)
	}
	return nil
}
