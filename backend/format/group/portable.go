package group

import "unsafe"

// portable are the kernels in Go: none, floats are made of weights.
var portable = &kernels{isa: "go", nibbles: nibblesGo}

// available lists the kernels that this machine runs, the best first.
var available = append(native(), portable)

func best() *kernels { return available[0] }

// floatsGo makes floats of row r from column c0 on, where value number at is the first, for groups of any size.
func (m *matrix) floatsGo(dst []float32, r, c0, at int) {
	row := m.scales.Slice(r*m.Blocks, (r+1)*m.Blocks).Float32s()
	for i := range dst {
		c := c0 + i
		code := 0
		switch {
		case m.kind == wholes:
			code = int(int8(m.Codes[r*m.rowBytes()+c]))
		case m.kind == halves:
			b := m.Codes[r*m.rowBytes()+c/Chunk*(Chunk/2)+c%(Chunk/2)]
			code = int(b>>(c%Chunk/(Chunk/2)*4)&15) - Offset
		case m.set[r*m.words+c/64]>>(c%64)&1 == 0:
			dst[i] = 0
			continue
		default:
			code = m.value(at)
			at++
		}
		if m.zeros {
			code -= int(m.Zeros[r*m.Blocks+c/m.Block])
		}
		dst[i] = float32(code) * row[c/m.Block]
	}
}

// value is the i-th of a bitmap.
func (m *matrix) value(i int) int {
	if m.Bits == 8 {
		return int(int8(m.Codes[i]))
	}
	return int(m.Codes[i/2]>>(i%2*4)&15) - Offset
}

func nibblesGo(blocks int, src []byte, dst []int8) {
	for i := range 32 * blocks {
		dst[i] = int8(src[i/2]>>(i%2*4)&15) - Offset
	}
}

// asSigned are the same bytes.
func asSigned(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}
