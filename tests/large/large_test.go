package large_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"spc"
	"spc/data"
	"spc/ir/tensor"
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
		"compile":      {"compile", "--sparsity", "0.8"},
		"prune":        {"prune", "--sparsity", "0.5"},
		"with samples": {"compile", "--sparsity", "0.5", "--calib", "random:2", "--prune", "wanda", "--allocate", "layer"},
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

// calibrated are ways to compile by what samples show.
var calibrated = map[string]spc.CompileOptions{
	"obs":   {Prune: spc.PruneOptions{Sparsity: 0.5}},
	"swaps": {Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: spc.PerLayer, Refine: "swaps"}},
	"gates": {Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: spc.PerLayer, Method: "gates"}},
	"ends":  {Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: spc.PerLayer, Reconstruct: spc.Recipe{"model": 1, "blocks": 1}}},
	"snows": {Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: spc.PerLayer, Refine: "snows"}},
	"2:4":   {Prune: spc.PruneOptions{Allocate: spc.PerLayer, Pattern: spc.Pattern{Kind: spc.NM, N: 2, M: 4}}},
	"wanda": {Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: spc.PerLayer, Method: "wanda"}},
	"codes": {Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: spc.PerLayer}, Quantize: spc.QuantizeOptions{Type: tensor.I4}},
	"i8":    {Quantize: spc.QuantizeOptions{Type: tensor.I8}},
}

// drawn yields so many samples.
func drawn(n int) func(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	return func(_ context.Context, ports []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			for i := range n {
				x, err := data.Random{Seed: uint64(i)}.Tensor(ports[0].Name, tensor.F32, []int{1, ports[0].Dims[1].Size()}, 0)
				if !yield(map[string]*tensor.Tensor{ports[0].Name: x}, err) || err != nil {
					return
				}
			}
		}
	}
}

// With samples, too, weights that wait in a file change nothing.
func TestASpoolChangesNothingOfWhatSamplesShow(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	dir := t.TempDir()
	m := large.Model{Layers: 3, Width: 264, Seed: 3, External: "w.bin"}
	in := filepath.Join(dir, "m.onnx")
	if err := m.Write(in); err != nil {
		t.Fatal(err)
	}
	for name, o := range calibrated {
		o.Model, o.Prune.KeepNone = in, true
		o.Calibration = spc.Calibration{Inputs: drawn(4)}
		var compiled [2]bytes.Buffer
		for i, folder := range []string{"", dir} {
			o.Spool, o.Calibration.Spool = folder, folder
			c, err := spc.Compile(t.Context(), o)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := errors.Join(c.Write(&compiled[i]), c.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(compiled[0].Bytes(), compiled[1].Bytes()) {
			t.Errorf("%s: with a spool other bytes are written", name)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, the folder has %v", err, left)
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
