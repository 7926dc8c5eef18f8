package ukernel

import (
	"math"
	"math/rand"
	"slices"
	"testing"
)

// finishing is a Finish, and what it is to make of rows of a product.
type finishing struct {
	Finish
	before []float32 // Dst, which ends with elements that stay as they are
	rows   int
}

// newFinishing draws one for rows rows, in one case of three each without a residual and with one that is the output.
func newFinishing(rng *rand.Rand, rows, cols int) *finishing {
	f := &finishing{rows: rows, Finish: Finish{Ldd: cols + rng.Intn(20), Lo: -1, Hi: 2, Bias: random(rng, rows, 0)}}
	f.Dst = random(rng, rows*f.Ldd+rng.Intn(9), 0)
	switch rng.Intn(3) {
	case 0:
		f.Res, f.Ldr = f.Dst, f.Ldd
	case 1:
		f.Ldr = cols + rng.Intn(20)
		f.Res = random(rng, rows*f.Ldr, 0)
	}
	if rng.Intn(2) > 0 {
		f.Lo, f.Hi = float32(math.Inf(-1)), float32(math.Inf(1))
	}
	f.before = slices.Clone(f.Dst)
	return f
}

// check fails the test unless Dst holds what becomes of y [rows][Columns], bit by bit, and nothing else changed.
func (f *finishing) check(t *testing.T, y []float32, cols int) {
	t.Helper()
	want, res := slices.Clone(f.before), f.Res
	if f.Res != nil && f.Ldr == f.Ldd && &f.Res[0] == &f.Dst[0] {
		res = f.before
	}
	for r := range f.rows {
		for c := range cols {
			v := y[r*Columns+c] + f.Bias[r]
			if res != nil {
				v += res[r*f.Ldr+c]
			}
			want[r*f.Ldd+c] = min(max(v, f.Lo), f.Hi)
		}
	}
	for i, v := range want {
		if f.Dst[i] != v {
			t.Fatalf("element %d of rows %d apart is %g, want %g", i, f.Ldd, f.Dst[i], v)
		}
	}
}

// eachFinisher runs a test for the kernels that finish rows, of which there is one unless all kernels are plain Go.
func eachFinisher(t *testing.T, f func(t *testing.T, kern *Kernels)) {
	eachISA(t, func(t *testing.T, kern *Kernels) {
		if kern.Finishes() {
			f(t, kern)
			return
		}
		defer func() {
			if recover() == nil {
				t.Error("kernels that finish no rows took a Finish")
			}
		}()
		to := newFinishing(rand.New(rand.NewSource(0)), 1, Granule)
		kern.PanelOf(1, 1, 0, F32(nil), nil, make([]float32, Columns), false, &to.Finish)
	})
}

func TestDensePanelIsFinished(t *testing.T) {
	const seed = 31
	t.Logf("seed %d", seed)
	eachFinisher(t, func(t *testing.T, kern *Kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, m := range []int{1, MR - 1, MR, MR + 1, 5*MR + 2} {
			for _, k := range depths {
				for _, width := range widths {
					w := random(rng, kern.Gemm.PackedLen(m, k), 0)
					halves := Values{half: make([]uint16, len(w)), kind: brain}
					for i := range halves.half {
						halves.half[i] = uint16(math.Float32bits(w[i]) >> 16)
					}
					for _, values := range []Values{F32(w), halves} {
						x, y := random(rng, k*Columns, 0), random(rng, m*Columns, 0)
						acc := rng.Intn(2) > 0
						plain, f := slices.Clone(y), newFinishing(rng, m, width*Granule)
						kern.PanelOf(m, width, k, values, x, plain, acc, nil)
						kern.PanelOf(m, width, k, values, x, y, acc, &f.Finish)
						f.check(t, plain, width*Granule)
					}
				}
			}
		}
	})
}

func TestSparsePanelIsFinished(t *testing.T) {
	const seed = 32
	t.Logf("seed %d", seed)
	eachFinisher(t, func(t *testing.T, kern *Kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, rows := range Blocks {
			for _, m := range []int{rows, 5 * rows, 65 * rows} {
				for _, k := range []int{1, 40, 200, 520} {
					w := newSparseWeight[uint16](rng, rows, m, k, 0)
					a, err := NewSparse(kern, rows, m, k, w.ptr, w.index, F32(w.value))
					if err != nil {
						t.Fatal(err)
					}
					for _, width := range widths {
						first := rng.Intn((m+a.Tile()-1)/a.Tile()) * a.Tile()
						x := random(rng, k*Columns, 0)
						plain, f := random(rng, (m-first)*Columns, 0), newFinishing(rng, m-first, width*Granule)
						bounds := a.Bounds()
						last := len(bounds) - 2
						for b := range last {
							a.Mul(b, first, m, width, x[bounds[b]*Columns:], plain, b > 0, nil)
						}
						y := slices.Clone(plain)
						a.Mul(last, first, m, width, x[bounds[last]*Columns:], plain, last > 0, nil)
						a.Mul(last, first, m, width, x[bounds[last]*Columns:], y, last > 0, &f.Finish)
						f.check(t, plain, width*Granule)
					}
				}
			}
		}
	})
}

func TestFinishIsChecked(t *testing.T) {
	eachFinisher(t, func(t *testing.T, kern *Kernels) {
		if !kern.Finishes() {
			return
		}
		const m, width = 7, 2
		fresh := func() *Finish { return &newFinishing(rand.New(rand.NewSource(1)), m, width*Granule).Finish }
		for what, spoil := range map[string]func(f *Finish){
			"output":   func(f *Finish) { f.Dst = f.Dst[:(m-1)*f.Ldd+width*Granule-1] },
			"residual": func(f *Finish) { f.Res, f.Ldr = f.Dst[:(m-1)*f.Ldd], f.Ldd },
			"bias":     func(f *Finish) { f.Bias = f.Bias[:m-1] },
			"rows":     func(f *Finish) { f.Ldd = width*Granule - 1 },
		} {
			f := fresh()
			spoil(f)
			if !panics(func() {
				kern.PanelOf(m, width, 1, F32(random(rand.New(rand.NewSource(1)), kern.Gemm.PackedLen(m, 1), 0)), random(rand.New(rand.NewSource(1)), Columns, 0), random(rand.New(rand.NewSource(1)), m*Columns, 0), false, f)
			}) {
				t.Errorf("%s: no panic", what)
			}
		}
	})
}
