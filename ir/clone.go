package ir

import (
	"reflect"
	"slices"
)

// Clone returns a copy of a root graph that shares constants, their storage and
// the operators' attributes, but no values, nodes or subgraphs.
func (g *Graph) Clone() *Graph {
	dst := NewGraph(g.Name)
	c := NewCopier(dst, g, "")
	c.graph(dst, g)
	return dst
}

// Copier copies nodes of one graph into another root graph, with what their
// subgraphs hold. Copies share constants, their storage and the operators'
// attributes, as those of Clone do.
type Copier struct {
	to     *Graph
	suffix string // of the names of nodes and of the values that they define
	values map[*Value]*Value
}

// NewCopier returns a copier from the graph from to the graph to, which appends the
// suffix to names. Unknown dimensions keep their names, which to will not give to
// others.
func NewCopier(to, from *Graph, suffix string) *Copier {
	to.root.fresh.Store(max(to.root.fresh.Load(), from.root.fresh.Load()))
	return &Copier{to, suffix, map[*Value]*Value{}}
}

// Bind makes the copies of nodes that read v read w, a value of the graph that they
// are copied to.
func (c *Copier) Bind(v, w *Value) { c.values[v] = w }

// Value returns the copy of v, nil where v is nil or neither bound, defined by a node
// that was copied, nor a constant, which is copied now.
func (c *Copier) Value(v *Value) *Value {
	if v == nil || c.values[v] == nil && !v.IsConst() {
		return nil
	}
	return c.value(c.to, v)
}

// Node copies n to the end of the graph. What n and its subgraphs read has been
// bound or copied, or is constant.
func (c *Copier) Node(n *Node) *Node { return c.node(c.to, n) }

func (c *Copier) graph(dst, src *Graph) {
	for _, v := range src.Inputs {
		c.values[v] = dst.NewInput(v.Name+c.suffix, v.Type)
	}
	for _, n := range src.Nodes {
		c.node(dst, n)
	}
	dst.OutputNames = slices.Clone(src.OutputNames)
	dst.Refused = src.Refused
	for _, v := range src.Outputs {
		dst.Outputs = append(dst.Outputs, c.value(dst, v))
	}
}

func (c *Copier) node(dst *Graph, n *Node) *Node {
	in := make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		in[i] = c.value(dst, v)
	}
	names := make([]string, len(n.Outputs))
	for i, v := range n.Outputs {
		if v != nil {
			names[i] = v.Name + c.suffix
		}
	}
	m := dst.NewNode(n.Name+c.suffix, c.op(dst, n.Op), in, names...)
	m.own = slices.Clone(n.own)
	for i, v := range n.Outputs {
		if v == nil {
			dst.forget(m.Outputs[i])
			m.Outputs[i] = nil
			continue
		}
		o := m.Outputs[i]
		o.Type, o.Elems = v.Type, slices.Clone(v.Elems)
		c.values[v] = o
	}
	return m
}

// value returns the copy of v, making it where v is a constant not seen before.
func (c *Copier) value(g *Graph, v *Value) *Value {
	if v == nil {
		return nil
	}
	w := c.values[v]
	if w == nil {
		w = g.newValue(v.Name+c.suffix, v.Type)
		w.Const, w.Store, w.Grid, w.Elems = v.Const, v.Store, v.Grid, v.Elems
		c.values[v] = w
	}
	return w
}

// op copies an operator that has subgraphs; others are shared.
func (c *Copier) op(g *Graph, op Op) Op {
	if len(Subgraphs(op)) == 0 {
		return op
	}
	v := reflect.New(reflect.TypeOf(op).Elem())
	v.Elem().Set(reflect.ValueOf(op).Elem())
	for _, f := range fields(v.Interface().(Op)) {
		if sub, ok := f.value.Interface().(*Graph); ok && sub != nil {
			d := g.NewSubgraph(sub.Name)
			c.graph(d, sub)
			f.value.Set(reflect.ValueOf(d))
		}
	}
	return v.Interface().(Op)
}
