// Package archs builds well-known networks as ONNX models with seeded random
// weights, and ONNX models in general in a few lines. Benchmarks and tests use
// it where the shape of a model matters and its accuracy does not. Graphs look
// like PyTorch's exports: batch normalization unfused, shapes computed by
// Shape, Gather and Concat, GELU spelt out. The same architecture and seed give
// the same bytes on every machine.
//
// It imports the ONNX messages and no other package of this module.
package archs

// Arch is a network at one size.
type Arch struct {
	Name  string
	About string
	Build func(seed uint64) (*Model, error)
}

// All lists the networks at their published sizes, as the command gen writes them.
var All = []Arch{
	{"resnet50", "ResNet-50 v1.5, 224x224", func(seed uint64) (*Model, error) { return ResNet(ResNet50, seed) }},
	{"mobilenetv1", "MobileNetV1 1.0, 224x224", func(seed uint64) (*Model, error) { return MobileNet(MobileNetV1, seed) }},
	{"bert-base", "BERT-base with pooler", func(seed uint64) (*Model, error) { return BERT(BERTBase, seed) }},
	{"minilm", "MiniLM-L6-H384 with pooler", func(seed uint64) (*Model, error) { return BERT(MiniLM, seed) }},
	{"transformer-big", "Transformer-Big's encoder", func(seed uint64) (*Model, error) { return Encoder(TransformerBig, seed) }},
	{"vit-b16", "ViT-B/16, 224x224", func(seed uint64) (*Model, error) { return ViT(ViTB16, seed) }},
	{"lstm", "LSTM of 2 layers, input 8192, hidden 2048", func(seed uint64) (*Model, error) { return LSTM(LSTMLarge, seed) }},
}

// Large are networks of more than half a GB, which are written only where they are named.
var Large = []Arch{
	{"chain-4096", "eight products with 4096x4096", func(seed uint64) (*Model, error) { return Chain(8, 4096, seed) }},
	{"decoder-1b", "decoder of a billion weights with caches", func(seed uint64) (*Model, error) {
		return CachedDecoder(CachedDecoderConfig{Layers: 18, Hidden: 2048, Heads: 32, KVHeads: 32, FF: 8192, Vocabulary: 32000, Positions: 2048}, seed)
	}},
}

// Tiny lists the same architectures at sizes that build and run in
// milliseconds.
var Tiny = []Arch{
	{"resnet", "ResNet of 5 blocks, 32x32", func(seed uint64) (*Model, error) {
		return ResNet(ResNetConfig{Blocks: [4]int{1, 2, 1, 1}, Width: 8, Image: 32, Classes: 10}, seed)
	}},
	{"mobilenet", "MobileNet of width 4, 32x32", func(seed uint64) (*Model, error) {
		return MobileNet(MobileNetConfig{Width: 4, Image: 32, Classes: 10}, seed)
	}},
	{"bert", "BERT of 2 layers, hidden 32", func(seed uint64) (*Model, error) {
		return BERT(BERTConfig{Layers: 2, Hidden: 32, Heads: 4, FF: 64, Vocabulary: 50, Positions: 16, Types: 2}, seed)
	}},
	{"encoder", "encoder of 2 layers, hidden 32", func(seed uint64) (*Model, error) {
		return Encoder(EncoderConfig{Layers: 2, Hidden: 32, Heads: 4, FF: 64}, seed)
	}},
	{"vit", "ViT of 2 layers, hidden 32, 16x16", func(seed uint64) (*Model, error) {
		return ViT(ViTConfig{Image: 16, Patch: 4, Layers: 2, Hidden: 32, Heads: 4, FF: 64, Classes: 10}, seed)
	}},
	{"lstm", "LSTM of 2 layers, input 16, hidden 8", func(seed uint64) (*Model, error) {
		return LSTM(LSTMConfig{Layers: 2, Input: 16, Hidden: 8}, seed)
	}},
}
