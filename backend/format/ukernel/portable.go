package ukernel

import "runtime"

// portable is the kernel set in pure Go.
var portable = Kernels{
	ISA:    "go",
	Gemm:   Gemm{Name: "gemm_f32_6x64_go", tile: gemmGo},
	gemv:   gemvGo,
	spmm:   byRows(spmmGo),
	spmv16: byRows(spmvGo[uint16]),
	spmv32: byRows(spmvGo[uint32]),
	run16:  byRun(runGo[uint16]),
	run32:  byRun(runGo[uint32]),
	widen:  widening{ieee: widenF16, brain: widenBF16},
	peak:   peakGo,
	flop:   16,
}

// byRows makes a kernel for each height of vertical blocks, byRun one for each width
// of horizontal ones.
func byRows[T any](kernel func(rows int) T) map[int]T   { return each(Blocks, kernel) }
func byRun[T any](kernel func(columns int) T) map[int]T { return each(Runs, kernel) }

func each[T any](sizes []int, kernel func(size int) T) map[int]T {
	table := map[int]T{}
	for _, n := range sizes {
		table[n] = kernel(n)
	}
	return table
}

// spmmGo returns the products of blocks of rows rows with a panel by its width,
// which work on one row and eight columns at a time.
func spmmGo(rows int) (kernels [Columns / Granule]spmm) {
	for w := range kernels {
		kernels[w] = func(groups int, group []uint32, offset []uint16, value, x, y []float32, acc bool, _ *FinishArgs) {
			for g := range groups {
				steps := int(group[2*g+1]) * bundle[rows]
				for r := range rows {
					out := y[(int(group[2*g])+r)*Columns:]
					for c := 0; c < (w+1)*Granule; c += 8 {
						var s [8]float32
						if acc {
							s = [8]float32(out[c:])
						}
						for j, o := range offset[:steps] {
							v := value[j*rows+r]
							p := (*[8]float32)(x[int(o)/4+c:])
							for i := range s {
								s[i] += v * p[i]
							}
						}
						*(*[8]float32)(out[c:]) = s
					}
				}
				offset, value = offset[steps:], value[steps*rows:]
			}
		}
	}
	return kernels
}

func gemmGo(tiles, rows, width, k int, a []float32, at, ar, ak int, b []float32, ldb int, y []float32, ldy int, acc bool, _ *FinishArgs, _ []float32) {
	for t := range tiles {
		tileGo(rows, width, k, a[t*at:], ar, ak, b, ldb, y[t*rows*ldy:], ldy, acc)
	}
}

// tileGo works on two rows and four columns at a time, which fit into the
// sixteen registers of amd64.
func tileGo(rows, width, k int, a []float32, ar, ak int, b []float32, ldb int, y []float32, ldy int, acc bool) {
	for r := 0; r < rows; r += 2 {
		second := min(r+1, rows-1)
		for c := 0; c < width*Granule; c += 4 {
			var s, t [4]float32
			u, v := (*[4]float32)(y[r*ldy+c:]), (*[4]float32)(y[second*ldy+c:])
			if acc {
				s, t = *u, *v
			}
			s0, s1, s2, s3, t0, t1, t2, t3 := s[0], s[1], s[2], s[3], t[0], t[1], t[2], t[3]
			for i := range k {
				p, q, x := a[r*ar+i*ak], a[second*ar+i*ak], (*[4]float32)(b[i*ldb+c:])
				s0 += p * x[0]
				t0 += q * x[0]
				s1 += p * x[1]
				t1 += q * x[1]
				s2 += p * x[2]
				t2 += q * x[2]
				s3 += p * x[3]
				t3 += q * x[3]
			}
			*v = [4]float32{t0, t1, t2, t3}
			*u = [4]float32{s0, s1, s2, s3}
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
