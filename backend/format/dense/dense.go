// Package dense is the format that stores every element of a weight: one part,
// values f32 [M,K].
package dense

import (
	"fmt"

	"spc/backend"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Format is the dense format.
type Format struct{}

// Name is dense.
func (Format) Name() string { return choose.Dense }

// Configs has the one configuration.
func (Format) Configs(*choose.Matrix) []string { return []string{""} }

// Cost counts a multiply-add for every element and column.
func (Format) Cost(w *choose.Matrix, _ string, n int) choose.Cost {
	c := choose.Cost{Kernel: "f32_gemm", Work: 2 * float64(w.Len()) * float64(n), Bytes: 4 * w.Len(), Efficiency: 0.85}
	return c
}

// Pack stores the matrix itself.
func (Format) Pack(w *tensor.Tensor, _ string) ([]ir.Part, error) {
	return []ir.Part{{Name: "values", Data: w}}, nil
}

// Check wants the values.
func (Format) Check(s *ir.Store) error {
	v := s.Part("values")
	if v == nil || len(s.Parts) != 1 || !v.Equal(v) || v.DType() != tensor.F32 || v.Rank() != 2 || v.Dim(0) != s.Rows || v.Dim(1) != s.Cols {
		return fmt.Errorf("want one part values f32[%d,%d]", s.Rows, s.Cols)
	}
	return nil
}

// Unpack returns the values.
func (Format) Unpack(s *ir.Store) (*tensor.Tensor, error) { return s.Part("values"), nil }

// Kernel multiplies with the values.
func (Format) Kernel(s *ir.Store) (backend.Kernel, error) { return New(s.Part("values")), nil }

// kernel is a plain Go product.
type kernel struct {
	m, k int
	w    []float32
}

// New prepares a dense weight f32 [M,K].
func New(w *tensor.Tensor) backend.Kernel {
	return &kernel{w.Dim(0), w.Dim(1), w.F32s()}
}

func (*kernel) Name() string { return "f32_gemm_1x32__go" }
func (*kernel) Tile() int    { return 1 }

func (d *kernel) Panel(y []float32, ldy int, x []float32, r0, r1 int) {
	for r := r0; r < r1; r++ {
		row := (*[backend.Panel]float32)(y[(r-r0)*ldy:])
		*row = [backend.Panel]float32{}
		for k, w := range d.w[r*d.k : (r+1)*d.k] {
			xs := (*[backend.Panel]float32)(x[k*backend.Panel:])
			for j := range row {
				row[j] += w * xs[j]
			}
		}
	}
}

func (d *kernel) Vec(y, x []float32, r0, r1 int) {
	for r := r0; r < r1; r++ {
		var s float32
		for k, w := range d.w[r*d.k : (r+1)*d.k] {
			s += w * x[k]
		}
		y[r-r0] = s
	}
}
