package fuse

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Gemms spells each Gemm of f32 whose right side [K,N] is not constant, as where a network makes the weights of another, as a
// product of matrices and a sum. One that is given as [N,K] is as a weight is, and stays.
func Gemms(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		o, ok := n.Op.(*op.Gemm)
		if !ok || !isF32(n.Inputs[0]) || n.Inputs[1].IsConst() || o.TransB || o.Quantised() || o.Act != "" || n.Input(op.Residual) != nil {
			return false, nil
		}
		e := &einsum{builder: builder{n}}
		x := n.Inputs[0]
		if o.TransA {
			x = e.node("Transpose", nil, x)
		}
		times := func(v *ir.Value, factor float32) *ir.Value {
			if factor != 1 {
				v = e.node("Mul", nil, v, e.constant("factor", tensor.Scalar(factor)))
			}
			return v
		}
		y := times(e.node("MatMul", nil, x, n.Inputs[1]), o.Alpha)
		if c := n.Input(2); c != nil && o.Beta != 0 {
			y = e.node("Add", nil, y, times(c, o.Beta))
		}
		if e.err == nil {
			forward(n, y)
		}
		return true, e.err
	})
}
