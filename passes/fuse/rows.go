package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// wholeRows makes what gathers or scatters elements, whose indices are broadcast along all axes behind that of the operator,
// gather or scatter the rows that they name.
func wholeRows(n *ir.Node) (bool, error) {
	var axis int
	var made ir.Op
	switch o := n.Op.(type) {
	case *op.GatherElements:
		axis = positive(o.Axis, n.Inputs[0].Type.Rank())
		made = &op.GatherND{BatchDims: axis}
	case *op.ScatterElements:
		axis = positive(o.Axis, n.Inputs[0].Type.Rank())
		made = &op.ScatterND{Reduction: o.Reduction}
		if axis != 0 {
			return false, nil
		}
	default:
		return false, nil
	}
	e := def(n.Inputs[1], "Expand")
	if e == nil {
		return false, nil
	}
	x, wide, narrow, size := n.Inputs[0].Type, n.Inputs[1].Type, e.Inputs[0].Type, e.Inputs[1].Type
	rank := len(x.Dims)
	if slices.Contains(x.Dims, ir.Size(0)) { // no element reads an index, which may be none of a row
		return false, nil
	}
	if !x.Ranked || axis+1 >= rank || len(wide.Dims) != rank || len(narrow.Dims) != rank || len(size.Dims) != 1 || size.Dims[0] != ir.Size(rank) ||
		slices.ContainsFunc(narrow.Dims[axis+1:], func(d ir.Dim) bool { return d != ir.Size(1) }) ||
		!slices.Equal(x.Dims[:axis], wide.Dims[:axis]) || !slices.Equal(x.Dims[axis+1:], wide.Dims[axis+1:]) {
		return false, nil
	}
	b := builder{n}
	shape := append(make([]int, axis+1), 1) // the first axes as they are
	indices, err := b.add("rows", "Reshape", nil, e.Inputs[0], b.constant("rows.shape", tensor.Ints(shape...)))
	if err == nil && !slices.Equal(narrow.Dims[:axis+1], wide.Dims[:axis+1]) {
		indices, err = b.broadcastRows(indices, e.Inputs[1], axis+1)
	}
	if err != nil {
		return false, err
	}
	inputs := slices.Clone(n.Inputs)
	inputs[1] = indices
	return true, replace(n, made, inputs...)
}

// broadcastRows expands the first axes of indices to the first of the sizes, which may be theirs.
func (b builder) broadcastRows(indices, sizes *ir.Value, axes int) (*ir.Value, error) {
	first, err := b.add("first", "Slice", nil, sizes, b.constant("first.from", tensor.Ints(0)), b.constant("first.to", tensor.Ints(axes)))
	if err != nil {
		return nil, err
	}
	if first, err = b.add("size", "Concat", map[string]any{"axis": 0}, first, b.constant("one", tensor.Ints(1))); err != nil {
		return nil, err
	}
	return b.add("all", "Expand", nil, indices, first)
}
