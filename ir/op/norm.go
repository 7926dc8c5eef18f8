package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// BatchNormalization is Y = (X - mean) / sqrt(var + epsilon) * scale + B for
// each channel of X[N,C,D1..Dn], with the given mean[C] and var[C]. In training
// mode it uses those of X over all axes but the channels, and its further
// outputs are the running mean and variance.
type BatchNormalization struct {
	Epsilon  float32 `attr:"epsilon,1e-5"`
	Momentum float32 `attr:"momentum,0.9"`
	Training bool    `attr:"training_mode,0"`
	// Spatial says that the statistics are shared over D1..Dn; opsets below 9
	// could have one for each element of [C,D1..Dn] instead.
	Spatial bool `attr:"spatial,1"`
}

// Kind is BatchNormalization.
func (*BatchNormalization) Kind() string { return "BatchNormalization" }

// Along follows every axis outside of training, and the statistics with the channels.
func (o *BatchNormalization) Along(n *ir.Node, _, axis int) []int {
	switch {
	case o.Training || !o.Spatial || n.Outputs[0].Type.Rank() < 2:
		return nil
	case axis == 1:
		return []int{1, 0, 0, 0, 0}
	}
	return []int{axis}
}

// Affine returns what a node with constant statistics multiplies channels by and what it adds to them, nil where it has
// none.
func (o *BatchNormalization) Affine(n *ir.Node) (scale, shift []float64) {
	if o.Training || !o.Spatial || n.Outputs[0].Type.Rank() < 2 {
		return nil, nil
	}
	var par [4][]float64 // scale, bias, mean, variance
	for i := range par {
		v := n.Input(1 + i)
		if v == nil || v.Const == nil || i > 0 && v.Const.Len() != len(par[0]) {
			return nil, nil
		}
		par[i] = v.Const.Float64s()
	}
	scale, shift = make([]float64, len(par[0])), make([]float64, len(par[0]))
	for i := range scale {
		scale[i] = par[0][i] / math.Sqrt(par[3][i]+float64(o.Epsilon))
		shift[i] = par[1][i] - float64(par[2][i]*scale[i])
	}
	return scale, shift
}

// InsertAffine inserts before a node what multiplies x by scale and adds shift, along an axis that has so many behind
// it, and returns the result.
func InsertAffine(before *ir.Node, name string, x *ir.Value, scale, shift []float64, behind int) (*ir.Value, error) {
	shape := slices.Repeat([]int{1}, behind+1)
	shape[0] = len(scale)
	for _, by := range []struct {
		kind, name string
		elems      []float64
	}{{"Mul", name + ".scale", scale}, {"Add", name + ".shift", shift}} {
		o, err := New(by.kind)
		if err != nil {
			return nil, err
		}
		c := before.Graph().NewConst(by.name, tensor.FromFloat64s(tensor.F32, by.elems, shape...))
		n := before.Graph().InsertBefore(before, by.name, o, []*ir.Value{x, c}, by.name+".out")
		if err := n.Infer(); err != nil {
			return nil, err
		}
		x = n.Outputs[0]
	}
	return x, nil
}

// Infer checks the shapes of the four vectors.
func (o *BatchNormalization) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 5); err != nil {
		return err
	}
	for i := range 5 {
		if err := wantOneOf(c, i, reals); err != nil {
			return err
		}
	}
	x := c.In(0)
	if x.Ranked && x.Rank() < 1 {
		return c.Errorf("input has rank 0, want at least 1")
	}
	if c.Outputs() > 1 && !o.Training {
		return c.Errorf("%d outputs, want 1 outside training mode", c.Outputs())
	}
	var dims []ir.Dim
	switch {
	case x.Rank() == 1: // a single channel
		dims = []ir.Dim{ir.Size(1)}
	case !x.Ranked:
		dims = []ir.Dim{c.Fresh()}
	case o.Spatial:
		dims = x.Dims[1:2]
	default:
		dims = x.Dims[1:]
	}
	for i, what := range []string{"", "scale", "B", "mean", "var"} {
		if i > 0 && (o.Spatial || x.Ranked) {
			if err := wantDims(c, i, what, dims...); err != nil {
				return err
			}
		}
	}
	c.Set(0, x)
	for i := 1; i < c.Outputs(); i++ {
		c.Set(i, c.In(i+2))
	}
	return nil
}

// Eval normalises in float64.
func (o *BatchNormalization) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, c.Outputs, in); err != nil {
		return nil, err
	}
	x, shape := in[0].Float64s(), in[0].Shape()
	scale, bias, mean, variance := in[1].Float64s(), in[2].Float64s(), in[3].Float64s(), in[4].Float64s()
	channels, plane := len(scale), 1
	if o.Spatial && len(shape) > 2 {
		plane = product(shape[2:])
	}
	var extra []*tensor.Tensor
	if o.Training {
		m, v := moments(x, channels, plane)
		for i := range mean {
			mean[i] = mean[i]*float64(o.Momentum) + m[i]*(1-float64(o.Momentum))
			variance[i] = variance[i]*float64(o.Momentum) + v[i]*(1-float64(o.Momentum))
		}
		extra = []*tensor.Tensor{
			tensor.FromFloat64s(in[3].DType(), mean, in[3].Shape()...),
			tensor.FromFloat64s(in[4].DType(), variance, in[4].Shape()...),
		}
		mean, variance = m, v
	}
	factor := make([]float64, channels)
	for i := range factor {
		factor[i] = scale[i] / math.Sqrt(variance[i]+float64(o.Epsilon))
	}
	for i := 0; i < len(x); i += plane {
		ch := i / plane % channels
		for j, v := range x[i:][:plane] {
			x[i+j] = (v-mean[ch])*factor[ch] + bias[ch]
		}
	}
	return append([]*tensor.Tensor{tensor.FromFloat64s(in[0].DType(), x, shape...)}, extra...), nil
}

// Grad scales the gradient, outside training mode, and sums it for each channel.
func (o *BatchNormalization) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if o.Training {
		return nil, errNoGrad("of training mode")
	}
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil {
		return din, nil
	}
	shape, g, x := in[0].Shape(), dout[0].F32s(), in[0].F32s()
	scale, mean, variance := in[1].F32s(), in[3].F32s(), in[4].F32s()
	channels, plane := len(scale), 1
	if o.Spatial && len(shape) > 2 {
		plane = product(shape[2:])
	}
	inverse, sums, moments := make([]float32, channels), make([]float32, channels), make([]float32, channels)
	for i, v := range variance {
		inverse[i] = float32(1 / math.Sqrt(float64(v)+float64(o.Epsilon)))
	}
	if c.wants(0) {
		din[0] = c.New(shape...)
	}
	for i := 0; i < len(g); i += plane {
		ch := i / plane % channels
		for j := i; j < i+plane; j++ {
			sums[ch] += g[j]
			moments[ch] += g[j] * (x[j] - mean[ch]) * inverse[ch]
		}
		if c.wants(0) {
			f, d := scale[ch]*inverse[ch], din[0].F32s()
			for j := i; j < i+plane; j++ {
				d[j] = g[j] * f
			}
		}
	}
	for i, f := range []func(ch int) float32{
		1: func(ch int) float32 { return moments[ch] },
		2: func(ch int) float32 { return sums[ch] },
		3: func(ch int) float32 { return -sums[ch] * scale[ch] * inverse[ch] },
		4: func(ch int) float32 { return -moments[ch] * scale[ch] * inverse[ch] * inverse[ch] / 2 },
	} {
		if i > 0 && c.wants(i) {
			din[i] = c.New(in[i].Shape()...)
			for ch := range channels {
				din[i].F32s()[ch] = f(ch)
			}
		}
	}
	return din, nil
}

// moments returns the mean and the variance of each channel of x[N,C,plane].
func moments(x []float64, channels, plane int) (mean, variance []float64) {
	mean, variance = make([]float64, channels), make([]float64, channels)
	if len(x) == 0 {
		return mean, variance
	}
	n := float64(len(x) / channels)
	for i := 0; i < len(x); i += plane {
		ch := i / plane % channels
		for _, v := range x[i:][:plane] {
			mean[ch] += v / n
		}
	}
	for i := 0; i < len(x); i += plane {
		ch := i / plane % channels
		for _, v := range x[i:][:plane] {
			variance[ch] += (v - mean[ch]) * (v - mean[ch]) / n
		}
	}
	return mean, variance
}

// Work counts a multiply-add for each element.
func (o *BatchNormalization) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 2) }

// upgradeBatchNormalization turns is_test (below opset 7) and, below 14, the
// number of outputs into the training mode.
func upgradeBatchNormalization(l *Legacy) error {
	l.Take("consumed_inputs")
	test, given := l.Take("is_test").(int)
	if l.Opset < 14 && l.Outs > 1 && !(given && test != 0) {
		l.Default("training_mode", 1)
	}
	return nil
}

// normaliseRows normalises each of the rows of x[rows,n] to mean 0 and variance 1,
// epsilon added to the variance, and returns the means and inverse deviations.
func normaliseRows(x []float64, n int, epsilon float64) (means, inverse []float64) {
	for len(x) > 0 {
		row := x[:n]
		x = x[n:]
		mean, variance := 0.0, 0.0
		for _, v := range row {
			mean += v
		}
		mean /= float64(n)
		for _, v := range row {
			variance += (v - mean) * (v - mean)
		}
		inv := 1 / math.Sqrt(variance/float64(n)+epsilon)
		for i, v := range row {
			row[i] = (v - mean) * inv
		}
		means, inverse = append(means, mean), append(inverse, inv)
	}
	return means, inverse
}

// InstanceNormalization normalises each plane of X[N,C,D1..Dn] to mean 0 and
// variance 1, then scales and shifts it by scale[C] and B[C] (Ulyanov et al.,
// 2016).
type InstanceNormalization struct {
	Epsilon float32 `attr:"epsilon,1e-5"`
}

// Kind is InstanceNormalization.
func (*InstanceNormalization) Kind() string { return "InstanceNormalization" }

// Along keeps images and channels apart.
func (*InstanceNormalization) Along(_ *ir.Node, _, axis int) []int { return planes(axis, 2) }

// Infer checks the shapes of scale and B.
func (o *InstanceNormalization) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 3); err != nil {
		return err
	}
	x := c.In(0)
	if x.Ranked && x.Rank() < 2 {
		return c.Errorf("input has rank %d, want at least 2", x.Rank())
	}
	for i, what := range []string{"scale", "B"} {
		if err := wantDims(c, i+1, what, dimOf(c, x, 1)); err != nil {
			return err
		}
	}
	c.Set(0, x)
	return nil
}

// Eval normalises in float64.
func (o *InstanceNormalization) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, 1, in); err != nil {
		return nil, err
	}
	x, scale, bias := in[0].Float64s(), in[1].Float64s(), in[2].Float64s()
	plane := product(in[0].Shape()[2:])
	normaliseRows(x, plane, float64(o.Epsilon))
	scalePlanes(x, plane, scale, bias)
	return one(tensor.FromFloat64s(in[0].DType(), x, in[0].Shape()...))
}

// scalePlanes scales and shifts each plane of x[N,C,plane].
func scalePlanes(x []float64, plane int, scale, bias []float64) {
	for i := 0; i < len(x); i += plane {
		ch := i / plane % len(scale)
		for j, v := range x[i:][:plane] {
			x[i+j] = v*scale[ch] + bias[ch]
		}
	}
}

// Work counts two passes for the statistics and one to normalise.
func (*InstanceNormalization) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 8) }

// GroupNormalization splits the channels of X[N,C,D1..Dn] into groups,
// normalises each group of each image to mean 0 and variance 1, then scales and
// shifts each channel by scale[C] and bias[C] (Wu and He, 2018).
type GroupNormalization struct {
	Epsilon float32      `attr:"epsilon,1e-5"`
	Groups  int          `attr:"num_groups,1" required:"yes"`
	Stash   tensor.DType `attr:"stash_type,f32"` // the precision of the statistics; Eval always uses float64
	// PerGroup says that scale and bias have an element for each group: the
	// form of opsets below 21.
	PerGroup bool `attr:"per_group,0"`
}

// Kind is GroupNormalization.
func (*GroupNormalization) Kind() string { return "GroupNormalization" }

// Along keeps images apart.
func (*GroupNormalization) Along(_ *ir.Node, _, axis int) []int {
	if axis > 0 {
		return nil
	}
	return []int{0}
}

// Infer checks the groups and the shapes of scale and bias.
func (o *GroupNormalization) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 3); err != nil {
		return err
	}
	x := c.In(0)
	if x.Ranked && x.Rank() < 2 {
		return c.Errorf("input has rank %d, want at least 2", x.Rank())
	}
	if o.Groups < 1 {
		return c.Errorf("num_groups is %d, want at least 1", o.Groups)
	}
	channels := dimOf(c, x, 1)
	if _, ok := ir.Div(channels, ir.Size(o.Groups)); channels.Known() && !ok {
		return c.Errorf("%v channels do not split into %d groups", channels, o.Groups)
	}
	if o.PerGroup {
		channels = ir.Size(o.Groups)
	}
	for i, what := range []string{"scale", "bias"} {
		if err := wantDims(c, i+1, what, channels); err != nil {
			return err
		}
	}
	c.Set(0, x)
	return nil
}

// Eval normalises in float64.
func (o *GroupNormalization) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, 1, in); err != nil {
		return nil, err
	}
	x, scale, bias := in[0].Float64s(), in[1].Float64s(), in[2].Float64s()
	plane := product(in[0].Shape()[2:])
	group := plane * (in[0].Dim(1) / o.Groups)
	normaliseRows(x, group, float64(o.Epsilon))
	if o.PerGroup {
		plane = group
	}
	scalePlanes(x, plane, scale, bias)
	return one(tensor.FromFloat64s(in[0].DType(), x, in[0].Shape()...))
}

// Work counts two passes for the statistics and one to normalise.
func (*GroupNormalization) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 8) }

// upgradeGroupNormalization keeps the scale of each group of opsets below 21.
func upgradeGroupNormalization(l *Legacy) error {
	if l.Opset < 21 {
		l.Attrs["per_group"] = 1
	}
	return nil
}

// LayerNormalization normalises the slices of X over the axes from Axis on to
// mean 0 and variance 1, then multiplies them by Scale and adds an optional B,
// which broadcast to X (Ba et al., 2016). Its further outputs are the means
// and the inverse standard deviations.
type LayerNormalization struct {
	Axis    int          `attr:"axis,-1"`
	Epsilon float32      `attr:"epsilon,1e-5"`
	Stash   tensor.DType `attr:"stash_type,f32"` // the type of the further outputs
}

// Kind is LayerNormalization.
func (*LayerNormalization) Kind() string { return "LayerNormalization" }

// Along follows the axes in front of those that are normalised.
func (o *LayerNormalization) Along(n *ir.Node, out, axis int) []int {
	return besideSlices(n, out, o.Axis, axis)
}

// besideSlices lines up an axis in front of those that are normalised, from a on. Further outputs have the rank of the first.
func besideSlices(n *ir.Node, out, a, axis int) []int {
	rank := n.Outputs[out].Type.Rank()
	if axis >= norm(a, rank) {
		return nil
	}
	return alignedAlong(n, len(n.Inputs), rank, axis)
}

// Infer checks that Scale and B broadcast to X.
func (o *LayerNormalization) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 2); err != nil {
		return err
	}
	if !slices.Contains(reals, o.Stash) {
		return c.Errorf("stash_type is %v, want one of %v", o.Stash, reals)
	}
	return inferLayerNorm(c, o.Axis, o.Stash)
}

// inferLayerNorm sets Y and the statistics of a normalisation over the axes from
// a on.
func inferLayerNorm(c *ir.Infer, a int, stash tensor.DType) error {
	x := c.In(0)
	c.Set(0, x)
	for i := 1; i < c.Outputs(); i++ {
		c.Set(i, ir.Unranked(stash))
	}
	if !x.Ranked {
		return nil
	}
	a, err := axis(c, a, x.Rank())
	if err != nil {
		return err
	}
	for i, what := range []string{"", "scale", "bias"} {
		t := c.In(i)
		if i == 0 || !t.Ranked {
			continue
		}
		for k, d := range t.Dims {
			j := x.Rank() - t.Rank() + k
			if d != ir.Size(1) && (j < 0 || differ(d, x.Dims[j])) {
				return c.Errorf("%s is %v, want one that broadcasts to %v", what, t, ir.Of(t.DType, x.Dims...))
			}
		}
	}
	dims := append([]ir.Dim{}, x.Dims...)
	for i := range dims[a:] {
		dims[a+i] = ir.Size(1)
	}
	for i := 1; i < c.Outputs(); i++ {
		c.Set(i, ir.Of(stash, dims...))
	}
	return nil
}

// Eval normalises in float64.
func (o *LayerNormalization) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	types, err := evalTypes(o, max(3, c.Outputs), in)
	if err != nil {
		return nil, err
	}
	x, shape := in[0].Float64s(), in[0].Shape()
	a := norm(o.Axis, len(shape))
	means, inverse := normaliseRows(x, product(shape[a:]), float64(o.Epsilon))
	scaleSlices(x, scaledAxes(shape, a, in[1:]), in[1], optional(in, 2))
	out := []*tensor.Tensor{tensor.FromFloat64s(in[0].DType(), x, shape...)}
	for i, v := range [][]float64{means, inverse} {
		s, _ := types[1+i].Shape()
		// An empty slice has statistics of no elements.
		v = append(v, make([]float64, product(s)-len(v))...)
		out = append(out, tensor.FromFloat64s(o.Stash, v, s...))
	}
	return out[:max(1, min(c.Outputs, 3))], nil
}

// Grad is that of a normalisation of rows with the mean taken out.
func (o *LayerNormalization) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	for _, g := range dout[1:] {
		if g != nil {
			return nil, errNoGrad("from the statistics")
		}
	}
	return gradNorm(c, in, dout, o.Axis, o.Epsilon, true)
}

// gradNorm is the gradient of x' scale + bias, where x' are the slices of x over the
// axes from a on, divided by the root of their mean square, of their deviations from
// the mean where centred is set: with h = g scale it is (h - mean(h) - x' mean(h x'))
// over that root, the first mean only where centred is set.
func gradNorm(c *GradContext, in, dout []*tensor.Tensor, a int, epsilon float32, centred bool) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil {
		return din, nil
	}
	x, g := in[0].F32s(), dout[0].F32s()
	a = norm(a, in[0].Rank())
	n := product(in[0].Shape()[a:])
	wide := scaledAxes(in[0].Shape(), a, in[1:])
	period := product(wide)
	scale := widenTo(in[1], wide).F32s()
	if c.wants(0) {
		din[0] = c.New(in[0].Shape()...)
	}
	unit, dscale, dbias := make([]float64, n), c.Zeros(wide...), c.Zeros(wide...)
	for i := 0; i < len(x); i += n {
		scale, dscale, dbias := scale[i%period:], dscale.F32s()[i%period:], dbias.F32s()[i%period:]
		mean, square := 0.0, 0.0
		if centred {
			mean = meanRow(x[i:][:n])
		}
		for j, v := range x[i:][:n] {
			unit[j] = float64(v) - mean
			square += unit[j] * unit[j]
		}
		inverse := 1 / math.Sqrt(square/float64(n)+float64(epsilon))
		first, second := 0.0, 0.0
		for j, v := range g[i:][:n] {
			unit[j] *= inverse
			h := float64(v) * float64(scale[j])
			first += h
			second += h * unit[j]
			dscale[j] += v * float32(unit[j])
			dbias[j] += v
		}
		if first /= float64(n); !centred {
			first = 0
		}
		second /= float64(n)
		if c.wants(0) {
			dx := din[0].F32s()[i:][:n]
			for j := range dx {
				dx[j] = float32((float64(g[i+j])*float64(scale[j]) - first - unit[j]*second) * inverse)
			}
		}
	}
	for i, d := range []*tensor.Tensor{1: dscale, 2: dbias} {
		if i > 0 && c.wants(i) {
			din[i] = c.sumTo(d, trimmed(in[i].Shape(), len(wide))).Reshape(in[i].Shape()...)
		}
	}
	return din, nil
}

// scaledAxes returns the sizes of the last axes of shape, those from a on and what else one of by, nil for none, has.
func scaledAxes(shape []int, a int, by []*tensor.Tensor) []int {
	for _, t := range by {
		if t != nil {
			a = max(0, min(a, len(shape)-t.Rank()))
		}
	}
	return shape[a:]
}

// scaleSlices multiplies each slice of x by a scale and adds a bias (nil: none),
// both broadcast to the slice.
func scaleSlices(x []float64, slice []int, scale, bias *tensor.Tensor) {
	n := product(slice)
	f := widenTo(scale, slice).Float64s()
	b := make([]float64, n)
	if bias != nil {
		b = widenTo(bias, slice).Float64s()
	}
	for i := 0; i < len(x); i += n {
		for j, v := range x[i:][:n] {
			x[i+j] = v*f[j] + b[j]
		}
	}
}

// widenTo broadcasts a scale or a bias to a slice.
func widenTo(t *tensor.Tensor, slice []int) *tensor.Tensor {
	return t.Reshape(trimmed(t.Shape(), len(slice))...).Expand(slice...)
}

// trimmed drops leading ones beyond the rank.
func trimmed(shape []int, rank int) []int { return shape[max(0, len(shape)-rank):] }

// Work counts two passes for the statistics and one to normalise.
func (*LayerNormalization) Work(in, out []ir.Type) ir.Work { return streamWork(in, out[:1], 8) }

// RMSNormalization divides the slices of X over the axes from Axis on by their
// root mean square and multiplies them by Scale, which broadcasts to X
// (Zhang and Sennrich, 2019).
type RMSNormalization struct {
	Axis    int          `attr:"axis,-1"`
	Epsilon float32      `attr:"epsilon,1e-5"`
	Stash   tensor.DType `attr:"stash_type,f32"` // the precision of the statistics; Eval always uses float64
}

// Kind is RMSNormalization.
func (*RMSNormalization) Kind() string { return "RMSNormalization" }

// Along follows the axes in front of those that are normalised.
func (o *RMSNormalization) Along(n *ir.Node, out, axis int) []int {
	return besideSlices(n, out, o.Axis, axis)
}

// Infer checks that Scale broadcasts to X. Y has the type of Scale.
func (o *RMSNormalization) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	for i := range 2 {
		if err := wantOneOf(c, i, reals); err != nil {
			return err
		}
	}
	if err := inferLayerNorm(c, o.Axis, o.Stash); err != nil {
		return err
	}
	y := c.In(0)
	y.DType = c.In(1).DType
	c.Set(0, y)
	return nil
}

// Eval normalises in float64.
func (o *RMSNormalization) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, 1, in); err != nil {
		return nil, err
	}
	x, shape := in[0].Float64s(), in[0].Shape()
	a := norm(o.Axis, len(shape))
	n := product(shape[a:])
	for i := 0; i < len(x); i += n {
		row, squares := x[i:][:n], 0.0
		for _, v := range row {
			squares += v * v
		}
		inv := 1 / math.Sqrt(squares/float64(n)+float64(o.Epsilon))
		for j := range row {
			row[j] *= inv
		}
	}
	scaleSlices(x, scaledAxes(shape, a, in[1:]), in[1], nil)
	return one(tensor.FromFloat64s(in[1].DType(), x, shape...))
}

// Grad is that of a normalisation of rows.
func (o *RMSNormalization) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return gradNorm(c, in, dout, o.Axis, o.Epsilon, false)
}

// Work counts a pass for the squares and one to normalise.
func (*RMSNormalization) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 4) }

// MeanVarianceNormalization normalises X to mean 0 and deviation 1 over the axes,
// by default all but the channels of an image.
type MeanVarianceNormalization struct {
	Axes []int `attr:"axes"`
}

// Kind is MeanVarianceNormalization.
func (*MeanVarianceNormalization) Kind() string { return "MeanVarianceNormalization" }

func (o *MeanVarianceNormalization) axes() []int {
	if o.Axes == nil {
		return []int{0, 2, 3}
	}
	return o.Axes
}

// Infer checks the axes.
func (o *MeanVarianceNormalization) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	if x := c.In(0); x.Ranked {
		for _, a := range o.axes() {
			if _, err := axis(c, a, x.Rank()); err != nil {
				return err
			}
		}
	}
	c.Set(0, c.In(0))
	return nil
}

// Eval moves the axes to the end, normalises the rows and moves them back. What
// is added to the deviation, 1e-9, keeps constant rows finite.
func (o *MeanVarianceNormalization) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, 1, in); err != nil {
		return nil, err
	}
	rank := in[0].Rank()
	reduced := make([]bool, rank)
	for _, a := range o.axes() {
		reduced[norm(a, rank)] = true
	}
	var perm []int
	n := 1
	for a, r := range reduced {
		if !r {
			perm = append(perm, a)
		}
	}
	for a, r := range reduced {
		if r {
			perm = append(perm, a)
			n *= in[0].Dim(a)
		}
	}
	inverse := make([]int, rank)
	for i, p := range perm {
		inverse[p] = i
	}
	t := in[0].Permute(perm...)
	x := t.Float64s()
	for i := 0; i < len(x); i += n {
		row, mean, variance := x[i:][:n], 0.0, 0.0
		for _, v := range row {
			mean += v / float64(n)
		}
		for _, v := range row {
			variance += (v - mean) * (v - mean) / float64(n)
		}
		for j, v := range row {
			row[j] = (v - mean) / (math.Sqrt(variance) + 1e-9)
		}
	}
	return one(tensor.FromFloat64s(t.DType(), x, t.Shape()...).Permute(inverse...))
}

// Work counts two passes for the statistics and one to normalise.
func (*MeanVarianceNormalization) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 8) }

// LpNormalization divides the slices of X along an axis by their 1-norm or
// 2-norm; a slice of zeros stays.
type LpNormalization struct {
	Axis int `attr:"axis,-1"`
	P    int `attr:"p,2"`
}

// Kind is LpNormalization.
func (*LpNormalization) Kind() string { return "LpNormalization" }

// Along follows every axis but the one that is normalised.
func (o *LpNormalization) Along(n *ir.Node, _, axis int) []int { return others(n, axis, o.Axis) }

// Infer keeps the type.
func (o *LpNormalization) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	if o.P != 1 && o.P != 2 {
		return c.Errorf("p is %d, want 1 or 2", o.P)
	}
	if x := c.In(0); x.Ranked {
		if _, err := axis(c, o.Axis, x.Rank()); err != nil {
			return err
		}
	}
	c.Set(0, c.In(0))
	return nil
}

// Eval normalises in float64.
func (o *LpNormalization) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, 1, in); err != nil {
		return nil, err
	}
	x, shape := in[0].Float64s(), in[0].Shape()
	a := norm(o.Axis, len(shape))
	eachLine(x, shape[a], product(shape[a+1:]), func(line []float64) {
		sum := 0.0
		for _, v := range line {
			sum += absPow(v, o.P)
		}
		if sum == 0 {
			return
		}
		sum = root(sum, o.P)
		for i := range line {
			line[i] /= sum
		}
	})
	return one(tensor.FromFloat64s(in[0].DType(), x, shape...))
}

// Work counts a pass for the norm and one to divide.
func (*LpNormalization) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 3) }

// LRN divides each element of X[N,C,D1..Dn] by (bias + alpha/size * s)^beta,
// where s is the sum of squares over size neighbouring channels (Krizhevsky et
// al., 2012).
type LRN struct {
	Alpha float32 `attr:"alpha,1e-4"`
	Beta  float32 `attr:"beta,0.75"`
	Bias  float32 `attr:"bias,1"`
	Size  int     `attr:"size,0"`
}

// Kind is LRN.
func (*LRN) Kind() string { return "LRN" }

// Along follows every axis but the channels.
func (*LRN) Along(n *ir.Node, _, axis int) []int { return others(n, axis, 1) }

// Infer keeps the type.
func (o *LRN) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	if o.Size < 1 || o.Size > maxSpan {
		return c.Errorf("size is %d, want one from 1 to %d", o.Size, maxSpan)
	}
	if x := c.In(0); x.Ranked && x.Rank() < 2 {
		return c.Errorf("input has rank %d, want at least 2", x.Rank())
	}
	c.Set(0, c.In(0))
	return nil
}

// Eval sums the squares of the neighbours of each channel.
func (o *LRN) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, 1, in); err != nil {
		return nil, err
	}
	x, shape := in[0].Float64s(), in[0].Shape()
	channels, plane := shape[1], product(shape[2:])
	y := make([]float64, len(x))
	before, after := (o.Size-1)/2, o.Size/2
	for i := 0; i < len(x); i += channels * plane {
		img := x[i:][:channels*plane]
		for ch := range channels {
			out := y[i+ch*plane:][:plane]
			for k := max(0, ch-before); k <= min(channels-1, ch+after); k++ {
				for j, v := range img[k*plane:][:plane] {
					out[j] += v * v
				}
			}
			for j, s := range out {
				out[j] = img[ch*plane+j] / math.Pow(float64(o.Bias)+float64(o.Alpha)/float64(o.Size)*s, float64(o.Beta))
			}
		}
	}
	return one(tensor.FromFloat64s(in[0].DType(), y, shape...))
}

// Work counts the squares of the neighbours and a power.
func (o *LRN) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, float64(2*o.Size+4)) }
