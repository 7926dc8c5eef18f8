package op

import (
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// Conv is the convolution Y[N,M,O1..On] of X[N,C,D1..Dn] with the weight
// W[M,C/group,k1..kn], plus an optional bias B[M].
type Conv struct {
	Window
	Epilogue
	Quant
	Group int `attr:"group,1"`
}

// Kind is Conv.
func (*Conv) Kind() string { return "Conv" }

// Along keeps images apart, and the rows of a weight without groups and without scales among the
// attributes: each computes a channel.
func (o *Conv) Along(_ *ir.Node, _, axis int) []int {
	switch {
	case axis == 0:
		return []int{0, Whole, Whole, 0}
	case axis == 1 && o.Group == 1 && !o.Quantised():
		return []int{Whole, 0, 0, 1}
	}
	return nil
}

// Infer checks the ranks and channels and slides the window.
func (o *Conv) Infer(c *ir.Infer) error {
	if o.Quantised() {
		if err := wantPresent(c, 2); err != nil {
			return err
		}
	} else if err := wantSameReals(c, 2); err != nil {
		return err
	}
	y, err := convType(c, c.In(0).DType, c.In(0), c.In(1), &o.Window, o.Group)
	if err != nil {
		return err
	}
	if o.Quantised() {
		return o.inferQuant(c, &o.Epilogue, y, dimOf(c, c.In(1), 0))
	}
	c.Set(0, y)
	if !y.Ranked {
		return nil
	}
	if err := wantDims(c, 2, "bias", y.Dims[1]); err != nil {
		return err
	}
	return o.inferEpilogue(c, y)
}

// convType returns the type of element type dt of the convolution of x with the
// weight w, unranked where neither's rank is known.
func convType(c *ir.Infer, dt tensor.DType, x, w ir.Type, window *Window, groups int) (ir.Type, error) {
	rank, err := spatialRank(c, x, w)
	if err != nil || rank < 0 {
		return ir.Unranked(dt), err
	}
	if groups < 1 {
		return ir.Type{}, c.Errorf("group is %d, want at least 1", groups)
	}
	group := ir.Size(groups)
	m, k := dimOf(c, w, 0), dimOf(c, w, 1)
	if _, ok := ir.Div(m, group); m.Known() && !ok {
		return ir.Type{}, c.Errorf("%v output channels do not split into %d groups", m, groups)
	}
	if channels := dimOf(c, x, 1); differ(channels, ir.Mul(k, group)) {
		return ir.Type{}, c.Errorf("input has %v channels, want %v as weight %v in %d groups", channels, ir.Mul(k, group), w, groups)
	}
	kernel, err := kernelShape(c, window.KernelShape, w)
	if err != nil {
		return ir.Type{}, err
	}
	in := c.FreshDims(rank - 2)
	if x.Ranked {
		in = x.Dims[2:]
	}
	out, err := window.outDims(c, in, kernel, false)
	if err != nil {
		return ir.Type{}, err
	}
	return ir.Of(dt, append([]ir.Dim{dimOf(c, x, 0), m}, out...)...), nil
}

// spatialRank returns the rank that an input and a weight of a convolution have
// in common, -1 where neither is known.
func spatialRank(c *ir.Infer, x, w ir.Type) (int, error) {
	switch {
	case x.Ranked && x.Rank() < 3:
		return 0, c.Errorf("input has rank %d, want at least 3", x.Rank())
	case x.Ranked && w.Ranked && x.Rank() != w.Rank():
		return 0, c.Errorf("weight rank %d, want %d", w.Rank(), x.Rank())
	case w.Ranked && w.Rank() < 3:
		return 0, c.Errorf("weight rank %d, want at least 3", w.Rank())
	}
	return max(x.Rank(), w.Rank()), nil
}

// kernelShape returns the spatial shape of a weight, nil where it is unknown; an
// attribute kernel_shape must agree with it.
func kernelShape(c *ir.Infer, attr []int, w ir.Type) ([]int, error) {
	if !w.Ranked {
		return attr, nil
	}
	if len(attr) > 0 && len(attr) != w.Rank()-2 {
		return nil, c.Errorf("kernel_shape has %d entries, want %d", len(attr), w.Rank()-2)
	}
	kernel := make([]int, w.Rank()-2)
	for i, d := range w.Dims[2:] {
		switch {
		case len(attr) > 0 && differ(d, ir.Size(attr[i])):
			return nil, c.Errorf("kernel_shape is %v, want that of weight %v", attr, w)
		case d.Known():
			kernel[i] = d.Size()
		case len(attr) > 0:
			kernel[i] = attr[i]
		default:
			return nil, nil
		}
	}
	return kernel, nil
}

// Eval multiplies the weight matrix W[M,K] of each group by the patches X[K,N]
// of each image.
func (o *Conv) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	spans, _, err := o.Geometry(in[0].Shape(), in[1].Shape())
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	if o.Quantised() {
		return o.evalQuant(&o.Epilogue, in, shapes[0], 1, 0, func(y *tensor.Tensor, in []*tensor.Tensor) {
			convolve[float64, float64](y, in, spans, o.Group)
		})
	}
	return viaF32(in, func(in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		y := tensor.New(in[0].DType(), shapes[0]...)
		if y.DType() == tensor.F64 {
			convolve[float64, float64](y, in, spans, o.Group)
		} else {
			convolve[float32, float64](y, in, spans, o.Group)
		}
		return o.evalEpilogue(y, in)
	})
}

// Geometry returns the geometry, padding included, and the spatial output sizes
// for an input and a weight of the given shapes.
func (o *Conv) Geometry(x, w []int) (spans []Span, out []int, err error) {
	return o.Resolve(x[2:], w[2:], false)
}

// convolve evaluates a convolution; in holds X, W and perhaps a bias.
func convolve[T interface {
	summand
	tensor.Elem
}, S accum](y *tensor.Tensor, in []*tensor.Tensor, spans []Span, groups int) {
	x, w, dst := tensor.Data[T](in[0]), tensor.Data[T](in[1]), tensor.Data[T](y)
	var bias []T
	if b := optional(in, 2); b != nil {
		bias = tensor.Data[T](b)
	}
	size, out := in[0].Shape()[2:], y.Shape()[2:]
	m, k, n := y.Dim(1)/groups, product(in[1].Shape()[1:]), product(out)
	plane := in[1].Dim(1) * product(size) // of one group's input channels
	for img := range y.Dim(0) {
		for g := range groups {
			xg, wg := x[(img*groups+g)*plane:][:plane], w[g*m*k:][:m*k]
			yg := dst[(img*groups+g)*m*n:][:m*n]
			multiply(m, k, n, wg, patches[T, S](xg, size, out, spans), func(i, j int, row []S) {
				var b S
				if bias != nil {
					b = S(bias[g*m+i])
				}
				d := yg[i*n+j:]
				for t, v := range row {
					d[t] = T(v + b)
				}
			})
		}
	}
}

// patches packs the matrix X[K,N] of a convolution: row (channel, tap) and column
// (output pixel) hold the input element that the tap reads, 0 in the padding.
func patches[T summand, S accum](x []T, in, out []int, spans []Span) packer[S] {
	taps, plane := 1, product(in)
	for _, s := range spans {
		taps *= s.Kernel
	}
	step := spans[len(spans)-1].Stride
	return func(dst []S, k, kn, from, n int) {
		clear(dst)
		for ; kn > 0; kn-- {
			src := x[k/taps*plane:][:plane]
			TapRuns(spans, out, in, k%taps, from, n, func(j, n, p int) {
				for i := j - from; n > 0; n-- {
					dst[i] = S(src[p])
					i++
					p += step
				}
			})
			dst = dst[n:]
			k++
		}
	}
}

// Work counts the multiply-adds of all patches, padding included.
func (o *Conv) Work(in, out []ir.Type) ir.Work { return convWork(in[1], in, out) }

// convWork counts the multiply-adds of a convolution with the weight w.
func convWork(weight ir.Type, in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	if m := elems(ir.Of(tensor.F32, weight.Dims[0])); m > 0 {
		w.FLOPs = 2 * elems(out[0]) * elems(weight) / m
	}
	return w
}

// Weights returns the weight as W[M, C/group*k1*..*kn], used once for each
// output pixel.
func (o *Conv) Weights(n *ir.Node) []ir.Weight {
	if inputRank(n, 1) < 3 {
		return nil
	}
	return []ir.Weight{{Input: 1, View: ir.View{RowAxes: 1}, Groups: o.Group, Cols: pixels(n, n.Outputs), Reuse: ir.Size(1), Slide: o.slide(n)}}
}

// slide is how the weight moves, nil where the types do not tell.
func (o *Conv) slide(n *ir.Node) *ir.Slide {
	w, ok := n.Inputs[1].Type.Shape()
	if !ok || len(n.Outputs) == 0 || n.Outputs[0] == nil || n.Outputs[0].Type.Rank() != len(w) {
		return nil
	}
	y := n.Outputs[0].Type.Dims
	spans, err := o.spans(len(w)-2, w[2:])
	if err != nil {
		return nil
	}
	s := &ir.Slide{Kernel: w[2:], Images: y[0], Out: y[2:]}
	for _, p := range spans {
		s.Stride, s.Dilation = append(s.Stride, p.Stride), append(s.Dilation, p.Dilation)
		s.Begin = append(s.Begin, p.Begin)
	}
	if x := n.Inputs[0]; x != nil && x.Type.Rank() == len(w) && !strings.HasPrefix(o.AutoPad, "SAME") {
		s.In = x.Type.Dims[2:]
	}
	return s
}

// inputRank is the rank of input i, -1 where it is absent or its rank unknown.
func inputRank(n *ir.Node, i int) int {
	if v := n.Input(i); v != nil {
		return v.Type.Rank()
	}
	return -1
}

// pixels returns batch times the spatial dimensions of the first of the values,
// an unknown where its type does not tell.
func pixels(n *ir.Node, values []*ir.Value) ir.Dim {
	if len(values) == 0 || values[0] == nil || values[0].Type.Rank() < 2 {
		return n.Graph().Fresh()
	}
	d := values[0].Type.Dims
	return ir.Mul(append([]ir.Dim{d[0]}, d[2:]...)...)
}
