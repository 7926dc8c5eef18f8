// Package cache rewrites decoders whose caches grow by what a step adds to them, so that a cache is a buffer of a capacity in which
// a step writes its own rows: every shape is then the same in each step. It imports ir, ir/op and passes/fold.
package cache

import (
	"errors"
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
)

// Tie is an output of a graph that is an input of the next step, by their numbers.
type Tie struct{ Out, In int }

// Static is a graph over buffers. Its inputs are those of the graph that it was made of, with the symbol Capacity in the place of
// a size that grows, and behind them Start and Length, i64[batch]: the rows that buffers have when a step begins, and when it
// is done. Rows beyond the length may hold anything that is finite.
type Static struct {
	Graph         *ir.Graph
	Capacity      string
	Caches        map[int]int // the inputs that are buffers, with the axis along which they grow
	Padded        map[int]int // other inputs that are as long as a cache after the step, and the axis: buffers, too
	Past          ir.Dim      // the size of a cache before the step in the original graph
	Added         ir.Dim      // what a step adds to it
	Start, Length int         // numbers of inputs
	Totals, Lasts []int       // inputs that are the size of a cache after the step, and positions below it
}

// ErrGrowing is why a graph is not rewritten.
var ErrGrowing = errors.New("caches cannot stay where they are")

// Rewrite returns the graph over buffers for one whose types are inferred, which it does not change. The values that are to be
// as long as a cache are followed from there to where they are read: by Attention, which is told how many rows count, and by
// operators whose slices along that axis depend on slices of their inputs alone (op.Along), which compute rows that nobody
// reads beyond those. Anything else is an error that wraps ErrGrowing and names the node.
//
// Inputs of a size of their own, as masks of all tokens have, are taken for as long as a cache after the step, where that
// leads to a mask.
func Rewrite(g *ir.Graph, ties []Tie) (*Static, error) {
	s, err := rewrite(g, ties, true)
	if err == nil {
		return s, nil
	}
	if s, other := rewrite(g, ties, false); other == nil {
		return s, nil
	}
	return nil, err
}

func rewrite(g *ir.Graph, ties []Tie, masks bool) (*Static, error) {
	g = g.Clone()
	r := &rewriting{
		Static: &Static{Graph: g, Capacity: free(g), Caches: map[int]int{}, Padded: map[int]int{}},
		axes:   map[*ir.Value]int{}, past: map[*ir.Value]int{}, sizes: map[*ir.Value]bool{},
		starts: map[*ir.Node]*ir.Value{}, masked: map[ir.Dim]bool{},
	}
	if err := r.unfuse(ties); err != nil {
		return nil, err
	}
	if err := r.placed(ties); err != nil {
		return nil, err
	}
	if err := r.begin(ties); err != nil {
		return nil, err
	}
	if masks {
		r.masks()
	}
	for _, n := range g.Nodes {
		if err := r.follow(n); err != nil {
			return nil, err
		}
	}
	if err := r.ends(ties); err != nil {
		return nil, err
	}
	if err := r.apply(); err != nil {
		return nil, err
	}
	if err := g.Infer(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGrowing, err)
	}
	fold.Dead(g)
	return r.Static, g.Verify()
}

// free is a symbol that no input has.
func free(g *ir.Graph) string {
	taken := map[string]bool{}
	for _, v := range g.Inputs {
		for _, d := range v.Type.Dims {
			for _, s := range d.Symbols() {
				taken[s] = true
			}
		}
	}
	name := "capacity"
	for i := 2; taken[name]; i++ {
		name = fmt.Sprintf("capacity_%d", i)
	}
	return name
}

// rewriting is what is found of a graph before it is rewritten.
type rewriting struct {
	*Static
	total   ir.Dim             // the size of a cache after the step
	past    map[*ir.Value]int  // caches, and the axis along which they grow
	axes    map[*ir.Value]int  // values that are as long as a cache after the step, and the axis
	sizes   map[*ir.Value]bool // integers that were computed from sizes of those
	appends []appending
	attends []*ir.Node             // those whose keys are a cache
	lists   []ir.Use               // inputs that list sizes, or are one
	numbers []ir.Use               // inputs that are the size of a cache after the step, as a number
	starts  map[*ir.Node]*ir.Value // of appends, where the graph says at which row what is new goes
	masked  map[ir.Dim]bool        // sizes of Padded
	start   *ir.Value
	length  *ir.Value
}

// appending is a node that makes a cache longer: Concat of a cache and what is new, or Attention with a past.
type appending struct {
	node *ir.Node
	axis int
}

func refuse(n *ir.Node, format string, args ...any) error {
	return n.Errorf(ErrGrowing, format, args...)
}

// begin finds the caches among the tied inputs: those with one dimension that their outputs have more of.
func (r *rewriting) begin(ties []Tie) error {
	for _, t := range ties {
		in, out := r.Graph.Inputs[t.In], r.Graph.Outputs[t.Out]
		if !out.Type.Ranked || slices.Equal(in.Type.Dims, out.Type.Dims) {
			continue
		}
		axis := -1
		for i, d := range in.Type.Dims {
			if d != out.Type.Dims[i] && axis >= 0 {
				return fmt.Errorf("%w: output %s is %v, and input %s %v: more than one size differs", ErrGrowing, out.Name, out.Type, in.Name, in.Type)
			} else if d != out.Type.Dims[i] {
				axis = i
			}
		}
		d := in.Type.Dims[axis]
		switch {
		case len(d.Symbols()) != 1 || d.Symbols()[0] != d.Symbol() || axis == 0:
			return fmt.Errorf("%w: input %s is %v, which does not say along which axis it grows", ErrGrowing, in.Name, in.Type)
		case len(r.Caches) == 0:
			r.Past, r.total = d, out.Type.Dims[axis]
			r.Added = ir.Sum(r.total, ir.Mul(ir.Size(-1), d))
		case d != r.Past || out.Type.Dims[axis] != r.total:
			return fmt.Errorf("%w: input %s is %v, and others grow from %v to %v", ErrGrowing, in.Name, in.Type, r.Past, r.total)
		}
		r.Caches[t.In], r.past[in] = axis, axis
	}
	if len(r.Caches) == 0 {
		return fmt.Errorf("%w: no tied input grows", ErrGrowing)
	}
	if r.total.Fresh() || slices.Contains(r.Added.Symbols(), r.Past.Symbol()) {
		return fmt.Errorf("%w: it is not known what a step adds to them", ErrGrowing)
	}
	return nil
}

// masks takes for as long as a cache after the step the inputs of a size that neither a cache nor what is new has: masks of all
// tokens, which the run checks to be so.
func (r *rewriting) masks() {
	known := r.Added.Symbols()
	for v := range r.past {
		for _, d := range v.Type.Dims {
			known = append(known, d.Symbols()...)
		}
	}
	for i, v := range r.Graph.Inputs {
		if _, is := r.past[v]; is {
			continue
		}
		for axis, d := range v.Type.Dims {
			if d == r.total || !d.Known() && axis > 0 && !slices.ContainsFunc(d.Symbols(), func(s string) bool { return slices.Contains(known, s) }) {
				r.Padded[i], r.axes[v], r.masked[d] = axis, axis, true
			}
		}
	}
}

// grows reports whether a size depends on that of a cache.
func (r *rewriting) grows(d ir.Dim) bool { return slices.Contains(d.Symbols(), r.Past.Symbol()) }

// follow finds out what becomes of caches, and of what is as long, in a node.
func (r *rewriting) follow(n *ir.Node) error {
	touched, growing := false, false
	n.Reads(func(v *ir.Value) {
		_, past := r.past[v]
		_, long := r.axes[v]
		touched = touched || past || long || r.sizes[v]
		growing = growing || past || long
	})
	switch {
	case !touched:
		return r.settled(n)
	case len(ir.Subgraphs(n.Op)) > 0:
		return refuse(n, "its subgraphs depend on the size of a cache")
	case r.measures(n):
		return nil
	}
	switch o := n.Op.(type) {
	case *op.Concat:
		if len(n.Inputs) == 2 && r.isPast(n.Inputs[0], o.Axis) && !r.isLong(n.Inputs[1]) {
			a := r.past[n.Inputs[0]]
			r.appends, r.axes[n.Outputs[0]] = append(r.appends, appending{n, a}), a
			return nil
		}
	case *op.Attention:
		return r.attention(n, o)
	case *op.Range:
		return r.counts(n)
	}
	return r.along(n)
}

// isPast reports whether v is a cache that grows along an axis.
func (r *rewriting) isPast(v *ir.Value, axis int) bool {
	at, is := r.past[v]
	if axis < 0 {
		axis += len(v.Type.Dims)
	}
	return is && at == axis
}

// isLong reports whether v is a cache, as long as one, or one's size.
func (r *rewriting) isLong(v *ir.Value) bool {
	if v == nil {
		return false
	}
	_, past := r.past[v]
	_, long := r.axes[v]
	return past || long || r.sizes[v]
}

// settled refuses a node whose outputs depend on the size of a cache though its inputs do not.
func (r *rewriting) settled(n *ir.Node) error {
	for _, v := range n.Outputs {
		if v != nil && slices.ContainsFunc(v.Type.Dims, r.grows) {
			return refuse(n, "output %s is %v, of which no input tells", v.Name, v.Type)
		}
	}
	return nil
}

// measures reports whether a node computes sizes, all of which are known in terms of those of the inputs.
func (r *rewriting) measures(n *ir.Node) bool {
	for _, v := range n.Outputs {
		if v == nil || v.Elems == nil || slices.ContainsFunc(v.Elems, ir.Dim.Fresh) || slices.ContainsFunc(v.Type.Dims, r.grows) {
			return false
		}
	}
	for _, v := range n.Outputs {
		r.sizes[v] = true
	}
	return true
}

// counts takes a Range from a constant on, by constant steps, as many as a cache has rows after the step.
func (r *rewriting) counts(n *ir.Node) error {
	limit := n.Inputs[1]
	if !n.Inputs[0].IsConst() || !n.Inputs[2].IsConst() || len(limit.Elems) != 1 || limit.Elems[0] != r.total || n.Outputs[0].Type.Dims[0] != r.total {
		return refuse(n, "it counts from or to the size of a cache")
	}
	r.lists = append(r.lists, ir.Use{Node: n, Index: 1})
	r.axes[n.Outputs[0]] = 0
	return nil
}

// attention takes keys and values that are a cache, or become one by what is new.
func (r *rewriting) attention(n *ir.Node, o *op.Attention) error {
	for i, v := range n.Inputs {
		if v != nil && i != 1 && i != 2 && i != 4 && i != 5 && i != 3 && r.isLong(v) {
			return refuse(n, "input %d is as long as a cache", i)
		}
	}
	if m := n.Input(3); m != nil && r.isLong(m) {
		if axis, long := r.axes[m]; !long || axis != m.Type.Rank()-1 {
			return refuse(n, "its mask %s is %v", m.Name, m.Type)
		}
	}
	if o.Packed || len(n.Outputs) > 3 && n.Outputs[3] != nil || n.Input(6) != nil {
		return refuse(n, "it has scores, lengths or packed heads")
	}
	if n.Input(4) != nil {
		if !r.isPast(n.Inputs[4], 2) || !r.isPast(n.Inputs[5], 2) || r.isLong(n.Inputs[1]) || r.isLong(n.Inputs[2]) {
			return refuse(n, "its past is no cache, or its keys are one")
		}
		r.appends = append(r.appends, appending{n, 2})
		for _, v := range n.Outputs[1:min(3, len(n.Outputs))] {
			if v != nil {
				r.axes[v] = 2
			}
		}
		return nil
	}
	for _, v := range n.Inputs[1:3] {
		axis := v.Type.Rank() - 2 // [batch, heads, tokens, depth] or [batch, tokens, features]
		if at, long := r.axes[v]; !long || at != axis || v.Type.Dims[axis] != r.total {
			return refuse(n, "%s is %v, and not as long as a cache", v.Name, v.Type)
		}
	}
	if !o.Aligned && (o.Causal || o.LeftWindow >= 0 || o.RightWindow >= 0) {
		return refuse(n, "it counts the first query from the first key of a cache")
	}
	for _, v := range n.Outputs[1:] {
		if v != nil {
			return refuse(n, "its keys are an output")
		}
	}
	r.attends = append(r.attends, n)
	return nil
}

// along takes an operator whose output's slices along an axis belong to those of its inputs that are as long as a cache. Inputs
// that list sizes may be computed from a cache's.
func (r *rewriting) along(n *ir.Node) error {
	listing, _ := op.SizesInput(n)
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		if _, past := r.past[v]; past {
			return refuse(n, "it reads a cache, %s", v.Name)
		}
		if r.sizes[v] && i < op.Operands(n) && v.Type.Rank() < 2 && len(v.Elems) == 1 && (v.Elems[0] == r.total || r.masked[v.Elems[0]]) {
			r.numbers = append(r.numbers, ir.Use{Node: n, Index: i})
		} else if r.sizes[v] {
			if i != listing || slices.ContainsFunc(v.Elems, func(d ir.Dim) bool { return r.grows(d) && d != r.total }) {
				return refuse(n, "it reads the size of a cache")
			}
			r.lists = append(r.lists, ir.Use{Node: n, Index: i})
		}
	}
	if len(n.Outputs) != 1 || !n.Outputs[0].Type.Ranked {
		return refuse(n, "it reads what is as long as a cache")
	}
	y, found := n.Outputs[0], -1
	for axis := range y.Type.Dims {
		if r.sliced(n, axis, listing) {
			if found >= 0 {
				return refuse(n, "output %s is %v: more than one size is that of a cache", y.Name, y.Type)
			}
			found = axis
		}
	}
	long := slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool {
		_, long := r.axes[v]
		return long
	})
	for axis, d := range y.Type.Dims {
		if r.grows(d) && axis != found {
			return refuse(n, "output %s is %v", y.Name, y.Type)
		}
	}
	if found < 0 && long && !r.sums(n) {
		return refuse(n, "it joins what is as long as a cache")
	}
	if found >= 0 {
		r.axes[y] = found
	}
	return nil
}

// sums reports whether n adds up an input of the size of a cache, behind which its buffer is zero.
func (r *rewriting) sums(n *ir.Node) bool {
	v := n.Inputs[0]
	for v.Def != nil && v.Def.Op.Kind() == "Cast" {
		v = v.Def.Inputs[0]
	}
	i := slices.Index(r.Graph.Inputs, v)
	_, padded := r.Padded[i]
	return n.Op.Kind() == "ReduceSum" && padded
}

// sliced reports whether the slices of a node's output along an axis belong to those of inputs as long as a cache, or are alike.
func (r *rewriting) sliced(n *ir.Node, axis, listing int) bool {
	in := op.Along(n, 0, axis)
	if in == nil {
		return false
	}
	some := false
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		at, long := r.axes[v]
		if long && in[i] != at || !long && in[i] != op.Whole {
			return false
		}
		some = some || long
	}
	return some || listing >= 0 && n.Outputs[0].Type.Dims[axis] == r.total
}

// ends refuses outputs that are not caches in their places, or that depend on the size of one.
func (r *rewriting) ends(ties []Tie) error {
	made := map[*ir.Value]*ir.Value{} // what a cache becomes, and the cache
	for _, a := range r.appends {
		if _, is := a.node.Op.(*op.Concat); is {
			made[a.node.Outputs[0]] = a.node.Inputs[0]
			continue
		}
		for i, v := range a.node.Outputs[1:min(3, len(a.node.Outputs))] {
			made[v] = a.node.Inputs[4+i]
		}
	}
	reads := map[*ir.Value]int{}
	for _, a := range r.appends {
		for _, v := range a.node.Inputs {
			if _, is := r.past[v]; is {
				reads[v]++
			}
		}
	}
	tied := map[int]bool{}
	for _, t := range ties {
		in, out := r.Graph.Inputs[t.In], r.Graph.Outputs[t.Out]
		if _, is := r.past[in]; !is {
			continue
		}
		tied[t.Out] = true
		if made[out] != in || reads[in] != 1 {
			return fmt.Errorf("%w: output %s is not input %s and what is new behind it", ErrGrowing, r.Graph.OutputName(t.Out), in.Name)
		}
	}
	for i, v := range r.Graph.Outputs {
		if !tied[i] && r.isLong(v) {
			return fmt.Errorf("%w: output %s depends on the size of a cache", ErrGrowing, r.Graph.OutputName(i))
		}
	}
	return nil
}

// apply rewrites the graph.
func (r *rewriting) apply() error {
	g, batch := r.Graph, ir.Size(0)
	for i, axis := range r.Caches {
		batch = g.Inputs[i].Type.Dims[0]
		r.stretch(g.Inputs[i], axis)
	}
	for i, axis := range r.Padded {
		r.stretch(g.Inputs[i], axis)
	}
	r.Start, r.Length = len(g.Inputs), len(g.Inputs)+1
	r.start, r.length = g.NewInput("start", ir.Of(tensor.I64, batch)), g.NewInput("length", ir.Of(tensor.I64, batch))
	for _, use := range r.lists {
		if err := r.listed(use); err != nil {
			return err
		}
	}
	for _, use := range r.numbers {
		r.number(use)
	}
	for _, a := range r.appends {
		r.append(a)
	}
	for _, n := range r.attends {
		in := append(slices.Clone(n.Inputs), slices.Repeat([]*ir.Value{nil}, 7-len(n.Inputs))...)
		in[6] = r.length
		o := *n.Op.(*op.Attention)
		if k, v := r.narrow(n, in[1]), r.narrow(n, in[2]); k != nil && v != nil {
			in[1], in[2], o.Narrow = k, v, true
		}
		o.Aligned = false // as the last query stands at the last key of what counts
		g.ReplaceUses(n.Outputs[0], r.add(n, n.Name+".cached", &o, in...))
	}
	return nil
}

// stretch gives an input the capacity.
func (r *rewriting) stretch(v *ir.Value, axis int) {
	v.Type.Dims = slices.Clone(v.Type.Dims)
	v.Type.Dims[axis] = ir.Sym(r.Capacity)
}

// add makes a node of one output before another.
func (r *rewriting) add(at *ir.Node, name string, o ir.Op, in ...*ir.Value) *ir.Value {
	return r.Graph.InsertBefore(at, name, o, in, "").Outputs[0]
}

// ints makes a constant vector.
func (r *rewriting) ints(name string, v ...int) *ir.Value {
	return r.Graph.NewConst(name, tensor.Ints(v...))
}

// size makes the vector of one size of a value.
func (r *rewriting) size(at *ir.Node, v *ir.Value, axis int) *ir.Value {
	end := axis + 1
	return r.add(at, at.Name+".size", &op.Shape{Start: axis, End: &end}, v)
}

// listed makes a list of sizes of those that values have: in the place of the size of a cache after the step the capacity.
func (r *rewriting) listed(use ir.Use) error {
	n := use.Node
	var parts []*ir.Value
	for _, d := range n.Inputs[use.Index].Elems {
		v, axis := r.has(d)
		switch {
		case d.Known():
			parts = append(parts, r.ints(n.Name+".size", d.Size()))
		case v == nil:
			return refuse(n, "no input has the size %v", d)
		default:
			parts = append(parts, r.size(n, v, axis))
		}
	}
	list := parts[0]
	if len(parts) > 1 {
		list = r.add(n, n.Name+".sizes", &op.Concat{Axis: 0}, parts...)
	}
	if n.Inputs[use.Index].Type.Rank() == 0 {
		list = r.add(n, n.Name+".scalar", &op.Squeeze{}, list, r.ints(n.Name+".axes", 0))
	}
	n.SetInput(use.Index, list)
	return nil
}

// number makes an input of the size of a cache after the step.
func (r *rewriting) number(use ir.Use) {
	n, old := use.Node, use.Node.Inputs[use.Index].Type
	v := r.add(n, n.Name+".length", &op.Slice{}, r.length, r.ints(n.Name+".from", 0), r.ints(n.Name+".to", 1))
	if old.DType != tensor.I64 {
		v = r.cast(n, n.Name+".number", v, old.DType)
	}
	if old.Rank() == 0 {
		v = r.add(n, n.Name+".scalar", &op.Squeeze{}, v, r.ints(n.Name+".axes", 0))
	}
	n.SetInput(use.Index, v)
}

// has returns an input that has a size, and the axis; of the size of a cache after the step, a cache.
func (r *rewriting) has(d ir.Dim) (*ir.Value, int) {
	for i, v := range r.Graph.Inputs {
		if axis, is := r.Caches[i]; is && d == r.total {
			return v, axis
		}
	}
	for _, v := range r.Graph.Inputs {
		if axis := slices.Index(v.Type.Dims, d); axis >= 0 && v.Type.Ranked {
			return v, axis
		}
	}
	return nil, 0
}

// append writes what is new into a cache.
func (r *rewriting) append(a appending) {
	g, n := r.Graph, a.node
	scatter := func(name string, cache, rows *ir.Value) *ir.Value {
		o := &op.TensorScatter{Axis: a.axis, Mode: "linear", Owned: true}
		start := r.start
		if at := r.starts[n]; at != nil {
			start = at
		}
		y := r.add(n, n.Name+name, o, cache, rows, start)
		y.Type.DType = cache.Type.DType // by which narrow knows caches of 16 bits; the rest is inferred
		return y
	}
	o, fused := n.Op.(*op.Attention)
	if !fused {
		g.ReplaceUses(n.Outputs[0], scatter(".append", n.Inputs[0], n.Inputs[1]))
		return
	}
	in := make([]*ir.Value, 7)
	in[0], in[3], in[6] = r.heads(n, ".q", n.Inputs[0], o.QHeads), n.Input(3), r.length
	in[1] = scatter(".key", n.Inputs[4], r.heads(n, ".k", n.Inputs[1], o.KVHeads))
	in[2] = scatter(".value", n.Inputs[5], r.heads(n, ".v", n.Inputs[2], o.KVHeads))
	y := r.tokens(n, r.add(n, n.Name+".cached", o, in...))
	for i, v := range []*ir.Value{y, in[1], in[2]} {
		if i < len(n.Outputs) && n.Outputs[i] != nil {
			g.ReplaceUses(n.Outputs[i], v)
		}
	}
}

// heads is what an Attention reads, as caches have it: [batch, heads, tokens, depth].
func (r *rewriting) heads(n *ir.Node, name string, v *ir.Value, count *int) *ir.Value {
	if v.Type.Rank() == 4 {
		return v
	}
	split := []int{0, 0, *count, -1}
	v = r.add(n, n.Name+name+".heads", &op.Reshape{}, v, r.ints(n.Name+name+".split", split...))
	return r.add(n, n.Name+name+".order", &op.Transpose{Perm: []int{0, 2, 1, 3}}, v)
}

// tokens is the result of heads, as n has it.
func (r *rewriting) tokens(n *ir.Node, y *ir.Value) *ir.Value {
	if n.Inputs[0].Type.Rank() == 4 {
		return y
	}
	y = r.add(n, n.Name+".tokens", &op.Transpose{Perm: []int{0, 2, 1, 3}}, y)
	return r.add(n, n.Name+".join", &op.Reshape{}, y, r.ints(n.Name+".features", 0, 0, -1))
}
