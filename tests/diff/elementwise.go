package diff

import (
	"slices"

	"spc/ir/tensor"
)

// Lists of types that rules draw from; those that are listed often are drawn often.
var (
	floats  = []tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F16, tensor.BF16, tensor.F64}
	ints    = []tensor.DType{tensor.I64, tensor.I64, tensor.I32, tensor.U8, tensor.I8, tensor.I16, tensor.U32}
	signed  = []tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.I64, tensor.I32, tensor.F16, tensor.F64}
	numbers = []tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F16, tensor.BF16, tensor.F64, tensor.I64, tensor.I64, tensor.I32, tensor.U8}
	all     = []tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F16, tensor.F64, tensor.I64, tensor.I64, tensor.I32, tensor.U8, tensor.Bool, tensor.String}
)

func unary(of ...tensor.DType) func(*Gen, string) {
	return func(g *Gen, kind string) { g.node(kind, nil, g.some(choose(g, of...), 0, 4)) }
}

// within applies an operator to a value whose elements are in a range.
func within(lo, hi float64) func(*Gen, string) {
	return func(g *Gen, kind string) { g.node(kind, nil, g.ranged(lo, hi, 0, 4)) }
}

func binary(of ...tensor.DType) func(*Gen, string) {
	return func(g *Gen, kind string) {
		a := g.some(choose(g, of...), 0, 4)
		b := g.beside(a, a.dt())
		if g.one(2) {
			a, b = b, a
		}
		g.node(kind, nil, a, b)
	}
}

func variadic(of ...tensor.DType) func(*Gen, string) {
	return func(g *Gen, kind string) {
		a := g.some(choose(g, of...), 0, 4)
		in := []*val{a}
		for range g.r.IntN(3) {
			b := g.beside(a, a.dt())
			if !broadcasts(a.shape(), b.shape()) {
				reject("shapes")
			}
			in = append(in, b)
		}
		g.node(kind, nil, in...)
	}
}

// compare compares values that are exact, or whose noise makes no difference.
func compare(of ...tensor.DType) func(*Gen, string) {
	return func(g *Gen, kind string) {
		a := g.exact(choose(g, of...), 0, 4)
		g.node(kind, nil, a, g.beside(a, a.dt()))
	}
}

func parameter(name string, of ...tensor.DType) func(*Gen, string) {
	return parameters([]string{name}, of...)
}

func parameters(names []string, of ...tensor.DType) func(*Gen, string) {
	return func(g *Gen, kind string) {
		a := Attrs{}
		for _, name := range names {
			if !g.one(3) {
				a[name] = choose(g, 0.5, 0.25, 1, 0.1, 0.75)
			}
		}
		g.node(kind, a, g.some(choose(g, of...), 0, 4))
	}
}

func identity(g *Gen, kind string) { g.node(kind, nil, g.some(choose(g, all...), 0, 4)) }

func bitCast(g *Gen, kind string) {
	to := map[tensor.DType]tensor.DType{tensor.I32: tensor.U32, tensor.I64: tensor.U64, tensor.U8: tensor.I8, tensor.F32: tensor.I32}
	x := g.exact(choose(g, tensor.I32, tensor.I64, tensor.U8, tensor.F32), 0, 3)
	g.node(kind, Attrs{"to": to[x.dt()]}, x)
}

func bitShift(g *Gen, kind string) {
	x := g.some(choose(g, tensor.U8, tensor.U32, tensor.U64), 0, 4)
	g.node(kind, Attrs{"direction": choose(g, "LEFT", "RIGHT")}, x, g.fresh(x.dt(), x.shape()...))
}

func cast(g *Gen, kind string) {
	from := choose(g, all[:len(all)-1]...)
	g.node(kind, Attrs{"to": choose(g, append(all[:len(all)-1:len(all)-1], tensor.BF16, tensor.I8)...)}, g.exact(from, 0, 4))
}

func castLike(g *Gen, kind string) {
	g.node(kind, nil, g.exact(choose(g, numbers...), 0, 4), g.some(choose(g, numbers...), 0, 2))
}

func clip(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 0, 4)
	bound := func(v float64) *val {
		if g.one(4) {
			return nil
		}
		return g.structural(tensor.From([]float64{v}, 1).To(x.dt()).Reshape())
	}
	g.node(kind, nil, x, bound(float64(g.r.IntN(3))), bound(float64(2+g.r.IntN(3))))
}

func div(g *Gen, kind string) {
	a := g.some(choose(g, floats...), 0, 4)
	if g.one(8) {
		a = g.some(choose(g, ints...), 0, 4)
	}
	if b := g.pick(func(v *val) bool {
		return v.dt() == a.dt() && broadcasts(a.shape(), v.shape()) && !slices.ContainsFunc(v.t().Float64s(), func(x float64) bool { return x < 0.25 && x > -0.25 })
	}); b != nil && !g.one(3) {
		g.node(kind, nil, a, b)
		return
	}
	draw := func(shape []int) *tensor.Tensor {
		x := make([]float64, count(shape))
		for i := range x {
			x[i] = choose(g, 1.0, 2, 4, 3, 5)
		}
		return tensor.From(x, len(x)).To(a.dt()).Reshape(shape...)
	}
	g.node(kind, nil, a, g.source(draw, choose(g, a.shape(), a.shape()[a.rank():], a.shape()[min(1, a.rank()):])...))
}

func mod(g *Gen, kind string) {
	a := g.exact(choose(g, tensor.I64, tensor.I32, tensor.U8, tensor.F32), 0, 4)
	draw := func(shape []int) *tensor.Tensor {
		x := make([]int64, count(shape))
		for i := range x {
			x[i] = int64(1 + g.r.IntN(5))
		}
		return tensor.From(x, len(x)).To(a.dt()).Reshape(shape...)
	}
	at := Attrs{}
	if a.dt().IsFloat() || g.one(3) {
		at["fmod"] = 1
	}
	g.node(kind, at, a, g.source(draw, a.shape()[g.r.IntN(a.rank()+1):]...))
}

func pow(g *Gen, kind string) {
	if g.one(3) {
		a := g.ranged(0.25, 4, 0, 4)
		g.node(kind, nil, a, g.beside(a, tensor.F32))
		return
	}
	a := g.some(choose(g, floats...), 0, 4)
	e := tensor.FromFloat64s(a.dt(), []float64{choose(g, 1.0, 2, 2, 3)})
	g.node(kind, nil, a, g.weight(e))
}

func prelu(g *Gen, kind string) {
	a := g.some(choose(g, floats...), 1, 4)
	s := slices.Clone(a.shape()[g.r.IntN(a.rank()):])
	if len(s) > 1 && g.one(2) {
		for i := range s {
			if i > 0 {
				s[i] = 1
			}
		}
	}
	g.node(kind, nil, a, g.fresh(a.dt(), s...))
}

func gelu(g *Gen, kind string) {
	g.node(kind, Attrs{"approximate": choose(g, "none", "tanh")}, g.some(choose(g, floats...), 0, 4))
}

func where(g *Gen, kind string) {
	a := g.some(choose(g, all...), 0, 4)
	b := g.beside(a, a.dt())
	g.node(kind, nil, g.beside(choose(g, a, b), tensor.Bool), a, b)
}

// scale draws powers of two, by which to quantise exactly.
func (g *Gen) scale(shape ...int) *tensor.Tensor {
	x := make([]float32, count(shape))
	for i := range x {
		x[i] = choose[float32](g, 0.0625, 0.125, 0.25, 0.5)
	}
	return tensor.From(x, shape...)
}

func (g *Gen) zero(dt tensor.DType, shape ...int) *tensor.Tensor {
	x := make([]int64, count(shape))
	for i := range x {
		if x[i] = int64(g.r.IntN(5)); dt == tensor.U8 {
			x[i] += 100
		}
	}
	return tensor.FromInt64s(dt, x, shape...)
}

func quantize(g *Gen, kind string) {
	dt := choose(g, tensor.U8, tensor.I8)
	x := g.some(tensor.F32, 1, 4)
	if g.one(4) && x.rank() > 1 && x.dim(1) > 0 {
		g.node(kind, Attrs{"axis": 1}, x, g.weight(g.scale(x.dim(1))), g.weight(g.zero(dt, x.dim(1))))
		return
	}
	s, z := g.weight(g.scale()), g.weight(g.zero(dt))
	q := g.node(kind, nil, x, s, z)
	if !g.one(3) {
		g.node("DequantizeLinear", nil, q, s, z)
	}
}

func dequantize(g *Gen, kind string) {
	x := g.some(choose(g, tensor.U8, tensor.I8), 1, 4)
	if g.one(3) && x.dim(-1) > 0 {
		g.node(kind, Attrs{"axis": x.rank() - 1}, x, g.weight(g.scale(x.dim(-1))), g.weight(g.zero(x.dt(), x.dim(-1))))
		return
	}
	g.node(kind, nil, x, g.weight(g.scale()), g.weight(g.zero(x.dt())))
}

func matMulInteger(g *Gen, kind string) {
	a := g.some(choose(g, tensor.U8, tensor.I8), 1, 3)
	b := g.fresh(choose(g, tensor.U8, tensor.I8), a.dim(-1), g.size())
	g.node(kind, nil, a, b, g.weight(g.zero(a.dt())), g.weight(g.zero(b.dt())))
}

func convInteger(g *Gen, kind string) {
	x := g.shaped(choose(g, tensor.U8, tensor.I8), g.imageShape(2)...)
	w := g.weight(g.data(choose(g, tensor.U8, tensor.I8), 1+g.r.IntN(4), x.dim(1), 2, 2))
	g.node(kind, nil, x, w, g.weight(g.zero(x.dt())))
}

func qlinearMatMul(g *Gen, kind string) {
	a := g.some(choose(g, tensor.U8, tensor.I8), 2, 3)
	b := g.fresh(choose(g, tensor.U8, tensor.I8), a.dim(-1), g.size())
	g.node(kind, nil, a, g.weight(g.scale()), g.weight(g.zero(a.dt())), b, g.weight(g.scale()), g.weight(g.zero(b.dt())), g.weight(tensor.Scalar[float32](0.5)), g.weight(g.zero(a.dt())))
}

func qlinearConv(g *Gen, kind string) {
	x := g.shaped(choose(g, tensor.U8, tensor.I8), g.imageShape(2)...)
	m := 1 + g.r.IntN(4)
	a, per := Attrs{}, x.dim(1)
	if g.one(3) { // depthwise
		m, per = x.dim(1), 1
		a["group"] = m
	}
	w := g.weight(g.data(tensor.I8, m, per, 2, 2))
	in := []*val{x, g.weight(g.scale()), g.weight(g.zero(x.dt())), w, g.weight(g.scale(m)), g.weight(tensor.New(tensor.I8, m)), g.weight(tensor.Scalar[float32](0.5)), g.weight(g.zero(x.dt()))}
	if g.one(2) {
		in = append(in, g.weight(g.data(tensor.I32, m)))
	}
	g.node(kind, a, in...)
}

func quantizeDynamically(g *Gen, kind string) {
	g.nodes(kind, nil, 3, g.ranged(-3, 3, 1, 4))
}
