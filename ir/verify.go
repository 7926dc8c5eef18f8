package ir

import (
	"fmt"
	"slices"
)

// Verify checks the graph and its subgraphs: topological order and single
// definition, uses that agree with inputs, unique names, types that agree with
// a fresh inference, constants that agree with their types. Types in a refused
// graph are not looked at. It returns the first violation as an error that wraps
// ErrInvalid.
func (g *Graph) Verify() error {
	c := &verifier{values: map[string]bool{}, nodes: map[string]bool{}, defined: map[*Value]bool{}, uses: map[*Value]map[Use]bool{}}
	return c.graph(g, false)
}

// verifier is what Verify has seen of a graph and its subgraphs.
type verifier struct {
	values, nodes map[string]bool         // names
	defined       map[*Value]bool         // values that can be read
	uses          map[*Value]map[Use]bool // of values with many
}

// invalid is what is wrong in a graph.
func (g *Graph) invalid(format string, args ...any) error {
	return fmt.Errorf("graph %s: %s: %w", g.Name, fmt.Sprintf(format, args...), ErrInvalid)
}

// graph checks a graph. Types are not looked at where it lies in a refused one.
func (c *verifier) graph(g *Graph, refused bool) error {
	refused = refused || g.Refused != nil
	for _, v := range g.Inputs {
		if v.Def != nil || v.IsConst() {
			return g.invalid("input %s is defined by a node or is a constant", v.Name)
		}
		if err := c.define(g, v); err != nil {
			return err
		}
	}
	for _, n := range g.Nodes {
		if n.graph != g {
			return g.invalid("%v belongs to another graph", n)
		}
		if c.nodes[n.Name] {
			return g.invalid("two nodes are named %s", n.Name)
		}
		c.nodes[n.Name] = true
		if err := c.node(n, refused); err != nil {
			return err
		}
	}
	for _, v := range g.Outputs {
		if err := c.read(g, v, "an output"); err != nil {
			return err
		}
	}
	return nil
}

// define makes a value one that can be read.
func (c *verifier) define(g *Graph, v *Value) error {
	if c.values[v.Name] {
		return g.invalid("two values are named %s", v.Name)
	}
	c.values[v.Name] = true
	c.defined[v] = true
	return nil
}

// read checks that a value can be read; constants are defined where they are read first.
func (c *verifier) read(g *Graph, v *Value, by string) error {
	if v.IsConst() && !c.defined[v] {
		if err := c.define(g, v); err != nil {
			return err
		}
		if v.Type.Elem != nil {
			return g.invalid("constant %s is %v, want a tensor", v.Name, v.Type)
		}
		if v.Const != nil && !v.Type.Equal(TypeOf(v.Const)) {
			return g.invalid("constant %s is %v, but its type is %v", v.Name, v.Const, v.Type)
		}
	}
	if !c.defined[v] {
		return g.invalid("%s reads %s before it is defined", by, v.Name)
	}
	return nil
}

// node checks what a node reads, its subgraphs, what it defines, and, unless it is
// refused, that inference gives the types that its outputs have.
func (c *verifier) node(n *Node, refused bool) error {
	g := n.graph
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		if err := c.read(g, v, n.String()); err != nil {
			return err
		}
		if !c.listed(v, Use{n, i}) {
			return g.invalid("%v is missing from the uses of %s", n, v.Name)
		}
	}
	for _, sub := range Subgraphs(n.Op) {
		if sub.Owner != n {
			return g.invalid("subgraph %s of %v has another owner", sub.Name, n)
		}
		if err := c.graph(sub, refused); err != nil {
			return err
		}
		sub.leave(c.defined)
	}
	before := make([]Type, len(n.Outputs))
	for i, v := range n.Outputs {
		if v == nil {
			continue
		}
		if err := c.output(n, v); err != nil {
			return err
		}
		before[i] = v.Type
	}
	if refused {
		return nil
	}
	if err := n.Infer(); err != nil {
		return err
	}
	for i, v := range n.Outputs {
		if v != nil && !v.Type.Equal(before[i]) {
			return g.invalid("output %s of %v is %v, but %v is inferred", v.Name, n, before[i], v.Type)
		}
	}
	return nil
}

// output checks that a node defines a value, and that what the value lists as uses are some.
func (c *verifier) output(n *Node, v *Value) error {
	if v.Def != n || v.IsConst() {
		return n.graph.invalid("output %s of %v is defined elsewhere", v.Name, n)
	}
	if err := c.define(n.graph, v); err != nil {
		return err
	}
	for _, u := range v.uses {
		if u.Node.Input(u.Index) != v {
			return n.graph.invalid("%s lists a use by %v that is none", v.Name, u.Node)
		}
	}
	return nil
}

// listed reports whether v lists a use.
func (c *verifier) listed(v *Value, u Use) bool {
	const few = 16
	if len(v.uses) <= few {
		return slices.Contains(v.uses, u)
	}
	set := c.uses[v]
	if set == nil {
		set = make(map[Use]bool, len(v.uses))
		for _, w := range v.uses {
			set[w] = true
		}
		c.uses[v] = set
	}
	return set[u]
}

// leave takes the values that g defines from the set of those that can be read.
func (g *Graph) leave(defined map[*Value]bool) {
	for _, v := range g.Inputs {
		delete(defined, v)
	}
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			delete(defined, v)
		}
	}
}
