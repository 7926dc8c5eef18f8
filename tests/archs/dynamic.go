package archs

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// Dynamic says how weights are quantised by QuantizeDynamic.
type Dynamic struct {
	Unsigned bool // weights are u8 with zero points, not i8 with 0
	PerRow   bool // each output channel of a MatMul has a scale and a zero point
}

// QuantizeDynamic writes the products of a model with weights among its initializers as
// onnxruntime.quantization.quantize_dynamic does: DynamicQuantizeLinear, once for all readers of a
// value, MatMulInteger or ConvInteger, Cast, Mul by both scales, and Add of a bias. A Gemm of
// transposed weights is a MatMul and an Add before.
func QuantizeDynamic(m *onnxpb.ModelProto, d Dynamic) *onnxpb.ModelProto {
	m = proto.CloneOf(m)
	q := &dynamic{Dynamic: d, graph: m.Graph, weights: map[string]*onnxpb.TensorProto{}, quantised: map[string][]string{}}
	for _, t := range m.Graph.Initializer {
		q.weights[t.Name] = t
	}
	for _, n := range m.Graph.Node {
		q.node(n)
	}
	m.Graph.Node = q.nodes
	read := map[string]bool{}
	for _, n := range q.nodes {
		for _, v := range n.Input {
			read[v] = true
		}
	}
	m.Graph.Initializer = slices.DeleteFunc(m.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return !read[t.Name] })
	return m
}

type dynamic struct {
	Dynamic
	graph     *onnxpb.GraphProto
	weights   map[string]*onnxpb.TensorProto
	quantised map[string][]string // by value, its u8, scale and zero point
	nodes     []*onnxpb.NodeProto
}

func (q *dynamic) add(op string, attrs []*onnxpb.AttributeProto, in []string, out ...string) []string {
	q.nodes = append(q.nodes, &onnxpb.NodeProto{Name: fmt.Sprintf("%s_%d", op, len(q.nodes)), OpType: op, Attribute: attrs, Input: in, Output: out})
	return out
}

func (q *dynamic) constant(name string, dt onnxpb.TensorProto_DataType, raw []byte, dims ...int64) string {
	q.graph.Initializer = append(q.graph.Initializer, &onnxpb.TensorProto{Name: name, DataType: int32(dt), Dims: dims, RawData: raw})
	return name
}

// node writes n, or what takes its place.
func (q *dynamic) node(n *onnxpb.NodeProto) {
	var w *onnxpb.TensorProto
	if len(n.Input) > 1 {
		w = q.weights[n.Input[1]]
	}
	y := n.Output[0]
	switch {
	case w == nil || w.DataType != int32(Float32):
	case n.OpType == "MatMul" && len(w.Dims) == 2:
		q.product("MatMulInteger", n, w, floats(w), w.Dims, y)
		return
	case n.OpType == "Gemm" && len(n.Input) == 3 && slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return a.Name == "transB" && a.I == 1 }):
		rows, cols := w.Dims[0], w.Dims[1]
		src, turned := floats(w), make([]float32, rows*cols)
		for i := range turned {
			turned[i] = src[int64(i)%rows*cols+int64(i)/rows]
		}
		q.product("MatMulInteger", &onnxpb.NodeProto{Input: n.Input[:1]}, w, turned, []int64{cols, rows}, y+".product")
		q.add("Add", nil, []string{y + ".product", n.Input[2]}, y)
		return
	case n.OpType == "Conv":
		if len(n.Input) < 3 {
			q.product("ConvInteger", n, w, floats(w), w.Dims, y)
			return
		}
		q.product("ConvInteger", n, w, floats(w), w.Dims, y+".product")
		b := q.weights[n.Input[2]]
		shape := append([]int64{1, -1}, slices.Repeat([]int64{1}, len(w.Dims)-2)...)
		s := q.constant(y+".shape", Int64, encode(shape), int64(len(shape)))
		q.add("Add", nil, []string{y + ".product", q.add("Reshape", nil, []string{b.Name, s}, y+".bias")[0]}, y)
		return
	}
	q.nodes = append(q.nodes, n)
}

// product writes the product of integers of the first input of n with a weight.
func (q *dynamic) product(op string, n *onnxpb.NodeProto, w *onnxpb.TensorProto, x []float32, dims []int64, y string) {
	in := n.Input[0]
	if q.quantised[in] == nil {
		q.quantised[in] = q.add("DynamicQuantizeLinear", nil, []string{in}, in+".u8", in+".scale", in+".zero")
	}
	u := q.quantised[in]
	rows := 1
	if q.PerRow && op == "MatMulInteger" {
		rows = int(dims[len(dims)-1])
	}
	ints, scales, zeros := q.round(x, rows)
	dt, shape := onnxpb.TensorProto_INT8, []int64{int64(rows)}
	if q.Unsigned {
		dt = onnxpb.TensorProto_UINT8
	}
	if rows == 1 {
		shape = nil
	}
	name := w.Name + "." + y // a weight may be read twice
	q.add(op, n.Attribute, []string{u[0], q.constant(name+".int", dt, ints, dims...), u[2], q.constant(name+".zero", dt, zeros, shape...)}, y+".sums")
	q.add("Cast", []*onnxpb.AttributeProto{{Name: "to", Type: onnxpb.AttributeProto_INT, I: int64(Float32)}}, []string{y + ".sums"}, y+".cast")
	q.add("Mul", nil, []string{u[1], q.constant(name+".scale", Float32, encode(scales), shape...)}, y+".scales")
	q.add("Mul", nil, []string{y + ".cast", y + ".scales"}, y)
}

// round returns elements in integers, with scales and zero points for those that lie rows apart.
func (q *dynamic) round(x []float32, rows int) (ints []byte, scales []float32, zeros []byte) {
	ints, scales, zeros = make([]byte, len(x)), make([]float32, rows), make([]byte, rows)
	for r := range rows {
		var lo, hi float64
		for i := r; i < len(x); i += rows {
			lo, hi = min(lo, float64(x[i])), max(hi, float64(x[i]))
		}
		least, most, scale, zero := -127., 127., max(-lo, hi)/127, 0.
		if q.Unsigned {
			least, most, scale = 0, 255, (hi-lo)/255
		}
		if scale == 0 {
			scale = 1
		}
		if q.Unsigned {
			zero = math.Round(-lo / scale)
		}
		scales[r], zeros[r] = float32(scale), byte(int(zero))
		for i := r; i < len(x); i += rows {
			ints[i] = byte(int(max(least, min(most, math.RoundToEven(float64(x[i])/scale)+zero))))
		}
	}
	return ints, scales, zeros
}

// floats returns the elements of a tensor.
func floats(t *onnxpb.TensorProto) []float32 {
	if len(t.FloatData) > 0 {
		return t.FloatData
	}
	x := make([]float32, len(t.RawData)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.RawData[4*i:]))
	}
	return x
}

// encode returns numbers as raw data.
func encode(v any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err) // v is of numbers
	}
	return b
}
