package backend_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
)

// truth is what a kernel of a made-up GPU reaches.
type truth struct{ processors, memory float64 }

const madeUpLaunch = 2.5 // microseconds

func (t truth) us(rates backend.GPURates, w backend.GPUWork) float64 {
	rates.Launch = 0
	finish := 0.0
	if w.Finish > 0 {
		finish, w.Finish = madeUpLaunch+1e6*w.Finish/rates.Cache, 0
	}
	w2 := w
	w2.Memory = 0
	processors := rates.Predict("", w2)
	w2 = w
	w2.Operations, w2.Cache, w2.Shared = 0, 0, 0
	memory := rates.Predict("", w2)
	return madeUpLaunch + 1e6*max(processors/t.processors, memory/t.memory) + finish
}

type shape struct{ m, k, n int }

// kernelsAt are the kernels that compete for a weight.
func kernelsAt(s shape, density float64) []backend.GPUKernel {
	var out []backend.GPUKernel
	for _, t := range backend.GPUTiles {
		out = append(out, t.Kernel(fmt.Sprintf("f16_dense_%v_mma", t), s.m, s.k, 2*s.m*s.k, 0))
	}
	return append(out, sparse.BitmapKernels(sparse.Population{
		M: s.m, K: s.k, Lines: [2]int{int((0.2 + 2*density) * float64(s.m*s.k) / 16), s.m * s.k}, Top: [2]int{80, 100},
	}, tensor.F16)...)
}

var densities = []float64{0.1, 0.2, 0.3, 0.5}

// madeUp is a grid of kernels with known shares, whose times spread by noise.
func madeUp(noise float64, leaveOut func(shape) bool) (*backend.GPUGrid, map[string]truth) {
	rng := rand.New(rand.NewPCG(7, 0))
	rates := backend.DataSheet("sm_90")
	g := &backend.GPUGrid{Arch: "sm_90", Kernels: map[string]*backend.GPUFit{}}
	known := map[string]truth{}
	for _, s := range shapes() {
		for _, density := range densities {
			for _, k := range kernelsAt(s, density) {
				name := k.Key()
				if _, ok := known[name]; !ok {
					// Shares that mislead a data sheet, for which all kernels are as good.
					i := len(known)
					known[name] = truth{[]float64{0.2, 0.9, 0.45, 0.1, 0.7}[i%5], []float64{0.9, 0.35, 0.6}[i%3]}
					g.Kernels[name] = &backend.GPUFit{}
				}
				if leaveOut(s) {
					continue
				}
				w := k.Work(s.n, 1, 2)
				us := known[name].us(rates, w) * math.Exp(noise*rng.NormFloat64())
				g.Kernels[name].Points = append(g.Kernels[name].Points, backend.GPUPoint{M: s.m, K: s.k, N: s.n, Density: density, GPUWork: w, Us: us})
			}
		}
	}
	g.Fit()
	return g, known
}

func shapes() (out []shape) {
	for _, mk := range [][2]int{{1024, 1024}, {4096, 1024}, {1024, 4096}, {4096, 4096}, {512, 4608}, {8192, 8192}} {
		for _, n := range []int{1, 8, 32, 128, 1024, 4096} {
			out = append(out, shape{mk[0], mk[1], n})
		}
	}
	return out
}

// A grid of times that follow from shares gives those back.
func TestFitFindsTheShares(t *testing.T) {
	g, known := madeUp(0, func(shape) bool { return false })
	if math.Abs(g.Launch-madeUpLaunch) > 0.05*madeUpLaunch {
		t.Errorf("a launch takes %v us, want %v", g.Launch, madeUpLaunch)
	}
	for name, want := range known {
		f := g.Kernels[name]
		memory := false // whether any of its times depends on the memory
		for _, p := range f.Points {
			w := p.GPUWork
			w.Memory = 0
			memory = memory || want.us(backend.DataSheet(g.Arch), w) < 0.9*p.Us
		}
		if math.Abs(math.Log(f.Processors/want.processors)) > 0.02 || memory && math.Abs(math.Log(f.Memory/want.memory)) > 0.02 {
			t.Errorf("%s reaches %.3f and %.3f, want %.3f and %.3f", name, f.Processors, f.Memory, want.processors, want.memory)
		}
	}
}

// What a grid with errors of measurement picks, at its own shapes and at others, is near the
// best; what the data sheet alone picks is not.
func TestPicksFromAGridAreNearTheBest(t *testing.T) {
	left := func(s shape) bool { return s.n == 32 || s.n == 128 && s.m == s.k }
	g, known := madeUp(0.02, left)
	sheet := backend.DataSheet("sm_90")
	measured := sheet
	measured.Grid = g
	for name, rates := range map[string]backend.GPURates{"grid": measured, "data sheet": sheet} {
		for _, at := range []string{"left out", "measured"} {
			sum, n := 0.0, 0
			for _, s := range shapes() {
				if left(s) != (at == "left out") {
					continue
				}
				for _, density := range densities {
					kernels := kernelsAt(s, density)
					us := func(k *backend.GPUKernel) float64 { return known[k.Key()].us(sheet, k.Work(s.n, 1, 2)) }
					best := math.Inf(1)
					for i := range kernels {
						best = min(best, us(&kernels[i]))
					}
					sum += math.Log(us(rates.Pick(kernels, s.n, 1, 2)) / best)
					n++
				}
			}
			mean := math.Exp(sum / float64(n))
			t.Logf("%s, shapes %s: %.3f times the best", name, at, mean)
			if (mean > 1.05) != (name == "data sheet") {
				t.Errorf("%s, shapes %s: picks take %.3f times the best in geometric mean", name, at, mean)
			}
		}
	}
}

// A kernel of bf16 is predicted as that of f16, and one that was not measured from the others.
func TestKernelsWithoutPoints(t *testing.T) {
	g, _ := madeUp(0, func(shape) bool { return false })
	r := backend.DataSheet("sm_90")
	r.Grid = g
	for name, f := range g.Kernels {
		w := f.Points[0].GPUWork
		if half, other := r.Predict(name, w), r.Predict("b"+name, w); half != other {
			t.Errorf("%s is predicted to take %v, and %v in bf16", name, half, other)
		}
		if math.Abs(r.Predict(name, w)*1e6/f.Points[0].Us-1) > 0.01 {
			t.Errorf("%s took %v us and is predicted to take %v", name, f.Points[0].Us, r.Predict(name, w)*1e6)
		}
		if v := r.Predict("f16_unheard_of", w) * 1e6; !(v > g.Launch) {
			t.Errorf("a kernel that was not measured is predicted to take %v us", v)
		}
	}
	empty := &backend.GPUGrid{Arch: "sm_90", Kernels: map[string]*backend.GPUFit{}}
	empty.Fit()
	r.Grid = empty
	if v := r.Predict("f16_dense", backend.GPUWork{Operations: 1e9, Blocks: 1000}); !(v > 0) {
		t.Errorf("without any points %v", v)
	}
}

// A grid in its file is the grid, of its generation.
func TestGridsInFiles(t *testing.T) {
	g, _ := madeUp(0.02, func(shape) bool { return false })
	text, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"images/sm_90.grid.json": {Data: text}, "images/manifest.json": {Data: []byte("{}")}}
	read, err := backend.ReadGrids(files, "images")
	if err != nil || len(read) != 1 || !reflect.DeepEqual(read["sm_90"], g) {
		t.Errorf("%d grids, %v", len(read), err)
	}
	files["images/sm_80.grid.json"] = &fstest.MapFile{Data: []byte("{")}
	if _, err := backend.ReadGrids(files, "images"); err == nil || !strings.Contains(err.Error(), "sm_80.grid.json") {
		t.Errorf("a grid that is cut off: %v", err)
	}
}

// Where a library was measured it is predicted to take what it took, whatever own kernels do.
func TestLibrariesArePredictedAsMeasured(t *testing.T) {
	r := backend.RatesOf("sm_90")
	points := 0
	for name, f := range r.Grid.Libraries {
		for _, p := range f.Points {
			have, ok := r.LibraryTime(name, p.M, p.K, p.N, 1)
			if !ok || have*1e6 > 1.25*p.Us || have*1e6 < p.Us/1.25 {
				t.Errorf("%s %d x %d x %d: %.4g us, measured %.4g", name, p.M, p.K, p.N, 1e6*have, p.Us)
			}
			points++
		}
	}
	if points < 50 {
		t.Errorf("%d points", points)
	}
	if _, ok := r.WithoutGrid().LibraryTime(backend.DenseLibrary, 64, 64, 64, 1); ok {
		t.Error("without a grid something is known of a library")
	}
}
