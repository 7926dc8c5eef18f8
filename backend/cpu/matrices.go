package cpu

import (
	"unsafe"

	"spc/backend/format/i8"
	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/tensor"
)

// integerMatrices is MatMulInteger: A[M,K] B[K,N] less their zero points, matrix by matrix. A is
// multiplied as u8 by panels that are made of B as i8; what has the other sign is moved by 128, and
// so is its zero point.
type integerMatrices struct {
	m, k, n, k4  int
	aRows        int   // of all matrices A
	aAt, bAt     []int // offsets of the matrices of each product
	aFlip, bFlip byte  // 128 where elements have the other sign
	aZero, bZero int32 // what that adds to the zero points
	panels       int   // of columns
}

// bindMatMulInteger takes matrices of which A has one zero point, and B one or one for each column.
func bindMatMulInteger(_ *program, n *ir.Node) (*bound, error) {
	as, bs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1]), shapeOf(n.Outputs[0])
	if len(as) < 2 || len(bs) < 2 || prod(ys) == 0 || prod(as) == 0 {
		return nil, nil
	}
	l := &integerMatrices{m: as[len(as)-2], k: as[len(as)-1], n: bs[len(bs)-1], aRows: prod(as) / as[len(as)-1]}
	if z := n.Input(2); z != nil && prod(shapeOf(z)) != 1 {
		return nil, nil
	}
	if z := n.Input(3); z != nil {
		if s := shapeOf(z); prod(s) != 1 && (len(s) != 1 || s[0] != l.n) {
			return nil, nil
		}
	}
	if l.k4 = ikernel.Groups(l.k); l.k > 1<<16 || prod(bs) >= 1<<31 { // sums, and offsets, are 32 bits
		return nil, nil
	}
	batch := ys[:len(ys)-2]
	if prod(bs) == l.k*l.n && len(as) >= len(bs) { // one product of all rows
		l.m, batch = l.aRows, nil
		as, bs = []int{l.m, l.k}, []int{l.k, l.n}
	}
	l.aAt, l.bAt = batchOffsets(as[:len(as)-2], batch, l.m), batchOffsets(bs[:len(bs)-2], batch, l.k*l.n)
	if n.Inputs[0].Type.DType == tensor.I8 {
		l.aFlip, l.aZero = 0x80, 128
	}
	if n.Inputs[1].Type.DType == tensor.U8 {
		l.bFlip, l.bZero = 0x80, -128
	}
	l.panels = (l.n + ikernel.Columns - 1) / ikernel.Columns
	return l.bound(), nil
}

func (l *integerMatrices) bound() *bound {
	const block = ikernel.Columns
	ldx, kern, ones := ikernel.Group*l.k4, ikernel.Best(), i8.Ones(l.k)
	// The rows behind K of a panel meet zeros: any will do.
	rows := make([]int32, ldx)
	one := make([]uint8, ldx)
	for k := range l.k {
		rows[k], one[k] = int32(k*l.n), 1
	}
	copied, panel := floats(l.aRows*ldx), floats(l.k4*ikernel.PanelRow)
	return &bound{inplace: -1, shared: copied + floats(4*l.aRows), scratch: panel + block*block + block, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		a, asums := asBytes(x.shared[:copied]), asInts(x.shared[copied:])
		var b []uint8
		var y []int32
		var aZero int32
		bZero := make([]int32, l.n)
		load := func(worker, i int) {
			r0, n := i*block, min(block, l.aRows-i*block)
			for r := r0; r < r0+n; r++ {
				row := a[r*ldx:][:ldx]
				for k, v := range in[0].Bytes()[r*l.k:][:l.k] {
					row[k] = v ^ l.aFlip
				}
				clear(row[l.k:])
			}
			sums := asInts(x.scratch[worker][panel:][:block*block])
			ones.Tokens(sums, a[r0*ldx:], ldx, n, 0, 1)
			for r := range n {
				asums[r0+r] = sums[r*block]
			}
		}
		multiply := func(worker, i int) {
			at, col := i/l.panels, i%l.panels*block
			s := x.scratch[worker]
			p, sums, bsums := asBytes(s[:panel])[:l.k4*ikernel.PanelRow], asInts(s[panel:][:block*block]), asInts(s[panel+block*block:])
			cols := min(block, l.n-col)
			kern.Pack(p, b[l.bAt[at]+col:], rows, cols)
			for j := range p {
				p[j] ^= l.bFlip
			}
			w := unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(p))), len(p))
			kern.GemmTokens(1, l.k4, one, ldx, w, cols, bsums, block)
			for r0 := 0; r0 < l.m; r0 += block {
				from, n := l.aAt[at]+r0, min(block, l.m-r0)
				kern.GemmTokens(n, l.k4, a[from*ldx:], ldx, w, cols, sums, block)
				for r := range n {
					dst, src, zero := y[(at*l.m+r0+r)*l.n+col:][:cols], sums[r*block:], bZero[col:]
					asum := asums[from+r] - int32(l.k)*aZero
					for j := range dst {
						dst[j] = src[j] - aZero*bsums[j] - zero[j]*asum
					}
				}
			}
		}
		return func() error {
			b, y = in[1].Bytes(), tensor.Data[int32](out[0])
			aZero = l.aZero + octetAt(in, 2, 0)
			for j := range bZero {
				bZero[j] = l.bZero + octetAt(in, 3, j)
			}
			x.pool.For((l.aRows+block-1)/block, load)
			x.pool.For(len(l.bAt)*l.panels, multiply)
			return nil
		}
	}}
}

// octetAt is element j of an input of 8-bit integers, or that which holds for all; 0 where there is no
// such input.
func octetAt(in []*tensor.Tensor, i, j int) int32 {
	if i >= len(in) || in[i] == nil {
		return 0
	}
	b := in[i].Bytes()
	v := b[j%len(b)]
	if in[i].DType() == tensor.I8 {
		return int32(int8(v))
	}
	return int32(v)
}
