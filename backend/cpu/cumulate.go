package cpu

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindCumulate joins each element with those before it along an axis, side by side with its neighbours.
func bindCumulate(_ *program, n *ir.Node) (*bound, error) {
	switch n.Inputs[0].Type.DType {
	case tensor.F32:
		return cumulates[float32, float64](n), nil
	case tensor.F64:
		return cumulates[float64, float64](n), nil
	case tensor.I64:
		return cumulates[int64, int64](n), nil
	case tensor.I32:
		return cumulates[int32, int32](n), nil
	}
	return nil, nil
}

// cumulates makes the kernel for elements of a type, which are joined in a wide one.
func cumulates[T, W number](n *ir.Node) *bound {
	o, shape := n.Op.(*op.Cumulate), shapeOf(n.Inputs[0])
	axes, ok := constInts(n, 1)
	if !ok || len(axes) != 1 || prod(shape) == 0 {
		return nil
	}
	a := axes[0]
	if a < 0 {
		a += len(shape)
	}
	l := newLines(shape, func(i int) bool { return i == a })
	rows, step := l.rows, l.step()
	if l.joined {
		rows, step = l.run, 1
	}
	first := 0
	if o.Reverse {
		first, step = (rows-1)*step, -step
	}
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, dst []T
		sums := make([][columns]W, x.pool.Threads())
		run := l.each(x, func(worker, _, from, n int) {
			if n == 1 {
				cumulateLine[T, W](dst, src, from+first, step, rows, o.Product(), o.Exclusive)
				return
			}
			acc := sums[worker][:n]
			for i := range acc {
				if acc[i] = 0; o.Product() {
					acc[i] = 1
				}
			}
			for r, at := 0, from+first; r < rows; r, at = r+1, at+step {
				cumulate(dst[at:][:n], src[at:][:n], acc, o.Product(), o.Exclusive)
			}
		})
		return func() error {
			src, dst = tensor.Data[T](in[0]), tensor.Data[T](out[0])
			run()
			return nil
		}
	}}
}

// cumulateLine writes what is joined of n elements so far, from one on that lie a step apart, or of those before.
func cumulateLine[T, W number](y, x []T, at, step, n int, product, before bool) {
	var acc W
	if product {
		acc = 1
	}
	for range n {
		last := acc
		if product {
			acc *= W(x[at])
		} else {
			acc += W(x[at])
		}
		if y[at] = T(acc); before {
			y[at] = T(last)
		}
		at += step
	}
}

// cumulate joins a row to what is joined so far, and writes that, or that before.
func cumulate[T, W number](y, x []T, acc []W, product, before bool) {
	y, acc = y[:len(x)], acc[:len(x)]
	if !product && !before {
		for i, v := range x {
			b := acc[i] + W(v)
			acc[i], y[i] = b, T(b)
		}
		return
	}
	for i, v := range x {
		a := acc[i]
		b := a + W(v)
		if product {
			b = a * W(v)
		}
		if acc[i], y[i] = b, T(b); before {
			y[i] = T(a)
		}
	}
}
