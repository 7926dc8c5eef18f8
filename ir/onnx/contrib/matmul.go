package contrib

import "spc/ir"

// fusedMatMul is alpha * A' * B', whose last two dimensions (trans) or, before these, whose batches and rows (transBatch) are
// transposed. A[...,M,K] with transBatch is [M,...,K], and with both [K,...,M].
func fusedMatMul(c *call) []*ir.Value {
	var a struct {
		Alpha       float32 `attr:"alpha,1"`
		TransA      bool    `attr:"transA,0"`
		TransB      bool    `attr:"transB,0"`
		TransBatchA bool    `attr:"transBatchA,0"`
		TransBatchB bool    `attr:"transBatchB,0"`
	}
	c.attrs(&a)
	y := c.make("MatMul", nil, c.transposed(0, a.TransA, a.TransBatchA), c.transposed(1, a.TransB, a.TransBatchB))
	if a.Alpha != 1 {
		y = c.make("Mul", nil, y, c.scalar(float64(a.Alpha), y))
	}
	return []*ir.Value{y}
}

// transposed returns an operand of fusedMatMul. A vector stays as it is.
func (c *call) transposed(i int, trans, batch bool) *ir.Value {
	x := c.in(i)
	if !trans && !batch {
		return x
	}
	r := len(c.dims(i))
	if r < 2 {
		return x
	}
	perm := make([]int, r)
	for k := range perm {
		perm[k] = k
	}
	if batch {
		if r < 3 {
			c.invalid("input %d is %v, want rank 3 or more as its batches are transposed", i, x.Type)
		}
		copy(perm, perm[1:r-1]) // [M,...,K] or, transposed, [K,...,M]
		perm[r-2] = 0
	}
	if trans {
		perm[r-2], perm[r-1] = perm[r-1], perm[r-2]
	}
	return c.make("Transpose", attrs{"perm": perm}, x)
}
