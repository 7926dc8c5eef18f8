package cpu

import (
	"slices"

	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindMaxPoolBytes takes the maximum of u8 over windows of one or two axes, first down the
// rows, then along them.
func bindMaxPoolBytes(n *ir.Node) (*bound, error) {
	o := n.Op.(*op.MaxPool)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if len(xs) > 2+op.MaxQuantAxes || prod(ys) == 0 || prod(xs) == 0 {
		return nil, nil
	}
	spans, out, err := o.Window.Resolve(xs[2:], o.KernelShape, o.CeilMode)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	if len(spans) == 1 { // a row is an image
		xs, out = []int{xs[0], xs[1], 1, xs[2]}, []int{1, out[0]}
		spans = []op.Span{{Kernel: 1, Stride: 1, Dilation: 1}, spans[0]}
	}
	v, h := spans[0], spans[1]
	height, width := xs[2], xs[3]
	kern := ikernel.Best()
	// The row, with zeros on both sides, which no u8 is below: output column j takes
	// the maximum of row[j*stride + t*dilation] over the taps t.
	length := (out[1]-1)*h.Stride + (h.Kernel-1)*h.Dilation + 1
	length = max(length, h.Begin+width)
	half := (length + 1) / 2
	need := floats(length) + 2*floats(half)
	if size := [2]int{3, 3}; [2]int{v.Kernel, h.Kernel} == size && v.Stride == 2 && h.Stride == 2 && v.Dilation == 1 && h.Dilation == 1 {
		return boundMaxPool3x3s2(xs, out, v.Begin, h.Begin), nil
	}
	return &bound{inplace: -1, scratch: need, prepare: func(x *exec, in, out8 []*tensor.Tensor) func() error {
		var src, dst []uint8
		body := func(worker, i int) {
			s := x.scratch[worker]
			row := asBytes(s)[:length]
			even := asBytes(s[floats(length):])[:half]
			odd := asBytes(s[floats(length)+floats(half):])[:half]
			plane, to := src[i*height*width:][:height*width], dst[i*out[0]*out[1]:][:out[0]*out[1]]
			clear(row)
			for y := range out[0] {
				first := true
				line := row[h.Begin:][:width]
				for t := range v.Kernel {
					at := y*v.Stride + t*v.Dilation - v.Begin
					if at < 0 || at >= height {
						continue
					}
					if first {
						copy(line, plane[at*width:])
						first = false
						continue
					}
					kern.Max(line, plane[at*width:][:width])
				}
				if first {
					clear(line)
				}
				maxAlong(kern, to[y*out[1]:][:out[1]], row, even, odd, h)
			}
		}
		return func() error {
			src, dst = in[0].Bytes(), out8[0].Bytes()
			x.pool.For(xs[0]*xs[1], body)
			return nil
		}
	}}, nil
}

// maxAlong takes the maximum of a row over the windows of h. even and odd have room for its halves.
func maxAlong(kern *ikernel.Kernels, d, row, even, odd []uint8, h op.Span) {
	switch h.Stride {
	case 1:
		copy(d, row)
		for t := 1; t < h.Kernel; t++ {
			kern.Max(d, row[t*h.Dilation:])
		}
	case 2:
		kern.Split(even, odd, row)
		half := [2][]uint8{even, odd}
		copy(d, even)
		for t := 1; t < h.Kernel; t++ {
			at := t * h.Dilation
			kern.Max(d, half[at%2][at/2:])
		}
	default:
		for j := range d {
			m := row[j*h.Stride]
			for t := 1; t < h.Kernel; t++ {
				m = max(m, row[j*h.Stride+t*h.Dilation])
			}
			d[j] = m
		}
	}
}

// boundMaxPool3x3s2 takes the maxima of windows of 3x3 at strides of 2. Those that lie
// inside of the image are the kernel's.
func boundMaxPool3x3s2(xs, out []int, top, left int) *bound {
	height, width, oh, ow := xs[2], xs[3], out[0], out[1]
	inside := func(begin, size, n int) (lo, hi int) {
		lo = min((begin+1)/2, n)
		return lo, max(lo, min((size-3+begin)/2+1, n))
	}
	y0, y1 := inside(top, height, oh)
	x0, x1 := inside(left, width, ow)
	kern := ikernel.Best()
	return &bound{inplace: -1, prepare: func(x *exec, in, out8 []*tensor.Tensor) func() error {
		var src, dst []uint8
		body := func(_, i int) {
			plane, to := src[i*height*width:][:height*width], dst[i*oh*ow:][:oh*ow]
			if y0 < y1 && x0 < x1 {
				kern.MaxPool(to[y0*ow+x0:], ow, plane[(2*y0-top)*width+2*x0-left:], width, y1-y0, x1-x0)
			}
			for y := range oh {
				for x := 0; x < ow; x++ {
					if y >= y0 && y < y1 && x == x0 {
						if x = x1; x == ow {
							break
						}
					}
					m := uint8(0)
					for a := max(0, 2*y-top); a < min(height, 2*y-top+3); a++ {
						for b := max(0, 2*x-left); b < min(width, 2*x-left+3); b++ {
							m = max(m, plane[a*width+b])
						}
					}
					to[y*ow+x] = m
				}
			}
		}
		return func() error {
			src, dst = in[0].Bytes(), out8[0].Bytes()
			x.pool.For(xs[0]*xs[1], body)
			return nil
		}
	}}
}

// u8Only reports whether n takes and gives u8.
func u8Only(n *ir.Node) bool {
	return !slices.ContainsFunc(append(slices.Clone(n.Inputs[:1]), n.Outputs...), func(v *ir.Value) bool {
		return v != nil && v.Type.DType != tensor.U8
	})
}
