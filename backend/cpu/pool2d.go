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
	win, spans, ok, err := poolWindow(n, &o.Window, o.CeilMode)
	if !ok {
		return nil, err
	}
	p := plane.NewMaxPool(win)
	return boundPool(n, win, spans, p.Scratch(), p.Run, func(y, x []float32, step, rows, _ int) {
		fill(y, -inf)
		for r := range rows {
			vec.Max(y, y, x[r*step:])
		}
	}), nil
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
		flat := spans[max(0, len(spans)-2):]
		xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
		clear(share)
		for t := range taps {
			op.TapRuns(flat, ys[len(ys)-len(flat):], xs[len(xs)-len(flat):], t, 0, out, func(j, n, _ int) {
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
	run := func(planes int, y, x, scratch []float32) {
		for planes > 0 {
			some := min(planes, most)
			d.Run(some, y, x, w, bias, nil, -inf, inf, scratch)
			if scale {
				for p := range some {
					vec.Mul(y[p*out:][:out], y[p*out:], share)
				}
			}
			planes, y, x = planes-some, y[some*out:], x[some*in:]
		}
	}
	return boundPool(n, win, spans, d.Scratch(), run, func(y, x []float32, step, rows, taps int) {
		clear(y)
		for r := range rows {
			vec.Add(y, y, x[r*step:])
		}
		if !o.CountPad {
			taps = max(1, rows)
		}
		vec.Affine(y, y, 1/float32(taps), 0, -inf, inf)
	}), nil
}

// poolWindow is the window of a pool over one or two spatial axes, or over the last two of three; ok is false where
// there is none that the planes' kernels take.
func poolWindow(n *ir.Node, w *op.Window, ceil bool) (win plane.Window, spans []op.Span, ok bool, err error) {
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if !f32(n) || prod(ys) == 0 || prod(xs) == 0 {
		return win, nil, false, nil
	}
	if spans, _, err = w.Resolve(xs[2:], w.KernelShape, ceil); err != nil {
		return win, nil, false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	if len(spans) > 3 {
		return win, nil, false, nil
	}
	flat := max(2, len(xs)-2) // where the axes of planes begin
	win, ok = planeWindow(spans[flat-2:], xs[flat:], ys[flat:])
	return win, spans, ok, nil
}

// boundPool is the kernel of a pool whose windows f takes on planes. Where there are three spatial axes it then joins to y the
// planes, step apart in x, that the window along the first covers, of which taps would be all.
func boundPool(n *ir.Node, win plane.Window, spans []op.Span, scratch int, f func(planes int, y, x, scratch []float32), join func(y, x []float32, step, rows, taps int)) *bound {
	in, out := win.H*win.W, win.OH*win.OW
	if len(spans) < 3 {
		return boundPlanes(n, scratch, in, out, f)
	}
	s, depth, results := spans[0], shapeOf(n.Inputs[0])[2], shapeOf(n.Outputs[0])[2]
	alone := win.KH == 1 && win.KW == 1 && win.SH == 1 && win.SW == 1 && in == out && win.Top == 0 && win.Left == 0 // planes stay as they are
	pooled := depth * out
	if alone {
		pooled = 0
	}
	return boundPlanes(n, scratch+pooled, depth*in, results*out, func(volumes int, y, x, scratch []float32) {
		for v := range volumes {
			planes := x[v*depth*in:][:depth*in]
			if !alone {
				f(depth, scratch[:pooled], planes, scratch[pooled:])
				planes = scratch[:pooled]
			}
			for d := range results {
				lo, hi := s.Begin-d*s.Stride, depth+s.Begin-d*s.Stride // the taps from lo/Dilation on, and below hi/Dilation
				first := max(0, lo+s.Dilation-1) / s.Dilation
				rows := max(0, min(s.Kernel, (max(0, hi)+s.Dilation-1)/s.Dilation)-first)
				from := 0
				if rows > 0 {
					from = d*s.Stride + first*s.Dilation - s.Begin
				}
				join(y[(v*results+d)*out:][:out], planes[from*out:], s.Dilation*out, rows, s.Kernel)
			}
		}
	})
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
