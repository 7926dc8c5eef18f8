package process

import "math"

// Distance is the norm of the difference of two lists over that of the second: 0 where they are equal, and infinite where they cannot be compared.
func Distance(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	diff, norm := 0.0, 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		diff += d * d
		norm += float64(b[i]) * float64(b[i])
	}
	if diff == 0 {
		return 0
	}
	if math.IsNaN(diff) || norm == 0 {
		return math.Inf(1)
	}
	return math.Sqrt(diff / norm)
}
