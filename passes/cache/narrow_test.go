package cache_test

import (
	"slices"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/cache"
	"spc/tests/graphtest"
)

// Attention reads caches of 16-bit floats as they are: no node of a step widens a buffer, whose cost would be that of its capacity.
func TestNarrowCachesAreReadAsTheyAre(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%q: f32[b,4,s,4], %k: f32[b,2,s,4], %v: f32[b,2,s,4], %pk: f16[b,2,p,4], %pv: f16[b,2,p,4]) {
  %wk: f32[b,2,p,4] = Cast "wk" (%pk) {to = 1}
  %wv: f32[b,2,p,4] = Cast "wv" (%pv) {to = 1}
  %fk: f32[b,2,(p+s),4] = Concat "fk" (%wk, %k) {axis = 2}
  %fv: f32[b,2,(p+s),4] = Concat "fv" (%wv, %v) {axis = 2}
  %y: f32[b,4,s,4] = Attention "a" (%q, %fk, %fv) {is_causal = 1, spc_aligned = 1}
  %nk: f16[b,2,(p+s),4] = Cast "nk" (%fk) {to = 10}
  %nv: f16[b,2,(p+s),4] = Cast "nv" (%fv) {to = 10}
  return %y, %nk, %nv
}`)
	static, err := cache.Rewrite(g, ties(g))
	if err != nil {
		t.Fatal(err)
	}
	attentions := 0
	for _, n := range static.Graph.Nodes {
		if slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool {
			return v != nil && n.Op.Kind() == "Cast" && slices.Contains(v.Type.Dims, ir.Sym(static.Capacity))
		}) {
			t.Errorf("%v reads a buffer", n)
		}
		if o, ok := n.Op.(*op.Attention); ok {
			attentions++
			if !o.Narrow || n.Inputs[1].Type.DType != tensor.F16 || n.Inputs[2].Type.DType != tensor.F16 {
				t.Errorf("%v reads %v and %v, want buffers of f16", n, n.Inputs[1].Type, n.Inputs[2].Type)
			}
		}
	}
	if attentions != 1 {
		t.Errorf("%d attentions in\n%s", attentions, static.Graph)
	}
}
