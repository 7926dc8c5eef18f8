package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// taps generates a sum of shifted rows, four vectors of the output at a time,
// then one, then the rest under a mask.
func taps(a isa) {
	const unroll = 4
	name := "taps_" + a.name
	begin(name, "func(y, x []float32, offset []int, w []float32, bias, lo, hi float32, acc bool)",
		name+" is",
		"",
		"\tfor i := range y {",
		"\t\ts := bias",
		"\t\tif acc {",
		"\t\t\ts += y[i]",
		"\t\t}",
		"\t\tfor t, o := range offset {",
		"\t\t\ts += w[t] * x[o+i]",
		"\t\t}",
		"\t\ty[i] = clamp(s, lo, hi)",
		"\t}")
	m := &arith{isa: a}
	n := Load(Param("y").Len(), GP64())
	y := Load(Param("y").Base(), GP64())
	x := Load(Param("x").Base(), GP64())
	offset := Load(Param("offset").Base(), GP64())
	count := Load(Param("offset").Len(), GP64())
	w := Load(Param("w").Base(), GP64())
	flag := Load(Param("acc"), GP8())
	limits := map[string]VecVirtual{}
	for _, s := range []string{"bias", "lo", "hi"} {
		limits[s] = a.vec()
		at, err := Param(s).Resolve()
		if err != nil {
			panic(err)
		}
		VBROADCASTSS(at.Addr, limits[s])
	}
	part := func(label string, vectors int, t *tail) {
		sums := make([]VecVirtual, vectors)
		for v := range sums {
			sums[v] = a.vec()
			VMOVAPS(limits["bias"], sums[v])
		}
		TESTB(flag, flag)
		JZ(LabelRef(label + "_first"))
		for v, s := range sums {
			VADDPS(m.load(Mem{Base: y, Disp: a.bytes() * v}, t), s, s)
		}
		Label(label + "_first")
		i := GP64()
		XORQ(i, i)
		CMPQ(i, count)
		JGE(LabelRef(label + "_last"))
		Label(label + "_tap")
		o, b := GP64(), a.vec()
		MOVQ(Mem{Base: offset, Index: i, Scale: 8}, o)
		VBROADCASTSS(Mem{Base: w, Index: i, Scale: 4}, b)
		for v, s := range sums {
			at := Mem{Base: x, Index: o, Scale: 4, Disp: a.bytes() * v}
			if t != nil {
				VFMADD231PS(m.load(at, t), b, s)
			} else {
				VFMADD231PS(at, b, s)
			}
		}
		INCQ(i)
		CMPQ(i, count)
		JL(LabelRef(label + "_tap"))
		Label(label + "_last")
		for v, s := range sums {
			m.store(m.clamp(s, limits["lo"], limits["hi"]), Mem{Base: y, Disp: a.bytes() * v}, t)
		}
		if t == nil {
			add(vectors*a.bytes(), y)
			add(vectors*a.bytes(), x)
		}
	}
	for _, vectors := range []int{unroll, 1} {
		label := map[int]string{unroll: "many", 1: "one"}[vectors]
		SUBQ(Imm(uint64(vectors*a.lanes)), n)
		JL(LabelRef(label + "_rest"))
		Label(label)
		part(label, vectors, nil)
		SUBQ(Imm(uint64(vectors*a.lanes)), n)
		JGE(LabelRef(label))
		Label(label + "_rest")
		add(vectors*a.lanes, n)
	}
	JZ(LabelRef("done"))
	part("tail", 1, m.newTail(n))
	Label("done")
	end()
}

// tapRows generates a sum of shifted rows for four rows that read inputs which lie xrow apart: each vector of the input is
// loaded once for all that read it, and two vectors of each row are computed at a time, then one, then the rest under a mask.
func tapRows(a isa) {
	const rows = 4
	name := "tapRows_" + a.name
	begin(name, "func(y, res []float32, yrow, n int, x []float32, xrow int, shift []int, height int, w []float32, bias, lo, hi float32)",
		fmt.Sprintf("%s is what follows, for a height of at least %d:", name, rows-1),
		"",
		fmt.Sprintf("\tfor r := range %d {", rows),
		"\t\tfor i := range n {",
		"\t\t\ts := bias",
		"\t\t\tif res != nil {",
		"\t\t\t\ts += res[r*yrow+i]",
		"\t\t\t}",
		"\t\t\tfor b, o := range shift {",
		"\t\t\t\tfor k := range height {",
		"\t\t\t\t\ts += w[b*height+k] * x[o+(r+k)*xrow+i]",
		"\t\t\t\t}",
		"\t\t\t}",
		"\t\t\ty[r*yrow+i] = clamp(s, lo, hi)",
		"\t\t}",
		"\t}")
	m := &arith{isa: a}
	n := Load(Param("n"), GP64())
	y := Load(Param("y").Base(), GP64())
	x := Load(Param("x").Base(), GP64())
	yrow, xrow := Load(Param("yrow"), GP64()), Load(Param("xrow"), GP64())
	SHLQ(Imm(2), yrow)
	SHLQ(Imm(2), xrow)
	res := Load(Param("res").Base(), GP64())
	given, err := Param("res").Base().Resolve()
	if err != nil {
		panic(err)
	}
	SUBQ(y, res) // from a place in y to that in res
	limits := map[string]VecVirtual{}
	for _, s := range []string{"bias", "lo", "hi"} {
		limits[s] = a.vec()
		VBROADCASTSS(param(s), limits[s])
	}
	part := func(label string, vectors int, t *tail) {
		sums := make([][]VecVirtual, rows)
		for r := range sums {
			for range vectors {
				s := a.vec()
				VMOVAPS(limits["bias"], s)
				sums[r] = append(sums[r], s)
			}
		}
		at := GP64()
		CMPQ(given.Addr, Imm(0))
		JE(LabelRef(label + "_first"))
		LEAQ(Mem{Base: y, Index: res, Scale: 1}, at)
		for r, s := range sums {
			for v := range s {
				VADDPS(m.load(Mem{Base: at, Disp: a.bytes() * v}, t), s[v], s[v])
			}
			if r < rows-1 {
				ADDQ(yrow, at)
			}
		}
		Label(label + "_first")
		w, shift, left := Load(Param("w").Base(), GP64()), Load(Param("shift").Base(), GP64()), Load(Param("shift").Len(), GP64())
		Label(label + "_column")
		p := GP64()
		MOVQ(Mem{Base: shift}, p)
		LEAQ(Mem{Base: x, Index: p, Scale: 4}, p)
		// row joins the row of input at p to rows from..to of the output; that of row o lies o weights before disp.
		row := func(from, to, disp int) {
			in := make([]VecVirtual, vectors)
			for v := range in {
				in[v] = m.load(Mem{Base: p, Disp: a.bytes() * v}, t)
			}
			for o := from; o < to; o++ {
				weight := Mem{Base: w, Disp: 4 * (disp - o)}
				if vectors == 1 && a.lanes == 16 {
					VFMADD231PS_BCST(weight, in[0], sums[o][0])
					continue
				}
				b := a.vec()
				VBROADCASTSS(weight, b)
				for v := range in {
					VFMADD231PS(in[v], b, sums[o][v])
				}
			}
		}
		for k := range rows - 1 {
			row(0, k+1, k)
			ADDQ(xrow, p)
		}
		k := Load(Param("height"), GP64())
		add(4*(rows-1), w)
		SUBQ(Imm(rows-1), k)
		JZ(LabelRef(label + "_below"))
		Label(label + "_row")
		row(0, rows, 0)
		ADDQ(xrow, p)
		add(4, w)
		DECQ(k)
		JNZ(LabelRef(label + "_row"))
		Label(label + "_below")
		for k := range rows - 1 {
			row(k+1, rows, k)
			if k < rows-2 {
				ADDQ(xrow, p)
			}
		}
		add(8, shift)
		DECQ(left)
		JNZ(LabelRef(label + "_column"))
		MOVQ(y, at)
		for r, s := range sums {
			for v := range s {
				m.store(m.clamp(s[v], limits["lo"], limits["hi"]), Mem{Base: at, Disp: a.bytes() * v}, t)
			}
			if r < rows-1 {
				ADDQ(yrow, at)
			}
		}
		if t == nil {
			add(vectors*a.bytes(), y)
			add(vectors*a.bytes(), x)
		}
	}
	for _, vectors := range []int{2, 1} {
		label := map[int]string{2: "two", 1: "one"}[vectors]
		SUBQ(Imm(uint64(vectors*a.lanes)), n)
		JL(LabelRef(label + "_rest"))
		Label(label)
		part(label, vectors, nil)
		SUBQ(Imm(uint64(vectors*a.lanes)), n)
		JGE(LabelRef(label))
		Label(label + "_rest")
		add(vectors*a.lanes, n)
	}
	JZ(LabelRef("done"))
	part("tail", 1, m.newTail(n))
	Label("done")
	end()
}

// repeat generates the repetition of elements, in whole vectors.
func repeat(a isa) {
	name := "repeat_" + a.name
	begin(name, "func(y, x *float32, rows, n int)",
		name+fmt.Sprintf(" is what follows, and writes up to %d elements behind it:", a.lanes-1),
		"",
		"\tfor i := range rows {",
		"\t\tfor j := range n {",
		"\t\t\ty[i*n+j] = x[i]",
		"\t\t}",
		"\t}")
	y, x := Load(Param("y"), GP64()), Load(Param("x"), GP64())
	rows, n := Load(Param("rows"), GP64()), Load(Param("n"), GP64())
	SHLQ(Imm(2), n)
	i, v := GP64(), a.vec()
	Label("row")
	VBROADCASTSS(Mem{Base: x}, v)
	XORQ(i, i)
	Label("vector")
	VMOVUPS(v, Mem{Base: y, Index: i, Scale: 1})
	add(a.bytes(), i)
	CMPQ(i, n)
	JL(LabelRef("vector"))
	add(4, x)
	ADDQ(n, y)
	DECQ(rows)
	JNZ(LabelRef("row"))
	end()
}

// transpose generates the transposition of a strip of eight rows by blocks of
// eight columns. The halves of two rows are loaded into one register, which
// leaves two rounds of shuffles.
func transpose() {
	const name = "transpose8_avx2"
	begin(name, "func(blocks int, dst *float32, ldd int, src *float32, lds int)",
		name+" is",
		"",
		"\tfor c := range 8 * blocks {",
		"\t\tfor r := range 8 {",
		"\t\t\tdst[c*ldd+r] = src[r*lds+c]",
		"\t\t}",
		"\t}")
	blocks := Load(Param("blocks"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	SHLQ(Imm(2), ldd)
	SHLQ(Imm(2), lds)
	lds3, low := GP64(), GP64()
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, lds3)
	LEAQ(Mem{Base: src, Index: lds, Scale: 4}, low)
	row := func(r int, disp int) Mem {
		base := Register(src)
		if r >= 4 {
			base = low
		}
		switch r % 4 {
		case 1:
			return Mem{Base: base, Index: lds, Scale: 1, Disp: disp}
		case 2:
			return Mem{Base: base, Index: lds, Scale: 2, Disp: disp}
		case 3:
			return Mem{Base: base, Index: lds3, Scale: 1, Disp: disp}
		}
		return Mem{Base: base, Disp: disp}
	}
	Label("block")
	for half := range 2 {
		// in[r] holds four columns of row r and, above them, of row r+4.
		in := make([]VecVirtual, 4)
		for r := range in {
			in[r] = YMM()
			VMOVUPS(row(r, 16*half), in[r].AsX())
			VINSERTF128(Imm(1), row(r+4, 16*half), in[r], in[r])
		}
		pairs := make([]VecVirtual, 4)
		for i := range pairs {
			pairs[i] = YMM()
		}
		VUNPCKLPS(in[1], in[0], pairs[0])
		VUNPCKHPS(in[1], in[0], pairs[1])
		VUNPCKLPS(in[3], in[2], pairs[2])
		VUNPCKHPS(in[3], in[2], pairs[3])
		for c := range 4 {
			out := YMM()
			if c%2 == 0 {
				VUNPCKLPD(pairs[2+c/2], pairs[c/2], out)
			} else {
				VUNPCKHPD(pairs[2+c/2], pairs[c/2], out)
			}
			VMOVUPS(out, Mem{Base: dst})
			ADDQ(ldd, dst)
		}
	}
	add(32, src)
	add(32, low)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	end()
}
