// Fit prints tailFit: a weighted minimax fit by Lawson's algorithm (Lawson, 1961; Rice, 1969, "The Approximation of Functions",
// volume 2, section 13-6), which weighs points by their errors again and again.
package main

import (
	"fmt"
	"math"
)

const (
	degree = 8
	end    = 6.5
	points = 2000
	rounds = 300

	relative = 1e-7 // what counts as much as
	absolute = 1e-9 // of the product with z
)

func main() {
	var z, want, scale, weight []float64
	var basis [][]float64
	for i := range points {
		at := math.Cos(math.Pi * (float64(i) + 0.5) / points)
		v := end * (1 - at) / 2
		q := math.Erfc(v/math.Sqrt2) / 2
		z, want = append(z, v), append(want, math.Log2(2*q)/v)
		// An error of p is one of q of z ln 2 as much.
		scale, weight = append(scale, v*math.Ln2/max(1, absolute/relative/(v*q))), append(weight, 1)
		row := []float64{1, -at} // Chebyshev's polynomials
		for len(row) <= degree {
			row = append(row, -2*at*row[len(row)-1]-row[len(row)-2])
		}
		basis = append(basis, row)
	}
	var c []float64
	worst := 0.0
	for range rounds {
		c = squares(basis, want, scale, weight)
		worst = 0
		errs := make([]float64, points)
		for i, row := range basis {
			e := -want[i]
			for k, v := range row {
				e += c[k] * v
			}
			errs[i] = math.Abs(e) * scale[i]
			worst = max(worst, errs[i])
		}
		for i, e := range errs {
			weight[i] *= e/worst + 1e-3
		}
		norm(weight)
	}
	fmt.Printf("// weighted error %.2g\n", worst)
	p := powers(c)
	for k := len(p) - 1; k >= 0; k-- {
		fmt.Printf("%v, ", float32(p[k]))
	}
	fmt.Println()
}

// squares returns the coefficients with the least sum of weighted squares, by the normal equations.
func squares(basis [][]float64, want, scale, weight []float64) []float64 {
	n := len(basis[0])
	m := make([][]float64, n)
	for r := range m {
		m[r] = make([]float64, n+1)
	}
	for i, row := range basis {
		w := weight[i] * scale[i] * scale[i]
		for r := range n {
			for k := range n {
				m[r][k] += w * row[r] * row[k]
			}
			m[r][n] += w * row[r] * want[i]
		}
	}
	for p := range n { // positive definite: no pivots
		for r := range n {
			if f := m[r][p] / m[p][p]; r != p {
				for k := p; k <= n; k++ {
					m[r][k] -= f * m[p][k]
				}
			}
		}
	}
	c := make([]float64, n)
	for r := range c {
		c[r] = m[r][n] / m[r][r]
	}
	return c
}

func norm(w []float64) {
	sum := 0.0
	for _, v := range w {
		sum += v
	}
	for i := range w {
		w[i] /= sum
	}
}

// powers turns coefficients of Chebyshev's polynomials in 2z/end - 1 into those of powers of z.
func powers(c []float64) []float64 {
	sum := make([]float64, len(c))
	last, now := []float64{1}, []float64{-1, 2 / end}
	for _, v := range c {
		for k, t := range last {
			sum[k] += v * t
		}
		next := make([]float64, len(now)+1)
		for k, t := range now {
			next[k] -= 2 * t
			next[k+1] += 4 / end * t
		}
		for k, t := range last {
			next[k] -= t
		}
		last, now = now, next
	}
	return sum
}
