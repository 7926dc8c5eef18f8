package cpu

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
)

// kind says how a value depends on the images of a batch.
type kind uint8

const (
	same    kind = iota // the same for every image
	rows                // images along its first dimension, each depending on its own image alone
	counted             // computed from the number of images
)

// images is the symbol of a batch while batchable looks at a graph.
var images = ir.Sym("images")

// batchable reports whether every output of g lists, for inputs of the types of in, what
// it computes of one image after the other: whether elements along the first
// dimension of the inputs that have n of them there never meet. listed are the names of
// the values that do so.
func batchable(g *ir.Graph, in []*tensor.Tensor, n int) (listed map[string]bool, ok bool) {
	g = g.Clone()
	kinds := map[*ir.Value]kind{}
	listed = map[string]bool{}
	for i, v := range g.Inputs {
		if v.Type = ir.TypeOf(in[i]); !v.Type.DType.Numeric() {
			return nil, false
		}
		if in[i].Rank() > 0 && in[i].Dim(0) == n {
			v.Type.Dims[0] = images
			kinds[v] = rows
		}
	}
	if g.Infer() != nil {
		return nil, false
	}
	if _, err := fold.Constants(g); err != nil {
		return nil, false
	}
	fold.Dead(g)
	for _, node := range g.Nodes {
		k, ok := kindOf(node, kinds)
		if !ok {
			return nil, false
		}
		for _, v := range node.Outputs {
			if v == nil {
				continue
			}
			if !v.Type.DType.Numeric() || k == rows && !alongFirst(v) {
				return nil, false
			}
			kinds[v] = k
			if k == rows {
				listed[v.Name] = true
			}
		}
	}
	return listed, !slices.ContainsFunc(g.Outputs, func(v *ir.Value) bool { return kinds[v] != rows })
}

// alongFirst reports whether v has images along its first dimension, of one size.
func alongFirst(v *ir.Value) bool {
	d := v.Type.Dims
	return len(d) > 0 && d[0] == images && !slices.ContainsFunc(d[1:], func(d ir.Dim) bool { return !d.Known() })
}

// kindOf is the kind of the outputs of n; ok is false where there is none, or it is
// not known.
func kindOf(n *ir.Node, kinds map[*ir.Value]kind) (k kind, ok bool) {
	if !ir.Pure(n.Op) || len(ir.Subgraphs(n.Op)) > 0 {
		return same, false
	}
	list := make([]kind, len(n.Inputs))
	for i, v := range n.Inputs {
		if v != nil {
			list[i] = kinds[v]
		}
	}
	// What a shape says shows in the output's type.
	shaped := false
	if i, all := op.SizesInput(n); all && i < len(list) && list[i] == counted {
		list[i], shaped = same, true
	}
	switch {
	case shaped || slices.Contains(list, rows):
		if _, ok := n.Op.(*op.Shape); ok {
			return counted, true
		}
		return rows, keepsApart(n, list)
	case !slices.Contains(list, counted):
		return same, true
	}
	// Sizes are computed from sizes; what has as many elements as there are images is not.
	return counted, !slices.ContainsFunc(n.Outputs, func(v *ir.Value) bool { return v != nil && !v.Type.Static() })
}

// keepsApart reports whether n computes each image of its outputs, along their first dimension, from the
// same image of the inputs that have any.
func keepsApart(n *ir.Node, kinds []kind) bool {
	for o, v := range n.Outputs {
		if v == nil {
			continue
		}
		in := op.Along(n, o, 0)
		if in == nil {
			return false
		}
		for i, k := range kinds {
			want := op.Whole
			if k == rows {
				want = 0
			}
			if n.Inputs[i] != nil && (k == counted || in[i] != want) {
				return false
			}
		}
	}
	return true
}
