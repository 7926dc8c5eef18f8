//go:build cuda && linux && amd64

package driver

/*
#cgo LDFLAGS: -L${SRCDIR}/stub -Wl,--as-needed -ldl
#include <cuda.h>
#include <stdint.h>
#include <string.h>
#include "load.h"

static CUresult maxDynamicShared(CUfunction f, int bytes) {
  return cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static CUresult beginCapture(CUstream s) {
  return cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static CUresult endCapture(CUstream s, CUgraphExec *exec) {
  CUgraph graph = NULL;
  CUresult r = cuStreamEndCapture(s, &graph);
  if (r == CUDA_SUCCESS && graph)
    r = cuGraphInstantiateWithFlags(exec, graph, 0);
  if (graph)
    cuGraphDestroy(graph);
  return r;
}

// query is the result that calls on the context have now. It may be asked for during a capture on
// this thread, of another stream.
static CUresult query(CUstream s) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUresult r = cuThreadExchangeStreamCaptureMode(&mode);
  if (r != CUDA_SUCCESS)
    return r;
  r = cuStreamQuery(s);
  cuThreadExchangeStreamCaptureMode(&mode);
  return r;
}

static CUresult hostAlloc(uintptr_t *at, size_t bytes) {
  void *p = NULL;
  CUresult r = cuMemHostAlloc(&p, bytes, 0);
  *at = (uintptr_t)p;
  return r;
}

static CUresult hostFree(uintptr_t at) { return cuMemFreeHost((void *)at); }

// Copies between pinned memory and the device, of which one side is at at.
static CUresult upload(CUdeviceptr to, uintptr_t at, size_t bytes, CUstream s) {
  return cuMemcpyHtoDAsync(to, (const void *)at, bytes, s);
}

static CUresult download(uintptr_t at, CUdeviceptr from, size_t bytes, CUstream s) {
  return cuMemcpyDtoHAsync((void *)at, from, bytes, s);
}

enum { maxCells = 64 };

// launch launches a kernel whose parameters are in cells of eight bytes.
static CUresult launch(CUfunction f, const unsigned *geometry, unsigned shared, CUstream s, uint64_t *cells, int n) {
  void *parameters[maxCells];
  for (int i = 0; i < n; i++)
    parameters[i] = cells + i;
  return cuLaunchKernel(f, geometry[0], geometry[1], geometry[2], geometry[3], geometry[4], geometry[5], shared, s, parameters, NULL);
}
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"spc/backend"
	"spc/backend/cuda"
)

// The calls below are those that gorgonia.org/cu lacks, on its handles, and launches and
// copies, which it makes in more calls of C than one.

// load opens the driver. Its error says why there is none.
func load() error {
	var why *C.char
	r := C.CUresult(C.spc_load(&why))
	switch {
	case r == C.CUDA_SUCCESS:
		return nil
	case why != nil:
		return noDevice("%s", C.GoString(why))
	case r == C.CUDA_ERROR_NO_DEVICE:
		return noDevice("the driver finds no GPU")
	}
	return unusable{noDevice("the driver does not start: %v", result("cuInit", r))}
}

// lasting are the results after which a context is of no use: later calls on it fail, too.
var lasting = []C.CUresult{
	C.CUDA_ERROR_DEINITIALIZED, C.CUDA_ERROR_ECC_UNCORRECTABLE, C.CUDA_ERROR_NVLINK_UNCORRECTABLE,
	C.CUDA_ERROR_ILLEGAL_ADDRESS, C.CUDA_ERROR_LAUNCH_TIMEOUT, C.CUDA_ERROR_CONTEXT_IS_DESTROYED, C.CUDA_ERROR_ASSERT,
	C.CUDA_ERROR_HARDWARE_STACK_ERROR, C.CUDA_ERROR_ILLEGAL_INSTRUCTION, C.CUDA_ERROR_MISALIGNED_ADDRESS,
	C.CUDA_ERROR_INVALID_ADDRESS_SPACE, C.CUDA_ERROR_INVALID_PC, C.CUDA_ERROR_LAUNCH_FAILED,
	C.CUDA_ERROR_MPS_RPC_FAILURE, mpsClientTerminated, externalDevice, C.CUDA_ERROR_UNKNOWN,
}

// CUDA_ERROR_MPS_CLIENT_TERMINATED and CUDA_ERROR_EXTERNAL_DEVICE, which headers of CUDA 11 lack.
const mpsClientTerminated, externalDevice = 810, 911

// result is the error of a call, nil where it succeeded.
func result(call string, r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	e := &cuda.Error{Code: int(r), Call: call, Reason: fmt.Sprintf("CUDA error %d", int(r)), Lost: slices.Contains(lasting, r)}
	var name, text *C.char
	if C.cuGetErrorName(r, &name) == C.CUDA_SUCCESS && C.cuGetErrorString(r, &text) == C.CUDA_SUCCESS {
		e.Reason = C.GoString(name) + ", " + C.GoString(text)
	}
	return e
}

// otherImage reports whether a result says that an image has no code for a device.
func otherImage(code int) bool { return code == C.CUDA_ERROR_NO_BINARY_FOR_GPU }

// oldDriver reports whether one says that it has, in assembly that is too new for the driver.
func oldDriver(code int) bool { return code == C.CUDA_ERROR_UNSUPPORTED_PTX_VERSION }

// called is the error of a call that gorgonia.org/cu makes.
func called(call string, err error) error {
	if r, ok := like(err, cu.Success); ok {
		return result(call, C.CUresult(r))
	}
	return err
}

// like returns an error as one of the type of another, which has no name here.
func like[E error](err error, _ E) (E, bool) {
	e, ok := err.(E)
	return e, ok
}

func functionOf(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }
func streamOf(s cu.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }

func maxDynamicShared(f cu.Function, bytes int) error {
	return result("cuFuncSetAttribute", C.maxDynamicShared(functionOf(f), C.int(bytes)))
}

// execGraph is captured launches.
type execGraph = C.CUgraphExec

// beginCapture begins to record what this thread queues on a stream.
func beginCapture(s cu.Stream) error {
	return result("cuStreamBeginCapture", C.beginCapture(streamOf(s)))
}

func endCapture(s cu.Stream) (execGraph, error) {
	var g execGraph
	err := result("cuStreamEndCapture, cuGraphInstantiate", C.endCapture(streamOf(s), &g))
	return g, err
}

func launchGraph(g execGraph, s cu.Stream) error {
	return result("cuGraphLaunch", C.cuGraphLaunch(g, streamOf(s)))
}

// held reports whether somebody in the process has the primary context of a GPU.
func held(ordinal int) bool {
	var d C.CUdevice
	var flags C.uint
	var active C.int
	return C.cuDeviceGet(&d, C.int(ordinal)) == C.CUDA_SUCCESS && C.cuDevicePrimaryCtxGetState(d, &flags, &active) == C.CUDA_SUCCESS && active != 0
}

// query fails where the context does, and maybe where work on the stream is under way.
func query(s cu.Stream) error { return result("cuStreamQuery", C.query(streamOf(s))) }

func destroyGraph(g execGraph) error { return result("cuGraphExecDestroy", C.cuGraphExecDestroy(g)) }

// hostAlloc allocates pinned memory.
func hostAlloc(bytes int) (pinned, error) {
	var at C.uintptr_t
	err := result("cuMemHostAlloc", C.hostAlloc(&at, C.size_t(bytes)))
	return pinned{uintptr(at), bytes}, err
}

// pinned is page-locked memory of the host, at an address of C.
type pinned struct {
	at    uintptr
	bytes int
}

func (p pinned) free() error { return result("cuMemFreeHost", C.hostFree(C.uintptr_t(p.at))) }

// slice is the memory's n bytes from an offset on.
func (p pinned) slice(offset, n int) []byte {
	at := p.at + uintptr(offset)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n)
}

// upload copies from pinned memory at an offset.
func (p pinned) upload(to uint64, offset, n int, s cu.Stream) error {
	return result("cuMemcpyHtoDAsync", C.upload(C.CUdeviceptr(to), C.uintptr_t(p.at)+C.uintptr_t(offset), C.size_t(n), streamOf(s)))
}

func (p pinned) download(offset int, from uint64, n int, s cu.Stream) error {
	return result("cuMemcpyDtoHAsync", C.download(C.uintptr_t(p.at)+C.uintptr_t(offset), C.CUdeviceptr(from), C.size_t(n), streamOf(s)))
}

func allocAsync(bytes int, s cu.Stream) (uint64, error) {
	var p C.CUdeviceptr
	err := result("cuMemAllocAsync", C.cuMemAllocAsync(&p, C.size_t(bytes), streamOf(s)))
	return uint64(p), err
}

func freeAsync(at uint64, s cu.Stream) error {
	return result("cuMemFreeAsync", C.cuMemFreeAsync(C.CUdeviceptr(at), streamOf(s)))
}

// launch launches a kernel of at most maxCells parameters.
func launch(f cu.Function, g backend.Geometry, s cu.Stream, cells []cuda.Cell) error {
	if len(cells) > C.maxCells {
		return fmt.Errorf("a kernel of %d parameters, want at most %d", len(cells), C.maxCells)
	}
	var geometry [6]C.uint
	for i := range 3 {
		geometry[i], geometry[3+i] = C.uint(g.Grid[i]), C.uint(g.Block[i])
	}
	var at *C.uint64_t
	if len(cells) > 0 {
		at = (*C.uint64_t)(&cells[0])
	}
	return result("cuLaunchKernel", C.launch(functionOf(f), &geometry[0], C.uint(g.Shared), streamOf(s), at, C.int(len(cells))))
}
