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
			if size = p.C; each%size == 0 {
				r.why[c.Layer] = fmt.Sprintf("%d weights of a channel lie side by side, of which blocks of %d hold no others", each, size)
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
			for i, k := range cell { // in the order in which a search takes them to lie
				whole = whole && (!t.phased() || !slices.ContainsFunc(t.At[k], func(at int) bool { return at%t.size != i }))
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
	n, phases := float64(len(places)), 1
	if slices.ContainsFunc(terms, func(t term) bool { return t.phased() }) {
		phases = o.pattern.C
	}
	stride := 1
	for (n*n*float64(width)/float64(stride) > work || n*float64(phases*width)/float64(stride) > memory) && width/stride > 32 {
		stride++
	}
	if along(o.pattern) {
		o.contests = compete(terms, places, phases, stride)
		o.vectors = o.contests.phases[0].vectors
		return o
	}
	for _, t := range terms {
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

// phased reports whether it matters where in a cell a channel lies.
func (t *term) phased() bool { return along(t.pattern) && t.cols > t.Of }

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
	switch {
	case t.pattern.Kind == prune.NM:
		return t.rows
	case along(t.pattern):
		return t.rows * ((t.cols/t.Of+t.pattern.C-2)/t.pattern.C + 1)
	}
	return (t.cols + t.pattern.C - 1) / t.pattern.C
}

// keep is the number of blocks in a row of n blocks that stay.
func (t *term) keep(n int) int { return max(1, int(float64(n)*(1-t.Sparsity)+0.5)) }

// vector appends every stride-th element of the vector of a channel: of row at its blocks, or column at.
func (t *term) vector(v []float32, at, stride int) []float32 {
	if t.pattern.Kind == prune.NM {
		for i := 0; i < t.rows; i += stride {
			v = append(v, t.squares[i*t.cols+at])
		}
		return v
	}
	row := t.squares[at*t.cols : (at+1)*t.cols]
	for lo := 0; lo < t.cols; lo += t.pattern.C * stride {
		v = append(v, sum(row[lo:min(lo+t.pattern.C, t.cols)]))
	}
	return v
}
