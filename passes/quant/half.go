package quant

import (
	"fmt"
	"math"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Half rounds the f32 weights of g to numbers that dt, a type of Widened, holds exactly, so
// that choosing may store them in fewer bytes. Products compute in f32. Weights stay
// as they are where KeepFloat names them or a node that reads them, where one of their
// elements is too large for dt or not finite, where they are so small that dt has no
// digits for them, in grouped convolutions, and where they are read more than once; the
// result says so. With Portable, weights become constants of dt behind Cast nodes.
func Half(g *ir.Graph, dt tensor.DType, o Options) (*Result, error) {
	r := &Result{Type: dt.String()}
	kept, err := o.kept(g)
	if err != nil {
		return nil, err
	}
	for _, u := range g.WeightUses() {
		w := u.Value.Const
		if w == nil || w.DType() != tensor.F32 || w.Len() == 0 {
			continue
		}
		half := w.To(dt)
		back := half.To(tensor.F32)
		why := misfit(w.F32s(), back.F32s(), dt)
		if glob, ok := kept[u.Node]; ok {
			why = "kept by " + glob.String()
		} else if u.Groups != 1 {
			why = fmt.Sprintf("a product of %d groups", u.Groups)
		} else if len(u.Value.Uses()) != 1 || u.Value.IsOutput() {
			why = "the weight is read more than once"
		}
		if why != "" {
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

// misfit says why a weight cannot be rounded to dt, empty where it can.
func misfit(w, rounded []float32, dt tensor.DType) string {
	lost, all := 0.0, 0.0
	for i, v := range rounded {
		x := float64(w[i])
		lost += (x - float64(v)) * (x - float64(v))
		all += x * x
		if v-v == 0 {
			continue
		}
		if w[i]-w[i] == 0 {
			return fmt.Sprintf("an element is %.4g, too large for %v", math.Abs(x), dt)
		}
		return fmt.Sprintf("an element is %v", w[i])
	}
	if e := math.Sqrt(lost / max(all, math.SmallestNonzeroFloat64)); e > maxRounding(dt) {
		return fmt.Sprintf("its elements are too small for %v, which would change it by %.0f%%", dt, 100*e)
	}
	return ""
}
