// Package group is weights that were quantised alone, whose codes have a scale for each block of elements along K: their
// parts, which the formats dense and bitmap keep in configurations such as int4x32 (choose.Grid), and the kernels that multiply
// them by activations of f32. An element is (code - zero) * scale. It imports backend and sparse.
//
// Both formats have the parts codes, scales [M, ceil(K/block)] of f16 or f32, and, where a zero is not 0, zeros i8 of the same
// shape. Codes of 4 bits are stored as code+8, two in a byte.
//
// Products of dense codes by a column sum up codes as they are stored and subtract what these are off by, times the sum of the column: they are rounded
// as a sum of (|code+8| + 8 + |zero|) * scale * |x| is, even where elements are 0 (of 8 bits without the eights).
package group

import (
	"fmt"

	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Chunk is the number of columns of which dense codes are stored together: a row is as many whole chunks as K takes, those of 4
// bits of so many bytes that byte i of a chunk has column i in its low half and column i+Chunk/2 in the other. Behind column K-1 lie codes of
// zero.
const Chunk = 32

// Beyond is the number of codes of zero behind those of a bitmap: kernels read so many wherever one begins.
const Beyond = 32

// Offset is what is added to codes of 4 bits.
const Offset = 8

// Weight is a view of the parts of a weight W[M,K].
type Weight struct {
	M, K   int
	Bits   int            // of a code
	Block  int            // columns of a scale
	Blocks int            // scales of a row
	Codes  []byte         // of 8 bits in two's complement
	Scales *tensor.Tensor // f16 or f32 [M, Blocks]
	Zeros  []int8         // nil where all are 0
}

// RowBytes is the bytes of a row of dense codes.
func (w *Weight) RowBytes() int { return sparse.Ceil(w.K, Chunk) * Chunk * w.Bits / 8 }

// zero is that of a block of a row.
func (w *Weight) zero(r, b int) int8 {
	if w.Zeros == nil {
		return 0
	}
	return w.Zeros[r*w.Blocks+b]
}

// Bytes is the size of scales and zeros of a weight, m rows of k columns, on a grid.
func Bytes(g *ir.Grid, m, k int) int {
	size := g.Scales.DType().Size()
	if g.Zeros != nil {
		size++
	}
	return m * sparse.Ceil(k, g.Block) * size
}

// DenseBytes is the size of all parts of a dense weight.
func DenseBytes(g *ir.Grid, m, k int) int {
	return m*sparse.Ceil(k, Chunk)*Chunk*g.Bits/8 + Bytes(g, m, k)
}

// view returns the parts of a store, which may come from a hostile file, but for its codes: it checks the types and shapes of the others, which are the last.
func view(s *ir.Store, before int) (*Weight, error) {
	g, err := choose.ParseGrid(s.Config)
	if err != nil {
		return nil, err
	}
	if n, err := tensor.Elems([]int{s.Rows, s.Cols}); err != nil || n > sparse.MaxElems {
		return nil, fmt.Errorf("weight of %d x %d, want at most %d elements", s.Rows, s.Cols, sparse.MaxElems)
	}
	if s.Cols == 0 { // then no bytes of the file stand for the rows
		return nil, fmt.Errorf("rows without columns")
	}
	w := &Weight{M: s.Rows, K: s.Cols, Bits: g.Bits, Block: g.Block, Blocks: sparse.Ceil(s.Cols, g.Block)}
	if n := len(s.Parts); n != before+1 && n != before+2 {
		return nil, fmt.Errorf("%d parts, want %d, or %d with zeros", n, before+1, before+2)
	}
	for i, p := range s.Parts {
		if p.Data == nil {
			return nil, fmt.Errorf("part %s has no data", p.Name)
		}
		if i < before {
			continue
		}
		name, types := "scales", []tensor.DType{tensor.F16, tensor.F32}
		if i > before {
			name, types = "zeros", []tensor.DType{tensor.I8}
		}
		if !is(p, name, types, w.M, w.Blocks) {
			return nil, fmt.Errorf("part %d is %s %v, want %s %v[%d,%d]", i, p.Name, p.Data, name, types, w.M, w.Blocks)
		}
	}
	if w.Scales = s.Parts[before].Data; len(s.Parts) > before+1 {
		w.Zeros = tensor.Data[int8](s.Parts[before+1].Data)
	}
	return w, w.checkZeros()
}

// checkZeros wants zeros that are codes.
func (w *Weight) checkZeros() error {
	least, most := (&ir.Grid{Bits: w.Bits}).Codes()
	for i, z := range w.Zeros {
		if int(z) < least || int(z) > most {
			return fmt.Errorf("zero %d is %d, want one of %d to %d", i, z, least, most)
		}
	}
	return nil
}

// checkScales wants finite ones: with another, an element that is not stored would not be 0.
func (w *Weight) checkScales() error {
	for i, v := range sparse.Values(w.Scales).Float32s() {
		if v-v != 0 {
			return fmt.Errorf("scale %d is %v, want a finite one", i, v)
		}
	}
	return nil
}

// is reports whether a part has a name, one of some types, and a shape.
func is(p ir.Part, name string, types []tensor.DType, shape ...int) bool {
	if p.Name != name || p.Data.Rank() != len(shape) {
		return false
	}
	for i, n := range shape {
		if p.Data.Dim(i) != n {
			return false
		}
	}
	for _, t := range types {
		if p.Data.DType() == t {
			return true
		}
	}
	return false
}

// grid is that of a view.
func (w *Weight) grid() *ir.Grid {
	g := &ir.Grid{Bits: w.Bits, Axis: 1, Block: w.Block, Scales: w.Scales}
	if w.Zeros != nil {
		g.Zeros = tensor.From(w.Zeros, w.M, w.Blocks)
	}
	return g
}

// parts lists codes, and the scales and zeros of a grid.
func parts(g *ir.Grid, before ...ir.Part) []ir.Part {
	out := append(before, ir.Part{Name: "scales", Data: g.Scales})
	if g.Zeros != nil {
		out = append(out, ir.Part{Name: "zeros", Data: g.Zeros})
	}
	return out
}

// encode returns the codes of w [M,K] on its grid.
func encode(w *tensor.Tensor, g *ir.Grid) ([]int8, error) {
	if w.Dim(1) == 0 {
		return nil, fmt.Errorf("rows without columns: %w", choose.ErrFit)
	}
	codes, ok := g.Encode(w)
	if !ok {
		return nil, fmt.Errorf("elements that are none of the grid: %w", choose.ErrFit)
	}
	return tensor.Data[int8](codes), nil
}

// nibble puts a code of 4 bits at a place of a list of halves of bytes.
func nibble(out []byte, i int, high bool, code int8) {
	q := byte(code+Offset) & 15
	if high {
		q <<= 4
	}
	out[i] |= q
}

// Pack stores w [M,K], f32, as dense codes.
func Pack(w *tensor.Tensor, g *ir.Grid) ([]ir.Part, error) {
	codes, err := encode(w, g)
	if err != nil {
		return nil, err
	}
	m, k := w.Dim(0), w.Dim(1)
	v := &Weight{M: m, K: k, Bits: g.Bits, Block: g.Block, Blocks: sparse.Ceil(k, g.Block)}
	if g.Zeros != nil {
		v.Zeros = tensor.Data[int8](g.Zeros)
	}
	row := v.RowBytes()
	out := make([]byte, m*row)
	for r := range m {
		for c := range sparse.Ceil(k, Chunk) * Chunk {
			code := v.zero(r, v.Blocks-1)
			if c < k {
				code = codes[r*k+c]
			}
			v.put(out[r*row:], c, code)
		}
	}
	if g.Bits == 8 {
		return parts(g, ir.Part{Name: "codes", Data: tensor.From(signed(out), m, row)}), nil
	}
	return parts(g, ir.Part{Name: "codes", Data: tensor.From(out, m, row)}), nil
}

func signed(b []byte) []int8 {
	out := make([]int8, len(b))
	for i, v := range b {
		out[i] = int8(v)
	}
	return out
}

// put sets the code of a column in a row of zero bytes.
func (w *Weight) put(row []byte, c int, code int8) {
	if w.Bits == 8 {
		row[c] = byte(code)
		return
	}
	at := c / Chunk * Chunk / 2
	nibble(row, at+c%(Chunk/2), c%Chunk >= Chunk/2, code)
}

// code is that of a column of a row.
func (w *Weight) code(row []byte, c int) int8 {
	if w.Bits == 8 {
		return int8(row[c])
	}
	q := row[c/Chunk*Chunk/2+c%(Chunk/2)]
	if c%Chunk >= Chunk/2 {
		q >>= 4
	}
	return int8(q&15) - Offset
}

// Dense views a store of dense codes, which may come from a hostile file.
func Dense(s *ir.Store) (*Weight, error) {
	w, err := view(s, 1)
	if err != nil {
		return nil, err
	}
	want := tensor.U8
	if w.Bits == 8 {
		want = tensor.I8
	}
	if p := s.Parts[0]; !is(p, "codes", []tensor.DType{want}, w.M, w.RowBytes()) {
		return nil, fmt.Errorf("part 0 is %s %v, want codes %v[%d,%d]", p.Name, p.Data, want, w.M, w.RowBytes())
	}
	w.Codes = s.Parts[0].Data.Bytes()
	return w, nil
}

// CheckDense wants finite scales, and codes of zero behind the last column.
func CheckDense(s *ir.Store) error {
	w, err := Dense(s)
	if err != nil {
		return err
	}
	if err := w.checkScales(); err != nil {
		return err
	}
	n := w.RowBytes()
	for r := range w.M {
		row := w.Codes[r*n : (r+1)*n]
		for c := w.K; c < sparse.Ceil(w.K, Chunk)*Chunk; c++ {
			if w.code(row, c) != w.zero(r, w.Blocks-1) {
				return fmt.Errorf("row %d: a code behind column %d is not its zero", r, w.K-1)
			}
		}
	}
	return nil
}

// Unpack is the inverse of Pack: f32 [M,K].
func (w *Weight) Unpack() *tensor.Tensor {
	codes, n := make([]int8, w.M*w.K), w.RowBytes()
	for r := range w.M {
		row := w.Codes[r*n : (r+1)*n]
		for c := range w.K {
			codes[r*w.K+c] = w.code(row, c)
		}
	}
	return w.grid().Decode(tensor.From(codes, w.M, w.K))
}
