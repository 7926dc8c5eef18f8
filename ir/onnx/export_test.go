package onnx_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/onnx/onnxtest"
	"spc/ir/op"
)

// export writes g, checks that the file keeps to what onnxtest.Check wants, and reads it again, less the Identity
// nodes that only subgraphs of files need.
func export(t *testing.T, g *ir.Graph) *ir.Graph {
	t.Helper()
	var b bytes.Buffer
	if err := onnx.Export(&b, g, "test", "1"); err != nil {
		t.Fatal(err)
	}
	if err := onnxtest.Check(b.Bytes()); err != nil {
		t.Error(err)
	}
	back, _, err := onnx.ImportBytes(b.Bytes(), "", onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for sub := range back.All() {
		for _, n := range slices.Clone(sub.Nodes) {
			if out := n.Outputs[0]; sub.Owner != nil && n.Op.Kind() == "Identity" && strings.HasSuffix(out.Name, "/output") {
				sub.ReplaceUses(out, n.Inputs[0])
				sub.Remove(n)
			}
		}
	}
	return back
}

// Whatever passes did, a subgraph gives what it computes itself, each value once, and an output has its name.
func TestExportedGraphsAreOnesThatONNXTakes(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%c: bool[], %x: f32[2]) {
  %k: f32[2] = const {1, 2}
  %y: f32[2] = Relu "y" (%x)
  %a: f32[2], %b: f32[2] = If "if" (%c) {then_branch = graph "then"() {
    return %y, %k
  }, else_branch = graph "else"() {
    %n: f32[2] = Neg "n" (%y)
    return %n, %n
  }}
  %s: f32[2], %e2: f32[2], %m2: f32[2,2], %m3: f32[2,2] = Scan "scan" (%a, %x) {num_scan_inputs = 1, body = graph "body"(%i: f32[2], %e: f32[]) {
    %m: f32[2] = Add "m" (%i, %e)
    return %m, %e, %m, %m
  }}
  return %y as "b", %s as "a", %k, %b as "z", %m2, %m3, %e2, %x
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	back := export(t, g)
	for i, want := range []string{"b", "a", "k", "z", "m2", "m3", "e2", "x"} {
		if got := back.OutputName(i); got != want {
			t.Errorf("output %d is %s, want %s", i, got, want)
		}
	}
}

func TestExportedGraphsComeBack(t *testing.T) {
	for i, m := range seeds() {
		g, _, err := onnx.ImportBytes(encode(t, m), "", onnx.Options{})
		if err != nil {
			continue // some seeds are wrong on purpose
		}
		if diff := cmp.Diff(ir.Print(g), ir.Print(export(t, g))); diff != "" {
			t.Errorf("seed %d: (-before +after)\n%s", i, diff)
		}
	}
}

func TestExportedModelsComeBack(t *testing.T) {
	dir := os.Getenv("SPC_SHARED")
	if dir == "" {
		dir = "../../../shared"
	}
	files, err := filepath.Glob(filepath.Join(dir, "models", "*", "*.onnx"))
	if err != nil || len(files) == 0 {
		t.Skip("no models: set SPC_SHARED")
	}
	for _, f := range files {
		t.Run(filepath.Base(filepath.Dir(f)), func(t *testing.T) {
			g, _, err := onnx.Import(f, onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := onnx.Export(&b, g, "test", "1"); errors.Is(err, ir.ErrUnsupported) {
				t.Skip(err)
			}
			back := export(t, g)
			for sub := range g.All() {
				for _, n := range sub.Nodes {
					if o, ok := n.Op.(*op.Softmax); ok && o.Flatten && o.Axis == n.Inputs[0].Type.Rank()-1 {
						o.Flatten = false // which changes nothing along the last axis
					}
				}
			}
			if diff := cmp.Diff(ir.Print(g), ir.Print(back)); diff != "" {
				t.Errorf("(-before +after)\n%.2000s", diff)
			}
		})
	}
}

// Others check what this importer forgives: attributes that are required though zero,
// and how many inputs a node has.
func TestExportKeepsToTheOperatorsOfONNX(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1, 2, 3, 4}
  %b: f32[2] = const {5, 6}
  %"y/product": f32[2,2] = Relu "r" (%x)
  %y: f32[2,2] = MatMul "y" (%"y/product", %w, %b)
  %z: f32[4,2] = Concat "z" (%y, %y) {axis = 0}
  %n: f32[2,2] = GroupNormalization "n" (%x, %b, %b) {num_groups = 1}
  %k: string[1] = const {"k"}
  %m: bool[1] = RegexFullMatch "m" (%k)
  return %z, %n, %m
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := onnx.Export(&b, g, "test", "1"); err != nil {
		t.Fatal(err)
	}
	var m onnxpb.ModelProto
	if err := proto.Unmarshal(b.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range m.Graph.Node {
		s := n.OpType + " " + strings.Join(n.Input, ",") + " -> " + strings.Join(n.Output, ",")
		for _, a := range n.Attribute {
			s += " " + a.Name
		}
		got = append(got, s)
	}
	want := []string{
		"Relu x -> y/product", "MatMul y/product,w -> y/product_", "Add y/product_,b -> y", "Concat y,y -> z axis",
		"GroupNormalization x,b,b -> n num_groups", "RegexFullMatch k -> m pattern",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestExportRefusesWhatONNXLacks(t *testing.T) {
	for want, text := range map[string]string{
		"y (Conv): an epilogue has no form in ONNX": `graph "g"(%x: f32[1,1,2,2]) {
  %w: f32[1,1,1,1] = const {1}
  %y: f32[1,1,2,2] = Conv "y" (%x, %w) {spc_act = "Relu"}
  return %y
}`,
		"y (Softmax): attribute coerce_2d has no form in opset 13": `graph "g"(%x: f32[2,3,4]) {
  %y: f32[2,3,4] = Softmax "y" (%x) {axis = 1, coerce_2d = 1}
  return %y
}`,
		"y (Resize): attribute nearest_mode has no form in opset 19": `graph "g"(%x: f32[2,3], %s: f32[2]) {
  %y: f32[?1,?2] = Resize "y" (%x, _, %s) {nearest_mode = "simple"}
  return %y
}`,
		"y (Scan): attribute batched has no form in opset 13": `graph "g"(%x: f32[1,2], %z: f32[1,3,2]) {
  %y: f32[1,2], %w: f32[1,3,2] = Scan "y" (%x, %z) {num_scan_inputs = 1, batched = 1, body = graph "body"(%i: f32[2], %e: f32[2]) {
    %m: f32[2] = Add "m" (%i, %e)
    return %m, %e
  }}
  return %y
}`,
	} {
		g, err := ir.Parse(text, op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		if err := onnx.Export(&bytes.Buffer{}, g, "test", "1"); !errors.Is(err, ir.ErrUnsupported) || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A model asks for no newer operator set than its nodes do: for their operators, inputs, attributes and types.
func TestExportAsksForTheLeastOperatorSet(t *testing.T) {
	for _, c := range []struct {
		node      string
		opset, ir int64
	}{
		{`Neg "y" (%x)`, 13, 7},
		{`Relu "y" (%x)`, 14, 7},
		{`AveragePool "y" (%q) {kernel_shape = [2, 2]}`, 19, 9},
		{`Gelu "y" (%x)`, 21, 10},
		{`QuantizeLinear "y" (%x, %s)`, 13, 7},
		{`Cast "y" (%x) {to = 7}`, 13, 7},
		{`Cast "y" (%x) {to = 3}`, 21, 10},
		{`SplitToSequence "y" (%x)`, 16, 8},
		{`Split "y" (%x) {num_outputs = 1}`, 18, 8},
		{`Attention "y" (%q, %q, %q)`, 23, 11},
		{`Attention "y" (%q, %q, %q, _, _, _, %n)`, 24, 12},
		{`Swish "y" (%x)`, 24, 12},
		{`SwiGLU "y" (%x, %x)`, 28, 13},
		{`Cast "y" (%x) {to = 23}`, 23, 11},
		{`Cast "y" (%x) {to = 25}`, 25, 13},
		{`Cast "y" (%x) {to = 17, round_mode = "down"}`, 24, 12},
		{`QuantizeLinear "y" (%x, %s) {precision = 1}`, 23, 11},
	} {
		g, err := ir.Parse(`graph "g"(%x: f32[2,4], %q: f32[1,2,3,4], %n: i64[1], %s: f32[]) {
  %y: f32[] = `+c.node+`
  return %y
}`, op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Infer(); err != nil {
			t.Fatalf("%s: %v", c.node, err)
		}
		var b bytes.Buffer
		if err := onnx.Export(&b, g, "test", "1"); err != nil {
			t.Fatal(err)
		}
		var m onnxpb.ModelProto
		if err := proto.Unmarshal(b.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if len(m.OpsetImport) != 1 || m.OpsetImport[0].Version != c.opset || m.IrVersion != c.ir {
			t.Errorf("%s asks for %v and IR version %d, want %d and %d", c.node, m.OpsetImport, m.IrVersion, c.opset, c.ir)
		}
	}
}

func TestExportWritesOldSoftmaxAlongTheLastAxisAsNew(t *testing.T) {
	for _, axis := range []string{"2", "-1"} {
		g, err := ir.Parse(`graph "g"(%x: f32[2,3,4]) {
  %y: f32[2,3,4] = Softmax "y" (%x) {axis = `+axis+`, coerce_2d = 1}
  return %y
}`, op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := onnx.Export(&b, g, "test", "1"); err != nil {
			t.Fatal(err)
		}
		back, _, err := onnx.ImportBytes(b.Bytes(), "", onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if o := back.Nodes[0].Op.(*op.Softmax); o.Flatten || o.Axis != 2 && o.Axis != -1 {
			t.Errorf("axis %s came back as %+v", axis, o)
		}
	}
}

func TestExportKeepsTheNamesOfOutputs(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%x: f32[2]) {
  %a: f32[2] = Relu "a" (%x)
  %b: f32[2] = Identity "b" (%a)
  return %a, %b, %x
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	n := g.Nodes[1]
	g.ReplaceUses(n.Outputs[0], g.Nodes[0].Outputs[0])
	g.Remove(n)
	back := export(t, g)
	for i, want := range []string{"a", "b", "x"} {
		if got := back.OutputName(i); got != want {
			t.Errorf("output %d is %s, want %s", i, got, want)
		}
	}
}

func TestFormsAreOfOperators(t *testing.T) {
	for _, kind := range onnx.Forms() {
		if d := op.Lookup(kind); d == nil || d.Since > 0 {
			t.Errorf("%s is no operator, or is newer than all that have old forms", kind)
		}
	}
}
