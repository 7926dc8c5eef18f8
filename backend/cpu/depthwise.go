package cpu

import (
	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindDepthwise convolves each plane with its own kernel.
func bindDepthwise(n *ir.Node, g *convGeometry, ep epilogue) (*bound, error) {
	w, ok := constantF32(n, 1)
	if !ok {
		return nil, nil
	}
	step := g.spans[len(g.spans)-1].Stride
	// The runs of a tap are the same for every plane.
	runs := make([][]tapRun, g.taps)
	for t := range runs {
		op.TapRuns(g.spans, g.out, g.in, t, 0, g.outPlane, func(j, n, p int) {
			runs[t] = append(runs[t], tapRun{j, n, p})
		})
	}
	run := func(x *exec, in, out []*tensor.Tensor) error {
		xs, ys := in[0].F32s(), out[0].F32s()
		var res []float32
		if ep.residual >= 0 {
			res = in[ep.residual].F32s()
		}
		x.pool.For(g.images*g.groups, func(_, i int) {
			c := i % g.groups
			src, dst := xs[i*g.inPlane:][:g.inPlane], ys[i*g.outPlane:][:g.outPlane]
			clear(dst)
			for t, tr := range runs {
				v := w[c*g.taps+t]
				for _, r := range tr {
					axpy(dst[r.col:r.col+r.n], src[r.pos:], v, step)
				}
			}
			var rs []float32
			if res != nil {
				rs = res[i*g.outPlane:][:g.outPlane]
			}
			ep.apply(dst, dst, c, rs)
		})
		return nil
	}
	return &bound{run: run, inplace: -1}, nil
}

// axpy adds v times every step-th element of x to y.
func axpy(y, x []float32, v float32, step int) {
	if step == 1 {
		vec.Axpy(y, v, x[:len(y)])
		return
	}
	p := 0
	for i := range y {
		y[i] += v * x[p]
		p += step
	}
}
