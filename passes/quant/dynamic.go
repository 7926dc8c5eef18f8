package quant

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// spellDynamic writes the MatMulInteger and ConvInteger nodes of g whose left side a
// DynamicQuantizeLinear makes, with a constant weight and the Cast and the Mul nodes behind
// them that scale the sums, as products between DequantizeLinear nodes, and returns their
// number.
func spellDynamic(g *ir.Graph) (count int, err error) {
	for _, n := range slices.Clone(g.Nodes) {
		var o ir.Op
		switch q := n.Op.(type) {
		case *op.ConvInteger:
			c := newOp("Conv").(*op.Conv)
			c.Window, c.Group = q.Window, q.Group
			o = c
		case *op.MatMulInteger:
			o = newOp("MatMul")
		default:
			continue
		}
		if d, ok := dynamicOf(n, o); ok {
			if err := d.spell(o); err != nil {
				return count, err
			}
			count++
		}
	}
	return count, nil
}

// dynamic is a product of integers whose left side is quantised as the model runs.
type dynamic struct {
	speller
	axis, rows int       // of the weight
	quantizer  *ir.Node  // the DynamicQuantizeLinear
	scale      *ir.Value // of the weight
	last       *ir.Node  // the Mul that makes the result in floats
}

// dynamicOf returns n as one that multiplies as o does; ok is false for other nodes.
func dynamicOf(n *ir.Node, o ir.Op) (d dynamic, ok bool) {
	w, y := n.Inputs[1].Const, n.Outputs[0]
	q := n.Inputs[0].Def
	if w == nil || q == nil || q.Op.Kind() != "DynamicQuantizeLinear" || q.Outputs[0] != n.Inputs[0] || q.Outputs[2] == nil || n.Input(2) != q.Outputs[2] || !y.Type.Ranked {
		return d, false
	}
	d = dynamic{speller: speller{n}, quantizer: q}
	if d.axis, d.rows, ok = matrixOf(o, w); !ok {
		return d, false
	}
	if z := n.Input(3); z != nil && (z.Const == nil || z.Const.Len() != 1 && z.Const.Len() != d.rows) {
		return d, false
	}
	c := soleReader(y)
	if c == nil || c.Op.Kind() != "Cast" || c.Outputs[0].Type.DType != tensor.F32 {
		return d, false
	}
	channel := y.Type.Rank() - 1
	if o.Kind() == "Conv" {
		channel = 1
	}
	return d, d.scales(c.Outputs[0], channel)
}

// scales follows the Mul nodes behind v until the scales of both sides, each of which is there
// once, were met in any order.
func (d *dynamic) scales(v *ir.Value, channel int) bool {
	x := d.quantizer.Outputs[1]
	for met := false; !met || d.scale == nil; v = d.last.Outputs[0] {
		if d.last = soleReader(v); d.last == nil || d.last.Op.Kind() != "Mul" {
			return false
		}
		for _, f := range factors(d.last, v) {
			switch {
			case f == x && x != nil && !met:
				met = true
			case d.scale == nil && d.perRow(f, v.Type.Rank(), channel):
				d.scale = f
			default:
				return false
			}
		}
	}
	return true
}

// factors are what n multiplies v with.
func factors(n *ir.Node, v *ir.Value) []*ir.Value {
	other := n.Inputs[0]
	if other == v {
		other = n.Inputs[1]
	}
	if other.Def != nil && other.Def.Op.Kind() == "Mul" {
		return other.Def.Inputs
	}
	return []*ir.Value{other}
}

// perRow reports whether v is constant scales, one or one for each row of the weight, that lie
// along an axis of the product.
func (d *dynamic) perRow(v *ir.Value, rank, channel int) bool {
	if v.Const == nil || v.Const.DType() != tensor.F32 || v.Const.Rank() > rank {
		return false
	}
	for i, size := range v.Const.Shape() {
		if size != 1 && (rank-v.Const.Rank()+i != channel || size != d.rows) {
			return false
		}
	}
	return positive(v.Const)
}

// spell puts the product o in the place of the nodes.
func (d *dynamic) spell(o ir.Op) error {
	n, g := d.node, d.node.Graph()
	left, err := d.dequantised("x", 0, d.quantizer.Outputs...)
	if err != nil {
		return err
	}
	zero := n.Input(3)
	if zero == nil {
		zero = g.NewConst(n.Name+".w.zero", tensor.New(n.Inputs[1].Type.DType))
	}
	weight, err := d.dequantised("w", d.axis, n.Inputs[1], d.along(d.scale, d.rows), d.along(zero, d.rows))
	if err != nil {
		return err
	}
	p := g.InsertBefore(d.last, n.Name, o, []*ir.Value{left, weight}, d.last.Outputs[0].Name)
	if err := p.Infer(); err != nil {
		return err
	}
	g.ReplaceUses(d.last.Outputs[0], p.Outputs[0])
	p.Name, n.Name = n.Name, p.Name
	p.Outputs[0].Name, d.last.Outputs[0].Name = d.last.Outputs[0].Name, p.Outputs[0].Name
	g.Remove(d.last)
	return nil
}

// soleReader returns the node that alone reads v, nil where there is none.
func soleReader(v *ir.Value) *ir.Node {
	if v.IsOutput() || len(v.Uses()) != 1 || v.Uses()[0].Node.Graph() != v.Graph() {
		return nil
	}
	return v.Uses()[0].Node
}
