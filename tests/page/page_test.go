package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	_ "spc/internal/page" // so that tests run again when it changes
	"spc/tests/archs"
)

const root = "../.."

// spc builds the program once.
var spc = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "spc")
	out, err := exec.Command("go", "build", "-o", path, root+"/cmd/spc").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "page"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

// run runs spc.
func run(t *testing.T, args ...string) {
	t.Helper()
	path, err := spc()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("spc %v: %v: %s", args, err, out)
	}
}

// compiled compiles a network once.
func compiled(t *testing.T, name string, build func(seed uint64) (*archs.Model, error), flags ...string) string {
	t.Helper()
	out := filepath.Join(folder, name+".spx")
	if _, err := os.Stat(out); err == nil {
		return out
	}
	m, err := build(1)
	if err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(folder, name+".onnx")
	if err := os.WriteFile(in, m.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, append([]string{"compile", in, "-o", out}, flags...)...)
	os.Remove(in)
	return out
}

func arch(name string) func(uint64) (*archs.Model, error) {
	all := slices.Concat(archs.All, archs.Tiny)
	return all[slices.IndexFunc(all, func(a archs.Arch) bool { return a.Name == name })].Build
}

// tab opens a browser, and at the test's end sees that nothing went wrong in it but what has one of the words that are expected.
func tab(t *testing.T, expected ...string) *Tab {
	t.Helper()
	if _, err := Browser(); err != nil {
		if os.Getenv("SPC_BROWSER") != "" {
			t.Fatalf("SPC_BROWSER: %v", err)
		}
		t.Skipf("no Chromium here, which SPC_BROWSER may name: %v", err)
	}
	b, stop, err := Open(t.Context(), 1280, 800)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range b.Faults() {
			if !slices.ContainsFunc(expected, func(word string) bool { return strings.Contains(f, word) }) {
				t.Errorf("console: %s", f)
			}
		}
		stop()
	})
	return b
}

func (t *Tab) must(test *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	test.Helper()
	if err := t.Do(actions...); err != nil {
		test.Fatal(err)
	}
}

// see waits until an expression is true.
func (t *Tab) see(test *testing.T, expression string) {
	test.Helper()
	if err := t.Wait(expression); err != nil {
		test.Fatal(err)
	}
}

func value[T any](test *testing.T, t *Tab, expression string) T {
	test.Helper()
	v, err := Eval[T](t, expression)
	if err != nil {
		test.Fatalf("%s: %v", expression, err)
	}
	return v
}

// click moves a node, or the group that it is folded into, into sight and clicks there.
func (t *Tab) click(test *testing.T, view int, name string) {
	test.Helper()
	at := value[struct{ X, Y float64 }](test, t, fmt.Sprintf("((v, id) => (v.show(id), v.at(id)))(views[%d], views[%[1]d].model.byName.get(%q))", view, name))
	t.must(test, chromedp.MouseClickXY(at.X, at.Y))
}

func goTo(t *testing.T, b *Tab, address string) float64 {
	t.Helper()
	ms, err := b.Goto(address)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// html writes a page of models and returns its address.
func html(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	run(t, append([]string{"inspect", "--html", path}, args...)...)
	return "file://" + path
}

// The page of ResNet50 is small, needs nothing else, and opens within a second.
func TestResNet50Opens(t *testing.T) {
	b := tab(t)
	address := html(t, compiled(t, "resnet50", arch("resnet50"), "--sparsity", "0.8"))
	info, err := os.Stat(strings.TrimPrefix(address, "file://"))
	if err != nil || info.Size() > 2e6 {
		t.Errorf("%v bytes, want less than 2 MB (%v)", info.Size(), err)
	}
	best := math.Inf(1)
	for range 5 { // others may use the processor meanwhile
		best = min(best, goTo(t, b, address))
	}
	t.Logf("%d KB, opens in %.0f ms", info.Size()/1000, best)
	if best > 1000 {
		t.Errorf("it opens in %.0f ms, want less than a second", best)
	}
	for _, url := range b.Loaded() {
		if url != address && url != "about:blank" && !strings.HasPrefix(url, "data:") {
			t.Errorf("it loads %s", url)
		}
	}
	if n := value[int](t, b, "views[0].drawing.groups.filter(g => g.kind === 'repeat').length"); n < 4 {
		t.Errorf("%d groups of blocks that repeat, want one for each stage", n)
	}
}

func TestLayersAreShown(t *testing.T) {
	b := tab(t)
	address := html(t, compiled(t, "resnet", arch("resnet"), "--sparsity", "0.8"))
	goTo(t, b, address)
	names := value[[]string](t, b, "models[0].layers.map(l => l.name)")
	layer := names[len(names)/2]

	// A link to a layer leads to it, and unfolds what it is in.
	goTo(t, b, address+"#layer="+urlEscape(layer))
	b.see(t, fmt.Sprintf("document.querySelector('#detail h2').textContent === %q", layer))
	b.see(t, fmt.Sprintf("views[0].drawing.visible(models[0].byName.get(%q)).node", layer))
	for _, part := range []string{"Candidates", "Nonzeros", "Nonzeros in a row", "Roofline"} {
		b.see(t, fmt.Sprintf("[...document.querySelectorAll('#detail h3')].some(h => h.textContent.startsWith(%q))", part))
	}
	if n := value[int](t, b, "document.querySelectorAll('#detail canvas').length"); n < 4 {
		t.Errorf("%d pictures and charts", n)
	}
	// The pictures are not empty.
	b.see(t, "(c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 2)(document.querySelector('#detail .pictures canvas'))")

	// A click on another selects that, and the address says so.
	b.click(t, 0, names[0])
	b.see(t, fmt.Sprintf("document.querySelector('#detail h2').textContent === %q", names[0]))
	if got := value[string](t, b, "location.hash"); got != "#layer="+urlEscape(names[0]) {
		t.Errorf("the address ends in %s", got)
	}

	// Keys: the reader of what is selected, nothing, the theme.
	b.must(t, chromedp.KeyEvent(kb.ArrowDown))
	b.see(t, "selected !== null && models[0].nodes[models[0].byName.get(selected)].i.includes(models[0].byName.get("+jsString(names[0])+"))")
	b.must(t, chromedp.KeyEvent("\x1b"))
	b.see(t, "selected === null && location.hash === ''")
	before := value[string](t, b, "document.documentElement.dataset.theme")
	b.must(t, chromedp.KeyEvent("t"))
	b.see(t, "document.documentElement.dataset.theme !== "+jsString(before))

	// A search finds, and Enter goes there.
	b.must(t, chromedp.KeyEvent("/"), chromedp.KeyEvent("conv1"), chromedp.KeyEvent("\r"))
	b.see(t, "selected !== null && selected.includes('conv1')")
	b.see(t, "/^1 of \\d+$/.test(document.getElementById('found').textContent)")
	b.must(t, chromedp.KeyEvent("\x1b"))
	b.see(t, "views[0].hits === null")
}

func TestGroupsFold(t *testing.T) {
	b := tab(t)
	goTo(t, b, html(t, compiled(t, "bert", func(seed uint64) (*archs.Model, error) {
		return archs.BERT(archs.BERTConfig{Layers: 6, Hidden: 32, Heads: 4, FF: 64, Vocabulary: 50, Positions: 16, Types: 2}, seed)
	}, "--sparsity", "0.8"), "--dim", "sequence=8"))
	const group = "views[0].drawing.groups.find(g => g.kind === 'repeat' && g.box)"
	b.see(t, group+".folded")
	boxes := value[int](t, b, "views[0].drawing.boxes.length")
	// The mark at its right end unfolds it.
	at := value[struct{ X, Y float64 }](t, b, "(b => { const v = views[0], r = v.canvas.getBoundingClientRect(); return { x: r.left + v.x + (b.x + b.w - 20) * v.k, y: r.top + v.y + (b.y + 14) * v.k }; })("+group+".box)")
	b.must(t, chromedp.MouseClickXY(at.X, at.Y))
	b.see(t, fmt.Sprintf("!%s.folded && views[0].drawing.boxes.length > %d", group, boxes))
	b.must(t, chromedp.Click(chromedp.CSS("#fold")))
	b.see(t, fmt.Sprintf("views[0].drawing.boxes.length <= %d", boxes))
	b.must(t, chromedp.Click(chromedp.CSS("#unfold")))
	b.see(t, "views[0].drawing.boxes.filter(b => b.item.node).length === models[0].nodes.length")
	// No two boxes lie on each other but one around another, and none reaches out of what it is in.
	b.see(t, `views[0].drawing.boxes.every((a, i, all) => all.every((b, j) => j <= i ||
		a.x + a.w <= b.x + .5 || b.x + b.w <= a.x + .5 || a.y + a.h <= b.y + .5 || b.y + b.h <= a.y + .5 ||
		a.frame && b.x >= a.x && b.y >= a.y && b.x + b.w <= a.x + a.w && b.y + b.h <= a.y + a.h))`)
}

func TestGraphMoves(t *testing.T) {
	b := tab(t)
	goTo(t, b, html(t, compiled(t, "resnet", arch("resnet"), "--sparsity", "0.8"), "--no-run"))
	type state struct{ X, Y, K float64 }
	at := func() state {
		return value[state](t, b, "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r({ x: views[0].x, y: views[0].y, k: views[0].k }))))")
	}
	was := at()
	b.must(t, chromedp.DragAndDropXY(100, 300, 160, 250, 4))
	if s := at(); math.Abs(s.X-was.X-60) > 1 || math.Abs(s.Y-was.Y+50) > 1 || s.K != was.K {
		t.Errorf("dragged by 60, -50: %v, was %v", s, was)
	}
	if got := value[*string](t, b, "selected"); got != nil {
		t.Errorf("dragging selects %s", *got)
	}
	was = at()
	wheel := func(modifiers int64) chromedp.Action[chromedp.Void] {
		return chromedp.MouseEvent("mouseWheel", 300, 300, func(p *input.DispatchMouseEventParams) {
			p.DeltaX, p.DeltaY = 1, 50 // neither may be 0
			p.Modifiers = modifiers
		})
	}
	b.must(t, wheel(0))
	if s := at(); math.Abs(s.Y-was.Y+50) > 1 || s.K != was.K {
		t.Errorf("the wheel moves to %v, was %v", s, was)
	}
	was = at()
	b.must(t, wheel(int64(kb.ModifierCtrl)))
	// What is under the pointer stays there.
	left := value[float64](t, b, "views[0].canvas.getBoundingClientRect().left")
	if s := at(); s.K >= was.K || math.Abs((300-left-s.X)/s.K-(300-left-was.X)/was.K) > 1 {
		t.Errorf("the wheel with Ctrl zooms to %v, was %v", s, was)
	}
	b.must(t, chromedp.KeyEvent("0"))
	b.see(t, "views[0].x >= 0 && views[0].y >= 0 && views[0].y + views[0].drawing.h * views[0].k <= views[0].h")
}

func TestTableSortsAndFilters(t *testing.T) {
	b := tab(t)
	goTo(t, b, html(t, compiled(t, "resnet", arch("resnet"), "--sparsity", "0.8"))+"#view=table")
	column := func(title string) []string {
		return value[[]string](t, b, fmt.Sprintf(`(i => [...document.querySelectorAll("#rows tbody tr[data-row]")].map(r => r.children[i].textContent))([...document.querySelectorAll("#rows th")].findIndex(h => h.textContent.startsWith(%q)))`, title))
	}
	head := func(title string) chromedp.Action[chromedp.Void] {
		i := value[int](t, b, fmt.Sprintf(`[...document.querySelectorAll("#rows th")].findIndex(h => h.textContent.startsWith(%q)) + 1`, title))
		return chromedp.Click(chromedp.CSS(fmt.Sprintf("#rows th:nth-child(%d) button", i)))
	}
	stored := func() []float64 {
		return value[[]float64](t, b, "grid.shown.map(r => r.of[0].l.stored_bytes)")
	}
	b.must(t, head("stored"))
	b.see(t, "document.querySelector('#rows th[aria-sort=descending]')")
	if s := stored(); len(s) < 10 || !slices.IsSortedFunc(s, func(a, b float64) int { return int(b - a) }) {
		t.Errorf("sorted by bytes, the largest first: %v", s)
	}
	b.must(t, head("stored"))
	b.see(t, "document.querySelector('#rows th[aria-sort=ascending]')")
	if s := stored(); !slices.IsSorted(s) {
		t.Errorf("sorted by bytes, the smallest first: %v", s)
	}
	b.must(t, head("name"))
	b.see(t, "document.querySelector('#rows th:first-child[aria-sort=ascending]')")
	if s := column("name"); !slices.IsSorted(s) {
		t.Errorf("sorted by name: %v", s)
	}
	all := len(stored())
	b.must(t, chromedp.SendKeys(chromedp.CSS("#filter"), "conv1"))
	b.see(t, fmt.Sprintf("grid.shown.length > 0 && grid.shown.length < %d && grid.shown.every(r => r.name.includes('conv1'))", all))
	b.must(t, chromedp.Click(chromedp.CSS("#rows tbody tr[data-row='0'] td")))
	b.see(t, "selected === grid.shown[0].node && document.querySelector('#detail h2').textContent === selected")
	b.must(t, chromedp.KeyEvent(kb.ArrowDown))
	b.see(t, "selected === grid.shown[1].node && document.querySelector('#rows tr.selected').dataset.row === '1'")
	b.see(t, "new URLSearchParams(location.hash.slice(1)).get('layer') === selected && location.hash.endsWith('&view=table')")
	b.must(t, chromedp.Click(chromedp.CSS("#weights")))
	b.see(t, "!grid.weights")
	b.must(t, chromedp.Click(chromedp.CSS("#tab-totals")))
	b.see(t, "document.querySelectorAll('#totals canvas').length >= 3")
}

func TestTwoModelsBesideEachOther(t *testing.T) {
	b := tab(t)
	goTo(t, b, html(t, compiled(t, "dense", arch("resnet")), compiled(t, "resnet", arch("resnet"), "--sparsity", "0.8")))
	b.see(t, "document.querySelectorAll('#canvases canvas').length === 2")
	name := value[string](t, b, "models[1].layers[3].name")
	b.click(t, 1, name)
	b.see(t, fmt.Sprintf("[...document.querySelectorAll('#detail section h2')].filter(h => h.textContent === %q).length === 2", name))
	b.see(t, fmt.Sprintf("views.every(v => v.drawing.visible(v.model.byName.get(%q)).node)", name))
	b.must(t, chromedp.Click(chromedp.CSS("#tab-table")))
	b.see(t, "grid.shown.length > 0 && grid.shown.every(r => r.of[0] && r.of[1])")
	b.must(t, chromedp.Click(chromedp.CSS("#tab-totals")))
	b.see(t, "document.querySelector('#totals table')")
}

// Names of a model are text, whatever they hold.
func TestHostileNames(t *testing.T) {
	b := tab(t)
	address := html(t, compiled(t, "hostile", func(uint64) (*archs.Model, error) { return HostileModel() }, "--sparsity", "0.5"))
	goTo(t, b, address)
	b.see(t, "models[0].nodes.every(n => Number.isFinite(n.time)) && models[0].timed > 0")
	for _, view := range []string{"graph", "table", "totals"} {
		b.must(t, chromedp.Click(chromedp.CSS("#tab-"+view)))
		b.see(t, "view === "+jsString(view))
		for _, name := range value[[]string](t, b, "[...models[0].byName.keys()]") {
			link := value[string](t, b, "(select("+jsString(name)+"), location.hash)")
			if got := value[string](t, b, "document.querySelector('#detail h2').textContent"); got != name {
				t.Errorf("a node is called %q, want %q", got, name)
			}
			if got := value[string](t, b, "(select(null), location.hash = "+jsString(link)+", follow(), selected)"); got != name {
				t.Errorf("the link to %q leads to %q", name, got)
			}
		}
	}
	b.see(t, "document.querySelectorAll('script').length === 2 && !document.querySelector('body img, body svg') && document.title.startsWith('spc: ')")
	for _, url := range b.Loaded() {
		if !strings.HasPrefix(url, "file://") && !strings.HasPrefix(url, "about:") && !strings.HasPrefix(url, "data:") {
			t.Errorf("it loads %s", url)
		}
	}
}

// Where sizes are open, candidates have the times for as many columns as the page says, be these predicted or measured, and weights of two forms
// have a colour.
func TestLayersForOpenSizes(t *testing.T) {
	b := tab(t)
	open := []string{"--sparsity", "0.5", "--dim", "batch=1", "--dim", "t=1,12"}
	goTo(t, b, html(t, compiled(t, "decoder", archs.Decoder, open...), "--dim", "t=12"))
	b.see(t, "[...document.querySelectorAll('#legend .key')].some(k => k.textContent === 'pair')")
	b.see(t, "formatColour('pair') !== formatColour('dense') && formatColour('pair') !== colours.none")
	candidatesAreShown(t, b)
	goTo(t, b, html(t, compiled(t, "tuned", archs.Decoder, append(open, "--tune", "--tune-budget", "20s")...), "--dim", "t=12"))
	candidatesAreShown(t, b)
}

// candidatesAreShown checks the bars of each layer with times for several numbers of columns.
func candidatesAreShown(t *testing.T, b *Tab) {
	t.Helper()
	type layer struct {
		Name       string
		N          int
		Candidates []struct {
			Times    []float64 `json:"points_us"`
			Measured float64   `json:"measured_us"`
			Scaled   []int     `json:"scaled_points"`
		}
	}
	for _, l := range value[[]layer](t, b, "models[0].layers") {
		if len(l.Candidates) == 0 {
			continue
		}
		value[int](t, b, "(select("+jsString(l.Name)+"), 0)")
		b.see(t, fmt.Sprintf("[...document.querySelectorAll('#detail h3')].some(h => h.textContent === 'Candidates, for %d columns')", l.N))
		b.see(t, "[...document.querySelectorAll('#detail th')].some(h => h.textContent === 'mean predicted')")
		sets := value[[][]*float64](t, b, "[...shown.values()].find(c => c.canvas.getAttribute('aria-label').endsWith('times of the candidates')).data.datasets.map(d => d.data)")
		for _, c := range l.Candidates {
			set, last := 0, len(c.Times)-1
			if c.Measured > 0 && !slices.Contains(c.Scaled, last) {
				set = 1
			}
			if !slices.ContainsFunc(sets[set], func(v *float64) bool { return v != nil && *v == c.Times[last] }) {
				t.Errorf("%s: no bar of set %d shows %g us", l.Name, set, c.Times[last])
			}
		}
	}
}

// Before formats are chosen no weight is described, and there may be no node.
func TestPageOfWhatIsNotCompiledWhole(t *testing.T) {
	b := tab(t)
	empty := func(uint64) (*archs.Model, error) {
		m := archs.New("empty", 17)
		m.Output("out", m.Weight("w", archs.LeCun(2), 2, 2), archs.Float32, 2, 2)
		return m.Model(1)
	}
	for _, path := range []string{compiled(t, "folded", arch("resnet"), "--stop-after", "fold"), compiled(t, "empty", empty)} {
		goTo(t, b, html(t, path))
		for _, view := range []string{"graph", "table", "totals"} {
			b.must(t, chromedp.Click(chromedp.CSS("#tab-"+view)))
			b.see(t, "view === "+jsString(view)+" && models[0].layers.length === 0")
		}
		b.see(t, "document.querySelector('#detail h2') && document.getElementById('facts').textContent.startsWith('0 weights')")
	}
	goTo(t, b, html(t, compiled(t, "folded", arch("resnet"), "--stop-after", "fold")))
	b.see(t, "models[0].nodes.length > 10 && models[0].timed > 0")
}

// frames pans and zooms over the whole graph, all of it unfolded, and gives the 95th percentile of the times between frames.
const frames = `(async () => {
	const v = views[0];
	await v.foldAll(false);
	const times = [], frame = () => new Promise(requestAnimationFrame);
	const move = async (n, f) => {
		let last = await frame();
		for (let i = 0; i < n; i++) {
			f(i);
			const now = await frame();
			times.push(now - last);
			last = now;
		}
	};
	v.fit();
	await move(40, i => v.pan(i % 2 ? 5 : -5, 3));
	await move(80, i => v.zoom(i < 50 ? 1.15 : 1 / 1.15, 300, 200));
	v.k = 0.36;
	await move(40, () => v.pan(-1, -50));
	v.k = 1;
	await move(40, () => v.pan(1, -50));
	times.sort((a, b) => a - b);
	return times[Math.floor(times.length * 0.95)];
})()`

func TestTenThousandNodesAreSmooth(t *testing.T) {
	b := tab(t)
	for _, c := range []struct {
		name  string
		build func(uint64) (*archs.Model, error)
	}{
		{"large", func(seed uint64) (*archs.Model, error) { return Large(10500, seed) }},
		{"tangled", func(seed uint64) (*archs.Model, error) { return Tangled(50, 205, seed) }},
	} {
		goTo(t, b, html(t, compiled(t, c.name, c.build), "--no-run"))
		nodes := value[int](t, b, "models[0].nodes.length")
		if nodes < 10000 {
			t.Errorf("%s: %d nodes", c.name, nodes)
		}
		best := math.Inf(1)
		for try := 0; try < 5 && best >= 50; try++ { // others may use the processor meanwhile
			best = min(best, value[float64](t, b, frames))
		}
		t.Logf("%s: %d nodes, 95%% of the frames within %.1f ms", c.name, nodes, best)
		if best >= 50 {
			t.Errorf("%s: 95%% of the frames within %.1f ms, want 50", c.name, best)
		}
	}
}

func TestServedPageMeasuresAgain(t *testing.T) {
	b := tab(t)
	path, err := spc()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, "inspect", compiled(t, "resnet", arch("resnet"), "--sparsity", "0.8"), "--serve", ":0", "--no-run")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	address, _, ok := strings.Cut(line, " ")
	if err != nil || !ok {
		t.Fatalf("it says %q, %v", line, err)
	}
	goTo(t, b, address)
	b.see(t, "models[0].timed === 0 && !document.getElementById('measure').hidden")
	b.must(t, chromedp.Click(chromedp.CSS("#measure")))
	b.see(t, "models[0].timed > 0 && document.getElementById('status').textContent === 'measured'")
	b.see(t, "[...document.querySelectorAll('#facts span')].some(s => s.textContent.endsWith('measured'))")
	answer, err := http.Post(address+"profile?model=0", "text/plain", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site measures: status %d", answer.StatusCode)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if got := c.ProcessState.Sys().(syscall.WaitStatus).ExitStatus(); got != 130 {
		t.Errorf("an interrupt ends it with status %d", got)
	}
}

// Printed, the page has all rows of the table, and is light.
func TestPageIsPrinted(t *testing.T) {
	b := tab(t)
	goTo(t, b, html(t, compiled(t, "resnet", arch("resnet"), "--sparsity", "0.8")))
	value[int](t, b, "theme('dark'), 0")
	value[int](t, b, "window.addEventListener('beforeprint', () => { window.printed = { rows: document.querySelectorAll('#rows tr[data-row]').length, theme: document.documentElement.dataset.theme }; }), 0")
	pdf, err := chromedp.Run(b.Context, chromedp.PrintToPDF())
	if err != nil || len(pdf) < 20000 {
		t.Fatalf("%d bytes of PDF, %v", len(pdf), err)
	}
	b.see(t, "printed.theme === 'paper' && printed.rows === models[0].layers.length")
	b.see(t, "document.documentElement.dataset.theme === 'dark'")
}

func urlEscape(s string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F", "#", "%23", "&", "%26", " ", "%20").Replace(s)
}

func jsString(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
