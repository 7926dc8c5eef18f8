package fit

import "spc/ir"

// judgedRuns bounds the runs on samples by which a pruned model is judged. They are fewer where
// the multiplications of both models would exceed passWork, but trialRuns.
const judgedRuns = 64

// judge measures how far the outputs of the pruned graph are from those of the dense one,
// which it was. An error leaves that out of the result.
func (f *fitter) judge(dense *ir.Graph, out *Result) error {
	work := 0.0
	for _, u := range dense.WeightUses() {
		if shape, ok := u.Value.Type.Shape(); ok {
			rows, cols := u.View.Dims(shape)
			work += float64(rows) * float64(cols) * float64(u.Columns()) * float64(max(1, u.Reuse.AtOne()))
		}
	}
	runs := max(trialRuns, int(min(judgedRuns, passWork/max(1, 2*work))))
	d, seen, err := f.Observer.Between(f.ctx, dense, f.graph, f.Budget, runs)
	if err != nil {
		return err
	}
	out.Distances, out.Judged = d.Distances(), seen
	return nil
}
