package obs

import (
	"context"
	"math"
	"slices"

	"spc/internal/parallel"
)

// Columns is a layer of which sets of columns go, in all rows, one set after another, while the
// columns that stay make up for them by least squares: structured OBS (Kurtic et al., "ZipLM",
// 2023, section 3.1). Of columns that are nearly the same, the loss of the second is
// seen once the first is gone.
type Columns struct {
	k, rows int
	workers int
	inv     []float64 // [K,K] the inverse of the damped Gram matrix of what is left, else zeros
	w       []float64 // [M,K] the weights that are left
}

// Columns returns the layer with all columns.
func (s *Solver) Columns() *Columns {
	c := &Columns{k: s.Cols, rows: s.Rows, workers: s.workers, inv: slices.Clone(s.invert())}
	c.w = make([]float64, len(s.W))
	for i, v := range s.W {
		c.w[i] = float64(v)
	}
	return c
}

// Clone returns a copy that changes by itself.
func (c *Columns) Clone() *Columns {
	d := *c
	d.inv, d.w = slices.Clone(c.inv), slices.Clone(c.w)
	return &d
}

// Loss is what the squared error of the layer's outputs, with the damping term, grows by without a set of the columns
// that are left:
//
//	tr(W_G ((H^-1)_GG)^-1 W_G^T)
func (c *Columns) Loss(set []int) float64 {
	n := len(set)
	u, ok := c.factor(set)
	if !ok {
		return math.Inf(1)
	}
	z, sum := make([]float64, n), 0.0
	for r := range c.rows {
		for i, g := range set {
			z[i] = c.w[r*c.k+g]
		}
		// The norm of R^-T z, where (H^-1)_GG = R^T R.
		for i := range z {
			for q := range i {
				z[i] -= u[q*n+i] * z[q]
			}
			if z[i] != 0 {
				z[i] /= u[i*n+i]
			}
			sum += z[i] * z[i]
		}
	}
	return sum
}

// factor returns the upper R[n,n] with (H^-1)_GG = R^T R; ok is false where that is singular.
func (c *Columns) factor(set []int) (u []float64, ok bool) {
	n := len(set)
	u = make([]float64, n*n)
	for i, p := range set {
		for j := i; j < n; j++ {
			u[i*n+j] = c.inv[p*c.k+set[j]]
		}
	}
	return u, cholesky(u, n, n, 0)
}

// Remove takes a set of columns away; the weights of the others become the least squares
// solution without it.
func (c *Columns) Remove(ctx context.Context, set []int) error {
	n, k := len(set), c.k
	u, ok := c.factor(set)
	rows := make([]float64, n*k) // those of the set
	at := make([]int, n)
	for i, g := range set {
		copy(rows[i*k:], c.inv[g*k:(g+1)*k])
		at[i] = i * k
	}
	// x - x_G ((H^-1)_GG)^-1 (H^-1)_G. for each row x of the inverse and of the weights.
	err := parallel.Each(ctx, c.workers, k+c.rows, func(_, r int) {
		x := c.inv
		if r >= k {
			x, r = c.w, r-k
		}
		row := x[r*k : (r+1)*k]
		coef, reads := make([]float64, n), false
		for i, g := range set {
			coef[i] = row[g]
			reads = reads || row[g] != 0
		}
		if ok && reads {
			solveUpper(u, n, n, coef)
			subRows(row, coef, rows, at)
		}
		for _, g := range set {
			row[g] = 0
		}
	})
	for _, g := range set {
		clear(c.inv[g*k : (g+1)*k])
	}
	return err
}

// Weights are those that are left, with zeros in the columns that went.
func (c *Columns) Weights() []float32 {
	w := make([]float32, len(c.w))
	for i, v := range c.w {
		w[i] = float32(v)
	}
	return w
}
