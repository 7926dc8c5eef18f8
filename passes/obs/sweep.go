package obs

import (
	"container/heap"
	"context"

	"spc/passes/prune"
)

// Sweep is the order in which exact OBS removes the units of a layer, to the last
// of each group of rows, and what that costs: masks for all sparsities are prefixes
// of it. It takes 20 bytes a unit.
type Sweep struct {
	s      *Solver
	u      units
	kind   prune.Kind
	groups []trace
}

// trace is one group of rows.
type trace struct {
	order []int32   // units in the order in which they go, those that came as zero first
	first int       // how many of those came as zero
	step  []float64 // loss of each removal with the damping term, scaled to a whole unit
	total []float64 // loss without the damping term after each removal
}

// Sweep removes all units but one of each group of rows, for patterns without
// limits of their own: uniform, unstructured, block, uniform-block.
func (s *Solver) Sweep(ctx context.Context, p prune.Pattern) (*Sweep, error) {
	if err := s.checkPattern(p, 1); err != nil {
		return nil, err
	}
	if p.Kind == prune.NM {
		return nil, s.errorf("pattern %s has one sparsity, want one that has many", p)
	}
	if _, ok := p.Within(); ok {
		return nil, s.errorf("pattern %s has limits within blocks, want one without", p)
	}
	w := &Sweep{s: s, u: newUnits(s.Rows, s.Cols, p), kind: p.Kind}
	w.groups = make([]trace, w.u.groups)
	err := s.eachGroup(ctx, &w.u, func(e *eliminator) {
		t := trace{order: make([]int32, 0, w.u.each)}
		for unit, gone := range e.gone {
			if gone {
				t.order = append(t.order, int32(unit))
			}
		}
		t.first = len(t.order)
		t.step, t.total = make([]float64, t.first, w.u.each), make([]float64, t.first, w.u.each)
		for e.left > 1 {
			before := e.loss
			unit := e.removeCheapest()
			t.order = append(t.order, int32(unit))
			t.step = append(t.step, (e.loss-before)*w.u.scale(e.group, unit))
			t.total = append(t.total, e.undamped())
		}
		w.groups[e.group] = t
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// removed returns how many units each group loses, for a Keep as in Options.
func (w *Sweep) removed(keep int) []int {
	counts := make([]int, len(w.groups))
	if w.kind == prune.Uniform || w.kind == prune.UniformBlock {
		for g := range w.groups {
			t := &w.groups[g]
			counts[g] = min(max(t.first, w.u.each-max(keep, 1)), len(t.order))
		}
		return counts
	}
	drop := w.u.rows*w.u.cols - keep
	next := &frontier{w: w}
	for g := range w.groups {
		t := &w.groups[g]
		counts[g] = t.first
		for _, unit := range t.order[:t.first] {
			drop -= w.u.size(g, int(unit))
		}
		if t.first < len(t.order) {
			next.items = append(next.items, removal{g, t.first, t.step[t.first]})
		}
	}
	heap.Init(next)
	for len(next.items) > 0 {
		top := &next.items[0]
		t := &w.groups[top.group]
		// As prune.Select: as close to the target as whole units come, more kept
		// where two are as close.
		size := w.u.size(top.group, int(t.order[top.at]))
		if 2*drop <= size {
			break
		}
		drop -= size
		top.at++
		counts[top.group] = top.at
		if top.at == len(t.order) {
			heap.Pop(next)
			continue
		}
		top.step = t.step[top.at]
		heap.Fix(next, 0)
	}
	return counts
}

// removal is the next removal of a group.
type removal struct {
	group, at int
	step      float64
}

// frontier is a heap of the groups' next removals.
type frontier struct {
	w     *Sweep
	items []removal
}

func (f *frontier) Len() int      { return len(f.items) }
func (f *frontier) Swap(i, j int) { f.items[i], f.items[j] = f.items[j], f.items[i] }
func (f *frontier) Push(x any)    { f.items = append(f.items, x.(removal)) }

func (f *frontier) Less(i, j int) bool {
	a, b := f.items[i], f.items[j]
	return a.step < b.step || a.step == b.step && a.group > b.group
}

func (f *frontier) Pop() any {
	last := f.items[len(f.items)-1]
	f.items = f.items[:len(f.items)-1]
	return last
}

// mask returns what stays when each group loses so many units.
func (w *Sweep) mask(counts []int) *prune.Mask {
	m := w.s.nonzeros()
	for g, n := range counts {
		r0, r1 := w.u.span(g)
		for _, unit := range w.groups[g].order[:n] {
			lo, hi := w.u.columns(int(unit))
			for r := r0; r < r1; r++ {
				words := m.Row(r)
				for c := lo; c < hi; c++ {
					words[c>>6] &^= 1 << (c & 63)
				}
			}
		}
	}
	return m
}

// Prune returns the layer at one target, Keep as in Options. The weights are solved
// for, which is cheaper than removing again.
func (w *Sweep) Prune(ctx context.Context, keep int) (*Result, error) {
	if err := w.s.checkPattern(prune.Pattern{Kind: w.kind, R: w.u.r, C: w.u.c}, keep); err != nil {
		return nil, err
	}
	return w.s.Solve(ctx, w.mask(w.removed(keep)))
}
