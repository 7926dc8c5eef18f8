package cpu

import (
	"math"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/tensor"
)

// bindUnary applies an activation of the epilogues, or a function that is no
// activation, in place where it can.
func bindUnary(act activation) binder {
	return func(_ *program, n *ir.Node) (*bound, error) {
		if !f32(n) || len(n.Inputs) != 1 {
			return nil, nil
		}
		return unaryBound(act), nil
	}
}

func unaryBound(act activation) *bound {
	return &bound{inplace: 0, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, dst []float32
		body := func(lo, hi int) {
			if &src[0] != &dst[0] {
				copy(dst[lo:hi], src[lo:hi])
			}
			act(dst[lo:hi])
		}
		return func() error {
			src, dst = in[0].F32s(), out[0].F32s()
			x.pool.Range(len(dst), body)
			return nil
		}
	}}
}

// each makes an activation of a function of one element.
func each(f func(v float32) float32) activation {
	return func(y []float32) {
		for i, v := range y {
			y[i] = f(v)
		}
	}
}

func each64(f func(v float64) float64) activation {
	return each(func(v float32) float32 { return float32(f(float64(v))) })
}

// pair combines runs of two operands: y[i] = a[i*sa] op b[i*sb], steps 0 or 1.
type pair func(y, a, b []float32, sa, sb int)

// bindBinary combines two operands, broadcast to one shape.
func bindBinary(f pair) binder {
	return func(_ *program, n *ir.Node) (*bound, error) {
		if ir.AttrOf(n.Op, "axis") != nil || !f32(n) {
			return nil, nil
		}
		shape, sa, sb := collapse(shapeOf(n.Outputs[0]), shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1]))
		last := len(shape) - 1
		inner, ia, ib := shape[last], sa[last], sb[last]
		rows := prod(shape[:last])
		per := max(1, chunk/max(inner, 1))
		total := prod(shape)
		// An operand that is a part of the other is read again after it is overwritten.
		b := &bound{inplace: -1, alone: prod(shapeOf(n.Inputs[0])) != prod(shapeOf(n.Inputs[1]))}
		switch total {
		case prod(shapeOf(n.Inputs[0])):
			b.inplace = 0
		case prod(shapeOf(n.Inputs[1])):
			b.inplace = 1
		}
		b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
			var p, q, y []float32
			long := func(lo, hi int) { f(y[lo:hi], p[lo*ia:], q[lo*ib:], ia, ib) }
			index := make([]int, last*x.pool.Threads())
			some := func(worker, c int) {
				idx := index[worker*last:][:last]
				for r := c * per; r < min(rows, (c+1)*per); r++ {
					at(idx, shape, r)
					oa, ob := 0, 0
					for d, i := range idx {
						oa += i * sa[d]
						ob += i * sb[d]
					}
					f(y[r*inner:(r+1)*inner], p[oa:], q[ob:], ia, ib)
				}
			}
			return func() error {
				p, q, y = in[0].F32s(), in[1].F32s(), out[0].F32s()
				if rows == 1 { // one long run
					x.pool.Range(inner, long)
				} else {
					x.pool.For((rows+per-1)/per, some)
				}
				return nil
			}
		}
		return b, nil
	}
}

// at writes the indices of row r under shape[:len(idx)].
func at(idx, shape []int, r int) {
	for d := len(idx) - 1; d >= 0; d-- {
		idx[d] = r % shape[d]
		r /= shape[d]
	}
}

// collapse returns the output shape with the strides of both operands, zero where
// they are repeated; neighbouring axes that both operands cross alike are joined.
// The result has at least one axis.
func collapse(out, a, b []int) (shape, sa, sb []int) {
	fa, fb := spread(a, out), spread(b, out)
	shape, sa, sb = []int{1}, []int{0}, []int{0}
	for i, d := range out {
		if d == 1 {
			continue
		}
		k := len(shape) - 1
		if shape[k] == 1 {
			shape[k], sa[k], sb[k] = d, fa[i], fb[i]
			continue
		}
		if sa[k] == fa[i]*d && sb[k] == fb[i]*d {
			shape[k] *= d
			sa[k], sb[k] = fa[i], fb[i]
			continue
		}
		shape, sa, sb = append(shape, d), append(sa, fa[i]), append(sb, fb[i])
	}
	return shape, sa, sb
}

// spread returns the strides with which shape is read as out.
func spread(shape, out []int) []int {
	st := tensor.Strides(shape)
	s := make([]int, len(out))
	for i := range shape {
		if shape[i] != 1 {
			s[len(out)-len(shape)+i] = st[i]
		}
	}
	return s
}

// vectorPair combines whole rows with rows, or rows with a scalar as x*scale+bias.
func vectorPair(rows func(y, a, b []float32), scalar func(y, x []float32, s float32, left bool)) pair {
	return func(y, a, b []float32, sa, sb int) {
		n := len(y)
		switch {
		case sa == 1 && sb == 1:
			rows(y, a[:n], b[:n])
		case sa == 1:
			scalar(y, a[:n], b[0], false)
		case sb == 1:
			scalar(y, b[:n], a[0], true)
		default:
			for i := range y {
				y[i] = a[0]
			}
			scalar(y, y, b[0], false)
		}
	}
}

var inf = float32(math.Inf(1))

var (
	addPair = vectorPair(vec.Add, func(y, x []float32, s float32, _ bool) { vec.Affine(y, x, 1, s, -inf, inf) })
	mulPair = vectorPair(vec.Mul, func(y, x []float32, s float32, _ bool) { vec.Affine(y, x, s, 0, -inf, inf) })
	subPair = vectorPair(vec.Sub, func(y, x []float32, s float32, left bool) {
		if left {
			vec.Affine(y, x, -1, s, -inf, inf)
			return
		}
		vec.Affine(y, x, 1, -s, -inf, inf)
	})
	divPair = vectorPair(vec.Div, func(y, x []float32, s float32, left bool) {
		for i, v := range x {
			if left {
				y[i] = s / v
			} else {
				y[i] = v / s
			}
		}
	})
)

func powPair(y, a, b []float32, sa, sb int) {
	for i := range y {
		switch v, e := a[i*sa], b[i*sb]; e {
		case 2:
			y[i] = v * v
		default:
			y[i] = float32(math.Pow(float64(v), float64(e)))
		}
	}
}
