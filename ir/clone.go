package ir

import (
	"reflect"
	"slices"
)

// Clone returns a copy of a root graph that shares constants, their storage and
// the operators' attributes, but no values, nodes or subgraphs.
func (g *Graph) Clone() *Graph {
	c := NewGraph(g.Name)
	c.root.fresh.Store(g.root.fresh.Load())
	cl := &cloner{map[*Value]*Value{}}
	cl.graph(c, g)
	return c
}

type cloner struct{ values map[*Value]*Value }

func (c *cloner) graph(dst, src *Graph) {
	for _, v := range src.Inputs {
		c.values[v] = dst.NewInput(v.Name, v.Type)
	}
	for _, n := range src.Nodes {
		in := make([]*Value, len(n.Inputs))
		for i, v := range n.Inputs {
			in[i] = c.value(dst, v)
		}
		names := make([]string, len(n.Outputs))
		for i, v := range n.Outputs {
			if v != nil {
				names[i] = v.Name
			}
		}
		m := dst.NewNode(n.Name, c.op(dst, n.Op), in, names...)
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
	}
	dst.OutputNames = slices.Clone(src.OutputNames)
	dst.Refused = src.Refused
	for _, v := range src.Outputs {
		dst.Outputs = append(dst.Outputs, c.value(dst, v))
	}
}

// value returns the copy of v, making it where v is a constant not seen before.
func (c *cloner) value(g *Graph, v *Value) *Value {
	if v == nil {
		return nil
	}
	w := c.values[v]
	if w == nil {
		w = g.newValue(v.Name, v.Type)
		w.Const, w.Store, w.Elems = v.Const, v.Store, v.Elems
		c.values[v] = w
	}
	return w
}

// op copies an operator that has subgraphs; others are shared.
func (c *cloner) op(g *Graph, op Op) Op {
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
