package calib

import (
	"context"
	"fmt"

	"spc/ir"
	"spc/ir/tensor"
)

// Between measures how far what changed gives is from what dense gives, on so many of the samples,
// evenly spread, or on all where they are no more, and returns on how many. The two have the same inputs and
// outputs, and may differ in everything between; what both compute from the same constants is
// evaluated once. What is kept of samples takes up to budget bytes, DefaultBudget where that is 0.
func (o *Observer) Between(ctx context.Context, dense, changed *ir.Graph, budget, most int) (*Divergence, int, error) {
	both := ir.NewGraph(dense.Name)
	a, b := ir.NewCopier(both, dense, ".dense"), ir.NewCopier(both, changed, "")
	if len(dense.Inputs) != len(changed.Inputs) || len(dense.Outputs) != len(changed.Outputs) {
		return nil, 0, fmt.Errorf("%d inputs and %d outputs, want %d and %d as the dense graph: %w", len(changed.Inputs), len(changed.Outputs), len(dense.Inputs), len(dense.Outputs), ir.ErrInvalid)
	}
	for i, v := range dense.Inputs {
		in := both.NewInput(v.Name, v.Type)
		a.Bind(v, in)
		b.Bind(changed.Inputs[i], in)
	}
	for _, n := range dense.Nodes {
		a.Node(n)
	}
	for _, n := range changed.Nodes {
		b.Node(n)
	}
	for _, v := range dense.Outputs {
		both.Outputs = append(both.Outputs, a.Value(v))
	}
	for _, v := range changed.Outputs {
		both.Outputs = append(both.Outputs, b.Value(v))
	}
	front := o.Frontier(both, budget)
	defer front.Close()
	samples, err := front.Samples(ctx)
	if err != nil {
		return nil, 0, err
	}
	d, n, runs := NewDivergence(dense), len(dense.Outputs), min(samples, most)
	picked := func(i int) bool { return (i+1)*runs/samples > i*runs/samples }
	if runs < samples && front.far(len(both.Nodes)) { // on the way there it would evaluate all samples
		front.Close()
		some := *o
		some.Inputs = o.Inputs.Some(picked)
		return some.Between(ctx, dense, changed, budget, runs)
	}
	front.Keep(both.Outputs...)
	if err := front.Approach(ctx, len(both.Nodes)); err != nil {
		return nil, 0, err
	}
	err = front.SeeSome(ctx, both.Outputs, picked, func(_ int, out []*tensor.Tensor) error { return d.Add(out[:n], out[n:]) })
	return d, runs, err
}
