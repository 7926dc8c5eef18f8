package choose

import (
	"math/bits"

	"spc/ir"
	"spc/ir/tensor"
)

// Matrix is a weight with what formats ask of it. Its methods may not be called
// concurrently.
type Matrix struct {
	*tensor.Tensor     // f32 [M,K]
	Nonzeros       int // elements different from zero
	RowMin, RowMax int // least and most nonzeros in a row
	Pattern        string
	Slide          *ir.Slide    // of a convolution, else nil
	Type           tensor.DType // in which elements are stored
	Grid           *ir.Grid     // of the matrix, where its elements are stored as codes, else nil

	stride int      // words of a row in bits
	bits   []uint64 // bit k%64 of word k/64 of a row is set where the element is not zero
	tally  map[[2]int]Tally
	known  map[any]any
}

// Tally counts the blocks of a matrix that are not all zero.
type Tally struct {
	Blocks int // in the whole matrix
	Widest int // the most in a block row
}

// NewMatrix looks at w, f32 [M,K]. The pattern is a hint, empty where nobody
// recognised one. Zeros of either sign are zeros.
func NewMatrix(w *tensor.Tensor, pattern string) *Matrix {
	rows, cols := w.Dim(0), w.Dim(1)
	m := &Matrix{Tensor: w, RowMin: cols, Pattern: pattern, Type: tensor.F32, stride: (cols + 63) / 64, tally: map[[2]int]Tally{}, known: map[any]any{}}
	m.bits = make([]uint64, rows*m.stride)
	data := w.F32s()
	for r := range rows {
		n := 0
		words := m.Row(r)
		tensor.Nonzeros(words, data[r*cols:(r+1)*cols])
		for _, x := range words {
			n += bits.OnesCount64(x)
		}
		m.Nonzeros += n
		m.RowMin, m.RowMax = min(m.RowMin, n), max(m.RowMax, n)
	}
	return m
}

// Row is the bits of a row, in words of 64: bit k%64 of word k/64 is set where the element is not zero.
func (m *Matrix) Row(r int) []uint64 { return m.bits[r*m.stride : (r+1)*m.stride] }

// Len is how many elements the matrix has, whether the tensor still holds them or not.
func (m *Matrix) Len() int { return m.Dim(0) * m.Dim(1) }

// Density is the share of elements that are not zero.
func (m *Matrix) Density() float64 {
	if m.Len() == 0 {
		return 0
	}
	return float64(m.Nonzeros) / float64(m.Len())
}

// Once returns what find returned when it was first asked for under a key, whose type is the caller's own.
func Once[K comparable, T any](m *Matrix, key K, find func() T) T {
	if v, ok := m.known[key]; ok {
		return v.(T)
	}
	v := find()
	m.known[key] = v
	return v
}

// Blocks counts the blocks of r rows and c columns that are not all zero, those
// at the edges among them.
func (m *Matrix) Blocks(r, c int) Tally {
	key := [2]int{r, c}
	t, ok := m.tally[key]
	if ok {
		return t
	}
	union := make([]uint64, m.stride)
	for r0 := 0; r0 < m.Dim(0); r0 += r {
		clear(union)
		for i := r0; i < min(r0+r, m.Dim(0)); i++ {
			for j, x := range m.Row(i) {
				union[j] |= x
			}
		}
		n := occupied(union, c)
		t.Blocks += n
		t.Widest = max(t.Widest, n)
	}
	m.tally[key] = t
	return t
}

// occupied counts the runs of c bits, from multiples of c on, in which a bit is
// set.
func occupied(words []uint64, c int) (n int) {
	if c == 1 {
		for _, x := range words {
			n += bits.OnesCount64(x)
		}
		return n
	}
	end := 0 // of the last run that was counted
	for i, x := range words {
		for x != 0 {
			if k := i<<6 + bits.TrailingZeros64(x); k >= end {
				end = k/c*c + c
				n++
			}
			if end >= (i+1)<<6 {
				break
			}
			x = x >> (end & 63) << (end & 63)
		}
	}
	return n
}

// Most is the most nonzeros among size consecutive elements of a row, a power of two from 2 to 32, from multiples of size on. The bits
// of all such lanes of a word are counted at once, and compared with the most so far: a count that is greater sets the highest bit of its
// lane in the sum with what the most lacks to that bit.
func (m *Matrix) Most(size int) (most int) {
	ones := ^uint64(0) / (1<<size - 1) // 1 in each lane
	top := uint64(1) << (size - 1)
	for _, x := range m.bits {
		x -= x >> 1 & 0x5555555555555555
		if size > 2 {
			x = x&0x3333333333333333 + x>>2&0x3333333333333333
		}
		if size > 4 {
			x = (x + x>>4) & 0x0f0f0f0f0f0f0f0f
		}
		if size > 8 {
			x = (x + x>>8) & 0x00ff00ff00ff00ff
		}
		if size > 16 {
			x = (x + x>>16) & 0x0000ffff0000ffff
		}
		for (x+ones*(top-1-uint64(most)))&(ones*top) != 0 {
			if most++; most == size {
				return most
			}
		}
	}
	return most
}
