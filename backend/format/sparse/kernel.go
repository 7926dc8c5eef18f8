package sparse

import (
	"fmt"
	"math"
	"slices"

	"spc/backend"
	"spc/backend/format/rate"
	"spc/backend/format/ukernel"
)

// Kernel prepares the blocks for the CPU's best kernels. The format's name goes
// into that of the kernel.
func (b *Blocks) Kernel(format string) (backend.Kernel, error) {
	return b.bind(format, ukernel.Best())
}

func (b *Blocks) bind(format string, kern *ukernel.Kernels) (backend.Kernel, error) {
	if b.K > 1<<16 {
		return newKernel[uint32](b, format, kern)
	}
	return newKernel[uint16](b, format, kern)
}

// Height is the number of rows that a kernel computes together for blocks of r
// rows: the largest for which there is a kernel and that divides r.
func Height(r int) int {
	h := 1
	for _, rows := range ukernel.Blocks {
		if r%rows == 0 {
			h = max(h, rows)
		}
	}
	return h
}

// Family is the name of the kernels of a format for blocks of r rows: dtype,
// format, rows and columns of a tile.
func Family(format string, r int) string {
	return fmt.Sprintf("f32_%s_%dx%d", format, Height(r), backend.Panel)
}

// kernel multiplies panels with vectors of height rows, and vectors with these or
// with runs of columns of one row.
type kernel[I ukernel.Index] struct {
	*ukernel.Sparse[I]
	name   string
	height int
	rows   *ukernel.Rows[I] // nil where blocks are no such runs
	single int              // columns that are best multiplied one by one
	kern   *ukernel.Kernels
}

func newKernel[I ukernel.Index](b *Blocks, format string, kern *ukernel.Kernels) (backend.Kernel, error) {
	h := Height(b.R)
	ptr, column, value := b.Ptr, b.Column, b.Values
	if b.R != h || b.C != 1 {
		if v := len(b.Column) * b.C * (b.R / h); uint64(v) > math.MaxUint32 {
			return nil, fmt.Errorf("%d vectors, want at most %d", v, uint32(math.MaxUint32))
		}
		ptr, column, value = b.vectors(h)
	}
	w, err := ukernel.NewSparse(kern, h, b.M, b.K, ptr, convert[I](column), value)
	if err != nil {
		return nil, err
	}
	d := &kernel[I]{Sparse: w, name: Family(format, b.R) + "__" + kern.ISA, height: h, kern: kern, single: rate.Blocks[h].VecColumns}
	if b.R == 1 && slices.Contains(ukernel.Runs, b.C) && b.K%b.C == 0 {
		d.single = rate.Runs[b.C].VecColumns
		d.rows, err = ukernel.NewRows(kern, b.C, b.M, b.K, b.Ptr, convert[I](b.Column), b.Values)
	}
	return d, err
}

// vectors lists the vectors of h rows of the blocks, as ukernel wants them.
func (b *Blocks) vectors(h int) (ptr, column []uint32, value []float32) {
	n := len(b.Column) * b.C * (b.R / h)
	ptr = make([]uint32, 1, Ceil(b.M, h)+1)
	column = make([]uint32, 0, n)
	value = make([]float32, 0, n*h)
	for row := range len(b.Ptr) - 1 {
		for sub := 0; sub < min(b.R, b.M-row*b.R); sub += h {
			for j := int(b.Ptr[row]); j < int(b.Ptr[row+1]); j++ {
				k := int(b.Column[j]) * b.C
				for c := range min(b.C, b.K-k) {
					column = append(column, uint32(k+c))
					at := (j*b.C+c)*b.R + sub
					value = append(value, b.Values[at:at+h]...)
				}
			}
			ptr = append(ptr, uint32(len(column)))
		}
	}
	return ptr, column, value
}

func (d *kernel[I]) Name() string { return d.name }

func (d *kernel[I]) Panel(y, x []float32, b, granules, r0, r1 int) {
	d.Mul(b, r0, r1, granules, x, y, b > 0)
}

func (d *kernel[I]) VecColumns() int { return d.single }

// placedHeight is the least height of blocks that compute long enough on a column
// to load it from where two lines of the cache meet.
const placedHeight = 4

func (d *kernel[I]) Placed(bounds, at []int) backend.Kernel {
	if d.height < placedHeight {
		return nil
	}
	placed := *d
	placed.Sparse = d.Sparse.Placed(d.kern, bounds, at)
	return &placed
}

func (d *kernel[I]) Vec(y, x []float32, r0, r1 int) {
	if d.rows != nil {
		d.rows.MulVec(r0, r1, x, y)
		return
	}
	d.MulVec(r0/d.height, Ceil(r1, d.height), x, y)
}
