package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// order returns the permutation of a node Transpose; ok is false for another
// operator, or where the rank is not known.
func order(n *ir.Node) (perm []int, ok bool) {
	t, ok := n.Op.(*op.Transpose)
	if !ok || t.Perm == nil && !n.Inputs[0].Type.Ranked {
		return nil, false
	}
	return t.Order(n.Inputs[0].Type.Rank()), true
}

// transposed returns the node Transpose that defines v, and its permutation.
func transposed(v *ir.Value) (n *ir.Node, perm []int, ok bool) {
	if n = def(v, "Transpose"); n == nil {
		return nil, nil, false
	}
	perm, ok = order(n)
	return n, perm, ok
}

// reshapes reports whether n only gives a tensor another shape.
func reshapes(n *ir.Node) bool {
	m, _ := op.Moves(n)
	return m == op.Keeps && op.Operands(n) == 0 // not Identity, nor Dropout and its mask
}

// target returns the constant second input of a Reshape from x to a type: a
// dimension that is not known and stays where it is in x is 0, or else a single one
// is -1. ok is false for others, where a size is zero, and where only sizes of zero make
// the elements as many as those of x.
func target(x *ir.Value, t ir.Type) (shape []int, ok bool) {
	if !t.Ranked {
		return nil, false
	}
	open, kept := 0, 0
	for i, d := range t.Dims {
		switch {
		case d == ir.Size(0):
			return nil, false
		case d.Known():
			shape = append(shape, d.Size())
		case i < x.Type.Rank() && x.Type.Dims[i] == d:
			kept++
			shape = append(shape, 0)
		default:
			open++
			shape = append(shape, -1)
		}
	}
	if from, ok := x.Type.Elems(); ok && open == 0 {
		to, _ := t.Elems()
		return shape, from == to
	}
	return shape, open == 0 || open == 1 && kept == 0 // -1 is not defined beside a size of zero
}

// makeReshape turns n into a Reshape of x to a constant shape.
func makeReshape(n *ir.Node, x *ir.Value, shape []int) error {
	o, err := newOp("Reshape", nil)
	if err != nil {
		return err
	}
	for i := len(n.Inputs) - 1; i > 1; i-- {
		n.SetInput(i, nil)
	}
	n.Op = o
	n.SetInput(0, x)
	n.SetInput(1, n.Graph().NewConst(n.Name+".shape", tensor.Ints(shape...)))
	return nil
}

// joinTransposes makes a transpose of a transpose one.
func joinTransposes(n *ir.Node) (bool, error) {
	q, ok := order(n)
	if !ok {
		return false, nil
	}
	first, p, ok := transposed(n.Inputs[0])
	if !ok || len(p) != len(q) {
		return false, nil
	}
	perm := make([]int, len(p))
	for i := range q {
		perm[i] = p[q[i]]
	}
	n.Op = ir.CloneOp(n.Op)
	n.SetInput(0, first.Inputs[0])
	return true, ir.SetAttr(n.Op, "perm", perm)
}

// passTranspose cancels transposes with an operator in between that treats elements
// one by one, or channels, which become another axis.
func passTranspose(n *ir.Node) (bool, error) {
	q, ok := order(n)
	if !ok {
		return false, nil
	}
	u := n.Inputs[0].Def
	if u == nil || u.Input(0) == nil || !sole(n.Inputs[0]) || !spare(u) {
		return false, nil
	}
	first, p, ok := transposed(u.Inputs[0])
	if !ok || len(p) != len(q) {
		return false, nil
	}
	for i := range q {
		if p[q[i]] != i {
			return false, nil
		}
	}
	x := first.Inputs[0]
	if op.Operands(u) == 1 {
		u.SetInput(0, x)
		forward(n, u.Outputs[0])
		return true, u.Infer()
	}
	o, is := u.Op.(*op.BatchNormalization)
	if !is || !isF32(x) || len(p) < 2 {
		return false, nil
	}
	scale, shift := o.Affine(u)
	if scale == nil || u.Inputs[0].Type.Dims[1] != ir.Size(len(scale)) {
		return false, nil
	}
	// Along axis p[1], which the transpose made axis 1.
	v, err := op.InsertAffine(n, u.Name, x, scale, shift, len(p)-p[1]-1)
	if err != nil {
		return false, err
	}
	forward(n, v)
	return true, nil
}

// reshapeOnly makes a transpose that only moves axes of one element a reshape.
func reshapeOnly(n *ir.Node) (bool, error) {
	perm, ok := order(n)
	if !ok || !n.Inputs[0].Type.Ranked {
		return false, nil
	}
	x := n.Inputs[0]
	wide := slices.DeleteFunc(slices.Clone(perm), func(a int) bool { return x.Type.Dims[a] == ir.Size(1) })
	shape, ok := target(x, n.Outputs[0].Type)
	if !ok || !slices.IsSorted(wide) {
		return false, nil
	}
	return true, makeReshape(n, x, shape)
}

// joinReshapes makes a reshape of a reshape read what that one reads.
func joinReshapes(n *ir.Node) (bool, error) {
	if !reshapes(n) {
		return false, nil
	}
	first := n.Inputs[0].Def
	if first == nil || !reshapes(first) {
		return false, nil
	}
	if s := n.Input(1); n.Op.Kind() == "Reshape" && s.Const != nil && !slices.Contains(s.Const.Int64s(), 0) {
		n.SetInput(0, first.Inputs[0]) // the shape says nothing of the one before it
		return true, nil
	}
	shape, ok := target(first.Inputs[0], n.Outputs[0].Type)
	if !ok {
		return false, nil
	}
	return true, makeReshape(n, first.Inputs[0], shape)
}

// skipExpand has an elementwise operator read what an Expand repeats, where it repeats it itself.
func skipExpand(n *ir.Node) (bool, error) {
	if op.Operands(n) < 2 || !numpy(n) || !n.Outputs[0].Type.Ranked {
		return false, nil
	}
	dims := n.Outputs[0].Type.Dims
	for i, v := range n.Inputs[:op.Operands(n)] {
		e := def(v, "Expand")
		if e == nil {
			continue
		}
		n.SetInput(i, e.Inputs[0])
		if err := n.Infer(); err == nil && n.Outputs[0].Type.Ranked && slices.Equal(n.Outputs[0].Type.Dims, dims) {
			return true, nil
		}
		n.SetInput(i, v)
		if err := n.Infer(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// unwrapReshapes makes a binary operator between a reshape and another back to the shape before
// treat what is not reshaped, where its other operand can be reshaped instead: so do windows of
// images get their masks.
func unwrapReshapes(n *ir.Node) (bool, error) {
	if !reshapes(n) || !sole(n.Inputs[0]) {
		return false, nil
	}
	e := n.Inputs[0].Def
	if e == nil || op.Operands(e) != 2 || !numpy(e) {
		return false, nil
	}
	for i, y := range e.Inputs[:2] {
		if y.Def == nil || !reshapes(y.Def) || !equal(y.Def.Inputs[0], n.Outputs[0]) {
			continue
		}
		x, other := y.Def.Inputs[0], e.Inputs[1-i]
		shape, ok := regrouped(other.Type, y.Type, x.Type)
		if out := e.Outputs[0]; !ok || !slices.Equal(out.Type.Dims, y.Type.Dims) {
			continue
		}
		other, err := builder{e}.reshape("other", other, shape)
		if err != nil {
			return false, err
		}
		e.SetInput(i, x)
		e.SetInput(1-i, other)
		forward(n, e.Outputs[0])
		if len(y.Uses()) == 0 && !y.IsOutput() {
			y.Graph().Remove(y.Def)
		}
		return true, e.Infer()
	}
	return false, nil
}

// regrouped returns the shape with which what broadcasts to a type does so to another that the
// type is reshaped to, where all sizes are known: of axes that become others together, it has all
// or none.
func regrouped(b, from, to ir.Type) (shape []int, ok bool) {
	y, ok1 := from.Shape()
	x, ok2 := to.Shape()
	s, ok3 := b.Shape()
	if !ok1 || !ok2 || !ok3 || len(s) > len(y) || slices.Contains(y, 0) {
		return nil, false
	}
	s = append(slices.Repeat([]int{1}, len(y)-len(s)), s...)
	for i, j := 0, 0; i < len(y) || j < len(x); {
		k, l, m, n := i, j, 1, 1
		for k == i && l == j || m != n { // the least axes whose sizes have the same product
			if l == len(x) || k < len(y) && m <= n {
				m *= y[k]
				k++
			} else {
				n *= x[l]
				l++
			}
		}
		switch own := s[i:k]; {
		case slices.Equal(own, y[i:k]):
			shape = append(shape, x[j:l]...)
		case !slices.ContainsFunc(own, func(d int) bool { return d != 1 }):
			shape = append(shape, slices.Repeat([]int{1}, l-j)...)
		default:
			return nil, false
		}
		i, j = k, l
	}
	return shape, true
}

// settleShape makes the shape of a Reshape constant that is computed from the sizes
// of its input.
func settleShape(n *ir.Node) (bool, error) {
	if n.Op.Kind() != "Reshape" || n.Inputs[1].IsConst() {
		return false, nil
	}
	shape, ok := target(n.Inputs[0], n.Outputs[0].Type)
	if !ok {
		return false, nil
	}
	return true, makeReshape(n, n.Inputs[0], shape)
}

// transposeFlags makes Gemm read its inputs transposed, unless it is of integers, which are not.
func transposeFlags(n *ir.Node) (done bool, err error) {
	if o, ok := n.Op.(*op.Gemm); !ok || o.Quantised() {
		return false, nil
	}
	for i, attr := range []string{"transA", "transB"} {
		t, _, ok := transposed(n.Inputs[i])
		if !ok || n.Inputs[i].Type.Rank() != 2 { // of rank 2, only one permutation does anything
			continue
		}
		if perm, _ := order(t); slices.IsSorted(perm) {
			continue
		}
		n.Op = ir.CloneOp(n.Op)
		if err := ir.SetAttr(n.Op, attr, 1-ir.AttrOf(n.Op, attr).(int)); err != nil {
			return false, err
		}
		n.SetInput(i, t.Inputs[0])
		done = true
	}
	return done, nil
}

// permuteRows moves a transpose in front of a flattening into the constant matrix
// of the product that follows: the rows of that are permuted instead.
func permuteRows(n *ir.Node) (bool, error) {
	kAxis := 0 // of the matrix
	switch n.Op.Kind() {
	case "MatMul":
	case "Gemm":
		if ir.AttrOf(n.Op, "transA") == 1 {
			return false, nil
		}
		kAxis = ir.AttrOf(n.Op, "transB").(int)
	default:
		return false, nil
	}
	flat, b := n.Inputs[0].Def, n.Inputs[1]
	if b.Const == nil || b.Const.Rank() != 2 || len(b.Uses()) != 1 || b.IsOutput() ||
		flat == nil || !reshapes(flat) || !sole(flat.Outputs[0]) {
		return false, nil
	}
	t, perm, ok := transposed(flat.Inputs[0])
	if !ok || len(perm) < 2 || perm[0] != 0 || !sole(t.Outputs[0]) {
		return false, nil
	}
	inner, ok := ir.Type{Dims: t.Outputs[0].Type.Dims[1:], Ranked: true}.Shape()
	k := b.Const.Dim(kAxis)
	if f := flat.Outputs[0].Type; !ok || k == 0 || elems(inner) != k || f.Rank() != 2 || f.Dims[1] != ir.Size(k) {
		return false, nil
	}
	// The axes of k as the transpose leaves them, and where each came from.
	back := make([]int, len(inner))
	for i, p := range perm[1:] {
		back[p-1] = i
	}
	m := b.Const.Shape()[1-kAxis]
	var w *tensor.Tensor
	if kAxis == 0 {
		w = b.Const.Reshape(append(slices.Clone(inner), m)...).Permute(append(back, len(inner))...).Reshape(k, m)
	} else {
		order := []int{0}
		for _, a := range back {
			order = append(order, a+1)
		}
		w = b.Const.Reshape(append([]int{m}, inner...)...).Permute(order...).Reshape(m, k)
	}
	if err := makeReshape(flat, t.Inputs[0], []int{-1, k}); err != nil {
		return false, err
	}
	b.SetConst(w)
	return true, nil
}

func elems(shape []int) int {
	n, err := tensor.Elems(shape)
	if err != nil {
		return -1
	}
	return n
}
