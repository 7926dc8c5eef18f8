package onnx_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"spc/backend/ref"
	"spc/internal/claims"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

func TestImportBuildsTheGraph(t *testing.T) {
	yes := &onnxpb.GraphProto{
		Name:        "yes",
		Initializer: []*onnxpb.TensorProto{floats("w", 3, 4)},
		Node:        []*onnxpb.NodeProto{node("", "Add", "h w", "r")},
		Output:      values(value("r", tensor.F32, 2)),
	}
	no := &onnxpb.GraphProto{
		Name:   "no",
		Node:   []*onnxpb.NodeProto{node("", "Constant", "", "r", attr("value", floats("", 5, 6)))},
		Output: values(value("r", tensor.F32, 2)),
	}
	for _, test := range []struct {
		name  string
		model *onnxpb.ModelProto
		opts  onnx.Options
		want  string
	}{
		{"a chain", chain(node("a", "Relu", "x", "h"), node("b", "Add", "h h", "y")), onnx.Options{}, `
graph "g"(%x: f32[2]) {
  %h: f32[2] = Relu "a" (%x)
  %y: f32[2] = Add "b" (%h, %h)
  return %y
}`},
		{"nodes out of order, of one name", chain(node("n", "Add", "h h", "y"), node("n", "Relu", "x", "h")), onnx.Options{}, `
graph "g"(%x: f32[2]) {
  %h: f32[2] = Relu "n" (%x)
  %y: f32[2] = Add "n_1" (%h, %h)
  return %y
}`},
		{"an initializer that is also an input", edit(chain(node("a", "Add", "x w", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = append(values(value("w", tensor.F32, 2)), m.Graph.Input...)
			m.Graph.Initializer = []*onnxpb.TensorProto{floats("w", 1, 2)}
		}), onnx.Options{}, `
graph "g"(%x: f32[2]) {
  %w: f32[2] = const {1.0, 2.0}
  %y: f32[2] = Add "a" (%x, %w)
  return %y
}`},
		{"subgraphs with constants and captures", edit(chain(
			node("if", "If", "c", "y", attr("then_branch", yes), attr("else_branch", no)), // reads h, which comes later
			node("a", "Relu", "x", "h")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = append(m.Graph.Input, value("c", tensor.Bool))
		}), onnx.Options{}, `
graph "g"(%x: f32[2], %c: bool[]) {
  %h: f32[2] = Relu "a" (%x)
  %y: f32[2] = If "if" (%c) {then_branch = graph "yes"() {
    %w: f32[2] = const {3.0, 4.0}
    %r: f32[2] = Add "Add_1" (%h, %w)
    return %r
  }, else_branch = graph "no"() {
    %r_1: f32[2] = const {5.0, 6.0}
    return %r_1
  }}
  return %y
}`},
		{"unknown dimensions", edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, "batch", nil, 0, -1, "", "?", "3", 7))
			m.Graph.Output = values(value("y", tensor.F32))
		}), onnx.Options{}, `
graph "g"(%x: f32[batch,?1,0,?2,?3,?4,?5,7]) {
  %y: f32[batch,?1,0,?2,?3,?4,?5,7] = Relu "a" (%x)
  return %y
}`},
		{"no shape at all", edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input[0].Type.GetTensorType().Shape = nil
		}), onnx.Options{}, `
graph "g"(%x: f32[*]) {
  %y: f32[*] = Relu "a" (%x)
  return %y
}`},
		{"sizes given to symbols", edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, "n", "k", 5), value("z", tensor.F32, "n", nil))
			m.Graph.Output = values(value("y", tensor.F32), value("z", tensor.F32))
		}), onnx.Options{Shapes: map[string][]int{"x": {4, 3, 6}}}, `
graph "g"(%x: f32[4,3,6], %z: f32[4,?1]) {
  %y: f32[4,3,6] = Relu "a" (%x)
  return %y, %z
}`},
		{"a size given to a symbol by name", edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, "n", "k"))
		}), onnx.Options{Dims: map[string]int{"k": 9}}, `
graph "g"(%x: f32[n,9]) {
  %y: f32[n,9] = Relu "a" (%x)
  return %y
}`},
		{"symbols that would read as expressions", edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, "past + 1", "past_(1)", "n*m", "()", "a-b"))
			m.Graph.Output = values(value("y", tensor.F32))
		}), onnx.Options{Dims: map[string]int{"a-b": 2, "n_m": 3}}, `
graph "g"(%x: f32[past___1,past__1_,3,__,2]) {
  %y: f32[past___1,past__1_,3,__,2] = Relu "a" (%x)
  return %y
}`},
		{"sums of sizes", edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, "past + seq", "past+1", "(seq + past + 2 + past)", "past + gone", "past + k"),
				value("z", tensor.F32, "past", " seq", "k"))
			m.Graph.Output = values(value("y", tensor.F32), value("z", tensor.F32))
		}), onnx.Options{Dims: map[string]int{"k": 5}}, `
graph "g"(%x: f32[(past+seq),past_1,(2*past+seq+2),past___gone,(past+5)], %z: f32[past,seq,5]) {
  %y: f32[(past+seq),past_1,(2*past+seq+2),past___gone,(past+5)] = Relu "a" (%x)
  return %y, %z
}`},
		{"a sum with an integer where nothing else is open but a batch", edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, "batch", "past + 1"), value("z", tensor.F32, "batch", "past"))
			m.Graph.Output = values(value("y", tensor.F32), value("z", tensor.F32))
		}), onnx.Options{}, `
graph "g"(%x: f32[batch,(past+1)], %z: f32[batch,past]) {
  %y: f32[batch,(past+1)] = Relu "a" (%x)
  return %y, %z
}`},
		{"a sum that is given a size", edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, "past + seq", "past + 1"), value("z", tensor.F32, "past", "seq"))
			m.Graph.Output = values(value("y", tensor.F32), value("z", tensor.F32))
		}), onnx.Options{Dims: map[string]int{"past + seq": 5, "past": 3}}, `
graph "g"(%x: f32[5,past___1], %z: f32[3,seq]) {
  %y: f32[5,past___1] = Relu "a" (%x)
  return %y, %z
}`},
		{"every form of constant", edit(chain(
			node("", "Constant", "", "a", attr("value_float", float32(1.5))),
			node("", "Constant", "", "b", attr("value_int", 7)),
			node("", "Constant", "", "c", attr("value_string", "s")),
			node("", "Constant", "", "d", attr("value_floats", []float32{1, 2})),
			node("", "Constant", "", "e", attr("value_ints", []int64{3})),
			node("", "Constant", "", "f", attr("value_strings", []string{"u", "v"})),
			node("", "Constant", "", "g", attr("sparse_value", &onnxpb.SparseTensorProto{
				Dims: []int64{2, 2}, Values: floats("", 5, 6), Indices: tensor.From([]int64{0, 1, 1, 0}, 2, 2).ToProto("")})),
			node("", "Constant", "", "empty", attr("value_ints", []int64{})),
		), func(m *onnxpb.ModelProto) {
			m.Graph.Input = nil
			m.Graph.Output = nil
			for _, name := range split("a b c d e f g empty h") {
				m.Graph.Output = append(m.Graph.Output, &onnxpb.ValueInfoProto{Name: name})
			}
			m.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{{
				Dims: []int64{4}, Values: floats("h", 8, 9), Indices: tensor.From([]int64{1, 3}, 2).ToProto("")}}
		}), onnx.Options{}, `
graph "g"() {
  %a: f32[] = const {1.5}
  %b: i64[] = const {7}
  %c: string[] = const {"s"}
  %d: f32[2] = const {1.0, 2.0}
  %e: i64[1] = const {3}
  %f: string[2] = const {"u", "v"}
  %g: f32[2,2] = const {0.0, 5.0, 6.0, 0.0}
  %empty: i64[0] = const {}
  %h: f32[4] = const {0.0, 8.0, 0.0, 9.0}
  return %a, %b, %c, %d, %e, %f, %g, %empty, %h
}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, _ := load(t, test.model, test.opts)
			if d := cmp.Diff(strings.TrimSpace(test.want), strings.TrimSpace(g.String())); d != "" {
				t.Error(d)
			}
		})
	}
}

// functions returns a model whose node calls a function that holds others.
func functions() *onnxpb.ModelProto {
	m := chain(node("call", "Twice", "x", "y", attr("by", float32(3))))
	m.Graph.Node[0].Domain = "own"
	m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: "own", Version: 1})
	inner := node("inner", "Plus", "a", "b", refer("c", "by", onnxpb.AttributeProto_FLOAT))
	again := node("again", "Plus", "b", "out")
	inner.Domain, again.Domain = "own", "own"
	again.Overload = "other"
	opsets := []*onnxpb.OperatorSetIdProto{{Version: 17}, {Domain: "own", Version: 1}}
	m.Functions = []*onnxpb.FunctionProto{
		{Domain: "own", Name: "Twice", Input: split("a missing"), Output: split("out"), Attribute: split("by"), OpsetImport: opsets,
			Node: []*onnxpb.NodeProto{inner, again}},
		{Domain: "own", Name: "Plus", Input: split("a"), Output: split("out"), OpsetImport: opsets,
			AttributeProto: []*onnxpb.AttributeProto{attr("c", float32(1))},
			Node: []*onnxpb.NodeProto{
				node("add", "Add", "a k", "out"),
				node("k", "Constant", "", "k", refer("value_float", "c", onnxpb.AttributeProto_FLOAT)),
			}},
		{Domain: "own", Name: "Plus", Overload: "other", Input: split("a"), Output: split("out"), OpsetImport: opsets,
			Node: []*onnxpb.NodeProto{node("", "Relu", "a", "out")}},
	}
	return m
}

func TestFunctionsAreExpanded(t *testing.T) {
	g, _ := load(t, functions(), onnx.Options{})
	want := `
graph "g"(%x: f32[2]) {
  %call/inner/k: f32[] = const {3.0}
  %call/b: f32[2] = Add "call/inner/add" (%x, %call/inner/k)
  %y: f32[2] = Relu "Relu_1" (%call/b)
  return %y
}`
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(g.String())); d != "" {
		t.Error(d)
	}
}

func TestErrorsInFunctionsNameThePathOnce(t *testing.T) {
	m := edit(functions(), func(m *onnxpb.ModelProto) { m.Functions[1].Node[0].Input = split("a gone") })
	_, _, err := onnx.ImportBytes(encode(t, m), "", onnx.Options{})
	if want := `call/inner/add (Add): input "gone" is not defined`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("%v does not wrap ErrInvalid", err)
	}
}

func TestFunctionsAreCalledTwiceWithTheirConstants(t *testing.T) {
	branch := func(name string) *onnxpb.GraphProto {
		return &onnxpb.GraphProto{Name: name, Initializer: []*onnxpb.TensorProto{floats("w", 1, 2)}, Output: values(value("r", tensor.F32)),
			Node: []*onnxpb.NodeProto{node("n", "Add", "a w", "r")}}
	}
	m := chain(
		&onnxpb.NodeProto{Name: "one", Domain: "own", OpType: "F", Input: split("x c"), Output: split("h")},
		&onnxpb.NodeProto{Name: "two", Domain: "own", OpType: "F", Input: split("h c"), Output: split("y")})
	m.Graph.Input = append(m.Graph.Input, value("c", tensor.Bool))
	m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: "own", Version: 1})
	m.Functions = []*onnxpb.FunctionProto{{Domain: "own", Name: "F", Input: split("a c"), Output: split("b"), OpsetImport: m.OpsetImport,
		Node: []*onnxpb.NodeProto{node("if", "If", "c", "b", attr("then_branch", branch("t")), attr("else_branch", branch("e")))}}}
	g, _ := load(t, m, onnx.Options{})
	out, err := ref.Run(context.Background(), g, []*tensor.Tensor{tensor.From([]float32{10, 20}, 2), tensor.Scalar(true)})
	if err != nil || !out[0].Equal(tensor.From([]float32{12, 24}, 2)) {
		t.Errorf("%v, %v", out, err)
	}
}

func TestInfoSaysWhatTheFileSays(t *testing.T) {
	m := edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
		m.ProducerName, m.ProducerVersion, m.Domain, m.ModelVersion, m.DocString = "p", "1.2", "d", 3, "doc"
		m.MetadataProps = []*onnxpb.StringStringEntryProto{{Key: "k", Value: "v"}}
		m.Graph.Initializer = []*onnxpb.TensorProto{floats("w", 1)}
		m.Graph.Input = append(m.Graph.Input, value("w", tensor.F32, 1), value("odd name", tensor.I64))
	})
	_, info := load(t, m, onnx.Options{})
	want := &onnx.Info{
		IRVersion: 8, Producer: "p", ProducerVersion: "1.2", Domain: "d", ModelVersion: 3, Doc: "doc",
		Opsets: []onnx.Opset{{"", 17}}, Inputs: []string{"x", "odd name"}, Outputs: []string{"y"},
		Metadata: []onnx.Property{{"k", "v"}},
	}
	if d := cmp.Diff(want, info, cmpopts.IgnoreUnexported(onnx.Info{})); d != "" {
		t.Error(d)
	}
}

func TestUnsupportedModelsAreToldEveryReason(t *testing.T) {
	sub := &onnxpb.GraphProto{Name: "s", Node: []*onnxpb.NodeProto{node("inner", "Nope", "x", "r")}, Output: values(value("r", tensor.F32))}
	m := edit(chain(
		node("odd", "Relu", "x", "q", &onnxpb.AttributeProto{Name: "t", Type: onnxpb.AttributeProto_GRAPHS}),
		node("after", "Add", "q x", "p"),
		node("one", "Nope", "x", "a"),
		node("", "Never", "a", "y"),
		node("if", "If", "c", "z", attr("then_branch", sub), attr("else_branch", sub)),
	), func(m *onnxpb.ModelProto) {
		m.Graph.Node[3].Domain = "other.domain"
		m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: "other.domain", Version: 2})
		m.Graph.Input = append(m.Graph.Input, &onnxpb.ValueInfoProto{Name: "seq", Type: &onnxpb.TypeProto{
			Value: &onnxpb.TypeProto_MapType{MapType: &onnxpb.TypeProto_Map{}}}})
	})
	_, _, err := onnx.ImportBytes(encode(t, m), "", onnx.Options{})
	var u *onnx.UnsupportedError
	if !errors.As(err, &u) || !errors.Is(err, ir.ErrUnsupported) {
		t.Fatalf("%v", err)
	}
	want := `2 unsupported operators: ai.onnx:Nope, other.domain:Never; 2 other reasons
  ai.onnx:Nope (opset 17) at 3 nodes: one, inner, inner
  other.domain:Never (opset 2) at 1 node: #3
  input seq is a map, want a tensor, a sequence or an optional
  odd (Relu): attribute t: a value of type GRAPHS`
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Error(d)
	}
}

func TestReasonsTakeOneLineEach(t *testing.T) {
	m := chain(node("b\nB", "Nope\nNope", "x", "a"), node("odd\nodd", "Relu", "x", "y", &onnxpb.AttributeProto{Name: "t", Type: onnxpb.AttributeProto_GRAPHS}))
	_, _, err := onnx.ImportBytes(encode(t, m), "", onnx.Options{})
	want := `1 unsupported operator: ai.onnx:Nope\nNope; 1 other reason
  ai.onnx:Nope\nNope (opset 17) at 1 node: b\nB
  odd\nodd (Relu): attribute t: a value of type GRAPHS`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestBadModelsAreRefused(t *testing.T) {
	relu := func() *onnxpb.ModelProto { return chain(node("a", "Relu", "x", "y")) }
	external := func(entries ...string) *onnxpb.ModelProto {
		return edit(chain(node("a", "Add", "x w", "y")), func(m *onnxpb.ModelProto) {
			w := &onnxpb.TensorProto{Name: "w", DataType: 1, Dims: []int64{2}, DataLocation: onnxpb.TensorProto_EXTERNAL}
			for i := 0; i < len(entries); i += 2 {
				w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: entries[i], Value: entries[i+1]})
			}
			m.Graph.Initializer = []*onnxpb.TensorProto{w}
		})
	}
	weight := func(w *onnxpb.TensorProto) *onnxpb.ModelProto {
		return edit(chain(node("a", "Add", "x w", "y")), func(m *onnxpb.ModelProto) {
			w.Name = "w"
			m.Graph.Initializer = []*onnxpb.TensorProto{w}
		})
	}
	sparse := func(w *onnxpb.SparseTensorProto) *onnxpb.ModelProto {
		return edit(chain(node("a", "Add", "x w", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{w}
		})
	}
	nested := func(depth int) *onnxpb.ModelProto {
		g := &onnxpb.GraphProto{Name: "leaf", Output: values(value("x", tensor.F32))}
		for range depth {
			g = &onnxpb.GraphProto{Name: "n", Output: values(value("r", tensor.F32)), Node: []*onnxpb.NodeProto{
				node("if", "If", "c", "r", attr("then_branch", g), attr("else_branch", &onnxpb.GraphProto{Output: values(value("x", tensor.F32))}))}}
		}
		m := chain(node("top", "If", "c", "y", attr("then_branch", g), attr("else_branch", &onnxpb.GraphProto{Output: values(value("x", tensor.F32))})))
		m.Graph.Input = append(m.Graph.Input, value("c", tensor.Bool))
		return m
	}
	dir := t.TempDir()
	folder := filepath.Join(dir, "model")
	outside := filepath.Join(dir, "secret")
	if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(outside, make([]byte, 64), 0o644),
		os.WriteFile(filepath.Join(folder, "short"), make([]byte, 6), 0o644),
		os.Mkdir(filepath.Join(folder, "sub"), 0o755),
		os.Symlink(outside, filepath.Join(folder, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		model *onnxpb.ModelProto
		kind  error
		want  string // in the message
	}{
		{"no IR version", edit(relu(), func(m *onnxpb.ModelProto) { m.IrVersion = 0 }), ir.ErrCorrupt, "no IR version"},
		{"a future IR version", edit(relu(), func(m *onnxpb.ModelProto) { m.IrVersion = 99 }), ir.ErrVersion, "IR version 99, the highest supported is 13"},
		{"no graph", edit(relu(), func(m *onnxpb.ModelProto) { m.Graph = nil }), ir.ErrInvalid, "no graph"},
		{"no output at all", edit(relu(), func(m *onnxpb.ModelProto) { m.Graph.Output = nil }), ir.ErrInvalid, "no output"},
		{"a future opset", edit(relu(), func(m *onnxpb.ModelProto) { m.OpsetImport[0].Version = 29 }), ir.ErrVersion, "opset 29 of the default domain, the highest supported is 28"},
		{"opset 0", edit(relu(), func(m *onnxpb.ModelProto) { m.OpsetImport[0].Version = 0 }), ir.ErrInvalid, "opset 0"},
		{"no opset", edit(relu(), func(m *onnxpb.ModelProto) { m.OpsetImport = nil }), ir.ErrInvalid, "imports no opset of the default domain"},
		{"an undefined input", chain(node("a", "Add", "x nothing", "y")), ir.ErrInvalid, `a (Add): input "nothing" is not defined`},
		{"an undefined output", chain(node("a", "Relu", "x", "z")), ir.ErrInvalid, `output "y" is not defined`},
		{"two definitions", chain(node("a", "Relu", "x", "y"), node("b", "Relu", "x", "y")), ir.ErrInvalid, "a (Relu) and b (Relu) both define y"},
		{"an input's name again", chain(node("a", "Relu", "x", "x")), ir.ErrInvalid, "output x: the name is taken"},
		{"two inputs of a name", edit(relu(), func(m *onnxpb.ModelProto) { m.Graph.Input = append(m.Graph.Input, m.Graph.Input[0]) }), ir.ErrInvalid, "input x: the name is taken"},
		{"an input without a name", edit(relu(), func(m *onnxpb.ModelProto) { m.Graph.Input[0].Name = "" }), ir.ErrInvalid, "input has no name"},
		{"a cycle", chain(node("a", "Add", "x c", "b"), node("b", "Relu", "b", "c"), node("c", "Relu", "c", "y")), ir.ErrInvalid, "cycle: b (Relu) -> a (Add) -> b (Relu)"},
		{"a node on itself", chain(node("a", "Add", "x y", "y")), ir.ErrInvalid, "cycle: a (Add) -> a (Add)"},
		{"a node without operator", chain(node("a", "", "x", "y")), ir.ErrUnsupported, ""},
		{"an unknown attribute", chain(node("a", "Relu", "x", "y", attr("slope", 1))), ir.ErrInvalid, "a (Relu): unknown attribute slope in opset 17"},
		{"an attribute twice", chain(node("a", "Relu", "x", "y", attr("s", 1), attr("s", 1))), ir.ErrInvalid, "attribute s is given twice"},
		{"too many inputs", chain(node("a", "Relu", "x x", "y")), ir.ErrInvalid, "a (Relu): 2 inputs, want 1"},
		{"no output", chain(node("a", "Relu", "x", ""), node("b", "Relu", "x", "y")), ir.ErrInvalid, "a (Relu): 0 outputs, want 1"},
		{"shapes that do not broadcast", edit(chain(node("a", "Add", "x z", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = append(m.Graph.Input, value("z", tensor.F32, 3))
		}), ir.ErrInvalid, "a (Add): "},
		{"a wrong type declared", edit(relu(), func(m *onnxpb.ModelProto) { m.Graph.Output[0].Type.GetTensorType().ElemType = 7 }), ir.ErrInvalid, "output y is declared i64, but f32[2] is inferred"},
		{"an input without element type", edit(relu(), func(m *onnxpb.ModelProto) { m.Graph.Input[0].Type = nil }), ir.ErrInvalid, "input x has no element type"},
		{"an unknown element type", edit(relu(), func(m *onnxpb.ModelProto) { m.Graph.Input[0].Type.GetTensorType().ElemType = 257 }), ir.ErrInvalid, "unknown data type code 257"},
		{"a dimension of 2^62", edit(relu(), func(m *onnxpb.ModelProto) { m.Graph.Input = values(value("x", tensor.F32, 1<<62)) }), ir.ErrInvalid, "input x is declared f32[4611686018427387904]"},
		{"dimensions whose product overflows", edit(relu(), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, 1<<31, "n", 1<<31, 1<<31))
		}), ir.ErrInvalid, "more than memory holds"},
		{"weights of 2^62", weight(&onnxpb.TensorProto{DataType: 1, Dims: []int64{1 << 62}, RawData: make([]byte, 8)}), ir.ErrInvalid, "initializer w: shape [4611686018427387904] has too many elements"},
		{"weights of a negative dimension", weight(&onnxpb.TensorProto{DataType: 1, Dims: []int64{-2}}), ir.ErrInvalid, "initializer w: negative dimension"},
		{"weights of the wrong size", weight(&onnxpb.TensorProto{DataType: 1, Dims: []int64{2}, RawData: make([]byte, 7)}), ir.ErrInvalid, "initializer w: 7 bytes of elements, want 8 for f32[2]"},
		{"weights without elements", weight(&onnxpb.TensorProto{DataType: 1, Dims: []int64{1 << 40}}), ir.ErrInvalid, "initializer w: 0 elements in float_data, want 1099511627776 for f32[1099511627776]"},
		{"weights of an unknown type", weight(&onnxpb.TensorProto{DataType: 77, Dims: []int64{2}}), ir.ErrInvalid, "initializer w: unknown data type code 77"},
		{"a sparse index out of range", sparse(&onnxpb.SparseTensorProto{Dims: []int64{2}, Values: floats("w", 1), Indices: tensor.Ints(2).ToProto("")}), ir.ErrInvalid, "sparse initializer w: index 2 is out of range for shape [2]"},
		{"a sparse bomb", sparse(&onnxpb.SparseTensorProto{Dims: []int64{1 << 40}, Values: floats("w", 1), Indices: tensor.Ints(2).ToProto("")}), ir.ErrInvalid, "too large for 1 values"},
		{"external data that is missing", external("location", "none"), ir.ErrInvalid, `initializer w: external data "none": the file is missing from`},
		{"external data at an absolute path", external("location", outside), ir.ErrInvalid, "want a file inside the model's folder"},
		{"external data above the folder", external("location", "../secret"), ir.ErrInvalid, "want a file inside the model's folder"},
		{"external data above, in disguise", external("location", "sub/../../secret"), ir.ErrInvalid, "want a file inside the model's folder"},
		{"external data behind a link", external("location", "link"), ir.ErrInvalid, "want a file inside the model's folder"},
		{"external data that is a folder", external("location", "sub"), ir.ErrInvalid, "want a regular file"},
		{"external data without a place", external(), ir.ErrInvalid, "no location"},
		{"external data of another length", external("location", "short", "length", "4"), ir.ErrInvalid, `length "4", want 8`},
		{"external data that is too short", external("location", "short"), ir.ErrCorrupt, "bytes 0 to 8 wanted, but it has 6"},
		{"external data past the end", external("location", "short", "offset", "9223372036854775807"), ir.ErrCorrupt, "but it has 6"},
		{"a negative offset", external("location", "short", "offset", "-1"), ir.ErrInvalid, `offset "-1"`},
		{"graphs nested deep", nested(100), ir.ErrInvalid, "nest"},
		{"graphs nested very deep", nested(5000), ir.ErrInvalid, "nest"},
		{"a function that calls itself", edit(functions(), func(m *onnxpb.ModelProto) {
			m.Functions[1].Node = append(m.Functions[1].Node, &onnxpb.NodeProto{Name: "loop", Domain: "own", OpType: "Twice", Input: split("a"), Output: split("q")})
		}), ir.ErrInvalid, "calls itself"},
		{"a function of no opset", edit(functions(), func(m *onnxpb.ModelProto) { m.Functions[1].OpsetImport = nil }), ir.ErrInvalid, "no opset"},
		{"a function called with too much", edit(functions(), func(m *onnxpb.ModelProto) { m.Graph.Node[0].Input = split("x x x") }), ir.ErrInvalid, "call (own:Twice): 3 inputs"},
		{"a function without that attribute", edit(functions(), func(m *onnxpb.ModelProto) { m.Graph.Node[0].Attribute[0].Name = "bye" }), ir.ErrInvalid, "no attribute bye"},
		{"two functions of a name", edit(functions(), func(m *onnxpb.ModelProto) { m.Functions[2].Overload = "" }), ir.ErrInvalid, "function own:Plus is defined twice"},
		{"functions that double without end", doubling(40), ir.ErrInvalid, "expand to more than"},
		{"functions that repeat long names", edit(doubling(14), func(m *onnxpb.ModelProto) {
			m.Functions[13].Node[0].Name = strings.Repeat("long", 1<<16)
		}), ir.ErrInvalid, "expand to more than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(folder, "model.onnx")
			if err := os.WriteFile(path, encode(t, test.model), 0o644); err != nil {
				t.Fatal(err)
			}
			_, _, err := onnx.Import(path, onnx.Options{})
			if err == nil {
				t.Fatal("imported")
			}
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v\nwant %s, wrapping %v", err, test.want, test.kind)
			}
		})
	}
}

// doubling returns a model of functions each of which calls the next one twice.
func doubling(n int) *onnxpb.ModelProto {
	m := chain(&onnxpb.NodeProto{Name: "top", Domain: "own", OpType: "F0", Input: split("x"), Output: split("y")})
	m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: "own", Version: 1})
	name := func(i int) string { return "F" + string(rune('0'+i)) }
	for i := range n {
		f := &onnxpb.FunctionProto{Domain: "own", Name: name(i), Input: split("a"), Output: split("b"), OpsetImport: m.OpsetImport}
		if i < n-1 {
			f.Node = []*onnxpb.NodeProto{
				{Domain: "own", OpType: name(i + 1), Input: split("a"), Output: split("h")},
				{Domain: "own", OpType: name(i + 1), Input: split("h"), Output: split("b")},
			}
		} else {
			f.Node = []*onnxpb.NodeProto{node("", "Relu", "a", "b")}
		}
		m.Functions = append(m.Functions, f)
	}
	return m
}

func TestOptionsThatDoNotFitAreRefused(t *testing.T) {
	m := edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
		m.Graph.Input = values(value("x", tensor.F32, "n", 3), value("z", tensor.F32, "n"))
	})
	for _, test := range []struct {
		opts onnx.Options
		want string
	}{
		{onnx.Options{Shapes: map[string][]int{"w": {1}}}, `"w", want one of the inputs: x, z`},
		{onnx.Options{Shapes: map[string][]int{"x": {1}}}, "Shapes: [1] for input x, want 2 dimensions"},
		{onnx.Options{Shapes: map[string][]int{"x": {-2, 3}}}, "negative dimension"},
		{onnx.Options{Shapes: map[string][]int{"x": {1 << 40, 1 << 40}}}, "too many elements"},
		{onnx.Options{Shapes: map[string][]int{"x": {2, 3}, "z": {4}}}, "want"},
		{onnx.Options{Shapes: map[string][]int{"x": {2, 3}}, Dims: map[string]int{"n": 4}}, "makes dimension n 2, want 4"},
		{onnx.Options{Dims: map[string]int{"m": 4}}, `"m", want one of: n`},
		{onnx.Options{Dims: map[string]int{"n": -4}}, "dimension n is given as -4"},
	} {
		_, _, err := onnx.ImportBytes(encode(t, m), "", test.opts)
		if err == nil || !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %s", test.opts, err, test.want)
		}
	}
	fixed := edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) { m.Graph.Input = values(value("x", tensor.F32, 2, 3)) })
	_, _, err := onnx.ImportBytes(encode(t, fixed), "", onnx.Options{Dims: map[string]int{"n": 4}})
	if want := `"n": the model has no symbolic dimensions; Shapes sizes its inputs: x`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// Shapes that contradict a sum of sizes are told from others.
func TestShapesThatContradictASum(t *testing.T) {
	m := edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
		m.Graph.Input = values(value("x", tensor.F32, "past + seq"), value("z", tensor.F32, "past", "seq"))
	})
	for n, want := range map[int]string{5: "", 6: "Shapes: [6] for input x has 6 along axis 0, want 5, as past + seq is declared"} {
		_, _, err := onnx.ImportBytes(encode(t, m), "", onnx.Options{Shapes: map[string][]int{"x": {n}, "z": {2, 3}}})
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: %v, want %s", n, err, want)
		}
	}
}

// A symbol that is given a size has it where a shape leaves its dimension open.
func TestGivenSymbolsAreNotLeftOpen(t *testing.T) {
	m := edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) { m.Graph.Input = values(value("x", tensor.F32, "n", 3)) })
	shapes := map[string][]int{"x": {onnx.AnySize, onnx.AnySize}}
	for want, dims := range map[string]map[string]int{"f32[4,?1]": {"n": 4}, "f32[n,?1]": nil} {
		g, _, err := onnx.ImportBytes(encode(t, m), "", onnx.Options{Shapes: shapes, Dims: dims})
		if err != nil || g.Inputs[0].Type.String() != want {
			t.Errorf("%v: %v, %v, want %s", dims, g.Inputs[0].Type, err, want)
		}
	}
	if shapes["x"][0] != onnx.AnySize {
		t.Error("the options were changed")
	}
}

func TestExternalDataIsReadFromTheModelsFolder(t *testing.T) {
	dir := t.TempDir()
	w := tensor.From([]float32{9, 1, 2, 9}, 4)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "sub", "data"), w.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	place := func(name, offset string) *onnxpb.TensorProto {
		return &onnxpb.TensorProto{Name: name, DataType: 1, Dims: []int64{2}, DataLocation: onnxpb.TensorProto_EXTERNAL,
			ExternalData: []*onnxpb.StringStringEntryProto{{Key: "location", Value: "sub/data"}, {Key: "offset", Value: offset}, {Key: "length", Value: "8"}}}
	}
	m := edit(chain(node("a", "Add", "x w", "h"), node("b", "Add", "h same", "y")), func(m *onnxpb.ModelProto) {
		m.Graph.Initializer = []*onnxpb.TensorProto{place("w", "4"), place("same", "4")}
	})
	path := filepath.Join(dir, "m.onnx")
	if err := os.WriteFile(path, encode(t, m), 0o644); err != nil {
		t.Fatal(err)
	}
	g, _, err := onnx.Import(path, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := ref.Run(context.Background(), g, []*tensor.Tensor{tensor.From([]float32{10, 20}, 2)})
	if err != nil || !out[0].Equal(tensor.From([]float32{12, 24}, 2)) {
		t.Errorf("%v, %v", out, err)
	}

	m.Graph.Initializer = []*onnxpb.TensorProto{place("w", "0"), place("same", "4"), place("third", "8")}
	if err := os.WriteFile(path, encode(t, m), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := onnx.Import(path, onnx.Options{}); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("overlapping tensors: %v", err)
	}
	if _, _, err := onnx.ImportBytes(encode(t, m), "", onnx.Options{}); err == nil || !strings.Contains(err.Error(), "not in a folder") {
		t.Errorf("external data without a folder: %v", err)
	}
}

// External data is nobody's output, be it that of a function which nobody calls or of a
// part for training. What is not there does not matter.
func TestDataThatIsNotReadIsNotReplaced(t *testing.T) {
	constant := func(file string) *onnxpb.NodeProto {
		w := floats("")
		w.DataLocation, w.ExternalData = onnxpb.TensorProto_EXTERNAL, []*onnxpb.StringStringEntryProto{{Key: "location", Value: file}}
		return node("", "Constant", "", "unread", attr("value", w))
	}
	inner := &onnxpb.GraphProto{Name: "inner", Node: []*onnxpb.NodeProto{constant("branch.bin")}}
	m := edit(chain(node("a", "Relu", "x", "y")), func(m *onnxpb.ModelProto) {
		m.Functions = []*onnxpb.FunctionProto{{Name: "Never", Domain: "own", OpsetImport: m.OpsetImport, Node: []*onnxpb.NodeProto{
			constant("function.bin"), node("", "If", "c", "z", attr("then_branch", inner)), constant("missing.bin")}}}
		m.TrainingInfo = []*onnxpb.TrainingInfoProto{{Algorithm: &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{constant("training.bin")}}}}
	})
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	for file, content := range map[string][]byte{"m.onnx": encode(t, m), "branch.bin": {1}, "function.bin": {1}, "training.bin": {1}, "other.bin": {1}} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"branch.bin", "function.bin", "training.bin", "other.bin", "missing.bin"} {
		end := claims.Begin()
		if err := claims.Write("-o", filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
		_, _, err := onnx.Import(path, onnx.Options{})
		end()
		if spared := file != "other.bin" && file != "missing.bin"; spared != (err != nil) || spared && !strings.Contains(err.Error(), file+" would replace it") {
			t.Errorf("-o %s: %v", file, err)
		}
	}
}

func TestDamagedFilesAreRefused(t *testing.T) {
	whole := encode(t, functions())
	for n := range whole {
		g, _, err := onnx.ImportBytes(whole[:n], "", onnx.Options{})
		if err == nil {
			// A cut between fields of the model may leave a whole one.
			if err := g.Verify(); err != nil {
				t.Errorf("%d bytes of %d: %v", n, len(whole), err)
			}
		}
	}
	for i := range 8 * len(whole) {
		b := slices.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		if g, _, err := onnx.ImportBytes(b, "", onnx.Options{}); err == nil {
			if err := g.Verify(); err != nil {
				t.Errorf("bit %d flipped: %v", i, err)
			}
		}
	}
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "the file is empty, want an ONNX model"},
		{"text", []byte("this is no model"), "not an ONNX file, but plain text"},
		{"checkpoint", []byte("PK\x03\x04\x00\x00\x08\x08"), "not an ONNX file, but a zip archive, as PyTorch checkpoints"},
		{"another field", []byte{0xc2, 0x3e, 1, 0}, "not an ONNX file: it does not begin with a field of a model"},
		{"no version", []byte{0x3a, 0}, "no IR version"},
		{"the first bytes", whole[:1], "breaks off or is damaged at byte"},
		{"almost all", whole[:len(whole)-1], "breaks off or is damaged at byte"},
		{"half a node", whole[:len(whole)/2], "breaks off or is damaged at byte"},
	} {
		_, _, err := onnx.ImportBytes(test.data, "", onnx.Options{})
		if !errors.Is(err, ir.ErrCorrupt) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

func TestEmptyMessagesDoNotFillMemory(t *testing.T) {
	// Two bytes a node: the graph's field 1 of length 0.
	nodes := slices.Repeat([]byte{1<<3 | 2, 0}, 1<<20)
	m := append([]byte{1 << 3, 8, 7<<3 | 2}, varint(len(nodes))...)
	_, _, err := onnx.ImportBytes(append(m, nodes...), "", onnx.Options{})
	if !errors.Is(err, ir.ErrCorrupt) || !strings.Contains(err.Error(), "empty messages") {
		t.Error(err)
	}
}

func varint(n int) []byte {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func TestOldModelsWithoutOpsetOrAttributeTypes(t *testing.T) {
	m := edit(chain(node("c", "Constant", "", "w", attr("value", floats("", 1, 2))), node("a", "Add", "x w", "y")), func(m *onnxpb.ModelProto) {
		m.IrVersion = 1
		m.OpsetImport = nil
		m.Graph.Node[0].Attribute[0].Type = onnxpb.AttributeProto_UNDEFINED
	})
	g, info := load(t, m, onnx.Options{})
	if len(g.Nodes) != 1 || info.Opsets[0].Version != 1 {
		t.Errorf("%+v in %v", info, g)
	}
}

func TestWeightsAreHeldOnce(t *testing.T) {
	n := 1 << 20
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(math.Sin(float64(i)))
	}
	m := edit(chain(node("a", "Add", "x w", "y")), func(m *onnxpb.ModelProto) {
		m.Graph.Input = values(value("x", tensor.F32, n))
		m.Graph.Initializer = []*onnxpb.TensorProto{tensor.From(w, n).ToProto("w")}
	})
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(path, encode(t, m), 0o644); err != nil {
		t.Fatal(err)
	}
	res := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, _, err := onnx.Import(path, onnx.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	if most := int64(4*n) * 11 / 10; res.AllocedBytesPerOp() > most {
		t.Errorf("%d bytes allocated for %d of weights, want at most %d", res.AllocedBytesPerOp(), 4*n, most)
	}
}

// Large initializers in external data are views where that is asked for, until they are kept.
func TestExternalDataIsMapped(t *testing.T) {
	const n = 1 << 19
	dir := t.TempDir()
	w := tensor.New(tensor.F32, n)
	for i := range w.F32s() {
		w.F32s()[i] = float32(i % 1000)
	}
	data := append(make([]byte, 4), w.Bytes()...)
	far := filepath.Join(dir, "data")
	place := func(name, offset string, size int64) *onnxpb.TensorProto {
		return &onnxpb.TensorProto{Name: name, DataType: 1, Dims: []int64{size}, DataLocation: onnxpb.TensorProto_EXTERNAL,
			ExternalData: []*onnxpb.StringStringEntryProto{{Key: "location", Value: "data"}, {Key: "offset", Value: offset}}}
	}
	m := edit(chain(node("a", "Add", "x large", "h"), node("b", "Add", "h same", "i"), node("c", "Add", "i small", "y")), func(m *onnxpb.ModelProto) {
		m.Graph.Initializer = []*onnxpb.TensorProto{place("large", "4", n), place("same", "4", n), place("small", "4", 1)}
		m.Graph.Input = values(value("x", tensor.F32, n))
		m.Graph.Output = values(value("y", tensor.F32, n))
	})
	path := filepath.Join(dir, "m.onnx")
	read := func(o onnx.Options) (*ir.Graph, *onnx.Info, map[string]*tensor.Tensor) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, encode(t, m), 0o644), os.WriteFile(far, data, 0o644)); err != nil {
			t.Fatal(err)
		}
		g, info, err := onnx.Import(path, o)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]*tensor.Tensor{}
		for _, v := range g.Constants() {
			of[v.Name] = v.Const
		}
		return g, info, of
	}
	gone := func(x *tensor.Tensor) error {
		return ir.Guard(func() error {
			_ = x.Clone()
			return nil
		})
	}
	for _, test := range []struct{ views, keep bool }{{false, false}, {true, false}, {true, true}} {
		g, info, of := read(onnx.Options{Views: test.views})
		for name, want := range map[string]*tensor.Tensor{"large": w, "same": w, "small": tensor.From(w.F32s()[:1], 1)} {
			if !of[name].Equal(want) {
				t.Errorf("%+v: %s differs", test, name)
			}
		}
		if test.keep {
			info.Keep(g.Constants())
		}
		if err := os.Truncate(far, 0); err != nil {
			t.Fatal(err)
		}
		err := gone(of["large"])
		if mapped := test.views && !test.keep && runtime.GOOS != "windows"; mapped != errors.Is(err, ir.ErrCorrupt) {
			t.Errorf("%+v: the large tensor gives %v of a file that is truncated", test, err)
		}
		if err := gone(of["small"]); err != nil {
			t.Errorf("%+v: the small tensor: %v", test, err)
		}
		if !of["large"].Overlaps(of["same"]) {
			t.Errorf("%+v: a copy of its own for each of two tensors in one place", test)
		}
		if err := info.Close(); err != nil {
			t.Error(err)
		}
	}
}
