package calib

import (
	"context"

	"spc/ir"
	"spc/ir/tensor"
)

// Goal is what the dense copy of Twins gives for samples, and measures how far the pruned
// copy is from that.
type Goal struct {
	twins *Twins
	g     *ir.Graph
	pick  func(sample int) bool
	out   map[int][]*kept // by sample, nil where that is too much to keep
}

// Goal evaluates the dense copy, g being the original, on the samples of a frontier of the
// twins that pick chooses, all where it is nil. Its outputs are kept where they take no more
// than budget bytes, DefaultBudget where that is 0, or where the frontier's observer has a
// Room, until Close.
func (t *Twins) Goal(ctx context.Context, front *Frontier, g *ir.Graph, pick func(sample int) bool, budget int) (*Goal, error) {
	switch {
	case front.o.Room != nil:
		budget = unbounded
	case budget == 0:
		budget = DefaultBudget
	}
	front.Keep(t.Graph.Outputs...) // the position may pass some that no node reads
	goal := &Goal{twins: t, g: g, pick: pick, out: map[int][]*kept{}}
	err := front.SeeSome(ctx, t.Graph.Outputs[:len(g.Outputs)], pick, func(i int, values []*tensor.Tensor) error {
		if goal.out == nil {
			return nil
		}
		for _, v := range values {
			k, err := front.o.Room.put(v, false)
			if err != nil {
				return err
			}
			budget -= k.bytes
			goal.out[i] = append(goal.out[i], k)
		}
		if budget < 0 {
			goal.out = nil
		}
		return nil
	})
	if err != nil {
		goal.Close()
		return nil, err
	}
	return goal, nil
}

// Close gives back what is kept. The goal, which may be nil, is of no use any more.
func (o *Goal) Close() {
	if o == nil {
		return
	}
	for _, list := range o.out {
		dropAll([][]*kept{list})
	}
	o.out = nil
}

// Divergence evaluates the pruned copy, as its constants are now, on the same samples of a
// frontier.
func (o *Goal) Divergence(ctx context.Context, front *Frontier) (float64, error) {
	d, n := NewDivergence(o.g), len(o.g.Outputs)
	values := o.twins.Graph.Outputs
	if o.out != nil {
		values = values[n:]
	}
	buffers := make([][]byte, n)
	err := front.SeeSome(ctx, values, o.pick, func(i int, out []*tensor.Tensor) error {
		if o.out != nil {
			want := make([]*tensor.Tensor, n)
			for k, t := range o.out[i] {
				var err error
				if want[k], err = t.read(buffers[k]); err != nil {
					return err
				}
				if t.t == nil {
					buffers[k] = want[k].Bytes()
				}
			}
			return d.Add(want, out)
		}
		return d.Add(out[:n], out[n:])
	})
	return d.Value(), err
}
