package cpu

import (
	"math"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindMaxPool takes the maximum over each window, plane by plane.
func bindMaxPool(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.MaxPool)
	if len(n.Outputs) > 1 && n.Outputs[1] != nil {
		return nil, nil
	}
	if u8Only(n) {
		return bindMaxPool8(n)
	}
	return bindPool(n, &o.Window, o.CeilMode, float32(math.Inf(-1)), maxInto, nil)
}

// bindAveragePool takes the mean over the pixels of each window that are no
// padding.
func bindAveragePool(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.AveragePool)
	if o.CountPad {
		return nil, nil
	}
	return bindPool(n, &o.Window, o.CeilMode, 0, sumInto, func(y []float32, count []float32) {
		for i := range y {
			y[i] /= max(count[i], 1) // a window of padding alone has mean 0
		}
	})
}

// bindPool reduces each window with f, which combines every step-th element of x
// into y, from start; finish, where it is set, gets the number of pixels in each
// window.
func bindPool(n *ir.Node, w *op.Window, ceil bool, start float32, f func(y, x []float32, step int), finish func(y, count []float32)) (*bound, error) {
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if !f32(n) || prod(ys) == 0 {
		return nil, nil
	}
	spans, out, err := w.Resolve(xs[2:], w.KernelShape, ceil)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	inPlane, outPlane := prod(xs[2:]), prod(out)
	step := spans[len(spans)-1].Stride
	var runs []tapRun
	count := make([]float32, outPlane)
	for t := range prod(w.KernelShape) {
		op.TapRuns(spans, out, xs[2:], t, 0, outPlane, func(j, n, p int) {
			runs = append(runs, tapRun{j, n, p})
			for i := range n {
				count[j+i]++
			}
		})
	}
	return &bound{inplace: -1, run: func(x *exec, in, out []*tensor.Tensor) error {
		src, dst := in[0].F32s(), out[0].F32s()
		x.pool.For(xs[0]*xs[1], func(_, i int) {
			p, q := src[i*inPlane:][:inPlane], dst[i*outPlane:][:outPlane]
			for j := range q {
				q[j] = start
			}
			for _, r := range runs {
				f(q[r.col:r.col+r.n], p[r.pos:], step)
			}
			if finish != nil {
				finish(q, count)
			}
		})
		return nil
	}}, nil
}

func maxInto(y, x []float32, step int) {
	p := 0
	for i := range y {
		y[i] = max(y[i], x[p])
		p += step
	}
}

func sumInto(y, x []float32, step int) {
	p := 0
	for i := range y {
		y[i] += x[p]
		p += step
	}
}
