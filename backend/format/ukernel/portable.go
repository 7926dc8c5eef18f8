package ukernel

import "runtime"

// portable is the kernel set in pure Go.
var portable = Kernels{
	ISA:     "go",
	Gemm:    Gemm{Name: "gemm_f32_4x32_go", MR: 4, tile: gemmGo},
	gemv:    gemvGo,
	block16: blocksGo[uint16](),
	block32: blocksGo[uint32](),
	peak:    peakGo,
	flop:    16,
}

func blocksGo[I Index]() map[int]blockKernels[I] {
	table := map[int]blockKernels[I]{}
	for _, rows := range Blocks {
		table[rows] = blockKernels[I]{spmmGo[I](rows), spmvGo[I](rows)}
	}
	return table
}

// spmmGo returns the product of blocks of rows rows with a panel, which works
// on one row and eight columns at a time.
func spmmGo[I Index](rows int) spmm[I] {
	return func(groups int, ptr []uint32, index []I, value, x, y []float32, ldy int, acc bool) {
		for g := range groups {
			from, to := int(ptr[g]-ptr[0]), int(ptr[g+1]-ptr[0])
			for r := range rows {
				var s row
				for c := 0; c < Columns; c += 8 {
					var s0, s1, s2, s3, s4, s5, s6, s7 float32
					for j := from; j < to; j++ {
						v := value[j*rows+r]
						p := (*[8]float32)(x[int(index[j])*Columns+c:])
						s0 += v * p[0]
						s1 += v * p[1]
						s2 += v * p[2]
						s3 += v * p[3]
						s4 += v * p[4]
						s5 += v * p[5]
						s6 += v * p[6]
						s7 += v * p[7]
					}
					*(*[8]float32)(s[c:]) = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
				}
				store(y[(g*rows+r)*ldy:], &s, acc)
			}
		}
	}
}

// spmvGo returns the product of blocks of rows rows with a vector.
func spmvGo[I Index](rows int) spmv[I] {
	return func(groups int, ptr []uint32, index []I, value, x, y []float32) {
		for g := range groups {
			var s [16]float32
			sums := s[:rows]
			for j := int(ptr[g] - ptr[0]); j < int(ptr[g+1]-ptr[0]); j++ {
				v := x[index[j]]
				for r, w := range value[j*rows:][:len(sums)] {
					sums[r] += w * v
				}
			}
			copy(y[g*rows:], sums)
		}
	}
}

// gemvGo adds up four products at a time.
func gemvGo(rows, k int, w []float32, ldw int, x, y []float32) {
	x = x[:k]
	for r := range rows {
		w := w[r*ldw:][:len(x)]
		var s0, s1, s2, s3 float32
		i := 0
		for ; i+4 <= len(x); i += 4 {
			s0 += w[i] * x[i]
			s1 += w[i+1] * x[i+1]
			s2 += w[i+2] * x[i+2]
			s3 += w[i+3] * x[i+3]
		}
		for ; i < len(x); i++ {
			s0 += w[i] * x[i]
		}
		y[r] = s0 + s1 + (s2 + s3)
	}
}

// row is a panel row.
type row = [Columns]float32

// store writes s to y, or adds it with acc set.
func store(y []float32, s *row, acc bool) {
	d := (*row)(y)
	if !acc {
		*d = *s
		return
	}
	for c := range d {
		d[c] += s[c]
	}
}

// gemmGo works on two rows and four columns at a time, which fit into the
// sixteen registers of amd64.
func gemmGo(rows, k int, w, x, y []float32, ldy int, acc bool) {
	for r := 0; r < rows; r += 2 {
		var s, t row
		for c := 0; c < Columns; c += 4 {
			var s0, s1, s2, s3, t0, t1, t2, t3 float32
			for i := range k {
				v, p := (*[2]float32)(w[4*i+r:]), (*[4]float32)(x[Columns*i+c:])
				a, b := v[0], v[1]
				s0 += a * p[0]
				t0 += b * p[0]
				s1 += a * p[1]
				t1 += b * p[1]
				s2 += a * p[2]
				t2 += b * p[2]
				s3 += a * p[3]
				t3 += b * p[3]
			}
			*(*[4]float32)(s[c:]) = [4]float32{s0, s1, s2, s3}
			*(*[4]float32)(t[c:]) = [4]float32{t0, t1, t2, t3}
		}
		store(y[r*ldy:], &s, acc)
		if r+1 < rows {
			store(y[(r+1)*ldy:], &t, acc)
		}
	}
}

func peakGo(n int) {
	var a, b, c, d, e, f, g, h float32
	x, y := float32(n&1), float32(0.5)
	for range n {
		a += x * y
		b += x * y
		c += x * y
		d += x * y
		e += x * y
		f += x * y
		g += x * y
		h += x * y
	}
	runtime.KeepAlive(a + b + c + d + e + f + g + h)
}
