package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// tiles generates what loads panels and stores tiles of a product.
func tiles() {
	ends := map[string]last{
		"SiLU":      {"silu", sigmoidConsts, (*arith).silu},
		"HardSwish": {"hardSwish", hardSwishConsts, (*arith).hardSwish},
		"GELU":      {"gelu", geluConsts, (*arith).gelu},
	}
	acts := slices.Sorted(maps.Keys(ends))
	var tables []elementwise
	for _, act := range acts {
		tables = append(tables, elementwise{consts: ends[act].consts})
	}
	globals(tables)
	evens()
	for _, a := range isas {
		finish(a, "finishRows", clip)
		finish(a, "finishColumns", clip)
		for _, act := range acts {
			finish(a, "finishRows"+act, ends[act])
			finish(a, "finishColumns"+act, ends[act])
		}
		gatherChunks(a)
		padRows(a, 1)
		padRows(a, 2)
	}
}

// last is what an epilogue does at the end.
type last struct {
	doc    string
	consts []float32
	f      func(m *arith, x VecVirtual) VecVirtual // nil for limits
}

var clip = last{doc: "clamp"}

// finishVectors is the number of vectors that an epilogue with limits takes at a time.
const finishVectors = 4

// finish generates the epilogue of a tile. The bias belongs to rows or to
// columns.
func finish(a isa, name string, end last) {
	columns, at := strings.HasPrefix(name, "finishColumns"), "r"
	if columns {
		at = "c"
	}
	name += "_" + a.name
	limits := ", lo, hi"
	if end.f != nil {
		limits = ""
	}
	begin(name, "func(dst *float32, ldd int, y *float32, ldy, rows, cols int, bias, res *float32, ldr int, lo, hi float32, back bool)",
		name+" is, bias and res being nil where there are none,",
		"",
		"\tfor r := range rows {",
		"\t\tfor c := range cols {",
		"\t\t\tdst[r*ldd+c] = "+end.doc+"(y[r*ldy+c]+bias["+at+"]+res[r*ldr+c]"+limits+")",
		"\t\t\tif back {",
		"\t\t\t\ty[r*ldy+c] = dst[r*ldd+c]",
		"\t\t\t}",
		"\t\t}",
		"\t}")
	m := &arith{isa: a, regs: map[uint32]VecVirtual{}}
	dst := Load(Param("dst"), GP64())
	y := Load(Param("y"), GP64())
	rows := Load(Param("rows"), GP64())
	bias := Load(Param("bias"), GP64())
	res := Load(Param("res"), GP64())
	ldd, ldy, ldr := GP64(), GP64(), GP64()
	for i, s := range []string{"ldd", "ldy", "ldr"} { // in one order, so that the same is written each time
		r := []Register{ldd, ldy, ldr}[i]
		_ = Load(Param(s), r)
		SHLQ(Imm(2), r)
	}
	back := Load(Param("back"), GP8())
	b := a.vec()
	if end.f == nil {
		lo, hi := a.vec(), a.vec()
		for i, s := range []string{"lo", "hi"} {
			v := []VecVirtual{lo, hi}[i]
			at, err := Param(s).Resolve()
			if err != nil {
				panic(err)
			}
			VBROADCASTSS(at.Addr, v)
		}
		end.f = func(m *arith, x VecVirtual) VecVirtual { return m.clamp(x, lo, hi) }
	}
	if a.lanes == 16 {
		m.hold(end.consts)
	}
	rest := GP64()
	whole := Load(Param("cols"), GP64()) // bytes of a row in whole vectors
	MOVQ(whole, rest)
	ANDQ(Imm(uint64(a.lanes-1)), rest)
	t := m.newTail(rest)
	SUBQ(rest, whole)
	SHLQ(Imm(2), whole)
	VXORPS(b, b, b)
	Label("row")
	if !columns {
		TESTQ(bias, bias)
		JZ(LabelRef("begin"))
		VBROADCASTSS(Mem{Base: bias}, b)
		add(4, bias)
		Label("begin")
	}
	c := GP64()
	XORQ(c, c)
	some := func(label string, n int, t *tail) {
		vs := make([]VecVirtual, n)
		for i := range vs {
			vs[i] = m.load(Mem{Base: y, Index: c, Scale: 1, Disp: a.bytes() * i}, t)
		}
		if columns {
			TESTQ(bias, bias)
			JZ(LabelRef(label + "_unbiased"))
			for i, v := range vs {
				VADDPS(m.load(Mem{Base: bias, Index: c, Scale: 1, Disp: a.bytes() * i}, t), v, v)
			}
			Label(label + "_unbiased")
		} else {
			for _, v := range vs {
				VADDPS(b, v, v)
			}
		}
		TESTQ(res, res)
		JZ(LabelRef(label + "_last"))
		for i, v := range vs {
			VADDPS(m.load(Mem{Base: res, Index: c, Scale: 1, Disp: a.bytes() * i}, t), v, v)
		}
		Label(label + "_last")
		for i, v := range vs {
			vs[i] = end.f(m, v)
			m.store(vs[i], Mem{Base: dst, Index: c, Scale: 1, Disp: a.bytes() * i}, t)
		}
		TESTB(back, back)
		JZ(LabelRef(label + "_stored"))
		for i, v := range vs {
			m.store(v, Mem{Base: y, Index: c, Scale: 1, Disp: a.bytes() * i}, t)
		}
		Label(label + "_stored")
	}
	many := GP64() // bytes of a row in groups of vectors
	MOVQ(whole, many)
	ANDQ(I32(int32(-a.bytes()*finishVectors)), many)
	Label("many")
	CMPQ(c, many)
	JGE(LabelRef("vector"))
	some("many", finishVectors, nil)
	add(finishVectors*a.bytes(), c)
	JMP(LabelRef("many"))
	Label("vector")
	CMPQ(c, whole)
	JGE(LabelRef("rest"))
	some("whole", 1, nil)
	add(a.bytes(), c)
	JMP(LabelRef("vector"))
	Label("rest")
	TESTQ(rest, rest)
	JZ(LabelRef("next"))
	some("part", 1, t)
	Label("next")
	TESTQ(res, res)
	JZ(LabelRef("down"))
	ADDQ(ldr, res)
	Label("down")
	ADDQ(ldd, dst)
	ADDQ(ldy, y)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// chunkVectors is the number of vectors of the longest chunk.
const chunkVectors = 4

// gatherChunks generates the loading of a panel: chunk by chunk down its rows,
// in a loop for each number of vectors, of which the last is under a mask or, as masked
// stores of AVX2 take many cycles on some processors, overlaps the one before it.
func gatherChunks(a isa) {
	name := "gather_" + a.name
	begin(name, "func(dst *float32, rows int, src *float32, offset *int, chunks *int, n int)",
		fmt.Sprintf("%s is, chunks holding n triples c of numbers, c.N being at most %d,", name, chunkVectors*a.lanes),
		"",
		"\tfor r := range rows {",
		"\t\tfor _, c := range chunks {",
		"\t\t\tcopy(dst[r*64+c.Dst:][:c.N], src[offset[r]+c.Src:])",
		"\t\t}",
		"\t}")
	m := &arith{isa: a}
	dst := Load(Param("dst"), GP64())
	rows := Load(Param("rows"), GP64())
	src := Load(Param("src"), GP64())
	offset := Load(Param("offset"), GP64())
	chunk := Load(Param("chunks"), GP64())
	n := Load(Param("n"), GP64())
	Label("chunk")
	to, from, last, r, o := GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(Mem{Base: chunk}, to)
	LEAQ(Mem{Base: dst, Index: to, Scale: 4}, to)
	MOVQ(Mem{Base: chunk, Disp: 8}, from)
	LEAQ(Mem{Base: src, Index: from, Scale: 4}, from)
	MOVQ(Mem{Base: chunk, Disp: 16}, last) // elements of the last vector
	XORQ(r, r)
	for v := 1; v <= chunkVectors; v++ {
		next := fmt.Sprintf("over%d", v)
		if v < chunkVectors {
			CMPQ(last, Imm(uint64(a.lanes)))
			JG(LabelRef(next))
		}
		// copy moves whole vectors and a last one, which ends where back says.
		copy := func(label string, whole int, t *tail, back Register) {
			Label(label)
			MOVQ(Mem{Base: offset, Index: r, Scale: 8}, o)
			LEAQ(Mem{Base: from, Index: o, Scale: 4}, o)
			at := func(base Register, i int) Mem {
				m := Mem{Base: base, Disp: a.bytes() * i}
				if i == whole && back != nil {
					m.Index, m.Scale, m.Disp = back, 4, m.Disp-a.bytes()
				}
				return m
			}
			mask := func(i int) *tail {
				if i == whole {
					return t
				}
				return nil
			}
			vs := make([]VecVirtual, whole+1)
			for i := range vs {
				vs[i] = m.load(at(o, i), mask(i))
			}
			for i := range vs {
				m.store(vs[i], at(to, i), mask(i))
			}
			add(rowBytes, to)
			INCQ(r)
			CMPQ(r, rows)
			JL(LabelRef(label))
			JMP(LabelRef("next"))
		}
		label := fmt.Sprintf("row%d", v)
		switch {
		case a.lanes == 16:
			copy(label, v-1, m.newTail(last), nil)
		case v > 1:
			copy(label, v-1, nil, last)
		default:
			CMPQ(last, Imm(uint64(a.lanes)))
			JL(LabelRef("short"))
			copy(label, 0, nil, nil)
			Label("short")
			t := m.newTail(last)
			copy("few", 0, t, nil)
		}
		if v < chunkVectors {
			Label(next)
			SUBQ(Imm(uint64(a.lanes)), last)
		}
	}
	Label("next")
	add(24, chunk)
	DECQ(n)
	JNZ(LabelRef("chunk"))
	end()
}

// padRows generates the copying of every step-th element of rows between zeros.
func padRows(a isa, step int) {
	name := fmt.Sprintf("padRows%d_%s", step, a.name)
	begin(name, "func(dst *float32, rows, left, n, right int, src *float32, lds int)",
		name+" is, rows following each other in dst,",
		"",
		"\tfor r := range rows {",
		"\t\tclear(dst[:left])",
		"\t\tfor i := range n {",
		fmt.Sprintf("\t\t\tdst[left+i] = src[r*lds+i*%d]", step),
		"\t\t}",
		"\t\tclear(dst[left+n:left+n+right])",
		"\t\tdst = dst[left+n+right:]",
		"\t}",
		"",
		fmt.Sprintf("left is at most %d.", a.lanes))
	m := &arith{isa: a}
	dst := Load(Param("dst"), GP64())
	rows := Load(Param("rows"), GP64())
	left := Load(Param("left"), GP64())
	n := Load(Param("n"), GP64())
	right := Load(Param("right"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	SHLQ(Imm(2), lds)
	zero := a.vec()
	VXORPS(zero, zero, zero)
	zeros := GP64() // elements of right in the last vector, whole vectors before it in more
	MOVQ(right, zeros)
	ANDQ(Imm(uint64(a.lanes-1)), zeros)
	before, after := m.newTail(left), m.newTail(zeros)
	// masked is the number of rows at the end that are stored under masks: above them a
	// vector may end beyond its place, as what it covers is written afterwards. Masked
	// stores of AVX2 take many cycles on some processors.
	masked := GP64()
	if a.lanes == 8 {
		short := GP64()
		MOVQ(U32(1), masked)
		LEAQ(Mem{Base: left, Index: right, Scale: 1}, short)
		ADDQ(n, short)
		CMPQ(short, Imm(8)) // elements of a row
		CMOVQLT(rows, masked)
	}
	rest := GP64()
	MOVQ(n, rest)
	ANDQ(Imm(uint64(a.lanes-1)), rest)
	t := m.newTail(rest)
	SHRQ(Imm(uint64(map[int]int{8: 3, 16: 4}[a.lanes])), n)
	// Pairs of vectors of which every other element is taken: the second holds
	// elements only where more than half a vector of results is left.
	var first, second *tail
	var even VecVirtual
	if step == 2 {
		low, high := GP64(), GP64()
		limit := GP64()
		MOVQ(U32(uint32(a.lanes)), limit)
		LEAQ(Mem{Base: rest, Index: rest, Scale: 1, Disp: -1}, low) // elements that are read
		TESTQ(rest, rest)
		CMOVQEQ(rest, low)
		MOVQ(low, high)
		SUBQ(limit, high)
		CMPQ(low, limit)
		CMOVQGT(limit, low)
		none := GP64()
		XORQ(none, none)
		TESTQ(high, high)
		CMOVQLT(none, high)
		first, second = m.newTail(low), m.newTail(high)
		if a.lanes == 16 {
			even = a.vec()
			at := GP64()
			LEAQ(evens(), at)
			VMOVDQU32(Mem{Base: at}, even)
		}
	}
	read := func(from Register, last bool) VecVirtual {
		if step == 1 {
			if last {
				return m.load(Mem{Base: from}, t)
			}
			return m.load(Mem{Base: from}, nil)
		}
		p, q := first, second
		if !last {
			p, q = nil, nil
		}
		x := m.load(Mem{Base: from}, p)
		y := m.load(Mem{Base: from, Disp: a.bytes()}, q)
		if a.lanes == 16 {
			r := a.vec()
			VMOVAPS(even, r)
			VPERMI2PS(y, x, r)
			return r
		}
		VSHUFPS(Imm(0x88), y, x, x)
		VPERMPD(Imm(0xd8), x, x)
		return x
	}
	Label("row")
	from, to, count := GP64(), GP64(), GP64()
	MOVQ(src, from)
	part := func(label string, v VecVirtual, at Register, t *tail) {
		if a.lanes == 16 {
			m.store(v, Mem{Base: at}, t)
			return
		}
		CMPQ(rows, masked)
		JLE(LabelRef(label + "_last"))
		m.store(v, Mem{Base: at}, nil)
		JMP(LabelRef(label + "_stored"))
		Label(label + "_last")
		m.store(v, Mem{Base: at}, t)
		Label(label + "_stored")
	}
	part("left", zero, dst, before)
	LEAQ(Mem{Base: dst, Index: left, Scale: 4}, to)
	MOVQ(n, count)
	TESTQ(count, count)
	JZ(LabelRef("rest"))
	Label("vector")
	m.store(read(from, false), Mem{Base: to}, nil)
	add(step*a.bytes(), from)
	add(a.bytes(), to)
	DECQ(count)
	JNZ(LabelRef("vector"))
	Label("rest")
	TESTQ(rest, rest)
	JZ(LabelRef("after"))
	part("part", read(from, true), to, t)
	LEAQ(Mem{Base: to, Index: rest, Scale: 4}, to)
	Label("after")
	MOVQ(right, count)
	SUBQ(Imm(uint64(a.lanes)), count)
	JL(LabelRef("zeros"))
	Label("zero")
	m.store(zero, Mem{Base: to}, nil)
	add(a.bytes(), to)
	SUBQ(Imm(uint64(a.lanes)), count)
	JGE(LabelRef("zero"))
	Label("zeros")
	part("right", zero, to, after)
	LEAQ(Mem{Base: to, Index: count, Scale: 4, Disp: a.bytes()}, dst)
	ADDQ(lds, src)
	DECQ(rows)
	JNZ(LabelRef("row"))
	end()
}

var evenTable Mem

// evens returns the numbers of every other element of two AVX-512 vectors.
func evens() Mem {
	if evenTable.Symbol.Name == "" {
		evenTable = GLOBL("evens", attr.RODATA|attr.NOPTR)
		for i := range 16 {
			DATA(4*i, U32(uint32(2*i)))
		}
	}
	return evenTable
}
