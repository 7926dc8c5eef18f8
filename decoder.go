package spc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"spc/backend"
	"spc/backend/cpu"
	"spc/internal/memory"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/cache"
)

// decoder is a model's program over caches at a capacity, which its sessions share.
type decoder struct {
	model  *Model
	static *cache.Static
	prog   backend.Program
	counts place // of what a step adds, an input that has it
}

// place is an axis of an input, of the size of which a fixed number is a part where input is below 0.
type place struct{ input, axis, size int }

// in returns the size.
func (p place) in(in []*tensor.Tensor) (n int, ok bool) {
	switch {
	case p.input < 0:
		return p.size, true
	case in[p.input] == nil || in[p.input].Rank() <= p.axis:
		return 0, false
	}
	return in[p.input].Dim(p.axis), true
}

// decoder returns the program for sessions with these ties, or why there is none. It is made once.
func (m *Model) decoder(ties map[string]string) (d *decoder, why string, err error) {
	if m.on().Name() != (cpu.Device{}).Name() {
		return nil, fmt.Sprintf("device %s has no kernels that append", m.on().Name()), nil
	}
	key := fmt.Sprintf("%q", slices.Sorted(func(yield func(string) bool) {
		for out, in := range ties {
			if !yield(out + "\x00" + in) {
				return
			}
		}
	}))
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return nil, "", err
	}
	if d := m.decoders[key]; d != nil {
		return d, "", nil
	}
	d, err = m.newDecoder(ties)
	if errors.Is(err, cache.ErrGrowing) {
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	if m.decoders == nil {
		m.decoders = map[string]*decoder{}
	}
	m.decoders[key] = d
	return d, "", nil
}

// newDecoder rewrites the graph and loads it. The caller holds m.mu.
func (m *Model) newDecoder(ties map[string]string) (*decoder, error) {
	var list []cache.Tie
	for i := range m.graph.Outputs {
		if in, tied := ties[m.graph.OutputName(i)]; tied {
			list = append(list, cache.Tie{Out: i, In: slices.IndexFunc(m.graph.Inputs, func(v *ir.Value) bool { return v.Name == in })})
		}
	}
	static, err := cache.Rewrite(m.graph, list)
	if err != nil {
		return nil, err
	}
	d := &decoder{model: m, static: static, counts: place{input: -1, size: static.Added.Size()}}
	if !static.Added.Known() {
		if d.counts, err = d.find(static.Added); err != nil {
			return nil, err
		}
	}
	d.prog, err = m.load(static.Graph)
	return d, err
}

// find returns an input that is no buffer and has a size.
func (d *decoder) find(size Dim) (place, error) {
	for i, v := range d.static.Graph.Inputs[:d.static.Start] {
		if _, buffer := d.static.Caches[i]; !buffer {
			if axis := slices.Index(v.Type.Dims, size); axis >= 0 {
				return place{input: i, axis: axis}, nil
			}
		}
	}
	return place{}, fmt.Errorf("%w: no input tells how many rows a step adds", cache.ErrGrowing)
}

// buffers are the caches of a session, kept at a capacity: a step writes what is new behind what they hold.
type buffers struct {
	*decoder
	held
	given   []*tensor.Tensor // the caller's, in the order of the model
	in, out []*tensor.Tensor // of the program
	wide    []*tensor.Tensor // by input, of those that are padded
	outputs []output
}

// held is what a session keeps from one step to the next.
type held struct {
	capacity, length int
	caches           []*tensor.Tensor // by input; nil for others, and before the first step
	start, end       *tensor.Tensor   // the length before and after the step, for each sample
}

// output is one of a graph.
type output struct {
	name  string
	cache int // the input whose buffer it is, -1 for none
}

// leastCapacity is what buffers begin with where no capacity is asked for; they double when it does not do.
const leastCapacity = 64

func newBuffers(d *decoder, ties []*tie) *buffers {
	g, n := d.static.Graph, d.static.Start
	b := &buffers{
		decoder: d, given: make([]*tensor.Tensor, n), in: make([]*tensor.Tensor, len(g.Inputs)), out: make([]*tensor.Tensor, len(g.Outputs)),
		wide: make([]*tensor.Tensor, n),
	}
	b.reset()
	for i := range g.Outputs {
		o := output{name: g.OutputName(i), cache: -1}
		for _, t := range ties {
			k := slices.IndexFunc(g.Inputs, func(v *ir.Value) bool { return v.Name == t.in })
			if _, t.buffered = d.static.Caches[k]; t.out == o.name && t.buffered {
				o.cache = k
			}
		}
		b.outputs = append(b.outputs, o)
	}
	return b
}

// reset empties the buffers.
func (b *buffers) reset() { b.held = held{caches: make([]*tensor.Tensor, b.static.Start)} }

// step runs the model on the inputs of s.in, and puts outputs that are no caches into s.out.
func (b *buffers) step(ctx context.Context, s *Session) error {
	defer b.forget()
	if err := arrange(b.model.graph, b.given, s.in); err != nil {
		return err
	}
	before := b.held
	err := b.take(s)
	if err == nil {
		err = b.append(ctx, s)
	}
	if err != nil {
		b.length, b.caches, b.start, b.end, b.capacity = before.length, before.caches, before.start, before.end, before.capacity
	}
	return err
}

// append runs the model behind what the caches hold.
func (b *buffers) append(ctx context.Context, s *Session) error {
	added, ok := b.counts.in(b.given)
	if !ok {
		return b.wrong()
	}
	if err := b.reserve(s, added); err != nil {
		return err
	}
	copy(b.in, b.given)
	for i, t := range b.caches {
		if t != nil {
			b.in[i] = t
		}
	}
	if err := b.pad(b.length + added); err != nil {
		return err
	}
	if err := b.told(b.length + added); err != nil {
		return err
	}
	start, end := tensor.Data[int64](b.start), tensor.Data[int64](b.end)
	for i := range start {
		start[i], end[i] = int64(b.length), int64(b.length+added)
	}
	b.in[b.static.Start], b.in[b.static.Length] = b.start, b.end
	for i, o := range b.outputs {
		b.out[i] = s.out[o.name]
		switch {
		case o.cache >= 0:
			b.out[i] = b.in[o.cache]
		case b.out[i] != nil && !b.out[i].Stored():
			return fmt.Errorf("the tensor for output %s is %v without storage, want one with elements to write to: %w", o.name, b.out[i], ErrInvalid)
		}
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	for i, o := range b.outputs {
		if o.cache < 0 {
			s.out[o.name] = b.out[i]
		}
	}
	b.length += added
	return nil
}

// run runs the program.
func (b *buffers) run(ctx context.Context) error {
	m := b.model
	if err := m.turn(ctx); err != nil {
		return err
	}
	defer func() { <-m.turns }()
	m.mu.Lock()
	err := m.usable()
	if err == nil {
		m.runs.Add(1)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	defer m.runs.Done()
	if err := b.prog.Run(ctx, b.in, b.out); err != nil {
		return m.met(err)
	}
	return nil
}

// forget lets go of what is the caller's.
func (b *buffers) forget() {
	clear(b.given)
	clear(b.in)
	clear(b.out)
}

// wrong is what the model says of inputs with what the caches hold.
func (b *buffers) wrong() error {
	in := slices.Clone(b.given)
	for i := range in {
		if b.caches[i] != nil {
			in[i] = b.state(i)
		}
	}
	return ir.CheckInputs(b.model.graph, in)
}

// state returns a copy of what a cache holds.
func (b *buffers) state(i int) *tensor.Tensor {
	axis := b.static.Caches[i]
	shape := slices.Clone(b.caches[i].Shape())
	shape[axis] = b.length
	t := tensor.New(b.caches[i].DType(), shape...)
	copyRows(t, b.caches[i], axis, b.length)
	return t
}

// named is state of a tied input, nil before the first step.
func (b *buffers) named(input string) *tensor.Tensor {
	for i, t := range b.caches {
		if t != nil && b.model.graph.Inputs[i].Name == input {
			return b.state(i)
		}
	}
	return nil
}

// reserve makes room for what a step adds.
func (b *buffers) reserve(s *Session, added int) error {
	need, most := b.length+added, s.options.Capacity
	if b.start != nil && need <= b.capacity {
		return nil
	}
	capacity := most
	if most == 0 {
		capacity = max(need, 2*b.capacity, leastCapacity)
	}
	grown := held{capacity: capacity, length: b.length, caches: make([]*tensor.Tensor, len(b.caches)), start: b.start, end: b.end}
	for _, t := range s.ties {
		if !t.buffered {
			continue
		}
		if need > capacity {
			return t.full(need, most)
		}
		i := slices.IndexFunc(b.model.graph.Inputs, func(v *ir.Value) bool { return v.Name == t.in })
		shape := s.shape(t.port)
		if b.caches[i] != nil {
			shape = slices.Clone(b.caches[i].Shape())
		}
		shape[t.axis] = capacity
		var err error
		if grown.caches[i], err = room(t.in, t.port.DType, shape); err != nil {
			return err
		}
		if b.caches[i] != nil {
			copyRows(grown.caches[i], b.caches[i], t.axis, b.length)
		}
		if grown.start == nil {
			grown.start, grown.end = tensor.New(tensor.I64, shape[0]), tensor.New(tensor.I64, shape[0])
		}
	}
	b.held = grown
	return nil
}

// room makes a buffer.
func room(name string, dt tensor.DType, shape []int) (*tensor.Tensor, error) {
	n, err := tensor.Elems(shape)
	if err == nil {
		err = memory.Check(n * dt.Size())
	}
	if err != nil {
		return nil, fmt.Errorf("input %s: %v: %w", name, err, ErrInvalid)
	}
	return tensor.New(dt, shape...), nil
}

// copyRows copies the first n rows along an axis.
func copyRows(dst, src *tensor.Tensor, axis, n int) {
	outer, row := 1, src.DType().Size()
	for _, d := range src.Shape()[:axis] {
		outer *= d
	}
	for _, d := range src.Shape()[axis+1:] {
		row *= d
	}
	for i := range outer {
		copy(dst.Bytes()[i*dst.Dim(axis)*row:][:n*row], src.Bytes()[i*src.Dim(axis)*row:])
	}
}

// clearRows makes rows along an axis zero, from the given one on.
func clearRows(t *tensor.Tensor, axis, from int) {
	outer, row := 1, t.DType().Size()
	for _, d := range t.Shape()[:axis] {
		outer *= d
	}
	for _, d := range t.Shape()[axis+1:] {
		row *= d
	}
	for i := range outer {
		clear(t.Bytes()[(i*t.Dim(axis)+from)*row : (i+1)*t.Dim(axis)*row])
	}
}

// pad puts inputs that are as long as the caches after the step into buffers of the capacity.
func (b *buffers) pad(length int) error {
	for i, axis := range b.static.Padded {
		x, v := b.given[i], b.model.graph.Inputs[i]
		if x == nil || x.DType() != v.Type.DType || x.Rank() != len(v.Type.Dims) || x.Dim(axis) != length {
			if err := b.wrong(); err != nil {
				return err
			}
			return fmt.Errorf("input %s is %v, want size %d along axis %d, that of the caches after the step: %w", v.Name, x, length, axis, ErrInvalid)
		}
		if !b.fits(i, axis) {
			shape := slices.Clone(x.Shape())
			shape[axis] = b.capacity
			var err error
			if b.wide[i], err = room(v.Name, x.DType(), shape); err != nil {
				return err
			}
		}
		copyRows(b.wide[i], x, axis, length)
		clearRows(b.wide[i], axis, length)
		b.in[i] = b.wide[i]
	}
	return nil
}

// told checks the inputs that say how many rows the caches have after the step.
func (b *buffers) told(length int) error {
	for _, total := range []bool{true, false} {
		list, want := b.static.Lasts, "positions within"
		if total {
			list, want = b.static.Totals, "the length of"
		}
		for _, i := range list {
			x, v := b.given[i], b.model.graph.Inputs[i]
			if x == nil || x.DType() != v.Type.DType || x.Rank() != v.Type.Rank() {
				return b.wrong()
			}
			for k := range x.Len() {
				n := 0
				if x.DType() == tensor.I32 {
					n = int(tensor.Data[int32](x)[k])
				} else {
					n = int(tensor.Data[int64](x)[k])
				}
				if total && n != length || n < 0 || n > length {
					return fmt.Errorf("input %s has %d, want %s the caches after the step, %d: %w", v.Name, n, want, length, ErrInvalid)
				}
			}
		}
	}
	return nil
}

// fits reports whether the buffer of a padded input is one for what was given.
func (b *buffers) fits(i, axis int) bool {
	w := b.wide[i]
	if w == nil || w.Dim(axis) != b.capacity {
		return false
	}
	for k, n := range b.given[i].Shape() {
		if k != axis && n != w.Dim(k) {
			return false
		}
	}
	return true
}

// take makes the caches hold what the caller gives for tied inputs: all of them, of one length.
func (b *buffers) take(s *Session) error {
	first := -1
	for i := range b.static.Caches {
		if b.given[i] != nil {
			first = i
		}
	}
	if first < 0 {
		return nil
	}
	length := -1
	for i, v := range b.model.graph.Inputs {
		axis, is := b.static.Caches[i]
		if !is {
			continue
		}
		t := b.given[i]
		if t == nil || t.DType() != v.Type.DType || t.Rank() != len(v.Type.Dims) || length >= 0 && t.Dim(axis) != length {
			return fmt.Errorf("input %s is %v, want %v, and as long as the caches that are given with it: %w", v.Name, t, v.Type, ErrInvalid)
		}
		length = t.Dim(axis)
	}
	if err := ir.CheckInputs(b.model.graph, b.given); err != nil {
		return err
	}
	b.reset()
	if err := b.reserve(s, length); err != nil {
		return err
	}
	for i, axis := range b.static.Caches {
		copyRows(b.caches[i], b.given[i], axis, length)
	}
	b.length = length
	return nil
}
