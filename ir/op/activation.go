package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// onFloats is unaryDef for operators that take only floats.
func onFloats(f func(float64) float64) unaryDef { return unaryDef{float: f} }

// eval1 is an Eval that applies d to the only input.
func eval1(in []*tensor.Tensor, d unaryDef) ([]*tensor.Tensor, error) { return one(d.apply(in[0])) }

// Celu is max(0, x) + min(0, alpha (exp(x/alpha) - 1)) of each element (Barron,
// Continuously differentiable exponential linear units, 2017).
type Celu struct {
	pointwise
	Alpha float32 `attr:"alpha,1"`
}

// Kind is Celu.
func (*Celu) Kind() string { return "Celu" }

func (o *Celu) def() unaryDef {
	a := float64(o.Alpha)
	return onFloats(func(x float64) float64 { return max(0, x) + min(0, a*math.Expm1(x/a)) })
}

// Infer keeps the type.
func (o *Celu) Infer(c *ir.Infer) error {
	if o.Alpha == 0 {
		return c.Errorf("alpha is 0, want another number")
	}
	return inferUnary(c, o.def())
}

// Eval applies the function.
func (o *Celu) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Grad multiplies by the derivative.
func (o *Celu) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return gradEach(c, in, out, dout, func(x, _ float64) float64 {
		if x < 0 {
			return math.Exp(x / float64(o.Alpha))
		}
		return 1
	})
}

// Elu is x, or alpha (exp(x) - 1) where that is negative, of each element.
type Elu struct {
	pointwise
	Alpha float32 `attr:"alpha,1"`
}

// Kind is Elu.
func (*Elu) Kind() string { return "Elu" }

func (o *Elu) def() unaryDef {
	a := float64(o.Alpha)
	return onFloats(func(x float64) float64 {
		if x < 0 {
			return a * math.Expm1(x)
		}
		return x
	})
}

// Infer keeps the type.
func (o *Elu) Infer(c *ir.Infer) error { return inferUnary(c, o.def()) }

// Eval applies the function.
func (o *Elu) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Grad multiplies by the derivative.
func (o *Elu) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return gradEach(c, in, out, dout, func(x, y float64) float64 {
		if x < 0 {
			return y + float64(o.Alpha)
		}
		return 1
	})
}

// Gelu is x times the normal distribution function at x of each element, exactly
// or by its approximation with tanh (Hendrycks and Gimpel, Gaussian error linear
// units, 2016).
type Gelu struct {
	pointwise
	Approximate string `attr:"approximate,none"`
}

// Kind is Gelu.
func (*Gelu) Kind() string { return "Gelu" }

func (o *Gelu) def() unaryDef {
	return onFloats(func(x float64) float64 { return gelu(x, o.Approximate == "tanh") })
}

// Infer keeps the type.
func (o *Gelu) Infer(c *ir.Infer) error {
	if o.Approximate != "none" && o.Approximate != "tanh" {
		return c.Errorf("approximate is %q, want none or tanh", o.Approximate)
	}
	return inferUnary(c, o.def())
}

// Eval applies the function.
func (o *Gelu) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Grad multiplies by the derivative.
func (o *Gelu) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if o.Approximate == "tanh" {
		return gradEach(c, in, out, dout, func(x, _ float64) float64 {
			const a, b = 0.7978845608028654, 0.044715 // sqrt(2/pi)
			t := math.Tanh(a * (x + b*x*x*x))
			return 0.5 * (1 + t + x*(1-t*t)*a*(1+3*b*x*x))
		})
	}
	return gradEach(c, in, out, dout, func(x, _ float64) float64 {
		return 0.5*math.Erfc(-x/math.Sqrt2) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	})
}

// HardSigmoid is alpha x + beta of each element, clipped to 0..1.
type HardSigmoid struct {
	pointwise
	Alpha float32 `attr:"alpha,0.2"`
	Beta  float32 `attr:"beta,0.5"`
}

// Kind is HardSigmoid.
func (*HardSigmoid) Kind() string { return "HardSigmoid" }

func (o *HardSigmoid) def() unaryDef {
	a, b := float64(o.Alpha), float64(o.Beta)
	return onFloats(func(x float64) float64 { return max(0, min(1, a*x+b)) })
}

// Infer keeps the type.
func (o *HardSigmoid) Infer(c *ir.Infer) error { return inferUnary(c, o.def()) }

// Eval applies the function.
func (o *HardSigmoid) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Grad multiplies by the derivative.
func (o *HardSigmoid) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return gradEach(c, in, out, dout, func(x, _ float64) float64 {
		if v := float64(o.Alpha)*x + float64(o.Beta); v <= 0 || v >= 1 {
			return 0
		}
		return float64(o.Alpha)
	})
}

// LeakyRelu is x, or alpha x where x is negative, of each element.
type LeakyRelu struct {
	pointwise
	Alpha float32 `attr:"alpha,0.01"`
}

// Kind is LeakyRelu.
func (*LeakyRelu) Kind() string { return "LeakyRelu" }

func (o *LeakyRelu) def() unaryDef {
	a := float64(o.Alpha)
	return onFloats(func(x float64) float64 {
		if x < 0 {
			return a * x
		}
		return x
	})
}

// Infer keeps the type.
func (o *LeakyRelu) Infer(c *ir.Infer) error { return inferUnary(c, o.def()) }

// Eval applies the function.
func (o *LeakyRelu) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Grad multiplies by the derivative.
func (o *LeakyRelu) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return gradEach(c, in, out, dout, func(x, _ float64) float64 {
		if x < 0 {
			return float64(o.Alpha)
		}
		return 1
	})
}

// Selu is gamma x, or gamma alpha (exp(x) - 1) where x is negative, of each
// element (Klambauer et al., Self-normalizing neural networks, 2017).
type Selu struct {
	pointwise
	Alpha float32 `attr:"alpha,1.67326319217681884765625"`
	Gamma float32 `attr:"gamma,1.05070102214813232421875"`
}

// Kind is Selu.
func (*Selu) Kind() string { return "Selu" }

func (o *Selu) def() unaryDef {
	a, g := float64(o.Alpha), float64(o.Gamma)
	return onFloats(func(x float64) float64 {
		if x <= 0 {
			return g * a * math.Expm1(x)
		}
		return g * x
	})
}

// Infer keeps the type.
func (o *Selu) Infer(c *ir.Infer) error { return inferUnary(c, o.def()) }

// Eval applies the function.
func (o *Selu) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Grad multiplies by the derivative.
func (o *Selu) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return gradEach(c, in, out, dout, func(x, y float64) float64 {
		if x <= 0 {
			return y + float64(o.Gamma)*float64(o.Alpha)
		}
		return float64(o.Gamma)
	})
}

// upgradeSelu gives opset 1 its shorter constants.
func upgradeSelu(l *Legacy) error {
	l.Take("consumed_inputs")
	if l.Opset < 6 {
		l.Default("alpha", float32(1.6732))
		l.Default("gamma", float32(1.0507))
	}
	return nil
}

// Shrink takes Bias off the magnitude of each element above Lambd; the others
// become zero.
type Shrink struct {
	pointwise
	Bias  float32 `attr:"bias,0"`
	Lambd float32 `attr:"lambd,0.5"`
}

// Kind is Shrink.
func (*Shrink) Kind() string { return "Shrink" }

func (o *Shrink) def() unaryDef {
	bias, lambd := float64(o.Bias), float64(o.Lambd)
	f := func(x float64) float64 {
		switch {
		case x < -lambd:
			return x + bias
		case x > lambd:
			return x - bias
		}
		return 0
	}
	return unaryDef{f,
		func(x int64) int64 { return int64(f(float64(x))) },
		func(x uint64) uint64 { return uint64(int64(f(float64(x)))) }}
}

// Infer keeps the type.
func (o *Shrink) Infer(c *ir.Infer) error { return inferUnary(c, o.def()) }

// Eval applies the function.
func (o *Shrink) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Swish is x sigmoid(alpha x) of each element; with alpha 1 it is SiLU
// (Ramachandran et al., Searching for activation functions, 2017).
type Swish struct {
	pointwise
	Alpha float32 `attr:"alpha,1"`
}

// Kind is Swish.
func (*Swish) Kind() string { return "Swish" }

func (o *Swish) def() unaryDef {
	a := float64(o.Alpha)
	return onFloats(func(x float64) float64 { return x * sigmoid(a*x) })
}

// Infer keeps the type.
func (o *Swish) Infer(c *ir.Infer) error { return inferUnary(c, o.def()) }

// Eval applies the function.
func (o *Swish) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Grad multiplies by the derivative.
func (o *Swish) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return gradEach(c, in, out, dout, func(x, y float64) float64 {
		s := sigmoid(float64(o.Alpha) * x)
		return s + float64(o.Alpha)*y*(1-s)
	})
}

// ThresholdedRelu is x where it is above alpha, else zero, of each element.
type ThresholdedRelu struct {
	pointwise
	Alpha float32 `attr:"alpha,1"`
}

// Kind is ThresholdedRelu.
func (*ThresholdedRelu) Kind() string { return "ThresholdedRelu" }

func (o *ThresholdedRelu) def() unaryDef {
	a := float64(o.Alpha)
	return onFloats(func(x float64) float64 {
		if x > a {
			return x
		}
		return 0
	})
}

// Infer keeps the type.
func (o *ThresholdedRelu) Infer(c *ir.Infer) error { return inferUnary(c, o.def()) }

// Eval applies the function.
func (o *ThresholdedRelu) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return eval1(in, o.def())
}

// Grad multiplies by the derivative.
func (o *ThresholdedRelu) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return gradEach(c, in, out, dout, func(x, _ float64) float64 {
		if x > float64(o.Alpha) {
			return 1
		}
		return 0
	})
}
