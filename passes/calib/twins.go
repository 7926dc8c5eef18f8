package calib

import (
	"spc/ir"
	"spc/ir/tensor"
)

// Twins is a graph that holds two copies of another: the dense one, which stays as
// it is, and the pruned one, whose weights change. Both read the same inputs, so
// that one evaluation shows both.
type Twins struct {
	// Graph holds, for every node of the original, its dense copy and then its pruned
	// copy. Pruned copies have the names of the original, dense ones end in .dense.
	// The outputs are those of the dense copy, then those of the pruned one.
	Graph *ir.Graph

	dense, pruned copies
	beside        map[*ir.Node]*ir.Node // by the pruned copy of a node, the dense one
}

// copies is one copy of a graph.
type copies struct {
	*ir.Copier
	nodes map[*ir.Node]*ir.Node
}

// NewTwins copies a root graph twice. Constants and attributes are shared.
func NewTwins(g *ir.Graph) *Twins {
	t := &Twins{Graph: ir.NewGraph(g.Name), beside: map[*ir.Node]*ir.Node{}}
	t.dense = copies{ir.NewCopier(t.Graph, g, ".dense"), map[*ir.Node]*ir.Node{}}
	t.pruned = copies{ir.NewCopier(t.Graph, g, ""), map[*ir.Node]*ir.Node{}}
	for _, v := range g.Inputs {
		w := t.Graph.NewInput(v.Name, v.Type)
		t.dense.Bind(v, w)
		t.pruned.Bind(v, w)
	}
	for _, n := range g.Nodes {
		d, p := t.dense.Node(n), t.pruned.Node(n)
		t.dense.nodes[n], t.pruned.nodes[n] = d, p
		t.beside[p] = d
	}
	for _, c := range []copies{t.dense, t.pruned} {
		for _, v := range g.Outputs {
			t.Graph.Outputs = append(t.Graph.Outputs, c.Value(v))
		}
	}
	return t
}

// Dense returns the dense copy of a value of the original; of an input, the one that
// both copies read.
func (t *Twins) Dense(v *ir.Value) *ir.Value { return t.dense.Value(v) }

// Pruned returns the pruned copy of a value of the original.
func (t *Twins) Pruned(v *ir.Value) *ir.Value { return t.pruned.Value(v) }

// DenseNode returns the dense copy of a node of the original, nil for one of its
// subgraphs.
func (t *Twins) DenseNode(n *ir.Node) *ir.Node { return t.dense.nodes[n] }

// PrunedNode returns the pruned copy of a node of the original, nil for one of its
// subgraphs.
func (t *Twins) PrunedNode(n *ir.Node) *ir.Node { return t.pruned.nodes[n] }

// Use returns the pruned copy of a use of the original, without a node where that is one
// of a subgraph.
func (t *Twins) Use(u ir.WeightUse) ir.WeightUse {
	u.Node, u.Value = t.pruned.nodes[u.Node], t.pruned.Value(u.Value)
	return u
}

// SetConst replaces the pruned copy of v, a constant of the original, which all its
// readers see.
func (t *Twins) SetConst(v *ir.Value, c *tensor.Tensor) { t.Pruned(v).SetConst(c) }

// SetInput makes input i of the pruned copy of n, a node of the original, a constant
// of its own: a bias that n did not have, or another one.
func (t *Twins) SetInput(n *ir.Node, i int, c *tensor.Tensor) {
	p := t.PrunedNode(n)
	name := p.Name + ".bias"
	if v := n.Input(i); v != nil {
		name = v.Name
	}
	p.SetInput(i, t.Graph.NewConst(name, c))
}
