package obs

import (
	"context"
	"math"

	"spc/internal/parallel"
	"spc/passes/prune"
)

// The penalty with which ALPS begins, how often it grows, and after how many iterations at the
// latest the mask is taken as it is. Both begin and growth are slower than the paper's
// (arXiv 2406.07831, section 3.2): the mask is better for it.
const (
	alpsPenalty = 0.03
	alpsEvery   = 3
	alpsMost    = 300
)

// alpsGrowth is by how much the penalty grows where at least so large a share of the survivors
// changed since it grew last.
var alpsGrowth = []struct{ share, factor float64 }{{0.1, 1.2}, {0.005, 1.1}, {0, 1.05}}

// alpsResidual ends the conjugate gradients: what they leave is below the rounding of float32.
const alpsResidual = 1e-8

// alps splits the layer into weights that fit, A, and weights of the pattern, D, whose
// difference is penalised ever more: with the dual V and in units in which the diagonal of H
// is 1,
//
//	A = (H + rho)^-1 (H W - V + rho D)
//	Z = A + V / rho
//	D = the units of Z that the pattern picks by their l2 norms
//	V = rho (Z - D)
//
// D is Z where units stay, V is rho Z where they go, and neither is kept besides.
type alps struct {
	*Solver
	*picker
	root []float64 // [K], of H_cc
	fit  []float64 // [M,K], W H
	z    []float64 // [M,K]
	rho  float64   // of the last iteration
	inv  []float64 // [K,K]
}

func (s *Solver) alps(ctx context.Context, o Options) (*Result, error) {
	k := s.Cols
	a := &alps{Solver: s, picker: newPicker(s, o), root: make([]float64, k), fit: make([]float64, len(s.W)), z: make([]float64, len(s.W)), rho: alpsPenalty}
	for c := range a.root {
		a.root[c] = math.Sqrt(s.at(c, c))
	}
	work := make([]alpsWorker, parallel.Workers(s.workers))
	err := parallel.Each(ctx, s.workers, s.Rows, func(w, r int) {
		x := &work[w]
		s.product(r, &x.products, &x.at)
		for c, y := range x.products {
			a.fit[r*k+c] = y / a.root[c]
			a.z[r*k+c] = float64(s.W[r*k+c]) * a.root[c]
		}
	})
	if err != nil {
		return nil, err
	}
	if err := a.iterate(ctx, work, o.Keep); err != nil {
		return nil, err
	}
	mask := prune.NewMask(s.Rows, k)
	for i := range a.z {
		if r, c := i/k, i%k; !a.cut[r/a.r*a.each+c/a.c] {
			mask.Set(r, c)
		}
		a.z[i] /= a.root[i%k]
	}
	return s.Descend(ctx, mask, a.z, alpsResidual, 2*k+20)
}

// iterate finds the mask. It begins with D = W and no dual.
func (a *alps) iterate(ctx context.Context, work []alpsWorker, keep int) error {
	rho := a.rho
	var last []bool
	for t := range alpsMost {
		if t%alpsEvery == 0 {
			if t > 0 {
				changed, kept := 0, 0
				for i, cut := range a.cut {
					if cut != last[i] {
						changed++
					}
					if !cut {
						kept++
					}
				}
				if t > alpsEvery && changed == 0 {
					return nil
				}
				for _, g := range alpsGrowth {
					if float64(changed) >= g.share*float64(kept) {
						rho *= g.factor
						break
					}
				}
			}
			last = append(last[:0], a.cut...)
			if err := a.invertPenalised(rho); err != nil {
				return err
			}
		}
		tasks := (a.Rows + batch() - 1) / batch()
		if err := parallel.Each(ctx, a.workers, tasks, func(w, i int) {
			work[w].step(a, i*batch(), min((i+1)*batch(), a.Rows), rho)
		}); err != nil {
			return err
		}
		a.rho = rho
		if err := a.pick(ctx, work, keep); err != nil {
			return err
		}
	}
	return nil
}

// invertPenalised sets inv to the inverse of H + rho.
func (a *alps) invertPenalised(rho float64) error {
	u, ok := inverseFactor(a.k, a.workers, 0, func(i, j int) float64 {
		if i == j {
			return 1 + rho
		}
		return a.at(i, j) / (a.root[i] * a.root[j])
	})
	if !ok {
		return a.errorf("the Gram matrix is not positive semidefinite")
	}
	a.inv = (&factor{k: a.k, u: u}).inverse(a.workers)
	return nil
}

// alpsWorker is the memory of one worker.
type alpsWorker struct {
	ranker
	products, coef, sums, scratch []float64
	at                            []int
}

// step makes Z of the rows [lo,hi), at most batch() of them.
func (x *alpsWorker) step(a *alps, lo, hi int, rho float64) {
	k, n := a.Cols, hi-lo
	x.coef, x.sums, x.scratch = grow(x.coef[:0], n*k), grow(x.sums[:0], n*k), grow(x.scratch[:0], k)
	x.at = grow(x.at[:0], k)
	clear(x.sums)
	for b := range n {
		r := lo + b
		cut := a.cut[r/a.r*a.each:][:a.each]
		for c := range k {
			z := a.z[r*k+c]
			if cut[c/a.c] || a.W[r*k+c] == 0 {
				z *= -a.rho
			} else {
				z *= rho
			}
			x.coef[c*n+b] = -(a.fit[r*k+c] + z)
			x.at[c] = c * k
		}
	}
	if n == batch() {
		subColumns(x.sums, k, k, x.coef, a.inv, x.at, x.scratch)
	} else {
		for b := range n {
			for c := range k {
				x.scratch[c] = x.coef[c*n+b]
			}
			subRows(x.sums[b*k:(b+1)*k], x.scratch, a.inv, x.at)
		}
	}
	for b := range n {
		r := lo + b
		cut := a.cut[r/a.r*a.each:][:a.each]
		for c, y := range x.sums[b*k : (b+1)*k] {
			if cut[c/a.c] || a.W[r*k+c] == 0 {
				y += float64(a.z[r*k+c] * (a.rho / rho))
			}
			a.z[r*k+c] = y
		}
	}
}

// pick decides by Z which units go.
func (a *alps) pick(ctx context.Context, work []alpsWorker, keep int) error {
	a.reset(keep)
	err := parallel.Each(ctx, a.workers, a.groups, func(w, g int) {
		a.norms(g)
		base := g * a.each
		switch a.pattern.Kind {
		case prune.Uniform, prune.UniformBlock:
			work[w].cutFirst(a.picker, g, 0, a.each, a.each-keep)
		case prune.NM:
			for lo := 0; lo < a.Cols; lo += a.pattern.M {
				hi := min(lo+a.pattern.M, a.Cols)
				work[w].cut(a.picker, base+lo, base+hi, hi-lo-groupLimit(a.pattern, lo, a.Cols))
			}
		}
	})
	if err == nil && (a.pattern.Kind == prune.Unstructured || a.pattern.Kind == prune.Block) {
		a.chooseLayer(0, a.each)
	}
	return err
}

// norms scores the units of a group by the squares of Z.
func (a *alps) norms(g int) {
	r0, r1 := a.span(g)
	for unit := range a.each {
		lo, hi := a.columns(unit)
		came, sum := false, 0.0
		for r := r0; r < r1; r++ {
			for i := r*a.Cols + lo; i < r*a.Cols+hi; i++ {
				if a.W[i] != 0 {
					came = true
					sum += float64(a.z[i] * a.z[i])
				}
			}
		}
		if !came {
			sum = -1
		}
		a.scores[g*a.each+unit] = sum * a.scale(g, unit)
	}
}
