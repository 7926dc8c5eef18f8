package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// Det gives the determinant of each matrix X[..., M, M].
type Det struct{}

// Kind is Det.
func (*Det) Kind() string { return "Det" }

// Infer drops the matrix axes.
func (o *Det) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 1); err != nil {
		return err
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, x)
		return nil
	}
	r := len(x.Dims)
	if r < 2 || differ(x.Dims[r-1], x.Dims[r-2]) {
		return c.Errorf("input is %v, want square matrices", x)
	}
	c.Set(0, ir.Of(x.DType, x.Dims[:r-2]...))
	return nil
}

// Work counts an elimination for each matrix.
func (o *Det) Work(in, out []ir.Type) ir.Work {
	m := float64(in[0].Dims[len(in[0].Dims)-1].Size())
	return streamWork(in, out, 2*m*m*m/3)
}

// Eval eliminates with partial pivoting in float64.
func (o *Det) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	m, r := x.Dim(-1), x.Rank()
	v := x.Float64s()
	out := make([]float64, product(x.Shape()[:r-2]))
	for i := range out {
		out[i] = determinant(v[i*m*m:(i+1)*m*m], m)
	}
	return one(tensor.FromFloat64s(x.DType(), out, x.Shape()[:r-2]...))
}

// determinant is that of the m by m matrix a, which it overwrites.
func determinant(a []float64, m int) float64 {
	det := 1.0
	for k := range m {
		pivot := k
		for i := k + 1; i < m; i++ {
			if math.Abs(a[i*m+k]) > math.Abs(a[pivot*m+k]) {
				pivot = i
			}
		}
		if pivot != k {
			for j := range m {
				a[k*m+j], a[pivot*m+j] = a[pivot*m+j], a[k*m+j]
			}
			det = -det
		}
		det *= a[k*m+k]
		if a[k*m+k] == 0 {
			return 0
		}
		for i := k + 1; i < m; i++ {
			f := a[i*m+k] / a[k*m+k]
			for j := k; j < m; j++ {
				a[i*m+j] -= f * a[k*m+j]
			}
		}
	}
	return det
}
