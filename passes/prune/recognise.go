package prune

import "math/bits"

// Structure describes where the nonzeros of a matrix are.
type Structure struct {
	Pattern Pattern
	Tally
	RowMin, RowMax int     // the smallest and the largest number of nonzeros in a row
	ZeroRows       int     // rows without any
	Fill           float64 // nonzeros over the weights that the pattern stores
}

// nearly is the share from which a pattern is taken to be full: a few of the
// weights that it keeps may happen to be zero.
const nearly = 0.95

// blockShapes are the shapes that Recognise tries, C a power of two up to 64.
var blockShapes = [...][2]int{
	{2, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}, {64, 1},
	{1, 2}, {1, 4}, {1, 8}, {1, 16}, {1, 32}, {1, 64},
	{2, 2}, {4, 2}, {8, 2}, {2, 4}, {4, 4}, {8, 4}, {4, 8}, {8, 8},
	{16, 4}, {4, 16}, {16, 16}, {32, 32}, {64, 64},
}

// groupSizes are the M of the N:M patterns that Recognise tries.
var groupSizes = [...]int{2, 4, 8, 16}

// Recognise finds the pattern of an already sparse matrix, the first that
// holds of
//
//   - channel: whole rows are zero and the others nearly full;
//   - dense: nearly full;
//   - block or uniform-block: the largest of the shapes tried whose nonzero
//     blocks are nearly full; uniform-block where no block row has more
//     nonzero blocks than nearly all of them have;
//   - N:M: no M consecutive weights have more than N < M nonzeros, and the
//     groups are nearly full, the smallest M first;
//   - block or uniform-block with N:M within: the largest of the shapes tried, of two groups at least and C a multiple of M, whose
//     nonzero blocks hold nearly all that N:M leaves;
//   - uniform: no row has more nonzeros than nearly all rows have;
//   - unstructured,
//
// where nearly is 95 percent. It reads the mask once for each shape and M.
func Recognise(m *Mask) Structure {
	s := Structure{RowMin: m.Cols}
	nonzeros, atMax := 0, 0
	for r := range m.Rows {
		n := m.RowCount(r)
		nonzeros += n
		if n == 0 {
			s.ZeroRows++
		}
		if n > s.RowMax {
			s.RowMax, atMax = n, 0
		}
		if n == s.RowMax {
			atMax++
		}
		s.RowMin = min(s.RowMin, n)
	}
	all := m.Rows * m.Cols
	s.Tally = Tally{Weights: all, Zeros: all - nonzeros}
	fill := func(stored int) float64 {
		if stored == 0 {
			return 1
		}
		return float64(nonzeros) / float64(stored)
	}
	s.Pattern, s.Fill = Pattern{Kind: Channel}, fill((m.Rows-s.ZeroRows)*m.Cols)
	if s.ZeroRows > 0 && s.Fill >= nearly {
		return s
	}
	s.Pattern, s.Fill = Pattern{Kind: Dense}, fill(all)
	if s.Fill >= nearly {
		return s
	}

	area := 0
	for _, shape := range blockShapes {
		r, c := shape[0], shape[1]
		if r > m.Rows || c > m.Cols || r*c < area {
			continue
		}
		stored, uniform := m.blocks(r, c)
		if f := fill(stored); f >= nearly && (r*c > area || f > s.Fill) {
			s.Pattern, s.Fill, area = Pattern{Kind: Block, R: r, C: c}, f, r*c
			if uniform {
				s.Pattern.Kind = UniformBlock
			}
		}
	}
	if area > 0 {
		return s
	}
	for _, g := range groupSizes {
		if m.Cols < 2*g {
			break
		}
		n := m.mostOf(g)
		stored := m.Rows * (m.Cols/g*n + tailLimit(n, g, m.Cols%g))
		if f := fill(stored); n < g && f >= nearly {
			s.Pattern, s.Fill = Pattern{Kind: NM, N: n, M: g}, f
			return s
		}
	}
	if p, f, ok := m.blocksOfGroups(nonzeros); ok {
		s.Pattern, s.Fill = p, f
		return s
	}
	if float64(atMax) >= nearly*float64(m.Rows) {
		s.Pattern, s.Fill = Pattern{Kind: Uniform}, fill(m.Rows*s.RowMax)
		return s
	}
	s.Pattern, s.Fill = Pattern{Kind: Unstructured}, 1
	return s
}

// blocksOfGroups finds blocks with N:M within: the pattern, and the share of what it stores that is not zero.
func (m *Mask) blocksOfGroups(nonzeros int) (p Pattern, fill float64, ok bool) {
	for _, g := range groupSizes {
		if m.Cols < 2*g {
			break
		}
		n := m.mostOf(g)
		if n == g {
			continue
		}
		for _, shape := range blockShapes {
			r, c := shape[0], shape[1]
			if r > m.Rows || c > m.Cols || c%g != 0 || r*c < 2*g || r*c < p.R*p.C {
				continue
			}
			blocks, uniform := m.blocks(r, c)
			f := float64(nonzeros) * float64(g) / (float64(blocks) * float64(n))
			if blocks == 0 || f < nearly || r*c == p.R*p.C && f <= fill {
				continue
			}
			p, fill, ok = Pattern{Kind: Block, R: r, C: c, N: n, M: g}, f, true
			if uniform {
				p.Kind = UniformBlock
			}
		}
	}
	return p, min(fill, 1), ok
}

// blocks returns how many weights the blocks of r x c hold that are not all
// zero, and whether nearly all block rows have the largest number of them.
// c is a power of two, at most 64.
func (m *Mask) blocks(r, c int) (stored int, uniform bool) {
	first := ^uint64(0) / (1<<(c-1)<<1 - 1) // the first bit of each c
	tail := m.Cols % c
	tailBit := m.Cols / c * c
	rows, most, atMost := 0, 0, 0
	for r0 := 0; r0 < m.Rows; r0 += r {
		h := min(r, m.Rows-r0)
		count := 0
		for w := range m.stride {
			var x uint64
			for i := range h {
				x |= m.words[(r0+i)*m.stride+w]
			}
			for shift := 1; shift < c; shift <<= 1 {
				x |= x >> shift
			}
			x &= first
			n := bits.OnesCount64(x)
			count += n
			stored += n * h * c
			if tail != 0 && tailBit>>6 == w && x>>(tailBit&63)&1 != 0 {
				stored -= h * (c - tail)
			}
		}
		rows++
		if count > most {
			most, atMost = count, 0
		}
		if count == most {
			atMost++
		}
	}
	return stored, float64(atMost) >= nearly*float64(rows)
}

// mostOf returns the largest number of nonzeros among size consecutive weights
// of a row, from multiples of size on, and at least what makes tailLimit hold
// for a shorter last group. size is a power of two below 64.
func (m *Mask) mostOf(size int) (most int) {
	tail := m.Cols % size
	for r := range m.Rows {
		for i, x := range m.Row(r) {
			last := i == m.stride-1 && tail != 0
			for left := min(64, m.Cols-i*64); left > 0; left -= size {
				n := bits.OnesCount64(x & (1<<size - 1))
				if last && left < size {
					// The smallest N with n <= ceil(N*tail/size).
					n = (n-1)*size/tail + 1
				}
				most = max(most, n)
				x >>= size
			}
			if most == size {
				return most
			}
		}
	}
	return most
}
