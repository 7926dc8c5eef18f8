package ir

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"spc/ir/tensor"
)

// An operator's attributes are the exported fields of its struct with a tag
// attr:"name" or attr:"name,default". A field is of one of the types
//
//	int, float32, string, bool, tensor.DType, []int, []float32, []string,
//	*int, *float32, *tensor.Tensor, *Graph
//
// where a nil pointer or slice says that the attribute is absent. A bool is an
// ONNX int, and a tensor.DType an ONNX data type code.

// Attr is one attribute.
type Attr struct {
	Name  string
	Value any // of one of the field types above, pointers to numbers dereferenced
}

type field struct {
	name, def string
	hasDef    bool
	old       string
	since     int
	required  bool
	value     reflect.Value
}

func fields(owner any) []field {
	v := reflect.ValueOf(owner)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	var out []field
	for _, f := range reflect.VisibleFields(v.Elem().Type()) {
		tag, ok := f.Tag.Lookup("attr")
		if !ok {
			continue
		}
		name, def, hasDef := strings.Cut(tag, ",")
		since, _ := strconv.Atoi(f.Tag.Get("since"))
		_, required := f.Tag.Lookup("required")
		out = append(out, field{name, def, hasDef, f.Tag.Get("old"), since, required, v.Elem().FieldByIndex(f.Index)})
	}
	return out
}

// SetDefaults sets the attributes of an operator, or of another pointer to a struct with such tags, to the defaults of
// their tags.
func SetDefaults(owner any) {
	for _, f := range fields(owner) {
		if !f.hasDef {
			continue
		}
		if err := f.setText(f.def); err != nil {
			panic(fmt.Sprintf("%T: default of attribute %s: %v", owner, f.name, err))
		}
	}
}

func (f field) setText(s string) error {
	switch f.value.Interface().(type) {
	case int, bool:
		n, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		return f.set(n)
	case tensor.DType:
		d, err := tensor.ParseDType(s)
		if err != nil {
			return err
		}
		return f.set(int(d))
	case float32:
		x, err := strconv.ParseFloat(s, 32)
		if err != nil {
			return err
		}
		return f.set(float32(x))
	case string:
		return f.set(s)
	}
	return fmt.Errorf("no text form for %v", f.value.Type())
}

// set stores v: an int, float32, string, []int, []float32, []string, tensor or
// graph, converted to the field's type.
func (f field) set(v any) error {
	var ok bool
	var n int
	var x float32
	switch p := f.value.Addr().Interface().(type) {
	case *int:
		ok = assign(p, v)
	case *bool:
		if ok = assign(&n, v); ok {
			*p = n != 0
		}
	case *tensor.DType:
		if ok = assign(&n, v); ok {
			if n < 0 || n > 255 || !tensor.DType(n).Valid() {
				return fmt.Errorf("unknown data type code %d", n)
			}
			*p = tensor.DType(n)
		}
	case *float32:
		ok = assign(p, floats(v))
	case *string:
		ok = assign(p, v)
	case **int:
		if ok = assign(&n, v); ok {
			*p = &n
		}
	case **float32:
		if ok = assign(&x, floats(v)); ok {
			*p = &x
		}
	case *[]int:
		if ok = assign(p, v); !ok && empty(v) {
			*p, ok = []int{}, true
		}
	case *[]float32:
		ok = assign(p, floats(v))
	case *[]string:
		if ok = assign(p, v); !ok && empty(v) {
			*p, ok = []string{}, true
		}
	case **tensor.Tensor:
		ok = assign(p, v)
	case **Graph:
		ok = assign(p, v)
	}
	if !ok {
		return fmt.Errorf("has type %T, want %v", v, f.value.Type())
	}
	return nil
}

// assign stores v where it has the type that is wanted, and reports whether it has.
func assign[T any](p *T, v any) bool {
	x, ok := v.(T)
	if ok {
		*p = x
	}
	return ok
}

// floats makes floats of ints, as which a text writes whole numbers, and leaves the rest.
func floats(v any) any {
	switch x := v.(type) {
	case int:
		return float32(x)
	case []int:
		list := make([]float32, len(x))
		for i, n := range x {
			list[i] = float32(n)
		}
		return list
	}
	return v
}

// empty reports whether v is a list without elements, whose type a text or a
// protobuf may not tell.
func empty(v any) bool {
	switch s := v.(type) {
	case []int:
		return len(s) == 0
	case []float32:
		return len(s) == 0
	case []string:
		return len(s) == 0
	}
	return false
}

// SetAttr sets one attribute of an operator, or of what SetDefaults takes; it is an error when there is none of that name,
// or one of another type.
func SetAttr(owner any, name string, v any) error {
	for _, f := range fields(owner) {
		if f.name == name {
			if err := f.set(v); err != nil {
				return fmt.Errorf("attribute %s: %w", name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("unknown attribute %s", name)
}

// Attrs returns the attributes that are present and differ from their defaults,
// in the order of the struct. Bools and data types are ints.
func Attrs(op Op) []Attr {
	var out []Attr
	for _, f := range fields(op) {
		fresh := reflect.New(f.value.Type()).Elem()
		if f.hasDef {
			d := f
			d.value = fresh
			if err := d.setText(f.def); err != nil {
				panic(fmt.Sprintf("%s: default of attribute %s: %v", op.Kind(), f.name, err))
			}
		}
		if k := f.value.Kind(); k == reflect.Slice && f.value.IsNil() || k == reflect.Pointer && f.value.IsNil() {
			continue
		} else if k != reflect.Slice && k != reflect.Pointer && f.value.Equal(fresh) {
			continue
		}
		out = append(out, Attr{f.name, f.plain()})
	}
	return out
}

// OldAttr reports whether an attribute says what only old operator sets could say, by the tag
// old:"N" of its field: from set N on there is no such attribute, or, with old:"N,value", no such value.
func OldAttr(op Op, name string, value any) bool {
	for _, f := range fields(op) {
		if f.name == name && f.old != "" {
			_, only, some := strings.Cut(f.old, ",")
			return !some || value == only
		}
	}
	return false
}

// AttrSince returns the operator set that brought an attribute to its operator, by the tag since of its field, 0 where
// the tag is missing: of operators whose form onnx.Export takes for older, those that are as old.
func AttrSince(op Op, name string) int {
	for _, f := range fields(op) {
		if f.name == name {
			return f.since
		}
	}
	return 0
}

// RequiredAttrs returns the integers without a default that are zero, the texts without one that are empty, and integers
// with the tag required that have their default, which ONNX does not know. Attrs leaves them out, but ONNX wants them.
func RequiredAttrs(op Op) []Attr {
	var out []Attr
	for _, f := range fields(op) {
		v := f.value.Interface()
		n, isInt := v.(int)
		if !f.hasDef && (v == 0 || v == "") || f.required && isInt && strconv.Itoa(n) == f.def {
			out = append(out, Attr{f.name, v})
		}
	}
	return out
}

func (f field) plain() any {
	switch v := f.value.Interface().(type) {
	case bool:
		if v {
			return 1
		}
		return 0
	case tensor.DType:
		return int(v)
	case *int:
		return *v
	case *float32:
		return *v
	default:
		return v
	}
}

// CloneOp returns a copy of op whose attributes may be changed. Slices, tensors
// and subgraphs are shared.
func CloneOp(op Op) Op {
	v := reflect.New(reflect.TypeOf(op).Elem())
	v.Elem().Set(reflect.ValueOf(op).Elem())
	return v.Interface().(Op)
}

// AttrOf returns the attribute of the given name, nil where it is absent or the
// operator has none of that name. Bools and data types are ints.
func AttrOf(op Op, name string) any {
	for _, f := range fields(op) {
		if f.name != name {
			continue
		}
		if k := f.value.Kind(); (k == reflect.Slice || k == reflect.Pointer) && f.value.IsNil() {
			return nil
		}
		return f.plain()
	}
	return nil
}
