// Package block is the format for blocks of R x C elements that stand or fall
// together: block compressed sparse rows; its configuration is RxC. Its parts
// are rows u32 [ceil(M/R)+1], where the blocks of each block row begin and end;
// columns [blocks], block columns ascending within a block row, u16 where
// ceil(K/C) < 65536, else u32; and values f32 [blocks, C, R], each block column
// by column. What blocks at the edges have outside of the matrix is zero.
package block

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/passes/prune"
)

// Scheme is the block format, as sparse.New takes it.
type Scheme struct{}

// Name is block.
func (Scheme) Name() string { return "block" }

// shapes are the blocks that any weight is tried with.
var shapes = [][2]int{
	{2, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}, {1, 4}, {1, 8}, {1, 16},
	{2, 2}, {4, 4}, {8, 8}, {16, 16}, {32, 32},
}

// Layouts lists the blocks of the pattern and those that any weight is tried with.
func (Scheme) Layouts(w *choose.Matrix) (out []backend.Layout) {
	tried := shapes
	if p, err := prune.ParsePattern(w.Pattern); err == nil && p.R*p.C > 1 {
		tried = append([][2]int{{p.R, p.C}}, shapes...)
	}
	for i, shape := range tried {
		r, c := shape[0], shape[1]
		if i > 0 && shape == tried[0] {
			continue
		}
		blocks, down, across := w.Blocks(r, c).Blocks, sparse.Ceil(w.Dim(0), r), sparse.Ceil(w.Dim(1), c)
		out = append(out, backend.Layout{
			Config: fmt.Sprintf("%dx%d", r, c), Rows: r, Cols: c, Values: blocks * r * c,
			Bytes: 4*(down+1) + blocks*(w.Type.Size()*r*c+sparse.IndexType(across).Size()),
		})
	}
	return out
}

// Pack lists the blocks of each block row.
func (Scheme) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	r, c, err := sparse.Shape(config)
	if err != nil {
		return nil, err
	}
	b, err := sparse.Find(w, r, c, 0)
	if err != nil {
		return nil, err
	}
	n := len(b.Column)
	return []ir.Part{
		{Name: "rows", Data: tensor.From(b.Ptr, len(b.Ptr))},
		{Name: "columns", Data: sparse.Narrow(b.Column, sparse.Ceil(b.K, c), n)},
		{Name: "values", Data: tensor.From(b.Values.Float32s(), n, c, r)},
	}, nil
}

// Blocks views a store as what it is.
func (Scheme) Blocks(s *ir.Store) (*sparse.Blocks, error) {
	r, c, err := sparse.Shape(s.Config)
	if err != nil {
		return nil, err
	}
	p, err := sparse.Parts(s,
		sparse.Spec{Name: "rows", DType: tensor.U32, Shape: []int{sparse.Ceil(s.Rows, r) + 1}},
		sparse.Spec{Name: "columns", DType: sparse.IndexType(sparse.Ceil(s.Cols, c)), Shape: []int{sparse.Any}},
		sparse.Spec{Name: "values", DType: tensor.F32, Shape: []int{sparse.Any, c, r}})
	if err != nil {
		return nil, err
	}
	return &sparse.Blocks{
		M: s.Rows, K: s.Cols, R: r, C: c,
		Ptr: tensor.Data[uint32](p[0]), Column: sparse.Widen(p[1]), Values: sparse.Values(p[2]),
	}, nil
}
