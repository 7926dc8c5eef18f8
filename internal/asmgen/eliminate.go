package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// eliminations generates the kernels of package obs, in float64: products and
// differences are rounded one by one, as plain Go rounds them.
func eliminations() {
	for _, a := range isas {
		subRows(a, 1, 8)
		subRows(a, 1, 1)
		cols := 2 // as many as the registers hold coefficients for
		if a.name == "avx512" {
			cols = 4
		}
		subRows(a, cols, 4)
	}
}

// subRows subtracts multiples of rows of v from each of cols rows of c.
func subRows(a isa, cols, rows int) {
	name := fmt.Sprintf("subRows%dx%d_%s", cols, rows, a.name)
	lanes := a.lanes / 2
	terms := make([]string, rows)
	for q := range terms {
		terms[q] = fmt.Sprintf("\t\tc[b*ldc+j] -= float64(a[%d*%d+b] * v[at[%d]+j])", q, cols, q)
		if cols == 1 {
			terms[q] = fmt.Sprintf("\t\tc[j] -= float64(a[%d] * v[at[%d]+j])", q, q)
		}
	}
	loop := "for j := range n {\n" + strings.ReplaceAll(strings.Join(terms, "\n"), "\t\t", "\t") + "\n}"
	if cols > 1 {
		loop = fmt.Sprintf("for b := range %d {\n\tfor j := range n {\n%s\n\t}\n}", cols, strings.Join(terms, "\n"))
	}
	doc := []string{fmt.Sprintf("%s is, for n a multiple of %d above 0,", name, lanes), ""}
	for _, line := range strings.Split(loop, "\n") {
		doc = append(doc, "\t"+line)
	}
	begin(name, "func(n int, c *float64, ldc int, a *float64, v *float64, at *int)", doc...)

	n := Load(Param("n"), GP64())
	c := []Register{Load(Param("c"), GP64())}
	if cols > 1 {
		ldc := Load(Param("ldc"), GP64())
		for b := 1; b < cols; b++ {
			next := GP64()
			LEAQ(Mem{Base: c[b-1], Index: ldc, Scale: 8}, next)
			c = append(c, next)
		}
	}
	coef := Load(Param("a"), GP64())
	factors := make([][]VecVirtual, rows)
	for q := range factors {
		for b := range cols {
			x := a.vec()
			VBROADCASTSD(Mem{Base: coef, Disp: 8 * (q*cols + b)}, x)
			factors[q] = append(factors[q], x)
		}
	}
	v := Load(Param("v"), GP64())
	at := Load(Param("at"), GP64())
	in := make([]Register, rows)
	for q := range in {
		in[q] = GP64()
		MOVQ(Mem{Base: at, Disp: 8 * q}, in[q])
		LEAQ(Mem{Base: v, Index: in[q], Scale: 8}, in[q])
	}
	j := GP64()
	XORQ(j, j)
	Label("loop")
	acc := make([]VecVirtual, cols)
	for b := range acc {
		acc[b] = a.vec()
		VMOVUPD(Mem{Base: c[b], Index: j, Scale: 8}, acc[b])
	}
	x, y := a.vec(), a.vec()
	for q := range rows {
		row := Mem{Base: in[q], Index: j, Scale: 8}
		if cols == 1 {
			VMULPD(row, factors[q][0], y)
			VSUBPD(y, acc[0], acc[0])
			continue
		}
		VMOVUPD(row, x)
		for b := range cols {
			VMULPD(x, factors[q][b], y)
			VSUBPD(y, acc[b], acc[b])
		}
	}
	for b := range acc {
		VMOVUPD(acc[b], Mem{Base: c[b], Index: j, Scale: 8})
	}
	add(lanes, j)
	CMPQ(j, n)
	JLT(LabelRef("loop"))
	end()
}
