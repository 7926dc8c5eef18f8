package i8

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

type nmGPU struct{}

// GPU lists the kernels of nm8.cu for sparse tensor cores.
func (nmGPU) GPU(s *ir.Store, x tensor.DType) ([]backend.GPUKernel, error) {
	if x != tensor.U8 || !fits(s.Config) {
		return nil, nil
	}
	values, places, err := pairs(s)
	if err != nil {
		return nil, err
	}
	v, p := nmFragments(values, places, s.Rows, s.Cols)
	return backend.WithParts(nmKernels(s.Rows, s.Cols), tensor.From(v, len(v)), tensor.From(p, len(p))), nil
}

// GPUKernels lists them without their parts.
func (nmGPU) GPUKernels(w *choose.Matrix, config string, x tensor.DType) []backend.GPUKernel {
	if x != tensor.U8 || !fits(config) {
		return nil
	}
	return nmKernels(w.Dim(0), w.Dim(1))
}

func nmKernels(m, k int) (out []backend.GPUKernel) {
	for _, t := range backend.GPUTiles8 {
		kernel := t.Kernel(fmt.Sprintf("s8_nm24_%v_mmasp", t), m, k, m*k/2+m*k/8, sparse.Ceil(k, 64))
		kernel.Unit = backend.SparseIntegerCores
		out = append(out, kernel)
	}
	return out
}

// nmFragments arranges pairs as lanes hold them, see spc/mma8.cuh: for each tile of 16 rows by 64
// columns, row of tiles by row of tiles, four registers for each of the 32 lanes, and a word of
// places for each. There are zeros for whole tiles of the kernels.
func nmFragments(values []int8, places []uint8, m, k int) (v, p []uint32) {
	groups, across := sparse.Ceil(k, group), sparse.Ceil(k, 64)
	tiles := sparse.Ceil(m, backend.GPURows8) * backend.GPURows8 / 16 * across
	v, p = make([]uint32, tiles*32*4), make([]uint32, tiles*32)
	for i := range p { // what lies outside of the matrix: zeros, at places 0 and 1
		p[i] = 0x44444444
	}
	for i, place := range places {
		r, g := i/groups, i%groups // of which a tile has 16, and a register of a lane two
		tile := r/16*across + g/16
		lane, register := r%8*4+g%8/2, r%16/8+2*(g%16/8)
		pair := uint32(uint8(values[kept*i])) | uint32(uint8(values[kept*i+1]))<<8
		v[(tile*32+lane)*4+register] |= pair << (16 * (g % 2))
		word, shift := &p[tile*32+r%8*4+2*(g%16/8)+r%16/8], 4*(g%8)
		*word = *word&^(15<<shift) | uint32(place)<<shift
	}
	return v, p
}
