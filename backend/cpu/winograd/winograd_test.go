package winograd

import (
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"testing"
)

func random(rng *rand.Rand, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(rng.NormFloat64())
	}
	return s
}

func eachISA(t *testing.T, test func(t *testing.T, k *kernels)) {
	for _, k := range available {
		t.Run(k.isa, func(t *testing.T) { test(t, k) })
	}
}

// serial is a loop on one goroutine.
func serial(n int, f func(worker, i int)) {
	for i := range n {
		f(0, i)
	}
}

// guard is what elements hold that must not be written.
const guard = -12345

// runner returns what convolves all images block by block.
func runner(c *Conv, y, x []float32) func() {
	scratch := make([]float32, c.Scratch())
	// What is left from before must not matter.
	v := slices.Repeat([]float32{float32(math.NaN())}, c.InputLen())
	z := slices.Repeat([]float32{float32(math.NaN())}, c.OutputLen())
	store := func(tile []float32, img, row, rows, pixel, n int) {
		for r := range rows {
			at := (img*c.w.M+row+r)*c.win.OH*c.win.OW + pixel
			copy(y[at:at+n], tile[r*panel:])
		}
	}
	return func() { run(c, x, v, z, scratch, store) }
}

func run(c *Conv, x, v, z, scratch []float32, store func(tile []float32, img, row, rows, pixel, n int)) {
	for i := range c.Blocks() {
		for g := range c.Groups() {
			c.Input(i, g, v, x, scratch)
		}
		for p := range c.Points() {
			cut := p % (c.Outs() + 1)
			c.Multiply(i, p, cut, c.Outs(), v, z)
			c.Multiply(i, p, 0, cut, v, z)
		}
		for g := range c.Outs() {
			c.Output(i, g, z, scratch, store)
		}
	}
}

// convolve is the convolution in float64.
func convolve(win *Window, images, m, c int, w, x []float32) []float64 {
	y := make([]float64, images*m*win.OH*win.OW)
	for at := range y {
		i, j, r, img := at/win.OW%win.OH, at%win.OW, at/(win.OW*win.OH)%m, at/(win.OW*win.OH*m)
		for ch := range c {
			for a := range taps {
				for b := range taps {
					h, l := i-win.Top+a, j-win.Left+b
					if h >= 0 && h < win.H && l >= 0 && l < win.W {
						y[at] += float64(w[((r*c+ch)*taps+a)*taps+b]) * float64(x[((img*c+ch)*win.H+h)*win.W+l])
					}
				}
			}
		}
	}
	return y
}

// distance is the norm of a-b relative to that of b.
func distance(a []float32, b []float64) float64 {
	var num, den float64
	for i, v := range b {
		num += (float64(a[i]) - v) * (float64(a[i]) - v)
		den += v * v
	}
	if num == 0 {
		return 0
	}
	return math.Sqrt(num / den)
}

func checkConv(t *testing.T, rng *rand.Rand, k *kernels, tile int, win Window, images, m, c, floats int) {
	t.Helper()
	w, x := random(rng, m*c*taps*taps), random(rng, images*c*win.H*win.W)
	want := convolve(&win, images, m, c, w, x)
	y := slices.Repeat([]float32{guard}, len(want)+2)
	conv := newConv(k, newWeight(k, w, m, c, tile, serial), win, images, floats, 1+rng.Intn(5))
	runner(conv, y[1:len(y)-1], x)()
	if y[0] != guard || y[len(y)-1] != guard {
		t.Fatalf("%+v: elements outside the output changed", win)
	}
	if d := distance(y[1:], want); !(d < 3e-6) {
		t.Fatalf("tiles of %d, %d images, %d x %d, %+v: relative error %.1e", tile, images, m, c, win, d)
	}
}

func TestConvEqualsReference(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, tile := range []int{2, 4} {
			// Sizes up to two tiles and a pixel, every padding that a kernel may have.
			for h := 1; h <= 2*tile+1; h++ {
				for w := 1; w <= 2*tile+1; w++ {
					win := Window{H: h, W: w, Top: rng.Intn(3), Left: rng.Intn(3)}
					win.OH, win.OW = h+win.Top+rng.Intn(3)-2, w+win.Left+rng.Intn(3)-2
					if win.OH < 1 || win.OW < 1 {
						continue
					}
					sizes := []int{1, 3, 15, 16, 17, 33}
					m, c := sizes[rng.Intn(len(sizes))], sizes[rng.Intn(len(sizes))]
					checkConv(t, rng, k, tile, win, 1+rng.Intn(3), m, c, 1<<rng.Intn(18))
				}
			}
			for _, m := range []int{1, 15, 16, 17, 33, 48, 64, 65, 112} {
				for _, c := range []int{1, 15, 16, 17, 64} {
					checkConv(t, rng, k, tile, Window{H: 9, W: 7, OH: 9, OW: 7, Top: 1, Left: 1}, 2, m, c, 1<<14)
				}
			}
			checkConv(t, rng, k, tile, Window{H: 5, W: 150, OH: 5, OW: 150, Top: 1, Left: 1}, 1, 4, 300, 1<<20)
		}
	})
}

// Kernels transform as matrices do, and touch nothing else.
func TestKernelsEqualMatrices(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, c := range []struct {
			name string
			set  map[int]kernel
			by   map[int]matrix
		}{
			{"weights", k.weights, map[int]matrix{2: weights2, 4: weights4}},
			{"input", k.input, map[int]matrix{2: input2, 4: input4}},
			{"output", k.output, map[int]matrix{2: output2, 4: output4}},
		} {
			for _, tile := range slices.Sorted(maps.Keys(c.by)) {
				m := c.by[tile]
				in, out := len(m[0]), len(m)
				for _, n := range []int{1, 2, 3, 17} {
					// Rows and grids overlap in the input and lie apart in the output.
					scol, srow, sstep := lanes, (n+in)*lanes, 2*lanes
					dcol, drow, dstep := lanes+3, out*(lanes+3), out*out*(lanes+3)
					x := random(rng, (n-1)*sstep+(in-1)*(srow+scol)+lanes)
					y := slices.Repeat([]float32{guard}, n*dstep)
					k.each(c.set[tile], n, x, srow, scol, sstep, y, drow, dcol, dstep, make([]float32, in*out*lanes))
					for g := range n {
						for p := range out {
							for q := range out {
								at := y[g*dstep+p*drow+q*dcol:]
								for l := range lanes {
									var sum, abs float64
									for i := range in {
										for j := range in {
											v := float64(m[p][i]) * float64(m[q][j]) * float64(x[g*sstep+i*srow+j*scol+l])
											sum += v
											abs += math.Abs(v)
										}
									}
									if math.Abs(float64(at[l])-sum) > abs*0x1p-21 {
										t.Fatalf("%s%d: grid %d (%d, %d) lane %d: %v, want %v", c.name, tile, g, p, q, l, at[l], sum)
									}
								}
								for _, v := range at[lanes:dcol] {
									if v != guard {
										t.Fatalf("%s%d writes between its vectors", c.name, tile)
									}
								}
							}
						}
					}
				}
			}
		}
	})
}

// Products of every number of rows and of columns equal those in float64.
func TestProductsEqualReference(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, p := range kern.products {
			for rows := 1; rows <= 2*p.most+1; rows++ {
				for _, k := range []int{1, 3, 4, 5, 9, stretch, stretch + 1, 2*stretch + 7} {
					room := max(rows, minTiles)
					lda, ldb, ldy := k+rng.Intn(3), p.cols+rng.Intn(3), p.cols+rng.Intn(3)
					a, b := random(rng, room*lda), random(rng, k*ldb)
					y := slices.Repeat([]float32{guard}, room*ldy)
					p.run(rows, k, a, lda, b, ldb, y, ldy, len(b))
					for r := range room {
						for c := range ldy {
							got := float64(y[r*ldy+c])
							if c >= p.cols || r >= max(rows, (p.most+1)/2) {
								if got != guard {
									t.Fatalf("%d columns: row %d of %d, column %d is written", p.cols, r, rows, c)
								}
								continue
							}
							var want, abs float64
							for i := range k {
								v := float64(a[r*lda+i]) * float64(b[i*ldb+c])
								want += v
								abs += math.Abs(v)
							}
							if !(math.Abs(got-want) <= abs*float64(k)*0x1p-23) {
								t.Fatalf("%d columns, k = %d: row %d of %d, column %d is %v, want %v", p.cols, k, r, rows, c, got, want)
							}
						}
					}
				}
			}
		}
	})
}

// The error of a layer stays far below what a model may differ by.
func TestErrorOfDeepLayers(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	win := Window{H: 8, W: 8, OH: 8, OW: 8, Top: 1, Left: 1}
	const m, c = 16, 2048
	w, x := random(rng, m*c*taps*taps), random(rng, c*64)
	want := convolve(&win, 1, m, c, w, x)
	for tile, most := range map[int]float64{2: 6e-7, 4: 1.2e-6} {
		y := make([]float32, len(want))
		runner(NewConv(NewWeight(w, m, c, tile, serial), win, 1, 1<<20, 1), y, x)()
		d := distance(y, want)
		t.Logf("tiles of %d: %.2e", tile, d)
		if d > most {
			t.Errorf("tiles of %d: relative error %.1e, want at most %.1e", tile, d, most)
		}
	}
}

// BenchmarkConv convolves the layers of ResNet50 and of smaller networks, reporting
// the operations of a direct convolution.
func BenchmarkConv(b *testing.B) {
	rng := rand.New(rand.NewSource(4))
	for _, l := range []struct{ c, m, size int }{
		{64, 64, 56}, {128, 128, 28}, {256, 256, 14}, {512, 512, 7}, {64, 64, 224}, {16, 16, 32}, {32, 32, 16}, {64, 64, 8},
	} {
		win := Window{H: l.size, W: l.size, OH: l.size, OW: l.size, Top: 1, Left: 1}
		w, x := random(rng, l.c*l.m*taps*taps), random(rng, l.c*l.size*l.size)
		y := make([]float32, l.m*l.size*l.size)
		for _, tile := range []int{2, 4} {
			b.Run(fmt.Sprintf("%dx%dx%dx%d/%d", l.c, l.m, l.size, l.size, tile), func(b *testing.B) {
				run := runner(NewConv(NewWeight(w, l.m, l.c, tile, serial), win, 1, 1<<18, 1), y, x)
				for b.Loop() {
					run()
				}
				b.ReportMetric(2*float64(taps*taps*l.c*len(y)*b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
			})
		}
	}
}
