package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// joinSlices makes one of two slices that follow each other along different axes.
func joinSlices(n *ir.Node) (bool, error) {
	outer, ok := sliceArgs(n)
	if !ok {
		return false, nil
	}
	first := n.Inputs[0].Def
	if first == nil {
		return false, nil
	}
	inner, ok := sliceArgs(first)
	if !ok || slices.ContainsFunc(outer[2], func(a int) bool { return slices.Contains(inner[2], a) }) {
		return false, nil
	}
	n.SetInput(0, first.Inputs[0])
	for i, name := range []string{"starts", "ends", "axes", "steps"} {
		n.SetInput(1+i, n.Graph().NewConst(n.Name+"."+name, tensor.Ints(append(inner[i], outer[i]...)...)))
	}
	return true, nil
}

// sliceArgs returns the constant starts, ends, axes, which count from the first, and
// steps of a Slice.
func sliceArgs(n *ir.Node) (args [4][]int, ok bool) {
	if n.Op.Kind() != "Slice" || !n.Inputs[0].Type.Ranked {
		return args, false
	}
	for i := range args {
		v := n.Input(1 + i)
		switch {
		case v != nil && v.Const == nil:
			return args, false
		case v != nil:
			args[i] = slices.Clone(v.Const.Ints())
		case i == 2:
			for a := range args[0] {
				args[i] = append(args[i], a)
			}
		case i == 3:
			args[i] = slices.Repeat([]int{1}, len(args[0]))
		}
	}
	for i, a := range args[2] {
		if a < 0 {
			args[2][i] += n.Inputs[0].Type.Rank()
		}
	}
	return args, len(args[0]) == len(args[1]) && len(args[0]) == len(args[2]) && len(args[0]) == len(args[3])
}
