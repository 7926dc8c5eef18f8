package fuse

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Attentions recognises scaled dot-product attention on f32 tensors,
//
//	softmax(scale * Q K' [+ mask]) V
//
// where scalars may multiply or divide Q, K or their product, and factors of whole heads their product. Where Q, K and V
// come as tokens whose heads a transpose split off, the operator reads them as they
// were before it, repeated key heads as one, and writes tokens where a transpose
// would have joined the heads; where they are parts of one product, it reads that. A
// constant mask that hides what comes later, and nothing else, makes it causal.
//
// A query that a mask of minus infinity hides all keys from gets zeros, not NaN. Products with a
// weight stay what they are: weights are stored, and quantised, as those of a product.
//
// An operator that is there already reads one product too, where a Split makes its operands of that.
func Attentions(g *ir.Graph) (int, error) {
	packed, err := rewrite(g, unsplit)
	if err != nil {
		return packed, err
	}
	n, err := rewrite(g, newMasks().attention)
	if n == 0 || err != nil {
		return packed + n, err
	}
	_, err = Identities(g) // the transposes and reshapes around them
	return packed + n, err
}

// unsplit makes an Attention whose Q, K and V are the pieces of some features, in this order, read the features.
func unsplit(n *ir.Node) (bool, error) {
	o, ok := n.Op.(*op.Attention)
	if !ok || o.Packed || o.QHeads == nil || o.KVHeads == nil {
		return false, nil
	}
	split := def(n.Inputs[0], "Split")
	if split == nil || len(split.Outputs) != 3 || !slices.Equal(split.Outputs, n.Inputs[:3]) {
		return false, nil
	}
	x := split.Inputs[0]
	if x.Type.Rank() != 3 || positive(ir.AttrOf(split.Op, "axis").(int), 3) != 2 {
		return false, nil
	}
	depth, ok := ir.Div(n.Inputs[0].Type.Dims[2], ir.Size(*o.QHeads))
	for _, v := range n.Inputs[1:3] {
		ok = ok && depth.Known() && v.Type.Dims[2] == ir.Mul(depth, ir.Size(*o.KVHeads))
	}
	if !ok {
		return false, nil
	}
	made := *o
	made.Packed = true
	return true, replace(n, &made, append([]*ir.Value{x, x, x}, n.Inputs[3:]...)...)
}

// attention replaces n where that is the product of a softmax with V.
func (r *masks) attention(n *ir.Node) (bool, error) {
	m, why := r.attentionOf(n)
	if why != "" {
		return false, nil
	}
	return true, m.rewrite()
}

// attentionOf matches n, or says why it is no attention.
func (r *masks) attentionOf(n *ir.Node) (m *attentionMatch, why string) {
	if !plainMatMul(n) {
		return nil, "the product behind the softmax is not one of f32 tensors of known rank without weights"
	}
	p, soft := unguarded(n.Inputs[0])
	if soft == nil {
		return nil, "something is between the softmax and the product behind it, or reads it, too"
	}
	if !lastAxis(soft) {
		return nil, fmt.Sprintf("the softmax is along axis %d of %v, not the last one", soft.Op.(*op.Softmax).Axis, p.Type)
	}
	s := &scores{scale: 1}
	if why := s.read(r, soft.Inputs[0]); why != "" {
		return nil, why
	}
	rank := n.Outputs[0].Type.Rank()
	m = &attentionMatch{builder: builder{n}, soft: soft, rows: s.rows, masks: s.masks, reader: r, scale: s.scale, lead: max(0, rank-4)}
	if rank < 3 {
		return nil, fmt.Sprintf("the result has rank %d, want at least 3", rank)
	}
	for i, v := range []*ir.Value{s.q, s.k, n.Inputs[1]} {
		if v.Type.Rank() != rank {
			return nil, fmt.Sprintf("%s is %v, the result %v", "QKV"[i:i+1], v.Type, n.Outputs[0].Type)
		}
		axes := upTo(rank)
		if i == 1 { // K is transposed
			slices.Reverse(axes[rank-2:])
		}
		if m.in[i] = (operand{value: v, axes: axes, repeat: 1}); i > 0 || len(s.rows) == 0 {
			m.in[i] = m.operand(v, axes, i < 2)
		}
	}
	return m, m.fits()
}

// unguarded returns what a softmax makes, and its node, where v is that or that with zeros in the
// place of NaN, which queries get that see no key; nil where it is something else or others read it.
func unguarded(v *ir.Value) (p *ir.Value, soft *ir.Node) {
	p = v
	reads := 1
	if w := def(v, "Where"); w != nil && sole(v) && isScalar(w.Inputs[1], 0) {
		if n := def(w.Inputs[0], "IsNaN"); n != nil && sole(w.Inputs[0]) && n.Inputs[0] == w.Inputs[2] && equal(n.Inputs[0], v) {
			p, reads = n.Inputs[0], 2
		}
	}
	soft = def(p, "Softmax")
	if soft == nil || len(p.Uses()) != reads || p.IsOutput() || p.Uses()[0].Node.Graph() != p.Graph() || p.Uses()[reads-1].Node.Graph() != p.Graph() {
		return nil, nil
	}
	return p, soft
}

// plainMatMul reports whether n is a product of two f32 tensors, of which none is a weight, and nothing more.
func plainMatMul(n *ir.Node) bool {
	o, ok := n.Op.(*op.MatMul)
	weighs := ok && slices.ContainsFunc(o.Weights(n), func(w ir.Weight) bool { return n.Inputs[w.Input].IsConst() })
	return ok && !weighs && o.Epilogue.Empty() && n.Input(2) == nil && n.Input(op.Residual) == nil &&
		isF32(n.Inputs[0]) && isF32(n.Inputs[1]) && n.Outputs[0].Type.Ranked && n.Inputs[0].Type.Ranked && n.Inputs[1].Type.Ranked
}

// lastAxis reports whether a node Softmax normalises along the last axis.
func lastAxis(n *ir.Node) bool {
	a, rank := n.Op.(*op.Softmax).Axis, n.Outputs[0].Type.Rank()
	return n.Outputs[0].Type.Ranked && (a == -1 || a == rank-1)
}

// scores is scale * rows * q k + the sum of masks.
type scores struct {
	q, k  *ir.Value
	rows  []*ir.Value // factors of whole heads
	masks []mask
	scale float64
}

// mask is added to scores, times by, or, where it is bool, hides those where it is not shows: they become hide.
type mask struct {
	value *ir.Value
	by    float64
	shows bool
	hide  float64
}

// ofRows reports whether v is the same for all scores of a head.
func ofRows(v *ir.Value) bool {
	d := v.Type.Dims
	if !isF32(v) || !v.Type.Ranked {
		return false
	}
	return !slices.ContainsFunc(d[max(0, len(d)-2):], func(e ir.Dim) bool { return e != ir.Size(1) })
}

// read matches the input of the softmax, or says why it does not. What makes it is read by nobody else.
func (s *scores) read(r *masks, v *ir.Value) (why string) {
	for {
		n := v.Def
		switch {
		case n == nil || !numpy(n):
			return fmt.Sprintf("what the softmax reads is not made of a product: it begins with %s", v.Name)
		case !sole(v):
			return fmt.Sprintf("the scores %s are read elsewhere, too", v.Name)
		}
		if by, x, ok := scaled(n); ok {
			s.scale *= by
			v = x
			continue
		}
		of := func(x *ir.Value) bool { return sole(x) && equal(x, v) && productBelow(x) }
		switch n.Op.Kind() {
		case "Mul":
			i := slices.IndexFunc(n.Inputs, of)
			if i < 0 || !ofRows(n.Inputs[1-i]) {
				return fmt.Sprintf("%s multiplies scores by what is not the same for all of a head", n.Name)
			}
			s.rows, v = append(s.rows, n.Inputs[1-i]), n.Inputs[i]
		case "Add":
			i := slices.IndexFunc(n.Inputs, of)
			if i < 0 || n.Inputs[0] == n.Inputs[1] {
				return fmt.Sprintf("%s is not the sum of scores of one shape, read once, and a mask", n.Name)
			}
			if len(s.rows) > 0 {
				return fmt.Sprintf("what %s adds to the scores is multiplied with them by factors of heads", n.Name)
			}
			s.masks, v = append(s.masks, mask{value: n.Inputs[1-i], by: s.scale}), n.Inputs[i]
		case "Where":
			i := 1 + slices.IndexFunc(n.Inputs[1:], of)
			if i < 1 || n.Inputs[1] == n.Inputs[2] {
				return fmt.Sprintf("%s does not choose between scores of one shape, read once, and a number", n.Name)
			}
			l, ok := r.level(n.Inputs[3-i])
			hide := float64(float32(l.yes * s.scale))
			if !ok || !l.uniform() || l.where.not || !(hide <= hidden) || len(s.rows) > 0 {
				return fmt.Sprintf("%s hides scores by what is not a number of at most %g", n.Name, hidden)
			}
			s.masks, v = append(s.masks, mask{n.Inputs[0], 1, i == 1, hide}), n.Inputs[i]
		case "MatMul":
			if s.q, s.k = n.Inputs[0], n.Inputs[1]; !plainMatMul(n) {
				return fmt.Sprintf("%s is not a product of f32 tensors of known rank without weights", n.Name)
			}
			return ""
		default:
			return fmt.Sprintf("%s (%s) is between the product and the softmax", n.Name, n.Op.Kind())
		}
	}
}

// scaled matches a product with a scalar, or a division by one, that leaves the
// type of the other factor.
func scaled(n *ir.Node) (by float64, x *ir.Value, ok bool) {
	kind := n.Op.Kind()
	if kind != "Mul" && kind != "Div" || !numpy(n) {
		return 0, nil, false
	}
	for i := range 2 {
		by, ok := scalar(n.Inputs[1-i])
		switch {
		case !ok || !equal(n.Inputs[i], n.Outputs[0]):
			continue
		case kind == "Mul":
			return by, n.Inputs[i], true
		case i == 0 && by != 0:
			return 1 / by, n.Inputs[0], true
		}
	}
	return 0, nil, false
}

// productBelow reports whether v is a product, or one times factors, to which masks may be added.
func productBelow(v *ir.Value) bool {
	for v.Def != nil {
		if _, x, ok := scaled(v.Def); ok {
			v = x
			continue
		}
		if kind := v.Def.Op.Kind(); kind != "Add" && kind != "Mul" && kind != "Where" || !numpy(v.Def) {
			return kind == "MatMul"
		}
		return slices.ContainsFunc(v.Def.Inputs, func(x *ir.Value) bool { return sole(x) && equal(x, v) && productBelow(x) })
	}
	return false
}

// operand is Q, K or V [batch..., heads, tokens, depth], or [batch, tokens, depth]: its
// axis i is axis axes[i] of value, of whose axis 2 it is one index where parts is not
// 0, and each of whose heads it repeats.
type operand struct {
	value       *ir.Value
	axes        []int
	part, parts int
	repeat      int
}

// attentionMatch is an attention that was found.
type attentionMatch struct {
	builder // at the last product
	soft    *ir.Node
	in      [3]operand
	rows    []*ir.Value // factors that Q gets
	masks   []mask      // all of which are added
	reader  *masks
	band    map[string]any // the attributes by which the operator hides keys
	shows   []*ir.Value    // hide where any is false
	scale   float64
	lead    int // axes of the batch that the operator does not have

	heads, kvHeads ir.Dim
}

func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// operand looks through what only moves v, and what scales it where mayScale is
// set.
func (m *attentionMatch) operand(v *ir.Value, axes []int, mayScale bool) operand {
	o := operand{value: v, axes: axes, repeat: 1}
	for o.value.Def != nil {
		n := o.value.Def
		if by, x, ok := scaled(n); ok && mayScale {
			m.scale *= by
			o.value = x
			continue
		}
		if perm, ok := order(n); ok {
			axes := through(perm, o.axes)
			if m.lead > 0 && !slices.Equal(axes[:m.lead+1], upTo(m.lead+1)) {
				break // those of the batch would not become one by a reshape
			}
			o.value, o.axes = n.Inputs[0], axes
			continue
		}
		if o.repeat == 1 && len(o.axes) == 4 {
			if times, x, ok := repeated(n, o.axes[1]); ok {
				o.value, o.repeat = x, times
				continue
			}
		}
		break
	}
	if part, ok := o.partOf(); ok {
		return part
	}
	return o
}

// through returns the axes of a transpose's input that are the given ones of its
// output.
func through(perm, axes []int) []int {
	out := make([]int, len(axes))
	for i, a := range axes {
		out[i] = perm[a]
	}
	return out
}

// partOf returns o as a part of a tensor [batch, tokens, parts, heads, depth].
func (o operand) partOf() (operand, bool) {
	axis, index, x, ok := picked(o.value.Def)
	if !ok || len(o.axes) != 4 || x.Type.Rank() != 5 {
		return o, false
	}
	axes := make([]int, 4)
	for i, a := range o.axes {
		if axes[i] = a; a >= axis {
			axes[i]++
		}
	}
	if t, perm, ok := transposed(x); ok {
		x, axis, axes = t.Inputs[0], perm[axis], through(perm, axes)
	}
	parts := x.Type.Dims[axis]
	if axis != 2 || !slices.Equal(axes, []int{0, 3, 1, 4}) || !parts.Known() || index >= parts.Size() {
		return o, false
	}
	return operand{value: x, axes: axes, part: index, parts: parts.Size(), repeat: o.repeat}, true
}

// picked matches n that takes one index of an axis of x and drops that: a Gather, or
// a Squeeze of an output of a Split into ones.
func picked(n *ir.Node) (axis, index int, x *ir.Value, ok bool) {
	if n == nil {
		return 0, 0, nil, false
	}
	at := n.Input(1)
	if at == nil || at.Const == nil || !at.Const.DType().IsInt() || at.Const.Len() != 1 || !n.Inputs[0].Type.Ranked {
		return 0, 0, nil, false
	}
	i, rank := at.Const.Ints()[0], n.Inputs[0].Type.Rank()
	switch n.Op.Kind() {
	case "Gather":
		return positive(ir.AttrOf(n.Op, "axis").(int), rank), i, n.Inputs[0], i >= 0 && at.Const.Rank() == 0
	case "Squeeze":
		split := def(n.Inputs[0], "Split")
		if split == nil || rank != split.Inputs[0].Type.Rank() {
			return 0, 0, nil, false
		}
		x, axis = split.Inputs[0], positive(ir.AttrOf(split.Op, "axis").(int), rank)
		return axis, slices.Index(split.Outputs, n.Inputs[0]), x, positive(i, rank) == axis && x.Type.Dims[axis] == ir.Size(len(split.Outputs))
	}
	return 0, 0, nil, false
}

func positive(axis, rank int) int {
	if axis < 0 {
		axis += rank
	}
	return axis
}

// repeated matches n that gives x, of rank 4, each index of an axis several times: a Gather, or a reshape of what an axis
// of one behind that was expanded.
func repeated(n *ir.Node, axis int) (times int, x *ir.Value, ok bool) {
	if n.Op.Kind() == "Gather" {
		return gathered(n, axis)
	}
	if !reshapes(n) || n.Outputs[0].Type.Rank() != 4 {
		return 0, nil, false
	}
	e := n.Inputs[0].Def
	if e == nil || e.Op.Kind() != "Expand" && e.Op.Kind() != "Tile" || e.Outputs[0].Type.Rank() != 5 {
		return 0, nil, false
	}
	u := e.Inputs[0].Def
	if u == nil || !reshapes(u) || u.Inputs[0].Type.Rank() != 4 {
		return 0, nil, false
	}
	x = u.Inputs[0]
	d, wide := x.Type.Dims, e.Outputs[0].Type.Dims
	by := wide[axis+1]
	if !by.Known() || by.Size() < 1 || !slices.Equal(u.Outputs[0].Type.Dims, slices.Insert(slices.Clone(d), axis+1, ir.Size(1))) ||
		!slices.Equal(wide, slices.Insert(slices.Clone(d), axis+1, by)) {
		return 0, nil, false
	}
	flat := slices.Clone(d)
	flat[axis] = ir.Mul(d[axis], by)
	return by.Size(), x, slices.Equal(n.Outputs[0].Type.Dims, flat)
}

// gathered is repeated for a Gather of indices 0, 0, 1, 1 and so on.
func gathered(n *ir.Node, axis int) (times int, x *ir.Value, ok bool) {
	x = n.Inputs[0]
	indices := n.Inputs[1].Const
	if x.Type.Rank() != 4 || indices == nil || indices.Rank() != 1 || positive(ir.AttrOf(n.Op, "axis").(int), 4) != axis {
		return 0, nil, false
	}
	d := x.Type.Dims[axis]
	if !d.Known() || d.Size() < 1 || indices.Len() == 0 || indices.Len()%d.Size() != 0 {
		return 0, nil, false
	}
	times = indices.Len() / d.Size()
	for i, at := range indices.Ints() {
		if at != i/times {
			return 0, nil, false
		}
	}
	return times, x, true
}

// dim is axis i of the operand.
func (o *operand) dim(i int) ir.Dim { return o.value.Type.Dims[o.axes[i]] }

// byTokens reports whether a token has all its heads together in o.value.
func (o *operand) byTokens() bool {
	return len(o.axes) == 3 || o.parts > 0 || slices.Equal(o.axes, []int{0, 2, 1, 3})
}

// fits says why the operands and the masks are not certain to fit each other, nothing where they are.
func (m *attentionMatch) fits() (why string) {
	q, k, v := &m.in[0], &m.in[1], &m.in[2]
	rank := len(q.axes)
	queries, keys := q.dim(rank-2), k.dim(rank-2)
	scores := []ir.Dim{q.dim(0)}
	m.heads, m.kvHeads = ir.Size(1), ir.Size(1)
	if rank > 3 {
		m.heads, m.kvHeads = q.dim(rank-3), k.dim(rank-3)
		for i := range m.lead {
			scores = append(scores, q.dim(1+i))
		}
		if v.dim(rank-3) != m.kvHeads || v.repeat != k.repeat || q.repeat != 1 || m.heads != ir.Mul(m.kvHeads, ir.Size(k.repeat)) {
			return fmt.Sprintf("Q has %v heads, K %v, each %d times, and V %v, each %d times", m.heads, m.kvHeads, k.repeat, v.dim(rank-3), v.repeat)
		}
	}
	for i, d := range scores {
		if k.dim(i) != d || v.dim(i) != d {
			return fmt.Sprintf("axis %d of the batch is %v of Q, %v of K and %v of V", i, d, k.dim(i), v.dim(i))
		}
	}
	if v.dim(rank-2) != keys || k.dim(rank-1) != q.dim(rank-1) {
		return fmt.Sprintf("Q has %v features, K %v; K has %v tokens, V %v", q.dim(rank-1), k.dim(rank-1), keys, v.dim(rank-2))
	}
	if m.lead > 0 { // what becomes one axis is multiplied
		for _, d := range append(slices.Clone(scores), queries, keys) {
			if !d.Known() || d.Size() < 1 {
				return "the batch has several axes of which not all sizes are known"
			}
		}
	}
	if rank > 3 {
		scores = append(scores, m.heads)
	}
	scores = append(scores, queries, keys)
	for _, d := range []ir.Dim{m.heads, m.kvHeads, q.dim(rank - 1), v.dim(rank - 1)} {
		if !d.Known() || d.Size() < 1 {
			return "the number of heads, or of their features, is not known"
		}
	}
	if s := float32(m.scale); !(s > 0) || math.IsInf(float64(s), 0) {
		return fmt.Sprintf("the scores are scaled by %g, want a positive number", m.scale)
	}
	if why := m.fitMasks(scores); why != "" {
		return why
	}
	return m.hide(scores)
}

// fitMasks says why a mask does not broadcast to the scores.
func (m *attentionMatch) fitMasks(scores []ir.Dim) (why string) {
	for i := range m.masks {
		mask := &m.masks[i]
		for e := def(mask.value, "Expand"); e != nil && ends(e.Inputs[0], scores[len(scores)-1]); e = def(mask.value, "Expand") {
			mask.value = e.Inputs[0]
		}
		v := mask.value
		if !v.Type.Ranked || mask.hide == 0 && !isF32(v) {
			return fmt.Sprintf("the mask %s is %v, want f32 of known rank", v.Name, v.Type)
		}
		if !ends(v, scores[len(scores)-1]) || !broadcasts(v, scores) {
			return fmt.Sprintf("the mask %s is %v, the scores %v", v.Name, v.Type, ir.Of(tensor.F32, scores...))
		}
		if m.lead == 0 {
			continue
		}
		if _, ok := m.merged(v); !ok {
			return fmt.Sprintf("the mask %s is %v, which has not the axes of the batch of %v", v.Name, v.Type, ir.Of(tensor.F32, scores...))
		}
	}
	return ""
}

// ends reports whether the last axis of v is of the size.
func ends(v *ir.Value, d ir.Dim) bool {
	return v.Type.Ranked && v.Type.Rank() > 0 && v.Type.Dims[v.Type.Rank()-1] == d
}

// broadcasts reports whether v is certain to broadcast to a shape.
func broadcasts(v *ir.Value, to []ir.Dim) bool {
	d := v.Type.Dims
	if !v.Type.Ranked || len(d) > len(to) {
		return false
	}
	for i, e := range d {
		if e != ir.Size(1) && e != to[len(to)-len(d)+i] {
			return false
		}
	}
	return true
}

// merged returns the sizes of a mask whose batch is one axis, as that of the scores is.
func (m *attentionMatch) merged(mask *ir.Value) ([]int, bool) {
	scores := m.soft.Outputs[0].Type
	return regrouped(mask.Type, scores, ir.Of(scores.DType, m.joined(scores.Dims)...))
}

// joined makes the axes of the batch one.
func (m *attentionMatch) joined(dims []ir.Dim) []ir.Dim {
	return append([]ir.Dim{ir.Mul(dims[:m.lead+1]...)}, dims[m.lead+1:]...)
}

// hidden is what a mask adds at most to the score of a key that it hides: beside
// keys that it adds nothing to, that one has no weight unless scores are as large.
const hidden = -1e9

// rewrite puts the operator in the place of the last product. Reshapes around it
// are left for Identities to join with others.
func (m *attentionMatch) rewrite() error {
	attrs := map[string]any{"scale": float32(m.scale)}
	maps.Copy(attrs, m.band)
	for _, by := range m.rows {
		q, err := m.add("rows", "Mul", nil, m.in[0].value, by)
		if err != nil {
			return err
		}
		m.in[0].value = q
	}
	if err := m.join(); err != nil {
		return err
	}
	byTokens, packed := true, true
	for i := range m.in {
		o := &m.in[i]
		byTokens = byTokens && o.byTokens()
		packed = packed && o.parts == 3 && o.part == i && o.value == m.in[0].value
	}
	if byTokens {
		attrs["q_num_heads"], attrs["kv_num_heads"] = m.heads.Size(), m.kvHeads.Size()
	}
	inputs := make([]*ir.Value, 3, 4)
	var err error
	if packed {
		attrs["spc_packed"] = 1
		x, err := m.flatten("qkv", m.in[0].value)
		if err != nil {
			return err
		}
		inputs[0], inputs[1], inputs[2] = x, x, x
	} else {
		for i := range m.in {
			if inputs[i], err = m.input(&m.in[i], "qkv"[i:i+1], byTokens); err != nil {
				return err
			}
		}
	}
	if mask, err := m.mask(); err != nil {
		return err
	} else if mask != nil {
		inputs = append(inputs, mask)
	}
	y, err := m.add("fused", "Attention", attrs, inputs...)
	if err != nil {
		return err
	}
	out := m.at.Outputs[0]
	d, n := out.Type.Dims, m.lead
	switch {
	case byTokens && len(d) > 3:
		tokens := append(slices.Clone(d[:n+1]), d[n+2], d[n+1], d[n+3])
		if n > 0 {
			y, err = m.reshape("heads", y, sizes(tokens))
		} else {
			y, err = m.keepTwo("heads", y, tokens)
		}
		if err == nil {
			y, err = m.add("order", "Transpose", map[string]any{"perm": append(upTo(n+1), n+2, n+1, n+3)}, y)
		}
	case n > 0:
		y, err = m.reshape("batch", y, sizes(d))
	}
	if err != nil {
		return err
	}
	m.at.Graph().ReplaceUses(out, y)
	return nil
}

// join makes the axes of the batch of each operand and mask one.
func (m *attentionMatch) join() (err error) {
	if m.lead == 0 {
		return nil
	}
	for i := range m.masks {
		v := &m.masks[i].value
		shape, _ := m.merged(*v)
		if *v, err = m.reshape("mask", *v, shape); err != nil {
			return err
		}
	}
	for i := range m.in {
		o := &m.in[i]
		if o.value, err = m.reshape("batch", o.value, sizes(m.joined(o.value.Type.Dims))); err != nil {
			return err
		}
		o.axes = slices.Clone(o.axes[m.lead:])
		for j := range o.axes {
			o.axes[j] -= m.lead
		}
	}
	return nil
}

// sizes are known dimensions.
func sizes(dims []ir.Dim) []int {
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = d.Size()
	}
	return out
}

// input returns an operand as the operator reads it: tokens with their heads
// together, or heads with their tokens.
func (m *attentionMatch) input(o *operand, name string, byTokens bool) (x *ir.Value, err error) {
	x, axes := o.value, o.axes
	if o.parts > 0 {
		axes = []int{0, 2, 1, 3}
		if x, err = m.add(name+".part", "Gather", map[string]any{"axis": 2}, x, m.constant(name+".index", tensor.Scalar(int64(o.part)))); err != nil {
			return nil, err
		}
	}
	switch {
	case len(axes) == 4 && byTokens:
		return m.flatten(name, x)
	case !slices.IsSorted(axes):
		return m.add(name+".order", "Transpose", map[string]any{"perm": axes}, x)
	}
	return x, nil
}

// flatten makes all axes from the third on one.
func (m *attentionMatch) flatten(name string, x *ir.Value) (*ir.Value, error) {
	d := x.Type.Dims
	return m.keepTwo(name, x, []ir.Dim{d[0], d[1], ir.Mul(d[2:]...)})
}

// keepTwo gives x other dimensions, of which the first two are those of x.
func (m *attentionMatch) keepTwo(name string, x *ir.Value, dims []ir.Dim) (*ir.Value, error) {
	shape := []int{0, 0}
	for i, d := range dims {
		switch {
		case i >= 2:
			shape = append(shape, d.Size())
		case d.Known():
			shape[i] = d.Size()
		}
	}
	return m.reshape(name, x, shape)
}
