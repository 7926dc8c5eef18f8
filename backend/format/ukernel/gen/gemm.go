package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// gemm generates the first rows rows of the GEMM tile of a: two vectors of
// columns at a time, the panel's rows loaded once, the weights broadcast.
func gemm(a isa, rows int) {
	const (
		vectors = 2
		unroll  = 4
	)
	passes := columns / (vectors * a.lanes)
	name := fmt.Sprintf("gemm_f32_%dx%d_%s", rows, columns/passes, a.name)
	begin(name, "func(k int, w, x, y *float32, ldy int, acc bool)",
		fmt.Sprintf("%s computes %d rows of a tile of %d:", name, rows, a.mr),
		"",
		fmt.Sprintf("\tfor r := range %d {", rows),
		fmt.Sprintf("\t\tfor c := range %d {", columns),
		"\t\t\tvar s float32",
		"\t\t\tfor i := range k {",
		fmt.Sprintf("\t\t\t\ts += w[i*%d+r] * x[i*%d+c]", a.mr, columns),
		"\t\t\t}",
		"\t\t\tif acc {",
		"\t\t\t\ts += y[r*ldy+c]",
		"\t\t\t}",
		"\t\t\ty[r*ldy+c] = s",
		"\t\t}",
		"\t}")
	x0 := Load(Param("x"), GP64())
	y0 := Load(Param("y"), GP64())
	ldy := Load(Param("ldy"), GP64())
	SHLQ(Imm(2), ldy)
	var pass Register
	if passes > 1 {
		pass = GP64()
		MOVQ(U32(uint32(passes)), pass)
		Label("pass")
	}
	k := Load(Param("k"), GP64())
	w := Load(Param("w"), GP64())
	x, y := GP64(), GP64()
	MOVQ(x0, x)
	MOVQ(y0, y)

	n := 1
	for n < unroll && n*rows*vectors < a.chains {
		n *= 2
	}
	sets := a.tileSets(n, rows, vectors)
	step := func(u int) {
		xs := make([]VecVirtual, vectors)
		for v := range xs {
			xs[v] = a.vec()
			VMOVUPS(Mem{Base: x, Disp: rowBytes*u + a.bytes()*v}, xs[v])
		}
		for r, acc := range sets[u%len(sets)] {
			b := a.vec()
			VBROADCASTSS(Mem{Base: w, Disp: 4 * (u*a.mr + r)}, b)
			for v := range xs {
				VFMADD231PS(xs[v], b, acc[v])
			}
		}
	}
	SUBQ(Imm(unroll), k)
	JL(LabelRef("tail"))
	Label("loop")
	for u := range unroll {
		step(u)
	}
	add(rowBytes*unroll, x)
	add(4*a.mr*unroll, w)
	SUBQ(Imm(unroll), k)
	JGE(LabelRef("loop"))
	Label("tail")
	add(unroll, k)
	JZ(LabelRef("done"))
	Label("one")
	step(0)
	add(rowBytes, x)
	add(4*a.mr, w)
	DECQ(k)
	JNZ(LabelRef("one"))
	Label("done")
	storeTile(fold(sets), a, y, ldy, "store")
	if passes > 1 {
		add(vectors*a.bytes(), x0)
		add(vectors*a.bytes(), y0)
		DECQ(pass)
		JNZ(LabelRef("pass"))
	}
	end()
}
