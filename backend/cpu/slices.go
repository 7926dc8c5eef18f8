package cpu

import "spc/ir/op"

// depth is the first of three axes over which a convolution moves when it is seen as one over two: output slice z
// of a volume is then an image, whose channels are for each channel of the volume the input slices that the taps along
// the axis read for z. They are in the order in which a weight has them.
type depth struct {
	span    op.Span
	in, out int // slices of a volume
}

// sliced returns the same convolution over as few axes as may be: two for three. Neighbours over which a kernel
// of one tap moves by single pixels are one.
func (g *convGeometry) sliced() *convGeometry {
	s := *g
	s.spans, s.in, s.out = nil, nil, nil
	for d, span := range g.spans {
		unit := span.Kernel == 1 && span.Stride == 1 && span.Begin == 0 && span.End == 0
		if last := len(s.spans) - 1; unit && last >= 0 && s.spans[last] == (op.Span{Kernel: 1, Stride: 1, Dilation: 1}) {
			s.in[last] *= g.in[d]
			s.out[last] *= g.out[d]
			continue
		}
		if unit {
			span.Dilation = 1
		}
		s.spans, s.in, s.out = append(s.spans, span), append(s.in, g.in[d]), append(s.out, g.out[d])
	}
	if first := s.spans[0]; len(s.spans) == 3 {
		s.depth = &depth{first, s.in[0], s.out[0]}
		s.spans, s.in, s.out = s.spans[1:], s.in[1:], s.out[1:]
		s.images *= s.depth.out
		s.channels *= first.Kernel
		s.taps /= first.Kernel
		s.inPlane /= s.depth.in
		s.outPlane /= s.depth.out
	}
	return &s
}

// plane returns where a channel of an image begins in the input, -1 where it is zeros.
func (g *convGeometry) plane(img, channel int) int {
	d := g.depth
	if d == nil {
		return (img*g.groups*g.channels + channel) * g.inPlane
	}
	c, tap := channel/d.span.Kernel, channel%d.span.Kernel
	z := img%d.out*d.span.Stride + tap*d.span.Dilation - d.span.Begin
	if z < 0 || z >= d.in {
		return -1
	}
	return ((img/d.out*g.groups*g.channels/d.span.Kernel+c)*d.in + z) * g.inPlane
}

// result returns where row m of an image begins in the output, and how far rows are apart.
func (g *convGeometry) result(img, m int) (at, ld int) {
	slices, z := 1, 0
	if g.depth != nil {
		slices, z = g.depth.out, img%g.depth.out
	}
	ld = slices * g.outPlane
	return (img/slices*g.groups*g.rows+m)*ld + z*g.outPlane, ld
}

// slicesFirst returns kernels W[M,C,k1,k2,k3] as [M,k1,C,k2,k3], those of two dimensions as they are.
func (g *convGeometry) slicesFirst(w []float32) []float32 {
	if g.depth == nil || g.depth.span.Kernel == 1 {
		return w
	}
	out, k := make([]float32, len(w)), g.depth.span.Kernel
	c := g.channels / k
	for i := range g.rows * g.channels {
		m, tap, channel := i/g.channels, i/c%k, i%c
		copy(out[i*g.taps:][:g.taps], w[((m*c+channel)*k+tap)*g.taps:])
	}
	return out
}
