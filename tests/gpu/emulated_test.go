//go:build !cuda

// Package gpu has the tests of the CUDA back end on a GPU, with the tag cuda, and what runs
// them on emulated ones: without the tag the same tests, and the command line, run with the
// emulator in the place of libcuda.so.1.
package gpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spc/tests/simt"
)

// include is a folder that has cuda.h, or empty.
func include(t *testing.T) string {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(os.Getenv("CUDA_HOME"), "include"), filepath.Join(root, "out/nvcc/usr/include"), "/usr/local/cuda/include", "/usr/include"} {
		if _, err := os.Stat(filepath.Join(dir, "cuda.h")); err == nil {
			return dir
		}
	}
	return ""
}

// tagged runs the go command with the tag cuda, and returns its output.
func tagged(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	dir := include(t)
	if dir == "" {
		t.Skip("skipped: the binding of the driver needs cuda.h; make out/nvcc/nvcc fetches one")
	}
	own := []string{args[0], "-tags", "cuda"}
	if args[0] == "test" {
		own = append(own, "-timeout=0", "-vet=off", "-ldflags=-w") // the time of this test holds
	}
	c := exec.CommandContext(t.Context(), "go", append(own, args[1:]...)...)
	c.Env = append(append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -I"+dir), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func library(t *testing.T) string {
	return "LD_LIBRARY_PATH=" + simt.Library(t, "backend/format", "backend/cuda/kernels")
}

// libraries is library with cuBLASLt and cuSPARSELt beside the driver.
func libraries(t *testing.T) string {
	return library(t) + ":" + simt.CuBLASLt(t) + ":" + simt.CuSPARSELt(t)
}

// The tests pass on an emulated GPU, none of them skipped but for its own reason. Those of
// kernels alone are left to tests/simt, which runs them in each order of their threads, and
// checks what they touch.
func TestSuiteOnEmulatedGPU(t *testing.T) {
	out, err := tagged(t, []string{library(t), "SPC_EMULATED_ORDER=1"}, "test", "-short", "-count=1", "-v", "-skip", "^(TestKernelsOfFormats|TestKernelsOfFormats8|TestWarpgroups)$", ".")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "passed") || strings.Contains(line, "launches") || strings.Contains(line, "SKIP") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if err != nil || strings.Contains(out, "no CUDA device") {
		t.Errorf("%v\n%s", err, out)
	}
}

// With cuBLASLt beside the driver the same models give the same, whether it has a way to
// compute their products or not.
func TestLibraryOnEmulatedGPU(t *testing.T) {
	driver := libraries(t)
	for _, c := range []struct {
		name, emulated, run string
		used                bool
	}{
		{"products", "", "^(TestLibrary|TestSparseLibrary|TestOverlap|TestPrograms)$", false},
		{"models", "", "^TestTrainedModels$/^(mnist-8|resnet20-cifar10|vit-cifar10)$", true},
		{"has no way", "cublasLtMatmulAlgoGetHeuristic:15", "^TestTrainedModels$/^(mnist-8|vit-cifar10)$", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := tagged(t, []string{driver, "SPC_EMULATED_FAULT=" + c.emulated}, "test", "-count=1", "-v", "-run", c.run, ".")
			for line := range strings.Lines(out) {
				if strings.Contains(line, "of a library") {
					t.Log(strings.TrimSpace(line))
				}
			}
			used := regexp.MustCompile(`[1-9]\d* products of a library`).MatchString(out)
			if err != nil || used != c.used || strings.Contains(out, "SKIP") && !strings.Contains(out, "shared data missing") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The numbers by which the binding calls cuBLASLt are those of NVIDIA's header.
func TestNumbersOfCuBLASLt(t *testing.T) {
	dir := include(t)
	if _, err := os.Stat(filepath.Join(dir, "cublasLt.h")); dir == "" || err != nil {
		t.Skip("skipped: no cublasLt.h; make out/nvcc/nvcc fetches one")
	}
	own, err := filepath.Abs("../../backend/cuda/driver/cublaslt.h")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	numbers := regexp.MustCompile(`(?m)^  (lt\w+) = \d+, +// (CU\w+)`).FindAllStringSubmatch(string(text), -1)
	code := "#include <cublasLt.h>\n#include \"" + own + "\"\n"
	for _, n := range numbers {
		code += fmt.Sprintf("_Static_assert((int)%s == (int)%s, \"%s\");\n", n[1], n[2], n[2])
	}
	for _, member := range []string{"workspace workspaceSize", "state state", "reserved reserved"} {
		have, want, _ := strings.Cut(member, " ")
		code += fmt.Sprintf("_Static_assert(offsetof(spc_lt_heuristic, %s) == offsetof(cublasLtMatmulHeuristicResult_t, %s), \"%s\");\n", have, want, want)
	}
	code += "_Static_assert(sizeof(spc_lt_heuristic) == sizeof(cublasLtMatmulHeuristicResult_t), \"its size\");\n"
	if want := strings.Count(string(text), "\n  lt"); len(numbers) != want {
		t.Errorf("%d numbers with their names, want %d", len(numbers), want)
	}
	compiler := cmp.Or(os.Getenv("CC"), "gcc")
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skip("skipped: no C compiler")
	}
	c := exec.CommandContext(t.Context(), compiler, "-std=c11", "-fsyntax-only", "-I", dir, "-x", "c", "-")
	c.Stdin = strings.NewReader(code)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// python makes a folder like the site-packages of Python, with cuBLASLt.
func python(t *testing.T) string {
	dir := t.TempDir()
	from, to := filepath.Join(simt.CuBLASLt(t), "libcublasLt.so.12"), filepath.Join(dir, "nvidia/cublas/lib")
	if err := os.MkdirAll(to, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(from, filepath.Join(to, "libcublasLt.so.12")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What the benchmark launches from Python are the kernels, with the parameters that they take.
func TestKernelsFromPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3")
	}
	lib := filepath.Join(t.TempDir(), "libspcgpu.so")
	c := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", lib, "./lib")
	c.Env = append(os.Environ(), "CGO_ENABLED=1")
	driver := library(t) // which skips where there is no compiler
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c = exec.CommandContext(t.Context(), python, "-B", "check.py", lib, "../../backend/cuda/image")
	c.Env = append(os.Environ(), driver)
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "kernels agree") {
		t.Errorf("%v\n%s", err, out)
	}
	// The others need PyTorch.
	if out, err := exec.CommandContext(t.Context(), python, "-B", "-c", "import ast, glob; [ast.parse(open(f).read()) for f in glob.glob('*.py')]").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// binaries is a folder for what the tests build.
var binaries string

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "spc-gpu"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(binaries)
	os.Exit(code)
}

// command is the command line, which it builds where no test has done so.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	spc := filepath.Join(binaries, "spc")
	if _, err := os.Stat(spc); err != nil {
		if out, err := tagged(t, nil, "build", "-o", spc, "../../cmd/spc"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	c := exec.CommandContext(t.Context(), spc, args...)
	c.Env = append(os.Environ(), env...)
	return c
}

// run runs the command line.
func run(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	out, err := command(t, env, args...).CombinedOutput()
	return string(out), err
}

// The command line finds GPUs, runs models on them, and says what is wrong.
func TestCommandsOnEmulatedGPUs(t *testing.T) {
	lib := library(t)
	const model = "../../demo/model.onnx"
	halves := filepath.Join(t.TempDir(), "halves.spx")
	if out, err := run(t, nil, "compile", model, "-o", halves, "--pattern", "2:4", "--format", "nm"); err != nil {
		t.Fatal(out)
	}
	sparse := filepath.Join(t.TempDir(), "sparse.spx")
	if out, err := run(t, nil, "compile", model, "-o", sparse, "--sparsity", "0.7"); err != nil {
		t.Fatal(out)
	}
	integers := filepath.Join(t.TempDir(), "int8.spx")
	if out, err := run(t, nil, "compile", model, "-o", integers, "--target", "cuda", "--quantize", "int8", "--pattern", "2:4", "--format", "nm", "--calib", "random:1"); err != nil {
		t.Fatal(out)
	}

	out, err := run(t, []string{lib, "SPC_EMULATED_GPUS=2"}, "devices", "--json")
	var found struct {
		Devices []struct {
			Name, Arch, Driver string
			Memory             int64
		}
		NoCUDA string `json:"no_cuda"`
	}
	if err != nil || json.Unmarshal([]byte(out), &found) != nil || len(found.Devices) != 3 || found.NoCUDA != "" {
		t.Fatalf("%v\n%s", err, out)
	}
	if d := found.Devices[2]; d.Name != "cuda:1" || d.Arch != "sm_80" || d.Memory < 1<<30 || d.Driver != "12.4" {
		t.Errorf("%+v", d)
	}

	cublaslt := lib + ":" + simt.CuBLASLt(t)
	both := cublaslt + ":" + simt.CuSPARSELt(t)
	for _, c := range []struct {
		name string
		env  []string
		args []string
		fail bool
		want string // an expression
	}{
		{"a GPU", []string{lib}, []string{"run", sparse, "-i", "random:1", "--device", "cuda"}, false, `logits`},
		{"the second GPU", []string{lib, "SPC_EMULATED_GPUS=2"}, []string{"verify", sparse, sparse, "--device", "cuda:1", "--tolerance", "1e-5"}, false, `(?i)pass`},
		{"f16", []string{lib}, []string{"verify", sparse, sparse, "--device", "cuda", "--precision", "f16", "--tolerance", "1e-2"}, false, `(?i)pass`},
		{"8-bit integers", []string{lib}, []string{"verify", integers, integers, "--device", "cuda", "--tolerance", "1e-2"}, false, `(?i)pass`},
		{"8-bit integers and f16", []string{lib}, []string{"verify", integers, integers, "--device", "cuda", "--precision", "f16", "--tolerance", "2e-2"}, false, `(?i)pass`},
		{"libraries on the CPU", nil, []string{"run", sparse, "--libraries", "always"}, true, `^spc: --libraries always: the CPU uses none\n$`},
		{"f16 on the CPU", nil, []string{"run", sparse, "--precision", "f16"}, true, `^spc: --precision f16: the CPU computes in f32\n$`},
		{"no such precision", []string{lib}, []string{"run", sparse, "--device", "cuda", "--precision", "f8"}, true, `^spc: --precision "f8": want one of f32, f16, bf16 \(see spc run --help\)\n$`},
		{"bench", []string{lib}, []string{"bench", sparse, "--device", "cuda", "--runs", "2"}, false, `(?s)cuda, .*\n1 CUDA graph on the GPU, 0 layers on the CPU\n`},
		{"bench where a GPU is", []string{lib}, []string{"bench", sparse, "--device", "auto", "--runs", "2"}, false, `(?s)cuda:0, .*\n1 CUDA graph on the GPU, 0 layers on the CPU\n`},
		{"a GPU where there is one", []string{lib}, []string{"verify", model, model, "--device", "auto", "--tolerance", "1e-5"}, false, `(?i)pass`},
		{"the CPU without a driver", []string{"LD_LIBRARY_PATH="}, []string{"run", sparse, "-i", "random:1", "--device", "auto"}, false, `logits`},
		{"the CPU without a GPU", []string{lib, "SPC_EMULATED_GPUS=0"}, []string{"run", sparse, "-i", "random:1", "--device", "auto"}, false, `logits`},
		{"nothing is said without a driver", []string{"LD_LIBRARY_PATH="}, []string{"run", sparse, "-i", "random:1"}, false, `^output `},
		{"no driver", []string{"LD_LIBRARY_PATH="}, []string{"run", sparse, "-i", "random:1", "--device", "cuda"}, true, `^spc: --device cuda: no CUDA device: libcuda\.so\.1: .*\n$`},
		{"no driver for a server", []string{"LD_LIBRARY_PATH="}, []string{"serve", sparse, "--http", "127.0.0.1:0", "--grpc", "none", "--device", "cuda"}, true, `^spc: --device cuda: no CUDA device: libcuda\.so\.1: .*\n$`},
		{"no GPU", []string{lib, "SPC_EMULATED_GPUS=0"}, []string{"run", sparse, "-i", "random:1", "--device", "cuda"}, true, `^spc: --device cuda: no CUDA device: the driver finds no GPU\n$`},
		{"no such GPU", []string{lib}, []string{"run", sparse, "-i", "random:1", "--device", "cuda:3"}, true, `^spc: --device cuda:3: no CUDA device: there is no GPU 3; there are 1, numbered from 0\n$`},
		{"no such device", []string{lib}, []string{"run", sparse, "--device", "gpu"}, true, `^spc: device "gpu", want cpu, cuda, cuda:N or auto\n$`},
		{"a library", []string{cublaslt}, []string{"devices"}, false, `(?m)^cuBLASLt 12\.4\.2: /.*/libcublasLt\.so\.12$`},
		{"a library of Python's", []string{lib, "SPC_CUDA_LIBRARIES=" + python(t)}, []string{"devices"}, false, `(?m)^cuBLASLt 12\.4\.2: /.*/nvidia/cublas/lib/libcublasLt\.so\.12$`},
		{"no library", []string{lib}, []string{"devices"}, false, `(?m)^own kernels in place of cuBLASLt: there is no libcublasLt\.so\.12 or libcublasLt\.so\.11$`},
		{"products of a library", []string{cublaslt}, []string{"verify", model, model, "--device", "cuda", "--libraries", "always", "--tolerance", "1e-5"}, false, `(?i)pass`},
		{"in f16", []string{cublaslt}, []string{"verify", model, model, "--device", "cuda", "--libraries", "always", "--precision", "f16", "--tolerance", "1e-2"}, false, `(?i)pass`},
		{"a library for 2:4 weights", []string{both}, []string{"devices"}, false, `(?m)^cuSPARSELt 0\.8\.1: /.*/libcusparseLt\.so\.0$`},
		{"one that is too old", []string{both, "SPC_EMULATED_CUSPARSELT=400"}, []string{"devices"}, false, `(?m)^own kernels in place of cuSPARSELt: libcusparseLt\.so\.0 is version 0\.4\.0, want at least 0\.6\.0$`},
		{"2:4 weights", []string{both}, []string{"verify", halves, halves, "--device", "cuda", "--libraries", "always", "--precision", "bf16", "--tolerance", "8e-2"}, false, `(?i)pass`},
		{"2:4 weights that it has no way for", []string{both, "SPC_EMULATED_FAULT=cusparseLtMatmulAlgSelectionInit:10"}, []string{"verify", halves, halves, "--device", "cuda", "--libraries", "always", "--precision", "f16", "--tolerance", "1e-2"}, false, `(?i)pass`},
		{"2:4 weights that fail", []string{both, "SPC_EMULATED_FAULT=cusparseLtMatmul:6"}, []string{"run", halves, "-i", "random:1", "--device", "cuda", "--libraries", "always", "--precision", "f16"}, true, `(?m)^spc: .*halves\.spx: cuda:0 \(SIMT emulator\): kernels of conv1 \(Conv\) to classifier \(Gemm\): conv\d \(Conv\): kernel f16_cusparselt: cusparseLtMatmul: CUSPARSE_STATUS_EXECUTION_FAILED\n$`},
		{"none is asked for", []string{cublaslt, "SPC_EMULATED_FAULT=cublasLtMatmul:13"}, []string{"run", model, "-i", "random:1", "--device", "cuda", "--libraries", "off"}, false, `logits`},
		{"a library that fails", []string{cublaslt, "SPC_EMULATED_FAULT=cublasLtMatmul:13"}, []string{"run", model, "-i", "random:1", "--device", "cuda", "--libraries", "always"}, true, `(?m)^spc: .*model\.onnx: cuda:0 \(SIMT emulator\): kernels of conv1 \(Conv\) to classifier \(Gemm\): conv1 \(Conv\): kernel f32_cublaslt: cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED\n$`},
		{"a library that takes no GPU", []string{cublaslt, "SPC_EMULATED_FAULT=cublasLtCreate:1"}, []string{"run", model, "-i", "random:1", "--device", "cuda"}, false, `logits`},
		{"and is asked for", []string{cublaslt, "SPC_EMULATED_FAULT=cublasLtCreate:1"}, []string{"run", model, "-i", "random:1", "--device", "cuda", "--libraries", "always"}, true, `(?m)^spc: .*model\.onnx: .*cuda:0 \(SIMT emulator\): /.*libcublasLt\.so\.12: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED\n$`},
		{"no library where one is asked for", []string{lib}, []string{"run", model, "-i", "random:1", "--device", "cuda", "--libraries", "always"}, true, `(?m)^spc: .*there is no libcublasLt\.so\.12 or libcublasLt\.so\.11\n$`},
		{"no such choice", []string{lib}, []string{"run", model, "--device", "cuda", "--libraries", "some"}, true, `^spc: --libraries "some": want one of auto, off, always \(see spc run --help\)\n$`},
	} {
		out, err := run(t, c.env, c.args...)
		if (err != nil) != c.fail || !regexp.MustCompile(c.want).MatchString(out) {
			t.Errorf("%s: %v\n%s", c.name, err, out)
		}
	}
}
