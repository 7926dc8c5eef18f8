package contrib

import "spc/ir"

// skipLayerNormalization normalises input + skip + bias along the last axis. Its further outputs are the mean and the inverse
// deviation of the sum, and the sum.
func skipLayerNormalization(c *call) []*ir.Value {
	var a struct {
		Epsilon float32 `attr:"epsilon,1e-12"`
	}
	c.attrs(&a)
	x, skip := c.dims(0, 2, 3), c.dims(1, 2, 3)
	if len(skip) > len(x) || len(skip) == len(x) && skip[0] != ir.Size(1) && differ(skip[0], x[0]) ||
		differ(skip[len(skip)-2], x[len(x)-2]) || differ(skip[len(skip)-1], x[len(x)-1]) {
		c.invalid("skip is %v, want one that broadcasts to %v along the first axis", c.in(1).Type, c.in(0).Type)
	}
	hidden := x[len(x)-1]
	for i, what := range map[int]string{2: "gamma", 3: "beta", 4: "bias"} {
		c.vector(i, what, hidden)
	}
	sum := c.bias(c.make("Add", nil, c.in(0), c.in(1)), 4)
	return append(c.layerNorm(sum, a.Epsilon, c.in(2), c.in(3), c.wants(1) || c.wants(2)), sum)
}

// layerNorm normalises along the last axis. It returns the statistics too, nil where they are not asked for.
func (c *call) layerNorm(x *ir.Value, epsilon float32, scale, bias *ir.Value, statistics bool) []*ir.Value {
	outputs := 1
	if statistics {
		outputs = 3
	}
	out := c.makes(outputs, "LayerNormalization", attrs{"axis": -1, "epsilon": epsilon}, x, scale, bias)
	return append(out, nil, nil)[:3]
}
