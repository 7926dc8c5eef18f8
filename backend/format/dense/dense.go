// Package dense is the format that stores every element of a weight: one part,
// values f32 [M,K].
package dense

import (
	"fmt"
	"sync"

	"spc/backend"
	"spc/backend/format/rate"
	"spc/backend/format/ukernel"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Format is the dense format.
type Format struct{}

// Name is dense.
func (Format) Name() string { return choose.Dense }

// Costs offers the one configuration, counting a multiply-add for every element
// and column.
func (Format) Costs(w *choose.Matrix, n int) []choose.Cost {
	k := w.Dim(1)
	return []choose.Cost{{
		Kernel: "f32_gemm", Work: 2 * float64(w.Len()) * float64(backend.Columns(n)), Bytes: 4 * w.Len(),
		Efficiency: rate.Dense.Efficiency(float64(k), k, n),
	}}
}

// Pack stores the matrix itself.
func (Format) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	if config != "" {
		return nil, fmt.Errorf("unknown configuration %q", config)
	}
	return []ir.Part{{Name: "values", Data: w}}, nil
}

// Check wants the values.
func (Format) Check(s *ir.Store) error {
	if s.Config != "" {
		return fmt.Errorf("unknown configuration %q", s.Config)
	}
	if v := s.Part("values"); v == nil || len(s.Parts) != 1 || v.DType() != tensor.F32 || v.Rank() != 2 || v.Dim(0) != s.Rows || v.Dim(1) != s.Cols {
		return fmt.Errorf("want one part values f32[%d,%d]", s.Rows, s.Cols)
	}
	return nil
}

// Unpack returns the values.
func (Format) Unpack(s *ir.Store) (*tensor.Tensor, error) { return s.Part("values"), nil }

// Kernel multiplies with the values.
func (Format) Kernel(s *ir.Store) (backend.Kernel, error) { return New(s.Part("values")), nil }

// New prepares a dense weight f32 [M,K], which it keeps.
func New(w *tensor.Tensor) backend.Kernel { return bind(w, ukernel.Best()) }

func bind(w *tensor.Tensor, kern *ukernel.Kernels) *kernel {
	d := &kernel{kern: kern, m: w.Dim(0), k: w.Dim(1), w: w.F32s()}
	d.packed = sync.OnceValue(func() []float32 {
		p := make([]float32, kern.Gemm.PackedLen(d.m, d.k))
		kern.Gemm.Pack(p, d.w, d.m, d.k, d.k)
		return p
	})
	return d
}

// kernel multiplies panels with a copy of the weight packed in tiles, which is
// made when the first of them comes, and vectors with the weight itself.
type kernel struct {
	kern   *ukernel.Kernels
	m, k   int
	w      []float32
	packed func() []float32
}

func (d *kernel) Name() string {
	return fmt.Sprintf("f32_gemm_%dx%d__%s", d.Tile(), backend.Panel, d.kern.ISA)
}
func (d *kernel) Tile() int { return d.kern.Gemm.MR }

func (d *kernel) Panel(y []float32, ldy int, x []float32, r0, r1 int) {
	d.kern.Gemm.Panel(r1-r0, d.k, d.packed()[r0*d.k:], x, y, ldy, false)
}

func (d *kernel) Vec(y, x []float32, r0, r1 int) {
	d.kern.MulVec(r1-r0, d.k, d.w[r0*d.k:], d.k, x, y)
}
