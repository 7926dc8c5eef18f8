package serve

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// curl is the client of that name.
type curl struct {
	w      *World
	checks []Check
}

// answer is what curl says of a call.
type answer struct {
	exit, status  int
	version       string // of HTTP
	headers, body string // headers of all answers, that of 100 among them
}

// Curl has curl make the calls over REST.
func Curl(w *World) ([]Check, error) {
	c := &curl{w: w}
	if err := c.files(); err != nil {
		return nil, err
	}
	c.run(c.descriptions())
	c.run(c.repository())
	c.run(c.inference())
	c.run(c.types())
	c.run(c.encodings())
	c.run(c.wrong())
	c.run(c.transport())
	c.run(c.secured())
	c.methods()
	c.waits()
	return c.checks, nil
}

// call runs curl.
func (c *curl) call(url string, args ...string) (a answer, err error) {
	dir, err := os.MkdirTemp(c.w.Dir, "curl")
	if err != nil {
		return a, err
	}
	headers, body := filepath.Join(dir, "headers"), filepath.Join(dir, "body")
	args = append([]string{"-sS", "--max-time", "20", "-D", headers, "-o", body, "-w", "%{http_code} %{http_version}", url}, args...)
	out, err := exec.Command("curl", args...).Output()
	if exit, ok := err.(*exec.ExitError); ok {
		a.exit, err = exit.ExitCode(), nil
	}
	if err != nil {
		return a, err
	}
	status, version, _ := strings.Cut(string(out), " ")
	a.status, _ = strconv.Atoi(status) // 000 without an answer
	a.version = version
	for path, into := range map[string]*string{headers: &a.headers, body: &a.body} {
		if b, err := os.ReadFile(path); err == nil { // there is none without a body
			*into = string(b)
		}
	}
	return a, nil
}

// curlCheck is a call, and what has to come of it.
type curlCheck struct {
	call, what string
	url        string // from / on at the open server
	args       []string
	status     int    // 0 where there is no answer
	want       string // JSON that the answer has to hold, or "error"
	body       string // the whole answer, where that is no JSON
	has        string // an expression that the answer or its headers match
	version    string // of HTTP
}

// run makes calls.
func (c *curl) run(list []curlCheck) {
	for _, x := range list {
		url := x.url
		if strings.HasPrefix(url, "/") {
			url = "http://" + c.w.Open.HTTP + url
		}
		a, err := c.call(url, x.args...)
		wrong := ""
		if err != nil {
			wrong = err.Error()
		} else {
			wrong = x.judge(a)
		}
		c.add(x.call, x.what, wrong)
	}
}

func (c *curl) add(call, what, wrong string) {
	c.checks = append(c.checks, Check{Call: call, What: what, Wrong: wrong})
}

// judge says what is wrong with an answer.
func (x *curlCheck) judge(a answer) string {
	switch {
	case a.status != x.status || (a.exit == 0) != (x.status != 0):
		return fmt.Sprintf("status %d, exit status %d: %.300s, want %d", a.status, a.exit, a.body, x.status)
	case x.version != "" && a.version != x.version:
		return fmt.Sprintf("HTTP %s, want %s", a.version, x.version)
	case x.body != "" && a.body != x.body:
		return fmt.Sprintf("%.300q, want %.300q", a.body, x.body)
	case x.has != "" && !regexp.MustCompile(x.has).MatchString(a.headers+a.body):
		return fmt.Sprintf("%s%.300s, want %s", a.headers, a.body, x.has)
	case x.want == "error":
		return isError(a.body)
	case x.want != "":
		return holdsText(a.body, x.want)
	}
	return ""
}

// descriptions ask for what the server and its models are.
func (c *curl) descriptions() []curlCheck {
	const line = `{"name":"line","versions":["1","2"],"inputs":[{"name":"x","datatype":"FP32","shape":[-1,3]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,3]}]}`
	const numbers = `{"name":"line","version":"%s","inference_stats":{"success":{},"fail":{},"queue":{},"compute_input":{},"compute_infer":{},"compute_output":{},"cache_hit":{},"cache_miss":{}}}`
	const config = `{"name":"line","platform":"spc_spx","max_batch_size":16,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[3]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[3]}],"dynamic_batching":{"max_queue_delay_microseconds":0}}`
	return []curlCheck{
		{call: "GET /v2", what: "name and extensions", url: "/v2", status: 200,
			want: `{"name":"spc","extensions":["binary_tensor_data","classification","model_configuration","model_repository","sequence","statistics"]}`},
		{call: "GET /v2", what: "the type is JSON", url: "/v2", status: 200, has: `(?i)content-type: application/json\r\n`},
		{call: "GET /v2/health/live", what: "live", url: "/v2/health/live", status: 200, want: `{"live":true}`},
		{call: "GET /v2/health/ready", what: "ready", url: "/v2/health/ready", status: 200, want: `{"live":true,"ready":true}`},
		{call: "GET /v2/models/M", what: "inputs and outputs", url: "/v2/models/line", status: 200, want: line},
		{call: "GET /v2/models/M", what: "of a version", url: "/v2/models/line/versions/1", status: 200, want: line},
		{call: "GET /v2/models/M", what: "a name with a space", url: "/v2/models/two%20words", status: 200, want: `{"name":"two words"}`},
		{call: "GET /v2/models/M", what: "an unknown model", url: "/v2/models/none", status: 404, want: "error"},
		{call: "GET /v2/models/M", what: "an unknown version", url: "/v2/models/line/versions/3", status: 404, want: "error"},
		{call: "GET /v2/models/M", what: "a model that does not load", url: "/v2/models/bad", status: 503, want: "error"},
		{call: "GET /v2/models/M/ready", what: "ready", url: "/v2/models/line/ready", status: 200, want: `{"name":"line","ready":true}`},
		{call: "GET /v2/models/M/ready", what: "of a version", url: "/v2/models/line/versions/2/ready", status: 200, want: `{"name":"line","ready":true}`},
		{call: "GET /v2/models/M/ready", what: "a model that does not load", url: "/v2/models/bad/ready", status: 503, want: `{"name":"bad","ready":false}`},
		{call: "GET /v2/models/M/ready", what: "an unknown model", url: "/v2/models/none/ready", status: 404, want: "error"},
		{call: "GET /v2/models/M/config", what: "how it is served", url: "/v2/models/line/config", status: 200, want: config},
		{call: "GET /v2/models/M/config", what: "of a version", url: "/v2/models/line/versions/1/config", status: 200, want: config},
		{call: "GET /v2/models/M/config", what: "an unknown model", url: "/v2/models/none/config", status: 404, want: "error"},
		{call: "GET /v2/models/M/stats", what: "each version", url: "/v2/models/line/stats", status: 200,
			want: fmt.Sprintf(`{"model_stats":[`+numbers+","+numbers+`]}`, "1", "2")},
		{call: "GET /v2/models/M/stats", what: "of a version", url: "/v2/models/line/versions/2/stats", status: 200, want: fmt.Sprintf(`{"model_stats":[`+numbers+`]}`, "2")},
		{call: "GET /v2/models/M/stats", what: "an unknown model", url: "/v2/models/none/stats", status: 404, want: "error"},
		{call: "GET /v2/models/stats", what: "all models", url: "/v2/models/stats", status: 200, has: `"name":"BF16"(.|\n)*"name":"line"(.|\n)*"name":"two words"`},
		{call: "GET /metrics", what: "Triton's names", url: "/metrics", status: 200, has: `(?m)^nv_inference_request_success\{model="line",version="1"\} \d+$`},
		{call: "GET /metrics", what: "Go's names", url: "/metrics", status: 200, has: `(?m)^go_goroutines \d+$`},
	}
}

// repository loads and unloads.
func (c *curl) repository() []curlCheck {
	const load, unload = "POST /v2/repository/models/M/load", "POST /v2/repository/models/M/unload"
	post := []string{"-X", "POST"}
	body := func(s string) []string { return []string{"--json", s} }
	return []curlCheck{
		{call: "POST /v2/repository/index", what: "an empty body", url: "/v2/repository/index", args: post, status: 200, has: `\{"name":"bad","version":"1","state":"UNAVAILABLE","reason":"[^"]+"\}`},
		{call: "POST /v2/repository/index", what: "those that are ready", url: "/v2/repository/index", args: body(`{"ready":true}`), status: 200, has: `^[^$]*\[\{"name":"BF16","version":"1","state":"READY","reason":""\},`},
		{call: "POST /v2/repository/index", what: "no JSON", url: "/v2/repository/index", args: body(`{"ready"`), status: 400, want: "error"},
		{call: unload, what: "a model", url: "/v2/repository/models/spare/unload", args: post, status: 200, want: "{}"},
		{call: "GET /v2/models/M/ready", what: "an unloaded model", url: "/v2/models/spare/ready", status: 503, want: `{"ready":false}`},
		{call: "POST /v2/models/M/infer", what: "an unloaded model", url: "/v2/models/spare/infer", args: body(row), status: 503, want: "error"},
		{call: load, what: "a model", url: "/v2/repository/models/spare/load", args: body("{}"), status: 200, want: "{}"},
		{call: "POST /v2/models/M/infer", what: "a model that was loaded again", url: "/v2/models/spare/infer", args: body(row), status: 200, want: `{"outputs":[{"data":[3,5,7]}]}`},
		{call: load, what: "a file that is no model", url: "/v2/repository/models/bad/load", args: post, status: 400, want: "error"},
		{call: load, what: "an unknown model", url: "/v2/repository/models/none/load", args: post, status: 404, want: "error"},
		{call: unload, what: "an unknown model", url: "/v2/repository/models/none/unload", args: post, status: 404, want: "error"},
		{call: load, what: "with a configuration", url: "/v2/repository/models/spare/load", args: body(`{"parameters":{"config":"{}"}}`), status: 501, want: "error"},
	}
}

// row is a request of one row for line, whose version 1 makes 3, 5, 7 of it, and version 2 makes 2, 5, 8.
const row = `{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`

// inference runs models.
func (c *curl) inference() []curlCheck {
	const call = "POST /v2/models/M/infer"
	in := func(what, url, body string, status int, want string) curlCheck {
		return curlCheck{call: call, what: what, url: url, args: []string{"--json", body}, status: status, want: want}
	}
	sum := func(x string) string {
		return `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,10]}],"parameters":{"sequence_id":7` + x + `}}`
	}
	return []curlCheck{
		in("the newest version", "/v2/models/line/infer", row, 200, `{"model_name":"line","model_version":"2","outputs":[{"name":"y","shape":[1,3],"datatype":"FP32","data":[2,5,8]}]}`),
		in("of a version", "/v2/models/line/versions/1/infer", row, 200, `{"model_version":"1","outputs":[{"data":[3,5,7]}]}`),
		in("a name with a space", "/v2/models/two%20words/infer", row, 200, `{"outputs":[{"data":[1,2,3]}]}`),
		in("nested rows, an id, an output by its name", "/v2/models/line/versions/1/infer",
			`{"id":"a b","parameters":{"unknown":true},"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[[1,2,3],[-1,0.5,1e3]]}],"outputs":[{"name":"y"}]}`, 200,
			`{"id":"a b","outputs":[{"name":"y","shape":[2,3],"data":[3,5,7,-1,2,2001]}]}`),
		in("no rows", "/v2/models/line/versions/1/infer", `{"inputs":[{"name":"x","shape":[0,3],"datatype":"FP32","data":[]}]}`, 200, `{"outputs":[{"shape":[0,3],"data":[]}]}`),
		in("classes", "/v2/models/line/versions/1/infer", strings.Replace(row, "]}]}", `]}],"outputs":[{"name":"y","parameters":{"classification":2}}]}`, 1), 200,
			`{"outputs":[{"name":"y","datatype":"BYTES","shape":[1,2],"data":["7:2","5:1"]}]}`),
		in("a sequence begins", "/v2/models/sums/infer", sum(`,"sequence_start":true`), 200, `{"outputs":[{"name":"after","data":[1,10]}]}`),
		in("a sequence goes on", "/v2/models/sums/infer", sum(""), 200, `{"outputs":[{"data":[2,20]}]}`),
		in("a sequence ends", "/v2/models/sums/infer", sum(`,"sequence_end":true`), 200, `{"outputs":[{"data":[3,30]}]}`),
		in("a sequence that has ended", "/v2/models/sums/infer", sum(""), 400, "error"),
		{call: call, what: "a form's type", url: "/v2/models/line/infer", args: []string{"-d", row}, status: 200, want: `{"outputs":[{"data":[2,5,8]}]}`},
		{call: call, what: "JSON with its length, as Triton's client in C++ sends it", url: "/v2/models/line/infer", status: 200, want: `{"outputs":[{"data":[2,5,8]}]}`,
			args: []string{"--data-binary", row, "-H", fmt.Sprintf("Inference-Header-Content-Length: %d", len(row)), "-H", "Expect:", "-H", "Content-Type: application/json", "-A", "libcurl-agent/1.0"}},
		{call: call, what: "no type", url: "/v2/models/line/infer", args: []string{"-d", row, "-H", "Content-Type:"}, status: 200, want: `{"outputs":[{"data":[2,5,8]}]}`},
	}
}

// values are two elements of each type: as JSON, and as bytes.
var values = []struct {
	of, json string
	raw      []byte
}{
	{"BOOL", "true,false", []byte{1, 0}},
	{"UINT8", "1,255", []byte{1, 255}},
	{"UINT16", "1,65535", []byte{1, 0, 255, 255}},
	{"UINT32", "1,4294967295", []byte{1, 0, 0, 0, 255, 255, 255, 255}},
	{"UINT64", "1,18446744073709551615", []byte{1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}},
	{"INT8", "-128,127", []byte{128, 127}},
	{"INT16", "-32768,32767", []byte{0, 128, 255, 127}},
	{"INT32", "-2147483648,2147483647", []byte{0, 0, 0, 128, 255, 255, 255, 127}},
	{"INT64", "-9223372036854775808,9223372036854775807", []byte{0, 0, 0, 0, 0, 0, 0, 128, 255, 255, 255, 255, 255, 255, 255, 127}},
	{"FP16", "", []byte{0, 0x3c, 0, 0xc0}},
	{"BF16", "", []byte{0x80, 0x3f, 0, 0xc0}},
	{"FP32", "0.5,-2", binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.5)), math.Float32bits(-2))},
	{"FP64", "0.1,-2", binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.1)), math.Float64bits(-2))},
	{"BYTES", `"a","gr\u00fcn"`, []byte("\x01\x00\x00\x00a\x05\x00\x00\x00gr\xc3\xbcn")},
}

// types sends each type as JSON and as bytes.
func (c *curl) types() (list []curlCheck) {
	const call = "POST /v2/models/M/infer"
	for _, v := range values {
		x := curlCheck{call: call, what: v.of + " as JSON", url: "/v2/models/" + v.of + "/infer", status: 200, want: fmt.Sprintf(`{"outputs":[{"datatype":%q,"shape":[1,4],"data":[%s,%[2]s]}]}`, v.of, v.json)}
		x.args = []string{"--json", fmt.Sprintf(`{"inputs":[{"name":"x","shape":[1,2],"datatype":%q,"data":[%s]}]}`, v.of, v.json)}
		if v.json == "" { // for which the protocol has no form
			x.what, x.status, x.want = v.of+" as JSON is refused", 400, "error"
			x.args[1] = strings.Replace(x.args[1], `"data":[]`, `"data":[1,-2]`, 1)
		}
		header := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[1,2],"datatype":%q,"parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, v.of, len(v.raw))
		reply := fmt.Sprintf(`{"model_name":%q,"model_version":"1","outputs":[{"name":"y","shape":[1,4],"datatype":%[1]q,"parameters":{"binary_data_size":%d}}]}`, v.of, 2*len(v.raw))
		b := curlCheck{call: call, what: v.of + " as bytes", url: x.url, status: 200, has: `(?i)inference-header-content-length: \d+\r\n`}
		b.args = []string{"--data-binary", "@" + c.path(v.of), "-H", "Content-Type: application/octet-stream", "-H", fmt.Sprintf("Inference-Header-Content-Length: %d", len(header))}
		b.body = reply + strings.Repeat(" ", -len(reply)&7) + string(v.raw) + string(v.raw)
		list = append(list, x, b)
	}
	return list
}

func (c *curl) path(name string) string { return filepath.Join(c.w.Dir, "body-"+name) }

// manyRows is as many rows of line as make an answer that is worth compressing.
func manyRows(rows int) (request, data string) {
	var in, out strings.Builder
	for i := range 3 * rows {
		if i > 0 {
			in.WriteByte(',')
			out.WriteByte(',')
		}
		fmt.Fprint(&in, i)
		fmt.Fprint(&out, 2*i+1)
	}
	return fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d,3],"datatype":"FP32","data":[%s]}]}`, rows, &in), out.String()
}

// files writes the bodies of requests.
func (c *curl) files() error {
	many, _ := manyRows(2000)
	bodies := map[string][]byte{"many": []byte(many), "large": bytes.Repeat([]byte(" "), 9<<20)}
	for _, v := range values {
		header := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[1,2],"datatype":%q,"parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, v.of, len(v.raw))
		bodies[v.of] = append([]byte(header), v.raw...)
	}
	var gz, zl bytes.Buffer
	g, z := gzip.NewWriter(&gz), zlib.NewWriter(&zl)
	for name, b := range map[string][]byte{"gzip": []byte(many), "bomb": bytes.Repeat([]byte(" "), 64<<20)} {
		gz.Reset()
		g.Reset(&gz)
		if _, err := g.Write(b); err != nil {
			return err
		}
		if err := g.Close(); err != nil {
			return err
		}
		bodies[name] = bytes.Clone(gz.Bytes())
	}
	if _, err := z.Write([]byte(many)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	bodies["deflate"] = zl.Bytes()
	for name, b := range bodies {
		if err := os.WriteFile(c.path(name), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// encodings are forms in which the same request comes.
func (c *curl) encodings() []curlCheck {
	_, data := manyRows(2000)
	whole := fmt.Sprintf(`{"outputs":[{"shape":[2000,3],"data":[%s]}]}`, data)
	in := func(what, file, has string, status int, args ...string) curlCheck {
		x := curlCheck{call: "POST /v2/models/M/infer", what: what, url: "/v2/models/line/versions/1/infer", status: status, has: has, want: whole}
		if status != 200 {
			x.want = "error"
		}
		x.args = append([]string{"--data-binary", "@" + c.path(file)}, args...)
		return x
	}
	return []curlCheck{
		in("a body of gzip", "gzip", "", 200, "-H", "Content-Encoding: gzip"),
		in("a body of deflate", "deflate", "", 200, "-H", "Content-Encoding: deflate"),
		in("an answer of gzip", "many", `(?i)content-encoding: gzip\r\n`, 200, "--compressed"),
		in("an answer of deflate, which it may be and is not", "many", "", 200, "-H", "Accept-Encoding: deflate"),
		in("in chunks", "many", "", 200, "-H", "Transfer-Encoding: chunked"),
		in("gzip in chunks, both ways", "gzip", `(?i)content-encoding: gzip\r\n`, 200, "-H", "Transfer-Encoding: chunked", "-H", "Content-Encoding: gzip", "--compressed"),
		in("after 100 Continue", "many", `^HTTP/1.1 100 Continue\r\n`, 200, "-H", "Expect: 100-continue"),
		in("by HTTP/1.0", "many", `^HTTP/1.0 200 OK\r\n`, 200, "--http1.0"),
		in("a body that is too large", "large", "", 413),
		in("a body that is too large, in chunks", "large", "", 413, "-H", "Transfer-Encoding: chunked"),
		in("a body that is too large once it is no longer compressed", "bomb", "", 413, "-H", "Content-Encoding: gzip"),
		in("a body that is no gzip", "many", "", 400, "-H", "Content-Encoding: gzip"),
		in("an unknown encoding", "many", "", 400, "-H", "Content-Encoding: br"),
	}
}

// wrong are requests that are refused.
func (c *curl) wrong() (list []curlCheck) {
	bodies := map[string]string{
		"no JSON": `{"inputs":[`, "nothing": "", "no inputs": `{}`, "an unknown input": strings.Replace(row, `"x"`, `"z"`, 1), "a wrong type": strings.Replace(row, "FP32", "INT32", 1),
		"an unknown type": strings.Replace(row, "FP32", "FP31", 1), "a wrong shape": strings.Replace(row, "[1,3]", "[3,1]", 1), "too few elements": strings.Replace(row, "[1,3]", "[2,3]", 1),
		"a shape of 2^62 elements": strings.Replace(row, "[1,3]", "[2147483648,2147483648]", 1), "an unknown output": strings.Replace(row, `]}]}`, `]}],"outputs":[{"name":"z"}]}`, 1),
		"deep JSON": strings.Repeat("[", 1000), "an input twice": strings.Replace(row, `{"name"`, `{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]},{"name"`, 1),
	}
	for _, what := range slices.Sorted(maps.Keys(bodies)) {
		list = append(list, curlCheck{call: "POST /v2/models/M/infer", what: "refused: " + what, url: "/v2/models/line/infer", args: []string{"--data-binary", bodies[what]}, status: 400, want: "error"})
	}
	list = append(list, curlCheck{call: "POST /v2/models/M/infer", what: "refused: bytes without their length", url: "/v2/models/FP32/infer", args: []string{"--data-binary", "@" + c.path("FP32")}, status: 400, want: "error"},
		curlCheck{call: "POST /v2/models/M/infer", what: "refused: a length beyond the body", url: "/v2/models/FP32/infer",
			args: []string{"--data-binary", "@" + c.path("FP32"), "-H", "Inference-Header-Content-Length: 100000"}, status: 400, want: "error"},
		curlCheck{call: "POST /v2/models/M/infer", what: "an unknown model", url: "/v2/models/none/infer", args: []string{"-d", row}, status: 404, want: "error"},
		curlCheck{call: "POST /v2/models/M/infer", what: "an unknown version", url: "/v2/models/line/versions/x/infer", args: []string{"-d", row}, status: 404, want: "error"},
		curlCheck{call: "POST /v2/models/M/infer", what: "a model that does not load", url: "/v2/models/bad/infer", args: []string{"-d", row}, status: 503, want: "error"})
	for _, path := range []string{"/v1/models/line", "/v2/models", "/v2/models/line/generate", "/v2/logging", "/v2/trace/setting", "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status", "/v2/models/line/versions"} {
		list = append(list, curlCheck{call: NoPath, what: path, url: path, status: 404, want: "error"})
	}
	return list
}

// transport is HTTP by its versions, and over sockets.
func (c *curl) transport() []curlCheck {
	unix := []string{"--unix-socket", strings.TrimPrefix(c.w.Unix.HTTP, "unix:")}
	return []curlCheck{
		{call: "GET /v2", what: "by HTTP/1.1", url: "/v2", args: []string{"--http1.1"}, status: 200, want: `{"name":"spc"}`, version: "1.1"},
		{call: "GET /v2", what: "by HTTP/1.0", url: "/v2", args: []string{"--http1.0"}, status: 200, want: `{"name":"spc"}`, has: `^HTTP/1.0 200`},
		{call: "GET /v2", what: "what offers HTTP/2 in the clear is answered by HTTP/1.1", url: "/v2", args: []string{"--http2"}, status: 200, want: `{"name":"spc"}`, version: "1.1"},
		{call: "GET /v2", what: "HTTP/2 in the clear from the first byte on is refused", url: "/v2", args: []string{"--http2-prior-knowledge"}},
		{call: "GET /v2", what: "at a socket", url: "http://localhost/v2", args: unix, status: 200, want: `{"name":"spc"}`},
		{call: "POST /v2/models/M/infer", what: "at a socket", url: "http://localhost/v2/models/line/infer", args: append([]string{"-d", row}, unix...), status: 200, want: `{"outputs":[{"data":[2,5,8]}]}`},
		{call: "POST /v2/repository/index", what: "without --admin", url: "http://localhost/v2/repository/index", args: append([]string{"-X", "POST"}, unix...), status: 200, has: `"name":"line"`},
		{call: "POST /v2/repository/models/M/load", what: "without --admin", url: "http://localhost/v2/repository/models/spare/load", args: append([]string{"-X", "POST"}, unix...), status: 501, want: "error"},
		{call: "POST /v2/repository/models/M/unload", what: "without --admin", url: "http://localhost/v2/repository/models/spare/unload", args: append([]string{"-X", "POST"}, unix...), status: 501, want: "error"},
	}
}

// secured is TLS, with a certificate of the client's, and tokens.
func (c *curl) secured() []curlCheck {
	at := "https://" + c.w.Closed.HTTP
	cert := []string{"--cacert", c.w.CA, "--cert", c.w.Cert, "--key", c.w.Key}
	with := func(args ...string) []string { return append(args, cert...) }
	token := "Authorization: Bearer " + c.w.Token
	return []curlCheck{
		{call: "GET /v2", what: "TLS, a certificate and a token", url: at + "/v2", args: with("-H", token), status: 200, want: `{"name":"spc"}`, version: "2"},
		{call: "GET /v2", what: "TLS by HTTP/1.1", url: at + "/v2", args: with("-H", token, "--http1.1"), status: 200, want: `{"name":"spc"}`, version: "1.1"},
		{call: "GET /v2", what: "no token", url: at + "/v2", args: with(), status: 401, want: "error", has: `(?i)www-authenticate: bearer\r\n`},
		{call: "GET /v2", what: "a wrong token", url: at + "/v2", args: with("-H", token+"x"), status: 401, want: "error"},
		{call: "GET /v2", what: "no certificate of the client's", url: at + "/v2", args: []string{"--cacert", c.w.CA, "-H", token}},
		{call: "GET /v2", what: "a certificate that curl does not know", url: at + "/v2", args: []string{"--cert", c.w.Cert, "--key", c.w.Key, "-H", token}},
		{call: "GET /v2", what: "TLS 1.1", url: at + "/v2", args: with("-H", token, "--tls-max", "1.1")},
		{call: "GET /v2", what: "HTTP where TLS is", url: "http://" + c.w.Closed.HTTP + "/v2", status: 400},
		{call: "GET /v2/health/live", what: "without a token", url: at + "/v2/health/live", args: with(), status: 200, want: `{"live":true}`},
		{call: "GET /v2/health/ready", what: "without a token", url: at + "/v2/health/ready", args: with(), status: 200, want: `{"ready":true}`},
		{call: "GET /metrics", what: "no token", url: at + "/metrics", args: with(), status: 401, want: "error"},
		{call: "POST /v2/models/M/infer", what: "no token", url: at + "/v2/models/line/infer", args: with("-d", row), status: 401, want: "error"},
		{call: "POST /v2/models/M/infer", what: "TLS, a certificate and a token", url: at + "/v2/models/line/infer", args: with("-d", row, "-H", token), status: 200, want: `{"outputs":[{"data":[2,5,8]}]}`},
	}
}

// methods asks each path by each method.
func (c *curl) methods() {
	for _, call := range Calls {
		right, path, ok := strings.Cut(call.Name, " /")
		if !ok {
			continue
		}
		paths := []string{"/" + strings.Replace(path, "/M", "/spare", 1)}
		if strings.HasPrefix(path, "v2/models/M") {
			paths = append(paths, strings.Replace("/"+path, "/M", "/spare/versions/1", 1))
		}
		for _, p := range paths {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FROB"} {
				if method != right {
					c.method(call.Name, p, right, method)
				}
			}
		}
	}
}

// method asks by a method that is not the right one: HEAD is answered as GET is, without a body.
func (c *curl) method(call, path, right, method string) {
	args := []string{"-X", method}
	if method == "HEAD" {
		args = []string{"-I"}
	}
	a, err := c.call("http://"+c.w.Open.HTTP+path, args...)
	want, wrong := 405, ""
	if method == "HEAD" && right == "GET" {
		want = 200
	}
	switch {
	case err != nil:
		wrong = err.Error()
	case a.status != want:
		wrong = fmt.Sprintf("status %d, want %d", a.status, want)
	case want == 405 && !strings.Contains(strings.ToLower(a.headers), "\r\nallow: "+strings.ToLower(right)):
		wrong = "no header Allow: " + right
	case want == 405 && method != "HEAD":
		wrong = isError(a.body)
	}
	c.add(call, method+" "+path, wrong)
}

// waits are requests that wait: for longer than they, the model or the client may, or while others do.
func (c *curl) waits() {
	const call = "POST /v2/models/M/infer"
	c.run([]curlCheck{
		{call: call, what: "the parameter timeout is over", url: "/v2/models/late/infer", args: []string{"-d", strings.Replace(row, `"inputs"`, `"parameters":{"timeout":100000},"inputs"`, 1)}, status: 504, want: "error"},
		{call: call, what: "the queue's time is over", url: "/v2/models/expires/infer", args: []string{"-d", row}, status: 503, want: "error", has: `(?i)retry-after: \d+\r\n`},
		{call: call, what: "the client leaves", url: "/v2/models/late/infer", args: []string{"-d", row, "--max-time", "0.8"}},
	})
	c.add(call, "the server sees that the client has left", c.left())
	unix := []string{"--unix-socket", strings.TrimPrefix(c.w.Unix.HTTP, "unix:")}
	c.add(call, "a queue that is full", c.crowd("http://"+c.w.Open.HTTP+"/v2/models/narrow/infer"))
	c.add(call, "more requests than --max-requests", c.crowd("http://localhost/v2/models/late/infer", unix...))
}

// left waits until the requests for late that did not end well are two: one whose time was over, and one whose client has left.
func (c *curl) left() (wrong string) {
	for range 50 {
		a, err := c.call("http://" + c.w.Open.HTTP + "/v2/models/late/stats")
		if err != nil {
			return err.Error()
		}
		if wrong = holdsText(a.body, `{"model_stats":[{"inference_stats":{"success":{"count":0},"fail":{"count":2}}}]}`); wrong == "" {
			return ""
		}
		time.Sleep(20 * time.Millisecond)
	}
	return wrong
}

// crowd sends two requests at a time, one of which is refused with 429 and the other answered.
func (c *curl) crowd(url string, args ...string) string {
	var answers [2]answer
	var errs [2]error
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i], errs[i] = c.call(url, append([]string{"-d", row}, args...)...) })
	}
	wg.Wait()
	status := map[int]bool{}
	for i, a := range answers {
		if errs[i] != nil {
			return errs[i].Error()
		}
		status[a.status] = true
		if wrong := isError(a.body); a.status == 429 && wrong != "" {
			return wrong
		}
	}
	if !status[200] || !status[429] {
		return fmt.Sprintf("%v, want one of 200 and one of 429", status)
	}
	return ""
}
