package diff

import (
	"slices"

	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// Sequences and optionals. Positions, lengths and sizes are known when a graph is compiled
// or at run time only, so that lists are taken apart, or run.

// sequence is a sequence of at least so many elements, mostly one that is there.
func (g *Gen) sequence(least int) *val {
	if !g.one(4) {
		if v := g.among(func(v *val) bool { return v.dt().IsSequence() && v.len() >= least }); v != nil {
			return v
		}
	}
	switch g.r.IntN(4) {
	case 0:
		return g.listInput(g.listOf(choose(g, all...), least))
	case 1:
		return g.construct(max(1, least))
	case 2:
		if least == 0 && g.one(2) {
			return g.node("SequenceEmpty", Attrs{"dtype": choose(g, all...)})
		}
	}
	l := g.cut(g.some(choose(g, all...), 1, 4))
	if l.len() < least {
		reject("a short sequence")
	}
	return l
}

// listOf draws sequences of a type: the elements differ in one axis or in none, and the
// declared type may tell the others.
func (g *Gen) listOf(dt tensor.DType, least int) (draw func(n int) *tensor.Tensor, elem *onnxpb.TensorShapeProto, n int) {
	shape := g.shape(g.r.IntN(4))
	axis := -1
	if len(shape) > 0 && g.one(2) {
		axis = g.r.IntN(len(shape))
	}
	if !g.one(3) {
		elem = info("", dt, shape, nil).Type.GetTensorType().Shape
		if axis >= 0 {
			elem.Dim[axis].Value = nil
		}
	}
	return func(n int) *tensor.Tensor {
		var items []*tensor.Tensor
		for range n {
			s := slices.Clone(shape)
			if axis >= 0 {
				s[axis] = g.r.IntN(6)
			}
			items = append(items, g.data(dt, s...))
		}
		return tensor.NewSequence(dt, items...)
	}, elem, least + g.r.IntN(4)
}

// listInput makes an input of the graph that is a sequence, in other runs perhaps of
// another length.
func (g *Gen) listInput(draw func(n int) *tensor.Tensor, elem *onnxpb.TensorShapeProto, n int) *val {
	v := g.newInput(draw(n), func(shape []int) *tensor.Tensor {
		if g.one(3) {
			return draw(g.r.IntN(5))
		}
		return draw(shape[0])
	})
	g.inputs[len(g.inputs)-1].elem = elem
	return v
}

// construct makes a sequence of tensors, several of which may be the same.
func (g *Gen) construct(n int) *val {
	x := g.some(choose(g, all...), 0, 4)
	in := []*val{x}
	for len(in) < n || g.one(2) && len(in) < 5 {
		in = append(in, g.alike(x))
	}
	g.r.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	return g.node("SequenceConstruct", nil, in...)
}

// alike is a tensor of the type of another, mostly of its shape but for one axis.
func (g *Gen) alike(x *val) *val {
	if g.one(4) {
		return x
	}
	if v := g.pick(func(v *val) bool { return v.dt() == x.dt() && v.is(x.shape()) }); v != nil && g.one(2) {
		return v
	}
	s := slices.Clone(x.shape())
	if len(s) > 0 && g.one(2) {
		s[g.r.IntN(len(s))] = g.size()
	}
	if g.one(12) {
		s = g.shape(g.r.IntN(3))
	}
	return g.fresh(x.dt(), s...)
}

// cut makes a sequence of the pieces of a tensor.
func (g *Gen) cut(x *val) *val {
	a := g.r.IntN(x.rank())
	n := x.dim(a)
	attrs := Attrs{"axis": a}
	if g.one(4) {
		attrs["axis"] = a - x.rank()
	}
	switch g.r.IntN(3) {
	case 0:
		attrs["keepdims"] = g.r.IntN(2)
		return g.node("SplitToSequence", attrs, x)
	case 1:
		return g.node("SplitToSequence", attrs, x, g.index(1+g.r.IntN(max(n, 1))))
	}
	var sizes []int
	for n > 0 && len(sizes) < 5 {
		k := g.r.IntN(n + 1)
		if g.one(2) {
			k = 1 + g.r.IntN(min(n, 2))
		}
		sizes, n = append(sizes, k), n-k
	}
	if n > 0 || len(sizes) == 0 {
		sizes = append(sizes, n)
	}
	return g.node("SplitToSequence", attrs, x, g.ints(sizes...))
}

// position makes an operand that is a place in a sequence of n elements, or where ends is 1
// behind them.
func (g *Gen) position(l *val, ends int) *val {
	n := l.len()
	if n+ends == 0 {
		reject("an empty sequence")
	}
	at := g.r.IntN(n + ends)
	switch {
	case at == n-1 && g.one(4): // counted at run time, or not
		return g.node("Sub", nil, g.node("SequenceLength", nil, l), g.weight(tensor.Scalar(int64(1))))
	case at < n && g.one(4):
		at -= n
	}
	if g.one(6) {
		return g.structural(tensor.Scalar(int32(at)))
	}
	return g.index(at)
}

// used computes with an element of a list, often in place.
func (g *Gen) used(x *val) *val {
	if x.dt() != tensor.F32 {
		return x
	}
	for range g.r.IntN(4) {
		if g.one(4) {
			x = g.node(choose(g, "Add", "Sub", "Mul"), nil, x, g.beside(x, tensor.F32))
			continue
		}
		x = g.node(choose(g, "Relu", "Neg", "Abs", "Sigmoid", "Tanh"), nil, x)
	}
	return x
}

// at is an element of a sequence.
func (g *Gen) at(l *val) *val { return g.node("SequenceAt", nil, l, g.position(l, 0)) }

// joined is the elements of a sequence in one tensor; nil where they do not fit.
func (g *Gen) joined(l *val) *val {
	if l.len() == 0 {
		return nil
	}
	items := l.t().Items()
	rank, differ := items[0].Rank(), map[int]bool{}
	for _, t := range items {
		if t.Rank() != rank {
			return nil
		}
		for i := range rank {
			if t.Dim(i) != items[0].Dim(i) {
				differ[i] = true
			}
		}
	}
	a := Attrs{}
	switch {
	case len(differ) == 0 && (rank == 0 || g.one(3)):
		a["axis"], a["new_axis"] = g.axis(rank+1), 1
	case len(differ) == 0:
		a["axis"] = g.axis(rank)
	case len(differ) == 1:
		for i := range differ {
			a["axis"] = choose(g, i, i-rank)
		}
	default:
		return nil
	}
	return g.node("ConcatFromSequence", a, l)
}

func splitToSequence(g *Gen, _ string) {
	l := g.cut(g.some(choose(g, all...), 1, 4))
	if l.len() > 0 && g.one(2) {
		g.used(g.at(l))
	}
}

func sequenceConstruct(g *Gen, _ string) {
	l := g.construct(1)
	if g.one(2) {
		g.used(g.at(l))
	}
}

func sequenceEmpty(g *Gen, kind string) {
	x := g.some(choose(g, all...), 0, 4)
	l := g.node(kind, Attrs{"dtype": x.dt()})
	for range g.r.IntN(4) {
		in := []*val{l, g.alike(x)}
		if g.one(2) {
			in = append(in, g.position(l, 1))
		}
		l = g.node("SequenceInsert", nil, in...)
	}
}

func sequenceInsert(g *Gen, kind string) {
	l := g.sequence(0)
	var x *val
	switch {
	case l.len() == 0:
		x = g.some(l.dt().Elem(), 0, 4)
	default:
		s := l.t().Items()[0].Shape()
		if x = g.pick(func(v *val) bool { return v.dt() == l.dt().Elem() && v.is(s) }); x == nil || g.one(4) {
			x = g.fresh(l.dt().Elem(), s...)
		}
	}
	in := []*val{l, x}
	if !g.one(3) {
		in = append(in, g.position(l, 1))
	}
	l = g.node(kind, nil, in...)
	switch g.r.IntN(3) {
	case 0:
		g.used(g.at(l))
	case 1:
		g.used(x) // perhaps in place of what the sequence holds
	}
}

func sequenceErase(g *Gen, kind string) {
	l := g.sequence(1)
	in := []*val{l}
	if !g.one(3) {
		in = append(in, g.position(l, 0))
	}
	l = g.node(kind, nil, in...)
	if l.len() > 0 && g.one(2) {
		g.used(g.at(l))
	}
}

func sequenceAt(g *Gen, _ string) {
	l := g.sequence(1)
	for range 1 + g.r.IntN(3) {
		g.used(g.at(l))
	}
}

func sequenceLength(g *Gen, kind string) {
	n := g.node(kind, nil, g.sequence(0))
	if g.one(2) { // an operand that others depend on
		g.node("Expand", nil, g.some(tensor.F32, 0, 0), g.node("Reshape", nil, n, g.weight(tensor.Ints(1))))
	}
}

func concatFromSequence(g *Gen, _ string) {
	l := g.sequence(1)
	y := g.joined(l)
	if y == nil {
		reject("elements that do not join")
	}
	g.used(y)
}

func sequenceMap(g *Gen, kind string) {
	l := g.sequence(1)
	in := []*val{l}
	if g.one(3) {
		if m := g.among(func(v *val) bool { return v.dt().IsSequence() && v.len() == l.len() }); m != nil {
			in = append(in, m)
		}
	}
	if g.one(3) {
		in = append(in, g.some(tensor.F32, 0, 3))
	}
	var first []*value
	for _, v := range in {
		if v.dt().IsList() {
			first = append(first, v.v.item(0))
		} else {
			first = append(first, v.v)
		}
	}
	outs := 1 + g.r.IntN(2)
	body := g.subgraph(first, func(in []*val) []*val {
		var out []*val
		for range outs {
			out = append(out, g.body(choose(g, in...)))
		}
		return out
	})
	out := g.nodes(kind, Attrs{"body": body}, outs, in...)
	for _, l := range out {
		if g.one(2) {
			g.joined(l)
		}
	}
}

func optional(g *Gen, kind string) {
	var x *val
	switch g.r.IntN(4) {
	case 0:
		dt := choose(g, all...)
		g.node("OptionalHasElement", nil, g.node(kind, Attrs{"type": typeOf(choose(g, dt, tensor.SequenceOf(dt)), nil)}))
		return
	case 1:
		x = g.sequence(0)
	default:
		x = g.some(choose(g, all...), 0, 4)
	}
	o := g.node(kind, nil, x)
	if g.one(2) {
		if y := g.node("OptionalGetElement", nil, o); !y.dt().IsList() {
			g.used(y)
		}
	}
}

// option is an optional, mostly one that is there, or an input.
func (g *Gen) option() *val {
	if v := g.among(func(v *val) bool { return v.dt().IsOptional() }); v != nil && !g.one(4) {
		return v
	}
	if g.one(2) {
		return g.node("Optional", nil, g.some(choose(g, all...), 0, 4))
	}
	return g.optionalInput()
}

// optionalInput makes an input that is an optional, in other runs perhaps an absent one.
func (g *Gen) optionalInput() *val {
	dt := choose(g, tensor.F32, tensor.F32, tensor.I64, tensor.String)
	shape := g.shape(g.r.IntN(4))
	item := func() *tensor.Tensor { return g.data(dt, shape...) }
	elem := info("", dt, shape, nil).Type.GetTensorType().Shape
	if g.one(3) {
		draw, of, n := g.listOf(dt, 0)
		dt, elem, item = tensor.SequenceOf(dt), of, func() *tensor.Tensor { return draw(n) }
	}
	v := g.newInput(tensor.NewOptional(dt, item()), func([]int) *tensor.Tensor {
		if g.one(3) {
			return tensor.NewOptional(dt, nil)
		}
		return tensor.NewOptional(dt, item())
	})
	g.inputs[len(g.inputs)-1].elem = elem
	return v
}

// getElement takes the element of an optional, or what is none as it is.
func getElement(g *Gen, kind string) {
	var x *val
	switch g.r.IntN(4) {
	case 0:
		x = g.sequence(0)
	case 1:
		x = g.some(choose(g, all...), 0, 4)
	default:
		x = g.option()
	}
	if y := g.node(kind, nil, x); !y.dt().IsList() {
		g.used(y)
	} else if y.len() > 0 {
		g.used(g.at(y))
	}
}

func hasElement(g *Gen, kind string) {
	x := g.option()
	switch g.r.IntN(6) {
	case 0:
		x = g.sequence(0)
	case 1:
		x = g.some(choose(g, all...), 0, 4)
	}
	h := g.node(kind, nil, x)
	if g.one(2) {
		y := g.some(tensor.F32, 0, 4)
		g.node("Where", nil, h, y, g.node("Neg", nil, y))
	}
}

// pieces cuts a tensor, computes with some of the pieces, and joins what becomes of them.
func pieces(g *Gen) {
	x := g.some(tensor.F32, 1, 4)
	if g.one(2) {
		x = g.node("Relu", nil, x)
	}
	l := g.cut(x)
	if l.len() == 0 {
		reject("nothing to take")
	}
	var made []*val
	for range 1 + g.r.IntN(3) {
		made = append(made, g.used(g.at(l)))
	}
	switch g.r.IntN(3) {
	case 0:
		l = g.node("SequenceConstruct", nil, made...)
	default:
		for _, v := range made {
			l = g.node("SequenceInsert", nil, l, v, g.position(l, 1))
			if g.one(2) {
				l = g.node("SequenceErase", nil, l, g.position(l, 0))
			}
		}
	}
	if y := g.joined(l); y != nil {
		g.used(y)
	} else if l.len() > 0 {
		g.used(g.at(l))
	}
}

// held puts what is computed into a sequence, and goes on with it in its place.
func held(g *Gen) {
	x := g.node(choose(g, "Relu", "Neg", "Abs"), nil, g.some(tensor.F32, 0, 3))
	var l *val
	if g.one(2) {
		l = g.node("SequenceConstruct", nil, x, g.alike(x))
	} else {
		l = g.node("SequenceInsert", nil, g.listInput(g.listOf(tensor.F32, 0)), x)
	}
	for range 1 + g.r.IntN(3) {
		x = g.node(choose(g, "Neg", "Abs", "Sigmoid", "Tanh"), nil, x)
	}
	g.used(g.at(l))
	if g.one(2) {
		l = g.node("SequenceInsert", nil, l, x, g.position(l, 1))
		g.used(g.at(l))
	}
}

// collected is a Loop whose state is a sequence that grows.
func collected(g *Gen) {
	x := g.some(tensor.F32, 0, 3)
	l := g.node("SequenceEmpty", nil)
	if g.one(2) {
		l = g.node("SequenceInsert", nil, l, g.alike(x))
	}
	erases := g.one(4)
	in := []*value{plain(tensor.Scalar(int64(0))), plain(tensor.Scalar(true)), l.v, x.v}
	body := g.subgraph(in, func(in []*val) []*val {
		e := g.node(choose(g, "Relu", "Neg", "Tanh"), nil, in[3])
		args := []*val{in[2], e}
		if g.one(2) {
			args = append(args, g.weight(tensor.Scalar(int64(0))))
		}
		m := g.node("SequenceInsert", nil, args...)
		if erases {
			m = g.node("SequenceErase", nil, m, g.weight(tensor.Scalar(int64(0))))
		}
		return []*val{g.node("Identity", nil, in[1]), m, g.node(choose(g, "Neg", "Abs", "Identity"), nil, e)}
	})
	out := g.nodes("Loop", Attrs{"body": body}, 2, g.index(g.r.IntN(4)), nil, l, x)
	g.used(out[1])
	if g.one(3) {
		g.node("SequenceLength", nil, out[0])
	}
	if y := g.joined(out[0]); y != nil {
		g.used(y)
	}
}

// visited is a Loop over the elements of a sequence.
func visited(g *Gen) {
	l := g.sequence(1)
	if l.dt().Elem() != tensor.F32 {
		reject("type")
	}
	first := l.v.item(0)
	state := g.shaped(tensor.F32, first.base.Shape()...)
	body := g.subgraph([]*value{plain(tensor.Scalar(int64(0))), plain(tensor.Scalar(true)), state.v}, func(in []*val) []*val {
		e := g.node("SequenceAt", nil, l, in[0])
		return []*val{g.node("Identity", nil, in[1]), g.node(choose(g, "Max", "Add", "Sub"), nil, in[2], g.used(e))}
	})
	trip := g.node("SequenceLength", nil, l)
	if g.one(3) {
		trip = g.index(g.r.IntN(l.len() + 1))
	}
	g.used(g.nodes("Loop", Attrs{"body": body}, 1, trip, nil, state)[0])
}

// flag is a bool that may be another in another run, and is true in the first.
func (g *Gen) flag() *val {
	return g.newInput(tensor.Scalar(true), func([]int) *tensor.Tensor { return tensor.Scalar(g.one(2)) })
}

// chosen is an If that gives a sequence, of one branch or the other.
func chosen(g *Gen) {
	l := g.sequence(1)
	dt := l.dt().Elem()
	branch := func() *sub {
		return g.subgraph(nil, func([]*val) []*val {
			switch g.r.IntN(4) {
			case 0:
				return []*val{l}
			case 1:
				return []*val{g.node("SequenceInsert", nil, l, g.some(dt, 0, 3), g.position(l, 1))}
			case 2:
				return []*val{g.node("SequenceErase", nil, l, g.position(l, 0))}
			}
			return []*val{g.node("SequenceConstruct", nil, g.some(dt, 0, 3))}
		})
	}
	then := branch()
	m := g.node("If", Attrs{"then_branch": then, "else_branch": branch()}, g.flag())
	g.node("SequenceLength", nil, m)
	if m.len() > 0 && g.one(2) {
		g.used(g.at(m))
	}
}

// given is an If that gives an optional, and one that takes its element where there is one.
func given(g *Gen) {
	x := g.node(choose(g, "Relu", "Neg", "Abs"), nil, g.some(tensor.F32, 0, 3))
	var o *val
	if g.one(4) {
		o = g.option()
	} else {
		some := g.subgraph(nil, func([]*val) []*val { return []*val{g.node("Optional", nil, g.used(x))} })
		none := g.subgraph(nil, func([]*val) []*val {
			return []*val{g.node("Optional", Attrs{"type": typeOf(tensor.F32, nil)})}
		})
		o = g.node("If", Attrs{"then_branch": some, "else_branch": none}, g.flag())
	}
	if o.dt().Elem() != tensor.F32 {
		reject("type")
	}
	has := g.node("OptionalHasElement", nil, o)
	if o.len() == 0 {
		return
	}
	then := g.subgraph(nil, func([]*val) []*val { return []*val{g.used(g.node("OptionalGetElement", nil, o))} })
	other := g.subgraph(nil, func([]*val) []*val { return []*val{g.used(x)} })
	y := g.node("If", Attrs{"then_branch": then, "else_branch": other}, has)
	g.used(y)
	g.used(x)
}
