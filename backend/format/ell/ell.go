// Package ell is the uniform format: every block row of R rows keeps the same
// number S of vectors of R x 1 elements; its configuration is Rx1, where 1x1 is
// ELLPACK. Its parts are columns [ceil(M/R), S], ascending within a block row,
// u16 where K < 65536, else u32; and values f32 [ceil(M/R), S, R]. Block rows
// with fewer vectors are filled up with zeros at columns that they do not use,
// and so are the rows that the last one lacks.
package ell

import (
	"fmt"
	"math"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Scheme is the ell format, as sparse.New takes it.
type Scheme struct{}

// Name is ell.
func (Scheme) Name() string { return "ell" }

// Layouts lists the vectors that CPUs like, as many in each block row as the fullest has.
func (Scheme) Layouts(w *choose.Matrix) (out []backend.Layout) {
	for _, r := range ukernel.Blocks {
		vectors := sparse.Ceil(w.Dim(0), r) * max(1, w.Blocks(r, 1).Widest)
		out = append(out, backend.Layout{
			Config: fmt.Sprintf("%dx1", r), Rows: r, Values: vectors * r,
			Bytes: vectors * (w.Type.Size()*r + sparse.IndexType(w.Dim(1)).Size()),
		})
	}
	return out
}

// height reads a configuration.
func height(config string) (r int, err error) {
	r, c, err := sparse.Shape(config)
	if err == nil && c != 1 {
		err = fmt.Errorf("configuration %q: want Rx1", config)
	}
	return r, err
}

// Pack lists the vectors of each block row.
func (Scheme) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	r, err := height(config)
	if err != nil {
		return nil, err
	}
	s := max(1, choose.NewMatrix(w, "").Blocks(r, 1).Widest)
	b, err := sparse.Find(w, r, 1, s)
	if err != nil {
		return nil, err
	}
	rows := len(b.Ptr) - 1
	return []ir.Part{
		{Name: "columns", Data: sparse.Narrow(b.Column, b.K, rows, s)},
		{Name: "values", Data: tensor.From(b.Values.Float32s(), rows, s, r)},
	}, nil
}

// Blocks views a store's vectors as R x 1 blocks.
func (Scheme) Blocks(s *ir.Store) (*sparse.Blocks, error) {
	r, err := height(s.Config)
	if err != nil {
		return nil, err
	}
	rows := sparse.Ceil(s.Rows, r)
	p, err := sparse.Parts(s,
		sparse.Spec{Name: "columns", DType: sparse.IndexType(s.Cols), Shape: []int{rows, sparse.Any}},
		sparse.Spec{Name: "values", DType: tensor.F32, Shape: []int{rows, sparse.Any, r}})
	if err != nil {
		return nil, err
	}
	width := p[0].Dim(1)
	if width != p[1].Dim(1) || width == 0 || uint64(p[0].Len()) > math.MaxUint32 {
		return nil, fmt.Errorf("%d columns and %d vectors in a block row, want as many, at least one", width, p[1].Dim(1))
	}
	b := &sparse.Blocks{M: s.Rows, K: s.Cols, R: r, C: 1, Column: sparse.Widen(p[0]), Values: sparse.Values(p[1])}
	b.Ptr = make([]uint32, rows+1)
	for i := range b.Ptr {
		b.Ptr[i] = uint32(i * width)
	}
	return b, nil
}
