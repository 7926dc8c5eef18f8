package onnx_test

import (
	"bytes"
	"errors"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/tests/contrib"
)

// seeds returns small models, each with something that the importer treats
// apart.
func seeds() []*onnxpb.ModelProto {
	branch := func(name string, nodes ...*onnxpb.NodeProto) *onnxpb.GraphProto {
		return &onnxpb.GraphProto{Name: name, Node: nodes, Output: values(value("r", tensor.F32, 2))}
	}
	condition := func(m *onnxpb.ModelProto) { m.Graph.Input = append(m.Graph.Input, value("c", tensor.Bool)) }
	return []*onnxpb.ModelProto{
		chain(node("a", "Relu", "x", "h"), node("b", "Add", "h x", "y")),
		chain(node("a", "Add", "h h", "y"), node("b", "Relu", "x", "h")),
		functions(),
		doubling(3),
		edit(chain(node("if", "If", "c", "y",
			attr("then_branch", branch("t", node("", "Constant", "", "k", attr("value", floats("", 1, 2))), node("", "Add", "x k", "r"))),
			attr("else_branch", branch("e", node("", "Relu", "x", "r"))))), condition),
		edit(chain(node("a", "Add", "x w", "h"), node("b", "Add", "h s", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, "n", nil, -1, 2))
			m.Graph.Initializer = []*onnxpb.TensorProto{floats("w", 1, 2)}
			m.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{{Dims: []int64{2}, Values: floats("s", 3), Indices: tensor.Ints(1).ToProto("")}}
		}),
		edit(chain(node("a", "Reshape", "x s", "h"), node("b", "Transpose", "h", "t", attr("perm", []int64{1, 0})), node("c", "MatMul", "h t", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, 2, "n", 3))
			m.Graph.Initializer = []*onnxpb.TensorProto{tensor.Ints(0, -1).ToProto("s")}
			m.Graph.Output = values(value("y", tensor.F32))
		}),
		edit(chain(node("a", "Conv", "x w", "h", attr("pads", []int64{1, 1, 1, 1})), node("b", "MaxPool", "h", "y", attr("kernel_shape", []int64{2, 2}))), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, 1, 1, 4, 4))
			m.Graph.Initializer = []*onnxpb.TensorProto{tensor.New(tensor.F32, 2, 1, 3, 3).ToProto("w")}
			m.Graph.Output = values(value("y", tensor.F32))
		}),
		edit(chain(node("cut", "SplitToSequence", "x", "s"), node("at", "SequenceAt", "s i", "y"), node("opt", "Optional", "q", "p"), node("none", "Optional", "", "n",
			&onnxpb.AttributeProto{Name: "type", Type: onnxpb.AttributeProto_TYPE_PROTO, Tp: sequence("", tensor.F32, 2).Type})), func(m *onnxpb.ModelProto) {
			m.Graph.Input = values(value("x", tensor.F32, 2, "n", 3), value("i", tensor.I64), sequence("q", tensor.F32, "n"))
			m.Graph.Output = values(value("y", tensor.F32), optional(sequence("p", tensor.F32, "n")), optional(sequence("n", tensor.F32)))
		}),
		edit(chain(node("loop", "Loop", "m c x", "y", attr("body", &onnxpb.GraphProto{
			Name:   "body",
			Input:  values(value("i", tensor.I64), value("go", tensor.Bool), value("v", tensor.F32, 2)),
			Node:   []*onnxpb.NodeProto{node("", "Add", "v x", "w")},
			Output: values(value("go", tensor.Bool), value("w", tensor.F32, 2)),
		}))), func(m *onnxpb.ModelProto) {
			condition(m)
			m.Graph.Input = append(m.Graph.Input, value("m", tensor.I64))
		}),
	}
}

// patched checks that a model without edits is written as it is, and that one whose tensors are written anew with the elements that they
// have is imported as the same graph.
func patched(t *testing.T, b []byte, g *ir.Graph, info *onnx.Info) {
	write := func(e onnx.Edits) []byte {
		p, err := onnx.NewPatch("", b, info, e)
		if errors.Is(err, ir.ErrUnsupported) {
			return nil
		}
		var out bytes.Buffer
		if err == nil {
			err = p.Write(&out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	if out := write(onnx.Edits{}); !bytes.Equal(out, b) {
		t.Fatalf("%d bytes are written as %d others", len(b), len(out))
	}
	e := onnx.Edits{Tensors: map[*tensor.Tensor]*tensor.Tensor{}}
	for _, v := range g.Constants() {
		if info.Holds(v.Const) && v.Const.DType() != tensor.String {
			e.Tensors[v.Const] = v.Const.Clone()
		}
	}
	out := write(e)
	if out == nil {
		return
	}
	again, _, err := onnx.ImportBytes(out, "", onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if have, want := ir.Print(again), ir.Print(g); have != want {
		t.Fatalf("tensors that are written anew give\n%s, want\n%s", have, want)
	}
}

// FuzzImport imports damaged models: whatever is not refused satisfies Verify,
// its text form reads back, and its file can be written.
func FuzzImport(f *testing.F) {
	for _, m := range seeds() {
		f.Add(encode(f, m))
	}
	for i := range contrib.Rows { // a model of each operator that ONNX Runtime adds
		f.Add(encode(f, contrib.Rows[i].Make()[0].Model))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, info, err := onnx.ImportBytes(b, "", onnx.Options{Places: true})
		if err != nil {
			return
		}
		patched(t, b, g, info)
		if err := g.Verify(); err != nil {
			t.Fatalf("%v in\n%v", err, g)
		}
		if _, err := ir.Parse(ir.Print(g), op.Registry); err != nil {
			t.Fatalf("%v in\n%v", err, g)
		}
	})
}
