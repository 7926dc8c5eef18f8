package cpu

import (
	"slices"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/tensor"
)

// product is Y[M,N] = W[M,K] X[K,N] for one prepared weight, panel by panel: what
// every operator with a weight comes down to. Only how X is loaded into panels
// and how Y is stored differs.
type product struct {
	kernel backend.Kernel
	m, k   int
	groups []int // the number of columns of each group; a panel lies in one group
	// load writes columns col to col+n of a group of X into a panel [K][32],
	// zeros behind them.
	load func(panel []float32, group, col, n int)
	// store takes rows r0 to r0+rows of columns col to col+n of a group of Y,
	// as [rows][32].
	store func(y []float32, r0, rows, group, col, n int)
}

// rowBlock is the number of rows of Y computed before they are stored: a block of
// Y stays in the first-level cache.
const rowBlock = 64

// blockRows is rowBlock rounded up to whole tiles.
func blockRows(tile int) int { return (rowBlock + tile - 1) / tile * tile }

// scratch is the number of floats that a worker needs.
func (p *product) scratch() int { return p.k*backend.Panel + blockRows(p.kernel.Tile())*backend.Panel }

// run computes the product. Work is split into panels, and each panel's rows
// where there are too few panels for the threads.
func (p *product) run(x *exec) {
	ends := make([]int, len(p.groups)) // by group, the panels up to its end
	panels := 0
	for g, n := range p.groups {
		panels += (n + backend.Panel - 1) / backend.Panel
		ends[g] = panels
	}
	block := blockRows(p.kernel.Tile())
	parts := 1
	if t := x.pool.Threads(); panels < 2*t {
		parts = min(t, (p.m+block-1)/block)
	}
	rows := (p.m + parts - 1) / parts
	rows = (rows + block - 1) / block * block
	x.pool.For(panels*parts, func(worker, i int) {
		i, part := i/parts, i%parts
		group, _ := slices.BinarySearch(ends, i+1)
		n := p.groups[group]
		col := (i - ends[group] + (n+backend.Panel-1)/backend.Panel) * backend.Panel
		n = min(backend.Panel, n-col)
		s := x.scratch[worker]
		xs, ys := s[:p.k*backend.Panel], s[p.k*backend.Panel:]
		p.load(xs, group, col, n)
		end := min(p.m, (part+1)*rows)
		for r := part * rows; r < end; r += block {
			r1 := min(end, r+block)
			p.kernel.Panel(ys, backend.Panel, xs, r, r1)
			p.store(ys, r, r1-r, group, col, n)
		}
	})
}

// loadRows loads a panel of X stored as [K][ldx]: columns are contiguous.
func loadRows(panel, x []float32, k, ldx, col, n int) {
	if n == backend.Panel {
		for i := range k {
			copy(panel[i*backend.Panel:(i+1)*backend.Panel], x[i*ldx+col:])
		}
		return
	}
	for i := range k {
		row := panel[i*backend.Panel : (i+1)*backend.Panel]
		copy(row, x[i*ldx+col:i*ldx+col+n])
		clear(row[n:])
	}
}

// loadTransposed loads a panel of X stored as [N][ldx]: the elements of a column
// are contiguous, as the features of a token are.
func loadTransposed(panel, x []float32, k, ldx, col, n int) {
	if n < backend.Panel {
		clear(panel)
	}
	vec.Transpose(panel, backend.Panel, x[col*ldx:], ldx, n, k)
}

// weightOf returns the weight of n at an input, where that is constant and f32 or
// stored, with its prepared kernels.
func (p *program) weightOf(n *ir.Node, input int) (ir.Weight, []backend.Kernel, error) {
	w, ok := n.Op.(ir.WeightOp)
	if !ok {
		return ir.Weight{}, nil, nil
	}
	for _, ref := range w.Weights(n) {
		v := n.Input(ref.Input)
		if ref.Input != input || v == nil || !v.IsConst() || v.Type.DType != tensor.F32 {
			continue
		}
		ks, err := p.weight(v, ref)
		if err != nil {
			return ref, nil, n.Errorf(ir.ErrInvalid, "weight %s: %v", v.Name, err)
		}
		return ref, ks, nil
	}
	return ir.Weight{}, nil, nil
}

// constant returns the f32 elements of a constant input, nil where it is absent;
// ok is false when it is present and not a constant f32.
func constantF32(n *ir.Node, i int) (data []float32, ok bool) {
	v := n.Input(i)
	if v == nil {
		return nil, true
	}
	if v.Const == nil || v.Const.DType() != tensor.F32 {
		return nil, false
	}
	return v.Const.F32s(), true
}

// f32 reports whether all present inputs and outputs of n are f32.
func f32(n *ir.Node) bool {
	for _, vs := range [][]*ir.Value{n.Inputs, n.Outputs} {
		for _, v := range vs {
			if v != nil && v.Type.DType != tensor.F32 {
				return false
			}
		}
	}
	return true
}

// shapeOf is the shape of a value whose type is static.
func shapeOf(v *ir.Value) []int {
	s, _ := v.Type.Shape()
	return s
}

func prod(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
