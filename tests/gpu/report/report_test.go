package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spc/tests/bench"
)

const run = `{"device": "NVIDIA H200", "driver": "13.0", "torch": "2.11", "date": "2026-01-02", "commit": "abc",
"ceilings": {"copy_bytes_per_second": 4.3e12, "matmul_f16_flops": 7.9e14, "matmul_f32_flops": 5e13},
"models": [{"model": "resnet50", "pytorch_ms": {"eager": {"median": 4.25}, "compiled": {"error": "no"}}, "ms": {"2:4": {"p50": 0.5}}}],
"kernels": [
{"shape": "square", "m": 64, "k": 32, "n": 16, "pattern": "uniform", "sparsity": 0.8, "us": {"cuBLAS dense": {"median": 10}, "ell f16_x_mma*": {"median": 4},
"csr f16_y_simt*": {"median": 5}, "ell f16_z_simt": {"median": 1}, "cuSPARSE CSR": {"median": 20}}},
{"shape": "square", "m": 64, "k": 32, "n": 1, "pattern": "uniform", "sparsity": 0.8, "us": {"cuBLAS dense": {"median": 10}}},
{"shape": "square", "error": "out of time"}]}`

func TestTables(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "results")
	for name, text := range map[string]string{"bench.json": run, "run.json": "[]"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := Markdown(to); err != nil || text != "No figure of a GPU exists yet.\n" {
		t.Errorf("%q: %v", text, err)
	}
	if err := Save(from, to); err != nil {
		t.Fatal(err)
	}
	text, err := Markdown(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Measured on NVIDIA H200, driver for CUDA 13.0, PyTorch 2.11, commit abc, 2026-01-02. A copy moves 4.30 TB/s",
		"| resnet50 | 4.25 | - | - | - | - | 0.5 | - |",
		"| square, 64 x 32 | uniform | 80% | - (-) | 2.50 (0.50) |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing from\n%s", want, text)
		}
	}
	if _, err := os.Stat(filepath.Join(to, "nvidia-h200.run.json")); err != nil {
		t.Error(err)
	}
}

// The README has the tables of the committed results.
func TestReadmeHoldsTheResults(t *testing.T) {
	table, err := Markdown("../results")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := bench.Replace(string(have), Mark, table)
	if err != nil || want != string(have) {
		t.Errorf("go run ./tests/gpu/cmd writes the README's tables: %v", err)
	}
}
