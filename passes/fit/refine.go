package fit

import (
	"fmt"

	"spc/ir/option"
	"spc/passes/obs"
	"spc/passes/prune"
)

// Refinement is what becomes of the mask that a method chose for a layer.
type Refinement string

// The refinements.
const (
	Unrefined Refinement = "none"
	Swaps     Refinement = "swaps" // exchanges of what goes for what stays
)

// A refinement changes the mask that a method chose, or the weights on it.
type refinement struct {
	Refinement
	doc string
	// work is what a layer takes, of which those that take too much are left as they are.
	work works
	// refine changes e, the edit of a layer with weights s.W, and says how.
	refine func(f *fitter, l *layer, s *obs.Solver, e *edit) (how string, err error)
}

// refinements lists the refinements.
var refinements = []refinement{
	{Unrefined, "stays as it is", nil, nil},
	{Swaps, "weights, or blocks, that went and that stay change places as long as the error of the layer falls", swapWorks, (*fitter).swap},
}

// Refinements lists the refinements.
func Refinements() []Refinement {
	var out []Refinement
	for i := range refinements {
		out = append(out, refinements[i].Refinement)
	}
	return out
}

// Doc says what becomes of a mask.
func (r Refinement) Doc() string { return (&Options{Refine: r}).refinement().doc }

// ParseRefinement reads one of Refinements.
func ParseRefinement(s string) (Refinement, error) {
	return option.OneOf(option.Refine, s, Refinements())
}

// refinement is the row of a refinement that Check has found, the first of none.
func (o *Options) refinement() *refinement {
	if o.Refine == "" {
		return &refinements[0]
	}
	for i := range refinements {
		if refinements[i].Refinement == o.Refine {
			return &refinements[i]
		}
	}
	return nil
}

// refines reports whether masks change after they were chosen.
func (o *Options) refines() bool { return o.refinement().refine != nil }

// refineWork bounds the multiplications of a refinement in a layer, beyond which it is left as it is.
const refineWork = 500e9

// refine does to a layer what is asked for.
func (f *fitter) refine(l *layer, s *obs.Solver, e *edit) (how string, err error) {
	r := f.refinement()
	if r.refine == nil || f.trying || e.Mask == nil || e.Mask.Count() == len(l.weights) {
		return "", nil
	}
	if f.cost(r.work, l) > refineWork {
		return fmt.Sprintf("too large for %s", r.Refinement), nil
	}
	return r.refine(f, l, s, e)
}

// swapSweeps is how many times as many exchanges as units stay a group of rows makes at most.
const swapSweeps = 2

func swapWorks(p prune.Pattern, rows, cols int) float64 { return 2 * exactWorks(p, rows, cols) }

// swap exchanges units of the mask.
func (f *fitter) swap(l *layer, s *obs.Solver, e *edit) (string, error) {
	if _, ok := l.pattern.Within(); ok {
		return "no swaps of N:M within blocks", nil
	}
	r, n, err := s.Swap(f.ctx, l.pattern, e.Mask, swapSweeps)
	if err != nil {
		return "", err
	}
	e.keep(l, r)
	what := "weights"
	if l.pattern.Kind == prune.Block || l.pattern.Kind == prune.UniformBlock {
		what = "blocks"
	}
	return fmt.Sprintf("%d %s swapped", n, what), nil
}

// keep takes the mask and the weights that a solver found.
func (e *edit) keep(l *layer, r *obs.Result) {
	e.w, e.Mask = r.W, r.Mask
	e.RowMin, e.RowMax = l.cols, 0
	for row := range l.rows {
		n := r.Mask.RowCount(row)
		e.RowMin, e.RowMax = min(e.RowMin, n), max(e.RowMax, n)
	}
}
