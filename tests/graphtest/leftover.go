package graphtest

// Leftover is the squared error of the least squares fit of weights w to their outputs by the inputs of a mask, h being the moments of these.
func Leftover(h [][]float64, w []float32, mask uint) float64 {
	var at []int
	for c := range w {
		if mask>>c&1 == 1 {
			at = append(at, c)
		}
	}
	energy, b, a := 0.0, make([]float64, len(at)), make([][]float64, len(at))
	for i, row := range h {
		for j, v := range row {
			energy += float64(w[i]) * float64(w[j]) * v
		}
	}
	for i, c := range at {
		for _, d := range at {
			a[i] = append(a[i], h[c][d])
		}
		for d, v := range h[c] {
			b[i] += v * float64(w[d])
		}
	}
	for i := range at {
		energy -= b[i] * b[i] / a[i][i]
		for k := i + 1; k < len(at); k++ {
			f := a[k][i] / a[i][i]
			for j := i; j < len(at); j++ {
				a[k][j] -= f * a[i][j]
			}
			b[k] -= f * b[i]
		}
	}
	return energy
}
