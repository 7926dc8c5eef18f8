package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spc"
	"spc/tests/archs"
	"spc/tests/bench"
)

// execute runs the program with arguments and returns what it prints.
func execute(ctx context.Context, args ...string) (string, error) {
	c := command()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// models writes a tiny network as resnet50.onnx.
func models(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	m, err := archs.Tiny[0].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "resnet50.onnx"), m.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSparseWritesWhatItPrints(t *testing.T) {
	save := filepath.Join(t.TempDir(), "results")
	out, err := execute(context.Background(), "sparse", "resnet50-uniform-80", "--pattern", "block:*", "--models", models(t),
		"--threads", "1", "--rounds", "1", "--runs", "1", "--save", save)
	if err != nil {
		t.Fatal(err)
	}
	r, err := bench.Read(filepath.Join(save, "sparse.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sparse) != 6 || r.Sparse[5].Sparsity != 0.95 {
		t.Errorf("%+v", r.Sparse)
	}
	text, err := os.ReadFile(filepath.Join(save, "sparse.txt"))
	if err != nil || string(text) != out || !strings.Contains(out, "block:4x1") {
		t.Errorf("%v\n%s\nand printed\n%s", err, text, out)
	}
}

func TestCancelledRunsKeepOldResults(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	save := t.TempDir()
	old := filepath.Join(save, "sparse.json")
	if err := os.WriteFile(old, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := execute(ctx, "sparse", "resnet50-uniform-80", "--models", models(t), "--save", save)
	if b, _ := os.ReadFile(old); !errors.Is(err, context.Canceled) || string(b) != "old" {
		t.Errorf("error %v, file %q", err, b)
	}
}

func TestBadArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"no row is named like":         {"ort", "nothing"},
		"no pattern is named":          {"sparse", "--pattern", "round"},
		"folder of --save":             {"sparse", "--resume"},
		"--threads 0":                  {"sparse", "resnet50", "--threads", "0"},
		"--rounds 0":                   {"sparse", "resnet50", "--rounds", "0"},
		"want both files or none":      {"docs", "a.json"},
		"npm install":                  {"ort", "resnet50", "--ort", t.TempDir()},
		"no such file":                 {"docs", "a.json", "b.md"},
		"unknown command \"fast\" for": {"fast"},
	} {
		_, err := execute(context.Background(), args...)
		if err == nil || !strings.Contains(err.Error(), want) && !errors.Is(err, bench.ErrNoORT) {
			t.Errorf("%v: error %v, want %s", args, err, want)
		}
	}
}

func TestDocumentIsWrittenFromResults(t *testing.T) {
	dir := t.TempDir()
	results, doc := filepath.Join(dir, "r.json"), filepath.Join(dir, "speed.md")
	r := bench.Results{Rows: []bench.Result{{Name: "net", Group: bench.Dense, Threads: 1, Ratio: bench.Spread{Median: 1.5}}}}
	if err := r.Write(results); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(doc, []byte("# x\n<!-- bench-ort -->\n<!-- /bench-ort -->\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := execute(context.Background(), "docs", results, doc); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(doc); !strings.HasPrefix(string(b), "# x\n") || !strings.Contains(string(b), "| net |") {
		t.Errorf("the document is\n%s", b)
	}
}

// predict measures members, writes what it prints, and fits a profile.
func TestPredict(t *testing.T) {
	t.Chdir("../../..")
	dir, save := t.TempDir(), filepath.Join(t.TempDir(), "results")
	b := archs.New("member", 1)
	y := b.Input("x", archs.Float32, 64, 128)
	for _, w := range []string{"first", "middle", "last"} { // the ends stay dense
		y = b.Node("Sigmoid", nil, b.Node("MatMul", nil, y, b.Weight(w, archs.LeCun(128), 128, 128)))
	}
	b.Output("y", y, archs.Float32, 64, 128)
	m, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dlrm.onnx"), m.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	profile := filepath.Join(dir, "here.json")
	if err := spc.WriteProfile(profile, spc.DefaultProfile()); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t.Context(), "predict", "dlrm", "--models", dir, "--threads", "2,1", "--profile", profile, "--fit", profile, "--save", save)
	if err != nil {
		t.Fatal(err)
	}
	r, err := bench.Read(filepath.Join(save, "predicted-default.json"))
	if err != nil || len(r.Predicted) != 4 || !strings.Contains(out, "zeros, 1 thread: of ") && r.Predicted[0].Ms >= 0.2 {
		t.Fatalf("%v, %+v\n%s", err, r, out)
	}
	for _, p := range r.Predicted {
		if !(p.Ms > 0) || !(p.PredictedMs > 0) || p.Error != "" || p.Name != "dlrm" {
			t.Errorf("%+v", p)
		}
	}
	if p, err := spc.FindProfile(profile); err != nil || p.Threads == spc.DefaultProfile().Threads {
		t.Errorf("the profile was not fitted: %v, %v", p.Threads, err)
	}
	if _, err := execute(t.Context(), "predict", "dlrm", "--models", dir, "--fit", "default"); err == nil {
		t.Error("the default profile is fitted under its name")
	}
}
