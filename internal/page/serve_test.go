package page

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What a browser sends for another site is refused, and what the page sends is not.
func TestServerTellsItsOwnPage(t *testing.T) {
	runs := 0
	h := &handler{host: "box.example", models: []*Model{{File: "a.spx"}}, measures: []Measure{func(context.Context) (*Measured, error) {
		runs++
		return &Measured{Ms: 7}, nil
	}}}
	const typed = "application/json"
	for _, c := range []struct {
		method, path, host, origin, site, kind string
		status                                 int
	}{
		{"GET", "/", "127.0.0.1:8090", "", "", "", 200},
		{"HEAD", "/", "127.0.0.1:8090", "", "", "", 200},
		{"GET", "/", "[::1]:8090", "", "", "", 200},
		{"GET", "/", "localhost:8090", "", "", "", 200},
		{"GET", "/", "box.example:8090", "", "", "", 200},
		{"GET", "/", "evil.example:8090", "", "", "", 403},
		{"GET", "/", "127.0.0.1.evil.example", "", "", "", 403},
		{"GET", "/other", "127.0.0.1:8090", "", "", "", 404},
		{"POST", "/", "127.0.0.1:8090", "", "", typed, 405},
		{"GET", "/profile?model=0", "127.0.0.1:8090", "", "", "", 405},
		{"POST", "/profile?model=0", "127.0.0.1:8090", "http://127.0.0.1:8090", "same-origin", typed, 200},
		{"POST", "/profile?model=0", "127.0.0.1:8090", "", "", typed, 200},
		{"POST", "/profile?model=0", "127.0.0.1:8090", "", "", "text/plain", 403},
		{"POST", "/profile?model=0", "127.0.0.1:8090", "http://evil.example", "", typed, 403},
		{"POST", "/profile?model=0", "127.0.0.1:8090", "http://127.0.0.1:9999", "", typed, 403},
		{"POST", "/profile?model=0", "127.0.0.1:8090", "null", "", typed, 403},
		{"POST", "/profile?model=0", "127.0.0.1:8090", "http://127.0.0.1:8090", "cross-site", typed, 403},
		{"POST", "/profile?model=0", "evil.example:8090", "http://evil.example:8090", "same-origin", typed, 403},
		{"POST", "/profile?model=1", "127.0.0.1:8090", "", "", typed, 400},
		{"POST", "/profile", "127.0.0.1:8090", "", "", typed, 400},
	} {
		before := runs
		r := httptest.NewRequest(c.method, c.path, strings.NewReader("{}"))
		r.Host = c.host
		for name, v := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site, "Content-Type": c.kind} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%+v: status %d", c, w.Code)
		}
		if ran := runs > before; ran != (c.status == 200 && c.method == "POST") {
			t.Errorf("%+v: ran %v", c, ran)
		}
	}
	if h.models[0].Measured.Ms != 7 {
		t.Error("the page does not show what was measured")
	}
}

func TestServerMeasuresOneAtATime(t *testing.T) {
	started, end := make(chan bool), make(chan bool)
	fault := errors.New("no inputs")
	h := &handler{models: []*Model{{}}, measures: []Measure{func(ctx context.Context) (*Measured, error) {
		started <- true
		<-end
		return nil, fault
	}}}
	post := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/profile?model=0", nil)
		r.Host = "127.0.0.1"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- post() }()
	<-started
	if w := post(); w.Code != http.StatusConflict {
		t.Errorf("a second run meanwhile has status %d", w.Code)
	}
	close(end)
	if w := <-first; w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), fault.Error()) {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
}

// A run may take longer than its request may take to arrive, and ends where its client goes away.
func TestRunsEndWithTheirClients(t *testing.T) {
	const arrival = time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := Listen(ctx, ":0")
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan bool), make(chan error, 1)
	forever := func(ctx context.Context) (*Measured, error) {
		started <- true
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	long := func(ctx context.Context) (*Measured, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2 * arrival):
			return &Measured{Ms: 7}, nil
		}
	}
	h := &handler{models: []*Model{{}, {}}, measures: []Measure{long, forever}}
	served := make(chan error)
	go func() { served <- l.serve(ctx, &http.Server{Handler: h, ReadTimeout: arrival}) }()

	post := func(ctx context.Context, model, body string) (int, string, error) {
		r, err := http.NewRequestWithContext(ctx, "POST", l.URL()+"profile?model="+model, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(b), err
	}
	for _, c := range []struct {
		body   string
		status int
	}{{"", 200}, {"{}", 200}, {strings.Repeat(" ", 1<<17), 400}} {
		if status, answer, err := post(ctx, "0", c.body); err != nil || status != c.status {
			t.Errorf("%d bytes: status %d, %s, %v", len(c.body), status, answer, err)
		}
	}
	for _, body := range []string{"", "{}"} {
		gone, leave := context.WithCancel(ctx)
		go post(gone, "1", body)
		<-started
		leave()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d bytes: the run goes on without its client", len(body))
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// It listens on this machine alone where no host is given, and ends with its context.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := Listen(ctx, ":0")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(l.URL(), "http://127.0.0.1:") {
		t.Errorf("it listens at %s", l.URL())
	}
	go func() {
		defer cancel()
		answer, err := http.Get(l.URL())
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil || !strings.Contains(string(b), `"live":true`) {
			t.Errorf("the page is %.80q, %v", b, err)
		}
		if got := answer.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
			t.Errorf("its type is %s", got)
		}
	}()
	if err := l.Serve(ctx, []*Model{{File: "a.spx"}}, []Measure{nil}); err != nil {
		t.Error(err)
	}
	if _, err := Listen(t.Context(), "8090"); err == nil || !strings.Contains(err.Error(), "want") {
		t.Errorf("an address without a colon: %v", err)
	}
}
