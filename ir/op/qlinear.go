package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// byteInts are the element types of integer products.
var byteInts = []tensor.DType{tensor.I8, tensor.U8}

// wantZero refuses a zero point that is present and has another type than the
// tensor.
func wantZero(c *ir.Infer, i, of int) error {
	if c.Has(i) && c.In(i).DType != c.In(of).DType {
		return c.Errorf("zero point (input %d) is %v, want %v as input %d", i, c.In(i).DType, c.In(of).DType, of)
	}
	return nil
}

// perRow returns a scale or zero point of the left side of a matrix product with
// a shape that broadcasts to it: a vector holds one for each row.
func perRow(s *tensor.Tensor) *tensor.Tensor {
	if s.Rank() == 1 {
		s = s.Reshape(s.Len(), 1)
	}
	return single(s)
}

// single returns a tensor of one element as a scalar, any other as it is.
func single(s *tensor.Tensor) *tensor.Tensor {
	if s.Len() == 1 {
		return s.Reshape()
	}
	return s
}

// rowScales is the widest type of scales of the left side t of a product: one for
// each row. columnScales is that of the right side: one for each column.
func rowScales(t ir.Type) ir.Type    { return onesAt(t, 1) }
func columnScales(t ir.Type) ir.Type { return onesAt(t, 2) }

// onesAt returns t with a one in the place of the k-th dimension from the end.
func onesAt(t ir.Type, k int) ir.Type {
	t.Dims = slices.Clone(t.Dims)
	if i := len(t.Dims) - k; i >= 0 {
		t.Dims[i] = ir.Size(1)
	}
	return t
}

// wantBroadcast refuses an input, a scale or zero point, that does not broadcast
// to the type t; a vector holds one for each row where rows is set.
func wantBroadcast(c *ir.Infer, i int, t ir.Type, rows bool) error {
	s := c.In(i)
	if !c.Has(i) || !s.Ranked || !t.Ranked {
		return nil
	}
	dims := s.Dims
	if rows && len(dims) == 1 {
		dims = []ir.Dim{dims[0], ir.Size(1)}
	}
	off := len(t.Dims) - len(dims)
	for k, d := range dims {
		if d == ir.Size(1) {
			continue
		}
		if off+k < 0 || differ(d, t.Dims[off+k]) {
			return c.Errorf("input %d is %v, want one number or the shape of %v", i, s, t)
		}
	}
	return nil
}

// centred is x less its zero point, which may be nil, in type dt.
func centred(x, zero *tensor.Tensor, dt tensor.DType) *tensor.Tensor {
	x = x.To(dt)
	if zero == nil {
		return x
	}
	return binaryFuncs["Sub"].zip(x, single(zero).To(dt))
}

// MatMulInteger is the product of 8 bit matrices A[..,M,K] and B[..,K,N] less
// their zero points, the third and fourth inputs, as i32.
type MatMulInteger struct{}

// Kind is MatMulInteger.
func (*MatMulInteger) Kind() string { return "MatMulInteger" }

// Infer gives the product's shape.
func (o *MatMulInteger) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	for i := range 2 {
		if err := wantOneOf(c, i, byteInts); err != nil {
			return err
		}
		if err := wantZero(c, i+2, i); err != nil {
			return err
		}
	}
	if err := wantBroadcast(c, 2, rowScales(c.In(0)), true); err != nil {
		return err
	}
	if err := wantBroadcast(c, 3, columnScales(c.In(1)), false); err != nil {
		return err
	}
	dims, ok, err := matmulDims(c, c.In(0), c.In(1))
	if err != nil {
		return err
	}
	if !ok {
		c.Set(0, ir.Unranked(tensor.I32))
		return nil
	}
	c.Set(0, ir.Of(tensor.I32, dims...))
	return nil
}

// Work counts the multiply-adds.
func (o *MatMulInteger) Work(in, out []ir.Type) ir.Work { return matmulWork(in[0], in, out) }

// matmulWork counts the multiply-adds of a product whose left side is a.
func matmulWork(a ir.Type, in, out []ir.Type) ir.Work {
	return streamWork(in, out, 2*float64(a.Dims[len(a.Dims)-1].Size()))
}

// Eval multiplies in i32, which may wrap around.
func (o *MatMulInteger) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, err := evalShapes(o, 1, in)
	if err != nil {
		return nil, err
	}
	zero := optional(in, 2)
	if zero != nil {
		zero = perRow(zero)
	}
	y := tensor.New(tensor.I32, shapes[0]...)
	matmul[int32, int64](y, centred(in[0], zero, tensor.I32), centred(in[1], optional(in, 3), tensor.I32))
	return one(y)
}

// QLinearMatMul is the product of quantised matrices A[..,M,K] and B[..,K,N],
// quantised again. Its inputs are A, its scale and zero point, B, its scale and
// zero point, and the scale and zero point of the result.
type QLinearMatMul struct{}

// Kind is QLinearMatMul.
func (*QLinearMatMul) Kind() string { return "QLinearMatMul" }

var qlinearTypes = append([]tensor.DType{tensor.F8E4M3FN, tensor.F8E4M3UZ, tensor.F8E5M2, tensor.F8E5M2UZ}, byteInts...)

// Infer gives the product's shape and the type of the last zero point.
func (o *QLinearMatMul) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 8); err != nil {
		return err
	}
	for _, i := range []int{0, 3, 7} {
		if err := wantOneOf(c, i, qlinearTypes); err != nil {
			return err
		}
	}
	scales := []tensor.DType{tensor.F32, tensor.F16, tensor.BF16}
	for _, i := range []int{1, 4, 6} {
		if err := wantOneOf(c, i, scales); err != nil {
			return err
		}
		if c.In(i).DType != c.In(1).DType {
			return c.Errorf("scale (input %d) is %v, want %v as input 1", i, c.In(i).DType, c.In(1).DType)
		}
	}
	for _, i := range []int{0, 3} {
		if err := wantZero(c, i+2, i); err != nil {
			return err
		}
		of := rowScales(c.In(0))
		if i == 3 {
			of = columnScales(c.In(3))
		}
		for _, k := range []int{i + 1, i + 2} {
			if err := wantBroadcast(c, k, of, i == 0); err != nil {
				return err
			}
		}
	}
	dims, ok, err := matmulDims(c, c.In(0), c.In(3))
	if err != nil {
		return err
	}
	y := ir.Unranked(c.In(7).DType)
	if ok {
		y = ir.Of(c.In(7).DType, dims...)
	}
	for _, i := range []int{6, 7} {
		if err := wantBroadcast(c, i, y, true); err != nil {
			return err
		}
	}
	c.Set(0, y)
	return nil
}

// Work counts the multiply-adds.
func (o *QLinearMatMul) Work(in, out []ir.Type) ir.Work { return matmulWork(in[0], in, out) }

// Eval multiplies in float64, which is exact, and scales in the scales' type.
func (o *QLinearMatMul) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, err := evalShapes(o, 1, in)
	if err != nil {
		return nil, err
	}
	y := tensor.New(tensor.F64, shapes[0]...)
	matmul[float64, float64](y, centred(in[0], perRow(in[2]), tensor.F64), centred(in[3], in[5], tensor.F64))
	mul := binaryFuncs["Mul"].rows
	scale := divideRows.zip(mul.zip(perRow(in[1]), single(in[4])), perRow(in[6]))
	y = mul.zip(y, scale.To(tensor.F64))
	return one(quantize(y, perRow(in[7]), in[7].DType(), true))
}

// ConvInteger is the convolution of an 8 bit X[N,C,D1..Dn] with a weight
// W[M,C/group,k1..kn] less their zero points, the third and fourth inputs, as i32.
type ConvInteger struct {
	Window
	Group int `attr:"group,1"`
}

// Kind is ConvInteger.
func (*ConvInteger) Kind() string { return "ConvInteger" }

// Infer slides the window.
func (o *ConvInteger) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	for i := range 2 {
		if err := wantOneOf(c, i, byteInts); err != nil {
			return err
		}
		if err := wantZero(c, i+2, i); err != nil {
			return err
		}
	}
	if err := wantOne(c, 2); err != nil {
		return err
	}
	if err := wantPerChannel(c, 3, c.In(1)); err != nil {
		return err
	}
	y, err := convType(c, tensor.I32, c.In(0), c.In(1), &o.Window, o.Group)
	if err != nil {
		return err
	}
	c.Set(0, y)
	return nil
}

// wantOne refuses an input that is present and not one number.
func wantOne(c *ir.Infer, i int) error {
	if n, ok := c.In(i).Elems(); c.Has(i) && ok && n.Known() && n != ir.Size(1) {
		return c.Errorf("input %d is %v, want one number", i, c.In(i))
	}
	return nil
}

// wantPerChannel refuses an input that is present and neither one number nor one
// for each output channel of the weight w.
func wantPerChannel(c *ir.Infer, i int, w ir.Type) error {
	s := c.In(i)
	if n, ok := s.Elems(); !c.Has(i) || !ok || n == ir.Size(1) {
		return nil
	}
	if m := dimOf(c, w, 0); len(s.Dims) != 1 || differ(s.Dims[0], m) {
		return c.Errorf("input %d is %v, want one number or %v, one a channel", i, s, m)
	}
	return nil
}

// perChannel returns scales or zero points, one or one for each channel, with a
// shape that broadcasts to a tensor of the given rank along an axis.
func perChannel(s *tensor.Tensor, rank, axis int) *tensor.Tensor {
	if s == nil || s.Len() == 1 {
		return s
	}
	return granularity{Axis: axis}.spread(s, make([]int, rank))
}

// Work counts the multiply-adds of all patches.
func (o *ConvInteger) Work(in, out []ir.Type) ir.Work { return convWork(in[1], in, out) }

// Eval convolves in i32, which may wrap around.
func (o *ConvInteger) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, err := evalShapes(o, 1, in)
	if err != nil {
		return nil, err
	}
	y, err := convolveInts[int32, int64](in[0], optional(in, 2), in[1], optional(in, 3), nil, &o.Window, o.Group, shapes[0])
	if err != nil {
		return nil, err
	}
	return one(y)
}

// convolveInts convolves x and w less their zero points, which may be nil, and
// adds an optional bias; the result has elements T.
func convolveInts[T interface {
	summand
	tensor.Elem
}, S accum](x, xzero, w, wzero, bias *tensor.Tensor, window *Window, group int, shape []int) (*tensor.Tensor, error) {
	dt := tensor.DTypeOf[T]()
	spans, _, err := window.Resolve(x.Shape()[2:], w.Shape()[2:], false)
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	if bias != nil {
		bias = bias.To(dt)
	}
	y := tensor.New(dt, shape...)
	w = centred(w, perChannel(wzero, w.Rank(), 0), dt)
	convolve[T, S](y, []*tensor.Tensor{centred(x, xzero, dt), w, bias}, spans, group)
	return y, nil
}

// QLinearConv is the convolution of a quantised X[N,C,D1..Dn] with a quantised
// weight W[M,C/group,k1..kn], quantised again. Its inputs are X, its scale and
// zero point, W, its scales and zero points, the scale and zero point of the
// result, and an optional i32 bias[M] of the scale of the products.
type QLinearConv struct {
	Window
	Group int `attr:"group,1"`
}

// Kind is QLinearConv.
func (*QLinearConv) Kind() string { return "QLinearConv" }

// Infer slides the window.
func (o *QLinearConv) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 8); err != nil {
		return err
	}
	for _, i := range []int{0, 3, 7} {
		if err := wantOneOf(c, i, byteInts); err != nil {
			return err
		}
	}
	for _, i := range []int{1, 4, 6} {
		if err := wantOneOf(c, i, []tensor.DType{tensor.F32}); err != nil {
			return err
		}
	}
	for _, i := range []int{0, 3} {
		if err := wantZero(c, i+2, i); err != nil {
			return err
		}
	}
	for _, i := range []int{1, 2, 6, 7} {
		if err := wantOne(c, i); err != nil {
			return err
		}
	}
	w := c.In(3)
	for _, i := range []int{4, 5} {
		if err := wantPerChannel(c, i, w); err != nil {
			return err
		}
	}
	if err := wantOneOf(c, 8, []tensor.DType{tensor.I32}); err != nil {
		return err
	}
	if err := wantDims(c, 8, "bias", dimOf(c, w, 0)); err != nil {
		return err
	}
	y, err := convType(c, c.In(7).DType, c.In(0), w, &o.Window, o.Group)
	if err != nil {
		return err
	}
	c.Set(0, y)
	return nil
}

// Work counts the multiply-adds of all patches.
func (o *QLinearConv) Work(in, out []ir.Type) ir.Work { return convWork(in[3], in, out) }

// Eval convolves in float64, which is exact, and scales in f32: sums that do not fit into i32 stay
// the numbers that they stand for, as in QLinearMatMul, and do not wrap around as in ConvInteger.
func (o *QLinearConv) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, err := evalShapes(o, 1, in)
	if err != nil {
		return nil, err
	}
	sums, err := convolveInts[float64, float64](in[0], in[2], in[3], in[5], optional(in, 8), &o.Window, o.Group, shapes[0])
	if err != nil {
		return nil, err
	}
	mul := binaryFuncs["Mul"].rows
	scale := divideRows.zip(mul.zip(in[1].Reshape(), in[4]), in[6].Reshape())
	y := mul.zip(sums, granularity{Axis: 1}.spread(scale, sums.Shape()).To(tensor.F64))
	return one(quantize(y, single(in[7]), in[7].DType(), true))
}
