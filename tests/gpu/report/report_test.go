package report

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"spc/backend"
	"spc/tests/bench"
)

// run is a run that measured a little of some claims.
const run = `{"device": "NVIDIA H200", "arch": "sm_90", "driver": "580.1, CUDA 13.0", "torch": "2.11", "date": "2026-01-02", "commit": "abc", "picked_by": "the data sheet",
"steps": [{"step": "block", "seconds": 3, "ended": "done"}, {"step": "few columns", "seconds": 3, "ended": "out of time"}],
"ceilings": {"copy_bytes_per_second": 4.3e12, "matmul_f16_flops": 7.9e14, "matmul_f32_flops": 5e13},
"models": [
{"model": "bert-base", "batch": 8, "tokens": 128, "pytorch_ms": {"eager": {"median": 4.25}, "CUDA graph": {"median": 3}, "compiled": {"error": "no"}, "compiled, CUDA graph": {"median": 2}},
 "ms": {"dense": {"p50": 1.6}, "2:4": {"p50": 1}}},
{"model": "transformer-big", "batch": 8, "tokens": 128, "pytorch_ms": {"CUDA graph": {"median": 3}}, "ms": {"dense": {"p50": 3}, "2:4": {"p50": 2}}},
{"model": "resnet50", "batch": 1, "pytorch_ms": {}, "ms": {"2:4": {"p50": 0.5}}}],
"kernels": [
{"group": "ell transformer-big", "shape": "transformer-big", "count": 3, "m": 64, "k": 32, "n": 16, "dtype": "f16", "pattern": "uniform", "sparsity": 0.65,
 "us": {"cuBLASLt dense/0": {"median": 10}, "ell f16_bitmap_a_mma": {"median": 4}, "ell f16_ell_32xb_simt": {"median": 5}, "ell f16_ell_32xc_simt": {"median": 8}, "ell f16_ell_2x1_u8_simt": {"median": 4.5},
  "dense f16_dense_d_mma": {"median": 6}, "cuSPARSE CSR/default": {"median": 20}, "cuSPARSE CSR/2": {"median": 16}, "cuSPARSE COO/2": {"median": 1}},
 "ours": {
  "ell f16_bitmap_a_mma": {"format": "ell", "kernel": "f16_bitmap_a_mma", "picked": true, "predicted_us": 3, "work": {"unit": 1, "operations": 1e9, "cache": 1e6, "memory": 1e6, "blocks": 300, "warps": 8}},
  "ell f16_ell_32xb_simt": {"format": "ell", "kernel": "f16_ell_32xb_simt", "picked": false, "predicted_us": 4, "work": {"unit": 0, "operations": 1e8, "cache": 1e7, "memory": 1e6, "blocks": 300, "warps": 8}},
  "ell f16_ell_2x1_u8_simt": {"format": "ell", "kernel": "f16_ell_2x1_u8_simt", "picked": false, "predicted_us": 5, "work": {"unit": 0, "operations": 1e8, "cache": 2e7, "memory": 1e6, "blocks": 300, "warps": 8}},
  "ell f16_ell_32xc_simt": {"format": "ell", "kernel": "f16_ell_32xc_simt", "picked": false, "predicted_us": 9, "work": {"unit": 0, "operations": 1e8, "cache": 2e7, "memory": 1e6, "blocks": 300, "warps": 8}},
  "dense f16_dense_d_mma": {"format": "dense", "kernel": "f16_dense_d_mma", "picked": true, "predicted_us": 2, "work": {"unit": 1, "operations": 1e9, "cache": 1e6, "memory": 4e6, "blocks": 300, "warps": 8}}}},
{"group": "ell transformer-big", "shape": "transformer-big", "count": 1, "m": 32, "k": 64, "n": 16, "dtype": "f16", "pattern": "uniform", "sparsity": 0.65, "us": {"cuSPARSE CSR/2": {"median": 1}, "ell f16_bitmap_a_mma": {"median": 2}},
 "ours": {"ell f16_bitmap_a_mma": {"format": "ell", "kernel": "f16_bitmap_a_mma", "picked": true, "predicted_us": 3, "work": {"unit": 1, "operations": 5e8, "cache": 1e6, "memory": 1e6, "blocks": 300, "warps": 8}}}},
{"group": "2:4", "shape": "wide", "count": 1, "m": 64, "k": 64, "n": 64, "dtype": "f16", "pattern": "2:4", "sparsity": 0.5,
 "us": {"cuBLASLt dense/0": {"median": 10}, "cuSPARSELt/PyTorch": {"median": 7.7}, "nm f16_nm24_e_mmasp": {"median": 8}},
 "ours": {"nm f16_nm24_e_mmasp": {"format": "nm", "kernel": "f16_nm24_e_mmasp", "picked": true, "predicted_us": 1, "work": {"unit": 2, "operations": 1e9, "cache": 1e6, "memory": 1e6, "blocks": 300, "warps": 8}}}},
{"group": "few columns 50%", "shape": "square", "count": 1, "m": 64, "k": 64, "n": 1, "dtype": "f16", "pattern": "uniform", "sparsity": 0.5, "us": {}, "ours": {}},
{"group": "few columns 50%", "shape": "square", "count": 1, "m": 64, "k": 64, "n": 2, "dtype": "f16", "pattern": "uniform", "sparsity": 0.5,
 "us": {"cuBLASLt dense/0": {"median": 12}, "ell f16_bitmap_a_mma": {"median": 4}},
 "ours": {"ell f16_bitmap_a_mma": {"format": "ell", "kernel": "f16_bitmap_a_mma", "picked": true, "predicted_us": 3, "work": {"unit": 1, "operations": 2e8, "cache": 1e6, "memory": 1e6, "blocks": 300, "warps": 8}}}}
]}`

func parse(t *testing.T, text string) *Results {
	t.Helper()
	var r Results
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func find(t *testing.T, r *Results, name string) Claim {
	t.Helper()
	for _, c := range r.Claims() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no claim is named %q", name)
	return Claim{}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// Claims are about the picked kernel and the fastest algorithm of the reference.
func TestClaimsFollowFromMeasurements(t *testing.T) {
	r := parse(t, run)
	for _, c := range []struct {
		name        string
		verdict     string
		mean, worst float64
	}{
		// Ratios 16/4 three times and 1/2 once: below 1 in one shape, and not 3 in the mean.
		{"ell, Transformer-Big's weights, 65% zeros, N = 1024, f16, over cuSPARSE CSR", Missed, math.Pow(4*4*4*0.5, 0.25), 0.5},
		// 5/4 where USpMM was measured, which other kernels of the format are not; of the other shape nothing is known.
		{"ell, Transformer-Big's weights, 65% zeros, N = 1024, f16, over USpMM", Incomplete, 1.25, 1.25},
		{"2:4, f16, over cuBLASLt dense", Met, 1.25, 1.25}, // 7.7 of cuSPARSELt is within 5% of 8
		{"2:4, int8, over cuBLASLt dense", NotMeasured, 0, 0},
		{"few columns, 50% zeros, f16, over cuBLASLt dense", Incomplete, 3, 3},
		{"few columns, 70% zeros, f16, over cuBLASLt dense", NotMeasured, 0, 0},
		// The dense kernel is predicted to take 2 us, and takes 6 where 4 would do.
		{"chooser's pick over the best kernel", Incomplete, math.Pow(4./6, 1./4), 4. / 6},
		{"BERT-base and Transformer-Big, 8 x 128, 2:4 over our dense", Met, math.Sqrt(1.6 * 1.5), 1.5},
		{"BERT-base and Transformer-Big, 8 x 128, 64 x 64 blocks, 80% zeros, over our dense", NotMeasured, 0, 0},
		// The fastest of PyTorch's is a graph of what it compiled.
		{"BERT-base and Transformer-Big, 8 x 128, our dense over PyTorch with CUDA graphs", Met, math.Sqrt(2 / 1.6), 1},
	} {
		got := find(t, r, c.name)
		if got.Verdict != c.verdict || !near(got.Mean, c.mean) || !near(got.Worst, c.worst) {
			t.Errorf("%s: %s, mean %v, worst %v; want %s, %v, %v\n%+v", c.name, got.Verdict, got.Mean, got.Worst, c.verdict, c.mean, c.worst, got.Points)
		}
	}
	// A grid of the run knows what these take.
	if c := find(t, r, "pick by the grid of this run over the best kernel"); !near(c.Mean, 1) {
		t.Errorf("mean %v, want 1: %+v", c.Mean, c.Points)
	}
}

// A floor for each shape is missed as soon as one shape misses it, whatever is missing yet.
func TestFloorsForEachShape(t *testing.T) {
	point := func(ratio, instead float64) Point { return Point{Count: 1, Ratio: ratio, Instead: instead} }
	for _, c := range []struct {
		claim  claim
		points []Point
		want   string
	}{
		{claim{floor: 2, each: true}, []Point{point(2, 0), point(5, 0)}, Met},
		{claim{floor: 2, each: true}, []Point{point(1.99, 0), point(5, 0)}, Missed},
		{claim{floor: 2, each: true}, []Point{point(1.99, 0), point(0, 0)}, Missed},
		{claim{floor: 2, each: true}, []Point{point(2, 0), point(0, 0)}, Incomplete},
		{claim{floor: 2, each: true, instead: 0.95}, []Point{point(1, 0.96), point(2, 0.5)}, Met},
		{claim{floor: 2, each: true, instead: 0.95}, []Point{point(1, 0.94)}, Missed},
		{claim{floor: 2}, []Point{point(1, 0), point(4, 0)}, Met},
		{claim{floor: 2}, []Point{point(1, 0), point(3.9, 0)}, Missed},
		{claim{floor: 2}, []Point{point(1, 0), point(0, 0)}, Incomplete},
		{claim{floor: 2, least: 1}, []Point{point(0.99, 0), point(40, 0)}, Missed},
		{claim{floor: 2}, nil, NotMeasured},
	} {
		if got := c.claim.judge(c.points); got.Verdict != c.want {
			t.Errorf("%+v of %+v: %s, want %s", c.claim, c.points, got.Verdict, c.want)
		}
	}
}

// save writes a run and takes it over.
func save(t *testing.T, text string) (results, images string, err error) {
	t.Helper()
	from := t.TempDir()
	results, images = filepath.Join(t.TempDir(), "results"), t.TempDir()
	for name, text := range map[string]string{"bench.json": text, "run.json": "[]"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return results, images, Save(from, results, images)
}

func TestTables(t *testing.T) {
	if text, err := Markdown(t.TempDir()); err != nil || text != "No figure of a GPU exists yet.\n" {
		t.Errorf("%q: %v", text, err)
	}
	results, _, err := save(t, run)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Markdown(results)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Measured on NVIDIA H200, driver 580.1, CUDA 13.0, PyTorch 2.11, commit abc, 2026-01-02. A copy moves 4.30 TB/s",
		`The step "few columns" ended early: out of time.`,
		"| 2:4, f16, over cuBLASLt dense | 1.5 each, or level with cuSPARSELt within 5% | 1.25 | 1.25 | met (1 of 1) |",
		"| few columns, 70% zeros, f16, over cuBLASLt dense | 1.7 each | - | - | not measured (0 of 0) |",
		"| model | batch | PyTorch, eager | PyTorch, CUDA graph | PyTorch, compiled | PyTorch, compiled, CUDA graph | spc, dense | spc, 2:4 |",
		"| bert-base | 8 x 128 | 4.25 | 3 | - | 2 | 1.6 | 1 |",
		"| resnet50 | 1 | - | - | - | - | - | 0.5 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing from\n%s", want, text)
		}
	}
	if _, err := os.Stat(filepath.Join(results, "nvidia-h200.run.json")); err != nil {
		t.Error(err)
	}
}

// What is saved for picking kernels is what the run measured, with what follows from it.
func TestSavedGrid(t *testing.T) {
	_, images, err := save(t, run)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(images, backend.GridFile("sm_90")))
	if err != nil {
		t.Fatal(err)
	}
	g := &backend.GPUGrid{}
	if err := json.Unmarshal(text, g); err != nil {
		t.Fatal(err)
	}
	if g.Device != "NVIDIA H200" || g.Commit != "abc" || g.Driver != "580.1, CUDA 13.0" || g.Date != "2026-01-02" || g.Arch != "sm_90" {
		t.Errorf("%+v", g)
	}
	f := g.Kernels["f16_bitmap_a_mma"]
	if f == nil || len(f.Points) != 3 {
		t.Fatalf("%s", text)
	}
	if p := f.Points[0]; p.M != 64 || p.K != 32 || p.N != 16 || !near(p.Density, 0.35) || p.Us != 4 || p.Operations != 1e9 || p.Blocks != 300 || p.Unit != backend.TensorCores {
		t.Errorf("%+v", p)
	}
	if d := g.Kernels["f16_dense_d_mma"].Points[0].Density; d != 1 {
		t.Errorf("a dense kernel multiplies %v of the weight", d)
	}
	if !reflect.DeepEqual(g, parse(t, run).Grid()) {
		t.Error("the file is not the grid of the run")
	}
}

func TestTinyRunsAreNotSaved(t *testing.T) {
	results, images, err := save(t, strings.Replace(run, "{", `{"tiny": true, `, 1))
	if err == nil || !strings.Contains(err.Error(), "SPC_GPU_TINY") {
		t.Errorf("%v", err)
	}
	for _, dir := range []string{results, images} {
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
			t.Errorf("%v was written", files)
		}
	}
}

// docs/results/gpu.md has the tables of the committed results, whose claims and grids follow from them.
func TestDocumentHoldsTheResults(t *testing.T) {
	table, err := Markdown("../results")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../../docs/results/gpu.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := bench.Replace(string(have), Mark, table)
	if err != nil || want != string(have) {
		t.Errorf("go run ./tests/gpu/cmd writes the tables of docs/results/gpu.md: %v", err)
	}
	saved := map[string][]*backend.GPUGrid{} // by generation
	files, _ := filepath.Glob("../results/*.claims.json")
	for _, f := range files {
		r, err := Read(strings.TrimSuffix(f, ".claims.json") + ".json")
		if err != nil {
			t.Error(err)
			continue
		}
		again := filepath.Join(t.TempDir(), "claims.json")
		if err := r.WriteClaims(again); err != nil {
			t.Fatal(err)
		}
		a, _ := os.ReadFile(f)
		b, _ := os.ReadFile(again)
		if string(a) != string(b) {
			t.Errorf("%s is not what the measurements say: go run ./tests/gpu/cmd -save writes it", f)
		}
		g := r.Grid()
		saved[g.Arch] = append(saved[g.Arch], g)
	}
	for _, generation := range []string{"sm_80", "sm_90"} {
		g := backend.RatesOf(generation).Grid
		known := g == nil
		for _, s := range saved[generation] {
			known = known || reflect.DeepEqual(g, s)
		}
		if !known {
			t.Errorf("%s is of no committed result: go run ./tests/gpu/cmd -save writes it", backend.GridFile(generation))
		}
	}
}
