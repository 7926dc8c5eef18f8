package oip_test

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir/tensor"
	"spc/serve/oip"
)

// input is a request with an input of which rest says more.
func input(rest string) string { return `{"inputs":[{"name":"x",` + rest + `}]}` }

func TestRequestsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ json, raw, want string }{
		// JSON
		{``, "", `JSON ends at byte 0, want an object`},
		{`[]`, "", `JSON at byte 0 is [, want an object`},
		{`{"id":"a"`, "", `JSON ends at byte 9, want a comma or }`},
		{`{"id":"a",}`, "", `JSON at byte 10 is }, want a name in quotes`},
		{`{"id" "a"}`, "", `JSON at byte 6 is "a", want a colon`},
		{`{"id":"a","id":"b","inputs":[]}`, "", `JSON before byte 15 has "id" twice`},
		{`{"id":1,"inputs":[]}`, "", `id is 1, want a string`},
		{`{"id":"a` + "\n" + `","inputs":[]}`, "", `JSON at byte 8 is "\n", want a string without control characters`},
		{`{"id":"` + "\xff" + `","inputs":[]}`, "", "JSON at byte 6 is \"\uFFFD\", want a string of UTF-8"},
		{`{"id":"\x","inputs":[]}`, "", `JSON at byte 6 is no string: invalid character 'x' in string escape code`},
		{`{"id":"a`, "", `JSON ends at byte 8, want the end of a string`},
		{`{"inputs":[]} x`, "", `JSON at byte 14 is x, want nothing behind the message`},
		{`{"more":01,"inputs":[]}`, "", `JSON at byte 8 is 01, want a number`},
		{`{"more":tru,"inputs":[]}`, "", `JSON at byte 8 is tru, want a value`},
		{`{"more":` + strings.Repeat("[", 100) + `}`, "", `JSON at byte 79 nests 73 deep, want at most 72`},
		{`{"more":` + strings.Repeat(`{"a":`, 100) + `}`, "", `JSON at byte 363 nests 73 deep, want at most 72`},
		{`{}`, "", `no inputs`},
		{`{"inputs":{}}`, "", `JSON at byte 10 is {, want a list`},
		// parameters
		{`{"inputs":[],"parameters":{"a":[1]}}`, "", `parameter "a" is [, want a string, a number, true or false`},
		{`{"inputs":[],"parameters":{"a":1e400}}`, "", `parameter "a" is 1e400, want a number in the range of FP64`},
		{`{"inputs":[],"parameters":{"binary_data_output":"yes"}}`, "", `parameter "binary_data_output" is "yes", want true or false`},
		{`{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":1}}]}`, "", `output "y": parameter "binary_data" is 1, want true or false`},
		{`{"inputs":[],"outputs":[{"name":"y","parameters":{"classification":0}}]}`, "", `output "y": classification is 0, want at least 1`},
		{`{"inputs":[],"outputs":[{"name":"y","parameters":{"classification":1.5}}]}`, "", `output "y": parameter "classification" is 1.5, want an integer`},
		{`{"inputs":[],"outputs":[{"name":"y","parameters":{"shared_memory_region":"r"}}]}`, "", `output "y": wanted in shared memory, which is not supported`},
		{`{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]}`, "", `two outputs have the name "y"`},
		// tensors
		{`{"inputs":[7]}`, "", `input 0: JSON at byte 11 is 7, want an object`},
		{`{"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]}`, "", `input 0 has no name`},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]},{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`, "", `two inputs have the name "x"`},
		{input(`"shape":[1],"data":[1]`), "", `input "x": no datatype`},
		{input(`"datatype":"FP32","data":[1]`), "", `input "x": no shape`},
		{input(`"datatype":"FP32","shape":[1]`), "", `input "x": no data`},
		{input(`"datatype":"float","shape":[1],"data":[1]`), "",
			`input "x": datatype "float", want one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES`},
		{input(`"datatype":"FP32","shape":[-1],"data":[1]`), "", `input "x": shape has -1, want a number of elements`},
		{input(`"datatype":"FP32","shape":[1.5],"data":[1]`), "", `input "x": shape has 1.5, want a number of elements`},
		{input(`"datatype":"FP32","shape":["1"],"data":[1]`), "", `input "x": shape has "1", want a number`},
		{input(`"datatype":"FP32","shape":1,"data":[1]`), "", `input "x": shape is 1, want a list`},
		{input(`"datatype":"FP32","shape":[18446744073709551615],"data":[1]`), "", `input "x": shape has 18446744073709551615, want a number of elements`},
		{input(`"datatype":"FP32","shape":[2147483648,2147483648],"data":[1]`), "", `input "x": shape [2147483648 2147483648] has too many elements`},
		{input(`"datatype":"FP32","shape":[1000000,1000000],"data":[1,2]`), "", `input "x": shape [1000000,1000000] has 1000000000000 elements, data has 2`},
		{input(`"datatype":"FP32","shape":[` + strings.Repeat("1,", 64) + `1],"data":[1]`), "", `input "x": shape has more than 64 dimensions`},
		{input(`"datatype":"FP32","shape":[1],"data":7`), "", `input "x": data is 7, want a list`},
		{input(`"datatype":"FP32","shape":[1,3],"data":[1,2]`), "", `input "x": shape [1,3] has 3 elements, data has 2`},
		{input(`"datatype":"FP32","shape":[1,3],"data":[1,2,3,4,5]`), "", `input "x": shape [1,3] has 3 elements, data has 5`},
		{input(`"datatype":"FP32","shape":[2,3],"data":[[1,2],[3,4],[5,6]]`), "", `input "x": data nests as [3,2], want as shape [2,3] or not at all`},
		{input(`"datatype":"FP32","shape":[3],"data":[[1,2],[3]]`), "", `input "x": data has a list of 1 beside one of 2 before byte 70 of the JSON`},
		{input(`"datatype":"FP32","shape":[3],"data":[1,[2],3]`), "", `input "x": data has a list beside elements at byte 63 of the JSON`},
		{input(`"datatype":"FP32","shape":[3],"data":[[1],2,3]`), "", `input "x": data has an element beside lists at byte 65 of the JSON`},
		{input(`"datatype":"FP32","shape":[1],"data":` + strings.Repeat("[", 80) + strings.Repeat("]", 80)), "", `input "x": JSON at byte 129 nests 73 deep, want at most 72`},
		{`{"inputs":[{"name":"x","data":[1,"]`, "", `input "x": JSON ends at byte 35, want the end of a list`},
		{input(`"datatype":"FP32","shape":[1],"data":[1`), "", `input "x": JSON at byte 62 is }, want a comma or ]`},
		{input(`"datatype":"FP32","shape":[2],"data":[1 2]`), "", `input "x": JSON at byte 63 is 2, want a comma or ]`},
		// elements
		{input(`"datatype":"FP32","shape":[2],"data":[0,NaN]`), "", `input "x": element 1 is NaN, want a number that JSON has: send the tensor as binary data (binary_data_size)`},
		{input(`"datatype":"FP64","shape":[1],"data":[-Infinity]`), "", `input "x": element 0 is -Infinity, want a number that JSON has: send the tensor as binary data (binary_data_size)`},
		{input(`"datatype":"FP32","shape":[1],"data":[1e39]`), "", `input "x": element 0 is 1e39, want a number in the range of FP32`},
		{input(`"datatype":"FP32","shape":[1],"data":["1"]`), "", `input "x": element 0 is "1", want a number`},
		{input(`"datatype":"FP32","shape":[1],"data":[0x1p4]`), "", `input "x": JSON at byte 62 is x1p4, want a comma or ]`},
		{input(`"datatype":"FP32","shape":[1],"data":[.5]`), "", `input "x": element 0 is .5, want a number`},
		{input(`"datatype":"FP32","shape":[1],"data":[5.]`), "", `input "x": element 0 is 5., want a number`},
		{input(`"datatype":"FP16","shape":[1],"data":[1]`), "", `input "x": datatype FP16, which JSON cannot hold: send it as binary data (binary_data_size)`},
		{input(`"datatype":"BF16","shape":[0],"data":[]`), "", `input "x": datatype BF16, which JSON cannot hold: send it as binary data (binary_data_size)`},
		{input(`"datatype":"UINT8","shape":[1],"data":[256]`), "", `input "x": element 0 is 256, want an integer in the range of UINT8`},
		{input(`"datatype":"UINT8","shape":[1],"data":[-1]`), "", `input "x": element 0 is -1, want an integer in the range of UINT8`},
		{input(`"datatype":"INT8","shape":[1],"data":[128]`), "", `input "x": element 0 is 128, want an integer in the range of INT8`},
		{input(`"datatype":"INT32","shape":[1],"data":[2147483648]`), "", `input "x": element 0 is 2147483648, want an integer in the range of INT32`},
		{input(`"datatype":"INT64","shape":[1],"data":[9223372036854775808]`), "", `input "x": element 0 is 9223372036854775808, want an integer in the range of INT64`},
		{input(`"datatype":"UINT64","shape":[1],"data":[18446744073709551616]`), "", `input "x": element 0 is 18446744073709551616, want an integer in the range of UINT64`},
		{input(`"datatype":"INT32","shape":[1],"data":[1.5]`), "", `input "x": element 0 is 1.5, want an integer`},
		{input(`"datatype":"INT32","shape":[1],"data":[true]`), "", `input "x": element 0 is true, want an integer`},
		{input(`"datatype":"BOOL","shape":[1],"data":[1]`), "", `input "x": element 0 is 1, want true or false`},
		{input(`"datatype":"BYTES","shape":[1],"data":[1]`), "", `input "x": element 0 is 1, want a string`},
		{input(`"datatype":"BYTES","shape":[1],"data":[null]`), "", `input "x": element 0 is null, want a string`},
		// binary data
		{input(`"datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}`), "abcd", `input "x": binary_data_size is 8, 4 bytes are left behind the JSON, whose length Inference-Header-Content-Length tells`},
		{input(`"datatype":"FP32","shape":[2],"parameters":{"binary_data_size":10000000000}`), "abcd", `input "x": binary_data_size is 10000000000, 4 bytes are left behind the JSON, whose length Inference-Header-Content-Length tells`},
		{input(`"datatype":"FP32","shape":[2],"parameters":{"binary_data_size":-8}`), "abcd", `input "x": binary_data_size is -8, 4 bytes are left behind the JSON, whose length Inference-Header-Content-Length tells`},
		{input(`"datatype":"FP32","shape":[2],"parameters":{"binary_data_size":4}`), "abcd", `input "x": shape [2] of FP32 has 8 bytes, 4 were sent`},
		{input(`"datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}`), "abcde", `1 bytes are left behind those of the last input`},
		{input(`"datatype":"FP32","shape":[1],"data":[1],"parameters":{"binary_data_size":4}`), "abcd", `input "x": both data and binary_data_size`},
		{input(`"datatype":"FP32","shape":[1],"parameters":{"binary_data_size":"4"}`), "abcd", `input "x": parameter "binary_data_size" is "4", want an integer`},
		{input(`"datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}`), "", `input "x": in shared memory, which is not supported`},
		{input(`"datatype":"BOOL","shape":[1],"parameters":{"binary_data_size":1}`), "\x02", `input "x": bool element 0 has the value 2`},
		{input(`"datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":6}`), "\x02\x00\x00\x00hi", `input "x": shape [2] of BYTES has 2 elements of at least 4 bytes, 6 bytes were sent`},
		{input(`"datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}`), "\x03\x00\x00\x00abc\x01\x00", `input "x": shape [2] has 2 elements, the 9 bytes sent have 1`},
		{input(`"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}`), "\xff\xff\xff\xffhi", `input "x": element 0 has 4294967295 bytes, 2 are left`},
		{input(`"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":7}`), "\x02\x00\x00\x00hi!", `input "x": 1 bytes are left behind the 1 elements of shape [1]`},
		{input(`"datatype":"BYTES","shape":[4294967296],"parameters":{"binary_data_size":4}`), "\x00\x00\x00\x00", `input "x": shape [4294967296] of BYTES has 4294967296 elements of at least 4 bytes, 4 bytes were sent`},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := readBody(c.json, c.raw)
		runtime.ReadMemStats(&after)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v (%+v), want %s", c.json, err, r, c.want)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 100<<10 {
			t.Errorf("%s: took %d bytes", c.json, taken)
		}
	}
}

func TestResponsesThatAreRefused(t *testing.T) {
	for json, want := range map[string]string{
		`{"error":"no such model"}`: `no outputs`,
		`{"model_name":"m","outputs":[{"name":"y","shape":[2],"datatype":"FP32","data":[1]}]}`: `output "y": shape [2] has 2 elements, data has 1`,
		`{"model_version":1,"outputs":[]}`: `model_version is 1, want a string`,
		`{"outputs":[]} {}`:                `JSON at byte 15 is {, want nothing behind the message`,
	} {
		if _, err := oip.ReadResponse([]byte(json), len(json), oip.Limits{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", json, err, want)
		}
	}
	p := responseText(t, `outputs { name: "y" datatype: "FP32" shape: 2 } raw_output_contents: "abcd"`)
	if _, err := oip.FromResponse(p, oip.Limits{}); err == nil || err.Error() != `output "y": shape [2] of FP32 has 8 bytes, 4 were sent` {
		t.Error(err)
	}
}

func TestKindsOfRefusals(t *testing.T) {
	for json, want := range map[string]oip.Kind{
		`{`: oip.Invalid,
		input(`"datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"r"}`): oip.Unsupported,
		strings.Repeat("[", 100):           oip.Invalid,
		`{"a":` + strings.Repeat("[", 100): oip.TooLarge,
	} {
		if _, err := readBody(json, ""); oip.KindOf(err) != want {
			t.Errorf("%s: %v is %v, want %v", json, err, oip.KindOf(err), want)
		}
	}
}

func TestLimits(t *testing.T) {
	two := `{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]},{"name":"s","shape":[2],"datatype":"BYTES","data":["abc","d"]}]}`
	for _, c := range []struct {
		limits oip.Limits
		json   string
		want   string
	}{
		{oip.Limits{Tensors: 4, Bytes: 44, Depth: 4}, two, ""},
		{oip.Limits{Tensors: 1}, `{"inputs":[{},{}]}`, "input 0 has no name"},
		{oip.Limits{Tensors: 4, Bytes: 43}, two, `input "s": the elements take 44 bytes so far, want at most 43`},
		{oip.Limits{Bytes: 7}, two, `input "x": the elements take 8 bytes so far, want at most 7`},
		{oip.Limits{Tensors: 3}, two, `input "x": JSON before byte 60 has an object of more than 3 members`},
		{oip.Limits{Depth: 3}, two, `input "x": JSON at byte 31 nests 4 deep, want at most 3`},
	} {
		_, err := oip.ReadRequest([]byte(c.json), len(c.json), c.limits)
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.limits, err, c.want)
		}
	}
	many := strings.Repeat(`{"name":"x","shape":[0],"datatype":"FP32","data":[]},`, 5000)
	for i, want := range []string{`two inputs have the name "x"`, `the message has more than 1024 inputs`, `the message has more than 1024 outputs`} {
		json := `{"inputs":[` + strings.TrimSuffix(many, ",") + `]}`
		if i > 0 {
			var b strings.Builder
			for n := range 5000 {
				b.WriteString(strings.Replace(strings.TrimSuffix(many[:len(many)/5000], ",")+",", `"x"`, `"x`+strings.Repeat("y", n%71)+strings.Repeat("z", n/71)+`"`, 1))
			}
			if json = `{"inputs":[` + strings.TrimSuffix(b.String(), ",") + `]}`; i == 2 {
				json = `{"outputs":[` + strings.TrimSuffix(b.String(), ",") + `]}`
			}
		}
		if _, err := readBody(json, ""); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestHeaderLengths(t *testing.T) {
	for _, c := range []struct {
		header string
		body   int
		length int
		want   string
	}{
		{"", 10, 10, ""},
		{"10", 10, 10, ""},
		{"0", 10, 0, ""},
		{"11", 10, 0, `Inference-Header-Content-Length is 11, want at most the 10 bytes of the body`},
		{"-1", 10, 0, `Inference-Header-Content-Length is "-1", want a number of bytes`},
		{"9999999999999999999999", 10, 0, `Inference-Header-Content-Length is "9999999999999999999999", want a number of bytes`},
	} {
		n, err := oip.ParseHeaderLength(c.header, c.body)
		if n != c.length || (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%q: %d (%v), want %d (%s)", c.header, n, err, c.length, c.want)
		}
	}
	if _, err := oip.ReadRequest([]byte("{}"), 3, oip.Limits{}); err == nil {
		t.Error("a length beyond the body was taken")
	}
}

func TestMessagesThatAreRefused(t *testing.T) {
	const x = `inputs { name: "x" datatype: "FP32" shape: 2 contents { fp32_contents: [1, 2] } }`
	for text, want := range map[string]string{
		x + x:                         `two inputs have the name "x"`,
		`inputs { datatype: "FP32" }`: `input 0 has no name`,
		x + ` inputs { name: "y" datatype: "FP32" shape: 1 } raw_input_contents: "abcd"`:                                        `2 inputs have 1 raw_input_contents, want one for each or none`,
		x + ` raw_input_contents: "abcdefgh"`:                                                                                   `input "x": both fp32_contents and raw_input_contents`,
		`raw_input_contents: "abcd"`:                                                                                            `0 inputs have 1 raw_input_contents, want one for each or none`,
		`inputs { name: "x" datatype: "FP32" shape: 2 } raw_input_contents: "abcd"`:                                             `input "x": shape [2] of FP32 has 8 bytes, 4 were sent`,
		`inputs { name: "x" datatype: "FP32" shape: 2 }`:                                                                        `input "x": shape [2] of FP32 has 2 elements, fp32_contents has 0`,
		`inputs { name: "x" datatype: "FP32" shape: 3 contents { fp32_contents: [1, 2] } }`:                                     `input "x": shape [3] of FP32 has 3 elements, fp32_contents has 2`,
		`inputs { name: "x" datatype: "FP32" shape: 2 contents { int_contents: [1, 2] } }`:                                      `input "x": shape [2] of FP32 has 2 elements, fp32_contents has 0`,
		`inputs { name: "x" datatype: "FP32" shape: 1 contents { fp32_contents: 1 int_contents: 1 } }`:                          `input "x": more than the fp32_contents that are wanted for FP32`,
		`inputs { name: "x" datatype: "INT64" shape: 0 contents { int_contents: 1 } }`:                                          `input "x": more than the int64_contents that are wanted for INT64`,
		`inputs { name: "x" datatype: "FP16" shape: 1 contents { fp32_contents: 1 } }`:                                          `input "x": datatype FP16, which has no typed contents: send it in raw_input_contents`,
		`inputs { name: "x" datatype: "BF16" shape: 1 }`:                                                                        `input "x": datatype BF16, which has no typed contents: send it in raw_input_contents`,
		`inputs { name: "x" datatype: "FP16" shape: 0 contents { fp32_contents: 1 } }`:                                          `input "x": datatype FP16, which has no typed contents: send it in raw_input_contents`,
		`inputs { name: "x" datatype: "INT8" shape: 1 contents { int_contents: 128 } }`:                                         `input "x": element 0 is 128, want an integer in the range of INT8`,
		`inputs { name: "x" datatype: "UINT16" shape: 2 contents { uint_contents: [0, 65536] } }`:                               `input "x": element 1 is 65536, want an integer in the range of UINT16`,
		`inputs { name: "x" datatype: "FP32" shape: -1 }`:                                                                       `input "x": shape has -1, want a number of elements`,
		`inputs { name: "x" datatype: "FP32" shape: [2147483648, 2147483648] }`:                                                 `input "x": shape [2147483648 2147483648] has too many elements`,
		`inputs { name: "x" datatype: "FP32" shape: [1000000, 1000000] } raw_input_contents: ""`:                                `input "x": shape [1000000,1000000] of FP32 has 4000000000000 bytes, 0 were sent`,
		`inputs { name: "x" datatype: "fp32" }`:                                                                                 `input "x": datatype "fp32", want one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES`,
		`inputs { name: "x" datatype: "BOOL" shape: 1 } raw_input_contents: "\003"`:                                             `input "x": bool element 0 has the value 3`,
		`inputs { name: "x" datatype: "FP32" shape: 0 parameters { key: "shared_memory_region" value { string_param: "r" } } }`: `input "x": in shared memory, which is not supported`,
		`parameters { key: "a" value { } }`:                                                                                     `parameter "a" has no value`,
		`outputs { name: "y" } outputs { name: "y" }`:                                                                           `two outputs have the name "y"`,
		`outputs { name: "y" parameters { key: "classification" value { string_param: "2" } } }`:                                `output "y": parameter "classification" is "2", want an integer`,
	} {
		r, err := oip.FromRequest(requestText(t, text), oip.Limits{})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v (%+v), want %s", text, err, r, want)
		}
	}
	p := requestText(t, x)
	if _, err := oip.FromRequest(p, oip.Limits{Bytes: 7}); oip.KindOf(err) != oip.TooLarge {
		t.Error(err)
	}
	p.Inputs = append(p.Inputs, proto.CloneOf(p.Inputs[0]))
	if _, err := oip.FromRequest(p, oip.Limits{Tensors: 1}); oip.KindOf(err) != oip.TooLarge {
		t.Error(err)
	}
}

func TestOutputsThatJSONCannotHold(t *testing.T) {
	for _, c := range []struct {
		data *tensor.Tensor
		want string
	}{
		{tensor.FromFloat64s(tensor.F32, []float64{1, nan()}, 2), `output "y": element 1 is NaN, which JSON cannot hold: ask for it as binary data (binary_data)`},
		{tensor.FromFloat64s(tensor.F64, []float64{1 / zero()}, 1), `output "y": element 0 is +Inf, which JSON cannot hold: ask for it as binary data (binary_data)`},
		{tensor.FromStrings([]string{"a", "\xff"}, 2), `output "y": element 1 is no UTF-8, which JSON must be: ask for it as binary data (binary_data)`},
		{tensor.New(tensor.C64, 1), `output "y": elements of c64, for which the protocol has no datatype`},
		{nil, `output "y": no data`},
	} {
		if _, err := (&oip.Response{Outputs: []oip.Tensor{{Name: "y", Data: c.data}}}).Body(); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	_, err := (&oip.Request{Inputs: []oip.Tensor{{Name: "x", Data: tensor.From([]float32{float32(nan())}, 1)}}}).Body()
	if want := `input "x": element 0 is NaN, which JSON cannot hold: send it as binary data (binary_data_size)`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func zero() float64 { return 0 }
func nan() float64  { return zero() / zero() }
