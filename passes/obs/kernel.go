package obs

import "math"

// kernel is a loop in assembly: for b below a kernel's columns and j below n, a
// multiple of the lanes above 0,
//
//	c[b*ldc+j] -= float64(a[q*columns+b] * v[at[q]+j])
//
// for each of the kernel's rows q in turn.
type kernel func(n int, c *float64, ldc int, a, v *float64, at *int)

// kernels are those for an instruction set.
type kernels struct {
	isa        string
	lanes      int
	one8, one1 kernel // 8 rows and 1 of one column
	many4      kernel // 4 rows of several columns
	columns    int    // of many4
}

// fast are the machine's kernels, nil where there is only plain Go.
var fast = func() *kernels {
	if sets := native(); len(sets) > 0 {
		return sets[0]
	}
	return nil
}()

// subRows subtracts rows of v from c: c[j] -= sum over q of a[q] * v[at[q]+j], the
// terms in the order of q and every product and difference rounded, so that any
// width of vectors gives the same bits.
func subRows(c, a, v []float64, at []int) {
	done := 0
	if k := fast; k != nil && len(c) >= k.lanes && len(a) > 0 {
		done = len(c) / k.lanes * k.lanes
		for _, i := range at[:len(a)] {
			_ = v[i : i+len(c)]
		}
		q := 0
		for ; q+8 <= len(a); q += 8 {
			k.one8(done, &c[0], 0, &a[q], &v[0], &at[q])
		}
		for ; q < len(a); q++ {
			k.one1(done, &c[0], 0, &a[q], &v[0], &at[q])
		}
	}
	if done < len(c) {
		plainRows(c, a, v, at, done)
	}
}

// plainRows is subRows for the elements of c from the one given on.
func plainRows(c, a, v []float64, at []int, from int) {
	c = c[from:]
	n := len(c)
	q := 0
	for ; q+4 <= len(a); q += 4 {
		a0, a1, a2, a3 := a[q], a[q+1], a[q+2], a[q+3]
		v0, v1 := v[at[q]+from:][:n], v[at[q+1]+from:][:n]
		v2, v3 := v[at[q+2]+from:][:n], v[at[q+3]+from:][:n]
		for j, x := range c {
			x -= float64(a0 * v0[j])
			x -= float64(a1 * v1[j])
			x -= float64(a2 * v2[j])
			c[j] = x - float64(a3*v3[j])
		}
	}
	for ; q < len(a); q++ {
		f := a[q]
		for j, x := range v[at[q]+from:][:n] {
			c[j] -= float64(f * x)
		}
	}
}

// maxBatch is the most that batch returns.
const maxBatch = 4

// batch is how many columns subColumns takes best.
func batch() int {
	if fast == nil {
		return 1
	}
	return fast.columns
}

// subColumns does what subRows does for batch() columns of n elements, ldc apart in c:
// a[q*batch()+b] is the factor of row q for column b. scratch holds len(at) elements.
func subColumns(c []float64, ldc, n int, a, v []float64, at []int, scratch []float64) {
	k, columns, rows, done := fast, batch(), 0, 0
	if k != nil && n >= k.lanes && len(at) >= 4 {
		rows, done = len(at)/4*4, n/k.lanes*k.lanes
		_ = c[(columns-1)*ldc : (columns-1)*ldc+n]
		for _, i := range at {
			_ = v[i : i+n]
		}
		for q := 0; q < rows; q += 4 {
			k.many4(done, &c[0], ldc, &a[q*columns], &v[0], &at[q])
		}
	}
	for b := range columns {
		factors := scratch[:len(at)]
		for q := range factors {
			factors[q] = a[q*columns+b]
		}
		column := c[b*ldc:][:n]
		if done < n {
			plainRows(column, factors[:rows], v, at, done)
		}
		subRows(column, factors[rows:], v, at[rows:])
	}
}

// panel is how many rows take from the same rows of a factor at a time, so that
// those are read from memory once.
const panel = 16

// cholesky overwrites the upper triangle of a[n,n], rows ld apart, with the upper
// factor U of a = U^T U. It reads the upper triangle alone. It reports false where a
// pivot is not above tiny of its diagonal element.
func cholesky(a []float64, n, ld int, tiny float64) bool { return choleskyRows(a, n, n, ld, tiny) }

// choleskyRows is cholesky for rows of width elements, n or more: it writes the first n
// rows of the factor of a matrix of that width, of which it reads no others.
func choleskyRows(a []float64, n, width, ld int, tiny float64) bool {
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
				subRows(a[i*ld+i:i*ld+width], coef[:panel], a, at)
			}
		}
		for i := lo; i < hi; i++ {
			for q := lo; q < i; q++ {
				at[q-lo] = q*ld + i
				coef[q-lo] = a[q*ld+i]
			}
			row := a[i*ld+i : i*ld+width]
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
