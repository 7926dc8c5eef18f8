package hyb

import (
	"math/bits"
	"sort"

	"spc/backend/format/sparse"
	"spc/passes/choose"
)

// vectors are those of a block row that are not all zero.
type vectors struct {
	columns []uint32 // ascending
	filled  []int    // how many of each vector's elements are not zero
	height  int
}

// vectorsOf lists the vectors of the height rows from r0 on.
func vectorsOf(w *choose.Matrix, r0, height int) *vectors {
	v := &vectors{height: height}
	end := min(r0+height, w.Dim(0))
	for i := range w.Row(r0) {
		var any uint64
		for r := r0; r < end; r++ {
			any |= w.Row(r)[i]
		}
		for ; any != 0; any &= any - 1 {
			bit, n := bits.TrailingZeros64(any), 0
			for r := r0; r < end; r++ {
				n += int(w.Row(r)[i] >> bit & 1)
			}
			v.columns, v.filled = append(v.columns, uint32(i<<6+bit)), append(v.filled, n)
		}
	}
	return v
}

// counts is how many vectors have so many elements that are not zero.
func (v *vectors) counts() []int {
	out := make([]int, v.height+1)
	for _, n := range v.filled {
		out[n]++
	}
	return out
}

// fullest marks the fullest vectors, up to width, among equals the first.
func (v *vectors) fullest(width int) []bool {
	counts, least := v.counts(), v.height
	for least > 0 && counts[least] <= width { // all of these are in
		width -= counts[least]
		least--
	}
	in := make([]bool, len(v.filled))
	for i, n := range v.filled {
		switch {
		case n > least:
			in[i] = true
		case n == least && width > 0:
			in[i] = true
			width--
		}
	}
	return in
}

// split says how a matrix divides into vectors of a height and a rest.
type split struct {
	width int         // vectors in each block row, 0 where no few rows are long
	rest  sparse.Rest // of a few rows
}

// few is how many times as many rows as have a rest there are, at least.
const few = 16

// splitOf finds the least width that leaves a rest to few rows. Some rows are long where the fullest block row has more than
// twice as many vectors as the mean.
func splitOf(w *choose.Matrix, height int) split {
	type key int // the height
	return choose.Once(w, key(height), func() (s split) {
		all, blocks := w.Blocks(height, 1), sparse.Ceil(w.Dim(0), height)
		if all.Widest*blocks <= 2*all.Blocks {
			return s
		}
		s.width = 1 + sort.Search(all.Widest-1, func(i int) bool { return few*restOf(w, height, i+1).Rows <= w.Dim(0) })
		if s.rest = restOf(w, height, s.width); s.rest.Rows == 0 {
			return split{}
		}
		return s
	})
}

// restOf counts what a width leaves.
func restOf(w *choose.Matrix, height, width int) (rest sparse.Rest) {
	for r0 := 0; r0 < w.Dim(0); r0 += height {
		v := vectorsOf(w, r0, height)
		if len(v.columns) <= width {
			continue
		}
		in := v.fullest(width)
		for r := r0; r < min(r0+height, w.Dim(0)); r++ {
			words, before := w.Row(r), rest.Values
			for i, c := range v.columns {
				if !in[i] {
					rest.Values += int(words[c>>6] >> (c & 63) & 1)
				}
			}
			if rest.Values > before {
				rest.Rows++
			}
		}
	}
	return rest
}
