package obs

import "math"

// Saliency returns |w| / sqrt([H^-1]_jj), [M,K]: the square root of the loss of
// removing that weight alone with the others making up for it. It is a saliency for
// prune.Layer.
func (s *Solver) Saliency() []float32 {
	inv := s.invert()
	return s.scaled(func(j int) float64 { return 1 / math.Sqrt(max(inv[j*s.Cols+j], s.floor)) })
}

// Wanda returns |w| sqrt(H_jj), [M,K]: the square root of the loss of removing that
// weight alone without changing the others (arXiv 2306.11695).
func (s *Solver) Wanda() []float32 {
	return s.scaled(func(j int) float64 { return math.Sqrt(s.h[j*s.Cols+j]) })
}

// scaled returns |w| times a factor for each column, as large as float32 allows.
func (s *Solver) scaled(factor func(j int) float64) []float32 {
	columns := make([]float64, s.Cols)
	for j := range columns {
		columns[j] = factor(j)
	}
	out := make([]float32, len(s.W))
	for i, w := range s.W {
		out[i] = float32(min(math.Abs(float64(w))*columns[i%s.Cols], math.MaxFloat32))
	}
	return out
}
