package oip

import (
	"encoding/binary"
	"math"

	"spc/ir/tensor"
)

// fromRaw makes a tensor of little-endian elements, or of strings that each follow their length
// in four bytes. It shares the bytes of elements that are aligned; strings share one copy. spend
// is asked before memory is taken.
func fromRaw(raw []byte, d datatype, shape []int, spend func(int) error) (*tensor.Tensor, error) {
	n, err := elemsOf(shape)
	if err != nil {
		return nil, err
	}
	if d.dtype == tensor.String {
		return rawStrings(raw, n, shape, spend)
	}
	if size := n * d.dtype.Size(); len(raw) != size {
		return nil, Errorf(Invalid, "shape %s of %s has %d bytes, %d were sent", shapeText(shape), d.name, size, len(raw))
	}
	if err := spend(len(raw)); err != nil {
		return nil, err
	}
	t, err := tensor.FromBytes(d.dtype, shape, raw)
	if err != nil {
		return nil, Errorf(Invalid, "%w", err)
	}
	return t, nil
}

func rawStrings(raw []byte, n int, shape []int, spend func(int) error) (*tensor.Tensor, error) {
	if n > len(raw)/4 {
		return nil, Errorf(Invalid, "shape %s of BYTES has %d elements of at least 4 bytes, %d bytes were sent", shapeText(shape), n, len(raw))
	}
	if err := spend(n*stringHeader + len(raw)); err != nil {
		return nil, err
	}
	all := string(raw)
	list := make([]string, n)
	at := 0
	for i := range list {
		if len(raw)-at < 4 {
			return nil, Errorf(Invalid, "shape %s has %d elements, the %d bytes sent have %d", shapeText(shape), n, len(raw), i)
		}
		size := uint64(binary.LittleEndian.Uint32(raw[at:]))
		if at += 4; size > uint64(len(raw)-at) {
			return nil, Errorf(Invalid, "element %d has %d bytes, %d are left", i, size, len(raw)-at)
		}
		list[i] = all[at : at+int(size)]
		at += int(size)
	}
	if at < len(raw) {
		return nil, Errorf(Invalid, "%d bytes are left behind the %d elements of shape %s", len(raw)-at, n, shapeText(shape))
	}
	return tensor.FromStrings(list, shape...), nil
}

// toRaw returns the bytes of a tensor as fromRaw takes them, shared with it where it is not of
// strings. They are not nil.
func toRaw(t *tensor.Tensor) ([]byte, error) {
	if t.DType() != tensor.String {
		if t.Len() == 0 {
			return []byte{}, nil
		}
		return t.Bytes(), nil
	}
	size := 0
	for _, s := range t.Strings() {
		if uint64(len(s)) > math.MaxUint32 {
			return nil, Errorf(Unsupported, "an element of %d bytes, want at most %d", len(s), uint32(math.MaxUint32))
		}
		size += 4 + len(s)
	}
	raw := make([]byte, 0, size)
	for _, s := range t.Strings() {
		raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(s))), s...)
	}
	return raw, nil
}
