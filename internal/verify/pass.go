package verify

import (
	"context"

	"spc/ir"
	"spc/ir/tensor"
)

// OfPass finds the first pass after which the interpreter computes something else, and the
// first node of its result that is the reason; it is nil where there is no such pass. run
// runs the passes on a graph and calls each after every one.
func (b *Bench) OfPass(ctx context.Context, g *ir.Graph, in []*tensor.Tensor, run func(g *ir.Graph, each func(pass string, g *ir.Graph) error) error) (*Fault, error) {
	before, err := b.Evaluate(ctx, g, in)
	if err != nil {
		return nil, err
	}
	want := before.Out
	var found *Fault
	err = run(g.Clone(), func(pass string, g *ir.Graph) error {
		if found != nil {
			return nil
		}
		after, err := b.Evaluate(ctx, g.Clone(), in)
		if err != nil {
			return err
		}
		if !b.same(after.Out, want) {
			if found = b.OfGraph(after, before); found == nil { // each value is one of before
				found = b.ofOutputs(after, want)
			}
			found.Stage, found.Pass, found.Constants = InPass, pass, nil
		}
		before = after
		return nil
	})
	return found, err
}
