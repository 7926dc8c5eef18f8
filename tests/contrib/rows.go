package contrib

// Rows lists the operators.
var Rows = []Row{
	// Elementwise.
	{Kind: Domain + ":BiasGelu", Cases: biasGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":FastGelu", Cases: fastGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":Gelu", Cases: gelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":QuickGelu", Cases: quickGelu, Rel: 1e-5, Abs: 1e-6},

	// Products.
	{Kind: Domain + ":FusedConv", Cases: fusedConv, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":FusedGemm", Cases: fusedGemm, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":FusedMatMul", Cases: fusedMatMul, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":GatherBlockQuantized", Cases: gatherBlockQuantized, Rel: 1e-6, Abs: 1e-7, Interpreted: []string{"DequantizeLinear"}},
	{Kind: Domain + ":MatMulNBits", Cases: matMulNBits, Rel: 1e-5, Abs: 1e-4},
	{Kind: Domain + ":TransposeMatMul", Cases: transposeMatMul, Rel: 1e-5, Abs: 1e-5},

	// Norms.
	{Kind: Domain + ":EmbedLayerNormalization", Cases: embedLayerNormalization, Rel: 1e-5, Abs: 1e-5},
	{Kind: "SimplifiedLayerNormalization", Cases: simplifiedLayerNorm, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":SkipLayerNormalization", Cases: skipLayerNormalization, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":SkipSimplifiedLayerNormalization", Cases: skipSimplifiedLayerNorm, Rel: 1e-5, Abs: 1e-6},

	// Attention.
	{Kind: Domain + ":Attention", Cases: attention, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":GroupQueryAttention", Cases: groupQueryAttention, Rel: 1e-5, Abs: 1e-5, Interpreted: []string{"Attention", "Pad"}},
	{Kind: Domain + ":MultiHeadAttention", Cases: multiHeadAttention, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":RotaryEmbedding", Cases: rotaryEmbedding, Rel: 1e-5, Abs: 1e-6},

	// What moves or masks elements.
	{Kind: Domain + ":ExpandDims", Cases: expandDims},
	{Kind: Domain + ":Trilu", Cases: trilu},

	// Tensors of integers.
	{Kind: Domain + ":DequantizeLinear", Cases: dequantizeLinear},
	{Kind: Domain + ":DynamicQuantizeLSTM", Cases: dynamicQuantizeLSTM, Abs: 1e-3}, // ONNX Runtime rounds the state to 8 bits in each step
	{Kind: Domain + ":DynamicQuantizeMatMul", Cases: dynamicQuantizeMatMul, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":MatMulIntegerToFloat", Cases: matMulIntegerToFloat, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":QAttention", Cases: qAttention, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":QEmbedLayerNormalization", Cases: qEmbedLayerNormalization, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":QGemm", Cases: qGemm, Rel: 1e-5, Abs: 1e-5},
	{Kind: Domain + ":QLinearAdd", Cases: qlinearBinary},
	{Kind: Domain + ":QLinearAveragePool", Cases: qlinearAveragePool},
	{Kind: Domain + ":QLinearConcat", Cases: qlinearConcat},
	{Kind: Domain + ":QLinearConv", Cases: qlinearConv},
	{Kind: Domain + ":QLinearGlobalAveragePool", Cases: qlinearGlobalAveragePool},
	{Kind: Domain + ":QLinearLeakyRelu", Cases: qlinearLeakyRelu},
	{Kind: Domain + ":QLinearMul", Cases: qlinearBinary},
	{Kind: Domain + ":QLinearSigmoid", Cases: qlinearSigmoid},
	{Kind: Domain + ":QLinearSoftmax", Cases: qlinearSoftmax, Abs: 1}, // where 1/scale is no whole number, of which ONNX Runtime takes the floor
	{Kind: Domain + ":QLinearWhere", Cases: qlinearWhere},
	{Kind: Domain + ":QuantizeLinear", Cases: quantizeLinear},
}
