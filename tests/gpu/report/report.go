// Package report makes tables of what tests/gpu/run.sh measured. It imports nothing
// of spc.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Mark names the place of the tables in the README.
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
	PyTorch   map[string]Spread  `json:"pytorch_ms"`
	Ms        map[string]Latency `json:"ms"`
	Errors    map[string]string  `json:"errors"`
	Error     string             `json:"error,omitempty"`
}

// Cell is a product measured by kernels and libraries, in microseconds. The kernel that the
// back end picks for each format ends in a star.
type Cell struct {
	Shape    string            `json:"shape"`
	M        int               `json:"m"`
	K        int               `json:"k"`
	N        int               `json:"n"`
	Pattern  string            `json:"pattern"`
	Sparsity float64           `json:"sparsity"`
	Us       map[string]Spread `json:"us"`
	Errors   map[string]string `json:"errors"`
	Error    string            `json:"error,omitempty"`
}

// Results is what bench.py writes.
type Results struct {
	Device   string             `json:"device"`
	Driver   string             `json:"driver"`
	Torch    string             `json:"torch"`
	Date     string             `json:"date"`
	Commit   string             `json:"commit"`
	Ceilings map[string]float64 `json:"ceilings"`
	Models   []Model            `json:"models"`
	Kernels  []Cell             `json:"kernels"`
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

// Dense is the candidate that others are compared with.
const Dense = "cuBLAS dense"

// dense is the pattern of weights without zeros.
const dense = "dense"

// Markdown is the tables of all results in a folder, by device.
func Markdown(folder string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, ".run.json") {
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
	fmt.Fprintf(b, "Measured on %s, driver for CUDA %s, PyTorch %s, commit %s, %s. A copy moves %.2f TB/s, a dense product in f16 runs at %.0f TFLOP/s, in f32 at %.0f.\n\n",
		r.Device, r.Driver, r.Torch, r.Commit, r.Date, r.Ceilings["copy_bytes_per_second"]/1e12, r.Ceilings["matmul_f16_flops"]/1e12, r.Ceilings["matmul_f32_flops"]/1e12)
	pytorch, variants := []string{"eager", "compiled", "cuda graph"}, []string{"dense", "uniform 80%", "2:4", "block 32x32 80%"}
	fmt.Fprintf(b, "Milliseconds from an input on the host to an output there, f16, batch 1, medians.\n\n| model |")
	for _, v := range pytorch {
		fmt.Fprintf(b, " PyTorch %s |", v)
	}
	for _, v := range variants {
		fmt.Fprintf(b, " spc %s |", v)
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(pytorch)+len(variants)) + "\n")
	for _, m := range r.Models {
		fmt.Fprintf(b, "| %s |", m.Model)
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
	r.writeKernels(b)
}

func number(b *strings.Builder, v float64, ok bool) {
	if !ok {
		b.WriteString(" - |")
		return
	}
	fmt.Fprintf(b, " %.4g |", v)
}

// writeKernels has a row for each weight and a column for each number of columns.
func (r *Results) writeKernels(b *strings.Builder) {
	type weight struct {
		shape, pattern string
		sparsity       float64
	}
	var weights []weight
	var columns []int
	cells := map[weight]map[int]Cell{}
	for _, c := range r.Kernels {
		if len(c.Us) == 0 || c.Us[Dense].Median == 0 {
			continue
		}
		w := weight{fmt.Sprintf("%s, %d x %d", c.Shape, c.M, c.K), c.Pattern, c.Sparsity}
		if cells[w] == nil {
			cells[w] = map[int]Cell{}
			weights = append(weights, w)
		}
		cells[w][c.N] = c
		if !slices.Contains(columns, c.N) {
			columns = append(columns, c.N)
		}
	}
	slices.Sort(columns)
	b.WriteString("\nSpeed-up over cuBLAS on the dense weight, f16: of the kernel that spc picks, and in parentheses of the fastest library.\n\n| weight | pattern | zeros |")
	for _, n := range columns {
		fmt.Fprintf(b, " N = %d |", n)
	}
	b.WriteString("\n|---|---|---:|" + strings.Repeat("---:|", len(columns)) + "\n")
	for _, w := range weights {
		fmt.Fprintf(b, "| %s | %s | %.0f%% |", w.shape, w.pattern, 100*w.sparsity)
		for _, n := range columns {
			c, ok := cells[w][n]
			if !ok {
				b.WriteString(" - |")
				continue
			}
			ours, library := c.best()
			fmt.Fprintf(b, " %s", ratio(c.Us[Dense].Median, ours))
			if w.pattern != dense {
				fmt.Fprintf(b, " (%s)", ratio(c.Us[Dense].Median, library))
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// best returns the least of the medians of the kernels that were picked, and of the libraries
// but dense; 0 where there is none.
func (c Cell) best() (ours, library float64) {
	for name, s := range c.Us {
		to := &library
		switch {
		case strings.HasSuffix(name, "*"):
			to = &ours
		case name == Dense || strings.HasSuffix(name, "_mma") || strings.HasSuffix(name, "_mmasp") || strings.HasSuffix(name, "_simt"):
			continue
		}
		if *to == 0 || s.Median < *to {
			*to = s.Median
		}
	}
	return ours, library
}

func ratio(dense, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", dense/v)
}

// Save copies what run.sh wrote into a folder of results, under the device's name.
func Save(from, to string) error {
	r, err := Read(filepath.Join(from, "bench.json"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	for name, as := range map[string]string{"bench.json": ".json", "run.json": ".run.json", "kernels.png": ".png"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if name == "kernels.png" && errors.Is(err, fs.ErrNotExist) { // without matplotlib
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, r.Slug()+as), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}
