//go:build unix

package faults

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"spc/ir/onnx/onnxpb"
	"spc/tests/archs"
)

// saveModel writes a model.
func saveModel(t *testing.T, path string, b *archs.Builder) {
	t.Helper()
	m, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, m.Bytes())
}

// slow writes models of which each takes a command long in another phase.
func slow(t *testing.T) {
	t.Helper()
	b := archs.New("small", 17)
	x := b.Input("x", archs.Float32, 1, 64)
	b.Output("y", b.Node("MatMul", nil, x, b.Weight("w", archs.He(64), 64, 64)), archs.Float32, 1, 64)
	saveModel(t, "small.onnx", b)

	// Import, and every pass: many nodes.
	b = archs.New("long", 17)
	x = b.Input("x", archs.Float32, 1, 64)
	for range 60000 {
		x = b.Node("Sin", nil, x)
	}
	b.Output("y", x, archs.Float32, 1, 64)
	saveModel(t, "long.onnx", b)

	// One operator without a kernel.
	const n = 3000
	b = archs.New("operator", 17)
	x = b.Input("x", onnxpb.TensorProto_DOUBLE, n, n)
	b.Output("y", b.Node("MatMul", nil, x, x), onnxpb.TensorProto_DOUBLE, n, n)
	saveModel(t, "operator.onnx", b)
}

// Every command ends soon after a signal, whatever it is doing, with the status for it, one
// line, and no file more or less.
func TestASignalEndsEveryPhase(t *testing.T) {
	t.Chdir(t.TempDir())
	slow(t)
	for _, fifo := range []string{"pipe", "pipe.spx"} {
		if err := syscall.Mkfifo(fifo, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	works(t, "compile", "small.onnx", "-o", "small.spx")
	reader, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer full.Close()
	if err := full.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := full.Write(make([]byte, 1<<20)); err == nil {
		t.Fatal("the pipe takes everything")
	}
	for _, c := range []struct {
		phase string
		args  string
		waits bool // for another process
		full  bool // nobody reads what it prints
		alone bool // it has one processor
	}{
		{phase: "import", args: "compile long.onnx -o out.spx"},
		{phase: "calibrate", args: "compile small.onnx -o out.spx --quantize int8 --calib random:1 --calib-samples 100000000"},
		{phase: "calibrate on one processor", args: "compile small.onnx -o out.spx --quantize int8 --calib random:1 --calib-samples 100000000", alone: true},
		{phase: "reconstruct", args: "compile small.onnx -o out.spx --sparsity 0.8 --keep none --reconstruct --calib random:1 --calib-samples 2000 --recipe blocks=1000000"},
		{phase: "write", args: "compile small.onnx -o pipe.spx", waits: true},
		{phase: "operator", args: "run operator.onnx -i random:1 -o out"},
		{phase: "verify", args: "verify operator.onnx operator.onnx -i random:1"},
		{phase: "print", args: "inspect small.spx", waits: true, full: true},
		{phase: "complain", args: "run operator.onnx -i random:1 -o out", full: true},
		{phase: "bench", args: "bench small.spx --runs 1000000000"},
	} {
		for _, s := range []struct {
			signal syscall.Signal
			status int
			text   string
		}{{syscall.SIGINT, 130, "spc: interrupted\n"}, {syscall.SIGTERM, 143, "spc: terminated\n"}} {
			before := snapshot(t)
			var out, errs bytes.Buffer
			p := command(t, strings.Fields(c.args)...)
			p.Stdout, p.Stderr = &out, &errs
			if c.alone {
				p.Env = append(os.Environ(), "GOMAXPROCS=1")
			}
			if c.full {
				p.Stdout, p.Stderr, s.text = full, full, ""
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- p.Wait() }()
			if c.waits {
				time.Sleep(500 * time.Millisecond)
			}
			busy(p.Process.Pid, c.waits)
			select {
			case err := <-ended:
				t.Errorf("%s: the command ended before the signal: %v, %s", c.phase, err, errs.String())
				continue
			default:
			}
			start := time.Now()
			if err := p.Process.Signal(s.signal); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(20 * time.Second): // of a machine that is busy, too
				p.Process.Kill()
				t.Errorf("%s, %v: the command does not end", c.phase, s.signal)
				<-ended
				continue
			}
			t.Logf("%s, %v: ended after %v", c.phase, s.signal, time.Since(start).Round(time.Millisecond))
			if p.ProcessState.ExitCode() != s.status || errs.String() != s.text {
				t.Errorf("%s, %v: status %d, errors %q; want %d and %q", c.phase, s.signal, p.ProcessState.ExitCode(), errs.String(), s.status, s.text)
			}
			changes(t, before, snapshot(t), p.Args)
		}
	}
}

// busy returns when a process has computed for a while, or a while later where that is not
// known, or at once where it waits.
func busy(pid int, waits bool) {
	for deadline := time.Now().Add(30 * time.Second); !waits && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			time.Sleep(time.Second)
			return
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if ticks, err := strconv.Atoi(fields[11]); err != nil || ticks >= 40 { // of 10 ms
			return
		}
	}
}

// A file that is truncated while a command uses it is an error of one line, or, where the
// file was read first, nothing.
func TestATruncatedFileIsOneLine(t *testing.T) {
	t.Chdir(t.TempDir())
	const n = 256
	b := archs.New("wide", 17)
	x := b.Input("x", onnxpb.TensorProto_DOUBLE, 1, n)
	w := b.Initializer("w", &onnxpb.TensorProto{DataType: int32(onnxpb.TensorProto_DOUBLE), Dims: []int64{n, n}, RawData: make([]byte, 8*n*n)})
	// There is no kernel for it, which would have a copy of the weight.
	b.Output("y", b.Node("MatMul", nil, x, w), onnxpb.TensorProto_DOUBLE, 1, n)
	saveModel(t, "wide.onnx", b)
	if r := spcRun(t, "compile", "wide.onnx", "-o", "wide.spx"); r.status != 0 {
		t.Fatal(r.errors)
	}
	whole, err := os.ReadFile("wide.spx")
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--threads", "1"}, {"--no-mmap"}} {
		write(t, "model.spx", whole)
		var out, errs bytes.Buffer
		p := command(t, append([]string{"bench", "model.spx", "--runs", "1000000000"}, flags...)...)
		p.Stdout, p.Stderr = &out, &errs
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		busy(p.Process.Pid, false)
		if err := os.Truncate("model.spx", 4096); err != nil {
			t.Fatal(err)
		}
		copied := len(flags) > 0 && flags[0] == "--no-mmap"
		if copied {
			time.Sleep(100 * time.Millisecond)
			p.Process.Signal(os.Interrupt)
		}
		late := time.AfterFunc(time.Minute, func() { p.Process.Kill() })
		p.Wait()
		late.Stop()
		status, want := 1, "model.spx was changed or truncated while in use: corrupt file\n"
		if copied {
			status, want = 130, "spc: interrupted\n"
		}
		if p.ProcessState.ExitCode() != status || !strings.HasSuffix(errs.String(), want) || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("%q: status %d, errors %q, output %q", flags, p.ProcessState.ExitCode(), errs.String(), out.String())
		}
	}
}
