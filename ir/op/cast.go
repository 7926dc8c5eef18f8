package op

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// casting says how Cast and CastLike treat what does not fit an f8 type.
type casting struct {
	// Saturate makes values beyond the range of an f8 type its largest finite
	// values; otherwise they become infinities or NaN.
	Saturate bool `attr:"saturate,1" since:"19"`
	// RoundMode is how f8e8m0 rounds: up, down or nearest.
	RoundMode string `attr:"round_mode,up" since:"24"`
}

var roundModes = map[string]tensor.Rounding{
	"up":      tensor.RoundUp,
	"down":    tensor.RoundDown,
	"nearest": tensor.RoundNearest,
}

func (o casting) infer(c *ir.Infer, to tensor.DType) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	if _, ok := roundModes[o.RoundMode]; !ok {
		return c.Errorf("round_mode is %q, want up, down or nearest", o.RoundMode)
	}
	t := c.In(0)
	for _, dt := range []tensor.DType{t.DType, to} {
		if !dt.Valid() || dt == tensor.C64 || dt == tensor.C128 {
			return c.Errorf("a cast from %v to %v, want real numbers, bool or strings", t.DType, to)
		}
	}
	if elems, ok := c.Elems(0); ok && (to == tensor.I64 || to == tensor.I32 || to == tensor.Bool) {
		c.SetElems(0, castElems(c, elems, to))
	}
	t.DType = to
	c.Set(0, t)
	return nil
}

// castElems returns what is known of elements after a cast.
func castElems(c *ir.Infer, elems []ir.Dim, to tensor.DType) []ir.Dim {
	out := make([]ir.Dim, len(elems))
	for i, d := range elems {
		switch {
		case !d.Known():
			if out[i] = d; to == tensor.Bool {
				out[i] = c.Fresh()
			}
		case to == tensor.Bool:
			if d != ir.Size(0) {
				d = ir.Size(1)
			}
			out[i] = d
		case to == tensor.I32:
			out[i] = ir.Size(int(int32(d.Size())))
		default:
			out[i] = d
		}
	}
	return out
}

func (o casting) eval(x *tensor.Tensor, to tensor.DType) (*tensor.Tensor, error) {
	switch {
	case x.DType() == to:
		return x, nil
	case x.DType() == tensor.String:
		return o.parse(x, to)
	case to == tensor.String:
		return tensor.FromStrings(texts(x), x.Shape()...), nil
	}
	return o.numbers(x, to), nil
}

// numbers casts between numeric types.
func (o casting) numbers(x *tensor.Tensor, to tensor.DType) *tensor.Tensor {
	switch to {
	case tensor.F8E4M3FN, tensor.F8E4M3UZ, tensor.F8E5M2, tensor.F8E5M2UZ:
		return mapCodes(x, to, func(v float64) byte { return tensor.ToNarrow(to, v, o.Saturate) })
	case tensor.F8E8M0:
		mode := roundModes[o.RoundMode]
		return mapCodes(x, to, func(v float64) byte { return tensor.ToScale(v, mode, o.Saturate) })
	}
	return x.To(to)
}

func mapCodes(x *tensor.Tensor, to tensor.DType, code func(float64) byte) *tensor.Tensor {
	out := tensor.New(to, x.Shape()...)
	d := out.Bytes()
	for i, v := range x.Float64s() {
		d[i] = code(v)
	}
	return out
}

// parse reads numbers in plain or scientific notation, INF and NaN in any case.
func (o casting) parse(x *tensor.Tensor, to tensor.DType) (*tensor.Tensor, error) {
	bits := 64
	if to == tensor.F32 {
		bits = 32
	}
	ints := make([]int64, x.Len())
	floats := make([]float64, x.Len())
	for i, s := range x.Strings() {
		s = strings.TrimSpace(s)
		if to.IsInt() {
			if n, err := strconv.ParseInt(s, 10, 64); err == nil {
				ints[i] = n
				continue
			}
			if n, err := strconv.ParseUint(s, 10, 64); err == nil {
				ints[i] = int64(n)
				continue
			}
		}
		v, err := strconv.ParseFloat(s, bits)
		if err != nil && !math.IsInf(v, 0) {
			return nil, evalErrorf("element %d is %q, want a number", i, s)
		}
		floats[i] = v
		ints[i] = tensor.Scalar(v).To(tensor.I64).Int64s()[0]
	}
	if to.IsInt() {
		return tensor.FromInt64s(to, ints, x.Shape()...), nil
	}
	return o.numbers(tensor.From(floats, x.Shape()...), to), nil
}

// texts writes numbers in plain decimal notation, as short as reads back the same.
func texts(x *tensor.Tensor) []string {
	out := make([]string, x.Len())
	if !x.DType().IsFloat() {
		for i, v := range x.Int64s() {
			if x.DType() == tensor.U64 {
				out[i] = strconv.FormatUint(uint64(v), 10)
			} else {
				out[i] = strconv.FormatInt(v, 10)
			}
		}
		return out
	}
	bits := 32
	if x.DType() == tensor.F64 {
		bits = 64
	}
	for i, v := range x.Float64s() {
		switch {
		case v != v:
			out[i] = "NaN"
		case math.IsInf(v, 1):
			out[i] = "INF"
		case math.IsInf(v, -1):
			out[i] = "-INF"
		default:
			out[i] = strconv.FormatFloat(v, 'f', -1, bits)
		}
	}
	return out
}

// Cast converts the elements to another type.
type Cast struct {
	pointwise
	To tensor.DType `attr:"to"`
	casting
}

// Kind is Cast.
func (*Cast) Kind() string { return "Cast" }

// Same changes nothing of the type that it gives.
func (*Cast) Same(n *ir.Node) int {
	return sameIf(n.Inputs[0].Type.DType == n.Outputs[0].Type.DType)
}

// Infer keeps the shape.
func (o *Cast) Infer(c *ir.Infer) error { return o.infer(c, o.To) }

// Eval converts the elements.
func (o *Cast) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	t, err := o.eval(in[0], o.To)
	if err != nil {
		return nil, err
	}
	return one(t)
}

// Grad passes the gradient of what was f32 and stays so.
func (o *Cast) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if in[0].DType() != tensor.F32 || out[0].DType() != tensor.F32 {
		return nil, errNoGrad("of a cast from %v to %v", in[0].DType(), out[0].DType())
	}
	return reshaped(c, in, dout)
}

// upgradeCast turns the names of element types of opsets below 6 into codes.
func upgradeCast(l *Legacy) error {
	name, ok := l.Attrs["to"].(string)
	if !ok {
		return nil
	}
	names := map[string]tensor.DType{
		"FLOAT": tensor.F32, "UINT8": tensor.U8, "INT8": tensor.I8, "UINT16": tensor.U16, "INT16": tensor.I16,
		"INT32": tensor.I32, "INT64": tensor.I64, "STRING": tensor.String, "BOOL": tensor.Bool,
		"FLOAT16": tensor.F16, "DOUBLE": tensor.F64, "UINT32": tensor.U32, "UINT64": tensor.U64,
	}
	dt, ok := names[strings.ToUpper(name)]
	if !ok {
		return fmt.Errorf("attribute to is %q, want the name of an element type: %w", name, ir.ErrInvalid)
	}
	l.Attrs["to"] = int(dt)
	return nil
}

// CastLike converts the elements of the first input to the type of the second.
type CastLike struct {
	pointwise
	casting
}

// Kind is CastLike.
func (*CastLike) Kind() string { return "CastLike" }

// Same changes nothing of the type that it gives.
func (*CastLike) Same(n *ir.Node) int {
	return sameIf(n.Inputs[0].Type.DType == n.Outputs[0].Type.DType)
}

// Infer keeps the shape.
func (o *CastLike) Infer(c *ir.Infer) error { return o.infer(c, c.In(1).DType) }

// Eval converts the elements.
func (o *CastLike) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	t, err := o.eval(in[0], in[1].DType())
	if err != nil {
		return nil, err
	}
	return one(t)
}

// Grad passes the gradient of what was f32 and stays so.
func (o *CastLike) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if in[0].DType() != tensor.F32 || out[0].DType() != tensor.F32 {
		return nil, errNoGrad("of a cast from %v to %v", in[0].DType(), out[0].DType())
	}
	return reshaped(c, in, dout)
}

// BitCast takes the bits of each element as one of another type of the same width.
type BitCast struct {
	pointwise
	To tensor.DType `attr:"to"`
}

// Kind is BitCast.
func (*BitCast) Kind() string { return "BitCast" }

// Infer keeps the shape.
func (o *BitCast) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	t := c.In(0)
	if t.DType == tensor.String || o.To == tensor.String || t.DType.Bits() != o.To.Bits() {
		return c.Errorf("bits of %v as %v, want two types of the same width", t.DType, o.To)
	}
	t.DType = o.To
	c.Set(0, t)
	return nil
}

// Eval shares the input's storage, except that a bool is true for any bit.
func (o *BitCast) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	if o.To == tensor.Bool && x.DType() != tensor.Bool {
		return one(mapCodes(x.BitsAs(tensor.U8), tensor.Bool, func(v float64) byte { return byte(min(v, 1)) }))
	}
	return one(x.BitsAs(o.To))
}
