package cache

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// A model of 16-bit floats computes in f32, and its caches are widened where they are read. As they are rounded where they are handed on,
// they can be joined as they are, and Attention reads them so.

// widened returns what becomes a tied output, and its input, both in f32: those themselves, or what is rounded and what is widened.
func (r *rewriting) widened(t Tie) (full, cache *ir.Value) {
	in, out := r.Graph.Inputs[t.In], r.Graph.Outputs[t.Out]
	n := out.Def
	if dt := in.Type.DType; dt != tensor.F16 && dt != tensor.BF16 || out.Type.DType != dt || n == nil || n.Op.Kind() != "Cast" || n.Inputs[0].Type.DType != tensor.F32 {
		return out, in
	}
	for _, u := range in.Uses() {
		if u.Node.Op.Kind() == "Cast" && u.Node.Graph() == r.Graph && u.Node.Outputs[0].Type.DType == tensor.F32 {
			return n.Inputs[0], u.Node.Outputs[0]
		}
	}
	return out, in
}

// join makes a tied output the Concat of its input and rows, which n made in another way: full, of which the output may be what is rounded.
func (r *rewriting) join(n *ir.Node, t Tie, axis int, full, rows *ir.Value) *ir.Node {
	g, in, out := r.Graph, r.Graph.Inputs[t.In], r.Graph.Outputs[t.Out]
	if full == out {
		joined := g.InsertBefore(n, n.Name+".joined", &op.Concat{Axis: axis}, []*ir.Value{in, rows}, "")
		g.ReplaceUses(out, joined.Outputs[0])
		r.drop(n)
		return joined
	}
	rows = r.cast(n, n.Name+".narrow", rows, in.Type.DType)
	joined := g.InsertBefore(n, n.Name+".joined", &op.Concat{Axis: axis}, []*ir.Value{in, rows}, "")
	round := out.Def
	g.ReplaceUses(out, joined.Outputs[0])
	r.drop(round)
	g.ReplaceUses(full, r.cast(n, n.Name+".wide", joined.Outputs[0], tensor.F32))
	r.drop(n)
	return joined
}

// settle has the size of a cache be read of that itself, and removes what widened it.
func (r *rewriting) settle(in *ir.Value) {
	for _, u := range slices.Clone(in.Uses()) {
		if u.Node.Op.Kind() != "Cast" {
			continue
		}
		for _, w := range slices.Clone(u.Node.Outputs[0].Uses()) {
			if w.Node.Op.Kind() == "Shape" {
				w.Node.SetInput(w.Index, in)
			}
		}
		r.drop(u.Node)
	}
}

// unfuse takes the caches out of an Attention that widens those of 16-bit floats.
func (r *rewriting) unfuse(ties []Tie) error {
	g, some := r.Graph, false
	for _, n := range slices.Clone(g.Nodes) {
		o, ok := n.Op.(*op.Attention)
		if !ok || n.Input(5) == nil || o.Packed || len(n.Outputs) < 3 || n.Input(6) != nil || len(n.Outputs) > 3 && n.Outputs[3] != nil {
			continue
		}
		var joined [2]*ir.Value
		var tied [2]Tie
		for i := range joined {
			for _, t := range ties {
				if full, cache := r.widened(t); full != g.Outputs[t.Out] && full == n.Outputs[1+i] && cache == n.Inputs[4+i] {
					joined[i], tied[i] = full, t
				}
			}
		}
		if joined[0] == nil || joined[1] == nil {
			continue
		}
		in := []*ir.Value{r.heads(n, ".q", n.Inputs[0], o.QHeads), nil, nil, n.Input(3)}
		for i := range joined {
			rows := r.heads(n, []string{".k", ".v"}[i], n.Inputs[1+i], o.KVHeads)
			in[1+i] = r.add(n, n.Name+[]string{".keys", ".values"}[i], &op.Concat{Axis: 2}, n.Inputs[4+i], rows)
			g.ReplaceUses(joined[i], in[1+i])
		}
		own := *o
		own.Aligned = true
		y := r.tokens(n, r.add(n, n.Name+".joined", &own, in...))
		g.ReplaceUses(n.Outputs[0], y)
		g.Remove(n)
		some = true
	}
	if !some {
		return nil
	}
	return g.Infer()
}

// cast makes a Cast before a node.
func (r *rewriting) cast(at *ir.Node, name string, v *ir.Value, to tensor.DType) *ir.Value {
	o := &op.Cast{To: to}
	o.RoundMode = "nearest" // where there is a choice
	return r.add(at, name, o, v)
}

// drop removes those of the nodes that nobody reads.
func (r *rewriting) drop(nodes ...*ir.Node) {
	for _, n := range nodes {
		if !slices.ContainsFunc(n.Outputs, func(v *ir.Value) bool { return v != nil && (len(v.Uses()) > 0 || v.IsOutput()) }) {
			r.Graph.Remove(n)
		}
	}
}

// narrow returns the 16-bit floats of which v is what they are widened to, perhaps in another shape; nil where it is something else.
func (r *rewriting) narrow(at *ir.Node, v *ir.Value) *ir.Value {
	n := v.Def
	if n == nil {
		return nil
	}
	x := n.Inputs[0]
	if n.Op.Kind() == "Cast" && (x.Type.DType == tensor.F16 || x.Type.DType == tensor.BF16) {
		return x
	}
	if o, ok := n.Op.(*op.Reshape); ok {
		if x = r.narrow(at, x); x != nil {
			return r.add(at, n.Name+".narrow", o, x, n.Inputs[1])
		}
	}
	return nil
}
