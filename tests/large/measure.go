package large

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// Usage is what a process took.
type Usage struct {
	Time time.Duration
	CPU  time.Duration
	Anon int // the most bytes that it held which are in no file
	Peak int // the most bytes that it held, those of mapped files among them
}

// every is how often a process is looked at.
const every = 5 * time.Millisecond

// Measure runs a command, which prints to out, and watches its memory, on Linux.
func Measure(out io.Writer, args []string) (*Usage, error) {
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = out, out
	start := time.Now()
	if err := c.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	u := &Usage{}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err == nil && u.Peak == 0 {
				err = fmt.Errorf("the memory of %s cannot be told here", args[0])
			}
			u.Time, u.CPU = time.Since(start), c.ProcessState.UserTime()+c.ProcessState.SystemTime()
			return u, err
		case <-tick.C:
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid)) // it may be gone
			u.Anon, u.Peak = max(u.Anon, kilobytes(b, "RssAnon:")), max(u.Peak, kilobytes(b, "VmHWM:"))
		}
	}
}

// kilobytes returns the bytes that a line of a status tells.
func kilobytes(status []byte, name string) int {
	_, line, _ := bytes.Cut(status, []byte("\n"+name))
	line, _, _ = bytes.Cut(line, []byte("kB"))
	n, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
	return 1024 * n
}
