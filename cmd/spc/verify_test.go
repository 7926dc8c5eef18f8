package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc/ir/tensor"
	"spc/lower/spx"
	"spc/tests/graphtest"
)

// spoil writes a copy of a compiled model in which one element of the constant is another.
func spoil(t *testing.T, from, to, constant string) {
	t.Helper()
	f, err := spx.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, v := range f.Graph.Constants() {
		if v.Name != constant {
			continue
		}
		data := v.Const
		if v.Store != nil {
			data = v.Store.Parts[len(v.Store.Parts)-1].Data
		}
		changed := data.Clone()
		changed.F32s()[0] += 5
		if v.Store == nil {
			v.Const = changed
		} else {
			v.Store.Parts[len(v.Store.Parts)-1].Data = changed
		}
		w, err := os.Create(to)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := spx.Write(w, &spx.File{Graph: f.Graph, Meta: f.Meta, Explain: f.Explain}); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("%s has no constant %s", from, constant)
}

// faultVerdict is what verify --json prints of a fault.
type faultVerdict struct {
	Model, Reference string
	Tolerance        float64
	For              string `json:"tolerance_for"`
	Pass             bool
	Outputs          []struct {
		Name  string
		RelL2 *float64 `json:"rel_l2"`
	}
	Original []struct {
		RelL2 float64 `json:"rel_l2"`
	}
	Passed      *float64 `json:"passes_rel_l2"`
	Interpreted []struct {
		RelL2 float64 `json:"rel_l2"`
	}
	Fault *struct {
		Stage, Node, Op, Output, After string
		Constants                      []string
		RelL2                          float64 `json:"rel_l2"`
	}
	Reduced *struct {
		Model, Folder string
		Nodes         int
	}
}

// decodedFailure runs spc with --json among its flags and wants status 1, and no word on
// standard error.
func decodedFailure[T any](t *testing.T, args ...string) T {
	t.Helper()
	r := spcRun(args...)
	var v T
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.status != 1 || r.errors != "" {
		t.Fatalf("spc %s: status %d, errors %q, %v in %q", strings.Join(args, " "), r.status, r.errors, err, r.out)
	}
	return v
}

// TestVerifyNamesASpoiledLayer, of a model as it is and of a pruned one, and reduces to it.
func TestVerifyNamesASpoiledLayer(t *testing.T) {
	workspace(t)
	for _, test := range []struct {
		compile, verify []string
	}{
		{nil, nil},
		{[]string{"--sparsity", "0.5"}, []string{"--against", "original"}},
	} {
		ok(t, append([]string{"compile", "model.onnx", "-o", "good.spx"}, test.compile...)...)
		weights := weightNames(t, "good.spx")
		layer := weights[len(weights)-1] // which pruning keeps
		spoil(t, "good.spx", "spoiled.spx", layer.weight)
		args := append([]string{"verify", "spoiled.spx", "model.onnx", "--json", "--reduce", "repro.onnx"}, test.verify...)
		v := decodedFailure[faultVerdict](t, args...)
		if v.Pass || v.Fault == nil || v.Reduced == nil {
			t.Fatalf("%v: %+v", args, v)
		}
		if v.For != "f32" || v.Tolerance != 1e-4 || v.Model != "spoiled.spx, compiled" || v.Reference != "model.onnx as imported" {
			t.Errorf("%+v", v)
		}
		if test.compile == nil && (v.Fault.Node != layer.node || v.Fault.Stage != "weights" || !slices.Equal(v.Fault.Constants, []string{layer.weight})) {
			t.Errorf("fault %+v, want node %s, its weight %s", v.Fault, layer.node, layer.weight)
		}
		if test.compile != nil && (v.Fault.Node == layer.node || v.Fault.Stage != "weights") {
			t.Errorf("fault %+v, want the first node that was pruned", v.Fault)
		}
		if v.Reduced.Nodes != 1 || v.Reduced.Folder != "repro" {
			t.Errorf("reduced %+v", v.Reduced)
		}
		if r := spcRun("verify", "repro.onnx", "--expect", "repro"); r.status != 1 || !strings.Contains(r.out, "FAIL") {
			t.Errorf("what is reduced: %+v", r)
		}
		if r := spcRun(args[:3]...); test.compile == nil && (r.status != 1 || !strings.Contains(r.out, "node "+layer.node+" (") || !strings.Contains(r.out, "its constant "+layer.weight+" is another")) {
			t.Errorf("%+v", r)
		}
		fails(t, args, "--reduce: repro is not empty")
		if err := os.RemoveAll("repro"); err != nil {
			t.Fatal(err)
		}
		ok(t, "verify", "good.spx", "model.onnx")
	}
}

type layerName struct{ node, weight string }

// weightNames lists the layers of a compiled model.
func weightNames(t *testing.T, path string) []layerName {
	t.Helper()
	f, err := spx.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []layerName
	for _, u := range f.Graph.WeightUses() {
		out = append(out, layerName{u.Node.Name, u.Value.Name})
	}
	return out
}

func TestVerifySaysWhatTheReferenceIs(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "pruned.spx", "--sparsity", "0.6")
	ok(t, "compile", "model.onnx", "-o", "dense.spx")
	v := decoded[faultVerdict](t, "verify", "pruned.spx", "model.onnx")
	if !v.Pass || !strings.Contains(v.Reference, "with the weights of the pruned model") || v.Passed == nil || *v.Passed > 1e-5 || len(v.Original) != 1 || v.Original[0].RelL2 < 0.01 || *v.Outputs[0].RelL2 > 1e-5 {
		t.Errorf("%+v", v)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"dense.spx", "model.onnx"}, "reference: model.onnx as imported\n"},
		{[]string{"model.onnx", "dense.spx"}, "reference: model.onnx as imported\n"},
		{[]string{"model.onnx"}, "reference: model.onnx as imported\n"},
		{[]string{"model.onnx", "model.onnx"}, "reference: model.onnx as imported\n"},
		{[]string{"dense.spx", "model.onnx", "--against", "compiled"}, "reference: model.onnx, compiled\n"},
		{[]string{"pruned.spx", "pruned.spx"}, "reference: pruned.spx, compiled\n"},
		{[]string{"pruned.spx", "model.onnx", "--against", "original", "--tolerance", "10"}, "reference: model.onnx as imported\ntolerance: rel l2 10\n"},
	} {
		if out := ok(t, append([]string{"verify"}, test.args...)...); !strings.Contains(out, test.want) || !strings.Contains(out, "PASS") {
			t.Errorf("%v: %s\nwant %q", test.args, out, test.want)
		}
	}
	// Of two models of one kind, too, the node that differs is named.
	for _, args := range [][]string{{"pruned.spx", "dense.spx"}, {"pruned.spx", "model.onnx", "--against", "compiled"}} {
		if v := decodedFailure[faultVerdict](t, append([]string{"verify", "--json"}, args...)...); v.Pass || v.Fault == nil || v.Fault.Stage != "weights" {
			t.Errorf("%v: %+v", args, v)
		}
	}
}

// TestVerifyComparesWithStoredOutputs takes them from folders as test cases have them and
// as run writes them.
func TestVerifyComparesWithStoredOutputs(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "model.spx")
	ok(t, "run", "model.onnx", "-i", "cat.npy", "--interpret", "-o", "right")
	ok(t, "run", "model.spx", "-i", "cat.npy", "--interpret", "-o", "own")
	x, err := tensor.ReadNPY("cat.npy")
	if err != nil {
		t.Fatal(err)
	}
	y, err := tensor.ReadNPY("right/logits.npy")
	if err != nil {
		t.Fatal(err)
	}
	wrong := y.Clone()
	wrong.F32s()[3] += 1
	for dir, out := range map[string]*tensor.Tensor{"case": y, "wrong": wrong, "more": y} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]*tensor.Tensor{"input_0": x, "output_0": out} {
			if err := tensor.WriteTensorProto(filepath.Join(dir, name+".pb"), "", v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tensor.WriteTensorProto("more/output_1.pb", "", y); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"model.onnx", "--expect", "case"},
		{"model.spx", "--expect", "case"},
		{"model.spx", "-i", "cat.npy", "--expect", "right"},
		{"model.spx", "-i", "cat.npy", "--expect", "own"},
		{"model.spx", "-i", "input=cat.npy", "--expect", "logits=right/logits.npy"},
		{"model.spx", "-i", "cat.npy", "--expect", "logits=case/output_0.pb"},
	} {
		v := decoded[faultVerdict](t, append([]string{"verify"}, args...)...)
		if !v.Pass || len(v.Outputs) != 1 || *v.Outputs[0].RelL2 > 1e-5 {
			t.Errorf("%v: %+v", args, v)
		}
	}
	// Stored outputs that are wrong are so for the interpreter, too, and no node is.
	v := decodedFailure[faultVerdict](t, "verify", "model.onnx", "--expect", "wrong", "--json")
	if v.Pass || v.Fault != nil || len(v.Interpreted) != 1 || v.Interpreted[0].RelL2 < 0.01 {
		t.Errorf("%+v", v)
	}
	if r := spcRun("verify", "model.onnx", "--expect", "wrong", "--reduce", "repro.onnx"); r.status != 1 || !strings.HasPrefix(r.errors, "spc: warning: --reduce: nothing is written") {
		t.Errorf("status %d, errors %q", r.status, r.errors)
	}
	fails(t, []string{"verify", "model.onnx", "--expect", "more"}, "more/output_1.pb, but the model has 1 output: logits")
	fails(t, []string{"verify", "model.onnx", "--expect", "case", "--expect", "logits=right/logits.npy"}, "output logits is given twice")
	fails(t, []string{"verify", "model.onnx", "--expect", "case", "-i", "cat.npy", "--tolerance", "nan"}, "--tolerance")
}

func TestErrorsSayWhichInputsWereRandom(t *testing.T) {
	workspace(t)
	writeFile(t, "trips.onnx", graphtest.ONNX(t, `graph "g"(%x: f32[2], %trips: i64[]) {
  %go: bool[] = const {1}
  %l: f32[*] = Loop "l" (%trips, %go) {body = graph "b"(%i: i64[], %c: bool[]) {
    %d: bool[] = Identity "d" (%c)
    %s: f32[2] = Relu "s" (%x)
    return %d, %s
  }}
  %shape: i64[3] = const {1, 2, 2}
  %y: f32[1,2,2] = Reshape "r" (%l, %shape)
  return %y
}`))
	for _, command := range []string{"verify", "bench"} {
		fails(t, []string{command, "trips.onnx"}, "r (Reshape)", "; inputs x, trips are random", "give them by -i x=FILE")
	}
	fails(t, []string{"run", "trips.onnx", "-i", "x=random:1", "-i", "trips=random:1"}, "inputs x, trips are random")
	ok(t, "verify", "trips.onnx", "-i", "trips=random:1:2:3")
}
