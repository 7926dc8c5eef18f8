package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// window is a square window that moves over a plane.
type window struct{ size, stride int }

var windows = []window{{3, 1}, {3, 2}, {5, 1}, {5, 2}}

// Offsets in a plane.block, bytes.
const (
	blockOff   = 0
	blockInner = 4
	blockMasks = 8
	blockStore = blockMasks + 6*4
	blockBytes = blockStore + 4
)

// outside is what rows beyond a plane read, bits the bits of eight lanes, and
// pairs the order of pairs of lanes that undoes VSHUFPS of two vectors.
var outside, bits, pairs Mem

// planes generates the depthwise convolutions of package plane.
func planes() {
	outside = GLOBL("outside", attr.RODATA|attr.NOPTR)
	for i := range 64 { // what the widest window reads of a row
		DATA(4*i, U32(0))
	}
	bits = GLOBL("bits", attr.RODATA|attr.NOPTR)
	for i := range 8 {
		DATA(4*i, U32(1<<i))
	}
	pairs = GLOBL("pairs", attr.RODATA|attr.NOPTR)
	for i, v := range []int{0, 2, 4, 6, 1, 3, 5, 7} {
		DATA(8*i, U64(v))
	}
	for _, a := range isas {
		for _, w := range windows {
			depthwise(a, w)
		}
	}
}

// depthwise generates the convolution of planes with a window each: tiles of rows
// of output, in each block after block of as many columns as a vector has lanes.
// The rows of a tile share the vectors of input that they read.
func depthwise(a isa, win window) {
	k, s := win.size, win.stride
	rows := 4
	wide := a.lanes == 8 // weights that do not fit into registers lie in memory, eight times each
	registers := k * k   // weights in registers
	switch {
	case wide && s == 2:
		registers = 4
	case wide && k == 5:
		registers = 7
	case k == 5 && s == 2:
		rows, registers = 2, 20
	}
	name := fmt.Sprintf("depthwise_%dx%ds%d_%s", k, k, s, a.name)
	begin(name, "func(planes int, x *float32, xplane int, w, bias, res, y *float32, yplane int, h, pitch, top, oh, ow int, blocks int, table *uint32, lo, hi float32, wide *float32)",
		fmt.Sprintf("%s convolves planes with a window of %dx%d and stride %d each:", name, k, k, s),
		"",
		"\tfor p := range planes {",
		"\t\tfor i := range oh {",
		"\t\t\tfor j := range ow {",
		"\t\t\t\tv := bias[p]",
		fmt.Sprintf("\t\t\t\tfor a := range %d {", k),
		fmt.Sprintf("\t\t\t\t\tfor b := range %d {", k),
		fmt.Sprintf("\t\t\t\t\t\tv += w[p*%d+a*%d+b] * x[p*xplane+(i*%d+a-top)*pitch+j*%d+b-left]", k*k, k, s, s),
		"\t\t\t\t\t}",
		"\t\t\t\t}",
		"\t\t\t\ty[p*yplane+i*ow+j] = min(max(v+res[p*yplane+i*ow+j], lo), hi)",
		"\t\t\t}",
		"\t\t}",
		"\t}",
		"",
		"where x outside its plane is zero, res may be nil, and table describes blocks of columns",
		fmt.Sprintf("with left in it. oh is 1 or at least %d. wide has room for %d elements.", rows, k*k*8))

	for _, size := range []string{"xplane", "yplane", "pitch", "ow"} {
		SHLQ(Imm(2), param(size))
	}
	pitch := Load(Param("pitch"), GP64())
	ow := Load(Param("ow"), GP64())
	zero := GP64()
	LEAQ(outside, zero)

	Label("plane")
	// The weights.
	weights := make([]VecVirtual, k*k)
	w := Load(Param("w"), GP64())
	var store Register
	if wide {
		store = Load(Param("wide"), GP64())
	}
	for i := range weights {
		at := Mem{Base: w, Disp: 4 * i}
		if i < registers {
			weights[i] = a.vec()
			VBROADCASTSS(at, weights[i])
		} else if wide {
			v := a.vec()
			VBROADCASTSS(at, v)
			VMOVUPS(v, Mem{Base: store, Disp: 32 * i})
		}
	}
	if wide {
		w = store
	}

	// tile computes n rows from row i.
	i := GP64()
	tile := func(label string, n int) {
		row, block, at, yrow, rrow := GP64(), GP64(), GP64(), GP64(), GP64()
		MOVQ(i, row) // the first row of input
		if s == 2 {
			ADDQ(row, row)
		}
		SUBQ(param("top"), row)
		MOVQ(row, at)
		IMULQ(pitch, at)
		ADDQ(param("x"), at)
		MOVQ(i, yrow)
		IMULQ(ow, yrow)
		MOVQ(yrow, rrow)
		ADDQ(param("res"), rrow)
		ADDQ(param("y"), yrow)
		count := Load(Param("blocks"), GP64())
		Load(Param("table"), block)

		Label(label + "_block")
		body := func(label string, edge bool) {
			from, r := GP64(), GP64()
			MOVLQSX(Mem{Base: block, Disp: blockOff}, from)
			ADDQ(at, from)
			MOVQ(row, r)
			m := &arith{isa: a}
			halves := 1
			if s == 2 {
				halves = 2
			}
			loads := halves * ((k + s - 1) / s)
			lanes := make([]*tail, loads)
			for j := range lanes {
				if edge && a.lanes == 16 {
					mask := K()
					KMOVW(Mem{Base: block, Disp: blockMasks + 4*j}, mask)
					lanes[j] = &tail{k: mask}
				}
			}
			laneMask := func(j int) *tail {
				if !edge || a.lanes == 16 {
					return lanes[j]
				}
				return &tail{lane: spread(a, Mem{Base: block, Disp: blockMasks + 4*j})}
			}
			sums := make([]VecVirtual, n)
			bias := Load(Param("bias"), GP64())
			for j := range sums {
				sums[j] = a.vec()
				VBROADCASTSS(Mem{Base: bias}, sums[j])
			}
			height := (n-1)*s + k
			for in := range height {
				p := GP64()
				MOVQ(from, p)
				CMPQ(r, param("h"))
				CMOVQCC(zero, p)
				if in < height-1 {
					INCQ(r)
					ADDQ(pitch, from)
				}
				// use multiplies tap b of this row into the rows of output that read it.
				use := func(b int, v VecVirtual) {
					for o := range n {
						t := in - o*s
						if t < 0 || t >= k {
							continue
						}
						j := t*k + b
						switch {
						case weights[j] != nil:
							VFMADD231PS(v, weights[j], sums[o])
						case wide:
							VFMADD231PS(Mem{Base: w, Disp: 32 * j}, v, sums[o])
						default:
							VFMADD231PS_BCST(Mem{Base: w, Disp: 4 * j}, v, sums[o])
						}
					}
				}
				for b := 0; b < k; b += s {
					if s == 1 {
						use(b, m.load(Mem{Base: p, Disp: 4 * b}, laneMask(b)))
						continue
					}
					low := m.load(Mem{Base: p, Disp: 4 * b}, laneMask(b))
					high := m.load(Mem{Base: p, Disp: 4*b + a.bytes()}, laneMask(b+1))
					even := a.vec()
					VSHUFPS(Imm(0x88), high, low, even)
					if b+1 < k {
						odd := a.vec()
						VSHUFPS(Imm(0xdd), high, low, odd)
						use(b, even)
						use(b+1, odd)
					} else {
						use(b, even)
					}
				}
			}
			if s == 2 { // pairs of lanes are out of order
				var order VecVirtual
				if a.lanes == 16 {
					order = a.vec()
					VMOVUPS(pairs, order)
				}
				for _, v := range sums {
					if a.lanes == 16 {
						VPERMPD(v, order, v)
					} else {
						VPERMPD(Imm(0xd8), v, v)
					}
				}
			}
			var out *tail
			if edge {
				if a.lanes == 16 {
					mask := K()
					KMOVW(Mem{Base: block, Disp: blockStore}, mask)
					out = &tail{k: mask}
				} else {
					out = &tail{lane: spread(a, Mem{Base: block, Disp: blockStore})}
				}
			}
			CMPQ(param("res"), Imm(0))
			JE(LabelRef(label + "_store"))
			rp := GP64()
			MOVQ(rrow, rp)
			for j, v := range sums {
				VADDPS(m.load(Mem{Base: rp}, out), v, v)
				if j < n-1 {
					ADDQ(ow, rp)
				}
			}
			Label(label + "_store")
			lo, hi := a.vec(), a.vec()
			VBROADCASTSS(param("lo"), lo)
			VBROADCASTSS(param("hi"), hi)
			yp := GP64()
			MOVQ(yrow, yp)
			for j, v := range sums {
				VMAXPS(v, lo, v)
				VMINPS(v, hi, v)
				m.store(v, Mem{Base: yp}, out)
				if j < n-1 {
					ADDQ(ow, yp)
				}
			}
		}
		CMPL(Mem{Base: block, Disp: blockInner}, Imm(0))
		JE(LabelRef(label + "_edge"))
		body(label+"_inner", false)
		JMP(LabelRef(label + "_next"))
		Label(label + "_edge")
		body(label+"_edge", true)
		Label(label + "_next")
		add(blockBytes, block)
		add(a.bytes(), yrow)
		add(a.bytes(), rrow)
		DECQ(count)
		JNZ(LabelRef(label + "_block"))
	}

	XORQ(i, i)
	last := Load(Param("oh"), GP64())
	SUBQ(Imm(uint64(rows)), last)
	JL(LabelRef("single"))
	Label("tile")
	tile("tile", rows)
	// The last tile may compute rows again.
	Load(Param("oh"), last)
	SUBQ(Imm(uint64(rows)), last)
	CMPQ(i, last)
	JE(LabelRef("next"))
	add(rows, i)
	CMPQ(i, last)
	CMOVQGT(last, i)
	JMP(LabelRef("tile"))
	Label("single")
	tile("single", 1)
	INCQ(i)
	CMPQ(i, param("oh"))
	JL(LabelRef("single"))

	Label("next")
	step := Load(Param("xplane"), GP64())
	ADDQ(step, param("x"))
	Load(Param("yplane"), step)
	ADDQ(step, param("y"))
	CMPQ(param("res"), Imm(0))
	JE(LabelRef("plain"))
	ADDQ(step, param("res"))
	Label("plain")
	ADDQ(Imm(uint64(4*k*k)), param("w"))
	ADDQ(Imm(4), param("bias"))
	DECQ(param("planes"))
	JNZ(LabelRef("plane"))
	end()
}

// param is the place of a parameter.
func param(name string) Mem {
	at, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return at.Addr
}

// spread makes a mask of eight lanes from bits in memory.
func spread(a isa, at Mem) VecVirtual {
	v := a.vec()
	VPBROADCASTD(at, v)
	VPAND(bits, v, v)
	VPCMPEQD(bits, v, v)
	return v
}
