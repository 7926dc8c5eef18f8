package group

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/ir/tensor"
)

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
	chunks int // of a row
	per    int // chunks of a group, 0 where groups are no whole chunks, or blocks end within several
	scales ukernel.Values
	set    []uint64 // of a bitmap, words a row
	words  int
	huge   bool
	start  []int           // of a bitmap: the number of the first code of each row, and of the end, counting halves of bytes behind rows
	marks  func() []uint32 // of a bitmap: those of the first code of each block of each row, from that of the row on
}

// bindable checks the sizes of the parts, so that kernels read nothing else.
func (w *Weight) bindable() (*matrix, error) {
	if w.M < 0 || w.K <= 0 || w.K > math.MaxInt32 || w.Block <= 0 || w.Blocks != (w.K-1)/w.Block+1 || w.Bits != 4 && w.Bits != 8 {
		return nil, fmt.Errorf("no weight of %d x %d codes of %d bits with %d scales a row, each of %d", w.M, w.K, w.Bits, w.Blocks, w.Block)
	}
	m := &matrix{Weight: *w, chunks: (w.K + Chunk - 1) / Chunk}
	if per := w.Block / Chunk; w.Block >= w.K {
		m.per = m.chunks
	} else if w.Block%Chunk == 0 && per&(per-1) == 0 {
		m.per = per
	}
	s := w.Scales
	if s == nil || s.DType() != tensor.F16 && s.DType() != tensor.F32 || !fills(s.Len(), w.M, w.Blocks) {
		return nil, fmt.Errorf("want scales [%d,%d] of f16 or f32", w.M, w.Blocks)
	}
	m.form = form{zeros: w.Zeros != nil, half: s.DType() == tensor.F16}
	m.scales = sparse.Values(s)
	if m.zeros && !fills(len(w.Zeros), w.M, w.Blocks) {
		return nil, fmt.Errorf("%d zeros, want [%d,%d]", len(w.Zeros), w.M, w.Blocks)
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

// dense checks the sizes of the parts of dense codes.
func (w *Weight) dense() (*matrix, error) {
	m, err := w.bindable()
	if err != nil {
		return nil, err
	}
	m.kind = wholes
	if w.Bits == 4 {
		m.kind = halves
	}
	if each := w.RowBytes(); !fills(len(w.Codes), w.M, each) {
		return nil, fmt.Errorf("%d bytes of codes, want [%d,%d]", len(w.Codes), w.M, each)
	}
	return m, nil
}

// matrix checks the sizes of the parts of a bitmap.
func (w *Bitmap) matrix() (*matrix, error) {
	m, err := w.bindable()
	if err != nil {
		return nil, err
	}
	m.kind, m.set, m.words = bitmaps, w.Set, (w.K+63)/64
	switch {
	case m.zeros:
		return nil, errors.New("zeros beside bits")
	case w.Words != m.words || !fills(len(w.Set), w.M, w.Words):
		return nil, fmt.Errorf("%d words of bits, want [%d,%d]", len(w.Set), w.M, m.words)
	}
	for r := range w.M {
		if last := w.Set[(r+1)*w.Words-1]; w.K%64 != 0 && last>>(w.K%64) != 0 {
			return nil, fmt.Errorf("row %d: a bit behind column %d is set", r, w.K-1)
		}
	}
	m.start = w.Starts()
	if n, want := len(w.Codes), m.start[w.M]+codeBytes(Beyond, w.Bits); n != want {
		return nil, fmt.Errorf("%d bytes of codes of those bits, want %d", n, want)
	}
	for r := range m.start {
		m.start[r] *= 8 / w.Bits
	}
	m.marks = sync.OnceValue(m.mark)
	for _, v := range m.scales.Float32s() {
		m.huge = m.huge || !(math.Abs(float64(v)) < hugeScale)
	}
	return m, nil
}

// hugeScale is what scales of bitmaps are below, so that sums of codes times 2^24, as kernels have them, are finite.
const hugeScale = 0x1p64

// ones is the number of bits that are set.
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
func (m *matrix) blocks() int { return (m.K + blockColumns - 1) / blockColumns }

func (m *matrix) mark() []uint32 {
	out := make([]uint32, 0, m.M*m.blocks())
	for r := range m.M {
		n := 0
		for from := 0; from < m.words; from += blockWords {
			out = append(out, uint32(n))
			n += ones(m.set[r*m.words+from : r*m.words+min(from+blockWords, m.words)])
		}
	}
	return out
}
