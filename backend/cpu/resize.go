package cpu

import (
	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindResize resamples the last three axes, or fewer: rows of the input along
// their length, then the rows of each plane, then planes.
func bindResize(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Resize)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if n.Inputs[0].Type.DType != tensor.F32 || len(xs) == 0 || prod(xs) == 0 || prod(ys) == 0 {
		return nil, nil
	}
	scales, ok1 := constantF32(n, 2)
	sizes, ok2 := constInts(n, 3)
	if !ok1 || !ok2 {
		return nil, nil
	}
	if len(scales) > 0 {
		sizes = nil
	}
	axes, ok, err := o.Samplings(xs, scales, sizes)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	if !ok {
		return nil, nil
	}
	for len(xs) < 3 {
		xs, ys, axes = append([]int{1}, xs...), append([]int{1}, ys...), append([]*op.Sampling{nil}, axes...)
	}
	last := len(xs) - 1
	for _, s := range axes[:last-2] {
		if s != nil {
			return nil, nil
		}
	}
	r := &resize{h: xs[last-1], w: xs[last], oh: ys[last-1], ow: ys[last], rows: newSampling(axes[last-1]), cols: newSampling(axes[last])}
	if r.cols != nil && r.cols.taps == 1 {
		r.factor = r.ow / r.w
		for j, p := range r.cols.from {
			if r.ow%r.w != 0 || p != j/r.factor {
				r.factor = 0
				break
			}
		}
	}
	if planes := newSampling(axes[last-2]); planes != nil {
		return r.volumes(n, planes, xs[last-2], ys[last-2]), nil
	}
	return boundPlanes(n, r.scratch(), r.h*r.w, r.oh*r.ow, r.run), nil
}

// volumes resamples the planes of volumes, and then joins them.
func (r *resize) volumes(n *ir.Node, s *sampling, depth, results int) *bound {
	in, out := r.h*r.w, r.oh*r.ow
	return boundPlanes(n, r.scratch()+depth*out, depth*in, results*out, func(volumes int, y, x, scratch []float32) {
		planes := scratch[:depth*out]
		for v := range volumes {
			r.run(depth, planes, x[v*depth*in:], scratch[depth*out:])
			for d := range results {
				to := y[(v*results+d)*out:][:out]
				if s.taps == 1 {
					copy(to, planes[s.from[d]*out:])
					continue
				}
				s.join(to, d, func(p int) []float32 { return planes[p*out:] })
			}
		}
	})
}

// join computes a row of results of the rows that it is made of.
func (s *sampling) join(to []float32, result int, row func(p int) []float32) {
	for t, p := range s.from[result*s.taps:][:s.taps] {
		w := s.weight[result*s.taps+t]
		if t == 0 {
			vec.Affine(to, row(p), w, 0, -inf, inf)
		} else {
			vec.Axpy(to, w, row(p)[:len(to)])
		}
	}
}

// sampling is an op.Sampling in f32.
type sampling struct {
	taps   int
	from   []int
	weight []float32
}

func newSampling(s *op.Sampling) *sampling {
	if s == nil {
		return nil
	}
	w := make([]float32, len(s.Weight))
	for i, v := range s.Weight {
		w[i] = float32(v)
	}
	return &sampling{s.Taps, s.From, w}
}

// resize resamples planes.
type resize struct {
	h, w, oh, ow int
	rows, cols   *sampling // nil for an axis that stays as it is
	factor       int       // how often each column is repeated, 0 where that is not all
}

// scratch holds the resampled rows that a row of output is made of.
func (r *resize) scratch() int {
	if r.rows == nil || r.rows.taps == 1 {
		return 0
	}
	return r.rows.taps * r.ow
}

func (r *resize) run(planes int, y, x, scratch []float32) {
	for p := range planes {
		r.plane(y[p*r.oh*r.ow:][:r.oh*r.ow], x[p*r.h*r.w:][:r.h*r.w], scratch)
	}
}

func (r *resize) plane(y, x, scratch []float32) {
	if r.rows == nil || r.rows.taps == 1 {
		before := -1
		for i := range r.oh {
			from, to := i, y[i*r.ow:][:r.ow]
			if r.rows != nil {
				from = r.rows.from[i]
			}
			if from == before {
				copy(to, y[(i-1)*r.ow:i*r.ow])
				continue
			}
			r.row(to, x[from*r.w:][:r.w])
			before = from
		}
		return
	}
	taps := r.rows.taps
	// Row p is kept at p modulo taps: the rows of a tap follow each other.
	next := 0 // the first row that has not been resampled
	for i := range r.oh {
		from := r.rows.from[i*taps:][:taps]
		for next = max(next, from[0]); next <= from[taps-1]; next++ {
			r.row(scratch[next%taps*r.ow:][:r.ow], x[next*r.w:][:r.w])
		}
		r.rows.join(y[i*r.ow:][:r.ow], i, func(p int) []float32 { return scratch[p%taps*r.ow:] })
	}
}

// row resamples a row.
func (r *resize) row(y, x []float32) {
	switch s := r.cols; {
	case s == nil:
		copy(y, x)
	case r.factor == 2:
		y = y[:2*len(x)]
		for j, v := range x {
			y[2*j], y[2*j+1] = v, v
		}
	case r.factor > 0:
		for j, v := range x {
			d := y[j*r.factor:][:r.factor]
			for k := range d {
				d[k] = v
			}
		}
	case s.taps == 1:
		for j, p := range s.from {
			y[j] = x[p]
		}
	case s.taps == 2:
		from, w := s.from[:2*len(y)], s.weight[:2*len(y)]
		for j := range y {
			y[j] = w[2*j]*x[from[2*j]] + w[2*j+1]*x[from[2*j+1]]
		}
	default:
		for j := range y {
			v := float32(0)
			for t := j * s.taps; t < (j+1)*s.taps; t++ {
				v += s.weight[t] * x[s.from[t]]
			}
			y[j] = v
		}
	}
}
