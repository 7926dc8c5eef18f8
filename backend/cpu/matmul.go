package cpu

import (
	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/dense"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// linear is Y[T,M] = X[T,K] W^T for a prepared weight W[M,K] and T tokens whose
// features are contiguous: the form of MatMul and Gemm with a constant right
// side.
type linear struct {
	kernel    backend.FloatKernel
	tokens    int
	m, k      int
	transX    bool // X is stored [K,T]
	scale     float32
	ep        epilogue
	add       int // an input [T,M] or broadcast to it that is added times addScale, -1 for none
	addScale  float32
	addStride [2]int // of token and feature
}

// vecRoom is room for the products of a block of rows with one token.
const vecRoom = (rowBlock + backend.VecTile - 1) / backend.VecTile * backend.VecTile

func (l *linear) scratch() int {
	return max(productScratch(l.kernel, l.m), vecRoom+l.k, backend.Panel*backend.Panel)
}

// operands are what a linear layer reads and writes; res and add may be nil.
type operands struct{ xs, ys, res, add []float32 }

func (l *linear) bound() *bound {
	return &bound{inplace: -1, scratch: l.scratch(), prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var o operands
		run := l.prepare(x, &o)
		return func() error {
			o = operands{xs: in[0].F32s(), ys: out[0].F32s()}
			if l.ep.residual >= 0 {
				o.res = in[l.ep.residual].F32s()
			}
			if l.add >= 0 {
				o.add = in[l.add].F32s()
			}
			run()
			return nil
		}
	}}
}

// computed is bound for a weight that is an input.
func (l *linear) computed(input int) *bound {
	own := func() (*dense.View, *bound) {
		view, o := dense.NewView(l.m, l.k), *l
		o.kernel = view
		return view, o.bound()
	}
	_, b := own()
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		view, b := own() // which holds the weight of this exec's run
		run := b.prepare(x, in, out)
		return func() error {
			view.Use(in[input].F32s())
			return run()
		}
	}
	return b
}

// finish completes features m0 to m1 of tokens t0 to t1.
func (l *linear) finish(o *operands, t0, t1, m0, m1 int) {
	if l.scale != 1 || o.add != nil {
		for t := t0; t < t1; t++ {
			dst := o.ys[t*l.m+m0 : t*l.m+m1]
			for i := range dst {
				dst[i] *= l.scale
				if o.add != nil {
					dst[i] += l.addScale * o.add[t*l.addStride[0]+(m0+i)*l.addStride[1]]
				}
			}
		}
	}
	var bias, res []float32
	if l.ep.bias != nil {
		bias = l.ep.bias[m0:m1]
	}
	if o.res != nil {
		res = o.res[t0*l.m+m0:]
	}
	y := o.ys[t0*l.m+m0:]
	if l.ep.fused != nil {
		l.ep.fused.FinishColumns(y, l.m, y, l.m, t1-t0, m1-m0, bias, res, l.m)
		return
	}
	vec.FinishColumns(y, l.m, y, l.m, t1-t0, m1-m0, bias, res, l.m, l.ep.lo, l.ep.hi)
	if l.ep.act != nil {
		for t := range t1 - t0 {
			l.ep.act(y[t*l.m:][:m1-m0])
		}
	}
}

// prepare returns what computes the layer on o.
func (l *linear) prepare(x *exec, o *operands) func() {
	if l.tokens <= l.kernel.VecColumns() {
		return l.byToken(x, o)
	}
	if k, ok := l.kernel.(backend.Linear); ok && !l.transX {
		return l.fromRight(x, o, k)
	}
	p := product{kernel: l.kernel, m: l.m, k: l.k, n: l.tokens}
	p.load = func(_ int, panel []float32, k0, k1, col, n int) []float32 {
		if l.transX {
			return loadRows(panel, o.xs[k0*l.tokens:], k1-k0, l.tokens, col, n)
		}
		return loadTransposed(panel, o.xs[k0:], k1-k0, l.k, col, n)
	}
	p.store = func(_ int, y []float32, r0, rows, col, n int) {
		vec.Transpose(o.ys[col*l.m+r0:], l.m, y, backend.Panel, rows, n)
		l.finish(o, col, col+n, r0, r0+rows)
	}
	return p.prepare(x)
}

// byToken multiplies the weight by one token at a time: some rows of it, which then
// stay in the cache, by all tokens.
func (l *linear) byToken(x *exec, o *operands) func() {
	body := func(worker, i int) {
		r0 := i * rowBlock
		r1 := min(l.m, r0+rowBlock)
		s := x.scratch[worker]
		for t := range l.tokens {
			var col []float32
			if l.transX {
				col = s[vecRoom:][:l.k]
				for k := range col {
					col[k] = o.xs[k*l.tokens+t]
				}
			} else {
				col = o.xs[t*l.k:][:l.k]
			}
			l.kernel.Vec(s[:vecRoom], col, r0, r1)
			copy(o.ys[t*l.m+r0:t*l.m+r1], s)
		}
		l.finish(o, 0, l.tokens, r0, r1)
	}
	return func() { x.pool.For((l.m+rowBlock-1)/rowBlock, body) }
}

// tokenBlock is the number of tokens that meet a panel of a weight while it stays
// in the cache.
const tokenBlock = 384

// nearTokens is that of rows which are short: the results, which take longer than the products, are then finished in the
// level 1 cache.
const nearTokens, shortRows = 24, 64

// fromRight multiplies the tokens as they are by the transposed weight.
func (l *linear) fromRight(x *exec, o *operands, k backend.Linear) func() {
	x.warm(k, true)
	panels := (l.m + backend.Panel - 1) / backend.Panel
	block := tokenBlock
	if l.k <= shortRows {
		block = nearTokens
	}
	blocks := (l.tokens + block - 1) / block
	if t := x.pool.Threads(); panels*blocks < 2*t && panels*blocks%t != 0 {
		blocks = min(t*blocks, l.tokens)
	}
	body := func(worker, i int) {
		m0, b := i%panels*backend.Panel, i/panels
		t0, t1 := b*l.tokens/blocks, (b+1)*l.tokens/blocks
		m1 := min(l.m, m0+backend.Panel)
		k.Tokens(o.ys[t0*l.m:t1*l.m], o.xs[t0*l.k:t1*l.k], t1-t0, m0, m1, x.scratch[worker])
		l.finish(o, t0, t1, m0, m1)
	}
	return func() { x.pool.For(panels*blocks, body) }
}

// bindMatMul multiplies by a constant right side as a linear layer, by a constant
// left side or none as products over the columns of the right side.
func bindMatMul(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.MatMul)
	if o.Quantised() {
		return bindIntegerLinear(p, n, &o.Quant, &o.Epilogue)
	}
	if !f32(n) {
		return nil, nil
	}
	as, bs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1]), shapeOf(n.Outputs[0])
	if len(as) == 0 || len(bs) < 2 || prod(ys) == 0 {
		return nil, nil
	}
	bias, ok := constantF32(n, 2)
	if !ok {
		return nil, nil
	}
	_, kernels, err := p.weightOf(n, 1)
	if err != nil {
		return nil, err
	}
	ep := newEpilogue(n, &o.Epilogue, bias)
	if kernels != nil {
		k, m := bs[len(bs)-2], bs[len(bs)-1]
		tokens := prod(as[:len(as)-1])
		l := &linear{kernel: sized(kernels, tokens)[0], tokens: tokens, m: m, k: k, scale: 1, ep: ep, add: -1}
		return l.bound(), nil
	}
	if len(as) < 2 || bias != nil {
		return nil, nil
	}
	_, kernels, err = p.weightOf(n, 0)
	if err != nil {
		return nil, err
	}
	return bindBatched(sized(kernels, bs[len(bs)-1]), as, bs, ys, ep), nil
}

// bindBatched multiplies matrices A[M,K] and B[K,N] batch by batch; kernels holds
// the prepared A where it is a constant.
func bindBatched(kernels []backend.FloatKernel, as, bs, ys []int, ep epilogue) *bound {
	m, k, n := as[len(as)-2], as[len(as)-1], bs[len(bs)-1]
	batch := ys[:len(ys)-2]
	aAt := batchOffsets(as[:len(as)-2], batch, m*k)
	bAt := batchOffsets(bs[:len(bs)-2], batch, k*n)
	if kernels == nil && (m <= fewRows || n == 1) {
		return bindFew(m, k, n, aAt, bAt, ep)
	}
	proto := backend.FloatKernel(dense.NewView(m, k))
	if kernels != nil {
		proto = kernels[0]
	}
	prepare := func(x *exec, in, out []*tensor.Tensor) func() error {
		kernel := proto
		var view *dense.View
		if kernels == nil {
			view = dense.NewView(m, k)
			kernel = view
		}
		var b, ys, res []float32
		var at int // of the batch
		p := product{kernel: kernel, m: m, k: k, n: n}
		p.load = func(_ int, panel []float32, k0, k1, col, cols int) []float32 {
			return loadRows(panel, b[bAt[at]+k0*n:], k1-k0, n, col, cols)
		}
		p.store = func(_ int, y []float32, r0, rows, col, cols int) {
			ep.tile(ys, res, at*m*n+r0*n+col, n, y, r0, rows, cols)
		}
		run := p.prepare(x)
		return func() error {
			b, ys, res = in[1].F32s(), out[0].F32s(), nil
			if ep.residual >= 0 {
				res = in[ep.residual].F32s()
			}
			for at = range aAt {
				if view != nil {
					view.Use(in[0].F32s()[aAt[at]:])
				}
				run()
			}
			return nil
		}
	}
	return &bound{inplace: -1, scratch: productScratch(proto, m), prepare: prepare}
}

// fewRows is the number of rows up to which B is read again for each rather than packed.
const fewRows = 3

// bindFew multiplies matrices A[M,K] and B[K,N] of few rows, as those of single queries, or of one column, batch by batch: B is read where it
// lies, some of its rows at a time, or is a vector with which rows of A are multiplied.
func bindFew(m, k, n int, aAt, bAt []int, ep epilogue) *bound {
	const (
		width = 16 * backend.Panel // columns of a part
		taps  = 8                  // rows of B that are read side by side
	)
	offsets := make([]int, taps)
	for i := range offsets {
		offsets[i] = i * n
	}
	blocks := ceil(n, width)
	if n == 1 {
		blocks = ceil(m, backend.Panel)
	}
	prepare := func(x *exec, in, out []*tensor.Tensor) func() error {
		var a, b, ys, res []float32
		row := func(y []float32, a, b []float32) {
			clear(y)
			for k0 := 0; k0 < k; k0 += taps {
				some := min(taps, k-k0)
				vec.Taps(y, b[k0*n:], offsets[:some], a[k0:k0+some], 0, -inf, inf, true)
			}
		}
		units := len(aAt) * blocks
		count, each := parts(x, units, m*k*n*len(aAt))
		body := func(worker, part int) {
			y := x.scratch[worker]
			for u := part * each; u < min(units, (part+1)*each); u++ {
				at, block := u/blocks, u%blocks
				a, b := a[aAt[at]:], b[bAt[at]:]
				if n == 1 {
					r0 := block * backend.Panel
					rows := min(backend.Panel, m-r0)
					for r := range rows {
						y[r*backend.Panel] = vec.Dot(a[(r0+r)*k:][:k], b[:k])
					}
					ep.tile(ys, res, at*m+r0, 1, y, r0, rows, 1)
					continue
				}
				col := block * width
				cols := min(width, n-col)
				for r := range m {
					row(y[:cols], a[r*k:][:k], b[col:])
					for c := 0; c < cols; c += backend.Panel {
						ep.tile(ys, res, (at*m+r)*n+col+c, n, y[c:], r, 1, min(backend.Panel, cols-c))
					}
				}
			}
		}
		return func() error {
			a, b, ys, res = in[0].F32s(), in[1].F32s(), out[0].F32s(), nil
			if ep.residual >= 0 {
				res = in[ep.residual].F32s()
			}
			x.pool.For(count, body)
			return nil
		}
	}
	return &bound{inplace: -1, scratch: backend.Panel * backend.Panel, prepare: prepare}
}

// batchOffsets lists the offset of the matrix of each batch, of size elements, for
// leading dimensions that broadcast to batch.
func batchOffsets(lead, batch []int, size int) []int {
	st := tensor.Strides(lead)
	out := make([]int, 0, prod(batch))
	idx := make([]int, len(batch))
	for range prod(batch) {
		at := 0
		for i := range lead {
			if lead[i] != 1 {
				at += idx[len(batch)-len(lead)+i] * st[i] * size
			}
		}
		out = append(out, at)
		for d := len(idx) - 1; d >= 0; d-- {
			if idx[d]++; idx[d] < batch[d] {
				break
			}
			idx[d] = 0
		}
	}
	return out
}

// bindGemm computes alpha op(A) op(B) + beta C with a constant B as a linear layer, and so with one that a run computes where its
// rows are those of a weight.
func bindGemm(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Gemm)
	if o.Quantised() {
		return bindIntegerLinear(p, n, &o.Quant, &o.Epilogue)
	}
	_, kernels, err := p.weightOf(n, 1)
	computed := o.TransB && !n.Inputs[1].IsConst()
	if err != nil || kernels == nil && !computed || !f32(n) {
		return nil, err
	}
	as, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if prod(ys) == 0 {
		return nil, nil
	}
	l := &linear{tokens: ys[0], m: ys[1], k: prod(as) / ys[0], transX: o.TransA, scale: o.Alpha, add: -1}
	if !computed {
		l.kernel = sized(kernels, l.tokens)[0]
	}
	l.ep = newEpilogue(n, &o.Epilogue, nil)
	if c := n.Input(2); c != nil && o.Beta != 0 {
		cs := shapeOf(c)
		data, constant := constantF32(n, 2)
		switch {
		case constant && prod(cs) == l.m && (len(cs) < 2 || cs[0] == 1):
			l.ep.bias = make([]float32, l.m)
			for i, v := range data {
				l.ep.bias[i] = o.Beta * v
			}
		default:
			l.add, l.addScale = 2, o.Beta
			if k := len(cs); k > 0 && cs[k-1] != 1 {
				l.addStride[1] = 1
			}
			if k := len(cs); k > 1 && cs[0] != 1 {
				l.addStride[0] = cs[1]
			}
		}
	}
	if computed {
		return l.computed(1), nil
	}
	return l.bound(), nil
}
