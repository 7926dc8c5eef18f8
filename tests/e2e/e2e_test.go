// Package e2e evaluates whole trained models and compares them with what ONNX
// Runtime computed.
package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"spc/ir/tensor"
	"spc/tests/conformance"
)

// tolerance bounds the relative l2 error of every output.
const tolerance = 1e-4

// models lists the trained models; the slow ones are skipped under -short.
var models = []struct {
	name string
	slow bool
}{
	{"basic-pitch", true},
	{"gtcrn", false},
	{"mnist-8", false},
	{"mnist-opt", false},
	{"mobilenetv2-imagenet", true},
	{"ppocr-cls", false},
	{"ppocrv3-det", true},
	{"resnet20-cifar10", true},
	{"resnet56-cifar10", true},
	{"shufflenetv2-imagenet", true},
	{"silero-vad", false},
	{"silero-vad-ifless", false},
	{"squeezenet1.1-imagenet", true},
	{"stories260k", false},
	{"super-resolution", true},
	{"ultraface-rfb-320", true},
	{"vit-cifar10", false},
	{"yolox-nano", true},
}

func TestModelsReproduceStoredOutputs(t *testing.T) {
	root := filepath.Join(conformance.Shared(), "models")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	w := table.NewWriter()
	w.AppendHeader(table.Row{"model", "bytes", "pipeline", "prepare", "run", "rel. l2 error"})
	for _, m := range models {
		for _, p := range conformance.Pipelines {
			t.Run(m.name+"/"+p.Name, func(t *testing.T) {
				if m.slow && testing.Short() {
					t.Skip("slow")
				}
				row := evaluate(t, filepath.Join(root, m.name), p)
				w.AppendRow(append(table.Row{m.name}, row...))
			})
		}
	}
	t.Log("\n" + w.Render())
}

// evaluate runs the model in a folder on its stored inputs and returns a row for
// the table.
func evaluate(t *testing.T, dir string, p conformance.Pipeline) table.Row {
	model, err := os.ReadFile(filepath.Join(dir, "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	start := time.Now()
	run, err := p.Prepare(ctx, model)
	if err != nil {
		t.Fatal(err)
	}
	prepared := time.Since(start)
	in, want := stored(t, dir, "input"), stored(t, dir, "output")
	start = time.Now()
	got, err := run(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if len(got) != len(want) {
		t.Fatalf("%d outputs, want %d", len(got), len(want))
	}
	worst := 0.0
	for i, g := range got {
		e, err := relL2(g, want[i])
		if err != nil {
			t.Fatalf("output %d: %v", i, err)
		}
		if worst = max(worst, e); !(e <= tolerance) {
			t.Errorf("output %d: relative l2 error %.3g, want at most %.0e", i, e, tolerance)
		}
	}
	return table.Row{len(model), p.Name, prepared.Round(time.Millisecond), took.Round(time.Millisecond), fmt.Sprintf("%.2g", worst)}
}

// stored reads DIR/KIND_0.pb and so on.
func stored(t *testing.T, dir, kind string) []*tensor.Tensor {
	files, err := filepath.Glob(filepath.Join(dir, kind+"_*.pb"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", kind, dir, err)
	}
	slices.SortFunc(files, func(a, b string) int { // _2 before _10
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	var list []*tensor.Tensor
	for _, f := range files {
		x, _, err := tensor.ReadTensorProto(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	return list
}

// relL2 is |a-b| / max(|b|, 1e-12); tensors of integers and bools must be equal.
func relL2(a, b *tensor.Tensor) (float64, error) {
	if a.DType() != b.DType() || !slices.Equal(a.Shape(), b.Shape()) {
		return 0, fmt.Errorf("%v, want %v", a, b)
	}
	if !b.DType().IsFloat() {
		if !a.Equal(b) {
			return 0, fmt.Errorf("%v: the elements differ", a)
		}
		return 0, nil
	}
	x, y := a.Float64s(), b.Float64s()
	diff, norm := 0.0, 0.0
	for i := range y {
		diff += (x[i] - y[i]) * (x[i] - y[i])
		norm += y[i] * y[i]
	}
	return math.Sqrt(diff) / max(math.Sqrt(norm), 1e-12), nil
}
