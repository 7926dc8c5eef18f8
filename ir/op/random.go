package op

import (
	"math"
	"math/rand/v2"

	"spc/ir"
	"spc/ir/tensor"
)

// drawing is what random operators share. They draw from a PCG generator: the
// same numbers at every evaluation where Seed is set, others each time where it
// is not.
type drawing struct {
	streaming
	Seed *float32 `attr:"seed"`
}

// Impure says that evaluating twice gives different outputs.
func (drawing) Impure() {}

func (o drawing) source() *rand.Rand {
	if o.Seed == nil {
		return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return rand.New(rand.NewPCG(uint64(math.Float32bits(*o.Seed)), 0))
}

// draw fills a tensor of a floating-point type.
func draw(dt tensor.DType, shape []int, f func() float64) ([]*tensor.Tensor, error) {
	if _, err := newOutput(dt, shape...); err != nil {
		return nil, err
	}
	v := make([]float64, product(shape))
	for i := range v {
		v[i] = f()
	}
	return one(tensor.FromFloat64s(dt, v, shape...))
}

// shaped is the shape of the numbers of RandomNormal and RandomUniform.
type shaped struct {
	DType tensor.DType `attr:"dtype,f32"`
	Shape []int        `attr:"shape"`
}

func (o shaped) infer(c *ir.Infer) error {
	if err := wantDrawable(c, o.DType); err != nil {
		return err
	}
	if _, err := tensor.Elems(o.Shape); err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Shaped(o.DType, o.Shape...))
	return nil
}

func wantDrawable(c *ir.Infer, dt tensor.DType) error {
	for _, t := range reals {
		if t == dt {
			return nil
		}
	}
	return c.Errorf("the output would be %v, want one of %v", dt, reals)
}

// like is the shape of an input, and its type where DType is absent.
type like struct {
	DType tensor.DType `attr:"dtype"`
}

func (o like) dtype(t tensor.DType) tensor.DType {
	if o.DType != tensor.Undefined {
		return o.DType
	}
	return t
}

func (o like) infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	t := c.In(0)
	t.DType = o.dtype(t.DType)
	c.Set(0, t)
	return wantDrawable(c, t.DType)
}

// normal is a normal distribution.
type normal struct {
	Mean  float32 `attr:"mean,0"`
	Scale float32 `attr:"scale,1"`
}

func (o normal) from(r *rand.Rand) func() float64 {
	return func() float64 { return float64(o.Mean) + float64(o.Scale)*r.NormFloat64() }
}

// uniform is a uniform distribution over Low..High.
type uniform struct {
	Low  float32 `attr:"low,0"`
	High float32 `attr:"high,1"`
}

func (o uniform) from(r *rand.Rand) func() float64 {
	return func() float64 { return float64(o.Low) + (float64(o.High)-float64(o.Low))*r.Float64() }
}

// RandomNormal draws a tensor of the given shape from a normal distribution.
type RandomNormal struct {
	drawing
	shaped
	normal
}

// Kind is RandomNormal.
func (*RandomNormal) Kind() string { return "RandomNormal" }

// Infer gives the shape.
func (o *RandomNormal) Infer(c *ir.Infer) error { return o.infer(c) }

// Eval draws the numbers.
func (o *RandomNormal) Eval(_ *ir.Eval, _ []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return draw(o.DType, o.Shape, o.from(o.source()))
}

// RandomNormalLike draws a tensor of its input's shape from a normal distribution.
type RandomNormalLike struct {
	drawing
	like
	normal
}

// Kind is RandomNormalLike.
func (*RandomNormalLike) Kind() string { return "RandomNormalLike" }

// Infer keeps the shape.
func (o *RandomNormalLike) Infer(c *ir.Infer) error { return o.infer(c) }

// Eval draws the numbers.
func (o *RandomNormalLike) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return draw(o.dtype(in[0].DType()), in[0].Shape(), o.from(o.source()))
}

// RandomUniform draws a tensor of the given shape from a uniform distribution.
type RandomUniform struct {
	drawing
	shaped
	uniform
}

// Kind is RandomUniform.
func (*RandomUniform) Kind() string { return "RandomUniform" }

// Infer gives the shape.
func (o *RandomUniform) Infer(c *ir.Infer) error { return o.infer(c) }

// Eval draws the numbers.
func (o *RandomUniform) Eval(_ *ir.Eval, _ []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return draw(o.DType, o.Shape, o.from(o.source()))
}

// RandomUniformLike draws a tensor of its input's shape from a uniform
// distribution.
type RandomUniformLike struct {
	drawing
	like
	uniform
}

// Kind is RandomUniformLike.
func (*RandomUniformLike) Kind() string { return "RandomUniformLike" }

// Infer keeps the shape.
func (o *RandomUniformLike) Infer(c *ir.Infer) error { return o.infer(c) }

// Eval draws the numbers.
func (o *RandomUniformLike) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return draw(o.dtype(in[0].DType()), in[0].Shape(), o.from(o.source()))
}

// Bernoulli draws ones with the probabilities that its input gives, else zeros.
type Bernoulli struct {
	drawing
	like
}

// Kind is Bernoulli.
func (*Bernoulli) Kind() string { return "Bernoulli" }

// Infer keeps the shape.
func (o *Bernoulli) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	t := c.In(0)
	if t.DType = o.dtype(t.DType); carrier(t.DType) == tensor.Undefined {
		return c.Errorf("the output would be %v, want numbers or bool", t.DType)
	}
	c.Set(0, t)
	return nil
}

// Eval draws the numbers.
func (o *Bernoulli) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	r := o.source()
	v := in[0].Float64s()
	for i, p := range v {
		v[i] = 0
		if r.Float64() < p {
			v[i] = 1
		}
	}
	return one(tensor.From(v, in[0].Shape()...).To(o.dtype(in[0].DType())))
}

// Multinomial draws classes: X[N, C] holds logarithms of unnormalised
// probabilities, and each row gives SampleSize class numbers.
type Multinomial struct {
	drawing
	DType      tensor.DType `attr:"dtype,i32"`
	SampleSize int          `attr:"sample_size,1"`
}

// Kind is Multinomial.
func (*Multinomial) Kind() string { return "Multinomial" }

// Infer gives an integer matrix [N, SampleSize].
func (o *Multinomial) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	if err := wantRank(c, 0, 2); err != nil {
		return err
	}
	x := c.In(0)
	if o.DType != tensor.I32 && o.DType != tensor.I64 {
		return c.Errorf("the output would be %v, want i32 or i64", o.DType)
	}
	if o.SampleSize < 0 || o.SampleSize > maxOutput || x.Ranked && x.Dims[1] == ir.Size(0) {
		return c.Errorf("%d samples from %v, want a positive number of classes and of samples", o.SampleSize, x)
	}
	c.Set(0, ir.Of(o.DType, dimOf(c, x, 0), ir.Size(o.SampleSize)))
	return nil
}

// Eval draws by the cumulated probabilities of each row.
func (o *Multinomial) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	n, classes := x.Dim(0), x.Dim(1)
	out, err := newOutput(tensor.I64, n, o.SampleSize)
	if err != nil {
		return nil, err
	}
	r := o.source()
	v, d := x.Float64s(), tensor.Data[int64](out)
	for i := range n {
		row := v[i*classes : (i+1)*classes]
		top, sum := largest(row), 0.0
		for k, e := range row {
			sum += math.Exp(e - top)
			row[k] = sum
		}
		for j := range o.SampleSize {
			u, k := r.Float64()*sum, 0
			for k < classes-1 && row[k] <= u {
				k++
			}
			d[i*o.SampleSize+j] = int64(k)
		}
	}
	return one(out.To(o.DType))
}
