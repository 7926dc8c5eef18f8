package op

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"

	"spc/ir"
	"spc/ir/tensor"
)

// WindowFunction gives a window function of as many points as its input, a scalar, says.
type WindowFunction struct {
	family
	streaming
	DType tensor.DType `attr:"output_datatype,f32"`
	// Periodic windows are the first points of the symmetric one that is a
	// point longer.
	Periodic bool `attr:"periodic,1"`
}

// windowTerms holds the coefficients of the sums of cosines.
var windowTerms = map[string][]float64{
	"BlackmanWindow": {0.42, -0.5, 0.08},
	"HammingWindow":  {25.0 / 46, -21.0 / 46},
	"HannWindow":     {0.5, -0.5},
}

// Infer gives a vector of the length.
func (o *WindowFunction) Infer(c *ir.Infer) error {
	if err := wantScalar(c, 0, "size"); err != nil {
		return err
	}
	if carrier(o.DType) == tensor.Undefined || o.DType == tensor.Bool {
		return c.Errorf("the output would be %v, want numbers", o.DType)
	}
	n := scalarDim(c, 0)
	if n.Known() && n.Size() < 0 {
		return c.Errorf("size is %v, want no negative number", n)
	}
	c.Set(0, ir.Of(o.DType, n))
	return nil
}

// scalarDim returns the only element of input i as a dimension.
func scalarDim(c *ir.Infer, i int) ir.Dim {
	if e, ok := dimsOf(c, i); ok && len(e) == 1 {
		return e[0]
	}
	return c.Fresh()
}

// Eval sums the cosines.
func (o *WindowFunction) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	n := in[0].Ints()[0]
	if _, err := newOutput(o.DType, n); err != nil {
		return nil, err
	}
	span := float64(n)
	if !o.Periodic {
		span = math.Max(1, float64(n-1))
	}
	v := make([]float64, n)
	for i := range v {
		for k, a := range windowTerms[o.kind] {
			v[i] += a * math.Cos(2*math.Pi*float64(k)*float64(i)/span)
		}
	}
	if !o.Periodic && n == 1 {
		v[0] = 1
	}
	return one(tensor.From(v, n).To(o.DType))
}

// DFT is the discrete Fourier transform of X[..., 1] or X[..., 2], whose last
// axis holds real and imaginary parts, along an axis, cut or padded with zeros to
// a length: the second and third inputs are length and axis.
type DFT struct {
	// Inverse transforms back.
	Inverse bool `attr:"inverse,0"`
	// OneSided gives the first half of the spectrum of a real signal, or takes
	// it and gives a real signal back.
	OneSided bool `attr:"onesided,0"`
}

// Kind is DFT.
func (*DFT) Kind() string { return "DFT" }

// Work counts a fast transform.
func (o *DFT) Work(in, out []ir.Type) ir.Work {
	return streamWork(in, out, 5*math.Log2(max(2, elems(out[0]))))
}

// Infer gives the transformed shape.
func (o *DFT) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, reals); err != nil {
		return err
	}
	for i, what := range []string{"", "length", "axis"} {
		if i > 0 && c.Has(i) {
			if err := wantScalar(c, i, what); err != nil {
				return err
			}
		}
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	rank := len(x.Dims)
	if rank < 2 {
		return c.Errorf("input is %v, want rank 2 or more", x)
	}
	parts := x.Dims[rank-1]
	if parts.Known() && parts != ir.Size(1) && parts != ir.Size(2) {
		return c.Errorf("input is %v, want a last axis of 1 or 2", x)
	}
	if want := ir.Size(1 + btoi(o.Inverse)); o.OneSided && differ(parts, want) {
		return c.Errorf("input is %v, want a last axis of %v", x, want)
	}
	a := rank - 2
	if c.Has(2) {
		list, ok := intsOf(c, 2)
		if !ok {
			c.Set(0, ir.Of(x.DType, c.FreshDims(rank)...))
			return nil
		}
		if list[0] == -1 || list[0] == rank-1 {
			return c.Errorf("axis %d is the one of real and imaginary parts", list[0])
		}
		var err error
		if a, err = axis(c, list[0], rank); err != nil {
			return err
		}
	}
	dims := slices.Clone(x.Dims)
	n := dims[a]
	switch {
	case c.Has(1):
		n = scalarDim(c, 1)
	case o.OneSided && o.Inverse:
		n = ir.Mul(ir.Size(2), ir.Add(n, -1))
	}
	if n.Known() && n.Size() <= 0 {
		return c.Errorf("length is %v, want a positive number", n)
	}
	dims[a], dims[rank-1] = n, ir.Size(2)
	switch {
	case o.OneSided && o.Inverse:
		dims[rank-1] = ir.Size(1)
	case o.OneSided:
		dims[a] = halfDim(c, n)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	return nil
}

// halfDim is the number of points of a one-sided spectrum of length n.
func halfDim(c *ir.Infer, n ir.Dim) ir.Dim {
	if n.Known() {
		return ir.Size(n.Size()/2 + 1)
	}
	if h, ok := ir.Div(n, ir.Size(2)); ok {
		return ir.Add(h, 1)
	}
	return c.Fresh()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Eval transforms each signal along the axis.
func (o *DFT) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, err := evalShapes(o, 1, in)
	if err != nil {
		return nil, err
	}
	x, shape := in[0], shapes[0]
	if slices.Contains(shape, 0) {
		return one(tensor.New(x.DType(), shape...))
	}
	a := x.Rank() - 2
	if t := optional(in, 2); t != nil {
		a = norm(t.Ints()[0], x.Rank())
	}
	n := shape[a]
	if t := optional(in, 1); t != nil {
		n = t.Ints()[0]
	} else if o.OneSided && !o.Inverse {
		n = x.Dim(a)
	}
	parts, points := x.Dim(-1), shape[a]
	signals, have := lastAxes(x, []int{a, x.Rank() - 1}).Float64s(), x.Dim(a)
	count := x.Len() / max(1, have*parts)
	outParts := shape[len(shape)-1]
	transform := newTransform(n, o.Inverse)
	result := make([]float64, 0, count*points*outParts)
	buf := make([]complex128, n)
	for s := range count {
		signal := signals[s*have*parts : (s+1)*have*parts]
		for i := range buf {
			buf[i] = 0
			if i < have {
				buf[i] = complex(signal[i*parts], 0)
				if parts == 2 {
					buf[i] += complex(0, signal[i*parts+1])
				}
			}
		}
		if o.OneSided && o.Inverse {
			for i := n/2 + 1; i < n; i++ {
				buf[i] = complex(real(buf[n-i]), -imag(buf[n-i]))
			}
		}
		for _, v := range transform(buf)[:points] {
			if result = append(result, real(v)); outParts == 2 {
				result = append(result, imag(v))
			}
		}
	}
	return one(backFromLast(tensor.FromFloat64s(x.DType(), result, len(result)), shape, a))
}

// newTransform returns the transform of signals of n points, in place.
func newTransform(n int, inverse bool) func([]complex128) []complex128 {
	fft := fourier.NewCmplxFFT(n)
	return func(x []complex128) []complex128 {
		if !inverse {
			return fft.Coefficients(x, x)
		}
		fft.Sequence(x, x)
		for i := range x {
			x[i] /= complex(float64(n), 0)
		}
		return x
	}
}

// backFromLast returns a tensor of the shape whose elements v has with axis a
// next to the last.
func backFromLast(v *tensor.Tensor, shape []int, a int) *tensor.Tensor {
	rank := len(shape)
	moved := slices.Insert(slices.Delete(slices.Clone(shape), a, a+1), rank-2, shape[a])
	perm := slices.Insert(slices.Delete(allAxes(rank), rank-2, rank-1), a, rank-2)
	return v.Reshape(moved...).Permute(perm...)
}

// upgradeDFT makes the axis an input, as opsets from 20 have it, with the default
// of opset 17.
func upgradeDFT(l *Legacy) error {
	if l.Opset >= 20 {
		return nil
	}
	l.Default("axis", 1)
	v, ok := l.Take("axis").(int)
	if !ok {
		return evalErrorf("attribute axis is not an int")
	}
	l.ConstInput(2, tensor.Scalar(int64(v)))
	return nil
}

// STFT is the short-time Fourier transform of signals X[N, L, 1 or 2]: frames that
// start a step apart (the second input), weighted with a window (the third) and as
// long as it or as the fourth input says, are transformed to Y[N, frames, points, 2].
type STFT struct {
	// OneSided gives the first half of the spectra of real signals.
	OneSided bool `attr:"onesided,1"`
}

// Kind is STFT.
func (*STFT) Kind() string { return "STFT" }

// Work counts a fast transform for each frame.
func (o *STFT) Work(in, out []ir.Type) ir.Work {
	return streamWork(in, out, 5*math.Log2(max(2, float64(out[0].Dims[2].Size()))))
}

// Infer gives the shape of the spectra.
func (o *STFT) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, reals); err != nil {
		return err
	}
	if err := wantRank(c, 0, 3); err != nil {
		return err
	}
	if err := wantScalar(c, 1, "frame_step"); err != nil {
		return err
	}
	if err := wantSame(c, 2); err != nil {
		return err
	}
	if err := wantRank(c, 2, 1); err != nil {
		return err
	}
	if !c.Has(2) && !c.Has(3) {
		return c.Errorf("neither a window nor a frame_length is given")
	}
	x := c.In(0)
	parts := dimOf(c, x, 2)
	if parts.Known() && parts != ir.Size(1) && parts != ir.Size(2) || o.OneSided && parts == ir.Size(2) {
		return c.Errorf("signal is %v, want a last axis of 1, or 2 for a two-sided transform", x)
	}
	n := dimOf(c, c.In(2), 0)
	if c.Has(3) {
		if err := wantScalar(c, 3, "frame_length"); err != nil {
			return err
		}
		length := scalarDim(c, 3)
		if differ(n, length) {
			return c.Errorf("frame_length is %v, want the window's %v", length, n)
		}
		n = known(n, length)
	}
	step, length := scalarDim(c, 1), dimOf(c, x, 1)
	frames := c.Fresh()
	for what, d := range map[string]ir.Dim{"frame_step": step, "frame_length": n} {
		if d.Known() && d.Size() <= 0 {
			return c.Errorf("%s is %v, want a positive number", what, d)
		}
	}
	if step.Known() && n.Known() && length.Known() {
		if length.Size() < n.Size() {
			return c.Errorf("signal %v is shorter than a frame of %v", x, n)
		}
		frames = ir.Size((length.Size()-n.Size())/step.Size() + 1)
	}
	points := n
	if o.OneSided {
		points = halfDim(c, n)
	}
	c.Set(0, ir.Of(x.DType, dimOf(c, x, 0), frames, points, ir.Size(2)))
	return nil
}

// Eval transforms each frame.
func (o *STFT) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, err := evalShapes(o, 1, in)
	if err != nil {
		return nil, err
	}
	x, step, shape := in[0], in[1].Ints()[0], shapes[0]
	window := float64s(in, 2)
	n := len(window)
	if t := optional(in, 3); t != nil {
		n = t.Ints()[0]
	}
	parts, length := x.Dim(2), x.Dim(1)
	v := x.Float64s()
	transform := newTransform(n, false)
	buf := make([]complex128, n)
	result := make([]float64, 0, product(shape))
	for b := range shape[0] {
		for f := range shape[1] {
			for i := range buf {
				at := (b*length + f*step + i) * parts
				buf[i] = complex(v[at], 0)
				if parts == 2 {
					buf[i] += complex(0, v[at+1])
				}
				if window != nil {
					buf[i] *= complex(window[i], 0)
				}
			}
			for _, z := range transform(buf)[:shape[2]] {
				result = append(result, real(z), imag(z))
			}
		}
	}
	return one(tensor.FromFloat64s(x.DType(), result, shape...))
}

// MelWeightMatrix gives the matrix [bins of a one-sided spectrum, mel bands] of
// triangular filters that takes a spectrum to the mel scale, mel(f) = 2595
// log10(1 + f/700). Its inputs are scalars: the number of bands, the length of the
// transform, the sample rate, and the lower and upper edges in hertz.
type MelWeightMatrix struct {
	streaming
	DType tensor.DType `attr:"output_datatype,f32"`
}

// Kind is MelWeightMatrix.
func (*MelWeightMatrix) Kind() string { return "MelWeightMatrix" }

// Infer gives a matrix of the sizes.
func (o *MelWeightMatrix) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 5); err != nil {
		return err
	}
	for i, what := range []string{"num_mel_bins", "dft_length", "sample_rate"} {
		if err := wantScalar(c, i, what); err != nil {
			return err
		}
		if d := scalarDim(c, i); d.Known() && d.Size() <= 0 {
			return c.Errorf("%s is %v, want a positive number", what, d)
		}
	}
	for i := 3; i < 5; i++ {
		if err := wantOneOf(c, i, reals); err != nil {
			return err
		}
		if n, ok := c.In(i).Elems(); ok && n.Known() && n != ir.Size(1) {
			return c.Errorf("input %d is %v, want a scalar", i, c.In(i))
		}
	}
	if carrier(o.DType) == tensor.Undefined || o.DType == tensor.Bool {
		return c.Errorf("the output would be %v, want numbers", o.DType)
	}
	c.Set(0, ir.Of(o.DType, halfDim(c, scalarDim(c, 1)), scalarDim(c, 0)))
	return nil
}

// Eval places the filters' edges at whole bins, evenly on the mel scale.
func (o *MelWeightMatrix) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	bands, length, rate := in[0].Ints()[0], in[1].Ints()[0], in[2].Ints()[0]
	low, high := in[3].Float64s()[0], in[4].Float64s()[0]
	if bands <= 0 || length <= 0 || rate <= 0 || !(low >= 0 && high >= low && high <= math.MaxFloat64) {
		return nil, evalErrorf("%d bands of %d points at %d Hz from %v to %v Hz, want positive numbers in ascending order", bands, length, rate, low, high)
	}
	bins := length/2 + 1
	if _, err := newOutput(tensor.F64, bins, bands); err != nil {
		return nil, err
	}
	mel := func(f float64) float64 { return 2595 * math.Log10(1+f/700) }
	from, step := mel(low), (mel(high)-mel(low))/float64(bands+2)
	edge := func(i int) int {
		f := 700 * (math.Pow(10, (from+step*float64(i))/2595) - 1)
		return int(min(float64(length+1)*f/float64(rate), float64(bins)))
	}
	v := make([]float64, bins*bands)
	for b := range bands {
		left, peak, right := edge(b), edge(b+1), edge(b+2)
		for i := left; i < bins && (i < right || i == peak); i++ {
			w := 1.0
			if i < peak {
				w = float64(i-left) / float64(peak-left)
			} else if i > peak {
				w = float64(right-i) / float64(right-peak)
			}
			v[i*bands+b] = w
		}
	}
	return one(tensor.From(v, bins, bands).To(o.DType))
}
