package obs

import (
	"context"
	"fmt"
	"math"
	"slices"

	"spc/internal/parallel"
	"spc/passes/prune"
)

// Method is how Prune goes about it.
type Method uint8

const (
	// Exact removes one unit at a time, the one with the smallest loss, and updates
	// the survivors. It costs K^3/6 multiplications a group of rows at the most.
	Exact Method = iota
	// SparseGPT goes through the columns once. It costs K^2/2 a row.
	SparseGPT
	// ALPS finds the mask by the alternating direction method of multipliers and the
	// survivors' weights by conjugate gradients. An iteration costs K^2 a row, and every
	// third K^3/2 besides.
	ALPS
)

var methodNames = [...]string{Exact: "exact", SparseGPT: "sparsegpt", ALPS: "alps"}

func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("Method(%d)", uint8(m))
}

// Options say what Prune leaves.
type Options struct {
	Pattern prune.Pattern
	Method  Method

	// Keep is how many weights each row keeps under Uniform, how many blocks each
	// block row keeps under UniformBlock, and how many weights the layer keeps
	// under Unstructured and Block, which whole blocks meet as closely as they can. What N:M drops within blocks that stay
	// counts as kept here.
	// N:M keeps its own, as prune.Select does. See the function Keep.
	Keep int
}

// Result is a pruned layer.
//
// Weights that came as zero are zero, and count as removed before any other. Every
// row, or block row, that came with nonzero weights has some.
type Result struct {
	W    []float32   // [M,K]
	Mask *prune.Mask // where W may be nonzero
	Loss float64     // tr((W0-W) H (W0-W)^T), without the damping term
	Note string      // fallbacks, see Solver
}

func (s *Solver) result() *Result {
	return &Result{W: make([]float32, len(s.W)), Mask: prune.NewMask(s.Rows, s.Cols), Note: s.Note}
}

// Prune chooses a mask and the survivors' weights.
//
//   - Exact with Unstructured or Block runs every group of rows to its last unit
//     first, then removes over the whole layer what is next in its group and adds
//     the least loss for its size (section 4 of arXiv 2208.11580); see Sweep, which
//     also serves several targets at once.
//   - Exact with N:M does not remove the cheapest weight of the layer, but that of the
//     group of M with the most at stake: the difference in loss between what goes next
//     and the cheapest of what will stay as it looks now. Groups that have a choice
//     make it while the others can still make up for it; on real layers the error is 5
//     to 25% less than in the order of the paper.
//   - SparseGPT chooses anew every 16 columns, from the losses of all that are left as
//     they are then, which of those 16 go; N:M at each group.
//
// Blocks with N:M within are chosen first, and solved for, and then N of each M in them. That loses nothing beside the choice of
// the blocks: as the weights on these are the best, the errors of fewer of them are that error and their own distances from
// these.
//
// R x C blocks are a unit: R rows share the inverse, and the loss of a block S is
// the sum over its rows of w_S^T ([H^-1]_SS)^-1 w_S.
func (s *Solver) Prune(ctx context.Context, o Options) (*Result, error) {
	if err := s.checkPattern(o.Pattern, o.Keep); err != nil {
		return nil, err
	}
	if inner, ok := o.Pattern.Within(); ok {
		return s.within(ctx, o, inner)
	}
	var r *Result
	var err error
	switch {
	case o.Method == SparseGPT:
		r, err = s.sparseGPT(ctx, o)
	case o.Method == ALPS:
		r, err = s.alps(ctx, o)
	case o.Method != Exact:
		return nil, s.errorf("method %s, want exact, sparsegpt or alps", o.Method)
	case o.Pattern.Kind == prune.Unstructured || o.Pattern.Kind == prune.Block:
		sweep, err := s.Sweep(ctx, o.Pattern)
		if err != nil {
			return nil, err
		}
		return sweep.Prune(ctx, o.Keep)
	default:
		r, err = s.exact(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	r.Loss, err = s.Loss(ctx, r.W)
	return r, err
}

// within prunes blocks, and in those that stay what another pattern says.
func (s *Solver) within(ctx context.Context, o Options, inner prune.Pattern) (*Result, error) {
	o.Pattern = o.Pattern.Blocks()
	blocks, err := s.Prune(ctx, o)
	if err != nil {
		return nil, err
	}
	left, err := s.With(blocks.W)
	if err != nil {
		return nil, err
	}
	r, err := left.Prune(ctx, Options{Pattern: inner, Method: o.Method})
	if err != nil {
		return nil, err
	}
	r.Loss, err = s.Loss(ctx, r.W)
	return r, err
}

// eachGroup runs do for every group of rows.
func (s *Solver) eachGroup(ctx context.Context, u *units, do func(e *eliminator)) error {
	inv := s.invert()
	work := make([]*eliminator, parallel.Workers(s.workers))
	return parallel.Each(ctx, s.workers, u.groups, func(w, g int) {
		if work[w] == nil {
			work[w] = newEliminator(s, u, inv)
		}
		work[w].begin(g)
		do(work[w])
	})
}

// exact prunes where each group of rows has its own target.
func (s *Solver) exact(ctx context.Context, o Options) (*Result, error) {
	u := newUnits(s.Rows, s.Cols, o.Pattern)
	r := s.result()
	err := s.eachGroup(ctx, &u, func(e *eliminator) {
		if o.Pattern.Kind == prune.NM {
			e.groups(o.Pattern)
		} else {
			for e.left > o.Keep {
				e.removeCheapest()
			}
		}
		e.store(r)
	})
	if err != nil {
		return nil, err
	}
	return r, s.refit(ctx, &u, r)
}

// Path is Prune by exact OBS at several targets, Keep as in Options, for patterns in which each row, or row of blocks, has its own: what
// takes the most units out passes the others on its way. Results are in the order of keeps.
func (s *Solver) Path(ctx context.Context, p prune.Pattern, keeps []int) ([]*Result, error) {
	if _, within := p.Within(); within || p.Kind != prune.Uniform && p.Kind != prune.UniformBlock {
		return nil, s.errorf("pattern %s, want uniform or uniform-block", p)
	}
	out, order := make([]*Result, len(keeps)), make([]int, len(keeps))
	for i, keep := range keeps {
		if err := s.checkPattern(p, keep); err != nil {
			return nil, err
		}
		out[i], order[i] = s.result(), i
	}
	slices.SortStableFunc(order, func(i, j int) int { return keeps[j] - keeps[i] })
	u := newUnits(s.Rows, s.Cols, p)
	err := s.eachGroup(ctx, &u, func(e *eliminator) {
		for _, i := range order {
			for e.left > keeps[i] {
				e.removeCheapest()
			}
			e.store(out[i])
		}
	})
	if err != nil {
		return nil, err
	}
	for _, r := range out {
		if err := s.refit(ctx, &u, r); err != nil {
			return nil, err
		}
		if r.Loss, err = s.Loss(ctx, r.W); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// groups removes until N of each M are left: next the cheapest weight of the group
// with the most to lose, which is the difference between the cheapest of what would
// stay if its losses were final, and the cheapest of all.
func (e *eliminator) groups(p prune.Pattern) {
	n := (e.s.Cols-1)/p.M + 1
	over := make([]int, n) // weights that have to go
	todo := 0
	span := func(g int) (lo, hi int) { return g * p.M, min((g+1)*p.M, e.s.Cols) }
	for g := range over {
		lo, hi := span(g)
		for _, gone := range e.gone[lo:hi] {
			if !gone {
				over[g]++
			}
		}
		over[g] = max(0, over[g]-groupLimit(p, lo, e.s.Cols))
		todo += over[g]
	}
	cheapest, stake := make([]int, n), make([]float64, n)
	losses := make([]float64, 0, p.M)
	for range todo {
		e.score()
		best := -1
		for g := range over {
			if over[g] == 0 {
				cheapest[g] = -1
				continue
			}
			lo, hi := span(g)
			losses = losses[:0]
			least := math.Inf(1)
			for c := lo; c < hi; c++ {
				if e.gone[c] {
					continue
				}
				loss := e.scores[e.pos[c]]
				losses = append(losses, loss)
				if loss <= least {
					cheapest[g], least = c, loss
				}
			}
			slices.Sort(losses)
			stake[g] = losses[over[g]] - least
			if best < 0 || stake[g] > stake[best] {
				best = g
			}
		}
		e.remove(cheapest[best], e.likely(cheapest[best], n, func(g int) (int, float64) { return cheapest[g], -stake[g] }))
		over[best]--
	}
}

// refit solves for the rows in which a block that stays has weights that came as
// zero: the inverse that a group shares takes them for free.
func (s *Solver) refit(ctx context.Context, u *units, r *Result) error {
	if u.r*u.c == 1 {
		return nil
	}
	var rows []int
	for g := range u.groups {
		lo, hi := u.span(g)
		for i := lo; i < hi; i++ {
			if !s.blocksFull(u, r.Mask, g, i) {
				rows = append(rows, i)
			}
		}
	}
	return s.solveRows(ctx, r.Mask, rows, r.W)
}

// blocksFull reports whether a row has all weights of the blocks that its group keeps.
func (s *Solver) blocksFull(u *units, m *prune.Mask, group, row int) bool {
	r0, r1 := u.span(group)
	for unit := range u.each {
		lo, hi := u.columns(unit)
		any, all := false, true
		for c := lo; c < hi; c++ {
			for i := r0; i < r1; i++ {
				any = any || m.Keeps(i, c)
			}
			all = all && m.Keeps(row, c)
		}
		if any && !all {
			return false
		}
	}
	return true
}
