package spc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/backend/ref"
	"spc/ir/onnx/onnxpb"
	"spc/ir/onnx/onnxtest"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/conformance"
	"spc/tests/graphtest"
)

// tensorsOf lists the tensors of a graph, of its subgraphs, and of its nodes' attributes.
func tensorsOf(g *onnxpb.GraphProto) []*onnxpb.TensorProto {
	out := slices.Clone(g.GetInitializer())
	for _, n := range g.GetNode() {
		for _, a := range n.GetAttribute() {
			if a.T != nil {
				out = append(out, a.T)
			}
			if a.G != nil {
				out = append(out, tensorsOf(a.G)...)
			}
		}
	}
	return out
}

func decoded(t *testing.T, model []byte) *onnxpb.ModelProto {
	t.Helper()
	m := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(model, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// onlyElements checks that two models differ in elements of tensors alone, each in the field that it was in, and returns the names of
// these.
func onlyElements(t *testing.T, before, after []byte) []string {
	t.Helper()
	a, b := decoded(t, before), decoded(t, after)
	one, other := tensorsOf(a.Graph), tensorsOf(b.Graph)
	if len(one) != len(other) {
		t.Fatalf("%d tensors, were %d", len(other), len(one))
	}
	var changed []string
	for i, x := range one {
		y := other[i]
		if proto.Equal(x, y) {
			continue
		}
		changed = append(changed, x.Name)
		if len(x.RawData) != len(y.RawData) || len(x.FloatData) != len(y.FloatData) || len(x.Int32Data) != len(y.Int32Data) || len(x.DoubleData) != len(y.DoubleData) {
			t.Errorf("%s is in another field, or has another size", x.Name)
		}
		for _, p := range []*onnxpb.TensorProto{x, y} {
			p.RawData, p.FloatData, p.Int32Data, p.DoubleData = nil, nil, nil, nil
		}
	}
	if !proto.Equal(a, b) {
		t.Errorf("the model has changed by more than elements of tensors")
	}
	return changed
}

// prunedFile prunes a model and returns its file, with what the report says of that, which it checks.
func prunedFile(t *testing.T, o spc.CompileOptions) ([]byte, *spc.Report) {
	t.Helper()
	o.Debug.Verify, o.Run.Threads = true, 1
	p, err := spc.Prune(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	if anew := o.Opset != 0 || p.Explain().Written.Anew != ""; anew != (decoded(t, b.Bytes()).ProducerName == "spc") {
		t.Errorf("the file is written anew: %v, the report says %q", !anew, p.Explain().Written.Anew)
	}
	return b.Bytes(), p.Explain()
}

// interpreted is what the interpreter makes of a model as it is imported.
func interpreted(t *testing.T, model []byte, in map[string]*tensor.Tensor) map[string]*tensor.Tensor {
	t.Helper()
	g := importedFrom(t, model)
	var list []*tensor.Tensor
	for _, v := range g.Inputs {
		list = append(list, in[v.Name])
	}
	out, err := ref.Run(context.Background(), g, list)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]*tensor.Tensor{}
	for i, x := range out {
		named[g.OutputName(i)] = x
	}
	return named
}

// agrees checks that the file of a pruned model, interpreted as it was written, gives what the model that is compiled with the same
// options gives, and that its zeros are found again.
func agrees(t *testing.T, o spc.CompileOptions, file []byte, zeros int, tolerance float64) {
	t.Helper()
	agreesOn(t, o, file, zeros, tolerance, nil)
}

// agreesOn is agrees on inputs of a real model, which is compiled, too, as to interpret it takes long.
func agreesOn(t *testing.T, o spc.CompileOptions, file []byte, zeros int, tolerance float64, in map[string]*tensor.Tensor) {
	t.Helper()
	o.Run.Threads = 1
	m, err := spc.Compile(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n := m.Explain().Totals.PrunableZeros; n != zeros {
		t.Errorf("compile makes %d zeros, prune %d", n, zeros)
	}
	again, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Run: o.Run, Prune: spc.PruneOptions{KeepNone: o.Prune.KeepNone}})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	interpret := in == nil
	if interpret {
		in = randomOf(m.Inputs(), 7, 2)
	}
	got, err := m.Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]*tensor.Tensor
	if interpret {
		want = interpreted(t, file, in)
	} else if want, err = again.Run(context.Background(), in); err != nil {
		t.Fatal(err)
	}
	if e := relL2(t, got, want); !(e <= tolerance) {
		t.Errorf("the file is %g from what compile makes of the same options", e)
	}
	if n := again.Explain().Totals.PrunableZeros; n < zeros {
		t.Errorf("%d zeros are found in the file, want %d", n, zeros)
	}
}

// network is a small convolutional classifier in an ONNX model of an operator set, with all that a file may have besides.
type network struct {
	opset, version int64
	rng            *rand.Rand
	m              *onnxpb.ModelProto
}

func newNetwork(opset, version int64) *network {
	n := &network{opset, version, rand.New(rand.NewPCG(uint64(opset), 3)), &onnxpb.ModelProto{
		IrVersion: version, ProducerName: "trainer", ProducerVersion: "2", Domain: "org.example", ModelVersion: 5, DocString: "text",
		OpsetImport:   []*onnxpb.OperatorSetIdProto{{Version: opset}, {Domain: "org.unused", Version: 3}},
		MetadataProps: []*onnxpb.StringStringEntryProto{{Key: "classes", Value: "10"}},
		Graph:         &onnxpb.GraphProto{Name: "net", DocString: "more"},
	}}
	g := n.m.Graph
	g.Input = append(g.Input, value("x", 2, 3, 8, 8))
	g.Output = append(g.Output, value("y", 2, 10))
	g.ValueInfo = append(g.ValueInfo, value("c1", 2, 16, 8, 8))
	n.node("Conv", "conv1", []string{"x", "w1"}, "c1", ints("pads", 1, 1, 1, 1))
	n.weight("w1", false, 16, 3, 3, 3)
	n.norm("bn1", "c1", "n1", 16)
	n.node("Relu", "relu1", []string{"n1"}, "r1")
	n.node("Constant", "held", nil, "w2", &onnxpb.AttributeProto{Name: "value", Type: onnxpb.AttributeProto_TENSOR, T: n.tensor("", true, 24, 16, 3, 3)})
	n.weight("b2", false, 24)
	n.node("Conv", "conv2", []string{"r1", "w2", "b2"}, "c2")
	n.norm("bn2", "c2", "n2", 24)
	n.node("Relu", "relu2", []string{"n2"}, "r2")
	n.node("GlobalAveragePool", "pool", []string{"r2"}, "p")
	n.node("Flatten", "flat", []string{"p"}, "f")
	n.weight("w3", true, 32, 24)
	n.node("Transpose", "turn", []string{"w3"}, "w3t", ints("perm", 1, 0))
	n.node("MatMul", "fc1", []string{"f", "w3t"}, "m")
	n.weight("b3", true, 32)
	n.node("Add", "add", []string{"m", "b3"}, "a")
	n.weight("w4", false, 10, 32)
	n.weight("b4", false, 10)
	n.node("Gemm", "fc2", []string{"a", "w4", "b4"}, "y", &onnxpb.AttributeProto{Name: "transB", Type: onnxpb.AttributeProto_INT, I: 1})
	if version < 4 {
		for _, t := range g.Initializer {
			v := value(t.Name)
			for _, d := range t.Dims {
				v.Type.GetTensorType().Shape.Dim = append(v.Type.GetTensorType().Shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
			}
			g.Input = append(g.Input, v)
		}
	}
	return n
}

func value(name string, dims ...int64) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
	}
	return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: 1, Shape: shape}}}}
}

func ints(name string, v ...int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: name, Type: onnxpb.AttributeProto_INTS, Ints: v}
}

func (n *network) node(kind, name string, in []string, out string, attrs ...*onnxpb.AttributeProto) {
	n.m.Graph.Node = append(n.m.Graph.Node, &onnxpb.NodeProto{OpType: kind, Name: name, Input: in, Output: []string{out}, Attribute: attrs, DocString: "of " + name})
}

// tensor draws a tensor, in raw_data or in float_data.
func (n *network) tensor(name string, raw bool, dims ...int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: name, DataType: 1, Dims: dims}
	count := int64(1)
	for _, d := range dims {
		count *= d
	}
	for range count {
		v := float32(n.rng.NormFloat64())
		if raw {
			t.RawData = binary.LittleEndian.AppendUint32(t.RawData, math.Float32bits(v))
		} else {
			t.FloatData = append(t.FloatData, v)
		}
	}
	return t
}

func (n *network) weight(name string, raw bool, dims ...int64) {
	n.m.Graph.Initializer = append(n.m.Graph.Initializer, n.tensor(name, raw, dims...))
}

// norm adds batch normalisation, with a scale of channel 3 that is negative.
func (n *network) norm(name, in, out string, channels int64) {
	for _, p := range []string{"scale", "shift", "mean", "var"} {
		n.weight(name+"."+p, p == "var", channels)
	}
	g := n.m.Graph
	v := g.Initializer[len(g.Initializer)-1]
	for i := range channels {
		binary.LittleEndian.PutUint32(v.RawData[4*i:], math.Float32bits(float32(0.2+n.rng.Float64())))
	}
	g.Initializer[len(g.Initializer)-4].FloatData[3] = -0.5
	n.node("BatchNormalization", name, []string{in, name + ".scale", name + ".shift", name + ".mean", name + ".var"}, out)
}

func (n *network) bytes(t *testing.T) []byte {
	t.Helper()
	b, err := proto.Marshal(n.m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// versions are operator sets with the IR versions of their time.
var versions = [][2]int64{{7, 3}, {9, 4}, {11, 6}, {13, 7}, {17, 8}, {21, 10}}

// A model that is pruned keeps its versions, names, order and metadata, and batch normalisation: its weights alone are others, and, with
// samples, the biases that restore means.
func TestPruneKeepsTheFile(t *testing.T) {
	for _, v := range versions {
		model := newNetwork(v[0], v[1]).bytes(t)
		if err := onnxtest.Check(model); v[1] > 3 && err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]spc.CompileOptions{
			"uniform":      {Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}},
			"unstructured": {Prune: spc.PruneOptions{Sparsity: 0.7, KeepNone: true, Pattern: graphtest.Pattern("unstructured")}},
			"2:4":          {Prune: spc.PruneOptions{Pattern: graphtest.Pattern("2:4")}},
			"blocks":       {Prune: spc.PruneOptions{Sparsity: 0.5, Pattern: graphtest.Pattern("block:4x1")}},
			"obs":          {Prune: spc.PruneOptions{Sparsity: 0.6, KeepNone: true, Allocate: spc.PerLayer}, Calibration: spc.Calibration{Inputs: samples(4, nil)}},
			"permuted":     {Prune: spc.PruneOptions{Sparsity: 0.5, Pattern: graphtest.Pattern("block:4x1"), Permute: "auto"}},
		} {
			t.Run(fmt.Sprintf("opset %d, %s", v[0], name), func(t *testing.T) {
				o.Bytes = model
				file, report := prunedFile(t, o)
				if w := report.Written; w.Anew != "" || len(w.Notes) > 0 {
					t.Errorf("written anew as %q, with notes %q", w.Anew, w.Notes)
				}
				changed := onlyElements(t, model, file)
				for _, w := range []string{"", "w3"} { // that of the Constant has no name
					if !slices.Contains(changed, w) {
						t.Errorf("%q are changed, want %q, too", changed, w)
					}
				}
				for _, w := range changed {
					if strings.HasSuffix(w, ".scale") || strings.HasSuffix(w, ".var") || o.Calibration.Inputs == nil && name != "permuted" && !strings.HasPrefix(w, "w") && w != "" {
						t.Errorf("%s is changed", w)
					}
				}
				agrees(t, o, file, report.Totals.PrunableZeros, 1e-5)
			})
		}
	}
}

// What is not pruned comes back to the bit, also where others are.
func TestPruneLeavesWhatItKeeps(t *testing.T) {
	for _, v := range versions {
		model := newNetwork(v[0], v[1]).bytes(t)
		for name, o := range map[string]spc.PruneOptions{"nothing": {}, "no sparsity": {Sparsity: 0, Keep: []string{"*"}}} {
			if file, report := prunedFile(t, spc.CompileOptions{Bytes: model, Prune: o}); !bytes.Equal(file, model) || report.Written.Anew != "" {
				t.Errorf("opset %d, %s: the file is another: %q", v[0], name, report.Written.Anew)
			}
		}
		file, _ := prunedFile(t, spc.CompileOptions{Bytes: model, Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true, Keep: []string{"conv*", "fc1"}}})
		if changed := onlyElements(t, model, file); !slices.Equal(changed, []string{"w4"}) {
			t.Errorf("opset %d: %q are changed, want w4", v[0], changed)
		}
	}
}

// Elements that stay keep their bits: those of weights that batch normalisation scales would not survive a division.
func TestPruneChangesNoWeightThatStays(t *testing.T) {
	model := newNetwork(13, 7).bytes(t)
	file, _ := prunedFile(t, spc.CompileOptions{Bytes: model, Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}})
	one, other := tensorsOf(decoded(t, model).Graph), tensorsOf(decoded(t, file).Graph)
	zeros := 0
	for i := range one {
		x, err := tensor.FromProto(one[i], nil)
		if err != nil {
			t.Fatal(err)
		}
		y, err := tensor.FromProto(other[i], nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range y.F32s() {
			switch {
			case v == 0 && x.F32s()[k] != 0:
				zeros++
			case math.Float32bits(v) != math.Float32bits(x.F32s()[k]):
				t.Fatalf("element %d of %s is %g, was %g", k, one[i].Name, v, x.F32s()[k])
			}
		}
	}
	if zeros < 2000 {
		t.Errorf("%d elements became zero", zeros)
	}
}

// Channels that batch normalisation multiplies by zero are named, and what cannot be divided by that is zero.
func TestPruneNamesScalesOfZero(t *testing.T) {
	n := newNetwork(13, 7)
	for _, p := range n.m.Graph.Initializer {
		if p.Name == "bn2.scale" {
			p.FloatData[5], p.FloatData[9] = 0, 0
		}
	}
	o := spc.CompileOptions{Bytes: n.bytes(t), Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true, Allocate: spc.PerLayer}, Calibration: spc.Calibration{Inputs: samples(4, nil)}}
	file, report := prunedFile(t, o)
	onlyElements(t, o.Bytes, file)
	if w := report.Written; w.Anew != "" || len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "conv2 (Conv): ") || !strings.Contains(w.Notes[0], "channels 5, 9 of w2") {
		t.Errorf("%+v", w)
	}
	agrees(t, o, file, report.Totals.PrunableZeros, 1e-5)
}

// A convolution without a bias gets one where samples correct its means and no constant behind it can take that up.
func TestPruneAddsABiasWhereNothingElseCorrects(t *testing.T) {
	for _, v := range versions {
		n := newNetwork(v[0], v[1])
		g := n.m.Graph
		g.Node = slices.DeleteFunc(g.Node, func(p *onnxpb.NodeProto) bool { return p.Name == "bn1" })
		for _, p := range g.Node {
			if p.Name == "relu1" {
				p.Input[0] = "c1"
			}
		}
		o := spc.CompileOptions{Bytes: n.bytes(t), Prune: spc.PruneOptions{Sparsity: 0.6, KeepNone: true, Allocate: spc.PerLayer}, Calibration: spc.Calibration{Inputs: samples(4, nil)}}
		file, report := prunedFile(t, o)
		if w := report.Written; w.Anew != "" || len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "conv1 (Conv) has a bias now, conv1.bias") {
			t.Fatalf("%+v", w)
		}
		agrees(t, o, file, report.Totals.PrunableZeros, 1e-5)
		m := decoded(t, file)
		if in := m.Graph.Node[0].Input; !slices.Equal(in, []string{"x", "w1", "conv1.bias"}) {
			t.Errorf("the inputs of conv1 are %q", in)
		}
		declared := slices.ContainsFunc(m.Graph.Input, func(v *onnxpb.ValueInfoProto) bool { return v.Name == "conv1.bias" })
		if declared != (v[1] < 4) {
			t.Errorf("IR version %d: the bias is an input: %v", v[1], declared)
		}
	}
}

// sharedModels are the real models.
func sharedModels(t *testing.T) []string {
	t.Helper()
	list, _ := filepath.Glob(filepath.Join(conformance.Shared(), "models", "*", "model.onnx"))
	if len(list) == 0 {
		t.Skip("no models in " + conformance.Shared())
	}
	return list
}

// sampleOf reads the inputs that come with a real model.
func sampleOf(t *testing.T, dir string) map[string]*tensor.Tensor {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "input_*.pb"))
	in := map[string]*tensor.Tensor{}
	for _, f := range files {
		x, name, err := tensor.ReadTensorProto(f)
		if err != nil {
			t.Fatal(err)
		}
		in[name] = x
	}
	return in
}

// Real models keep their files likewise.
func TestPruneKeepsTheFilesOfRealModels(t *testing.T) {
	for _, path := range sharedModels(t) {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name, func(t *testing.T) {
			model, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if testing.Short() && len(model) > 1<<20 { // nothing else runs at once in larger ones
				return
			}
			if file, report := prunedFile(t, spc.CompileOptions{Bytes: model}); !bytes.Equal(file, model) {
				t.Errorf("the file of a model that is not pruned is another: %q", report.Written.Anew)
			}
			o := spc.CompileOptions{Bytes: model, Prune: spc.PruneOptions{Sparsity: 0.4}}
			file, report := prunedFile(t, o)
			if name == "silero-vad" { // reads its recurrent weights in two branches, one of which is picked
				if !strings.Contains(report.Written.Anew, "is read elsewhere, too") {
					t.Errorf("written anew as %q", report.Written.Anew)
				}
				return
			}
			if report.Written.Anew != "" {
				t.Fatal(report.Written.Anew)
			}
			onlyElements(t, model, file)
			if len(model) > 3<<20 || name == "basic-pitch" {
				return // to run these takes long
			}
			agreesOn(t, o, file, report.Totals.PrunableZeros, 1e-3, sampleOf(t, filepath.Dir(path)))
		})
	}
}

// Small networks of all kinds keep their files.
func TestPruneKeepsTheFilesOfArchitectures(t *testing.T) {
	all := archs.Tiny
	if testing.Short() { // what runs at once is the same in all
		all = all[:2]
	}
	for _, a := range all {
		m, err := a.Build(1)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]spc.Calibration{"blindly": {}, "with samples": {Inputs: samples(2, nil)}} {
			t.Run(a.Name+" "+name, func(t *testing.T) {
				o := spc.CompileOptions{Bytes: m.Bytes(), Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: spc.PerLayer}, Calibration: c}
				file, report := prunedFile(t, o)
				if report.Written.Anew != "" {
					t.Fatal(report.Written.Anew)
				}
				if len(report.Written.Notes) == 0 {
					onlyElements(t, o.Bytes, file)
				}
				agrees(t, o, file, report.Totals.PrunableZeros, 1e-4)
			})
		}
	}
}

// outside moves the initializers of a model into a file of external data, in another order and with gaps, and writes both.
func (n *network) outside(t *testing.T, dir, location string) string {
	t.Helper()
	var far []byte
	for i, p := range slices.Backward(n.m.Graph.Initializer) {
		raw := p.RawData
		for _, v := range p.FloatData {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		if i%5 == 4 {
			continue // which stays in the model
		}
		for len(far)%64 > 0 {
			far = append(far, 0xa5)
		}
		p.RawData, p.FloatData, p.DataLocation = nil, nil, onnxpb.TensorProto_EXTERNAL
		p.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: location}, {Key: "offset", Value: fmt.Sprint(len(far))}, {Key: "length", Value: fmt.Sprint(len(raw))}}
		far = append(far, raw...)
	}
	path := filepath.Join(dir, "model.onnx")
	at := filepath.Join(dir, filepath.FromSlash(location))
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{path: n.bytes(t), at: append(far, "the end"...)} {
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func contentOf(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// External data keep their names and what lies where in them; the model that was read is not touched.
func TestPruneKeepsTheLayoutOfExternalData(t *testing.T) {
	for _, location := range []string{"weights.bin", "data/weights.bin"} {
		dir := t.TempDir()
		path := newNetwork(13, 7).outside(t, dir, location)
		model, far := contentOf(t, path), contentOf(t, filepath.Join(dir, location))
		o := spc.CompileOptions{Model: path, Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}}
		whole, report := prunedFile(t, o) // in one file
		o.Model = ""
		o.Bytes = newNetwork(13, 7).bytes(t)
		agrees(t, o, whole, report.Totals.PrunableZeros, 1e-5)

		o.Model, o.Bytes = path, nil
		p, err := spc.Prune(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		other := t.TempDir()
		for _, to := range []struct{ path, far string }{
			{filepath.Join(other, "p.onnx"), location},
			{filepath.Join(dir, "p.onnx"), strings.Replace(location, "weights", "p-weights", 1)},
		} {
			if err := p.Save(to.path); err != nil {
				t.Fatal(err)
			}
			now := contentOf(t, to.path)
			if same := bytes.Equal(contentOf(t, filepath.Join(filepath.Dir(to.path), to.far)), far); same {
				t.Errorf("%s is as it was", to.far)
			}
			a, b := decoded(t, model), decoded(t, now)
			for i, x := range a.Graph.Initializer {
				for k, e := range x.ExternalData {
					want := e.Value
					if e.Key == "location" {
						want = to.far
					}
					if have := b.Graph.Initializer[i].ExternalData[k]; have.Key != e.Key || have.Value != want {
						t.Errorf("%s has %s %s, want %s", x.Name, have.Key, have.Value, want)
					}
				}
			}
			again, err := spc.Compile(context.Background(), spc.CompileOptions{Model: to.path, Prune: spc.PruneOptions{KeepNone: true}})
			if err != nil {
				t.Fatal(err)
			}
			if n := again.Explain().Totals.PrunableZeros; n < report.Totals.PrunableZeros {
				t.Errorf("%d zeros are found, want %d", n, report.Totals.PrunableZeros)
			}
			again.Close()
			gaps := contentOf(t, filepath.Join(filepath.Dir(to.path), to.far))
			if len(gaps) != len(far) || !bytes.HasSuffix(gaps, []byte("the end")) || bytes.Count(gaps, []byte{0xa5, 0xa5}) < bytes.Count(far, []byte{0xa5, 0xa5}) {
				t.Errorf("%s lays its elements out in another way", to.far)
			}
		}
		if !bytes.Equal(contentOf(t, path), model) || !bytes.Equal(contentOf(t, filepath.Join(dir, location)), far) {
			t.Error("what was read is another now")
		}
	}
}

// Models that are written beside others take nothing from them: neither from one that was pruned before, nor what of a model stays.
func TestPruneReplacesNoExternalDataOfOthers(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	path := newNetwork(13, 7).outside(t, dir, "w.bin")
	m := decoded(t, contentOf(t, path))
	for _, x := range m.Graph.Initializer { // one that stays is elsewhere, under the name that another would get
		if len(x.Dims) == 1 && len(x.ExternalData) > 0 {
			x.ExternalData[0].Value = "b-w.bin"
			break
		}
	}
	b, err := proto.Marshal(m)
	if err == nil {
		err = errors.Join(os.WriteFile(path, b, 0o666), os.WriteFile(filepath.Join(dir, "b-w.bin"), contentOf(t, filepath.Join(dir, "w.bin")), 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	save := func(sparsity float64, to ...string) {
		t.Helper()
		p, err := spc.Prune(context.Background(), spc.CompileOptions{Model: path, Prune: spc.PruneOptions{Sparsity: sparsity, KeepNone: true}})
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range to {
			list, err := p.Files(to)
			if err == nil {
				err = p.Save(to)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range list {
				if files[f.Path] != nil {
					t.Errorf("%s is written again", f.Path)
				}
				files[f.Path] = contentOf(t, f.Path)
			}
			var want, have bytes.Buffer // with all data in one file
			again, err := spc.Prune(context.Background(), spc.CompileOptions{Model: to})
			if err == nil {
				err = errors.Join(p.Write(&want), again.Write(&have))
			}
			if err != nil || !bytes.Equal(have.Bytes(), want.Bytes()) {
				t.Errorf("%s holds another model: %v", to, err)
			}
		}
	}
	for _, name := range []string{"model.onnx", "w.bin", "b-w.bin"} {
		files[filepath.Join(dir, name)] = contentOf(t, filepath.Join(dir, name))
	}
	save(0.5, filepath.Join(other, "a.onnx"), filepath.Join(dir, "a.onnx"))
	save(0.9, filepath.Join(other, "b.onnx"), filepath.Join(dir, "b.onnx"))
	for name, b := range files {
		if !bytes.Equal(contentOf(t, name), b) {
			t.Errorf("%s is another now", name)
		}
	}
}

// Where nothing is pruned all files are as they were, and in the folder of the model external data are not written again.
func TestPruneCopiesExternalDataThatStay(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	path := newNetwork(9, 4).outside(t, dir, "w.bin")
	p, err := spc.Prune(context.Background(), spc.CompileOptions{Model: path})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{other, dir} {
		if err := p.Save(filepath.Join(to, "p.onnx")); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(contentOf(t, filepath.Join(to, "p.onnx")), contentOf(t, path)) || !bytes.Equal(contentOf(t, filepath.Join(to, "w.bin")), contentOf(t, filepath.Join(dir, "w.bin"))) {
			t.Error("what was not pruned is another")
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 3 {
		t.Errorf("%v, %v", list, err)
	}
}

// A model that changes while it is pruned is not taken for the one that was read, and tensors that share a place are not written.
func TestPruneRefusesFilesThatItCannotKeep(t *testing.T) {
	dir := t.TempDir()
	path := newNetwork(13, 7).outside(t, dir, "w.bin")
	half := spc.PruneOptions{Sparsity: 0.5, KeepNone: true}
	p, err := spc.Prune(context.Background(), spc.CompileOptions{Model: path, Prune: half})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(contentOf(t, path), 0), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "was changed while it was pruned") {
		t.Errorf("error %v", err)
	}

	path = newNetwork(13, 7).outside(t, dir, "w.bin")
	if p, err = spc.Prune(context.Background(), spc.CompileOptions{Model: path, Prune: half}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "w.bin"), 100); err != nil {
		t.Fatal(err)
	}
	const changed = "external data w.bin were changed while the model was pruned"
	if err := p.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), changed) {
		t.Errorf("error %v", err)
	}
	to := t.TempDir()
	if err := p.Save(filepath.Join(to, "pruned.onnx")); err == nil || !strings.Contains(err.Error(), changed) {
		t.Errorf("error %v", err)
	}
	if list, err := os.ReadDir(to); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}

	n := newNetwork(13, 7)
	n.m.Graph.Initializer = append(n.m.Graph.Initializer, n.tensor("w5", true, 10, 32))
	n.node("Gemm", "fc3", []string{"a", "w5"}, "z", &onnxpb.AttributeProto{Name: "transB", Type: onnxpb.AttributeProto_INT, I: 1})
	n.m.Graph.Output = append(n.m.Graph.Output, value("z", 2, 10))
	path = n.outside(t, dir, "w.bin")
	for _, w := range n.m.Graph.Initializer {
		if w.Name == "w5" {
			for _, v := range n.m.Graph.Initializer {
				if v.Name == "w4" {
					w.ExternalData, w.RawData, w.DataLocation = v.ExternalData, nil, v.DataLocation
				}
			}
		}
	}
	if err := os.WriteFile(path, n.bytes(t), 0o666); err != nil {
		t.Fatal(err)
	}
	o := spc.CompileOptions{Model: path, Prune: half}
	file, report := prunedFile(t, o)
	if !strings.Contains(report.Written.Anew, "external data w.bin holds several tensors in one place") {
		t.Errorf("written anew as %q", report.Written.Anew)
	}
	if err := onnxtest.Check(file); err != nil {
		t.Error(err)
	}
	if p, err = spc.Prune(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if list, err := p.Files(filepath.Join(t.TempDir(), "pruned.onnx")); err != nil || len(list) != 1 {
		t.Errorf("%v, %d files, want all in one", err, len(list))
	}
}

// What the file has no place for is written anew, and said.
func TestPruneSaysWhyItWritesAnew(t *testing.T) {
	n := newNetwork(11, 6)
	n.node("Neg", "besides", []string{"bn1.scale"}, "z") // two nodes read what goes with channels
	n.m.Graph.Output = append(n.m.Graph.Output, value("z", 16))
	model := n.bytes(t)
	some := spc.Calibration{Inputs: samples(2, nil)}
	for why, o := range map[string]spc.CompileOptions{
		"it is quantised":                  {Quantize: spc.QuantizeOptions{Type: tensor.I8}, Calibration: some},
		"bn1.scale is read elsewhere, too": {Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true, Allocate: spc.PerLayer, Pattern: graphtest.Pattern("channel")}},
	} {
		o.Bytes = model
		file, report := prunedFile(t, o)
		if !strings.Contains(report.Written.Anew, why) {
			t.Errorf("written anew as %q, want %q", report.Written.Anew, why)
		}
		if err := onnxtest.Check(file); err != nil {
			t.Error(err)
		}
	}
	for opset, want := range map[int]int64{14: 14, 19: 19, spc.LeastOpset: 14} {
		file, report := prunedFile(t, spc.CompileOptions{Bytes: model, Opset: opset, Prune: spc.PruneOptions{Sparsity: 0.5}})
		if m := decoded(t, file); m.OpsetImport[0].Version != want || report.Written.Anew != "" || m.ProducerName != "spc" {
			t.Errorf("opset %d gives %v, written anew as %q", opset, m.OpsetImport, report.Written.Anew)
		}
	}
	layer := graphtest.ONNX(t, `graph "g"(%x: f32[2,4]) {
  %s: f32[4] = const {1, 2, 3, 4}
  %y: f32[2,4] = LayerNormalization "norm" (%x, %s)
  return %y
}`)
	for opset, want := range map[int]string{13: "Opset 13: the model's nodes are written in the form of opset 17", 12: "Opset 12: want one from 13 to 28"} {
		if _, err := spc.Prune(context.Background(), spc.CompileOptions{Bytes: layer, Opset: opset}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("opset %d: %v, want %q", opset, err, want)
		}
	}
}

// Operators of ONNX Runtime's domain stay what they are, with weights that are pruned.
func TestPruneKeepsOperatorsOfOtherDomains(t *testing.T) {
	n := newNetwork(13, 7)
	g := n.m.Graph
	n.m.OpsetImport = append(n.m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: "com.microsoft", Version: 1})
	for _, p := range g.Node {
		if p.Name == "fc1" {
			p.OpType, p.Domain, p.Input[1] = "FusedMatMul", "com.microsoft", "w3"
			p.Attribute = append(p.Attribute, &onnxpb.AttributeProto{Name: "transB", Type: onnxpb.AttributeProto_INT, I: 1}, &onnxpb.AttributeProto{Name: "alpha", Type: onnxpb.AttributeProto_FLOAT, F: 0.5})
		}
	}
	g.Node = slices.DeleteFunc(g.Node, func(p *onnxpb.NodeProto) bool { return p.Name == "turn" })
	for _, c := range []spc.Calibration{{}, {Inputs: samples(4, nil)}} {
		o := spc.CompileOptions{Bytes: n.bytes(t), Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}, Calibration: c}
		o.Prune.Allocate = spc.PerLayer
		file, report := prunedFile(t, o)
		if report.Written.Anew != "" {
			t.Fatal(report.Written.Anew)
		}
		if changed := onlyElements(t, o.Bytes, file); !slices.Contains(changed, "w3") {
			t.Errorf("%q are changed, want w3, too", changed)
		}
		agrees(t, o, file, report.Totals.PrunableZeros, 1e-5)
	}
}
