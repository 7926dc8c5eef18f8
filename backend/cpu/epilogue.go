package cpu

import (
	"math"
	"slices"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/i8"
	"spc/backend/format/ikernel"
	"spc/backend/format/ukernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/chain"
)

// epilogue finishes elements of a product's result on their way to memory: bias,
// residual, activation.
type epilogue struct {
	bias     []float32 // one for each row of Y, nil for none
	residual int       // the input that is added, -1 for none
	lo, hi   float32   // limits of the result before act: ReLU and Clip
	act      activation
	fused    *vec.Act // the same as act, nil for one that ends no epilogue of a tile
}

// activation applies a function to a slice in place; nil does nothing.
type activation func(y []float32)

func newEpilogue(n *ir.Node, e *op.Epilogue, bias []float32) epilogue {
	inf := float32(math.Inf(1))
	ep := epilogue{bias: bias, residual: -1, lo: -inf, hi: inf}
	switch e.Act {
	case "Relu":
		ep.lo = 0
	case "Clip":
		ep.lo, ep.hi = e.ActArgs[0], e.ActArgs[1]
	default:
		ep.act = newActivation(e.Act, e.ActArgs)
		ep.fused = fusedAct(e)
	}
	if n.Input(op.Residual) != nil {
		ep.residual = op.Residual
	}
	return ep
}

// fusedAct is the activation of an epilogue where tiles end with it, else nil.
func fusedAct(e *op.Epilogue) *vec.Act {
	f, a, _, _ := chain.Activation(e.Act, e.ActArgs)
	act, ok := map[chain.Function]vec.Act{chain.Swish: vec.ActSiLU, chain.HardSwish: vec.ActHardSwish, chain.Gelu: vec.ActGELU}[f]
	if !ok || f == chain.Swish && a != 1 {
		return nil
	}
	return &act
}

// apply finishes a run of columns of row r; res is the residual there or nil.
func (e *epilogue) apply(dst, y []float32, r int, res []float32) {
	b := float32(0)
	if e.bias != nil {
		b = e.bias[r]
	}
	y = y[:len(dst)]
	if res != nil {
		vec.AddClip(dst, y, res[:len(dst)], b, e.lo, e.hi)
	} else {
		vec.Affine(dst, y, 1, b, e.lo, e.hi)
	}
	if e.act != nil {
		e.act(dst)
	}
}

// tile finishes rows r0 to r0+rows of a tile y [rows][64] of n columns: row r goes
// to dst from at+(r-r0)*ld on, where also its residual is in res unless that is nil.
func (e *epilogue) tile(dst, res []float32, at, ld int, y []float32, r0, rows, n int) {
	var bias []float32
	if e.bias != nil {
		bias = e.bias[r0 : r0+rows]
	}
	if res != nil {
		res = res[at:]
	}
	dst = dst[at:]
	if e.fused != nil {
		e.fused.FinishRows(dst, ld, y, backend.Panel, rows, n, bias, res, ld, false)
		return
	}
	vec.FinishRows(dst, ld, y, backend.Panel, rows, n, bias, res, ld, e.lo, e.hi)
	if e.act != nil {
		for r := range rows {
			e.act(dst[r*ld:][:n])
		}
	}
}

// direct sets f to what tile does with whole granules, and returns it; nil where that is more than f can say.
func (e *epilogue) direct(f *ukernel.Finish, dst, res []float32, at, ld, r0, rows int) *ukernel.Finish {
	if e.bias == nil || e.fused != nil || e.act != nil {
		return nil
	}
	f.Dst, f.Ldd, f.Bias, f.Lo, f.Hi = dst[at:], ld, e.bias[r0:r0+rows], e.lo, e.hi
	f.Res, f.Ldr = nil, ld
	if res != nil {
		f.Res = res[at:]
	}
	return f
}

// within is tile, but the result stays in y; it goes to dst, too, unless that is nil.
func (e *epilogue) within(dst, y, res []float32, at, ld, r0, rows, n int) {
	var bias []float32
	if e.bias != nil {
		bias = e.bias[r0 : r0+rows]
	}
	if res != nil {
		res = res[at:]
	}
	switch {
	case e.fused != nil && dst != nil:
		e.fused.FinishRows(dst[at:], ld, y, backend.Panel, rows, n, bias, res, ld, true)
		return
	case e.fused != nil:
		e.fused.FinishRows(y, backend.Panel, y, backend.Panel, rows, n, bias, res, ld, false)
		return
	case e.act == nil && dst != nil:
		vec.FinishTwice(dst[at:], ld, y, backend.Panel, rows, n, bias, res, ld, e.lo, e.hi)
		return
	}
	vec.FinishRows(y, backend.Panel, y, backend.Panel, rows, n, bias, res, ld, e.lo, e.hi)
	if e.act != nil {
		for r := range rows {
			e.act(y[r*backend.Panel:][:n])
		}
	}
	if dst != nil {
		vec.FinishRows(dst[at:], ld, y, backend.Panel, rows, n, nil, nil, 0, -inf, inf)
	}
}

// integerEpilogue finishes sums of integers: it scales them to floats, finishes these as epilogue
// does, and rounds them to u8 where the result is that.
type integerEpilogue struct {
	epilogue
	ikernel.Epilogue
	kern  *ikernel.Kernels
	quant ikernel.Limits // how what act returns becomes u8
	u8    bool           // the result is u8
	i32   bool           // the result is the sums

	dynamic bool                // scale and zero point of X are inputs
	sums    []int32             // of the rows of the weight, less its zero points
	wscale  []float32           // for all rows, or each
	wzero   []int32             // for each row, nil where they are 0
	ones    backend.TokenKernel // sums up the columns of X, where there are zero points
}

// newIntegerEpilogue prepares the epilogue of n, whose weight has rows of k elements with the given
// sums; ok is false where its bias is no constant.
func newIntegerEpilogue(n *ir.Node, q *op.Quant, e *op.Epilogue, sums []int32, k int) (*integerEpilogue, bool) {
	bias, ok := constantF32(n, 2)
	if !ok {
		return nil, false
	}
	ep := &integerEpilogue{epilogue: newEpilogue(n, e, nil), kern: ikernel.Best(), u8: q.YScale != 0, dynamic: n.Input(op.DynamicScale) != nil, wscale: q.WScale}
	shift := float32(0)
	if ep.residual >= 0 && q.RScale != 0 {
		ep.ResScale = q.RScale
		shift = -q.RScale * float32(q.RZero)
	}
	ep.centre(sums, q.WZero, k)
	for m := range ep.sums {
		b := shift
		if bias != nil {
			b += bias[m]
		}
		ep.Bias = append(ep.Bias, b)
	}
	ep.Sum, ep.Scale = make([]int32, len(ep.sums)), make([]float32, len(ep.sums))
	ep.scaleBy(q.XScale, q.XZero)
	ep.Lo, ep.Hi = ep.lo, ep.hi
	if ep.u8 && ep.act == nil {
		ep.ToU8(q.YScale, q.YZero)
		ep.InSteps()
	} else if ep.u8 {
		ep.quant = ikernel.NoLimits()
		ep.quant.ToU8(q.YScale, q.YZero)
	}
	return ep, true
}

// newSums prepares the epilogue of a node whose result is the sums, for a weight with the given kernel,
// zero points and rows of k elements. The zero point of X is input 2.
func newSums(kernel backend.IntegerKernel, zeros []int, k int) *integerEpilogue {
	ep := &integerEpilogue{epilogue: epilogue{residual: -1}, kern: ikernel.Best(), i32: true, dynamic: true, wscale: []float32{1}}
	ep.centre(kernel.Sums(), zeros, k)
	ep.Sum, ep.Scale = make([]int32, len(ep.sums)), make([]float32, len(ep.sums))
	return ep
}

// centre sets what zero points of the weight, none for 0, do to products with rows of k elements
// that have the given sums.
func (e *integerEpilogue) centre(sums []int32, zeros []int, k int) {
	e.sums = sums
	if len(zeros) == 0 {
		return
	}
	e.sums = slices.Clone(sums)
	e.wzero = make([]int32, len(sums))
	for m := range sums {
		e.wzero[m] = int32(zeros[m%len(zeros)])
		e.sums[m] -= int32(k) * e.wzero[m]
	}
	e.ones = i8.Ones(k)
}

// scaleBy sets the scale and the zero point of X.
func (e *integerEpilogue) scaleBy(scale float32, zero int) {
	for m, s := range e.sums {
		e.Sum[m] = -int32(zero) * s
		e.Scale[m] = scale * e.wscale[m%len(e.wscale)]
	}
}

// own is the epilogue of one exec.
func (e *integerEpilogue) own() *integerEpilogue {
	if !e.dynamic {
		return e
	}
	c := *e
	c.Epilogue = e.Epilogue.Clone()
	return &c
}

// begin takes the inputs of a run and returns the zero point of X, which the node may know, too.
func (e *integerEpilogue) begin(in []*tensor.Tensor, zero int) int {
	switch {
	case e.i32:
		zero = int(octetAt(in, 2, 0))
		e.scaleBy(1, zero)
	case e.dynamic:
		zero = int(in[op.DynamicZero].Bytes()[0])
		e.scaleBy(in[op.DynamicScale].F32s()[0], zero)
		if e.u8 && e.act == nil {
			e.InSteps()
		}
	}
	return zero
}

// groups is the number of groups of a panel for a kernel, and for ones.
func (e *integerEpilogue) groups(kernel backend.IntegerKernel) int {
	if e.ones == nil {
		return kernel.Groups()
	}
	return max(kernel.Groups(), e.ones.Groups())
}

// lessZeros subtracts from rows of n sums, 64 apart, those that the weight's zero points have with
// the columns of X, of which the sums are xsums.
func (e *integerEpilogue) lessZeros(first, rows, n int, c, xsums []int32) {
	for r := range rows {
		a, v := e.wzero[first:], xsums
		if e.ByColumn {
			a, v = v[r:], a
		} else {
			a = a[r:]
		}
		y, z := c[r*ikernel.Columns:][:n], a[0]
		v = v[:n]
		for i := range y {
			y[i] -= z * v[i]
		}
	}
}

// scratch is the number of floats that finish needs for rows of ikernel.Columns.
func (e *integerEpilogue) scratch() int {
	if e.act != nil && e.u8 {
		return ikernel.Columns
	}
	return 0
}

// intRows are rows of sums, ld apart.
type intRows struct {
	c  []int32
	ld int
}

// panelSums are rows of sums as kernels of panels leave them.
func panelSums(c []int32) intRows { return intRows{c, ikernel.Columns} }

// finish stores rows of n sums: y and res have rows ldy apart. first is the
// first row, or with ByColumn the first column. tmp has room for a row where scratch says that it is needed.
func (e *integerEpilogue) finish(first, rows, n int, sums intRows, y, res ikernel.Elems, ldy int, tmp []float32) {
	c, ldc := sums.c, sums.ld
	if e.i32 {
		for r := range rows {
			dst, sum := asInts(y.F32[r*ldy:][:n]), e.Sum[first+r]
			for j, v := range c[r*ldc:][:n] {
				dst[j] = v + sum
			}
		}
		return
	}
	if e.act == nil {
		e.kern.Finish(&e.Epilogue, first, rows, n, c, ldc, y, res, ldy)
		return
	}
	for r := range rows {
		at := first
		if !e.ByColumn {
			at += r
		}
		row := ikernel.Elems{F32: tmp}
		if !e.u8 {
			row = y.From(r * ldy)
		}
		row.F32 = row.F32[:n]
		e.kern.Finish(&e.Epilogue, at, 1, n, c[r*ldc:], ldc, row, res.From(r*ldy), ldy)
		e.act(row.F32)
		if e.u8 {
			e.kern.Quantize(&e.quant, y.U8[r*ldy:][:n], row.F32)
		}
	}
}

// newActivation returns the f32 form of an operator of op.Activations, nil where there is none.
func newActivation(name string, args []float32) activation {
	f, a, b, _ := chain.Activation(name, args)
	if f == chain.Copy {
		return nil
	}
	apply := unaryOf(f, a, b)
	return func(y []float32) { apply(y, y, a, b) }
}
