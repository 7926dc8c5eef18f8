package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Identities removes nodes that return their input: Identity, Dropout in
// inference, casts to the same type, transposes, reshapes, slices and tilings that
// change nothing, padding by nothing, sums and products with neutral constants. It
// joins transposes, reshapes and slices that follow each other, cancels transposes around
// what treats elements or channels one by one and reshapes around a binary operator, makes a transpose part of
// the product that reads it where it can, makes shapes constant that name only
// what stays, has elementwise operators read what an Expand repeats for them, raises f32 to constant powers of its own type, makes an Add of a Sum of two, and turns the broadcasting of old opsets into numpy's.
func Identities(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if v := same(n); v != nil {
			forward(n, v)
			return true, nil
		}
		for _, f := range []func(*ir.Node) (bool, error){realign, joinTransposes, passTranspose, reshapeOnly, joinReshapes, unwrapReshapes, skipExpand, settleShape, transposeFlags, permuteRows, joinSlices, floatExponent, sumOfTwo} {
			done, err := f(n)
			if err != nil {
				return false, err
			}
			if !done {
				continue
			}
			if n.Graph() != nil {
				if v := same(n); v != nil {
					forward(n, v)
				}
			}
			return true, nil
		}
		return false, nil
	})
}

// same returns the input that n returns, nil where it does something.
func same(n *ir.Node) *ir.Value {
	if len(n.Outputs) == 0 || !spare(n) {
		return nil
	}
	return op.Same(n)
}

// floatExponent makes constant integers to which f32 is raised floats, where these are the same numbers.
func floatExponent(n *ir.Node) (bool, error) {
	if n.Op.Kind() != "Pow" || n.Inputs[0].Type.DType != tensor.F32 || n.Inputs[1].Const == nil || !n.Inputs[1].Type.DType.IsInt() {
		return false, nil
	}
	e := n.Inputs[1]
	floats := e.Const.To(tensor.F32)
	if !floats.To(e.Const.DType()).Equal(e.Const) {
		return false, nil
	}
	n.SetInput(1, n.Graph().NewConst(e.Name+".float", floats))
	return true, nil
}

// sumOfTwo makes an Add of a Sum of two, which products take up as a residual.
func sumOfTwo(n *ir.Node) (bool, error) {
	if n.Op.Kind() != "Sum" || len(n.Inputs) != 2 {
		return false, nil
	}
	o, err := newOp("Add", nil)
	if err != nil {
		return false, err
	}
	n.Op = o
	return true, nil
}

// realign makes a binary operator that aligns its second input with an axis, as
// opsets below 7 do, broadcast as numpy does: the second input gets dimensions of
// one at its end.
func realign(n *ir.Node) (bool, error) {
	attrs := ir.Attrs(n.Op)
	if numpy(n) || len(attrs) != 1 || !n.Inputs[0].Type.Ranked || !n.Inputs[1].Type.Ranked {
		return false, nil
	}
	axis, b, rank := ir.AttrOf(n.Op, "axis").(int), n.Inputs[1], n.Inputs[0].Type.Rank()
	if axis < 0 {
		axis += rank
	}
	var axes []int // the new ones
	for i := b.Type.Rank(); i > 0 && i < rank-axis; i++ {
		axes = append(axes, i)
	}
	g := n.Graph()
	switch {
	case len(axes) == 0:
	case b.Const != nil:
		n.SetInput(1, g.NewConst(b.Name+".aligned", b.Const.Reshape(append(slices.Clone(b.Const.Shape()), slices.Repeat([]int{1}, len(axes))...)...)))
	default:
		o, err := newOp("Unsqueeze", nil)
		if err != nil {
			return false, err
		}
		u := g.InsertBefore(n, n.Name+".aligned", o, []*ir.Value{b, g.NewConst(n.Name+".axes", tensor.Ints(axes...))}, b.Name+".aligned")
		if err := u.Infer(); err != nil {
			return false, err
		}
		n.SetInput(1, u.Outputs[0])
	}
	o, err := newOp(n.Op.Kind(), nil)
	if err != nil {
		return false, err
	}
	n.Op = o
	return true, nil
}
