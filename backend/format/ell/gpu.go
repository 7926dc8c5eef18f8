package ell

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// GPU lists the USpMM kernels of ell.cu, by warps and columns of a tile, and those of
// bitmap.cu. The parts of the former are values [S,M] and columns u16 or u32 [S,M], both column by column, S nonzeros a row.
func (Scheme) GPU(b *sparse.Blocks, dt tensor.DType) ([]backend.GPUKernel, error) {
	values, columns := columnMajor(b)
	width := len(columns) / max(1, b.M)
	out := backend.WithParts(kernels(b.M, b.K, width, dt), tensor.From(values, width, b.M).To(dt), sparse.Narrow(columns, b.K, width, b.M))
	return append(out, sparse.Bitmap(b.Matrix(), dt)...), nil
}

// GPUKernels lists them without their parts.
func (Scheme) GPUKernels(w *choose.Matrix, _ string, dt tensor.DType) []backend.GPUKernel {
	m, k := w.Dim(0), w.Dim(1)
	return append(kernels(m, k, w.RowMax, dt), sparse.BitmapKernels(sparse.Populate(w), dt)...)
}

// tiles are those of USpMM's parameters, the warps of a block of threads and its columns, that there are kernels for.
var tiles = []struct{ warps, vector int }{{4, 1}, {4, 4}, {4, 8}, {4, 16}, {8, 1}, {8, 4}, {8, 8}, {8, 16}, {16, 4}}

func kernels(m, k, width int, dt tensor.DType) (out []backend.GPUKernel) {
	index := sparse.IndexType(k)
	for _, t := range tiles {
		out = append(out, backend.GPUKernel{
			Name:    fmt.Sprintf("%v_ell_32x%dw%d_%v_simt", dt, t.vector, t.warps, index),
			Bytes:   width * m * (dt.Size() + index.Size()),
			Columns: t.vector, Products: width * m, Loads: width * m,
			Extra: []int{width},
			Launch: func(n, batch int) backend.Geometry {
				return backend.Geometry{
					Grid:  [3]int{sparse.Ceil(n, t.vector), sparse.Ceil(m, 32), batch},
					Block: [3]int{32, t.warps, 1},
				}
			},
		})
	}
	return out
}

// columnMajor lists the nonzeros of each row, S of them, nonzero by nonzero: element s*M+m
// is nonzero s of row m. Rows with fewer are filled up with zeros at column 0.
func columnMajor(b *sparse.Blocks) (values []float32, columns []uint32) {
	w := b.Matrix().F32s()
	width := 0
	for m := range b.M {
		n := 0
		for _, v := range w[m*b.K : (m+1)*b.K] {
			if v != 0 {
				n++
			}
		}
		width = max(width, n)
	}
	values, columns = make([]float32, width*b.M), make([]uint32, width*b.M)
	for m := range b.M {
		s := 0
		for k, v := range w[m*b.K : (m+1)*b.K] {
			if v != 0 {
				values[s*b.M+m], columns[s*b.M+m] = v, uint32(k)
				s++
			}
		}
	}
	return values, columns
}
