package contrib

import "strings"

// Table lists every operator, grouped as the files of this package are.
var Table = []Def{
	// Elementwise: gelu.go.
	{Kind: Domain + ":BiasGelu", In: [2]int{2, 2}, Out: [2]int{1, 1}, Expand: biasGelu},
	{Kind: Domain + ":FastGelu", In: [2]int{1, 2}, Out: [2]int{1, 1}, Expand: fastGelu},
	{Kind: Domain + ":Gelu", In: [2]int{1, 1}, Out: [2]int{1, 1}, Expand: gelu},
	{Kind: Domain + ":QuickGelu", In: [2]int{1, 1}, Out: [2]int{1, 1}, Expand: quickGelu},

	// Products: matmul.go, fused.go, nbits.go, gatherquantized.go.
	{Kind: Domain + ":FusedConv", In: [2]int{2, 4}, Out: [2]int{1, 1}, Expand: fusedConv},
	{Kind: Domain + ":FusedGemm", In: [2]int{2, 3}, Out: [2]int{1, 1}, Expand: fusedGemm},
	{Kind: Domain + ":FusedMatMul", In: [2]int{2, 2}, Out: [2]int{1, 1}, Expand: fusedMatMul},
	{Kind: Domain + ":GatherBlockQuantized", In: [2]int{3, 4}, Out: [2]int{1, 1}, Expand: gatherBlockQuantized},
	{Kind: Domain + ":MatMulNBits", In: [2]int{3, 6}, Out: [2]int{1, 1}, Expand: matMulNBits},
	{Kind: Domain + ":TransposeMatMul", In: [2]int{2, 2}, Out: [2]int{1, 1}, Expand: fusedMatMul},

	// Norms: norm.go, rmsnorm.go, embed.go.
	{Kind: Domain + ":EmbedLayerNormalization", In: [2]int{1, 9}, Out: [2]int{1, 3}, Expand: embedLayerNormalization},
	{Kind: "SimplifiedLayerNormalization", In: [2]int{2, 2}, Out: [2]int{1, 2}, Expand: simplifiedLayerNorm},
	{Kind: Domain + ":SkipLayerNormalization", In: [2]int{3, 5}, Out: [2]int{1, 4}, Expand: skipLayerNormalization},
	{Kind: Domain + ":SkipSimplifiedLayerNormalization", In: [2]int{3, 4}, Out: [2]int{1, 4}, Expand: skipSimplifiedLayerNorm},

	// Attention: attention.go, multihead.go, and attending.go, which they share; groupquery.go, rotary.go.
	{Kind: Domain + ":Attention", In: [2]int{2, 7}, Out: [2]int{1, 2}, Expand: attention},
	{Kind: Domain + ":GroupQueryAttention", In: [2]int{1, 16}, Out: [2]int{1, 4}, Expand: groupQueryAttention},
	{Kind: Domain + ":MultiHeadAttention", In: [2]int{1, 10}, Out: [2]int{1, 4}, Expand: multiHeadAttention},
	{Kind: Domain + ":RotaryEmbedding", In: [2]int{4, 4}, Out: [2]int{1, 1}, Expand: rotaryEmbedding},

	// What moves or masks elements: shape.go.
	{Kind: Domain + ":ExpandDims", In: [2]int{2, 2}, Out: [2]int{1, 1}, Expand: expandDims},
	{Kind: Domain + ":Trilu", In: [2]int{1, 2}, Out: [2]int{1, 1}, Expand: trilu},

	// Tensors of integers: qlinear.go, qmatmul.go, qattention.go, qlstm.go, qembed.go.
	{Kind: Domain + ":DequantizeLinear", In: [2]int{2, 3}, Out: [2]int{1, 1}, Expand: dequantizeLinear},
	{Kind: Domain + ":DynamicQuantizeLSTM", In: [2]int{3, 12}, Out: [2]int{0, 3}, Expand: dynamicQuantizeLSTM},
	{Kind: Domain + ":DynamicQuantizeMatMul", In: [2]int{3, 5}, Out: [2]int{1, 1}, Expand: dynamicQuantizeMatMul},
	{Kind: Domain + ":MatMulIntegerToFloat", In: [2]int{4, 7}, Out: [2]int{1, 1}, Expand: matMulIntegerToFloat},
	{Kind: Domain + ":QAttention", In: [2]int{5, 9}, Out: [2]int{1, 2}, Expand: qAttention},
	{Kind: Domain + ":QEmbedLayerNormalization", In: [2]int{1, 18}, Out: [2]int{1, 2}, Expand: qEmbedLayerNormalization},
	{Kind: Domain + ":QGemm", In: [2]int{5, 9}, Out: [2]int{1, 1}, Expand: qGemm},
	{Kind: Domain + ":QLinearAdd", In: [2]int{1, 8}, Out: [2]int{1, 1}, Expand: qlinearBinary("Add")},
	{Kind: Domain + ":QLinearAveragePool", In: [2]int{1, 5}, Out: [2]int{1, 1}, Expand: qlinearAveragePool},
	{Kind: Domain + ":QLinearConcat", In: [2]int{2, -1}, Out: [2]int{1, 1}, Expand: qlinearConcat},
	{Kind: Domain + ":QLinearConv", In: [2]int{8, 9}, Out: [2]int{1, 1}, Expand: qlinearConv},
	{Kind: Domain + ":QLinearGlobalAveragePool", In: [2]int{5, 5}, Out: [2]int{1, 1}, Expand: qlinear(qlinearGlobalAveragePool)},
	{Kind: Domain + ":QLinearLeakyRelu", In: [2]int{1, 5}, Out: [2]int{1, 1}, Expand: qlinear(qlinearLeakyRelu)},
	{Kind: Domain + ":QLinearMul", In: [2]int{1, 8}, Out: [2]int{1, 1}, Expand: qlinearBinary("Mul")},
	{Kind: Domain + ":QLinearSigmoid", In: [2]int{1, 5}, Out: [2]int{1, 1}, Expand: qlinear(qlinearSigmoid)},
	{Kind: Domain + ":QLinearSoftmax", In: [2]int{1, 5}, Out: [2]int{1, 1}, Expand: qlinear(qlinearSoftmax)},
	{Kind: Domain + ":QLinearWhere", In: [2]int{9, 9}, Out: [2]int{1, 1}, Expand: qlinearWhere},
	{Kind: Domain + ":QuantizeLinear", In: [2]int{2, 3}, Out: [2]int{1, 1}, Expand: quantizeLinear},
}

// Instead says how to have a model without an operator that is in neither table, where that is known.
func Instead(domain, name string) string {
	switch {
	case domain == "com.microsoft.nchwc":
		return "ONNX Runtime's optimisation level 'all' writes it for the machine that it runs on: save the model at the level 'extended'"
	case domain != Domain:
		return ""
	case strings.Contains(name, "Search") || name == "Sampling":
		return "it runs a decoder until it ends: export the decoder itself, and choose tokens outside of it"
	case strings.HasPrefix(name, "Nhwc") || strings.HasPrefix(name, "QOrdered") || name == "EPContext":
		return "ONNX Runtime writes it for a device: save the model for the CPU, at the level 'extended' or below"
	case name == "MulInteger" || name == "QLinearReduceMean" || name == "ReduceSumInteger":
		return "ONNX Runtime has no kernel of it for CPUs either: quantise the model with nodes QuantizeLinear and DequantizeLinear (QDQ)"
	case strings.HasPrefix(name, "Packed") || name == "PagedAttention" || name == "RemovePadding" || name == "RestorePadding":
		return "it is of models without padding: export the model with padding, or save it at the level 'basic'"
	}
	return "save the model at ONNX Runtime's optimisation level 'basic', which adds no operator of its own"
}
