package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"spc/ir/tensor"
	"spc/serve/oip"
)

// answers is a server that always answers the same.
type answers struct {
	status int
	length string // of the JSON
	body   []byte
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{}
	if a.length != "" {
		h.Set(oip.HeaderLength, a.length)
	}
	return &http.Response{StatusCode: a.status, Header: h, Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r}, nil
}

// Whatever a server answers, a call returns what the protocol has or an *Error, and takes no more memory than the answer justifies.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"outputs":[{"name":"y","shape":[2],"datatype":"FP32","data":[1,2]}]}`, `{"outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}1234`,
		`{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":["-1",4]}]}`, `{"model_stats":[{"inference_stats":{"success":{"count":"3"}}}]}`, `[{"name":"m","state":"READY"}]`,
		`{"live":true}`, `{"error":"no"}`, `{"max_batch_size":4}`, `<html>`, ``,
	} {
		for call := range byte(8) {
			f.Add(call, 200, "", []byte(s))
		}
		f.Add(byte(7), 404, "70", []byte(s))
	}
	f.Fuzz(func(t *testing.T, call byte, status int, length string, body []byte) {
		if status < 100 || status > 999 || len(body) > 1<<16 {
			return
		}
		c := &Client{server: "http://fuzz", options: Options{Largest: 1 << 20}}
		c.wire = &rest{"http://fuzz", &http.Client{Transport: answers{status, length, body}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, &c.options}
		ctx := context.Background()
		check := func(what string, none bool, err error) {
			var e *Error
			if err != nil && (!errors.As(err, &e) || !none || e.Server != "http://fuzz" || e.Status != 0 && e.Status == 200 || e.kind == nil) {
				t.Errorf("%s: %#v, and something besides: %v", what, err, !none)
			}
		}
		switch call % 8 {
		case 0:
			ok, err := c.Live(ctx)
			check("live", !ok, err)
		case 1:
			about, err := c.ServerMetadata(ctx)
			check("server", about == nil, err)
		case 2:
			m, err := c.ModelMetadata(ctx, "m", "1")
			check("metadata", m == nil, err)
		case 3:
			config, err := c.ModelConfig(ctx, "m", "")
			check("config", config == nil, err)
		case 4:
			stats, err := c.ModelStatistics(ctx, "m", "")
			check("statistics", stats == nil, err)
		case 5:
			index, err := c.Index(ctx, false)
			check("index", index == nil, err)
		case 6:
			check("load", true, c.Load(ctx, "m"))
		case 7:
			out, err := c.Infer(ctx, &Request{Model: "m", Inputs: map[string]*tensor.Tensor{"x": tensor.From([]float32{1}, 1)}, Outputs: []string{"y"}})
			check("infer", out == nil, err)
			if err == nil && out.Outputs["y"].Len()*out.Outputs["y"].DType().Size() > 8*len(body) {
				t.Errorf("%v of %d bytes", out.Outputs["y"], len(body))
			}
		}
	})
}
