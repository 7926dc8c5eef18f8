package serve_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc/data"
	"spc/serve"
	"spc/serve/host"
)

// The page's files need no token, are asked for anew and not sent again, and let nothing run that is not theirs; what tells of models needs one.
func TestPageOverHTTP(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *serve.Options) { o.Tokens = tokens }).ready(t)
	for path, kind := range map[string]string{"/": "text/html", "/page/base.css": "text/css", "/page/base.js": "text/javascript", "/page/main.js": "text/javascript"} {
		status, content, h := s.ask(t, "GET", path, "")
		if status != 200 || len(content) < 500 || h.Get("Content-Type") != kind+"; charset=utf-8" || h.Get("Cache-Control") != "no-cache" {
			t.Fatalf("%s: %d, %d bytes, %v", path, status, len(content), h)
		}
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self' 'sha256-") || strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, h)
		}
		tag := h.Get("ETag")
		if status, content, _ := s.ask(t, "GET", path, "", "If-None-Match", tag); status != 304 || content != "" || tag == "" {
			t.Errorf("%s with the tag %s: %d, %d bytes", path, tag, status, len(content))
		}
		if status, content, other := s.ask(t, "HEAD", path, ""); status != 200 || content != "" || other.Get("Content-Length") != h.Get("Content-Length") || other.Get("ETag") != tag {
			t.Errorf("HEAD %s: %d, %d bytes, %v", path, status, len(content), other)
		}
	}
	if _, content, _ := s.ask(t, "GET", "/", ""); strings.Contains(content, "<script>") || strings.Contains(content, "style=") || strings.Contains(content, "://") {
		t.Error("the page has a script or a style within it, or an address of another server")
	}
	for _, c := range []struct {
		method, path string
		token        bool
		status       int
		want         string // a part of the answer
	}{
		{"GET", "/page/preprocessing", false, 401, `{"error":`},
		{"GET", "/page/load", false, 401, `{"error":`},
		{"GET", "/page/models/words/versions/1/report", false, 401, `{"error":`},
		{"GET", "/page/models/words/versions/1/example", false, 401, `{"error":`},
		{"GET", "/page/none.js", false, 401, `{"error":`},
		{"GET", "/page/none.js", true, 404, "no such page"},
		{"GET", "/page/index.html", true, 404, "no such page"},
		{"GET", "/page/../serve.go", true, 404, "no such"},
		{"POST", "/", true, 405, "want GET"},
		{"DELETE", "/page/load", true, 405, "want GET"},
		{"HEAD", "/page/load", true, 200, ""},
		{"HEAD", "/page/models/words/versions/1/report", true, 200, ""},
		{"GET", "/page/models/words/versions/1/report", true, 200, `<script type="application/json" id="data">`},
		{"GET", "/page/models/words/versions/2/report", true, 404, "no version 2"},
		{"GET", "/page/models/none/versions/1/report", true, 404, "unknown model"},
		{"GET", "/page/models/bad/versions/1/report", true, 503, "not ready"},
		{"GET", "/page/models/bad/versions/1/example", true, 503, "not ready"},
		{"GET", "/page/models/sums/versions/1/example", true, 200, `"parameters":{"sequence_end":true,"sequence_id":"example","sequence_start":true},"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[`},
	} {
		var headers []string
		if c.token {
			headers = []string{"Authorization", "Bearer secret"}
		}
		status, content, h := s.ask(t, c.method, c.path, "", headers...)
		if status != c.status || !strings.Contains(content, c.want) || c.method == "HEAD" && (content != "" || h.Get("Content-Length") == "0") {
			t.Errorf("%s %s: %d %.300s, want %d %s", c.method, c.path, status, content, c.status, c.want)
		}
		if status == 200 && h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s may be kept: %v", c.method, c.path, h)
		}
	}
}

// A model takes the request that is made up for it, and its report is one of its own file.
func TestExamplesAndReports(t *testing.T) {
	s := start(t, nil).ready(t)
	for _, name := range []string{"images", "words", "sums"} {
		status, request, _ := s.ask(t, "GET", "/page/models/"+name+"/versions/1/example", "")
		if status != 200 {
			t.Fatalf("%s: %d %s", name, status, request)
		}
		if status, answer, _ := s.ask(t, "POST", "/v2/models/"+name+"/infer", request); status != 200 || !strings.Contains(answer, `"data":[`) {
			t.Errorf("%s: %s is answered with %d %s", name, request, status, answer)
		}
	}
	_, page, h := s.ask(t, "GET", "/page/models/images/versions/1/report", "")
	_, text, _ := strings.Cut(page, `id="data">`)
	text, _, _ = strings.Cut(text, "</script>")
	info, err := os.Stat(filepath.Join(s.dir, "images.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Live   bool
		Models []struct {
			File   string
			Bytes  int64
			Layers []struct{ Op string }
		}
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Models) != 1 || report.Live {
		t.Fatalf("%v: %.200s", err, text)
	}
	if m := report.Models[0]; m.File != "images.onnx" || m.Bytes != info.Size() || len(m.Layers) != 2 || !strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		t.Errorf("the report is of %+v", m)
	}
}

// The page gets the numbers of package data, and counts of all requests that were answered.
func TestWhatThePageAsksFor(t *testing.T) {
	s := start(t, nil).ready(t)
	_, answer, _ := s.ask(t, "GET", "/page/preprocessing", "")
	var numbers map[string]map[string]struct {
		Mean, Std []float64
		From      []int
	}
	if err := json.Unmarshal([]byte(answer), &numbers); err != nil || len(numbers) != len(data.Norms) {
		t.Fatalf("%v: %s", err, answer)
	}
	for name, n := range data.Norms {
		three, one := numbers[name]["3"], numbers[name]["1"]
		for c := range 3 {
			from := c
			if n.BGR {
				from = 2 - c
			}
			if three.Mean[c] != n.Mean[c%len(n.Mean)] || three.Std[c] != n.Std[c%len(n.Std)] || three.From[c] != from {
				t.Errorf("%s: %v of channel %d", name, three, c)
			}
		}
		mean := 0.0
		for c := range 3 {
			mean += n.Mean[c%len(n.Mean)] / 3
		}
		if len(one.Mean) != 1 || math.Abs(one.Mean[0]-mean) > 1e-9 || one.From[0] != 0 {
			t.Errorf("%s: %v of one channel", name, one)
		}
	}
	for range 3 {
		s.ask(t, "POST", "/v2/models/words/infer", wordsRequest)
	}
	s.ask(t, "POST", "/v2/models/words/infer", strings.Replace(wordsRequest, `"at"`, `"up"`, 1))
	_, answer, _ = s.ask(t, "GET", "/page/load", "")
	var load struct {
		Bounds []float64 `json:"bounds_us"`
		Models []struct {
			Name    string
			Waiting int
			Latency []int
		}
	}
	if err := json.Unmarshal([]byte(answer), &load); err != nil || len(load.Bounds) != len(host.LatencyBounds) || load.Bounds[0] != 10 || len(load.Models) != 4 {
		t.Fatalf("%v: %s", err, answer)
	}
	for _, m := range load.Models {
		sum, want := 0, 0
		for _, n := range m.Latency {
			sum += n
		}
		if m.Name == "words" {
			want = 3
		}
		if sum != want || m.Waiting != 0 || len(m.Latency) != len(load.Bounds)+1 {
			t.Errorf("%s: %v, %d wait", m.Name, m.Latency, m.Waiting)
		}
	}
	if !slices.IsSorted(load.Bounds) {
		t.Errorf("bounds %v", load.Bounds)
	}
}
