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
			d[i] = ToHalf(float32(x))
		}
	case BF16:
		d := view[Brain](t)
		for i, x := range v {
			d[i] = ToBrain(float32(x))
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

// narrow describes a float of at most eight bits: sign, exponent and mantissa
// bits and bias; what its special codes mean differs by type.
type narrow struct {
	exp, man, bias int
	signed         bool
	special        byte // i: top exponent is inf and NaN; n: all ones is NaN; z: negative zero is NaN; 0: none
}

var narrows = map[DType]narrow{
	F8E4M3FN: {4, 3, 7, true, 'n'},
	F8E4M3UZ: {4, 3, 8, true, 'z'},
	F8E5M2:   {5, 2, 15, true, 'i'},
	F8E5M2UZ: {5, 2, 16, true, 'z'},
	F8E8M0:   {8, 0, 127, false, 'n'},
	F4E2M1:   {2, 1, 1, true, 0},
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

func (f narrow) decode(b int) float64 {
	e := b >> f.man & (1<<f.exp - 1)
	m := b & (1<<f.man - 1)
	sign := 1.0
	if f.signed && b>>(f.man+f.exp)&1 == 1 {
		sign = -1
	}
	top := e == 1<<f.exp-1
	switch {
	case f.special == 'i' && top && m == 0:
		return sign * math.Inf(1)
	case f.special == 'i' && top,
		f.special == 'n' && top && m == 1<<f.man-1,
		f.special == 'z' && sign < 0 && e == 0 && m == 0:
		return math.NaN()
	case !f.signed: // e8m0 has no zero and no subnormals
		return math.Ldexp(1, e-f.bias)
	case e == 0:
		if m == 0 && sign < 0 {
			return math.Copysign(0, -1)
		}
		return sign * math.Ldexp(float64(m), 1-f.bias-f.man)
	}
	return sign * math.Ldexp(float64(m+1<<f.man), e-f.bias-f.man)
}

// ToNarrow rounds v to the nearest value of an f8 or f4 type, ties to even.
// Values out of range become the largest finite value when saturate is set, and
// infinity or NaN, as the type has them, when it is not.
func ToNarrow(dt DType, v float64, saturate bool) byte {
	f := narrows[dt]
	t := narrowTables[dt]
	bits := f.man + f.exp
	nan, inf := -1, -1
	top := 0 // the code of the largest finite magnitude
	for b := range 1 << bits {
		switch {
		case math.IsNaN(t[b]):
			nan = b
		case math.IsInf(t[b], 0):
			inf = b
		default:
			top = b
		}
	}
	sign := 0
	if f.signed && math.Signbit(v) {
		sign = 1 << bits
	}
	if f.special == 'z' {
		nan = 1 << bits
	}
	switch {
	case math.IsNaN(v):
		if nan < 0 {
			return byte(sign) // the type has no NaN
		}
		if f.special == 'z' {
			return byte(nan)
		}
		return byte(sign | nan)
	}
	a := math.Abs(v)
	best := 0
	for b := 1; b <= top; b++ {
		da, db := math.Abs(a-t[best]), math.Abs(a-t[b])
		if db < da || db == da && b&1 == 0 && t[b] != t[best] {
			best = b
		}
	}
	if best == top {
		// The next value of the grid, had there been one, decides overflow.
		ulp := t[top] - t[top-1]
		if f.man == 0 {
			ulp = t[top]
		}
		if over := a-t[top] > ulp/2 || a-t[top] == ulp/2 && top&1 == 1; over && (!saturate || math.IsInf(v, 0) && inf >= 0 && !saturate) {
			if inf >= 0 {
				return byte(sign | inf)
			}
			if f.special == 'z' {
				return byte(nan)
			}
			if nan >= 0 {
				return byte(sign | nan)
			}
		}
	}
	if f.special == 'z' && best == 0 {
		return 0
	}
	return byte(sign | best)
}
