package serve_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"spc/serve"
	"spc/serve/oip/oippb"
	"spc/serve/trace"
)

// sink is a collector: it takes what is sent as the protocol has it.
type sink struct {
	mu      sync.Mutex
	spans   []*otlp.Span
	service []string
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	var q collector.ExportTraceServiceRequest
	if err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(b, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range q.ResourceSpans {
		s.service = append(s.service, text(r.Resource.Attributes)["service.name"])
		for _, scope := range r.ScopeSpans {
			s.spans = append(s.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// text are attributes as text.
func text(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.Key] = fmt.Sprint(v.IntValue)
		default:
			out[kv.Key] = kv.Value.String()
		}
	}
	return out
}

// of are the spans below another, in the order of their times.
func (s *sink) of(parent []byte) (list []*otlp.Span) {
	for _, p := range s.spans {
		if bytes.Equal(p.ParentSpanId, parent) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *otlp.Span) int {
		if a.StartTimeUnixNano != b.StartTimeUnixNano {
			return int(int64(a.StartTimeUnixNano - b.StartTimeUnixNano))
		}
		return int(int64(a.EndTimeUnixNano - b.EndTimeUnixNano))
	})
	return list
}

// named are the spans of a name, below a caller's.
func (s *sink) named(name string) (list []*otlp.Span) {
	for _, p := range s.spans {
		if p.Name == name {
			list = append(list, p)
		}
	}
	return list
}

// parts checks that the spans below one are those of a request that ran: one after the other, within it.
func (s *sink) parts(t *testing.T, of *otlp.Span, batch string) {
	t.Helper()
	list := s.of(of.SpanId)
	if len(list) != 4 {
		t.Fatalf("%s: %v, want four parts", of.Name, list)
	}
	at := of.StartTimeUnixNano
	for _, name := range []string{"queue", "input", "compute", "output"} { // of which some may take no time
		i := slices.IndexFunc(list, func(p *otlp.Span) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("%s: no %s", of.Name, name)
		}
		p := list[i]
		if p.StartTimeUnixNano < at || name != "queue" && p.StartTimeUnixNano != at || p.EndTimeUnixNano < p.StartTimeUnixNano || p.EndTimeUnixNano > of.EndTimeUnixNano {
			t.Errorf("%s: %s is from %d to %d, within %d to %d, after %d", of.Name, name, p.StartTimeUnixNano, p.EndTimeUnixNano, of.StartTimeUnixNano, of.EndTimeUnixNano, at)
		}
		at = p.EndTimeUnixNano
		if !bytes.Equal(p.TraceId, of.TraceId) || p.Kind != otlp.Span_SPAN_KIND_INTERNAL || p.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET {
			t.Errorf("%s: %v", of.Name, p)
		}
		if rows := text(p.Attributes)["spc.batch.rows"]; name == "compute" && (rows != batch || p.EndTimeUnixNano == p.StartTimeUnixNano) {
			t.Errorf("%s: a run of %s rows, want %s, that takes some time", of.Name, rows, batch)
		}
	}
}

// traced starts a server whose calls are traced.
func traced(t *testing.T, endpoint string, log *slog.Logger, change func(o *serve.Options)) *server {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	tr, err := trace.FromEnv(log, "spc", "1")
	if err != nil || tr == nil {
		t.Fatal(tr, err)
	}
	return start(t, func(o *serve.Options) {
		o.Trace = tr
		if change != nil {
			change(o)
		}
	}).ready(t)
}

const (
	caller      = "00f067aa0ba902b7"
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + callerTrace + "-" + caller + "-01"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// Each call is a span below that of its caller, with what became of its request below it; when the server has ended, all were sent.
func TestTracesOfCalls(t *testing.T) {
	to := new(sink)
	at := httptest.NewServer(to)
	defer at.Close()
	s := traced(t, at.URL, quiet(), nil)
	s.ask(t, "POST", "/v2/models/words/infer", wordsRequest, "traceparent", traceparent, "User-Agent", "test")
	s.ask(t, "POST", "/v2/models/none/infer", wordsRequest)
	s.ask(t, "GET", "/v2/models/bad/ready", "")
	s.ask(t, "GET", "/secret/4711", "")
	s.ask(t, "PUT", "/\xff%FF", "", "User-Agent", "\xff")
	s.ask(t, "GET", "/metrics", "")
	client := oippb.NewGRPCInferenceServiceClient(s.dial(t))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent)
	good := &oippb.ModelInferRequest{ModelName: "words", Inputs: []*oippb.ModelInferRequest_InferInputTensor{{
		Name: "at", Datatype: "INT64", Shape: []int64{2, 2}, Contents: &oippb.InferTensorContents{Int64Contents: []int64{1, 2, 3, 4}},
	}}}
	bad := proto.Clone(good).(*oippb.ModelInferRequest)
	bad.ModelName = "bad"
	if _, err := client.ModelInfer(ctx, good); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ModelInfer(ctx, bad); err == nil {
		t.Fatal("a model that is damaged answers")
	}
	if _, err := client.ServerReady(ctx, &oippb.ServerReadyRequest{}); err != nil {
		t.Fatal(err)
	}
	stream, err := client.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []*oippb.ModelInferRequest{good, bad, good} {
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Fatal(err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if len(to.service) == 0 || to.service[0] != "spc" {
		t.Errorf("of the service %q", to.service)
	}
	// Five calls over HTTP; over gRPC three, one of them with three requests; of four requests that ran, four parts.
	if len(to.spans) != 5+3+3+4*4 {
		t.Errorf("%d spans: %v", len(to.spans), to.spans)
	}
	to.overHTTP(t)
	to.overGRPC(t)
}

// is checks a span of a call.
func is(t *testing.T, p *otlp.Span, parent string, failed bool, about map[string]string) {
	t.Helper()
	if hex.EncodeToString(p.ParentSpanId) != parent || parent == caller && hex.EncodeToString(p.TraceId) != callerTrace || p.Kind != otlp.Span_SPAN_KIND_SERVER {
		t.Errorf("%s: below %x in %x, want %s: %v", p.Name, p.ParentSpanId, p.TraceId, parent, p)
	}
	if (p.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR) != failed {
		t.Errorf("%s: status %v", p.Name, p.Status)
	}
	have := text(p.Attributes)
	for k, v := range about {
		if have[k] != v {
			t.Errorf("%s: %s is %q, want %q", p.Name, k, have[k], v)
		}
	}
}

func (s *sink) overHTTP(t *testing.T) {
	infer := s.named("POST /v2/models/{model}/infer")
	ready, other := s.named("GET /v2/models/{model}/ready"), s.named("GET")
	if len(infer) != 2 || len(ready) != 1 || len(other) != 1 {
		t.Fatalf("%v, %v, %v", infer, ready, other)
	}
	if len(infer[0].ParentSpanId) == 0 {
		slices.Reverse(infer)
	}
	is(t, infer[0], caller, false, map[string]string{
		"http.request.method": "POST", "http.route": "/v2/models/{model}/infer", "url.path": "/v2/models/words/infer", "url.scheme": "http", "user_agent.original": "test",
		"network.protocol.version": "1.1", "http.response.status_code": "200", "spc.model.name": "words", "spc.model.version": "1", "spc.request.rows": "1", "error.type": "",
	})
	s.parts(t, infer[0], "1")
	is(t, infer[1], "", false, map[string]string{"http.response.status_code": "404", "spc.model.name": "none", "error.type": ""})
	is(t, ready[0], "", true, map[string]string{"http.response.status_code": "503", "error.type": "503"})
	is(t, s.named("PUT")[0], "", false, map[string]string{"http.response.status_code": "404", "url.path": "/\uFFFD", "user_agent.original": "\uFFFD"})
	is(t, other[0], "", false, map[string]string{"http.response.status_code": "404", "http.route": "", "url.path": "/secret/4711"})
}

func (s *sink) overGRPC(t *testing.T) {
	const service = "inference.GRPCInferenceService/"
	calls, streams := s.named(service+"ModelInfer"), s.named(service+"ModelStreamInfer")
	if len(calls) != 2 || len(streams) != 1 {
		t.Fatalf("%v, %v", calls, streams)
	}
	if calls[0].StartTimeUnixNano > calls[1].StartTimeUnixNano {
		slices.Reverse(calls)
	}
	is(t, calls[0], caller, false, map[string]string{
		"rpc.system.name": "grpc", "rpc.method": service + "ModelInfer", "rpc.response.status_code": "OK", "spc.model.name": "words", "spc.model.version": "1",
		"spc.request.rows": "2", "error.type": "",
	})
	s.parts(t, calls[0], "2")
	is(t, calls[1], caller, true, map[string]string{"rpc.response.status_code": "UNAVAILABLE", "error.type": "UNAVAILABLE", "spc.model.name": "bad"})
	if !strings.Contains(calls[1].Status.Message, "not ready") {
		t.Errorf("status %v", calls[1].Status)
	}
	is(t, streams[0], caller, false, map[string]string{"rpc.response.status_code": "OK"})
	requests := s.of(streams[0].SpanId)
	if len(requests) != 3 {
		t.Fatalf("%v", requests)
	}
	for i, p := range requests {
		if p.Name != "infer" || (p.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR) != (i == 1) {
			t.Errorf("request %d: %v", i, p)
		}
		if i != 1 {
			s.parts(t, p, "2")
		}
	}
}

// A request that waits in vain has a span for that, which failed.
func TestTraceOfAnExpiredRequest(t *testing.T) {
	to := new(sink)
	at := httptest.NewServer(to)
	defer at.Close()
	s := traced(t, at.URL, quiet(), func(o *serve.Options) {
		o.Config.MaxQueueDelayMicroseconds, o.Config.TimeoutMicroseconds = 2e6, 20e3
	})
	if status, answer, _ := s.ask(t, "POST", "/v2/models/words/infer", wordsRequest); status != http.StatusServiceUnavailable {
		t.Fatalf("%d %s, want 503", status, answer)
	}
	s.stop()
	infer := to.named("POST /v2/models/{model}/infer")
	if len(infer) != 1 {
		t.Fatalf("%v", to.spans)
	}
	list := to.of(infer[0].SpanId)
	if len(list) != 1 || list[0].Name != "queue" || list[0].Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || list[0].EndTimeUnixNano-list[0].StartTimeUnixNano < 20e6 {
		t.Errorf("%v, want a queue that failed after 20 ms", list)
	}
}

// lines counts the lines of a log.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, string(b))
	return len(b), nil
}

// A collector that refuses, or that never answers, costs requests nothing, the log a line, and the end of the server a few seconds at most.
func TestACollectorThatIsNotThere(t *testing.T) {
	stalls := make(chan struct{})
	for name, h := range map[string]http.HandlerFunc{
		"refuses": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"stalls":  func(w http.ResponseWriter, r *http.Request) { <-stalls },
		"gone":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			at := httptest.NewServer(h)
			if h == nil {
				at.Close()
			}
			log := new(lines)
			s := traced(t, at.URL, slog.New(slog.NewTextHandler(log, nil)), nil)
			for range 30 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				r, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.http+"/v2/models/words/infer", strings.NewReader(wordsRequest))
				if err != nil {
					t.Fatal(err)
				}
				res, err := http.DefaultClient.Do(r)
				if err != nil || res.StatusCode != 200 {
					t.Fatal(res, err)
				}
				res.Body.Close()
				cancel()
				time.Sleep(10 * time.Millisecond) // so that there are several batches
			}
			began := time.Now()
			if err := s.stop(); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d > 15*time.Second {
				t.Errorf("the server takes %v to end", d)
			}
			log.mu.Lock()
			defer log.mu.Unlock()
			if len(log.list) != 1 || !strings.Contains(log.list[0], "traces cannot be sent") {
				t.Errorf("the log: %q, want one line", log.list)
			}
			if name == "stalls" {
				close(stalls)
			}
			if h != nil {
				at.Close()
			}
		})
	}
}
