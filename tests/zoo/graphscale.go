package zoo

import (
	"context"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// scale multiplies weights of a model without its elements by what gives the outputs of their nodes a root mean square of 1
// on the inputs, so that nothing explodes or vanishes on the way through it. refilled is the model with its elements.
func scale(ctx context.Context, m *onnxpb.ModelProto, refilled []byte, inputs map[string]*tensor.Tensor) error {
	g, _, err := onnx.ImportBytes(refilled, "", onnx.Options{})
	if err != nil {
		return err
	}
	by := map[string]float64{}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			if w := n.Input(1); slices.Contains(linear, n.Op.Kind()) && w != nil && w.Const != nil {
				n.Op = &scaled{n.Op, n, by}
			}
		}
	}
	in := make([]*tensor.Tensor, len(g.Inputs))
	for i, v := range g.Inputs {
		in[i] = inputs[v.Name]
	}
	if _, err := ref.Run(ctx, g, in); err != nil {
		return err
	}
	for name, p := range tensors(m.Graph) {
		if s, ok := by[name]; ok {
			if err := multiply(p, s); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// multiply multiplies the elements of a tensor, or those that are drawn for it.
func multiply(p *onnxpb.TensorProto, s float64) error {
	f, drawn, err := described(p)
	if drawn {
		describe(p, archs.Fill{Mean: f.Mean * s, Std: f.Std * s})
	}
	if drawn || err != nil {
		return err
	}
	t, err := tensor.FromProto(p, nil)
	if err != nil {
		return err
	}
	x := t.Float64s()
	for i := range x {
		x[i] *= s
	}
	name := p.Name
	proto.Reset(p)
	proto.Merge(p, tensor.FromFloat64s(t.DType(), x, t.Shape()...).ToProto(name))
	return nil
}

// linear lists the operators that are linear in their input 1, a weight, and input 2, a bias.
var linear = []string{"Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization"}

// scaled is an operator that scales its weight, a constant, before it computes anything with it.
type scaled struct {
	ir.Op
	node *ir.Node
	by   map[string]float64 // the factors of constants that were scaled
}

// Kind is none of ONNX: the interpreter has code of its own for some of those.
func (*scaled) Kind() string { return "Scaled" }

// Eval scales a bias to a tenth, where it is larger, so that most of an output depends on inputs, and the weight to outputs
// of 1.
func (o *scaled) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if b := o.node.Input(2); b != nil && b.Const != nil {
		o.scale(b, 0.1/max(0.1, rms(b.Const.F32s())))
	}
	out, err := o.Op.Eval(c, in)
	if w := o.node.Inputs[1]; err == nil && out[0].Len() > 0 && o.scale(w, 1/max(1e-3, rms(out[0].F32s()))) {
		return o.Op.Eval(c, in)
	}
	return out, err
}

// scale multiplies a constant where it lies, unless that was done.
func (o *scaled) scale(v *ir.Value, s float64) bool {
	if _, done := o.by[v.Name]; done {
		return false
	}
	o.by[v.Name] = s
	x := v.Const.F32s()
	for i := range x {
		x[i] = float32(float64(x[i]) * s)
	}
	return true
}

func rms(x []float32) float64 {
	squares := 0.0
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	return math.Sqrt(squares / float64(len(x)))
}
