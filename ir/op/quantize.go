package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// quantized are the element types that QuantizeLinear gives.
var quantized = []tensor.DType{tensor.U8, tensor.I8, tensor.U16, tensor.I16, tensor.U4, tensor.I4, tensor.U2, tensor.I2,
	tensor.F8E4M3FN, tensor.F8E4M3UZ, tensor.F8E5M2, tensor.F8E5M2UZ, tensor.F4E2M1}

// granularity says which elements of a tensor share a scale and a zero point: all
// where the scale is one number, those of one index along Axis where it is a
// vector, and blocks of BlockSize along Axis where it has the tensor's rank.
type granularity struct {
	Axis      int `attr:"axis,1"`
	BlockSize int `attr:"block_size,0" since:"21"`
}

// along follows the axes of x, and those of scales and zero points: one may hold for all elements, or there is
// one for each element of an axis, or for each block across the axis along which they are cut.
func (o granularity) along(n *ir.Node, axis int) []int {
	x := n.Inputs[0].Type
	if !x.Ranked {
		return nil
	}
	in := []int{axis}
	own := axis == norm(o.Axis, x.Rank())
	for i := 1; i < 3; i++ {
		at := Whole
		if p := n.Input(i); p != nil {
			count, known := p.Type.Elems()
			switch {
			case !p.Type.Ranked:
				return nil
			case p.Type.Rank() <= 1 && known && count == ir.Size(1) || o.BlockSize == 0 && !own:
			case o.BlockSize == 0:
				at = 0
			case own:
				return nil
			default:
				at = axis
			}
		}
		in = append(in, at)
	}
	return in
}

// infer checks that the scale (input 1) and the zero point (input 2) fit the
// tensor (input 0).
func (o granularity) infer(c *ir.Infer) error {
	if o.BlockSize < 0 {
		return c.Errorf("block_size is %d, want no negative number", o.BlockSize)
	}
	x := c.In(0)
	for i, what := range []string{1: "scale", 2: "zero point"} {
		s := c.In(i)
		n, ok := s.Elems()
		if i == 0 || !x.Ranked || !ok || len(s.Dims) <= 1 && n == ir.Size(1) {
			continue
		}
		a, err := axis(c, o.Axis, len(x.Dims))
		if err != nil {
			return err
		}
		want := x.Dims[a : a+1]
		if o.BlockSize > 0 {
			want = slices.Clone(x.Dims)
			if want[a] = c.Fresh(); x.Dims[a].Known() {
				want[a] = ir.Size(ceilDiv(x.Dims[a].Size(), o.BlockSize))
			}
		}
		if err := wantDims(c, i, what, want...); err != nil {
			return err
		}
	}
	return nil
}

// spread returns scales or zero points with a shape that broadcasts to that of
// the tensor.
func (o granularity) spread(s *tensor.Tensor, shape []int) *tensor.Tensor {
	switch {
	case s.Rank() <= 1 && s.Len() == 1:
		return s.Reshape()
	case o.BlockSize == 0:
		along := slices.Repeat([]int{1}, len(shape))
		along[norm(o.Axis, len(shape))] = s.Len()
		return s.Reshape(along...)
	}
	a := norm(o.Axis, len(shape))
	out := tensor.New(s.DType(), shape...)
	st, dst := tensor.Strides(s.Shape()), tensor.Strides(shape)
	box := slices.Clone(shape)
	for i := range s.Dim(a) {
		box[a] = min(o.BlockSize, shape[a]-i*o.BlockSize)
		from := slices.Clone(st)
		from[a] = 0
		tensor.Copy(out, s, box, i*o.BlockSize*dst[a], dst, i*st[a], from)
	}
	return out
}

// QuantizeLinear is round(x/scale) + zero point, saturated to the range of the
// type: that of the zero point or DType, else u8.
type QuantizeLinear struct {
	streaming
	granularity
	DType tensor.DType `attr:"output_dtype" since:"21"`
	// Precision is the type in which x is divided, else the scale's.
	Precision tensor.DType `attr:"precision" since:"23"`
	// Saturate holds for f8: otherwise what is out of range becomes infinity or
	// NaN.
	Saturate bool `attr:"saturate,1" since:"19"`
}

// Kind is QuantizeLinear.
func (*QuantizeLinear) Kind() string { return "QuantizeLinear" }

// dtype is the type of the output, given that of the zero point.
func (o *QuantizeLinear) dtype(zero tensor.DType) tensor.DType {
	switch {
	case zero != tensor.Undefined:
		return zero
	case o.DType != tensor.Undefined:
		return o.DType
	}
	return tensor.U8
}

// Along follows the axes whose elements have scales of their own.
func (o *QuantizeLinear) Along(n *ir.Node, _, axis int) []int { return o.along(n, axis) }

// Infer keeps the shape.
func (o *QuantizeLinear) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.I32}); err != nil {
		return err
	}
	if err := wantOneOf(c, 1, []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.I32, tensor.F8E8M0}); err != nil {
		return err
	}
	dt := o.dtype(c.In(2).DType)
	if o.DType != tensor.Undefined && dt != o.DType {
		return c.Errorf("zero point is %v, want output_dtype %v", dt, o.DType)
	}
	if !slices.Contains(quantized, dt) {
		return c.Errorf("the output would be %v, want one of %v", dt, quantized)
	}
	if o.Precision != tensor.Undefined && !slices.Contains(reals, o.Precision) {
		return c.Errorf("precision is %v, want one of %v", o.Precision, reals)
	}
	t := c.In(0)
	t.DType = dt
	c.Set(0, t)
	return o.infer(c)
}

var divideRows = binaryFuncs["Div"].rows

// Eval divides in the precision and rounds to nearest even.
func (o *QuantizeLinear) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, scale, zero := in[0], in[1], optional(in, 2)
	dt := o.dtype(tensor.Undefined)
	if zero != nil {
		dt = zero.DType()
	}
	precision := o.Precision
	switch {
	case precision != tensor.Undefined:
	case scale.DType() == tensor.F8E8M0:
		precision = tensor.F32
	case scale.DType() == tensor.I32:
		precision = tensor.F64
	default:
		precision = scale.DType()
	}
	q := divideRows.zip(x.To(precision), o.spread(scale.To(precision), x.Shape())).To(tensor.F64)
	if zero != nil {
		zero = o.spread(zero, x.Shape())
	}
	return one(quantize(q, zero, dt, o.Saturate))
}

// quantize rounds q, an f64 tensor, adds the broadcast zero points, which may be
// nil, and saturates to dt. NaN becomes the lowest of an integer type.
func quantize(q, zero *tensor.Tensor, dt tensor.DType, saturate bool) *tensor.Tensor {
	if zero == nil {
		zero = tensor.Scalar(0.0)
	}
	zero = zero.To(tensor.F64)
	if !dt.IsInt() {
		return mapCodes(binaryFuncs["Add"].zip(q, zero), dt, func(v float64) byte { return tensor.ToNarrow(dt, v, saturate) })
	}
	lo, hi := intRange(dt)
	low, high := float64(lo), float64(hi)
	return zipRows(q, zero, func(d []int64, x, y []float64, sx, sy int) {
		for i := range d {
			v := math.RoundToEven(x[i*sx]) + y[i*sy]
			switch {
			case v >= high:
				d[i] = hi
			case v <= low:
				d[i] = lo
			case v == v:
				d[i] = int64(v)
			default:
				d[i] = lo
			}
		}
	}).To(dt)
}

// DequantizeLinear is (x - zero point) scale, in the type of the scale or DType.
type DequantizeLinear struct {
	streaming
	granularity
	DType tensor.DType `attr:"output_dtype" since:"23"`
}

// Kind is DequantizeLinear.
func (*DequantizeLinear) Kind() string { return "DequantizeLinear" }

func (o *DequantizeLinear) dtype(scale tensor.DType) tensor.DType {
	if o.DType != tensor.Undefined {
		return o.DType
	}
	return scale
}

// Along follows the axes whose elements have scales of their own.
func (o *DequantizeLinear) Along(n *ir.Node, _, axis int) []int { return o.along(n, axis) }

// Infer keeps the shape.
func (o *DequantizeLinear) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, append([]tensor.DType{tensor.I32}, quantized...)); err != nil {
		return err
	}
	if err := wantSame(c, 2); err != nil {
		return err
	}
	if err := wantOneOf(c, 1, []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.F8E8M0}); err != nil {
		return err
	}
	dt := o.dtype(c.In(1).DType)
	if !slices.Contains(reals, dt) {
		return c.Errorf("the output would be %v, want one of %v", dt, reals)
	}
	t := c.In(0)
	t.DType = dt
	c.Set(0, t)
	return o.infer(c)
}

// Eval computes in f32.
func (o *DequantizeLinear) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0].To(tensor.F32)
	if zero := optional(in, 2); zero != nil {
		x = binaryFuncs["Sub"].zip(x, o.spread(zero.To(tensor.F32), x.Shape()))
	}
	x = binaryFuncs["Mul"].zip(x, o.spread(in[1].To(tensor.F32), x.Shape()))
	return one(x.To(o.dtype(in[1].DType())))
}

// DynamicQuantizeLinear quantises an f32 tensor to u8 over the range of its
// elements and zero: it gives the elements, the scale and the zero point.
type DynamicQuantizeLinear struct {
	streaming
}

// Kind is DynamicQuantizeLinear.
func (*DynamicQuantizeLinear) Kind() string { return "DynamicQuantizeLinear" }

// Infer keeps the shape and adds two scalars.
func (o *DynamicQuantizeLinear) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, []tensor.DType{tensor.F32}); err != nil {
		return err
	}
	t := c.In(0)
	t.DType = tensor.U8
	c.Set(0, t)
	c.Set(1, ir.Shaped(tensor.F32))
	c.Set(2, ir.Shaped(tensor.U8))
	return nil
}

// Eval computes in f32.
func (o *DynamicQuantizeLinear) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	var lo, hi float32
	for _, v := range in[0].F32s() {
		lo, hi = min(lo, v), max(hi, v)
	}
	scale, z := DynamicRange(lo, hi)
	s, zero := tensor.Scalar(scale), tensor.Scalar(z)
	q := divideRows.zip(in[0], s).To(tensor.F64)
	return []*tensor.Tensor{quantize(q, zero, tensor.U8, true), s, zero}, nil
}

// DynamicRange returns the scale and the zero point that DynamicQuantizeLinear gives elements from
// lo to hi, between which 0 lies.
func DynamicRange(lo, hi float32) (scale float32, zero uint8) {
	scale = hi - lo
	if scale == 0 {
		scale = 1
	}
	scale /= 255
	return scale, tensor.Scalar(math.RoundToEven(float64(max(0, min(255, -lo/scale))))).To(tensor.U8).Bytes()[0]
}
