package block

import (
	"encoding/binary"
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
)

// GPU lists the kernel of block.cu for tensor cores: for 16-bit floats in blocks of 16, 32
// or 64 rows by a multiple of 16 columns.
func (Scheme) GPU(b *sparse.Blocks, dt tensor.DType) ([]backend.GPUKernel, error) {
	if dt != tensor.F16 && dt != tensor.BF16 || b.R != 16 && b.R != 32 && b.R != 64 || b.C%16 != 0 || len(b.Column) == 0 {
		return nil, nil
	}
	rows := len(b.Ptr) - 1
	columns := make([]uint32, len(b.Column))
	for i, c := range b.Column {
		columns[i] = c * uint32(b.C)
	}
	values := fragments(b, dt)
	return []backend.GPUKernel{{
		Name:    fmt.Sprintf("%v_block_%dx64x16_mma", dt, b.R),
		Parts:   []*tensor.Tensor{tensor.From(values, len(values)), tensor.From(b.Ptr, rows+1), tensor.From(columns, len(columns))},
		Columns: 64,
		Extra:   []int{b.C},
		Launch: func(n, batch int) backend.Geometry {
			return backend.Geometry{Grid: [3]int{sparse.Ceil(n, 64), rows, batch}, Block: [3]int{2 * b.R, 1, 1}}
		},
	}}, nil
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
