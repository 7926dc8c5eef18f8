package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Rotaries recognises the rotary embedding of neighbours on f32 tensors [batch,
// tokens, heads, pairs, 2] or [batch, heads, tokens, pairs, 2] with constant angles,
// one for each token and pair:
//
//	re, im = x[..., 0], x[..., 1]
//	y = stack(re*cos - im*sin, re*sin + im*cos)
func Rotaries(g *ir.Graph) (int, error) {
	n, err := rewrite(g, rotary)
	if n == 0 || err != nil {
		return n, err
	}
	_, err = Identities(g) // the reshapes around them
	return n, err
}

// rotary replaces n where that stacks the rotated parts.
func rotary(n *ir.Node) (bool, error) {
	if n.Op.Kind() != "Concat" || len(n.Inputs) != 2 {
		return false, nil
	}
	rank := n.Outputs[0].Type.Rank()
	if rank != 5 || positive(ir.AttrOf(n.Op, "axis").(int), rank) != rank-1 {
		return false, nil
	}
	var sums [2]*ir.Node
	for i, kind := range []string{"Sub", "Add"} {
		u := n.Inputs[i].Def
		if u == nil || !reshapes(u) || u.Inputs[0].Type.Rank() != rank-1 ||
			!slices.Equal(u.Outputs[0].Type.Dims, append(slices.Clone(u.Inputs[0].Type.Dims), ir.Size(1))) {
			return false, nil
		}
		if sums[i] = def(u.Inputs[0], kind); sums[i] == nil {
			return false, nil
		}
	}
	re, ok1 := turned(sums[0].Inputs[0])
	im, ok2 := turned(sums[0].Inputs[1])
	if !ok1 || !ok2 || re.x != im.x || re.part != 0 || im.part != 1 || !slices.Equal(re.x.Type.Dims, n.Outputs[0].Type.Dims) || !isF32(re.x) {
		return false, nil
	}
	for i := range 2 {
		a, ok1 := turned(sums[1].Inputs[i])
		b, ok2 := turned(sums[1].Inputs[1-i])
		if ok1 && ok2 && a == (turn{re.x, 0, im.by}) && b == (turn{re.x, 1, re.by}) {
			return rotate(n, re.x, re.by, im.by)
		}
	}
	return false, nil
}

// turn is a product of a part of the last axis of x with a constant.
type turn struct {
	x    *ir.Value
	part int
	by   *ir.Value
}

func turned(v *ir.Value) (t turn, ok bool) {
	n := def(v, "Mul")
	if n == nil {
		return t, false
	}
	for i := range 2 {
		axis, part, x, ok := picked(n.Inputs[i].Def)
		if by := n.Inputs[1-i]; ok && by.Const != nil && axis == x.Type.Rank()-1 && x.Type.Dims[axis] == ir.Size(2) && equal(n.Inputs[i], v) {
			return turn{x, part, by}, true
		}
	}
	return t, false
}

// rotate puts the operator in the place of n.
func rotate(n *ir.Node, x, cos, sin *ir.Value) (bool, error) {
	d := x.Type.Dims
	b := builder{n}
	for _, form := range []struct{ tokens, heads int }{{1, 2}, {2, 1}} {
		c, s := angles(cos, d, form.tokens), angles(sin, d, form.tokens)
		if c == nil || s == nil || !d[3].Known() || form.tokens == 1 && !d[2].Known() {
			continue
		}
		attrs := map[string]any{"interleaved": 1}
		shape := []ir.Dim{d[0], d[1], d[2], ir.Mul(d[3], d[4])}
		if form.tokens == 1 {
			attrs["num_heads"] = d[2].Size()
			shape = []ir.Dim{d[0], d[1], ir.Mul(d[2:]...)}
		}
		to, ok := target(x, ir.Of(tensor.F32, shape...))
		back, ok2 := target(x, x.Type)
		if !ok || !ok2 {
			continue
		}
		y, err := b.reshape("x", x, to)
		if err == nil {
			y, err = b.add("fused", "RotaryEmbedding", attrs, y, b.constant("cos", c), b.constant("sin", s))
		}
		if err == nil {
			y, err = b.reshape("pairs", y, back)
		}
		if err != nil {
			return false, err
		}
		n.Graph().ReplaceUses(n.Outputs[0], y)
		return true, nil
	}
	return false, nil
}

// angles returns a constant that varies along the tokens' axis and the pairs of
// [batch, .., .., pairs, 2] only as [1, tokens, pairs]; nil where it is none.
func angles(v *ir.Value, d []ir.Dim, tokens int) *tensor.Tensor {
	if !isF32(v) || v.Const.Rank() > 4 || !d[tokens].Known() || !d[3].Known() {
		return nil
	}
	full := []int{1, 1, 1, d[3].Size()}
	full[tokens] = d[tokens].Size()
	for i, e := range v.Const.Shape() {
		if k := 4 - v.Const.Rank() + i; e != 1 && e != full[k] {
			return nil
		}
	}
	return v.Const.Expand(full...).Reshape(1, d[tokens].Size(), d[3].Size())
}
