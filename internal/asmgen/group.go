package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// groupRows are the rows of weights in groups that a product with a column takes together, and groupChunk the columns of W by
// which kernels go on: groups are whole chunks.
const groupRows, groupChunk = 4, 32

// groupAhead is how far ahead, in bytes, halves of bytes are fetched: more than four rows mostly have.
const groupAhead = 4096

// groupKind is a form of codes.
type groupKind int

const (
	groupWhole  groupKind = iota // i8
	groupHalves                  // of bytes: byte i of the 16 of a chunk has columns i and i+16, low bits first, each as code + 8
	groupBitmap                  // i8 of elements whose bit is set, one after the other
)

// groupForm is a form of weights that were quantised alone, in groups along K.
type groupForm struct {
	isa
	kind  groupKind
	zeros bool
	scale string // the type of scales
	table Mem    // of bitmaps
}

// groupProducts generates kernels of weights in groups.
func groupProducts() {
	places := groupPlaces()
	groupNibbles(isas[0])
	for _, a := range isas {
		groupSums(a)
		for _, scale := range []string{"f32", "f16"} {
			for _, kind := range []groupKind{groupWhole, groupHalves} {
				for _, zeros := range []bool{false, true} {
					f := groupForm{a, kind, zeros, scale, places}
					f.vec()
					f.widen()
				}
			}
			f := groupForm{a, groupBitmap, false, scale, places}
			f.vec()
			f.widen()
		}
	}
}

// name is that of a kernel of the form.
func (f groupForm) name(what string) string {
	n := what + [...]string{"8", "4", "b"}[f.kind]
	if f.zeros {
		n += "z"
	}
	return n + "_" + f.scale + "_" + f.isa.name
}

// shifted reports whether sums of codes as they are stored are off by a multiple of what they meet.
func (f groupForm) shifted() bool { return f.zeros || f.kind == groupHalves }

// chunkBytes are those of a chunk of codes, of bits where there are some.
func (f groupForm) chunkBytes() int { return [...]int{32, 16, 4}[f.kind] }

func (f groupForm) scaleBytes() int {
	if f.scale == "f16" {
		return 2
	}
	return 4
}

// scaleParam and the others are parameters of signatures.
func (f groupForm) scaleParam() string {
	if f.scale == "f16" {
		return "scale *uint16"
	}
	return "scale *float32"
}

func (f groupForm) codeParam() string {
	return [...]string{"w *int8", "w *uint8", "bits *uint64"}[f.kind]
}

// element is what the documentation says an element is, of row r and column k.
func (f groupForm) element(row, column string) string {
	code := [...]string{
		"w[" + row + "*ldw+" + column + "]", "nibble(w[" + row + "*ldw:], " + column + ")-8", "code(" + row + ", " + column + ")",
	}[f.kind]
	if f.zeros {
		code = "(" + code + "-zero[" + row + "*lds+" + column + "/(32*per)])"
	}
	return code + " * scale[" + row + "*lds+" + column + "/(32*per)]"
}

// note explains element.
func (f groupForm) note() string {
	return [...]string{
		"", " Nibble k of a row is the low one of byte k/32*16+k%16 where k%32 < 16, else the high one.",
		" Code is the next of the row's values, whose first is value[start[r]], where bit k is set, else 0; eight are read wherever one begins.",
	}[f.kind]
}

// groupSums generates the sums of what groups meet, lane by lane.
func groupSums(a isa) {
	name := "sums_" + a.name
	begin(name, "func(chunks, per int, factor float32, x, sums *float32)",
		name+" sums up the columns that groups of so many chunks meet, of which the last may have fewer, lane by lane:",
		"",
		"\tfor k := range 32 * chunks {",
		fmt.Sprintf("\t\tsums[k/(32*per)*%d+k%%%d] += factor * x[k]", a.lanes, a.lanes),
		"\t}")
	left, per, x, to := Load(Param("chunks"), GP64()), Load(Param("per"), GP64()), Load(Param("x"), GP64()), Load(Param("sums"), GP64())
	factor, n := a.vec(), GP64()
	at, err := Param("factor").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(at.Addr, factor)
	Label("group")
	sum := a.zeros(1)[0]
	groupTake(n, per, left)
	Label("chunk")
	for i := 0; i < groupChunk; i += a.lanes {
		VADDPS(Mem{Base: x, Disp: 4 * i}, sum, sum)
	}
	add(4*groupChunk, x)
	DECQ(n)
	JNZ(LabelRef("chunk"))
	VMULPS(factor, sum, sum)
	VMOVUPS(sum, Mem{Base: to})
	add(a.bytes(), to)
	TESTQ(left, left)
	JNZ(LabelRef("group"))
	end()
}

// groupTake sets n to the chunks of the next group and takes them from those that are left.
func groupTake(n, per, left Register) {
	MOVQ(per, n)
	CMPQ(left, n)
	CMOVQLT(left, n)
	SUBQ(n, left)
}

// groupPlaces is a table by eight bits of where the bytes of eight double words come from: for each bit that is set the highest from how
// many are set below it, and nothing, which instructions that shuffle know as 128, for all others.
func groupPlaces() Mem {
	table := GLOBL("places", attr.RODATA|attr.NOPTR)
	for set := range 256 {
		n := 0
		for bit := range 8 {
			place := uint32(0x80)
			if set>>bit&1 == 1 {
				place = uint32(n)
				n++
			}
			DATA(4*(8*set+bit), U32(place<<24|0x808080))
		}
	}
	return table
}

// groupNibbles generates what makes i8 of a stream of halves of bytes.
func groupNibbles(a isa) {
	name := "nibbles_" + a.name
	begin(name, "func(blocks int, src *uint8, dst *int8)",
		name+" makes codes of halves of bytes, 32 at a time, and fetches those ahead:",
		"",
		"\tfor i := range 32 * blocks {",
		"\t\tdst[i] = src[i/2]>>(4*(i%2))&15 - 8",
		"\t}")
	blocks, src, dst := Load(Param("blocks"), GP64()), Load(Param("src"), GP64()), Load(Param("dst"), GP64())
	low, eight := groupBytesOf(15), groupBytesOf(8)
	Label("block")
	v, up := YMM(), YMM()
	VPMOVZXBW(Mem{Base: src}, v)
	VPSLLW(Imm(4), v, up)
	VPOR(up, v, v)
	VPAND(low, v, v)
	VPSUBB(eight, v, v)
	VMOVDQU(v, Mem{Base: dst})
	PREFETCHT0(Mem{Base: src, Disp: groupAhead})
	add(16, src)
	add(32, dst)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	end()
}

// groupBytesOf returns a vector whose bytes are n.
func groupBytesOf(n int) VecVirtual {
	r, v := GP32(), YMM()
	MOVL(U32(n), r)
	VMOVD(r, v.AsX())
	VPBROADCASTB(v.AsX(), v)
	return v
}

// dwordsOf returns a vector whose double words are n, and floatsOf one of floats.
func (a isa) dwordsOf(n int) VecVirtual {
	r, v := GP32(), a.vec()
	MOVL(U32(n), r)
	VMOVD(r, v.AsX())
	VPBROADCASTD(v.AsX(), v)
	return v
}

func (a isa) floatsOf(n int) VecVirtual {
	v := a.dwordsOf(n)
	VCVTDQ2PS(v, v)
	return v
}

// groupRowsAt is where rows are: the first, and how far they are apart, and three times that.
type groupRowsAt struct{ at, ld, ld3 Register }

func (s groupRowsAt) row(r, disp int) Mem {
	switch r {
	case 1:
		return Mem{Base: s.at, Index: s.ld, Scale: 1, Disp: disp}
	case 2:
		return Mem{Base: s.at, Index: s.ld, Scale: 2, Disp: disp}
	case 3:
		return Mem{Base: s.at, Index: s.ld3, Scale: 1, Disp: disp}
	}
	return Mem{Base: s.at, Disp: disp}
}

// groupLoop is what a kernel has in registers.
type groupLoop struct {
	groupForm
	codes, scales, zeros groupRowsAt
	values               [groupRows]Register // of bitmaps: where the next are
	ahead                Mem                 // where those of the next four rows begin, less four times where those of the first do
	places               Register            // of bitmaps without masks
	x, sums              Register
	next                 Register   // of codes to fetch
	both                 GPVirtual  // the number of values of a pair
	low                  VecVirtual // 15 in each double word
	eight                VecVirtual
	acc, group           [groupRows]VecVirtual
}

// vec generates the product of rows with a column, four at a time.
func (f groupForm) vec() {
	name := f.name("vec")
	signature := "func(blocks, whole, per, rest int, " + f.codeParam() + ", ldw int, " + f.scaleParam() + ", lds int, "
	if f.kind == groupBitmap {
		signature = "func(blocks, whole, per, rest int, " + f.codeParam() + ", ldw int, start *int, value *int8, " + f.scaleParam() + ", lds int, "
	}
	if f.zeros {
		signature += "zero *int8, "
	}
	if f.shifted() {
		signature += "sums, "
	}
	doc := []string{
		name + " multiplies blocks of four rows of a weight by one column: whole groups of per chunks of 32 columns, and one of rest." + f.note(),
	}
	if f.shifted() {
		doc = append(doc, "Sums are those of the column by group and lane, times "+[]string{"-1", "-8"}[b2i(!f.zeros)]+".")
	}
	doc = append(doc, "",
		"\tfor r := range 4 * blocks {",
		"\t\tvar s float32",
		"\t\tfor k := range 32 * (whole*per + rest) {",
		"\t\t\ts += "+f.element("r", "k")+" * x[k]",
		"\t\t}",
		"\t\ty[r] = s",
		"\t}")
	begin(name, signature+"x, y *float32)", doc...)
	l := &groupLoop{groupForm: f}
	l.run()
	end()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// rowsAt loads where rows of a parameter begin, and their distance in bytes.
func rowsAt(ld string, size int) groupRowsAt {
	s := groupRowsAt{GP64(), Load(Param(ld), GP64()), GP64()}
	if size > 1 {
		SHLQ(Imm(uint64(size/2)), s.ld)
	}
	LEAQ(Mem{Base: s.ld, Index: s.ld, Scale: 2}, s.ld3)
	return s
}

// local is a parameter in memory, which changes.
func local(name string) Mem {
	m, r := AllocLocal(8), GP64()
	Load(Param(name), r)
	MOVQ(r, m)
	return m
}

func (l *groupLoop) run() {
	blocks, y, scale := local("blocks"), local("y"), local("scale")
	groups, rest := AllocLocal(8), AllocLocal(8)
	code := "w"
	var start, zero Mem
	if l.kind == groupBitmap {
		code, start = "bits", local("start")
	}
	if l.groupForm.zeros {
		zero = local("zero")
	}
	w := local(code)
	l.codes, l.scales = rowsAt("ldw", 1), rowsAt("lds", l.scaleBytes())
	if l.groupForm.zeros {
		l.zeros = rowsAt("lds", 1)
	}
	l.constants()
	l.x = GP64()
	if l.shifted() {
		l.sums = GP64()
	}
	n := Op(GP64())
	if l.kind == groupBitmap { // which has no register left
		n, l.ahead = AllocLocal(8), AllocLocal(8)
	}

	Label("block")
	MOVQ(w, l.codes.at)
	MOVQ(scale, l.scales.at)
	if l.groupForm.zeros {
		MOVQ(zero, l.zeros.at)
	}
	if l.shifted() {
		Load(Param("sums"), l.sums)
	}
	if l.kind == groupBitmap {
		l.begin(start)
	} else {
		LEAQ(Mem{Base: l.codes.at, Index: l.codes.ld, Scale: 4}, l.next)
	}
	Load(Param("x"), l.x)
	copy(l.acc[:], l.isa.zeros(groupRows))
	l.count(groups, rest)
	JZ(LabelRef("last"))
	Label("group")
	take := GP64()
	Load(Param("per"), take)
	MOVQ(take, n)
	Label("some")
	l.begun()
	Label("chunk")
	l.chunk()
	DECQ(n)
	JNZ(LabelRef("chunk"))
	l.scaled()
	DECQ(groups)
	JNZ(LabelRef("group"))
	Label("last")
	last := GP64()
	MOVQ(rest, last)
	MOVQ(I32(0), rest)
	MOVQ(I32(1), groups)
	MOVQ(last, n)
	TESTQ(last, last)
	JNZ(LabelRef("some"))

	to := GP64()
	MOVQ(y, to)
	var unit VecVirtual
	if l.places != nil {
		unit = l.isa.vec()
		bits := GP32()
		MOVL(U32((127-24)<<23), bits)
		VMOVD(bits, unit.AsX())
	}
	for r, acc := range l.acc {
		sum := l.sum(acc).AsX()
		if unit != nil {
			VMULSS(unit.AsX(), sum, sum)
		}
		VMOVSS(sum, Mem{Base: to, Disp: 4 * r})
	}
	add(4*groupRows, to)
	MOVQ(to, y)
	step := GP64()
	advance := func(at Mem, s groupRowsAt) {
		LEAQ(Mem{Base: s.ld, Index: s.ld3, Scale: 1}, step)
		ADDQ(step, at)
	}
	advance(w, l.codes)
	advance(scale, l.scales)
	if l.groupForm.zeros {
		advance(zero, l.zeros)
	}
	if l.kind == groupBitmap {
		ADDQ(Imm(8*groupRows), start)
	}
	DECQ(blocks)
	JNZ(LabelRef("block"))
}

// count sets how many groups are whole, which flags tell from none, and the chunks of the last.
func (l *groupLoop) count(groups, rest Mem) {
	n, left := GP64(), GP64()
	Load(Param("whole"), n)
	Load(Param("rest"), left)
	MOVQ(left, rest)
	MOVQ(n, groups)
	TESTQ(n, n)
}

// constants loads what the form needs.
func (l *groupLoop) constants() {
	if l.kind == groupHalves {
		l.low = l.dwordsOf(15)
		if l.groupForm.zeros {
			l.eight = l.floatsOf(8)
		}
	}
	if l.kind != groupBitmap {
		l.next = GP64()
	}
	if l.kind == groupBitmap && l.lanes == 8 {
		l.places, l.both = GP64(), GP64()
		LEAQ(l.table, l.places)
		XORQ(l.both, l.both)
	}
}

// begin finds the values of four rows of bits, and fetches the bits of the next four.
func (l *groupLoop) begin(start Mem) {
	at, value := GP64(), GP64()
	MOVQ(start, at)
	Load(Param("value"), value)
	for r := range l.values {
		l.values[r] = GP64()
		MOVQ(Mem{Base: at, Disp: 8 * r}, l.values[r])
		ADDQ(value, l.values[r])
	}
	ahead, gone := GP64(), GP64()
	MOVQ(Mem{Base: at, Disp: 8 * groupRows}, ahead)
	ADDQ(value, ahead)
	MOVQ(l.values[0], gone)
	SHLQ(Imm(2), gone)
	SUBQ(gone, ahead)
	MOVQ(ahead, l.ahead)
	next, end := GP64(), GP64()
	LEAQ(Mem{Base: l.codes.at, Index: l.codes.ld, Scale: 4}, next)
	LEAQ(Mem{Base: next, Index: l.codes.ld, Scale: 4}, end)
	Label("bits")
	PREFETCHT0(Mem{Base: next})
	add(64, next)
	CMPQ(next, end)
	JB(LabelRef("bits"))
}

// begun begins the sums of a group.
func (l *groupLoop) begun() {
	if !l.shifted() {
		copy(l.group[:], l.isa.zeros(groupRows))
		return
	}
	sums := l.isa.vec()
	VMOVUPS(Mem{Base: l.sums}, sums)
	for r := range l.group {
		l.group[r] = l.isa.vec()
		if !l.groupForm.zeros {
			VMOVAPS(sums, l.group[r])
			continue
		}
		z := l.zero(l.zeros.row(r, 0))
		VMULPS(sums, z, l.group[r])
	}
	add(l.bytes(), l.sums)
	if l.groupForm.zeros {
		add(1, l.zeros.at)
	}
}

// zero returns what is to be subtracted from the codes of a group.
func (l *groupLoop) zero(from Mem) VecVirtual {
	z := l.isa.vec()
	VPBROADCASTB(from, z.AsX())
	VPMOVSXBD(z.AsX(), z)
	VCVTDQ2PS(z, z)
	if l.kind == groupHalves {
		VADDPS(l.eight, z, z)
	}
	return z
}

// scaleAt returns a scale in each lane.
func (l *groupLoop) scaleAt(from Mem) VecVirtual {
	s := l.isa.vec()
	if l.scale == "f32" {
		VBROADCASTSS(from, s)
		return s
	}
	x := s.AsX()
	if l.lanes == 16 {
		VPBROADCASTW(from, x)
		VCVTPH2PS(x, x)
		VBROADCASTSS(x, s)
		return s
	}
	VPBROADCASTW(from, x)
	VCVTPH2PS(x, s)
	return s
}

// scaled adds the sums of a group, times its scales, to those of rows.
func (l *groupLoop) scaled() {
	for r := range l.group {
		s := l.scaleAt(l.scales.row(r, 0))
		VFMADD231PS(s, l.group[r], l.acc[r])
	}
	add(l.scaleBytes(), l.scales.at)
}

// chunk multiplies 32 columns of W, and goes on to the next ones.
func (l *groupLoop) chunk() {
	size := l.chunkBytes()
	switch l.kind {
	case groupWhole, groupBitmap:
		if l.places != nil {
			l.pairs()
			break
		}
		for i := 0; i < groupChunk; i += l.lanes {
			x := l.vecAt(l.x, i)
			for r := range l.group {
				VFMADD231PS(x, l.coded(r, i), l.group[r])
			}
		}
	case groupHalves:
		for i := 0; i < groupChunk/2; i += l.lanes {
			x0, x1 := l.vecAt(l.x, i), l.vecAt(l.x, i+groupChunk/2)
			for r := range l.group {
				c0, c1 := l.halves(l.codes.row(r, i))
				VFMADD231PS(x0, c0, l.group[r])
				VFMADD231PS(x1, c1, l.group[r])
			}
		}
	}
	if l.kind == groupBitmap {
		next := GP64()
		MOVQ(l.ahead, next)
		LEAQ(Mem{Base: next, Index: l.values[0], Scale: groupRows}, next)
		PREFETCHT1(Mem{Base: next})
		PREFETCHT1(Mem{Base: next, Disp: 64})
	} else {
		for line := 0; line < groupRows*size; line += 64 { // of the next four rows, which follow each other
			PREFETCHT1(Mem{Base: l.next, Disp: line})
		}
		add(groupRows*size, l.next)
	}
	add(size, l.codes.at)
	add(4*groupChunk, l.x)
}

// pairs multiplies a chunk of a bitmap by eight columns after the other, two times eight of a row together: of these the values
// are counted at once.
func (l *groupLoop) pairs() {
	for i := 0; i < groupChunk; i += 2 * l.lanes {
		x0, x1 := l.vecAt(l.x, i), l.vecAt(l.x, i+l.lanes)
		for r, value := range l.values {
			first, second, n := GP64(), GP64(), GP64()
			MOVBLZX(l.codes.row(r, i/8), first.As32())
			POPCNTL(first.As32(), n.As32())
			v0 := l.spread(Mem{Base: value}, first)
			MOVBLZX(l.codes.row(r, i/8+1), second.As32())
			POPCNTW(l.codes.row(r, i/8), l.both.As16())
			v1 := l.spread(Mem{Base: value, Index: n, Scale: 1}, second)
			ADDQ(l.both, value)
			VFMADD231PS(x0, v0, l.group[r])
			VFMADD231PS(x1, v1, l.group[r])
		}
	}
}

// spread returns values at the places of bits, as floats times 2^24, zeros elsewhere.
func (l *groupLoop) spread(values Mem, set GPVirtual) VecVirtual {
	v := l.isa.vec()
	VPBROADCASTQ(values, v)
	SHLL(Imm(5), set.As32())
	VPSHUFB(Mem{Base: l.places, Index: set, Scale: 1}, v, v)
	VCVTDQ2PS(v, v)
	return v
}

// vecAt loads the vector that begins with element i.
func (a isa) vecAt(from Register, i int) VecVirtual {
	v := a.vec()
	VMOVUPS(Mem{Base: from, Disp: 4 * i}, v)
	return v
}

// coded returns the codes of row r from column i of a chunk on, as floats.
func (l *groupLoop) coded(r, i int) VecVirtual {
	v := l.isa.vec()
	if l.kind == groupWhole {
		VPMOVSXBD(l.codes.row(r, i), v)
		VCVTDQ2PS(v, v)
		return v
	}
	l.placed(l.codes.row(r, i/8), l.values[r], v)
	VCVTDQ2PS(v, v)
	return v
}

// placed puts the next values at the places of bits, as double words in v, zeros elsewhere, and moves on.
func (l *groupLoop) placed(bits Mem, value Register, v VecVirtual) {
	set, n := GP64(), GP64()
	if l.lanes == 16 {
		mask := K()
		MOVWLZX(bits, set.As32())
		KMOVW(set.As32(), mask)
		POPCNTL(set.As32(), n.As32())
		VPMOVSXBD(Mem{Base: value}, v)
		VPEXPANDD_Z(v, mask, v)
		ADDQ(n, value)
		return
	}
	MOVBLZX(bits, set.As32())
	POPCNTL(set.As32(), n.As32())
	VPBROADCASTQ(Mem{Base: value}, v)
	SHLL(Imm(5), set.As32())
	VPSHUFB(Mem{Base: l.places, Index: set, Scale: 1}, v, v)
	VPSRAD(Imm(24), v, v)
	ADDQ(n, value)
}

// halves returns the codes + 8 in the low and in the high halves of bytes, as floats.
func (l *groupLoop) halves(from Mem) (low, high VecVirtual) {
	low, high = l.isa.vec(), l.isa.vec()
	VPMOVZXBD(from, high)
	if l.lanes == 16 {
		VPANDD(l.low, high, low)
	} else {
		VPAND(l.low, high, low)
	}
	VPSRLD(Imm(4), high, high)
	VCVTDQ2PS(low, low)
	VCVTDQ2PS(high, high)
	return low, high
}

// widen generates what makes floats of a row.
func (f groupForm) widen() {
	name := f.name("widen")
	signature := "func(chunks, per int, " + f.codeParam() + ", " + f.scaleParam() + ", "
	if f.kind == groupBitmap {
		signature = "func(chunks, per int, " + f.codeParam() + ", value *int8, " + f.scaleParam() + ", "
	}
	if f.zeros {
		signature += "zero *int8, "
	}
	begin(name, signature+"dst *float32)",
		name+" makes floats of the row 0 of a weight in groups of so many chunks of 32 columns."+f.note(),
		"",
		"\tfor k := range 32 * chunks {",
		"\t\tdst[k] = "+f.element("0", "k"),
		"\t}")
	l := &groupLoop{groupForm: f}
	left, per, n := Load(Param("chunks"), GP64()), Load(Param("per"), GP64()), GP64()
	if f.kind == groupBitmap {
		l.codes.at = Load(Param("bits"), GP64())
		l.values[0] = Load(Param("value"), GP64())
	} else {
		l.codes.at = Load(Param("w"), GP64())
	}
	l.scales.at, l.x = Load(Param("scale"), GP64()), Load(Param("dst"), GP64())
	if f.zeros {
		l.zeros.at = Load(Param("zero"), GP64())
	}
	l.constants()
	var zero VecVirtual
	if f.kind == groupHalves && !f.zeros {
		zero = l.floatsOf(8)
	}
	Label("group")
	s := l.scaleAt(l.scales.row(0, 0))
	add(f.scaleBytes(), l.scales.at)
	if f.zeros {
		zero = l.zero(l.zeros.row(0, 0))
		add(1, l.zeros.at)
	}
	groupTake(n, per, left)
	Label("chunk")
	store := func(i int, v VecVirtual) {
		if f.shifted() {
			VSUBPS(zero, v, v)
		}
		VMULPS(s, v, v)
		VMOVUPS(v, Mem{Base: l.x, Disp: 4 * i})
	}
	if f.kind == groupHalves {
		for i := 0; i < groupChunk/2; i += l.lanes {
			low, high := l.halves(l.codes.row(0, i))
			store(i, low)
			store(i+groupChunk/2, high)
		}
	} else {
		for i := 0; i < groupChunk; i += l.lanes {
			store(i, l.coded(0, i))
		}
	}
	add(f.chunkBytes(), l.codes.at)
	add(4*groupChunk, l.x)
	DECQ(n)
	JNZ(LabelRef("chunk"))
	TESTQ(left, left)
	JNZ(LabelRef("group"))
	end()
}
