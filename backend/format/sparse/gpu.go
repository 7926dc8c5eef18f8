package sparse

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"spc/backend"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// TilesAcross is the number of tiles of 16 columns in a row of k elements.
func TilesAcross(k int) int { return Ceil(k, 16) }

// fragmentAt returns the row and the column in a tile of 16 x 16 of the first of the two
// elements in a register of a lane, see spc/mma.cuh.
func fragmentAt(lane, register int) (row, column int) {
	return lane/4 + 8*(register%2), 8*(register/2) + 2*(lane%4)
}

// Fragments arranges a matrix of 16-bit floats [M,K] as lanes hold it, see spc/mma.cuh: tiles
// of 16 x 16, those of 16 rows one after another, four registers for each of the 32 lanes.
// There are zeros for whole tiles.
func Fragments(w *tensor.Tensor) (registers []uint32) {
	m, k := w.Dim(0), w.Dim(1)
	down, across := Ceil(m, 16), TilesAcross(k)
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

// Population is how a matrix [M,K] lies in the chunks of bitmap.cu, in units of 1 or of 2 neighbours in a
// row: the 16 bytes that all of them take, and the largest.
type Population struct {
	M, K       int
	Lines, Top [2]int
}

// A chunk of bitmap.cu.
const chunkRows, chunkColumns = 16, 64

// Populate looks at a matrix.
func Populate(w *choose.Matrix) Population {
	p := Population{M: w.Dim(0), K: w.Dim(1)}
	across := Ceil(p.K, chunkColumns)
	for top := 0; top < p.M; top += chunkRows {
		for c := range across {
			var n [2]int
			for r := top; r < min(top+chunkRows, p.M); r++ {
				word := w.Row(r)[c]
				n[0] += bits.OnesCount64(word)
				n[1] += bits.OnesCount64((word | word>>1) & 0x5555555555555555)
			}
			for i, units := range n {
				lines := Ceil(header(i+1)+2*(i+1)*units, 16)
				p.Lines[i] += lines
				p.Top[i] = max(p.Top[i], lines)
			}
		}
	}
	return p
}

// unit is how many neighbours the units of chunks have. Pairs halve the loads by which lanes unpack W, so
// they are worth some zeros among them: as many as memory brings, or fewer, while a chunk of single elements is unpacked.
func (p Population) unit() int {
	const brought = 40 // about, by the data sheets of A100 and H100
	if p.Lines[1] <= max(p.Lines[0], brought*Ceil(p.M, chunkRows)*Ceil(p.K, chunkColumns)) {
		return 2
	}
	return 1
}

// header is the bytes of a chunk before its units.
func header(e int) int {
	if e == 2 {
		return 128
	}
	return 192
}

// Bitmap lists the kernels of bitmap.cu for a matrix f32 [M,K] and 16-bit floats. Their parts
// are the chunks as words of 32 bits, and u32 where each begins, and the last one ends, in 16 bytes.
func Bitmap(w *tensor.Tensor, dt tensor.DType) []backend.GPUKernel {
	if dt != tensor.F16 && dt != tensor.BF16 {
		return nil
	}
	matrix := choose.NewMatrix(w, "")
	p := Populate(matrix)
	e := p.unit()
	down, across := Ceil(p.M, chunkRows), Ceil(p.K, chunkColumns)
	first := make([]uint32, 0, down*across+1)
	out := make([]byte, 0, 16*p.Lines[e-1])
	data := w.To(dt).Bytes()
	for chunk := range down * across {
		first = append(first, uint32(len(out)/16))
		top, left := chunk/across*chunkRows, chunk%across*chunkColumns
		at := len(out)
		out = append(out, make([]byte, header(e))...)
		units := 0
		for lane := range 32 {
			var set uint32
			begin := units
			for bit := range 32 / e {
				element := bit * e
				r, c := fragmentAt(lane, element%8/2)
				r, c = top+r, left+element/8*16+c+element%2
				if r >= p.M || matrix.Row(r)[c/64]>>(c%64)&(1<<e-1) == 0 {
					continue
				}
				set |= 1 << bit
				units++
				for i := range e {
					if c+i < p.K {
						out = append(out, data[2*(r*p.K+c+i):][:2]...)
					} else {
						out = append(out, 0, 0)
					}
				}
			}
			if e == 2 {
				binary.LittleEndian.PutUint32(out[at+4*lane:], set|uint32(begin)<<16)
			} else {
				binary.LittleEndian.PutUint32(out[at+4*lane:], set)
				binary.LittleEndian.PutUint16(out[at+128+2*lane:], uint16(begin))
			}
		}
		for len(out)%16 > 0 {
			out = append(out, 0)
		}
	}
	first = append(first, uint32(len(out)/16))
	words, err := tensor.FromBytes(tensor.U32, []int{len(out) / 4}, out)
	if err != nil {
		panic(err) // the sizes agree
	}
	return backend.WithParts(BitmapKernels(p, dt), words, tensor.From(first, len(first)))
}

// bitmapTiles are those of bitmap.cu, for many columns to few: the fewer, the fewer rows, so that as much is
// read of X as of W.
var bitmapTiles = []backend.GPUTile{
	{MW: 8, NW: 1, KW: 1, R: 2, C: 8, Depth: 64, Stages: 3},
	{MW: 4, NW: 1, KW: 2, R: 2, C: 4, Depth: 128, Stages: 3},
	{MW: 2, NW: 1, KW: 4, R: 2, C: 2, Depth: 256, Stages: 3},
	{MW: 1, NW: 1, KW: 8, R: 2, C: 1, Depth: 512, Stages: 3},
	{MW: 1, NW: 1, KW: 4, R: 1, C: 1, Depth: 256, Stages: 4},
}

// BitmapKernels lists them for a matrix, without parts.
func BitmapKernels(p Population, dt tensor.DType) (out []backend.GPUKernel) {
	if dt != tensor.F16 && dt != tensor.BF16 {
		return nil
	}
	e := p.unit()
	name := "bitmap"
	if e == 2 {
		name = "bitmap1x2"
	}
	chunks := Ceil(p.M, chunkRows) * Ceil(p.K, chunkColumns)
	for _, t := range bitmapTiles {
		shared := t.Memory() + t.Stages*t.Warps()*t.R*p.Top[e-1]*16
		if shared > backend.GPUShared {
			continue
		}
		k := t.Kernel(fmt.Sprintf("%v_%s_%v_mma", dt, name, t), p.M, p.K, 16*p.Lines[e-1]+4*(chunks+1), p.Top[e-1])
		// A lane loads the bits, where its units begin, and each unit.
		k.Reads += chunks * (32/e + 2) * 128
		out = append(out, t.Divided(k.Holding(shared), Ceil(p.K, t.Depth))...)
	}
	return out
}
