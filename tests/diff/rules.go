package diff

import (
	"maps"
	"slices"

	"spc/ir/onnx/contrib"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Rule says how graphs get nodes of an operator.
type Rule struct {
	Make   func(g *Gen, kind string) // adds a node, or is rejected
	Round  rounding                  // what it does to exact inputs
	Calm   bool                      // noise is in its outputs alone: its inputs are sizes, or tell it where to round
	First  bool                      // noise is in the first input alone
	Noise  further                   // adds more to its outputs
	Sparse bool                      // formats leave zeros of its weights out
	Ties   bool                      // its results depend on which elements are equal
	Whole  bool                      // they depend on which elements are integers
	Since  int                       // the operator set that brought it, where that is newer than the one of other graphs
	Until  int                       // the last operator set that has it
	Old    bool                      // it is the same in operator set 9
	Omit   string                    // why there is no rule
	Spec   specification             // what it computes, of operators that importing makes of others
}

// oldOpset is that of graphs with operators that were removed since.
const oldOpset = 9

const random = "its values are random and of no specified generator"

// Rules has a row for each operator of op.Table and of contrib.Table. What it refers to looks rules up, so that
// it is filled on start, as kinds is, which lists the operators with a rule.
var (
	Rules map[string]Rule
	kinds []string
)

// common are drawn more often: those with kernels, plans and passes of their own.
var common = []string{"Add", "Sub", "Mul", "Div", "Relu", "Sigmoid", "Conv", "Conv", "Conv", "ConvTranspose", "Gemm", "Gemm", "MatMul", "MatMul",
	"Concat", "Split", "Slice", "Slice", "Transpose", "Transpose", "Reshape", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout",
	"MaxPool", "AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "Softmax", "LayerNormalization", "Gather", "Pad", "Expand", "Resize",
	"LSTM", "GRU", "RNN", "If", "Loop", "Scan", "Attention", "Clip", "HardSwish", "BatchNormalization", "Cast", "Neg", "Pow", "DepthToSpace", "ScatterND",
	"SplitToSequence", "SequenceMap", "SequenceMap", microsoft + "MatMulNBits", microsoft + "MatMulNBits", microsoft + "GroupQueryAttention", microsoft + "MultiHeadAttention"}

func init() {
	Rules = map[string]Rule{
		// Elementwise.
		"Abs":                   {Make: unary(numbers...), Old: true},
		"Acos":                  {Make: within(-1, 1), Round: rounds, Old: true},
		"Acosh":                 {Make: within(1, 8), Round: rounds, Old: true},
		"Add":                   {Make: binary(numbers...), Round: sums, Old: true},
		"And":                   {Make: binary(tensor.Bool), Old: true},
		"Asin":                  {Make: within(-1, 1), Round: rounds, Old: true},
		"Asinh":                 {Make: unary(tensor.F32), Round: rounds, Old: true},
		"Atan":                  {Make: unary(tensor.F32), Round: rounds, Old: true},
		"Atanh":                 {Make: within(-1, 1), Round: rounds, Old: true},
		"BitCast":               {Make: bitCast, Since: 26},
		"BitShift":              {Make: bitShift},
		"BitwiseAnd":            {Make: binary(ints...)},
		"BitwiseNot":            {Make: unary(ints...)},
		"BitwiseOr":             {Make: binary(ints...)},
		"BitwiseXor":            {Make: binary(ints...)},
		"Cast":                  {Make: cast},
		"CastLike":              {Make: castLike, Calm: true},
		"Ceil":                  {Make: unary(floats...), Old: true},
		"Celu":                  {Make: parameter("alpha", tensor.F32), Round: rounds},
		"Clip":                  {Make: clip, First: true},
		"ConvInteger":           {Make: convInteger},
		"Cos":                   {Make: unary(tensor.F32), Round: rounds, Old: true},
		"Cosh":                  {Make: within(-4, 4), Round: rounds, Old: true},
		"DequantizeLinear":      {Make: dequantize, Round: products},
		"Div":                   {Make: div, Round: divides, Old: true},
		"DynamicQuantizeLinear": {Make: quantizeDynamically, Round: rounds, Calm: true},
		"Elu":                   {Make: parameter("alpha", floats...), Round: rounds, Old: true},
		"Equal":                 {Make: compare(numbers...), Ties: true},
		"Erf":                   {Make: unary(tensor.F32, tensor.F32, tensor.F16), Round: rounds, Old: true},
		"Exp":                   {Make: within(-6, 6), Round: rounds, Old: true},
		"Floor":                 {Make: unary(floats...), Old: true},
		"Gelu":                  {Make: gelu, Round: rounds},
		"Greater":               {Make: compare(numbers...), Old: true},
		"GreaterOrEqual":        {Make: compare(numbers...)},
		"HardSigmoid":           {Make: parameters([]string{"alpha", "beta"}, floats...), Round: rounds, Old: true},
		"HardSwish":             {Make: unary(floats...), Round: rounds},
		"Identity":              {Make: identity, Old: true},
		"IsInf":                 {Make: unary(tensor.F32)},
		"IsNaN":                 {Make: unary(floats...), Old: true},
		"LeakyRelu":             {Make: parameter("alpha", floats...), Round: rounds, Old: true},
		"Less":                  {Make: compare(numbers...), Old: true},
		"LessOrEqual":           {Make: compare(numbers...)},
		"Log":                   {Make: within(0, 9), Round: rounds, Old: true},
		"MatMulInteger":         {Make: matMulInteger},
		"Max":                   {Make: variadic(numbers...)},
		"Mean":                  {Make: variadic(floats...), Round: rounds, Old: true},
		"Min":                   {Make: variadic(numbers...)},
		"Mish":                  {Make: unary(floats...), Round: rounds},
		"Mod":                   {Make: mod},
		"Mul":                   {Make: binary(numbers...), Round: products, Old: true},
		"Neg":                   {Make: unary(signed...), Old: true},
		"Not":                   {Make: unary(tensor.Bool), Old: true},
		"Or":                    {Make: binary(tensor.Bool), Old: true},
		"PRelu":                 {Make: prelu, Round: products, Old: true},
		"Pow":                   {Make: pow, Round: rounds, First: true, Whole: true, Old: true},
		"QLinearConv":           {Make: qlinearConv, Round: rounds, Calm: true},
		"QLinearMatMul":         {Make: qlinearMatMul, Round: rounds, Calm: true},
		"QuantizeLinear":        {Make: quantize, Round: divides, First: true},
		"Reciprocal":            {Make: within(0.5, 4), Round: rounds, Old: true},
		"Relu":                  {Make: unary(floats...), Old: true},
		"Round":                 {Make: unary(floats...)},
		"Selu":                  {Make: parameters([]string{"alpha", "gamma"}, floats...), Round: rounds, Old: true},
		"Shrink":                {Make: parameters([]string{"bias", "lambd"}, tensor.F32), Round: rounds, Calm: true, Old: true},
		"Sigmoid":               {Make: unary(floats...), Round: rounds, Old: true},
		"Sign":                  {Make: unary(numbers...), Old: true},
		"Sin":                   {Make: unary(tensor.F32), Round: rounds, Old: true},
		"Sinh":                  {Make: within(-4, 4), Round: rounds, Old: true},
		"Softplus":              {Make: unary(floats...), Round: rounds, Old: true},
		"Softsign":              {Make: unary(floats...), Round: rounds, Old: true},
		"Sqrt":                  {Make: within(0, 9), Round: rounds, Old: true},
		"Sub":                   {Make: binary(numbers...), Round: sums, Old: true},
		"Sum":                   {Make: variadic(floats...), Round: sums, Old: true},
		"Swish":                 {Make: parameter("alpha", floats...), Round: rounds, Since: 24},
		"Tan":                   {Make: within(-1, 1), Round: rounds, Old: true},
		"Tanh":                  {Make: unary(floats...), Round: rounds, Old: true},
		"ThresholdedRelu":       {Make: parameter("alpha", tensor.F32)},
		"Where":                 {Make: where, Old: true},
		"Xor":                   {Make: binary(tensor.Bool), Old: true},

		// Data movement and shapes.
		"AffineGrid":        {Make: affineGrid, Round: rounds, First: true},
		"CenterCropPad":     {Make: centerCropPad},
		"Col2Im":            {Make: col2im, Round: rounds, First: true},
		"Compress":          {Make: compress},
		"Concat":            {Make: concat, Old: true},
		"DepthToSpace":      {Make: depthToSpace},
		"Dropout":           {Make: dropout},
		"Expand":            {Make: expand, Old: true},
		"Flatten":           {Make: flatten, Old: true},
		"Gather":            {Make: gather},
		"GatherElements":    {Make: gatherElements},
		"GatherND":          {Make: gatherND},
		"GridSample":        {Make: gridSample, Round: rounds},
		"NonMaxSuppression": {Make: nonMaxSuppression, Round: rounds},
		"Pad":               {Make: pad},
		"Reshape":           {Make: reshape},
		"Resize":            {Make: resize, Round: rounds, First: true},
		"ReverseSequence":   {Make: reverseSequence},
		"RoiAlign":          {Make: roiAlign, Round: rounds, First: true},
		"Scatter":           {Make: scatterElements, Old: true, Until: 10},
		"ScatterElements":   {Make: scatterElements, Round: rounds},
		"ScatterND":         {Make: scatterND, Round: rounds},
		"Shape":             {Make: shapeOf},
		"Size":              {Make: sizeOf, Old: true},
		"Slice":             {Make: slice},
		"SpaceToDepth":      {Make: spaceToDepth},
		"Split":             {Make: split},
		"Squeeze":           {Make: squeeze},
		"TensorScatter":     {Make: tensorScatter, Since: 24},
		"Tile":              {Make: tile, Old: true},
		"Transpose":         {Make: transpose, Old: true},
		"Unsqueeze":         {Make: unsqueeze},
		"Upsample":          {Make: upsample, Round: rounds, First: true, Old: true, Until: 9},

		// Neural networks.
		"Attention":                 {Make: attention, Round: rounds, Since: 24},
		"AveragePool":               {Make: pool, Round: rounds},
		"BatchNormalization":        {Make: batchNorm, Round: rounds, Old: true},
		"CausalConvWithState":       {Make: causalConv, Round: rounds, Since: 27},
		"Conv":                      {Make: conv, Round: products, Sparse: true, Old: true},
		"ConvTranspose":             {Make: convTranspose, Round: products, Sparse: true, Old: true},
		"DeformConv":                {Make: deformConv, Round: rounds},
		"GRU":                       {Make: recurrent(3), Round: rounds, Noise: gateNoise, Sparse: true},
		"Gemm":                      {Make: gemm, Round: products, Sparse: true},
		"GlobalAveragePool":         {Make: globalPool, Round: rounds, Old: true},
		"GlobalLpPool":              {Make: globalPool, Round: rounds, Old: true},
		"GlobalMaxPool":             {Make: globalPool, Old: true},
		"GroupNormalization":        {Make: groupNorm, Round: rounds},
		"Hardmax":                   {Make: softmax},
		"InstanceNormalization":     {Make: instanceNorm, Round: rounds, Old: true},
		"LRN":                       {Make: lrn, Round: rounds, Old: true},
		"LSTM":                      {Make: recurrent(4), Round: rounds, Sparse: true},
		"LayerNormalization":        {Make: layerNorm, Round: rounds, Noise: meanNoise},
		"LinearAttention":           {Make: linearAttention, Round: rounds, Since: 27},
		"LogSoftmax":                {Make: softmax, Round: rounds},
		"LpNormalization":           {Make: lpNorm, Round: rounds},
		"LpPool":                    {Make: pool, Round: rounds},
		"MatMul":                    {Make: matMul, Round: products, Sparse: true, Old: true},
		"MaxPool":                   {Make: pool},
		"MaxUnpool":                 {Make: maxUnpool, Calm: true},
		"MeanVarianceNormalization": {Make: mvn, Round: rounds},
		"NegativeLogLikelihoodLoss": {Make: loss, Round: rounds},
		"RMSNormalization":          {Make: rmsNorm, Round: rounds, Since: 23},
		"RNN":                       {Make: recurrent(1), Round: rounds},
		"RotaryEmbedding":           {Make: rotary, Round: rounds, Since: 23},
		"Softmax":                   {Make: softmax, Round: rounds},
		"SoftmaxCrossEntropyLoss":   {Make: loss, Round: rounds},
		"SwiGLU":                    {Make: swiGLU, Round: rounds, Since: 28},

		"ai.onnx.preview:FlexAttention": {Make: flexAttention, Round: rounds, Since: 1},

		// Reductions, generators, random numbers, signals.
		"ArgMax":            {Make: arg},
		"ArgMin":            {Make: arg},
		"Bernoulli":         {Omit: random},
		"BlackmanWindow":    {Make: window, Round: rounds, Calm: true},
		"ConstantOfShape":   {Make: constantOfShape, Old: true},
		"CumProd":           {Make: cumulate, Round: rounds, Since: 26},
		"CumSum":            {Make: cumulate, Round: sums},
		"DFT":               {Make: dft, Round: rounds, First: true},
		"Det":               {Make: det, Round: rounds},
		"Einsum":            {Make: einsum, Round: products},
		"EyeLike":           {Make: eyeLike, Old: true},
		"HammingWindow":     {Make: window, Round: rounds, Calm: true},
		"HannWindow":        {Make: window, Round: rounds, Calm: true},
		"MelWeightMatrix":   {Make: mel, Round: rounds, Calm: true},
		"Multinomial":       {Omit: random},
		"NonZero":           {Make: nonZero, Old: true},
		"OneHot":            {Make: oneHot},
		"RandomNormal":      {Omit: random},
		"RandomNormalLike":  {Omit: random},
		"RandomUniform":     {Omit: random},
		"RandomUniformLike": {Omit: random},
		"Range":             {Make: rangeOf, Round: rounds, Calm: true},
		"ReduceL1":          {Make: reduce, Round: sums},
		"ReduceL2":          {Make: reduce, Round: rounds},
		"ReduceLogSum":      {Make: reduce, Round: rounds},
		"ReduceLogSumExp":   {Make: reduce, Round: rounds},
		"ReduceMax":         {Make: reduce},
		"ReduceMean":        {Make: reduce, Round: rounds},
		"ReduceMin":         {Make: reduce},
		"ReduceProd":        {Make: reduce, Round: rounds},
		"ReduceSum":         {Make: reduce, Round: sums},
		"ReduceSumSquare":   {Make: reduce, Round: rounds},
		"STFT":              {Make: stft, Round: rounds, First: true},
		"TopK":              {Make: topK},
		"Trilu":             {Make: trilu},
		"Unique":            {Make: unique, Ties: true},

		// Control flow, strings and classical machine learning.
		"If":                 {Make: ifElse},
		"Loop":               {Make: loop},
		"OptionalGetElement": {Make: getElement},
		"OptionalHasElement": {Make: hasElement},
		"ConcatFromSequence": {Make: concatFromSequence},
		"Optional":           {Make: optional},
		"SequenceAt":         {Make: sequenceAt},
		"SequenceConstruct":  {Make: sequenceConstruct},
		"SequenceEmpty":      {Make: sequenceEmpty},
		"SequenceErase":      {Make: sequenceErase},
		"SequenceInsert":     {Make: sequenceInsert},
		"SequenceLength":     {Make: sequenceLength},
		"SequenceMap":        {Make: sequenceMap},
		"SplitToSequence":    {Make: splitToSequence},
		"RegexFullMatch":     {Make: regex},
		"Scan":               {Make: scan},
		"StringConcat":       {Make: binary(tensor.String)},
		"StringNormalizer":   {Make: stringNormalizer},
		"StringSplit":        {Make: stringSplit},
		"TfIdfVectorizer":    {Make: tfidf, Old: true},

		"ai.onnx.ml:ArrayFeatureExtractor": {Make: features, Since: 5},
		"ai.onnx.ml:Binarizer":             {Make: parameter("threshold", tensor.F32), Since: 5},
		"ai.onnx.ml:LabelEncoder":          {Make: labels, Since: 5},
		"ai.onnx.ml:TreeEnsemble":          {Make: trees, Round: rounds, Calm: true, Since: 5},
	}
	maps.Copy(Rules, contribRules)
	for _, kind := range slices.Sorted(maps.Keys(Rules)) {
		if Rules[kind].Make != nil {
			kinds = append(kinds, kind)
		}
	}
}

// Unlisted returns the operators of op.Table and contrib.Table without a row in Rules, and the
// rows for operators that are in neither.
func Unlisted() (missing, extra []string) {
	var all []string
	for _, d := range op.Table {
		all = append(all, d.Kind)
	}
	for _, d := range contrib.Table {
		all = append(all, d.Kind)
	}
	for _, kind := range all {
		if r, ok := Rules[kind]; !ok || (r.Make == nil) == (r.Omit == "") {
			missing = append(missing, kind)
		}
	}
	for kind := range Rules {
		if op.Lookup(kind) == nil && contrib.Lookup(kind) == nil {
			extra = append(extra, kind)
		}
	}
	return missing, extra
}
