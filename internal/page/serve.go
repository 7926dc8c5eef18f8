package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Measure runs a model anew.
type Measure func(ctx context.Context) (*Measured, error)

// Listener is where a page will be served.
type Listener struct {
	net.Listener
	host string // that was given
}

// Listen listens at an address, on this machine alone unless it names a host.
func Listen(ctx context.Context, address string) (*Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address %q, want PORT with a colon before it, or HOST:PORT: %w", address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	return &Listener{l, host}, nil
}

// URL is the page's.
func (l *Listener) URL() string { return "http://" + l.Addr().String() + "/" }

// Serve serves the page of models until the context ends, which is no error. A POST of profile?model=I runs model I by
// its Measure and answers with what that gives, which the page shows from then on.
func (l *Listener) Serve(ctx context.Context, models []*Model, measures []Measure) error {
	return l.serve(ctx, &http.Server{
		Handler: &handler{host: l.host, models: models, measures: measures}, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, MaxHeaderBytes: 1 << 16,
	})
}

func (l *Listener) serve(ctx context.Context, s *http.Server) error {
	s.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler answers requests.
type handler struct {
	host     string // that it listens on
	measures []Measure

	mu     sync.Mutex // of the times in models
	models []*Model
	busy   sync.Mutex // while a model runs
}

// ServeHTTP refuses what another site has a browser send: a name that leads here by way of another's DNS, and a POST from a
// page of another origin.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if !h.own(r.Host) {
		http.Error(w, "this host is not the one that is served", http.StatusForbidden)
		return
	}
	switch {
	case r.URL.Path == "/profile" && r.Method == http.MethodPost:
		h.profile(w, r)
	case r.URL.Path == "/profile":
		header.Set("Allow", http.MethodPost)
		http.Error(w, "want a POST", http.StatusMethodNotAllowed)
	case r.URL.Path != "/":
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "want a GET", http.StatusMethodNotAllowed)
	default:
		var b bytes.Buffer
		h.mu.Lock()
		err := Write(&b, h.models, true)
		h.mu.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Length", strconv.Itoa(b.Len()))
		w.Write(b.Bytes())
	}
}

// own reports whether a request names the server by an address, as localhost, or by the name that it was given: whatever
// other name leads here is another's.
func (h *handler) own(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost") || strings.EqualFold(host, h.host)
}

// sameOrigin reports whether a request comes from the page itself, or from no page.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

func (h *handler) profile(w http.ResponseWriter, r *http.Request) {
	// Forms of other sites cannot send this type.
	if !sameOrigin(r) || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "not from the page that is served", http.StatusForbidden)
		return
	}
	i, err := strconv.Atoi(r.URL.Query().Get("model"))
	if err != nil || i < 0 || i >= len(h.measures) {
		http.Error(w, fmt.Sprintf("no model %q, want one of 0 to %d", r.URL.Query().Get("model"), len(h.measures)-1), http.StatusBadRequest)
		return
	}
	// What is left unread would hide that the client goes away, which ends the context.
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<16)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !h.busy.TryLock() {
		http.Error(w, "it is measuring", http.StatusConflict)
		return
	}
	defer h.busy.Unlock()
	t, err := h.measures[i](r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.mu.Lock()
	h.models[i].Measured, h.models[i].Why = t, ""
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(t)
}
