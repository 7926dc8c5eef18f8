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
	"sync"
	"time"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/format/dense"
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
		kernels:  map[kernelKey][]backend.Kernel{},
		kernels8: map[kernelKey]backend.Kernel8{},
		dense:    map[*ir.Store]*tensor.Tensor{},
		specs:    newCache[*spec](8),
	}
	if !o.Checked {
		if err := format.CheckAll(p.Graph.Constants()); err != nil {
			prog.Close()
			return nil, err
		}
	}
	return prog, nil
}

// Cores is the number of threads that a Run uses unless it is told otherwise.
func Cores() int { return min(physicalCores(), runtime.GOMAXPROCS(0)) }

type program struct {
	graph *ir.Graph
	pool  *Pool

	mu       sync.Mutex
	kernels  map[kernelKey][]backend.Kernel
	kernels8 map[kernelKey]backend.Kernel8
	dense    map[*ir.Store]*tensor.Tensor // weights unpacked for operators without a kernel
	specs    *cache[*spec]
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if k, ok := p.kernels[key]; ok {
		return k, nil
	}
	var ks []backend.Kernel
	if v.Store != nil {
		k, err := format.Lookup(v.Store.Format).Kernel(v.Store)
		if err != nil {
			return nil, err
		}
		ks = []backend.Kernel{k}
	} else {
		m := ref.View.Matrix(v.Const)
		rows := m.Dim(0) / ref.Groups
		for g := range ref.Groups {
			part := tensor.From(m.F32s()[g*rows*m.Dim(1):(g+1)*rows*m.Dim(1)], rows, m.Dim(1))
			ks = append(ks, dense.New(part))
		}
	}
	p.kernels[key] = ks
	return ks, nil
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

func (p *program) Close() error {
	p.pool.Close()
	return nil
}

// Run evaluates the program.
func (p *program) Run(ctx context.Context, in, out []*tensor.Tensor) error {
	return p.Trace(ctx, in, out, nil)
}

// Trace evaluates the program and reports the time of each step.
func (p *program) Trace(ctx context.Context, in, out []*tensor.Tensor, f func(*ir.Node, time.Duration)) error {
	s, err := p.specs.get(in, nil, func() (*spec, error) {
		if err := ir.CheckInputs(p.graph, in); err != nil {
			return nil, err
		}
		return p.specialise(in)
	})
	if err != nil {
		return err
	}
	return s.run(ctx, in, out, f)
}
