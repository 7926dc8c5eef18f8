// Package emit generates machine code for the products of one sparse weight with
// panels, see package ukernel: for rows without blocks, whose nonzeros meet the
// columns of X in no order. Code has neither indices to load nor loops to predict.
//
// A block of columns of W is multiplied in groups of up to 30 rows. The code of a
// group computes 16 columns of Y, a row in each register: it loads every row of X
// that one of its rows needs once, and each nonzero is one multiply-add whose value
// is broadcast from memory. It does so for one granule of the panel after the
// other, and meanwhile fetches the code of the group that is called next into the
// level 2 cache, from where instructions come fast enough.
//
// Code is written into memory of its own that is executable once it is no longer
// writable. It exists on Linux on amd64 with AVX-512, unless the system forbids
// such memory or the build has the tag noasm. The package imports internal/isa,
// internal/memory and ukernel only.
package emit

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"spc/backend/format/ukernel"
	"spc/internal/memory"
)

const (
	columns = ukernel.Columns // of a panel
	granule = ukernel.Granule // columns of a vector
)

// BlockK is the number of columns of a block of W that suits the code, as
// BenchmarkCode says: its panel leaves room for rows of Y in the level 1 cache.
const BlockK = 128

// Bounds cuts k columns, at least 1, evenly into blocks of at most BlockK.
func Bounds(k int) []int {
	n := (k + BlockK - 1) / BlockK
	bounds := make([]int, n+1)
	for b := range bounds {
		bounds[b] = b * k / n
	}
	return bounds
}

// Index is the type of column indices.
type Index interface{ uint16 | uint32 }

// Weight is W[M,K] as compressed sparse rows: row r has the columns
// Index[Ptr[r]:Ptr[r+1]], ascending below K, and these values.
type Weight[I Index] struct {
	M, K  int
	Ptr   []uint32
	Index []I
	Value []float32
}

// Shape says how products are cut: into blocks of columns Bounds[b] to
// Bounds[b+1]-1, at most ukernel.BlockK of them, and into chunks of Chunk rows. At is
// nil for panels [K][64], else the columns of X that column k of W meets begin at
// element At[k], not negative and below ukernel.MaxPlace, of the panel.
type Shape struct {
	Bounds []int
	Chunk  int
	At     []int
}

// check panics unless s cuts a weight of k columns.
func (s *Shape) check(k int) {
	if s.Chunk < 1 {
		panic("emit: chunks have no rows")
	}
	last := len(s.Bounds) - 1
	if last < 0 || s.Bounds[0] != 0 || s.Bounds[last] != k || s.At != nil && len(s.At) != k {
		panic("emit: shape is not that of the weight")
	}
	for b := range last {
		if n := s.Bounds[b+1] - s.Bounds[b]; n < 1 || n > ukernel.BlockK {
			panic("emit: no block of so many columns")
		}
	}
	for _, e := range s.At {
		if e < 0 || e >= ukernel.MaxPlace {
			panic("emit: place outside of a panel")
		}
	}
}

// Code is the machine code of a weight. It lives as long as it is reachable.
type Code struct {
	m, chunk int
	blocks   []block
	text     []byte
}

// block is the code of a block of columns.
type block struct {
	calls []call
	start []int // by chunk, in calls, and the end
	reach int   // the element of the panel at which the last column that is read begins
}

// call is a group of rows: where its code begins in the text, its first row in the chunk, and their number.
type call struct{ text, row, rows uint32 }

// maxMaps bounds the weights that have code at a time, since a process has only so
// many mappings; maxText the code of one, within which jumps reach.
const (
	maxMaps = 4096
	maxText = 1 << 30
)

var maps atomic.Int32

// since counts the bytes that were mapped since garbage was last collected for it:
// the collector does not see code, and what is unreachable would pile up.
var since atomic.Int64

const sinceLimit = 256 << 20

// New returns the code for products with w, which must be as its documentation
// says; nil where there is none: where Available is false, or memory is short. It
// panics unless s is a shape of w.
func New[I Index](w *Weight[I], s Shape) *Code {
	s.check(w.K)
	most := mostText(w, s)
	if !Available() || most > maxText || memory.Check(most) != nil {
		return nil
	}
	if maps.Add(1) > maxMaps {
		maps.Add(-1)
		return nil
	}
	m, err := writable(most)
	if err != nil {
		maps.Add(-1)
		return nil
	}
	c, n := generate(w, s, m)
	if m, err = executable(m, n); err != nil {
		maps.Add(-1)
		return nil
	}
	c.text = m[:n]
	if since.Add(int64(len(m))) > sinceLimit {
		since.Store(0)
		runtime.GC()
	}
	runtime.AddCleanup(c, func(m []byte) {
		release(m)
		maps.Add(-1)
	}, m)
	return c
}

// Mul computes the rows r0 to r1-1 of the product of block b with so many granules
// of a panel, y = W x, and adds them to what y holds if b is not 0. r0 is a
// multiple of the chunk's rows, r1 one too or the number of rows. The rows of y,
// which begins with r0, are 64 elements apart. In the last block the rows go to f unless it is nil.
func (c *Code) Mul(b, r0, r1, granules int, x, y []float32, f *ukernel.Finish) {
	blk := &c.blocks[b]
	switch {
	case r0 < 0 || r0%c.chunk != 0 || r0 > r1 || r1 > c.m || r1%c.chunk != 0 && r1 != c.m:
		panic("emit: rows are not whole chunks")
	case granules < 1 || granules > columns/granule:
		panic("emit: no panel of that width")
	case len(x) < blk.reach+granules*granule:
		panic("emit: panel is too short")
	case len(y) < (r1-r0)*columns:
		panic("emit: output has too few rows")
	}
	last := b == len(c.blocks)-1
	if f != nil {
		if !last {
			panic("emit: rows are finished in the last block")
		}
		f.Check(r1-r0, granules)
	}
	for n := r0 / c.chunk; n*c.chunk < r1; n++ {
		calls := blk.calls[blk.start[n]:blk.start[n+1]]
		row := n*c.chunk - r0
		switch {
		case len(calls) == 0:
		case !last:
			run(unsafe.SliceData(c.text), unsafe.SliceData(calls), len(calls), granules, unsafe.SliceData(x), &y[row*columns])
		default:
			var to *ukernel.FinishArgs
			if f != nil {
				to = f.From(row)
			}
			runLast(unsafe.SliceData(c.text), unsafe.SliceData(calls), len(calls), granules, unsafe.SliceData(x), &y[row*columns], to)
		}
	}
	runtime.KeepAlive(f)
	runtime.KeepAlive(c)
}

// Len is the number of bytes of code and values.
func (c *Code) Len() int { return len(c.text) }
