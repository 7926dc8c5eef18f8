package format

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/backend/predict"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/passes/prune"
)

// benchShapes lists [M,K] of ResNet50, BERT and MiniLM.
var benchShapes = [][2]int{
	{64, 64}, {64, 576}, {256, 64}, {128, 1152}, {512, 128}, {256, 2304}, {1024, 256},
	{512, 4608}, {512, 2048}, {2048, 512}, {384, 384}, {768, 768}, {3072, 768}, {768, 3072},
}

// pruned returns random values [m,k] under a pattern.
func pruned(tb testing.TB, m, k int, pattern string, sparsity float64) *tensor.Tensor {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	w := tensor.New(tensor.F32, m, k)
	for i := range w.F32s() {
		w.F32s()[i] = rng.Float32() + 0.1
	}
	p, err := prune.ParsePattern(pattern)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := prune.Select([]prune.Layer{{Rows: m, Cols: k, Weights: w.F32s()}}, prune.Options{Pattern: p, Sparsity: sparsity})
	if err != nil {
		tb.Fatal(err)
	}
	r.Layers[0].Mask.Apply(w.F32s(), false)
	return w
}

// stored packs w and prepares its kernel.
func stored(tb testing.TB, w *tensor.Tensor, format, config string) (*ir.Store, backend.FloatKernel) {
	tb.Helper()
	f := Lookup(format)
	parts, err := f.Pack(w, config)
	if err != nil {
		tb.Fatal(err)
	}
	s := &ir.Store{Format: format, Config: config, Rows: w.Dim(0), Cols: w.Dim(1), Parts: parts}
	if err := f.Check(s); err != nil {
		tb.Fatal(err)
	}
	k, err := f.Kernel(s)
	if err != nil {
		tb.Fatal(err)
	}
	return s, k.(backend.FloatKernel)
}

// many returns the kernel for many columns.
func many(k backend.FloatKernel) backend.FloatKernel {
	if s, ok := k.(backend.Sizer); ok {
		return s.Sized(math.MaxInt)
	}
	return k
}

// product returns a function that computes all rows of a product of n columns,
// 1 or a panel.
func product(k backend.FloatKernel, w *tensor.Tensor, n int) func() {
	rows, cols := w.Dim(0), w.Dim(1)
	x := make([]float32, cols*n)
	for i := range x {
		x[i] = 1 // a page that nothing was written to is read from one place
	}
	if n == 1 {
		y := make([]float32, rows+k.Tile())
		return func() { k.Vec(y, x, 0, rows) }
	}
	return panels(k, w, x, make([]float32, (rows+k.Tile())*n))
}

// panels returns a function that computes all rows of a product with a panel.
func panels(k backend.FloatKernel, w *tensor.Tensor, x, y []float32) func() {
	const n = backend.Panel
	rows := w.Dim(0)
	return func() {
		for b, at := range k.Bounds()[:len(k.Bounds())-1] {
			k.Panel(y, x[at*n:], b, n/backend.Granule, 0, rows)
		}
	}
}

// fastest alternates short windows of the functions, and returns the least time
// that a call of each took: other load on the machine disturbs that least.
func fastest(windows int, fs ...func()) []time.Duration {
	const window = 300 * time.Microsecond
	best := make([]time.Duration, len(fs))
	calls := make([]int, len(fs))
	for i, f := range fs {
		f()
		start := time.Now()
		f()
		best[i] = max(time.Since(start), 1)
		calls[i] = max(1, int(window/best[i]))
	}
	for range windows {
		for i, f := range fs {
			start := time.Now()
			for range calls[i] {
				f()
			}
			best[i] = min(best[i], time.Since(start)/time.Duration(calls[i]))
		}
	}
	return best
}

// BenchmarkWidened compares weights of 16 bits that are widened for each panel with those that are widened once, over
// numbers of columns, weights in the caches and, the last, in memory.
func BenchmarkWidened(b *testing.B) {
	shapes := [][2]int{{256, 64}, {512, 128}, {256, 1024}, {768, 768}, {2048, 512}, {6144, 4096}}
	for _, s := range shapes {
		w := pruned(b, s[0], s[1], "block:4x1", 0.8)
		dense := tensor.New(tensor.F32, s[0], s[1])
		for i := range dense.F32s() {
			dense.F32s()[i] = 1
		}
		for _, c := range []struct {
			format, config string
			w              *tensor.Tensor
		}{{"dense", "", dense}, {"block", "4x1", w}} {
			f := Lookup(c.format)
			parts, err := f.Pack(c.w, c.config)
			if err != nil {
				b.Fatal(err)
			}
			st := &ir.Store{Format: c.format, Config: c.config, Rows: s[0], Cols: s[1], Parts: choose.Narrow(parts, tensor.BF16)}
			k, err := f.Kernel(st)
			if err != nil {
				b.Fatal(err)
			}
			strips := k.(backend.FloatKernel)
			b.Run(fmt.Sprintf("%s/%dx%d", c.format, s[0], s[1]), func(b *testing.B) {
				line := ""
				for _, n := range []int{4, 16, 32, 64, 128, 256} {
					t := fastest(40, columns(strips, n, s), columns(many(strips), n, s))
					line += fmt.Sprintf("  %d: %.2f", n, float64(t[0])/float64(t[1]))
				}
				b.Logf("time of strips over widened once, by columns:%s", line)
			})
		}
	}
}

// columns returns a function that computes a product of n columns, panel by panel.
func columns(k backend.FloatKernel, n int, size [2]int) func() {
	x, y := make([]float32, size[1]*backend.Panel), make([]float32, (size[0]+15)/16*16*backend.Panel)
	for i := range x {
		x[i] = 1
	}
	return func() {
		for from := 0; from < n; from += backend.Panel {
			g := backend.Columns(min(backend.Panel, n-from)) / backend.Granule
			for b, at := range k.Bounds()[:len(k.Bounds())-1] {
				k.Panel(y, x[at*backend.Panel:], b, g, 0, size[0])
			}
		}
	}
}

// seconds is the predicted time of a product, NaN where the format does not
// offer to store w so.
func seconds(w *choose.Matrix, format, config string, n int) float64 {
	for _, c := range Lookup(format).Costs(machine.Default, w, n) {
		if c.Config == config {
			s, _ := predict.Of(machine.Default).Predict(c, w.Dim(0), w.Dim(1), n)
			return s
		}
	}
	return math.NaN()
}

// BenchmarkProduct measures every format on the pattern that it is made for,
// against dense and the peak of one core.
func BenchmarkProduct(b *testing.B) {
	kinds := []struct{ format, config, pattern string }{
		{"csr", "", "unstructured"},
		{"ell", "1x1", "uniform"}, {"ell", "4x1", "uniform-block:4x1"}, {"ell", "16x1", "uniform-block:16x1"},
		{"nm", "2:4", "2:4"}, {"nm", "1:8", "1:8"},
		{"block", "2x1", "block:2x1"}, {"block", "4x1", "block:4x1"}, {"block", "8x1", "block:8x1"}, {"block", "16x1", "block:16x1"},
		{"block", "1x4", "block:1x4"}, {"block", "4x4", "block:4x4"}, {"block", "16x16", "block:16x16"}, {"block", "32x32", "block:32x32"},
	}
	flops := ukernel.Best().Peak(1000)
	peak := func() { ukernel.Best().Peak(1000) }
	for _, n := range []int{backend.Panel, 1} {
		for _, kind := range kinds {
			levels := []float64{0.5, 0.8, 0.9, 0.95}
			if p, err := prune.ParsePattern(kind.pattern); err != nil {
				b.Fatal(err)
			} else if own, ok := p.OwnSparsity(); ok {
				levels = []float64{own}
			}
			for _, sparsity := range levels {
				for _, shape := range benchShapes {
					b.Run(fmt.Sprintf("%s:%s/%v/%dx%dx%d", kind.format, kind.config, sparsity, shape[0], shape[1], n), func(b *testing.B) {
						w := pruned(b, shape[0], shape[1], kind.pattern, sparsity)
						s, kern := stored(b, w, kind.format, kind.config)
						if n > 1 {
							kern = many(kern)
						}
						_, dense := stored(b, w, "dense", "")
						sparse := product(kern, w, n)
						for b.Loop() {
							sparse()
						}
						t := fastest(20, sparse, product(dense, w, n), peak)
						values := float64(s.Part("values").Len())
						mat := choose.NewMatrix(w, "")
						const strips = 4 // of the product whose time is predicted, if it has panels
						at := n
						if n > 1 {
							at *= strips
						}
						predicted := seconds(mat, "dense", "", at) / seconds(mat, kind.format, kind.config, at)
						b.ReportMetric(predicted, "x_predicted")
						b.ReportMetric(float64(t[1])/float64(t[0]), "x_dense")
						b.ReportMetric(100*2*values*float64(n)/float64(t[0])/(flops/float64(t[2])), "%peak")
					})
				}
			}
		}
	}
}

// BenchmarkGenerated compares generated code with the kernels that read indices: on
// one weight again and again, and on so many in turn that each comes from beyond
// the level 2 cache, for one panel and for four.
func BenchmarkGenerated(b *testing.B) {
	flops := ukernel.Best().Peak(1000)
	peak := func() { ukernel.Best().Peak(1000) }
	for _, sparsity := range []float64{0.8, 0.9} {
		for _, shape := range [][2]int{{64, 576}, {256, 64}, {512, 128}, {256, 1024}, {256, 2304}, {512, 4608}} {
			w := pruned(b, shape[0], shape[1], "uniform", sparsity)
			_, first := stored(b, w, "csr", "")
			if many(first) == first {
				b.Skip("no code is generated here")
			}
			work := 2 * (1 - sparsity) * float64(w.Len()) * backend.Panel
			x, y := make([]float32, w.Dim(1)*backend.Panel), make([]float32, (w.Dim(0)+256)*backend.Panel)
			for i := range x {
				x[i] = 1 // see product
			}
			run := func(b *testing.B, read, code func(), calls float64) {
				for b.Loop() {
					code()
				}
				t := fastest(15, read, code, peak)
				share := func(i int) float64 {
					return 100 * calls * work / float64(t[i]) / (flops / float64(t[2]))
				}
				b.ReportMetric(share(0), "%peak_indices")
				b.ReportMetric(share(1), "%peak_code")
			}
			name := fmt.Sprintf("%v/%dx%d/", sparsity, shape[0], shape[1])
			b.Run(name+"hot", func(b *testing.B) {
				run(b, panels(first, w, x, y), panels(many(first), w, x, y), 1)
			})
			for _, count := range []int{1, 4} {
				b.Run(fmt.Sprintf("%scold/%d", name, count*backend.Panel), func(b *testing.B) {
					weights := int(20e6/((1-sparsity)*float64(w.Len())*14)) + 2
					var read, code []func()
					for range weights {
						_, k := stored(b, w, "csr", "")
						read, code = append(read, panels(k, w, x, y)), append(code, panels(many(k), w, x, y))
					}
					each := func(fs []func()) func() {
						return func() {
							for _, f := range fs {
								for range count {
									f()
								}
							}
						}
					}
					run(b, each(read), each(code), float64(weights*count))
				})
			}
		}
	}
}

// BenchmarkLoad measures packing, checking and preparing a weight.
func BenchmarkLoad(b *testing.B) {
	for _, kind := range []struct{ format, config, pattern string }{
		{"dense", "", "unstructured"}, {"csr", "", "unstructured"}, {"ell", "1x1", "uniform"},
		{"nm", "2:4", "2:4"}, {"block", "4x1", "block:4x1"}, {"block", "16x16", "block:16x16"},
	} {
		sparsity := 0.5
		if kind.format == "nm" {
			sparsity = 0
		}
		w := pruned(b, 1024, 1024, kind.pattern, sparsity)
		s, _ := stored(b, w, kind.format, kind.config)
		f := Lookup(kind.format)
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"Costs", func() error { f.Costs(machine.Default, choose.NewMatrix(w, ""), backend.Panel); return nil }},
			{"Pack", func() error { _, err := f.Pack(w, kind.config); return err }},
			{"Check", func() error { return f.Check(s) }},
			{"Unpack", func() error { _, err := f.Unpack(s); return err }},
			{"Kernel", func() error { _, err := f.Kernel(s); return err }},
		} {
			b.Run(kind.format+":"+kind.config+"/"+step.name, func(b *testing.B) {
				b.SetBytes(int64(4 * w.Len()))
				for b.Loop() {
					if err := step.do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLongRows compares the formats on weights of which a few rows are not sparse: by columns, the time of each in its form
// that is predicted to be the fastest, and what is predicted of that.
func BenchmarkLongRows(b *testing.B) {
	for _, pattern := range []string{"unstructured", "uniform", "uniform-block:4x1", "uniform-block:8x1", "uniform-block:16x1", "block:4x1"} {
		for _, shape := range [][2]int{{512, 512}, {1024, 1024}} {
			for _, share := range []float64{0.01, 0.03} {
				b.Run(fmt.Sprintf("%s/%dx%d/%v", pattern, shape[0], shape[1], share), func(b *testing.B) {
					w := pruned(b, shape[0], shape[1], pattern, 0.9)
					rng := rand.New(rand.NewPCG(3, 4))
					for _, row := range rng.Perm(shape[0])[:int(share*float64(shape[0]))] {
						for i := range shape[1] {
							w.F32s()[row*shape[1]+i] = rng.Float32() + 0.1
						}
					}
					for _, n := range []int{1, 49, 196, 1024} {
						compareFormats(b, w, n)
					}
				})
			}
		}
	}
}

func compareFormats(b *testing.B, w *tensor.Tensor, n int) {
	b.Helper()
	var names []string
	var predicted []float64
	var runs []func()
	matrix := choose.NewMatrix(w, "")
	for _, f := range single {
		config, least := "", math.Inf(1)
		for _, c := range f.Costs(machine.Default, matrix, n) {
			if s := seconds(matrix, f.Name(), c.Config, n); s < least {
				config, least = c.Config, s
			}
		}
		if math.IsInf(least, 1) {
			continue
		}
		_, k := stored(b, w, f.Name(), config)
		if s, ok := k.(backend.Sizer); ok {
			k = s.Sized(n)
		}
		names, predicted = append(names, f.Name()+" "+config), append(predicted, least)
		if n <= k.VecColumns() {
			runs = append(runs, product(k, w, 1))
		} else {
			runs = append(runs, columns(k, n, [2]int{w.Dim(0), w.Dim(1)}))
		}
	}
	line := fmt.Sprintf("N = %d", n)
	for i, t := range fastest(20, runs...) {
		line += fmt.Sprintf("  %s %.3g us, predicted %.3g", names[i], float64(t)/1e3, 1e6*predicted[i])
	}
	b.Log(line)
}
