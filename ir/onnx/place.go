package onnx

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"spc/ir/onnx/contrib"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// place says where in a model a message lies: the fields that lead to it from the model on, each with the number of those of its kind
// before it. It is the same in the file and in the messages that are decoded from it.
type place string

// in is the place of field i of a number in the message at p; those that are no lists are all field 0.
func (p place) in(num protowire.Number, i int) place {
	return place(fmt.Sprintf("%s/%d.%d", p, num, i))
}

// message is a kind of message that tensors lie in.
type message int

// The messages that tensors lie in.
const (
	modelMessage message = iota + 1
	graphMessage
	functionMessage
	nodeMessage
	attributeMessage
	sparseMessage
	trainingMessage
	tensorMessage
)

// inner lists, by their number, the fields of messages in which tensors lie, and which of these are lists.
var inner = map[message]map[protowire.Number]struct {
	kind message
	list bool
}{
	modelMessage:     {modelGraph: {graphMessage, false}, 20: {trainingMessage, true}, 25: {functionMessage, true}},
	graphMessage:     {graphNode: {nodeMessage, true}, graphInitializer: {tensorMessage, true}, 15: {sparseMessage, true}},
	functionMessage:  {7: {nodeMessage, true}, 11: {attributeMessage, true}},
	nodeMessage:      {5: {attributeMessage, true}},
	attributeMessage: {5: {tensorMessage, false}, 6: {graphMessage, false}, 10: {tensorMessage, true}, 11: {graphMessage, true}, 22: {sparseMessage, false}, 23: {sparseMessage, true}},
	sparseMessage:    {1: {tensorMessage, false}, 2: {tensorMessage, false}},
	trainingMessage:  {1: {graphMessage, false}, 2: {graphMessage, false}},
}

// places notes the places of the tensors in a message.
func places(m protoreflect.Message, kind message, at place, note map[protoreflect.ProtoMessage]place) {
	if kind == tensorMessage {
		note[m.Interface()] = at
		return
	}
	fields := m.Descriptor().Fields()
	for num, in := range inner[kind] {
		f := fields.ByNumber(num)
		switch {
		case !m.Has(f):
		case in.list:
			list := m.Get(f).List()
			for i := range list.Len() {
				places(list.Get(i).Message(), in.kind, at.in(num, i), note)
			}
		default:
			places(m.Get(f).Message(), in.kind, at.in(num, 0), note)
		}
	}
}

// trace notes of the tensors that were made where they lie.
func (im *importer) trace(at map[protoreflect.ProtoMessage]place) map[*tensor.Tensor]place {
	out := map[*tensor.Tensor]place{}
	for m, t := range im.tensors {
		if p, ok := m.(*onnxpb.TensorProto); ok && t != nil && at[p] != "" {
			out[t] = at[p]
		}
	}
	return out
}

// Holds reports whether a constant of the graph that was imported with Options.Places is a tensor that the file holds as it is.
func (info *Info) Holds(t *tensor.Tensor) bool { return info.places[t] != "" }

// Packing says how a constant lies in a tensor that the file holds, from which it was unpacked; nil where it was not.
func (info *Info) Packing(t *tensor.Tensor) *contrib.Packing { return info.packings[t] }
