package contrib

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// The weights of Attention stay one, of one product, whose features the operator reads as they are.
func TestAttentionKeepsItsWeight(t *testing.T) {
	m := &Maker{Rand: rand.New(rand.NewPCG(1, 2)), kind: Domain + ":Attention"}
	s := attending{batch: 2, tokens: 6, in: 48, heads: 4, sizes: [3]int{32, 32, 32}, past: -1}
	for _, open := range []bool{false, true} {
		s.open = open
		s.node(m, "plain", nil, nil, nil, false)
		s.node(m, "lengths", nil, i32([]int32{3, 6}, 2), nil, false)
		s.node(m, "keys, causal", Attrs{"unidirectional": 1}, m.visible(2, 6), nil, false)
		for _, c := range m.Cases {
			b, err := c.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			model, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: b, Prune: spc.PruneOptions{Sparsity: 0.75}})
			if err != nil {
				t.Fatal(err)
			}
			layers, text := model.Explain().Layers, model.Graph()
			model.Close()
			if len(layers) != 1 || layers[0].Weight != "w" || !layers[0].Prunable || layers[0].Rows != 96 || layers[0].Cols != 48 || layers[0].Nonzeros > 96*48/4 {
				t.Errorf("%s, open %v: the weights are %+v, want w alone, pruned", c.Name, open, layers)
			}
			if !strings.Contains(text, "spc_packed = 1") || strings.Contains(text, "Split") || strings.Contains(text, "Transpose") {
				t.Errorf("%s, open %v: want packed features in\n%s", c.Name, open, text)
			}
		}
		m.Cases = nil
	}
}

// K and V in one input, and Q with them, are what they are apart: of these ONNX Runtime's CPU computes the latter alone.
func TestPackedInputs(t *testing.T) {
	r := &Rows[slices.IndexFunc(Rows, func(r Row) bool { return r.Kind == Domain+":MultiHeadAttention" })]
	cases, err := r.Stored()
	if err != nil {
		t.Fatal(err)
	}
	of := map[int]int{}
	for _, c := range cases {
		in := map[string]*tensor.Tensor{}
		for _, x := range c.Inputs {
			in[x.Name] = x.Tensor
		}
		n := c.Model.Graph.Node[0]
		if in["k"].Rank() != 3 || in["past_k"] != nil || !slices.Equal(in["k"].Shape(), in["v"].Shape()) {
			continue
		}
		heads := int(n.Attribute[slices.IndexFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return a.GetName() == "num_heads" })].GetI())
		biased := len(n.Input) > 3 && n.Input[3] != ""
		if !biased {
			of[2]++
			if err := interpreted(r, c.packed(heads, "k", "v")); err != nil {
				t.Errorf("%s: K and V in one: %v", c.Name, err)
			}
		}
		if slices.Equal(in["q"].Shape(), in["k"].Shape()) {
			of[3]++
			if err := interpreted(r, c.packed(heads, "q", "k", "v")); err != nil {
				t.Errorf("%s: Q, K and V in one: %v", c.Name, err)
			}
		}
	}
	if of[2] < 20 || of[3] < 10 {
		t.Errorf("%d cases with K and V in one and %d with all three, want more", of[2], of[3])
	}
}

// packed puts inputs [batch, tokens, heads*depth] of a case into the first of them, [batch, tokens, heads, parts, depth].
func (c *Case) packed(heads int, names ...string) *Case {
	out := &Case{Name: c.Name, Model: proto.Clone(c.Model).(*onnxpb.ModelProto), Outputs: c.Outputs}
	g := out.Model.Graph
	var parts []*tensor.Tensor
	for _, x := range c.Inputs {
		if i := slices.Index(names, x.Name); i >= 0 {
			s := x.Shape()
			parts = append(parts, x.Tensor.Reshape(s[0], s[1], heads, s[2]/heads))
			if i > 0 {
				continue
			}
		}
		out.Inputs = append(out.Inputs, x)
	}
	s := parts[0].Shape()
	depth := s[3]
	whole := tensor.New(tensor.F32, s[0], s[1], s[2], len(parts), depth)
	for i, p := range parts {
		for j, v := range p.F32s() {
			whole.F32s()[j/depth*len(parts)*depth+i*depth+j%depth] = v
		}
	}
	for i := range out.Inputs {
		if out.Inputs[i].Name == names[0] {
			out.Inputs[i].Tensor = whole
		}
	}
	g.Input = slices.DeleteFunc(g.Input, func(v *onnxpb.ValueInfoProto) bool { return slices.Contains(names[1:], v.GetName()) })
	for _, v := range g.Input {
		if v.GetName() != names[0] {
			continue
		}
		shape := v.GetType().GetTensorType().Shape
		shape.Dim = shape.Dim[:2]
		for _, n := range whole.Shape()[2:] {
			shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(n)}})
		}
	}
	for i, name := range g.Node[0].Input {
		if slices.Contains(names[1:], name) {
			g.Node[0].Input[i] = ""
		}
	}
	return out
}
