package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"google.golang.org/protobuf/proto"

	"spc/demo/glyphs"
	"spc/ir/onnx/onnxpb"
)

// graph collects the nodes and weights of an ONNX graph. A node's output has
// the node's name.
type graph struct {
	*onnxpb.GraphProto
}

func (g *graph) node(op, name string, attrs []*onnxpb.AttributeProto, inputs ...string) string {
	g.Node = append(g.Node, &onnxpb.NodeProto{
		OpType: op, Name: name, Attribute: attrs, Input: inputs, Output: []string{name},
	})
	return name
}

func ints(name string, values ...int) *onnxpb.AttributeProto {
	a := &onnxpb.AttributeProto{Name: name, Type: onnxpb.AttributeProto_INTS}
	for _, v := range values {
		a.Ints = append(a.Ints, int64(v))
	}
	return a
}

// window gives the attributes of a square window.
func window(kernel, stride, pad int) []*onnxpb.AttributeProto {
	return []*onnxpb.AttributeProto{
		ints("kernel_shape", kernel, kernel),
		ints("pads", pad, pad, pad, pad),
		ints("strides", stride, stride),
	}
}

func (l *conv[T]) export(g *graph, input string) string {
	return g.node("Conv", l.name, window(l.kernel, l.stride, l.pad), input, l.weight.name)
}

func (l *batchNorm[T]) export(g *graph, input string) string {
	epsilon := &onnxpb.AttributeProto{Name: "epsilon", Type: onnxpb.AttributeProto_FLOAT, F: normEpsilon}
	return g.node("BatchNormalization", l.name, []*onnxpb.AttributeProto{epsilon},
		input, l.scale.name, l.shift.name, l.runningMean.name, l.runningVar.name)
}

func (l *relu[T]) export(g *graph, input string) string {
	return g.node("Relu", l.name, nil, input)
}

func (l *maxPool[T]) export(g *graph, input string) string {
	return g.node("MaxPool", l.name, window(l.kernel, l.stride, l.pad), input)
}

func (l *residual[T]) export(g *graph, input string) string {
	return g.node("Add", l.name, nil, l.body.export(g, input), input)
}

func (l *flatten[T]) export(g *graph, input string) string {
	return g.node("Flatten", l.name, nil, input)
}

func (l *gemm[T]) export(g *graph, input string) string {
	transB := &onnxpb.AttributeProto{Name: "transB", Type: onnxpb.AttributeProto_INT, I: 1}
	return g.node("Gemm", l.name, []*onnxpb.AttributeProto{transB}, input, l.weight.name, l.bias.name)
}

func (c chain[T]) export(g *graph, input string) string {
	for _, l := range c {
		input = l.export(g, input)
	}
	return input
}

// encode returns net as an ONNX model: input image, float [batch, 1, 28, 28],
// pixels divided by 255; output logits, float [batch, 36].
func encode(net chain[float32]) ([]byte, error) {
	g := &graph{&onnxpb.GraphProto{Name: "glyphs"}}
	last := net.export(g, "image")
	g.Node[len(g.Node)-1].Output[0] = "logits"
	for _, p := range net.params() {
		t := &onnxpb.TensorProto{Name: p.name, DataType: int32(onnxpb.TensorProto_FLOAT)}
		for _, d := range p.dims {
			t.Dims = append(t.Dims, int64(d))
		}
		for _, v := range p.value {
			t.RawData = binary.LittleEndian.AppendUint32(t.RawData, math.Float32bits(v))
		}
		g.Initializer = append(g.Initializer, t)
	}
	g.Input = []*onnxpb.ValueInfoProto{valueInfo("image", 1, glyphs.Size, glyphs.Size)}
	g.Output = []*onnxpb.ValueInfoProto{valueInfo("logits", len(glyphs.Classes))}
	if n := len(g.Node); n == 0 || g.Node[n-1].Name != last {
		return nil, fmt.Errorf("network ends in %s, want its last node", last)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(&onnxpb.ModelProto{
		IrVersion:    8,
		ProducerName: "spc demo/train",
		OpsetImport:  []*onnxpb.OperatorSetIdProto{{Version: 17}},
		Graph:        g.GraphProto,
	})
}

// valueInfo describes a float tensor with a leading symbolic batch.
func valueInfo(name string, dims ...int) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{
		{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "batch"}},
	}}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{
			Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)},
		})
	}
	tensor := &onnxpb.TypeProto_Tensor{ElemType: int32(onnxpb.TensorProto_FLOAT), Shape: shape}
	return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: tensor}}}
}

// load reads the parameters of the demo's network from a model that encode
// wrote.
func load(path string) (chain[float32], error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m onnxpb.ModelProto
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	tensors := map[string]*onnxpb.TensorProto{}
	for _, t := range m.GetGraph().GetInitializer() {
		tensors[t.Name] = t
	}
	net := newNetwork[float32]()
	for _, p := range net.params() {
		t := tensors[p.name]
		if t == nil || len(t.RawData) != 4*len(p.value) {
			return nil, fmt.Errorf("%s: no weight %s of %d floats", path, p.name, len(p.value))
		}
		for i := range p.value {
			p.value[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.RawData[4*i:]))
		}
	}
	return net, nil
}
