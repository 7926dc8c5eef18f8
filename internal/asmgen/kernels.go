package main

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// columns is the width of a panel, ukernel.Columns.
const columns = 64

// granule is the number of columns by which products narrow, ukernel.Granule.
const granule = 16

// rowBytes is the size of a panel row.
const rowBytes = 4 * columns

// isa is an instruction set that kernels are generated for.
type isa struct {
	name  string
	lanes int // float32 elements of a vector
	vec   func() VecVirtual

	// chains is the number of independent sums to have in a GEMM tile, where
	// the registers allow it, so that the FMA units never wait.
	chains int
}

var isas = []isa{
	{name: "avx2", lanes: 8, vec: YMM, chains: 8},
	{name: "avx512", lanes: 16, vec: ZMM, chains: 8},
}

// bytes returns the size of a vector.
func (a isa) bytes() int { return 4 * a.lanes }

// zeros returns n cleared vectors.
func (a isa) zeros(n int) []VecVirtual {
	vs := make([]VecVirtual, n)
	for i := range vs {
		vs[i] = a.vec()
		VXORPS(vs[i], vs[i], vs[i])
	}
	return vs
}

// pass is a run of columns that a tile holds in registers.
type pass struct{ column, vectors int }

// passes splits width granules of columns into passes of at most vectors
// vectors, as evenly as whole vectors allow.
func (a isa) passes(width, vectors int) []pass {
	total := width * granule / a.lanes
	n := (total + vectors - 1) / vectors
	ps := make([]pass, n)
	for i := range ps {
		from, to := i*total/n, (i+1)*total/n
		ps[i] = pass{from * a.lanes, to - from}
	}
	return ps
}

// begin starts the assembly function name with the given signature and
// documentation.
func begin(name, signature string, doc ...string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(doc...)
}

// end returns from the function.
func end() {
	VZEROUPPER()
	RET()
}

// add adds n to r.
func add(n int, r Register) { ADDQ(I32(int32(n)), r) }

// finishType is the type of a *ukernel.FinishArgs in signatures, and the constants are its fields by their offsets.
const (
	finishType = "*[6]uint64"

	finishDst  = 0
	finishRes  = 8
	finishBias = 16
	finishLdd  = 24
	finishLdr  = 32
	finishLo   = 40
	finishHi   = 44
)

// storeTile stores the accumulators acc[row][vector] to consecutive rows of y,
// ldy bytes apart, after adding what is there if the parameter acc is set. It
// changes y.
func storeTile(acc [][]VecVirtual, a isa, y, ldy Register, label string) {
	addTile(acc, a, y, ldy, label)
	storeRows(acc, a, y, ldy)
}

// addTile adds consecutive rows of y to the accumulators if the parameter acc is set.
func addTile(acc [][]VecVirtual, a isa, y, ldy Register, label string) {
	flag := Load(Param("acc"), GP8())
	TESTB(flag, flag)
	JZ(LabelRef(label))
	at := GP64()
	MOVQ(y, at)
	for r, row := range acc {
		for v, x := range row {
			VADDPS(Mem{Base: at, Disp: a.bytes() * v}, x, x)
		}
		if r < len(acc)-1 {
			ADDQ(ldy, at)
		}
	}
	Label(label)
}

// storeRows stores accumulators to consecutive rows of y, which it changes.
func storeRows(acc [][]VecVirtual, a isa, y, ldy Register) {
	for r, row := range acc {
		for v, x := range row {
			VMOVUPS(x, Mem{Base: y, Disp: a.bytes() * v})
		}
		if r < len(acc)-1 {
			ADDQ(ldy, y)
		}
	}
}

// storeOrFinish is storeTile, but where the parameter f, a *ukernel.FinishArgs, is not nil, the rows go to where that says:
// row returns the number of the first, nil for 0, and column is that of the first column.
func storeOrFinish(acc [][]VecVirtual, a isa, y, ldy Register, label string, row func() Register, column int) {
	addTile(acc, a, y, ldy, label)
	f := Load(Param("f"), GP64())
	TESTQ(f, f)
	JNZ(LabelRef(label + "_finish"))
	storeRows(acc, a, y, ldy)
	JMP(LabelRef(label + "_stored"))
	Label(label + "_finish")
	finishTile(acc, a, f, label, row, column)
	Label(label + "_stored")
}

// finishTile stores accumulators where f says.
func finishTile(acc [][]VecVirtual, a isa, f Register, label string, row func() Register, column int) {
	// from returns the address of the first row of a matrix, and how far its rows are apart.
	from := func(field, stride int) (at, ld Register) {
		at, ld = GP64(), GP64()
		MOVQ(Mem{Base: f, Disp: field}, at)
		if row != nil {
			MOVQ(row(), ld)
			IMULQ(Mem{Base: f, Disp: stride}, ld)
			ADDQ(ld, at)
		}
		MOVQ(Mem{Base: f, Disp: stride}, ld)
		return at, ld
	}
	bias := GP64()
	MOVQ(Mem{Base: f, Disp: finishBias}, bias)
	if row != nil {
		LEAQ(Mem{Base: bias, Index: row(), Scale: 4}, bias)
	}
	for r, xs := range acc {
		b := a.vec()
		VBROADCASTSS(Mem{Base: bias, Disp: 4 * r}, b)
		for _, x := range xs {
			VADDPS(b, x, x)
		}
	}
	CMPQ(Mem{Base: f, Disp: finishRes}, Imm(0))
	JE(LabelRef(label + "_limit"))
	at, ld := from(finishRes, finishLdr)
	for r, xs := range acc {
		for v, x := range xs {
			VADDPS(Mem{Base: at, Disp: 4*column + a.bytes()*v}, x, x)
		}
		if r < len(acc)-1 {
			ADDQ(ld, at)
		}
	}
	Label(label + "_limit")
	lo, hi := a.vec(), a.vec()
	VBROADCASTSS(Mem{Base: f, Disp: finishLo}, lo)
	VBROADCASTSS(Mem{Base: f, Disp: finishHi}, hi)
	at, ld = from(finishDst, finishLdd)
	for r, xs := range acc {
		for v, x := range xs {
			VMAXPS(x, lo, x)
			VMINPS(x, hi, x)
			VMOVUPS(x, Mem{Base: at, Disp: 4*column + a.bytes()*v})
		}
		if r < len(acc)-1 {
			ADDQ(ld, at)
		}
	}
}

// fold adds the accumulators of all sets, a power of two, to those of the first
// and returns that.
func fold(sets [][][]VecVirtual) [][]VecVirtual {
	for n := len(sets); n > 1; n /= 2 {
		for s := range n / 2 {
			for r, row := range sets[s] {
				for v, x := range row {
					VADDPS(sets[s+n/2][r][v], x, x)
				}
			}
		}
	}
	return sets[0]
}

// tileSets returns n sets of cleared accumulators [set][row][vector]. Steps that
// take turns on the sets need not wait for each other.
func (a isa) tileSets(n, rows, vectors int) [][][]VecVirtual {
	sets := make([][][]VecVirtual, n)
	for s := range sets {
		sets[s] = make([][]VecVirtual, rows)
		for r := range sets[s] {
			sets[s][r] = a.zeros(vectors)
		}
	}
	return sets
}

// products generates matrix products with panels.
func products() {
	for _, a := range isas {
		fmaPeak(a)
		for width := 1; width <= columns/granule; width++ {
			for rows := 1; rows <= gemmRows; rows++ {
				gemm(a, rows, width)
			}
			for _, rows := range blocks {
				spmm(a, rows, width)
			}
		}
	}
}

// fmaPeak generates a loop of FMAs on registers, which measures the peak.
func fmaPeak(a isa) {
	begin("fmaPeak_"+a.name, "func(n int)",
		fmt.Sprintf("fmaPeak_%s makes n times 12 vector FMAs of %d lanes that do not wait for each other.", a.name, a.lanes))
	n := Load(Param("n"), GP64())
	x := a.zeros(2)
	acc := a.zeros(12)
	Label("loop")
	for _, v := range acc {
		VFMADD231PS(x[0], x[1], v)
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	end()
}

// helperKernels generates elementwise functions, conversions and what goes with them.
func helperKernels() {
	all := slices.Concat(helpers, functions)
	globals(all)
	wideGlobals()
	shuffleTables()
	for _, a := range isas {
		for _, e := range all {
			a.elementwise(e)
		}
		for _, c := range conversions {
			a.conversion(c)
		}
		taps(a)
		tapRows(a)
		repeat(a)
	}
	transpose()
}
