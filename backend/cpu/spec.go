package cpu

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/shapecache"
	"spc/internal/mapped"
	"spc/internal/memory"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/plan"
	"spc/passes/fold"
)

// spec is a program specialised for the shapes of its inputs.
type spec struct {
	prog    *program
	plan    *plan.Program
	main    *block
	blocks  map[*ir.Graph]*block
	steps   []*step // of all blocks, by number
	slots   []slot  // by value number
	arena   int     // bytes
	peak    int     // bytes of the arena that are in use at once
	scratch int     // floats a worker
	shared  int     // floats that the workers share

	unpacked map[int]*tensor.Tensor // stored weights of nodes without a kernel

	mu   sync.Mutex
	free []*exec
}

// slot says where the tensor of a value is.
type slot struct {
	where  place
	offset int // in the arena
	typ    ir.Type
	shape  []int
	alias  int // for a view: the value whose storage it shares
	shift  int // and where in that it begins, in bytes
}

type place uint8

const (
	onHeap   place = iota // set when the run gets there
	inArena               // at a fixed offset
	constant              // the constant's own storage
	aliased               // a view of another value
)

// block is the bound steps of a graph or a subgraph.
type block struct {
	graph *ir.Graph
	steps []*step
	order []*step // of a run that is not traced: chains in place of their members
}

// step is a node bound to its kernel.
type step struct {
	node    *ir.Node
	number  int   // in spec.steps
	main    bool  // of the main graph
	in, out []int // value numbers, -1 where absent
	prepare prepare
	view    bool                     // the output is a view of input 0
	dynamic *shapecache.Cache[*spec] // of a node that is bound when the shapes of its inputs are known, those specs
	checked bool                     // inference has seen the shapes of its inputs
	types   []ir.Type                // of the outputs, as far as they are known
	dead    []int                    // heap values whose last use this is
	link    *link                    // of a convolution that chains take
	members []*step                  // of a chain
	planes  bool                     // threads divide the planes of input 0
}

// fast reports whether the step has a kernel.
func (st *step) fast() bool { return st.prepare != nil }

// kernel computes the outputs of a node, whose tensors exist, from its inputs.
type kernel func(x *exec, in, out []*tensor.Tensor) error

// prepare makes what runs a kernel in one exec; it is called once for each exec,
// and what it returns once for each run, never concurrently. The elements of in
// and out are current only inside of what it returns: those of the model's inputs
// change from run to run. Function literals for loops, states and buffers belong
// into prepare, so that a run allocates nothing:
//
//	func(x *exec, in, out []*tensor.Tensor) func() error {
//		var src, dst []float32
//		body := func(lo, hi int) { vec.Relu(dst[lo:hi], src[lo:hi]) }
//		return func() error {
//			src, dst = in[0].F32s(), out[0].F32s()
//			x.pool.Range(len(dst), body)
//			return nil
//		}
//	}
type prepare func(x *exec, in, out []*tensor.Tensor) func() error

// bound is what a binder makes of a node with static types: prepare, or run where
// each run may as well start from nothing.
type bound struct {
	prepare prepare
	run     kernel
	inplace int  // the input whose storage output 0 may take over, -1 for none
	alone   bool // but not where another input has the same storage
	scratch int  // floats a worker
	shared  int  // floats that the workers share

	// Outputs that may be views of input 0, and inputs that may be views of output
	// 0, each by the element where it begins there; nil for none. The kernel finds
	// out which are when it is prepared: those overlap.
	from, into []int

	link   *link // of a convolution that chains take
	planes bool  // threads divide the planes of input 0
}

// binder makes a kernel for a node whose types are static; nil when there is none
// for these types.
type binder func(p *program, n *ir.Node) (*bound, error)

// specialise binds the program to inputs of the given shapes.
func (p *program) specialise(in []*tensor.Tensor) (*spec, error) {
	g, err := p.graph.Specialise(in)
	if err != nil {
		return nil, err
	}
	return p.bind(g, false)
}

// bind makes a spec of an inferred graph that it takes over; mini says that it is one node
// whose inputs' shapes became known at run time.
func (p *program) bind(g *ir.Graph, mini bool) (*spec, error) {
	if err := fold.All(g); err != nil {
		return nil, err
	}
	if err := format.Loosen(g, p.unpack); err != nil {
		return nil, err
	}
	p.prepare(g)
	s := &spec{prog: p, plan: plan.New(g), blocks: map[*ir.Graph]*block{}, unpacked: map[int]*tensor.Tensor{}}
	s.slots = make([]slot, len(s.plan.Values))
	for i, v := range s.plan.Values {
		s.slots[i] = slot{typ: v.Type}
		s.slots[i].shape, _ = v.Type.Shape()
		if v.IsConst() {
			s.slots[i].where = constant
		}
	}
	b := &binding{spec: s, spans: s.plan.Spans(), mini: mini}
	var err error
	if s.main, err = b.block(s.plan.Main); err != nil {
		return nil, err
	}
	b.chains(s.main, s.plan.Main.Steps)
	b.layout()
	return s, nil
}

// binding is the state of bind.
type binding struct {
	*spec
	spans []plan.Span
	mini  bool // the graph is one node whose inputs' shapes were seen at run time

	inMain bool // the step that is bound lies in the main graph
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
		b.inMain = pb == b.plan.Main
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
	st := &step{node: n, in: b.numbers(n.Inputs), out: b.numbers(n.Outputs), types: n.OutputTypes()}
	bind, fast := binders[n.Op.Kind()]
	st.checked = static(n) || b.mini
	if !static(n) {
		// A Gather's indices may be other ones in each round of a loop.
		if len(ps.Blocks) == 0 && fast && !b.mini && n.Op.Kind() != "Gather" {
			st.dynamic = shapecache.New[*spec](4, nil)
		}
		return st, b.unpack(n)
	}
	if isView(n) {
		st.view = true
		b.alias(st.out[0], st.in[0])
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
	if st.prepare = bd.prepare; st.prepare == nil {
		st.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
			return func() error { return bd.run(x, in, out) }
		}
	}
	st.link, st.planes = bd.link, bd.planes
	b.scratch = max(b.scratch, bd.scratch)
	b.shared = max(b.shared, bd.shared)
	for i, o := range st.out {
		if o < 0 {
			continue
		}
		if i == 0 && bd.inplace >= 0 && !(bd.alone && b.twice(st.in, bd.inplace)) && b.takeOver(o, st.in[bd.inplace], ps.Index) {
			continue
		}
		if bd.from != nil && b.view(o, st.in[0], bd.from[i]) {
			continue
		}
		b.slots[o].where = inArena
	}
	if b.inMain {
		for i, at := range bd.into {
			b.moveInto(st.in[i], st.out[0], at)
		}
	}
	return st, nil
}

// view makes value o the part of i, where that is in the arena, that begins at an
// element.
func (b *binding) view(o, i, at int) bool {
	if b.slots[b.root(i)].where != inArena {
		return false
	}
	b.alias(o, i)
	b.slots[o].shift = at * b.slots[o].typ.DType.Size()
	return true
}

// moveInto makes value i, which was computed before, a part of o, where it has
// storage of its own in the arena.
func (b *binding) moveInto(i, o, at int) {
	r, size := b.root(i), b.size(i)
	if b.slots[r].where != inArena || b.size(r) != size || size == 0 || r == o || b.slots[o].where != inArena {
		return
	}
	b.spans[o].First = min(b.spans[o].First, b.spans[r].First)
	b.alias(r, o)
	b.slots[r].shift = at * b.slots[o].typ.DType.Size()
}

// alias makes value o a view of value i.
func (b *binding) alias(o, i int) {
	b.slots[o].where, b.slots[o].alias = aliased, i
	r := b.root(i)
	b.spans[r].Last = max(b.spans[r].Last, b.spans[o].Last)
}

// twice reports whether another of a step's inputs has the storage of input i.
func (b *binding) twice(in []int, i int) bool {
	for k, v := range in {
		if k != i && v >= 0 && b.root(v) == b.root(in[i]) {
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
	r := b.root(i)
	if b.slots[r].where != inArena || b.spans[r].Last != index || b.size(r) != b.size(o) {
		return false
	}
	b.alias(o, r)
	return true
}

func (s *spec) size(i int) int {
	n, err := tensor.Elems(s.slots[i].shape)
	if err != nil {
		return 0
	}
	return n * s.slots[i].typ.DType.Size()
}

// layout places the arena's values and notes when heap values die.
func (b *binding) layout() {
	var buffers []plan.Buffer
	var which []int
	for i, s := range b.slots {
		if s.where == inArena {
			buffers = append(buffers, plan.Buffer{Size: b.size(i), Span: b.spans[i]})
			which = append(which, i)
		}
	}
	offsets, size := plan.Arena(buffers, 64)
	b.arena, b.peak = size, plan.Peak(buffers, 64)
	for k, i := range which {
		b.slots[i].offset = offsets[k]
	}
	last := map[int][]int{} // step index to the heap values that die there
	for i, s := range b.slots {
		if s.where == onHeap {
			last[b.spans[i].Last] = append(last[b.spans[i].Last], i)
		}
	}
	for i := range b.plan.Main.Steps {
		b.main.steps[i].dead = last[b.plan.Main.Steps[i].Index]
	}
	for _, st := range b.main.order {
		for _, m := range st.members {
			st.dead = append(st.dead, m.dead...)
		}
	}
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

// exec is the memory of one run: it is used by one run at a time.
type exec struct {
	*spec
	pool    *Team
	arena   []byte
	slots   []*tensor.Tensor // by value number
	varying []int            // values whose slot is empty between runs
	cold    []func()         // what makes kernels ready for their first run

	abandoned bool        // an operator still computes on it
	guard     *guard      // nil where runs are not checked
	frames    []frame     // by step number
	scratch   [][]float32 // by worker
	shared    []float32
}

// frame is a step in an exec.
type frame struct {
	in, out []*tensor.Tensor
	varying []int // inputs that are fetched in each run
	run     func() error
	view    *tensor.Tensor // of a step of the main graph that is a view of a varying value
}

func (s *spec) acquire() (*exec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		x := s.free[n-1]
		s.free = s.free[:n-1]
		return x, nil
	}
	if err := memory.Check(s.arena + 4*s.shared + 4*s.scratch*s.prog.pool.Threads()); err != nil {
		return nil, s.tooLarge(err)
	}
	x := &exec{spec: s, pool: s.prog.pool.NewTeam(), arena: tensor.From(memory.Floats((s.arena+3)/4), (s.arena+3)/4).Bytes()}
	x.slots = make([]*tensor.Tensor, len(s.slots))
	for i, sl := range s.slots {
		switch sl.where {
		case constant:
			if x.slots[i] = s.plan.Values[i].Const; x.slots[i] == nil {
				x.slots[i] = s.unpacked[i]
			}
			continue // which may be nil: the store of a weight that a kernel has
		case inArena:
			x.slots[i] = x.place(sl, sl.offset)
		case aliased:
			if root, shift := s.storage(i); s.slots[root].where == inArena {
				x.slots[i] = x.place(sl, s.slots[root].offset+shift)
			}
		}
		if x.slots[i] == nil {
			x.varying = append(x.varying, i)
		}
	}
	if s.prog.guarded {
		x.guard = newGuard(x)
	}
	x.shared = memory.Floats(s.shared)
	x.scratch = make([][]float32, x.pool.Threads())
	for w := range x.scratch {
		x.scratch[w] = memory.Floats(s.scratch)
	}
	x.frames = make([]frame, len(s.steps))
	for i, st := range s.steps {
		cold := len(x.cold)
		x.frames[i] = x.frame(st)
		if !st.main { // it may never run
			x.cold = x.cold[:cold]
		}
	}
	x.pool.For(len(x.cold), func(_, i int) { x.cold[i]() })
	x.cold = nil
	return x, nil
}

// warm makes a kernel's copy of its weight before the first run, together with
// those of others, in place of when it is needed first.
func (x *exec) warm(k backend.Kernel, tokens bool) {
	if w, ok := k.(backend.Warmer); ok {
		x.cold = append(x.cold, func() {
			w.Warm(tokens)
			x.prog.copied(k)
		})
	}
}

func (x *exec) frame(st *step) frame {
	f := frame{in: make([]*tensor.Tensor, len(st.in)), out: make([]*tensor.Tensor, len(st.out))}
	for i, k := range st.in {
		if k < 0 {
			continue
		}
		if f.in[i] = x.slots[k]; f.in[i] == nil && x.spec.slots[k].where != constant {
			f.varying = append(f.varying, i)
		}
	}
	for i, k := range st.out {
		if k >= 0 {
			f.out[i] = x.slots[k]
		}
	}
	if st.view && st.main && f.out[0] == nil {
		o := x.spec.slots[st.out[0]]
		f.view = tensor.Header(o.typ.DType, o.shape...)
	}
	if st.prepare != nil {
		f.run = st.prepare(x, f.in, f.out)
	}
	return f
}

// tooLarge names the largest value of the arena in an error about its size.
func (s *spec) tooLarge(err error) error {
	most := -1
	for i, sl := range s.slots {
		if sl.where == inArena && (most < 0 || s.size(i) > s.size(most)) {
			most = i
		}
	}
	if most < 0 {
		return fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	v := s.plan.Values[most]
	return v.Def.Errorf(ir.ErrInvalid, "output %s is %v: %v", v.Name, v.Type, err)
}

// root follows views to the value that has storage.
func (s *spec) root(i int) int {
	r, _ := s.storage(i)
	return r
}

// storage follows views to the value that has storage, and says where in that value
// i begins, in bytes.
func (s *spec) storage(i int) (root, shift int) {
	for s.slots[i].where == aliased {
		shift += s.slots[i].shift
		i = s.slots[i].alias
	}
	return i, shift
}

// place returns the tensor of slot s at an offset of the arena.
func (x *exec) place(s slot, offset int) *tensor.Tensor {
	n, _ := tensor.Elems(s.shape)
	t, err := tensor.FromBytes(s.typ.DType, s.shape, x.arena[offset:offset+n*s.typ.DType.Size()])
	if err != nil {
		panic(err) // the slot's type was checked by inference
	}
	return t
}

func (s *spec) release(x *exec) {
	if x.abandoned {
		return
	}
	for _, i := range x.varying {
		x.slots[i] = nil
	}
	for i := range x.frames {
		if v := x.frames[i].view; v != nil {
			v.Share(nil)
		}
	}
	x.pool.Cancel(nil)
	s.mu.Lock()
	s.free = append(s.free, x)
	s.mu.Unlock()
}

// run evaluates the spec and puts its outputs into out: into the tensors that it
// holds, where they fit, else into new ones.
func (s *spec) run(ctx context.Context, in, out []*tensor.Tensor, trace func(*ir.Node, time.Duration)) error {
	x, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(x)
	x.pool.Cancel(ctx.Done())
	for i, v := range s.plan.Graph.Inputs {
		x.slots[s.plan.Number[v]] = in[i]
	}
	defer x.guard.leave()
	if err := x.steps(ctx, s.main, trace); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // which may have cut the last loop short
		return err
	}
	return x.outputs(s.plan.Graph, in, out)
}

// outputs puts a graph's outputs into the tensors of out where they fit and into
// new ones elsewhere. Tensors of out may be inputs. Lists of a subgraph, whose elements
// nobody writes to during the run, are shared.
func (x *exec) outputs(g *ir.Graph, in, out []*tensor.Tensor) error {
	for i, v := range g.Outputs {
		if t := x.slots[x.plan.Number[v]]; !out[i].Fits(t) && !(t.DType().IsList() && g.Owner != nil) {
			if err := memory.Check(t.Memory()); err != nil {
				return fmt.Errorf("output %s is %v: %w: %w", v.Name, t, err, ir.ErrInvalid)
			}
		}
	}
	// Values outside the arena, which may be views of inputs, are copied before an
	// output overwrites an input.
	for _, arena := range []bool{false, true} {
		for i, v := range g.Outputs {
			k := x.plan.Number[v]
			if (x.spec.slots[x.root(k)].where == inArena) != arena {
				continue
			}
			t := x.slots[k]
			if t.DType().IsList() && g.Owner != nil {
				out[i] = t
			} else if !out[i].Fits(t) || !arena && slices.ContainsFunc(in, out[i].Overlaps) {
				out[i] = t.Clone()
			} else {
				out[i].CopyFrom(t)
			}
		}
	}
	return nil
}

func (x *exec) steps(ctx context.Context, b *block, trace func(*ir.Node, time.Duration)) error {
	list := b.steps
	if trace == nil && b.order != nil {
		list = b.order
	}
	if x.guard != nil {
		if err := x.guard.enter(b, list); err != nil {
			return err
		}
	}
	for i, st := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		start := time.Time{}
		if trace != nil {
			start = time.Now()
		}
		if err := x.step(ctx, st); err != nil {
			return err
		}
		if trace != nil {
			trace(st.node, time.Since(start))
		}
		if x.guard != nil {
			if err := x.guard.after(i, st); err != nil {
				return err
			}
		}
		for _, i := range st.dead {
			x.slots[i] = nil
		}
	}
	return nil
}

func (x *exec) step(ctx context.Context, st *step) error {
	f := &x.frames[st.number]
	for _, i := range f.varying {
		f.in[i] = x.slots[st.in[i]]
	}
	defer f.forget()
	if f.run != nil {
		return f.run()
	}
	if st.view {
		switch {
		case f.view != nil:
			f.view.Share(f.in[0])
			x.slots[st.out[0]] = f.view
		case f.out[0] == nil: // in a subgraph: a list may keep it beyond the next evaluation
			x.slots[st.out[0]] = f.in[0].Reshape(x.spec.slots[st.out[0]].shape...)
		}
		return nil
	}
	outs, err := x.evaluate(ctx, st, f.in)
	if err != nil {
		return err
	}
	for i, k := range st.out {
		if k < 0 {
			continue
		}
		if i >= len(outs) || outs[i] == nil {
			return st.node.Errorf(ir.ErrInvalid, "output %d was not computed", i)
		}
		x.slots[k] = x.outside(outs[i])
	}
	return nil
}

// outside returns t, or a copy where its elements are in the arena: operators may return
// views of their inputs, whose memory the plan gives to others after their last use. Of a
// list it is those of its elements that are there.
func (x *exec) outside(t *tensor.Tensor) *tensor.Tensor {
	return t.Map(func(e *tensor.Tensor) *tensor.Tensor {
		if _, n := x.inArena(e); n > 0 {
			return e.Clone()
		}
		return e
	})
}

// forget lets go of what is not the exec's.
func (f *frame) forget() {
	for _, i := range f.varying {
		f.in[i] = nil
	}
}

// evaluate computes the outputs of a node without a kernel.
func (x *exec) evaluate(ctx context.Context, st *step, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if st.dynamic != nil {
		return x.mini(ctx, st, in)
	}
	types := st.types
	if !st.checked && len(ir.Subgraphs(st.node.Op)) == 0 {
		var err error
		if types, err = st.node.InferFor(in); err != nil {
			return nil, err
		}
	}
	if err := st.node.CheckMemory(types); err != nil {
		return nil, err
	}
	ev := &ir.Eval{Outputs: len(st.out), Run: func(g *ir.Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		return x.subgraph(ctx, g, in)
	}}
	in = slices.Clone(in) // operators may keep the slice, which the next run changes
	eval := func() ([]*tensor.Tensor, error) { return st.node.Op.Eval(ev, in) }
	var outs []*tensor.Tensor
	var err error
	if ctx.Done() != nil && len(ir.Subgraphs(st.node.Op)) == 0 && long(st.node.Op, in, types) {
		outs, err = x.abandon(ctx, eval)
	} else {
		outs, err = eval()
	}
	if err != nil {
		return nil, nodeError(st.node, err)
	}
	return outs, nil
}

// long reports whether evaluating an operator may take so long that a cancelled
// run should not wait for it: some milliseconds.
func long(o ir.Op, in []*tensor.Tensor, out []ir.Type) bool {
	types := make([]ir.Type, len(in))
	for i, t := range in {
		if t != nil {
			types[i] = ir.TypeOf(t)
		}
	}
	for _, t := range out {
		if !t.Static() {
			return true
		}
	}
	w := o.Work(types, out)
	return w.FLOPs+w.Bytes > 1e6
}

// abandon returns what eval does, or the context's error as soon as it is
// cancelled. The exec then stays with eval, and the program with its weights.
func (x *exec) abandon(ctx context.Context, eval func() ([]*tensor.Tensor, error)) ([]*tensor.Tensor, error) {
	type result struct {
		outs     []*tensor.Tensor
		err      error
		panicked any
	}
	done := make(chan result, 1)
	x.prog.hold()
	go func() {
		defer x.prog.let()
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			done <- r
		}()
		r.err = mapped.Guard(func() (err error) {
			r.outs, err = eval()
			return err
		})
	}()
	select {
	case r := <-done:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.outs, mapped.Raise(r.err)
	case <-ctx.Done():
		x.abandoned = true
		return nil, ctx.Err()
	}
}

// nodeError names the node in an error of its operator.
func nodeError(n *ir.Node, err error) error {
	if _, ok := err.(*ir.NodeError); ok {
		return err
	}
	return fmt.Errorf("%v: %w", n, err)
}

// subgraph runs a block on inputs; its outputs outlive the next run of it.
func (x *exec) subgraph(ctx context.Context, g *ir.Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if err := ctx.Err(); err != nil { // g may have no steps
		return nil, err
	}
	for i, v := range g.Inputs {
		x.slots[x.plan.Number[v]] = in[i]
	}
	defer x.guard.leave()
	if err := x.steps(ctx, x.blocks[g], nil); err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(g.Outputs))
	return out, x.outputs(g, nil, out)
}

// small reports whether a tensor may hold a shape, axes or the like, on whose
// elements types depend.
func small(t *tensor.Tensor) bool {
	return t != nil && t.DType().IsInt() && t.Rank() <= 1 && t.Len() <= 64
}

// mini evaluates a node by a spec for the shapes of its inputs, in which small
// integer inputs are constants.
func (x *exec) mini(ctx context.Context, st *step, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	n := st.node
	fixed := func(i int) bool { return n.Inputs[i] == nil || n.Inputs[i].IsConst() || small(in[i]) }
	mini, err := st.dynamic.Get(in, small, func() (*spec, error) {
		g := ir.NewGraph(n.Name)
		args := make([]*ir.Value, len(in))
		for i, v := range n.Inputs {
			switch {
			case v == nil:
			case v.Store != nil:
				args[i] = g.NewStored(v.Name, v.Type, v.Store)
			case v.IsConst():
				args[i] = g.NewConst(v.Name, v.Const)
			case small(in[i]):
				args[i] = g.NewConst(v.Name, in[i].Clone())
			default:
				args[i] = g.NewInput(v.Name, ir.TypeOf(in[i]))
			}
		}
		names := make([]string, len(n.Outputs))
		for i, v := range n.Outputs {
			if v != nil {
				names[i] = v.Name
			}
		}
		m := g.NewNode(n.Name, n.Op, args, names...)
		for i, v := range n.Outputs {
			if v != nil {
				g.Outputs = append(g.Outputs, m.Outputs[i])
			}
		}
		if err := m.Infer(); err != nil {
			return nil, err
		}
		return x.prog.bind(g, true)
	})
	if err != nil {
		return nil, err
	}
	var args []*tensor.Tensor
	for i, t := range in {
		if !fixed(i) {
			args = append(args, t)
		}
	}
	outs := make([]*tensor.Tensor, len(mini.plan.Graph.Outputs))
	if err := mini.run(ctx, args, outs, nil); err != nil {
		x.abandoned = ctx.Err() != nil // something may still read x's tensors
		return nil, err
	}
	for i, v := range n.Outputs { // absent outputs have no place in the mini graph
		if v == nil {
			outs = slices.Insert(outs, i, nil)
		}
	}
	return outs, nil
}
