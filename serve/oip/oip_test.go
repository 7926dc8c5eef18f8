package oip_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"spc/ir/tensor"
	"spc/serve/oip"
	"spc/serve/oip/oippb"
)

// samples has each datatype with the same elements in every form, written by hand.
var samples = []struct {
	datatype string
	data     *tensor.Tensor
	shape    string
	json     string // flat, as it is written; empty where JSON cannot hold it
	nested   string
	typed    string // contents over gRPC, as text
	raw      string
}{
	{"BOOL", tensor.From([]bool{true, false}, 2, 1), "[2,1]", "[true,false]", "[[true],[false]]", "bool_contents: [true, false]", "\x01\x00"},
	{"UINT8", tensor.From([]uint8{0, 255}, 2), "[2]", "[0,255]", "[0,255]", "uint_contents: [0, 255]", "\x00\xff"},
	{"UINT16", tensor.From([]uint16{1, 65535}, 2), "[2]", "[1,65535]", "[1, 65535]", "uint_contents: [1, 65535]", "\x01\x00\xff\xff"},
	{"UINT32", tensor.From([]uint32{2, 4294967295}, 1, 2), "[1,2]", "[2,4294967295]", "[[2,4294967295]]", "uint_contents: [2, 4294967295]", "\x02\x00\x00\x00\xff\xff\xff\xff"},
	{"UINT64", tensor.From([]uint64{3, math.MaxUint64}, 2), "[2]", "[3,18446744073709551615]", "[3 ,18446744073709551615]", "uint64_contents: [3, 18446744073709551615]",
		"\x03\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"},
	{"INT8", tensor.From([]int8{-128, 127}, 2), "[2]", "[-128,127]", "[-128,127]", "int_contents: [-128, 127]", "\x80\x7f"},
	{"INT16", tensor.From([]int16{-32768, 258}, 2), "[2]", "[-32768,258]", "[-32768,258]", "int_contents: [-32768, 258]", "\x00\x80\x02\x01"},
	{"INT32", tensor.From([]int32{math.MinInt32, 1, 2, 3}, 2, 2), "[2,2]", "[-2147483648,1,2,3]", "[[-2147483648,1],[2,3]]", "int_contents: [-2147483648, 1, 2, 3]",
		"\x00\x00\x00\x80\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00"},
	{"INT64", tensor.From([]int64{math.MinInt64, math.MaxInt64}, 2), "[2]", "[-9223372036854775808,9223372036854775807]", "[\n-9223372036854775808,\t9223372036854775807\r]",
		"int64_contents: [-9223372036854775808, 9223372036854775807]", "\x00\x00\x00\x00\x00\x00\x00\x80\xff\xff\xff\xff\xff\xff\xff\x7f"},
	{"FP16", tensor.From([]tensor.Half{0x3c00, 0xc000}, 2), "[2]", "", "", "", "\x00\x3c\x00\xc0"},
	{"BF16", tensor.From([]tensor.Brain{0x3f80, 0xc000}, 2), "[2]", "", "", "", "\x80\x3f\x00\xc0"},
	{"FP32", tensor.From([]float32{1.5, -0.1, 1e-7, 3e38}, 2, 2), "[2,2]", "[1.5,-0.1,1e-07,3e+38]", "[[1.5,-1e-1],[0.0000001,3E38]]", "fp32_contents: [1.5, -0.1, 1e-7, 3e38]",
		"\x00\x00\xc0\x3f\xcd\xcc\xcc\xbd\x95\xbf\xd6\x33\xe6\xb1\x61\x7f"},
	{"FP64", tensor.From([]float64{0.1, math.Copysign(0, -1)}, 2), "[2]", "[0.1,-0]", "[0.1,-0.0]", "fp64_contents: [0.1, -0.0]",
		"\x9a\x99\x99\x99\x99\x99\xb9\x3f\x00\x00\x00\x00\x00\x00\x00\x80"},
	{"BYTES", tensor.FromStrings([]string{"", "a\"b", "日\n"}, 3, 1), "[3,1]", `["","a\"b","日\n"]`, `[[""],["a\u0022b"],["\u65e5\n"]]`,
		`bytes_contents: ["", "a\"b", "\346\227\245\n"]`, "\x00\x00\x00\x00\x03\x00\x00\x00a\"b\x04\x00\x00\x00\xe6\x97\xa5\n"},
	{"FP32", tensor.From([]float32{7}), "[]", "[7]", "[[7]]", "fp32_contents: 7", "\x00\x00\xe0\x40"},
	{"INT64", tensor.From([]int64{}, 2, 0), "[2,0]", "[]", "[[],[]]", "", ""},
	{"BYTES", tensor.FromStrings([]string{}, 0), "[0]", "[]", "[]", "", ""},
}

// readBody reads a request of JSON and of bytes behind it.
func readBody(json, raw string) (*oip.Request, error) {
	return oip.ReadRequest([]byte(json+raw), len(json), oip.Limits{})
}

func TestEveryDatatypeIsReadInEveryForm(t *testing.T) {
	for _, s := range samples {
		check := func(form string, data *tensor.Tensor, binary, want bool) {
			t.Helper()
			if !data.Equal(s.data) || binary != want {
				t.Errorf("%s%s, %s: %v (binary: %v), want %v", s.datatype, s.shape, form, data, binary, s.data)
			}
		}
		head := fmt.Sprintf(`{"name":"x","shape":%s,"datatype":%q,`, s.shape, s.datatype)
		for form, data := range map[string]string{"flat": s.json, "nested": s.nested} {
			if data == "" {
				continue
			}
			r, err := readBody(`{"inputs":[`+head+`"data":`+data+`}]}`, "")
			if err != nil {
				t.Fatalf("%s, %s: %v", s.datatype, form, err)
			}
			check(form, r.Inputs[0].Data, r.Inputs[0].Binary, false)
			answer := `{"model_name":"m","outputs":[` + head + `"data":` + data + `}]}`
			a, err := oip.ReadResponse([]byte(answer), len(answer), oip.Limits{})
			if err != nil {
				t.Fatalf("%s, %s: %v", s.datatype, form, err)
			}
			check(form, a.Outputs[0].Data, a.Outputs[0].Binary, false)
		}
		for pad := range 9 { // aligned and not
			r, err := readBody(fmt.Sprintf(`{"inputs":[%s"parameters":{"binary_data_size":%d}}]}%s`, head, len(s.raw), strings.Repeat(" ", pad)), s.raw)
			if err != nil {
				t.Fatalf("%s, binary: %v", s.datatype, err)
			}
			check("binary", r.Inputs[0].Data, r.Inputs[0].Binary, true)
			if r.Inputs[0].Parameters != nil {
				t.Errorf("parameters %v are left", r.Inputs[0].Parameters)
			}
		}
		shape := ""
		if s.shape != "[]" {
			shape = "shape: " + s.shape
		}
		if s.json != "" {
			r, err := oip.FromRequest(requestText(t, fmt.Sprintf(`inputs { name: "x" datatype: %q %s contents { %s } }`, s.datatype, shape, s.typed)), oip.Limits{})
			if err != nil {
				t.Fatalf("%s, typed: %v", s.datatype, err)
			}
			check("typed", r.Inputs[0].Data, r.Inputs[0].Binary, false)
		}
		p := requestText(t, fmt.Sprintf(`inputs { name: "x" datatype: %q %s }`, s.datatype, shape))
		p.RawInputContents = [][]byte{[]byte(s.raw)}
		r, err := oip.FromRequest(p, oip.Limits{})
		if err != nil {
			t.Fatalf("%s, raw: %v", s.datatype, err)
		}
		check("raw", r.Inputs[0].Data, r.Inputs[0].Binary, true)
	}
}

func TestWholeNumbersAreIntegers(t *testing.T) {
	for json, want := range map[string]*tensor.Tensor{
		`"datatype":"UINT8","data":[1.0,2e2,-0,-0.0]`:               tensor.From([]uint8{1, 200, 0, 0}, 4),
		`"datatype":"INT16","data":[-1.50e1,1E+3,0.0,-0]`:           tensor.From([]int16{-15, 1000, 0, 0}, 4),
		`"datatype":"UINT64","data":[9007199254740992.0,1e3,0e9,1]`: tensor.From([]uint64{1 << 53, 1000, 0, 1}, 4),
	} {
		if r, err := readBody(input(`"shape":[4],`+json), ""); err != nil || !r.Inputs[0].Data.Equal(want) {
			t.Errorf("%s: %+v (%v)", json, r, err)
		}
	}
}

func TestNamesOfDatatypes(t *testing.T) {
	for _, s := range samples {
		if name, ok := oip.Datatype(s.data.DType()); !ok || name != s.datatype {
			t.Errorf("%v is %s, want %s", s.data.DType(), name, s.datatype)
		}
		if dt, ok := oip.DType(s.datatype); !ok || dt != s.data.DType() {
			t.Errorf("%s is %v, want %v", s.datatype, dt, s.data.DType())
		}
	}
	if name, ok := oip.Datatype(tensor.C64); ok {
		t.Errorf("c64 is %s", name)
	}
	if dt, ok := oip.DType("fp32"); ok {
		t.Errorf("fp32 is %v", dt)
	}
}

func TestEveryDatatypeIsWrittenInEveryForm(t *testing.T) {
	for _, s := range samples {
		r := &oip.Response{ModelName: "m", Outputs: []oip.Tensor{{Name: "y", Data: s.data}}}
		head := fmt.Sprintf(`{"model_name":"m","outputs":[{"name":"y","shape":%s,"datatype":%q,`, s.shape, s.datatype)
		b, err := r.Body()
		if s.json == "" {
			if want := `output "y": datatype ` + s.datatype + `, which JSON cannot hold: ask for it as binary data (binary_data)`; err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		} else if want := head + `"data":` + s.json + `}]}`; err != nil || string(b.Bytes()) != want || b.Header() != "" || b.ContentType() != "application/json" {
			t.Errorf("%s (%v), want %s", b.Bytes(), err, want)
		}
		r.Outputs[0].Binary = true
		if b, err = r.Body(); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`%s"parameters":{"binary_data_size":%d}}]}`, head, len(s.raw))
		want += strings.Repeat(" ", 7-(len(want)+7)%8)
		var out bytes.Buffer
		if n, err := b.WriteTo(&out); err != nil || n != b.Len() || out.String() != want+s.raw || b.Header() != fmt.Sprint(len(want)) || b.ContentType() != "application/octet-stream" {
			t.Errorf("%q (header %s, %v), want %q", out.String(), b.Header(), err, want+s.raw)
		}
		shape := ""
		if s.shape != "[]" {
			shape = "shape: " + s.shape
		}
		p, err := r.Message(false)
		wantText := fmt.Sprintf(`model_name: "m" outputs { name: "y" datatype: %q %s }`, s.datatype, shape)
		wanted := responseText(t, wantText)
		wanted.RawOutputContents = [][]byte{[]byte(s.raw)}
		if err != nil || !proto.Equal(p, wanted) {
			t.Errorf("%v (%v), want %v", p, err, wanted)
		}
		p, err = r.Message(true)
		if s.json == "" {
			if want := `output "y": datatype ` + s.datatype + `, which has no typed contents: send it raw`; err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
			continue
		}
		wanted = responseText(t, fmt.Sprintf(`model_name: "m" outputs { name: "y" datatype: %q %s contents { %s } }`, s.datatype, shape, s.typed))
		if err != nil || !proto.Equal(p, wanted) {
			t.Errorf("%v (%v), want %v", p, err, wanted)
		}
	}
}

func requestText(t testing.TB, text string) *oippb.ModelInferRequest {
	p := &oippb.ModelInferRequest{}
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(text, err)
	}
	return p
}

func responseText(t testing.TB, text string) *oippb.ModelInferResponse {
	p := &oippb.ModelInferResponse{}
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(text, err)
	}
	return p
}

// equal reports whether two requests or responses are the same, their tensors bit by bit.
func equal(a, b any) bool {
	switch a := a.(type) {
	case *oip.Request:
		b := b.(*oip.Request)
		x, y := *a, *b
		x.Inputs, y.Inputs = nil, nil
		return equalTensors(a.Inputs, b.Inputs) && reflect.DeepEqual(x, y)
	case *oip.Response:
		b := b.(*oip.Response)
		x, y := *a, *b
		x.Outputs, y.Outputs = nil, nil
		return equalTensors(a.Outputs, b.Outputs) && reflect.DeepEqual(x, y)
	}
	return false
}

func equalTensors(a, b []oip.Tensor) bool {
	if len(a) != len(b) {
		return false
	}
	for i, x := range a {
		y := b[i]
		if x.Name != y.Name || x.Binary != y.Binary || !reflect.DeepEqual(x.Parameters, y.Parameters) || !x.Data.Equal(y.Data) {
			return false
		}
	}
	return true
}
