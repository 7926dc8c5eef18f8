package tensor

import (
	"fmt"
	"slices"
)

// Sequences and optionals are tensors whose elements are tensors: a sequence of n has
// the shape [n], an optional [1], or [0] where it is absent. Their element types tell
// what they hold. Their elements belong to nobody: who has one must not write into it.
const (
	sequenceBit DType = 0x40
	optionalBit DType = 0x80
)

// SequenceOf returns the element type of sequences of tensors of the type elem.
func SequenceOf(elem DType) DType { return elem | sequenceBit }

// OptionalOf returns the element type of optionals of tensors, or sequences, of the type
// elem.
func OptionalOf(elem DType) DType { return elem | optionalBit }

// IsList reports whether d is the type of sequences or of optionals.
func (d DType) IsList() bool { return d >= sequenceBit }

// IsSequence reports whether d is the type of sequences.
func (d DType) IsSequence() bool { return d&(sequenceBit|optionalBit) == sequenceBit }

// IsOptional reports whether d is the type of optionals.
func (d DType) IsOptional() bool { return d&optionalBit != 0 }

// Elem returns what sequences or optionals of the type d hold.
func (d DType) Elem() DType {
	if d.IsOptional() {
		return d &^ optionalBit
	}
	return d &^ sequenceBit
}

// listName returns the text of the type of a list.
func (d DType) listName() string {
	if d.IsOptional() {
		return "optional<" + d.Elem().String() + ">"
	}
	return "sequence<" + d.Elem().String() + ">"
}

// NewSequence returns a sequence of tensors of the type elem, which it shares.
func NewSequence(elem DType, items ...*Tensor) *Tensor {
	return newList(SequenceOf(elem), items)
}

// NewOptional returns an optional that holds item, a tensor or a sequence of the type
// elem, or that is absent where item is nil.
func NewOptional(elem DType, item *Tensor) *Tensor {
	if item == nil {
		return newList(OptionalOf(elem), nil)
	}
	return newList(OptionalOf(elem), []*Tensor{item})
}

func newList(dt DType, items []*Tensor) *Tensor {
	for _, t := range items {
		if t.dtype != dt.Elem() {
			panic(fmt.Sprintf("tensor: %v in %v", t, dt))
		}
	}
	return &Tensor{dtype: dt, shape: []int{len(items)}, items: items}
}

// Items returns the elements of a sequence or an optional; the caller must not change the
// slice.
func (t *Tensor) Items() []*Tensor {
	if !t.dtype.IsList() {
		panic(fmt.Sprintf("tensor.Items of a %v tensor", t.dtype))
	}
	return t.items
}

// HeaderBytes is about what a tensor takes besides its elements.
const HeaderBytes = 256

// Memory is about the bytes that the elements take; strings count as their headers.
func (t *Tensor) Memory() int {
	n := len(t.data) + 16*len(t.strs)
	for _, e := range t.items {
		n += HeaderBytes + e.Memory()
	}
	return n
}

// Map returns a list with each element that is no list replaced by what f gives for it,
// and t itself where that changes nothing; of what is no list it returns f(t).
func (t *Tensor) Map(f func(*Tensor) *Tensor) *Tensor {
	if !t.dtype.IsList() {
		return f(t)
	}
	out := t
	for i, e := range t.items {
		m := e.Map(f)
		if m == e {
			continue
		}
		if out == t {
			c := *t
			c.items = slices.Clone(t.items)
			out = &c
		}
		out.items[i] = m
	}
	return out
}
