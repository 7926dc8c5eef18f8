package page

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	api "spc"
	"spc/data"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	_ "spc/serve/page" // so that tests run again when it changes
	"spc/tests/archs"
)

// sight takes images as most models do, last bytes whose channels come last, and words is no model of images.
func sight(seed uint64) (*archs.Model, error) {
	b := archs.New("sight", 17)
	x := b.Input("pixels", archs.Float32, "n", 3, 8, 8)
	x = b.Node("Relu", nil, b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}}, x, b.Weight("c", archs.He(27), 8, 3, 3, 3)))
	x = b.Node("Flatten", nil, b.Node("MaxPool", archs.Attrs{"kernel_shape": []int{2, 2}, "strides": []int{2, 2}}, x))
	b.Output("classes", b.Node("Gemm", nil, x, b.Weight("w", archs.He(128), 128, 7)), archs.Float32, "n", 7)
	return b.Model(seed)
}

func last(seed uint64) (*archs.Model, error) {
	b := archs.New("last", 17)
	x := b.Node("Cast", archs.Attrs{"to": int(onnxpb.TensorProto_FLOAT)}, b.Input("bytes", onnxpb.TensorProto_UINT8, "n", 6, 5, 3))
	b.Output("classes", b.Node("Gemm", nil, b.Node("Flatten", nil, x), b.Weight("w", archs.He(9000), 90, 6)), archs.Float32, "n", 6)
	return b.Model(seed)
}

func words(seed uint64) (*archs.Model, error) {
	b := archs.New("words", 17)
	b.Output("found", b.Node("Gather", nil, b.Weight("table", archs.He(1), 10, 4), b.Input("at", archs.Int64, "n", 2)), archs.Float32, "n", 2, 4)
	return b.Model(seed)
}

// hostileName is what a file's name tries on a page.
const hostileName = `<img src=x onerror=alert(1)>"&%2F{{}}`

// served starts spc serve for these models, and one that is damaged, and returns its address.
func served(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, build := range map[string]func(uint64) (*archs.Model, error){"sight": sight, "last": last, "words": words} {
		path := compiled(t, name, build)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".spx"), b, 0o666); err != nil {
			t.Fatal(err)
		}
		if name == "words" {
			if err := os.WriteFile(filepath.Join(dir, "damaged.spx"), b[:len(b)/2], 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, hostileName+".spx"), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	path, err := spc()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, append([]string{"serve", "--models", dir, "--http", "127.0.0.1:0", "--grpc", "none", "--threads", "1"}, flags...)...)
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("it does not listen: %v", err)
		}
		if m := regexp.MustCompile(`listening http=(\S+)`).FindStringSubmatch(line); m != nil {
			go io.Copy(io.Discard, r)
			return "http://" + m[1] + "/"
		}
	}
}

// settled waits until the server has looked at all models.
func settled(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r, err := http.Get(address + "v2/health/ready"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
	}
	t.Fatal("the server is not ready")
}

// photo writes an image of random pixels.
func photo(t *testing.T, r *rand.Rand, width, height int) string {
	t.Helper()
	im := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			im.SetRGBA(x, y, color.RGBA{uint8(r.IntN(256)), uint8(r.IntN(256)), uint8(r.IntN(256)), 255})
		}
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("%dx%d.png", width, height))
	var b bytes.Buffer
	if err := png.Encode(&b, im); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// choose selects a model by the address.
func (t *Tab) choose(test *testing.T, name string) {
	test.Helper()
	value[int](test, t, "(location.hash = new URLSearchParams({ model: "+jsString(name)+" }), 0)")
	t.see(test, "detail && JSON.parse(detail.key)[0] === "+jsString(name)+" && document.querySelector('#detail form')")
}

// top are the classes and values that the page shows.
func top(t *testing.T, b *Tab) (classes []int, values []float64) {
	t.Helper()
	for _, row := range value[[][]float64](t, b, `[...document.querySelectorAll(".top tbody tr")].map(r => [+r.querySelector(".kind").textContent, +r.lastChild.dataset.value])`) {
		classes, values = append(classes, int(row[0])), append(values, row[1])
	}
	return classes, values
}

func TestServerListsItsModels(t *testing.T) {
	address := served(t)
	settled(t, address)
	b := tab(t)
	goTo(t, b, address)
	b.see(t, "models.length === 5 && document.querySelectorAll('#rows .name').length === 5 && models.filter(m => m.state === 'READY').length === 4")
	if text := value[string](t, b, "[...document.querySelectorAll('#rows tr.why:not([hidden])')].map(r => r.textContent).join()"); !strings.Contains(text, "damaged.spx: ") || strings.Contains(text, "sight") {
		t.Errorf("what is wrong with models: %s", text)
	}
	b.see(t, "document.querySelector('#facts').textContent.includes('4 of 5 ready')")

	// By the keyboard: the damaged model, and what is wrong with it.
	value[int](t, b, "([...document.querySelectorAll('#rows .name')].find(n => n.textContent.startsWith('damaged')).focus(), 0)")
	b.must(t, chromedp.KeyEvent(kb.Enter))
	b.see(t, "document.querySelector('#detail .reason').textContent.includes('damaged.spx: ') && !document.querySelector('#detail form')")
	b.see(t, "document.querySelector('#rows .name[aria-pressed=true]').textContent.startsWith('damaged') && location.hash === '#model=damaged&version=1'")

	b.choose(t, "words")
	if rows := value[[]string](t, b, "[...document.querySelectorAll('.ports td')].map(d => d.textContent)"); !slices.Equal(rows, []string{"at", "INT64", "any × 2", "found", "FP32", "any × 2 × 4"}) {
		t.Errorf("inputs and outputs: %q", rows)
	}
	request := `{"inputs":[{"name":"at","shape":[1,2],"datatype":"INT64","data":[3,9]}]}`
	for range 40 {
		r, err := http.Post(address+"v2/models/words/infer", "", strings.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	r, err := http.Post(address+"v2/models/words/infer", "", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	b.see(t, "document.querySelector('.load').textContent.includes('requests40') && document.querySelectorAll('svg.latency .quantile').length === 3")
	b.see(t, "rows.get(selected).cells.rate.textContent > 0 && /µs|ms/.test(rows.get(selected).cells.p99.textContent)")
	if label := value[string](t, b, "document.querySelector('svg.latency').getAttribute('aria-label')"); !regexp.MustCompile(`p50 [\d.]+ [µm]s, p90 [\d.]+ [µm]s, p99 [\d.]+ [µm]s`).MatchString(label) {
		t.Errorf("the histogram is called %q", label)
	}
	quantilesAreRight(t, b)

	// Names are text, and each control has one of its own.
	b.choose(t, hostileName)
	b.see(t, "document.querySelector('#detail h2').textContent.startsWith("+jsString(hostileName)+") && !document.querySelector('#rows img, #detail img')")
	for _, name := range []string{hostileName, "sight"} {
		b.choose(t, name)
		b.see(t, "[...document.querySelectorAll('input, select, textarea')].every(e => e.labels.length || e.ariaLabel) && [...document.querySelectorAll('button')].every(e => e.textContent || e.ariaLabel)")
	}
	for _, url := range b.Loaded() {
		if !strings.HasPrefix(url, address) && !strings.HasPrefix(url, "about:") && !strings.HasPrefix(url, "data:") {
			t.Errorf("it loads %s", url)
		}
	}
	for _, size := range [][2]int64{{390, 844}, {800, 600}, {1280, 800}} {
		b.must(t, chromedp.EmulateViewport(size[0], size[1]))
		if wide := value[int64](t, b, "document.documentElement.scrollWidth"); wide > size[0] {
			t.Errorf("in %d pixels the page is %d wide", size[0], wide)
		}
	}
}

// quantilesAreRight compares quantiles with those of times that are drawn: they lie in the same bucket.
func quantilesAreRight(t *testing.T, b *Tab) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	bounds := value[[]float64](t, b, "bounds")
	for range 20 {
		times, counts := make([]float64, 1+r.IntN(300)), make([]int, len(bounds)+1)
		for i := range times {
			times[i] = math.Exp(3 + r.NormFloat64()*2)
			at, _ := slices.BinarySearch(bounds, times[i])
			counts[at]++
		}
		slices.Sort(times)
		text, err := json.Marshal(counts)
		if err != nil {
			t.Fatal(err)
		}
		got := value[[]float64](t, b, fmt.Sprintf("quantiles(bounds, %s).map(q => q.us)", text))
		for i, q := range []float64{0.5, 0.9, 0.99} {
			want := times[max(0, int(math.Ceil(q*float64(len(times))))-1)]
			at, _ := slices.BinarySearch(bounds, want)
			if have, _ := slices.BinarySearch(bounds, got[i]*(1-1e-9)); have != at {
				t.Errorf("quantile %v of %v is %v, want about %v", q, counts, got[i], want)
			}
		}
	}
}

// The page sees in an image what the library does, and says so when the server refuses.
func TestPageTriesAnImage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	address := served(t)
	settled(t, address)
	b := tab(t)
	goTo(t, b, address)
	for _, c := range []struct {
		model, preprocess string
		width, height     int // of the image
		feed              data.Feed
		off               float64 // that values may be, of the largest
	}{
		{"sight", "imagenet", 8, 8, data.Feed{DType: tensor.F32, Channels: 3, Height: 8, Width: 8}, 1e-6},
		{"sight", "caffe", 8, 8, data.Feed{DType: tensor.F32, Channels: 3, Height: 8, Width: 8}, 1e-6},
		{"sight", "imagenet", 37, 23, data.Feed{DType: tensor.F32, Channels: 3, Height: 8, Width: 8}, 1e-3},
		{"sight", "tf", 5, 3, data.Feed{DType: tensor.F32, Channels: 3, Height: 8, Width: 8}, 1e-3},
		{"last", "none", 5, 6, data.Feed{DType: tensor.U8, Channels: 3, Height: 6, Width: 5}, 1e-6},
	} {
		path := photo(t, r, c.width, c.height)
		want := library(t, c.model, path, c.preprocess, c.feed)
		b.choose(t, c.model)
		b.see(t, "document.querySelector('.how').options.length > 0")
		value[int](t, b, fmt.Sprintf("(document.querySelector('.how').value = %q, 0)", c.preprocess))
		value[int](t, b, "(document.querySelector('form.try .result').replaceChildren(), 0)")
		b.must(t, chromedp.SetUploadFiles(chromedp.CSS("#detail .image"), []string{path}))
		b.see(t, "document.querySelectorAll('.top tbody tr').length === 5")
		classes, values := top(t, b)
		order := make([]int, len(want))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(i, j int) int { return int(math.Copysign(1, want[j]-want[i])) })
		largest := math.Max(math.Abs(want[order[0]]), math.Abs(want[order[len(order)-1]]))
		for i, class := range classes {
			if math.Abs(values[i]-want[class]) > c.off*largest || math.Abs(want[class]-want[order[i]]) > 2*c.off*largest {
				t.Errorf("%s, %s, %dx%d: place %d has class %d with %v, want %d, %v", c.model, c.preprocess, c.width, c.height, i, class, values[i], order[i], want[class])
			}
		}
	}
	softmaxAndNames(t, b)
	// What is no image, and what the server refuses, is told.
	text := filepath.Join(t.TempDir(), "no.png")
	if err := os.WriteFile(text, []byte("no image"), 0o666); err != nil {
		t.Fatal(err)
	}
	b.must(t, chromedp.SetUploadFiles(chromedp.CSS("#detail .image"), []string{text}))
	b.see(t, "document.querySelector('form.try .wrong')?.textContent === 'no.png is no image that the browser reads' && !document.querySelector('.top')")
	b.choose(t, "words")
	b.see(t, "!document.querySelector('form.try .primary').disabled && document.querySelector('.request').value.includes('INT64')")
	b.must(t, chromedp.Click(chromedp.CSS("form.try .primary")))
	b.see(t, "document.querySelector('.answer') && document.querySelector('.answer').textContent.includes('\"shape\":[1,2,4]')")
	if faults := b.Faults(); len(faults) > 0 {
		t.Errorf("console: %q", faults)
	}
	value[int](t, b, `(e => { e.value = '{"inputs":[{"name":"at","shape":[1,2],"datatype":"INT64","data":[3,99]}]}'; return 0; })(document.querySelector(".request"))`)
	b.must(t, chromedp.Click(chromedp.CSS("form.try .primary")))
	b.see(t, `document.querySelector("form.try .wrong") && /^400: model .words.*99/.test(document.querySelector("form.try .wrong").textContent)`)
	if faults := b.Faults(); len(faults) != 1 || !strings.Contains(faults[0], "400") { // which the browser itself writes
		t.Errorf("console: %q", faults)
	}
}

// softmaxAndNames checks both on what the page shows.
func softmaxAndNames(t *testing.T, b *Tab) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "names.txt")
	if err := os.WriteFile(path, []byte("zero\none\ntwo\nthree\n<b>four</b>\nfive\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	b.must(t, chromedp.SetUploadFiles(chromedp.CSS("#detail .names"), []string{path}))
	b.see(t, "/^(zero|one|two|three|<b>four<.b>|five) \\d$/.test(document.querySelector('.top td').textContent) && !document.querySelector('.top b')")
	_, before := top(t, b)
	b.must(t, chromedp.Click(chromedp.CSS("#detail .softmax")))
	b.see(t, "document.querySelector('.top tbody td.r').textContent.endsWith('%')")
	_, after := top(t, b)
	for i := range after {
		if want := math.Exp(before[i] - before[0]); math.Abs(after[i]/after[0]-want) > 1e-6 {
			t.Errorf("softmax of %v is %v", before, after)
		}
	}
}

// library is what the Go API makes of an image, whose channels a model may want last.
func library(t *testing.T, model, path, preprocess string, f data.Feed) []float64 {
	t.Helper()
	im, err := data.ReadImage(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Norm, err = data.ParseNorm(preprocess); err != nil {
		t.Fatal(err)
	}
	x, err := im.Input(f)
	if err != nil {
		t.Fatal(err)
	}
	shape := []int{1, f.Channels, f.Height, f.Width}
	b := x.Bytes()
	if f.DType == tensor.U8 {
		shape = []int{1, f.Height, f.Width, f.Channels}
		n := f.Height * f.Width
		b = make([]byte, len(x.Bytes()))
		for i, v := range x.Bytes() {
			b[i%n*f.Channels+i/n] = v
		}
	}
	in, err := tensor.FromBytes(f.DType, shape, b)
	if err != nil {
		t.Fatal(err)
	}
	m, err := api.Open(filepath.Join(folder, model+".spx"), api.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out, err := m.Run(t.Context(), map[string]*tensor.Tensor{m.Inputs()[0].Name: in})
	if err != nil {
		t.Fatal(err)
	}
	return out["classes"].Float64s()
}

// A server with tokens gives away nothing before it is told one, and a report opens with it as it does without.
func TestPageAsksForTheToken(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := served(t, "--tokens", tokens)
	settled(t, address)
	b := tab(t, "401") // the browser writes of each answer with that, some time after it
	goTo(t, b, address)
	b.see(t, "!document.getElementById('ask').hidden && document.activeElement.id === 'token' && !document.body.innerText.includes('sight')")
	b.must(t, chromedp.SendKeys(chromedp.CSS("#token"), "wrong"), chromedp.KeyEvent(kb.Enter))
	b.see(t, "document.getElementById('refused').textContent.includes('not one of this server')")
	b.must(t, chromedp.SendKeys(chromedp.CSS("#token"), "secret"), chromedp.KeyEvent(kb.Enter))
	b.see(t, "document.getElementById('ask').hidden && models.length === 5 && sessionStorage.getItem('spc-token') === 'secret'")
	goTo(t, b, address) // which it is kept for
	b.see(t, "document.getElementById('ask').hidden && models.length === 5")
	b.choose(t, "sight")
	value[int](t, b, "(window.open = () => (window.opened = {}), document.querySelector('.report').click(), 0)")
	b.see(t, "window.opened && opened.location")
	value[int](t, b, "(location = opened.location, 0)")
	b.see(t, "document.title === 'spc: sight.spx' && document.documentElement.dataset.ready && document.querySelector('#canvases canvas')")
	goTo(t, b, address)
	b.see(t, "document.getElementById('ask').hidden && !document.getElementById('forget').hidden")
	b.must(t, chromedp.Click(chromedp.CSS("#forget")))
	b.see(t, "!document.getElementById('ask').hidden && !sessionStorage.getItem('spc-token') && !document.getElementById('detail').textContent")
}

// A model's report is what spc inspect writes of its file.
func TestReportIsWhatInspectWrites(t *testing.T) {
	address := served(t)
	settled(t, address)
	r, err := http.Get(address + "page/models/sight/versions/1/report")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(strings.TrimPrefix(html(t, compiled(t, "sight", sight), "--no-run"), "file://"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes that are not the %d of spc inspect --html --no-run", len(got), len(want))
	}
	b := tab(t)
	goTo(t, b, address)
	b.choose(t, "sight")
	goTo(t, b, value[string](t, b, "document.querySelector('.report').href"))
	b.see(t, "document.title === 'spc: sight.spx' && document.querySelector('#canvases canvas')")
}
