package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"spc/tests/conformance"
)

// Baseline is what spc eval must measure of a dense model. Photos leave a little
// more room than arrays: JPEG decoders differ by a level here and there.
type Baseline struct {
	Model     string
	Args      string // of spc eval; words that begin with @ are paths in shared/data
	Value     float64
	Tolerance float64
	Quick     bool // takes seconds
}

// Baselines lists the accuracies, in percent, and the perplexity that ONNX Runtime
// reached on the shared data.
var Baselines = []Baseline{
	{"mnist-8", "--data @mnist-test/t10k-images-idx3-ubyte.gz --labels @mnist-test/t10k-labels-idx1-ubyte.gz --preprocess none", 98.91, 0.2, true},
	{"stories260k", "--data @tinystories-sampled/tokens.npy --metric perplexity", 3.3493, 0.005, true},
	{"mobilenetv2-imagenet", "--data @imagenet1k-sample --preprocess tf --skip-class 0", 88.1, 0.3, false},
	{"shufflenetv2-imagenet", "--data @imagenet1k-sample --preprocess imagenet", 83.5, 0.3, false},
	{"squeezenet1.1-imagenet", "--data @imagenet1k-sample --preprocess caffe", 60.1, 0.3, false},
	{"resnet20-cifar10", "--data @cifar10-test/test_images_u8.npy --labels @cifar10-test/test_labels.npy --preprocess imagenet", 81.03, 0.2, false},
	{"resnet56-cifar10", "--data @cifar10-test/test_images_u8.npy --labels @cifar10-test/test_labels.npy --preprocess imagenet", 83.20, 0.2, false},
	{"vit-cifar10", "--data @cifar10-test/test_images_u8.npy --labels @cifar10-test/test_labels.npy --preprocess cifar", 59.60, 0.2, false},
}

// Evaluation is the JSON of spc eval.
type Evaluation struct {
	Metric  string
	Value   float64
	Top5    *float64
	N       int
	Seconds float64
}

// Measure runs spc eval, a program at a path. A value further from the baseline
// than its tolerance is an error.
func (b *Baseline) Measure(ctx context.Context, spc string) (e Evaluation, err error) {
	args := []string{"eval", filepath.Join(Root(), b.Model, "model.onnx"), "--json"}
	for _, a := range strings.Fields(b.Args) {
		if path, ok := strings.CutPrefix(a, "@"); ok {
			a = filepath.Join(conformance.Shared(), "data", path)
		}
		args = append(args, a)
	}
	out, err := exec.CommandContext(ctx, spc, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return e, fmt.Errorf("%s", bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(out, &e); err != nil {
		return e, err
	}
	if !(math.Abs(e.Value-b.Value) <= b.Tolerance+1e-9) {
		err = fmt.Errorf("%s is %.4g, want %.4g within %.3g", e.Metric, e.Value, b.Value, b.Tolerance)
	}
	return e, err
}

// AccuracyTable renders measurements of baselines, a line each.
func AccuracyTable(baselines []Baseline, measured []Evaluation, errs []error) string {
	w := table.NewWriter()
	w.AppendHeader(table.Row{"model", "metric", "baseline", "measured", "top-5", "samples", "seconds", ""})
	for i, b := range baselines {
		e, status, top5 := measured[i], "passed", ""
		if errs[i] != nil {
			status = errs[i].Error()
		}
		if e.Top5 != nil {
			top5 = fmt.Sprintf("%.2f", *e.Top5)
		}
		w.AppendRow(table.Row{b.Model, e.Metric, b.Value, fmt.Sprintf("%.4g", e.Value), top5, e.N, fmt.Sprintf("%.1f", e.Seconds), status})
	}
	return w.Render()
}
