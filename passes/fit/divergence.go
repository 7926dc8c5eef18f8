package fit

import (
	"context"
	"math"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
)

// divergence is how far the pruned copy's outputs are from the dense one's, a mean over
// the samples: of a model with one output [n, .., classes], the Kullback-Leibler
// divergence of the classes' distributions, which are the output where it is one and
// its softmax otherwise; of other models the squared error over the squared norm.
func divergence(ctx context.Context, front *calib.Frontier, t *calib.Twins) (float64, error) {
	n := len(t.Graph.Outputs) / 2
	var values []*ir.Value
	for i, v := range t.Graph.Outputs[:n] {
		if v.Type.DType == tensor.F32 {
			values = append(values, v, t.Graph.Outputs[n+i])
		}
	}
	sum, count := 0.0, 0.0
	err := front.See(ctx, values, func(_ int, out []*tensor.Tensor) error {
		if len(out) == 2 && scores(out[0]) {
			k, rows := kullback(out[0].F32s(), out[1].F32s(), out[0].Dim(out[0].Rank()-1))
			sum, count = sum+k, count+rows
			return nil
		}
		square, norm := 0.0, 0.0
		for i := 0; i < len(out); i += 2 {
			b := out[i+1].F32s()
			for j, v := range out[i].F32s() {
				d := float64(v) - float64(b[j])
				square += d * d
				norm += float64(v) * float64(v)
			}
		}
		if norm > 0 {
			sum += square / norm
		}
		count++
		return nil
	})
	if count == 0 {
		return 0, err
	}
	return sum / count, err
}

// scores reports whether a tensor looks like scores of classes.
func scores(t *tensor.Tensor) bool {
	return (t.Rank() == 2 || t.Rank() == 3) && t.Dim(t.Rank()-1) > 1
}

// kullback sums KL(p || q) over rows of n scores.
func kullback(a, b []float32, n int) (sum, rows float64) {
	p, q := make([]float64, n), make([]float64, n)
	for i := 0; i+n <= len(a); i += n {
		logs(p, a[i:i+n])
		logs(q, b[i:i+n])
		for j := range p {
			if e := math.Exp(p[j]); e > 0 {
				sum += e * (p[j] - q[j])
			}
		}
		rows++
	}
	return sum, rows
}

// logs writes the logarithms of the probabilities that scores stand for.
func logs(dst []float64, x []float32) {
	total, top, positive := 0.0, math.Inf(-1), true
	for _, v := range x {
		total += float64(v)
		top = math.Max(top, float64(v))
		positive = positive && v >= 0
	}
	if positive && math.Abs(total-1) < 1e-3 {
		for j, v := range x {
			dst[j] = math.Log(math.Max(float64(v), 1e-12))
		}
		return
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	norm := top + math.Log(sum)
	for j, v := range x {
		dst[j] = float64(v) - norm
	}
}
