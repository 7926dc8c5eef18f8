package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spc/client"
	"spc/ir/tensor"
	"spc/serve/oip/oippb"
)

// reply is what a server that is none of ours answers.
type reply struct {
	status  int // 0 for 200
	body    string
	headers []string
}

// fake is a client of a server with answers by path, without a body where "!" is before it.
func fake(t *testing.T, replies map[string]reply) *client.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := replies[r.URL.Path]
		if !ok {
			a = reply{status: 404, body: `{"error":"` + r.Method + " " + r.URL.Path + `"}`}
		}
		for i := 0; i < len(a.headers); i += 2 {
			w.Header().Set(a.headers[i], a.headers[i+1])
		}
		w.WriteHeader(max(a.status, 200))
		io.WriteString(w, a.body)
	}))
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Servers say in several ways whether something is ready: Triton by the status alone, 200 or 400; KServe's by a field; the specification's text
// names the field of ready wrongly.
func TestHowServersSayThatTheyAreReady(t *testing.T) {
	for _, test := range []struct {
		reply
		want bool
		is   error
	}{
		{reply{}, true, nil}, {reply{body: `{"ready":true}`}, true, nil}, {reply{body: `{"live":true}`}, true, nil}, {reply{body: `{"name":"m","ready":false}`}, false, nil},
		{reply{body: `{"live":false}`}, false, nil}, {reply{status: 503, body: `{"error":"not yet"}`}, false, nil}, {reply{status: 400}, false, nil},
		{reply{status: 400, body: `{"error":"wrong"}`}, false, client.ErrInvalid}, {reply{status: 404, body: "<html>"}, false, client.ErrNotFound},
		{reply{body: "<html>a page</html>"}, false, client.ErrProtocol}, {reply{status: 301, headers: []string{"Location", "https://other/"}}, false, client.ErrInternal},
	} {
		c := fake(t, map[string]reply{"/v2/health/live": test.reply, "/v2/health/ready": test.reply, "/v2/models/m/versions/3/ready": test.reply})
		for name, f := range map[string]func() (bool, error){
			"live": func() (bool, error) { return c.Live(t.Context()) }, "ready": func() (bool, error) { return c.Ready(t.Context()) },
			"model": func() (bool, error) { return c.ModelReady(t.Context(), "m", "3") },
		} {
			if ok, err := f(); ok != test.want || !errors.Is(err, test.is) {
				t.Errorf("%s of %+v: %v (%v), want %v (%v)", name, test.reply, ok, err, test.want, test.is)
			}
			if _, err := f(); test.status == 301 && !strings.Contains(err.Error(), "it is elsewhere, at https://other/ (301 Moved Permanently)") {
				t.Error(err)
			}
		}
	}
}

// Integers of 64 bits may be strings, as protojson writes them; fields that are unknown are left alone; null is nothing.
func TestAnswersOfOtherServers(t *testing.T) {
	c := fake(t, map[string]reply{
		"/v2":                     {body: `{"name":"mlserver","version":"1.3","extensions":[]}`},
		"/v2/models/a b/c":        {body: `{"name":"a b/c","versions":null,"platform":"","inputs":[{"name":"x","datatype":"FP32","shape":["-1",4],"parameters":{"content_type":"np"}}],"outputs":[{"name":"y","datatype":"FP8","shape":[]}],"parameters":{}}`},
		"/v2/models/m/stats":      {body: `{"model_stats":[{"name":"m","version":"1","inference_count":"7","execution_count":3,"inference_stats":{"success":{"count":"3","ns":"1500"},"queue":{"count":3,"ns":900}},"response_stats":{}}]}`},
		"/v2/models/m/config":     {body: `{"name":"m","backend":"onnxruntime","max_batch_size":8,"instance_group":[{"kind":"KIND_CPU"}],"new_field":1}`},
		"/v2/repository/index":    {body: `[{"name":"m","state":"READY"}]`},
		"/v2/models/odd":          {body: `[1]`},
		"/v2/models/m/infer":      {body: `{"model_name":"m","model_version":null,"id":null,"parameters":null,"outputs":[{"name":"y","shape":[2,2],"datatype":"FP32","parameters":null,"data":[[1,2.5],[3,4]]}]}`},
		"/v2/models/short/infer":  {body: `{"outputs":[{"name":"y","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}1234`, headers: []string{"Inference-Header-Content-Length", "87"}},
		"/v2/models/page/infer":   {body: `<html>`, headers: []string{"Content-Type", "text/html"}},
		"/v2/models/busy/infer":   {status: 429, body: `{"error":"queue is full"}`},
		"/v2/models/late/infer":   {status: 504, body: `upstream request timeout`},
		"/v2/models/header/infer": {body: `{}`, headers: []string{"Inference-Header-Content-Length", "x"}},
	})
	ctx := t.Context()
	check := func(got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v (%v), want %+v", got, err, want)
		}
	}
	about, err := c.ServerMetadata(ctx)
	check(about, &client.ServerMetadata{Name: "mlserver", Version: "1.3"}, err)
	m, err := c.ModelMetadata(ctx, "a b/c", "")
	check(m, &client.ModelMetadata{Name: "a b/c", Inputs: []client.TensorMetadata{{"x", "FP32", tensor.F32, []int{-1, 4}}}, Outputs: []client.TensorMetadata{{"y", "FP8", tensor.Undefined, []int{}}}}, err)
	stats, err := c.ModelStatistics(ctx, "m", "")
	check(stats, []client.ModelStatistics{{Name: "m", Version: "1", Rows: 7, Runs: 3, Success: client.Duration{Count: 3, Total: 1500}, Queue: client.Duration{Count: 3, Total: 900}}}, err)
	config, err := c.ModelConfig(ctx, "m", "")
	if err != nil || config.MaxBatchSize != 8 || config.Backend != "onnxruntime" || !strings.Contains(string(config.JSON), "new_field") {
		t.Errorf("%+v (%v)", config, err)
	}
	index, err := c.Index(ctx, true)
	check(index, []client.ModelState{{Name: "m", State: "READY"}}, err)
	x := map[string]*tensor.Tensor{"x": tensor.From([]float32{1}, 1)}
	out, err := c.Infer(ctx, &client.Request{Model: "m", Inputs: x})
	if err != nil || !equal(out.Outputs, map[string]*tensor.Tensor{"y": tensor.From([]float32{1, 2.5, 3, 4}, 2, 2)}) {
		t.Errorf("%+v (%v)", out, err)
	}
	for model, want := range map[string]error{"short": client.ErrProtocol, "page": client.ErrProtocol, "header": client.ErrProtocol, "busy": client.ErrBusy, "late": client.ErrTimeout, "none": client.ErrNotFound} {
		if out, err := c.Infer(ctx, &client.Request{Model: model, Inputs: x}); !errors.Is(err, want) || out != nil {
			t.Errorf("%s: %+v (%v), want %v", model, out, err, want)
		}
	}
	if _, err := c.Infer(ctx, &client.Request{Model: "m", Inputs: x, Outputs: []string{"y", "z"}}); !errors.Is(err, client.ErrProtocol) || !strings.Contains(err.Error(), "asked for: z") {
		t.Error(err)
	}
	if _, err := c.ModelMetadata(ctx, "odd", ""); !errors.Is(err, client.ErrProtocol) {
		t.Error(err)
	}
}

// What is sent over REST is what tritonclient sends: all outputs in binary where none is named, and each of those that are.
func TestWhatIsSentOverREST(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = []string{r.Method, r.URL.EscapedPath(), r.Header.Get("Inference-Header-Content-Length"), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), fmt.Sprint(r.ContentLength == int64(len(b))), string(b)}
		io.WriteString(w, `{"outputs":[{"name":"y","shape":[0],"datatype":"FP32","data":[]}]}`)
	}))
	defer s.Close()
	for _, test := range []struct {
		typed   bool
		outputs []string
		want    []string
	}{
		{false, nil, []string{"POST", "/at/v2/models/a%2Fb/versions/2/infer", "144", "Bearer T", "application/octet-stream", "true",
			`{"id":"i","parameters":{"binary_data_output":true},"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}   ` + "\x00\x00\x80\x3f"}},
		{false, []string{"y"}, []string{"POST", "/at/v2/models/a%2Fb/versions/2/infer", "160", "Bearer T", "application/octet-stream", "true",
			`{"id":"i","inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]} ` + "\x00\x00\x80\x3f"}},
		{true, nil, []string{"POST", "/at/v2/models/a%2Fb/versions/2/infer", "", "Bearer T", "application/json", "true", `{"id":"i","inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`}},
	} {
		c, err := client.New(s.URL+"/at/", client.Options{Typed: test.typed, Token: "T"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Infer(t.Context(), &client.Request{Model: "a/b", Version: "2", ID: "i", Inputs: map[string]*tensor.Tensor{"x": tensor.From([]float32{1}, 1)}, Outputs: test.outputs}); err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
		c.Close()
	}
}

// repository is a server over gRPC that has the name of a model in one of two fields.
type repository struct {
	oippb.UnimplementedGRPCInferenceServiceServer
	extensions []string
	loaded     *oippb.RepositoryModelLoadRequest
	unloaded   *oippb.RepositoryModelUnloadRequest
}

func (r *repository) ServerMetadata(context.Context, *oippb.ServerMetadataRequest) (*oippb.ServerMetadataResponse, error) {
	return &oippb.ServerMetadataResponse{Extensions: r.extensions}, nil
}

func (r *repository) RepositoryModelLoad(_ context.Context, q *oippb.RepositoryModelLoadRequest) (*oippb.RepositoryModelLoadResponse, error) {
	r.loaded = q
	return &oippb.RepositoryModelLoadResponse{}, nil
}

func (r *repository) RepositoryModelUnload(_ context.Context, q *oippb.RepositoryModelUnloadRequest) (*oippb.RepositoryModelUnloadResponse, error) {
	r.unloaded = q
	return &oippb.RepositoryModelUnloadResponse{}, nil
}

func (r *repository) ModelReady(context.Context, *oippb.ModelReadyRequest) (*oippb.ModelReadyResponse, error) {
	return nil, status.Error(codes.Unavailable, "no room")
}

func (r *repository) ModelInfer(context.Context, *oippb.ModelInferRequest) (*oippb.ModelInferResponse, error) {
	return &oippb.ModelInferResponse{Outputs: []*oippb.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "FP32", Shape: []int64{2}}}, RawOutputContents: [][]byte{{1}}}, nil
}

func TestOtherServersOverGRPC(t *testing.T) {
	for _, test := range []struct {
		extensions    []string
		first, second string
	}{{[]string{"model_repository"}, "", "m"}, {[]string{"model_repository_extension"}, "m", ""}, {nil, "", "m"}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, r := grpc.NewServer(), &repository{extensions: test.extensions}
		oippb.RegisterGRPCInferenceServiceServer(s, r)
		go s.Serve(l)
		c, err := client.New("grpc://"+l.Addr().String(), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Load(t.Context(), "m"), c.Unload(t.Context(), "m")); err != nil {
			t.Fatal(err)
		}
		if r.loaded.RepositoryName != test.first || r.loaded.ModelName != test.second || r.unloaded.RepositoryName != test.first || r.unloaded.ModelName != test.second {
			t.Errorf("%v: %v and %v", test.extensions, r.loaded, r.unloaded)
		}
		var e *client.Error
		if _, err := c.ModelReady(t.Context(), "m", ""); !errors.Is(err, client.ErrUnavailable) || !errors.As(err, &e) || e.Code != codes.Unavailable || e.Message != "no room" || e.Model != "m" {
			t.Errorf("%v", err)
		}
		if _, err := c.ModelConfig(t.Context(), "m", ""); !errors.Is(err, client.ErrUnsupported) {
			t.Errorf("a call that there is not: %v", err)
		}
		if _, err := c.Infer(t.Context(), &client.Request{Model: "m"}); !errors.Is(err, client.ErrProtocol) || !strings.Contains(err.Error(), `output "y": shape [2] of FP32 has 8 bytes, 1 were sent`) {
			t.Errorf("%v", err)
		}
		c.Close()
		s.Stop()
	}
}
