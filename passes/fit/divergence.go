package fit

import (
	"spc/ir/tensor"
	"spc/passes/calib"
)

// divergence is how far the pruned copy's outputs are from the dense one's.
func (f *fitter) divergence(front *calib.Frontier, t *calib.Twins) (float64, error) {
	d, n := calib.NewDivergence(f.graph), len(f.graph.Outputs)
	err := front.SeeAny(f.ctx, t.Graph.Outputs, func(_ int, out []*tensor.Tensor) error {
		return d.Add(out[:n], out[n:])
	})
	return d.Value(), err
}
