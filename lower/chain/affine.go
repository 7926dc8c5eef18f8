package chain

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Affine makes a product and a sum of each BatchNormalization by constants, which chains may take, and returns how
// many there were.
func Affine(g *ir.Graph) (int, error) {
	count := 0
	for sub := range g.All() {
		for _, n := range slices.Clone(sub.Nodes) {
			o, is := n.Op.(*op.BatchNormalization)
			if !is || len(n.Outputs) != 1 || n.Outputs[0].Type.DType != tensor.F32 {
				continue
			}
			if x := n.Inputs[0].Type; !x.Ranked || x.Rank() < 2 || !x.Dims[1].Known() { // one channel would be broadcast, and not refused
				continue
			}
			scale, shift := o.Affine(n)
			if scale == nil {
				continue
			}
			y, err := op.InsertAffine(n, n.Name, n.Inputs[0], scale, shift, n.Outputs[0].Type.Rank()-2)
			if err != nil {
				return count, err
			}
			sub.ReplaceUses(n.Outputs[0], y)
			sub.Remove(n)
			y.Def.Name = n.Name // by which its time is told
			count++
		}
	}
	return count, nil
}
