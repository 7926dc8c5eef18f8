package main

import (
	"fmt"
	mathbits "math/bits"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// sum adds the lanes of v, which it changes, and returns the sum in the lowest.
func (a isa) sum(v VecVirtual) VecVirtual {
	return a.across(v, func(v, acc VecVirtual) { VADDPS(v, acc, acc) })
}

// across combines the lanes of v, which it changes, and returns the result in
// the lowest.
func (a isa) across(v VecVirtual, combine func(v, acc VecVirtual)) VecVirtual {
	t := YMM()
	if a.lanes == 16 {
		VEXTRACTF64X4(Imm(1), v, t)
		combine(t, virtual(v.AsY()))
	}
	x, tx := virtual(v.AsX()), virtual(t.AsX())
	if a.lanes >= 8 {
		VEXTRACTF128(Imm(1), v.AsY(), tx)
		combine(tx, x)
	}
	VMOVHLPS(x, x, tx)
	combine(tx, x)
	VMOVSHDUP(x, tx)
	combine(tx, x)
	return v
}

// virtual is the view of a virtual register as one.
func virtual(r Register) VecVirtual { return r.(VecVirtual) }

// gemv generates the product of dense rows with a vector, four rows at a time. Rows in a format of
// 16 bits are widened on the way, so that sums are those of the widened rows.
func gemv(a isa, format string) {
	const rows, unroll = 4, 2
	name, size := "gemv_"+format+"_4x1_"+a.name, 2
	element, value := "*uint16", format+"(w[r*ldw+i])"
	if format == "f32" {
		size, element, value = 4, "*float32", "w[r*ldw+i]"
	}
	begin(name, "func(groups, k int, w "+element+", ldw int, x, y *float32, far int)",
		name+" multiplies groups of 4 dense rows by a vector, and fetches what is far bytes ahead unless that is 0:",
		"",
		"\tfor r := range 4 * groups {",
		"\t\tvar s float32",
		"\t\tfor i := range k {",
		"\t\t\ts += "+value+" * x[i]",
		"\t\t}",
		"\t\ty[r] = s",
		"\t}")
	groups := Load(Param("groups"), GP64())
	k := Load(Param("k"), GP64())
	w0 := Load(Param("w"), GP64())
	ldw := Load(Param("ldw"), GP64())
	x0 := Load(Param("x"), GP64())
	y := Load(Param("y"), GP64())
	far := Load(Param("far"), GP64())
	SHLQ(Imm(uint64(size/2)), ldw)
	ldw3 := GP64()
	LEAQ(Mem{Base: ldw, Index: ldw, Scale: 2}, ldw3)

	Label("group")
	w, x, n, next := GP64(), GP64(), GP64(), GP64()
	MOVQ(w0, w)
	MOVQ(x0, x)
	MOVQ(k, n)
	LEAQ(Mem{Base: w, Index: far, Scale: 1}, next)
	sets := a.tileSets(unroll, rows, 1)
	rowOf := func(w Register, r, disp int) Mem {
		switch r {
		case 1:
			return Mem{Base: w, Index: ldw, Scale: 1, Disp: disp}
		case 2:
			return Mem{Base: w, Index: ldw, Scale: 2, Disp: disp}
		case 3:
			return Mem{Base: w, Index: ldw3, Scale: 1, Disp: disp}
		}
		return Mem{Base: w, Disp: disp}
	}
	row := func(r, disp int) Mem { return rowOf(w, r, disp) }
	step := func(u int) {
		v := a.vec()
		VMOVUPS(Mem{Base: x, Disp: a.bytes() * u}, v)
		for r := range rows {
			from := row(r, size*a.lanes*u)
			if size == 4 {
				VFMADD231PS(from, v, sets[u][r][0])
				continue
			}
			wide := a.vec()
			widened(format, from, wide)
			VFMADD231PS(wide, v, sets[u][r][0])
		}
	}
	advance := func(n int) {
		add(size*n, w)
		add(4*n, x)
	}
	SUBQ(Imm(uint64(unroll*a.lanes)), n)
	JL(LabelRef("vectors"))
	TESTQ(far, far)
	JZ(LabelRef("loop"))
	loop := func(label string) {
		Label(label)
		for u := range unroll {
			step(u)
		}
		if label == "fetching" {
			for r := range rows {
				for at := 0; at < size*unroll*a.lanes; at += 64 {
					PREFETCHT1(rowOf(next, r, at))
				}
			}
			add(size*unroll*a.lanes, next)
		}
		advance(unroll * a.lanes)
		SUBQ(Imm(uint64(unroll*a.lanes)), n)
		JGE(LabelRef(label))
	}
	loop("fetching")
	JMP(LabelRef("vectors"))
	loop("loop")
	Label("vectors")
	add(unroll*a.lanes, n)
	SUBQ(Imm(uint64(a.lanes)), n)
	JL(LabelRef("sum"))
	step(0)
	advance(a.lanes)
	SUBQ(Imm(uint64(a.lanes)), n)
	Label("sum")
	add(a.lanes, n)
	sums := make([]Register, rows)
	for r, acc := range fold(sets) {
		sums[r] = a.sum(acc[0]).AsX()
	}
	TESTQ(n, n)
	JZ(LabelRef("store"))
	Label("one")
	v := XMM()
	VMOVSS(Mem{Base: x}, v)
	for r := range rows {
		if size == 4 {
			VFMADD231SS(row(r, 0), v, sums[r])
			continue
		}
		bits, wide := GP32(), XMM()
		MOVWLZX(row(r, 0), bits)
		if format == "f16" {
			VMOVD(bits, wide)
			VCVTPH2PS(wide, wide)
		} else {
			SHLL(Imm(16), bits)
			VMOVD(bits, wide)
		}
		VFMADD231SS(wide, v, sums[r])
	}
	advance(1)
	DECQ(n)
	JNZ(LabelRef("one"))
	Label("store")
	for r := range rows {
		VMOVSS(sums[r], Mem{Base: y, Disp: 4 * r})
	}
	add(4*rows, y)
	LEAQ(Mem{Base: w0, Index: ldw, Scale: 4}, w0)
	DECQ(groups)
	JNZ(LabelRef("group"))
	end()
}

// vectors generates products with a vector.
func vectors() {
	for _, rows := range gathered {
		spread[rows] = GLOBL(fmt.Sprintf("spread%d", rows), attr.RODATA|attr.NOPTR)
		for i := range 16 * rows {
			DATA(4*i, U32(i/rows))
		}
	}
	for _, a := range isas {
		for _, idx := range indexTypes {
			for _, rows := range blocks {
				spmv(a, rows, idx)
			}
			for _, columns := range runs {
				spmvRun(a, columns, idx)
			}
		}
		for _, format := range []string{"f32", "f16", "bf16"} {
			gemv(a, format)
			laneProduct(a, format)
		}
		widenHalf(a, "f16")
		widenHalf(a, "bf16")
		narrowHalf(a)
	}
}

// laneShape is that of ukernel: how many elements a window has, how many of them a row meets, and the bits that say which.
type laneShape struct{ window, step, bits int }

// laneShapes are those of instruction sets by the lanes of a vector. A window fills two.
var laneShapes = map[int]laneShape{8: {16, 2, 4}, 16: {32, 4, 8}}

// laneProduct generates the product of rows that are lanes with a vector. Values of 16 bits are
// widened on the way.
func laneProduct(a isa, format string) {
	shape := laneShapes[a.lanes]
	step, placeBytes := shape.step, shape.step*shape.bits*a.lanes/8
	values, places := fmt.Sprintf("value[(j*%d+i)*%d+r]", step, a.lanes), fmt.Sprintf("place[j*%d+r]>>(%d*i)", a.lanes, shape.bits)
	name, size, params, value := "lanes_"+format+"_"+a.name, 2, "value *uint16, x, y *float32", format+"("+values+")"
	if format == "f32" {
		size, params, value = 4, "value, x, y *float32", values
	}
	if shape.bits == 8 {
		places = fmt.Sprintf("place[(j*%d+r)*%d+i]", a.lanes, step)
	}
	begin(name, "func(blocks int, ptr, start *uint32, place *uint8, "+params+", far int)",
		fmt.Sprintf("%s multiplies blocks of %d rows by a vector, and fetches values that are far bytes ahead into level 2 unless that", name, a.lanes),
		"is 0; start, place and value begin at the first block's:",
		"",
		"\tfor b := range blocks {",
		fmt.Sprintf("\t\tfor r := range %d {", a.lanes),
		"\t\t\tvar s float32",
		"\t\t\tfor j := ptr[b] - ptr[0]; j < ptr[b+1]-ptr[0]; j++ {",
		fmt.Sprintf("\t\t\t\tfor i := range %d {", step),
		fmt.Sprintf("\t\t\t\t\ts += %s * x[start[j]+%s%%%d]", value, places, shape.window),
		"\t\t\t\t}",
		"\t\t\t}",
		fmt.Sprintf("\t\t\ty[b*%d+r] = s", a.lanes),
		"\t\t}",
		"\t}")
	blocks := Load(Param("blocks"), GP64())
	ptr := Load(Param("ptr"), GP64())
	start := Load(Param("start"), GP64())
	place := Load(Param("place"), GP64())
	v := Load(Param("value"), GP64())
	x := Load(Param("x"), GP64())
	y := Load(Param("y"), GP64())
	far := Load(Param("far"), GP64())
	n, at, next, farPlaces := GP64(), GP64(), GP64(), GP64()
	MOVQ(far, farPlaces)
	SHRQ(Imm(uint64(mathbits.TrailingZeros(uint(8*size/shape.bits)))), farPlaces)
	Label("block")
	MOVL(Mem{Base: ptr, Disp: 4}, n.As32())
	SUBL(Mem{Base: ptr}, n.As32())
	sets := a.tileSets(step, 1, 1)
	JZ(LabelRef("sum"))
	loop := func(label string) {
		Label(label)
		if label == "fetching" {
			LEAQ(Mem{Base: v, Index: far, Scale: 1}, next)
			for i := 0; i < step*size*a.lanes; i += 64 {
				PREFETCHT1(Mem{Base: next, Disp: i})
			}
			PREFETCHT1(Mem{Base: place, Index: farPlaces, Scale: 1})
		}
		low, high, word := a.vec(), a.vec(), a.vec()
		MOVL(Mem{Base: start}, at.As32())
		VMOVUPS(Mem{Base: x, Index: at, Scale: 4}, low)
		VMOVUPS(Mem{Base: x, Index: at, Scale: 4, Disp: a.bytes()}, high)
		if placeBytes == a.bytes() {
			VMOVDQU32(Mem{Base: place}, word)
		} else {
			VPMOVSXBD(Mem{Base: place}, word)
		}
		for i := step - 1; i >= 0; i-- {
			xs := a.chosen(low, high, word, i)
			from := Mem{Base: v, Disp: size * a.lanes * i}
			if size == 4 {
				VFMADD231PS(from, xs, sets[i][0][0])
			} else {
				wide := a.vec()
				widened(format, from, wide)
				VFMADD231PS(wide, xs, sets[i][0][0])
			}
			if label != "fetching" && size*a.lanes*i%64 == 0 {
				PREFETCHT0(Mem{Base: v, Disp: size*a.lanes*i + ahead})
			}
		}
		if label != "fetching" {
			PREFETCHT0(Mem{Base: place, Disp: ahead * shape.bits / 8 / size})
		}
		add(4, start)
		add(placeBytes, place)
		add(step*size*a.lanes, v)
		DECQ(n)
		JNZ(LabelRef(label))
	}
	TESTQ(far, far)
	JZ(LabelRef("bundle"))
	loop("fetching")
	JMP(LabelRef("sum"))
	loop("bundle")
	Label("sum")
	VMOVUPS(fold(sets)[0][0], Mem{Base: y})
	add(a.bytes(), y)
	add(4, ptr)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	end()
}

// chosen returns what each lane has at place i of its word in a window of two vectors. It changes the word where i is 0.
func (a isa) chosen(low, high, word VecVirtual, i int) VecVirtual {
	shape, at := laneShapes[a.lanes], word // of which the lowest bits count
	if i > 0 {
		at = a.vec()
		VPSRLD(Imm(uint64(shape.bits*i)), word, at)
	}
	if a.lanes == 16 {
		VPERMI2PS(high, low, at)
		return at
	}
	// A place's highest bit tells the vectors apart, as sign: that of the last one is the word's.
	xs, above, sign := a.vec(), a.vec(), word
	VPERMPS(low, at, xs)
	VPERMPS(high, at, above)
	if i < shape.step-1 {
		sign = a.vec()
		VPSLLD(Imm(uint64(32-shape.bits*(i+1))), word, sign)
	}
	VBLENDVPS(sign, above, xs, xs)
	return xs
}

// spmv generates the product of vertical blocks of rows rows with a vector. AVX-512
// gathers the elements of the vector for 16 steps of low blocks; else the rows of a
// block are the lanes of a vector.
func spmv(a isa, rows int, idx index) {
	name := fmt.Sprintf("spmv_f32_%s_%dx1_%s", idx.name, rows, a.name)
	begin(name, fmt.Sprintf("func(groups int, ptr *uint32, index *%s, value, x, y *float32)", idx.typ),
		fmt.Sprintf("%s multiplies groups of %d rows by a vector; index and value start at the first group's:", name, rows),
		"",
		"\tfor g := range groups {",
		fmt.Sprintf("\t\tfor r := range %d {", rows),
		"\t\t\tvar s float32",
		"\t\t\tfor j := ptr[g] - ptr[0]; j < ptr[g+1]-ptr[0]; j++ {",
		fmt.Sprintf("\t\t\t\ts += value[j*%d+r] * x[index[j]]", rows),
		"\t\t\t}",
		fmt.Sprintf("\t\t\ty[g*%d+r] = s", rows),
		"\t\t}",
		"\t}")
	groups := Load(Param("groups"), GP64())
	ptr := Load(Param("ptr"), GP64())
	i := Load(Param("index"), GP64())
	v := Load(Param("value"), GP64())
	x := Load(Param("x"), GP64())
	y := Load(Param("y"), GP64())
	var lanes []VecVirtual
	if a.lanes == 16 && slices.Contains(gathered, rows) {
		for u := range rows {
			lanes = append(lanes, a.vec())
			VMOVDQU32(spread[rows].Offset(64*u), lanes[u])
		}
	}
	Label("group")
	switch {
	case a.lanes == 16 && rows == 1:
		gatherRow(a, idx, ptr, i, v, x, y)
	case lanes != nil:
		gatherColumns(a, rows, lanes, idx, ptr, i, v, x, y)
	default:
		blockColumn(a, rows, idx, ptr, i, v, x, y)
	}
	add(4*rows, y)
	add(4, ptr)
	DECQ(groups)
	JNZ(LabelRef("group"))
	end()
}

// ahead is how far ahead, in bytes, kernels fetch values that take many instructions
// for each cache line: too few lines would be under way from far caches otherwise.
const ahead = 2048

// gatherRow generates the product of one row: 16 nonzeros at a time, the last
// ones under a mask.
func gatherRow(a isa, idx index, ptr, i, v, x, y Register) {
	n := GP64()
	MOVL(Mem{Base: ptr, Disp: 4}, n.As32())
	SUBL(Mem{Base: ptr}, n.As32())
	sets := a.tileSets(2, 1, 1)
	gather := func(u int) {
		at, xs, mask := a.vec(), a.vec(), K()
		if idx.size == 2 {
			VPMOVZXWD(Mem{Base: i, Disp: 32 * u}, at)
		} else {
			VMOVDQU32(Mem{Base: i, Disp: 64 * u}, at)
		}
		KXNORW(mask, mask, mask)
		VXORPS(xs, xs, xs)
		VGATHERDPS(Mem{Base: x, Index: at, Scale: 4}, mask, xs)
		VFMADD231PS(Mem{Base: v, Disp: 64 * u}, xs, sets[u][0][0])
		PREFETCHT0(Mem{Base: v, Disp: 64*u + ahead})
		if u == 0 {
			PREFETCHT0(Mem{Base: i, Disp: ahead / 4 * idx.size})
		}
	}
	SUBQ(Imm(32), n)
	JL(LabelRef("vectors"))
	Label("loop")
	gather(0)
	gather(1)
	add(32*idx.size, i)
	add(32*4, v)
	SUBQ(Imm(32), n)
	JGE(LabelRef("loop"))
	Label("vectors")
	add(32, n)
	SUBQ(Imm(16), n)
	JL(LabelRef("rest"))
	gather(0)
	add(16*idx.size, i)
	add(16*4, v)
	SUBQ(Imm(16), n)
	Label("rest")
	add(16, n)
	JZ(LabelRef("sum"))
	bits := GP64()
	MOVQ(I32(-1), bits)
	BZHIQ(n, bits, bits)
	mask, again := K(), K() // a gather clears its mask
	KMOVW(bits.As32(), mask)
	KMOVW(bits.As32(), again)
	at, xs, vs := a.vec(), a.vec(), a.vec()
	if idx.size == 2 {
		VPMOVZXWD_Z(Mem{Base: i}, mask, at)
	} else {
		VMOVDQU32_Z(Mem{Base: i}, mask, at)
	}
	VMOVUPS_Z(Mem{Base: v}, mask, vs)
	VXORPS(xs, xs, xs)
	VGATHERDPS(Mem{Base: x, Index: at, Scale: 4}, again, xs)
	VFMADD231PS(xs, vs, sets[0][0][0])
	LEAQ(Mem{Base: i, Index: n, Scale: uint8(idx.size)}, i)
	LEAQ(Mem{Base: v, Index: n, Scale: 4}, v)
	Label("sum")
	VMOVSS(a.sum(fold(sets)[0][0]).AsX(), Mem{Base: y})
}

// gathered are the heights above 1 for which AVX-512 gathers.
var gathered = []int{2, 4, 8}

// spread holds, by the rows of a block, the lanes of the gathered elements that the
// values of 16 steps meet: i/rows for value i.
var spread = map[int]Mem{}

// gatherColumns generates the product of one group of rows rows: 16 steps at a time,
// the last ones under a mask.
func gatherColumns(a isa, rows int, lanes []VecVirtual, idx index, ptr, i, v, x, y Register) {
	n := GP64()
	MOVL(Mem{Base: ptr, Disp: 4}, n.As32())
	SUBL(Mem{Base: ptr}, n.As32())
	sums := a.zeros(min(rows, 4))
	xs, at := a.vec(), a.vec()
	SUBQ(Imm(16), n)
	JL(LabelRef("rest"))
	Label("loop")
	if idx.size == 2 {
		VPMOVZXWD(Mem{Base: i}, at)
	} else {
		VMOVDQU32(Mem{Base: i}, at)
	}
	all := K()
	KXNORW(all, all, all)
	VXORPS(xs, xs, xs)
	VGATHERDPS(Mem{Base: x, Index: at, Scale: 4}, all, xs)
	for u := range rows {
		p := a.vec()
		VPERMPS(xs, lanes[u], p)
		VFMADD231PS(Mem{Base: v, Disp: 64 * u}, p, sums[u%len(sums)])
		PREFETCHT0(Mem{Base: v, Disp: 64*u + ahead})
	}
	add(16*idx.size, i)
	add(64*rows, v)
	SUBQ(Imm(16), n)
	JGE(LabelRef("loop"))
	Label("rest")
	add(16, n)
	JZ(LabelRef("sum"))
	bits := GP64()
	MOVQ(I32(-1), bits)
	low := GP64()
	BZHIQ(n, bits, low)
	mask, again := K(), K() // a gather clears its mask
	KMOVW(low.As32(), mask)
	KMOVW(low.As32(), again)
	if idx.size == 2 {
		VPMOVZXWD_Z(Mem{Base: i}, mask, at)
	} else {
		VMOVDQU32_Z(Mem{Base: i}, mask, at)
	}
	VXORPS(xs, xs, xs)
	VGATHERDPS(Mem{Base: x, Index: at, Scale: 4}, again, xs)
	LEAQ(Mem{Base: i, Index: n, Scale: uint8(idx.size)}, i)
	left := GP64() // values
	MOVQ(n, left)
	SHLQ(Imm(uint64(mathbits.TrailingZeros(uint(rows)))), left)
	for u := range rows {
		p, w, k := a.vec(), a.vec(), K()
		BZHIQ(left, bits, low)
		KMOVW(low.As32(), k)
		VPERMPS(xs, lanes[u], p)
		VMOVUPS_Z(Mem{Base: v, Disp: 64 * u}, k, w)
		VFMADD231PS(w, p, sums[u%len(sums)])
		if u < rows-1 {
			SUBQ(Imm(16), left)
			JLE(LabelRef("all"))
		}
	}
	Label("all")
	SHLQ(Imm(uint64(mathbits.TrailingZeros(uint(4*rows)))), n)
	ADDQ(n, v)
	Label("sum")
	for len(sums) > 1 {
		half := len(sums) / 2
		for k, s := range sums[half:] {
			VADDPS(s, sums[k], sums[k])
		}
		sums = sums[:half]
	}
	// Lane l is of row l%rows.
	s, t := sums[0], a.vec()
	VEXTRACTF64X4(Imm(1), s, t.AsY())
	VADDPS(t.AsY(), s.AsY(), s.AsY())
	if rows == 8 {
		VMOVUPS(s.AsY(), Mem{Base: y})
		return
	}
	VEXTRACTF128(Imm(1), s.AsY(), t.AsX())
	VADDPS(t.AsX(), s.AsX(), s.AsX())
	if rows == 4 {
		VMOVUPS(s.AsX(), Mem{Base: y})
		return
	}
	VMOVHLPS(s.AsX(), s.AsX(), t.AsX())
	VADDPS(t.AsX(), s.AsX(), s.AsX())
	VMOVSD(s.AsX(), Mem{Base: y})
}

// runs are the widths of the horizontal blocks.
var runs = []int{4, 8, 16}

// spmvRun generates the product of rows of blocks of 1 x columns with a vector.
func spmvRun(a isa, columns int, idx index) {
	name := fmt.Sprintf("spmv_f32_%s_1x%d_%s", idx.name, columns, a.name)
	begin(name, fmt.Sprintf("func(groups int, ptr *uint32, index *%s, value, x, y *float32)", idx.typ),
		fmt.Sprintf("%s multiplies rows of blocks of %d columns by a vector; index and value start at the first row's:", name, columns),
		"",
		"\tfor g := range groups {",
		"\t\tvar s float32",
		"\t\tfor j := ptr[g] - ptr[0]; j < ptr[g+1]-ptr[0]; j++ {",
		fmt.Sprintf("\t\t\tfor c := range %d {", columns),
		fmt.Sprintf("\t\t\t\ts += value[j*%d+c] * x[index[j]*%d+c]", columns, columns),
		"\t\t\t}",
		"\t\t}",
		"\t\ty[g] = s",
		"\t}")
	groups := Load(Param("groups"), GP64())
	ptr := Load(Param("ptr"), GP64())
	i := Load(Param("index"), GP64())
	v := Load(Param("value"), GP64())
	x := Load(Param("x"), GP64())
	y := Load(Param("y"), GP64())
	part := isa{lanes: 4, vec: XMM}
	switch {
	case columns >= 16 && a.lanes == 16:
		part = a
	case columns >= 8:
		part = isa{lanes: 8, vec: YMM}
	}
	Label("row")
	sets := part.tileSets(4, 1, 1)
	eachStep("", ptr, 4, func(u int) {
		t := idx.load(Mem{Base: i, Disp: idx.size * u})
		SHLQ(Imm(uint64(mathbits.TrailingZeros(uint(4*columns)))), t)
		for c := 0; c < columns; c += part.lanes {
			b := part.vec()
			VMOVUPS(Mem{Base: x, Index: t, Scale: 1, Disp: 4 * c}, b)
			VFMADD231PS(Mem{Base: v, Disp: 4 * (u*columns + c)}, b, sets[(u+c/part.lanes)%4][0][0])
			if u*columns%16 == 0 && c == 0 {
				PREFETCHT0(Mem{Base: v, Disp: 4*u*columns + ahead})
			}
		}
	}, func(steps int) {
		add(steps*idx.size, i)
		add(steps*4*columns, v)
	})
	VMOVSS(part.sum(fold(sets)[0][0]).AsX(), Mem{Base: y})
	add(4, y)
	add(4, ptr)
	DECQ(groups)
	JNZ(LabelRef("row"))
	end()
}

// blockColumn generates the product of one block, a step of which is a column
// of rows values.
func blockColumn(a isa, rows int, idx index, ptr, i, v, x, y Register) {
	part := isa{lanes: 4, vec: XMM}
	switch {
	case rows >= 16 && a.lanes == 16:
		part = a
	case rows >= 8:
		part = isa{lanes: 8, vec: YMM}
	}
	vectors := max(1, rows/part.lanes)
	sets := part.tileSets(4, 1, vectors)
	eachStep("", ptr, 4, func(u int) {
		t := idx.load(Mem{Base: i, Disp: idx.size * u})
		acc := sets[u][0]
		at := Mem{Base: x, Index: t, Scale: 4}
		if rows == 1 {
			b := part.vec()
			VMOVSS(at, b)
			VFMADD231SS(Mem{Base: v, Disp: 4 * u}, b, acc[0])
			return
		}
		b := part.vec()
		VBROADCASTSS(at, b)
		if rows == 2 {
			w := part.vec()
			VMOVSD(Mem{Base: v, Disp: 8 * u}, w)
			VFMADD231PS(w, b, acc[0])
			return
		}
		for c := range acc {
			at := Mem{Base: v, Disp: 4 * (u*rows + c*part.lanes)}
			VFMADD231PS(at, b, acc[c])
			if a.lanes == 8 && at.Disp%64 == 0 { // those of 16 gain nothing
				PREFETCHT0(at.Offset(ahead))
			}
		}
	}, func(steps int) {
		add(steps*idx.size, i)
		add(steps*4*rows, v)
	})
	for c, s := range fold(sets)[0] {
		switch rows {
		case 1:
			VMOVSS(s.AsX(), Mem{Base: y})
		case 2:
			VMOVSD(s.AsX(), Mem{Base: y})
		default:
			VMOVUPS(s, Mem{Base: y, Disp: 4 * part.lanes * c})
		}
	}
}
