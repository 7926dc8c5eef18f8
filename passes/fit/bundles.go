package fit

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"spc/ir"
	"spc/passes/calib"
	"spc/passes/obs"
	"spc/passes/prune"
)

// reader is a layer at which bundles of channels end.
type reader struct {
	*layer
	columns *obs.Columns // nil once no group needs them any more
	energy  float64
	at      map[int]map[int][]int // its columns, by group and bundle
}

// bundleWork bounds the multiplications for a group of bundles whose readers are updated after
// each removal, and bundleBytes what is kept for them. Beyond these a bundle's loss is what it is
// without it alone.
const (
	bundleWork  = 60e9
	bundleBytes = 1 << 30
)

// bundleLosses returns for each bundle of channels that Plan.Bundles lists what its removal adds to the squared error
// of the layers that read it, relative to their outputs, after they have made up for it and for
// those of its group that lost less before: structured OBS, in each layer of the dense model by
// itself. Where effects is set, what a reader loses counts by what it does to the model's outputs.
func (f *fitter) bundleLosses(groups [][][]prune.Read, effects bool) ([][]float64, error) {
	readers, err := f.readers(groups)
	if err != nil {
		return nil, err
	}
	last := make([]int, len(groups)) // the last reader of each
	update := make([]bool, len(groups))
	for g := range groups {
		work, bytes := 0.0, 0
		for k, r := range readers {
			if r.at[g] != nil {
				last[g] = k
				work += math.Pow(float64(r.cols), 3)
				bytes += 8 * r.cols * (r.cols + r.rows)
			}
		}
		update[g] = work <= bundleWork && bytes <= bundleBytes
	}
	each := make([][][]float64, len(readers)) // by reader, group and bundle
	gram, done, err := f.grams()
	if err != nil {
		return nil, err
	}
	defer done()
	for k, r := range readers {
		f.report(bundling, k, len(readers))
		g, err := gram(r.WeightUse)
		if errors.Is(err, ir.ErrUnsupported) {
			g, err = made(r.cols), nil
		}
		if err != nil {
			return nil, err
		}
		if err := f.openReader(r, g, effects); err != nil {
			return nil, err
		}
		each[k] = make([][]float64, len(groups))
		for g := range r.at {
			each[k][g] = make([]float64, len(groups[g]))
		}
		for g := range groups {
			switch {
			case r.at[g] != nil && !update[g]:
				for b, set := range r.at[g] {
					each[k][g][b] = r.columns.Loss(set) / r.energy
				}
			case update[g] && last[g] == k:
				if err := f.eliminate(readers, g, len(groups[g]), each); err != nil {
					return nil, err
				}
			}
		}
		for _, o := range readers[:k+1] {
			needed := false
			for g := range o.at {
				needed = needed || update[g] && last[g] > k
			}
			if !needed {
				o.columns = nil
			}
		}
	}
	f.report(bundling, len(readers), len(readers))
	if effects {
		if err := f.effects(); err != nil {
			return nil, err
		}
	}
	return summed(readers, each, groups, effects), nil
}

// bundling is the stage in which the losses of channels are seen.
const bundling = "losses of channels"

// summed adds up the losses of bundles over their readers, by their effects or as they are.
func summed(readers []*reader, each [][][]float64, groups [][][]prune.Read, effects bool) [][]float64 {
	out := make([][]float64, len(groups))
	for g := range groups {
		out[g] = make([]float64, len(groups[g]))
		for k, r := range readers {
			factor := 1.0
			if effects {
				factor = r.effect
			}
			for b, loss := range each[k][g] {
				out[g][b] += factor * loss
			}
		}
	}
	return out
}

// readers lists what reads the bundles, in the order of the plan.
func (f *fitter) readers(groups [][][]prune.Read) ([]*reader, error) {
	by := map[int]*reader{}
	for g, bundles := range groups {
		for b, reads := range bundles {
			for _, read := range reads {
				r := by[read.Layer]
				if r == nil {
					r = &reader{layer: f.layer(read.Layer), at: map[int]map[int][]int{}}
					by[read.Layer] = r
				}
				if r.at[g] == nil {
					r.at[g] = map[int][]int{}
				}
				r.at[g][b] = read.Columns
			}
		}
	}
	var out []*reader
	f.layers = nil
	for i := range f.plan.Layers {
		if r := by[i]; r != nil {
			out = append(out, r)
			f.layers = append(f.layers, r.layer)
		}
	}
	return out, nil
}

// openReader prepares a reader; trial is the half of what it reads that it misses least, removed.
func (f *fitter) openReader(r *reader, g *calib.Gram, trial bool) error {
	r.positions = float64(g.Seen)
	h := g.XX
	if f.absorbs(r.layer) {
		h = centred(g.XX, g.X, g.X, g)
	}
	s, err := obs.New(f.ctx, obs.Layer{Name: r.Node.String(), Rows: r.rows, Cols: r.cols, W: r.weights, H: h}, f.Workers)
	if err != nil {
		return err
	}
	if r.energy, err = s.Energy(f.ctx); err != nil {
		return err
	}
	if r.energy == 0 {
		r.energy = 1
	}
	r.columns = s.Columns()
	if !trial {
		return nil
	}
	type loss struct {
		set []int
		x   float64
	}
	var list []loss
	for _, sets := range r.at {
		for _, set := range sets {
			list = append(list, loss{set, r.columns.Loss(set)})
		}
	}
	slices.SortFunc(list, func(a, b loss) int { return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.set[0], b.set[0])) })
	mask := prune.NewMask(r.rows, r.cols)
	gone := make([]bool, r.cols)
	for _, l := range list[:(len(list)+1)/2] {
		for _, c := range l.set {
			gone[c] = true
		}
	}
	for row := range r.rows {
		for c := range r.cols {
			if !gone[c] {
				mask.Set(row, c)
			}
		}
	}
	res, err := s.Solve(f.ctx, mask)
	if err != nil {
		return err
	}
	r.trial, r.loss = res.W, res.Loss/r.energy
	if f.absorbs(r.layer) {
		r.shift = make([]float32, r.rows)
		for row := range r.rows {
			sum := 0.0
			for c := range r.cols {
				sum += float64(r.weights[row*r.cols+c]-r.trial[row*r.cols+c]) * g.X[c]
			}
			r.shift[row] = float32(sum / float64(g.N))
		}
	}
	return nil
}

// eliminate removes the bundles of a group one after another, that first which its readers miss least,
// and notes what each loses.
func (f *fitter) eliminate(readers []*reader, group, bundles int, each [][][]float64) error {
	left := make([]int, bundles)
	for b := range left {
		left[b] = b
	}
	columns := make([]*obs.Columns, len(readers))
	for k, r := range readers {
		if r.at[group] != nil {
			columns[k] = r.columns.Clone()
		}
	}
	loss := make([]float64, len(readers))
	for len(left) > 0 {
		best, least := 0, math.Inf(1)
		var of []float64
		for i, b := range left {
			sum := 0.0
			for k, r := range readers {
				loss[k] = 0
				if set := r.at[group][b]; set != nil {
					loss[k] = columns[k].Loss(set) / r.energy
					sum += loss[k]
				}
			}
			if sum < least || of == nil {
				best, least, of = i, sum, slices.Clone(loss)
			}
		}
		b := left[best]
		left = slices.Delete(left, best, best+1)
		for k, r := range readers {
			if set := r.at[group][b]; set != nil {
				each[k][group][b] = of[k]
				if err := columns[k].Remove(f.ctx, set); err != nil {
					return err
				}
			}
		}
		if err := f.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
