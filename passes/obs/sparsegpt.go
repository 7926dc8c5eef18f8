package obs

import (
	"context"
	"math"

	"spc/internal/parallel"
	"spc/passes/prune"
)

// sgptBlock is about how many columns SparseGPT chooses and settles at a time. The
// paper's 128 make for an error that is a tenth to a third larger.
const sgptBlock = 16

// sparseGPT is one pass over the columns. Row i of the upper factor U of the inverse
// is how the loss of column i is spread over the columns after it; a column j that
// goes when those before it are settled costs w_j^2 / U_jj^2, and a block S
// w_S^T (U_SS^T U_SS)^-1 w_S. The weights that go are those with the smallest of these
// losses among all columns that are left: on real layers that is better by a tenth to a
// half than the same number in each block of columns, and by a fifth than losses in
// which all columns that are left make up for each other.
type sparseGPT struct {
	*Solver
	units
	pattern prune.Pattern
	w       []float64 // [M,K], zero where it goes in what is settled
	cut     []bool    // [groups,each], units that go in what is settled
	room    []int     // units that each group, or weights that the layer, may still keep
	kept    []bool    // [groups], those that have kept something
	scores  []float64 // [groups,each], losses scaled to a whole unit
	rank    []int     // units of groups to choose from
	diag    []float64 // [K], of U
	edges   []float64 // [groups], the largest score that went last
}

func (s *Solver) sparseGPT(ctx context.Context, o Options) (*Result, error) {
	k := s.Cols
	g := &sparseGPT{Solver: s, units: newUnits(s.Rows, k, o.Pattern), pattern: o.Pattern}
	g.w = make([]float64, len(s.W))
	for i, w := range s.W {
		g.w[i] = float64(w)
	}
	g.diag = make([]float64, k)
	for j := range g.diag {
		g.diag[j] = g.u[j*k+j]
	}
	g.edges = make([]float64, g.groups)
	g.cut = make([]bool, g.groups*g.each)
	g.kept = make([]bool, g.groups)
	g.scores = make([]float64, len(g.cut))
	g.room = make([]int, g.groups)
	for i := range g.room {
		g.room[i] = o.Keep
	}
	width := g.c
	if o.Pattern.Kind == prune.NM {
		width = o.Pattern.M
	}
	width *= max(1, sgptBlock/width)

	work := make([]settler, parallel.Workers(s.workers))
	for i := range work {
		work[i].z = make([]float64, g.c)
	}
	for lo := 0; lo < k; lo += width {
		hi := min(lo+width, k)
		u0, u1 := lo/g.c, (hi-1)/g.c+1
		if o.Pattern.Kind != prune.NM {
			err := parallel.Each(ctx, s.workers, g.groups, func(w, group int) { work[w].choose(g, group, u0, u1) })
			if err != nil {
				return nil, err
			}
		}
		if o.Pattern.Kind == prune.Unstructured || o.Pattern.Kind == prune.Block {
			g.chooseLayer(u0, u1)
		}
		err := parallel.Each(ctx, s.workers, s.Rows, func(w, r int) { work[w].settle(g, r, lo, hi) })
		if err != nil {
			return nil, err
		}
	}

	r := s.result()
	for i, w := range g.w {
		row, c := i/k, i%k
		if s.W[i] != 0 && !g.cut[row/g.r*g.each+c/g.c] {
			r.Mask.Set(row, c)
			r.W[i] = float32(w)
		}
	}
	return r, nil
}

// settler is the memory of one worker.
type settler struct {
	z, coef []float64
	at      []int
	rank    []int
	values  []float64
}

// choose scores the units of a group from u0 on and, where the group has a target of
// its own, decides which of [u0,u1) go.
func (t *settler) choose(g *sparseGPT, group, u0, u1 int) {
	if g.r == 1 && g.c == 1 {
		g.scoreWeights(group, u0)
	} else {
		t.score(g, group, u0, g.each)
	}
	if g.pattern.Kind != prune.Uniform && g.pattern.Kind != prune.UniformBlock {
		return
	}
	base := group * g.each
	t.cutFirst(g, group, u0, u1, g.each-u0-g.room[group])
	for _, cut := range g.cut[base+u0 : base+u1] {
		if !cut {
			g.room[group]--
		}
	}
}

// scoreWeights is score for units of one weight, of which all from u0 on are scored.
func (g *sparseGPT) scoreWeights(row, u0 int) {
	at, end := row*g.Cols+u0, (row+1)*g.Cols
	scores, came, diag := g.scores[at:end], g.W[at:end], g.diag[u0:]
	for j, w := range g.w[at:end] {
		y := w / diag[j]
		s := float64(y * y)
		if came[j] == 0 {
			s = -1
		}
		scores[j] = s
	}
}

// score writes the scores of the units [u0,u1) of a group, -1 for those that came as
// zero.
func (t *settler) score(g *sparseGPT, group, u0, u1 int) {
	k := g.Cols
	r0, r1 := g.span(group)
	for unit := u0; unit < u1; unit++ {
		lo, hi := g.columns(unit)
		came, sum := false, 0.0
		for r := r0; r < r1; r++ {
			for j := lo; j < hi; j++ {
				y := 0.0
				if g.W[r*k+j] != 0 {
					came, y = true, g.w[r*k+j]
				}
				for q, z := range t.z[:j-lo] {
					y -= float64(g.u[(lo+q)*k+j] * z)
				}
				y /= g.diag[j]
				t.z[j-lo] = y
				sum += float64(y * y)
			}
		}
		if !came {
			sum = -1
		}
		g.scores[group*g.each+unit] = sum * g.scale(group, unit)
	}
}

// cutFirst marks those of the units [u0,u1) of a group that go, if so many of all units
// from u0 on do: those with the smallest scores, the later among equals.
func (t *settler) cutFirst(g *sparseGPT, group, u0, u1, drop int) {
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
func (t *settler) smallest(values []float64, n int, near float64) float64 {
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
func (t *settler) cut(g *sparseGPT, lo, hi, drop int) {
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
func (g *sparseGPT) chooseLayer(u0, u1 int) {
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

// settle removes the chosen units of a row in the columns [lo,hi) and moves the
// columns after them.
func (t *settler) settle(g *sparseGPT, r, lo, hi int) {
	k := g.Cols
	w := g.w[r*k : (r+1)*k]
	cut := g.cut[r/g.r*g.each:][:g.each]
	t.coef, t.at = t.coef[:0], t.at[:0]
	for i := lo; i < hi; i++ {
		if m := g.pattern.M; m > 0 && i%m == 0 {
			end := min(i+m, k)
			t.score(g, r, i, end)
			t.cut(g, r*k+i, r*k+end, end-i-groupLimit(g.pattern, i, k))
		}
		if !cut[i/g.c] && g.W[r*k+i] != 0 {
			continue
		}
		step := w[i] / g.u[i*k+i]
		w[i] = 0
		rest := w[i+1 : hi]
		for j, x := range g.u[i*k+i+1 : i*k+hi] {
			rest[j] -= float64(step * x)
		}
		t.coef, t.at = append(t.coef, step), append(t.at, i*k+hi)
	}
	subRows(w[hi:], t.coef, g.u, t.at)
}
