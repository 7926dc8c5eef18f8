package i8

import (
	"sync"

	"spc/backend"
	"spc/backend/format/block"
	"spc/backend/format/ikernel"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// groups is the configuration of blocks that there are kernels for: groups of four consecutive
// elements of a row, which a lane multiplies and adds at once.
const groups = "1x4"

// Block is the kernels for blocks: groups of four, and as dense for others.
var Block = row(blockCost, func(s *ir.Store) (backend.Kernel, error) { return bindBlock(s, ikernel.Best()) }, blockGPU{})

func blockCost(p *machine.Profile, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
	m, k, r := w.Dim(0), w.Dim(1), p.Of(machine.Groups8)
	k4 := ikernel.Groups(k)
	if l.Config != groups || m == 0 || k4 >= 1<<16 || l.Values == m*k4*ikernel.Group {
		return choose.Cost{}, false
	}
	return choose.Cost{
		Config: l.Config, Kernel: "s8_block_1x4",
		Work:       2 * float64(l.Values) * float64(backend.Columns(max(n, backend.Granule))),
		Bytes:      l.Bytes,
		Efficiency: r.Efficiency(float64(l.Values)/ikernel.Group/float64(m), k, max(n, backend.Granule)),
	}, true
}

// blocks views a store as blocks whose values lie apart.
func blocks(s *ir.Store) (*sparse.Blocks, []int8, error) {
	b, err := block.Scheme{}.Blocks(s)
	return b, tensor.Data[int8](s.Part("values")), err
}

// segmentGroups is the number of groups of columns whose panel rows stay in the
// first-level cache while the rows of a segment of the weight are worked on, and
// segmentSteps the number of groups that a row should have in a segment on average.
const (
	segmentGroups = 128
	segmentSteps  = 8
)

func bindBlock(s *ir.Store, kern *ikernel.Kernels) (backend.Kernel, error) {
	if s.Config != groups || ikernel.Groups(s.Cols) >= 1<<16 {
		return unpacked(sparse.Storage(block.Scheme{}), s)
	}
	b, values, err := blocks(s)
	if err != nil {
		return nil, err
	}
	d := &blockKernel{kern: kern, k4: ikernel.Groups(s.Cols), sums: make([]int32, s.Rows)}
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

// blockKernel multiplies segment by segment.
type blockKernel struct {
	kern     *ikernel.Kernels
	k4       int
	sums     []int32
	segments func() []*ikernel.Groups1x4
}

func (d *blockKernel) Name() string  { return "s8_block_1x4_1x64__" + d.kern.ISA }
func (d *blockKernel) Sums() []int32 { return d.sums }
func (d *blockKernel) Groups() int   { return d.k4 }

// Warm cuts the weight into segments.
func (d *blockKernel) Warm(bool) { d.segments() }

func (d *blockKernel) Panel(c []int32, x []uint8, cols, r0, r1 int) {
	for i, s := range d.segments() {
		d.kern.Spmm(s, r0, r1, d.k4, x, cols, c, ikernel.Columns, i > 0)
	}
}
