package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// int8AVX2 generates the kernels of package ikernel for AVX2, and its products for
// AVX-VNNI.
//
// What 8 columns and 4 k, 32 multiply-adds, take in vector instructions of 256 bits,
// beside 4 FMAs of f32:
//
//   - AVX-VNNI: 1. Processors issue as many of it as of FMAs, so up to 4 times the
//     peak of f32.
//   - narrow, which wants weights of which neighbours 2i and 2i+1 add up to at most 128
//     in magnitude, so that 255 times both fits into 16 bits: 3, of which two
//     multiply. With three vector ports of which two multiply that is one cycle
//     against two, up to 2 times the peak of f32.
//   - wide, which takes any weights: 4 on words of 16 bits, 2 of them multiplying, and
//     for 4 rows another 1/2 to separate the bytes of the panel: 1.5 cycles, up to
//     1.33 times the peak of f32.
//
// BenchmarkGemm says what of that is reached. Where additions have no port of their own
// all of it is less.
func int8AVX2() {
	laneMasks()
	byteMasks = GLOBL("byteMasks", attr.RODATA|attr.NOPTR)
	for i := range 16 {
		v := U64(0)
		if i < 8 {
			v = 1<<64 - 1
		}
		DATA(8*i, v)
	}
	byteOrder = GLOBL("byteOrder", attr.RODATA|attr.NOPTR)
	for i := range 8 {
		DATA(4*i, U32(uint32(i/2+i%2*4)))
	}
	evenOrder = GLOBL("evenOrder", attr.RODATA|attr.NOPTR)
	for i := range 8 {
		DATA(4*i, U32(uint32(i%4*2+i/4)))
	}
	ones16 = GLOBL("ones16", attr.RODATA|attr.NOPTR)
	DATA(0, U32(0x00010001))
	lowBytes = GLOBL("lowBytes", attr.RODATA|attr.NOPTR)
	DATA(0, U32(0x00ff00ff))

	for rows := 1; rows <= narrowRows; rows++ {
		dotGemm(narrow, rows, true)
		wideGemm(rows, true)
		wideGemm(rows, false)
	}
	widen("s8")
	widen("u8")
	for rows := 1; rows <= vexRows; rows++ {
		dotGemm(vex, rows, true)
		dotGemm(vex, rows, false)
	}
	for v := 2; v <= intColumns/8; v += 2 {
		dotSpmm(narrow, v)
		dotSpmm(vex, v)
	}
	packAVX2()
	packTokensAVX2()
	for _, byColumn := range []bool{false, true} {
		for _, out := range []string{"f32", "u8"} {
			for _, res := range []string{"", "f32", "u8"} {
				finishAVX2(out, res, byColumn)
			}
		}
	}
	quantizeAVX2()
	dequantizeAVX2()
	splitAVX2()
	everySecondAVX2(16)
	everySecondAVX2(8)
	maxPoolAVX2(16)
	maxPoolAVX2(8)
	maxAVX2()
	depthwiseAVX2()
}

// Rows of tiles of 16 columns: with two rows of the panel, a weight and what else a
// step needs, all sums stay in 16 registers, and are enough for none to wait.
const (
	narrowRows = 4
	vexRows    = 6
)

var (
	byteMasks Mem // 64 bytes of ones, then 64 of zeros
	byteOrder Mem // of the double words of a register of bytes that packing has made
	evenOrder Mem // first those that are even, then the others
	ones16    Mem
	lowBytes  Mem
)

// dots says how a kernel multiplies four bytes of each column by four others and adds
// the products to sums of 32 bits. Its registers are fixed, since instructions that
// Go's assembler does not know are written as bytes.
type dots struct {
	isa, infix string
	dot        func(sum, u8, s8 int)
}

var (
	narrow = dots{isa: "avx2", infix: "narrow_", dot: func(sum, u8, s8 int) {
		VPMADDUBSW(ymm(s8), ymm(u8), ymm(dotTmp))
		VPMADDWD(ymm(dotOnes), ymm(dotTmp), ymm(dotTmp))
		VPADDD(ymm(dotTmp), ymm(sum), ymm(sum))
	}}
	// Go's assembler, and so avo, has VPDPBUSD in its EVEX form only, which processors
	// without AVX-512 do not have: Intel, "Intel Architecture Instruction Set
	// Extensions", VPDPBUSD, VEX.256.66.0F38.W0 50 /r.
	vex = dots{isa: "avxvnni", dot: func(sum, u8, s8 int) {
		b := byte(0xe2)
		if sum >= 8 {
			b &^= 0x80
		}
		if s8 >= 8 {
			b &^= 0x20
		}
		code(0xc4, b, byte(15-u8)<<3|5, 0x50, 0xc0|byte(sum&7)<<3|byte(s8&7))
	}}
)

// Registers beside the sums, which begin with the first.
const (
	dotPanel = 12 // two
	dotRow   = 14 // the broadcast operand
	dotTmp   = 15
	dotOnes  = 11
)

func ymm(i int) VecPhysical {
	return []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}[i]
}

// begin prepares the constants of a kernel.
func (d dots) begin() {
	if d.isa == narrow.isa {
		VPBROADCASTD(ones16, ymm(dotOnes))
	}
}

// contract says what weights a kernel takes.
func (d dots) contract(pair string) []string {
	if d.isa != narrow.isa {
		return nil
	}
	return []string{"", fmt.Sprintf("The magnitudes of %s add up to at most 128.", pair)}
}

func clearYMM(i int) { VPXOR(ymm(i), ymm(i), ymm(i)) }

// gemmDoc is the documentation of a GEMM tile.
func gemmDoc(name string, rows int, sum string, more ...string) []string {
	return append([]string{
		fmt.Sprintf("%s computes %d rows of a product with slices of 16 columns of a panel:", name, rows),
		"",
		fmt.Sprintf("\tfor r := range %d {", rows),
		"\t\tfor j := range 16 * slices {",
		"\t\t\tvar s int32",
		"\t\t\tfor i := range 4 * k4 {",
		"\t\t\t\ts += " + sum,
		"\t\t\t}",
		"\t\t\tc[r*ldc+j] = s",
		"\t\t}",
		"\t}",
	}, more...)
}

// rowGroup addresses up to 6 rows from p on, ld bytes apart.
type rowGroup struct {
	p, p3, ld Register
	rows      int
}

// at points the rows to base.
func (t *rowGroup) at(base Register) {
	if t.p == nil {
		t.p = GP64()
		if t.rows > 3 {
			t.p3 = GP64()
		}
	}
	MOVQ(base, t.p)
	if t.rows > 3 {
		LEAQ(Mem{Base: t.p, Index: t.ld, Scale: 2}, t.p3)
		ADDQ(t.ld, t.p3)
	}
}

func (t *rowGroup) mem(r, disp int) Mem {
	m := Mem{Base: t.p, Disp: disp}
	if r >= 3 {
		m.Base, r = t.p3, r-3
	}
	if r > 0 {
		m.Index, m.Scale = t.ld, uint8(r)
	}
	return m
}

func (t *rowGroup) advance(n int) {
	add(n, t.p)
	if t.rows > 3 {
		add(n, t.p3)
	}
}

// steps generates a loop over n of k, unroll at a time.
func steps(label string, k Register, unroll int, step func(u int), advance func(n int)) {
	SUBQ(Imm(uint64(unroll)), k)
	JL(LabelRef(label + "tail"))
	Label(label + "loop")
	for u := range unroll {
		step(u)
	}
	advance(unroll)
	SUBQ(Imm(uint64(unroll)), k)
	JGE(LabelRef(label + "loop"))
	Label(label + "tail")
	add(unroll, k)
	JZ(LabelRef(label + "done"))
	Label(label + "one")
	step(0)
	advance(1)
	DECQ(k)
	JNZ(LabelRef(label + "one"))
	Label(label + "done")
}

// dotGemm generates a tile of rows rows. The panel is u8 and the rows i8 where the
// weight is on the left, else the other way round.
func dotGemm(d dots, rows int, weightLeft bool) {
	types, left, right := "s8u8", "int8", "uint8"
	if !weightLeft {
		types, left, right = "u8s8", "uint8", "int8"
	}
	name := fmt.Sprintf("gemm_%s_%s%dx16_%s", types, d.infix, rows, d.isa)
	begin(name, fmt.Sprintf("func(k4 int, a *%s, lda int, b *%s, slices int, c *int32, ldc int)", left, right),
		gemmDoc(name, rows, fmt.Sprintf("int32(a[r*lda+i]) * int32(b[i/4*%d+4*j+i%%4])", groupBytes), d.contract("a[r*lda+2*i] and a[r*lda+2*i+1]")...)...)
	k4 := Load(Param("k4"), GP64())
	a := Load(Param("a"), GP64())
	t := rowGroup{ld: Load(Param("lda"), GP64()), rows: rows}
	b := Load(Param("b"), GP64())
	slices := Load(Param("slices"), GP64())
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	SHLQ(Imm(2), ldc)
	d.begin()
	k, x := GP64(), GP64()
	Label("slice")
	for i := range 2 * rows {
		clearYMM(i)
	}
	t.at(a)
	MOVQ(b, x)
	MOVQ(k4, k)
	steps("", k, 2, func(u int) {
		for i := range 2 {
			VMOVDQU(Mem{Base: x, Disp: groupBytes*u + 32*i}, ymm(dotPanel+i))
		}
		for r := range rows {
			VPBROADCASTD(t.mem(r, 4*u), ymm(dotRow))
			for i := range 2 {
				if weightLeft {
					d.dot(2*r+i, dotPanel+i, dotRow)
				} else {
					d.dot(2*r+i, dotRow, dotPanel+i)
				}
			}
		}
	}, func(n int) {
		t.advance(4 * n)
		add(groupBytes*n, x)
	})
	MOVQ(c, x)
	for r := range rows {
		for i := range 2 {
			VMOVDQU(ymm(2*r+i), Mem{Base: x, Disp: 32 * i})
		}
		if r < rows-1 {
			ADDQ(ldc, x)
		}
	}
	add(64, b)
	add(64, c)
	DECQ(slices)
	JNZ(LabelRef("slice"))
	end()
}

// wideGemm generates a tile of rows rows that widen has made, of any values.
func wideGemm(rows int, weightLeft bool) {
	types, right := "s8u8", "uint8"
	if !weightLeft {
		types, right = "u8s8", "int8"
	}
	name := fmt.Sprintf("gemm_%s_%dx16_avx2", types, rows)
	begin(name, fmt.Sprintf("func(k4 int, a *int16, lda int, b *%s, slices int, c *int32, ldc int, acc bool)", right),
		gemmDoc(name, rows, fmt.Sprintf("int32(a[r*lda+i]) * int32(b[i/4*%d+4*j+[4]int{0, 2, 1, 3}[i%%4]])", groupBytes), "", "With acc the sums are added to what c holds.")...)
	k4 := Load(Param("k4"), GP64())
	a := Load(Param("a"), GP64())
	t := rowGroup{ld: Load(Param("lda"), GP64()), rows: rows}
	SHLQ(Imm(1), t.ld)
	b := Load(Param("b"), GP64())
	slices := Load(Param("slices"), GP64())
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	SHLQ(Imm(2), ldc)
	var low VecVirtual
	if weightLeft {
		low = YMM()
		VPBROADCASTD(lowBytes, low)
	}
	acc := make([]VecVirtual, 2*rows)
	for i := range acc {
		acc[i] = YMM()
	}
	k, x := GP64(), GP64()
	Label("slice")
	for _, s := range acc {
		VPXOR(s, s, s)
	}
	t.at(a)
	MOVQ(b, x)
	MOVQ(k4, k)
	steps("", k, 2, func(u int) {
		var xs [2][2]VecVirtual // by even or odd, and vector
		for i := range 2 {
			even, odd := YMM(), YMM()
			VMOVDQU(Mem{Base: x, Disp: groupBytes*u + 32*i}, odd)
			if weightLeft {
				VPAND(low, odd, even)
				VPSRLW(Imm(8), odd, odd)
			} else {
				VPSLLW(Imm(8), odd, even)
				VPSRAW(Imm(8), even, even)
				VPSRAW(Imm(8), odd, odd)
			}
			xs[0][i], xs[1][i] = even, odd
		}
		for r := range rows {
			for parity := range 2 {
				w := YMM()
				VPBROADCASTD(t.mem(r, 8*u+4*parity), w)
				for i := range 2 {
					p := YMM()
					VPMADDWD(w, xs[parity][i], p)
					VPADDD(p, acc[2*r+i], acc[2*r+i])
				}
			}
		}
	}, func(n int) {
		t.advance(8 * n)
		add(groupBytes*n, x)
	})
	flag := Load(Param("acc"), GP8())
	MOVQ(c, x)
	for _, more := range []bool{false, true} {
		if !more {
			TESTB(flag, flag)
			JNZ(LabelRef("more"))
		} else {
			Label("more")
		}
		for r := range rows {
			for i := range 2 {
				m := Mem{Base: x, Disp: 32 * i}
				if more {
					VPADDD(m, acc[2*r+i], acc[2*r+i])
				}
				VMOVDQU(acc[2*r+i], m)
			}
			if r < rows-1 {
				ADDQ(ldc, x)
			}
		}
		if !more {
			JMP(LabelRef("next"))
		}
	}
	Label("next")
	add(64, b)
	add(64, c)
	DECQ(slices)
	JNZ(LabelRef("slice"))
	end()
}

// widen generates the widening of bytes to words of 16 bits.
func widen(typ string) {
	name := "widen_" + typ + "_avx2"
	goType := map[string]string{"s8": "int8", "u8": "uint8"}[typ]
	begin(name, fmt.Sprintf("func(k4 int, y *int16, x *%s)", goType),
		name+" widens groups of four bytes, those that are even first; y is written up to a",
		"multiple of 32:",
		"",
		"\tfor i := range 4 * k4 {",
		"\t\ty[i] = int16(x[i/4*4+[4]int{0, 2, 1, 3}[i%4]])",
		"\t}")
	k := Load(Param("k4"), GP64())
	y := Load(Param("y"), GP64())
	x := Load(Param("x"), GP64())
	m := &arith{isa: isas[0]}
	low := YMM()
	VPBROADCASTD(lowBytes, low)
	some := func(t *tail) {
		odd, even := m.load(Mem{Base: x}, t), YMM()
		if typ == "u8" {
			VPAND(low, odd, even)
			VPSRLW(Imm(8), odd, odd)
		} else {
			VPSLLW(Imm(8), odd, even)
			VPSRAW(Imm(8), even, even)
			VPSRAW(Imm(8), odd, odd)
		}
		a, b, c := YMM(), YMM(), YMM()
		VPUNPCKLDQ(odd, even, a)
		VPUNPCKHDQ(odd, even, b)
		VPERM2I128(Imm(0x20), b, a, c)
		VPERM2I128(Imm(0x31), b, a, a)
		VMOVDQU(c, Mem{Base: y})
		VMOVDQU(a, Mem{Base: y, Disp: 32})
	}
	SUBQ(Imm(8), k)
	JL(LabelRef("tail"))
	Label("loop")
	some(nil)
	add(32, x)
	add(64, y)
	SUBQ(Imm(8), k)
	JGE(LabelRef("loop"))
	Label("tail")
	add(8, k)
	JZ(LabelRef("end"))
	some(m.newTail(k))
	Label("end")
	end()
}

// dotSpmm generates the product of rows of 1x4 groups with v vectors of columns of a
// panel.
func dotSpmm(d dots, v int) {
	name := fmt.Sprintf("spmm_s8u8_%s1x4_%d_%s", d.infix, 8*v, d.isa)
	doc := []string{
		fmt.Sprintf("%s multiplies rows of 1x4 groups by a panel; index and value begin with the first row's:", name),
		"",
		"\tfor r := range rows {",
		fmt.Sprintf("\t\tfor j := range %d {", 8*v),
		"\t\t\tvar s int32",
		"\t\t\tif acc {",
		"\t\t\t\ts = c[r*ldc+j]",
		"\t\t\t}",
		"\t\t\tfor g := ptr[r] - ptr[0]; g < ptr[r+1]-ptr[0]; g++ {",
		"\t\t\t\tfor i := range 4 {",
		fmt.Sprintf("\t\t\t\t\ts += int32(value[4*g+i]) * int32(b[%d*index[g]+4*j+i])", groupBytes),
		"\t\t\t\t}",
		"\t\t\t}",
		"\t\t\tc[r*ldc+j] = s",
		"\t\t}",
		"\t}",
	}
	begin(name, "func(rows int, ptr *uint32, index *uint16, value *int8, b *uint8, c *int32, ldc int, acc bool)",
		append(doc, d.contract("value[2*i] and value[2*i+1]")...)...)
	rows := Load(Param("rows"), GP64())
	ptr := Load(Param("ptr"), GP64())
	index := Load(Param("index"), GP64())
	value := Load(Param("value"), GP64())
	b := Load(Param("b"), GP64())
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	flag := Load(Param("acc"), GP8())
	SHLQ(Imm(2), ldc)
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	d.begin()
	// With VNNI a sum is complete after five cycles: where a step has few sums, steps
	// take turns on sets of them.
	sets := 1
	for d.isa == vex.isa && 2*sets*v <= 10 {
		sets *= 2
	}
	from, n := GP64(), GP64()
	MOVL(Mem{Base: ptr}, from.As32())

	Label("row")
	add(4, ptr)
	MOVL(Mem{Base: ptr}, n.As32())
	next := GP64()
	MOVQ(n, next)
	SUBQ(from, n)
	MOVQ(next, from)
	for i := range sets * v {
		clearYMM(i)
	}
	TESTB(flag, flag)
	JZ(LabelRef("begin"))
	TESTQ(n, n)
	JZ(LabelRef("next"))
	for i := range v {
		VMOVDQU(Mem{Base: c, Disp: 32 * i}, ymm(i))
	}
	Label("begin")
	steps("", n, 2, func(u int) {
		at := GP64()
		MOVWLZX(Mem{Base: index, Disp: 2 * u}, at.As32())
		SHLQ(Imm(8), at)
		VPBROADCASTD(Mem{Base: value, Disp: 4 * u}, ymm(dotRow))
		for i := range v {
			VMOVDQU(Mem{Base: b, Index: at, Scale: 1, Disp: 32 * i}, ymm(dotPanel))
			d.dot(u%sets*v+i, dotPanel, dotRow)
		}
	}, func(n int) {
		add(2*n, index)
		add(4*n, value)
	})
	for n := sets; n > 1; n /= 2 {
		for i := range n / 2 * v {
			VPADDD(ymm(n/2*v+i), ymm(i), ymm(i))
		}
	}
	for i := range v {
		VMOVDQU(ymm(i), Mem{Base: c, Disp: 32 * i})
	}
	Label("next")
	ADDQ(ldc, c)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	end()
}

// packAVX2 generates the interleaving of four rows of bytes into a panel.
func packAVX2() {
	const name = "pack_4x64_avx2"
	begin(name, "func(groups int, dst, src *uint8, offset *int32, cols int)",
		name+" interleaves groups of four rows, of which row i begins at src[offset[i]]; 64 bytes",
		"of each are read:",
		"",
		"\tfor i := range 4 * groups {",
		fmt.Sprintf("\t\tfor j := range %d {", intColumns),
		"\t\t\tif j < cols {",
		fmt.Sprintf("\t\t\t\tdst[i/4*%d+4*j+i%%4] = src[int(offset[i])+j]", groupBytes),
		"\t\t\t} else {",
		fmt.Sprintf("\t\t\t\tdst[i/4*%d+4*j+i%%4] = 0", groupBytes),
		"\t\t\t}",
		"\t\t}",
		"\t}")
	groups := Load(Param("groups"), GP64())
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	offset := Load(Param("offset"), GP64())
	cols := Load(Param("cols"), GP64())
	TESTQ(groups, groups)
	JZ(LabelRef("end"))
	table, order := GP64(), YMM()
	LEAQ(byteMasks.Offset(64), table)
	SUBQ(cols, table)
	VMOVDQU(evenOrder, order)
	masks := [2]VecVirtual{YMM(), YMM()}
	for i := range masks {
		VMOVDQU(Mem{Base: table, Disp: 32 * i}, masks[i])
	}
	Label("loop")
	var at [4]Register
	for i := range at {
		at[i] = GP64()
		MOVLQSX(Mem{Base: offset, Disp: 4 * i}, at[i].(GPVirtual))
	}
	for half, mask := range masks {
		// Unpacking works on each 16 bytes by themselves: those of lane l are the columns
		// from 8q+4l on for q = 0 to 3.
		var r [4]VecVirtual
		for i := range r {
			r[i] = YMM()
			VPAND(Mem{Base: src, Index: at[i], Scale: 1, Disp: 32 * half}, mask, r[i])
			VPERMD(r[i], order, r[i])
		}
		pair := func(op func(...Op), a, b VecVirtual) VecVirtual {
			d := YMM()
			op(b, a, d)
			return d
		}
		lo01, hi01 := pair(unpackLowBytes, r[0], r[1]), pair(unpackHighBytes, r[0], r[1])
		lo23, hi23 := pair(unpackLowBytes, r[2], r[3]), pair(unpackHighBytes, r[2], r[3])
		for q, u := range []VecVirtual{
			pair(unpackLowWords, lo01, lo23), pair(unpackHighWords, lo01, lo23),
			pair(unpackLowWords, hi01, hi23), pair(unpackHighWords, hi01, hi23),
		} {
			VMOVDQU(u, Mem{Base: dst, Disp: 128*half + 32*q})
		}
	}
	add(16, offset)
	add(groupBytes, dst)
	DECQ(groups)
	JNZ(LabelRef("loop"))
	Label("end")
	end()
}

func unpackLowBytes(ops ...Op)  { VPUNPCKLBW(ops...) }
func unpackHighBytes(ops ...Op) { VPUNPCKHBW(ops...) }
func unpackLowWords(ops ...Op)  { VPUNPCKLWD(ops...) }
func unpackHighWords(ops ...Op) { VPUNPCKHWD(ops...) }

// packTokensAVX2 generates the transposition of 8 rows of bytes, in groups of four,
// into a panel.
func packTokensAVX2() {
	const name = "packTokens_8x32_avx2"
	begin(name, "func(groups int, dst, src *uint8, lds int)",
		name+" writes 8 rows of bytes, lds apart, as 8 columns of groups panel rows:",
		"",
		"\tfor j := range 8 {",
		"\t\tfor i := range 4 * groups {",
		fmt.Sprintf("\t\t\tdst[i/4*%d+4*j+i%%4] = src[j*lds+i]", groupBytes),
		"\t\t}",
		"\t}")
	groups := Load(Param("groups"), GP64())
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	rows := rowGroup{ld: Load(Param("lds"), GP64()), rows: 6}
	m := &arith{isa: isas[0]}
	rows.at(src)
	last := GP64()
	some := func(t *tail) {
		LEAQ(Mem{Base: rows.p3, Index: rows.ld, Scale: 2}, last)
		ADDQ(rows.ld, last)
		r := make([]VecVirtual, 8)
		for i := range r {
			at := Mem{}
			switch {
			case i < 6:
				at = rows.mem(i, 0)
			case i == 6:
				at = Mem{Base: last}
			default:
				at = Mem{Base: last, Index: rows.ld, Scale: 1}
			}
			r[i] = m.load(at, t)
		}
		// 4x4 within lanes, then the lanes.
		q := make([]VecVirtual, 8) // q[4*b+c]: rows 4b to 4b+3 of the groups c and 4+c
		for b := range 2 {
			var w [4]VecVirtual
			for i := range w {
				w[i] = YMM()
			}
			VPUNPCKLDQ(r[4*b+1], r[4*b], w[0])
			VPUNPCKHDQ(r[4*b+1], r[4*b], w[1])
			VPUNPCKLDQ(r[4*b+3], r[4*b+2], w[2])
			VPUNPCKHDQ(r[4*b+3], r[4*b+2], w[3])
			for c := range 4 {
				q[4*b+c] = YMM()
			}
			VPUNPCKLQDQ(w[2], w[0], q[4*b])
			VPUNPCKHQDQ(w[2], w[0], q[4*b+1])
			VPUNPCKLQDQ(w[3], w[1], q[4*b+2])
			VPUNPCKHQDQ(w[3], w[1], q[4*b+3])
		}
		for g := range 8 {
			if t != nil && g > 0 {
				CMPQ(groups, Imm(uint64(g)))
				JLE(LabelRef("end"))
			}
			d := YMM()
			VPERM2I128(Imm(uint64(0x20+g/4*0x11)), q[4+g%4], q[g%4], d)
			VMOVDQU(d, Mem{Base: dst, Disp: groupBytes * g})
		}
	}
	SUBQ(Imm(8), groups)
	JL(LabelRef("tail"))
	Label("loop")
	some(nil)
	rows.advance(32)
	add(8*groupBytes, dst)
	SUBQ(Imm(8), groups)
	JGE(LabelRef("loop"))
	Label("tail")
	add(8, groups)
	JZ(LabelRef("end"))
	some(m.newTail(groups))
	Label("end")
	end()
}

// bytesOf adds zero, of 16 bits, to vectors of 32 bits and narrows the sums to bytes,
// the nearest where they have none; of one vector the result is in the first 8 bytes.
func bytesOf(v []VecVirtual, zero VecVirtual) VecVirtual {
	a, d := YMM(), YMM()
	VPACKSSDW(v[min(1, len(v)-1)], v[0], a)
	VPADDSW(zero, a, a)
	b := a
	if len(v) == 4 {
		b = YMM()
		VPACKSSDW(v[3], v[2], b)
		VPADDSW(zero, b, b)
	}
	VPACKUSWB(b, a, d)
	order := YMM()
	VMOVDQU(byteOrder, order)
	VPERMD(d, order, d)
	return d
}

// fewBytes loads n bytes, 1 to 7, into the low ones of v.
func fewBytes(label string, n, base, j Register, v VecVirtual) {
	value, part, p := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: base, Index: j, Scale: 1}, p)
	ADDQ(n, p)
	XORQ(value, value)
	for _, size := range []int{1, 2, 4} {
		next := fmt.Sprint(label, size)
		TESTQ(I32(int32(size)), n)
		JZ(LabelRef(next))
		SUBQ(Imm(uint64(size)), p)
		switch size {
		case 1:
			MOVBQZX(Mem{Base: p}, value)
		case 2:
			MOVWQZX(Mem{Base: p}, part)
			SHLQ(Imm(16), value)
			ORQ(part, value)
		case 4:
			MOVL(Mem{Base: p}, part.(GPVirtual).As32())
			SHLQ(Imm(32), value)
			ORQ(part, value)
		}
		Label(next)
	}
	VMOVQ(value, v.AsX())
}

// storeFew stores the n low bytes of v, 1 to 7.
func storeFew(label string, n, base, j Register, v VecVirtual) {
	value, p := GP64(), GP64()
	LEAQ(Mem{Base: base, Index: j, Scale: 1}, p)
	VMOVQ(v.AsX(), value)
	for _, size := range []int{4, 2, 1} {
		next := fmt.Sprint(label, size)
		TESTQ(I32(int32(size)), n)
		JZ(LabelRef(next))
		switch size {
		case 4:
			MOVL(value.As32(), Mem{Base: p})
		case 2:
			MOVW(value.As16(), Mem{Base: p})
		case 1:
			MOVB(value.As8(), Mem{Base: p})
		}
		if size > 1 {
			SHRQ(Imm(uint64(8*size)), value)
			ADDQ(Imm(uint64(size)), p)
		}
		Label(next)
	}
}

// finishAVX2 generates the epilogue of integer sums as intFinish does.
func finishAVX2(out, res string, byColumn bool) {
	name, which := "finish", "r"
	if byColumn {
		name, which = "finishColumns", "j"
	}
	name += "_" + out
	if res != "" {
		name += "_" + res
	}
	name += "_avx2"
	goType := map[string]string{"f32": "float32", "u8": "uint8", "": "uint8"}
	begin(name, fmt.Sprintf("func(rows, n int, c *int32, ldc int, sum *int32, scale, bias *float32, y *%s, res *%s, ldy int, p *float32)", goType[out], goType[res]),
		name+" finishes rows of n sums:",
		"",
		"\tfor r := range rows {",
		"\t\tfor j := range n {",
		fmt.Sprintf("\t\t\tv := float32(c[r*ldc+j]+sum[%[1]s])*scale[%[1]s] + bias[%[1]s]", which),
		map[string]string{"": "", "f32": "\t\t\tv += res[r*ldy+j]", "u8": "\t\t\tv += float32(res[r*ldy+j]) * p[4]"}[res],
		"\t\t\tv = min(max(v, p[0]), p[1])",
		map[string]string{"f32": "\t\t\ty[r*ldy+j] = v", "u8": "\t\t\ty[r*ldy+j] = uint8(round(v*p[2]) + p[3])"}[out],
		"\t\t}",
		"\t}")
	m := &arith{isa: isas[0]}
	p := Load(Param("p"), GP64())
	param := func(i int) VecVirtual {
		v := YMM()
		VBROADCASTSS(Mem{Base: p, Disp: 4 * i}, v)
		return v
	}
	lo, hi := param(0), param(1)
	var inv, zero, rs VecVirtual
	if res == "u8" {
		rs = param(4)
	}
	if out == "u8" {
		// v*inv is what is computed; the limit below applies to the bytes.
		inv, zero = param(2), param(3)
		VCVTPS2DQ(zero, zero)
		VPACKSSDW(zero, zero, zero)
		VMULPS(inv, lo, lo)
		VMULPS(inv, hi, hi)
		VCVTPS2DQ(lo, lo)
		lo = bytesOf([]VecVirtual{lo, lo, lo, lo}, zero)
		if res == "u8" {
			VMULPS(inv, rs, rs)
		}
	}
	rows := Load(Param("rows"), GP64())
	n := Load(Param("n"), GP64())
	c := Load(Param("c"), GP64())
	sum := Load(Param("sum"), GP64())
	scale := Load(Param("scale"), GP64())
	bias := Load(Param("bias"), GP64())
	y := Load(Param("y"), GP64())
	var r Register
	if res != "" {
		r = Load(Param("res"), GP64())
	}
	TESTQ(rows, rows)
	JZ(LabelRef("end"))

	Label("row")
	var rowSum, rowScale, rowBias VecVirtual
	if !byColumn {
		rowSum, rowScale, rowBias = YMM(), YMM(), YMM()
		VPBROADCASTD(Mem{Base: sum}, rowSum)
		VBROADCASTSS(Mem{Base: scale}, rowScale)
		VBROADCASTSS(Mem{Base: bias}, rowBias)
		add(4, sum)
		add(4, scale)
		add(4, bias)
		if out == "u8" {
			VMULPS(inv, rowScale, rowScale)
			VMULPS(inv, rowBias, rowBias)
		}
	}
	j, left := GP64(), GP64()
	XORQ(j, j)
	MOVQ(n, left)
	// sums returns the finished f32 of the vector that is v vectors behind column j.
	sums := func(v int, t *tail) VecVirtual {
		load := func(base Register) VecVirtual { return m.load(Mem{Base: base, Index: j, Scale: 4, Disp: 32 * v}, t) }
		x := load(c)
		s, f, b := rowSum, rowScale, rowBias
		if byColumn {
			VPADDD(load(sum), x, x)
			f = load(scale)
			if out == "u8" {
				VMULPS(inv, f, f)
			}
		} else {
			VPADDD(s, x, x)
		}
		VCVTDQ2PS(x, x)
		if byColumn && out == "f32" {
			b = load(bias)
		}
		switch {
		case out == "f32": // with the two roundings of ONNX's operators
			VMULPS(f, x, x)
			VADDPS(b, x, x)
		case byColumn:
			VMULPS(f, x, x)
			VFMADD231PS(load(bias), inv, x)
		default:
			VFMADD213PS(b, f, x)
		}
		switch res {
		case "f32":
			if out == "u8" {
				VFMADD231PS(load(r), inv, x)
			} else {
				VADDPS(load(r), x, x)
			}
		case "u8":
			u := YMM()
			if t != nil {
				fewBytes("res", left, r, j, u)
				VPMOVZXBD(u.AsX(), u)
			} else {
				VPMOVZXBD(Mem{Base: r, Index: j, Scale: 1, Disp: 8 * v}, u)
			}
			VCVTDQ2PS(u, u)
			VFMADD231PS(u, rs, x)
		}
		return x
	}
	several := 4
	if out == "f32" {
		several = 2
	}
	some := func(vectors int, t *tail) {
		if out == "f32" {
			for i := range vectors {
				v := sums(i, t)
				VMAXPS(v, lo, v) // a NaN in v stays
				VMINPS(v, hi, v)
				m.store(v, Mem{Base: y, Index: j, Scale: 4, Disp: 32 * i}, t)
			}
			return
		}
		v := make([]VecVirtual, vectors)
		for i := range v {
			v[i] = sums(i, t)
			VMINPS(hi, v[i], v[i])
			VCVTPS2DQ(v[i], v[i])
		}
		b := bytesOf(v, zero)
		VPMAXUB(lo, b, b)
		d := Mem{Base: y, Index: j, Scale: 1}
		switch {
		case t != nil:
			storeFew("few", left, y, j, b)
		case vectors == 1:
			VMOVQ(b.AsX(), d)
		default:
			VMOVDQU(b, d)
		}
	}
	for _, vectors := range []int{several, 1} {
		loop, over := fmt.Sprint("loop", vectors), fmt.Sprint("over", vectors)
		SUBQ(Imm(uint64(8*vectors)), left)
		JL(LabelRef(over))
		Label(loop)
		some(vectors, nil)
		add(8*vectors, j)
		SUBQ(Imm(uint64(8*vectors)), left)
		JGE(LabelRef(loop))
		Label(over)
		add(8*vectors, left)
	}
	JZ(LabelRef("next"))
	some(1, m.newTail(left))
	Label("next")
	ld := GP64()
	Load(Param("ldc"), ld)
	LEAQ(Mem{Base: c, Index: ld, Scale: 4}, c)
	Load(Param("ldy"), ld)
	advance := func(base Register, typ string) {
		if typ == "f32" {
			LEAQ(Mem{Base: base, Index: ld, Scale: 4}, base)
		} else {
			ADDQ(ld, base)
		}
	}
	advance(y, out)
	if res != "" {
		advance(r, res)
	}
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	end()
}

// overlapped generates a loop over n elements, size at a time and n at least size; the
// last overlap those before, so what is done to an element twice must be as if done
// once.
func overlapped(label string, n Register, size int, some func(j Register)) {
	j, last := GP64(), GP64()
	LEAQ(Mem{Base: n, Disp: -size}, last)
	XORQ(j, j)
	JMP(LabelRef(label + "test"))
	Label(label + "loop")
	some(j)
	add(size, j)
	Label(label + "test")
	CMPQ(j, last)
	JL(LabelRef(label + "loop"))
	MOVQ(last, j)
	some(j)
}

func quantizeAVX2() {
	const name = "quantize_avx2"
	begin(name, "func(n int, y *uint8, x *float32, p *float32)",
		name+" quantises n elements, at least 8:",
		"",
		"\tfor i := range n {",
		"\t\ty[i] = uint8(round(min(max(x[i], p[0]), p[1])/p[5]) + p[3])",
		"\t}")
	n := Load(Param("n"), GP64())
	y := Load(Param("y"), GP64())
	x := Load(Param("x"), GP64())
	p := Load(Param("p"), GP64())
	var c [4]VecVirtual // lo, hi, inv, zero
	for i := range c {
		c[i] = YMM()
		VBROADCASTSS(Mem{Base: p, Disp: 4 * i}, c[i])
	}
	scale := YMM()
	VBROADCASTSS(Mem{Base: p, Disp: 20}, scale)
	VCVTPS2DQ(c[3], c[3])
	VPACKSSDW(c[3], c[3], c[3])
	vectors := func(j Register, count int) VecVirtual {
		v := make([]VecVirtual, count)
		for i := range v {
			v[i] = YMM()
			VMOVUPS(Mem{Base: x, Index: j, Scale: 4, Disp: 32 * i}, v[i])
			VMAXPS(c[0], v[i], v[i])
			VMINPS(c[1], v[i], v[i])
			v[i] = divided(v[i], scale, c[2], YMM())
			VCVTPS2DQ(v[i], v[i])
		}
		return bytesOf(v, c[3])
	}
	CMPQ(n, Imm(32))
	JL(LabelRef("few"))
	overlapped("many", n, 32, func(j Register) { VMOVDQU(vectors(j, 4), Mem{Base: y, Index: j, Scale: 1}) })
	JMP(LabelRef("end"))
	Label("few")
	overlapped("few", n, 8, func(j Register) { VMOVQ(vectors(j, 1).AsX(), Mem{Base: y, Index: j, Scale: 1}) })
	Label("end")
	end()
}

func dequantizeAVX2() {
	const name = "dequantize_avx2"
	begin(name, "func(n int, y *float32, x *uint8, p *float32)",
		name+" dequantises n elements, at least 8:",
		"",
		"\tfor i := range n {",
		"\t\ty[i] = (float32(x[i]) - p[1]) * p[0]",
		"\t}")
	n := Load(Param("n"), GP64())
	y := Load(Param("y"), GP64())
	x := Load(Param("x"), GP64())
	p := Load(Param("p"), GP64())
	scale, zero := YMM(), YMM()
	VBROADCASTSS(Mem{Base: p}, scale)
	VBROADCASTSS(Mem{Base: p, Disp: 4}, zero)
	overlapped("", n, 8, func(j Register) {
		v := YMM()
		VPMOVZXBD(Mem{Base: x, Index: j, Scale: 1}, v)
		VCVTDQ2PS(v, v)
		VSUBPS(zero, v, v)
		VMULPS(scale, v, v)
		VMOVUPS(v, Mem{Base: y, Index: j, Scale: 4})
	})
	end()
}

func splitAVX2() {
	const name = "split_avx2"
	begin(name, "func(n int, even, odd, x *uint8)",
		name+" separates n pairs of bytes, at least 16:",
		"",
		"\tfor i := range n {",
		"\t\teven[i], odd[i] = x[2*i], x[2*i+1]",
		"\t}")
	n := Load(Param("n"), GP64())
	even := Load(Param("even"), GP64())
	odd := Load(Param("odd"), GP64())
	x := Load(Param("x"), GP64())
	low := YMM()
	VPBROADCASTD(lowBytes, low)
	overlapped("", n, 16, func(j Register) {
		a, b := YMM(), YMM()
		VMOVDQU(Mem{Base: x, Index: j, Scale: 2}, b)
		VPAND(low, b, a)
		VPSRLW(Imm(8), b, b)
		VPACKUSWB(b, a, a)
		VPERMQ(Imm(0xd8), a, a)
		VMOVDQU(a.AsX(), Mem{Base: even, Index: j, Scale: 1})
		VEXTRACTI128(Imm(1), a, Mem{Base: odd, Index: j, Scale: 1})
	})
	end()
}

// halves returns a function that makes vectors for pairs of size bytes, and one that
// narrows the words of 16 bits in such a vector, which must be less than 256, and
// stores the bytes.
func halves(size int) (vec func() VecVirtual, store func(v VecVirtual, at Mem)) {
	if size == 8 {
		return XMM, func(v VecVirtual, at Mem) {
			VPACKUSWB(v, v, v)
			VMOVQ(v, at)
		}
	}
	return YMM, func(v VecVirtual, at Mem) {
		VPACKUSWB(v, v, v)
		VPERMQ(Imm(0xd8), v, v)
		VMOVDQU(v.AsX(), at)
	}
}

// everySecondAVX2 generates the copying of every second byte of rows, size at a time.
func everySecondAVX2(size int) {
	name := fmt.Sprintf("everySecond_%d_avx2", size)
	begin(name, "func(rows, n int, dst *uint8, ldd int, src *uint8, lds int)",
		fmt.Sprintf("%s copies n bytes of rows, n being at least %d:", name, size+1),
		"",
		"\tfor r := range rows {",
		"\t\tfor j := range n {",
		"\t\t\tdst[r*ldd+j] = src[r*lds+2*j]",
		"\t\t}",
		"\t}")
	rows := Load(Param("rows"), GP64())
	n := Load(Param("n"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	vec, store := halves(size)
	low := vec()
	VPBROADCASTD(lowBytes, low)
	last, j := GP64(), GP64()
	LEAQ(Mem{Base: n, Disp: -size}, last)
	Label("row")
	XORQ(j, j)
	Label("loop")
	v := vec()
	VPAND(Mem{Base: src, Index: j, Scale: 2}, low, v)
	store(v, Mem{Base: dst, Index: j, Scale: 1})
	add(size, j)
	CMPQ(j, last)
	JL(LabelRef("loop"))
	// The last are the odd bytes of a vector that ends with the last of the row.
	v = vec()
	VMOVDQU(Mem{Base: src, Index: last, Scale: 2, Disp: -1}, v)
	VPSRLW(Imm(8), v, v)
	store(v, Mem{Base: dst, Index: last, Scale: 1})
	ADDQ(ldd, dst)
	ADDQ(lds, src)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	end()
}

// maxPoolAVX2 generates the maxima of windows of 3x3 bytes at strides of 2, size at a
// time.
func maxPoolAVX2(size int) {
	name := fmt.Sprintf("maxPool_u8_3x3s2_%d_avx2", size)
	begin(name, "func(rows, n int, dst *uint8, ldd int, src *uint8, lds int)",
		fmt.Sprintf("%s takes maxima of windows, n being at least %d:", name, size),
		"",
		"\tfor r := range rows {",
		"\t\tfor j := range n {",
		"\t\t\tdst[r*ldd+j] = src[2*r*lds+2*j] // or any other of the nine",
		"\t\t\tfor a := range 3 {",
		"\t\t\t\tfor b := range 3 {",
		"\t\t\t\t\tdst[r*ldd+j] = max(dst[r*ldd+j], src[(2*r+a)*lds+2*j+b])",
		"\t\t\t\t}",
		"\t\t\t}",
		"\t\t}",
		"\t}")
	rows := Load(Param("rows"), GP64())
	n := Load(Param("n"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	vec, store := halves(size)
	low := vec()
	VPBROADCASTD(lowBytes, low)
	mid, under := GP64(), GP64()
	Label("row")
	LEAQ(Mem{Base: src, Index: lds, Scale: 1}, mid)
	LEAQ(Mem{Base: src, Index: lds, Scale: 2}, under)
	overlapped("", n, size, func(j Register) {
		// Pairs from the first byte of a window and from its second hold all three.
		v, h := vec(), vec()
		VMOVDQU(Mem{Base: src, Index: j, Scale: 2}, v)
		for i, base := range []Register{src, mid, under} {
			for b := range 2 {
				if i+b > 0 {
					VPMAXUB(Mem{Base: base, Index: j, Scale: 2, Disp: b}, v, v)
				}
			}
		}
		VPSRLW(Imm(8), v, h)
		VPMAXUB(h, v, v)
		VPAND(low, v, v)
		store(v, Mem{Base: dst, Index: j, Scale: 1})
	})
	ADDQ(ldd, dst)
	MOVQ(under, src)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	end()
}

func maxAVX2() {
	const name = "max_u8_avx2"
	begin(name, "func(n int, y, x *uint8)",
		name+" takes the larger of n elements, at least 16, and others:",
		"",
		"\tfor i := range n {",
		"\t\ty[i] = max(y[i], x[i])",
		"\t}")
	n := Load(Param("n"), GP64())
	y := Load(Param("y"), GP64())
	x := Load(Param("x"), GP64())
	larger := func(vec func() VecVirtual) func(j Register) {
		return func(j Register) {
			v := vec()
			VMOVDQU(Mem{Base: y, Index: j, Scale: 1}, v)
			VPMAXUB(Mem{Base: x, Index: j, Scale: 1}, v, v)
			VMOVDQU(v, Mem{Base: y, Index: j, Scale: 1})
		}
	}
	CMPQ(n, Imm(32))
	JL(LabelRef("few"))
	overlapped("many", n, 32, larger(YMM))
	JMP(LabelRef("end"))
	Label("few")
	overlapped("few", n, 16, larger(XMM))
	Label("end")
	end()
}
