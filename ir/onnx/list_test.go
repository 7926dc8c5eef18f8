package onnx_test

import (
	"errors"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// Declared types of lists are read; symbols say nothing of the elements of a sequence,
// which may differ, but those that are bound do.
func TestTypesOfLists(t *testing.T) {
	m := edit(chain(node("a", "Identity", "s", "t"), node("b", "Optional", "o", "p")), func(m *onnxpb.ModelProto) {
		m.Graph.Node[1] = node("b", "Identity", "o", "p")
		m.Graph.Input = values(value("x", tensor.F32, "n", "k"), sequence("s", tensor.F32, "n", "k", 3), optional(value("o", tensor.I64, "n", 2)), optional(sequence("q", tensor.Bool)))
		m.Graph.Output = values(sequence("t", tensor.F32), optional(value("p", tensor.I64)))
	})
	g, _ := load(t, m, onnx.Options{Dims: map[string]int{"k": 5}})
	var have []string
	for _, v := range g.Inputs {
		have = append(have, v.Type.String())
	}
	want := "f32[n,5] sequence<f32[?,5,3]>[?1] optional<i64[n,2]>[?2] optional<sequence<bool[]>[?]>[?4]"
	if h := strings.Join(have, " "); h != want {
		t.Errorf("%s, want %s", h, want)
	}
}

func TestBadTypesOfListsAreRefused(t *testing.T) {
	list := func(in, out *onnxpb.ValueInfoProto) *onnxpb.ModelProto {
		return edit(chain(node("a", "Identity", "x", "y")), func(m *onnxpb.ModelProto) {
			m.Graph.Input, m.Graph.Output = values(in), values(out)
		})
	}
	nested := sequence("x", tensor.F32)
	nested.Type = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SequenceType{SequenceType: &onnxpb.TypeProto_Sequence{ElemType: nested.Type}}}
	for name, c := range map[string]struct {
		m    *onnxpb.ModelProto
		opts onnx.Options
		kind error
		want string
	}{
		"a sequence of sequences":  {list(nested, value("y", tensor.F32)), onnx.Options{}, ir.ErrUnsupported, "input x is a list of what is no tensor"},
		"an optional of optionals": {list(optional(optional(value("x", tensor.F32))), value("y", tensor.F32)), onnx.Options{}, ir.ErrUnsupported, "input x is a list of what is no tensor"},
		"no element type":          {list(sequence("x", tensor.Undefined), value("y", tensor.F32)), onnx.Options{}, ir.ErrInvalid, "input x is a list of unknown elements"},
		"another element type":     {list(sequence("x", 99), value("y", tensor.F32)), onnx.Options{}, ir.ErrInvalid, "input x has unknown data type code 99"},
		"another output":           {list(sequence("x", tensor.F32), value("y", tensor.F32)), onnx.Options{}, ir.ErrInvalid, "output y is declared f32, but sequence<f32[]>[?1] is inferred"},
		"a shape":                  {list(sequence("x", tensor.F32), sequence("y", tensor.F32)), onnx.Options{Shapes: map[string][]int{"x": {2}}}, ir.ErrInvalid, "a shape is given for input x, which is sequence<f32[]>[?1]"},
	} {
		_, _, err := onnx.ImportBytes(encode(t, c.m), "", c.opts)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
