package cache

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// placed makes Concat of the caches that GroupQueryAttention of ONNX Runtime grows, which are
//
//	TensorScatter(Pad(past, max(total - size of past, 0)), new, start)
//
// where total is the size of a cache and what is new. That it is, and that what is new ends below it, is to be checked in each step.
func (r *rewriting) placed(ties []Tie) error {
	g, some := r.Graph, false
	var totals, starts []*ir.Value
	for _, t := range ties {
		n := g.Outputs[t.Out].Def
		if n == nil || n.Graph() != g {
			continue
		}
		axis, total := padded(n, g.Inputs[t.In])
		if total == nil {
			continue
		}
		joined := g.InsertBefore(n, n.Name+".joined", &op.Concat{Axis: axis}, []*ir.Value{g.Inputs[t.In], n.Inputs[1]}, "")
		g.ReplaceUses(n.Outputs[0], joined.Outputs[0])
		r.starts[joined], some = n.Inputs[2], true
		totals, starts = append(totals, total), append(starts, n.Inputs[2])
		pad := n.Inputs[0].Def
		list := pad.Inputs[1].Def
		gone := []*ir.Node{n, pad, list}
		for _, v := range list.Inputs {
			if v.Def != nil { // Max, and Sub below it
				gone = append(gone, v.Def, v.Def.Inputs[0].Def)
			}
		}
		for _, n := range gone {
			if len(n.Outputs[0].Uses()) == 0 && !n.Outputs[0].IsOutput() {
				g.Remove(n)
			}
		}
	}
	if !some {
		return nil
	}
	for _, v := range totals {
		if i := r.input(v, nil); i >= 0 && !slices.Contains(r.Totals, i) {
			r.Totals = append(r.Totals, i)
		} else if i < 0 && v.Elems == nil {
			return refuse(v.Def, "it computes the size of a cache")
		}
	}
	for _, v := range starts {
		if i := r.input(v, r.Totals); i >= 0 && !slices.Contains(r.Lasts, i) {
			r.Lasts = append(r.Lasts, i)
		}
	}
	return g.Infer()
}

// padded returns the axis along which n makes a cache longer, and the value that it is as long as; nil where it does something else.
func padded(n *ir.Node, cache *ir.Value) (axis int, total *ir.Value) {
	o, ok := n.Op.(*op.TensorScatter)
	if !ok || o.Mode != "linear" || n.Input(2) == nil || !cache.Type.Ranked {
		return 0, nil
	}
	if axis = o.Axis; axis < 0 {
		axis += cache.Type.Rank()
	}
	pad := n.Inputs[0].Def
	if pad == nil || pad.Op.Kind() != "Pad" || ir.AttrOf(pad.Op, "mode") != "constant" || pad.Inputs[0] != cache || pad.Input(2) != nil || pad.Input(3) != nil || len(pad.Outputs[0].Uses()) != 1 {
		return 0, nil
	}
	list := pad.Inputs[1].Def
	if list == nil || list.Op.Kind() != "Concat" {
		return 0, nil
	}
	at, more := 0, (*ir.Value)(nil)
	for _, v := range list.Inputs {
		switch {
		case v.Const != nil && !slices.ContainsFunc(v.Const.Ints(), func(k int) bool { return k != 0 }):
			at += v.Const.Len()
		case more == nil && at == cache.Type.Rank()+axis && slices.Equal(v.Type.Dims, []ir.Dim{ir.Size(1)}):
			more = v
			at++
		default:
			return 0, nil
		}
	}
	if more == nil || more.Def == nil || more.Def.Op.Kind() != "Max" || len(more.Def.Inputs) != 2 {
		return 0, nil
	}
	less, zero := more.Def.Inputs[0].Def, more.Def.Inputs[1].Const
	if less == nil || less.Op.Kind() != "Sub" || zero == nil || zero.Len() != 1 || zero.Ints()[0] != 0 || !slices.Equal(less.Inputs[1].Elems, []ir.Dim{cache.Type.Dims[axis]}) {
		return 0, nil
	}
	return axis, less.Inputs[0]
}

// input returns the number of the only input of the graph from whose elements v is computed, but for those given; -1 where there is none, or more.
func (r *rewriting) input(v *ir.Value, but []int) int {
	found, seen := -1, map[*ir.Value]bool{}
	var visit func(v *ir.Value) bool
	visit = func(v *ir.Value) bool {
		if v == nil || seen[v] || v.Const != nil || v.Elems != nil {
			return true
		}
		seen[v] = true
		if v.Def != nil {
			return !slices.ContainsFunc(v.Def.Inputs, func(x *ir.Value) bool { return !visit(x) })
		}
		i := slices.Index(r.Graph.Inputs, v)
		if slices.Contains(but, i) {
			return true
		}
		only := found < 0 && v.Type.Rank() < 2 && (v.Type.DType == tensor.I32 || v.Type.DType == tensor.I64)
		found = i
		return only
	}
	if !visit(v) {
		return -1
	}
	return found
}
