package dense8

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// GPU refuses as Check does.
func (f Format) GPU(s *ir.Store) ([]backend.GPUKernel, error) { return nil, f.Check(s) }

// GPUKernels lists the kernels of dense8.cu without their parts.
func (Format) GPUKernels(w *choose.Matrix, _ string) []backend.GPUKernel {
	return kernels(w.Dim(0), w.Dim(1))
}

func kernels(m, k int) (out []backend.GPUKernel) {
	for _, t := range backend.GPUTiles8 {
		kernel := t.Kernel(fmt.Sprintf("s8_dense_%v_mma", t), m, k, m*k, tilesAcross(k))
		kernel.Unit = backend.IntegerCores
		out = append(out, kernel)
	}
	return out
}

// tilesAcross is the number of tiles of 32 columns in a row of k elements, of which those of a
// slab of the kernels are there or none.
func tilesAcross(k int) int { return sparse.Ceil(k, 64) * 2 }

// GPU lists the kernels for a weight i8 [M,K]. Their part is tiles of it as lanes hold them.
func GPU(w *tensor.Tensor) []backend.GPUKernel {
	registers := fragments(w)
	return backend.WithParts(kernels(w.Dim(0), w.Dim(1)), tensor.From(registers, len(registers)))
}

// fragments arranges a weight as lanes hold it, see spc/mma8.cuh: tiles of 16 rows by 32 columns,
// those of 16 rows one after another, four registers for each of the 32 lanes. There are zeros for
// whole tiles of the kernels.
func fragments(w *tensor.Tensor) []uint32 {
	m, k := w.Dim(0), w.Dim(1)
	across := tilesAcross(k)
	out := make([]uint32, sparse.Ceil(m, backend.GPURows8)*backend.GPURows8/16*across*32*4)
	for i, v := range tensor.Data[int8](w) {
		r, c := i/k, i%k
		lane, register := r%8*4+c%16/4, r%16/8+2*(c%32/16)
		out[((r/16*across+c/32)*32+lane)*4+register] |= uint32(uint8(v)) << (8 * (c % 4))
	}
	return out
}
