package permute

import (
	"slices"

	"spc/passes/prune"
)

// An objective says what a cell, the channels that lie together in a block of rows or a group of
// columns, retains when it is pruned. Every channel has a vector of saliencies, each at least 0.
//
// Under N:M a vector holds a channel's weights in all rows, of which the largest of the cell's channels
// stay. Under blocks it holds a channel's blocks along K, in segments of one weight each; the vectors of a
// cell add up, and in each segment the largest sums stay.
//
// Under blocks along a row a vector holds what a channel has in the blocks of a cell, row by row, and a cell is worth
// what its blocks have above the thresholds of their contests.
type objective struct {
	pattern  prune.Pattern
	vectors  [][]float32 // by channel; of contests those of their first phase
	parts    []part
	contests *contests // nil but under blocks along a row
}

// part is a segment of the vectors, of which a cell keeps so many sums.
type part struct{ lo, hi, keep int }

// scratch is memory of one worker.
type scratch struct{ sums, order []float32 }

// width is the length of the longest vector.
func (o *objective) width() int {
	n := len(o.vectors[0])
	if o.contests != nil {
		for _, p := range o.contests.phases {
			n = max(n, len(p.vectors[0]))
		}
	}
	return n
}

// at lists the vectors that channels have in a place of a cell.
func (o *objective) at(place int) [][]float32 {
	if o.contests != nil {
		return o.contests.phase(place).vectors
	}
	return o.vectors
}

// value is what a cell retains, under blocks along a row what it is worth.
func (o *objective) value(cell []int, s *scratch) float64 {
	if o.pattern.Kind == prune.NM {
		keep, total := o.limit(len(cell)), 0.0
		for i := range o.width() {
			s.order = s.order[:0]
			for _, c := range cell {
				s.order = append(s.order, o.vectors[c][i])
			}
			total += largest(s.order, keep)
		}
		return total
	}
	if o.contests != nil {
		return o.contests.value(cell, s)
	}
	o.add(cell, -1, s)
	total := 0.0
	for _, p := range o.parts {
		total += largest(s.sums[p.lo:p.hi], p.keep)
	}
	return total
}

// limit is the number of weights that N:M keeps of a group of so many.
func (o *objective) limit(size int) int { return (o.pattern.N*size + o.pattern.M - 1) / o.pattern.M }

// add sums up the vectors of a cell but that of one channel.
func (o *objective) add(cell []int, without int, s *scratch) {
	s.sums = slices.Grow(s.sums[:0], o.width())[:o.width()]
	clear(s.sums)
	for _, c := range cell {
		if c == without {
			continue
		}
		for i, x := range o.vectors[c] {
			s.sums[i] += x
		}
	}
}

// without returns a bound and a vector t of thresholds such that the cell with another channel of
// vector x in the place of one of its own retains at most bound + sum_i max(0, x_i - t_i); under N:M and blocks along a row
// exactly that.
func (o *objective) without(cell []int, one int, t []float32, s *scratch) (bound float64) {
	if o.pattern.Kind == prune.NM {
		keep := o.limit(len(cell))
		for i := range t {
			s.order = s.order[:0]
			for _, c := range cell {
				if c != one {
					s.order = append(s.order, o.vectors[c][i])
				}
			}
			slices.Sort(s.order)
			first := max(0, len(s.order)-keep)
			for _, x := range s.order[first:] {
				bound += float64(x)
			}
			if t[i] = 0; len(s.order) >= keep {
				t[i] = s.order[first]
			}
		}
		return bound
	}
	if o.contests != nil {
		return o.contests.without(cell, one, t, s)
	}
	// The sum of the n largest of some numbers is the least value over any threshold of n times that and of
	// what exceeds it. The threshold of the cell as it is serves.
	o.add(cell, -1, s)
	for _, p := range o.parts {
		s.order = append(s.order[:0], s.sums[p.lo:p.hi]...)
		threshold := nth(s.order, p.keep)
		bound += float64(p.keep) * float64(threshold)
		for i := p.lo; i < p.hi; i++ {
			t[i] = threshold - (s.sums[i] - o.vectors[one][i])
		}
	}
	return bound
}

// excess returns sum_i max(0, x_i - t_i).
func excess(x, t []float32) float32 {
	t = t[:len(x)]
	var a, b, c, d float32
	for len(x) >= 4 {
		a += max(0, x[0]-t[0])
		b += max(0, x[1]-t[1])
		c += max(0, x[2]-t[2])
		d += max(0, x[3]-t[3])
		x, t = x[4:], t[4:]
	}
	for i, v := range x {
		a += max(0, v-t[i])
	}
	return a + b + (c + d)
}

// largest returns the sum of the n largest of x, which it reorders.
func largest(x []float32, n int) float64 {
	if n < len(x) {
		nth(x, n)
		x = x[:n]
	}
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

// nth reorders x so that its n largest come first, and returns the least of these: Hoare's selection.
func nth(x []float32, n int) float32 {
	k := min(n, len(x)) - 1
	for lo, hi := 0, len(x)-1; lo < hi; {
		pivot := x[lo+(hi-lo)/2]
		i, j := lo, hi
		for i <= j {
			for x[i] > pivot {
				i++
			}
			for x[j] < pivot {
				j--
			}
			if i <= j {
				x[i], x[j] = x[j], x[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return x[k]
		}
	}
	return x[k]
}
