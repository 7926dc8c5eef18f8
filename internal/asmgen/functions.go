package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Predicates of VCMPPS that are false of NaN, but for unordered and notLess.
const (
	equal       = 0
	less        = 1
	lessOrEqual = 2
	unordered   = 3
	notLess     = 5
)

// choose returns yes where a and b are as the predicate says, else no, which it may overwrite.
func (m *arith) choose(predicate uint64, a, b, yes, no VecVirtual) VecVirtual {
	if m.lanes == 16 {
		k := K()
		VCMPPS(Imm(predicate), b, a, k)
		VMOVAPS(yes, k, no)
		return no
	}
	mask := m.vec()
	VCMPPS(Imm(predicate), b, a, mask)
	VBLENDVPS(mask, yes, no, no)
	return no
}

// magnitude is the bits of a float without its sign.
var magnitude = math.Float32frombits(1<<31 - 1)

// magnitude returns |x|.
func (m *arith) magnitude(x VecVirtual) VecVirtual {
	r := m.vec()
	VANDPS(m.constant(magnitude), x, r)
	return r
}

// rounded returns x rounded in one of the ways of VROUNDPS.
func rounded(way uint64) func(m *arith, x VecVirtual) VecVirtual {
	return func(m *arith, x VecVirtual) VecVirtual {
		if m.lanes == 16 {
			VRNDSCALEPS(Imm(way), x, x)
		} else {
			VROUNDPS(Imm(way), x, x)
		}
		return x
	}
}

// log1p are the coefficients, the highest first, of a polynomial in s*s that is log((1+s)/(1-s))/s for s up to 1/3; a fit of
// the relative error, 8e-9.
var log1p = []float32{0.281577796, 0.279651582, 0.400245965, 0.666663229, 2}

// softplus returns log(1 + e to the x) as max(x, 0) + log(1+u), with u = e to the -|x| and s = u/(u+2).
func (m *arith) softplus(x VecVirtual) VecVirtual {
	zero, low := m.vec(), m.vec()
	VXORPS(zero, zero, zero)
	VSUBPS(m.magnitude(x), zero, low)
	u, s, square := m.exp(low), m.vec(), m.vec()
	VADDPS(m.register(2), u, s)
	VDIVPS(s, u, s)
	VMULPS(s, s, square)
	p := m.horner(square, log1p)
	VMAXPS(x, zero, zero)
	VFMADD213PS(zero, s, p)
	return p
}

// mishMax is where mish is its argument.
const mishMax = 20

// mish returns x tanh(softplus(x)) as x w/(w+2), with w = u(u+2) and u = e to the x.
func (m *arith) mish(x VecVirtual) VecVirtual {
	u := m.vec()
	VMINPS(x, m.register(mishMax), u)
	u = m.exp(u)
	w, d := m.vec(), m.vec()
	VADDPS(m.register(2), u, w)
	VMULPS(u, w, w)
	VADDPS(m.register(2), w, d)
	VDIVPS(d, w, w)
	VMULPS(x, w, w)
	return w
}

// erfOdd are the coefficients of a polynomial in x*x that is erf(x)/x for |x| up to 1/2; a fit of the relative error, 6e-8.
var erfOdd = []float32{0.00471908273, -0.026757732, 0.112828314, -0.376126081, 1.12837911}

var erfConsts = append(append([]float32{math.Sqrt2, math.Sqrt2 / 2, 2}, erfOdd...), tailConsts...)

// erf returns erf(x), of what is not small as 1 - erfc(|x|), with the sign of x.
func (m *arith) erf(x VecVirtual) VecVirtual {
	z, e := m.magnitude(x), m.vec()
	VMULPS(m.constant(math.Sqrt2), z, z)
	VMOVUPS(m.constant(1), e)
	VFNMADD231PS(m.constant(2), m.tail(z), e)
	e = m.signed(e, x)
	square := m.vec()
	VMULPS(x, x, square)
	p := m.horner(square, erfOdd)
	VMULPS(x, p, p)
	return m.choose(less, m.register(math.Sqrt2/2), z, e, p)
}

// test returns the description of 1 where a predicate holds of a[i] and b[i], else 0.
func test(name, expr string, predicate uint64) elementwise {
	return elementwise{
		name: name, loop: "y[i] = 0\nif " + expr + " {\n\ty[i] = 1\n}", in: []string{"a", "b"}, consts: []float32{1}, unroll: 1,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual {
			zero := m.vec()
			VXORPS(zero, zero, zero)
			return m.choose(predicate, in[0], in[1], m.register(1), zero)
		},
	}
}

// functions lists the kernels of functions that chains alone use.
var functions = []elementwise{
	unary("sqrt", "sqrt(x[i])", nil, func(m *arith, x VecVirtual) VecVirtual {
		VSQRTPS(x, x)
		return x
	}),
	unary("reciprocal", "1 / x[i]", []float32{1}, func(m *arith, x VecVirtual) VecVirtual {
		VDIVPS(x, m.register(1), x)
		return x
	}),
	unary("abs", "abs(x[i])", []float32{magnitude}, (*arith).magnitude),
	unary("floor", "floor(x[i])", nil, rounded(9)),
	unary("ceil", "ceil(x[i])", nil, rounded(10)),
	unary("roundToEven", "roundToEven(x[i])", nil, rounded(8)),
	unary("softsign", "x[i] / (1 + abs(x[i]))", []float32{1, magnitude}, func(m *arith, x VecVirtual) VecVirtual {
		d := m.magnitude(x)
		VADDPS(m.constant(1), d, d)
		VDIVPS(d, x, x)
		return x
	}),
	unary("softplus", "log(1 + exp(x[i]))", append([]float32{2, magnitude}, append(log1p, expConsts...)...), (*arith).softplus),
	unary("mish", "x[i] * tanh(log(1+exp(x[i])))", append([]float32{2, mishMax}, expConsts...), (*arith).mish),
	unary("erf", "erf(x[i])", erfConsts, (*arith).erf),
	unary("log", "log(x[i])", []float32{float32(math.Inf(1)), float32(math.Inf(-1))}, (*arith).log),
	unary("sin", "sin(x[i])", nil, func(m *arith, x VecVirtual) VecVirtual { return m.sine(x, 0) }),
	unary("cos", "cos(x[i])", nil, func(m *arith, x VecVirtual) VecVirtual { return m.sine(x, 1) }),
	{
		name: "largest", loop: "s = max(s, abs(x[i]))", in: []string{"x"}, consts: []float32{magnitude}, unroll: 4, noStore: true,
		// As integers, among which NaN is above infinity.
		reduce: &reduction{neutral: 0, first: "s := float32(0)", combine: func(v, acc VecVirtual) { VPMAXUD(v, acc, acc) }},
		body:   func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual { return m.magnitude(in[0]) },
	},
	unary("tan", "tan(x[i])", nil, (*arith).tan),
	unary("asin", "asin(x[i])", asinConsts, (*arith).asin),
	unary("acos", "acos(x[i])", acosConsts, (*arith).acos),
	unary("atan", "atan(x[i])", atanConsts, (*arith).atan),
	unary("sinh", "sinh(x[i])", sinhConsts, (*arith).sinh),
	unary("cosh", "cosh(x[i])", nil, func(m *arith, x VecVirtual) VecVirtual {
		return m.hyperbolic(x, func(u, v, r Op) { VADDPD(v, u, r) })
	}),
	unary("asinh", "asinh(x[i])", areaConsts, (*arith).asinh),
	unary("acosh", "acosh(x[i])", areaConsts, (*arith).acosh),
	unary("atanh", "atanh(x[i])", areaConsts, (*arith).atanh),
	unary("sign", "sign(x[i])", []float32{1, -1}, func(m *arith, x VecVirtual) VecVirtual {
		zero := m.vec()
		VXORPS(zero, zero, zero)
		r := m.vec()
		VMOVAPS(x, r)
		r = m.choose(less, x, zero, m.register(-1), r)
		return m.choose(less, zero, x, m.register(1), r)
	}),
	{
		name: "threshold", loop: "y[i] = 0\nif x[i] > least {\n\ty[i] = x[i]\n}", in: []string{"x"}, scalars: []string{"least"}, unroll: 1,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			zero := m.vec()
			VXORPS(zero, zero, zero)
			return m.choose(less, s["least"], in[0], in[0], zero)
		},
	},
	{
		name: "shrink", loop: "y[i] = 0\nif x[i] > least {\n\ty[i] = x[i] - bias\n}\nif x[i] < -least {\n\ty[i] = x[i] + bias\n}",
		in: []string{"x"}, scalars: []string{"least", "bias"}, unroll: 1,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			zero, low, below, above := m.vec(), m.vec(), m.vec(), m.vec()
			VXORPS(zero, zero, zero)
			VSUBPS(s["least"], zero, low)
			VADDPS(s["bias"], in[0], below)
			VSUBPS(s["bias"], in[0], above)
			return m.choose(less, in[0], low, below, m.choose(less, s["least"], in[0], above, zero))
		},
	},
	{
		name: "swish", loop: "y[i] = x[i] / (1 + exp(-alpha*x[i]))", in: []string{"x"}, scalars: []string{"alpha"}, consts: sigmoidConsts, unroll: 1,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			z := m.vec()
			VMULPS(in[0], s["alpha"], z)
			z = m.sigmoid(z)
			VMULPS(in[0], z, z)
			return z
		},
	},
	{
		name: "leak", loop: "y[i] = a[i]\nif a[i] < 0 {\n\ty[i] = a[i] * b[i]\n}", in: []string{"a", "b"}, unroll: 1,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual {
			zero, r := m.vec(), m.vec()
			VXORPS(zero, zero, zero)
			VMULPS(in[0], in[1], r)
			return m.choose(less, in[0], zero, r, in[0])
		},
	},
	{
		name: "leaky", loop: "y[i] = x[i]\nif x[i] < 0 {\n\ty[i] = x[i] * slope\n}", in: []string{"x"}, scalars: []string{"slope"}, unroll: 1,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			zero, r := m.vec(), m.vec()
			VXORPS(zero, zero, zero)
			VMULPS(in[0], s["slope"], r)
			return m.choose(less, in[0], zero, r, in[0])
		},
	},
	{
		name: "elu", loop: "y[i] = gain * x[i]\nif x[i] < 0 {\n\ty[i] = scale * (exp(slope*x[i]) - 1)\n}",
		in: []string{"x"}, scalars: []string{"slope", "scale", "gain"}, consts: tanhConsts, unroll: 1,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			zero, z := m.vec(), m.vec()
			VXORPS(zero, zero, zero)
			VMULPS(s["slope"], in[0], z)
			e := m.expm1(z)
			VMULPS(s["scale"], e, e)
			VMULPS(s["gain"], in[0], z)
			return m.choose(less, in[0], zero, e, z)
		},
	},
	{
		name: "pow", loop: "y[i] = pow(a[i], b[i])", in: []string{"a", "b"}, consts: powConsts, unroll: 1,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual { return m.pow(in[0], in[1]) },
	},
	{
		name: "fmod", loop: "y[i] = fmod(a[i], b[i])", in: []string{"a", "b"}, consts: []float32{magnitude}, unroll: 1,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual { return m.fmod(in[0], in[1]) },
	},
	test("equal", "a[i] == b[i]", equal),
	test("less", "a[i] < b[i]", less),
	test("lessOrEqual", "a[i] <= b[i]", lessOrEqual),
	{
		name: "where", loop: "y[i] = b[i]\nif which[i] != 0 {\n\ty[i] = a[i]\n}", in: []string{"which", "a", "b"}, unroll: 1,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual {
			zero := m.vec()
			VXORPS(zero, zero, zero)
			return m.choose(equal, in[0], zero, in[2], in[1])
		},
	},
}
