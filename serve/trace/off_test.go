package trace_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"spc/serve/trace"
)

// off is what a request costs where nothing is traced.
func off(ctx context.Context, r *trace.Run) {
	trace.Asked(ctx, "model", "1")
	ctx, end := trace.Part(ctx, "infer")
	trace.Ran(ctx, r)
	trace.Waited(ctx, r.Queued, nil)
	end(nil)
}

func TestWithoutATracerNothingIsAllocated(t *testing.T) {
	r := &trace.Run{Queued: time.Now(), Began: time.Now(), Rows: 1, Batch: 2}
	call := httptest.NewRequest("POST", "/v2/models/m/infer", nil)
	if n := testing.AllocsPerRun(100, func() {
		off(t.Context(), r)
		trace.Answered(call, 200)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	var none *trace.Tracer
	h := http.NewServeMux()
	if none.HTTP(h) != http.Handler(h) || none.GRPC() != nil {
		t.Error("no tracer changes how calls are answered")
	}
	none.Close()
}

func BenchmarkOff(b *testing.B) {
	r := &trace.Run{Queued: time.Now(), Began: time.Now(), Rows: 1, Batch: 2}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		off(ctx, r)
	}
}

func TestFromEnv(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, c := range []struct {
		env   string // NAME=VALUE of variables
		on    bool
		error string
	}{
		{"", false, ""},
		{endpoint + "=http://127.0.0.1:1", true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces", true, ""},
		{endpoint + "=http://127.0.0.1:1 OTEL_SDK_DISABLED=true", false, ""},
		{endpoint + "=http://127.0.0.1:1 OTEL_TRACES_EXPORTER=none", false, ""},
		{endpoint + "=http://127.0.0.1:1 OTEL_TRACES_EXPORTER=otlp", true, ""},
		{endpoint + "=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", true, ""},
		{endpoint + "=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, `"grpc", want http/protobuf`},
		{endpoint + "=http://127.0.0.1:1 OTEL_TRACES_EXPORTER=zipkin", false, `"zipkin", want otlp or none`},
		{endpoint + "=127.0.0.1:4318", false, "want a URL"},
		{endpoint + "=ftp://127.0.0.1:4318", false, "want a URL"},
		{endpoint + "=http://127.0.0.1:1 OTEL_BSP_MAX_QUEUE_SIZE=100 OTEL_BSP_MAX_EXPORT_BATCH_SIZE=7", true, ""},
		{endpoint + "=http://127.0.0.1:1 OTEL_BSP_MAX_QUEUE_SIZE=-4", false, `"-4", want from 1 to 1048576`},
		{endpoint + "=http://127.0.0.1:1 OTEL_BSP_MAX_QUEUE_SIZE=9000000000000000000", false, "OTEL_BSP_MAX_QUEUE_SIZE"},
		{endpoint + "=http://127.0.0.1:1 OTEL_BSP_MAX_EXPORT_BATCH_SIZE=-1", false, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"},
		{endpoint + "=http://127.0.0.1:1 OTEL_RESOURCE_ATTRIBUTES=a", false, "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(c.env, func(t *testing.T) {
			for _, name := range []string{
				endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
			} {
				t.Setenv(name, "")
			}
			for v := range strings.FieldsSeq(c.env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			tr, err := trace.FromEnv(slog.New(slog.NewTextHandler(io.Discard, nil)), "spc", "1")
			tr.Close()
			if (tr != nil) != c.on || (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
				t.Errorf("a tracer: %v, error %v; want %v, %q", tr != nil, err, c.on, c.error)
			}
		})
	}
}
