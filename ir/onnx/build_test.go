package onnx_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// The builders below make small models. Lists of names are separated by spaces;
// _ stands for an empty name.

func split(s string) []string {
	list := strings.Fields(s)
	for i := range list {
		if list[i] == "_" {
			list[i] = ""
		}
	}
	return list
}

func node(name, kind, inputs, outputs string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{Name: name, OpType: kind, Input: split(inputs), Output: split(outputs), Attribute: attrs}
}

func attr(name string, v any) *onnxpb.AttributeProto {
	a := &onnxpb.AttributeProto{Name: name}
	switch v := v.(type) {
	case int:
		a.Type, a.I = onnxpb.AttributeProto_INT, int64(v)
	case float32:
		a.Type, a.F = onnxpb.AttributeProto_FLOAT, v
	case string:
		a.Type, a.S = onnxpb.AttributeProto_STRING, []byte(v)
	case []int64:
		a.Type, a.Ints = onnxpb.AttributeProto_INTS, v
	case []float32:
		a.Type, a.Floats = onnxpb.AttributeProto_FLOATS, v
	case []string:
		a.Type = onnxpb.AttributeProto_STRINGS
		for _, s := range v {
			a.Strings = append(a.Strings, []byte(s))
		}
	case *onnxpb.TensorProto:
		a.Type, a.T = onnxpb.AttributeProto_TENSOR, v
	case *onnxpb.SparseTensorProto:
		a.Type, a.SparseTensor = onnxpb.AttributeProto_SPARSE_TENSOR, v
	case *onnxpb.GraphProto:
		a.Type, a.G = onnxpb.AttributeProto_GRAPH, v
	default:
		panic(fmt.Sprintf("attribute of type %T", v))
	}
	return a
}

// refer is an attribute of a function's node that stands for one of the call's.
func refer(name, of string, t onnxpb.AttributeProto_AttributeType) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: name, RefAttrName: of, Type: t}
}

// value declares a value; a dimension is an int, a symbol, or nil for unset.
func value(name string, dt tensor.DType, dims ...any) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range dims {
		dim := &onnxpb.TensorShapeProto_Dimension{}
		switch d := d.(type) {
		case int:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}
		case string:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: int32(dt), Shape: shape}}}}
}

func floats(name string, v ...float32) *onnxpb.TensorProto {
	return tensor.From(v, len(v)).ToProto(name)
}

// sequence declares a sequence of tensors.
func sequence(name string, dt tensor.DType, dims ...any) *onnxpb.ValueInfoProto {
	v := value(name, dt, dims...)
	v.Type = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SequenceType{SequenceType: &onnxpb.TypeProto_Sequence{ElemType: v.Type}}}
	return v
}

// optional declares an optional of what v is.
func optional(v *onnxpb.ValueInfoProto) *onnxpb.ValueInfoProto {
	v.Type = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_OptionalType{OptionalType: &onnxpb.TypeProto_Optional{ElemType: v.Type}}}
	return v
}

func values(v ...*onnxpb.ValueInfoProto) []*onnxpb.ValueInfoProto { return v }

// chain returns the model of x: f32[2] -> nodes -> y.
func chain(nodes ...*onnxpb.NodeProto) *onnxpb.ModelProto {
	return &onnxpb.ModelProto{
		IrVersion:   8,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 17}},
		Graph: &onnxpb.GraphProto{
			Name:   "g",
			Node:   nodes,
			Input:  values(value("x", tensor.F32, 2)),
			Output: values(value("y", tensor.F32, 2)),
		},
	}
}

func edit(m *onnxpb.ModelProto, f func(m *onnxpb.ModelProto)) *onnxpb.ModelProto {
	f(m)
	return m
}

func encode(t testing.TB, m *onnxpb.ModelProto) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// load imports a model and verifies the graph.
func load(t testing.TB, m *onnxpb.ModelProto, opts onnx.Options) (*ir.Graph, *onnx.Info) {
	t.Helper()
	g, info, err := onnx.ImportBytes(encode(t, m), "", opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatalf("%v in\n%v", err, g)
	}
	return g, info
}
