package op

// Table lists every operator, grouped as the files of this package are.
var Table = []Def{
	// Elementwise: unary.go, binary.go, cast.go, quantize.go, select.go.
	{Op: &Unary{}, Kind: "Relu", In: [2]int{1, 1}, Out: [2]int{1, 1}, Upgrade: dropConsumedInputs},
	{Op: &Binary{}, Kind: "Add", In: [2]int{2, 2}, Out: [2]int{1, 1}, Upgrade: upgradeBinary},

	// Data movement and shapes: shape.go, slice.go, gather.go, pad.go, resize.go, sequence-free scatter and the like.

	// Neural networks: conv.go, pool.go, norm.go, softmax.go, rnn.go, attention.go, loss.go.

	// Reductions, products, generators, random numbers, signals: reduce.go, matmul.go, einsum.go, topk.go, random.go, signal.go.

	// Control flow, strings and classical machine learning: control.go, strings.go, ml.go.
	{Op: &If{}, In: [2]int{1, 1}, Out: [2]int{1, -1}},
}
