package serve

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// grpcurl is the client of that name, which learns from the server's reflection what calls there are.
type grpcurl struct {
	w       *World
	program string
	checks  []Check
}

// The services, as grpcurl lists them.
const (
	inference = "inference.GRPCInferenceService"
	health    = "grpc.health.v1.Health"
)

// grpcurlCheck is a call, and what has to come of it.
type grpcurlCheck struct {
	call, what string
	method     string   // of a service, behind which it is written; empty for call of inference
	body       string   // JSON, one message or several
	args       []string // those of a connection in the clear where there are none
	at         string   // the open server, where empty
	want       string   // JSON that the answer holds; of several messages a list
	code       int      // of an error
	text       string   // that the error's message has
}

// Grpcurl has grpcurl make the calls over gRPC.
func Grpcurl(program string) func(w *World) ([]Check, error) {
	return func(w *World) ([]Check, error) {
		g := &grpcurl{w: w, program: program}
		g.reflection()
		for _, list := range [][]grpcurlCheck{g.descriptions(), g.inference(), g.errors(), g.repository(), g.secured()} {
			for _, x := range list {
				wrong, err := g.call(x)
				if err != nil {
					return nil, err
				}
				g.checks = append(g.checks, Check{Call: x.call, What: x.what, Wrong: wrong})
			}
		}
		return g.checks, nil
	}
}

// run runs the program.
func (g *grpcurl) run(args ...string) (stdout, stderr string, exit int, err error) {
	var out, log bytes.Buffer
	c := exec.Command(g.program, args...)
	c.Stdout, c.Stderr = &out, &log
	err = c.Run()
	if e, ok := err.(*exec.ExitError); ok {
		exit, err = e.ExitCode(), nil
	}
	return out.String(), log.String(), exit, err
}

// clear are the flags of a connection without TLS.
var clear = []string{"-plaintext"}

// call makes a call and says what is wrong with what came.
func (g *grpcurl) call(x grpcurlCheck) (wrong string, err error) {
	args, at, method := x.args, x.at, x.method
	if args == nil {
		args = clear
	}
	if at == "" {
		at = g.w.Open.GRPC
	}
	if method == "" {
		method = inference + "/" + x.call
	}
	wait := "10"
	if x.code == 0 && x.want == "" {
		wait = "1"
	}
	args = append(slices.Clone(args), "-format-error", "-emit-defaults", "-connect-timeout", wait, "-d", x.body, at, method)
	out, log, exit, err := g.run(args...)
	if err != nil {
		return "", err
	}
	if x.code != 0 { // with which grpcurl's status is 64 more
		var e struct {
			Code    int
			Message string
		}
		if i := strings.Index(log, "{"); i < 0 || json.Unmarshal([]byte(log[i:]), &e) != nil || exit != 64+x.code || e.Code != x.code || !strings.Contains(e.Message, x.text) {
			return fmt.Sprintf("exit status %d: %.300s, want code %d with %s", exit, log, x.code, x.text), nil
		}
	} else if x.want == "" { // nothing comes of it
		if exit == 0 {
			return fmt.Sprintf("%.300s, want no answer", out), nil
		}
		return "", nil
	} else if exit != 0 {
		return fmt.Sprintf("exit status %d: %.300s", exit, log), nil
	}
	if x.want == "" {
		return "", nil
	}
	if strings.HasPrefix(x.want, "[") {
		out = "[" + strings.ReplaceAll(strings.TrimSpace(out), "\n}\n{", "\n},\n{") + "]"
	}
	return holdsText(out, x.want), nil
}

// messages are fields of the specification's messages, as grpcurl prints them.
var messages = map[string][]string{
	"ModelInferRequest": {"string model_name = 1;", "string model_version = 2;", "string id = 3;", "map<string, .inference.InferParameter> parameters = 4;",
		"repeated .inference.ModelInferRequest.InferInputTensor inputs = 5;", "repeated .inference.ModelInferRequest.InferRequestedOutputTensor outputs = 6;",
		"repeated bytes raw_input_contents = 7;", "string datatype = 2;", "repeated int64 shape = 3;", ".inference.InferTensorContents contents = 5;"},
	"ModelInferResponse": {"string model_name = 1;", "string model_version = 2;", "string id = 3;", "map<string, .inference.InferParameter> parameters = 4;",
		"repeated .inference.ModelInferResponse.InferOutputTensor outputs = 5;", "repeated bytes raw_output_contents = 6;"},
	"InferTensorContents": {"repeated bool bool_contents = 1;", "repeated int32 int_contents = 2;", "repeated int64 int64_contents = 3;", "repeated uint32 uint_contents = 4;",
		"repeated uint64 uint64_contents = 5;", "repeated float fp32_contents = 6;", "repeated double fp64_contents = 7;", "repeated bytes bytes_contents = 8;"},
	"InferParameter":         {"bool bool_param = 1;", "int64 int64_param = 2;", "string string_param = 3;", "double double_param = 4;", "uint64 uint64_param = 5;"},
	"ModelMetadataResponse":  {"string name = 1;", "repeated string versions = 2;", "string platform = 3;", "inputs = 4;", "outputs = 5;", "map<string, string> properties = 6;"},
	"ServerMetadataResponse": {"string name = 1;", "string version = 2;", "repeated string extensions = 3;"},
	"ModelReadyRequest":      {"string name = 1;", "string version = 2;"},
	"ServerReadyResponse":    {"bool ready = 1;"}, "ServerLiveResponse": {"bool live = 1;"}, "ModelReadyResponse": {"bool ready = 1;"},
}

// reflection lists the services and their methods, and describes messages.
func (g *grpcurl) reflection() {
	add := func(what, wrong string) {
		g.checks = append(g.checks, Check{Call: "ServerReflection", What: what, Wrong: wrong})
	}
	list := func(what string, want []string, args ...string) {
		out, log, _, err := g.run(append([]string{"-plaintext", g.w.Open.GRPC}, args...)...)
		got := strings.Fields(out)
		slices.Sort(want)
		if wrong := fmt.Sprintf("%v %s %v, want %v", got, log, err, want); err != nil || !slices.Equal(got, want) {
			add(what, wrong)
			return
		}
		add(what, "")
	}
	list("lists the services", []string{health, "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", inference}, "list")
	var methods []string
	for _, c := range Calls {
		if c.From != Standard && c.Name != NoMethod && !strings.Contains(c.Name, " ") {
			methods = append(methods, inference+"."+c.Name)
		}
	}
	list("lists the methods", methods, "list", inference)
	for _, name := range slices.Sorted(maps.Keys(messages)) {
		out, log, _, err := g.run("-plaintext", g.w.Open.GRPC, "describe", "inference."+name)
		wrong := log
		if err != nil {
			wrong = err.Error()
		}
		for _, l := range messages[name] {
			if !strings.Contains(out, " "+l+"\n") {
				wrong += "no " + l + " "
			}
		}
		add("describes "+name, wrong)
	}
	out, log, _, err := g.run("-plaintext", g.w.Open.GRPC, "describe", inference)
	wrong := ""
	if want := "rpc ModelStreamInfer ( stream .inference.ModelInferRequest ) returns ( stream .inference.ModelStreamInferResponse );"; err != nil || !strings.Contains(out, want) {
		wrong = fmt.Sprintf("%s%s %v, want %s", out, log, err, want)
	}
	add("describes the service", wrong)
}

// descriptions ask for what the server and its models are. 64-bit integers are strings in the JSON of protocol buffers.
func (g *grpcurl) descriptions() []grpcurlCheck {
	const tensor = `[{"name":"%s","datatype":"FP32","shape":["-1","3"]}]`
	zero := func(name string) string { return `"` + name + `":{"count":"0","ns":"0"}` }
	return []grpcurlCheck{
		{call: "ServerLive", what: "live", want: `{"live":true}`},
		{call: "ServerReady", what: "ready", want: `{"ready":true}`},
		{call: "ServerMetadata", what: "name and extensions", want: `{"name":"spc","extensions":["binary_tensor_data","classification","model_configuration","model_repository","sequence","statistics"]}`},
		{call: "ModelReady", what: "ready", body: `{"name":"line"}`, want: `{"ready":true}`},
		{call: "ModelReady", what: "of a version", body: `{"name":"line","version":"1"}`, want: `{"ready":true}`},
		{call: "ModelReady", what: "a model that does not load", body: `{"name":"bad"}`, want: `{"ready":false}`},
		{call: "ModelReady", what: "an unknown model", body: `{"name":"none"}`, code: 5, text: "none"},
		{call: "ModelMetadata", what: "inputs and outputs", body: `{"name":"line"}`,
			want: `{"name":"line","versions":["1","2"],"platform":"spc_spx","inputs":` + fmt.Sprintf(tensor, "x") + `,"outputs":` + fmt.Sprintf(tensor, "y") + `}`},
		{call: "ModelMetadata", what: "of a version", body: `{"name":"line","version":"2"}`, want: `{"name":"line"}`},
		{call: "ModelMetadata", what: "a name with a space", body: `{"name":"two words"}`, want: `{"name":"two words"}`},
		{call: "ModelMetadata", what: "an unknown model", body: `{"name":"none"}`, code: 5, text: "none"},
		{call: "ModelMetadata", what: "an unknown version", body: `{"name":"line","version":"3"}`, code: 5, text: "line"},
		{call: "ModelMetadata", what: "a model that does not load", body: `{"name":"bad"}`, code: 14, text: "bad"},
		{call: "ModelConfig", what: "how it is served", body: `{"name":"late"}`,
			want: `{"config":{"name":"late","platform":"spc_spx","maxBatchSize":4,"input":[{"name":"x","dataType":"TYPE_FP32","dims":["3"]}],"output":[{"name":"y","dataType":"TYPE_FP32","dims":["3"]}],"dynamicBatching":{"maxQueueDelayMicroseconds":"1500000"}}}`},
		{call: "ModelConfig", what: "an unknown model", body: `{"name":"none"}`, code: 5, text: "none"},
		{call: "ModelStatistics", what: "of a version", body: `{"name":"two words","version":"1"}`,
			want: `{"modelStats":[{"name":"two words","version":"1","inferenceStats":{` + zero("cacheHit") + "," + zero("cacheMiss") + `}}]}`},
		{call: "ModelStatistics", what: "all models", want: `{"modelStats":[` + strings.Repeat("{},", 22) + `{"name":"two words"}]}`},
		{call: "ModelStatistics", what: "an unknown model", body: `{"name":"none"}`, code: 5, text: "none"},
		{call: "Health/Check", what: "of the server", method: health + "/Check", want: `{"status":"SERVING"}`},
		{call: "Health/Check", what: "of the service", method: health + "/Check", body: `{"service":"inference.GRPCInferenceService"}`, want: `{"status":"SERVING"}`},
		{call: "Health/Check", what: "of a model", method: health + "/Check", body: `{"service":"line"}`, want: `{"status":"SERVING"}`},
		{call: "Health/Check", what: "a model that does not load", method: health + "/Check", body: `{"service":"bad"}`, want: `{"status":"NOT_SERVING"}`},
		{call: "Health/Check", what: "an unknown model", method: health + "/Check", body: `{"service":"none"}`, code: 5, text: "none"},
		{call: "Health/List", what: "each model", method: health + "/List", want: `{"statuses":{"":{"status":"SERVING"},"line":{"status":"SERVING"},"bad":{"status":"NOT_SERVING"}}}`},
		{call: "Health/Watch", what: "what is, until the deadline", method: health + "/Watch", body: `{"service":"bad"}`, args: []string{"-plaintext", "-max-time", "1"}, want: `{"status":"NOT_SERVING"}`, code: 4},
	}
}

// rowOf is a request of one row for a model.
func rowOf(model, more string) string {
	return `{"model_name":"` + model + `","inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","contents":{"fp32_contents":[1,2,3]}}]` + more + `}`
}

// inference runs models, with typed contents and with bytes, alone and in streams.
func (g *grpcurl) inference() (list []grpcurlCheck) {
	const first = `,"model_version":"1"`
	in := func(what, body, want string) {
		list = append(list, grpcurlCheck{call: "ModelInfer", what: what, body: body, want: want})
	}
	in("typed, the newest version", rowOf("line", ""), `{"modelName":"line","modelVersion":"2","outputs":[{"name":"y","datatype":"FP32","shape":["1","3"],"contents":{"fp32Contents":[2,5,8]}}],"rawOutputContents":[]}`)
	in("typed, of a version, with an id and an output's name", rowOf("line", first+`,"id":"7","outputs":[{"name":"y"}]`), `{"modelVersion":"1","id":"7","outputs":[{"contents":{"fp32Contents":[3,5,7]}}]}`)
	fields := map[string]string{"BOOL": "bool", "UINT8": "uint", "UINT16": "uint", "UINT32": "uint", "UINT64": "uint64", "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "int64", "FP32": "fp32", "FP64": "fp64"}
	for _, v := range values {
		if f := fields[v.of]; f != "" {
			both := v.json
			if strings.HasSuffix(f, "64") && f != "fp64" {
				both = `"` + strings.ReplaceAll(both, ",", `","`) + `"`
			}
			in(v.of+" typed", fmt.Sprintf(`{"model_name":%q,"inputs":[{"name":"x","shape":[1,2],"datatype":%[1]q,"contents":{"%s_contents":[%s]}}]}`, v.of, f, v.json),
				fmt.Sprintf(`{"outputs":[{"datatype":%q,"shape":["1","4"],"contents":{"%sContents":[%s,%[3]s]}}]}`, v.of, f, both))
		}
		raw := base64.StdEncoding.EncodeToString(v.raw)
		in(v.of+" as bytes", fmt.Sprintf(`{"model_name":%q,"inputs":[{"name":"x","shape":[1,2],"datatype":%[1]q}],"raw_input_contents":[%q]}`, v.of, raw),
			fmt.Sprintf(`{"outputs":[{"datatype":%q,"shape":["1","4"]}],"rawOutputContents":[%q]}`, v.of, base64.StdEncoding.EncodeToString(slices.Concat(v.raw, v.raw))))
	}
	in("BYTES typed", `{"model_name":"BYTES","inputs":[{"name":"x","shape":[1,2],"datatype":"BYTES","contents":{"bytes_contents":["YQ==","Z3LDvG4="]}}]}`,
		`{"outputs":[{"datatype":"BYTES","shape":["1","4"],"contents":{"bytesContents":["YQ==","Z3LDvG4=","YQ==","Z3LDvG4="]}}]}`)
	in("classes", rowOf("line", first+`,"outputs":[{"name":"y","parameters":{"classification":{"int64_param":2}}}]`), `{"outputs":[{"datatype":"BYTES","shape":["1","2"],"contents":{"bytesContents":["Nzoy","NTox"]}}]}`)
	stream := func(what, body, want string) {
		list = append(list, grpcurlCheck{call: "ModelStreamInfer", what: what, body: body, want: want})
	}
	stream("answers in order, and errors among them", rowOf("line", first+`,"id":"1"`)+rowOf("none", `,"id":"2"`)+rowOf("line", `,"id":"3"`),
		`[{"errorMessage":"","inferResponse":{"id":"1","outputs":[{"contents":{"fp32Contents":[3,5,7]}}]}},{"errorMessage":"model \"none\": unknown model","inferResponse":{"id":"2"}},{"inferResponse":{"id":"3","outputs":[{"contents":{"fp32Contents":[2,5,8]}}]}}]`)
	sum := func(more string) string {
		return `{"model_name":"sums","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","contents":{"fp32_contents":[1,10]}}],"parameters":{"sequence_id":{"string_param":"grpcurl"}` + more + `}}`
	}
	stream("a sequence", sum(`,"sequence_start":{"bool_param":true}`)+sum("")+sum(`,"sequence_end":{"bool_param":true}`)+sum(""),
		`[{"inferResponse":{"outputs":[{"contents":{"fp32Contents":[1,10]}}]}},{"inferResponse":{"outputs":[{"contents":{"fp32Contents":[2,20]}}]}},{"inferResponse":{"outputs":[{"contents":{"fp32Contents":[3,30]}}]}},{"inferResponse":{"outputs":[]}}]`)
	return list
}

// errors are requests that are refused, with their codes.
func (g *grpcurl) errors() (list []grpcurlCheck) {
	bodies := map[string]string{
		"no inputs": `{"model_name":"line"}`, "an unknown input": strings.Replace(rowOf("line", ""), `"x"`, `"z"`, 1), "a wrong type": strings.Replace(rowOf("line", ""), "FP32", "FP64", 1),
		"an unknown type": strings.Replace(rowOf("line", ""), "FP32", "FP31", 1), "a wrong shape": strings.Replace(rowOf("line", ""), "[1,3]", "[3,1]", 1),
		"too few elements": strings.Replace(rowOf("line", ""), "[1,3]", "[2,3]", 1), "a shape of 2^62 elements": strings.Replace(rowOf("line", ""), "[1,3]", "[2147483648,2147483648]", 1),
		"an unknown output": rowOf("line", `,"outputs":[{"name":"z"}]`), "both forms of contents": rowOf("line", `,"raw_input_contents":["AAAAAAAAAAAAAAAA"]`),
	}
	for _, what := range slices.Sorted(maps.Keys(bodies)) {
		list = append(list, grpcurlCheck{call: "ModelInfer", what: "refused: " + what, body: bodies[what], code: 3, text: `model "line"`})
	}
	return append(list,
		grpcurlCheck{call: "ModelInfer", what: "an unknown model", body: rowOf("none", ""), code: 5, text: "none"},
		grpcurlCheck{call: "ModelInfer", what: "a model that does not load", body: rowOf("bad", ""), code: 14, text: "bad"},
		grpcurlCheck{call: "ModelInfer", what: "the parameter timeout is over", body: rowOf("late", `,"parameters":{"timeout":{"int64_param":100000}}`), code: 4, text: "late"},
		grpcurlCheck{call: "ModelInfer", what: "the queue's time is over", body: rowOf("expires", ""), code: 14, text: "expires"},
		grpcurlCheck{call: "ModelInfer", what: "the deadline is over", body: rowOf("late", ""), args: []string{"-plaintext", "-max-time", "1"}, code: 4})
}

// repository loads and unloads, by the names that Triton's and KServe's clients give a model.
func (g *grpcurl) repository() []grpcurlCheck {
	return []grpcurlCheck{
		{call: "RepositoryIndex", what: "those that are ready", body: `{"ready":true}`, want: `{"models":[` + strings.Repeat(`{"state":"READY"},`, 21) + `{"name":"two words","version":"1","state":"READY","reason":""}]}`},
		{call: "RepositoryModelUnload", what: "as Triton's clients name it", body: `{"model_name":"spare"}`, want: "{}"},
		{call: "ModelReady", what: "an unloaded model", body: `{"name":"spare"}`, want: `{"ready":false}`},
		{call: "ModelInfer", what: "an unloaded model", body: rowOf("spare", ""), code: 14, text: "spare"},
		{call: "RepositoryModelLoad", what: "as Triton's clients name it", body: `{"model_name":"spare"}`, want: "{}"},
		{call: "ModelInfer", what: "a model that was loaded again", body: rowOf("spare", ""), want: `{"outputs":[{"contents":{"fp32Contents":[3,5,7]}}]}`},
		{call: "RepositoryModelUnload", what: "as KServe's clients name it", body: `{"repository_name":"spare"}`, want: "{}"},
		{call: "RepositoryModelLoad", what: "as KServe's clients name it", body: `{"repository_name":"spare"}`, want: "{}"},
		{call: "RepositoryModelLoad", what: "a file that is no model", body: `{"model_name":"bad"}`, code: 3, text: "bad"},
		{call: "RepositoryModelLoad", what: "an unknown model", body: `{"model_name":"none"}`, code: 5, text: "none"},
		{call: "RepositoryModelUnload", what: "an unknown model", body: `{"model_name":"none"}`, code: 5, text: "none"},
		{call: "RepositoryModelLoad", what: "with a configuration", body: `{"model_name":"spare","parameters":{"config":{"string_param":"{}"}}}`, code: 12},
	}
}

// secured is TLS, with a certificate of the client's, and tokens; and sockets.
func (g *grpcurl) secured() []grpcurlCheck {
	cert := []string{"-cacert", g.w.CA, "-cert", g.w.Cert, "-key", g.w.Key}
	token := append(slices.Clone(cert), "-H", "authorization: Bearer "+g.w.Token)
	protoset := append(slices.Clone(cert), "-import-path", g.w.protoDir(), "-proto", g.w.protoName())
	unix := []string{"-plaintext", "-unix"}
	socket := strings.TrimPrefix(g.w.Unix.GRPC, "unix:")
	at := g.w.Closed.GRPC
	return []grpcurlCheck{
		{call: "ModelInfer", what: "TLS, a certificate and a token", body: rowOf("line", ""), args: token, at: at, want: `{"outputs":[{"contents":{"fp32Contents":[2,5,8]}}]}`},
		{call: "ModelInfer", what: "no token", body: rowOf("line", ""), args: protoset, at: at, code: 16},
		{call: "ModelStreamInfer", what: "no token", body: rowOf("line", ""), args: protoset, at: at, code: 16},
		{call: "ServerLive", what: "without a token", args: protoset, at: at, want: `{"live":true}`},
		{call: "ServerReady", what: "without a token", args: protoset, at: at, want: `{"ready":true}`},
		{call: "ServerReflection", what: "no token", method: inference + "/ServerLive", args: cert, at: at},
		{call: "ServerLive", what: "no certificate of the client's", args: []string{"-cacert", g.w.CA}, at: at},
		{call: "ServerLive", what: "in the clear where TLS is", at: at},
		{call: "RepositoryModelLoad", what: "without --admin", body: `{"model_name":"spare"}`, args: token, at: at, code: 12},
		{call: "RepositoryModelUnload", what: "without --admin", body: `{"model_name":"spare"}`, args: token, at: at, code: 12},
		{call: "ModelInfer", what: "at a socket", body: rowOf("line", ""), args: unix, at: socket, want: `{"outputs":[{"contents":{"fp32Contents":[2,5,8]}}]}`},
	}
}
