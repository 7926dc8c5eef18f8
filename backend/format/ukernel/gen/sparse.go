package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// layout is how a sparse weight is grouped, ukernel.Layout.
type layout struct {
	rows   int
	shared bool
}

var layouts = []layout{
	{1, false}, {2, false}, {4, false},
	{2, true}, {4, true}, {8, true}, {16, true},
}

func (l layout) String() string {
	if l.shared {
		return fmt.Sprintf("block%d", l.rows)
	}
	return fmt.Sprintf("row%d", l.rows)
}

// indices returns the number of indices of a step.
func (l layout) indices() int {
	if l.shared {
		return 1
	}
	return l.rows
}

// index is an index type.
type index struct {
	name, typ string
	size      int
}

var indexTypes = []index{{"u16", "uint16", 2}, {"u32", "uint32", 4}}

// load reads the index at m into t, which it extends to 64 bits.
func (x index) load(m Mem, t GPVirtual) {
	if x.size == 2 {
		MOVWLZX(m, t.As32())
		return
	}
	MOVL(m, t.As32())
}

// sparseTile chooses the accumulators of a sparse kernel: so many rows and
// vectors of a group at a time that they fit into the registers and, where it
// is possible, hide the latency of FMA.
func sparseTile(a isa, l layout) (rows, vectors int) {
	all := columns / a.lanes
	switch {
	case a.lanes == 16:
		return min(l.rows, 8), all
	case l.shared && l.rows >= 4:
		return 4, 2
	default:
		return min(l.rows, 2), all
	}
}

// spmm generates the kernel of a layout.
func spmm(a isa, l layout, idx index) {
	rows, vectors := sparseTile(a, l)
	single := rows == l.rows && vectors*a.lanes == columns
	unroll := max(1, 4/rows)
	name := fmt.Sprintf("spmm_f32_%s_%v_%s", idx.name, l, a.name)
	at := "j"
	if !l.shared {
		at = fmt.Sprintf("j*%d+r", l.rows)
	}
	begin(name, fmt.Sprintf("func(groups int, ptr *uint32, index *%s, value, x, y *float32, ldy int, acc bool)", idx.typ),
		fmt.Sprintf("%s multiplies groups of %d rows by a panel; index and value start at the first group's:", name, l.rows),
		"",
		"\tfor g := range groups {",
		"\t\tfrom, to := ptr[g]-ptr[0], ptr[g+1]-ptr[0]",
		fmt.Sprintf("\t\tfor r := range %d {", l.rows),
		fmt.Sprintf("\t\t\tfor c := range %d {", columns),
		"\t\t\t\tvar s float32",
		"\t\t\t\tfor j := from; j < to; j++ {",
		fmt.Sprintf("\t\t\t\t\ts += value[j*%d+r] * x[index[%s]*%d+c]", l.rows, at, columns),
		"\t\t\t\t}",
		"\t\t\t\tif acc {",
		fmt.Sprintf("\t\t\t\t\ts += y[(g*%d+r)*ldy+c]", l.rows),
		"\t\t\t\t}",
		fmt.Sprintf("\t\t\t\ty[(g*%d+r)*ldy+c] = s", l.rows),
		"\t\t\t}",
		"\t\t}",
		"\t}")
	groups := Load(Param("groups"), GP64())
	ptr := Load(Param("ptr"), GP64())
	index := Load(Param("index"), GP64())
	value := Load(Param("value"), GP64())
	x := Load(Param("x"), GP64())
	y := Load(Param("y"), GP64())
	ldy := Load(Param("ldy"), GP64())
	SHLQ(Imm(2), ldy)
	TESTQ(groups, groups)
	JZ(LabelRef("end"))

	Label("group")
	var i, v Register
	for rowBase := 0; rowBase < l.rows; rowBase += rows {
		for column := 0; column < columns; column += vectors * a.lanes {
			pass := fmt.Sprintf("_%d_%d", rowBase, column)
			n := GP64()
			MOVL(Mem{Base: ptr, Disp: 4}, n.As32())
			SUBL(Mem{Base: ptr}, n.As32())
			i, v = index, value
			if !single {
				i, v = GP64(), GP64()
				MOVQ(index, i)
				MOVQ(value, v)
			}
			sets := a.tileSets(rows, vectors)
			step := func(u int) {
				acc := sets[u%len(sets)]
				xs := make([]Op, vectors)
				for r := range rows {
					if r == 0 || !l.shared {
						t := GP64()
						at := u * l.indices()
						if !l.shared {
							at += rowBase + r
						}
						idx.load(Mem{Base: i, Disp: idx.size * at}, t)
						SHLQ(Imm(7), t)
						for c := range xs {
							m := Mem{Base: x, Index: t, Scale: 1, Disp: 4*column + a.bytes()*c}
							xs[c] = m
							if l.shared {
								reg := a.vec()
								VMOVUPS(m, reg)
								xs[c] = reg
							}
						}
					}
					b := a.vec()
					VBROADCASTSS(Mem{Base: v, Disp: 4 * (u*l.rows + rowBase + r)}, b)
					for c := range xs {
						VFMADD231PS(xs[c], b, acc[r][c])
					}
				}
			}
			advance := func(steps int) {
				add(steps*idx.size*l.indices(), i)
				add(steps*4*l.rows, v)
			}
			if unroll > 1 {
				SUBQ(Imm(uint64(unroll)), n)
				JL(LabelRef("tail" + pass))
				Label("loop" + pass)
				for u := range unroll {
					step(u)
				}
				advance(unroll)
				SUBQ(Imm(uint64(unroll)), n)
				JGE(LabelRef("loop" + pass))
				Label("tail" + pass)
				add(unroll, n)
			} else {
				TESTQ(n, n)
			}
			JZ(LabelRef("done" + pass))
			Label("one" + pass)
			step(0)
			advance(1)
			DECQ(n)
			JNZ(LabelRef("one" + pass))
			Label("done" + pass)
			out := GP64()
			LEAQ(Mem{Base: y, Disp: 4 * column}, out)
			storeTile(fold(sets), a, out, ldy, "store"+pass)
		}
		for range rows {
			ADDQ(ldy, y)
		}
	}
	if !single {
		MOVQ(i, index)
		MOVQ(v, value)
	}
	add(4, ptr)
	DECQ(groups)
	JNZ(LabelRef("group"))
	Label("end")
	end()
}
