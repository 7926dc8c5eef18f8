package obs

import (
	"context"

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
	*picker
	w    []float64 // [M,K], zero where it goes in what is settled
	diag []float64 // [K], of U
}

func (s *Solver) sparseGPT(ctx context.Context, o Options) (*Result, error) {
	k := s.Cols
	g := &sparseGPT{Solver: s, picker: newPicker(s, o)}
	g.w = make([]float64, len(s.W))
	for i, w := range s.W {
		g.w[i] = float64(w)
	}
	g.diag = make([]float64, k)
	for j := range g.diag {
		g.diag[j] = g.u[j*k+j]
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
	ranker
	z, coef []float64
	at      []int
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
	t.cutFirst(g.picker, group, u0, u1, g.each-u0-g.room[group])
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
			t.cut(g.picker, r*k+i, r*k+end, end-i-groupLimit(g.pattern, i, k))
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
