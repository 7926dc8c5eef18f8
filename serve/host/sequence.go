package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"spc"
	"spc/ir/tensor"
)

// Errors of sequences.
var (
	ErrSequence  = errors.New("no such sequence")
	ErrSequences = errors.New("too many sequences")
)

// Sequence says which sequence a request is of, and whether it is its first or its last.
type Sequence struct {
	ID         string
	Start, End bool
}

// sequences are the states of a model's sequences.
type sequences struct {
	ties map[string]string // outputs to inputs
	most int
	idle time.Duration

	mu sync.Mutex
	at map[string]*sequence
}

// sequence is the states of one, by the inputs that take them. One request has it at a time.
type sequence struct {
	turn   chan struct{}
	states map[string]*tensor.Tensor
	used   time.Time // under the lock of sequences
}

// newSequences checks states against ports; nil where there are none.
func newSequences(c *Config, inputs, outputs []spc.Port) (*sequences, error) {
	if len(c.States) == 0 {
		return nil, nil
	}
	find := func(list []spc.Port, what, name string) (spc.Port, error) {
		i := slices.IndexFunc(list, func(p spc.Port) bool { return p.Name == name })
		if i < 0 {
			return spc.Port{}, fmt.Errorf("states: the model has no %s %s", what, name)
		}
		return list[i], nil
	}
	for _, name := range names(c.States) {
		out, err := find(outputs, "output", name)
		if err != nil {
			return nil, err
		}
		in, err := find(inputs, "input", c.States[name])
		if err != nil {
			return nil, err
		}
		if in.DType != out.DType || in.Elem != nil || !in.Ranked || out.Ranked && len(in.Dims) != len(out.Dims) {
			return nil, fmt.Errorf("states: output %s is %v, input %s %v", out.Name, out, in.Name, in)
		}
	}
	idle := micros(c.MaxSequenceIdleMicroseconds)
	return &sequences{c.States, cmp.Or(c.MaxSequences, DefaultSequences), cmp.Or(idle, DefaultSequenceIdle), sync.Mutex{}, map[string]*sequence{}}, nil
}

// infer runs a task with the states of a sequence, and keeps those that come of it.
func (s *sequences) infer(ctx context.Context, h *Model, t *task, q *Sequence) error {
	if q == nil || q.ID == "" {
		return fmt.Errorf("the model keeps states: want the parameter sequence_id, and sequence_start with the first request: %w", spc.ErrInvalid)
	}
	one, err := s.find(q)
	if err != nil {
		return err
	}
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-one.turn }()
	given := t.inputs
	t.inputs = maps.Clone(given)
	for _, out := range names(s.ties) {
		in := s.ties[out]
		if t.inputs[in] != nil {
			continue
		}
		if t.inputs[in] = one.states[in]; t.inputs[in] == nil {
			if t.inputs[in], err = h.first(in, given); err != nil {
				return err
			}
		}
	}
	if _, err := h.ask(ctx, t); err != nil {
		return err
	}
	for out, in := range s.ties {
		one.states[in] = t.outputs[out]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.used = time.Now(); q.End && s.at[q.ID] == one {
		delete(s.at, q.ID)
	}
	return nil
}

// find returns a sequence that has begun, or begins it.
func (s *sequences) find(q *Sequence) (*sequence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	one := s.at[q.ID]
	if one != nil && now.Sub(one.used) > s.idle && len(one.turn) == 0 {
		delete(s.at, q.ID)
		one = nil
	}
	switch {
	case q.Start:
		if one == nil && len(s.at) >= s.most {
			maps.DeleteFunc(s.at, func(_ string, o *sequence) bool { return now.Sub(o.used) > s.idle && len(o.turn) == 0 })
			if len(s.at) >= s.most {
				return nil, fmt.Errorf("sequence %s: %d go on already: %w", q.ID, s.most, ErrSequences)
			}
		}
		one = &sequence{turn: make(chan struct{}, 1), states: map[string]*tensor.Tensor{}}
		s.at[q.ID] = one
	case one == nil:
		return nil, fmt.Errorf("sequence %s has not begun, has ended, or had no request for %v: %w", q.ID, s.idle, ErrSequence)
	}
	one.used = now
	return one, nil
}

// first is what a state is when a sequence begins: zeros, of sizes that other inputs tell, while those that are still open are 0.
func (h *Model) first(name string, given map[string]*tensor.Tensor) (*tensor.Tensor, error) {
	sizes := map[string]int{}
	for _, p := range h.inputs {
		if t := given[p.Name]; t != nil && t.Rank() == len(p.Dims) {
			for i, d := range p.Dims {
				if !d.Known() {
					sizes[d.Symbol()] = t.Dim(i)
				}
			}
		}
	}
	i := slices.IndexFunc(h.inputs, func(p spc.Port) bool { return p.Name == name })
	p := h.inputs[i]
	shape := []int{}
	for _, d := range p.Dims {
		n, ok := d.At(sizes)
		if !ok {
			n = 0
		}
		shape = append(shape, n)
	}
	if _, err := tensor.Elems(shape); err != nil {
		return nil, fmt.Errorf("input %s: %v: %w", name, err, spc.ErrInvalid)
	}
	return tensor.New(p.DType, shape...), nil
}
