package fold

import (
	"fmt"
	"maps"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// maxItems bounds the lists whose elements become values of their own, and the nodes that a
// SequenceMap or a Loop unrolls to.
const maxItems = 1 << 12

// item is an element of a list: a value, or a piece that a SplitToSequence cuts.
type item struct {
	value *ir.Value
	split *ir.Node
	piece int
}

// content is what is known of a list: its elements, or that it is all pieces of a
// SplitToSequence, of which there may be many.
type content struct {
	items []item
	split *ir.Node
	n     int
}

func (c *content) at(i int) item {
	if c.split != nil {
		return item{split: c.split, piece: i}
	}
	return c.items[i]
}

// all returns the elements; ok is false where they are too many.
func (c *content) all() (items []item, ok bool) {
	if c.split == nil || c.n > maxItems {
		return c.items, c.split == nil
	}
	for i := range c.n {
		items = append(items, c.at(i))
	}
	return items, true
}

// lists takes sequences and optionals apart.
type lists struct {
	known map[*ir.Value]*content
	cuts  map[*ir.Node]*op.Pieces
	used  map[*ir.Node][]int // the pieces of a SplitToSequence that are read
	cut   map[item]*ir.Value // made for these
	is    map[*ir.Value]item // by the output of a node that goes, what it is
	jobs  []func()           // changes, once all pieces are known that they read
}

// Lists replaces the operators of sequences and optionals whose elements are known when
// the graph is compiled: a SplitToSequence and a SequenceAt are a Split, a
// SequenceConstruct and a SequenceAt nothing. Loops that take lists are unrolled, where their
// length is known, and those of at most one round. It returns the number of nodes that it
// replaced; types are inferred again. Nodes that nobody reads any more stay.
func Lists(g *ir.Graph) (int, error) {
	count := 0
	for n := unroll(g); n > 0; n = unroll(g) {
		count += n
		if err := g.Infer(); err != nil {
			return count, err
		}
	}
	if !slices.ContainsFunc(g.Nodes, takesLists) {
		return count, nil
	}
	l := &lists{known: map[*ir.Value]*content{}, cuts: map[*ir.Node]*op.Pieces{}, used: map[*ir.Node][]int{}, cut: map[item]*ir.Value{}, is: map[*ir.Value]item{}}
	l.graph(g)
	for _, change := range l.jobs {
		change()
	}
	if len(l.jobs) == 0 {
		return count, nil
	}
	return count + len(l.jobs), g.Infer()
}

// takesLists reports whether n, or a node of its subgraphs, reads or makes lists.
func takesLists(n *ir.Node) bool {
	isList := func(v *ir.Value) bool { return v != nil && v.Type.Elem != nil }
	return slices.ContainsFunc(n.Outputs, isList) || slices.ContainsFunc(n.Inputs, isList) ||
		slices.ContainsFunc(ir.Subgraphs(n.Op), func(sub *ir.Graph) bool { return slices.ContainsFunc(sub.Nodes, takesLists) })
}

func (l *lists) graph(g *ir.Graph) {
	for _, n := range g.Nodes {
		l.node(n)
		for _, sub := range ir.Subgraphs(n.Op) {
			if sub.Refused == nil {
				l.graph(sub)
			}
		}
	}
}

// node finds out what n's output holds, or how n is to be replaced.
func (l *lists) node(n *ir.Node) {
	set := func(items []item) { l.known[n.Outputs[0]] = &content{items: items, n: len(items)} }
	var from *content
	if v := n.Input(0); v != nil {
		from = l.known[v]
	}
	var all []item
	ok := false
	if from != nil {
		all, ok = from.all()
	}
	switch o := n.Op.(type) {
	case *op.SequenceEmpty:
		set(nil)
	case *op.SequenceConstruct:
		items := make([]item, len(n.Inputs))
		for i, v := range n.Inputs {
			items[i] = l.item(v)
		}
		set(items)
	case *op.SplitToSequence:
		if p, ok := o.Pieces(n); ok {
			l.cuts[n] = p
			l.known[n.Outputs[0]] = &content{split: n, n: p.N}
		}
	case *op.SequenceInsert:
		if at, known := positionOf(n, 2, all, 1); ok && known {
			items := append([]item{}, all[:at]...)
			set(append(append(items, l.item(n.Inputs[1])), all[at:]...))
		}
	case *op.SequenceErase:
		if at, known := positionOf(n, 1, all, 0); ok && known {
			set(append(append([]item{}, all[:at]...), all[at+1:]...))
		}
	case *op.Identity:
		if from != nil {
			l.known[n.Outputs[0]] = from
		}
	case *op.Optional:
		if v := n.Input(0); v != nil {
			set([]item{l.item(v)})
		} else {
			set(nil)
		}
	case *op.SequenceAt:
		if from == nil {
			return
		}
		if at, known := indexOf(n.Inputs[1], from.n, 0); known {
			l.replace(n, from.at(at))
		}
	case *op.OptionalGetElement:
		switch {
		case !n.Inputs[0].Type.DType.IsOptional():
			l.same(n.Outputs[0], n.Inputs[0])
			l.replace(n, l.item(n.Inputs[0]))
		case ok && len(all) == 1:
			l.same(n.Outputs[0], all[0].value)
			l.replace(n, all[0])
		}
	case *op.ConcatFromSequence:
		if ok && len(all) > 0 {
			for _, e := range all {
				l.use(e)
			}
			l.jobs = append(l.jobs, func() { l.join(n, o, all) })
		}
	}
}

// same says that v, where it is a list, holds what w does.
func (l *lists) same(v, w *ir.Value) {
	if c := l.known[w]; c != nil {
		l.known[v] = c
	}
}

// positionOf is indexOf for the position that input i of n gives, by default the end.
func positionOf(n *ir.Node, i int, list []item, ends int) (at int, known bool) {
	if n.Input(i) == nil {
		at = len(list) - 1 + ends
		return at, at >= 0
	}
	return indexOf(n.Input(i), len(list), ends)
}

// indexOf returns the place among count elements, or where ends is 1 behind them, that a
// value holds; known is false where inference does not know it, or there is none.
func indexOf(v *ir.Value, count, ends int) (at int, known bool) {
	switch {
	case v.Const != nil && v.Const.Len() == 1 && v.Const.DType().IsInt():
		at = v.Const.Ints()[0]
	case len(v.Elems) == 1 && v.Elems[0].Known():
		at = v.Elems[0].Size()
	default:
		return 0, false
	}
	if at < 0 {
		at += count
	}
	return at, at >= 0 && at < count+ends
}

// item returns what a value is as an element.
func (l *lists) item(v *ir.Value) item {
	if e, ok := l.is[v]; ok {
		return e
	}
	return item{value: v}
}

func (l *lists) use(e item) {
	if e.split != nil {
		l.used[e.split] = append(l.used[e.split], e.piece)
	}
}

// replace has readers of n's output read an element.
func (l *lists) replace(n *ir.Node, e item) {
	l.use(e)
	l.is[n.Outputs[0]] = e
	l.jobs = append(l.jobs, func() { n.Graph().ReplaceUses(n.Outputs[0], l.value(e)) })
}

// value returns the value of an element.
func (l *lists) value(e item) *ir.Value {
	if e.split == nil {
		return e.value
	}
	if v := l.cut[e]; v != nil {
		return v
	}
	n := e.split
	o := n.Op.(*op.SplitToSequence)
	p := l.cuts[n]
	which := map[int]bool{}
	for _, i := range l.used[n] {
		which[i] = true
	}
	g, name := n.Graph(), n.Outputs[0].Name
	parts := map[int]*ir.Value{}
	if 2*len(which) >= p.N {
		in, cut := []*ir.Value{n.Inputs[0]}, &op.Split{Axis: o.Axis}
		var sizes []int
		var names []string
		for i := range p.N {
			from, to := p.Span(i)
			sizes, names = append(sizes, to-from), append(names, fmt.Sprintf("%s/%d", name, i))
		}
		if cut.Outputs = p.N; !p.Equal() {
			in, cut.Outputs = append(in, g.NewConst(name+"/sizes", tensor.Ints(sizes...))), 0
		}
		for i, v := range g.InsertBefore(n, n.Name+"/split", cut, in, names...).Outputs {
			parts[i] = v
		}
	}
	for _, i := range slices.Sorted(maps.Keys(which)) {
		part := parts[i]
		if part == nil {
			from, to := p.Span(i)
			at := fmt.Sprintf("%s/%d", name, i)
			in := []*ir.Value{n.Inputs[0]}
			for k, v := range []int{from, to, o.Axis} {
				in = append(in, g.NewConst(at+[]string{"/from", "/to", "/axis"}[k], tensor.Ints(v)))
			}
			part = g.InsertBefore(n, fmt.Sprintf("%s/%d", n.Name, i), &op.Slice{}, in, at).Outputs[0]
		}
		if n.Input(1) == nil && !o.Keep {
			axis := g.NewConst(part.Name+"/axes", tensor.Ints(o.Axis))
			part = g.InsertBefore(n, fmt.Sprintf("%s/%d/squeeze", n.Name, i), &op.Squeeze{}, []*ir.Value{part, axis}, part.Name+"/squeezed").Outputs[0]
		}
		l.cut[item{split: n, piece: i}] = part
	}
	return l.cut[e]
}

// join makes a ConcatFromSequence a Concat.
func (l *lists) join(n *ir.Node, o *op.ConcatFromSequence, all []item) {
	g, name := n.Graph(), n.Outputs[0].Name
	in := make([]*ir.Value, len(all))
	for i, e := range all {
		in[i] = l.value(e)
		if o.New {
			axis := g.NewConst(fmt.Sprintf("%s/%d/axes", name, i), tensor.Ints(o.Axis))
			in[i] = g.InsertBefore(n, fmt.Sprintf("%s/%d", n.Name, i), &op.Unsqueeze{}, []*ir.Value{in[i], axis}, fmt.Sprintf("%s/%d", name, i)).Outputs[0]
		}
	}
	joined := g.InsertBefore(n, n.Name+"/concat", &op.Concat{Axis: o.Axis}, in, name+"/concat")
	g.ReplaceUses(n.Outputs[0], joined.Outputs[0])
}

// unroll makes each SequenceMap, of g and its subgraphs, on a known number of elements one copy of its body for each, and
// each Loop of known length that takes lists, or has at most one round, one for each round. It returns how many there were.
// Types of what it made are not inferred, and what reads that is left for another time.
func unroll(g *ir.Graph) int {
	count := 0
	for _, n := range slices.Clone(g.Nodes) {
		for _, sub := range ir.Subgraphs(n.Op) {
			if sub.Refused == nil {
				count += unroll(sub)
			}
		}
		if slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return v != nil && v.Type.DType == tensor.Undefined }) {
			continue
		}
		var results []*ir.Value
		switch o := n.Op.(type) {
		case *op.SequenceMap:
			if d := n.Inputs[0].Type.Dims[0]; d.Known() && few(o.Body, d.Size()) {
				results = elements(n, o.Body, d.Size())
			}
		case *op.Loop:
			if trips, known := o.Trips(n); known && o.Body.Refused == nil && few(o.Body, trips) && (trips <= 1 || takesLists(n)) {
				results = rounds(n, o.Body, trips)
			}
		}
		if results == nil {
			continue
		}
		for j, v := range n.Outputs {
			if v != nil {
				g.ReplaceUses(v, results[j])
			}
		}
		g.Remove(n)
		count++
	}
	return count
}

// few reports whether copies of a body are not too many nodes.
func few(body *ir.Graph, copies int) bool {
	size := 1
	for sub := range body.All() {
		size += len(sub.Nodes)
	}
	return copies <= maxItems/size
}

// elements replaces n, a SequenceMap, by copies of its body, and returns what is its outputs.
func elements(n *ir.Node, body *ir.Graph, count int) []*ir.Value {
	g := n.Graph()
	items := make([][]*ir.Value, len(n.Outputs)) // of each output
	for k := range count {
		args := slices.Clone(n.Inputs)
		for i, v := range args {
			if v.Type.Elem != nil {
				name := fmt.Sprintf("%s/%d", body.Inputs[i].Name, k)
				at := g.NewConst(name+"/position", tensor.Scalar(int64(k)))
				args[i] = g.InsertBefore(n, name, &op.SequenceAt{}, []*ir.Value{v, at}, name).Outputs[0]
			}
		}
		results := inlined(n, body, k, args)
		for j := range items {
			items[j] = append(items[j], results[j])
		}
	}
	lists := make([]*ir.Value, len(n.Outputs))
	for j, v := range n.Outputs {
		if v == nil {
			continue
		}
		var made ir.Op = &op.SequenceConstruct{}
		if count == 0 {
			made = &op.SequenceEmpty{DType: v.Type.DType.Elem()}
		}
		lists[j] = g.InsertBefore(n, fmt.Sprintf("%s/%d", n.Name, j), made, items[j], v.Name+"/items").Outputs[0]
	}
	return lists
}

// rounds replaces n, a Loop, by copies of its body, and returns what is its outputs; nil where it has values for which the
// body does not stand: stacks of none, and optionals, which it may give as what is in them.
func rounds(n *ir.Node, body *ir.Graph, count int) []*ir.Value {
	g := n.Graph()
	carried := slices.Clone(n.Inputs[min(2, len(n.Inputs)):])
	stacks := make([][]*ir.Value, len(body.Outputs)-1-len(carried))
	if count == 0 && len(stacks) > 0 || slices.ContainsFunc(carried, func(v *ir.Value) bool { return v.Type.DType.IsOptional() }) {
		return nil
	}
	for k := range count {
		args := make([]*ir.Value, 2, len(body.Inputs))
		for i, x := range []int64{int64(k), 1} {
			t := body.Inputs[i].Type
			shape, _ := t.Shape()
			args[i] = g.NewConst(fmt.Sprintf("%s/%d", body.Inputs[i].Name, k), tensor.FromInt64s(t.DType, []int64{x}, shape...))
		}
		results := inlined(n, body, k, append(args, carried...))
		carried = results[1:][:len(carried)]
		for j, v := range results[1+len(carried):] {
			name := fmt.Sprintf("%s/%d/%d", n.Name, j, k)
			axis := g.NewConst(name+"/axes", tensor.Ints(0))
			stacks[j] = append(stacks[j], g.InsertBefore(n, name, &op.Unsqueeze{}, []*ir.Value{v, axis}, name).Outputs[0])
		}
	}
	results := carried
	for j, rows := range stacks {
		name := fmt.Sprintf("%s/%d", n.Name, j)
		results = append(results, g.InsertBefore(n, name, &op.Concat{}, rows, name).Outputs[0])
	}
	return results
}

// inlined copies the body of n for the k-th time, to stand before n and compute of args, and returns its outputs.
func inlined(n *ir.Node, body *ir.Graph, k int, args []*ir.Value) []*ir.Value {
	g := n.Graph()
	c := ir.NewCopier(g, g, fmt.Sprintf("/%d", k))
	inside := map[*ir.Graph]bool{}
	for sub := range body.All() {
		inside[sub] = true
	}
	outer := func(v *ir.Value) {
		if !inside[v.Graph()] {
			c.Bind(v, v)
		}
	}
	for _, m := range body.Nodes {
		m.Reads(outer)
	}
	for _, v := range body.Outputs {
		outer(v)
	}
	for i, v := range args {
		c.Bind(body.Inputs[i], v)
	}
	for _, m := range body.Nodes {
		g.MoveBefore(c.Node(m), n)
	}
	results := make([]*ir.Value, len(body.Outputs))
	for j, v := range body.Outputs {
		results[j] = c.Value(v)
	}
	return results
}
