package prune

import "spc/ir"

// SilenceChannels decides as Graph does under Channel, but every channel stays in
// place, and the columns of weights that read those that would go become zero. It
// returns how many channels these are.
func SilenceChannels(g *ir.Graph, o GraphOptions) (int, error) {
	cands, err := candidates(g, &o)
	if err != nil {
		return 0, err
	}
	f := follow(g, cands, o.Pattern.Kind)
	groups, err := f.open(cands)
	if err != nil {
		return 0, err
	}
	p := &Plan{Options: o, graph: g, cands: cands}
	p.drop(f, groups, o.Allocate)
	count := 0
	for _, gone := range f.gone {
		if gone {
			count++
		}
	}
	for _, c := range f.cuts {
		if !c.reads || f.left(c.labels) == len(c.labels) {
			continue
		}
		v := c.node.Inputs[c.input]
		t := v.Const.Clone()
		inner := 1
		for _, d := range t.Shape()[c.axis+1:] {
			inner *= d
		}
		for i := range t.F32s() {
			if f.gone[f.root(c.labels[i/inner%t.Dim(c.axis)])] {
				t.F32s()[i] = 0
			}
		}
		v.SetConst(t)
	}
	return count, nil
}
