package oip

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"spc/internal/short"
	"spc/ir/tensor"
)

// HeaderLength is the HTTP header that tells how long the JSON of a body is where bytes of tensors
// follow it.
const HeaderLength = "Inference-Header-Content-Length"

// ParseHeaderLength returns the length of the JSON that HeaderLength tells, in a body of a length:
// all of it where the header is empty, as one that is not there.
func ParseHeaderLength(header string, body int) (int, error) {
	if header == "" {
		return body, nil
	}
	n, err := strconv.ParseUint(header, 10, 63)
	if err != nil {
		return 0, Errorf(Invalid, "%s is %s, want a number of bytes", HeaderLength, quote(header))
	}
	if n > uint64(body) {
		return 0, Errorf(Invalid, "%s is %d, want at most the %d bytes of the body", HeaderLength, n, body)
	}
	return int(n), nil
}

// message reads one request or response.
type message struct {
	scanner
	limits Limits
	spent  int64
	binary []byte // what is left behind the JSON
	what   string // of its tensors: input or output
}

func newMessage(body []byte, length int, limits Limits, what string) (*message, error) {
	limits = limits.withDefaults()
	if length < 0 || length > len(body) {
		return nil, Errorf(Invalid, "the JSON has %d bytes, the body %d", length, len(body))
	}
	m := &message{limits: limits, binary: body[length:], what: what}
	m.text, m.deepest, m.members = body[:length:length], limits.Depth, limits.Tensors
	return m, nil
}

// spend counts memory that is about to be taken.
func (m *message) spend(n int) error {
	if m.spent += int64(n); m.spent > m.limits.Bytes {
		return Errorf(TooLarge, "the elements take %d bytes so far, want at most %d", m.spent, m.limits.Bytes)
	}
	return nil
}

// ReadRequest reads the body of a request over REST, whose first length bytes are JSON; the rest
// are the bytes of inputs, in their order, as their binary_data_size says.
func ReadRequest(body []byte, length int, limits Limits) (*Request, error) {
	r := &Request{}
	err := readBody(body, length, limits, "input", members{&r.ModelName, &r.ModelVersion, &r.ID, &r.Parameters, &r.Inputs, &r.Outputs})
	if err == nil {
		r.BinaryOutput, _, err = r.Parameters.Bool(outputsParameter)
		r.Parameters.take(outputsParameter)
	}
	for i := 0; i < len(r.Outputs) && err == nil; i++ {
		err = r.Outputs[i].requested(r.BinaryOutput)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ReadResponse reads the body of a response over REST, as ReadRequest reads one of a request.
func ReadResponse(body []byte, length int, limits Limits) (*Response, error) {
	r := &Response{}
	if err := readBody(body, length, limits, "output", members{&r.ModelName, &r.ModelVersion, &r.ID, &r.Parameters, &r.Outputs, nil}); err != nil {
		return nil, err
	}
	return r, nil
}

// members are where what a message has is put.
type members struct {
	model, version, id *string
	parameters         *Parameters
	tensors            *[]Tensor
	requested          *[]RequestedOutput // nil in a response; their parameters are still to be read into their fields
}

// readBody reads a message whose tensors are of a sort, input or output.
func readBody(body []byte, length int, limits Limits, what string, to members) error {
	m, err := newMessage(body, length, limits, what)
	if err != nil {
		return err
	}
	complete := false
	err = m.object(func(name string) (err error) {
		switch {
		case name == "model_name":
			*to.model, err = m.stringMember(name)
		case name == "model_version":
			*to.version, err = m.stringMember(name)
		case name == "id":
			*to.id, err = m.stringMember(name)
		case name == "parameters":
			*to.parameters, err = m.parameters()
		case name == what+"s":
			complete = true
			*to.tensors, err = m.tensors()
		case name == "outputs" && to.requested != nil:
			*to.requested, err = m.requestedOutputs()
		default:
			err = m.skip()
		}
		return err
	})
	if err == nil {
		err = m.end()
	}
	if err == nil && !complete {
		err = Errorf(Invalid, "no %ss", what)
	}
	return err
}

// ReadRaw reads the body of a request that has no JSON, which HeaderLength tells by 0: the bytes
// of a model's only input, whose name, type and shape the model knows, in which one dimension may
// be -1 and follows from the number of bytes. For strings the body is one element, without its
// length. All outputs are wanted as bytes. (Raw binary requests of Triton's
// extension_binary_data.md.)
func ReadRaw(body []byte, name string, dt tensor.DType, shape []int, limits Limits) (*Request, error) {
	m, err := newMessage(body, 0, limits, "input")
	if err != nil {
		return nil, err
	}
	t := Tensor{Name: name, Binary: true}
	d, err := named(tensor.Header(dt, 0))
	if err == nil {
		t.Data, err = m.raw(d, slices.Clone(shape))
	}
	if err != nil {
		return nil, about("input", name, err)
	}
	return &Request{Inputs: []Tensor{t}, BinaryOutput: true}, nil
}

func (m *message) raw(d datatype, shape []int) (*tensor.Tensor, error) {
	open := slices.Index(shape, -1)
	if open >= 0 {
		shape[open] = 1
	}
	n, err := elemsOf(shape)
	switch {
	case err != nil:
		return nil, err
	case d.dtype != tensor.String:
		if open >= 0 && n > 0 {
			shape[open] = len(m.binary) / d.dtype.Size() / n
		}
		return fromRaw(m.binary, d, shape, m.spend)
	case n != 1:
		return nil, Errorf(Invalid, "shape %s has %d elements, a request without JSON has one of BYTES", shapeText(shape), n)
	}
	if err := m.spend(stringHeader + len(m.binary)); err != nil {
		return nil, err
	}
	return tensor.FromStrings([]string{string(m.binary)}, shape...), nil
}

// end checks that nothing is left.
func (m *message) end() error {
	if m.next(); m.at < len(m.text) {
		return m.syntax("nothing behind the message")
	}
	if len(m.binary) > 0 {
		return Errorf(Invalid, "%d bytes are left behind those of the last %s", len(m.binary), m.what)
	}
	return nil
}

// stringMember reads a member that is a string.
func (m *message) stringMember(name string) (string, error) {
	if m.next() != '"' {
		return "", Errorf(Invalid, "%s is %s, want a string", name, m.token())
	}
	return m.string()
}

// parameters reads an object of parameters.
func (m *message) parameters() (Parameters, error) {
	var p Parameters
	err := m.object(func(name string) error {
		v, err := m.parameter(name)
		if p == nil {
			p = Parameters{}
		}
		p[name] = v
		return err
	})
	return p, err
}

func (m *message) parameter(name string) (any, error) {
	switch c := m.next(); {
	case m.word("true"):
		return true, nil
	case m.word("false"):
		return false, nil
	case c == '"':
		return m.string()
	case c != '-' && c-'0' > 9:
		return nil, Errorf(Invalid, "parameter %s is %s, want a string, a number, true or false", quote(name), m.token())
	}
	text, integer, err := m.number()
	if err != nil {
		return nil, err
	}
	if integer {
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			return v, nil
		}
		if v, err := strconv.ParseUint(text, 10, 64); err == nil {
			return v, nil
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, Errorf(Invalid, "parameter %s is %s, want a number in the range of FP64", quote(name), short.Text(text, 40))
	}
	return v, nil
}

// count refuses a list of more than there may be.
func (m *message) count(n int, what string) error {
	if n > m.limits.Tensors {
		return Errorf(TooLarge, "the message has more than %d %ss", m.limits.Tensors, what)
	}
	return nil
}

// unique refuses a tensor without a name, or with that of another.
func unique(names map[string]bool, what, name string) error {
	if name == "" {
		return Errorf(Invalid, "%s %d has no name", what, len(names))
	}
	if names[name] {
		return Errorf(Invalid, "two %ss have the name %s", what, quote(name))
	}
	names[name] = true
	return nil
}

// tensors reads a list of inputs or outputs.
func (m *message) tensors() ([]Tensor, error) {
	var list []Tensor
	names := map[string]bool{}
	err := m.list(func() error {
		t, err := m.tensor(len(list), names)
		list = append(list, t)
		return err
	})
	return list, err
}

// tensor reads an input or an output.
func (m *message) tensor(i int, names map[string]bool) (Tensor, error) {
	var t Tensor
	var kind string
	var shape []int
	var data *place
	err := m.count(i+1, m.what)
	if err != nil {
		return t, err
	}
	err = m.object(func(name string) (err error) {
		switch name {
		case "name":
			t.Name, err = m.stringMember(name)
		case "datatype":
			kind, err = m.stringMember(name)
		case "shape":
			shape, err = m.shape()
		case "parameters":
			t.Parameters, err = m.parameters()
		case "data":
			var at place
			if m.next() != '[' {
				return Errorf(Invalid, "data is %s, want a list", m.token())
			}
			at, err = m.region()
			data = &at
		default:
			err = m.skip()
		}
		return err
	})
	if err != nil {
		if t.Name == "" { // so far
			return t, within(fmt.Sprintf("%s %d", m.what, i), err)
		}
		return t, about(m.what, t.Name, err)
	}
	if err := unique(names, m.what, t.Name); err != nil {
		return t, err
	}
	return t, about(m.what, t.Name, m.fill(&t, kind, shape, data))
}

// shape reads dimensions; it is not nil where there is no error.
func (m *message) shape() ([]int, error) {
	shape := []int{}
	if m.next() != '[' {
		return nil, Errorf(Invalid, "shape is %s, want a list", m.token())
	}
	return shape, m.list(func() error {
		if c := m.next(); c != '-' && c-'0' > 9 {
			return Errorf(Invalid, "shape has %s, want a number", m.token())
		}
		text, _, err := m.number()
		if err != nil {
			return err
		}
		d, err := strconv.ParseInt(text, 10, 64)
		if err != nil || d < 0 || d > math.MaxInt {
			return Errorf(Invalid, "shape has %s, want a number of elements", short.Text(text, 40))
		}
		if shape = append(shape, int(d)); len(shape) > tensor.MaxRank {
			return Errorf(Invalid, "shape has more than %d dimensions", tensor.MaxRank)
		}
		return nil
	})
}

// fill makes the elements of a tensor of its list or of the bytes behind the JSON.
func (m *message) fill(t *Tensor, kind string, shape []int, data *place) error {
	d, err := datatypeOf(kind)
	switch {
	case kind == "":
		return Errorf(Invalid, "no datatype")
	case err != nil:
		return err
	case shape == nil:
		return Errorf(Invalid, "no shape")
	case t.Parameters[sharedParameter] != nil:
		return Errorf(Unsupported, "in shared memory, which is not supported")
	}
	size, sized, err := t.Parameters.Int(sizeParameter)
	if err != nil {
		return err
	}
	switch {
	case sized && data != nil:
		return Errorf(Invalid, "both data and %s", sizeParameter)
	case data != nil:
		t.Data, err = readData(&m.scanner, *data, d, shape, m.spend)
		return err
	case !sized:
		return Errorf(Invalid, "no data")
	case size < 0 || size > int64(len(m.binary)):
		return Errorf(Invalid, "%s is %d, %d bytes are left behind the JSON, whose length %s tells", sizeParameter, size, len(m.binary), HeaderLength)
	}
	t.Binary = true
	t.Parameters.take(sizeParameter)
	t.Data, err = fromRaw(m.binary[:size:size], d, shape, m.spend)
	m.binary = m.binary[size:]
	return err
}

// requestedOutputs reads the list of outputs that are asked for; their parameters are still
// to be read into their fields.
func (m *message) requestedOutputs() ([]RequestedOutput, error) {
	var list []RequestedOutput
	names := map[string]bool{}
	err := m.list(func() error {
		var o RequestedOutput
		err := m.count(len(list)+1, "output")
		if err != nil {
			return err
		}
		err = m.object(func(name string) (err error) {
			switch name {
			case "name":
				o.Name, err = m.stringMember(name)
			case "parameters":
				o.Parameters, err = m.parameters()
			default:
				err = m.skip()
			}
			return err
		})
		if err == nil {
			err = unique(names, "output", o.Name)
		}
		list = append(list, o)
		return err
	})
	return slices.Clip(list), err
}
