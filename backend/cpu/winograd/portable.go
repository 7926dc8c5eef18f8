package winograd

import "unsafe"

// portable holds the transformations in plain Go.
var portable = kernels{
	isa: "go", lanes: lanes,
	weights:  map[int]kernel{2: byMatrix(weights2), 4: byMatrix(weights4)},
	input:    map[int]kernel{2: byMatrix(input2), 4: byMatrix(input4)},
	output:   map[int]kernel{2: checked(output2), 4: checked(output4)},
	products: []product{{lanes, 2, []rowsMul{productGo(1), productGo(2)}}},
}

// matrix is a transformation by its rows.
type matrix [][]float32

// The points are 0, 1, -1 and infinity for tiles of 2x2 outputs, and 0, 5/8, -5/8,
// 3/2, -3/2 and infinity for those of 4x4, which of all such pairs with few bits
// err the least.
const (
	pa, pb = 0.625, 1.5
	na     = 2 * pa * pa * (pa*pa - pb*pb)
	nb     = 2 * pb * pb * (pb*pb - pa*pa)
)

var (
	weights2 = matrix{{-1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}}
	input2   = matrix{{-1, 0, 1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, -1, 0, 1}}
	output2  = matrix{{1, 1, 1, 0}, {0, 1, -1, 1}}
	weights4 = matrix{
		{1 / (pa * pa * pb * pb), 0, 0},
		{1 / na, pa / na, pa * pa / na}, {1 / na, -pa / na, pa * pa / na},
		{1 / nb, pb / nb, pb * pb / nb}, {1 / nb, -pb / nb, pb * pb / nb},
		{0, 0, 1},
	}
	input4 = matrix{
		{pa * pa * pb * pb, 0, -pa*pa - pb*pb, 0, 1, 0},
		{0, -pa * pb * pb, -pb * pb, pa, 1, 0}, {0, pa * pb * pb, -pb * pb, -pa, 1, 0},
		{0, -pb * pa * pa, -pa * pa, pb, 1, 0}, {0, pb * pa * pa, -pa * pa, -pb, 1, 0},
		{0, pa * pa * pb * pb, 0, -pa*pa - pb*pb, 0, 1},
	}
	output4 = matrix{
		{1, 1, 1, 1, 1, 0},
		{0, pa, -pa, pb, -pb, 0},
		{0, pa * pa, pa * pa, pb * pb, pb * pb, 0},
		{0, pa * pa * pa, -pa * pa * pa, pb * pb * pb, -pb * pb * pb, 1},
	}
)

// byMatrix transforms grids of 16 lanes.
func byMatrix(t matrix) kernel {
	in, out := len(t[0]), len(t)
	return func(n int, src *float32, srow, scol, sstep int, dst *float32, drow, dcol, dstep int, tmp *float32) {
		x := unsafe.Slice(src, (n-1)*sstep+(in-1)*(srow+scol)+lanes)
		y := unsafe.Slice(dst, (n-1)*dstep+(out-1)*(drow+dcol)+lanes)
		half := unsafe.Slice(tmp, in*out*lanes)
		for i := range n {
			for j := range in {
				t.apply(half[j*lanes:], in*lanes, x[i*sstep+j*scol:], srow)
			}
			for p := range out {
				t.apply(y[i*dstep+p*drow:], dcol, half[p*in*lanes:], lanes)
			}
		}
	}
}

// checked is byMatrix that leaves 0 in tmp for the lanes of finite results, else NaN.
func checked(t matrix) kernel {
	f, out := byMatrix(t), len(t)
	return func(n int, src *float32, srow, scol, sstep int, dst *float32, drow, dcol, dstep int, tmp *float32) {
		f(n, src, srow, scol, sstep, dst, drow, dcol, dstep, tmp)
		flags := (*[lanes]float32)(unsafe.Slice(tmp, lanes))
		clear(flags[:])
		y := unsafe.Slice(dst, (n-1)*dstep+(out-1)*(drow+dcol)+lanes)
		for i := range n * out * out {
			at := i/(out*out)*dstep + i/out%out*drow + i%out*dcol
			for l, v := range (*[lanes]float32)(y[at:]) {
				flags[l] += 0 * v
			}
		}
	}
}

// apply transforms vectors that are xs elements apart to vectors ys apart.
func (t matrix) apply(y []float32, ys int, x []float32, xs int) {
	for p, row := range t {
		var s [lanes]float32
		for i, f := range row {
			if f == 0 {
				continue
			}
			v := (*[lanes]float32)(x[i*xs:])
			for l := range s {
				s[l] += f * v[l]
			}
		}
		*(*[lanes]float32)(y[p*ys:]) = s
	}
}

// stretch is the number of products that are added up before their sum is added to those before: the rounding
// error of a sum grows with the root of its terms, and the transformation back makes it larger.
const stretch = 64

// productGo multiplies rows of so many, four columns at a time, which fit into the
// registers of amd64.
func productGo(rows int) rowsMul {
	return func(groups, k int, a *float32, lda int, b *float32, ldb int, y *float32, ldy, ahead int) {
		as := unsafe.Slice(a, (rows*groups-1)*lda+k)
		bs := unsafe.Slice(b, (k-1)*ldb+lanes)
		ys := unsafe.Slice(y, (rows*groups-1)*ldy+lanes)
		for r := 0; r < rows*groups; r += rows {
			p, q := as[r*lda:][:k], as[(r+rows-1)*lda:][:k]
			for c := 0; c < lanes; c += 4 {
				v, u := (*[4]float32)(ys[r*ldy+c:]), (*[4]float32)(ys[(r+rows-1)*ldy+c:])
				for from := 0; from < k; from += stretch {
					var s0, s1, s2, s3, t0, t1, t2, t3 float32
					for i, e := range p[from:min(from+stretch, k)] {
						w, x := q[from+i], (*[4]float32)(bs[(from+i)*ldb+c:])
						s0 += e * x[0]
						t0 += w * x[0]
						s1 += e * x[1]
						t1 += w * x[1]
						s2 += e * x[2]
						t2 += w * x[2]
						s3 += e * x[3]
						t3 += w * x[3]
					}
					if from > 0 {
						s0, s1, s2, s3 = s0+v[0], s1+v[1], s2+v[2], s3+v[3]
						t0, t1, t2, t3 = t0+u[0], t1+u[1], t2+u[2], t3+u[3]
					}
					*u = [4]float32{t0, t1, t2, t3}
					*v = [4]float32{s0, s1, s2, s3}
				}
			}
		}
	}
}
