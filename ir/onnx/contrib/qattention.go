package contrib

import (
	"spc/ir"
	"spc/ir/tensor"
)

// The inputs of QAttention.
const (
	qattnX = iota
	qattnWeight
	qattnBias
	qattnScale
	qattnWeightScale
	qattnMask
	qattnZero
	qattnWeightZero
	qattnPast
)

// qAttention is attention of an input and a weight of integers, whose product is as of matMulIntegerToFloat. What follows computes
// in floats.
func qAttention(c *call) []*ir.Value {
	var o struct {
		Heads  int     `attr:"num_heads,0"`
		Causal bool    `attr:"unidirectional,0"`
		Filter float32 `attr:"mask_filter_value,-10000"`
		Scale  float32 `attr:"scale,0"`
		Rotary bool    `attr:"do_rotary,0"`
		Shared bool    `attr:"past_present_share_buffer,0"`
	}
	c.attrs(&o)
	c.wantHeads(o.Heads)
	switch {
	case o.Rotary:
		c.unsupported("do_rotary is set: ONNX Runtime's CPU does not take it either")
	case o.Shared:
		c.unsupported("past_present_share_buffer: the past and the present in one buffer")
	}
	x := c.typed(qattnX, bytes8...)
	in, w := c.dims(qattnX, 3), c.dims(qattnWeight, 2)
	if differ(in[2], w[0]) {
		c.invalid("weights are %v, want %v rows as input is %v", c.in(qattnWeight).Type, in[2], x.Type)
	}
	sizes := c.hiddenSizes(c.size(w[1], "the number of the weights' columns"), o.Heads, nil)
	c.typed(qattnBias, tensor.F32)
	c.vector(qattnBias, "bias", w[1])
	left := c.dequantise(x, quantisation{c.number(qattnScale, tensor.F32), c.zero(qattnZero, x.Type.DType)})
	y := c.make("MatMul", nil, left, c.columns(qattnWeight, qattnWeightScale, qattnWeightZero))
	parts := c.split(c.bias(y, qattnBias), sizes...)
	a := &attending{call: c, heads: o.Heads, scale: o.Scale, filter: o.Filter, causal: o.Causal, same: true, q: parts[0], k: parts[1], v: parts[2]}
	present := a.present(qattnPast, sizes)
	if c.in(qattnMask) != nil {
		a.pad(qattnMask, true)
	}
	return []*ir.Value{a.attend(), present}
}
