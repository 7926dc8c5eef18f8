package prune

import (
	"math"
	"runtime"
	"sync/atomic"

	"spc/internal/mapped"
)

// unitSet is a matrix of units, each of which is kept or dropped as a whole.
type unitSet interface {
	shape() (rows, cols int)
	// keys returns the keys of a row, which are valid until the next call
	// with the same scratch and are not written to.
	keys(row int, s *scratch) []uint32
	// sizes returns the weights of each unit of a row: of all but the last,
	// and of the last.
	sizes(row int) (each, last int)
}

// grid is a layer cut into blocks of r rows and c columns. The blocks at the
// lower and right edges are as small as the layer makes them.
type grid struct {
	*Layer
	r, c       int
	rows, cols int
	pattern    Pattern // says what is kept within blocks
}

func newGrid(l *Layer, p Pattern) *grid {
	r, c := p.Unit()
	return &grid{Layer: l, r: r, c: c, rows: (l.Rows-1)/r + 1, cols: (l.Cols-1)/c + 1, pattern: p}
}

func (g *grid) shape() (rows, cols int) { return g.rows, g.cols }

func (g *grid) height(row int) int { return min(g.r, g.Rows-row*g.r) }

// tail is the width of the last column of blocks.
func (g *grid) tail() int { return g.Cols - (g.cols-1)*g.c }

// sizes counts the weights that are kept of each block that stays.
func (g *grid) sizes(row int) (each, last int) {
	h := g.height(row)
	return h * g.kept(g.c), h * g.kept(g.tail())
}

// kept is how many of the n columns of a block a row of it keeps.
func (g *grid) kept(n int) int {
	if g.r*g.c == 1 { // N:M has no blocks
		return n
	}
	return g.pattern.Kept(n)
}

// keys ranks blocks by their l2 norm, rounded to float32. The norm of a block
// at an edge is scaled by sqrt(R*C/size), so that blocks of all sizes compare
// by their root mean square.
func (g *grid) keys(row int, s *scratch) []uint32 {
	if g.r == 1 && g.c == 1 {
		return s.row(g.Layer, row)
	}
	sums := resize(&s.sums, g.cols)
	clear(sums)
	h := g.height(row)
	for r := row * g.r; r < row*g.r+h; r++ {
		keys := s.row(g.Layer, r)
		if g.c == 1 {
			for b, k := range keys {
				v := float64(math.Float32frombits(k))
				sums[b] += v * v
			}
			continue
		}
		for b := range sums {
			sum := sums[b]
			for _, k := range keys[b*g.c : min((b+1)*g.c, g.Cols)] {
				v := float64(math.Float32frombits(k))
				sum += v * v
			}
			sums[b] = sum
		}
	}
	out := resize(&s.blocks, g.cols)
	scale := float64(g.r*g.c) / float64(h*g.c)
	for b, sum := range sums {
		if b == g.cols-1 {
			scale = float64(g.r*g.c) / float64(h*g.tail())
		}
		out[b] = math.Float32bits(float32(math.Sqrt(sum * scale)))
	}
	return out
}

// mark sets in m the nonzero weights that are kept of the blocks of a row that keep names,
// and returns how many weights, zero or not, those are.
func (g *grid) mark(m *Mask, row int, keep []bool, s *scratch) (size int) {
	h := g.height(row)
	for r := row * g.r; r < row*g.r+h; r++ {
		keys, words := s.row(g.Layer, r), m.Row(r)
		for b, kept := range keep {
			if !kept {
				continue
			}
			lo, hi := b*g.c, min((b+1)*g.c, g.Cols)
			in := g.within(keys[lo:hi], s)
			for c := lo; c < hi; c++ {
				if keys[c] != 0 && (in == nil || in[c-lo]) {
					words[c>>6] |= 1 << (c & 63)
				}
			}
		}
	}
	each, last := g.sizes(row)
	for _, kept := range keep[:g.cols-1] {
		if kept {
			size += each
		}
	}
	if keep[g.cols-1] {
		size += last
	}
	return size
}

// within marks those of the keys of a row of a block that are kept in it, nil for all.
func (g *grid) within(keys []uint32, s *scratch) []bool {
	m := g.pattern.M
	if g.r*g.c == 1 || m == 0 {
		return nil
	}
	in := resize(&s.within, len(keys))
	for lo := 0; lo < len(keys); lo += m {
		hi := min(lo+m, len(keys))
		keepLargest(keys[lo:hi], g.pattern.Kept(hi-lo), in[lo:hi], resize(&s.a, m))
	}
	return in
}

// scratch is the working memory of one worker.
type scratch struct {
	panel     []uint32 // keys of panelRows rows of panelOf from panelRow on
	panelOf   *Layer
	panelRow  int
	panelRows int

	blocks []uint32
	a, b   []uint32
	keep   []bool
	within []bool
	sums   []float64
	hist   []int64
}

// row returns the keys of row r of l, valid until the next call. Transposed
// layers are read a few rows at a time, for the cache's sake.
func (s *scratch) row(l *Layer, r int) []uint32 {
	if s.panelOf != l || r < s.panelRow || r >= s.panelRow+s.panelRows {
		n := 1
		if l.Transposed {
			n = min(panelRows, l.Rows-r)
		}
		l.loadKeys(resize(&s.panel, n*l.Cols), r, n)
		s.panelOf, s.panelRow, s.panelRows = l, r, n
	}
	i := (r - s.panelRow) * l.Cols
	return s.panel[i : i+l.Cols]
}

// resize returns *buf with length n; what it holds is unspecified.
func resize[T any](buf *[]T, n int) []T {
	if cap(*buf) < n {
		*buf = make([]T, n)
	}
	*buf = (*buf)[:n]
	return *buf
}

// pool runs tasks on a fixed number of workers.
type pool struct{ workers []*scratch }

func newPool(n int) *pool {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	p := &pool{workers: make([]*scratch, n)}
	for i := range p.workers {
		p.workers[i] = new(scratch)
	}
	return p
}

// run calls do for every task from 0 to n-1. Which worker runs a task is not
// determined, so tasks may only write what no other writes, or add integers.
func (p *pool) run(n int, do func(s *scratch, task int)) {
	if len(p.workers) == 1 || n <= 1 {
		for i := range n {
			do(p.workers[0], i)
		}
		return
	}
	var next atomic.Int64
	var wg mapped.Group
	for _, s := range p.workers[:min(n, len(p.workers))] {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				do(s, i)
			}
		})
	}
	wg.Wait()
}

// span is the rows [lo, hi) of one unit set.
type span struct{ set, lo, hi int }

// spans cuts the rows of all sets into tasks, at most 16 a set. The cut
// depends on the shapes alone, never on the number of workers.
func spans[S unitSet](sets []S) []span {
	const most, least = 16, 1 << 14
	var out []span
	for i, set := range sets {
		rows, cols := set.shape()
		height := max((rows+most-1)/most, (least+cols-1)/cols)
		for lo := 0; lo < rows; lo += height {
			out = append(out, span{i, lo, min(lo+height, rows)})
		}
	}
	return out
}
