package permute

import (
	"slices"

	"spc/passes/prune"
)

// contests say what stays under blocks along a row: the blocks of one row, of all cells, compete for the places
// that it has, under prune.Block those of all rows. Which stay depends on all cells, but the sum of the n largest of some
// numbers is the least value over any threshold of n times that and of what exceeds it. With thresholds held, a cell is worth
// what its own blocks have above theirs, and swaps of channels can be compared; settle finds the thresholds anew.
//
// Where a channel has several weights in a row, a cell is several blocks, in some of which two channels meet, and it matters where in the
// cell a channel lies.
type contests struct {
	phases []phase     // by place in a cell, one for all where there is no difference
	of     []int       // by block of a cell, in which contest it is
	keep   []int       // by contest, how many blocks stay
	rivals [][]float32 // by contest, what blocks have in it that no cell is of
	limits []float32   // by contest, the threshold
}

// phase is what channels have in the blocks of a cell that reach into a place.
type phase struct {
	vectors [][]float32 // by channel
	spans   []span      // where their elements lie among the blocks of the cell
}

// span is n blocks from one on.
type span struct{ at, n int }

// phase is that of a place in a cell.
func (c *contests) phase(place int) *phase { return &c.phases[place%len(c.phases)] }

// add sums up what a cell's channels have in its blocks but for one.
func (c *contests) add(cell []int, without int, s *scratch) {
	s.sums = slices.Grow(s.sums[:0], len(c.of))[:len(c.of)]
	clear(s.sums)
	for place, channel := range cell {
		if channel == without {
			continue
		}
		p := c.phase(place)
		v := p.vectors[channel]
		for _, span := range p.spans {
			sums := s.sums[span.at : span.at+span.n]
			for i, x := range v[:span.n] {
				sums[i] += x
			}
			v = v[span.n:]
		}
	}
}

// above is what blocks of a sum have above their thresholds.
func (c *contests) above(sums []float32, at span) (total float64) {
	for i := at.at; i < at.at+at.n; i++ {
		total += float64(max(0, sums[i]-c.limits[c.of[i]]))
	}
	return total
}

// value is what a cell is worth.
func (c *contests) value(cell []int, s *scratch) float64 {
	c.add(cell, -1, s)
	return c.above(s.sums, span{0, len(c.of)})
}

// without is that of objective.
func (c *contests) without(cell []int, one int, t []float32, s *scratch) (bound float64) {
	c.add(cell, one, s)
	bound = c.above(s.sums, span{0, len(c.of)})
	for _, span := range c.phase(slices.Index(cell, one)).spans {
		bound -= c.above(s.sums, span)
		for i := range span.n {
			t[i] = c.limits[c.of[span.at+i]] - s.sums[span.at+i]
		}
		t = t[span.n:]
	}
	return bound
}

// sums calls see with what all blocks have, contest by contest, which see may reorder.
func (c *contests) sums(cells [][]int, see func(contest int, sums []float32)) {
	s := &scratch{}
	all := make([][]float32, len(c.keep))
	for i, rivals := range c.rivals {
		all[i] = slices.Clone(rivals)
	}
	for _, cell := range cells {
		c.add(cell, -1, s)
		for i, x := range s.sums {
			all[c.of[i]] = append(all[c.of[i]], x)
		}
	}
	for i, sums := range all {
		see(i, sums)
	}
}

// settle sets each threshold to the least that stays.
func (c *contests) settle(cells [][]int) {
	c.limits = make([]float32, len(c.keep))
	c.sums(cells, func(i int, sums []float32) { c.limits[i] = nth(sums, c.keep[i]) })
}

// retained is what the blocks have that stay, those that no cell is of among them.
func (c *contests) retained(cells [][]int) (total float64) {
	c.sums(cells, func(i int, sums []float32) { total += largest(sums, c.keep[i]) })
	return total
}

// compete makes the contests of terms, of every stride-th row of theirs, for the channels in some places.
func compete(terms []term, places []int, phases, stride int) *contests {
	c := &contests{phases: make([]phase, phases)}
	for i := range c.phases {
		c.phases[i].vectors = make([][]float32, len(places))
	}
	for _, t := range terms {
		t.compete(c, places, stride)
	}
	return c
}

// compete appends to contests those of a term, and to their vectors what channels have in it.
func (t *term) compete(c *contests, places []int, stride int) {
	mine := map[int]bool{} // cells
	rows, blocks, first := (t.rows+stride-1)/stride, (t.cols+t.pattern.C-1)/t.pattern.C, len(c.keep)
	contest := func(i int) int { // of the i-th row that has a part
		if t.pattern.Kind == prune.Block {
			return first
		}
		return first + i
	}
	for occurrence := range t.At[places[0]] {
		for i, k := range places {
			at := t.At[k][occurrence]
			mine[at/t.size] = true
			for j := range c.phases {
				c.phases[j].vectors[i] = t.blocks(c.phases[j].vectors[i], at, j, stride)
			}
		}
		for j := range c.phases {
			lo, hi := t.reach(j)
			c.phases[j].spans = append(c.phases[j].spans, span{len(c.of) + lo*rows, (hi - lo) * rows})
		}
		for range t.cols / t.Of {
			for i := range rows {
				c.of = append(c.of, contest(i))
			}
		}
	}
	count := contest(rows-1) + 1 - first
	c.rivals = append(c.rivals, make([][]float32, count)...)
	for i := range rows {
		for b := range blocks {
			if cell := b / (t.cols / t.Of); !mine[cell] {
				row := t.squares[i*stride*t.cols:][:t.cols]
				c.rivals[contest(i)] = append(c.rivals[contest(i)], sum(row[b*t.pattern.C:min((b+1)*t.pattern.C, t.cols)]))
			}
		}
	}
	for range count {
		c.keep = append(c.keep, t.keep(blocks*rows/count))
	}
}

// reach is the blocks of a cell, from lo to before hi, that the weights of the channel in a place of it lie in.
func (t *term) reach(place int) (lo, hi int) {
	each := t.cols / t.Of
	return place * each / t.pattern.C, ((place+1)*each-1)/t.pattern.C + 1
}

// blocks appends what every stride-th row of a channel has in the blocks of a cell that it would reach from a place in that,
// block by block.
func (t *term) blocks(v []float32, at, place, stride int) []float32 {
	each := t.cols / t.Of
	lo, hi := t.reach(place)
	for b := lo; b < hi; b++ {
		from, to := max(0, b*t.pattern.C-place*each), min(each, (b+1)*t.pattern.C-place*each)
		for i := 0; i < t.rows; i += stride {
			v = append(v, sum(t.squares[i*t.cols+at*each:][from:to]))
		}
	}
	return v
}

func sum(x []float32) (total float32) {
	for _, v := range x {
		total += v
	}
	return total
}
