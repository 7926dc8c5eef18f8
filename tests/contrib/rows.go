package contrib

// Rows lists the operators.
var Rows = []Row{
	{Kind: Domain + ":BiasGelu", Cases: biasGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":FastGelu", Cases: fastGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":Gelu", Cases: gelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":QuickGelu", Cases: quickGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":FusedMatMul", Cases: fusedMatMul, Rel: 1e-5, Abs: 1e-5},
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
