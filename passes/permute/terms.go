package permute

import (
	"fmt"
	"slices"

	"spc/passes/prune"
)

// A term is a weight that gains by the order of a group: its rows under blocks of several rows, what its columns
// multiply under N:M and blocks along a row.
type term struct {
	*matrix
	prune.Channels
	size int // channels of a block, or of a group of columns
}

// terms lists the weights that gain by the order of a group.
func (r *run) terms(g *prune.Group) (out []term) {
	p := r.pattern(g)
	for _, c := range side(p, g) {
		m := r.weights[c.Layer]
		if m == nil || m.pattern != p {
			continue
		}
		each, size := m.cols/c.Of, p.R
		switch {
		case p.Kind == prune.NM:
			if size = p.M; each > 1 {
				r.why[c.Layer] = fmt.Sprintf("%d weights of a channel lie side by side, which groups of %d cannot tell apart", each, size)
				continue
			}
		case along(p):
			if size = p.C / each; size < 2 || p.C%each != 0 {
				r.why[c.Layer] = fmt.Sprintf("%d weights of a channel lie side by side, of which blocks of %d do not hold those of several channels", each, p.C)
				continue
			}
		}
		out = append(out, term{m, c, size})
	}
	return out
}

// cells lists the places of a group that lie together in all terms, block by block. Blocks that other channels
// lie in, too, are left out.
func (r *run) cells(g *prune.Group, terms []term) [][]int {
	var cells [][]int
	index := map[string]int{}
	for k := range g.Size {
		var key []byte
		for _, t := range terms {
			for _, at := range t.At[k] {
				key = fmt.Appendf(key, "%d,", at/t.size)
			}
			key = append(key, ';')
		}
		i, ok := index[string(key)]
		if !ok {
			i = len(cells)
			index[string(key)] = i
			cells = append(cells, nil)
		}
		cells[i] = append(cells[i], k)
	}
	var out [][]int
	for _, cell := range cells {
		whole := true
		for _, t := range terms {
			for _, at := range t.At[cell[0]] {
				whole = whole && len(cell) == min(t.size, t.Of-at/t.size*t.size)
			}
		}
		if whole {
			out = append(out, cell)
		}
	}
	return out
}

// objective makes the vectors of places of a group. Where they would take too long to compare, they have
// some of the rows or columns.
func (r *run) objective(terms []term, places []int) *objective {
	o := &objective{pattern: terms[0].pattern, vectors: make([][]float32, len(places))}
	width := 0
	for _, t := range terms {
		width += len(t.At[places[0]]) * t.length()
	}
	n := float64(len(places))
	stride := 1
	for n*n*float64(width)/float64(stride) > work && width/stride > 32 {
		stride++
	}
	if along(o.pattern) {
		o.contests = &contests{}
	}
	for _, t := range terms {
		if o.contests != nil {
			t.compete(o, places, stride)
			continue
		}
		for occurrence := range t.At[places[0]] {
			lo := len(o.vectors[0])
			for i, k := range places {
				o.vectors[i] = t.vector(o.vectors[i], t.At[k][occurrence], stride)
			}
			hi := len(o.vectors[0])
			o.parts = append(o.parts, part{lo, hi, t.keep(hi - lo)})
		}
	}
	return o
}

// compete appends the vectors of a term to those of an objective under blocks along a row, with their contests.
func (t *term) compete(o *objective, places []int, stride int) {
	mine := map[int]bool{} // blocks
	for i, k := range places {
		for _, at := range t.At[k] {
			mine[at/t.size] = true
			o.vectors[i] = t.vector(o.vectors[i], at, stride)
		}
	}
	c, blocks, first := o.contests, (t.Of+t.size-1)/t.size, len(o.contests.keep)
	contest := func(i int) int { // of the i-th row that has a part
		if t.pattern.Kind == prune.Block {
			return first
		}
		return first + i
	}
	rows := (t.rows + stride - 1) / stride
	for range t.At[places[0]] {
		for i := range rows {
			c.of = append(c.of, contest(i))
		}
	}
	c.rivals = append(c.rivals, make([][]float32, contest(rows-1)+1-first)...)
	for i := range rows {
		for b := range blocks {
			if mine[b] {
				continue
			}
			sum := float32(0)
			for _, x := range t.squares[i*stride*t.cols:][b*t.pattern.C : min((b+1)*t.pattern.C, t.cols)] {
				sum += x
			}
			c.rivals[contest(i)] = append(c.rivals[contest(i)], sum)
		}
	}
	for range c.rivals[first:] {
		c.keep = append(c.keep, t.keep(blocks*rows/(len(c.rivals)-first)))
	}
}

// put moves the columns of some places to others of them, so that channels which are put in order afterwards compete with
// what lies there.
func (t *term) put(places, from []int) {
	each := t.cols / t.Of
	old := make([]float32, t.cols)
	for row := range slices.Chunk(t.squares, t.cols) {
		copy(old, row)
		for i, k := range places {
			for occurrence, at := range t.At[k] {
				copy(row[at*each:(at+1)*each], old[t.At[from[i]][occurrence]*each:])
			}
		}
	}
}

// length is that of a channel's vector in a term.
func (t *term) length() int {
	if byColumns(t.pattern) {
		return t.rows
	}
	return (t.cols + t.pattern.C - 1) / t.pattern.C
}

// keep is the number of blocks in a row of n blocks that stay.
func (t *term) keep(n int) int { return max(1, int(float64(n)*(1-t.Sparsity)+0.5)) }

// vector appends every stride-th element of the vector of a channel: of row at its blocks, or column at.
func (t *term) vector(v []float32, at, stride int) []float32 {
	if byColumns(t.pattern) {
		each := t.cols / t.Of
		for i := 0; i < t.rows; i += stride {
			sum := float32(0)
			for _, x := range t.squares[i*t.cols+at*each:][:each] {
				sum += x
			}
			v = append(v, sum)
		}
		return v
	}
	row := t.squares[at*t.cols : (at+1)*t.cols]
	for lo := 0; lo < t.cols; lo += t.pattern.C * stride {
		sum := float32(0)
		for _, x := range row[lo:min(lo+t.pattern.C, t.cols)] {
			sum += x
		}
		v = append(v, sum)
	}
	return v
}
