package prune

import (
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/option"
	"spc/ir/tensor"
)

// A Branch is what can go under Depth: the nodes that compute one summand of a sum from the
// other, the skip, and that nothing else reads.
type Branch struct {
	Sum    *ir.Node // an Add of two values of the same type
	Input  int      // the one of them that the branch computes
	Axis   int      // the one along which its channels lie, -1 where they are not followed
	Layers []int    // of the plan, prunable ones that only the branch reads
	nodes  map[*ir.Node]bool

	Constant *tensor.Tensor // what the sum adds in its place, set by whoever removes it
}

// Covers reports whether another branch goes with b: it is b, or inside of b.
func (b *Branch) Covers(other *Branch) bool { return b == other || b.nodes[other.Sum] }

// Value is what the branch gives.
func (b *Branch) Value() *ir.Value { return b.Sum.Inputs[b.Input] }

// Channels is how many values a constant in the place of the branch has: one for each
// channel where these are followed.
func (b *Branch) Channels() int {
	if b.Axis < 0 {
		return 1
	}
	return b.Sum.Outputs[0].Type.Dims[b.Axis].Size()
}

// Holds makes values, one for each channel, the constant, in the shape in which the sum adds them.
func (b *Branch) Holds(values []float32) {
	shape := []int{len(values)}
	if b.Axis >= 0 {
		shape = append(shape, slices.Repeat([]int{1}, b.Sum.Outputs[0].Type.Rank()-b.Axis-1)...)
	}
	b.Constant = tensor.From(values, shape...)
}

// Takes reports whether a node goes with the branch.
func (b *Branch) Takes(n *ir.Node) bool { return b.nodes[n] }

// Nodes lists the names of the nodes that go.
func (b *Branch) Nodes() []string {
	var out []string
	for n := range b.nodes {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return out
}

// residuals looks for branches in a graph.
type residuals struct {
	graph   *ir.Graph
	cands   []*candidate
	at      map[*ir.Node]int   // the order of the nodes
	weights map[*ir.Node][]int // candidates by the node of the graph that reads them, or has a subgraph that does
	outputs map[*ir.Value]bool // of the graph and its subgraphs
	stays   map[int]string     // why candidates in branches stay
}

// Branches lists, under Depth, the branches that may go, in the order of their sums: of every sum in the
// graph itself of which one summand is computed from the other, on paths whose weights nothing outside
// reads. A branch with a weight that is kept stays. Weights in no such branch are not prunable.
func (p *Plan) Branches() ([]*Branch, error) {
	x := &residuals{graph: p.graph, cands: p.cands, at: map[*ir.Node]int{}, weights: map[*ir.Node][]int{}, outputs: map[*ir.Value]bool{}, stays: map[int]string{}}
	for i, n := range p.graph.Nodes {
		x.at[n] = i
	}
	for g := range p.graph.All() {
		for _, v := range g.Outputs {
			x.outputs[v] = true
		}
	}
	for i, c := range p.cands {
		for _, n := range c.readers {
			n = x.outer(n)
			x.weights[n] = append(x.weights[n], i)
		}
	}
	var out []*Branch
	var why []string
	flow := follow(p.graph, p.cands, Channel)
	for _, n := range p.graph.Nodes {
		b, reason := x.branch(n)
		if reason != "" {
			why = append(why, fmt.Sprintf("%v: %s", n, reason))
		}
		if b == nil {
			continue
		}
		if t := flow.of[b.Value()]; t != nil {
			b.Axis = t.axis
		}
		out = append(out, b)
	}
	in := map[int]bool{}
	for _, b := range out {
		for _, i := range b.Layers {
			in[i] = true
		}
	}
	for i, c := range p.cands {
		if c.why == "" && !in[i] {
			c.why = "it is in no residual branch"
			if s := x.stays[i]; s != "" {
				c.why = "its branch stays: " + s
			}
		}
		p.Layers[i].Why, p.Layers[i].Prunable = c.why, c.why == ""
	}
	if len(out) > 0 {
		return out, nil
	}
	if len(why) == 0 {
		why = []string{"it has no sum of two values of one shape"}
	}
	return nil, option.Errorf("%v depth: no residual branch of the model can be removed, want another pattern (%s)", option.Pattern, few(why))
}

// outer is the node of the graph itself that n is, or is in a subgraph of.
func (x *residuals) outer(n *ir.Node) *ir.Node {
	for n.Graph() != x.graph {
		n = n.Graph().Owner
	}
	return n
}

// branch is that of a sum, nil with the reason where it has none that may go; sums that no weights
// come before have none.
func (x *residuals) branch(n *ir.Node) (*Branch, string) {
	if n.Op.Kind() != "Add" || len(n.Inputs) != 2 || n.Inputs[0] == n.Inputs[1] {
		return nil, ""
	}
	for _, v := range n.Inputs {
		if v.IsConst() || !v.Type.Ranked || !v.Type.Equal(n.Outputs[0].Type) {
			return nil, ""
		}
	}
	for i, v := range n.Inputs {
		from := origin(n.Inputs[1-i])
		path := x.between(from, v)
		if path == nil {
			continue
		}
		b := &Branch{Sum: n, Input: i, Axis: -1, nodes: x.alone(n, i)}
		if !slices.ContainsFunc(x.graph.Nodes[x.first(from):x.at[n]], func(m *ir.Node) bool { return path[m] && len(x.weights[m]) > 0 }) {
			return nil, ""
		}
		reason := x.check(b, path)
		if reason == "" {
			return b, ""
		}
		x.note(path, reason)
		return nil, reason
	}
	if n.Inputs[0].Def == nil || n.Inputs[1].Def == nil {
		return nil, ""
	}
	const apart = "neither summand is computed from the other"
	for i := range n.Inputs {
		x.note(x.alone(n, i), apart)
	}
	return nil, apart
}

// note says why the weights of nodes stay.
func (x *residuals) note(nodes map[*ir.Node]bool, why string) {
	for m := range nodes {
		for _, k := range x.weights[m] {
			x.stays[k] = why
		}
	}
}

// origin is what a skip was before it was rounded to integers and back.
func origin(v *ir.Value) *ir.Value {
	for v.Def != nil {
		switch v.Def.Op.(type) {
		case *op.QuantizeLinear, *op.DequantizeLinear:
			v = v.Def.Inputs[0]
		default:
			return v
		}
	}
	return v
}

// first is the place of the first node that may read v.
func (x *residuals) first(v *ir.Value) int {
	if v.Def == nil {
		return 0
	}
	return x.at[v.Def] + 1
}

// check says why the branch stays, and lists its layers. Path are the nodes on the way from the skip.
func (x *residuals) check(b *Branch, path map[*ir.Node]bool) string {
	v := b.Value()
	if v.Type.DType != tensor.F32 {
		return fmt.Sprintf("it adds %v, want f32", v.Type.DType)
	}
	if !b.nodes[v.Def] {
		return fmt.Sprintf("%s is read by others, too", v.Name)
	}
	for _, n := range x.graph.Nodes {
		for _, i := range x.weights[n] {
			c := x.cands[i]
			switch {
			case path[n] && !b.nodes[n]:
				return fmt.Sprintf("what %v gives is read outside of the branch, too", n)
			case b.nodes[n] && c.rowsStay != "":
				return fmt.Sprintf("%v stays, %s", n, c.rowsStay)
			case b.nodes[n] && c.why == "" && !slices.Contains(b.Layers, i) && !slices.ContainsFunc(c.readers, func(r *ir.Node) bool { return !b.nodes[x.outer(r)] }):
				b.Layers = append(b.Layers, i)
			}
		}
	}
	if len(b.Layers) == 0 {
		return "no weight of the branch is prunable"
	}
	slices.Sort(b.Layers)
	return ""
}

// between returns the nodes on the ways from one value to another, nil where there is none.
func (x *residuals) between(from, to *ir.Value) map[*ir.Node]bool {
	if to.Def == nil {
		return nil
	}
	lo, hi := x.first(from), x.at[to.Def]+1
	if lo >= hi {
		return nil
	}
	behind := map[*ir.Value]bool{from: true}
	touched := map[*ir.Node]bool{}
	for _, n := range x.graph.Nodes[lo:hi] {
		n.Reads(func(v *ir.Value) { touched[n] = touched[n] || behind[v] })
		for _, v := range n.Outputs {
			if v != nil && touched[n] {
				behind[v] = true
			}
		}
	}
	if !behind[to] {
		return nil
	}
	path, wanted := map[*ir.Node]bool{}, map[*ir.Value]bool{to: true}
	for _, n := range slices.Backward(x.graph.Nodes[lo:hi]) {
		if touched[n] && slices.ContainsFunc(n.Outputs, func(v *ir.Value) bool { return v != nil && wanted[v] }) {
			path[n] = true
			n.Reads(func(v *ir.Value) { wanted[v] = true })
		}
	}
	return path
}

// alone returns the nodes of which nothing is read but by each other and by input i of n.
func (x *residuals) alone(n *ir.Node, i int) map[*ir.Node]bool {
	in := map[*ir.Node]bool{}
	work := []*ir.Value{n.Inputs[i]}
	for len(work) > 0 {
		d := work[len(work)-1].Def
		work = work[:len(work)-1]
		if d == nil || d.Graph() != x.graph || in[d] || slices.ContainsFunc(d.Outputs, func(v *ir.Value) bool {
			return v != nil && x.read(v, func(u ir.Use) bool { return in[x.outer(u.Node)] || u == (ir.Use{Node: n, Index: i}) })
		}) {
			continue
		}
		in[d] = true
		d.Reads(func(v *ir.Value) { work = append(work, v) })
	}
	return in
}

// read reports whether v is an output or has a use that does not go.
func (x *residuals) read(v *ir.Value, goes func(u ir.Use) bool) bool {
	return x.outputs[v] || slices.ContainsFunc(v.Uses(), func(u ir.Use) bool { return !goes(u) })
}

// Size is the number of weights that go with a branch, but for those that are gone with others.
func (p *Plan) Size(b *Branch, gone []*Branch) (n int) {
	for _, i := range b.Layers {
		if !slices.ContainsFunc(gone, func(o *Branch) bool { return slices.Contains(o.Layers, i) }) {
			n += p.Layers[i].Weights
		}
	}
	return n
}

// Detach makes the sums of branches add their constants.
func (p *Plan) Detach(branches []*Branch) {
	for _, b := range branches {
		b.Sum.SetInput(b.Input, p.graph.NewConst(b.Sum.Name+".mean", b.Constant))
	}
}

// Follow returns what a sum of the skip and a branch is to give without the branches that are gone and follow it, those of which it
// is the skip and nothing but them reads it: what the last of their sums gives, and these branches. A function that changes
// nothing of what it gives may lie between, if it follows the last sum, too.
func (b *Branch) Follow(gone []*Branch) (*ir.Value, []*Branch) {
	y := b.Sum.Outputs[0]
	var through []*Branch
	for {
		at := y
		if u := y.Uses(); len(u) == 1 && !y.IsOutput() && slices.Contains(idempotent, u[0].Node.Op.Kind()) {
			at = u[0].Node.Outputs[0]
		}
		i := slices.IndexFunc(gone, func(o *Branch) bool {
			return o.Sum.Inputs[1-o.Input] == at && !at.IsOutput() && (at == y || o.before(at.Def.Op.Kind())) &&
				!slices.ContainsFunc(at.Uses(), func(u ir.Use) bool { return u.Node != o.Sum && !o.nodes[u.Node] })
		})
		if i < 0 {
			return y, through
		}
		y = gone[i].Sum.Outputs[0]
		through = append(through, gone[i])
	}
}

// idempotent lists functions that change nothing of what they give.
var idempotent = []string{"Relu"}

// before reports whether an operator alone reads the sum.
func (b *Branch) before(kind string) bool {
	y := b.Sum.Outputs[0]
	return len(y.Uses()) == 1 && !y.IsOutput() && y.Uses()[0].Node.Op.Kind() == kind
}

// RemoveBranches removes branches that are detached, and what nothing reads any more, and reports it. A
// constant is added where a product before can take it up in its bias, if there is one.
func (p *Plan) RemoveBranches(branches []*Branch) error {
	p.sweep()
	for _, b := range branches {
		c, skip, y := b.Value(), b.Sum.Inputs[1-b.Input], b.Sum.Outputs[0]
		to := home(b.Sum, skip, c.Const)
		none := !slices.ContainsFunc(c.Const.F32s(), func(v float32) bool { return v != 0 })
		if to.Node == b.Sum && !none {
			continue
		}
		p.graph.ReplaceUses(y, skip)
		p.graph.Remove(b.Sum)
		if none {
			continue
		}
		part := to.Node.Inputs[to.Index]
		if part.Const != nil { // two constants are one
			both := part.Const.Clone()
			for i, v := range c.Const.F32s() {
				both.F32s()[i] += v
			}
			to.Node.SetInput(to.Index, p.graph.NewConst(c.Name, both))
			continue
		}
		sum := p.graph.InsertBefore(to.Node, b.Sum.Name, b.Sum.Op, []*ir.Value{part, c}, y.Name)
		to.Node.SetInput(to.Index, sum.Outputs[0])
		if err := sum.Infer(); err != nil {
			return err
		}
	}
	for i, c := range p.cands {
		l := &p.Layers[i]
		l.Why, l.Prunable = c.why, c.why == ""
		if !slices.ContainsFunc(c.readers, func(n *ir.Node) bool { return n.Graph() != nil }) {
			l.Removed, l.Zeros = l.Weights, l.Weights
			for _, b := range branches {
				if b.nodes[c.readers[0]] {
					l.Note = fmt.Sprintf("gone with the branch that %s added", b.Sum.Name)
				}
			}
		}
	}
	return p.graph.Infer()
}

// sweep removes the nodes that nobody reads.
func (p *Plan) sweep() {
	gone := map[*ir.Node]bool{}
	x := &residuals{graph: p.graph, outputs: map[*ir.Value]bool{}}
	for g := range p.graph.All() {
		for _, v := range g.Outputs {
			x.outputs[v] = true
		}
	}
	for _, n := range slices.Backward(p.graph.Nodes) {
		gone[n] = !slices.ContainsFunc(n.Outputs, func(v *ir.Value) bool {
			return v != nil && x.read(v, func(u ir.Use) bool { return gone[x.outer(u.Node)] })
		})
	}
	p.graph.RemoveAll(func(n *ir.Node) bool { return gone[n] })
}

// home is the summand to which a constant may be added in the place of the sum n: one that is a constant of
// the same shape, or that a product computes, which can take it up in its bias, of a sum that only sums up to n read. It is n's
// own where there is none.
func home(n *ir.Node, skip *ir.Value, constant *tensor.Tensor) ir.Use {
	sole := func(v *ir.Value) bool { return len(v.Uses()) == 1 && !v.IsOutput() }
	for v := skip; v != nil && v.Def != nil && v.Def.Op.Kind() == "Add" && sole(v); {
		d := v.Def
		v = nil
		for i, w := range d.Inputs {
			switch o, product := bearer(w); {
			case w.Const != nil && slices.Equal(w.Const.Shape(), constant.Shape()) && w.Type.DType == tensor.F32:
				return ir.Use{Node: d, Index: i}
			case w.Def == nil || !sole(w) || !w.Type.Equal(d.Outputs[0].Type):
			case product && len(o.Weights(w.Def)) > 0:
				return ir.Use{Node: d, Index: i}
			default:
				v = w
			}
		}
	}
	return ir.Use{Node: n, Index: slices.Index(n.Inputs, skip)}
}

// bearer is the operator that computes v, if that bears weights.
func bearer(v *ir.Value) (o ir.WeightOp, ok bool) {
	if v.Def != nil {
		o, ok = v.Def.Op.(ir.WeightOp)
	}
	return o, ok
}
