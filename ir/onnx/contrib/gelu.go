package contrib

import "spc/ir"

// gelu is x * P(X <= x) for a standard normal X.
func gelu(c *call) []*ir.Value {
	c.attrs(&struct{}{})
	return []*ir.Value{c.make("Gelu", nil, c.in(0))}
}

// biasGelu is gelu of the sum of its inputs, the second of which is a vector.
func biasGelu(c *call) []*ir.Value {
	c.attrs(&struct{}{})
	return []*ir.Value{c.make("Gelu", nil, c.bias(c.in(0), 1))}
}

// fastGelu is gelu in the form of a hyperbolic tangent, of the sum of its inputs.
func fastGelu(c *call) []*ir.Value {
	c.attrs(&struct{}{})
	return []*ir.Value{c.make("Gelu", attrs{"approximate": "tanh"}, c.bias(c.in(0), 1))}
}

// quickGelu is x * sigmoid(alpha * x).
func quickGelu(c *call) []*ir.Value {
	var a struct {
		Alpha float32 `attr:"alpha,1.702"`
	}
	c.attrs(&a)
	x := c.in(0)
	gate := x
	if a.Alpha != 1 {
		gate = c.make("Mul", nil, x, c.scalar(float64(a.Alpha), x))
	}
	return []*ir.Value{c.make("Mul", nil, x, c.make("Sigmoid", nil, gate))}
}

// bias adds input i, a vector as long as the last dimension of x, where it is there.
func (c *call) bias(x *ir.Value, i int) *ir.Value {
	if c.in(i) == nil {
		return x
	}
	c.dims(i, 1)
	return c.make("Add", nil, x, c.in(i))
}
