package cpu

import (
	"slices"

	"spc/backend/cpu/plane"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindDepthwise convolves each plane with its own window; nil where n is no
// depthwise convolution of a rank that the planes' kernels have.
func bindDepthwise(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Conv)
	bias, ok := constantF32(n, 2)
	v := n.Inputs[1]
	if !ok || !f32(n) || !v.IsConst() {
		return nil, nil
	}
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	ws := shapeOf(v)
	groups := ws[0]
	if groups == 1 || ws[1] != 1 || xs[1] != groups || slices.Contains(ys, 0) || slices.Contains(xs, 0) {
		return nil, nil
	}
	spans, _, err := o.Geometry(xs, ws)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	win, ok := planeWindow(spans, xs[2:], ys[2:])
	if !ok {
		return nil, nil
	}
	t, err := p.elements(v)
	if err != nil {
		return nil, n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
	}
	w := t.F32s()
	if bias == nil {
		bias = make([]float32, groups)
	}
	d := plane.NewDepthwise(win)
	ep := newEpilogue(n, &o.Epilogue, nil)
	in, out, taps := win.H*win.W, win.OH*win.OW, win.KH*win.KW
	most := chunk
	if ep.act != nil {
		most /= 4 // the planes are still in the first-level cache then
	}
	return &bound{inplace: -1, planes: true, scratch: d.Scratch(), prepare: func(x *exec, ins, outs []*tensor.Tensor) func() error {
		per := max(1, min(most/out, groups/(2*x.pool.Threads())))
		parts := (groups + per - 1) / per
		var src, dst, res []float32
		body := func(worker, i int) {
			c := i % parts * per
			count := min(per, groups-c)
			at := i/parts*groups + c
			y := dst[at*out : (at+count)*out]
			var r []float32
			if res != nil {
				r = res[at*out:][:len(y)]
			}
			d.Run(count, y, src[at*in:][:count*in], w[c*taps:], bias[c:], r, ep.lo, ep.hi, x.scratch[worker])
			if ep.act != nil {
				ep.act(y)
			}
		}
		return func() error {
			src, dst = ins[0].F32s(), outs[0].F32s()
			if ep.residual >= 0 {
				res = ins[ep.residual].F32s()
			}
			x.pool.For(xs[0]*parts, body)
			return nil
		}
	}}, nil
}

// planeWindow is the window of spans over one or two spatial axes; ok is false for
// other ranks and where a padded copy of a plane would be large.
func planeWindow(spans []op.Span, in, out []int) (win plane.Window, ok bool) {
	if len(spans) == 1 {
		spans = append([]op.Span{{Kernel: 1, Stride: 1, Dilation: 1}}, spans...)
		in, out = []int{1, in[0]}, []int{1, out[0]}
	}
	if len(spans) != 2 {
		return win, false
	}
	const most = 1 << 24
	area := 1
	for i, s := range spans {
		n := (out[i]-1)*s.Stride + s.Extent()
		if n > most || in[i] > most || s.Begin < 0 || s.Begin > most {
			return win, false
		}
		area *= n
	}
	return plane.Window{
		H: in[0], W: in[1], OH: out[0], OW: out[1],
		KH: spans[0].Kernel, KW: spans[1].Kernel, SH: spans[0].Stride, SW: spans[1].Stride,
		DH: spans[0].Dilation, DW: spans[1].Dilation, Top: spans[0].Begin, Left: spans[1].Begin,
	}, area <= most
}
