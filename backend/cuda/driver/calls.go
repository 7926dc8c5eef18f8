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
	"unsafe"

	"gorgonia.org/cu"

	"spc/backend"
)

// The calls below are those that gorgonia.org/cu lacks, on its handles, and launches and
// copies, which it makes in more calls of C than one.

// load opens the driver. Its error says why there is none.
func load() error {
	var why *C.char
	r := C.spc_load(&why)
	switch {
	case r == 0:
		return nil
	case why != nil:
		return noDevice("%s", C.GoString(why))
	case r == C.CUDA_ERROR_NO_DEVICE:
		return noDevice("the driver finds no GPU")
	}
	return noDevice("the driver does not start: CUDA error %d", int(r))
}

// result is the error of a call, nil where it succeeded.
func result(call string, r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	var name, text *C.char
	if C.cuGetErrorName(r, &name) != C.CUDA_SUCCESS || C.cuGetErrorString(r, &text) != C.CUDA_SUCCESS {
		return fmt.Errorf("%s: CUDA error %d", call, int(r))
	}
	return fmt.Errorf("%s: %s, %s", call, C.GoString(name), C.GoString(text))
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
func launch(f cu.Function, g backend.Geometry, s cu.Stream, cells []uint64) error {
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
