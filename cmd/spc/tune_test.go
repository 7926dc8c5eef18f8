package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc"
)

// tunedReport reads what compile and tune print with --json.
func tunedReport(t *testing.T, text string) spc.Report {
	t.Helper()
	var r spc.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	if r.Tuned == nil || r.Tuned.Measured+r.Tuned.Known == 0 || len(r.Tuned.Places) == 0 {
		t.Fatalf("tuned %+v", r.Tuned)
	}
	return r
}

// compile --tune and tune write models whose formats were measured, and say what was.
func TestTune(t *testing.T) {
	workspace(t)
	r := tunedReport(t, ok(t, "compile", "model.onnx", "-o", "tuned.spx", "--sparsity", "0.8", "--tune", "--tune-budget", "30s", "--json", "--quiet"))
	if !slices.Contains(r.Options.Command, "--tune") {
		t.Errorf("made by %q", r.Options.Command)
	}
	measured := 0
	for _, l := range r.Layers {
		for _, c := range l.Candidates {
			if c.MeasuredUs > 0 {
				measured++
			}
		}
	}
	if measured < len(r.Layers) {
		t.Errorf("%d candidates were measured", measured)
	}
	for _, args := range [][]string{{"inspect", "tuned.spx", "--layer", "*"}, {"inspect", "tuned.spx"}} {
		if text := ok(t, args...); !strings.Contains(text, "measured") {
			t.Errorf("spc %q: nothing of what was measured in\n%s", args, text)
		}
	}
	ok(t, "compile", "model.onnx", "-o", "plain.spx", "--sparsity", "0.8", "--quiet")
	before, err := os.ReadFile("plain.spx")
	if err != nil {
		t.Fatal(err)
	}
	text := ok(t, "tune", "plain.spx", "-o", "again.spx", "--threads", "1", "--tune-budget", "30s", "--quiet")
	for _, want := range []string{"tuned     ", "1 thread", "kept      the "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	ok(t, "verify", "model.onnx", "again.spx", "--tolerance", "10", "--quiet")
	if after, err := os.ReadFile("plain.spx"); err != nil || string(after) != string(before) {
		t.Errorf("the model that was tuned changed: %v", err)
	}
	// Nothing is measured again, be it that the model or a file has what was.
	for _, args := range [][]string{{"tune", "again.spx", "--threads", "1"}, {"tune", "again.spx", "--threads", "1", "--timings", "new.json"}, {"tune", "plain.spx", "--threads", "1"}} {
		r := tunedReport(t, ok(t, append(args, "-o", "twice.spx", "--tune-budget", "30s", "--json", "--quiet")...))
		if r.Tuned.Measured != 0 || r.Tuned.Known == 0 {
			t.Errorf("spc %q: %d measured, %d known", args, r.Tuned.Measured, r.Tuned.Known)
		}
	}
	// A file by default that is damaged is made anew, and that is told.
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	name, err := spc.TimingsName()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cache, "spc", name)
	if err := os.WriteFile(file, []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	got := spcRun("tune", "plain.spx", "-o", "last.spx", "--threads", "1", "--tune-budget", "30s", "--json", "--quiet")
	if lines := strings.Split(got.errors, "\n"); got.status != 0 || len(lines) != 2 || !strings.Contains(lines[0], ".json is made anew: ") {
		t.Errorf("status %d, errors %q", got.status, got.errors)
	}
	if r := tunedReport(t, got.out); r.Tuned.Measured == 0 {
		t.Errorf("%+v", r.Tuned)
	}
	if r := tunedReport(t, ok(t, "tune", "again.spx", "-o", "anew.spx", "--threads", "1", "--tune-budget", "30s", "--json", "--quiet", "--anew")); r.Tuned.Known != 0 {
		t.Errorf("--anew: %+v", r.Tuned)
	}
	// It is done without where it cannot be written, or is an output.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{file, "folder.spx"} {
		if out != file {
			if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o777)); err != nil {
				t.Fatal(err)
			}
		}
		got := spcRun("tune", "again.spx", "-o", out, "--threads", "1", "--json", "--quiet")
		if got.status != 0 || !strings.Contains(got.errors, "what is measured is not kept for other models: ") {
			t.Errorf("-o %s: status %d, errors %q", out, got.status, got.errors)
		}
		tunedReport(t, got.out)
	}
}

func TestTuneRefusals(t *testing.T) {
	workspace(t)
	if r := spcRun("compile", "model.onnx", "-o", "ell.spx", "--sparsity", "0.8", "--format", "ell", "--quiet"); r.status != 0 {
		t.Fatal(r.errors)
	}
	ok(t, "compile", "model.onnx", "-o", "gpu.spx", "--sparsity", "0.8", "--target", "cuda", "--quiet")
	if err := os.WriteFile("bad.json", []byte(`{"version": 7}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("other.json", []byte("{\n \"version\": 1,\n \"name\": \"another\"\n}"), 0o666); err != nil {
		t.Fatal(err)
	}
	before := listing(t, ".")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"tune", "model.onnx", "-o", "x.spx"}, "model.onnx is not compiled, want an .spx file; spc compile --tune"},
		{[]string{"tune", "ell.spx"}, "--output is missing"},
		{[]string{"tune", "gpu.spx", "-o", "gpu.spx"}, "a file that this command reads"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--quiet"}, "ell.spx: --format ell: want auto, which leaves a choice"},
		{[]string{"tune", "gpu.spx", "-o", "x.spx", "--quiet"}, "gpu.spx: --target cuda: what is measured is the CPU, want a model for cpu"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--tune-budget", "soon"}, "--tune-budget"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--tune-budget", "-1s"}, "want a time such as 60s or 5m, from 1s to 24h"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--timings", "bad.json"}, "--timings bad.json: timings of version 7, want 1"},
		{[]string{"compile", "model.onnx", "-o", "x.spx", "--tune", "--timings", "bad.json"}, "--timings bad.json: timings of version 7, want 1"},
		{[]string{"tune", "ell.spx", "-o", "x.onnx"}, "-o x.onnx, want an .spx file"},
		{[]string{"compile", "model.onnx", "-o", "new.spx", "--dump-passes", "new.spx"}, "--dump-passes new.spx is also the file of -o new.spx"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--anew", "--timings", "other.json"}, "want a file of timings to make anew"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--timings", "other.json"}, "want a file of timings, which names a machine"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--anew", "--timings", "ell.spx"}, "want a file of timings to make anew"},
		{[]string{"compile", "model.onnx", "-o", "x.spx", "--tune", "--anew", "--timings", "model.onnx"}, "want a file of timings to make anew"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--timings", "x.spx"}, "--timings x.spx is also the file of -o x.spx"},
		{[]string{"tune", "ell.spx", "-o", "x.spx", "--timings", "no/such/folder.json"}, "no such file"},
		{[]string{"tune", "ell.spx", "-o", "bad.json", "--timings", "bad.json"}, "bad.json: -o bad.json would replace it"},
		{[]string{"compile", "model.onnx", "-o", "x.spx", "--timings", "t.json"}, "--timings needs --tune, too"},
		{[]string{"compile", "model.onnx", "-o", "x.spx", "--tune-budget", "5s"}, "--tune-budget needs --tune, too"},
		{[]string{"compile", "model.onnx", "-o", "x.spx", "--tune", "--format", "ell"}, "--tune and --format exclude each other"},
		{[]string{"compile", "model.onnx", "--tune", "--stop-after", "fold"}, "exclude each other"},
		{[]string{"compile", "model.onnx", "-o", "x.spx", "--tune", "--target", "cuda", "--quiet"}, "--tune measures this machine's CPU, but --target is cuda"},
	} {
		fails(t, c.args, c.want)
	}
	if after := listing(t, "."); !slices.Equal(before, after) {
		t.Errorf("files %q, were %q", after, before)
	}
}
