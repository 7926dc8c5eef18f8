package block

import (
	"encoding/binary"
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// GPU lists the kernels of block.cu for tensor cores: for 16-bit floats in blocks of 16, 32
// or 64 rows by a multiple of 16 columns; for others, those of bitmap.cu.
func (Scheme) GPU(b *sparse.Blocks, dt tensor.DType) ([]backend.GPUKernel, error) {
	if dt != tensor.F16 && dt != tensor.BF16 {
		return nil, nil
	}
	if tiles[b.R] == nil || b.C%16 != 0 || len(b.Column) == 0 {
		return sparse.Bitmap(b.Matrix(), dt), nil
	}
	rows := len(b.Ptr) - 1
	columns := make([]uint32, len(b.Column))
	for i, c := range b.Column {
		columns[i] = c * uint32(b.C)
	}
	values := fragments(b, dt)
	return backend.WithParts(kernels(b.M, b.K, b.R, b.C, len(columns), dt),
		tensor.From(values, len(values)), tensor.From(b.Ptr, rows+1), tensor.From(columns, len(columns))), nil
}

// GPUKernels lists them without their parts.
func (Scheme) GPUKernels(w *choose.Matrix, config string, dt tensor.DType) []backend.GPUKernel {
	m, k := w.Dim(0), w.Dim(1)
	r, c, err := sparse.Shape(config)
	if err != nil || dt != tensor.F16 && dt != tensor.BF16 {
		return nil
	}
	if blocks := w.Blocks(r, c).Blocks; tiles[r] != nil && c%16 == 0 && blocks > 0 {
		return kernels(m, k, r, c, blocks, dt)
	}
	return sparse.BitmapKernels(sparse.Populate(w), dt)
}

func kernels(m, k, r, c, blocks int, dt tensor.DType) (out []backend.GPUKernel) {
	for _, t := range tiles[r] {
		if c%t.Depth > 0 {
			if t.Groups {
				continue
			}
			t.Depth, t.KW = 16, 1
		}
		kernel := t.Kernel(fmt.Sprintf("%v_block_%v_mma", dt, t), m, k, blocks*(r*c*dt.Size()+4), c)
		kernel.Products, kernel.Loads = blocks*r*c, blocks*c
		out = append(out, t.Divided(t.Shared(kernel, r*t.Depth*dt.Size()), blocks*r/m*(c/t.Depth))...)
	}
	return out
}

// tiles are the kernels by the rows of a block: for many columns, and for few. Other
// blocks than of whole depths have those of 16.
var tiles = map[int][]backend.GPUTile{
	16: {{MW: 1, NW: 2, KW: 1, R: 1, C: 8, Depth: 32, Stages: 3}, {MW: 1, NW: 1, KW: 2, R: 1, C: 1, Depth: 32, Stages: 4}},
	32: {{MW: 1, NW: 2, KW: 1, R: 2, C: 8, Depth: 32, Stages: 3}, {MW: 2, NW: 1, KW: 2, R: 1, C: 1, Depth: 32, Stages: 4}},
	64: {
		{MW: 4, NW: 2, KW: 1, R: 1, C: 16, Depth: 64, Stages: 5, Groups: true},
		{MW: 2, NW: 4, KW: 1, R: 2, C: 4, Depth: 64, Stages: 3}, {MW: 4, NW: 1, KW: 4, R: 1, C: 1, Depth: 64, Stages: 4},
	},
}

// fragments arranges blocks as lanes hold them, see spc/mma.cuh: of each block, 16 columns by
// 16 columns and then 16 rows by 16 rows, four registers for each of the 32 lanes.
func fragments(b *sparse.Blocks, dt tensor.DType) []uint32 {
	all := tensor.From(b.Values.Float32s(), b.Values.Len()).To(dt).Bytes()
	out := make([]uint32, 0, len(b.Column)*b.R*b.C/2)
	for at := 0; at < len(all); at += 2 * b.R * b.C {
		block := all[at:]
		for c := 0; c < b.C; c += 16 {
			for r := 0; r < b.R; r += 16 {
				for lane := range 32 {
					for register := range 4 {
						row, col := r+lane/4+8*(register%2), c+8*(register/2)+2*(lane%4)
						word := uint32(binary.LittleEndian.Uint16(block[2*(col*b.R+row):]))
						word |= uint32(binary.LittleEndian.Uint16(block[2*((col+1)*b.R+row):])) << 16
						out = append(out, word)
					}
				}
			}
		}
	}
	return out
}
