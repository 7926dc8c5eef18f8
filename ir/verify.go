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
	return g.verify(map[*Value]bool{}, map[string]bool{}, map[string]bool{}, map[*Value]map[Use]bool{}, false)
}

// listed reports whether v lists a use; sets are those of values with many.
func (v *Value) listed(u Use, sets map[*Value]map[Use]bool) bool {
	const few = 16
	if len(v.uses) <= few {
		return slices.Contains(v.uses, u)
	}
	set := sets[v]
	if set == nil {
		set = make(map[Use]bool, len(v.uses))
		for _, w := range v.uses {
			set[w] = true
		}
		sets[v] = set
	}
	return set[u]
}

func (g *Graph) verify(defined map[*Value]bool, values, nodes map[string]bool, uses map[*Value]map[Use]bool, refused bool) error {
	refused = refused || g.Refused != nil
	fail := func(format string, args ...any) error {
		return fmt.Errorf("graph %s: %s: %w", g.Name, fmt.Sprintf(format, args...), ErrInvalid)
	}
	define := func(v *Value) error {
		if values[v.Name] {
			return fail("two values are named %s", v.Name)
		}
		values[v.Name] = true
		defined[v] = true
		return nil
	}
	for _, v := range g.Inputs {
		if v.Def != nil || v.IsConst() {
			return fail("input %s is defined by a node or is a constant", v.Name)
		}
		if err := define(v); err != nil {
			return err
		}
	}
	read := func(v *Value, by string) error {
		if v.IsConst() && !defined[v] {
			if err := define(v); err != nil {
				return err
			}
			if v.Type.Elem != nil {
				return fail("constant %s is %v, want a tensor", v.Name, v.Type)
			}
			if v.Const != nil && !v.Type.Equal(TypeOf(v.Const)) {
				return fail("constant %s is %v, but its type is %v", v.Name, v.Const, v.Type)
			}
		}
		if !defined[v] {
			return fail("%s reads %s before it is defined", by, v.Name)
		}
		return nil
	}
	for _, n := range g.Nodes {
		if n.graph != g {
			return fail("%v belongs to another graph", n)
		}
		if nodes[n.Name] {
			return fail("two nodes are named %s", n.Name)
		}
		nodes[n.Name] = true
		for i, v := range n.Inputs {
			if v == nil {
				continue
			}
			if err := read(v, n.String()); err != nil {
				return err
			}
			if !v.listed(Use{n, i}, uses) {
				return fail("%v is missing from the uses of %s", n, v.Name)
			}
		}
		for _, sub := range Subgraphs(n.Op) {
			if sub.Owner != n {
				return fail("subgraph %s of %v has another owner", sub.Name, n)
			}
			if err := sub.verify(defined, values, nodes, uses, refused); err != nil {
				return err
			}
			sub.leave(defined)
		}
		before := make([]Type, len(n.Outputs))
		for i, v := range n.Outputs {
			if v == nil {
				continue
			}
			if v.Def != n || v.IsConst() {
				return fail("output %s of %v is defined elsewhere", v.Name, n)
			}
			if err := define(v); err != nil {
				return err
			}
			for _, u := range v.uses {
				if u.Node.Input(u.Index) != v {
					return fail("%s lists a use by %v that is none", v.Name, u.Node)
				}
			}
			before[i] = v.Type
		}
		if refused {
			continue
		}
		if err := n.Infer(); err != nil {
			return err
		}
		for i, v := range n.Outputs {
			if v != nil && !v.Type.Equal(before[i]) {
				return fail("output %s of %v is %v, but %v is inferred", v.Name, n, before[i], v.Type)
			}
		}
	}
	for _, v := range g.Outputs {
		if err := read(v, "an output"); err != nil {
			return err
		}
	}
	return nil
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
