package plane

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"
)

// guard is what elements hold that must not be written.
const guard = -12345

func random(rng *rand.Rand, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(rng.NormFloat64())
	}
	return s
}

// convolve is Run in float64, with the sum of magnitudes by which rounding is judged.
func convolve(win *Window, p, i, j int, x, w []float32) (sum, abs float64) {
	for a := range win.KH {
		for b := range win.KW {
			r, c := i*win.SH-win.Top+a*win.DH, j*win.SW-win.Left+b*win.DW
			if r < 0 || r >= win.H || c < 0 || c >= win.W {
				continue
			}
			v := float64(w[(p*win.KH+a)*win.KW+b]) * float64(x[(p*win.H+r)*win.W+c])
			sum += v
			abs += math.Abs(v)
		}
	}
	return sum, abs
}

func checkDepthwise(t *testing.T, rng *rand.Rand, k *kernels, win Window, planes int, residual bool) {
	t.Helper()
	d := newDepthwise(k, win)
	in, out, taps := win.H*win.W, win.OH*win.OW, win.KH*win.KW
	x, w, bias := random(rng, planes*in), random(rng, planes*taps), random(rng, planes)
	var res []float32
	if residual {
		res = random(rng, planes*out)
	}
	y := slices.Repeat([]float32{guard}, planes*out+2)
	lo, hi := float32(-2), float32(3)
	d.Run(planes, y[1:len(y)-1], x, w, bias, res, lo, hi, make([]float32, d.Scratch()))
	if y[0] != guard || y[len(y)-1] != guard {
		t.Fatalf("%+v: elements outside the output changed", win)
	}
	for p := range planes {
		for i := range win.OH {
			for j := range win.OW {
				sum, abs := convolve(&win, p, i, j, x, w)
				at := (p*win.OH+i)*win.OW + j
				sum += float64(bias[p])
				abs += math.Abs(float64(bias[p]))
				if residual {
					sum += float64(res[at])
					abs += math.Abs(float64(res[at]))
				}
				sum = min(max(sum, float64(lo)), float64(hi))
				if got := float64(y[1+at]); !(math.Abs(got-sum) <= abs*float64(taps+3)*0x1p-24) {
					t.Fatalf("%+v plane %d row %d column %d: %v, want %v", win, p, i, j, got, sum)
				}
			}
		}
	}
}

func eachISA(t *testing.T, test func(t *testing.T, k *kernels)) {
	for _, k := range available {
		t.Run(k.isa, func(t *testing.T) { test(t, k) })
	}
}

// size is the output size of a window of extent k and stride s over n pixels with
// padding.
func size(n, k, s, pad int) int { return (n+pad-k)/s + 1 }

func TestDepthwiseEqualsReference(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, k := range []int{2, 3, 5, 7} {
			for _, s := range []int{1, 2} {
				for _, h := range []int{1, 2, 3, 4, 5, 7, 8, 9} {
					for _, ow := range []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 50} {
						for pad := range k {
							w := (ow-1)*s + k - pad - (ow%2)*(pad/2)
							if h+2*pad < k || w < 1 || size(w, k, s, pad) < 1 {
								continue
							}
							win := Window{H: h, W: w, KH: k, KW: k, SH: s, SW: s, DH: 1, DW: 1, Top: pad, Left: pad / 2}
							win.OH, win.OW = size(h, k, s, 2*pad), size(w, k, s, pad)
							checkDepthwise(t, rng, kern, win, 1+h%3, ow%2 == 0)
						}
					}
				}
			}
		}
	})
}

func TestDepthwiseOfAnyWindowEqualsReference(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for range 300 {
			win := Window{
				H: 1 + rng.Intn(30), W: 1 + rng.Intn(40), KH: 1 + rng.Intn(11), KW: 1 + rng.Intn(7),
				SH: 1 + rng.Intn(3), SW: 1 + rng.Intn(3), DH: 1 + rng.Intn(3), DW: 1 + rng.Intn(3),
				Top: rng.Intn(9), Left: rng.Intn(9),
			}
			win.OH = size(win.H, (win.KH-1)*win.DH+1, win.SH, win.Top+rng.Intn(9))
			win.OW = size(win.W, (win.KW-1)*win.DW+1, win.SW, win.Left+rng.Intn(9))
			if win.OH < 1 || win.OW < 1 {
				continue
			}
			checkDepthwise(t, rng, kern, win, 1+rng.Intn(3), rng.Intn(2) == 0)
		}
	})
}

func TestDepthwiseKeepsNaN(t *testing.T) {
	eachISA(t, func(t *testing.T, k *kernels) {
		d := newDepthwise(k, Window{H: 1, W: 1, OH: 1, OW: 1, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1})
		y := []float32{0}
		d.Run(1, y, []float32{float32(math.NaN())}, slices.Repeat([]float32{1}, 9), []float32{0}, nil, 0, 6, make([]float32, d.Scratch()))
		if y[0] == y[0] {
			t.Fatalf("%v, want NaN", y[0])
		}
	})
}

func TestShortSlicesPanic(t *testing.T) {
	d := NewDepthwise(Window{H: 4, W: 4, OH: 4, OW: 4, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1})
	s := func(n int) []float32 { return make([]float32, n) }
	for name, f := range map[string]func(){
		"input":    func() { d.Run(2, s(32), s(31), s(18), s(2), nil, 0, 1, s(d.Scratch())) },
		"output":   func() { d.Run(2, s(31), s(32), s(18), s(2), nil, 0, 1, s(d.Scratch())) },
		"weights":  func() { d.Run(2, s(32), s(32), s(17), s(2), nil, 0, 1, s(d.Scratch())) },
		"bias":     func() { d.Run(2, s(32), s(32), s(18), s(1), nil, 0, 1, s(d.Scratch())) },
		"residual": func() { d.Run(2, s(32), s(32), s(18), s(2), s(31), 0, 1, s(d.Scratch())) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			f()
		})
	}
}

func TestMaxPoolEqualsReference(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for round := range 1500 {
			k := 1 + rng.Intn(5)
			win := Window{H: 1 + rng.Intn(12), W: 1 + rng.Intn(40), KH: k, KW: k, SH: 1 + rng.Intn(3), DH: 1, DW: 1}
			win.SW = win.SH
			end := rng.Intn(k)
			win.Top, win.Left = rng.Intn(k), rng.Intn(k)
			switch round % 4 {
			case 0: // keeps the size
				k = []int{3, 5, 7, 13}[rng.Intn(4)]
				win.KH, win.KW, win.SH, win.SW, win.Top, win.Left, end = k, k, 1, 1, k/2, k/2, k/2
			case 1:
				win.KW, win.DH, win.DW, win.SW = 1+rng.Intn(4), 1+rng.Intn(3), 1+rng.Intn(3), 1+rng.Intn(3)
			}
			win.OH = size(win.H, (win.KH-1)*win.DH+1, win.SH, win.Top+end)
			win.OW = size(win.W, (win.KW-1)*win.DW+1, win.SW, win.Left+end)
			if win.OH < 1 || win.OW < 1 {
				continue
			}
			p := newMaxPool(kern, win)
			planes := 1 + rng.Intn(3)
			x := random(rng, planes*win.H*win.W)
			for i := range x {
				if rng.Intn(200) == 0 {
					x[i] = float32(math.NaN())
				}
			}
			y := slices.Repeat([]float32{guard}, planes*win.OH*win.OW+2)
			p.Run(planes, y[1:len(y)-1], x, make([]float32, p.Scratch()))
			if y[0] != guard || y[len(y)-1] != guard {
				t.Fatalf("%+v: elements outside the output changed", win)
			}
			for i := range y[2:] {
				c, r, q := i%win.OW, i/win.OW%win.OH, i/win.OW/win.OH
				if got, want := y[1+i], maximum(&win, x[q*win.H*win.W:], r, c); got != want && (got == got || want == want) {
					t.Fatalf("%+v plane %d row %d column %d: %v, want %v", win, q, r, c, got, want)
				}
			}
		}
	})
}

func maximum(win *Window, x []float32, i, j int) float32 {
	m := lowest
	for a := range win.KH {
		for b := range win.KW {
			if r, c := i*win.SH-win.Top+a*win.DH, j*win.SW-win.Left+b*win.DW; r >= 0 && r < win.H && c >= 0 && c < win.W {
				m = max(m, x[r*win.W+c])
			}
		}
	}
	return m
}

func BenchmarkMaxPool(b *testing.B) {
	rng := rand.New(rand.NewSource(5))
	for _, l := range []struct{ c, size, k, s int }{{64, 111, 3, 2}, {24, 112, 3, 2}, {64, 56, 2, 2}, {128, 13, 5, 1}, {128, 13, 13, 1}} {
		win := Window{H: l.size, W: l.size, KH: l.k, KW: l.k, SH: l.s, SW: l.s, DH: 1, DW: 1, Top: (l.k - 1) / 2, Left: (l.k - 1) / 2}
		win.OH = size(l.size, l.k, l.s, 2*win.Top)
		win.OW = win.OH
		x, y := random(rng, l.c*l.size*l.size), make([]float32, l.c*win.OH*win.OW)
		for _, k := range available {
			b.Run(fmt.Sprintf("%dx%dx%d_%dx%ds%d/%s", l.c, l.size, l.size, l.k, l.k, l.s, k.isa), func(b *testing.B) {
				p := newMaxPool(k, win)
				scratch := make([]float32, p.Scratch())
				b.SetBytes(4 * int64(len(x)+len(y)))
				for b.Loop() {
					p.Run(l.c, y, x, scratch)
				}
			})
		}
	}
}

// BenchmarkDepthwise convolves the layers of MobileNetV2 and of PP-OCR, reporting
// floating point operations and the bytes of input and output.
func BenchmarkDepthwise(b *testing.B) {
	rng := rand.New(rand.NewSource(3))
	for _, l := range []struct{ c, size, k, s int }{
		{32, 112, 3, 1}, {96, 112, 3, 2}, {144, 56, 3, 1}, {144, 56, 3, 2}, {192, 28, 3, 1}, {384, 14, 3, 1},
		{576, 14, 3, 2}, {960, 7, 3, 1}, {64, 80, 5, 2}, {240, 20, 5, 1},
	} {
		win := Window{H: l.size, W: l.size, OH: l.size / l.s, OW: l.size / l.s, KH: l.k, KW: l.k, SH: l.s, SW: l.s, DH: 1, DW: 1, Top: (l.k - 1) / 2, Left: (l.k - 1) / 2}
		x, w, bias := random(rng, l.c*l.size*l.size), random(rng, l.c*l.k*l.k), random(rng, l.c)
		y := make([]float32, l.c*win.OH*win.OW)
		for _, k := range available {
			b.Run(fmt.Sprintf("%dx%dx%d_%dx%ds%d/%s", l.c, l.size, l.size, l.k, l.k, l.s, k.isa), func(b *testing.B) {
				d := newDepthwise(k, win)
				scratch := make([]float32, d.Scratch())
				b.SetBytes(4 * int64(len(x)+len(y)))
				for b.Loop() {
					d.Run(l.c, y, x, w, bias, nil, 0, 6, scratch)
				}
				b.ReportMetric(2*float64(l.k*l.k*len(y)*b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
			})
		}
	}
}
