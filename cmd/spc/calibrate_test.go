package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spc"
	"spc/internal/spool"
	"spc/ir/tensor"
	"spc/tests/archs"
)

func TestPruneOnSamples(t *testing.T) {
	workspace(t)
	sees := []string{"--sparsity", "0.5", "--calib", "photos", "--preprocess", "imagenet", "--keep", "none"}
	with := func(more ...string) []string { return append(append([]string{}, more...), sees...) }

	ok(t, with("compile", "model.onnx", "-o", "auto.spx", "--masks", "masks.npz")...)
	out := ok(t, "inspect", "auto.spx")
	if !strings.Contains(out, "pruned by obs on 5 calibration samples, allocation auto: ") || !strings.Contains(out, ", not ") {
		t.Errorf("%s, want how it was pruned", out)
	}
	if out := ok(t, "inspect", "auto.spx", "--layer", "*head*"); !strings.Contains(out, "pruned by OBS, exact; ") || !strings.Contains(out, "; sparsity by ") {
		t.Errorf("%s, want how the layer was pruned", out)
	}
	ok(t, "compile", "model.onnx", "-o", "first.spx", "--sparsity", "0.5", "--layer", "*layer1.0*=0.25", "--calib", "photos", "--preprocess", "imagenet")
	if out := ok(t, "inspect", "first.spx"); !strings.Contains(out, "not pruned, the first convolution (input channels: 3); ") {
		t.Errorf("%s, want why the first layer is dense", out)
	}
	if out := ok(t, "inspect", "first.spx", "--layer", "*layer1.0*"); !strings.Contains(out, "; a sparsity of its own") {
		t.Errorf("%s, want that the layer has a sparsity of its own", out)
	}
	writeNPY(t, "many.npy", tensor.New(tensor.U8, 67, 3, 16, 16))
	for _, command := range []string{"compile", "prune"} {
		out := ok(t, command, "model.onnx", "-o", map[string]string{"compile": "many.spx", "prune": "many.onnx"}[command], "--sparsity", "0.5", "--allocate", "layer",
			"--prune", "wanda", "--calib", "many.npy", "--preprocess", "imagenet", "--calib-samples", "66")
		if want := "by wanda on 66 calibration samples in 33 runs, allocation layer\n"; !strings.Contains(out, want) {
			t.Errorf("%s prints %s, want %q", command, out, want)
		}
	}
	z, err := zip.OpenReader("masks.npz")
	if err != nil {
		t.Fatal(err)
	}
	if len(z.File) < 2 {
		t.Errorf("%d masks", len(z.File))
	}
	z.Close()

	// Both commands give the same weights, for any number of processors.
	for _, how := range []string{"--prune=wanda", "--prune=taylor", "--refine=swaps", "--refine=swaps,snows", "--aim=dense", "--allocate=curves", "--reconstruct", "--pattern=channel"} {
		ok(t, with("compile", "model.onnx", "-o", "a.spx", how)...)
		ok(t, with("compile", "model.onnx", "-o", "b.spx", how)...)
		ok(t, with("prune", "model.onnx", "-o", "a.onnx", how)...)
		ok(t, "verify", "a.spx", "a.onnx", "--tolerance", "1e-5")
		a, err := os.ReadFile("a.spx")
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile("b.spx")
		if err != nil {
			t.Fatal(err)
		}
		if string(a) != string(b) {
			t.Errorf("%s: compiled twice, the files differ", how)
		}
	}

	// What was asked for and not done is a warning.
	for _, form := range [][]string{nil, {"--json"}} {
		warned(t, "0.0% of the prunable weights are zero, 50.0% were asked for", append(with("compile", "model.onnx", "-o", "a.spx", "--allocate", "layer", "--pattern", "block:500x500"), form...)...)
		warned(t, "--calib-samples 5000: photos has 5, which are taken", append(with("prune", "model.onnx", "-o", "a.onnx", "--allocate", "layer", "--calib-samples", "5000"), form...)...)
	}
	warned(t, "not stored as nm: ", "compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.5", "--format", "nm")
	if out := ok(t, with("prune", "model.onnx", "-o", "a.onnx", "--pattern", "unstructured")...); strings.Contains(out, "asked for") {
		t.Errorf("%s, want no word about zeros", out)
	}
	if out := ok(t, with("prune", "model.onnx", "-o", "a.onnx", "--reconstruct", "--recipe", "blocks=1,model=0")...); !strings.Contains(out, "rebuilt   ") || !strings.Contains(out, " kept") || !strings.Contains(out, "sizes of rows") || !strings.Contains(out, "divergence on samples held out") {
		t.Errorf("%s, want the number of blocks", out)
	}
	writeModel(t, "best.onnx", func() (*archs.Model, error) {
		b := archs.New("best", 17)
		x := b.Node("MatMul", nil, b.Input("x", archs.Float32, "batch", 8), b.Weight("w", archs.He(8), 8, 4))
		b.Output("y", b.Node("ArgMax", archs.Attrs{"axis": 1, "keepdims": 0}, x), archs.Int64, "batch")
		return b.Model(1)
	})
	best := []string{"best.onnx", "--keep", "none", "--sparsity", "0.5", "--calib", "random:1", "--reconstruct"}
	warned(t, "nothing was reconstructed: /MatMul to /ArgMax: nothing to train, or no output of f32 to train towards", append([]string{"prune", "-o", "a.onnx"}, best...)...)

	writeNPY(t, "strange.npy", tensor.FromInt64s(tensor.I64, []int64{1, 2, 3, 4, 5, 99}, 3, 2))
	for want, args := range map[string][]string{
		"lm.onnx: calibration sample 3: /Gather (Gather)":                                                         {"compile", "lm.onnx", "--quantize", "int8", "--calib", "strange.npy"},
		"has no elements in any calibration sample":                                                               {"compile", "lm.onnx", "--quantize", "int8", "--calib", "random:1", "--dim", "t=0"},
		"--aim dense needs calibration samples, which --calib gives":                                              {"compile", "model.onnx", "--sparsity", "0.5", "--aim", "dense"},
		"--reconstruct needs calibration samples":                                                                 {"compile", "model.onnx", "--sparsity", "0.5", "--reconstruct"},
		"--calib-samples has no use without --calib":                                                              {"compile", "model.onnx", "--sparsity", "0.5", "--calib-samples", "4"},
		"--preprocess has no use without --calib":                                                                 {"compile", "model.onnx", "--sparsity", "0.5", "--preprocess", "unit"},
		"--bgr has no use without --calib":                                                                        {"prune", "model.onnx", "-o", "a.onnx", "--sparsity", "0.5", "--bgr"},
		"--mean has no use with --calib random":                                                                   {"compile", "model.onnx", "--sparsity", "0.5", "--calib", "random:1", "--mean", "0.5", "--std", "1"},
		"--samples has no use with --calib random":                                                                {"compile", "model.onnx", "--sparsity", "0.5", "--calib", "random:1", "--samples", "even"},
		"--preprocess has no use with tokens":                                                                     {"compile", "lm.onnx", "--sparsity", "0.5", "--calib", "tokens.npy", "--preprocess", "unit"},
		"--calib-samples 0, want 1 or more":                                                                       with("compile", "model.onnx", "--calib-samples", "0"),
		"--prune has no use without --sparsity":                                                                   {"compile", "model.onnx", "--prune", "magnitude"},
		"--allocate has no use without --sparsity":                                                                {"compile", "model.onnx", "--quantize", "int8", "--calib", "random:1", "--allocate", "auto"},
		"--pattern block:4x1 has no use without --sparsity":                                                       {"compile", "model.onnx", "--pattern", "block:4x1"},
		"--calib-cache cache: nothing is pruned by what":                                                          with("compile", "model.onnx", "--allocate", "layer", "--calib-cache", "cache"),
		"--calib has no use without --sparsity, a --pattern that sets its own, or --quantize int8, int8w or int4": {"compile", "model.onnx", "--quantize", "fp16", "--calib", "random:1"},
		"--prune obs needs calibration samples":                                                                   {"compile", "model.onnx", "--sparsity", "0.5", "--prune", "obs"},
		"--allocate auto needs calibration samples":                                                               {"compile", "model.onnx", "--sparsity", "0.5", "--allocate", "auto"},
		`--prune "taste": want one of magnitude, `:                                                                with("compile", "model.onnx", "--prune", "taste"),
		`--refine "moon": want one of none, swaps, snows`:                                                         with("compile", "model.onnx", "--refine", "moon"),
		`--refine "swaps,swaps": want none alone, or others once each`:                                            with("compile", "model.onnx", "--refine", "swaps,swaps"),
		"--refine swaps needs calibration samples":                                                                {"compile", "model.onnx", "--sparsity", "0.5", "--refine", "swaps"},
		"--refine has no use without --sparsity":                                                                  {"compile", "model.onnx", "--refine", "swaps"},
		`--aim "moon": want one of weights, dense`:                                                                with("compile", "model.onnx", "--aim", "moon"),
		`--allocate "fair": want one of layer, global, norm`:                                                      with("compile", "model.onnx", "--allocate", "fair"),
		"layers have no error curves by channels":                                                                 with("compile", "model.onnx", "--pattern", "channel", "--prune", "wanda", "--allocate", "curves"),
		"--allocate curves: --pattern 2:4 sets the zeros of ea":                                                   {"compile", "model.onnx", "--pattern", "2:4", "--calib", "photos", "--preprocess", "imagenet", "--allocate", "curves"},
		"--allocate global: --pattern 2:4 sets the zeros of ea":                                                   {"compile", "model.onnx", "--pattern", "2:4", "--allocate", "global"},
	} {
		fails(t, args, want)
	}
}

func TestStatisticsOfPhotosThatChangedAreRefused(t *testing.T) {
	workspace(t)
	args := []string{"compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.5", "--calib", "photos", "--preprocess", "imagenet", "--allocate", "normalised", "--calib-cache", "cache"}
	ok(t, args...)
	ok(t, args...)
	photos, err := filepath.Glob("photos/*.*g")
	if err != nil || len(photos) < 2 {
		t.Fatal(photos, err)
	}
	b, err := os.ReadFile(photos[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(photos[0], append(b, 0), 0o644); err != nil { // in place, which the folder does not show
		t.Fatal(err)
	}
	fails(t, args, "cache: the statistics belong to another model or other samples")
}

// What --memory has no room for waits in a file: the same is written, one line and --json tell, and nothing is left behind.
func TestMemoryOfSamples(t *testing.T) {
	if !spool.Nameless {
		t.Skip("there are no files without a name here")
	}
	workspace(t)
	if err := os.Mkdir("out", 0o777); err != nil {
		t.Fatal(err)
	}
	compile := func(more ...string) []string {
		return append([]string{"compile", "model.onnx", "-o", "out/a.spx", "--sparsity", "0.5", "--allocate", "layer", "--calib", "photos", "--preprocess", "imagenet"}, more...)
	}
	const line = "waited in a file, beyond the 1 KB for them in memory"
	if out := ok(t, compile()...); strings.Contains(out, "waited in a file") {
		t.Errorf("%s, though all has room", out)
	}
	want, err := os.ReadFile("out/a.spx")
	if err != nil {
		t.Fatal(err)
	}
	if out := ok(t, compile("--memory", "1KB")...); !strings.Contains(out, line) {
		t.Errorf("%s, want %s", out, line)
	}
	if have, err := os.ReadFile("out/a.spx"); err != nil || !bytes.Equal(have, want) {
		t.Errorf("with --memory another file is written (%v)", err)
	}
	var r spc.Report
	if err := json.Unmarshal([]byte(ok(t, compile("--memory", "1KB", "--json")...)), &r); err != nil {
		t.Fatal(err)
	}
	if c := r.Calibration; c == nil || c.Limit != 1000 || c.Peak > 1000 || c.Spilled < 1000 || c.File < 1000 {
		t.Errorf("--json has %+v", c)
	}
	if left, err := os.ReadDir("out"); err != nil || len(left) != 1 {
		t.Errorf("%v, the folder has %v", err, left)
	}
	fails(t, []string{"compile", "model.onnx", "--sparsity", "0.5", "--memory", "1KB"}, "--memory has no use without --calib")
	fails(t, compile("--memory", "much"), `--memory "much": want a size such as 500MB or 4GB`)
}

// A cache of statistics is made with just those allocations that its help and its error list.
func TestStatisticsAreOfTheAllocationsThatAreListed(t *testing.T) {
	workspace(t)
	compile := func(allocate string) []string {
		return []string{"compile", "model.onnx", "-o", "a.spx", "--sparsity", "0.5", "--calib", "photos", "--preprocess", "imagenet", "--allocate", allocate, "--calib-cache", allocate + ".cache"}
	}
	fails(t, compile("layer"), "want --allocate global, normalised, curves, joint, auto")
	if help := strings.Join(strings.Fields(ok(t, "compile", "--help-all")), " "); !strings.Contains(help, "what --allocate global, normalised, curves, joint and auto, or a budget, see") {
		t.Errorf("%s, want the allocations that --calib-cache is for", help)
	}
	for _, allocate := range []string{"global", "normalised", "curves", "joint", "auto"} {
		ok(t, compile(allocate)...)
		if fileBytes(t, allocate+".cache") == 0 {
			t.Errorf("%s made no statistics", allocate)
		}
	}
}
