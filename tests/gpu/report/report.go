// Package report says what follows from what tests/gpu/run.sh measured: which claims hold, tables
// of it, and the grid by which kernels are picked from then on. It imports backend.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"spc/backend"
)

// Mark names the place of the tables in docs/results/gpu.md.
const Mark = "gpu"

// Spread is the times of some runs.
type Spread struct {
	Median float64 `json:"median"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
	Error  string  `json:"error,omitempty"`
}

// Latency is what spc bench prints of times, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	Min float64 `json:"min"`
}

// Model is a model measured by PyTorch, in some ways, and by spc, pruned in some ways.
type Model struct {
	Model     string             `json:"model"`
	Precision string             `json:"precision"`
	Batch     int                `json:"batch"`
	Tokens    int                `json:"tokens"` // of each sample; 0 where samples are images
	PyTorch   map[string]Spread  `json:"pytorch_ms"`
	Ms        map[string]Latency `json:"ms"`
	Off       map[string]float64 `json:"relative_l2,omitempty"` // from the CPU
	Errors    map[string]string  `json:"errors"`
}

// Cell is a product measured by kernels and libraries, in microseconds by the name of a candidate:
// a format and a kernel, or a family of a library and an algorithm, family/algorithm.
type Cell struct {
	Group    string               `json:"group"` // the claim that it is for
	Shape    string               `json:"shape"`
	Count    float64              `json:"count"` // how often the weight is in its model
	M        int                  `json:"m"`
	K        int                  `json:"k"`
	N        int                  `json:"n"`
	DType    string               `json:"dtype"`
	Pattern  string               `json:"pattern"`
	Sparsity float64              `json:"sparsity"`
	Us       map[string]Spread    `json:"us"`
	Ours     map[string]Candidate `json:"ours"`
	Errors   map[string]string    `json:"errors"`
}

// Candidate is a kernel of the back end for a cell.
type Candidate struct {
	Format    string          `json:"format"`
	Kernel    string          `json:"kernel"`
	Picked    bool            `json:"picked"` // by the back end among those of its format
	Predicted float64         `json:"predicted_us"`
	Work      backend.GPUWork `json:"work"`
}

// Step is a part of the run.
type Step struct {
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	Ended   string  `json:"ended"`
}

// Results is what bench.py writes.
type Results struct {
	Device    string             `json:"device"`
	Arch      string             `json:"arch"`
	Driver    string             `json:"driver"`
	Torch     string             `json:"torch"`
	Libraries map[string]string  `json:"libraries"`
	PickedBy  string             `json:"picked_by"` // the grid by which kernels were picked, or the data sheet
	Date      string             `json:"date"`
	Commit    string             `json:"commit"`
	Tiny      bool               `json:"tiny"` // of sizes that tell nothing
	Steps     []Step             `json:"steps"`
	Ceilings  map[string]float64 `json:"ceilings"`
	Models    []Model            `json:"models"`
	Kernels   []Cell             `json:"kernels"`
}

// Read reads the results of a run.
func Read(path string) (*Results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

// Slug is a file's name for a device.
func (r *Results) Slug() string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(r.Device), "-"), "-")
}

// Grid is the grid of the kernels for f16 that were measured.
func (r *Results) Grid() *backend.GPUGrid {
	g := &backend.GPUGrid{Device: r.Device, Driver: r.Driver, Date: r.Date, Commit: r.Commit, Arch: backend.Generation(r.Arch), Kernels: map[string]*backend.GPUFit{}}
	for _, c := range r.Kernels {
		if c.DType != "f16" {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.Ours)) {
			k := c.Ours[name]
			us, ok := c.Us[name]
			if !ok {
				continue
			}
			if g.Kernels[k.Kernel] == nil {
				g.Kernels[k.Kernel] = &backend.GPUFit{}
			}
			f := g.Kernels[k.Kernel]
			density := 1 - c.Sparsity
			if k.Format == "dense" {
				density = 1
			}
			f.Points = append(f.Points, backend.GPUPoint{M: c.M, K: c.K, N: c.N, Density: density, GPUWork: k.Work, Us: us.Median})
		}
	}
	g.Libraries = r.libraries()
	g.Fit()
	return g
}

// libraries are the points of NVIDIA's libraries: of cuBLASLt what its first choice takes, of cuSPARSELt what the best of all does.
func (r *Results) libraries() map[string]*backend.GPUFit {
	out := map[string]*backend.GPUFit{}
	for library, row := range map[string]string{backend.DenseLibrary: "cuBLASLt dense/0", backend.SparseLibrary: "cuSPARSELt/searched"} {
		for _, c := range r.Kernels {
			us, ok := c.Us[row]
			if !ok || c.DType != "f16" {
				continue
			}
			if out[library] == nil {
				out[library] = &backend.GPUFit{}
			}
			f, density := out[library], 1.0
			if library == backend.SparseLibrary {
				density = 1 - c.Sparsity
			}
			f.Points = append(f.Points, backend.GPUPoint{M: c.M, K: c.K, N: c.N, Density: density, GPUWork: backend.LibraryWork(library, c.M, c.K, c.N, 2), Us: us.Median})
		}
	}
	return out
}

// Markdown is the tables of all results in a folder, by device.
func Markdown(folder string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, ".run.json") || strings.HasSuffix(f, ".claims.json") {
			continue
		}
		r, err := Read(f)
		if err != nil {
			return "", err
		}
		r.write(&b)
	}
	if b.Len() == 0 {
		return "No figure of a GPU exists yet.\n", nil
	}
	return b.String(), nil
}

func (r *Results) write(b *strings.Builder) {
	fmt.Fprintf(b, "Measured on %s, driver %s, PyTorch %s, commit %s, %s. A copy moves %.2f TB/s, a dense product in f16 runs at %.0f TFLOP/s, in f32 at %.0f.",
		r.Device, r.Driver, r.Torch, r.Commit, r.Date, r.Ceilings["copy_bytes_per_second"]/1e12, r.Ceilings["matmul_f16_flops"]/1e12, r.Ceilings["matmul_f32_flops"]/1e12)
	for _, s := range r.Steps {
		if s.Ended != "done" {
			fmt.Fprintf(b, " The step %q ended early: %s.", s.Step, strings.TrimSuffix(s.Ended, "."))
		}
	}
	fmt.Fprintf(b, "\n\nEach row is a claim and what was measured, as ratios of times in one process: the geometric mean, the worst shape, and in parentheses how many of the shapes were measured.\n\n")
	b.WriteString("| | floor | mean | worst | |\n|---|---|---:|---:|---|\n")
	for _, c := range r.Claims() {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", c.Name, c.Rule, times(c.Mean), times(c.Worst), c.verdict())
	}
	r.writeModels(b)
}

func (r *Results) writeModels(b *strings.Builder) {
	var pytorch, variants []string
	for _, m := range r.Models {
		for _, way := range ways {
			if _, ok := m.PyTorch[way]; ok && !slices.Contains(pytorch, way) {
				pytorch = append(pytorch, way)
			}
		}
		for _, v := range []string{"dense", "uniform 80%", "2:4", "block 64x64 80%"} {
			if _, ok := m.Ms[v]; ok && !slices.Contains(variants, v) {
				variants = append(variants, v)
			}
		}
	}
	fmt.Fprintf(b, "\nMilliseconds from inputs on the host to outputs there, f16, medians.\n\n| model | batch |")
	for _, v := range pytorch {
		fmt.Fprintf(b, " PyTorch, %s |", v)
	}
	for _, v := range variants {
		fmt.Fprintf(b, " spc, %s |", v)
	}
	b.WriteString("\n|---|---:|" + strings.Repeat("---:|", len(pytorch)+len(variants)) + "\n")
	for _, m := range r.Models {
		batch := fmt.Sprint(m.Batch)
		if m.Tokens > 0 {
			batch += fmt.Sprintf(" x %d", m.Tokens)
		}
		fmt.Fprintf(b, "| %s | %s |", m.Model, batch)
		for _, v := range pytorch {
			s, ok := m.PyTorch[v]
			number(b, s.Median, ok && s.Error == "")
		}
		for _, v := range variants {
			l, ok := m.Ms[v]
			number(b, l.P50, ok)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func number(b *strings.Builder, v float64, ok bool) {
	if !ok {
		b.WriteString(" - |")
		return
	}
	fmt.Fprintf(b, " %.4g |", v)
}

// times is a ratio, 0 where there is none.
func times(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

// Save copies what run.sh wrote into a folder of results, under the device's name, with the claims,
// and the grid into the folder of the images.
func Save(from, to, images string) error {
	r, err := Read(filepath.Join(from, "bench.json"))
	if err != nil {
		return err
	}
	if r.Tiny {
		return fmt.Errorf("%s: its sizes tell nothing of a GPU: run.sh ran with SPC_GPU_TINY", from)
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	for name, as := range map[string]string{"bench.json": ".json", "run.json": ".run.json", "kernels.png": ".png", "models.png": ".models.png"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if filepath.Ext(name) == ".png" && errors.Is(err, fs.ErrNotExist) { // without matplotlib
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, r.Slug()+as), b, 0o666); err != nil {
			return err
		}
	}
	if err := r.WriteClaims(filepath.Join(to, r.Slug()+".claims.json")); err != nil {
		return err
	}
	g := r.Grid()
	if len(g.Kernels) == 0 {
		return nil
	}
	b, err := json.Marshal(g)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(b), "},{", "},\n{") + "\n" // a line for each point
	return os.WriteFile(filepath.Join(images, backend.GridFile(g.Arch)), []byte(text), 0o666)
}
