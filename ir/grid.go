package ir

import (
	"fmt"
	"slices"

	"spc/ir/tensor"
)

// Grid says that the elements of a constant weight of f32 are whole numbers of steps, as weights that were quantised alone
// are: element = (code - zero) * scale, rounded once, with a scale, and a zero where there are some, for each block of elements
// along an axis, or along several that count as one, and codes of few bits. It is that of blocked DequantizeLinear. What makes another
// constant of a weight without telling the grid loses it, and nothing else: the elements are what counts.
type Grid struct {
	Bits   int            // of a code: 4 or 8
	Axis   int            // along which the elements of a block lie
	More   int            // axes behind Axis that count as one with it, row-major: those of a convolution's window
	Block  int            // elements of a block, the last of which may have fewer
	Scales *tensor.Tensor // f16 or f32, of the weight's shape but for ceil(size/Block) in the place of those axes
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
	if g.Axis < 0 || g.More < 0 || g.Axis >= len(shape)-g.More || g.Block < GridBlock {
		return fmt.Errorf("blocks of %d elements along axis %d and %d more of rank %d, want at least %d along some of them", g.Block, g.Axis, g.More, len(shape), GridBlock)
	}
	want := g.shape(shape)
	if s := g.Scales; s == nil || s.DType() != tensor.F32 && s.DType() != tensor.F16 || !slices.Equal(s.Shape(), want) {
		return fmt.Errorf("want scales %v of f32 or f16", want)
	}
	if z := g.Zeros; z != nil && (z.DType() != tensor.I8 || !slices.Equal(z.Shape(), want)) {
		return fmt.Errorf("want zeros %v of i8", want)
	}
	return nil
}

// shape is that of the scales for a weight of a shape.
func (g *Grid) shape(shape []int) []int {
	size := elems(shape[g.Axis : g.Axis+g.More+1])
	out := append(append([]int(nil), shape[:g.Axis]...), (size+g.Block-1)/g.Block)
	return append(out, shape[g.Axis+g.More+1:]...)
}

func elems(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Permute returns the grid of the weight with its axes permuted as those of Tensor.Permute are, nil where those of blocks
// would not stay together.
func (g *Grid) Permute(perm ...int) *Grid {
	if g.Whole(len(perm)) {
		return g.as(len(perm))
	}
	out := *g
	out.Axis = slices.Index(perm, g.Axis)
	var scales []int // the permutation of their axes
	for i, p := range perm {
		switch {
		case p < g.Axis+1:
			scales = append(scales, p)
		case p > g.Axis+g.More:
			scales = append(scales, p-g.More)
		case i == 0 || perm[i-1] != p-1:
			return nil
		}
	}
	return out.with(func(t *tensor.Tensor) *tensor.Tensor { return t.Permute(scales...) })
}

// Reshape returns the grid of the weight of shape `from` in another shape of as many elements, nil where that has no axes
// for those of blocks.
func (g *Grid) Reshape(from, to []int) *Grid {
	if g.Whole(len(from)) {
		return g.as(len(to))
	}
	before, size := elems(from[:g.Axis]), elems(from[g.Axis:g.Axis+g.More+1])
	out := *g
	for out.Axis = len(to) - 1; out.Axis >= 0; out.Axis-- {
		if elems(to[:out.Axis]) != before {
			continue
		}
		for out.More = 0; out.Axis+out.More < len(to); out.More++ {
			if elems(to[out.Axis:out.Axis+out.More+1]) == size {
				shape := out.shape(to)
				return out.with(func(t *tensor.Tensor) *tensor.Tensor { return t.Reshape(shape...) })
			}
		}
	}
	return nil
}

// Whole reports whether a weight of a rank is one block, whose axes all count as one.
func (g *Grid) Whole(rank int) bool { return g.Axis == 0 && g.More == rank-1 && g.Scales.Len() == 1 }

// as returns the grid of a weight that is one block for another rank, nil for none.
func (g *Grid) as(rank int) *Grid {
	if rank == 0 {
		return nil
	}
	out := *g
	out.More = rank - 1
	return &out
}

// rows returns the grid of W[M,K] that is one block with a block for each row.
func (g *Grid) rows(m, k int) *Grid {
	out := *g
	out.Axis, out.More, out.Block = 1, 0, max(GridBlock, k)
	return out.with(func(t *tensor.Tensor) *tensor.Tensor { return t.Reshape(1, 1).Expand(m, 1) })
}

// GridScales returns scales, or those of another type of floats, as grids have them: in f16 where that holds them.
func GridScales(t *tensor.Tensor) *tensor.Tensor {
	t = t.To(tensor.F32)
	if half := t.To(tensor.F16); half.To(tensor.F32).Equal(t) {
		return half
	}
	return t
}

// Matrix returns the grid of W[M,K] as a view of the weight, whose blocks lie along K: scales and zeros are [M, ceil(K/Block)].
// It is nil where blocks lie otherwise.
func (g *Grid) Matrix(v View, shape []int) *Grid {
	out, permuted := g, make([]int, len(shape))
	for i := range shape {
		permuted[i] = shape[v.axis(i)]
	}
	if v.Perm != nil {
		if out = g.Permute(v.Perm...); out == nil {
			return nil
		}
	}
	m, k := v.Dims(shape)
	if out = out.Reshape(permuted, []int{m, k}); out != nil && out.Whole(2) {
		return out.rows(m, k)
	}
	if out == nil || out.Axis != 1 {
		return nil
	}
	return out
}

// Tensor is the inverse of Matrix: the grid of a weight of a shape from that of W as a view of it, nil where there is none.
func (g *Grid) Tensor(v View, shape []int) *Grid {
	permuted, back := make([]int, len(shape)), make([]int, len(shape))
	for i := range shape {
		permuted[i] = shape[v.axis(i)]
		back[v.axis(i)] = i
	}
	m, k := v.Dims(shape)
	out := g.Reshape([]int{m, k}, permuted)
	if out == nil {
		return nil
	}
	return out.Permute(back...)
}

// Scaled returns the weight w, of the grid, with the slices along an axis multiplied by factors, which the steps take over, rounded, and its grid.
// Both are nil where blocks lie along that axis, or f32 cannot hold a step.
func (g *Grid) Scaled(w *tensor.Tensor, axis int, factors []float64) (*tensor.Tensor, *Grid) {
	shape, at := w.Shape(), axis
	switch {
	case axis > g.Axis+g.More:
		at -= g.More
	case axis >= g.Axis:
		return nil, nil
	}
	old := g.Scales.To(tensor.F32)
	scales := old.Clone().F32s()
	inner := elems(old.Shape()[at+1:])
	for i, s := range scales {
		f := float32(float64(s) * factors[i/inner%len(factors)])
		if f-f != 0 || f == 0 && s != 0 {
			return nil, nil
		}
		scales[i] = f
	}
	t := tensor.New(tensor.F32, shape...)
	after, size := elems(shape[g.Axis+g.More+1:]), elems(shape[g.Axis:g.Axis+g.More+1])
	blocks := (size + g.Block - 1) / g.Block
	for i, v := range w.F32s() {
		b := (i/(after*size)*blocks+i/after%size/g.Block)*after + i%after
		n, ok := encode(v, old.F32s()[b], 0)
		if !ok {
			return nil, nil
		}
		t.F32s()[i] = float32(n) * scales[b]
	}
	out := *g
	out.Scales = GridScales(tensor.From(scales, old.Shape()...))
	return t, &out
}

// with returns g with scales and zeros of which f makes others.
func (g Grid) with(f func(t *tensor.Tensor) *tensor.Tensor) *Grid {
	if g.Scales = f(g.Scales); g.Zeros != nil {
		g.Zeros = f(g.Zeros)
	}
	return &g
}

// Encode returns the codes i8 of w, f32 of the shape that the grid is checked for, which is 2; false where an element is
// not one of the grid's, or a scale not finite.
func (g *Grid) Encode(w *tensor.Tensor) (*tensor.Tensor, bool) {
	m, k := w.Dim(0), w.Dim(1)
	least, most := g.Codes()
	codes := make([]int8, m*k)
	scales, blocks := g.Scales.To(tensor.F32).F32s(), g.Scales.Dim(1)
	if slices.ContainsFunc(scales, func(s float32) bool { return s-s != 0 }) {
		return nil, false
	}
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
