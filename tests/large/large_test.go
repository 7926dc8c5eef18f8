package large_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"spc"
	"spc/tests/large"
)

// built builds the command.
func built(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spc")
	if out, err := exec.Command("go", "build", "-o", path, "spc/cmd/spc").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Memory is that of a few layers: it grows with the model by far less than the model does.
func TestMemoryIsNotOfTheWholeModel(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is told on Linux")
	}
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	command := built(t)
	for name, args := range map[string][]string{
		"compile": {"compile", "--sparsity", "0.8"},
		"prune":   {"prune", "--sparsity", "0.5"},
	} {
		took := map[int]int{}
		for _, layers := range []int{8, 24} {
			dir := t.TempDir()
			m := large.Model{Layers: layers, Width: 1024, Seed: 1, External: "w.bin"}
			in, out := filepath.Join(dir, "m.onnx"), filepath.Join(dir, "out", "m.onnx")
			if args[0] == "compile" {
				out = filepath.Join(dir, "out", "m.spx")
			}
			if err := os.Mkdir(filepath.Dir(out), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := m.Write(in); err != nil {
				t.Fatal(err)
			}
			var printed bytes.Buffer
			u, err := large.Measure(&printed, append([]string{command, args[0], in, "-o", out}, args[1:]...))
			if err != nil {
				t.Fatalf("%v\n%s", err, &printed)
			}
			took[layers] = u.Anon
		}
		const more = 16 << 22 // bytes of weights
		t.Logf("%s: %d and %d MB", name, took[8]>>20, took[24]>>20)
		if took[24]-took[8] > more/4 {
			t.Errorf("%s: %d MB for %d MB of weights more, %d MB in all", name, (took[24]-took[8])>>20, more>>20, took[24]>>20)
		}
	}
}

// Where weights wait in a file what is written is the same, to the bit.
func TestASpoolChangesNothing(t *testing.T) {
	dir := t.TempDir()
	m := large.Model{Layers: 3, Width: 640, Seed: 2, External: "w.bin"}
	in := filepath.Join(dir, "m.onnx")
	if err := m.Write(in); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:8x1"} {
		pattern, err := spc.ParsePattern(p)
		if err != nil {
			t.Fatal(err)
		}
		o := spc.CompileOptions{Model: in, Prune: spc.PruneOptions{Pattern: pattern, KeepNone: true}}
		if !strings.Contains(p, ":4") || strings.Contains(p, "x") {
			o.Prune.Sparsity = 0.75
		}
		var compiled, pruned [2]bytes.Buffer
		for i, folder := range []string{"", dir} {
			o.Spool = folder
			c, err := spc.Compile(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Write(&compiled[i]); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			q, err := spc.Prune(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Write(&pruned[i]); err != nil {
				t.Fatal(err)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
		if !bytes.Equal(compiled[0].Bytes(), compiled[1].Bytes()) || !bytes.Equal(pruned[0].Bytes(), pruned[1].Bytes()) {
			t.Errorf("%s: with a spool other bytes are written", p)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, the folder has %v", err, left)
	}
}
