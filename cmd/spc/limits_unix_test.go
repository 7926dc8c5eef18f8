//go:build unix

package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const limitsFiles = true

// limitFileSize stages a full disk: no file may grow beyond a number of bytes.
func limitFileSize(bytes string) {
	if n, err := strconv.ParseUint(bytes, 10, 64); err == nil {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			panic(err)
		}
	}
}

// interrupt sends SIGINT once the process has had time to start.
func interrupt(t *testing.T, p *os.Process) {
	t.Helper()
	time.Sleep(500 * time.Millisecond)
	if err := p.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}
