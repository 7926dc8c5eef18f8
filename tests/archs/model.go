package archs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// Fill is the distribution of a weight's elements: bell-shaped about Mean with
// standard deviation Std, and never further than 3.47 Std from Mean.
type Fill struct{ Mean, Std float64 }

// He keeps the variance of activations through a layer of fanIn inputs and a
// following ReLU (He et al., 2015, "Delving Deep into Rectifiers").
func He(fanIn int) Fill { return Fill{Std: math.Sqrt(2 / float64(fanIn))} }

// LeCun keeps the variance of activations through a linear layer of fanIn
// inputs (LeCun et al., 1998, "Efficient BackProp").
func LeCun(fanIn int) Fill { return Fill{Std: math.Sqrt(1 / float64(fanIn))} }

// Near draws elements close to mean: gains about 1, biases about 0.
func Near(mean float64) Fill { return Fill{Mean: mean, Std: 0.05} }

// source draws the elements of one weight. An element is the sum of four
// uniform 16-bit integers, moved and scaled, so that the same bits come out on
// every machine: no transcendental function, no fused multiply-add.
type source struct {
	pcg         *rand.PCG
	mean, scale float32
}

func (f Fill) source(seed uint64, name string) source {
	h := fnv.New64a()
	io.WriteString(h, name)
	const variance = 4 * (1<<32 - 1) / 12.0 // of the sum of four uniform integers below 1<<16
	return source{
		pcg:   rand.NewPCG(seed, h.Sum64()),
		mean:  float32(f.Mean),
		scale: float32(f.Std / math.Sqrt(variance)),
	}
}

func (s source) next() float32 {
	u := s.pcg.Uint64()
	sum := int32(u&0xffff) + int32(u>>16&0xffff) + int32(u>>32&0xffff) + int32(u>>48)
	return s.mean + float32(float32(sum-2*0xffff)*s.scale)
}

// Draw draws all of dst; a seed and a name give the same elements on every machine.
func (f Fill) Draw(seed uint64, name string, dst []float32) {
	src := f.source(seed, name)
	for i := range dst {
		dst[i] = src.next()
	}
}

// weight is a float32 initializer whose elements are drawn when written.
type weight struct {
	name   string
	dims   []int
	fill   Fill
	buffer bool
}

func (w weight) len() int {
	n := 1
	for _, d := range w.dims {
		n *= d
	}
	return n
}

// header is the tensor without its elements.
func (w weight) header() *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: w.name, DataType: int32(Float32)}
	for _, d := range w.dims {
		t.Dims = append(t.Dims, int64(d))
	}
	return t
}

// writeTo writes the elements, little-endian, in row-major order.
func (w weight) writeTo(out io.Writer, seed uint64) error {
	src := w.fill.source(seed, w.name)
	buf := make([]byte, 0, 4*min(w.len(), 1<<14))
	for left := w.len(); left > 0; {
		n := min(left, cap(buf)/4)
		for range n {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(src.next()))
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
		buf, left = buf[:0], left-n
	}
	return nil
}

// Model is a network whose random weights exist only as a seed until it is
// written.
type Model struct {
	proto   *onnxpb.ModelProto // without the random weights
	weights []weight
	seed    uint64
}

// Params returns the number of learnt elements: weights, without buffers.
func (m *Model) Params() int {
	n := 0
	for _, w := range m.weights {
		if !w.buffer {
			n += w.len()
		}
	}
	return n
}

// Proto returns the whole model as a message of its own.
func (m *Model) Proto() *onnxpb.ModelProto {
	p := proto.CloneOf(m.proto)
	for _, w := range m.weights {
		var raw bytes.Buffer
		raw.Grow(4 * w.len())
		w.writeTo(&raw, m.seed) // a bytes.Buffer returns no error
		t := w.header()
		t.RawData = raw.Bytes()
		p.Graph.Initializer = append(p.Graph.Initializer, t)
	}
	return p
}

// Bytes returns the model as a .onnx file.
func (m *Model) Bytes() []byte {
	var out bytes.Buffer
	m.WriteTo(&out) // a bytes.Buffer returns no error
	return out.Bytes()
}

const (
	modelGraph       = 7 // ModelProto.graph
	graphInitializer = 5 // GraphProto.initializer
	tensorRawData    = 9 // TensorProto.raw_data
)

// WriteTo writes the model as a .onnx file, drawing weights as it goes: it
// holds the graph and 64 KiB of weights in memory, whatever the model's size.
func (m *Model) WriteTo(out io.Writer) (int64, error) {
	top := proto.CloneOf(m.proto)
	graph := top.Graph
	top.Graph = nil
	head, err := proto.Marshal(top)
	if err != nil {
		return 0, err
	}
	body, err := proto.Marshal(graph)
	if err != nil {
		return 0, err
	}

	// The lengths of nested messages come before them, so they are summed first.
	prefixes := make([][]byte, len(m.weights)) // all of an initializer but its elements
	graphLen := len(body)
	for i, w := range m.weights {
		t, err := proto.Marshal(w.header())
		if err != nil {
			return 0, err
		}
		t = protowire.AppendTag(t, tensorRawData, protowire.BytesType)
		t = protowire.AppendVarint(t, uint64(4*w.len()))
		p := protowire.AppendTag(nil, graphInitializer, protowire.BytesType)
		p = protowire.AppendVarint(p, uint64(len(t)+4*w.len()))
		prefixes[i] = append(p, t...)
		graphLen += len(prefixes[i]) + 4*w.len()
	}
	head = protowire.AppendTag(head, modelGraph, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(graphLen))

	c := &counter{w: out}
	c.Write(head)
	c.Write(body)
	for i, w := range m.weights {
		c.Write(prefixes[i])
		if err := w.writeTo(c, m.seed); err != nil {
			break
		}
	}
	return c.n, c.err
}

// counter counts what it writes and keeps the first error.
type counter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *counter) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.err = err
	return n, err
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
