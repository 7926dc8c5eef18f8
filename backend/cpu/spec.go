package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"spc/backend"
	"spc/backend/shapecache"
	"spc/internal/mapped"
	"spc/internal/memory"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/plan"
)

// spec is a program specialised for the shapes of its inputs.
type spec struct {
	prog    *program
	plan    *plan.Program
	main    *block
	blocks  map[*ir.Graph]*block
	steps   []*step // of all blocks, by number
	scratch int     // floats a worker
	shared  int     // floats that the workers share

	unpacked map[int]*tensor.Tensor // stored weights of nodes without a kernel
}

func (s *spec) parts() []*spec { return []*spec{s} }

// bytes is the memory of a run.
func (s *spec) bytes() int { return s.plan.Bytes + 4*s.shared + 4*s.scratch*s.prog.pool.Threads() }

// drop lets go of the memory of runs, of which none is under way or will be.
func (s *spec) drop() error {
	s.prog.idle.drop(s)
	var errs []error
	for _, st := range s.steps {
		if st.dynamic != nil {
			errs = append(errs, st.dynamic.Close())
		}
	}
	return errors.Join(errs...)
}

// block is the bound steps of a graph or a subgraph.
type block struct {
	graph *ir.Graph
	steps []*step
	order []*step // of a run that is not traced: cascades in place of their members
}

// step is a node bound to its kernel.
type step struct {
	node    *ir.Node
	plan    *plan.Step               // nil for a cascade
	number  int                      // in spec.steps
	main    bool                     // of the main graph
	in, out []int                    // value numbers, -1 where absent
	bound   *bound                   // its kernel, nil for none
	view    bool                     // the output is a view of input 0
	append  *appending               // the output is input 0, a cache of the caller's in which rows are written
	dynamic *shapecache.Cache[*spec] // of a node that is bound when the shapes of its inputs are known, those specs
	checked bool                     // inference has seen the shapes of its inputs
	types   []ir.Type                // of the outputs, as far as they are known
	dead    []int                    // heap values whose last use this is
	spared  int                      // bytes that it would copy if they did not lie in their places
	members []*step                  // of a cascade
}

// fast reports whether the step has a kernel.
func (st *step) fast() bool { return st.bound != nil }

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
//		body := func(lo, hi int) { vec.Tanh(dst[lo:hi], src[lo:hi]) }
//		return func() error {
//			src, dst = in[0].F32s(), out[0].F32s()
//			x.pool.Range(len(dst), body)
//			return nil
//		}
//	}
type prepare func(x *exec, in, out []*tensor.Tensor) func() error

// pieces is prepare of a kernel that calls finish for each piece of its output, in the layout of a worker, when that
// is computed, from an element on, and does not read it again; finish may be nil.
type pieces func(x *exec, in, out []*tensor.Tensor, finish finisher) func() error

// finisher computes n elements of an output from what they are.
type finisher func(worker, from, n int)

// bound is what a binder makes of a node with static types: prepare, or pieces, or run where
// each run may as well start from nothing.
type bound struct {
	prepare prepare
	pieces  pieces // needs no scratch
	run     kernel
	inplace int  // the input whose storage output 0 may take over, -1 for none
	alone   bool // but not where another input has the same storage
	scratch int  // floats a worker
	shared  int  // floats that the workers share

	// Outputs that may be views of input 0, and inputs that may be views of output
	// 0, each by the element where it begins there; nil for none. The kernel finds
	// out which are when it is prepared: those overlap.
	from, into []int

	link   *link // of a convolution that cascades take
	planes bool  // threads divide the planes of input 0
}

// binder makes a kernel for a node whose types are static; nil when there is none
// for these types.
type binder func(p *program, n *ir.Node) (*bound, error)

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

func (x *exec) owner() any { return x.spec }
func (x *exec) size() int  { return x.bytes() }

func (s *spec) acquire() (*exec, error) {
	if r := s.prog.idle.take(s); r != nil {
		return r.(*exec), nil
	}
	if err := memory.Check(s.bytes()); err != nil {
		return nil, s.tooLarge(err)
	}
	x := &exec{spec: s, pool: s.prog.pool.NewTeam(), arena: tensor.From(memory.Floats((s.plan.Bytes+3)/4), (s.plan.Bytes+3)/4).Bytes()}
	x.slots = make([]*tensor.Tensor, len(s.plan.Values))
	for i := range x.slots {
		v := &s.plan.Values[i]
		if v.Place == plan.Constant {
			if x.slots[i] = v.Const; x.slots[i] == nil {
				x.slots[i] = s.unpacked[i]
			}
			continue // which may be nil: the store of a weight that a kernel has
		}
		if root, shift := s.plan.Storage(i); s.plan.Values[root].Place == plan.Arena {
			x.slots[i] = x.place(v, s.plan.Values[root].Offset+shift)
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
		if f.in[i] = x.slots[k]; f.in[i] == nil && x.plan.Values[k].Place != plan.Constant {
			f.varying = append(f.varying, i)
		}
	}
	for i, k := range st.out {
		if k >= 0 {
			f.out[i] = x.slots[k]
		}
	}
	if st.view && st.main && f.out[0] == nil {
		o := &x.plan.Values[st.out[0]]
		f.view = tensor.Header(o.Type.DType, o.Shape...)
	}
	if st.bound != nil {
		f.run = st.bound.prepare(x, f.in, f.out)
	}
	return f
}

// tooLarge names the largest value of the arena in an error about its size.
func (s *spec) tooLarge(err error) error {
	most := -1
	for i := range s.plan.Values {
		if s.plan.Values[i].Place == plan.Arena && (most < 0 || s.plan.Size(i) > s.plan.Size(most)) {
			most = i
		}
	}
	if most < 0 {
		return fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	v := &s.plan.Values[most]
	return v.Def.Errorf(ir.ErrInvalid, "output %s is %v: %v", v.Name, v.Type, err)
}

// place returns the tensor of a value at an offset of the arena.
func (x *exec) place(v *plan.Value, offset int) *tensor.Tensor {
	n, _ := tensor.Elems(v.Shape)
	t, err := tensor.FromBytes(v.Type.DType, v.Shape, x.arena[offset:offset+n*v.Type.DType.Size()])
	if err != nil {
		panic(err) // the value's type was checked by inference
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
	s.prog.idle.put(x)
}

// run evaluates the spec and puts its outputs into out: into the tensors that it
// holds, where they fit, else into new ones.
func (s *spec) run(ctx context.Context, in, out []*tensor.Tensor, trace func(*ir.Node, time.Duration)) error {
	x, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(x)
	s.prog.pool.begin()
	defer s.prog.pool.end()
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
			if (x.plan.Values[x.plan.Root(k)].Place == plan.Arena) != arena {
				continue
			}
			t := x.slots[k]
			if t.DType().IsList() && g.Owner != nil {
				out[i] = t
			} else if out[i] == t { // a cache in which a step has written
				continue
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
	if st.append != nil {
		x.slots[st.out[0]] = f.in[0]
		return st.append.write(f.in)
	}
	if st.view {
		switch {
		case f.view != nil:
			f.view.Share(f.in[0])
			x.slots[st.out[0]] = f.view
		case f.out[0] == nil: // in a subgraph: a list may keep it beyond the next evaluation
			x.slots[st.out[0]] = f.in[0].Reshape(x.plan.Values[st.out[0]].Shape...)
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
	if find := finders[st.node.Op.Kind()]; find != nil {
		eval = func() ([]*tensor.Tensor, error) { return find(st.node, in) }
	}
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
func (x *exec) mini(ctx context.Context, st *step, in []*tensor.Tensor) (outs []*tensor.Tensor, err error) {
	n := st.node
	fixed := func(i int) bool { return n.Inputs[i] == nil || n.Inputs[i].IsConst() || small(in[i]) }
	held, err := st.dynamic.Hold(in, small, func() (*spec, error) {
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
		return x.prog.single(g)
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if freed := st.dynamic.Release(held); err == nil {
			err = freed
		}
	}()
	mini := held.Value()
	var args []*tensor.Tensor
	for i, t := range in {
		if !fixed(i) {
			args = append(args, t)
		}
	}
	outs = make([]*tensor.Tensor, len(mini.plan.Graph.Outputs))
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
