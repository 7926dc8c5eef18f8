package op

// Table lists every operator, grouped as the files of this package are.
var Table = []Def{
	// Elementwise: unary.go, binary.go, cast.go, quantize.go, select.go.
	{Op: &Unary{}, Kind: "Relu", In: [2]int{1, 1}, Out: [2]int{1, 1}, Upgrade: dropConsumedInputs},
	{Op: &Binary{}, Kind: "Add", In: [2]int{2, 2}, Out: [2]int{1, 1}, Upgrade: upgradeBinary},

	// Data movement and shapes: shape.go, reshape.go, slice.go, gather.go, pad.go, resize.go, scatter.go and the like.
	{Op: &Concat{}, In: [2]int{1, -1}, Out: [2]int{1, 1}, Upgrade: upgradeConcat},
	{Op: &Expand{}, In: [2]int{2, 2}, Out: [2]int{1, 1}},
	{Op: &Flatten{}, In: [2]int{1, 1}, Out: [2]int{1, 1}},
	{Op: &Gather{}, In: [2]int{2, 2}, Out: [2]int{1, 1}},
	{Op: &GatherElements{}, In: [2]int{2, 2}, Out: [2]int{1, 1}},
	{Op: &GatherND{}, In: [2]int{2, 2}, Out: [2]int{1, 1}},
	{Op: &Pad{}, In: [2]int{2, 4}, Out: [2]int{1, 1}, Upgrade: upgradePad},
	{Op: &Reshape{}, In: [2]int{2, 2}, Out: [2]int{1, 1}, Upgrade: upgradeReshape},
	{Op: &Shape{}, In: [2]int{1, 1}, Out: [2]int{1, 1}},
	{Op: &Size{}, In: [2]int{1, 1}, Out: [2]int{1, 1}},
	{Op: &Slice{}, In: [2]int{3, 5}, Out: [2]int{1, 1}, Upgrade: upgradeSlice},
	{Op: &Split{}, In: [2]int{1, 2}, Out: [2]int{1, -1}, Upgrade: upgradeSplit},
	{Op: &Squeeze{}, In: [2]int{1, 2}, Out: [2]int{1, 1}, Upgrade: upgradeAxes},
	{Op: &Tile{}, In: [2]int{2, 2}, Out: [2]int{1, 1}},
	{Op: &Transpose{}, In: [2]int{1, 1}, Out: [2]int{1, 1}},
	{Op: &Unsqueeze{}, In: [2]int{2, 2}, Out: [2]int{1, 1}, Upgrade: upgradeAxes},

	// Neural networks: conv.go, pool.go, norm.go, softmax.go, rnn.go, attention.go, loss.go.

	// Reductions, products, generators, random numbers, signals: reduce.go, matmul.go, einsum.go, topk.go, random.go, signal.go.

	// Control flow, strings and classical machine learning: control.go, strings.go, ml.go.
	{Op: &If{}, In: [2]int{1, 1}, Out: [2]int{1, -1}},
}
