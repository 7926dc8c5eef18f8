package onnx

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"spc/internal/filetype"
	"spc/ir/onnx/onnxpb"
)

// maxNesting bounds how deep messages may nest: a subgraph takes three levels.
const maxNesting = 4 * maxDepth

// modelGraph is the field number of ModelProto.graph.
const modelGraph = 7

// decoder reads a model field by field, its graph likewise, so that only one
// node or initializer is held twice at a time.
type decoder struct {
	left int         // bytes of memory that messages may still take
	done func(n int) // if not nil, told how many leading bytes are done with
}

// decode reads the wire form of a model.
func decode(data []byte, done func(n int)) (*onnxpb.ModelProto, error) {
	d := &decoder{weightFree, done}
	m := new(onnxpb.ModelProto)
	err := eachField(data, "model", func(num protowire.Number, at int, field []byte) error {
		payload, ok := bytesIn(field)
		if num != modelGraph || !ok {
			return d.merge(m, num, at, field)
		}
		if m.Graph == nil {
			m.Graph = new(onnxpb.GraphProto)
		}
		at += len(field) - len(payload)
		return eachField(payload, "graph", func(num protowire.Number, sub int, field []byte) error {
			return d.merge(m.Graph, num, at+sub, field)
		})
	})
	if err != nil || m.GetIrVersion() <= 0 {
		if other := notModel(data); other != nil {
			return nil, other
		}
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// notModel says what a file is that is no model, and not one that was damaged either: one
// that begins as other files do, or with a field that models lack. It returns nil where
// it may be a model.
func notModel(data []byte) error {
	head := data[:min(len(data), filetype.Bytes)]
	if len(head) == 0 {
		return corrupt("the file is empty, want an ONNX model")
	}
	if what := filetype.Instead(head); what != "" {
		return corrupt("not an ONNX file%s", what)
	}
	num, typ, n := protowire.ConsumeTag(head)
	f := (*onnxpb.ModelProto)(nil).ProtoReflect().Descriptor().Fields().ByNumber(num)
	if n < 0 || f == nil || (typ == protowire.VarintType) != (f.Kind() == protoreflect.Int64Kind) || typ != protowire.VarintType && typ != protowire.BytesType {
		return corrupt("not an ONNX file: it does not begin with a field of a model")
	}
	return nil
}

// merge reads one field of m, which begins at byte at of the file.
func (d *decoder) merge(m proto.Message, num protowire.Number, at int, field []byte) error {
	if d.done != nil {
		d.done(at)
	}
	desc := m.ProtoReflect().Descriptor()
	f := desc.Fields().ByNumber(num)
	if f == nil {
		return nil
	}
	size, deep := weigh(field, desc, maxNesting)
	d.left += weightFactor*len(field) - (size - messageSize[desc.FullName()])
	switch {
	case deep:
		return invalid("the %s.%s at byte %d nests messages more than %d deep", desc.Name(), f.Name(), at, maxNesting)
	case d.left < 0:
		return corrupt("the %s.%s at byte %d is made of more empty messages than a model has", desc.Name(), f.Name(), at)
	}
	if err := (proto.UnmarshalOptions{Merge: true, DiscardUnknown: true}).Unmarshal(field, m); err != nil {
		return corrupt("the %s.%s at byte %d is damaged: %w", desc.Name(), f.Name(), at, err)
	}
	return nil
}

// eachField calls f with the number, the place and the bytes, tag included, of
// each field of a message.
func eachField(data []byte, message string, f func(num protowire.Number, at int, field []byte) error) error {
	for at := 0; at < len(data); {
		num, _, n := protowire.ConsumeField(data[at:])
		if n < 0 {
			return corrupt("the %s breaks off or is damaged at byte %d of %d: %w", message, at, len(data), protowire.ParseError(n))
		}
		if err := f(num, at, data[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// bytesIn returns the content of a field that holds a message or bytes, and whether it holds such: decoding skips a field of another
// wire type than its own.
func bytesIn(field []byte) ([]byte, bool) {
	_, typ, n := protowire.ConsumeTag(field)
	if n < 0 || typ != protowire.BytesType {
		return nil, false
	}
	b, m := protowire.ConsumeBytes(field[n:])
	return b, m >= 0
}

// varintIn returns the content of a field that holds a varint, and whether it holds such.
func varintIn(field []byte) (uint64, bool) {
	_, typ, n := protowire.ConsumeTag(field)
	if n < 0 || typ != protowire.VarintType {
		return 0, false
	}
	v, m := protowire.ConsumeVarint(field[n:])
	return v, m >= 0
}
