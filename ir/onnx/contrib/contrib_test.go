package contrib_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/contrib"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// model is a model of one node, "here": inputs are written name:type[dims] or _, attributes name=value with value an integer, a float with
// a point, integers in brackets, or a string.
func model(t *testing.T, kind, inputs, attributes, outputs string) []byte {
	t.Helper()
	n := &onnxpb.NodeProto{Domain: contrib.Domain, OpType: kind, Name: "here"}
	g := &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{n}}
	for _, in := range strings.Fields(inputs) {
		name, typ, _ := strings.Cut(in, ":")
		if name == "_" {
			n.Input = append(n.Input, "")
			continue
		}
		n.Input = append(n.Input, name)
		elem, dims, ranked := strings.Cut(strings.TrimSuffix(typ, "]"), "[")
		dt, err := tensor.ParseDType(elem)
		if err != nil {
			t.Fatal(err)
		}
		tt := &onnxpb.TypeProto_Tensor{ElemType: int32(dt)}
		if ranked {
			tt.Shape = &onnxpb.TensorShapeProto{}
		}
		for _, d := range strings.FieldsFunc(dims, func(r rune) bool { return r == ',' }) {
			p := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}}
			if size, err := strconv.Atoi(d); err == nil {
				p.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(size)}
			}
			tt.Shape.Dim = append(tt.Shape.Dim, p)
		}
		g.Input = append(g.Input, &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: tt}}})
	}
	for _, a := range strings.Fields(attributes) {
		name, value, _ := strings.Cut(a, "=")
		p := &onnxpb.AttributeProto{Name: name}
		if i, err := strconv.ParseInt(value, 10, 64); err == nil {
			p.Type, p.I = onnxpb.AttributeProto_INT, i
		} else if f, err := strconv.ParseFloat(value, 32); err == nil {
			p.Type, p.F = onnxpb.AttributeProto_FLOAT, float32(f)
		} else if list, ok := strings.CutPrefix(value, "["); ok {
			p.Type = onnxpb.AttributeProto_INTS
			for _, s := range strings.Split(strings.TrimSuffix(list, "]"), ",") {
				i, err := strconv.ParseInt(s, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				p.Ints = append(p.Ints, i)
			}
		} else {
			p.Type, p.S = onnxpb.AttributeProto_STRING, []byte(value)
		}
		n.Attribute = append(n.Attribute, p)
	}
	for i, out := range strings.Fields(outputs) {
		if out == "_" {
			n.Output = append(n.Output, "")
			continue
		}
		name := fmt.Sprintf("%s%d", out, i)
		n.Output = append(n.Output, name)
		g.Output = append(g.Output, &onnxpb.ValueInfoProto{Name: name})
	}
	b, err := proto.Marshal(&onnxpb.ModelProto{IrVersion: 10, Graph: g, OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 21}, {Domain: contrib.Domain, Version: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	heads = "num_heads=2"
	qkv   = "q:f32[2,3,8] k:f32[2,5,8] v:f32[2,5,8]"
	xw    = "x:f32[2,3,4] w:f32[4,24]"
	embed = "ids:i32[2,3] _ words:f32[9,4] places:f32[9,4] _ gamma:f32[4] beta:f32[4]"
)

// refusals are models of one node that are wrong, or that ask for what is not done, and what the error says; nothing where the model is right.
var refusals = []struct {
	kind, inputs, attributes, outputs string
	want                              string
	unsupported                       bool
}{
	{"Attention", xw, "", "y", "num_heads is missing", false},
	{"Attention", xw, "num_heads=-1", "y", "num_heads is missing", false},
	{"Attention", xw, "num_heads=1000000", "y", "not within 1 and 65536", false},
	{"Attention", xw, "num_heads=3", "y", "hidden sizes are [8 8 8], want multiples of num_heads, 3", false},
	{"Attention", "x:f32[2,4] w:f32[4,24]", heads, "y", "input 0 is f32[2,4], want rank 3", false},
	{"Attention", "x:f32[2,3,4] w:f32[4,24,1]", heads, "y", "input 1 is f32[4,24,1], want rank 2", false},
	{"Attention", "x:f32 w:f32[4,24]", heads, "y", "the rank of input 0 is not known", true},
	{"Attention", "x:f32[2,3,4] w:f32[4,n]", heads, "y", "columns is not known", true},
	{"Attention", "x:f32[2,3,4] w:f32[5,24]", heads, "y", "want 4 rows", false},
	{"Attention", "x:f32[2,3,4] w:f32[4,25]", heads, "y", "25 columns, want a multiple of 3", false},
	{"Attention", xw, heads + " qkv_hidden_sizes=[8,8]", "y", "want 3 sizes", false},
	{"Attention", xw, heads + " qkv_hidden_sizes=[6,8,10]", "y", "the first two are the same", false},
	{"Attention", xw, heads + " qkv_hidden_sizes=[8,8,4]", "y", "want 24 in sum", false},
	{"Attention", xw, heads + " qkv_hidden_sizes=[8,8,-8]", "y", "want multiples of num_heads", false},
	{"Attention", xw, heads + " qkv_hidden_sizes=[9223372036854775806,9223372036854775806,8]", "y", "want multiples of num_heads", false},
	{"Attention", xw, heads + " do_rotary=1", "y", "do_rotary", true},
	{"Attention", xw, heads + " past_present_share_buffer=1", "y", "past_present_share_buffer", true},
	{"Attention", xw + " _ _ _ _ n:i32[1]", heads, "y", "past_present_share_buffer", true},
	{"Attention", xw, heads + " alpha=1", "y", "alpha", false},
	{"Attention", xw + " b:f32[23]", heads, "y", "bias is f32[23], want 24 elements", false},
	{"Attention", xw + " b:f32[1,24]", heads, "y", "want rank 1", false},
	{"Attention", xw + " _ m:f32[2]", heads, "y", "input 3 is f32, want i32", false},
	{"Attention", xw + " _ m:i32[3]", heads, "y", "fits no batch of 2", false},
	{"Attention", xw + " _ m:i32[2,4]", heads, "y", "fits no batch of 2 with 3 queries and 3 keys", false},
	{"Attention", xw + " _ m:i32[2,3,4]", heads, "y", "fits no batch of 2 with 3 queries and 3 keys", false},
	{"Attention", xw + " _ m:i32[2,1,4,4]", heads, "y", "a mask of rank 4", true},
	{"Attention", xw + " _ _ p:f32[2,2,2,5]", heads, "y present", "want rank 5", false},
	{"Attention", xw + " _ _ p:f32[2,2,3,5,4]", heads, "y present", "past is f32[2,2,3,5,4], want f32[2,2,2,5,4]", false},
	{"Attention", xw + " _ _ p:f32[2,2,2,5,3]", heads, "y present", "want f32[2,2,2,5,4]", false},
	{"Attention", xw + " _ _ p:f32[2,2,2,5,4] a:f32[1,1,3,8]", heads, "y present", "do not go together", false},
	{"Attention", xw, heads + " qkv_hidden_sizes=[6,6,12]", "y present", "the same ones of K and V", false},
	{"Attention", xw + " _ _ _ a:f32[1,1,3,4]", heads, "y", "want one that broadcasts to f32[2,2,3,3]", false},
	{"Attention", "x:f64[2,3,4] w:f32[4,24]", heads, "y", "f64", false},
	{"Attention", "x:string[2,3,4] w:string[4,24]", heads, "y", "string", false},

	{"MultiHeadAttention", qkv, "", "y", "num_heads is missing", false},
	{"MultiHeadAttention", qkv, "num_heads=3", "y", "no multiple of num_heads", false},
	{"MultiHeadAttention", "q:f32[2,3,8]", heads, "y", "key is absent", false},
	{"MultiHeadAttention", "q:f32[2,8] k:f32[2,8] v:f32[2,8]", heads, "y", "want rank 3 or 5", false},
	{"MultiHeadAttention", "q:f32[2,3,8] k:f32[2,5,8]", heads, "y", "input 1 is f32[2,5,8], want rank 5", false},
	{"MultiHeadAttention", "q:f32[2,3,8] k:f32[2,5,8] v:f32[2,2,5,4]", heads, "y", "input 2 is f32[2,2,5,4], want rank 3", false},
	{"MultiHeadAttention", "q:f32[2,3,8] k:f32[2,5,8] v:f32", heads, "y", "the rank of input 2 is not known", true},
	{"MultiHeadAttention", "q:f32[2,3,8] k:f32[2,5,6] v:f32[2,5,8]", heads, "y", "the hidden size of key is another", false},
	{"MultiHeadAttention", "q:f32[2,3,8] k:f32[2,5,8] v:f32[2,5,7]", heads, "y", "that of value no multiple of num_heads", false},
	{"MultiHeadAttention", "q:f32[2,3,8] k:f32[2,5,8] v:f32[2,4,8]", heads, "y", "numbers of tokens differ", false},
	{"MultiHeadAttention", "q:f32[2,3,8] k:f32[1,5,8] v:f32[1,5,8]", heads, "y", "the batches", false},
	{"MultiHeadAttention", "q:f32[2,3,8] k:f32[2,3,5,4] v:f32[2,3,5,4]", heads, "y", "the heads of query are others", false},
	{"MultiHeadAttention", "q:f32[2,3,n] k:f32[2,3,n] v:f32[2,3,n]", heads, "y", "the hidden size of query is not known", true},
	{"MultiHeadAttention", "q:f32[2,3,8] kv:f32[2,5,2,3,4]", heads, "y", "want [batch, tokens, 2 heads, 2, depth]", false},
	{"MultiHeadAttention", "qkv:f32[2,5,3,3,4]", heads, "y", "want [batch, tokens, 2 heads, 3, depth]", false},
	{"MultiHeadAttention", "qkv:f32[2,5,2,3,4] k:f32[2,5,8] v:f32[2,5,8]", heads, "y", "want rank 3 as key or value is given", false},
	{"MultiHeadAttention", "q:f32[2,3,8] kv:f32[2,5,2,2,4] _ b:f32[24]", heads, "y", "bias does not go with", false},
	{"MultiHeadAttention", qkv + " b:f32[23]", heads, "y", "bias is f32[23], want 24 elements", false},
	{"MultiHeadAttention", qkv + " _ m:i32[3]", heads, "y", "fits no batch of 2", false},
	{"MultiHeadAttention", qkv + " _ m:i32[4]", heads, "y", "fits no batch of 2", false},
	{"MultiHeadAttention", qkv + " _ m:i32[2,4]", heads, "y", "with 3 queries and 5 keys", false},
	{"MultiHeadAttention", qkv + " _ m:i64[2,5]", heads, "y", "want i32", false},
	{"MultiHeadAttention", qkv + " _ _ a:f32[3,5]", heads, "y", "want rank 4", false},
	{"MultiHeadAttention", qkv + " _ _ a:f32[3,2,3,5]", heads, "y", "want one that broadcasts to f32[2,2,3,5]", false},
	{"MultiHeadAttention", qkv + " _ _ _ pk:f32[2,2,4,4]", heads, "y", "must come together", false},
	{"MultiHeadAttention", qkv + " _ _ _ pk:f32[2,2,4,4] pv:f32[2,2,4,3]", heads, "y", "past_value is f32[2,2,4,3], want f32[2,2,4,4]", false},
	{"MultiHeadAttention", qkv + " _ _ _ pk:f32[2,8,4] pv:f32[2,8,4]", heads, "y", "want rank 4", false},
	{"MultiHeadAttention", "q:f32[2,3,8] kv:f32[2,5,2,2,4] _ _ _ _ pk:f32[2,2,4,4] pv:f32[2,2,4,4]", heads, "y", "past_key does not go with", false},
	{"MultiHeadAttention", qkv + " _ _ _ _ _ n:i32[1]", heads, "y", "past_sequence_length", true},

	{"SkipLayerNormalization", "x:f32[8] s:f32[8] g:f32[8]", "", "y", "want rank 2 or 3", false},
	{"SkipLayerNormalization", "x:f32[2,3,8] s:f32[3,3,8] g:f32[8]", "", "y", "skip is f32[3,3,8]", false},
	{"SkipLayerNormalization", "x:f32[3,8] s:f32[1,3,8] g:f32[8]", "", "y", "want one that broadcasts to f32[3,8]", false},
	{"SkipLayerNormalization", "x:f32[2,3,8] s:f32[2,3,8] g:f32[7]", "", "y", "gamma is f32[7], want 8 elements", false},
	{"SkipLayerNormalization", "x:f32[2,3,8] s:f32[2,3,8] g:f32[8] b:f32[1]", "", "y", "beta is f32[1], want 8 elements", false},
	{"SkipLayerNormalization", "x:f32[2,3,8] s:f32[2,3,8] g:f32[8] _ b:f32[1,8]", "", "y", "input 4 is f32[1,8], want rank 1", false},
	{"SkipLayerNormalization", "x:f32[2,3,8] s:f32[2,3,8]", "", "y", "2 inputs", false},

	{"EmbedLayerNormalization", embed, "", "y n", "", false},
	{"EmbedLayerNormalization", "ids:i32[2,3]", "", "y n", "input 2 is absent", false},
	{"EmbedLayerNormalization", strings.Replace(embed, "[2,3]", "[3]", 1), "", "y n", "want rank 2", false},
	{"EmbedLayerNormalization", strings.Replace(embed, "words:f32[9,4]", "words:f32[9,5]", 1), "", "y n", "input 3 is f32[9,4], want 5 columns", false},
	{"EmbedLayerNormalization", strings.Replace(embed, "_ words", "segments:i32[2,3] words", 1), "", "y n", "segment_embedding is absent", false},
	{"EmbedLayerNormalization", embed + " mask:i32[2,4]", "", "y n", "input 7 is i32[2,4], want the shape of i32[2,3]", false},
	{"EmbedLayerNormalization", embed + " _ p:i32[3,3]", "", "y n", "input 8 is i32[3,3]", false},

	{"FusedGemm", "a:f32[3,4] b:f32[4,5]", "", "y", `activation is ""`, false},
	{"FusedGemm", "a:f32[3,4] b:f32[4,5]", "activation=If", "y", "want one that is elementwise", false},
	{"FusedGemm", "a:f32[3,4] b:f32[4,5]", "activation=LeakyRelu", "y", "the parameter alpha of the activation is missing", false},
	{"FusedGemm", "a:f32[3,4] b:f32[4,5]", "activation=ScaledTanh activation_alpha=0.5", "y", "which ScaledTanh needs", false},
	{"FusedGemm", "a:f32[3,4] b:f32[4,5]", "activation=Relu gamma=0.5", "y", "gamma", false},
	{"FusedGemm", "a:f32[3,4] b:f32[5,5]", "activation=Relu", "y", "Gemm", false},
	{"FusedConv", "x:f32[1,2,5,5] w:f32[3,2,3,3] _ z:f32[1,3,1,3]", "", "y", "Z is f32[1,3,1,3], want f32[1,3,3,3]", false},
	{"FusedConv", "x:f32[1,2,5,5] w:f32[3,2,3,3]", "activation=Clip", "y", "0 elements, want the least and the greatest", false},
	{"FusedConv", "x:f32[1,2,5,5] w:f32[3,2,3,3]", "activation=HardSigmoid", "y", "the parameter alpha", false},
	{"FusedConv", "x:f32[1,2,5,5] w:f32[3,2,3,3]", "stride=2", "y", "stride", false},
	{"FusedConv", "x:f32[1,2,5,5] w:f32[3,4,3,3]", "", "y", "Conv", false},
	{"ExpandDims", "x:f32[2,3] axis:i32[2]", "", "y", "axis is i32[2], want one element", false},
	{"ExpandDims", "x:f32[2,3] axis:f32[1]", "", "y", "axis is f32[1], want an integer", false},
	{"Trilu", "x:f32[3]", "", "y", "Trilu", false},
}

// TestRefusals: an error is one line that names the node and what was expected.
func TestRefusals(t *testing.T) {
	for _, c := range refusals {
		name := fmt.Sprintf("%s(%s) %s", c.kind, c.inputs, c.attributes)
		_, _, err := onnx.ImportBytes(model(t, c.kind, c.inputs, c.attributes, c.outputs), "", onnx.Options{})
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		kind := ir.ErrInvalid
		if c.unsupported {
			kind = ir.ErrUnsupported
		}
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "here (com.microsoft:"+c.kind+")") {
			t.Errorf("%s: %v, want one of kind %v that names the node and says %q", name, err, kind, c.want)
		} else if strings.Contains(strings.TrimSpace(err.Error()), "\n") {
			t.Errorf("%s: %q is no line", name, err)
		}
	}
}
