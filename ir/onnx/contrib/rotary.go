package contrib

import "spc/ir"

// rotaryEmbedding is that of ONNX, whose positions come before the tables and may be one offset for all samples.
func rotaryEmbedding(c *call) []*ir.Value {
	var a struct {
		Interleaved bool    `attr:"interleaved,0"`
		Packed      bool    `attr:"is_packed_batching,0"`
		Heads       int     `attr:"num_heads,0"`
		Dim         int     `attr:"rotary_embedding_dim,0"`
		Scale       float32 `attr:"scale,1"` // which ONNX Runtime does not use
	}
	c.attrs(&a)
	if a.Packed {
		c.unsupported("is_packed_batching is 1")
	}
	x, d := c.in(0), c.dims(0, 3, 4)
	c.dims(2, 2)
	c.dims(3, 2)
	heads := a.Heads
	if len(d) == 3 && heads == 0 {
		depth := 2 * c.size(c.dims(2)[1], "the size of a head")
		if hidden := c.size(d[2], "the number of features"); depth == 0 || hidden%depth != 0 {
			c.invalid("input 0 is %v, whose features are no multiple of the %d of a head that the tables tell", x.Type, depth)
		} else {
			heads = hidden / depth
		}
	}
	return []*ir.Value{c.rotate(x, c.positions(x), c.in(2), c.in(3), rotation{a.Interleaved, heads, a.Dim})}
}

// rotation is how heads are turned.
type rotation struct {
	interleaved bool
	heads       int // of an input of rank 3
	dim         int // of the elements of a head that are turned; 0 for all
}

// rotate turns the heads of x at positions, [batch, tokens].
func (c *call) rotate(x, positions, cos, sin *ir.Value, r rotation) *ir.Value {
	a := attrs{"rotary_embedding_dim": r.dim}
	if r.interleaved {
		a["interleaved"] = 1
	}
	if x.Type.Rank() == 3 {
		a["num_heads"] = r.heads
	}
	return c.make("RotaryEmbedding", a, x, cos, sin, positions)
}

// positions returns the positions of the tokens of x, [batch, tokens], that input 1 gives: one for each token, or where the first token of every sample is.
func (c *call) positions(x *ir.Value) *ir.Value {
	ids := c.in(1)
	switch len(c.dims(1, 0, 1, 2)) {
	case 1:
		c.vector(1, "position_ids", ir.Size(1))
		ids = c.make("Squeeze", nil, ids, c.ints(0)) // which a run refuses of more
	case 2:
		return ids
	}
	tokens := 1 // the axis
	if x.Type.Rank() == 4 {
		tokens = 2
	}
	n := c.make("Shape", attrs{"start": tokens, "end": tokens + 1}, x)
	batch := c.make("Shape", attrs{"start": 0, "end": 1}, x)
	return c.make("Expand", nil, c.make("Add", nil, c.count(n), ids), c.make("Concat", attrs{"axis": 0}, batch, n))
}

// count returns 0, 1, ... of as many elements as n, a vector of one i64, says.
func (c *call) count(n *ir.Value) *ir.Value {
	return c.make("Range", nil, c.int(0), c.make("Squeeze", nil, n, c.ints(0)), c.int(1))
}
