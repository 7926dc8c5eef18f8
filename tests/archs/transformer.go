package archs

import (
	"fmt"
	"math"
)

// dim adds Shape and Gather: the size of axis i of x, a scalar.
func dim(b *Builder, x string, i int) string {
	return b.Node("Gather", Attrs{"axis": 0}, b.Node("Shape", nil, x), b.Index(i))
}

// shape adds a vector of dimensions, each an int or a scalar that dim gave.
func shape(b *Builder, dims ...any) string {
	parts := make([]string, len(dims))
	for i, d := range dims {
		switch d := d.(type) {
		case int:
			parts[i] = b.Ints(d)
		case string:
			parts[i] = b.Node("Unsqueeze", nil, d, b.Ints(0))
		}
	}
	return b.Node("Concat", Attrs{"axis": 0}, parts...)
}

func reshape(b *Builder, x string, dims ...any) string {
	return b.Node("Reshape", nil, x, shape(b, dims...))
}

func transpose(b *Builder, x string, perm ...int) string {
	return b.Node("Transpose", Attrs{"perm": perm}, x)
}

// linear adds a linear layer on [..., in], its weight [in, out].
func linear(b *Builder, x string, in, out int) string {
	y := b.Node("MatMul", nil, x, b.Weight("weight", LeCun(in), in, out))
	return b.Node("Add", nil, b.Weight("bias", Near(0), out), y)
}

// layerNorm adds LayerNormalization over the last axis.
func layerNorm(b *Builder, x string, hidden int, epsilon float64) string {
	return b.Node("LayerNormalization", Attrs{"axis": -1, "epsilon": epsilon}, x,
		b.Weight("weight", Near(1), hidden), b.Weight("bias", Near(0), hidden))
}

// layerNormParts is layerNorm in the operators that opset 13 has.
func layerNormParts(b *Builder, x string, hidden int, epsilon float64) string {
	last := Attrs{"axes": []int{-1}, "keepdims": 1}
	centred := b.Node("Sub", nil, x, b.Node("ReduceMean", last, x))
	variance := b.Node("ReduceMean", last, b.Node("Pow", nil, centred, b.Scalar(2)))
	deviation := b.Node("Sqrt", nil, b.Node("Add", nil, variance, b.Scalar(epsilon)))
	y := b.Node("Div", nil, centred, deviation)
	y = b.Node("Mul", nil, y, b.Weight("weight", Near(1), hidden))
	return b.Node("Add", nil, y, b.Weight("bias", Near(0), hidden))
}

// gelu adds x/2 (1 + erf(x/√2)) in parts.
func gelu(b *Builder, x string) string {
	y := b.Node("Erf", nil, b.Node("Div", nil, x, b.Scalar(math.Sqrt2)))
	y = b.Node("Mul", nil, x, b.Node("Add", nil, y, b.Scalar(1)))
	return b.Node("Mul", nil, y, b.Scalar(0.5))
}

func relu(b *Builder, x string) string { return b.Node("Relu", nil, x) }

// checkHeads returns an error unless the heads share hidden evenly.
func checkHeads(arch string, hidden, heads int) error {
	if heads < 1 || hidden%heads != 0 {
		return fmt.Errorf("%s: %d heads do not share hidden size %d", arch, heads, hidden)
	}
	return nil
}

// blockConfig is what the layers of an encoder have in common.
type blockConfig struct {
	hidden, heads, ff int
	norm              func(b *Builder, x string) string
	act               func(b *Builder, x string) string
}

// selfAttention adds multi-head attention of x [batch, sequence, hidden] on
// itself with separate projections; mask, if not empty, is added to the scores
// [batch, heads, sequence, sequence].
func selfAttention(b *Builder, x, mask string, c blockConfig) string {
	each := c.hidden / c.heads
	heads := func(name string, perm ...int) string {
		y := linear(b.Scope(name), x, c.hidden, c.hidden)
		return transpose(b, reshape(b, y, dim(b, y, 0), dim(b, y, 1), c.heads, each), perm...)
	}
	q := heads("query", 0, 2, 1, 3)
	k := heads("key", 0, 2, 3, 1)
	v := heads("value", 0, 2, 1, 3)
	scores := b.Node("Div", nil, b.Node("MatMul", nil, q, k), b.Scalar(math.Sqrt(float64(each))))
	if mask != "" {
		scores = b.Node("Add", nil, scores, mask)
	}
	y := b.Node("MatMul", nil, b.Node("Softmax", Attrs{"axis": -1}, scores), v)
	y = transpose(b, y, 0, 2, 1, 3)
	return reshape(b, y, dim(b, y, 0), dim(b, y, 1), c.hidden)
}

// postNormBlock adds an encoder layer whose norms follow the residual sums.
func postNormBlock(b *Builder, x, mask string, c blockConfig) string {
	a := selfAttention(b.Scope("attention.self"), x, mask, c)
	a = linear(b.Scope("attention.output.dense"), a, c.hidden, c.hidden)
	a = b.Scope("attention.output").Node("Add", nil, a, x)
	a = c.norm(b.Scope("attention.output.LayerNorm"), a)
	f := linear(b.Scope("intermediate.dense"), a, c.hidden, c.ff)
	f = c.act(b.Scope("intermediate.act"), f)
	f = linear(b.Scope("output.dense"), f, c.ff, c.hidden)
	f = b.Scope("output").Node("Add", nil, f, a)
	return c.norm(b.Scope("output.LayerNorm"), f)
}

// BERTConfig sizes a BERT encoder.
type BERTConfig struct {
	Layers, Hidden, Heads, FF    int
	Vocabulary, Positions, Types int
}

// The published sizes.
var (
	BERTBase = BERTConfig{Layers: 12, Hidden: 768, Heads: 12, FF: 3072, Vocabulary: 30522, Positions: 512, Types: 2}
	MiniLM   = BERTConfig{Layers: 6, Hidden: 384, Heads: 12, FF: 1536, Vocabulary: 30522, Positions: 512, Types: 2}
)

// BERT builds an encoder of token sequences (Devlin et al., 2019, "BERT") at
// opset 13. Inputs input_ids, attention_mask and token_type_ids are int64
// [batch, sequence]; outputs last_hidden_state [batch, sequence, Hidden] and
// pooler_output [batch, Hidden].
func BERT(c BERTConfig, seed uint64) (*Model, error) {
	if err := checkHeads("bert", c.Hidden, c.Heads); err != nil {
		return nil, err
	}
	b := New("bert", 13)
	ids := b.Input("input_ids", Int64, "batch", "sequence")
	mask := b.Input("attention_mask", Int64, "batch", "sequence")
	types := b.Input("token_type_ids", Int64, "batch", "sequence")
	block := blockConfig{
		hidden: c.Hidden, heads: c.Heads, ff: c.FF,
		norm: func(b *Builder, x string) string { return layerNormParts(b, x, c.Hidden, 1e-12) },
		act:  gelu,
	}

	// Attended positions add 0 to the scores, masked ones -10000.
	mask = b.Node("Unsqueeze", nil, mask, b.Ints(1))
	mask = b.Node("Unsqueeze", nil, mask, b.Ints(2))
	mask = b.Node("Cast", Attrs{"to": int(Float32)}, mask)
	mask = b.Node("Sub", nil, b.Scalar(1), mask)
	mask = b.Node("Mul", nil, mask, b.Scalar(-10000))

	e := b.Scope("embeddings")
	table := func(name string, rows int, index string) string {
		s := e.Scope(name)
		return s.Node("Gather", nil, s.Weight("weight", Fill{Std: 0.02}, rows, c.Hidden), index)
	}
	all := make([]int, c.Positions)
	for i := range all {
		all[i] = i
	}
	positions := IntVector(all...)
	positions.Dims = []int64{1, int64(c.Positions)}
	length := e.Node("Unsqueeze", nil, dim(e, ids, 1), e.Ints(0))
	position := e.Node("Slice", nil, e.Initializer("position_ids", positions), e.Ints(0), length, e.Ints(1), e.Ints(1))
	x := e.Node("Add", nil, table("word_embeddings", c.Vocabulary, ids), table("token_type_embeddings", c.Types, types))
	x = e.Node("Add", nil, x, table("position_embeddings", c.Positions, position))
	x = block.norm(e.Scope("LayerNorm"), x)

	for i := range c.Layers {
		x = postNormBlock(b.Scope(fmt.Sprintf("encoder.layer.%d", i)), x, mask, block)
	}

	p := b.Scope("pooler")
	pooled := p.Node("Gather", Attrs{"axis": 1}, x, p.Index(0))
	pooled = gemm(p.Scope("dense"), pooled, c.Hidden, c.Hidden)
	pooled = p.Scope("activation").Node("Tanh", nil, pooled)
	b.Output("last_hidden_state", x, Float32, "batch", "sequence", c.Hidden)
	b.Output("pooler_output", pooled, Float32, "batch", c.Hidden)
	return b.Model(seed)
}

// EncoderConfig sizes a Transformer's encoder.
type EncoderConfig struct{ Layers, Hidden, Heads, FF int }

// TransformerBig is the published size.
var TransformerBig = EncoderConfig{Layers: 6, Hidden: 1024, Heads: 16, FF: 4096}

// Encoder builds a post-norm Transformer encoder (Vaswani et al., 2017,
// "Attention Is All You Need") with ReLU, on embedded tokens: input and output
// [batch, sequence, Hidden].
func Encoder(c EncoderConfig, seed uint64) (*Model, error) {
	if err := checkHeads("encoder", c.Hidden, c.Heads); err != nil {
		return nil, err
	}
	b := New("encoder", 17)
	block := blockConfig{
		hidden: c.Hidden, heads: c.Heads, ff: c.FF,
		norm: func(b *Builder, x string) string { return layerNorm(b, x, c.Hidden, 1e-5) },
		act:  relu,
	}
	x := b.Input("input", Float32, "batch", "sequence", c.Hidden)
	for i := range c.Layers {
		x = postNormBlock(b.Scope(fmt.Sprintf("layers.%d", i)), x, "", block)
	}
	b.Output("output", x, Float32, "batch", "sequence", c.Hidden)
	return b.Model(seed)
}

// ViTConfig sizes a vision transformer. Patch divides Image.
type ViTConfig struct {
	Image, Patch              int
	Layers, Hidden, Heads, FF int
	Classes                   int
}

// ViTB16 is the published size.
var ViTB16 = ViTConfig{Image: 224, Patch: 16, Layers: 12, Hidden: 768, Heads: 12, FF: 3072, Classes: 1000}

// ViT builds a vision transformer (Dosovitskiy et al., 2021, "An Image is Worth
// 16x16 Words"): pre-norm blocks with one projection for query, key and value.
// Input [batch, 3, Image, Image], output [batch, Classes].
func ViT(c ViTConfig, seed uint64) (*Model, error) {
	if err := checkHeads("vit", c.Hidden, c.Heads); err != nil {
		return nil, err
	}
	if c.Patch < 1 || c.Image%c.Patch != 0 {
		return nil, fmt.Errorf("vit: patch %d does not divide image %d", c.Patch, c.Image)
	}
	side := c.Image / c.Patch
	tokens := side*side + 1
	b := New("vit", 17)
	image := b.Input("input", Float32, "batch", 3, c.Image, c.Image)

	e := b.Scope("patch_embed")
	x := e.Scope("proj").Node("Conv", Attrs{
		"dilations":    []int{1, 1},
		"group":        1,
		"kernel_shape": []int{c.Patch, c.Patch},
		"pads":         []int{0, 0, 0, 0},
		"strides":      []int{c.Patch, c.Patch},
	}, image,
		e.Weight("proj.weight", LeCun(3*c.Patch*c.Patch), c.Hidden, 3, c.Patch, c.Patch),
		e.Weight("proj.bias", Near(0), c.Hidden))
	x = reshape(e, x, dim(e, x, 0), c.Hidden, -1)
	x = transpose(e, x, 0, 2, 1)
	class := b.Node("Expand", nil, b.Weight("cls_token", Fill{Std: 0.5}, 1, 1, c.Hidden), shape(b, dim(b, x, 0), 1, c.Hidden))
	x = b.Node("Concat", Attrs{"axis": 1}, class, x)
	x = b.Node("Add", nil, x, b.Weight("pos_embed", Fill{Std: 0.5}, 1, tokens, c.Hidden))

	norm := func(b *Builder, x string) string { return layerNorm(b, x, c.Hidden, 1e-6) }
	for i := range c.Layers {
		s := b.Scope(fmt.Sprintf("blocks.%d", i))
		a := packedAttention(s.Scope("attn"), norm(s.Scope("norm1"), x), c.Hidden, c.Heads)
		x = s.Node("Add", nil, x, a)
		f := linear(s.Scope("mlp.fc1"), norm(s.Scope("norm2"), x), c.Hidden, c.FF)
		f = linear(s.Scope("mlp.fc2"), gelu(s.Scope("mlp.act"), f), c.FF, c.Hidden)
		x = s.Node("Add", nil, x, f)
	}
	x = norm(b.Scope("norm"), x)
	x = b.Node("Gather", Attrs{"axis": 1}, x, b.Index(0))
	b.Output("output", gemm(b.Scope("head"), x, c.Hidden, c.Classes), Float32, "batch", c.Classes)
	return b.Model(seed)
}

// packedAttention adds multi-head attention of x [batch, tokens, hidden] on
// itself, its three projections one matrix [hidden, 3·hidden].
func packedAttention(b *Builder, x string, hidden, heads int) string {
	each := hidden / heads
	batch, tokens := dim(b, x, 0), dim(b, x, 1)
	qkv := linear(b.Scope("qkv"), x, hidden, 3*hidden)
	qkv = transpose(b, reshape(b, qkv, batch, tokens, 3, heads, each), 2, 0, 3, 1, 4)
	pick := func(i int) string { return b.Node("Gather", Attrs{"axis": 0}, qkv, b.Index(i)) }
	q := b.Node("Mul", nil, pick(0), b.Scalar(1/math.Sqrt(float64(each))))
	k := transpose(b, pick(1), 0, 1, 3, 2)
	y := b.Node("MatMul", nil, b.Node("Softmax", Attrs{"axis": -1}, b.Node("MatMul", nil, q, k)), pick(2))
	y = reshape(b, transpose(b, y, 0, 2, 1, 3), batch, tokens, hidden)
	return linear(b.Scope("proj"), y, hidden, hidden)
}
