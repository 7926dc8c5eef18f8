package fit

import (
	"fmt"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/option"
	"spc/passes/obs"
	"spc/passes/prune"
	"spc/passes/recon"
)

// Refinement is what becomes of the masks that a method chose: the name of a row of
// refinements, or several with commas between them, which are done in the order of the rows.
type Refinement string

// The refinements.
const (
	Unrefined Refinement = "none"
	Swaps     Refinement = "swaps" // exchanges of what goes for what stays
	Snows     Refinement = "snows" // what stays is solved for by the outputs of blocks
)

// A refinement changes the mask that a method chose, or the weights on it.
type refinement struct {
	Refinement
	doc string
	// work is what refine takes in a layer, of which those that take too much are left as they are.
	work works
	// refine, where it is set, changes e, the edit of a layer with weights s.W, and says how.
	refine func(f *fitter, l *layer, s *obs.Solver, e *edit) (how string, err error)
	// after, where it is set, changes the graph when all its layers are pruned.
	after func(f *fitter, dense *ir.Graph, out *Result) error
}

// refinements lists the refinements.
var refinements = []refinement{
	{Unrefined, "stays as it is", nil, nil, nil},
	{Swaps, "weights, or blocks, that went and that stay change places as long as the error of the layer falls", swapWorks, (*fitter).swap, nil},
	{Snows, "weights that stay are solved for by Newton's method, so that blocks of layers give what the dense model's give", nil, nil, (*fitter).snows},
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
func (r Refinement) Doc() string {
	var docs []string
	for i := range refinements {
		if slices.Contains(r.parts(), refinements[i].Refinement) {
			docs = append(docs, refinements[i].doc)
		}
	}
	return strings.Join(docs, "; ")
}

func (r Refinement) parts() (out []Refinement) {
	for _, part := range strings.Split(string(r), ",") {
		out = append(out, Refinement(part))
	}
	return out
}

// ParseRefinement reads one of Refinements, or several but Unrefined with commas between them.
func ParseRefinement(s string) (Refinement, error) {
	parts := Refinement(s).parts()
	for i, part := range parts {
		if _, err := option.OneOf(option.Refine, string(part), Refinements()); err != nil {
			return "", err
		}
		if len(parts) > 1 && part == Unrefined || slices.Contains(parts[:i], part) {
			return "", option.Errorf("%v %q: want %s alone, or others once each", option.Refine, s, Unrefined)
		}
	}
	return Refinement(s), nil
}

// asked lists the rows of refinements that Check has found.
func (o *Options) asked() (out []*refinement) {
	for i := range refinements {
		if r := &refinements[i]; r.Refinement != Unrefined && slices.Contains(o.Refine.parts(), r.Refinement) {
			out = append(out, r)
		}
	}
	return out
}

// refines reports whether masks, or weights on them, change after they were chosen.
func (o *Options) refines() bool { return len(o.asked()) > 0 }

// refineWork bounds the multiplications of a refinement in a layer, beyond which it is left as it is.
const refineWork = 500e9

// refine does to a layer what is asked for.
func (f *fitter) refine(l *layer, s *obs.Solver, e *edit) (string, error) {
	if f.trying || e.Mask == nil || e.Mask.Count() == len(l.weights) {
		return "", nil
	}
	var said []string
	for _, r := range f.asked() {
		switch {
		case r.refine == nil:
		case f.cost(r.work, l) > refineWork:
			said = append(said, fmt.Sprintf("too large for %s", r.Refinement))
		default:
			how, err := r.refine(f, l, s, e)
			if err != nil {
				return "", err
			}
			said = append(said, how)
		}
	}
	return note(said...), nil
}

// snowing are the options of Snows.
var snowing = recon.Options{Newton: 3, Batch: 32, Seed: recon.DefaultSeed}

// snows solves for the weights that stay by the outputs of blocks.
func (f *fitter) snows(dense *ir.Graph, out *Result) error { return f.rebuild(dense, snowing, out) }

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
