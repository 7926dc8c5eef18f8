package main

import (
	"encoding/json"
	"image/color"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"spc"
)

type profileOut struct {
	Model                string
	Batch, Threads, Runs int
	Us                   float64
	StepsUs              float64 `json:"steps_us"`
	Machine              string
	Roof                 struct{ Peak, Bandwidth float64 }
	Layers               []profiled
}

func TestProfile(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "model.spx", "--sparsity", "0.8", "--keep", "none", "--format", "csr")
	p := decoded[profileOut](t, "profile", "model.spx", "--runs", "4", "--warmup", "1", "--threads", "1", "-i", "cat.npy")
	if p.Model != "model.spx" || p.Batch != 1 || p.Threads != 1 || p.Runs != 4 || p.Us <= 0 || p.Machine != "default" || len(p.Layers) < 6 {
		t.Errorf("%+v", p)
	}
	sum, shares := 0.0, 0.0
	stored := map[string]int{}
	for _, l := range decoded[struct {
		Layers []struct {
			Name   string
			Stored int `json:"stored_bytes"`
		}
	}](t, "inspect", "model.spx").Layers {
		stored[l.Name] = l.Stored
	}
	products := 0
	for i, l := range p.Layers {
		sum, shares = sum+l.Us, shares+l.Share
		if i > 0 && l.Us > p.Layers[i-1].Us {
			t.Errorf("%s takes longer than what is before it", l.Name)
		}
		if stored[l.Name] == 0 {
			continue
		}
		products++
		if l.Format != "csr" || l.PredictedUs <= 0 || l.Roofline <= 0 || l.GFLOPs <= 0 || l.Bytes < float64(stored[l.Name]) {
			t.Errorf("%+v, %d bytes stored", l, stored[l.Name])
		}
		least := max(l.FLOPs/p.Roof.Peak, l.Bytes/p.Roof.Bandwidth) * 1e6
		if share := least / l.Us; share < 0.999*l.Roofline || share > 1.001*l.Roofline {
			t.Errorf("%s: %g of the roofline, want %g", l.Name, l.Roofline, share)
		}
	}
	if products != 5 || sum < 0.999*p.StepsUs || sum > 1.001*p.StepsUs || shares < 0.999 || shares > 1.001 {
		t.Errorf("%d products, layers take %g us, %g in all", products, sum, p.StepsUs)
	}
	out := ok(t, "profile", "model.spx", "--runs", "2", "--threads", "2", "--sort", "order", "--batch", "3")
	for _, want := range []string{"batch 3, 2 threads, medians of 2 runs", "roofline of 2 cores, profile default: 192 GFLOP/s", "GFLOP/s", "csr"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if first, last := strings.Index(out, "stem"), strings.Index(out, "head"); first < 0 || first > last {
		t.Errorf("not in the order of the run:\n%s", out)
	}
	names := decoded[profileOut](t, "profile", "model.spx", "--runs", "1", "--sort", "name").Layers
	if !slices.IsSortedFunc(names, func(a, b profiled) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("not sorted by name: %v", names)
	}
}

// A trace has the steps of a run, none of which begins before another ends.
func TestTrace(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "model.spx", "--sparsity", "0.8")
	p := decoded[profileOut](t, "profile", "model.spx", "--runs", "3", "--threads", "1", "--sort", "order", "--trace", "trace.json")
	b, err := os.ReadFile("trace.json")
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Cat, Ph string
			Ts, Dur       *float64
			Pid, Tid      int
			Args          map[string]any
		}
	}
	if err := json.Unmarshal(b, &trace); err != nil {
		t.Fatal(err)
	}
	end, steps := 0.0, 0
	for _, e := range trace.TraceEvents {
		if e.Ph == "M" {
			continue
		}
		if e.Ph != "X" || e.Ts == nil || e.Dur == nil || *e.Dur < 0 || *e.Ts < end-1e-6 || e.Pid != 1 || e.Tid != 1 {
			t.Errorf("%+v, the one before ends at %g", e, end)
			continue
		}
		end = *e.Ts + *e.Dur
		l := p.Layers[steps]
		if e.Name != l.Name || e.Cat != l.Op || e.Args["operator"] != l.Op || l.Format != "" && e.Args["format"] != l.Format || e.Args["bytes"] != l.Bytes {
			t.Errorf("event %+v of layer %+v", e, l)
		}
		steps++
	}
	if steps != len(p.Layers) {
		t.Errorf("%d events, want %d", steps, len(p.Layers))
	}
}

func TestProfileDrawsPictures(t *testing.T) {
	workspace(t)
	for _, args := range [][]string{{"--plot", "roofline", "a.png"}, {"--plot", "layers", "b.svg"}} {
		ok(t, append([]string{"profile", "model.onnx", "--runs", "1"}, args...)...)
		if b, err := os.ReadFile(args[2]); err != nil || len(b) < 2000 {
			t.Errorf("%s has %d bytes, %v", args[2], len(b), err)
		}
	}
	ok(t, "profile", "--plot", "layers", "c.svg", "model.onnx", "--runs", "1")
}

// Each kind of layers has a colour of its own.
func TestKindsInPicturesHaveColours(t *testing.T) {
	f := &figure{layers: []shown{{}}}
	for _, name := range spc.Formats() {
		f.layers = append(f.layers, shown{format: string(name)})
	}
	kinds, colors := f.kinds()
	seen := map[color.RGBA]string{}
	for i, c := range colors {
		if seen[c] != "" {
			t.Errorf("%s has the colour of %s", kinds[i], seen[c])
		}
		seen[c] = kinds[i]
	}
	if len(kinds) != len(f.layers) || kinds[len(kinds)-1] != plain {
		t.Errorf("the kinds are %q", kinds)
	}
}

// A picture of a tuned model has the times that were measured, of dense weights too, and says so.
func TestPicturesOfTunedModels(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "tuned.spx", "--sparsity", "0.95", "--tune", "--tune-budget", "20s", "--quiet")
	ok(t, "compile", "model.onnx", "-o", "plain.spx", "--sparsity", "0.95", "--quiet")
	for path, want := range map[string][]string{"tuned.spx": {"measured when it was tuned"}, "plain.spx": {"predicted time of each layer", "one core of profile default", "predicted as dense"}} {
		ok(t, "inspect", path, "--plot", "layers", "layers.svg")
		b, err := os.ReadFile("layers.svg")
		for _, w := range want {
			if err != nil || !strings.Contains(string(b), w) {
				t.Errorf("%s: no %q in the picture, %v", path, w, err)
			}
		}
		m, err := spc.Open(path, spc.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		f, err := foretold(path, m)
		if err != nil || len(f.layers) == 0 {
			t.Fatalf("%d layers, %v", len(f.layers), err)
		}
		for _, l := range m.Explain().Layers {
			s := f.layers[slices.IndexFunc(f.layers, func(s shown) bool { return s.name == l.Name })]
			for _, c := range l.Candidates {
				us, _ := l.Us(&c, l.N)
				if at := s.us; c.Chosen && math.Abs(at-us) > 0.01*us+0.001 || c.Format == "dense" && l.Format != "dense" && math.Abs(s.mark-us) > 0.01*us+0.001 {
					t.Errorf("%s, %s: a bar of %g and a mark at %g us, want %g for %s", path, l.Name, at, s.mark, us, c.Format)
				}
			}
		}
	}
}

func TestPicturesSayWhatWasMeasured(t *testing.T) {
	layers := []spc.Layer{{Name: "a", Format: "ell", N: 1, Candidates: []spc.Candidate{
		{Format: "ell", PredictedUs: 3, MeasuredUs: 5, Chosen: true}, {Format: "dense", PredictedUs: 9, MeasuredUs: 20}, {Format: "csr", PredictedUs: 4},
	}}}
	if got, want := knownOf(layers)["a"], (known{5, 20, 20, true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	layers[0].Candidates[0].MeasuredUs, layers[0].Candidates[1].MeasuredUs = 0, 0
	if got, want := knownOf(append(layers, layers[0]))["a"], (known{chosen: 6, dense: 18}); got != want {
		t.Errorf("of two weights %+v, want %+v", got, want)
	}
	for _, c := range []struct {
		measured          int
		title, axis, mark string
	}{
		{0, "m: predicted time of each layer with weights", "one core of profile default", "predicted as dense"},
		{1, "m: time of each layer with weights, measured when it was tuned, else predicted", "2 threads, else one core of profile default", "as dense, likewise"},
		{2, "m: time of each layer with weights, measured when it was tuned", "2 threads", "measured as dense"},
	} {
		f := &figure{layers: make([]shown, 2)}
		f.label("m", &spc.Report{Tuned: &spc.Tuned{Threads: 2}}, c.measured)
		if f.title != c.title || f.axis != c.axis || f.mark != c.mark {
			t.Errorf("%d measured: %q, %q, %q", c.measured, f.title, f.axis, f.mark)
		}
	}
}

func TestNamesInPicturesTellLayersApart(t *testing.T) {
	for name, want := range map[string]string{
		"/features/features.13/block/block.0/block.0.0/Conv": "/features.13/block.0.0/Conv",
		"/layer1/layer1.0/conv1/Conv":                        "/layer1.0/conv1/Conv",
		"a\x1b/a":                                            `a\x1b/a`,
		"Conv_7":                                             "Conv_7",
		"/encoder/a_name_that_is_long/another_name_that_is_long/and_one_more/1/MatMul": "/encoder/a_nam…is_long/and_one_more/1/MatMul",
		"": "",
	} {
		if got := pictureName(name); len([]rune(got)) > 44 || got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}

// Traces and pictures are whole or not there.
func TestFullDiskLeavesNoTraces(t *testing.T) {
	if !limitsFiles {
		t.Skip("no RLIMIT_FSIZE here")
	}
	workspace(t)
	before := listing(t, ".")
	for _, args := range [][]string{
		{"profile", "model.onnx", "--runs", "1", "--trace", "t.json"},
		{"profile", "model.onnx", "--runs", "1", "--plot", "layers", "l.png"},
		{"inspect", "model.onnx", "--plot", "roofline", "r.svg"},
	} {
		r := finish(process(t, []string{fileLimit + "=1000"}, args...))
		checkFailure(t, args, r, args[len(args)-1], "file too large")
	}
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
}

func TestProfileErrors(t *testing.T) {
	dir := workspace(t)
	before := listing(t, dir)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"none.spx"}, "none.spx"},
		{[]string{"model.onnx", "other.onnx"}, "2 arguments given, want 1; only --plot takes a file besides"},
		{[]string{"model.onnx", "--plot", "layers"}, "--plot layers: want a .png or .svg file after it"},
		{[]string{"model.onnx", "--plot", "layers", "a.pdf"}, "--plot layers a.pdf: want a .png or .svg file"},
		{[]string{"model.onnx", "--plot", "pie", "a.png"}, `--plot "pie", want roofline or layers`},
		{[]string{"model.onnx", "--plot", "layers", "none/a.png"}, "none"},
		{[]string{"model.onnx", "--trace", "none/t.json"}, "--trace: "},
		{[]string{"model.onnx", "--trace", "model.onnx"}, "model.onnx"},
		{[]string{"model.onnx", "--trace", "a.png", "--plot", "layers", "a.png"}, "a.png"},
		{[]string{"model.onnx", "--sort", "colour"}, `--sort "colour", want one of bytes`},
		{[]string{"model.onnx", "-i", "none.npy"}, "none.npy"},
		{[]string{"model.onnx", "-i", "cat.npy", "--batch", "2"}, "cat.npy"},
		{[]string{"model.onnx", "--runs", "0"}, "--runs 0"},
		{[]string{"model.onnx", "--threads", "-1"}, "--threads -1"},
	} {
		fails(t, append([]string{"profile"}, c.args...), c.want)
	}
	if after := listing(t, dir); !slices.Equal(before, after) {
		t.Errorf("%v are left, want %v", after, before)
	}
}

// What is run anew for the times of nodes writes its dumps over those before.
func TestProfileAndBenchDumpTheLowering(t *testing.T) {
	workspace(t)
	for _, command := range []string{"profile", "bench"} {
		ok(t, command, "model.onnx", "--runs", "1", "--warmup", "1", "--dump-passes", command)
		if files := listing(t, command); len(files) < 3 {
			t.Errorf("%s: %v", command, files)
		}
	}
}
