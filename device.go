package spc

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/cuda"
	"spc/backend/cuda/driver"
	"spc/ir/option"
	"spc/ir/tensor"
)

// DeviceOptions are the choices of OpenDevice.
type DeviceOptions struct {
	// Precision is the type that floats have on a GPU, F32, F16 or BF16; zero is F32. Inputs
	// and outputs of models stay F32, and products are summed in F32.
	Precision tensor.DType
	// Fallback, where it is set, is called when auto takes the CPU in the place of a GPU that
	// there is, with the reason, an ErrDevice: by OpenDevice, or once for each model by what
	// runs it, maybe concurrently.
	Fallback func(why error)
	// Libraries says whether cuBLASLt computes dense products on a GPU and cuSPARSELt those of 2:4
	// weights.
	Libraries Libraries
	// CPU, where it is set, is the CPU in OpenDevice: as the device, for what a GPU leaves to it, and in a GPU's place.
	CPU *SharedCPU
}

// Libraries says when libraries compute products on a GPU.
type Libraries = cuda.Libraries

// The values of Libraries.
const (
	AutoLibraries   = cuda.PredictedLibraries // where they are found and predicted to be faster than the own kernels
	NoLibraries     = cuda.NoLibraries
	AlwaysLibraries = cuda.AlwaysLibraries // wherever they can, and then cuBLASLt must be there
)

// The words for the fields of DeviceOptions.
var (
	precisions = words[tensor.DType]{option.Precision, []word[tensor.DType]{{"f32", tensor.F32}, {"f16", tensor.F16}, {"bf16", tensor.BF16}}}
	libraries  = words[Libraries]{option.Libraries, []word[Libraries]{{"auto", AutoLibraries}, {"off", NoLibraries}, {"always", AlwaysLibraries}}}
)

// ParsePrecision reads f32, f16 or bf16.
func ParsePrecision(s string) (tensor.DType, error) { return precisions.parse(s) }

// ParseLibraries reads auto, off or always.
func ParseLibraries(s string) (Libraries, error) { return libraries.parse(s) }

// Device runs models.
type Device = backend.Device

// SharedCPU is the CPU, for models that share its threads: however many run at the same time, there are no more threads than these and the
// goroutines that call Run. RunOptions.Threads, where it is set, bounds what a Run of one model has of them.
type SharedCPU struct {
	cpu.Device
}

// NewSharedCPU starts so many threads, at most MaxThreads, 0 for one a physical core.
func NewSharedCPU(threads int) (*SharedCPU, error) {
	if err := checkThreads(option.Threads, threads); err != nil {
		return nil, err
	}
	return &SharedCPU{cpu.Device{Pool: cpu.NewSharedPool(cmp.Or(threads, cpu.Cores()))}}, nil
}

// Threads is how many there are.
func (d *SharedCPU) Threads() int { return d.Pool.Threads() }

// Close stops the threads. Runs go on without them.
func (d *SharedCPU) Close() error {
	d.Pool.Close()
	return nil
}

// OpenDevice returns a device by its name: cpu, also where it is empty; cuda or cuda:N, a GPU by its ordinal; or auto,
// the first GPU where there is one, else the CPU, which computes in f32. Without a GPU that the
// kernels run on the error is ErrNoDevice. An error of the GPU, then or when a model runs, is
// ErrDevice: with auto the CPU takes the model over, and repeats the run.
//
// A *cuda.Error of them says whether the GPU is lost. Then every model on it fails, while the
// other devices of the process go on; those models can be closed, and OpenDevice opens the GPU anew. A device itself needs
// no closing.
func OpenDevice(name string, o DeviceOptions) (Device, error) {
	if o.Precision == 0 {
		o.Precision = tensor.F32
	}
	precision, err := precisions.of(o.Precision)
	if err != nil {
		return nil, err
	}
	if _, err := libraries.of(o.Libraries); err != nil {
		return nil, err
	}
	host := cpu.Device{}
	if o.CPU != nil {
		host = o.CPU.Device
	}
	gpu := func(ordinal int) (Device, error) {
		d, err := driver.Open(ordinal)
		if err != nil {
			return nil, err
		}
		return cuda.Device{Driver: d, Precision: o.Precision, Libraries: o.Libraries, Host: host}, nil
	}
	kind, number, numbered := strings.Cut(name, ":")
	switch {
	case name == "":
		return OpenDevice("cpu", o)
	case name == "cpu" && o.Precision != tensor.F32:
		return nil, option.Errorf("%v %s: the CPU computes in f32", option.Precision, precision)
	case name == "cpu" && o.Libraries == AlwaysLibraries:
		return nil, option.Errorf("%v always: the CPU uses none", option.Libraries)
	case name == "cpu":
		return host, nil
	case name == "auto":
		d, err := gpu(0)
		if err == nil {
			return &fallback{d, host, o.Fallback}, nil
		}
		if errors.Is(err, ErrDevice) && o.Fallback != nil {
			o.Fallback(err)
		}
		if errors.Is(err, ErrDevice) || errors.Is(err, ErrNoDevice) {
			return host, nil
		}
		return nil, err
	case name == "cuda":
		return gpu(0)
	case kind == "cuda" && numbered:
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			return gpu(n)
		}
	}
	return nil, option.Errorf("device %q, want cpu, cuda, cuda:N or auto", name)
}
