package fit

import (
	"math"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/obs"
	"spc/passes/prune"
)

// The stages of depth.
const (
	branchMeans  = "means of branches"
	branchLosses = "losses of branches"
)

// checkDepth refuses what has no meaning where branches go as a whole.
func (o *Options) checkDepth() error {
	switch {
	case o.Pattern.Kind != prune.Depth:
		return nil
	case o.Observer == nil:
		return option.Errorf("%v depth needs calibration samples, which %v gives: what a branch does to the outputs is not in its weights", option.Pattern, option.Calibration)
	case o.Allocate != Auto:
		return option.Errorf("%v %s: %v %v removes whole branches, those first without which the outputs lose least, so that no layer has a share of its own; want %s", option.Allocate, o.Allocate, option.Pattern, o.Pattern, Auto)
	case o.Cache != "":
		return option.Errorf("%v %s: %v %v keeps nothing in it, want none", option.CalibrationCache, o.Cache, option.Pattern, o.Pattern)
	}
	return nil
}

// depth removes residual branches, one after another: that next without which the outputs diverge
// the least from the dense model's for each weight that goes. The mean of what it gave stays
// in its place, and layers behind are solved for on what they see then.
func (f *fitter) depth(out *Result) error {
	if !calib.NewDivergence(f.graph).Counts() {
		return option.Errorf("%v depth: branches go by what the outputs lose, and the model has no output of floats", option.Pattern)
	}
	branches, err := f.plan.Branches()
	if err != nil {
		return err
	}
	if err := f.open(); err != nil {
		return err
	}
	out.Runs, out.Samples = f.samples, f.samples
	if err := f.means(branches); err != nil {
		return err
	}
	if err := f.shed(branches); err != nil {
		return err
	}
	f.layers = f.behind(branches)
	best, err := f.built("prune", make([]float64, len(f.layers)), f.learning())
	if err != nil {
		return err
	}
	if err := f.adopt(best, out); err != nil {
		return err
	}
	for k, l := range f.layers {
		f.plan.Layers[l.at].How = best.edits[k].how
	}
	return f.plan.RemoveBranches(f.gone)
}

// means sees what branches give.
func (f *fitter) means(branches []*prune.Branch) error {
	var values []*ir.Value
	sums := make([][]float64, len(branches))
	counts := make([]float64, len(branches))
	for k, b := range branches {
		values = append(values, b.Value())
		sums[k] = make([]float64, b.Channels())
	}
	f.report(branchMeans, 0, 1)
	front := f.Observer.Frontier(f.graph, f.Budget)
	defer front.Close()
	err := front.See(f.ctx, values, func(_ int, seen []*tensor.Tensor) error {
		for k, t := range seen {
			inner := 1
			if a := branches[k].Axis; a >= 0 {
				for _, d := range t.Shape()[a+1:] {
					inner *= d
				}
			}
			for i, x := range t.F32s() {
				sums[k][i/inner%len(sums[k])] += float64(x)
			}
			counts[k] += float64(t.Len() / len(sums[k]))
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.report(branchMeans, 1, 1)
	for k, b := range branches {
		mean := make([]float32, len(sums[k]))
		for i, s := range sums[k] {
			mean[i] = float32(s / math.Max(1, counts[k]))
		}
		b.Holds(mean)
	}
	return nil
}

// shed decides which branches go.
func (f *fitter) shed(branches []*prune.Branch) error {
	twins, few := calib.NewTwins(f.graph), f.few()
	front := few.Frontier(twins.Graph, f.Budget)
	defer func() { front.Close() }() // it is another one in each round
	goal, err := twins.Goal(f.ctx, front, f.graph, nil, f.Budget)
	if err != nil {
		return err
	}
	defer goal.Close()
	now, total := 0.0, 0
	for _, l := range f.plan.Layers {
		if l.Prunable {
			total += l.Weights
		}
	}
	gone := 0
	for {
		near := f.nearer(branches, gone, total)
		if len(near) == 0 {
			f.report(branchLosses, total, total)
			return f.anyGone(branches, total)
		}
		front.Keep(twins.Graph.Outputs...)
		var best *prune.Branch
		least, then := math.Inf(1), 0.0
		for k, b := range near {
			f.report(branchLosses, gone+k*f.plan.Size(b, f.gone)/len(near), total)
			if err := front.Advance(f.ctx, front.Index(twins.DenseNode(b.Sum))); err != nil {
				return err
			}
			twins.SetInput(b.Sum, b.Input, b.Constant)
			d, err := goal.Divergence(f.ctx, front)
			if err != nil {
				return err
			}
			twins.PrunedNode(b.Sum).SetInput(b.Input, twins.Pruned(b.Value()))
			if loss := (d - now) / float64(f.plan.Size(b, f.gone)); loss < least || best == nil {
				best, least, then = b, loss, d
			}
		}
		gone += f.plan.Size(best, f.gone)
		f.gone = append(slices.DeleteFunc(f.gone, best.Covers), best)
		twins.SetInput(best.Sum, best.Input, best.Constant)
		now = then
		front.Close()
		front = few.Frontier(twins.Graph, f.Budget)
	}
}

// anyGone refuses a sparsity that the least of the branches exceeds by too much.
func (f *fitter) anyGone(branches []*prune.Branch, total int) error {
	least := total
	for _, b := range branches {
		least = min(least, f.plan.Size(b, nil))
	}
	if len(f.gone) > 0 {
		return nil
	}
	share := 100 * float64(least) / float64(total)
	return option.Errorf("%v %v: %v depth removes whole branches, and the least of the branches has %.1f%% of the prunable weights, want more than half of that", option.Sparsity, f.Sparsity, option.Pattern, share)
}

// nearer lists the branches that are left and without which as many weights of all are gone, or more
// nearly so, as are to go.
func (f *fitter) nearer(branches []*prune.Branch, gone, total int) []*prune.Branch {
	short := f.Sparsity*float64(total) - float64(gone)
	return slices.DeleteFunc(slices.Clone(branches), func(b *prune.Branch) bool {
		n := f.plan.Size(b, f.gone)
		return n == 0 || math.Abs(float64(n)-short) >= short
	})
}

// stream is the sum of a skip and of what a layer gives, and what it is to give: what the dense model's gives there, or
// behind branches that are gone.
type stream struct{ skip, want *ir.Value }

// streams returns those of the layers that end the branches that stay, by their nodes. What ends a branch before others that are gone
// makes up for them, so that nothing else stands in their places.
func (f *fitter) streams(branches []*prune.Branch) map[*ir.Node]*stream {
	out := map[*ir.Node]*stream{}
	if !f.solves() || f.Aim != Outputs || f.Uncorrected {
		return out
	}
	for _, b := range branches {
		if slices.ContainsFunc(f.gone, func(g *prune.Branch) bool { return g.Covers(b) }) {
			continue
		}
		i := slices.IndexFunc(b.Layers, func(i int) bool { return f.plan.Use(i).Node == b.Value().Def })
		if i < 0 || !f.absorbs(f.layer(b.Layers[i])) || !aims(f.plan.Use(b.Layers[i])) {
			continue
		}
		want, through := b.Follow(f.gone)
		for _, g := range through {
			g.Holds(make([]float32, g.Channels()))
		}
		out[b.Value().Def] = &stream{b.Sum.Inputs[1-b.Input], want}
	}
	return out
}

// aims reports whether calib.GramOptions.Want is for such a weight.
func aims(u ir.WeightUse) bool {
	if u.Value.Const == nil || u.Value.Const.DType() != tensor.F32 {
		return false
	}
	switch o := u.Node.Op.(type) {
	case *op.Conv, *op.MatMul:
		return true
	case *op.Gemm:
		return !o.TransA
	}
	return false
}

// behind lists the layers that stay and see other inputs without the branches that go, and those that make up for what goes.
func (f *fitter) behind(branches []*prune.Branch) []*layer {
	streams := f.streams(branches)
	changed := map[*ir.Value]bool{}
	for _, b := range f.gone {
		changed[b.Sum.Outputs[0]] = true
	}
	for n, s := range streams {
		if s.want.Def.Inputs[0] != n.Outputs[0] && s.want.Def.Inputs[1] != n.Outputs[0] { // another sum
			changed[n.Outputs[0]] = true
		}
	}
	moved := map[*ir.Node]bool{}
	for _, n := range f.graph.Nodes {
		n.Reads(func(v *ir.Value) { moved[n] = moved[n] || changed[v] })
		for _, v := range n.Outputs {
			if v != nil && moved[n] {
				changed[v] = true
			}
			moved[n] = moved[n] || changed[v]
		}
	}
	var out []*layer
	for i := range f.plan.Layers {
		use := f.plan.Use(i)
		if v := use.Value; v.Const == nil || v.Const.DType() != tensor.F32 || !f.plan.Layers[i].Prunable || !moved[use.Node] {
			continue
		}
		if slices.ContainsFunc(f.gone, func(b *prune.Branch) bool { return b.Takes(use.Node) }) {
			continue
		}
		l := f.layer(i)
		l.stream = streams[use.Node]
		l.stays = prune.NewMask(l.rows, l.cols)
		for r := range l.rows {
			for c := range l.cols {
				l.stays.Set(r, c)
			}
		}
		out = append(out, l)
	}
	return out
}

// absorb has a layer give what its sum is to give less the skip.
func (f *fitter) absorb(l *layer, s *obs.Solver, g *calib.Gram) (*edit, error) {
	tx := slices.Clone(g.TX)
	for r := range l.rows {
		for c := range l.cols {
			if s.H[c*l.cols+c] == 0 {
				tx[r*l.cols+c] = 0
			} else {
				tx[r*l.cols+c] -= g.T[r] * g.X[c] / float64(g.N)
			}
		}
	}
	w, err := s.Toward(f.ctx, tx)
	if err != nil {
		return nil, err
	}
	e := &edit{w: w, bias: make([]float32, l.rows), how: strings.ToUpper(string(f.Method)) + " for what the sum behind it gives"}
	for r := range l.rows {
		sum := g.T[r]
		for c, x := range g.X {
			sum -= float64(w[r*l.cols+c]) * x
		}
		e.bias[r] = float32(sum / float64(g.N))
	}
	return e, nil
}

// untrained names what changes no more: what the user keeps, and branches that are gone.
func (f *fitter) untrained() []string {
	names := f.plan.Kept()
	for _, b := range f.gone {
		names = append(names, b.Nodes()...)
	}
	return names
}
