package group

import (
	"spc/backend"
	"spc/backend/machine"
	"spc/passes/choose"
)

// Cost is that of a product of n columns with codes, all of a weight on a grid or those of a bitmap, laid out so: few columns read each
// code or bit once, more are those of a dense product for whose panels floats are made of codes.
func Cost(p *machine.Profile, w *choose.Matrix, n int, l backend.Layout, bitmap bool) choose.Cost {
	rate := p.Of(machine.Codes(w.Grid.Bits, bitmap))
	c := choose.Cost{Config: l.Config, Kernel: kernelName(w.Grid.Bits, bitmap), Bytes: l.Bytes, Work: 2 * float64(w.Len()) * float64(n)}
	if w.Slide == nil && n <= rate.VecColumns() {
		c.Efficiency = rate.Read(w.Dim(1), n)
		return c
	}
	c.Work = 2 * float64(w.Len()) * float64(backend.Columns(n)) // with columns that fill vectors up
	if c.Work == 0 {
		c.Efficiency = 1
		return c
	}
	spent := c.Work/p.Of(machine.Dense).Panels().Efficiency(float64(w.Dim(1)), w.Dim(1), max(n, 2))*rate.Widening(n) + p.Spilled(w, n) + p.Seen(w, n)
	if w.Slide == nil {
		spent += p.Turned(w.Dim(0), w.Dim(1), n)
	} else {
		spent += p.Loaded(w)
	}
	c.Efficiency = c.Work / spent
	return c
}
