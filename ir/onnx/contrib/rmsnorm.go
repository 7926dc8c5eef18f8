package contrib

import "spc/ir"

// simplifiedLayerNorm is RMSNormalization, whose second output is the inverse of the root mean square.
func simplifiedLayerNorm(c *call) []*ir.Value {
	var a struct {
		Axis    int     `attr:"axis,-1"`
		Epsilon float32 `attr:"epsilon,1e-5"`
		Stash   int     `attr:"stash_type,1"`
	}
	c.attrs(&a)
	x := c.in(0)
	out := []*ir.Value{c.make("RMSNormalization", attrs{"axis": a.Axis, "epsilon": a.Epsilon, "stash_type": a.Stash}, x, c.in(1))}
	if c.wants(1) {
		out = append(out, c.inverseRMS(x, a.Axis, a.Epsilon))
	}
	return out
}

// skipSimplifiedLayerNorm is RMSNormalization, over the last axis, of the sum of its input, skip and a bias.
func skipSimplifiedLayerNorm(c *call) []*ir.Value {
	var a struct {
		Epsilon float32 `attr:"epsilon,1e-5"`
	}
	c.attrs(&a)
	c.dims(0, 2, 3)
	c.dims(2, 1)
	x := c.bias(c.make("Add", nil, c.in(0), c.in(1)), 3)
	out := []*ir.Value{c.make("RMSNormalization", attrs{"epsilon": a.Epsilon}, x, c.in(2)), nil, nil, x}
	if c.wants(1) {
		c.unsupported("the output mean is wanted, which ONNX Runtime leaves undefined")
	}
	if c.wants(2) {
		out[2] = c.inverseRMS(x, -1, a.Epsilon)
	}
	return out
}

// inverseRMS is 1/sqrt(mean(x*x) + epsilon) over the axes from axis on, which stay with size 1.
func (c *call) inverseRMS(x *ir.Value, axis int, epsilon float32) *ir.Value {
	r := x.Type.Rank()
	if !x.Type.Ranked {
		c.unsupported("the rank of input 0 is not known")
	}
	if axis < 0 {
		axis += r
	}
	if axis < 0 || axis >= r {
		c.invalid("axis is %d, want an axis of %v", axis, x.Type)
	}
	axes := make([]int, 0, r)
	for i := axis; i < r; i++ {
		axes = append(axes, i)
	}
	mean := c.make("ReduceMean", nil, c.make("Mul", nil, x, x), c.ints(axes...))
	root := c.make("Sqrt", nil, c.make("Add", nil, mean, c.scalar(float64(epsilon), mean)))
	return c.make("Reciprocal", nil, root)
}
