package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Integer panels are [k/4][intColumns][4] bytes.
const (
	intColumns = 64
	groupBytes = 4 * intColumns
)

// int8Kernels generates the kernels of package ikernel for AVX-512 with VNNI.
func int8Kernels() {
	for v := 1; v <= intColumns/16; v++ {
		for rows := 1; rows <= intRows; rows++ {
			intGemm(rows, v, true, false)
			intGemm(rows, v, false, false)
			intGemm(rows, v, true, true)
		}
		intSpmm(v)
	}
	config := amxConfig()
	for rows := 1; rows <= 2; rows++ {
		for v := 1; v <= 2; v++ {
			amxGemm(config, rows, v, true)
			amxGemm(config, rows, v, false)
		}
	}
	intPack()
	intPackTokens()
	for _, byColumn := range []bool{false, true} {
		for _, out := range []string{"f32", "u8"} {
			for _, res := range []string{"", "f32", "u8"} {
				intFinish(out, res, byColumn, false)
				if out == "u8" && res != "f32" {
					intFinish(out, res, byColumn, true)
				}
			}
		}
	}
	intQuantize()
	intDequantize()
	intSplit()
	for step := 1; step <= 2; step++ {
		intFrame(step)
		intInterleave(step)
	}
	intMaxPool()
	depthwise8(32)
	depthwise8(64)
	intMax()
}

// intRows is the most rows of an integer GEMM tile: with four vectors of columns 24
// sums stay in registers.
const intRows = 6

func zmm() VecVirtual { return ZMM() }

// zeroed returns n cleared vectors.
func zeroed(n int) []VecVirtual {
	vs := make([]VecVirtual, n)
	for i := range vs {
		vs[i] = zmm()
		VPXORD(vs[i], vs[i], vs[i])
	}
	return vs
}

// intGemm generates a tile of rows rows and v vectors of columns. The panel is u8
// and the rows i8 where the weight is on the left, else the other way round. With planes
// the columns lie in planes of four channels, where each group begins at an offset of its own.
func intGemm(rows, v int, weightLeft, planes bool) {
	types, left, right := "s8u8", "int8", "uint8"
	if !weightLeft {
		types, left, right = "u8s8", "uint8", "int8"
	}
	const unroll = 4
	name, arg, what, at := "gemm_"+types, "", "a panel", fmt.Sprintf("i/4*%d", groupBytes)
	if planes {
		name, arg, what, at = name+"_planes", "at *int32, ", "columns in planes", "int(at[i/4])"
	}
	name += fmt.Sprintf("_%dx%d_vnni", rows, 16*v)
	begin(name, fmt.Sprintf("func(k4 int, a *%s, lda int, b *%s, %sc *int32, ldc int)", left, right, arg),
		fmt.Sprintf("%s computes %d rows of a product with %s:", name, rows, what),
		"",
		fmt.Sprintf("\tfor r := range %d {", rows),
		fmt.Sprintf("\t\tfor j := range %d {", 16*v),
		"\t\t\tvar s int32",
		"\t\t\tfor i := range 4 * k4 {",
		fmt.Sprintf("\t\t\t\ts += int32(a[r*lda+i]) * int32(b[%s+4*j+i%%4])", at),
		"\t\t\t}",
		"\t\t\tc[r*ldc+j] = s",
		"\t\t}",
		"\t}")
	k := Load(Param("k4"), GP64())
	a := Load(Param("a"), GP64())
	lda := Load(Param("lda"), GP64())
	b := Load(Param("b"), GP64())
	var offset, from Register
	if planes {
		offset, from = Load(Param("at"), GP64()), GP64()
	}
	var a3 Register
	if rows > 3 {
		a3 = GP64()
		LEAQ(Mem{Base: a, Index: lda, Scale: 2}, a3)
		ADDQ(lda, a3)
	}
	row := func(r, disp int) Mem {
		base := a
		if r >= 3 {
			base, r = a3, r-3
		}
		m := Mem{Base: base, Disp: disp}
		if r > 0 {
			m.Index, m.Scale = lda, uint8(r)
		}
		return m
	}
	sets := 1
	for sets < unroll && sets*rows*v < 10 && (2*sets*rows+1)*v <= 26 {
		sets *= 2
	}
	acc := make([][]VecVirtual, sets)
	for s := range acc {
		acc[s] = zeroed(rows * v)
	}
	step := func(u int) {
		sum := acc[u%sets]
		xs := make([]VecVirtual, v)
		m := Mem{Base: b, Disp: groupBytes * u}
		if planes {
			MOVLQSX(Mem{Base: offset, Disp: 4 * u}, from)
			m = Mem{Base: b, Index: from, Scale: 1}
		}
		for i := range xs {
			xs[i] = zmm()
			VMOVDQU32(m.Offset(64*i), xs[i])
		}
		for r := range rows {
			w := zmm()
			VPBROADCASTD(row(r, 4*u), w)
			for i := range xs {
				if weightLeft {
					VPDPBUSD(w, xs[i], sum[r*v+i])
				} else {
					VPDPBUSD(xs[i], w, sum[r*v+i])
				}
			}
		}
	}
	advance := func(n int) {
		add(4*n, a)
		if rows > 3 {
			add(4*n, a3)
		}
		if planes {
			add(4*n, offset)
		} else {
			add(groupBytes*n, b)
		}
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
	foldInts(acc)
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	SHLQ(Imm(2), ldc)
	for r := range rows {
		for i := range v {
			VMOVDQU32(acc[0][r*v+i], Mem{Base: c, Disp: 64 * i})
		}
		if r < rows-1 {
			ADDQ(ldc, c)
		}
	}
	end()
}

// foldInts adds the sums of all sets to those of the first.
func foldInts(acc [][]VecVirtual) {
	for n := len(acc); n > 1; n /= 2 {
		for s := range n / 2 {
			for i, x := range acc[s] {
				VPADDD(acc[s+n/2][i], x, x)
			}
		}
	}
}

// intSpmm generates the product of rows of 1x4 groups with v vectors of columns of a
// panel.
func intSpmm(v int) {
	const sets = 4
	name := fmt.Sprintf("spmm_s8u8_1x4_%d_vnni", 16*v)
	begin(name, "func(rows int, ptr *uint32, index *uint16, value *int8, b *uint8, c *int32, ldc int, acc bool)",
		fmt.Sprintf("%s multiplies rows of 1x4 groups by a panel; index and value begin with the first row's:", name),
		"",
		"\tfor r := range rows {",
		fmt.Sprintf("\t\tfor j := range %d {", 16*v),
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
		"\t}")
	rows := Load(Param("rows"), GP64())
	ptr := Load(Param("ptr"), GP64())
	index := Load(Param("index"), GP64())
	value := Load(Param("value"), GP64())
	b := Load(Param("b"), GP64())
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	SHLQ(Imm(2), ldc)
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	from, n := GP64(), GP64()
	MOVL(Mem{Base: ptr}, from.As32())

	Label("row")
	add(4, ptr)
	MOVL(Mem{Base: ptr}, n.As32())
	next := GP64()
	MOVQ(n, next)
	SUBQ(from, n)
	MOVQ(next, from)
	acc := make([][]VecVirtual, sets)
	for s := range acc {
		acc[s] = zeroed(v)
	}
	flag := Load(Param("acc"), GP8())
	TESTB(flag, flag)
	JZ(LabelRef("begin"))
	for i := range v {
		VMOVDQU32(Mem{Base: c, Disp: 64 * i}, acc[0][i])
	}
	Label("begin")
	step := func(u int) {
		at := GP64()
		MOVWLZX(Mem{Base: index, Disp: 2 * u}, at.As32())
		SHLQ(Imm(8), at)
		w := zmm()
		VPBROADCASTD(Mem{Base: value, Disp: 4 * u}, w)
		for i := range v {
			x := zmm()
			VMOVDQU32(Mem{Base: b, Index: at, Scale: 1, Disp: 64 * i}, x)
			VPDPBUSD(w, x, acc[u%sets][i])
		}
	}
	advance := func(n int) {
		add(2*n, index)
		add(4*n, value)
	}
	SUBQ(Imm(uint64(sets)), n)
	JL(LabelRef("tail"))
	Label("loop")
	for u := range sets {
		step(u)
	}
	advance(sets)
	SUBQ(Imm(uint64(sets)), n)
	JGE(LabelRef("loop"))
	Label("tail")
	add(sets, n)
	JZ(LabelRef("store"))
	Label("one")
	step(0)
	advance(1)
	DECQ(n)
	JNZ(LabelRef("one"))
	Label("store")
	foldInts(acc)
	for i := range v {
		VMOVDQU32(acc[0][i], Mem{Base: c, Disp: 64 * i})
	}
	ADDQ(ldc, c)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	end()
}

// intPack generates the interleaving of four rows of bytes into a panel.
func intPack() {
	const name = "pack_4x64_avx512"
	begin(name, "func(groups int, dst, src *uint8, offset *int32, mask uint64)",
		name+" interleaves groups of four rows, of which row i begins at src[offset[i]] and the",
		"bits of mask say which columns are read:",
		"",
		"\tfor i := range 4 * groups {",
		fmt.Sprintf("\t\tfor j := range %d {", intColumns),
		"\t\t\tif mask>>j&1 != 0 {",
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
	m := Load(Param("mask"), GP64())
	k := K()
	KMOVQ(m, k)
	TESTQ(groups, groups)
	JZ(LabelRef("end"))
	// Unpacking works on each 16 bytes by themselves: those of lane l are the columns
	// from 16q+4l on for q = 0 to 3.
	columns := zmm()
	VMOVDQU32(columnOrder(), columns)
	Label("loop")
	var r [4]VecVirtual
	for i := range r {
		at := GP64()
		MOVLQSX(Mem{Base: offset, Disp: 4 * i}, at)
		r[i] = zmm()
		VMOVDQU8_Z(Mem{Base: src, Index: at, Scale: 1}, k, r[i])
		VPERMD(r[i], columns, r[i])
	}
	// Pairs of two rows, then quadruples of all four.
	pair := func(op func(...Op), a, b VecVirtual) VecVirtual {
		d := zmm()
		op(b, a, d)
		return d
	}
	lo01, hi01 := pair(VPUNPCKLBW, r[0], r[1]), pair(VPUNPCKHBW, r[0], r[1])
	lo23, hi23 := pair(VPUNPCKLBW, r[2], r[3]), pair(VPUNPCKHBW, r[2], r[3])
	for q, u := range []VecVirtual{
		pair(VPUNPCKLWD, lo01, lo23), pair(VPUNPCKHWD, lo01, lo23),
		pair(VPUNPCKLWD, hi01, hi23), pair(VPUNPCKHWD, hi01, hi23),
	} {
		VMOVDQU32(u, Mem{Base: dst, Disp: 64 * q})
	}
	add(16, offset)
	add(groupBytes, dst)
	DECQ(groups)
	JNZ(LabelRef("loop"))
	Label("end")
	end()
}

// columnOrder is the order in which a vector of 16 elements of 32 bits is that of the
// transposed 4x4 matrix.
func columnOrder() Mem {
	if columnOrderData.Symbol.Name == "" {
		var b [64]byte
		for i := range 16 {
			b[4*i] = byte(i%4*4 + i/4)
		}
		columnOrderData = constant64("columnOrder", b)
	}
	return columnOrderData
}

var columnOrderData Mem

// toBytes adds zero, of 16 bits, to vectors of 32 bits and narrows the sums to bytes,
// the nearest where they have none. order is columnOrder.
func toBytes(v [4]VecVirtual, zero, order VecVirtual) VecVirtual {
	a, b := zmm(), zmm()
	VPACKSSDW(v[1], v[0], a)
	VPADDSW(zero, a, a)
	if v[2] == v[0] {
		b = a
	} else {
		VPACKSSDW(v[3], v[2], b)
		VPADDSW(zero, b, b)
	}
	d := zmm()
	VPACKUSWB(b, a, d)
	VPERMD(d, order, d)
	return d
}

// intPackTokens generates the transposition of up to 64 rows of bytes, in groups of
// four, into a panel: 16 rows by 16 groups at a time.
func intPackTokens() {
	const name = "packTokens_16x64_avx512"
	begin(name, "func(groups int, dst, src *uint8, lds int)",
		name+" writes 16 rows of 64 bytes, lds apart, as 16 columns of groups panel rows, 1 to 16:",
		"",
		"\tfor j := range 16 {",
		"\t\tfor i := range 4 * groups {",
		fmt.Sprintf("\t\t\tdst[i/4*%d+4*j+i%%4] = src[j*lds+i]", groupBytes),
		"\t\t}",
		"\t}")
	groups := Load(Param("groups"), GP64())
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	one, m := GP64(), GP64()
	// The mask has a bit for each group of four bytes.
	MOVQ(U32(1), one)
	MOVQ(groups, RCX)
	MOVQ(one, m)
	SHLQ(CL, m)
	SUBQ(one, m)
	k := K()
	KMOVW(m.As32(), k)
	r := make([]VecVirtual, 16)
	for i := range r {
		r[i] = zmm()
		VMOVDQU32_Z(Mem{Base: src}, k, r[i])
		if i < 15 {
			ADDQ(lds, src)
		}
	}
	// 4x4 within lanes.
	t := make([]VecVirtual, 16)
	for i := 0; i < 16; i += 2 {
		t[i], t[i+1] = zmm(), zmm()
		VPUNPCKLDQ(r[i+1], r[i], t[i])
		VPUNPCKHDQ(r[i+1], r[i], t[i+1])
	}
	q := make([]VecVirtual, 16) // q[4*b+c]: rows 4b..4b+3 of the groups c, 4+c, 8+c, 12+c, one a lane
	for b := range 4 {
		q[4*b], q[4*b+1], q[4*b+2], q[4*b+3] = zmm(), zmm(), zmm(), zmm()
		VPUNPCKLQDQ(t[4*b+2], t[4*b], q[4*b])
		VPUNPCKHQDQ(t[4*b+2], t[4*b], q[4*b+1])
		VPUNPCKLQDQ(t[4*b+3], t[4*b+1], q[4*b+2])
		VPUNPCKHQDQ(t[4*b+3], t[4*b+1], q[4*b+3])
	}
	for g := range 16 {
		CMPQ(groups, Imm(uint64(g)))
		JLE(LabelRef("end"))
		for b := range 4 {
			d := Mem{Base: dst, Disp: groupBytes*g + 16*b}
			if lane := g / 4; lane == 0 {
				VMOVDQU32(q[4*b+g%4].AsX(), d)
			} else {
				VEXTRACTI32X4(Imm(uint64(lane)), q[4*b+g%4], d)
			}
		}
	}
	Label("end")
	end()
}

// intFinish generates the epilogue of integer sums: a residual of type res, nothing
// where it is empty, is added, and the result stored as out. Scales and biases belong
// to the rows or, with byColumn, to the columns. near is for results in u8 that fit into 32 bits
// before they are limited: then one multiplication and addition makes them of sums.
func intFinish(out, res string, byColumn, near bool) {
	name, which := "finish", "r"
	if byColumn {
		name, which = "finishColumns", "j"
	}
	name += "_" + out
	if res != "" {
		name += "_" + res
	}
	args, v := "sum *int32, scale, bias *float32", fmt.Sprintf("\t\t\tv := float32(c[r*ldc+j]+sum[%[1]s])*scale[%[1]s] + bias[%[1]s]", which)
	result := map[string]string{"f32": "\t\t\ty[r*ldy+j] = v", "u8": "\t\t\ty[r*ldy+j] = uint8(round(v*p[2]) + p[3])"}[out]
	if near {
		name += "_near"
		args, v = "scale, bias *float32", fmt.Sprintf("\t\t\tv := (float32(c[r*ldc+j])*scale[%[1]s] + bias[%[1]s]) / p[2]", which)
	}
	name += "_avx512"
	goType := map[string]string{"f32": "float32", "u8": "uint8", "": "uint8"}
	begin(name, fmt.Sprintf("func(rows, n int, c *int32, ldc int, %s, y *%s, res *%s, ldy int, p *float32)", args, goType[out], goType[res]),
		name+" finishes rows of n sums:",
		"",
		"\tfor r := range rows {",
		"\t\tfor j := range n {",
		v,
		map[string]string{"": "", "f32": "\t\t\tv += res[r*ldy+j]", "u8": "\t\t\tv += float32(res[r*ldy+j]) * p[4]"}[res],
		"\t\t\tv = min(max(v, p[0]), p[1])",
		result,
		"\t\t}",
		"\t}")
	rows := Load(Param("rows"), GP64())
	n := Load(Param("n"), GP64())
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	var sum Register
	if !near {
		sum = Load(Param("sum"), GP64())
	}
	scale := Load(Param("scale"), GP64())
	bias := Load(Param("bias"), GP64())
	y := Load(Param("y"), GP64())
	var r Register
	if res != "" {
		r = Load(Param("res"), GP64())
	}
	ldy := Load(Param("ldy"), GP64())
	p := Load(Param("p"), GP64())
	param := func(i int) VecVirtual {
		v := zmm()
		VBROADCASTSS(Mem{Base: p, Disp: 4 * i}, v)
		return v
	}
	lo, hi := param(0), param(1)
	var inv, zero, rs VecVirtual
	var order VecVirtual
	if res == "u8" {
		rs = param(4)
	}
	if out == "u8" {
		// v*inv is what is computed; the limit below applies to the bytes.
		inv, zero, order = param(2), param(3), zmm()
		VMOVDQU32(columnOrder(), order)
		VCVTPS2DQ(zero, zero)
		VPACKSSDW(zero, zero, zero)
		VMULPS(inv, lo, lo)
		VMULPS(inv, hi, hi)
		limit := func(v VecVirtual) VecVirtual {
			VCVTPS2DQ(v, v)
			return toBytes([4]VecVirtual{v, v, v, v}, zero, order)
		}
		if lo = limit(lo); near {
			hi = limit(hi)
		}
		if res == "u8" {
			VMULPS(inv, rs, rs)
		}
	}
	SHLQ(Imm(2), ldc)
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	// The masks of the last vector of a row and of its last bytes.
	last := GP64()
	LEAQ(Mem{Base: n, Disp: -1}, last)
	ANDQ(Imm(15), last)
	add(1, last)
	k := lowBits(last)
	var bytes Register
	if out == "u8" {
		LEAQ(Mem{Base: n, Disp: -1}, last)
		ANDQ(Imm(63), last)
		add(1, last)
		bytes = lowBits(last)
	}

	Label("row")
	var rowSum, rowScale, rowBias VecVirtual
	if !byColumn {
		if rowScale, rowBias = zmm(), zmm(); !near {
			rowSum = zmm()
			VPBROADCASTD(Mem{Base: sum}, rowSum)
			add(4, sum)
		}
		VBROADCASTSS(Mem{Base: scale}, rowScale)
		VBROADCASTSS(Mem{Base: bias}, rowBias)
		add(4, scale)
		add(4, bias)
		if out == "u8" && !near {
			VMULPS(inv, rowScale, rowScale)
			VMULPS(inv, rowBias, rowBias)
		}
	}
	j, left := GP64(), GP64()
	XORQ(j, j)
	MOVQ(n, left)
	// sums returns the finished f32 of the vector that is v vectors behind column j.
	sums := func(v int, masked bool) VecVirtual {
		// load reads a vector of 32-bit elements, or of bytes widened to them.
		load := func(base Register, size uint8) VecVirtual {
			x := zmm()
			m := Mem{Base: base, Index: j, Scale: size, Disp: 16 * v * int(size)}
			switch {
			case size == 1 && masked:
				VPMOVZXBD_Z(m, k, x)
			case size == 1:
				VPMOVZXBD(m, x)
			case masked:
				VMOVDQU32_Z(m, k, x)
			default:
				VMOVDQU32(m, x)
			}
			return x
		}
		x := load(c, 4)
		s, f, b := rowSum, rowScale, rowBias
		if byColumn {
			if f, b = load(scale, 4), load(bias, 4); !near {
				s = load(sum, 4)
			}
			if out == "u8" && !near {
				VMULPS(inv, f, f)
				VMULPS(inv, b, b)
			}
		}
		if !near {
			VPADDD(s, x, x)
		}
		VCVTDQ2PS(x, x)
		if out == "f32" { // with the two roundings of ONNX's operators
			VMULPS(f, x, x)
			VADDPS(b, x, x)
		} else {
			VFMADD213PS(b, f, x)
		}
		switch res {
		case "f32":
			if out == "u8" {
				VFMADD231PS(load(r, 4), inv, x)
			} else {
				VADDPS(load(r, 4), x, x)
			}
		case "u8":
			u := load(r, 1)
			VCVTDQ2PS(u, u)
			VFMADD231PS(u, rs, x)
		}
		return x
	}
	if out == "f32" {
		step := func(masked bool) {
			v := sums(0, masked)
			VMAXPS(v, lo, v) // a NaN in v stays
			VMINPS(v, hi, v)
			d := Mem{Base: y, Index: j, Scale: 4}
			if masked {
				VMOVUPS(v, k, d)
			} else {
				VMOVUPS(v, d)
			}
		}
		SUBQ(Imm(16), left)
		JL(LabelRef("tail"))
		Label("loop")
		step(false)
		add(16, j)
		SUBQ(Imm(16), left)
		JGE(LabelRef("loop"))
		Label("tail")
		add(16, left)
		JZ(LabelRef("next"))
		step(true)
	} else {
		// 64 columns at a time, then as many vectors as are left, the last under a mask.
		some := func(vectors int, masked bool) {
			var v [4]VecVirtual
			for i := range v {
				if i >= vectors {
					v[i] = v[0]
					continue
				}
				v[i] = sums(i, masked && i == vectors-1)
				if !near {
					VMINPS(hi, v[i], v[i])
				}
				VCVTPS2DQ(v[i], v[i])
			}
			b := toBytes(v, zero, order)
			VPMAXUB(lo, b, b)
			if near {
				VPMINUB(hi, b, b)
			}
			d := Mem{Base: y, Index: j, Scale: 1}
			if masked {
				VMOVDQU8(b, bytes, d)
			} else {
				VMOVDQU8(b, d)
			}
		}
		SUBQ(Imm(64), left)
		JL(LabelRef("tail"))
		Label("loop")
		some(4, false)
		add(64, j)
		SUBQ(Imm(64), left)
		JGE(LabelRef("loop"))
		Label("tail")
		add(64, left)
		JZ(LabelRef("next"))
		for vectors := 1; vectors < 4; vectors++ {
			CMPQ(left, Imm(uint64(16*vectors)))
			JLE(LabelRef(fmt.Sprint("tail", vectors)))
		}
		for vectors := 4; vectors > 0; vectors-- {
			Label(fmt.Sprint("tail", vectors))
			some(vectors, true)
			JMP(LabelRef("next"))
		}
	}
	Label("next")
	ADDQ(ldc, c)
	advance := func(base Register, typ string) {
		if typ == "f32" {
			LEAQ(Mem{Base: base, Index: ldy, Scale: 4}, base)
		} else {
			ADDQ(ldy, base)
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

// elements generates a loop over n elements, 16 at a time, the last ones masked. step
// handles the vector at element j.
func elements(step func(j Register, masked bool, k Register)) {
	n := Load(Param("n"), GP64())
	j, one, mask := GP64(), GP64(), GP64()
	XORQ(j, j)
	MOVQ(n, RCX)
	ANDQ(Imm(15), RCX)
	MOVQ(U32(1), one)
	MOVQ(one, mask)
	SHLQ(CL, mask)
	SUBQ(one, mask)
	k := K()
	KMOVW(mask.As32(), k)
	SUBQ(Imm(16), n)
	JL(LabelRef("tail"))
	Label("loop")
	step(j, false, k)
	add(16, j)
	SUBQ(Imm(16), n)
	JGE(LabelRef("loop"))
	Label("tail")
	add(16, n)
	JZ(LabelRef("end"))
	step(j, true, k)
	Label("end")
	end()
}

func intQuantize() {
	const name = "quantize_avx512"
	begin(name, "func(n int, y *uint8, x *float32, p *float32)",
		name+" quantises n elements:",
		"",
		"\tfor i := range n {",
		"\t\ty[i] = uint8(round(min(max(x[i], p[0]), p[1])/p[5]) + p[3])",
		"\t}")
	y := Load(Param("y"), GP64())
	x := Load(Param("x"), GP64())
	p := Load(Param("p"), GP64())
	var c [4]VecVirtual // lo, hi, inv, zero
	for i := range c {
		c[i] = zmm()
		VBROADCASTSS(Mem{Base: p, Disp: 4 * i}, c[i])
	}
	scale := zmm()
	VBROADCASTSS(Mem{Base: p, Disp: 20}, scale)
	VCVTPS2DQ(c[3], c[3])
	elements(func(j Register, masked bool, k Register) {
		v := zmm()
		from, to := Mem{Base: x, Index: j, Scale: 4}, Mem{Base: y, Index: j, Scale: 1}
		if masked {
			VMOVUPS_Z(from, k, v)
		} else {
			VMOVUPS(from, v)
		}
		VMAXPS(c[0], v, v)
		VMINPS(c[1], v, v)
		v = divided(v, scale, c[2], zmm())
		VCVTPS2DQ(v, v)
		VPADDD(c[3], v, v)
		if masked {
			VPMOVDB(v, k, to)
		} else {
			VPMOVDB(v, to)
		}
	})
}

// divided returns in q the quotients of v, which it overwrites, by d, of which inv is the
// reciprocal: rounded to nearest, as a division is, by correcting them by what is left of
// v. Markstein, "Computation of Elementary Functions on the IBM RISC System/6000
// Processor" (1990).
func divided(v, d, inv, q VecVirtual) VecVirtual {
	VMULPS(inv, v, q)
	VFNMADD231PS(d, q, v)
	VFMADD231PS(inv, v, q)
	return q
}

func intDequantize() {
	const name = "dequantize_avx512"
	begin(name, "func(n int, y *float32, x *uint8, p *float32)",
		name+" dequantises n elements:",
		"",
		"\tfor i := range n {",
		"\t\ty[i] = (float32(x[i]) - p[1]) * p[0]",
		"\t}")
	y := Load(Param("y"), GP64())
	x := Load(Param("x"), GP64())
	p := Load(Param("p"), GP64())
	scale, zero := zmm(), zmm()
	VBROADCASTSS(Mem{Base: p}, scale)
	VBROADCASTSS(Mem{Base: p, Disp: 4}, zero)
	elements(func(j Register, masked bool, k Register) {
		v := zmm()
		from, to := Mem{Base: x, Index: j, Scale: 1}, Mem{Base: y, Index: j, Scale: 4}
		if masked {
			VPMOVZXBD_Z(from, k, v)
		} else {
			VPMOVZXBD(from, v)
		}
		VCVTDQ2PS(v, v)
		VSUBPS(zero, v, v)
		VMULPS(scale, v, v)
		if masked {
			VMOVUPS(v, k, to)
		} else {
			VMOVUPS(v, to)
		}
	})
}

func intSplit() {
	const name = "split_avx512"
	begin(name, "func(n int, even, odd, x *uint8)",
		name+" separates n pairs of bytes:",
		"",
		"\tfor i := range n {",
		"\t\teven[i], odd[i] = x[2*i], x[2*i+1]",
		"\t}")
	n := Load(Param("n"), GP64())
	even := Load(Param("even"), GP64())
	odd := Load(Param("odd"), GP64())
	x := Load(Param("x"), GP64())
	j := GP64()
	XORQ(j, j)
	v, h := zmm(), zmm()
	SUBQ(Imm(32), n)
	JL(LabelRef("tail"))
	Label("loop")
	VMOVDQU32(Mem{Base: x, Index: j, Scale: 2}, v)
	VPSRLW(Imm(8), v, h)
	VPMOVWB(v, Mem{Base: even, Index: j, Scale: 1})
	VPMOVWB(h, Mem{Base: odd, Index: j, Scale: 1})
	add(32, j)
	SUBQ(Imm(32), n)
	JGE(LabelRef("loop"))
	Label("tail")
	add(32, n)
	JZ(LabelRef("end"))
	k := lowBits(n)
	VMOVDQU16_Z(Mem{Base: x, Index: j, Scale: 2}, k, v)
	VPSRLW(Imm(8), v, h)
	VPMOVWB(v, k, Mem{Base: even, Index: j, Scale: 1})
	VPMOVWB(h, k, Mem{Base: odd, Index: j, Scale: 1})
	Label("end")
	end()
}

// intFrame generates the copying of rows into wider ones, of every step-th byte, step
// being 1 or 2.
func intFrame(step int) {
	name := fmt.Sprintf("frame%d_avx512", step)
	begin(name, "func(rows, n int, dst *uint8, ldd int, src *uint8, lds, left, right int, fill uint8)",
		name+" copies n bytes of rows, n being at least 1, and puts left bytes before each and right behind it:",
		"",
		"\tfor r := range rows {",
		"\t\tfor j := range left {",
		"\t\t\tdst[r*ldd+j] = fill",
		"\t\t}",
		"\t\tfor j := range n {",
		fmt.Sprintf("\t\t\tdst[r*ldd+left+j] = src[r*lds+%d*j]", step),
		"\t\t}",
		"\t\tfor j := range right {",
		"\t\t\tdst[r*ldd+left+n+j] = fill",
		"\t\t}",
		"\t}")
	rows := Load(Param("rows"), GP64())
	n := Load(Param("n"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	left := Load(Param("left"), GP64())
	right := Load(Param("right"), GP64())
	fill := Load(Param("fill"), GP8())
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	// The last 1 to 64/step bytes of a row are copied under a mask, which for a step of
	// 2 leaves out the byte behind the last.
	size := 64 / step
	rest := GP64()
	LEAQ(Mem{Base: n, Disp: -1}, rest)
	ANDQ(Imm(uint64(size-1)), rest)
	add(1, rest)
	whole := GP64()
	MOVQ(n, whole)
	SUBQ(rest, whole)
	stored := lowBits(rest)
	loaded := stored
	if step == 2 {
		read := GP64()
		LEAQ(Mem{Base: rest, Index: rest, Scale: 1, Disp: -1}, read)
		loaded = lowBits(read)
	}
	v := zmm()
	Label("row")
	i, to, count := GP64(), GP64(), GP64()
	edge := func(name string, n Register) {
		MOVQ(n, count)
		TESTQ(count, count)
		JZ(LabelRef(name + "done"))
		Label(name)
		MOVB(fill, Mem{Base: to})
		INCQ(to)
		DECQ(count)
		JNZ(LabelRef(name))
		Label(name + "done")
	}
	MOVQ(dst, to)
	edge("left", left)
	XORQ(i, i)
	Label("loop")
	CMPQ(i, whole)
	JGE(LabelRef("tail"))
	from, at := Mem{Base: src, Index: i, Scale: uint8(step)}, Mem{Base: to, Index: i, Scale: 1}
	VMOVDQU8(from, v)
	if step == 1 {
		VMOVDQU8(v, at)
	} else {
		VPMOVWB(v, at)
	}
	add(size, i)
	JMP(LabelRef("loop"))
	Label("tail")
	VMOVDQU8_Z(from, loaded, v)
	if step == 1 {
		VMOVDQU8(v, stored, at)
	} else {
		VPMOVWB(v, stored, at)
	}
	ADDQ(n, to)
	edge("right", right)
	ADDQ(ldd, dst)
	ADDQ(lds, src)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	end()
}

// intInterleave generates the copying of every step-th byte, step being 1 or 2, of the
// rows of four planes into wider rows in which the four lie side by side.
func intInterleave(step int) {
	name := fmt.Sprintf("interleave%d_avx512", step)
	begin(name, "func(rows, n int, dst *uint8, ldd int, src *uint8, lds, plane, left, right int, fill uint32)",
		name+" copies n bytes, n being at least 1, of rows of four planes, and puts left columns",
		"before each and right behind it:",
		"",
		"\tfor r := range rows {",
		"\t\tfor j := range left {",
		"\t\t\tcopy(dst[r*ldd+4*j:], fill)",
		"\t\t}",
		"\t\tfor j := range n {",
		"\t\t\tfor i := range 4 {",
		fmt.Sprintf("\t\t\t\tdst[r*ldd+4*(left+j)+i] = src[i*plane+r*lds+%d*j]", step),
		"\t\t\t}",
		"\t\t}",
		"\t\tfor j := range right {",
		"\t\t\tcopy(dst[r*ldd+4*(left+n+j):], fill)",
		"\t\t}",
		"\t}")
	rows := Load(Param("rows"), GP64())
	n := Load(Param("n"), GP64())
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	plane := Load(Param("plane"), GP64())
	right := Load(Param("right"), GP64())
	fill := Load(Param("fill"), GP32())
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	rest, whole := GP64(), GP64()
	LEAQ(Mem{Base: n, Disp: -1}, rest)
	ANDQ(Imm(15), rest)
	add(1, rest)
	MOVQ(n, whole)
	SUBQ(rest, whole)
	stored := lowBits(rest)
	loaded := stored
	if step == 2 { // without the byte behind the last
		LEAQ(Mem{Base: rest, Index: rest, Scale: 1, Disp: -1}, rest)
		loaded = lowBits(rest)
	}
	// Byte i of column j is byte step*j of plane i; two planes have 32 bytes each in a
	// register where step is 2.
	order := zmm()
	var b [64]byte
	for i := range b {
		b[i] = byte(16*step*(i%4) + step*(i/4))
	}
	VMOVDQU8(constant64(fmt.Sprintf("interleave%d", step), b), order)
	Label("row")
	i, to, count := GP64(), GP64(), GP64()
	edge := func(name string, n Register) {
		TESTQ(n, n)
		JZ(LabelRef(name + "done"))
		Label(name)
		MOVL(fill, Mem{Base: to})
		add(4, to)
		DECQ(n)
		JNZ(LabelRef(name))
		Label(name + "done")
	}
	MOVQ(dst, to)
	Load(Param("left"), count)
	edge("left", count)
	XORQ(i, i)
	from, at := GP64(), Mem{Base: to, Index: i, Scale: 4}
	some := func(masked bool) {
		LEAQ(Mem{Base: src, Index: i, Scale: uint8(step)}, from)
		var p [4]VecVirtual
		for q := range p {
			p[q] = zmm()
			m, v := Mem{Base: from}, Op(p[q].AsX())
			if q%2 == 1 {
				m.Index, m.Scale = plane, 1
			}
			if step == 2 {
				v = p[q].AsY()
			}
			if masked {
				VMOVDQU8_Z(m, loaded, v)
			} else {
				VMOVDQU8(m, v)
			}
			if q == 1 {
				LEAQ(Mem{Base: from, Index: plane, Scale: 2}, from)
			}
		}
		if step == 1 {
			for q := 1; q < 4; q++ {
				VINSERTI32X4(Imm(uint64(q)), p[q].AsX(), p[0], p[0])
			}
			VPERMB(p[0], order, p[0])
		} else {
			VINSERTI64X4(Imm(1), p[1].AsY(), p[0], p[0])
			VINSERTI64X4(Imm(1), p[3].AsY(), p[2], p[2])
			o := zmm()
			VMOVDQA64(order, o)
			VPERMI2B(p[2], p[0], o)
			p[0] = o
		}
		if masked {
			VMOVDQU32(p[0], stored, at)
		} else {
			VMOVDQU32(p[0], at)
		}
	}
	Label("loop")
	CMPQ(i, whole)
	JGE(LabelRef("tail"))
	some(false)
	add(16, i)
	JMP(LabelRef("loop"))
	Label("tail")
	some(true)
	LEAQ(Mem{Base: to, Index: n, Scale: 4}, to)
	MOVQ(right, count)
	edge("right", count)
	Load(Param("ldd"), count)
	ADDQ(count, dst)
	Load(Param("lds"), count)
	ADDQ(count, src)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	end()
}

// constant64 is 64 bytes of data.
func constant64(name string, b [64]byte) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	DATA(0, String(b[:]))
	return m
}

// lowBits returns a mask of the n lowest bits, n being 1 to 64.
func lowBits(n Register) Register {
	mask, shift := GP64(), GP64()
	MOVQ(n, shift)
	NEGQ(shift)
	MOVQ(shift, RCX) // which counts modulo 64
	MOVQ(I64(-1), mask)
	SHRQ(CL, mask)
	k := K()
	KMOVQ(mask, k)
	return k
}

// intMaxPool generates the maxima of windows of 3x3 bytes at strides of 2.
func intMaxPool() {
	const name = "maxPool_u8_3x3s2_avx512"
	begin(name, "func(rows, n int, dst *uint8, ldd int, src *uint8, lds int)",
		name+" takes maxima of windows, n being at least 1:",
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
	rest, whole := GP64(), GP64()
	LEAQ(Mem{Base: n, Disp: -1}, rest)
	ANDQ(Imm(31), rest)
	add(1, rest)
	MOVQ(n, whole)
	SUBQ(rest, whole)
	stored := lowBits(rest)
	// The first two bytes of the windows, and the third of each.
	pair, third, last := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: rest, Index: rest, Scale: 1}, pair)
	LEAQ(Mem{Base: pair, Disp: -1}, third)
	first, second := lowBits(pair), lowBits(third)
	Label("row")
	j := GP64()
	XORQ(j, j)
	LEAQ(Mem{Base: src, Index: lds, Scale: 2}, last)
	window := func(masked bool) {
		load := func(k Register, m Mem) VecVirtual {
			v := zmm()
			if masked {
				VMOVDQU8_Z(m, k, v)
			} else {
				VMOVDQU8(m, v)
			}
			return v
		}
		mid := GP64()
		LEAQ(Mem{Base: src, Index: lds, Scale: 1}, mid)
		var a, c VecVirtual
		for i, base := range []Register{src, mid, last} {
			p := load(first, Mem{Base: base, Index: j, Scale: 2})
			q := load(second, Mem{Base: base, Index: j, Scale: 2, Disp: 2})
			if i == 0 {
				a, c = p, q
				continue
			}
			VPMAXUB(p, a, a)
			VPMAXUB(q, c, c)
		}
		high := zmm()
		VPSRLW(Imm(8), a, high)
		VPMAXUB(high, a, a)
		VPMAXUB(c, a, a)
		if masked {
			VPMOVWB(a, stored, Mem{Base: dst, Index: j, Scale: 1})
		} else {
			VPMOVWB(a, Mem{Base: dst, Index: j, Scale: 1})
		}
	}
	Label("loop")
	CMPQ(j, whole)
	JGE(LabelRef("tail"))
	window(false)
	add(32, j)
	JMP(LabelRef("loop"))
	Label("tail")
	window(true)
	ADDQ(ldd, dst)
	MOVQ(last, src)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	end()
}

func intMax() {
	const name = "max_u8_avx512"
	begin(name, "func(n int, y, x *uint8)",
		name+" takes the larger of n elements and others, 64 at a time, the last ones masked:",
		"",
		"\tfor i := range n {",
		"\t\ty[i] = max(y[i], x[i])",
		"\t}")
	n := Load(Param("n"), GP64())
	y := Load(Param("y"), GP64())
	x := Load(Param("x"), GP64())
	SUBQ(Imm(64), n)
	JL(LabelRef("tail"))
	Label("loop")
	v := zmm()
	VMOVDQU8(Mem{Base: y}, v)
	VPMAXUB(Mem{Base: x}, v, v)
	VMOVDQU8(v, Mem{Base: y})
	add(64, x)
	add(64, y)
	SUBQ(Imm(64), n)
	JGE(LabelRef("loop"))
	Label("tail")
	add(64, n)
	JZ(LabelRef("end"))
	k := lowBits(n)
	a, b := zmm(), zmm()
	VMOVDQU8_Z(Mem{Base: y}, k, a)
	VMOVDQU8_Z(Mem{Base: x}, k, b)
	VPMAXUB(b, a, a)
	VMOVDQU8(a, k, Mem{Base: y})
	Label("end")
	end()
}
