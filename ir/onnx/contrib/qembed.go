package contrib

import (
	"spc/ir"
	"spc/ir/tensor"
)

// The inputs of QEmbedLayerNormalization up to the mask are those of EmbedLayerNormalization; behind it are the scales of
// the tables, gamma and beta, and then their zero points.
const (
	qembedScales = embedMask + 1
	qembedZeros  = qembedScales + embedBeta - embedWords + 1
)

// qEmbedLayerNormalization is embedLayerNormalization of tables, a gamma and a beta of integers. Rows of the tables become
// floats once they are looked up.
func qEmbedLayerNormalization(c *call) []*ir.Value {
	var o struct {
		Epsilon float32 `attr:"epsilon,1e-12"`
	}
	c.attrs(&o)
	c.typed(embedIDs, tensor.I32, tensor.I64)
	for i := embedWords; i <= embedBeta; i++ {
		if i != embedSegmentTable {
			c.required(i)
		}
	}
	ids, hidden := c.dims(embedIDs, 2), c.dims(embedWords, 2)[1]
	for _, i := range []int{embedSegments, embedMask} {
		if v := c.in(i); v != nil && (differ(c.dims(i, 2)[0], ids[0]) || differ(v.Type.Dims[1], ids[1])) {
			c.invalid("input %d is %v, want the shape of %v", i, v.Type, c.in(embedIDs).Type)
		}
	}
	if (c.in(embedSegments) == nil) != (c.in(embedSegmentTable) == nil) {
		c.invalid("segment_ids and segment_embedding must come together")
	}
	row := func(i int, at *ir.Value) *ir.Value {
		if differ(c.dims(i, 2)[1], hidden) {
			c.invalid("input %d is %v, want %v columns", i, c.in(i).Type, hidden)
		}
		return c.embedded(i, c.rows(i, at))
	}
	sum := c.make("Add", nil, row(embedWords, c.in(embedIDs)), row(embedPositions, c.order(embedIDs)))
	if c.in(embedSegments) != nil {
		sum = c.make("Add", nil, sum, row(embedSegmentTable, c.in(embedSegments)))
	}
	c.vector(embedGamma, "gamma", hidden)
	c.vector(embedBeta, "beta", hidden)
	gamma, beta := c.embedded(embedGamma, c.in(embedGamma)), c.embedded(embedBeta, c.in(embedBeta))
	out := c.layerNorm(sum, o.Epsilon, gamma, beta, false)[:1]
	if c.wants(1) {
		out = append(out, c.ones())
	}
	return out
}

// embedded makes floats of x, which is of input i, by the quantisation of that.
func (c *call) embedded(i int, x *ir.Value) *ir.Value {
	dt := c.typed(i, bytes8...).Type.DType
	return c.dequantise(x, quantisation{c.number(qembedScales+i-embedWords, tensor.F32), c.zero(qembedZeros+i-embedWords, dt)})
}
