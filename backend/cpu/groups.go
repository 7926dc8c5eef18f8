package cpu

import (
	"spc/backend"
	"spc/backend/format/dense"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
)

// grouped returns the kernels of the groups of a dense weight.
func (p *program) grouped(n *ir.Node, g *convGeometry) ([]backend.FloatKernel, error) {
	v := n.Inputs[1]
	return prepared(p, keyOfWeight(v, "groups"), func() ([]backend.FloatKernel, error) {
		w := denseValues(v)
		kernels, err := inBlocks(w.Reshape(g.groups*g.rows, g.channels*g.taps), g.groups)
		if err != nil {
			return nil, n.Errorf(ir.ErrInvalid, "weight %s: %v", v.Name, err)
		}
		p.source(kernels[0], w.Bytes())
		p.copied(kernels[0])
		return kernels, nil
	})
}

// inBlocks returns kernels of groups of the rows of a matrix f32, in blocks of so many rows as the groups' few fill: those
// read what taps see where it lies.
func inBlocks(w *tensor.Tensor, groups int) ([]backend.FloatKernel, error) {
	height, best, m := 0, 0.0, w.Dim(0)/groups
	for _, h := range []int{4, 8, 16} {
		if e := float64(m) / float64(sparse.Ceil(m, h)*h) * machine.Default.Of(machine.OfRows(h)).Panel; e >= best {
			height, best = h, e
		}
	}
	kernels := make([]backend.FloatKernel, groups)
	for i := range kernels {
		b, err := sparse.Find(rowsOf(w, i*m, m), height, 1, w.Dim(1)) // zeros, too
		if err == nil {
			kernels[i], err = b.Kernel(dense.Name)
		}
		if err != nil {
			return nil, err
		}
	}
	return kernels, nil
}
