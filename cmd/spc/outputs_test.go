package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"spc/ir/tensor"
)

// What a compilation writes stays apart from what it reads and from each other.
func TestOutputsStayApart(t *testing.T) {
	workspace(t)
	writeNPY(t, "images.npy", tensor.New(tensor.U8, 6, 3, 16, 16))
	if err := os.Symlink("model.onnx", "link.npz"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("sub", 0o777); err != nil {
		t.Fatal(err)
	}
	before, model, images := listing(t, "."), read(t, "model.onnx"), read(t, "images.npy")
	sees := []string{"--sparsity", "0.5", "--calib", "images.npy", "--preprocess", "unit", "--allocate", "normalised"}
	for want, args := range map[string][]string{
		"-o model.onnx is the model itself":                    {"prune", "-o", "model.onnx"},
		"--masks model.onnx is the model itself":               {"compile", "-o", "a.spx", "--masks", "model.onnx"},
		"--masks link.npz is the model itself":                 {"compile", "-o", "a.spx", "--masks", "link.npz"},
		"--calib-cache model.onnx is the model itself":         {"compile", "-o", "a.spx", "--calib-cache", "model.onnx"},
		"--masks images.npy is what --calib reads":             {"prune", "-o", "a.onnx", "--masks", "images.npy"},
		"--masks sub/../a.spx is also the file of -o":          {"compile", "-o", "a.spx", "--masks", "sub/../a.spx"},
		"--calib-cache a.onnx is also the file of -o":          {"prune", "-o", "a.onnx", "--calib-cache", "a.onnx"},
		"--calib-cache m is also the file of --masks":          {"prune", "-o", "a.onnx", "--calib-cache", "m", "--masks", "m"},
		"--masks model.spx is also the file of -o":             {"compile", "--masks", "model.spx"},
		"--masks: create none/m.npz: no such file":             {"compile", "-o", "a.spx", "--masks", "none/m.npz"},
		"--masks: create images.npy/m.npz":                     {"compile", "-o", "a.spx", "--masks", "images.npy/m.npz"},
		"-o: create none/a.onnx: no such file":                 {"prune", "-o", "none/a.onnx"},
		"--calib-cache: create none/c: no such file":           {"prune", "-o", "a.onnx", "--calib-cache", "none/c"},
		"--masks m.npz needs -o: without, --stop-after prints": {"compile", "--stop-after", "prune", "--masks", "m.npz"},
		"a.onnx: --masks m.npz: no weight is prunable":         {"prune", "-o", "a.onnx", "--masks", "m.npz", "--keep", "*"},
		"--masks: sub is a folder, want a file":                {"prune", "-o", "a.onnx", "--masks", "sub"},
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

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
