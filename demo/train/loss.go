package main

import "math"

// softmaxLoss returns the mean cross-entropy of logits [classes, n] against
// labels smoothed by s, and replaces the logits with its gradient.
func softmaxLoss[T float](logits act[T], labels []int, s float64) float64 {
	var loss float64
	n, classes := len(labels), logits.c
	p := make([]float64, classes)
	for i, label := range labels {
		top := logits.data[i]
		for c := range p {
			top = max(top, logits.data[c*n+i])
		}
		var total float64
		for c := range p {
			p[c] = expNegative(float64(logits.data[c*n+i] - top))
			total += p[c]
		}
		for c := range p {
			target := s / float64(classes)
			if c == label {
				target += 1 - s
			}
			p[c] /= total
			loss -= target * math.Log(max(p[c], 1e-300)) / float64(n)
			logits.data[c*n+i] = T((p[c] - target) / float64(n))
		}
	}
	return loss
}

// expNegative is e to the x for x <= 0. The library's Exp has assembly that
// may round differently from one architecture to another.
func expNegative(x float64) float64 {
	if x < -700 {
		return 0
	}
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(k*math.Ln2)
	sum := 1.0
	for i := 14.0; i >= 1; i-- {
		sum = 1 + float64(r/i*sum)
	}
	return math.Ldexp(sum, int(k))
}
