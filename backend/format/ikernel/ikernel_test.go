package ikernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const seed = 81

func rng(t testing.TB) *rand.Rand {
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func u8s(r *rand.Rand, n int) []uint8 {
	x := make([]uint8, n)
	for i := range x {
		x[i] = uint8(r.Uint32())
	}
	return x
}

func i8s(r *rand.Rand, n int) []int8 {
	x := make([]int8, n)
	for i := range x {
		x[i] = int8(r.Uint32())
	}
	return x
}

func f32s(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// each runs f for every kernel set but pure Go, of which it takes the results as right.
func each(t *testing.T, f func(t *testing.T, k *Kernels)) {
	for _, k := range available[:len(available)-1] {
		t.Run(k.ISA, func(t *testing.T) { f(t, k) })
	}
}

// edges are sizes around those of tiles.
var (
	rowCounts    = []int{1, 2, 3, 4, 5, 6, 7, 12, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65}
	groupCounts  = []int{0, 1, 3, 4, 5, 16, 17, 32, 95, 96, 97}
	columnCounts = []int{1, 15, 16, 17, 32, 33, 48, 49, 63, 64}
)

func TestGemmMatchesItsDefinition(t *testing.T) {
	r := rng(t)
	for _, k := range available {
		for _, rows := range rowCounts {
			for _, k4 := range groupCounts {
				for _, cols := range columnCounts {
					if k4 > 32 && (rows > 7 || cols%16 != 0) {
						continue
					}
					n := lanes(cols)
					w, x := i8s(r, rows*(4*k4+3)), u8s(r, k4*PanelRow)
					lda, ldc := 4*k4+3, n+5
					if rows%2 == 0 {
						ldc = Columns // which tiles need
					}
					c := make([]int32, rows*ldc)
					k.Gemm(rows, k4, w, lda, x, cols, c, ldc)
					check := func(what string, get func(i, k, j int) int32) {
						t.Helper()
						for i := range rows {
							for j := range n {
								var want int32
								for k := range 4 * k4 {
									want += get(i, k, j)
								}
								if c[i*ldc+j] != want {
									t.Fatalf("%s %s %d x %d x %d: [%d,%d] is %d, want %d", k.ISA, what, rows, 4*k4, cols, i, j, c[i*ldc+j], want)
								}
							}
						}
					}
					check("gemm", func(i, k, j int) int32 {
						return int32(w[i*lda+k]) * int32(x[k/4*PanelRow+4*j+k%4])
					})
					a, b := u8s(r, rows*lda), i8s(r, k4*PanelRow)
					k.GemmTokens(rows, k4, a, lda, b, cols, c, ldc)
					check("tokens", func(i, k, j int) int32 {
						return int32(a[i*lda+k]) * int32(b[k/4*PanelRow+4*j+k%4])
					})
				}
			}
		}
	}
}

// trained returns weights that are distributed as trained ones are, normally, a few of
// them at the limits.
func trained(r *rand.Rand, n int) []int8 {
	x := make([]int8, n)
	for i := range x {
		x[i] = int8(min(max(r.NormFloat64()*35, -128), 127))
	}
	return x
}

func TestGemmNarrowAndItsRestAreGemm(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		if w, _ := k.Narrow(make([]int8, 8), 1, 8); w == nil {
			t.Skipf("%s has no GemmNarrow", k.ISA)
		}
		for _, rows := range rowCounts {
			for _, k4 := range []int{1, 2, 3, 64, 65} {
				for _, cols := range columnCounts {
					n, ld := lanes(cols), Group*k4
					w, x := trained(r, rows*ld), u8s(r, k4*PanelRow)
					if k4 > 60 {
						w[0], w[1], w[ld-1], w[ld-2] = -128, -128, 127, -128
						for i := range x[:PanelRow] {
							x[i] = 255
						}
					}
					before := append([]int8(nil), w...)
					narrowed, rest := k.Narrow(w, rows, ld)
					if !slices.Equal(w, before) {
						t.Fatal("Narrow changes its argument")
					}
					if narrowed == nil {
						if k4 > 60 {
							t.Fatalf("%d x %d: too many groups are not narrow", rows, ld)
						}
						continue
					}
					got, want := make([]int32, rows*n), make([]int32, rows*n)
					k.GemmNarrow(rows, k4, narrowed, ld, x, cols, got, n)
					k.Spmm(rest, 0, rows, k4, x, cols, got, n, true)
					portable.Gemm(rows, k4, w, ld, x, cols, want, n)
					if !slices.Equal(got, want) {
						t.Fatalf("%d x %d x %d: %v, want %v", rows, ld, cols, got, want)
					}
				}
			}
		}
	})
}

func TestPrepareKeepsSumsThatFillTheirBits(t *testing.T) {
	for _, k := range available {
		for _, w := range [][]int8{{-128, -128, -128, -128}, {127, 127, 127, 127}, {-127, -128, 1, 0}, {64, 64, -64, -64}, {-128, 0, 0, 127}, {127, 2, -127, 1}} {
			x := make([]uint8, PanelRow)
			for i := range x {
				x[i] = 255
			}
			got, want := make([]int32, 16), int32(0)
			for _, v := range w {
				want += 255 * int32(v)
			}
			k.Spmm(k.Prepare(&Groups1x4{Ptr: []uint32{0, 1}, Index: []uint16{0}, Value: w}), 0, 1, 1, x, 1, got, 16, false)
			if got[0] != want {
				t.Errorf("%s: %v gives %d, want %d", k.ISA, w, got[0], want)
			}
		}
	}
}

// groups makes a weight of m rows and k4 groups of columns, of which each is there
// with probability p, from values that fill makes.
func groups(r *rand.Rand, m, k4 int, p float64, fill func(r *rand.Rand, n int) []int8) *Groups1x4 {
	g := &Groups1x4{Ptr: []uint32{0}}
	for range m {
		for j := range k4 {
			if r.Float64() < p {
				g.Index = append(g.Index, uint16(j))
				g.Value = append(g.Value, fill(r, 4)...)
			}
		}
		g.Ptr = append(g.Ptr, uint32(len(g.Index)))
	}
	return g
}

func TestSpmmMatchesPureGo(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, m := range rowCounts {
			for _, k4 := range []int{1, 2, 7, 40} {
				for _, cols := range columnCounts {
					g, x := groups(r, m, k4, 0.4, i8s), u8s(r, k4*PanelRow)
					n := lanes(cols)
					from := r.IntN(m)
					got, want := make([]int32, m*n), make([]int32, m*n)
					for _, acc := range []bool{false, true, true} {
						k.Spmm(k.Prepare(g), from, m, k4, x, cols, got, n, acc)
						portable.Spmm(g, from, m, k4, x, cols, want, n, acc)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%d x %d x %d from %d: %v, want %v", m, 4*k4, cols, from, got, want)
					}
				}
			}
		}
	})
}

func TestPackMatchesPureGo(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, k4 := range groupCounts {
			for _, cols := range columnCounts {
				src := u8s(r, 200)
				offset := make([]int32, 4*k4)
				for i := range offset {
					offset[i] = int32(r.IntN(len(src) - cols + 1))
				}
				got, want := make([]uint8, k4*PanelRow), make([]uint8, k4*PanelRow)
				k.Pack(got, src, offset, cols)
				portable.Pack(want, src, offset, cols)
				if !slices.Equal(got, want) {
					t.Fatalf("%d groups, %d columns differ", k4, cols)
				}
			}
		}
		for _, k4 := range []int{1, 2, 15, 16, 17, 33} {
			for _, tokens := range columnCounts {
				lds := 4*k4 + 2
				src := u8s(r, tokens*lds)
				got, want := make([]uint8, k4*PanelRow), make([]uint8, k4*PanelRow)
				k.PackTokens(got, src, lds, tokens, k4)
				portable.PackTokens(want, src, lds, tokens, k4)
				if !slices.Equal(got, want) {
					t.Fatalf("%d groups, %d tokens differ", k4, tokens)
				}
			}
		}
	})
}

func TestFinishMatchesPureGo(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, rows := range []int{1, 2, 5} {
			for _, n := range []int{1, 6, 7, 8, 9, 13, 15, 16, 17, 33, 64, 100} {
				for variant := range 24 {
					far := variant / 12 * 10000 // results that do not fit into 32 bits before they are limited
					variant %= 12
					e := Epilogue{ByColumn: variant&1 != 0, Limits: NoLimits()}
					first := r.IntN(3)
					for range first + max(rows, n) {
						e.Sum = append(e.Sum, int32(r.IntN(2000)-1000))
						e.Scale = append(e.Scale, r.Float32()/500*float32(1+far*far))
						e.Bias = append(e.Bias, float32(r.NormFloat64()))
					}
					e.Lo, e.ResScale = -0.5, 0.01
					ldc, ldy := n+3, n+7
					c := make([]int32, rows*ldc)
					for i := range c {
						c[i] = int32(r.IntN(4000) - 2000)
					}
					var got, want, res Elems
					if variant&2 != 0 {
						e.ToU8(0.02, 100)
						e.InSteps()
						if e.near != (far == 0) {
							t.Fatalf("variant %d: near is %v", variant, e.near)
						}
						got.U8, want.U8 = make([]uint8, rows*ldy), make([]uint8, rows*ldy)
					} else {
						got.F32, want.F32 = make([]float32, rows*ldy), make([]float32, rows*ldy)
					}
					switch variant / 4 {
					case 1:
						res.F32 = f32s(r, rows*ldy)
					case 2:
						res.U8 = u8s(r, rows*ldy)
					}
					k.Finish(&e, first, rows, n, c, ldc, got, res, ldy)
					portable.Finish(&e, first, rows, n, c, ldc, want, res, ldy)
					for i := range want.F32 {
						if math.Abs(float64(got.F32[i]-want.F32[i])) > 1e-5*math.Max(1, math.Abs(float64(want.F32[i]))) {
							t.Fatalf("variant %d, %d x %d: %v, want %v", variant, rows, n, got.F32[i], want.F32[i])
						}
					}
					for i := range want.U8 {
						if d := int(got.U8[i]) - int(want.U8[i]); d < -1 || d > 1 {
							t.Fatalf("variant %d, %d x %d: element %d is %d, want %d", variant, rows, n, i, got.U8[i], want.U8[i])
						}
					}
				}
			}
		}
	})
}

// A dynamic scale overflows with the range of what it is for, and 0 times it is no number, which limits must not hide.
func TestFinishKeepsNaN(t *testing.T) {
	each(t, func(t *testing.T, k *Kernels) {
		for _, n := range []int{1, 7, 8, 9, 16, 17, 64} {
			for variant := range 6 {
				e := Epilogue{ByColumn: variant&1 != 0, Limits: NoLimits()}
				e.Lo = 0
				e.Sum, e.Bias = make([]int32, max(2, n)), make([]float32, max(2, n))
				e.Scale = slices.Repeat([]float32{float32(math.Inf(1))}, max(2, n))
				c := make([]int32, 2*n)
				y, res := Elems{F32: make([]float32, 2*n)}, Elems{}
				switch variant / 2 {
				case 1:
					res.F32 = make([]float32, 2*n)
				case 2:
					res.U8 = make([]uint8, 2*n)
				}
				k.Finish(&e, 0, 2, n, c, n, y, res, n)
				if i := slices.IndexFunc(y.F32, func(v float32) bool { return !math.IsNaN(float64(v)) }); i >= 0 {
					t.Fatalf("variant %d, 2 x %d: element %d is %v, want NaN", variant, n, i, y.F32[i])
				}
			}
		}
	})
}

// Quantize divides, as the operator does: a product by the reciprocal rounds some ties, and
// what is near them, to the other side.
func TestQuantizeDivides(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		differs := 0
		for range 2000 {
			scale, zero := float32(math.Exp(4*r.NormFloat64())), r.IntN(256)
			l := NoLimits()
			l.ToU8(scale, zero)
			x := make([]float32, 64)
			for i := range x {
				x[i] = (float32(r.IntN(256)-zero) + 0.5) * scale
				for range r.IntN(3) {
					x[i] = math.Nextafter32(x[i], float32(math.Inf(r.IntN(2)*2-1)))
				}
			}
			got := make([]uint8, len(x))
			k.Quantize(&l, got, x)
			for i, v := range x {
				code := func(q float32) uint8 {
					return uint8(min(max(math.RoundToEven(float64(q))+float64(zero), 0), 255))
				}
				if got[i] != code(v/scale) {
					t.Fatalf("%v with scale %v and zero point %d is %d, want %d", v, scale, zero, got[i], code(v/scale))
				}
				if got[i] != code(v*l.Inv) {
					differs++
				}
			}
		}
		if differs == 0 {
			t.Error("no element tells a division from a product")
		}
	})
}

func BenchmarkQuantize(b *testing.B) {
	for _, n := range []int{1 << 14, 1 << 22} {
		x, y := make([]float32, n), make([]uint8, n)
		for i := range x {
			x[i] = float32(i%997) / 10
		}
		l := NoLimits()
		l.ToU8(0.37, 3)
		for _, k := range Available() {
			b.Run(fmt.Sprintf("%s/%d", k.ISA, n), func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				for b.Loop() {
					k.Quantize(&l, y, x)
				}
			})
		}
	}
}

func TestElementwiseMatchesPureGo(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, n := range []int{0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 200} {
			l := NoLimits()
			l.ToU8(0.05, 30)
			x := f32s(r, n)
			got, want := make([]uint8, n), make([]uint8, n)
			k.Quantize(&l, got, x)
			portable.Quantize(&l, want, x)
			if !slices.Equal(got, want) {
				t.Fatalf("quantize %d: %v, want %v", n, got, want)
			}
			gf, wf := make([]float32, n), make([]float32, n)
			k.Dequantize(gf, got, 0.3, 7)
			portable.Dequantize(wf, got, 0.3, 7)
			if !slices.Equal(gf, wf) {
				t.Fatalf("dequantize %d: %v, want %v", n, gf, wf)
			}
			more := u8s(r, n)
			k.Max(got, more)
			portable.Max(want, more)
			if !slices.Equal(got, want) {
				t.Fatalf("max %d: %v, want %v", n, got, want)
			}
			h := (n + 1) / 2
			ge, gd, we, wd := make([]uint8, h), make([]uint8, h), make([]uint8, h), make([]uint8, h)
			k.Split(ge, gd, more)
			portable.Split(we, wd, more)
			if !slices.Equal(ge, we) || !slices.Equal(gd, wd) {
				t.Fatalf("split %d: %v %v, want %v %v", n, ge, gd, we, wd)
			}
		}
	})
}

func TestFrameMatchesPureGo(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, n := range []int{0, 1, 7, 8, 9, 10, 16, 17, 18, 31, 32, 33, 56, 63, 64, 65, 200} {
			for _, rows := range []int{0, 1, 3} {
				for left := range 4 {
					right, step := r.IntN(4), 1+left%2
					ldd, lds := left+n+right+r.IntN(3), max(1, step*(n-1)+1+r.IntN(3))
					src := u8s(r, max(0, rows*lds-r.IntN(2)))
					if rows > 0 && len(src) < span(rows, max(0, step*(n-1)+1), lds) {
						src = u8s(r, rows*lds)
					}
					got, want := make([]uint8, rows*ldd), make([]uint8, rows*ldd)
					k.Frame(got, ldd, src, lds, step, rows, n, left, right, 9)
					portable.Frame(want, ldd, src, lds, step, rows, n, left, right, 9)
					if !slices.Equal(got, want) {
						t.Fatalf("%d rows of %d+%d+%d, step %d, differ", rows, left, n, right, step)
					}
				}
			}
		}
	})
}

func TestInterleaveMatchesPureGo(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, n := range []int{0, 1, 7, 15, 16, 17, 32, 56} {
			for _, rows := range []int{0, 1, 3} {
				for left := range 4 {
					right, step := r.IntN(4), 1+left%2
					ldd, lds := 4*(left+n+right)+r.IntN(3), max(1, step*(n-1)+1+r.IntN(3))
					size := span(rows, max(0, step*(n-1)+1), lds)
					plane := size + r.IntN(3)
					src := u8s(r, 3*plane+size)
					got, want := make([]uint8, rows*ldd), make([]uint8, rows*ldd)
					k.Interleave(got, ldd, src, lds, plane, step, rows, n, left, right, 9)
					portable.Interleave(want, ldd, src, lds, plane, step, rows, n, left, right, 9)
					if !slices.Equal(got, want) {
						t.Fatalf("%d rows of %d+%d+%d, step %d, differ", rows, left, n, right, step)
					}
				}
			}
		}
	})
}

func TestGemmPlanesMultipliesColumnsWhereTheyLie(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		if k.gemmPlanes == nil {
			t.Skipf("%s has no GemmPlanes", k.ISA)
		}
		for _, tall := range []int{1, 2, 3, 7, 16} {
			rows, wide := tall*k.planeRows, k.planeStep
			for _, steps := range []int{1, 2, 9} {
				for _, cols := range []int{1, 16, 17, 33, 48, 64} {
					ldw, pitch := wide*steps+r.IntN(5), 256+r.IntN(99)
					w, x := i8s(r, rows*ldw), u8s(r, 16*pitch+700)
					at := make([]int32, steps)
					for s := range at {
						at[s] = int32(r.IntN(len(x) - 15*pitch - 256))
					}
					c := make([]int32, rows*Columns)
					k.GemmPlanes(rows, w, ldw, x, at, pitch, cols, c)
					for i := range rows {
						for j := range cols {
							want := int32(0)
							for q := range wide * steps {
								want += int32(w[i*ldw+q]) * int32(x[int(at[q/wide])+q%wide/4*pitch+4*j+q%4])
							}
							if got := c[i*Columns+j]; got != want {
								t.Fatalf("%d rows, %d steps, %d columns: row %d column %d is %d, want %d", rows, steps, cols, i, j, got, want)
							}
						}
					}
				}
			}
		}
	})
}

func TestMaxPoolMatchesPureGo(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, n := range []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 55, 64, 65} {
			for _, rows := range []int{1, 3} {
				ldd, lds := n+r.IntN(3), 2*n+1+r.IntN(3)
				src := u8s(r, span(2*rows+1, 2*n+1, lds))
				got, want := make([]uint8, rows*ldd), make([]uint8, rows*ldd)
				k.MaxPool(got, ldd, src, lds, rows, n)
				portable.MaxPool(want, ldd, src, lds, rows, n)
				if !slices.Equal(got, want) {
					t.Fatalf("%d rows of %d differ", rows, n)
				}
			}
		}
	})
}

func TestKernelsRefuseShortArguments(t *testing.T) {
	for name, f := range map[string]func(k *Kernels){
		"panel": func(k *Kernels) { k.Gemm(1, 2, make([]int8, 8), 8, make([]uint8, PanelRow), 64, make([]int32, 64), 64) },
		"weight": func(k *Kernels) {
			k.Gemm(2, 1, make([]int8, 7), 4, make([]uint8, PanelRow), 64, make([]int32, 128), 64)
		},
		"output": func(k *Kernels) { k.Gemm(1, 1, make([]int8, 4), 4, make([]uint8, PanelRow), 17, make([]int32, 31), 64) },
		"offset": func(k *Kernels) { k.Pack(make([]uint8, PanelRow), make([]uint8, 9), []int32{0, 1, 2, 3}, 7) },
		"columns": func(k *Kernels) {
			k.Gemm(1, 1, make([]int8, 4), 4, make([]uint8, PanelRow), 65, make([]int32, 80), 80)
		},
	} {
		for _, k := range available {
			if !refuses(func() { f(k) }) {
				t.Errorf("%s: %s was accepted", k.ISA, name)
			}
		}
	}
}

// refuses reports whether the checks that precede a kernel panic in f.
func refuses(f func()) (is bool) {
	defer func() {
		what, _ := recover().(string)
		is = strings.HasPrefix(what, "ikernel: ")
	}()
	f()
	return false
}

// short is a call of a kernel and the lengths at which its arguments suffice.
type short struct {
	name string
	want []int
	call func(k *Kernels, n []int)
}

func TestKernelsRefuseArgumentsThatLackAnElement(t *testing.T) {
	const rows, k4, cols, ld = 3, 5, 17, 40 // lanes(cols) is 32
	const stripes, pitch = 16, 300
	cases := []short{
		{"GemmNarrow", []int{2*Group*k4 + Group*k4, k4 * PanelRow, 2*ld + 32}, func(k *Kernels, n []int) {
			k.GemmNarrow(rows, k4, make([]int8, n[0]), Group*k4, make([]uint8, n[1]), cols, make([]int32, n[2]), ld)
		}},
		{"Spmm", []int{rows + 1, 6, 6 * Group, k4 * PanelRow, 2*ld + 32}, func(k *Kernels, n []int) {
			g := &Groups1x4{Ptr: []uint32{0, 2, 3, 6}[:n[0]:n[0]], Index: make([]uint16, n[1]), Value: make([]int8, n[2])}
			k.Spmm(g, 0, rows, k4, make([]uint8, n[3]), cols, make([]int32, n[4]), ld, false)
		}},
		{"MaxPool", []int{2*ld + cols, 6*2*ld + 2*cols + 1}, func(k *Kernels, n []int) {
			k.MaxPool(make([]uint8, n[0]), ld, make([]uint8, n[1]), 2*ld, rows, cols)
		}},
	}
	windows := NewWindows(ld, Axis{rows, 3, 1, 1}, Axis{cols, 3, 1, 1})
	cases = append(cases, short{"Depthwise", []int{windows.Sums(), windows.Bytes(), 12}, func(k *Kernels, n []int) {
		k.Depthwise(make([]int32, n[0]), make([]uint8, n[1]), make([]int8, n[2]), windows)
	}})
	for step := 1; step <= 2; step++ {
		row := step*(cols-1) + 1
		cases = append(cases,
			short{fmt.Sprintf("Frame by %d", step), []int{2*ld + 1 + cols + 2, 2*ld + row}, func(k *Kernels, n []int) {
				k.Frame(make([]uint8, n[0]), ld, make([]uint8, n[1]), ld, step, rows, cols, 1, 2, 9)
			}},
			short{fmt.Sprintf("Interleave by %d", step), []int{2*4*ld + 4*(1+cols+2), 3*pitch + 2*ld + row}, func(k *Kernels, n []int) {
				k.Interleave(make([]uint8, n[0]), 4*ld, make([]uint8, n[1]), ld, pitch, step, rows, cols, 1, 2, 9)
			}})
	}
	elems := []func(n int) Elems{
		func(n int) Elems { return Elems{F32: make([]float32, n)} },
		func(n int) Elems { return Elems{U8: make([]uint8, n)} },
		func(int) Elems { return Elems{} },
	}
	for variant := range 12 {
		e, y, res := Epilogue{ByColumn: variant&1 != 0, Limits: NoLimits()}, elems[variant>>1&1], elems[variant>>2]
		which := rows
		if e.ByColumn {
			which = cols
		}
		want := []int{2*ld + cols, 1 + which, 1 + which, 1 + which, 2*ld + cols, 2*ld + cols}
		if res(1).len() == 0 {
			want = want[:5]
		}
		cases = append(cases, short{fmt.Sprintf("Finish, variant %d", variant), want, func(k *Kernels, n []int) {
			e := e
			e.Sum, e.Scale, e.Bias = make([]int32, n[1]), make([]float32, n[2]), make([]float32, n[3])
			e.near, e.mul, e.add = y(1).U8 != nil, make([]float32, min(n[1], n[2])), make([]float32, n[3])
			k.Finish(&e, 1, rows, cols, make([]int32, n[0]), ld, y(n[4]), res(n[len(n)-1]), ld)
		}})
	}
	for _, k := range available {
		cases := slices.Clone(cases)
		if wide := k.planeStep; wide > 0 {
			cases = append(cases, short{"GemmPlanes", []int{2 * stripes * wide, 7 + (wide/Group-1)*pitch + Group*Columns, 15*Columns + 32}, func(k *Kernels, n []int) {
				k.GemmPlanes(stripes, make([]int8, n[0]), 2*wide, make([]uint8, n[1]), []int32{0, 7}, pitch, cols, make([]int32, n[2]))
			}})
		}
		for _, c := range cases {
			if c.name == "GemmNarrow" && !k.Narrows() {
				continue
			}
			c.call(k, c.want)
			for i := range c.want {
				n := slices.Clone(c.want)
				n[i]--
				if !refuses(func() { c.call(k, n) }) {
					t.Errorf("%s: %s: argument %d of %d elements was not refused, %d are needed", k.ISA, c.name, i, n[i], c.want[i])
				}
			}
		}
	}
}

// BenchmarkGemm measures a product of 256 rows with a panel, hot.
func BenchmarkGemm(b *testing.B) {
	r := rng(b)
	for _, k := range available {
		for _, k4 := range []int{16, 64, 128, 576} {
			w, x := trained(r, 256*4*k4), u8s(r, k4*PanelRow)
			c := make([]int32, 256*64)
			run := func(name string, f func()) {
				b.Run(fmt.Sprintf("%s/256x%d", name, 4*k4), func(b *testing.B) {
					for b.Loop() {
						f()
					}
					b.ReportMetric(2*256*4*float64(k4)*64/float64(b.Elapsed().Nanoseconds())*float64(b.N), "Gop/s")
				})
			}
			run(k.ISA, func() { k.Gemm(256, k4, w, 4*k4, x, 64, c, 64) })
			if n, rest := k.Narrow(w, 256, 4*k4); n != nil {
				run(k.ISA+"/narrow", func() {
					k.GemmNarrow(256, k4, n, 4*k4, x, 64, c, 64)
					k.Spmm(rest, 0, 256, k4, x, 64, c, 64, true)
				})
			}
		}
	}
}

// BenchmarkSpmm measures 256 rows with a fifth of their groups, counted as such.
func BenchmarkSpmm(b *testing.B) {
	r := rng(b)
	for _, k := range available {
		for _, k4 := range []int{16, 64, 128, 576} {
			g, x := groups(r, 256, k4, 0.2, trained), u8s(r, k4*PanelRow)
			c := make([]int32, 256*64)
			b.Run(fmt.Sprintf("%s/256x%d", k.ISA, 4*k4), func(b *testing.B) {
				p := k.Prepare(g)
				for b.Loop() {
					k.Spmm(p, 0, 256, k4, x, 64, c, 64, false)
				}
				b.ReportMetric(2*4*float64(len(g.Index))*64/float64(b.Elapsed().Nanoseconds())*float64(b.N), "Gop/s")
			})
		}
	}
}

// BenchmarkPack measures bytes of a panel a second.
func BenchmarkPack(b *testing.B) {
	for _, k := range available {
		src, dst := make([]uint8, 64*1024), make([]uint8, 64*PanelRow)
		offset := make([]int32, 256)
		for i := range offset {
			offset[i] = int32(i * 200)
		}
		b.Run(k.ISA, func(b *testing.B) {
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				k.Pack(dst, src, offset, 64)
			}
		})
	}
}

// BenchmarkFinish measures bytes of sums a second.
func BenchmarkFinish(b *testing.B) {
	for _, k := range available {
		c := make([]int32, 64*64)
		e := Epilogue{Sum: make([]int32, 64), Scale: make([]float32, 64), Bias: make([]float32, 64), Limits: NoLimits()}
		e.ToU8(1, 0)
		e.InSteps()
		y := Elems{U8: make([]uint8, 64*64)}
		b.Run(k.ISA, func(b *testing.B) {
			b.SetBytes(4 * 64 * 64)
			for b.Loop() {
				k.Finish(&e, 0, 64, 64, c, 64, y, Elems{}, 64)
			}
		})
	}
}
