package onnx

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// maxNesting bounds how deep messages may nest: a subgraph in a node takes three
// levels, a nested type two.
const maxNesting = 4 * maxDepth

var unmarshal = proto.UnmarshalOptions{Merge: true, RecursionLimit: maxNesting}

// modelGraph is the field number of ModelProto.graph.
const modelGraph = 7

// decode reads a model, the graph field by field, so that only one of its nodes
// or initializers is held twice at a time. It calls done, if not nil, with the
// number of leading bytes that it will not look at again.
func decode(data []byte, done func(n int)) (*onnxpb.ModelProto, error) {
	m := new(onnxpb.ModelProto)
	err := eachField(data, "model", func(num protowire.Number, at int, field []byte) error {
		payload, n := protowire.ConsumeBytes(field[protowire.SizeTag(num):])
		if num != modelGraph || n < 0 {
			return merge(field, m, num, at)
		}
		if m.Graph == nil {
			m.Graph = new(onnxpb.GraphProto)
		}
		at += len(field) - len(payload)
		return eachField(payload, "graph", func(num protowire.Number, sub int, field []byte) error {
			if done != nil {
				done(at + sub)
			}
			return merge(field, m.Graph, num, at+sub)
		})
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// merge reads the bytes of one field into m.
func merge(field []byte, m proto.Message, num protowire.Number, at int) error {
	err := unmarshal.Unmarshal(field, m)
	if err == nil {
		return nil
	}
	d := m.ProtoReflect().Descriptor()
	name := fmt.Sprintf("field %d", num)
	if f := d.Fields().ByNumber(num); f != nil {
		name = string(f.Name())
	}
	return corrupt("the %s.%s at byte %d is damaged: %w", d.Name(), name, at, err)
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
