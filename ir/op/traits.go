package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Whole says of an input that it may be read from end to end for each slice of an output.
const Whole = -1

// A Sliced operator computes an output slice by slice along some of its axes.
type Sliced interface {
	ir.Op
	// Along returns the axis of each of the first inputs along which slices belong to those
	// of output out along axis: slice i of the output depends on slice i of such an input
	// alone, and of no other input's than those, so that what is computed from some slices is those of the
	// output. An input that is Whole, or behind those returned, is read from end to end. It is
	// nil where slices of the output depend on others, or where types and constants do not
	// tell. Axes of inputs that are broadcast count from the last, so that they may be
	// negative, or of size one: package op's Along sorts these out.
	Along(n *ir.Node, out, axis int) []int
}

// Along returns for each input of n its axis whose slices belong to those of output
// out along axis, or Whole: slice i of the output is computed from slice i of these inputs, as many as
// it has itself, and from the whole of the others. It is nil where that does not hold or is not known.
func Along(n *ir.Node, out, axis int) []int {
	o, ok := n.Op.(Sliced)
	if !ok || out >= len(n.Outputs) || n.Outputs[out] == nil {
		return nil
	}
	y := n.Outputs[out].Type
	if !y.Ranked || axis < 0 || axis >= y.Rank() {
		return nil
	}
	at := o.Along(n, out, axis)
	if at == nil {
		return nil
	}
	in := make([]int, len(n.Inputs))
	for i, v := range n.Inputs {
		in[i] = Whole
		switch {
		case v == nil || i >= len(at) || at[i] < 0:
			continue
		case !v.Type.Ranked || at[i] >= v.Type.Rank():
			return nil
		}
		switch d := v.Type.Dims[at[i]]; d {
		case y.Dims[axis]:
			in[i] = at[i]
		case ir.Size(1): // broadcast
		default:
			return nil
		}
	}
	return in
}

// An Elementwise operator computes each element of output 0 from the elements at its place in its
// operands, broadcast against each other as numpy does.
type Elementwise interface {
	Sliced
	// Operands returns how many of the first inputs are operands, 0 where the node is not
	// elementwise after all. Inputs behind them hold for all elements.
	Operands(n *ir.Node) int
}

// Operands returns how many of the first inputs of n an elementwise operator combines; 0
// for other operators.
func Operands(n *ir.Node) int {
	if o, ok := n.Op.(Elementwise); ok {
		return o.Operands(n)
	}
	return 0
}

// pointwise gives an operator the traits of a function of each element of input 0.
type pointwise struct{ streaming }

func (pointwise) Operands(*ir.Node) int { return 1 }

func (pointwise) Along(n *ir.Node, _, axis int) []int { return broadcastAlong(n, 1, axis) }

// combining gives an operator the traits of a function of the elements of all inputs.
type combining struct{ streaming }

func (combining) Operands(n *ir.Node) int { return len(n.Inputs) }

func (combining) Along(n *ir.Node, _, axis int) []int { return broadcastAlong(n, len(n.Inputs), axis) }

// broadcastAlong lines up the axes of the first inputs with an axis of output 0 as
// numpy does.
func broadcastAlong(n *ir.Node, operands, axis int) []int {
	return alignedAlong(n, operands, n.Outputs[0].Type.Rank(), axis)
}

// alignedAlong lines up the axes of the first inputs with an axis of a shape of the given rank as numpy does.
func alignedAlong(n *ir.Node, operands, rank, axis int) []int {
	in := make([]int, 0, operands)
	for _, v := range n.Inputs[:min(operands, len(n.Inputs))] {
		at := Whole
		if v != nil {
			if !v.Type.Ranked {
				return nil
			}
			at = max(axis-rank+v.Type.Rank(), Whole)
		}
		in = append(in, at)
	}
	return in
}

// others returns the same axis of input 0, where it is not among those that the operator
// works along.
func others(n *ir.Node, axis int, along ...int) []int {
	rank := n.Inputs[0].Type.Rank()
	for _, a := range along {
		if norm(a, rank) == axis {
			return nil
		}
	}
	return []int{axis}
}

// constAxes returns the axes that an input lists, none below 0; ok is false where it is no
// constant.
func constAxes(v *ir.Value, rank int) (axes []int, ok bool) {
	if v == nil || v.Const == nil {
		return nil, false
	}
	axes, err := axesOf(v.Const.Ints(), rank)
	return axes, err == nil
}

// planes gives an operator the traits of one that treats each channel of each image of
// X[N,C,D1..Dn] by itself, with the first inputs behind it listing something for each channel.
func planes(axis, vectors int) []int {
	switch axis {
	case 0:
		return []int{0}
	case 1:
		return append([]int{1}, make([]int, vectors)...)
	}
	return nil
}

// Motion says how much of its data an operator leaves alone.
type Motion int

const (
	Computes Motion = iota // elements of output 0 are computed
	Picks                  // each is an element of the data
	Permutes               // and each element of the data is one of them, once
	Keeps                  // and they are in the order of the data, in row-major order
)

// A Mover gives some elements of its data another place.
type Mover interface {
	ir.Op
	Moves(n *ir.Node) Motion
}

// Moves returns what becomes of the elements of the inputs that hold the data of n: the
// first one, or where a Mover joins tensors all of them.
func Moves(n *ir.Node) (Motion, []*ir.Value) {
	o, ok := n.Op.(Mover)
	if !ok || n.Input(0) == nil || n.Inputs[0].Type.DType.IsList() {
		return Computes, nil
	}
	m := o.Moves(n)
	if m == Computes {
		return m, nil
	}
	if j, ok := n.Op.(interface{ joins() }); ok {
		j.joins()
		return m, n.Inputs
	}
	return m, n.Inputs[:1]
}

type picking struct{}

func (picking) Moves(*ir.Node) Motion { return Picks }

// Work counts of the data no more than what is picked.
func (picking) Work(in, out []ir.Type) ir.Work {
	w, picked := streamWork(in, out, 1), 0.0
	for _, t := range out {
		picked += typeBytes(t)
	}
	w.Bytes -= max(0, typeBytes(in[0])-picked)
	return w
}

type permuting struct{ streaming }

func (permuting) Moves(*ir.Node) Motion { return Permutes }

// keeping gives an operator the traits of one that only says anew what the shape of input 0 is.
type keeping struct{ free }

func (keeping) Moves(*ir.Node) Motion { return Keeps }

func (keeping) Same(n *ir.Node) int { return sameIf(alike(n, 0)) }

// Along finds the axis of input 0 that has the same elements before and behind it.
func (keeping) Along(n *ir.Node, _, axis int) []int {
	x, y := n.Inputs[0].Type, n.Outputs[0].Type
	if !x.Ranked {
		return nil
	}
	j0, j1, i0, i1, ok := Aligned(y.Dims, x.Dims, axis)
	if !ok || wide(y.Dims, j0, j1) != axis {
		return nil
	}
	if i := wide(x.Dims, i0, i1); i >= 0 {
		return []int{i}
	}
	return nil
}

// wide returns the only one of the axes i0 to i1 whose size is not one, -1 where there is
// none, or more.
func wide(dims []ir.Dim, i0, i1 int) int {
	at := -1
	for i := i0; i < i1; i++ {
		if dims[i] != ir.Size(1) {
			if at >= 0 {
				return -1
			}
			at = i
		}
	}
	return at
}

// Aligned finds the smallest ranges of axes around axis i of in, i0 to i1 of in and
// j0 to j1 of out, that hold the same elements of tensors with the same elements in the same order; ok
// is false where dimensions that are not known stand in the way.
func Aligned(in, out []ir.Dim, i int) (i0, i1, j0, j1 int, ok bool) {
	for i1 <= i {
		i0, j0 = i1, j1
		if i0 == len(in) || j0 == len(out) {
			return 0, 0, 0, 0, false
		}
		a, b := in[i0], out[j0]
		i1, j1 = i0+1, j0+1
		for a != b {
			one, other := a == ir.Size(1), b == ir.Size(1) // in front of any size
			if !one && !other && !(a.Known() && b.Known()) || a == ir.Size(0) || b == ir.Size(0) {
				return 0, 0, 0, 0, false
			}
			if one || !other && a.Size() < b.Size() {
				if i1 == len(in) {
					return 0, 0, 0, 0, false
				}
				a = ir.Mul(a, in[i1])
				i1++
			} else {
				if j1 == len(out) {
					return 0, 0, 0, 0, false
				}
				b = ir.Mul(b, out[j1])
				j1++
			}
		}
		if a.Fresh() {
			return 0, 0, 0, 0, false
		}
	}
	return i0, i1, j0, j1, true
}

// A Neutral operator returns one of its inputs where types and constants are such that it does nothing.
type Neutral interface {
	ir.Op
	// Same returns the input that output 0 of n is equal to, whatever its elements; -1 where there is
	// none.
	Same(n *ir.Node) int
}

// Same returns the value that output 0 of n is equal to, nil where the operator does something.
func Same(n *ir.Node) *ir.Value {
	o, ok := n.Op.(Neutral)
	if !ok || len(n.Outputs) == 0 || n.Outputs[0] == nil {
		return nil
	}
	if i := o.Same(n); i >= 0 {
		return n.Input(i)
	}
	return nil
}

// sameIf is 0 where a condition holds, else -1.
func sameIf(ok bool) int {
	if ok {
		return 0
	}
	return -1
}

// alike reports whether input i and output 0 of n are certain to be of one shape and element type: an
// unknown dimension is the same as another of its name only.
func alike(n *ir.Node, i int) bool {
	if n.Input(i) == nil {
		return false
	}
	x, y := n.Inputs[i].Type, n.Outputs[0].Type
	return x.DType == y.DType && x.Ranked && y.Ranked && slices.Equal(x.Dims, y.Dims)
}

// constantlySize bounds the elements that constantly looks at.
const constantlySize = 1 << 16

// constantly reports whether all elements of v are the constant c.
func constantly(v *ir.Value, c float64) bool {
	if v == nil || v.Const == nil || v.Const.Len() > constantlySize {
		return false
	}
	if v.Const.DType().IsFloat() {
		return !slices.ContainsFunc(v.Const.Float64s(), func(e float64) bool { return e != c })
	}
	if dt := v.Const.DType(); !dt.IsInt() && dt != tensor.Bool {
		return false
	}
	return !slices.ContainsFunc(v.Const.Int64s(), func(e int64) bool { return e != int64(c) })
}

// SizesInput returns the input of n that lists sizes of output 0, -1 where there is none. all says that
// it lists every axis, so that the output's type tells all that it says.
func SizesInput(n *ir.Node) (i int, all bool) {
	if s, ok := n.Op.(interface {
		sizesInput(n *ir.Node) (i int, all bool)
	}); ok {
		return s.sizesInput(n)
	}
	return -1, false
}
