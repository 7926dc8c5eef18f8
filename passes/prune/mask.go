package prune

import (
	"math/bits"
	"sync/atomic"
)

// Mask marks the weights of a matrix [Rows, Cols] that stay nonzero, a bit
// each; every row starts on a word of its own.
type Mask struct {
	Rows, Cols int
	stride     int
	words      []uint64
}

// NewMask returns a mask that keeps nothing.
func NewMask(rows, cols int) *Mask {
	stride := (cols + 63) / 64
	return &Mask{Rows: rows, Cols: cols, stride: stride, words: make([]uint64, rows*stride)}
}

// Row returns the words of row r: column c is bit c%64 of word c/64, and the
// bits past the last column are zero. The words are the mask's own.
func (m *Mask) Row(r int) []uint64 { return m.words[r*m.stride : (r+1)*m.stride] }

// Keeps reports whether the weight at row r, column c stays.
func (m *Mask) Keeps(r, c int) bool { return m.Row(r)[c>>6]>>(c&63)&1 != 0 }

// Set marks the weight at row r, column c as staying.
func (m *Mask) Set(r, c int) { m.Row(r)[c>>6] |= 1 << (c & 63) }

// RowCount returns the number of weights of row r that stay.
func (m *Mask) RowCount(r int) int { return popcount(m.Row(r)) }

// Count returns the number of weights that stay.
func (m *Mask) Count() int { return popcount(m.words) }

func popcount(words []uint64) (n int) {
	for _, w := range words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Apply sets the weights that do not stay to zero. w holds [Rows, Cols], or
// [Cols, Rows] where transposed.
func (m *Mask) Apply(w []float32, transposed bool) { m.apply(w, transposed, 0, m.Rows, 0, m.stride) }

// apply is Apply for the columns of words from..to-1 of rows lo..hi-1.
func (m *Mask) apply(w []float32, transposed bool, lo, hi, from, to int) {
	// Tiles keep the strided side of a transposed matrix in cache.
	const tile = 64
	for r0 := lo; r0 < hi; r0 += tile {
		for word := from; word < to; word++ {
			c0 := word * 64
			for r := r0; r < min(r0+tile, hi); r++ {
				cut := ^m.words[r*m.stride+word]
				if n := m.Cols - c0; n < 64 {
					cut &= 1<<n - 1
				}
				for ; cut != 0; cut &= cut - 1 {
					c := c0 + bits.TrailingZeros64(cut)
					if transposed {
						w[c*m.Rows+r] = 0
					} else {
						w[r*m.Cols+c] = 0
					}
				}
			}
		}
	}
}

// kept returns the weights of a layer, those that do not stay zero.
func (p *pool) kept(m *Mask, l *Layer) []float32 {
	w := make([]float32, len(l.Weights))
	if l.Transposed {
		p.run(m.stride, func(_ *scratch, word int) {
			from, to := 64*word*m.Rows, min(64*(word+1), m.Cols)*m.Rows
			copy(w[from:to], l.Weights[from:to])
			m.apply(w, true, 0, m.Rows, word, word+1)
		})
		return w
	}
	const rows = 64
	p.run((m.Rows+rows-1)/rows, func(_ *scratch, i int) {
		lo, hi := i*rows, min((i+1)*rows, m.Rows)
		copy(w[lo*m.Cols:hi*m.Cols], l.Weights[lo*m.Cols:])
		m.apply(w, false, lo, hi, 0, m.stride)
	})
	return w
}

// zeros counts zeros.
func (p *pool) zeros(w []float32) int {
	const part = 1 << 18
	var n atomic.Int64
	p.run((len(w)+part-1)/part, func(_ *scratch, i int) { n.Add(int64(zeros(w[i*part : min((i+1)*part, len(w))]))) })
	return int(n.Load())
}
