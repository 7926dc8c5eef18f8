// Package bitmap is the format for products with few columns, which take as long as it takes to read the weight: a bit for each
// element that says whether it is stored, and those that are. Its parts are bits u64 [M, ceil(K/64)], the element of column c in bit
// c%64 of word c/64 of its row, zero behind the last column; and values f32 [nonzeros+8], those of the bits that are set, row by
// row in the order of their columns, and then eight zeros: kernels read eight values wherever one begins. Those of a weight on a grid are
// codes (package group). Products with more columns are those of csr.
package bitmap

import (
	"errors"
	"fmt"
	"math/bits"

	"spc/backend"
	"spc/backend/format/csr"
	"spc/backend/format/group"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Name is that of the format.
const Name = "bitmap"

// New returns the format. GPUs multiply its weights as those of csr.
func New() *backend.Format {
	return &backend.Format{Storage: storage{}, Kernels: []backend.Kernels{{
		Weights: sparse.Floats, X: tensor.F32, Sums: tensor.F32, ISA: best().isa,
		Cost: cost, CPU: kernel, GPU: storage{},
	}}}
}

// storage is the format as backend.Storage and backend.GPUKernels.
type storage struct{ csr.Scheme }

func (storage) Name() string { return Name }

// beyond is the number of zeros behind the values.
const beyond = 8

// Layouts lists the one configuration that suits the elements.
func (storage) Layouts(w *choose.Matrix) []backend.Layout {
	if g := w.Grid; g != nil {
		if g.Zeros != nil {
			return nil
		}
		row := func(r int) (n int) {
			for _, word := range w.Row(r) {
				n += bits.OnesCount64(word)
			}
			return n
		}
		return []backend.Layout{{
			Config: choose.GridOf(g).String(), Rows: 1, Values: w.Nonzeros, Bytes: group.BitmapBytes(g, w.Dim(0), w.Dim(1), row),
		}}
	}
	return []backend.Layout{{
		Rows: 1, Values: w.Nonzeros,
		Bytes: 8*w.Dim(0)*sparse.Ceil(w.Dim(1), 64) + (w.Nonzeros+beyond)*w.Type.Size(),
	}}
}

// besideCSR is by what products with many columns are taken to be slower than those of csr, whose kernels they have: those need a copy of
// the weight, which csr has as it is stored.
const besideCSR = 1.02

// cost is that of reading each element's bit, for few columns, and of csr for more.
func cost(p *machine.Profile, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
	if w.Grid == nil && !sparse.Suits(w, l) || w.Grid != nil && (l.Bytes >= group.DenseBytes(w.Grid, w.Dim(0), w.Dim(1)) || w.Len() > sparse.MaxElems) {
		return choose.Cost{}, false
	}
	c := choose.Cost{Work: 2 * float64(w.Len()) * float64(n), Efficiency: p.Of(machine.Bitmap).Read(w.Dim(1), n)}
	if w.Slide != nil || n > machine.Bitmap.VecColumns() {
		c = sparse.Cost(p, Name, w, n, csr.Scheme{}.Layouts(w)[0])
		c.Efficiency /= besideCSR
	}
	c.Config, c.Kernel, c.Bytes = l.Config, kernelName, l.Bytes
	return c, true
}

// Pack lists the nonzeros, and where they are.
func (storage) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	if config != "" {
		return nil, fmt.Errorf("unknown configuration %q", config)
	}
	m, k := w.Dim(0), w.Dim(1)
	if k == 0 {
		return nil, fmt.Errorf("rows without columns: %w", choose.ErrFit)
	}
	words := sparse.Ceil(k, 64)
	set := make([]uint64, m*words)
	var values []float32
	for r := range m {
		for c, v := range w.F32s()[r*k : (r+1)*k] {
			if v != 0 {
				set[r*words+c/64] |= 1 << (c % 64)
				values = append(values, v)
			}
		}
	}
	values = append(values, make([]float32, beyond)...)
	return []ir.Part{
		{Name: "bits", Data: tensor.From(set, m, words)},
		{Name: "values", Data: tensor.From(values, len(values))},
	}, nil
}

// PackGrid lists the codes of the nonzeros, and where they are.
func (f storage) PackGrid(w *tensor.Tensor, g *ir.Grid, config string) ([]ir.Part, error) {
	if config == "" {
		return f.Pack(w, config)
	}
	if want := choose.GridOf(g).String(); config != want {
		return nil, fmt.Errorf("configuration %q of a weight on a grid %s", config, want)
	}
	return group.PackBitmap(w, g)
}

// matrix views a store, which may come from a hostile file.
type matrix struct {
	m, k, words int // words of a row
	bits        []uint64
	values      *tensor.Tensor
}

// view checks the configuration and the number, the types and the shapes of the parts.
func view(s *ir.Store) (*matrix, error) {
	if s.Config != "" {
		return nil, fmt.Errorf("unknown configuration %q", s.Config)
	}
	if s.Cols == 0 { // then no bytes of the file stand for the rows
		return nil, errors.New("rows without columns")
	}
	words := sparse.Ceil(s.Cols, 64)
	p, err := sparse.Parts(s,
		sparse.Spec{Name: "bits", DType: tensor.U64, Shape: []int{s.Rows, words}},
		sparse.Spec{Name: "values", DType: tensor.F32, Shape: []int{sparse.Any}})
	if err != nil {
		return nil, err
	}
	return &matrix{s.Rows, s.Cols, words, tensor.Data[uint64](p[0]), p[1]}, nil
}

func (storage) Check(s *ir.Store) error {
	if s.Config != "" {
		return group.CheckBitmap(s)
	}
	w, err := view(s)
	if err != nil {
		return err
	}
	if w.k%64 != 0 {
		for r := range w.m {
			if last := w.bits[(r+1)*w.words-1]; last>>(w.k%64) != 0 {
				return fmt.Errorf("row %d: a bit behind column %d is set", r, w.k-1)
			}
		}
	}
	count := w.starts()[w.m]
	if n := w.values.Len(); n != count+beyond {
		return fmt.Errorf("%d values of %d bits that are set, want %d more", n, count, beyond)
	}
	for i, v := range w.tail() {
		if v != 0 {
			return fmt.Errorf("value %d is behind those of the bits, and not zero", count+i)
		}
	}
	return nil
}

// starts lists the number of the first value of each row, and of all.
func (w *matrix) starts() []int {
	out := make([]int, w.m+1)
	for r := range w.m {
		n := out[r]
		for _, word := range w.bits[r*w.words : (r+1)*w.words] {
			n += bits.OnesCount64(word)
		}
		out[r+1] = n
	}
	return out
}

// tail returns the values behind those of the bits.
func (w *matrix) tail() []float32 {
	n, size := w.values.Len(), w.values.DType().Size()
	end, err := tensor.FromBytes(w.values.DType(), []int{beyond}, w.values.Bytes()[(n-beyond)*size:])
	if err != nil {
		panic(err) // the sizes agree
	}
	return end.To(tensor.F32).F32s()
}

// blocks lists the elements as those of csr.
func (w *matrix) blocks() *sparse.Blocks {
	n := w.values.Len() - beyond
	b := &sparse.Blocks{
		M: w.m, K: w.k, R: 1, C: 1,
		Ptr: make([]uint32, 1, w.m+1), Column: make([]uint32, 0, n), Values: sparse.Values(w.values).Slice(0, n),
	}
	for r := range w.m {
		for i, word := range w.bits[r*w.words : (r+1)*w.words] {
			for ; word != 0; word &= word - 1 {
				b.Column = append(b.Column, uint32(64*i+bits.TrailingZeros64(word)))
			}
		}
		b.Ptr = append(b.Ptr, uint32(len(b.Column)))
	}
	return b
}

func (storage) Unpack(s *ir.Store) (*tensor.Tensor, error) {
	if s.Config != "" {
		w, err := group.ViewBitmap(s)
		if err != nil {
			return nil, err
		}
		return w.Unpack(), nil
	}
	w, err := view(s)
	if err != nil {
		return nil, err
	}
	return w.blocks().Matrix(), nil
}

func (f storage) GPU(s *ir.Store, x tensor.DType) ([]backend.GPUKernel, error) {
	w, err := f.floats(s)
	if err != nil {
		return nil, err
	}
	return f.Scheme.GPU(w.blocks(), x)
}

// floats views a store, whose codes become values.
func (f storage) floats(s *ir.Store) (*matrix, error) {
	if s.Config == "" {
		return view(s)
	}
	w, err := f.Unpack(s)
	if err != nil {
		return nil, err
	}
	parts, err := f.Pack(w, "")
	if err != nil {
		return nil, err
	}
	return view(&ir.Store{Format: Name, View: s.View, Rows: s.Rows, Cols: s.Cols, Parts: parts})
}

func kernel(s *ir.Store) (backend.Kernel, error) {
	w, err := storage{}.floats(s)
	if err != nil {
		return nil, err
	}
	return bind(w, best())
}
