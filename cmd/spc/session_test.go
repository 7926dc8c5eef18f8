package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spc/ir/tensor"
	"spc/tests/archs"
)

// cachedModel writes a decoder with caches, and the tokens of four steps.
func cachedModel(t *testing.T) (model, ids, positions string) {
	t.Helper()
	built, err := archs.CachedDecoder(archs.CachedDecoderConfig{Layers: 2, Hidden: 32, Heads: 4, KVHeads: 4, FF: 64, Vocabulary: 50, Positions: 256}, 3)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	model, ids, positions = filepath.Join(dir, "lm.onnx"), filepath.Join(dir, "ids.npy"), filepath.Join(dir, "at.npy")
	if err := os.WriteFile(model, built.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	for path, x := range map[string][]int64{ids: {7, 3, 49, 11}, positions: {0, 1, 2, 3}} {
		if err := tensor.WriteNPY(path, tensor.From(x, 4, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	return model, ids, positions
}

// Steps on one token each end where a run on all tokens does, compiled and interpreted.
func TestSteps(t *testing.T) {
	model, ids, positions := cachedModel(t)
	want := filepath.Join(t.TempDir(), "want")
	all := func(name string, x ...int64) string {
		path := filepath.Join(t.TempDir(), name)
		if err := tensor.WriteNPY(path, tensor.From(x, 1, 4)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := []string{"run", model, "--interpret", "-i", "input_ids=" + all("ids.npy", 7, 3, 49, 11), "-i", "position_ids=" + all("at.npy", 0, 1, 2, 3), "-o", want}
	for i := range 2 {
		for _, kind := range []string{"key", "value"} {
			args = append(args, "-i", fmt.Sprintf("past_key_values.%d.%s=random:1", i, kind))
		}
	}
	ok(t, append(args, "--shape", "past_key_values.0.key=1x4x0x8")...)
	for name, more := range map[string][]string{
		"compiled": {"--tie", "auto"}, "interpreted": {"--tie", "auto", "--interpret"}, "by names": {"--tie", "present.*=past_key_values.*"},
	} {
		dir := filepath.Join(t.TempDir(), "got")
		ok(t, append([]string{"run", model, "--steps", "4", "-i", "input_ids=" + ids, "-i", "position_ids=" + positions, "-o", dir}, more...)...)
		got, err := tensor.ReadNPY(filepath.Join(dir, "present.1.value.npy"))
		if err != nil {
			t.Fatal(err)
		}
		full, err := tensor.ReadNPY(filepath.Join(want, "present.1.value.npy"))
		if err != nil {
			t.Fatal(err)
		}
		if e := largest(got, full); got.String() != full.String() || !(e < 1e-4) {
			t.Errorf("%s: %v is off by %g from %v", name, got, e, full)
		}
	}
	for want, args := range map[string][]string{
		"--steps needs --tie, too":                    {"--steps", "2"},
		"--tie needs --steps, too":                    {"--tie", "auto"},
		"--tie present: want OUTPUT=INPUT":            {"--steps", "4", "--tie", "present"},
		"--tie x*=y*: no output is named so":          {"--steps", "4", "--tie", "x*=y*"},
		`no input is named "nothing"`:                 {"--steps", "4", "--tie", "auto", "--tie", "logits=nothing"},
		"output logits is f32[batch,tokens,50], want": {"--steps", "4", "--tie", "auto", "--tie", "logits=input_ids"},
	} {
		r := spcRun(append([]string{"run", model, "-i", "input_ids=" + ids, "-i", "position_ids=" + positions}, args...)...)
		if r.status == 0 || !strings.Contains(r.errors, want) || strings.Count(r.errors, "\n") != 1 {
			t.Errorf("%v: status %d, %q, want %s", args, r.status, r.errors, want)
		}
	}
}

// largest is the largest difference of elements.
func largest(a, b *tensor.Tensor) float64 {
	worst := 0.0
	x, y := a.Float64s(), b.Float64s()
	for i := range min(len(x), len(y)) {
		worst = max(worst, x[i]-y[i], y[i]-x[i])
	}
	return worst
}

// bench --decode measures a prompt and steps.
func TestDecode(t *testing.T) {
	model, _, _ := cachedModel(t)
	var r decodeTimes
	if err := json.Unmarshal([]byte(ok(t, "bench", model, "--decode", "8:4", "--batch", "2", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Prompt != 8 || r.Steps != 4 || r.Batch != 2 || !(r.FirstMs > 0 && r.Tokens > 0 && r.Ms.P50 > 0) || r.PeakBytes == 0 {
		t.Errorf("%+v", r)
	}
	if text := ok(t, "bench", model, "--decode", "8:4"); !strings.Contains(text, "a prompt of 8 tokens and 4 steps") {
		t.Error(text)
	}
	grouped, err := archs.CachedDecoder(archs.CachedDecoderConfig{Layers: 2, Hidden: 32, Heads: 4, KVHeads: 2, FF: 64, Vocabulary: 50, Positions: 256, Grouped: true}, 3)
	if err != nil {
		t.Fatal(err)
	}
	counts := filepath.Join(t.TempDir(), "grouped.onnx") // whose lengths are inputs
	if err := os.WriteFile(counts, grouped.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	if text := ok(t, "bench", counts, "--decode", "8:4"); !strings.Contains(text, "a prompt of 8 tokens and 4 steps") {
		t.Error(text)
	}
	for want, args := range map[string][]string{
		"no input is named \"past.0.key\", to which output present.0.key is tied": {"--decode", "8:1", "--tie", "present.*=past.*"},
		"want PROMPT:STEPS":                      {"--decode", "8"},
		"both at least 1":                        {"--decode", "8:0"},
		"--decode and --runs exclude each other": {"--decode", "8:1", "--runs", "3"},
		"--tie needs --decode, too":              {"--tie", "auto"},
	} {
		if r := spcRun(append([]string{"bench", model}, args...)...); r.status == 0 || !strings.Contains(r.errors, want) {
			t.Errorf("%v: status %d, %q, want %s", args, r.status, r.errors, want)
		}
	}
	plain := filepath.Join(t.TempDir(), "plain.onnx")
	lm, err := archs.Decoder(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plain, lm.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	if r := spcRun("bench", plain, "--decode", "8:4"); !strings.Contains(r.errors, "--tie auto: no output is named so") {
		t.Error(r.errors)
	}
}
