package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"spc"
	_ "spc/internal/debug/all"
	"spc/internal/memory"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// beSPC makes the test's own program run as spc; fileLimit then bounds the files
// that it may write.
const (
	beSPC     = "SPC_TEST_MAIN"
	peakFile  = "SPC_TEST_PEAK" // a file for the most memory that it had resident
	fileLimit = "SPC_TEST_FILE_LIMIT"
)

func TestMain(m *testing.M) {
	if os.Getenv(beSPC) != "" {
		limitFileSize(os.Getenv(fileLimit))
		if path := os.Getenv(peakFile); path != "" {
			memory.CollectEarly()
			status := spcMain(os.Args[1:], os.Stdout, os.Stderr)
			if err := os.WriteFile(path, fmt.Append(nil, peakBytes()), 0o666); err != nil {
				panic(err)
			}
			os.Exit(status)
		}
		main()
	}
	lineEvery = time.Hour // that slow machines print what fast ones do
	os.Exit(m.Run())
}

// workspace makes a folder with the files that the help's examples name, and
// makes it the current one:
//
//	model.onnx  image classifier, f32[batch,3,16,16] to 10 classes
//	lm.onnx     language model, i64[batch,t] to logits of 12 tokens
//	mixed.onnx  outputs of several types
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // the user's timings are none of the tests'
	writeModel(t, "model.onnx", classifier)
	writeModel(t, "lm.onnx", languageModel)
	writeModel(t, "mixed.onnx", mixed)
	x := tensor.New(tensor.F32, 1, 3, 16, 16)
	for i := range x.F32s() {
		x.F32s()[i] = float32(i%17)/8 - 1
	}
	writeNPY(t, "cat.npy", x)
	photo(t, "cat.jpg", 40, 30)
	var csv strings.Builder
	csv.WriteString("file,class_index\n")
	for i := range 5 {
		name := fmt.Sprintf("%d.jpg", i)
		photo(t, "photos/"+name, 16+i, 16)
		fmt.Fprintf(&csv, "%s,%d\n", name, i)
	}
	writeFile(t, "labels.csv", []byte(csv.String()))
	writeNPY(t, "test.npy", tensor.New(tensor.U8, 6, 3, 16, 16))
	writeNPY(t, "labels.npy", tensor.From([]uint8{0, 1, 2, 3, 4, 5}, 6))
	writeFile(t, "t10k-images-idx3-ubyte.gz", append([]byte{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4}, make([]byte, 32)...))
	writeFile(t, "t10k-labels-idx1-ubyte.gz", []byte{0, 0, 8, 1, 0, 0, 0, 2, 7, 1})
	writeNPY(t, "tokens.npy", tensor.FromInt64s(tensor.I64, slices.Repeat([]int64{1, 11, 0, 5, 7}, 4), 4, 5))
	return dir
}

func writeFile(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

func writeNPY(t *testing.T, name string, x *tensor.Tensor) {
	t.Helper()
	if err := tensor.WriteNPY(name, x); err != nil {
		t.Fatal(err)
	}
}

func writeModel(t *testing.T, name string, build func() (*archs.Model, error)) {
	t.Helper()
	m, err := build()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, name, m.Bytes())
}

func photo(t *testing.T, name string, w, h int) {
	t.Helper()
	im := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		im.Set(i%w, i/w, color.RGBA{uint8(i), uint8(3 * i), 90, 255})
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, im, nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, name, b.Bytes())
}

func classifier() (*archs.Model, error) {
	b := archs.New("classifier", 17)
	x := b.Input("input", archs.Float32, "batch", 3, 16, 16)
	c := 3
	for i, name := range []string{"stem", "layer1.0", "layer1.1", "conv_3"} {
		s := b.Scope(name)
		out := 8 * (i + 1)
		w := s.Weight("weight", archs.He(9*c), out, c, 3, 3)
		x = s.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}, "strides": []int{1 + i%2, 1 + i%2}}, x, w)
		x = s.Node("Relu", nil, x)
		c = out
	}
	x = b.Node("GlobalAveragePool", nil, x)
	x = b.Node("Flatten", nil, x)
	head := b.Scope("head")
	w, bias := head.Weight("weight", archs.LeCun(c), 10, c), head.Weight("bias", archs.Near(0), 10)
	x = head.Node("Gemm", archs.Attrs{"transB": 1}, x, w, bias)
	b.Output("logits", x, archs.Float32, "batch", 10)
	return b.Model(1)
}

func languageModel() (*archs.Model, error) { return archs.Decoder(2) }

func mixed() (*archs.Model, error) {
	b := archs.New("mixed", 17)
	x := b.Input("x", archs.Float32, "batch", 4)
	shift := b.Input("shift", archs.Float32, 4)
	y := b.Node("Add", nil, x, shift)
	neg := b.Node("Neg", nil, y)
	positive := b.Node("Greater", nil, y, b.Scalar(0))
	half := b.Node("Cast", archs.Attrs{"to": int(onnxpb.TensorProto_BFLOAT16)}, y)
	text := b.Node("Cast", archs.Attrs{"to": int(onnxpb.TensorProto_STRING)}, y)
	b.Output("y:0", y, archs.Float32, "batch", 4)
	b.Output("y/0", neg, archs.Float32, "batch", 4)
	b.Output("positive", positive, onnxpb.TensorProto_BOOL, "batch", 4)
	b.Output("half", half, onnxpb.TensorProto_BFLOAT16, "batch", 4)
	b.Output("text", text, onnxpb.TensorProto_STRING, "batch", 4)
	return b.Model(3)
}

// result is what a run of spc left.
type result struct {
	status      int
	out, errors string
}

// spcRun runs spc in this process.
func spcRun(args ...string) result {
	var out, errs bytes.Buffer
	status := spcMain(args, &out, &errs)
	return result{status, out.String(), errs.String()}
}

// hinted matches the lines of hints.
var hinted = regexp.MustCompile(`(?m)^spc: hint: .*\n`)

// unhinted runs spc and leaves hints out.
func unhinted(args ...string) result {
	r := spcRun(args...)
	r.errors = hinted.ReplaceAllString(r.errors, "")
	return r
}

// ok runs spc and wants it to succeed without a word on standard error but hints.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	r := unhinted(args...)
	if r.status != 0 || r.errors != "" {
		t.Fatalf("spc %s: status %d, errors %q", strings.Join(args, " "), r.status, r.errors)
	}
	return r.out
}

// warned runs spc and wants it to succeed with one line of warning that holds want.
func warned(t *testing.T, want string, args ...string) {
	t.Helper()
	r := unhinted(args...)
	line, oneLine := strings.CutSuffix(r.errors, "\n")
	if r.status != 0 || !oneLine || strings.Contains(line, "\n") || !strings.HasPrefix(line, "spc: warning: ") || !strings.Contains(line, want) {
		t.Errorf("spc %s: status %d, errors %q, want a warning with %q", strings.Join(args, " "), r.status, r.errors, want)
	}
}

// fails runs spc and wants status 1 and one line on standard error that begins
// with spc: and holds every want; nothing else is printed.
func fails(t *testing.T, args []string, want ...string) {
	t.Helper()
	checkFailure(t, args, spcRun(args...), want...)
}

func checkFailure(t *testing.T, args []string, r result, want ...string) {
	t.Helper()
	line, oneLine := strings.CutSuffix(r.errors, "\n")
	if r.status != 1 || r.out != "" || !oneLine || strings.Contains(line, "\n") || !strings.HasPrefix(line, "spc: ") {
		t.Errorf("spc %s: status %d, output %q, errors %q; want status 1 and one line", strings.Join(args, " "), r.status, r.out, r.errors)
	}
	for _, w := range want {
		if !strings.Contains(line, w) {
			t.Errorf("spc %s: error %q, want %q in it", strings.Join(args, " "), line, w)
		}
	}
}

// decoded runs spc with --json and decodes what it prints.
func decoded[T any](t *testing.T, args ...string) T {
	t.Helper()
	out := ok(t, append(args, "--json")...)
	var v T
	d := json.NewDecoder(strings.NewReader(out))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("spc %s --json: %v in %q", strings.Join(args, " "), err, out)
	}
	if d.More() {
		t.Errorf("spc %s --json: more than one value", strings.Join(args, " "))
	}
	return v
}

// listing is the files below a folder.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestHelpExamplesRun(t *testing.T) {
	workspace(t)
	ok(t, "compile", "lm.onnx", "-o", "lm.spx")
	decoder, ids, positions := cachedModel(t)
	for to, from := range map[string]string{"decoder.onnx": decoder, "ids.npy": ids, "positions.npy": positions} {
		if err := os.Link(from, to); err != nil {
			t.Fatal(err)
		}
	}
	ok(t, "run", "model.onnx", "-i", "cat.npy", "--interpret", "-o", "testcase")
	if err := os.Link("cat.npy", "testcase/input_0.npy"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("models", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Link("model.onnx", "models/model.onnx"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, "tokens.txt", []byte("a token\n"))
	rest, grpc := served(t, "", "model.onnx")
	addresses := strings.NewReplacer("'", "", "localhost:8080", rest, "localhost:9000", grpc)
	examples := 0
	for _, make := range commands {
		c := make()
		if c.Example == "" {
			t.Errorf("spc %s has no examples", c.Name())
		}
		for _, line := range strings.Split(c.Example, "\n") {
			args := strings.Fields(addresses.Replace(line))
			if len(args) < 2 || args[0] != "spc" {
				t.Errorf("example %q is no command", line)
				continue
			}
			if args[1] == "serve" { // until it is asked to end
				args = append(args, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
				time.AfterFunc(time.Second, func() { terminate(t) })
				if r := spcRun(args[1:]...); r.status != 0 || !strings.Contains(r.errors, "model is ready") || !strings.Contains(r.errors, "the server ends") || r.out != "" {
					t.Errorf("example %q: %+v", line, r)
				}
				examples++
				continue
			}
			if args[1] == "verify" && slices.Contains(args, "--tolerance") {
				ok(t, "compile", "model.onnx", "-o", "model.spx") // not the pruned one
			}
			if out := ok(t, args[1:]...); out == "" && !slices.Contains(args, "-o") {
				t.Errorf("example %q prints nothing", line)
			}
			examples++
		}
	}
	if examples < 20 {
		t.Errorf("%d examples ran, want more", examples)
	}
}

// terminate asks the command that runs to end.
func terminate(t *testing.T) {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Signal(syscall.SIGTERM)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestEveryCommandHelps(t *testing.T) {
	for _, c := range append(rootCommand().Commands(), rootCommand()) {
		args := []string{"--help"}
		if c.HasParent() {
			args = []string{c.Name(), "--help"}
		}
		if out := ok(t, args...); !strings.Contains(out, "Usage:") || c.Example != "" && !strings.Contains(out, "Examples:") {
			t.Errorf("spc %v prints %q", args, out)
		}
	}
}

func TestCompileRunInspectVerify(t *testing.T) {
	workspace(t)
	out := ok(t, "compile", "model.onnx", "-o", "model.spx", "--sparsity", "0.5")
	if !strings.Contains(out, "model.spx") || !strings.Contains(out, "prunable") {
		t.Errorf("compile prints %q", out)
	}
	type layer struct {
		Name, Op, Pattern, Format, DType, Reason string
		Rows, Cols                               int
		Sparsity                                 float64
		Dense                                    int `json:"dense_bytes"`
		Stored                                   int `json:"stored_bytes"`
		Candidates                               []struct {
			Format, Config, Kernel, Why string
			Predicted                   float64 `json:"predicted_us"`
			Chosen                      bool
		}
	}
	type report struct {
		Layers []layer
		Totals struct {
			Weights, Nonzeros, Prunable int
			Zeros                       int `json:"prunable_zeros"`
			Dense                       int `json:"dense_bytes"`
			Stored                      int `json:"stored_bytes"`
		}
	}
	r := decoded[report](t, "inspect", "model.spx")
	if len(r.Layers) != 5 {
		t.Fatalf("%d layers, want 5", len(r.Layers))
	}
	if n := r.Totals; n.Prunable != 9*(8*16+16*24+24*32) || n.Zeros < n.Prunable*49/100 || n.Zeros > n.Prunable*51/100 || n.Weights-n.Nonzeros < n.Zeros {
		t.Errorf("totals %+v", n)
	}
	for _, l := range r.Layers {
		chosen := 0
		for _, c := range l.Candidates {
			if c.Chosen {
				chosen++
			}
			if c.Why == "" || c.Kernel == "" {
				t.Errorf("layer %s: candidate %+v", l.Name, c)
			}
		}
		if l.Reason == "" || l.Op == "" || l.DType != "f32" || l.Dense != 4*l.Rows*l.Cols || l.Stored == 0 || chosen != 1 {
			t.Errorf("layer %+v", l)
		}
	}
	name := r.Layers[2].Name
	if one := decoded[report](t, "inspect", "model.spx", "--layer", name); len(one.Layers) != 1 || one.Layers[0].Name != name {
		t.Errorf("--layer %s shows %d layers", name, len(one.Layers))
	}
	if text := ok(t, "inspect", "model.spx", "--layer", name); !strings.Contains(text, "dense") || !strings.Contains(text, "chosen") || strings.Contains(text, "measured") {
		t.Errorf("--layer shows %q", text)
	}
	if text := ok(t, "inspect", "model.spx", "--json"); !strings.Contains(text, `"predicted_us"`) || strings.Contains(text, "measured_us") {
		t.Errorf("--json prints %s, want no times that nobody measured", text)
	}
	var measured bytes.Buffer
	printCandidates(&measured, &spc.Report{Layers: []spc.Layer{{Candidates: []spc.Candidate{{Format: "ell", Why: "slow"}, {Format: "dense", Chosen: true, MeasuredUs: 2.5, Why: "chosen"}}}}})
	if text := measured.String(); !regexp.MustCompile(`(?s)predicted +measured +why.* 0 us  +slow.* 2.5 us +chosen`).MatchString(text) {
		t.Errorf("of measured formats it shows %s", text)
	}

	ok(t, "run", "model.spx", "-i", "input=cat.npy", "-o", "out")
	y, err := tensor.ReadNPY("out/logits.npy")
	if err != nil {
		t.Fatal(err)
	}
	if y.String() != "f32[1,10]" {
		t.Errorf("output %v", y)
	}
	type summary struct {
		Outputs []struct {
			Name, DType string
			Shape       []int
			Top         [][]struct {
				Class int
				Score float64
			}
		}
	}
	s := decoded[summary](t, "run", "model.spx", "-i", "cat.npy")
	if o := s.Outputs[0]; o.Name != "logits" || !slices.Equal(o.Shape, []int{1, 10}) || len(o.Top) != 1 || len(o.Top[0]) != 5 ||
		float32(o.Top[0][0].Score) != slices.Max(y.F32s()) {
		t.Errorf("summary %+v", s)
	}

	type verdict struct {
		Outputs []struct {
			Name   string
			Shape  []int
			RelL2  float64 `json:"rel_l2"`
			Cosine float64
			Top1   *float64 `json:"top1_agreement"`
		}
		Pass bool
	}
	v := decoded[verdict](t, "verify", "model.onnx", "model.spx", "--against", "original", "--tolerance", "100")
	if !v.Pass || len(v.Outputs) != 1 || v.Outputs[0].RelL2 < 0.01 || v.Outputs[0].Top1 == nil {
		t.Errorf("pruned: %+v", v)
	}
	if r := spcRun("verify", "model.onnx", "model.spx", "--against", "original"); r.status != 1 || r.errors != "" || !strings.Contains(r.out, "FAIL") {
		t.Errorf("pruned, with a tolerance: %+v", r)
	}
	ok(t, "compile", "model.onnx", "-o", "dense.spx")
	v = decoded[verdict](t, "verify", "dense.spx", "model.onnx", "--tolerance", "1e-5", "--seeds", "2")
	if !v.Pass || v.Outputs[0].RelL2 > 1e-5 || *v.Outputs[0].Top1 != 1 {
		t.Errorf("dense: %+v", v)
	}
}

// However a pruned model's weights are stored, its outputs are the same.
func TestFormatsAgree(t *testing.T) {
	workspace(t)
	for model, shape := range map[string]string{"model": "input=3x3x16x16", "lm": "ids=3x7"} {
		for _, pattern := range append(slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return p == "head" || p == "depth" }), "1:4", "block:2x2", "uniform-block:2x1") {
			args := []string{"compile", model + ".onnx", "--pattern", pattern, "--keep", "none"}
			if !strings.Contains(pattern, ":4") || strings.Contains(pattern, "block") {
				args = append(args, "--sparsity", "0.6")
			}
			ok(t, append(args, "--format", "dense", "-o", "dense.spx")...)
			for _, format := range formats() {
				if r := unhinted(append(args, "--format", format, "-o", "other.spx")...); r.status != 0 || r.errors != "" && !strings.HasPrefix(r.errors, "spc: warning: not stored as "+format+": ") {
					t.Fatalf("%s as %s: status %d, errors %q", pattern, format, r.status, r.errors)
				}
				ok(t, "verify", "other.spx", "dense.spx", "--shape", shape, "--tolerance", "1e-5", "--seeds", "1")
			}
		}
	}
}

// By default the last layer is pruned where it is a large part of the model.
func TestWhatKeepLiftsAndWidens(t *testing.T) {
	workspace(t)
	for _, c := range []struct {
		model string
		keep  []string
		want  []string
	}{
		{"model", nil, []string{"not pruned, the first convolution (input channels: 3); ", "not pruned, the last weight-bearing operator (0.1% of the multiply-adds); "}},
		{"model", []string{"--keep", "none"}, nil},
		{"lm", nil, nil},
		{"lm", []string{"--keep", "ends"}, []string{"not pruned, the last weight-bearing operator ("}},
	} {
		ok(t, append([]string{"compile", c.model + ".onnx", "-o", "kept.spx", "--sparsity", "0.5"}, c.keep...)...)
		out := ok(t, "inspect", "kept.spx")
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s %v: no %q in\n%s", c.model, c.keep, want, out)
			}
		}
		if n := strings.Count(out, "not pruned, "); n != len(c.want) {
			t.Errorf("%s %v: %d layers are not pruned, want %d:\n%s", c.model, c.keep, n, len(c.want), out)
		}
	}
}

func TestCompileIsDeterministic(t *testing.T) {
	workspace(t)
	for _, out := range []string{"a.spx", "b.spx"} {
		ok(t, "compile", "model.onnx", "-o", out, "--sparsity", "0.7", "--pattern", "unstructured", "--allocate", "global")
	}
	a, err := os.ReadFile("a.spx")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile("b.spx"); !bytes.Equal(a, b) {
		t.Error("the same command gives different files")
	}
}

func TestCompileNamesItsOutputAfterTheModel(t *testing.T) {
	dir := workspace(t)
	t.Chdir(t.TempDir())
	ok(t, "compile", filepath.Join(dir, "model.onnx"))
	if got := listing(t, "."); !slices.Equal(got, []string{"model.spx"}) {
		t.Errorf("files %q, want model.spx", got)
	}
}

func TestPassesCanBeStoppedDumpedAndDisabled(t *testing.T) {
	workspace(t)
	out := ok(t, "compile", "model.onnx", "--stop-after", "fold")
	if !strings.Contains(out, "Conv") {
		t.Errorf("--stop-after prints %q", out)
	}
	if _, err := os.Stat("model.spx"); err == nil {
		t.Error("--stop-after without -o writes a file")
	}
	out = ok(t, "compile", "model.onnx", "-o", "half.spx", "--stop-after", "prune", "--sparsity", "0.5")
	if !strings.Contains(out, "stopped after prune, no formats were chosen") || strings.Contains(out, "0 layers") {
		t.Errorf("--stop-after prune prints %q", out)
	}
	if out = ok(t, "compile", "model.onnx", "-o", "m.spx", "--disable", "choose"); !strings.Contains(out, ", no formats were chosen") || strings.Contains(out, "0 layers") {
		t.Errorf("--disable choose prints %q", out)
	}
	ok(t, "verify", "half.spx", "half.spx")
	ok(t, "compile", "model.onnx", "-o", "m.spx", "--dump-passes", "dumps", "--disable", "scales", "--sparsity", "0.5")
	if len(listing(t, "dumps")) < 3 {
		t.Errorf("dumps are %q", listing(t, "dumps"))
	}
	right := ok(t, "run", "model.onnx", "-i", "input=random:1")
	if got := ok(t, "run", "model.onnx", "-i", "input=random:1", "--disable", "cascades", "--disable", "alias", "--dump-passes", "steps"); got != right {
		t.Errorf("without two steps of lowering it prints %q, want %q", got, right)
	}
	if len(listing(t, "steps")) < 3 {
		t.Errorf("dumps are %q", listing(t, "steps"))
	}
	fails(t, []string{"run", "model.onnx", "-i", "input=random:1", "--disable", "bake"}, `--disable: no lowering step is named "bake"`)
	fails(t, []string{"compile", "model.onnx", "--stop-after", "bake"}, `no pass is named "bake"`, "fold")
	fails(t, []string{"compile", "model.onnx", "--disable", "bake"}, `no pass is named "bake"`)
	fails(t, []string{"compile", "model.onnx", "--disable", "prune", "--sparsity", "0.5"}, "--disable prune: a sparsity is asked for")
	fails(t, []string{"compile", "model.onnx", "--disable", "prune", "--pattern", "2:4"}, "--disable prune: a sparsity is asked for")
	fails(t, []string{"compile", "model.onnx", "--stop-after", "fold", "--sparsity", "0.5"}, "--stop-after fold: a sparsity is asked for, which needs the pass prune")
	fails(t, []string{"compile", "model.onnx", "--stop-after", "prune", "--quantize", "fp16"}, "--stop-after prune: quantisation is asked for")
	fails(t, []string{"compile", "model.onnx", "--sparsity", "0.5", "--calib", ""}, "--calib: want a path")
	fails(t, []string{"compile", "model.onnx", "--disable", "choose", "--format", "csr"}, "--disable choose: the format csr is asked for")
}

func TestOutputsBecomeFiles(t *testing.T) {
	workspace(t)
	ok(t, "run", "mixed.onnx", "-i", "x=random:1", "-i", "shift=random:2:0:1", "--dim", "batch=3", "-o", "out/deep")
	got := listing(t, "out")
	want := []string{"out/deep/half.npy", "out/deep/positive.npy", "out/deep/text.pb", "out/deep/y_0.npy", "out/deep/y_0_2.npy"}
	if !slices.Equal(got, want) {
		t.Fatalf("files %q, want %q", got, want)
	}
	y, err := tensor.ReadNPY("out/deep/y_0.npy")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"half.npy": "f32[3,4]", "positive.npy": "bool[3,4]", "y_0_2.npy": "f32[3,4]"} {
		x, err := tensor.ReadNPY("out/deep/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if x.String() != want {
			t.Errorf("%s holds %v, want %s", file, x, want)
		}
		if file == "y_0_2.npy" && x.F32s()[5] != -y.F32s()[5] {
			t.Error("the outputs are swapped")
		}
	}
	text, name, err := tensor.ReadTensorProto("out/deep/text.pb")
	if err != nil || name != "text" || text.String() != "string[3,4]" {
		t.Errorf("text.pb holds %v named %q (%v)", text, name, err)
	}
}

func TestShapesPrintAsTypesDo(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "model.spx")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "model.spx", "-i", "random:1", "--dim", "batch=3"}, "f32[3,"},
		{[]string{"verify", "model.spx", "model.spx", "--dim", "batch=3"}, " [3,"},
	} {
		if out := ok(t, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("spc %v prints %q, want %q", c.args, out, c.want)
		}
	}
}

func TestInputsOfEveryKind(t *testing.T) {
	workspace(t)
	x, err := tensor.ReadNPY("cat.npy")
	if err != nil {
		t.Fatal(err)
	}
	if err := tensor.WriteTensorProto("cat.pb", "whatever", x); err != nil {
		t.Fatal(err)
	}
	npy := ok(t, "run", "model.onnx", "-i", "input=cat.npy", "--json")
	if pb := ok(t, "run", "model.onnx", "-i", "cat.pb", "--json"); pb != npy {
		t.Errorf("cat.pb gives %q, cat.npy %q", pb, npy)
	}
	one := ok(t, "run", "model.onnx", "-i", "random:1", "--json")
	if one == npy || one == ok(t, "run", "model.onnx", "-i", "random:2", "--json") || one != ok(t, "run", "model.onnx", "-i", "input=random:1", "--json") {
		t.Error("random inputs do not follow their seed")
	}
	photo := ok(t, "run", "model.onnx", "-i", "cat.jpg", "--preprocess", "imagenet", "--json")
	if photo != ok(t, "run", "model.onnx", "-i", "cat.jpg", "--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225", "--json") {
		t.Error("the numbers of imagenet give another result than its name")
	}
	if photo == ok(t, "run", "model.onnx", "-i", "cat.jpg", "--preprocess", "caffe", "--json") {
		t.Error("--preprocess changes nothing")
	}
	// Tokens index an axis of 12, so that any seed runs.
	for seed := range 5 {
		ok(t, "run", "lm.onnx", "-i", fmt.Sprintf("random:%d", seed), "--dim", "t=50")
	}
}

func TestShapesOfSymbols(t *testing.T) {
	workspace(t)
	for _, args := range [][]string{
		{"run", "lm.onnx", "-i", "random:1", "--dim", "t=7", "--json"},
		{"run", "lm.onnx", "-i", "random:1", "--shape", "ids=1x7", "--json"},
	} {
		if out := ok(t, args...); !strings.Contains(strings.Join(strings.Fields(out), ""), `"shape":[1,7,12]`) {
			t.Errorf("spc %v prints %s", args, out)
		}
	}
	ok(t, "compile", "lm.onnx", "-o", "lm.spx", "--shape", "ids=2x9")
	ok(t, "run", "lm.spx", "-i", "random:1")
	fails(t, []string{"run", "lm.spx", "-i", "random:1", "--shape", "ids=2x8"}, "i64[2,8]", "i64[2,9]")
	fails(t, []string{"run", "lm.spx", "-i", "random:1", "--dim", "t=8"}, `no symbol "t"`)
	// A run may then choose what the model itself fixes.
	ok(t, "compile", "model.onnx", "-o", "any.spx", "--shape", "input=?x3x?x16")
	ok(t, "run", "any.spx", "-i", "random:1", "--shape", "input=2x3x24x16")
	fails(t, []string{"run", "any.spx", "-i", "random:1"}, "dimension 2 of input input", "--shape input=DIMS")
	fails(t, []string{"run", "model.onnx", "-i", "random:1", "--shape", "input=2x3x?x16"}, "dimension 2 of input input")
	fails(t, []string{"run", "any.spx", "-i", "random:1", "--shape", "input=1x4x16x16"}, "f32[1,4,16,16]")
	// What contradicts is named, with where it comes from.
	fails(t, []string{"run", "any.spx", "-i", "cat.jpg", "--preprocess", "unit", "--shape", "input=2x3x24x16"},
		"input input is f32[1,3,24,16], want f32[batch,3,?1,16] with batch = 2 as in --shape input=2x3x24x16")
	fails(t, []string{"run", "any.spx", "-i", "cat.npy", "--shape", "input=?x3x24x16"}, " with dimension 2 = 24 as in --shape input=?x3x24x16")
	fails(t, []string{"run", "model.onnx", "-i", "cat.npy", "--dim", "batch=2"}, "input input is f32[1,3,16,16], want f32[2,3,16,16]")
	ok(t, "compile", "model.onnx", "-o", "model.spx")
	fails(t, []string{"run", "model.spx", "-i", "cat.npy", "--dim", "batch=2"}, "want f32[batch,3,16,16] with batch = 2 as in --dim batch=2")
	ok(t, "compile", "lm.onnx", "-o", "open.spx")
	ok(t, "verify", "lm.onnx", "open.spx", "--dim", "t=8", "--tolerance", "1e-5")
	ok(t, "bench", "open.spx", "--dim", "t=8", "--runs", "2", "--warmup", "0")
	fails(t, []string{"run", "open.spx", "-i", "random:1"}, "dimension t of input ids i64[batch,t] is open", "--dim t=N")
	fails(t, []string{"bench", "lm.onnx"}, "dimension t of input ids")
	fails(t, []string{"verify", "lm.onnx", "open.spx"}, "dimension t of input ids")
	fails(t, []string{"run", "open.spx", "-i", "random:1", "--dim", "q=8"}, `no symbol "q"`)
	fails(t, []string{"run", "lm.onnx", "-i", "random:1", "--dim", "q=8"}, `q`)
	fails(t, []string{"run", "lm.onnx", "-i", "random:1", "--shape", "x=1x2"}, "x", "ids")
	for _, bad := range []string{"ids", "ids=1xq", "ids=1x-2", "=1x2"} {
		fails(t, []string{"run", "lm.onnx", "-i", "random:1", "--shape", bad}, "--shape", bad)
	}
	for _, bad := range []string{"t", "t=x", "=3", "t=-1"} {
		fails(t, []string{"run", "lm.onnx", "-i", "random:1", "--dim", bad}, "--dim", bad)
	}
}

func TestBench(t *testing.T) {
	workspace(t)
	type benchmark struct {
		Model                string
		Batch, Threads, Runs int
		Ms                   map[string]float64
		Throughput           float64
		Peak                 int64 `json:"peak_bytes"`
		Layers               []struct {
			Name, Op, Format string
			Us               float64
		}
	}
	b := decoded[benchmark](t, "bench", "model.onnx", "--runs", "5", "--warmup", "1", "--threads", "1", "--batch", "3")
	if b.Model != "model.onnx" || b.Batch != 3 || b.Threads != 1 || b.Runs != 5 || b.Peak < 1<<20 || len(b.Layers) < 5 {
		t.Errorf("%+v", b)
	}
	for _, k := range []string{"mean", "p50", "p90", "p99", "min"} {
		if b.Ms[k] <= 0 {
			t.Errorf("%s is %v ms", k, b.Ms[k])
		}
	}
	if b.Ms["min"] > b.Ms["p50"] || b.Ms["p50"] > b.Ms["p90"] || b.Ms["p90"] > b.Ms["p99"] {
		t.Errorf("percentiles %v", b.Ms)
	}
	if want := 3 * 1000 / b.Ms["mean"]; b.Throughput < 0.999*want || b.Throughput > 1.001*want {
		t.Errorf("throughput %v, want %v", b.Throughput, want)
	}
	// A batch that the file fixes is the importer's to change, not the artefact's.
	ok(t, "compile", "model.onnx", "-o", "four.spx", "--shape", "input=4x3x16x16")
	if b := decoded[benchmark](t, "bench", "four.spx", "--runs", "1"); b.Batch != 4 {
		t.Errorf("batch %d, want the declared 4", b.Batch)
	}
	fails(t, []string{"bench", "four.spx", "--batch", "2"}, "four.spx was compiled for another batch than 2")
	for _, bad := range [][]string{{"--runs", "0"}, {"--batch", "0"}, {"--warmup", "-1"}, {"--threads", "-1"}} {
		fails(t, append([]string{"bench", "model.onnx"}, bad...), bad[0])
	}
	ok(t, "compile", "model.onnx", "-o", "open.spx")
	fails(t, []string{"bench", "open.spx", "--batch", "2", "--dim", "batch=3"}, "--batch 2, but --dim batch=3")
	fails(t, []string{"bench", "model.onnx", "--batch", "2", "--dim", "batch=3"}, "makes dimension batch 2, want 3")
	writeModel(t, "made.onnx", func() (*archs.Model, error) {
		b := archs.New("made", 17)
		shape := b.Node("Constant", archs.Attrs{"value_ints": []int{2, 3}})
		b.Output("y", b.Node("RandomUniform", archs.Attrs{"shape": []int{2, 3}}), archs.Float32, 2, 3)
		b.Output("z", shape, archs.Int64, 2)
		return b.Model(1)
	})
	if b := decoded[benchmark](t, "bench", "made.onnx", "--runs", "1"); b.Batch != 1 {
		t.Errorf("batch %d of a model without inputs", b.Batch)
	}
	fails(t, []string{"bench", "made.onnx", "--batch", "2"}, "the model has no inputs")
}

func TestEval(t *testing.T) {
	workspace(t)
	type evaluation struct {
		Metric  string
		Value   float64
		Top5    *float64
		N       int
		Seconds *float64
	}
	// The labels are the model's own answers, so that it is always right.
	x := tensor.New(tensor.U8, 6, 3, 16, 16)
	for i := range x.Bytes() {
		x.Bytes()[i] = uint8(i * i >> 3)
	}
	writeNPY(t, "x.npy", x)
	f := tensor.FromFloat64s(tensor.F32, x.Float64s(), 6, 3, 16, 16)
	writeNPY(t, "f.npy", f)
	ok(t, "run", "model.onnx", "-i", "f.npy", "-o", "out")
	y, err := tensor.ReadNPY("out/logits.npy")
	if err != nil {
		t.Fatal(err)
	}
	labels := make([]uint8, 6)
	for i := range labels {
		labels[i] = uint8(argmax(y.Float64s()[10*i : 10*i+10]))
	}
	writeNPY(t, "right.npy", tensor.From(labels, 6))
	labels[0] = (labels[0] + 1) % 10
	writeNPY(t, "wrong.npy", tensor.From(labels, 6))
	eval := func(args ...string) evaluation {
		t.Helper()
		return decoded[evaluation](t, append([]string{"eval", "model.onnx", "--data", "x.npy", "--preprocess", "none"}, args...)...)
	}
	for _, batch := range []string{"1", "4", "6", "100"} {
		if e := eval("--labels", "right.npy", "--batch", batch); e.Metric != "top1" || e.Value != 100 || *e.Top5 != 100 || e.N != 6 || e.Seconds == nil {
			t.Errorf("batches of %s: %+v", batch, e)
		}
	}
	if e := eval("--labels", "wrong.npy", "--samples", "even"); e.N != 3 || e.Value < 66 || e.Value > 67 {
		t.Errorf("even samples, one wrong: %+v", e)
	}
	if e := eval("--labels", "wrong.npy", "--samples", "odd", "--metric", "top5"); e.N != 3 || e.Value != 100 || e.Metric != "top5" {
		t.Errorf("odd samples: %+v", e)
	}
	eval("--labels", "wrong.npy", "--samples", "0:3", "--per-sample", "each.csv")
	if each, err := os.ReadFile("each.csv"); err != nil || string(each) != "sample,points\n0,0\n1,100\n2,100\n" {
		t.Errorf("%q, %v, want that the first is wrong", each, err)
	}
	if e := decoded[evaluation](t, "eval", "model.onnx", "--data", "photos", "--labels", "labels.csv", "--preprocess", "unit", "--skip-class", "0"); e.N != 5 {
		t.Errorf("photos: %+v", e)
	}
	// A batch that the model fixes is filled up, and what fills it is not counted.
	ok(t, "compile", "model.onnx", "-o", "four.spx", "--shape", "input=4x3x16x16")
	if e := decoded[evaluation](t, "eval", "four.spx", "--data", "x.npy", "--preprocess", "none", "--labels", "right.npy"); e.N != 6 || e.Value != 100 {
		t.Errorf("a fixed batch: %+v", e)
	}
	if e := decoded[evaluation](t, "eval", "lm.onnx", "--data", "tokens.npy"); e.Metric != "perplexity" || e.N != 4 || e.Value < 2 || e.Value > 50 || e.Top5 != nil {
		t.Errorf("tokens: %+v", e)
	}
}

// relu writes a model whose output is its input, images f32[batch,dims].
func relu(t *testing.T, name string, dims ...any) {
	t.Helper()
	writeModel(t, name, func() (*archs.Model, error) {
		b := archs.New("relu", 17)
		dims := append([]any{"batch"}, dims...)
		b.Output("y", b.Node("Relu", nil, b.Input("x", archs.Float32, dims...)), archs.Float32, dims...)
		return b.Model(1)
	})
}

// Scores of classes have one axis that is longer than one, wherever it lies.
func TestEvalWantsScoresOfClasses(t *testing.T) {
	workspace(t)
	writeNPY(t, "ten.npy", tensor.From([]uint8{3: 1, 12: 1, 19: 0}, 2, 10, 1, 1))
	writeNPY(t, "row.npy", tensor.From([]uint8{3: 1, 12: 1, 19: 0}, 2, 1, 1, 10))
	writeNPY(t, "two.npy", tensor.From([]uint8{3, 2}, 2))
	relu(t, "column.onnx", 10, 1, 1)
	relu(t, "row.onnx", 1, 1, 10)
	relu(t, "image.onnx", 1, 2, 5)
	eval := func(model, data string) []string {
		return []string{"eval", model, "--data", data, "--labels", "two.npy", "--preprocess", "none"}
	}
	for _, args := range [][]string{eval("column.onnx", "ten.npy"), eval("row.onnx", "row.npy")} {
		if out := ok(t, args...); !strings.HasPrefix(out, "top-1 100.00%") {
			t.Errorf("spc %v prints %s", args, out)
		}
	}
	fails(t, eval("image.onnx", "row.npy"), "spc: image.onnx: output y is f32[2,1,2,5], want one score per class [2,classes]: --metric top1 is for classifiers")
}

// A model with a background class that is not skipped is wrong about nearly everything, which
// a warning tells.
func TestEvalWarnsOfABackground(t *testing.T) {
	workspace(t)
	relu(t, "ten.onnx", 10, 1, 1)
	const n = 12
	images, labels := make([]uint8, 10*n), make([]uint8, n)
	for i := range n {
		images[10*i+1+i%9], labels[i] = 1, uint8(i%9)
	}
	writeNPY(t, "x.npy", tensor.From(images, n, 10, 1, 1))
	writeNPY(t, "labels.npy", tensor.From(labels, n))
	eval := []string{"eval", "ten.onnx", "--data", "x.npy", "--labels", "labels.npy", "--preprocess", "none"}
	warned(t, "top-1 is 100.00% with --skip-class 0: is class 0 of ten.onnx a background", eval...)
	ok(t, append(eval, "--skip-class", "0")...)
	ok(t, append(eval, "--samples", "0:9")...) // too few to tell
	labels[n-1] = 9                            // for which there is no class without the background
	writeNPY(t, "labels.npy", tensor.From(labels, n))
	ok(t, eval...)
}

func TestEvalErrors(t *testing.T) {
	workspace(t)
	writeNPY(t, "far.npy", tensor.From([]uint8{0, 1, 2, 3, 4, 10}, 6))
	writeNPY(t, "big.npy", tensor.From([]int64{1, 12, 3, 4}, 2, 2))
	bare := []string{"eval", "model.onnx", "--data", "test.npy", "--labels", "labels.npy"}
	images := append(slices.Clone(bare), "--preprocess", "unit")
	writeFile(t, "more.csv", []byte("file,class_index\n0.jpg,1\n9.jpg,1\n"))
	writeFile(t, "cut.csv", []byte("file,class_index\ncut.jpg,1\n"))
	writeFile(t, "photos/cut.jpg", []byte{0xff, 0xd8, 0xff})
	folder := []string{"eval", "model.onnx", "--data", "photos", "--preprocess", "unit"}
	with := func(base []string, args ...string) []string { return append(slices.Clone(base), args...) }
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"eval", "model.onnx", "--data", "none.npy"}, []string{"none.npy"}},
		{[]string{"eval", "model.onnx", "--data", "test.npy", "--preprocess", "unit"}, []string{"test.npy has no labels"}},
		{[]string{"eval", "model.onnx", "--data", "test.npy", "--labels", "labels.npy"}, []string{"--preprocess"}},
		{with(images, "--mean", "1"), []string{"spc: --preprocess and --mean exclude each other"}},
		{with(bare, "--mean", "1"), []string{"spc: --mean needs --std, too"}},
		{with(bare, "--std", "1"), []string{"spc: --std needs --mean, too"}},
		{with(images, "--samples", "some"), []string{"--samples", "some"}},
		{with(images, "--samples", "9:12:1"), []string{"chooses none of the 6"}},
		{with(images, "--metric", "loss"), []string{`"loss"`, "perplexity"}},
		{with(images, "--metric", "perplexity"), []string{"needs tokens"}},
		{with(images, "--batch", "0"), []string{"--batch 0"}},
		{with(images, "--skip-class", "10"), []string{"skipped classes [10] of 10"}},
		{with(images, "--labels", "far.npy"), []string{"sample 5 of test.npy", "label 10"}},
		{with(images, "--labels", "labels.csv"), []string{"labels.csv", "5 labels for the 6"}},
		{[]string{"eval", "mixed.onnx", "--data", "test.npy", "--labels", "labels.npy", "--preprocess", "unit"}, []string{"model of one input"}},
		{[]string{"eval", "lm.onnx", "--data", "test.npy", "--labels", "labels.npy", "--preprocess", "unit"}, []string{"ids", "i64[batch,t]"}},
		{[]string{"eval", "model.onnx", "--data", "tokens.npy"}, []string{"input", "tokens"}},
		{[]string{"eval", "lm.onnx", "--data", "tokens.npy", "--metric", "top1"}, []string{"needs images"}},
		{[]string{"eval", "lm.onnx", "--data", "tokens.npy", "--skip-class", "0"}, []string{"needs classes"}},
		{[]string{"eval", "lm.onnx", "--data", "big.npy"}, []string{"lm.onnx", "12"}},
		{with(folder, "--labels", "more.csv"), []string{`spc: more.csv: line 3: file "9.jpg" is not in photos`}},
		{with(folder, "--labels", "cut.csv"), []string{"spc: photos/cut.jpg: JPEG: "}},
	} {
		fails(t, c.args, c.want...)
	}
	writeNPY(t, "negative.npy", tensor.FromInt64s(tensor.I64, []int64{1, 2, -2, 3}, 1, 4))
	if r := spcRun("eval", "lm.onnx", "--data", "negative.npy"); strings.Count(r.errors, "the model scores") != 1 {
		t.Errorf("%s, want it once", r.errors)
	}
}

func TestBadArguments(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "model.spx")
	writeNPY(t, "wide.npy", tensor.New(tensor.F32, 1, 3, 16, 17))
	writeNPY(t, "flat.npy", tensor.New(tensor.F32, 768))
	writeNPY(t, "double.npy", tensor.New(tensor.F64, 1, 3, 16, 16))
	writeFile(t, "cut.npy", []byte("\x93NUMPY\x01\x00\x10"))
	writeFile(t, "cut.pb", []byte{0x4a, 0x7f, 1})
	writeFile(t, "cut.jpg", []byte{0xff, 0xd8, 0xff})
	if err := os.Mkdir("folder", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"model.onnx", "model.spx"} {
		for input, want := range map[string][]string{
			"data=cat.npy":         {`no input is named "data"`, "input f32[batch,3,16,16]"},
			"wide.npy":             {"wide.npy", "f32[1,3,16,17]", "want f32[batch,3,16,16]"},
			"flat.npy":             {"flat.npy", "f32[768]"},
			"double.npy":           {"double.npy", "f64[1,3,16,16]", "want f32"},
			"cut.npy":              {"cut.npy", "npy"},
			"cut.pb":               {"cut.pb"},
			"missing.npy":          {"missing.npy", "no such file"},
			"labels.csv":           {"labels.csv", "want .npy"},
			"random:x":             {"random:x", "random:SEED"},
			"random:1:5:2":         {"LO below HI"},
			"cat.jpg":              {"--preprocess"},
			"folder":               {"folder"},
			"input=random:1:0:inf": {"random:1:0:inf"},
		} {
			fails(t, []string{"run", model, "-i", input}, want...)
		}
		fails(t, []string{"run", model, "-i", "cut.jpg", "--preprocess", "unit"}, "cut.jpg", "JPEG")
		fails(t, []string{"run", model, "-i", "cat.jpg", "--preprocess", "vgg"}, `"vgg"`, "imagenet")
		fails(t, []string{"run", model}, "input input", "missing", "-i input=FILE")
		fails(t, []string{"run", model, "-i", "cat.npy", "-i", "input=cat.npy"}, "twice")
		fails(t, []string{"run", model, "-i", "cat.npy", "--threads", "-2"}, "--threads -2")
	}
	fails(t, []string{"run", "mixed.onnx", "-i", "cat.npy"}, "2 inputs", "shift")
	fails(t, []string{"run", "mixed.onnx", "-i", "x=random:1"}, "shift", "missing")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"compil"}, "spc: unknown command: compil; did you mean compile? (see spc --help)"},
		{[]string{"nothing"}, "spc: unknown command: nothing (see spc --help)"},
		{[]string{"compile"}, "spc: 0 arguments given, want 1; use: spc compile MODEL.onnx"},
		{[]string{"compile", "a", "b"}, "spc: 2 arguments given, want 1; use: spc compile MODEL.onnx"},
		{[]string{"prune", "model.onnx"}, "spc: --output is missing; use: spc prune MODEL.onnx -o PRUNED.onnx"},
		{[]string{"eval", "model.onnx"}, "spc: --data is missing; use: spc eval MODEL.{spx,onnx} --data PATH"},
		{[]string{"compile", "model.onnx", "--nope"}, "unknown flag: --nope (see spc compile --help)"},
		{[]string{"prune", "model.onnx", "-o", "p.onnx", "--speedup", "2"}, "unknown flag: --speedup; it belongs to spc compile (see spc prune --help)"},
		{[]string{"compile", "model.onnx", "--sparsty", "0.5"}, "unknown flag: --sparsty; did you mean --sparsity? (see spc compile --help)"},
		{[]string{"compile", "model.onnx", "-sparsity", "0.5"}, "in -sparsity; did you mean --sparsity? (see spc compile --help)"},
		{[]string{"compile", "model.onnx", "--sparsity", "50%"}, `--sparsity "50%", want a number (see spc compile --help)`},
		{[]string{"compile", "model.onnx", "--mean", "a,b"}, `--mean "a,b", want numbers with commas between them`},
		{[]string{"compile", "model.onnx", "--calib-samples", "1e3"}, `--calib-samples "1e3", want a whole number`},
		{[]string{"eval", "model.onnx", "--data", "d", "--skip-class", "0.5"}, `--skip-class "0.5", want whole numbers`},
		{[]string{"compile", "model.onnx", "--json=perhaps"}, `--json "perhaps", want true or false`},
		{[]string{"compile", "model.onnx", "--sparsity", "1.5"}, "1.5"},
		{[]string{"compile", "model.onnx", "--sparsity", "-0.1"}, "-0.1"},
		{[]string{"compile", "model.onnx", "--sparsity", "NaN"}, "NaN"},
		{[]string{"compile", "model.onnx", "--pattern", "stripes"}, "stripes"},
		{[]string{"compile", "model.onnx", "--pattern", "2:4", "--sparsity", "0.7"}, "2:4"},
		{[]string{"compile", "model.onnx", "--pattern", "2:4", "--sparsity", "0"}, "2:4"},
		{[]string{"compile", "model.onnx", "--sparsity", "0.5", "--allocate", "fairly"}, "fairly"},
		{[]string{"compile", "model.onnx", "--format", "zip"}, "zip"},
		{[]string{"compile", "model.onnx", "--target", "tpu"}, "tpu"},
		{[]string{"compile", "model.onnx", "--keep", "[a"}, "[a"},
		{[]string{"compile", "model.onnx", "--keep", "tail*"}, "--keep \"tail*\": no layer or weight has a name like this"},
		{[]string{"compile", "model.onnx", "--keep", "none", "--keep", "ends"}, "--keep: none and ends exclude each other"},
		{[]string{"compile", "model.onnx", "--layer", "x"}, "GLOB=S"},
		{[]string{"compile", "model.onnx", "--layer", "x=2"}, "2"},
		{[]string{"compile", "model.spx"}, "model.spx is compiled already"},
		{[]string{"compile", "model.onnx", "-o", "model.onnx"}, "is a file that this command reads"},
		{[]string{"compile", "model.onnx", "-o", "new.onnx"}, "-o new.onnx, want an .spx file; spc prune writes ONNX models"},
		{[]string{"compile", "model.onnx", "-o", "none/model.spx", "--keep", "nothing"}, "-o: create none/model.spx: no such file or directory"},
		{[]string{"compile", "model.onnx", "-o", "folder"}, "-o: folder is a folder, want a file"},
		{[]string{"compile", "model.onnx", "--sparsity", "0.5", "--masks", "none/m.npz"}, "--masks: create none/m.npz"},
		{[]string{"prune", "model.onnx", "-o", "none/pruned.onnx", "--keep", "nothing"}, "-o: create none/pruned.onnx"},
		{[]string{"compile", "missing.onnx"}, "missing.onnx: no such file"},
		{[]string{"compile", "folder"}, "folder is a folder"},
		{[]string{"inspect", "missing.spx"}, "missing.spx: no such file"},
		{[]string{"inspect", "model.spx", "--layer", "nope"}, `named "nope"`},
		{[]string{"inspect", "model.spx", "--layer", "[a"}, "[a"},
		{[]string{"inspect", "model.spx", "model.onnx"}, "--diff, --html and --serve another model"},
		{[]string{"inspect", "model.spx", "--threads", "1"}, "--threads needs --html or --serve, too"},
		{[]string{"inspect", "model.spx", "--html", "model.spx"}, "--html model.spx would replace it"},
		{[]string{"inspect", "model.spx", "--html", "none/page.html"}, "--html: create none/page.html"},
		{[]string{"inspect", "model.spx", "--html", "page.html", "--json"}, "--html and --json exclude each other"},
		{[]string{"inspect", "model.spx", "--html", "page.html", "-i", "none.npy"}, "none.npy"},
		{[]string{"inspect", "model.spx", "--serve", "8090"}, `the address "8090", want PORT with a colon before it`},
		{[]string{"verify"}, "0 arguments given, want 1 or 2; use: spc verify "},
		{[]string{"verify", "model.spx"}, "model.spx: want the .onnx that it was compiled from, too, or --expect"},
		{[]string{"verify", "model.spx", "model.onnx", "--against", "all"}, `--against "all", want original or compiled`},
		{[]string{"verify", "model.onnx", "model.onnx", "--against", "original"}, "--against original needs a compiled model and an .onnx file"},
		{[]string{"verify", "model.onnx", "--against", "compiled"}, "--against compiled needs two models"},
		{[]string{"verify", "model.onnx", "model.spx", "--expect", "cat.npy"}, "--expect takes the place of a second model, here model.spx"},
		{[]string{"verify", "model.onnx", "--expect", "cat.npy"}, "--expect cat.npy: want a folder or NAME=FILE of one of the outputs: logits"},
		{[]string{"verify", "model.onnx", "--expect", "folder"}, "--expect folder: the folder has neither output_0.pb nor logits.npy"},
		{[]string{"verify", "model.onnx", "--expect", "logits=cat.jpg"}, "--expect: cat.jpg, want .npy or .pb"},
		{[]string{"verify", "model.onnx", "--expect", "logits=cat.npy"}, "model.onnx: input input f32[batch,3,16,16] is missing"},
		{[]string{"verify", "model.onnx", "-i", "cat.npy", "--expect", "logits=cat.npy"}, "model.onnx: output logits is f32[1,10], the other's f32[1,3,16,16]"},
		{[]string{"verify", "model.spx", "model.spx", "--reduce", "r.onnx"}, "--reduce needs an .onnx file"},
		{[]string{"verify", "model.spx", "model.onnx", "--reduce", "r.spx"}, "--reduce r.spx, want an .onnx file"},
		{[]string{"verify", "model.spx", "model.onnx", "--reduce", "model.onnx"}, "--reduce model.onnx is a file that this command reads"},
		{[]string{"verify", "model.spx", "model.onnx", "--reduce", "none/r.onnx"}, "--reduce: create none/r.onnx"},
		{[]string{"run", "model.onnx", "-i", "cat.npy", "--interpret", "--threads", "2"}, "spc: --interpret and --threads exclude each other, want one of them"},
		{[]string{"verify", "model.onnx", "lm.onnx"}, "inputs of model.onnx are input"},
		{[]string{"inspect", "cut.jpg"}, "cut.jpg: not an ONNX file, but a JPEG image"},
		{[]string{"bench", "model.spx", "--runs", "0"}, "spc: --runs 0, want 1 or more"},
		{[]string{"verify", "model.onnx", "model.spx", "--seeds", "0"}, "--seeds 0"},
		{[]string{"verify", "model.onnx", "model.spx", "--tolerance", "-1"}, "--tolerance -1"},
		{[]string{"devices", "all"}, "spc: 1 argument given, want 0; use: spc devices"},
		{[]string{"version", "2"}, "spc: 1 argument given, want 0; use: spc version"},
	} {
		fails(t, c.args, c.want)
	}
}

func TestUnsupportedOperatorsAreAllNamed(t *testing.T) {
	workspace(t)
	b := archs.New("odd", 17)
	x := b.Input("x", archs.Float32, 2)
	x = b.Scope("a").Node("Frobnicate", nil, x)
	x = b.Scope("b").Node("Frobnicate", nil, x)
	x = b.Node("Relu", nil, x)
	x = b.Scope("c").Node("Quux", nil, x)
	b.Output("y", x, archs.Float32, 2)
	writeModel(t, "odd.onnx", func() (*archs.Model, error) { return b.Model(1) })
	r := spcRun("compile", "odd.onnx")
	for _, want := range []string{"spc: odd.onnx: ", "Frobnicate", "2 nodes", "/a/Frobnicate", "/b/Frobnicate", "Quux", "1 node", "/c/Quux"} {
		if !strings.Contains(r.errors, want) {
			t.Errorf("error %q, want %q in it", r.errors, want)
		}
	}
	if r.status != 1 || r.out != "" {
		t.Errorf("status %d, output %q", r.status, r.out)
	}
}

// Every error about a damaged file is one line that names it; nothing panics.
func TestDamagedModels(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "model.spx", "--sparsity", "0.8")
	for _, name := range []string{"model.onnx", "model.spx"} {
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		ext := filepath.Ext(name)
		damaged := "damaged" + ext
		var refused, runs int
		try := func(b []byte, mayRun bool) {
			t.Helper()
			writeFile(t, damaged, b)
			args := []string{"run", damaged, "-i", "cat.npy"}
			if r := spcRun(args...); r.status != 0 || !mayRun {
				refused++
				if strings.Count(r.errors, "\n") > 1 && strings.Contains(r.errors, "unsupported operator") {
					return
				}
				checkFailure(t, args, r, damaged)
			} else {
				runs++
			}
		}
		for _, n := range []int{0, 1, 7, 8, 40, 200, len(good) / 3, len(good) / 2, len(good) - 64, len(good) - 1} {
			try(good[:n], false)
		}
		// Checksums cover an .spx file. A flipped bit of an ONNX file may leave it a
		// model; bits near both ends are in headers and names.
		for i := range good {
			if i > 128 && i < len(good)-128 && i%997 != 0 {
				continue
			}
			b := bytes.Clone(good)
			b[i] ^= 1 << (i % 8)
			try(b, ext == ".onnx")
		}
		if ext == ".onnx" && runs == 0 {
			t.Errorf("%s: %d refused, none runs", name, refused)
		}
	}
}

func TestHostileModels(t *testing.T) {
	workspace(t)
	model := func(edit func(g *onnxpb.GraphProto)) []byte {
		m, err := classifier()
		if err != nil {
			t.Fatal(err)
		}
		p := m.Proto()
		edit(p.Graph)
		b, err := proto.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	external := func(location string) func(g *onnxpb.GraphProto) {
		return func(g *onnxpb.GraphProto) {
			w := g.Initializer[0]
			w.RawData, w.DataLocation = nil, onnxpb.TensorProto_EXTERNAL
			w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: location}}
		}
	}
	writeFile(t, "small.bin", make([]byte, 8))
	writeFile(t, "sub/secret.bin", make([]byte, 1<<16))
	writeFile(t, "outside.bin", make([]byte, 1<<16))
	if err := os.Symlink("../outside.bin", "sub/link.bin"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit func(g *onnxpb.GraphProto)
		want []string
	}{
		"cycle":                   {func(g *onnxpb.GraphProto) { g.Node[0].Input[0] = g.Node[2].Output[0] }, []string{"cycle"}},
		"undefined input":         {func(g *onnxpb.GraphProto) { g.Node[3].Input[0] = "nowhere" }, []string{"nowhere"}},
		"huge dimension":          {func(g *onnxpb.GraphProto) { g.Initializer[1].Dims[0] = 1 << 62 }, []string{"layer1.0.weight"}},
		"negative dimension":      {func(g *onnxpb.GraphProto) { g.Initializer[1].Dims[0] = -1 }, []string{"layer1.0.weight"}},
		"bytes that do not match": {func(g *onnxpb.GraphProto) { g.Initializer[1].RawData = g.Initializer[1].RawData[:100] }, []string{"layer1.0.weight", "100"}},
		"missing external data":   {external("none.bin"), []string{"none.bin"}},
		"short external data":     {external("small.bin"), []string{"small.bin"}},
		"escaping external data":  {external("../outside.bin"), []string{"outside.bin"}},
		"absolute external data":  {external("/etc/passwd"), []string{"/etc/passwd"}},
		"linked external data":    {external("link.bin"), []string{"link.bin"}},
		"wrong weight rank":       {func(g *onnxpb.GraphProto) { g.Initializer[1].Dims = []int64{16, 72} }, []string{"/layer1.0/Conv", "Conv"}},
		"wrong channels": {func(g *onnxpb.GraphProto) {
			g.Input[0].Type.GetTensorType().Shape.Dim[1].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 5}
		}, []string{"/stem/Conv"}},
		"unknown attribute": {func(g *onnxpb.GraphProto) {
			g.Node[1].Attribute = append(g.Node[1].Attribute, &onnxpb.AttributeProto{Name: "slope", Type: onnxpb.AttributeProto_FLOAT})
		}, []string{"/stem/Relu", "slope"}},
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, "sub/bad.onnx", model(c.edit))
			fails(t, []string{"compile", "sub/bad.onnx", "-o", "bad.spx"}, append(c.want, "sub/bad.onnx")...)
			if _, err := os.Stat("bad.spx"); err == nil {
				t.Error("a file is left")
			}
		})
	}
	// A size that only a run needs.
	writeFile(t, "big.onnx", model(func(g *onnxpb.GraphProto) {
		g.Input[0].Type.GetTensorType().Shape.Dim[2].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 1 << 40}
	}))
	fails(t, []string{"run", "big.onnx", "-i", "random:1"})
}

func TestFailuresLeaveNoFiles(t *testing.T) {
	workspace(t)
	before := listing(t, ".")
	writeFile(t, "blocker", nil)
	for _, args := range [][]string{
		{"compile", "model.onnx", "-o", "none/model.spx"},
		{"compile", "model.onnx", "-o", "blocker/model.spx"},
		{"compile", "model.onnx", "-o", "photos"},
		{"run", "model.onnx", "-i", "cat.npy", "-o", "blocker/out"},
		{"run", "model.onnx", "-i", "cat.npy", "-o", "blocker"},
	} {
		fails(t, args, strings.Split(args[len(args)-1], "/")[0])
	}
	// The second output cannot be written, so the first is taken back.
	if err := os.MkdirAll("out/y_0_2.npy/x", 0o777); err != nil {
		t.Fatal(err)
	}
	fails(t, []string{"run", "mixed.onnx", "-i", "x=random:1", "-i", "shift=random:1", "-o", "out"}, "y_0_2.npy")
	os.RemoveAll("out")
	os.Remove("blocker")
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
}

// process runs spc as a process of its own.
func process(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(append(os.Environ(), beSPC+"=1"), env...)
	return c
}

func finish(c *exec.Cmd) result {
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	c.Run()
	return result{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

func TestFullDiskLeavesNoFiles(t *testing.T) {
	if !limitsFiles {
		t.Skip("no RLIMIT_FSIZE here")
	}
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "old.spx", "--sparsity", "0.5")
	old, err := os.ReadFile("old.spx")
	if err != nil {
		t.Fatal(err)
	}
	writeNPY(t, "many.npy", tensor.New(tensor.F32, 2000, 3, 16, 16))
	before := listing(t, ".")
	for _, args := range [][]string{
		{"compile", "model.onnx", "-o", "new.spx"},
		{"compile", "model.onnx", "-o", "old.spx"},
		{"run", "model.onnx", "-i", "many.npy", "-o", "out"},
	} {
		r := finish(process(t, []string{fileLimit + "=20000"}, args...))
		checkFailure(t, args, r, args[len(args)-1], "file too large")
	}
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
	if b, _ := os.ReadFile("old.spx"); !bytes.Equal(b, old) {
		t.Error("the older file changed")
	}
}

func TestInterruptEndsACommand(t *testing.T) {
	workspace(t)
	before := listing(t, ".")
	c := process(t, nil, "bench", "model.onnx", "--runs", "100000000")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	interrupt(t, c.Process)
	c.Wait()
	if c.ProcessState.ExitCode() != 130 || errs.String() != "spc: interrupted\n" || out.Len() > 0 {
		t.Errorf("status %d, errors %q, output %q", c.ProcessState.ExitCode(), errs.String(), out.String())
	}
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
}

func TestProcessExitsWithStatus(t *testing.T) {
	workspace(t)
	if r := finish(process(t, nil, "version")); r.status != 0 || !strings.HasPrefix(r.out, "spc ") {
		t.Errorf("version: %+v", r)
	}
	r := finish(process(t, nil, "run", "model.onnx"))
	checkFailure(t, []string{"run", "model.onnx"}, r, "missing")
	if r := finish(process(t, nil, "eval", "lm.onnx", "--data", "tokens.npy")); r.status != 0 || r.errors != "" {
		t.Errorf("a progress bar in a pipe: %+v", r)
	}
}

func TestDevicesAndVersion(t *testing.T) {
	type devices struct {
		Devices []struct {
			Name, Arch     string
			Cores, Threads int
		}
	}
	d := decoded[devices](t, "devices")
	if len(d.Devices) != 1 || d.Devices[0].Name != "cpu" || d.Devices[0].Cores < 1 || d.Devices[0].Threads < d.Devices[0].Cores {
		t.Errorf("%+v", d)
	}
	if a, b := finish(process(t, nil, "version")), finish(process(t, nil, "--version")); a.out != b.out {
		t.Errorf("version prints %q, --version %q", a.out, b.out)
	}
	v := decoded[map[string]string](t, "version")
	if v["version"] == "" || v["go"] == "" || v["platform"] == "" {
		t.Errorf("%v", v)
	}
}

func TestShellCompletion(t *testing.T) {
	workspace(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := ok(t, "completion", shell); len(out) < 500 {
			t.Errorf("%s: %d bytes", shell, len(out))
		}
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{""}, []string{"bench", "compile", "completion", "devices", "eval", "inspect", "run", "verify", "version"}},
		{[]string{"compile", ""}, []string{"onnx", ":8"}},
		{[]string{"run", ""}, []string{"spx", "onnx", ":8"}},
		{[]string{"run", "model.spx", "-i", ""}, []string{"npy", "pb", "png", "jpg", ":8"}},
		{[]string{"compile", "--pattern", ""}, []string{"uniform", "2:4", "channel", ":4"}},
		{[]string{"compile", "--allocate", ""}, []string{"layer", "global"}},
		{[]string{"compile", "--format", ""}, formats()},
		{[]string{"compile", "--stop-after", ""}, []string{"infer", "fold", "choose"}},
		{[]string{"compile", "--target", ""}, []string{"cpu", "cuda", "cuda:sm_80", "cuda:sm_90"}},
		{[]string{"eval", "--preprocess", ""}, []string{"imagenet", "tf", "caffe", "cifar", "unit", "none"}},
		{[]string{"verify", "model.spx", ""}, []string{"spx", "onnx", ":8"}},
		{[]string{"verify", "--against", ""}, []string{"original", "compiled", ":4"}},
		{[]string{"verify", "--expect", ""}, []string{":16"}},
		{[]string{"verify", "--expect", "logits="}, []string{"npy", "pb", ":8"}},
		{[]string{"verify", "--reduce", ""}, []string{"onnx", ":8"}},
		{[]string{"eval", "--metric", ""}, []string{"top1", "top5", "perplexity"}},
		{[]string{"eval", "--samples", ""}, []string{"all", "even", "odd"}},
	} {
		got := strings.Fields(spcRun(append([]string{"__complete"}, c.args...)...).out)
		for _, w := range c.want {
			if !slices.Contains(got, w) {
				t.Errorf("completing %q offers %q, want %s", c.args, got, w)
			}
		}
	}
}

// Formats chosen for a GPU are those of kernels for it, and the program runs on the CPU too.
func TestCompileForAGPU(t *testing.T) {
	workspace(t)
	for _, target := range []string{"cuda", "cuda:sm_80", "cuda:sm_90"} {
		ok(t, "compile", "model.onnx", "-o", "gpu.spx", "--target", target, "--pattern", "2:4")
		type report struct {
			Options struct{ Target string }
			Layers  []struct {
				Candidates []struct {
					Kernel      string
					Chosen      bool
					PredictedUs float64 `json:"predicted_us"`
				}
			}
		}
		r := decoded[report](t, "inspect", "gpu.spx", "--layer", "*")
		if r.Options.Target != target || len(r.Layers) == 0 {
			t.Errorf("%s: %+v", target, r)
		}
		for _, l := range r.Layers {
			for _, c := range l.Candidates {
				if !strings.HasPrefix(c.Kernel, "f16_") || c.PredictedUs < 1 {
					t.Errorf("%s: %+v", target, c)
				}
			}
		}
		ok(t, "verify", "gpu.spx", "gpu.spx", "--tolerance", "0")
	}
	ok(t, "compile", "model.onnx", "-o", "int8.spx", "--target", "cuda", "--pattern", "2:4", "--keep", "none", "--quantize", "int8", "--keep-float", "none", "--calib", "random:1")
	type report struct {
		Layers []struct {
			DType, Format string
			Candidates    []struct{ Format, Kernel string }
		}
	}
	offered := map[string]bool{}
	for _, l := range decoded[report](t, "inspect", "int8.spx", "--layer", "*").Layers {
		for _, c := range l.Candidates {
			if !strings.HasPrefix(c.Kernel, "s8_") || !strings.Contains(c.Kernel, "_mma") || l.DType != "i8" {
				t.Errorf("%+v", l)
			}
			offered[c.Format] = true
		}
	}
	if !offered["dense"] || !offered["nm"] {
		t.Errorf("formats of 2:4 weights in 8 bits: %v, want dense and nm", offered)
	}
	ok(t, "verify", "int8.spx", "int8.spx", "--tolerance", "0")
	r := finish(process(t, nil, "compile", "model.onnx", "-o", "half.spx", "--target", "cuda", "--quantize", "fp16"))
	checkFailure(t, []string{"--target", "cuda", "--quantize", "fp16"}, r, "weights of fp16 are for the CPU")
}
