package contrib

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// matMulIntegerToFloat is the product of what A and B, matrices of integers, stand for, and a bias. Scales and zero points are
// those of A, one number each, and those of B, one for each column where they are no single ones.
func matMulIntegerToFloat(c *call) []*ir.Value {
	c.attrs(&struct{}{})
	a := c.typed(0, bytes8...)
	left := c.dequantise(a, quantisation{c.number(2, tensor.F32), c.zero(4, a.Type.DType)})
	return []*ir.Value{c.bias(c.make("MatMul", nil, left, c.columns(1, 3, 5)), 6)}
}

// dynamicQuantizeMatMul is matMulIntegerToFloat of an A of floats that is quantised as the model runs.
func dynamicQuantizeMatMul(c *call) []*ir.Value {
	c.attrs(&struct{}{})
	return []*ir.Value{c.bias(c.make("MatMul", nil, c.rounded(0), c.columns(1, 2, 3)), 4)}
}

// rounded returns input i of floats as the 8 bits that its range gives it tell it.
func (c *call) rounded(i int) *ir.Value {
	return c.make("DequantizeLinear", nil, c.makes(3, "DynamicQuantizeLinear", nil, c.typed(i, tensor.F32))...)
}

// columns returns what input b, matrices [..,K,N] of integers, stands for. Its scales and zero points are one number, or N, or
// [..,1,N], which is N for each matrix.
func (c *call) columns(b, scale, zero int) *ir.Value {
	x := c.typed(b, bytes8...)
	s, z := c.perColumn(scale, b, tensor.F32), c.zero8(zero, b)
	with := attrs{"axis": -1}
	if s.Type.Rank() > 1 { // blocks as high as the matrices
		with["axis"], with["block_size"] = -2, max(1, c.size(x.Type.Dims[x.Type.Rank()-2], "the number of rows of the weights"))
	}
	return c.make("DequantizeLinear", with, x, s, z)
}

// zero8 is perColumn of a zero point, 0 where it is absent.
func (c *call) zero8(i, of int) *ir.Value {
	if c.in(i) == nil {
		return c.zero(i, c.in(of).Type.DType)
	}
	return c.perColumn(i, of, c.in(of).Type.DType)
}

// perColumn returns input i, scales or zero points of type dt of the matrices in another input, as a scalar where it is one number,
// or as a vector where all matrices have the same.
func (c *call) perColumn(i, of int, dt tensor.DType) *ir.Value {
	v := c.typed(i, dt)
	dims := c.dims(i)
	if n, _ := v.Type.Elems(); n == ir.Size(1) {
		return c.number(i, dt)
	}
	if rank := len(c.dims(of)); rank < 2 {
		c.invalid("input %d is %v, want one number for what is no matrix", i, v.Type)
	}
	if len(dims) < 2 || slices.ContainsFunc(dims[:len(dims)-1], func(d ir.Dim) bool { return d != ir.Size(1) }) {
		return v
	}
	if v.Const != nil {
		return c.named(i, v.Const.Reshape(v.Const.Len()))
	}
	return c.make("Reshape", nil, v, c.ints(-1))
}

// qGemm is the product of what A and B, matrices of integers, stand for, times alpha. C, where it is there, is added to the sums of
// integers. The result is of integers where it has a quantisation.
func qGemm(c *call) []*ir.Value {
	var a struct {
		Alpha  float32 `attr:"alpha,1"`
		TransA bool    `attr:"transA,0"`
		TransB bool    `attr:"transB,0"`
	}
	c.attrs(&a)
	if (c.in(7) == nil) != (c.in(8) == nil) {
		c.invalid("scale (input 7) and zero point (input 8) of the result must come together")
	}
	left := c.typed(0, bytes8...)
	q := c.quantisation(1, left.Type.DType)
	c.dims(0, 2)
	if a.TransA { // which products of integers do not
		left = c.make("Transpose", attrs{"perm": []int{1, 0}}, left)
	}
	right := c.typed(3, bytes8...)
	c.dims(3, 2)
	s := c.scaled(c.perColumn(4, 3, tensor.F32), a.Alpha)
	with, axis := attrs{}, 1
	if a.TransB {
		with["transB"], axis = 1, 0
	}
	in := []*ir.Value{c.dequantise(left, q), c.make("DequantizeLinear", attrs{"axis": axis}, right, s, c.zero8(5, 3))}
	if c.in(6) != nil {
		in = append(in, c.summand(6, q.scale, s, right.Type.Dims[axis]))
	}
	y := c.make("Gemm", with, in...)
	if c.in(7) != nil {
		y = c.quantise(y, c.quantisation(7, c.typed(8, bytes8...).Type.DType))
	}
	return []*ir.Value{y}
}

// scaled multiplies scales by a factor.
func (c *call) scaled(s *ir.Value, by float32) *ir.Value {
	switch {
	case by == 1:
		return s
	case s.Const == nil:
		return c.make("Mul", nil, s, c.scalar(float64(by), s))
	}
	t := tensor.New(tensor.F32, s.Const.Shape()...)
	for i, v := range s.Const.F32s() {
		t.F32s()[i] = by * v
	}
	return c.Graph.NewConst(s.Name, t)
}

// summand returns what an input, i32 in steps of the scales x and w, is in floats. Of constants it is a constant, a vector of n where
// that is known and the rows of the product have the same.
func (c *call) summand(i int, x, w *ir.Value, n ir.Dim) *ir.Value {
	v := c.typed(i, tensor.I32)
	dims := c.dims(i, 0, 1, 2)
	if len(dims) == 2 && dims[0] != ir.Size(1) || v.Const == nil || x.Const == nil || w.Const == nil || !n.Known() {
		return c.make("Mul", nil, c.make("Cast", attrs{"to": int(tensor.F32)}, v), c.make("Mul", nil, x, w))
	}
	ints, scales := v.Const.Ints(), w.Const.F32s()
	for _, k := range []int{len(ints), len(scales)} {
		if k != 1 && k != n.Size() {
			c.invalid("input %d is %v, and scales are %v, want one number or %d", i, v.Type, w.Type, n.Size())
		}
	}
	t := tensor.New(tensor.F32, n.Size())
	for k := range t.F32s() {
		t.F32s()[k] = float32(ints[k%len(ints)]) * (x.Const.F32s()[0] * scales[k%len(scales)])
	}
	return c.named(i, t)
}
