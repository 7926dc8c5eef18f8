package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"spc/tests/conformance"
)

// Flags of spc compile that prune every cell of the table, and those that reconstruct besides: no cell has
// flags of its own. Ends are kept as they were when the bars were measured, before that depended on their size.
// The recipes behind --reconstruct were chosen within the even samples, see RATIONALE.md.
const (
	pruneFlags       = "--keep ends --prune obs"
	reconstructFlags = "--reconstruct"
)

// PrunedModel is a model that is pruned on the even samples and measured on the odd
// ones.
type PrunedModel struct {
	Model   string
	Data    string // flags that name the samples, for compile as for eval but for --data
	Eval    string // further flags of eval
	Samples int    // that calibration sees
	// Floors holds what an implementation without gradients reached, Aims what
	// reconstruction is to reach, by cell; what is not there has none.
	Floors, Aims map[string]float64
	Noise        float64 // within which two measurements are the same: points, or a share of a perplexity
	Perplexity   bool
	Choice       *Split // in place of the usual one, where there are few samples
}

// Cells lists the prunings of the table: a sparsity of uniform rows in percent, or a
// pattern, after an @ with its sparsity; with +int8 in 8-bit integers besides, and int8
// without pruning. The first is the model as it is.
var Cells = []string{Whole, "30", "50", "60", "70", "80", "2:4", "4:8", "uniform-block:4x1@50", "int8", "50+int8"}

// Whole is the cell of the dense model.
const Whole = "dense"

// quantised cuts int8 from a cell that has it: what is left is pruned, if anything is.
func quantised(cell string) (rest string, ok bool) {
	if cell == "int8" {
		return "", true
	}
	return strings.CutSuffix(cell, "+int8")
}

// quantisedLoss is how many points of accuracy 8-bit integers may lose.
const quantisedLoss = 1

const (
	cifar  = "cifar10-test/test_images_u8.npy"
	photos = "imagenet1k-sample"
)

// PrunedModels lists the models of the table.
var PrunedModels = []PrunedModel{
	{
		Model: "mobilenetv2-imagenet", Data: "@" + photos + " --preprocess tf", Eval: "--skip-class 0", Samples: 500, Noise: 2,
		Floors: map[string]float64{"30": 87.2, "50": 73.4, "60": 47.4, "70": 40.2, "2:4": 48.4, "4:8": 60.0},
		Aims:   map[string]float64{"50": 80, "60": 70, "70": 55, "2:4": 70, "uniform-block:4x1@50": 60},
	},
	{
		Model: "squeezenet1.1-imagenet", Data: "@" + photos + " --preprocess caffe", Samples: 500, Noise: 2,
		Floors: map[string]float64{"30": 62.0, "50": 61.8, "60": 60.2, "70": 57.6, "80": 28.8, "2:4": 46.2, "4:8": 53.0},
		Aims:   map[string]float64{"50": 61, "60": 60, "70": 58, "2:4": 55, "uniform-block:4x1@50": 52},
	},
	{
		Model: "resnet56-cifar10", Data: "@" + cifar + " --preprocess imagenet", Eval: "--labels @cifar10-test/test_labels.npy", Samples: 512, Noise: 1,
		Floors: map[string]float64{"50": 82.8, "60": 82.6, "70": 81.9, "80": 80.2, "2:4": 81.6, "4:8": 81.8},
		Aims:   map[string]float64{"50": 82.5, "60": 82.5, "70": 82, "2:4": 82, "uniform-block:4x1@50": 80},
	},
	{
		Model: "resnet20-cifar10", Data: "@" + cifar + " --preprocess imagenet", Eval: "--labels @cifar10-test/test_labels.npy", Samples: 512, Noise: 1,
		Floors: map[string]float64{"30": 81.4, "50": 81.4, "60": 67.3, "70": 79.3, "80": 73.4, "2:4": 78.7, "4:8": 79.3},
	},
	{
		Model: "vit-cifar10", Data: "@" + cifar + " --preprocess cifar", Eval: "--labels @cifar10-test/test_labels.npy", Samples: 512, Noise: 1,
		Floors: map[string]float64{"30": 60.5, "50": 59.0, "60": 57.4, "70": 55.4, "80": 48.6, "2:4": 56.0, "4:8": 56.7},
		Aims:   map[string]float64{"50": 59, "60": 58, "70": 56, "2:4": 57, "uniform-block:4x1@50": 56},
	},
	{
		Model: "stories260k", Data: "@tinystories-sampled/tokens.npy", Samples: 16, Noise: 0.05, Perplexity: true, Choice: &Split{"0:24:2", "24::2"},
		Floors: map[string]float64{"30": 3.77, "50": 6.99, "60": 12.7, "70": 26.2, "2:4": 16.1, "4:8": 10.9},
		Aims:   map[string]float64{"50": 5.5, "60": 8, "70": 14, "2:4": 9, "uniform-block:4x1@50": 10},
	},
}

// PrunedResult is a cell of the table.
type PrunedResult struct {
	Model       string   `json:"model"`
	Cell        string   `json:"cell"`
	Reconstruct bool     `json:"reconstruct"`
	Command     string   `json:"command"`
	Allocate    string   `json:"allocate"` // that was chosen
	Metric      string   `json:"metric"`
	Value       float64  `json:"value"`
	Sparsity    float64  `json:"sparsity"` // of the prunable weights
	Samples     int      `json:"samples"`  // that were measured
	Compile     float64  `json:"compile_seconds"`
	Bar         *float64 `json:"bar,omitempty"` // the floor, with reconstruction the aim
	Error       string   `json:"error,omitempty"`
	Date        string   `json:"date,omitempty"` // and where it was measured
	Commit      string   `json:"commit,omitempty"`
	CPU         string   `json:"cpu,omitempty"`
}

// words splits flags and puts the folder of the data in place of @.
func words(flags string) []string {
	out := strings.Fields(flags)
	for i, a := range out {
		if path, ok := strings.CutPrefix(a, "@"); ok {
			out[i] = filepath.Join(conformance.Shared(), "data", path)
		}
	}
	return out
}

// Split says which samples calibrate and which measure, as spc's --samples does.
type Split struct{ Calibrate, Measure string }

// Even and odd samples make the table. Recipes are chosen within the even ones, so that
// what the table measures was never looked at.
var (
	Tabled = Split{"even", "odd"}
	Choice = Split{"0::4", "2::4"}
)

// command is the command line for flags.
func command(flags string) string {
	return strings.TrimSpace("spc compile model.onnx " + strings.ReplaceAll(flags, "@", ""))
}

// flags are those of spc compile for a cell.
func (m *PrunedModel) flags(cell string, reconstruct bool, s Split) string {
	seen := fmt.Sprintf("--calib %s --samples %s --calib-samples %d", m.Data, s.Calibrate, m.Samples)
	cell, integers := quantised(cell)
	if integers {
		seen = "--quantize int8 " + seen
	}
	switch {
	case cell == Whole:
		return ""
	case cell == "":
		return seen
	}
	f := pruneFlags
	if reconstruct {
		f += " " + reconstructFlags
	}
	pattern, sparsity, blocks := strings.Cut(cell, "@")
	percent, err := strconv.Atoi(cell)
	switch {
	case err == nil:
		f = fmt.Sprintf("--pattern uniform --sparsity %.2f %s", float64(percent)/100, f)
	case blocks:
		f = fmt.Sprintf("--pattern %s --sparsity 0.%s %s", pattern, sparsity, f)
	default:
		f = fmt.Sprintf("--pattern %s %s", pattern, f)
	}
	return f + " " + seen
}

// Measure prunes and evaluates a cell with spc, a program at a path. A recipe, where
// there is one, changes how it is reconstructed.
func (m *PrunedModel) Measure(ctx context.Context, spc, cell string, reconstruct bool, s Split, recipe string) (r PrunedResult) {
	r = PrunedResult{Model: m.Model, Cell: cell, Reconstruct: reconstruct}
	bars := m.Floors
	if reconstruct {
		bars = m.Aims
	}
	if b, ok := bars[cell]; ok {
		r.Bar = &b
	}
	flags := m.flags(cell, reconstruct, s)
	if reconstruct && recipe != "" {
		flags += " --recipe " + recipe
	}
	r.Command = command(flags)
	err := func() error {
		dir, err := os.MkdirTemp("", "spc-accuracy-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		out := filepath.Join(dir, "model.spx")
		var report struct {
			Prune struct {
				Trials   []struct{ Allocate string }
				Prunable struct{ Weights, Zeros int }
			}
		}
		start := time.Now()
		if err := call(ctx, &report, spc, append([]string{"compile", filepath.Join(Root(), m.Model, "model.onnx"), "-o", out, "--json"}, words(flags)...)); err != nil {
			return err
		}
		r.Compile = time.Since(start).Seconds()
		if p := report.Prune; p.Prunable.Weights > 0 {
			r.Sparsity = float64(p.Prunable.Zeros) / float64(p.Prunable.Weights)
		}
		if t := report.Prune.Trials; len(t) > 0 {
			r.Allocate = t[0].Allocate
		}
		var e Evaluation
		if err := call(ctx, &e, spc, append([]string{"eval", out, "--samples", s.Measure, "--json", "--data"}, words(m.Data+" "+m.Eval)...)); err != nil {
			return err
		}
		r.Metric, r.Value, r.Samples = e.Metric, e.Value, e.N
		return nil
	}()
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// Former says that a result is of flags that the table no longer has: of defaults that were others.
func (m *PrunedModel) Former(r *PrunedResult) bool {
	return r.Command != command(m.flags(r.Cell, r.Reconstruct, Tabled))
}

// call runs spc and reads the JSON that it prints.
func call(ctx context.Context, into any, spc string, args []string) error {
	out, err := exec.CommandContext(ctx, spc, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%s", bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// Missed is the verdict on a result that is worse than its bar beyond the noise.
const Missed = "missed"

// Verdict compares a result with its bar.
func (m *PrunedModel) Verdict(r *PrunedResult) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Bar == nil:
		return ""
	}
	reached, noise := r.Value >= *r.Bar, *r.Bar-r.Value <= m.Noise
	if m.Perplexity {
		reached, noise = r.Value <= *r.Bar, r.Value <= *r.Bar*(1+m.Noise)
	}
	if _, ok := quantised(r.Cell); ok {
		noise = false
	}
	switch {
	case reached:
		return "reached"
	case noise:
		return "within noise"
	}
	return Missed
}
