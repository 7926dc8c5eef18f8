package bitmap

import (
	"slices"
	"sync"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/internal/lent"
	"spc/ir/tensor"
)

// kernels are those of an instruction set.
type kernels struct {
	isa   string
	tiles map[tensor.DType][]tile // by the type of values, those of more columns first
}

// tile computes rows for so many columns.
type tile struct {
	columns int
	mul     func(o operands)
}

// operands are those of a tile: rows of so many words of bits, whose values follow each other; columns of X that are ldx elements apart,
// and of Y ldy. Tail, unless it is nil, is a copy of the columns of X that the last word has, with zeros behind them, [columns][64].
type operands struct {
	rows, words int
	bits        []uint64
	values      ukernel.Values
	x, tail, y  []float32
	ldx, ldy    int
}

// kernelName is what the names of kernels begin with.
const kernelName = "f32_bitmap"

// weight multiplies few columns by its values where the bits are, and more as csr does.
type weight struct {
	*matrix
	isa    string
	given  ukernel.Values
	start  []int // the number of the first value of each row
	tiles  []tile
	shape  backend.FloatKernel        // of csr and of the same size, without nonzeros
	panels func() backend.FloatKernel // of csr, made when it is needed first
}

func bind(w *matrix, kern *kernels) (backend.FloatKernel, error) {
	none := &sparse.Blocks{M: w.m, K: w.k, R: 1, C: 1, Ptr: make([]uint32, w.m+1), Values: sparse.Values(tensor.New(tensor.F32, 0))}
	shape, err := none.Kernel(Name)
	if err != nil {
		return nil, err
	}
	return &weight{
		matrix: w, isa: kern.isa, given: sparse.Values(w.values), start: w.starts(), tiles: kern.tiles[w.values.DType()], shape: shape,
		panels: sync.OnceValue(func() backend.FloatKernel {
			k, err := w.blocks().Kernel(Name)
			if err != nil {
				panic(err) // one of the same size was made before
			}
			return k
		}),
	}, nil
}

func (w *weight) Name() string { return kernelName + "__" + w.isa }

func (w *weight) Tile() int     { return w.shape.Tile() }
func (w *weight) Bounds() []int { return w.shape.Bounds() }

// Sized returns the kernel of csr for many columns.
func (w *weight) Sized(n int) backend.FloatKernel {
	if n <= machine.Bitmap.VecColumns() {
		return w
	}
	k := w.panels()
	if s, ok := k.(backend.Sizer); ok {
		k = s.Sized(n)
	}
	return k
}

// Warm makes the kernel of csr, which Panel needs.
func (w *weight) Warm(tokens bool) {
	if !tokens {
		w.panels()
	}
}

// Panel is that of csr.
func (w *weight) Panel(y, x []float32, b, granules, r0, r1 int) {
	w.panels().Panel(y, x, b, granules, r0, r1)
}

// VecColumns is 1: Tokens is faster for more.
func (w *weight) VecColumns() int { return 1 }

func (w *weight) Vec(y, x []float32, r0, r1 int) { w.mul(y, 0, x, 1, r0, r1) }

// Tokens takes some rows at a time, which then stay in a near cache for all tokens.
func (w *weight) Tokens(y, x []float32, tokens, m0, m1 int, _ []float32) {
	const some = 16
	for r := m0; r < m1; r += some {
		w.mul(y[r:], w.m, x, tokens, r, min(m1, r+some))
	}
}

// mul computes rows r0 to r1 of Y for n columns of X, which are K elements apart, as those of Y are ldy.
func (w *weight) mul(y []float32, ldy int, x []float32, n, r0, r1 int) {
	if r0 == r1 || n == 0 {
		return
	}
	_, _ = y[(n-1)*ldy+r1-r0-1], x[:n*w.k]
	end := tails.Get()
	defer tails.Put(end)
	o := operands{
		rows: r1 - r0, words: w.words, ldx: w.k, ldy: ldy, bits: w.bits[r0*w.words : r1*w.words],
		values: w.given.Slice(w.start[r0], w.given.Len()),
	}
	for c := 0; c < n; {
		t := w.tile(n - c)
		o.x, o.y = x[c*w.k:], y[c*ldy:]
		if left := w.k % 64; left > 0 {
			o.tail = end[:]
			for i := range t.columns {
				clear(end[i*64+copy(end[i*64:], o.x[(i+1)*w.k-left:(i+1)*w.k]) : (i+1)*64])
			}
		}
		t.mul(o)
		c += t.columns
	}
}

// tile returns the one with the most columns, up to n.
func (w *weight) tile(n int) *tile {
	i := slices.IndexFunc(w.tiles, func(t tile) bool { return t.columns <= n })
	return &w.tiles[i]
}

// tails lends what the columns of a tile that the last word has are copied to.
var tails = lent.NewPool(func() *[8 * 64]float32 { return new([8 * 64]float32) })
