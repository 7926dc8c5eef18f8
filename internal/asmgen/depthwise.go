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

var (
	windows    = []window{{2, 2}, {3, 1}, {3, 2}, {5, 1}, {5, 2}, {7, 1}} // of depthwise convolutions, and of means
	maxWindows = []window{{2, 2}, {3, 1}, {3, 2}}
)

// Offsets in a plane.block, bytes.
const (
	blockOff   = 0
	blockInner = 4
	blockMasks = 8
	blockStore = blockMasks + 7*4
	blockBytes = blockStore + 4
)

// outside is what rows beyond a plane read, lowest the same for maxima, bits the
// bits of eight lanes, and pairs the order of pairs of lanes that undoes VSHUFPS of
// two vectors.
var outside, lowest, bits, pairs Mem

// planes generates the windows of package plane.
func planes() {
	const reach = 64 // what the widest window reads of a row
	outside = GLOBL("outside", attr.RODATA|attr.NOPTR)
	for i := range reach {
		DATA(4*i, U32(0))
	}
	lowest = GLOBL("lowest", attr.RODATA|attr.NOPTR)
	for i := range reach {
		DATA(4*i, U32(0xff800000)) // -Inf
	}
	bits = GLOBL("bits", attr.RODATA|attr.NOPTR)
	for i := range 8 {
		DATA(4*i, U32(1<<i))
	}
	globals([]elementwise{larger})
	pairs = GLOBL("pairs", attr.RODATA|attr.NOPTR)
	for i, v := range []int{0, 2, 4, 6, 1, 3, 5, 7} {
		DATA(8*i, U64(v))
	}
	for _, a := range isas {
		for _, w := range windows {
			depthwise(a, w)
		}
		a.elementwise(larger)
		for _, w := range maxWindows {
			maxPool(a, w)
		}
	}
}

// larger is the maximum of two rows, in which a NaN stays.
var larger = extreme("larger", "max(a[i], b[i])", VMAXPS)

// slide is what the windows of one kernel do.
type slide struct {
	isa
	window
	rows int // of a tile
	// outside holds what is read outside of a plane; fill is a register of it, or nil
	// for zeros.
	outside Mem
	fill    VecVirtual
	// first makes the sums of a tile, use joins the vector of inputs of tap t to one,
	// and last is called with finished sums, the mask of the columns that there are,
	// nil for all, and a prefix for labels.
	first func(n int) []VecVirtual
	use   func(t int, v, sum VecVirtual)
	last  func(sums []VecVirtual, out *tail, label string)
	// begin is called once for each plane, and next when it is done.
	begin, next func()
	// start and step are called with the index of a tile's first row and after each
	// block of columns.
	start func(i Register)
	step  func()
}

// run generates the loops over planes, tiles of rows of output, and blocks of as
// many columns as a vector has lanes. The rows of a tile share the vectors of input
// that they read.
func (s *slide) run() {
	for _, size := range []string{"xplane", "yplane", "pitch", "ow"} {
		SHLQ(Imm(2), param(size))
	}
	pitch := Load(Param("pitch"), GP64())
	beyond := GP64()
	LEAQ(s.outside, beyond)
	Label("plane")
	s.begin()
	i := GP64()
	XORQ(i, i)
	last := Load(Param("oh"), GP64())
	SUBQ(Imm(uint64(s.rows)), last)
	JL(LabelRef("single"))
	Label("tile")
	s.tile("tile", s.rows, i, pitch, beyond)
	// The last tile may compute rows again.
	Load(Param("oh"), last)
	SUBQ(Imm(uint64(s.rows)), last)
	CMPQ(i, last)
	JE(LabelRef("next"))
	add(s.rows, i)
	CMPQ(i, last)
	CMOVQGT(last, i)
	JMP(LabelRef("tile"))
	Label("single")
	s.tile("single", 1, i, pitch, beyond)
	INCQ(i)
	CMPQ(i, param("oh"))
	JL(LabelRef("single"))
	Label("next")
	size := Load(Param("xplane"), GP64())
	ADDQ(size, param("x"))
	Load(Param("yplane"), size)
	ADDQ(size, param("y"))
	s.next()
	DECQ(param("planes"))
	JNZ(LabelRef("plane"))
	end()
}

// tile generates n rows of output from row i.
func (s *slide) tile(label string, n int, i, pitch, beyond Register) {
	row, block, at := GP64(), GP64(), GP64()
	MOVQ(i, row) // the first row of input
	if s.stride == 2 {
		ADDQ(row, row)
	}
	SUBQ(param("top"), row)
	MOVQ(row, at)
	IMULQ(pitch, at)
	ADDQ(param("x"), at)
	s.start(i)
	count := Load(Param("blocks"), GP64())
	Load(Param("table"), block)
	Label(label + "_block")
	CMPL(Mem{Base: block, Disp: blockInner}, Imm(0))
	JE(LabelRef(label + "_edge"))
	s.block(label+"_inner", false, n, row, block, at, pitch, beyond)
	JMP(LabelRef(label + "_next"))
	Label(label + "_edge")
	s.block(label+"_edge", true, n, row, block, at, pitch, beyond)
	Label(label + "_next")
	add(blockBytes, block)
	s.step()
	DECQ(count)
	JNZ(LabelRef(label + "_block"))
}

// block generates the columns of a vector.
func (s *slide) block(label string, edge bool, n int, row, block, at, pitch, beyond Register) {
	m := &arith{isa: s.isa}
	from, r := GP64(), GP64()
	MOVLQSX(Mem{Base: block, Disp: blockOff}, from)
	ADDQ(at, from)
	MOVQ(row, r)
	masks := make([]*tail, 7)
	mask := func(j, disp int) *tail {
		switch {
		case !edge:
			return nil
		case s.lanes == 8:
			return &tail{lane: s.spread(Mem{Base: block, Disp: disp})}
		case masks[j] == nil:
			masks[j] = &tail{k: K()}
			KMOVW(Mem{Base: block, Disp: disp}, masks[j].k)
		}
		return masks[j]
	}
	for j := range s.stride * ((s.size + s.stride - 1) / s.stride) {
		if s.lanes == 16 {
			mask(j, blockMasks+4*j)
		}
	}
	load := func(p Register, disp, j int) VecVirtual {
		t := mask(j, blockMasks+4*j)
		if t == nil || s.fill == nil {
			return m.load(Mem{Base: p, Disp: disp}, t)
		}
		v := s.vec()
		if s.lanes == 16 {
			VMOVAPS(s.fill, v)
			VMOVUPS(Mem{Base: p, Disp: disp}, t.k, v)
		} else {
			VBLENDVPS(t.lane, m.load(Mem{Base: p, Disp: disp}, t), s.fill, v)
		}
		return v
	}
	sums := s.first(n)
	height := (n-1)*s.stride + s.size
	for in := range height {
		p := GP64()
		MOVQ(from, p)
		CMPQ(r, param("h"))
		CMOVQCC(beyond, p)
		if in < height-1 {
			INCQ(r)
			ADDQ(pitch, from)
		}
		// use joins tap b of this row to the rows of output that read it.
		use := func(b int, v VecVirtual) {
			for o := range n {
				if a := in - o*s.stride; a >= 0 && a < s.size {
					s.use(a*s.size+b, v, sums[o])
				}
			}
		}
		for b := 0; b < s.size; b += s.stride {
			v := load(p, 4*b, b)
			if s.stride == 1 {
				use(b, v)
				continue
			}
			high := load(p, 4*b+s.bytes(), b+1)
			even := s.vec()
			VSHUFPS(Imm(0x88), high, v, even)
			if b+1 == s.size {
				use(b, even)
				continue
			}
			odd := s.vec()
			VSHUFPS(Imm(0xdd), high, v, odd)
			use(b, even)
			use(b+1, odd)
		}
	}
	if s.stride == 2 { // pairs of lanes are out of order
		var order VecVirtual
		if s.lanes == 16 {
			order = s.vec()
			VMOVUPS(pairs, order)
		}
		for _, v := range sums {
			if s.lanes == 16 {
				VPERMPD(v, order, v)
			} else {
				VPERMPD(Imm(0xd8), v, v)
			}
		}
	}
	var out *tail
	if edge && s.lanes == 8 {
		out = &tail{lane: s.spread(Mem{Base: block, Disp: blockStore})}
	} else if edge {
		out = &tail{k: K()}
		KMOVW(Mem{Base: block, Disp: blockStore}, out.k)
	}
	s.last(sums, out, label)
}

// depthwise generates the convolution of planes with a window each.
func depthwise(a isa, win window) {
	k := win.size
	s := &slide{isa: a, window: win, rows: 4, outside: outside}
	wide := a.lanes == 8 // weights that do not fit into registers lie in memory, eight times each
	registers := k * k   // weights in registers
	switch {
	case wide && win.stride == 2:
		registers = 4
	case wide && k >= 5:
		registers = 7
	case k == 7:
		registers = 20
	case k == 5 && win.stride == 2:
		s.rows, registers = 2, 20
	}
	name := fmt.Sprintf("depthwise_%dx%ds%d_%s", k, k, win.stride, a.name)
	begin(name, "func(planes int, x *float32, xplane int, w, bias, res, y *float32, yplane int, h, pitch, top, oh, ow int, blocks int, table *uint32, lo, hi float32, wide *float32)",
		fmt.Sprintf("%s convolves planes with a window of %dx%d and stride %d each:", name, k, k, win.stride),
		"",
		"\tfor p := range planes {",
		"\t\tfor i := range oh {",
		"\t\t\tfor j := range ow {",
		"\t\t\t\tv := bias[p]",
		fmt.Sprintf("\t\t\t\tfor a := range %d {", k),
		fmt.Sprintf("\t\t\t\t\tfor b := range %d {", k),
		fmt.Sprintf("\t\t\t\t\t\tv += w[p*%d+a*%d+b] * x[p*xplane+(i*%d+a-top)*pitch+j*%d+b-left]", k*k, k, win.stride, win.stride),
		"\t\t\t\t\t}",
		"\t\t\t\t}",
		"\t\t\t\ty[p*yplane+i*ow+j] = min(max(v+res[p*yplane+i*ow+j], lo), hi)",
		"\t\t\t}",
		"\t\t}",
		"\t}",
		"",
		"where x outside its plane is zero, res may be nil, and table describes blocks of columns",
		fmt.Sprintf("with left in it. wide has room for %d elements.", k*k*8))

	weights := make([]VecVirtual, k*k)
	w, ow := GP64(), GP64()
	s.begin = func() {
		Load(Param("ow"), ow)
		Load(Param("w"), w)
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
			MOVQ(store, w)
		}
	}
	s.first = func(n int) []VecVirtual {
		bias := Load(Param("bias"), GP64())
		sums := make([]VecVirtual, n)
		for j := range sums {
			sums[j] = a.vec()
			VBROADCASTSS(Mem{Base: bias}, sums[j])
		}
		return sums
	}
	s.use = func(t int, v, sum VecVirtual) {
		switch {
		case weights[t] != nil:
			VFMADD231PS(v, weights[t], sum)
		case wide:
			VFMADD231PS(Mem{Base: w, Disp: 32 * t}, v, sum)
		default:
			VFMADD231PS_BCST(Mem{Base: w, Disp: 4 * t}, v, sum)
		}
	}
	yrow, rrow := GP64(), GP64()
	s.start = func(i Register) {
		MOVQ(i, yrow)
		IMULQ(ow, yrow)
		MOVQ(yrow, rrow)
		ADDQ(param("res"), rrow)
		ADDQ(param("y"), yrow)
	}
	s.step = func() {
		add(a.bytes(), yrow)
		add(a.bytes(), rrow)
	}
	s.last = func(sums []VecVirtual, out *tail, label string) {
		m := &arith{isa: a}
		CMPQ(param("res"), Imm(0))
		JE(LabelRef(label + "_store"))
		at := GP64()
		MOVQ(rrow, at)
		for j, v := range sums {
			VADDPS(m.load(Mem{Base: at}, out), v, v)
			if j < len(sums)-1 {
				ADDQ(ow, at)
			}
		}
		Label(label + "_store")
		lo, hi := a.vec(), a.vec()
		VBROADCASTSS(param("lo"), lo)
		VBROADCASTSS(param("hi"), hi)
		for _, v := range sums {
			VMAXPS(v, lo, v)
			VMINPS(v, hi, v)
		}
		s.store(sums, out, yrow, ow)
	}
	s.next = func() {
		CMPQ(param("res"), Imm(0))
		JE(LabelRef("plain"))
		size := Load(Param("yplane"), GP64())
		ADDQ(size, param("res"))
		Label("plain")
		ADDQ(Imm(uint64(4*k*k)), param("w"))
		ADDQ(Imm(4), param("bias"))
	}
	s.run()
}

// store writes rows of output that are ow bytes apart.
func (s *slide) store(sums []VecVirtual, out *tail, y, ow Register) {
	m := &arith{isa: s.isa}
	at := GP64()
	MOVQ(y, at)
	for j, v := range sums {
		m.store(v, Mem{Base: at}, out)
		if j < len(sums)-1 {
			ADDQ(ow, at)
		}
	}
}

// maxPool generates the maxima of the windows of planes.
func maxPool(a isa, win window) {
	k := win.size
	name := fmt.Sprintf("maxPool_%dx%ds%d_%s", k, k, win.stride, a.name)
	begin(name, "func(planes int, x *float32, xplane int, y *float32, yplane int, h, pitch, top, oh, ow int, blocks int, table *uint32)",
		fmt.Sprintf("%s takes the maxima of windows of %dx%d and stride %d:", name, k, k, win.stride),
		"",
		"\tfor p := range planes {",
		"\t\tfor i := range oh {",
		"\t\t\tfor j := range ow {",
		"\t\t\t\tv := float32(math.Inf(-1))",
		fmt.Sprintf("\t\t\t\tfor a := range %d {", k),
		fmt.Sprintf("\t\t\t\t\tfor b := range %d {", k),
		fmt.Sprintf("\t\t\t\t\t\tv = max(v, x[p*xplane+(i*%d+a-top)*pitch+j*%d+b-left])", win.stride, win.stride),
		"\t\t\t\t\t}",
		"\t\t\t\t}",
		"\t\t\t\ty[p*yplane+i*ow+j] = v",
		"\t\t\t}",
		"\t\t}",
		"\t}",
		"",
		"where x outside its plane is -Inf, and table describes blocks of columns with left in it.")
	s := &slide{isa: a, window: win, rows: 4, outside: lowest, fill: a.vec()}
	VBROADCASTSS(lowest, s.fill)
	ow, y := GP64(), GP64()
	s.begin = func() { Load(Param("ow"), ow) }
	s.next = func() {}
	s.first = func(n int) []VecVirtual {
		sums := make([]VecVirtual, n)
		for j := range sums {
			sums[j] = a.vec()
			VMOVAPS(s.fill, sums[j])
		}
		return sums
	}
	// The maximum with a NaN is the second operand, sum. A NaN among the inputs
	// becomes the result.
	var input VecVirtual // the one that nan is of
	var nan Register
	s.use = func(_ int, v, sum VecVirtual) {
		if input != v {
			if input, nan = v, a.vec(); a.lanes == 16 {
				nan = K()
			}
			VCMPPS(Imm(3), v, v, nan)
		}
		if a.lanes == 16 {
			VMAXPS(sum, v, sum)
			VMOVAPS(v, nan, sum)
			return
		}
		r := a.vec()
		VMAXPS(sum, v, r)
		VBLENDVPS(nan, v, r, sum)
	}
	s.start = func(i Register) {
		MOVQ(i, y)
		IMULQ(ow, y)
		ADDQ(param("y"), y)
	}
	s.step = func() { add(a.bytes(), y) }
	s.last = func(sums []VecVirtual, out *tail, _ string) { s.store(sums, out, y, ow) }
	s.run()
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
func (a isa) spread(at Mem) VecVirtual {
	v := a.vec()
	VPBROADCASTD(at, v)
	VPAND(bits, v, v)
	VPCMPEQD(bits, v, v)
	return v
}
