package onnx_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// strays are fields of a number in each wire type but those named, with content that as another type would be an empty message, a message
// of a few bytes, or the numbers 0 and 1.
func strays(num protowire.Number, but ...protowire.Type) (out []byte) {
	is := func(t protowire.Type) bool { return !slices.Contains(but, t) }
	if is(protowire.VarintType) {
		for _, v := range []uint64{0, 1, 2} {
			out = protowire.AppendVarint(protowire.AppendTag(out, num, protowire.VarintType), v)
		}
	}
	if is(protowire.Fixed32Type) {
		out = protowire.AppendFixed32(protowire.AppendTag(out, num, protowire.Fixed32Type), 0x03000203)
	}
	if is(protowire.Fixed64Type) {
		out = protowire.AppendFixed64(protowire.AppendTag(out, num, protowire.Fixed64Type), 0x0100000000000007)
	}
	if is(protowire.BytesType) {
		out = protowire.AppendBytes(protowire.AppendTag(out, num, protowire.BytesType), []byte{1})
	}
	return out
}

// Fields of another wire type than their own count for nothing, as they do when the model is decoded: they neither shift tensors and
// inputs nor end a tensor's elements, and they stay.
func TestFieldsOfOtherTypesNameNoTensor(t *testing.T) {
	m := chain(node("a", "Add", "x w1", "h"), node("b", "Add", "h w2", "y"))
	marshal := func(p proto.Message) []byte {
		b, err := proto.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	field := func(b []byte, num protowire.Number, content ...[]byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), bytes.Join(content, nil))
	}
	nodes := m.Graph.Node
	m.Graph.Node = nil
	graph := strays(5, protowire.BytesType)
	graph = append(graph, strays(1, protowire.BytesType)...)
	for _, n := range nodes {
		graph = field(graph, 1, strays(1, protowire.BytesType), strays(5, protowire.BytesType), marshal(n))
	}
	// Raw data, and floats in a field of their own.
	const raw, floatData, location = 9, 4, 14
	graph = field(graph, 5, strays(location, protowire.VarintType), strays(raw, protowire.BytesType), marshal(floats("w1", 1, 2)))
	graph = field(graph, 5, strays(floatData, protowire.BytesType, protowire.Fixed32Type), marshal(&onnxpb.TensorProto{Name: "w2", DataType: 1, Dims: []int64{2}, FloatData: []float32{3, 4}}))
	graph = append(graph, marshal(m.Graph)...)
	m.Graph = nil
	const graphField = 7
	file := field(append(strays(graphField, protowire.BytesType), marshal(m)...), graphField, graph)

	g, info, err := onnx.ImportBytes(file, "", onnx.Options{Places: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*tensor.Tensor{"w1": tensor.From([]float32{1, 2}, 2), "w2": tensor.From([]float32{3, 4}, 2)}
	now := map[string]*tensor.Tensor{"w1": tensor.From([]float32{5, 6}, 2), "w2": tensor.From([]float32{7, 8}, 2)}
	for name := range want {
		e := onnx.Edits{Tensors: map[*tensor.Tensor]*tensor.Tensor{}}
		for _, v := range g.Constants() {
			if !v.Const.Equal(want[v.Name]) {
				t.Fatalf("%s is %v", v.Name, v.Const)
			}
			if v.Name == name {
				e.Tensors[v.Const] = now[name]
			}
		}
		p, err := onnx.NewPatch("", file, info, e)
		var out bytes.Buffer
		if err == nil {
			err = p.Write(&out)
		}
		if err != nil {
			t.Fatal(err)
		}
		if out.Len() != len(file) {
			t.Errorf("%d bytes with another %s, were %d", out.Len(), name, len(file))
		}
		after, _, err := onnx.ImportBytes(out.Bytes(), "", onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range after.Constants() {
			if expected := map[bool]*tensor.Tensor{true: now[v.Name], false: want[v.Name]}[v.Name == name]; !v.Const.Equal(expected) {
				t.Errorf("with another %s, %s is %v, want %v", name, v.Name, v.Const.F32s(), expected.F32s())
			}
		}
	}
}

// A model that is to have the name of its external data has these under another.
func TestPatchesHaveNoTwoFilesInOnePlace(t *testing.T) {
	for _, location := range []string{"w.onnx", "./w.onnx"} {
		dir, to := t.TempDir(), filepath.Join(t.TempDir(), "w.onnx")
		m := edit(chain(node("a", "Add", "x w", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Initializer = []*onnxpb.TensorProto{{Name: "w", DataType: 1, Dims: []int64{2}, DataLocation: onnxpb.TensorProto_EXTERNAL,
				ExternalData: []*onnxpb.StringStringEntryProto{{Key: "location", Value: location}}}}
		})
		path := filepath.Join(dir, "m.onnx")
		if err := errors.Join(os.WriteFile(path, encode(t, m), 0o666), os.WriteFile(filepath.Join(dir, "w.onnx"), tensor.From([]float32{1, 2}, 2).Bytes(), 0o666)); err != nil {
			t.Fatal(err)
		}
		g, info, err := onnx.Import(path, onnx.Options{Places: true})
		if err != nil {
			t.Fatal(err)
		}
		now := tensor.From([]float32{5, 6}, 2)
		p, err := onnx.NewPatch(path, nil, info, onnx.Edits{Tensors: map[*tensor.Tensor]*tensor.Tensor{g.Constants()[0].Const: now}})
		if err != nil {
			t.Fatal(err)
		}
		list, err := p.Files(to)
		if err != nil || len(list) != 2 || list[0].Path != filepath.Join(filepath.Dir(to), "w-w.onnx") || list[1].Path != to {
			t.Fatalf("%v, files %+v", err, list)
		}
		for _, f := range list {
			var b bytes.Buffer
			if err := errors.Join(f.Write(&b), os.WriteFile(f.Path, b.Bytes(), 0o666)); err != nil {
				t.Fatal(err)
			}
		}
		again, _, err := onnx.Import(to, onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c := again.Constants()[0].Const; !c.Equal(now) {
			t.Errorf("%s holds %v\n%s", to, c.F32s(), ir.Print(again))
		}
	}
}

// Nodes and constants that nothing reads any more go, with what the file declares of them, and so do those that read such; what nothing has read stays. A value takes
// the place of another where nodes of the main graph read it.
func TestWhatNothingReadsAnyMoreGoes(t *testing.T) {
	m := chain(node("a", "Add", "x w1", "h"), node("b", "Add", "h w2", "k"), node("d", "Neg", "k", "dead"), node("e", "Add", "x w3", "unread"),
		node("s", "Add", "h k", "sum"), node("r", "Relu", "sum", "y"))
	m.Graph.Initializer = []*onnxpb.TensorProto{floats("w1", 1, 2), floats("w2", 3, 4), floats("w3", 5, 6)}
	for _, name := range []string{"h", "k", "sum"} {
		m.Graph.ValueInfo = append(m.Graph.ValueInfo, &onnxpb.ValueInfoProto{Name: name})
	}
	want := proto.Clone(m).(*onnxpb.ModelProto)
	g := want.Graph
	g.Node = []*onnxpb.NodeProto{g.Node[0], g.Node[3], g.Node[5]}
	g.Node[2].Input[0] = "h"
	g.Initializer = []*onnxpb.TensorProto{g.Initializer[0], g.Initializer[2]}
	g.ValueInfo = g.ValueInfo[:1]
	file, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	_, info, err := onnx.ImportBytes(file, "", onnx.Options{Places: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := onnx.NewPatch("", file, info, onnx.Edits{Aliases: map[string]string{"sum": "h"}})
	var out bytes.Buffer
	if err == nil {
		err = p.Write(&out)
	}
	have := new(onnxpb.ModelProto)
	if err == nil {
		err = proto.Unmarshal(out.Bytes(), have)
	}
	if err != nil || !proto.Equal(have, want) {
		t.Errorf("%v: %v, want %v", err, have, want)
	}
	for from, to := range map[string]string{"sum": "nothing", "nothing": "h"} {
		if _, err := onnx.NewPatch("", file, info, onnx.Edits{Aliases: map[string]string{from: to}}); !errors.Is(err, ir.ErrUnsupported) {
			t.Errorf("%s in the place of %s: %v", to, from, err)
		}
	}
	// A constant may not have the name of another value, whether that is read or not.
	for _, name := range []string{"h", "x", g.Initializer[0].Name} {
		edits := onnx.Edits{Aliases: map[string]string{"sum": "h"}, Initializers: []onnx.Initializer{{Name: name, Tensor: tensor.Ints(1)}}}
		if _, err := onnx.NewPatch("", file, info, edits); !errors.Is(err, ir.ErrUnsupported) || !strings.Contains(err.Error(), "the file has another "+name) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// What the file declares of values that have other shapes is changed in the main graph, and left out in subgraphs.
func TestPatchesDeclareShapes(t *testing.T) {
	branch := func(kind string) *onnxpb.GraphProto {
		return &onnxpb.GraphProto{Name: kind, Node: []*onnxpb.NodeProto{node("in"+kind, kind, "h", "t"+kind), node("out"+kind, "Neg", "t"+kind, "u"+kind)},
			ValueInfo: values(value("t"+kind, tensor.F32, 2), value("other", tensor.F32, 2)), Output: values(value("u"+kind, tensor.F32, 2))}
	}
	m := chain(node("a", "Neg", "x", "h"), node("b", "If", "c", "y",
		&onnxpb.AttributeProto{Name: "then_branch", Type: onnxpb.AttributeProto_GRAPH, G: branch("Relu")},
		&onnxpb.AttributeProto{Name: "else_branch", Type: onnxpb.AttributeProto_GRAPH, G: branch("Tanh")}))
	m.Graph.Initializer = []*onnxpb.TensorProto{{Name: "c", DataType: 9, RawData: []byte{1}}}
	m.Graph.ValueInfo = values(value("h", tensor.F32, 2), value("besides", tensor.F32, 2))
	want := proto.Clone(m).(*onnxpb.ModelProto)
	want.Graph.ValueInfo[0] = value("h", tensor.F32, 1)
	then := want.Graph.Node[1].Attribute[0].G
	then.ValueInfo = then.ValueInfo[1:]
	file, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	_, info, err := onnx.ImportBytes(file, "", onnx.Options{Places: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := onnx.NewPatch("", file, info, onnx.Edits{Shapes: map[string][]ir.Dim{"h": {ir.Size(1)}, "tRelu": {ir.Size(1)}}})
	var out bytes.Buffer
	if err == nil {
		err = p.Write(&out)
	}
	have := new(onnxpb.ModelProto)
	if err == nil {
		err = proto.Unmarshal(out.Bytes(), have)
	}
	if err != nil || !proto.Equal(have, want) {
		t.Errorf("%v: %v, want %v", err, have, want)
	}
}
