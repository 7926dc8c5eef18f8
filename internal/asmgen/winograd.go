package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// wino is a linear map T of vectors that a Winograd kernel applies to the columns
// and then to the rows of a grid X: T X T^t.
type wino struct {
	name    string
	in, out int
	// keep is the number of rows of T X that stay in registers; consts are the
	// constants that do. Both are for AVX-512.
	keep   int
	consts []float32
	memory []float32 // further constants
	check  bool      // whether results are finite is left in scratch
	apply  func(m *winoArith, x []VecVirtual) []VecVirtual
}

// The finite points that polynomials are evaluated at are 0, 1 and -1 for outputs
// of 2x2, and 0, a, -a, b and -b for those of 4x4. With a = 5/8 and b = 3/2 every
// constant but the weights' is exact and the rounding error is least among such
// pairs.
const (
	winoA  = 0.625
	winoB  = 1.5
	winoA2 = winoA * winoA
	winoB2 = winoB * winoB
	// winoNA and winoNB divide the weights at a and b.
	winoNA = 2 * winoA2 * (winoA2 - winoB2)
	winoNB = 2 * winoB2 * (winoB2 - winoA2)
)

var winos = []wino{
	{name: "weights2", in: 3, out: 4, keep: 4, memory: []float32{-1, 0.5},
		apply: func(m *winoArith, g []VecVirtual) []VecVirtual {
			sum, t, first := m.vec(), m.vec(), m.vec()
			VMULPS(m.of(-1), g[0], first)
			VADDPS(g[0], g[2], sum)
			VMULPS(m.of(0.5), sum, sum)
			VMULPS(m.of(0.5), g[1], t)
			plus, minus := m.sums(sum, t)
			return []VecVirtual{first, plus, minus, g[2]}
		}},
	{name: "input2", in: 4, out: 4, keep: 4,
		apply: func(m *winoArith, d []VecVirtual) []VecVirtual {
			VSUBPS(d[0], d[2], d[0])
			VSUBPS(d[1], d[3], d[3])
			plus, minus := m.sums(d[2], d[1])
			return []VecVirtual{d[0], plus, minus, d[3]}
		}},
	{name: "output2", in: 4, out: 2, keep: 2, check: true,
		apply: func(m *winoArith, z []VecVirtual) []VecVirtual {
			plus, minus := m.sums(z[1], z[2])
			VADDPS(z[0], plus, plus)
			VADDPS(z[3], minus, minus)
			return []VecVirtual{plus, minus}
		}},
	{name: "weights4", in: 3, out: 6, keep: 6,
		memory: []float32{1 / (winoA2 * winoB2), 1 / winoNA, winoA2 / winoNA, winoA / winoNA, 1 / winoNB, winoB2 / winoNB, winoB / winoNB},
		apply: func(m *winoArith, g []VecVirtual) []VecVirtual {
			first := m.vec()
			VMULPS(m.of(1/(winoA2*winoB2)), g[0], first)
			out := []VecVirtual{first}
			for _, c := range [][3]float32{{1 / winoNA, winoA2 / winoNA, winoA / winoNA}, {1 / winoNB, winoB2 / winoNB, winoB / winoNB}} {
				even, odd := m.vec(), m.vec()
				VMULPS(m.of(c[0]), g[0], even)
				m.fma(c[1], g[2], even)
				VMULPS(m.of(c[2]), g[1], odd)
				plus, minus := m.sums(even, odd)
				out = append(out, plus, minus)
			}
			return append(out, g[2])
		}},
	{name: "input4", in: 6, out: 6, keep: 2,
		consts: []float32{winoA2 * winoB2, winoA2 + winoB2, winoA2, winoB2, winoA, winoB},
		apply: func(m *winoArith, d []VecVirtual) []VecVirtual {
			m.fma(winoA2*winoB2, d[1], d[5])
			m.fnma(winoA2+winoB2, d[3], d[5])
			VFMADD132PS(m.of(winoA2*winoB2), d[4], d[0])
			m.fnma(winoA2+winoB2, d[2], d[0])
			even, odd := m.copy(d[4]), m.copy(d[3])
			m.fnma(winoB2, d[2], even)
			m.fnma(winoB2, d[1], odd)
			m.fnma(winoA2, d[2], d[4])
			m.fnma(winoA2, d[1], d[3])
			p, q := m.spread(winoA, even, odd)
			r, s := m.spread(winoB, d[4], d[3])
			return []VecVirtual{d[0], p, q, r, s, d[5]}
		}},
	{name: "output4", in: 6, out: 4, keep: 3, check: true,
		consts: []float32{winoA, winoB, winoA2, winoB2, winoA * winoA2, winoB * winoB2},
		apply: func(m *winoArith, z []VecVirtual) []VecVirtual {
			evenA, oddA := m.sums(z[1], z[2])
			evenB, oddB := m.sums(z[3], z[4])
			VADDPS(evenA, z[0], z[0])
			VADDPS(evenB, z[0], z[0])
			m.fma(winoA*winoA2, oddA, z[5])
			m.fma(winoB*winoB2, oddB, z[5])
			VMULPS(m.of(winoA), oddA, oddA)
			m.fma(winoB, oddB, oddA)
			VMULPS(m.of(winoA2), evenA, evenA)
			m.fma(winoB2, evenB, evenA)
			return []VecVirtual{z[0], oddA, evenA, z[5]}
		}},
}

// winoArith emits the arithmetic of a transformation.
type winoArith struct {
	isa
	regs map[float32]VecVirtual
}

// of returns an operand that holds c in every lane.
func (m *winoArith) of(c float32) Op {
	if r, ok := m.regs[c]; ok {
		return r
	}
	if m.lanes == 8 {
		return (&arith{isa: m.isa}).stored(c)
	}
	r := m.vec()
	VBROADCASTSS((&arith{isa: m.isa}).stored(c), r)
	return r
}

func (m *winoArith) fma(c float32, x, acc VecVirtual)  { VFMADD231PS(m.of(c), x, acc) }
func (m *winoArith) fnma(c float32, x, acc VecVirtual) { VFNMADD231PS(m.of(c), x, acc) }

func (m *winoArith) copy(x VecVirtual) VecVirtual {
	r := m.vec()
	VMOVAPS(x, r)
	return r
}

// sums returns x+y and x-y, the latter in x.
func (m *winoArith) sums(x, y VecVirtual) (plus, minus VecVirtual) {
	plus = m.vec()
	VADDPS(x, y, plus)
	VSUBPS(y, x, x)
	return plus, x
}

// spread returns x+c*y and x-c*y, the latter in x.
func (m *winoArith) spread(c float32, x, y VecVirtual) (plus, minus VecVirtual) {
	plus = m.copy(x)
	m.fma(c, y, plus)
	m.fnma(c, y, x)
	return plus, x
}

// winograd generates the transformations of package winograd.
func winograd() {
	var all []elementwise
	for _, w := range winos {
		all = append(all, elementwise{consts: w.consts}, elementwise{consts: w.memory})
	}
	globals(all)
	for _, a := range isas {
		for _, w := range winos {
			w.generate(a)
		}
		winogradProducts(a)
	}
}

// generate generates the transformation w: the columns of a grid go through T into
// registers and scratch, then the rows of T X.
func (w *wino) generate(a isa) {
	name := w.name + "_" + a.name
	doc := []string{
		fmt.Sprintf("%s transforms n grids X of %dx%d vectors of %d elements; the others are numbers of", name, w.in, w.in, a.lanes),
		fmt.Sprintf("elements, T is %s, and tmp has room for %d elements:", w.name, w.in*w.out*a.lanes),
		"",
		"\tfor t := range n {",
		fmt.Sprintf("\t\tfor p := range %d {", w.out),
		fmt.Sprintf("\t\t\tfor q := range %d {", w.out),
		fmt.Sprintf("\t\t\t\tfor l := range %d {", a.lanes),
		"\t\t\t\t\tvar s float32",
		fmt.Sprintf("\t\t\t\t\tfor i := range %d {", w.in),
		fmt.Sprintf("\t\t\t\t\t\tfor j := range %d {", w.in),
		"\t\t\t\t\t\t\ts += T[p][i] * T[q][j] * src[t*sstep+i*srow+j*scol+l]",
		"\t\t\t\t\t\t}",
		"\t\t\t\t\t}",
		"\t\t\t\t\tdst[t*dstep+p*drow+q*dcol+l] = s",
		"\t\t\t\t}",
		"\t\t\t}",
		"\t\t}",
		"\t}",
	}
	if w.check {
		doc = append(doc, "", "It leaves 0 in tmp[l] if every result in lane l is finite, else NaN.")
	}
	begin(name, "func(n int, src *float32, srow, scol, sstep int, dst *float32, drow, dcol, dstep int, tmp *float32)", doc...)
	m := &winoArith{isa: a, regs: map[float32]VecVirtual{}}
	keep := w.keep
	if a.lanes == 16 {
		for _, c := range w.consts {
			m.regs[c] = a.vec()
			VBROADCASTSS((&arith{isa: a}).stored(c), m.regs[c])
		}
	} else {
		keep = 0
	}
	n := Load(Param("n"), GP64())
	reg := map[string]Register{}
	for _, s := range []string{"src", "srow", "scol", "sstep", "dst", "drow", "dcol", "dstep", "tmp"} {
		reg[s] = Load(Param(s), GP64())
		if s != "src" && s != "dst" && s != "tmp" {
			SHLQ(Imm(2), reg[s])
		}
	}
	at, row := GP64(), GP64()
	var flags []VecVirtual // the second stays zero
	if w.check {
		flags = a.zeros(2)
	}
	Label("grid")
	MOVQ(reg["src"], row)
	kept := make([][]VecVirtual, keep)
	for j := range w.in {
		x := make([]VecVirtual, w.in)
		MOVQ(row, at)
		for i := range x {
			x[i] = a.vec()
			VMOVUPS(Mem{Base: at}, x[i])
			if i < w.in-1 {
				ADDQ(reg["srow"], at)
			}
		}
		for p, y := range w.apply(m, x) {
			if p < keep {
				kept[p] = append(kept[p], y)
			} else {
				VMOVUPS(y, Mem{Base: reg["tmp"], Disp: a.bytes() * (p*w.in + j)})
			}
		}
		if j < w.in-1 {
			ADDQ(reg["scol"], row)
		}
	}
	MOVQ(reg["dst"], row)
	for p := range w.out {
		var x []VecVirtual
		if p < keep {
			x = kept[p]
		} else {
			for j := range w.in {
				v := a.vec()
				VMOVUPS(Mem{Base: reg["tmp"], Disp: a.bytes() * (p*w.in + j)}, v)
				x = append(x, v)
			}
		}
		MOVQ(row, at)
		for q, y := range w.apply(m, x) {
			VMOVUPS(y, Mem{Base: at})
			if w.check {
				VFMADD231PS(flags[1], y, flags[0])
			}
			if q < w.out-1 {
				ADDQ(reg["dcol"], at)
			}
		}
		if p < w.out-1 {
			ADDQ(reg["drow"], row)
		}
	}
	ADDQ(reg["sstep"], reg["src"])
	ADDQ(reg["dstep"], reg["dst"])
	DECQ(n)
	JNZ(LabelRef("grid"))
	if w.check {
		VMOVUPS(flags[0], Mem{Base: reg["tmp"]})
	}
	end()
}
