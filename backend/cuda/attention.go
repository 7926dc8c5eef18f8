package cuda

import (
	"fmt"
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindAttention computes 64 queries at a time on tensor cores, where floats have 16 bits and
// heads up to 128 features, else one by one.
func bindAttention(b *binder, n *ir.Node) (bool, error) {
	a, ok := n.Op.(*op.Attention).Plan(n)
	if !ok || a.Alike || !a.Band.Open() && !a.Band.Causal() || n.Inputs[0].Type.DType != tensor.F32 || a.Heads > maxGrid || a.Batch > maxGrid {
		return false, nil
	}
	grid := [3]int{a.Queries, a.Heads, a.Batch}
	g := backend.Geometry{Grid: grid, Block: [3]int{128, 1, 1}, Shared: 4 * a.Keys}
	name := b.name("attention_row")
	depths := []int{32, 64, 128}
	if i := slices.IndexFunc(depths, func(d int) bool { return d >= max(a.Depth, a.Width) }); i >= 0 && b.prog.float != tensor.F32 {
		g.Grid[0], g.Shared = (a.Queries+63)/64, 0
		name = b.name(fmt.Sprintf("attention_64x64x%d_mma", depths[i]))
	}
	if g.Shared > backend.GPUShared {
		return false, nil
	}
	causal := 0
	if a.Band.Causal() {
		causal = 1
	}
	places := params{b.element(n.Inputs[0], a.Q.From), b.element(n.Inputs[1], a.K.From), b.element(n.Inputs[2], a.V.From), value(n.Outputs[0])}
	var strides []int
	for _, h := range []op.AttentionHeads{a.Q, a.K, a.V, a.Y} {
		strides = append(strides, h.Batch, h.Head, h.Token)
	}
	mask := make(params, 6)
	if m := a.Mask; m != nil {
		kind := 1
		if m.Bool {
			kind = 2
		}
		mask = append(values(n.Inputs[3]), ints(kind, m.Keys, m.Batch, m.Head, m.Query)...)
	}
	return true, b.launch(name, g, places, ints(a.Queries, a.Keys, a.Depth, a.Width, a.Group), floats(a.Scale), ints(causal), ints(strides...), mask)
}
