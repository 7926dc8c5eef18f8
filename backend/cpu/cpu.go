// Package cpu runs programs on the CPU. A program is specialised once for each
// set of input shapes: its graph is cloned, inferred with those shapes and
// folded, every value with a known shape gets a place in an arena, and each node
// is bound to a kernel; nodes without one are evaluated by their operator. The
// package imports backend, its formats, lower/plan and passes/fold.
package cpu

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"spc/backend"
	"spc/backend/cpu/winograd"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/internal/debug"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/plan"
)

// Device is the CPU.
type Device struct{}

// Name is cpu.
func (Device) Name() string { return "cpu" }

// Load prepares a program and starts its worker pool.
func (Device) Load(p *plan.Program, o backend.Options) (backend.Program, error) {
	if o.Threads == 0 {
		o.Threads = Cores()
	}
	prog := &program{
		graph:    p.Graph,
		pool:     NewPool(o.Threads),
		kernels:  map[kernelKey]func() ([]backend.Kernel, error){},
		sources:  map[backend.Kernel][]byte{},
		unneeded: o.Unneeded,
		closed:   o.Closed,
		kernels8: map[kernelKey]backend.Kernel8{},
		winograd: map[winogradKey]*winograd.Weight{},
		dense:    map[*ir.Store]*tensor.Tensor{},
		specs:    newCache[runner](8),
		guarded:  debug.On(debug.Memory),
	}
	if !o.Checked {
		if err := format.CheckAll(p.Graph); err != nil {
			prog.Close()
			return nil, err
		}
	}
	return prog, nil
}

// Cores is the number of threads that a Run uses unless it is told otherwise.
func Cores() int { return min(physicalCores(), runtime.GOMAXPROCS(0)) }

type program struct {
	graph   *ir.Graph
	pool    *Pool
	guarded bool // runs check themselves

	mu       sync.Mutex
	kernels  map[kernelKey]func() ([]backend.Kernel, error) // of a weight, one for each group
	sources  map[backend.Kernel][]byte                      // of dense weights, what they are made of
	unneeded func([]byte)
	closed   func() error
	closing  bool
	held     int // by operators that may outlast their run
	kernels8 map[kernelKey]backend.Kernel8
	winograd map[winogradKey]*winograd.Weight
	dense    map[*ir.Store]*tensor.Tensor // weights unpacked for operators without a kernel
	specs    *cache[runner]
}

// kernelKey identifies a prepared weight: a store, or a dense constant seen
// through a view.
type kernelKey struct {
	store  *ir.Store
	dense  *tensor.Tensor
	view   string
	groups int
}

// weight returns the kernels, one for each group, of a constant weight.
func (p *program) weight(v *ir.Value, ref ir.Weight) ([]backend.Kernel, error) {
	key := kernelKey{store: v.Store, groups: ref.Groups}
	if v.Store == nil {
		key.dense, key.view = v.Const, fmt.Sprint(ref.View)
	}
	return p.prepared(key, func() ([]backend.Kernel, error) { return p.newKernels(v, ref) })
}

// prepared returns the kernels of a weight, made when they are first asked for.
func (p *program) prepared(key kernelKey, make func() ([]backend.Kernel, error)) ([]backend.Kernel, error) {
	p.mu.Lock()
	made := p.kernels[key]
	if made == nil {
		made = sync.OnceValues(make)
		p.kernels[key] = made
	}
	p.mu.Unlock()
	return made()
}

func (p *program) newKernels(v *ir.Value, ref ir.Weight) ([]backend.Kernel, error) {
	if v.Store != nil {
		k, err := format.Lookup(v.Store.Format).Kernel(v.Store)
		return []backend.Kernel{k}, err
	}
	var ks []backend.Kernel
	if ref.Groups == 1 && v.Const.Rank() == 2 && ref.View.RowAxes == 1 && slices.Equal(ref.View.Perm, []int{1, 0}) {
		ks = []backend.Kernel{dense.NewTransposed(v.Const)}
	} else {
		m := ref.View.Matrix(v.Const)
		rows := m.Dim(0) / ref.Groups
		for g := range ref.Groups {
			part := tensor.From(m.F32s()[g*rows*m.Dim(1):(g+1)*rows*m.Dim(1)], rows, m.Dim(1))
			ks = append(ks, dense.New(part))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for g, k := range ks {
		all := v.Const.Bytes()
		p.sources[k] = all[g*(len(all)/ref.Groups):][:len(all)/ref.Groups]
	}
	return ks, nil
}

// weights makes the kernels of all weights of g, at the same time.
func (p *program) weights(g *ir.Graph) {
	type use struct {
		v   *ir.Value
		ref ir.Weight
	}
	var uses []use
	for _, n := range g.Nodes {
		w, ok := n.Op.(ir.WeightOp)
		if !ok || binders[n.Op.Kind()] == nil || !static(n) {
			continue
		}
		for _, ref := range w.Weights(n) {
			if v := n.Input(ref.Input); v != nil && v.IsConst() && v.Type.DType == tensor.F32 {
				uses = append(uses, use{v, ref})
			}
		}
	}
	// An error comes again, with the node's name, when the node is bound.
	p.pool.NewTeam().For(len(uses), func(_, i int) { p.weight(uses[i].v, uses[i].ref) })
}

// copied says that a kernel has copied its weight and hardly reads it again.
func (p *program) copied(k backend.Kernel) {
	p.mu.Lock()
	b := p.sources[k]
	p.mu.Unlock()
	if p.unneeded != nil && b != nil {
		p.unneeded(b)
	}
}

// unpack returns the elements of a stored weight.
func (p *program) unpack(v *ir.Value) (*tensor.Tensor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.dense[v.Store]; ok {
		return t, nil
	}
	t, err := format.Unpack(v.Store, v.Type)
	if err == nil {
		p.dense[v.Store] = t
	}
	return t, err
}

// Close stops the workers.
func (p *program) Close() error {
	p.pool.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	if p.held == 0 && p.closed != nil {
		return p.closed()
	}
	return nil
}

// hold says that the program's graph is read until let is called.
func (p *program) hold() {
	p.mu.Lock()
	p.held++
	p.mu.Unlock()
}

func (p *program) let() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held--; p.held == 0 && p.closing && p.closed != nil {
		p.closed() // nobody waits for its error
	}
}

// Run evaluates the program.
func (p *program) Run(ctx context.Context, in, out []*tensor.Tensor) error {
	return p.Trace(ctx, in, out, nil)
}

// Trace evaluates the program and reports the time of each step.
func (p *program) Trace(ctx context.Context, in, out []*tensor.Tensor, f func(*ir.Node, time.Duration)) error {
	return ir.Guard(func() error { return p.trace(ctx, in, out, f) })
}

func (p *program) trace(ctx context.Context, in, out []*tensor.Tensor, f func(*ir.Node, time.Duration)) error {
	s, err := p.specs.get(in, nil, func() (runner, error) {
		if err := ir.CheckInputs(p.graph, in); err != nil {
			return nil, err
		}
		return p.runner(in)
	})
	if err != nil {
		return err
	}
	return s.run(ctx, in, out, f)
}
