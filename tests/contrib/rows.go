package contrib

// Rows lists the operators.
var Rows = []Row{
	{Kind: Domain + ":BiasGelu", Cases: biasGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":FastGelu", Cases: fastGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":Gelu", Cases: gelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":QuickGelu", Cases: quickGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":FusedMatMul", Cases: fusedMatMul, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":GatherBlockQuantized", Cases: gatherBlockQuantized, Rel: 1e-6, Abs: 1e-7},
	{Kind: Domain + ":MatMulNBits", Cases: matMulNBits, Rel: 1e-5, Abs: 1e-4},
	{Kind: "SimplifiedLayerNormalization", Cases: simplifiedLayerNorm, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":SkipSimplifiedLayerNormalization", Cases: skipSimplifiedLayerNorm, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":GroupQueryAttention", Cases: groupQueryAttention, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":RotaryEmbedding", Cases: rotaryEmbedding, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":TransposeMatMul", Cases: transposeMatMul, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":ExpandDims", Cases: expandDims},
	{Kind: Domain + ":Trilu", Cases: trilu},
	{Kind: Domain + ":FusedConv", Cases: fusedConv, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":FusedGemm", Cases: fusedGemm, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":EmbedLayerNormalization", Cases: embedLayerNormalization, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":SkipLayerNormalization", Cases: skipLayerNormalization, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":Attention", Cases: attention, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":MultiHeadAttention", Cases: multiHeadAttention, Rel: 1e-5, Abs: 1e-5},
}
