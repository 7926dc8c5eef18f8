package fit

import (
	"spc/ir/tensor"
	"spc/passes/calib"
)

// apart is the divergence of twins on the samples of an observer.
func (f *fitter) apart(o *calib.Observer, t *calib.Twins) (float64, error) {
	front := o.Frontier(t.Graph, f.Budget)
	defer front.Close()
	return f.divergence(front, t)
}

// divergence is how far the pruned copy's outputs are from the dense one's.
func (f *fitter) divergence(front *calib.Frontier, t *calib.Twins) (float64, error) {
	d, n := calib.NewDivergence(f.graph), len(f.graph.Outputs)
	front.Keep(t.Graph.Outputs...)
	if err := front.Approach(f.ctx, len(t.Graph.Nodes)); err != nil {
		return 0, err
	}
	err := front.SeeAny(f.ctx, t.Graph.Outputs, func(_ int, out []*tensor.Tensor) error {
		return d.Add(out[:n], out[n:])
	})
	return d.Value(), err
}
