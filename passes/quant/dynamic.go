package quant

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// spellDynamic writes the MatMulInteger and ConvInteger nodes of g of u8 and a constant weight, whose
// sums only a Cast reads that makes them f32, as products between DequantizeLinear nodes, and
// returns their number. Where a DynamicQuantizeLinear makes the left side, and Mul nodes multiply
// by its scale and that of the weight, those are part of the product; other scales are 1.
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

// dynamic is a product of integers whose left side may be quantised as the model runs.
type dynamic struct {
	speller
	axis, rows    int       // of the weight
	xscale, scale *ir.Value // of both sides, nil for 1
	last          *ir.Node  // which makes the result in floats
}

// dynamicOf returns n as one that multiplies as o does; ok is false for other nodes.
func dynamicOf(n *ir.Node, o ir.Op) (d dynamic, ok bool) {
	w, y := n.Inputs[1].Const, n.Outputs[0]
	if w == nil || n.Inputs[0].IsConst() || n.Inputs[0].Type.DType != tensor.U8 || !y.Type.Ranked {
		return d, false
	}
	d = dynamic{speller: speller{n}}
	conv, _ := o.(*op.Conv)
	floats := conv != nil && (conv.Group != 1 || w.Rank() > 2+op.MaxQuantAxes) // which hold the sums, or nearly
	if d.axis, d.rows, ok = matrixOf(o, w); floats && w.Len() > 0 {
		d.axis, d.rows, ok = 0, w.Dim(0), true
	}
	if z := n.Input(3); !ok || z != nil && (z.Const == nil || z.Const.Len() != 1 && z.Const.Len() != d.rows) {
		return d, false
	}
	x := n.Input(2)
	if x != nil && (!x.Type.Ranked || x.Type.Rank() != 0) {
		return d, false
	}
	c := soleReader(y)
	if c == nil || c.Op.Kind() != "Cast" || c.Outputs[0].Type.DType != tensor.F32 {
		return d, false
	}
	channel := y.Type.Rank() - 1
	if conv != nil {
		channel = 1
	}
	q := n.Inputs[0].Def
	if floats || q == nil || q.Op.Kind() != "DynamicQuantizeLinear" || q.Outputs[0] != n.Inputs[0] || x == nil || q.Outputs[2] != x || !d.scales(c.Outputs[0], q.Outputs[1], channel) {
		d.scale, d.xscale, d.last = nil, nil, c
		return d, floats || x != nil && !x.IsConst() || d.symmetric()
	}
	return d, true
}

// symmetric reports whether the zero point of the weight is that of products with constant ones.
func (d *dynamic) symmetric() bool {
	var zero *tensor.Tensor
	if z := d.node.Input(3); z != nil {
		zero = z.Const
	}
	_, zeros := op.Signed(d.node.Inputs[1].Const, zero)
	return zeros == nil
}

// scales follows the Mul nodes behind v until the scale x and that of the weight, each of which is
// there once, were met in any order.
func (d *dynamic) scales(v, x *ir.Value, channel int) bool {
	for d.xscale == nil || d.scale == nil {
		if d.last = soleReader(v); d.last == nil || d.last.Op.Kind() != "Mul" {
			return false
		}
		for _, f := range factors(d.last, v) {
			switch {
			case f == x && x != nil && d.xscale == nil:
				d.xscale = x
			case d.scale == nil && d.perRow(f, v.Type.Rank(), channel):
				d.scale = f
			default:
				return false
			}
		}
		v = d.last.Outputs[0]
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
	or := func(v *ir.Value, c *tensor.Tensor) *ir.Value {
		if v == nil {
			v = g.NewConst(n.Name+".parameter", c)
		}
		return v
	}
	one := tensor.Scalar(float32(1))
	left, err := d.dequantised("x", 0, n.Inputs[0], or(d.xscale, one), or(n.Input(2), tensor.New(tensor.U8)))
	if err != nil {
		return err
	}
	scale, zero := or(d.scale, one), or(n.Input(3), tensor.New(n.Inputs[1].Type.DType))
	weight, err := d.dequantised("w", d.axis, n.Inputs[1], d.along(scale, d.rows), d.along(zero, d.rows))
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
