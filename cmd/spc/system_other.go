//go:build !unix

package main

import "runtime"

func ignoreFileSizeSignal() {}

func forgetPeak() {}

// peakBytes is the most memory that the Go runtime has taken.
func peakBytes() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}
