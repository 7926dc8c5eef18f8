package budget

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

// Search says how Evolve goes about it.
type Search struct {
	Generations int
	Offspring   int    // combinations that are tried in each
	Seed        uint64 // of what is random
	// Measure tells what a combination loses as a whole.
	Measure func(ctx context.Context, pick []int) (float64, error)
	Step    func(done, total int) // after each that was measured, where it is set
}

// Evolve looks for a combination near start which loses less as a whole than the sum over its layers tells, within limits: the evolutionary
// search of Sieberling et al., "EvoPress" (2024), section 3. A mutation gives a layer or two choices that take less
// and others such that take more, as far as the limits allow; the best of the offspring becomes the parent
// where it loses less. It returns that and its loss, and leaves out what was measured before.
func Evolve(ctx context.Context, layers [][]Choice, limits []float64, start []int, s Search) (best []int, loss float64, err error) {
	rng := rand.New(rand.NewPCG(s.Seed, 0))
	best = slices.Clone(start)
	if loss, err = s.Measure(ctx, best); err != nil {
		return nil, 0, err
	}
	seen := map[string]bool{key(best): true}
	total := s.Generations * s.Offspring
	for g := range s.Generations {
		parent := best
		for o := range s.Offspring {
			child := mutate(rng, layers, limits, parent)
			if child != nil && !seen[key(child)] {
				seen[key(child)] = true
				l, err := s.Measure(ctx, child)
				if err != nil {
					return nil, 0, err
				}
				if l < loss || math.IsNaN(loss) {
					best, loss = child, l
				}
			}
			if s.Step != nil {
				s.Step(g*s.Offspring+o+1, total)
			}
		}
	}
	return best, loss, nil
}

func key(pick []int) string {
	b := make([]byte, 0, 2*len(pick))
	for _, i := range pick {
		b = append(b, byte(i), byte(i>>8))
	}
	return string(b)
}

// mutate gives some layers choices that are next to theirs by what they take, so that the limits hold; nil where it finds none.
func mutate(rng *rand.Rand, layers [][]Choice, limits []float64, parent []int) []int {
	const tries = 20
	for range tries {
		child := slices.Clone(parent)
		for range 1 + rng.IntN(2) {
			k := rng.IntN(len(layers))
			child[k] = neighbour(rng, layers[k], child[k], true)
		}
		// What that sets free others take.
		for range 2 * len(layers) {
			k := rng.IntN(len(layers))
			was := child[k]
			if child[k] = neighbour(rng, layers[k], was, false); !Fits(layers, child, limits) {
				child[k] = was
			} else if child[k] != was && rng.IntN(3) == 0 {
				break
			}
		}
		if Fits(layers, child, limits) && !slices.Equal(child, parent) {
			return child
		}
	}
	return nil
}

// neighbour is one of the three choices next to one in what the first thing takes: less, or more for less loss. It is the
// choice itself where there is none.
func neighbour(rng *rand.Rand, choices []Choice, at int, less bool) int {
	var list []int
	for i := range choices {
		if d := choices[i].Uses[0] - choices[at].Uses[0]; less && d < 0 || !less && d > 0 && choices[i].Loss < choices[at].Loss {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return at
	}
	near := func(i int) float64 { return math.Abs(choices[i].Uses[0] - choices[at].Uses[0]) }
	slices.SortStableFunc(list, func(i, j int) int {
		switch {
		case near(i) < near(j):
			return -1
		case near(i) > near(j):
			return 1
		}
		return i - j
	})
	return list[rng.IntN(min(3, len(list)))]
}
