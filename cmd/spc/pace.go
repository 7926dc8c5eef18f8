package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spc"
)

// work is what a command has taken since it began.
type work struct {
	start time.Time
	busy  time.Duration
}

// begin begins to measure.
func begin() work { return work{time.Now(), busyTime()} }

// slowBytes is the size of the dense weights from which on it is told how fast they were worked on.
const slowBytes = 1 << 28

// tell prints how fast a large model was worked on, and by what that was bound.
func (w work) tell(c *cobra.Command, quiet bool, r *spc.Report) error {
	n := int64(r.Totals.DenseBytes)
	if r.Prune != nil && n == 0 {
		n = 4 * int64(r.Prune.Weights.Weights)
	}
	if quiet || n < slowBytes {
		return nil
	}
	took := time.Since(w.start)
	_, err := fmt.Fprintf(c.OutOrStdout(), "speed     %s of weights in a second, bound by the %s\n", size(int64(float64(n)/took.Seconds())), boundOf(took, busyTime()-w.busy))
	return err
}

// boundOf says what bound work that took some time, in which the process was so long on processors or waited for one: that time is as long
// at least where it never waits for the disk, as one goroutine has work always.
func boundOf(took, busy time.Duration) string {
	if busy == 0 {
		return "disk or the processors"
	}
	if busy < took*7/10 {
		return "disk"
	}
	return "processors"
}
