package obs

import (
	"math"

	"spc/passes/prune"
)

// units cuts a layer into what stands or falls together: r rows by c columns, less
// at the edges. A group is r rows, which share a mask.
type units struct {
	rows, cols   int // of the layer
	r, c         int
	groups, each int // groups, and units in each
}

func newUnits(rows, cols int, p prune.Pattern) units {
	u := units{rows: rows, cols: cols, r: 1, c: 1}
	if p.Kind == prune.Block || p.Kind == prune.UniformBlock {
		u.r, u.c = p.R, p.C
	}
	u.groups, u.each = (rows-1)/u.r+1, (cols-1)/u.c+1
	return u
}

// span returns the rows of a group.
func (u *units) span(group int) (lo, hi int) {
	return group * u.r, min((group+1)*u.r, u.rows)
}

// columns returns the columns of a unit.
func (u *units) columns(unit int) (lo, hi int) {
	return unit * u.c, min((unit+1)*u.c, u.cols)
}

// size returns how many weights a unit holds.
func (u *units) size(group, unit int) int {
	r0, r1 := u.span(group)
	c0, c1 := u.columns(unit)
	return (r1 - r0) * (c1 - c0)
}

// scale makes the losses of units of all sizes comparable.
func (u *units) scale(group, unit int) float64 {
	return float64(u.r*u.c) / float64(u.size(group, unit))
}

// groupLimit is how many of n weights, the group from column lo on, N:M keeps.
func groupLimit(p prune.Pattern, lo, cols int) int {
	n := min(p.M, cols-lo)
	return (p.N*n + p.M - 1) / p.M
}

// Keep returns what Options.Keep must be for a layer [rows, cols] of its own to
// have the sparsity that prune.Select gives it, 0 for N:M.
func Keep(p prune.Pattern, rows, cols int, sparsity float64) int {
	// of n units so many stay, of which N:M within blocks keeps a part
	room := func(n float64) float64 { return min(n, (n-sparsity*n)*float64(cols)/float64(p.Kept(cols))) }
	switch p.Kind {
	case prune.Uniform, prune.UniformBlock:
		u := newUnits(rows, cols, p)
		return max(1, int(math.Floor(room(float64(u.each))+0.5)))
	case prune.Unstructured, prune.Block:
		u := newUnits(rows, cols, p)
		room := room(float64(rows) * float64(cols))
		// Select keeps a unit of which at least half fits: round so that the
		// comparison comes out the same.
		if u.r*u.c%2 == 1 {
			room += 0.5
		}
		return int(math.Floor(room))
	}
	return 0
}

// checkPattern says whether the solvers know a pattern, and what it keeps.
func (s *Solver) checkPattern(p prune.Pattern, keep int) error {
	if _, err := prune.ParsePattern(p.String()); err != nil {
		return s.errorf("%v", err)
	}
	switch p.Kind {
	case prune.NM:
		return nil
	case prune.Uniform, prune.UniformBlock:
		if keep < 1 {
			return s.errorf("pattern %s keeps %d of each row, want at least 1", p, keep)
		}
		return nil
	case prune.Unstructured, prune.Block:
		if keep < 0 {
			return s.errorf("pattern %s keeps %d weights, want at least 0", p, keep)
		}
		return nil
	}
	return s.errorf("pattern %s, want uniform, unstructured, N:M, block or uniform-block, with or without N:M", p)
}
