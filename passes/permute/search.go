package permute

import (
	"context"
	"math/rand/v2"
	"slices"

	"spc/internal/parallel"
)

// search looks for a partition of channels into cells of given sizes that retains much: from a partition on
// it swaps channels of two cells while what these retain rises, and then, from a few partitions near
// the best one, again, as Pool and Yu, "Channel Permutations for N:M Sparsity" (NeurIPS 2021), section 4, do.
type search struct {
	*objective
	ctx     context.Context
	workers int
	budget  float64 // additions that are left

	cells  [][]int
	of     []int // the cell of each channel
	values []float64
	// with[a][b] bounds what the cell of a retains with b in a's place.
	with    [][]float32
	scratch []scratch
}

// The restarts, the share of channels that are moved at each, and the seed.
const (
	restarts = 2
	shaken   = 8
	seed     = 1
)

// least is the share of a cell's value by which a swap must gain.
const least = 1e-5

// run returns the best partition that it finds from the cells on, which it leaves as they are, and what
// these and the partition retain.
func (s *search) run(cells [][]int) (best [][]int, before, after float64, err error) {
	s.begin(cells)
	before = s.total()
	best, after = clone(cells), before
	try := func(from [][]int) error {
		s.begin(from)
		if err := s.climb(); err != nil {
			return err
		}
		if v := s.total(); v > after {
			best, after = clone(s.cells), v
		}
		return nil
	}
	if err := try(cells); err != nil {
		return nil, 0, 0, err
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(s.of))))
	for range restarts {
		if s.budget <= 0 {
			break
		}
		if err := try(s.shake(best, r)); err != nil {
			return nil, 0, 0, err
		}
	}
	return best, before, after, nil
}

func clone(cells [][]int) [][]int {
	out := make([][]int, len(cells))
	for i, c := range cells {
		out[i] = slices.Clone(c)
	}
	return out
}

// total is what the cells retain together.
func (s *search) total() (sum float64) {
	if s.contests != nil {
		return s.contests.retained(s.cells)
	}
	for _, v := range s.values {
		sum += v
	}
	return sum
}

// begin sets the cells.
func (s *search) begin(cells [][]int) {
	n := len(s.vectors)
	s.cells, s.of, s.values = clone(cells), make([]int, n), make([]float64, len(cells))
	if s.scratch == nil {
		s.scratch = make([]scratch, parallel.Workers(s.workers))
	}
	for i, cell := range cells {
		for _, c := range cell {
			s.of[c] = i
		}
	}
	s.appraise()
}

// appraise computes what each cell is worth.
func (s *search) appraise() {
	if s.contests != nil {
		s.contests.settle(s.cells)
	}
	for i, cell := range s.cells {
		s.values[i] = s.value(cell, &s.scratch[0])
	}
}

// climb swaps until nothing is gained, or the budget is spent.
func (s *search) climb() error {
	n := len(s.vectors)
	if s.with == nil {
		s.with = make([][]float32, n)
		for a := range s.with {
			s.with[a] = make([]float32, n)
		}
	}
	all := make([]int, n)
	for a := range all {
		all[a] = a
	}
	if err := s.refresh(all); err != nil {
		return err
	}
	for s.budget > 0 {
		last, before := clone(s.cells), s.total()
		if moved, err := s.pass(); err != nil || !moved {
			return err
		}
		if s.contests == nil {
			continue
		}
		// What was gained with the thresholds held may be less, or lost, with those that the cells have now.
		if s.total() <= before*(1+least) {
			s.begin(last)
			return nil
		}
		s.appraise()
		if err := s.refresh(all); err != nil {
			return err
		}
	}
	return nil
}

// pass swaps each channel with the one that gains most, where one gains.
func (s *search) pass() (moved bool, err error) {
	for a := range s.vectors {
		if s.budget <= 0 {
			break
		}
		b := s.partner(a)
		if b < 0 {
			continue
		}
		s.swap(a, b)
		moved = true
		if err := s.refresh(slices.Concat(s.cells[s.of[a]], s.cells[s.of[b]])); err != nil {
			return false, err
		}
	}
	return moved, nil
}

// partner returns the channel with which a changes places best, -1 where nothing is gained.
func (s *search) partner(a int) int {
	for s.budget > 0 {
		best, gain := -1, 0.0
		for b, x := range s.with[a] {
			if s.of[b] == s.of[a] {
				continue
			}
			now := s.values[s.of[a]] + s.values[s.of[b]]
			if g := float64(x) + float64(s.with[b][a]) - now; g > gain && g > least*now {
				best, gain = b, g
			}
		}
		if best < 0 {
			return -1
		}
		// The bounds may be loose: what they promise is checked.
		x, y := s.exact(a, best), s.exact(best, a)
		now := s.values[s.of[a]] + s.values[s.of[best]]
		if x+y-now > least*now {
			return best
		}
		s.with[a][best], s.with[best][a] = float32(x), float32(y)
	}
	return -1
}

// exact is what the cell of a retains with b in a's place.
func (s *search) exact(a, b int) float64 {
	cell := slices.Clone(s.cells[s.of[a]])
	cell[slices.Index(cell, a)] = b
	s.budget -= float64(s.width() * 8)
	return s.value(cell, &s.scratch[0])
}

// swap has two channels change places.
func (s *search) swap(a, b int) {
	ca, cb := s.of[a], s.of[b]
	s.cells[ca][slices.Index(s.cells[ca], a)] = b
	s.cells[cb][slices.Index(s.cells[cb], b)] = a
	s.of[a], s.of[b] = cb, ca
	for _, c := range []int{ca, cb} {
		s.values[c] = s.value(s.cells[c], &s.scratch[0])
	}
}

// refresh computes what the cells of some channels retain with others in their places.
func (s *search) refresh(channels []int) error {
	s.budget -= float64(len(channels)) * float64(len(s.vectors)) * float64(s.width())
	return parallel.Each(s.ctx, s.workers, len(channels), func(worker, i int) {
		a := channels[i]
		t := make([]float32, s.width())
		cell := s.cells[s.of[a]]
		bound := s.without(cell, a, t, &s.scratch[worker])
		for b, x := range s.at(slices.Index(cell, a)) {
			if s.of[b] != s.of[a] {
				s.with[a][b] = float32(bound + float64(excess(x, t)))
			}
		}
	})
}

// shake moves some channels of a partition at random.
func (s *search) shake(cells [][]int, r *rand.Rand) [][]int {
	out := clone(cells)
	var at [][2]int
	for i, cell := range out {
		for j := range cell {
			at = append(at, [2]int{i, j})
		}
	}
	r.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	at = at[:len(at)/shaken]
	for i := range at {
		p, q := at[i], at[(i+1)%len(at)]
		out[p[0]][p[1]], out[q[0]][q[1]] = out[q[0]][q[1]], out[p[0]][p[1]]
	}
	return out
}
