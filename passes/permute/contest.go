package permute

import "slices"

// contests say what stays under blocks along a row: the blocks of one row, of all cells, compete for the places
// that it has, under prune.Block those of all rows. Which stay depends on all cells, but the sum of the n largest of some
// numbers is the least value over any threshold of n times that and of what exceeds it. With thresholds held, a cell is worth
// what its own blocks have above theirs, and swaps of channels can be compared; settle finds the thresholds anew.
type contests struct {
	of     []int       // by element of a vector, in which contest it is
	keep   []int       // by contest, how many blocks stay
	rivals [][]float32 // by contest, what blocks have in it that no cell is of
	limits []float32   // by contest, the threshold
}

// sums calls see with what all blocks have, contest by contest, which see may reorder.
func (o *objective) sums(cells [][]int, see func(contest int, sums []float32)) {
	c, s := o.contests, &scratch{}
	all := make([][]float32, len(c.keep))
	for i, rivals := range c.rivals {
		all[i] = slices.Clone(rivals)
	}
	for _, cell := range cells {
		o.add(cell, -1, s)
		for i, x := range s.sums {
			all[c.of[i]] = append(all[c.of[i]], x)
		}
	}
	for i, sums := range all {
		see(i, sums)
	}
}

// settle sets each threshold to the least that stays.
func (o *objective) settle(cells [][]int) {
	o.contests.limits = make([]float32, len(o.contests.keep))
	o.sums(cells, func(i int, sums []float32) { o.contests.limits[i] = nth(sums, o.contests.keep[i]) })
}

// retained is what the blocks have that stay, those that no cell is of among them.
func (o *objective) retained(cells [][]int) (total float64) {
	o.sums(cells, func(i int, sums []float32) { total += largest(sums, o.contests.keep[i]) })
	return total
}
