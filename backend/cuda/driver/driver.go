// Package driver is the binding of backend/cuda to NVIDIA's driver. It is built with the tag
// cuda, needs cgo and the header cuda.h of CUDA 11 or 12 then, and imports
// gorgonia.org/cu; the driver itself, libcuda.so.1, is opened when a device is first asked
// for, so that a binary with the tag runs on machines without one, and so are cuBLASLt and
// cuSPARSELt, which need not be there. Without the tag there
// are no devices. It imports ir, backend,
// backend/cuda and backend/cuda/image.
package driver

import (
	"fmt"

	"spc/ir"
)

// Info describes a GPU.
type Info struct {
	Ordinal         int
	Name            string
	Arch            string // as nvcc names it, sm_90
	Memory          int64  // in bytes
	Multiprocessors int
	Driver          string // the newest version of CUDA that the driver knows
	Problem         error  // why Open fails, an ir.ErrDevice, as far as that is known
}

// LibraryInfo describes a library of products.
type LibraryInfo struct {
	Name    string
	Version string // empty where it is not found
	Path    string
	Missing string // why it is not found
}

// LibraryPath is the variable of the environment that names folders in which libraries of
// products lie, or site-packages of Python below which they do.
const LibraryPath = "SPC_CUDA_LIBRARIES"

// noDevice is ErrNoDevice with its reason.
func noDevice(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ir.ErrNoDevice, fmt.Sprintf(format, args...))
}
