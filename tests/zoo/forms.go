package zoo

import (
	"fmt"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/contrib"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// Forms are those in which people have transformers beside that of their exporter, each a folder of graphs and outputs as Graphs is:
// what ONNX Runtime's optimiser saves at its levels, and weights of 4 bits.
var Forms = []string{"extended", "all", "4bits"}

// Nchwc is the folder of the forms at level all that have convolutions, whose layout is that of one machine.
const Nchwc = "nchwc"

// FormFolder is the folder of a form, below that of the list.
func FormFolder(form string) string { return filepath.Join(Graphs, form) }

// HasNchwc reports whether a model has operators of ONNX Runtime's own layout of images.
func HasNchwc(model []byte) (bool, error) {
	m := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(model, m); err != nil {
		return false, err
	}
	for _, n := range m.GetGraph().GetNode() {
		if n.GetDomain() == contrib.Domain+".nchwc" {
			return true, nil
		}
	}
	return false, nil
}

// group is the number of weights along K that share a scale in the form of 4 bits.
const group = 32

// FourBits makes com.microsoft:MatMulNBits of each product with a constant matrix of f32, [K, N], whose K is at least group; every other
// one has zero points.
func FourBits(model []byte) ([]byte, error) {
	m := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(model, m); err != nil {
		return nil, err
	}
	g := m.Graph
	weights := map[string]*tensor.Tensor{}
	for _, p := range g.Initializer {
		t, err := tensor.FromProto(p, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.GetName(), err)
		}
		weights[p.GetName()] = t
	}
	made := 0
	for _, n := range g.Node {
		if n.GetOpType() != "MatMul" || n.GetDomain() != "" {
			continue
		}
		w := weights[n.Input[1]]
		if w == nil || w.DType() != tensor.F32 || w.Rank() != 2 || w.Dim(0) < group {
			continue
		}
		g.Initializer = append(g.Initializer, fourBits(n, w, made%2 == 1)...)
		made++
	}
	if made == 0 {
		return nil, nil
	}
	g.Initializer = inUse(g)
	m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: contrib.Domain, Version: 1})
	return proto.Marshal(m)
}

// fourBits turns n into a product with w in 4 bits, and returns its constants: bytes [N, blocks, group/2], the lower half of each first,
// scales [N, blocks] and, where they are wanted, zero points [N, blocks/2], which else are 8.
func fourBits(n *onnxpb.NodeProto, w *tensor.Tensor, zeros bool) []*onnxpb.TensorProto {
	rows, cols := w.Dim(0), w.Dim(1)
	blocks := (rows + group - 1) / group
	x := w.F32s()
	packed := tensor.New(tensor.U8, cols, blocks, group/2)
	scales := tensor.New(tensor.F32, cols, blocks)
	points := tensor.New(tensor.U8, cols*((blocks+1)/2))
	for c := range cols {
		for b := range blocks {
			low, high := float32(0), float32(0)
			for k := b * group; k < min(rows, (b+1)*group); k++ {
				low, high = min(low, x[k*cols+c]), max(high, x[k*cols+c])
			}
			scale, zero := max(high, -low)/7, float32(8)
			if zeros {
				scale = (high - low) / 15
				zero = float32(int(-low/max(scale, 1e-20) + 0.5))
				points.Bytes()[c*((blocks+1)/2)+b/2] |= byte(zero) << (4 * (b % 2))
			}
			scales.F32s()[c*blocks+b] = scale
			for i := range min(group, rows-b*group) {
				q := min(max(x[(b*group+i)*cols+c]/max(scale, 1e-20)+zero+0.5, 0), 15)
				packed.Bytes()[(c*blocks+b)*group/2+i/2] |= byte(q) << (4 * (i % 2))
			}
		}
	}
	name := n.Input[1]
	if n.GetName() != "" {
		name = n.GetName() + "_" + name
	}
	list := []*onnxpb.TensorProto{packed.ToProto(name + "_q4"), scales.ToProto(name + "_scales")}
	if zeros {
		list = append(list, points.ToProto(name+"_zeros"))
	}
	n.OpType, n.Domain = "MatMulNBits", contrib.Domain
	n.Input = n.Input[:1]
	for _, p := range list {
		n.Input = append(n.Input, p.GetName())
	}
	for _, a := range []struct {
		name string
		v    int
	}{{"K", rows}, {"N", cols}, {"bits", 4}, {"block_size", group}} { // in an order, so that the file is the same every time
		n.Attribute = append(n.Attribute, &onnxpb.AttributeProto{Name: a.name, Type: onnxpb.AttributeProto_INT, I: int64(a.v)})
	}
	return list
}

// inUse returns the initializers that something reads.
func inUse(g *onnxpb.GraphProto) []*onnxpb.TensorProto {
	read := map[string]bool{}
	readBy(g, read)
	var kept []*onnxpb.TensorProto
	for _, p := range g.Initializer {
		if read[p.GetName()] {
			kept = append(kept, p)
		}
	}
	return kept
}

func readBy(g *onnxpb.GraphProto, read map[string]bool) {
	for _, n := range g.Node {
		for _, in := range n.Input {
			read[in] = true
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				readBy(a.G, read)
			}
		}
	}
	for _, v := range g.Output {
		read[v.GetName()] = true
	}
}
