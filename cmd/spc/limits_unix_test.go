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

	"spc/tests/archs"
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

// Compiling takes at most 2.5 times the model's size and 200 MB of memory.
func TestCompileMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes and compiles a model of 100 MB")
	}
	t.Chdir(t.TempDir())
	m, err := archs.ResNet(archs.ResNet50, 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create("resnet50.onnx")
	if err != nil {
		t.Fatal(err)
	}
	size, err := m.WriteTo(f)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"uniform", "unstructured", "block:4x1"} {
		c := process(t, []string{peakFile + "=peak"}, "compile", "resnet50.onnx", "-o", "out.spx", "--sparsity", "0.8", "--pattern", pattern)
		start := time.Now()
		if r := finish(c); r.status != 0 {
			t.Fatal(r.errors)
		}
		// What the system says of a process that has ended counts the one that started it, too: that of the tests.
		b, err := os.ReadFile("peak")
		if err != nil {
			t.Fatal(err)
		}
		peak, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: peak %d MB, %v", pattern, peak>>20, time.Since(start).Round(100*time.Millisecond))
		if limit := size*5/2 + 200e6; peak > limit {
			t.Errorf("%s: peak %d bytes, want at most %d", pattern, peak, limit)
		}
	}
}

// The pipe that reports go to takes no model besides.
func TestModelsDoNotMixWithReports(t *testing.T) {
	workspace(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	path := fmt.Sprintf("/dev/fd/%d", w.Fd())
	if _, err := os.Stat(path); err != nil {
		t.Skip("no paths of open files here:", err)
	}
	defer func(f *os.File) { os.Stdout = f }(os.Stdout)
	os.Stdout = w
	fails(t, []string{"compile", "model.onnx", "-o", path}, "-o "+path+" is the pipe that the report goes to")
	fails(t, []string{"compile", "model.onnx", "--sparsity", "0.5", "--masks", path}, "--masks "+path+" is the pipe")
	ok(t, "compile", "model.onnx", "-o", os.DevNull)
}
