package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/ref"
	"spc/internal/debug"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// withTiles makes convolutions with 3x3 kernels run by tiles of a size, 0 for the
// direct product, while f runs.
func withTiles(tile int, f func()) {
	defer func(b binder) { binders["Conv"] = b }(binders["Conv"])
	binders["Conv"] = func(p *program, n *ir.Node) (*bound, error) {
		return bindConvTiles(p, n, func(*convGeometry) int { return tile })
	}
	f()
}

// conv3x3 is a graph of one convolution, with a residual input if add is set.
func conv3x3(rng *rand.Rand, images, c, m, h, w int, pads [4]int, act string, add bool) (*ir.Graph, []*tensor.Tensor) {
	random := func(shape ...int) *tensor.Tensor {
		t := tensor.New(tensor.F32, shape...)
		for i := range t.F32s() {
			t.F32s()[i] = float32(rng.NormFloat64())
		}
		return t
	}
	g := ir.NewGraph("g")
	x := random(images, c, h, w)
	in := []*tensor.Tensor{x}
	args := []*ir.Value{g.NewInput("x", ir.TypeOf(x)), g.NewConst("w", random(m, c, 3, 3)), g.NewConst("b", random(m))}
	if add {
		r := random(images, m, h+pads[0]+pads[2]-2, w+pads[1]+pads[3]-2)
		in = append(in, r)
		args = append(args, g.NewInput("r", ir.TypeOf(r)))
	}
	var o op.Conv
	o.Group = 1
	o.Pads = pads[:]
	o.Act = act
	n := g.NewNode("conv", &o, args, "y")
	g.Outputs = []*ir.Value{n.Outputs[0]}
	if err := g.Infer(); err != nil {
		panic(err)
	}
	return g, in
}

func loadGraph(tb testing.TB, g *ir.Graph, threads int) backend.Program {
	p, err := Device{}.Load(g, backend.Options{Threads: threads})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return p
}

func TestWinogradAgreesWithOperator(t *testing.T) {
	const seed = 30
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	sizes := []int{1, 15, 16, 17, 64}
	for _, tile := range []int{2, 4} {
		withTiles(tile, func() {
			for h := 1; h <= 2*tile+1; h++ {
				for w := 1; w <= 2*tile+1; w++ {
					pads := [4]int{rng.IntN(3), rng.IntN(3), rng.IntN(3), rng.IntN(3)}
					if h+pads[0]+pads[2] < 3 || w+pads[1]+pads[3] < 3 {
						continue
					}
					act := []string{"", "Relu", "HardSwish"}[rng.IntN(3)]
					g, in := conv3x3(rng, 1+rng.IntN(2), sizes[rng.IntN(5)], sizes[rng.IntN(5)], h, w, pads, act, rng.IntN(2) == 0)
					want, err := ref.Run(context.Background(), g, in)
					if err != nil {
						t.Fatal(err)
					}
					for threads := 1; threads <= 3; threads++ {
						got, err := run(context.Background(), loadGraph(t, g, threads), in)
						if err != nil {
							t.Fatal(err)
						}
						compare(t, fmt.Sprint(g), got[0], want[0])
					}
				}
			}
		})
	}
}

// Many blocks are worked on apart, and each image's rows find their place.
func TestWinogradOfLargeImages(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 0))
	g, in := conv3x3(rng, 3, 33, 20, 50, 61, [4]int{1, 1, 1, 1}, "Relu", true)
	want, err := ref.Run(context.Background(), g, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, tile := range []int{2, 4} {
		withTiles(tile, func() {
			for threads := 1; threads <= 2; threads++ {
				got, err := run(context.Background(), loadGraph(t, g, threads), in)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, "large images", got[0], want[0])
			}
		})
	}
}

// What is not finite spoils no other pixels.
func TestWinogradKeepsWhatIsNotFiniteInPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(32, 0))
	g, in := conv3x3(rng, 1, 16, 17, 12, 13, [4]int{1, 1, 1, 1}, "", false)
	withTiles(4, func() {
		p := loadGraph(t, g, 2)
		for _, v := range []float32{inf, -inf, float32(math.NaN()), math.MaxFloat32, 1} {
			in[0].F32s()[3*12*13+5*13+6] = v
			want, err := ref.Run(context.Background(), g, in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := run(context.Background(), p, in)
			if err != nil {
				t.Fatal(err)
			}
			for i, w := range want[0].F32s() {
				y := got[0].F32s()[i]
				if near := math.Abs(float64(y-w)) <= 1e-4*(1+math.Abs(float64(w))); y != w && !near && !(y != y && w != w) {
					t.Fatalf("with %g in the input: element %d is %g, want %g", v, i, y, w)
				}
			}
		}
	})
}

func TestWinogradAllocatesNothing(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks allocate
	rng := rand.New(rand.NewPCG(33, 0))
	g, in := conv3x3(rng, 1, 16, 16, 20, 20, [4]int{1, 1, 1, 1}, "Relu", false)
	withTiles(4, func() {
		for threads := 1; threads <= 2; threads++ {
			p := loadGraph(t, g, threads)
			out, err := run(context.Background(), p, in)
			if err != nil {
				t.Fatal(err)
			}
			if n := testing.AllocsPerRun(20, func() {
				if err := p.Run(context.Background(), in, out); err != nil {
					t.Fatal(err)
				}
			}); n > 0 {
				t.Errorf("%d threads: %v allocations a run", threads, n)
			}
		}
	})
}

// BenchmarkWinograd compares tiles with the direct product, in turns, on layers of
// well-known networks.
func BenchmarkWinograd(b *testing.B) {
	rng := rand.New(rand.NewPCG(34, 0))
	for _, l := range []struct {
		name             string
		c, m, h, w, many int
	}{
		{"resnet50", 64, 64, 56, 56, 1}, {"resnet50", 128, 128, 28, 28, 1}, {"resnet50", 256, 256, 14, 14, 1}, {"resnet50", 512, 512, 7, 7, 1},
		{"resnet50", 256, 256, 14, 14, 16}, {"resnet50", 512, 512, 7, 7, 16},
		{"super-resolution", 64, 64, 224, 224, 1}, {"super-resolution", 64, 32, 224, 224, 1}, {"super-resolution", 32, 9, 224, 224, 1},
		{"resnet56", 16, 16, 32, 32, 4}, {"resnet56", 32, 32, 16, 16, 4}, {"resnet56", 64, 64, 8, 8, 4},
		{"squeezenet", 16, 64, 55, 55, 1}, {"squeezenet", 32, 128, 27, 27, 1}, {"squeezenet", 48, 192, 13, 13, 1}, {"squeezenet", 64, 256, 13, 13, 1},
		{"yolox", 16, 16, 104, 104, 1}, {"yolox", 64, 64, 52, 52, 1}, {"ppocr", 24, 24, 160, 160, 1}, {"tiny", 4, 4, 64, 64, 1}, {"tiny", 8, 8, 64, 64, 1},
	} {
		g, in := conv3x3(rng, l.many, l.c, l.m, l.h, l.w, [4]int{1, 1, 1, 1}, "Relu", false)
		flops := 2 * 9 * float64(l.c*l.m*l.h*l.w*l.many)
		for threads := 1; threads <= 2; threads++ {
			b.Run(fmt.Sprintf("%s/%dx%dx%dx%dx%d/threads=%d", l.name, l.many, l.c, l.m, l.h, l.w, threads), func(b *testing.B) {
				var runs []func()
				for _, tile := range []int{0, 2, 4} {
					withTiles(tile, func() {
						p := loadGraph(b, g, threads)
						out, err := run(context.Background(), p, in)
						if err != nil {
							b.Fatal(err)
						}
						runs = append(runs, func() { p.Run(context.Background(), in, out) })
					})
				}
				// The least time is what other load on the machine disturbs least.
				least := make([]float64, len(runs))
				for b.Loop() {
					for i, r := range runs {
						start := time.Now()
						r()
						if t := float64(time.Since(start)); least[i] == 0 || t < least[i] {
							least[i] = t
						}
					}
				}
				b.ReportMetric(flops/least[0], "GFLOP/s")
				b.ReportMetric(least[0]/least[1], "x_2x2")
				b.ReportMetric(least[0]/least[2], "x_4x4")
				b.ReportMetric(flops/min(least[1], least[2]), "best_GFLOP/s")
			})
		}
	}
}
