package archs

import (
	"fmt"
	"math"

	"spc/ir/onnx/onnxpb"
)

// CachedDecoderConfig sizes a decoder with caches of keys and values. KVHeads divides Heads.
type CachedDecoderConfig struct {
	Layers, Hidden, Heads, KVHeads, FF, Vocabulary, Positions int
	// Fused spells attention as Attention of ONNX, with its past among its inputs, and not as exporters of PyTorch did before
	// there was one: a Concat of the past and what is new, two products, and a mask of positions.
	Fused bool
	// Tokens makes the caches [batch, tokens, heads, depth], and not [batch, heads, tokens, depth]. Fused ones are the latter.
	Tokens bool
	// Padding adds an input attention_mask, int64 [batch, past + tokens], whose zeros hide keys, and of which the mask has its size, as
	// Optimum writes it. Least makes what is hidden the least number of the type, and not minus infinity.
	Padding, Least bool
	// Grouped spells attention as GroupQueryAttention of ONNX Runtime, whose numbers of tokens are inputs, seqlens_k and
	// total_sequence_length, or, with Padding, are computed from attention_mask, [batch, total].
	Grouped bool
}

// CachedDecoder builds a pre-norm decoder (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners") that
// goes on where it was left: inputs input_ids and position_ids, int64 [batch, tokens], and for each layer the keys and values
// of the tokens before, past_key_values.N.key and .value; outputs logits [batch, tokens, Vocabulary], and present.N.key and
// .value, which are the past and what is new.
func CachedDecoder(c CachedDecoderConfig, seed uint64) (*Model, error) {
	if err := checkHeads("decoder", c.Hidden, c.Heads); err != nil {
		return nil, err
	}
	if c.KVHeads < 1 || c.Heads%c.KVHeads != 0 {
		return nil, fmt.Errorf("decoder: %d key heads are not shared evenly by %d", c.KVHeads, c.Heads)
	}
	opset := 17
	if c.Fused {
		opset = 23
	}
	b := New("decoder", opset)
	ids := b.Input("input_ids", Int64, "batch", "tokens")
	at := b.Input("position_ids", Int64, "batch", "tokens")
	pasts := make([][2]string, c.Layers)
	for i := range pasts {
		for j, kind := range []string{"key", "value"} {
			pasts[i][j] = b.Input(fmt.Sprintf("past_key_values.%d.%s", i, kind), Float32, c.cache("past")...)
		}
	}
	e := b.Scope("embeddings")
	x := e.Node("Gather", nil, e.Weight("tokens", Fill{Std: 0.5}, c.Vocabulary, c.Hidden), ids)
	x = e.Node("Add", nil, x, e.Node("Gather", nil, e.Weight("positions", Fill{Std: 0.5}, c.Positions, c.Hidden), at))
	mask := ""
	var lengths [2]string
	switch {
	case c.Grouped:
		lengths = c.lengths(b.Scope("lengths"))
	case !c.Fused:
		there := ""
		if c.Padding {
			there = b.Input("attention_mask", Int64, "batch", "past + tokens")
		}
		mask = c.mask(b.Scope("mask"), ids, at, pasts[0][0], there)
	}
	norm := func(b *Builder, x string) string { return layerNorm(b, x, c.Hidden, 1e-5) }
	for i := range c.Layers {
		s := b.Scope(fmt.Sprintf("layers.%d", i))
		a, presents := c.attention(s.Scope("attention"), norm(s.Scope("norm1"), x), mask, lengths, pasts[i])
		x = s.Node("Add", nil, x, a)
		f := relu(s, linear(s.Scope("up"), norm(s.Scope("norm2"), x), c.Hidden, c.FF))
		x = s.Node("Add", nil, x, linear(s.Scope("down"), f, c.FF, c.Hidden))
		for j, kind := range []string{"key", "value"} {
			b.Output(fmt.Sprintf("present.%d.%s", i, kind), presents[j], Float32, c.cache("total")...)
		}
	}
	b.Output("logits", linear(b.Scope("head"), norm(b.Scope("norm"), x), c.Hidden, c.Vocabulary), Float32, "batch", "tokens", c.Vocabulary)
	return b.Model(seed)
}

// cache are the dimensions of a cache of so many tokens.
func (c CachedDecoderConfig) cache(tokens string) []any {
	if c.Tokens {
		return []any{"batch", tokens, c.KVHeads, c.Hidden / c.Heads}
	}
	return []any{"batch", c.KVHeads, tokens, c.Hidden / c.Heads}
}

// axis is that of a cache's tokens.
func (c CachedDecoderConfig) axis() int {
	if c.Tokens {
		return 1
	}
	return 2
}

// mask adds what scores [batch, heads, tokens, total] get: nothing where a key is not behind the token, nor hidden as padding.
func (c CachedDecoderConfig) mask(b *Builder, ids, at, past, there string) string {
	hide := math.Inf(-1)
	if c.Least {
		hide = -math.MaxFloat32
	}
	if there == "" {
		total := b.Node("Add", nil, dim(b, past, c.axis()), dim(b, ids, 1))
		keys := b.Node("Range", nil, b.Index(0), total, b.Index(1))
		sees := b.Node("LessOrEqual", nil, keys, b.Node("Unsqueeze", nil, at, b.Ints(1, 3)))
		return b.Node("Where", nil, sees, b.Scalar(0), b.Scalar(hide))
	}
	before, total := dim(b, past, c.axis()), dim(b, there, 1)
	keys := b.Node("Range", nil, b.Index(0), total, b.Index(1))
	places := b.Node("Range", nil, before, b.Node("Add", nil, before, dim(b, ids, 1)), b.Index(1))
	sees := b.Node("LessOrEqual", nil, keys, b.Node("Unsqueeze", nil, places, b.Ints(1)))
	shown := b.Node("Unsqueeze", nil, b.Node("Cast", Attrs{"to": int(onnxpb.TensorProto_BOOL)}, there), b.Ints(1, 2))
	return b.Node("Where", nil, b.Node("And", nil, sees, shown), b.Scalar(0), b.Scalar(hide))
}

// lengths are, for each sample, the position of its last token, and the number of tokens of the longest.
func (c CachedDecoderConfig) lengths(b *Builder) [2]string {
	i32 := onnxpb.TensorProto_INT32
	if !c.Padding {
		return [2]string{b.Input("seqlens_k", i32, "batch"), b.Input("total_sequence_length", i32)}
	}
	there := b.Input("attention_mask", Int64, "batch", "total")
	last := b.Node("Sub", nil, b.Node("ReduceSum", Attrs{"keepdims": 0}, there, b.Ints(1)), b.Index(1))
	to := Attrs{"to": int(i32)}
	return [2]string{b.Node("Cast", to, last), b.Node("Cast", to, dim(b, there, 1))}
}

// attention adds attention of x on itself and the past, and returns what it adds to x and the caches that the next step gets.
func (c CachedDecoderConfig) attention(b *Builder, x, mask string, lengths, past [2]string) (y string, presents [2]string) {
	each := c.Hidden / c.Heads
	q := linear(b.Scope("query"), x, c.Hidden, c.Hidden)
	kv := [2]string{linear(b.Scope("key"), x, c.Hidden, c.KVHeads*each), linear(b.Scope("value"), x, c.Hidden, c.KVHeads*each)}
	if c.Fused {
		a := Attrs{"is_causal": 1, "q_num_heads": c.Heads, "kv_num_heads": c.KVHeads}
		out := b.Nodes("Attention", 3, a, q, kv[0], kv[1], "", past[0], past[1])
		return linear(b.Scope("out"), out[0], c.Hidden, c.Hidden), [2]string{out[1], out[2]}
	}
	if c.Grouped {
		a := Attrs{"num_heads": c.Heads, "kv_num_heads": c.KVHeads}
		out := b.Microsoft("GroupQueryAttention", 3, a, q, kv[0], kv[1], past[0], past[1], lengths[0], lengths[1])
		return linear(b.Scope("out"), out[0], c.Hidden, c.Hidden), [2]string{out[1], out[2]}
	}
	batch, tokens := dim(b, x, 0), dim(b, x, 1)
	q = transpose(b, reshape(b, q, batch, tokens, c.Heads, each), 0, 2, 1, 3)
	for i := range kv {
		rows := reshape(b, kv[i], batch, tokens, c.KVHeads, each)
		if !c.Tokens {
			rows = transpose(b, rows, 0, 2, 1, 3)
		}
		presents[i] = b.Node("Concat", Attrs{"axis": c.axis()}, past[i], rows)
		kv[i] = presents[i]
		if c.Tokens {
			kv[i] = transpose(b, kv[i], 0, 2, 1, 3)
		}
		if n := c.Heads / c.KVHeads; n > 1 {
			total := dim(b, kv[i], 2)
			wide := b.Node("Expand", nil, b.Node("Unsqueeze", nil, kv[i], b.Ints(2)), shape(b, batch, c.KVHeads, n, total, each))
			kv[i] = reshape(b, wide, batch, c.Heads, total, each)
		}
	}
	scores := b.Node("MatMul", nil, q, transpose(b, kv[0], 0, 1, 3, 2))
	scores = b.Node("Div", nil, scores, b.Scalar(math.Sqrt(float64(each))))
	weights := b.Node("Softmax", Attrs{"axis": -1}, b.Node("Add", nil, scores, mask))
	y = reshape(b, transpose(b, b.Node("MatMul", nil, weights, kv[1]), 0, 2, 1, 3), batch, tokens, c.Hidden)
	return linear(b.Scope("out"), y, c.Hidden, c.Hidden), presents
}
