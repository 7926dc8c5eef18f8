package fit

import (
	"slices"

	"spc/ir"
	"spc/passes/calib"
	"spc/passes/permute"
	"spc/passes/prune"
)

// permutes reports whether channels are put in an order that suits the pattern.
func (o *Options) permutes() bool {
	gains := permute.Gains(o.Pattern) || slices.ContainsFunc(o.Targets, func(t prune.LayerTarget) bool { return t.Pattern != nil && permute.Gains(*t.Pattern) })
	return o.Asks() && o.Permute == permute.Auto && gains
}

// ordered reports whether a layer gains by an order of channels.
func (f *fitter) ordered(l *layer) bool { return permute.Gains(l.pattern) && f.own(l) > 0 }

// ordersByOBS reports whether channels are ordered by the losses without single weights of which the others make
// up for what they can. In groups of N:M these neighbours go, too.
func (f *fitter) ordersByOBS(l *layer) bool {
	return f.ordered(l) && (f.Method == OBS || f.Method == Gates) && l.pattern.Kind != prune.NM
}

// permute puts channels in an order that suits the pattern, by OBS, or what weights add to the outputs of the
// dense model, where the method looks at samples, else by |w|, and lists the layers as they are then.
func (f *fitter) permute(out *Result) error {
	if !f.permutes() {
		return nil
	}
	if f.method().sees != seesNothing && !f.sightless() && f.Observer != nil {
		if err := f.survey(saliencies, false); err != nil {
			return err
		}
		f.saw = true
	}
	var weights []permute.Weight
	for _, l := range f.layers {
		if !f.ordered(l) {
			continue
		}
		s := l.saliency
		if s == nil {
			s = powerful(l)
		}
		if s == nil {
			s = make([]float32, len(l.weights))
			for i, w := range l.weights {
				s[i] = max(w, -w)
			}
		}
		weights = append(weights, permute.Weight{Layer: l.at, Saliency: s, Sparsity: f.own(l)})
	}
	if f.Cache != "" {
		f.surveyed = f.graph.Clone()
	}
	r, moved, err := permute.Run(f.ctx, f.plan, weights, permute.Options{Workers: f.Workers, Fixed: f.Fixed,
		Progress: func(done, total int) { f.report(ordering, done, total) }})
	if err != nil {
		return err
	}
	out.Permuted, f.moved = r, moved
	if moved == nil {
		return nil
	}
	before := f.layers
	f.list()
	for k, l := range f.layers {
		rows, cols := moved.Moved(l.at)
		l.power, l.variance, l.positions = reordered(before[k].power, cols), reordered(before[k].variance, rows), before[k].positions
	}
	return nil
}

// The stages of permute.
const (
	saliencies = "saliencies"
	ordering   = "order of channels"
)

// blindly selects weights without samples.
func (f *fitter) blindly(out *Result) error {
	if f.permutes() {
		f.list()
		if err := f.permute(out); err != nil {
			return err
		}
	}
	return f.plan.Select(f.Allocate, nil)
}

// reordered is x in an order, nil for the one that it has; a nil x stays nil.
func reordered(x []float64, order []int) []float64 {
	if x == nil || order == nil {
		return x
	}
	out := make([]float64, len(x))
	for i, from := range order {
		out[i] = x[from]
	}
	return out
}

// reordered returns the moments of a weight whose columns may have changed places since they were seen.
func (f *fitter) reordered(use ir.WeightUse, seen func(use ir.WeightUse) (*calib.Gram, error)) (*calib.Gram, error) {
	g, err := seen(use)
	if err != nil || f.moved == nil {
		return g, err
	}
	at := slices.IndexFunc(f.layers, func(l *layer) bool { return l.Value == use.Value })
	_, cols := f.moved.Moved(f.layers[at].at)
	if cols == nil {
		return g, nil
	}
	out := &calib.Gram{K: g.K, N: g.N, Seen: g.Seen, X: reordered(g.X, cols)}
	for _, i := range cols {
		out.XX = append(out.XX, reordered(g.XX[i*g.K:(i+1)*g.K], cols)...)
	}
	return out, nil
}
