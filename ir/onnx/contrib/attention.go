package contrib

import (
	"spc/ir"
)

// maxHeads bounds the heads of an attention, as the operator Attention does.
const maxHeads = 1 << 16

// attention is self-attention whose Q, K and V are parts of the features of one product with a weight. The past and the
// present are those of K and of V, [2, batch, heads, tokens, depth].
func attention(c *call) []*ir.Value {
	var o struct {
		Heads    int     `attr:"num_heads,0"`
		Causal   bool    `attr:"unidirectional,0"`
		Sizes    []int   `attr:"qkv_hidden_sizes"`
		Filter   float32 `attr:"mask_filter_value,-10000"`
		Scale    float32 `attr:"scale,0"`
		Rotary   bool    `attr:"do_rotary,0"`
		RotaryOf int     `attr:"rotary_embedding_dim,0"` // counts with the one before alone
		Shared   bool    `attr:"past_present_share_buffer,0"`
	}
	c.attrs(&o)
	c.wantHeads(o.Heads)
	switch {
	case o.Rotary:
		c.unsupported("do_rotary is set: ONNX Runtime's CPU does not take it either")
	case o.Shared || c.in(6) != nil:
		c.unsupported("past_present_share_buffer: the past and the present in one buffer")
	case c.in(4) != nil && c.in(5) != nil:
		c.invalid("past and attention_bias do not go together")
	}
	x, w := c.dims(0, 3), c.dims(1, 2)
	if differ(x[2], w[0]) {
		c.invalid("weights are %v, want %v rows as input is %v", c.in(1).Type, x[2], c.in(0).Type)
	}
	sizes := c.hiddenSizes(c.size(w[1], "the number of the weights' columns"), o.Heads, o.Sizes)
	c.vector(2, "bias", w[1])
	parts := c.split(c.bias(c.make("MatMul", nil, c.in(0), c.in(1)), 2), sizes...)
	a := &attending{call: c, heads: o.Heads, scale: o.Scale, filter: o.Filter, causal: o.Causal, same: true, q: parts[0], k: parts[1], v: parts[2]}
	present := a.present(4, sizes)
	if c.in(3) != nil {
		a.pad(3, true)
	}
	if c.in(5) != nil {
		a.offset(5)
	}
	return []*ir.Value{a.attend(), present}
}

// wantHeads checks the number of heads.
func (c *call) wantHeads(n int) {
	if n < 1 || n > maxHeads {
		c.invalid("num_heads is missing or not within 1 and %d", maxHeads)
	}
}

// hiddenSizes returns the sizes of the parts Q, K and V of all features, which are equal unless some are given.
func (c *call) hiddenSizes(all, heads int, given []int) []int {
	sizes := given
	if sizes == nil {
		if all%3 != 0 {
			c.invalid("weights have %d columns, want a multiple of 3", all)
		}
		sizes = []int{all / 3, all / 3, all / 3}
	}
	if len(sizes) != 3 || sizes[0] != sizes[1] {
		c.invalid("qkv_hidden_sizes is %v, want 3 sizes of which the first two are the same", sizes)
	}
	total := 0
	for _, n := range sizes {
		if n < 1 || n > all || n%heads != 0 {
			c.invalid("hidden sizes are %v, want multiples of num_heads, %d, that sum up to %d", sizes, heads, all)
		}
		total += n
	}
	if total != all {
		c.invalid("qkv_hidden_sizes is %v, want %d in sum as weights have columns", sizes, all)
	}
	return sizes
}

// present puts the past in an input before K and V, and returns both together, nil where nobody wants that.
func (a *attending) present(past int, sizes []int) *ir.Value {
	c := a.call
	if c.in(past) == nil && !c.wants(1) {
		return nil
	}
	if sizes[1] != sizes[2] {
		c.invalid("hidden sizes are %v, want the same ones of K and V for what is past or present", sizes)
	}
	key, value := a.k, a.v
	if c.in(past) == nil {
		key, value = a.byHead(key), a.byHead(value)
	} else {
		d := c.dims(past, 5)
		want := []ir.Dim{ir.Size(2), a.q.Type.Dims[0], ir.Size(a.heads), d[3], ir.Size(sizes[1] / a.heads)}
		for i, n := range want {
			if differ(d[i], n) {
				c.invalid("past is %v, want %v", c.in(past).Type, ir.Of(a.q.Type.DType, want...))
			}
		}
		key, value = a.prepend(c.pick(c.in(past), 0, 0), c.pick(c.in(past), 0, 1))
	}
	if !c.wants(1) {
		return nil
	}
	zero := c.ints(0)
	return c.make("Concat", attrs{"axis": 0}, c.make("Unsqueeze", nil, key, zero), c.make("Unsqueeze", nil, value, zero))
}
