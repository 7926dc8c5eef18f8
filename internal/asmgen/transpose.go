package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// transpose16 generates the transposition of a strip of sixteen rows by blocks of
// four columns, for AVX-512. A register takes four columns of every fourth row, so
// that two rounds of shuffles give whole columns, which are stored as whole cache
// lines where dst is aligned.
func transpose16() {
	const name = "transpose16_avx512"
	begin(name, "func(blocks int, dst *float32, ldd int, src *float32, lds int)",
		name+" is",
		"",
		"\tfor c := range 4 * blocks {",
		"\t\tfor r := range 16 {",
		"\t\t\tdst[c*ldd+r] = src[r*lds+c]",
		"\t\t}",
		"\t}")
	blocks := Load(Param("blocks"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	lds := GP64()
	quarter := make([]Register, 4) // rows 0, 4, 8 and 12
	for q := range quarter {
		quarter[q] = GP64()
	}
	_ = Load(Param("src"), quarter[0])
	_ = Load(Param("lds"), lds)
	SHLQ(Imm(2), ldd)
	SHLQ(Imm(2), lds)
	for q := range quarter[1:] {
		LEAQ(Mem{Base: quarter[q], Index: lds, Scale: 4}, quarter[q+1])
	}
	lds3, ldd3 := GP64(), GP64()
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, lds3)
	LEAQ(Mem{Base: ldd, Index: ldd, Scale: 2}, ldd3)
	at := func(base, ld, ld3 Register, i int) Mem {
		switch i {
		case 1, 2:
			return Mem{Base: base, Index: ld, Scale: uint8(i)}
		case 3:
			return Mem{Base: base, Index: ld3, Scale: 1}
		}
		return Mem{Base: base}
	}
	Label("block")
	in := make([]VecVirtual, 4)
	for r := range in {
		in[r] = ZMM()
		VMOVUPS(at(quarter[0], lds, lds3, r), in[r].AsX())
		for q := 1; q < 4; q++ {
			VINSERTF32X4(Imm(uint64(q)), at(quarter[q], lds, lds3, r), in[r], in[r])
		}
	}
	pairs := make([]VecVirtual, 4)
	for i := range pairs {
		pairs[i] = ZMM()
	}
	VUNPCKLPS(in[1], in[0], pairs[0])
	VUNPCKHPS(in[1], in[0], pairs[1])
	VUNPCKLPS(in[3], in[2], pairs[2])
	VUNPCKHPS(in[3], in[2], pairs[3])
	for c := range 4 {
		out := ZMM()
		if c%2 == 0 {
			VUNPCKLPD(pairs[2+c/2], pairs[c/2], out)
		} else {
			VUNPCKHPD(pairs[2+c/2], pairs[c/2], out)
		}
		VMOVUPS(out, at(dst, ldd, ldd3, c))
	}
	LEAQ(Mem{Base: dst, Index: ldd, Scale: 4}, dst)
	for _, q := range quarter {
		add(16, q)
	}
	DECQ(blocks)
	JNZ(LabelRef("block"))
	end()
}
