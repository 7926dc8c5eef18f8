package fuse

import (
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Rotaries recognises rotary embeddings on f32 tensors [batch, tokens, heads, depth] or [batch, heads,
// tokens, depth] with angles that are the same for all heads: of neighbours, in pairs along a last axis of 2,
//
//	re, im = x[..., 0], x[..., 1]
//	y = stack(re*cos - im*sin, re*sin + im*cos)
//
// and of one half of a head with the other,
//
//	y = x*cos + concat(-x[half:], x[:half])*sin
//	y = concat(x[:half]*cos - x[half:]*sin, x[half:]*cos + x[:half]*sin)
//
// of which the first has angles whose halves are certain to be equal. What a transpose brings to heads is
// turned before it.
func Rotaries(g *ir.Graph) (int, error) {
	r := &rotaries{tables: map[table]*ir.Value{}}
	n, err := rewrite(g, func(n *ir.Node) (bool, error) {
		m, why := rotaryOf(n)
		if m == nil || why != "" {
			return false, nil
		}
		return m.rewrite(r)
	})
	if n == 0 || err != nil {
		return n, err
	}
	_, err = Identities(g) // the reshapes around them
	return n, err
}

// rotaries remembers the tables that were made of angles.
type rotaries struct{ tables map[table]*ir.Value }

// table is what is made of angles in a graph.
type table struct {
	graph         *ir.Graph
	angles        *ir.Value
	tokens, width int
}

// rotaryMatch is a rotary embedding that was found.
type rotaryMatch struct {
	builder                     // at the node whose result it replaces
	x, cos, sin       *ir.Value // angles broadcast to the axes of dims
	dims              []ir.Dim  // [batch, .., .., pairs or depth], of which the last is that of the angles
	width             int       // pairs
	both, interleaved bool      // angles are for both halves; pairs are neighbours
	tokens            int       // the axis of tokens
}

// rotaryOf matches n. A reason says what fails where it looks like one.
func rotaryOf(n *ir.Node) (m *rotaryMatch, why string) {
	switch n.Op.Kind() {
	case "Concat":
		if len(n.Inputs) != 2 || !n.Outputs[0].Type.Ranked {
			return nil, ""
		}
		rank := n.Outputs[0].Type.Rank()
		if positive(ir.AttrOf(n.Op, "axis").(int), rank) != rank-1 {
			return nil, ""
		}
		if rank == 5 {
			m = neighbours(n)
		} else if rank == 4 {
			m = halves(n)
		}
	case "Add":
		m = rotated(n)
	}
	if m == nil {
		return nil, ""
	}
	return m, m.fits()
}

// neighbours matches the stack of rotated parts of pairs.
func neighbours(n *ir.Node) *rotaryMatch {
	rank := n.Outputs[0].Type.Rank()
	var sums [2]*ir.Value
	for i := range sums {
		u := n.Inputs[i].Def
		if u == nil || !reshapes(u) || u.Inputs[0].Type.Rank() != rank-1 ||
			!slices.Equal(u.Outputs[0].Type.Dims, append(slices.Clone(u.Inputs[0].Type.Dims), ir.Size(1))) {
			return nil
		}
		sums[i] = u.Inputs[0]
	}
	pick := func(v *ir.Value) (x *ir.Value, part int, ok bool) {
		axis, part, x, ok := picked(v.Def)
		return x, part, ok && axis == x.Type.Rank()-1 && x.Type.Dims[axis] == ir.Size(2)
	}
	m := turns(n, sums, pick)
	if m != nil {
		m.interleaved = true
		m.dims = m.x.Type.Dims[:4]
	}
	return m
}

// halves matches the rotated halves of heads, one behind the other.
func halves(n *ir.Node) *rotaryMatch {
	m := turns(n, [2]*ir.Value{n.Inputs[0], n.Inputs[1]}, halfOf)
	if m != nil {
		m.dims = slices.Clone(m.x.Type.Dims)
		m.dims[3] = ir.Size(m.dims[3].Size() / 2)
	}
	return m
}

// turns matches re*cos - im*sin and re*sin + im*cos, where pick tells of which value and which part of it re and im are.
func turns(n *ir.Node, sums [2]*ir.Value, pick func(v *ir.Value) (x *ir.Value, part int, ok bool)) *rotaryMatch {
	sub, add := def(sums[0], "Sub"), def(sums[1], "Add")
	if sub == nil || add == nil {
		return nil
	}
	turned := func(v *ir.Value) (x *ir.Value, part int, by *ir.Value) {
		if p := def(v, "Mul"); p != nil {
			for i := range 2 {
				if x, part, ok := pick(p.Inputs[i]); ok && equal(p.Inputs[i], v) {
					return x, part, p.Inputs[1-i]
				}
			}
		}
		return nil, 0, nil
	}
	x, re, cos := turned(sub.Inputs[0])
	y, im, sin := turned(sub.Inputs[1])
	if x == nil || x != y || re != 0 || im != 1 || !equal(x, n.Outputs[0]) {
		return nil
	}
	for i := range 2 {
		a, p, by := turned(add.Inputs[i])
		b, q, with := turned(add.Inputs[1-i])
		if a == x && b == x && p == 0 && q == 1 && by == sin && with == cos {
			return &rotaryMatch{builder: builder{n}, x: x, cos: cos, sin: sin}
		}
	}
	return nil
}

// rotated matches x*cos + concat(-x[half:], x[:half])*sin.
func rotated(n *ir.Node) *rotaryMatch {
	for i := range 2 {
		a, b := def(n.Inputs[i], "Mul"), def(n.Inputs[1-i], "Mul")
		if a == nil || b == nil {
			continue
		}
		for j := range 2 {
			x := swapped(b.Inputs[j])
			if x == nil || x.Type.Rank() != 4 || !slices.Contains(a.Inputs, x) || a.Inputs[0] == a.Inputs[1] {
				continue
			}
			return &rotaryMatch{builder: builder{n}, x: x, cos: other(a, x), sin: b.Inputs[1-j], dims: x.Type.Dims, both: true}
		}
	}
	return nil
}

// swapped returns x where v is concat(-x[half:], x[:half]) along the last axis.
func swapped(v *ir.Value) (x *ir.Value) {
	c := def(v, "Concat")
	if c == nil || len(c.Inputs) != 2 || positive(ir.AttrOf(c.Op, "axis").(int), v.Type.Rank()) != v.Type.Rank()-1 {
		return nil
	}
	minus := def(c.Inputs[0], "Neg")
	if minus == nil {
		return nil
	}
	x, second, ok := halfOf(minus.Inputs[0])
	y, first, ok2 := halfOf(c.Inputs[1])
	if !ok || !ok2 || x != y || second != 1 || first != 0 {
		return nil
	}
	return x
}

// halfOf returns the value of whose last axis v is one half, by a Slice or a Split, and which.
func halfOf(v *ir.Value) (x *ir.Value, part int, ok bool) {
	n := v.Def
	if n == nil || !n.Inputs[0].Type.Ranked || n.Inputs[0].Type.Rank() == 0 {
		return nil, 0, false
	}
	x = n.Inputs[0]
	last := x.Type.Rank() - 1
	d := x.Type.Dims[last]
	if !d.Known() || d.Size()%2 != 0 || d.Size() == 0 {
		return nil, 0, false
	}
	half := d.Size() / 2
	switch n.Op.(type) {
	case *op.Split:
		if len(n.Outputs) != 2 || positive(ir.AttrOf(n.Op, "axis").(int), last+1) != last || v.Type.Dims[last] != ir.Size(half) {
			return nil, 0, false
		}
		return x, slices.Index(n.Outputs, v), true
	case *op.Slice:
		var at [4]int // start, end, axis, step
		at[2], at[3] = 0, 1
		for i := range at {
			in := n.Input(1 + i)
			if in == nil && i >= 2 {
				continue
			}
			if in == nil || in.Const == nil || in.Const.Len() != 1 {
				return nil, 0, false
			}
			at[i] = in.Const.Ints()[0]
		}
		from, to := positive(at[0], d.Size()), positive(at[1], d.Size())
		if positive(at[2], last+1) != last || at[3] != 1 {
			return nil, 0, false
		}
		switch {
		case from == 0 && to == half:
			return x, 0, true
		case from == half && to >= d.Size():
			return x, 1, true
		}
	}
	return nil, 0, false
}

// fits says why the angles are not those of the operator, nothing where they are.
func (m *rotaryMatch) fits() (why string) {
	out, last := m.at.Outputs[0], m.dims[3]
	switch {
	case !isF32(m.x) || !isF32(m.cos) || !isF32(m.sin):
		return fmt.Sprintf("it computes in %v, want f32", m.x.Type.DType)
	case !equal(m.x, out):
		return fmt.Sprintf("the angles make %v of %v", out.Type, m.x.Type)
	case !last.Known() || last.Size() == 0:
		return "the number of features of a head is not known"
	}
	m.width = last.Size()
	if m.both {
		m.width /= 2
		for _, v := range []*ir.Value{m.cos, m.sin} {
			if !repeats(v, last.Size(), lookThrough) {
				return fmt.Sprintf("the angles %s of the halves of a head are not certain to be equal", v.Name)
			}
		}
	}
	for _, tokens := range []int{1, 2} {
		if m.angled(m.cos, tokens) && m.angled(m.sin, tokens) && samples(m.cos) == samples(m.sin) && (tokens == 2 || m.dims[2].Known()) {
			m.tokens = tokens
			return ""
		}
	}
	return fmt.Sprintf("the angles are %v and %v, which are not the same for all heads of %v, or not one for each token", m.cos.Type, m.sin.Type, m.x.Type)
}

// angled reports whether v has one number for each token and feature, which may differ between samples.
func (m *rotaryMatch) angled(v *ir.Value, tokens int) bool {
	d := v.Type.Dims
	if !v.Type.Ranked || len(d) > 4 {
		return false
	}
	for i := range 4 {
		e := ir.Size(1)
		if k := i - 4 + len(d); k >= 0 {
			e = d[k]
		}
		switch {
		case i == 3 || i == tokens:
			if e != m.dims[i] && (v.Const == nil || e != ir.Size(1) || !m.dims[i].Known()) {
				return false
			}
		case e != ir.Size(1) && (i != 0 || e != m.dims[0]):
			return false
		}
	}
	return true
}

// samples is the size of the first of four axes of angles, 1 where they have fewer.
func samples(v *ir.Value) ir.Dim {
	if v.Type.Rank() < 4 {
		return ir.Size(1)
	}
	return v.Type.Dims[0]
}

// repeats reports whether the second half of the last axis of v, of so many elements, is certain to be what the first is.
func repeats(v *ir.Value, size, depth int) bool {
	d := v.Type.Dims
	switch {
	case !v.Type.Ranked || depth == 0:
		return false
	case len(d) == 0 || d[len(d)-1] == ir.Size(1):
		return true
	case d[len(d)-1] != ir.Size(size):
		return false
	case v.Const != nil:
		x := v.Const.Float64s()
		for i := range x {
			if x[i] != x[i/size*size+i%(size/2)] {
				return false
			}
		}
		return true
	case v.Def == nil || !numpy(v.Def):
		return false
	}
	n := v.Def
	within := func(x *ir.Value) bool { return repeats(x, size, depth-1) }
	switch k := op.Operands(n); {
	case k > 0:
		return !slices.ContainsFunc(n.Inputs[:k], func(x *ir.Value) bool { return !within(x) })
	case n.Op.Kind() == "Cast", reshapes(n): // rows stay whole where they are as long
		return n.Inputs[0].Type.Ranked && ends(n.Inputs[0], ir.Size(size)) && within(n.Inputs[0])
	case n.Op.Kind() == "Concat":
		return len(n.Inputs) == 2 && n.Inputs[0] == n.Inputs[1] && positive(ir.AttrOf(n.Op, "axis").(int), len(d)) == len(d)-1
	case n.Op.Kind() == "Gather":
		x := n.Inputs[0]
		return x.Type.Ranked && positive(ir.AttrOf(n.Op, "axis").(int), x.Type.Rank()) < x.Type.Rank()-1 && within(x)
	case n.Op.Kind() == "Expand":
		return within(n.Inputs[0])
	case n.Op.Kind() == "Transpose":
		perm, ok := order(n)
		return ok && perm[len(perm)-1] == len(perm)-1 && within(n.Inputs[0])
	case n.Op.Kind() == "Slice": // none of the last axis, which is as long as before
		return ends(n.Inputs[0], ir.Size(size)) && (n.Input(4) == nil || n.Input(4).Const != nil && !slices.ContainsFunc(n.Input(4).Const.Ints(), func(k int) bool { return k != 1 })) &&
			within(n.Inputs[0])
	}
	return false
}

// rewrite puts the operator in the place of the last node.
func (m *rotaryMatch) rewrite(r *rotaries) (bool, error) {
	x, d := m.x, m.dims
	depth := ir.Mul(m.x.Type.Dims[3:]...)
	var perm []int
	if t, p, ok := transposed(x); ok && m.tokens == 2 && !m.interleaved && slices.Equal(p, []int{0, 2, 1, 3}) && d[1].Known() {
		x, perm = t.Inputs[0], p
	}
	attrs := map[string]any{"interleaved": 0}
	if m.interleaved {
		attrs["interleaved"] = 1
	}
	shape := []ir.Dim{d[0], d[1], d[2], depth}
	if m.tokens == 1 || perm != nil {
		heads := x.Type.Dims[2]
		attrs["num_heads"] = heads.Size()
		shape = []ir.Dim{d[0], x.Type.Dims[1], ir.Mul(heads, depth)}
	}
	to, ok := target(x, ir.Of(tensor.F32, shape...))
	back, ok2 := target(x, x.Type)
	if !ok || !ok2 {
		return false, nil
	}
	cos, err := m.table(r, m.cos, "cos")
	if err != nil {
		return false, err
	}
	sin, err := m.table(r, m.sin, "sin")
	if err != nil {
		return false, err
	}
	y, err := m.reshape("x", x, to)
	if err == nil {
		y, err = m.add("fused", "RotaryEmbedding", attrs, y, cos, sin)
	}
	if err == nil {
		y, err = m.reshape("pairs", y, back)
	}
	if err == nil && perm != nil {
		y, err = m.add("order", "Transpose", map[string]any{"perm": perm}, y)
	}
	if err != nil {
		return false, err
	}
	m.at.Graph().ReplaceUses(m.at.Outputs[0], y)
	return true, nil
}

// table returns angles as the operator reads them: [batch or 1, tokens, pairs].
func (m *rotaryMatch) table(r *rotaries, v *ir.Value, name string) (t *ir.Value, err error) {
	if v.Const != nil {
		return m.constant(name, m.constTable(v.Const)), nil
	}
	key := table{m.at.Graph(), v, m.tokens, m.width}
	if t := r.tables[key]; t != nil {
		return t, nil
	}
	t = v
	if rank := v.Type.Rank(); rank != 3 || m.tokens != 2 {
		if rank < 4 {
			if t, err = m.add(name+".batch", "Unsqueeze", nil, t, m.constant(name+".axes", tensor.Ints(upTo(4-rank)...))); err != nil {
				return nil, err
			}
		}
		if t, err = m.add(name+".heads", "Squeeze", nil, t, m.constant(name+".axis", tensor.Ints(3-m.tokens))); err != nil {
			return nil, err
		}
	}
	if m.dims[3] != ir.Size(m.width) {
		t, err = m.add(name+".half", "Slice", nil, t, m.constant(name+".from", tensor.Ints(0)), m.constant(name+".to", tensor.Ints(m.width)), m.constant(name+".last", tensor.Ints(2)))
	}
	r.tables[key] = t
	return t, err
}

// constTable is table for a constant.
func (m *rotaryMatch) constTable(t *tensor.Tensor) *tensor.Tensor {
	full := []int{1, 1, 1, m.dims[3].Size()}
	if t.Rank() == 4 {
		full[0] = t.Dim(0)
	}
	if d := m.dims[m.tokens]; d.Known() {
		full[m.tokens] = d.Size()
	}
	all := t.Expand(full...).F32s()
	rows := full[0] * full[m.tokens]
	out := make([]float32, 0, rows*m.width)
	for i := range rows {
		out = append(out, all[i*full[3]:][:m.width]...)
	}
	return tensor.From(out, full[0], full[m.tokens], m.width)
}
