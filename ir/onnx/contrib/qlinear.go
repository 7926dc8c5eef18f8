package contrib

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bytes8 are the integers of operators on quantised tensors.
var bytes8 = []tensor.DType{tensor.U8, tensor.I8}

// required returns an input that must be there.
func (c *call) required(i int) *ir.Value {
	v := c.in(i)
	if v == nil {
		c.invalid("input %d is absent", i)
	}
	return v
}

// typed returns an input that must be there, and of one of some types.
func (c *call) typed(i int, types ...tensor.DType) *ir.Value {
	v := c.required(i)
	switch {
	case slices.Contains(types, v.Type.DType):
	case len(types) == 1:
		c.invalid("input %d is %v, want %v", i, v.Type, types[0])
	default:
		c.invalid("input %d is %v, want one of %v", i, v.Type, types)
	}
	return v
}

// number returns an input of one number, a scalar or a vector of one, as a scalar.
func (c *call) number(i int, types ...tensor.DType) *ir.Value {
	v := c.typed(i, types...)
	n, ok := v.Type.Elems()
	switch {
	case ok && n.Known() && n != ir.Size(1):
		c.invalid("input %d is %v, want one number", i, v.Type)
	case v.Type.Ranked && v.Type.Rank() == 0:
		return v
	case v.Const != nil:
		return c.named(i, v.Const.Reshape())
	}
	return c.make("Reshape", nil, v, c.ints())
}

// quantisation says what integers x stand for: scale (x - zero), both scalars.
type quantisation struct{ scale, zero *ir.Value }

// quantisation returns that whose scale is input i, and whose zero point of type dt the one behind it, or 0 where that is absent.
func (c *call) quantisation(i int, dt tensor.DType) quantisation {
	return quantisation{c.number(i, tensor.F32), c.zero(i+1, dt)}
}

// zero returns a zero point of type dt, one number: 0 where it is absent.
func (c *call) zero(i int, dt tensor.DType) *ir.Value {
	if c.in(i) == nil {
		return c.constant(tensor.New(dt))
	}
	return c.number(i, dt)
}

// dequantise makes floats of x.
func (c *call) dequantise(x *ir.Value, q quantisation) *ir.Value {
	return c.make("DequantizeLinear", nil, x, q.scale, q.zero)
}

// quantise makes integers of x.
func (c *call) quantise(x *ir.Value, q quantisation) *ir.Value {
	return c.make("QuantizeLinear", nil, x, q.scale, q.zero)
}

// dequantised returns what the integers of input i stand for by the quantisation in the next two.
func (c *call) dequantised(i int) *ir.Value {
	x := c.typed(i, bytes8...)
	return c.dequantise(x, c.quantisation(i+1, x.Type.DType))
}

// qlinear returns an operator on integers that is f on what they stand for: of its inputs X, the scale and zero point of
// X, and those of the result, whose type is that of X.
func qlinear(f func(c *call, x *ir.Value) *ir.Value) func(c *call) []*ir.Value {
	return func(c *call) []*ir.Value {
		y := f(c, c.dequantised(0))
		return []*ir.Value{c.quantise(y, c.quantisation(3, c.in(0).Type.DType))}
	}
}

// qlinearBinary returns an operator on integers that is one of ONNX on what they stand for: of its inputs A, its scale and zero
// point, B, its scale and zero point, and those of the result.
func qlinearBinary(kind string) func(c *call) []*ir.Value {
	return func(c *call) []*ir.Value {
		c.attrs(&struct{}{})
		y := c.make(kind, nil, c.dequantised(0), c.dequantised(3))
		return []*ir.Value{c.quantise(y, c.quantisation(6, c.in(0).Type.DType))}
	}
}

func qlinearLeakyRelu(c *call, x *ir.Value) *ir.Value {
	var a struct {
		Alpha float32 `attr:"alpha,0.01"`
	}
	c.attrs(&a)
	return c.make("LeakyRelu", attrs{"alpha": a.Alpha}, x)
}

func qlinearSigmoid(c *call, x *ir.Value) *ir.Value {
	c.attrs(&struct{}{})
	return c.make("Sigmoid", nil, x)
}

// qlinearSoftmax is along an axis or, as in operator sets below 13, over all from it on. ONNX Runtime quantises in steps of 1/floor(1/scale),
// which moves results by less than one; results of i8 that saturate wrap around there.
func qlinearSoftmax(c *call, x *ir.Value) *ir.Value {
	var a struct {
		Axis  int  `attr:"axis,-1"`
		Opset *int `attr:"opset"`
	}
	c.attrs(&a)
	if a.Opset == nil {
		c.invalid("attribute opset is missing")
	}
	with := attrs{"axis": a.Axis}
	if *a.Opset < 13 {
		with["coerce_2d"] = 1
	}
	return c.make("Softmax", with, x)
}

// qlinearAveragePool is AveragePool on what integers stand for. Where padding counts, ONNX Runtime divides by the size of the
// kernel, though ceil_mode may have it reach beyond the padding.
func qlinearAveragePool(c *call) []*ir.Value {
	var a struct {
		op.Window
		CeilMode bool `attr:"ceil_mode,0"`
		CountPad bool `attr:"count_include_pad,0"`
		Last     bool `attr:"channels_last,0"`
	}
	c.attrs(&a)
	if a.CeilMode && a.CountPad {
		c.unsupported("ceil_mode and count_include_pad are both set")
	}
	x := c.typed(0, bytes8...)
	if a.Last {
		x = c.channelsFirst(0)
	}
	dt := x.Type.DType
	y := c.add(&op.AveragePool{Window: a.Window, CeilMode: a.CeilMode, CountPad: a.CountPad}, 1, c.dequantise(x, c.quantisation(1, dt)))[0]
	y = c.quantise(y, c.quantisation(3, dt))
	if a.Last {
		y = c.channelsLast(y)
	}
	return []*ir.Value{y}
}

// qlinearGlobalAveragePool is the mean over all axes but the first and that of the channels.
func qlinearGlobalAveragePool(c *call, x *ir.Value) *ir.Value {
	var a struct {
		Last bool `attr:"channels_last,0"`
	}
	c.attrs(&a)
	if !a.Last {
		return c.make("GlobalAveragePool", nil, x)
	}
	axes := make([]int, c.spatial(0))
	for i := range axes {
		axes[i] = 1 + i
	}
	return c.make("ReduceMean", nil, x, c.ints(axes...))
}

// spatial is the number of axes of input i besides those of samples and channels.
func (c *call) spatial(i int) int {
	rank := len(c.dims(i))
	if rank < 3 {
		c.invalid("input %d is %v, want rank 3 or more", i, c.in(i).Type)
	}
	return rank - 2
}

// channelsFirst returns input i, whose channels come last, with these behind the samples.
func (c *call) channelsFirst(i int) *ir.Value {
	perm := []int{0, c.spatial(i) + 1}
	for k := range c.spatial(i) {
		perm = append(perm, 1+k)
	}
	return c.make("Transpose", attrs{"perm": perm}, c.in(i))
}

// channelsLast puts the channels of y behind all other axes.
func (c *call) channelsLast(y *ir.Value) *ir.Value {
	perm := []int{0}
	for k := range y.Type.Rank() - 2 {
		perm = append(perm, 2+k)
	}
	return c.make("Transpose", attrs{"perm": append(perm, 1)}, y)
}

// qlinearConcat joins tensors of integers, each with a quantisation of its own behind it. That of the result comes first.
func qlinearConcat(c *call) []*ir.Value {
	var a struct {
		Axis *int `attr:"axis"`
	}
	c.attrs(&a)
	if a.Axis == nil {
		c.invalid("attribute axis is missing")
	}
	if n := len(c.Inputs); n < 5 || (n-2)%3 != 0 {
		c.invalid("%d inputs, want a scale and a zero point, and three for each tensor", n)
	}
	dt := c.typed(1, bytes8...).Type.DType
	var parts []*ir.Value
	for i := 2; i < len(c.Inputs); i += 3 {
		c.typed(i, dt)
		parts = append(parts, c.dequantised(i))
	}
	y := c.make("Concat", attrs{"axis": *a.Axis}, parts...)
	return []*ir.Value{c.quantise(y, c.quantisation(0, dt))}
}

// qlinearWhere is Where on what integers stand for.
func qlinearWhere(c *call) []*ir.Value {
	c.attrs(&struct{}{})
	y := c.make("Where", nil, c.typed(0, tensor.Bool), c.dequantised(1), c.dequantised(4))
	return []*ir.Value{c.quantise(y, c.quantisation(7, c.in(1).Type.DType))}
}

// qlinearConv is QLinearConv of ONNX, or has the channels of the image, but not those of the weight, come last.
func qlinearConv(c *call) []*ir.Value {
	var a struct {
		op.Window
		Group int  `attr:"group,1"`
		Last  bool `attr:"channels_last,0"`
	}
	c.attrs(&a)
	in := slices.Clone(c.Inputs)
	if a.Last {
		in[0] = c.channelsFirst(0)
	}
	for _, i := range []int{1, 6} {
		in[i] = c.number(i, tensor.F32)
	}
	for _, i := range []int{2, 7} {
		in[i] = c.number(i, bytes8...)
	}
	y := c.add(&op.QLinearConv{Window: a.Window, Group: a.Group}, 1, in...)[0]
	if a.Last {
		y = c.channelsLast(y)
	}
	return []*ir.Value{y}
}

// quantizeLinear is QuantizeLinear of ONNX. What has 16 bits is divided in f32.
func quantizeLinear(c *call) []*ir.Value {
	with, in := c.granularity()
	if in[0].Type.DType == tensor.F16 {
		with["precision"] = int(tensor.F32)
	}
	return []*ir.Value{c.make("QuantizeLinear", with, in...)}
}

// dequantizeLinear is DequantizeLinear of ONNX.
func dequantizeLinear(c *call) []*ir.Value {
	with, in := c.granularity()
	return []*ir.Value{c.make("DequantizeLinear", with, in...)}
}

// granularity returns the attribute and the inputs of QuantizeLinear or DequantizeLinear, scales and zero points as scalars where
// they are one number.
func (c *call) granularity() (attrs, []*ir.Value) {
	var a struct {
		Axis int `attr:"axis,1"`
	}
	c.attrs(&a)
	in := slices.Clone(c.Inputs)
	for i, v := range in[1:] {
		if n, ok := v.Type.Elems(); ok && n == ir.Size(1) {
			in[1+i] = c.number(1+i, v.Type.DType)
		}
	}
	if len(in) > 2 {
		s, known := in[1].Type.Elems()
		z, also := in[2].Type.Elems()
		if known && also && s.Known() && z.Known() && s != z {
			c.invalid("the scale is %v and the zero point %v, want one shape", in[1].Type, in[2].Type)
		}
	}
	return attrs{"axis": a.Axis}, in
}
