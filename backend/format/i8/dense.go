// Package i8 multiplies weights i8 by activations u8 with i32 sums: dense ones, which are
// constants or stored, 1x4 blocks, and, on GPUs, 2 of every 4. It imports backend, formats,
// ikernel, rate and sparse.
package i8

import (
	"sync"

	"spc/backend"
	"spc/backend/format/dense"
	"spc/backend/format/ikernel"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// row is a row of kernels for weights i8.
func row(cost func(*machine.Profile, *choose.Matrix, int, backend.Layout) (choose.Cost, bool), cpu func(*ir.Store) (backend.Kernel, error), gpu backend.GPUKernels) backend.Kernels {
	return backend.Kernels{
		Weights: []tensor.DType{tensor.I8}, X: tensor.U8, Sums: tensor.I32, ISA: ikernel.Best().ISA, Cost: cost, CPU: cpu, GPU: gpu,
	}
}

// Dense is the kernels for weights that are stored whole.
var Dense = row(denseCost, func(s *ir.Store) (backend.Kernel, error) { return bindDense(s.Part("values"), ikernel.Best()), nil }, denseGPU{})

func denseCost(p *machine.Profile, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
	k, r := w.Dim(1), p.Of(machine.Dense8)
	return choose.Cost{
		Config: l.Config, Kernel: "s8_gemm", Work: 2 * float64(w.Len()) * float64(backend.Columns(n)), Bytes: l.Bytes,
		Efficiency: r.Efficiency(float64(ikernel.Groups(k)), k, n),
	}, true
}

// unpacked prepares a store for the dense kernels.
func unpacked(f backend.Storage, s *ir.Store) (backend.Kernel, error) {
	w, err := f.Unpack(s)
	if err != nil {
		return nil, err
	}
	return Dense.CPU(dense.Store(w.To(tensor.I8)))
}

// bindDense prepares a weight i8 [M,K], which it keeps.
func bindDense(w *tensor.Tensor, kern *ikernel.Kernels) *denseKernel {
	data := tensor.Data[int8](w)
	d := &denseKernel{kern: kern, data: data, m: w.Dim(0), k: w.Dim(1), k4: ikernel.Groups(w.Dim(1))}
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

// Ones multiplies by one row of k ones.
func Ones(k int) backend.TokenKernel {
	w := tensor.New(tensor.I8, 1, k)
	for i := range w.Bytes() {
		w.Bytes()[i] = 1
	}
	return bindDense(w, ikernel.Best())
}

// denseKernel multiplies panels with the rows of the weight, and tokens with panels of it;
// what either needs is made when it is first called.
type denseKernel struct {
	kern     *ikernel.Kernels
	m, k, k4 int
	data     []int8 // as stored
	sums     []int32
	rows     func() left
	panels   func() []int8

	mu      sync.Mutex
	taps    int // of columns, once that was asked for
	columns backend.PlaneColumns
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

func (d *denseKernel) Name() string  { return "s8_gemm_" + d.kern.Tile + "__" + d.kern.ISA }
func (d *denseKernel) Sums() []int32 { return d.sums }
func (d *denseKernel) Groups() int   { return d.kern.Pad(d.k4) }

// Warm makes the panels, or the rows as panels are multiplied by them.
func (d *denseKernel) Warm(tokens bool) {
	if tokens {
		d.panels()
	} else {
		d.rows()
	}
}

func (d *denseKernel) Panel(c []int32, x []uint8, cols, r0, r1 int) {
	k4, l := d.Groups(), d.rows()
	ld := ikernel.Group * k4
	if l.rest == nil {
		d.kern.Gemm(r1-r0, k4, l.rows[r0*ld:], ld, x, cols, c, ikernel.Columns)
		return
	}
	d.kern.GemmNarrow(r1-r0, k4, l.rows[r0*ld:], ld, x, cols, c, ikernel.Columns)
	d.kern.Spmm(l.rest, r0, r1, k4, x, cols, c, ikernel.Columns, true)
}

func (d *denseKernel) Planes(taps int) (backend.PlaneColumns, int) {
	channels := d.k / taps
	step := d.kern.PlaneStep(d.m, channels)
	if step == 0 || d.k%taps != 0 {
		return nil, 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taps == taps {
		return d.columns, step
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
	return d.columns, step
}

// Direct is false where narrow rows are the faster operand, which a panel of the weight
// cannot be, unless a panel of tokens would be empty for the most part.
func (d *denseKernel) Direct(tokens int) bool {
	return tokens < ikernel.Columns/4 || !d.kern.Narrows() || d.rows().rest == nil
}

func (d *denseKernel) Tokens(c []int32, x []uint8, ldx, tokens, r0, r1 int) {
	size := d.k4 * ikernel.PanelRow
	d.kern.GemmTokens(tokens, d.k4, x, ldx, d.panels()[r0/ikernel.Columns*size:][:size], r1-r0, c, ikernel.Columns)
}
