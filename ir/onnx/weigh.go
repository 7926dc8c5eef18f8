package onnx

import (
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"spc/ir/onnx/onnxpb"
)

// A message of two bytes in a file takes hundreds in memory. Real models stay
// below 25 times their size; a field that would take more than so many times its
// size, beyond a free allowance for the file, is refused before it is decoded.
const (
	weightFactor = 32
	weightFree   = 1 << 20
)

// messageSize holds the size in memory of every message below ModelProto, the
// pointer to it included.
var messageSize = func() map[protoreflect.FullName]int {
	sizes := map[protoreflect.FullName]int{}
	var visit func(d protoreflect.MessageDescriptor)
	visit = func(d protoreflect.MessageDescriptor) {
		if _, seen := sizes[d.FullName()]; seen {
			return
		}
		t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			panic(err) // the generated code registers its messages
		}
		sizes[d.FullName()] = int(reflect.TypeOf(t.Zero().Interface()).Elem().Size()) + 8
		for i := range d.Fields().Len() {
			if m := d.Fields().Get(i).Message(); m != nil {
				visit(m)
			}
		}
	}
	visit(new(onnxpb.ModelProto).ProtoReflect().Descriptor())
	return sizes
}()

// weigh returns the memory that the messages in one, in its wire form, take, and
// whether they nest more than depth deep. What is malformed weighs nothing:
// decoding reports it.
func weigh(b []byte, d protoreflect.MessageDescriptor, depth int) (size int, deep bool) {
	if depth < 0 {
		return 0, true
	}
	size = messageSize[d.FullName()]
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return size, false
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return size, false
		}
		if f := d.Fields().ByNumber(num); typ == protowire.BytesType && f != nil && f.Message() != nil {
			sub, _ := protowire.ConsumeBytes(b[n : n+m])
			s, deep := weigh(sub, f.Message(), depth-1)
			if deep {
				return size, true
			}
			size += s
		}
		b = b[n+m:]
	}
	return size, false
}
