package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"spc"
)

// compile and inspect say what a run is predicted to take, and what it would were all weights dense.
func TestPredictedRun(t *testing.T) {
	workspace(t)
	line := regexp.MustCompile(`(?m)^predicted [0-9.]+ ms on 1 thread, dense [0-9.]+ ms, [0-9.]+x, by the profile default$`)
	for _, text := range []string{ok(t, "compile", "model.onnx", "-o", "m.spx", "--sparsity", "0.9"), ok(t, "inspect", "m.spx")} {
		if !line.MatchString(text) {
			t.Errorf("%s, want a prediction", text)
		}
	}
	if out := ok(t, "bench", "m.spx", "--runs", "2", "--warmup", "0", "--threads", "2"); !regexp.MustCompile(`(?m)^predicted [0-9.]+ ms on 2 threads, .*by the profile default$`).MatchString(out) {
		t.Errorf("%s, want a prediction", out)
	}
	var r spc.Report
	if err := json.Unmarshal([]byte(ok(t, "inspect", "m.spx", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if p := r.Predicted; p == nil || !(p.Ms > 0) || !(p.DenseMs > p.Ms) || p.Threads != 1 || p.Unsized != 0 {
		t.Errorf("%+v", p)
	}
	// Where sizes are open no time is said, and why.
	if out := ok(t, "compile", "lm.onnx", "-o", "lm.spx"); !strings.Contains(out, "\npredicted no time, as sizes of inputs are open; ") {
		t.Errorf("%s", out)
	}
}
