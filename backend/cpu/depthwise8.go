package cpu

import (
	"slices"

	"spc/backend/cpu/plane"
	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// depthwiseSums is about how many sums are finished together: they stay in the first-level cache.
const depthwiseSums = 4096

// integerDepthwise is a convolution of integers that has a window of its own for each channel. Each channel is copied to a plane with
// padding around it. What windows see there is summed up some lines at a time, or for some channels.
type integerDepthwise struct {
	plane.Window
	ep            *integerEpilogue
	zero          int // of X, where the node knows it
	groups        int
	w             []int8 // of a channel, in the order of the kernels
	perChannel    int
	windows       *ikernel.Windows
	some, last    *ikernel.Windows // so many lines at a time, and what is left of them
	channels      int              // at a time, which is more than one where all lines are
	pitch, height int              // of the plane with padding
}

// bindIntegerDepthwise makes the kernel of a quantised depthwise Conv over at most op.MaxQuantAxes spatial axes, nil where n is none.
func bindIntegerDepthwise(p *program, n *ir.Node, o *op.Conv) (*bound, error) {
	xs, ys, ws := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0]), shapeOf(n.Inputs[1])
	if !n.Inputs[1].IsConst() || o.Group != ws[0] || ws[1] != 1 || len(xs) > 2+op.MaxQuantAxes || prod(xs) == 0 || prod(ys) == 0 {
		return nil, nil
	}
	if slices.ContainsFunc(o.WZero, func(z int) bool { return z != 0 }) {
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
	t, err := p.elements(n.Inputs[1])
	if err != nil {
		return nil, n.Errorf(ir.ErrCorrupt, "weight %s: %v", n.Inputs[1].Name, err)
	}
	w, taps := tensor.Data[int8](t), win.KH*win.KW
	sums := make([]int32, o.Group)
	for i, v := range w {
		sums[i/taps] += int32(v)
	}
	ep, ok := newIntegerEpilogue(n, &o.Quant, &o.Epilogue, sums, taps)
	if !ok {
		return nil, nil
	}
	d := &integerDepthwise{Window: win, ep: ep, zero: o.XZero, groups: o.Group}
	d.pitch = (win.OW-1)*win.SW + (win.KW-1)*win.DW + 1
	d.height = (win.OH-1)*win.SH + (win.KH-1)*win.DH + 1
	d.windows = ikernel.NewWindows(d.pitch, ikernel.Axis{Windows: win.OH, Taps: win.KH, Stride: win.SH, Dilation: win.DH}, ikernel.Axis{Windows: win.OW, Taps: win.KW, Stride: win.SW, Dilation: win.DW})
	some := min(win.OH, max(1, depthwiseSums/win.OW))
	d.some, d.last = d.windows.Some(some), d.windows.Some((win.OH-1)%some+1)
	d.channels = max(1, depthwiseSums/d.windows.Sums())
	for c := range o.Group {
		d.w = append(d.w, d.windows.Weights(w[c*taps:][:taps])...)
	}
	d.perChannel = len(d.w) / o.Group
	return d.bound(xs[0]), nil
}

func (d *integerDepthwise) bound(images int) *bound {
	in, out := d.H*d.W, d.OH*d.OW
	apart := d.some.Sums() // the sums of channels
	laid, room, tmp := floats(max(d.windows.Bytes(), d.pitch*d.height)), floats(4*d.channels*apart), 0
	if d.ep.scratch() > 0 {
		tmp = d.some.Lines * d.OW
	}
	return &bound{inplace: -1, scratch: laid + room + tmp, prepare: func(x *exec, ins, outs []*tensor.Tensor) func() error {
		per := max(d.channels, d.groups/(4*x.pool.Threads()))
		parts := (d.groups + per - 1) / per
		ep, zero := d.ep.own(), 0
		var src []uint8
		var y, res ikernel.Elems
		body := func(worker, i int) {
			s := x.scratch[worker]
			padded, sums, rest := asBytes(s[:laid]), asInts(s[laid:][:room]), s[laid+room:]
			fillBytes(padded[:d.pitch*d.height], uint8(zero))
			first := i % parts * per
			end := min(d.groups, first+per)
			for c := first; c < end; c += d.channels {
				count := min(d.channels, end-c)
				at := i/parts*d.groups + c
				for line := 0; line < d.OH; line += d.some.Lines {
					p := d.some
					if line+p.Lines > d.OH {
						p = d.last
					}
					for k := range count {
						if line == 0 {
							d.lay(padded, src[(at+k)*in:][:in])
						}
						ep.kern.Depthwise(sums[k*apart:], padded[p.From(line):], d.w[(c+k)*d.perChannel:][:d.perChannel], p)
					}
					to := at*out + line*d.OW
					ep.finish(c, count, p.Lines*d.OW, intRows{sums, apart}, y.From(to), res.From(to), out, rest)
				}
			}
		}
		return func() error {
			zero = ep.begin(ins, d.zero)
			src, y = ins[0].Bytes(), elemsOf(outs[0])
			if ep.residual >= 0 {
				res = elemsOf(ins[op.Residual])
			}
			x.pool.For(images*parts, body)
			return nil
		}
	}}
}

// lay copies a channel into the plane.
func (d *integerDepthwise) lay(dst, src []uint8) {
	rows, width := min(d.H, d.height-d.Top), min(d.W, d.pitch-d.Left)
	if rows > 0 && width > 0 { // else windows see nothing but padding
		d.ep.kern.Frame(dst[d.Top*d.pitch+d.Left:], d.pitch, src, d.W, 1, rows, width, 0, 0, 0)
	}
}
