package sparse

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"spc/backend"
	"spc/backend/format/ukernel"
)

// Kernel prepares the blocks for the CPU's best kernels. The format's name goes
// into that of the kernel.
func (b *Blocks) Kernel(format string) (backend.Kernel, error) {
	return b.bind(format, ukernel.Best())
}

func (b *Blocks) bind(format string, kern *ukernel.Kernels) (backend.Kernel, error) {
	width := b.segment()
	if min(width, b.K) > 1<<16 {
		return newKernel[uint32](b, width, format, kern)
	}
	return newKernel[uint16](b, width, format, kern)
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

// Single rows meet every row of the panel anew, so a weight of single rows is
// worked on in segments of at least segmentColumns columns, whose rows of the
// panel stay in the level 1 cache. Since every segment costs a pass over the
// output, a row should have segmentSteps nonzeros in it on average.
const (
	segmentColumns = 256
	segmentSteps   = 48
)

// segment returns the number of columns of a segment.
func (b *Blocks) segment() int {
	if Height(b.R) > 1 || b.M == 0 {
		return b.K
	}
	rows := Ceil(b.M, b.R)
	n := min(len(b.Column)/rows*b.C/segmentSteps, Ceil(b.K, segmentColumns))
	if n <= 1 {
		return b.K
	}
	return Ceil(Ceil(b.K, b.C), n) * b.C // whole blocks, evenly
}

// kernel multiplies segment by segment, vector by vector of height rows.
type kernel[I ukernel.Index] struct {
	name     string
	height   int
	segments []segment[I]
}

// segment is the part of a weight from column k on.
type segment[I ukernel.Index] struct {
	k int
	w *ukernel.Sparse[I]
}

func newKernel[I ukernel.Index](b *Blocks, width int, format string, kern *ukernel.Kernels) (backend.Kernel, error) {
	h := Height(b.R)
	d := &kernel[I]{name: Family(format, b.R) + "__" + kern.ISA, height: h}
	if width == b.K && b.R == h && b.C == 1 {
		return d, d.add(kern, b.M, 0, b.K, b.Ptr, convert[I](b.Column), b.Values)
	}
	next := slices.Clone(b.Ptr[:len(b.Ptr)-1]) // where each block row goes on
	for k := 0; k == 0 || k < b.K; k += max(width, 1) {
		ptr, index, value, err := cut[I](b, next, k, min(k+width, b.K), h)
		if err == nil {
			err = d.add(kern, b.M, k, min(width, b.K-k), ptr, index, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// add appends the segment of k columns from column first on.
func (d *kernel[I]) add(kern *ukernel.Kernels, m, first, k int, ptr []uint32, index []I, value []float32) error {
	w, err := ukernel.NewSparse(kern, d.height, m, k, ptr, index, value)
	d.segments = append(d.segments, segment[I]{first, w})
	return err
}

// cut lists the vectors of h rows in columns from to to-1, as ukernel wants
// them. next says where each block row goes on, and is moved on.
func cut[I ukernel.Index](b *Blocks, next []uint32, from, to, h int) (ptr []uint32, index []I, value []float32, err error) {
	blocks := 0
	for row, j := range next {
		for ; j < b.Ptr[row+1] && int(b.Column[j])*b.C < to; j++ {
			blocks++
		}
	}
	ptr = make([]uint32, 1, Ceil(b.M, h)+1)
	index = make([]I, 0, blocks*b.C*b.R/h)
	value = make([]float32, 0, blocks*b.C*b.R)
	for row, first := range next {
		j := first
		for sub := 0; sub < min(b.R, b.M-row*b.R); sub += h {
			for j = first; j < b.Ptr[row+1] && int(b.Column[j])*b.C < to; j++ {
				k := int(b.Column[j]) * b.C
				for c := range min(b.C, to-k) {
					index = append(index, I(k+c-from))
					at := (int(j)*b.C+c)*b.R + sub
					if h == 1 {
						value = append(value, b.Values[at])
					} else {
						value = append(value, b.Values[at:at+h]...)
					}
				}
			}
			if uint64(len(index)) > math.MaxUint32 {
				return nil, nil, nil, fmt.Errorf("more than %d vectors", uint32(math.MaxUint32))
			}
			ptr = append(ptr, uint32(len(index)))
		}
		next[row] = j
	}
	return ptr, index, value, nil
}

func (d *kernel[I]) Name() string { return d.name }
func (d *kernel[I]) Tile() int    { return d.height }

func (d *kernel[I]) Panel(y []float32, ldy int, x []float32, r0, r1 int) {
	for i, s := range d.segments {
		s.w.Mul(r0/d.height, Ceil(r1, d.height), x[s.k*backend.Panel:], y, ldy, i > 0)
	}
}

// sums lends room for what a segment adds to a vector.
var sums = sync.Pool{New: func() any { return new([1 << 10]float32) }}

func (d *kernel[I]) Vec(y, x []float32, r0, r1 int) {
	t := sums.Get().(*[1 << 10]float32)
	defer sums.Put(t)
	for i, s := range d.segments {
		for r := r0; r < r1; r += len(t) {
			end := min(r+len(t), r1)
			from, to := r/d.height, Ceil(end, d.height)
			if i == 0 {
				s.w.MulVec(from, to, x, y[r-r0:])
				continue
			}
			s.w.MulVec(from, to, x[s.k:], t[:])
			for j, v := range t[:end-r] {
				y[r-r0+j] += v
			}
		}
	}
}
