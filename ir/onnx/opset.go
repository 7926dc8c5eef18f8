package onnx

import (
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// What Export writes asks for the least operator set that has every node in the form that it has here, so that old
// runtimes and tools read the file.

// MinOpset is the least operator set that Export writes, which forms begin with.
const MinOpset = 13

// exportOpset is the operator set for what is in none of the tables here: what today's runtimes read.
const exportOpset = 21

// irVersions holds the IR version that came with each operator set; one that is not here has MaxIRVersion.
var irVersions = map[int]int{13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12}

// forms lists operators by the set, 13 at least, since which they have had today's inputs, defaults and meaning on the types of
// plain and, of wordly, on 8-bit integers. Attributes that came later have their own tag (ir.AttrSince).
var forms = map[int][]string{
	13: strings.Fields(`Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BitShift Cast Ceil Clip Compress Concat
		ConcatFromSequence ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh DepthToSpace DequantizeLinear Det
		Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements
		GatherND Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual HardSigmoid Hardmax
		Identity If InstanceNormalization IsNaN LRN LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpNormalization
		MatMul MatMulInteger Max MaxPool Mean MeanVarianceNormalization Min Mod Mul Neg NonMaxSuppression NonZero Not
		OneHot Or PRelu Pow QLinearConv QLinearMatMul QuantizeLinear Reciprocal ReduceSum ReverseSequence Round Scan
		Selu SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shrink Sigmoid
		Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split SplitToSequence Sqrt Squeeze Sub Sum
		Tan Tanh ThresholdedRelu Tile TopK Transpose Unsqueeze Where Xor`),
	14: strings.Fields(`BatchNormalization CumSum GRU HardSwish LSTM RNN Relu Reshape Trilu`),
	15: strings.Fields(`Shape`),
	16: strings.Fields(`RoiAlign`),
	17: strings.Fields(`LayerNormalization`),
	18: strings.Fields(`LpPool ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd
		ReduceSumSquare ScatterElements ScatterND`),
	19: strings.Fields(`AveragePool Pad Resize`),
	20: strings.Fields(`GridSample IsInf ReduceMax ReduceMin`),
}

// formOf is the inverse of forms.
var formOf = func() map[string]int {
	m := map[string]int{}
	for version, kinds := range forms {
		for _, k := range kinds {
			m[k] = version
		}
	}
	return m
}()

// The types that operators of forms have always taken: those of integer products and of what quantises, and all others.
var (
	plain      = []tensor.DType{tensor.F16, tensor.F32, tensor.F64, tensor.I32, tensor.I64, tensor.Bool}
	quantised  = []tensor.DType{tensor.F32, tensor.I32, tensor.I8, tensor.U8}
	ofIntegers = strings.Fields(`ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear`)
)

// typesSince holds the operator sets that brought types to operators, where those are newer than exportOpset.
var typesSince = map[tensor.DType]int{tensor.F4E2M1: 23, tensor.F8E8M0: 24, tensor.I2: 25, tensor.U2: 25}

// sinceTypes returns the operator set in which an operator takes values, nil among them.
func sinceTypes(kind string, values ...*ir.Value) int {
	types, version := plain, 0
	if slices.Contains(ofIntegers, kind) {
		types = quantised
	}
	for _, v := range values {
		if v == nil {
			continue
		}
		switch dt := v.Type.DType; {
		case dt.IsSequence() && slices.Contains(types, dt.Elem()):
			version = max(version, 16) // which brought them to If and Loop, and sets before that to others
		case !slices.Contains(types, dt):
			version = max(version, exportOpset, typesSince[dt])
		}
	}
	return version
}

// since returns the operator set that n, an operator of the default domain, needs.
func since(n *ir.Node) int {
	kind := n.Op.Kind()
	d := op.Lookup(kind)
	version := formOf[kind]
	if version == 0 {
		version = max(exportOpset, d.Since)
	}
	if len(n.Inputs) > d.Grown.Inputs && d.Grown.Since > 0 {
		version = max(version, d.Grown.Since)
	}
	for _, a := range ir.Attrs(n.Op) {
		version = max(version, ir.AttrSince(n.Op, a.Name))
	}
	return max(version, sinceTypes(kind, slices.Concat(n.Inputs, n.Outputs)...))
}
