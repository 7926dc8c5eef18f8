package archs

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// The element types that graph inputs and outputs use most.
const (
	Float32 = onnxpb.TensorProto_FLOAT
	Int64   = onnxpb.TensorProto_INT64
)

// Attrs are the attributes of a node by name. A value is an int, float64,
// string, []int, []float64, []string, *onnxpb.TensorProto or
// *onnxpb.GraphProto.
type Attrs map[string]any

// Builder writes an ONNX graph in topological order. Values are named by
// strings; Node returns the name of what it computes. A Builder made by Scope
// writes to the same graph under a name prefix. The first mistake (an undefined
// input, a name used twice, a bad attribute) is kept and returned by Model.
type Builder struct {
	*graph
	nodePrefix   string // "/layer1/conv1"
	weightPrefix string // "layer1.conv1."
}

type graph struct {
	proto   *onnxpb.ModelProto
	weights []weight
	defined map[string]bool
	ops     map[string]int // how often a node name was wanted
	err     error
}

// New starts an empty graph at an ai.onnx opset, of IR version 8.
func New(name string, opset int) *Builder {
	return &Builder{graph: &graph{
		proto: &onnxpb.ModelProto{
			IrVersion:    8,
			ProducerName: "spc/tests/archs",
			OpsetImport:  []*onnxpb.OperatorSetIdProto{{Version: int64(opset)}},
			Graph:        &onnxpb.GraphProto{Name: name},
		},
		defined: map[string]bool{},
		ops:     map[string]int{},
	}}
}

// Scope returns a builder of the same graph whose nodes are named
// /…/name/Op and whose weights are named ….name.weight.
func (b *Builder) Scope(name string) *Builder {
	return &Builder{
		graph:        b.graph,
		nodePrefix:   b.nodePrefix + "/" + name,
		weightPrefix: b.weightPrefix + name + ".",
	}
}

func (g *graph) fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(g.proto.Graph.Name+": "+format, args...)
	}
}

func (g *graph) define(name string) {
	if g.defined[name] {
		g.fail("value %s is defined twice", name)
	}
	g.defined[name] = true
}

// Input adds a graph input. A dimension is an int or a symbol's name.
func (b *Builder) Input(name string, dtype onnxpb.TensorProto_DataType, dims ...any) string {
	b.define(name)
	b.proto.Graph.Input = append(b.proto.Graph.Input, b.valueInfo(name, dtype, dims))
	return name
}

// Output makes value a graph output under a name of its own. A dimension is an
// int or a symbol's name.
func (b *Builder) Output(name, value string, dtype onnxpb.TensorProto_DataType, dims ...any) {
	if !b.rename(value, name) {
		b.append(&onnxpb.NodeProto{Name: "/" + name + "/Identity", OpType: "Identity", Input: []string{value}, Output: []string{name}})
	}
	b.proto.Graph.Output = append(b.proto.Graph.Output, b.valueInfo(name, dtype, dims))
}

// rename gives a value that a node computes another name wherever it appears.
// It declines inputs, weights and values that are graph outputs already.
func (b *Builder) rename(from, to string) bool {
	g := b.proto.Graph
	if slices.ContainsFunc(g.Output, func(o *onnxpb.ValueInfoProto) bool { return o.Name == from }) ||
		!slices.ContainsFunc(g.Node, func(n *onnxpb.NodeProto) bool { return slices.Contains(n.Output, from) }) {
		return false
	}
	b.define(to)
	delete(b.defined, from)
	for _, n := range g.Node {
		for _, names := range [][]string{n.Input, n.Output} {
			for i, v := range names {
				if v == from {
					names[i] = to
				}
			}
		}
	}
	return true
}

func (g *graph) valueInfo(name string, dtype onnxpb.TensorProto_DataType, dims []any) *onnxpb.ValueInfoProto {
	shape := new(onnxpb.TensorShapeProto)
	for _, d := range dims {
		dim := new(onnxpb.TensorShapeProto_Dimension)
		switch d := d.(type) {
		case int:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}
		case string:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}
		default:
			g.fail("value %s: dimension of type %T, want int or string", name, d)
		}
		shape.Dim = append(shape.Dim, dim)
	}
	tensor := &onnxpb.TypeProto_Tensor{ElemType: int32(dtype), Shape: shape}
	return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: tensor}}}
}

// Node adds a node of the default domain with one output and returns that
// output's name. An empty input name leaves an optional input out.
func (b *Builder) Node(op string, attrs Attrs, inputs ...string) string {
	return b.Nodes(op, 1, attrs, inputs...)[0]
}

// Nodes is Node for an operator with several outputs.
func (b *Builder) Nodes(op string, outputs int, attrs Attrs, inputs ...string) []string {
	return b.nodes("", op, outputs, attrs, inputs...)
}

// Microsoft is Nodes for an operator that ONNX Runtime adds.
func (b *Builder) Microsoft(op string, outputs int, attrs Attrs, inputs ...string) []string {
	const domain = "com.microsoft"
	if !slices.ContainsFunc(b.proto.OpsetImport, func(o *onnxpb.OperatorSetIdProto) bool { return o.Domain == domain }) {
		b.proto.OpsetImport = append(b.proto.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: domain, Version: 1})
	}
	return b.nodes(domain, op, outputs, attrs, inputs...)
}

func (b *Builder) nodes(domain, op string, outputs int, attrs Attrs, inputs ...string) []string {
	name := b.nodePrefix + "/" + op
	if n := b.ops[name]; n > 0 {
		b.ops[name]++
		name = fmt.Sprintf("%s_%d", name, n)
	} else {
		b.ops[name] = 1
	}
	n := &onnxpb.NodeProto{Name: name, Domain: domain, OpType: op, Input: slices.Clone(inputs)}
	for i := range outputs {
		n.Output = append(n.Output, fmt.Sprintf("%s_output_%d", name, i))
	}
	for _, key := range sortedKeys(attrs) {
		n.Attribute = append(n.Attribute, b.attribute(name, key, attrs[key]))
	}
	b.append(n)
	return slices.Clone(n.Output)
}

func (b *Builder) append(n *onnxpb.NodeProto) {
	for _, in := range n.Input {
		if in != "" && !b.defined[in] {
			b.fail("%s (%s): input %s is not defined", n.Name, n.OpType, in)
		}
	}
	for _, out := range n.Output {
		b.define(out)
	}
	b.proto.Graph.Node = append(b.proto.Graph.Node, n)
}

func (g *graph) attribute(node, name string, value any) *onnxpb.AttributeProto {
	a := &onnxpb.AttributeProto{Name: name}
	switch v := value.(type) {
	case int:
		a.Type, a.I = onnxpb.AttributeProto_INT, int64(v)
	case float64:
		a.Type, a.F = onnxpb.AttributeProto_FLOAT, float32(v)
	case string:
		a.Type, a.S = onnxpb.AttributeProto_STRING, []byte(v)
	case []int:
		a.Type = onnxpb.AttributeProto_INTS
		for _, x := range v {
			a.Ints = append(a.Ints, int64(x))
		}
	case []float64:
		a.Type = onnxpb.AttributeProto_FLOATS
		for _, x := range v {
			a.Floats = append(a.Floats, float32(x))
		}
	case []string:
		a.Type = onnxpb.AttributeProto_STRINGS
		for _, x := range v {
			a.Strings = append(a.Strings, []byte(x))
		}
	case *onnxpb.TensorProto:
		a.Type, a.T = onnxpb.AttributeProto_TENSOR, v
	case *onnxpb.GraphProto:
		a.Type, a.G = onnxpb.AttributeProto_GRAPH, v
	default:
		g.fail("%s: attribute %s has type %T", node, name, value)
	}
	return a
}

// Weight adds a float32 parameter of random elements and returns its name.
func (b *Builder) Weight(name string, f Fill, dims ...int) string {
	return b.addWeight(name, f, dims, false)
}

// Buffer is Weight for what training does not learn, such as a batch
// normalization's running mean; Params leaves it out.
func (b *Builder) Buffer(name string, f Fill, dims ...int) string {
	return b.addWeight(name, f, dims, true)
}

func (b *Builder) addWeight(name string, f Fill, dims []int, buffer bool) string {
	name = b.weightPrefix + name
	b.define(name)
	for _, d := range dims {
		if d < 1 {
			b.fail("weight %s: dims %v, want positive ones", name, dims)
			return name
		}
	}
	b.weights = append(b.weights, weight{name: name, dims: slices.Clone(dims), fill: f, buffer: buffer})
	return name
}

// Initializer adds a tensor of given elements under a name and returns the name.
func (b *Builder) Initializer(name string, t *onnxpb.TensorProto) string {
	name = b.weightPrefix + name
	b.define(name)
	t = proto.CloneOf(t)
	t.Name = name
	b.proto.Graph.Initializer = append(b.proto.Graph.Initializer, t)
	return name
}

// Constant adds a Constant node, which is where exporters put the numbers that
// shapes and formulas need.
func (b *Builder) Constant(t *onnxpb.TensorProto) string {
	return b.Node("Constant", Attrs{"value": t})
}

// Scalar adds a Constant node of one float32, of rank 0.
func (b *Builder) Scalar(v float64) string {
	return b.Constant(&onnxpb.TensorProto{DataType: int32(Float32), FloatData: []float32{float32(v)}})
}

// Index adds a Constant node of one int64, of rank 0.
func (b *Builder) Index(v int) string {
	return b.Constant(&onnxpb.TensorProto{DataType: int32(Int64), Int64Data: []int64{int64(v)}})
}

// Ints adds a Constant node of an int64 vector.
func (b *Builder) Ints(v ...int) string {
	return b.Constant(IntVector(v...))
}

// IntVector returns an int64 tensor of rank 1.
func IntVector(v ...int) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{DataType: int32(Int64), Dims: []int64{int64(len(v))}}
	for _, x := range v {
		t.Int64Data = append(t.Int64Data, int64(x))
	}
	return t
}

// Model ends the graph. Weights are drawn from seed when the model is written.
func (b *Builder) Model(seed uint64) (*Model, error) {
	if b.err != nil {
		return nil, b.err
	}
	return &Model{proto: b.proto, weights: b.weights, seed: seed}, nil
}
