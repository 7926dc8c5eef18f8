// Package rest is the Open Inference Protocol over HTTP. It imports serve/service, serve/oip and its messages.
package rest

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	fastgzip "github.com/klauspost/compress/gzip"

	"spc/serve/oip"
	"spc/serve/oip/oippb"
	"spc/serve/service"
)

// DefaultBody is the most bytes that a body has unless Options say otherwise.
const DefaultBody = 256 << 20

// Options of a handler.
type Options struct {
	Service *service.Service
	Body    int64 // the most bytes of a body, also of one that was compressed; 0 for DefaultBody
}

// handler answers calls.
type handler struct{ Options }

// call is a row of the table of calls.
type call struct {
	method, path string
	f            func(h *handler, w http.ResponseWriter, r *http.Request) error
}

var calls = []call{
	{"GET", "/v2", (*handler).server},
	{"GET", "/v2/health/live", (*handler).live},
	{"GET", "/v2/health/ready", (*handler).ready},
	{"GET", "/v2/models/stats", (*handler).statistics},
	{"GET", "/v2/models/{model}", (*handler).metadata},
	{"GET", "/v2/models/{model}/versions/{version}", (*handler).metadata},
	{"GET", "/v2/models/{model}/ready", (*handler).modelReady},
	{"GET", "/v2/models/{model}/versions/{version}/ready", (*handler).modelReady},
	{"GET", "/v2/models/{model}/config", (*handler).config},
	{"GET", "/v2/models/{model}/versions/{version}/config", (*handler).config},
	{"GET", "/v2/models/{model}/stats", (*handler).statistics},
	{"GET", "/v2/models/{model}/versions/{version}/stats", (*handler).statistics},
	{"POST", "/v2/models/{model}/infer", (*handler).infer},
	{"POST", "/v2/models/{model}/versions/{version}/infer", (*handler).infer},
	{"POST", "/v2/repository/index", (*handler).index},
	{"POST", "/v2/repository/models/{model}/load", (*handler).load},
	{"POST", "/v2/repository/models/{model}/unload", (*handler).unload},
}

// Handler answers the calls below /v2, and all others with an error of the protocol.
func Handler(o Options) http.Handler {
	if o.Body <= 0 {
		o.Body = DefaultBody
	}
	h := &handler{o}
	mux := http.NewServeMux()
	for _, c := range calls {
		mux.Handle(c.path, Only(c.method, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := c.f(h, w, r); err != nil {
				fail(w, r, err)
			}
		})))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, oip.Errorf(oip.NotFound, "%s %s: no such call", r.Method, r.URL.Path))
	})
	return mux
}

// Only lets calls of one method through to a handler, and with GET those of HEAD.
func Only(method string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && !(method == "GET" && r.Method == "HEAD") {
			w.Header().Set("Allow", method)
			send(w, r, http.StatusMethodNotAllowed, oip.ErrorBody(fmt.Errorf("%s %s: want %s", r.Method, r.URL.Path, method)))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// fail answers with an error.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	kind := oip.KindOf(err)
	if kind == oip.Busy || kind == oip.Unavailable {
		w.Header().Set("Retry-After", "1")
	}
	send(w, r, kind.HTTP(), oip.ErrorBody(err))
}

// send answers with JSON.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	write(w, r, status, int64(len(body)), func(to io.Writer) error {
		_, err := to.Write(body)
		return err
	})
}

// worthZipping is the size from which on JSON is compressed for clients that take it.
const worthZipping = 4 << 10

var zippers = sync.Pool{New: func() any {
	z, err := fastgzip.NewWriterLevel(io.Discard, fastgzip.BestSpeed)
	if err != nil {
		panic(err) // there is such a level
	}
	return z
}}

// write answers with a body of so many bytes, compressed where it is JSON and the client takes that.
func write(w http.ResponseWriter, r *http.Request, status int, size int64, f func(io.Writer) error) {
	if size < worthZipping || w.Header().Get("Content-Type") != "application/json" || !accepts(r, "gzip") {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		w.WriteHeader(status)
		f(w) // the client is gone where it fails
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	w.WriteHeader(status)
	z := zippers.Get().(*fastgzip.Writer)
	defer zippers.Put(z)
	z.Reset(w)
	if f(z) == nil {
		z.Close()
	}
}

// accepts reports whether a client takes an encoding.
func accepts(r *http.Request, encoding string) bool {
	for _, list := range r.Header.Values("Accept-Encoding") {
		for e := range strings.SplitSeq(list, ",") {
			name, q, _ := strings.Cut(strings.TrimSpace(e), ";")
			if strings.EqualFold(strings.TrimSpace(name), encoding) && strings.ReplaceAll(strings.TrimSpace(q), " ", "") != "q=0" {
				return true
			}
		}
	}
	return false
}

// body reads a request's body.
func (h *handler) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	large := func() error { return oip.Errorf(oip.TooLarge, "the body has more than %d bytes", h.Body) }
	if r.ContentLength > h.Body {
		return nil, large()
	}
	var from io.Reader = http.MaxBytesReader(w, r.Body, h.Body)
	var err error
	switch e := strings.ToLower(r.Header.Get("Content-Encoding")); e {
	case "", "identity":
	case "gzip", "x-gzip":
		from, err = gzip.NewReader(from)
	case "deflate":
		from, err = zlib.NewReader(from)
	default:
		return nil, oip.Errorf(oip.Invalid, "Content-Encoding %q: want gzip, deflate or none", e)
	}
	if err != nil {
		return nil, reading(err, large)
	}
	var b bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= 1<<20 { // of more, as much as comes
		b.Grow(int(n) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(from, h.Body+1)); err != nil {
		return nil, reading(err, large)
	}
	if int64(b.Len()) > h.Body {
		return nil, large()
	}
	return b.Bytes(), nil
}

func reading(err error, large func() error) error {
	var most *http.MaxBytesError
	if errors.As(err, &most) {
		return large()
	}
	return oip.Errorf(oip.Invalid, "the body cannot be read: %w", err)
}

func (h *handler) infer(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("model")
	b, err := h.body(w, r)
	if err != nil {
		return err
	}
	length, err := oip.ParseHeaderLength(r.Header.Get(oip.HeaderLength), len(b))
	if err != nil {
		return oip.InModel(err, name)
	}
	q, err := oip.ReadRequest(b, length, h.Service.Limits)
	if err != nil {
		return oip.InModel(err, name)
	}
	q.ModelName, q.ModelVersion = name, r.PathValue("version")
	out, err := h.Service.Infer(r.Context(), q)
	if err != nil {
		return err
	}
	res, err := out.Body()
	if err != nil {
		return oip.InModel(err, name)
	}
	w.Header().Set("Content-Type", res.ContentType())
	if l := res.Header(); l != "" {
		w.Header().Set(oip.HeaderLength, l)
	}
	write(w, r, http.StatusOK, res.Len(), func(to io.Writer) error {
		_, err := res.WriteTo(to)
		return err
	})
	return nil
}

func (h *handler) server(w http.ResponseWriter, r *http.Request) error {
	return message(w, r, h.Service.Server())
}

func (h *handler) live(w http.ResponseWriter, r *http.Request) error {
	send(w, r, http.StatusOK, []byte(`{"live":true}`))
	return nil
}

// ready answers as the specification's text has it, which names the field live, and as clients read it.
func (h *handler) ready(w http.ResponseWriter, r *http.Request) error {
	status, ok := http.StatusOK, h.Service.Models.Ready()
	if !ok {
		status = http.StatusServiceUnavailable
	}
	send(w, r, status, fmt.Appendf(nil, `{"live":%v,"ready":%v}`, ok, ok))
	return nil
}

func (h *handler) modelReady(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("model")
	answer := struct {
		Name  string `json:"name"`
		Ready bool   `json:"ready"`
		Error string `json:"error,omitempty"`
	}{Name: name, Ready: true}
	status := http.StatusOK
	if err := h.Service.ModelReady(name, r.PathValue("version")); err != nil {
		if oip.KindOf(err) != oip.Unavailable {
			return err
		}
		status, answer.Ready, answer.Error = http.StatusServiceUnavailable, false, err.Error()
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	send(w, r, status, b)
	return nil
}

func (h *handler) metadata(w http.ResponseWriter, r *http.Request) error {
	m, err := h.Service.Metadata(r.PathValue("model"), r.PathValue("version"))
	if err != nil {
		return err
	}
	return message(w, r, m)
}

func (h *handler) config(w http.ResponseWriter, r *http.Request) error {
	c, err := h.Service.Config(r.PathValue("model"), r.PathValue("version"))
	if err != nil {
		return err
	}
	return message(w, r, c)
}

func (h *handler) statistics(w http.ResponseWriter, r *http.Request) error {
	s, err := h.Service.Statistics(r.PathValue("model"), r.PathValue("version"))
	if err != nil {
		return err
	}
	return message(w, r, s)
}

// index answers with a list, where gRPC has a message with one. The body may be empty.
func (h *handler) index(w http.ResponseWriter, r *http.Request) error {
	var q struct{ Ready bool }
	if err := h.json(w, r, &q); err != nil {
		return err
	}
	return list(w, r, (&oippb.RepositoryIndexResponse{Models: h.Service.Index(q.Ready).Models}).ProtoReflect(), "models")
}

func (h *handler) load(w http.ResponseWriter, r *http.Request) error {
	var q struct{ Parameters map[string]any }
	if err := h.json(w, r, &q); err != nil {
		return err
	}
	if len(q.Parameters) > 0 {
		return oip.Errorf(oip.Unsupported, "parameters of load: what a model is comes from its files alone")
	}
	if err := h.Service.Load(r.Context(), r.PathValue("model")); err != nil {
		return err
	}
	send(w, r, http.StatusOK, []byte("{}"))
	return nil
}

func (h *handler) unload(w http.ResponseWriter, r *http.Request) error {
	if err := h.json(w, r, new(struct{})); err != nil {
		return err
	}
	if err := h.Service.Unload(r.PathValue("model")); err != nil {
		return err
	}
	send(w, r, http.StatusOK, []byte("{}"))
	return nil
}

// smallBody is the most bytes of a body that is read into a Go value.
const smallBody = 1 << 20

// json reads a body that may be empty.
func (h *handler) json(w http.ResponseWriter, r *http.Request, into any) error {
	b, err := (&handler{Options{Body: min(h.Body, smallBody)}}).body(w, r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return oip.Errorf(oip.Invalid, "the body is not what this call takes: %w", err)
	}
	return nil
}
