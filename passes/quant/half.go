package quant

import (
	"fmt"
	"math"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Half rounds the f32 weights of g to numbers that dt, f16 or bf16, holds exactly, so
// that choosing may store them in half the bytes. Products compute in f32. Weights stay
// as they are where KeepFloat names them or a node that reads them, and where one of
// their elements is too large for dt or not finite; the result says so. Weights of
// grouped convolutions, and those that are read more than once, stay, too. With
// Portable, weights become constants of dt behind Cast nodes.
func Half(g *ir.Graph, dt tensor.DType, o Options) (*Result, error) {
	r := &Result{Type: dt.String()}
	kept, err := o.kept(g)
	if err != nil {
		return nil, err
	}
	for _, u := range g.WeightUses() {
		w := u.Value.Const
		if w == nil || w.DType() != tensor.F32 || u.Groups != 1 || len(u.Value.Uses()) != 1 || u.Value.IsOutput() {
			continue
		}
		if glob, ok := kept[u.Node]; ok {
			r.Kept = append(r.Kept, Kept{u.Node.Name, u.Value.Name, "kept by " + glob.String()})
			continue
		}
		half := w.To(dt)
		back := half.To(tensor.F32)
		if why := overflow(w.F32s(), back.F32s(), dt); why != "" {
			r.Kept = append(r.Kept, Kept{u.Node.Name, u.Value.Name, why})
			continue
		}
		r.Products++
		if !o.Portable {
			u.Value.SetConst(back)
			continue
		}
		cast := newOp("Cast").(*op.Cast)
		cast.To = tensor.F32
		owner := u.Node.Graph()
		n := owner.InsertBefore(owner.Nodes[0], u.Value.Name+".cast", cast, []*ir.Value{u.Value}, u.Value.Name+".f32")
		u.Node.SetInput(u.Input, n.Outputs[0])
		u.Value.SetConst(half)
	}
	return r, g.Infer()
}

// overflow says why a weight cannot be rounded to dt, empty where it can.
func overflow(w, rounded []float32, dt tensor.DType) string {
	for i, v := range rounded {
		if v-v == 0 {
			continue
		}
		if w[i]-w[i] == 0 {
			return fmt.Sprintf("an element is %.4g, too large for %v", math.Abs(float64(w[i])), dt)
		}
		return fmt.Sprintf("an element is %v", w[i])
	}
	return ""
}
