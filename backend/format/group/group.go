// Package group multiplies by weights that were quantised alone, in groups along K, as ir.Grid describes them: an element is
// (code - zero) * scale, with a scale, and a zero where there are some, for each group of columns of a row. Codes of 8 or 4 bits are
// stored for all elements, or for those that are not zero beside a bit for each (Weight). Products of one column read the codes
// and multiply by scales once a group; those of a few columns make floats of some rows, in a near cache, for all of them; panels do so
// for each panel.
//
// It is no format by itself: dense and bitmap have their weights multiplied here.
package group

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"spc/backend/format/ukernel"
	"spc/ir/tensor"
)

// Weight is W[M,K]. Behind column K codes are those of zero: the zero of the last group, and bits are not set.
type Weight struct {
	Rows, Cols int
	Bits       int            // of a code: 4 or 8
	Block      int            // columns of a group, the last of which may have fewer
	Scales     *tensor.Tensor // f16 or f32 [M, ceil(K/Block)]
	Zeros      []int8         // of that shape; nil where they are 0, as for bitmaps

	// Codes of all elements are i8 [M, ceil(K/Chunk)*Chunk], or halves of bytes [M, ceil(K/Chunk)*Chunk/2]: byte i of a chunk
	// has column i in its low bits and column i+Chunk/2 in its high ones, each as code + 8.
	Codes []byte

	// Set has bit c%64 of word c/64 of each row, [M, ceil(K/64)], where column c is stored, and Values these row by row in
	// the order of their columns: as i8, or as halves of bytes, low ones first, each as code + 8. Beyond bytes are behind them, which
	// kernels read and which do not matter; so that Values are never nil but where all elements are stored.
	Set    []uint64
	Values []byte
}

// Chunk is the number of columns to whose multiples rows are filled up, and Beyond of the bytes behind values.
const (
	Chunk  = 32
	Beyond = 16
)

// Bytes are how many a row of codes takes, and n values with what is behind them.
func Bytes(cols, bits int) int   { return (cols + Chunk - 1) / Chunk * Chunk * bits / 8 }
func ValueBytes(n, bits int) int { return (n*bits+7)/8 + Beyond }

// kind is how codes are stored.
type kind int

const (
	wholes  kind = iota // i8
	halves              // of bytes
	bitmaps             // of values where bits are set
)

// form is what kernels are made for.
type form struct {
	kind  kind
	zeros bool
	half  bool // scales are f16
}

// matrix is a weight whose parts are as long as they should be.
type matrix struct {
	Weight
	form
	chunks, groups int // of a row
	per            int // chunks of a group, 0 where groups are no whole chunks, or blocks end within several
	words          int // of a row of bits
	scales         ukernel.Values
	start          []int           // of bitmaps: the number of the first value of each row, and of all
	marks          func() []uint32 // of bitmaps: those of the first value of each block of each row, from that of the row on
}

// mostColumns is more than any weight has whose rows are read with 32 bits.
const mostColumns = math.MaxInt32

// view checks the sizes of the parts, so that kernels read nothing else.
func view(w *Weight) (*matrix, error) {
	if w.Rows < 0 || w.Cols <= 0 || w.Cols > mostColumns || w.Block <= 0 || w.Bits != 4 && w.Bits != 8 {
		return nil, fmt.Errorf("no weight of %d x %d codes of %d bits in groups of %d", w.Rows, w.Cols, w.Bits, w.Block)
	}
	m := &matrix{Weight: *w, chunks: (w.Cols + Chunk - 1) / Chunk, groups: (w.Cols-1)/w.Block + 1, words: (w.Cols + 63) / 64}
	if per := w.Block / Chunk; w.Block >= w.Cols {
		m.per = m.chunks
	} else if w.Block%Chunk == 0 && per&(per-1) == 0 {
		m.per = per
	}
	s := w.Scales
	if s == nil || s.DType() != tensor.F16 && s.DType() != tensor.F32 || !fills(s.Len(), w.Rows, m.groups) {
		return nil, fmt.Errorf("want scales [%d,%d] of f16 or f32", w.Rows, m.groups)
	}
	m.form = form{kind: wholes, zeros: w.Zeros != nil, half: s.DType() == tensor.F16}
	if m.half {
		m.scales = ukernel.F16(tensor.Data[tensor.Half](s))
	} else {
		m.scales = ukernel.F32(s.F32s())
	}
	if m.zeros && !fills(len(w.Zeros), w.Rows, m.groups) {
		return nil, fmt.Errorf("%d zeros, want [%d,%d]", len(w.Zeros), w.Rows, m.groups)
	}
	if w.Values != nil {
		return m, m.viewBits()
	}
	if w.Bits == 4 {
		m.kind = halves
	}
	if each := Bytes(w.Cols, w.Bits); !fills(len(w.Codes), w.Rows, each) {
		return nil, fmt.Errorf("%d bytes of codes, want [%d,%d]", len(w.Codes), w.Rows, each)
	}
	return m, nil
}

// fills reports whether n elements are those of so many rows.
func fills(n, rows, each int) bool {
	if rows == 0 {
		return n == 0
	}
	return n%rows == 0 && n/rows == each
}

// viewBits checks the sizes of the parts of a bitmap.
func (m *matrix) viewBits() error {
	m.kind = bitmaps
	switch {
	case m.zeros:
		return errors.New("zeros beside bits")
	case !fills(len(m.Set), m.Rows, m.words):
		return fmt.Errorf("%d words of bits, want [%d,%d]", len(m.Set), m.Rows, m.words)
	}
	m.start = make([]int, m.Rows+1)
	for r := range m.Rows {
		row := m.Set[r*m.words : (r+1)*m.words]
		if last := row[m.words-1]; m.Cols%64 != 0 && last>>(m.Cols%64) != 0 {
			return fmt.Errorf("row %d: a bit behind column %d is set", r, m.Cols-1)
		}
		m.start[r+1] = m.start[r] + ones(row)
	}
	if n, want := len(m.Values), ValueBytes(m.start[m.Rows], m.Bits); n != want {
		return fmt.Errorf("%d bytes of values of %d bits that are set, want %d", n, m.start[m.Rows], want)
	}
	m.marks = sync.OnceValue(m.mark)
	return nil
}

func ones(words []uint64) (n int) {
	for _, w := range words {
		n += bits.OnesCount64(w)
	}
	return n
}

// blockColumns are those of a block of panels, and blockWords their words.
const (
	blockColumns = 256
	blockWords   = blockColumns / 64
)

// blocks is the number of blocks of a row.
func (m *matrix) blocks() int { return (m.Cols + blockColumns - 1) / blockColumns }

func (m *matrix) mark() []uint32 {
	out := make([]uint32, 0, m.Rows*m.blocks())
	for r := range m.Rows {
		n := 0
		for from := 0; from < m.words; from += blockWords {
			out = append(out, uint32(n))
			n += ones(m.Set[r*m.words+from : r*m.words+min(from+blockWords, m.words)])
		}
	}
	return out
}
