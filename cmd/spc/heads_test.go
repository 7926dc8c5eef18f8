package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"spc/tests/archs"
)

// A transformer without some of its heads is the same program from the model that was pruned and from the one that spc prune wrote, and
// takes 8-bit integers.
func TestHeadsAreRemoved(t *testing.T) {
	workspace(t)
	at := slices.IndexFunc(archs.Tiny, func(a archs.Arch) bool { return a.Name == "vit" })
	writeModel(t, "vit.onnx", func() (*archs.Model, error) { return archs.Tiny[at].Build(1) })
	flags := []string{"vit.onnx", "--pattern", "head", "--sparsity", "0.25", "--allocate", "layer", "--calib", "photos", "--preprocess", "unit"}
	ok(t, append([]string{"prune", "-o", "pruned.onnx"}, flags...)...)
	ok(t, append([]string{"compile", "-o", "pruned.spx"}, flags...)...)
	ok(t, "verify", "pruned.spx", "pruned.onnx", "--tolerance", "1e-4", "--seeds", "1")
	ok(t, append([]string{"compile", "-o", "int8.spx", "--quantize", "int8"}, flags...)...)
	ok(t, "prune", "pruned.onnx", "-o", "again.onnx", "--pattern", "channel", "--sparsity", "0.5")
	var sizes []int64
	for _, name := range []string{"vit.onnx", "pruned.onnx", "again.onnx"} {
		s, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, s.Size())
	}
	if sizes[0] < sizes[1]+4*32*8*2*4 || sizes[1] <= sizes[2] {
		t.Errorf("files of %d bytes, want each smaller than the one before, the second by a head of each layer", sizes)
	}
	out := ok(t, "inspect", "int8.spx")
	if strings.Count(out, " 72 x 32 ") != 2 || strings.Count(out, " 32 x 24 ") != 2 || !strings.Contains(out, " i8 ") {
		t.Errorf("no heads are gone, or no integers, in\n%s", out)
	}
	if r := spcRun("prune", "model.onnx", "-o", "none.onnx", "--pattern", "head", "--sparsity", "0.5"); r.status == 0 || !strings.Contains(r.errors, "--pattern head: no head of a prunable weight can be removed") {
		t.Errorf("%+v, want an error that says that there are no heads", r)
	}
	if r := spcRun("prune", "vit.onnx", "-o", "none.onnx", "--sparsity", "0.5", "--layer", "*qkv*=0.5,head"); r.status == 0 || !strings.Contains(r.errors, "head is of all layers") {
		t.Errorf("%+v, want an error that says why a layer has no such pattern", r)
	}
}
