// Package block8 is the format for i8 weights of which groups of four consecutive
// elements of a row stand or fall together; its configuration is 1x4. Its parts are
// rows u32 [M+1], where the groups of each row begin and end; columns u16 [groups], the
// first column of each group divided by four, ascending within a row; and values
// i8 [groups, 4]. What a group at the edge has outside of the matrix is zero.
package block8

import (
	"fmt"
	"sync"

	"spc/backend"
	"spc/backend/format/ikernel"
	"spc/backend/format/rate"
	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Config is the one configuration.
const Config = "1x4"

// Format is the format.
type Format struct{}

// Name is block8.
func (Format) Name() string { return "block8" }

// Costs offers the one configuration where groups are missing, counting a multiply-add
// for every stored element and column.
func (Format) Costs(w *choose.Matrix, n int) []choose.Cost {
	m, k, r := w.Dim(0), w.Dim(1), rate.Integers[ikernel.Best().ISA].Groups
	k4 := ikernel.Groups(k)
	groups := w.Blocks(1, ikernel.Group).Blocks
	if m == 0 || k4 >= 1<<16 || groups == m*k4 {
		return nil
	}
	return []choose.Cost{{
		Config: Config, Kernel: "s8_block_1x4",
		Work:       2 * ikernel.Group * float64(groups) * float64(backend.Columns(max(n, backend.Granule))),
		Bytes:      4*(m+1) + groups*(ikernel.Group+2),
		Efficiency: r.Efficiency(float64(groups)/float64(m), k, max(n, backend.Granule)),
	}}
}

// Pack stores w, f32 of whole numbers.
func (Format) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	if config != Config {
		return nil, fmt.Errorf("unknown configuration %q", config)
	}
	b, err := sparse.Find(w, 1, ikernel.Group, 0)
	if err != nil {
		return nil, err
	}
	values := tensor.New(tensor.I8, len(b.Column), ikernel.Group)
	data := tensor.Data[int8](values)
	for i, v := range b.Values.Float32s() {
		if data[i] = int8(v); float32(data[i]) != v {
			return nil, fmt.Errorf("element %v, want a whole number in -128..127", v)
		}
	}
	return []ir.Part{
		{Name: "rows", Data: tensor.From(b.Ptr, len(b.Ptr))},
		{Name: "columns", Data: sparse.Narrow(b.Column, sparse.Ceil(b.K, ikernel.Group), len(b.Column))},
		{Name: "values", Data: values},
	}, nil
}

// blocks views a store as blocks whose values lie apart.
func blocks(s *ir.Store) (*sparse.Blocks, []int8, error) {
	if s.Config != Config {
		return nil, nil, fmt.Errorf("unknown configuration %q", s.Config)
	}
	p, err := sparse.Parts(s,
		sparse.Spec{Name: "rows", DType: tensor.U32, Shape: []int{s.Rows + 1}},
		sparse.Spec{Name: "columns", DType: tensor.U16, Shape: []int{sparse.Any}},
		sparse.Spec{Name: "values", DType: tensor.I8, Shape: []int{sparse.Any, ikernel.Group}})
	if err != nil {
		return nil, nil, err
	}
	return &sparse.Blocks{
		M: s.Rows, K: s.Cols, R: 1, C: ikernel.Group,
		Ptr: tensor.Data[uint32](p[0]), Column: sparse.Widen(p[1]),
	}, tensor.Data[int8](p[2]), nil
}

// Check checks the parts as those of block.
func (Format) Check(s *ir.Store) error {
	b, values, err := blocks(s)
	if err != nil {
		return err
	}
	floats := make([]float32, len(values))
	for i, v := range values {
		floats[i] = float32(v)
	}
	b.Values = ukernel.F32(floats)
	return b.Check()
}

// Unpack returns the matrix i8 [M,K].
func (Format) Unpack(s *ir.Store) (*tensor.Tensor, error) {
	b, values, err := blocks(s)
	if err != nil {
		return nil, err
	}
	w := tensor.New(tensor.I8, s.Rows, s.Cols)
	data := tensor.Data[int8](w)
	for r := range s.Rows {
		for g := b.Ptr[r]; g < b.Ptr[r+1]; g++ {
			k := int(b.Column[g]) * ikernel.Group
			copy(data[r*s.Cols+k:(r+1)*s.Cols], values[g*ikernel.Group:][:ikernel.Group])
		}
	}
	return w, nil
}

// Kernel prepares a store that Check accepts.
func (Format) Kernel(s *ir.Store) (backend.Kernel8, error) { return bind(s, ikernel.Best()) }

// segmentGroups is the number of groups of columns whose panel rows stay in the
// first-level cache while the rows of a segment of the weight are worked on, and
// segmentSteps the number of groups that a row should have in a segment on average.
const (
	segmentGroups = 128
	segmentSteps  = 8
)

func bind(s *ir.Store, kern *ikernel.Kernels) (*kernel, error) {
	b, values, err := blocks(s)
	if err != nil {
		return nil, err
	}
	d := &kernel{kern: kern, k4: ikernel.Groups(s.Cols), sums: make([]int32, s.Rows)}
	for r := range d.sums {
		for _, v := range values[b.Ptr[r]*ikernel.Group : b.Ptr[r+1]*ikernel.Group] {
			d.sums[r] += int32(v)
		}
	}
	n := max(1, min(sparse.Ceil(d.k4, segmentGroups), len(b.Column)/max(s.Rows, 1)/segmentSteps))
	d.segments = sync.OnceValue(func() []*ikernel.Groups1x4 {
		var prepared []*ikernel.Groups1x4
		for _, s := range cut(b, values, d.k4, n) {
			prepared = append(prepared, kern.Prepare(&s))
		}
		return prepared
	})
	return d, nil
}

// cut divides a weight into n segments of columns.
func cut(b *sparse.Blocks, values []int8, k4, n int) []ikernel.Groups1x4 {
	segments := make([]ikernel.Groups1x4, n)
	next := append([]uint32(nil), b.Ptr[:b.M]...) // where each row goes on
	for i := range segments {
		s, end := &segments[i], uint32((i+1)*k4/n)
		s.Ptr = make([]uint32, 1, b.M+1)
		for r := range b.M {
			g := next[r]
			for ; g < b.Ptr[r+1] && b.Column[g] < end; g++ {
				s.Index = append(s.Index, uint16(b.Column[g]))
			}
			s.Value = append(s.Value, values[next[r]*ikernel.Group:g*ikernel.Group]...)
			s.Ptr = append(s.Ptr, uint32(len(s.Index)))
			next[r] = g
		}
	}
	return segments
}

// kernel multiplies segment by segment.
type kernel struct {
	kern     *ikernel.Kernels
	k4       int
	sums     []int32
	segments func() []*ikernel.Groups1x4
}

func (d *kernel) Name() string  { return "s8_block_1x4_1x64__" + d.kern.ISA }
func (d *kernel) Sums() []int32 { return d.sums }
func (d *kernel) Groups() int   { return d.k4 }

func (d *kernel) Panel(c []int32, x []uint8, cols, r0, r1 int) {
	for i, s := range d.segments() {
		d.kern.Spmm(s, r0, r1, d.k4, x, cols, c, ikernel.Columns, i > 0)
	}
}
