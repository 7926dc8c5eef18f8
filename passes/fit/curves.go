package fit

import (
	"context"
	"iter"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/obs"
)

// grid is the sparsities at which curves are measured; between them they are
// interpolated in steps of fine.
var grid = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95}

const fine = 0.01

// effectSamples is the number of runs on samples on which the effect of single layers is seen.
const effectSamples = 8

// curves picks a point of each layer's error curve. An error counts by what it does to
// the model's outputs, which is measured for each layer alone, at the sparsity asked
// for; that their effects add up is an assumption, as in SPDY.
func (f *fitter) curves() ([]float64, error) {
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
			c = append(c, point{p.sparsity, p.cost * l.effect})
		}
		curves = append(curves, c)
	}
	if total == 0 {
		return out, nil
	}
	for k, s := 0, spread(sizes, curves, f.Sparsity); k < len(out); k++ {
		if f.layers[k].target == nil {
			out[k], s = s[0], s[1:]
		}
	}
	return out, nil
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
	s, err := obs.New(f, obs.Layer{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, W: l.weights, H: g.XX}, f.Workers)
	if err != nil {
		return err
	}
	some := s
	group, _ := f.Pattern.Unit()
	if rows := curveSample(l.rows, l.cols, group); rows != nil {
		some = s.Some(rows)
	}
	at := func(s *obs.Solver, sparsity float64) (float64, []float32, error) {
		energy, err := s.Energy(f)
		if err != nil {
			return 0, nil, err
		}
		r, err := s.Prune(f, obs.Options{Pattern: f.Pattern, Method: obs.SparseGPT, Keep: obs.Keep(f.Pattern, s.Rows, s.Cols, sparsity)})
		if err != nil || energy == 0 {
			return 0, s.W, err
		}
		return r.Loss / energy, r.W, nil
	}
	last := point{}
	l.sweep = []point{last}
	for _, sparsity := range grid {
		loss, _, err := at(some, sparsity)
		if err != nil {
			return err
		}
		next := point{sparsity, max(loss, last.cost)}
		for x := last.sparsity + fine; x < sparsity-fine/2; x += fine {
			share := (x - last.sparsity) / (sparsity - last.sparsity)
			l.sweep = append(l.sweep, point{x, last.cost + share*(next.cost-last.cost)})
		}
		l.sweep = append(l.sweep, next)
		last = next
	}
	l.loss, l.trial, err = at(s, f.own(l))
	return err
}

// effects measures what pruning each layer alone does to the outputs.
func (f *fitter) effects() error {
	n := max(f.samples, effectSamples)
	few := f.sees(func(i int) bool { return (i+1)*effectSamples/n > i*effectSamples/n })
	twins := calib.NewTwins(f.graph)
	front := few.Frontier(twins.Graph, f.Budget)
	for k, l := range f.layers {
		f.report("effects", k, len(f.layers))
		if n := twins.DenseNode(l.Node); n != nil {
			if err := front.Advance(f, front.Index(n)); err != nil {
				return err
			}
		}
		twins.SetConst(l.Value, l.View.Tensor(tensor.From(l.trial, l.rows, l.cols), l.Value.Const.Shape()))
		d, err := f.divergence(front, twins)
		if err != nil {
			return err
		}
		twins.SetConst(l.Value, l.Value.Const)
		l.effect, l.trial = 0, nil
		if l.loss > 0 {
			l.effect = d / l.loss
		}
	}
	f.report("effects", len(f.layers), len(f.layers))
	return nil
}

// some yields those of the inputs, count in all, that take says.
func some(inputs calib.Inputs, take func(i int) bool) calib.Inputs {
	return func(ctx context.Context, g *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
		return func(yield func([]*tensor.Tensor, error) bool) {
			i := 0
			for in, err := range inputs(ctx, g) {
				if err != nil || take(i) {
					if !yield(in, err) || err != nil {
						return
					}
				}
				i++
			}
		}
	}
}
