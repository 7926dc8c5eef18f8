//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ignoreFileSizeSignal makes a write beyond the limit on file sizes an error in
// place of the end of the process.
func ignoreFileSizeSignal() { signal.Ignore(unix.SIGXFSZ) }

// forgetPeak makes peakBytes count from now on, where the system can.
func forgetPeak() {
	debug.FreeOSMemory()
	// Linux: 5 sets the peak to what is resident now.
	if f, err := os.OpenFile("/proc/self/clear_refs", os.O_WRONLY, 0); err == nil {
		f.WriteString("5")
		f.Close()
	}
}

// peakBytes is the most memory that the process has had resident. Linux counts in its usage also what
// the process was that started it, and nothing is forgotten there.
func peakBytes() int64 {
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		_, rest, ok := strings.Cut(string(b), "VmHWM:")
		var kib int64
		if _, err := fmt.Sscan(rest, &kib); ok && err == nil {
			return kib * 1024
		}
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return u.Maxrss
	}
	return u.Maxrss * 1024
}

// busyTime is how long threads of the process have been on processors. On Linux it counts how long those that are left waited for one, too.
func busyTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	busy := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	tasks, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, task := range tasks {
		var ran, waited int64
		if b, err := os.ReadFile(task); err == nil {
			fmt.Sscan(string(b), &ran, &waited)
		}
		busy += time.Duration(waited)
	}
	return busy
}
