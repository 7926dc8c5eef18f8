package tensor

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	"spc/internal/atomicfile"
	"spc/internal/filetype"
	"spc/internal/regular"
	"spc/ir/onnx/onnxpb"
)

// External reads size bytes at an offset of the file that a tensor names as the
// place of its elements.
type External func(location string, offset int64, size int) ([]byte, error)

// FromProto returns the tensor that a TensorProto holds, of every element type
// and in every place that the format allows. Elements in raw_data are shared
// with the message, not copied, where their alignment allows it. No more is
// allocated than the message, or the external file, has bytes for. A nil
// external refuses elements stored elsewhere.
func FromProto(p *onnxpb.TensorProto, external External) (*Tensor, error) {
	if p == nil {
		return nil, errors.New("the tensor is missing")
	}
	dt := DType(p.GetDataType())
	if c := p.GetDataType(); c < 0 || c > math.MaxUint8 || !dt.Valid() {
		return nil, fmt.Errorf("unknown data type code %d", c)
	}
	if p.GetSegment() != nil {
		return nil, errors.New("the tensor is a segment of a larger one, want it whole")
	}
	shape := make([]int, len(p.GetDims()))
	for i, d := range p.GetDims() {
		shape[i] = int(d)
	}
	n, err := Elems(shape)
	if err != nil {
		return nil, err
	}
	raw := p.GetRawData()
	if p.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
		if dt == String {
			return nil, errors.New("strings in external data, want string_data")
		}
		if raw, err = readExternal(p, external); err != nil {
			return nil, err
		}
		return fromRaw(dt, shape, n, raw)
	}
	if len(raw) > 0 {
		return fromRaw(dt, shape, n, raw)
	}
	return fromFields(p, dt, shape, n)
}

// packedSize is the number of bytes of n elements in a file.
func packedSize(dt DType, n int) int {
	if bits := dt.Bits(); bits < 8 {
		return (n*bits + 7) / 8
	}
	return n * dt.Size()
}

func describe(dt DType, shape []int) string { return (&Tensor{dtype: dt, shape: shape}).String() }

// Extent says where the elements of a tensor lie that are in external data: in which file, from which byte on, and how many bytes
// they have.
func Extent(p *onnxpb.TensorProto) (location string, offset int64, size int, err error) {
	shape := make([]int, len(p.GetDims()))
	for i, d := range p.GetDims() {
		shape[i] = int(d)
	}
	n, err := Elems(shape)
	if err != nil {
		return "", 0, 0, err
	}
	size = packedSize(DType(p.GetDataType()), n)
	for _, e := range p.GetExternalData() {
		switch e.GetKey() {
		case "location":
			location = e.GetValue()
		case "offset":
			if offset, err = strconv.ParseInt(e.GetValue(), 10, 64); err != nil || offset < 0 {
				return "", 0, 0, fmt.Errorf("external data: offset %q, want a number from 0", e.GetValue())
			}
		case "length":
			n, err := strconv.ParseInt(e.GetValue(), 10, 64)
			if err != nil || n != int64(size) {
				return "", 0, 0, fmt.Errorf("external data: length %q, want %d for its type and shape", e.GetValue(), size)
			}
		}
	}
	if location == "" {
		return "", 0, 0, errors.New("external data: no location")
	}
	return location, offset, size, nil
}

// readExternal reads the elements of a tensor that are in external data.
func readExternal(p *onnxpb.TensorProto, external External) ([]byte, error) {
	if external == nil {
		return nil, errors.New("the elements are in external data, want them in the file")
	}
	location, offset, size, err := Extent(p)
	if err != nil {
		return nil, err
	}
	return external(location, offset, size)
}

// fromRaw makes a tensor of little-endian elements as files pack them.
func fromRaw(dt DType, shape []int, n int, raw []byte) (*Tensor, error) {
	if dt == String {
		return nil, errors.New("strings in raw_data, want string_data")
	}
	if want := packedSize(dt, n); len(raw) != want {
		return nil, fmt.Errorf("%d bytes of elements, want %d for %s", len(raw), want, describe(dt, shape))
	}
	switch bits := dt.Bits(); {
	case bits < 8:
		t := New(dt, shape...)
		unpack(t.data, raw, bits)
		return t, nil
	case dt == Bool:
		return FromBytes(dt, shape, boolBytes(raw))
	}
	return FromBytes(dt, shape, raw)
}

// unpack spreads elements of 2 or 4 bits, low bits first, to a byte each.
func unpack(dst, src []byte, bits int) {
	per, mask := 8/bits, byte(1<<bits-1)
	for i := range dst {
		dst[i] = src[i/per] >> (i % per * bits) & mask
	}
}

// pack is the inverse of unpack.
func pack(src []byte, bits int) []byte {
	per, mask := 8/bits, byte(1<<bits-1)
	dst := make([]byte, (len(src)+per-1)/per)
	for i, v := range src {
		dst[i/per] |= v & mask << (i % per * bits)
	}
	return dst
}

// boolBytes returns the bytes with every value above 1 made 1, in a copy if
// there is any.
func boolBytes(raw []byte) []byte {
	for i, b := range raw {
		if b > 1 {
			c := append([]byte{}, raw...)
			for j := i; j < len(c); j++ {
				c[j] = min(c[j], 1)
			}
			return c
		}
	}
	return raw
}

// fromFields makes a tensor from the typed field that belongs to its type.
func fromFields(p *onnxpb.TensorProto, dt DType, shape []int, n int) (*Tensor, error) {
	want := func(field string, have, want int) error {
		if have == want {
			return nil
		}
		return fmt.Errorf("%d elements in %s, want %d for %s", have, field, want, describe(dt, shape))
	}
	switch dt {
	case String:
		if err := want("string_data", len(p.GetStringData()), n); err != nil {
			return nil, err
		}
		t := New(dt, shape...)
		for i, s := range p.GetStringData() {
			t.strs[i] = string(s)
		}
		return t, nil
	case F32:
		return share(p.GetFloatData(), dt, shape, want("float_data", len(p.GetFloatData()), n))
	case C64:
		return share(p.GetFloatData(), dt, shape, want("float_data", len(p.GetFloatData()), 2*n))
	case F64:
		return share(p.GetDoubleData(), dt, shape, want("double_data", len(p.GetDoubleData()), n))
	case C128:
		return share(p.GetDoubleData(), dt, shape, want("double_data", len(p.GetDoubleData()), 2*n))
	case I64:
		return share(p.GetInt64Data(), dt, shape, want("int64_data", len(p.GetInt64Data()), n))
	case U64:
		return share(p.GetUint64Data(), dt, shape, want("uint64_data", len(p.GetUint64Data()), n))
	case I32:
		return share(p.GetInt32Data(), dt, shape, want("int32_data", len(p.GetInt32Data()), n))
	case U32:
		if err := want("uint64_data", len(p.GetUint64Data()), n); err != nil {
			return nil, err
		}
		t := New(dt, shape...)
		for i, v := range p.GetUint64Data() {
			if v > math.MaxUint32 {
				return nil, fmt.Errorf("element %d is %d, out of the range of u32", i, v)
			}
			view[uint32](t)[i] = uint32(v)
		}
		return t, nil
	}
	return fromInt32s(p.GetInt32Data(), dt, shape, n)
}

// share wraps the elements of a typed field without copying them.
func share[T Elem](s []T, dt DType, shape []int, err error) (*Tensor, error) {
	if err != nil {
		return nil, err
	}
	return &Tensor{dtype: dt, shape: shape, data: bytesOf(s)}, nil
}

// fromInt32s takes int32_data, which holds an element each, or for types of less
// than a byte the bytes that they are packed in.
func fromInt32s(src []int32, dt DType, shape []int, n int) (*Tensor, error) {
	bits := dt.Bits()
	count := n
	if bits < 8 {
		count = packedSize(dt, n)
		bits = 8
	}
	if len(src) != count {
		return nil, fmt.Errorf("%d elements in int32_data, want %d for %s", len(src), count, describe(dt, shape))
	}
	for i, v := range src {
		if dt != Bool && (int(v) < -1<<(bits-1) || int(v) >= 1<<bits) {
			return nil, fmt.Errorf("element %d is %d, out of the range of %v", i, v, dt)
		}
	}
	t := New(dt, shape...)
	switch {
	case dt == Bool:
		for i, v := range src {
			if v != 0 {
				t.data[i] = 1
			}
		}
	case dt.Bits() < 8:
		raw := make([]byte, len(src))
		widen(raw, src)
		unpack(t.data, raw, dt.Bits())
	case bits == 8:
		widen(t.data, src)
	default:
		widen(view[uint16](t), src)
	}
	return t, nil
}

// ToProto returns the message that holds t, which shares its elements with the
// message except where files pack them.
func (t *Tensor) ToProto(name string) *onnxpb.TensorProto {
	p := &onnxpb.TensorProto{Name: name, DataType: int32(t.dtype)}
	for _, d := range t.shape {
		p.Dims = append(p.Dims, int64(d))
	}
	switch bits := t.dtype.Bits(); {
	case t.dtype == String:
		for _, s := range t.strs {
			p.StringData = append(p.StringData, []byte(s))
		}
	case bits < 8:
		p.RawData = pack(t.data, bits)
	default:
		p.RawData = t.data
	}
	return p
}

// ReadTensorProto reads a file that holds one TensorProto and returns its tensor
// and its name.
func ReadTensorProto(path string) (t *Tensor, name string, err error) {
	b, err := regular.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	t, name, err = DecodeTensorProto(b)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return t, name, nil
}

// DecodeTensorProto is ReadTensorProto for a file's bytes.
func DecodeTensorProto(b []byte) (t *Tensor, name string, err error) {
	p := new(onnxpb.TensorProto)
	if err := proto.Unmarshal(b, p); err != nil {
		if what := filetype.Instead(b[:min(len(b), filetype.Bytes)]); what != "" {
			return nil, "", fmt.Errorf("no TensorProto%s", what)
		}
		return nil, "", fmt.Errorf("no TensorProto: %w", err)
	}
	t, err = FromProto(p, nil)
	return t, p.GetName(), err
}

// WriteTensorProto writes t, under a name that may be empty, to a file that holds
// one TensorProto. The file appears whole or not at all.
func WriteTensorProto(path, name string, t *Tensor) error {
	return atomicfile.Write(path, func(w io.Writer) error { return EncodeTensorProto(w, name, t) })
}

// EncodeTensorProto is WriteTensorProto to a stream.
func EncodeTensorProto(w io.Writer, name string, t *Tensor) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(t.ToProto(name))
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
