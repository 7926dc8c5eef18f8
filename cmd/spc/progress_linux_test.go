package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudoterminal: what is written to the second file is read from the first.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	return master, slave
}

// A terminal shows one bar over the compilation and what comes after it, which is gone at the end.
func TestProgressIsABarOnATerminal(t *testing.T) {
	workspace(t)
	master, slave := terminal(t)
	c := process(t, nil, "bench", "model.onnx", "--runs", "3000") // which takes longer than it waits before it draws
	c.Stderr = slave
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	shown, _ := io.ReadAll(master) // which ends in an error once nobody has the other side
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	text := string(shown)
	if all := percents(t, text); len(all) == 0 || !strings.Contains(text, "bench") || strings.Contains(text, "spc: ") {
		t.Errorf("%v percent in %q", all, text)
	}
	// The line is blank after the last carriage return.
	if i := strings.LastIndex(text, "\r"); i < 0 || strings.TrimSpace(strings.TrimPrefix(text[i:], "\r\x1b[2K")) != "" {
		t.Errorf("left on the terminal is %q", text[max(0, i-100):])
	}
}
