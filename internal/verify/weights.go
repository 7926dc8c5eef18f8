package verify

import (
	"fmt"

	"spc/ir"
	"spc/ir/tensor"
)

// biasInput is where Conv, ConvTranspose, Gemm and MatMul read a bias.
const biasInput = 2

// WithWeights returns a copy of g, the graph of a model after some passes, with the
// constants of own, a compiled graph of the same model whose weights were changed: each
// takes the place of the one of the same type and rank that the node of the same name reads
// as the same input, and a bias that of none; weights whose channels were removed make other
// values smaller, and convolutions of one channel a group have fewer groups. fused, which may be nil, is the graph after
// all passes that do not change weights. The error says why own is not g with other
// constants, as far as these tell:
//
//   - a constant of own is neither in g nor, with the same elements, in fused;
//   - a weight of g is not in own;
//   - later passes rearrange a constant of g;
//   - the shapes do not fit each other.
func WithWeights(g, own, fused *ir.Graph, unpack func(*ir.Value) (*tensor.Tensor, error)) (*ir.Graph, error) {
	b := &Bench{Unpack: unpack}
	out := g.Clone()
	if err := regroup(out, own); err != nil {
		return nil, err
	}
	nodes, later := byName(out), map[string]*ir.Node{}
	constants := map[string]*ir.Value{} // of fused
	if fused != nil {
		later = byName(fused)
		for _, v := range fused.Constants() {
			constants[v.Name] = v
		}
	}
	type place struct {
		node  *ir.Node
		input int
	}
	set := map[place]bool{}
	for sub := range own.All() {
		for _, n := range sub.Nodes {
			for i, v := range n.Inputs {
				if v == nil || !v.IsConst() {
					continue
				}
				t, err := b.constant(v)
				if err != nil {
					return nil, err
				}
				to := nodes[n.Name]
				if to != nil && to.Op.Kind() == n.Op.Kind() {
					w := to.Input(i)
					if w == nil && i == biasInput || w != nil && w.Const != nil && w.Type.DType == t.DType() && w.Type.Rank() == t.Rank() {
						if l := later[n.Name]; w != nil && l != nil && l.Input(i) != nil && (l.Input(i).Const == nil || !l.Input(i).Const.Equal(w.Const)) {
							return nil, fmt.Errorf("later passes rearrange constant %s", v.Name)
						}
						to.SetInput(i, to.Graph().NewConst(v.Name, t))
						set[place{to, i}] = true
						continue
					}
				}
				if l := constants[v.Name]; l == nil || l.Const == nil || !l.Const.Equal(t) {
					return nil, fmt.Errorf("constant %s of node %v has no place in it", v.Name, n)
				}
			}
		}
	}
	for _, u := range out.WeightUses() {
		if !set[place{u.Node, u.Input}] {
			return nil, fmt.Errorf("weight %s of node %v is not in the compiled model", u.Value.Name, u.Node)
		}
	}
	return out, out.Infer()
}

// regroup gives convolutions of one channel a group the groups that they have in own, which
// has fewer channels.
func regroup(g, own *ir.Graph) error {
	nodes := byName(own)
	for _, n := range byName(g) {
		m := nodes[n.Name]
		if m == nil || n.Op.Kind() != "Conv" || m.Op.Kind() != "Conv" || n.Inputs[1].Type.Rank() < 3 || n.Inputs[1].Type.Dims[1] != ir.Size(1) {
			continue
		}
		if was, is := ir.AttrOf(n.Op, "group"), ir.AttrOf(m.Op, "group"); was != is {
			n.Op = ir.CloneOp(n.Op)
			if err := ir.SetAttr(n.Op, "group", is); err != nil {
				return err
			}
		}
	}
	return nil
}

// byName returns the nodes of a graph and its subgraphs by their names.
func byName(g *ir.Graph) map[string]*ir.Node {
	nodes := map[string]*ir.Node{}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			nodes[n.Name] = n
		}
	}
	return nodes
}
