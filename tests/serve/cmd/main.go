// Command cmd has clients that others wrote call spc serve, and says what is wrong. It runs in the root of the repository.
//
//	go run ./tests/serve/cmd -save tests/serve/results/protocol.json -table docs/results/protocol.md
//
// What a client needs and is not there is an error; with -missing such clients are named and the others run.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"spc/tests/bench"
	"spc/tests/serve"
)

func main() {
	t := &serve.Tools{Root: "."}
	flag.StringVar(&t.Spc, "spc", "bin/spc", "the `program`")
	flag.StringVar(&t.Grpcurl, "grpcurl", "out/serve/grpcurl", "a `program`")
	flag.StringVar(&t.Modules, "modules", "out/serve", "the `folder` that has node_modules")
	flag.StringVar(&t.Python, "python", "/usr/bin/python3", "the `program` that has Debian's packages")
	save := flag.String("save", "", "write the results into this `file`")
	table := flag.String("table", "", "write their table into this `file`")
	missing := flag.Bool("missing", false, "go on without the clients that are not there")
	flag.Parse()
	if err := run(t, *save, *table, *missing); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(t *serve.Tools, save, table string, missing bool) error {
	var err error
	for _, p := range []*string{&t.Root, &t.Modules, &t.Spc, &t.Grpcurl} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	r, failed := serve.NewResults(), 0
	for i := range serve.Clients {
		c := &serve.Clients[i]
		version, err := c.Version(t)
		if err != nil && missing {
			fmt.Printf("skipped: %s: %v\n", c.Name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		result, err := one(t, c, version)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		r.Clients = append(r.Clients, *result)
		failed += result.Failed()
	}
	if len(r.Clients) == 0 {
		return errors.New("no clients")
	}
	if save != "" {
		if err := r.Write(save); err != nil {
			return err
		}
	}
	if table != "" {
		if err := bench.UpdateFile(table, serve.Mark, r.Markdown()); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d checks fail", failed)
	}
	return nil
}

// one has a client make its calls, and prints what is wrong.
func one(t *serve.Tools, c *serve.Client, version string) (*serve.Result, error) {
	dir, err := os.MkdirTemp("", "serve")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	checks, err := c.Run(t, dir)
	if err != nil {
		return nil, err
	}
	r := &serve.Result{Client: c.Name, Of: c.Of, Version: version, Checks: checks}
	fmt.Printf("%s %s, as %s: %d checks, %d fail, %.1f s\n", c.Name, version, c.Of, len(checks), r.Failed(), time.Since(began).Seconds())
	for _, x := range checks {
		if x.Wrong != "" {
			fmt.Printf("  %s: %s: %s\n", x.Call, x.What, x.Wrong)
		}
	}
	return r, nil
}
