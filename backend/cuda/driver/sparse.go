//go:build cuda && linux && amd64

package driver

/*
#include <stdlib.h>
#include "cusparselt.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"spc/backend/cuda"
	"spc/ir/tensor"
)

// cusparseLt is the library once it is open, or why it is not.
type cusparseLt struct {
	lib *C.spc_sp
	LibraryInfo
}

// openCusparseLt opens the library, of which older versions number what they compute in
// differently.
var openCusparseLt = sync.OnceValue(func() (found cusparseLt) {
	const oldest = 600
	found.Name = "cuSPARSELt"
	found.Missing = find([]string{"libcusparseLt.so.0"}, func(path *C.char) error {
		var why *C.char
		lib := C.spc_sp_open(path, &why)
		if lib == nil {
			return errors.New(C.GoString(why))
		}
		v := int(C.spc_sp_version(lib))
		if v < oldest {
			return fmt.Errorf("%s is version %s, want at least %s", C.GoString(path), version(v), version(oldest))
		}
		found.lib, found.Path, found.Version = lib, C.GoString(C.spc_sp_path(lib)), version(v)
		return nil
	}, "nvidia/cusparselt/lib")
	return found
})

// status is the error of a call of cuSPARSELt, nil where it succeeded.
func (c cusparseLt) status(call *C.char, status C.int) error {
	if status == C.spSuccess {
		return nil
	}
	return failed(call, status, C.spc_sp_name(c.lib, status))
}

// sp is cuSPARSELt for a GPU.
type sp struct {
	cusparseLt
	*device
	handle unsafe.Pointer
}

// SparseLibrary returns cuSPARSELt, where it is found and takes the GPU.
func (d *device) SparseLibrary() (cuda.Library, error) {
	l, err := d.sparse.open(d.openSparse)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (d *device) openSparse() (*sp, error) {
	l := &sp{cusparseLt: openCusparseLt(), device: d}
	return l, d.attach(l.LibraryInfo, func() error {
		var call *C.char
		status := C.spc_sp_create(l.lib, &l.handle, &call)
		return l.status(call, status)
	})
}

// Close gives the handle back.
func (l *sp) Close() error {
	return l.sparse.close(func() error {
		defer C.free(l.handle)
		return l.free(func() error {
			var call *C.char
			status := C.spc_sp_close(l.lib, l.handle, &call)
			return l.status(call, status)
		})
	})
}

// Name is the library's.
func (l *sp) Name() string { return "cusparselt" }

// Plan makes one for X and Y that both lie by columns, or both by rows, in 16-bit floats.
func (l *sp) Plan(p cuda.Product) (cuda.Plan, error) {
	wd, wt, ok1 := cuda.InColumns(p.M, p.K, p.W[0], p.W[1])
	xd, xt, ok2 := cuda.InColumns(p.K, p.N, p.X[0], p.X[1])
	yd, yt, ok3 := cuda.InColumns(p.M, p.N, p.Y[0], p.Y[1])
	types := map[tensor.DType]C.int{tensor.F16: C.spF16, tensor.BF16: C.spBF16}
	if !ok1 || !ok2 || !ok3 || !wt || xt != yt || p.Act == cuda.GeluTanh || p.DType == tensor.F32 || p.Out != p.DType || p.Batch > math.MaxInt32 {
		return nil, nil
	}
	q := C.spc_sp_product{
		_type: types[p.DType], order: C.spByColumns, rows: C.int64_t(p.M), depth: C.int64_t(p.K), cols: C.int64_t(p.N),
		distance: [3]C.int64_t{C.int64_t(wd), C.int64_t(xd), C.int64_t(yd)},
		stride:   [3]C.int64_t{C.int64_t(p.W[2]), C.int64_t(p.X[2]), C.int64_t(p.Y[2])},
		batch:    C.int(p.Batch), bias: C.uint64_t(p.Bias),
	}
	if xt {
		q.order = C.spByRows
	}
	if p.Act == cuda.Relu {
		q.relu = 1
	}
	plan := &spPlan{sp: l, alpha: C.float(p.Alpha)}
	if p.Residual {
		plan.beta = 1
	}
	err := l.do(func() error {
		var call *C.char
		status := C.spc_sp_make(l.lib, l.handle, &q, &plan.made, &call)
		if status == C.spInvalid || status == C.spNotSupported || status == C.spArchMismatch { // sizes that it does not take are invalid
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
	if plan.Workspace() > p.Workspace {
		return nil, plan.Close()
	}
	return plan, nil
}

// spPlan is a product with its algorithm.
type spPlan struct {
	*sp
	made        C.spc_sp_plan
	alpha, beta C.float
}

// Workspace is what the algorithm needs.
func (p *spPlan) Workspace() int { return int(p.made.workspace) }

// Compressed is the bytes of the weight.
func (p *spPlan) Compressed() int { return int(p.made.compressed) }

// Close destroys the plan.
func (p *spPlan) Close() error {
	defer C.spc_sp_forget(&p.made)
	return p.device.free(func() error {
		var call *C.char
		status := C.spc_sp_destroy(p.lib, &p.made, &call)
		return p.status(call, status)
	})
}

func (p *spPlan) multiply(s *stream, w, x, residual, y, workspace cuda.Pointer) error {
	if p.beta == 0 {
		residual = y
	}
	var call *C.char
	status := C.spc_sp_multiply(p.lib, p.handle, &p.made, p.alpha, p.beta, C.uint64_t(w), C.uint64_t(x), C.uint64_t(residual), C.uint64_t(y),
		C.uint64_t(workspace), unsafe.Pointer(streamOf(s.queue)), &call)
	return p.status(call, status)
}

func (s *stream) Compress(plan cuda.Plan, to, w cuda.Pointer) error {
	p := plan.(*spPlan)
	scratch, err := s.Alloc(max(1, int(p.made.scratch)))
	if err != nil {
		return err
	}
	err = s.do(func() error {
		var call *C.char
		status := C.spc_sp_compress(p.lib, p.handle, &p.made, C.uint64_t(w), C.uint64_t(to), C.uint64_t(scratch), unsafe.Pointer(streamOf(s.queue)), &call)
		return p.status(call, status)
	})
	if copied := s.Sync(); err == nil {
		err = copied
	}
	if freed := s.Free(scratch); err == nil {
		err = freed
	}
	return err
}
