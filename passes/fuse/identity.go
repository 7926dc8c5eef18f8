package fuse

import (
	"slices"

	"spc/ir"
)

// Identities removes nodes that return their input: Identity, Dropout in
// inference, casts to the same type, transposes and reshapes that change nothing,
// padding by nothing, sums and products with neutral constants; and joins
// transposes and reshapes that follow each other.
func Identities(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if v := same(n); v != nil {
			n.Graph().ReplaceUses(n.Outputs[0], v)
			n.Graph().Remove(n)
			return true, nil
		}
		return join(n)
	})
}

// same returns the input that n returns, nil where it does something.
func same(n *ir.Node) *ir.Value {
	if len(n.Inputs) == 0 || n.Inputs[0] == nil || n.Outputs[0] == nil {
		return nil
	}
	for _, o := range n.Outputs[1:] {
		if o != nil && (len(o.Uses()) > 0 || o.IsOutput()) {
			return nil
		}
	}
	x, y := n.Inputs[0], n.Outputs[0]
	alike := x.Type.Equal(y.Type) && !openDims(x.Type)
	switch n.Op.Kind() {
	case "Identity":
		return x
	case "Dropout":
		if t := n.Input(2); t == nil || t.Const != nil && t.Const.Int64s()[0] == 0 {
			return x
		}
	case "Cast":
		if x.Type.DType == y.Type.DType {
			return x
		}
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Concat", "Sum", "Max", "Min", "Mean":
		variadic := slices.Contains([]string{"Concat", "Sum", "Max", "Min", "Mean"}, n.Op.Kind())
		if alike && (!variadic || len(n.Inputs) == 1) {
			return x
		}
	case "Transpose":
		perm, ok := ir.AttrOf(n.Op, "perm").([]int)
		if ok && sorted(perm) {
			return x
		}
	case "Pad":
		if p := n.Input(1); p != nil && p.Const != nil && !slices.ContainsFunc(p.Const.Int64s(), func(v int64) bool { return v != 0 }) {
			return x
		}
	case "Add", "Mul":
		neutral := 0.0
		if n.Op.Kind() == "Mul" {
			neutral = 1
		}
		for i := range 2 {
			z := n.Inputs[1-i]
			if s, ok := scalar(n.Inputs[i]); ok && s == neutral && z.Type.Equal(y.Type) && !openDims(z.Type) && n.Op.Kind() == "Mul" {
				return z
			} else if ok && s == 0 && n.Op.Kind() == "Add" && z.Type.Equal(y.Type) && !openDims(z.Type) {
				return z
			}
		}
	case "Div", "Pow":
		if s, ok := scalar(n.Input(1)); ok && s == 1 && alike {
			return x
		}
	case "Sub":
		if s, ok := scalar(n.Input(1)); ok && s == 0 && alike {
			return x
		}
	}
	return nil
}

func sorted(perm []int) bool {
	for i, p := range perm {
		if p != i {
			return false
		}
	}
	return true
}

// join makes a transpose of a transpose one, and a reshape of a reshape read what
// that one read.
func join(n *ir.Node) (bool, error) {
	switch n.Op.Kind() {
	case "Transpose":
		first := def(n.Inputs[0], "Transpose")
		if first == nil {
			return false, nil
		}
		p, ok1 := ir.AttrOf(first.Op, "perm").([]int)
		q, ok2 := ir.AttrOf(n.Op, "perm").([]int)
		if !ok1 || !ok2 || len(p) != len(q) {
			return false, nil
		}
		perm := make([]int, len(p))
		for i := range q {
			perm[i] = p[q[i]]
		}
		n.Op = ir.CloneOp(n.Op)
		if err := ir.SetAttr(n.Op, "perm", perm); err != nil {
			return false, err
		}
		n.SetInput(0, first.Inputs[0])
		if v := same(n); v != nil {
			n.Graph().ReplaceUses(n.Outputs[0], v)
			n.Graph().Remove(n)
		}
		return true, nil
	case "Reshape":
		// Only where the target shape says nothing of the shape before it.
		first := n.Inputs[0].Def
		if first == nil || !slices.Contains([]string{"Reshape", "Flatten", "Squeeze", "Unsqueeze"}, first.Op.Kind()) || n.Inputs[1].Const == nil {
			return false, nil
		}
		if slices.Contains(n.Inputs[1].Const.Int64s(), 0) || first.Inputs[0].Graph() != n.Graph() {
			return false, nil
		}
		n.SetInput(0, first.Inputs[0])
		return true, nil
	}
	return false, nil
}
