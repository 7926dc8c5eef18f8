package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// Softmax normalises the slices of X along an axis to exp(x)/sum(exp(x));
// LogSoftmax gives the logarithm of that, Hardmax a one at the first maximum and
// zeros elsewhere.
type Softmax struct {
	family
	Axis int `attr:"axis,-1"`
	// Flatten takes all axes from Axis on as one: the meaning of opsets below 13.
	Flatten bool `attr:"coerce_2d,0" old:"13"`
}

// Along follows the axes that are not normalised.
func (o *Softmax) Along(n *ir.Node, _, axis int) []int {
	if rank := n.Outputs[0].Type.Rank(); o.Flatten && axis >= norm(o.Axis, rank) {
		return nil
	}
	return others(n, axis, o.Axis)
}

// Infer keeps the type.
func (o *Softmax) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	x := c.In(0)
	if x.Ranked && !(o.Flatten && o.Axis == x.Rank()) {
		// A scalar is one slice under the default axis of either meaning.
		if _, err := axis(c, o.Axis, max(1, x.Rank())); err != nil {
			return err
		}
	}
	c.Set(0, x)
	return nil
}

// Eval normalises each slice in float64.
func (o *Softmax) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, 1, in); err != nil {
		return nil, err
	}
	x := in[0]
	v := x.Float64s()
	n, stride := o.lines(x)
	f := map[string]func([]float64){"Softmax": softmax, "LogSoftmax": logSoftmax, "Hardmax": hardmax}[o.kind]
	eachLine(v, n, stride, f)
	return one(tensor.FromFloat64s(x.DType(), v, x.Shape()...))
}

// lines is how many elements a slice of x has, and how far apart they lie.
func (o *Softmax) lines(x *tensor.Tensor) (n, stride int) {
	n, stride = 1, 1
	if shape := x.Shape(); len(shape) > 0 {
		a := norm(o.Axis, len(shape))
		if o.Flatten {
			n = product(shape[a:])
		} else {
			n, stride = shape[a], product(shape[a+1:])
		}
	}
	return n, stride
}

// Grad is y (g - sum(g y)) for each slice of Softmax, g - exp(y) sum(g) for LogSoftmax.
func (o *Softmax) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if o.kind == "Hardmax" {
		return nil, errNoGrad("of %s", o.kind)
	}
	n, stride := o.lines(in[0])
	return gradRows(c, in, out, dout, func(dx, g, _, y []float32) {
		for block := 0; block < len(dx); block += n * stride {
			for from := block; from < block+stride; from++ {
				var s float32
				last := from + n*stride
				if o.kind == "Softmax" {
					for i := from; i < last; i += stride {
						s += g[i] * y[i]
					}
					for i := from; i < last; i += stride {
						dx[i] = y[i] * (g[i] - s)
					}
					continue
				}
				for i := from; i < last; i += stride {
					s += g[i]
				}
				for i := from; i < last; i += stride {
					dx[i] = g[i] - float32(math.Exp(float64(y[i])))*s
				}
			}
		}
	})
}

// Forward normalises each slice.
func (o *Softmax) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	n, stride := o.lines(in[0])
	if o.kind != "Softmax" || stride != 1 {
		return o.Eval(&ir.Eval{Outputs: 1}, in)
	}
	y := c.New(in[0].Shape()...)
	x, d := in[0].F32s(), y.F32s()
	for ; len(x) > 0; x, d = x[n:], d[n:] {
		line, to := x[:n], d[:n]
		m := float32(math.Inf(-1))
		for _, v := range line {
			m = max(m, v)
		}
		var sum float32
		for i, v := range line {
			e := exp32(v - m)
			to[i] = e
			sum += e
		}
		sum = 1 / sum
		for i := range to {
			to[i] *= sum
		}
	}
	return one(y)
}

// eachLine puts what f makes of it in the place of each line of x: n elements that lie
// stride apart.
func eachLine(x []float64, n, stride int, f func(line []float64)) {
	line := make([]float64, n)
	for block := 0; block < len(x); block += n * stride {
		for from := block; from < block+stride; from++ {
			for i := range line {
				line[i] = x[from+i*stride]
			}
			f(line)
			for i, v := range line {
				x[from+i*stride] = v
			}
		}
	}
}

// maximum is the largest element, NaN where there is one.
func maximum(x []float64) float64 {
	m := math.Inf(-1)
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

func softmax(x []float64) {
	m, sum := maximum(x), 0.0
	for i, v := range x {
		x[i] = math.Exp(v - m)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

func logSoftmax(x []float64) {
	m, sum := maximum(x), 0.0
	for _, v := range x {
		sum += math.Exp(v - m)
	}
	m += math.Log(sum)
	for i := range x {
		x[i] -= m
	}
}

func hardmax(x []float64) {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	clear(x)
	x[best] = 1
}

// Work counts an exponential, a sum and a quotient for each element.
func (o *Softmax) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 5) }

// upgradeSoftmax gives opsets below 13 their default axis and meaning.
func upgradeSoftmax(l *Legacy) error {
	if l.Opset < 13 {
		l.Default("axis", 1)
		l.Attrs["coerce_2d"] = 1
	}
	return nil
}
