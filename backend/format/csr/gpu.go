package csr

import (
	"fmt"
	"slices"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// GPU lists the kernels of csr.cu, by the columns of a tile, and those of bitmap.cu. The
// parts of the former are the rows in the order of their lengths, the longest first, where
// the nonzeros of each begin, their columns, u16 or u32, and their values.
func (Scheme) GPU(b *sparse.Blocks, dt tensor.DType) ([]backend.GPUKernel, error) {
	m := b.M
	order := make([]uint32, m)
	for i := range order {
		order[i] = uint32(i)
	}
	length := func(row uint32) uint32 { return b.Ptr[row+1] - b.Ptr[row] }
	slices.SortStableFunc(order, func(i, j uint32) int { return int(length(j)) - int(length(i)) })
	nonzeros := len(b.Column)
	out := backend.WithParts(kernels(m, b.K, nonzeros, dt), tensor.From(order, m), tensor.From(b.Ptr, m+1),
		sparse.Narrow(b.Column, b.K, nonzeros), tensor.From(b.Values.Float32s(), nonzeros).To(dt))
	return append(out, sparse.Bitmap(b.Matrix(), dt)...), nil
}

// GPUKernels lists them without their parts.
func (Scheme) GPUKernels(w *choose.Matrix, _ string, dt tensor.DType) []backend.GPUKernel {
	m, k := w.Dim(0), w.Dim(1)
	return append(kernels(m, k, w.Nonzeros, dt), sparse.BitmapKernels(sparse.Populate(w), dt)...)
}

func kernels(m, k, nonzeros int, dt tensor.DType) (out []backend.GPUKernel) {
	index := sparse.IndexType(k)
	for _, width := range []int{1, 8, 32, 128} {
		out = append(out, backend.GPUKernel{
			Name:    fmt.Sprintf("%v_csr_4x%d_%v_simt", dt, width, index),
			Bytes:   8*m + nonzeros*(dt.Size()+index.Size()),
			Columns: width, Products: nonzeros, Loads: nonzeros,
			Launch: func(n, batch int) backend.Geometry {
				return backend.Geometry{Grid: [3]int{sparse.Ceil(n, width), sparse.Ceil(m, 4), batch}, Block: [3]int{32, 4, 1}}
			},
		})
	}
	return out
}
