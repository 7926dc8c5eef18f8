//go:build cuda && linux && amd64

package driver

/*
#include <stdlib.h>
#include "cublaslt.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"spc/backend/cuda"
	"spc/ir/tensor"
)

// folders lists where a library may lie besides where the dynamic linker looks: in the folders
// that the variable LibraryPath names, or LD_LIBRARY_PATH, and in what lies below those of them
// that are site-packages of Python.
func folders(below ...string) (own, python []string) {
	for _, dir := range filepath.SplitList(os.Getenv(LibraryPath)) {
		if dir != "" {
			own = append(own, dir)
			for _, b := range below {
				own = append(own, filepath.Join(dir, b))
			}
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if dir != "" {
			for _, b := range below {
				python = append(python, filepath.Join(dir, b))
			}
		}
	}
	return own, python
}

// find opens the first library of some names that open takes, in those folders and where the
// dynamic linker looks, and says why there is none.
func find(names []string, open func(path *C.char) error, below ...string) (missing string) {
	own, python := folders(below...)
	var reasons []string
	for _, dirs := range [][]string{own, {""}, python} {
		for _, name := range names {
			for _, dir := range dirs {
				path := filepath.Join(dir, name)
				if dir != "" {
					if _, err := os.Stat(path); err != nil {
						continue
					}
				}
				cpath := C.CString(path)
				err := open(cpath)
				C.free(unsafe.Pointer(cpath))
				if err == nil {
					return ""
				}
				if dir != "" || !strings.Contains(err.Error(), "No such file") {
					reasons = append(reasons, err.Error())
				}
			}
		}
	}
	if len(reasons) > 0 {
		return strings.Join(reasons, "; ")
	}
	return "there is no " + strings.Join(names, " or ")
}

// cublasLt is the library once it is open, or why it is not.
type cublasLt struct {
	lib *C.spc_lt
	LibraryInfo
}

// openCublasLt opens the newest library that the driver is new enough for.
var openCublasLt = sync.OnceValue(func() (found cublasLt) {
	found.Name = "cuBLASLt"
	var names []string
	for major := 13; major >= 11; major-- {
		if major <= cu.Version()/1000 {
			names = append(names, fmt.Sprintf("libcublasLt.so.%d", major))
		}
	}
	found.Missing = find(names, func(path *C.char) error {
		var why *C.char
		lib := C.spc_lt_open(path, &why)
		if lib == nil {
			return errors.New(C.GoString(why))
		}
		v := int(C.spc_lt_version(lib))
		found.lib, found.Path, found.Version = lib, C.GoString(C.spc_lt_path(lib)), version(v)
		return nil
	}, "nvidia/cublas/lib", "nvidia/cu13/lib") // of wheels for CUDA 11 and 12, and for 13
	return found
})

// version writes a version as cuBLASLt tells it: 11402 is 11.4.2, and, from 12 on, 120402 is 12.4.2.
func version(v int) string {
	if v < 100000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// Libraries lists the libraries that products may use. It opens them, where there is a driver.
func Libraries() []LibraryInfo {
	if err := load(); err != nil {
		return nil
	}
	return []LibraryInfo{openCublasLt().LibraryInfo, openCusparseLt().LibraryInfo}
}

// status is the error of a call of cuBLASLt, nil where it succeeded.
func (c cublasLt) status(call *C.char, status C.int) error {
	if status == C.ltSuccess {
		return nil
	}
	return failed(call, status, C.spc_lt_name(c.lib, status))
}

// failed is the error of a call of a library, whose status may have a name.
func failed(call *C.char, status C.int, name *C.char) error {
	if name != nil {
		return &cuda.Error{Call: C.GoString(call), Reason: C.GoString(name)}
	}
	return &cuda.Error{Call: C.GoString(call), Reason: fmt.Sprintf("status %d", int(status))}
}

// shared is a library's handle for a GPU, which all share that use it: the first makes it, and the
// last who closes it destroys it.
//
// Plans are closed before it. On a lost device nothing is called that may know the context: a handle,
// and objects of cuSPARSELt, may hold memory, streams and modules of it, which went with it, and whose
// addresses may be those of something else since. What the library has of them in the memory of the
// host stays there. Descriptors of cuBLASLt are such memory alone, and are destroyed.
type shared[L any] struct {
	mu    sync.Mutex
	users int
	lib   L
}

func (s *shared[L]) open(create func() (L, error)) (L, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		var err error
		if s.lib, err = create(); err != nil {
			return s.lib, err
		}
	}
	s.users++
	return s.lib, nil
}

func (s *shared[L]) close(destroy func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	return destroy()
}

// attach makes a library's handle for the GPU by create, where the library was found.
func (d *device) attach(found LibraryInfo, create func() error) error {
	if found.Missing != "" {
		return errors.New(found.Missing)
	}
	if err := d.do(create); err != nil {
		return fmt.Errorf("%s: %s: %w", d.Name(), found.Path, err)
	}
	return nil
}

// lt is cuBLASLt for a GPU.
type lt struct {
	cublasLt
	*device
	handle unsafe.Pointer
}

// Library returns cuBLASLt, where it is found and takes the GPU.
func (d *device) Library() (cuda.Library, error) {
	l, err := d.library.open(d.openLibrary)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (d *device) openLibrary() (*lt, error) {
	l := &lt{cublasLt: openCublasLt(), device: d}
	return l, d.attach(l.LibraryInfo, func() error {
		var call *C.char
		status := C.spc_lt_create(l.lib, &l.handle, &call)
		return l.status(call, status)
	})
}

// Close gives the handle back.
func (l *lt) Close() error {
	return l.library.close(func() error {
		return l.free(func() error {
			var call *C.char
			status := C.spc_lt_close(l.lib, l.handle, &call)
			return l.status(call, status)
		})
	})
}

// Name is the library's.
func (l *lt) Name() string { return "cublaslt" }

var ltTypes = map[tensor.DType]C.int{tensor.F32: C.ltF32, tensor.F16: C.ltF16, tensor.BF16: C.ltBF16}

// Plan asks for an algorithm. A product whose Y lies by rows is computed as that of the
// transposed matrices.
func (l *lt) Plan(p cuda.Product) (cuda.Plan, error) {
	wd, wt, ok1 := cuda.InColumns(p.M, p.K, p.W[0], p.W[1])
	xd, xt, ok2 := cuda.InColumns(p.K, p.N, p.X[0], p.X[1])
	yd, yt, ok3 := cuda.InColumns(p.M, p.N, p.Y[0], p.Y[1])
	if !ok1 || !ok2 || !ok3 || yt && p.Bias != 0 || p.Batch > math.MaxInt32 {
		return nil, nil
	}
	q := C.spc_lt_product{
		_type: ltTypes[p.DType], output: ltTypes[p.Out], batch: C.int(p.Batch),
		rows: C.uint64_t(p.M), cols: C.uint64_t(p.N), depth: C.uint64_t(p.K),
		epilogue: map[cuda.Activation]C.int{cuda.NoActivation: C.ltNoEpilogue, cuda.Relu: C.ltRelu, cuda.GeluTanh: C.ltGelu}[p.Act],
		bias:     C.uint64_t(p.Bias), workspace: C.uint64_t(p.Workspace),
	}
	if p.Bias != 0 && p.Act == cuda.NoActivation {
		q.epilogue = C.ltBias
	} else if p.Bias != 0 {
		q.epilogue |= C.ltBias
	}
	plan := &ltPlan{lt: l, swap: yt, alpha: C.float(p.Alpha)}
	if p.Residual {
		plan.beta = 1
	}
	left, right := 0, 1
	if plan.swap {
		left, right = 1, 0
		q.rows, q.cols = q.cols, q.rows
	}
	for _, m := range []struct {
		at, distance, stride int
		transposed           bool
	}{{left, wd, p.W[2], wt != plan.swap}, {right, xd, p.X[2], xt != plan.swap}} {
		q.distance[m.at], q.stride[m.at] = C.int64_t(m.distance), C.int64_t(m.stride)
		if m.transposed {
			q.transposed[m.at] = 1
		}
	}
	q.distance[2], q.stride[2] = C.int64_t(yd), C.int64_t(p.Y[2])
	err := l.do(func() error {
		var call *C.char
		status := C.spc_lt_make(l.lib, l.handle, &q, &plan.made, &call)
		if status == C.ltNotSupported || status == C.ltArchMismatch {
			return errNone
		}
		return l.status(call, status)
	})
	switch {
	case err == errNone:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return plan, nil
}

var errNone = errors.New("the library has no algorithm")

// ltPlan is a product with its algorithm; swap says that it is of the transposed matrices.
type ltPlan struct {
	*lt
	made        C.spc_lt_plan
	swap        bool
	alpha, beta C.float
}

// Workspace is what the algorithm needs.
func (p *ltPlan) Workspace() int { return int(p.made.found.workspace) }

// Close destroys the plan's descriptors.
func (p *ltPlan) Close() error {
	var call *C.char
	status := C.spc_lt_destroy(p.lib, &p.made, &call)
	return p.status(call, status)
}

// multiplier is a plan of a library of this package, and multiply queues it.
type multiplier interface {
	multiply(s *stream, w, x, residual, y, workspace cuda.Pointer) error
}

func (s *stream) Multiply(p cuda.Plan, w, x, residual, y, workspace cuda.Pointer) error {
	return s.do(func() error { return p.(multiplier).multiply(s, w, x, residual, y, workspace) })
}

// Compressed says that the weight is taken as it lies.
func (p *ltPlan) Compressed() int { return 0 }

func (p *ltPlan) multiply(s *stream, w, x, residual, y, workspace cuda.Pointer) error {
	if p.swap {
		w, x = x, w
	}
	if p.beta == 0 {
		residual = y
	}
	var call *C.char
	status := C.spc_lt_multiply(p.lib, p.handle, &p.made, p.alpha, p.beta, C.uint64_t(w), C.uint64_t(x), C.uint64_t(residual), C.uint64_t(y),
		C.uint64_t(workspace), unsafe.Pointer(streamOf(s.queue)), &call)
	return p.status(call, status)
}
