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
// side. Panels are loaded and stored transposed.
type linear struct {
	kernel    backend.Kernel
	tokens    int
	m, k      int
	transX    bool // X is stored [K,T]
	scale     float32
	ep        epilogue
	add       int // an input [T,M] or broadcast to it that is added times addScale, -1 for none
	addScale  float32
	addStride [2]int // of token and feature
}

// vecTokens is the number of tokens up to which the weight is multiplied by one
// column at a time: fewer multiplications than a mostly empty panel has.
const vecTokens = 4

func (l *linear) scratch() int {
	return max((&product{kernel: l.kernel, k: l.k}).scratch(), blockRows(l.kernel.Tile())+l.k)
}

func (l *linear) run(x *exec, in, out []*tensor.Tensor) error {
	xs, ys := in[0].F32s(), out[0].F32s()
	var res, add []float32
	if l.ep.residual >= 0 {
		res = in[l.ep.residual].F32s()
	}
	if l.add >= 0 {
		add = in[l.add].F32s()
	}
	// finish completes features m0.. of a token, which dst holds.
	finish := func(dst []float32, token, m0 int) {
		if l.scale != 1 {
			for i := range dst {
				dst[i] *= l.scale
			}
		}
		if l.ep.bias != nil {
			vec.Add(dst, dst, l.ep.bias[m0:m0+len(dst)])
		}
		if add != nil {
			p := token*l.addStride[0] + m0*l.addStride[1]
			for i := range dst {
				dst[i] += l.addScale * add[p]
				p += l.addStride[1]
			}
		}
		if res != nil {
			vec.Add(dst, dst, res[token*l.m+m0:][:len(dst)])
		}
		vec.Clip(dst, dst, l.ep.lo, l.ep.hi)
		if l.ep.act != nil {
			l.ep.act(dst)
		}
	}
	if l.tokens <= vecTokens {
		block := blockRows(l.kernel.Tile())
		n := (l.m + block - 1) / block
		x.pool.For(n*l.tokens, func(worker, i int) {
			t, r0 := i/n, i%n*block
			r1 := min(l.m, r0+block)
			s := x.scratch[worker]
			col := xs[t*l.k:]
			if l.transX {
				col = s[block:]
				for k := range l.k {
					col[k] = xs[k*l.tokens+t]
				}
			}
			l.kernel.Vec(s[:block], col[:l.k], r0, r1)
			dst := ys[t*l.m+r0 : t*l.m+r1]
			copy(dst, s)
			finish(dst, t, r0)
		})
		return nil
	}
	p := product{kernel: l.kernel, m: l.m, k: l.k, groups: []int{l.tokens}}
	p.load = func(panel []float32, _, col, n int) {
		if l.transX {
			loadRows(panel, xs, l.k, l.tokens, col, n)
			return
		}
		loadTransposed(panel, xs, l.k, l.k, col, n)
	}
	p.store = func(y []float32, r0, rows, _, col, n int) {
		vec.Transpose(ys[col*l.m+r0:], l.m, y, backend.Panel, rows, n)
		for j := range n {
			finish(ys[(col+j)*l.m+r0:][:rows], col+j, r0)
		}
	}
	p.run(x)
	return nil
}

// bindMatMul multiplies by a constant right side as a linear layer, by a constant
// left side or none as products over the columns of the right side.
func bindMatMul(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.MatMul)
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
		l := &linear{kernel: kernels[0], tokens: prod(as[:len(as)-1]), m: m, k: k, scale: 1, ep: ep, add: -1}
		return &bound{run: l.run, inplace: -1, scratch: l.scratch()}, nil
	}
	if len(as) < 2 || bias != nil {
		return nil, nil
	}
	_, kernels, err = p.weightOf(n, 0)
	if err != nil {
		return nil, err
	}
	return bindBatched(kernels, as, bs, ys, ep), nil
}

// bindBatched multiplies matrices A[M,K] and B[K,N] batch by batch; kernels holds
// the prepared A where it is a constant.
func bindBatched(kernels []backend.Kernel, as, bs, ys []int, ep epilogue) *bound {
	m, k, n := as[len(as)-2], as[len(as)-1], bs[len(bs)-1]
	batch := ys[:len(ys)-2]
	aAt := batchOffsets(as[:len(as)-2], batch, m*k)
	bAt := batchOffsets(bs[:len(bs)-2], batch, k*n)
	bound := &bound{inplace: -1}
	proto := dense.New(tensor.New(tensor.F32, 1, 1))
	if kernels != nil {
		proto = kernels[0]
	}
	bound.scratch = (&product{kernel: proto, k: k}).scratch()
	bound.run = func(x *exec, in, out []*tensor.Tensor) error {
		a, b, ys := in[0], in[1].F32s(), out[0].F32s()
		var res []float32
		if ep.residual >= 0 {
			res = in[ep.residual].F32s()
		}
		for i := range aAt {
			kernel := proto
			if kernels == nil {
				kernel = dense.New(tensor.From(a.F32s()[aAt[i]:aAt[i]+m*k], m, k))
			}
			p := product{kernel: kernel, m: m, k: k, groups: []int{n}}
			p.load = func(panel []float32, _, col, cols int) { loadRows(panel, b[bAt[i]:], k, n, col, cols) }
			p.store = func(y []float32, r0, rows, _, col, cols int) {
				for r := range rows {
					at := i*m*n + (r0+r)*n + col
					var rs []float32
					if res != nil {
						rs = res[at : at+cols]
					}
					ep.apply(ys[at:at+cols], y[r*backend.Panel:][:cols], r0+r, rs)
				}
			}
			p.run(x)
		}
		return nil
	}
	return bound
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

// bindGemm computes alpha op(A) op(B) + beta C with a constant B as a linear layer.
func bindGemm(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Gemm)
	_, kernels, err := p.weightOf(n, 1)
	if err != nil || kernels == nil || !f32(n) {
		return nil, err
	}
	as, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if prod(ys) == 0 {
		return nil, nil
	}
	l := &linear{kernel: kernels[0], tokens: ys[0], m: ys[1], k: prod(as) / ys[0], transX: o.TransA, scale: o.Alpha, add: -1}
	l.ep = newEpilogue(n, &o.Epilogue, nil)
	if c := n.Input(2); c != nil && o.Beta != 0 {
		cs := shapeOf(c)
		data, constant := constantF32(n, 2)
		switch {
		case constant && prod(cs) == l.m && (len(cs) == 1 || cs[0] == 1):
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
	return &bound{run: l.run, inplace: -1, scratch: l.scratch()}, nil
}
