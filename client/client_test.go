package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"spc"
	"spc/client"
	"spc/data"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/serve"
	"spc/serve/host"
	"spc/tests/archs"
	"spc/tests/serve/certificate"
)

// images, halves, kinds and sums are models of floats, of 16-bit floats, of all sorts of types, and with a state.
func images(b *archs.Builder) {
	x := b.Input("x", archs.Float32, "n", 3, 8, 8)
	x = b.Node("Relu", nil, b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}}, x, b.Weight("c", archs.He(27), 8, 3, 3, 3)))
	x = b.Node("Flatten", nil, b.Node("GlobalAveragePool", nil, x))
	b.Output("y", b.Node("Gemm", nil, x, b.Weight("w", archs.He(8), 8, 5)), archs.Float32, "n", 5)
}

func halves(b *archs.Builder) {
	b.Output("y", b.Node("Abs", nil, b.Input("x", onnxpb.TensorProto_FLOAT16, "n", 3)), onnxpb.TensorProto_FLOAT16, "n", 3)
}

func kinds(b *archs.Builder) {
	at := b.Input("at", archs.Int64, "n", 2)
	b.Output("found", b.Node("Gather", nil, b.Weight("table", archs.He(1), 10, 4), at), archs.Float32, "n", 2, 4)
	b.Output("large", b.Node("Greater", nil, at, b.Index(4)), onnxpb.TensorProto_BOOL, "n", 2)
	b.Output("text", b.Node("Identity", nil, b.Input("words", onnxpb.TensorProto_STRING, 2)), onnxpb.TensorProto_STRING, 2)
	b.Output("bytes", b.Node("Identity", nil, b.Input("b", onnxpb.TensorProto_UINT8, "k")), onnxpb.TensorProto_UINT8, "k")
}

func sums(b *archs.Builder) {
	sum := b.Node("Add", nil, b.Input("x", archs.Float32, 1, 2), b.Input("before", archs.Float32, 1, 2))
	b.Output("after", sum, archs.Float32, 1, 2)
}

// threads is how many a run has, with a server and without: sums of floats depend on it.
const threads = 2

// write writes a file, and its folders.
func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// served is a server that runs.
type served struct {
	dir        string // of its models
	rest, grpc string // its addresses, as a client is given them
}

// start serves the models above, one that is damaged, and what else change asks for.
func start(t *testing.T, change func(o *serve.Options)) *served {
	t.Helper()
	s := &served{dir: t.TempDir()}
	for name, f := range map[string]func(b *archs.Builder){"images.onnx": images, "halves.onnx": halves, "kinds.onnx": kinds, "sums/1/model.onnx": sums} {
		b := archs.New("model", 17)
		f(b)
		m, err := b.Model(1)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(s.dir, name), m.Bytes())
	}
	write(t, filepath.Join(s.dir, "sums/config.yaml"), []byte("states: {after: before}\n"))
	write(t, filepath.Join(s.dir, "bad.onnx"), []byte("nonsense"))
	o := serve.Options{
		Dir: s.dir, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Threads: threads, Drain: 10 * time.Second, Admin: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Load: func(ctx context.Context, path string, c host.Config, d spc.Device) (*spc.Model, error) {
			return spc.Compile(ctx, spc.CompileOptions{Model: path, Run: spc.RunOptions{Device: d, Specialised: c.Sizes()}})
		},
	}
	listening := make(chan [2]net.Addr, 1)
	o.Listening = func(http, grpc net.Addr) { listening <- [2]net.Addr{http, grpc} }
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve.Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case at := <-listening:
		s.rest, s.grpc = "http://"+at[0].String(), "grpc://"+at[1].String()
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return s
}

// connect is a client of a server, once that is ready.
func connect(t *testing.T, server string, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(server, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		ok, err := c.Ready(t.Context())
		if ok && err == nil {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not ready: %v", server, err)
		}
	}
}

// inputs are random inputs of a model in a folder, and what a run without a server makes of them.
func inputs(t *testing.T, path string, seed uint64, shapes map[string][]int) (in, want map[string]*tensor.Tensor) {
	t.Helper()
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Model: path, Run: spc.RunOptions{Threads: threads}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	in = map[string]*tensor.Tensor{}
	for _, p := range m.Inputs() {
		if p.DType == tensor.String {
			in[p.Name] = tensor.FromStrings([]string{"é\x00\"", strings.Repeat("long ", 100)}, shapes[p.Name]...)
			continue
		}
		if in[p.Name], err = (data.Random{Seed: seed}).Tensor(p.Name, p.DType, shapes[p.Name], p.Bound); err != nil {
			t.Fatal(err)
		}
	}
	if want, err = m.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return in, want
}

func equal(a, b map[string]*tensor.Tensor) bool {
	if len(a) != len(b) {
		return false
	}
	for name, t := range a {
		if b[name] == nil || !t.Equal(b[name]) {
			return false
		}
	}
	return true
}

// each runs a test with a client of each kind.
func each(t *testing.T, s *served, f func(t *testing.T, c *client.Client)) {
	for name, c := range map[string]struct {
		server string
		o      client.Options
	}{
		"REST": {s.rest, client.Options{}}, "gRPC": {s.grpc, client.Options{}},
		"REST in JSON": {s.rest, client.Options{Typed: true}}, "gRPC in types": {s.grpc, client.Options{Typed: true}},
	} {
		t.Run(name, func(t *testing.T) { f(t, connect(t, c.server, c.o)) })
	}
}

// What a server answers is bit by bit what a run without one gives, for every type, over REST and gRPC, in bytes and not.
func TestInferIsWhatARunGives(t *testing.T) {
	s := start(t, nil)
	const seed = 3
	t.Log("seed", seed)
	for model, shapes := range map[string]map[string][]int{
		"images": {"x": {1, 3, 8, 8}}, "halves": {"x": {1, 3}}, "kinds": {"at": {1, 2}, "words": {2}, "b": {0}},
	} {
		in, want := inputs(t, filepath.Join(s.dir, model+".onnx"), seed, shapes)
		each(t, s, func(t *testing.T, c *client.Client) {
			out, err := c.Infer(t.Context(), &client.Request{Model: model, Version: "1", ID: "a/b", Inputs: in})
			if model == "halves" && strings.Contains(t.Name(), "_in_") { // the protocol has no text for these
				if !errors.Is(err, client.ErrInvalid) && !errors.Is(err, client.ErrUnsupported) || !strings.Contains(err.Error(), "FP16") {
					t.Errorf("%v, want an error of FP16", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !equal(out.Outputs, want) || out.Model != model || out.Version != "1" || out.ID != "a/b" {
				t.Errorf("%s: %+v, want %v", model, out, want)
			}
			for name := range want {
				some, err := c.Infer(t.Context(), &client.Request{Model: model, Inputs: in, Outputs: []string{name}})
				if err != nil || !equal(some.Outputs, map[string]*tensor.Tensor{name: want[name]}) {
					t.Errorf("%s alone: %+v (%v)", name, some, err)
				}
			}
		})
	}
}

func TestEveryCall(t *testing.T) {
	s := start(t, nil)
	in, _ := inputs(t, filepath.Join(s.dir, "images.onnx"), 1, map[string][]int{"x": {2, 3, 8, 8}})
	each(t, s, func(t *testing.T, c *client.Client) {
		ctx := t.Context()
		check := func(what string, got, want any, err error) {
			t.Helper()
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v (%v), want %+v", what, got, err, want)
			}
		}
		live, err := c.Live(ctx)
		check("live", live, true, err)
		about, err := c.ServerMetadata(ctx)
		if err != nil || about.Name != "spc" || about.Version != spc.Version || !slices.Contains(about.Extensions, "binary_tensor_data") {
			t.Errorf("%+v (%v)", about, err)
		}
		ready, err := c.ModelReady(ctx, "kinds", "")
		check("kinds", ready, true, err)
		ready, err = c.ModelReady(ctx, "bad", "")
		check("bad", ready, false, err)
		m, err := c.ModelMetadata(ctx, "kinds", "1")
		check("metadata", m, &client.ModelMetadata{Name: "kinds", Versions: []string{"1"}, Platform: "spc_spx",
			Inputs: []client.TensorMetadata{{"at", "INT64", tensor.I64, []int{-1, 2}}, {"words", "BYTES", tensor.String, []int{2}}, {"b", "UINT8", tensor.U8, []int{-1}}},
			Outputs: []client.TensorMetadata{{"found", "FP32", tensor.F32, []int{-1, 2, 4}}, {"large", "BOOL", tensor.Bool, []int{-1, 2}},
				{"text", "BYTES", tensor.String, []int{2}}, {"bytes", "UINT8", tensor.U8, []int{-1}}}}, err)
		config, err := c.ModelConfig(ctx, "images", "")
		var text struct {
			Input []struct{ Name, Data_type string }
		}
		if err != nil || config.Name != "images" || config.MaxBatchSize != 16 || json.Unmarshal(config.JSON, &text) != nil || text.Input[0].Data_type != "TYPE_FP32" {
			t.Errorf("%+v (%v)", config, err)
		}
		before, err := c.ModelStatistics(ctx, "images", "")
		if err != nil || len(before) != 1 {
			t.Fatal(before, err)
		}
		if _, err := c.Infer(ctx, &client.Request{Model: "images", Inputs: in}); err != nil {
			t.Fatal(err)
		}
		after, err := c.ModelStatistics(ctx, "images", "1")
		if err != nil || len(after) != 1 || after[0].Rows != before[0].Rows+2 || after[0].Runs != before[0].Runs+1 || after[0].Success.Count != before[0].Success.Count+1 ||
			after[0].Infer.Total <= before[0].Infer.Total || after[0].Success.Total < after[0].Infer.Total || after[0].Name != "images" || after[0].Version != "1" {
			t.Errorf("%+v before, %+v after a request of 2 rows (%v)", before, after, err)
		}
		states := func(only bool) (s []string) {
			list, err := c.Index(ctx, only)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				s = append(s, m.Name+" "+m.Version+" "+m.State)
				if (m.Reason == "") != (m.State == "READY") {
					t.Errorf("%+v", m)
				}
			}
			return s
		}
		check("all", states(false), []string{"bad 1 UNAVAILABLE", "halves 1 READY", "images 1 READY", "kinds 1 READY", "sums 1 READY"}, nil)
		if err := c.Unload(ctx, "halves"); err != nil {
			t.Error(err)
		}
		check("without halves", states(true), []string{"images 1 READY", "kinds 1 READY", "sums 1 READY"}, nil)
		if err := c.Load(ctx, "halves"); err != nil {
			t.Error(err)
		}
		ready, err = c.ModelReady(ctx, "halves", "1")
		check("halves", ready, true, err)
	})
}

func TestSequences(t *testing.T) {
	s := start(t, nil)
	ids := map[string]any{"REST": "r", "gRPC": 7, "REST_in_JSON": uint64(8), "gRPC_in_types": "g"}
	each(t, s, func(t *testing.T, c *client.Client) {
		_, kind, _ := strings.Cut(t.Name(), "/")
		for i, want := range []float32{1, 3, 6} {
			q := &client.Request{Model: "sums", Inputs: map[string]*tensor.Tensor{"x": tensor.From([]float32{float32(i + 1), 0}, 1, 2)},
				Sequence: &client.Sequence{ID: ids[kind], Start: i == 0, End: i == 2}, Parameters: map[string]any{"timeout": 10_000_000}}
			out, err := c.Infer(t.Context(), q)
			if err != nil || out.Outputs["after"].F32s()[0] != want {
				t.Fatalf("step %d: %+v (%v), want %v", i, out, err, want)
			}
			if len(q.Parameters) != 1 {
				t.Errorf("the request became %+v", q)
			}
		}
	})
}

// A wrong call is an error of its kind, which tells the server, the model, and what the server said.
func TestErrorsTellWhatIsWrong(t *testing.T) {
	s := start(t, func(o *serve.Options) { o.Body = 1 << 20 })
	x := tensor.New(tensor.F32, 1, 3, 8, 8)
	infer := func(q client.Request) func(ctx context.Context, c *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			_, err := c.Infer(ctx, &q)
			return err
		}
	}
	of := func(name string, t *tensor.Tensor) map[string]*tensor.Tensor {
		return map[string]*tensor.Tensor{name: t}
	}
	each(t, s, func(t *testing.T, c *client.Client) {
		overGRPC := strings.HasPrefix(c.Server(), "grpc")
		for name, test := range map[string]struct {
			call   func(ctx context.Context, c *client.Client) error
			is     error
			status int
			code   codes.Code
			want   string
		}{
			"a model that there is not": {func(ctx context.Context, c *client.Client) error {
				_, err := c.ModelMetadata(ctx, "none", "")
				return err
			}, client.ErrNotFound, 404, codes.NotFound, `model "none": unknown model (`},
			"a version":           {infer(client.Request{Model: "images", Version: "9", Inputs: of("x", x)}), client.ErrNotFound, 404, codes.NotFound, "there is no version 9"},
			"one that is damaged": {infer(client.Request{Model: "bad", Inputs: of("x", x)}), client.ErrUnavailable, 503, codes.Unavailable, "not ready"},
			"an input":            {infer(client.Request{Model: "images", Inputs: of("z", x)}), client.ErrInvalid, 400, codes.InvalidArgument, "input"},
			"a shape":             {infer(client.Request{Model: "images", Inputs: of("x", tensor.New(tensor.F32, 1, 3))}), client.ErrInvalid, 400, codes.InvalidArgument, "f32[1,3], want f32[n,3,8,8]"},
			"a type":              {infer(client.Request{Model: "images", Inputs: of("x", tensor.New(tensor.I32, 1, 3, 8, 8))}), client.ErrInvalid, 400, codes.InvalidArgument, "i32[1,3,8,8], want f32"},
			"an output":           {infer(client.Request{Model: "images", Inputs: of("x", x), Outputs: []string{"z"}}), client.ErrInvalid, 400, codes.InvalidArgument, "no output z, want y"},
			"a file to load":      {func(ctx context.Context, c *client.Client) error { return c.Load(ctx, "bad") }, client.ErrInvalid, 400, codes.InvalidArgument, "bad"},

			"no model":      {infer(client.Request{Inputs: of("x", x)}), client.ErrInvalid, 0, codes.OK, "no model is named"},
			"no tensor":     {infer(client.Request{Model: "images", Inputs: of("x", nil)}), client.ErrInvalid, 0, codes.OK, `model images: input "x" is nil`},
			"a parameter":   {infer(client.Request{Model: "images", Inputs: of("x", x), Parameters: map[string]any{"p": []int{1}}}), client.ErrInvalid, 0, codes.OK, "parameter p is a []int"},
			"complex types": {infer(client.Request{Model: "images", Inputs: of("x", tensor.New(tensor.C64, 1))}), client.ErrUnsupported, 0, codes.OK, "c64, for which the protocol has no datatype"},
		} {
			err := test.call(t.Context(), c)
			var e *client.Error
			if !errors.As(err, &e) || !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), c.Server()+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %v, %s", name, err, test.is, test.want)
				continue
			}
			if status, code := test.status, test.code; overGRPC && (e.Status != 0 || e.Code != code) || !overGRPC && (e.Status != status || e.Code != codes.OK) {
				t.Errorf("%s: %d and %v, want %d or %v", name, e.Status, e.Code, status, code)
			}
		}
		err := infer(client.Request{Model: "images", Inputs: of("x", tensor.New(tensor.F32, 2000, 3, 8, 8))})(t.Context(), c)
		if !errors.Is(err, client.ErrTooLarge) && !errors.Is(err, client.ErrUnreachable) { // which a server that hangs up over REST comes to
			t.Errorf("a large request: %v", err)
		}
	})
	for _, server := range []string{s.rest, s.grpc} {
		c := connect(t, server, client.Options{Largest: 100})
		in, _ := inputs(t, filepath.Join(s.dir, "kinds.onnx"), 1, map[string][]int{"at": {1, 2}, "words": {2}, "b": {100}})
		if _, err := c.Infer(t.Context(), &client.Request{Model: "kinds", Inputs: in}); !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%s: %v for a large answer", server, err)
		}
	}
	plain := start(t, func(o *serve.Options) { o.Admin = false })
	for _, server := range []string{plain.rest, plain.grpc} {
		if err := connect(t, server, client.Options{}).Unload(t.Context(), "images"); !errors.Is(err, client.ErrUnsupported) {
			t.Errorf("%s: %v from a server that lets no client load models", server, err)
		}
	}
}

func TestSockets(t *testing.T) {
	dir := t.TempDir()
	s := start(t, func(o *serve.Options) {
		o.HTTP, o.GRPC = "unix:"+filepath.Join(dir, "h.sock"), "unix:"+filepath.Join(dir, "g.sock")
	})
	in, want := inputs(t, filepath.Join(s.dir, "images.onnx"), 1, map[string][]int{"x": {1, 3, 8, 8}})
	for _, server := range []string{"unix:" + dir + "/h.sock", "http+unix://" + dir + "/h.sock", "grpc+unix:" + dir + "/g.sock"} {
		out, err := connect(t, server, client.Options{}).Infer(t.Context(), &client.Request{Model: "images", Inputs: in})
		if err != nil || !equal(out.Outputs, want) {
			t.Errorf("%s: %+v (%v)", server, out, err)
		}
	}
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, []byte("secret\n"))
	s := start(t, func(o *serve.Options) { o.Tokens = path })
	for _, server := range []string{s.rest, s.grpc} {
		if _, err := connect(t, server, client.Options{Token: "secret"}).ModelMetadata(t.Context(), "images", ""); err != nil {
			t.Error(err)
		}
		for _, token := range []string{"", "wrong"} {
			_, err := connect(t, server, client.Options{Token: token}).ModelMetadata(t.Context(), "images", "")
			if !errors.Is(err, client.ErrUnauthenticated) || strings.Contains(err.Error(), "wrong") {
				t.Errorf("%s with %q: %v", server, token, err)
			}
		}
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, caFile, _ := certificate.Pair(t, dir, "ca", nil)
	_, certFile, keyFile := certificate.Pair(t, dir, "server", &ca)
	_, clientCert, clientKey := certificate.Pair(t, dir, "client", &ca)
	_, stranger, strangerKey := certificate.Pair(t, dir, "stranger", nil)
	change := func(o *serve.Options) { o.Cert, o.Key, o.ClientCA = certFile, keyFile, caFile }
	s := start(t, change)
	socket := start(t, func(o *serve.Options) {
		change(o)
		o.HTTP, o.GRPC = "unix:"+filepath.Join(dir, "h"), "unix:"+filepath.Join(dir, "g")
	})
	_ = socket
	in, want := inputs(t, filepath.Join(s.dir, "images.onnx"), 1, map[string][]int{"x": {1, 3, 8, 8}})
	rest, grpc := strings.Replace(s.rest, "http:", "https:", 1), strings.Replace(s.grpc, "grpc:", "grpcs:", 1)
	for _, server := range []string{rest, grpc, "https+unix:" + dir + "/h", "grpcs+unix:" + dir + "/g"} {
		config, err := client.ReadTLS(caFile, clientCert, clientKey)
		if err != nil {
			t.Fatal(err)
		}
		config.ServerName = certificate.Name
		out, err := connect(t, server, client.Options{TLS: config}).Infer(t.Context(), &client.Request{Model: "images", Inputs: in})
		if err != nil || !equal(out.Outputs, want) {
			t.Errorf("%s: %+v (%v)", server, out, err)
		}
		for name, files := range map[string][4]string{
			"without a certificate": {caFile, "", "", certificate.Name}, "with one that nobody signed": {caFile, stranger, strangerKey, certificate.Name},
			"without its authority": {"", clientCert, clientKey, certificate.Name}, "by another name": {caFile, clientCert, clientKey, "other.test"},
		} {
			config, err := client.ReadTLS(files[0], files[1], files[2])
			if err != nil {
				t.Fatal(err)
			}
			config.ServerName = files[3]
			c, err := client.New(server, client.Options{TLS: config})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Live(t.Context()); !errors.Is(err, client.ErrUnreachable) {
				t.Errorf("%s %s: %v", server, name, err)
			}
			c.Close()
		}
	}
	for want, files := range map[string][3]string{
		"no certificates in it": {clientKey, "", ""}, "needs its key": {"", clientCert, ""}, "no such file": {dir + "/none", "", ""}, "client.pem and ": {"", clientCert, keyFile},
	} {
		if _, err := client.ReadTLS(files[0], files[1], files[2]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", files, err, want)
		}
	}
}

// One client serves many callers, each of which gets its own answers, and leaves nothing behind.
func TestManyCallers(t *testing.T) {
	s := start(t, nil)
	const callers, calls = 8, 10
	type ask struct{ in, want map[string]*tensor.Tensor }
	var asks []ask
	for seed := range uint64(4) {
		in, want := inputs(t, filepath.Join(s.dir, "kinds.onnx"), seed, map[string][]int{"at": {1, 2}, "words": {2}, "b": {5}})
		asks = append(asks, ask{in, want})
	}
	each(t, s, func(t *testing.T, c *client.Client) {
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for j := range calls {
					a := asks[(i+j)%len(asks)]
					ctx, cancel := context.WithCancel(t.Context())
					if j%5 == 4 {
						cancel()
					}
					out, err := c.Infer(ctx, &client.Request{Model: "kinds", Inputs: a.in})
					if j%5 == 4 {
						if !errors.Is(err, context.Canceled) {
							t.Errorf("a call that was cancelled: %v", err)
						}
					} else if err != nil || !equal(out.Outputs, a.want) {
						t.Errorf("%+v (%v)", out, err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
	})
}

// The tensors of a request are the caller's again when a call has ended, however it has.
func TestTensorsAreReadWithinTheCall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // which reads nothing, so that the request is not sent to its end
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x := tensor.New(tensor.F32, 4<<20)
	for _, scheme := range []string{"http://", "grpc://"} {
		c, err := client.New(scheme+l.Addr().String(), client.Options{Timeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Infer(t.Context(), &client.Request{Model: "m", Inputs: map[string]*tensor.Tensor{"x": x}})
		for i := range x.F32s() { // which the race detector watches
			x.F32s()[i]++
		}
		if !errors.Is(err, client.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "model m: no answer within 100ms") {
			t.Errorf("%s: %v", scheme, err)
		}
		c.Close()
	}
}

func TestNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	s := start(t, nil)
	for server, want := range map[string]string{
		"http://" + at: "connection refused", "grpc://" + at: "connection refused",
		"unix:" + filepath.Join(t.TempDir(), "none"): "no such file", "grpc+unix:" + filepath.Join(t.TempDir(), "none"): "no such file",
		"grpc" + strings.TrimPrefix(s.rest, "http"): "HTTP/1.1", "http" + strings.TrimPrefix(s.grpc, "grpc"): "a server of gRPC is grpc://HOST:PORT", "grpcs" + strings.TrimPrefix(s.grpc, "grpc"): "handshake",
		"https" + strings.TrimPrefix(s.rest, "http"): "HTTP",
	} {
		c, err := client.New(server, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.ModelMetadata(t.Context(), "m", "")
		if !errors.Is(err, client.ErrUnreachable) || !strings.HasPrefix(err.Error(), server+": model m: no answer: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		late, cancel := context.WithTimeout(t.Context(), -1)
		if _, err := c.Live(late); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrTimeout) {
			t.Errorf("%s after the deadline: %v", server, err)
		}
		cancel()
		c.Close()
	}
}

func TestAddresses(t *testing.T) {
	for s, want := range map[string]string{
		"":                                "no address of a server",
		"localhost:8080":                  "no address of a server",
		"ftp://host":                      "no address of a server",
		"http:host":                       "no address of a server",
		"http://":                         "no host",
		"http://a:b@host":                 "a user in an address",
		"http://host?x=1":                 "nothing may follow the path",
		"http://ho st":                    "no address of a server",
		"grpc://host":                     "no port, want grpc://host:PORT",
		"grpc://host:1/path":              "gRPC has no paths",
		"unix:":                           "want the path of a socket",
		"unix://host/path":                "want the path of a socket",
		"http://host:1/v2/models/m":       "the address of a model",
		"grpc+unix:/a.sock/v2/models/m/x": "the address of a model",
	} {
		if c, err := client.New(s, client.Options{}); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v (%v), want %s", s, c, err, want)
		}
	}
	for s, want := range map[string][3]string{
		"http://h:1/v2/models/m":                  {"http://h:1", "m", ""},
		"https://h/at/v2/models/m/versions/2/":    {"https://h/at", "m", "2"},
		"grpc://h:1/v2/models/a%2Fb":              {"grpc://h:1", "a/b", ""},
		"grpc+unix:/v2/models/s.sock/v2/models/m": {"grpc+unix:/v2/models/s.sock", "m", ""},
		"unix:spc.sock/v2/models/m/versions/1":    {"unix:spc.sock", "m", "1"},
		"http://h:1":                              {"no model is named"},
		"http://h:1/v2/models/":                   {"no address of a model"},
		"http://h:1/v2/models/m/infer":            {"no address of a model"},
		"http://h:1/v2/models/m/versions/":        {"no address of a model"},
		"http://h:1/v2/models/%zz":                {"no address of a model"},
		"grpc://h/v2/models/m":                    {"no port"},
		"models/v2/models/m":                      {"no address of a server"},
	} {
		server, model, version, err := client.Model(s)
		if got := [3]string{server, model, version}; got != want && (err == nil || !strings.Contains(err.Error(), want[0])) {
			t.Errorf("%s: %q (%v), want %q", s, got, err, want)
		}
	}
	for s, want := range map[string]bool{"http://h": true, "grpcs+unix:x": true, "unix:x": true, "model.onnx": false, "http:model": false, "c:/model.onnx": false, "./unix": false, "a=http://h": false} {
		if client.IsURL(s) != want {
			t.Errorf("%s is an address: %v", s, !want)
		}
	}
}

// The text of errors in one line, whatever a server says.
func TestLongMessages(t *testing.T) {
	var long bytes.Buffer
	for i := range 10000 {
		fmt.Fprintln(&long, i)
	}
	text, err := json.Marshal(long.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{long.String(), `{"error":` + string(text) + `}`} {
		_, err := fake(t, map[string]reply{"/v2": {status: 500, body: body}}).ServerMetadata(t.Context())
		if !errors.Is(err, client.ErrInternal) || len(err.Error()) > 3000 || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "0 1 2 3") {
			t.Errorf("%v", err)
		}
	}
}
