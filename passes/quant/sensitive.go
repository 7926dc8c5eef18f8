package quant

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
)

// Limits of the search for sensitive products.
const (
	// enough is the divergence below which nobody looks for them: that many nats,
	// or that share of the variance of the outputs.
	enough = 0.01
	// sensitiveShare is the share of the divergence of the quantised model that a
	// product makes, quantised alone, if it is sensitive.
	sensitiveShare = 0.25
	// gain is the part that must be left of the divergence, at most, for leaving
	// sensitive products in floating point to be worth it.
	gain = 0.8
	// maxTrials is the number of quantised models that are evaluated.
	maxTrials = 64
	// trialRows is the number of samples on which they are, in whole batches;
	// trialBytes bounds the inputs of these.
	trialRows  = 32
	trialBytes = 64 << 20
)

// trials compares quantised models with the one in floating point on some samples.
type trials struct {
	*Options
	ctx    context.Context
	g      *ir.Graph
	seen   *observed
	inputs [][]*tensor.Tensor
	want   [][]*tensor.Tensor
	left   int
}

// sensitive names the products to quantise: all but those that alone make a large
// share of the divergence. They are found by halving: a set of products that, quantised
// without the others, makes less than the share has no sensitive one among it. What is
// left is looked at again until it diverges little, or no product stands out. A model
// without outputs in floating point is quantised as a whole.
func (o *Options) sensitive(ctx context.Context, g *ir.Graph, names []string, seen *observed, r *Result) ([]string, error) {
	if !calib.NewDivergence(g).Counts() {
		return names, nil
	}
	t := &trials{Options: o, ctx: ctx, g: g, seen: seen, left: maxTrials}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	all, err := t.divergence(names)
	if err != nil {
		return nil, err
	}
	for all > enough {
		found := map[string]float64{}
		if err := t.search(names, sensitiveShare*all, found); err != nil {
			return nil, err
		}
		if len(found) == 0 {
			break
		}
		rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return found[n] > 0 })
		left, err := t.divergence(rest)
		if err != nil {
			return nil, err
		}
		if left > gain*all {
			break
		}
		for _, n := range g.Nodes {
			if d := found[n.Name]; d > 0 {
				r.Kept = append(r.Kept, Kept{n.Name, n.Inputs[1].Name,
					fmt.Sprintf("sensitive: the outputs diverge by %.2g with it alone in integers, by %.2g with all", d, all)})
			}
		}
		names, all = rest, left
	}
	r.Divergence = all
	return names, nil
}

// search adds to found the products among names that alone diverge by at least so
// much.
func (t *trials) search(names []string, least float64, found map[string]float64) error {
	if len(names) == 0 || t.left <= 0 {
		return nil
	}
	t.left--
	d, err := t.divergence(names)
	if err != nil || d < least {
		return err
	}
	if len(names) == 1 {
		found[names[0]] = d
		return nil
	}
	if err := t.search(names[:len(names)/2], least, found); err != nil {
		return err
	}
	return t.search(names[len(names)/2:], least, found)
}

// prepare collects the samples and what the model gives for them.
func (t *trials) prepare() error {
	stride, seen, rows, bytes := 1, 0, 0, 0
	measure := func(s []*tensor.Tensor) (r, b int) {
		r = 1
		for _, x := range s {
			b += len(x.Bytes())
			if x.Rank() > 0 {
				r = max(r, x.Dim(0))
			}
		}
		return r, b
	}
	for sample, err := range t.Observer.Inputs(t.ctx, t.g) {
		if err != nil {
			return err
		}
		if seen++; (seen-1)%stride != 0 {
			continue
		}
		r, b := measure(sample)
		t.inputs, rows, bytes = append(t.inputs, clones(sample)), rows+r, bytes+b
		for len(t.inputs) > 1 && (rows-r >= trialRows || bytes > trialBytes) {
			// Every other one is left out, so that those kept stay spread evenly.
			stride, rows, bytes = 2*stride, 0, 0
			kept := t.inputs[:0]
			for i := 0; i < len(t.inputs); i += 2 {
				r, b := measure(t.inputs[i])
				kept, rows, bytes = append(kept, t.inputs[i]), rows+r, bytes+b
			}
			clear(t.inputs[len(kept):])
			t.inputs = kept
		}
	}
	return t.run(t.g.Clone(), func(out []*tensor.Tensor) error {
		t.want = append(t.want, clones(out))
		return nil
	})
}

// clones copies tensors whose memory whoever gave them may use again.
func clones(ts []*tensor.Tensor) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(ts))
	for i, t := range ts {
		out[i] = t.Clone()
	}
	return out
}

// run evaluates a graph, which may change, on the samples.
func (t *trials) run(g *ir.Graph, see func(out []*tensor.Tensor) error) error {
	var in iter.Seq2[[]*tensor.Tensor, error] = func(yield func([]*tensor.Tensor, error) bool) {
		for _, s := range t.inputs {
			if !yield(s, nil) {
				return
			}
		}
	}
	return t.Observer.Run(t.ctx, g, in, see)
}

// divergence is that of the model in which the named products are quantised.
func (t *trials) divergence(names []string) (float64, error) {
	t.report(sensitiveStage, maxTrials-t.left, maxTrials)
	g := t.g.Clone()
	if err := t.round(g, names, t.seen); err != nil {
		return 0, err
	}
	d := calib.NewDivergence(t.g)
	i := 0
	err := t.run(g, func(out []*tensor.Tensor) error {
		i++
		return d.Add(t.want[i-1], out)
	})
	return d.Value(), err
}
