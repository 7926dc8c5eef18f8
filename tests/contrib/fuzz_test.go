package contrib

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
)

// damages are what may happen to a model of one node.
var damages = []func(r *rand.Rand, g *onnxpb.GraphProto, n *onnxpb.NodeProto){
	func(r *rand.Rand, g *onnxpb.GraphProto, _ *onnxpb.NodeProto) { // another size
		if s := someShape(r, g); s != nil && len(s.Dim) > 0 {
			s.Dim[r.IntN(len(s.Dim))] = someDim(r)
		}
	},
	func(r *rand.Rand, g *onnxpb.GraphProto, _ *onnxpb.NodeProto) { // another rank
		if s := someShape(r, g); s != nil && r.IntN(2) == 0 {
			s.Dim = slices.Insert(s.Dim, r.IntN(len(s.Dim)+1), someDim(r))
		} else if s != nil && len(s.Dim) > 0 {
			s.Dim = slices.Delete(s.Dim, 0, 1+r.IntN(len(s.Dim)))
		}
	},
	func(r *rand.Rand, g *onnxpb.GraphProto, _ *onnxpb.NodeProto) { // no rank
		if len(g.Input) > 0 {
			g.Input[r.IntN(len(g.Input))].GetType().GetTensorType().Shape = nil
		}
	},
	func(r *rand.Rand, g *onnxpb.GraphProto, _ *onnxpb.NodeProto) { // another type
		if len(g.Input) > 0 {
			types := []tensor.DType{tensor.F16, tensor.F32, tensor.F64, tensor.I32, tensor.I64, tensor.U8, tensor.Bool, tensor.String}
			g.Input[r.IntN(len(g.Input))].GetType().GetTensorType().ElemType = int32(types[r.IntN(len(types))])
		}
	},
	func(r *rand.Rand, g *onnxpb.GraphProto, _ *onnxpb.NodeProto) { // another constant
		if len(g.Initializer) > 0 {
			i := r.IntN(len(g.Initializer))
			shape := make([]int, r.IntN(4))
			for k := range shape {
				shape[k] = r.IntN(9)
			}
			g.Initializer[i] = tensor.New(tensor.F32, shape...).ToProto(g.Initializer[i].GetName())
		}
	},
	func(r *rand.Rand, _ *onnxpb.GraphProto, n *onnxpb.NodeProto) { // other inputs
		switch i := r.IntN(len(n.Input)); r.IntN(4) {
		case 0:
			n.Input = n.Input[:i]
		case 1:
			n.Input[i] = ""
		case 2:
			n.Input = append(n.Input, n.Input[i])
		default:
			k := r.IntN(len(n.Input))
			n.Input[i], n.Input[k] = n.Input[k], n.Input[i]
		}
	},
	func(r *rand.Rand, g *onnxpb.GraphProto, n *onnxpb.NodeProto) { // other outputs
		more := "more"
		for range r.IntN(4) {
			n.Output = append(n.Output, more)
			if g.Output = append(g.Output, info(more, tensor.Undefined, nil)); r.IntN(2) == 0 {
				n.Output = slices.Insert(n.Output, len(n.Output)-1, "")
			}
			more += "+"
		}
	},
	func(r *rand.Rand, _ *onnxpb.GraphProto, n *onnxpb.NodeProto) { // another attribute
		if len(n.Attribute) == 0 {
			return
		}
		i := r.IntN(len(n.Attribute))
		name := n.Attribute[i].GetName()
		switch r.IntN(6) {
		case 0:
			n.Attribute = slices.Delete(n.Attribute, i, i+1)
		case 1, 2:
			n.Attribute[i] = attribute(name, []int{-1, 0, 1, 2, 3, 4, 7, 1 << 20, math.MaxInt, math.MinInt}[r.IntN(10)])
		case 3:
			n.Attribute[i] = attribute(name, []float32{0, -1, 0.5, float32(math.NaN()), float32(math.Inf(-1)), math.MaxFloat32}[r.IntN(6)])
		case 4:
			n.Attribute[i] = attribute(name, []string{"", "Relu", "Clip", "If", "Gelu", "IsNaN"}[r.IntN(6)])
		default:
			list := make([]int, r.IntN(5))
			for k := range list {
				list[k] = []int{-1, 0, 2, 4, 6, 8, math.MaxInt}[r.IntN(7)]
			}
			n.Attribute[i] = attribute(name, list)
		}
	},
}

func someShape(r *rand.Rand, g *onnxpb.GraphProto) *onnxpb.TensorShapeProto {
	if len(g.Input) == 0 {
		return nil
	}
	return g.Input[r.IntN(len(g.Input))].GetType().GetTensorType().GetShape()
}

func someDim(r *rand.Rand) *onnxpb.TensorShapeProto_Dimension {
	if i := r.IntN(12); i < 3 {
		return &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: []string{"batch", "tokens", "other"}[i]}}
	}
	n := []int64{0, 1, 2, 3, 4, 5, 6, 8, 10, 1 << 40}[r.IntN(10)]
	return &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}}
}

// allCases makes the cases of all rows.
func allCases() (cases []*Case) {
	for i := range Rows {
		cases = append(cases, Rows[i].Make()...)
	}
	return cases
}

// importDamaged imports a damaged model of one of the cases: where it is not refused it satisfies Verify, and its text form reads back.
func importDamaged(cases []*Case, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 3))
	m := proto.Clone(cases[r.IntN(len(cases))].Model).(*onnxpb.ModelProto)
	for range 1 + r.IntN(3) {
		if n := m.Graph.Node[r.IntN(len(m.Graph.Node))]; len(n.Input) > 0 {
			damages[r.IntN(len(damages))](r, m.Graph, n)
		}
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	g, _, err := onnx.ImportBytes(b, "", onnx.Options{})
	if errors.Is(err, ir.ErrInvalid) || errors.Is(err, ir.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w is no error of a model", err)
	}
	if err := g.Verify(); err != nil {
		return fmt.Errorf("%w in\n%v", err, g)
	}
	if _, err := ir.Parse(ir.Print(g), op.Registry); err != nil {
		return fmt.Errorf("%w in\n%v", err, g)
	}
	return nil
}

func TestDamagedCases(t *testing.T) {
	cases := allCases()
	for seed := range uint64(3000) {
		if err := importDamaged(cases, seed); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// FuzzDamagedCases is TestDamagedCases of other seeds.
func FuzzDamagedCases(f *testing.F) {
	cases := allCases()
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		if err := importDamaged(cases, seed); err != nil {
			t.Fatal(err)
		}
	})
}
