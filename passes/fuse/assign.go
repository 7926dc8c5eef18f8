package fuse

import (
	"bytes"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Assignments simplifies each ScatterND whose constant indices are those of a box, x[:, 1:] = y as exporters spell it, where an
// index names every element. What the next one writes over is not written. Where what is written is a sum with what was
// there,
//
//	x[:, 1:] += y
//
// that is the sum with y between zeros, of which attention makes a mask. Indices of others name runs that are as long as the
// box allows. What gathers or scatters elements by indices that are broadcast over rows takes rows.
func Assignments(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if done, err := wholeRows(n); done || err != nil {
			return done, err
		}
		return assignment(n)
	})
}

func assignment(n *ir.Node) (bool, error) {
	o, ok := n.Op.(*op.ScatterND)
	if !ok || o.Reduction != "none" && o.Reduction != "add" {
		return false, nil
	}
	shape, ok := n.Inputs[0].Type.Shape()
	indices := constantOf(n.Inputs[1])
	if !ok || indices == nil {
		return false, nil
	}
	if o.Reduction == "none" && writtenOver(n, indices) {
		forward(n, n.Inputs[0])
		return true, nil
	}
	box, ok := boxOf(indices, shape)
	if !ok {
		return false, nil
	}
	b, whole := builder{n}, elems(shape)
	if elems(box.size) == 0 { // nothing is assigned, and a Reshape takes a 0 for another size
		return false, nil
	}
	if 2*elems(box.size) < whole {
		return box.shorten(b, shape)
	}
	var y *ir.Value
	var err error
	switch {
	case o.Reduction == "add":
		y, err = b.sized(n.Inputs[2], "Reshape", box.size)
	default:
		if y = box.summand(n); y == nil {
			return box.shorten(b, shape)
		}
		y, err = b.sized(y, "Expand", box.size)
	}
	if err == nil {
		y, err = box.between(b, y, shape)
	}
	if err != nil {
		return false, err
	}
	y, err = b.add("sum", "Add", nil, n.Inputs[0], y)
	if err == nil {
		forward(n, y)
	}
	return true, err
}

// mostIndices bounds the elements of what is evaluated of constants that are not stored.
const mostIndices = 1 << 24

// constantOf returns the elements of v where nodes of one output make it of constants alone; nil where they do not, or it is too
// large.
func constantOf(v *ir.Value) *tensor.Tensor {
	known := map[*ir.Value]*tensor.Tensor{}
	var evaluable func(v *ir.Value) bool
	evaluable = func(v *ir.Value) bool {
		if _, seen := known[v]; seen || v == nil {
			return true
		}
		if known[v] = v.Const; v.Const != nil {
			return true
		}
		shape, ok := v.Type.Shape()
		count := elems(shape)
		return ok && count >= 0 && count <= mostIndices && v.Def != nil && len(v.Def.Outputs) == 1 && ir.Pure(v.Def.Op) &&
			len(ir.Subgraphs(v.Def.Op)) == 0 && len(v.Def.Inputs) > 0 && !slices.ContainsFunc(v.Def.Inputs, func(v *ir.Value) bool { return !evaluable(v) })
	}
	var evaluate func(v *ir.Value) *tensor.Tensor
	evaluate = func(v *ir.Value) *tensor.Tensor {
		if v == nil || known[v] != nil {
			return known[v]
		}
		in := make([]*tensor.Tensor, len(v.Def.Inputs))
		for i, w := range v.Def.Inputs {
			if in[i] = evaluate(w); in[i] == nil && w != nil {
				return nil
			}
		}
		if out, err := v.Def.Op.Eval(&ir.Eval{Outputs: 1}, in); err == nil && len(out) == 1 {
			known[v] = out[0]
		}
		return known[v]
	}
	if !evaluable(v) {
		return nil
	}
	return evaluate(v)
}

// writtenOver reports whether the only reader of n's output is a ScatterND that writes all that n writes.
func writtenOver(n *ir.Node, indices *tensor.Tensor) bool {
	v := n.Outputs[0]
	if !sole(v) {
		return false
	}
	next := v.Uses()[0].Node
	o, ok := next.Op.(*op.ScatterND)
	if !ok || o.Reduction != "none" || next.Inputs[0] != v || next.Inputs[2] == v || !equal(next.Inputs[1], n.Inputs[1]) {
		return false
	}
	over := constantOf(next.Inputs[1])
	return over != nil && bytes.Equal(indices.Bytes(), over.Bytes())
}

// box is a part of a tensor: size elements of each axis from one on.
type box struct {
	from, size []int
}

// boxOf returns what indices of a ScatterND name in a tensor of a shape, where that is a box, row by row.
func boxOf(indices *tensor.Tensor, shape []int) (b box, ok bool) {
	last := indices.Rank() - 1
	k, at := indices.Dim(last), indices.Ints()
	if k == 0 || len(at) == 0 {
		return b, false
	}
	b = box{make([]int, len(shape)), slices.Clone(shape)}
	for j, i := range at[:k] {
		b.from[j], b.size[j] = wrapped(i, shape[j]), 1
	}
	// Each axis of the indices along which they differ is the next axis of the box that differs.
	strides := tensor.Strides(indices.Shape())
	j := 0
	for a, d := range indices.Shape()[:last] {
		if d == 1 {
			continue
		}
		next := at[strides[a]:][:k]
		for j < k && wrapped(next[j], shape[j]) == b.from[j] {
			j++
		}
		if j == k {
			return b, false
		}
		b.size[j] = d
		j++
	}
	place := slices.Clone(b.from[:k])
	for ; len(at) > 0; at = at[k:] {
		for j, i := range at[:k] {
			if wrapped(i, shape[j]) != place[j] || place[j] >= shape[j] {
				return b, false
			}
		}
		b.next(place)
	}
	return b, true
}

// wrapped counts an index from the end where it is negative.
func wrapped(i, size int) int {
	if i < 0 {
		return i + size
	}
	return i
}

// summand returns what n, which writes to the box, adds to what is there; nil where it writes something else.
func (b box) summand(n *ir.Node) *ir.Value {
	sum := def(n.Inputs[2], "Add")
	if sum == nil || !sole(n.Inputs[2]) {
		return nil
	}
	for i, v := range sum.Inputs {
		if equal(v, n.Inputs[2]) && b.reads(v, n.Inputs[0]) {
			return sum.Inputs[1-i]
		}
	}
	return nil
}

// reads reports whether v is the box of x.
func (b box) reads(v, x *ir.Value) bool {
	slice := def(v, "Slice")
	if slice == nil || slice.Inputs[0] != x {
		return false
	}
	args, ok := sliceArgs(slice)
	if shape, known := v.Type.Shape(); !ok || !known || !slices.Equal(shape, b.size) {
		return false
	}
	from := make([]int, len(b.from))
	for i, a := range args[2] {
		if from[a] = wrapped(args[0][i], x.Type.Dims[a].Size()); args[3][i] != 1 {
			return false
		}
	}
	return slices.Equal(from, b.from)
}

// between returns y, of the size of the box, between zeros that make it of the given shape.
func (b box) between(at builder, y *ir.Value, shape []int) (*ir.Value, error) {
	if slices.Equal(b.size, shape) {
		return y, nil
	}
	pads := slices.Clone(b.from)
	for a, d := range shape {
		pads = append(pads, d-b.from[a]-b.size[a])
	}
	return at.add("between", "Pad", nil, y, at.constant("pads", tensor.Ints(pads...)))
}

// shorten has the indices of the node name runs of elements that are as long as the box allows, and reports whether they did
// not.
func (b box) shorten(at builder, shape []int) (bool, error) {
	k := len(shape)
	for k > 1 && b.size[k-1] == shape[k-1] {
		k--
	}
	n := at.at
	if d := n.Inputs[1].Type.Dims; d[len(d)-1] == ir.Size(k) {
		return false, nil
	}
	y, err := at.sized(n.Inputs[2], "Reshape", b.size)
	if err != nil {
		return false, err
	}
	runs := tensor.New(tensor.I64, append(slices.Clone(b.size[:k]), k)...)
	place := slices.Clone(b.from[:k])
	for to := tensor.Data[int64](runs); len(to) > 0; to = to[k:] {
		for j, i := range place {
			to[j] = int64(i)
		}
		b.next(place)
	}
	n.SetInput(1, at.constant("runs", runs))
	n.SetInput(2, y)
	return true, nil
}

// next is the place in the box that follows another, row by row.
func (b box) next(place []int) {
	for j := len(place) - 1; j >= 0; j-- {
		if place[j]++; place[j] < b.from[j]+b.size[j] {
			return
		}
		place[j] = b.from[j]
	}
}

// sized gives y a shape, by an operator that takes one, where it has another.
func (b builder) sized(y *ir.Value, kind string, shape []int) (*ir.Value, error) {
	if have, ok := y.Type.Shape(); ok && slices.Equal(have, shape) {
		return y, nil
	}
	return b.add("sized", kind, nil, y, b.constant("size", tensor.Ints(shape...)))
}
