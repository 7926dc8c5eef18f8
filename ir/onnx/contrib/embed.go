package contrib

import (
	"spc/ir"
	"spc/ir/tensor"
)

// The inputs of EmbedLayerNormalization.
const (
	embedIDs = iota
	embedSegments
	embedWords
	embedPositions
	embedSegmentTable
	embedGamma
	embedBeta
	embedMask
	embedPositionIDs
)

// embedLayerNormalization sums up rows of tables of words, positions and segments and normalises the sum. Its further outputs
// are the number of ones of the mask of each sample, and the sum.
func embedLayerNormalization(c *call) []*ir.Value {
	var o struct {
		Epsilon float32 `attr:"epsilon,1e-12"`
		Mask    int     `attr:"mask_index_type,0"` // of which ONNX Runtime's CPU takes no notice
	}
	c.attrs(&o)
	for _, i := range []int{embedWords, embedPositions, embedGamma, embedBeta} {
		if c.in(i) == nil {
			c.invalid("input %d is absent", i)
		}
	}
	ids, hidden := c.dims(embedIDs, 2), c.dims(embedWords, 2)[1]
	for _, i := range []int{embedSegments, embedMask, embedPositionIDs} {
		if c.in(i) == nil {
			continue
		}
		d := c.dims(i, 2)
		if differ(d[1], ids[1]) || differ(d[0], ids[0]) && (i != embedPositionIDs || d[0] != ir.Size(1)) {
			c.invalid("input %d is %v, want the shape of %v", i, c.in(i).Type, c.in(embedIDs).Type)
		}
	}
	for _, i := range []int{embedPositions, embedSegmentTable} {
		if c.in(i) != nil && differ(c.dims(i, 2)[1], hidden) {
			c.invalid("input %d is %v, want %v columns", i, c.in(i).Type, hidden)
		}
	}
	c.vector(embedGamma, "gamma", hidden)
	c.vector(embedBeta, "beta", hidden)
	sum := c.make("Add", nil, c.rows(embedWords, c.in(embedIDs)), c.rows(embedPositions, c.positionIDs()))
	switch table, segments := c.in(embedSegmentTable), c.in(embedSegments); {
	case table == nil && segments != nil:
		c.invalid("segment_embedding is absent, want one as segment_ids are given")
	case table != nil && segments != nil:
		sum = c.make("Add", nil, sum, c.rows(embedSegmentTable, segments))
	case table != nil:
		sum = c.make("Add", nil, sum, c.pick(table, 0, 0))
	}
	y := c.layerNorm(sum, o.Epsilon, c.in(embedGamma), c.in(embedBeta), false)[0]
	out := []*ir.Value{y, nil, sum}
	if c.wants(1) {
		out[1] = c.ones()
	}
	return out
}

// rows are those of a table that ids name.
func (c *call) rows(table int, ids *ir.Value) *ir.Value {
	return c.make("Gather", attrs{"axis": 0}, c.in(table), ids)
}

// positionIDs are those of the input, else 0, 1 and so on.
func (c *call) positionIDs() *ir.Value {
	if p := c.in(embedPositionIDs); p != nil {
		return p
	}
	return c.order(embedIDs)
}

// order is 0, 1 and so on along the second axis of an input.
func (c *call) order(i int) *ir.Value {
	zero, one := c.constant(tensor.Scalar(int64(0))), c.constant(tensor.Scalar(int64(1)))
	return c.make("Range", nil, zero, c.length(c.in(i), 1), one)
}

// ones counts the ones of the mask of each sample: none where there is no mask.
func (c *call) ones() *ir.Value {
	x := c.in(embedMask)
	if x == nil {
		shape := c.make("Shape", attrs{"start": 0, "end": 1}, c.in(embedIDs))
		return c.make("ConstantOfShape", attrs{"value": tensor.From([]int32{0}, 1)}, shape)
	}
	is := c.make("Cast", attrs{"to": int(tensor.I32)}, c.make("Equal", nil, x, c.scalar(1, x)))
	return c.make("ReduceSum", attrs{"keepdims": 0}, is, c.ints(1))
}
