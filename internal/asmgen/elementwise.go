package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// elementwise describes a loop over slices of equal length.
type elementwise struct {
	name    string
	loop    string    // the body of the Go loop that it equals
	in      []string  // slices that are read; y, which may be one, is written
	scalars []string  // float32 parameters
	consts  []float32 // constants that the body uses
	unroll  int
	reduce  *reduction // nil where nothing is returned
	noStore bool       // y is not a parameter

	body func(m *arith, in []VecVirtual, scalar map[string]VecVirtual) VecVirtual
}

// reduction says how the results of body become the returned value.
type reduction struct {
	neutral float32
	combine func(v, acc VecVirtual)
	first   string // the initialisation in the Go loop
}

// arith emits arithmetic for an instruction set.
type arith struct {
	isa
	regs map[uint32]VecVirtual // constants held in registers, by their bits
}

// consts is the table of constants, sixteen equal lanes each.
var consts struct {
	table Mem
	at    map[uint32]int // by their bits
}

// masks holds eight lanes of ones, then eight of zeros.
var masks Mem

// laneMasks emits masks.
func laneMasks() {
	masks = GLOBL("masks", attr.RODATA|attr.NOPTR)
	for i := range 16 {
		v := U32(0)
		if i < 8 {
			v = 0xffffffff
		}
		DATA(4*i, v)
	}
}

// globals emits the tables that the kernels of es refer to.
func globals(es []elementwise) {
	laneMasks()
	consts.table = GLOBL("consts", attr.RODATA|attr.NOPTR)
	consts.at = map[uint32]int{}
	for _, e := range es {
		list := e.consts
		if e.reduce != nil {
			list = append(list[:len(list):len(list)], e.reduce.neutral)
		}
		for _, c := range list {
			bits := math.Float32bits(c)
			if _, ok := consts.at[bits]; ok {
				continue
			}
			at := 64 * len(consts.at)
			consts.at[bits] = at
			for i := range 16 {
				DATA(at+4*i, U32(bits))
			}
		}
	}
}

// held is how many constants a loop has in registers.
const held = 22

// constant returns an operand that holds c in every lane: a register on
// AVX-512, which has many, unless those are used up, memory on AVX2.
func (m *arith) constant(c float32) Op {
	if r, ok := m.regs[math.Float32bits(c)]; ok {
		return r
	}
	return m.stored(c)
}

// stored returns the place of c in the table.
func (m *arith) stored(c float32) Mem {
	at, ok := consts.at[math.Float32bits(c)]
	if !ok {
		panic(fmt.Sprintf("constant %v is not declared", c))
	}
	return consts.table.Offset(at)
}

// hold keeps constants in registers.
func (m *arith) hold(consts []float32) {
	for _, c := range consts {
		if _, ok := m.regs[math.Float32bits(c)]; ok {
			continue
		}
		r := m.vec()
		VBROADCASTSS(m.stored(c), r)
		m.regs[math.Float32bits(c)] = r
	}
}

// register returns a register that holds c in every lane.
func (m *arith) register(c float32) VecVirtual {
	if r, ok := m.regs[math.Float32bits(c)]; ok {
		return r
	}
	r := m.vec()
	VMOVUPS(m.stored(c), r)
	return r
}

// clamp limits x to lo and hi, which are not NaN; a NaN in x stays.
func (m *arith) clamp(x, lo, hi VecVirtual) VecVirtual {
	r := m.vec()
	VMAXPS(x, lo, r)
	VMINPS(r, hi, r)
	return r
}

// tail is the mask of the last lanes.
type tail struct {
	k    Register   // AVX-512
	lane VecVirtual // AVX2
}

// newTail makes the mask for n elements, fewer than a vector holds.
func (m *arith) newTail(n Register) *tail {
	if m.lanes == 16 {
		bits, k := GP64(), K()
		MOVQ(I32(-1), bits)
		BZHIQ(n, bits, bits)
		KMOVW(bits.As32(), k)
		return &tail{k: k}
	}
	at, end := GP64(), GP64()
	LEAQ(masks.Offset(32), end)
	MOVQ(n, at)
	NEGQ(at)
	lane := m.vec()
	VMOVUPS(Mem{Base: end, Index: at, Scale: 4}, lane)
	return &tail{lane: lane}
}

// load reads a vector, under the mask t unless that is nil.
func (m *arith) load(at Mem, t *tail) VecVirtual {
	v := m.vec()
	switch {
	case t == nil:
		VMOVUPS(at, v)
	case m.lanes == 16:
		VMOVUPS_Z(at, t.k, v)
	default:
		VMASKMOVPS(at, t.lane, v)
	}
	return v
}

// store writes a vector, under the mask t unless that is nil.
func (m *arith) store(v VecVirtual, at Mem, t *tail) {
	switch {
	case t == nil:
		VMOVUPS(v, at)
	case m.lanes == 16:
		VMOVUPS(v, t.k, at)
	default:
		m.storeTail(v, at, t)
	}
}

// tails counts the stores of tails, for their labels.
var tails int

// storeTail writes the elements of an AVX2 vector that a mask begins with, by halves:
// VMASKMOVPS to memory takes tens of cycles on AMD's processors.
func (m *arith) storeTail(v VecVirtual, at Mem, t *tail) {
	tails++
	n := tails
	label := func(s string) string { return fmt.Sprintf("tail%d_%s", n, s) }
	bits, p, x := GP32(), GP64(), XMM()
	VMOVMSKPS(t.lane, bits)
	LEAQ(at, p)
	TESTL(U32(1<<7), bits)
	JZ(LabelRef(label("four")))
	VMOVUPS(v, Mem{Base: p})
	JMP(LabelRef(label("done")))
	Label(label("four"))
	VMOVAPS(v.AsX(), x)
	TESTL(U32(1<<3), bits)
	JZ(LabelRef(label("two")))
	VMOVUPS(x, Mem{Base: p})
	VEXTRACTF128(Imm(1), v.AsY(), x)
	add(16, p)
	SHRL(Imm(4), bits)
	Label(label("two"))
	TESTL(U32(1<<1), bits)
	JZ(LabelRef(label("one")))
	VMOVLPS(x, Mem{Base: p})
	VMOVHLPS(x, x, x)
	add(8, p)
	SHRL(Imm(2), bits)
	Label(label("one"))
	TESTL(U32(1), bits)
	JZ(LabelRef(label("done")))
	VMOVSS(x, Mem{Base: p})
	Label(label("done"))
}

// keep replaces the lanes of v outside the mask by other.
func (m *arith) keep(v VecVirtual, t *tail, other float32) VecVirtual {
	r := m.vec()
	VBROADCASTSS(m.stored(other), r)
	if m.lanes == 16 {
		VMOVAPS(v, t.k, r)
	} else {
		VBLENDVPS(t.lane, v, r, r)
	}
	return r
}

// elementwise generates the loop e.
func (a isa) elementwise(e elementwise) {
	params, types := append([]string{"y"}, e.in...), ""
	if e.noStore {
		params = e.in
	}
	params = unique(params)
	types = strings.Join(params, ", ") + " []float32"
	if len(e.scalars) > 0 {
		types += ", " + strings.Join(e.scalars, ", ") + " float32"
	}
	result, doc := "", []string{fmt.Sprintf("%s_%s is", e.name, a.name), ""}
	if e.reduce != nil {
		result = " float32"
		doc = append(doc, "\t"+e.reduce.first)
	}
	doc = append(doc, fmt.Sprintf("\tfor i := range %s {", params[0]))
	for line := range strings.SplitSeq(e.loop, "\n") {
		doc = append(doc, "\t\t"+line)
	}
	doc = append(doc, "\t}")
	if e.reduce != nil {
		doc = append(doc, "\treturn s")
	}
	begin(e.name+"_"+a.name, "func("+types+")"+result, doc...)

	m := &arith{isa: a, regs: map[uint32]VecVirtual{}}
	n := Load(Param(params[0]).Len(), GP64())
	ptr := map[string]Register{}
	for _, p := range params {
		ptr[p] = Load(Param(p).Base(), GP64())
	}
	scalar := map[string]VecVirtual{}
	for _, s := range e.scalars {
		scalar[s] = a.vec()
		at, err := Param(s).Resolve()
		if err != nil {
			panic(err)
		}
		VBROADCASTSS(at.Addr, scalar[s])
	}
	if a.lanes == 16 {
		m.hold(e.consts[:min(len(e.consts), held)])
	}
	var acc []VecVirtual
	if e.reduce != nil {
		for range e.unroll {
			r := a.vec()
			VBROADCASTSS(m.stored(e.reduce.neutral), r)
			acc = append(acc, r)
		}
	}
	i := GP64()
	XORQ(i, i)
	step := func(u int, t *tail) {
		in := make([]VecVirtual, len(e.in))
		for j, p := range e.in {
			in[j] = m.load(Mem{Base: ptr[p], Index: i, Scale: 1, Disp: a.bytes() * u}, t)
		}
		v := e.body(m, in, scalar)
		if !e.noStore {
			m.store(v, Mem{Base: ptr["y"], Index: i, Scale: 1, Disp: a.bytes() * u}, t)
		}
		if e.reduce != nil {
			if t != nil {
				v = m.keep(v, t, e.reduce.neutral)
			}
			e.reduce.combine(v, acc[u])
		}
	}
	if e.unroll > 1 {
		SUBQ(Imm(uint64(e.unroll*a.lanes)), n)
		JL(LabelRef("vectors"))
		Label("unrolled")
		for u := range e.unroll {
			step(u, nil)
		}
		add(e.unroll*a.bytes(), i)
		SUBQ(Imm(uint64(e.unroll*a.lanes)), n)
		JGE(LabelRef("unrolled"))
		Label("vectors")
		add(e.unroll*a.lanes, n)
	}
	SUBQ(Imm(uint64(a.lanes)), n)
	JL(LabelRef("rest"))
	Label("loop")
	step(0, nil)
	add(a.bytes(), i)
	SUBQ(Imm(uint64(a.lanes)), n)
	JGE(LabelRef("loop"))
	Label("rest")
	add(a.lanes, n)
	JZ(LabelRef("done"))
	step(0, m.newTail(n))
	Label("done")
	if e.reduce != nil {
		for _, v := range acc[1:] {
			e.reduce.combine(v, acc[0])
		}
		Store(a.across(acc[0], e.reduce.combine).AsX(), ReturnIndex(0))
	}
	end()
}

// unique drops repeated names.
func unique(names []string) []string {
	var out []string
	for _, n := range names {
		if len(out) == 0 || n != out[0] {
			out = append(out, n)
		}
	}
	return out
}

// Constants of exp: the clamp holds every finite result and the overflow to
// infinity; ln 2 is split so that its first part times an exponent is exact.
const (
	expLo = -104
	expHi = 89
	log2e = 1.44269504088896341
	ln2Hi = 0.693145751953125
	ln2Lo = 1.428606765330187e-06
)

// taylor are 1/n! for n from 7 down to 0.
var taylor = []float32{1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 0.5, 1, 1}

var expConsts = append([]float32{expLo, expHi, log2e, ln2Hi, ln2Lo}, taylor...)

// reduceExp splits x into n, rounded, and r with x = n ln 2 + r.
func (m *arith) reduceExp(x VecVirtual) (n, r VecVirtual) {
	n, r = m.vec(), m.vec()
	VMULPS(m.constant(log2e), x, n)
	if m.lanes == 16 {
		VRNDSCALEPS(Imm(8), n, n)
	} else {
		VROUNDPS(Imm(8), n, n)
	}
	VMOVAPS(x, r)
	VFNMADD231PS(m.constant(ln2Hi), n, r)
	VFNMADD231PS(m.constant(ln2Lo), n, r)
	return n, r
}

// horner evaluates a polynomial with the coefficients c, the highest first.
func (m *arith) horner(x VecVirtual, c []float32) VecVirtual {
	p := m.vec()
	VMOVUPS(m.constant(c[0]), p)
	for _, c := range c[1:] {
		VFMADD213PS(m.constant(c), x, p)
	}
	return p
}

// exp returns e to the x.
func (m *arith) exp(x VecVirtual) VecVirtual {
	n, r := m.reduceExp(m.clamp(x, m.register(expLo), m.register(expHi)))
	return m.scale(m.horner(r, taylor), n)
}

// scale returns p times 2 to the n, in p.
func (m *arith) scale(p, n VecVirtual) VecVirtual {
	if m.lanes == 16 {
		VSCALEFPS(n, p, p)
		return p
	}
	// Two factors: 2^n itself may be out of range where p 2^n is not.
	whole, half := m.vec(), m.vec()
	VCVTPS2DQ(n, whole)
	VPSRAD(Imm(1), whole, half)
	VPSUBD(half, whole, whole)
	for _, e := range []VecVirtual{half, whole} {
		VMULPS(m.pow2(e), p, p)
	}
	return p
}

// pow2 turns the integers that the last nine bits of e are into 2 to them by building the floats' exponents, -127 into 0.
func (m *arith) pow2(e VecVirtual) VecVirtual {
	r := m.vec()
	VPSLLD(Imm(23), e, r)
	VPADDD(m.constant(1), r, r)
	return r
}

// Constants of sigmoid: ln 2 in one piece, and what added to a float of less than
// 2^22 rounds it to an integer.
const (
	ln2   = 0.693147180559945309
	round = 3 << 22
)

// decline are the coefficients, the highest first, of a polynomial that is e to the
// -x for |x| up to ln(2)/2: a minimax fit of the relative error, 3e-9.
var decline = []float32{0.0014061241, -0.008379011, 0.041664775, -0.16666366, 0.50000006, -1, 1}

// sigmoidMax is from where on the logistic function is 1; 2 to the exponent of e to the -sigmoidMax is 0 where it is built of bits.
const sigmoidMax = 88

var sigmoidConsts = append([]float32{-expHi, sigmoidMax, -log2e, ln2, round}, decline...)

// sigmoid returns 1 / (1 + e to the -x).
func (m *arith) sigmoid(x VecVirtual) VecVirtual {
	one := m.register(1)
	x = m.clamp(x, m.register(-expHi), m.register(sigmoidMax))
	bits, n, r := m.vec(), m.vec(), m.vec()
	VMOVUPS(m.constant(round), bits)
	VFMADD231PS(m.constant(-log2e), x, bits)
	VSUBPS(m.constant(round), bits, n)
	VMOVAPS(x, r)
	VFMADD231PS(m.constant(ln2), n, r)
	d, q := m.horner(r, decline), m.vec()
	if m.lanes == 16 {
		VSCALEFPS(n, d, d)
	} else { // one factor: 2 to the 128 is infinite, of which the logistic function is 0
		VMULPS(m.pow2(bits), d, d)
	}
	VADDPS(one, d, d)
	VDIVPS(d, one, q)
	return q
}

// silu returns x / (1 + e to the -x).
func (m *arith) silu(x VecVirtual) VecVirtual {
	s := m.sigmoid(x)
	VMULPS(x, s, s)
	return s
}

// tanhMax is where tanh is 1 in float32.
const tanhMax = 20

// expm1 returns e to the z less 1, computed without cancellation, of z limited to +-tanhMax.
func (m *arith) expm1(z VecVirtual) VecVirtual {
	n, r := m.reduceExp(m.clamp(z, m.register(-tanhMax), m.register(tanhMax)))
	p := m.horner(r, taylor[:len(taylor)-2])
	square := m.vec()
	VMULPS(r, r, square)
	VFMADD213PS(r, square, p)
	s := m.vec()
	if m.lanes == 16 {
		VSCALEFPS(n, m.register(1), s)
	} else {
		VCVTPS2DQ(n, s)
		s = m.pow2(s)
	}
	less := m.vec()
	VADDPS(m.constant(-1), s, less)
	VFMADD213PS(less, s, p)
	return p
}

// tanh returns e/(e+2) with e = exp(2x)-1.
func (m *arith) tanh(x VecVirtual) VecVirtual {
	z := m.vec()
	VADDPS(x, x, z)
	e, d := m.expm1(z), m.vec()
	VADDPS(m.constant(2), e, d)
	VDIVPS(d, e, e)
	return e
}

var tanhConsts = append([]float32{-tanhMax, tanhMax, -1, 2}, expConsts...)

// tailFit are the coefficients, the highest first, of a polynomial p with 2 to the z p(z) = erfc(z/sqrt 2): a minimax fit for z
// up to tailEnd, which the program in fit makes, with a relative error of 5e-8, or one of 5e-10 of z erfc(z/sqrt 2)/2 where that is less.
var tailFit = []float32{
	3.0266685e-07, -6.365116e-06, 5.505707e-05, -0.00021848336, -0.00010976123, 0.0070671705, -0.052515924, -0.4591983, -1.1511065,
}

// tailEnd is from where on tail is 0: less than 1e-10 as it is.
const tailEnd = 6.5

// halfPow2 is the half of pow2Fit.
var halfPow2 = func() (list []float32) {
	for _, c := range pow2Fit {
		list = append(list, c/2)
	}
	return list
}()

var tailConsts = slices.Concat([]float32{magnitude, round, 1, tailEnd}, tailFit, halfPow2)

// tail returns erfc(z/sqrt 2)/2, of a normal variable the probability to exceed z, which is not negative; 0 where z is no number.
// With u = z p(z) and n = u rounded, that is half of 2 to the u-n, of which the product is not rounded, times 2 to the n, whose
// exponent is added as an integer.
func (m *arith) tail(z VecVirtual) VecVirtual {
	p := m.horner(z, tailFit)
	bits, n := m.vec(), m.vec()
	VMOVAPS(p, bits)
	VFMADD213PS(m.constant(round), z, bits)
	VSUBPS(m.constant(round), bits, n)
	VFMSUB213PS(n, z, p)
	q := m.horner(p, halfPow2)
	VPSLLD(Imm(23), bits, bits)
	if m.lanes == 16 {
		k := K()
		VCMPPS(Imm(lessOrEqual), m.constant(tailEnd), z, k)
		VPADDD_Z(bits, q, k, q)
		return q
	}
	VPADDD(bits, q, q)
	VCMPPS(Imm(lessOrEqual), m.constant(tailEnd), z, bits)
	VANDPS(bits, q, q)
	return q
}

var geluConsts = append([]float32{0}, tailConsts...)

// gelu returns x Phi(x), where Phi(x) is tail(|x|) or 1 less that.
func (m *arith) gelu(x VecVirtual) VecVirtual {
	q, one := m.tail(m.magnitude(x)), m.register(1)
	if m.lanes == 16 {
		k := K()
		VCMPPS(Imm(notLess), m.register(0), x, k)
		VSUBPS(q, one, k, q)
	} else {
		rest := m.vec()
		VSUBPS(q, one, rest)
		VBLENDVPS(x, q, rest, q)
	}
	VMULPS(x, q, q)
	return q
}

// The argument of the logistic function in the tanh form of GELU.
const (
	geluLinear = 1.5957691216057308
	geluCubic  = 0.07135481282705965
)

// unary returns the description of y[i] = f(x[i]).
// extremum describes a reduction by max or min, which begins with an infinity of the given sign.
func extremum(name, of string, sign int, op func(...Op)) elementwise {
	return elementwise{
		name: name, loop: "s = " + of + "(s, x[i])", in: []string{"x"}, unroll: 4, noStore: true,
		reduce: &reduction{
			neutral: float32(math.Inf(sign)), first: fmt.Sprintf("s := float32(math.Inf(%d))", sign),
			combine: func(v, acc VecVirtual) { op(v, acc, acc) },
		},
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual { return in[0] },
	}
}

func unary(name, loop string, consts []float32, f func(m *arith, x VecVirtual) VecVirtual) elementwise {
	return elementwise{
		name: name, loop: "y[i] = " + loop, in: []string{"x"}, consts: consts, unroll: 1,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual { return f(m, in[0]) },
	}
}

// binary returns the description of y[i] = a[i] op b[i].
func binary(name, expr string, op func(...Op)) elementwise {
	return elementwise{
		name: name, loop: "y[i] = " + expr, in: []string{"a", "b"}, unroll: 2,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual {
			r := m.vec()
			op(in[1], in[0], r)
			return r
		},
	}
}

// extreme returns the description of the maximum or the minimum of two rows, in which a NaN stays.
func extreme(name, expr string, op func(...Op)) elementwise {
	return elementwise{
		name: name, loop: "y[i] = " + expr, in: []string{"a", "b"}, unroll: 2,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual {
			// Of a NaN and another the result is the second operand, b.
			r := m.vec()
			if m.lanes == 16 {
				nan := K()
				VCMPPS(Imm(3), in[0], in[0], nan)
				op(in[1], in[0], r)
				VMOVAPS(in[0], nan, r)
				return r
			}
			nan := m.vec()
			VCMPPS(Imm(3), in[0], in[0], nan)
			op(in[1], in[0], r)
			VBLENDVPS(nan, in[0], r, r)
			return r
		},
	}
}

// sums is the reduction by addition, of four vectors at a time.
var sums = &reduction{neutral: 0, combine: func(v, acc VecVirtual) { VADDPS(v, acc, acc) }, first: "s := float32(0)"}

// helpers lists the elementwise kernels.
var helpers = []elementwise{
	binary("add", "a[i] + b[i]", VADDPS),
	binary("sub", "a[i] - b[i]", VSUBPS),
	binary("mul", "a[i] * b[i]", VMULPS),
	binary("div", "a[i] / b[i]", VDIVPS),
	extreme("larger", "max(a[i], b[i])", VMAXPS),
	extreme("smaller", "min(a[i], b[i])", VMINPS),
	{
		name: "affine", loop: "y[i] = clamp(x[i]*scale+bias, lo, hi)",
		in: []string{"x"}, scalars: []string{"scale", "bias", "lo", "hi"}, unroll: 4,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			VFMADD213PS(s["bias"], s["scale"], in[0])
			return m.clamp(in[0], s["lo"], s["hi"])
		},
	},
	{
		name: "addClip", loop: "y[i] = clamp(a[i]+b[i]+bias, lo, hi)",
		in: []string{"a", "b"}, scalars: []string{"bias", "lo", "hi"}, unroll: 2,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			VADDPS(in[1], in[0], in[0])
			VADDPS(s["bias"], in[0], in[0])
			return m.clamp(in[0], s["lo"], s["hi"])
		},
	},
	{
		name: "axpy", loop: "y[i] += a * x[i]", in: []string{"y", "x"}, scalars: []string{"a"}, unroll: 4,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			VFMADD231PS(in[1], s["a"], in[0])
			return in[0]
		},
	},
	{
		name: "normalize", loop: "y[i] = (x[i]-mean)*inv*gamma[i] + beta[i]",
		in: []string{"x", "gamma", "beta"}, scalars: []string{"mean", "inv"}, unroll: 2,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			VSUBPS(s["mean"], in[0], in[0])
			VMULPS(s["inv"], in[0], in[0])
			VFMADD213PS(in[2], in[1], in[0])
			return in[0]
		},
	},
	{
		name: "sum", loop: "s += x[i]", in: []string{"x"}, unroll: 4, noStore: true, reduce: sums,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual { return in[0] },
	},
	{
		name: "dot", loop: "s += a[i] * b[i]", in: []string{"a", "b"}, unroll: 4, noStore: true, reduce: sums,
		body: func(m *arith, in []VecVirtual, _ map[string]VecVirtual) VecVirtual {
			VMULPS(in[1], in[0], in[0])
			return in[0]
		},
	},
	{
		name: "sumSquares", loop: "d := x[i] - mean\ns += d * d",
		in: []string{"x"}, scalars: []string{"mean"}, unroll: 4, noStore: true, reduce: sums,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			VSUBPS(s["mean"], in[0], in[0])
			VMULPS(in[0], in[0], in[0])
			return in[0]
		},
	},
	extremum("maximum", "max", -1, VMAXPS),
	extremum("minimum", "min", 1, VMINPS),
	{
		name: "expSum", loop: "y[i] = decay(x[i] - shift)\ns += y[i]",
		in: []string{"x"}, scalars: []string{"shift"}, consts: decayConsts(softmaxLo), unroll: 1, reduce: sums,
		body: func(m *arith, in []VecVirtual, s map[string]VecVirtual) VecVirtual {
			VSUBPS(s["shift"], in[0], in[0])
			return m.decay(in[0], softmaxLo)
		},
	},
	unary("exp", "exp(x[i])", expConsts, (*arith).exp),
	unary("sigmoid", "1 / (1 + exp(-x[i]))", sigmoidConsts, (*arith).sigmoid),
	unary("tanh", "tanh(x[i])", tanhConsts, (*arith).tanh),
	unary("silu", "x[i] / (1 + exp(-x[i]))", sigmoidConsts, (*arith).silu),
	unary("gelu", "x[i] / 2 * (1 + erf(x[i]/sqrt(2)))", geluConsts, (*arith).gelu),
	unary("geluTanh", "x[i] / 2 * (1 + tanh(sqrt(2/pi)*(x[i]+0.044715*x[i]*x[i]*x[i])))",
		append([]float32{geluLinear, geluCubic}, sigmoidConsts...),
		func(m *arith, x VecVirtual) VecVirtual {
			u, square := m.vec(), m.vec()
			VMULPS(x, x, square)
			VMOVUPS(m.constant(geluCubic), u)
			VFMADD213PS(m.constant(geluLinear), square, u)
			VMULPS(x, u, u)
			s := m.sigmoid(u)
			VMULPS(x, s, s)
			return s
		}),
	unary("hardSwish", "x[i] * clamp(x[i]/6+0.5, 0, 1)", hardSwishConsts, (*arith).hardSwish),
}

var hardSwishConsts = []float32{0, 1. / 6, 0.5, 1}

// hardSwish returns x times what is x/6 + 1/2 between 0 and 1.
func (m *arith) hardSwish(x VecVirtual) VecVirtual {
	u := m.vec()
	VMOVUPS(m.constant(1./6), u)
	VFMADD213PS(m.constant(0.5), x, u)
	u = m.clamp(u, m.register(0), m.register(1))
	VMULPS(x, u, u)
	return u
}
