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

// A mask of all tokens grows from step to step, where caches begin empty and where they are given.
func TestStepsWithAMask(t *testing.T) {
	built, err := archs.CachedDecoder(archs.CachedDecoderConfig{Layers: 2, Hidden: 32, Heads: 4, KVHeads: 2, FF: 64, Vocabulary: 50, Positions: 256, Padding: true}, 4)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	model := filepath.Join(dir, "lm.onnx")
	if err := os.WriteFile(model, built.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	write := func(name string, x []int64, shape ...int) string {
		path := filepath.Join(dir, name)
		if err := tensor.WriteNPY(path, tensor.From(x, shape...)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	run := func(to string, more ...string) map[string]*tensor.Tensor {
		ok(t, append([]string{"run", model, "-o", filepath.Join(dir, to)}, more...)...)
		out := map[string]*tensor.Tensor{}
		for _, name := range []string{"present.0.key", "present.1.value"} {
			x, err := tensor.ReadNPY(filepath.Join(dir, to, name+".npy"))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = x
		}
		return out
	}
	// Of two samples the second has two tokens that are hidden.
	mask := write("mask.npy", []int64{1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1}, 2, 6)
	empty := []string{"--shape", "past_key_values.0.key=2x2x0x8"}
	for i := range 2 {
		for _, kind := range []string{"key", "value"} {
			empty = append(empty, "-i", fmt.Sprintf("past_key_values.%d.%s=random:1", i, kind))
		}
	}
	want := run("want", append(empty, "--interpret", "-i", "attention_mask="+mask, "-i", "input_ids="+write("all.npy", []int64{7, 3, 49, 11, 5, 6, 0, 0, 12, 31, 8, 9}, 2, 6),
		"-i", "position_ids="+write("at.npy", []int64{0, 1, 2, 3, 4, 5, 0, 0, 0, 1, 2, 3}, 2, 6))...)
	check := func(how string, got map[string]*tensor.Tensor) {
		t.Helper()
		for name, x := range want {
			if e := largest(got[name], x); got[name].String() != x.String() || !(e < 1e-4) {
				t.Errorf("%s: %s %v is off by %g from %v", how, name, got[name], e, x)
			}
		}
	}
	pairs := []string{"-i", "input_ids=" + write("pairs.npy", []int64{7, 3, 0, 0, 49, 11, 12, 31, 5, 6, 8, 9}, 3, 2, 2), "-i", "position_ids=" + write("pairsat.npy", []int64{0, 1, 0, 0, 2, 3, 0, 1, 4, 5, 2, 3}, 3, 2, 2)}
	check("pairs", run("pairs", append(pairs, "-i", "attention_mask="+mask, "--steps", "3", "--tie", "auto")...))

	// Two tokens alone, whose caches the other four begin with, one each.
	run("two", append(empty, "-i", "attention_mask="+write("twomask.npy", []int64{1, 1, 1, 0}, 2, 2), "-i", "input_ids="+write("two.npy", []int64{7, 3, 0, 0}, 2, 2), "-i", "position_ids="+write("twoat.npy", []int64{0, 1, 0, 0}, 2, 2))...)
	rest := []string{"-i", "attention_mask=" + mask, "-i", "input_ids=" + write("rest.npy", []int64{49, 12, 11, 31, 5, 8, 6, 9}, 4, 2, 1), "-i", "position_ids=" + write("restat.npy", []int64{2, 0, 3, 1, 4, 2, 5, 3}, 4, 2, 1)}
	for i := range 2 {
		for _, kind := range []string{"key", "value"} {
			rest = append(rest, "-i", fmt.Sprintf("past_key_values.%d.%s=%s", i, kind, filepath.Join(dir, "two", fmt.Sprintf("present.%d.%s.npy", i, kind))))
		}
	}
	check("goes on", run("rest", append(rest, "--steps", "4", "--tie", "auto")...))

	r := spcRun(append([]string{"run", model, "--steps", "3", "--tie", "auto", "-i", "attention_mask=" + write("short.npy", []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 2, 5)}, pairs...)...)
	if r.status == 0 || !strings.Contains(r.errors, "attention_mask") || strings.Count(r.errors, "\n") != 1 {
		t.Errorf("status %d, %q, want a line on the mask", r.status, r.errors)
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
	if r := spcRun("bench", plain, "--decode", "8:4"); !strings.Contains(r.errors, "--tie auto: no output has the name and the sizes of a cache") {
		t.Error(r.errors)
	}
}
