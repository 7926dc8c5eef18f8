package tensor

import (
	"fmt"
	"math"
)

// Float64s returns the elements of a tensor of any real numeric type, or bool,
// as float64 values.
func (t *Tensor) Float64s() []float64 {
	out := make([]float64, t.Len())
	switch t.dtype {
	case F32:
		widen(out, view[float32](t))
	case F64:
		copy(out, view[float64](t))
	case F16:
		for i, v := range view[Half](t) {
			out[i] = float64(v.Float32())
		}
	case BF16:
		for i, v := range view[Brain](t) {
			out[i] = float64(v.Float32())
		}
	case U64:
		widen(out, view[uint64](t))
	case F8E4M3FN, F8E4M3UZ, F8E5M2, F8E5M2UZ, F8E8M0, F4E2M1:
		table := narrowTable(t.dtype)
		for i, v := range t.data {
			out[i] = table[v]
		}
	default:
		for i, v := range t.Int64s() {
			out[i] = float64(v)
		}
	}
	return out
}

// Int64s returns the elements of a tensor of any integer type, or bool, as
// int64 values; u64 values keep their bits.
func (t *Tensor) Int64s() []int64 {
	out := make([]int64, t.Len())
	switch t.dtype {
	case I64:
		copy(out, view[int64](t))
	case U64:
		widen(out, view[uint64](t))
	case I32:
		widen(out, view[int32](t))
	case U32:
		widen(out, view[uint32](t))
	case I16:
		widen(out, view[int16](t))
	case U16:
		widen(out, view[uint16](t))
	case I8:
		widen(out, view[int8](t))
	case U8, U4, U2:
		widen(out, t.data)
	case I4:
		for i, v := range t.data {
			out[i] = int64(int8(v<<4) >> 4)
		}
	case I2:
		for i, v := range t.data {
			out[i] = int64(int8(v<<6) >> 6)
		}
	case Bool:
		for i, v := range t.data {
			if v != 0 {
				out[i] = 1
			}
		}
	default:
		panic(fmt.Sprintf("tensor.Int64s of a %v tensor", t.dtype))
	}
	return out
}

// Ints returns the elements of an integer tensor as ints.
func (t *Tensor) Ints() []int {
	out := make([]int, t.Len())
	widen(out, t.Int64s())
	return out
}

type number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func widen[D, S number](dst []D, src []S) {
	for i, v := range src {
		dst[i] = D(v)
	}
}

// FromFloat64s returns a tensor of a floating-point type whose elements are the
// values rounded to nearest even; values beyond the range of an f8 or f4 type
// saturate.
func FromFloat64s(dt DType, v []float64, shape ...int) *Tensor {
	t := New(dt, shape...)
	switch dt {
	case F64:
		copy(view[float64](t), v)
	case F32:
		widen(view[float32](t), v)
	case F16:
		d := view[Half](t)
		for i, x := range v {
			d[i] = ToHalf(toOdd(x))
		}
	case BF16:
		d := view[Brain](t)
		for i, x := range v {
			d[i] = ToBrain(toOdd(x))
		}
	case F8E4M3FN, F8E4M3UZ, F8E5M2, F8E5M2UZ, F8E8M0, F4E2M1:
		for i, x := range v {
			t.data[i] = ToNarrow(dt, x, true)
		}
	default:
		panic(fmt.Sprintf("tensor.FromFloat64s to %v", dt))
	}
	return t
}

// FromInt64s returns a tensor of an integer type, or bool, whose elements are
// the values cut to the type's width (bool: different from zero).
func FromInt64s(dt DType, v []int64, shape ...int) *Tensor {
	t := New(dt, shape...)
	switch dt {
	case I64:
		copy(view[int64](t), v)
	case U64:
		widen(view[uint64](t), v)
	case I32:
		widen(view[int32](t), v)
	case U32:
		widen(view[uint32](t), v)
	case I16:
		widen(view[int16](t), v)
	case U16:
		widen(view[uint16](t), v)
	case I8, U8:
		widen(t.data, v)
	case I4, U4:
		for i, x := range v {
			t.data[i] = byte(x) & 15
		}
	case I2, U2:
		for i, x := range v {
			t.data[i] = byte(x) & 3
		}
	case Bool:
		for i, x := range v {
			if x != 0 {
				t.data[i] = 1
			}
		}
	default:
		panic(fmt.Sprintf("tensor.FromInt64s to %v", dt))
	}
	return t
}

// toOdd rounds x to f32 so that rounding the result to nearest again, to a type
// of at least two bits less, gives what rounding x at once would: an inexact
// value goes toward zero and gets an odd last bit (Boldo and Melquiond, When
// double rounding is odd, 2005).
func toOdd(x float64) float32 {
	f := float32(x)
	d := float64(f)
	if d == x || x != x {
		return f
	}
	u := math.Float32bits(f)
	if math.Abs(d) > math.Abs(x) {
		u--
	}
	return math.Float32frombits(u | 1)
}

// To returns the tensor converted to another real numeric type or bool: t itself
// where it has that type. Floats round to nearest even, and those beyond the
// range of an f8 or f4 type saturate; a float becomes an integer by cutting its
// fraction off, NaN becoming 0; an integer is cut to the width of its new type;
// bool is what differs from zero.
func (t *Tensor) To(dt DType) *Tensor {
	switch {
	case dt == t.dtype:
		return t
	case dt == F32:
		out := New(F32, t.shape...)
		t.float32s(view[float32](out))
		return out
	case t.dtype == F32 && (dt == F16 || dt == BF16):
		return fromFloat32s(dt, view[float32](t), t.shape)
	case dt.IsFloat():
		return FromFloat64s(dt, t.Float64s(), t.shape...)
	case !t.dtype.IsFloat():
		return FromInt64s(dt, t.Int64s(), t.shape...)
	case dt == Bool:
		out := New(Bool, t.shape...)
		for i, x := range t.Float64s() {
			if x != 0 {
				out.data[i] = 1
			}
		}
		return out
	}
	v := t.Float64s()
	ints := make([]int64, len(v))
	for i, x := range v {
		ints[i] = truncate(x, dt == U64)
	}
	return FromInt64s(dt, ints, t.shape...)
}

// BitsAs returns a view of the elements' bits as another type, of the same size
// in memory, for which every pattern of the bits is valid.
func (t *Tensor) BitsAs(dt DType) *Tensor {
	if dt.Size() != t.dtype.Size() || dt == String || t.dtype == String {
		panic(fmt.Sprintf("tensor.BitsAs: %v as %v", t, dt))
	}
	v := *t
	v.dtype = dt
	return &v
}

// Truncate cuts off the fraction of x, as a conversion to a signed integer does: NaN becomes 0, and a value beyond the range of 64
// bits the nearest one in it.
func Truncate(x float64) int64 { return truncate(x, false) }

// TruncateUnsigned is Truncate to an unsigned integer, of which what is negative has the bits of the signed one.
func TruncateUnsigned(x float64) uint64 { return uint64(truncate(x, true)) }

// truncate cuts off the fraction of x; a value beyond the range of 64 bits
// becomes the nearest one in it. For an unsigned type the result is its bits.
func truncate(x float64, unsigned bool) int64 {
	switch {
	case x != x:
		return 0
	case unsigned && x >= 1<<64:
		return -1
	case unsigned && x >= 1<<63:
		return int64(uint64(x))
	case x >= 1<<63:
		return math.MaxInt64
	case x < -1<<63:
		return math.MinInt64
	}
	return int64(x)
}

// float32s stores the elements as f32 values, rounded once.
func (t *Tensor) float32s(out []float32) {
	switch t.dtype {
	case F16:
		for i, v := range view[Half](t) {
			out[i] = v.Float32()
		}
	case BF16:
		for i, v := range view[Brain](t) {
			out[i] = v.Float32()
		}
	case U64:
		widen(out, view[uint64](t))
	case I64:
		widen(out, view[int64](t))
	case I32:
		widen(out, view[int32](t))
	case U8:
		widen(out, t.data)
	default:
		widen(out, t.Float64s())
	}
}

func fromFloat32s(dt DType, v []float32, shape []int) *Tensor {
	t := New(dt, shape...)
	if dt == F16 {
		d := view[Half](t)
		for i, x := range v {
			d[i] = ToHalf(x)
		}
		return t
	}
	d := view[Brain](t)
	for i, x := range v {
		d[i] = ToBrain(x)
	}
	return t
}

// narrow describes a float of at most eight bits: its exponent and mantissa bits
// and exponent bias, the code of its largest finite magnitude, and the codes
// (without sign) of infinity and NaN, negative where the type has none. A type
// whose NaN is the code of -0 has zeroNaN set, and no -0.
type narrow struct {
	exp, man, bias int
	top, inf, nan  int
	zeroNaN        bool
}

var narrows = map[DType]narrow{
	F8E4M3FN: {4, 3, 7, 0x7e, -1, 0x7f, false},
	F8E4M3UZ: {4, 3, 8, 0x7f, -1, 0x80, true},
	F8E5M2:   {5, 2, 15, 0x7b, 0x7c, 0x7e, false},
	F8E5M2UZ: {5, 2, 16, 0x7f, -1, 0x80, true},
	F4E2M1:   {2, 1, 1, 0x7, -1, -1, false},
	// e8m0 has no sign, no zero and no subnormals; ToScale makes its codes.
	F8E8M0: {8, 0, 127, 0xfe, -1, 0xff, false},
}

var narrowTables = func() map[DType]*[256]float64 {
	m := map[DType]*[256]float64{}
	for dt, f := range narrows {
		var t [256]float64
		for b := range t {
			t[b] = f.decode(b)
		}
		m[dt] = &t
	}
	return m
}()

func narrowTable(dt DType) *[256]float64 { return narrowTables[dt] }

// sign is the bit of the sign, zero for an unsigned type.
func (f narrow) sign() int { return 1 << (f.exp + f.man) & 0xff }

func (f narrow) decode(code int) float64 {
	if f.sign() == 0 {
		if code == f.nan {
			return math.NaN()
		}
		return math.Ldexp(1, code-f.bias)
	}
	sign := 1.0
	if code&f.sign() != 0 {
		sign = -1
	}
	b := code & (f.sign() - 1)
	e := max(b>>f.man, 1)
	switch {
	case f.zeroNaN && code == f.nan:
		return math.NaN()
	case b == f.inf:
		return math.Inf(int(sign))
	case b > f.top && f.nan >= 0:
		return math.NaN()
	}
	return math.Copysign(math.Ldexp(float64(b-(e-1)<<f.man), e-f.bias-f.man), sign)
}

// ToNarrow rounds v to the nearest value of an f8 or f4 type, ties to even.
// Infinities and values out of range become the largest finite value when
// saturate is set or the type has nothing else; when it is not, they become
// infinity or NaN, as the type has them. NaN becomes -0 where the type has none.
func ToNarrow(dt DType, v float64, saturate bool) byte {
	f := narrows[dt]
	if f.sign() == 0 {
		return ToScale(v, RoundNearest, saturate)
	}
	sign := 0
	if math.Signbit(v) {
		sign = f.sign()
	}
	nan := byte(f.sign())
	if f.nan >= 0 && !f.zeroNaN {
		nan = byte(sign | f.nan)
	}
	if v != v {
		return nan
	}
	code := f.top + 1
	if !math.IsInf(v, 0) {
		// The codes of magnitudes count the multiples of the last mantissa
		// bit, binade after binade.
		a := math.Abs(v)
		e := max(math.Ilogb(a)+f.bias, 1)
		if a = math.RoundToEven(math.Ldexp(a, f.bias+f.man-e)); e < 1<<f.exp {
			code = (e-1)<<f.man + int(a)
		}
	}
	switch {
	case code <= f.top:
	case saturate || f.inf < 0 && f.nan < 0:
		code = f.top
	case f.inf >= 0:
		code = f.inf
	default:
		return nan
	}
	if code == 0 && f.zeroNaN {
		return 0
	}
	return byte(sign | code)
}

// Rounding is a way to round to a power of two.
type Rounding uint8

// The roundings: to the nearest, ties up; to the next above; to the next below.
const (
	RoundNearest Rounding = iota
	RoundUp
	RoundDown
)

// ToScale rounds v to e8m0, the powers of two from 2^-127 to 2^127 that scale
// the blocks of OCP's microscaling formats. Values out of range become the
// nearest in it when saturate is set, and NaN when it is not; a negative value
// is NaN always.
func ToScale(v float64, r Rounding, saturate bool) byte {
	const bias, top, nan = 127, 254, 255
	if !(v >= 0) {
		return nan
	}
	code := 1 << 16
	if !math.IsInf(v, 0) {
		frac, e := math.Frexp(v) // frac in [1/2, 1), zero for zero
		code = e - 1 + bias
		if r == RoundUp && frac > 0.5 || r == RoundNearest && frac >= 0.75 {
			code++
		}
		if v == 0 {
			code = -1
		}
	}
	switch {
	case code >= 0 && code <= top:
		return byte(code)
	case !saturate:
		return nan
	}
	return byte(min(max(code, 0), top))
}
