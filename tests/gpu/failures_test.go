//go:build !cuda

package gpu

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"spc/tests/simt"
)

// failure is what may be wrong with a GPU or its driver.
type failure struct {
	name string
	env  string // by which the emulator has it
	want string // an expression that the error or the warning matches
	// None of the GPU's is held in the end, not even a context: it was lost, or never opened.
	gone bool
}

const product = "f32_dense_64x64x16_simt" // a kernel that the demo's model runs

var failures = []failure{
	{"driver too old", "SPC_EMULATED_CUDA=11080", `no CUDA device: cuda:0 \(SIMT emulator\): the driver knows CUDA 11\.8, and kernels need 12\.0 or newer`, true},
	{"driver too old for assembly", "SPC_EMULATED_CUDA=12030 SPC_EMULATED_ARCH=100", `no CUDA device: cuda:0 \(SIMT emulator\): image \w+\.fatbin: cuModuleLoadFatBinary: CUDA_ERROR_UNSUPPORTED_PTX_VERSION, .*; the driver knows CUDA 12\.3, and kernels need 12\.4 or newer on sm_100`, true},
	{"driver of another version than its module", "SPC_EMULATED_FAULT=cuInit:803", `no CUDA device: the driver does not start: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, .*`, true},
	{"call that the driver lacks", "SPC_EMULATED_FAULT=cuMemAllocAsync:801", `cuda:0 \(SIMT emulator\): conv1 \(Conv\): \d+ bytes: cuMemAllocAsync: CUDA_ERROR_NOT_SUPPORTED, operation not supported`, false},
	{"GPU too old", "SPC_EMULATED_ARCH=75", `no CUDA device: cuda:0 \(SIMT emulator\): it is sm_75, and kernels need sm_80 or newer`, true},
	{"image for other GPUs", "SPC_EMULATED_FAULT=cuModuleLoadFatBinary:209", `no CUDA device: cuda:0 \(SIMT emulator\): image \w+\.fatbin: cuModuleLoadFatBinary: CUDA_ERROR_NO_BINARY_FOR_GPU, .*; kernels have no code for sm_80`, true},
	{"no context", "SPC_EMULATED_FAULT=cuDevicePrimaryCtxRetain:46", `cuda:0 \(SIMT emulator\): cuDevicePrimaryCtxRetain: CUDA error 46`, true},
	{"no memory for images", "SPC_EMULATED_FAULT=cuModuleLoadFatBinary:2", `cuda:0 \(SIMT emulator\): image \w+\.fatbin: cuModuleLoadFatBinary: CUDA_ERROR_OUT_OF_MEMORY, out of memory`, true},
	{"no memory for weights", "SPC_EMULATED_MEMORY=600000", `cuda:0 \(SIMT emulator\): hidden \(Gemm\): 524288 bytes: cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY, out of memory`, false},
	{"no memory for a run", "SPC_EMULATED_MEMORY=1010000", `cuda:0 \(SIMT emulator\): memory for a run: \d+ bytes: cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY, out of memory`, false},
	{"no pinned memory", "SPC_EMULATED_FAULT=cuMemHostAlloc:2", `cuda:0 \(SIMT emulator\): conv1 \(Conv\): cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY, out of memory`, false},
	{"no graph", "SPC_EMULATED_FAULT=cuGraphInstantiateWithFlags:2", `cuda:0 \(SIMT emulator\): kernels of conv1 \(Conv\) to classifier \(Gemm\): cuStreamEndCapture, cuGraphInstantiate: CUDA_ERROR_OUT_OF_MEMORY, out of memory`, false},
	{"kernel that fails", "SPC_EMULATED_FAULT=" + product, `cuda:0 \(SIMT emulator\): kernels of conv1 \(Conv\) to classifier \(Gemm\): cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED, unspecified launch failure`, true},
	{"kernel that takes too long", "SPC_EMULATED_FAULT=" + product + ":702", `cuda:0 \(SIMT emulator\): kernels of conv1 \(Conv\) to classifier \(Gemm\): cuStreamSynchronize: CUDA_ERROR_LAUNCH_TIMEOUT, the launch timed out and was terminated`, true},
	{"address of nothing", "SPC_EMULATED_FAULT=" + product + ":700", `cuda:0 \(SIMT emulator\): kernels of .*: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS, .*`, true},
	{"bits that flipped", "SPC_EMULATED_FAULT=cuMemcpyHtoDAsync_v2:214", `cuda:0 \(SIMT emulator\): conv1 \(Conv\): cuMemcpyHtoDAsync: CUDA_ERROR_ECC_UNCORRECTABLE, .*`, true},
	{"library's product that fails", "SPC_EMULATED_FAULT=cublasLtMatmul:13", `cuda:0 \(SIMT emulator\): kernels of conv1 \(Conv\) to classifier \(Gemm\): conv1 \(Conv\): kernel f32_cublaslt: cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED`, false},
	{"library's second product on a GPU that goes", "SPC_EMULATED_FAULT=cublasLtMatmul:14:700@2", `cuda:0 \(SIMT emulator\): kernels of conv1 \(Conv\) to classifier \(Gemm\): conv2 \(Conv\): kernel f32_cublaslt: cublasLtMatmul: CUBLAS_STATUS_INTERNAL_ERROR; cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS, .*`, true},
	{"library's kernel that takes too long", "SPC_EMULATED_FAULT=cublaslt_product:702", `cuda:0 \(SIMT emulator\): kernels of conv1 \(Conv\) to classifier \(Gemm\): cuStreamSynchronize: CUDA_ERROR_LAUNCH_TIMEOUT, .*`, true},
	{"library without memory for descriptions", "SPC_EMULATED_FAULT=cublasLtMatrixLayoutCreate:3", `cuda:0 \(SIMT emulator\): conv1 \(Conv\): cublaslt: cublasLtMatrixLayoutCreate: CUBLAS_STATUS_ALLOC_FAILED`, false},
	{"library that finds the GPU lost", "SPC_EMULATED_FAULT=cublasLtCreate:1:999", `cuda:0 \(SIMT emulator\): [^:]*/libcublasLt\.so\.12: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED; cuStreamQuery: CUDA_ERROR_UNKNOWN, unknown error`, true},
	{"GPU that goes in a run", "SPC_EMULATED_FAULT=cuGraphLaunch:999", `cuda:0 \(SIMT emulator\): kernels of .*: cuGraphLaunch: CUDA_ERROR_UNKNOWN, unknown error`, true},
}

// What fails of a GPU is one line that names the GPU, the step and the layer, and nothing that a
// model held is held in the end. With --device auto the line is a warning, and the CPU does the work.
func TestFailuresOfEmulatedGPUs(t *testing.T) {
	own, both := library(t), libraries(t)
	const model = "../../demo/model.onnx"
	want, err := run(t, nil, "run", model, "-i", "random:1", "--json")
	if err != nil {
		t.Fatal(want)
	}
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "held")
			lib, choice := own, "off"
			if strings.Contains(f.env, "cublas") {
				lib, choice = both, "always"
			}
			env := append([]string{lib, "SPC_EMULATED_HELD=" + file}, strings.Fields(f.env)...)
			for _, c := range []struct {
				device, json, want string
				fail               bool
			}{
				{"cuda", "--json=false", `^spc: (--device cuda|\.\./\.\./demo/model\.onnx): ` + f.want + `\n$`, true},
				{"auto", "--json=false", `^spc: warning: ` + f.want + `; the CPU takes over\noutput `, false},
				{"auto", "--json", `^` + regexp.QuoteMeta(want) + `$`, false},
			} {
				os.Remove(file)
				out, err := run(t, env, "run", model, "-i", "random:1", "--device", c.device, "--libraries", choice, c.json)
				if (err != nil) != c.fail || !regexp.MustCompile(c.want).MatchString(out) {
					t.Errorf("--device %s %s: %v\n%s", c.device, c.json, err, out)
				}
				held := simt.ReadHeld(t, file)
				if held.Memory+held.Pinned+held.Graphs+held.Events+held.Objects > 0 || held.Streams > 1 || f.gone && held != (simt.Held{}) {
					t.Errorf("--device %s %s: %+v is held", c.device, c.json, held)
				}
			}
		})
	}
}

// A library that is not there, or is none that can be used, is passed over: devices says why, own kernels compute,
// and who always asks for cuBLASLt gets an error that names the GPU.
func TestUnusableLibraries(t *testing.T) {
	driver := library(t)
	compiler := cmp.Or(os.Getenv("CC"), "gcc")
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skip("skipped: no C compiler")
	}
	// file puts a library of that name into a folder: a text where code is empty.
	file := func(name, code string) string {
		dir := t.TempDir()
		source, to := filepath.Join(dir, "source.c"), filepath.Join(dir, name)
		if err := os.WriteFile(source, []byte(code), 0o666); err != nil {
			t.Fatal(err)
		}
		if code == "" {
			if err := os.WriteFile(to, []byte("no library, but long enough to be read as one, had it begun as one does, with the magic number\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		} else if out, err := exec.CommandContext(t.Context(), compiler, "-shared", "-fPIC", "-o", to, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return dir
	}
	linked := func(name string) string {
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(simt.CuBLASLt(t), "libcublasLt.so.12"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const blas, sparse, none = "cuBLASLt", "cuSPARSELt", `there is no libcublasLt\.so\.12 or libcublasLt\.so\.11`
	for _, c := range []struct {
		name, library, dir, env string
		why                     string // an expression, empty where the library is used
	}{
		{"none", blas, t.TempDir(), "", none},
		{"for a newer driver", blas, linked("libcublasLt.so.13"), "", none},
		{"for the driver", blas, linked("libcublasLt.so.13"), "SPC_EMULATED_CUDA=13000", ""},
		{"for an older driver", blas, linked("libcublasLt.so.11"), "", ""},
		{"newer than all that are known", blas, linked("libcublasLt.so.14"), "SPC_EMULATED_CUDA=14000", `there is no libcublasLt\.so\.13 or libcublasLt\.so\.12 or libcublasLt\.so\.11`},
		{"without any call", blas, file("libcublasLt.so.12", "int nothing;"), "", `/.*/libcublasLt\.so\.12: undefined symbol: cublasLtGetVersion`},
		{"without a call", blas, file("libcublasLt.so.12", "long cublasLtGetVersion(void) { return 120000; }"), "", `/.*/libcublasLt\.so\.12: undefined symbol: cublasLtCreate`},
		{"no library", blas, file("libcublasLt.so.12", ""), "", `/.*/libcublasLt\.so\.12: invalid ELF header`},
		{"none", sparse, t.TempDir(), "", `there is no libcusparseLt\.so\.0`},
		{"without any call", sparse, file("libcusparseLt.so.0", "int nothing;"), "", `/.*/libcusparseLt\.so\.0: undefined symbol: cusparseLtGetProperty`},
		{"no library", sparse, file("libcusparseLt.so.0", ""), "", `/.*/libcusparseLt\.so\.0: invalid ELF header`},
	} {
		env := []string{driver, "SPC_CUDA_LIBRARIES=" + c.dir, c.env}
		want := `(?m)^own kernels in place of ` + c.library + `: ` + c.why + `$`
		if c.why == "" {
			want = `(?m)^` + c.library + ` 12\.4\.2: /`
		}
		out, err := run(t, env, "devices")
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s %s: %v, want %s\n%s", c.library, c.name, err, want, out)
		}
		if c.library != blas {
			continue
		}
		for _, choice := range []string{"auto", "always"} {
			fail, want := choice == "always" && c.why != "", `^output `
			if fail {
				want = `^spc: \.\./\.\./demo/model\.onnx: cuda:0 \(SIMT emulator\): [^\n]*` + c.why + `\n$`
			}
			out, err := run(t, env, "run", "../../demo/model.onnx", "-i", "random:1", "--device", "cuda", "--libraries", choice)
			if (err != nil) != fail || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s %s, %s: %v, want %s\n%s", c.library, c.name, choice, err, want, out)
			}
		}
	}
}

// bench says what it measured where the CPU took over, and that was measured on the CPU alone, whichever run failed:
// the emulator takes very much longer.
func TestBenchOfFailingGPUs(t *testing.T) {
	lib := library(t)
	type report struct {
		Device string
		Ms     struct{ Mean float64 }
		Graphs int
		Layers []struct {
			Name, CPU string
			Us        float64
		}
	}
	const runs, warmup, part = 3, 1, "cuMemcpyDtoHAsync_v2:719@" // a call that each run makes once
	bench := func(env, device string) (b report) {
		t.Helper()
		out, err := run(t, []string{lib, env}, "bench", "../../demo/model.onnx", "--runs", fmt.Sprint(runs), "--warmup", fmt.Sprint(warmup), "--json", "--device", device)
		if err != nil || json.Unmarshal([]byte(out), &b) != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return b
	}
	gpu := bench("", "auto")
	sum := func(b report) (us float64) {
		for _, l := range b.Layers {
			us += l.Us
		}
		return us
	}
	for _, c := range []struct{ name, env, device, want string }{
		{"a GPU", "", "auto", "cuda:0"},
		{"a GPU by name", "", "cuda", "cuda"},
		{"no GPU", "SPC_EMULATED_GPUS=0", "auto", "cpu"},
		{"a GPU that fails", "SPC_EMULATED_FAULT=" + product, "auto", "cpu"},
		{"in the second run", fmt.Sprint("SPC_EMULATED_FAULT=", part, 2), "auto", "cpu"},
		{"in the last run", fmt.Sprint("SPC_EMULATED_FAULT=", part, warmup+runs), "auto", "cpu"},
		{"in the first profile", fmt.Sprint("SPC_EMULATED_FAULT=", part, warmup+runs+1), "auto", "cpu"},
		{"in the last profile", fmt.Sprint("SPC_EMULATED_FAULT=", part, warmup+runs+runs), "auto", "cpu"},
		{"after the last profile", fmt.Sprint("SPC_EMULATED_FAULT=", part, warmup+runs+runs+1), "auto", "cuda:0"},
	} {
		b := bench(c.env, c.device)
		if b.Device != c.want || len(b.Layers) == 0 {
			t.Errorf("%s: on %q, %d layers", c.name, b.Device, len(b.Layers))
		}
		seen := map[string]bool{}
		for _, l := range b.Layers {
			if seen[l.Name] || l.Us <= 0 {
				t.Errorf("%s: layer %s comes twice, or took %v us", c.name, l.Name, l.Us)
			}
			seen[l.Name] = true
		}
		cpu := c.want == "cpu"
		if (b.Graphs == 0) != cpu || cpu && (b.Ms.Mean > gpu.Ms.Mean/(2*runs) || sum(b) > sum(gpu)/(2*runs)) {
			t.Errorf("%s: %d graphs, %v ms a run and %v us of layers, %v and %v on the emulator", c.name, b.Graphs, b.Ms.Mean, sum(b), gpu.Ms.Mean, sum(gpu))
		}
	}
}

// devices lists a GPU that nothing runs on, and why.
func TestDevicesThatNothingRunsOn(t *testing.T) {
	out, err := run(t, []string{library(t), "SPC_EMULATED_ARCH=75"}, "devices", "--json")
	var found struct {
		Devices []struct{ Name, Arch, Problem string }
	}
	if err != nil || json.Unmarshal([]byte(out), &found) != nil || len(found.Devices) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	if d := found.Devices[1]; d.Name != "cuda:0" || d.Arch != "sm_75" || !strings.Contains(d.Problem, "kernels need sm_80") {
		t.Errorf("%+v", d)
	}
}

// An interrupt ends a run whose kernel does not end.
func TestInterruptOfAKernel(t *testing.T) {
	slow := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(slow, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	c := command(t, []string{library(t), "SPC_EMULATED_SLOW=" + product + ":" + slow}, "run", "../../demo/model.onnx", "-i", "random:1", "--device", "cuda")
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil {
		if _, err := os.Stat(slow + ".begun"); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	c.Wait()
	if c.ProcessState.ExitCode() != 130 || said.String() != "spc: interrupted\n" {
		t.Errorf("exit status %d\n%s", c.ProcessState.ExitCode(), &said)
	}
}

// The tests of faults pass on two emulated GPUs with libraries, and none is skipped.
func TestFaultsOfEmulatedGPUs(t *testing.T) {
	env := []string{libraries(t), "SPC_EMULATED_GPUS=2", "SPC_EMULATED_HELD=" + filepath.Join(t.TempDir(), "held")}
	out, err := tagged(t, env, "test", "-race", "-count=1", "-v", "-run", "Fault|Failed|FallBack|Cancelled|Handles", ".")
	if err != nil || strings.Contains(out, "SKIP") || strings.Count(out, "--- PASS") < 70 {
		t.Errorf("%v\n%s", err, out)
	}
}

// A GPU is not opened again while a library holds its lost context.
func TestHeldContextOfAnEmulatedGPU(t *testing.T) {
	env := []string{libraries(t), "SPC_EMULATED_GPUS=2", "SPC_EMULATED_CUBLASLT=holds", "SPC_EMULATED_HELD=" + filepath.Join(t.TempDir(), "held")}
	out, err := tagged(t, env, "test", "-count=1", "-v", "-run", "^TestLostContextThatALibraryHolds$", ".")
	if err != nil || !strings.Contains(out, "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
