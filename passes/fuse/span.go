package fuse

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Spans makes the columns of an image of one channel its channels, where a Conv's kernel is as wide as the image:
//
//	Conv[1,k,W](x[N,1,H,W]) = Transpose(Conv[W,1,k](x[N,W,1,H]))
//
// as over the embeddings of words. The rows of the result were single numbers, and now are as long as the image was high.
func Spans(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		o, ok := n.Op.(*op.Conv)
		if !ok || !spans(n, o) {
			return false, nil
		}
		w, turn := n.Inputs[1], &op.Transpose{Perm: []int{0, 3, 1, 2}}
		weight, err := turn.Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{w.Const})
		if err != nil {
			return false, err
		}
		// row makes lists of rows and columns those of one row.
		row := func(list []int, one int) (out []int) {
			for i := 0; i < len(list); i += 2 {
				out = append(out, one, list[i])
			}
			return out
		}
		b := builder{n}
		x, err := b.add("columns", "Transpose", map[string]any{"perm": turn.Perm}, n.Inputs[0])
		if err != nil {
			return false, err
		}
		c := b.constant("weight", weight[0])
		conv, err := b.add("conv", "Conv", map[string]any{
			"kernel_shape": weight[0].Shape()[2:], "strides": row(o.Strides, 1), "dilations": row(o.Dilations, 1), "pads": row(o.Pads, 0),
		}, x, c, n.Input(2))
		if err != nil {
			return false, err
		}
		y, err := b.add("rows", "Transpose", map[string]any{"perm": []int{0, 1, 3, 2}}, conv)
		if err != nil {
			return false, err
		}
		forward(n, y)
		conv.Def.Name, c.Name = n.Name, w.Name // which are still taken
		return true, nil
	})
}

// spans reports whether the kernel of a Conv is as wide as its image of one channel, which it slides down.
func spans(n *ir.Node, o *op.Conv) bool {
	x, w, y := n.Inputs[0].Type, n.Inputs[1], n.Outputs[0].Type
	if w.Const == nil || len(w.Uses()) != 1 || w.IsOutput() || w.Const.Rank() != 4 || !x.Ranked || !y.Ranked {
		return false
	}
	width := w.Const.Dim(3)
	return o.Group == 1 && !o.Quantised() && o.Act == "" && n.Input(op.Residual) == nil && (o.AutoPad == "NOTSET" || o.AutoPad == "VALID") &&
		w.Const.Dim(1) == 1 && width > 1 && x.Dims[3] == ir.Size(width) && y.Dims[3] == ir.Size(1) && y.Dims[2] != ir.Size(1) &&
		(len(o.Pads) == 0 || o.Pads[1]+o.Pads[3] == 0)
}
