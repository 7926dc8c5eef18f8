// Command cmd measures spc serve under load (package load), and fails where a bar is missed.
//
//	go run ./tests/serve/load/cmd -spc bin/spc -only minilm -sittings 5
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"spc/tests/bench"
	"spc/tests/serve/load"
)

var (
	program  = flag.String("spc", "bin/spc", "the `program` that serves")
	shared   = flag.String("shared", os.Getenv("SPC_SHARED"), "the `folder` of trained models")
	only     = flag.String("only", "", "measure these parts, a comma-separated `list` of overhead, resnet20 and minilm")
	sittings = flag.Int("sittings", 3, "how often all is measured anew")
	seconds  = flag.Duration("turn", 10*time.Second, "how long each setting is under load in a sitting")
	clients  = flag.Int("clients", 64, "that ask at the same time")
	calls    = flag.Int("calls", 200, "of one client in a turn, for the overhead")
	turns    = flag.Int("turns", 20, "of each side in a sitting, for the overhead")
	runs     = flag.Int("runs", 50, "of spc bench")
	table    = flag.String("table", "", "write all of -save into the tables of this document, a `FILE`")
	save     = flag.String("save", "", "put the results into this JSON `FILE`, in the place of what it has of the same parts")
)

func main() {
	load.EchoIfAsked()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "spc-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o := &load.Options{
		Program: *program, Dir: dir, Shared: *shared, Sittings: *sittings, Calls: *calls, Turns: *turns, Clients: *clients, Turn: *seconds, Runs: *runs, Log: os.Stderr,
	}
	all, err := load.Read(*save)
	if err != nil {
		return err
	}
	now := &load.Results{}
	wanted := map[string]bool{}
	for _, name := range strings.Split(*only, ",") {
		wanted[name] = true
	}
	known := 0
	each := func(name string, measure func() error) error {
		if !wanted[""] && !wanted[name] {
			return nil
		}
		known++
		if err := measure(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if *save != "" {
			return all.Write(*save)
		}
		return nil
	}
	err = each("overhead", func() (err error) {
		now.Overhead, err = o.Overhead(ctx)
		all.Overhead = now.Overhead
		return err
	})
	for i := range load.Subjects {
		if err != nil {
			return err
		}
		s := &load.Subjects[i]
		err = each(s.Name, func() error {
			b, err := o.Batching(ctx, s)
			if err == nil {
				now.Put(b)
				all.Put(b)
			}
			return err
		})
	}
	if err == nil && !wanted[""] && known < len(wanted) {
		err = fmt.Errorf("-only %s: want some of overhead, resnet20, minilm", *only)
	}
	if err != nil {
		return err
	}
	fmt.Print(now.Markdown())
	if *table != "" {
		if err := bench.UpdateFile(*table, load.Mark, all.Markdown()); err != nil {
			return err
		}
	}
	if missed := now.Misses(); len(missed) > 0 {
		return errors.New(strings.Join(missed, "; "))
	}
	return nil
}
