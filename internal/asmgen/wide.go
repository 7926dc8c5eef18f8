package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Functions that are computed in float64, half a vector at a time: logarithms, powers and sines, which lose too much
// otherwise.

// doubles is the table of constants of float64, by their bits, eight equal lanes each.
var doubles struct {
	table Mem
	at    map[uint64]int
}

// The parts of a float64 by which the logarithm takes it apart: the exponent is biased such that the mantissa is between
// the roots of 1/2 and 2.
const (
	exponents = 0xfff << 52
	oneBits   = 1023 << 52
	rootBits  = 0x3fe6a09e667f3bcd // of the root of 1/2
	magic     = 0x433 << 52        // 2^52, whose last bit is 1
	rounding  = 3 << 51            // what added to a float64 rounds it to an integer
)

// log2Odd are the coefficients, the highest first, of a polynomial in s*s that is log2((1+s)/(1-s))/s for mantissas; a fit of
// the relative error, 3e-14.
var log2Odd = []float64{
	0.2828798264969139, 0.3199071545667107, 0.4122092161512165, 0.5770779427264734, 0.9617966941121254, 2.885390081777851,
}

// exp2Part is 2 to the x for |x| up to 1/2, with a relative error of 6e-11.
var exp2Part = []float64{
	1.5303701127683718e-05, 0.00015469729211713235, 0.0013333478471918977, 0.009618025613324433, 0.05550410906327979,
	0.24022651213498097, 0.6931471805568318, 0.9999999999595617,
}

// sinOdd is sin(x)/x and cosEven cos(x) for |x| up to pi/4, as polynomials in x*x, with relative errors of 5e-12 and 7e-11.
var (
	sinOdd  = []float64{2.717345680026291e-06, -0.00019839202211711826, 0.008333328782455643, -0.1666666663159108, 0.9999999999956731}
	cosEven = []float64{2.437983123082832e-05, -0.0013886617999425682, 0.0416666166925251, -0.49999999614857515, 0.9999999999524894}
)

// powerMost limits exponents of 2: what is beyond is no number of float32.
const powerMost = 200

// A quarter of the circle, and what the float64 of it lacks.
const (
	quarterHi = math.Pi / 2
	quarterLo = 6.123233995736766e-17
)

// wideGlobals emits the table of the constants of float64.
func wideGlobals() {
	doubles.table = GLOBL("doubles", attr.RODATA|attr.NOPTR)
	doubles.at = map[uint64]int{}
	put := func(bits uint64) {
		if _, ok := doubles.at[bits]; ok {
			return
		}
		at := 64 * len(doubles.at)
		doubles.at[bits] = at
		for i := range 8 {
			DATA(at+8*i, U64(bits))
		}
	}
	for _, bits := range []uint64{exponents, oneBits, oneBits - rootBits, magic, 1, 1 << 63} {
		put(bits)
	}
	for _, list := range [][]float64{log2Odd, exp2Part, sinOdd, cosEven, {
		1 << 52, 1<<52 + 1023, rounding, 1, math.Ln2, powerMost, -powerMost, 2 / math.Pi, quarterHi, quarterLo,
		-1, 0.5, math.Log2E, math.Ln2 / 2, math.NaN(),
	}} {
		for _, c := range list {
			put(math.Float64bits(c))
		}
	}
}

// bits is the place of a constant by its bits, wide of a float64.
func (m *arith) bits(b uint64) Mem {
	at, ok := doubles.at[b]
	if !ok {
		panic("constant is not declared")
	}
	return doubles.table.Offset(at)
}

func (m *arith) wide(c float64) Mem { return m.bits(math.Float64bits(c)) }

// halves computes f in float64 on both halves of vectors.
func (m *arith) halves(f func(x []VecVirtual) VecVirtual, xs ...VecVirtual) VecVirtual {
	half := func(v VecVirtual) Register {
		if m.lanes == 16 {
			return v.AsY()
		}
		return v.AsX()
	}
	parts := make([]VecVirtual, 2)
	for h := range parts {
		in := make([]VecVirtual, len(xs))
		for i, x := range xs {
			from := half(x)
			if h == 1 {
				upper := m.vec()
				from = half(upper)
				if m.lanes == 16 {
					VEXTRACTF64X4(Imm(1), x, from)
				} else {
					VEXTRACTF128(Imm(1), x, from)
				}
			}
			in[i] = m.vec()
			VCVTPS2PD(from, in[i])
		}
		r := f(in)
		parts[h] = m.vec()
		if m.lanes == 16 {
			VCVTPD2PS(r, half(parts[h]))
		} else {
			VCVTPD2PSY(r, half(parts[h]))
		}
	}
	r := m.vec()
	if m.lanes == 16 {
		VINSERTF64X4(Imm(1), half(parts[1]), parts[0], r)
	} else {
		VINSERTF128(Imm(1), half(parts[1]), parts[0], r)
	}
	return r
}

// wideHorner evaluates a polynomial with the coefficients c, the highest first.
func (m *arith) wideHorner(x VecVirtual, c []float64) VecVirtual {
	p := m.vec()
	VMOVUPD(m.wide(c[0]), p)
	for _, c := range c[1:] {
		VFMADD213PD(m.wide(c), x, p)
	}
	return p
}

// log2 returns the logarithm of x, which is positive and finite.
func (m *arith) log2(x VecVirtual) VecVirtual {
	t, e := m.vec(), m.vec()
	VPADDQ(m.bits(oneBits-rootBits), x, t)
	VPSRLQ(Imm(52), t, e)
	VORPD(m.bits(magic), e, e)
	VSUBPD(m.wide(1<<52+1023), e, e)
	VANDPD(m.bits(exponents), t, t)
	f, s := m.vec(), m.vec()
	VPSUBQ(t, x, f)
	VPADDQ(m.bits(oneBits), f, f)
	VADDPD(m.wide(1), f, s)
	VSUBPD(m.wide(1), f, f)
	VDIVPD(s, f, s)
	square := m.vec()
	VMULPD(s, s, square)
	p := m.wideHorner(square, log2Odd)
	VFMADD213PD(e, s, p)
	return p
}

// log returns the natural logarithm of x, of anything.
func (m *arith) log(x VecVirtual) VecVirtual {
	r := m.halves(func(x []VecVirtual) VecVirtual {
		l := m.log2(x[0])
		VMULPD(m.wide(math.Ln2), l, l)
		return l
	}, x)
	low, zero := m.vec(), m.vec()
	VSQRTPS(x, low) // NaN of what is negative
	VADDPS(m.stored(float32(math.Inf(-1))), low, low)
	VXORPS(zero, zero, zero)
	r = m.choose(lessOrEqual, x, zero, low, r)
	return m.choose(notLess, x, m.register(float32(math.Inf(1))), x, r)
}

// exp2 returns 2 to the l, which is limited and overwritten.
func (m *arith) exp2(l VecVirtual) VecVirtual {
	VMINPD(m.wide(powerMost), l, l)
	VMAXPD(m.wide(-powerMost), l, l)
	n, whole := m.vec(), m.vec()
	VADDPD(m.wide(rounding), l, n)
	VSUBPD(m.wide(rounding), n, whole)
	VSUBPD(whole, l, l)
	p := m.wideHorner(l, exp2Part)
	VPSLLQ(Imm(52), n, n)
	VPADDQ(n, p, p)
	return p
}

var powConsts = []float32{0, 1, 0.5, magnitude, float32(math.Inf(1)), float32(math.NaN())}

// pow returns x to the z, both finite.
func (m *arith) pow(x, z VecVirtual) VecVirtual {
	r := m.halves(func(in []VecVirtual) VecVirtual {
		l := m.log2(in[0])
		VMULPD(in[1], l, l)
		return m.exp2(l)
	}, m.magnitude(x), z)
	zero := m.vec()
	VXORPS(zero, zero, zero)
	// Of 0 there are 0, 1 and infinity.
	of := m.choose(less, zero, z, zero, m.copied(m.register(1)))
	of = m.choose(less, z, zero, m.register(float32(math.Inf(1))), of)
	r = m.choose(equal, x, zero, of, r)
	// Of what is negative whole exponents are known, whose halves are not whole where they are odd.
	whole, half := rounded(11)(m, m.copied(z)), m.vec()
	VMULPS(m.constant(0.5), whole, half)
	wholeHalf := rounded(11)(m, m.copied(half))
	not := m.choose(less, x, zero, m.register(float32(math.NaN())), m.copied(r))
	r = m.choose(equal, z, whole, r, not)
	sign := m.vec()
	VANDNPS(x, m.register(magnitude), sign)
	VORPS(r, sign, sign)
	odd := m.choose(equal, half, wholeHalf, r, sign)
	return m.choose(equal, z, whole, odd, r)
}

// copied returns x in a register that may be overwritten.
func (m *arith) copied(x VecVirtual) VecVirtual {
	r := m.vec()
	VMOVAPS(x, r)
	return r
}

// fmod returns x - n z with the sign of x, where n is x/z without its fraction; NaN where that has too many digits or one of both is
// not finite. The product is not rounded; a quotient that was rounded up to a whole number has the rest one z too low.
func (m *arith) fmod(x, z VecVirtual) VecVirtual {
	r := m.halves(func(in []VecVirtual) VecVirtual {
		r, n, low := in[0], m.vec(), m.vec()
		VDIVPD(in[1], r, n)
		if m.lanes == 16 {
			VRNDSCALEPD(Imm(11), n, n)
		} else {
			VROUNDPD(Imm(11), n, n)
		}
		VFNMADD231PD(in[1], n, r)
		VXORPD(low, low, low)
		next, far := m.vec(), m.vec()
		VADDPD(in[1], r, next)
		VMOVUPD(m.wide(1<<52), far)
		if m.lanes == 16 {
			k := K()
			VCMPPD(Imm(less), low, r, k)
			VMOVAPD(next, k, r)
			VCMPPD(Imm(notLess), far, n, k)
			VMOVUPD(m.wide(math.NaN()), k, r)
		} else {
			mask := m.vec()
			VCMPPD(Imm(less), low, r, mask)
			VBLENDVPD(mask, next, r, r)
			VCMPPD(Imm(notLess), far, n, mask)
			VORPD(mask, r, r)
		}
		return r
	}, m.magnitude(x), m.magnitude(z))
	return m.signed(r, x)
}

// hyperbolic returns half of what f makes of e to the x and of its reciprocal; NaN stays.
func (m *arith) hyperbolic(x VecVirtual, f func(u, v, r Op)) VecVirtual {
	r := m.halves(func(in []VecVirtual) VecVirtual {
		l, v := in[0], m.vec()
		VMULPD(m.wide(math.Log2E), l, l)
		u := m.exp2(l)
		VMOVUPD(m.wide(1), v)
		VDIVPD(u, v, v)
		f(u, v, u)
		VMULPD(m.wide(0.5), u, u)
		return u
	}, x)
	return m.choose(unordered, x, x, x, r)
}

// sinhSmall is up to where sinh is a polynomial.
const sinhSmall = 1. / 16

var (
	sinhSeries = []float32{1. / 120, 1. / 6, 1}
	sinhConsts = append([]float32{magnitude, sinhSmall}, sinhSeries...)
)

// sinh returns sinh(x).
func (m *arith) sinh(x VecVirtual) VecVirtual {
	r := m.hyperbolic(x, func(u, v, r Op) { VSUBPD(v, u, r) })
	return m.small(x, sinhSmall, sinhSeries, r)
}

// small returns x times a polynomial in x*x where |x| is below an end, else r.
func (m *arith) small(x VecVirtual, end float32, series []float32, r VecVirtual) VecVirtual {
	square := m.vec()
	VMULPS(x, x, square)
	p := m.horner(square, series)
	VMULPS(x, p, p)
	return m.choose(less, m.magnitude(x), m.register(end), p, r)
}

// areaSmall is up to where the area functions are polynomials.
const areaSmall = 1. / 1024

var (
	asinhSeries = []float32{-1. / 6, 1}
	atanhSeries = []float32{1. / 3, 1}
	areaConsts  = []float32{magnitude, areaSmall, -1. / 6, 1. / 3, 1, float32(math.Inf(1)), float32(math.NaN())}
)

// asinh returns log(|x| + root of x*x+1) with the sign of x.
func (m *arith) asinh(x VecVirtual) VecVirtual {
	t := m.magnitude(x)
	r := m.halves(func(in []VecVirtual) VecVirtual {
		root := m.vec()
		VMOVUPD(m.wide(1), root)
		VFMADD231PD(in[0], in[0], root)
		VSQRTPD(root, root)
		VADDPD(root, in[0], root)
		return m.scaled(m.log2(root), math.Ln2)
	}, t)
	r = m.choose(notLess, t, m.register(float32(math.Inf(1))), t, r)
	return m.small(x, areaSmall, asinhSeries, m.signed(r, x))
}

// acosh returns log(x + root of x*x-1), NaN below 1.
func (m *arith) acosh(x VecVirtual) VecVirtual {
	r := m.halves(func(in []VecVirtual) VecVirtual {
		root := m.vec()
		VMOVUPD(m.wide(-1), root)
		VFMADD231PD(in[0], in[0], root)
		VSQRTPD(root, root)
		VADDPD(root, in[0], root)
		return m.scaled(m.log2(root), math.Ln2)
	}, x)
	r = m.choose(less, x, m.register(1), m.register(float32(math.NaN())), r)
	return m.choose(notLess, x, m.register(float32(math.Inf(1))), x, r)
}

// atanh returns log((1+|x|)/(1-|x|))/2 with the sign of x, NaN beyond 1.
func (m *arith) atanh(x VecVirtual) VecVirtual {
	t, one := m.magnitude(x), m.register(1)
	r := m.halves(func(in []VecVirtual) VecVirtual {
		above, below := m.vec(), m.vec()
		VMOVUPD(m.wide(1), below)
		VADDPD(in[0], below, above)
		VSUBPD(in[0], below, below)
		VDIVPD(below, above, above)
		return m.scaled(m.log2(above), math.Ln2/2)
	}, t)
	r = m.choose(equal, t, one, m.register(float32(math.Inf(1))), r)
	r = m.choose(less, t, one, r, m.choose(equal, t, one, r, m.copied(m.register(float32(math.NaN())))))
	return m.small(x, areaSmall, atanhSeries, m.signed(r, x))
}

// scaled returns x times c, in x.
func (m *arith) scaled(x VecVirtual, c float64) VecVirtual {
	VMULPD(m.wide(c), x, x)
	return x
}

// circle returns the quarter of the circle in whose middle x shifted by quarters is, as an integer, and sine and cosine of its
// distance from there; |x| is less than 2^30.
func (m *arith) circle(r VecVirtual, quarters int) (n, s, c VecVirtual) {
	n, whole := m.vec(), m.vec()
	VMOVUPD(m.wide(rounding), n)
	VFMADD231PD(m.wide(2/math.Pi), r, n)
	VSUBPD(m.wide(rounding), n, whole)
	VFNMADD231PD(m.wide(quarterHi), whole, r)
	VFNMADD231PD(m.wide(quarterLo), whole, r)
	for range quarters {
		VPADDQ(m.bits(1), n, n)
	}
	square := m.vec()
	VMULPD(r, r, square)
	s, c = m.wideHorner(square, sinOdd), m.wideHorner(square, cosEven)
	VMULPD(r, s, s)
	return n, s, c
}

// oddly returns yes in odd quarters, of which the sign bit of odd is set, else no, which it overwrites.
func (m *arith) oddly(odd, yes, no VecVirtual) VecVirtual {
	if m.lanes == 16 {
		k := K()
		VPMOVQ2M(odd, k)
		VMOVAPD(yes, k, no)
	} else {
		VBLENDVPD(odd, yes, no, no)
	}
	return no
}

// sine returns the sine of x shifted by quarters of the circle; |x| is less than 2^30.
func (m *arith) sine(x VecVirtual, quarters int) VecVirtual {
	return m.halves(func(in []VecVirtual) VecVirtual {
		n, s, c := m.circle(in[0], quarters)
		odd := m.vec()
		VPSLLQ(Imm(63), n, odd)
		s = m.oddly(odd, c, s)
		VPSLLQ(Imm(62), n, n)
		VANDPD(m.bits(1<<63), n, n)
		VXORPD(n, s, s)
		return s
	}, x)
}

// tan returns the tangent of x; |x| is less than 2^30.
func (m *arith) tan(x VecVirtual) VecVirtual {
	return m.halves(func(in []VecVirtual) VecVirtual {
		n, s, c := m.circle(in[0], 0)
		VPSLLQ(Imm(63), n, n)
		above, below := m.oddly(n, c, m.copied(s)), m.oddly(n, s, c)
		VDIVPD(below, above, above)
		VXORPD(n, above, above)
		return above
	}, x)
}
