// Command cmd makes what tests of the zoo need.
//
//	go run ./tests/zoo/cmd graphs --models out/zoo/small
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// commands lists the commands.
var commands = []func() *cobra.Command{graphsCommand, formsCommand}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &cobra.Command{Use: "zoo", SilenceUsage: true, SilenceErrors: true}
	for _, f := range commands {
		c.AddCommand(f())
	}
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "zoo:", err)
		stop()
		os.Exit(1)
	}
}
