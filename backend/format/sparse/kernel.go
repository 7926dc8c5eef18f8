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
	groups := Ceil(b.M, h)
	next := slices.Clone(b.Ptr[:len(b.Ptr)-1]) // where each block row goes on
	for k := 0; k < b.K; k += width {
		end := min(k+width, b.K)
		ptr := make([]uint32, 1, groups+1)
		var index []I
		var value []float32
		for row, from := range next {
			to := from
			for to < b.Ptr[row+1] && int(b.Column[to])*b.C < end {
				to++
			}
			next[row] = to
			for sub := 0; sub < min(b.R, b.M-row*b.R); sub += h {
				for i := from; i < to; i++ {
					first := int(b.Column[i]) * b.C
					for c := range min(b.C, b.K-first) {
						index = append(index, I(first+c-k))
						value = append(value, b.Values[(int(i)*b.C+c)*b.R+sub:][:h]...)
					}
				}
				if uint64(len(index)) > math.MaxUint32 {
					return nil, fmt.Errorf("more than %d vectors", uint32(math.MaxUint32))
				}
				ptr = append(ptr, uint32(len(index)))
			}
		}
		w, err := ukernel.NewSparse(kern, h, b.M, end-k, ptr, index, value)
		if err != nil {
			return nil, err
		}
		d.segments = append(d.segments, segment[I]{k, w})
	}
	return d, nil
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
