package contrib

import (
	"fmt"
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// matMulNBits is A times the transpose of a matrix of few bits: B[N, blocks, block_size*bits/8] has its rows in blocks along K, the lowest
// bits of a byte first, scales[N, blocks], and zero points likewise, packed as B or of the type of A; without them they are in the middle.
// With g_idx[K], column k has the scale of block g_idx[k].
func matMulNBits(c *call) []*ir.Value {
	var a struct {
		K             int `attr:"K"`
		N             int `attr:"N"`
		Bits          int `attr:"bits,4"`
		Block         int `attr:"block_size"`
		AccuracyLevel int `attr:"accuracy_level,0"` // how exactly products are computed, for which ours are exact enough
		Prepacked     int `attr:"weight_prepacked,0"`
	}
	c.attrs(&a)
	switch {
	case a.K < 1 || a.N < 1:
		c.invalid("K is %d and N %d, want at least 1", a.K, a.N)
	case a.Bits != 2 && a.Bits != 4 && a.Bits != 8:
		c.unsupported("bits is %d, want 2, 4 or 8", a.Bits)
	case a.Block < 16 || a.Block&(a.Block-1) != 0:
		c.invalid("block_size is %d, want a power of two from 16", a.Block)
	case a.Prepacked != 0:
		c.unsupported("weight_prepacked is %d: the weight is in the order of a device", a.Prepacked)
	}
	packed := c.fixed(1)
	if want := float64(a.N) * float64((a.K-1)/a.Block+1) * float64(a.Block/8*a.Bits); want != float64(packed.Len()) {
		c.invalid("input 1 is %v, want %.0f bytes for N %d and K %d", packed, want, a.N, a.K)
	}
	m := &nbits{c: c, rows: a.N, cols: a.K, bits: a.Bits, block: a.Block}
	y := c.make("MatMul", nil, c.in(0), c.make("Transpose", attrs{"perm": []int{1, 0}}, m.matrix(1, 2, 3, 4)))
	c.vector(5, "the bias", ir.Size(a.N))
	return []*ir.Value{c.bias(y, 5)}
}

// nbits is a matrix [rows, cols] of few bits, in blocks along its columns.
type nbits struct {
	c                       *call
	rows, cols, bits, block int

	packed *tensor.Tensor // the input that has the elements
	stride int            // elements of a row of it
}

// matrix returns what the inputs make: packed elements, scales, zero points and the blocks of columns.
func (m *nbits) matrix(elems, scales, zeros, columns int) *ir.Value {
	c := m.c
	blocks := (m.cols + m.block - 1) / m.block
	m.packed, m.stride = c.fixed(elems), blocks*m.block
	q := m.unpack(c.bytes(elems, m.rows*blocks*(m.block*m.bits/8)), m.stride, m.cols)
	s := c.shaped(scales, m.rows, blocks)
	var points []float64 // where they are no integers of as many bits
	codes := middle(m.rows*blocks, m.bits)
	signed := c.in(zeros) == nil
	if z := c.in(zeros); z != nil && z.Type.DType == tensor.U8 {
		each := (blocks*m.bits + 7) / 8
		codes = m.unpack(c.bytes(zeros, m.rows*each), each*8/m.bits, blocks)
	} else if z != nil {
		points = c.shaped(zeros, m.rows, blocks).Const.Float64s()
	}
	if c.in(columns) != nil || points != nil {
		if points == nil {
			points = make([]float64, len(codes))
			for i, p := range codes {
				points[i] = float64(p)
			}
		}
		return m.widened(q, s.Const.Float64s(), points, c.groups(columns, m.cols, m.block, blocks), s.Type.DType)
	}
	types := map[int][2]tensor.DType{2: {tensor.U2, tensor.I2}, 4: {tensor.U4, tensor.I4}, 8: {tensor.U8, tensor.I8}}[m.bits]
	a := attrs{"axis": 1, "block_size": m.block}
	if signed {
		for i := range q {
			q[i] = (q[i] - 1<<(m.bits-1)) & (1<<m.bits - 1)
		}
		return c.make("DequantizeLinear", a, m.packs(c.coded(elems, types[1], q, m.rows, m.cols)), s)
	}
	return c.make("DequantizeLinear", a, m.packs(c.coded(elems, types[0], q, m.rows, m.cols)), s, c.coded(zeros, types[0], codes, m.rows, blocks))
}

// packs tells how codes are packed, which v has: those of a signed type less the middle.
func (m *nbits) packs(v *ir.Value) *ir.Value {
	was, offset := v.Const, byte(0)
	if was.DType().IsSigned() {
		offset = 1 << (m.bits - 1)
	}
	m.c.packing(was, &Packing{Input: m.packed, Pack: func(now *tensor.Tensor) (*tensor.Tensor, error) {
		out, a, b := m.packed.Clone(), was.Bytes(), now.Bytes()
		for i := range a {
			if a[i] != b[i] {
				m.put(out.Bytes(), i, b[i]+offset)
			}
		}
		return out, nil
	}})
	return v
}

// put writes the lowest bits of a byte as code i of the matrix.
func (m *nbits) put(packed []byte, i int, code byte) {
	at, each := i/m.cols*m.stride+i%m.cols, 8/m.bits
	shift, mask := at%each*m.bits, byte(1<<m.bits-1)
	packed[at/each] = packed[at/each]&^(mask<<shift) | code&mask<<shift
}

// packing notes how a constant is packed.
func (c *call) packing(t *tensor.Tensor, p *Packing) {
	if c.Packings == nil {
		c.Packings = map[*tensor.Tensor]*Packing{}
	}
	c.Packings[t] = p
}

// middle returns n zero points in the middle of numbers of some bits.
func middle(n, bits int) []byte {
	points := make([]byte, n)
	for i := range points {
		points[i] = 1 << (bits - 1)
	}
	return points
}

// widened returns the matrix in the type of its scales, for zero points that are no integers, and columns whose blocks are not in their order.
func (m *nbits) widened(q []byte, scales, points []float64, groups []int, dt tensor.DType) *ir.Value {
	blocks := len(scales) / m.rows
	w := make([]float64, len(q))
	for i, v := range q {
		at := i/m.cols*blocks + groups[i%m.cols]
		w[i] = (float64(v) - points[at]) * scales[at]
	}
	t := tensor.FromFloat64s(dt, w, m.rows, m.cols)
	m.c.packing(t, &Packing{Input: m.packed, Rounds: true, Pack: func(now *tensor.Tensor) (*tensor.Tensor, error) {
		return m.rounded(t, now, func(i int) (scale, point float64) {
			at := i/m.cols*blocks + groups[i%m.cols]
			return scales[at], points[at]
		})
	}})
	return m.c.constant(t)
}

// rounded packs the codes nearest to elements that are others now. Grid tells the scale and the zero point of an element. Zeros are to stay such.
func (m *nbits) rounded(was, now *tensor.Tensor, grid func(i int) (scale, point float64)) (*tensor.Tensor, error) {
	out, a, b := m.packed.Clone(), was.Float64s(), now.Float64s()
	for i, v := range b {
		if v == a[i] {
			continue
		}
		scale, point := grid(i)
		code := max(0, min(math.RoundToEven(v/scale+point), float64(int(1)<<m.bits-1)))
		if v == 0 && code != point {
			return nil, fmt.Errorf("row %d has the zero point %g in column %d, which is no code of %d bits, so that no weight is zero there", i/m.cols, point, i%m.cols, m.bits)
		}
		m.put(out.Bytes(), i, byte(code))
	}
	return out, nil
}

// unpack returns the first n of the `stride` numbers of each row, whose lowest bits are the first in a byte.
func (m *nbits) unpack(b []byte, stride, n int) []byte {
	each := 8 / m.bits
	out := make([]byte, m.rows*n)
	for r := range m.rows {
		for i := range n {
			at := r*stride + i
			out[r*n+i] = b[at/each] >> (at % each * m.bits) & (1<<m.bits - 1)
		}
	}
	return out
}

// groups returns the block of each of n columns: what input i says or, where it is absent, that in which it stands.
func (c *call) groups(i, n, block, blocks int) []int {
	g := make([]int, n)
	if c.in(i) == nil {
		for k := range g {
			g[k] = k / block
		}
		return g
	}
	t := c.fixed(i)
	if t.Len() < n || !t.DType().IsInt() {
		c.invalid("input %d, g_idx, is %v, want %d integers", i, t, n)
	}
	for k, v := range t.Ints()[:n] {
		if v < 0 || v >= blocks {
			c.invalid("input %d, g_idx, has %d for column %d, want a block from 0 to %d", i, v, k, blocks-1)
		}
		g[k] = v
	}
	return g
}

// fixed returns the elements of an input that must be a constant.
func (c *call) fixed(i int) *tensor.Tensor {
	v := c.in(i)
	if v.Const == nil {
		c.unsupported("input %d is computed, want a constant", i)
	}
	return v.Const
}

// bytes returns the n bytes of an input, a constant.
func (c *call) bytes(i, n int) []byte {
	t := c.fixed(i)
	if t.DType() != tensor.U8 || t.Len() != n {
		c.invalid("input %d is %v, want %d bytes", i, t, n)
	}
	return t.Bytes()
}

// shaped returns an input, a constant of floats, in another shape of as many elements.
func (c *call) shaped(i int, shape ...int) *ir.Value {
	t, n := c.fixed(i), 1
	for _, d := range shape {
		n *= d
	}
	if !t.DType().IsFloat() || t.Len() != n {
		c.invalid("input %d is %v, want %d floats, %v", i, t, n, shape)
	}
	return c.named(i, t.Reshape(shape...))
}

// named makes a constant with a name like that of an input, for which it stands.
func (c *call) named(i int, t *tensor.Tensor) *ir.Value { return c.Graph.NewConst(c.in(i).Name, t) }

// coded is named, of integers that take a byte each in memory.
func (c *call) coded(i int, dt tensor.DType, codes []byte, shape ...int) *ir.Value {
	t, err := tensor.FromBytes(dt, shape, codes)
	if err != nil {
		c.invalid("input %d: %v", i, err)
	}
	return c.named(i, t)
}
