package fit

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/recon"
)

// slopesSeed draws the losses of which gradients are computed.
const slopesSeed = 1

// slopes sees how steeply the loss of the dense model depends on the weights.
func (f *fitter) slopes() error {
	var weights []*ir.Value
	for _, l := range f.layers {
		weights = append(weights, l.Value)
	}
	o := recon.SquareOptions{Seed: slopesSeed, Workers: f.Workers, Progress: func(done int) { f.report("gradients", done, f.samples) }}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	squares, err := recon.Squares(f.ctx, f.Observer, f.graph, weights, o)
	if err != nil {
		return fmt.Errorf("method %s: %w", f.Method, err)
	}
	for k, l := range f.layers {
		for i, v := range squares[k] {
			squares[k][i] = math.Sqrt(v)
		}
		l.slope = tensor.Data[float64](l.View.Matrix(tensor.From(squares[k], l.Value.Const.Shape()...)))
	}
	return nil
}

// taylor returns |w| times the slopes, the root of the importance of weights [rows, cols].
func (l *layer) taylor(w []float32) []float32 {
	s := make([]float32, len(w))
	for i, v := range w {
		s[i] = float32(min(math.Abs(float64(v))*l.slope[i], math.MaxFloat32))
	}
	return s
}

// steep prunes weights w of a layer by Taylor's importance, or by magnitude where the
// outputs depend on none of them.
func (f *fitter) steep(l *layer, w []float32, sparsity float64) (*edit, error) {
	if l.stays != nil {
		return f.choose(l, w, nil, sparsity)
	}
	if s := l.taylor(w); slices.Max(s) > 0 {
		return f.choose(l, w, s, sparsity)
	}
	e, err := f.choose(l, w, nil, sparsity)
	if err != nil {
		return nil, err
	}
	e.how = "magnitude, as the outputs do not depend on it"
	return e, nil
}
