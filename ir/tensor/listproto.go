package tensor

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"spc/internal/atomicfile"
	"spc/internal/regular"
	"spc/ir/onnx/onnxpb"
)

// ReadProto reads a file that holds a TensorProto, or, for types of lists, a
// SequenceProto or an OptionalProto. What it returns is of the element type dt, which an
// empty list does not tell, or a tensor of any.
func ReadProto(path string, dt DType) (*Tensor, error) {
	b, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := DecodeProto(b, dt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// DecodeProto is ReadProto for a file's bytes.
func DecodeProto(b []byte, dt DType) (*Tensor, error) {
	switch {
	case dt.IsOptional():
		return decodeOptional(b, dt)
	case dt.IsSequence():
		return decodeSequence(b, dt)
	}
	t, _, err := DecodeTensorProto(b)
	return t, err
}

// The numbers that SequenceProto and OptionalProto give both their fields and, but for
// the difference, the types of their elements.
const (
	fieldName     = 1
	fieldElemType = 2
	fieldTensor   = 3
	fieldSequence = 5

	elemTensor   = 1
	elemSequence = 3
)

// maxItems bounds the elements of a sequence in a file: each takes more memory than it
// needs there.
const maxItems = 1 << 20

// listFields calls value for each element in a SequenceProto or an OptionalProto, with
// the number of its field, and returns the code of the elements' type.
func listFields(b []byte, message string, value func(field protowire.Number, b []byte) error) (elem uint64, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, fmt.Errorf("no %s: %w", message, protowire.ParseError(n))
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return 0, fmt.Errorf("no %s: %w", message, protowire.ParseError(n))
		}
		switch {
		case num == fieldElemType && typ == protowire.VarintType:
			elem, _ = protowire.ConsumeVarint(b)
		case num > fieldElemType && typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(b)
			if err := value(num, v); err != nil {
				return 0, err
			}
		case num != fieldName || typ != protowire.BytesType:
			return 0, fmt.Errorf("no %s: field %d of type %d", message, num, typ)
		}
		b = b[n:]
	}
	return elem, nil
}

func decodeSequence(b []byte, dt DType) (*Tensor, error) {
	var items []*Tensor
	elem, err := listFields(b, "SequenceProto", func(field protowire.Number, b []byte) error {
		if field != fieldTensor {
			return errors.New("a sequence of what is no tensor")
		}
		if len(items) == maxItems {
			return fmt.Errorf("a sequence of more than %d tensors", maxItems)
		}
		t, _, err := DecodeTensorProto(b)
		if err == nil && t.dtype != dt.Elem() {
			err = fmt.Errorf("is %v, want %v", t, dt.Elem())
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", len(items), err)
		}
		items = append(items, t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if elem > elemTensor || elem == 0 && len(items) > 0 {
		return nil, errors.New("a sequence of what is no tensor")
	}
	return newList(dt, items), nil
}

func decodeOptional(b []byte, dt DType) (*Tensor, error) {
	var item *Tensor
	elem, err := listFields(b, "OptionalProto", func(field protowire.Number, b []byte) (err error) {
		switch {
		case item != nil:
			return errors.New("an optional of two elements")
		case field == fieldTensor && !dt.Elem().IsSequence():
			if item, _, err = DecodeTensorProto(b); err == nil && item.dtype != dt.Elem() {
				err = fmt.Errorf("the element is %v, want %v", item, dt.Elem())
			}
		case field == fieldSequence && dt.Elem().IsSequence():
			item, err = decodeSequence(b, dt.Elem())
		default:
			err = fmt.Errorf("an optional of something else, want %v", dt)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	want := uint64(0)
	switch {
	case item != nil && item.dtype.IsSequence():
		want = elemSequence
	case item != nil:
		want = elemTensor
	}
	if item != nil && elem != want || item == nil && elem > elemSequence {
		return nil, fmt.Errorf("an optional whose elements have the code %d, want %d", elem, want)
	}
	return NewOptional(dt.Elem(), item), nil
}

// WriteProto writes what EncodeProto does to a file, which appears whole or not at all.
func WriteProto(path, name string, t *Tensor) error {
	return atomicfile.Write(path, func(w io.Writer) error { return EncodeProto(w, name, t) })
}

// EncodeProto writes t, under a name that may be empty, as a TensorProto, a SequenceProto
// or an OptionalProto.
func EncodeProto(w io.Writer, name string, t *Tensor) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(t.message(name))
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// message returns the message that holds t.
func (t *Tensor) message(name string) proto.Message {
	switch {
	case t.dtype.IsSequence():
		return t.sequenceProto(name)
	case !t.dtype.IsOptional():
		return t.ToProto(name)
	case len(t.items) == 0:
		return &onnxpb.OptionalProto{Name: name}
	case t.items[0].dtype.IsSequence():
		return &onnxpb.OptionalProto{Name: name, ElemType: elemSequence, SequenceValue: t.items[0].sequenceProto("")}
	}
	return &onnxpb.OptionalProto{Name: name, ElemType: elemTensor, TensorValue: t.items[0].ToProto("")}
}

func (t *Tensor) sequenceProto(name string) *onnxpb.SequenceProto {
	p := &onnxpb.SequenceProto{Name: name, ElemType: elemTensor}
	for _, e := range t.items {
		p.TensorValues = append(p.TensorValues, e.ToProto(""))
	}
	return p
}
