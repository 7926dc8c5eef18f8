package serve_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"spc"
	"spc/data"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/serve"
	"spc/serve/host"
	"spc/serve/oip/oippb"
	"spc/tests/archs"
)

// onnx is a model that a function builds.
func onnx(t *testing.T, f func(b *archs.Builder)) []byte {
	t.Helper()
	b := archs.New("model", 17)
	f(b)
	a, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := a.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// images, words and sums are models of floats, of integers and strings, and with states.
func images(b *archs.Builder) {
	x := b.Input("x", archs.Float32, "n", 3, 8, 8)
	x = b.Node("Relu", nil, b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}}, x, b.Weight("c", archs.He(27), 8, 3, 3, 3)))
	x = b.Node("Flatten", nil, b.Node("GlobalAveragePool", nil, x))
	b.Output("y", b.Node("Gemm", nil, x, b.Weight("w", archs.He(8), 8, 5)), archs.Float32, "n", 5)
}

func words(b *archs.Builder) {
	at := b.Input("at", archs.Int64, "n", 2)
	b.Output("found", b.Node("Gather", nil, b.Weight("table", archs.He(1), 10, 4), at), archs.Float32, "n", 2, 4)
	b.Output("large", b.Node("Greater", nil, at, b.Index(4)), onnxpb.TensorProto_BOOL, "n", 2)
}

func sums(b *archs.Builder) {
	sum := b.Node("Add", nil, b.Input("x", archs.Float32, 1, 2), b.Input("before", archs.Float32, 1, 2))
	b.Output("after", sum, archs.Float32, 1, 2)
}

// server is a server that runs.
type server struct {
	http, grpc string // their addresses
	stop       func() error
	dir        string
}

// start serves the models above, and one that is damaged.
func start(t *testing.T, change func(o *serve.Options)) *server {
	t.Helper()
	s := &server{dir: t.TempDir()}
	for name, b := range map[string][]byte{
		"images.onnx": onnx(t, images), "words.onnx": onnx(t, words), "sums/1/model.onnx": onnx(t, sums), "bad.onnx": []byte("nonsense"),
		"sums/config.yaml": []byte("states: {after: before}\n"),
	} {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	o := serve.Options{
		Dir: s.dir, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Threads: 2, Drain: 10 * time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Load: func(ctx context.Context, path string, c host.Config, d spc.Device) (*spc.Model, error) {
			return spc.Compile(ctx, spc.CompileOptions{Model: path, Run: spc.RunOptions{Device: d, Specialised: c.Sizes()}})
		},
	}
	listening := make(chan [2]net.Addr, 1)
	o.Listening = func(http, grpc net.Addr) { listening <- [2]net.Addr{http, grpc} }
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve.Run(ctx, o) }()
	select {
	case at := <-listening:
		s.http, s.grpc = at[0].String(), at[1].String()
	case err := <-ended:
		t.Fatal(err)
	}
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ready waits for the server to be ready.
func (s *server) ready(t *testing.T) *server {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if r, err := http.Get("http://" + s.http + "/v2/health/ready"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(end) {
			t.Fatal("the server is not ready")
		}
	}
}

// ask sends a request over HTTP.
func (s *server) ask(t *testing.T, method, path, body string, headers ...string) (status int, answer string, h http.Header) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+s.http+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b), res.Header
}

func (s *server) dial(t *testing.T, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(o) == 0 {
		o = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	c, err := grpc.NewClient(s.grpc, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const wordsRequest = `{"id":"7","inputs":[{"name":"at","shape":[1,2],"datatype":"INT64","data":[[3,9]]}],"outputs":[{"name":"large"}]}`

// Each call over HTTP answers as the specification has it, and each mistake with its status and an error in JSON.
func TestCallsOverHTTP(t *testing.T) {
	s := start(t, func(o *serve.Options) { o.Admin = true }).ready(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string // a part of the answer
	}{
		{"GET", "/v2", "", 200, `{"name":"spc","version":"` + spc.Version + `","extensions":["binary_tensor_data",`},
		{"GET", "/v2/health/live", "", 200, `{"live":true}`},
		{"GET", "/v2/health/ready", "", 200, `{"live":true,"ready":true}`},
		{"GET", "/v2/models/words", "", 200, `"versions":["1"],"platform":"spc_spx","inputs":[{"name":"at","datatype":"INT64","shape":[-1,2]}],"outputs":[{"name":"found","datatype":"FP32","shape":[-1,2,4]},{"name":"large","datatype":"BOOL","shape":[-1,2]}]`},
		{"GET", "/v2/models/words/versions/1", "", 200, `{"name":"words","versions":["1"]`},
		{"GET", "/v2/models/words/ready", "", 200, `{"name":"words","ready":true}`},
		{"GET", "/v2/models/words/versions/1/ready", "", 200, `{"name":"words","ready":true}`},
		{"GET", "/v2/models/words/config", "", 200, `"max_batch_size":16,"input":[{"name":"at","data_type":"TYPE_INT64","format":"FORMAT_NONE","dims":[2],`},
		{"GET", "/v2/models/sums/versions/1/config", "", 200, `"sequence_batching":{"max_sequence_idle_microseconds":60000000,"state":[{"input_name":"before","output_name":"after","data_type":"TYPE_FP32","dims":[1,2]}]}`},
		{"POST", "/v2/models/words/infer", wordsRequest, 200, `{"model_name":"words","model_version":"1","id":"7","outputs":[{"name":"large","shape":[1,2],"datatype":"BOOL","data":[false,true]}]}`},
		{"POST", "/v2/models/words/versions/1/infer", wordsRequest, 200, `"data":[false,true]`},
		{"GET", "/v2/models/words/stats", "", 200, `"inference_count":2,"execution_count":2,"inference_stats":{"success":{"count":2,"ns":`},
		{"GET", "/v2/models/words/versions/1/stats", "", 200, `"cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},"batch_stats":[{"batch_size":1,`},
		{"GET", "/v2/models/stats", "", 200, `{"name":"images","version":"1","last_inference":0,`},
		{"POST", "/v2/repository/index", "", 200, `{"name":"bad","version":"1","state":"UNAVAILABLE","reason":"`},
		{"POST", "/v2/repository/index", `{"ready":true}`, 200, `[{"name":"images","version":"1","state":"READY","reason":""},{"name":"sums",`},
		{"POST", "/v2/repository/models/words/unload", "", 200, `{}`},
		{"GET", "/v2/models/words/ready", "", 503, `"ready":false,"error":"model \"words\": not ready: version 1 is UNAVAILABLE (unloaded)"}`},
		{"POST", "/v2/models/words/infer", wordsRequest, 503, `{"error":"model \"words\": not ready:`},
		{"POST", "/v2/repository/models/words/load", "{}", 200, `{}`},
		{"GET", "/v2/models/words/ready", "", 200, `true`},
		{"GET", "/metrics", "", 200, `nv_inference_request_success{model="words",version="1"} 2`},
		{"GET", "/debug/pprof/", "", 200, `goroutine`},

		{"GET", "/v2/models/none", "", 404, `{"error":"model \"none\": unknown model"}`},
		{"GET", "/v2/models/words/versions/2", "", 404, `there is no version 2`},
		{"GET", "/v2/models/none/ready", "", 404, `unknown model`},
		{"GET", "/v2/models/bad/config", "", 503, `not ready`},
		{"GET", "/v2/models/none/stats", "", 404, `model \"none\": unknown model`},
		{"POST", "/v2/repository/models/none/load", "", 404, `unknown model`},
		{"POST", "/v2/repository/models/none/unload", "", 404, `unknown model`},
		{"POST", "/v2/repository/models/bad/load", "", 400, `{"error":"bad: `},
		{"POST", "/v2/repository/models/words/load", `{"parameters":{"config":"{}"}}`, 501, `its files alone`},
		{"POST", "/v2/repository/index", `{"ready":1`, 400, `not what this call takes`},
		{"GET", "/v2/models/words/infer", "", 405, `want POST`},
		{"POST", "/v2/models/words", "", 405, `want GET`},
		{"DELETE", "/v2/health/live", "", 405, `want GET`},
		{"POST", "/metrics", "", 405, `want GET`},
		{"GET", "/v3", "", 404, `no such call`},
		{"POST", "/v2/models/words/infer", "", 400, `{"error":"model \"words\": `},
		{"POST", "/v2/models/words/infer", `{"inputs":[`, 400, `{"error":"model \"words\": `},
		{"POST", "/v2/models/words/infer", `{"inputs":[]}`, 400, `input at: missing, want i64[n,2]`},
		{"POST", "/v2/models/words/infer", strings.Replace(wordsRequest, "[1,2]", "[1,3]", 1), 400, `input \"at\": `},
		{"POST", "/v2/models/words/infer", strings.Replace(wordsRequest, "[1,2]", "[2,1]", 1), 400, `input at: i64[2,1], want i64[n,2]`},
		{"POST", "/v2/models/words/infer", strings.Replace(wordsRequest, "INT64", "FP32", 1), 400, `input at: f32[1,2], want i64[n,2]`},
		{"POST", "/v2/models/words/infer", strings.Replace(wordsRequest, "large", "small", 1), 400, `no output small, want found, large`},
		{"POST", "/v2/models/words/infer", strings.Replace(wordsRequest, "[[3,9]]", "[[3,10]]", 1), 400, `index 10`},
		{"POST", "/v2/models/sums/infer", `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`, 400, `want the parameter sequence_id`},
		{"POST", "/v2/models/words/infer", strings.Repeat("[", 1e6), 400, `error`},
	} {
		status, answer, h := s.ask(t, c.method, c.path, c.body)
		if status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s %s %.80s: %d %s, want %d %s", c.method, c.path, c.body, status, answer, c.status, c.want)
		}
		if strings.HasPrefix(c.path, "/v2") && (h.Get("Content-Type") != "application/json" || !json.Valid([]byte(answer))) {
			t.Errorf("%s %s: %s, %s is no JSON", c.method, c.path, h.Get("Content-Type"), answer)
		}
	}
	if _, _, h := s.ask(t, "GET", "/v2/models/words/infer", ""); h.Get("Allow") != "POST" {
		t.Errorf("allowed is %q", h.Get("Allow"))
	}
	plain := start(t, nil).ready(t)
	for path, want := range map[string]int{"/v2/repository/models/words/load": 501, "/v2/repository/models/words/unload": 501, "/v2/repository/index": 200} {
		if status, answer, _ := plain.ask(t, "POST", path, ""); status != want {
			t.Errorf("%s without --admin: %d %s, want %d", path, status, answer, want)
		}
	}
	if status, _, _ := plain.ask(t, "GET", "/debug/pprof/", ""); status != 404 {
		t.Errorf("profiles without --admin: %d", status)
	}
}

// The same over gRPC.
func TestCallsOverGRPC(t *testing.T) {
	s := start(t, func(o *serve.Options) { o.Admin, o.Body = true, 16<<20 }).ready(t)
	conn := s.dial(t)
	c := oippb.NewGRPCInferenceServiceClient(conn)
	ctx := t.Context()
	request := func() *oippb.ModelInferRequest {
		return &oippb.ModelInferRequest{ModelName: "words", Id: "9", Inputs: []*oippb.ModelInferRequest_InferInputTensor{{
			Name: "at", Datatype: "INT64", Shape: []int64{1, 2}, Contents: &oippb.InferTensorContents{Int64Contents: []int64{3, 9}},
		}}}
	}
	raw := request()
	raw.Inputs[0].Contents = nil
	raw.RawInputContents = [][]byte{binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 3), 9)}
	for name, f := range map[string]func() (fmt.Stringer, codes.Code, string, error){
		"live": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ServerLive(ctx, nil)
			return m, 0, "live:true", err
		},
		"ready": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ServerReady(ctx, nil)
			return m, 0, "ready:true", err
		},
		"metadata": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ServerMetadata(ctx, nil)
			return m, 0, `name:"spc"`, err
		},
		"model ready": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelReady(ctx, &oippb.ModelReadyRequest{Name: "words"})
			return m, 0, "ready:true", err
		},
		"model not ready": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelReady(ctx, &oippb.ModelReadyRequest{Name: "bad"})
			if err == nil && m.Ready {
				err = fmt.Errorf("a damaged model is ready")
			}
			return m, 0, "", err
		},
		"unknown model": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelReady(ctx, &oippb.ModelReadyRequest{Name: "none"})
			return m, codes.NotFound, `model "none": unknown model`, err
		},
		"model metadata": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelMetadata(ctx, &oippb.ModelMetadataRequest{Name: "words", Version: "1"})
			return m, 0, `datatype:"INT64"`, err
		},
		"config": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelConfig(ctx, &oippb.ModelConfigRequest{Name: "images"})
			return m, 0, "max_batch_size:16", err
		},
		"statistics": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelStatistics(ctx, &oippb.ModelStatisticsRequest{})
			return m, 0, `name:"images"`, err
		},
		"index": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.RepositoryIndex(ctx, &oippb.RepositoryIndexRequest{})
			return m, 0, `state:"UNAVAILABLE"`, err
		},
		"load, as Triton's clients name the model": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.RepositoryModelLoad(ctx, &oippb.RepositoryModelLoadRequest{ModelName: "images"})
			return m, 0, "", err
		},
		"load, as KServe's do": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.RepositoryModelLoad(ctx, &oippb.RepositoryModelLoadRequest{RepositoryName: "images"})
			return m, 0, "", err
		},
		"load none": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.RepositoryModelLoad(ctx, &oippb.RepositoryModelLoadRequest{RepositoryName: "none"})
			return m, codes.NotFound, "unknown model", err
		},
		"unload none": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.RepositoryModelUnload(ctx, &oippb.RepositoryModelUnloadRequest{ModelName: "none"})
			return m, codes.NotFound, "unknown model", err
		},
		"infer typed": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelInfer(ctx, request())
			if err == nil && (len(m.RawOutputContents) != 0 || !slices.Equal(m.Outputs[1].Contents.GetBoolContents(), []bool{false, true})) {
				err = fmt.Errorf("%v, want typed contents", m)
			}
			return m, 0, `id:"9"`, err
		},
		"infer raw": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelInfer(ctx, raw)
			if err == nil && (len(m.RawOutputContents) != 2 || !bytes.Equal(m.RawOutputContents[1], []byte{0, 1})) {
				err = fmt.Errorf("%v, want bytes", m)
			}
			return m, 0, `model_version:"1"`, err
		},
		"infer, compressed by gzip": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelInfer(ctx, raw, grpc.UseCompressor("gzip"))
			return m, 0, `id:"9"`, err
		},
		"infer, compressed by deflate": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := c.ModelInfer(ctx, raw, grpc.UseCompressor("deflate"))
			return m, 0, `id:"9"`, err
		},
		"infer what is a bomb": func() (fmt.Stringer, codes.Code, string, error) {
			q := request()
			q.Inputs[0].Contents, q.RawInputContents = nil, [][]byte{make([]byte, 32<<20)}
			m, err := c.ModelInfer(ctx, q, grpc.UseCompressor("deflate"))
			return m, codes.ResourceExhausted, "larger than max", err
		},
		"infer what is wrong": func() (fmt.Stringer, codes.Code, string, error) {
			q := request()
			q.Inputs[0].Shape = []int64{1 << 31, 1 << 31}
			m, err := c.ModelInfer(ctx, q)
			return m, codes.InvalidArgument, `model "words": input "at"`, err
		},
		"health": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
			return m, 0, "SERVING", err
		},
		"health of a model": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: "bad"})
			return m, 0, "NOT_SERVING", err
		},
		"health of none": func() (fmt.Stringer, codes.Code, string, error) {
			m, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: "none"})
			return m, codes.NotFound, "unknown model", err
		},
	} {
		m, code, want, err := f()
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			text = strings.ReplaceAll(m.String(), ": ", ":") // whose spaces are random
		}
		if status.Code(err) != code || !strings.Contains(text, want) {
			t.Errorf("%s: %v, %v, want %v with %s", name, m, err, code, want)
		}
	}
	health := healthpb.NewHealthClient(conn)
	list, err := health.List(ctx, nil)
	if err != nil || list.Statuses[""].GetStatus() != healthpb.HealthCheckResponse_SERVING || list.Statuses["bad"].GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING || len(list.Statuses) != 6 {
		t.Errorf("health of all: %v, %v", list, err)
	}
	watching, end := context.WithCancel(ctx)
	defer end()
	watch, err := health.Watch(watching, &healthpb.HealthCheckRequest{Service: "sums"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
		if i == 1 {
			if _, err := c.RepositoryModelUnload(ctx, &oippb.RepositoryModelUnloadRequest{ModelName: "sums"}); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := watch.Recv(); err != nil || r.Status != want {
			t.Fatalf("health that is watched: %v, %v, want %v", r, err, want)
		}
	}
	stream, err := c.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wrong := request()
	wrong.ModelName, wrong.Id = "none", "10"
	for _, q := range []*oippb.ModelInferRequest{request(), wrong, raw} {
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
	}
	stream.CloseSend()
	var got []string
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(m.InferResponse.Id, " ", m.ErrorMessage))
	}
	if want := []string{"9 ", `10 model "none": unknown model`, "9 "}; !slices.Equal(got, want) {
		t.Errorf("a stream answers %q, want %q", got, want)
	}
}

// Outputs are those of a run, bit by bit, in all forms.
func TestOutputsAreThoseOfARun(t *testing.T) {
	s := start(t, nil).ready(t)
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: onnx(t, images)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := data.Random{Seed: 3}.Tensor("x", tensor.F32, []int{2, 3, 8, 8}, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Run(t.Context(), map[string]*tensor.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	want := out["y"].F32s()
	check := func(how string, got []float32) {
		t.Helper()
		if !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Errorf("%s: %v, want %v", how, got, want)
		}
	}
	var answer struct{ Outputs []struct{ Data []float32 } }
	numbers, err := json.Marshal(x.F32s())
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[2,3,8,8],"datatype":"FP32","data":%s}]}`, numbers)
	_, body, _ := s.ask(t, "POST", "/v2/models/images/infer", text)
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	check("JSON", answer.Outputs[0].Data)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte(text))
	z.Close()
	answer.Outputs = nil
	_, body, _ = s.ask(t, "POST", "/v2/models/images/infer", zipped.String(), "Content-Encoding", "gzip")
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	check("gzip", answer.Outputs[0].Data)
	head := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[2,3,8,8],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, len(x.Bytes()))
	_, body, h := s.ask(t, "POST", "/v2/models/images/infer", head+string(x.Bytes()), "Inference-Header-Content-Length", fmt.Sprint(len(head)))
	var n int
	fmt.Sscan(h.Get("Inference-Header-Content-Length"), &n)
	if n == 0 || len(body) != n+4*len(want) {
		t.Fatalf("%d bytes, of which %d are JSON: %s", len(body), n, body)
	}
	y, err := tensor.FromBytes(tensor.F32, []int{len(want)}, []byte(body[n:]))
	if err != nil {
		t.Fatal(err)
	}
	check("binary", y.F32s())
	r, err := oippb.NewGRPCInferenceServiceClient(s.dial(t)).ModelInfer(t.Context(), &oippb.ModelInferRequest{
		ModelName: "images", Inputs: []*oippb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{2, 3, 8, 8}}}, RawInputContents: [][]byte{x.Bytes()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if y, err = tensor.FromBytes(tensor.F32, []int{len(want)}, r.RawOutputContents[0]); err != nil {
		t.Fatal(err)
	}
	check("gRPC", y.F32s())
}
