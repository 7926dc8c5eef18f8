package cuda

import (
	"math"
	"time"

	"spc/backend"
	"spc/ir"
)

// Pointer is an address in device memory.
type Pointer uint64

// Kernel is a kernel of the image that a Driver has loaded.
type Kernel uint64

// Cell is a parameter of a kernel, as which a Pointer may be converted: eight bytes of which a Driver reads as many as the
// parameter has.
type Cell uint64

// IntCell is that of an integer of any size.
func IntCell(v int) Cell { return Cell(v) }

// FloatCell is that of an f32.
func FloatCell(v float32) Cell { return Cell(math.Float32bits(v)) }

// Error is a call of a driver, or of a library, that has failed. It is an ir.ErrDevice.
type Error struct {
	Code         int    // a CUresult, 0 for a library's status
	Call, Reason string // cuMemAlloc; CUDA_ERROR_OUT_OF_MEMORY, out of memory
	// Lost says that no call on the device succeeds any more, whoever makes it, before the
	// device is opened again.
	Lost bool
}

func (e *Error) Error() string { return e.Call + ": " + e.Reason }

// Is makes it an ir.ErrDevice.
func (e *Error) Is(target error) bool { return target == ir.ErrDevice }

// Driver is what the back end asks of a GPU and its driver. It may be used concurrently. Errors
// of the GPU and its driver are of type *Error. A lost device holds nothing: what frees something
// of it, Free and the methods Close, succeeds.
type Driver interface {
	// Name names the device.
	Name() string
	Arch() string // as nvcc names it, sm_90
	Kernel(name string) (Kernel, error)
	// Alloc returns so many bytes of device memory, aligned to 256.
	Alloc(bytes int) (Pointer, error)
	Free(p Pointer) error
	Stream() (Stream, error)
	// Library returns what multiplies dense matrices on the device beside the kernels of the
	// image, and nil with the reason where there is no such library. Who gets one closes it.
	Library() (Library, error)
	// SparseLibrary is such a library for weights in 16-bit floats of which, by rows, at most 2
	// of every 4 elements are not zero.
	SparseLibrary() (Library, error)
}

// Stream is a queue of work for a device, which goes through it in order. It is used by one
// goroutine at a time.
type Stream interface {
	// Upload copies to device memory. What it copies from may change when it returns.
	Upload(to Pointer, from []byte) error
	// UploadFrom is Upload of n bytes that read writes, a part of them from an offset on in each of its calls. It is
	// not called while the stream is waited for.
	UploadFrom(to Pointer, n int, read func(part []byte, at int) error) error
	// Download copies from device memory, and waits for all that was queued before.
	Download(to []byte, from Pointer) error
	// Launch queues a kernel with its parameters.
	Launch(k Kernel, g backend.Geometry, cells []Cell) error
	// Multiply queues a product of a library, whose operands are at these addresses: W, X, the
	// residual if the plan has one, Y, and as much memory besides as the plan asks for.
	// The weight is one that Compress made, if the plan wants that.
	Multiply(p Plan, w, x, residual, y, workspace Pointer) error
	// Compress makes of a weight what a plan takes in its place, and waits for it.
	Compress(p Plan, to, w Pointer) error
	// Capture returns the work that f queues as one that can be queued again and again.
	Capture(f func() error) (Graph, error)
	// Time returns how long the device took for what f queues, and waits for it.
	Time(f func() error) (time.Duration, error)
	Sync() error
	Close() error
}

// Graph is launches that were captured on a stream.
type Graph interface {
	Launch() error
	Close() error
}
