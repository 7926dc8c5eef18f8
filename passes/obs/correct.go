package obs

import (
	"context"
	"fmt"
	"math"
)

// Moments are sums over the N columns that a layer multiplies: X[K] of them and
// XX[K,K] of x x^T.
type Moments struct {
	N  int
	X  []float64
	XX []float64
}

// Correction brings the mean and the variance of each output of a pruned layer back
// to what they were: y = Scale[i] (W' x)_i + Bias[i].
type Correction struct {
	Scale, Bias []float32 // [M]
	Note        string    // outputs that took a fallback, see Correct
}

// The scales that corrections take to be sane.
const MinScale, MaxScale = 0.25, 4

// Correct returns the scale and the bias for each output of the weights w[M,K] on the
// pruned model's inputs with which it has the mean and, where scale is set, the
// variance that the layer's own weights had on the dense model's inputs with bias
// b[M], nil for none. Of an output that is constant on either side, to a millionth of
// its mean square, the scale is 1; other scales are cut to [1/4, 4]. The bias always
// restores the mean.
func (s *Solver) Correct(ctx context.Context, w, b []float32, pruned, dense Moments, scale bool) (*Correction, error) {
	if err := s.checkMade(w); err != nil {
		return nil, err
	}
	if b != nil && len(b) != s.Rows {
		return nil, s.errorf("%d biases for %d rows", len(b), s.Rows)
	}
	meanP, varP, err := s.outputs(ctx, w, pruned, scale)
	if err != nil {
		return nil, err
	}
	meanD, varD, err := s.outputs(ctx, s.W, dense, scale)
	if err != nil {
		return nil, err
	}
	c := &Correction{Scale: make([]float32, s.Rows), Bias: make([]float32, s.Rows)}
	constant, bounded := 0, 0
	for i := range s.Rows {
		f := 1.0
		if scale {
			switch {
			case varP[i] == 0 || varD[i] == 0:
				constant++
			default:
				f = math.Sqrt(varD[i] / varP[i])
				if f < MinScale || f > MaxScale {
					f = min(max(f, MinScale), MaxScale)
					bounded++
				}
			}
		}
		c.Scale[i] = float32(f)
		bias := meanD[i] - float64(c.Scale[i])*meanP[i]
		if b != nil {
			bias += float64(b[i])
		}
		c.Bias[i] = float32(bias)
	}
	if constant > 0 {
		c.Note = fmt.Sprintf("%d of %d outputs are constant", constant, s.Rows)
	}
	if bounded > 0 {
		if c.Note != "" {
			c.Note += "; "
		}
		c.Note += fmt.Sprintf("scales of %d of %d outputs are cut to [%v, %v]", bounded, s.Rows, MinScale, MaxScale)
	}
	return c, nil
}

// outputs returns the mean of each output without bias and, if asked, its variance,
// 0 where that is a millionth of the mean square or less.
func (s *Solver) outputs(ctx context.Context, w []float32, m Moments, variance bool) (mean, vars []float64, err error) {
	k := s.Cols
	if m.N < 1 || len(m.X) != k {
		return nil, nil, s.errorf("moments of %d columns with %d means, want at least 1 with %d", m.N, len(m.X), k)
	}
	mean = make([]float64, s.Rows)
	for i := range mean {
		sum := 0.0
		for j, x := range w[i*k : (i+1)*k] {
			sum += float64(float64(x) * m.X[j])
		}
		if mean[i] = sum / float64(m.N); !finite(mean[i]) {
			return nil, nil, s.errorf("the mean of output %d is %v, want a finite number", i, mean[i])
		}
	}
	if !variance {
		return mean, nil, nil
	}
	if err := s.checkSquare("second moments", m.XX); err != nil {
		return nil, nil, err
	}
	vars, err = forms(ctx, s.workers, s.Rows, k, func(i int) float64 { return float64(w[i]) }, m.XX)
	if err != nil {
		return nil, nil, err
	}
	for i, sum := range vars {
		square := sum / float64(m.N)
		if vars[i] = square - mean[i]*mean[i]; !(vars[i] > 1e-6*square) {
			vars[i] = 0
		}
	}
	return mean, vars, nil
}

// Apply scales the weights w[M,K] in place; the bias is the correction's.
func (c *Correction) Apply(w []float32) {
	k := len(w) / len(c.Scale)
	for i, f := range c.Scale {
		for j := range w[i*k : (i+1)*k] {
			w[i*k+j] *= f
		}
	}
}
