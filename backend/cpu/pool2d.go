package cpu

import (
	"slices"

	"spc/backend/cpu/plane"
	"spc/backend/cpu/vec"
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
		return bindMaxPoolBytes(n)
	}
	win, _, ok, err := poolWindow(n, &o.Window, o.CeilMode)
	if !ok {
		return nil, err
	}
	p := plane.NewMaxPool(win)
	return boundPlanes(n, p.Scratch(), win.H*win.W, win.OH*win.OW, p.Run), nil
}

// bindAveragePool takes the mean over the pixels of each window that are no
// padding, or over all where padding counts.
func bindAveragePool(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.AveragePool)
	if o.CountPad && o.CeilMode {
		return nil, nil
	}
	win, spans, ok, err := poolWindow(n, &o.Window, o.CeilMode)
	if !ok {
		return nil, err
	}
	in, out, taps := win.H*win.W, win.OH*win.OW, win.KH*win.KW
	// A window of padding alone has mean 0.
	share := slices.Repeat([]float32{1 / float32(taps)}, out)
	if !o.CountPad {
		xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
		clear(share)
		for t := range taps {
			op.TapRuns(spans, ys[2:], xs[2:], t, 0, out, func(j, n, _ int) {
				for i := range n {
					share[j+i]++
				}
			})
		}
		for i, v := range share {
			share[i] = 1 / max(v, 1)
		}
	}
	each := share[0]
	scale := slices.ContainsFunc(share, func(v float32) bool { return v != each })
	if scale {
		each = 1
	}
	d := plane.NewDepthwise(win)
	most := max(1, chunk/out)
	w := slices.Repeat([]float32{each}, most*taps)
	bias := make([]float32, most)
	return boundPlanes(n, d.Scratch(), in, out, func(planes int, y, x, scratch []float32) {
		d.Run(planes, y, x, w, bias, nil, -inf, inf, scratch)
		if scale {
			for p := range planes {
				vec.Mul(y[p*out:][:out], y[p*out:], share)
			}
		}
	}), nil
}

// poolWindow is the window of a pool over one or two spatial axes; ok is false where
// there is none that the planes' kernels take.
func poolWindow(n *ir.Node, w *op.Window, ceil bool) (win plane.Window, spans []op.Span, ok bool, err error) {
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if !f32(n) || prod(ys) == 0 || prod(xs) == 0 {
		return win, nil, false, nil
	}
	if spans, _, err = w.Resolve(xs[2:], w.KernelShape, ceil); err != nil {
		return win, nil, false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	win, ok = planeWindow(spans, xs[2:], ys[2:])
	return win, spans, ok, nil
}

// boundPlanes is the kernel that runs f on groups of planes, of in and out elements,
// with scratch floats for each worker. A group has at most chunk elements of output,
// or one plane.
func boundPlanes(n *ir.Node, scratch, in, out int, f func(planes int, y, x, scratch []float32)) *bound {
	planes := prod(shapeOf(n.Inputs[0])) / in
	return &bound{inplace: -1, scratch: scratch, prepare: func(x *exec, ins, outs []*tensor.Tensor) func() error {
		each := max(1, min(chunk/out, planes/(2*x.pool.Threads())))
		var src, dst []float32
		body := func(worker, i int) {
			at := i * each
			count := min(each, planes-at)
			f(count, dst[at*out:][:count*out], src[at*in:][:count*in], x.scratch[worker])
		}
		return func() error {
			src, dst = ins[0].F32s(), outs[0].F32s()
			x.pool.For((planes+each-1)/each, body)
			return nil
		}
	}}
}
