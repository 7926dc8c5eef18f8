package diff

import (
	"slices"

	"spc/ir/tensor"
)

// microsoft is the domain of ONNX Runtime's own operators.
const microsoft = "com.microsoft:"

// contribRules are the rows of Rules for what ONNX Runtime adds to ONNX. No graph holds these operators once it is imported, so that
// nothing is said of how they round.
var contribRules = map[string]Rule{
	"SimplifiedLayerNormalization":                 {Make: simplifiedNorm, Spec: rmsNormSpec},
	microsoft + "Attention":                        {Make: ownAttention, Spec: attentionSpec},
	microsoft + "BiasGelu":                         {Make: ownGelu, Spec: gelusSpec},
	microsoft + "DequantizeLinear":                 {Make: dequantize},
	microsoft + "DynamicQuantizeLSTM":              {Make: dynamicLSTM},
	microsoft + "DynamicQuantizeMatMul":            {Make: dynamicMatMul, Spec: dynamicMatMulSpec},
	microsoft + "EmbedLayerNormalization":          {Make: embedNorm, Spec: embedNormSpec},
	microsoft + "ExpandDims":                       {Make: expandDims, Spec: expandDimsSpec},
	microsoft + "FastGelu":                         {Make: ownGelu, Spec: gelusSpec},
	microsoft + "FusedConv":                        {Make: fusedConv, Spec: fusedConvSpec},
	microsoft + "FusedGemm":                        {Make: fusedGemm, Spec: fusedGemmSpec},
	microsoft + "FusedMatMul":                      {Make: fusedMatMul, Spec: fusedMatMulSpec},
	microsoft + "GatherBlockQuantized":             {Make: gatherBlocks, Spec: gatherBlocksSpec},
	microsoft + "Gelu":                             {Make: ownGelu, Spec: gelusSpec},
	microsoft + "GroupQueryAttention":              {Make: groupQuery, Spec: groupQuerySpec},
	microsoft + "MatMulIntegerToFloat":             {Make: integersToFloat, Spec: integersToFloatSpec},
	microsoft + "MatMulNBits":                      {Make: nbits, Spec: nbitsSpec},
	microsoft + "MultiHeadAttention":               {Make: multiHead, Spec: multiHeadSpec},
	microsoft + "QAttention":                       {Make: qAttention, Spec: qAttentionSpec},
	microsoft + "QEmbedLayerNormalization":         {Make: qembedNorm, Spec: qembedNormSpec},
	microsoft + "QGemm":                            {Make: qGemm, Spec: qGemmSpec},
	microsoft + "QLinearAdd":                       {Make: qlinearBinary, Spec: qlinearBinarySpec(plus)},
	microsoft + "QLinearAveragePool":               {Make: qlinearPool},
	microsoft + "QLinearConcat":                    {Make: qlinearConcat, Spec: qlinearConcatSpec},
	microsoft + "QLinearConv":                      {Make: qlinearConv},
	microsoft + "QLinearGlobalAveragePool":         {Make: qlinearPool, Spec: qlinearSpec(meanSpec)},
	microsoft + "QLinearLeakyRelu":                 {Make: qlinearUnary, Spec: qlinearSpec(leakySpec)},
	microsoft + "QLinearMul":                       {Make: qlinearBinary, Spec: qlinearBinarySpec(times)},
	microsoft + "QLinearSigmoid":                   {Make: qlinearUnary, Spec: qlinearSpec(sigmoidSpec)},
	microsoft + "QLinearSoftmax":                   {Make: qlinearUnary, Spec: qlinearSpec(softmaxSpec)},
	microsoft + "QLinearWhere":                     {Make: qlinearWhere, Spec: qlinearWhereSpec},
	microsoft + "QuantizeLinear":                   {Make: quantize},
	microsoft + "QuickGelu":                        {Make: ownGelu, Spec: gelusSpec},
	microsoft + "RotaryEmbedding":                  {Make: ownRotary, Spec: rotarySpec},
	microsoft + "SkipLayerNormalization":           {Make: skipNorm, Spec: skipNormSpec},
	microsoft + "SkipSimplifiedLayerNormalization": {Make: skipNorm, Spec: skipRMSNormSpec},
	microsoft + "TransposeMatMul":                  {Make: fusedMatMul, Spec: fusedMatMulSpec},
	microsoft + "Trilu":                            {Make: trilu, Spec: triluSpec},
}

func ownGelu(g *Gen, kind string) {
	x := g.some(choose(g, floats...), 1, 4)
	in, a := []*val{x}, Attrs{}
	if kind == microsoft+"BiasGelu" || kind == microsoft+"FastGelu" && g.one(2) {
		in = append(in, g.weight(g.floats(x.dt(), x.dim(-1))))
	}
	if kind == microsoft+"QuickGelu" && g.one(2) {
		a["alpha"] = choose(g, 0.5, 1.0, 2.0)
	}
	g.node(kind, a, in...)
}

func fusedMatMul(g *Gen, kind string) {
	rank := choose(g, 2, 2, 3, 4)
	m, k, n := 1+g.r.IntN(5), choose(g, 1, 3, 4, 8, 16, 17), g.columns()
	lead := []int{1 + g.r.IntN(2), 1 + g.r.IntN(3)}[:rank-2]
	a := Attrs{}
	if g.one(2) {
		a["alpha"] = choose(g, 0.5, 2.0, 0.3)
	}
	// operand is one of a shape whose axes are in another order.
	operand := func(name string, draw func(shape ...int) *val, shape ...int) *val {
		trans, batch := g.one(2), len(shape) > 2 && kind == microsoft+"FusedMatMul" && g.one(3)
		stored := slices.Clone(shape)
		for i, p := range fusedAxes(len(shape), trans, batch) {
			stored[p] = shape[i]
		}
		if trans {
			a["trans"+name] = 1
		}
		if batch {
			a["transBatch"+name] = 1
		}
		return draw(stored...)
	}
	given := func(shape ...int) *val { return g.shaped(tensor.F32, shape...) }
	x := operand("A", given, append(slices.Clone(lead), m, k)...)
	if g.one(2) {
		lead = nil
	}
	g.node(kind, a, x, operand("B", choose(g, given, g.dense, g.dense), append(slices.Clone(lead), k, n)...))
}

// fusedActivation draws an activation that a product is fused with.
func (g *Gen) fusedActivation() string {
	return choose(g, "Relu", "Tanh", "Sigmoid", "LeakyRelu")
}

func fusedGemm(g *Gen, kind string) {
	x := g.some(tensor.F32, 2, 2)
	a, m, k, n := Attrs{"activation": g.fusedActivation()}, x.dim(0), x.dim(1), g.columns()
	if a["activation"] == "LeakyRelu" {
		a["activation_alpha"] = 0.25
	}
	if g.one(4) {
		a["transA"], m, k = 1, k, m
	}
	w := []int{k, n}
	if g.one(2) {
		a["transB"], w = 1, []int{n, k}
	}
	if g.one(4) {
		a["alpha"], a["beta"] = choose(g, 0.5, 2.0), choose(g, 0.5, 1.0, 2.0)
	}
	in := []*val{x, g.dense(w...)}
	if g.one(2) {
		in = append(in, g.dense(choose(g, []int{n}, []int{n}, []int{1}, []int{m, 1}, []int{m, n})...))
	}
	g.node(kind, a, in...)
}

func fusedConv(g *Gen, kind string) {
	x := g.image(2)
	n, c, side := x.dim(0), x.dim(1), choose(g, 1, 2, 3, 3)
	groups := choose(g, 1, 1, 1, c)
	m := groups * choose(g, 1, 2, 4)
	pads, strides := []int{g.r.IntN(2), g.r.IntN(2), g.r.IntN(2), g.r.IntN(2)}, []int{1 + g.r.IntN(2), 1 + g.r.IntN(2)}
	a := Attrs{"group": groups, "pads": pads, "strides": strides}
	if !g.one(4) {
		if a["activation"] = g.fusedActivation(); a["activation"] == "LeakyRelu" {
			a["activation_params"] = []float64{0.25}
		}
	}
	in := []*val{x, g.dense(m, c/groups, side, side), nil, nil}
	if g.one(2) {
		in[2] = g.vector(m)
	}
	if g.one(2) {
		out := []int{n, m, (x.dim(2)+pads[0]+pads[2]-side)/strides[0] + 1, (x.dim(3)+pads[1]+pads[3]-side)/strides[1] + 1}
		if out[2] < 1 || out[3] < 1 {
			reject("the kernel is larger than the image")
		}
		in[3] = g.shaped(tensor.F32, out...)
	}
	g.node(kind, a, in...)
}

// optional is a vector half of the time.
func (g *Gen) optional(n int) *val {
	if g.one(2) {
		return nil
	}
	return g.vector(n)
}

func simplifiedNorm(g *Gen, kind string) {
	x := g.some(tensor.F32, 2, 4)
	g.nodes(kind, Attrs{"epsilon": choose(g, 1e-3, 0.5)}, choose(g, 1, 1, 2), x, g.vector(x.dim(-1)))
}

// skipNorm is SkipLayerNormalization or, without a shift and of which nobody wants the mean, SkipSimplifiedLayerNormalization.
func skipNorm(g *Gen, kind string) {
	x := g.some(tensor.F32, 3, 3)
	s := slices.Clone(choose(g, x.shape(), x.shape(), x.shape()[1:]))
	if g.one(4) && len(s) == 3 {
		s[0] = 1
	}
	n := x.dim(-1)
	in, wanted := []*val{x, g.shaped(tensor.F32, s...), g.vector(n)}, []bool{true, true, true, true}
	if kind == microsoft+"SkipLayerNormalization" {
		in = append(in, g.optional(n))
	} else {
		wanted[1] = false
	}
	in = append(in, g.optional(n))
	switch g.r.IntN(3) {
	case 0:
		wanted = wanted[:1]
	case 1:
		wanted[1], wanted[2] = false, false
	}
	g.wanted(kind, Attrs{"epsilon": choose(g, 1e-3, 0.5)}, wanted, in...)
}

// ids draws indices of n as i32.
func (g *Gen) ids(n int, shape ...int) *val {
	return g.structural(g.places(n, shape...).To(tensor.I32))
}

func embedNorm(g *Gen, kind string) {
	b, s, h := 1+g.r.IntN(2), 1+g.r.IntN(4), choose(g, 4, 8, 9)
	in := []*val{g.ids(7, b, s), nil, g.weight(g.floats(tensor.F32, 7, h)), g.weight(g.floats(tensor.F32, 5, h)), nil, g.vector(h), g.vector(h), nil, nil}
	if g.one(2) {
		in[4] = g.weight(g.floats(tensor.F32, 2, h))
		if g.one(2) {
			in[1] = g.ids(2, b, s)
		}
	}
	if g.one(2) {
		in[7] = g.ids(2, b, s)
	}
	if g.one(2) {
		in[8] = g.ids(5, choose(g, 1, b), s)
	}
	g.nodes(kind, Attrs{"epsilon": 1e-3}, 1+g.r.IntN(3), in...)
}

// coded draws integers of 8 bits about the zero points of zero.
func (g *Gen) coded(dt tensor.DType) func(shape []int) *tensor.Tensor {
	return func(shape []int) *tensor.Tensor {
		x := make([]int64, count(shape))
		for i := range x {
			if x[i] = int64(g.r.IntN(33)) - 14; dt == tensor.U8 {
				x[i] += 100
			}
		}
		return tensor.FromInt64s(dt, x, shape...)
	}
}

// integers is a value of 8 bits: one that is there, or a new one.
func (g *Gen) integers(least, most int) *val {
	dt := choose(g, tensor.U8, tensor.I8)
	if g.one(3) {
		return g.some(dt, least, most)
	}
	return g.source(g.coded(dt), g.shape(least+g.r.IntN(most-least+1))...)
}

// quantisation is a scale and a zero point for a type.
func (g *Gen) quantisation(dt tensor.DType) []*val {
	return []*val{g.weight(g.scale()), g.weight(g.zero(dt))}
}

// quantised8 is x with a scale and a zero point behind it.
func (g *Gen) quantised8(x *val) []*val { return append([]*val{x}, g.quantisation(x.dt())...) }

func qembedNorm(g *Gen, kind string) {
	b, s, h := 1+g.r.IntN(2), 1+g.r.IntN(4), choose(g, 4, 8)
	in := make([]*val, 18)
	in[0] = g.ids(7, b, s)
	shapes := [][]int{{7, h}, {5, h}, {2, h}, {h}, {h}}
	segments := g.one(2)
	if segments {
		in[1] = g.ids(2, b, s)
	}
	for i, shape := range shapes {
		if i == 2 && !segments {
			continue
		}
		dt := choose(g, tensor.U8, tensor.I8)
		q := g.quantised8(g.weight(g.coded(dt)(shape)))
		in[2+i], in[8+i], in[13+i] = q[0], q[1], q[2]
	}
	if g.one(2) {
		in[7] = g.ids(2, b, s)
	}
	g.nodes(kind, Attrs{"epsilon": 1e-3}, 1+g.r.IntN(2), in...)
}

func expandDims(g *Gen, kind string) {
	x := g.some(choose(g, tensor.F32, tensor.F32, tensor.I64), 0, 3)
	g.node(kind, nil, x, g.structural(tensor.Scalar(int32(g.r.IntN(2*x.rank()+2)-x.rank()-1))))
}

func qlinearUnary(g *Gen, kind string) {
	x := g.integers(1, 4)
	in, a := append(g.quantised8(x), g.quantisation(x.dt())...), Attrs{}
	switch kind {
	case microsoft + "QLinearLeakyRelu":
		a["alpha"] = 0.25
	case microsoft + "QLinearSoftmax":
		a["opset"], a["axis"] = 13, g.axis(x.rank())
		if x.len() == 0 {
			reject("empty")
		}
	}
	g.node(kind, a, in...)
}

func leakySpec(s *specified, x *array) *array { return x.each(leaky(s.float("alpha", 0.01))) }

func sigmoidSpec(_ *specified, x *array) *array { return x.each(specifiedSigmoid) }

func plus(x, y float64) float64 { return x + y }

func qlinearBinary(g *Gen, kind string) {
	x := g.integers(1, 4)
	y := g.source(g.coded(x.dt()), x.shape()[g.r.IntN(x.rank()):]...)
	g.node(kind, nil, slices.Concat(g.quantised8(x), g.quantised8(y), g.quantisation(x.dt()))...)
}

func qlinearWhere(g *Gen, kind string) {
	x := g.integers(1, 4)
	c, y := g.fresh(tensor.Bool, x.shape()...), g.source(g.coded(x.dt()), x.shape()...)
	g.node(kind, nil, slices.Concat([]*val{c}, g.quantised8(x), g.quantised8(y), g.quantisation(x.dt()))...)
}

func qlinearConcat(g *Gen, kind string) {
	x := g.integers(1, 4)
	axis := g.axis(x.rank())
	in := append(g.quantisation(x.dt()), g.quantised8(x)...)
	for range 1 + g.r.IntN(2) {
		s := slices.Clone(x.shape())
		s[(axis+x.rank())%x.rank()] = 1 + g.r.IntN(4)
		in = append(in, g.quantised8(g.source(g.coded(x.dt()), s...))...)
	}
	g.node(kind, Attrs{"axis": axis}, in...)
}

func qlinearPool(g *Gen, kind string) {
	x := g.source(g.coded(choose(g, tensor.U8, tensor.I8)), g.imageShape(2)...)
	a := Attrs{"channels_last": g.r.IntN(2)}
	if kind == microsoft+"QLinearAveragePool" {
		a["kernel_shape"], a["strides"] = []int{2, 2}, []int{1 + g.r.IntN(2), 1}
	}
	to := g.weight(tensor.Scalar[float32](0.07)) // in which few means lie between two integers
	g.node(kind, a, append(g.quantised8(x), to, g.weight(g.zero(x.dt())))...)
}

// scales are those of n columns, or one, and zero points as many, which may be absent.
func (g *Gen) scales(dt tensor.DType, n int) (scale, zero *val) {
	shape := choose(g, []int{}, []int{n})
	scale = g.weight(g.scale(shape...))
	if g.one(2) {
		zero = g.weight(g.zero(dt, shape...))
	}
	return scale, zero
}

// codes8 is a constant of integers of 8 bits.
func (g *Gen) codes8(shape ...int) *val {
	return g.weight(g.coded(choose(g, tensor.U8, tensor.I8))(shape))
}

func dynamicMatMul(g *Gen, kind string) {
	x := g.some(tensor.F32, 2, 3)
	if x.constant { // what prune writes would hold the product as a constant, of which no noise tells how it is rounded elsewhere
		draw := g.drawer(tensor.F32)
		x = g.newInput(draw(x.shape()), draw)
	}
	n := g.columns()
	w := g.codes8(x.dim(-1), n)
	s, z := g.scales(w.dt(), n)
	g.node(kind, nil, x, w, s, z, g.optional(n))
}

func integersToFloat(g *Gen, kind string) {
	x := g.integers(2, 3)
	n := g.columns()
	w := g.codes8(x.dim(-1), n)
	s, z := g.scales(w.dt(), n)
	q := g.quantisation(x.dt())
	g.node(kind, nil, x, w, q[0], s, choose(g, q[1], nil), z, g.optional(n))
}

func qGemm(g *Gen, kind string) {
	x := g.integers(2, 2)
	a, k, n := Attrs{}, x.dim(1), g.columns()
	if g.one(4) {
		a["transA"], k = 1, x.dim(0)
	}
	w := []int{k, n}
	if g.one(2) {
		a["transB"], w = 1, []int{n, k}
	}
	if g.one(4) {
		a["alpha"] = choose(g, 0.5, 2.0)
	}
	b := g.codes8(w...)
	s, z := g.scales(b.dt(), n)
	in := append(g.quantised8(x), b, s, z, nil)
	if g.one(2) {
		in[6] = g.weight(g.data(tensor.I32, n))
	}
	if g.one(2) {
		in = append(in, g.quantisation(x.dt())...)
	}
	g.node(kind, a, in...)
}

func dynamicLSTM(g *Gen, kind string) {
	seq, batch, n, h := 1+g.r.IntN(3), 1+g.r.IntN(2), choose(g, 2, 4, 5), choose(g, 2, 4, 8)
	direction, dirs := "forward", 1
	if g.one(3) {
		direction, dirs = "bidirectional", 2
	}
	small := func(dt tensor.DType, shape ...int) (w, scale, zero *val) {
		return g.weight(g.coded(dt)(shape)), g.weight(g.between(0.01, 0.05)([]int{dirs})), g.weight(g.zero(dt, dirs))
	}
	dt := choose(g, tensor.U8, tensor.I8)
	w, ws, wz := small(dt, dirs, n, 4*h)
	r, rs, rz := small(dt, dirs, h, 4*h)
	in := []*val{g.shaped(tensor.F32, seq, batch, n), w, r, nil, nil, nil, nil, nil, ws, wz, rs, rz}
	if g.one(2) {
		in[3] = g.weight(g.floats(tensor.F32, dirs, 8*h))
	}
	g.nodes(kind, Attrs{"hidden_size": h, "direction": direction}, 1+g.r.IntN(3), in...)
}

// packed draws bytes of numbers of a few bits.
func (g *Gen) packed(shape ...int) *val {
	x := make([]int64, count(shape))
	for i := range x {
		x[i] = int64(g.r.IntN(256))
	}
	return g.weight(tensor.FromInt64s(tensor.U8, x, shape...))
}

func nbits(g *Gen, kind string) {
	bits, block := choose(g, 2, 4, 4, 8), choose(g, 16, 16, 32)
	k, n := choose(g, block, block+5, 2*block, 3*block), choose(g, 1, 3, 4, 8, 16, 17)
	blocks := (k + block - 1) / block
	x := g.shaped(tensor.F32, append(choose(g, []int{}, []int{2}), 1+g.r.IntN(5), k)...)
	in := []*val{x, g.packed(n, blocks, block*bits/8), g.weight(g.scale(n * blocks)), nil, nil, nil}
	switch g.r.IntN(4) {
	case 0, 1:
		in[3] = g.packed(n * ((blocks*bits + 7) / 8))
	case 2:
		in[3] = g.weight(g.floats(tensor.F32, n*blocks))
	}
	if g.one(5) {
		groups := tensor.New(tensor.I32, k)
		for i, p := range g.r.Perm(k) {
			tensor.Data[int32](groups)[p] = int32(i / block)
		}
		in[4] = g.weight(groups)
	}
	in[5] = g.optional(n)
	g.node(kind, Attrs{"K": k, "N": n, "bits": bits, "block_size": block}, in...)
}

func gatherBlocks(g *Gen, kind string) {
	bits, rows, columns := choose(g, 4, 8), 3+g.r.IntN(5), choose(g, 16, 32, 40)
	blocks := (columns + 15) / 16
	in := []*val{g.packed(rows, columns*bits/8), nil, g.weight(g.scale(rows, blocks))}
	if dt := choose(g, tensor.U8, tensor.I4, tensor.U4); dt != tensor.U8 {
		bits, in[0] = 4, g.weight(g.data(dt, rows, columns))
	}
	in[1] = g.indices(rows, g.shape(g.r.IntN(3))...)
	if g.one(2) {
		if in[0].dt() == tensor.U8 {
			in = append(in, g.packed(rows, (blocks*bits+7)/8))
		} else {
			in = append(in, g.weight(g.data(in[0].dt(), rows, blocks)))
		}
	}
	g.node(kind, Attrs{"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}, in...)
}
