package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// widenHalf generates the conversion of 16-bit numbers, f16 or bf16, to f32, sixteen at a
// time.
func widenHalf(a isa, format string) {
	name := "widen_" + format + "_" + a.name
	begin(name, "func(blocks int, src *uint16, dst *float32)",
		name+" is",
		"",
		"\tfor i := range 16 * blocks {",
		"\t\tdst[i] = "+format+"(src[i])",
		"\t}")
	blocks := Load(Param("blocks"), GP64())
	src := Load(Param("src"), GP64())
	dst := Load(Param("dst"), GP64())
	Label("block")
	for i := 0; i < 16; i += a.lanes {
		x := a.vec()
		widened(format, Mem{Base: src, Disp: 2 * i}, x)
		VMOVUPS(x, Mem{Base: dst, Disp: 4 * i})
	}
	add(32, src)
	add(64, dst)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	end()
}

// widened makes f32 of as many numbers of 16 bits as x has lanes.
func widened(format string, from Mem, x VecVirtual) {
	if format == "f16" {
		VCVTPH2PS(from, x)
		return
	}
	VPMOVZXWD(from, x)
	VPSLLD(Imm(16), x, x)
}

// narrowHalf generates the rounding of f32 to f16, sixteen at a time.
func narrowHalf(a isa) {
	name := "narrow_f16_" + a.name
	begin(name, "func(blocks int, src *float32, dst *uint16)",
		name+" is",
		"",
		"\tfor i := range 16 * blocks {",
		"\t\tdst[i] = roundToEven(src[i])",
		"\t}")
	blocks := Load(Param("blocks"), GP64())
	src := Load(Param("src"), GP64())
	dst := Load(Param("dst"), GP64())
	Label("block")
	for i := 0; i < 16; i += a.lanes {
		x := a.vec()
		VMOVUPS(Mem{Base: src, Disp: 4 * i}, x)
		VCVTPS2PH(Imm(0), x, Mem{Base: dst, Disp: 2 * i})
	}
	add(64, src)
	add(32, dst)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	end()
}
