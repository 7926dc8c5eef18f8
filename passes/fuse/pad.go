package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
)

// Pads makes zeros around images part of the convolutions and average pools that read them: exporters write a Pad
// where a framework pads more on one side than on the other, or in a layer of its own.
func Pads(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if paddedWindow(n.Op) == nil {
			return false, nil
		}
		pad := def(n.Inputs[0], "Pad")
		if pad == nil {
			return false, nil
		}
		around, ok := zerosAround(pad)
		if !ok {
			return false, nil
		}
		before := n.Op
		n.Op = ir.CloneOp(n.Op)
		w := paddedWindow(n.Op)
		for i, v := range w.Pads {
			around[i] += v
		}
		w.Pads = around
		wide := false
		if pool, is := n.Op.(*op.AveragePool); is {
			pool.CountPad = true
			for i, v := range around { // whole windows of zeros, which other runtimes refuse
				wide = wide || v >= w.KernelShape[i%len(w.KernelShape)]
			}
		}
		n.SetInput(0, pad.Inputs[0])
		if wide || n.Infer() != nil { // which bounds pads
			n.Op = before
			n.SetInput(0, pad.Outputs[0])
			return false, n.Infer()
		}
		return true, nil
	})
}

// paddedWindow is the window of an operator to which the zeros around an image are as those that a Pad adds, nil where it has none.
func paddedWindow(o ir.Op) *op.Window {
	var w *op.Window
	switch o := o.(type) {
	case *op.Conv:
		if w = &o.Window; o.Quantised() {
			return nil
		}
	case *op.AveragePool:
		w = &o.Window
		padded := slices.ContainsFunc(w.Pads, func(v int) bool { return v != 0 })
		if o.CeilMode || padded && !o.CountPad {
			return nil
		}
	default:
		return nil
	}
	if w.AutoPad != "" && w.AutoPad != "NOTSET" {
		return nil
	}
	return w
}

// zerosAround returns how many zeros a Pad puts before each axis of an image, and then after each; ok is false where it does
// anything else.
func zerosAround(pad *ir.Node) (around []int, ok bool) {
	x := pad.Inputs[0].Type
	if ir.AttrOf(pad.Op, "mode") != "constant" || !x.Ranked || pad.Inputs[1].Const == nil {
		return nil, false
	}
	if v := pad.Input(2); v != nil && !isScalar(v, 0) {
		return nil, false
	}
	rank, pads := x.Rank(), pad.Inputs[1].Const.Ints()
	axes := make([]int, rank)
	for i := range axes {
		axes[i] = i
	}
	if v := pad.Input(3); v != nil {
		if v.Const == nil {
			return nil, false
		}
		axes = v.Const.Ints()
	}
	around = make([]int, max(0, 2*(rank-2)))
	for i, a := range axes {
		if a < 0 {
			a += rank
		}
		for side := range 2 {
			switch v := pads[side*len(axes)+i]; {
			case v < 0 || v > 0 && a < 2:
				return nil, false
			case a >= 2:
				around[side*(rank-2)+a-2] = v
			}
		}
	}
	return around, true
}
