package group

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/internal/lent"
)

// kernels are those of an instruction set. What it has none for is computed of floats that the portable code makes.
type kernels struct {
	isa   string
	lanes int
	forms map[form]routines
	// sums are those of a column by group and lane, times a factor, and nibbles makes i8 of halves of bytes, 32 at a time.
	sums    func(chunks, per int, factor float32, x, sums []float32)
	nibbles func(blocks int, src []byte, dst []int8)
}

// routines are those of a form whose groups are whole chunks.
type routines struct {
	vec   func(o operands) // multiplies blocks of four rows by a column
	widen func(o operands) // makes floats of chunks of a row, which begin with a group
}

// operands are those of routines.
type operands struct {
	blocks, chunks, per int
	codes               []byte
	bits                []uint64
	start               []int // of bitmaps: where the values of each row begin, and where those of the last end
	values              []int8
	scales              ukernel.Values
	zeros               []int8
	ldw, lds            int // how far rows are apart: bytes of codes or bits; scales and zeros
	sums, x, y          []float32
}

// kernelName is what the names of kernels for codes of so many bits begin with.
func kernelName(bits int, bitmap bool) string {
	if bitmap {
		return fmt.Sprintf("f32_bitmap_int%d", bits)
	}
	return fmt.Sprintf("f32_int%d", bits)
}

// tileRows are those that meet a column together, and nearColumns the columns of which floats are made at a time: they and those of a
// column of X take most of a level 1 cache.
const (
	tileRows    = 4
	nearColumns = 1024
)

// weight is a weight with kernels for it. It has no Tokens, so that who multiplies by it makes panels.
type weight struct {
	*matrix
	kern *kernels
	routines
	bounds []int
}

// few is a weight for products of few columns.
type few struct{ *weight }

// Kernel prepares dense codes, which it keeps. The error says which part has another size than it should have.
func (w *Weight) Kernel() (backend.FloatKernel, error) { return prepare(w.dense()) }

// Kernel is that of a bitmap.
func (w *Bitmap) Kernel() (backend.FloatKernel, error) { return prepare(w.matrix()) }

func prepare(m *matrix, err error) (backend.FloatKernel, error) {
	if err != nil {
		return nil, err
	}
	return bind(m, best()), nil
}

func bind(m *matrix, kern *kernels) few {
	w := &weight{matrix: m, kern: kern}
	if m.per > 0 {
		w.routines = kern.forms[m.form]
	}
	if m.huge {
		w.vec = nil
	}
	for c := 0; c < m.K; c += blockColumns {
		w.bounds = append(w.bounds, c)
	}
	w.bounds = append(w.bounds, m.K)
	return few{w}
}

func (w *weight) Name() string { return kernelName(w.Bits, w.kind == bitmaps) + "__" + w.kern.isa }

func (w *weight) Tile() int     { return ukernel.MR }
func (w *weight) Bounds() []int { return w.bounds }

// VecColumns is 1: Tokens is faster for more.
func (w *weight) VecColumns() int { return 1 }

// alone is the number of columns up to which Tokens multiplies by one after the other: codes of some rows, which stay in a near cache, are
// then read faster than floats are made of them.
func (w *weight) alone() int {
	switch {
	case w.vec == nil:
		return 0
	case w.kind == bitmaps:
		return 3
	}
	return 4
}

// Sized returns the kernel that makes panels where there are more than a few columns.
func (w few) Sized(n int) backend.FloatKernel {
	if n <= machine.Codes(w.Bits, w.kind == bitmaps).VecColumns() {
		return w
	}
	return w.weight
}

// Warm finds the codes of the blocks of bitmaps.
func (w *weight) Warm(bool) {
	if w.kind == bitmaps {
		w.marks()
	}
}

// scratch is the memory of a call.
type scratch struct {
	x, sums, floats []float32
	values          []int8
	start           [tileRows + 1]int
	y               [tileRows]float32
}

var scratches = lent.NewPool(func() *scratch { return new(scratch) })

// room returns n elements of a slice, which grows.
func room[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}

// Vec multiplies by a column: four rows at a time, and what is left over of these with rows before, or alone.
func (w *weight) Vec(y, x []float32, r0, r1 int) {
	y, x = y[:r1-r0], x[:w.K]
	s := scratches.Get()
	defer scratches.Put(s)
	if w.vec == nil {
		w.near(s, y, 0, x, 1, r0, r1)
		return
	}
	o := w.operands(s, x)
	whole := (r1 - r0) / tileRows
	w.rows(s, o, y, r0, whole)
	switch left := (r1 - r0) % tileRows; {
	case left > 0 && whole > 0:
		w.rows(s, o, y[len(y)-tileRows:], r1-tileRows, 1)
	case left > 0:
		o.ldw, o.lds = 0, 0 // four times the same
		for i := range y {
			w.rows(s, o, s.y[:], r0+i, 1)
			y[i] = s.y[0]
		}
	}
}

// operands are those of products with a column, but for the rows.
func (w *weight) operands(s *scratch, x []float32) operands {
	o := operands{chunks: w.chunks, per: w.per, ldw: w.rowBytes(), lds: w.Blocks, x: x}
	if w.K%Chunk != 0 {
		o.x = room(&s.x, w.chunks*Chunk)
		clear(o.x[copy(o.x, x):])
	}
	if w.zeros || w.kind == halves {
		factor := float32(-1)
		if !w.zeros {
			factor = -8
		}
		o.sums = room(&s.sums, w.Blocks*w.kern.lanes)
		w.kern.sums(w.chunks, w.per, factor, o.x, o.sums)
	}
	return o
}

// rowBytes are those of the codes of a row, or of its bits.
func (m *matrix) rowBytes() int {
	if m.kind == bitmaps {
		return 8 * m.words
	}
	return m.RowBytes()
}

// rows computes so many times four rows from r on, or one row again and again where ldw is 0.
func (w *weight) rows(s *scratch, o operands, y []float32, r, blocks int) {
	if blocks == 0 {
		return
	}
	if w.kind == bitmaps && (w.Bits == 4 || o.ldw == 0) {
		o.blocks = 1
		for b := range blocks {
			o.y = y[tileRows*b:]
			w.bitRows(s, o, r+tileRows*b)
		}
		return
	}
	w.place(&o, r)
	o.blocks, o.y = blocks, y
	if w.kind == bitmaps {
		o.start, o.values = w.start[r:], asSigned(w.Codes)
	}
	w.vec(o)
}

// bitRows is rows for four rows of a bitmap.
func (w *weight) bitRows(s *scratch, o operands, r int) {
	w.place(&o, r)
	from, to := w.start[r], w.start[r+1]
	clear(s.start[:])
	if o.ldw > 0 {
		for i := range s.start {
			s.start[i] = w.start[r+i] - from
		}
		to = w.start[r+tileRows]
	}
	o.start, o.values = s.start[:], w.valuesOf(s, from, to)
	w.vec(o)
}

// valuesOf returns the values from to to-1 as i8, with room for reads that begin there.
func (w *weight) valuesOf(s *scratch, from, to int) []int8 {
	if w.Bits == 8 {
		return asSigned(w.Codes)[from:]
	}
	first := from &^ 1
	blocks := (to - first + 31) / 32
	values := room(&s.values, 32*blocks+Beyond+1)
	if blocks > 0 {
		w.kern.nibbles(blocks, w.Codes[first/2:], values)
	}
	return values[from-first:]
}

// place has operands begin with row r.
func (w *weight) place(o *operands, r int) {
	o.scales = w.scales.Slice(r*w.Blocks, w.scales.Len())
	if w.zeros {
		o.zeros = w.Zeros[r*w.Blocks:]
	}
	if w.kind == bitmaps {
		o.bits = w.set[r*w.words:]
	} else {
		o.codes = w.Codes[r*w.rowBytes():]
	}
}

// floats makes those of columns c0 to c1-1 of row r, which begin with a word and, where there are such, with value number at. Dst has room
// for whole chunks.
func (w *weight) floats(s *scratch, dst []float32, r, c0, c1, at int) {
	if w.widen == nil {
		w.floatsGo(dst[:c1-c0], r, c0, at)
		return
	}
	left, chunk := (c1-c0+Chunk-1)/Chunk, c0/Chunk
	var o operands
	w.place(&o, r)
	if w.kind == bitmaps {
		o.bits = o.bits[c0/64:]
		o.values = w.valuesOf(s, at, at+ones(o.bits[:(c1-c0+63)/64]))
	} else {
		o.codes = o.codes[c0*w.Bits/8:]
	}
	o.scales = o.scales.Slice(chunk/w.per, o.scales.Len())
	if w.zeros {
		o.zeros = o.zeros[chunk/w.per:]
	}
	o.chunks, o.per, o.y = left, w.per, dst
	if chunk%w.per > 0 { // the block lies within a group
		o.per = left
	}
	w.widen(o)
}

// Tokens multiplies by a few columns.
func (w few) Tokens(y, x []float32, tokens, m0, m1 int, _ []float32) {
	if tokens <= w.alone() {
		const some = 16
		for r := m0; r < m1; r += some {
			for t := range tokens {
				w.Vec(y[t*w.M+r:t*w.M+min(m1, r+some)], x[t*w.K:], r, min(m1, r+some))
			}
		}
		return
	}
	s := scratches.Get()
	defer scratches.Put(s)
	w.near(s, y[m0:], w.M, x, tokens, m0, m1)
}

// near multiplies rows r0 to r1-1 by columns that are K elements apart, as those of Y are ldy: some columns of four rows become floats, which
// then meet all columns of X.
func (w *weight) near(s *scratch, y []float32, ldy int, x []float32, n, r0, r1 int) {
	floats, kern := room(&s.floats, tileRows*nearColumns), ukernel.Best()
	for r := r0; r < r1; r += tileRows {
		rows := min(tileRows, r1-r)
		for c0 := 0; c0 < w.K; c0 += nearColumns {
			c1 := min(w.K, c0+nearColumns)
			for i := range rows {
				w.floats(s, floats[i*nearColumns:(i+1)*nearColumns], r+i, c0, c1, w.valueAt(r+i, c0))
			}
			for t := range n {
				kern.MulVec(rows, c1-c0, floats, nearColumns, x[t*w.K+c0:], s.y[:])
				to := y[t*ldy+r-r0:][:rows]
				for i, v := range s.y[:rows] {
					if c0 > 0 {
						v += to[i]
					}
					to[i] = v
				}
			}
		}
	}
}

// Panel makes floats of the block for some rows at a time.
func (w *weight) Panel(y, x []float32, b, granules, r0, r1 int) {
	s := scratches.Get()
	defer scratches.Put(s)
	c0, c1 := w.bounds[b], w.bounds[b+1]
	floats, gemm := room(&s.floats, ukernel.MR*blockColumns), &ukernel.Best().Gemm
	for r := r0; r < r1; r += ukernel.MR {
		rows := min(ukernel.MR, r1-r)
		for i := range rows {
			w.floats(s, floats[i*blockColumns:(i+1)*blockColumns], r+i, c0, c1, w.valueAt(r+i, c0))
		}
		gemm.Tile(rows, granules, c1-c0, floats, blockColumns, 1, x, backend.Panel, y[(r-r0)*backend.Panel:], backend.Panel, b > 0)
	}
}

// valueAt is the number of the first value of row r from column c on, with which a block begins.
func (m *matrix) valueAt(r, c int) int {
	if m.kind != bitmaps {
		return 0
	}
	return m.start[r] + int(m.marks()[r*m.blocks()+c/blockColumns])
}
