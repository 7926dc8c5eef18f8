//go:build cuda

package gpu

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"spc"
	"spc/backend/cuda"
	"spc/backend/cuda/driver"
	"spc/tests/simt"
)

// library is one of NVIDIA's, by the format of the weights that it multiplies.
type library string

const (
	denseLibrary  library = "dense"
	sparseLibrary library = "nm"
)

// on is a GPU whose library computes all that it can.
func (l library) on(t *testing.T, ordinal int) cuda.Device {
	d := gpu(t, ordinal)
	d.Libraries = cuda.AlwaysLibraries
	return d
}

func (l library) load(t *testing.T, ordinal int) program {
	t.Helper()
	p, err := loadProduct(t, l.on(t, ordinal), string(l))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A call of a library that fails is an error as one of the driver is, and tells whether it was the GPU.
func TestFaultsOfLibraries(t *testing.T) {
	file := emulated(t)
	const part = `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): `
	for _, c := range []struct {
		fault  string
		rows   int
		traced bool
		lib    library
		step   string // an expression
		reason string // an expression
		lost   string // as which result, empty where it is not
	}{
		{"cublasLtMatmul:13", known, false, denseLibrary, part + `fc \(MatMul\): kernel f16_cublaslt: cublasLtMatmul`, "CUBLAS_STATUS_EXECUTION_FAILED", ""},
		{"cublasLtMatmul:13", fresh, false, denseLibrary, part + `fc \(MatMul\): kernel f16_cublaslt: cublasLtMatmul`, "CUBLAS_STATUS_EXECUTION_FAILED", ""},
		{"cublasLtMatmul:13", known, true, denseLibrary, `fc \(MatMul\): kernel f16_cublaslt: cublasLtMatmul`, "CUBLAS_STATUS_EXECUTION_FAILED", ""},
		{"cublasLtMatmul:13:700", known, false, denseLibrary, part + `fc \(MatMul\): kernel f16_cublaslt: cublasLtMatmul`, "CUBLAS_STATUS_EXECUTION_FAILED", "ILLEGAL_ADDRESS"},
		{"cublasLtMatmul:14:702", fresh, false, denseLibrary, part + `fc \(MatMul\): kernel f16_cublaslt: cublasLtMatmul`, "CUBLAS_STATUS_INTERNAL_ERROR", "LAUNCH_TIMEOUT"},
		{"cublasLtMatmul:13:214", fresh, true, denseLibrary, `fc \(MatMul\): kernel f16_cublaslt: cublasLtMatmul`, "CUBLAS_STATUS_EXECUTION_FAILED", "ECC_UNCORRECTABLE"},
		{"cublasLtMatmulAlgoGetHeuristic:14", fresh, false, denseLibrary, `fc \(MatMul\): cublaslt: cublasLtMatmulAlgoGetHeuristic`, "CUBLAS_STATUS_INTERNAL_ERROR", ""},
		{"cublasLtMatmulAlgoGetHeuristic:14:719", fresh, false, denseLibrary, `fc \(MatMul\): cublaslt: cublasLtMatmulAlgoGetHeuristic`, "CUBLAS_STATUS_INTERNAL_ERROR", "LAUNCH_FAILED"},
		{"cublasLtMatmulDescCreate:3", fresh, false, denseLibrary, `fc \(MatMul\): cublaslt: cublasLtMatmulDescCreate`, "CUBLAS_STATUS_ALLOC_FAILED", ""},
		{"cublasLtMatrixLayoutCreate:3", fresh, false, denseLibrary, `fc \(MatMul\): cublaslt: cublasLtMatrixLayoutCreate`, "CUBLAS_STATUS_ALLOC_FAILED", ""},
		{"cublasLtMatmulPreferenceSetAttribute:7", fresh, false, denseLibrary, `fc \(MatMul\): cublaslt: cublasLtMatmulPreferenceSetAttribute`, "CUBLAS_STATUS_INVALID_VALUE", ""},
		{"cusparseLtMatmul:6", known, false, sparseLibrary, part + `fc \(MatMul\): kernel f16_cusparselt: cusparseLtMatmul`, "CUSPARSE_STATUS_EXECUTION_FAILED", ""},
		{"cusparseLtMatmul:6:700", known, false, sparseLibrary, part + `fc \(MatMul\): kernel f16_cusparselt: cusparseLtMatmul`, "CUSPARSE_STATUS_EXECUTION_FAILED", "ILLEGAL_ADDRESS"},
		{"cusparseLtMatmul:7:719", fresh, true, sparseLibrary, `fc \(MatMul\): kernel f16_cusparselt: cusparseLtMatmul`, "CUSPARSE_STATUS_INTERNAL_ERROR", "LAUNCH_FAILED"},
		{"cusparseLtMatmulPlanInit:7", fresh, false, sparseLibrary, `fc \(MatMul\): cusparselt: cusparseLtMatmulPlanInit`, "CUSPARSE_STATUS_INTERNAL_ERROR", ""},
		{"cusparseLtMatmulAlgSelectionInit:7:702", fresh, false, sparseLibrary, `fc \(MatMul\): cusparselt: cusparseLtMatmulAlgSelectionInit`, "CUSPARSE_STATUS_INTERNAL_ERROR", "LAUNCH_TIMEOUT"},
		{"cusparseLtDenseDescriptorInit:7", fresh, false, sparseLibrary, `fc \(MatMul\): cusparselt: cusparseLtDenseDescriptorInit`, "CUSPARSE_STATUS_INTERNAL_ERROR", ""},
		{"cusparseLtSpMMACompress:6", fresh, false, sparseLibrary, `fc \(MatMul\): cusparselt: cusparseLtSpMMACompress`, "CUSPARSE_STATUS_EXECUTION_FAILED", ""},
		{"cusparseLtSpMMACompress:6:700", fresh, false, sparseLibrary, `fc \(MatMul\): cusparselt: cusparseLtSpMMACompress`, "CUSPARSE_STATUS_EXECUTION_FAILED", "ILLEGAL_ADDRESS"},
	} {
		f := fault{told: c.fault, rows: c.rows, traced: c.traced, lost: c.lost != "", want: c.step + ": " + c.reason}
		if f.lost {
			f.want += `; cuStreamQuery: CUDA_ERROR_` + c.lost + `, [^\n]*`
			f.later = `[^\n]*: CUDA_ERROR_` + c.lost // which the driver may have told another run before
		}
		t.Run(f.String(), func(t *testing.T) {
			f.test(t, file, func(ordinal int) program { return c.lib.load(t, ordinal) })
		})
	}
}

// A call of a library that fails while it is captured tells whether it was the GPU, too.
func TestFaultsOfCapturedLibraries(t *testing.T) {
	emulated(t)
	for _, c := range []struct {
		fault string
		lib   library
		want  string // an expression
	}{
		{"cublasLtMatmul:13", denseLibrary, `CUBLAS_STATUS_EXECUTION_FAILED`},
		{"cublasLtMatmul:13:700", denseLibrary, `CUBLAS_STATUS_EXECUTION_FAILED; cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS, .*`},
		{"cusparseLtMatmul:6", sparseLibrary, `CUSPARSE_STATUS_EXECUTION_FAILED`},
		{"cusparseLtMatmul:6:214", sparseLibrary, `CUSPARSE_STATUS_EXECUTION_FAILED; cuStreamQuery: CUDA_ERROR_ECC_UNCORRECTABLE, .*`},
	} {
		t.Run(c.fault, func(t *testing.T) {
			p := c.lib.load(t, 0)
			defer p.Close()
			for _, fault := range []string{"", c.fault} { // the first run is not captured
				t.Setenv("SPC_EMULATED_FAULT", fault)
				err := p.run(t.Context(), known, nil)
				want := regexp.MustCompile(`^cuda:0 \(SIMT emulator\): kernels of [^\n:]*: fc \(MatMul\): kernel \w+: \w+: ` + c.want + `$`)
				if (err != nil) != (fault != "") || err != nil && !want.MatchString(err.Error()) {
					t.Errorf("%v, want %v", err, want)
				}
			}
		})
	}
}

// A kernel of a library that fails after its call is seen by the driver.
func TestFaultsOfKernelsOfLibraries(t *testing.T) {
	file := emulated(t)
	for _, c := range []struct {
		fault  string
		lib    library
		rows   int
		step   string // an expression
		result string
	}{
		{"cublaslt_product:700", denseLibrary, known, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamSynchronize`, "ILLEGAL_ADDRESS"},
		{"cublaslt_product:702", denseLibrary, fresh, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamSynchronize`, "LAUNCH_TIMEOUT"},
		{"cusparselt_product:719", sparseLibrary, fresh, `kernels of fc \(MatMul\) to sigmoid \(Sigmoid\): cuStreamSynchronize`, "LAUNCH_FAILED"},
		{"cusparselt_compress:719", sparseLibrary, fresh, `fc \(MatMul\): cusparselt: cuStreamSynchronize`, "LAUNCH_FAILED"},
	} {
		f := fault{
			told: c.fault, rows: c.rows, lost: true, want: c.step + `: CUDA_ERROR_` + c.result + `, [^\n]*`,
			later: `[^\n]*cu\w+: CUDA_ERROR_` + c.result, // which the driver may tell a run that calls the library
		}
		t.Run(f.String(), func(t *testing.T) {
			f.test(t, file, func(ordinal int) program { return c.lib.load(t, ordinal) })
		})
	}
}

// What a library has no way for, own kernels compute, and nothing of the attempt is held, such as the bias
// that a plan asked for.
func TestFailedPlansHoldNothing(t *testing.T) {
	file := emulated(t)
	for _, c := range []struct {
		fault string
		lib   library
	}{
		{"cublasLtMatmulAlgoGetHeuristic:15", denseLibrary},
		{"cublasLtMatmulDescCreate:8", denseLibrary},
		{"cusparseLtMatmulAlgSelectionInit:10", sparseLibrary},
		{"cusparseLtStructuredDescriptorInit:3", sparseLibrary},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Setenv("SPC_EMULATED_FAULT", c.fault)
			gpu(t, 0)
			before := simt.ReadHeld(t, file)
			var held [2]simt.Held // with the library, and without one
			for i, device := range []cuda.Device{c.lib.on(t, 0), gpu(t, 0)} {
				p, err := loadProduct(t, device, string(c.lib))
				if err != nil {
					t.Fatal(err)
				}
				loaded := simt.ReadHeld(t, file)
				if err := p.run(t.Context(), known, nil); err != nil {
					t.Fatal(err)
				}
				held[i] = simt.ReadHeld(t, file)
				held[i].Objects -= loaded.Objects
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				if now := simt.ReadHeld(t, file); now != before {
					t.Errorf("%+v is held after Close, %+v before", now, before)
				}
			}
			if held[0] != held[1] {
				t.Errorf("%+v is held after a run, %+v without a library", held[0], held[1])
			}
		})
	}
}

// The programs on a GPU share the handle of a library, which goes with the last of them, whether they ran or not.
func TestHandlesOfLibraries(t *testing.T) {
	file := emulated(t)
	objects := func() int { return simt.ReadHeld(t, file).Objects }
	gpu(t, 0)
	before := objects()
	for _, l := range []library{denseLibrary, sparseLibrary} {
		const handles = 2 // each program has both libraries
		p, q := l.load(t, 0), l.load(t, 0)
		if n := objects(); n != before+handles {
			t.Errorf("%s: %d handles, want %d", l, n-before, handles)
		}
		for rows := range 3 {
			if err := p.run(t.Context(), known*(1+rows), nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := objects(); n <= before+handles {
			t.Errorf("%s: no plans", l)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n := objects(); n != before+handles {
			t.Errorf("%s: %d handles after one of two programs, want %d", l, n-before, handles)
		}
		if err := q.run(t.Context(), known, nil); err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if n := objects(); n != before {
			t.Errorf("%s: %d objects are left", l, n-before)
		}
	}
}

// A library that does not take the GPU is an error where it is always asked for, and else own kernels
// compute; but a GPU that is lost is one.
func TestFailedHandles(t *testing.T) {
	file := emulated(t)
	for _, c := range []struct {
		fault  string
		choice cuda.Libraries
		want   string // an expression, empty where it works
		lost   bool
	}{
		{"cublasLtCreate:1", cuda.AlwaysLibraries, `cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED`, false},
		{"cublasLtCreate:1", cuda.PredictedLibraries, ``, false},
		{"cublasLtCreate:3:702", cuda.AlwaysLibraries, `cublasLtCreate: CUBLAS_STATUS_ALLOC_FAILED; cuStreamQuery: CUDA_ERROR_LAUNCH_TIMEOUT, .*`, true},
		{"cublasLtCreate:3:702", cuda.PredictedLibraries, `cublasLtCreate: CUBLAS_STATUS_ALLOC_FAILED; cuStreamQuery: CUDA_ERROR_LAUNCH_TIMEOUT, .*`, true},
		{"cusparseLtInit:7", cuda.AlwaysLibraries, ``, false},
		{"cusparseLtInit:7:700", cuda.PredictedLibraries, `cusparseLtInit: CUSPARSE_STATUS_INTERNAL_ERROR; cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS, .*`, true},
	} {
		t.Run(fmt.Sprint(c.fault, " ", c.choice), func(t *testing.T) {
			device := gpu(t, 0)
			before := simt.ReadHeld(t, file)
			device.Libraries = c.choice
			t.Setenv("SPC_EMULATED_FAULT", c.fault)
			p, err := loadProduct(t, device, "dense")
			t.Setenv("SPC_EMULATED_FAULT", "")
			if c.want == "" {
				if err == nil {
					err = errors.Join(p.run(t.Context(), known, nil), p.Close())
				}
				if err != nil {
					t.Error(err)
				}
			} else {
				want := regexp.MustCompile(`^cuda:0 \(SIMT emulator\): [^\n:]*: ` + c.want + `$`)
				failed := (*cuda.Error)(nil)
				if !errors.As(err, &failed) || failed.Lost != c.lost || !want.MatchString(err.Error()) {
					t.Errorf("%v, want %v", err, want)
				}
			}
			if c.lost {
				before.Modules -= before.Modules / before.Contexts
				before.Contexts--
				before.Streams--
			}
			if held := simt.ReadHeld(t, file); held != before {
				t.Errorf("%+v is held, %+v before", held, before)
			}
			again := denseLibrary.load(t, 0)
			if err := errors.Join(again.run(t.Context(), known, nil), again.Close()); err != nil {
				t.Errorf("the GPU opened again: %v", err)
			}
		})
	}
}

// Where there is no memory for what a library needs, the run fails, and goes when there is.
func TestFailedWorkspace(t *testing.T) {
	file := emulated(t)
	for _, l := range []library{denseLibrary, sparseLibrary} {
		const rows = 600
		p := l.load(t, 0)
		if err := p.run(t.Context(), known, nil); err != nil {
			t.Fatal(err)
		}
		before := simt.ReadHeld(t, file)
		full := l.load(t, 0)
		for _, rows := range []int{known, rows} {
			if err := full.run(t.Context(), rows, nil); err != nil {
				t.Fatal(err)
			}
		}
		most := simt.ReadHeld(t, file).Memory - before.Memory // of a program like p, which has run
		if err := full.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range []struct {
			memory int
			want   string // an expression
		}{
			{before.Memory + 1, `fc \(MatMul\): .*\d+ bytes: cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY, out of memory`},
			{most - 1, `memory for a run: \d+ bytes: cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY, out of memory`},
		} {
			t.Setenv("SPC_EMULATED_MEMORY", strconv.Itoa(c.memory))
			err := p.run(t.Context(), rows, nil)
			if !errors.Is(err, spc.ErrDevice) || !regexp.MustCompile(`^cuda:0 \(SIMT emulator\): `+c.want+`$`).MatchString(err.Error()) {
				t.Errorf("%s: %v, want %s", l, err, c.want)
			}
		}
		t.Setenv("SPC_EMULATED_MEMORY", strconv.Itoa(most))
		if err := p.run(t.Context(), rows, nil); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What cannot be destroyed is an error of Close, and all else is freed. The objects stay for the
// rest of the process, so no test that counts them comes after this one.
func TestFailedDestruction(t *testing.T) {
	file := emulated(t)
	for _, c := range []struct {
		fault string
		lib   library
		want  string // an expression
		left  int    // objects
	}{
		{"cublasLtDestroy:14", denseLibrary, "CUBLAS_STATUS_INTERNAL_ERROR", 1},
		{"cublasLtMatmulDescDestroy:7@1", denseLibrary, "CUBLAS_STATUS_INVALID_VALUE", 1},
		{"cublasLtMatrixLayoutDestroy:7@2", denseLibrary, "CUBLAS_STATUS_INVALID_VALUE", 1},
		{"cusparseLtMatmulPlanDestroy:7@1", sparseLibrary, "CUSPARSE_STATUS_INTERNAL_ERROR", 3}, // and its selection, and the handle
		{"cusparseLtMatDescriptorDestroy:7@2", sparseLibrary, "CUSPARSE_STATUS_INTERNAL_ERROR", 2},
		{"cusparseLtDestroy:7", sparseLibrary, "CUSPARSE_STATUS_INTERNAL_ERROR", 1},
	} {
		t.Run(c.fault, func(t *testing.T) {
			gpu(t, 0)
			before := simt.ReadHeld(t, file)
			p := c.lib.load(t, 0)
			if err := p.run(t.Context(), known, nil); err != nil {
				t.Fatal(err)
			}
			t.Setenv("SPC_EMULATED_FAULT", c.fault)
			err := p.Close()
			call := regexp.MustCompile(`^\w+`).FindString(c.fault)
			if want := regexp.MustCompile(`^cuda:0 \(SIMT emulator\): ` + call + `: ` + c.want); !errors.Is(err, spc.ErrDevice) || !want.MatchString(fmt.Sprint(err)) {
				t.Errorf("%v, want %v", err, want)
			}
			before.Objects += c.left
			if held := simt.ReadHeld(t, file); held != before {
				t.Errorf("%+v is held, want %+v", held, before)
			}
		})
	}
}

// Where a library goes on holding the context of a lost GPU, that cannot be opened again in the process, and says why; the
// other GPU goes on.
func TestLostContextThatALibraryHolds(t *testing.T) {
	if os.Getenv("SPC_EMULATED_CUBLASLT") != "holds" {
		t.Skip("skipped: a GPU would stay lost for the rest of the process")
	}
	other, p := denseLibrary.load(t, 1), denseLibrary.load(t, 0)
	t.Setenv("SPC_EMULATED_FAULT", "cublasLtMatmul:13:700")
	if err := p.run(t.Context(), known, nil); !errors.Is(err, spc.ErrDevice) {
		t.Errorf("a run ends with %v", err)
	}
	t.Setenv("SPC_EMULATED_FAULT", "")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		_, err := driver.Open(0)
		want := regexp.MustCompile(`^cuda:0 \(SIMT emulator\): cuStreamCreate: CUDA_ERROR_ILLEGAL_ADDRESS, .*; something else in the process, such as a library, has its context, which may stay lost until the process ends$`)
		if !errors.Is(err, spc.ErrDevice) || !want.MatchString(err.Error()) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	fell := 0
	d, err := spc.OpenDevice("auto", spc.DeviceOptions{Fallback: func(error) { fell++ }})
	if err != nil || d.Name() != "cpu" || fell != 1 {
		t.Errorf("%v, %v, fell back %d times", d, err, fell)
	}
	if err := errors.Join(other.run(t.Context(), known, nil), other.Close()); err != nil {
		t.Errorf("the other GPU: %v", err)
	}
}
