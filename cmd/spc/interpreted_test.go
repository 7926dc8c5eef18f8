package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/tests/graphtest"
)

// compile warns once of what the CPU has no kernel for, whatever that is just now, and inspect and bench show it.
func TestTheInterpreterIsShown(t *testing.T) {
	t.Chdir(t.TempDir())
	found := ""
	for _, kind := range []string{"Det", "Hardmax", "MeanVarianceNormalization", "Celu", "ThresholdedRelu"} {
		writeFile(t, "slow.onnx", graphtest.ONNX(t, fmt.Sprintf(`graph "g"(%%x: f32[2,8,32,32]) {
  %%r: f32[*] = Relu "fast" (%%x)
  %%y: f32[*] = %s "slow" (%%r)
  return %%y
}`, kind)))
		if r := decoded[spc.Report](t, "inspect", "slow.onnx"); len(r.Interpreted) > 0 {
			found = kind
			if k := r.Interpreted[0]; len(r.Interpreted) != 1 || k.Op != kind || !slices.Equal(k.Nodes, []string{"slow"}) || !(k.Share > 0.5) {
				t.Errorf("%+v", r.Interpreted)
			}
			break
		}
	}
	if found == "" {
		t.Fatal("every operator has a kernel")
	}
	r := spcRun("compile", "slow.onnx")
	if line := "% of the time will be spent in the interpreter: " + found + " "; r.status != 0 || strings.Count(r.errors, "\n") != 1 || !strings.Contains(r.errors, line) {
		t.Errorf("status %d, errors %q, want one line with %q", r.status, r.errors, line)
	}
	if r := spcRun("compile", "slow.onnx", "--json"); !strings.Contains(r.out, `"interpreted": [`) {
		t.Errorf("%s", r.out)
	}
	for _, model := range []string{"slow.onnx", "slow.spx"} {
		if out := ok(t, "inspect", model); !strings.Contains(out, "interpreted 1 "+found+" node, about ") || !strings.Contains(out, "% of the time: slow\n") {
			t.Errorf("inspect %s:\n%s", model, out)
		}
		out := ok(t, "bench", model, "--runs", "1", "--warmup", "0")
		for _, line := range strings.Split(out, "\n") {
			if name, _, _ := strings.Cut(line, " "); strings.HasSuffix(strings.TrimSpace(line), "interpreted") != (name == "slow") {
				t.Errorf("bench %s: %q", model, line)
			}
		}
		for _, l := range decoded[benchmark](t, "bench", model, "--runs", "1").Layers {
			if l.Interpreted != (l.Name == "slow") {
				t.Errorf("bench %s: %+v", model, l)
			}
		}
	}
}

func TestNothingIsSaidOfKernels(t *testing.T) {
	workspace(t)
	if r := spcRun("compile", "model.onnx"); r.status != 0 || r.errors != "" {
		t.Errorf("status %d, errors %q", r.status, r.errors)
	}
	for _, command := range []string{"inspect", "bench"} {
		if out := ok(t, command, "model.onnx"); strings.Contains(out, "interpreted") {
			t.Errorf("%s:\n%s", command, out)
		}
	}
}
