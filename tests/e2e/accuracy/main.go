// Command accuracy measures the trained models on the shared data with spc eval: dense,
// against their baselines, and pruned on one half of the samples and measured on the
// other, against what other implementations reached.
//
//	go run ./tests/e2e/accuracy -spc bin/spc -run mnist
//	go run ./tests/e2e/accuracy -spc bin/spc -pruned -run 'resnet20|stories' -cells 50,2:4
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"spc/passes/recon"
	"spc/tests/bench"
	"spc/tests/e2e"
)

var (
	spc         = flag.String("spc", "bin/spc", "the `program` that is measured")
	pruned      = flag.Bool("pruned", false, "measure pruned models")
	cells       = flag.String("cells", strings.Join(e2e.Cells, ","), "the prunings to measure: `LIST` of percents of uniform zeros, N:M, PATTERN@PERCENT, each with +int8, and int8")
	reconstruct = flag.String("reconstruct", "both", "yes, no or both: with reconstruction, without")
	choose      = flag.Bool("choose", false, "calibrate on one half of the even samples and measure on the other: for choosing a recipe")
	recipe      = flag.String("recipe", "", "`SETTINGS` of reconstruction, as spc's --recipe takes them")
	strict      = flag.Bool("strict", false, "fail where a pruned model misses its bar")
	save        = flag.String("save", "", "put the results of pruned models into this `FILE`, too, in place of what it has of the same cells")
	table       = flag.String("table", "", "write all of that file into the table of this document, a `FILE`, even where nothing is measured")
)

func main() { e2e.Main("accuracy", run) }

func run(ctx context.Context, match *regexp.Regexp) error {
	if *pruned {
		return prune(ctx, match)
	}
	var list []e2e.Baseline
	var measured []e2e.Evaluation
	var errs []error
	failed := 0
	for _, b := range e2e.Baselines {
		if !match.MatchString(b.Model) {
			continue
		}
		e, err := b.Measure(ctx, *spc)
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

func prune(ctx context.Context, match *regexp.Regexp) error {
	here := bench.Here()
	out := &e2e.PrunedResults{}
	kept := out
	if *save != "" {
		var err error
		if kept, err = e2e.ReadPruned(*save); err != nil {
			return err
		}
	}
	if *choose && *save != "" {
		return fmt.Errorf("-save keeps what odd samples measured, and -choose measures even ones")
	}
	with := map[string][]bool{"yes": {true}, "no": {false}, "both": {false, true}}[*reconstruct]
	if with == nil {
		return fmt.Errorf("-reconstruct %q, want yes, no or both", *reconstruct)
	}
	start, failed := time.Now(), 0
	for i := range e2e.PrunedModels {
		m := &e2e.PrunedModels[i]
		if !match.MatchString(m.Model) {
			continue
		}
		split := e2e.Tabled
		if *choose {
			if split = e2e.Choice; m.Choice != nil {
				split = *m.Choice
			}
		}
		for _, cell := range strings.Split(*cells, ",") {
			for _, with := range with {
				if _, aimed := m.Aims[cell]; with && !aimed {
					continue
				}
				r := m.Measure(ctx, *spc, cell, with, split, *recipe)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				kept.Judge(&r)
				if r.Error != "" || *strict && m.Verdict(&r) == e2e.Missed {
					failed++
				}
				fmt.Fprintf(os.Stderr, "%s %s %v: %.4g %s (%.0f s)\n", m.Model, cell, with, r.Value, m.Verdict(&r), r.Compile)
				r.Date, r.Commit, r.CPU = here.Date, here.Commit, here.Machine.CPU
				out.Put(r)
				if *save == "" {
					continue
				}
				kept.Put(r)
				if err := kept.Write(*save); err != nil {
					return err
				}
			}
		}
	}
	if len(out.Cells) == 0 && *table == "" {
		return fmt.Errorf("no model matches %q", match)
	}
	fmt.Printf("%s, commit %s, %s\n", here.Date, here.Commit, here.Machine.CPU)
	fmt.Println(out.Table())
	half := "odd"
	if *choose {
		half = "other even"
	}
	fmt.Printf("Calibrated on even samples, measured on %s ones, in %s:\n", half, time.Since(start).Round(time.Second))
	for _, c := range out.Commands() {
		fmt.Println("  " + c)
	}
	var r recon.Recipe
	if *recipe != "" {
		var err error
		if r, err = recon.ParseRecipe(*recipe); err != nil {
			return err
		}
	}
	seed, ok := r["seed"]
	if !ok {
		seed = recon.DefaultSeed
	}
	fmt.Printf("Reconstruction draws from seed %.0f; nothing else is random.\n", seed)
	if *table != "" {
		if err := bench.UpdateFile(*table, e2e.Mark, kept.Markdown()); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(out.Cells))
	}
	return nil
}
