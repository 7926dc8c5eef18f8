package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// Binary combines two broadcast inputs element by element.
type Binary struct {
	family
	streaming
	// Axis, where it is set, aligns the second input's first dimension with that
	// axis of the first: the broadcasting of opsets below 7.
	Axis *int `attr:"axis"`
}

// Infer broadcasts the inputs' shapes.
func (o *Binary) Infer(c *ir.Infer) error {
	if err := wantSame(c, 1); err != nil {
		return err
	}
	dims, ok, err := broadcast(c, c.In(0), c.In(1))
	if err != nil {
		return err
	}
	if !ok {
		c.Set(0, ir.Unranked(c.In(0).DType))
		return nil
	}
	c.Set(0, ir.Of(c.In(0).DType, dims...))
	return nil
}

// Eval combines the elements.
func (o *Binary) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return viaF32(in, func(in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		switch in[0].DType() {
		case tensor.F32:
			return one(zip(in[0], in[1], func(a, b float32) float32 { return a + b }))
		default:
			return one(zip(in[0], in[1], func(a, b int64) int64 { return a + b }))
		}
	})
}

// zip combines the elements of two tensors, broadcast to one shape.
func zip[A, R tensor.Elem](a, b *tensor.Tensor, f func(x, y A) R) *tensor.Tensor {
	shape := broadcastShapes(a.Shape(), b.Shape())
	out := tensor.New(tensor.DTypeOf[R](), shape...)
	d, x, y := tensor.Data[R](out), tensor.Data[A](a), tensor.Data[A](b)
	walk2(shape, broadcastStrides(a.Shape(), shape), broadcastStrides(b.Shape(), shape), func(i, j, k int) {
		d[i] = f(x[j], y[k])
	})
	return out
}

// walk2 calls f(i, j, k) for each element of shape in row-major order, with i
// counting from 0 and j and k the offsets under the two lists of strides.
func walk2(shape, sa, sb []int, f func(i, j, k int)) {
	i := 0
	var rec func(d, j, k int)
	rec = func(d, j, k int) {
		if d == len(shape) {
			f(i, j, k)
			i++
			return
		}
		for range shape[d] {
			rec(d+1, j, k)
			j += sa[d]
			k += sb[d]
		}
	}
	rec(0, 0, 0)
}

// upgradeBinary keeps the axis of the broadcasting of opsets below 7.
func upgradeBinary(l *Legacy) error {
	l.Take("consumed_inputs")
	if b := l.Take("broadcast"); b == nil || b == 0 {
		l.Take("axis")
	}
	return nil
}
