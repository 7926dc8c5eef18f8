package spc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"spc/ir/tensor"
)

// SessionOptions say what a session hands on from one step to the next.
type SessionOptions struct {
	// Ties names outputs, each with the input that takes its value in the next step: PastTies finds those of usual names.
	Ties map[string]string
	// Capacity bounds the size of a state along the axis in which it grows, as a cache of keys does by the tokens of a step;
	// 0 means any size.
	Capacity int
}

// Session runs a model step by step: outputs that are tied to inputs are their values in the next step. It is made by
// NewSession, and one step runs at a time, while others wait.
type Session struct {
	run     func(ctx context.Context, in, out map[string]*tensor.Tensor) error
	inputs  []Port
	options SessionOptions

	mu      sync.Mutex
	ties    []*tie
	buffers *buffers // nil where states are copied
	copies  string
	closed  bool
	in, out map[string]*tensor.Tensor // of a step
}

// tie is an output whose value an input has in the next step.
type tie struct {
	out, in      string
	port         Port           // the input
	result       []Dim          // what is known of the output's shape
	axis         int            // along which the value grows, -1 where none or not one alone is known
	buffered     bool           // a buffer has the state
	state, spare *tensor.Tensor // nil before the first step; what a step may write its output to
}

// NewSession begins a session, which is to be closed before the model is.
func (m *Model) NewSession(o SessionOptions) (*Session, error) {
	s, err := newSession(m.Inputs(), m.Outputs(), o, m.RunInto)
	if err != nil || !slices.ContainsFunc(s.ties, func(t *tie) bool { return t.axis >= 0 }) {
		return s, err
	}
	d, why, err := m.decoder(o.Ties)
	if s.copies = why; d != nil {
		s.buffers = newBuffers(d, s.ties)
	}
	return s, err
}

// NewSession begins a session whose steps the reference interpreter evaluates.
func (o *Original) NewSession(so SessionOptions) (*Session, error) {
	return newSession(o.Inputs(), o.Outputs(), so, interpretInto(o.Interpret))
}

// NewInterpretedSession is NewSession by the reference interpreter: slow, and obviously right.
func (m *Model) NewInterpretedSession(o SessionOptions) (*Session, error) {
	return newSession(m.Inputs(), m.Outputs(), o, interpretInto(m.Interpret))
}

func interpretInto(interpret func(context.Context, map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error)) func(context.Context, map[string]*tensor.Tensor, map[string]*tensor.Tensor) error {
	return func(ctx context.Context, in, out map[string]*tensor.Tensor) error {
		got, err := interpret(ctx, in)
		maps.Copy(out, got)
		return err
	}
}

// pastNames are how exporters name what a step hands on: by the beginnings of the names of an output and of its input.
var pastNames = [][2]string{
	{"present_key_values", "past_key_values"},
	{"present", "past_key_values"},
	{"present", "past"},
}

// PastTies returns the ties of outputs that are named as caches are to inputs named after them: present.0.key to
// past_key_values.0.key, present_0 to past_0.
func PastTies(inputs, outputs []Port) map[string]string {
	ties := map[string]string{}
	for _, out := range outputs {
		for _, n := range pastNames {
			rest, named := strings.CutPrefix(out.Name, n[0])
			if i := portNamed(inputs, n[1]+rest); named && i >= 0 && ties[out.Name] == "" && fits(out, inputs[i]) {
				ties[out.Name] = inputs[i].Name
			}
		}
	}
	return ties
}

func portNamed(ports []Port, name string) int {
	return slices.IndexFunc(ports, func(p Port) bool { return p.Name == name })
}

// fits reports whether an output may be of the type of an input.
func fits(out, in Port) bool {
	if in.DType != out.DType || in.Elem != nil || !in.Ranked || out.Ranked && len(in.Dims) != len(out.Dims) {
		return false
	}
	for i, d := range out.Dims {
		if e := in.Dims[i]; d.Known() && e.Known() && d != e {
			return false
		}
	}
	return true
}

func newSession(inputs, outputs []Port, o SessionOptions, run func(ctx context.Context, in, out map[string]*tensor.Tensor) error) (*Session, error) {
	if o.Capacity < 0 {
		return nil, fmt.Errorf("SessionOptions.Capacity %d: want at least 0", o.Capacity)
	}
	s := &Session{run: run, inputs: inputs, options: o, in: map[string]*tensor.Tensor{}, out: map[string]*tensor.Tensor{}}
	from := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Ties)) {
		i, k := portNamed(outputs, name), portNamed(inputs, o.Ties[name])
		switch {
		case i < 0:
			return nil, fmt.Errorf("SessionOptions.Ties: no output is named %q; the outputs are %s: %w", name, portNames(outputs), ErrInvalid)
		case k < 0:
			return nil, fmt.Errorf("SessionOptions.Ties: no input is named %q; the inputs are %s: %w", o.Ties[name], portNames(inputs), ErrInvalid)
		case !fits(outputs[i], inputs[k]):
			return nil, fmt.Errorf("SessionOptions.Ties: output %s is %v, want what input %s takes, %v: %w", name, outputs[i], inputs[k].Name, inputs[k], ErrInvalid)
		case from[inputs[k].Name] != "":
			return nil, fmt.Errorf("SessionOptions.Ties: outputs %s and %s are both tied to input %s, want one: %w", from[inputs[k].Name], name, inputs[k].Name, ErrInvalid)
		}
		from[inputs[k].Name] = name
		s.ties = append(s.ties, &tie{out: name, in: inputs[k].Name, port: inputs[k], result: outputs[i].Dims, axis: growth(inputs[k], outputs[i])})
	}
	return s, nil
}

func portNames(ports []Port) string {
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// growth returns the axis along which an output is larger than an input, or may be, -1 where there is none or more than one.
func growth(in, out Port) int {
	axis := -1
	for i, d := range out.Dims {
		if d == in.Dims[i] || d.Known() && in.Dims[i].Known() {
			continue
		}
		if axis >= 0 {
			return -1
		}
		axis = i
	}
	return axis
}

// Step runs the model once. inputs has those that are not tied, and may have tied ones, which then take the place of what the
// step before left; in the first step tied inputs are zeros, of no elements along axes that no other input tells the size of.
// The other outputs are put into outputs as RunInto does. After an error the session, and outputs, are as they were.
func (s *Session) Step(ctx context.Context, inputs, outputs map[string]*tensor.Tensor) error {
	if outputs == nil {
		return fmt.Errorf("no map for the outputs: %w", ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("the session is closed: %w", ErrInvalid)
	}
	defer s.forget()
	maps.Copy(s.in, inputs)
	for _, t := range s.ties {
		if s.in[t.in] != nil || t.buffered {
			continue
		}
		if t.state == nil {
			var err error
			if t.state, err = room(t.in, t.port.DType, s.shape(t.port)); err != nil {
				return err
			}
		}
		s.in[t.in] = t.state
	}
	maps.Copy(s.out, outputs)
	for _, t := range s.ties {
		s.out[t.out] = t.spare
	}
	if err := s.compute(ctx); err != nil {
		return err
	}
	for _, t := range s.ties {
		if !t.buffered {
			t.spare, t.state = t.state, s.out[t.out]
		}
		delete(s.out, t.out)
	}
	maps.Copy(outputs, s.out)
	return nil
}

// compute runs the model on s.in, and checks that the next step could take what is in s.out then.
func (s *Session) compute(ctx context.Context) error {
	if s.buffers != nil {
		return s.buffers.step(ctx, s)
	}
	if err := s.room(); err != nil {
		return err
	}
	if err := s.run(ctx, s.in, s.out); err != nil {
		return err
	}
	for _, t := range s.ties {
		if err := t.check(s.out[t.out], s.options.Capacity); err != nil {
			return err
		}
	}
	return nil
}

// forget lets go of what is the caller's.
func (s *Session) forget() {
	clear(s.in)
	clear(s.out)
}

// shape is that of a state when a session begins: sizes that inputs tell, while those that are open are 0.
func (s *Session) shape(p Port) []int {
	sizes := s.sizes(s.in)
	shape := make([]int, len(p.Dims))
	for i, d := range p.Dims {
		if n, ok := d.At(sizes); ok {
			shape[i] = n
		}
	}
	return shape
}

// sizes are those of symbols in the inputs that are there.
func (s *Session) sizes(inputs map[string]*tensor.Tensor) map[string]int {
	sizes := map[string]int{}
	for _, p := range s.inputs {
		if t := inputs[p.Name]; t != nil && t.Rank() == len(p.Dims) {
			for i, d := range p.Dims {
				if !d.Known() {
					sizes[d.Symbol()] = t.Dim(i)
				}
			}
		}
	}
	return sizes
}

// room refuses, before it runs, a step that is known to make a state larger than the capacity.
func (s *Session) room() error {
	if s.options.Capacity == 0 {
		return nil
	}
	sizes := s.sizes(s.in)
	for _, t := range s.ties {
		if t.axis < 0 {
			continue
		}
		if n, ok := t.result[t.axis].At(sizes); ok && n > s.options.Capacity {
			return t.full(n, s.options.Capacity)
		}
	}
	return nil
}

// full is the error of a state that would be too large.
func (t *tie) full(n, capacity int) error {
	return fmt.Errorf("output %s, tied to input %s, would have size %d along axis %d, want at most the capacity, %d: %w", t.out, t.in, n, t.axis, capacity, ErrInvalid)
}

// check refuses a value that the next step could not take.
func (t *tie) check(v *tensor.Tensor, capacity int) error {
	ok := v.Rank() == len(t.port.Dims)
	for i := 0; ok && i < v.Rank(); i++ {
		ok = !t.port.Dims[i].Known() || t.port.Dims[i].Size() == v.Dim(i)
	}
	if !ok {
		return fmt.Errorf("output %s is %v, want what input %s takes, %v: %w", t.out, v, t.in, t.port, ErrInvalid)
	}
	if t.axis >= 0 && capacity > 0 && v.Dim(t.axis) > capacity {
		return t.full(v.Dim(t.axis), capacity)
	}
	return nil
}

// Length is the size of states along the axis in which they grow: the tokens that caches hold. It is 0 where none grows.
func (s *Session) Length() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffers != nil {
		return s.buffers.length
	}
	for _, t := range s.ties {
		if t.axis >= 0 && t.state != nil {
			return t.state.Dim(t.axis)
		}
	}
	return 0
}

// State returns a copy of what a tied input will be in the next step, nil before the first and for other inputs.
func (s *Session) State(input string) *tensor.Tensor {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.ties {
		if t.in != input {
			continue
		}
		if t.buffered {
			return s.buffers.named(input)
		}
		if t.state != nil {
			return t.state.Clone()
		}
	}
	return nil
}

// Copies says why the states that grow are copied in each step, so that a step takes longer the longer they are; empty where they
// are appended to where they lie.
func (s *Session) Copies() string { return s.copies }

// Reset begins anew: the next step is the first.
func (s *Session) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffers != nil {
		s.buffers.reset()
	}
	for _, t := range s.ties {
		if t.state != nil {
			t.state, t.spare = nil, t.state
		}
	}
}

// Close lets go of the states once a step that runs is done.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.ties, s.buffers = true, nil, nil
	return nil
}
