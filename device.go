package spc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/cuda"
	"spc/backend/cuda/driver"
	"spc/backend/format"
	"spc/backend/tune"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// target is a device that formats are chosen for.
type target struct {
	formats []choose.Format
	model   choose.Model
}

// parseTarget reads cpu, cuda, cuda:sm_80 or cuda:sm_90; cuda is the last. GPUs are taken to
// compute in 16-bit floats, and products of 8-bit integers in these.
func parseTarget(name string) (target, error) {
	switch name {
	case "cpu":
		return target{format.Choices(), tune.Default}, nil
	case "cuda", "cuda:sm_80", "cuda:sm_90":
		rates := backend.RatesOf(strings.TrimPrefix(strings.TrimPrefix(name, "cuda"), ":"))
		return target{format.GPUChoices(rates, tensor.F16), tune.GPU(rates)}, nil
	}
	return target{}, fmt.Errorf("target %q, want cpu, cuda, cuda:sm_80 or cuda:sm_90: %w", name, ErrInvalid)
}

// DeviceOptions are the choices of OpenDevice.
type DeviceOptions struct {
	// Precision is the type that floats have on a GPU, f32, f16 or bf16; empty is f32. Inputs
	// and outputs of models stay f32, and products are summed in f32.
	Precision string
	// Fallback, where it is set, is called when auto takes the CPU in the place of a GPU that
	// there is, with the reason, an ErrDevice: by OpenDevice, or once for each model by what
	// runs it, maybe concurrently.
	Fallback func(why error)
	// Libraries says whether cuBLASLt computes dense products on a GPU and cuSPARSELt those of 2:4
	// weights: auto or empty, where it is found and predicted to be faster than the own kernels;
	// off; or always, wherever it can, and then cuBLASLt must be there.
	Libraries string
}

// OpenDevice returns a device by its name: cpu; cuda or cuda:N, a GPU by its ordinal; or auto,
// the first GPU where there is one, else the CPU, which computes in f32. Without a GPU that the
// kernels run on the error is ErrNoDevice. An error of the GPU, then or when a model runs, is
// ErrDevice: with auto the CPU takes the model over, and repeats the run.
//
// A *cuda.Error of them says whether the GPU is lost. Then every model on it fails, while the
// other devices of the process go on; closing them works, and OpenDevice opens the GPU anew.
func OpenDevice(name string, o DeviceOptions) (backend.Device, error) {
	precision, ok := map[string]tensor.DType{"": tensor.F32, "f32": tensor.F32, "f16": tensor.F16, "bf16": tensor.BF16}[o.Precision]
	if !ok {
		return nil, fmt.Errorf("precision %q, want f32, f16 or bf16: %w", o.Precision, ErrInvalid)
	}
	libraries, ok := map[string]cuda.Libraries{
		"": cuda.PredictedLibraries, "auto": cuda.PredictedLibraries, "off": cuda.NoLibraries, "always": cuda.AlwaysLibraries,
	}[o.Libraries]
	if !ok {
		return nil, fmt.Errorf("libraries %q, want auto, off or always: %w", o.Libraries, ErrInvalid)
	}
	gpu := func(ordinal int) (backend.Device, error) {
		d, err := driver.Open(ordinal)
		if err != nil {
			return nil, err
		}
		return cuda.Device{Driver: d, Precision: precision, Libraries: libraries}, nil
	}
	kind, number, numbered := strings.Cut(name, ":")
	switch {
	case name == "cpu" && precision != tensor.F32:
		return nil, fmt.Errorf("precision %s: the CPU computes in f32: %w", o.Precision, ErrInvalid)
	case name == "cpu" && libraries == cuda.AlwaysLibraries:
		return nil, fmt.Errorf("libraries always: the CPU uses none: %w", ErrInvalid)
	case name == "cpu":
		return cpu.Device{}, nil
	case name == "auto":
		d, err := gpu(0)
		if err == nil {
			return &fallback{d, cpu.Device{}, o.Fallback}, nil
		}
		if errors.Is(err, ErrDevice) && o.Fallback != nil {
			o.Fallback(err)
		}
		if errors.Is(err, ErrDevice) || errors.Is(err, ErrNoDevice) {
			return cpu.Device{}, nil
		}
		return nil, err
	case name == "cuda":
		return gpu(0)
	case kind == "cuda" && numbered:
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			return gpu(n)
		}
	}
	return nil, fmt.Errorf("device %q, want cpu, cuda, cuda:N or auto: %w", name, ErrInvalid)
}
