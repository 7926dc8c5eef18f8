package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// progress shows how far a command is, on standard error where that is a
// terminal, else not at all.
type progress struct {
	out  io.Writer // nil where nothing is shown
	bar  *progressbar.ProgressBar
	name string
}

func newProgress(c *cobra.Command) *progress {
	if f, ok := c.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progress{out: f}
	}
	return &progress{}
}

// warn prints a line on standard error, in the place of a bar that is shown there.
func warn(c *cobra.Command, text string) {
	clear := ""
	if newProgress(c).out != nil {
		clear = "\r\x1b[K"
	}
	fmt.Fprintf(c.ErrOrStderr(), "%sspc: warning: %s\n", clear, line(text))
}

// stage shows that done of total steps of a stage are done.
func (p *progress) stage(name string, done, total int) {
	if p.out == nil {
		return
	}
	// A bar that is told of fewer steps than it has shown is finished for good.
	if name != p.name {
		p.close()
		p.name = name
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(p.out),
			progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetDescription(name),
		)
	}
	// Errors mean only that the terminal is gone.
	if total != p.bar.GetMax() {
		p.bar.ChangeMax(total)
	}
	p.bar.Set(min(done, total-1)) // a full bar would clear itself
}

// close takes the bar off the terminal.
func (p *progress) close() {
	if p.bar != nil {
		p.bar.Clear()
		p.bar = nil
	}
}
