package cpu

import (
	"errors"
	"slices"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/shapecache"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower"
	"spc/lower/chain"
	"spc/lower/plan"
	"spc/passes/fold"
	"spc/passes/fuse"
)

// Steps is how the CPU lowers a graph for inputs of certain shapes.
var Steps = []lower.Step[*lowering]{
	{Name: "batch", Doc: "cut a batch into parts, so that what layers hand to each other stays near", Optional: true, Run: (*lowering).cut},
	{Name: "specialise", Doc: "infer the type of every value for the shapes of the inputs", Run: (*lowering).specialise},
	{Name: "fold", Doc: "evaluate what is constant for these shapes", Run: perUnit((*binding).fold)},
	{Name: "loosen", Doc: "unpack stored weights that are read otherwise than as weights", Run: perUnit(func(b *binding) (int, error) {
		return 0, format.Loosen(b.graph, b.prog.unpack)
	})},
	{Name: "settle", Doc: "take of weights in two forms the one for the columns of a product", Run: perUnit(func(b *binding) (int, error) {
		return format.Settle(b.graph, b.prog.forms)
	})},
	{Name: "einsum", Doc: "spell what sums products over sizes that were open as products of matrices", Optional: true, Run: perUnit(func(b *binding) (int, error) {
		return fuse.Einsums(b.graph)
	})},
	{Name: "assign", Doc: "make what is added to a part of a tensor of open size a sum", Optional: true, Run: perUnit(func(b *binding) (int, error) {
		return fuse.Assignments(b.graph)
	})},
	{Name: "affine", Doc: "make a product and a sum of what normalises by constants", Optional: true, Run: perUnit(func(b *binding) (int, error) {
		return chain.Affine(b.graph)
	})},
	{Name: "chains", Doc: "make one node of elementwise operators that follow each other, computed in one pass over memory", Optional: true, Run: perUnit((*binding).chains)},
	{Name: "schedule", Doc: "put the nodes in order and find the lifetimes of values", Run: perUnit((*binding).schedule)},
	{Name: "bind", Doc: "bind nodes to kernels, whose outputs are in the arena", Run: perUnit((*binding).bind)},
	{Name: "views", Doc: "have reshaped values lie where they do before", Run: perUnit((*binding).views)},
	{Name: "alias", Doc: "have results take the place of inputs, and parts lie in the whole", Optional: true, Run: perUnit((*binding).alias)},
	{Name: "cascades", Doc: "compute convolutions that follow each other strip by strip", Optional: true, Run: perUnit((*binding).cascades)},
	{Name: "arena", Doc: "give values their places in the arena", Run: perUnit((*binding).arena)},
}

// lowering is the state of lowering a program for inputs of certain shapes.
type lowering struct {
	prog     *program
	in       []*tensor.Tensor
	portions []portion  // of a batch
	units    []*binding // in the order of the portions, of each for one number of images or two
}

// Units are the graphs.
func (l *lowering) Units() []lower.Unit {
	list := make([]lower.Unit, len(l.units))
	for i, b := range l.units {
		list[i] = lower.Unit{Graph: b.graph, Plan: b.plan, Shared: b.graph == l.prog.graph}
	}
	return list
}

// binding is the state of making a spec.
type binding struct {
	*spec
	graph    *ir.Graph        // the program's before it is specialised
	in       []*tensor.Tensor // of whose types the inputs are
	from, to string           // the portion's
	mini     bool             // the graph is one node whose inputs' shapes were seen at run time
}

// perUnit makes a step of what is done to each unit.
func perUnit(f func(*binding) (int, error)) func(*lowering) (int, error) {
	return func(l *lowering) (int, error) {
		count := 0
		for _, b := range l.units {
			n, err := f(b)
			if err != nil {
				return count, err
			}
			count += n
		}
		return count, nil
	}
}

// add begins a unit.
func (l *lowering) add(in []*tensor.Tensor, from, to string) {
	l.units = append(l.units, &binding{spec: &spec{prog: l.prog}, graph: l.prog.graph, in: in, from: from, to: to})
}

// runner makes what runs the program on inputs of the given shapes: a spec, or a batch
// where parts of one are best computed one after the other.
func (p *program) runner(in []*tensor.Tensor) (runner, error) {
	o := p.lowering
	for {
		l := &lowering{prog: p, in: in}
		err := lower.Run(Steps, l, o)
		switch {
		case err == nil && len(l.portions) > 0:
			return l.batch(), nil
		case err == nil:
			return l.units[0].spec, nil
		case len(l.portions) == 0:
			return nil, err
		}
		// Graphs that name the size of the batch may not fit its parts.
		o.Disable = append([]string{"batch"}, o.Disable...)
	}
}

// Lower lowers a graph for inputs of the types of in, which need no elements, as o.Lowering says, and runs nothing.
func Lower(g *ir.Graph, in []*tensor.Tensor, o backend.Options) error {
	p, err := Device{}.Load(g, o)
	if err != nil {
		return err
	}
	_, err = p.(*program).runner(in)
	return errors.Join(err, p.Close())
}

// specialise binds the program to inputs of the given shapes, whole.
func (p *program) specialise(in []*tensor.Tensor) (*spec, error) {
	l := &lowering{prog: p}
	l.add(in, "", "")
	if err := lower.Run(Steps, l, p.lowering); err != nil {
		return nil, err
	}
	return l.units[0].spec, nil
}

// single makes a spec of a graph that it takes over, which is one node whose inputs' shapes became known
// at run time.
func (p *program) single(g *ir.Graph) (*spec, error) {
	b := &binding{spec: &spec{prog: p}, graph: g, mini: true}
	if err := lower.Run(Steps, &lowering{prog: p, units: []*binding{b}}, lower.Options{Disable: p.lowering.Disable}); err != nil {
		return nil, err
	}
	return b.spec, nil
}

func (l *lowering) specialise() (int, error) {
	if len(l.units) == 0 { // batch did not run
		l.add(l.in, "", "")
	}
	return perUnit(func(b *binding) (int, error) {
		if b.mini {
			return 0, nil
		}
		g, err := l.prog.graph.Specialise(b.in)
		if err != nil {
			return 0, err
		}
		if b.graph = g; b.from == "" && b.to == "" {
			return 0, nil
		}
		return 1, between(g, b.from, b.to)
	})(l)
}

// constantRoom bounds the elements of the constants that a program keeps though they are too large to store.
const constantRoom = 1 << 22

// fold keeps large constants where shapes are those of the model, and not of one of many inputs: evaluating them takes longer than
// a run.
func (b *binding) fold() (int, error) {
	room := constantRoom
	if b.mini || slices.ContainsFunc(b.prog.graph.Inputs, func(v *ir.Value) bool { return !v.Type.Static() }) {
		room = 0
	}
	return 0, fold.All(b.graph, room)
}

func (b *binding) schedule() (int, error) {
	b.prog.prepare(b.graph)
	b.plan, b.blocks, b.unpacked = plan.New(b.graph), map[*ir.Graph]*block{}, map[int]*tensor.Tensor{}
	return b.plan.Steps, nil
}

func (b *binding) numbers(vs []*ir.Value) []int {
	out := make([]int, len(vs))
	for i, v := range vs {
		out[i] = -1
		if v != nil {
			out[i] = b.plan.Number[v]
		}
	}
	return out
}

// bind returns the number of steps that have kernels.
func (b *binding) bind() (int, error) {
	var err error
	if b.main, err = b.block(b.plan.Main); err != nil {
		return 0, err
	}
	count := 0
	for _, st := range b.steps {
		if st.fast() {
			count++
		}
	}
	return count, nil
}

func (b *binding) block(pb *plan.Block) (*block, error) {
	blk := &block{graph: pb.Graph}
	b.blocks[pb.Graph] = blk
	if pb.Graph.Refused != nil { // the types of its values mean nothing, and running it is an error
		return blk, nil
	}
	for i := range pb.Steps {
		ps := &pb.Steps[i]
		for _, sub := range ps.Blocks {
			if _, err := b.block(sub); err != nil {
				return nil, err
			}
		}
		st, err := b.step(ps)
		if err != nil {
			return nil, err
		}
		st.number, st.main = len(b.steps), pb == b.plan.Main
		b.steps = append(b.steps, st)
		blk.steps = append(blk.steps, st)
	}
	return blk, nil
}

func (b *binding) step(ps *plan.Step) (*step, error) {
	n := ps.Node
	st := &step{node: n, plan: ps, in: b.numbers(n.Inputs), out: b.numbers(n.Outputs), types: n.OutputTypes()}
	bind, fast := binderOf(n)
	st.checked = static(n) || b.mini
	if !static(n) {
		if len(ps.Blocks) == 0 && fast && !b.mini && finders[n.Op.Kind()] == nil {
			st.dynamic = shapecache.New(4, (*spec).drop)
		}
		return st, b.unpack(n)
	}
	if st.view = isView(n); st.view {
		return st, nil
	}
	if st.append = appendingOf(n); st.append != nil {
		return st, nil
	}
	if !fast {
		return st, b.unpack(n)
	}
	bd, err := bind(b.prog, n)
	if err != nil {
		return nil, err
	}
	if bd == nil {
		return st, b.unpack(n)
	}
	switch {
	case bd.prepare != nil:
	case bd.pieces != nil:
		bd.prepare = func(x *exec, in, out []*tensor.Tensor) func() error { return bd.pieces(x, in, out, nil) }
	default:
		bd.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
			return func() error { return bd.run(x, in, out) }
		}
	}
	st.bound = bd
	b.scratch = max(b.scratch, bd.scratch)
	b.shared = max(b.shared, bd.shared)
	for _, o := range st.out {
		if o >= 0 {
			b.plan.Values[o].Place = plan.Arena
		}
	}
	return st, nil
}

func (b *binding) views() (int, error) {
	count := 0
	for _, st := range b.steps {
		if st.view {
			b.plan.View(st.out[0], st.in[0], 0)
			count++
		}
	}
	return count, nil
}

// alias lets values share storage as their kernels allow.
func (b *binding) alias() (int, error) {
	count := 0
	for _, st := range b.steps {
		bd := st.bound
		if bd == nil {
			continue
		}
		for i, o := range st.out {
			switch {
			case o < 0:
				continue
			case i == 0 && bd.inplace >= 0 && !(bd.alone && b.twice(st.in, bd.inplace)) && b.takeOver(o, st.in[bd.inplace], st.plan.Index):
				count++
			case bd.from != nil && b.part(o, st.in[0], bd.from[i]):
				count++
				st.spared += b.plan.Size(o)
			}
		}
		if !st.main {
			continue
		}
		for i, at := range bd.into {
			if b.moveInto(st.in[i], st.out[0], at) {
				count++
				st.spared += b.plan.Size(st.in[i])
			}
		}
	}
	return count, nil
}

// inArena reports whether a value has storage of its own in the arena.
func (b *binding) inArena(i int) bool { return b.plan.Values[i].Place == plan.Arena }

// part makes value o the part of i, where that is in the arena, that begins at an
// element.
func (b *binding) part(o, i, at int) bool {
	if !b.inArena(b.plan.Root(i)) {
		return false
	}
	b.plan.View(o, i, at*b.plan.Values[o].Type.DType.Size())
	return true
}

// moveInto makes value i, which was computed before, a part of o, where it has
// storage of its own in the arena.
func (b *binding) moveInto(i, o, at int) bool {
	r, size := b.plan.Root(i), b.plan.Size(i)
	if !b.inArena(r) || b.plan.Size(r) != size || size == 0 || r == o || !b.inArena(o) {
		return false
	}
	b.plan.Move(i, o, at*b.plan.Values[o].Type.DType.Size())
	return true
}

// twice reports whether another of a step's inputs has the storage of input i.
func (b *binding) twice(in []int, i int) bool {
	for k, v := range in {
		if k != i && v >= 0 && b.plan.Root(v) == b.plan.Root(in[i]) {
			return true
		}
	}
	return false
}

// takeOver makes o share the storage of i when that is in the arena, as large,
// and not read after the step at index.
func (b *binding) takeOver(o, i, index int) bool {
	if i < 0 {
		return false
	}
	r := b.plan.Root(i)
	if !b.inArena(r) || b.plan.Values[r].Span.Last != index || b.plan.Size(r) != b.plan.Size(o) {
		return false
	}
	b.plan.Replace(o, r)
	return true
}

// arena places the arena's values and notes when heap values die.
func (b *binding) arena() (int, error) {
	b.plan.Assign(nil, 64)
	last := map[int][]int{} // step index to the heap values that die there
	placed := 0
	for i := range b.plan.Values {
		switch v := &b.plan.Values[i]; v.Place {
		case plan.Heap:
			last[v.Span.Last] = append(last[v.Span.Last], i)
		case plan.Arena:
			placed++
		}
	}
	for _, st := range b.main.steps {
		st.dead = last[st.plan.Index]
	}
	for _, st := range b.main.order {
		for _, m := range st.members {
			st.dead = append(st.dead, m.dead...)
		}
	}
	return placed, nil
}

// static reports whether the types of all inputs and outputs of n are known, and
// its values are numbers.
func static(n *ir.Node) bool {
	for _, vs := range [][]*ir.Value{n.Inputs, n.Outputs} {
		for _, v := range vs {
			if v != nil && (!v.Type.Static() || !v.Type.DType.Numeric()) {
				return false
			}
		}
	}
	return len(ir.Subgraphs(n.Op)) == 0
}

// unpack makes the stored weights of a node that its operator evaluates tensors.
func (b *binding) unpack(n *ir.Node) error {
	for _, v := range n.Inputs {
		if v == nil || v.Store == nil || b.unpacked[b.plan.Number[v]] != nil {
			continue
		}
		t, err := b.prog.unpack(v)
		if err != nil {
			return n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
		}
		b.unpacked[b.plan.Number[v]] = t
	}
	return nil
}

// isView reports whether the first output of n shares the storage of its first input, whose shape
// alone it changes.
func isView(n *ir.Node) bool {
	m, _ := op.Moves(n)
	// Data may yet refuse a squeeze whose static types do not tell so.
	return m == op.Keeps && len(n.Outputs) == 1 && !n.Inputs[0].IsConst() && prod(shapeOf(n.Inputs[0])) == prod(shapeOf(n.Outputs[0]))
}
