package cpu

import (
	"spc/ir"
	"spc/ir/op"
	"spc/lower/chain"
)

// binders lists the operators that have kernels of their own. Elementwise ones are chains, of one where they are
// alone. Others, and types that a binder does not take, are evaluated by their operator.
var binders = map[string]binder{
	// Products.
	"Attention":     bindAttention,
	"Conv":          bindConv,
	"ConvInteger":   bindConvInteger,
	"ConvTranspose": bindConvTranspose,
	"Gemm":          bindGemm,
	"GRU":           bindGRU,
	"LSTM":          bindLSTM,
	"MatMul":        bindMatMul,
	"MatMulInteger": bindMatMulInteger,
	"RNN":           bindRNN,

	// Between types.
	"Cast":                  bindCast,
	"CastLike":              bindCast,
	"DequantizeLinear":      bindDequantize,
	"DynamicQuantizeLinear": bindDynamicQuantize,
	"QuantizeLinear":        bindQuantize,

	// Rotations of neighbours.
	"RotaryEmbedding": bindRotary,

	// Data movement.
	"Concat":          bindConcat,
	"ConstantOfShape": bindFill,
	"DepthToSpace":    bindDepthToSpace,
	"Expand":          bindExpand,
	"Gather":          bindGather,
	"GatherElements":  bindPick,
	"GatherND":        bindPick,
	"OneHot":          bindOneHot,
	"Pad":             bindPad,
	"Resize":          bindResize,
	"ScatterElements": bindScatter,
	"ScatterND":       bindScatter,
	"Slice":           bindSlice,
	"SpaceToDepth":    bindSpaceToDepth,
	"Split":           bindSplit,
	"TensorScatter":   bindTensorScatter,
	"Tile":            bindTile,
	"Transpose":       bindTranspose,
	"Where":           bindWhere,
	"Trilu":           bindTrilu,

	// Elements in their order.
	"CumProd": bindCumulate,
	"CumSum":  bindCumulate,
	"TopK":    bindTopK,

	// Elements that are shortened.
	"Shrink": bindShrink,

	// Channels with their neighbours.
	"LRN": bindLRN,

	// Images read between their elements.
	"GridSample": bindGridSample,
	"RoiAlign":   bindRoiAlign,

	// Pools.
	"MaxPool":     bindMaxPool,
	"AveragePool": bindAveragePool,

	// Elements along axes that are joined.
	"ArgMax":            bindArg,
	"ArgMin":            bindArg,
	"GlobalAveragePool": bindGlobal,
	"GlobalMaxPool":     bindGlobal,
	"ReduceL1":          bindReduce,
	"ReduceL2":          bindReduce,
	"ReduceLogSum":      bindReduce,
	"ReduceLogSumExp":   bindReduce,
	"ReduceMax":         bindReduce,
	"ReduceMean":        bindReduce,
	"ReduceMin":         bindReduce,
	"ReduceProd":        bindReduce,
	"ReduceSum":         bindReduce,
	"ReduceSumSquare":   bindReduce,
}

// heads lists those whose kernels hand what they compute to a chain, where the binder gives bound.pieces.
var heads = map[string]binder{
	// Normalisations of lines.
	"LayerNormalization": bindLayerNorm,
	"Hardmax":            bindSoftmax,
	"LogSoftmax":         bindSoftmax,
	"LpNormalization":    bindLpNorm,
	"RMSNormalization":   bindRMSNorm,
	"Softmax":            bindSoftmax,

	// Normalisations of channels.
	"GroupNormalization":    bindGroupNorm,
	"InstanceNormalization": bindInstanceNorm,
}

// binderOf returns the binder of a node, false where there is none.
func binderOf(n *ir.Node) (binder, bool) {
	for _, list := range []map[string]binder{binders, heads} {
		if bind, ok := list[n.Op.Kind()]; ok {
			return bind, true
		}
	}
	return bindChain, chain.Elementwise(n) || op.Operands(n) == 2
}
