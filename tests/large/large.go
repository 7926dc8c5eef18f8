// Package large writes models with many weights, and measures what memory and time a
// command takes on them.
package large

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// Model is a stack of products of matrices f32[Width,Width], each with a bias and a Relu
// behind it. Its weights follow from the seed.
type Model struct {
	Layers, Width int
	Seed          uint64
	// External is the name of the file that has the weights, beside the model; empty where
	// they lie in the model.
	External string
}

// Bytes is the size of the weights.
func (m *Model) Bytes() int { return 4 * m.Layers * m.Width * m.Width }

// Write writes the model. It holds one row of a weight in memory.
func (m *Model) Write(path string) error {
	head := &onnxpb.ModelProto{IrVersion: 8, ProducerName: "large", OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 17}}}
	b, err := proto.Marshal(head)
	if err != nil {
		return err
	}
	graph, err := m.graph()
	if err != nil {
		return err
	}
	weights := make([][]byte, m.Layers) // all but the elements
	size := len(graph)
	for i := range weights {
		if weights[i], err = m.weight(i); err != nil {
			return err
		}
		size += protowire.SizeTag(5) + protowire.SizeBytes(len(weights[i])+m.inline())
	}
	const graphField, initializer = 7, 5
	b = protowire.AppendTag(b, graphField, protowire.BytesType)
	b = append(protowire.AppendVarint(b, uint64(size)), graph...)
	return create(path, func(w io.Writer) error {
		if _, err := w.Write(b); err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(m.Seed, 1))
		for _, t := range weights {
			h := protowire.AppendTag(nil, initializer, protowire.BytesType)
			h = append(protowire.AppendVarint(h, uint64(len(t)+m.inline())), t...)
			if _, err := w.Write(h); err != nil {
				return err
			}
			if m.External == "" {
				if err := m.elements(w, random); err != nil {
					return err
				}
			}
		}
		if m.External == "" {
			return nil
		}
		return create(filepath.Join(filepath.Dir(path), m.External), func(w io.Writer) error {
			for range weights {
				if err := m.elements(w, random); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// create writes a file.
func create(path string, write func(w io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// inline is how many bytes of a weight lie in the model.
func (m *Model) inline() int {
	if m.External != "" {
		return 0
	}
	return 4 * m.Width * m.Width
}

// weight is the message of weight i without the elements that it ends with.
func (m *Model) weight(i int) ([]byte, error) {
	t := &onnxpb.TensorProto{Name: fmt.Sprintf("w%d", i), DataType: 1, Dims: []int64{int64(m.Width), int64(m.Width)}}
	if m.External != "" {
		t.DataLocation = onnxpb.TensorProto_EXTERNAL
		n := 4 * m.Width * m.Width
		for _, e := range [][2]string{{"location", m.External}, {"offset", strconv.Itoa(i * n)}, {"length", strconv.Itoa(n)}} {
			t.ExternalData = append(t.ExternalData, &onnxpb.StringStringEntryProto{Key: e[0], Value: e[1]})
		}
	}
	b, err := proto.Marshal(t)
	if err != nil || m.External != "" {
		return b, err
	}
	const rawData = 9
	b = protowire.AppendTag(b, rawData, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(m.inline())), nil
}

// elements writes those of a weight: uniform, with the variance that keeps the scale of what
// a Relu gives.
func (m *Model) elements(w io.Writer, random *rand.Rand) error {
	row := make([]byte, 4*m.Width)
	scale := float32(math.Sqrt(6 / float64(m.Width)))
	for range m.Width {
		for i := 0; i < len(row); i += 8 {
			v := random.Uint64()
			for k := 0; k < 8 && i+k < len(row); k += 4 {
				x := float32(int32(v>>(8*k))) / (1 << 31) * scale
				binary.LittleEndian.PutUint32(row[i+k:], math.Float32bits(x))
			}
		}
		if _, err := w.Write(row); err != nil {
			return err
		}
	}
	return nil
}

// graph is the message of the graph without the weights.
func (m *Model) graph() ([]byte, error) {
	g := &onnxpb.GraphProto{Name: "large"}
	last := "x"
	for i := range m.Layers {
		product, sum, out := fmt.Sprintf("p%d", i), fmt.Sprintf("s%d", i), fmt.Sprintf("y%d", i)
		bias := &onnxpb.TensorProto{Name: fmt.Sprintf("b%d", i), DataType: 1, Dims: []int64{int64(m.Width)}, FloatData: make([]float32, m.Width)}
		for k := range bias.FloatData {
			bias.FloatData[k] = 0.01 * float32(k%7)
		}
		g.Initializer = append(g.Initializer, bias)
		g.Node = append(g.Node,
			&onnxpb.NodeProto{Name: "product" + strconv.Itoa(i), OpType: "MatMul", Input: []string{last, fmt.Sprintf("w%d", i)}, Output: []string{product}},
			&onnxpb.NodeProto{Name: "sum" + strconv.Itoa(i), OpType: "Add", Input: []string{product, bias.Name}, Output: []string{sum}},
			&onnxpb.NodeProto{Name: "relu" + strconv.Itoa(i), OpType: "Relu", Input: []string{sum}, Output: []string{out}})
		last = out
	}
	g.Input, g.Output = []*onnxpb.ValueInfoProto{m.port("x")}, []*onnxpb.ValueInfoProto{m.port(last)}
	return proto.Marshal(g)
}

// port is an input or output f32[1,Width].
func (m *Model) port(name string) *onnxpb.ValueInfoProto {
	size := func(n int) *onnxpb.TensorShapeProto_Dimension {
		return &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(n)}}
	}
	shape := &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{size(1), size(m.Width)}}
	return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: 1, Shape: shape}}}}
}
