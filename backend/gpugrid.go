package backend

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
)

// GPUGrid is what kernels were measured to take on a GPU, and what follows for shapes between
// those measured: of each kernel the shares that it reaches of the rates of the data sheet, fitted
// to its points, and how far the points near a shape are off from that. A file beside the
// images of the kernels, sm_90.grid.json, has one for each generation that was measured.
type GPUGrid struct {
	Device  string             `json:"device"`
	Driver  string             `json:"driver"`
	Date    string             `json:"date"`
	Commit  string             `json:"commit"`
	Arch    string             `json:"arch"`
	Launch  float64            `json:"launch_us"` // what any launch takes
	Kernels map[string]*GPUFit `json:"kernels"`
	// Libraries are those of NVIDIA, by the names below, for 16-bit floats.
	Libraries map[string]*GPUFit `json:"libraries,omitempty"`
}

// The libraries of a grid.
const (
	DenseLibrary  = "cuBLASLt"
	SparseLibrary = "cuSPARSELt" // of 2:4 weights
)

// LibraryWork is about the work of a library for a product of elements of so many bytes, which has tiles as large as they fit and
// divides the sums where there are few of them.
func LibraryWork(library string, m, k, n, size int) GPUWork {
	const tile, depth, warps = 128, 256, 8
	w := GPUWork{
		Unit: TensorCores, Operations: 2 * float64(m) * float64(k) * float64(n), Memory: float64(m * k * size),
		Blocks: (m + tile - 1) / tile * ((n + tile - 1) / tile) * max(1, k/depth), Warps: warps,
	}
	if library == SparseLibrary {
		w.Unit, w.Memory = SparseTensorCores, w.Memory/2+float64(m*k)/8
	}
	w.Cache = w.Memory + float64((k+m)*n*size)
	return w
}

// LibraryTime is about how long a library takes for a product of 16-bit floats; ok is false where it was not measured.
func (r GPURates) LibraryTime(library string, m, k, n, batch int) (seconds float64, ok bool) {
	if r.Grid == nil || r.Grid.Libraries[library] == nil {
		return 0, false
	}
	g, w := r.Grid, LibraryWork(library, m, k, n*batch, 2)
	f := g.Libraries[library]
	return f.time(r, g.Launch, w) * math.Exp(f.residual(r, g.Launch, w)) * 1e-6, true
}

// GPUFit is what is known of a kernel.
type GPUFit struct {
	Processors float64    `json:"processors"` // the share of the rate of its unit or of the cache that it reaches
	Memory     float64    `json:"memory"`     // and that of the memory's
	Points     []GPUPoint `json:"points"`
}

// GPUPoint is a measured launch, of a product M x K x N with a weight of which such a share
// is not zero.
type GPUPoint struct {
	M       int     `json:"m"`
	K       int     `json:"k"`
	N       int     `json:"n"`
	Density float64 `json:"density"`
	GPUWork
	Us float64 `json:"us"`
}

// gridFiles has the grids; the manifest of the images is there even where no grid is.
//
//go:embed cuda/image/*.json
var gridFiles embed.FS

// GridFile is the name in backend/cuda/image of the grid of a generation.
func GridFile(generation string) string { return generation + ".grid.json" }

// grids are those of the files, by generation.
var grids = sync.OnceValue(func() map[string]*GPUGrid {
	g, err := ReadGrids(gridFiles, "cuda/image")
	if err != nil {
		panic(err) // of files that are part of the program
	}
	return g
})

// ReadGrids reads the grids in a folder, by generation.
func ReadGrids(files fs.FS, folder string) (map[string]*GPUGrid, error) {
	out := map[string]*GPUGrid{}
	for _, generation := range []string{"sm_80", "sm_90"} {
		text, err := fs.ReadFile(files, path.Join(folder, GridFile(generation)))
		if errors.Is(err, fs.ErrNotExist) { // nothing was measured
			continue
		}
		if err != nil {
			return nil, err
		}
		g := &GPUGrid{}
		if err := json.Unmarshal(text, g); err != nil {
			return nil, fmt.Errorf("%s: %w", GridFile(generation), err)
		}
		out[generation] = g
	}
	return out, nil
}

// Fit completes a grid of which Kernels have points: the time of a launch, and the shares.
// They are those for which the logarithms of predictions are nearest to those of
// measurements in the sum of squares.
func (g *GPUGrid) Fit() {
	rates := DataSheet(g.Arch)
	least := math.Inf(1)
	for _, k := range g.Kernels {
		for _, p := range k.Points {
			least = min(least, p.Us)
		}
	}
	if math.IsInf(least, 1) {
		return
	}
	const steps = 40
	best, launch := math.Inf(1), 0.0
	for i := range steps {
		at, sum := least*float64(i)/steps, 0.0
		for _, name := range g.names() {
			sum += g.Kernels[name].fit(rates, at)
		}
		if sum < best {
			best, launch = sum, at
		}
	}
	g.Launch = launch
	for _, k := range g.Kernels {
		k.fit(rates, launch)
	}
	for _, l := range g.Libraries {
		l.fit(rates, launch)
	}
}

// names lists the kernels in an order, so that sums do not depend on that of a map.
func (g *GPUGrid) names() []string { return slices.Sorted(maps.Keys(g.Kernels)) }

// fit finds the shares of a kernel where a launch takes so long, and returns the sum of
// squares.
func (f *GPUFit) fit(rates GPURates, launch float64) float64 {
	type bound struct{ processors, memory, finish, us float64 }
	bounds := make([]bound, len(f.Points))
	for i, p := range f.Points {
		processors, memory := rates.bounds(p.GPUWork)
		bounds[i] = bound{processors * 1e6, memory * 1e6, 1e6 * rates.finish(p.GPUWork, launch*1e-6), p.Us}
	}
	// What no point depends on stays at 1.
	const towards1 = 1e-6
	off := func(processors, memory float64) float64 {
		sum := towards1 * (processors*processors + memory*memory)
		p, m := math.Exp(-processors), math.Exp(-memory)
		for _, b := range bounds {
			d := math.Log((launch + max(b.processors*p, b.memory*m) + b.finish) / b.us)
			sum += d * d
		}
		return sum
	}
	best, x, y := math.Inf(1), 0.0, 0.0
	try := func(processors, memory float64) bool {
		v := off(processors, memory)
		if v >= best {
			return false
		}
		best, x, y = v, processors, memory
		return true
	}
	for i := -10; i <= 4; i++ {
		for j := -10; j <= 4; j++ {
			try(float64(i)/2, float64(j)/2)
		}
	}
	for again := true; again; {
		for step := 0.25; step > 1e-4; step /= 2 {
			for try(x+step, y) || try(x-step, y) || try(x, y+step) || try(x, y-step) || try(x+step, y+step) || try(x-step, y-step) {
			}
		}
		// A share that no point depends on any more is on a plain, which small steps do not leave.
		again = false
		for i := -100; i <= 40; i++ {
			again = try(float64(i)/20, y) || again
			again = try(x, float64(i)/20) || again
		}
	}
	f.Processors, f.Memory = math.Exp(x), math.Exp(y)
	return best
}

// predict is about how long a launch of a kernel takes. A kernel for bf16 takes what that for
// f16 takes, one without points what those of its unit take on average.
func (g *GPUGrid) predict(rates GPURates, kernel string, w GPUWork) float64 {
	f := g.Kernels[strings.TrimPrefix(kernel, "b")]
	if f == nil {
		f = g.average(w.Unit)
	}
	return f.time(rates, g.Launch, w) * math.Exp(f.residual(rates, g.Launch, w)) * 1e-6
}

// time is the prediction of the fit alone in microseconds.
func (f *GPUFit) time(rates GPURates, launch float64, w GPUWork) float64 {
	processors, memory := rates.bounds(w)
	return launch + 1e6*(max(processors/f.Processors, memory/f.Memory)+rates.finish(w, launch*1e-6))
}

// residual is by how much, as a logarithm, points near a launch are off from their prediction:
// an average by distance, in which what lies farther away than a factor of 2 counts little.
func (f *GPUFit) residual(rates GPURates, launch float64, w GPUWork) float64 {
	const near = 1e-6
	total := 1 / (math.Ln2 * math.Ln2) // for no difference
	sum := 0.0
	for _, p := range f.Points {
		d := near
		for _, pair := range [][2]float64{{w.Operations, p.Operations}, {w.Cache, p.Cache}, {w.Memory, p.Memory}, {float64(w.Blocks), float64(p.Blocks)}} {
			l := math.Log(max(1, pair[0]) / max(1, pair[1]))
			d += l * l
		}
		sum += math.Log(p.Us/f.time(rates, launch, p.GPUWork)) / d
		total += 1 / d
	}
	return sum / total
}

// average is a fit without points, of the means of the kernels of a unit.
func (g *GPUGrid) average(unit GPUUnit) *GPUFit {
	n, processors, memory := 0.0, 0.0, 0.0
	for _, name := range g.names() {
		f := g.Kernels[name]
		if len(f.Points) > 0 && f.Points[0].Unit == unit {
			n++
			processors += math.Log(f.Processors)
			memory += math.Log(f.Memory)
		}
	}
	if n == 0 {
		return &GPUFit{Processors: 1, Memory: 1}
	}
	return &GPUFit{Processors: math.Exp(processors / n), Memory: math.Exp(memory / n)}
}
