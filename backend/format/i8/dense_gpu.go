package i8

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

type denseGPU struct{}

// GPU lists the kernels of dense8.cu. Their part is tiles of the weight as lanes hold them.
func (denseGPU) GPU(s *ir.Store, x tensor.DType) ([]backend.GPUKernel, error) {
	if x != tensor.U8 {
		return nil, nil
	}
	w := s.Part("values")
	registers := denseFragments(w)
	return backend.WithParts(denseKernels(w.Dim(0), w.Dim(1)), tensor.From(registers, len(registers))), nil
}

// GPUKernels lists them without their parts.
func (denseGPU) GPUKernels(w *choose.Matrix, _ string, x tensor.DType) []backend.GPUKernel {
	if x != tensor.U8 {
		return nil
	}
	return denseKernels(w.Dim(0), w.Dim(1))
}

func denseKernels(m, k int) (out []backend.GPUKernel) {
	for _, t := range backend.GPUTiles8 {
		kernel := t.Kernel(fmt.Sprintf("s8_dense_%v_mma", t), m, k, m*k, denseTiles(k))
		kernel.Unit = backend.IntegerCores
		out = append(out, kernel)
	}
	return out
}

// denseTiles is the number of tiles of 32 columns in a row of k elements, of which those of a
// slab of the kernels are there or none.
func denseTiles(k int) int { return sparse.Ceil(k, 64) * 2 }

// denseFragments arranges a weight as lanes hold it, see spc/mma8.cuh: tiles of 16 rows by 32 columns,
// those of 16 rows one after another, four registers for each of the 32 lanes. There are zeros for
// whole tiles of the kernels.
func denseFragments(w *tensor.Tensor) []uint32 {
	m, k := w.Dim(0), w.Dim(1)
	across := denseTiles(k)
	out := make([]uint32, sparse.Ceil(m, backend.GPURows8)*backend.GPURows8/16*across*32*4)
	for i, v := range tensor.Data[int8](w) {
		r, c := i/k, i%k
		lane, register := r%8*4+c%16/4, r%16/8+2*(c%32/16)
		out[((r/16*across+c/32)*32+lane)*4+register] |= uint32(uint8(v)) << (8 * (c % 4))
	}
	return out
}
