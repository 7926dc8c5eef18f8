package cpu

import (
	"math"
	"slices"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindRowsOf applies f to each row of so many elements.
func bindRowsOf(n *ir.Node, width int, f func(y, x []float32)) *bound {
	return rowwise(n, width, func(*exec) (begin func(in, out []*tensor.Tensor), row func(r int)) {
		var src, dst []float32
		begin = func(in, out []*tensor.Tensor) { src, dst = in[0].F32s(), out[0].F32s() }
		return begin, func(r int) { f(dst[r*width:(r+1)*width], src[r*width:(r+1)*width]) }
	})
}

// rowwise computes rows of so many elements of output 0: prepare returns what begins a run, and what computes a row.
func rowwise(n *ir.Node, width int, prepare func(x *exec) (begin func(in, out []*tensor.Tensor), row func(r int))) *bound {
	shape := shapeOf(n.Outputs[0])
	if prod(shape) == 0 {
		return nil
	}
	rows, per := prod(shape)/width, max(1, chunk/width)
	return &bound{inplace: 0, alone: true, pieces: func(x *exec, in, out []*tensor.Tensor, finish finisher) func() error {
		begin, row := prepare(x)
		some := func(worker, i int) {
			p := piecemeal{finish, worker, i * per * width, min(rows, (i+1)*per) * width}
			for r := i * per; r < min(rows, (i+1)*per); r++ {
				row(r)
				p.made((r + 1) * width)
			}
		}
		return func() error {
			begin(in, out)
			x.pool.For((rows+per-1)/per, some)
			return nil
		}
	}}
}

// piecemeal is the elements of an output that a worker computes one after the other, from the first that a finisher has
// not had to an end.
type piecemeal struct {
	finish    finisher
	worker    int
	from, end int
}

// made says that the elements in front of one are computed: they are finished when there are as many as lie in the cache, or all.
func (p *piecemeal) made(to int) {
	if p.finish != nil && (to-p.from >= nearby || to == p.end) {
		p.finish(p.worker, p.from, to-p.from)
		p.from = to
	}
}

// bindSoftmax normalises lines along an axis, or along all from it on.
func bindSoftmax(_ *program, n *ir.Node) (*bound, error) {
	o, shape := n.Op.(*op.Softmax), shapeOf(n.Inputs[0])
	if !f32(n) || prod(shape) == 0 {
		return nil, nil
	}
	first := o.Axis
	if first < 0 {
		first += len(shape)
	}
	l := newLines(shape, func(a int) bool { return a == first || o.Flatten && a > first })
	logs := n.Op.Kind() == "LogSoftmax"
	switch {
	case n.Op.Kind() == "Hardmax" && !l.joined:
		return nil, nil
	case n.Op.Kind() == "Hardmax":
		return bindRowsOf(n, l.run, hardmax), nil
	case l.joined && logs:
		b := bindRowsOf(n, l.run, vec.LogSoftmax)
		b.inplace = -1
		return b, nil
	case l.joined:
		return bindRowsOf(n, l.run, vec.Softmax), nil
	}
	return &bound{inplace: 0, alone: true, scratch: 3 * columns, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, dst []float32
		run := l.each(x, func(worker, _, from, n int) { l.softmax(dst, src, from, n, logs, x.scratch[worker]) })
		return func() error {
			src, dst = in[0].F32s(), out[0].F32s()
			run()
			return nil
		}
	}}, nil
}

// hardmax gives 1 where the first of the largest is, else 0.
func hardmax(y, x []float32) {
	at := 0
	if _, most, ok := vec.Range(x); ok {
		at = slices.Index(x, most)
	} else {
		for i, v := range x {
			if v > x[at] {
				at = i
			}
		}
	}
	clear(y)
	y[at] = 1
}

// bindShrink shortens elements.
func bindShrink(_ *program, n *ir.Node) (*bound, error) {
	if !f32(n) {
		return nil, nil
	}
	o := n.Op.(*op.Shrink)
	return &bound{inplace: 0, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		body := func(lo, hi int) { vec.Shrink(out[0].F32s()[lo:hi], in[0].F32s()[lo:hi], o.Lambd, o.Bias) }
		return func() error {
			x.pool.Range(out[0].Len(), body)
			return nil
		}
	}}, nil
}

// softmax normalises n lines side by side, the first from an element on.
func (l *lines) softmax(dst, src []float32, from, n int, logs bool, scratch []float32) {
	top := joinings["ReduceMax"]
	most, sum, e := scratch[2*columns:][:n], scratch[:n], scratch[columns:][:n]
	l.joinRows(&top, most, src, from, scratch)
	clear(sum)
	for r := range l.rows {
		at := from + offset(l.along, r)
		y := dst[at:][:n]
		vec.Sub(y, src[at:][:n], most)
		if !logs {
			e = y
		}
		vec.Exp(e, y)
		vec.Add(sum, sum, e)
	}
	if logs {
		for i, v := range sum {
			sum[i] = float32(math.Log(float64(v)))
		}
	} else {
		vec.Reciprocal(sum, sum)
	}
	for r := range l.rows {
		y := dst[from+offset(l.along, r):][:n]
		if logs {
			vec.Sub(y, y, sum)
		} else {
			vec.Mul(y, y, sum)
		}
	}
}

func bindLayerNorm(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.LayerNormalization)
	return bindSlices(n, o.Axis, func(y, x, gamma, beta []float32) (mean, inv float32) {
		return vec.LayerNorm(y, x, gamma, beta, o.Epsilon)
	}), nil
}

func bindRMSNorm(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.RMSNormalization)
	return bindSlices(n, o.Axis, func(y, x, gamma, beta []float32) (mean, inv float32) {
		inv = float32(1 / math.Sqrt(float64(vec.SumSquares(x, 0)/float32(len(x))+o.Epsilon)))
		vec.Normalize(y, x, gamma, beta, 0, inv)
		return 0, inv
	}), nil
}

// bindSlices normalises the slices of X over the axes from a on, with the scale of input 1 and the shift of input 2. Means and
// factors that f returns are the further outputs.
func bindSlices(n *ir.Node, a int, f func(y, x, gamma, beta []float32) (mean, inv float32)) *bound {
	shape := shapeOf(n.Inputs[0])
	if !f32(n) || prod(shape) == 0 || n.Outputs[0] == nil {
		return nil
	}
	if a < 0 {
		a += len(shape)
	}
	width := prod(shape[a:])
	scale, shift := factorsOf(n, 1, a), factorsOf(n, 2, a)
	return rowwise(n, width, func(x *exec) (begin func(in, out []*tensor.Tensor), row func(r int)) {
		var src, dst, gamma, beta []float32
		more := make([][]float32, 2) // of each slice
		scale, shift := scale.reader(x), shift.reader(x)
		begin = func(in, out []*tensor.Tensor) {
			src, dst, gamma, beta = in[0].F32s(), out[0].F32s(), scale(in), shift(in)
			for i := range more {
				if more[i] = nil; i+1 < len(out) && out[i+1] != nil {
					more[i] = out[i+1].F32s()
				}
			}
		}
		return begin, func(r int) {
			at := r * width
			mean, inv := f(dst[at:][:width], src[at:][:width], slice(gamma, at, width), slice(beta, at, width))
			if more[0] != nil {
				more[0][r] = mean
			}
			if more[1] != nil {
				more[1][r] = inv
			}
		}
	})
}

// slice is what belongs to the slice from an element on: all there is, where that is the same for each.
func slice(factors []float32, at, width int) []float32 {
	if len(factors) == width {
		return factors
	}
	return factors[at:][:width]
}

// factors are what slices of X over the axes from some one on are scaled with or shifted by: the same for each, or all of them.
type factors struct {
	data  []float32 // of a constant, or zeros where there is no input; nil where each run tells
	input int
	size  int     // as slices read them
	wider *choice // makes them so; nil where they are
}

// factorsOf are those that input i of n gives slices over the axes from a on.
func factorsOf(n *ir.Node, i, a int) *factors {
	shape := shapeOf(n.Inputs[0])
	to, v := shape[a:], n.Input(i)
	if v == nil {
		return &factors{data: make([]float32, prod(to))}
	}
	from := shapeOf(v)
	if before := len(from) - len(to); before > 0 && prod(from[:before]) > 1 {
		to = shape
	}
	from = from[max(0, len(from)-len(to)):] // in front of which are ones
	f := &factors{input: i, size: prod(to)}
	same := prod(from) == f.size
	switch data, constant := constantF32(n, i); {
	case constant && same:
		f.data = data
	case constant:
		f.data = v.Const.Reshape(from...).Expand(to...).F32s()
	case !same:
		f.wider = expansion(from, to)
	}
	return f
}

// reader returns what gives a run its factors.
func (f *factors) reader(x *exec) func(in []*tensor.Tensor) []float32 {
	switch {
	case f.data != nil:
		return func([]*tensor.Tensor) []float32 { return f.data }
	case f.wider == nil:
		return func(in []*tensor.Tensor) []float32 { return in[f.input].F32s() }
	}
	wide, widen := make([]float32, f.size), f.wider.words32(x)
	return func(in []*tensor.Tensor) []float32 {
		widen(wide, in[f.input].F32s())
		return wide
	}
}

func bindInstanceNorm(_ *program, n *ir.Node) (*bound, error) {
	shape := shapeOf(n.Inputs[0])
	return bindPlanes(n, shape[1], n.Op.(*op.InstanceNormalization).Epsilon)
}

func bindGroupNorm(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.GroupNormalization)
	return bindPlanes(n, o.Groups, o.Epsilon)
}

// bindPlanes normalises each group of the channels of X[N,C,D1..Dn] to mean 0 and variance 1, and scales and shifts each channel,
// or each group where scale and bias have an element for each.
func bindPlanes(n *ir.Node, groups int, epsilon float32) (*bound, error) {
	shape := shapeOf(n.Inputs[0])
	if !f32(n) || prod(shape) == 0 {
		return nil, nil
	}
	channels, plane := shape[1], prod(shape[2:])
	per, factors := channels/groups, shapeOf(n.Inputs[1])[0]
	return &bound{inplace: 0, alone: true, pieces: func(x *exec, in, out []*tensor.Tensor, finish finisher) func() error {
		var src, dst, scale, shift []float32
		some := func(worker, i int) {
			row, g := src[i*per*plane:][:per*plane], i%groups
			mean, inv := moments(row, epsilon)
			p := piecemeal{finish, worker, i * per * plane, (i + 1) * per * plane}
			for c := range per {
				at := (g*per + c) * factors / channels
				end := (i*per + c + 1) * plane
				for from := end - plane; from < end; from += nearby {
					to := min(from+nearby, end)
					normalise(dst[from:to], src[from:to], mean, inv*scale[at], shift[at])
					p.made(to)
				}
			}
		}
		return func() error {
			src, dst, scale, shift = in[0].F32s(), out[0].F32s(), in[1].F32s(), in[2].F32s()
			x.pool.For(shape[0]*groups, some)
			return nil
		}
	}}, nil
}

// nearby is how many elements lie in the level 1 cache between two passes over them.
const nearby = 4096

// moments returns the mean of x and the reciprocal of its standard deviation, whose square has epsilon added. Sums of blocks
// are added in float64, and so is each element where a float32 does not hold their sum.
func moments(x []float32, epsilon float32) (mean, inv float32) {
	n := float64(len(x))
	m := total(x, vec.Sum, func(v float64) float64 { return v }) / n
	squares := total(x, func(b []float32) float32 { return vec.SumSquares(b, float32(m)) }, func(v float64) float64 { return (v - m) * (v - m) })
	return float32(m), float32(1 / math.Sqrt(squares/n+float64(epsilon)))
}

// total adds what sum makes of blocks of x, or what each makes of an element where sum leaves the range of float32.
func total(x []float32, sum func([]float32) float32, each func(float64) float64) float64 {
	all := 0.0
	for b := range slices.Chunk(x, nearby) {
		all += float64(sum(b))
	}
	if !math.IsInf(all, 0) && !math.IsNaN(all) {
		return all
	}
	all = 0
	for _, v := range x {
		all += each(float64(v))
	}
	return all
}

// normalise computes y = (x - mean)*scale + shift. The difference is rounded first, since x*scale - mean*scale would lose what
// a large mean leaves of it.
func normalise(y, x []float32, mean, scale, shift float32) {
	vec.Affine(y, x, 1, -mean, -inf, inf)
	vec.Affine(y, y, scale, shift, -inf, inf)
}

func bindLpNorm(_ *program, n *ir.Node) (*bound, error) {
	o, shape := n.Op.(*op.LpNormalization), shapeOf(n.Inputs[0])
	if !f32(n) || prod(shape) == 0 {
		return nil, nil
	}
	axis := o.Axis
	if axis < 0 {
		axis += len(shape)
	}
	l := newLines(shape, func(a int) bool { return a == axis })
	if l.joined {
		return bindRowsOf(n, l.run, func(y, x []float32) { lpNormalise(y, x, o.P) }), nil
	}
	return &bound{inplace: -1, scratch: 3 * columns, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, dst []float32
		run := l.each(x, func(worker, _, from, n int) { l.lpNormalise(dst, src, from, n, o.P, x.scratch[worker]) })
		return func() error {
			src, dst = in[0].F32s(), out[0].F32s()
			run()
			return nil
		}
	}}, nil
}

// lpNormalise divides n lines side by side by their norms, the first from an element on.
func (l *lines) lpNormalise(dst, src []float32, from, n, p int, scratch []float32) {
	j := joinings["ReduceL1"]
	if p == 2 {
		j = joinings["ReduceL2"]
	}
	norms := scratch[2*columns:][:n]
	l.joinRows(&j, norms, src, from, scratch)
	if j.last != nil {
		j.last(norms, l.rows)
	}
	factors := scratch[:n]
	for i, v := range norms {
		if factors[i] = 0; ordinary(float64(v)) {
			factors[i] = float32(1 / float64(v))
		}
	}
	for r := range l.rows {
		at := from + offset(l.along, r)
		vec.Mul(dst[at:][:n], src[at:][:n], factors)
	}
	for i, v := range norms {
		if ordinary(float64(v)) {
			continue
		}
		norm := 0.0
		for r := range l.rows {
			norm += math.Pow(math.Abs(float64(src[from+offset(l.along, r)+i])), float64(p))
		}
		norm = math.Pow(norm, 1/float64(p))
		for r := range l.rows {
			at := from + offset(l.along, r) + i
			if dst[at] = src[at]; norm != 0 {
				dst[at] = float32(float64(src[at]) / norm)
			}
		}
	}
}

// ordinary reports whether no square was lost to underflow, and 1/norm is a normal number.
func ordinary(norm float64) bool { return norm > 1e-15 && norm < 1e30 }

// lpNormalise divides x by its norm, the sum of magnitudes or the root of that of squares; zeros stay.
func lpNormalise(y, x []float32, p int) {
	norm := 0.0
	if p == 2 {
		norm = math.Sqrt(total(x, func(b []float32) float32 { return vec.SumSquares(b, 0) }, func(v float64) float64 { return v * v }))
	} else {
		for _, v := range x {
			norm += math.Abs(float64(v))
		}
	}
	if inf := float32(math.Inf(1)); ordinary(norm) {
		vec.Affine(y, x, float32(1/norm), 0, -inf, inf)
		return
	}
	norm = 0
	for _, v := range x {
		norm += math.Pow(math.Abs(float64(v)), float64(p))
	}
	norm = math.Pow(norm, 1/float64(p))
	for i, v := range x {
		if y[i] = v; norm != 0 {
			y[i] = float32(float64(v) / norm)
		}
	}
}
