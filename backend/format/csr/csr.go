// Package csr is the format for any pattern: compressed sparse rows. Its parts
// are rows u32 [M+1], where the nonzeros of each row begin and end; columns
// [nonzeros], ascending within a row, u16 where K < 65536, else u32; and values
// f32 [nonzeros]. Rows keep their order: a device that wants them sorted by
// length sorts them as it loads.
package csr

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Scheme is the csr format, as sparse.New takes it.
type Scheme struct{}

// Name is csr.
func (Scheme) Name() string { return "csr" }

// Layouts lists the one configuration.
func (Scheme) Layouts(w *choose.Matrix) []backend.Layout {
	return []backend.Layout{{
		Rows: 1, Values: w.Nonzeros,
		Bytes: 4*(w.Dim(0)+1) + w.Nonzeros*(w.Type.Size()+sparse.IndexType(w.Dim(1)).Size()),
	}}
}

// Pack lists the nonzeros row by row.
func (Scheme) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	if config != "" {
		return nil, fmt.Errorf("unknown configuration %q", config)
	}
	b, err := sparse.Find(w, 1, 1, 0)
	if err != nil {
		return nil, err
	}
	return []ir.Part{
		{Name: "rows", Data: tensor.From(b.Ptr, len(b.Ptr))},
		{Name: "columns", Data: sparse.Narrow(b.Column, b.K, len(b.Column))},
		{Name: "values", Data: tensor.From(b.Values.Float32s(), b.Values.Len())},
	}, nil
}

// Blocks views a store's nonzeros as 1 x 1 blocks.
func (Scheme) Blocks(s *ir.Store) (*sparse.Blocks, error) {
	if s.Config != "" {
		return nil, fmt.Errorf("unknown configuration %q", s.Config)
	}
	p, err := sparse.Parts(s,
		sparse.Spec{Name: "rows", DType: tensor.U32, Shape: []int{s.Rows + 1}},
		sparse.Spec{Name: "columns", DType: sparse.IndexType(s.Cols), Shape: []int{sparse.Any}},
		sparse.Spec{Name: "values", DType: tensor.F32, Shape: []int{sparse.Any}})
	if err != nil {
		return nil, err
	}
	return &sparse.Blocks{
		M: s.Rows, K: s.Cols, R: 1, C: 1,
		Ptr: tensor.Data[uint32](p[0]), Column: sparse.Widen(p[1]), Values: sparse.Values(p[2]),
	}, nil
}
