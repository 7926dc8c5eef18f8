package i8

import (
	"encoding/binary"
	"fmt"

	"spc/backend"
	"spc/backend/format/ikernel"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

type blockGPU struct{}

// GPU lists the kernels of block8.cu. All have the same groups, and each those slabs of its own
// rows and columns in which there are any.
func (blockGPU) GPU(s *ir.Store, x tensor.DType) ([]backend.GPUKernel, error) {
	if s.Config != groups || x != tensor.U8 {
		return nil, nil
	}
	b, values, err := blocks(s)
	if err != nil {
		return nil, err
	}
	words, fours := tiles(b, values)
	out := blockKernels(b.M, b.K, len(b.Column), func(t backend.GPUTile) int { return len(slabs(b, t)[1]) })
	for i, t := range backend.GPUTiles8 {
		list := slabs(b, t)
		out[i].Parts = []*tensor.Tensor{words, fours, tensor.From(list[0], len(list[0])), tensor.From(list[1], len(list[1]))}
	}
	return out, nil
}

// GPUKernels lists them without their parts.
func (blockGPU) GPUKernels(w *choose.Matrix, config string, x tensor.DType) []backend.GPUKernel {
	if config != groups || x != tensor.U8 {
		return nil
	}
	return blockKernels(w.Dim(0), w.Dim(1), w.Blocks(1, ikernel.Group).Blocks, func(t backend.GPUTile) int { return w.Blocks(t.Rows(), t.Depth).Blocks })
}

func blockKernels(m, k, fours int, slabs func(backend.GPUTile) int) (out []backend.GPUKernel) {
	for _, t := range backend.GPUTiles8 {
		kernel := t.Kernel(fmt.Sprintf("s8_block1x4_%v_mma", t), m, k, ikernel.Group*fours+3*m*k/64, blockTiles(k))
		n := slabs(t)
		kernel.Unit, kernel.Products, kernel.Loads = backend.IntegerCores, n*t.Rows()*t.Depth, n*t.Depth
		out = append(out, kernel)
	}
	return out
}

// blockTiles is the number of tiles of 32 columns in a row of k elements.
func blockTiles(k int) int { return sparse.Ceil(k, 32) }

// slabs lists for each t.Rows() rows where their slabs of t.Depth columns begin among the numbers
// of those in which there is a group.
func slabs(b *sparse.Blocks, t backend.GPUTile) (lists [2][]uint32) {
	begins, list := []uint32{0}, []uint32{}
	for r := 0; r < b.M; r += t.Rows() {
		seen := make([]bool, sparse.Ceil(b.K, t.Depth))
		for _, c := range b.Column[b.Ptr[r]:b.Ptr[min(r+t.Rows(), b.M)]] {
			seen[int(c)*ikernel.Group/t.Depth] = true
		}
		for i, some := range seen {
			if some {
				list = append(list, uint32(i))
			}
		}
		begins = append(begins, uint32(len(list)))
	}
	return [2][]uint32{begins, list}
}

// tiles arranges groups as lanes hold them, see block8.cu: the six words of each tile of 16 rows by
// 32 columns, and the groups. There are empty tiles for whole blocks of the kernels.
func tiles(b *sparse.Blocks, values []int8) (words, fours *tensor.Tensor) {
	const rows, lanes, registers, each = 16, 32, 4, 6
	across := blockTiles(b.K)
	count := sparse.Ceil(b.M, backend.GPURows8) * backend.GPURows8 / rows * across
	// at holds for each register the number of its group, and one more, or 0.
	at := make([]uint32, count*registers*lanes)
	for r := range b.M {
		for g := b.Ptr[r]; g < b.Ptr[r+1]; g++ {
			c := int(b.Column[g]) // in groups, of which a tile has 8
			lane, register := r%8*4+c%4, r%rows/8+2*(c%8/4)
			at[((r/rows*across+c/8)*registers+register)*lanes+lane] = g + 1
		}
	}
	w, v := make([]uint32, count*each), make([]uint32, 0, len(b.Column)+1)
	for i := range count {
		tile, first := w[i*each:(i+1)*each], len(v)
		tile[registers] = uint32(first)
		for r := range registers {
			tile[registers+1] |= uint32(len(v)-first) << (8 * r)
			for lane, g := range at[(i*registers+r)*lanes : (i*registers+r+1)*lanes] {
				if g == 0 {
					continue
				}
				tile[r] |= 1 << lane
				var word [4]byte
				for j, x := range values[ikernel.Group*(g-1) : ikernel.Group*g] {
					word[j] = byte(x)
				}
				v = append(v, binary.LittleEndian.Uint32(word[:]))
			}
		}
	}
	return tensor.From(w, len(w)), tensor.From(v, len(v))
}
