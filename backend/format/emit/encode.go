package emit

import "encoding/binary"

// General registers by their numbers.
const (
	rcx = 1
	rsi = 6
	r8  = 8
	r9  = 9
	r11 = 11
)

// assembler appends instructions of x86-64. Operands are numbers of registers and
// displacements in bytes; rsp, r12, and what has the low three bits of rsp, are no
// bases.
type assembler struct{ text []byte }

// maps of opcodes and prefixes, as EVEX encodes them.
const (
	map0F, map0F38 = 1, 2
	prefixNone     = 0
	prefix66       = 1
)

// evex appends prefix and opcode of an instruction on 512 bits: reg and other are
// its first two operands, rm the register, below 32, or the base of the memory that
// is its last.
func (a *assembler) evex(opcodes, prefix, opcode byte, broadcast bool, reg, other, rm int) {
	bit := func(v, n, at int) byte { return byte(^v>>n&1) << at }
	p := [5]byte{
		0x62,
		bit(reg, 3, 7) | bit(rm, 4, 6) | bit(rm, 3, 5) | bit(reg, 4, 4) | opcodes,
		byte(^other&15)<<3 | 1<<2 | prefix,
		2<<5 | bit(other, 4, 3),
		opcode,
	}
	if broadcast {
		p[3] |= 1 << 4
	}
	a.text = append(a.text, p[:]...)
}

// memory appends what names [base+disp], the displacement in one byte if it is a
// small multiple of unit.
func (a *assembler) memory(reg, base, disp, unit int) {
	modrm := byte(reg&7)<<3 | byte(base&7)
	if disp%unit == 0 && disp/unit == int(int8(disp/unit)) {
		a.text = append(a.text, 1<<6|modrm, byte(disp/unit))
		return
	}
	a.text = binary.LittleEndian.AppendUint32(append(a.text, 2<<6|modrm), uint32(disp))
}

// load is VMOVUPS zmm, [base+disp].
func (a *assembler) load(zmm, base, disp int) {
	a.evex(map0F, prefixNone, 0x10, false, zmm, 0, base)
	a.memory(zmm, base, disp, 64)
}

// store is VMOVUPS [base+disp], zmm.
func (a *assembler) store(zmm, base, disp int) {
	a.evex(map0F, prefixNone, 0x11, false, zmm, 0, base)
	a.memory(zmm, base, disp, 64)
}

// zero is VPXORD zmm, zmm, zmm.
func (a *assembler) zero(zmm int) {
	a.evex(map0F, prefix66, 0xEF, false, zmm, zmm, zmm)
	a.text = append(a.text, 3<<6|byte(zmm&7)<<3|byte(zmm&7))
}

// multiplyAdd is VFMADD231PS sum, x, dword [base+disp]{1to16}.
func (a *assembler) multiplyAdd(sum, x, base, disp int) {
	a.evex(map0F38, prefix66, 0xB8, true, sum, x, base)
	a.memory(sum, base, disp, 4)
}

// rex is the prefix of an instruction on 64 bits, with the high bits of registers.
func rex(reg, rm int) byte { return 0x48 | byte(reg>>3)<<2 | byte(rm>>3) }

// add is ADD reg, n; nothing for 0.
func (a *assembler) add(reg, n int) {
	switch modrm := 3<<6 | byte(reg&7); {
	case n == 0:
	case n == int(int8(n)):
		a.text = append(a.text, rex(0, reg), 0x83, modrm, byte(n))
	default:
		a.text = binary.LittleEndian.AppendUint32(append(a.text, rex(0, reg), 0x81, modrm), uint32(n))
	}
}

// decrement is DEC reg.
func (a *assembler) decrement(reg int) {
	a.text = append(a.text, rex(0, reg), 0xFF, 3<<6|1<<3|byte(reg&7))
}

// address is LEA reg, [rip+...] for a place in the text that set fills in later.
func (a *assembler) address(reg int) (hole int) {
	a.text = append(a.text, rex(reg, 0), 0x8D, byte(reg&7)<<3|5, 0, 0, 0, 0)
	return len(a.text) - 4
}

// set makes the address in a hole that of the given place in the text.
func (a *assembler) set(hole, place int) {
	binary.LittleEndian.PutUint32(a.text[hole:], uint32(place-hole-4))
}

// jumpUnlessZero is JNE to a place in the text.
func (a *assembler) jumpUnlessZero(place int) {
	a.text = append(a.text, 0x0F, 0x85, 0, 0, 0, 0)
	a.set(len(a.text)-4, place)
}

// prefetch is PREFETCHT1 [base+disp].
func (a *assembler) prefetch(base, disp int) {
	if base >= 8 {
		a.text = append(a.text, 0x41)
	}
	a.text = append(a.text, 0x0F, 0x18)
	a.memory(2, base, disp, 1)
}

// ret is RET.
func (a *assembler) ret() { a.text = append(a.text, 0xC3) }

// align fills up with what is never run.
func (a *assembler) align(n int) {
	for len(a.text)%n != 0 {
		a.text = append(a.text, 0xCC)
	}
}
