package sparse

import (
	"encoding/binary"
	"fmt"

	"spc/backend"
	"spc/ir/tensor"
)

// tensorRows are as many rows as the highest tile of a kernel on tensor cores has: matrices
// are made up to them by zeros.
const tensorRows = 128

// TilesAcross is the number of tiles of 16 columns in a row of k elements.
func TilesAcross(k int) int { return Ceil(k, 16) }

// fragmentAt returns the row and the column in a tile of 16 x 16 of the first of the two
// elements in a register of a lane, see spc/mma.cuh.
func fragmentAt(lane, register int) (row, column int) {
	return lane/4 + 8*(register%2), 8*(register/2) + 2*(lane%4)
}

// Fragments arranges a matrix of 16-bit floats [M,K] as lanes hold it, see spc/mma.cuh: tiles
// of 16 x 16, those of 16 rows one after another, four registers for each of the 32 lanes.
// There are zeros for whole tiles, and for all rows of tiles of the kernels.
func Fragments(w *tensor.Tensor) (registers []uint32) {
	m, k := w.Dim(0), w.Dim(1)
	down := Ceil(m, tensorRows) * tensorRows / 16
	across := TilesAcross(k)
	registers = make([]uint32, down*across*32*4)
	data := w.Bytes()
	for r := range m {
		for c := range k {
			bits := uint32(binary.LittleEndian.Uint16(data[2*(r*k+c):]))
			lane, register := r%8*4+c%8/2, r%16/8+2*(c%16/8)
			registers[((r/16*across+c/16)*32+lane)*4+register] |= bits << (16 * (c % 2))
		}
	}
	return registers
}

// Bitmap lists the kernels of bitmap.cu for a matrix f32 [M,K] and 16-bit floats. Their parts
// are for each tile of 16 x 16, those of 16 rows one after another, four masks u64 of the
// registers of the lanes, and u32 where its nonzeros begin; and the nonzeros.
func Bitmap(w *tensor.Tensor, dt tensor.DType) []backend.GPUKernel {
	if dt != tensor.F16 && dt != tensor.BF16 {
		return nil
	}
	m, k := w.Dim(0), w.Dim(1)
	down := Ceil(m, tensorRows) * tensorRows / 16
	across := TilesAcross(k)
	masks, first := make([]uint64, down*across*4), make([]uint32, down*across)
	data := w.To(dt).Bytes()
	var values []byte
	for tile := range first {
		first[tile] = uint32(len(values) / 2)
		for register := range 4 {
			for lane := range 32 {
				r, c := fragmentAt(lane, register)
				r, c = tile/across*16+r, tile%across*16+c
				for i := range 2 {
					if r >= m || c+i >= k {
						continue
					}
					at := data[2*(r*k+c+i):]
					if binary.LittleEndian.Uint16(at)&0x7fff != 0 {
						masks[4*tile+register] |= 1 << (2*lane + i)
						values = append(values, at[:2]...)
					}
				}
			}
		}
	}
	nonzeros, err := tensor.FromBytes(dt, []int{len(values)/2 + 1}, append(values, 0, 0))
	if err != nil {
		panic(err) // the sizes agree
	}
	return backend.WithParts(BitmapKernels(m, k, len(values)/2, dt), tensor.From(masks, len(masks)), tensor.From(first, len(first)), nonzeros)
}

// BitmapKernels lists them for a matrix with so many nonzeros, without parts.
func BitmapKernels(m, k, nonzeros int, dt tensor.DType) []backend.GPUKernel {
	if dt != tensor.F16 && dt != tensor.BF16 {
		return nil
	}
	var out []backend.GPUKernel
	for _, t := range backend.GPUTiles[1:] { // SPC_NARROW_TILES
		out = append(out, t.Kernel(fmt.Sprintf("%v_bitmap_%v_mma", dt, t), m, k, 2*nonzeros+m*k/8+m*k/64, TilesAcross(k)))
	}
	return out
}
