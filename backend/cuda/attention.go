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
	if !ok || n.Inputs[0].Type.DType != tensor.F32 || a.Heads > maxGrid || a.Batch > maxGrid {
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
	if g.Shared > backend.MaxShared {
		return false, nil
	}
	part := func(i int, h op.AttentionHeads) any { return element{n.Inputs[i], h.From} }
	causal := 0
	if a.Causal {
		causal = 1
	}
	params := []any{part(0, a.Q), part(1, a.K), part(2, a.V), n.Outputs[0], a.Queries, a.Keys, a.Depth, a.Width, a.Group, a.Scale, causal}
	for _, h := range []op.AttentionHeads{a.Q, a.K, a.V, a.Y} {
		params = append(params, h.Batch, h.Head, h.Token)
	}
	if m := a.Mask; m != nil {
		kind := 1
		if m.Bool {
			kind = 2
		}
		params = append(params, n.Inputs[3], kind, m.Keys, m.Batch, m.Head, m.Query)
	} else {
		params = append(params, nil, 0, 0, 0, 0, 0)
	}
	return true, b.launch(name, g, params...)
}
