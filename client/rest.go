package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"spc/serve/oip"
	"spc/serve/oip/oippb"
)

// rest calls a server over HTTP.
type rest struct {
	base string // the address of /v2, without it
	web  *http.Client
	o    *Options
}

// connections is how many idle connections to a server are kept.
const connections = 1024

// dialTime is how long a connection may take to come about.
const dialTime = 30 * time.Second

func newREST(at address, o *Options) *rest {
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: dialTime}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTime, MaxIdleConnsPerHost: connections, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true, // which takes longer than the tensors do
		WriteBufferSize:    64 << 10, ReadBufferSize: 64 << 10,
	}
	host := at.host
	if at.socket != "" {
		host = "localhost"
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", at.socket)
		}
	}
	scheme := "http://"
	if at.tls {
		scheme = "https://"
		t.TLSClientConfig = o.TLS.Clone()
	}
	// A redirection is an error: what answers a GET elsewhere would have a POST become one.
	keep := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &rest{scheme + host + at.path, &http.Client{Transport: t, CheckRedirect: keep}, o}
}

func (r *rest) close() error {
	r.web.CloseIdleConnections()
	return nil
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes a call, and returns whatever the server answers.
func (r *rest) send(ctx context.Context, method, path string, body *oip.Body) (*answer, error) {
	var gate gate
	defer gate.shut()
	q, err := http.NewRequestWithContext(ctx, method, r.base+path, nil)
	if err != nil {
		return nil, invalid("%v", err)
	}
	if body != nil {
		q.GetBody = func() (io.ReadCloser, error) { return gate.reader(body), nil } // of a connection that the server has closed meanwhile
		q.Body, q.ContentLength = gate.reader(body), body.Len()
		q.Header.Set("Content-Type", body.ContentType())
		if l := body.Header(); l != "" {
			q.Header.Set(oip.HeaderLength, l)
		}
	}
	if r.o.Token != "" {
		q.Header.Set("Authorization", "Bearer "+r.o.Token)
	}
	q.Header.Set("User-Agent", userAgent)
	res, err := r.web.Do(q)
	if err != nil {
		var about *url.Error
		if errors.As(err, &about) {
			err = about.Err // without the address, which the client's error has
		}
		// What net/http says of a server that speaks first, or otherwise, as one of gRPC does, depends on which comes first.
		if text := err.Error(); strings.Contains(text, "malformed HTTP") || strings.Contains(text, "readLoopPeekFailLocked: %!w(<nil>)") {
			err = errors.New("what answers does not speak HTTP/1.1; a server of gRPC is grpc://HOST:PORT")
		}
		return nil, unreachable(err)
	}
	defer res.Body.Close()
	a := &answer{status: res.StatusCode, header: res.Header}
	a.body, err = r.read(res)
	return a, err
}

// userAgent names the client.
const userAgent = "spc-client"

// read reads the body of an answer.
func (r *rest) read(res *http.Response) ([]byte, error) {
	large := &Error{Message: fmt.Sprintf("the answer has more than %d bytes", r.o.Largest), kind: ErrTooLarge}
	if res.ContentLength > r.o.Largest {
		return nil, large
	}
	var b bytes.Buffer
	if n := res.ContentLength; n > 0 {
		b.Grow(int(min(n, 16<<20)) + bytes.MinRead) // of more, as much as comes
	}
	if _, err := b.ReadFrom(io.LimitReader(res.Body, r.o.Largest+1)); err != nil {
		return nil, unreachable(fmt.Errorf("reading the answer: %w", err))
	}
	if int64(b.Len()) > r.o.Largest {
		return nil, large
	}
	return b.Bytes(), nil
}

// gate lets a body be sent until it is shut: the transport may read on after a call has ended, while the caller changes its tensors.
type gate struct {
	mu    sync.Mutex
	ended bool
}

func (g *gate) shut() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
}

func (g *gate) reader(b *oip.Body) io.ReadCloser {
	parts := []io.Reader{bytes.NewReader(b.JSON)}
	for _, raw := range b.Binary {
		parts = append(parts, bytes.NewReader(raw))
	}
	return &gated{g, io.MultiReader(parts...)}
}

type gated struct {
	gate *gate
	from io.Reader
}

func (r *gated) Read(p []byte) (int, error) {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.gate.ended {
		return 0, errors.New("the call has ended")
	}
	return r.from.Read(p)
}

func (r *gated) Close() error { return nil }

// failure is the error that an answer tells, nil where it tells none.
func (a *answer) failure() error {
	if a.status == http.StatusOK {
		return nil
	}
	text := oip.ReadErrorBody(a.body)
	if at := a.header.Get("Location"); at != "" && a.status/100 == 3 {
		text = "it is elsewhere, at " + at
	}
	return answered(a.status, 0, text)
}

// call makes a call that is to succeed.
func (r *rest) call(ctx context.Context, method, path string, body *oip.Body) (*answer, error) {
	a, err := r.send(ctx, method, path, body)
	if err == nil {
		err = a.failure()
	}
	return a, err
}

// get reads an answer into a message.
func (r *rest) get(ctx context.Context, path string, into proto.Message) ([]byte, error) {
	a, err := r.call(ctx, "GET", path, nil)
	if err != nil {
		return nil, err
	}
	return a.body, a.message(a.body, into)
}

// message reads JSON with the names of a message's fields, integers of 64 bits as numbers or as strings.
func (a *answer) message(text []byte, into proto.Message) error {
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, into); err != nil {
		return protocol("%s, want %s as JSON: %v", oip.ReadErrorBody(a.body), into.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

// health asks whether something is so. Triton answers with a status alone, and one of 400 for no; others with a body and 503.
func (r *rest) health(ctx context.Context, path string) (bool, error) {
	a, err := r.send(ctx, "GET", path, nil)
	if err != nil {
		return false, err
	}
	empty := len(bytes.TrimSpace(a.body)) == 0
	if a.status == http.StatusServiceUnavailable || a.status == http.StatusBadRequest && empty {
		return false, nil
	}
	if err := a.failure(); err != nil {
		return false, err
	}
	var said struct{ Live, Ready *bool } // which texts of the specification mix up
	if !empty && json.Unmarshal(a.body, &said) != nil {
		return false, protocol("%s, want JSON or nothing", oip.ReadErrorBody(a.body))
	}
	return (said.Live == nil || *said.Live) && (said.Ready == nil || *said.Ready), nil
}

func (r *rest) live(ctx context.Context) (bool, error)  { return r.health(ctx, "/v2/health/live") }
func (r *rest) ready(ctx context.Context) (bool, error) { return r.health(ctx, "/v2/health/ready") }

// modelPath is the path of a model.
func modelPath(model, version, call string) string {
	p := modelsPath + url.PathEscape(model)
	if version != "" {
		p += "/versions/" + url.PathEscape(version)
	}
	return p + call
}

func (r *rest) modelReady(ctx context.Context, model, version string) (bool, error) {
	return r.health(ctx, modelPath(model, version, "/ready"))
}

func (r *rest) server(ctx context.Context) (*oippb.ServerMetadataResponse, error) {
	p := &oippb.ServerMetadataResponse{}
	_, err := r.get(ctx, "/v2", p)
	return p, err
}

func (r *rest) metadata(ctx context.Context, model, version string) (*oippb.ModelMetadataResponse, error) {
	p := &oippb.ModelMetadataResponse{}
	_, err := r.get(ctx, modelPath(model, version, ""), p)
	return p, err
}

func (r *rest) config(ctx context.Context, model, version string) (*oippb.ModelConfig, []byte, error) {
	p := &oippb.ModelConfig{}
	text, err := r.get(ctx, modelPath(model, version, "/config"), p)
	return p, text, err
}

func (r *rest) statistics(ctx context.Context, model, version string) (*oippb.ModelStatisticsResponse, error) {
	p := &oippb.ModelStatisticsResponse{}
	_, err := r.get(ctx, modelPath(model, version, "/stats"), p)
	return p, err
}

// index reads a list, where gRPC has a message with one.
func (r *rest) index(ctx context.Context, ready bool) (*oippb.RepositoryIndexResponse, error) {
	a, err := r.call(ctx, "POST", "/v2/repository/index", &oip.Body{JSON: fmt.Appendf(nil, `{"ready":%v}`, ready)})
	if err != nil {
		return nil, err
	}
	p, text := &oippb.RepositoryIndexResponse{}, bytes.TrimSpace(a.body)
	if bytes.HasPrefix(text, []byte("[")) {
		text = []byte(`{"models":` + string(text) + `}`)
	}
	return p, a.message(text, p)
}

func (r *rest) load(ctx context.Context, model string) error {
	return r.repository(ctx, model, "/load")
}

func (r *rest) unload(ctx context.Context, model string) error {
	return r.repository(ctx, model, "/unload")
}

func (r *rest) repository(ctx context.Context, model, call string) error {
	_, err := r.call(ctx, "POST", "/v2/repository/models/"+url.PathEscape(model)+call, &oip.Body{JSON: []byte("{}")})
	return err
}

func (r *rest) infer(ctx context.Context, q *oip.Request) (*oip.Response, error) {
	path := modelPath(q.ModelName, q.ModelVersion, "/infer")
	inPath := *q
	inPath.ModelName, inPath.ModelVersion = "", ""
	body, err := inPath.Body()
	if err != nil {
		return nil, unsent(err)
	}
	a, err := r.call(ctx, "POST", path, body)
	if err != nil {
		return nil, err
	}
	length, err := oip.ParseHeaderLength(a.header.Get(oip.HeaderLength), len(a.body))
	if err != nil {
		return nil, unreadable(err)
	}
	p, err := oip.ReadResponse(a.body, length, limits(r.o))
	if err != nil {
		if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/") {
			return nil, protocol("the answer is %q: %s", kind, oip.ReadErrorBody(a.body))
		}
		return nil, unreadable(err)
	}
	return p, nil
}

// limits bound what is read of an answer.
func limits(o *Options) oip.Limits { return oip.Limits{Bytes: o.Largest, Tensors: 1 << 16} }
