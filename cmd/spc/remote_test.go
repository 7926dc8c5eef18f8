package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spc"
	"spc/serve"
	"spc/serve/host"
	"spc/serve/repo"
)

// served serves models by their files, and returns the addresses of REST and gRPC, without a scheme.
func served(t *testing.T, tokens string, files ...string) (rest, grpc string) {
	t.Helper()
	o := serve.Options{
		HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Tokens: tokens, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Load: func(ctx context.Context, path string, c host.Config, d spc.Device) (*spc.Model, error) {
			run := spc.RunOptions{Device: d, Specialised: c.Sizes()}
			if filepath.Ext(path) == ".spx" {
				return spc.Open(path, run)
			}
			return spc.Compile(ctx, spc.CompileOptions{Model: path, Run: run})
		},
	}
	for _, f := range files {
		path, err := filepath.Abs(f)
		if err != nil {
			t.Fatal(err)
		}
		o.Models = append(o.Models, repo.Source{Name: strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)), Path: path})
	}
	listening := make(chan [2]string, 1)
	o.Listening = func(http, grpc net.Addr) { listening <- [2]string{http.String(), grpc.String()} }
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
		rest, grpc = at[0], at[1]
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if r, err := http.Get("http://" + rest + "/v2/health/ready"); err == nil {
			if r.Body.Close(); r.StatusCode == http.StatusOK {
				return rest, grpc
			}
		}
		if time.Now().After(end) {
			t.Fatal("the server is not ready")
		}
	}
}

// What infer writes and prints is, byte by byte, what run does.
func TestInferIsRun(t *testing.T) {
	workspace(t)
	rest, grpc := served(t, "", "model.onnx", "mixed.onnx")
	for model, inputs := range map[string][]string{
		"model": {"-i", "input=cat.npy"}, "mixed": {"-i", "x=random:3", "-i", "shift=random:4:-1:1"},
	} {
		want := "want-" + model
		ok(t, append([]string{"run", model + ".onnx", "-o", want}, inputs...)...)
		text := ok(t, append([]string{"run", model + ".onnx", "--json"}, inputs...)...)
		for i, call := range [][]string{
			{"http://" + rest, model}, {"grpc://" + grpc, model, "--model-version", "1"}, {"http://" + rest + "/v2/models/" + model + "/versions/1", "--id", "7", "--timeout", "1m"},
			{"grpc://" + grpc + "/v2/models/" + model, "--parameter", "timeout=60000000"}, {"http://" + rest, model, "--typed"},
		} {
			args := append(append([]string{"infer"}, call...), inputs...)
			if model == "mixed" && i == 4 {
				fails(t, args, "http://"+rest+`: model "mixed": output "half": datatype BF16, which JSON cannot hold`)
				continue
			}
			dir := filepath.Join(t.TempDir(), "out")
			ok(t, append(args, "-o", dir)...)
			files, err := os.ReadDir(want)
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, f := range files {
				a, err := os.ReadFile(filepath.Join(want, f.Name()))
				if err != nil {
					t.Fatal(err)
				}
				if b, err := os.ReadFile(filepath.Join(dir, f.Name())); err != nil || !bytes.Equal(a, b) {
					t.Errorf("%v: %s differs (%v)", args, f.Name(), err)
				}
			}
			if got := ok(t, append(args, "--json")...); got != text {
				t.Errorf("%v: %s, want %s", args, got, text)
			}
		}
	}
}

// What is wrong is one line that names the server, the model and what was expected, before anything is sent where the model's metadata tells it.
func TestInferSaysWhatIsWrong(t *testing.T) {
	workspace(t)
	writeFile(t, "tokens", []byte("# of tests\nsecret\n"))
	writeFile(t, "empty", []byte("\n"))
	rest, grpc := served(t, "tokens", "model.onnx", "lm.onnx")
	h, g := "http://"+rest, "grpc://"+grpc
	token := []string{"--token-file", "tokens"}
	for _, c := range []struct{ args, want []string }{
		{[]string{"infer", "localhost:8080", "model"}, []string{"localhost:8080 is no address of a server, want such as http://localhost:8080"}},
		{[]string{"infer", h}, []string{h + ": no model is named, want SERVER/v2/models/MODEL"}},
		{[]string{"infer", h + "/v2/models/model", "model"}, []string{"want that of a server"}},
		{[]string{"infer", "grpc://localhost", "model"}, []string{"no port, want grpc://localhost:PORT"}},
		{[]string{"infer", "http://127.0.0.1:1", "model"}, []string{"http://127.0.0.1:1: model model: no answer: dial tcp 127.0.0.1:1: connect: connection refused"}},
		{[]string{"infer", "grpc+unix:none.sock", "model"}, []string{"grpc+unix:none.sock: model model: no answer: dial unix none.sock: connect: no such file"}},
		{[]string{"infer", h, "model"}, []string{h + ": model model: want a header Authorization: Bearer TOKEN (401 Unauthorized)"}},
		{[]string{"infer", g, "model", "--token-file", "labels.csv"}, []string{"the token is not one of this server's (Unauthenticated)"}},
		{[]string{"infer", h, "model", "--token-file", "empty"}, []string{"empty: want a token in its first line"}},
		{append([]string{"infer", h, "nosuch"}, token...), []string{h + `: model "nosuch": unknown model (404 Not Found); the server has lm, model`}},
		{append([]string{"infer", g, "model", "--model-version", "2"}, token...), []string{g + `: model "model": unknown model: there is no version 2 (NotFound); the server has lm, model of version 1`}},
		{append([]string{"infer", h + "/v2/models/model/versions/1", "--model-version", "2"}, token...), []string{"--model-version 2, but " + h}},
		{append([]string{"infer", h, "lm", "-i", "random:1", "--dim", "t=2"}, token...), []string{"--dim has no meaning for a server, whose sizes have no names; give --shape"}},
		{append([]string{"infer", h, "model", "-i", "x=cat.npy"}, token...), []string{h + `/v2/models/model: no input is named "x"; the inputs are input f32[?1,3,16,16]`}},
		{append([]string{"infer", g, "model", "-i", "tokens.npy"}, token...), []string{g + "/v2/models/model: tokens.npy: input input is i64[4,5], want f32[?1,3,16,16]"}},
		{append([]string{"infer", g, "model", "-i", "random:1", "--shape", "input=1x3x8x8"}, token...), []string{"want f32[?1,3,16,16]"}},
		{append([]string{"infer", g, "model"}, token...), []string{"input input f32[?1,3,16,16] is missing, give -i input=FILE"}},
		{append([]string{"infer", g, "lm", "-i", "random:1:90:95", "--shape", "ids=1x2"}, token...), []string{g + `: model "lm": `, "(InvalidArgument)"}},
		{append([]string{"infer", h, "model", "-i", "cat.npy", "--parameter", "sequence"}, token...), []string{"--parameter sequence, want NAME=VALUE"}},
		{append([]string{"infer", h, "model", "-i", "cat.npy", "--parameter", "a=1", "--parameter", "a=2"}, token...), []string{"--parameter a is given twice"}},
		{append([]string{"infer", h, "model", "-i", "cat.npy", "--parameter", "timeout=soon"}, token...), []string{`parameter "timeout" is "soon", want an integer (400 Bad Request)`}},
		{append([]string{"infer", h, "model", "--tls-ca", "tokens"}, token...), []string{"has no TLS, want https, grpcs"}},
		{[]string{"infer", "https://" + rest, "model", "--tls-cert", "tokens"}, []string{"--tls-cert needs --tls-key, too"}},

		{append([]string{"bench", h + "/v2/models/model", "--threads", "2"}, token...), []string{"--threads has no meaning for " + h + "/v2/models/model: its server decides"}},
		{append([]string{"bench", h + "/v2/models/lm", "--dim", "t=2"}, token...), []string{"--dim has no meaning for " + h + "/v2/models/lm, whose sizes have no names; give --shape"}},
		{append([]string{"bench", h + "/v2/models/lm"}, token...), []string{h + "/v2/models/lm: dimension 1 of input ids i64[?1,?2] is open, give --shape ids=DIMS"}},
		{append([]string{"bench", h}, token...), []string{"no model is named"}},
		{[]string{"bench", "model.onnx", "--clients", "2"}, []string{"--clients has no meaning for model.onnx, want a URL"}},
		{[]string{"bench", "model.onnx", "--token-file", "tokens"}, []string{"--token-file has no meaning for model.onnx, want a URL"}},
		{append([]string{"bench", h + "/v2/models/model", "--clients", "0"}, token...), []string{"--clients 0, want 1 or more"}},

		{append([]string{"verify", h + "/v2/models/model"}, token...), []string{h + "/v2/models/model: want the .onnx or .spx that it should compute, too, or --expect"}},
		{append([]string{"verify", h + "/v2/models/model", "lm.onnx"}, token...), []string{"inputs of " + h + "/v2/models/model are input f32[?1,3,16,16], those of lm.onnx are"}},
		{append([]string{"verify", "model.onnx", h + "/v2/models/model", "--reduce", "r.onnx"}, token...), []string{"--reduce has no meaning for " + h}},
		{append([]string{"verify", "model.onnx", h + "/v2/models/model", "--against", "original"}, token...), []string{"--against original has no meaning for " + h}},
		{append([]string{"verify", h + "/v2/models/model", "--expect", "x", "--dim", "a=1"}, token...), []string{"--dim has no meaning for " + h}},
		{[]string{"verify", "model.onnx", "--typed"}, []string{"--typed has no meaning without a URL"}},
	} {
		fails(t, c.args, c.want...)
	}
}

func TestVerifyOfAServer(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "pruned.spx", "--sparsity", "0.9")
	rest, grpc := served(t, "", "model.onnx", "lm.onnx", "pruned.spx")
	h, g := "http://"+rest+"/v2/models/", "grpc://"+grpc+"/v2/models/"
	type found struct {
		Model, Reference string
		Outputs          []comparison
		Seeds            int
		Pass             bool
	}
	for _, c := range []struct {
		args      []string
		reference string
		exact     bool
		seeds     int
	}{
		{[]string{h + "model", "model.onnx"}, "model.onnx as imported", false, 3},
		{[]string{"model.onnx", g + "model", "--seeds", "2"}, "model.onnx as imported", false, 2},
		{[]string{"model.onnx", g + "model", "--against", "compiled"}, "model.onnx, compiled", true, 3},
		{[]string{"pruned.spx", h + "pruned", "--tolerance", "0"}, "pruned.spx, compiled", true, 3},
		{[]string{h + "pruned", "pruned.spx", "-i", "cat.npy"}, "pruned.spx, compiled", true, 0},
		{[]string{"lm.onnx", g + "lm", "--dim", "t=3"}, "lm.onnx as imported", false, 3},
		{[]string{h + "model", g + "model"}, g + "model, as served", true, 3},
	} {
		v := decoded[found](t, append([]string{"verify"}, c.args...)...)
		if !v.Pass || v.Reference != c.reference || v.Seeds != c.seeds || !strings.HasSuffix(v.Model, ", as served") || len(v.Outputs) != 1 || c.exact && v.Outputs[0].RelL2 != 0 {
			t.Errorf("%v: %+v", c.args, v)
		}
	}
	ok(t, "run", "model.onnx", "-i", "cat.npy", "-o", "right")
	if out := ok(t, "verify", h+"model", "-i", "cat.npy", "--expect", "right", "--tolerance", "0"); !strings.Contains(out, "PASS") || !strings.Contains(out, "the stored outputs of right") {
		t.Error(out)
	}
	for _, args := range [][]string{{h + "pruned", "model.onnx"}, {g + "pruned", "-i", "cat.npy", "--expect", "right"}} {
		r := spcRun(append([]string{"verify"}, args...)...)
		if r.status != 1 || !strings.Contains(r.out, "rel l2 above 0.0001") || !strings.HasSuffix(r.out, "FAIL\n") || strings.Contains(r.out, "no node") || r.errors != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestBenchOfAServer(t *testing.T) {
	workspace(t)
	rest, grpc := served(t, "", "model.onnx", "lm.onnx")
	for _, c := range []struct {
		args                     []string
		batch, clients, requests int // 0 for any
	}{
		{[]string{"http://" + rest + "/v2/models/model", "--runs", "9", "--clients", "3"}, 1, 3, 9},
		{[]string{"grpc://" + grpc + "/v2/models/model", "--runs", "4", "--batch", "2", "--warmup", "0"}, 2, 1, 4},
		{[]string{"grpc://" + grpc + "/v2/models/lm", "--duration", "50ms", "--shape", "ids=3x5", "--clients", "2"}, 3, 2, 0},
	} {
		b := decoded[loadTest](t, append([]string{"bench"}, c.args...)...)
		s := b.Server
		if b.Batch != c.batch || b.Clients != c.clients || c.requests > 0 && b.Requests != c.requests || b.Requests < 1 || b.Model != c.args[0] {
			t.Errorf("%v: %+v", c.args, b)
		}
		if m := b.Ms; !(m.Min > 0 && m.Min <= m.P50 && m.P50 <= m.P90 && m.P90 <= m.P99 && m.Mean >= m.Min) || !(b.Throughput > 0) || b.Seconds*1e3 < m.P50 {
			t.Errorf("%v: %+v", c.args, b)
		}
		if s == nil || s.Requests != b.Requests || s.Failed != 0 || s.Rows != b.Requests*b.Batch || s.Runs < 1 || s.Runs > s.Requests || !(s.InferMs > 0) || s.InferMs > b.Ms.Mean {
			t.Errorf("%v: the server %+v", c.args, s)
		}
	}
	out := ok(t, "bench", "http://"+rest+"/v2/models/model", "--runs", "3", "--clients", "2")
	for _, want := range []string{"batch 1, 2 clients, 3 requests in ", "p99", "queue", " in each on average"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	// A server without statistics is measured, too.
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v2/models/m":
			io.WriteString(w, `{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1]}]}`)
		case "/v2/models/m/infer":
			io.WriteString(w, `{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[1]}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer plain.Close()
	if out := ok(t, "bench", plain.URL+"/v2/models/m", "--runs", "2"); !strings.Contains(out, "the server tells no times of its own") {
		t.Error(out)
	}
}

// A certificate of a client, and the authority of the server's, are files.
func TestInferOverTLS(t *testing.T) {
	workspace(t)
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	writeFile(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	fails(t, []string{"infer", s.URL, "model"}, "no answer: ", "certificate")
	fails(t, []string{"infer", s.URL, "model", "--tls-ca", "ca.pem"}, "model model: 404 page not found (404 Not Found)")
	fails(t, []string{"infer", s.URL, "model", "--tls-ca", "ca.pem", "--tls-name", "example.com"}, "(404 Not Found)")
	fails(t, []string{"infer", s.URL, "model", "--tls-ca", "ca.pem", "--tls-name", "example.org"}, "no answer: ", "example.org")
	fails(t, []string{"infer", s.URL, "model", "--tls-ca", "cat.npy"}, "cat.npy: no certificates in it")
}

func TestParametersHaveTypes(t *testing.T) {
	for text, want := range map[string]any{"true": true, "false": false, "7": int64(7), "-1": int64(-1), "18446744073709551615": uint64(1<<64 - 1), "0.5": 0.5, "abc": "abc", `"7"`: "7", "": ""} {
		if got := parameterOf(text); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

// What a server says is taken for no more than it may be.
func TestServersThatLie(t *testing.T) {
	x := `{"name":"x","datatype":"FP32","shape":[1]}`
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v2/repository/index":
			fmt.Fprint(w, "[")
			for i := range 20000 {
				fmt.Fprintf(w, `{"name":"m%d","state":"READY"},`, i)
			}
			fmt.Fprint(w, `{"name":"last"}]`)
		case "/v2/models/twice":
			fmt.Fprintf(w, `{"name":"twice","inputs":[%s,%s],"outputs":[]}`, x, x)
		case "/v2/models/nothing":
			fmt.Fprint(w, `{"name":"nothing"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer at.Close()
	for model, want := range map[string]string{
		"m":     "the server has m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, others",
		"twice": "/v2/models/twice: two inputs have the name \"x\"", "nothing": `no input is named "x"; the inputs are none`,
	} {
		fails(t, []string{"infer", at.URL, model, "-i", "x=random:1"}, want)
	}
}
