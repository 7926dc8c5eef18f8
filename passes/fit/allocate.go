package fit

import (
	"math"

	"spc/ir/option"
	"spc/passes/prune"
)

// A rule spreads a sparsity over the layers of a plan. What it returns are sparsities of
// the layers of Plan.Prunable.
type rule struct {
	name     prune.Allocation
	doc      string
	allocate func(f *fitter) ([]float64, error)
	sees     bool // needs what calibration sees
	curves   bool // and error curves
}

// rules lists the allocations, in the order in which auto builds them. Those that need no
// calibration come first, and what starts from the best of the others last.
var rules = []rule{
	{prune.PerLayer, "the same sparsity in each layer", (*fitter).perLayer, false, false},
	{prune.Global, "the pattern's published rule: one threshold over all layers", (*fitter).global, false, false},
	{Normalised, "one threshold over w^2 E[x^2] / var(y)", (*fitter).normalised, true, false},
	{Curves, "error curves and their effect on the outputs, by dynamic programming", (*fitter).curves, true, true},
	{Joint, "as curves, by the effects of layers alone and among pruned ones", (*fitter).joint, true, true},
}

// The allocations that need samples.
const (
	Normalised prune.Allocation = "normalised" // one threshold on saliencies that samples make comparable
	Curves     prune.Allocation = "curves"     // by error curves
	Joint      prune.Allocation = "joint"      // by these and the effects that layers have together
	// Auto builds all but prune.Global and keeps the one whose outputs are nearest the
	// dense model's.
	Auto prune.Allocation = "auto"
)

// Allocations lists the allocations.
func Allocations() []prune.Allocation {
	var out []prune.Allocation
	for _, r := range rules {
		out = append(out, r.name)
	}
	return append(out, Auto)
}

// ParseAllocation reads one of Allocations.
func ParseAllocation(s string) (prune.Allocation, error) {
	return option.OneOf(option.Allocate, s, Allocations())
}

func find(name prune.Allocation) *rule {
	for i := range rules {
		if rules[i].name == name {
			return &rules[i]
		}
	}
	return nil
}

// perLayer gives every layer the sparsity asked for.
func (f *fitter) perLayer() ([]float64, error) {
	out := make([]float64, len(f.layers))
	for k, l := range f.layers {
		out[k] = f.own(l)
	}
	return out, nil
}

// own is a layer's own sparsity, else the one asked for.
func (f *fitter) own(l *layer) float64 {
	if l.target != nil {
		return *l.target
	}
	return f.Sparsity
}

// global asks the pattern's own rule, by the saliency of the method.
func (f *fitter) global() ([]float64, error) {
	return f.threshold(f.Pattern, f.rank)
}

// normalised ranks weights by what they add to the variance of their output channel:
// w^2 E[x^2] over the variance of the channel. That makes the saliencies of layers
// comparable whose weights batch normalisation has scaled. The threshold is that of
// single weights, or blocks, whatever else the pattern binds together: a layer's
// sorted columns have norms that grow with its rows.
func (f *fitter) normalised() ([]float64, error) {
	pattern := f.Pattern
	switch pattern.Kind {
	case prune.Uniform:
		pattern.Kind = prune.Unstructured
	case prune.UniformBlock:
		pattern.Kind = prune.Block
	}
	return f.threshold(pattern, normalised)
}

func normalised(l *layer) []float32 {
	s := make([]float32, len(l.weights))
	for r := range l.rows {
		scale := 0.0
		if v := l.variance[r]; v > 0 {
			scale = 1 / math.Sqrt(v)
		}
		for c := range l.cols {
			i := r*l.cols + c
			s[i] = float32(math.Abs(float64(l.weights[i])) * math.Sqrt(l.power[c]) * scale)
		}
	}
	return s
}

// threshold returns what one threshold over the layers without a sparsity of their own
// drops of each, one weight at least excepted: of no weights nothing can be solved.
func (f *fitter) threshold(pattern prune.Pattern, saliency func(l *layer) []float32) ([]float64, error) {
	var in []prune.Layer
	for _, l := range f.layers {
		in = append(in, prune.Layer{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, Weights: l.weights, Saliency: saliency(l), Sparsity: l.target})
	}
	r, err := prune.Select(in, prune.Options{Pattern: pattern, Sparsity: f.Sparsity, Allocate: prune.Global, Workers: f.Workers})
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(in))
	for k, l := range f.layers {
		if l.target != nil { // which its pattern may have, where that of all layers has not
			out[k] = *l.target
			continue
		}
		out[k] = min(r.Layers[k].Allocated, 1-1/float64(len(in[k].Weights)))
	}
	return out, nil
}

// A point of a layer's curve is what a sparsity of it costs.
type point struct{ sparsity, cost float64 }

// spread picks a point of each curve so that the weighted mean of the sparsities is at
// least want, as nearly as points allow, and the sum of the costs is the least: the
// dynamic programme of Frantar and Alistarh, "SPDY" (2022), section 3.2, over zeros
// counted in a few thousand buckets. Sparsities of a curve ascend from 0.
func spread(sizes []int, curves [][]point, want float64) []float64 {
	const buckets = 4000
	total := 0
	for _, n := range sizes {
		total += n
	}
	unit := max(1, float64(total)/buckets)
	// best[b] is the least cost of zeros worth b buckets or more in the layers so far,
	// with what is more than wanted counted as wanted.
	goal := int(math.Floor(want*float64(total)/unit + 1e-9))
	worth := func(l, j int) int { return int(math.Floor(curves[l][j].sparsity*float64(sizes[l])/unit + 0.5)) }
	best := make([]float64, goal+1)
	for b := 1; b <= goal; b++ {
		best[b] = math.Inf(1)
	}
	type step struct {
		from  int32 // the bucket before
		point int32
	}
	steps := make([][]step, len(curves))
	for l, curve := range curves {
		next := make([]float64, goal+1)
		steps[l] = make([]step, goal+1)
		for b := range next {
			next[b] = math.Inf(1)
		}
		for j, p := range curve {
			n := worth(l, j)
			for b, c := range best {
				if to := min(b+n, goal); c+p.cost < next[to] {
					next[to], steps[l][to] = c+p.cost, step{int32(b), int32(j)}
				}
			}
		}
		best = next
	}
	// Where rounding puts the goal out of reach, the nearest below it is taken.
	at := int32(goal)
	for at > 0 && math.IsInf(best[at], 1) {
		at--
	}
	out := make([]float64, len(curves))
	for l := len(curves) - 1; l >= 0; l-- {
		s := steps[l][at]
		out[l], at = curves[l][s.point].sparsity, s.from
	}
	return out
}
