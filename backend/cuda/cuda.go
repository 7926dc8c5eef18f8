// Package cuda runs programs on NVIDIA GPUs. A program is lowered once for each set of input shapes by a table of steps:
// its graph is cloned, inferred with those shapes and folded, nodes are bound to kernels, and the values between them
// get places in an arena of device memory. Runs of kernels are captured into graphs of launches. Nodes
// without a kernel run on the CPU, and values are copied there and back. The package imports
// backend, its formats, backend/cpu, lower and passes/fold.
package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/format"
	"spc/backend/format/pair"
	"spc/backend/shapecache"
	"spc/ir"
	"spc/ir/tensor"
)

// Device is a GPU.
type Device struct {
	Driver
	// Precision is the type that floats have on the GPU: f16 or bf16, where products are
	// summed in f32, else f32.
	Precision tensor.DType
	Libraries Libraries
	// Host runs the nodes that have no kernel.
	Host cpu.Device
}

// Name names the GPU.
func (d Device) Name() string { return d.Driver.Name() }

// Load prepares a program. Weights are uploaded when a kernel first needs them.
func (d Device) Load(g *ir.Graph, o backend.Options) (backend.Program, error) {
	if !o.Checked {
		if err := format.CheckAll(g); err != nil {
			return nil, err
		}
	}
	prog := &program{
		driver: d.Driver, host: d.Host, rates: backend.RatesOf(d.Arch()), float: tensor.F32, graph: g, options: o,
		specs:    shapecache.New(cmp.Or(o.Specialised, backend.Specialised), (*spec).close),
		memory:   map[*tensor.Tensor]Pointer{},
		unpacked: map[*ir.Store]*tensor.Tensor{},
		pairs:    map[*ir.Store]*pair.Forms{},
		kernels:  map[string]Kernel{},
		weights:  map[weightKey]*weight{},
		lasting:  map[*tensor.Tensor]bool{},
		rounded:  map[*tensor.Tensor]*tensor.Tensor{},
	}
	if d.Libraries != NoLibraries {
		prog.always = d.Libraries == AlwaysLibraries
		if err := prog.openLibraries(); err != nil {
			return nil, err
		}
	}
	if d.Precision == tensor.F16 || d.Precision == tensor.BF16 {
		prog.float = d.Precision
	}
	for _, v := range g.Constants() {
		if v.Const != nil {
			prog.lasting[v.Const] = true
		}
	}
	prog.readers.Store(1)
	return prog, nil
}

type program struct {
	driver  Driver
	host    cpu.Device
	rates   backend.GPURates
	library Library      // nil where there is none
	sparse  Library      // for 2:4 weights, nil where there is none
	always  bool         // the library computes all products that it has a way for
	float   tensor.DType // of floats on the device
	graph   *ir.Graph
	options backend.Options

	specs *shapecache.Cache[*spec] // for shapes of inputs

	// making is held while a spec is made, which is what needs all this.
	making   sync.Mutex
	memory   map[*tensor.Tensor]Pointer   // constants on the device
	unpacked map[*ir.Store]*tensor.Tensor // stored weights that no kernel takes as they are
	pairs    map[*ir.Store]*pair.Forms    // the forms of stored weights that have two
	kernels  map[string]Kernel
	weights  map[weightKey]*weight
	lasting  map[*tensor.Tensor]bool           // that are not of one set of input shapes alone
	rounded  map[*tensor.Tensor]*tensor.Tensor // those of them that have another type on the device
	fresh    []*tensor.Tensor                  // constants that were uploaded for the spec in the making

	readers atomic.Int64 // of the graph's weights: the program, and its parts on the CPU

	life    sync.Mutex
	runs    int // under way, also those that nobody waits for any more
	closing bool
}

// typeOf is the type that a value has on the device.
func (p *program) typeOf(v *ir.Value) tensor.DType {
	if v.Type.DType == tensor.F32 {
		return p.float
	}
	return v.Type.DType
}

// release says that a reader of the weights is gone.
func (p *program) release() error {
	if p.readers.Add(-1) == 0 && p.options.Closed != nil {
		return p.options.Closed()
	}
	return nil
}

// Run evaluates the program.
func (p *program) Run(ctx context.Context, in, out []*tensor.Tensor) error {
	return p.Trace(ctx, in, out, nil)
}

// Trace evaluates the program. With f, each step waits for the one before.
func (p *program) Trace(ctx context.Context, in, out []*tensor.Tensor, f func(*ir.Node, time.Duration)) error {
	if err := ir.CheckInputs(p.graph, in); err != nil {
		return err
	}
	results, err := p.await(ctx, in, f)
	if err != nil {
		return p.named(err)
	}
	for i, t := range results {
		if out[i].Fits(t) {
			out[i].CopyFrom(t)
		} else {
			out[i] = t
		}
	}
	return nil
}

// named names the device in its errors.
func (p *program) named(err error) error {
	if errors.Is(err, ir.ErrDevice) {
		return fmt.Errorf("%s: %w", p.driver.Name(), err)
	}
	return err
}

// run is a run under way.
type run struct {
	trace func(*ir.Node, time.Duration)
	under atomic.Pointer[part] // whose kernels were queued last

	// What is the caller's: its inputs are read while the first is held, its trace is called while the second is,
	// and neither once left is set, which takes both.
	reading, tracing sync.Mutex
	left             bool
}

// leave gives the caller back what is its.
func (r *run) leave() {
	r.reading.Lock()
	defer r.reading.Unlock()
	r.tracing.Lock()
	defer r.tracing.Unlock()
	r.left = true
}

// read calls f, which reads inputs and does not wait for the device, unless the run was left.
func (r *run) read(f func() error) error {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.left {
		return context.Canceled // which nobody sees
	}
	return f()
}

// evaluate returns the outputs.
func (p *program) evaluate(ctx context.Context, r *run, in []*tensor.Tensor) (out []*tensor.Tensor, err error) {
	err = ir.Guard(func() (err error) {
		s, err := p.spec(in)
		if err != nil {
			return err
		}
		defer p.done(s, &err)
		out, err = s.Value().run(ctx, r, in)
		return err
	})
	return out, err
}

// await is evaluate, but returns as soon as the context is cancelled. Kernels cannot be stopped,
// so the run then goes on by itself until the device is done with what it uses, and Close leaves
// that to it. The inputs are the caller's again.
func (p *program) await(ctx context.Context, in []*tensor.Tensor, f func(*ir.Node, time.Duration)) ([]*tensor.Tensor, error) {
	p.begin()
	if ctx.Done() == nil {
		defer p.end()
		return p.evaluate(ctx, &run{trace: f}, in)
	}
	r := &run{}
	if f != nil {
		r.trace = func(n *ir.Node, d time.Duration) {
			r.tracing.Lock()
			defer r.tracing.Unlock()
			if !r.left {
				f(n, d)
			}
		}
	}
	type result struct {
		out      []*tensor.Tensor
		err      error
		panicked any
	}
	done := make(chan result, 1)
	in = slices.Clone(in) // the caller's slice may change
	evaluate := func() (got result) {
		defer p.end()
		defer func() {
			if v := recover(); v != nil {
				got.panicked = fmt.Sprintf("%v\n%s", v, debug.Stack())
			}
		}()
		got.out, got.err = p.evaluate(ctx, r, in)
		return got
	}
	go func() { done <- evaluate() }()
	select {
	case got := <-done:
		if got.panicked != nil {
			panic(got.panicked)
		}
		return got.out, got.err
	case <-ctx.Done():
		r.leave()
		err := ctx.Err()
		if under := r.under.Load(); under != nil {
			err = fmt.Errorf("%v: %w", under, err)
		}
		return nil, fmt.Errorf("%s: %w", p.driver.Name(), err)
	}
}

func (p *program) begin() {
	p.life.Lock()
	p.runs++
	p.life.Unlock()
}

func (p *program) end() {
	p.life.Lock()
	p.runs--
	last := p.closing && p.runs == 0
	p.life.Unlock()
	if last {
		p.free()
	}
}

// Placements tells where nodes run.
func (p *program) Placements(in []*tensor.Tensor) (places []backend.Placement, err error) {
	err = p.with(in, func(s *spec) { places = s.placements() })
	return places, err
}

// Prepare specialises the program.
func (p *program) Prepare(in []*tensor.Tensor) error { return p.with(in, func(*spec) {}) }

// with calls f with the spec for such inputs.
func (p *program) with(in []*tensor.Tensor, f func(*spec)) error {
	if err := ir.CheckInputs(p.graph, in); err != nil {
		return err
	}
	return p.named(ir.Guard(func() (err error) {
		s, err := p.spec(in)
		if err != nil {
			return err
		}
		defer p.done(s, &err)
		f(s.Value())
		return nil
	}))
}

// spec returns the program for inputs of these shapes, which stays until done is called. Others
// are found, and run, while one is made.
func (p *program) spec(in []*tensor.Tensor) (*shapecache.Entry[*spec], error) {
	return p.specs.Hold(in, nil, func() (*spec, error) {
		p.making.Lock()
		defer p.making.Unlock()
		return p.lower(in)
	})
}

// done ends a use of a spec. What goes wrong when others are freed is an error of what used it.
func (p *program) done(s *shapecache.Entry[*spec], err *error) {
	if freed := p.specs.Release(s); *err == nil {
		*err = freed
	}
}

// Close frees device memory, or lets the last run do so.
func (p *program) Close() error {
	p.life.Lock()
	p.closing = true
	idle := p.runs == 0
	p.life.Unlock()
	if !idle {
		return nil
	}
	return p.named(p.free())
}

func (p *program) free() error {
	p.making.Lock()
	defer p.making.Unlock()
	errs := []error{p.specs.Close()}
	for _, at := range p.memory {
		errs = append(errs, p.driver.Free(at))
	}
	p.memory = nil
	return errors.Join(append(errs, p.closeLibraries(), p.release())...)
}

// constant returns where a tensor, which does not change, is on the device.
func (p *program) constant(s Stream, t *tensor.Tensor) (Pointer, error) {
	at, ok := p.memory[t]
	if !ok {
		var err error
		if at, err = p.upload(s, t); err != nil {
			return 0, err
		}
		p.memory[t] = at
		p.fresh = append(p.fresh, t)
	}
	return at, nil
}

// upload copies a tensor to memory that the caller frees.
func (p *program) upload(s Stream, t *tensor.Tensor) (Pointer, error) {
	b := t.Bytes()
	at, err := p.driver.Alloc(max(1, len(b)))
	if err != nil || len(b) == 0 {
		return at, err
	}
	if err := ir.Guard(func() error { return s.Upload(at, b) }); err != nil {
		s.Sync()
		p.driver.Free(at)
		return 0, err
	}
	return at, nil
}

// output returns the elements of a constant that is an output.
func (p *program) output(v *ir.Value) (*tensor.Tensor, error) {
	if v.Store == nil {
		return v.Const, nil
	}
	p.making.Lock()
	defer p.making.Unlock()
	return p.elements(v)
}

// elements are those of a constant.
func (p *program) elements(v *ir.Value) (*tensor.Tensor, error) {
	if v.Store == nil {
		return v.Const, nil
	}
	if t := p.unpacked[v.Store]; t != nil {
		return t, nil
	}
	t, err := format.Unpack(v.Store, v.Type)
	if err == nil {
		p.unpacked[v.Store], p.lasting[t] = t, true
	}
	return t, err
}

// forms returns those of a weight in two.
func (p *program) forms(v *ir.Value) (*pair.Forms, error) {
	if known := p.pairs[v.Store]; known != nil {
		return known, nil
	}
	forms, err := pair.Split(v.Store, v.Name)
	if err == nil {
		p.pairs[v.Store] = forms
	}
	return forms, err
}

// kernel finds a kernel of the image.
func (p *program) kernel(name string) (Kernel, error) {
	if k, ok := p.kernels[name]; ok {
		return k, nil
	}
	k, err := p.driver.Kernel(name)
	if err == nil {
		p.kernels[name] = k
	}
	return k, err
}
