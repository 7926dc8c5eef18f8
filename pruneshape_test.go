package spc_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/ir/onnx/onnxpb"
	"spc/ir/onnx/onnxtest"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

// shrunk is how a model may differ from one that it was before something was removed from it.
type shrunk struct {
	before, after *onnxpb.ModelProto
	names         []string // of tensors that are smaller
	reads         []string // nodes that read something else
	attributes    []string // nodes of which an attribute is another
	gone, added   []string // nodes, and constants
}

// compareShrunk checks that all that a model has is in one before, in its order and the same to the field, but for what shrunk lists, sizes that values are
// declared to have, and elements of tensors.
func compareShrunk(t *testing.T, before, after []byte) *shrunk {
	t.Helper()
	s := &shrunk{before: decoded(t, before), after: decoded(t, after)}
	s.nodes(t)
	s.tensors(t)
	for _, list := range [][2][]*onnxpb.ValueInfoProto{{s.before.Graph.ValueInfo, s.after.Graph.ValueInfo}, {s.before.Graph.Input, s.after.Graph.Input}} {
		s.values(t, list[0], list[1])
	}
	a, b := proto.Clone(s.before).(*onnxpb.ModelProto), proto.Clone(s.after).(*onnxpb.ModelProto)
	for _, g := range []*onnxpb.GraphProto{a.Graph, b.Graph} {
		g.Node, g.Initializer, g.ValueInfo, g.Input = nil, nil, nil, nil
	}
	if !proto.Equal(a, b) {
		t.Error("the model has changed by more than nodes, tensors and sizes")
	}
	return s
}

func (s *shrunk) nodes(t *testing.T) {
	t.Helper()
	next := s.after.Graph.Node
	for _, x := range s.before.Graph.Node {
		if len(next) == 0 || next[0].Output[0] != x.Output[0] {
			s.gone = append(s.gone, x.Name)
			continue
		}
		y := next[0]
		next = next[1:]
		x, y = proto.Clone(x).(*onnxpb.NodeProto), proto.Clone(y).(*onnxpb.NodeProto)
		if !slices.Equal(x.Input, y.Input) {
			s.reads = append(s.reads, x.Name)
		}
		x.Input, y.Input = nil, nil
		for i, a := range x.Attribute {
			if i >= len(y.Attribute) || proto.Equal(a, y.Attribute[i]) {
				continue
			}
			b := y.Attribute[i]
			if a.T == nil {
				s.attributes = append(s.attributes, x.Name)
				a.I, b.I, a.Ints, b.Ints = 0, 0, nil, nil
				continue
			}
			s.tensor(t, a.T, b.T)
			a.T, b.T = nil, nil
		}
		if !proto.Equal(x, y) {
			t.Errorf("node %s is another: %v, was %v", x.Name, y.OpType, x.OpType)
		}
	}
	if len(next) > 0 {
		t.Errorf("%d nodes are new, or in another place, the first is %s", len(next), next[0].Name)
	}
}

func (s *shrunk) tensors(t *testing.T) {
	t.Helper()
	next := s.after.Graph.Initializer
	for _, x := range s.before.Graph.Initializer {
		if len(next) == 0 || next[0].Name != x.Name {
			s.gone = append(s.gone, x.Name)
			continue
		}
		s.tensor(t, x, next[0])
		next = next[1:]
	}
	for _, x := range next {
		s.added = append(s.added, x.Name)
	}
}

// tensor checks that a tensor has the elements of one before, or fewer of them, in the fields that they were in.
func (s *shrunk) tensor(t *testing.T, x, y *onnxpb.TensorProto) {
	t.Helper()
	if proto.Equal(x, y) {
		return
	}
	if len(x.Dims) != len(y.Dims) || (len(x.RawData) > 0) != (len(y.RawData) > 0) || (len(x.FloatData) > 0) != (len(y.FloatData) > 0) {
		t.Errorf("%s is in another form", x.Name)
	}
	for i, d := range y.Dims {
		if d < 1 || d > x.Dims[i] {
			t.Errorf("%s is %v, was %v", x.Name, y.Dims, x.Dims)
		}
	}
	if !slices.Equal(x.Dims, y.Dims) {
		s.names = append(s.names, x.Name)
	}
	a, b := proto.Clone(x).(*onnxpb.TensorProto), proto.Clone(y).(*onnxpb.TensorProto)
	for _, p := range []*onnxpb.TensorProto{a, b} {
		p.Dims, p.RawData, p.FloatData, p.Int64Data, p.ExternalData = nil, nil, nil, nil, nil
	}
	if !proto.Equal(a, b) {
		t.Errorf("%s has changed by more than sizes and elements", x.Name)
	}
}

func (s *shrunk) values(t *testing.T, before, after []*onnxpb.ValueInfoProto) {
	t.Helper()
	next := after
	for _, x := range before {
		if len(next) == 0 || next[0].Name != x.Name {
			s.gone = append(s.gone, x.Name)
			continue
		}
		a, b := proto.Clone(x).(*onnxpb.ValueInfoProto), proto.Clone(next[0]).(*onnxpb.ValueInfoProto)
		next = next[1:]
		for i, d := range a.GetType().GetTensorType().GetShape().GetDim() {
			if e := b.GetType().GetTensorType().GetShape().GetDim(); i < len(e) && e[i].GetDimValue() > 0 && e[i].GetDimValue() <= d.GetDimValue() {
				e[i].Value = d.Value
			}
		}
		if !proto.Equal(a, b) {
			t.Errorf("value %s is another", x.Name)
		}
	}
	for _, v := range next {
		if !slices.Contains(s.added, v.Name) {
			t.Errorf("value %s is new", v.Name)
		}
	}
}

// sliced checks that each tensor that is smaller has elements of slices of what it was, in their order, where pruning has changed none. The elements of these are
// told from each other by their values.
func (s *shrunk) sliced(t *testing.T) {
	t.Helper()
	was := map[string]*onnxpb.TensorProto{}
	for _, x := range tensorsOf(s.before.Graph) {
		was[x.Name] = x
	}
	for _, y := range tensorsOf(s.after.Graph) {
		x := was[y.Name]
		if x == nil || x.DataType != 1 || slices.Equal(x.Dims, y.Dims) {
			continue
		}
		a, err := tensor.FromProto(x, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := tensor.FromProto(y, nil)
		if err != nil {
			t.Fatal(err)
		}
		at := map[float32]int{}
		for i, v := range a.F32s() {
			at[v] = i
		}
		keep := make([]map[int]int, a.Rank())
		for axis := range keep {
			keep[axis] = map[int]int{}
		}
		for i, v := range b.F32s() {
			k, ok := at[v]
			for axis := a.Rank() - 1; axis >= 0; axis-- {
				from, to := k%a.Dim(axis), i%b.Dim(axis)
				k, i = k/a.Dim(axis), i/b.Dim(axis)
				if seen, twice := keep[axis][to]; !ok || twice && seen != from {
					t.Fatalf("%s has an element in another place", y.Name)
				}
				keep[axis][to] = from
			}
		}
		for axis, list := range keep {
			for to := 1; to < len(list); to++ {
				if list[to] <= list[to-1] {
					t.Errorf("slices of %s are in another order along axis %d", y.Name, axis)
				}
			}
		}
	}
}

// computes checks that the file of a pruned model, interpreted as it was written, gives what the model that is compiled with the same options gives.
func computes(t *testing.T, o spc.CompileOptions, file []byte, tolerance float64) {
	t.Helper()
	if err := onnxtest.Check(file); err != nil && decoded(t, file).IrVersion > 3 {
		t.Error(err)
	}
	o.Run.Threads = 1
	m, err := spc.Compile(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	in := randomOf(m.Inputs(), 7, 2)
	got, err := m.Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if e := relL2(t, got, interpreted(t, file, in)); !(e <= tolerance) {
		t.Errorf("the file is %g from what compile makes of the same options", e)
	}
}

func channels(sparsity float64) spc.PruneOptions {
	return spc.PruneOptions{Sparsity: sparsity, KeepNone: true, Pattern: graphtest.Pattern("channel")}
}

// Channels that go take what they have of weights, biases and batch normalisation with them, under the names that these have, and the sizes that values are declared to have.
func TestPruneKeepsTheFileWithoutChannels(t *testing.T) {
	for _, v := range versions {
		model := newNetwork(v[0], v[1]).bytes(t)
		for name, c := range map[string]spc.Calibration{"blindly": {}, "with samples": {Inputs: samples(4, nil)}} {
			t.Run(fmt.Sprintf("opset %d, %s", v[0], name), func(t *testing.T) {
				o := spc.CompileOptions{Bytes: model, Prune: channels(0.5), Calibration: c}
				o.Prune.Allocate = spc.PerLayer
				file, report := prunedFile(t, o)
				if w := report.Written; w.Anew != "" {
					t.Fatalf("written anew as %q", w.Anew)
				}
				s := compareShrunk(t, model, file)
				if len(s.gone)+len(s.reads)+len(s.added)+len(s.attributes) > 0 {
					t.Errorf("%+v", s)
				}
				for _, w := range []string{"w1", "bn1.scale", "bn1.mean", "", "b2", "bn2.var", "w3", "b3", "w4"} {
					if !slices.Contains(s.names, w) {
						t.Errorf("%q are smaller, want %q, too", s.names, w)
					}
				}
				if slices.Contains(s.names, "b4") {
					t.Error("outputs are gone")
				}
				if c.Inputs == nil {
					s.sliced(t)
				}
				for _, x := range s.after.Graph.ValueInfo {
					if have, want := x.GetType().GetTensorType().GetShape().Dim[1].GetDimValue(), s.after.Graph.Initializer[0].Dims[0]; have != want {
						t.Errorf("%s has %d channels, want %d", x.Name, have, want)
					}
				}
				computes(t, o, file, 1e-5)
			})
		}
	}
}

// External data lie in their order, as aligned as they were, without what goes.
func TestPruneMovesExternalDataTogether(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	path := newNetwork(13, 7).outside(t, dir, "weights.bin")
	far := contentOf(t, filepath.Join(dir, "weights.bin"))
	o := spc.CompileOptions{Model: path, Prune: channels(0.5)}
	whole, _ := prunedFile(t, o) // in one file
	o.Model, o.Bytes = "", newNetwork(13, 7).bytes(t)
	computes(t, o, whole, 1e-5)
	p, err := spc.Prune(context.Background(), spc.CompileOptions{Model: path, Prune: channels(0.5)})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Save(filepath.Join(other, "pruned.onnx")); err != nil {
		t.Fatal(err)
	}
	now := contentOf(t, filepath.Join(other, "weights.bin"))
	if len(now) >= len(far)*2/3 || !bytes.HasSuffix(now, []byte("the end")) {
		t.Errorf("external data take %d bytes, were %d", len(now), len(far))
	}
	file := decoded(t, contentOf(t, filepath.Join(other, "pruned.onnx")))
	within := map[string]*onnxpb.TensorProto{}
	for _, x := range decoded(t, whole).Graph.Initializer {
		within[x.Name] = x
	}
	end := -1
	for _, x := range slices.Backward(file.Graph.Initializer) { // the order in which they lie
		if len(x.ExternalData) == 0 {
			continue
		}
		var at, n int
		for _, e := range x.ExternalData {
			switch e.Key {
			case "offset":
				fmt.Sscan(e.Value, &at)
			case "length":
				fmt.Sscan(e.Value, &n)
			}
		}
		if at%64 != 0 || at < end || at > end+65 || at+n > len(now) {
			t.Fatalf("%s lies at %d of %d bytes, what is before it ends at %d", x.Name, at, len(now), end)
		}
		end = at + n
		if !bytes.Equal(now[at:end], within[x.Name].RawData) {
			t.Errorf("%s has other elements in external data", x.Name)
		}
	}
	compareShrunk(t, contentOf(t, path), contentOf(t, filepath.Join(other, "pruned.onnx")))
	again, err := spc.Prune(context.Background(), spc.CompileOptions{Model: filepath.Join(other, "pruned.onnx")})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := again.Write(&b); err != nil || !bytes.Equal(b.Bytes(), whole) {
		t.Errorf("the file with external data is another model: %v", err)
	}
}

// Networks of all kinds keep their files without channels, heads and branches.
func TestPruneKeepsTheFilesOfArchitecturesThatShrink(t *testing.T) {
	for _, a := range archs.Tiny {
		for _, pattern := range []string{"channel", "head", "depth"} {
			attends := a.Name != "resnet" && a.Name != "mobilenet"
			if a.Name == "lstm" || pattern == "head" && !attends || pattern == "depth" && a.Name != "encoder" || testing.Short() && a.Name != "resnet" {
				continue
			}
			t.Run(a.Name+" "+pattern, func(t *testing.T) {
				m, err := a.Build(1)
				if err != nil {
					t.Fatal(err)
				}
				o := spc.CompileOptions{Bytes: m.Bytes(), Prune: spc.PruneOptions{Sparsity: 0.3, KeepNone: true, Pattern: graphtest.Pattern(pattern)}}
				if pattern == "depth" {
					o.Calibration.Inputs = samples(2, nil)
				}
				file, report := prunedFile(t, o)
				if report.Written.Anew != "" {
					t.Fatal(report.Written.Anew)
				}
				s := compareShrunk(t, o.Bytes, file)
				if (pattern == "depth") == (len(s.names) > 0) || pattern == "channel" && a.Name == "mobilenet" && len(s.attributes) == 0 {
					t.Errorf("%q are gone, attributes of %q are others", s.gone, s.attributes)
				}
				computes(t, o, file, 1e-4)
			})
		}
	}
}

// Nodes of branches that go are gone with their constants, what reads a sum reads its skip, and the rest stays.
func TestPruneKeepsTheFileWithoutBranches(t *testing.T) {
	m, err := archs.ResNet(archs.ResNetConfig{Blocks: [4]int{2, 3, 2, 1}, Width: 8, Image: 16, Classes: 10}, 3)
	if err != nil {
		t.Fatal(err)
	}
	o := spc.CompileOptions{Bytes: m.Bytes(), Prune: spc.PruneOptions{Sparsity: 0.4, KeepNone: true, Pattern: graphtest.Pattern("depth")}, Calibration: spc.Calibration{Inputs: samples(2, nil)}}
	file, report := prunedFile(t, o)
	if report.Written.Anew != "" {
		t.Fatal(report.Written.Anew)
	}
	s := compareShrunk(t, o.Bytes, file)
	convs := 0
	for _, n := range s.before.Graph.Node {
		if n.OpType == "Conv" && slices.Contains(s.gone, n.Name) {
			convs++
			if !slices.Contains(s.gone, n.Input[1]) {
				t.Errorf("%s is gone, and its weight %s is not", n.Name, n.Input[1])
			}
		}
	}
	if convs == 0 || len(s.names) > 0 {
		t.Errorf("%d convolutions are gone, %q are smaller", convs, s.names)
	}
	if len(file) >= len(o.Bytes) || strings.Contains(report.Written.Anew, "\n") {
		t.Errorf("the file has %d bytes, had %d", len(file), len(o.Bytes))
	}
	computes(t, o, file, 1e-4)
}

// parts is a network whose channels are split and joined again, in the form that Split has in an operator set.
func parts(t *testing.T, opset, version int64, sizes string) []byte {
	t.Helper()
	n := &network{opset, version, rand.New(rand.NewPCG(5, 6)), &onnxpb.ModelProto{
		IrVersion: version, OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: opset}}, Graph: &onnxpb.GraphProto{Name: "parts"},
	}}
	g := n.m.Graph
	g.Input = append(g.Input, value("x", 1, 3, 4, 4))
	g.Output = append(g.Output, value("y", 1, 2, 4, 4))
	n.weight("w1", true, 8, 3, 1, 1)
	n.weight("w2", true, 2, 8, 1, 1)
	n.node("Conv", "conv1", []string{"x", "w1"}, "c")
	in, attrs := []string{"c"}, []*onnxpb.AttributeProto{{Name: "axis", Type: onnxpb.AttributeProto_INT, I: 1}}
	switch sizes {
	case "attribute":
		attrs = append(attrs, ints("split", 4, 4))
	case "input":
		in = append(in, "sizes")
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: "sizes", DataType: 7, Dims: []int64{2}, Int64Data: []int64{4, 4}})
	case "count":
		attrs = append(attrs, &onnxpb.AttributeProto{Name: "num_outputs", Type: onnxpb.AttributeProto_INT, I: 2})
	}
	n.node("Split", "split", in, "a", attrs...)
	g.Node[1].Output = []string{"a", "b"}
	n.node("Relu", "relu", []string{"a"}, "r")
	n.node("Tanh", "tanh", []string{"b"}, "u")
	n.node("Concat", "join", []string{"r", "u"}, "j", &onnxpb.AttributeProto{Name: "axis", Type: onnxpb.AttributeProto_INT, I: 1})
	n.node("Conv", "conv2", []string{"j", "w2"}, "y")
	return n.bytes(t)
}

// What says how many channels the parts of a tensor have says how many they have then, where the operator set has it.
func TestPruneKeepsSplitsOfChannels(t *testing.T) {
	for _, c := range []struct {
		opset, version int64
		sizes          string
	}{{11, 6, "attribute"}, {11, 6, ""}, {13, 7, "input"}, {13, 7, ""}, {18, 8, "count"}} {
		o := spc.CompileOptions{Bytes: parts(t, c.opset, c.version, c.sizes), Prune: channels(0.4)}
		file, report := prunedFile(t, o)
		if report.Written.Anew != "" {
			t.Fatalf("opset %d, %q: %s", c.opset, c.sizes, report.Written.Anew)
		}
		s := compareSplit(t, o.Bytes, file)
		if list := s.names; !slices.Equal(list, []string{"w1", "w2"}) {
			t.Errorf("%q are smaller", list)
		}
		if (len(s.added) == 1) != (c.opset > 11 && c.sizes != "input") {
			t.Errorf("opset %d, %q: %q are new", c.opset, c.sizes, s.added)
		}
		s.sliced(t)
		computes(t, o, file, 1e-5)
	}
}

// compareSplit is compareShrunk but for which attributes a Split has.
func compareSplit(t *testing.T, before, after []byte) *shrunk {
	t.Helper()
	for _, b := range []*[]byte{&before, &after} {
		m := decoded(t, *b)
		for _, n := range m.Graph.Node {
			if n.OpType == "Split" {
				n.Attribute = n.Attribute[:1]
			}
		}
		var err error
		if *b, err = proto.Marshal(m); err != nil {
			t.Fatal(err)
		}
	}
	return compareShrunk(t, before, after)
}

// Channels that an operator of another domain counts in an attribute are in no file that is kept, which one line says.
func TestPruneSaysWhichOperatorsItCannotKeep(t *testing.T) {
	n := &network{17, 8, rand.New(rand.NewPCG(5, 6)), &onnxpb.ModelProto{
		IrVersion: 8, OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 17}, {Domain: "com.microsoft", Version: 1}}, Graph: &onnxpb.GraphProto{Name: "groups"},
	}}
	g := n.m.Graph
	g.Input = append(g.Input, value("x", 1, 3, 4, 4))
	g.Output = append(g.Output, value("y", 1, 2, 4, 4))
	n.weight("w1", true, 8, 3, 1, 1)
	n.weight("w2", true, 8, 1, 3, 3)
	n.weight("w3", true, 2, 8, 1, 1)
	n.node("Conv", "first", []string{"x", "w1"}, "a")
	n.node("FusedConv", "depthwise", []string{"a", "w2"}, "b", ints("pads", 1, 1, 1, 1), &onnxpb.AttributeProto{Name: "group", Type: onnxpb.AttributeProto_INT, I: 8},
		&onnxpb.AttributeProto{Name: "activation", Type: onnxpb.AttributeProto_STRING, S: []byte("Relu")})
	g.Node[1].Domain = "com.microsoft"
	n.node("Conv", "last", []string{"b", "w3"}, "y")
	o := spc.CompileOptions{Bytes: n.bytes(t), Prune: channels(0.4)}
	file, report := prunedFile(t, o)
	if w := report.Written.Anew; !strings.Contains(w, "is computed within a node of the file") || strings.Contains(w, "\n") {
		t.Errorf("written anew as %q", w)
	}
	computes(t, o, file, 1e-5)
}
