package prune

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"spc/ir/option"
)

// Options say how to select. The zero value keeps everything.
type Options struct {
	Pattern  Pattern
	Sparsity float64    // of the layers without a target of their own; 0 for N:M is the pattern's own
	Allocate Allocation // empty is PerLayer
	Workers  int        // 0 is GOMAXPROCS; the result does not depend on it
}

// Tally counts weights and how many of them are zero.
type Tally struct {
	Weights int `json:"weights"`
	Zeros   int `json:"zeros"`
}

// Sparsity is the fraction of zeros.
func (t Tally) Sparsity() float64 {
	if t.Weights == 0 {
		return 0
	}
	return float64(t.Zeros) / float64(t.Weights)
}

// Result is what Select decided, for each layer in the order given.
type Result struct {
	Layers []LayerResult
	Total  Tally // all layers
	Shared Tally // the layers without a target of their own
}

// LayerResult is what was decided for one layer.
type LayerResult struct {
	Name string
	Mask *Mask
	Tally

	// RowMin and RowMax are the smallest and the largest number of nonzeros
	// in a row.
	RowMin, RowMax int

	// Kept is how many weights each row keeps under Uniform, and how many
	// blocks each block row keeps under UniformBlock; 0 elsewhere. Rows that
	// arrive with fewer nonzeros have fewer.
	Kept int

	// Allocated is the fraction of the weights that the pattern drops, where
	// Tally also counts zeros that arrived in what it keeps. As the layer's
	// own Sparsity it selects the same mask again.
	Allocated float64

	// Bounded counts the rows (under Block and UniformBlock the block rows)
	// that keep something only because each row must: the sparsity asked for
	// would have emptied them. Under Channel it is 1 for a layer that would
	// have lost all of its rows.
	Bounded int

	// Note says what was done where the pattern does not divide the layer.
	Note string
}

// Select decides which weights stay.
//
//   - Unstructured and Block rank weights, or blocks by l2 norm, and drop the
//     lowest, in each layer or over all of them. A row, or block row, keeps at
//     least one unless all of its weights arrive as zero; the others then make
//     up for it.
//   - Uniform and UniformBlock rank each layer's sorted columns (see the
//     package comment), those of blocks after replacing each block by its l2
//     norm. Each layer keeps at least the first.
//   - NM keeps the N largest of each M consecutive weights of a row; a last
//     group of T < M weights keeps the ceil(N*T/M) largest.
//   - Channel drops the rows with the lowest l2 norm; each layer keeps one.
//   - N:M within Block and UniformBlock keeps, of each M consecutive weights of a row of a block that
//     stays, what NM would, the blocks being ranked by all of their weights. The target
//     counts what both drop. A layer with a target that is less than what N:M drops keeps
//     every block, and with one of 0 every weight.
//
// Blocks at the edges of a layer that the shape does not divide are as small
// as the layer makes them, count as their real size, and are ranked by their
// l2 norm scaled to a whole block. The target is met as closely as whole units
// allow, keeping more where two choices are equally close.
//
// Weights and saliencies of the wrong length or not finite are an error that
// names the layer.
func Select(layers []Layer, opts Options) (*Result, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	for i := range layers {
		if s := layers[i].Sparsity; s != nil {
			// Where a last group has less than M weights the least that blocks with N:M within have is less.
			if err := CheckSparsity(opts.Pattern.Blocks(), *s); err != nil {
				return nil, fmt.Errorf("%s: %w", layers[i].Name, err)
			}
		}
	}
	p := newPool(opts.Workers)
	errs := make([]error, len(layers))
	p.run(len(layers), func(_ *scratch, i int) { errs[i] = layers[i].check() })
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}

	sel := &selection{pool: p, pattern: opts.Pattern, layers: layers}
	sel.grids = make([]*grid, len(layers))
	sel.out = make([]LayerResult, len(layers))
	for i := range layers {
		l := &layers[i]
		sel.grids[i] = newGrid(l, opts.patternOf(l))
		sel.out[i] = LayerResult{Name: l.Name, Mask: NewMask(l.Rows, l.Cols), Note: note(l, opts.Pattern)}
	}
	sel.run(opts)
	return sel.result(), nil
}

// SelectEach is Select, but layers may have patterns of their own. It has no totals.
func SelectEach(layers []Layer, o Options) ([]LayerResult, error) {
	out := make([]LayerResult, len(layers))
	var rest []Layer
	var at []int
	for i, l := range layers {
		if l.Pattern == nil {
			rest, at = append(rest, l), append(at, i)
			continue
		}
		own := o
		own.Pattern, own.Sparsity, own.Allocate = *l.Pattern, 0, PerLayer
		r, err := Select(layers[i:i+1], own)
		if err != nil {
			return nil, err
		}
		out[i] = r.Layers[0]
	}
	r, err := Select(rest, o)
	if err != nil {
		return nil, err
	}
	for k, i := range at {
		out[i] = r.Layers[k]
	}
	return out, nil
}

// patternOf is the pattern of a layer: where no zeros are asked for there are none within blocks.
func (o *Options) patternOf(l *Layer) Pattern {
	s := o.Sparsity
	if l.Sparsity != nil {
		s = *l.Sparsity
	}
	if s == 0 {
		return o.Pattern.Blocks()
	}
	return o.Pattern
}

func (o *Options) check() error {
	if err := o.Pattern.validate(); err != nil {
		return err
	}
	if o.Allocate != "" && o.Allocate != PerLayer && o.Allocate != Global {
		return option.Errorf("%v %s: want layer or global", option.Allocate, o.Allocate)
	}
	return CheckSparsity(o.Pattern, o.Sparsity)
}

// note says how a pattern that does not divide the layer ends at its edges.
func note(l *Layer, p Pattern) string {
	var notes []string
	say := func(what string, n, by int, format string, args ...any) {
		notes = append(notes, fmt.Sprintf("%d %s are not a multiple of %d: ", n, what, by)+fmt.Sprintf(format, args...))
	}
	switch r, c := p.Unit(); {
	case p.Kind == NM:
		if tail := l.Cols % p.M; tail != 0 {
			say("columns", l.Cols, p.M, "the last group keeps %d of %d", tailLimit(p.N, p.M, tail), tail)
		}
	default:
		if l.Rows%r != 0 {
			say("rows", l.Rows, r, "the last block row is %d high", l.Rows%r)
		}
		if l.Cols%c != 0 {
			say("columns", l.Cols, c, "the last block column is %d wide", l.Cols%c)
		}
		if p.M > 0 && l.Cols%p.M != 0 {
			say("columns", l.Cols, p.M, "the last group keeps %d of %d", tailLimit(p.N, p.M, l.Cols%p.M), l.Cols%p.M)
		}
	}
	return strings.Join(notes, "; ")
}

// tailLimit is how many of a last group of tail < M weights N:M keeps.
func tailLimit(n, m, tail int) int { return (n*tail + m - 1) / m }

// selection is the state of one Select.
type selection struct {
	*pool
	pattern Pattern
	layers  []Layer
	grids   []*grid
	out     []LayerResult
}

// cohort is a set of layers that share one target.
type cohort struct {
	layers   []int
	sparsity float64
}

// cohorts groups the layers: those with a target of their own, and under
// PerLayer all, are alone.
func cohorts(own []*float64, opts Options) (out []cohort) {
	var shared []int
	for i, s := range own {
		switch {
		case s != nil:
			out = append(out, cohort{[]int{i}, *s})
		case opts.Allocate != Global:
			out = append(out, cohort{[]int{i}, opts.Sparsity})
		default:
			shared = append(shared, i)
		}
	}
	if shared != nil {
		out = append(out, cohort{shared, opts.Sparsity})
	}
	return out
}

func (s *selection) run(opts Options) {
	own := make([]*float64, len(s.layers))
	for i := range s.layers {
		own[i] = s.layers[i].Sparsity
	}
	groups := cohorts(own, opts)
	switch s.pattern.Kind {
	case Dense:
		s.keepRows(func(_ *scratch, _, _ int, _ []uint32, keep []bool) { fill(keep, true) })
	case Unstructured, Block:
		s.thresholds(groups)
	case Uniform, UniformBlock:
		s.prefixes(groups)
	case NM:
		s.groups()
	case Channel:
		s.channels(groups)
	}
}

func fill[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// keepRows writes the masks: choose marks which units of a row of a grid stay.
func (s *selection) keepRows(choose func(w *scratch, layer, row int, keys []uint32, keep []bool)) {
	tasks := spans(s.grids)
	sizes := make([]int, len(tasks))
	s.pool.run(len(tasks), func(w *scratch, i int) {
		t := tasks[i]
		g := s.grids[t.set]
		keep := resize(&w.keep, g.cols)
		for r := t.lo; r < t.hi; r++ {
			choose(w, t.set, r, g.keys(r, w), keep)
			sizes[i] += g.mark(s.out[t.set].Mask, r, keep, w)
		}
	})
	kept := make([]int, len(s.layers))
	for i, t := range tasks {
		kept[t.set] += sizes[i]
	}
	for i := range s.out {
		all := s.layers[i].Rows * s.layers[i].Cols
		s.out[i].Allocated = float64(all-kept[i]) / float64(all)
	}
}

// findBounded finds the cutoff of all sets. Where it would empty rows, bounded
// gets their number by set, and the cutoff returned is that for keeping the
// largest unit of each row besides.
func findBounded[S unitSet](p *pool, sets []S, sparsity float64, bounded []int) (c cutoff, protect bool) {
	c = findCutoff(p, sets, sparsity, false)
	tasks := spans(sets)
	empty := make([]int, len(tasks))
	p.run(len(tasks), func(w *scratch, i int) {
		t := tasks[i]
		for r := t.lo; r < t.hi; r++ {
			keys := sets[t.set].keys(r, w)
			if top := largest(keys); keys[top] > 0 && !c.keeps(keys[top], t.set, r, top) {
				empty[i]++
			}
		}
	})
	for i, t := range tasks {
		bounded[t.set] += empty[i]
		protect = protect || empty[i] > 0
	}
	if protect {
		c = findCutoff(p, sets, sparsity, true)
	}
	return c, protect
}

// place is where the cutoff of a layer's cohort is, and as which of its sets
// the layer was ranked.
type place struct {
	cutoff  cutoff
	protect bool
	set     int
}

// choose marks in keep the units of a row that stay.
func (p *place) choose(row int, keys []uint32, keep []bool) {
	p.cutoff.keep(keys, p.set, row, keep)
	if p.protect {
		if top := largest(keys); keys[top] > 0 {
			keep[top] = true
		}
	}
}

// rank finds the places of all sets.
func rank[S unitSet](p *pool, sets []S, groups []cohort) (places []place, bounded []int) {
	places, bounded = make([]place, len(sets)), make([]int, len(sets))
	for _, group := range groups {
		members := make([]S, len(group.layers))
		for i, l := range group.layers {
			members[i] = sets[l]
		}
		empty := make([]int, len(members))
		c, protect := findBounded(p, members, group.sparsity, empty)
		for i, l := range group.layers {
			places[l], bounded[l] = place{c, protect, i}, empty[i]
		}
	}
	return places, bounded
}

// thresholds selects units by rank. What N:M within blocks drops counts beside them.
func (s *selection) thresholds(groups []cohort) {
	for i, group := range groups {
		all, most := 0, 0
		for _, l := range group.layers {
			all += s.layers[l].Rows * s.layers[l].Cols
			most += weights(s.grids[l : l+1])
		}
		if most < all {
			groups[i].sparsity = max(0, float64(most)-(1-group.sparsity)*float64(all)) / float64(most)
		}
	}
	places, bounded := rank(s.pool, s.grids, groups)
	for i, n := range bounded {
		s.out[i].Bounded = n
	}
	s.keepRows(func(_ *scratch, layer, row int, keys []uint32, keep []bool) {
		places[layer].choose(row, keys, keep)
	})
}

// channels selects rows by rank.
func (s *selection) channels(groups []cohort) {
	sets := make([]*rowSet, len(s.layers))
	s.pool.run(len(sets), func(w *scratch, i int) {
		l := &s.layers[i]
		sets[i] = &rowSet{l.rowNorms(w), l.Cols}
	})
	places, bounded := rank(s.pool, sets, groups)
	keeps := make([][]bool, len(sets))
	for i, g := range sets {
		keeps[i] = g.choose(&places[i], s.workers[0])
		s.out[i].Bounded = bounded[i]
	}
	s.keepRows(func(_ *scratch, layer, row int, _ []uint32, keep []bool) {
		fill(keep, keeps[layer][row])
	})
}

// groups selects N of each M.
func (s *selection) groups() {
	m := s.pattern.M
	limits := make([]int, len(s.layers))
	for i, l := range s.layers {
		limits[i] = s.pattern.N
		if l.Sparsity != nil && *l.Sparsity == 0 {
			limits[i] = m
		}
	}
	s.keepRows(func(w *scratch, layer, _ int, keys []uint32, keep []bool) {
		buf := resize(&w.a, m)
		for lo := 0; lo < len(keys); lo += m {
			hi, n := lo+m, limits[layer]
			if hi > len(keys) {
				hi = len(keys)
				n = tailLimit(n, m, hi-lo)
			}
			keepLargest(keys[lo:hi], n, keep[lo:hi], buf)
		}
	})
}

// sortedColumn is one column of a layer whose rows have been sorted.
type sortedColumn struct {
	norm  float64
	size  int // weights
	layer int
	must  bool // the first of a layer that has any nonzeros
}

// prefixes selects sorted columns by rank.
func (s *selection) prefixes(groups []cohort) {
	columns := s.sortedColumns(groups)
	for _, group := range groups {
		var all []sortedColumn
		total := 0
		for _, l := range group.layers {
			all = append(all, columns[l]...)
			total += s.layers[l].Rows * s.layers[l].Cols
		}
		// The sort is stable: equal columns stay in order of layer, then rank.
		slices.SortStableFunc(all, func(a, b sortedColumn) int { return cmp.Compare(b.norm, a.norm) })
		room := float64(total) - group.sparsity*float64(total)
		kept := keepPrefix(all, room)
		bound := false
		for _, l := range group.layers {
			if kept[l] == 0 && columns[l][0].must {
				bound = true
				s.out[l].Bounded = s.grids[l].rows
			}
		}
		if bound {
			rest, first := all[:0], map[int]int{}
			for _, c := range all {
				if c.must {
					room -= float64(c.size)
					first[c.layer] = 1
				} else {
					rest = append(rest, c)
				}
			}
			kept = keepPrefix(rest, room)
			for l, n := range first {
				kept[l] += n
			}
		}
		for _, l := range group.layers {
			s.out[l].Kept = kept[l]
		}
	}
	s.keepRows(func(w *scratch, layer, _ int, keys []uint32, keep []bool) {
		keepLargest(keys, s.out[layer].Kept, keep, resize(&w.a, len(keys)))
	})
}

// keepPrefix keeps columns in the order given, as long as each brings their
// weights closer to room, and returns how many of each layer.
func keepPrefix(columns []sortedColumn, room float64) map[int]int {
	kept := map[int]int{}
	for _, c := range columns {
		if float64(c.size)/2 > room {
			break
		}
		room -= float64(c.size)
		kept[c.layer]++
	}
	return kept
}

// sortedColumns returns each layer's sorted columns, in descending order. A layer that is ranked among its own alone needs no norms, as
// they are in this order, unless the last block is smaller: there each is 1, or 0 where the layer has no nonzeros.
func (s *selection) sortedColumns(groups []cohort) [][]sortedColumn {
	alone := make([]bool, len(s.grids))
	for _, group := range groups {
		for _, l := range group.layers {
			alone[l] = len(group.layers) == 1 && s.grids[l].tail() == s.grids[l].c
		}
	}
	tasks := spans(s.grids)
	type part struct {
		squares []float64
		short   []int // weights by which a sorted column is smaller, for blocks at the right edge
	}
	parts := make([]part, len(tasks))
	s.pool.run(len(tasks), func(w *scratch, i int) {
		t := tasks[i]
		g := s.grids[t.set]
		p := part{squares: make([]float64, g.cols)}
		if g.tail() < g.c {
			p.short = make([]int, g.cols)
		}
		for r := t.lo; r < t.hi; r++ {
			keys := g.keys(r, w)
			if alone[t.set] {
				if keys[largest(keys)] > 0 {
					fill(p.squares, 1)
					break
				}
				continue
			}
			sorted := sortKeys(keys, resize(&w.a, g.cols), resize(&w.b, g.cols))
			for j := range p.squares {
				v := float64(math.Float32frombits(sorted[g.cols-1-j]))
				p.squares[j] += v * v
			}
			if p.short != nil {
				// The last block ranks after all others that are not smaller.
				rank, last := -1, keys[g.cols-1]
				for _, k := range keys {
					if k >= last {
						rank++
					}
				}
				p.short[rank] += g.height(r) * (g.kept(g.c) - g.kept(g.tail()))
			}
		}
		parts[i] = p
	})
	out := make([][]sortedColumn, len(s.grids))
	for i, t := range tasks {
		l, g := t.set, s.grids[t.set]
		if out[l] == nil {
			out[l] = make([]sortedColumn, g.cols)
			for j := range out[l] {
				out[l][j] = sortedColumn{size: g.Rows * g.kept(g.c), layer: l}
			}
		}
		for j, sq := range parts[i].squares {
			out[l][j].norm += sq
		}
		for j, n := range parts[i].short {
			out[l][j].size -= n
		}
	}
	for _, columns := range out {
		for j := range columns {
			columns[j].norm = math.Sqrt(columns[j].norm)
		}
		columns[0].must = columns[0].norm > 0
	}
	return out
}

// result counts what the masks keep.
func (s *selection) result() *Result {
	s.pool.run(len(s.out), func(_ *scratch, i int) {
		r := &s.out[i]
		r.Weights = r.Mask.Rows * r.Mask.Cols
		r.RowMin = r.Mask.Cols
		kept := 0
		for row := range r.Mask.Rows {
			n := r.Mask.RowCount(row)
			kept += n
			r.RowMin, r.RowMax = min(r.RowMin, n), max(r.RowMax, n)
		}
		r.Zeros = r.Weights - kept
	})
	res := &Result{Layers: s.out}
	for i, r := range s.out {
		res.Total.add(r.Tally)
		if s.layers[i].Sparsity == nil {
			res.Shared.add(r.Tally)
		}
	}
	return res
}

func (t *Tally) add(u Tally) {
	t.Weights += u.Weights
	t.Zeros += u.Zeros
}
