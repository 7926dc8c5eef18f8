package quant

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// spell writes the products of integers of g with constant weights as products between
// DequantizeLinear and QuantizeLinear nodes, and returns their number.
func spell(g *ir.Graph) (int, error) {
	n, err := spellStatic(g)
	if err != nil {
		return n, err
	}
	k, err := spellDynamic(g)
	return n + k, err
}

// spellStatic is spell for QLinearConv and QLinearMatMul nodes with constant parameters.
// Results that lie half way between two steps may round to the other one.
func spellStatic(g *ir.Graph) (count int, err error) {
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
	g, s := n.Graph(), speller{n}
	single := func(i int) *ir.Value { // as a scalar, whatever its shape
		return g.NewConst(n.Inputs[i].Name, n.Inputs[i].Const.Reshape())
	}
	left, err := s.dequantised("x", 0, n.Inputs[0], single(1), single(2))
	if err != nil {
		return false, err
	}
	weight, err := s.dequantised("w", axis, n.Inputs[3], s.along(n.Inputs[4], w.Dim(axis)), s.along(n.Inputs[5], w.Dim(axis)))
	if err != nil {
		return false, err
	}
	in := []*ir.Value{left, weight}
	if b := n.Input(8); b != nil {
		scales := tensor.New(tensor.F32, w.Dim(axis))
		for i := range scales.F32s() {
			scales.F32s()[i] = x * ws.F32s()[i%ws.Len()]
		}
		bias, err := s.dequantised("b", 0, b, g.NewConst(n.Name+".b.scale", scales))
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

// speller makes nodes before one whose place others are to take.
type speller struct{ node *ir.Node }

// dequantised is what a DequantizeLinear makes of its inputs.
func (s speller) dequantised(name string, axis int, in ...*ir.Value) (*ir.Value, error) {
	d := newOp("DequantizeLinear")
	if err := ir.SetAttr(d, "axis", axis); err != nil {
		return nil, err
	}
	name = s.node.Name + "." + name
	m := s.node.Graph().InsertBefore(s.node, name, d, in, name+".f32")
	return m.Outputs[0], m.Infer()
}

// along returns a constant, a scale or zero point or as many as there are rows, as a vector of one
// for each row: where one is a scalar, the other may not be.
func (s speller) along(v *ir.Value, rows int) *ir.Value {
	k := v.Const
	if k.Len() > 1 || rows == 1 {
		k = k.Reshape(rows)
	} else {
		t := tensor.New(k.DType(), rows)
		for c := range rows {
			copy(t.Bytes()[c*k.DType().Size():], k.Bytes())
		}
		k = t
	}
	return s.node.Graph().NewConst(v.Name, k)
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
