package contrib

import "spc/ir/tensor"

func rotaryEmbedding(m *Maker) {
	c := m.Case("a scalar offset")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(1, 2, 4, 24)), c.Input("ids", tensor.Scalar(int64(3))),
		c.Weight("cos", m.Floats(1, 10, 4)), c.Weight("sin", m.Floats(1, 10, 4))}, "y")
	for _, interleaved := range []int{0, 1} {
		for _, one := range []bool{true, false} {
			ids := func(c *Case, b, s int) string {
				if one {
					return c.Input("ids", tensor.Ints(m.IntN(3)))
				}
				return c.Input("ids", m.Ints(tensor.I64, 0, 9, b, s))
			}
			c = m.Case("interleaved %d, offset %v, rank 4", interleaved, one)
			c.Node(m.kind, Attrs{"interleaved": interleaved}, []string{c.Input("x", m.Floats(1, 2, 3, 4, 8)), ids(c, 2, 4),
				c.Weight("cos", m.Floats(1, 10, 4)), c.Weight("sin", m.Floats(1, 10, 4))}, "y")
			c = m.Case("interleaved %d, offset %v, rank 3", interleaved, one)
			c.Node(m.kind, Attrs{"interleaved": interleaved}, []string{c.Input("x", m.Floats(1, 2, 4, 24)), ids(c, 2, 4),
				c.Weight("cos", m.Floats(1, 10, 4)), c.Weight("sin", m.Floats(1, 10, 4))}, "y")
			c = m.Case("interleaved %d, offset %v, part of a head", interleaved, one)
			c.Node(m.kind, Attrs{"interleaved": interleaved, "num_heads": 2, "rotary_embedding_dim": 4}, []string{c.Input("x", m.Floats(1, 2, 4, 16)), ids(c, 2, 4),
				c.Weight("cos", m.Floats(1, 10, 2)), c.Weight("sin", m.Floats(1, 10, 2))}, "y")
			c = m.Case("interleaved %d, offset %v, open", interleaved, one)
			c.Node(m.kind, Attrs{"interleaved": interleaved, "num_heads": 3}, []string{c.Input("x", m.Floats(1, 1, 5, 24), "batch", "tokens"), ids(c, 1, 5),
				c.Input("cos", m.Floats(1, 10, 4)), c.Input("sin", m.Floats(1, 10, 4))}, "y")
			c = m.Case("interleaved %d, offset %v, scale", interleaved, one)
			c.Node(m.kind, Attrs{"interleaved": interleaved, "scale": float32(0.5)}, []string{c.Input("x", m.Floats(1, 1, 2, 3, 4)), ids(c, 1, 3),
				c.Weight("cos", m.Floats(1, 10, 2)), c.Weight("sin", m.Floats(1, 10, 2))}, "y")
		}
	}
}
