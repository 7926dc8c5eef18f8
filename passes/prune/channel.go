package prune

import "math"

// rowSet is the rows of a layer as one row of units, so that the bound of one a row
// is the bound of one row a layer.
type rowSet struct {
	norms []float64 // a score for each row, compared as float32
	size  int       // weights of a row
}

func (g *rowSet) shape() (rows, cols int) { return 1, len(g.norms) }

func (g *rowSet) sizes(int) (each, last int) { return g.size, g.size }

func (g *rowSet) keys(_ int, s *scratch) []uint32 {
	out := resize(&s.blocks, len(g.norms))
	for i, n := range g.norms {
		// No key is 0: one row must stay even where all norms are zero.
		out[i] = max(math.Float32bits(float32(n))&^signBit, 1)
	}
	return out
}

func (g *rowSet) choose(p *place, s *scratch) []bool {
	keep := make([]bool, len(g.norms))
	p.choose(0, g.keys(0, s), keep)
	return keep
}
