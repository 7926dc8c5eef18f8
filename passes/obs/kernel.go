package obs

import "math"

// subRows subtracts rows of v from c: c[j] -= sum over q of a[q] * v[at[q]+j], the
// terms in the order of q and every product and difference rounded, so that any
// width of vectors gives the same bits.
func subRows(c, a, v []float64, at []int) {
	n := len(c)
	q := 0
	for ; q+4 <= len(a); q += 4 {
		a0, a1, a2, a3 := a[q], a[q+1], a[q+2], a[q+3]
		v0, v1, v2, v3 := v[at[q]:][:n], v[at[q+1]:][:n], v[at[q+2]:][:n], v[at[q+3]:][:n]
		for j, x := range c {
			x -= float64(a0 * v0[j])
			x -= float64(a1 * v1[j])
			x -= float64(a2 * v2[j])
			c[j] = x - float64(a3*v3[j])
		}
	}
	for ; q < len(a); q++ {
		f := a[q]
		for j, x := range v[at[q]:][:n] {
			c[j] -= float64(f * x)
		}
	}
}

// panel is how many rows take from the same rows of a factor at a time, so that
// those are read from memory once.
const panel = 16

// cholesky overwrites the upper triangle of a[n,n], rows ld apart, with the upper
// factor U of a = U^T U. It reads the upper triangle alone. It reports false where a
// pivot is not above tiny of its diagonal element.
func cholesky(a []float64, n, ld int, tiny float64) bool {
	at, coef := make([]int, n), make([]float64, n)
	diag := make([]float64, min(n, panel))
	for lo := 0; lo < n; lo += panel {
		hi := min(lo+panel, n)
		for i := lo; i < hi; i++ {
			diag[i-lo] = a[i*ld+i]
		}
		for q0 := 0; q0 < lo; q0 += panel {
			for i := lo; i < hi; i++ {
				for q := range panel {
					at[q] = (q0+q)*ld + i
					coef[q] = a[at[q]]
				}
				subRows(a[i*ld+i:i*ld+n], coef[:panel], a, at)
			}
		}
		for i := lo; i < hi; i++ {
			for q := lo; q < i; q++ {
				at[q-lo] = q*ld + i
				coef[q-lo] = a[q*ld+i]
			}
			row := a[i*ld+i : i*ld+n]
			subRows(row, coef[:i-lo], a, at)
			if d := diag[i-lo]; !(row[0] > tiny*d) || math.IsInf(row[0], 0) {
				return false
			}
			s := math.Sqrt(row[0])
			for j := range row {
				row[j] /= s
			}
		}
	}
	return true
}

// solveUpper solves U^T U x = b in place for the factor that cholesky wrote.
func solveUpper(u []float64, n, ld int, b []float64) {
	for i := range n {
		x := b[i] / u[i*ld+i]
		b[i] = x
		rest := b[i+1 : n]
		for j, v := range u[i*ld+i+1 : i*ld+n] {
			rest[j] -= float64(x * v)
		}
	}
	for i := n - 1; i >= 0; i-- {
		x := b[i]
		rest := b[i+1 : n]
		for j, v := range u[i*ld+i+1 : i*ld+n] {
			x -= float64(v * rest[j])
		}
		b[i] = x / u[i*ld+i]
	}
}
