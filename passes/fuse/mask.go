package fuse

import (
	"math"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// masks reads what masks of attention are made of, once for each value.
type masks struct {
	planes map[*ir.Value]*plane
	logics map[*ir.Value]*logic
	levels map[*ir.Value]*level
}

func newMasks() *masks {
	return &masks{map[*ir.Value]*plane{}, map[*ir.Value]*logic{}, map[*ir.Value]*level{}}
}

// plane is an integer tensor whose elements are at and, for each axis, the index along it times by.
type plane struct {
	by []int
	at ir.Dim
}

// logic is a bool tensor that is true where no half is negative and all others are true; where not is
// set it is false there and true elsewhere.
type logic struct {
	halves []plane
	others []*ir.Value
	not    bool
}

// level is a tensor of two numbers.
type level struct {
	where   logic
	yes, no float64
}

// uniform reports whether one number is all there is.
func (l *level) uniform() bool { return len(l.where.halves)+len(l.where.others) == 0 }

// times returns the plane times k.
func (p plane) times(k int) plane {
	q := plane{slices.Clone(p.by), ir.Mul(ir.Size(k), p.at)}
	for i := range q.by {
		q.by[i] *= k
	}
	return q
}

// complement returns the plane that is not negative where p is negative.
func (p plane) complement() plane {
	q := p.times(-1)
	q.at = ir.Add(q.at, -1)
	return q
}

// plus adds planes of one rank.
func (p plane) plus(q plane) plane {
	r := plane{slices.Clone(p.by), ir.Sum(p.at, q.at)}
	for i, k := range q.by {
		r.by[i] += k
	}
	return r
}

// broadcast brings a plane of a tensor to those that it broadcasts to.
func (p plane) broadcast(from, to []ir.Dim) (plane, bool) {
	if len(from) > len(to) {
		return p, false
	}
	q := plane{make([]int, len(to)), p.at}
	for i, k := range p.by {
		j := len(to) - len(from) + i
		switch {
		case from[i] == ir.Size(1) || k == 0:
		case from[i] == to[j]:
			q.by[j] = k
		default: // one of the two may be 1
			return p, false
		}
	}
	return q, true
}

// moved brings a plane of the first input of n, which moves its elements, to its output.
func (p plane) moved(n *ir.Node) (plane, bool) {
	x, y := n.Inputs[0].Type, n.Outputs[0].Type
	if !x.Ranked || !y.Ranked {
		return p, false
	}
	q := plane{make([]int, y.Rank()), p.at}
	switch o := n.Op.(type) {
	case *op.Expand:
		return p.broadcast(x.Dims, y.Dims)
	case *op.Transpose:
		for i, a := range o.Order(x.Rank()) {
			q.by[i] = p.by[a]
		}
		return q, true
	case *op.Slice:
		return p.sliced(n)
	}
	if !reshapes(n) {
		return p, false
	}
	j := 0
	for i, d := range x.Dims { // axes of one element come and go
		if d == ir.Size(1) {
			continue
		}
		for j < len(y.Dims) && y.Dims[j] == ir.Size(1) {
			j++
		}
		if j == len(y.Dims) || y.Dims[j] != d {
			return p, false
		}
		q.by[j] = p.by[i]
		j++
	}
	return q, !slices.ContainsFunc(y.Dims[j:], func(d ir.Dim) bool { return d != ir.Size(1) })
}

// sliced is moved for a Slice in steps of one.
func (p plane) sliced(n *ir.Node) (plane, bool) {
	starts, dims := n.Inputs[1].Elems, n.Inputs[0].Type.Dims
	axes := upTo(len(starts))
	if a := n.Input(3); a != nil {
		if a.Const == nil || a.Const.Len() != len(starts) {
			return p, false
		}
		axes = a.Const.Ints()
	}
	if s := n.Input(4); s != nil && (s.Const == nil || slices.ContainsFunc(s.Const.Ints(), func(k int) bool { return k != 1 })) {
		return p, false
	}
	q := plane{slices.Clone(p.by), p.at}
	for i, start := range starts {
		a := positive(axes[i], len(dims))
		if start.Known() && start.Size() < 0 {
			start = ir.Sum(dims[a], start)
		}
		if !ir.AtMost(ir.Size(0), start) {
			return p, false
		}
		q.at = ir.Sum(q.at, ir.Mul(ir.Size(p.by[a]), start))
	}
	return q, n.Inputs[1].Elems != nil
}

// plane reads an integer tensor.
func (m *masks) plane(v *ir.Value) (plane, bool) {
	if p, seen := m.planes[v]; seen {
		return deref(p)
	}
	m.planes[v] = nil
	if p, ok := m.readPlane(v); ok {
		m.planes[v] = &p
	}
	return deref(m.planes[v])
}

// deref returns what p points to, if anything.
func deref[T any](p *T) (v T, ok bool) {
	if p == nil {
		return v, false
	}
	return *p, true
}

func (m *masks) readPlane(v *ir.Value) (p plane, ok bool) {
	if v == nil || !v.Type.Ranked || v.Type.DType != tensor.I64 && v.Type.DType != tensor.I32 {
		return p, false
	}
	if v.Const != nil {
		return constPlane(v.Const)
	}
	if len(v.Elems) == 1 {
		return plane{make([]int, v.Type.Rank()), v.Elems[0]}, true
	}
	n := v.Def
	if n == nil || !numpy(n) {
		return p, false
	}
	switch n.Op.Kind() {
	case "Range":
		start, ok := m.plane(n.Inputs[0])
		delta, ok2 := m.plane(n.Inputs[2])
		return plane{[]int{delta.at.Size()}, start.at}, ok && ok2 && delta.at.Known()
	case "Cast":
		return m.plane(n.Inputs[0])
	case "Add", "Sub":
		a, ok := m.broadcastPlane(n, 0)
		b, ok2 := m.broadcastPlane(n, 1)
		if !ok || !ok2 {
			return p, false
		}
		if n.Op.Kind() == "Sub" {
			b = b.times(-1)
		}
		return a.plus(b), true
	}
	if p, ok = m.plane(n.Input(0)); !ok {
		return p, false
	}
	return p.moved(n)
}

// broadcastPlane reads an input of n as it is broadcast.
func (m *masks) broadcastPlane(n *ir.Node, i int) (plane, bool) {
	p, ok := m.plane(n.Inputs[i])
	if !ok || !n.Outputs[0].Type.Ranked {
		return p, false
	}
	return p.broadcast(n.Inputs[i].Type.Dims, n.Outputs[0].Type.Dims)
}

// constPlane reads a constant.
func constPlane(t *tensor.Tensor) (p plane, ok bool) {
	x, shape := t.Ints(), t.Shape()
	if len(x) == 0 {
		return p, false
	}
	p = plane{make([]int, len(shape)), ir.Size(x[0])}
	strides := tensor.Strides(shape)
	for a, d := range shape {
		if d > 1 {
			p.by[a] = x[strides[a]] - x[0]
		}
	}
	for i, v := range x {
		want := x[0]
		for a, d := range shape {
			want += i / strides[a] % d * p.by[a]
		}
		if v != want {
			return p, false
		}
	}
	return p, true
}

// logic reads a bool tensor. What it does not know of is one of the others.
func (m *masks) logic(v *ir.Value) logic {
	if l := m.logics[v]; l != nil {
		return *l
	}
	l, ok := m.readLogic(v)
	if !ok {
		l = logic{others: []*ir.Value{v}}
	}
	m.logics[v] = &l
	return l
}

func (m *masks) readLogic(v *ir.Value) (l logic, ok bool) {
	if v.Const != nil {
		return bands(v.Const)
	}
	n := v.Def
	if n == nil || !numpy(n) || !v.Type.Ranked {
		return l, false
	}
	switch kind := n.Op.Kind(); kind {
	case "Less", "LessOrEqual":
		return m.compared(n, 1, 0)
	case "Greater", "GreaterOrEqual":
		return m.compared(n, 0, 1)
	case "Not":
		return m.logic(n.Inputs[0]).negate(), true
	case "And", "Or":
		a, ok := m.broadcastLogic(n, 0)
		b, ok2 := m.broadcastLogic(n, 1)
		if !ok || !ok2 {
			return l, false
		}
		if kind == "And" {
			return a.and(b)
		}
		l, ok = a.negate().and(b.negate())
		return l.negate(), ok
	case "Cast":
		x, ok := m.level(n.Inputs[0])
		if !ok || x.uniform() {
			return l, false
		}
		switch {
		case x.yes != 0 && x.no == 0:
			return x.where, true
		case x.yes == 0 && x.no != 0:
			return x.where.negate(), true
		}
		return l, false
	case "Trilu":
		t, ok := m.triangle(n)
		if !ok {
			return l, false
		}
		return t.and(m.logic(n.Inputs[0]))
	case "ConstantOfShape":
		o := n.Op.(*op.ConstantOfShape)
		return logic{not: o.Value == nil || o.Value.Int64s()[0] == 0}, true
	}
	if !movesMask(n) || n.Inputs[0].Type.DType != tensor.Bool {
		return l, false
	}
	return m.logic(n.Inputs[0]).moved(n)
}

// movesMask reports whether n is of those that move a mask's elements.
func movesMask(n *ir.Node) bool {
	switch n.Op.(type) {
	case *op.Expand, *op.Transpose, *op.Slice:
		return true
	}
	return reshapes(n)
}

// compared reads a comparison of integers, of which it wants the input more to be the larger one.
func (m *masks) compared(n *ir.Node, more, less int) (l logic, ok bool) {
	a, ok := m.broadcastPlane(n, more)
	b, ok2 := m.broadcastPlane(n, less)
	if !ok || !ok2 {
		return l, false
	}
	p := a.plus(b.times(-1))
	if !strings.HasSuffix(n.Op.Kind(), "OrEqual") {
		p.at = ir.Add(p.at, -1)
	}
	return logic{halves: []plane{p}}, true
}

// triangle is where a Trilu keeps elements.
func (m *masks) triangle(n *ir.Node) (l logic, ok bool) {
	k := ir.Size(0)
	if v := n.Input(1); v != nil {
		if len(v.Elems) != 1 {
			return l, false
		}
		k = v.Elems[0]
	}
	rank := n.Outputs[0].Type.Rank()
	if rank < 2 {
		return l, false
	}
	p := plane{make([]int, rank), ir.Mul(ir.Size(-1), k)}
	p.by[rank-2], p.by[rank-1] = -1, 1
	if !n.Op.(*op.Trilu).Upper {
		p = p.times(-1)
	}
	return logic{halves: []plane{p}}, true
}

func (m *masks) broadcastLogic(n *ir.Node, i int) (logic, bool) {
	return m.logic(n.Inputs[i]).broadcast(n.Inputs[i].Type, n.Outputs[0].Type)
}

func (l logic) broadcast(from, to ir.Type) (logic, bool) {
	return l.mapped(func(p plane) (plane, bool) { return p.broadcast(from.Dims, to.Dims) })
}

// moved is what n, which moves elements, makes of it. Others only get broadcast.
func (l logic) moved(n *ir.Node) (logic, bool) {
	if _, expands := n.Op.(*op.Expand); len(l.others) > 0 && !expands {
		return l, false
	}
	return l.mapped(func(p plane) (plane, bool) { return p.moved(n) })
}

func (l logic) mapped(f func(p plane) (plane, bool)) (logic, bool) {
	halves := make([]plane, len(l.halves))
	for i, p := range l.halves {
		var ok bool
		if halves[i], ok = f(p); !ok {
			return l, false
		}
	}
	l.halves = halves
	return l, true
}

// negate returns the opposite, as one half where it is one.
func (l logic) negate() logic {
	if !l.not && len(l.halves) == 1 && len(l.others) == 0 {
		return logic{halves: []plane{l.halves[0].complement()}}
	}
	l.not = !l.not
	return l
}

// and returns where both are true; ok is false where that is not known as a logic.
func (l logic) and(o logic) (logic, bool) {
	if l.not || o.not {
		return l, false
	}
	both := logic{halves: slices.Clone(l.halves), others: slices.Concat(l.others, o.others)}
	for _, p := range o.halves {
		both.halves = p.within(both.halves)
	}
	return both, true
}

// within adds p to halves all of which hold, and leaves out those that others imply.
func (p plane) within(halves []plane) []plane {
	implies := func(a, b plane) bool { return slices.Equal(a.by, b.by) && ir.AtMost(a.at, b.at) }
	if slices.ContainsFunc(halves, func(q plane) bool { return implies(q, p) }) {
		return halves
	}
	return append(slices.DeleteFunc(halves, func(q plane) bool { return implies(p, q) }), p)
}

// is reports whether both are the same in the same form.
func (l logic) is(o logic) bool {
	return l.not == o.not && slices.Equal(l.others, o.others) && slices.EqualFunc(l.halves, o.halves, func(a, b plane) bool {
		return a.at == b.at && slices.Equal(a.by, b.by)
	})
}

// bands reads a constant that is true in a band around a diagonal of its last two axes.
func bands(t *tensor.Tensor) (l logic, ok bool) {
	shape := t.Shape()
	for len(shape) < 2 {
		shape = append([]int{1}, shape...)
	}
	rows, cols := shape[len(shape)-2], shape[len(shape)-1]
	x := tensor.Data[bool](t)
	if len(x) == 0 {
		return l, false
	}
	from, to, some := cols, -rows, false
	for i, seen := range x[:rows*cols] {
		if d := i%cols - i/cols; seen {
			from, to, some = min(from, d), max(to, d), true
		}
	}
	for i, seen := range x {
		if i %= rows * cols; seen != (some && i%cols-i/cols >= from && i%cols-i/cols <= to) {
			return l, false
		}
	}
	if !some {
		return logic{not: true}, true
	}
	p := plane{make([]int, t.Rank()), ir.Size(-from)}
	if rank := t.Rank(); rank > 0 {
		p.by[rank-1] = 1
		if rank > 1 && rows > 1 {
			p.by[rank-2] = -1
		}
	}
	if from > 1-rows {
		l.halves = append(l.halves, p)
	}
	if to < cols-1 {
		q := p.times(-1)
		q.at = ir.Size(to)
		l.halves = append(l.halves, q)
	}
	return l, true
}

// level reads a tensor of two numbers at most.
func (m *masks) level(v *ir.Value) (level, bool) {
	if l, seen := m.levels[v]; seen {
		return deref(l)
	}
	m.levels[v] = nil
	if l, ok := m.readLevel(v); ok {
		m.levels[v] = &l
	}
	return deref(m.levels[v])
}

func (m *masks) readLevel(v *ir.Value) (l level, ok bool) {
	if v == nil || !v.Type.DType.Numeric() {
		return l, false
	}
	if v.Const != nil {
		return constLevel(v.Const)
	}
	n := v.Def
	if n == nil || !numpy(n) || !v.Type.Ranked {
		return l, false
	}
	switch n.Op.Kind() {
	case "ConstantOfShape":
		if o := n.Op.(*op.ConstantOfShape); o.Value != nil {
			l.yes = o.Value.Float64s()[0]
		}
		return l, true
	case "Cast":
		if n.Inputs[0].Type.DType == tensor.Bool {
			return level{m.logic(n.Inputs[0]), 1, 0}, true
		}
		l, ok = m.level(n.Inputs[0])
		return l, ok && l.fits(v.Type.DType)
	case "Where":
		return m.chosen(n)
	case "Trilu":
		l, ok = m.level(n.Inputs[0])
		t, ok2 := m.triangle(n)
		if !ok || !ok2 {
			return l, false
		}
		return l.times(level{t, 1, 0})
	}
	if op.Operands(n) == 2 {
		return m.computed(n)
	}
	if l, ok = m.level(n.Input(0)); !ok || !movesMask(n) {
		return l, false
	}
	l.where, ok = l.where.moved(n)
	return l, ok
}

// fits reports whether a type holds both numbers.
func (l *level) fits(dt tensor.DType) bool {
	t := tensor.FromFloat64s(tensor.F64, []float64{l.yes, l.no}, 2)
	if dt.IsInt() && math.IsInf(l.yes*l.no, 0) {
		return false
	}
	return t.To(dt).To(tensor.F64).Equal(t)
}

// constLevel reads a constant that has one number, or zeros and what hides.
func constLevel(t *tensor.Tensor) (l level, ok bool) {
	x := t.Float64s()
	if len(x) == 0 {
		return l, false
	}
	if !slices.ContainsFunc(x, func(v float64) bool { return v != x[0] }) {
		return level{yes: x[0], no: x[0]}, true
	}
	seen, most := make([]bool, len(x)), math.Inf(-1)
	for i, v := range x {
		if seen[i] = v == 0; !seen[i] {
			most = max(most, v)
		}
		if v != 0 && !(v <= hidden) {
			return l, false
		}
	}
	l = level{yes: 0, no: most}
	l.where, ok = bands(tensor.From(seen, t.Shape()...))
	return l, ok
}

// broadcastLevel reads an input of n as it is broadcast.
func (m *masks) broadcastLevel(n *ir.Node, i int) (l level, ok bool) {
	if l, ok = m.level(n.Inputs[i]); !ok {
		return l, false
	}
	l.where, ok = l.where.broadcast(n.Inputs[i].Type, n.Outputs[0].Type)
	return l, ok
}

// chosen reads a Where.
func (m *masks) chosen(n *ir.Node) (l level, ok bool) {
	if l.where, ok = m.broadcastLogic(n, 0); !ok {
		return l, false
	}
	a, ok := m.broadcastLevel(n, 1)
	b, ok2 := m.broadcastLevel(n, 2)
	if !ok || !ok2 {
		return l, false
	}
	// Either is one number where the condition holds, and where it does not.
	for _, part := range []struct {
		of level
		to *float64
		at bool
	}{{a, &l.yes, true}, {b, &l.no, false}} {
		switch {
		case part.of.uniform() && !part.of.where.not || part.of.where.is(l.where):
			*part.to = part.of.yes
			if !part.at && !part.of.uniform() {
				*part.to = part.of.no
			}
		case part.of.where.is(l.where.negate()):
			if *part.to = part.of.no; !part.at {
				*part.to = part.of.yes
			}
		default:
			return l, false
		}
	}
	return l, true
}

// computed reads an operator of one number and a level, or a product of two levels.
func (m *masks) computed(n *ir.Node) (l level, ok bool) {
	a, ok := m.broadcastLevel(n, 0)
	b, ok2 := m.broadcastLevel(n, 1)
	if !ok || !ok2 || a.where.not && a.uniform() || b.where.not && b.uniform() {
		return l, false
	}
	switch {
	case b.uniform():
		l, b.no = a, b.yes
	case a.uniform():
		l, a.no = b, a.yes
	case n.Op.Kind() == "Mul":
		return a.times(b)
	default:
		return l, false
	}
	x, y := n.Inputs[0].Type.DType, n.Inputs[1].Type.DType
	out, err := n.Op.Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{tensor.FromFloat64s(x, []float64{a.yes, a.no}, 2), tensor.FromFloat64s(y, []float64{b.yes, b.no}, 2)})
	if err != nil || !out[0].DType().Numeric() {
		return l, false
	}
	both := out[0].Float64s()
	l.yes, l.no = both[0], both[1]
	return l, true
}

// times multiplies levels, of which either is zero or a number, or one number is all there is.
func (l level) times(o level) (level, bool) {
	for _, x := range []*level{&l, &o} {
		if x.uniform() {
			x.no = 0
		}
		if x.no != 0 && x.yes == 0 {
			x.where, x.yes, x.no = x.where.negate(), x.no, x.yes
		}
		if x.no != 0 || math.IsInf(x.yes, 0) || math.IsNaN(x.yes) {
			return l, false
		}
	}
	both, ok := l.where.and(o.where)
	return level{where: both, yes: l.yes * o.yes}, ok
}
