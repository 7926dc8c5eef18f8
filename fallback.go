package spc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"spc/backend"
	"spc/ir"
	"spc/ir/tensor"
)

// fallback is a device that another takes the place of, program by program, where it fails with
// an ErrDevice.
type fallback struct {
	first, second backend.Device
	fell          func(why error) // called for each program, maybe concurrently
}

// Name is that of the first device.
func (d *fallback) Name() string { return d.first.Name() }

// Load loads a program on the first device, or on the second.
func (d *fallback) Load(g *ir.Graph, o backend.Options) (backend.Program, error) {
	f := &fallible{device: d, graph: g, options: o}
	f.readers.Store(1)
	var err error
	if f.first, err = f.load(d.first); errors.Is(err, ErrDevice) {
		_, err = f.fall(err)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// fallible is a program that a run moves to the second device when the first one fails, for good.
type fallible struct {
	device  *fallback
	graph   *ir.Graph
	options backend.Options

	mu     sync.Mutex
	first  backend.Program // nil once it is closed
	second backend.Program // nil until it is needed
	runs   int             // of the first, under way

	readers atomic.Int64 // of the plan's graph: this program, and those that were loaded from it
}

func (p *fallible) load(d backend.Device) (backend.Program, error) {
	o := p.options
	o.Closed = sync.OnceValue(p.let)
	p.readers.Add(1)
	prog, err := d.Load(p.graph, o)
	if err != nil {
		o.Closed() // which the device may have called, or not
		return nil, err
	}
	return prog, nil
}

// let says that a reader of the graph is gone.
func (p *fallible) let() error {
	if p.readers.Add(-1) == 0 && p.options.Closed != nil {
		return p.options.Closed()
	}
	return nil
}

// Prepare specialises the program that runs.
func (p *fallible) Prepare(in []*tensor.Tensor) error {
	first, second := p.begin()
	if second == nil {
		err := first.Prepare(in)
		if errors.Is(err, ErrDevice) {
			second, err = p.fall(err)
		}
		p.end()
		if second == nil {
			return err
		}
	}
	return second.Prepare(in)
}

// Run evaluates the program.
func (p *fallible) Run(ctx context.Context, in, out []*tensor.Tensor) error {
	return p.Trace(ctx, in, out, nil)
}

// Trace evaluates the program. The steps of the first device are reported when all are done, for
// those of the second may take their place.
func (p *fallible) Trace(ctx context.Context, in, out []*tensor.Tensor, f func(*ir.Node, time.Duration)) error {
	first, second := p.begin()
	if second == nil {
		type step struct {
			node *ir.Node
			took time.Duration
		}
		var steps []step
		trace := f
		if f != nil {
			trace = func(n *ir.Node, d time.Duration) { steps = append(steps, step{n, d}) }
		}
		err := first.Trace(ctx, in, out, trace)
		if errors.Is(err, ErrDevice) {
			second, err = p.fall(err)
		}
		p.end()
		if second == nil {
			for _, s := range steps {
				f(s.node, s.took)
			}
			return err
		}
	}
	return second.Trace(ctx, in, out, f)
}

// Placements tells where nodes run: on the first device, or nothing of the second.
func (p *fallible) Placements(in []*tensor.Tensor) ([]backend.Placement, error) {
	first, second := p.begin()
	if second != nil {
		return nil, nil
	}
	defer p.end()
	partial, ok := first.(backend.Partial)
	if !ok {
		return nil, nil
	}
	places, err := partial.Placements(in)
	if errors.Is(err, ErrDevice) {
		_, err = p.fall(err)
	}
	return places, err
}

// begin returns the program to run: the second where there is one, else the first, whose run ends
// with the call of end.
func (p *fallible) begin() (first, second backend.Program) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.second == nil {
		p.runs++
	}
	return p.first, p.second
}

// end closes the first program after its last run, if the second has taken its place.
func (p *fallible) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs--; p.runs == 0 && p.second != nil {
		p.first.Close() // of a device that has failed
		p.first = nil
	}
}

// fall returns the second program.
func (p *fallible) fall(why error) (backend.Program, error) {
	second, made, err := p.take()
	if err != nil {
		return nil, fmt.Errorf("%w; %s: %w", why, p.device.second.Name(), err)
	}
	if made && p.device.fell != nil {
		p.device.fell(why)
	}
	return second, nil
}

func (p *fallible) take() (second backend.Program, made bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.second == nil {
		p.second, err = p.load(p.device.second)
		made = err == nil
	}
	return p.second, made, err
}

// Close closes what is left.
func (p *fallible) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, prog := range []backend.Program{p.first, p.second} {
		if prog != nil {
			errs = append(errs, prog.Close())
		}
	}
	return errors.Join(append(errs, p.let())...)
}
