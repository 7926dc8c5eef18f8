package tensor

import (
	"fmt"
	"math"

	"github.com/x448/float16"
)

// DType is an element type. Its values are the data type codes of ONNX
// TensorProto.DataType, so that no mapping is needed at the border.
type DType uint8

// The element types. F8 and F4 types, and the 2 and 4 bit integers, take one
// byte an element in memory whatever their packed size in a file.
const (
	Undefined DType = 0
	F32       DType = 1
	U8        DType = 2
	I8        DType = 3
	U16       DType = 4
	I16       DType = 5
	I32       DType = 6
	I64       DType = 7
	String    DType = 8
	Bool      DType = 9
	F16       DType = 10
	F64       DType = 11
	U32       DType = 12
	U64       DType = 13
	C64       DType = 14
	C128      DType = 15
	BF16      DType = 16
	F8E4M3FN  DType = 17
	F8E4M3UZ  DType = 18
	F8E5M2    DType = 19
	F8E5M2UZ  DType = 20
	U4        DType = 21
	I4        DType = 22
	F4E2M1    DType = 23
	F8E8M0    DType = 24
	U2        DType = 25
	I2        DType = 26
)

type dtypeInfo struct {
	name string
	size int // bytes an element in memory; 0 for strings
	bits int // bits an element in a file
	kind byte
}

// kinds: f float, i signed, u unsigned, b bool, c complex, s string.
var dtypes = [...]dtypeInfo{
	Undefined: {"undefined", 0, 0, 0},
	F32:       {"f32", 4, 32, 'f'},
	U8:        {"u8", 1, 8, 'u'},
	I8:        {"i8", 1, 8, 'i'},
	U16:       {"u16", 2, 16, 'u'},
	I16:       {"i16", 2, 16, 'i'},
	I32:       {"i32", 4, 32, 'i'},
	I64:       {"i64", 8, 64, 'i'},
	String:    {"string", 0, 0, 's'},
	Bool:      {"bool", 1, 8, 'b'},
	F16:       {"f16", 2, 16, 'f'},
	F64:       {"f64", 8, 64, 'f'},
	U32:       {"u32", 4, 32, 'u'},
	U64:       {"u64", 8, 64, 'u'},
	C64:       {"c64", 8, 64, 'c'},
	C128:      {"c128", 16, 128, 'c'},
	BF16:      {"bf16", 2, 16, 'f'},
	F8E4M3FN:  {"f8e4m3fn", 1, 8, 'f'},
	F8E4M3UZ:  {"f8e4m3fnuz", 1, 8, 'f'},
	F8E5M2:    {"f8e5m2", 1, 8, 'f'},
	F8E5M2UZ:  {"f8e5m2fnuz", 1, 8, 'f'},
	U4:        {"u4", 1, 4, 'u'},
	I4:        {"i4", 1, 4, 'i'},
	F4E2M1:    {"f4e2m1", 1, 4, 'f'},
	F8E8M0:    {"f8e8m0", 1, 8, 'f'},
	U2:        {"u2", 1, 2, 'u'},
	I2:        {"i2", 1, 2, 'i'},
}

func (d DType) info() dtypeInfo {
	if int(d) < len(dtypes) {
		return dtypes[d]
	}
	if d.IsList() {
		return dtypeInfo{name: d.listName()}
	}
	return dtypeInfo{name: fmt.Sprintf("dtype(%d)", d)}
}

// String returns the short name of the type, such as f32.
func (d DType) String() string { return d.info().name }

// Valid reports whether d is an element type that tensors can have; those of lists are not.
func (d DType) Valid() bool { return d != Undefined && int(d) < len(dtypes) }

// Numeric reports whether elements of the type d are bytes: all but strings and tensors.
func (d DType) Numeric() bool { return d.Valid() && d != String }

// Size is the number of bytes of an element in memory, 0 for strings and lists.
func (d DType) Size() int { return d.info().size }

// Bits is the number of bits of an element in a file, 0 for strings and lists.
func (d DType) Bits() int { return d.info().bits }

// IsFloat reports whether d is a real floating-point type of any width.
func (d DType) IsFloat() bool { return d.info().kind == 'f' }

// IsInt reports whether d is a signed or unsigned integer type (not bool).
func (d DType) IsInt() bool { k := d.info().kind; return k == 'i' || k == 'u' }

// IsSigned reports whether d is a signed integer type.
func (d DType) IsSigned() bool { return d.info().kind == 'i' }

// IsUnsigned reports whether d is an unsigned integer type (not bool).
func (d DType) IsUnsigned() bool { return d.info().kind == 'u' }

// ParseDType is the inverse of String.
func ParseDType(s string) (DType, error) {
	for d, info := range dtypes {
		if info.name == s && d != 0 {
			return DType(d), nil
		}
	}
	return Undefined, fmt.Errorf("unknown element type %q", s)
}

// Half is an IEEE 754 binary16 number.
type Half uint16

// Brain is a bfloat16 number.
type Brain uint16

// Narrow is the byte of an element of at most eight bits that is no plain
// i8, u8 or bool: the f8 and f4 types and the 2 and 4 bit integers.
type Narrow uint8

// Float32 converts h exactly.
func (h Half) Float32() float32 { return float16.Frombits(uint16(h)).Float32() }

// ToHalf rounds f to nearest even.
func ToHalf(f float32) Half { return Half(float16.Fromfloat32(f).Bits()) }

// Float32 converts b exactly.
func (b Brain) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBrain rounds f to nearest even and keeps NaN a NaN.
func ToBrain(f float32) Brain {
	u := math.Float32bits(f)
	if f != f {
		return Brain(u>>16 | 0x40)
	}
	return Brain((u + 0x7fff + u>>16&1) >> 16)
}
