package tile

import (
	"fmt"
	"math"
	"math/rand"
	"testing"
)

const guard = -12345

// eachISA runs test as a subtest for all kernels of this machine.
func eachISA(t *testing.T, test func(t *testing.T, k *kernels)) {
	for _, k := range available {
		t.Run(k.isa, func(t *testing.T) { test(t, k) })
	}
}

// widths lists the widths of k.
func (k *kernels) widths() (w []int) {
	for n := k.lanes; n <= k.columns(); n += k.lanes {
		w = append(w, n)
	}
	return w
}

// draw returns n values and two guards behind them, off elements past the start
// of an allocation.
func draw(rng *rand.Rand, n, off int) []float32 {
	s := make([]float32, off+n+2)[off:]
	for i := range n {
		s[i] = float32(rng.NormFloat64())
	}
	s[n], s[n+1] = guard, guard
	return s
}

func guarded(t *testing.T, s []float32) {
	t.Helper()
	if n := len(s); s[n-2] != guard || s[n-1] != guard {
		t.Fatal("wrote past the end")
	}
}

func close(got float32, want, tol float64) bool {
	return math.Abs(float64(got)-want) <= tol || math.IsNaN(want) && got != got
}

func TestProductEqualsReference(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, width := range kern.widths() {
			for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 13} {
				for _, k := range []int{1, 2, 3, 4, 5, 33} {
					for _, transposed := range []bool{false, true} {
						ra, ca := k+rng.Intn(3), 1
						if transposed {
							ra, ca = 1, rows+rng.Intn(3)
						}
						ldx, ldy := width+rng.Intn(5), width+rng.Intn(5)
						a := draw(rng, (rows-1)*ra+(k-1)*ca+1, rng.Intn(3))
						x := draw(rng, (k-1)*ldx+width, rng.Intn(3))
						for _, acc := range []bool{false, true} {
							y := draw(rng, (rows-1)*ldy+width, rng.Intn(3))
							was := append([]float32(nil), y...)
							kern.product(rows, k, a[:len(a)-2], ra, ca, x[:len(x)-2], ldx, width, y[:len(y)-2], ldy, acc)
							guarded(t, y)
							for i, got := range y[:len(y)-2] {
								r, c := i/ldy, i%ldy
								want := float64(was[i])
								if c < width {
									if !acc {
										want = 0
									}
									for j := range k {
										want += float64(a[r*ra+j*ca]) * float64(x[j*ldx+c])
									}
								}
								if !close(got, want, 1e-4) {
									t.Fatalf("%dx%d by %d, strides %d %d, acc %v: y[%d,%d] = %v, want %v", rows, width, k, ra, ca, acc, r, c, got, want)
								}
							}
						}
					}
				}
			}
		}
	})
}

func TestSoftmaxDownColumns(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	inf := float32(math.Inf(1))
	eachISA(t, func(t *testing.T, kern *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, width := range kern.widths() {
			for _, rows := range []int{1, 2, 3, 17} {
				s, bias := draw(rng, rows*width, 1), draw(rng, rows, 0)
				for i := range rows * width {
					s[i] *= 20
				}
				s[0] = -inf                      // counts nothing
				bias[rows-1] = -1e4              // neither does a whole row
				s[width-1] = float32(math.NaN()) // a column that is no number
				want := make([]float64, rows*width)
				for i := range want {
					want[i] = float64(s[i])*0.5 + float64(bias[i/width])
				}
				m, sum := draw(rng, width, 2), draw(rng, width, 3)
				for c := range width {
					m[c], sum[c] = Lowest, 1
				}
				kern.maxColumns(rows, width, s[:rows*width], bias, m[:width], 0.5)
				kern.expColumns(rows, width, s[:rows*width], m[:width], sum[:width])
				for _, x := range [][]float32{s, m, sum} {
					guarded(t, x)
				}
				for c := range width {
					top, total := math.Inf(-1), 1.0
					for r := range rows {
						top = max(top, want[r*width+c])
					}
					if top = max(top, Lowest); math.IsNaN(top) {
						if sum[c] == sum[c] {
							t.Fatalf("column %d has a NaN, but the sum %v", c, sum[c])
						}
						continue
					}
					if !close(m[c], top, 1e-5*math.Abs(top)) {
						t.Fatalf("%dx%d: maximum of column %d is %v, want %v", rows, width, c, m[c], top)
					}
					for r := range rows {
						e := math.Exp(want[r*width+c] - top)
						total += e
						if !close(s[r*width+c], e, 1e-5) {
							t.Fatalf("%dx%d: s[%d,%d] = %v, want %v", rows, width, r, c, s[r*width+c], e)
						}
					}
					if !close(sum[c], total, 1e-4) {
						t.Fatalf("%dx%d: sum of column %d is %v, want %v", rows, width, c, sum[c], total)
					}
				}
			}
		}
	})
}

// A column of which nothing counts, all of it -Inf, has no sum; one whose elements
// are all the lowest finite number has equal parts.
func TestSoftmaxOfColumnsThatAreMasked(t *testing.T) {
	eachISA(t, func(t *testing.T, kern *kernels) {
		for _, width := range kern.widths() {
			for v, want := range map[float32]float32{float32(math.Inf(-1)): 0, Lowest: 3} {
				s, m, sum := make([]float32, 3*width), make([]float32, width), make([]float32, width)
				for i := range s {
					s[i] = v
				}
				for c := range m {
					m[c] = Lowest
				}
				kern.maxColumns(3, width, s, make([]float32, 3), m, 1)
				kern.expColumns(3, width, s, m, sum)
				for c := range sum {
					if sum[c] != want {
						t.Fatalf("width %d: column of %v has the sum %v, want %v", width, v, sum[c], want)
					}
				}
			}
		}
	})
}

// MaskMax adds a tile, which hides what is NaN or infinite too.
func TestMaskHidesWhateverThereIs(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	eachISA(t, func(t *testing.T, kern *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, width := range kern.widths() {
			s, mask, m := draw(rng, 3*width, 1), draw(rng, 3*width, 2), draw(rng, width, 3)
			s[1], s[width], s[2*width-1] = nan, inf, -inf
			want, top := make([]float32, 3*width), append([]float32(nil), m[:width]...)
			for i := range want {
				if i%width == 1 || i == width || i%5 == 0 {
					mask[i] = -inf
				}
				if want[i] = s[i]*2 + mask[i]; mask[i] == -inf {
					want[i] = -inf
				}
				top[i%width] = max(top[i%width], want[i])
			}
			kern.maskMaxColumns(3, width, s[:3*width], mask[:3*width], m[:width], 2)
			guarded(t, s)
			guarded(t, m)
			for i, w := range want {
				if math.Abs(float64(s[i]-w)) > 1e-5 {
					t.Fatalf("width %d: element %d is %v, want %v", width, i, s[i], w)
				}
			}
			for c, w := range top {
				if !close(m[c], float64(w), 1e-5) {
					t.Fatalf("width %d: maximum of column %d is %v, want %v", width, c, m[c], w)
				}
			}
		}
	})
}

func TestExpIsAccurate(t *testing.T) {
	eachISA(t, func(t *testing.T, kern *kernels) {
		for x := float32(0); x > -50; x -= 0.0137 {
			s, zero, sum := make([]float32, kern.lanes), make([]float32, kern.lanes), make([]float32, kern.lanes)
			s[1] = x
			kern.expColumns(1, kern.lanes, s, zero, sum)
			want := math.Exp(float64(x))
			if x < -64*math.Ln2 {
				want = 0
			}
			if d := math.Abs(float64(s[1]) - want); d > (3e-7+1.3e-7*math.Abs(float64(x)))*want {
				t.Fatalf("exp(%v) = %v, want %v", x, s[1], want)
			}
		}
	})
}

func TestScaleAndRotate(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, width := range kern.widths() {
			s, f := draw(rng, 3*width, 1), draw(rng, width, 0)
			want := append([]float32(nil), s...)
			for i := range 3 * width {
				want[i] *= f[i%width]
			}
			kern.scaleColumns(3, width, s[:3*width], f)
			for i := range s {
				if s[i] != want[i] {
					t.Fatalf("width %d: element %d is %v, want %v", width, i, s[i], want[i])
				}
			}
		}
		for n := 0; n <= 70; n += 2 {
			x, cos, sin, y := draw(rng, n, 1), draw(rng, n, 0), draw(rng, n, 2), draw(rng, n, 3)
			kern.rotatePairs(y[:n], x, cos, sin)
			guarded(t, y)
			for i := range n {
				if want := float64(x[i])*float64(cos[i]) + float64(x[i^1])*float64(sin[i]); !close(y[i], want, 1e-6*10) {
					t.Fatalf("%d elements: y[%d] = %v, want %v", n, i, y[i], want)
				}
			}
		}
	})
}

func TestShortArgumentsPanic(t *testing.T) {
	f := make([]float32, 100)
	odd := len(f)/2 + 1
	for name, call := range map[string]func(){
		"width":  func() { Product(1, 1, f, 1, 1, f, 1, 7, f, 7, false) },
		"left":   func() { Product(3, 4, f[:11], 4, 1, f, 16, 16, f, 16, false) },
		"right":  func() { Product(3, 4, f, 4, 1, f[:63], 16, 16, f, 16, false) },
		"result": func() { Product(3, 4, f, 4, 1, f, 16, 16, f[:47], 16, false) },
		"bias":   func() { Max(3, 16, f, f[:2], f, 1) },
		"tile":   func() { Exp(3, 16, f[:47], f, f) },
		"odd":    func() { Rotate(f[:odd], f, f, f) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}

func BenchmarkProduct(b *testing.B) {
	f := make([]float32, 1<<18)
	for _, k := range available {
		for _, v := range k.widths() {
			for _, form := range []struct {
				name    string
				rows, k int
				ra, ca  int
			}{{"scores", 128, 64, 768, 1}, {"values", 64, 128, 1, 768}, {"packed", 128, 64, 64, 1}} {
				b.Run(fmt.Sprintf("%s/%s/%d", k.isa, form.name, v), func(b *testing.B) {
					y := make([]float32, form.rows*v)
					for range b.N {
						k.product(form.rows, form.k, f, form.ra, form.ca, f, v, v, y, v, false)
					}
					b.ReportMetric(2*float64(form.rows*form.k*v)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

func BenchmarkColumns(b *testing.B) {
	for _, k := range available {
		w := k.columns()
		s, m, sum := make([]float32, 128*w), make([]float32, 128), make([]float32, 128)
		rate := func(b *testing.B) {
			b.ReportMetric(float64(len(s))*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gelem/s")
		}
		b.Run(k.isa+"/max", func(b *testing.B) {
			for range b.N {
				k.maxColumns(128, w, s, m, m, 1)
			}
			rate(b)
		})
		b.Run(k.isa+"/exp", func(b *testing.B) {
			for range b.N {
				k.expColumns(128, w, s, m, sum)
			}
			rate(b)
		})
	}
}
