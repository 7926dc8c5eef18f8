package onnxgo

import (
	"fmt"
	"reflect"
	"slices"

	gorgonia "gorgonia.org/tensor"

	"spc/ir"
	"spc/ir/tensor"
)

// elements converts the elements of one Go type. Slices share their storage.
type elements struct {
	dtype tensor.DType
	of    reflect.Type
	wrap  func(data any) *tensor.Tensor // a slice, or an element where gorgonia sees a scalar
	slice func(t *tensor.Tensor) any
}

// types lists the element types that both sides have. Where two stand for the
// same, the first is what comes back.
var types = []elements{
	number[float32](), number[float64](),
	number[int8](), number[int16](), number[int32](), number[int64](),
	number[uint8](), number[uint16](), number[uint32](), number[uint64](),
	number[bool](), number[complex64](), number[complex128](),
	{
		tensor.String, reflect.TypeFor[string](),
		func(data any) *tensor.Tensor { s := list[string](data); return tensor.FromStrings(s, len(s)) },
		func(t *tensor.Tensor) any { return t.Strings() },
	},
	{
		tensor.I64, reflect.TypeFor[int](),
		func(data any) *tensor.Tensor { return tensor.Ints(list[int](data)...) },
		nil,
	},
}

func number[T tensor.Elem]() elements {
	return elements{
		tensor.DTypeOf[T](), reflect.TypeFor[T](),
		func(data any) *tensor.Tensor { s := list[T](data); return tensor.From(s, len(s)) },
		func(t *tensor.Tensor) any {
			if t.Len() == 0 {
				return []T{} // gorgonia takes no nil
			}
			return tensor.Data[T](t)
		},
	}
}

// list returns what gorgonia's Data returns as a slice.
func list[T any](data any) []T {
	if v, ok := data.(T); ok {
		return []T{v}
	}
	return data.([]T)
}

// fromGorgonia returns t, which must be dense and without a mask, as a tensor that
// shares its storage where that is row-major.
func fromGorgonia(t gorgonia.Tensor) (*tensor.Tensor, error) {
	d, ok := t.(*gorgonia.Dense)
	if !ok || len(d.Mask()) > 0 || !d.IsNativelyAccessible() {
		return nil, fmt.Errorf("a tensor of type %T, want *tensor.Dense in memory without a mask: %w", t, ir.ErrUnsupported)
	}
	i := slices.IndexFunc(types, func(e elements) bool { return e.of == d.Dtype().Type })
	if i < 0 {
		return nil, fmt.Errorf("elements of type %v: %w", d.Dtype(), ir.ErrUnsupported)
	}
	shape, strides := []int(d.Shape()), d.Strides()
	if slices.Contains(shape, 0) { // of which Data panics
		return tensor.New(types[i].dtype, shape...), nil
	}
	flat := types[i].wrap(d.Data())
	n, err := tensor.Elems(shape)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	if n == flat.Len() && (n <= 1 || slices.Equal(strides, tensor.Strides(shape))) {
		return flat.Reshape(shape...), nil
	}
	last := 0
	for i, s := range shape {
		if i < len(strides) {
			last += (s - 1) * strides[i]
		}
	}
	if len(strides) != len(shape) || last >= flat.Len() {
		return nil, fmt.Errorf("%d elements with strides %v for shape %v: %w", flat.Len(), strides, shape, ir.ErrInvalid)
	}
	out := tensor.New(flat.DType(), shape...)
	tensor.Copy(out, flat, shape, 0, tensor.Strides(shape), 0, strides)
	return out, nil
}

// exactly returns t with the element type that the model declares, if it declares
// one, and refuses to change a number.
func exactly(t *tensor.Tensor, declared gorgonia.Dtype) (*tensor.Tensor, error) {
	i := slices.IndexFunc(types, func(e elements) bool { return e.of == declared.Type })
	if i < 0 || types[i].dtype == t.DType() {
		return t, nil
	}
	numeric := func(d tensor.DType) bool { return d.IsFloat() || d.IsInt() }
	if want := types[i].dtype; numeric(want) && numeric(t.DType()) {
		if c := t.To(want); c.To(t.DType()).Equal(t) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%v, want elements of type %v: %w", t, types[i].dtype, ir.ErrInvalid)
}

// toGorgonia returns t as a tensor that shares its storage.
func toGorgonia(t *tensor.Tensor) (gorgonia.Tensor, error) {
	i := slices.IndexFunc(types, func(e elements) bool { return e.dtype == t.DType() })
	if i < 0 {
		return nil, fmt.Errorf("%v, a type that gorgonia's tensors do not have: %w", t, ir.ErrUnsupported)
	}
	return gorgonia.New(gorgonia.WithShape(t.Shape()...), gorgonia.WithBacking(types[i].slice(t))), nil
}
