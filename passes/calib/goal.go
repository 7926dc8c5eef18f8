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
	out   map[int][]*tensor.Tensor // by sample, nil where that is too much to keep
}

// Goal evaluates the dense copy, g being the original, on the samples of a frontier of the
// twins that pick chooses, all where it is nil. Its outputs are kept where they take no more
// than budget bytes, DefaultBudget where that is 0.
func (t *Twins) Goal(ctx context.Context, front *Frontier, g *ir.Graph, pick func(sample int) bool, budget int) (*Goal, error) {
	if budget == 0 {
		budget = DefaultBudget
	}
	front.Keep(t.Graph.Outputs...) // the position may pass some that no node reads
	goal := &Goal{twins: t, g: g, pick: pick, out: map[int][]*tensor.Tensor{}}
	err := front.SeeSome(ctx, t.Graph.Outputs[:len(g.Outputs)], pick, func(i int, values []*tensor.Tensor) error {
		if goal.out == nil {
			return nil
		}
		var all []*tensor.Tensor
		for _, v := range values {
			budget -= len(v.Bytes())
			all = append(all, v.Clone())
		}
		if goal.out[i] = all; budget < 0 {
			goal.out = nil
		}
		return nil
	})
	return goal, err
}

// Divergence evaluates the pruned copy, as its constants are now, on the same samples of a
// frontier.
func (o *Goal) Divergence(ctx context.Context, front *Frontier) (float64, error) {
	d, n := NewDivergence(o.g), len(o.g.Outputs)
	values := o.twins.Graph.Outputs
	if o.out != nil {
		values = values[n:]
	}
	err := front.SeeSome(ctx, values, o.pick, func(i int, out []*tensor.Tensor) error {
		if o.out != nil {
			return d.Add(o.out[i], out)
		}
		return d.Add(out[:n], out[n:])
	})
	return d.Value(), err
}
