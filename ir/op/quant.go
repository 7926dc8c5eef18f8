package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Quant makes Conv, MatMul or Gemm a product of 8-bit integers. Where XScale is not
// 0, input 0 is u8 and stands for XScale (x - XZero), and the weight, input 1, is i8
// and stands for WScale[m] (w - WZero[m]) in row m of its matrix: lists of one number hold
// for all rows, and WZero may be empty for 0. Where the scalars DynamicScale and
// DynamicZero are among the inputs, XScale is 1 and XZero 0, and input 0 stands for
// DynamicScale (x - DynamicZero). Sums
// are exact; the bias is f32, and the residual f32, or u8 standing for
// RScale (r - RZero) where RScale is not 0. After the epilogue the result is f32, or
// where YScale is not 0 the u8 round(y/YScale) + YZero, saturated. The quantising
// passes make such products; ONNX spells them out with QuantizeLinear and
// DequantizeLinear. For the scheme see Jacob et al., "Quantization and Training of
// Neural Networks for Efficient Integer-Arithmetic-Only Inference" (2018).
type Quant struct {
	XScale float32   `attr:"spc_x_scale"`
	XZero  int       `attr:"spc_x_zero"`
	WScale []float32 `attr:"spc_w_scale"`
	WZero  []int     `attr:"spc_w_zero"`
	YScale float32   `attr:"spc_y_scale"`
	YZero  int       `attr:"spc_y_zero"`
	RScale float32   `attr:"spc_r_scale"`
	RZero  int       `attr:"spc_r_zero"`
}

// DynamicScale and DynamicZero are the inputs of a quantised product that hold the scale and
// the zero point of input 0 where these are computed as the model runs.
const (
	DynamicScale = 4
	DynamicZero  = 5
)

// Signed returns a weight of 8-bit integers as i8, with its zero points, none where all are 0: u8
// and its zero points become less by 128.
func Signed(w, zeros *tensor.Tensor) (*tensor.Tensor, []int) {
	z := []int{0}
	if zeros != nil {
		z = slices.Clone(zeros.Ints())
	}
	if w.DType() == tensor.U8 {
		ints := tensor.New(tensor.I8, w.Shape()...)
		for i, v := range w.Bytes() {
			ints.Bytes()[i] = v ^ 0x80
		}
		for i := range z {
			z[i] -= 128
		}
		w = ints
	}
	if !slices.ContainsFunc(z, func(v int) bool { return v != 0 }) {
		z = nil
	}
	return w, z
}

// Quantisable is an operator that can be a product of 8-bit integers.
type Quantisable interface {
	Fusable
	Integers() *Quant
}

// Integers returns how the product is quantised.
func (q *Quant) Integers() *Quant { return q }

// Quantised reports whether the product is one of 8-bit integers.
func (q *Quant) Quantised() bool { return q.XScale != 0 }

// MaxQuantK is the most columns of an i8 weight: sums of as many products of u8 and
// i8 fit into i32.
const MaxQuantK = 1 << 16

// MaxQuantAxes is the most spatial axes of a Conv or a MaxPool of 8-bit integers that devices have kernels for: passes
// leave others in floating point.
const MaxQuantAxes = 2

// inferQuant checks a product of 8-bit integers whose result has the dimensions of
// y and whose weight has rows rows, and sets the type of output 0.
func (q *Quant) inferQuant(c *ir.Infer, e *Epilogue, y ir.Type, rows ir.Dim) error {
	for i, dt := range []tensor.DType{tensor.U8, tensor.I8} {
		if c.In(i).DType != dt {
			return c.Errorf("input %d of a quantised product is %v, want %v", i, c.In(i), dt)
		}
	}
	if c.Has(2) {
		if c.In(2).DType != tensor.F32 {
			return c.Errorf("bias of a quantised product is %v, want f32", c.In(2))
		}
		if err := wantDims(c, 2, "bias", rows); err != nil {
			return err
		}
	}
	if k := len(q.WScale); k != 1 && (k == 0 || differ(ir.Size(k), rows)) {
		return c.Errorf("%d scales of the weight, want 1 or %v", k, rows)
	}
	if k := len(q.WZero); k > 1 && differ(ir.Size(k), rows) {
		return c.Errorf("%d zero points of the weight, want 1 or %v", k, rows)
	}
	if err := q.inferDynamic(c); err != nil {
		return err
	}
	for _, s := range append([]float32{q.XScale}, q.WScale...) {
		if !(s > 0) || math.IsInf(float64(s), 0) {
			return c.Errorf("scale %v, want a positive number", s)
		}
	}
	for _, s := range []float32{q.YScale, q.RScale} {
		if !(s >= 0) || math.IsInf(float64(s), 0) {
			return c.Errorf("scale %v, want a positive number, or 0 for none", s)
		}
	}
	for _, z := range []int{q.XZero, q.YZero, q.RZero} {
		if z < 0 || z > 255 {
			return c.Errorf("zero point %d, want one in 0..255", z)
		}
	}
	for _, z := range q.WZero {
		if z < -128 || z > 127 {
			return c.Errorf("zero point %d of the weight, want one in -128..127", z)
		}
	}
	y.DType = tensor.F32
	if q.RScale != 0 {
		y.DType = tensor.U8
	}
	if err := e.inferEpilogue(c, y); err != nil { // the residual's type
		return err
	}
	y.DType = q.dtype()
	c.Set(0, y)
	return nil
}

// inferDynamic checks the parameters of input 0 that are inputs: none, or both.
func (q *Quant) inferDynamic(c *ir.Infer) error {
	if c.Has(DynamicScale) != c.Has(DynamicZero) {
		return c.Errorf("only one of scale (input %d) and zero point (input %d), want both or none", DynamicScale, DynamicZero)
	}
	if !c.Has(DynamicScale) {
		return nil
	}
	for i, dt := range []tensor.DType{tensor.F32, tensor.U8} {
		if t := c.In(DynamicScale + i); t.DType != dt || t.Ranked && t.Rank() != 0 {
			return c.Errorf("input %d of a quantised product is %v, want a scalar %v", DynamicScale+i, t, dt)
		}
	}
	if q.XScale != 1 || q.XZero != 0 {
		return c.Errorf("scale %v and zero point %d beside those that are inputs, want 1 and 0", q.XScale, q.XZero)
	}
	return nil
}

// dtype is the type of the result.
func (q *Quant) dtype() tensor.DType {
	if q.YScale != 0 {
		return tensor.U8
	}
	return tensor.F32
}

// evalQuant evaluates a product of 8-bit integers: multiply computes the sums of
// f64 operands, the inputs less their zero points, and axis is that of the result along which
// the weight's rows lie, which are its axis waxis.
func (q *Quant) evalQuant(e *Epilogue, in []*tensor.Tensor, shape []int, axis, waxis int, multiply func(y *tensor.Tensor, in []*tensor.Tensor)) ([]*tensor.Tensor, error) {
	sums := tensor.New(tensor.F64, shape...)
	xscale, xzero := q.XScale, tensor.Scalar(uint8(q.XZero))
	if s := optional(in, DynamicScale); s != nil {
		xscale, xzero = s.F32s()[0], in[DynamicZero]
	}
	var wzero *tensor.Tensor
	if len(q.WZero) > 0 {
		wzero = perChannel(tensor.Ints(q.WZero...), in[1].Rank(), waxis)
	}
	multiply(sums, []*tensor.Tensor{centred(in[0], xzero, tensor.F64), centred(in[1], wzero, tensor.F64)})
	inner := product(shape[axis+1:])
	rows := shape[axis]
	bias := float64s(in, 2)
	y := tensor.New(tensor.F32, shape...)
	dst := y.F32s()
	for i, s := range tensor.Data[float64](sums) {
		m := i / inner % rows
		v := float32(s) * (xscale * q.WScale[m%len(q.WScale)])
		if bias != nil {
			v += float32(bias[m])
		}
		dst[i] = v
	}
	in = append([]*tensor.Tensor(nil), in...)
	if r := optional(in, Residual); r != nil && q.RScale != 0 {
		t := tensor.New(tensor.F32, r.Shape()...)
		for i, v := range r.Bytes() {
			t.F32s()[i] = q.RScale * float32(int(v)-q.RZero)
		}
		in[Residual] = t
	}
	out, err := e.evalEpilogue(y, in)
	if err != nil || q.YScale == 0 {
		return out, err
	}
	z := tensor.New(tensor.U8, shape...)
	for i, v := range out[0].F32s() {
		z.Bytes()[i] = quantizeU8(v, q.YScale, q.YZero)
	}
	return one(z)
}

// quantizeU8 rounds v/scale to nearest even, adds the zero point and saturates.
func quantizeU8(v, scale float32, zero int) byte {
	r := math.RoundToEven(float64(v/scale)) + float64(zero)
	if r != r {
		return 0
	}
	return byte(min(max(r, 0), 255))
}
