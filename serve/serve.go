// Package serve is a server of compiled models: the Open Inference Protocol over HTTP and gRPC, for models that come, change and go as files. Run is all
// of it; the packages below it are its parts. It may change in any version.
package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"spc"
	"spc/internal/regular"
	"spc/serve/host"
	"spc/serve/metrics"
	"spc/serve/oip"
	"spc/serve/page"
	"spc/serve/queue"
	"spc/serve/repo"
	"spc/serve/rest"
	"spc/serve/rpc"
	"spc/serve/service"
	"spc/serve/trace"
)

// Options say what is served, and how.
type Options struct {
	Name   string // of the server, by default spc
	Models []repo.Source
	Dir    string // see repo.Options
	// Device, where it is set, opens what models run on, with the threads that all share; else they are it.
	Device func(cpu *spc.SharedCPU) (spc.Device, error)
	// Load opens or compiles a file, to run on a device.
	Load   func(ctx context.Context, path string, c host.Config, d spc.Device) (*spc.Model, error)
	Config host.Config   // of what a model's config.yaml does not say
	Poll   time.Duration // how often files are looked at, 0 for DefaultPoll, below 0 for when a client loads a model alone

	// HTTP and GRPC are addresses to listen at, such as :8080 or unix:/run/spc.sock; empty for none.
	HTTP, GRPC string
	// Cert and Key are files of the server's certificate and key, for TLS; ClientCA one of certificates that sign those of clients, which are then
	// needed.
	Cert, Key, ClientCA string
	Tokens              string // a file of bearer tokens, of which each call needs one, but for those of probes

	Admin      bool          // clients may load and unload models, and profile the server
	Body       int64         // the most bytes of a request, 0 for rest.DefaultBody
	Tensors    int           // the most inputs, outputs and parameters of a request, each, 0 for oip.DefaultTensors
	Concurrent int           // the most requests at a time, 0 for DefaultConcurrent
	Timeout    time.Duration // of a request, 0 for none
	Idle       time.Duration // of a connection, and for its headers, 0 for DefaultIdle
	Threads    int           // of all models together, 0 for one a physical core
	Runs       int           // that go on at the same time, 0 for as many as Threads, or for DeviceRuns where models run on a GPU
	Drain      time.Duration // that requests have at the end, 0 for DefaultDrain

	Log *slog.Logger
	// Trace, which Run closes, tells a collector of calls; nil for none.
	Trace *trace.Tracer
	// Listening, where it is set, is called with the addresses that are listened at.
	Listening func(http, grpc net.Addr)
}

// The defaults.
const (
	DefaultConcurrent = 4096
	DefaultIdle       = 2 * time.Minute
	DefaultDrain      = 30 * time.Second
	DefaultPoll       = 2 * time.Second
	// DeviceRuns is the number of runs on a GPU at the same time: one copies its inputs while the other computes.
	DeviceRuns = 2
)

// headerTime is how long a client has to send a request's headers.
const headerTime = 10 * time.Second

// Run serves until the context ends, and then lets requests end, for as long as Options.Drain. It returns at once with what is wrong with the options;
// what is wrong with a model is logged, and told in the index.
func Run(ctx context.Context, o Options) error {
	o.Name, o.Concurrent = cmp.Or(o.Name, "spc"), cmp.Or(o.Concurrent, DefaultConcurrent)
	o.Idle, o.Drain, o.Body, o.Poll = cmp.Or(o.Idle, DefaultIdle), cmp.Or(o.Drain, DefaultDrain), cmp.Or(o.Body, rest.DefaultBody), cmp.Or(o.Poll, DefaultPoll)
	defer o.Trace.Close()
	if o.HTTP == "" && o.GRPC == "" {
		return errors.New("no address to listen at")
	}
	security, err := o.security()
	if err != nil {
		return err
	}
	var auth *tokens
	if o.Tokens != "" {
		if auth, err = readTokens(o.Tokens); err != nil {
			return err
		}
	}
	var listeners [2]net.Listener
	defer func() {
		for _, l := range listeners {
			if l != nil {
				l.Close()
			}
		}
	}()
	for i, at := range []string{o.HTTP, o.GRPC} {
		if at == "" {
			continue
		}
		if listeners[i], err = listen(at); err != nil {
			return err
		}
	}
	cpu, err := spc.NewSharedCPU(o.Threads)
	if err != nil {
		return err
	}
	defer cpu.Close()
	device, runs, err := o.device(cpu)
	if err != nil {
		return err
	}
	models, err := repo.Open(repo.Options{
		Models: o.Models, Dir: o.Dir, Config: o.Config, Poll: o.Poll, Drain: o.Drain, Log: o.Log, Scheduler: queue.New(runs),
		Load: func(ctx context.Context, path string, c host.Config) (*spc.Model, error) {
			return o.Load(ctx, path, c, device)
		},
	})
	if err != nil {
		return err
	}
	defer models.Close()
	s := service.New(service.Options{
		Models: models, Name: o.Name, Admin: o.Admin, Concurrent: o.Concurrent, Timeout: o.Timeout, Limits: oip.Limits{Bytes: o.Body, Tensors: o.Tensors},
		Ends: ctx.Done(),
	})
	return o.serve(ctx, s, listeners, security, auth)
}

// device is what models run on, and how many runs go on there at the same time.
func (o *Options) device(host *spc.SharedCPU) (d spc.Device, runs int, err error) {
	if o.Device == nil {
		return host, cmp.Or(o.Runs, host.Threads()), nil
	}
	if d, err = o.Device(host); err != nil {
		return nil, 0, err
	}
	if d.Name() == host.Name() {
		return d, cmp.Or(o.Runs, host.Threads()), nil
	}
	return d, cmp.Or(o.Runs, DeviceRuns), nil
}

// listen listens at an address. A socket that nobody listens at any more is replaced.
func listen(at string) (net.Listener, error) {
	path, unix := strings.CutPrefix(at, "unix:")
	if !unix {
		return net.Listen("tcp", at)
	}
	if path == "" { // which the system would find a name for
		return nil, fmt.Errorf("%s has no path, want unix:PATH", at)
	}
	l, err := net.Listen("unix", path)
	if err == nil {
		return l, nil
	}
	if info, serr := os.Lstat(path); serr != nil || info.Mode().Type() != os.ModeSocket {
		return nil, err
	}
	c, derr := net.Dial("unix", path)
	if derr == nil {
		c.Close()
	}
	if !errors.Is(derr, syscall.ECONNREFUSED) { // such as that of a server that has too many connections to take
		return nil, err
	}
	if os.Remove(path) != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// security is the configuration of TLS, nil where there is none.
func (o *Options) security() (*tls.Config, error) {
	switch {
	case o.Cert == "" && o.Key == "" && o.ClientCA == "":
		return nil, nil
	case o.Cert == "" || o.Key == "":
		return nil, errors.New("TLS needs both a certificate and its key")
	}
	load := func() (*tls.Certificate, error) {
		cert, err := regular.ReadFile(o.Cert)
		if err != nil {
			return nil, err
		}
		key, err := regular.ReadFile(o.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", o.Cert, o.Key, err)
		}
		return &pair, nil
	}
	r := &renewed{load: load, paths: []string{o.Cert, o.Key}}
	if err := r.renew(); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: r.get}
	if o.ClientCA == "" {
		return c, nil
	}
	b, err := regular.ReadFile(o.ClientCA)
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s: no certificates in it", o.ClientCA)
	}
	return c, nil
}

// renewed is a certificate whose files may be replaced, as those of cert-manager are.
type renewed struct {
	load  func() (*tls.Certificate, error)
	paths []string

	mu     sync.Mutex
	cert   *tls.Certificate
	looked time.Time
	print  string
}

// certLook is how often the files are looked at.
const certLook = 10 * time.Second

func (r *renewed) renew() error {
	r.looked = time.Now()
	print := ""
	for _, p := range r.paths {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		print += fmt.Sprint(info.Size(), info.ModTime().UnixNano(), ";")
	}
	if print == r.print {
		return nil
	}
	cert, err := r.load()
	if err != nil {
		return err
	}
	r.cert, r.print = cert, print
	return nil
}

func (r *renewed) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) > certLook {
		r.renew() // the old one goes on to count where the new one is not whole
	}
	return r.cert, nil
}

// serve answers calls at listeners, of HTTP and of gRPC, until the context ends.
func (o *Options) serve(ctx context.Context, s *service.Service, listeners [2]net.Listener, security *tls.Config, auth *tokens) error {
	web := &http.Server{
		Handler: o.handler(s, auth), ReadHeaderTimeout: min(headerTime, o.Idle), IdleTimeout: o.Idle, ReadTimeout: o.Idle, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), TLSConfig: security.Clone(),
	}
	calls := grpc.NewServer(o.grpc(auth, security)...)
	rpc.Register(calls, s)
	ended := make(chan error, 2)
	running := 0
	for i, l := range listeners {
		if l == nil {
			continue
		}
		running++
		go func() {
			switch {
			case i == 1:
				ended <- calls.Serve(l)
			case security != nil:
				ended <- web.ServeTLS(l, "", "")
			default:
				ended <- web.Serve(l)
			}
		}()
	}
	if o.Listening != nil {
		var at [2]net.Addr
		for i, l := range listeners {
			if l != nil {
				at[i] = l.Addr()
			}
		}
		o.Listening(at[0], at[1])
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		running--
	}
	o.Log.Info("the server ends", "drain_seconds", o.Drain.Seconds())
	end(web, calls, o.Drain)
	for range running {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// end lets the requests that go on end, for a time.
func end(web *http.Server, calls *grpc.Server, drain time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if web.Shutdown(ctx) != nil {
			web.Close()
		}
	})
	wg.Go(func() {
		stop := context.AfterFunc(ctx, calls.Stop)
		defer stop()
		calls.GracefulStop()
	})
	wg.Wait()
}

// handler is what answers over HTTP.
func (o *Options) handler(s *service.Service, auth *tokens) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(s.Models), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/", rest.Handler(rest.Options{Service: s, Body: o.Body}))
	pages := page.Handler(s)
	mux.Handle("/{$}", pages)
	mux.Handle("/page/", pages)
	mux.Handle("/metrics", rest.Only("GET", promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	if o.Admin {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return o.Trace.HTTP(logged(o.Log, o.Idle, sameOrigin(auth.admit(mux))))
}

// grpc are the options of the gRPC server.
func (o *Options) grpc(auth *tokens, security *tls.Config) []grpc.ServerOption {
	list := append(append(o.Trace.GRPC(), rpc.Transport(o.Body, min(headerTime, o.Idle), o.Idle)...), rpc.Codec(),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
			defer func() { err = caught(o.Log, info.FullMethod, recover(), err) }()
			if auth != nil && !slices.Contains(openCalls, info.FullMethod) {
				if err := auth.admits(ctx); err != nil {
					return nil, rpc.Status(err)
				}
			}
			return next(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer func() { err = caught(o.Log, info.FullMethod, recover(), err) }()
			if auth != nil {
				if err := auth.admits(stream.Context()); err != nil {
					return rpc.Status(err)
				}
			}
			return next(srv, stream)
		}),
	)
	if security != nil {
		c := security.Clone()
		c.NextProtos = []string{"h2"}
		list = append(list, grpc.Creds(credentials.NewTLS(c)))
	}
	return list
}

// caught makes an error of a panic in a call, and logs errors that are the server's.
func caught(log *slog.Logger, call string, p any, err error) error {
	if p != nil {
		err = rpc.Status(oip.Errorf(oip.Internal, "panic: %v", p))
		log.Error("panic", "call", call, "error", fmt.Sprint(p))
	} else if err != nil {
		log.Debug("call failed", "call", call, "error", err)
	}
	return err
}

// answered is a ResponseWriter that keeps the status.
type answered struct {
	http.ResponseWriter
	status   int
	patience time.Duration // with a client that reads nothing of what is written
}

func (a *answered) WriteHeader(status int) {
	a.status = status
	a.wait()
	a.ResponseWriter.WriteHeader(status)
}

// Write writes parts, so that a client which reads slowly gets on with them.
func (a *answered) Write(b []byte) (n int, err error) {
	for {
		part := b[:min(len(b), 1<<20)]
		a.wait()
		done, err := a.ResponseWriter.Write(part)
		n += done
		if b = b[len(part):]; err != nil || len(b) == 0 {
			return n, err
		}
	}
}

// wait gives the client time from now on. Where a connection has no deadlines, as those of tests, there is nothing to do.
func (a *answered) wait() {
	http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(a.patience))
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// logged logs calls, those that fail by the server's fault as warnings, and ends those whose client does not read the answer.
func logged(log *slog.Logger, patience time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, began := &answered{w, http.StatusOK, patience}, time.Now()
		if r.ProtoMajor < 2 {
			a.wait() // where the deadline of the connection's last answer may be over
		}
		h.ServeHTTP(a, r)
		a.wait() // for what has not left yet
		trace.Answered(r, a.status)
		level := slog.LevelDebug
		if a.status >= 500 && a.status != http.StatusServiceUnavailable {
			level = slog.LevelWarn
		}
		log.Log(r.Context(), level, "call", "method", r.Method, "path", r.URL.Path, "status", a.status, "us", time.Since(began).Microseconds())
	})
}
