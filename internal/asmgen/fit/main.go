// Fit prints coefficients of polynomials: weighted minimax fits by Lawson's algorithm (Lawson, 1961; Rice, 1969, "The
// Approximation of Functions", volume 2, section 13-6), which weighs points by their errors again and again.
package main

import (
	"fmt"
	"math"
)

const (
	points = 2000
	rounds = 300

	relative = 1e-7 // what of tailFit counts as much as
	absolute = 1e-9 // of the product with z
)

// fit is a polynomial for arguments from 0 to end. scale is what an error of it counts, by the argument and what is wanted.
type fit struct {
	name   string
	degree int
	end    float64
	want   func(v float64) float64
	scale  func(v, want float64) float64
}

// fits lists those of internal/asmgen by their names there.
var fits = []fit{
	{"tailFit", 8, 6.5, func(v float64) float64 { return math.Log2(math.Erfc(v/math.Sqrt2)) / v }, func(v, _ float64) float64 {
		// An error of p is one of erfc of z ln 2 as much.
		return v * math.Ln2 / max(1, absolute/relative/(v*math.Erfc(v/math.Sqrt2)/2))
	}},
	{"atanFit", 8, 1, func(v float64) float64 { return math.Atan(math.Sqrt(v)) / math.Sqrt(v) }, ratio},
	{"asinFit", 5, 0.25, func(v float64) float64 { return math.Asin(math.Sqrt(v)) / math.Sqrt(v) }, ratio},
}

// ratio makes errors relative ones.
func ratio(_, want float64) float64 { return 1 / want }

func main() {
	for _, f := range fits {
		c, worst := f.coefficients()
		fmt.Printf("// %s: weighted error %.2g\n", f.name, worst)
		for k := len(c) - 1; k >= 0; k-- {
			fmt.Printf("%v, ", float32(c[k]))
		}
		fmt.Println()
	}
}

// coefficients returns those of powers, the lowest first, and the largest error.
func (f *fit) coefficients() (c []float64, worst float64) {
	var want, scale, weight []float64
	var basis [][]float64
	for i := range points {
		at := math.Cos(math.Pi * (float64(i) + 0.5) / points)
		v := f.end * (1 - at) / 2
		w := f.want(v)
		want, scale, weight = append(want, w), append(scale, f.scale(v, w)), append(weight, 1)
		row := []float64{1, -at} // Chebyshev's polynomials
		for len(row) <= f.degree {
			row = append(row, -2*at*row[len(row)-1]-row[len(row)-2])
		}
		basis = append(basis, row)
	}
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
	return powers(c, f.end), worst
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
func powers(c []float64, end float64) []float64 {
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
