// Package tensor holds host tensors: element types, dense row-major storage, lists of tensors,
// conversions between element types, strided copies, and readers and writers
// of npy files and ONNX TensorProtos. It imports nothing of spc but internal/memory
// and the generated ONNX messages.
package tensor

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"spc/internal/memory"
)

// Elem lists the Go types that stand for elements in memory.
type Elem interface {
	~bool | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// Tensor is a dense row-major array. A scalar has an empty shape. The storage
// may be shared (views, mapped files), so who writes into a tensor must own it.
type Tensor struct {
	dtype DType
	shape []int
	data  []byte
	strs  []string
	items []*Tensor // of a sequence or an optional
}

// MaxRank is the most dimensions that a tensor has, as in numpy.
const MaxRank = 64

// Elems returns the number of elements of a shape, an error when the product
// overflows, a dimension is negative, or there are more than MaxRank of them.
func Elems(shape []int) (int, error) {
	if len(shape) > MaxRank {
		return 0, fmt.Errorf("shape has %d dimensions, want at most %d", len(shape), MaxRank)
	}
	n := 1
	zero := false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension in shape %v", shape)
		}
		if d == 0 {
			zero = true
			continue
		}
		if n > math.MaxInt/16/d {
			return 0, fmt.Errorf("shape %v has too many elements", shape)
		}
		n *= d
	}
	if zero {
		return 0, nil
	}
	return n, nil
}

// mustElems is Elems for shapes that the caller has checked.
func mustElems(shape []int) int {
	n, err := Elems(shape)
	if err != nil {
		panic(err)
	}
	return n
}

// New returns a zeroed tensor. The shape must be one that Elems accepts. It makes no
// lists.
func New(dt DType, shape ...int) *Tensor {
	n := mustElems(shape)
	t := &Tensor{dtype: dt, shape: append([]int{}, shape...)}
	switch {
	case dt == String:
		t.strs = make([]string, n)
	case dt.IsList():
		panic(fmt.Sprintf("tensor.New of %v", dt))
	default:
		t.data = alloc(n * dt.Size())
	}
	return t
}

// alloc returns zeroed bytes aligned for every element type and for vectors.
func alloc(n int) []byte {
	if n == 0 {
		return nil
	}
	w := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), n)
}

// FromBytes wraps raw little-endian elements without copying them. The data
// must hold exactly the elements of the shape; a start that is not aligned for
// the type is copied to one that is.
func FromBytes(dt DType, shape []int, data []byte) (*Tensor, error) {
	n, err := Elems(shape)
	if err != nil {
		return nil, err
	}
	if !dt.Valid() || dt == String {
		return nil, fmt.Errorf("no raw bytes for element type %v", dt)
	}
	if len(data) != n*dt.Size() {
		return nil, fmt.Errorf("%d bytes for %v%v, want %d", len(data), dt, shape, n*dt.Size())
	}
	if dt == Bool {
		for i, b := range data {
			if b > 1 {
				return nil, fmt.Errorf("bool element %d has the value %d", i, b)
			}
		}
	}
	if n > 0 && uintptr(unsafe.Pointer(&data[0]))%uintptr(min(dt.Size(), 8)) != 0 {
		c := alloc(len(data))
		copy(c, data)
		data = c
	}
	return &Tensor{dtype: dt, shape: append([]int{}, shape...), data: data}, nil
}

// DTypeOf returns the element type that a Go type stands for. Named types
// Half and Brain stand for f16 and bf16; Narrow for no single type.
func DTypeOf[T Elem]() DType {
	var z T
	switch any(z).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case int8:
		return I8
	case int16:
		return I16
	case int32:
		return I32
	case int64:
		return I64
	case uint8:
		return U8
	case uint16:
		return U16
	case uint32:
		return U32
	case uint64:
		return U64
	case bool:
		return Bool
	case complex64:
		return C64
	case complex128:
		return C128
	case Half:
		return F16
	case Brain:
		return BF16
	}
	return Undefined
}

// From wraps a slice without copying it; len(data) must fit the shape.
func From[T Elem](data []T, shape ...int) *Tensor {
	dt := DTypeOf[T]()
	if dt == Undefined {
		panic(fmt.Sprintf("tensor.From: no element type for %T", data))
	}
	if n := mustElems(shape); n != len(data) {
		panic(fmt.Sprintf("tensor.From: %d elements for shape %v", len(data), shape))
	}
	return &Tensor{dtype: dt, shape: append([]int{}, shape...), data: bytesOf(data)}
}

// FromStrings wraps a slice of strings.
func FromStrings(data []string, shape ...int) *Tensor {
	if n := mustElems(shape); n != len(data) {
		panic(fmt.Sprintf("tensor.FromStrings: %d elements for shape %v", len(data), shape))
	}
	return &Tensor{dtype: String, shape: append([]int{}, shape...), strs: data}
}

// Scalar returns a tensor of rank 0.
func Scalar[T Elem](v T) *Tensor { return From([]T{v}) }

// Ints returns a one-dimensional i64 tensor, the form of shapes and axes.
func Ints(v ...int) *Tensor {
	w := make([]int64, len(v))
	for i, x := range v {
		w[i] = int64(x)
	}
	return From(w, len(w))
}

func bytesOf[T Elem](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// Data returns the elements as a slice that shares the tensor's storage. T must
// be the Go type of the tensor's element type (Narrow for every one-byte type
// without a Go type of its own); anything else is a programming error.
func Data[T Elem](t *Tensor) []T {
	want := DTypeOf[T]()
	var z T
	if want != t.dtype && !(want == Undefined && t.dtype.Size() == int(unsafe.Sizeof(z))) {
		panic(fmt.Sprintf("tensor.Data[%T] of a %v tensor", z, t.dtype))
	}
	return view[T](t)
}

func view[T Elem](t *Tensor) []T {
	if len(t.data) == 0 {
		return nil
	}
	var z T
	return unsafe.Slice((*T)(unsafe.Pointer(&t.data[0])), len(t.data)/int(unsafe.Sizeof(z)))
}

// F32s is Data[float32].
func (t *Tensor) F32s() []float32 { return Data[float32](t) }

// Strings returns the elements of a string tensor.
func (t *Tensor) Strings() []string {
	if t.dtype != String {
		panic(fmt.Sprintf("tensor.Strings of a %v tensor", t.dtype))
	}
	return t.strs
}

// Bytes returns the storage: little-endian elements, row-major.
func (t *Tensor) Bytes() []byte { return t.data }

// DType returns the element type.
func (t *Tensor) DType() DType { return t.dtype }

// Shape returns the dimensions; the caller must not change them.
func (t *Tensor) Shape() []int { return t.shape }

// Rank is the number of dimensions.
func (t *Tensor) Rank() int { return len(t.shape) }

// Dim returns dimension i; a negative i counts from the end.
func (t *Tensor) Dim(i int) int {
	if i < 0 {
		i += len(t.shape)
	}
	return t.shape[i]
}

// Len is the number of elements.
func (t *Tensor) Len() int {
	switch {
	case t.dtype == String:
		return len(t.strs)
	case t.dtype.IsList():
		return len(t.items)
	}
	return len(t.data) / t.dtype.Size()
}

// Reshape returns a view with another shape of the same number of elements.
func (t *Tensor) Reshape(shape ...int) *Tensor {
	if mustElems(shape) != t.Len() {
		panic(fmt.Sprintf("tensor.Reshape: %v to %v", t.shape, shape))
	}
	v := *t
	v.shape = append([]int{}, shape...)
	return &v
}

// Clone returns a copy with storage of its own.
func (t *Tensor) Clone() *Tensor {
	if t.dtype.IsList() {
		c := &Tensor{dtype: t.dtype, shape: slices.Clone(t.shape), items: make([]*Tensor, len(t.items))}
		for i, e := range t.items {
			c.items[i] = e.Clone()
		}
		return c
	}
	c := New(t.dtype, t.shape...)
	memory.Copy(c.data, t.data)
	copy(c.strs, t.strs)
	return c
}

// CopyFrom copies the elements of src, which has the same type and length, and in lists
// elements of the same.
func (t *Tensor) CopyFrom(src *Tensor) {
	if t.dtype != src.dtype || t.Len() != src.Len() {
		panic(fmt.Sprintf("tensor.CopyFrom: %v into %v", src, t))
	}
	for i, e := range t.items {
		e.CopyFrom(src.items[i])
	}
	memory.Copy(t.data, src.data)
	copy(t.strs, src.strs)
}

// Header returns a tensor whose elements are set by Share.
func Header(dt DType, shape ...int) *Tensor {
	return &Tensor{dtype: dt, shape: append([]int{}, shape...)}
}

// Share makes t, which keeps its shape, use the storage of src, of the same type and
// length; a nil src leaves it without storage.
func (t *Tensor) Share(src *Tensor) {
	if src == nil {
		t.data, t.strs, t.items = nil, nil, nil
		return
	}
	if t.dtype != src.dtype || mustElems(t.shape) != src.Len() {
		panic(fmt.Sprintf("tensor.Share: %v as %v", src, t))
	}
	t.data, t.strs, t.items = src.data, src.strs, src.items
}

// Stored reports whether t has storage for the elements of its shape, and in lists whether
// all elements have.
func (t *Tensor) Stored() bool {
	n, err := Elems(t.shape)
	switch {
	case err != nil:
		return false
	case t.dtype == String:
		return len(t.strs) == n
	case t.dtype.IsList():
		return len(t.items) == n && !slices.ContainsFunc(t.items, func(e *Tensor) bool { return !e.Stored() })
	}
	return len(t.data) == n*t.dtype.Size()
}

// Overlaps reports whether writing into t changes elements of o; nil has none.
func (t *Tensor) Overlaps(o *Tensor) bool {
	if t == nil || o == nil {
		return false
	}
	if len(t.items) > 0 {
		return slices.ContainsFunc(t.items, o.Overlaps)
	}
	if len(o.items) > 0 {
		return slices.ContainsFunc(o.items, t.Overlaps)
	}
	return overlap(t.data, o.data) || overlap(t.strs, o.strs)
}

func overlap[T any](a, b []T) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	end := func(s []T) uintptr { return uintptr(unsafe.Pointer(&s[len(s)-1])) }
	return uintptr(unsafe.Pointer(&a[0])) <= end(b) && uintptr(unsafe.Pointer(&b[0])) <= end(a)
}

// Fits reports whether t and o have the same type and shape, and in lists elements of the
// same; nil has none.
func (t *Tensor) Fits(o *Tensor) bool {
	return t != nil && o != nil && t.dtype == o.dtype && slices.Equal(t.shape, o.shape) && slices.EqualFunc(t.items, o.items, (*Tensor).Fits)
}

// Equal reports whether both tensors have the same type, shape and bits.
func (t *Tensor) Equal(o *Tensor) bool {
	if t == nil || o == nil {
		return t == o
	}
	if t.dtype != o.dtype || len(t.shape) != len(o.shape) || t.Len() != o.Len() {
		return false
	}
	for i, d := range t.shape {
		if o.shape[i] != d {
			return false
		}
	}
	for i, s := range t.strs {
		if o.strs[i] != s {
			return false
		}
	}
	return string(t.data) == string(o.data) && slices.EqualFunc(t.items, o.items, (*Tensor).Equal)
}

// String describes the tensor by type and shape, such as f32[1,3,224,224], and
// sequence<f32>[2] for a list.
func (t *Tensor) String() string {
	if t == nil {
		return "none"
	}
	s := make([]string, len(t.shape))
	for i, d := range t.shape {
		s[i] = fmt.Sprint(d)
	}
	return t.dtype.String() + "[" + strings.Join(s, ",") + "]"
}

// Strides returns the row-major strides of a shape, in elements.
func Strides(shape []int) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}
