package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"spc"
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

// What inspect shows of a model without some heads adds up: the rows are what is left, the totals are of what there was.
func TestRemovedWeightsAddUp(t *testing.T) {
	workspace(t)
	at := slices.IndexFunc(archs.Tiny, func(a archs.Arch) bool { return a.Name == "vit" })
	writeModel(t, "vit.onnx", func() (*archs.Model, error) { return archs.Tiny[at].Build(1) })
	compiled := ok(t, "compile", "vit.onnx", "-o", "vit.spx", "--pattern", "head", "--sparsity", "0.25", "--prune", "magnitude")
	var r spc.Report
	if err := json.Unmarshal([]byte(ok(t, "inspect", "vit.spx", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	rows, gone := 0, 0
	for _, l := range r.Layers {
		rows += l.DenseBytes
	}
	for _, l := range r.Prune.Layers {
		if gone += l.Removed; l.Removed == 0 {
			continue
		}
		i := slices.IndexFunc(r.Layers, func(k spc.Layer) bool { return k.Weight == l.Weight })
		if want := fmt.Sprintf("%d of %d weights removed; ", l.Removed, l.Weights); strings.Count(r.Layers[i].Reason, want) != 1 {
			t.Errorf("%s says %q, want %q", l.Node, r.Layers[i].Reason, want)
		}
	}
	if gone == 0 || rows+4*gone != r.Totals.DenseBytes {
		t.Errorf("rows of %d bytes and %d weights that are gone, %d bytes in all", rows, gone, r.Totals.DenseBytes)
	}
	want := fmt.Sprintf("%d of the weights, with whole attention heads; ", gone)
	if !strings.Contains(compiled, "\nremoved   "+want+"they count as zeros\n") {
		t.Errorf("%s, want %q", compiled, want)
	}
	if shown := ok(t, "inspect", "vit.spx"); !strings.Contains(shown, "\nremoved "+want+"these totals count them as zeros and in dense bytes, the rows do not\n") {
		t.Errorf("%s, want %q", shown, want)
	}
}
