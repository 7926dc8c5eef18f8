package cpu

import (
	"math"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
)

// binders lists the operators that have kernels of their own; others, and types
// that a binder does not take, are evaluated by their operator.
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

	// Elementwise, two operands.
	"Add": bindBinary(addPair),
	"Sub": bindBinary(subPair),
	"Mul": bindBinary(mulPair),
	"Div": bindBinary(divPair),
	"Pow": bindBinary(powPair),

	// Elementwise, one operand.
	"Relu":        bindUnary(newActivation("Relu", nil)),
	"Sigmoid":     bindUnary(newActivation("Sigmoid", nil)),
	"Tanh":        bindUnary(newActivation("Tanh", nil)),
	"HardSwish":   bindUnary(newActivation("HardSwish", nil)),
	"Sqrt":        bindUnary(each64(math.Sqrt)),
	"Exp":         bindUnary(func(y []float32) { vec.Exp(y, y) }),
	"Log":         bindUnary(each64(math.Log)),
	"Erf":         bindUnary(each64(math.Erf)),
	"Neg":         bindUnary(each(func(v float32) float32 { return -v })),
	"Abs":         bindUnary(each64(math.Abs)),
	"Reciprocal":  bindUnary(each(func(v float32) float32 { return 1 / v })),
	"Clip":        bindActivation,
	"Gelu":        bindActivation,
	"HardSigmoid": bindActivation,
	"LeakyRelu":   bindActivation,
	"Swish":       bindActivation,

	// Between f32 and u8.
	"DequantizeLinear": bindDequantize,
	"QuantizeLinear":   bindQuantize,

	// Rotations of neighbours.
	"RotaryEmbedding": bindRotary,

	// Normalisations over the last axis.
	"LayerNormalization": bindLayerNorm,
	"RMSNormalization":   bindRMSNorm,
	"Softmax":            bindSoftmax,

	// Data movement.
	"Cast":         bindCast,
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

// bindActivation binds an operator of op.Activations that has parameters.
func bindActivation(_ *program, n *ir.Node) (*bound, error) {
	args, ok := op.ActivationArgs(n)
	if !ok || !f32(n) {
		return nil, nil
	}
	return unaryBound(newActivation(n.Op.Kind(), args)), nil
}
