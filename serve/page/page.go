// Package page is what a browser sees of a server: its models, what they do, a form to try one, and the report of each, which spc inspect writes too.
// It asks the server by the protocol's own calls, and by those below /page/ for what the protocol has no call for. It imports serve/service and
// internal/page.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"spc/data"
	report "spc/internal/page"
	"spc/serve/host"
	"spc/serve/oip"
	"spc/serve/service"
)

//go:embed assets
var assets embed.FS

// static is a file of the page, which is the same for all servers.
type static struct {
	kind, tag string
	content   []byte
}

// files are those by their paths.
var files = readFiles()

func readFiles() map[string]static {
	list := map[string]static{}
	add := func(at string, b []byte) {
		kinds := map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
		list[at] = static{kinds[path.Ext(at)] + "; charset=utf-8", fmt.Sprintf(`"%.8x"`, sha256.Sum256(b)), b}
	}
	entries, err := assets.ReadDir("assets")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, e := range entries {
		b, err := assets.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		add("/page/"+e.Name(), b)
	}
	style, code := report.Base()
	add("/page/base.css", style)
	add("/page/base.js", code)
	list["/"] = list["/page/index.html"]
	delete(list, "/page/index.html")
	return list
}

// Static reports whether a path is one of the page's own files, which tell nothing of a server.
func Static(path string) bool {
	_, ok := files[path]
	return ok
}

// policy lets the page load and run its own files alone. A report that a browser cannot ask for by a link, as that takes a token, is opened as what the
// page has fetched, and then has to keep to the page's policy too: so it names the style and the code of reports by their hashes.
func policy() string {
	style, code := report.Sources()
	return "default-src 'none'; script-src 'self' " + code + "; style-src 'self' " + style +
		"; img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

type handler struct {
	s      *service.Service
	policy string
	turn   chan struct{} // of who makes a report
}

// call is a row of the table of calls.
type call struct {
	path string
	f    func(h *handler, w http.ResponseWriter, r *http.Request) error
}

var calls = []call{
	{"/page/preprocessing", (*handler).preprocessing},
	{"/page/load", (*handler).load},
	{"/page/models/{model}/versions/{version}/example", (*handler).example},
	{"/page/models/{model}/versions/{version}/report", (*handler).report},
}

// Handler answers for / and what is below /page/.
func Handler(s *service.Service) http.Handler {
	h := &handler{s, policy(), make(chan struct{}, 1)}
	mux := http.NewServeMux()
	for _, c := range calls {
		mux.HandleFunc(c.path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			if err := c.f(h, w, r); err != nil {
				fail(w, err)
			}
		})
	}
	mux.HandleFunc("/", h.file)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			send(w, http.StatusMethodNotAllowed, oip.ErrorBody(fmt.Errorf("%s %s: want GET", r.Method, r.URL.Path)))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) { send(w, oip.KindOf(err).HTTP(), oip.ErrorBody(err)) }

// send answers with JSON.
func send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // the client is gone where it fails
}

func answer(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		send(w, http.StatusOK, b)
	}
	return err
}

// file answers with one of the page's files. A browser keeps it, and asks each time whether it is still the same.
func (h *handler) file(w http.ResponseWriter, r *http.Request) {
	f, ok := files[r.URL.Path]
	if !ok {
		fail(w, oip.Errorf(oip.NotFound, "%s %s: no such page", r.Method, r.URL.Path))
		return
	}
	header := w.Header()
	header.Set("Content-Type", f.kind)
	header.Set("Content-Security-Policy", h.policy)
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}

// preprocessed is how pixels x, 0 to 255, of the channels of an image become a model's: channel i is (x - Mean[i]) / Std[i] of channel From[i].
type preprocessed struct {
	Mean []float64 `json:"mean"`
	Std  []float64 `json:"std"`
	From []int     `json:"from"`
}

// preprocessing answers with what the names of data.Norms stand for, by the number of channels that a model takes.
func (h *handler) preprocessing(w http.ResponseWriter, _ *http.Request) error {
	all := map[string]map[int]preprocessed{}
	for name, n := range data.Norms {
		all[name] = map[int]preprocessed{}
		for _, channels := range []int{1, 3} {
			var p preprocessed
			for c := range channels {
				mean, std, from := n.Of(c, channels)
				p.Mean, p.Std, p.From = append(p.Mean, mean), append(p.Std, std), append(p.From, from)
			}
			all[name][channels] = p
		}
	}
	return answer(w, all)
}

// load answers with what the protocol's statistics lack: requests that wait, and how many took how long.
func (h *handler) load(w http.ResponseWriter, _ *http.Request) error {
	type model struct {
		Name    string       `json:"name"`
		Version string       `json:"version"`
		Waiting int          `json:"waiting"`
		Latency host.Latency `json:"latency"`
	}
	out := struct {
		Bounds []float64 `json:"bounds_us"`
		Models []model   `json:"models"`
	}{Models: []model{}}
	for _, b := range host.LatencyBounds {
		out.Bounds = append(out.Bounds, float64(b)/float64(time.Microsecond))
	}
	for _, e := range h.s.Models.Index() {
		s, err := h.s.Models.Statistics(e.Name, e.Version)
		if err != nil || e.Version == "" { // it has just gone, or was never there
			continue
		}
		m := model{Name: e.Name, Version: e.Version, Latency: s.Latency}
		if served, _, done, err := h.s.Models.Get(e.Name, e.Version); err == nil {
			m.Waiting = served.Waiting()
			done()
		}
		out.Models = append(out.Models, m)
	}
	return answer(w, out)
}

// example answers with a request that a model takes.
func (h *handler) example(w http.ResponseWriter, r *http.Request) error {
	return h.s.Use(r.PathValue("model"), r.PathValue("version"), func(m *host.Model, _ string) error {
		made, err := m.Example()
		if err != nil {
			return err
		}
		q := &oip.Request{}
		if s := made.Sequence; s != nil {
			q.Parameters = oip.Parameters{"sequence_id": s.ID, "sequence_start": s.Start, "sequence_end": s.End}
		}
		for _, p := range m.Inputs() {
			if t := made.Inputs[p.Name]; t != nil {
				q.Inputs = append(q.Inputs, oip.Tensor{Name: p.Name, Data: t})
			}
		}
		b, err := q.Body()
		if err != nil {
			return err
		}
		send(w, http.StatusOK, b.JSON)
		return nil
	})
}

// report answers with the report of a model, which is made anew, one at a time.
func (h *handler) report(w http.ResponseWriter, r *http.Request) error {
	name, version := r.PathValue("model"), r.PathValue("version")
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	var b bytes.Buffer
	err := h.s.Use(name, version, func(m *host.Model, version string) error {
		file, err := h.s.Models.File(name, version)
		if err != nil {
			return err
		}
		p, err := report.New(m.Spc(), filepath.Base(file.Path), file.Size, nil)
		if err != nil {
			return err
		}
		return report.Write(&b, []*report.Model{p}, false)
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.Write(b.Bytes())
	return nil
}
