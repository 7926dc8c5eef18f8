package op

import (
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Resize resamples axes of its first input to the sizes of its fourth, or by the
// factors of its third, by the nearest element or by a linear or cubic
// interpolation along each axis (Keys, "Cubic convolution interpolation for
// digital image processing", 1981). The second holds the region of interest, as
// all starts and then all ends, for the coordinates tf_crop_and_resize.
type Resize struct {
	Antialias      bool    `attr:"antialias,0"` // stretch the filter where an axis shrinks
	Axes           []int   `attr:"axes"`        // those that sizes, scales and roi list; all where absent
	Coordinates    string  `attr:"coordinate_transformation_mode,half_pixel"`
	CubicA         float32 `attr:"cubic_coeff_a,-0.75"`
	ExcludeOutside bool    `attr:"exclude_outside,0"` // no weight for positions outside
	Extrapolation  float32 `attr:"extrapolation_value,0"`
	Policy         string  `attr:"keep_aspect_ratio_policy,stretch"`
	Mode           string  `attr:"mode,nearest"`
	// Nearest is how a position is rounded. The value simple, of opset 10, is ceil
	// for an axis that shrinks and floor for others.
	Nearest string `attr:"nearest_mode,round_prefer_floor" old:"11,simple"`
}

// Kind is Resize.
func (*Resize) Kind() string { return "Resize" }

// Work counts a multiply-add for each weight of each axis.
func (o *Resize) Work(in, out []ir.Type) ir.Work {
	taps := map[string]float64{"linear": 2, "cubic": 4}[o.Mode]
	axes := float64(len(o.Axes))
	if o.Axes == nil {
		axes = float64(max(in[0].Rank()-2, 1))
	}
	return streamWork(in[:1], out, 2*taps*axes)
}

// Along follows axes that are not scaled.
func (o *Resize) Along(n *ir.Node, _, axis int) []int {
	if o.Coordinates == "tf_crop_and_resize" || o.Axes != nil || o.Policy != "stretch" {
		return nil
	}
	if s := n.Input(2); s != nil {
		shape, ok := s.Type.Shape()
		if given := !ok || product(shape) > 0; given && (s.Const == nil || s.Const.F32s()[axis] != 1) {
			return nil
		}
	}
	return []int{axis}
}

func (*Resize) sizesInput(*ir.Node) (int, bool) { return 3, true }

// Infer computes the sizes.
func (o *Resize) Infer(c *ir.Infer) error {
	for _, a := range []struct {
		name, value string
		legal       []string
	}{
		{"mode", o.Mode, []string{"nearest", "linear", "cubic"}},
		{"nearest_mode", o.Nearest, []string{"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"}},
		{"keep_aspect_ratio_policy", o.Policy, []string{"stretch", "not_larger", "not_smaller"}},
		{"coordinate_transformation_mode", o.Coordinates, []string{"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"}},
	} {
		if !slices.Contains(a.legal, a.value) {
			return c.Errorf("%s %q, want one of %q", a.name, a.value, a.legal)
		}
	}
	x := c.In(0)
	if o.Mode != "nearest" && !x.DType.IsFloat() && !x.DType.IsInt() {
		return c.Errorf("input 0 is %v, want numbers for mode %s", x, o.Mode)
	}
	if err := wantFloat(c, 1); err != nil {
		return err
	}
	if c.Has(2) && c.In(2).DType != tensor.F32 {
		return c.Errorf("scales are %v, want f32", c.In(2))
	}
	if err := wantList(c, 3); err != nil {
		return err
	}
	if c.Has(2) && c.Has(3) && someElems(c.In(2)) && someElems(c.In(3)) {
		return refuse(c, errTwoSizes)
	}
	if !x.Ranked {
		c.Set(0, x)
		return nil
	}
	unknown := ir.Of(x.DType, c.FreshDims(x.Rank())...)
	var scales []float32
	if shape, ok := c.In(2).Shape(); c.Has(2) && !(ok && product(shape) == 0) {
		t := c.Const(2)
		if t == nil {
			c.Set(0, unknown)
			return nil
		}
		scales = t.F32s()
	}
	var sizes []ir.Dim
	if c.Has(3) {
		s, ok := dimsOf(c, 3)
		if !ok {
			c.Set(0, unknown)
			return nil
		}
		sizes = s
	}
	dims, _, err := o.dims(x.Dims, scales, sizes, c.Fresh)
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	return nil
}

// errTwoSizes refuses what says twice how large an output is.
var errTwoSizes = evalErrorf("scales and sizes are given, want one of them")

// someElems reports whether a type is known to have elements.
func someElems(t ir.Type) bool {
	shape, ok := t.Shape()
	return ok && product(shape) > 0
}

// dims returns the output's dimensions, and for each axis its factor where the
// dimension is known.
func (o *Resize) dims(x []ir.Dim, scales []float32, sizes []ir.Dim, fresh func() ir.Dim) (out []ir.Dim, factors []float64, err error) {
	axes := make([]int, len(x))
	for i := range axes {
		axes[i] = i
	}
	if o.Axes != nil {
		if axes, err = axesOf(o.Axes, len(x)); err != nil {
			return nil, nil, err
		}
	}
	out, factors = slices.Clone(x), make([]float64, len(x))
	for i := range factors {
		factors[i] = 1
	}
	switch {
	case len(scales) > 0 && len(sizes) > 0:
		return nil, nil, errTwoSizes
	case len(scales) > 0:
		if len(scales) != len(axes) {
			return nil, nil, evalErrorf("%d scales for %d axes", len(scales), len(axes))
		}
		for i, a := range axes {
			if out[a], err = scaleDim(x[a], a, scales[i], fresh); err != nil {
				return nil, nil, err
			}
			factors[a] = float64(scales[i])
		}
	case len(sizes) > 0:
		if len(sizes) != len(axes) {
			return nil, nil, evalErrorf("%d sizes for %d axes", len(sizes), len(axes))
		}
		least, most, known := math.Inf(1), 0.0, true
		for i, a := range axes {
			n := sizes[i]
			out[a] = n
			if n.Known() && n.Size() < 0 {
				return nil, nil, evalErrorf("size %v of axis %d, want 0 or more", n, a)
			}
			if !n.Known() || !x[a].Known() {
				known = false
				continue
			}
			if n.Size() > 0 && x[a].Size() == 0 {
				return nil, nil, evalErrorf("size %v of axis %d, want 0 as the input", n, a)
			}
			if x[a].Size() > 0 {
				factors[a] = float64(n.Size()) / float64(x[a].Size())
			}
			least, most = min(least, factors[a]), max(most, factors[a])
		}
		if o.Policy == "stretch" {
			break
		}
		factor := least
		if o.Policy == "not_smaller" {
			factor = most
		}
		for _, a := range axes {
			if !known {
				out[a] = fresh()
				continue
			}
			n := math.Floor(factor*float64(x[a].Size()) + 0.5)
			if n > maxOutput {
				return nil, nil, evalErrorf("axis %d would have %v elements", a, n)
			}
			out[a], factors[a] = ir.Size(int(n)), factor
		}
	default:
		return nil, nil, evalErrorf("neither scales nor sizes are given")
	}
	return out, factors, nil
}

// scaleDim multiplies a dimension, that of axis a, by a factor, in f32 as all of ONNX do, and
// rounds down.
func scaleDim(d ir.Dim, a int, s float32, fresh func() ir.Dim) (ir.Dim, error) {
	if !(s > 0) {
		return d, evalErrorf("scale %v of axis %d, want it positive", s, a)
	}
	if s > maxOutput {
		return d, evalErrorf("scale %v of axis %d, want at most %d", s, a, maxOutput)
	}
	if d.Known() {
		n := math.Floor(float64(float32(d.Size()) * s))
		if n > maxOutput {
			return d, evalErrorf("scale %v of axis %d of %v elements gives too many", s, a, d)
		}
		return ir.Size(int(n)), nil
	}
	if s == float32(int(s)) {
		return ir.Mul(d, ir.Size(int(s))), nil
	}
	if r := 1 / s; r == float32(int(r)) {
		if q, ok := ir.Div(d, ir.Size(int(r))); ok {
			return q, nil
		}
	}
	return fresh(), nil
}

// Eval resamples one axis after the other.
func (o *Resize) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	var scales []float32
	var sizes []ir.Dim
	if len(in) > 2 && in[2] != nil {
		scales = in[2].F32s()
	}
	if len(in) > 3 && in[3] != nil {
		sizes = ir.Sizes(in[3].Ints()...)
	}
	dims, factors, err := o.dims(ir.Sizes(x.Shape()...), scales, sizes, unknown)
	if err != nil {
		return nil, err
	}
	shape, err := shapeOf(dims, nil)
	if err != nil {
		return nil, err
	}
	if err := checkOutput(shape); err != nil {
		return nil, err
	}
	if product(shape) == 0 {
		return one(tensor.New(x.DType(), shape...))
	}
	roi := make([][2]float64, len(shape))
	for a := range roi {
		roi[a] = [2]float64{0, 1}
	}
	if o.Coordinates == "tf_crop_and_resize" {
		if err := o.regions(roi, in); err != nil {
			return nil, err
		}
	}
	filters := make([]*filter, len(shape))
	for a := range shape {
		if shape[a] != x.Dim(a) || factors[a] != 1 || roi[a] != [2]float64{0, 1} {
			filters[a] = o.filter(x.Dim(a), shape[a], factors[a], roi[a])
		}
	}
	y := o.resample(x, filters)
	for a, f := range filters {
		if f != nil {
			f.extrapolate(y, a, o.Extrapolation)
		}
	}
	return one(y)
}

// Sampling says of an axis that is resampled which Taps positions each element of
// the output is made of, From[n*Taps], and with which weights.
type Sampling struct {
	Taps   int
	From   []int
	Weight []float64
}

// Samplings returns the sampling of each axis of a shape, nil where the axis stays as
// it is. The arguments are the elements of inputs 2 and 3; ok is false where a region
// of interest matters too.
func (o *Resize) Samplings(shape []int, scales []float32, sizes []int) (s []*Sampling, ok bool, err error) {
	if o.Coordinates == "tf_crop_and_resize" {
		return nil, false, nil
	}
	dims, factors, err := o.dims(ir.Sizes(shape...), scales, ir.Sizes(sizes...), unknown)
	if err != nil {
		return nil, false, err
	}
	s = make([]*Sampling, len(shape))
	for a, d := range shape {
		if n := dims[a].Size(); n != d || factors[a] != 1 {
			f := o.filter(d, n, factors[a], [2]float64{0, 1})
			s[a] = &Sampling{f.taps, f.from, f.weight}
		}
	}
	return s, true, nil
}

// regions reads the region of interest of each axis.
func (o *Resize) regions(roi [][2]float64, in []*tensor.Tensor) error {
	if len(in) < 2 || in[1] == nil {
		return evalErrorf("tf_crop_and_resize wants a region of interest")
	}
	v := in[1].Float64s()
	n := len(roi)
	if o.Axes != nil {
		n = len(o.Axes)
	}
	if len(v) != 2*n {
		return evalErrorf("a region of interest of %d numbers for %d axes", len(v), n)
	}
	for i := range n {
		a := i
		if o.Axes != nil {
			a = norm(o.Axes[i], len(roi))
		}
		roi[a] = [2]float64{v[i], v[n+i]}
	}
	return nil
}

// filter says, for each position of a resampled axis, which positions of the input
// it is made of, and with which weights.
type filter struct {
	taps    int
	from    []int     // [n][taps], inside the input
	weight  []float64 // [n][taps]
	outside []bool    // [n], of what is extrapolated; nil where nothing is
}

// filter makes the filter from an axis of d elements to one of n.
func (o *Resize) filter(d, n int, factor float64, roi [2]float64) *filter {
	f := &filter{taps: 1}
	squeeze := 1.0 // how much the filter is stretched, as a factor of positions
	if o.Antialias && o.Mode != "nearest" {
		squeeze = min(factor, 1)
	}
	// The positions base+first .. base+first+taps-1 take part, where base is the
	// position left of the sample, or the one left of that where the sample is
	// one itself.
	first := 0
	switch o.Mode {
	case "linear":
		first = int(math.Floor(-1/squeeze)) + 1
		f.taps = 2 - 2*first
	case "cubic":
		first = int(math.Floor(-2/squeeze)) + 1
		f.taps = 2 - 2*first
	}
	f.from = make([]int, n*f.taps)
	f.weight = make([]float64, n*f.taps)
	for i := range n {
		at, inside := o.coordinate(i, d, n, factor, roi)
		if !inside {
			if f.outside == nil {
				f.outside = make([]bool, n)
			}
			f.outside[i] = true
			continue
		}
		from, weight := f.from[i*f.taps:][:f.taps], f.weight[i*f.taps:][:f.taps]
		if o.Mode == "nearest" {
			from[0], weight[0] = min(max(o.round(at, factor), 0), d-1), 1
			continue
		}
		base := math.Ceil(at) - 1
		sum := 0.0
		for t := range from {
			p := base + float64(first+t)
			if weight[t] = o.kernel((at - p) * squeeze); o.ExcludeOutside && (p < 0 || p >= float64(d)) {
				weight[t] = 0
			}
			sum += weight[t]
			from[t] = int(min(max(p, 0), float64(d-1)))
		}
		if o.Antialias || o.ExcludeOutside {
			for t := range weight {
				weight[t] /= sum
			}
		}
	}
	return f
}

// coordinate returns the position in an axis of d elements of position i of n, and
// whether it is not to be extrapolated.
func (o *Resize) coordinate(i, d, n int, factor float64, roi [2]float64) (x float64, inside bool) {
	size := factor * float64(d) // n before it was rounded down
	last := float64(d - 1)
	switch o.Coordinates {
	case "align_corners":
		if size == 1 {
			return 0, true
		}
		return float64(i) * last / (size - 1), true
	case "asymmetric":
		return float64(i) / factor, true
	case "tf_crop_and_resize":
		if n == 1 {
			x = (roi[0] + roi[1]) * last / 2
		} else {
			x = roi[0]*last + float64(i)*(roi[1]-roi[0])*last/(size-1)
		}
		return x, x >= 0 && x <= last
	case "half_pixel_symmetric":
		center := float64(d) / 2
		return center*(1-float64(n)/size) + (float64(i)+0.5)/factor - 0.5, true
	case "pytorch_half_pixel":
		if n == 1 {
			return 0, true
		}
	}
	return (float64(i)+0.5)/factor - 0.5, true
}

// round returns the position nearest to x.
func (o *Resize) round(x, factor float64) int {
	mode := o.Nearest
	if mode == "simple" {
		if mode = "floor"; factor < 1 {
			mode = "ceil"
		}
	}
	switch mode {
	case "floor":
		x = math.Floor(x)
	case "ceil":
		x = math.Ceil(x)
	case "round_prefer_ceil":
		x = math.Floor(x + 0.5)
	default:
		x = math.Ceil(x - 0.5)
	}
	return int(x)
}

// kernel is the weight of a position at distance x.
func (o *Resize) kernel(x float64) float64 {
	x = math.Abs(x)
	if o.Mode == "linear" {
		return max(1-x, 0)
	}
	return cubic(x, float64(o.CubicA))
}

// cubic is the cubic convolution kernel at distance x.
func cubic(x, a float64) float64 {
	switch {
	case x <= 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return ((a*x-5*a)*x+8*a)*x - 4*a
	}
	return 0
}

// resample applies the filters of the axes that have one.
func (o *Resize) resample(x *tensor.Tensor, filters []*filter) *tensor.Tensor {
	var apply func(*tensor.Tensor, int, *filter) *tensor.Tensor
	y := x
	switch {
	case o.Mode == "nearest" && x.DType() == tensor.F32:
		apply = pickAxis
	case o.Mode == "nearest":
		apply = moveAxis
	case x.DType() == tensor.F32 || x.DType() == tensor.F16 || x.DType() == tensor.BF16:
		apply = weighAxis[float32]
		if x.DType() != tensor.F32 {
			y = tensor.FromFloat64s(tensor.F32, x.Float64s(), x.Shape()...)
		}
	default:
		apply = weighAxis[float64]
		if x.DType() != tensor.F64 {
			y = tensor.From(x.Float64s(), x.Shape()...)
		}
	}
	for a, f := range filters {
		if f != nil {
			y = apply(y, a, f)
		}
	}
	if y.DType() != x.DType() {
		y = saturated(x.DType(), y.Float64s(), y.Shape())
	}
	return y
}

// saturated converts to any numeric type, integers rounded towards zero and
// saturated.
func saturated(dt tensor.DType, v []float64, shape []int) *tensor.Tensor {
	if dt.IsFloat() {
		return tensor.FromFloat64s(dt, v, shape...)
	}
	lo, hi := 0.0, math.Ldexp(1, dt.Bits())
	if dt.IsSigned() {
		lo, hi = -hi/2, hi/2
	}
	ints := make([]int64, len(v))
	for i, x := range v {
		switch x = math.Trunc(x); {
		case x >= hi && dt == tensor.U64:
			ints[i] = -1
		case x >= hi:
			ints[i] = int64(uint64(hi) - 1)
		case x >= math.MaxInt64: // u64, whose bits are kept
			ints[i] = int64(uint64(x))
		default:
			ints[i] = int64(max(x, lo))
		}
	}
	return tensor.FromInt64s(dt, ints, shape...)
}

// axisParts splits a shape at an axis, which becomes n long.
func axisParts(s []int, a, n int) (outer, d, inner int, shape []int) {
	shape = slices.Clone(s)
	shape[a] = n
	return product(s[:a]), s[a], product(s[a+1:]), shape
}

// pickAxis is moveAxis for f32.
func pickAxis(x *tensor.Tensor, a int, f *filter) *tensor.Tensor {
	outer, d, inner, shape := axisParts(x.Shape(), a, len(f.from))
	y := tensor.New(x.DType(), shape...)
	src, dst := x.F32s(), y.F32s()
	for o := range outer {
		row := src[o*d*inner : (o+1)*d*inner]
		if inner == 1 {
			for i, p := range f.from {
				dst[i] = row[p]
			}
			dst = dst[len(f.from):]
			continue
		}
		for _, p := range f.from {
			copy(dst, row[p*inner:(p+1)*inner])
			dst = dst[inner:]
		}
	}
	return y
}

// moveAxis applies a filter of one tap and weight one.
func moveAxis(x *tensor.Tensor, a int, f *filter) *tensor.Tensor {
	outer, d, inner, shape := axisParts(x.Shape(), a, len(f.from))
	y := tensor.New(x.DType(), shape...)
	copySlices(y, x, outer, d, inner, f.from)
	return y
}

// weighAxis applies a filter along an axis.
func weighAxis[T float32 | float64](x *tensor.Tensor, a int, f *filter) *tensor.Tensor {
	n := len(f.from) / f.taps
	outer, d, inner, shape := axisParts(x.Shape(), a, n)
	y := tensor.New(x.DType(), shape...)
	src, dst := tensor.Data[T](x), tensor.Data[T](y)
	weight := make([]T, len(f.weight))
	for i, w := range f.weight {
		weight[i] = T(w)
	}
	for o := range outer {
		in, out := src[o*d*inner:(o+1)*d*inner], dst[o*n*inner:(o+1)*n*inner]
		for i := range n {
			row := out[i*inner : (i+1)*inner]
			for t, p := range f.from[i*f.taps : (i+1)*f.taps] {
				w := weight[i*f.taps+t]
				for j, v := range in[p*inner : (p+1)*inner] {
					row[j] += w * v
				}
			}
		}
	}
	return y
}

// extrapolate sets what lies outside along an axis to a value.
func (f *filter) extrapolate(y *tensor.Tensor, a int, value float32) {
	if f.outside == nil || y.DType() == tensor.String || y.DType() == tensor.C64 || y.DType() == tensor.C128 {
		return
	}
	var v *tensor.Tensor
	if y.DType() == tensor.Bool {
		v = tensor.Scalar(value != 0)
	} else {
		v = saturated(y.DType(), []float64{float64(value)}, nil)
	}
	outer, n, inner, _ := axisParts(y.Shape(), a, y.Dim(a))
	for o := range outer {
		for i, out := range f.outside {
			for j := 0; out && j < inner; j++ {
				copyRun(y, (o*n+i)*inner+j, v, 0, 1)
			}
		}
	}
}

// upgradeResize brings opset 10 to the current form.
func upgradeResize(l *Legacy) error {
	if l.Opset >= 11 {
		return nil
	}
	return oldResize(l)
}

// upgradeUpsample makes Upsample, whose scales were an attribute before opset 9, a
// Resize.
func upgradeUpsample(l *Legacy) error {
	l.Kind = "Resize"
	if l.Opset < 9 {
		s, ok := l.Take("scales").([]float32)
		if !ok {
			return fmt.Errorf("attribute scales is missing in opset %d: %w", l.Opset, ir.ErrInvalid)
		}
		l.ConstInput(1, tensor.From(slices.Clone(s), len(s)))
	}
	return oldResize(l)
}

// oldResize brings data and scales, with the coordinates that there were without a
// choice, to the current form.
func oldResize(l *Legacy) error {
	if len(l.Inputs) != 2 {
		return fmt.Errorf("%d inputs in opset %d, want data and scales: %w", len(l.Inputs), l.Opset, ir.ErrInvalid)
	}
	l.Inputs = []*ir.Value{l.Inputs[0], nil, l.Inputs[1]}
	l.Attrs["coordinate_transformation_mode"] = "asymmetric"
	l.Attrs["nearest_mode"] = oldNearest(l)
	return nil
}

// oldNearest returns the rounding of the operator sets before 11, towards zero where an axis grows and up where it
// shrinks, in the words of today where all axes do the same.
func oldNearest(l *Legacy) string {
	s := l.Inputs[2]
	if mode, ok := l.Attrs["mode"]; ok && mode != "nearest" {
		return "floor" // which is not looked at
	}
	if s == nil || s.Const == nil || s.Const.DType() != tensor.F32 {
		return "simple"
	}
	scales := s.Const.F32s()
	switch {
	case !slices.ContainsFunc(scales, func(f float32) bool { return !(f >= 1) }):
		return "floor"
	case !slices.ContainsFunc(scales, func(f float32) bool { return !(f <= 1) }):
		return "ceil"
	}
	return "simple"
}
