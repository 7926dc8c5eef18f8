// Command cmd says what follows from the measurements of tests/gpu/run.sh. It runs in the root
// of the repository, and writes the tables of docs/results/gpu.md from tests/gpu/results. With -save OUT
// it first takes over what run.sh wrote into the folder OUT, and writes the grid by which kernels
// are picked. With -claims OUT it does neither, but prints which claims hold and writes them into
// OUT/claims.json.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"spc/tests/bench"
	"spc/tests/gpu/report"
)

func main() {
	save := flag.String("save", "", "take over the results in this `folder`")
	claims := flag.String("claims", "", "print the claims on the results in this `folder`")
	flag.Parse()
	if err := run(*save, *claims); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(save, claims string) error {
	const results, images = "tests/gpu/results", "backend/cuda/image"
	if claims != "" {
		r, err := report.Read(filepath.Join(claims, "bench.json"))
		if err != nil {
			return err
		}
		r.PrintClaims(os.Stdout)
		return r.WriteClaims(filepath.Join(claims, "claims.json"))
	}
	if save != "" {
		if err := report.Save(save, results, images); err != nil {
			return err
		}
	}
	table, err := report.Markdown(results)
	if err != nil {
		return err
	}
	return bench.UpdateFile("docs/results/gpu.md", report.Mark, table)
}
