package zoo

import (
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// deep returns the file of a network of convolutions whose weights make the image explode.
func deep(t *testing.T, depth int) []byte {
	t.Helper()
	b := archs.New("deep", 17)
	x := b.Input("image", archs.Float32, 1, 8, 10, 10)
	for range depth {
		w := b.Weight("w"+x, archs.Fill{Std: 5}, 8, 8, 3, 3)
		x = b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}}, x, w, b.Weight("b"+x, archs.Near(3), 8))
		x = b.Node("Relu", nil, x)
	}
	b.Output("y", b.Node("Mul", nil, x, b.Weight("scale"+x, archs.Near(1), 8, 1, 1)), archs.Float32, 1, 8, 10, 10)
	m, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	return m.Bytes()
}

func TestStrippedModelsNeitherExplodeNorVanish(t *testing.T) {
	b, err := stripped(t.Context(), deep(t, 40))
	if err != nil {
		t.Fatal(err)
	}
	m := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	g := newGraph()
	if err := g.refill(m); err != nil {
		t.Fatal(err)
	}
	inputs, err := g.Inputs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, err := spc.Import(t.Context(), spc.ImportOptions{Bytes: g.Model})
	if err != nil {
		t.Fatal(err)
	}
	out, err := o.Interpret(t.Context(), inputs)
	if err != nil {
		t.Fatal(err)
	}
	if r := rms(out["y"].F32s()); r < 0.1 || r > 10 {
		t.Errorf("the root mean square of the output is %g, want about 1", r)
	}
}

func TestWeightsAreDrawnAndTablesKept(t *testing.T) {
	const n = 1000
	weights, variances, mask, indices := make([]float32, n), make([]float32, n), make([]float32, n), make([]int64, n)
	archs.Fill{Mean: 0.5, Std: 2}.Draw(7, "weights", weights)
	archs.Fill{Mean: 3, Std: 1}.Draw(7, "variances", variances)
	for i := range n {
		variances[i] = float32(math.Exp(float64(variances[i])))
		indices[i] = int64(i)
		if i%10 > 6 {
			mask[i] = -100
		}
	}
	list := []*tensor.Tensor{
		tensor.From(weights, n), tensor.From(variances, n), tensor.From(mask, n), tensor.From(indices, n), tensor.From(weights[:16], 16),
	}
	names := []string{"weights", "variances", "mask", "indices", "few"}
	m := &onnxpb.ModelProto{Graph: &onnxpb.GraphProto{}}
	for i, x := range list {
		m.Graph.Initializer = append(m.Graph.Initializer, x.ToProto(names[i]))
	}
	// The last is a constant of a branch.
	then := &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{{OpType: "Constant", Output: []string{"few"}, Attribute: []*onnxpb.AttributeProto{{Name: "value", T: m.Graph.Initializer[4]}}}}}
	m.Graph.Initializer = m.Graph.Initializer[:4]
	m.Graph.Node = []*onnxpb.NodeProto{{OpType: "If", Output: []string{"y"}, Attribute: []*onnxpb.AttributeProto{{Name: "then_branch", G: then}}}}
	if err := strip(m); err != nil {
		t.Fatal(err)
	}
	var drawn []string
	for name, p := range tensors(m.Graph) {
		if _, ok, err := described(p); err != nil {
			t.Fatal(err)
		} else if ok {
			drawn = append(drawn, name)
		}
	}
	if want := []string{"weights", "variances"}; !slices.Equal(drawn, want) {
		t.Errorf("%v are drawn, want %v", drawn, want)
	}
	again := proto.CloneOf(m)
	for _, m := range []*onnxpb.ModelProto{m, again} {
		if err := refill(m); err != nil {
			t.Fatal(err)
		}
	}
	if !proto.Equal(m, again) {
		t.Error("drawn twice, elements differ")
	}
	got := map[string]*tensor.Tensor{}
	for name, p := range tensors(m.Graph) {
		x, err := tensor.FromProto(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = x
	}
	for i, name := range names[2:] {
		if !got[name].Equal(list[2+i]) {
			t.Errorf("%s is not as it was", name)
		}
	}
	if f := fillOf(got["weights"].F32s()); math.Abs(f.Mean-0.5) > 0.3 || math.Abs(f.Std-2) > 0.2 {
		t.Errorf("weights have mean %g and standard deviation %g, want 0.5 and 2", f.Mean, f.Std)
	}
	if v := slices.Min(got["variances"].F32s()); v <= 0 {
		t.Errorf("a variance is %g", v)
	}
}

func TestBadDescriptionsAreErrors(t *testing.T) {
	entry := func(key, value string) *onnxpb.StringStringEntryProto {
		return &onnxpb.StringStringEntryProto{Key: key, Value: value}
	}
	for _, entries := range [][]*onnxpb.StringStringEntryProto{
		nil,
		{entry("location", "weights.bin"), entry("mean", "0"), entry("std", "1")},
		{entry("location", location), entry("mean", "0")},
		{entry("location", location), entry("mean", "much"), entry("std", "1")},
	} {
		p := &onnxpb.TensorProto{Name: "w", Dims: []int64{4}, DataType: 1, DataLocation: onnxpb.TensorProto_EXTERNAL, ExternalData: entries}
		if err := refill(&onnxpb.ModelProto{Graph: &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{p}}}); err == nil {
			t.Errorf("%v is refilled", entries)
		}
	}
}

func TestSamplesDiffer(t *testing.T) {
	x := make([]float32, 1000)
	archs.Fill{Std: 1}.Draw(3, "x", x)
	want := SampleOf("y", tensor.From(x, 10, 100))
	if e := SampleOf("y", tensor.From(x, 10, 100)).Differ(want); e != 0 || len(want.Values) != most {
		t.Errorf("equal samples of %d elements differ by %g", len(want.Values), e)
	}
	for i := range x {
		x[i] *= 1.001
	}
	if e := SampleOf("y", tensor.From(x, 10, 100)).Differ(want); e < 9e-4 || e > 11e-4 {
		t.Errorf("samples differ by %g, want 1e-3", e)
	}
	x[0] = float32(math.NaN())
	if e := SampleOf("y", tensor.From(x, 10, 100)).Differ(want); e <= 1 {
		t.Errorf("a NaN differs by %g", e)
	}
}
