package oip

import (
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"spc/ir/tensor"
)

// Body is a message as REST carries it: JSON, and behind it the bytes of those tensors that are
// sent as such.
type Body struct {
	JSON   []byte
	Binary [][]byte // of each such tensor, in their order; shared with them
}

// Header returns what HeaderLength is to be, empty where the header is to be left out.
func (b *Body) Header() string {
	if len(b.Binary) == 0 {
		return ""
	}
	return strconv.Itoa(len(b.JSON))
}

// ContentType returns what the HTTP header Content-Type is to be.
func (b *Body) ContentType() string {
	if len(b.Binary) == 0 {
		return "application/json"
	}
	return "application/octet-stream"
}

// Len returns the number of bytes in all.
func (b *Body) Len() int64 {
	n := int64(len(b.JSON))
	for _, raw := range b.Binary {
		n += int64(len(raw))
	}
	return n
}

// WriteTo writes all of it; it may be called again.
func (b *Body) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b.JSON)
	total := int64(n)
	for i := 0; i < len(b.Binary) && err == nil; i++ {
		n, err = w.Write(b.Binary[i])
		total += int64(n)
	}
	return total, err
}

// Bytes returns all of it in one piece.
func (b *Body) Bytes() []byte { return slices.Concat(append([][]byte{b.JSON}, b.Binary...)...) }

// alignment is what the length of JSON is a multiple of where bytes follow: white space behind
// it has their reader find elements of any type aligned in a buffer that is.
const alignment = 8

// finish closes the message that JSON is, but for its last brace.
func (b *Body) finish() {
	b.JSON = append(b.JSON, '}')
	for len(b.Binary) > 0 && len(b.JSON)%alignment != 0 {
		b.JSON = append(b.JSON, ' ')
	}
}

// member writes a name and a string, if that is not empty.
func (b *Body) member(name, value string) error {
	if value == "" {
		return nil
	}
	b.name(name)
	return b.string(value)
}

// name writes the name of a member.
func (b *Body) name(name string) {
	if b.JSON[len(b.JSON)-1] != '{' {
		b.JSON = append(b.JSON, ',')
	}
	b.JSON = append(quoteJSON(b.JSON, name), ':')
}

func (b *Body) string(s string) error {
	if !utf8.ValidString(s) {
		return Errorf(Invalid, "%s is no UTF-8, which JSON must be", quote(s))
	}
	b.JSON = quoteJSON(b.JSON, s)
	return nil
}

// Body writes a request; inputs that are Binary follow the JSON.
func (r *Request) Body() (*Body, error) {
	b := &Body{JSON: []byte{'{'}}
	parameters := r.Parameters
	if r.BinaryOutput {
		parameters = parameters.with(outputsParameter, true)
	}
	err := b.head(r.ModelName, r.ModelVersion, r.ID, parameters)
	if err == nil {
		err = b.tensors("input", r.Inputs)
	}
	if err == nil && len(r.Outputs) > 0 {
		b.name("outputs")
		b.JSON = append(b.JSON, '[')
		for i, o := range r.Outputs {
			if i > 0 {
				b.JSON = append(b.JSON, ',')
			}
			if err = b.requested(o, r.BinaryOutput); err != nil {
				return nil, about("output", o.Name, err)
			}
		}
		b.JSON = append(b.JSON, ']')
	}
	if err != nil {
		return nil, err
	}
	b.finish()
	return b, nil
}

// Body writes a response; outputs that are Binary follow the JSON.
func (r *Response) Body() (*Body, error) {
	b := &Body{JSON: []byte{'{'}}
	err := b.head(r.ModelName, r.ModelVersion, r.ID, r.Parameters)
	if err == nil {
		err = b.tensors("output", r.Outputs)
	}
	if err != nil {
		return nil, err
	}
	b.finish()
	return b, nil
}

// head writes what requests and responses begin with.
func (b *Body) head(model, version, id string, parameters Parameters) error {
	if err := b.member("model_name", model); err != nil {
		return err
	}
	if err := b.member("model_version", version); err != nil {
		return err
	}
	if err := b.member("id", id); err != nil {
		return err
	}
	return b.parameters(parameters)
}

// with returns a copy of p with one more.
func (p Parameters) with(name string, value any) Parameters {
	all := make(Parameters, len(p)+1)
	for n, v := range p {
		all[n] = v
	}
	all[name] = value
	return all
}

// parameters writes parameters in the order of their names, if there are any.
func (b *Body) parameters(p Parameters) error {
	if len(p) == 0 {
		return nil
	}
	names := make([]string, 0, len(p))
	for n := range p {
		names = append(names, n)
	}
	slices.Sort(names)
	b.name("parameters")
	b.JSON = append(b.JSON, '{')
	for _, n := range names {
		if !utf8.ValidString(n) {
			return Errorf(Invalid, "parameter %s is no UTF-8, which JSON must be", quote(n))
		}
		b.name(n)
		if err := b.parameter(n, p[n]); err != nil {
			return err
		}
	}
	b.JSON = append(b.JSON, '}')
	return nil
}

func (b *Body) parameter(name string, value any) error {
	switch v := value.(type) {
	case bool:
		b.JSON = strconv.AppendBool(b.JSON, v)
	case int64:
		b.JSON = strconv.AppendInt(b.JSON, v, 10)
	case uint64:
		b.JSON = strconv.AppendUint(b.JSON, v, 10)
	case string:
		return b.string(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Errorf(Invalid, "parameter %s is %v, which JSON cannot hold", quote(name), v)
		}
		start := len(b.JSON)
		if b.JSON = appendFloat(b.JSON, v, 64); !slices.ContainsFunc(b.JSON[start:], func(c byte) bool { return c == '.' || c == 'e' }) {
			b.JSON = append(b.JSON, ".0"...) // which tells it from an integer
		}
	default:
		return Errorf(Internal, "parameter %s is a %T, want a bool, int64, uint64, float64 or string", quote(name), value)
	}
	return nil
}

// requested writes an output that is asked for.
func (b *Body) requested(o RequestedOutput, binary bool) error {
	parameters := o.Parameters
	if o.Binary != binary {
		parameters = parameters.with(binaryParameter, o.Binary)
	}
	if o.Classes > 0 {
		parameters = parameters.with(classesParameter, int64(o.Classes))
	}
	b.JSON = append(b.JSON, '{')
	b.name("name")
	err := b.string(o.Name)
	if err == nil {
		err = b.parameters(parameters)
	}
	b.JSON = append(b.JSON, '}')
	return err
}

// tensors writes inputs or outputs.
func (b *Body) tensors(what string, list []Tensor) error {
	b.name(what + "s")
	b.JSON = append(b.JSON, '[')
	for i, t := range list {
		if i > 0 {
			b.JSON = append(b.JSON, ',')
		}
		if err := b.tensor(what, t); err != nil {
			return about(what, t.Name, err)
		}
	}
	b.JSON = append(b.JSON, ']')
	return nil
}

func (b *Body) tensor(what string, t Tensor) error {
	d, err := named(t.Data)
	if err != nil {
		return err
	}
	parameters := t.Parameters
	if t.Binary {
		raw, err := toRaw(t.Data)
		if err != nil {
			return err
		}
		b.Binary = append(b.Binary, raw)
		parameters = parameters.with(sizeParameter, int64(len(raw)))
	}
	b.JSON = append(b.JSON, '{')
	b.name("name")
	if err := b.string(t.Name); err != nil {
		return err
	}
	b.name("shape")
	b.JSON = append(b.JSON, '[')
	for i, n := range t.Data.Shape() {
		if i > 0 {
			b.JSON = append(b.JSON, ',')
		}
		b.JSON = strconv.AppendInt(b.JSON, int64(n), 10)
	}
	b.JSON = append(b.JSON, ']')
	if err := b.member("datatype", d.name); err != nil {
		return err
	}
	if err := b.parameters(parameters); err != nil {
		return err
	}
	if !t.Binary {
		b.name("data")
		if b.JSON, err = appendData(b.JSON, t.Data, d); err != nil {
			if what == "output" {
				return Errorf(KindOf(err), "%w: ask for it as binary data (%s)", err, binaryParameter)
			}
			return Errorf(KindOf(err), "%w: send it as binary data (%s)", err, sizeParameter)
		}
	}
	b.JSON = append(b.JSON, '}')
	return nil
}

// appendData writes the elements of a tensor as one list.
func appendData(dst []byte, t *tensor.Tensor, d datatype) ([]byte, error) {
	if !d.json {
		return nil, Errorf(Invalid, "datatype %s, which JSON cannot hold", d.name)
	}
	dst = append(dst, '[')
	start := len(dst)
	var err error
	switch d.dtype {
	case tensor.Bool:
		for _, v := range tensor.Data[bool](t) {
			dst = append(strconv.AppendBool(dst, v), ',')
		}
	case tensor.F32:
		dst, err = appendFloats(dst, t.F32s(), 32)
	case tensor.F64:
		dst, err = appendFloats(dst, tensor.Data[float64](t), 64)
	case tensor.String:
		for i, v := range t.Strings() {
			if !utf8.ValidString(v) {
				return nil, Errorf(Invalid, "element %d is no UTF-8, which JSON must be", i)
			}
			dst = append(quoteJSON(dst, v), ',')
		}
	case tensor.U8:
		dst = appendUnsigned(dst, tensor.Data[uint8](t))
	case tensor.U16:
		dst = appendUnsigned(dst, tensor.Data[uint16](t))
	case tensor.U32:
		dst = appendUnsigned(dst, tensor.Data[uint32](t))
	case tensor.U64:
		dst = appendUnsigned(dst, tensor.Data[uint64](t))
	case tensor.I8:
		dst = appendSigned(dst, tensor.Data[int8](t))
	case tensor.I16:
		dst = appendSigned(dst, tensor.Data[int16](t))
	case tensor.I32:
		dst = appendSigned(dst, tensor.Data[int32](t))
	case tensor.I64:
		dst = appendSigned(dst, tensor.Data[int64](t))
	}
	if err != nil {
		return nil, err
	}
	if len(dst) > start {
		dst = dst[:len(dst)-1]
	}
	return append(dst, ']'), nil
}

// appendSigned and appendUnsigned write integers, a comma behind each.
func appendSigned[T int8 | int16 | int32 | int64](dst []byte, values []T) []byte {
	for _, v := range values {
		dst = append(strconv.AppendInt(dst, int64(v), 10), ',')
	}
	return dst
}

func appendUnsigned[T uint8 | uint16 | uint32 | uint64](dst []byte, values []T) []byte {
	for _, v := range values {
		dst = append(strconv.AppendUint(dst, uint64(v), 10), ',')
	}
	return dst
}

// appendFloats writes numbers, a comma behind each.
func appendFloats[T float32 | float64](dst []byte, values []T, bits int) ([]byte, error) {
	for i, v := range values {
		if v-v != 0 {
			return nil, Errorf(Invalid, "element %d is %v, which JSON cannot hold", i, v)
		}
		dst = append(appendFloat(dst, float64(v), bits), ',')
	}
	return dst, nil
}

// appendFloat writes the shortest number that reads as the same value of as many bits.
func appendFloat(dst []byte, v float64, bits int) []byte {
	form := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		form = 'e'
	}
	return strconv.AppendFloat(dst, v, form, -1, bits)
}

// quoteJSON writes a string of UTF-8 in quotes.
func quoteJSON(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}
