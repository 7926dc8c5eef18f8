package unfold

import (
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// link is a step of what was folded into the bias of a product: each channel x becomes scale*x + shift.
type link struct {
	scale, shift []float64   // nil for ones and zeros
	slot         *ir.Value   // the constant by which the shift grows, nil where there is none
	slope        float64     // of the shift by that
	consts       []*ir.Value // that it is made of
}

// bias finds what takes up how the bias of a product has changed, was and is now: the last of the constants that
// were folded into it, or a bias of its own where nothing else can. Of channels that go it does not change.
func (f *finder) bias(n *ir.Node, was *ir.Value, now *tensor.Tensor) error {
	v := f.values[nameOf(n)]
	if v == nil || v.Def == nil || v.Def.Op.Kind() != n.Op.Kind() {
		return unsupported("the file has no %v", n)
	}
	if beta := ir.AttrOf(n.Op, "beta"); beta != nil && beta != float32(1) {
		return unsupported("%v multiplies its bias", n)
	}
	bias := now.Float64s()
	gone := f.rows(n)
	if gone != nil {
		bias = make([]float64, len(gone))
	}
	before := make([]float64, len(bias))
	if was != nil {
		b := was.Const.Float64s()
		for i := range before {
			before[i] = b[i*len(b)/len(bias)]
		}
	}
	if gone != nil && !widen(bias, before, now.Float64s(), gone) {
		return unsupported("the bias of %v has another shape", n)
	}
	links, ok := f.links(v.Def, len(bias))
	if !ok {
		return unsupported("%v has another bias in the file", n)
	}
	x, size := make([]float64, len(bias)), make([]float64, len(bias))
	for _, l := range links {
		for i := range x {
			if l.scale != nil {
				x[i], size[i] = x[i]*l.scale[i], size[i]*math.Abs(l.scale[i])
			}
			if l.shift != nil {
				x[i], size[i] = x[i]+l.shift[i], size[i]+math.Abs(l.shift[i])
			}
		}
	}
	delta := make([]float64, len(bias))
	for i := range bias {
		delta[i] = bias[i] - before[i]
		if !(math.Abs(x[i]-before[i]) <= 10*closeTo*size[i]+math.SmallestNonzeroFloat32) {
			return unsupported("%v has another bias in the file", n)
		}
	}
	after := slices.Repeat([]float64{1}, len(bias)) // what the links behind multiply by
	for _, l := range slices.Backward(links) {
		if l.slot != nil && f.takesUp(l, delta, after) {
			return nil
		}
		for i := range after {
			if l.scale != nil {
				after[i] *= l.scale[i]
			}
		}
	}
	return f.newBias(n, v.Def, delta, after)
}

// takesUp adds to the constant of a link what makes the bias grow by delta, and reports whether it can.
func (f *finder) takesUp(l link, delta, after []float64) bool {
	s, err := f.source(l.slot, 1)
	if err != nil || len(s.tensors) != 1 || s.count != len(delta) || s.repeats() || !s.tensors[0].DType().IsFloat() {
		return false
	}
	t, at := s.tensors[0], s.at
	if _, taken := f.out.Tensors[t]; taken {
		return false
	}
	elems := t.Float64s()
	for i, d := range delta {
		k := i
		if at != nil {
			k = int(at[i]) - 1
		}
		if d == 0 {
			continue
		}
		elems[k] += d / (after[i] * l.slope)
	}
	next := tensor.FromFloat64s(t.DType(), elems, t.Shape()...)
	if slices.ContainsFunc(next.Float64s(), func(v float64) bool { return v-v != 0 }) {
		return false
	}
	f.out.Tensors[t], f.out.consts[t] = next, next
	return true
}

// newBias gives a product of the file a bias.
func (f *finder) newBias(n, file *ir.Node, delta, after []float64) error {
	_, conv := file.Op.(*op.Conv)
	if _, transposed := file.Op.(*op.ConvTranspose); !conv && !transposed || file.Input(2) != nil || file.Graph() != f.File {
		return unsupported("the file has no constant that is the bias of %v", n)
	}
	for i := range delta {
		if delta[i] != 0 {
			delta[i] /= after[i]
		}
	}
	t := tensor.FromFloat64s(file.Inputs[1].Type.DType, delta, len(delta))
	if slices.ContainsFunc(t.Float64s(), func(v float64) bool { return v-v != 0 }) {
		return unsupported("what follows %v multiplies channels by zero", n)
	}
	name := f.fresh(n.Name+".bias", file.Outputs[0])
	if gone := f.rows(n); gone != nil {
		t = without(t, gone)
	}
	f.out.Biases = append(f.out.Biases, Constant{name, file.Op.Kind(), file.Outputs[0].Name, 2, t})
	f.out.Notes = append(f.out.Notes, fmt.Sprintf("%v has a bias now, %s, which restores the means of its outputs", n, name))
	return nil
}

// links returns what was folded into the bias of a product of m channels, its own bias first; ok is false where that has another form.
func (f *finder) links(n *ir.Node, m int) (list []link, ok bool) {
	v := n.Outputs[0]
	if !v.Type.Ranked {
		return nil, false
	}
	axis := 1
	if n.Op.Kind() == "MatMul" {
		axis = v.Type.Rank() - 1
	}
	if b := n.Input(2); b != nil {
		beta, ok := ir.AttrOf(n.Op, "beta").(float32)
		if !ok {
			beta = 1
		}
		rank, at := v.Type.Rank(), axis
		if n.Op.Kind() != "Gemm" { // a vector, whatever the rank
			rank, at = 1, 0
		}
		shift, ok := perChannel(f.constOf(b), rank, at, m)
		if !ok {
			return nil, false
		}
		for i := range shift {
			shift[i] *= float64(beta)
		}
		list = append(list, link{shift: shift, slot: b, slope: float64(beta), consts: []*ir.Value{b}})
	}
	for len(v.Uses()) == 1 && !v.IsOutput() {
		u := v.Uses()[0]
		if len(u.Node.Outputs) == 0 || u.Node.Outputs[0] == nil || f.left[u.Node.Outputs[0].Name] != nil {
			break
		}
		l, ok := f.link(u, axis, m)
		if !ok {
			break
		}
		list = append(list, l)
		v = u.Node.Outputs[0]
	}
	return list, true
}

// link returns what the reader of a product's output does to its channels; ok is false where that is anything else.
func (f *finder) link(u ir.Use, axis, m int) (l link, ok bool) {
	n := u.Node
	if op.Same(n) == n.Inputs[u.Index] {
		return l, true
	}
	if o, is := n.Op.(*op.BatchNormalization); is {
		l.scale, l.shift = o.Affine(n)
		l.slot, l.slope, l.consts = n.Input(2), 1, n.Inputs[1:]
		return l, u.Index == 0 && axis == 1 && len(l.scale) == m
	}
	if len(n.Inputs) != 2 {
		return l, false
	}
	other := n.Inputs[1-u.Index]
	c, ok := perChannel(f.constOf(other), n.Outputs[0].Type.Rank(), axis, m)
	first := u.Index == 0
	l.consts = []*ir.Value{other}
	switch n.Op.Kind() {
	case "Add":
		l.shift, l.slot, l.slope = c, other, 1
	case "Sub":
		ok = ok && first
		l.slot, l.slope = other, -1
		for _, x := range c {
			l.shift = append(l.shift, -x)
		}
	case "Mul":
		l.scale = c
	case "Div":
		ok = ok && first
		for _, x := range c {
			l.scale = append(l.scale, 1/x)
		}
	default:
		return l, false
	}
	return l, ok
}

// constOf returns what a value of the file is, nil where that is no constant, or computed from one.
func (f *finder) constOf(v *ir.Value) *tensor.Tensor {
	if v.Const != nil {
		return v.Const
	}
	s, err := f.source(v, 1)
	shape, ok := v.Type.Shape()
	if err != nil || !ok || len(s.tensors) != 1 || s.repeats() || !s.tensors[0].DType().IsFloat() {
		return nil
	}
	t := s.tensors[0]
	if s.at == nil {
		return t.Reshape(shape...)
	}
	elems, out := t.Float64s(), make([]float64, len(s.at))
	for i, k := range s.at {
		out[i] = elems[k-1]
	}
	return tensor.FromFloat64s(t.DType(), out, shape...)
}

// perChannel returns the elements of a constant that broadcasts to a tensor of a rank along one axis alone, one for each
// of its m indices.
func perChannel(c *tensor.Tensor, rank, axis, m int) ([]float64, bool) {
	if c == nil || !c.DType().IsFloat() || c.Rank() > rank {
		return nil, false
	}
	for i, d := range c.Shape() {
		if d != 1 && (rank-c.Rank()+i != axis || d != m) {
			return nil, false
		}
	}
	e := c.Float64s()
	if len(e) == 1 {
		e = slices.Repeat(e, m)
	}
	return e, len(e) == m
}
