package contrib

import (
	"slices"

	"spc/ir"
)

// The inputs of MultiHeadAttention.
const (
	headsQuery = iota
	headsKey
	headsValue
	headsBias
	headsPadding
	headsOffset
	headsPastKey
	headsPastValue
	headsPastLength
	headsIndirection
)

// multiHeadAttention is attention whose Q, K and V are [batch, tokens, heads*depth]; or K and V [batch, heads, tokens,
// depth]; or both in one input [batch, tokens, heads, 2, depth]; or all three in one [batch, tokens, heads, 3, depth]. A
// vector of biases of all is added first.
func multiHeadAttention(c *call) []*ir.Value {
	var o struct {
		Heads  int     `attr:"num_heads,0"`
		Causal bool    `attr:"unidirectional,0"`
		Filter float32 `attr:"mask_filter_value,-10000"`
		Scale  float32 `attr:"scale,0"`
	}
	c.attrs(&o)
	c.wantHeads(o.Heads)
	if c.in(headsPastLength) != nil || c.in(headsIndirection) != nil {
		c.unsupported("past_sequence_length and cache_indirection: the past and the present in one buffer")
	}
	a := &attending{call: c, heads: o.Heads, scale: o.Scale, filter: o.Filter, causal: o.Causal}
	a.operands()
	a.biases()
	out := make([]*ir.Value, 4)
	a.states(out)
	if c.in(headsPadding) != nil {
		a.pad(headsPadding, false)
	}
	if c.in(headsOffset) != nil {
		a.offset(headsOffset)
	}
	if c.wants(3) {
		a.scores = &out[3]
	}
	out[0] = a.attend()
	return out
}

// operands sets Q, K and V.
func (a *attending) operands() {
	c := a.call
	q, key, value := c.dims(headsQuery, 3, 5), c.in(headsKey), c.in(headsValue)
	a.q = c.in(headsQuery)
	switch {
	case len(q) == 5:
		if key != nil || value != nil {
			c.invalid("query is %v, want rank 3 as key or value is given", a.q.Type)
		}
		parts := a.unpacked(headsQuery, 3)
		a.q, a.k, a.v = parts[0], parts[1], parts[2]
	case key == nil:
		c.invalid("key is absent, want one as query is %v", a.q.Type)
	case value == nil:
		c.dims(headsKey, 5)
		parts := a.unpacked(headsKey, 2)
		a.k, a.v = parts[0], parts[1]
	default:
		a.k, a.v, a.byHeads = key, value, len(c.dims(headsKey, 3, 4)) == 4
		c.dims(headsValue, key.Type.Rank())
	}
	a.fit()
	a.same = a.queries() == a.keys()
}

// fit checks that Q, K and V fit each other and the heads.
func (a *attending) fit() {
	c := a.call
	wrong := func(what string) {
		c.invalid("query is %v, key %v and value %v: %s", a.q.Type, a.k.Type, a.v.Type, what)
	}
	hidden := c.size(a.q.Type.Dims[2], "the hidden size of query")
	if hidden%a.heads != 0 || hidden == 0 {
		wrong("the hidden size is no multiple of num_heads")
	}
	k, v := a.k.Type.Dims, a.v.Type.Dims
	tokens, width := 1, c.size(v[len(v)-1], "the hidden size of value")
	fits := []ir.Dim{ir.Size(hidden)}
	if a.byHeads {
		tokens, fits = 2, []ir.Dim{ir.Size(a.heads), ir.Size(hidden / a.heads)}
		if differ(v[1], fits[0]) || differ(k[1], fits[0]) || differ(k[3], fits[1]) {
			wrong("the heads of query are others")
		}
	} else if differ(k[2], fits[0]) || width%a.heads != 0 || width == 0 {
		wrong("the hidden size of key is another, or that of value no multiple of num_heads")
	}
	if differ(k[0], a.q.Type.Dims[0]) || differ(v[0], a.q.Type.Dims[0]) || differ(k[tokens], v[tokens]) {
		wrong("the batches or numbers of tokens differ")
	}
}

// unpacked returns the parts of input i, [batch, tokens, heads, parts, depth], as [batch, tokens, heads*depth] each.
func (a *attending) unpacked(i, parts int) []*ir.Value {
	c := a.call
	d := c.dims(i, 5)
	if differ(d[2], ir.Size(a.heads)) || differ(d[3], ir.Size(parts)) {
		c.invalid("input %d is %v, want [batch, tokens, %d heads, %d, depth]", i, c.in(i).Type, a.heads, parts)
	}
	depth := c.size(d[4], "the depth of a head")
	ones := c.makes(parts, "Split", attrs{"axis": 3}, c.in(i), c.ints(slices.Repeat([]int{1}, parts)...))
	for i, v := range ones {
		ones[i] = c.make("Reshape", nil, v, c.ints(0, 0, a.heads*depth))
	}
	return ones
}

// biases adds to Q, K and V their parts of the vector of biases.
func (a *attending) biases() {
	c := a.call
	if c.in(headsBias) == nil {
		return
	}
	if c.in(headsKey) != nil && c.in(headsValue) == nil {
		c.invalid("bias does not go with a key that holds the value")
	}
	q, v := a.q.Type.Dims[2].Size(), a.v.Type.Dims[a.v.Type.Rank()-1].Size()
	if a.byHeads {
		v *= a.heads
	}
	c.vector(headsBias, "bias", ir.Size(2*q+v))
	parts := c.split(c.in(headsBias), q, q, v)
	a.q = c.make("Add", nil, a.q, parts[0])
	if !a.byHeads { // else K and V are those of another node
		a.k, a.v = c.make("Add", nil, a.k, parts[1]), c.make("Add", nil, a.v, parts[2])
	}
}

// states puts the past before K and V, and sets outputs 1 and 2 to them with it, where these are wanted.
func (a *attending) states(out []*ir.Value) {
	c := a.call
	key, value := c.in(headsPastKey), c.in(headsPastValue)
	if (key == nil) != (value == nil) {
		c.invalid("past_key and past_value must come together")
	}
	if key == nil {
		if c.wants(1) {
			out[1] = a.headwise(a.k)
		}
		if c.wants(2) {
			out[2] = a.headwise(a.v)
		}
		return
	}
	if c.in(headsValue) == nil {
		c.invalid("past_key does not go with key and value in this form")
	}
	pk, pv := c.dims(headsPastKey, 4), c.dims(headsPastValue, 4)
	for i, d := range [][]ir.Dim{pk, pv} {
		depth := a.depth([]*ir.Value{a.k, a.v}[i])
		want := []ir.Dim{a.q.Type.Dims[0], ir.Size(a.heads), pk[2], ir.Size(depth)}
		for j := range want {
			if differ(d[j], want[j]) {
				c.invalid("%s is %v, want %v", []string{"past_key", "past_value"}[i], c.in(headsPastKey+i).Type, ir.Of(a.q.Type.DType, want...))
			}
		}
	}
	out[1], out[2] = a.prepend(key, value)
}

// depth is that of the heads of K or V.
func (a *attending) depth(x *ir.Value) int {
	d := x.Type.Dims
	if a.byHeads {
		return a.size(d[3], "the depth of a head")
	}
	return a.size(d[2], "the hidden size") / a.heads
}

// headwise returns K or V as [batch, heads, tokens, depth].
func (a *attending) headwise(x *ir.Value) *ir.Value {
	if a.byHeads {
		return x
	}
	return a.byHead(x)
}
