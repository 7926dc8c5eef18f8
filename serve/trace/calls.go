package trace

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// untraced are the calls that come again and again and tell nothing: of probes and of Prometheus.
var untraced = []string{
	"/v2/health/live", "/v2/health/ready", "/metrics",
	"/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerReady", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
}

// HTTP adds a span to each call of a handler, below that of the caller where it names one. The handler calls Answered.
func (t *Tracer) HTTP(h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(untraced, r.URL.Path) {
			h.ServeHTTP(w, r)
			return
		}
		about := []attribute.KeyValue{
			semconv.HTTPRequestMethodKey.String(method(r)), semconv.URLPath(sendable(r.URL.Path)), semconv.URLScheme(scheme(r)),
			semconv.NetworkProtocolVersion(fmt.Sprintf("%d.%d", r.ProtoMajor, r.ProtoMinor)),
		}
		if a := r.UserAgent(); a != "" {
			about = append(about, semconv.UserAgentOriginal(sendable(a)))
		}
		ctx := t.from.Extract(r.Context(), header(r.Header.Get))
		ctx, s := t.tracer.Start(ctx, spanName(r), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(about...))
		defer ends(s)
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Answered says of a call over HTTP what it was answered with, and which route it took, once that is known.
func Answered(r *http.Request, answer int) {
	s := recording(r.Context())
	if s == nil {
		return
	}
	s.SetAttributes(semconv.HTTPResponseStatusCode(answer))
	if len(r.Pattern) > 1 { // / is that of what there is not
		s.SetName(spanName(r))
		s.SetAttributes(semconv.HTTPRoute(r.Pattern))
	}
	if answer >= 500 {
		s.SetStatus(codes.Error, http.StatusText(answer))
		s.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(answer)))
	}
}

// methods are those that the conventions know; there may be any.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "QUERY"}

func method(r *http.Request) string {
	if slices.Contains(methods, r.Method) {
		return r.Method
	}
	return "_OTHER"
}

// spanName has nothing of what a client may choose at will.
func spanName(r *http.Request) string {
	m := method(r)
	if m == "_OTHER" {
		m = "HTTP"
	}
	if len(r.Pattern) > 1 {
		return m + " " + r.Pattern
	}
	return m
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// header reads the headers of a call, from which traceparent and tracestate are taken; it satisfies propagation.TextMapCarrier.
type header func(key string) string

func (h header) Get(key string) string { return h(key) }
func (header) Set(string, string)      {}
func (header) Keys() []string          { return nil }

// ends ends a span, also where its call panics.
func ends(s trace.Span) {
	p := recover()
	if p != nil {
		s.SetStatus(codes.Error, "panic")
	}
	s.End()
	if p != nil {
		panic(p)
	}
}

// start begins the span of a call over gRPC.
func (t *Tracer) start(ctx context.Context, call string) (context.Context, trace.Span) {
	md, _ := metadata.FromIncomingContext(ctx)
	get := func(key string) string {
		if list := md.Get(key); len(list) > 0 {
			return list[0]
		}
		return ""
	}
	name := strings.TrimPrefix(call, "/")
	about := []attribute.KeyValue{semconv.RPCSystemNameGRPC, semconv.RPCMethod(sendable(name))}
	if a := get("user-agent"); a != "" {
		about = append(about, semconv.UserAgentOriginal(sendable(a)))
	}
	return t.tracer.Start(t.from.Extract(ctx, header(get)), name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(about...))
}

// serverErrors are the codes that are errors of a server, as the conventions have it.
var serverErrors = []code.Code{code.Code_UNKNOWN, code.Code_DEADLINE_EXCEEDED, code.Code_UNIMPLEMENTED, code.Code_INTERNAL, code.Code_UNAVAILABLE, code.Code_DATA_LOSS}

// answered says of a call over gRPC what it was answered with.
func answered(s trace.Span, err error) {
	c := code.Code(status.Code(err))
	s.SetAttributes(semconv.RPCResponseStatusCode(c.String()))
	if err != nil {
		s.SetAttributes(semconv.ErrorTypeKey.String(c.String()))
	}
	if slices.Contains(serverErrors, c) {
		s.SetStatus(codes.Error, sendable(status.Convert(err).Message()))
	}
}

// GRPC are the options of a server that add a span to each of its calls, below that of the caller where it names one.
func (t *Tracer) GRPC() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if slices.Contains(untraced, info.FullMethod) {
				return next(ctx, q)
			}
			ctx, s := t.start(ctx, info.FullMethod)
			defer ends(s)
			out, err := next(ctx, q)
			answered(s, err)
			return out, err
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if slices.Contains(untraced, info.FullMethod) {
				return next(srv, stream)
			}
			ctx, s := t.start(stream.Context(), info.FullMethod)
			defer ends(s)
			err := next(srv, &traced{stream, ctx})
			answered(s, err)
			return err
		}),
	}
}

// traced is a stream with a span in its context.
type traced struct {
	grpc.ServerStream
	ctx context.Context
}

func (t *traced) Context() context.Context { return t.ctx }
