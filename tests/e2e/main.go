package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
)

// Main is main of a command that runs on the models whose names match the regular
// expression in its flag -run, until an interrupt. It parses the flags.
func Main(name string, run func(ctx context.Context, match *regexp.Regexp) error) {
	pattern := flag.String("run", "", "take only the models whose name matches this regular expression")
	flag.Parse()
	match, err := regexp.Compile(*pattern)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = run(ctx, match)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}
