// Package fold removes what need not be computed at run time: nodes whose inputs
// are constant, shape arithmetic whose results inference knows, branches whose
// condition is constant, nodes nobody reads, and nodes that change nothing. It
// imports ir and ir/op.
package fold

import (
	"fmt"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// growth bounds the elements of a folded constant that is larger than its
// inputs, so that an Expand is not stored as a file of zeros.
const growth = 1 << 16

// Constants evaluates every node whose inputs are constant, replaces values
// whose elements inference knows, and inlines the branch that a constant
// condition picks. It returns the number of nodes that it replaced.
func Constants(g *ir.Graph) (int, error) {
	count := 0
	for i := 0; i < len(g.Nodes); i++ {
		n := g.Nodes[i]
		// What was folded before n may tell more of n's types.
		if err := n.Infer(); err != nil {
			return 0, err
		}
		if branch := pickedBranch(n); branch != nil {
			g.Inline(n, branch)
			count++
			i--
			continue
		}
		for _, sub := range ir.Subgraphs(n.Op) {
			if sub.Refused != nil {
				continue
			}
			k, err := Constants(sub)
			if err != nil {
				return 0, err
			}
			count += k
		}
		outs, err := evaluate(n)
		if err != nil {
			return 0, err
		}
		if outs == nil {
			continue
		}
		for j, v := range n.Outputs {
			if v != nil && (len(v.Uses()) > 0 || v.IsOutput()) {
				g.ReplaceUses(v, g.NewConst(v.Name+".const", outs[j]))
			}
		}
		count++
	}
	return count, nil
}

func pickedBranch(n *ir.Node) *ir.Graph {
	o, ok := n.Op.(*op.If)
	if !ok || n.Inputs[0].Const == nil || n.Inputs[0].Const.Len() != 1 {
		return nil
	}
	if tensor.Data[bool](n.Inputs[0].Const)[0] {
		return o.Then
	}
	return o.Else
}

// evaluate returns the outputs of n where they are constant and worth storing,
// else nil.
func evaluate(n *ir.Node) ([]*tensor.Tensor, error) {
	if outs := known(n); outs != nil {
		return outs, nil
	}
	if !ir.Pure(n.Op) || len(ir.Subgraphs(n.Op)) > 0 || len(n.Inputs) == 0 {
		return nil, nil
	}
	in := make([]*tensor.Tensor, len(n.Inputs))
	size := 0
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		if v.Const == nil {
			return nil, nil
		}
		in[i] = v.Const
		size += v.Const.Len()
	}
	total := 0
	for _, v := range n.Outputs {
		if v == nil {
			continue
		}
		shape, ok := v.Type.Shape()
		if !ok {
			continue // a shape that depends on the elements of the inputs, which are at hand
		}
		k, err := tensor.Elems(shape)
		if err != nil {
			return nil, n.Errorf(ir.ErrInvalid, "output %s: %v", v.Name, err)
		}
		total += k
	}
	if total > max(growth, 2*size) {
		return nil, nil
	}
	outs, err := n.Op.Eval(&ir.Eval{Outputs: len(n.Outputs)}, in)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", n, err)
	}
	return outs, nil
}

// known returns the only output of n when inference knows its elements.
func known(n *ir.Node) []*tensor.Tensor {
	if len(n.Outputs) != 1 || n.Outputs[0] == nil {
		return nil
	}
	v := n.Outputs[0]
	shape, ok := v.Type.Shape()
	if !ok || v.Elems == nil || len(shape) > 1 || !v.Type.DType.IsInt() {
		return nil
	}
	ints := make([]int64, len(v.Elems))
	for i, d := range v.Elems {
		if !d.Known() {
			return nil
		}
		ints[i] = int64(d.Size())
	}
	if k, err := tensor.Elems(shape); err != nil || k != len(ints) {
		return nil
	}
	return []*tensor.Tensor{tensor.FromInt64s(v.Type.DType, ints, shape...)}
}

// Dead removes the nodes, of g and its subgraphs, none of whose outputs is read.
// It returns their number.
func Dead(g *ir.Graph) int {
	count := 0
	live := map[*ir.Value]bool{}
	for sub := range g.All() {
		for _, v := range sub.Outputs {
			live[v] = true
		}
	}
	for {
		removed := 0
		for sub := range g.All() {
			before := len(sub.Nodes)
			for i := len(sub.Nodes) - 1; i >= 0; i-- {
				if n := sub.Nodes[i]; !needed(n, live) {
					sub.Remove(n)
				}
			}
			removed += before - len(sub.Nodes)
		}
		if removed == 0 {
			return count
		}
		count += removed
	}
}

func needed(n *ir.Node, live map[*ir.Value]bool) bool {
	for _, v := range n.Outputs {
		if v != nil && (len(v.Uses()) > 0 || live[v]) {
			return true
		}
	}
	return false
}
