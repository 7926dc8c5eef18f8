package obs

import (
	"math"

	"spc/passes/prune"
)

// picker decides by scores which units of a layer go.
type picker struct {
	units
	pattern prune.Pattern
	cut     []bool    // [groups,each], units that go
	room    []int     // units that each group, or weights that the layer, may still keep
	kept    []bool    // [groups], those that have kept something
	scores  []float64 // [groups,each], scaled to a whole unit, -1 for those that came as zero
	rank    []int     // units of groups to choose from
	edges   []float64 // [groups], the largest score that went last
}

func newPicker(s *Solver, o Options) *picker {
	g := &picker{units: newUnits(s.Rows, s.Cols, o.Pattern), pattern: o.Pattern}
	g.edges = make([]float64, g.groups)
	g.cut = make([]bool, g.groups*g.each)
	g.kept = make([]bool, g.groups)
	g.scores = make([]float64, len(g.cut))
	g.room = make([]int, g.groups)
	g.reset(o.Keep)
	return g
}

// reset forgets what was kept.
func (g *picker) reset(keep int) {
	clear(g.kept)
	for i := range g.room {
		g.room[i] = keep
	}
}

// ranker is memory of one worker.
type ranker struct {
	rank   []int
	values []float64
}

// cutFirst marks those of the units [u0,u1) of a group that go, if so many of all units
// from u0 on do: those with the smallest scores, the later among equals.
func (t *ranker) cutFirst(g *picker, group, u0, u1, drop int) {
	base := group * g.each
	scores, cut := g.scores[base+u0:base+g.each], g.cut[base+u0:base+u1]
	edge, last := math.Inf(-1), 0 // those below the edge go, and the last of those on it
	switch {
	case drop >= len(scores):
		edge = math.Inf(1)
	case drop > 0:
		edge = t.smallest(scores, drop-1, g.edges[group])
		g.edges[group] = edge
		last = drop
		for _, s := range scores {
			if s < edge {
				last--
			}
		}
	}
	for i := range cut {
		s := scores[i]
		cut[i] = s < 0 || s < edge
		if s != edge || cut[i] {
			continue
		}
		after := 0
		for _, o := range scores[i+1:] {
			if o == edge {
				after++
			}
		}
		cut[i] = after < last
	}
}

// smallest returns the value that n others are not above, given one that it is likely to
// be near.
func (t *ranker) smallest(values []float64, n int, near float64) float64 {
	t.values = append(t.values[:0], values...)
	lo, hi := 0.75*near, 1.25*near
	below, in := 0, 0
	for _, v := range values {
		if v < lo {
			below++
		}
		t.values[in] = v
		if v >= lo && v <= hi {
			in++
		}
	}
	if i := n - below; i >= 0 && i < in {
		return nth(t.values[:in], i)
	}
	return nth(append(t.values[:0], values...), n)
}

// nth returns the value that would be at n if v were sorted, and moves others. It takes
// linear time.
func nth(v []float64, n int) float64 {
	lo, hi := 0, len(v)-1
	for lo < hi {
		a, pivot, c := v[lo], v[(lo+hi)/2], v[hi]
		pivot = max(min(a, pivot), min(max(a, pivot), c)) // the median of three
		i, j := lo, hi
		for i <= j {
			for v[i] < pivot {
				i++
			}
			for v[j] > pivot {
				j--
			}
			if i <= j {
				v[i], v[j] = v[j], v[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case n <= j:
			hi = j
		case n >= i:
			lo = i
		default:
			return v[n]
		}
	}
	return v[n]
}

// cut marks the units [lo,hi) of the layer that go, at least so many.
func (t *ranker) cut(g *picker, lo, hi, drop int) {
	t.rank = t.rank[:0]
	for i := lo; i < hi; i++ {
		t.rank = append(t.rank, i)
		g.cut[i] = g.scores[i] < 0
	}
	for _, i := range t.rank[:dropSmallest(t.rank, g.scores, func(int) int { return 1 }, drop)] {
		g.cut[i] = true
	}
}

// chooseLayer decides which of the units [u0,u1) go, from the losses of all that are
// left. The best of a group that has kept nothing is not among those.
func (g *picker) chooseLayer(u0, u1 int) {
	g.rank = g.rank[:0]
	drop := -g.room[0]
	for group := range g.groups {
		base, best := group*g.each, -1
		for unit := u0; unit < g.each; unit++ {
			i := base + unit
			drop += g.size(group, unit)
			g.cut[i] = g.scores[i] < 0
			if !g.cut[i] && (best < 0 || g.scores[i] > g.scores[best]) {
				best = i
			}
		}
		for i := base + u0; i < base+g.each; i++ {
			if i != best || g.kept[group] {
				g.rank = append(g.rank, i)
			}
		}
	}
	size := func(i int) int { return g.size(i/g.each, i%g.each) }
	for _, i := range g.rank[:dropSmallest(g.rank, g.scores, size, drop)] {
		g.cut[i] = true
	}
	for group := range g.groups {
		for unit := u0; unit < u1; unit++ {
			if !g.cut[group*g.each+unit] {
				g.kept[group] = true
				g.room[0] -= g.size(group, unit)
			}
		}
	}
}

// dropSmallest moves the units with the smallest scores to the front of rank, the
// later among equals, and returns how many make up drop as closely as whole units
// can, fewer where two numbers are as close. It takes linear time.
func dropSmallest(rank []int, scores []float64, size func(int) int, drop int) int {
	less := func(a, b int) bool {
		return scores[a] < scores[b] || scores[a] == scores[b] && a > b
	}
	lo, hi := 0, len(rank)
	for lo < hi {
		// The median of three goes last, then to its place.
		mid, last := (lo+hi)/2, hi-1
		if less(rank[mid], rank[lo]) {
			rank[mid], rank[lo] = rank[lo], rank[mid]
		}
		if less(rank[last], rank[lo]) {
			rank[last], rank[lo] = rank[lo], rank[last]
		}
		if less(rank[mid], rank[last]) {
			rank[mid], rank[last] = rank[last], rank[mid]
		}
		pivot, at, below := rank[last], lo, 0
		for i := lo; i < last; i++ {
			if less(rank[i], pivot) {
				below += size(rank[i])
				rank[i], rank[at] = rank[at], rank[i]
				at++
			}
		}
		rank[at], rank[last] = rank[last], rank[at]
		if n := size(pivot); 2*(drop-below) > n {
			drop -= below + n
			lo = at + 1
		} else {
			hi = at
		}
	}
	return lo
}
