package fit

import (
	"spc/ir/tensor"
	"spc/passes/calib"
)

// divergence is how far the pruned copy's outputs are from the dense one's.
func (f *fitter) divergence(front *calib.Frontier, t *calib.Twins) (float64, error) {
	d, n := calib.NewDivergence(f.graph), len(f.graph.Outputs)
	err := front.SeeAny(f, t.Graph.Outputs, func(_ int, out []*tensor.Tensor) error {
		return d.Add(out[:n], out[n:])
	})
	return d.Value(), err
}

// goal is what the dense copy gives for the samples of a frontier, nil where that is too
// much to keep.
type goal [][]*tensor.Tensor

// goal evaluates the dense copy.
func (f *fitter) goal(front *calib.Frontier, t *calib.Twins) (goal, error) {
	out, budget := goal{}, f.Budget
	if budget == 0 {
		budget = calib.DefaultBudget
	}
	err := front.SeeAny(f, t.Graph.Outputs[:len(f.graph.Outputs)], func(_ int, values []*tensor.Tensor) error {
		if out == nil {
			return nil
		}
		var all []*tensor.Tensor
		for _, v := range values {
			budget -= len(v.Bytes())
			all = append(all, v.Clone())
		}
		if out = append(out, all); budget < 0 {
			out = nil
		}
		return nil
	})
	return out, err
}

// distance is divergence from a goal that was evaluated before.
func (f *fitter) distance(front *calib.Frontier, t *calib.Twins, from goal) (float64, error) {
	if from == nil {
		return f.divergence(front, t)
	}
	d := calib.NewDivergence(f.graph)
	err := front.SeeAny(f, t.Graph.Outputs[len(f.graph.Outputs):], func(i int, out []*tensor.Tensor) error {
		return d.Add(from[i], out)
	})
	return d.Value(), err
}
