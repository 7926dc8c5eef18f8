package ir

import (
	"fmt"

	"spc/ir/tensor"
)

// Grid says that the elements of a constant weight of f32 are whole numbers of steps, as weights that were quantised alone
// are: element = (code - zero) * scale, rounded once, with a scale, and a zero where there are some, for each block of elements
// along an axis, and codes of few bits. It is that of blocked DequantizeLinear. What makes another constant of a weight
// without telling the grid loses it, and nothing else: the elements are what counts.
type Grid struct {
	Bits   int            // of a code: 4 or 8
	Axis   int            // along which the elements of a block lie
	Block  int            // elements of a block, the last of which may have fewer
	Scales *tensor.Tensor // f16 or f32, of the weight's shape but for ceil(size/Block) along Axis
	Zeros  *tensor.Tensor // i8, of that shape; nil where they are 0
}

// GridBlock is the least number of elements of a block.
const GridBlock = 16

// Codes returns the least and the greatest code: those of two's complement.
func (g *Grid) Codes() (least, most int) { return -1 << (g.Bits - 1), 1<<(g.Bits-1) - 1 }

// Check says what is wrong with the grid of a weight of a shape.
func (g *Grid) Check(shape []int) error {
	if g.Bits != 4 && g.Bits != 8 {
		return fmt.Errorf("codes of %d bits, want 4 or 8", g.Bits)
	}
	if g.Axis < 0 || g.Axis >= len(shape) || g.Block < GridBlock {
		return fmt.Errorf("blocks of %d elements along axis %d of rank %d, want at least %d along one of them", g.Block, g.Axis, len(shape), GridBlock)
	}
	want := g.shape(shape)
	if s := g.Scales; s == nil || s.DType() != tensor.F32 && s.DType() != tensor.F16 || !sameShape(s.Shape(), want) {
		return fmt.Errorf("want scales %v of f32 or f16", want)
	}
	if z := g.Zeros; z != nil && (z.DType() != tensor.I8 || !sameShape(z.Shape(), want)) {
		return fmt.Errorf("want zeros %v of i8", want)
	}
	return nil
}

// shape is that of the scales for a weight of a shape.
func (g *Grid) shape(shape []int) []int {
	out := append([]int(nil), shape...)
	out[g.Axis] = (shape[g.Axis] + g.Block - 1) / g.Block
	return out
}

func sameShape(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Permute returns the grid of the weight with its axes permuted as those of Tensor.Permute are.
func (g *Grid) Permute(perm ...int) *Grid {
	out := *g
	for i, p := range perm {
		if p == g.Axis {
			out.Axis = i
		}
	}
	out.Scales = g.Scales.Permute(perm...)
	if g.Zeros != nil {
		out.Zeros = g.Zeros.Permute(perm...)
	}
	return &out
}

// Matrix returns the grid of W[M,K] as a view of the weight, whose blocks lie along K: scales and zeros are [M, ceil(K/Block)].
// It is nil where blocks lie otherwise.
func (g *Grid) Matrix(v View, shape []int) *Grid {
	rank := len(shape)
	if rank == 0 || v.RowAxes != rank-1 || v.axis(rank-1) != g.Axis {
		return nil
	}
	out := *g
	out.Axis, out.Scales = 1, v.Matrix(g.Scales)
	if g.Zeros != nil {
		out.Zeros = v.Matrix(g.Zeros)
	}
	return &out
}

// Tensor is the inverse of Matrix for a weight of a shape.
func (g *Grid) Tensor(v View, shape []int) *Grid {
	out := *g
	out.Axis = v.axis(len(shape) - 1)
	blocks := out.shape(shape)
	out.Scales = v.Tensor(g.Scales, blocks)
	if g.Zeros != nil {
		out.Zeros = v.Tensor(g.Zeros, blocks)
	}
	return &out
}

// Encode returns the codes i8 of w, f32 of the shape that the grid is checked for, which is 2; false where an element is
// not one of the grid's.
func (g *Grid) Encode(w *tensor.Tensor) (*tensor.Tensor, bool) {
	m, k := w.Dim(0), w.Dim(1)
	least, most := g.Codes()
	codes := make([]int8, m*k)
	scales, blocks := g.Scales.To(tensor.F32).F32s(), g.Scales.Dim(1)
	var zeros []int8
	if g.Zeros != nil {
		zeros = tensor.Data[int8](g.Zeros)
	}
	for r := range m {
		for c, v := range w.F32s()[r*k : (r+1)*k] {
			b := r*blocks + c/g.Block
			zero := 0
			if zeros != nil {
				zero = int(zeros[b])
			}
			code, ok := encode(v, scales[b], zero)
			if !ok || code < least || code > most {
				return nil, false
			}
			codes[r*k+c] = int8(code)
		}
	}
	return tensor.From(codes, m, k), true
}

// encode returns the code that stands for v.
func encode(v, scale float32, zero int) (int, bool) {
	if v == 0 {
		return zero, true
	}
	q := float64(v) / float64(scale)
	if !(q > -512 && q < 512) {
		return 0, false
	}
	n := int(q + 0.5)
	if q < 0 {
		n = int(q - 0.5)
	}
	return n + zero, float32(n)*scale == v
}

// Decode is the inverse of Encode.
func (g *Grid) Decode(codes *tensor.Tensor) *tensor.Tensor {
	m, k := codes.Dim(0), codes.Dim(1)
	out := make([]float32, m*k)
	scales, blocks := g.Scales.To(tensor.F32).F32s(), g.Scales.Dim(1)
	for r := range m {
		for c, q := range tensor.Data[int8](codes)[r*k : (r+1)*k] {
			b := r*blocks + c/g.Block
			n := int(q)
			if g.Zeros != nil {
				n -= int(tensor.Data[int8](g.Zeros)[b])
			}
			out[r*k+c] = float32(n) * scales[b]
		}
	}
	return tensor.From(out, m, k)
}
