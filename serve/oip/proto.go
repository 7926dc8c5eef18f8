package oip

import (
	"math"

	"spc/ir/tensor"
	"spc/serve/oip/oippb"
)

// parts are what inputs and outputs in messages have in common.
type parts interface {
	GetName() string
	GetDatatype() string
	GetShape() []int64
	GetParameters() map[string]*oippb.InferParameter
	GetContents() *oippb.InferTensorContents
}

// FromRequest reads a request over gRPC, whose memory it shares.
func FromRequest(p *oippb.ModelInferRequest, limits Limits) (*Request, error) {
	r := &Request{ModelName: p.GetModelName(), ModelVersion: p.GetModelVersion(), ID: p.GetId(), BinaryOutput: true}
	m, err := newMessage(nil, 0, limits, "input")
	if err == nil {
		r.Parameters, err = m.fromParameters(p.GetParameters())
		r.Parameters.take(outputsParameter)
	}
	if err == nil {
		r.Inputs, err = fromTensors(m, p.GetInputs(), p.GetRawInputContents(), "raw_input_contents")
	}
	if err == nil {
		r.Outputs, err = m.fromOutputs(p.GetOutputs())
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// FromResponse reads a response over gRPC, whose memory it shares.
func FromResponse(p *oippb.ModelInferResponse, limits Limits) (*Response, error) {
	r := &Response{ModelName: p.GetModelName(), ModelVersion: p.GetModelVersion(), ID: p.GetId()}
	m, err := newMessage(nil, 0, limits, "output")
	if err == nil {
		r.Parameters, err = m.fromParameters(p.GetParameters())
	}
	if err == nil {
		r.Outputs, err = fromTensors(m, p.GetOutputs(), p.GetRawOutputContents(), "raw_output_contents")
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// fromOutputs reads the outputs that are asked for, all of them as bytes.
func (m *message) fromOutputs(outputs []*oippb.ModelInferRequest_InferRequestedOutputTensor) ([]RequestedOutput, error) {
	if err := m.count(len(outputs), "output"); err != nil || len(outputs) == 0 {
		return nil, err
	}
	list := make([]RequestedOutput, len(outputs))
	names := map[string]bool{}
	for i, o := range outputs {
		if err := unique(names, "output", o.GetName()); err != nil {
			return nil, err
		}
		parameters, err := m.fromParameters(o.GetParameters())
		if err != nil {
			return nil, about("output", o.GetName(), err)
		}
		parameters.take(binaryParameter)
		list[i] = RequestedOutput{Name: o.GetName(), Parameters: parameters}
		if err := list[i].requested(true); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (m *message) fromParameters(in map[string]*oippb.InferParameter) (Parameters, error) {
	if err := m.count(len(in), "parameter"); err != nil || len(in) == 0 {
		return nil, err
	}
	p := make(Parameters, len(in))
	for name, v := range in {
		switch v := v.GetParameterChoice().(type) {
		case *oippb.InferParameter_BoolParam:
			p[name] = v.BoolParam
		case *oippb.InferParameter_Int64Param:
			p[name] = v.Int64Param
		case *oippb.InferParameter_StringParam:
			p[name] = v.StringParam
		case *oippb.InferParameter_DoubleParam:
			p[name] = v.DoubleParam
		case *oippb.InferParameter_Uint64Param:
			p[name] = fromUint(v.Uint64Param)
		default:
			return nil, Errorf(Invalid, "parameter %s has no value", quote(name))
		}
	}
	return p, nil
}

// fromTensors reads inputs or outputs, whose elements are in raw, for each of them, or in their
// contents.
func fromTensors[T parts](m *message, in []T, raw [][]byte, field string) ([]Tensor, error) {
	if err := m.count(len(in), m.what); err != nil {
		return nil, err
	}
	if len(raw) > 0 && len(raw) != len(in) {
		return nil, Errorf(Invalid, "%d %ss have %d %s, want one for each or none", len(in), m.what, len(raw), field)
	}
	var list []Tensor
	names := map[string]bool{}
	for i, p := range in {
		if err := unique(names, m.what, p.GetName()); err != nil {
			return nil, err
		}
		t := Tensor{Name: p.GetName(), Binary: len(raw) > 0}
		var mine []byte
		if t.Binary {
			mine = raw[i]
		}
		if err := m.fromTensor(&t, p, mine, field); err != nil {
			return nil, about(m.what, t.Name, err)
		}
		list = append(list, t)
	}
	return list, nil
}

func (m *message) fromTensor(t *Tensor, p parts, raw []byte, field string) error {
	d, err := datatypeOf(p.GetDatatype())
	if err != nil {
		return err
	}
	if len(p.GetShape()) > tensor.MaxRank {
		return Errorf(Invalid, "shape has more than %d dimensions", tensor.MaxRank)
	}
	shape := make([]int, len(p.GetShape()))
	for i, n := range p.GetShape() {
		if n < 0 || n > math.MaxInt {
			return Errorf(Invalid, "shape has %d, want a number of elements", n)
		}
		shape[i] = int(n)
	}
	if t.Parameters, err = m.fromParameters(p.GetParameters()); err != nil {
		return err
	}
	if t.Parameters[sharedParameter] != nil {
		return Errorf(Unsupported, "in shared memory, which is not supported")
	}
	t.Parameters.take(sizeParameter) // which KServe's client sends over gRPC too
	filled, lengths := fieldsOf(p.GetContents())
	if t.Binary {
		if filled != "" {
			return Errorf(Invalid, "both %s and %s", filled, field)
		}
		t.Data, err = fromRaw(raw, d, shape, m.spend)
		return err
	}
	n, err := elemsOf(shape)
	switch {
	case err != nil:
		return err
	case !d.json && (n > 0 || filled != ""):
		return Errorf(Invalid, "datatype %s, which has no typed contents: send it in %s", d.name, field)
	case lengths[d.field] != n:
		return Errorf(Invalid, "shape %s of %s has %d elements, %s has %d", shapeText(shape), d.name, n, d.field, lengths[d.field])
	case filled != "" && (len(lengths) > 1 || filled != d.field):
		return Errorf(Invalid, "more than the %s that are wanted for %s", d.field, d.name)
	}
	if err := m.spend(n * memoryOf(d)); err != nil {
		return err
	}
	t.Data, err = fromContents(p.GetContents(), d, shape, m.spend)
	return err
}

// fieldsOf returns how many elements the fields of contents have that have any, and the name of
// one of them.
func fieldsOf(c *oippb.InferTensorContents) (filled string, lengths map[string]int) {
	for _, f := range []struct {
		name   string
		length int
	}{
		{"bool_contents", len(c.GetBoolContents())},
		{"int_contents", len(c.GetIntContents())},
		{"int64_contents", len(c.GetInt64Contents())},
		{"uint_contents", len(c.GetUintContents())},
		{"uint64_contents", len(c.GetUint64Contents())},
		{"fp32_contents", len(c.GetFp32Contents())},
		{"fp64_contents", len(c.GetFp64Contents())},
		{"bytes_contents", len(c.GetBytesContents())},
	} {
		if f.length > 0 {
			if lengths == nil {
				lengths = map[string]int{}
			}
			filled = f.name
			lengths[f.name] = f.length
		}
	}
	return filled, lengths
}

// fromContents makes a tensor of typed contents that are as many as the shape has.
func fromContents(c *oippb.InferTensorContents, d datatype, shape []int, spend func(int) error) (*tensor.Tensor, error) {
	switch d.dtype {
	case tensor.Bool:
		return tensor.From(c.GetBoolContents(), shape...), nil
	case tensor.I8:
		return narrowed[int8](c.GetIntContents(), d, shape)
	case tensor.I16:
		return narrowed[int16](c.GetIntContents(), d, shape)
	case tensor.I32:
		return tensor.From(c.GetIntContents(), shape...), nil
	case tensor.I64:
		return tensor.From(c.GetInt64Contents(), shape...), nil
	case tensor.U8:
		return narrowed[uint8](c.GetUintContents(), d, shape)
	case tensor.U16:
		return narrowed[uint16](c.GetUintContents(), d, shape)
	case tensor.U32:
		return tensor.From(c.GetUintContents(), shape...), nil
	case tensor.U64:
		return tensor.From(c.GetUint64Contents(), shape...), nil
	case tensor.F32:
		return tensor.From(c.GetFp32Contents(), shape...), nil
	case tensor.F64:
		return tensor.From(c.GetFp64Contents(), shape...), nil
	case tensor.String:
		list := make([]string, len(c.GetBytesContents()))
		for i, b := range c.GetBytesContents() {
			if err := spend(len(b)); err != nil {
				return nil, err
			}
			list[i] = string(b)
		}
		return tensor.FromStrings(list, shape...), nil
	}
	return tensor.New(d.dtype, shape...), nil // without elements
}

// narrowed makes a tensor of integers that are sent in a wider type.
func narrowed[T int8 | int16 | uint8 | uint16, W int32 | uint32](wide []W, d datatype, shape []int) (*tensor.Tensor, error) {
	out := make([]T, len(wide))
	for i, v := range wide {
		if out[i] = T(v); W(out[i]) != v {
			return nil, Errorf(Invalid, "element %d is %d, want an integer in the range of %s", i, v, d.name)
		}
	}
	return tensor.From(out, shape...), nil
}

// Message writes a request for gRPC: its inputs as bytes, which it shares, or where typed is set
// as typed contents, which FP16 and BF16 have not. How its Binary fields are set is of no
// account.
func (r *Request) Message(typed bool) (*oippb.ModelInferRequest, error) {
	p := &oippb.ModelInferRequest{ModelName: r.ModelName, ModelVersion: r.ModelVersion, Id: r.ID}
	var err error
	if p.Parameters, err = toParameters(r.Parameters); err != nil {
		return nil, err
	}
	for _, t := range r.Inputs {
		in := &oippb.ModelInferRequest_InferInputTensor{Name: t.Name}
		var raw []byte
		if in.Datatype, in.Shape, in.Contents, raw, err = toContents(t, typed); err == nil {
			in.Parameters, err = toParameters(t.Parameters)
		}
		if err != nil {
			return nil, about("input", t.Name, err)
		}
		if p.Inputs = append(p.Inputs, in); raw != nil {
			p.RawInputContents = append(p.RawInputContents, raw)
		}
	}
	for _, o := range r.Outputs {
		parameters := o.Parameters
		if o.Classes > 0 {
			parameters = parameters.with(classesParameter, int64(o.Classes))
		}
		out := &oippb.ModelInferRequest_InferRequestedOutputTensor{Name: o.Name}
		if out.Parameters, err = toParameters(parameters); err != nil {
			return nil, about("output", o.Name, err)
		}
		p.Outputs = append(p.Outputs, out)
	}
	return p, nil
}

// Message writes a response for gRPC, as Request.Message writes a request.
func (r *Response) Message(typed bool) (*oippb.ModelInferResponse, error) {
	p := &oippb.ModelInferResponse{ModelName: r.ModelName, ModelVersion: r.ModelVersion, Id: r.ID}
	var err error
	if p.Parameters, err = toParameters(r.Parameters); err != nil {
		return nil, err
	}
	for _, t := range r.Outputs {
		out := &oippb.ModelInferResponse_InferOutputTensor{Name: t.Name}
		var raw []byte
		if out.Datatype, out.Shape, out.Contents, raw, err = toContents(t, typed); err == nil {
			out.Parameters, err = toParameters(t.Parameters)
		}
		if err != nil {
			return nil, about("output", t.Name, err)
		}
		if p.Outputs = append(p.Outputs, out); raw != nil {
			p.RawOutputContents = append(p.RawOutputContents, raw)
		}
	}
	return p, nil
}

func toParameters(p Parameters) (map[string]*oippb.InferParameter, error) {
	if len(p) == 0 {
		return nil, nil
	}
	out := make(map[string]*oippb.InferParameter, len(p))
	for name, value := range p {
		switch v := value.(type) {
		case bool:
			out[name] = &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_BoolParam{BoolParam: v}}
		case int64:
			out[name] = &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_Int64Param{Int64Param: v}}
		case uint64:
			out[name] = &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_Uint64Param{Uint64Param: v}}
		case string:
			out[name] = &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_StringParam{StringParam: v}}
		case float64:
			out[name] = &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_DoubleParam{DoubleParam: v}}
		default:
			return nil, Errorf(Internal, "parameter %s is a %T, want a bool, int64, uint64, float64 or string", quote(name), value)
		}
	}
	return out, nil
}

// toContents returns how a tensor is sent: contents where typed is set, and raw else.
func toContents(t Tensor, typed bool) (kind string, shape []int64, c *oippb.InferTensorContents, raw []byte, err error) {
	d, err := named(t.Data)
	if err != nil {
		return "", nil, nil, nil, err
	}
	for _, n := range t.Data.Shape() {
		shape = append(shape, int64(n))
	}
	if !typed {
		raw, err = toRaw(t.Data)
		return d.name, shape, nil, raw, err
	}
	c = &oippb.InferTensorContents{}
	switch d.dtype {
	case tensor.Bool:
		c.BoolContents = tensor.Data[bool](t.Data)
	case tensor.I8:
		c.IntContents = widened[int32](tensor.Data[int8](t.Data))
	case tensor.I16:
		c.IntContents = widened[int32](tensor.Data[int16](t.Data))
	case tensor.I32:
		c.IntContents = tensor.Data[int32](t.Data)
	case tensor.I64:
		c.Int64Contents = tensor.Data[int64](t.Data)
	case tensor.U8:
		c.UintContents = widened[uint32](tensor.Data[uint8](t.Data))
	case tensor.U16:
		c.UintContents = widened[uint32](tensor.Data[uint16](t.Data))
	case tensor.U32:
		c.UintContents = tensor.Data[uint32](t.Data)
	case tensor.U64:
		c.Uint64Contents = tensor.Data[uint64](t.Data)
	case tensor.F32:
		c.Fp32Contents = t.Data.F32s()
	case tensor.F64:
		c.Fp64Contents = tensor.Data[float64](t.Data)
	case tensor.String:
		for _, s := range t.Data.Strings() {
			c.BytesContents = append(c.BytesContents, []byte(s))
		}
	default:
		if t.Data.Len() > 0 {
			err = Errorf(Invalid, "datatype %s, which has no typed contents: send it raw", d.name)
		}
	}
	return d.name, shape, c, nil, err
}

func widened[W int32 | uint32, T int8 | int16 | uint8 | uint16](values []T) []W {
	out := make([]W, len(values))
	for i, v := range values {
		out[i] = W(v)
	}
	return out
}

// LoadName returns the model that a request to load or unload names: in Triton's form field 2,
// and in KServe's, which has no other, field 1.
func LoadName(req interface {
	GetRepositoryName() string
	GetModelName() string
}) string {
	if name := req.GetModelName(); name != "" {
		return name
	}
	return req.GetRepositoryName()
}
