//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
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

// interrupt sends SIGINT once the process has computed for a while, which says that
// it is beyond its start; where the system does not tell, a second is waited.
func interrupt(t *testing.T, p *os.Process) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil {
			time.Sleep(time.Second)
			break
		}
		// After the name in parentheses: state, ten numbers, and the user's time in
		// ticks of 10 ms.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if ticks, err := strconv.Atoi(fields[11]); err != nil || ticks >= 30 {
			break
		}
	}
	if err := p.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}
