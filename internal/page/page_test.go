package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"spc"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// A page holds two scripts whatever names models have, and the policy names the code.
func TestNamesStayData(t *testing.T) {
	name := "</script><script>alert(1)</script><!--{{code}} \u2028"
	m := &Model{File: name, Nodes: []node{{Name: name, Op: "Conv", parent: -1}}, Tree: []child{{node: 0}}, Layers: []spc.Layer{{Name: name, Reason: name}}}
	for _, live := range []bool{false, true} {
		var b bytes.Buffer
		if err := Write(&b, []*Model{m}, live); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		if n, m := strings.Count(page, "<script"), strings.Count(page, "</script>"); n != 2 || m != 2 {
			t.Errorf("%d scripts begin, %d end, want 2", n, m)
		}
		if n := strings.Count(page, "function prepare("); n != 1 {
			t.Errorf("the code is there %d times: a name stood for it", n)
		}
		if strings.Contains(page, "connect-src") != live {
			t.Errorf("live %v: the page may connect to what it should not, or not to what it should", live)
		}
		code := page[strings.LastIndex(page, "<script>")+len("<script>") : strings.LastIndex(page, "</script>")]
		if !strings.Contains(page, "script-src "+source([]byte(code))) {
			t.Error("the policy does not allow the page's own code")
		}
		_, data, _ := strings.Cut(page, `id="data">`)
		data, _, _ = strings.Cut(data, "</script>")
		var got struct {
			Models []struct{ Nodes []struct{ N string } }
		}
		if err := json.Unmarshal([]byte(data), &got); err != nil || got.Models[0].Nodes[0].N != name {
			t.Errorf("the data have the name %q, %v", got.Models[0].Nodes[0].N, err)
		}
	}
}

// A model without a described weight has lists, on which scripts call methods.
func TestListsAreThereWhereTheyAreEmpty(t *testing.T) {
	b := archs.New("small", 17)
	b.Output("out", b.Node("MatMul", nil, b.Input("in", archs.Float32, 1, 4), b.Weight("w", archs.LeCun(4), 4, 4)), archs.Float32, 1, 4)
	made, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "small.onnx")
	if err := os.WriteFile(path, made.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Model: path, Debug: spc.DebugOptions{StopAfter: "fold"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := New(m, "small.spx", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.Layers == nil || len(p.Layers) > 0 || len(p.Nodes) == 0 || len(p.Tree) == 0 {
		t.Errorf("layers %v, nodes %v, tree %v", p.Layers, p.Nodes, p.Tree)
	}
	if b, err := json.Marshal(Model{Nodes: list[node](nil), Tree: list[child](nil)}); err != nil || !strings.Contains(string(b), `"nodes":[],"tree":[]`) {
		t.Errorf("%s, %v", b, err)
	}
}

// Names would become markup by these.
func TestScriptsMakeNoMarkup(t *testing.T) {
	for _, name := range scripts {
		if strings.HasPrefix(name, "lib/") {
			continue
		}
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|setAttribute\("style`).Find(asset(name)); found != nil {
			t.Errorf("%s has %s", name, found)
		}
	}
}

// The libraries are those that libs.sh fetches, and come with their licences.
func TestLibrariesAreWhatWasFetched(t *testing.T) {
	sums, err := os.ReadFile("libs.sha256")
	if err != nil {
		t.Fatal(err)
	}
	files, err := assets.ReadDir("assets/lib")
	if err != nil || len(files) != strings.Count(string(sums), "\n") || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		b, err := assets.ReadFile("assets/lib/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(b), f.Name()); !strings.Contains(string(sums), line) {
			t.Errorf("%s is not what was fetched", f.Name())
		}
		if name, ok := strings.CutSuffix(f.Name(), ".LICENSE"); ok {
			var page bytes.Buffer
			if err := Write(&page, nil, false); err != nil || !strings.Contains(page.String(), string(b)) {
				t.Errorf("the page lacks the licence of %s (%v)", name, err)
			}
		}
	}
}

// Each format has a colour of its own in both themes, and a place in the legend.
func TestFormatsHaveColours(t *testing.T) {
	style, script := string(asset("base.css")), string(asset("model.js"))
	list := regexp.MustCompile(`const formats = (\[.*\]);`).FindStringSubmatch(script)
	var known []spc.Format
	if list == nil || json.Unmarshal([]byte(list[1]), &known) != nil || !slices.Equal(known, spc.Formats()) {
		t.Errorf("the script knows the formats %v, want %v", known, spc.Formats())
	}
	names := []spc.Format{"none"}
	names = append(names, spc.Formats()...)
	for _, theme := range []string{":root {", `:root[data-theme="dark"] {`} {
		_, rules, _ := strings.Cut(style, theme)
		rules, _, _ = strings.Cut(rules, "}")
		seen := map[string]spc.Format{}
		for _, f := range names {
			colour := regexp.MustCompile(`--` + string(f) + `: (#[0-9a-f]{6});`).FindStringSubmatch(rules)
			if colour == nil || seen[colour[1]] != "" {
				t.Errorf("%s %s has the colour %q", theme, f, colour)
				continue
			}
			seen[colour[1]] = f
		}
	}
}

// Pictures show what is there, counted element by element.
func TestPictures(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		rows, cols, side := 1+r.IntN(150), 1+r.IntN(150), 1+r.IntN(80)
		w := tensor.New(tensor.F32, rows, cols)
		density := r.Float64() * r.Float64()
		for i := range w.F32s() {
			if r.Float64() < density {
				w.F32s()[i] = 1
			}
		}
		p := draw(w, side)
		whole, corner := unpack(t, p.Whole), unpack(t, p.Corner)
		some, all := map[int]int{}, map[int]int{}
		perRow := make([]int, rows)
		for i := range rows {
			for j := range cols {
				at := i*p.Height/rows*p.Width + j*p.Width/cols
				all[at]++
				nonzero := w.F32s()[i*cols+j] != 0
				if nonzero {
					some[at]++
					perRow[i]++
				}
				if bit := i*p.CornerWidth + j; i < p.CornerHeight && j < p.CornerWidth && (corner[bit/8]>>(7-bit%8)&1 == 1) != nonzero {
					t.Fatalf("%d x %d: the corner is wrong at %d, %d", rows, cols, i, j)
				}
			}
		}
		if p.Corner == "" && (p.Width < cols || p.Height < rows) {
			t.Fatalf("%d x %d in %d x %d without a corner", rows, cols, p.Height, p.Width)
		}
		for at := range p.Width * p.Height {
			level := int(whole[at/2] >> (4 - at%2*4) & 15)
			if share := float64(some[at]) / float64(all[at]); float64(level)/15 < share || float64(level-1)/15 >= share && level > 0 {
				t.Fatalf("cell %d has level %d of 15 for %d of %d", at, level, some[at], all[at])
			}
		}
		counts := make([]int, len(p.Counts))
		for _, n := range perRow {
			counts[(n-p.First)/p.Step]++
		}
		for i, n := range p.Counts {
			if counts[i] != n || len(counts) > bins {
				t.Fatalf("histogram %v, want %v", p.Counts, counts)
			}
		}
	}
}

func unpack(t *testing.T, s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
