package cpu

import (
	"spc/ir"
	"spc/lower/chain"
)

// binders lists the operators that have kernels of their own. Elementwise ones are chains, of one where they are
// alone. Others, and types that a binder does not take, are evaluated by their operator.
var binders = map[string]binder{
	// Products.
	"Attention":     bindAttention,
	"Conv":          bindConv,
	"ConvTranspose": bindConvTranspose,
	"Gemm":          bindGemm,
	"GRU":           bindGRU,
	"LSTM":          bindLSTM,
	"MatMul":        bindMatMul,
	"RNN":           bindRNN,

	// Between f32 and 16-bit floats, and between f32 and u8.
	"Cast":             bindCast,
	"DequantizeLinear": bindDequantize,
	"QuantizeLinear":   bindQuantize,

	// Rotations of neighbours.
	"RotaryEmbedding": bindRotary,

	// Normalisations over the last axis.
	"LayerNormalization": bindLayerNorm,
	"LpNormalization":    bindLpNorm,
	"RMSNormalization":   bindRMSNorm,
	"Softmax":            bindSoftmax,

	// Normalisations of channels.
	"GroupNormalization":    bindGroupNorm,
	"InstanceNormalization": bindInstanceNorm,

	// Data movement.
	"Concat":       bindConcat,
	"DepthToSpace": bindDepthToSpace,
	"Expand":       bindExpand,
	"Gather":       bindGather,
	"Pad":          bindPad,
	"Resize":       bindResize,
	"Slice":        bindSlice,
	"SpaceToDepth": bindSpaceToDepth,
	"Split":        bindSplit,
	"Transpose":    bindTranspose,

	// Pools.
	"MaxPool":     bindMaxPool,
	"AveragePool": bindAveragePool,

	// Sums and means over neighbouring axes.
	"GlobalAveragePool": bindGlobalAverage,
	"ReduceMean":        bindMean(true),
	"ReduceSum":         bindMean(false),
}

// binderOf returns the binder of a node, false where there is none.
func binderOf(n *ir.Node) (binder, bool) {
	if bind, ok := binders[n.Op.Kind()]; ok {
		return bind, true
	}
	return bindChain, chain.Elementwise(n)
}
