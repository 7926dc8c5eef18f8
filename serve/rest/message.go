package rest

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// message answers with a message of gRPC as JSON: with the names of its fields, those that are not set among them, but for those of a oneof, and
// 64-bit integers as numbers, which perf_analyzer wants. (protojson writes these as strings.)
func message(w http.ResponseWriter, r *http.Request, m proto.Message) error {
	send(w, r, http.StatusOK, appendMessage(nil, m.ProtoReflect()))
	return nil
}

// list answers with one field of a message, a list.
func list(w http.ResponseWriter, r *http.Request, m protoreflect.Message, field protoreflect.Name) error {
	f := m.Descriptor().Fields().ByName(field)
	send(w, r, http.StatusOK, appendField(nil, f, m.Get(f)))
	return nil
}

func appendMessage(b []byte, m protoreflect.Message) []byte {
	b = append(b, '{')
	fields := m.Descriptor().Fields()
	any := false
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) && (f.ContainingOneof() != nil || f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap()) {
			continue
		}
		if any {
			b = append(b, ',')
		}
		any = true
		b = append(appendString(b, string(f.Name())), ':')
		b = appendField(b, f, m.Get(f))
	}
	return append(b, '}')
}

func appendField(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch {
	case f.IsList():
		b = append(b, '[')
		for i := range v.List().Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, f, v.List().Get(i))
		}
		return append(b, ']')
	case f.IsMap():
		var keys []protoreflect.MapKey
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k)
			return true
		})
		slices.SortFunc(keys, func(x, y protoreflect.MapKey) int { return cmp.Compare(x.String(), y.String()) })
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k.String()), ':')
			b = appendValue(b, f.MapValue(), v.Map().Get(k))
		}
		return append(b, '}')
	}
	return appendValue(b, f, v)
}

func appendValue(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return appendMessage(b, v.Message())
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return appendString(b, string(e.Name()))
		}
		return strconv.AppendInt(b, int64(v.Enum()), 10)
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return strconv.AppendUint(b, v.Uint(), 10)
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return strconv.AppendInt(b, v.Int(), 10)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if x := v.Float(); !math.IsNaN(x) && !math.IsInf(x, 0) {
			return strconv.AppendFloat(b, x, 'g', -1, 64)
		}
		return append(b, "null"...)
	}
	return appendString(b, v.String())
}

func appendString(b []byte, s string) []byte {
	q, err := json.Marshal(s) // of a string there is no error
	if err != nil {
		panic(err)
	}
	return append(b, q...)
}
