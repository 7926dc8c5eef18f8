// Package cpu runs programs on the CPU. A program is specialised once for each
// set of input shapes: its graph is cloned, inferred with those shapes and
// folded, every value with a known shape gets a place in an arena, and each node
// is bound to a kernel; nodes without one are evaluated by their operator. The
// package imports backend, its formats, lower/plan and passes/fold.
package cpu

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/shapecache"
	"spc/internal/debug"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower"
)

// Device is the CPU.
type Device struct {
	// Pool, where it is set, runs the loops of all programs, which leave it open; else each program has one of its own.
	Pool *Pool
}

// Name is cpu.
func (Device) Name() string { return "cpu" }

// Load prepares a program and, unless the device has one, starts its worker pool.
func (d Device) Load(g *ir.Graph, o backend.Options) (backend.Program, error) {
	prog := &program{
		graph:    g,
		pool:     d.pool(o.Threads),
		weights:  map[weightKey]func() (any, error){},
		sources:  map[backend.Kernel][]byte{},
		unneeded: o.Unneeded,
		closed:   o.Closed,
		specs:    shapecache.New(cmp.Or(o.Specialised, backend.Specialised), runner.drop),
		idle:     idle{most: o.Memory},
		lowering: o.Lowering,
		guarded:  debug.On(debug.Memory),
	}
	if !o.Checked {
		if err := format.CheckAll(g); err != nil {
			prog.Close()
			return nil, err
		}
	}
	return prog, nil
}

func (d Device) pool(threads int) *Pool {
	if d.Pool != nil {
		return d.Pool.Part(threads)
	}
	return NewPool(cmp.Or(threads, Cores()))
}

// Cores is the number of threads that a Run uses unless it is told otherwise.
func Cores() int { return min(physicalCores(), runtime.GOMAXPROCS(0)) }

type program struct {
	graph   *ir.Graph
	pool    *Pool
	guarded bool // runs check themselves

	mu       sync.Mutex
	weights  map[weightKey]func() (any, error) // what was prepared of them
	sources  map[backend.Kernel][]byte         // of dense weights, what they are made of
	unneeded func([]byte)
	closed   func() error
	closing  bool
	held     int // by operators that may outlast their run
	specs    *shapecache.Cache[runner]
	idle     idle
	lowering lower.Options
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
	s, err := p.specialised(in)
	if err != nil {
		return err
	}
	return errors.Join(s.Value().run(ctx, in, out, f), p.specs.Release(s))
}

// specialised returns what runs the program on inputs of these types, until it is released.
func (p *program) specialised(in []*tensor.Tensor) (*shapecache.Entry[runner], error) {
	return p.specs.Hold(in, nil, func() (runner, error) {
		if err := ir.CheckInputs(p.graph, in); err != nil {
			return nil, err
		}
		return p.runner(in)
	})
}

// Prepare specialises the program.
func (p *program) Prepare(in []*tensor.Tensor) error {
	return ir.Guard(func() error {
		s, err := p.specialised(in)
		if err != nil {
			return err
		}
		return p.specs.Release(s)
	})
}
