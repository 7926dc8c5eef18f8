package graphtest

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Half turns a graph of f32 into the same in floats of 16 bits, but for those that tell a Resize sizes. Its operators change.
func Half(g *ir.Graph, dt tensor.DType) error {
	sizes := map[*ir.Value]bool{}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			if n.Op.Kind() == "Resize" {
				sizes[n.Input(1)], sizes[n.Input(2)] = true, true
			}
		}
	}
	for _, v := range g.Inputs {
		if v.Type.DType == tensor.F32 {
			v.Type.DType = dt
		}
	}
	for _, v := range g.Constants() {
		if v.Const.DType() == tensor.F32 && !sizes[v] {
			v.SetConst(v.Const.To(dt))
		}
	}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			if o, ok := n.Op.(*op.Cast); ok && o.To == tensor.F32 {
				o.To = dt
			}
		}
	}
	return g.Infer()
}
