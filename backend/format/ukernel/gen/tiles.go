package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// tiles generates what loads panels and stores tiles of a product.
func tiles() {
	globals(nil)
	for _, a := range isas {
		finish(a, false)
		finish(a, true)
		gatherChunks(a)
	}
}

// finish generates the epilogue of a tile. The bias belongs to rows or to
// columns.
func finish(a isa, columns bool) {
	name, at := "finishRows_"+a.name, "r"
	if columns {
		name, at = "finishColumns_"+a.name, "c"
	}
	begin(name, "func(dst *float32, ldd int, y *float32, ldy, rows, cols int, bias, res *float32, ldr int, lo, hi float32)",
		name+" is, bias and res being nil where there are none,",
		"",
		"\tfor r := range rows {",
		"\t\tfor c := range cols {",
		"\t\t\tdst[r*ldd+c] = clamp(y[r*ldy+c]+bias["+at+"]+res[r*ldr+c], lo, hi)",
		"\t\t}",
		"\t}")
	m := &arith{isa: a}
	dst := Load(Param("dst"), GP64())
	y := Load(Param("y"), GP64())
	rows := Load(Param("rows"), GP64())
	bias := Load(Param("bias"), GP64())
	res := Load(Param("res"), GP64())
	ldd, ldy, ldr := GP64(), GP64(), GP64()
	for s, r := range map[string]Register{"ldd": ldd, "ldy": ldy, "ldr": ldr} {
		_ = Load(Param(s), r)
		SHLQ(Imm(2), r)
	}
	lo, hi, b := a.vec(), a.vec(), a.vec()
	for s, v := range map[string]VecVirtual{"lo": lo, "hi": hi} {
		at, err := Param(s).Resolve()
		if err != nil {
			panic(err)
		}
		VBROADCASTSS(at.Addr, v)
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
	one := func(label string, t *tail) {
		v := m.load(Mem{Base: y, Index: c, Scale: 1}, t)
		if columns {
			TESTQ(bias, bias)
			JZ(LabelRef(label + "_unbiased"))
			VADDPS(m.load(Mem{Base: bias, Index: c, Scale: 1}, t), v, v)
			Label(label + "_unbiased")
		} else {
			VADDPS(b, v, v)
		}
		TESTQ(res, res)
		JZ(LabelRef(label + "_last"))
		VADDPS(m.load(Mem{Base: res, Index: c, Scale: 1}, t), v, v)
		Label(label + "_last")
		m.store(m.clamp(v, lo, hi), Mem{Base: dst, Index: c, Scale: 1}, t)
	}
	Label("vector")
	CMPQ(c, whole)
	JGE(LabelRef("rest"))
	one("whole", nil)
	add(a.bytes(), c)
	JMP(LabelRef("vector"))
	Label("rest")
	TESTQ(rest, rest)
	JZ(LabelRef("next"))
	one("part", t)
	Label("next")
	TESTQ(res, res)
	JZ(LabelRef("down"))
	ADDQ(ldr, res)
	Label("down")
	ADDQ(ldd, dst)
	ADDQ(ldy, y)
	DECQ(rows)
	JNZ(LabelRef("row"))
	end()
}

// gatherChunks generates the loading of a panel.
func gatherChunks(a isa) {
	name := "gather_" + a.name
	begin(name, "func(dst *float32, rows int, src *float32, offset *int, chunks *int, n int)",
		name+" is, chunks holding n triples c of numbers, c.N being at most that of a vector,",
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
	to, from, count, r, o := GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(Mem{Base: chunk}, to)
	LEAQ(Mem{Base: dst, Index: to, Scale: 4}, to)
	MOVQ(Mem{Base: chunk, Disp: 8}, from)
	LEAQ(Mem{Base: src, Index: from, Scale: 4}, from)
	MOVQ(Mem{Base: chunk, Disp: 16}, count)
	XORQ(r, r)
	loop := func(label string, t *tail) {
		Label(label)
		MOVQ(Mem{Base: offset, Index: r, Scale: 8}, o)
		m.store(m.load(Mem{Base: from, Index: o, Scale: 4}, t), Mem{Base: to}, t)
		add(rowBytes, to)
		INCQ(r)
		CMPQ(r, rows)
		JL(LabelRef(label))
	}
	CMPQ(count, Imm(uint64(a.lanes)))
	JL(LabelRef("part"))
	loop("whole_row", nil)
	JMP(LabelRef("next"))
	Label("part")
	loop("part_row", m.newTail(count))
	Label("next")
	add(24, chunk)
	DECQ(n)
	JNZ(LabelRef("chunk"))
	end()
}
