package spc

import (
	"spc/ir"
	"spc/ir/op"
)

// bound returns the size of the smallest axis that the elements of v index through
// a Gather, 0 where there is none of known size.
func bound(v *ir.Value) int {
	least := 0
	seen := map[*ir.Value]bool{}
	var visit func(v *ir.Value)
	visit = func(v *ir.Value) {
		if v == nil || seen[v] {
			return
		}
		seen[v] = true
		for _, u := range v.Uses() {
			if g, ok := u.Node.Op.(*op.Gather); ok && u.Index == 1 {
				x := u.Node.Input(0).Type
				a := g.Axis
				if a < 0 {
					a += x.Rank()
				}
				if x.Ranked && a >= 0 && a < x.Rank() && x.Dims[a].Known() {
					if n := x.Dims[a].Size(); least == 0 || n < least {
						least = n
					}
				}
			} else if handsOn(u) {
				for _, out := range u.Node.Outputs {
					visit(out)
				}
			}
		}
	}
	visit(v)
	return least
}

// handsOn reports whether what a node reads are elements of its outputs, perhaps cast.
func handsOn(u ir.Use) bool {
	if _, is := u.Node.Op.(*op.Cast); is {
		return true
	}
	m, data := op.Moves(u.Node)
	return m >= op.Picks && u.Index < len(data)
}
