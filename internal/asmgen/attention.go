package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// tileRows is the most rows of a product of strided matrices, tile.Rows.
const tileRows = 6

// attention generates the kernels of package tile.
func attention() {
	globals([]elementwise{{consts: append([]float32{float32(math.Inf(-1))}, decayConsts(decayLo)...)}})
	for _, a := range isas {
		vectors := 4
		if a.lanes == 8 {
			vectors = 2
		}
		for v := 1; v <= vectors; v++ {
			for rows := 1; rows <= tileRows; rows++ {
				strided(a, rows, v)
			}
			columnMax(a, v, false)
			columnMax(a, v, true)
			columnExp(a, v)
			columnScale(a, v)
		}
		rotate(a)
	}
}

// strided generates a product of rows rows of a matrix with any strides and
// vectors vectors of columns of one whose columns are contiguous.
func strided(a isa, rows, vectors int) {
	const unroll = 2
	cols := vectors * a.lanes
	name := fmt.Sprintf("product_f32_%dx%d_%s", rows, cols, a.name)
	begin(name, "func(k int, a []float32, ra, ca int, x []float32, ldx int, y []float32, ldy int, acc bool)",
		name+" is",
		"",
		fmt.Sprintf("\tfor r := range %d {", rows),
		fmt.Sprintf("\t\tfor c := range %d {", cols),
		"\t\t\tvar s float32",
		"\t\t\tfor i := range k {",
		"\t\t\t\ts += a[r*ra+i*ca] * x[i*ldx+c]",
		"\t\t\t}",
		"\t\t\tif acc {",
		"\t\t\t\ts += y[r*ldy+c]",
		"\t\t\t}",
		"\t\t\ty[r*ldy+c] = s",
		"\t\t}",
		"\t}")
	k := Load(Param("k"), GP64())
	w := Load(Param("a").Base(), GP64())
	ra := Load(Param("ra"), GP64())
	ca := Load(Param("ca"), GP64())
	x := Load(Param("x").Base(), GP64())
	ldx := Load(Param("ldx"), GP64())
	y := Load(Param("y").Base(), GP64())
	ldy := Load(Param("ldy"), GP64())
	for _, stride := range []Register{ra, ca, ldx, ldy} {
		SHLQ(Imm(2), stride)
	}
	var low Register // row 3
	if rows > 3 {
		low = GP64()
		LEAQ(Mem{Base: ra, Index: ra, Scale: 2}, low)
		ADDQ(w, low)
	}
	row := func(r int) Mem {
		base := w
		if r >= 3 {
			base, r = low, r-3
		}
		if r == 0 {
			return Mem{Base: base}
		}
		return Mem{Base: base, Index: ra, Scale: uint8(r)}
	}
	n := 1
	for n < unroll && n*rows*vectors < 8 {
		n *= 2
	}
	sets := a.tileSets(n, rows, vectors)
	step := func(u int) {
		xs := make([]VecVirtual, vectors)
		for v := range xs {
			xs[v] = a.vec()
			VMOVUPS(Mem{Base: x, Disp: a.bytes() * v}, xs[v])
		}
		for r, acc := range sets[u%len(sets)] {
			b := a.vec()
			VBROADCASTSS(row(r), b)
			for v := range xs {
				VFMADD231PS(xs[v], b, acc[v])
			}
		}
		ADDQ(ca, w)
		if low != nil {
			ADDQ(ca, low)
		}
		ADDQ(ldx, x)
	}
	SUBQ(Imm(unroll), k)
	JL(LabelRef("tail"))
	Label("loop")
	for u := range unroll {
		step(u)
	}
	SUBQ(Imm(unroll), k)
	JGE(LabelRef("loop"))
	Label("tail")
	add(unroll, k)
	JZ(LabelRef("done"))
	Label("one")
	step(0)
	DECQ(k)
	JNZ(LabelRef("one"))
	Label("done")
	storeTile(fold(sets), a, y, ldy, "store")
	end()
}

// columns returns vectors registers that hold consecutive vectors at p.
func (a isa) columns(p Register, vectors int) []VecVirtual {
	vs := make([]VecVirtual, vectors)
	for v := range vs {
		vs[v] = a.vec()
		VMOVUPS(Mem{Base: p, Disp: a.bytes() * v}, vs[v])
	}
	return vs
}

// columnMax generates the first half of a softmax down the columns of a tile: what
// is added is one for each row, or a tile, which hides elements whatever they are.
func columnMax(a isa, vectors int, masked bool) {
	cols := vectors * a.lanes
	name := fmt.Sprintf("columnMax_f32_%d_%s", cols, a.name)
	doc := []string{
		"\tfor r := range rows {",
		fmt.Sprintf("\t\tfor c := range %d {", cols),
		fmt.Sprintf("\t\t\ts[r*%d+c] = s[r*%d+c]*scale + bias[r]", cols, cols),
	}
	if masked {
		name = fmt.Sprintf("columnMaskMax_f32_%d_%s", cols, a.name)
		doc[2] = fmt.Sprintf("\t\t\ts[r*%d+c] = s[r*%d+c]*scale + bias[r*%d+c] // -Inf where the latter is", cols, cols, cols)
	}
	begin(name, "func(rows int, s, bias, m []float32, scale float32)", append(append([]string{name + " is", ""}, doc...),
		fmt.Sprintf("\t\t\tm[c] = max(m[c], s[r*%d+c])", cols),
		"\t\t}",
		"\t}")...)
	rows := Load(Param("rows"), GP64())
	s := Load(Param("s").Base(), GP64())
	bias := Load(Param("bias").Base(), GP64())
	m := Load(Param("m").Base(), GP64())
	scale := a.vec()
	at, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(at.Addr, scale)
	top := a.columns(m, vectors)
	low := a.vec()
	if masked {
		VBROADCASTSS((&arith{isa: a}).stored(float32(math.Inf(-1))), low)
	}
	Label("loop")
	b := a.vec()
	if !masked {
		VBROADCASTSS(Mem{Base: bias}, b)
	}
	for v := range vectors {
		x := a.vec()
		VMOVUPS(Mem{Base: s, Disp: a.bytes() * v}, x)
		if masked {
			VMOVUPS(Mem{Base: bias, Disp: a.bytes() * v}, b)
		}
		VFMADD213PS(b, scale, x)
		const equal = 0
		switch {
		case masked && a.lanes == 16:
			k := K()
			VCMPPS(Imm(equal), low, b, k)
			VMOVAPS(low, k, x)
		case masked:
			is := a.vec()
			VCMPPS(Imm(equal), low, b, is)
			VBLENDVPS(is, low, x, x)
		}
		VMOVUPS(x, Mem{Base: s, Disp: a.bytes() * v})
		VMAXPS(x, top[v], top[v])
	}
	add(4*cols, s)
	if masked {
		add(4*cols, bias)
	} else {
		add(4, bias)
	}
	DECQ(rows)
	JNZ(LabelRef("loop"))
	for v, x := range top {
		VMOVUPS(x, Mem{Base: m, Disp: a.bytes() * v})
	}
	end()
}

// decayLo is the exponent of 2 from which on the weights of attention are zero: far below what a sum
// that is at least one can hold, and far above the denormal numbers, which are
// slow.
const decayLo = -64

// softmaxLo is that exponent for a softmax whose results others see: that of the smallest
// normal numbers.
const softmaxLo = -125

// pow2Fit are the coefficients, the highest first, of a polynomial that is 2 to
// the f for f from -1/2 to 1/2 with a relative error of at most 1.1e-7, and exact
// at 0.
var pow2Fit = []float32{
	0.001326472731307149, 0.009671512991189957, 0.05550733581185341, 0.24022242426872253, 0.6931470036506653, 1,
}

func decayConsts(lo float32) []float32 { return append([]float32{log2e, lo}, pow2Fit...) }

// decay returns e to the x for x <= 0, zero where that is below 2 to the lo.
func (m *arith) decay(x VecVirtual, lo float32) VecVirtual {
	u, n := m.vec(), m.vec()
	VMULPS(m.constant(log2e), x, u)
	if m.lanes == 16 {
		VRNDSCALEPS(Imm(8), u, n)
	} else {
		VROUNDPS(Imm(8), u, n)
	}
	f := m.vec()
	VSUBPS(n, u, f)
	p := m.horner(f, pow2Fit)
	const notLess = 5 // also where one is no number
	if m.lanes == 16 {
		k := K()
		VCMPPS(Imm(notLess), m.constant(lo), u, k)
		VSCALEFPS_Z(n, p, k, p)
		return p
	}
	keep, e := m.vec(), m.vec()
	VCMPPS(Imm(notLess), m.constant(lo), u, keep)
	VCVTPS2DQ(n, e)
	VPSLLD(Imm(23), e, e)
	VPADDD(e, p, p) // p is from 0.7 to 1.5: its exponent has room
	VANDPS(keep, p, p)
	// What is no number must stay so, whatever was added to its exponent.
	nan := m.vec()
	VCMPPS(Imm(3), u, u, nan)
	VORPS(nan, p, p)
	return p
}

// columnExp generates the second half of a softmax down the columns of a tile.
func columnExp(a isa, vectors int) {
	cols := vectors * a.lanes
	name := fmt.Sprintf("columnExp_f32_%d_%s", cols, a.name)
	begin(name, "func(rows int, s, m, sum []float32)",
		name+" is",
		"",
		"\tfor r := range rows {",
		fmt.Sprintf("\t\tfor c := range %d {", cols),
		fmt.Sprintf("\t\t\ts[r*%d+c] = decay(s[r*%d+c] - m[c])", cols, cols),
		fmt.Sprintf("\t\t\tsum[c] += s[r*%d+c]", cols),
		"\t\t}",
		"\t}")
	rows := Load(Param("rows"), GP64())
	s := Load(Param("s").Base(), GP64())
	mp := Load(Param("m").Base(), GP64())
	sum := Load(Param("sum").Base(), GP64())
	m := &arith{isa: a, regs: map[uint32]VecVirtual{}}
	if a.lanes == 16 {
		for _, c := range decayConsts(decayLo) {
			r := a.vec()
			VBROADCASTSS(m.stored(c), r)
			m.regs[math.Float32bits(c)] = r
		}
	}
	total := a.columns(sum, vectors)
	Label("loop")
	for v := range vectors {
		x := a.vec()
		VMOVUPS(Mem{Base: s, Disp: a.bytes() * v}, x)
		VSUBPS(Mem{Base: mp, Disp: a.bytes() * v}, x, x)
		p := m.decay(x, decayLo)
		VMOVUPS(p, Mem{Base: s, Disp: a.bytes() * v})
		VADDPS(p, total[v], total[v])
	}
	add(4*cols, s)
	DECQ(rows)
	JNZ(LabelRef("loop"))
	for v, x := range total {
		VMOVUPS(x, Mem{Base: sum, Disp: a.bytes() * v})
	}
	end()
}

// columnScale generates the product of the columns of a tile with a factor each.
func columnScale(a isa, vectors int) {
	cols := vectors * a.lanes
	name := fmt.Sprintf("columnScale_f32_%d_%s", cols, a.name)
	begin(name, "func(rows int, s, f []float32)",
		name+" is",
		"",
		"\tfor r := range rows {",
		fmt.Sprintf("\t\tfor c := range %d {", cols),
		fmt.Sprintf("\t\t\ts[r*%d+c] *= f[c]", cols),
		"\t\t}",
		"\t}")
	rows := Load(Param("rows"), GP64())
	s := Load(Param("s").Base(), GP64())
	fp := Load(Param("f").Base(), GP64())
	f := a.columns(fp, vectors)
	Label("loop")
	for v := range vectors {
		x := a.vec()
		VMULPS(Mem{Base: s, Disp: a.bytes() * v}, f[v], x)
		VMOVUPS(x, Mem{Base: s, Disp: a.bytes() * v})
	}
	add(4*cols, s)
	DECQ(rows)
	JNZ(LabelRef("loop"))
	end()
}

// rotate generates a rotation of neighbouring pairs.
func rotate(a isa) {
	name := "rotate_f32_" + a.name
	begin(name, "func(y, x, cos, sin []float32)",
		name+" is",
		"",
		"\tfor i := 0; i < len(y); i += 2 {",
		"\t\ty[i], y[i+1] = x[i]*cos[i]+x[i+1]*sin[i], x[i+1]*cos[i+1]+x[i]*sin[i+1]",
		"\t}")
	m := &arith{isa: a}
	n := Load(Param("y").Len(), GP64())
	y := Load(Param("y").Base(), GP64())
	x := Load(Param("x").Base(), GP64())
	cos := Load(Param("cos").Base(), GP64())
	sin := Load(Param("sin").Base(), GP64())
	i := GP64()
	XORQ(i, i)
	step := func(t *tail) {
		at := func(p Register) Mem { return Mem{Base: p, Index: i, Scale: 4} }
		v, swap := m.load(at(x), t), a.vec()
		VPERMILPS(Imm(0xb1), v, swap)
		VMULPS(m.load(at(sin), t), swap, swap)
		VFMADD231PS(m.load(at(cos), t), v, swap)
		m.store(swap, at(y), t)
	}
	SUBQ(Imm(uint64(a.lanes)), n)
	JL(LabelRef("rest"))
	Label("loop")
	step(nil)
	add(a.lanes, i)
	SUBQ(Imm(uint64(a.lanes)), n)
	JGE(LabelRef("loop"))
	Label("rest")
	add(a.lanes, n)
	JZ(LabelRef("done"))
	step(m.newTail(n))
	Label("done")
	end()
}
