package verify

import (
	"fmt"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// biasInput is where Conv, ConvTranspose, Gemm and MatMul read a bias.
const biasInput = 2

// WithWeights returns a copy of g, the graph of a model after some passes, with the
// constants of own, a compiled graph of the same model whose weights were changed: each
// takes the place of the one of the same name, type and shape that a node of the same name
// reads, and a bias that calibration made that of none or of the one before. fused, which may be nil, is the graph after all
// passes that do not change weights. The error says why own is not g with other constants,
// as far as these tell:
//
//   - a constant of own is neither in g nor, with the same elements, in fused;
//   - a weight of g is not in own;
//   - later passes rearrange a constant of g.
func WithWeights(g, own, fused *ir.Graph, unpack func(*ir.Value) (*tensor.Tensor, error)) (*ir.Graph, error) {
	b := &Bench{Unpack: unpack}
	out := g.Clone()
	nodes := map[string]*ir.Node{}
	for sub := range out.All() {
		for _, n := range sub.Nodes {
			nodes[n.Name] = n
		}
	}
	later := map[string]*ir.Value{} // of fused
	if fused != nil {
		for _, v := range fused.Constants() {
			later[v.Name] = v
		}
	}
	set := map[string]bool{}
	for sub := range own.All() {
		for _, n := range sub.Nodes {
			for i, v := range n.Inputs {
				if v == nil || !v.IsConst() {
					continue
				}
				t, err := b.constant(v)
				if err != nil {
					return nil, err
				}
				if to := nodes[n.Name]; to != nil && to.Op.Kind() == n.Op.Kind() {
					w := to.Input(i)
					if i == biasInput && (w == nil || w.Const != nil && w.Type.Equal(ir.TypeOf(t)) && strings.HasPrefix(v.Name, w.Name+"_")) {
						to.SetInput(i, to.Graph().NewConst(v.Name, t)) // which calibration made
						continue
					}
					if w != nil && w.Const != nil && w.Name == v.Name && w.Type.Equal(ir.TypeOf(t)) {
						if l := later[v.Name]; !set[v.Name] && l != nil && (l.Const == nil || !l.Const.Equal(w.Const)) {
							return nil, fmt.Errorf("later passes rearrange constant %s", v.Name)
						}
						w.SetConst(t)
						set[v.Name] = true
						continue
					}
				}
				if l := later[v.Name]; l == nil || l.Const == nil || !l.Const.Equal(t) {
					return nil, fmt.Errorf("constant %s of node %v has no place in it", v.Name, n)
				}
			}
		}
	}
	for _, u := range out.WeightUses() {
		if !set[u.Value.Name] {
			return nil, fmt.Errorf("weight %s of node %v is not in the compiled model", u.Value.Name, u.Node)
		}
	}
	return out, out.Infer()
}
