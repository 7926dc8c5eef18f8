// Package e2e evaluates whole trained models and compares them with what ONNX
// Runtime computed on the same inputs.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"spc/ir/tensor"
	"spc/tests/conformance"
)

// Tolerance bounds the relative l2 error of every output of models in f32.
const Tolerance = 1e-4

// Models lists the trained models, folders of shared/models.
var Models = []string{
	"basic-pitch",
	"gtcrn",
	"mnist-8",
	"mnist-opt",
	"mobilenetv2-imagenet",
	"ppocr-cls",
	"ppocrv3-det",
	"resnet20-cifar10",
	"resnet56-cifar10",
	"shufflenetv2-imagenet",
	"silero-vad",
	"silero-vad-ifless",
	"squeezenet1.1-imagenet",
	"stories260k",
	"super-resolution",
	"ultraface-rfb-320",
	"vit-cifar10",
	"yolox-nano",
}

// Root is the folder of the trained models.
func Root() string { return filepath.Join(conformance.Shared(), "models") }

// Result is how a model did in a pipeline.
type Result struct {
	Model, Pipeline string        // or the pattern of zeros
	Bytes           int           // of the ONNX file, or of the .spx
	Prepare, Run    time.Duration // the first run, which may include binding kernels
	RelL2           float64       // the largest of the outputs
	Err             error
}

// Evaluate runs a model on its stored inputs. An output whose relative l2 error is beyond a
// tolerance is an error.
func Evaluate(ctx context.Context, p conformance.Pipeline, model string, tolerance float64) Result {
	r := Result{Model: model, Pipeline: p.Name}
	r.Err = r.evaluate(ctx, p, filepath.Join(Root(), model), tolerance)
	return r
}

func (r *Result) evaluate(ctx context.Context, p conformance.Pipeline, dir string, tolerance float64) error {
	model, err := os.ReadFile(filepath.Join(dir, "model.onnx"))
	if err != nil {
		return err
	}
	r.Bytes = len(model)
	in, err := Stored(dir, "input")
	if err != nil {
		return err
	}
	want, err := Stored(dir, "output")
	if err != nil {
		return err
	}
	start := time.Now()
	run, err := p.Prepare(ctx, model)
	if err != nil {
		return err
	}
	r.Prepare = time.Since(start)
	start = time.Now()
	got, err := run(ctx, in)
	if err != nil {
		return err
	}
	r.Run = time.Since(start)
	r.RelL2, err = Compare(got, want, tolerance)
	return err
}

// Compare returns the largest relative l2 error of the outputs, and an error
// where one is beyond a tolerance or of another type or shape.
func Compare(got, want []*tensor.Tensor, tolerance float64) (worst float64, err error) {
	if len(got) != len(want) {
		return 0, fmt.Errorf("%d outputs, want %d", len(got), len(want))
	}
	for i := range want {
		e, err := RelL2(got[i], want[i])
		if err != nil {
			return worst, fmt.Errorf("output %d: %w", i, err)
		}
		if worst = max(worst, e); !(e <= tolerance) {
			return worst, fmt.Errorf("output %d: relative l2 error %.3g, want at most %.0e", i, e, tolerance)
		}
	}
	return worst, nil
}

// RelL2 is |a-b| / max(|b|, 1e-12); integers, bools and strings must be equal.
func RelL2(a, b *tensor.Tensor) (float64, error) {
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

// Stored reads DIR/KIND_0.pb, DIR/KIND_1.pb and so on.
func Stored(dir, kind string) ([]*tensor.Tensor, error) {
	var list []*tensor.Tensor
	for {
		t, _, err := tensor.ReadTensorProto(filepath.Join(dir, fmt.Sprintf("%s_%d.pb", kind, len(list))))
		if errors.Is(err, fs.ErrNotExist) && len(list) > 0 {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
}

// Table renders results, a line each.
func Table(results []Result) string {
	w := table.NewWriter()
	w.AppendHeader(table.Row{"model", "bytes", "pipeline", "prepare", "run", "rel. l2 error", ""})
	for _, r := range results {
		status := "passed"
		if r.Err != nil {
			status = r.Err.Error()
		}
		w.AppendRow(table.Row{r.Model, r.Bytes, r.Pipeline, r.Prepare.Round(time.Millisecond), r.Run.Round(time.Millisecond), fmt.Sprintf("%.1e", r.RelL2), status})
	}
	return w.Render()
}
