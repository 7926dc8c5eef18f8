package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// depthwiseContract says what a kernel of windows computes that takes vectors of so many columns.
func depthwiseContract(name string, columns string) []string {
	return []string{
		name + " sums up windows over a plane, groups of four taps at a time:",
		"",
		"\tfor i := range lines {",
		"\t\tfor j := range " + columns + " * vectors { // what is behind a line is overwritten by the next one",
		"\t\t\tvar s int32",
		"\t\t\tfor g := range groups {",
		"\t\t\t\tfor t := range 4 {",
		"\t\t\t\t\ts += int32(w[4*g+t]) * int32(x[i*line+int(at[g])+j*stride+t*spread])",
		"\t\t\t\t}",
		"\t\t\t}",
		"\t\t\tc[i*columns+j] = s",
		"\t\t}",
		"\t}",
		"",
		"step is what a vector moves by; order says the stride and the spread: which bytes, from a vector's first on,",
		"belong to each lane.",
	}
}

// windowLoop generates the loops over lines, vectors and groups. begin is called ahead of the groups of as many vectors as it is given, 1 to
// 4; group with the address of a group for the first of them, and its index; store with where sums go.
func windowLoop(step Register, size int, begin func(vectors int), group func(vectors int, from, g Register), store func(vectors int, to Register)) {
	const most = 4
	lines := Load(Param("lines"), GP64())
	groups := Load(Param("groups"), GP64())
	x := Load(Param("x"), GP64())
	at := Load(Param("at"), GP64())
	c := Load(Param("c"), GP64())
	TESTQ(lines, lines)
	JZ(LabelRef("end"))
	Label("line")
	from, to, v, g, tap := GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(x, from)
	MOVQ(c, to)
	Load(Param("vectors"), v)
	some := func(n int) {
		begin(n)
		XORQ(g, g)
		name := fmt.Sprint("groups", n)
		Label(name)
		MOVLQSX(Mem{Base: at, Index: g, Scale: 4}, tap)
		ADDQ(from, tap)
		group(n, tap, g)
		INCQ(g)
		CMPQ(g, groups)
		JL(LabelRef(name))
		store(n, to)
	}
	SUBQ(Imm(most), v)
	JL(LabelRef("tail"))
	Label("loop")
	some(most)
	LEAQ(Mem{Base: from, Index: step, Scale: most}, from)
	add(most*size, to)
	SUBQ(Imm(most), v)
	JGE(LabelRef("loop"))
	Label("tail")
	add(most, v)
	for n := most - 1; n > 0; n-- {
		CMPQ(v, Imm(uint64(n)))
		JEQ(LabelRef(fmt.Sprint("tail", n)))
	}
	JMP(LabelRef("next"))
	for n := most - 1; n > 0; n-- {
		Label(fmt.Sprint("tail", n))
		some(n)
		if n > 1 {
			JMP(LabelRef("next"))
		}
	}
	Label("next")
	Load(Param("line"), v)
	ADDQ(v, x)
	Load(Param("columns"), v)
	LEAQ(Mem{Base: c, Index: v, Scale: 4}, c)
	DECQ(lines)
	JNZ(LabelRef("line"))
	Label("end")
	end()
}

// depthwise8 generates the sums of windows for AVX-512 with VNNI and VBMI, which picks the four bytes of each of 16 columns from size, 32 or
// 64: loads of 64 mostly lie on two lines of the cache.
func depthwise8(size int) {
	name := fmt.Sprintf("depthwise_u8s8_%d_vbmi", size)
	begin(name, "func(lines, vectors, groups int, x *uint8, line int, at *int32, w *int8, c *int32, columns, step int, order *uint8)",
		depthwiseContract(name, "16")...)
	order := zmm()
	picked := Load(Param("order"), GP64())
	VMOVDQU8(Mem{Base: picked}, order)
	step := Load(Param("step"), GP64())
	w := Load(Param("w"), GP64())
	thrice := GP64()
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, thrice)
	v := zmm()
	var acc []VecVirtual
	windowLoop(step, 64, func(n int) { acc = zeroed(n) },
		func(n int, from, g Register) {
			four := zmm()
			VPBROADCASTD(Mem{Base: w, Index: g, Scale: 4}, four)
			for i, m := range []Mem{{Base: from}, {Base: from, Index: step, Scale: 1}, {Base: from, Index: step, Scale: 2}, {Base: from, Index: thrice, Scale: 1}}[:n] {
				if size == 32 {
					VMOVDQU(m, v.AsY())
				} else {
					VMOVDQU8(m, v)
				}
				VPERMB(v, order, v)
				VPDPBUSD(four, v, acc[i])
			}
		},
		func(n int, to Register) {
			for i := range n {
				VMOVDQU32(acc[i], Mem{Base: to, Disp: 64 * i})
			}
		})
}

// depthwiseAVX2 generates the sums of windows for AVX2: of each four bytes two at a time become words, which are multiplied and added.
func depthwiseAVX2() {
	const name = "depthwise_u8s8_32_avx2"
	begin(name, "func(lines, vectors, groups int, x *uint8, line int, at *int32, w *int8, c *int32, columns, step int, order *uint8)",
		depthwiseContract(name, "8")...)
	pairs := [2]VecVirtual{YMM(), YMM()}
	picked := Load(Param("order"), GP64())
	for i, v := range pairs {
		VBROADCASTI128(Mem{Base: picked, Disp: 16 * i}, v)
	}
	step := Load(Param("step"), GP64())
	w := Load(Param("w"), GP64())
	half := GP64() // which the upper four columns are from the lower
	MOVQ(step, half)
	SHRQ(Imm(1), half)
	v := YMM()
	var acc []VecVirtual
	windowLoop(step, 32, func(n int) {
		acc = nil
		for range n {
			v := YMM()
			VPXOR(v, v, v)
			acc = append(acc, v)
		}
	},
		func(n int, from, g Register) {
			four := XMM()
			VPBROADCASTD(Mem{Base: w, Index: g, Scale: 4}, four)
			words := YMM()
			VPMOVSXBW(four, words)
			weights := [2]VecVirtual{YMM(), YMM()}
			VPSHUFD(Imm(0x00), words, weights[0])
			VPSHUFD(Imm(0x55), words, weights[1])
			for i := range n {
				if i > 0 {
					ADDQ(half, from)
				}
				VMOVDQU(Mem{Base: from}, v.AsX())
				ADDQ(half, from)
				VINSERTI128(Imm(1), Mem{Base: from}, v, v)
				for p, order := range pairs {
					t := YMM()
					VPSHUFB(order, v, t)
					VPMADDWD(weights[p], t, t)
					VPADDD(t, acc[i], acc[i])
				}
			}
		},
		func(n int, to Register) {
			for i := range n {
				VMOVDQU(acc[i], Mem{Base: to, Disp: 32 * i})
			}
		})
}
