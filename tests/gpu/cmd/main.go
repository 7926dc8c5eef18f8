// Command cmd writes the README's tables of GPUs from tests/gpu/results; with -save OUT it first
// takes over what tests/gpu/run.sh wrote into the folder OUT. It runs in the root of the
// repository.
package main

import (
	"flag"
	"fmt"
	"os"

	"spc/tests/bench"
	"spc/tests/gpu/report"
)

func main() {
	from := flag.String("save", "", "take over the results in this `folder`")
	flag.Parse()
	if err := run(*from); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(from string) error {
	const results = "tests/gpu/results"
	if from != "" {
		if err := report.Save(from, results); err != nil {
			return err
		}
	}
	table, err := report.Markdown(results)
	if err != nil {
		return err
	}
	return bench.UpdateFile("README.md", report.Mark, table)
}
