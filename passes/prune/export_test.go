package prune

import "spc/ir"

// SilenceChannels is Channels, but every channel stays in place, and the weights
// that read those that would go are zero there. It returns how many these are.
func SilenceChannels(g *ir.Graph, o GraphOptions) (int, error) {
	p, err := planChannels(g, &o)
	if err != nil {
		return 0, err
	}
	for _, c := range p.cuts {
		if !c.reads {
			continue
		}
		t := c.node.Inputs[c.input].Const.Clone()
		inner := 1
		for _, d := range t.Shape()[c.axis+1:] {
			inner *= d
		}
		for i := range t.F32s() {
			if p.gone[p.root(c.ids[i/inner%len(c.ids)])] {
				t.F32s()[i] = 0
			}
		}
		c.node.Inputs[c.input].SetConst(t)
	}
	return len(p.gone), nil
}
