//go:build cuda

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"spc"
	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/cuda"
	"spc/backend/cuda/driver"
	"spc/backend/format"
	"spc/backend/predict"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/tests/graphtest"
	"spc/tests/simt"
)

// emulated returns the file that says what is held of emulated GPUs.
func emulated(t *testing.T) string {
	t.Helper()
	file := os.Getenv("SPC_EMULATED_HELD")
	if file == "" {
		t.Skip("skipped: GPUs fail as they are told on the emulated driver only")
	}
	return file
}

// program is a small program on a device; inputs of different numbers of rows are bound anew.
type program struct {
	backend.Program
	graph     *ir.Graph
	tolerance float64
}

func load(t *testing.T, d backend.Device, o backend.Options) program {
	t.Helper()
	g := graphtest.Parse(t, `graph "g"(%x: f32[n,4]) {
  %w: f32[4,3] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0, -2.0, 1.0, 0.75, 0.5}
  %h: f32[n,3] = MatMul "fc" (%x, %w)
  %y: f32[n,3] = Sigmoid "sigmoid" (%h)
  return %y
}`)
	p, err := d.Load(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return program{p, g, 1e-5}
}

// product is such a graph of a product that libraries compute, with a bias, and as formats store its weight.
func product(t *testing.T, formats string) (plain, stored *ir.Graph) {
	t.Helper()
	const k, m = 64, 16
	weight, bias := make([]string, k*m), make([]string, m)
	for i := range weight { // 2 of 4 along k
		weight[i] = "0.0"
		if row, col := i/m, i%m; row%4 == col%3 || row%4 == 3 {
			weight[i] = fmt.Sprintf("%.2f", float64(i%5-2)/4)
		}
	}
	for i := range bias {
		bias[i] = fmt.Sprintf("%.1f", float64(i)/2)
	}
	plain = graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[n,%d]) {
  %%w: f32[%d,%d] = const {%s}
  %%b: f32[%d] = const {%s}
  %%h: f32[n,%d] = MatMul "fc" (%%x, %%w, %%b)
  %%y: f32[n,%d] = Sigmoid "sigmoid" (%%h)
  return %%y
}`, k, k, m, strings.Join(weight, ", "), m, strings.Join(bias, ", "), m, m))
	stored = plain.Clone()
	rates := backend.RatesOf("sm_80")
	if _, _, err := choose.Run(stored, format.GPUChoices(rates, tensor.F16), predict.GPU(rates), choose.Options{Format: formats}); err != nil {
		t.Fatal(err)
	}
	return plain, stored
}

// loadProduct loads a product in f16.
func loadProduct(t *testing.T, d cuda.Device, formats string) (program, error) {
	t.Helper()
	d.Precision = tensor.F16
	plain, stored := product(t, formats)
	p, err := d.Load(stored, backend.Options{Threads: 1})
	return program{p, plain, 2e-3}, err
}

func gpu(t *testing.T, ordinal int) cuda.Device {
	t.Helper()
	d, err := driver.Open(ordinal)
	if err != nil {
		t.Fatal(err)
	}
	return cuda.Device{Driver: d, Libraries: cuda.NoLibraries}
}

// run runs the program on so many rows, and compares what it gives.
func (p program) run(ctx context.Context, rows int, trace func(*ir.Node, time.Duration)) error {
	x := tensor.New(tensor.F32, rows, p.graph.Inputs[0].Type.Dims[1].Size())
	for i := range x.F32s() {
		x.F32s()[i] = float32(i%7) - 3
	}
	out := make([]*tensor.Tensor, 1)
	if err := p.Trace(ctx, []*tensor.Tensor{x}, out, trace); err != nil {
		if out[0] != nil {
			return fmt.Errorf("an output after %w", err)
		}
		return err
	}
	return graphtest.Run(context.Background(), p.graph, func(yield func([]*tensor.Tensor, error) bool) { yield([]*tensor.Tensor{x}, nil) }, func(want []*tensor.Tensor) error {
		if d := graphtest.Difference(want[0], out[0]); !(d < p.tolerance) {
			return fmt.Errorf("outputs are off by %v", d)
		}
		return nil
	})
}

const known, fresh = 8, 16 // rows, as many as cuSPARSELt takes

// fault is how a GPU fails in a run.
type fault struct {
	told   string // the emulator, SPC_EMULATED_FAULT
	rows   int
	traced bool
	want   string // an expression for the step and the reason
	lost   bool
	later  string // an expression for why a later run fails, where the GPU was lost
}

func (f *fault) String() string {
	return fmt.Sprintf("%s, %d rows, traced %v", f.told, f.rows, f.traced)
}

// test has four runs of a program at once fail so, and then another program be run.
func (f *fault) test(t *testing.T, file string, load func(ordinal int) program) {
	other := load(1)
	defer other.Close()
	for range 2 { // which makes its graph, too
		if err := other.run(t.Context(), known, nil); err != nil {
			t.Fatal(err)
		}
	}
	gpu(t, 0)
	before := simt.ReadHeld(t, file)
	p, idle := load(0), load(0)
	for _, p := range []program{p, idle} {
		if err := p.run(t.Context(), known, nil); err != nil {
			t.Fatal(err)
		}
	}

	t.Setenv("SPC_EMULATED_FAULT", f.told)
	want := regexp.MustCompile(`^cuda:0 \(SIMT emulator\): ` + f.want + `$`)
	var first sync.Once
	var wg sync.WaitGroup
	var mu sync.Mutex
	matched := false
	for range 4 {
		wg.Go(func() {
			var trace func(*ir.Node, time.Duration)
			if f.traced {
				trace = func(*ir.Node, time.Duration) {}
			}
			err := p.run(context.Background(), f.rows, trace)
			failed := (*cuda.Error)(nil)
			if !errors.Is(err, spc.ErrDevice) || !errors.As(err, &failed) || failed.Lost != f.lost {
				first.Do(func() { t.Errorf("a run ends with %v", err) })
				return
			}
			mu.Lock()
			defer mu.Unlock()
			matched = matched || want.MatchString(err.Error())
			if !f.lost && !want.MatchString(err.Error()) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
	wg.Wait()
	if !matched {
		t.Errorf("no run ends with %v", want)
	}
	t.Setenv("SPC_EMULATED_FAULT", "")

	if err := other.run(t.Context(), known, nil); err != nil {
		t.Errorf("the other GPU: %v", err)
	}
	cpuProgram, err := cpu.Device{}.Load(p.graph.Clone(), backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	onCPU := program{cpuProgram, p.graph, p.tolerance}
	defer onCPU.Close()
	if err := onCPU.run(t.Context(), f.rows, nil); err != nil {
		t.Errorf("the CPU: %v", err)
	}
	for _, p := range []program{p, idle} {
		err := p.run(t.Context(), f.rows, nil)
		if f.lost && !regexp.MustCompile(`^cuda:0 \(SIMT emulator\): [^\n]*the device was lost: `+f.later).MatchString(fmt.Sprint(err)) || !f.lost && err != nil {
			t.Errorf("a later run ends with %v", err)
		}
	}
	if f.lost { // with its context
		before.Contexts--
		before.Modules /= 2
		before.Streams--
		held := simt.ReadHeld(t, file)
		if held.Objects = before.Objects; held != before { // descriptors in memory of the host are still there
			t.Errorf("%+v is held of a lost GPU beside %+v", held, before)
		}
	}
	for _, p := range []program{p, idle} {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if held := simt.ReadHeld(t, file); held != before {
		t.Errorf("%+v is held after Close, %+v before", held, before)
	}

	again := load(0)
	if err := again.run(t.Context(), f.rows, nil); err != nil {
		t.Errorf("the GPU opened again: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// A GPU that fails in a process of many runs and programs says so to each of them and holds nothing
// then; the other GPU, the CPU and, opened again, the GPU itself go on.
func TestFaults(t *testing.T) {
	file := emulated(t)
	for _, c := range []struct {
		fault  string
		rows   int
		traced bool
		step   string // an expression
		result string
		lost   bool
	}{
		{"f32_chain_x4:700", known, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamSynchronize`, "ILLEGAL_ADDRESS", true},
		{"f32_chain_x4:702", known, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamSynchronize`, "LAUNCH_TIMEOUT", true},
		{"f32_chain_x4:719", fresh, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamSynchronize`, "LAUNCH_FAILED", true},
		{"f32_chain_x4:719", known, true, `sigmoid \(Sigmoid\): kernel f32_chain_x4: cuStreamSynchronize`, "LAUNCH_FAILED", true},
		{"f32_chain_x4:999", fresh, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamSynchronize`, "UNKNOWN", true},
		{"cuMemcpyHtoDAsync_v2:214", known, false, `upload of x: cuMemcpyHtoDAsync`, "ECC_UNCORRECTABLE", true},
		{"cuMemcpyDtoHAsync_v2:214", known, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuMemcpyDtoHAsync`, "ECC_UNCORRECTABLE", true},
		{"cuLaunchKernel:719", fresh, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): fc \(MatMul\): kernel \w+: cuLaunchKernel`, "LAUNCH_FAILED", true},
		{"cuLaunchKernel:2", fresh, true, `fc \(MatMul\): kernel \w+: cuLaunchKernel`, "OUT_OF_MEMORY", false},
		{"cuGraphLaunch:719", known, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuGraphLaunch`, "LAUNCH_FAILED", true},
		{"cuStreamBeginCapture_v2:709", fresh, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamBeginCapture`, "CONTEXT_IS_DESTROYED", true},
		{"cuStreamCreate:2", fresh, false, `binding: cuStreamCreate`, "OUT_OF_MEMORY", false},
		{"cuStreamCreate:719", fresh, false, `binding: cuStreamCreate`, "LAUNCH_FAILED", true},
		{"cuMemAllocAsync:2", fresh, false, `sigmoid \(Sigmoid\): \d+ bytes: cuMemAllocAsync`, "OUT_OF_MEMORY", false},
		{"cuMemAllocAsync:719", fresh, false, `sigmoid \(Sigmoid\): \d+ bytes: cuMemAllocAsync`, "LAUNCH_FAILED", true},
		{"cuMemHostAlloc:2", fresh, false, `sigmoid \(Sigmoid\): cuMemHostAlloc`, "OUT_OF_MEMORY", false},
		{"cuGraphInstantiateWithFlags:2", fresh, false, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamEndCapture, cuGraphInstantiate`, "OUT_OF_MEMORY", false},
	} {
		f := fault{
			told: c.fault, rows: c.rows, traced: c.traced, lost: c.lost,
			want: c.step + `: CUDA_ERROR_` + c.result + `, [^\n]*`, later: `cu\w+[^\n]*: CUDA_ERROR_` + c.result,
		}
		t.Run(f.String(), func(t *testing.T) {
			f.test(t, file, func(ordinal int) program { return load(t, gpu(t, ordinal), backend.Options{Threads: 1}) })
		})
	}
}

// What a program uploads for a run that cannot be bound is freed at once.
func TestFailedBindingHoldsNothing(t *testing.T) {
	file := emulated(t)
	p := load(t, gpu(t, 0), backend.Options{Threads: 1})
	defer p.Close()
	before := simt.ReadHeld(t, file)
	t.Setenv("SPC_EMULATED_FAULT", "cuMemcpyHtoDAsync_v2:1")
	if err := p.run(t.Context(), 2, nil); !errors.Is(err, spc.ErrDevice) {
		t.Errorf("a run ends with %v", err)
	}
	if held := simt.ReadHeld(t, file); held != before {
		t.Errorf("%+v is held, %+v before", held, before)
	}
	t.Setenv("SPC_EMULATED_FAULT", "")
	if err := p.run(t.Context(), 2, nil); err != nil {
		t.Error(err)
	}
}

// With auto a model goes on on the CPU when its GPU fails between runs, and says so once.
func TestModelsFallBack(t *testing.T) {
	file := emulated(t)
	for _, c := range []struct {
		fault     string
		libraries spc.Libraries
		lost      bool
	}{
		{"f32_patches:702", spc.NoLibraries, true},
		{"cuMemHostAlloc:2", spc.NoLibraries, false},
		{"cuGraphLaunch:999", spc.NoLibraries, true},
		{"cublasLtMatmul:13", spc.AlwaysLibraries, false},
		{"cublasLtMatmul:13:700@3", spc.AlwaysLibraries, true},
		{"cublaslt_product:700@2", spc.AlwaysLibraries, true},
		{"cublasLtMatmulAlgoGetHeuristic:14:719", spc.AlwaysLibraries, true},
	} {
		t.Run(c.fault, func(t *testing.T) {
			gpu(t, 0)
			before := simt.ReadHeld(t, file)
			var why []error
			d, err := spc.OpenDevice("auto", spc.DeviceOptions{Libraries: c.libraries, Fallback: func(err error) { why = append(why, err) }})
			if err != nil {
				t.Fatal(err)
			}
			m, err := spc.Compile(t.Context(), spc.CompileOptions{Model: "../../demo/model.onnx", Run: spc.RunOptions{Device: d}})
			if err != nil {
				t.Fatal(err)
			}
			port := m.Inputs()[0]
			var outs []*tensor.Tensor
			for i, fault := range []string{"", c.fault, ""} {
				t.Setenv("SPC_EMULATED_FAULT", fault)
				x := tensor.New(tensor.F32, 1+min(i, 1), port.Dims[1].Size(), port.Dims[2].Size(), port.Dims[3].Size())
				for j := range x.F32s() {
					x.F32s()[j] = float32(j%11) / 11
				}
				out, err := m.Run(t.Context(), map[string]*tensor.Tensor{port.Name: x})
				if err != nil {
					t.Fatal(err)
				}
				outs = append(outs, out[m.Outputs()[0].Name])
				if len(why) != min(i, 1) {
					t.Errorf("run %d: fell back for %v", i, why)
				}
			}
			if d := graphtest.Difference(outs[2], outs[1]); d != 0 {
				t.Errorf("the run that fell back and the next one differ by %v", d)
			}
			if c.lost {
				before.Contexts--
				before.Modules -= before.Modules / (before.Contexts + 1)
				before.Streams--
			}
			if held := simt.ReadHeld(t, file); held != before {
				t.Errorf("%+v is held beside the CPU, %+v before", held, before)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// cancelled makes a kernel or a call of the driver last as long as the file is there that it returns, and
// a context that is cancelled once that has begun.
func cancelled(t *testing.T, name string) (ctx context.Context, slow string) {
	slow = filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(slow, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SPC_EMULATED_SLOW", name+":"+slow)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if _, err := os.Stat(slow + ".begun"); err == nil || t.Context().Err() != nil {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return ctx, slow
}

// A cancelled run does not wait for its kernels, which keep what they use until they end, also
// where the program is closed.
func TestCancelledRuns(t *testing.T) {
	file := emulated(t)
	for _, traced := range []bool{false, true} {
		t.Run(fmt.Sprintf("traced %v", traced), func(t *testing.T) {
			device := gpu(t, 0)
			before := simt.ReadHeld(t, file)
			closed := make(chan struct{})
			p := load(t, device, backend.Options{Threads: 1, Closed: func() error { close(closed); return nil }})
			if err := p.run(t.Context(), 3, nil); err != nil {
				t.Fatal(err)
			}
			ctx, slow := cancelled(t, "f32_chain_x4")
			var trace func(*ir.Node, time.Duration)
			var returned sync.Mutex
			if traced {
				trace = func(n *ir.Node, _ time.Duration) {
					if !returned.TryLock() {
						t.Errorf("%v is reported after the run has returned", n)
						return
					}
					returned.Unlock()
				}
			}
			err := p.run(ctx, 3, trace)
			returned.Lock()
			if want := "cuda:0 (SIMT emulator): kernels of fc (MatMul) to sigmoid (Sigmoid): context canceled"; !errors.Is(err, context.Canceled) || errors.Is(err, spc.ErrDevice) || err.Error() != want {
				t.Errorf("a cancelled run ends with %v, want %s", err, want)
			}
			held := simt.ReadHeld(t, file)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			select {
			case <-closed:
				t.Error("the program is closed while a kernel runs")
			default:
			}
			if now := simt.ReadHeld(t, file); now != held || held.Memory <= before.Memory {
				t.Errorf("%+v is held while a kernel runs, %+v before Close, %+v before it was loaded", now, held, before)
			}
			if err := os.Remove(slow); err != nil {
				t.Fatal(err)
			}
			<-closed
			if held := simt.ReadHeld(t, file); held != before {
				t.Errorf("%+v is held after the kernel has ended, %+v before", held, before)
			}
		})
	}
}

// The inputs of a cancelled run are the caller's when it returns, also where a copy of them is under way, of which
// pinned memory takes a part at a time: who reads them from then on ends the process.
func TestCancelledRunsLeaveInputs(t *testing.T) {
	emulated(t)
	closed := make(chan struct{})
	p := load(t, gpu(t, 0), backend.Options{Threads: 1, Closed: func() error { close(closed); return nil }})
	const rows = 3 << 20
	memory, err := syscall.Mmap(-1, 0, rows*4*4, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(memory)
	x, err := tensor.FromBytes(tensor.F32, []int{rows, 4}, memory)
	if err != nil {
		t.Fatal(err)
	}
	in := []*tensor.Tensor{x}
	if _, err := p.Program.(backend.Partial).Placements(in); err != nil { // which binds
		t.Fatal(err)
	}
	ctx, slow := cancelled(t, "cuMemcpyHtoDAsync_v2")
	if err := p.Run(ctx, in, make([]*tensor.Tensor, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run ends with %v", err)
	}
	if err := syscall.Mprotect(memory, syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	<-closed
}
