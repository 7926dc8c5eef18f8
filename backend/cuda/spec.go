package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/plan"
)

// spec is a program specialised for the shapes of its inputs.
type spec struct {
	prog      *program
	graph     *ir.Graph
	parts     []part
	plan      *plan.Program
	outputs   []port              // those that the device computes
	why       map[*ir.Node]string // the CPU computes a node
	constants []Pointer           // on the device
	plans     []Plan              // of libraries

	indices []indices // that kernels read

	mu   sync.Mutex
	free []*exec
}

// indices are an input of the graph whose elements a node takes as indices of an axis, from one number to
// below another.
type indices struct {
	node                  *ir.Node
	input, axis, from, to int
}

// check refuses indices that are out of range.
func (at *indices) check(in []*tensor.Tensor) error {
	for _, i := range in[at.input].Ints() {
		if i < at.from || i >= at.to {
			return at.node.Errorf(ir.ErrInvalid, "%s", op.OutOfRange(i, at.axis, at.to))
		}
	}
	return nil
}

// part is a run of nodes that one side computes.
type part struct {
	nodes    []*ir.Node
	launches []launch        // of the device
	host     backend.Program // of the CPU
	in, out  []*ir.Value     // of the CPU's graph
	upload   []port          // what the device needs first here, and has not computed
	download []port          // what the CPU needs first here, and has not computed
}

// port is a value that is copied to the device or from it, in the type that it has in the graph.
type port struct {
	value *ir.Value
	temp  int // a buffer for it, where it has another type on the device, else -1
	at    int // in the arena
}

// launch is a kernel that a node was bound to, or a plan of a library.
type launch struct {
	node     *ir.Node
	name     string
	kernel   Kernel
	geometry backend.Geometry
	plan     Plan
	params   params // of a plan, those of Stream.Multiply
}

// placements tells where nodes run.
func (s *spec) placements() []backend.Placement {
	var all []backend.Placement
	count := 0
	for _, p := range s.parts {
		at := 0
		if p.host == nil {
			count++
			at = count
		}
		for _, n := range p.nodes {
			all = append(all, backend.Placement{Node: n, Part: at, Why: s.why[n]})
		}
	}
	return all
}

func (s *spec) close() error {
	var errs []error
	for _, x := range s.free {
		errs = append(errs, x.close())
	}
	for _, p := range s.plans { // which know constants
		errs = append(errs, p.Close())
	}
	for _, at := range s.constants {
		errs = append(errs, s.prog.driver.Free(at))
	}
	s.free, s.constants, s.plans = nil, nil, nil
	for _, p := range s.parts {
		if p.host != nil {
			errs = append(errs, p.host.Close())
		}
	}
	return errors.Join(errs...)
}

// exec is the memory of one run on the device: it is used by one run at a time.
type exec struct {
	*spec
	stream Stream
	arena  Pointer
	graphs []Graph // by part
	run    *run    // under way
	cold   []bool  // by part: libraries have not been called
}

func (s *spec) acquire() (*exec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		x := s.free[n-1]
		s.free = s.free[:n-1]
		return x, nil
	}
	x := &exec{spec: s, graphs: make([]Graph, len(s.parts)), cold: make([]bool, len(s.parts))}
	for i, p := range s.parts {
		x.cold[i] = slices.ContainsFunc(p.launches, func(l launch) bool { return l.plan != nil })
	}
	var err error
	if x.stream, err = s.prog.driver.Stream(); err != nil {
		return nil, fmt.Errorf("a stream for a run: %w", err)
	}
	if x.arena, err = s.prog.driver.Alloc(max(1, s.plan.Bytes)); err != nil {
		x.stream.Close()
		return nil, fmt.Errorf("memory for a run: %w", err)
	}
	return x, nil
}

func (s *spec) release(x *exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, x)
}

func (x *exec) close() error {
	var errs []error
	x.stream.Sync() // a run that failed has not waited; what is wrong Close says again
	for _, g := range x.graphs {
		if g != nil {
			errs = append(errs, g.Close())
		}
	}
	return errors.Join(append(errs, x.stream.Close(), x.prog.driver.Free(x.arena))...)
}

// launch queues a kernel.
func (x *exec) launch(l *launch) error {
	cells := make([]Cell, len(l.params))
	for i, q := range l.params {
		cells[i] = q.cell
		if q.place {
			cells[i] += Cell(x.arena)
		}
	}
	if l.plan != nil {
		return l.failed(x.stream.Multiply(l.plan, Pointer(cells[0]), Pointer(cells[1]), Pointer(cells[2]), Pointer(cells[3]), Pointer(cells[4])))
	}
	return l.failed(x.stream.Launch(l.kernel, l.geometry, cells))
}

// failed names the step and the kernel.
func (l *launch) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: kernel %s: %w", l.node, l.name, err)
}

// String names the steps.
func (p *part) String() string {
	first, last := p.launches[0].node, p.launches[len(p.launches)-1].node
	if first == last {
		return fmt.Sprintf("kernels of %v", first)
	}
	return fmt.Sprintf("kernels of %v to %v", first, last)
}

// failed names the steps: one that fails may tell of another.
func (p *part) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", p, err)
}

// failed names what was to be done. Where the device was lost, that is what was under way
// before: kernels fail in the calls after theirs.
func (x *exec) failed(err error, step string, v *ir.Value) error {
	if err == nil {
		return nil
	}
	lost := (*Error)(nil)
	if p := x.run.under.Load(); p != nil && errors.As(err, &lost) && lost.Lost {
		return fmt.Errorf("%v: %w", p, err)
	}
	return fmt.Errorf("%s %s: %w", step, v.Name, err)
}

// run evaluates the spec and returns its outputs.
func (s *spec) run(ctx context.Context, r *run, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	err := r.read(func() error {
		for i := range s.indices {
			if err := s.indices[i].check(in); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	x, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer s.release(x)
	x.run = r
	host := map[*ir.Value]*tensor.Tensor{}
	for i, v := range s.graph.Inputs {
		host[v] = in[i]
	}
	for i := range s.parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if s.parts[i].host != nil {
			err = x.hostPart(ctx, &s.parts[i], host)
		} else {
			err = x.devicePart(i, host)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := x.fetch(s.outputs, host); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	results := make([]*tensor.Tensor, len(s.graph.Outputs))
	for i, v := range s.graph.Outputs {
		t := host[v]
		if v.IsConst() {
			var err error
			if t, err = s.prog.output(v); err != nil {
				return nil, err
			}
		}
		if slices.Contains(in, t) || v.IsConst() || slices.Contains(results, t) {
			if err := r.read(func() error {
				t = t.Clone()
				return nil
			}); err != nil {
				return nil, err
			}
		}
		results[i] = t
	}
	return results, nil
}

// fetch downloads values.
func (x *exec) fetch(ports []port, host map[*ir.Value]*tensor.Tensor) error {
	for _, q := range ports {
		t := tensor.New(q.value.Type.DType, shapeOf(q.value)...)
		if len(t.Bytes()) > 0 {
			if err := x.stream.Download(t.Bytes(), x.arena+Pointer(q.at)); err != nil {
				return x.failed(err, "download of", q.value)
			}
		}
		host[q.value] = t
	}
	return nil
}

func (x *exec) hostPart(ctx context.Context, p *part, host map[*ir.Value]*tensor.Tensor) error {
	if err := x.fetch(p.download, host); err != nil {
		return err
	}
	in, out := make([]*tensor.Tensor, len(p.in)), make([]*tensor.Tensor, len(p.out))
	for i, v := range p.in {
		in[i] = host[v]
	}
	if err := x.run.read(func() error { return p.host.Trace(ctx, in, out, x.run.trace) }); err != nil {
		return err
	}
	for i, v := range p.out {
		host[v] = out[i]
	}
	return nil
}

// devicePart uploads what the kernels of a part need and launches them: one by one where the run
// is traced, else as a graph.
func (x *exec) devicePart(i int, host map[*ir.Value]*tensor.Tensor) error {
	p := &x.parts[i]
	for _, q := range p.upload {
		if b := host[q.value].Bytes(); len(b) > 0 {
			err := x.stream.UploadFrom(x.arena+Pointer(q.at), len(b), func(part []byte, at int) error {
				return x.run.read(func() error {
					copy(part, b[at:])
					return nil
				})
			})
			if err != nil {
				return x.failed(err, "upload of", q.value)
			}
		}
	}
	if len(p.launches) == 0 {
		return nil
	}
	x.run.under.Store(p)
	if x.run.trace != nil {
		start := time.Now()
		for k := range p.launches {
			l := &p.launches[k]
			if err := x.launch(l); err != nil {
				return err
			}
			if err := x.stream.Sync(); err != nil {
				return l.failed(err)
			}
			if k+1 == len(p.launches) || p.launches[k+1].node != l.node {
				x.run.trace(l.node, time.Since(start))
				start = time.Now()
			}
		}
		return nil
	}
	if x.cold[i] { // libraries load their kernels when these are first called, which must not be captured
		if err := x.queue(p); err != nil {
			return p.failed(err)
		}
		x.cold[i] = false
		return nil
	}
	if x.graphs[i] == nil {
		g, err := x.stream.Capture(func() error { return x.queue(p) })
		if err != nil {
			return p.failed(err)
		}
		x.graphs[i] = g
	}
	return p.failed(x.graphs[i].Launch())
}

// queue queues the kernels of a part one by one.
func (x *exec) queue(p *part) error {
	for k := range p.launches {
		if err := x.launch(&p.launches[k]); err != nil {
			return err
		}
	}
	return nil
}
