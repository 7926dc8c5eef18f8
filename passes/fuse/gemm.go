package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Gemms spells each Gemm of f32 whose right side [K,N] is not constant, as where a network makes the weights of another, as a
// product of matrices and a sum. One that is given as [N,K] is as a weight is, and stays. Where Reshape nodes make matrices of
// tensors for a Gemm with a weight, and tensors again of what it gives, as ONNX Runtime's optimiser does to have a bias in the
// product, it becomes a product of the tensors.
func Gemms(g *ir.Graph) (int, error) {
	flat, err := rewrite(g, unflatten)
	if err != nil {
		return flat, err
	}
	if flat > 0 {
		if _, err := Identities(g); err != nil { // the reshapes around them
			return flat, err
		}
	}
	n, err := rewrite(g, func(n *ir.Node) (bool, error) {
		o, ok := n.Op.(*op.Gemm)
		if !ok || !isF32(n.Inputs[0]) || n.Inputs[1].IsConst() || o.TransB || o.Quantised() || o.Act != "" || n.Input(op.Residual) != nil {
			return false, nil
		}
		e := &einsum{builder: builder{n}}
		x := n.Inputs[0]
		if o.TransA {
			x = e.node("Transpose", nil, x)
		}
		times := func(v *ir.Value, factor float32) *ir.Value {
			if factor != 1 {
				v = e.node("Mul", nil, v, e.constant("factor", tensor.Scalar(factor)))
			}
			return v
		}
		y := times(e.node("MatMul", nil, x, n.Inputs[1]), o.Alpha)
		if c := n.Input(2); c != nil && o.Beta != 0 {
			y = e.node("Add", nil, y, times(c, o.Beta))
		}
		if e.err == nil {
			forward(n, y)
		}
		return true, e.err
	})
	return flat + n, err
}

// unflatten makes a product of tensors of a Gemm between Reshape nodes.
func unflatten(n *ir.Node) (bool, error) {
	o, ok := n.Op.(*op.Gemm)
	if !ok || !n.Inputs[1].IsConst() || o.TransA || o.TransB || o.Alpha != 1 || o.Quantised() || o.Act != "" || n.Input(op.Residual) != nil {
		return false, nil
	}
	if c := n.Input(2); c != nil && (o.Beta != 1 || c.Type.Rank() != 1) {
		return false, nil
	}
	y := n.Outputs[0]
	columns := y.Type.Dims[1]
	if !columns.Known() || columns.Size() == 0 || y.IsOutput() || slices.ContainsFunc(y.Uses(), func(u ir.Use) bool { return u.Node.Op.Kind() != "Reshape" || u.Index != 0 }) {
		return false, nil
	}
	x, err := unflattened(n)
	if x == nil || err != nil {
		return false, err
	}
	product, err := newOp("MatMul", nil)
	if err != nil {
		return false, err
	}
	m := n.Graph().InsertBefore(n, n.Name, product, append([]*ir.Value{x}, n.Inputs[1:]...), y.Name)
	if err := m.Infer(); err != nil {
		return false, err
	}
	matrix, err := builder{n}.add("matrix", "Reshape", nil, m.Outputs[0], builder{n}.constant("shape", tensor.Ints(-1, columns.Size())))
	if err != nil {
		return false, err
	}
	m.Name, n.Name = n.Name, m.Name // the layer keeps it
	forward(n, matrix)
	return true, nil
}

// unflattened is the tensor of rank 3 or more of which a Gemm has a matrix as its input 0: what was made that matrix, or, where
// that was none of as many features, the rows as they are apart in what is made of the product. It is nil where there is none.
func unflattened(n *ir.Node) (*ir.Value, error) {
	r, features := def(n.Inputs[0], "Reshape"), n.Inputs[0].Type.Dims[1]
	if r == nil || !features.Known() || features.Size() == 0 {
		return nil, nil
	}
	if t := r.Inputs[0].Type; t.Ranked && t.Rank() > 2 && t.Dims[t.Rank()-1] == features {
		return r.Inputs[0], nil
	}
	for _, u := range n.Outputs[0].Uses() {
		t := u.Node.Outputs[0].Type
		if !t.Ranked || t.Rank() < 3 || t.Dims[t.Rank()-1] != n.Outputs[0].Type.Dims[1] {
			continue
		}
		shape, open := make([]int, t.Rank()), 0
		for i, d := range t.Dims[:t.Rank()-1] {
			if shape[i] = -1; d.Known() {
				shape[i] = d.Size()
			} else {
				open++
			}
		}
		shape[t.Rank()-1] = features.Size()
		if open > 1 || slices.Contains(shape, 0) {
			continue
		}
		return builder{n}.add("tensor", "Reshape", nil, n.Inputs[0], builder{n}.constant("tensor.shape", tensor.Ints(shape...)))
	}
	return nil, nil
}
