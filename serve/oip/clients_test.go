package oip_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir/tensor"
	"spc/serve/oip"
	"spc/serve/oip/oippb"
)

// specified is the example of the specification (inference_rest.md, Inference Request Examples)
// but for the data of input1, of which it gives one element for a shape of three.
const specified = `{
  "id" : "42",
  "inputs" : [
    {
      "name" : "input0",
      "shape" : [ 2, 2 ],
      "datatype" : "UINT32",
      "data" : [ 1, 2, 3, 4 ]
    },
    {
      "name" : "input1",
      "shape" : [ 3 ],
      "datatype" : "BOOL",
      "data" : [ %s ]
    }
  ],
  "outputs" : [
    {
      "name" : "output0"
    }
  ]
}`

func TestTheExampleOfTheSpecification(t *testing.T) {
	if _, err := readBody(fmt.Sprintf(specified, "true"), ""); err == nil || err.Error() != `input "input1": shape [3] has 3 elements, data has 1` {
		t.Errorf("as it is printed: %v", err)
	}
	r, err := readBody(fmt.Sprintf(specified, "true, false, true"), "")
	if err != nil {
		t.Fatal(err)
	}
	want := &oip.Request{ID: "42", Inputs: []oip.Tensor{
		{Name: "input0", Data: tensor.From([]uint32{1, 2, 3, 4}, 2, 2)},
		{Name: "input1", Data: tensor.From([]bool{true, false, true}, 3)},
	}, Outputs: []oip.RequestedOutput{{Name: "output0"}}}
	if !equal(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
	if r.WantsBinary("output0") || r.WantsBinary("another") {
		t.Error("bytes are wanted")
	}
	const answer = `{
      "id" : "42",
      "outputs" : [
        {
          "name" : "output0",
          "shape" : [ 3, 2 ],
          "datatype"  : "FP32",
          "data" : [ 1.0, 1.1, 2.0, 2.1, 3.0, 3.1 ]
        }
      ]
    }`
	a, err := oip.ReadResponse([]byte(answer), len(answer), oip.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (&oip.Response{ID: "42", Outputs: []oip.Tensor{{Name: "output0", Data: tensor.From([]float32{1, 1.1, 2, 2.1, 3, 3.1}, 3, 2)}}}); !equal(a, want) {
		t.Errorf("%+v, want %+v", a, want)
	}
}

// The example of Triton's extension_binary_data.md.
func TestTheExampleOfBinaryData(t *testing.T) {
	const request = `{
  "model_name" : "mymodel",
  "inputs" : [
    {
      "name" : "input0",
      "shape" : [ 2, 2 ],
      "datatype" : "UINT32",
      "parameters" : {
        "binary_data_size" : 16
      }
    },
    {
      "name" : "input1",
      "shape" : [ 3 ],
      "datatype" : "BOOL",
      "parameters" : {
        "binary_data_size" : 3
      }
    }
  ],
  "outputs" : [
    {
      "name" : "output0",
      "parameters" : {
        "binary_data" : true
      }
    }
  ]
}
`
	r, err := readBody(request, "\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x01\x00\x01")
	if err != nil {
		t.Fatal(err)
	}
	want := &oip.Request{ModelName: "mymodel", Inputs: []oip.Tensor{
		{Name: "input0", Data: tensor.From([]uint32{1, 2, 3, 4}, 2, 2), Binary: true},
		{Name: "input1", Data: tensor.From([]bool{true, false, true}, 3), Binary: true},
	}, Outputs: []oip.RequestedOutput{{Name: "output0", Binary: true}}}
	if !equal(r, want) || !r.WantsBinary("output0") || r.WantsBinary("another") {
		t.Errorf("%+v, want %+v", r, want)
	}
}

// What tritonclient sends over HTTP (tritonclient/http/_utils.py, _get_inference_request, and
// the to JSON of _infer_input.py and _requested_output.py): JSON without spaces, inputs in binary,
// all outputs in binary where none is named, and priority and sequences as parameters.
func TestWhatTritonsClientSends(t *testing.T) {
	raw := make([]byte, 16)
	for i, v := range []float32{1, 2, 3, 4} {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
	const all = `{"id":"my_request","inputs":[{"name":"INPUT0","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}],"parameters":{"sequence_id":1001,"sequence_start":true,"sequence_end":false,"priority":1,"timeout":5000,"binary_data_output":true}}`
	r, err := readBody(all, string(raw))
	if err != nil {
		t.Fatal(err)
	}
	input := oip.Tensor{Name: "INPUT0", Data: tensor.From([]float32{1, 2, 3, 4}, 1, 4), Binary: true}
	parameters := oip.Parameters{"sequence_id": int64(1001), "sequence_start": true, "sequence_end": false, "priority": int64(1), "timeout": int64(5000)}
	if want := (&oip.Request{ID: "my_request", Parameters: parameters, Inputs: []oip.Tensor{input}, BinaryOutput: true}); !equal(r, want) || !r.WantsBinary("OUTPUT0") {
		t.Errorf("%+v, want %+v", r, want)
	}
	const some = `{"inputs":[{"name":"INPUT0","shape":[1,4],"datatype":"FP32","data":[1.0,2.0,3.0,4.0]}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}},{"name":"OUTPUT1","parameters":{"classification":3,"binary_data":false}}]}`
	if r, err = readBody(some, ""); err != nil {
		t.Fatal(err)
	}
	input.Binary = false
	if want := (&oip.Request{Inputs: []oip.Tensor{input}, Outputs: []oip.RequestedOutput{{Name: "OUTPUT0", Binary: true}, {Name: "OUTPUT1", Classes: 3}}}); !equal(r, want) || r.WantsBinary("OUTPUT1") {
		t.Errorf("%+v, want %+v", r, want)
	}
	// An array without elements is binary data of no bytes, which the header follows still.
	const none = `{"inputs":[{"name":"T","shape":[0],"datatype":"BYTES","parameters":{"binary_data_size":0}}],"parameters":{"binary_data_output":true}}`
	if r, err = readBody(none, ""); err != nil || !r.Inputs[0].Data.Equal(tensor.FromStrings(nil, 0)) {
		t.Errorf("%+v (%v)", r, err)
	}
}

// What tritonclient sends over gRPC (tritonclient/grpc/_utils.py, _get_inference_request): raw
// contents, an unsigned priority, and a sequence that a string names.
func TestWhatTritonsClientSendsOverGRPC(t *testing.T) {
	r, err := oip.FromRequest(requestText(t, `model_name: "simple" id: "7"
		inputs { name: "INPUT0" datatype: "INT32" shape: [1, 2] }
		inputs { name: "INPUT1" datatype: "BYTES" shape: 1 }
		outputs { name: "OUTPUT0" parameters { key: "classification" value { int64_param: 2 } } }
		parameters { key: "sequence_id" value { string_param: "s" } }
		parameters { key: "sequence_start" value { bool_param: true } }
		parameters { key: "priority" value { uint64_param: 3 } }
		raw_input_contents: "\001\000\000\000\377\377\377\377"
		raw_input_contents: "\002\000\000\000hi"`), oip.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := &oip.Request{ModelName: "simple", ID: "7", BinaryOutput: true,
		Parameters: oip.Parameters{"sequence_id": "s", "sequence_start": true, "priority": int64(3)},
		Inputs: []oip.Tensor{
			{Name: "INPUT0", Data: tensor.From([]int32{1, -1}, 1, 2), Binary: true},
			{Name: "INPUT1", Data: tensor.FromStrings([]string{"hi"}, 1), Binary: true},
		}, Outputs: []oip.RequestedOutput{{Name: "OUTPUT0", Binary: true, Classes: 2}}}
	if !equal(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
}

// What KServe's Python client sends (kserve/protocol/infer_type.py, InferRequest.to_rest and
// to_grpc): the model's name and an id in the JSON, data or null beside a size of 0, and over gRPC
// the size of binary data as a parameter.
func TestWhatKServesClientSends(t *testing.T) {
	const id = "a9a8f9a6-7a2c-4b5e-8b7e-1f2d3c4b5a69"
	const typed = `{"id":"` + id + `","model_name":"sklearn-iris","inputs":[{"name":"input-0","shape":[2,4],"datatype":"FP32","data":[[6.8,2.8,4.8,1.4],[6.0,3.4,4.5,1.6]]}]}`
	iris := tensor.From([]float32{6.8, 2.8, 4.8, 1.4, 6, 3.4, 4.5, 1.6}, 2, 4)
	r, err := readBody(typed, "")
	if want := (&oip.Request{ModelName: "sklearn-iris", ID: id, Inputs: []oip.Tensor{{Name: "input-0", Data: iris}}}); err != nil || !equal(r, want) {
		t.Errorf("%+v (%v), want %+v", r, err, want)
	}
	const raw = `{"id":"` + id + `","model_name":"m","inputs":[{"name":"a","shape":[2],"datatype":"FP16","parameters":{"binary_data_size":4}},{"name":"b","shape":[0],"datatype":"FP32","parameters":{"binary_data_size":0},"data":null}],"outputs":[{"name":"y","parameters":{"binary_data":false}}],"parameters":{"binary_data_output":true}}`
	r, err = readBody(raw, "\x00\x3c\x00\xc0")
	if want := (&oip.Request{ModelName: "m", ID: id, BinaryOutput: true, Inputs: []oip.Tensor{
		{Name: "a", Data: tensor.From([]tensor.Half{0x3c00, 0xc000}, 2), Binary: true},
		{Name: "b", Data: tensor.From([]float32{}, 0), Binary: true},
	}, Outputs: []oip.RequestedOutput{{Name: "y"}}}); err != nil || !equal(r, want) || r.WantsBinary("y") || !r.WantsBinary("z") {
		t.Errorf("%+v (%v), want %+v", r, err, want)
	}
	r, err = oip.FromRequest(requestText(t, `model_name: "m" id: "1"
		inputs { name: "a" datatype: "FP16" shape: 2 parameters { key: "binary_data_size" value { int64_param: 4 } } }
		raw_input_contents: "\000\074\000\300"`), oip.Limits{})
	if want := (&oip.Request{ModelName: "m", ID: "1", BinaryOutput: true, Inputs: []oip.Tensor{{Name: "a", Data: tensor.From([]tensor.Half{0x3c00, 0xc000}, 2), Binary: true}}}); err != nil || !equal(r, want) {
		t.Errorf("%+v (%v), want %+v", r, err, want)
	}
}

// A request that asks to load a model, byte by byte: field 1 is the model for KServe, and the
// repository for Triton.
func TestWhatModelIsToBeLoaded(t *testing.T) {
	for wire, want := range map[string]string{
		"\x0a\x05mnist":             "mnist",
		"\x12\x05mnist":             "mnist",
		"\x0a\x04repo\x12\x05mnist": "mnist",
		"":                          "",
	} {
		load, unload := &oippb.RepositoryModelLoadRequest{}, &oippb.RepositoryModelUnloadRequest{}
		if err := proto.Unmarshal([]byte(wire), load); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal([]byte(wire), unload); err != nil {
			t.Fatal(err)
		}
		if oip.LoadName(load) != want || oip.LoadName(unload) != want {
			t.Errorf("%q: %q and %q, want %q", wire, oip.LoadName(load), oip.LoadName(unload), want)
		}
	}
}

func TestUnknownMembersAreIgnored(t *testing.T) {
	r, err := readBody(`{"trace":{"inputs":[1,{"a":null}]},"Inputs":7,"id":null,"outputs":null,"parameters":null,
		"inputs":[{"data":[1e0,2.0],"name":"x","more":[[]],"datatype":"INT8","shape":[2],"parameters":{"note":"\ud83d\ude00","ratio":0.5,"none":null}}]} `, "")
	want := &oip.Request{Inputs: []oip.Tensor{{Name: "x", Data: tensor.From([]int8{1, 2}, 2), Parameters: oip.Parameters{"note": "😀", "ratio": 0.5}}}}
	if err != nil || !equal(r, want) {
		t.Errorf("%+v (%v), want %+v", r, err, want)
	}
}

// What is read shares the body or the message where elements are aligned.
func TestElementsAreShared(t *testing.T) {
	b, err := (&oip.Request{ID: strings.Repeat("x", 3), Inputs: []oip.Tensor{{Name: "x", Data: tensor.From([]float64{1, 2}, 2), Binary: true}}}).Body()
	if err != nil {
		t.Fatal(err)
	}
	all := b.Bytes()
	r, err := oip.ReadRequest(all, len(b.JSON), oip.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	all[len(all)-1] ^= 0x80
	if got := tensor.Data[float64](r.Inputs[0].Data)[1]; got != -2 {
		t.Errorf("%v after a change of the body, want -2", got)
	}
	p := requestText(t, `inputs { name: "x" datatype: "FP32" shape: 2 contents { fp32_contents: [1, 2] } }`)
	if r, err = oip.FromRequest(p, oip.Limits{}); err != nil {
		t.Fatal(err)
	}
	p.Inputs[0].Contents.Fp32Contents[1] = 5
	if got := r.Inputs[0].Data.F32s()[1]; got != 5 {
		t.Errorf("%v after a change of the message, want 5", got)
	}
}

func TestRequestsWithoutJSON(t *testing.T) {
	for _, c := range []struct {
		body  string
		dt    tensor.DType
		shape []int
		data  *tensor.Tensor
		want  string
	}{
		{"\x01\x00\x02\x00\x03\x00\x04\x00", tensor.I16, []int{-1, 2}, tensor.From([]int16{1, 2, 3, 4}, 2, 2), ""},
		{"\x01\x00", tensor.I16, []int{}, tensor.From([]int16{1}), ""},
		{"", tensor.F32, []int{-1, 3}, tensor.From([]float32{}, 0, 3), ""},
		{"a\x00b", tensor.String, []int{-1, 1}, tensor.FromStrings([]string{"a\x00b"}, 1, 1), ""},
		{"\x01\x00\x02", tensor.I16, []int{-1}, nil, `input "x": shape [1] of INT16 has 2 bytes, 3 were sent`},
		{"\x01\x00", tensor.I16, []int{-1, -1}, nil, `input "x": negative dimension in shape [1 -1]`},
		{"a", tensor.String, []int{2}, nil, `input "x": shape [2] has 2 elements, a request without JSON has one of BYTES`},
		{"a", tensor.C64, []int{1}, nil, `input "x": elements of c64, for which the protocol has no datatype`},
	} {
		r, err := oip.ReadRaw([]byte(c.body), "x", c.dt, c.shape, oip.Limits{})
		if c.want != "" {
			if err == nil || err.Error() != c.want {
				t.Errorf("%q: %v, want %s", c.body, err, c.want)
			}
			continue
		}
		if want := (&oip.Request{Inputs: []oip.Tensor{{Name: "x", Data: c.data, Binary: true}}, BinaryOutput: true}); err != nil || !equal(r, want) {
			t.Errorf("%q: %+v (%v), want %+v", c.body, r, err, want)
		}
	}
}

func TestParametersAreOfTheirTypes(t *testing.T) {
	p := oip.Parameters{"i": int64(7), "f": 8.0, "h": 0.5, "u": uint64(1 << 63), "s": "text", "b": true}
	for name, want := range map[string]string{"i": "7 true <nil>", "f": "8 true <nil>", "none": "0 false <nil>", "h": `0 false parameter "h" is 0.5, want an integer`,
		"u": `0 false parameter "u" is 9223372036854775808, want an integer`, "s": `0 false parameter "s" is "text", want an integer`} {
		v, ok, err := p.Int(name)
		if got := fmt.Sprint(v, ok, err); got != want {
			t.Errorf("integer %s: %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{"i": "7 true <nil>", "u": "9223372036854775808 true <nil>", "s": "text true <nil>", "none": " false <nil>",
		"b": ` false parameter "b" is true, want a string or an integer`} {
		v, ok, err := p.Text(name)
		if got := fmt.Sprint(v, " ", ok, " ", err); got != want {
			t.Errorf("text %s: %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{"b": "true true <nil>", "none": "false false <nil>", "i": `false false parameter "i" is 7, want true or false`} {
		v, ok, err := p.Bool(name)
		if got := fmt.Sprint(v, ok, err); got != want {
			t.Errorf("truth value %s: %s, want %s", name, got, want)
		}
	}
}

func TestHowRequestsAreWritten(t *testing.T) {
	r := &oip.Request{ModelName: "m", ModelVersion: "2", ID: "a/b\x01", Parameters: oip.Parameters{"timeout": int64(5), "f": 2.0, "s": `"`, "b": false, "u": uint64(1 << 63)},
		Inputs: []oip.Tensor{
			{Name: "x", Data: tensor.From([]int8{1, -2}, 1, 2), Parameters: oip.Parameters{"k": "v"}},
			{Name: "y", Data: tensor.From([]float32{1}, 1), Binary: true},
		},
		Outputs:      []oip.RequestedOutput{{Name: "p", Binary: true}, {Name: "q", Classes: 3, Parameters: oip.Parameters{"l": true}}},
		BinaryOutput: true}
	const want = `{"model_name":"m","model_version":"2","id":"a/b\u0001","parameters":{"b":false,"binary_data_output":true,"f":2.0,"s":"\"","timeout":5,"u":9223372036854775808},` +
		`"inputs":[{"name":"x","shape":[1,2],"datatype":"INT8","parameters":{"k":"v"},"data":[1,-2]},{"name":"y","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}],` +
		`"outputs":[{"name":"p"},{"name":"q","parameters":{"binary_data":false,"classification":3,"l":true}}]}`
	b, err := r.Body()
	if err != nil || strings.TrimRight(string(b.JSON), " ") != want || len(b.JSON)%8 != 0 || string(b.Bytes()) != string(b.JSON)+"\x00\x00\x80\x3f" {
		t.Errorf("%s (%v), want %s", b.Bytes(), err, want)
	}
	if len(r.Parameters) != 5 || len(r.Outputs[1].Parameters) != 1 {
		t.Error("writing changed parameters")
	}
	p, err := r.Message(true)
	if err != nil {
		t.Fatal(err)
	}
	wanted := requestText(t, `model_name: "m" model_version: "2" id: "a/b\001"
		parameters { key: "timeout" value { int64_param: 5 } } parameters { key: "f" value { double_param: 2 } }
		parameters { key: "s" value { string_param: "\"" } } parameters { key: "b" value { bool_param: false } }
		parameters { key: "u" value { uint64_param: 9223372036854775808 } }
		inputs { name: "x" datatype: "INT8" shape: [1, 2] parameters { key: "k" value { string_param: "v" } } contents { int_contents: [1, -2] } }
		inputs { name: "y" datatype: "FP32" shape: 1 contents { fp32_contents: 1 } }
		outputs { name: "p" }
		outputs { name: "q" parameters { key: "classification" value { int64_param: 3 } } parameters { key: "l" value { bool_param: true } } }`)
	if !proto.Equal(p, wanted) {
		t.Errorf("%v, want %v", p, wanted)
	}
	if p, err = r.Message(false); err != nil {
		t.Fatal(err)
	}
	wanted.Inputs[0].Contents, wanted.Inputs[1].Contents = nil, nil
	wanted.RawInputContents = [][]byte{[]byte("\x01\xfe"), []byte("\x00\x00\x80\x3f")}
	if !proto.Equal(p, wanted) {
		t.Errorf("%v, want %v", p, wanted)
	}
	r.ID = "\xff"
	if _, err = r.Body(); err == nil || err.Error() != `"\xff" is no UTF-8, which JSON must be` {
		t.Error(err)
	}
}

// A request by the numbers of the specification, byte by byte.
func TestTheWireOfARequest(t *testing.T) {
	const wire = "\x0a\x01m" + "\x12\x012" + "\x1a\x01i" + // model_name, model_version, id
		"\x22\x08\x0a\x02ab\x12\x02\x10\x05" + // parameters: "ab" is an int64
		"\x2a\x11\x0a\x01x\x12\x04FP32\x1a\x02\x01\x02\x2a\x02\x32\x00" + // inputs: name, datatype, shape, contents
		"\x32\x03\x0a\x01y" + // outputs
		"\x3a\x08\x00\x00\x80\x3f\x00\x00\x00\xc0" // raw_input_contents
	p := &oippb.ModelInferRequest{}
	if err := proto.Unmarshal([]byte(wire), p); err != nil {
		t.Fatal(err)
	}
	r, err := oip.FromRequest(p, oip.Limits{})
	want := &oip.Request{ModelName: "m", ModelVersion: "2", ID: "i", Parameters: oip.Parameters{"ab": int64(5)}, BinaryOutput: true,
		Inputs: []oip.Tensor{{Name: "x", Data: tensor.From([]float32{1, -2}, 1, 2), Binary: true}}, Outputs: []oip.RequestedOutput{{Name: "y", Binary: true}}}
	if err != nil || !equal(r, want) {
		t.Errorf("%+v (%v), want %+v", r, err, want)
	}
}
