//go:build unix

package main

import (
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

// ignoreFileSizeSignal makes a write beyond the limit on file sizes an error in
// place of the end of the process.
func ignoreFileSizeSignal() { signal.Ignore(unix.SIGXFSZ) }

// peakBytes is the most memory that the process has had resident.
func peakBytes() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return u.Maxrss
	}
	return u.Maxrss * 1024
}
