package diff

import (
	"math"
	"slices"

	"spc/ir/tensor"
)

// pattern is a few nodes that stand together in models, and that passes and the plan of
// memory treat together.
type pattern struct {
	name string
	make func(g *Gen)
}

// patterns lists them. It refers to functions that refer to rules, so it is filled on start.
var patterns []pattern

func init() {
	patterns = []pattern{
		{"residual", residual},
		{"block", block},
		{"activation", func(g *Gen) { g.activate(g.product()) }},
		{"bias", bias},
		{"normalised", normalised},
		{"layernorm", layerNormSpelled},
		{"rmsnorm", rmsNormSpelled},
		{"attention", attentionSpelled},
		{"rotary", rotarySpelled},
		{"views", views},
		{"chain", chain},
		{"parts", parts},
		{"quantised", quantised},
		{"dynamic", dynamic},
		{"coded", codedWeight},
		{"coded", codedWeight},
		{"transposed", transposed},
		{"mixture", mixture},
		{"shapes", shapes},
		{"padded", padded},
		{"captured", captured},
		{"overlapping", overlapping},
		{"kept", kept},
		{"kept", kept},
		{"flattened", flattened},
		{"sliced", sliced},
		{"assigned", assigned},
		{"rows", rows},
		{"pieces", pieces},
		{"held", held},
		{"collected", collected},
		{"visited", visited},
		{"chosen", chosen},
		{"given", given},
		{"shared", shared},
	}
}

// constant is a scalar.
func (g *Gen) constant(x float64) *val { return g.weight(tensor.Scalar(float32(x))) }

// product adds an operator with a weight.
func (g *Gen) product() *val {
	switch g.r.IntN(3) {
	case 0:
		return g.conv()
	case 1:
		return g.gemm()
	}
	return g.matMul()
}

// activate adds an activation, by its operator or spelled out.
func (g *Gen) activate(x *val) *val {
	switch g.r.IntN(11) {
	case 0:
		return g.node("Relu", nil, x)
	case 1:
		return g.node("Sigmoid", nil, x)
	case 2:
		return g.node("Clip", nil, x, g.constant(0), g.constant(6))
	case 3: // GELU
		e := g.node("Erf", nil, g.node("Div", nil, x, g.constant(math.Sqrt2)))
		e = g.node("Add", nil, e, g.constant(1))
		if g.one(2) {
			return g.node("Mul", nil, g.node("Mul", nil, x, e), g.constant(0.5))
		}
		return g.node("Mul", nil, g.node("Mul", nil, x, g.constant(0.5)), e)
	case 4: // GELU by tanh
		c := g.node("Mul", nil, g.node("Pow", nil, x, g.constant(3)), g.constant(0.044715))
		c = g.node("Tanh", nil, g.node("Mul", nil, g.node("Add", nil, x, c), g.constant(math.Sqrt(2/math.Pi))))
		return g.node("Mul", nil, g.node("Mul", nil, x, g.constant(0.5)), g.node("Add", nil, c, g.constant(1)))
	case 5: // SiLU
		return g.node("Mul", nil, x, g.node("Sigmoid", nil, x))
	case 6: // HardSwish
		return g.node("Mul", nil, x, g.node("HardSigmoid", Attrs{"alpha": 1.0 / 6, "beta": 0.5}, x))
	case 7:
		c := g.node("Clip", nil, g.node("Add", nil, x, g.constant(3)), g.constant(0), g.constant(6))
		return g.node("Div", nil, g.node("Mul", nil, x, c), g.constant(6))
	case 8:
		return g.node("LeakyRelu", Attrs{"alpha": 0.25}, x)
	case 9:
		return g.node("Tanh", nil, x)
	}
	return g.node("HardSwish", nil, x)
}

// residual adds to a product what may be its own input, or another product, or what
// somebody else reads, too.
func residual(g *Gen) {
	y := g.product()
	if y.dt() != tensor.F32 {
		reject("type")
	}
	if g.one(3) && y.rank() == 4 {
		y = g.batchNorm(y)
	}
	if g.one(3) {
		y = g.activate(y)
	}
	r := g.shaped(tensor.F32, y.shape()...)
	if g.one(4) {
		r = g.beside(y, tensor.F32)
	}
	if g.one(2) {
		y, r = r, y
	}
	z := g.node("Add", nil, y, r)
	if g.one(2) {
		z = g.activate(z)
	}
	if g.one(4) {
		g.node("Add", nil, z, r)
	}
}

// block is a block of a residual network.
func block(g *Gen) {
	x := g.image(2)
	c := x.dim(1)
	y := x
	for range 1 + g.r.IntN(2) {
		k := choose(g, 1, 3)
		y = g.node("Conv", Attrs{"pads": []int{k / 2, k / 2, k / 2, k / 2}}, y, g.dense(c, c, k, k))
		y = g.batchNorm(y)
		if g.one(2) {
			y = g.node("Relu", nil, y)
		}
	}
	y = g.node("Add", nil, y, x)
	g.node("Relu", nil, y)
}

func bias(g *Gen) {
	y := g.product()
	if y.rank() == 0 {
		reject("scalar")
	}
	n := y.dim(-1)
	s := []int{n}
	if y.rank() > 2 && g.one(2) {
		s = []int{y.dim(1)}
		for range y.rank() - 2 {
			s = append(s, 1)
		}
	}
	b := g.weight(g.floats(y.dt(), s...))
	y = g.node(choose(g, "Add", "Mul", "Sub"), nil, y, b)
	if g.one(2) && y.dt() == tensor.F32 {
		y = g.node(choose(g, "Add", "Mul"), nil, y, g.weight(g.floats(tensor.F32, choose(g, s, []int{}, []int{1})...)))
		g.activate(y)
	}
}

func normalised(g *Gen) {
	y := g.conv()
	y = g.batchNorm(y)
	if g.one(2) {
		g.activate(y)
	}
	if g.one(3) {
		g.batchNorm(g.conv())
	}
}

func layerNormSpelled(g *Gen) {
	x := g.some(tensor.F32, 2, 4)
	mean := func(v *val) *val { return g.node("ReduceMean", Attrs{"keepdims": 1}, v, g.weight(tensor.Ints(-1))) }
	d := g.node("Sub", nil, x, mean(x))
	var sq *val
	if g.one(2) {
		sq = g.node("Pow", nil, d, g.constant(2))
	} else {
		sq = g.node("Mul", nil, d, d)
	}
	s := g.node("Sqrt", nil, g.node("Add", nil, mean(sq), g.constant(1e-3)))
	y := g.node("Div", nil, d, s)
	y = g.node("Mul", nil, y, g.vector(x.dim(-1)))
	y = g.node("Add", nil, y, g.vector(x.dim(-1)))
	if g.one(2) {
		g.node("Add", nil, y, x)
	}
}

func rmsNormSpelled(g *Gen) {
	x := g.some(tensor.F32, 2, 4)
	sq := g.node("Pow", nil, x, g.constant(2))
	m := g.node("ReduceMean", Attrs{"keepdims": 1}, sq, g.weight(tensor.Ints(-1)))
	s := g.node("Sqrt", nil, g.node("Add", nil, m, g.constant(1e-3)))
	var y *val
	if g.one(2) {
		y = g.node("Div", nil, x, s)
	} else {
		y = g.node("Mul", nil, x, g.node("Reciprocal", nil, s))
	}
	g.node("Mul", nil, y, g.vector(x.dim(-1)))
}

// attentionSpelled is attention as exporters write it, from projections.
func attentionSpelled(g *Gen) {
	b, s, h, d := 1+g.r.IntN(2), 1+g.r.IntN(5), 1+g.r.IntN(3), choose(g, 2, 4, 8)
	x := g.shaped(tensor.F32, b, s, h*d)
	heads := func(v *val) *val {
		return g.permute(g.node("Reshape", nil, v, g.weight(tensor.Ints(b, s, h, d))), 0, 2, 1, 3)
	}
	var q, k, v *val
	project := func(n int) *val {
		y := g.node("MatMul", nil, x, g.dense(h*d, n))
		if g.one(2) {
			y = g.node("Add", nil, y, g.vector(n))
		}
		return y
	}
	if g.one(2) {
		p := g.nodes("Split", Attrs{"axis": -1, "num_outputs": 3}, 3, project(3*h*d))
		q, k, v = heads(p[0]), heads(p[1]), heads(p[2])
	} else {
		q, k, v = heads(project(h*d)), heads(project(h*d)), heads(project(h*d))
	}
	if g.one(2) {
		q = g.node("Mul", nil, q, g.constant(1/math.Sqrt(float64(d))))
	}
	scores := g.node("MatMul", nil, q, g.permute(k, 0, 1, 3, 2))
	if g.one(2) {
		scores = g.node("Div", nil, scores, g.constant(math.Sqrt(float64(d))))
	}
	if g.one(2) {
		scores = g.node("Add", nil, scores, g.shaped(tensor.F32, choose(g, []int{s, s}, []int{b, 1, s, s}, []int{1, 1, 1, s})...))
	}
	p := g.node("Softmax", Attrs{"axis": -1}, scores)
	y := g.permute(g.node("MatMul", nil, p, v), 0, 2, 1, 3)
	y = g.node("Reshape", nil, y, g.ints(b, s, h*d))
	y = g.node("MatMul", nil, y, g.dense(h*d, h*d))
	if g.one(2) {
		g.node("Add", nil, y, x)
	}
}

func rotarySpelled(g *Gen) {
	b, h, s, d := 1, 1+g.r.IntN(3), 1+g.r.IntN(4), choose(g, 4, 8)
	x := g.shaped(tensor.F32, b, h, s, d)
	cos, sin := g.source(g.between(-1, 1), 1, 1, s, d), g.source(g.between(-1, 1), 1, 1, s, d)
	part := func(lo, hi int) *val {
		return g.node("Slice", nil, x, g.weight(tensor.Ints(lo)), g.weight(tensor.Ints(hi)), g.weight(tensor.Ints(3)))
	}
	r := g.node("Concat", Attrs{"axis": -1}, g.node("Neg", nil, part(d/2, d)), part(0, d/2))
	g.node("Add", nil, g.node("Mul", nil, x, cos), g.node("Mul", nil, r, sin))
}

// views is a chain of operators that only change the shape, of which others read links.
func views(g *Gen) {
	v := g.some(choose(g, tensor.F32, tensor.F32, tensor.F32, tensor.I64), 0, 4)
	if g.one(2) && v.dt() == tensor.F32 {
		v = g.node(choose(g, "Relu", "Neg", "Exp", "Sigmoid", "Abs"), nil, v)
	}
	var links []*val
	for range 2 + g.r.IntN(3) {
		switch g.r.IntN(6) {
		case 0:
			v = g.node("Reshape", nil, v, g.ints(g.factors(v.len())...))
		case 1:
			v = g.node("Flatten", Attrs{"axis": g.r.IntN(v.rank() + 1)}, v)
		case 2:
			v = g.node("Unsqueeze", nil, v, g.ints(g.r.IntN(v.rank()+1)))
		case 3:
			v = g.node("Identity", nil, v)
		case 4:
			if v.dt() == tensor.F32 {
				v = g.node("Dropout", nil, v, g.structural(tensor.Scalar[float32](0)), g.structural(tensor.Scalar(true)))
			}
		case 5:
			for i, d := range v.shape() {
				if d == 1 {
					v = g.node("Squeeze", nil, v, g.ints(i))
					break
				}
			}
		}
		links = append(links, v)
	}
	if v.dt() == tensor.F32 {
		g.node(choose(g, "Relu", "Neg", "Sigmoid", "Abs"), nil, choose(g, links...))
		g.node(choose(g, "Relu", "Neg", "Sigmoid", "Abs"), nil, choose(g, links...))
	}
}

// chain is a chain of elementwise operators, which may all use one buffer.
func chain(g *Gen) {
	v := g.some(tensor.F32, 1, 4)
	first := v
	for range 2 + g.r.IntN(4) {
		switch g.r.IntN(4) {
		case 0:
			v = g.node(choose(g, "Add", "Sub", "Mul"), nil, v, g.beside(v, tensor.F32))
		case 1:
			v = g.node(choose(g, "Add", "Sub", "Mul"), nil, v, choose(g, first, v))
		default:
			v = g.node(choose(g, "Relu", "Neg", "Abs", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu"), nil, v)
		}
	}
}

// parts splits, changes and joins again.
func parts(g *Gen) {
	x := g.some(tensor.F32, 1, 4)
	a := g.r.IntN(x.rank())
	n := x.dim(a)
	if n < 2 {
		reject("nothing to split")
	}
	if g.one(2) {
		x = g.node("Relu", nil, x)
	}
	var ps []*val
	if g.one(2) {
		k := 1 + g.r.IntN(n-1)
		ps = g.nodes("Split", Attrs{"axis": a}, 2, x, g.weight(tensor.Ints(k, n-k)))
	} else {
		for at := 0; at < n; {
			k := 1 + g.r.IntN(n-at)
			ps = append(ps, g.node("Slice", nil, x, g.weight(tensor.Ints(at)), g.weight(tensor.Ints(at+k)), g.weight(tensor.Ints(a))))
			at += k
		}
	}
	for i := range ps {
		if !g.one(3) {
			ps[i] = g.node(choose(g, "Relu", "Neg", "Abs", "Sigmoid", "Identity"), nil, ps[i])
		}
	}
	if g.one(4) {
		ps = append(ps, choose(g, ps...))
	}
	g.r.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
	y := g.node("Concat", Attrs{"axis": a}, ps...)
	if g.one(2) {
		g.node(choose(g, "Relu", "Neg"), nil, y)
	}
	if g.one(3) {
		g.node("Neg", nil, ps[0])
	}
}

// quantised is a product between QuantizeLinear and DequantizeLinear, by powers of two.
func quantised(g *Gen) {
	fake := func(v *val, dt tensor.DType) *val {
		s, z := g.weight(g.scale()), g.weight(g.zero(dt))
		return g.node("DequantizeLinear", nil, g.node("QuantizeLinear", nil, v, s, z), s, z)
	}
	dt := choose(g, tensor.U8, tensor.I8)
	var y, x *val
	if g.one(2) {
		x = g.image(2)
		c := x.dim(1)
		m := choose(g, 1, 3, 4, 8, c)
		k := choose(g, 1, 3)
		axis, per := Attrs{"axis": 0}, c
		if g.one(3) { // depthwise
			m, per = c, 1
		}
		w := g.node("DequantizeLinear", axis, g.weight(g.data(tensor.I8, m, per, k, k)), g.weight(g.scale(m)), g.weight(tensor.New(tensor.I8, m)))
		a := Attrs{"group": c / per}
		if k == 3 {
			a["pads"] = []int{1, 1, 1, 1}
		}
		in := []*val{fake(x, dt), w}
		if g.one(2) {
			in = append(in, g.vector(m))
		}
		y = g.node("Conv", a, in...)
	} else {
		x = g.some(tensor.F32, 2, 3)
		n := g.columns()
		w := g.node("DequantizeLinear", nil, g.weight(g.data(tensor.I8, x.dim(-1), n)), g.weight(g.scale()), g.weight(tensor.New(tensor.I8)))
		y = g.node("MatMul", nil, fake(x, dt), w)
		if g.one(2) {
			y = g.node("Add", nil, y, g.vector(n))
		}
	}
	if g.one(2) {
		y = g.node("Relu", nil, y)
	}
	y = fake(y, dt)
	if g.one(2) {
		y = g.node("Add", nil, y, fake(g.shaped(tensor.F32, y.shape()...), dt))
		fake(y, dt)
	}
}

// codedWeight is a product with a weight of few bits in blocks along what it adds up, as what rounds weights alone writes it.
func codedWeight(g *Gen) {
	dt, block := choose(g, tensor.I4, tensor.U4, tensor.I8, tensor.U8), choose(g, 16, 16, 32)
	k, n := block*(1+g.r.IntN(3)), g.columns()
	if g.one(4) {
		k -= 3 // so that the last block is shorter
	}
	blocks := (k + block - 1) / block
	a, codes, grid := Attrs{"block_size": block, "axis": 0}, []int{k, n}, []int{blocks, n}
	rows := g.one(2) // each column is stored as a row
	if rows {
		a["axis"], codes, grid = 1, []int{n, k}, []int{n, blocks}
	}
	in := []*val{g.weight(g.data(dt, codes...)), g.weight(g.scale(grid...))}
	if g.one(2) {
		z := make([]int64, product(grid))
		for i := range z {
			z[i] = int64(g.r.IntN(4))
		}
		in = append(in, g.weight(tensor.FromInt64s(dt, z, grid...)))
	}
	w := g.node("DequantizeLinear", a, in...)
	x := g.shaped(tensor.F32, 1+g.r.IntN(9), k)
	var y *val
	switch {
	case !rows && g.one(2):
		y = g.node("Gemm", nil, x, w, g.vector(n))
	case !rows:
		y = g.node("MatMul", nil, x, w)
	case g.one(2):
		y = g.node("Gemm", Attrs{"transB": 1}, x, w)
	default:
		y = g.node("MatMul", nil, x, g.node("Transpose", Attrs{"perm": []int{1, 0}}, w))
	}
	if g.one(2) {
		g.activate(y)
	}
}

// dynamic is products of one value that is quantised as the model runs, or what is nearly that.
func dynamic(g *Gen) {
	conv := g.one(2)
	var x *val
	if conv {
		x = g.image(2)
	} else {
		x = g.some(tensor.F32, 1, 3)
	}
	q := g.nodes("DynamicQuantizeLinear", nil, 3, x)
	for range 1 + g.r.IntN(3) {
		dt := choose(g, tensor.U8, tensor.I8)
		kind, attrs, m := "MatMulInteger", Attrs{}, choose(g, 1, 3, 4, 8)
		var w *val
		scales := choose(g, []int{}, []int{1}, []int{m})
		if conv {
			kind, attrs = "ConvInteger", Attrs{"pads": []int{1, 0, 1, 1}}
			c := x.dim(1)
			if group := choose(g, 1, 2, 4); c%group == 0 && m%group == 0 {
				attrs["group"], c = group, c/group
			}
			w = g.weight(g.data(dt, m, c, 2, 2))
			scales = choose(g, []int{}, []int{m, 1, 1})
		} else {
			w = g.weight(g.data(dt, x.dim(-1), m))
		}
		in := []*val{q[0], w}
		if !g.one(8) {
			in = append(in, q[2])
			if g.one(2) {
				in = append(in, g.weight(g.zero(dt)))
			}
		}
		y := g.node(kind, attrs, in...)
		c := g.node("Cast", Attrs{"to": tensor.F32}, y)
		s := g.weight(g.scale(scales...))
		switch g.r.IntN(3) {
		case 0:
			y = g.node("Mul", nil, c, g.node("Mul", nil, q[1], s))
		case 1:
			y = g.node("Mul", nil, g.node("Mul", nil, s, c), q[1])
		case 2:
			y = g.node("Mul", nil, c, s)
		}
		if g.one(2) {
			y = g.node("Add", nil, y, g.weight(g.floats(tensor.F32, scales...)))
		}
		if g.one(2) {
			g.activate(y)
		}
	}
}

// transposed puts transposes around what they may be folded into.
func transposed(g *Gen) {
	x := g.some(tensor.F32, 2, 4)
	p := g.r.Perm(x.rank())
	v := g.permute(x, p...)
	switch g.r.IntN(5) {
	case 0:
		v = g.node("MatMul", nil, v, g.dense(v.dim(-1), g.columns()))
	case 1:
		v = g.node("Relu", nil, v)
	case 2:
		v = g.node("Add", nil, v, g.beside(v, tensor.F32))
	case 3:
		v = g.node("ReduceMean", Attrs{"keepdims": 1}, v, g.weight(tensor.Ints(g.r.IntN(v.rank()))))
	case 4:
		v = g.node("Softmax", Attrs{"axis": -1}, v)
	}
	if v.rank() == len(p) {
		q := make([]int, len(p))
		for i, k := range p {
			q[k] = i
		}
		if g.one(3) {
			q = g.r.Perm(len(p))
		}
		v = g.permute(v, q...)
	}
	if g.one(2) {
		g.permute(v, g.r.Perm(v.rank())...)
	}
}

// mixture multiplies by a gate that is computed from the same value.
func mixture(g *Gen) {
	x := g.image(2)
	p := g.node("GlobalAveragePool", nil, x)
	c := x.dim(1)
	p = g.node("Conv", nil, p, g.dense(c, c, 1, 1))
	p = g.node(choose(g, "Sigmoid", "HardSigmoid", "Relu"), nil, p)
	y := g.node("Mul", nil, x, p)
	if g.one(2) {
		g.node("Conv", nil, y, g.dense(1+g.r.IntN(8), c, 1, 1))
	}
}

// shapes reshapes by what Shape, Gather and Concat compute, as exporters do.
func shapes(g *Gen) {
	x := g.some(tensor.F32, 2, 4)
	s := g.node("Shape", nil, x)
	var dims []*val
	for i := range x.rank() {
		d := g.node("Gather", Attrs{"axis": 0}, s, g.weight(tensor.Scalar(int64(i))))
		dims = append(dims, g.node("Unsqueeze", nil, d, g.weight(tensor.Ints(0))))
	}
	n := len(dims)
	joined := g.node("Mul", nil, dims[n-2], dims[n-1])
	to := g.node("Concat", Attrs{"axis": 0}, append(dims[:n-2:n-2], joined)...)
	y := g.node("Reshape", nil, x, to)
	y = g.node(choose(g, "Relu", "Neg", "Tanh"), nil, y)
	if g.one(2) {
		y = g.node("Reshape", nil, y, s)
		g.node("Add", nil, y, x)
	}
}

// padded is padding that a window may take over.
func padded(g *Gen) {
	x := g.image(2)
	y := g.node("Pad", nil, x, g.weight(tensor.Ints(0, 0, 1, 1, 0, 0, 1, g.r.IntN(2))))
	if g.one(2) {
		g.node("Conv", nil, y, g.dense(1+g.r.IntN(4), x.dim(1), 3, 3))
		return
	}
	g.node(choose(g, "MaxPool", "AveragePool"), Attrs{"kernel_shape": []int{2, 2}, "strides": []int{2, 2}}, y)
}

// captured has a loop read in each round what was computed before it, and compute more
// after it has.
func captured(g *Gen) {
	v := g.node(choose(g, "Relu", "Neg", "Tanh", "Sigmoid"), nil, g.some(tensor.F32, 1, 3))
	state := g.shaped(tensor.F32, v.shape()...)
	in := []*value{plain(tensor.Scalar(int64(0))), plain(tensor.Scalar(true)), state.v}
	body := g.subgraph(in, func(in []*val) []*val {
		s := g.node(choose(g, "Max", "Min", "Sub"), nil, in[2], v)
		for range 1 + g.r.IntN(3) {
			s = g.node(choose(g, "Neg", "Abs", "Relu", "Sigmoid"), nil, s)
		}
		return []*val{g.node("Identity", nil, in[1]), s}
	})
	g.node("Loop", Attrs{"body": body}, g.index(2+g.r.IntN(2)), nil, state)
}

// overlapping combines a value with a part of it.
func overlapping(g *Gen) {
	v := g.some(tensor.F32, 1, 3)
	if v.dim(0) < 2 {
		reject("nothing to cut")
	}
	v = g.node(choose(g, "Relu", "Neg", "Abs"), nil, v)
	at := g.r.IntN(v.dim(0))
	part := g.node("Slice", nil, v, g.weight(tensor.Ints(at)), g.weight(tensor.Ints(at+1)), g.weight(tensor.Ints(0)))
	in := []*val{v, part}
	if g.one(2) {
		in = []*val{part, v}
	}
	g.node(choose(g, "Add", "Sub", "Mul"), nil, in...)
}

// kept reads a value after what may have returned it as it is, which an operand decides at
// run time, and after what may have computed in its place.
func kept(g *Gen) {
	act := func(v *val) *val {
		return g.node(choose(g, "Relu", "Neg", "Abs", "Sigmoid", "Tanh"), nil, v)
	}
	at := func(t *tensor.Tensor) *val { return g.newInput(t, nil) }
	x := g.some(tensor.F32, 0, 3)
	kind := choose(g, "Reshape", "Squeeze", "Unsqueeze", "Dropout", "Loop", "ScatterND", "If")
	if kind == "Squeeze" {
		x = g.shaped(tensor.F32, append([]int{1}, g.shape(g.r.IntN(3))...)...)
	}
	x = act(x)
	switch kind {
	case "Reshape":
		g.node(kind, nil, x, at(tensor.Ints(g.factors(x.len())...)))
	case "Squeeze":
		g.node(kind, nil, x, at(tensor.Ints(0)))
	case "Unsqueeze":
		g.node(kind, nil, x, at(tensor.Ints(g.r.IntN(x.rank()+1))))
	case "Dropout":
		g.node(kind, nil, x, g.weight(tensor.Scalar[float32](0)), choose(g, at, g.weight)(tensor.Scalar(true)))
	case "Loop":
		in := []*value{plain(tensor.Scalar(int64(0))), plain(tensor.Scalar(true)), x.v}
		body := g.subgraph(in, func(in []*val) []*val {
			return []*val{g.node("Identity", nil, in[1]), act(in[2])}
		})
		g.node(kind, Attrs{"body": body}, at(tensor.Scalar(int64(g.r.IntN(2)))), nil, x)
	case "ScatterND":
		if x.rank() == 0 {
			reject("scalar")
		}
		g.node(kind, nil, x, at(tensor.New(tensor.I64, 0, 1)), at(tensor.New(tensor.F32, append([]int{0}, x.shape()[1:]...)...)))
	case "If":
		branch := func() *sub { return g.subgraph(nil, func([]*val) []*val { return []*val{g.body(x)} }) }
		then := branch()
		g.node(kind, Attrs{"then_branch": then, "else_branch": branch()}, at(tensor.Scalar(g.one(2))))
	}
	v := g.frame.values[len(g.frame.values)-1]
	for range 1 + g.r.IntN(3) {
		x = act(x)
	}
	if g.one(2) {
		act(v)
	}
}

// flattened multiplies images whose axes were put in another order, as models that keep
// channels last do before their classifier.
func flattened(g *Gen) {
	b, rest := 1+g.r.IntN(3), []int{2 + g.r.IntN(3), 2 + g.r.IntN(3), 1 + g.r.IntN(4)}
	v := g.node(choose(g, "Relu", "Neg", "Identity"), nil, g.shaped(tensor.F32, append([]int{b}, rest...)...))
	perm := []int{0}
	for _, i := range g.r.Perm(3) {
		perm = append(perm, i+1)
	}
	v = g.permute(v, perm...)
	k := product(rest)
	if g.one(2) {
		v = g.node("Flatten", nil, v)
	} else {
		v = g.node("Reshape", nil, v, g.weight(tensor.Ints(choose(g, b, -1), k)))
	}
	n := g.columns()
	switch g.r.IntN(3) {
	case 0:
		g.node("MatMul", nil, v, g.weight(g.floats(tensor.F32, k, n)))
	case 1:
		g.node("Gemm", nil, v, g.weight(g.floats(tensor.F32, k, n)))
	case 2:
		g.node("Gemm", Attrs{"transB": 1}, v, g.weight(g.floats(tensor.F32, n, k)), g.vector(n))
	}
}

// sliced cuts what is cut already, along the same axis or another.
func sliced(g *Gen) {
	v := g.some(tensor.F32, 1, 4)
	for range 2 + g.r.IntN(2) {
		a := g.r.IntN(v.rank())
		if g.one(2) {
			a = 0
		}
		n := v.dim(a)
		from := g.r.IntN(min(n, 2) + 1)
		to := choose(g, n, n, max(from, n-1), 1<<40)
		v = g.node("Slice", nil, v, g.weight(tensor.Ints(from)), g.weight(tensor.Ints(to)), g.weight(tensor.Ints(a)), g.weight(tensor.Ints(choose(g, 1, 1, 2))))
	}
}

// assigned writes to a box of a tensor, often what was there and more, and sometimes twice, as exporters spell
// x[:, 1:] += y.
func assigned(g *Gen) {
	x := g.some(choose(g, tensor.F32, tensor.F32, tensor.I64), 1, 4)
	k := 1 + g.r.IntN(x.rank())
	from, size := make([]int, x.rank()), slices.Clone(x.shape())
	for a, d := range size[:k] {
		if d == 0 {
			reject("empty")
		}
		if from[a] = g.r.IntN(min(d, 2)); g.one(2) {
			from[a] = 0
		}
		size[a] -= from[a]
		if g.one(3) {
			size[a] = 1 + g.r.IntN(size[a])
		}
	}
	rows := product(size[:k])
	at := tensor.New(tensor.I64, append(slices.Clone(size[:k]), k)...)
	for i := range rows {
		for j, r := k-1, i; j >= 0; j, r = j-1, r/size[j] {
			p := from[j] + r%size[j]
			if g.one(4) {
				p -= x.dim(j)
			}
			tensor.Data[int64](at)[i*k+j] = int64(p)
		}
	}
	attrs, shape := Attrs{}, size
	if g.one(3) {
		attrs["reduction"] = "add"
	}
	if g.one(4) {
		shape = append([]int{rows}, size[k:]...)
		at = at.Reshape(rows, k)
	}
	y := g.shaped(x.dt(), shape...)
	if len(shape) == len(size) && !g.one(4) {
		to := slices.Clone(from)
		for a := range to {
			to[a] += size[a]
		}
		was := g.node("Slice", nil, x, g.weight(tensor.Ints(from...)), g.weight(tensor.Ints(to...)))
		y = g.node("Add", nil, was, g.beside(was, x.dt()))
		if !slices.Equal(y.shape(), shape) {
			reject("shape")
		}
	}
	for range 1 + g.r.IntN(2) {
		x = g.node("ScatterND", attrs, x, g.weight(at), y)
	}
	if x.dt() == tensor.F32 {
		g.used(x)
	}
}

// rows gathers or scatters elements by indices that are the same for all elements of a row, as torch.gather takes them.
func rows(g *Gen) {
	x := g.some(choose(g, tensor.F32, tensor.F32, tensor.I64), 2, 4)
	a := g.r.IntN(x.rank() - 1)
	kind := choose(g, "GatherElements", "ScatterElements")
	if kind == "ScatterElements" && g.one(2) {
		a = 0
	}
	if x.dim(a) == 0 {
		reject("empty")
	}
	n := 1 + g.r.IntN(x.dim(a))
	narrow, wide := slices.Clone(x.shape()), slices.Clone(x.shape())
	narrow[a], wide[a] = n, n
	for i := a + 1; i < x.rank(); i++ {
		narrow[i] = 1
	}
	if g.one(4) {
		narrow[g.r.IntN(a+1)] = 1
	}
	at := tensor.New(tensor.I64, narrow...)
	for i := range at.Len() {
		tensor.Data[int64](at)[i] = int64((i + g.r.IntN(2)) % x.dim(a))
	}
	attrs := Attrs{"axis": choose(g, a, a-x.rank())}
	in := []*val{x, g.node("Expand", nil, g.structural(at), g.ints(wide...))}
	if kind == "ScatterElements" {
		attrs["reduction"] = choose(g, "add", "max")
		in = append(in, g.shaped(x.dt(), wide...))
	}
	g.node(kind, attrs, in...)
}

// shared multiplies with one weight several times, as heads on images of several sizes do and networks that repeat a step.
func shared(g *Gen) {
	m, k := 1+g.r.IntN(20), 1+g.r.IntN(20)
	images := g.one(2)
	shape := []int{k, m}
	if images {
		side := choose(g, 1, 3)
		shape = []int{m, k, side, side}
	}
	w := g.dense(shape...)
	for range 2 + g.r.IntN(2) {
		switch {
		case images:
			x := g.fresh(tensor.F32, 1, k, 3+g.r.IntN(8), 3+g.r.IntN(8))
			g.node("Conv", Attrs{"strides": slices.Repeat([]int{choose(g, 1, 1, 2)}, 2)}, x, w)
		case g.one(4):
			g.node("Gemm", Attrs{"transB": 1}, g.fresh(tensor.F32, 1+g.r.IntN(9), m), w)
		case g.one(3):
			g.node("Gemm", nil, g.fresh(tensor.F32, 1+g.r.IntN(9), k), w)
		default:
			g.node("MatMul", nil, g.fresh(tensor.F32, 1+g.r.IntN(70), k), w)
		}
	}
}
