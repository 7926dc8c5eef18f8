package contrib

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// The inputs of GroupQueryAttention.
const (
	gqaQ = iota
	gqaK
	gqaV
	gqaPastK
	gqaPastV
	gqaLast  // of each sample, the position of its last token
	gqaTotal // tokens of the longest sample
	gqaCos
	gqaSin
	gqaPositions
	gqaBias
	gqaSink
	gqaScaleK
	gqaScaleV
	gqaNormQ
	gqaNormK
)

// groupQuery is GroupQueryAttention while it is made of other operators.
type groupQuery struct {
	Heads       int     `attr:"num_heads"`
	KVHeads     int     `attr:"kv_num_heads"`
	Scale       float32 `attr:"scale,0"`
	Softcap     float32 `attr:"softcap,0"`
	Window      int     `attr:"local_window_size,-1"`
	Rotary      bool    `attr:"do_rotary,0"`
	Interleaved bool    `attr:"rotary_interleaved,0"`
	Smooth      int     `attr:"smooth_softmax,0"`
	QKOutput    int     `attr:"qk_output,0"`
	Causal      int     `attr:"causal,1"`
	Evicts      int     `attr:"sliding_window_cache,0"`
	QuantK      string  `attr:"k_quant_type,NONE"`
	QuantV      string  `attr:"v_quant_type,NONE"`
	CacheBits   int     `attr:"kv_cache_bit_width,0"`
	NormEpsilon float32 `attr:"qk_norm_epsilon,1e-6"`

	c       *call
	q, k, v *ir.Value // [batch, tokens, heads * depth]
	depth   int       // of a head
}

// groupQueryAttention is causal attention in which groups of query heads share a key head, over a cache: new keys go behind those of
// the past, at positions that differ between samples, into buffers that are as long as the past's or, where it is larger, as
// all tokens. Without a past it is Attention of ONNX; with one, a mask tells which rows of the buffers a token sees.
func groupQueryAttention(c *call) []*ir.Value {
	g := &groupQuery{c: c}
	c.attrs(g)
	g.check()
	g.split()
	if c.in(gqaPastK) == nil {
		return g.prompt()
	}
	return g.step()
}

// check refuses what is not done.
func (g *groupQuery) check() {
	c := g.c
	switch {
	case g.Heads < 1 || g.KVHeads < 1 || g.Heads%g.KVHeads != 0:
		c.invalid("num_heads is %d and kv_num_heads %d, want a multiple of the second", g.Heads, g.KVHeads)
	case g.Causal != 1:
		c.unsupported("causal is %d", g.Causal)
	case g.Evicts != 0:
		c.unsupported("sliding_window_cache is %d", g.Evicts)
	case g.QuantK != "NONE" || g.QuantV != "NONE" || c.in(gqaScaleK) != nil || c.in(gqaScaleV) != nil:
		c.unsupported("the cache is quantised")
	case g.QKOutput != 0 || c.wants(3):
		c.unsupported("the products of queries and keys are wanted")
	case (c.in(gqaK) == nil) != (c.in(gqaV) == nil):
		c.invalid("key and value must come together")
	case (c.in(gqaPastK) == nil) != (c.in(gqaPastV) == nil):
		c.invalid("past_key and past_value must come together")
	case (c.in(gqaNormQ) == nil) != (c.in(gqaNormK) == nil):
		c.invalid("q_norm_weight and k_norm_weight must come together")
	case g.Rotary && (c.in(gqaCos) == nil || c.in(gqaSin) == nil):
		c.invalid("do_rotary is 1 without cos_cache and sin_cache")
	case g.Window < -1 || g.Window == 0:
		c.invalid("local_window_size is %d, want -1 or a size", g.Window)
	}
	if c.in(gqaLast) == nil || c.in(gqaTotal) == nil {
		c.invalid("seqlens_k or total_sequence_length is absent")
	}
	c.typed(gqaLast, tensor.I32)
	c.typed(gqaTotal, tensor.I32)
}

// split sets Q, K and V, which one input may pack, and the depth of a head.
func (g *groupQuery) split() {
	c := g.c
	g.q, g.k, g.v = c.in(gqaQ), c.in(gqaK), c.in(gqaV)
	features := c.size(c.dims(gqaQ, 3)[2], "the number of features of input 0")
	heads := g.Heads
	if g.k == nil {
		heads += 2 * g.KVHeads
	}
	if features%heads != 0 || features == 0 {
		c.invalid("input 0 is %v, whose features do not split into %d heads", g.q.Type, heads)
	}
	g.depth = features / heads
	if g.k == nil {
		parts := c.makes(3, "Split", attrs{"axis": 2}, g.q, c.ints(g.Heads*g.depth, g.KVHeads*g.depth, g.KVHeads*g.depth))
		g.q, g.k, g.v = parts[0], parts[1], parts[2]
	} else {
		for i := gqaK; i <= gqaV; i++ {
			if d := c.dims(i, 3)[2]; d.Known() && d.Size() != g.KVHeads*g.depth {
				c.invalid("input %d is %v, want %d features for %d heads of %d", i, c.in(i).Type, g.KVHeads*g.depth, g.KVHeads, g.depth)
			}
		}
	}
	if c.in(gqaNormQ) != nil {
		g.q = g.normalised(g.q, gqaNormQ, g.Heads)
		g.k = g.normalised(g.k, gqaNormK, g.KVHeads)
	}
}

// normalised divides each head by its root mean square.
func (g *groupQuery) normalised(x *ir.Value, weight, heads int) *ir.Value {
	c := g.c
	c.vector(weight, "the weight of the norm", ir.Size(g.depth))
	x = c.make("Reshape", nil, x, c.ints(0, 0, heads, g.depth))
	x = c.make("RMSNormalization", attrs{"epsilon": g.NormEpsilon}, x, c.in(weight))
	return c.make("Reshape", nil, x, c.ints(0, 0, heads*g.depth))
}

// turn turns the heads of Q and K, whose tokens are at positions [batch, tokens].
func (g *groupQuery) turn(positions *ir.Value) {
	if !g.Rotary {
		return
	}
	c := g.c
	half := c.size(c.dims(gqaCos, 2)[1], "the size of cos_cache")
	if 2*half > g.depth {
		c.invalid("cos_cache is %v, want at most %d columns for heads of %d", c.in(gqaCos).Type, g.depth/2, g.depth)
	}
	r := rotation{g.Interleaved, g.Heads, 2 * half}
	if 2*half == g.depth {
		r.dim = 0
	}
	g.q = c.rotate(g.q, positions, c.in(gqaCos), c.in(gqaSin), r)
	r.heads = g.KVHeads
	g.k = c.rotate(g.k, positions, c.in(gqaCos), c.in(gqaSin), r)
}

// cached returns K or V as caches have it, [batch, heads, tokens, depth].
func (g *groupQuery) cached(x *ir.Value) *ir.Value {
	x = g.c.make("Reshape", nil, x, g.c.ints(0, 0, g.KVHeads, g.depth))
	return g.c.make("Transpose", attrs{"perm": []int{0, 2, 1, 3}}, x)
}

// attention are the attributes of Attention.
func (g *groupQuery) attention() attrs {
	a := attrs{}
	if g.Scale != 0 {
		a["scale"] = g.Scale
	}
	if g.Softcap != 0 {
		a["softcap"] = g.Softcap
	}
	return a
}

// prompt is attention among new tokens alone.
func (g *groupQuery) prompt() []*ir.Value {
	c := g.c
	first := c.make("Unsqueeze", nil, c.count(c.make("Shape", attrs{"start": 1, "end": 2}, g.q)), c.ints(0))
	if c.in(gqaPositions) != nil {
		g.turn(c.in(gqaPositions))
	} else {
		g.turn(c.make("Expand", nil, first, c.make("Shape", attrs{"end": 2}, g.q)))
	}
	if g.sinks() {
		return []*ir.Value{g.withSink(g.cached(g.k), g.cached(g.v), g.sees(first, g.q, 1)), g.cached(g.k), g.cached(g.v)}
	}
	a := g.attention()
	a["is_causal"], a["q_num_heads"], a["kv_num_heads"] = 1, g.Heads, g.KVHeads
	if g.Window > 0 {
		a["left_window_size"] = g.Window - 1
	}
	in := []*ir.Value{g.q, g.k, g.v}
	if c.in(gqaBias) != nil {
		in = append(in, c.in(gqaBias))
	}
	out := []*ir.Value{c.make("Attention", a, in...)}
	if c.wants(1) || c.wants(2) {
		out = append(out, g.cached(g.k), g.cached(g.v))
	}
	return out
}

// step is attention over a cache.
func (g *groupQuery) step() []*ir.Value {
	c := g.c
	for i := gqaPastK; i <= gqaPastV; i++ {
		d := c.dims(i, 4)
		for axis, want := range map[int]int{1: g.KVHeads, 3: g.depth} {
			if d[axis].Known() && d[axis].Size() != want {
				c.invalid("input %d is %v, want %d key heads of %d", i, c.in(i).Type, g.KVHeads, g.depth)
			}
		}
	}
	i64 := attrs{"to": int(tensor.I64)}
	tokens := c.make("Shape", attrs{"start": 1, "end": 2}, g.q)
	last := c.make("Reshape", nil, c.make("Cast", i64, c.in(gqaLast)), c.ints(-1, 1))
	// Where the prompt is as long as all tokens, samples begin at 0, and what is behind their ends is padding.
	first := c.make("Sub", nil, c.make("Add", nil, last, c.int(1)), tokens)
	total := c.make("Reshape", nil, c.make("Cast", i64, c.in(gqaTotal)), c.ints(1))
	first = c.make("Where", nil, c.make("Equal", nil, total, tokens), c.make("Mul", nil, first, c.int(0)), first)
	positions := c.make("Add", nil, first, c.count(tokens))
	if c.in(gqaPositions) != nil {
		g.turn(c.in(gqaPositions))
	} else {
		g.turn(positions)
	}
	start := c.make("Squeeze", nil, first, c.ints(1))
	k := g.appended(gqaPastK, g.k, total, start)
	v := g.appended(gqaPastV, g.v, total, start)
	sees := g.sees(positions, k, 2)
	if g.sinks() {
		return []*ir.Value{g.withSink(k, v, sees), k, v}
	}
	q := c.make("Transpose", attrs{"perm": []int{0, 2, 1, 3}}, c.make("Reshape", nil, g.q, c.ints(0, 0, g.Heads, g.depth)))
	y := c.make("Attention", g.attention(), q, k, v, g.masked(sees, k))
	y = c.make("Reshape", nil, c.make("Transpose", attrs{"perm": []int{0, 2, 1, 3}}, y), c.ints(0, 0, g.Heads*g.depth))
	return []*ir.Value{y, k, v}
}

// appended is a past with new rows from start[batch] on, as long as it was or, where that is more, as total.
func (g *groupQuery) appended(past int, rows, total, start *ir.Value) *ir.Value {
	c := g.c
	have := c.make("Shape", attrs{"start": 2, "end": 3}, c.in(past))
	more := c.make("Max", nil, c.make("Sub", nil, total, have), c.ints(0))
	buffer := c.make("Pad", nil, c.in(past), c.make("Concat", attrs{"axis": 0}, c.ints(0, 0, 0, 0, 0, 0), more, c.ints(0)))
	return c.make("TensorScatter", attrs{"axis": 2}, buffer, g.cached(rows), start)
}

// sees tells for each token, at positions[batch or 1, tokens], which rows of keys it sees, of which the shape of like has the number along an axis:
// [batch or 1, 1, tokens, rows].
func (g *groupQuery) sees(positions, like *ir.Value, axis int) *ir.Value {
	c := g.c
	rows := c.count(c.make("Shape", attrs{"start": axis, "end": axis + 1}, like))
	at := c.make("Unsqueeze", nil, positions, c.ints(1, 3))
	sees := c.make("LessOrEqual", nil, rows, at)
	if g.Window > 0 {
		sees = c.make("And", nil, sees, c.make("Greater", nil, rows, c.make("Sub", nil, at, c.int(g.Window))))
	}
	return sees
}

// masked is a mask of what is seen, or of the bias there, which may have fewer columns than there are rows of keys.
func (g *groupQuery) masked(sees, k *ir.Value) *ir.Value {
	c := g.c
	bias := c.in(gqaBias)
	if bias == nil {
		return sees
	}
	c.dims(gqaBias, 4)
	rows := c.make("Shape", attrs{"start": 2, "end": 3}, k)
	more := c.make("Sub", nil, rows, c.make("Shape", attrs{"start": 3, "end": 4}, bias))
	bias = c.make("Pad", nil, bias, c.make("Concat", attrs{"axis": 0}, c.ints(0, 0, 0, 0, 0, 0, 0), more))
	return c.make("Where", nil, sees, bias, c.scalar(math.Inf(-1), bias))
}

// sinks reports whether softmax has a term besides those of the keys.
func (g *groupQuery) sinks() bool { return g.Smooth == 1 || g.c.in(gqaSink) != nil }

// withSink is attention whose softmax has a further term, the exponential of head_sink[heads], or of 0, which takes weight from the keys.
func (g *groupQuery) withSink(k, v, sees *ir.Value) *ir.Value {
	c := g.c
	group := g.Heads / g.KVHeads
	q := c.make("Transpose", attrs{"perm": []int{0, 2, 3, 1, 4}}, c.make("Reshape", nil, g.q, c.ints(0, 0, g.KVHeads, group, g.depth)))
	k = c.make("Unsqueeze", nil, k, c.ints(2))
	v = c.make("Unsqueeze", nil, v, c.ints(2))
	scores := c.make("MatMul", nil, q, c.make("Transpose", attrs{"perm": []int{0, 1, 2, 4, 3}}, k))
	scale := float64(g.Scale)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(g.depth))
	}
	scores = c.make("Mul", nil, scores, c.scalar(scale, scores))
	if g.Softcap != 0 {
		most := c.scalar(float64(g.Softcap), scores)
		scores = c.make("Mul", nil, c.make("Tanh", nil, c.make("Div", nil, scores, most)), most)
	}
	if c.in(gqaBias) != nil {
		c.unsupported("attention_bias is given with a sink")
	}
	scores = c.make("Where", nil, c.make("Unsqueeze", nil, sees, c.ints(2)), scores, c.scalar(math.Inf(-1), scores))
	sink := c.scalar(0, scores)
	if c.in(gqaSink) != nil {
		c.vector(gqaSink, "head_sink", ir.Size(g.Heads))
		sink = c.make("Reshape", nil, c.in(gqaSink), c.ints(1, g.KVHeads, group, 1, 1))
	}
	column := c.make("Concat", attrs{"axis": 0}, c.make("Shape", attrs{"end": 4}, scores), c.ints(1))
	all := c.make("Concat", attrs{"axis": -1}, scores, c.make("Expand", nil, sink, column))
	weights := c.make("Slice", nil, c.make("Softmax", attrs{"axis": -1}, all), c.ints(0), c.ints(-1), c.ints(-1))
	y := c.make("Transpose", attrs{"perm": []int{0, 3, 1, 2, 4}}, c.make("MatMul", nil, weights, v))
	return c.make("Reshape", nil, y, c.ints(0, 0, g.Heads*g.depth))
}
