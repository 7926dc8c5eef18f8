package graphtest

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Half turns a graph of f32, in which no floats are sizes, into the same in floats of 16 bits. Its operators change.
func Half(g *ir.Graph, dt tensor.DType) error {
	for _, v := range g.Inputs {
		if v.Type.DType == tensor.F32 {
			v.Type.DType = dt
		}
	}
	for _, v := range g.Constants() {
		if v.Const.DType() == tensor.F32 {
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
