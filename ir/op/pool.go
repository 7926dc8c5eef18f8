package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// MaxPool is the maximum Y[N,C,O1..On] of each window of X[N,C,D1..Dn] and,
// as a second output, the index of the maximum in X.
type MaxPool struct {
	Window
	CeilMode bool `attr:"ceil_mode,0"`
	// ColumnMajor makes the indices count the spatial axes with the first the
	// fastest.
	ColumnMajor bool `attr:"storage_order,0"`
}

// Kind is MaxPool.
func (*MaxPool) Kind() string { return "MaxPool" }

// Along keeps images and channels apart, but for the indices, which count through all of them.
func (*MaxPool) Along(_ *ir.Node, out, axis int) []int {
	if out > 0 {
		return nil
	}
	return planes(axis, 0)
}

// Moves picks the largest of each window.
func (*MaxPool) Moves(*ir.Node) Motion { return Picks }

// Infer slides the window.
func (o *MaxPool) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, append([]tensor.DType{tensor.I8, tensor.U8}, reals...)); err != nil {
		return err
	}
	return inferPool(c, &o.Window, o.CeilMode)
}

// inferPool sets every output of a pool; those after the first are indices.
func inferPool(c *ir.Infer, w *Window, ceil bool) error {
	x := c.In(0)
	y := ir.Unranked(x.DType)
	if x.Ranked {
		if x.Rank() < 3 {
			return c.Errorf("input has rank %d, want at least 3", x.Rank())
		}
		if len(w.KernelShape) == 0 {
			return c.Errorf("kernel_shape is missing")
		}
		out, err := w.outDims(c, x.Dims[2:], w.KernelShape, ceil)
		if err != nil {
			return err
		}
		y = ir.Of(x.DType, append([]ir.Dim{x.Dims[0], x.Dims[1]}, out...)...)
	}
	c.Set(0, y)
	for i := 1; i < c.Outputs(); i++ {
		y.DType = tensor.I64
		c.Set(i, y)
	}
	return nil
}

// tapRun is a run of output pixels from out on that one tap reads from input
// pixels in, in+stride, ...
type tapRun struct{ out, n, in int }

// poolPlan is the geometry of a pool for one plane.
type poolPlan struct {
	planes  int // N*C
	in, out []int
	spans   []Span
	stride  int      // of the last axis
	runs    []tapRun // of all taps, in the order of the taps
}

// plan lays out a pool of x into y.
func (w *Window) plan(x, y []int, ceil bool) (*poolPlan, error) {
	spans, out, err := w.Resolve(x[2:], w.KernelShape, ceil)
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	p := &poolPlan{planes: y[0] * y[1], in: x[2:], out: out, spans: spans, stride: spans[len(spans)-1].Stride}
	p.each(p.in, func(_ int, r tapRun) { p.runs = append(p.runs, r) })
	return p, nil
}

// each calls f for the runs of all taps inside the target.
func (p *poolPlan) each(target []int, f func(tap int, r tapRun)) {
	taps := 1
	for _, s := range p.spans {
		taps *= s.Kernel
	}
	n := product(p.out)
	for t := range taps {
		TapRuns(p.spans, p.out, target, t, 0, n, func(j, n, at int) { f(t, tapRun{j, n, at}) })
	}
}

// reduce calls, for each plane with its outputs y and inputs x, add for each run
// and then done once.
func (p *poolPlan) reduce(y, x []float64, add func(y, x []float64, r tapRun, plane int), done func(y []float64)) {
	m, n := product(p.in), product(p.out)
	for i := range p.planes {
		yp, xp := y[i*n:][:n], x[i*m:][:m]
		for _, r := range p.runs {
			add(yp, xp, r, i)
		}
		done(yp)
	}
}

// Eval takes the maximum over the taps, the first of equal ones; a NaN wins. A
// window that is all padding gives the least value of the type and index -1.
func (o *MaxPool) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	shapes, empty, err := evalOutputs(o, max(1, c.Outputs), in)
	if err != nil || empty != nil {
		return empty, err
	}
	p, err := o.plan(x.Shape(), shapes[0], o.CeilMode)
	if err != nil {
		return nil, err
	}
	least := math.Inf(-1)
	switch x.DType() {
	case tensor.I8:
		least = math.MinInt8
	case tensor.U8:
		least = 0
	}
	y := make([]float64, product(shapes[0]))
	at := make([]int64, len(y))
	for i := range y {
		y[i], at[i] = least, -1
	}
	plane := product(p.out)
	p.reduce(y, x.Float64s(), func(y, x []float64, r tapRun, i int) {
		at := at[i*plane+r.out:]
		pos := r.in
		for k := range y[r.out:][:r.n] {
			best := &y[r.out+k]
			if v := x[pos]; v > *best || at[k] < 0 || v != v && *best == *best {
				*best, at[k] = v, int64(pos)
			}
			pos += p.stride
		}
	}, func([]float64) {})
	out := []*tensor.Tensor{fromFloats(x.DType(), y, shapes[0]...)}
	if c.Outputs > 1 {
		o.index(at, p)
		out = append(out, tensor.From(at, shapes[0]...))
	}
	return out, nil
}

// Grad gives each gradient to the first tap that is the maximum.
func (o *MaxPool) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if !c.wants(0) || dout[0] == nil {
		return din, nil
	}
	p, err := o.plan(in[0].Shape(), out[0].Shape(), o.CeilMode)
	if err != nil {
		return nil, err
	}
	din[0] = c.Zeros(in[0].Shape()...)
	m, n := product(p.in), product(p.out)
	x, dx, y, g := in[0].F32s(), din[0].F32s(), out[0].F32s(), dout[0].F32s()
	done := make([]bool, n)
	for i := range p.planes {
		clear(done)
		xp, dp, yp, gp := x[i*m:][:m], dx[i*m:][:m], y[i*n:][:n], g[i*n:][:n]
		for _, r := range p.runs {
			pos := r.in
			for k := r.out; k < r.out+r.n; k++ {
				if !done[k] && xp[pos] == yp[k] {
					dp[pos] += gp[k]
					done[k] = true
				}
				pos += p.stride
			}
		}
	}
	return din, nil
}

// Forward takes the maximum over the taps.
func (o *MaxPool) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	p, err := o.plan(in[0].Shape(), shapes[0], o.CeilMode)
	if err != nil {
		return nil, err
	}
	out := c.New(shapes[0]...)
	y, x := out.F32s(), in[0].F32s()
	for i := range y {
		y[i] = float32(math.Inf(-1))
	}
	p.taps(y, x, func(y, x []float32, step int) {
		for i := range y {
			y[i] = max(y[i], x[i*step])
		}
	})
	return one(out)
}

// taps calls add for each run of outputs of y and the inputs of x, step apart, that
// one tap of it reads.
func (p *poolPlan) taps(y, x []float32, add func(y, x []float32, step int)) {
	m, n := product(p.in), product(p.out)
	for i := range p.planes {
		yp, xp := y[i*n:][:n], x[i*m:][:m]
		for _, r := range p.runs {
			add(yp[r.out:][:r.n], xp[r.in:], p.stride)
		}
	}
}

// index turns positions in a plane into indices of the whole input.
func (o *MaxPool) index(at []int64, p *poolPlan) {
	n, m := product(p.out), product(p.in)
	for i, pos := range at {
		if pos < 0 {
			continue
		}
		if o.ColumnMajor {
			q, scale := 0, m
			for rest, axis := int(pos), len(p.in)-1; axis >= 0; axis-- {
				scale /= p.in[axis]
				q += rest % p.in[axis] * scale
				rest /= p.in[axis]
			}
			pos = int64(q)
		}
		at[i] = int64(i/n*m) + pos
	}
}

// Work counts a comparison for each tap.
func (o *MaxPool) Work(in, out []ir.Type) ir.Work { return poolWork(in, out, o.KernelShape) }

func poolWork(in, out []ir.Type, kernel []int) ir.Work {
	w := streamWork(in, out, 0)
	w.FLOPs = elems(out[0]) * elems(ir.Shaped(tensor.F32, kernel...))
	return w
}

// AveragePool is the mean of each window of X[N,C,D1..Dn].
type AveragePool struct {
	Window
	CeilMode bool `attr:"ceil_mode,0"`
	// CountPad divides by all taps inside the padded input, not just by those
	// inside the input.
	CountPad bool `attr:"count_include_pad,0"`
}

// Kind is AveragePool.
func (*AveragePool) Kind() string { return "AveragePool" }

// Along keeps images and channels apart.
func (*AveragePool) Along(_ *ir.Node, out, axis int) []int {
	return planes(axis, 0)
}

// Infer slides the window.
func (o *AveragePool) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	return inferPool(c, &o.Window, o.CeilMode)
}

// Eval sums the taps and divides by their number; a window that is all padding
// gives 0.
func (o *AveragePool) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	p, err := o.plan(x.Shape(), shapes[0], o.CeilMode)
	if err != nil {
		return nil, err
	}
	taps := o.counts(p)
	y := make([]float64, product(shapes[0]))
	p.reduce(y, x.Float64s(), func(y, x []float64, r tapRun, _ int) {
		pos := r.in
		for k := range y[r.out:][:r.n] {
			y[r.out+k] += x[pos]
			pos += p.stride
		}
	}, func(y []float64) {
		for i, n := range taps {
			if n > 0 {
				y[i] /= n
			}
		}
	})
	return one(fromFloats(x.DType(), y, shapes[0]...))
}

// Grad gives each tap its part of the gradient by the mean.
func (o *AveragePool) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if !c.wants(0) || dout[0] == nil {
		return din, nil
	}
	p, err := o.plan(in[0].Shape(), out[0].Shape(), o.CeilMode)
	if err != nil {
		return nil, err
	}
	din[0] = c.Zeros(in[0].Shape()...)
	part := c.Floats(out[0].Len())
	count := o.counts(p)
	for i, v := range dout[0].F32s() {
		part[i] = v / float32(max(1, count[i%len(count)]))
	}
	p.taps(part, din[0].F32s(), func(g, dx []float32, step int) {
		for i, v := range g {
			dx[i*step] += v
		}
	})
	return din, nil
}

// Forward sums the taps and divides by their number.
func (o *AveragePool) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	p, err := o.plan(in[0].Shape(), shapes[0], o.CeilMode)
	if err != nil {
		return nil, err
	}
	out := c.Zeros(shapes[0]...)
	y := out.F32s()
	p.taps(y, in[0].F32s(), func(y, x []float32, step int) {
		for i := range y {
			y[i] += x[i*step]
		}
	})
	count := o.counts(p)
	for i := range y {
		y[i] /= float32(max(1, count[i%len(count)]))
	}
	return one(out)
}

// counts is the number by which each output of a plane divides the sum of its taps, 0
// where the window is all padding.
func (o *AveragePool) counts(p *poolPlan) []float64 {
	taps := make([]float64, product(p.out))
	add := func(_ int, r tapRun) {
		for k := range r.n {
			taps[r.out+k]++
		}
	}
	if !o.CountPad {
		p.each(p.in, add)
		return taps
	}
	padded := *p
	padded.spans = append([]Span{}, p.spans...)
	size := make([]int, len(p.in))
	for i := range size {
		size[i] = p.in[i] + p.spans[i].Begin + p.spans[i].End
		padded.spans[i].Begin = 0
	}
	padded.each(size, add)
	return taps
}

// Work counts an addition for each tap.
func (o *AveragePool) Work(in, out []ir.Type) ir.Work { return poolWork(in, out, o.KernelShape) }

// LpPool is the p-norm of each window of X[N,C,D1..Dn].
type LpPool struct {
	Window
	CeilMode bool `attr:"ceil_mode,0"`
	P        int  `attr:"p,2"`
}

// Kind is LpPool.
func (*LpPool) Kind() string { return "LpPool" }

// Along keeps images and channels apart.
func (*LpPool) Along(_ *ir.Node, out, axis int) []int {
	return planes(axis, 0)
}

// Infer slides the window.
func (o *LpPool) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	if o.P < 1 {
		return c.Errorf("p is %d, want at least 1", o.P)
	}
	return inferPool(c, &o.Window, o.CeilMode)
}

// Eval sums the p-th powers and takes the p-th root.
func (o *LpPool) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	p, err := o.plan(x.Shape(), shapes[0], o.CeilMode)
	if err != nil {
		return nil, err
	}
	powers := x.Float64s()
	for i, v := range powers {
		powers[i] = absPow(v, o.P)
	}
	y := make([]float64, product(shapes[0]))
	p.reduce(y, powers, func(y, x []float64, r tapRun, _ int) {
		pos := r.in
		for k := range y[r.out:][:r.n] {
			y[r.out+k] += x[pos]
			pos += p.stride
		}
	}, func(y []float64) {
		for i, v := range y {
			y[i] = root(v, o.P)
		}
	})
	return one(fromFloats(x.DType(), y, shapes[0]...))
}

// absPow is |x|^p.
func absPow(x float64, p int) float64 {
	switch p {
	case 1:
		return math.Abs(x)
	case 2:
		return x * x
	}
	return math.Pow(math.Abs(x), float64(p))
}

// root is the p-th root of x.
func root(x float64, p int) float64 {
	switch p {
	case 1:
		return x
	case 2:
		return math.Sqrt(x)
	}
	return math.Pow(x, 1/float64(p))
}

// Work counts a power and an addition for each tap.
func (o *LpPool) Work(in, out []ir.Type) ir.Work {
	w := poolWork(in, out, o.KernelShape)
	w.FLOPs *= 2
	return w
}

// upgradeLpPool makes the float p of opset 1 an int.
func upgradeLpPool(l *Legacy) error {
	p, ok := l.Attrs["p"].(float32)
	if !ok {
		return nil
	}
	if p != float32(int(p)) {
		return evalErrorf("p is %v, want a whole number", p)
	}
	l.Attrs["p"] = int(p)
	return nil
}

// GlobalPool reduces the spatial axes of X[N,C,D1..Dn] to one: the mean, the
// maximum or the p-norm.
type GlobalPool struct {
	family
	P int `attr:"p,2"` // of GlobalLpPool
}

// Along keeps images and channels apart.
func (*GlobalPool) Along(_ *ir.Node, _, axis int) []int { return planes(axis, 0) }

// Infer sets the spatial dimensions to one.
func (o *GlobalPool) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	if o.P < 1 {
		return c.Errorf("p is %d, want at least 1", o.P)
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	if x.Rank() < 2 {
		return c.Errorf("input has rank %d, want at least 2", x.Rank())
	}
	dims := append([]ir.Dim{}, x.Dims...)
	for i := range dims[2:] {
		dims[2+i] = ir.Size(1)
	}
	c.Set(0, ir.Of(x.DType, dims...))
	return nil
}

// Eval reduces each plane; an empty one gives a mean of NaN, a maximum of
// -infinity and a norm of 0.
func (o *GlobalPool) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	v, n := x.Float64s(), product(x.Shape()[2:])
	y := make([]float64, product(shapes[0]))
	for i := range y {
		plane := v[i*n:][:n]
		var s float64
		switch o.kind {
		case "GlobalAveragePool":
			for _, e := range plane {
				s += e
			}
			s /= float64(n)
		case "GlobalMaxPool":
			s = math.Inf(-1)
			for _, e := range plane {
				s = max(s, e)
			}
		default:
			for _, e := range plane {
				s += absPow(e, o.P)
			}
			s = root(s, o.P)
		}
		y[i] = s
	}
	return one(fromFloats(x.DType(), y, shapes[0]...))
}

// Grad gives each element its part of the gradient by the mean, and the first largest
// one that by the maximum.
func (o *GlobalPool) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if o.kind == "GlobalLpPool" {
		return nil, errNoGrad("of %s", o.kind)
	}
	return gradPlanes(c, in, dout, func(i int, dx, x []float32, g float32) {
		if o.kind == "GlobalAveragePool" {
			g /= float32(len(dx))
			for k := range dx {
				dx[k] = g
			}
			return
		}
		clear(dx)
		if k := slices.Index(x, out[0].F32s()[i]); k >= 0 {
			dx[k] = g
		}
	})
}

// gradPlanes calls f for each plane of the only input with the gradient by its output.
func gradPlanes(c *GradContext, in, dout []*tensor.Tensor, f func(i int, dx, x []float32, g float32)) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if !c.wants(0) || dout[0] == nil {
		return din, nil
	}
	din[0] = c.New(in[0].Shape()...)
	dx, x, n := din[0].F32s(), in[0].F32s(), product(in[0].Shape()[2:])
	for i, g := range dout[0].F32s() {
		f(i, dx[i*n:][:n], x[i*n:][:n], g)
	}
	return din, nil
}

// Forward reduces each plane.
func (o *GlobalPool) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, n := in[0], product(in[0].Shape()[2:])
	if o.kind != "GlobalAveragePool" || n == 0 {
		return o.Eval(&ir.Eval{Outputs: 1}, in)
	}
	shape := slices.Clone(x.Shape())
	for i := range shape[2:] {
		shape[2+i] = 1
	}
	out := c.New(shape...)
	v := x.F32s()
	for i := range out.F32s() {
		out.F32s()[i] = float32(sumRow(v[i*n:][:n]) / float64(n))
	}
	return one(out)
}

// Work counts an operation for each input element.
func (o *GlobalPool) Work(in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	w.FLOPs = elems(in[0])
	return w
}

// MaxUnpool puts each element of X[N,C,D1..Dn] to where the indices I, of the
// same shape, say that it was in the input of a MaxPool, amid zeros. The third
// input is the shape of the output; the indices count in the shape that the
// window gives.
type MaxUnpool struct {
	streaming
	KernelShape []int `attr:"kernel_shape"`
	Strides     []int `attr:"strides"`
	Pads        []int `attr:"pads"`
}

// Kind is MaxUnpool.
func (*MaxUnpool) Kind() string { return "MaxUnpool" }

func (o *MaxUnpool) window() *Window {
	return &Window{KernelShape: o.KernelShape, Strides: o.Strides, Pads: o.Pads}
}

// Infer inverts the window, or takes the shape from the third input.
func (o *MaxUnpool) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, reals); err != nil {
		return err
	}
	for i := 1; i <= 2; i++ {
		if err := wantOneOf(c, i, []tensor.DType{tensor.I64}); err != nil {
			return err
		}
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	if x.Rank() < 3 {
		return c.Errorf("input has rank %d, want at least 3", x.Rank())
	}
	if err := wantDims(c, 1, "indices", x.Dims...); err != nil {
		return err
	}
	if err := wantDims(c, 2, "output_shape", ir.Size(x.Rank())); err != nil {
		return err
	}
	spans, err := o.window().spans(x.Rank()-2, o.KernelShape)
	if err != nil {
		return c.Errorf("%v", err)
	}
	dims := append([]ir.Dim{}, x.Dims...)
	for i, s := range spans {
		dims[2+i] = ir.Add(ir.Mul(x.Dims[2+i], ir.Size(s.Stride)), s.Kernel-s.Stride-s.Begin-s.End)
		if dims[2+i].Known() && dims[2+i].Size() < 0 {
			return c.Errorf("padding leaves a size of %v on spatial axis %d", dims[2+i], i)
		}
	}
	if c.Has(2) {
		elems, ok := c.Elems(2)
		if !ok {
			elems = c.FreshDims(x.Rank())
		}
		for i, d := range elems {
			if d.Known() && d.Size() < 0 || i < 2 && differ(d, x.Dims[i]) {
				return c.Errorf("output_shape is %v, want %v and %v, then sizes", elems, x.Dims[0], x.Dims[1])
			}
		}
		dims = elems
	}
	c.Set(0, ir.Of(x.DType, dims...))
	return nil
}

// Eval scatters the elements; where the output is smaller or larger than what
// the window gives, it is cut or padded with zeros at the end.
func (o *MaxUnpool) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	types, err := evalTypes(o, 1, in)
	if err != nil {
		return nil, err
	}
	shape, ok := types[0].Shape()
	if !ok {
		shape = in[2].Ints()
	}
	y, err := newOutput(in[0].DType(), shape...)
	if err != nil {
		return nil, err
	}
	inner := y
	if optional(in, 2) != nil {
		natural, err := evalShapes(o, 1, in[:2])
		if err != nil {
			return nil, err
		}
		inner = tensor.New(y.DType(), natural[0]...)
	}
	for i, p := range tensor.Data[int64](in[1]) {
		if p < 0 || p >= int64(inner.Len()) {
			return nil, evalErrorf("index %d is out of range for output %v", p, inner)
		}
		size := y.DType().Size()
		copy(inner.Bytes()[int(p)*size:][:size], in[0].Bytes()[i*size:][:size])
	}
	if inner != y {
		box := make([]int, len(shape))
		for i := range box {
			box[i] = min(shape[i], inner.Dim(i))
		}
		tensor.Copy(y, inner, box, 0, tensor.Strides(shape), 0, tensor.Strides(inner.Shape()))
	}
	return one(y)
}
