package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spc"
	"spc/ir/tensor"
)

// What a compilation writes stays apart from what it reads and from each other.
func TestOutputsStayApart(t *testing.T) {
	workspace(t)
	writeNPY(t, "images.npy", tensor.New(tensor.U8, 6, 3, 16, 16))
	if err := os.Symlink("model.onnx", "link.npz"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, "old", []byte("statistics"))
	if err := os.Link("old", "old.onnx"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("sub", 0o777); err != nil {
		t.Fatal(err)
	}
	before, model, images := listing(t, "."), read(t, "model.onnx"), read(t, "images.npy")
	sees := []string{"--sparsity", "0.5", "--calib", "images.npy", "--preprocess", "unit", "--allocate", "normalised"}
	for want, args := range map[string][]string{
		"-o model.onnx is a file that this command reads":                   {"prune", "-o", "model.onnx"},
		"--masks model.onnx is a file that this command reads":              {"compile", "-o", "a.spx", "--masks", "model.onnx"},
		"--masks link.npz is the file model.onnx, which this command reads": {"compile", "-o", "a.spx", "--masks", "link.npz"},
		"model.onnx: no file of calibration statistics":                     {"compile", "-o", "a.spx", "--calib-cache", "model.onnx"},
		"open old: -o old.onnx would replace it":                            {"prune", "-o", "old.onnx", "--calib-cache", "old"},
		"open images.npy: --masks images.npy would replace it":              {"prune", "-o", "a.onnx", "--masks", "images.npy"},
		"--masks sub/../a.spx is also the file of -o":                       {"compile", "-o", "a.spx", "--masks", "sub/../a.spx"},
		"--calib-cache a.onnx is also the file of -o":                       {"prune", "-o", "a.onnx", "--calib-cache", "a.onnx"},
		"--calib-cache m is also the file of --masks":                       {"prune", "-o", "a.onnx", "--calib-cache", "m", "--masks", "m"},
		"--masks model.spx is also the file of -o":                          {"compile", "--masks", "model.spx"},
		"--masks: create none/m.npz: no such file":                          {"compile", "-o", "a.spx", "--masks", "none/m.npz"},
		"--masks: create images.npy/m.npz":                                  {"compile", "-o", "a.spx", "--masks", "images.npy/m.npz"},
		"-o: create none/a.onnx: no such file":                              {"prune", "-o", "none/a.onnx"},
		"--calib-cache: create none/c: no such file":                        {"prune", "-o", "a.onnx", "--calib-cache", "none/c"},
		"--masks m.npz needs -o: without, --stop-after prints":              {"compile", "--stop-after", "prune", "--masks", "m.npz"},
		"zeros are asked for, and no weight of the model is ":               {"prune", "-o", "a.onnx", "--masks", "m.npz", "--keep", "*"},
		"--masks: sub is a folder, want a file":                             {"prune", "-o", "a.onnx", "--masks", "sub"},
	} {
		fails(t, slices.Concat(args[:1], []string{"model.onnx"}, args[1:], sees), want)
	}
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
	if !bytes.Equal(model, read(t, "model.onnx")) || !bytes.Equal(images, read(t, "images.npy")) {
		t.Error("what was read has changed")
	}
}

func TestFullDiskLeavesNeitherModelNorMasks(t *testing.T) {
	if !limitsFiles {
		t.Skip("no RLIMIT_FSIZE here")
	}
	workspace(t)
	before := listing(t, ".")
	args := []string{"prune", "model.onnx", "-o", "new.onnx", "--masks", "m.npz", "--sparsity", "0.5"}
	checkFailure(t, args, finish(process(t, []string{fileLimit + "=20000"}, args...)), "new.onnx", "file too large")
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
}

// late is a model of which err is what comes of writing it.
type late struct{ err error }

func (m late) Files(path string) ([]spc.File, error) {
	return []spc.File{{Path: path, Write: m.write}}, nil
}

func (m late) write(w io.Writer) error {
	if _, err := io.WriteString(w, "model"); err != nil {
		return err
	}
	return m.err
}

func (late) Masks() map[string]*tensor.Tensor {
	return map[string]*tensor.Tensor{"w": tensor.From([]bool{true}, 1)}
}

func TestAModelThatIsNotWrittenLeavesItsMasksAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	o := outputs{model: filepath.Join(dir, "a.spx"), masks: filepath.Join(dir, "a.npz")}
	if err := os.WriteFile(o.masks, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	if err := o.write(t.Context(), late{full}); !errors.Is(err, full) {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.write(gone, late{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(o.masks); err != nil || string(b) != "old" {
		t.Errorf("the masks hold %q, %v", b, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if err := o.write(t.Context(), late{}); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
