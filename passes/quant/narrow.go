package quant

import (
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Narrow is a constant weight in a narrow type that a node widens to floats for its
// products: codes behind a DequantizeLinear, or 16-bit floats behind a Cast.
type Narrow struct {
	Weight *ir.Value // what is pruned: the constant in floats, with the name of the narrow one

	node, out string // names of the node and of its output
	op        ir.Op
	codes     *tensor.Tensor // the narrow constant
	params    []*ir.Value    // scale and zero point, where it has them
}

// Spell writes products of the QLinear operators with DequantizeLinear and
// QuantizeLinear nodes, and takes transposes of narrow weights before what widens them.
// It returns the number of changes.
func Spell(g *ir.Graph) (int, error) {
	n, err := spell(g)
	if err != nil {
		return n, err
	}
	k, err := hoist(g, func(*ir.Node) bool { return true })
	return n + k, err
}

// Widening returns which nodes of g must not be folded if weights are to stay narrow: those that make nothing but weights of
// a constant in a narrow type, and not for products that are constant themselves.
func Widening(g *ir.Graph) func(n *ir.Node) bool {
	constant := map[*ir.Value]bool{}
	is := func(v *ir.Value) bool { return v == nil || v.IsConst() || constant[v] }
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			if len(n.Inputs) == 0 || !ir.Pure(n.Op) || len(ir.Subgraphs(n.Op)) > 0 || !every(n.Inputs, is) {
				continue
			}
			for _, v := range n.Outputs {
				constant[v] = true
			}
		}
	}
	return func(n *ir.Node) bool {
		return widens(n) && slices.ContainsFunc(n.Outputs[0].Uses(), func(u ir.Use) bool { return !every(u.Node.Inputs, is) })
	}
}

// every reports whether f is true of each value.
func every(list []*ir.Value, f func(*ir.Value) bool) bool {
	return !slices.ContainsFunc(list, func(v *ir.Value) bool { return !f(v) })
}

// widens reports whether n makes nothing but weights of a constant in a narrow type.
func widens(n *ir.Node) bool {
	if !narrows(n) || n.Outputs[0].IsOutput() || len(n.Outputs[0].Uses()) == 0 {
		return false
	}
	for _, u := range n.Outputs[0].Uses() {
		w, ok := u.Node.Op.(ir.WeightOp)
		if !ok || !slices.ContainsFunc(w.Weights(u.Node), func(r ir.Weight) bool { return r.Input == u.Index }) {
			return false
		}
	}
	return true
}

// narrows reports whether n widens a constant.
func narrows(n *ir.Node) bool {
	for i, v := range n.Inputs {
		if v != nil && v.Const == nil || v == nil && i == 0 {
			return false
		}
	}
	switch o := n.Op.(type) {
	case *op.DequantizeLinear:
		return n.Inputs[0].Type.DType != tensor.I32 // its codes do not fit into floats
	case *op.Cast:
		from := n.Inputs[0].Type.DType
		return (from == tensor.F16 || from == tensor.BF16) && o.To == tensor.F32
	}
	return false
}

// hoist has those transposes of what nodes widen that are wanted transpose the narrow constants.
func hoist(g *ir.Graph, wanted func(t *ir.Node) bool) (int, error) {
	count := 0
	for _, t := range slices.Clone(g.Nodes) {
		o, ok := t.Op.(*op.Transpose)
		if !ok || t.Outputs[0].IsOutput() || t.Graph() != g {
			continue
		}
		n := defined(t.Inputs[0])
		if n == nil || n.Graph() != g || !narrows(n) || !wanted(t) {
			continue
		}
		c := n.Inputs[0].Const
		perm := o.Perm
		if perm == nil {
			for i := range c.Rank() {
				perm = append(perm, c.Rank()-1-i)
			}
		}
		wide := ir.CloneOp(n.Op)
		in := slices.Clone(n.Inputs)
		if d, ok := wide.(*op.DequantizeLinear); ok && c.Rank() > 0 {
			axis := d.Axis
			if axis < 0 {
				axis += c.Rank()
			}
			d.Axis = slices.Index(perm, axis)
			for i, v := range in[1:] {
				if v != nil && v.Const.Rank() == c.Rank() && c.Rank() > 1 { // of blocks
					in[1+i] = g.NewConst(v.Name, v.Const.Permute(perm...))
				}
			}
		}
		in[0] = g.NewConst(n.Inputs[0].Name, c.Permute(perm...))
		swapNames(in[0], n.Inputs[0])
		m := g.InsertBefore(t, n.Name, wide, in, t.Outputs[0].Name)
		if err := m.Infer(); err != nil {
			return count, err
		}
		m.Outputs[0].Name, t.Outputs[0].Name = t.Outputs[0].Name, m.Outputs[0].Name
		g.ReplaceUses(t.Outputs[0], m.Outputs[0])
		g.Remove(t)
		count++
	}
	return count, nil
}

// Widen puts constants in floats in the place of the nodes of g that make weights of
// narrow ones, so that they are pruned as others are.
func Widen(g *ir.Graph) ([]Narrow, error) {
	var all []Narrow
	for _, n := range slices.Clone(g.Nodes) {
		if !widens(n) {
			continue
		}
		c := n.Inputs[0]
		w := Narrow{node: n.Name, out: n.Outputs[0].Name, op: n.Op, codes: c.Const, params: n.Inputs[1:]}
		wide, err := w.eval(w.op, w.codes)
		if err != nil {
			return nil, n.Errorf(ir.ErrInvalid, "%v", err)
		}
		w.Weight = g.NewConst(c.Name, wide)
		w.Weight.Grid = op.GridOf(n)
		swapNames(w.Weight, c)
		g.ReplaceUses(n.Outputs[0], w.Weight)
		g.Remove(n)
		all = append(all, w)
	}
	return all, nil
}

// swapNames gives v the name of old, whose place it takes, unless others read old, too.
func swapNames(v, old *ir.Value) {
	if len(old.Uses()) <= 1 && !old.IsOutput() { // an output keeps its name
		v.Name, old.Name = old.Name, v.Name
	}
}

// Channels returns an error that names a weight whose channels have scales of their own,
// which hold for those channels alone.
func (w *Narrow) Channels() error {
	for _, v := range w.params {
		if v != nil && v.Const.Len() > 1 {
			return fmt.Errorf("weight %s has scales of its channels, of which none can be removed: %w", w.Weight.Name, ir.ErrUnsupported)
		}
	}
	return nil
}

// Ordered says of a weight why its channels must keep their places, empty where they need not:
// scales of channels, which stay, hold for them in the order that they have.
func Ordered(all []Narrow) func(v *ir.Value) string {
	scaled := map[*ir.Value]bool{}
	for i := range all {
		scaled[all[i].Weight] = all[i].Channels() != nil
	}
	return func(v *ir.Value) string {
		if scaled[v] {
			return "its channels have scales of their own"
		}
		return ""
	}
}

// Restore undoes Widen: each weight that is read still is rounded to its narrow type,
// with the scales that it had. Zeros stay zeros, and so do weights that nobody changed.
func Restore(g *ir.Graph, all []Narrow) error {
	for i := range slices.Backward(all) {
		w := &all[i]
		if len(w.Weight.Uses()) == 0 {
			continue
		}
		narrow, err := w.round()
		if err != nil {
			return err
		}
		c := g.NewConst(w.Weight.Name, narrow)
		swapNames(c, w.Weight)
		n := g.InsertBefore(g.Nodes[0], w.node, w.op, append([]*ir.Value{c}, w.params...), w.out)
		n.Name, n.Outputs[0].Name = w.node, w.out // which nothing else has had since
		if err := n.Infer(); err != nil {
			return err
		}
		g.ReplaceUses(w.Weight, n.Outputs[0])
	}
	return nil
}

// round returns the weight in its narrow type: where it is what it was, with the code that
// it had, which dividing a product that was rounded to 16 bits need not give.
func (w *Narrow) round() (*tensor.Tensor, error) {
	x := w.Weight.Const
	y, err := w.nearest(x)
	if err != nil || !slices.Equal(x.Shape(), w.codes.Shape()) { // channels were removed
		return y, err
	}
	old, err := w.eval(w.op, w.codes)
	if err != nil {
		return nil, err
	}
	size, codes, out := w.codes.DType().Size(), w.codes.Bytes(), y.Bytes()
	was, is := old.To(tensor.F32).F32s(), x.To(tensor.F32).F32s()
	for i := range is {
		if math.Float32bits(is[i]) == math.Float32bits(was[i]) {
			copy(out[i*size:][:size], codes[i*size:])
		}
	}
	return y, nil
}

// nearest returns the narrow tensor nearest to x.
func (w *Narrow) nearest(x *tensor.Tensor) (*tensor.Tensor, error) {
	dt := w.codes.DType()
	d, ok := w.op.(*op.DequantizeLinear)
	if !ok {
		return x.To(dt), nil
	}
	q := newOp("QuantizeLinear").(*op.QuantizeLinear)
	q.Axis, q.BlockSize, q.DType, q.Precision = d.Axis, d.BlockSize, dt, tensor.F32
	return w.eval(q, x.To(tensor.F32))
}

// eval evaluates an operator on x and the parameters.
func (w *Narrow) eval(o ir.Op, x *tensor.Tensor) (*tensor.Tensor, error) {
	in := []*tensor.Tensor{x}
	for _, v := range w.params {
		var t *tensor.Tensor
		if v != nil {
			t = v.Const
		}
		in = append(in, t)
	}
	out, err := o.Eval(&ir.Eval{Outputs: 1}, in)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}
