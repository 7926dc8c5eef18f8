package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// gemmRows is the number of rows of a GEMM tile, ukernel.MR: with the four
// AVX-512 vectors of a panel they leave eight registers.
const gemmRows = 6

// gemmVectors is the number of vectors of columns of a GEMM tile at a time.
var gemmVectors = map[string]int{"avx512": 4, "avx2": 2}

// gemm generates rows rows of a GEMM tile of width granules of columns: the
// rows of B are loaded once, the elements of A broadcast.
func gemm(a isa, rows, width int) {
	const unroll = 4
	name := fmt.Sprintf("gemm_f32_%dx%d_%s", rows, width*granule, a.name)
	begin(name, "func(tiles, k int, a *float32, at, ar, ak int, b *float32, ldb int, y *float32, ldy int, acc bool, f "+finishType+", next *float32)",
		fmt.Sprintf("%s computes tiles that are below each other, at least one, and meanwhile prefetches 8 elements of next", name),
		"for each of k; strides are in elements:",
		"",
		"\tfor t := range tiles {",
		fmt.Sprintf("\t\tfor r := range %d {", rows),
		fmt.Sprintf("\t\t\tfor c := range %d {", width*granule),
		"\t\t\t\tvar s float32",
		"\t\t\t\tfor i := range k {",
		"\t\t\t\t\ts += a[t*at+r*ar+i*ak] * b[i*ldb+c]",
		"\t\t\t\t}",
		"\t\t\t\tif acc {",
		fmt.Sprintf("\t\t\t\t\ts += y[(%d*t+r)*ldy+c]", rows),
		"\t\t\t\t}",
		fmt.Sprintf("\t\t\t\ty[(%d*t+r)*ldy+c] = s", rows),
		"\t\t\t}",
		"\t\t}",
		"\t}",
		"",
		"or, where f is not nil, the rows go to where it says, which moves on to those behind them.")
	ldy := Load(Param("ldy"), GP64())
	SHLQ(Imm(2), ldy)
	ldb := Load(Param("ldb"), GP64())
	SHLQ(Imm(2), ldb)
	ak := Load(Param("ak"), GP64())
	SHLQ(Imm(2), ak)
	ar := Load(Param("ar"), GP64())
	SHLQ(Imm(2), ar)
	Label("tile")
	for _, p := range a.passes(width, gemmVectors[a.name]) {
		label := fmt.Sprintf("_%d", p.column)
		k := Load(Param("k"), GP64())
		low := Load(Param("a"), GP64())
		high := GP64() // row 3 of A
		LEAQ(Mem{Base: low, Index: ar, Scale: 2}, high)
		ADDQ(ar, high)
		b := Load(Param("b"), GP64())
		next := Register(nil)
		if p.column == 0 {
			next = Load(Param("next"), GP64())
		}
		y := Load(Param("y"), GP64())
		add(4*p.column, b)
		add(4*p.column, y)
		at := func(r int) Mem {
			base := low
			if r >= 3 {
				base = high
			}
			if r%3 == 0 {
				return Mem{Base: base}
			}
			return Mem{Base: base, Index: ar, Scale: uint8(r % 3)}
		}
		n := 1
		for n < unroll && n*rows*p.vectors < a.chains {
			n *= 2
		}
		sets := a.tileSets(n, rows, p.vectors)
		step := func(u int) {
			xs := make([]VecVirtual, p.vectors)
			for v := range xs {
				xs[v] = a.vec()
				VMOVUPS(Mem{Base: b, Disp: a.bytes() * v}, xs[v])
			}
			for r, acc := range sets[u%len(sets)] {
				w := a.vec()
				VBROADCASTSS(at(r), w)
				for v := range xs {
					VFMADD231PS(xs[v], w, acc[v])
				}
			}
			if next != nil && u%2 == 1 {
				PREFETCHT1(Mem{Base: next})
				add(64, next)
			}
			ADDQ(ldb, b)
			ADDQ(ak, low)
			if rows > 3 {
				ADDQ(ak, high)
			}
		}
		SUBQ(Imm(unroll), k)
		JL(LabelRef("tail" + label))
		Label("loop" + label)
		for u := range unroll {
			step(u)
		}
		SUBQ(Imm(unroll), k)
		JGE(LabelRef("loop" + label))
		Label("tail" + label)
		add(unroll, k)
		JZ(LabelRef("done" + label))
		Label("one" + label)
		step(0)
		DECQ(k)
		JNZ(LabelRef("one" + label))
		Label("done" + label)
		storeOrFinish(fold(sets), a, y, ldy, "store"+label, nil, p.column)
	}
	// The next tile: arguments are the function's own.
	step := Load(Param("at"), GP64())
	SHLQ(Imm(2), step)
	ADDQ(step, argument("a"))
	IMUL3Q(Imm(uint64(rows)), ldy, step)
	ADDQ(step, argument("y"))
	f := Load(Param("f"), GP64())
	TESTQ(f, f)
	JZ(LabelRef("next"))
	ADDQ(Imm(uint64(4*rows)), Mem{Base: f, Disp: finishBias})
	IMUL3Q(Imm(uint64(rows)), Mem{Base: f, Disp: finishLdd}, step)
	ADDQ(step, Mem{Base: f, Disp: finishDst})
	CMPQ(Mem{Base: f, Disp: finishRes}, Imm(0))
	JE(LabelRef("next"))
	IMUL3Q(Imm(uint64(rows)), Mem{Base: f, Disp: finishLdr}, step)
	ADDQ(step, Mem{Base: f, Disp: finishRes})
	Label("next")
	DECQ(argument("tiles"))
	JNZ(LabelRef("tile"))
	end()
}

// argument is where the caller put an argument.
func argument(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}
