package spc

import (
	"spc/ir"
	"spc/ir/op"
)

// moves lists the operators that pass the elements of an input on, unchanged or
// cast, by the number of that input; -1 stands for all.
var moves = map[string]int{
	"Cast": 0, "Concat": -1, "Expand": 0, "Flatten": 0, "Identity": 0, "Reshape": 0, "Slice": 0,
	"Split": 0, "Squeeze": 0, "Tile": 0, "Transpose": 0, "Unsqueeze": 0,
}

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
			} else if i, ok := moves[u.Node.Op.Kind()]; ok && (i < 0 || i == u.Index) {
				for _, out := range u.Node.Outputs {
					visit(out)
				}
			}
		}
	}
	visit(v)
	return least
}
