package serve_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"spc"
	"spc/serve"
	"spc/serve/host"
	"spc/serve/oip/oippb"
	"spc/tests/serve/certificate"
)

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# of tests\nfirst\n\nsecond\n")
	s := start(t, func(o *serve.Options) { o.Tokens = path }).ready(t) // which needs none
	for _, c := range []struct {
		path, header string
		status       int
	}{
		{"/v2", "", 401}, {"/v2", "Bearer third", 401}, {"/v2", "first", 401}, {"/v2", "Basic first", 401}, {"/v2", "Bearer # of tests", 401}, {"/metrics", "", 401},
		{"/v2", "Bearer first", 200}, {"/v2", "bearer second", 200}, {"/v2/health/live", "", 200}, {"/v2/health/ready", "Bearer third", 200},
	} {
		if status, answer, h := s.ask(t, "GET", c.path, "", "Authorization", c.header); status != c.status || status == 401 && (h.Get("WWW-Authenticate") == "" || !strings.Contains(answer, `{"error":"`)) {
			t.Errorf("%s with %q: %d %s, want %d", c.path, c.header, status, answer, c.status)
		}
	}
	conn := s.dial(t)
	c := oippb.NewGRPCInferenceServiceClient(conn)
	with := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
	}
	if _, err := c.ServerMetadata(t.Context(), nil); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	if _, err := c.ServerMetadata(with("Bearer second"), nil); err != nil {
		t.Error(err)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if stream, err := c.ModelStreamInfer(t.Context()); err == nil {
		if _, err = stream.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a stream without a token: %v", err)
		}
	}
	time.Sleep(1100 * time.Millisecond) // until the file is looked at again
	write("third and longer\nthird\n")
	if status, _, _ := s.ask(t, "GET", "/v2", "", "Authorization", "Bearer third"); status != 200 {
		t.Errorf("a new token: %d", status)
	}
	if status, _, _ := s.ask(t, "GET", "/v2", "", "Authorization", "Bearer first"); status != 401 {
		t.Errorf("an old token: %d", status)
	}
	write("\n")
	if err := serve.Run(t.Context(), serve.Options{HTTP: "127.0.0.1:0", Tokens: path}); err == nil || !strings.Contains(err.Error(), "no tokens") {
		t.Errorf("a file without tokens: %v", err)
	}
}

// A page of another site cannot have a browser change or run anything; clients that are no browsers, and the server's own page, can.
func TestPagesOfOtherSites(t *testing.T) {
	s := start(t, nil).ready(t)
	for _, c := range []struct {
		method, path, header, value string
		status                      int
	}{
		{"POST", "/v2/repository/index", "Origin", "http://example.com", 403}, {"POST", "/v2/repository/index", "Sec-Fetch-Site", "cross-site", 403},
		{"POST", "/v2/repository/index", "Origin", "http://" + s.http, 200}, {"POST", "/v2/repository/index", "Sec-Fetch-Site", "same-origin", 200},
		{"POST", "/v2/repository/index", "Accept", "*/*", 200}, {"GET", "/v2", "Origin", "http://example.com", 200},
	} {
		if status, answer, _ := s.ask(t, c.method, c.path, "{}", c.header, c.value); status != c.status || status == 403 && !strings.Contains(answer, `{"error":"`) {
			t.Errorf("%s %s with %s %s: %d %s, want %d", c.method, c.path, c.header, c.value, status, answer, c.status)
		}
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, caFile, _ := certificate.Pair(t, dir, "ca", nil)
	_, certFile, keyFile := certificate.Pair(t, dir, "server", &ca)
	client, _, _ := certificate.Pair(t, dir, "client", &ca)
	stranger, _, _ := certificate.Pair(t, dir, "stranger", nil)
	s := start(t, func(o *serve.Options) { o.Cert, o.Key, o.ClientCA = certFile, keyFile, caFile })
	roots := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(leaf)
	for name, c := range map[string]struct {
		certs []tls.Certificate
		ok    bool
	}{"with a certificate": {[]tls.Certificate{client}, true}, "without": {nil, false}, "with one that nobody signed": {[]tls.Certificate{stranger}, false}} {
		config := &tls.Config{RootCAs: roots, Certificates: c.certs}
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		r, err := web.Get("https://" + s.http + "/v2/health/live")
		if err == nil {
			r.Body.Close()
		}
		if (err == nil) != c.ok {
			t.Errorf("HTTP %s: %v", name, err)
		}
		web.CloseIdleConnections()
		conn := s.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if _, err := oippb.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(), nil); (err == nil) != c.ok {
			t.Errorf("gRPC %s: %v", name, err)
		}
	}
	if r, err := http.Get("http://" + s.http + "/v2/health/live"); err == nil {
		if r.Body.Close(); r.StatusCode == 200 {
			t.Error("a call without TLS was answered")
		}
	}
	for want, o := range map[string]serve.Options{
		"both a certificate and its key": {HTTP: "127.0.0.1:0", Cert: certFile},
		"server.pem and":                 {HTTP: "127.0.0.1:0", Cert: certFile, Key: filepath.Join(dir, "client.key")},
		"no certificates in it":          {HTTP: "127.0.0.1:0", Cert: certFile, Key: keyFile, ClientCA: keyFile},
		"no address":                     {},
	} {
		if err := serve.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What is too large is refused before it is held.
func TestLargeRequests(t *testing.T) {
	const most = 1 << 20
	s := start(t, func(o *serve.Options) { o.Body = most }).ready(t)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 1 << 9 {
		z.Write(bytes.Repeat([]byte(" "), 1<<18)) // 128 MB
	}
	z.Close()
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := held()
	for name, send := range map[string]func() (int, string){
		"declared": func() (int, string) {
			c, err := net.Dial("tcp", s.http)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "POST /v2/models/words/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\n\r\n{")
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r.StatusCode, string(b)
		},
		"in chunks": func() (int, string) {
			r, err := http.Post("http://"+s.http+"/v2/models/words/infer", "", io.MultiReader(strings.NewReader(strings.Repeat(" ", 2*most))))
			if err != nil {
				return 413, fmt.Sprint("more than ", most) // the server hung up while this wrote
			}
			defer r.Body.Close()
			b, _ := io.ReadAll(r.Body)
			return r.StatusCode, string(b)
		},
		"compressed": func() (int, string) {
			status, b, _ := s.ask(t, "POST", "/v2/models/words/infer", bomb.String(), "Content-Encoding", "gzip")
			return status, b
		},
		"a shape": func() (int, string) {
			status, b, _ := s.ask(t, "POST", "/v2/models/words/infer", strings.Replace(wordsRequest, "[1,2]", "[2147483648,2147483648]", 1))
			return status + 13, strings.Replace(b, "error", fmt.Sprint("more than ", most), 1) // which is another mistake
		},
	} {
		if status, b := send(); status != 413 || !strings.Contains(b, fmt.Sprint("more than ", most)) {
			t.Errorf("%s: %d %s", name, status, b)
		}
	}
	if grown := held() - before; grown > 64<<20 {
		t.Errorf("%d MB were allocated for what was refused", grown>>20)
	}
	c := oippb.NewGRPCInferenceServiceClient(s.dial(t))
	if _, err := c.ModelInfer(t.Context(), &oippb.ModelInferRequest{ModelName: "words", RawInputContents: [][]byte{make([]byte, 2*most)}}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gRPC: %v", err)
	}
}

// slow makes runs of the model of images take until a channel is closed, by its inputs: they are read from a pipe of the device.
func slowly(o *serve.Options, began chan<- struct{}, hold <-chan struct{}) {
	load := o.Load
	o.Load = func(ctx context.Context, path string, c host.Config, d spc.Device) (*spc.Model, error) {
		if strings.Contains(path, "sums") {
			began <- struct{}{}
			<-hold
		}
		return load(ctx, path, c, d)
	}
}

// While models load the server lives, and is not ready.
func TestReadinessComesAfterLoading(t *testing.T) {
	began, hold := make(chan struct{}, 1), make(chan struct{})
	s := start(t, func(o *serve.Options) { slowly(o, began, hold) })
	<-began
	for path, want := range map[string]int{"/v2/health/live": 200, "/v2/health/ready": 503, "/v2/models/images/ready": 200, "/v2/models/sums/ready": 503} {
		if status, answer, _ := s.ask(t, "GET", path, ""); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, answer, want)
		}
	}
	close(hold)
	s.ready(t)
}

// A request that goes on when the server is asked to end is answered, and none is taken after that.
func TestRequestsEndBeforeTheServer(t *testing.T) {
	s := start(t, func(o *serve.Options) { o.Config.MaxQueueDelayMicroseconds = 500000 }).ready(t) // for which a request waits for others
	var answered atomic.Int32
	var wg sync.WaitGroup
	c := oippb.NewGRPCInferenceServiceClient(s.dial(t))
	if _, err := c.ServerLive(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 2 {
		wg.Go(func() {
			if status, answer, _ := s.ask(t, "POST", "/v2/models/words/infer", wordsRequest); status == 200 {
				answered.Add(1)
			} else {
				t.Errorf("%d %s", status, answer)
			}
		})
		wg.Go(func() {
			_, err := c.ModelInfer(t.Context(), &oippb.ModelInferRequest{ModelName: "words", Inputs: []*oippb.ModelInferRequest_InferInputTensor{{
				Name: "at", Datatype: "INT64", Shape: []int64{1, 2}, Contents: &oippb.InferTensorContents{Int64Contents: []int64{3, 9}},
			}}})
			if err != nil {
				t.Error(err)
			} else {
				answered.Add(1)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if answered.Load() != 4 || time.Since(began) > 8*time.Second {
		t.Errorf("%d of 4 were answered in %v", answered.Load(), time.Since(began))
	}
	if _, err := http.Get("http://" + s.http + "/v2/health/live"); err == nil {
		t.Error("a call after the end was answered")
	}
}

// Streams that nothing comes from keep no server from ending.
func TestIdleStreamsEndWithTheServer(t *testing.T) {
	s := start(t, nil).ready(t)
	conn := s.dial(t)
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	stream, err := oippb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.Send(&oippb.ModelInferRequest{ModelName: "none"}); err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || !strings.Contains(m.GetErrorMessage(), "unknown model") {
			t.Fatal(m, err)
		}
	}
	began := time.Now()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > 8*time.Second {
		t.Errorf("the server takes %v to end, of which streams have 10", d)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch: %v", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream: %v", err)
	}
}

// Streams that clients leave end, whoever hears of it first.
func TestStreamsThatAreLeft(t *testing.T) {
	s := start(t, nil).ready(t)
	c := oippb.NewGRPCInferenceServiceClient(s.dial(t))
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := c.ModelStreamInfer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&oippb.ModelInferRequest{ModelName: "none"}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	stacks := make([]byte, 4<<20)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ".ModelStreamInfer(")
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d streams go on", left)
		}
	}
}

// Clients that go away, send nonsense or nothing leave nothing behind.
func TestClientsThatMisbehave(t *testing.T) {
	s := start(t, func(o *serve.Options) { o.Idle = 300 * time.Millisecond }).ready(t)
	s.ask(t, "POST", "/v2/models/words/infer", wordsRequest)
	http.DefaultClient.CloseIdleConnections()
	time.Sleep(50 * time.Millisecond)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			at := s.http
			if i%2 == 1 {
				at = s.grpc
			}
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			switch i % 5 {
			case 0: // nothing
			case 1:
				io.WriteString(c, "POST /v2/models/words/infer HT")
			case 2:
				io.WriteString(c, "POST /v2/models/words/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"inputs\"")
			case 3:
				c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00nonsense beyond all frames"))
			case 4:
				c.Write(bytes.Repeat([]byte{0xff, 0, 13}, 1000))
				return
			}
			c.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("client %d was not cut off", i)
			}
		})
	}
	wg.Wait()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	c := oippb.NewGRPCInferenceServiceClient(conn)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
		c.ModelInfer(ctx, &oippb.ModelInferRequest{ModelName: "images"})
		cancel()
	}
	conn.Close()
	if status, answer, _ := s.ask(t, "POST", "/v2/models/words/infer", wordsRequest); status != 200 {
		t.Errorf("afterwards: %d %s", status, answer)
	}
	http.DefaultClient.CloseIdleConnections()
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before+2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
		}
	}
}

func TestSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "spc") // whose name is short enough
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "http")
	for range 2 { // also where one was left behind
		l, err := net.Listen("unix", path)
		if err == nil {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
		}
		s := start(t, func(o *serve.Options) { o.HTTP, o.GRPC = "unix:"+path, "unix:"+filepath.Join(dir, "grpc") })
		web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		r, err := web.Get("http://socket/v2/health/live")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := oippb.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(), nil); err != nil {
			t.Error(err)
		}
		conn.Close()
		if err := serve.Run(t.Context(), serve.Options{HTTP: "unix:" + path}); err == nil {
			t.Error("two servers listen at one socket")
		}
		web.CloseIdleConnections()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := serve.Run(t.Context(), serve.Options{HTTP: "unix:" + path}); err == nil {
		t.Error("a file that is no socket was replaced")
	}
}
