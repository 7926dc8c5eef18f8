package quant

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// spell writes the QLinearConv and QLinearMatMul nodes of g with constant weights and
// parameters as products between DequantizeLinear and QuantizeLinear nodes, and
// returns their number. Results that lie half way between two steps may round to the
// other one.
func spell(g *ir.Graph) (count int, err error) {
	for _, n := range slices.Clone(g.Nodes) {
		var o ir.Op
		axis := 0
		switch q := n.Op.(type) {
		case *op.QLinearConv:
			c := newOp("Conv").(*op.Conv)
			c.Window, c.Group = q.Window, q.Group
			o = c
		case *op.QLinearMatMul:
			o, axis = newOp("MatMul"), 1
		default:
			continue
		}
		done, err := spellNode(n, o, axis)
		if err != nil {
			return count, err
		}
		if done {
			count++
		}
	}
	return count, nil
}

// spellNode is spell for a node that multiplies as o does by a weight of which the
// scales lie along an axis.
func spellNode(n *ir.Node, o ir.Op, axis int) (bool, error) {
	if !spellable(n, axis) {
		return false, nil
	}
	w, x, ws := n.Inputs[3].Const, n.Inputs[1].Const.F32s()[0], n.Inputs[4].Const
	g := n.Graph()
	dequantised := func(name string, axis int, in ...*ir.Value) (*ir.Value, error) {
		d := newOp("DequantizeLinear")
		if err := ir.SetAttr(d, "axis", axis); err != nil {
			return nil, err
		}
		m := g.InsertBefore(n, n.Name+"."+name, d, in, n.Name+"."+name+".f32")
		return m.Outputs[0], m.Infer()
	}
	single := func(i int) *ir.Value { // as a scalar, whatever its shape
		return g.NewConst(n.Inputs[i].Name, n.Inputs[i].Const.Reshape())
	}
	// A scalar scale with a zero point for each channel, or the other way round.
	along := func(i int) *ir.Value {
		k := n.Inputs[i].Const
		if k.Len() > 1 {
			return n.Inputs[i]
		}
		t := tensor.New(k.DType(), w.Dim(axis))
		for c := range w.Dim(axis) {
			copy(t.Bytes()[c*k.DType().Size():], k.Bytes())
		}
		return g.NewConst(n.Inputs[i].Name, t)
	}
	left, err := dequantised("x", 0, n.Inputs[0], single(1), single(2))
	if err != nil {
		return false, err
	}
	weight, err := dequantised("w", axis, n.Inputs[3], along(4), along(5))
	if err != nil {
		return false, err
	}
	in := []*ir.Value{left, weight}
	if b := n.Input(8); b != nil {
		scales := tensor.New(tensor.F32, w.Dim(axis))
		for i := range scales.F32s() {
			scales.F32s()[i] = x * ws.F32s()[i%ws.Len()]
		}
		bias, err := dequantised("b", 0, b, g.NewConst(n.Name+".b.scale", scales))
		if err != nil {
			return false, err
		}
		in = append(in, bias)
	}
	p := g.InsertBefore(n, n.Name+".product", o, in, n.Name+".product.f32")
	if err := p.Infer(); err != nil {
		return false, err
	}
	q := g.InsertBefore(n, n.Name+".y", newOp("QuantizeLinear"), []*ir.Value{p.Outputs[0], single(6), single(7)}, n.Outputs[0].Name)
	if err := q.Infer(); err != nil {
		return false, err
	}
	g.ReplaceUses(n.Outputs[0], q.Outputs[0])
	g.Remove(n)
	return true, nil
}

// spellable reports whether the weight and the parameters of a node are constants that fit
// each other, and its scales ones with which nothing overflows or is lost.
func spellable(n *ir.Node, axis int) bool {
	for i, v := range n.Inputs {
		if i > 0 && v != nil && v.Const == nil {
			return false
		}
	}
	xs, ws := n.Inputs[1].Const, n.Inputs[4].Const
	w := n.Inputs[3].Const
	for _, i := range []int{1, 2, 6, 7} {
		if n.Inputs[i].Const.Len() != 1 {
			return false
		}
	}
	dt := n.Inputs[0].Type.DType
	if xs.DType() != tensor.F32 || dt != tensor.U8 && dt != tensor.I8 || w.DType() != tensor.U8 && w.DType() != tensor.I8 || axis >= w.Rank() {
		return false
	}
	x, y := xs.F32s()[0], n.Inputs[6].Const.F32s()[0]
	if !normal(x) || !normal(255*x) || !normal(y) || !normal(255*y) {
		return false
	}
	for _, s := range ws.F32s() {
		if !(s > 0) || !(255*s <= math.MaxFloat32) || !fits(x*s, y) {
			return false
		}
	}
	for _, i := range []int{4, 5} {
		if k := n.Inputs[i].Const; k.Len() != 1 && (k.Rank() != 1 || k.Len() != w.Dim(axis)) {
			return false
		}
	}
	return true
}
