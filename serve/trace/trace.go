// Package trace tells a collector of OpenTelemetry what becomes of requests: a span for each call, and below it when a request waited, its inputs were joined,
// the model ran, and outputs were split. It imports nothing of the module. Names and attributes are those of OpenTelemetry's semantic conventions, and
// where these have none begin with spc.
package trace

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Tracer sends spans to a collector. Nil does nothing. It may be used concurrently.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	from     propagation.TraceContext
}

// scope is what spans are made by.
const scope = "spc/serve"

// The time that a collector has: for a batch of spans, with all its tries, and for what is left at the end.
const (
	sendTime  = 15 * time.Second
	flushTime = 5 * time.Second
)

// FromEnv returns a tracer as OpenTelemetry's environment variables have it, or nil where none names an endpoint: OTEL_EXPORTER_OTLP_ENDPOINT and
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, with OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_BSP_* and OTEL_EXPORTER_OTLP_*. Spans go
// there over HTTP, as protocol buffers. A collector that cannot be reached is told of in the log once a minute, and costs no request anything.
func FromEnv(log *slog.Logger, service, version string) (*Tracer, error) {
	on, err := wanted()
	if !on || err != nil {
		return nil, err
	}
	quiet := &failures{log: log}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(quiet.add))
	ctx := context.Background()
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: sendTime,
	}))
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(&exporter{client, quiet}), sdk.WithResource(about))
	return &Tracer{provider: p, tracer: p.Tracer(scope)}, nil
}

// wanted reads whether spans are to be sent, and says what of how is not known here.
func wanted() (bool, error) {
	const all, own = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"
	endpoint := cmp.Or(os.Getenv(own+"ENDPOINT"), os.Getenv(all+"ENDPOINT"))
	as := os.Getenv("OTEL_TRACES_EXPORTER")
	if endpoint == "" || as == "none" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	if as != "" && as != "otlp" {
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q, want otlp or none", as)
	}
	if p := cmp.Or(os.Getenv(own+"PROTOCOL"), os.Getenv(all+"PROTOCOL")); p != "" && p != "http/protobuf" {
		return false, fmt.Errorf("%sPROTOCOL is %q, want http/protobuf", all, p)
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false, fmt.Errorf("%sENDPOINT is %q, want a URL such as http://collector:4318", all, endpoint)
	}
	for _, name := range sizes {
		const most = 1 << 20
		if v := os.Getenv(name); v != "" {
			if n, err := strconv.Atoi(v); err != nil || n < 1 || n > most {
				return false, fmt.Errorf("%s is %q, want from 1 to %d", name, v, most)
			}
		}
	}
	return true, nil
}

// sizes are the variables by which OpenTelemetry takes memory, for which it looks at no bounds.
var sizes = []string{"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"}

// Close sends what is left, for a few seconds at most.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// exporter keeps errors to itself.
type exporter struct {
	sdk.SpanExporter
	failed *failures
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.failed.add(fmt.Errorf("%d spans are lost: %w", len(spans), err))
	}
	return nil
}

// failures logs errors now and then.
type failures struct {
	log *slog.Logger

	mu    sync.Mutex
	last  time.Time
	count int // since
}

// failureTime is how far lines of the log are apart.
const failureTime = time.Minute

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if now := time.Now(); now.Sub(f.last) >= failureTime {
		f.log.Warn("traces cannot be sent", "error", err, "failures", f.count)
		f.last, f.count = now, 0
	}
}

// recording is the span of a context, nil where there is none that anybody wants to know of.
func recording(ctx context.Context) trace.Span {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		return s
	}
	return nil
}

// sendable is a text of a client, of which a collector gets what is UTF-8: with anything else none of the spans that are sent together would be.
func sendable(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Asked says of a call which version of a model it is for, which may be empty where that is not known.
func Asked(ctx context.Context, model, version string) {
	if s := recording(ctx); s != nil {
		s.SetAttributes(attribute.String("spc.model.name", sendable(model)), attribute.String("spc.model.version", sendable(version)))
	}
}

// Run is what became of a request that ran: when it began to wait, when the run that it was part of began, and how long that took to join inputs, to compute,
// and to split outputs.
type Run struct {
	Queued, Began          time.Time
	Input, Compute, Output time.Duration
	Rows, Batch            int // of the request, and of the run
}

// Ran adds the parts of a call, one after the other.
func Ran(ctx context.Context, r *Run) {
	s := recording(ctx)
	if s == nil || r.Began.IsZero() {
		return
	}
	s.SetAttributes(attribute.Int("spc.request.rows", r.Rows))
	computes := r.Began.Add(r.Input)
	splits := computes.Add(r.Compute)
	part(ctx, s, "queue", r.Queued, r.Began, nil)
	part(ctx, s, "input", r.Began, computes, nil)
	part(ctx, s, "compute", computes, splits, nil, attribute.Int("spc.batch.rows", r.Batch))
	part(ctx, s, "output", splits, splits.Add(r.Output), nil)
}

// Waited adds the one part of a call whose request left the queue without a run.
func Waited(ctx context.Context, queued time.Time, err error) {
	if s := recording(ctx); s != nil && !queued.IsZero() {
		part(ctx, s, "queue", queued, time.Now(), err)
	}
}

// part adds a span below another, which is that of the context.
func part(ctx context.Context, of trace.Span, name string, from, to time.Time, err error, about ...attribute.KeyValue) {
	_, s := of.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(about...))
	fail(s, err)
	s.End(trace.WithTimestamp(to))
}

// Part begins a span below that of a context, for one of several requests of a call; the function ends it.
func Part(ctx context.Context, name string) (context.Context, func(error)) {
	of := recording(ctx)
	if of == nil {
		return ctx, func(error) {}
	}
	ctx, s := of.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, func(err error) {
		fail(s, err)
		s.End()
	}
}

// fail says of a span that it ended with an error, where there is one.
func fail(s trace.Span, err error) {
	if err != nil {
		s.SetStatus(codes.Error, sendable(err.Error()))
	}
}
