package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spc/backend/format/ukernel"
)

// floats draws n floats, standard normal.
func normals(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func TestGemmEqualsTheDefinition(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	sizes := []int{0, 1, 2, 5, 6, 7, 15, 16, 17, 63, 64, 65, 130}
	for _, kern := range ukernel.Available() {
		b := newBLAS(2, kern)
		defer b.Close()
		one := newBLAS(1, kern)
		defer one.Close()
		for trial := range rounds(400) {
			m, n, k := sizes[rng.IntN(len(sizes))], sizes[rng.IntN(len(sizes))], sizes[rng.IntN(len(sizes))]
			if trial%10 == 0 {
				k = []int{255, 256, 257, 600}[rng.IntN(4)]
			}
			tA, tB := rng.IntN(2) == 1, rng.IntN(2) == 1
			alpha, beta := []float32{1, 0, -0.5}[rng.IntN(3)], []float32{0, 1, 2}[rng.IntN(3)]
			ar, ac, br, bc := m, k, k, n
			if tA {
				ar, ac = ac, ar
			}
			if tB {
				br, bc = bc, br
			}
			lda, ldb, ldc := ac+rng.IntN(3), bc+rng.IntN(3), n+rng.IntN(3)
			x, y, c := normals(rng, ar*lda), normals(rng, br*ldb), normals(rng, m*ldc)
			if beta == 0 {
				for i := range m {
					for j := range n {
						c[i*ldc+j] = float32(math.NaN())
					}
				}
			}
			have, again := slices.Clone(c), slices.Clone(c)
			b.Gemm(tA, tB, m, n, k, alpha, x, lda, y, ldb, beta, have, ldc)
			one.Gemm(tA, tB, m, n, k, alpha, x, lda, y, ldb, beta, again, ldc)
			what := fmt.Sprintf("%s: tA %v tB %v m %d n %d k %d alpha %v beta %v ld %d %d %d", kern.ISA, tA, tB, m, n, k, alpha, beta, lda, ldb, ldc)
			for i := range c {
				if math.Float32bits(have[i]) != math.Float32bits(again[i]) {
					t.Fatalf("%s: element %d is %v on two threads, %v on one", what, i, have[i], again[i])
				}
				row, col := 0, 0
				if ldc > 0 {
					row, col = i/ldc, i%ldc
				}
				if col >= n { // between the rows
					if math.Float32bits(have[i]) != math.Float32bits(c[i]) {
						t.Fatalf("%s: element %d behind row %d was written", what, col, row)
					}
					continue
				}
				want, scale := 0.0, 1.0
				for l := range k {
					p, q := row*lda+l, l*ldb+col
					if tA {
						p = l*lda + row
					}
					if tB {
						q = col*ldb + l
					}
					want += float64(x[p]) * float64(y[q])
					scale += math.Abs(float64(x[p]) * float64(y[q]))
				}
				want *= float64(alpha)
				if beta != 0 {
					want += float64(beta) * float64(c[i])
				}
				if d := math.Abs(want - float64(have[i])); !(d <= 1e-6*scale) {
					t.Fatalf("%s: element [%d,%d] is %v, want %v", what, row, col, have[i], want)
				}
			}
		}
	}
}

func TestGemmIsTheSameForAnyNumberOfThreads(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	m, n, k := 301, 1100, 530
	x, y := normals(rng, m*k), normals(rng, k*n)
	var first []float32
	for _, threads := range []int{1, 2, 3, 7} {
		b := NewBLAS(threads)
		c := make([]float32, m*n)
		b.Gemm(false, false, m, n, k, 1, x, k, y, n, 0, c, n)
		d := make([]float32, m*n)
		b.Gemm(true, true, n, m, k, 1, y, n, x, k, 0, d, m) // the transpose
		b.Close()
		if first == nil {
			first = c
		}
		if !slices.Equal(c, first) {
			t.Errorf("%d threads give another product", threads)
		}
		for i := range m {
			for j := range n {
				if e := math.Abs(float64(c[i*n+j] - d[j*m+i])); !(e < 1e-3) {
					t.Fatalf("%d threads: [%d,%d] is %v, transposed %v", threads, i, j, c[i*n+j], d[j*m+i])
				}
			}
		}
	}
}

func TestGemmRunsConcurrently(t *testing.T) {
	b := NewBLAS(2)
	defer b.Close()
	rng := rand.New(rand.NewPCG(2, 2))
	x := normals(rng, 100*100)
	want := make([]float32, 100*100)
	b.Gemm(false, true, 100, 100, 100, 1, x, 100, x, 100, 0, want, 100)
	done := make(chan []float32)
	for range 4 {
		go func() {
			c := make([]float32, 100*100)
			for range 20 {
				b.Gemm(false, true, 100, 100, 100, 1, x, 100, x, 100, 0, c, 100)
			}
			done <- c
		}()
	}
	for range 4 {
		if !slices.Equal(<-done, want) {
			t.Error("a concurrent product differs")
		}
	}
}

func TestGemmRefusesShortMatrices(t *testing.T) {
	b := NewBLAS(1)
	defer b.Close()
	x := make([]float32, 12)
	for name, f := range map[string]func(){
		"A":      func() { b.Gemm(false, false, 4, 3, 3, 1, x[:11], 3, x, 3, 0, make([]float32, 12), 3) },
		"B":      func() { b.Gemm(false, true, 3, 4, 3, 1, x, 3, x[:11], 3, 0, make([]float32, 12), 4) },
		"C":      func() { b.Gemm(false, false, 4, 3, 3, 1, x, 3, x, 3, 0, make([]float32, 11), 3) },
		"stride": func() { b.Gemm(false, false, 4, 3, 3, 1, x, 2, x, 3, 0, make([]float32, 12), 3) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// BenchmarkGemm prints the share of one core's peak, of which there are as many as
// threads.
func BenchmarkGemm(bench *testing.B) {
	for _, kern := range ukernel.Available() {
		if kern.ISA == "go" {
			continue
		}
		for _, s := range [][3]int{{256, 256, 256}, {512, 512, 512}, {1024, 1024, 512}} {
			for _, flags := range []string{"NN", "TN", "NT", "TT"} {
				bench.Run(fmt.Sprintf("%s/%dx%dx%d/%s", kern.ISA, s[0], s[1], s[2], flags), func(bench *testing.B) {
					b := newBLAS(1, kern)
					defer b.Close()
					m, n, k := s[0], s[1], s[2]
					lda, ldb := k, n
					if flags[0] == 'T' {
						lda = m
					}
					if flags[1] == 'T' {
						ldb = k
					}
					rng := rand.New(rand.NewPCG(1, 1))
					x, y, c := normals(rng, m*k), normals(rng, k*n), make([]float32, m*n)
					f := func() {
						b.Gemm(flags[0] == 'T', flags[1] == 'T', m, n, k, 1, x, lda, y, ldb, 0, c, n)
					}
					for bench.Loop() {
						f()
					}
					var rate, top float64 // the best of interleaved runs, others use the machine
					for range 20 {
						start := time.Now()
						f()
						rate = max(rate, 2*float64(m)*float64(n)*float64(k)/time.Since(start).Seconds())
						start = time.Now()
						done := kern.Peak(50_000)
						top = max(top, done/time.Since(start).Seconds())
					}
					bench.ReportMetric(rate/1e9, "GFLOP/s")
					bench.ReportMetric(100*rate/top, "%peak")
				})
			}
		}
	}
}
