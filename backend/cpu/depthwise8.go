package cpu

import (
	"slices"

	"spc/backend/cpu/plane"
	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// depthwiseSums is about how many sums are finished together, so that they stay in the first-level cache; at least a line of windows is.
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
	some, last    *ikernel.Windows // so many lines at a time, and what is left of them
	channels      int              // at a time, which is more than one where all lines are
	pitch, height int              // of the plane with padding that some lines see
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
	win, _, ok := windowOf(spans, xs[2:], ys[2:])
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
	some := min(win.OH, max(1, depthwiseSums/win.OW))
	d.pitch = (win.OW-1)*win.SW + (win.KW-1)*win.DW + 1
	d.height = d.lines(some)
	if d.pitch*d.height > mostOfPlane {
		return nil, nil
	}
	over := func(lines int) *ikernel.Windows {
		return ikernel.NewWindows(d.pitch, ikernel.Axis{Windows: lines, Taps: win.KH, Stride: win.SH, Dilation: win.DH},
			ikernel.Axis{Windows: win.OW, Taps: win.KW, Stride: win.SW, Dilation: win.DW})
	}
	d.some, d.last, d.channels = over(some), over((win.OH-1)%some+1), 1
	if some == win.OH {
		d.channels = max(1, depthwiseSums/d.some.Sums())
	}
	for c := range o.Group {
		d.w = append(d.w, d.some.Weights(w[c*taps:][:taps])...)
	}
	d.perChannel = len(d.w) / o.Group
	return d.bound(xs[0]), nil
}

// lines is the number of lines of the plane with padding that so many lines of windows see.
func (d *integerDepthwise) lines(windows int) int { return (windows-1)*d.SH + (d.KH-1)*d.DH + 1 }

func (d *integerDepthwise) bound(images int) *bound {
	in, out := d.H*d.W, d.OH*d.OW
	apart := d.some.Sums() // the sums of channels
	laid, room, tmp := floats(max(d.some.Bytes(), d.pitch*d.height)), floats(4*d.channels*apart), 0
	if d.ep.scratch() > 0 {
		tmp = d.some.Lines * d.OW
	}
	return &bound{inplace: -1, scratch: laid + room + tmp, prepare: func(x *exec, ins, outs []*tensor.Tensor) func() error {
		per := max(1, min(8*d.channels, d.groups/(2*x.pool.Threads())))
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
						d.lay(padded, src[(at+k)*in:][:in], line, p.Lines, uint8(zero))
						ep.kern.Depthwise(sums[k*apart:], padded, d.w[(c+k)*d.perChannel:][:d.perChannel], p)
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

// lay copies what so many lines of windows see of a channel into the plane, which is filled with the zero point where no pixels lie whatever the channel is.
func (d *integerDepthwise) lay(dst, src []uint8, line, windows int, fill uint8) {
	first, height := line*d.SH-d.Top, d.lines(windows)
	from := min(max(0, -first), height)
	to := max(from, min(d.H-first, height))
	if windows < d.OH { // else these are the same lines for all channels
		fillBytes(dst[:from*d.pitch], fill)
		fillBytes(dst[to*d.pitch:height*d.pitch], fill)
	}
	if width := min(d.W, d.pitch-d.Left); to > from && width > 0 {
		d.ep.kern.Frame(dst[from*d.pitch+d.Left:], d.pitch, src[(first+from)*d.W:], d.W, 1, to-from, width, 0, 0, 0)
	}
}
