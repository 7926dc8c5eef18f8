package cpu

import (
	"slices"

	"spc/backend/cpu/plane"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindDepthwise convolves each plane with its own window, and sums those of the planes that an axis in front of them joins; nil
// where n is no depthwise convolution of a rank that the planes' kernels have.
func bindDepthwise(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Conv)
	bias, ok := constantF32(n, 2)
	weight := n.Inputs[1]
	if !ok || !f32(n) || !weight.IsConst() {
		return nil, nil
	}
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	ws := shapeOf(weight)
	groups := ws[0]
	if groups == 1 || ws[1] != 1 || xs[1] != groups || slices.Contains(ys, 0) || slices.Contains(xs, 0) {
		return nil, nil
	}
	spans, _, err := o.Geometry(xs, ws)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	layers, spans := layersOf(spans, xs, ys)
	flat := len(xs) - len(spans) // where the axes of planes begin
	win, ok := planeWindow(spans, xs[flat:], ys[flat:])
	if !ok {
		return nil, nil
	}
	t, err := p.elements(weight)
	if err != nil {
		return nil, n.Errorf(ir.ErrCorrupt, "weight %s: %v", weight.Name, err)
	}
	v := &volumes{
		layers: layers, area: win.H * win.W, outArea: win.OH * win.OW, in: prod(xs[2:]), out: prod(ys[2:]),
		groups: groups, taps: win.KH * win.KW, bias: bias, zeros: make([]float32, groups), ep: newEpilogue(n, &o.Epilogue, nil),
	}
	v.w = byLayer(t.F32s(), groups, v.taps)
	if bias == nil {
		v.bias = v.zeros
	}
	win.In, win.Out = v.in, v.out
	v.plane = plane.NewDepthwise(win)
	most := chunk
	if v.ep.act != nil {
		most /= 4 // the planes are still in the first-level cache then
	}
	most = max(1, most/v.out)
	scratch := v.plane.Scratch()
	if len(layers) > 1 {
		scratch += most * v.out // for every other layer
	}
	return &bound{inplace: -1, planes: true, scratch: scratch, prepare: func(x *exec, ins, outs []*tensor.Tensor) func() error {
		per := max(1, min(most, groups/(2*x.pool.Threads())))
		parts := (groups + per - 1) / per
		var src, dst, res []float32
		body := func(worker, i int) {
			c := i % parts * per
			count := min(per, groups-c)
			at := i/parts*groups + c
			var r []float32
			if res != nil {
				r = res[at*v.out:][:count*v.out]
			}
			v.run(c, count, dst[at*v.out:][:count*v.out], src[at*v.in:][:count*v.in], r, x.scratch[worker])
		}
		return func() error {
			src, dst = ins[0].F32s(), outs[0].F32s()
			if v.ep.residual >= 0 {
				res = ins[v.ep.residual].F32s()
			}
			x.pool.For(xs[0]*parts, body)
			return nil
		}
	}}, nil
}

// volumes is a depthwise convolution over up to three axes, plane by plane.
type volumes struct {
	plane         *plane.Depthwise
	layers        []layer
	area, outArea int // elements of a plane
	in, out       int // elements of a channel
	groups, taps  int
	w             []float32 // by layer, then by channel
	bias, zeros   []float32
	ep            epilogue
}

// run computes y, count channels from c on, of x, and of a residual where r is not nil.
func (v *volumes) run(c, count int, y, x, r, scratch []float32) {
	turn := [2][]float32{y, scratch[v.plane.Scratch():]}
	for _, l := range v.layers {
		sum, bias, lo, hi := r, v.bias[c:], -inf, inf
		if !l.first { // what the one before left
			sum, bias = turn[(l.left+1)%2], v.zeros
		}
		if sum != nil {
			sum = sum[l.out*v.outArea:]
		}
		if l.left == 0 {
			lo, hi = v.ep.lo, v.ep.hi
		}
		to := turn[l.left%2][l.out*v.outArea:]
		if l.tap < 0 {
			nothing(count, v.outArea, v.out, to, bias, sum, lo, hi)
			continue
		}
		v.plane.Run(count, to, x[l.in*v.area:], v.w[(l.tap*v.groups+c)*v.taps:], bias, sum, lo, hi, scratch)
	}
	if v.ep.act != nil {
		v.ep.act(y)
	}
}

// layer is a plane of each channel of an input whose windows of one tap of the axis in front of the planes are added to a
// plane of the output. What the kernels add to is not where they write, so that layers take turns at the output.
type layer struct {
	in, out, tap int
	first        bool // of this plane of the output
	left         int  // layers that follow for it
}

// layersOf lists the layers of a convolution over three axes, one for fewer, and the spans of the others. A plane of the output that
// sees nothing but padding has one of tap -1.
func layersOf(spans []op.Span, in, out []int) (list []layer, rest []op.Span) {
	if len(spans) != 3 {
		return []layer{{first: true}}, spans
	}
	s := spans[0]
	for o := range out[2] {
		before := len(list)
		for t := range s.Kernel {
			if i := o*s.Stride + t*s.Dilation - s.Begin; i >= 0 && i < in[2] {
				list = append(list, layer{in: i, out: o, tap: t, first: len(list) == before})
			}
		}
		if len(list) == before {
			list = append(list, layer{out: o, tap: -1, first: true})
		}
		for i := range list[before:] {
			list[before+i].left = len(list) - before - 1 - i
		}
	}
	return list, spans[1:]
}

// nothing is the Run of windows of zeros on planes that are apart from each other.
func nothing(planes, size, apart int, y, bias, res []float32, lo, hi float32) {
	for p := range planes {
		for i := range size {
			v := bias[p]
			if res != nil {
				v += res[p*apart+i]
			}
			y[p*apart+i] = min(max(v, lo), hi)
		}
	}
}

// byLayer orders weights [channels, layers, taps] by layer, then by channel.
func byLayer(w []float32, channels, taps int) []float32 {
	layers := len(w) / (channels * taps)
	if layers == 1 {
		return w
	}
	out := make([]float32, 0, len(w))
	for l := range layers {
		for c := range channels {
			out = append(out, w[(c*layers+l)*taps:][:taps]...)
		}
	}
	return out
}

// planeWindow is windowOf, but for planes of which a padded copy would be large.
func planeWindow(spans []op.Span, in, out []int) (win plane.Window, ok bool) {
	win, area, ok := windowOf(spans, in, out)
	return win, ok && area <= mostOfPlane
}

// mostOfPlane is the most elements along an axis of a padded plane.
const mostOfPlane = 1 << 24

// windowOf is the window of spans over one or two spatial axes, and the elements of a plane with padding around it; ok is false for
// other ranks and where an axis is long.
func windowOf(spans []op.Span, in, out []int) (win plane.Window, area int, ok bool) {
	if len(spans) == 1 {
		spans = append([]op.Span{{Kernel: 1, Stride: 1, Dilation: 1}}, spans...)
		in, out = []int{1, in[0]}, []int{1, out[0]}
	}
	if len(spans) != 2 {
		return win, 0, false
	}
	area = 1
	for i, s := range spans {
		n := (out[i]-1)*s.Stride + s.Extent()
		if n > mostOfPlane || in[i] > mostOfPlane || s.Begin < 0 || s.Begin > mostOfPlane {
			return win, 0, false
		}
		area *= n
	}
	return plane.Window{
		H: in[0], W: in[1], OH: out[0], OW: out[1],
		KH: spans[0].Kernel, KW: spans[1].Kernel, SH: spans[0].Stride, SW: spans[1].Stride,
		DH: spans[0].Dilation, DW: spans[1].Dilation, Top: spans[0].Begin, Left: spans[1].Begin,
	}, area, true
}
