// Package fuse rewrites patterns of nodes into fewer: compositions that exporters
// spell out become one operator, and what follows a product becomes part of it.
// Each rewrite keeps the function that the graph computes, up to rounding. The
// package imports ir and ir/op.
package fuse

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// def returns the node that defines v when it is of the given operator and lies
// in v's own graph, else nil.
func def(v *ir.Value, kind string) *ir.Node {
	if v == nil || v.Def == nil || v.Def.Op.Kind() != kind {
		return nil
	}
	return v.Def
}

// sole reports whether v is read exactly once, by a node of its own graph.
func sole(v *ir.Value) bool {
	return len(v.Uses()) == 1 && v.Uses()[0].Node.Graph() == v.Graph() && !v.IsOutput()
}

// scalar returns the value of a floating-point constant with one element.
func scalar(v *ir.Value) (float64, bool) {
	if v == nil || v.Const == nil || v.Const.Len() != 1 || !v.Const.DType().IsFloat() {
		return 0, false
	}
	return v.Const.Float64s()[0], true
}

// near reports whether a and b are the same number as exporters round them.
func near(a, b float64) bool { return math.Abs(a-b) <= 2e-4*math.Max(math.Abs(a), math.Abs(b)) }

// other returns the input of a binary node that is not v.
func other(n *ir.Node, v *ir.Value) *ir.Value {
	if n.Inputs[0] == v {
		return n.Inputs[1]
	}
	return n.Inputs[0]
}

// plusOne returns the other summand of a node Add with a scalar near c.
func plus(v *ir.Value, c float64) *ir.Value {
	n := def(v, "Add")
	if n == nil {
		return nil
	}
	for i := range 2 {
		if s, ok := scalar(n.Inputs[i]); ok && near(s, c) {
			return n.Inputs[1-i]
		}
	}
	return nil
}

// product flattens the multiplications and divisions by scalars that make v, as
// far as their results are read by nobody else, into factors and one scalar.
func product(v *ir.Value) (factors []*ir.Value, scale float64) {
	scale = 1
	var walk func(v *ir.Value, top bool)
	walk = func(v *ir.Value, top bool) {
		if s, ok := scalar(v); ok {
			scale *= s
			return
		}
		if top || sole(v) {
			if n := def(v, "Mul"); n != nil {
				walk(n.Inputs[0], false)
				walk(n.Inputs[1], false)
				return
			}
			if n := def(v, "Div"); n != nil {
				if s, ok := scalar(n.Inputs[1]); ok && s != 0 {
					walk(n.Inputs[0], false)
					scale /= s
					return
				}
			}
		}
		factors = append(factors, v)
	}
	walk(v, true)
	return factors, scale
}

// replace makes a new node of the operator in the place of the value v, whose
// definition is n, and has everybody read it instead.
func replace(n *ir.Node, o ir.Op, inputs ...*ir.Value) error {
	v := n.Outputs[0]
	m := n.Graph().InsertBefore(n, n.Name+".fused", o, inputs, v.Name+".fused")
	if err := m.Infer(); err != nil {
		return err
	}
	n.Graph().ReplaceUses(v, m.Outputs[0])
	return nil
}

// newOp makes an operator with attributes.
func newOp(kind string, attrs map[string]any) (ir.Op, error) {
	o, err := op.New(kind)
	if err != nil {
		return nil, err
	}
	for k, v := range attrs {
		if err := ir.SetAttr(o, k, v); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// rewrite calls f for each node of g and its subgraphs that stands when its turn
// comes, and returns how often it was true.
func rewrite(g *ir.Graph, f func(n *ir.Node) (bool, error)) (int, error) {
	count := 0
	for sub := range g.All() {
		for _, n := range slices.Clone(sub.Nodes) {
			if n.Graph() != sub || !slices.Contains(sub.Nodes, n) {
				continue
			}
			done, err := f(n)
			if err != nil {
				return count, err
			}
			if done {
				count++
			}
		}
	}
	return count, nil
}

// isF32 reports whether v is an f32 tensor.
func isF32(v *ir.Value) bool { return v != nil && v.Type.DType == tensor.F32 }
