package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// groupNorm puts a GroupNormalization in the place of n that reshapes what an InstanceNormalization
// makes of groups of the channels of x[N,C,D1..Dn] back to the shape of x.
func groupNorm(n *ir.Node) (bool, error) {
	if !reshapes(n) || !isF32(n.Outputs[0]) {
		return false, nil
	}
	inst := def(n.Inputs[0], "InstanceNormalization")
	if inst == nil || !sole(n.Inputs[0]) {
		return false, nil
	}
	grouped := inst.Inputs[0]
	if grouped.Def == nil || !reshapes(grouped.Def) || !equal(grouped.Def.Inputs[0], n.Outputs[0]) {
		return false, nil
	}
	x := grouped.Def.Inputs[0]
	d, by := x.Type.Dims, grouped.Type.Dims
	if len(d) < 3 || len(by) < 3 || d[0] != by[0] || !d[1].Known() || !by[1].Known() || by[1].Size() < 1 || d[1].Size()%by[1].Size() != 0 {
		return false, nil
	}
	groups := by[1].Size()
	params := make([]*ir.Value, 2)
	for i := range params {
		c := inst.Inputs[1+i].Const
		if c == nil || c.Len() != groups {
			return false, nil
		}
		var all []float32
		for _, v := range c.F32s() {
			all = append(all, slices.Repeat([]float32{v}, d[1].Size()/groups)...)
		}
		params[i] = n.Graph().NewConst(n.Name+[]string{".scale", ".bias"}[i], tensor.From(all, len(all)))
	}
	o, err := newOp("GroupNormalization", map[string]any{"num_groups": groups, "epsilon": ir.AttrOf(inst.Op, "epsilon")})
	if err != nil {
		return false, err
	}
	return true, replace(n, o, x, params[0], params[1])
}

// affineNorm makes n, which multiplies what an Instance- or GroupNormalization makes of each channel by a
// constant or adds one to it, part of that.
func affineNorm(n *ir.Node) (bool, error) {
	kind := n.Op.Kind()
	if kind != "Mul" && kind != "Add" || !numpy(n) {
		return false, nil
	}
	for i, v := range n.Inputs {
		norm := v.Def
		if norm == nil || !sole(v) || !equal(v, n.Outputs[0]) || !isF32(v) {
			continue
		}
		group, grouped := norm.Op.(*op.GroupNormalization)
		if norm.Op.Kind() != "InstanceNormalization" && (!grouped || group.PerGroup) {
			continue
		}
		scale, bias := norm.Inputs[1].Const, norm.Inputs[2].Const
		if scale == nil || bias == nil {
			continue
		}
		c, ok := perChannel(n.Inputs[1-i], v.Type.Rank(), 1, scale.Len())
		if !ok {
			continue
		}
		scale, bias = scale.Clone(), bias.Clone()
		for j, by := range c {
			if kind == "Mul" {
				scale.F32s()[j] *= float32(by)
				bias.F32s()[j] *= float32(by)
			} else {
				bias.F32s()[j] += float32(by)
			}
		}
		if !finite(scale.F32s()) || !finite(bias.F32s()) {
			return false, nil
		}
		norm.SetInput(1, n.Graph().NewConst(n.Name+".scale", scale))
		norm.SetInput(2, n.Graph().NewConst(n.Name+".bias", bias))
		forward(n, v)
		return true, norm.Infer()
	}
	return false, nil
}
