// Command cmd evaluates the trained models on their stored inputs in every
// pipeline and prints sizes, times, and how far the outputs are from those of
// ONNX Runtime.
//
//	go run ./tests/e2e/cmd -run silero
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"

	"spc/tests/conformance"
	"spc/tests/e2e"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	pattern := flag.String("run", "", "evaluate the models whose name matches this regular expression")
	pipe := flag.String("pipeline", "", "evaluate only in the pipeline of this name")
	flag.Parse()
	match, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var results []e2e.Result
	failed := 0
	for _, m := range e2e.Models {
		for _, p := range conformance.Pipelines {
			if !match.MatchString(m) || *pipe != "" && p.Name != *pipe {
				continue
			}
			r := e2e.Evaluate(ctx, p, m)
			results = append(results, r)
			if r.Err != nil {
				failed++
			}
		}
	}
	if len(results) == 0 {
		return fmt.Errorf("no model matches")
	}
	fmt.Println(e2e.Table(results))
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(results))
	}
	return nil
}
