// Package dense8 multiplies dense i8 weights, which are plain constants of the graph.
// It imports backend, ikernel, rate and sparse.
package dense8

import (
	"fmt"
	"sync"

	"spc/backend"
	"spc/backend/format/ikernel"
	"spc/backend/format/rate"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Format is the dense format of i8 weights, as choosing sees it: a weight that it wins
// stays a constant.
type Format struct{}

// Name is dense.
func (Format) Name() string { return choose.Dense }

// Costs offers the one configuration.
func (Format) Costs(w *choose.Matrix, n int) []choose.Cost {
	k, r := w.Dim(1), rate.Integers[ikernel.Best().ISA].Dense
	return []choose.Cost{{
		Kernel: "s8_gemm", Work: 2 * float64(w.Len()) * float64(backend.Columns(n)), Bytes: w.Len(),
		Efficiency: r.Efficiency(float64(ikernel.Groups(k)), k, n),
	}}
}

// Pack refuses: the constant itself is the storage.
func (Format) Pack(*tensor.Tensor, string) ([]ir.Part, error) {
	return nil, fmt.Errorf("dense i8 weights are constants")
}

// Check refuses stores, which no weight has.
func (Format) Check(*ir.Store) error { return fmt.Errorf("dense i8 weights are constants") }

// Unpack refuses as Check does.
func (f Format) Unpack(s *ir.Store) (*tensor.Tensor, error) { return nil, f.Check(s) }

// Kernel refuses as Check does.
func (f Format) Kernel(s *ir.Store) (backend.Kernel8, error) { return nil, f.Check(s) }

// New prepares a weight i8 [M,K], which it keeps.
func New(w *tensor.Tensor) backend.TokenKernel8 { return bind(w, ikernel.Best()) }

func bind(w *tensor.Tensor, kern *ikernel.Kernels) *kernel {
	data := tensor.Data[int8](w)
	d := &kernel{kern: kern, data: data, m: w.Dim(0), k: w.Dim(1), k4: ikernel.Groups(w.Dim(1))}
	d.sums = make([]int32, d.m)
	for r := range d.sums {
		for _, v := range data[r*d.k : (r+1)*d.k] {
			d.sums[r] += int32(v)
		}
	}
	d.rows = sync.OnceValue(func() left {
		ld := ikernel.Group * d.Groups()
		l := left{rows: rows(data, d.m, d.k, ld)}
		if narrow, rest := kern.Narrow(l.rows, d.m, ld); narrow != nil {
			l = left{rows: narrow, rest: rest}
		}
		return l
	})
	d.panels = sync.OnceValue(func() []int8 { return panels(data, d.m, d.k) })
	return d
}

// kernel multiplies panels with the rows of the weight, and tokens with panels of it;
// what either needs is made when it is first called.
type kernel struct {
	kern     *ikernel.Kernels
	m, k, k4 int
	data     []int8 // as stored
	sums     []int32
	rows     func() left
	panels   func() []int8

	mu      sync.Mutex
	taps    int // of columns, once that was asked for
	columns backend.Columns8
}

// left is a weight as the left operand of a product: rows of whole steps and, where the
// kernels want them narrow, the rest of their elements.
type left struct {
	rows []int8
	rest *ikernel.Groups1x4
}

// rows returns w with rows of ld elements, zeros behind the k of w.
func rows(w []int8, m, k, ld int) []int8 {
	if ld == k {
		return w
	}
	out := make([]int8, m*ld)
	for r := range m {
		copy(out[r*ld:], w[r*k:(r+1)*k])
	}
	return out
}

// panels returns w in panels of 64 rows, zeros behind the last.
func panels(w []int8, m, k int) []int8 {
	size := ikernel.Groups(k) * ikernel.PanelRow
	out := make([]int8, (m+ikernel.Columns-1)/ikernel.Columns*size)
	for r := range m {
		p := out[r/ikernel.Columns*size+r%ikernel.Columns*ikernel.Group:]
		for i, v := range w[r*k : (r+1)*k] {
			p[i/ikernel.Group*ikernel.PanelRow+i%ikernel.Group] = v
		}
	}
	return out
}

func (d *kernel) Name() string  { return "s8_gemm_" + d.kern.Tile + "__" + d.kern.ISA }
func (d *kernel) Sums() []int32 { return d.sums }
func (d *kernel) Groups() int   { return d.kern.Pad(d.k4) }

func (d *kernel) Panel(c []int32, x []uint8, cols, r0, r1 int) {
	k4, l := d.Groups(), d.rows()
	ld := ikernel.Group * k4
	if l.rest == nil {
		d.kern.Gemm(r1-r0, k4, l.rows[r0*ld:], ld, x, cols, c, ikernel.Columns)
		return
	}
	d.kern.GemmNarrow(r1-r0, k4, l.rows[r0*ld:], ld, x, cols, c, ikernel.Columns)
	d.kern.Spmm(l.rest, r0, r1, k4, x, cols, c, ikernel.Columns, true)
}

func (d *kernel) Planes(taps int) (backend.Columns8, bool) {
	channels := d.k / taps
	if !d.kern.HasPlanes() || d.m%16 != 0 || d.k%taps != 0 || channels%ikernel.PlaneStep != 0 {
		return nil, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taps == taps {
		return d.columns, true
	}
	w := sync.OnceValue(func() []int8 {
		out := make([]int8, len(d.data))
		for i := 0; i < len(out); i += d.k {
			for c := range channels {
				for t := range taps {
					out[i+t*channels+c] = d.data[i+c*taps+t]
				}
			}
		}
		return out
	})
	d.taps = taps
	d.columns = func(c []int32, x []uint8, at []int32, pitch, cols, r0, r1 int) {
		d.kern.GemmPlanes(r1-r0, w()[r0*d.k:], d.k, x, at, pitch, cols, c)
	}
	return d.columns, true
}

// Direct is false where narrow rows are the faster operand, which a panel of the weight
// cannot be, unless a panel of tokens would be empty for the most part.
func (d *kernel) Direct(tokens int) bool {
	return tokens < ikernel.Columns/4 || !d.kern.Narrows() || d.rows().rest == nil
}

func (d *kernel) Tokens(c []int32, x []uint8, ldx, tokens, r0, r1 int) {
	size := d.k4 * ikernel.PanelRow
	d.kern.GemmTokens(tokens, d.k4, x, ldx, d.panels()[r0/ikernel.Columns*size:][:size], r1-r0, c, ikernel.Columns)
}
