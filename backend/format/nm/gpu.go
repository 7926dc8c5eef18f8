package nm

import (
	"encoding/binary"
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// GPU lists the kernels of nm.cu for sparse tensor cores: for weights of 16-bit floats of
// which at most 2 of every 4 elements of a row are not zero; for others, those of bitmap.cu.
func (Scheme) GPU(b *sparse.Blocks, dt tensor.DType) ([]backend.GPUKernel, error) {
	if dt != tensor.F16 && dt != tensor.BF16 {
		return nil, nil
	}
	w := b.Matrix().To(dt)
	values, places, ok := fragments(w)
	if !ok {
		return sparse.Bitmap(b.Matrix(), dt), nil
	}
	return backend.WithParts(kernels(b.M, b.K, dt), tensor.From(values, len(values)), tensor.From(places, len(places))), nil
}

// GPUKernels lists them without their parts.
func (Scheme) GPUKernels(w *choose.Matrix, _ string, dt tensor.DType) []backend.GPUKernel {
	m, k := w.Dim(0), w.Dim(1)
	if dt != tensor.F16 && dt != tensor.BF16 {
		return nil
	}
	if w.Most(4) > 2 {
		return sparse.BitmapKernels(sparse.Populate(w), dt)
	}
	return kernels(m, k, dt)
}

func kernels(m, k int, dt tensor.DType) (out []backend.GPUKernel) {
	for _, t := range backend.GPUTiles {
		kernel := t.Kernel(fmt.Sprintf("%v_nm24_%v_mmasp", dt, t), m, k, m*k/2*dt.Size()+m*k/8, sparse.Ceil(k, 32))
		kernel.Unit = backend.SparseTensorCores
		out = append(out, t.Divided(t.Shared(kernel, t.Rows()*t.Depth*(4*dt.Size()+1)/8), sparse.Ceil(k, t.Depth))...)
	}
	return out
}

// fragments arranges a matrix of 16-bit floats as lanes hold it, see spc/mma.cuh: for each
// tile of 16 rows by 32 columns, row of tiles by row of tiles, four registers for each of the
// 32 lanes, and the words of places for lanes 0 and 1 of each group of four. ok is false
// where more than 2 of 4 elements are not zero.
func fragments(w *tensor.Tensor) (values, places []uint32, ok bool) {
	rows, cols := w.Dim(0), w.Dim(1)
	across := sparse.Ceil(cols, 32)
	tiles := sparse.Ceil(rows, 16) * across
	values, places = make([]uint32, tiles*32*4), make([]uint32, tiles*16)
	for i := range places { // what lies outside of the matrix: zeros, at places 0 and 1
		places[i] = 0x44444444
	}
	data, size := w.Bytes(), w.DType().Size()
	for m := range rows {
		for group := range sparse.Ceil(cols, 4) {
			var kept [2]uint16
			var at [2]int
			n := 0
			for i := range min(4, cols-4*group) {
				bits := binary.LittleEndian.Uint16(data[(m*cols+4*group+i)*size:])
				if bits&0x7fff == 0 {
					continue
				}
				if n == 2 {
					return nil, nil, false
				}
				kept[n], at[n] = bits, i
				n++
			}
			// The places of zeros that fill up a group differ and ascend.
			switch {
			case n == 0:
				at = [2]int{0, 1}
			case n == 1 && at[0] == 3:
				at, kept = [2]int{2, 3}, [2]uint16{0, kept[0]}
			case n == 1:
				at[1] = 3
			}
			tile := m/16*across + group/8
			row, column := m%16, group%8 // of the tile, in groups
			lane, register := row%8*4+column%4, row/8+2*(column/4)
			values[(tile*32+lane)*4+register] = uint32(kept[0]) | uint32(kept[1])<<16
			word, shift := &places[tile*16+row%8*2+column/4], 16*(row/8)+4*(column%4)
			*word = *word&^(15<<shift) | uint32(at[0]|at[1]<<2)<<shift
		}
	}
	return values, places, true
}
