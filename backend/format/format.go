// Package format lists the storage formats; each lives in a folder of its own
// with packing, unpacking, the check of hostile data, costs and kernels. It
// imports backend.
package format

import (
	"cmp"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"spc/backend"
	"spc/backend/format/block"
	"spc/backend/format/csr"
	"spc/backend/format/dense"
	"spc/backend/format/ell"
	"spc/backend/format/nm"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Table lists the formats. Dense comes first: it suits every weight.
var Table = []backend.Format{
	dense.Format{},
	sparse.New(ell.Scheme{}),
	sparse.New(nm.Scheme{}),
	sparse.New(block.Scheme{}),
	sparse.New(csr.Scheme{}),
}

// Lookup returns the format of the given name, nil where there is none.
func Lookup(name string) backend.Format {
	for _, f := range Table {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

// Choices returns the formats as choosing sees them.
func Choices() []choose.Format {
	out := make([]choose.Format, len(Table))
	for i, f := range Table {
		out[i] = f
	}
	return out
}

// CheckAll checks the stored weights among constants, on all processors, and returns
// the error of the first that fails.
func CheckAll(constants []*ir.Value) error {
	errs := make([]error, len(constants))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(constants), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1) - 1); i < len(constants); i = int(next.Add(1) - 1) {
				if v := constants[i]; v.Store != nil {
					if err := Check(v.Store, v.Type); err != nil {
						errs[i] = fmt.Errorf("weight %s: %w", v.Name, err)
					}
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// Check checks a store against the weight's type.
func Check(s *ir.Store, t ir.Type) error {
	f := Lookup(s.Format)
	if f == nil {
		return fmt.Errorf("unknown storage format %q: %w", s.Format, ir.ErrUnsupported)
	}
	shape, ok := t.Shape()
	if !ok || t.DType != tensor.F32 {
		return fmt.Errorf("stored weight of type %v, want f32 and a known shape: %w", t, ir.ErrCorrupt)
	}
	if err := s.View.Check(len(shape)); err != nil {
		return fmt.Errorf("%w: %w", err, ir.ErrCorrupt)
	}
	if _, err := tensor.Elems(shape); err != nil {
		return fmt.Errorf("%w: %w", err, ir.ErrCorrupt)
	}
	if m, k := s.View.Dims(shape); m != s.Rows || k != s.Cols {
		return fmt.Errorf("stored as %d x %d, but its type %v is %d x %d: %w", s.Rows, s.Cols, t, m, k, ir.ErrCorrupt)
	}
	if err := f.Check(s); err != nil {
		return fmt.Errorf("%s: %w: %w", s.Format, err, ir.ErrCorrupt)
	}
	return nil
}

// Unpack returns the dense tensor of a store that Check accepts.
func Unpack(s *ir.Store, t ir.Type) (*tensor.Tensor, error) {
	m, err := Lookup(s.Format).Unpack(s)
	if err != nil {
		return nil, err
	}
	shape, _ := t.Shape()
	return s.View.Tensor(m, shape), nil
}
