package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.8", "--format", "csr", "--keep", "none")
	ok(t, "compile", "model.onnx", "-o", "b.spx", "--sparsity", "0.9", "--format", "csr", "--keep", "none", "--layer", "*layer1.0*=0.8", "--quantize", "fp16", "--keep-float", "*head*")
	d := decoded[difference](t, "inspect", "--diff", "a.spx", "b.spx")
	if d.A != "a.spx" || d.B != "b.spx" || d.Totals.B.Nonzeros >= d.Totals.A.Nonzeros || d.Formats.A["csr"] == 0 {
		t.Errorf("%+v", d)
	}
	var options []string
	for _, o := range d.Options {
		options = append(options, o.Name)
		if o.Name == "sparsity" && (o.A != "0.8" || o.B != "0.9") {
			t.Errorf("%+v", o)
		}
	}
	if want := []string{"quantize", "sparsity", "command"}; !slices.Equal(options, want) {
		t.Errorf("options %v differ, want %v", options, want)
	}
	if d.Same+len(d.Layers) != 5 {
		t.Errorf("%d layers and %d alike, want 5", len(d.Layers), d.Same)
	}
	for _, l := range d.Layers {
		var fields []string
		for _, f := range l.Fields {
			fields = append(fields, f.Name)
		}
		has := func(name string) bool { return slices.Contains(fields, name) }
		if l.Change != "changed" || has("format") || has("dtype") != !strings.Contains(l.Name, "head") || has("zeros") != (l.A.Nonzeros != l.B.Nonzeros) || has("stored") != (l.A.StoredBytes != l.B.StoredBytes) {
			t.Errorf("%+v: %v", l, fields)
		}
		if strings.Contains(l.Name, "layer1.0") && has("zeros") {
			t.Errorf("%s has other zeros", l.Name)
		}
	}
	text := ok(t, "inspect", "a.spx", "b.spx", "--diff")
	for _, want := range []string{"A  a.spx\nB  b.spx\n", "f32 -> f16", "changed\n", "sparsity", "spc compile model.onnx --format csr --keep none --sparsity 0.8"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if d := decoded[difference](t, "inspect", "--diff", "a.spx", "a.spx"); d.Same != 5 || len(d.Layers) > 0 || len(d.Options) > 0 {
		t.Errorf("a model and itself: %+v", d)
	}
	// Another model has none of the layers.
	other := decoded[difference](t, "inspect", "--diff", "a.spx", "lm.onnx")
	count := map[string]int{}
	for _, l := range other.Layers {
		count[l.Change]++
		if (l.A == nil) != (l.Change == "added") || (l.B == nil) != (l.Change == "removed") || len(l.Fields) > 0 {
			t.Errorf("%+v", l)
		}
	}
	if count["added"] != 2 || count["changed"]+count["removed"] != 5 || other.Same != 0 {
		t.Errorf("%v of another model", count)
	}
	if text := ok(t, "inspect", "--diff", "a.spx", "lm.onnx"); !strings.Contains(text, "\n-  /stem") || !strings.Contains(text, "\n+  ") {
		t.Errorf("no layers come and go in\n%s", text)
	}
}

func TestInspectDrawsPredictions(t *testing.T) {
	workspace(t)
	ok(t, "compile", "model.onnx", "-o", "model.spx", "--sparsity", "0.8")
	for _, args := range [][]string{{"roofline", "a.svg"}, {"layers", "b.svg"}} {
		if out := ok(t, "inspect", "model.spx", "--plot", args[0], args[1]); !strings.Contains(out, "reason") {
			t.Errorf("--plot prints\n%s", out)
		}
		b, err := os.ReadFile(args[1])
		if err != nil || !strings.Contains(string(b), "predicted time") || !strings.Contains(string(b), "conv_3") {
			t.Errorf("%s: %d bytes, %v", args[1], len(b), err)
		}
	}
	ok(t, "compile", "model.onnx", "-o", "gpu.spx", "--sparsity", "0.8", "--target", "cuda")
	fails(t, []string{"inspect", "gpu.spx", "--plot", "layers", "c.png"}, "--plot layers of gpu.spx: formats were chosen for cuda")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"model.spx", "--diff"}, "--diff with 1 argument, want two models"},
		{[]string{"model.spx", "model.onnx"}, "2 arguments given, want 1"},
		{[]string{"model.spx", "none.spx", "--diff"}, "none.spx: no such file"},
		{[]string{"model.spx", "model.onnx", "--diff", "--layer", "x"}, "--diff and --layer exclude each other"},
		{[]string{"model.spx", "model.spx", "--diff", "--plot", "layers"}, "--diff and --plot exclude each other"},
		{[]string{"model.spx", "--plot", "roofline"}, "--plot roofline: want a .png or .svg file after it"},
		{[]string{"model.spx", "--plot", "roofline", "a.gif"}, "--plot roofline a.gif: want a .png or .svg file"},
		{[]string{"model.spx", "--plot", "pareto", "a.png"}, `--plot "pareto", want roofline or layers`},
		{[]string{"model.spx", "--plot", "layers", "none/a.png"}, "none"},
	} {
		fails(t, append([]string{"inspect"}, c.args...), c.want)
	}
	if _, err := os.Stat("c.png"); err == nil {
		t.Error("a picture of nothing is left")
	}
}
