package fuse

import (
	"math"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Bands spells what windows and offsets hide from queries of known shapes as a mask, for back ends whose attention
// computes no order but the causal one.
func Bands(g *ir.Graph) (int, error) { return rewrite(g, spellBand) }

func spellBand(n *ir.Node) (bool, error) {
	o, ok := n.Op.(*op.Attention)
	if !ok || !isF32(n.Inputs[0]) {
		return false, nil
	}
	for _, v := range append(n.Inputs[:3:3], n.Outputs[0]) {
		if !v.Type.Static() {
			return false, nil
		}
	}
	plan, ok := o.Plan(n)
	if !ok || plan.Band.Lengths || plan.Band.Open() || plan.Band.Causal() {
		return false, nil
	}
	mask := n.Input(3)
	if mask != nil && (!mask.Type.Ranked || mask.Type.Dims[mask.Type.Rank()-1] != ir.Size(plan.Keys)) {
		return false, nil // of fewer keys
	}
	shows := make([]bool, plan.Queries*plan.Keys)
	for i := range shows {
		d := i%plan.Keys - i/plan.Keys - plan.Band.Offset
		shows[i] = d >= plan.Band.From && d <= plan.Band.To
	}
	b := builder{n}
	band := b.constant("band", tensor.From(shows, plan.Queries, plan.Keys))
	var err error
	switch {
	case mask == nil:
		mask = band
	case mask.Type.DType == tensor.Bool:
		mask, err = b.add("shows", "And", nil, mask, band)
	default:
		mask, err = b.add("hides", "Where", nil, band, mask, b.constant("hide", tensor.Scalar(float32(math.Inf(-1)))))
	}
	if err != nil {
		return false, err
	}
	plain := *o
	plain.Causal, plain.LeftWindow, plain.RightWindow, plain.Aligned = false, -1, -1, false
	return true, replace(n, &plain, n.Inputs[0], n.Inputs[1], n.Inputs[2], mask)
}
