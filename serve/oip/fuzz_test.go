package oip_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"spc/ir/tensor"
	"spc/serve/oip"
	"spc/serve/oip/oippb"
)

// checkError fails unless an error is one that a client can be told of.
func checkError(t *testing.T, err error) {
	if kind := oip.KindOf(err); kind == oip.Internal {
		t.Fatalf("%v is %v", err, kind)
	}
	if text := err.Error(); len(text) > 2000 || !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n") {
		t.Fatalf("%q", text)
	}
	if got := oip.ReadErrorBody(oip.ErrorBody(err)); got != err.Error() {
		t.Fatalf("%q reads as %q", err, got)
	}
}

// checkMemory fails where elements take more than what was sent can hold: an f64 of JSON takes two
// bytes, and a string three.
func checkMemory(t *testing.T, sent int, list []oip.Tensor) {
	taken := 0
	for _, x := range list {
		taken += x.Data.Len() * max(x.Data.DType().Size(), 1)
		if x.Data.DType() == tensor.String {
			taken += 15 * x.Data.Len()
			for _, s := range x.Data.Strings() {
				taken += len(s)
			}
		}
	}
	if taken > 8*sent {
		t.Fatalf("%d bytes of %d that were sent", taken, sent)
	}
}

// seeds are bodies that are read, each after the length of its JSON.
func seeds() (list []string, lengths []int) {
	for _, s := range samples {
		head := fmt.Sprintf(`"shape":%s,"datatype":%q,`, s.shape, s.datatype)
		if s.nested != "" {
			list = append(list, `{"id":"1","inputs":[{"name":"x",`+head+`"data":`+s.nested+`}],"outputs":[{"name":"x",`+head+`"data":`+s.nested+`}]}`)
			lengths = append(lengths, len(list[len(list)-1]))
		}
		head += fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, len(s.raw))
		for _, what := range []string{"inputs", "outputs"} {
			json := `{"model_name":"m","` + what + `":[{"name":"x",` + head + `}],"parameters":{"binary_data_output":true,"a":1.0,"b":-1e300,"c":18446744073709551615,"d":"\u0000"}}`
			list, lengths = append(list, json+s.raw), append(lengths, len(json))
		}
	}
	return list, lengths
}

func FuzzReadRequest(f *testing.F) {
	list, lengths := seeds()
	for i, s := range list {
		f.Add([]byte(s), lengths[i])
	}
	f.Add([]byte(`{"inputs":[{"name":"x","data":[[1,2],[3,4]],"shape":[2,1,2],"datatype":"INT8"}],"outputs":[{"name":"y","parameters":{"binary_data":true,"classification":2}}]}`), 1000)
	f.Fuzz(func(t *testing.T, body []byte, length int) {
		if length > len(body) {
			length = len(body)
		}
		r, err := oip.ReadRequest(body, length, oip.Limits{})
		if err != nil {
			checkError(t, err)
			return
		}
		checkMemory(t, len(body), r.Inputs)
		b, err := r.Body()
		if err != nil {
			t.Fatalf("%+v is not written: %v", r, err)
		}
		again, err := oip.ReadRequest(b.Bytes(), len(b.JSON), oip.Limits{})
		if err != nil || !equal(again, r) {
			t.Fatalf("%+v is written as %q, and read as %+v (%v)", r, b.JSON, again, err)
		}
		p, err := r.Message(false)
		if err != nil {
			t.Fatal(err)
		}
		if again, err = oip.FromRequest(p, oip.Limits{}); err != nil {
			t.Fatal(err)
		}
		for i := range again.Inputs {
			again.Inputs[i].Binary = r.Inputs[i].Binary
		}
		if !equalTensors(again.Inputs, r.Inputs) {
			t.Fatalf("%+v over gRPC is %+v", r, again)
		}
	})
}

func FuzzReadResponse(f *testing.F) {
	list, lengths := seeds()
	for i, s := range list {
		f.Add([]byte(s), lengths[i])
	}
	f.Fuzz(func(t *testing.T, body []byte, length int) {
		if length > len(body) {
			length = len(body)
		}
		r, err := oip.ReadResponse(body, length, oip.Limits{})
		if err != nil {
			checkError(t, err)
			return
		}
		checkMemory(t, len(body), r.Outputs)
		b, err := r.Body()
		if err != nil {
			t.Fatalf("%+v is not written: %v", r, err)
		}
		again, err := oip.ReadResponse(b.Bytes(), len(b.JSON), oip.Limits{})
		if err != nil || !equal(again, r) {
			t.Fatalf("%+v is written as %q, and read as %+v (%v)", r, b.JSON, again, err)
		}
	})
}

func FuzzProto(f *testing.F) {
	add := func(p proto.Message) {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, s := range samples {
		shape := ""
		if s.shape != "[]" {
			shape = "shape: " + s.shape
		}
		const more = ` model_name: "m" parameters { key: "a" value { double_param: nan } } parameters { key: "b" value { uint64_param: 18446744073709551615 } }`
		if s.json != "" {
			add(requestText(f, fmt.Sprintf(`inputs { name: "x" datatype: %q %s contents { %s } } outputs { name: "y" parameters { key: "classification" value { int64_param: 2 } } }`, s.datatype, shape, s.typed)+more))
			add(responseText(f, fmt.Sprintf(`outputs { name: "x" datatype: %q %s contents { %s } }`, s.datatype, shape, s.typed)+more))
		}
		q := requestText(f, fmt.Sprintf(`inputs { name: "x" datatype: %q %s }`, s.datatype, shape)+more)
		q.RawInputContents = [][]byte{[]byte(s.raw)}
		add(q)
		a := responseText(f, fmt.Sprintf(`outputs { name: "x" datatype: %q %s }`, s.datatype, shape)+more)
		a.RawOutputContents = [][]byte{[]byte(s.raw)}
		add(a)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if p := (&oippb.ModelInferRequest{}); proto.Unmarshal(wire, p) == nil {
			checkProtoRequest(t, p, len(wire))
		}
		if p := (&oippb.ModelInferResponse{}); proto.Unmarshal(wire, p) == nil {
			checkProtoResponse(t, p, len(wire))
		}
	})
}

func checkProtoRequest(t *testing.T, p *oippb.ModelInferRequest, sent int) {
	r, err := oip.FromRequest(p, oip.Limits{})
	if err != nil {
		checkError(t, err)
		return
	}
	checkMemory(t, sent, r.Inputs)
	typed := len(r.Inputs) > 0 && !r.Inputs[0].Binary
	out, err := r.Message(typed)
	if err != nil {
		t.Fatalf("%+v is not written: %v", r, err)
	}
	again, err := oip.FromRequest(out, oip.Limits{})
	if err != nil || !equalTensors(again.Inputs, r.Inputs) {
		t.Fatalf("%v is written as %v, and read as %+v (%v)", p, out, again, err)
	}
	if twice, err := again.Message(typed); err != nil || !proto.Equal(twice, out) {
		t.Fatalf("%v is written as %v, and again as %v (%v)", p, out, twice, err)
	}
}

func checkProtoResponse(t *testing.T, p *oippb.ModelInferResponse, sent int) {
	r, err := oip.FromResponse(p, oip.Limits{})
	if err != nil {
		checkError(t, err)
		return
	}
	checkMemory(t, sent, r.Outputs)
	typed := len(r.Outputs) > 0 && !r.Outputs[0].Binary
	out, err := r.Message(typed)
	if err != nil {
		t.Fatalf("%+v is not written: %v", r, err)
	}
	again, err := oip.FromResponse(out, oip.Limits{})
	if err != nil || !equalTensors(again.Outputs, r.Outputs) {
		t.Fatalf("%v is written as %v, and read as %+v (%v)", p, out, again, err)
	}
	if twice, err := again.Message(typed); err != nil || !proto.Equal(twice, out) {
		t.Fatalf("%v is written as %v, and again as %v (%v)", p, out, twice, err)
	}
}
