package ikernel

import "math"

// portable is the kernel set in pure Go.
var portable = Kernels{
	ISA:        "go",
	Tile:       "1x4",
	step:       1,
	gemm:       gemmGo[int8, uint8],
	gemmTokens: gemmGo[uint8, int8],
	spmm:       spmmGo,
	pack:       packGo,
	packTokens: packTokensGo,
	finish:     finishTable(func(_ bool, _, _ int) finish { return finishGo }),
	quantize:   quantizeGo,
	dequantize: dequantizeGo,
	split:      splitGo,
	frame:      [2]frame{frameGo(1), frameGo(2)},
	interleave: [2]interleave{interleaveGo(1), interleaveGo(2)},
	maxPool:    maxPoolGo,
	max:        maxGo,
	depthwise:  depthwiseGo,
}

// finishTable makes the table of a set.
func finishTable(f func(byColumn bool, out, res int) finish) (t [2][2][3]finish) {
	for out := range 2 {
		for res := range 3 {
			t[0][out][res], t[1][out][res] = f(false, out, res), f(true, out, res)
		}
	}
	return t
}

type octet interface{ int8 | uint8 }

// gemmGo multiplies rows of one operand by a panel of the other, four columns at a
// time.
func gemmGo[A, B octet](rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
	n := (cols + 15) &^ 15
	for r := range rows {
		row := a[r*lda:]
		for j := 0; j < n; j += 4 {
			var s0, s1, s2, s3 int32
			for g := range k4 {
				w := (*[4]A)(row[4*g:])
				x := (*[16]B)(b[g*PanelRow+4*j:])
				w0, w1, w2, w3 := int32(w[0]), int32(w[1]), int32(w[2]), int32(w[3])
				s0 += w0*int32(x[0]) + w1*int32(x[1]) + w2*int32(x[2]) + w3*int32(x[3])
				s1 += w0*int32(x[4]) + w1*int32(x[5]) + w2*int32(x[6]) + w3*int32(x[7])
				s2 += w0*int32(x[8]) + w1*int32(x[9]) + w2*int32(x[10]) + w3*int32(x[11])
				s3 += w0*int32(x[12]) + w1*int32(x[13]) + w2*int32(x[14]) + w3*int32(x[15])
			}
			*(*[4]int32)(c[r*ldc+j:]) = [4]int32{s0, s1, s2, s3}
		}
	}
}

func spmmGo(rows int, ptr []uint32, index []uint16, value []int8, x []uint8, cols int, c []int32, ldc int, acc bool) {
	n := (cols + 15) &^ 15
	for r := range rows {
		sums := c[r*ldc:][:n]
		if !acc {
			clear(sums)
		}
		for g := int(ptr[r] - ptr[0]); g < int(ptr[r+1]-ptr[0]); g++ {
			w := (*[4]int8)(value[Group*g:])
			w0, w1, w2, w3 := int32(w[0]), int32(w[1]), int32(w[2]), int32(w[3])
			p := x[int(index[g])*PanelRow:][:Group*n]
			for j := range sums {
				v := (*[4]uint8)(p[4*j:])
				sums[j] += w0*int32(v[0]) + w1*int32(v[1]) + w2*int32(v[2]) + w3*int32(v[3])
			}
		}
	}
}

func packGo(groups int, dst, src []uint8, offset []int32, cols int) {
	for i := range Group * groups {
		d := dst[i/Group*PanelRow+i%Group:]
		for j, v := range src[offset[i]:][:cols] {
			d[Group*j] = v
		}
		for j := cols; j < Columns; j++ {
			d[Group*j] = 0
		}
	}
}

func packTokensGo(tokens, groups int, dst, src []uint8, lds int) {
	for t := range tokens {
		row := src[t*lds:]
		for g := range groups {
			*(*[Group]uint8)(dst[g*PanelRow+Group*t:]) = [Group]uint8(row[Group*g:])
		}
	}
}

func finishGo(rows, n int, c []int32, ldc int, e *Epilogue, first int, y, res Elems, ldy int) {
	for r := range rows {
		at := first + r
		for j, s := range c[r*ldc:][:n] {
			if e.ByColumn {
				at = first + j
			}
			v := float32(float32(s+e.Sum[at])*e.Scale[at]) + e.Bias[at]
			switch {
			case res.F32 != nil:
				v += res.F32[r*ldy+j]
			case res.U8 != nil:
				v += float32(float32(res.U8[r*ldy+j]) * e.ResScale)
			}
			v = min(max(v, e.Lo), e.Hi)
			if y.U8 != nil {
				y.U8[r*ldy+j] = uint8(math.RoundToEven(float64(v*e.Inv)) + float64(e.Zero))
			} else {
				y.F32[r*ldy+j] = v
			}
		}
	}
}

func quantizeGo(y []uint8, x []float32, l *Limits) {
	for i := range y {
		v := min(max(x[i], l.Lo), l.Hi)
		y[i] = uint8(math.RoundToEven(float64(v/l.Scale)) + float64(l.Zero))
	}
}

func dequantizeGo(y []float32, x []uint8, scale, zero float32) {
	for i := range y {
		y[i] = (float32(x[i]) - zero) * scale
	}
}

func splitGo(n int, even, odd, x []uint8) {
	for i := range n {
		even[i], odd[i] = x[2*i], x[2*i+1]
	}
}

func frameGo(step int) frame {
	return func(rows, n int, dst []uint8, ldd int, src []uint8, lds, left, right int, fill uint8) {
		for r := range rows {
			d := dst[r*ldd:][:left+n+right]
			for j := range left {
				d[j] = fill
			}
			for j := range n {
				d[left+j] = src[r*lds+step*j]
			}
			for j := range right {
				d[left+n+j] = fill
			}
		}
	}
}

func interleaveGo(step int) interleave {
	return func(rows, n int, dst []uint8, ldd int, src []uint8, lds, plane, left, right int, fill uint8) {
		for r := range rows {
			d := dst[r*ldd:][:4*(left+n+right)]
			for j := range d {
				d[j] = fill
			}
			for j := range n {
				for i := range 4 {
					d[4*(left+j)+i] = src[i*plane+r*lds+step*j]
				}
			}
		}
	}
}

func maxPoolGo(rows, n int, dst []uint8, ldd int, src []uint8, lds int) {
	for r := range rows {
		for j := range n {
			m := uint8(0)
			for a := range 3 {
				s := src[(2*r+a)*lds+2*j:][:3]
				m = max(m, s[0], s[1], s[2])
			}
			dst[r*ldd+j] = m
		}
	}
}

func maxGo(y, x []uint8) {
	x = x[:len(y)]
	for i, v := range x {
		y[i] = max(y[i], v)
	}
}
