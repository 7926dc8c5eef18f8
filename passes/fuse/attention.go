package fuse

import (
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
	n, err := rewrite(g, attention)
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
func attention(n *ir.Node) (bool, error) {
	if !plainMatMul(n) {
		return false, nil
	}
	soft := def(n.Inputs[0], "Softmax")
	if soft == nil || !sole(n.Inputs[0]) || !lastAxis(soft) || !sole(soft.Inputs[0]) {
		return false, nil
	}
	s, ok := scoresOf(soft.Inputs[0])
	if !ok {
		return false, nil
	}
	rank := n.Outputs[0].Type.Rank()
	m := &attentionMatch{builder: builder{n}, rows: s.rows, masks: s.masks, scale: s.scale, lead: max(0, rank-4)}
	if rank < 3 {
		return false, nil
	}
	for i, v := range []*ir.Value{s.q, s.k, n.Inputs[1]} {
		if v.Type.Rank() != rank {
			return false, nil
		}
		axes := upTo(rank)
		if i == 1 { // K is transposed
			slices.Reverse(axes[rank-2:])
		}
		if m.in[i] = (operand{value: v, axes: axes, repeat: 1}); i > 0 || len(s.rows) == 0 {
			m.in[i] = m.operand(v, axes, i < 2)
		}
	}
	if !m.fits() {
		return false, nil
	}
	return true, m.rewrite()
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
	masks []*ir.Value
	scale float64
}

// ofRows reports whether v is the same for all scores of a head.
func ofRows(v *ir.Value) bool {
	d := v.Type.Dims
	if !isF32(v) || !v.Type.Ranked {
		return false
	}
	return !slices.ContainsFunc(d[max(0, len(d)-2):], func(e ir.Dim) bool { return e != ir.Size(1) })
}

// scoresOf matches the input of the softmax. What makes it is read by nobody else.
func scoresOf(v *ir.Value) (s scores, ok bool) {
	s.scale = 1
	for {
		n := v.Def
		if n == nil || !sole(v) || !numpy(n) {
			return s, false
		}
		if by, x, ok := scaled(n); ok {
			s.scale *= by
			v = x
			continue
		}
		switch n.Op.Kind() {
		case "Mul":
			i := slices.IndexFunc(n.Inputs, func(x *ir.Value) bool { return sole(x) && equal(x, v) && productBelow(x) })
			if i < 0 || !ofRows(n.Inputs[1-i]) {
				return s, false
			}
			s.rows, v = append(s.rows, n.Inputs[1-i]), n.Inputs[i]
		case "Add": // before anything is scaled, seen from the softmax
			if s.scale != 1 || len(s.rows) > 0 {
				return s, false
			}
			i := slices.IndexFunc(n.Inputs, func(x *ir.Value) bool { return sole(x) && equal(x, v) && productBelow(x) })
			if i < 0 || n.Inputs[0] == n.Inputs[1] {
				return s, false
			}
			s.masks, v = append(s.masks, n.Inputs[1-i]), n.Inputs[i]
		case "MatMul":
			s.q, s.k = n.Inputs[0], n.Inputs[1]
			return s, plainMatMul(n)
		default:
			return s, false
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
		if kind := v.Def.Op.Kind(); kind != "Add" && kind != "Mul" || !numpy(v.Def) {
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
	in      [3]operand
	rows    []*ir.Value // factors that Q gets
	masks   []*ir.Value // all of which are added
	scale   float64
	causal  bool
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
		if times, x, ok := repeated(n); ok && o.repeat == 1 && slices.IsSorted(o.axes) {
			o.value, o.repeat = x, times
			continue
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

// repeated matches a reshape to [batch, heads, tokens, depth] of x with each head
// repeated.
func repeated(n *ir.Node) (times int, x *ir.Value, ok bool) {
	if !reshapes(n) || n.Outputs[0].Type.Rank() != 4 {
		return 0, nil, false
	}
	e := def(n.Inputs[0], "Expand")
	if e == nil || e.Outputs[0].Type.Rank() != 5 {
		return 0, nil, false
	}
	u := e.Inputs[0].Def
	if u == nil || !reshapes(u) || u.Inputs[0].Type.Rank() != 4 {
		return 0, nil, false
	}
	x = u.Inputs[0]
	d, wide := x.Type.Dims, e.Outputs[0].Type.Dims
	if !wide[2].Known() || wide[2].Size() < 1 || !slices.Equal(u.Outputs[0].Type.Dims, []ir.Dim{d[0], d[1], ir.Size(1), d[2], d[3]}) ||
		!slices.Equal(wide, []ir.Dim{d[0], d[1], wide[2], d[2], d[3]}) ||
		!slices.Equal(n.Outputs[0].Type.Dims, []ir.Dim{d[0], ir.Mul(d[1], wide[2]), d[2], d[3]}) {
		return 0, nil, false
	}
	return wide[2].Size(), x, true
}

// dim is axis i of the operand.
func (o *operand) dim(i int) ir.Dim { return o.value.Type.Dims[o.axes[i]] }

// byTokens reports whether a token has all its heads together in o.value.
func (o *operand) byTokens() bool {
	return len(o.axes) == 3 || o.parts > 0 || slices.Equal(o.axes, []int{0, 2, 1, 3})
}

// fits reports whether the operands and the mask are certain to fit each other.
func (m *attentionMatch) fits() bool {
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
			return false
		}
	}
	for i, d := range scores {
		if k.dim(i) != d || v.dim(i) != d {
			return false
		}
	}
	if v.dim(rank-2) != keys || k.dim(rank-1) != q.dim(rank-1) {
		return false
	}
	if m.lead > 0 { // what becomes one axis is multiplied
		for _, d := range append(slices.Clone(scores), queries, keys) {
			if !d.Known() || d.Size() < 1 {
				return false
			}
		}
	}
	if rank > 3 {
		scores = append(scores, m.heads)
	}
	scores = append(scores, queries, keys)
	for _, d := range []ir.Dim{m.heads, m.kvHeads, q.dim(rank - 1), v.dim(rank - 1)} {
		if !d.Known() || d.Size() < 1 {
			return false
		}
	}
	if s := float32(m.scale); !(s > 0) || math.IsInf(float64(s), 0) {
		return false
	}
	for _, mask := range m.masks {
		if !isF32(mask) || !mask.Type.Ranked {
			return false
		}
		d := mask.Type.Dims
		if len(d) < 1 || len(d) > len(scores) || d[len(d)-1] != keys {
			return false
		}
		for i, e := range d {
			if e != ir.Size(1) && e != scores[len(scores)-len(d)+i] {
				return false
			}
		}
		if m.lead == 0 {
			continue
		}
		if _, ok := m.merged(mask); !ok {
			return false
		}
	}
	m.causal = len(m.masks) == 1 && hidesLater(m.masks[0].Const, queries, keys)
	return true
}

// merged returns the sizes of a mask whose batch is one axis, as that of the scores is.
func (m *attentionMatch) merged(mask *ir.Value) ([]int, bool) {
	scores := def(m.at.Inputs[0], "Softmax").Outputs[0].Type
	return regrouped(mask.Type, scores, ir.Of(scores.DType, m.joined(scores.Dims)...))
}

// joined makes the axes of the batch one.
func (m *attentionMatch) joined(dims []ir.Dim) []ir.Dim {
	return append([]ir.Dim{ir.Mul(dims[:m.lead+1]...)}, dims[m.lead+1:]...)
}

// hidden is what a mask adds at most to the score of a key that it hides: beside
// keys that it adds nothing to, that one has no weight unless scores are as large.
const hidden = -1e9

// hidesLater reports whether a mask is zero up to the diagonal and hides what is
// behind it.
func hidesLater(t *tensor.Tensor, queries, keys ir.Dim) bool {
	if t == nil || !queries.Known() || queries != keys || t.Len() != queries.Size()*queries.Size() {
		return false
	}
	n := queries.Size()
	for i, v := range t.F32s() {
		if j := i % n; j <= i/n && v != 0 || j > i/n && !(v <= hidden) {
			return false
		}
	}
	return true
}

// rewrite puts the operator in the place of the last product. Reshapes around it
// are left for Identities to join with others.
func (m *attentionMatch) rewrite() error {
	attrs := map[string]any{"scale": float32(m.scale)}
	if m.causal {
		attrs["is_causal"], m.masks = 1, nil
	}
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
	if len(m.masks) > 0 {
		mask := m.masks[0]
		for _, other := range m.masks[1:] {
			if mask, err = m.add("masks", "Add", nil, mask, other); err != nil {
				return err
			}
		}
		if len(m.in[0].axes) == 3 && mask.Type.Rank() == 3 { // the one head gets an axis
			if mask, err = m.add("mask", "Unsqueeze", nil, mask, m.constant("mask.axes", tensor.Ints(1))); err != nil {
				return err
			}
		}
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
		shape, _ := m.merged(m.masks[i])
		if m.masks[i], err = m.reshape("mask", m.masks[i], shape); err != nil {
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
