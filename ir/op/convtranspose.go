package op

import (
	"fmt"

	"spc/ir"
	"spc/ir/tensor"
)

// ConvTranspose is the transposed convolution Y[N,M,O1..On] of X[N,C,D1..Dn]
// with the weight W[C,M/group,k1..kn], plus an optional bias B[M]: each input
// pixel adds its multiple of the kernel to the outputs that it covers.
type ConvTranspose struct {
	Window
	Epilogue
	Group         int   `attr:"group,1"`
	OutputPadding []int `attr:"output_padding"`
	// OutputShape holds the spatial output sizes; the padding follows from them.
	OutputShape []int `attr:"output_shape"`
}

// Kind is ConvTranspose.
func (*ConvTranspose) Kind() string { return "ConvTranspose" }

// Along keeps images apart, and the channels that a weight without groups computes.
func (o *ConvTranspose) Along(_ *ir.Node, _, axis int) []int {
	switch {
	case axis == 0:
		return []int{0, Whole, Whole, 0}
	case axis == 1 && o.Group == 1:
		return []int{Whole, 1, 0, 1}
	}
	return nil
}

// Infer checks the ranks and channels and inverts the window.
func (o *ConvTranspose) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 2); err != nil {
		return err
	}
	dt, x, w := c.In(0).DType, c.In(0), c.In(1)
	rank, err := spatialRank(c, x, w)
	if err != nil {
		return err
	}
	if rank < 0 {
		c.Set(0, ir.Unranked(dt))
		return nil
	}
	if o.Group < 1 {
		return c.Errorf("group is %d, want at least 1", o.Group)
	}
	channels := dimOf(c, w, 0)
	if _, ok := ir.Div(channels, ir.Size(o.Group)); channels.Known() && !ok {
		return c.Errorf("%v input channels do not split into %d groups", channels, o.Group)
	}
	if d := dimOf(c, x, 1); differ(d, channels) {
		return c.Errorf("input has %v channels, want %v as weight %v", d, channels, w)
	}
	m := ir.Mul(dimOf(c, w, 1), ir.Size(o.Group))
	if err := wantDims(c, 2, "bias", m); err != nil {
		return err
	}
	kernel, err := kernelShape(c, o.KernelShape, w)
	if err != nil {
		return err
	}
	out := c.FreshDims(rank - 2)
	if err := entries("output_shape", o.OutputShape, len(out), 1, 1, maxSpan, func(int, int) {}); err != nil {
		return c.Errorf("%v", err)
	}
	for i := range out {
		switch {
		case len(o.OutputShape) > 0:
			out[i] = ir.Size(o.OutputShape[i])
		case x.Ranked && kernel != nil:
			d := x.Dims[2+i]
			size := 1
			if d.Known() {
				size = d.Size()
			}
			sizes := make([]int, len(out))
			sizes[i] = size
			spans, o, err := o.Geometry(sizes, kernel)
			if err != nil {
				return c.Errorf("%v", err)
			}
			if out[i] = ir.Size(o[i]); !d.Known() {
				out[i] = ir.Add(ir.Mul(d, ir.Size(spans[i].Stride)), o[i]-spans[i].Stride)
			}
		}
	}
	y := ir.Of(dt, append([]ir.Dim{dimOf(c, x, 0), m}, out...)...)
	c.Set(0, y)
	return o.inferEpilogue(c, y)
}

// Geometry returns the geometry and the spatial output sizes for an input and a
// kernel of the given spatial sizes. Output o*Stride + k*Dilation - Begin is
// covered by tap k of input pixel o.
func (o *ConvTranspose) Geometry(in, kernel []int) (spans []Span, out []int, err error) {
	n := len(in)
	if spans, err = o.spans(n, kernel); err != nil {
		return nil, nil, err
	}
	extra := make([]int, n)
	if err := entries("output_padding", o.OutputPadding, n, 0, 0, maxSpan, func(i, v int) { extra[i] = v }); err != nil {
		return nil, nil, err
	}
	out = make([]int, n)
	if err := entries("output_shape", o.OutputShape, n, 1, 1, maxSpan, func(i, v int) { out[i] = v }); err != nil {
		return nil, nil, err
	}
	for i := range spans {
		s := &spans[i]
		full := s.Stride*(in[i]-1) + extra[i] + s.Extent()
		switch {
		case len(o.OutputShape) > 0:
			o.split(s, full-out[i])
		case o.same():
			out[i] = in[i] * s.Stride
			o.split(s, full-out[i])
		default:
			out[i] = full - s.Begin - s.End
		}
		if out[i] < 0 {
			if in[i] > 0 {
				return nil, nil, fmt.Errorf("padding leaves a size of %d on spatial axis %d", out[i], i)
			}
			out[i] = 0
		}
	}
	return spans, out, nil
}

// split makes pad the whole padding, odd padding more at the end for SAME_UPPER
// and else at the beginning.
func (o *ConvTranspose) split(s *Span, pad int) {
	pad = max(0, pad)
	s.Begin = pad - pad/2
	if o.AutoPad == "SAME_UPPER" {
		s.Begin = pad / 2
	}
	s.End = pad - s.Begin
}

// Eval multiplies the transposed weight of each group by the pixels of each
// image and adds the products to the outputs that the taps cover.
func (o *ConvTranspose) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	spans, _, err := o.Geometry(in[0].Shape()[2:], in[1].Shape()[2:])
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	return o.evalEpilogue(o.scatter(shapes[0], in, spans), in)
}

// Forward multiplies the transposed weight of each group by the pixels of each image.
func (o *ConvTranspose) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	s, err := o.slider(c, in, shapes[0])
	if err != nil {
		return nil, err
	}
	out := c.New(shapes[0]...)
	defer c.scratch()()
	y, x, w := out.F32s(), in[0].F32s(), in[1].F32s()
	for i := range shapes[0][0] * o.Group {
		s.backInput(y[i*s.plane:][:s.plane], x[i*s.m*s.n:][:s.m*s.n], w[i%o.Group*s.m*s.k:][:s.m*s.k])
	}
	if bias := optional(in, 2); bias != nil {
		b, pixels := bias.F32s(), product(shapes[0][2:])
		for i := range y {
			y[i] += b[i/pixels%len(b)]
		}
	}
	return one(out)
}

// slider is the convolution of the output by the same weight whose gradient by its
// input this operator is.
func (o *ConvTranspose) slider(c *GradContext, in []*tensor.Tensor, out []int) (*slider, error) {
	if err := plainProduct(&o.Epilogue, false, in); err != nil {
		return nil, err
	}
	spans, _, err := o.Geometry(in[0].Shape()[2:], in[1].Shape()[2:])
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	return newSlider(c, spans, out, in[1].Shape(), in[0].Shape(), o.Group), nil
}

// Grad convolves the gradient with the weight.
func (o *ConvTranspose) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	s, err := o.slider(c, in, out[0].Shape())
	if err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil {
		return din, nil
	}
	for i, t := range in {
		if c.wants(i) {
			din[i] = c.Zeros(t.Shape()...)
		}
	}
	defer c.scratch()()
	x, w, g := in[0].F32s(), in[1].F32s(), dout[0].F32s()
	for i := range out[0].Dim(0) * o.Group {
		at := i % o.Group * s.m * s.k
		gi, xi := g[i*s.plane:][:s.plane], x[i*s.m*s.n:][:s.m*s.n]
		if c.wants(0) {
			s.forward(din[0].F32s()[i*s.m*s.n:][:s.m*s.n], gi, w[at:][:s.m*s.k], nil)
		}
		if c.wants(1) {
			s.backWeight(din[1].F32s()[at:][:s.m*s.k], xi, gi)
		}
	}
	if c.wants(2) {
		db, pixels := din[2].F32s(), product(out[0].Shape()[2:])
		for i := 0; i < len(g); i += pixels {
			db[i/pixels%len(db)] += sum32(g[i:][:pixels])
		}
	}
	return din, nil
}

func (o *ConvTranspose) scatter(shape []int, in []*tensor.Tensor, spans []Span) *tensor.Tensor {
	x, bias := in[0].Float64s(), float64s(in, 2)
	weight := in[1].Reshape(in[1].Dim(0), product(in[1].Shape()[1:])).Permute(1, 0).Float64s() // [M/group*taps, C]
	size, out := in[0].Shape()[2:], shape[2:]
	channels, pixels, outPixels := in[0].Dim(1), product(size), product(out)
	k, m := channels/o.Group, in[1].Dim(1)
	taps := product(in[1].Shape()[2:])
	stride := spans[len(spans)-1].Stride
	y := make([]float64, product(shape))
	wg := make([]float64, m*taps*k)
	for g := range o.Group {
		for r := range m * taps {
			copy(wg[r*k:][:k], weight[r*channels+g*k:])
		}
		for img := range shape[0] {
			xg := x[(img*channels+g*k)*pixels:][:k*pixels]
			yg := y[(img*o.Group+g)*m*outPixels:][:m*outPixels]
			if bias != nil {
				for i := range yg {
					yg[i] = bias[g*m+i/outPixels]
				}
			}
			multiply(m*taps, k, pixels, wg, matrix[float64, float64](xg, pixels, 1), func(i, j int, row []float64) {
				plane := yg[i/taps*outPixels:][:outPixels]
				TapRuns(spans, size, out, i%taps, j, len(row), func(at, n, p int) {
					for _, v := range row[at-j:][:n] {
						plane[p] += v
						p += stride
					}
				})
			})
		}
	}
	return tensor.FromFloat64s(in[0].DType(), y, shape...)
}

// Work counts the multiply-adds of all input pixels with all taps.
func (o *ConvTranspose) Work(in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	w.FLOPs = 2 * elems(in[0]) * elems(ir.Of(tensor.F32, in[1].Dims[1:]...))
	return w
}

// Weights returns the weight of a single group as W[M, C*k1*..*kn], used once
// for each input pixel.
func (o *ConvTranspose) Weights(n *ir.Node) []ir.Weight {
	r := inputRank(n, 1)
	if r < 3 || o.Group != 1 {
		return nil
	}
	perm := make([]int, r)
	for i := range perm {
		perm[i] = i
	}
	perm[0], perm[1] = 1, 0
	w := ir.Weight{Input: 1, View: ir.View{Perm: perm, RowAxes: 1}, Groups: 1, Cols: pixels(n, n.Inputs), Reuse: ir.Size(1)}
	if shape, ok := n.Inputs[1].Type.Shape(); ok && o.Disjoint(shape[2:]) {
		w.Dense = "patches that do not overlap are written where they belong, which only the dense kernel does"
	}
	return []ir.Weight{w}
}

// Disjoint reports whether every output pixel lies in the patch of one input pixel, of
// images of any size.
func (o *ConvTranspose) Disjoint(kernel []int) bool {
	if len(o.OutputShape) > 0 {
		return false
	}
	in := make([]int, len(kernel))
	for i := range in {
		in[i] = 2
	}
	spans, out, err := o.Geometry(in, kernel)
	for i, s := range spans {
		if err != nil || s.Kernel != s.Stride || s.Dilation != 1 || s.Begin != 0 || out[i] != in[i]*s.Stride {
			return false
		}
	}
	return err == nil
}
