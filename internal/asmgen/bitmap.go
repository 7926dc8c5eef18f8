package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// bitmapColumns are the columns of X that kernels of bitmaps multiply together: they share the values that were put in their places.
var bitmapColumns = []int{1, 2, 4, 8}

// bitmapValue is a type of the values of bitmaps.
type bitmapValue struct {
	name, typ string
	size      int
}

var bitmapValues = []bitmapValue{{"f32", "float32", 4}, {"f16", "uint16", 2}, {"bf16", "uint16", 2}}

// bitmapAhead is how far ahead, in bytes, values are fetched: beyond the page at whose end processors stop to do so themselves. Bits
// are fetched a part of that ahead.
const bitmapAhead = 4096

// bitmaps generates products of rows of bitmaps with single columns.
func bitmaps() {
	places, pairs := bitmapPlaces("places", 1), bitmapPlaces("pairs", 2)
	for _, a := range isas {
		for _, v := range bitmapValues {
			table := places
			if v.size == 2 {
				table = pairs
			}
			for _, columns := range bitmapColumns {
				bitmapProduct(a, v, table, columns)
			}
		}
	}
}

// bitmapPlaces is a table by eight bits of where their values come from: for each bit that is set how many are set below it, and
// -128 for the others, as the instructions that shuffle have it, each in so many bytes.
func bitmapPlaces(name string, wide int) Mem {
	table := GLOBL(name, attr.RODATA|attr.NOPTR)
	for set := range 256 {
		words, n := make([]uint64, wide), 0
		for bit := range 8 {
			for b := range wide {
				place := uint64(0x80)
				if set>>bit&1 == 1 {
					place = uint64(wide*n + b)
				}
				at := wide*bit + b
				words[at/8] |= place << (8 * (at % 8))
			}
			n += set >> bit & 1
		}
		for i, w := range words {
			DATA(8*(wide*set+i), U64(w))
		}
	}
	return table
}

// bitmapProduct generates the product of rows with some columns.
func bitmapProduct(a isa, v bitmapValue, table Mem, columns int) {
	name := fmt.Sprintf("bitmap_%s_1x%d_%s", v.name, columns, a.name)
	reads := " Eight values are read wherever one begins:"
	if a.lanes == 16 {
		reads = " No values are read but those of the bits:"
	}
	begin(name, "func(rows, words int, bits *uint64, value *"+v.typ+", x *float32, ldx int, tail, y *float32, ldy int)",
		fmt.Sprintf("%s multiplies rows, of so many words of bits, by %s. The last word meets tail, unless that is nil."+reads, name, count(columns)),
		"",
		"\tfor r := range rows {",
		fmt.Sprintf("\t\tvar s [%d]float32", columns),
		"\t\tfor w := range words {",
		"\t\t\tx, ldx := x[64*w:], ldx",
		"\t\t\tif tail != nil && w == words-1 {",
		"\t\t\t\tx, ldx = tail, 64",
		"\t\t\t}",
		"\t\t\tfor k := range 64 {",
		"\t\t\t\tif bits[r*words+w]>>k&1 == 1 {",
		"\t\t\t\t\tfor c := range s {",
		"\t\t\t\t\t\ts[c] += float32(value[0]) * x[c*ldx+k]",
		"\t\t\t\t\t}",
		"\t\t\t\t\tvalue = value[1:]",
		"\t\t\t\t}",
		"\t\t\t}",
		"\t\t}",
		"\t\tfor c, s := range s {",
		"\t\t\ty[c*ldy+r] = s",
		"\t\t}",
		"\t}")
	b := &bitmapLoop{isa: a, of: v, columns: columns}
	b.run(table)
	end()
}

func count(columns int) string {
	if columns == 1 {
		return "one column"
	}
	return fmt.Sprintf("%d columns", columns)
}

// bitmapLoop is what a kernel has in registers.
type bitmapLoop struct {
	isa
	of          bitmapValue
	columns     int
	value, at   Register // at is the number of the next value
	bits, table Register // table is 16 bits that are set where masks take its place
	x, x4       Register // of column 0 and of column 4
	ldx, ldx3   Register
	zero        VecVirtual
	sums        [][][]VecVirtual // [sets][1][columns]
}

func (b *bitmapLoop) run(table Mem) {
	left, y := AllocLocal(8), AllocLocal(8)
	MOVQ(Load(Param("rows"), GP64()), left)
	MOVQ(Load(Param("y"), GP64()), y)
	b.value, b.bits, b.at = Load(Param("value"), GP64()), Load(Param("bits"), GP64()), GP64()
	b.table, b.x, b.x4, b.ldx, b.ldx3 = GP64(), GP64(), GP64(), GP64(), GP64()
	XORQ(b.at, b.at)
	if b.lanes == 16 {
		MOVL(U32(0xffff), b.table.(GPVirtual).As32())
	} else {
		LEAQ(table, b.table)
		if b.of.size == 4 {
			b.zero = b.zeros(1)[0]
		}
	}
	n, tail := GP64(), GP64()

	Label("row")
	b.sums = b.tileSets(max(1, 4/b.columns, min(2, 8/b.columns)), 1, b.columns)
	Load(Param("x"), b.x)
	Load(Param("ldx"), b.ldx)
	SHLQ(Imm(2), b.ldx)
	b.apart()
	Load(Param("words"), n)
	Load(Param("tail"), tail)
	TESTQ(tail, tail)
	JZ(LabelRef("whole"))
	DECQ(n)
	Label("whole")
	TESTQ(n, n)
	JZ(LabelRef("last"))
	Label("word")
	b.word()
	DECQ(n)
	JNZ(LabelRef("word"))
	Label("last")
	TESTQ(tail, tail)
	JZ(LabelRef("sum"))
	MOVQ(tail, b.x)
	XORQ(tail, tail)
	MOVQ(U32(256), b.ldx)
	b.apart()
	MOVQ(U32(1), n)
	JMP(LabelRef("word"))

	Label("sum")
	to, ldy := GP64(), GP64()
	MOVQ(y, to)
	ADDQ(Imm(4), y)
	Load(Param("ldy"), ldy)
	for c, sum := range fold(b.sums)[0] {
		VMOVSS(b.sum(sum).AsX(), Mem{Base: to})
		if c < b.columns-1 {
			LEAQ(Mem{Base: to, Index: ldy, Scale: 4}, to)
		}
	}
	DECQ(left)
	JNZ(LabelRef("row"))
}

// apart sets what follows from where columns are, as far as there are so many.
func (b *bitmapLoop) apart() {
	if b.columns > 2 {
		LEAQ(Mem{Base: b.ldx, Index: b.ldx, Scale: 2}, b.ldx3)
	}
	if b.columns > 4 {
		LEAQ(Mem{Base: b.x, Index: b.ldx, Scale: 4}, b.x4)
	}
}

// column is where the elements of a column begin that meet the i-th vector of a word.
func (b *bitmapLoop) column(c, i int) Mem {
	base := b.x
	if c >= 4 {
		base = b.x4
	}
	switch c % 4 {
	case 0:
		return Mem{Base: base, Disp: b.bytes() * i}
	case 3:
		return Mem{Base: base, Index: b.ldx3, Scale: 1, Disp: b.bytes() * i}
	}
	return Mem{Base: base, Index: b.ldx, Scale: uint8(c % 4), Disp: b.bytes() * i}
}

// word multiplies 64 columns of W, and goes on to the next ones.
func (b *bitmapLoop) word() {
	for i := range 64 / b.lanes {
		v := b.placed(i)
		for c, sum := range b.sums[i%len(b.sums)][0] {
			VFMADD231PS(b.column(c, i), v, sum)
		}
	}
	for line := 0; line < 32*b.of.size; line += 64 { // of a word that is half full
		PREFETCHT0(Mem{Base: b.value, Index: b.at, Scale: uint8(b.of.size), Disp: bitmapAhead + line})
	}
	PREFETCHT0(Mem{Base: b.bits, Disp: bitmapAhead / 4})
	add(8, b.bits)
	add(256, b.x)
	if b.columns > 4 {
		add(256, b.x4)
	}
}

// placed returns the next values at the places of the bits of a word that the i-th vector has, as f32, zeros elsewhere, and moves on.
func (b *bitmapLoop) placed(i int) VecVirtual {
	if b.lanes == 16 {
		return b.expanded(i)
	}
	set, n, v := GP64(), GP64(), b.vec()
	MOVBLZX(Mem{Base: b.bits, Disp: i}, set.As32())
	POPCNTL(set.As32(), n.As32())
	from := Mem{Base: b.value, Index: b.at, Scale: uint8(b.of.size)}
	switch b.of.size {
	case 4:
		places := b.vec()
		VPMOVSXBD(Mem{Base: b.table, Index: set, Scale: 8}, places)
		VPERMPS(from, places, v)
		VBLENDVPS(places, b.zero, v, v)
	case 2:
		x := XMM()
		ADDL(set.As32(), set.As32())
		VMOVDQU(from, x)
		VPSHUFB(Mem{Base: b.table, Index: set, Scale: 8}, x, x)
		if b.of.name == "f16" {
			VCVTPH2PS(x, v)
		} else {
			VPMOVZXWD(x, v)
			VPSLLD(Imm(16), v, v)
		}
	}
	ADDQ(n, b.at)
	return v
}

// expanded is placed with masks: of the places, and of as many values as there are, so that no others are read.
func (b *bitmapLoop) expanded(i int) VecVirtual {
	set, n, places, v := GP64(), GP64(), K(), b.vec()
	MOVWLZX(Mem{Base: b.bits, Disp: 2 * i}, set.As32())
	KMOVW(set.As32(), places)
	POPCNTL(set.As32(), n.As32())
	from := Mem{Base: b.value, Index: b.at, Scale: uint8(b.of.size)}
	if b.of.size == 4 {
		VEXPANDPS_Z(from, places, v)
	} else {
		first, mask := GP32(), K()
		BZHIL(n.As32(), b.table.(GPVirtual).As32(), first)
		KMOVW(first, mask)
		if b.of.name == "f16" {
			VCVTPH2PS_Z(from, mask, v)
		} else {
			VPMOVZXWD_Z(from, mask, v)
			VPSLLD(Imm(16), v, v)
		}
		VEXPANDPS_Z(v, places, v)
	}
	ADDQ(n, b.at)
	return v
}
