package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// winoRows is the largest number of rows of a tile of a Winograd product by its
// granules of columns; the smallest is half of it.
var winoRows = map[string]map[int]int{
	"avx512": {1: 14, 2: 12, 3: 8, 4: 6},
	"avx2":   {1: 6},
}

// winoDeep is the number of products that are added up in registers before their sum is
// added to that in memory: the rounding error of a sum grows with the root of its
// terms, and the transformation back makes it larger.
const winoDeep = 64

// winogradProducts generates the products of transformed tiles with transformed
// weights.
func winogradProducts(a isa) {
	for width := 1; width <= columns/granule; width++ {
		most := winoRows[a.name][width]
		for rows := (most + 1) / 2; rows <= most && most > 0; rows++ {
			winogemm(a, rows, width)
		}
	}
}

// winogemm generates the product of groups of rows that follow each other with the
// same columns of B. Rows of A are few and long, so that the next group's are not
// in the first-level cache yet, and B is read for the first time by the first
// groups: both are fetched ahead.
func winogemm(a isa, rows, width int) {
	const unroll = 4
	name := fmt.Sprintf("product_%dx%d_%s", rows, width*granule, a.name)
	begin(name, "func(groups, k int, a *float32, lda int, b *float32, ldb int, y *float32, ldy int, ahead int)",
		fmt.Sprintf("%s multiplies groups of %d rows, strides being in elements:", name, rows),
		"",
		fmt.Sprintf("\tfor r := range %d * groups {", rows),
		fmt.Sprintf("\t\tfor c := range %d {", width*granule),
		"\t\t\tvar s float32",
		"\t\t\tfor i := range k {",
		"\t\t\t\ts += a[r*lda+i] * b[i*ldb+c]",
		"\t\t\t}",
		"\t\t\ty[r*ldy+c] = s",
		"\t\t}",
		"\t}",
		"",
		fmt.Sprintf("Sums of %d products are what s is a sum of. k is at least 1. The cache lines", winoDeep),
		"from b[ahead] on are fetched, groups*k of them.")
	vectors := width * granule / a.lanes
	for _, s := range []string{"lda", "ldb", "ldy"} {
		SHLQ(Imm(2), param(s))
	}
	lda := Load(Param("lda"), GP64())
	ldb := Load(Param("ldb"), GP64())
	ahead := Load(Param("ahead"), GP64())
	start := Load(Param("b"), GP64())
	LEAQ(Mem{Base: start, Index: ahead, Scale: 4}, ahead)
	Load(Param("a"), start)

	Label("group")
	next := GP64() // the rows of the next group
	base := make([]Register, (rows+2)/3)
	MOVQ(start, next)
	for i := range base {
		base[i] = GP64()
		MOVQ(next, base[i])
		if i < len(base)-1 {
			LEAQ(Mem{Base: next, Index: lda, Scale: 2}, next)
			ADDQ(lda, next)
		}
	}
	for range rows - 3*(len(base)-1) {
		ADDQ(lda, next)
	}
	MOVQ(next, start)
	b := Load(Param("b"), GP64())
	k, rest := GP64(), Load(Param("k"), GP64())
	Label("stretch")
	MOVQ(U32(winoDeep), k)
	CMPQ(rest, k)
	CMOVQLT(rest, k)
	SUBQ(k, rest)
	acc := make([][]VecVirtual, rows)
	for r := range acc {
		acc[r] = a.zeros(vectors)
	}
	step := func(u int) {
		xs := make([]VecVirtual, vectors)
		for v := range xs {
			xs[v] = a.vec()
			VMOVUPS(Mem{Base: b, Disp: a.bytes() * v}, xs[v])
		}
		ADDQ(ldb, b)
		for r, sums := range acc {
			at := Mem{Base: base[r/3], Disp: 4 * u}
			if r%3 > 0 {
				at.Index, at.Scale = lda, uint8(r%3)
			}
			if vectors == 1 && a.lanes == 16 {
				VFMADD231PS_BCST(at, xs[0], sums[0])
				continue
			}
			w := a.vec()
			VBROADCASTSS(at, w)
			for v := range xs {
				VFMADD231PS(xs[v], w, sums[v])
			}
		}
		PREFETCHT0(Mem{Base: next, Disp: 64 * u})
		PREFETCHT1(Mem{Base: ahead, Disp: 64 * u})
	}
	advance := func(n int) {
		for _, r := range base {
			add(4*n, r)
		}
		add(64*n, next)
		add(64*n, ahead)
	}
	SUBQ(Imm(unroll), k)
	JL(LabelRef("tail"))
	Label("loop")
	for u := range unroll {
		step(u)
	}
	advance(unroll)
	SUBQ(Imm(unroll), k)
	JGE(LabelRef("loop"))
	Label("tail")
	add(unroll, k)
	JZ(LabelRef("done"))
	Label("one")
	step(0)
	advance(1)
	DECQ(k)
	JNZ(LabelRef("one"))
	Label("done")
	// All but the first stretch find sums in y.
	LEAQ(Mem{Base: rest, Disp: winoDeep}, k)
	CMPQ(k, param("k"))
	JGE(LabelRef("store"))
	y := Load(Param("y"), GP64())
	ldy := Load(Param("ldy"), GP64())
	for _, sums := range acc {
		for v, x := range sums {
			VADDPS(Mem{Base: y, Disp: a.bytes() * v}, x, x)
		}
		ADDQ(ldy, y)
	}
	Label("store")
	y = Load(Param("y"), GP64())
	ldy = Load(Param("ldy"), GP64())
	for _, sums := range acc {
		for v, x := range sums {
			VMOVUPS(x, Mem{Base: y, Disp: a.bytes() * v})
		}
		ADDQ(ldy, y)
	}
	TESTQ(rest, rest)
	JNZ(LabelRef("stretch"))
	MOVQ(y, param("y"))
	DECQ(param("groups"))
	JNZ(LabelRef("group"))
	end()
}
