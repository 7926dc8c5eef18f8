package fit

import (
	"slices"

	"spc/passes/calib"
	"spc/passes/obs"
)

// grid is the sparsities at which curves are measured; between them they are
// interpolated in steps of fine.
var grid = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99}

const fine = 0.01

// The effects of single layers are seen on effectRuns runs on samples, or as many as keep
// the multiplications for them within effectWork, but on leastRuns.
const (
	effectRuns = 64
	effectWork = 2e11
	leastRuns  = 8
)

// curves picks a point of each layer's error curve. An error counts by what it does to
// the model's outputs, which is measured for each layer alone, at the sparsity asked
// for; that their effects add up is an assumption, as in SPDY.
func (f *fitter) curves() ([]float64, error) {
	effects := make([]float64, len(f.layers))
	for k, l := range f.layers {
		effects[k] = l.effect
	}
	return f.along(effects), nil
}

// joint is curves with the effects that layers have together: the mean of what pruning a
// layer alone does and of what is gained where it alone is dense in a model in which all are
// pruned, the best of those built before. They are the first and the last term of Shapley's
// value (1953), the mean over the orders in which layers may be pruned.
func (f *fitter) joint() ([]float64, error) {
	if f.best == nil {
		s, err := f.curves()
		if err != nil {
			return nil, err
		}
		if f.best, err = f.built("prune, curves", s, f.Observer); err != nil {
			return nil, err
		}
	}
	effects, err := f.effectsTogether()
	if err != nil {
		return nil, err
	}
	return f.along(effects), nil
}

// effectsTogether returns the effects that joint goes by.
func (f *fitter) effectsTogether() ([]float64, error) {
	best := f.best
	pruned, err := f.apart(f.few(), best.twins)
	if err != nil {
		return nil, err
	}
	d, err := f.divergences("effects together", best.twins, func(k int, on bool) {
		l, e := f.layers[k], best.edits[k]
		if on {
			undone := &edit{w: l.weights}
			if e.bias != nil {
				if undone.bias, _ = biasOf(l); undone.bias == nil {
					undone.bias = make([]float32, l.rows)
				}
			}
			e = undone
		}
		e.put(best.twins, l)
	})
	if err != nil {
		return nil, err
	}
	for k, l := range f.layers {
		// A layer that is dense among the pruned ones shows nothing there.
		last := l.effect
		if lost := l.lost(best.sparsities[k]); lost > 0 {
			last = max(0, pruned-d[k]) / lost
		}
		d[k] = (l.effect + last) / 2
	}
	return d, nil
}

// lost is the relative error on the layer's curve.
func (l *layer) lost(sparsity float64) float64 {
	cost := 0.0
	for _, p := range l.sweep {
		if p.sparsity > sparsity+fine/2 {
			break
		}
		cost = p.cost
	}
	return cost
}

// along picks points of the curves by dynamic programming, where a relative error of 1 in
// layer k costs effects[k].
func (f *fitter) along(effects []float64) []float64 {
	var sizes []int
	var curves [][]point
	out := make([]float64, len(f.layers))
	total := 0
	for k, l := range f.layers {
		if l.target != nil {
			out[k] = *l.target
			continue
		}
		sizes = append(sizes, len(l.weights))
		total += len(l.weights)
		var c []point
		for _, p := range l.sweep {
			c = append(c, point{p.sparsity, p.cost * effects[k]})
		}
		curves = append(curves, c)
	}
	if total == 0 {
		return out
	}
	for k, s := 0, spread(sizes, curves, f.Sparsity); k < len(out); k++ {
		if f.layers[k].target == nil {
			out[k], s = s[0], s[1:]
		}
	}
	return out
}

// Rows of a layer on which its curve is measured are so many that curveRows is reached,
// and further as long as SparseGPT's multiplications for them stay within curveWork.
const (
	curveRows = 64
	curveWork = 3e8
)

// curveSample returns the rows on which the curve of a layer is measured: whole groups of
// rows that share a mask, evenly spread. It is nil for all.
func curveSample(rows, cols, group int) []int {
	n := max(curveRows, int(curveWork/(float64(cols)*float64(cols))))
	all, some := rows/group, (n+group-1)/group
	if some >= all {
		return nil
	}
	var out []int
	for i := range some {
		for r := range group {
			out = append(out, i*all/some*group+r)
		}
	}
	return out
}

// curve measures a layer's relative error by sparsity, with SparseGPT, and keeps the
// weights at the sparsity asked for.
func (f *fitter) curve(l *layer, g *calib.Gram) error {
	s, err := obs.New(f.ctx, obs.Layer{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, W: l.weights, H: g.XX}, f.Workers)
	if err != nil {
		return err
	}
	some := s
	group, _ := l.pattern.Unit()
	if rows := curveSample(l.rows, l.cols, group); rows != nil {
		some = s.Some(rows)
	}
	at := func(s *obs.Solver, sparsity float64) (float64, []float32, error) {
		energy, err := s.Energy(f.ctx)
		if err != nil {
			return 0, nil, err
		}
		r, err := s.Prune(f.ctx, obs.Options{Pattern: l.pattern, Method: obs.SparseGPT, Keep: obs.Keep(l.pattern, s.Rows, s.Cols, sparsity)})
		if err != nil || energy == 0 {
			return 0, s.W, err
		}
		return r.Loss / energy, r.W, nil
	}
	last := point{}
	l.sweep = []point{last}
	// A layer that is pruned has at least what the pattern drops within blocks.
	least := l.pattern.LeastSparsity()
	sparsities := slices.DeleteFunc(slices.Clone(grid), func(s float64) bool { return s < least+fine/2 })
	if least > 0 {
		sparsities = append([]float64{least}, sparsities...)
	}
	for _, sparsity := range sparsities {
		loss, _, err := at(some, sparsity)
		if err != nil {
			return err
		}
		next := point{sparsity, max(loss, last.cost)}
		for x := max(last.sparsity+fine, least); x < sparsity-fine/2; x += fine {
			share := (x - last.sparsity) / (sparsity - last.sparsity)
			l.sweep = append(l.sweep, point{x, last.cost + share*(next.cost-last.cost)})
		}
		l.sweep = append(l.sweep, next)
		last = next
	}
	// A layer that is that sparse already shows its effect where it loses something.
	sparsity := f.own(l)
	if l.lost(sparsity) == 0 {
		if i := slices.IndexFunc(l.sweep, func(p point) bool { return p.cost > 0 && p.sparsity > sparsity }); i >= 0 {
			sparsity = l.sweep[i].sparsity
		}
	}
	l.loss, l.trial, err = at(s, sparsity)
	return err
}

// effects measures what pruning each layer alone does to the outputs.
func (f *fitter) effects() error {
	twins := calib.NewTwins(f.graph)
	d, err := f.divergences("effects", twins, func(k int, on bool) {
		l := f.layers[k]
		e := &edit{w: l.weights}
		if on {
			e.w = l.trial
		}
		if l.shift != nil {
			e.bias = make([]float32, l.rows)
			if b, _ := biasOf(l); b != nil {
				copy(e.bias, b)
			}
			for r := range e.bias {
				if on {
					e.bias[r] += l.shift[r]
				}
			}
		}
		e.put(twins, l)
	})
	for k, l := range f.layers {
		l.trial, l.shift = nil, nil
		if err == nil && l.loss > 0 {
			l.effect = d[k] / l.loss
		}
	}
	return err
}

// few is the observer of the runs on which effects are seen.
func (f *fitter) few() *calib.Observer {
	// For a layer about half of the pruned copy is evaluated.
	work := f.runWork() * float64(len(f.layers)) / 2
	runs := min(f.samples, max(leastRuns, int(min(effectRuns, effectWork/max(1, work)))))
	return f.sees(func(i int) bool {
		_, ok := f.spread(i, runs)
		return ok
	})
}

// divergences returns the divergence of the outputs with each layer changed, before it is
// changed back.
func (f *fitter) divergences(stage string, twins *calib.Twins, change func(k int, on bool)) ([]float64, error) {
	front := f.few().Frontier(twins.Graph, f.Budget)
	defer front.Close()
	goal, err := twins.Goal(f.ctx, front, f.graph, nil, f.Budget)
	if err != nil {
		return nil, err
	}
	defer goal.Close()
	out := make([]float64, len(f.layers))
	for k, l := range f.layers {
		f.report(stage, k, len(f.layers))
		if n := twins.DenseNode(l.Node); n != nil {
			if err := front.Advance(f.ctx, front.Index(n)); err != nil {
				return nil, err
			}
		}
		change(k, true)
		if out[k], err = goal.Divergence(f.ctx, front); err != nil {
			return nil, err
		}
		change(k, false)
	}
	f.report(stage, len(f.layers), len(f.layers))
	return out, nil
}
