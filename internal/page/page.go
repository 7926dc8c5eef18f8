// Package page shows compiled models as one HTML page: the graph, a table of the layers, and of each layer the ways in
// which its weight could have been stored, its nonzeros and its place in the roofline. Layout of graphs and charts are
// those of libraries, which lie in assets/lib with their licences; all else that the page needs lies in assets.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"spc"
	"spc/backend/machine"
	"spc/ir/tensor"
)

// Measured is what runs of a model took.
type Measured struct {
	Device  string  `json:"device"`
	Threads int     `json:"threads"`
	Runs    int     `json:"runs"`
	Ms      float64 `json:"ms"`  // the median
	Min     float64 `json:"min"` // ms
	// Us is the median time of each node in further runs, in which nodes are timed, by its name.
	Us map[string]float64 `json:"us"`
}

// Model is what a page shows of a model.
type Model struct {
	File     string              `json:"file"`
	Bytes    int64               `json:"bytes"` // of the file
	Options  spc.ReportOptions   `json:"options"`
	Totals   spc.Totals          `json:"totals"`
	Layers   []spc.Layer         `json:"layers"`
	Nodes    []node              `json:"nodes"`
	Tree     []child             `json:"tree"`
	Pictures map[string]*picture `json:"pictures"` // by weight
	Machine  roofs               `json:"machine"`
	Assumed  bool                `json:"assumed,omitempty"` // sizes, for want of inputs
	Measured *Measured           `json:"measured,omitempty"`
	Why      string              `json:"why,omitempty"` // it was not measured
}

// roofs are what bounds a machine, one core of it.
type roofs struct {
	Name   string        `json:"name"`
	Peak   float64       `json:"peak"` // floating-point operations a second
	Next   machine.Level `json:"next"`
	Memory float64       `json:"memory"` // bytes a second
}

// New describes a model, whose file has a name and a size, for such inputs, or for sizes that are assumed where they are
// nil.
func New(m *spc.Model, file string, size int64, inputs map[string]*tensor.Tensor) (*Model, error) {
	o, err := m.Outline(inputs)
	if err != nil {
		return nil, err
	}
	r := m.Explain()
	on := r.Options.CPU()
	p := &Model{
		File: file, Bytes: size, Options: r.Options, Totals: r.Totals, Layers: list(r.Layers), Assumed: o.Assumed,
		Pictures: map[string]*picture{}, Machine: roofs{on.Name, on.Peak, on.Next, on.Memory},
	}
	p.Nodes = list(nodes(o, p.Layers))
	p.Tree = list(tree(p.Nodes))
	side := pictureSide(len(p.Layers))
	err = m.Weights(func(name string, w *tensor.Tensor) error {
		p.Pictures[name] = draw(w, side)
		return nil
	})
	return p, err
}

// list is what JSON has as a list though nothing is in it.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

//go:embed assets
var assets embed.FS

// scripts are the page's, in the order in which they run.
var scripts = []string{"lib/dagre.js", "lib/chart.js", "base.js", "model.js", "layout.js", "graph.js", "charts.js", "detail.js", "table.js", "totals.js", "main.js"}

// asset returns a file without the comment that would have a browser look for its source.
func asset(name string) []byte {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err)
	}
	const comment = "\n//# sourceMappingURL="
	if i := bytes.LastIndex(b, []byte(comment)); i >= 0 {
		b = b[:i+1]
	}
	return b
}

// look is the style and the code of a page, which are the same for all models.
func look() (style, code []byte) {
	style = slices.Concat(asset("base.css"), asset("page.css"))
	for _, name := range scripts {
		if library, ok := strings.CutSuffix(name, ".js"); ok && strings.HasPrefix(name, "lib/") {
			code = fmt.Appendf(code, "/*\n%s*/\n", asset(library+".LICENSE"))
		}
		code = append(code, asset(name)...)
		code = append(code, '\n')
	}
	return style, code
}

// Sources are the style and the code of a page as a policy allows them: pages that are opened by another one have to keep to the policy of that, too.
func Sources() (style, code string) {
	s, c := look()
	return source(s), source(c)
}

// Base is what other pages share with this one: a style, and a script that comes before their own.
func Base() (style, code []byte) { return asset("base.css"), asset("base.js") }

// source is what a policy calls an element with such content.
func source(content []byte) string {
	sum := sha256.Sum256(content)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Write writes a page of one model, or of two beside each other. Live says that a server will measure them again when it is asked.
//
// The names in models are whatever their makers liked: the data are JSON in which no < stands, the scripts make text of
// them and never markup, and the policy lets nothing run or load but what is in this file.
func Write(w io.Writer, models []*Model, live bool) error {
	data, err := json.Marshal(struct {
		Version string   `json:"version"`
		Live    bool     `json:"live"`
		Models  []*Model `json:"models"`
	}{spc.Version, live, models}) // which escapes <, > and &
	if err != nil {
		return err
	}
	style, code := look()
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + source(style) + "; script-src " + source(code) + "; img-src data:"
	if live {
		policy += "; connect-src 'self'"
	}
	// No replacement sees what another brought in.
	_, err = strings.NewReplacer("{{policy}}", policy, "{{style}}", string(style), "{{code}}", string(code), "{{data}}", string(data)).
		WriteString(w, string(asset("page.html")))
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	return nil
}
