package dense

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
)

// GPU lists the kernels of dense.cu for a stored weight. Their part is values [M,K].
func (Format) GPU(s *ir.Store, dt tensor.DType) ([]backend.GPUKernel, error) {
	w := s.Part("values").To(dt)
	return []backend.GPUKernel{GEMM(dt, s.Rows, s.Cols, [3]int{s.Cols, 1, 0}, w)}, nil
}

// GEMM is the kernel for matrices W[M,K] of type dt, with their strides by row, by column
// and from one matrix of a batch to the next. W is the kernel's only part, none where it is
// no constant: then it comes before the other parameters.
func GEMM(dt tensor.DType, m, k int, strides [3]int, w ...*tensor.Tensor) backend.GPUKernel {
	return backend.GPUKernel{
		Name:    fmt.Sprintf("%v_dense_64x64x16_simt", dt),
		Parts:   w,
		Columns: 64,
		Extra:   strides[:],
		Launch: func(n, batch int) backend.Geometry {
			return backend.Geometry{Grid: [3]int{sparse.Ceil(n, 64), sparse.Ceil(m, 64), batch}, Block: [3]int{256, 1, 1}}
		},
	}
}
