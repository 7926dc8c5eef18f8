package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// conversion describes a loop that converts as many elements as a vector has 32-bit lanes at a time. made returns them, in
// two registers where they have 64 bits, from where the others are in memory.
type conversion struct {
	name     string
	from, to int // bytes of an element
	loop     string
	made     func(a isa, x Mem) []Register
}

// shuffles take the first bytes of the 32-bit lanes in each half of a vector, and the first pairs of bytes.
var shuffles Mem

func shuffleTables() {
	shuffles = GLOBL("shuffles", attr.RODATA|attr.NOPTR)
	for i, bits := range []uint64{0xffffffff0c080400, 0x0d0c090805040100} {
		for j := range 2 {
			DATA(32*i+16*j, U64(bits))
			DATA(32*i+16*j+8, U64(1<<64-1))
		}
	}
}

// loads makes a vector by an instruction that reads memory, and by others that follow.
func loads(ops ...func(...Op)) func(a isa, x Mem) []Register {
	return func(a isa, x Mem) []Register {
		v := a.vec()
		ops[0](x, v)
		for _, op := range ops[1:] {
			op(v, v)
		}
		return []Register{v}
	}
}

// doubled makes two vectors of 64-bit lanes by an instruction that reads half a vector.
func doubled(op func(...Op)) func(a isa, x Mem) []Register {
	return func(a isa, x Mem) []Register {
		low, high := a.vec(), a.vec()
		op(x, low)
		op(x.Offset(a.bytes()/2), high)
		return []Register{low, high}
	}
}

// halved makes two half vectors by an instruction that reads a vector of 64-bit lanes, whose name depends on its length.
func halved(of16, of8 func(...Op)) func(a isa, x Mem) []Register {
	return func(a isa, x Mem) []Register {
		op, low, high := of8, Register(XMM()), Register(XMM())
		if a.lanes == 16 {
			op, low, high = of16, YMM(), YMM()
		}
		op(x, low)
		op(x.Offset(a.bytes()), high)
		return []Register{low, high}
	}
}

// cut makes elements of one or two bytes of 32-bit lanes.
func (a isa) cut(v VecVirtual, bytes int) []Register {
	r := XMM()
	switch {
	case a.lanes == 16 && bytes == 1:
		VPMOVDB(v, r)
	case a.lanes == 16:
		VPMOVDW(v, v.AsY())
		return []Register{v.AsY()}
	case bytes == 1:
		VPSHUFB(shuffles, v, v)
		VEXTRACTI128(Imm(1), v, r)
		VPUNPCKLDQ(r, v.AsX(), r)
	default:
		VPSHUFB(shuffles.Offset(32), v, v)
		VPERMQ(Imm(8), v, v)
		return []Register{v.AsX()}
	}
	return []Register{r}
}

// narrows makes elements of one or two bytes of integers in memory.
func narrows(bytes int) func(a isa, x Mem) []Register {
	return func(a isa, x Mem) []Register {
		v := a.vec()
		VMOVUPS(x, v)
		return a.cut(v, bytes)
	}
}

// conversions lists the kernels of conversions.
var conversions = []conversion{
	{"byteFloats", 1, 4, "y[i] = float32(x[i])", loads(VPMOVZXBD, VCVTDQ2PS)},
	{"int8Floats", 1, 4, "y[i] = float32(x[i])", loads(VPMOVSXBD, VCVTDQ2PS)},
	{"uint16Floats", 2, 4, "y[i] = float32(x[i])", loads(VPMOVZXWD, VCVTDQ2PS)},
	{"int16Floats", 2, 4, "y[i] = float32(x[i])", loads(VPMOVSXWD, VCVTDQ2PS)},
	{"int32Floats", 4, 4, "y[i] = float32(x[i])", loads(VCVTDQ2PS)},
	{"byteInt32s", 1, 4, "y[i] = int32(x[i])", loads(VPMOVZXBD)},
	{"int8Int32s", 1, 4, "y[i] = int32(x[i])", loads(VPMOVSXBD)},
	{"uint16Int32s", 2, 4, "y[i] = int32(x[i])", loads(VPMOVZXWD)},
	{"int16Int32s", 2, 4, "y[i] = int32(x[i])", loads(VPMOVSXWD)},
	{"floatInt32s", 4, 4, "y[i] = int32(x[i])", loads(VCVTTPS2DQ)},
	{"floatDoubles", 4, 8, "y[i] = float64(x[i])", doubled(VCVTPS2PD)},
	{"int32Doubles", 4, 8, "y[i] = float64(x[i])", doubled(VCVTDQ2PD)},
	{"int32Int64s", 4, 8, "y[i] = int64(x[i])", doubled(VPMOVSXDQ)},
	{"int32Int8s", 4, 1, "y[i] = int8(x[i])", narrows(1)},
	{"int32Int16s", 4, 2, "y[i] = int16(x[i])", narrows(2)},
	{"doubleFloats", 8, 4, "y[i] = float32(x[i])", halved(VCVTPD2PS, VCVTPD2PSY)},
	{"doubleInt32s", 8, 4, "y[i] = int32(x[i])", halved(VCVTTPD2DQ, VCVTTPD2DQY)},
	{"int64Int32s", 8, 4, "y[i] = int32(x[i])", func(a isa, x Mem) []Register {
		if a.lanes == 16 {
			return halved(func(ops ...Op) {
				v := ZMM()
				VMOVUPS(ops[0], v)
				VPMOVQD(v, ops[1])
			}, nil)(a, x)
		}
		v := a.vec()
		VMOVUPS(x, v)
		VSHUFPS(Imm(0x88), x.Offset(a.bytes()), v, v)
		VPERMQ(Imm(0xd8), v, v)
		return []Register{v}
	}},
	{"int32Bools", 4, 1, "y[i] = x[i] != 0", func(a isa, x Mem) []Register {
		v := a.vec()
		if a.lanes == 16 {
			VPTERNLOGD(Imm(0xff), v, v, v)
		} else {
			VPCMPEQD(v, v, v)
		}
		VPSRLD(Imm(31), v, v)
		VPMINUD(x, v, v)
		return a.cut(v, 1)
	}},
	{"floatBools", 4, 1, "y[i] = x[i] != 0", func(a isa, x Mem) []Register {
		const unequal = 4
		zero, v := a.vec(), a.vec()
		VXORPS(zero, zero, zero)
		if a.lanes == 16 {
			k := K()
			VCMPPS(Imm(unequal), x, zero, k)
			VPMOVM2D(k, v)
		} else {
			VCMPPS(Imm(unequal), x, zero, v)
		}
		VPSRLD(Imm(31), v, v)
		return a.cut(v, 1)
	}},
}

// conversion generates the loop c.
func (a isa) conversion(c conversion) {
	name := c.name + "_" + a.name
	begin(name, "func(y, x *byte, vectors int)", name+fmt.Sprintf(" is what follows, of elements of %d and %d bytes:", c.from, c.to), "",
		fmt.Sprintf("\tfor i := range %d * vectors {", a.lanes), "\t\t"+c.loop, "\t}")
	y, x, n := Load(Param("y"), GP64()), Load(Param("x"), GP64()), Load(Param("vectors"), GP64())
	Label("loop")
	at := 0
	for _, r := range c.made(a, Mem{Base: x}) {
		size := int(r.Size())
		if whole := c.to * a.lanes; size > whole {
			VMOVQ(r, Mem{Base: y})
		} else {
			VMOVUPS(r, Mem{Base: y, Disp: at})
		}
		at += size
	}
	add(c.from*a.lanes, x)
	add(c.to*a.lanes, y)
	DECQ(n)
	JNZ(LabelRef("loop"))
	end()
}
