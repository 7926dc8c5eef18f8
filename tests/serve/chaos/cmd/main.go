// Command cmd runs spc serve among clients that do what they should not (package chaos), and fails where an answer is wrong, a request is lost, or
// something is left in the end.
//
//	go run ./tests/serve/chaos/cmd -spc bin/spc -requests 30000 -seed 7
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"spc/tests/serve/chaos"
)

var (
	program  = flag.String("spc", "bin/spc", "the `program` that serves")
	shared   = flag.String("shared", os.Getenv("SPC_SHARED"), "the `folder` of trained models")
	requests = flag.Int("requests", 1000000, "of good clients")
	good     = flag.Int("good", 8, "good clients")
	bad      = flag.Int("bad", 8, "bad clients")
	kills    = flag.Int("kills", 20, "how often the server is killed")
	seed     = flag.Uint64("seed", 0, "of what clients do; 0 for one that is drawn")
	stall    = flag.Duration("stall", 2*time.Second, "how long a client stalls")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "spc-chaos-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	fmt.Printf("seed %d\n", *seed)
	r, err := chaos.Run(ctx, chaos.Options{
		Program: *program, Dir: dir, Shared: *shared, Requests: *requests, Good: *good, Bad: *bad, Kills: *kills, Seed: *seed, Stall: *stall, Log: os.Stderr,
	})
	if r != nil {
		fmt.Print(r)
	}
	return err
}
