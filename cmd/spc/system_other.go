//go:build !unix

package main

import (
	"runtime"
	"time"
)

func ignoreFileSizeSignal() {}

func forgetPeak() {}

// peakBytes is the most memory that the Go runtime has taken.
func peakBytes() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}

// busyTime is how long the process has been on processors, 0 where that is not known.
func busyTime() time.Duration { return 0 }
