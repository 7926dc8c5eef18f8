package permute

import (
	"fmt"

	"spc/passes/prune"
)

// A term is a weight that gains by the order of a group: its rows under blocks, what its columns
// multiply under N:M.
type term struct {
	*matrix
	prune.Channels
	size int // of a block's rows, or of a group of columns
}

// terms lists the weights that gain by the order of a group.
func (r *run) terms(g *prune.Group) (out []term) {
	p := r.pattern(g)
	size := p.R
	if p.Kind == prune.NM {
		size = p.M
	}
	for _, c := range side(p, g) {
		m := r.weights[c.Layer]
		if m == nil || m.pattern != p {
			continue
		}
		if each := m.cols / c.Of; p.Kind == prune.NM && each > 1 {
			r.why[c.Layer] = fmt.Sprintf("%d weights of a channel lie side by side, which groups of %d cannot tell apart", each, size)
			continue
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

// length is that of a channel's vector in a term.
func (t *term) length() int {
	if t.pattern.Kind == prune.NM {
		return t.rows
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
		sum := float32(0)
		for _, x := range row[lo:min(lo+t.pattern.C, t.cols)] {
			sum += x
		}
		v = append(v, sum)
	}
	return v
}
