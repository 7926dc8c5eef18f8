package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Neither avo nor Go's assembler knows AMX, so its instructions are written as bytes:
// Intel, "Intel Architecture Instruction Set Extensions", chapter on AMX. Operands are
// in fixed registers.

// code adds bytes to the function.
func code(b ...byte) {
	for _, x := range b {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(x)}})
	}
}

// The numbers of registers in the encoding of an address.
var number = map[Register]byte{RAX: 0, RCX: 1, RDX: 2, RBX: 3, RSI: 6, RDI: 7}

// tileMove moves a tile from or to rows at base+disp, index apart. prefix is that of
// the instruction: 0x7b to load, 0x7a to store.
func tileMove(prefix byte, tile int, base, index Register, disp int8) {
	sib := number[index]<<3 | number[base]
	if disp == 0 {
		code(0xc4, 0xe2, prefix, 0x4b, byte(tile)<<3|4, sib)
		return
	}
	code(0xc4, 0xe2, prefix, 0x4b, 0x40|byte(tile)<<3|4, sib, byte(disp))
}

func tileLoad(tile int, base, index Register, disp int8)  { tileMove(0x7b, tile, base, index, disp) }
func tileStore(tile int, base, index Register, disp int8) { tileMove(0x7a, tile, base, index, disp) }
func tileZero(tile int)                                   { code(0xc4, 0xe2, 0x7b, 0x49, 0xc0|byte(tile)<<3) }
func tileRelease()                                        { code(0xc4, 0xe2, 0x78, 0x49, 0xc0) }

// tileMultiply adds the product of tiles a and b to sum. The bytes of a are signed and
// those of b not, or the other way round.
func tileMultiply(sum, a, b int, signed bool) {
	prefix := byte(1)
	if signed {
		prefix = 2
	}
	code(0xc4, 0xe2, (15-byte(b))<<3|prefix, 0x5e, 0xc0|byte(sum)<<3|byte(a))
}

// amxConfig is a configuration of eight tiles of 16 rows of 64 bytes.
func amxConfig() Mem {
	var b [64]byte
	b[0] = 1
	for t := range 8 {
		b[16+2*t] = 64
		b[48+t] = 16
	}
	return constant64("amxConfig", b)
}

// amxGemm generates products of blocks of rows tiles of 16 rows, 1 or 2, with vectors
// of 16 columns, 1 or 2.
func amxGemm(config Mem, rows, vectors int, weightLeft bool) {
	types, left, right := "s8u8", "int8", "uint8"
	if !weightLeft {
		types, left, right = "u8s8", "uint8", "int8"
	}
	name := fmt.Sprintf("gemm_%s_%dx%d_amx", types, 16*rows, 16*vectors)
	begin(name, fmt.Sprintf("func(blocks, k64 int, a *%s, lda int, b *%s, at *int32, pitch int, c *int32)", left, right),
		fmt.Sprintf("%s computes blocks of %d rows of a product; the rows of c are %d elements apart:", name, 16*rows, intColumns),
		"",
		fmt.Sprintf("\tfor r := range %d * blocks {", 16*rows),
		fmt.Sprintf("\t\tfor j := range %d {", 16*vectors),
		"\t\t\tvar s int32",
		"\t\t\tfor i := range 64 * k64 {",
		"\t\t\t\ts += int32(a[r*lda+i]) * int32(b[int(at[i/64])+i%64/4*pitch+4*j+i%4])",
		"\t\t\t}",
		fmt.Sprintf("\t\t\tc[r*%d+j] = s", intColumns),
		"\t\t}",
		"\t}")
	LEAQ(config, RAX)
	code(0xc4, 0xe2, 0x78, 0x49, 0x00) // LDTILECFG (AX)
	blocks := Load(Param("blocks"), R8)
	Load(Param("lda"), RCX)
	Load(Param("c"), RSI)
	a := Load(Param("a"), R9)
	base := Load(Param("b"), R12)
	step := R11 // between the blocks of a
	MOVQ(RCX, step)
	SHLQ(Imm(uint64(3+rows)), step)

	Label("block")
	MOVQ(a, RAX)
	if rows > 1 {
		MOVQ(RCX, RBX)
		SHLQ(Imm(4), RBX)
		ADDQ(RAX, RBX)
	}
	at := Load(Param("at"), R13)
	Load(Param("pitch"), RDI)
	k := Load(Param("k64"), R10)
	sum := func(r, v int) int { return 2*r + v }
	for r := range rows {
		for v := range vectors {
			tileZero(sum(r, v))
		}
	}
	Label("loop")
	MOVLQSX(Mem{Base: at}, RDX)
	add(4, at)
	ADDQ(base, RDX)
	for v := range vectors {
		tileLoad(6+v, RDX, RDI, int8(64*v))
	}
	for r := range rows {
		tileLoad(4+r, []Register{RAX, RBX}[r], RCX, 0)
		for v := range vectors {
			tileMultiply(sum(r, v), 4+r, 6+v, weightLeft)
		}
	}
	ADDQ(Imm(64), RAX)
	if rows > 1 {
		ADDQ(Imm(64), RBX)
	}
	DECQ(k)
	JNZ(LabelRef("loop"))
	MOVQ(U32(4*intColumns), RDI)
	for r := range rows {
		for v := range vectors {
			tileStore(sum(r, v), RSI, RDI, int8(64*v))
		}
		add(16*groupBytes, RSI)
	}
	ADDQ(step, a)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	tileRelease()
	RET()
}
