package prune

import (
	"fmt"
	"math"
)

// Group is a set of output channels of which each goes together with whatever
// is tied to it: the same channel of other layers that are added to this one,
// and the weights that read it.
type Group struct {
	Name     string
	Norms    []float64 // a score for each channel, finite and not negative, compared as float32
	Size     int       // weights that go with one channel
	Sparsity *float64  // the group's own target, taken out of the global count
}

// GroupResult says which channels of a group stay.
type GroupResult struct {
	Keep    []bool
	Kept    int
	Bounded bool // the last channel stays only because one must
}

// SelectChannels drops the channels with the lowest norms, until the fraction
// sparsity of the groups' weights is gone: in each group, or over all of them.
// Each group keeps a channel.
func SelectChannels(groups []Group, sparsity float64, allocate Allocation) ([]GroupResult, error) {
	opts := Options{Pattern: Pattern{Kind: Channel}, Sparsity: sparsity, Allocate: allocate}
	if err := opts.check(); err != nil {
		return nil, err
	}
	sets, own := make([]*Group, len(groups)), make([]*float64, len(groups))
	for i := range groups {
		g := &groups[i]
		if len(g.Norms) == 0 || g.Size < 1 {
			return nil, fmt.Errorf("%s: %d channels of %d weights, want at least one of each", g.Name, len(g.Norms), g.Size)
		}
		if g.Sparsity != nil {
			if err := CheckSparsity(opts.Pattern, *g.Sparsity); err != nil {
				return nil, fmt.Errorf("%s: %w", g.Name, err)
			}
		}
		for c, n := range g.Norms {
			if !(n >= 0 && n <= math.MaxFloat64) {
				return nil, fmt.Errorf("%s: norm of channel %d is %v, want a finite number of at least 0", g.Name, c, n)
			}
		}
		sets[i], own[i] = g, g.Sparsity
	}
	p := newPool(1)
	places, bounded := rank(p, sets, cohorts(own, opts))
	out := make([]GroupResult, len(groups))
	for i, g := range sets {
		keep := g.choose(&places[i], p.workers[0])
		kept := 0
		for _, k := range keep {
			if k {
				kept++
			}
		}
		out[i] = GroupResult{Keep: keep, Kept: kept, Bounded: bounded[i] > 0}
	}
	return out, nil
}

// A Group is one row of units, so that the bound of one a row is the bound of
// one channel a group.

func (g *Group) shape() (rows, cols int) { return 1, len(g.Norms) }

func (g *Group) sizes(int) (each, last int) { return g.Size, g.Size }

func (g *Group) keys(_ int, s *scratch) []uint32 {
	out := resize(&s.blocks, len(g.Norms))
	for i, n := range g.Norms {
		// No key is 0: one channel must stay even where all norms are zero.
		out[i] = max(math.Float32bits(float32(n))&^signBit, 1)
	}
	return out
}

func (g *Group) choose(p *place, s *scratch) []bool {
	keep := make([]bool, len(g.Norms))
	p.choose(0, g.keys(0, s), keep)
	return keep
}
